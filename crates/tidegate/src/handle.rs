//! What a task can do besides computing.

use crate::attempt::Attempt;
use crate::slot::SlotToken;
use crate::tide::Timer;
use crate::wait::{All, Any, Sleep, Until, Wait, While, Yield};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate_core::{RunId, TaskExecutionId, Timestamp};

/// A task's hold on its slot and its way to wait without it.
///
/// Work given to [`SlotPool::run`](crate::SlotPool::run), [`spawn`](crate::SlotPool::spawn) or
/// [`Batch`](crate::Batch) gets one by taking it as parameter; [`TaskHandle::new`] makes one from a
/// token by hand.
///
/// A task may have several waits open at once (`join!`, `select!`). The first that begins to wait
/// releases the slot; the first that is over takes it again, and the others go on with it held.
/// While one is open, the other branches of a `join!` run without the slot, so they should not
/// compute. To wait for several things with the slot released until the end, use
/// [`wait_all`](Self::wait_all) or [`wait_any`](Self::wait_any).
#[derive(Debug)]
pub struct TaskHandle {
    attempt: Arc<Attempt>,
}

impl TaskHandle {
    /// A handle outside any task, from a slot of one's own. The slot is given back when the handle
    /// is dropped, or comes out again by [`into_slot_token`](Self::into_slot_token).
    ///
    /// There is no gate around such a task: after a wait was dropped in the middle, it goes on
    /// without the slot.
    pub fn new(token: SlotToken) -> Self {
        let mut attempt = Attempt::new(token);
        attempt.gated = false;
        TaskHandle { attempt: Arc::new(attempt) }
    }

    /// A handle outside any task that can be told to stop.
    #[cfg(feature = "testing")]
    pub(crate) fn alone(token: SlotToken, cancel: tokio_util::sync::CancellationToken) -> Self {
        let mut attempt = Attempt::new(token);
        (attempt.gated, attempt.cancel) = (false, Some(cancel));
        TaskHandle { attempt: Arc::new(attempt) }
    }

    /// The handle of a task that is polled through a gate.
    pub(crate) fn of(attempt: Arc<Attempt>) -> Self {
        TaskHandle { attempt }
    }

    pub(crate) fn inner(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    /// Waits, without the slot, until the condition is true; looks at once and then every `every`.
    ///
    /// The condition is a closure that returns a future of `bool` or `Result<bool, E>`; it may
    /// borrow from the task. An error ends the wait with
    /// [`WaitError::Failed`](crate::WaitError::Failed). Or it is one of [`condition`](crate::condition)'s.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let handle = tidegate::TaskHandle::new(tidegate::SlotPool::new(1)?.acquire().await?);
    /// let path = String::from("Cargo.toml");
    /// handle
    ///     .defer_until(|| async { tokio::fs::try_exists(&path).await }, Duration::from_secs(5))
    ///     .timeout(Duration::from_secs(600))
    ///     .backoff(1.5, Duration::from_secs(60))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The first look is made with the slot held for up to 10 ms, so what is true already costs
    /// nothing and releases nothing. All looks of a pool together are bounded: at most 64 are under
    /// way at once. Two looks of one wait are never under way at once, and after a stall there is
    /// one look, not a burst.
    ///
    /// # Cancel safety
    /// See [`Wait`].
    ///
    /// # Errors
    /// An interval of zero, the condition's own error, a time-out, a closed pool.
    pub fn defer_until<'h, C, M>(&'h self, condition: C, every: Duration) -> Wait<'h, ()>
    where
        C: Until<'h, M>,
    {
        condition.wait(self, every)
    }

    /// Waits, without the slot, for a future; returns its value. Nothing is polled on a timer. A
    /// future that is ready at once releases nothing.
    ///
    /// The future runs without a slot, so it should wait, not compute.
    ///
    /// # Cancel safety
    /// See [`Wait`]; the future is dropped with it.
    pub fn defer_while<'h, F>(&'h self, future: F) -> Wait<'h, F::Output>
    where
        F: Future + Send + 'h,
    {
        Wait::new(&self.attempt, While { future })
    }

    /// Waits, without the slot, for a time.
    ///
    /// # Cancel safety
    /// See [`Wait`].
    ///
    /// # After a crash
    /// The task is entered again, and sleeps again from the beginning. To be run again at a time that
    /// is stored, end with [`TaskError::snooze`](crate::TaskError::snooze).
    pub fn sleep(&self, delay: Duration) -> Wait<'_, ()> {
        Wait::new(&self.attempt, Sleep::For(delay))
    }

    /// Waits, without the slot, until an instant on the wall clock, such as a
    /// [`SystemTime`]; an instant that has passed releases nothing.
    ///
    /// # Cancel safety
    /// See [`Wait`].
    pub fn sleep_until(&self, instant: impl Into<Timestamp>) -> Wait<'_, ()> {
        let now = self.attempt.record().map(|record| record.now());
        let delay = instant.into().since(now.unwrap_or_else(|| SystemTime::now().into()));
        Wait::new(&self.attempt, Sleep::Until(Timer::after(self.attempt.tide(), delay)))
    }

    /// Waits for the first of several; of those that are over at the same time, for the first by
    /// argument. The others are dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let handle = tidegate::TaskHandle::new(tidegate::SlotPool::new(1)?.acquire().await?);
    /// #[derive(Debug, PartialEq)]
    /// enum Woke {
    ///     Answered(&'static str),
    ///     Late,
    /// }
    /// let woke = handle
    ///     .wait_any([
    ///         handle.defer_while(async { "yes" }).map(Woke::Answered),
    ///         handle.sleep(Duration::from_secs(4)).map(|()| Woke::Late),
    ///     ])
    ///     .await?;
    /// assert_eq!(woke, Woke::Answered("yes"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// See [`Wait`].
    ///
    /// # Errors
    /// What the first that is over returns; also when it is given nothing to wait for.
    pub fn wait_any<'h, T>(&'h self, waits: impl IntoIterator<Item = Wait<'h, T>>) -> Wait<'h, T>
    where
        T: Send + 'h,
    {
        Wait::new(&self.attempt, Any { waits: waits.into_iter().collect() })
    }

    /// Waits for all of several; returns their values in order. Of nothing: an empty list, at once.
    ///
    /// # Cancel safety
    /// See [`Wait`].
    ///
    /// # Errors
    /// The first error ends the wait; the others are dropped.
    pub fn wait_all<'h, T>(
        &'h self,
        waits: impl IntoIterator<Item = Wait<'h, T>>,
    ) -> Wait<'h, Vec<T>>
    where
        T: Send + 'h,
    {
        Wait::new(&self.attempt, All::new(waits))
    }

    /// Gives the slot to whoever waits for one, and goes on when its turn comes again.
    ///
    /// # Cancel safety
    /// See [`Wait`].
    pub fn yield_slot(&self) -> Wait<'_, ()> {
        Wait::new(&self.attempt, Yield { yielded: false })
    }

    /// Says how far the task is: a fraction of the whole (kept between 0 and 1) and a message.
    /// Goes to whoever observes the task, such as
    /// [`Batch::on_progress`](crate::Batch::on_progress); never blocks.
    pub fn progress(&self, fraction: f64, message: impl AsRef<str>) {
        if let Some(observer) = &self.attempt.observer {
            let fraction = if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) };
            observer.progress(fraction, message.as_ref());
        }
    }

    /// Returns when the task is asked to stop; otherwise never.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn cancelled(&self) {
        let engine = self.attempt.record().map(|record| record.cancel_token());
        match engine.or(self.attempt.cancel.as_ref()) {
            Some(cancel) => cancel.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// What tells the task that it is asked to stop.
    #[cfg(unix)]
    pub(crate) fn cancel_token(&self) -> tokio_util::sync::CancellationToken {
        let engine = self.attempt.record().map(|record| record.cancel_token());
        engine.or(self.attempt.cancel.as_ref()).cloned().unwrap_or_default()
    }

    /// Whether the task is asked to stop.
    pub fn is_cancelled(&self) -> bool {
        match self.attempt.record() {
            Some(record) => record.is_cancelled(),
            None => self.attempt.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()),
        }
    }

    /// The execution's id: the same on every entry and attempt of this task, and so an idempotency
    /// key towards the outside.
    pub fn task_execution_id(&self) -> TaskExecutionId {
        self.attempt.id
    }

    /// The run the task belongs to; `None` outside an engine.
    pub fn run_id(&self) -> Option<RunId> {
        self.attempt.record().map(|record| record.run_id())
    }

    /// Which attempt this is, from 1; always 1 outside an engine.
    pub fn attempt(&self) -> u32 {
        self.attempt.record().map_or(1, |record| record.number())
    }

    /// Whether the task holds its slot at this moment.
    pub fn is_slot_held(&self) -> bool {
        self.attempt.is_slot_held()
    }

    /// The slot of a handle made by [`new`](Self::new), held or released as it is. `None` inside
    /// [`run`](crate::SlotPool::run), [`spawn`](crate::SlotPool::spawn) and
    /// [`Batch`](crate::Batch): there the slot belongs to the task.
    pub fn into_slot_token(self) -> Option<SlotToken> {
        if self.attempt.gated { None } else { self.attempt.end() }
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        if !self.attempt.gated {
            drop(self.attempt.end());
        }
    }
}
