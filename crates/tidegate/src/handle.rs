//! What a task can do besides computing.

use crate::attempt::Attempt;
use crate::context::encode;
use crate::engine::{Child, RunStatus};
use crate::journal::Answer;
use crate::slot::SlotToken;
use crate::task_error::TaskError;
use crate::tide::Timer;
use crate::wait::stored::{self, For, Sleeping, Stored};
use crate::wait::{All, Any, Sleep, Until, Wait, While, Yield};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tidegate_core::store::NewRun;
use tidegate_core::wait::{WaitId, WaitKind, WaitOp, WaitOutcome};
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
    /// The task is entered again. If it is [parkable](crate::Task::parkable), when the sleep ends was
    /// stored with its beginning, and the rest of it is slept; otherwise it sleeps again from the
    /// beginning.
    pub fn sleep(&self, delay: Duration) -> Wait<'_, ()> {
        let stored = self.stored_sleep(|| Sleeping::For(delay));
        stored.unwrap_or_else(|| Wait::new(&self.attempt, Sleep::For(delay)))
    }

    fn stored_sleep(&self, until: impl FnOnce() -> Sleeping) -> Option<Wait<'_, ()>> {
        let record = self.attempt.record()?;
        record.parks_after()?;
        let id = record.journal().next(WaitKind::Sleep, "");
        let stored = Stored::new(&self.attempt, id, "", For::Sleep(until()), stored::time);
        Some(Wait::new(&self.attempt, stored))
    }

    /// Waits, without the slot, for a signal of this name to the task's run
    /// ([`Run::signal`](crate::Run::signal)), and returns what it brings.
    ///
    /// A signal that was sent before is there at once. Each is received by one wait, those of a name
    /// in the order in which they were sent, by whoever has waited longest. A task that is done for
    /// items, and its items, receive the signals of the run they belong to.
    ///
    /// # Cancel safety
    /// See [`Wait`]. A wait that is dropped receives nothing: the next one gets the signal.
    ///
    /// # After a crash
    /// A signal that was received is received again by the same wait of the next entry, also in a
    /// further attempt.
    ///
    /// # Errors
    /// Outside an engine; a time-out, which is stored like a signal.
    pub fn wait_for_signal(&self, name: impl AsRef<str>) -> Wait<'_, Value> {
        self.wait_for_signal_as(name)
    }

    /// The same for a signal that brings a `T`.
    ///
    /// # Errors
    /// Besides: what it brings is no `T`, which another attempt would not mend.
    pub fn wait_for_signal_as<T>(&self, name: impl AsRef<str>) -> Wait<'_, T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let id = self.next_wait(WaitKind::Signal, name.as_ref());
        let stored = Stored::new(&self.attempt, id, "", For::Signal, stored::signal::<T>);
        Wait::new(&self.attempt, stored)
    }

    /// Begins a run of a workflow that this engine knows, and waits for its end without the slot.
    ///
    /// The run belongs to the task: it is cancelled when the task ends other than by success, and
    /// paused with the task's run. How it ended is no error; its
    /// [`output`](crate::RunStatus::output) is, where there is none.
    ///
    /// # Cancel safety
    /// See [`Wait`]. The run goes on when the wait is dropped. In a [`wait_any`](Self::wait_any)
    /// that something else has won it is cancelled.
    ///
    /// # After a crash
    /// The next entry finds the run that was begun, also in a further attempt, and waits for it or
    /// has its end.
    ///
    /// # Errors
    /// Outside an engine; an unknown workflow, or an input that is too large; a limit that this task
    /// keeps and that a task of the run needs ([`Wait::releasing`]).
    pub fn run_child(
        &self,
        workflow: impl Into<String>,
        input: impl Serialize,
    ) -> Wait<'_, RunStatus> {
        self.run_child_with(workflow, input, |child| child)
    }

    /// The same for a run in another queue or with another priority than the task's.
    ///
    /// # Errors
    /// As for [`run_child`](Self::run_child).
    pub fn run_child_with(
        &self,
        workflow: impl Into<String>,
        input: impl Serialize,
        with: impl FnOnce(Child) -> Child,
    ) -> Wait<'_, RunStatus> {
        let child = with(Child::new(workflow.into(), &input));
        let label = format!("workflow \"{}\"", child.workflow());
        let what = match self.attempt.record().map(|record| record.child(child)) {
            Some(Ok(new)) => For::Child(Box::new(new)),
            Some(Err(error)) => For::Wrong(error),
            // Polling it says so.
            None => For::Signal,
        };
        let id = self.next_wait(WaitKind::Child, "");
        Wait::new(&self.attempt, Stored::new(&self.attempt, id, label, what, stored::run))
    }

    /// Waits, without the slot, for a run that was made beforehand and is the task's own.
    pub(crate) fn run_own(&self, name: &str, run: NewRun) -> Wait<'_, RunStatus> {
        let id = self.next_wait(WaitKind::Child, name);
        let (label, what) = (name.to_owned(), For::Child(Box::new(run)));
        Wait::new(&self.attempt, Stored::new(&self.attempt, id, label, what, stored::run))
    }

    /// Waits, without the slot, for the end of another run.
    ///
    /// # Cancel safety
    /// See [`Wait`].
    ///
    /// # Errors
    /// Outside an engine; there is no such run; it waits, itself or through others, for the run of
    /// this task, so that neither would ever end; it needs a limit that this task keeps.
    pub fn wait_for_run(&self, run: RunId) -> Wait<'_, RunStatus> {
        let id = self.next_wait(WaitKind::Run, &run.to_string());
        Wait::new(&self.attempt, Stored::new(&self.attempt, id, "", For::Run(run), stored::run))
    }

    fn next_wait(&self, kind: WaitKind, name: &str) -> WaitId {
        match self.attempt.record() {
            Some(record) => record.journal().next(kind, name),
            None => WaitId::new(kind, name, 0),
        }
    }

    /// Does a part of the task, with the slot, and stores what it came to: a step that was stored is
    /// never repeated; one that was not is repeated.
    ///
    /// Once this returns, a later entry of the task, also in a further attempt, gets the same value
    /// without the future being polled. A process that dies after the future has ended and before its
    /// value is stored makes it run again. An error is not stored. Outside an engine the future is
    /// run, and that is all.
    ///
    /// ```
    /// # use tidegate::{Context, TaskError, TaskHandle};
    /// # async fn charge(_: &str) -> Result<u64, TaskError> { Ok(1) }
    /// async fn order(context: &mut Context<String>, handle: &TaskHandle) -> Result<u64, TaskError> {
    ///     let receipt = handle.step("charge", charge(context.input())).await?;
    ///     Ok(receipt)
    /// }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it drops the future; whether its value was stored is then open, until the next entry.
    ///
    /// # Errors
    /// The future's own; what it returns is too large, or of another type than an earlier entry has
    /// stored.
    pub async fn step<T, E, F>(&self, name: impl AsRef<str>, future: F) -> Result<T, TaskError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<TaskError>,
        F: Future<Output = Result<T, E>>,
    {
        let Some(record) = self.attempt.record() else { return future.await.map_err(Into::into) };
        let name = name.as_ref();
        let id = record.journal().next(WaitKind::Step, name);
        if let Some((known, _)) = record.journal().known(&id)
            && let Some(WaitOutcome::Value(value)) = known.outcome
        {
            let bytes: &[u8] = value.as_deref().unwrap_or(b"null");
            return serde_json::from_slice(bytes).map_err(|error| {
                let wanted = std::any::type_name::<T>();
                let why =
                    format!("what step \"{name}\" came to cannot be read as {wanted}: {error}");
                TaskError::permanent(why)
            });
        }
        let value = future.await.map_err(Into::into)?;
        let bytes = encode(&format!("what step \"{name}\" came to"), &value)?;
        let (label, outcome) = ("".into(), WaitOutcome::Value(bytes));
        let op = WaitOp::End { id: id.clone(), label, outcome };
        record.journal().ask(&id, op.clone());
        record.ask(op);
        std::future::poll_fn(|cx| match record.journal().look(&id, cx) {
            Answer::Over(_) => Poll::Ready(()),
            _ => Poll::Pending,
        })
        .await;
        record.journal().forget(&id);
        Ok(value)
    }

    /// Waits, without the slot, until an instant on the wall clock, such as a
    /// [`SystemTime`]; an instant that has passed releases nothing.
    ///
    /// # Cancel safety
    /// See [`Wait`].
    pub fn sleep_until(&self, instant: impl Into<Timestamp>) -> Wait<'_, ()> {
        let instant = instant.into();
        if let Some(stored) = self.stored_sleep(|| Sleeping::Until(instant)) {
            return stored;
        }
        let now = self.attempt.record().map(|record| record.now());
        let delay = instant.since(now.unwrap_or_else(|| SystemTime::now().into()));
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
        Wait::new(&self.attempt, Any::new(&self.attempt, waits))
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
        Wait::new(&self.attempt, All::new(&self.attempt, waits))
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
