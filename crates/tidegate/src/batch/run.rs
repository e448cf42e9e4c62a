//! One run of a batch: what the conductor, the workers and the consumer share.
//!
//! The conductor pulls an input, waits for a slot, and spawns a worker with both. A worker runs its
//! task and reports the end; while nobody else wants the slot it goes on with the next input itself,
//! which is what makes small tasks cheap. A task that can wait gets a worker of its own. The
//! consumer takes results; when they pile up, nothing new begins.
//!
//! Lock order: the run's state, then a cell. Wakers are woken after both.

use super::cell::{Card, Cell, Stop};
use super::conductor::Conductor;
use super::inputs::Producer;
use super::results::{BatchStream, Supply, TaskResult, TaskStatus};
use super::settings::Settings;
use super::{News, OnFailure, Progress};
use crate::contain::{contain_panic, discard_value};
use crate::deadline::FAR;
use crate::error::{Closed, Panic, TimedOut};
use crate::gate::Passed;
use crate::slot::{Ended, Work};
use crate::sync::{Mutex, Wakers, lock};
use crate::task_error::TaskError;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::chain::Nodes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Results that may lie untaken before nothing new begins, or the parallel limit if that is more.
/// Enough that the consumer is woken once for many tiny tasks.
const UNTAKEN_MAX: usize = 256;

/// Starts a run on the present runtime.
pub(super) fn start<P, M>(settings: Settings, producer: P) -> BatchStream<P::Value>
where
    P: Producer<M>,
    M: Send + 'static,
{
    let began = Instant::now();
    // A token of the run's own, so that a handle sees every way of being cancelled.
    let cancel = settings.cancel.as_ref().map_or_else(CancellationToken::new, |c| c.child_token());
    let run = Arc::new(Run {
        began,
        cancel,
        abandoned: CancellationToken::new(),
        next_look: AtomicU64::new(u64::MAX),
        stopping: AtomicBool::new(false),
        conductor_in_line: AtomicBool::new(false),
        brisk: AtomicUsize::new(0),
        owed: AtomicBool::new(false),
        ticking: AtomicBool::new(false),
        killed: AtomicBool::new(false),
        untaken_max: UNTAKEN_MAX.max(settings.parallel_limit as usize),
        state: Mutex::new(State {
            total: producer.left(),
            producer: Some(producer),
            ahead: None,
            pulled: 0,
            cells: Nodes::default(),
            under_way: 0,
            stopped: None,
            untaken: VecDeque::new(),
            consumer: None,
            conductor: None,
            conductor_wants_room: false,
            tally: Tally::default(),
            completed: false,
        }),
        settings,
    });
    tokio::spawn(Conductor::new(run.clone()).conduct());
    BatchStream::new(run, began)
}

pub(super) struct Run<P: Producer<M>, M> {
    pub(super) settings: Settings,
    pub(super) began: Instant,
    pub(super) cancel: CancellationToken,
    /// Ends the callbacks of time-outs when nobody takes the results any more.
    abandoned: CancellationToken,
    pub(super) untaken_max: usize,
    /// When the conductor looks at the time-outs next, in nanoseconds since `began`.
    pub(super) next_look: AtomicU64,
    /// Whether nothing new begins, readable without the lock.
    pub(super) stopping: AtomicBool,
    /// Whether one of those who wait for a slot is the conductor.
    pub(super) conductor_in_line: AtomicBool,
    /// Workers whose present task has not paused yet.
    pub(super) brisk: AtomicUsize,
    /// Whether there are results that the consumer was not woken for.
    pub(super) owed: AtomicBool,
    /// Whether the conductor looks at that every millisecond.
    pub(super) ticking: AtomicBool,
    /// Whether what is under way has to stop too.
    pub(super) killed: AtomicBool,
    pub(super) state: Mutex<State<P, M>>,
}

pub(super) struct State<P: Producer<M>, M> {
    /// Gone once it has no more to give.
    pub(super) producer: Option<P>,
    /// Pulled, waiting for a slot.
    pub(super) ahead: Option<Input<P::Work>>,
    pub(super) pulled: usize,
    pub(super) total: Option<usize>,
    pub(super) cells: Nodes<Arc<Cell>>,
    /// Workers, and callbacks of time-outs.
    pub(super) under_way: usize,
    pub(super) stopped: Option<Stopped>,
    pub(super) untaken: VecDeque<TaskResult<P::Value>>,
    pub(super) consumer: Option<Waker>,
    pub(super) conductor: Option<Waker>,
    pub(super) conductor_wants_room: bool,
    pub(super) tally: Tally,
    pub(super) completed: bool,
}

pub(super) struct Input<W> {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) work: W,
    pub(super) since: Instant,
}

/// Why nothing new begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    Failure,
    Cancelled,
    PoolClosed,
    /// Nobody takes the results.
    Abandoned,
}

impl Stopped {
    pub(super) fn why(self) -> TaskError {
        match self {
            Stopped::Failure => "not begun: another task had failed".into(),
            Stopped::Cancelled | Stopped::Abandoned => "not begun: the batch was cancelled".into(),
            Stopped::PoolClosed => Closed.into(),
        }
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) cancelled: usize,
    /// Sum over the tasks that began.
    pub(super) duration: Duration,
    pub(super) began: u32,
}

impl Tally {
    pub(super) fn ended(&self) -> usize {
        self.succeeded + self.failed + self.cancelled
    }
}

/// How a task's body ended.
pub(super) enum End<T, E> {
    Returned(Result<T, E>),
    Panicked(Panic),
    PoolClosed,
    Stopped(Stop),
}

/// A body that cannot wait, its panic as a value.
impl<T, E> From<Result<Result<Result<T, E>, Panic>, Stop>> for End<T, E> {
    fn from(end: Result<Result<Result<T, E>, Panic>, Stop>) -> Self {
        match end {
            Ok(Ok(returned)) => End::Returned(returned),
            Ok(Err(panic)) => End::Panicked(panic),
            Err(stop) => End::Stopped(stop),
        }
    }
}

/// A body behind its gate.
impl<T, E> From<Result<Passed<Result<T, E>>, Stop>> for End<T, E> {
    fn from(end: Result<Passed<Result<T, E>>, Stop>) -> Self {
        match end {
            Ok(Passed::Returned(returned)) => End::Returned(returned),
            Ok(Passed::Panicked(panic)) => End::Panicked(panic),
            Ok(Passed::Parked(_) | Passed::Closed) => End::PoolClosed,
            Err(stop) => End::Stopped(stop),
        }
    }
}

impl<P: Producer<M>, M: Send + 'static> State<P, M> {
    /// The next input, if the producer has it at hand. A producer that panics is not asked again;
    /// what it failed to produce counts as an input that failed.
    pub(super) fn pull(
        &mut self,
        run: &Run<P, M>,
        wakers: &mut Wakers,
        cx: &mut Context<'_>,
    ) -> Pulled<P::Work> {
        if let Some(input) = self.ahead.take() {
            return Poll::Ready(Some(input));
        }
        let Some(producer) = &mut self.producer else { return Poll::Ready(None) };
        let index = self.pulled;
        let panic = match contain_panic(|| producer.poll_next(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Some((name, work)))) => {
                self.pulled += 1;
                let since = if P::AT_ONCE { run.began } else { Instant::now() };
                return Poll::Ready(Some(Input { index, name, work, since }));
            }
            Ok(Poll::Ready(None)) => None,
            Err(panic) => Some(panic),
        };
        discard_value(self.producer.take());
        if let Some(panic) = panic {
            self.pulled += 1;
            let error = format!("the producer of inputs {panic}").into();
            let (status, queued) = (TaskStatus::Failed, run.began.elapsed());
            let name = format!("input {index}");
            let result = TaskResult { index, name, status, queued, ..unbegun(error) };
            self.record(run, result, wakers);
            self.wake_consumer(run, wakers);
        }
        Poll::Ready(None)
    }

    /// An end that counts. Fail-fast begins here.
    pub(super) fn record(
        &mut self,
        run: &Run<P, M>,
        result: TaskResult<P::Value>,
        wakers: &mut Wakers,
    ) {
        match result.status {
            TaskStatus::Success => self.tally.succeeded += 1,
            TaskStatus::Failed | TaskStatus::Timeout => self.tally.failed += 1,
            TaskStatus::Cancelled => self.tally.cancelled += 1,
        }
        self.tally.duration += result.duration;
        if run.is_fatal(result.status) {
            self.stop(run, Stopped::Failure, wakers);
        }
        self.untaken.push_back(result);
    }

    pub(super) fn wake_conductor(&mut self, wakers: &mut Wakers) {
        self.conductor.take().into_iter().for_each(|waker| wakers.push(waker));
    }

    /// The consumer is woken at once, as it should be unless the next end is about to follow.
    pub(super) fn wake_consumer(&mut self, run: &Run<P, M>, wakers: &mut Wakers) {
        run.owed.store(false, Ordering::SeqCst);
        self.consumer.take().into_iter().for_each(|waker| wakers.push(waker));
    }

    /// The consumer is woken when there is much for it, else after a millisecond or two, by the
    /// conductor's ticks: for each of many tiny tasks that would cost more than they do. Says
    /// whether somebody is woken.
    pub(super) fn owe_consumer(&mut self, run: &Run<P, M>, wakers: &mut Wakers) -> bool {
        if self.consumer.is_none() {
            return false;
        }
        if self.untaken.len() >= run.untaken_max / 2 {
            self.wake_consumer(run, wakers);
            return true;
        }
        run.owed.store(true, Ordering::SeqCst);
        let first = !run.ticking.swap(true, Ordering::SeqCst);
        if first {
            self.wake_conductor(wakers);
        }
        first
    }

    /// From here on nothing begins; what is under way stops too, or only what waits.
    pub(super) fn stop(&mut self, run: &Run<P, M>, why: Stopped, wakers: &mut Wakers) {
        let kill = match why {
            Stopped::Failure => run.settings.on_failure == OnFailure::FailFastKill,
            Stopped::PoolClosed => false,
            Stopped::Cancelled | Stopped::Abandoned => true,
        };
        if self.stopped.is_none() {
            self.stopped = Some(why);
        }
        run.stopping.store(true, Ordering::Release);
        let stopped = self.cells.values().filter_map(|cell| cell.stop(!kill));
        stopped.for_each(|waker| wakers.push(waker));
        self.wake_conductor(wakers);
        run.killed.fetch_or(kill, Ordering::Relaxed);
    }

    /// Whether nothing is under way and nothing will be.
    pub(super) fn is_quiet(&self) -> bool {
        let dry = self.producer.is_none() && self.ahead.is_none();
        self.under_way == 0 && (dry || self.stopped.is_some())
    }

    /// A worker or callback is done.
    pub(super) fn leave(&mut self, run: &Run<P, M>, wakers: &mut Wakers) {
        self.under_way -= 1;
        // The conductor may have waited for room; the consumer, for the end.
        self.wake_conductor(wakers);
        if self.under_way == 0 {
            self.wake_consumer(run, wakers);
        }
    }
}

/// A result without a beginning.
fn unbegun<T>(error: TaskError) -> TaskResult<T> {
    TaskResult {
        index: 0,
        name: String::new(),
        status: TaskStatus::Cancelled,
        queued: Duration::ZERO,
        duration: Duration::ZERO,
        output: None,
        error: Some(error),
    }
}

impl<P: Producer<M>, M: Send + 'static> Run<P, M> {
    /// Changes the state, then wakes whom that concerns, and tells handles if all is to end.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State<P, M>, &mut Wakers) -> R) -> R {
        let mut wakers = Wakers::default();
        let result = change(&mut lock(&self.state), &mut wakers);
        if self.killed.load(Ordering::Relaxed) {
            self.cancel.cancel();
        }
        wakers.wake();
        result
    }

    pub(super) fn is_fatal(&self, status: TaskStatus) -> bool {
        matches!(status, TaskStatus::Failed | TaskStatus::Timeout)
            && self.settings.on_failure != OnFailure::KeepGoing
    }

    /// Whether somebody outside this run wants a slot, or there are fewer of them than in use.
    pub(super) fn others_want_slots(&self) -> bool {
        let own = usize::from(self.conductor_in_line.load(Ordering::Relaxed));
        self.settings.shared && self.settings.pool.is_contended(own)
    }

    pub(super) fn tell(&self, name: &str, news: News<'_>) {
        let Some(callback) = &self.settings.on_progress else { return };
        let (ended, total) = {
            let state = lock(&self.state);
            (state.tally.ended(), state.total)
        };
        let progress = Progress { name, news, ended, total };
        if let Err(panic) = contain_panic(|| callback(&progress)) {
            tracing::warn!(%panic, "the callback for progress failed");
        }
    }

    pub(super) fn result<E>(
        &self,
        card: Card,
        end: End<P::Value, E>,
        now: Instant,
    ) -> TaskResult<P::Value>
    where
        E: Into<TaskError>,
    {
        let (status, output, error) = match end {
            End::Returned(Ok(output)) => (TaskStatus::Success, Some(output), None),
            End::Returned(Err(error)) => {
                // Its causes are looked at, which is the user's code.
                let error = contain_panic(|| error.into()).unwrap_or_else(TaskError::from);
                (TaskStatus::Failed, None, Some(error))
            }
            End::Panicked(panic) => (TaskStatus::Failed, None, Some(panic.into())),
            End::PoolClosed => (TaskStatus::Cancelled, None, Some(Closed.into())),
            End::Stopped(Stop::Cancel) => (TaskStatus::Cancelled, None, Some("cancelled".into())),
            End::Stopped(Stop::Timeout) => {
                let limit = self.settings.timeout.unwrap_or_default();
                (TaskStatus::Timeout, None, Some(TimedOut { limit }.into()))
            }
        };
        self.settings.pool.count(match status {
            TaskStatus::Success => Ended::Succeeded,
            TaskStatus::Failed => Ended::Failed,
            TaskStatus::Timeout => Ended::TimedOut,
            TaskStatus::Cancelled => Ended::Cancelled,
        });
        let Card { index, name, queued, began } = card;
        let duration = now.saturating_duration_since(began);
        TaskResult { index, name, status, queued, duration, output, error }
    }

    /// Reports a task's end; a time-out after its callback, if there is one.
    pub(super) fn report(self: &Arc<Self>, result: TaskResult<P::Value>) {
        let callback = match (result.status, &self.settings.on_timeout) {
            (TaskStatus::Timeout, Some(callback)) => callback,
            _ => return self.report_now(result),
        };
        // Nothing new begins while the callback runs, if the time-out is fatal.
        let fatal = self.is_fatal(result.status);
        self.change(|state, wakers| {
            state.under_way += 1;
            if fatal {
                state.stop(self, Stopped::Failure, wakers);
            }
        });
        let callback = callback(result.name.clone());
        let limit = self.settings.timeout.unwrap_or_default();
        let late = Late { run: self.clone(), result: Some(result) };
        let abandoned = self.abandoned.clone();
        tokio::spawn(async move {
            let _late = late;
            let callback = tokio::time::timeout(limit.min(FAR), callback);
            if let Some(Err(_)) = abandoned.run_until_cancelled(callback).await {
                tracing::warn!("the callback of a time-out took longer than {limit:?}");
            }
        });
    }

    pub(super) fn report_now(&self, result: TaskResult<P::Value>) {
        let said =
            self.settings.on_progress.is_some().then(|| (result.name.clone(), result.status));
        self.change(|state, wakers| {
            state.record(self, result, wakers);
            state.wake_consumer(self, wakers);
        });
        if let Some((name, status)) = said {
            self.tell(&name, News::Ended(status));
        }
    }

    /// What is left for the consumer when nothing is under way: what never began, by name.
    pub(super) fn drain(&self, state: &mut State<P, M>, into: &mut VecDeque<TaskResult<P::Value>>) {
        let Some(why) = state.stopped else { return };
        if !P::AT_ONCE {
            discard_value(state.producer.take());
        }
        let mut cx = Context::from_waker(Waker::noop());
        let mut wakers = Wakers::default();
        while into.len() < self.untaken_max
            && let Poll::Ready(Some(input)) = state.pull(self, &mut wakers, &mut cx)
        {
            let Input { index, name, since, work } = input;
            discard_value(work);
            let queued = since.elapsed();
            state.tally.cancelled += 1;
            into.push_back(TaskResult { index, name, queued, ..unbegun(why.why()) });
        }
        into.extend(state.untaken.drain(..));
    }

    pub(super) fn complete(&self, state: &mut State<P, M>) {
        if std::mem::replace(&mut state.completed, true) {
            return;
        }
        let Tally { succeeded, failed, cancelled, duration, began } = state.tally;
        tracing::info!(
            name: "parallel_execution_complete",
            total = state.tally.ended(),
            succeeded,
            failed,
            cancelled,
            parallel_limit = self.settings.parallel_limit,
            duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            avg_task_ms = duration.as_secs_f64() * 1e3 / f64::from(began.max(1)),
            "parallel_execution_complete"
        );
    }
}

/// A result that waits for the callback of its time-out, and is reported even if that is dropped.
struct Late<P: Producer<M>, M: Send + 'static> {
    run: Arc<Run<P, M>>,
    result: Option<TaskResult<P::Value>>,
}

impl<P: Producer<M>, M: Send + 'static> Drop for Late<P, M> {
    fn drop(&mut self) {
        if let Some(result) = self.result.take() {
            self.run.report_now(result);
        }
        self.run.change(|state, wakers| state.leave(&self.run, wakers));
    }
}

impl<P: Producer<M>, M: Send + 'static> Supply<P::Value> for Run<P, M> {
    fn poll_take(
        &self,
        into: &mut VecDeque<TaskResult<P::Value>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        // Dropped after the lock, like every waker.
        let mut stale = None;
        self.change(|state, wakers| {
            if !state.untaken.is_empty() {
                if std::mem::take(&mut state.conductor_wants_room) {
                    state.wake_conductor(wakers);
                }
                std::mem::swap(into, &mut state.untaken);
                return Poll::Ready(());
            }
            if state.is_quiet() {
                self.drain(state, into);
                if into.is_empty() {
                    self.complete(state);
                }
                return Poll::Ready(());
            }
            stale = state.consumer.replace(cx.waker().clone());
            Poll::Pending
        })
    }

    fn abandon(&self) {
        self.abandoned.cancel();
        self.change(|state, wakers| state.stop(self, Stopped::Abandoned, wakers));
    }
}

pub(super) type TaskEnd<P, M> =
    End<<P as Producer<M>>::Value, <<P as Producer<M>>::Work as Work<M>>::Error>;
pub(super) type Pulled<W> = Poll<Option<Input<W>>>;

impl<W> Input<W> {
    pub(super) fn begin(self, now: Instant) -> (Card, W) {
        let Input { index, name, work, since } = self;
        let queued = now.saturating_duration_since(since);
        (Card { index, name, queued, began: now }, work)
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
