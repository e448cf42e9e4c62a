//! One call of a body: a spawned task that reports how it ended, whatever happens to it.

mod report;

use super::event::{Event, What};
use super::hook::{EntryEvent, EntryStage, Hook, StoredEnd};
use super::{Child, Engine, Run, RunError, RunStatus, Shared};
use crate::attempt::{Attempt, Observer, ReadRun, Record};
use crate::contain::{contain_panic, discard_value};
use crate::context::{Around, States};
use crate::error::{Closed, Panic};
use crate::gate::{Gate, Passed};
use crate::handle::TaskHandle;
use crate::journal::Journal;
use crate::slot::{InLine, SlotPool, SlotToken, Taken};
use crate::task::{Body, Entered, Manner, Returned};
use crate::task_error::TaskError;
use crate::trace;
use crate::wait::{Parks, WaitError};
use report::{EntryTask, Report};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::dispatcher::{End, Said};
use tidegate_core::graph::{OnFailure, TaskIndex};
use tidegate_core::lifecycle::{Failure, Fence};
use tidegate_core::plan::Plan;
use tidegate_core::slot::Lane;
use tidegate_core::store::{Claimed, Happened, NewRun, RunKey, StoreError, TaskKey};
use tidegate_core::wait::{WaitAnswer, WaitKind, WaitOp};
use tidegate_core::{RunId, TaskExecutionId, Timestamp};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// What is known of an entry from outside, while it lasts.
pub(super) struct Entry {
    shared: Arc<Shared>,
    pub(super) key: TaskKey,
    pub(super) fence: Fence,
    pub(super) run: RunId,
    plan: Arc<Plan>,
    index: TaskIndex,
    number: u32,
    /// Time computed in this attempt before this entry.
    before: Duration,
    /// Made when somebody wants to know, or to tell.
    cancel: OnceLock<CancellationToken>,
    attempt: OnceLock<Weak<Attempt>>,
    /// Made when there is something in it.
    journal: OnceLock<Box<Journal>>,
    /// Whether its time was up before it was over.
    overdue: AtomicBool,
    door: AtomicU8,
    stage: AtomicU8,
}

/// Whether the body may still be held back: not entered, entered or about to be, held back.
const OPEN: u8 = 0;
const PASSED: u8 = 1;
const SHUT: u8 = 2;

/// Under way; over; given up while it blocks its thread.
const UNDER_WAY: u8 = 0;
const OVER: u8 = 1;
const LEAKY: u8 = 2;

impl Entry {
    pub(super) fn name(&self) -> &str {
        self.plan.graph().name(self.index)
    }

    /// Tells the body that it is to stop.
    pub(super) fn cancel(&self) {
        self.token().cancel();
    }

    /// Tells the body that it is to stop because its time is up, which is how it will have ended.
    pub(super) fn time_out(&self) {
        self.overdue.store(true, Ordering::Release);
        self.cancel();
    }

    fn token(&self) -> &CancellationToken {
        self.cancel.get_or_init(CancellationToken::new)
    }

    /// Holds the body back; false if it was entered, or has said that it is about to be.
    pub(super) fn hold_back(&self) -> bool {
        self.pass_door(SHUT)
    }

    fn pass_door(&self, to: u8) -> bool {
        self.door.compare_exchange(OPEN, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether its body was entered.
    pub(super) fn has_begun(&self) -> bool {
        self.attempt.get().is_some()
    }

    /// Whether it has waited, wants to go on and does not have its slot.
    pub(super) fn resumes(&self) -> bool {
        self.attempt().is_some_and(|attempt| attempt.is_resuming())
    }

    /// When it goes on at the latest, of one that waits, if that is known.
    pub(super) fn due(&self) -> Option<Instant> {
        self.attempt().and_then(|attempt| attempt.due())
    }

    /// How long the attempt has computed.
    pub(super) fn active(&self) -> Duration {
        let active = self.attempt().map_or(Duration::ZERO, |attempt| attempt.active().0);
        self.before.saturating_add(active)
    }

    /// That it goes on is written.
    pub(super) fn may_go_on(&self) {
        if let Some(attempt) = self.attempt() {
            attempt.may_go_on();
        }
    }

    /// This became of one of its waits.
    pub(super) fn answer(&self, answer: WaitAnswer) {
        match (answer.id.kind, &answer.outcome, self.attempt()) {
            (WaitKind::Limits, Some(_), Some(attempt)) => {
                attempt.has_retaken(answer.id.occurrence);
            }
            (WaitKind::Limits, ..) => {}
            _ => {
                if let Some(journal) = self.journal.get() {
                    journal.answer(answer);
                }
            }
        }
    }

    /// Asks again for everything that was not answered.
    pub(super) fn ask_again(&self) {
        let open = self.journal.get().map(|journal| journal.unanswered()).unwrap_or_default();
        let limits = self.attempt().and_then(|attempt| attempt.unanswered());
        for op in open.into_iter().chain(limits) {
            self.say(Said::Asks(op));
        }
    }

    /// Its end was reported without it. Until it is gone, its slot is not free.
    pub(super) fn give_up(&self) {
        let exchanged =
            self.stage.compare_exchange(UNDER_WAY, LEAKY, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_ok() {
            self.shared.pool.set_leaky(true);
        }
    }

    fn attempt(&self) -> Option<Arc<Attempt>> {
        self.attempt.get().and_then(Weak::upgrade)
    }

    fn say(&self, said: Said) {
        self.say_with(said, None);
    }

    fn say_with(&self, said: Said, slot: Option<SlotToken>) {
        // Without the loop nobody is left to hear it; the task is taken over like a dead worker's.
        let _ = self.shared.reports.send((self.key, self.fence, said, slot));
    }

    /// Whether the other tasks of its run are not to begin once it has ended like this.
    pub(super) fn ends_others(&self, end: &End) -> bool {
        let plan = &*self.plan;
        // A list of which an item has failed is about to fail itself.
        let has_others = plan.task_count() > 1 || plan.items_of().is_some();
        has_others && plan.on_failure() != OnFailure::KeepGoing && self.is_final_failure(end)
    }

    /// Its run, and what that is to do.
    pub(super) fn its_run(&self) -> (RunKey, Arc<Plan>) {
        (self.key.run(self.index), self.plan.clone())
    }

    /// Whether this run is that of its items.
    pub(super) fn has_items(&self, run: RunId) -> bool {
        self.plan.task(self.index).each.is_some()
            && RunId::of_items(TaskExecutionId::of(self.run, self.index)) == run
    }

    fn is_final_failure(&self, end: &End) -> bool {
        let retries = self.plan.task(self.index).rules.retries;
        matches!(*end, End::Failed { permanent, .. } if permanent || self.number > retries)
    }

    fn tell(&self, hook: &Hook, stage: EntryStage<'_>) {
        let (run, task, attempt) = (self.run, self.name(), self.number);
        hook.call(&EntryEvent { run, task, attempt, stage });
    }

    /// Tells what the store has of its end.
    pub(super) fn tell_stored_end(&self, hook: &Hook, how: Option<Happened>) {
        let (run, task, attempt) = (self.run, self.name(), self.number);
        hook.call_stored_end(&StoredEnd { run, task, attempt, how });
    }

    fn publish(&self, what: impl FnOnce(String) -> What) {
        self.shared.publish(|| Event {
            at: self.shared.now(),
            run: self.run,
            what: what(self.name().to_owned()),
        });
    }
}

impl Observer for Entry {
    fn progress(&self, fraction: f64, message: &str) {
        self.publish(|task| What::Progress { task, fraction, message: message.to_owned() });
    }

    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

impl Record for Entry {
    fn waits(&self, active: Duration, wait: String) {
        self.publish(|task| What::Deferred { task, wait: wait.clone() });
        self.say(Said::Defers { active: self.before.saturating_add(active), wait });
    }

    fn resumes(&self) {
        self.publish(|task| What::Resumed { task });
        self.say(Said::Resumes);
    }

    fn run_id(&self) -> RunId {
        self.run
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn now(&self) -> Timestamp {
        self.shared.now()
    }

    fn cancel_token(&self) -> &CancellationToken {
        self.token()
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.get().is_some_and(CancellationToken::is_cancelled)
    }

    fn journal(&self) -> &Journal {
        self.journal.get_or_init(Box::default)
    }

    fn ask(&self, op: WaitOp) {
        self.say(Said::Asks(op));
    }

    fn parks_after(&self) -> Option<Duration> {
        let is_parkable = self.plan.task(self.index).parkable;
        is_parkable.then_some(self.shared.park_after)
    }

    fn uses(&self, limit: &str) -> bool {
        self.plan.task(self.index).limits.iter().any(|used| used.name == limit)
    }

    fn child(&self, child: Child) -> Result<NewRun, TaskError> {
        child.run(&self.shared, self.key, self.fence)
    }

    fn read_run(&self, run: RunId) -> ReadRun {
        Box::pin(read_run(Engine { shared: self.shared.clone() }, run))
    }
}

/// How a run stands that has ended. A store that cannot tell for a while is asked again.
async fn read_run(engine: Engine, id: RunId) -> Result<RunStatus, WaitError> {
    let run = Run::new(engine, id, None, false);
    loop {
        match run.full_status().await {
            Ok(status) => return Ok(status),
            Err(RunError::Store(StoreError::Failed(_) | StoreError::Unknown(_))) => {
                tokio::time::sleep(READ_AGAIN).await;
            }
            Err(error) => return Err(WaitError::Failed(TaskError::permanent(error))),
        }
    }
}

/// After so long the store is asked again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// What an entry starts with.
pub(super) struct Start {
    pub(super) claimed: Box<Claimed>,
    pub(super) body: Arc<dyn Body>,
    pub(super) states: Arc<States>,
    /// Its slot, if it is begun; otherwise it stands in line.
    pub(super) slot: Option<SlotToken>,
    /// Leave to enter, if it has to wait for it.
    pub(super) leave: Option<oneshot::Receiver<()>>,
}

/// Starts an entry.
pub(super) fn start(shared: &Arc<Shared>, start: Start) -> (Arc<Entry>, AbortHandle) {
    let Start { mut claimed, body, states, slot, leave } = start;
    let entry = Arc::new(Entry {
        shared: shared.clone(),
        key: claimed.key,
        fence: claimed.life.fence,
        run: claimed.run,
        plan: claimed.plan.clone(),
        index: claimed.index,
        number: claimed.life.attempt,
        before: claimed.life.active,
        cancel: OnceLock::new(),
        attempt: OnceLock::new(),
        journal: OnceLock::new(),
        overdue: AtomicBool::new(false),
        door: AtomicU8::new(if slot.is_some() { PASSED } else { OPEN }),
        stage: AtomicU8::new(UNDER_WAY),
    });
    if !claimed.waits.is_empty() {
        let waits = std::mem::take(&mut claimed.waits);
        entry.journal.get_or_init(|| Box::new(Journal::new(waits)));
    }
    // The place in line is taken before the task is spawned, or what is claimed later could be
    // polled sooner and overtake it.
    let place = match slot {
        Some(slot) => Place::Begun(slot),
        None => stand_in_line(shared.pool.clone(), &claimed),
    };
    // The report is made before the task is spawned: a task that is dropped unpolled reports too.
    let report = Report::new(entry.clone(), body.hook());
    let span = trace::entry(&claimed);
    let entering = Box::new(Entering { claimed, body, states, place, leave, entry: entry.clone() });
    let task = EntryTask::new(enter(entering), report);
    let task = match span {
        Some(span) => tokio::spawn(task.instrument(span)),
        None => tokio::spawn(task),
    };
    (entry, task.abort_handle())
}

/// An entry until its body is entered. Apart from that, so that a body which waits for long does not
/// keep the room it took.
struct Entering {
    claimed: Box<Claimed>,
    body: Arc<dyn Body>,
    states: Arc<States>,
    place: Place,
    leave: Option<oneshot::Receiver<()>>,
    entry: Arc<Entry>,
}

/// How a task that is to be entered comes by its slot.
enum Place {
    /// It was begun with it.
    Begun(SlotToken),
    Granted(SlotToken),
    InLine(InLine),
    /// The pool is closed.
    Nowhere,
}

fn stand_in_line(pool: SlotPool, claimed: &Claimed) -> Place {
    let (weight, priority) = (claimed.plan.task(claimed.index).weight, claimed.priority());
    let mut line = InLine::new(pool.clone(), Lane::Start, weight, priority);
    match line.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => Place::Granted(SlotToken::granted(pool, weight, priority)),
        Poll::Ready(Err(Closed)) => Place::Nowhere,
        Poll::Pending => Place::InLine(line),
    }
}

/// How the entry ends, with the slot it held to the end; `None`: as if it had been dropped.
async fn enter(entering: Box<Entering>) -> Option<(End, Option<SlotToken>)> {
    let (entry, manner) = (entering.entry.clone(), entering.body.manner());
    let mut gate = begin(entering).await?;
    let (passed, slot) = poll_fn(|cx| Pin::new(&mut gate).poll_pass(cx)).await;
    let limit = entry.plan.task(entry.index).timeout;
    // The words of an error, and its destructor, are the user's.
    let end = contain_panic(|| end(passed, &entry));
    let end = match (manner, end.unwrap_or_else(|panic| Some(report::panicked(&panic)))) {
        // It was told, and has not succeeded all the same: it has ended because of that.
        (Manner::Orderly, Some(End::Failed { error, .. })) if entry.is_cancelled() => {
            let overdue = entry.overdue.load(Ordering::Acquire);
            limit.filter(|_| overdue).map(|limit| timed_out(limit, Some(&error)))
        }
        (_, end) => end,
    };
    Some((end?, slot))
}

/// Waits for the slot and for leave, and makes the body; `None`: it is not to be entered.
async fn begin(mut entering: Box<Entering>) -> Option<Gate<Entered>> {
    let Entering { claimed, place, leave, entry, .. } = &mut *entering;
    let (begun, slot) = match std::mem::replace(place, Place::Nowhere) {
        Place::Begun(slot) => (true, slot),
        Place::Granted(slot) => (false, slot),
        Place::InLine(mut line) => {
            // Out of a closed pool it is dropped, and so handed back.
            poll_fn(|cx| line.poll(cx)).await.ok()?;
            let weight = claimed.plan.task(claimed.index).weight;
            let pool = entry.shared.pool.clone();
            (false, SlotToken::granted(pool, weight, claimed.priority()))
        }
        Place::Nowhere => return None,
    };
    if !begun {
        // Held back in the last moment, it is dropped, and so handed back.
        entry.pass_door(PASSED).then_some(())?;
        entry.say(Said::Begins);
        match leave {
            // Without the loop there is nobody to give leave.
            Some(leave) => leave.await.ok()?,
            // The loop was woken and may be in line behind this task on its thread, where nobody
            // else can take it up, and the body may block that thread.
            None => tokio::task::yield_now().await,
        }
    }
    let Entering { claimed, body, states, entry, .. } = *entering;
    let is_command = body.manner() == Manner::Orderly;
    let numbers = is_command.then(|| entry.shared.numbers.take(slot.weight()));
    let number = numbers.as_ref().and_then(Taken::first);
    entry.publish(|task| What::Began { task, attempt: entry.number, slot: number });
    if let Some(hook) = body.hook() {
        entry.tell(&hook, EntryStage::Begins { item: claimed.given.item.as_deref(), slot: number });
    }
    let attempt = attempt(&entry, claimed.execution(), slot, numbers);
    let around = Around { number: claimed.index.as_u32(), given: claimed.given, states };
    let gate = Gate::new(attempt, |attempt| body.enter(around, TaskHandle::of(attempt.clone())));
    // One that was found for this entry alone goes with it.
    discard_value(body);
    Some(gate)
}

fn attempt(
    entry: &Arc<Entry>,
    execution: TaskExecutionId,
    slot: SlotToken,
    numbers: Option<Taken>,
) -> Arc<Attempt> {
    let mut attempt = Attempt::new(slot);
    attempt.set_numbers(numbers);
    attempt.id = execution;
    attempt.observer = Some(entry.clone());
    let attempt = Arc::new(attempt);
    let set = entry.attempt.set(Arc::downgrade(&attempt));
    assert!(set.is_ok(), "an entry has one attempt");
    attempt
}

/// What is to be reported of how a body ended; `None`: as if it had been dropped.
fn end(passed: Passed<Result<Returned, TaskError>>, entry: &Entry) -> Option<End> {
    Some(match passed {
        Passed::Returned(Ok(Returned { output, inserts })) => End::Succeeded { output, inserts },
        Passed::Returned(Err(error)) => {
            let end = failed(&error);
            discard_value(error);
            end
        }
        Passed::Panicked(panic) => panicked(&panic),
        Passed::Parked(Parks { wake, wait, on, .. }) => {
            End::Parked { active: entry.active(), wake, wait, on }
        }
        Passed::Closed => return None,
    })
}

/// The end of an entry that has used up its time, and what it came to then.
pub(super) fn timed_out(limit: Duration, end: Option<&str>) -> End {
    let (failure, permanent) = (Failure::Timeout, false);
    let end = end.map(|end| format!("; {end}")).unwrap_or_default();
    let error = format!("timed out after {limit:?}{end}");
    End::Failed { failure, permanent, chance: fastrand::f64(), error }
}

fn failed(error: &TaskError) -> End {
    if let Some(delay) = error.snoozed() {
        return End::Snoozed(delay);
    }
    let failure = if error.is_wait_timeout() { Failure::WaitTimeout } else { Failure::Error };
    let (permanent, error) = (error.is_permanent(), error.to_string());
    End::Failed { failure, permanent, chance: fastrand::f64(), error }
}

fn panicked(panic: &Panic) -> End {
    let (failure, permanent, error) = match panic.is_refusal() {
        true => (Failure::Error, true, panic.message().to_owned()),
        false => (Failure::Panic, false, panic.to_string()),
    };
    End::Failed { failure, permanent, chance: fastrand::f64(), error }
}
