//! Any number of tasks through a bounded number of slots; a task that waits gives its slot back.
//!
//! A *slot* is the right to be computing now. Work that waits for the outside world (a file, an
//! API, time) does not compute, so it should not hold one:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate::{SlotPool, TaskError, TaskHandle, condition};
//!
//! let pool = SlotPool::new(4)?;
//! let task = pool
//!     .spawn(async |handle: TaskHandle| {
//!         handle.defer_until(condition::file("Cargo.toml"), Duration::from_secs(5)).await?;
//!         Ok::<_, TaskError>(std::fs::read_to_string("Cargo.toml")?.len())
//!     })
//!     .await?;
//! println!("{} bytes", task.await?);
//! # Ok(())
//! # }
//! ```
//!
//! - [`SlotPool`] and [`SlotToken`]: slots, usable alone.
//! - [`TaskHandle`] and [`Wait`]: waiting without the slot.
//! - [`condition`]: things to wait for that are checked for all who wait at once.
//! - [`Batch`]: many things now, so many at a time.
//!
//! # What is held when
//!
//! | the task | slot |
//! |---|---|
//! | has not begun | no |
//! | computes | yes |
//! | waits (a [`Wait`] that is not over) | no |
//! | has waited and queues to go on | no |
//! | has dropped a wait in the middle (`select!`, `timeout`) | not until its next await; then it queues, and is polled again with the slot |
//! | has ended, failed, panicked, was cancelled or dropped | no |
//! | blocks its thread beyond its time-out | yes, shown as [`leaky`](SlotPool::leaky), until it returns |
//!
//! # Features
//!
//! - `http`: [`condition`]'s `http`, with TLS. Off by default.

mod attempt;
pub mod batch;
pub mod condition;
mod context;
pub mod engine;
pub mod error;
mod gate;
mod handle;
pub mod slot;
mod sync;
mod task;
mod task_error;
mod tide;
mod wait;
mod workflow;

pub use batch::{Batch, ExecutionResults, OnFailure, TaskResult, TaskStatus, timeout_with};
pub use condition::Condition;
pub use context::Context;
pub use engine::{Config, Engine, EngineBuilder, Event, Metrics, Run, RunStatus, ShutdownReport};
pub use handle::TaskHandle;
pub use serde_json::Value;
pub use slot::{SlotPool, SlotToken};
pub use task::{Task, TaskFn};
pub use task_error::TaskError;
pub use tidegate_core::graph::{RunOutcome, When};
pub use tidegate_core::{Backoff, RunId, TaskExecutionId, Timestamp};
pub use wait::{Wait, WaitError};
pub use workflow::{Workflow, WorkflowBuilder};

/// The README's example is compiled and run as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
