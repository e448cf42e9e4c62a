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
//! An [`Engine`] runs such tasks durably, with the truth in a SQLite file: a process can be killed
//! at any instant, what was acknowledged is there, what was begun goes on, every end is recorded
//! once. What it runs are [`Workflow`]s, made of [`Task`]s; `#[task]` makes one of an async function:
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{Context, Engine, TaskError, Workflow, task};
//!
//! #[task]
//! async fn extract(context: &mut Context<u64>) -> Result<u64, TaskError> {
//!     Ok(context.input() * 2)
//! }
//!
//! #[task(after = [extract], retries = 3, timeout = "60s")]
//! async fn load(context: &mut Context) -> Result<String, TaskError> {
//!     Ok(format!("{} rows", context.output::<u64>(extract::ID)?))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let etl = Workflow::builder("etl").task(extract::task()).task(load::task()).build()?;
//! // "sqlite:jobs.db" for one that survives the process.
//! let engine = Engine::builder("memory:").slots(4).workflow(etl).start().await?;
//! let run = engine.submit("etl", 21).key("tonight").await?;
//! assert_eq!(run.wait().await?.output::<String>(load::ID)?, "42 rows");
//! engine.shutdown(Duration::from_secs(30)).await;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Engine`], [`Run`]: submit, wait, status, cancel, pause, events, metrics, shutdown. What holds
//!   after a crash is said at [`Engine`].
//! - [`Workflow`], [`Task`], `task`: tasks with dependencies; [`Context`] and [`TaskHandle`] are what
//!   they are given, [`TaskError`] is how they fail. On Unix, `process` has commands as tasks.
//! - [`TaskHandle`] and [`Wait`]: waiting without the slot: for conditions, time, signals, other runs; steps
//!   whose results are stored.
//! - [`Limit`]: what all workers of a store share. [`Explanation`]: why a task is not running.
//! - [`condition`]: things to wait for that are checked for all who wait at once.
//! - [`SlotPool`] and [`SlotToken`]: slots, usable alone.
//! - [`Batch`]: many things now, so many at a time, with no store.
//! - `testing`: tasks and workflows on paused time, for the tests of an application.
//!
//! The guide, in the folder `docs` of the repository, tells all of this at more length.
//!
//! # What is held when
//!
//! | the task | slot | limits |
//! |---|---|---|
//! | has not begun | no | no |
//! | computes | yes | yes |
//! | waits (a [`Wait`] that is not over), in memory or as a row | no | yes, unless the wait [gives them back](Wait::releasing) |
//! | has waited and queues to go on | no | yes |
//! | has dropped a wait in the middle (`select!`, `timeout`) | not until its next await; then it queues, and is polled again with the slot | yes |
//! | has ended, failed, panicked, was cancelled or dropped | no | no |
//! | blocks its thread beyond its time-out | yes, shown as [`leaky`](SlotPool::leaky), until it returns | no |
//!
//! # Features
//!
//! - `sqlite`: stores in a SQLite file, `"sqlite:PATH"`; SQLite is compiled in. On by default.
//! - `postgres`: stores in a PostgreSQL database, `"postgres://USER@HOST/DATABASE"`. Off by default.
//! - `macros`: the attribute `#[task]`. On by default.
//! - `http`: [`condition`]'s `http`, with TLS. Off by default.
//! - `watch`: files that are waited for are looked at when the file system says that something has
//!   happened to them (Linux). Off by default.
//! - `testing`: the module `testing`. Off by default.
//!
//! Without any of them there are slots, waits, conditions, batches and engines in memory.

mod attempt;
pub mod batch;
pub mod condition;
mod contain;
mod context;
mod deadline;
pub mod engine;
pub mod error;
mod gate;
mod handle;
mod journal;
#[cfg(unix)]
pub mod process;
pub mod slot;
mod sync;
mod task;
mod task_error;
#[cfg(feature = "testing")]
pub mod testing;
mod tide;
mod trace;
mod wait;
mod workflow;

pub use batch::{Batch, ExecutionResults, OnFailure, TaskResult, TaskStatus, timeout_with};
pub use condition::Condition;
pub use context::Context;
pub use engine::{
    Child, Config, Engine, EngineBuilder, Event, Explanation, Metrics, Retention, Run, RunStatus,
    ShutdownReport,
};
pub use handle::TaskHandle;
pub use serde_json::Value;
pub use slot::{SlotPool, SlotToken};
#[cfg(unix)]
pub use task::CommandFn;
pub use task::{BlockingFn, Task, TaskFn};
pub use task_error::TaskError;
/// What the engine is made of and what is pure: the lifecycle, graphs, plans, what a store has to do.
/// For stores of one's own, and for tools that look deeper into one.
pub use tidegate_core as core;
pub use tidegate_core::duration;
pub use tidegate_core::graph::{RunOutcome, When};
pub use tidegate_core::limit::Limit;
pub use tidegate_core::plan::LimitUse;
pub use tidegate_core::{Backoff, RunId, TaskExecutionId, Timestamp};
/// Makes a task of an async function.
///
/// The function stays as it is and can be called as before. Beside it, under the same name and as
/// visible as the function, stand `ID`, the name of the task, and `task()`, which makes the
/// [`Task`]:
///
/// ```
/// use tidegate::{Context, TaskError, TaskHandle, Workflow, task};
/// # use std::time::Duration;
///
/// #[task]
/// async fn extract(context: &mut Context) -> Result<u64, TaskError> {
///     Ok(context.input().as_u64().unwrap_or(1))
/// }
///
/// #[task(after = [extract], retries = 3, backoff = "2s", timeout = "10m")]
/// async fn load(context: &mut Context, handle: &TaskHandle) -> Result<u64, TaskError> {
///     let rows: u64 = context.output(extract::ID)?;
///     handle.sleep(Duration::from_millis(rows)).await?;
///     Ok(rows)
/// }
///
/// let etl = Workflow::builder("etl")
///     .task(extract::task())
///     .task(load::task().retries(9))
///     .build()?;
/// # Ok::<(), tidegate::error::WorkflowError>(())
/// ```
///
/// It is written `async fn name(context: &mut Context) -> Result<T, E>`, with a `handle:
/// &TaskHandle` behind the context if it waits without its slot. What it makes is of this form:
///
/// ```
/// # use tidegate::{Context, TaskError};
/// # async fn extract(_: &mut Context) -> Result<u64, TaskError> { Ok(1) }
/// # #[allow(non_camel_case_types)]
/// enum extract {}
/// impl extract {
///     const ID: &'static str = "extract";
///     fn task() -> tidegate::Task {
///         tidegate::Task::new(Self::ID, extract)
///     }
/// }
/// # let _ = extract::task();
/// ```
///
/// # Options
///
/// Each is a method of `Task` with the same name, and what is written here can be changed by
/// calling it: `load::task().retries(9)`.
///
/// | option | value | without it |
/// |---|---|---|
/// | `id` | a text of at least one character | the name of the function |
/// | `after` | a task or a list of tasks: the path of a function that is a task, or a name in quotes | nothing |
/// | `retries` | a whole number | 0 |
/// | `backoff` | a duration, the same each time; or an expression of type `Backoff` | `Backoff::default()` |
/// | `timeout` | a duration above 0 | no limit |
/// | `queue_timeout` | a duration above 0 | no limit |
/// | `deadline` | a duration above 0 | no limit |
/// | `weight` | a whole number of at least 1 | 1 |
/// | `priority` | a whole number of seconds, also below 0 | 0 |
/// | `limits` | a limit or a list: a name in quotes, a name with a number of units, an expression of type `LimitUse` | none |
/// | `when` | `all_succeeded`, `all_done`, `any_failed` or `any_succeeded` | `all_succeeded` |
/// | `each` | the name of the list over which the task is mapped | runs once |
/// | `parkable` | nothing, or a truth value: whether it may wait as a row | waits in memory |
/// | `crate` | the path of the crate `tidegate`, where it has another name | `::tidegate` |
///
/// A duration is `"250ms"`, `"90s"`, `"1h30m"`, a whole number of seconds, or an expression of type
/// `Duration`. Numbers and rules can be expressions too.
///
/// A path in `after` is checked by the compiler; a name in quotes is checked when the workflow is
/// built.
///
/// # Errors
///
/// What cannot be a task is refused where it is written: a function that is not async, is generic,
/// takes `self`, no context, or more than a context and a handle, or returns nothing. So is a module
/// or type of the same name in the same place, since that name is taken.
#[cfg(feature = "macros")]
pub use tidegate_macros::task;
pub use wait::{Wait, WaitError};
pub use workflow::{Workflow, WorkflowBuilder};

#[cfg(doctest)]
mod guide;

/// The README's example is compiled and run as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
