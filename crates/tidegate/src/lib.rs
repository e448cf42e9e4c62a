//! Slots, waits and batches.

mod attempt;
pub mod batch;
pub mod condition;
pub mod error;
mod handle;
pub mod slot;
mod sync;
mod task_error;
mod tide;
mod wait;

pub use batch::{Batch, ExecutionResults, OnFailure, TaskResult, TaskStatus, timeout_with};
pub use condition::Condition;
pub use handle::TaskHandle;
pub use slot::{SlotPool, SlotToken};
pub use task_error::TaskError;
pub use tidegate_core::{RunId, TaskExecutionId, Timestamp};
pub use wait::{Wait, WaitError};
