//! Work on a slot: run in place or spawned, its end one of four distinct things.

use super::{Ended, SlotPool, SlotToken};
use crate::attempt::Attempt;
use crate::contain::{contain_panic, discard_value};
use crate::error::{AcquireError, Panic, RunError};
use crate::gate::{Gate, Passed};
use crate::handle::TaskHandle;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::JoinHandle;

/// What can be run on a slot: a future, or a closure that makes one from a [`TaskHandle`]. The
/// future's output is a `Result`. `M` only tells the two apart; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be run on a slot",
    note = "work is a future of a `Result`, as in `async {{ Ok::<_, TaskError>(7) }}`",
    note = "or takes a handle, as in `async move |handle: TaskHandle| {{ .. Ok::<_, TaskError>(7) }}`",
    note = "it is `Send + 'static`, and so is what it returns"
)]
pub trait Work<M>: Send + 'static {
    /// What the work returns when all is well.
    type Value: Send + 'static;
    /// What it returns otherwise.
    type Error: Send + 'static;
    /// The work as a future.
    type Future: Future<Output = Result<Self::Value, Self::Error>> + Send + 'static;

    /// Whether it wants a handle, and so may wait without its slot.
    #[doc(hidden)]
    const WAITS: bool;

    /// Makes the future; the handle is made only if it is wanted.
    #[doc(hidden)]
    fn begin(self, handle: impl FnOnce() -> TaskHandle) -> Self::Future;
}

/// Marks work that is a future.
#[derive(Debug)]
pub struct Plain;

/// Marks work that takes a handle.
#[derive(Debug)]
pub struct WithHandle;

impl<F, T, E> Work<Plain> for F
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    type Value = T;
    type Error = E;
    type Future = F;
    const WAITS: bool = false;

    fn begin(self, _: impl FnOnce() -> TaskHandle) -> F {
        self
    }
}

impl<C, F, T, E> Work<WithHandle> for C
where
    C: FnOnce(TaskHandle) -> F + Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    type Value = T;
    type Error = E;
    type Future = F;
    const WAITS: bool = true;

    fn begin(self, handle: impl FnOnce() -> TaskHandle) -> F {
        self(handle())
    }
}

impl SlotPool {
    /// Waits for a slot, runs the work on it in place and gives the slot back.
    ///
    /// The work is a future, or a closure that takes a [`TaskHandle`] and can wait without its
    /// slot:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tidegate::{SlotPool, TaskError, TaskHandle};
    ///
    /// let pool = SlotPool::new(1)?;
    /// let seven = pool.run(async { Ok::<_, TaskError>(7) }).await?;
    /// let eight = pool
    ///     .run(async move |handle: TaskHandle| {
    ///         handle.sleep(Duration::from_millis(1)).await?;
    ///         Ok::<_, TaskError>(seven + 1)
    ///     })
    ///     .await?;
    /// assert_eq!(eight, 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the slot back.
    ///
    /// # Errors
    /// A value, an error, a panic and a closed pool are distinct outcomes.
    pub async fn run<W: Work<M>, M>(&self, work: W) -> Result<W::Value, RunError<W::Error>> {
        self.acquire().await?.run(work).await
    }

    /// Waits for a slot, then spawns the work on it: this returns once the slot is granted, so that
    /// a loop of spawns runs no further ahead than there are slots.
    ///
    /// # Cancel safety
    /// Dropping the future before it returns drops the work, unbegun.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire). How the work ended is what [`Spawned`] returns.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn spawn<W: Work<M>, M>(
        &self,
        work: W,
    ) -> Result<Spawned<W::Value, W::Error>, AcquireError> {
        Ok(self.acquire().await?.spawn(work))
    }
}

impl SlotToken {
    /// Runs the work on this token's slots in place, then gives them back. See
    /// [`SlotPool::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the slots back.
    ///
    /// # Errors
    /// An error, a panic and a pool that was closed during a wait are distinct outcomes.
    pub fn run<W: Work<M>, M>(self, work: W) -> Running<W::Future> {
        let pool = self.pool().clone();
        let attempt = Arc::new(Attempt::new(self));
        let gate = Gate::new(attempt, |attempt| work.begin(|| TaskHandle::of(attempt.clone())));
        Running { gate, tally: Tally { pool, ended: None } }
    }

    /// Spawns the work on this token's slots. See [`SlotPool::spawn`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<W: Work<M>, M>(self, work: W) -> Spawned<W::Value, W::Error> {
        Spawned { task: Some(tokio::spawn(self.run(work))) }
    }
}

pin_project! {
    /// Work that runs on a slot in place. Made by [`SlotToken::run`].
    ///
    /// # Cancel safety
    /// Dropping it drops the work and gives the slot back.
    #[must_use = "the work does not run until it is awaited"]
    pub struct Running<F> {
        #[pin]
        gate: Gate<F>,
        tally: Tally,
    }
}

impl<F, T, E> Future for Running<F>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, RunError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.tally.ended = Some(Ended::Cancelled);
        let (outcome, ended) = match ready!(this.gate.poll(cx)) {
            Passed::Returned(Ok(value)) => (Ok(value), Ended::Succeeded),
            Passed::Returned(Err(error)) => (Err(RunError::Failed(error)), Ended::Failed),
            Passed::Panicked(panic) => (Err(RunError::Panicked(panic)), Ended::Failed),
            Passed::Parked(_) | Passed::Closed => {
                (Err(AcquireError::Closed.into()), Ended::Cancelled)
            }
        };
        this.tally.ended = Some(ended);
        Poll::Ready(outcome)
    }
}

impl<F> fmt::Debug for Running<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("pool", &self.tally.pool).finish_non_exhaustive()
    }
}

/// Counts the end of work on drop, so that dropped work counts too; what never began does not.
struct Tally {
    pool: SlotPool,
    ended: Option<Ended>,
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.ended.into_iter().for_each(|ended| self.pool.count(ended));
    }
}

/// Polls a future so that its panic, also that of its destructor, is a value.
pub(crate) async fn guarded<F: Future>(future: F) -> Result<F::Output, Panic> {
    let mut future = std::pin::pin!(Some(future));
    std::future::poll_fn(|cx| {
        if !std::mem::needs_drop::<F>() {
            let live = future.as_mut().as_pin_mut().expect("it is dropped after its end");
            return match contain_panic(|| live.poll(cx)) {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            };
        }
        let mut returned = None;
        // One boundary for body and destructor: bench p9.
        let polled = contain_panic(|| {
            let live = future.as_mut().as_pin_mut().expect("it is dropped after its end");
            if let Poll::Ready(output) = live.poll(cx) {
                returned = Some(output);
                future.set(None);
            }
        });
        match (polled, returned) {
            (Ok(()), None) => Poll::Pending,
            (Ok(()), Some(output)) => Poll::Ready(Ok(output)),
            (Err(panic), output) => {
                discard_value(output);
                // After a panic the future is never polled again. A second panic is not the first.
                let _ = contain_panic(|| future.set(None));
                Poll::Ready(Err(panic))
            }
        }
    })
    .await
}

/// Work that runs on a slot of its own accord; a future of how it ends.
///
/// Dropping this cancels the work and gives the slot back, unless it was [detached](Self::detach).
///
/// # Cancel safety
/// Polling it by reference and going away loses nothing: its outcome stays.
#[derive(Debug)]
#[must_use = "dropping it cancels the work; use `detach` to let it run"]
pub struct Spawned<T, E> {
    task: Option<JoinHandle<Result<T, RunError<E>>>>,
}

impl<T, E> Spawned<T, E> {
    /// Lets the work run to its end, unobserved.
    pub fn detach(mut self) {
        self.task = None;
    }

    /// Asks the work to stop at its next await; awaiting then gives [`RunError::Cancelled`], unless
    /// it had ended already.
    pub fn cancel(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    /// Whether the work has ended.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<T, E> Future for Spawned<T, E> {
    type Output = Result<T, RunError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let task = self.task.as_mut().expect("a task that was detached has no one to poll it");
        let joined = ready!(Pin::new(task).poll(cx));
        // Panics of the work are contained inside the task, so what is left is an abort.
        Poll::Ready(joined.unwrap_or(Err(RunError::Cancelled)))
    }
}

impl<T, E> Drop for Spawned<T, E> {
    fn drop(&mut self) {
        self.cancel();
    }
}
