//! One run of a batch: what the conductor, the workers and the consumer share.
//!
//! The conductor pulls an input, waits for a slot, and spawns a worker with both. A worker runs its
//! task and reports the end; while nobody else wants the slot it goes on with the next input itself,
//! which is what makes small tasks cheap. A task that can wait gets a worker of its own. The
//! consumer takes results; when they pile up, nothing new begins.
//!
//! Lock order: the run's state, then a cell. Wakers are woken after both.

use super::cell::{Card, Cell, Stop, Time};
use super::inputs::Producer;
use super::results::{BatchStream, Supply, TaskResult, TaskStatus};
use super::settings::Settings;
use super::{News, OnFailure, Progress};
use crate::attempt::{Attempt, Gate, Observer};
use crate::error::{Closed, Panic, TimedOut};
use crate::handle::TaskHandle;
use crate::slot::{Ended, InLine, SlotToken, Work, guarded};
use crate::sync::{Mutex, Wakers, lock};
use crate::task_error::TaskError;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::chain::{Key, Nodes};
use tidegate_core::slot::Lane;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Results that may lie untaken before nothing new begins, or the parallel limit if that is more.
const UNTAKEN_MAX: usize = 64;

/// Tasks begun and unfinished at once, most of them waiting; each costs memory.
const IN_MEMORY_MAX: usize = 100_000;

/// Tasks a worker runs in a row before it lets others have its thread.
const TURN: usize = 64;

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
        next_look: AtomicU64::new(u64::MAX),
        stopping: AtomicBool::new(false),
        killed: AtomicBool::new(false),
        untaken_max: UNTAKEN_MAX.max(settings.parallel_limit as usize),
        state: Mutex::new(State {
            total: producer.left(),
            producer: Some(producer),
            ahead: None,
            pulled: 0,
            cells: Nodes::default(),
            under_way: 0,
            conductor_in_line: false,
            stopped: None,
            untaken: VecDeque::new(),
            consumer: None,
            conductor: None,
            tally: Tally::default(),
            completed: false,
        }),
        settings,
    });
    tokio::spawn(Conductor { run: run.clone(), line: None, timer: None, ended: false }.conduct());
    BatchStream::new(run, began)
}

struct Run<P: Producer<M>, M> {
    settings: Settings,
    began: Instant,
    cancel: CancellationToken,
    untaken_max: usize,
    /// When the conductor looks at the time-outs next, in nanoseconds since `began`.
    next_look: AtomicU64,
    /// Whether nothing new begins, readable without the lock.
    stopping: AtomicBool,
    /// Whether what is under way has to stop too.
    killed: AtomicBool,
    state: Mutex<State<P, M>>,
}

struct State<P: Producer<M>, M> {
    /// Gone once it has no more to give.
    producer: Option<P>,
    /// Pulled, waiting for a slot.
    ahead: Option<Input<P::Work>>,
    pulled: usize,
    total: Option<usize>,
    cells: Nodes<Arc<Cell>>,
    /// Workers, and callbacks of time-outs.
    under_way: usize,
    conductor_in_line: bool,
    stopped: Option<Stopped>,
    untaken: VecDeque<TaskResult<P::Value>>,
    consumer: Option<Waker>,
    conductor: Option<Waker>,
    tally: Tally,
    completed: bool,
}

struct Input<W> {
    index: usize,
    name: String,
    work: W,
    since: Instant,
}

/// Why nothing new begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Failure,
    Cancelled,
    PoolClosed,
    /// Nobody takes the results.
    Abandoned,
}

impl Stopped {
    fn why(self) -> TaskError {
        match self {
            Stopped::Failure => "not begun: another task had failed".into(),
            Stopped::Cancelled | Stopped::Abandoned => "not begun: the batch was cancelled".into(),
            Stopped::PoolClosed => Closed.into(),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Tally {
    succeeded: usize,
    failed: usize,
    cancelled: usize,
    /// Sum over the tasks that began.
    duration: Duration,
    began: u32,
}

impl Tally {
    fn ended(&self) -> usize {
        self.succeeded + self.failed + self.cancelled
    }
}

/// How a task's body ended.
enum End<T, E> {
    Returned(Result<T, E>),
    Panicked(Panic),
    PoolClosed,
    Stopped(Stop),
}

impl<P: Producer<M>, M: Send + 'static> State<P, M> {
    /// The next input, if the producer has it at hand. A producer that panics is not asked again;
    /// what it failed to produce counts as an input that failed.
    fn pull(
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
        let panic = match catch_unwind(AssertUnwindSafe(|| producer.poll_next(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Some((name, work)))) => {
                self.pulled += 1;
                let since = if P::AT_ONCE { run.began } else { Instant::now() };
                return Poll::Ready(Some(Input { index, name, work, since }));
            }
            Ok(Poll::Ready(None)) => None,
            Err(payload) => Some(Panic::from_payload(payload)),
        };
        self.producer = None;
        if let Some(panic) = panic {
            self.pulled += 1;
            let error = format!("the producer of inputs {panic}").into();
            let (status, queued) = (TaskStatus::Failed, run.began.elapsed());
            let name = format!("input {index}");
            let result = TaskResult { index, name, status, queued, ..unbegun(error) };
            self.record(run, result, wakers);
        }
        Poll::Ready(None)
    }

    /// An end that counts. Fail-fast begins here.
    fn record(&mut self, run: &Run<P, M>, result: TaskResult<P::Value>, wakers: &mut Wakers) {
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
        self.consumer.take().into_iter().for_each(|waker| wakers.push(waker));
    }

    /// From here on nothing begins; what is under way stops too, or only what waits.
    fn stop(&mut self, run: &Run<P, M>, why: Stopped, wakers: &mut Wakers) {
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
        self.conductor.take().into_iter().for_each(|waker| wakers.push(waker));
        run.killed.fetch_or(kill, Ordering::Relaxed);
    }

    /// Whether nothing is under way and nothing will be.
    fn is_quiet(&self) -> bool {
        let dry = self.producer.is_none() && self.ahead.is_none();
        self.under_way == 0 && (dry || self.stopped.is_some())
    }

    /// A worker or callback is done.
    fn leave(&mut self, wakers: &mut Wakers) {
        self.under_way -= 1;
        // The conductor may have waited for room; the consumer, for the end.
        self.conductor.take().into_iter().for_each(|waker| wakers.push(waker));
        if self.under_way == 0 {
            self.consumer.take().into_iter().for_each(|waker| wakers.push(waker));
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
    fn change<R>(&self, change: impl FnOnce(&mut State<P, M>, &mut Wakers) -> R) -> R {
        let mut wakers = Wakers::default();
        let result = change(&mut lock(&self.state), &mut wakers);
        if self.killed.load(Ordering::Relaxed) {
            self.cancel.cancel();
        }
        wakers.wake();
        result
    }

    fn is_fatal(&self, status: TaskStatus) -> bool {
        matches!(status, TaskStatus::Failed | TaskStatus::Timeout)
            && self.settings.on_failure != OnFailure::KeepGoing
    }

    fn tell(&self, name: &str, news: News<'_>) {
        let Some(callback) = &self.settings.on_progress else { return };
        let (ended, total) = {
            let state = lock(&self.state);
            (state.tally.ended(), state.total)
        };
        let progress = Progress { name, news, ended, total };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| callback(&progress))) {
            let panic = Panic::from_payload(payload);
            tracing::warn!(%panic, "the callback for progress failed");
        }
    }

    fn result<E>(&self, card: Card, end: End<P::Value, E>, now: Instant) -> TaskResult<P::Value>
    where
        E: Into<TaskError>,
    {
        let (status, output, error) = match end {
            End::Returned(Ok(output)) => (TaskStatus::Success, Some(output), None),
            End::Returned(Err(error)) => (TaskStatus::Failed, None, Some(error.into())),
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
    fn report(self: &Arc<Self>, result: TaskResult<P::Value>) {
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
        tokio::spawn(async move {
            let _late = late;
            if tokio::time::timeout(limit, callback).await.is_err() {
                tracing::warn!("the callback of a time-out took longer than {limit:?}");
            }
        });
    }

    fn report_now(&self, result: TaskResult<P::Value>) {
        let said =
            self.settings.on_progress.is_some().then(|| (result.name.clone(), result.status));
        self.change(|state, wakers| state.record(self, result, wakers));
        if let Some((name, status)) = said {
            self.tell(&name, News::Ended(status));
        }
    }

    /// What is left for the consumer when nothing is under way: what never began, by name.
    fn drain(&self, state: &mut State<P, M>, into: &mut VecDeque<TaskResult<P::Value>>) {
        let Some(why) = state.stopped else { return };
        if !P::AT_ONCE {
            state.producer = None;
        }
        let mut cx = Context::from_waker(Waker::noop());
        let mut wakers = Wakers::default();
        while into.len() < self.untaken_max
            && let Poll::Ready(Some(input)) = state.pull(self, &mut wakers, &mut cx)
        {
            let Input { index, name, since, .. } = input;
            let queued = since.elapsed();
            state.tally.cancelled += 1;
            into.push_back(TaskResult { index, name, queued, ..unbegun(why.why()) });
        }
        into.extend(state.untaken.drain(..));
    }

    fn complete(&self, state: &mut State<P, M>) {
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
        self.run.change(|state, wakers| state.leave(wakers));
    }
}

impl<P: Producer<M>, M: Send + 'static> Supply<P::Value> for Run<P, M> {
    fn poll_take(
        &self,
        into: &mut VecDeque<TaskResult<P::Value>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        self.change(|state, wakers| {
            if !state.untaken.is_empty() {
                // The conductor may wait for room.
                state.conductor.take().into_iter().for_each(|waker| wakers.push(waker));
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
            state.consumer = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn abandon(&self) {
        self.change(|state, wakers| state.stop(self, Stopped::Abandoned, wakers));
    }
}

/// A worker's existence: its end is reported, and its cell taken away, even if it is dropped.
struct Worker<P: Producer<M>, M: Send + 'static> {
    run: Arc<Run<P, M>>,
    cell: Arc<Cell>,
    key: Key,
    /// Its task was reported while it was stuck in a poll; it is not under way any more.
    given_up: bool,
}

impl<P: Producer<M>, M: Send + 'static> Worker<P, M> {
    async fn work(mut self, mut input: P::Work, mut token: SlotToken) {
        for turn in 1_usize.. {
            if self.run.settings.on_progress.is_some() {
                self.run.tell(&self.cell.name(), News::Began);
            }
            let (end, kept) = self.run_one(input, token).await;
            let Some(card) = self.cell.end() else {
                self.given_up = true;
                self.run.settings.pool.set_leaky(false);
                return;
            };
            let now = Instant::now();
            let result = self.run.result(card, end, now);
            let Some(kept) = kept else { return self.run.report(result) };
            match self.next(result, now, kept) {
                Some((next, kept)) => (input, token) = (next, kept),
                None => return,
            }
            if turn % TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Runs one task. A token that can be used again comes back.
    async fn run_one(&self, work: P::Work, token: SlotToken) -> (TaskEnd<P, M>, Option<SlotToken>) {
        if !P::Work::WAITS {
            let body = async { Ok(work.begin(|| unreachable!("it wants no handle")).await) };
            return (self.watched(body, None).await, Some(token));
        }
        let mut attempt = Attempt::new(token);
        attempt.cancel = Some(self.run.cancel.clone());
        if self.run.settings.on_progress.is_some() {
            let observer = TaskObserver { run: self.run.clone(), name: self.cell.name() };
            attempt.observer = Some(Arc::new(observer));
        }
        let attempt = Arc::new(attempt);
        self.cell.attach(attempt.clone());
        let gate = attempt.clone();
        let body = async {
            let body = work.begin(|| TaskHandle::of(gate.clone()));
            Gate::new(gate, body).await
        };
        (self.watched(body, Some(&attempt)).await, None)
    }

    /// Polls a body until it ends or has to stop; it is dropped before this returns.
    async fn watched<F>(&self, body: F, attempt: Option<&Arc<Attempt>>) -> TaskEnd<P, M>
    where
        F: Future<Output = Result<TaskOutput<P, M>, Closed>>,
    {
        let mut body = pin!(guarded(body));
        let end = std::future::poll_fn(|cx| {
            if let Some(attempt) = attempt {
                self.run.mind(attempt);
            }
            let poll = self.cell.watch(cx, |cx| body.as_mut().poll(cx));
            // Under fail-fast what begins to wait is stopped as what waited before was.
            if poll.is_pending()
                && attempt.is_some_and(|attempt| attempt.is_waiting())
                && self.run.stopping.load(Ordering::Acquire)
            {
                return Poll::Ready(Err(Stop::Cancel));
            }
            poll
        });
        match end.await {
            Ok(Ok(Ok(returned))) => End::Returned(returned),
            Ok(Ok(Err(Closed))) => End::PoolClosed,
            Ok(Err(panic)) => End::Panicked(panic),
            Err(stop) => End::Stopped(stop),
        }
    }

    /// Records the end and, if nobody else wants the slot, takes the next input onto it.
    fn next(
        &self,
        result: TaskResult<P::Value>,
        now: Instant,
        token: SlotToken,
    ) -> Option<(P::Work, SlotToken)> {
        let run = &self.run;
        if !run.is_fatal(result.status) && run.settings.on_progress.is_none() {
            let mut result = Some(result);
            let next = run.change(|state, wakers| {
                let room = state.untaken.len() < run.untaken_max;
                let own = usize::from(state.conductor_in_line);
                if !room || state.stopped.is_some() || run.settings.pool.is_contended(own) {
                    return None;
                }
                let at_hand = P::AT_ONCE || state.ahead.is_some();
                let mut cx = Context::from_waker(Waker::noop());
                let Poll::Ready(Some(input)) =
                    (if at_hand { state.pull(run, wakers, &mut cx) } else { Poll::Pending })
                else {
                    return None;
                };
                if let Some(result) = result.take() {
                    state.record(run, result, wakers);
                }
                state.tally.began += 1;
                let (card, work) = input.begin(now);
                self.cell.begin(card);
                Some(work)
            });
            if let Some(work) = next {
                return Some((work, token));
            }
            drop(token);
            if let Some(result) = result {
                run.report(result);
            }
            return None;
        }
        // The slot is free before the result is seen.
        drop(token);
        run.report(result);
        None
    }
}

impl<P: Producer<M>, M: Send + 'static> Drop for Worker<P, M> {
    fn drop(&mut self) {
        // A card that is left means that the worker was dropped with its runtime.
        if let Some(card) = self.cell.end() {
            let end: TaskEnd<P, M> = End::Stopped(Stop::Cancel);
            self.run.report_now(self.run.result(card, end, Instant::now()));
        }
        let cell = self.run.change(|state, wakers| {
            if !self.given_up {
                state.leave(wakers);
            }
            state.cells.remove(self.key)
        });
        drop(cell);
    }
}

type TaskOutput<P, M> =
    Result<<P as Producer<M>>::Value, <<P as Producer<M>>::Work as Work<M>>::Error>;
type TaskEnd<P, M> = End<<P as Producer<M>>::Value, <<P as Producer<M>>::Work as Work<M>>::Error>;
type Pulled<W> = Poll<Option<Input<W>>>;

impl<W> Input<W> {
    fn begin(self, now: Instant) -> (Card, W) {
        let Input { index, name, work, since } = self;
        let queued = now.saturating_duration_since(since);
        (Card { index, name, queued, began: now }, work)
    }
}

/// Passes on what a task says of itself.
struct TaskObserver<P: Producer<M>, M: Send + 'static> {
    run: Arc<Run<P, M>>,
    name: String,
}

impl<P: Producer<M>, M: Send + 'static> Observer for TaskObserver<P, M> {
    fn progress(&self, fraction: f64, message: &str) {
        self.run.tell(&self.name, News::Said { fraction, message });
    }
}

impl<P: Producer<M>, M: Send + 'static> Run<P, M> {
    /// A task that may go on after a wait has an earlier deadline than any that begins: the
    /// conductor is told if it would look too late.
    fn mind(&self, attempt: &Attempt) {
        let Some(limit) = self.settings.timeout else { return };
        if !attempt.is_waiting() {
            return;
        }
        let (used, _) = attempt.active();
        let look = nanos(self.began.elapsed() + limit.saturating_sub(used));
        if self.next_look.fetch_min(look, Ordering::AcqRel) > look {
            self.change(|state, wakers| {
                state.conductor.take().into_iter().for_each(|w| wakers.push(w))
            });
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Pulls inputs, waits for slots, spawns workers and minds the time-outs.
struct Conductor<P: Producer<M>, M: Send + 'static> {
    run: Arc<Run<P, M>>,
    line: Option<InLine>,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    ended: bool,
}

/// What the conductor has to do next.
enum Todo {
    /// There is an input; a slot is wanted for it.
    Slot,
    Nothing,
    End,
}

impl<P: Producer<M>, M: Send + 'static> Conductor<P, M> {
    async fn conduct(mut self) {
        let cancel = self.run.cancel.clone();
        let mut cancelled = pin!(cancel.cancelled());
        let mut told = false;
        std::future::poll_fn(|cx| {
            if !told && cancelled.as_mut().poll(cx).is_ready() {
                told = true;
                let run = &self.run;
                run.change(|state, wakers| state.stop(run, Stopped::Cancelled, wakers));
            }
            self.poll(cx)
        })
        .await;
        self.ended = true;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.mind_time(cx);
        loop {
            match self.prepare(cx) {
                Todo::Slot => {}
                Todo::Nothing => return Poll::Pending,
                Todo::End => return Poll::Ready(()),
            }
            let pool = &self.run.settings.pool;
            let line =
                self.line.get_or_insert_with(|| InLine::new(pool.clone(), Lane::Start, 1, 0));
            let granted = std::task::ready!(line.poll(cx));
            self.line = None;
            match granted {
                Ok(()) => self.launch(SlotToken::granted(pool.clone(), 1, 0), cx),
                Err(Closed) => {
                    let run = &self.run;
                    run.change(|state, wakers| state.stop(run, Stopped::PoolClosed, wakers));
                }
            }
        }
    }

    /// Sees to it that there is an input to launch and room for its result.
    fn prepare(&mut self, cx: &mut Context<'_>) -> Todo {
        let run = &self.run;
        let todo = run.change(|state, wakers| {
            state.conductor_in_line = false;
            if state.stopped.is_none()
                && let Poll::Ready(Some(input)) = state.pull(run, wakers, cx)
            {
                state.ahead = Some(input);
            }
            if state.is_quiet() {
                state.consumer.take().into_iter().for_each(|waker| wakers.push(waker));
                return Todo::End;
            }
            state.conductor = Some(cx.waker().clone());
            let room = state.untaken.len() < run.untaken_max && state.under_way < IN_MEMORY_MAX;
            if state.ahead.is_none() || state.stopped.is_some() || !room {
                return Todo::Nothing;
            }
            state.conductor_in_line = true;
            Todo::Slot
        });
        if !matches!(todo, Todo::Slot) {
            self.line = None;
        }
        todo
    }

    fn launch(&self, token: SlotToken, cx: &mut Context<'_>) {
        let run = &self.run;
        let now = Instant::now();
        let launched = run.change(|state, wakers| {
            // A worker may have taken the input meanwhile.
            let Poll::Ready(Some(input)) = state.pull(run, wakers, cx) else { return None };
            let cell = Arc::new(Cell::default());
            let (card, work) = input.begin(now);
            cell.begin(card);
            state.tally.began += 1;
            state.under_way += 1;
            Some((state.cells.insert(cell.clone()), cell, work))
        });
        if let Some((key, cell, work)) = launched {
            let worker = Worker { run: run.clone(), cell, key, given_up: false };
            tokio::spawn(worker.work(work, token));
        }
    }

    /// Stops tasks whose time is up. Looks when the next can be, not at every task's beginning: one
    /// that begins later cannot be due before a whole limit has passed since the last look.
    fn mind_time(&mut self, cx: &mut Context<'_>) {
        let run = &self.run;
        let Some(limit) = run.settings.timeout else { return };
        if self.timer.is_none() {
            run.next_look.fetch_min(nanos(limit), Ordering::AcqRel);
        }
        loop {
            let look = run.began + Duration::from_nanos(run.next_look.load(Ordering::Acquire));
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(look)));
            if timer.deadline() != look {
                timer.as_mut().reset(look);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
            let now = Instant::now();
            run.next_look.store(nanos(now + limit - run.began), Ordering::Release);
            let soonest = run.stop_late(limit, now);
            run.next_look.fetch_min(nanos(now + soonest - run.began), Ordering::AcqRel);
        }
    }
}

impl<P: Producer<M>, M: Send + 'static> Run<P, M> {
    /// Stops what has used up its time; says when the next can be due.
    fn stop_late(self: &Arc<Self>, limit: Duration, now: Instant) -> Duration {
        let mut soonest = limit;
        let mut stuck = Vec::new();
        self.change(|state, wakers| {
            for cell in state.cells.values() {
                match cell.check_time(limit, now) {
                    Time::Left(left) => soonest = soonest.min(left),
                    Time::Up(waker) => waker.into_iter().for_each(|waker| wakers.push(waker)),
                    Time::Stuck(card) => stuck.push(card),
                    Time::Idle => {}
                }
            }
        });
        for card in stuck {
            self.settings.pool.set_leaky(true);
            let end: TaskEnd<P, M> = End::Stopped(Stop::Timeout);
            self.report(self.result(card, end, now));
            self.change(|state, wakers| state.leave(wakers));
        }
        soonest
    }
}

impl<P: Producer<M>, M: Send + 'static> Drop for Conductor<P, M> {
    fn drop(&mut self) {
        if !self.ended {
            // Dropped with its runtime: the consumer may live on another.
            let run = &self.run;
            run.change(|state, wakers| {
                state.stop(run, Stopped::Cancelled, wakers);
                state.consumer.take().into_iter().for_each(|waker| wakers.push(waker));
            });
        }
    }
}
