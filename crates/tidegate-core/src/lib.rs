//! The pure part of tidegate.
//!
//! Everything here is a value or a function of values: no runtime, no clock, no randomness, no
//! input or output. Time, random bits and ids come in as arguments, so that each rule can be
//! tested by itself and replayed exactly.
//!
//! - [`slot`]: the slot book, which decides who may compute next.
//! - [`chain`]: linked queues in one block of memory, which the book and the timer wheel stand on.
//! - [`lifecycle`]: what an event makes of a task, as one total function; [`Backoff`] between attempts.
//! - [`graph`]: the graph of a workflow, and what follows from the states of its tasks; [`plan`]: a
//!   graph with the rules of its tasks, as it is stored with a run.
//! - [`store`]: the seam to where the truth is; [`rows`] and [`decision`]: what every store shares.
//! - [`packed`]: what stores keep of a row that no statement looks at.
//! - [`wait`]: waits that a store knows; [`limit`]: bounds that all workers share.
//! - [`dispatcher`]: the state of one worker, and what it does about what happens.
//! - [`explain`]: why a task is not running; [`load`]: what follows from the load of a machine.
//! - [`retention`]: what a store no longer keeps; [`sweep`]: rows that nothing refers to; [`retry`]: what a
//!   new run takes over from an old one.
//! - [`testing`]: hooks for the tests of stores.
//! - [`trust`]: which files beside a store are trusted.
//! - [`duration`]: durations as people write them (`"5m"`, `"1h30m"`, `"90"`).
//! - [`RunId`], [`TaskExecutionId`], [`Timestamp`].

pub mod audit;
mod backoff;
pub mod chain;
pub mod decision;
pub mod delta;
pub mod dispatcher;
pub mod duration;
mod error_text;
pub mod explain;
pub mod graph;
mod id;
pub mod keys;
pub mod lifecycle;
pub mod limit;
pub mod load;
pub mod memory;
pub mod packed;
pub mod plan;
pub mod retention;
pub mod retry;
pub mod rows;
pub mod slot;
pub mod store;
pub mod sweep;
pub mod testing;
mod timestamp;
pub mod transaction;
pub mod trust;
pub mod wait;
pub mod wakeup;
pub mod want;

pub use backoff::{Backoff, InvalidBackoff};
pub use error_text::ERROR_MAX;
pub use id::{InvalidId, RunId, TaskExecutionId};
pub use timestamp::Timestamp;
