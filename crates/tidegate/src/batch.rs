//! Many things now, through a bounded number of slots, with no store.
//!
//! - [`Batch`]: how to run them; can be used any number of times.
//! - [`ExecutionResults`], [`TaskResult`], [`TaskStatus`]: what became of them.
//! - [`BatchStream`]: the results as they come.
//! - [`timeout_with`]: a time-out with a callback, for one future.
//!
//! A run has one conductor, which pulls inputs, waits for slots and minds the time-outs, and as many
//! workers as tasks are under way. What they share is in `run`.

mod cell;
mod conductor;
mod inputs;
mod results;
mod run;
mod settings;
mod timeout;
mod worker;

pub use inputs::Inputs;
pub use results::{BatchStream, ExecutionResults, TaskResult, TaskStatus};
pub use settings::BatchError;
pub use tidegate_core::graph::OnFailure;
pub use timeout::{Callback, timeout_with};

use crate::slot::SlotPool;
use results::collect;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Runs many things, a bounded number at a time, and says what became of each.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::{Batch, TaskError};
///
/// let inputs = (1..=10).map(|n| {
///     let task = async move { if n == 7 { Err(TaskError::from("unlucky")) } else { Ok(n * n) } };
///     (format!("square {n}"), task)
/// });
/// let results = Batch::new().parallel_limit(3).continue_on_error(true).run_all(inputs).await?;
/// assert_eq!((results.succeeded.len(), results.failed.len()), (9, 1));
/// assert_eq!(results.failed[0].name, "square 7");
/// # Ok(())
/// # }
/// ```
///
/// Inputs are pairs of a name and either a future or a closure that takes a
/// [`TaskHandle`](crate::TaskHandle) by value and so can wait without its slot. They come from an
/// iterator or a stream and are pulled as slots become free, in order.
///
/// Unless the caller says otherwise, `TIDEGATE_PARALLEL_LIMIT` and `TIDEGATE_TASK_TIMEOUT` in the
/// environment take the place of the defaults.
///
/// # After a crash
/// Nothing is stored: what had not ended is gone.
#[derive(Clone, Default)]
pub struct Batch {
    parallel_limit: Option<u32>,
    task_timeout: Option<Option<Duration>>,
    on_failure: OnFailure,
    pool: Option<SlotPool>,
    cancel: Option<CancellationToken>,
    on_timeout: Option<OnTimeout>,
    on_progress: Option<OnProgress>,
}

type OnTimeout = Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

type OnProgress = Arc<dyn Fn(&Progress<'_>) + Send + Sync>;

/// Something that has happened in a batch.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The task it happened to.
    pub name: &'a str,
    /// What happened.
    pub news: News<'a>,
    /// How many tasks have ended.
    pub ended: usize,
    /// How many there are, where the inputs know it.
    pub total: Option<usize>,
}

/// What has happened to a task of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum News<'a> {
    /// It has begun.
    Began,
    /// It said how far it is, by [`TaskHandle::progress`](crate::TaskHandle::progress).
    Said {
        /// Between 0 and 1.
        fraction: f64,
        /// In its own words.
        message: &'a str,
    },
    /// It has ended, or will never begin.
    Ended(TaskStatus),
}

impl Batch {
    /// A batch with the defaults: 4 at a time, 300 s each, fail-fast.
    pub fn new() -> Self {
        Batch::default()
    }

    /// How many may compute at once. 4 unless set; at least 1.
    pub fn parallel_limit(mut self, limit: u32) -> Self {
        self.parallel_limit = Some(limit);
        self
    }

    /// How long each may compute; the clock stands still while a task waits. 300 s unless set;
    /// `None` for no bound.
    ///
    /// A task that reaches it is dropped and reported as [`TaskStatus::Timeout`]. Code that blocks
    /// its thread cannot be dropped: it is reported at the limit all the same (as long as the
    /// runtime has another thread to do so), and keeps its slot, counted by
    /// [`SlotPool::leaky`], until it returns.
    pub fn task_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.task_timeout = Some(limit.into());
        self
    }

    /// Whether the rest goes on after a failure: [`OnFailure::KeepGoing`] if so, else
    /// [`OnFailure::FailFast`].
    pub fn continue_on_error(self, go_on: bool) -> Self {
        self.on_failure(if go_on { OnFailure::KeepGoing } else { OnFailure::FailFast })
    }

    /// What happens to the rest after a failure or time-out. Under fail-fast what computes may
    /// finish, and what waits without its slot is cancelled: a wait must not hold a failed batch
    /// open.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Takes the slots from this pool, shared with whoever else uses it, in place of a
    /// [`parallel_limit`](Self::parallel_limit) of its own.
    pub fn pool(mut self, pool: &SlotPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Cancels everything when the token is cancelled: what has not begun never will, what is under
    /// way is dropped at its next await.
    pub fn cancel_with(mut self, token: CancellationToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// Called once for each task that reaches its time-out, with its name; the result is reported
    /// when the callback is done, for which it has as long as the task had. Its own failure (an
    /// error, a panic, taking too long) is logged and hides nothing.
    pub fn on_timeout<C, F>(mut self, callback: C) -> Self
    where
        C: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output: Callback> + Send + 'static,
    {
        let callback = Arc::new(callback);
        self.on_timeout = Some(Arc::new(move |name| {
            let callback = callback.clone();
            // Called inside the guard, so that a panic before its first await is caught too.
            Box::pin(timeout::quiet(async move { callback(name).await }))
        }));
        self
    }

    /// Called on every beginning and end, and when a task says how far it is. It runs between the
    /// tasks, so it should be quick; a panic in it is logged.
    pub fn on_progress(mut self, callback: impl Fn(&Progress<'_>) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(callback));
        self
    }

    /// Runs all inputs and gathers what became of them, in input order.
    ///
    /// After a failure or time-out under fail-fast, what has not begun is `cancelled`: an iterator
    /// is drained for the names, its futures never polled; a stream is read no further. An iterator
    /// or stream that panics counts as one more input, which failed, and is not asked again.
    ///
    /// At the end there is one `tracing` event `parallel_execution_complete` with `total`,
    /// `succeeded`, `failed`, `cancelled`, `parallel_limit`, `duration_ms` and `avg_task_ms`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels everything that is under way; the slots come back.
    ///
    /// # Errors
    /// A setting that makes no sense, before anything has run. Failures of tasks are results.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn run_all<I, M>(&self, inputs: I) -> Result<ExecutionResults<I::Value>, BatchError>
    where
        I: Inputs<M>,
    {
        let stream = self.stream(inputs)?;
        Ok(collect(stream).await)
    }

    /// Runs all inputs and yields each result as it ends (those of tasks that end one right after
    /// the other within a millisecond). If the results are not taken, no more than a bounded number
    /// of tasks are run ahead: a few hundred, or as many as the parallel limit if that is more.
    ///
    /// # Cancel safety
    /// Dropping the stream cancels everything that is under way; the slots come back.
    ///
    /// # Errors
    /// A setting that makes no sense, before anything has run.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn stream<I, M>(&self, inputs: I) -> Result<BatchStream<I::Value>, BatchError>
    where
        I: Inputs<M>,
    {
        let settings = self.settings()?;
        Ok(run::start(settings, inputs.into_producer()))
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("parallel_limit", &self.parallel_limit)
            .field("task_timeout", &self.task_timeout)
            .field("on_failure", &self.on_failure)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
