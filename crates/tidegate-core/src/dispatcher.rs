//! The state of one worker, and what it does about what happens.
//!
//! A [`Dispatcher`] is told what happens ([`Input`]) and answers with what is to be done
//! ([`Todo`]); now and then it is asked for its next request at the store. It is synchronous and pure:
//! the loop around it owns channels, timers, slots and bodies, and never waits for a task.
//!
//! - What bodies say is gathered per task and handed in with the next request; there is one request at a
//!   time, and memory moves on its answer. A wait that is over before its beginning was handed in
//!   leaves no trace.
//! - A request claims for the units of slots that are free, and up to as many tasks ahead as there are
//!   slots, or as was asked for. A task claimed ahead for the first time is entered without waiting
//!   for the store; one that was claimed before waits until its beginning is written, so that a task
//!   which kills its process is counted at the latest from its second time on.
//! - After a failure that stops its run, nothing of that run begins here that was claimed before the
//!   store knows: it is handed back.
//! - Tasks whose process has died again and again while they computed (suspects) are active one at a
//!   time.
//! - While starts are held, nothing is claimed but runs that somebody waits for, and what was claimed
//!   ahead is handed back; what has begun goes on.
//! - A request that failed is handed in again: with what the worker has to report, which must not be
//!   lost, and with everything else too if the answer is all that was lost. Callers are not kept
//!   waiting for ever by that: after some tries they are told that the outcome is unknown.
//! - A worker that closes and has nothing to report wants nothing more of the store.

mod failed_request;
mod own_task;
mod reconcile;
mod reentry;
mod words;

pub use reentry::SNOOZE_MIN;
pub use words::{End, Input, Readings, Said, SubmitError, Ticket, Todo};

use crate::Timestamp;
use crate::lifecycle::{Event, Fence, State, WorkerId};
use crate::store::{
    Applied, CHILD_DEPTH_MAX, Change, Claim, Claimed, Clock, Happened, NewRun, Operation, Record,
    Reply, Request, RequestId, RunKey, TaskKey,
};
use crate::wait::{Awaited, WaitKind, WaitOp};
use own_task::{OwnTask, Phase, Stops};
use reentry::DroppedTasks;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The pause before a failed request is handed in again: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How long what is due and was left over waits for a request that something else gives reason for.
const LEFT_OVER: Duration = Duration::from_millis(5);

/// A clock that is set back by less is none that was set back: it is being corrected.
const SET_BACK_MIN: Duration = Duration::from_secs(1);

/// Changes, submits and operations in one request, so that a request stays short.
const TURN_MAX: usize = 1_024;

/// The state of one worker.
#[derive(Debug)]
pub struct Dispatcher {
    worker: WorkerId,
    in_memory_max: u32,
    waiting_max: Option<u32>,
    child_depth_max: u32,
    ahead_min: u32,
    tasks: HashMap<TaskKey, OwnTask>,
    /// Tasks with something unsaid, in the order in which they spoke.
    talking: VecDeque<TaskKey>,
    strays: Vec<Change>,
    submits: VecDeque<(NewRun, Ticket)>,
    operations: VecDeque<(Operation, Ticket)>,
    dead: VecDeque<WorkerId>,
    /// Runs of which nothing else is to begin, with a task whose failure the store has not been told.
    stopped: HashMap<RunKey, TaskKey>,
    in_flight: Option<InFlight>,
    /// Claimed ahead and not begun.
    ahead: u32,
    /// Suspects that were claimed and wait, and the one that is active.
    suspects: VecDeque<Box<Claimed>>,
    suspect: Option<TaskKey>,
    /// Whether the store has more that is ready, and whether asking for it may help.
    more: bool,
    hungry: bool,
    alarm: Option<Timestamp>,
    /// When the request before was made.
    before: Option<Timestamp>,
    looks_at_clock: bool,
    calls_roll: bool,
    uses_store_clock: bool,
    /// Whether the store has said that it does not know this worker.
    is_unknown: bool,
    /// Whether an answer that a task waits for may have been lost.
    asks_all: bool,
    /// Whether nothing new is to start for now.
    holds_starts: bool,
    closing: bool,
    dropped: DroppedTasks,
    /// Tasks that may wait on meanwhile.
    spared: HashSet<TaskKey>,
    /// The numbers of these that are counted; the others are read off.
    readings: Readings,
    todos: Vec<Todo>,
}

/// How a task is handed back: dropped, or only if it has not begun.
type Way = fn(TaskKey, Fence) -> Todo;

#[derive(Debug)]
struct InFlight {
    request: Arc<Request>,
    /// Whether it asks for all there is room for, not only for what it might make ready.
    asks_all: bool,
    submits: Vec<Ticket>,
    operations: Vec<Ticket>,
    pause: Duration,
    /// How often it failed.
    failures: u32,
    /// Whether it failed and has not been handed in again.
    failed: bool,
}

impl Dispatcher {
    /// A worker that owns nothing.
    pub fn new(worker: WorkerId, in_memory_max: u32) -> Self {
        Dispatcher {
            worker,
            in_memory_max,
            waiting_max: None,
            child_depth_max: CHILD_DEPTH_MAX,
            ahead_min: 0,
            tasks: HashMap::new(),
            talking: VecDeque::new(),
            strays: Vec::new(),
            submits: VecDeque::new(),
            operations: VecDeque::new(),
            dead: VecDeque::new(),
            stopped: HashMap::new(),
            in_flight: None,
            ahead: 0,
            suspects: VecDeque::new(),
            suspect: None,
            more: true,
            hungry: true,
            alarm: None,
            before: None,
            looks_at_clock: true,
            calls_roll: false,
            uses_store_clock: false,
            is_unknown: false,
            asks_all: false,
            holds_starts: false,
            closing: false,
            dropped: DroppedTasks::default(),
            spared: HashSet::new(),
            readings: Readings::default(),
            todos: Vec::new(),
        }
    }

    /// The same, which submits nothing to a queue in which so many runs wait.
    pub fn with_waiting_max(self, waiting_max: Option<u32>) -> Self {
        Dispatcher { waiting_max, ..self }
    }

    /// The same, whose requests go by the store's clock, or by the time that each is given.
    pub fn with_store_clock(self, uses_store_clock: bool) -> Self {
        Dispatcher { uses_store_clock, ..self }
    }

    /// The same, whose tasks begin no run with more than so many above it.
    pub fn with_child_depth_max(self, child_depth_max: u32) -> Self {
        Dispatcher { child_depth_max, ..self }
    }

    /// The same, claiming so many tasks ahead also with fewer slots.
    pub fn with_ahead_min(self, ahead_min: u32) -> Self {
        Dispatcher { ahead_min, ..self }
    }

    /// Takes in what happened; what is to be done about it comes out of [`todos`](Self::todos).
    pub fn handle(&mut self, input: Input) {
        match input {
            Input::Submit(run, ticket) => self.submits.push_back((run, ticket)),
            Input::Operation(operation, ticket) => self.operations.push_back((operation, ticket)),
            Input::Said { task, fence, said } => self.hear(task, fence, said),
            Input::Stops(run, task) => self.stop(run, task),
            Input::Answered(Ok(reply)) => self.move_on(reply),
            Input::Answered(Err(error)) => self.on_failed_request(error),
            Input::Retry => {
                if let Some(in_flight) = &mut self.in_flight {
                    in_flight.failed = false;
                }
                self.looks_at_clock = true;
            }
            Input::Alarm => self.looks_at_clock = true,
            Input::Ready => (self.more, self.hungry) = (true, true),
            Input::RollCall => self.calls_roll = true,
            Input::Dead(workers) => {
                let mine = self.worker;
                let news = workers.into_iter().filter(|worker| *worker != mine);
                for worker in news {
                    if !self.dead.contains(&worker) {
                        self.dead.push_back(worker);
                    }
                }
            }
            Input::HoldStarts(hold) => self.hold_starts(hold),
            Input::Spare(task, true) => drop(self.spared.insert(task)),
            Input::Spare(task, false) => drop(self.spared.remove(&task)),
            Input::Close => self.close(),
            Input::DropAll => self.hand_back_all(|_, _| Some(Todo::Drop)),
        }
    }

    /// What is to be done, in order.
    pub fn todos(&mut self) -> std::vec::Drain<'_, Todo> {
        self.todos.drain(..)
    }

    /// When [`Input::Alarm`] is wanted.
    pub fn alarm(&self) -> Option<Timestamp> {
        match &self.in_flight {
            None => self.alarm,
            Some(_) => None,
        }
    }

    /// Whether the task is this worker's and the store has not heard of its end.
    pub fn owns(&self, task: TaskKey) -> bool {
        self.tasks.contains_key(&task)
    }

    /// The same of one claim of the task.
    pub fn owns_claim(&self, task: TaskKey, fence: Fence) -> bool {
        self.tasks.get(&task).is_some_and(|owned| owned.fence == fence)
    }

    /// How many tasks have said something that the store has not been told.
    pub fn news(&self) -> usize {
        self.talking.len()
    }

    /// Whether a request can wait a moment for more to tell: more tasks were
    /// [asked for](Self::with_ahead_min) ahead than there are slots, enough of them are there to begin
    /// meanwhile, and nobody wants anything else of the store.
    pub fn can_wait(&self) -> bool {
        self.in_flight.is_none()
            && !self.closing
            && 2 * self.ahead > self.ahead_min
            && self.ahead_min > 0
            && !self.is_wanted()
    }

    /// Whether anything is wanted of the store besides telling it what bodies have said.
    fn is_wanted(&self) -> bool {
        !self.strays.is_empty()
            || !self.submits.is_empty()
            || !self.operations.is_empty()
            || !self.dead.is_empty()
            || self.looks_at_clock
            || self.calls_roll
    }

    /// Units of slots that belong to the request in flight.
    pub fn units_in_flight(&self) -> u32 {
        self.in_flight.as_ref().map_or(0, |in_flight| in_flight.request.claim.units)
    }

    /// Whether the store has more that is ready than was taken.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Whether nothing is owned, unsaid or under way any more.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
            && self.in_flight.is_none()
            && self.strays.is_empty()
            && self.submits.is_empty()
            && self.operations.is_empty()
    }

    /// Whether this task, if it is dropped, goes back to the store: it is still this worker's and
    /// was not told to stop.
    pub fn would_hand_back(&self, task: TaskKey, fence: Fence) -> bool {
        let owned = self.tasks.get(&task).filter(|owned| owned.fence == fence);
        owned.is_some_and(|owned| owned.stops != Some(Stops::Told))
    }

    /// How many tasks this worker may have, if it has so many: then nothing new begins here.
    pub fn in_memory_max_reached(&self) -> Option<u32> {
        (self.tasks.len() >= self.in_memory_max as usize).then_some(self.in_memory_max)
    }

    /// The suspect that is active, and those that were claimed and wait for their turn, in order.
    pub fn suspects(&self) -> (Option<TaskKey>, impl Iterator<Item = &Claimed> + Clone) {
        (self.suspect, self.suspects.iter().map(|claimed| &**claimed))
    }

    /// How many tasks are where.
    pub fn readings(&self) -> Readings {
        Readings {
            owned: self.tasks.len() as u64,
            ahead: self.ahead.into(),
            deferred: self.readings.deferred,
            suspects: self.suspects.len() as u64,
            ..self.readings
        }
    }

    fn hear(&mut self, key: TaskKey, fence: Fence, said: Said) {
        let is_its = |task: &&mut OwnTask| task.fence == fence && task.phase != Phase::Over;
        let Some(task) = self.tasks.get_mut(&key).filter(is_its) else {
            // Its end was known before, but its slot is free only now that its body is gone.
            self.hungry |= self.more && matches!(said, Said::Ends(_));
            return;
        };
        match said {
            Said::Begins => {
                self.ahead -= u32::from(task.phase == Phase::Ahead && self.suspect != Some(key));
                task.phase = Phase::Active;
                // It was entered before it could be withdrawn.
                task.stops = task.stops.filter(|stops| *stops == Stops::Told || self.closing);
                self.tell(key, Event::Begin { fence });
            }
            Said::Defers { active, wait } => {
                task.phase = Phase::Deferred;
                self.readings.deferred += 1;
                self.tell(key, Event::Defer { fence, active, wait });
                self.hungry |= self.more;
                if self.closing && !self.spared.contains(&key) {
                    self.hand_back(key, Todo::Drop);
                }
            }
            Said::Resumes => {
                self.readings.deferred -= u64::from(task.phase == Phase::Deferred);
                task.phase = Phase::Active;
                // What it wants of its waits has to be written before it goes on.
                let untold = task.untold.as_mut().filter(|change| change.waits.is_empty());
                match untold {
                    Some(change) if matches!(change.events.last(), Some(Event::Defer { .. })) => {
                        change.events.pop();
                        if change.events.is_empty() {
                            task.untold = None;
                        }
                        self.todos.push(Todo::Resume(key));
                    }
                    _ => self.tell(key, Event::Resume { fence }),
                }
            }
            Said::Asks(op) => {
                task.asks = true;
                let is_step = matches!(&op, WaitOp::End { id, .. } if id.kind == WaitKind::Step);
                self.change(key).waits.push(op);
                if is_step {
                    self.tell(key, Event::Step { fence });
                }
            }
            Said::Ends(end) => self.end(key, end),
        }
    }

    fn end(&mut self, key: TaskKey, end: End) {
        let task = self.tasks.get_mut(&key).expect("who ends was found");
        let fence = task.fence;
        let was = std::mem::replace(&mut task.phase, Phase::Over);
        let stops = task.stops;
        match was {
            Phase::Ahead => self.ahead -= u32::from(self.suspect != Some(key)),
            Phase::Deferred => self.readings.deferred -= 1,
            _ => {}
        }
        match &end {
            End::Parked { .. } => self.readings.parked += 1,
            End::Dropped { .. } if stops != Some(Stops::Told) => self.readings.handed_back += 1,
            _ => {}
        }
        let event = match &end {
            End::Succeeded { .. } => Event::Succeed { fence },
            &End::Failed { failure, permanent, chance, .. } => {
                Event::Fail { fence, failure, permanent, chance }
            }
            &End::Snoozed(delay) => Event::Snooze { fence, delay: delay.max(SNOOZE_MIN) },
            End::Parked { active, wake, wait, .. } => {
                Event::Park { fence, active: *active, wake: *wake, wait: wait.clone() }
            }
            End::Dropped { .. } if stops == Some(Stops::Told) => Event::Stopped { fence },
            // Whatever else drops a body (its runtime, say) has not ended its task.
            &End::Dropped { active } => {
                let is_asked = stops.is_some() || self.closing;
                let pause = if is_asked { Duration::ZERO } else { self.dropped.count_drop(key) };
                Event::HandBack { fence, active, pause }
            }
        };
        if !matches!(end, End::Dropped { .. }) {
            self.dropped.forget_task(key);
        }
        self.tell(key, event);
        self.hungry |= self.more;
        self.free_suspect(key);
        let change = self.tasks.get_mut(&key).and_then(|task| task.untold.as_mut());
        let change = change.expect("something was just said");
        match end {
            End::Succeeded { output, inserts } => {
                (change.output, change.inserts) = (output, inserts);
            }
            End::Failed { error, .. } => change.error = Some(error),
            End::Parked { on, .. } => change.parks_on = on,
            End::Snoozed(_) | End::Dropped { .. } => {}
        }
    }

    /// Something to tell the store with the next request.
    fn tell(&mut self, key: TaskKey, event: Event) {
        self.change(key).events.push(event);
    }

    /// What is to be told of a task with the next request.
    fn change(&mut self, key: TaskKey) -> &mut Change {
        let task = self.tasks.get_mut(&key).expect("who speaks was found");
        if task.untold.is_none() {
            self.talking.push_back(key);
        }
        task.make_change(key)
    }

    /// The next request to hand in, if there is reason for one. `reserve` keeps up to so many units of
    /// slots free for what the request claims, and says how many; they are the request's until it is
    /// answered. `now` is the time of the request or, where it goes by the store's clock, about that.
    pub fn next_request(
        &mut self,
        id: RequestId,
        now: Timestamp,
        slots: u32,
        reserve: impl FnOnce(u32) -> u32,
    ) -> Option<Arc<Request>> {
        if let Some(in_flight) = &self.in_flight {
            // A request whose outcome is open goes first, as it was.
            let again = !in_flight.failed && in_flight.request.again;
            return again.then(|| in_flight.request.clone());
        }
        if self.closing && self.is_idle() {
            return None;
        }
        // What time frees is claimed in the same request.
        self.hungry |= self.looks_at_clock && self.alarm.is_some_and(|alarm| alarm <= now);
        let expected = self.expected();
        let room = match self.holds_starts {
            true => 0,
            false => self.in_memory_max.saturating_sub(self.tasks.len() as u32),
        };
        // Where there is little room, what somebody here waits for may come in all the same.
        let wanted = if self.closing { 0 } else { expected.min(room.max(slots)) };
        let units = if wanted == 0 { 0 } else { reserve(wanted) };
        let ahead = (wanted - units).min(slots.max(self.ahead_min).saturating_sub(self.ahead));
        let speaks = !self.talking.is_empty() || self.is_wanted();
        if !speaks && units + ahead == 0 {
            return None;
        }
        let (submits, submitters) = take(&mut self.submits).unzip();
        let (operations, askers) = take(&mut self.operations).unzip();
        let request = Arc::new(Request {
            id,
            again: false,
            clock: if self.uses_store_clock { Clock::Store } else { Clock::Given(now) },
            set_back: self.before.is_some_and(|before| now + SET_BACK_MIN <= before),
            worker: Some(self.worker),
            changes: self.changes(),
            submits,
            operations,
            recover: self.dead.front().copied(),
            roll_call: std::mem::take(&mut self.calls_roll),
            waiting_max: self.waiting_max,
            child_depth_max: self.child_depth_max,
            claim: Claim { units, ahead, heaviest: slots, room },
            prune: None,
        });
        self.looks_at_clock = false;
        self.before = Some(now);
        // Where memory is the bound, what ends with this request makes room for more.
        let has_room = room >= slots || request.changes.is_empty();
        self.in_flight = Some(InFlight {
            asks_all: std::mem::take(&mut self.hungry) && has_room,
            request: request.clone(),
            submits: submitters,
            operations: askers,
            pause: RETRY.0,
            failures: 0,
            failed: false,
        });
        Some(request)
    }

    /// How many tasks the next request might find ready.
    fn expected(&self) -> u32 {
        if self.hungry {
            return u32::MAX;
        }
        let submits = self.submits.iter().take(TURN_MAX);
        let submitted: usize = submits.map(|(run, _)| run.plan.root_count()).sum();
        let talking = self.talking.iter().take(TURN_MAX);
        let unblocked = talking.filter_map(|key| self.tasks.get(key));
        let unblocked = unblocked.filter(|task| task.phase == Phase::Over);
        // A task that ends may itself be ready again at once.
        let unblocked: u32 = unblocked.map(|task| task.children.saturating_add(1)).sum();
        // A run that a task begins; a parked task that a signal wakes.
        let asking = self.talking.iter().take(TURN_MAX).filter_map(|key| self.tasks.get(key));
        let asking = asking.filter(|task| task.asks).filter_map(|task| task.untold.as_deref());
        let begun: usize = asking.flat_map(|change| &change.waits).map(roots).sum();
        let operations = self.operations.iter().take(TURN_MAX);
        let woken = operations.filter(|(what, _)| matches!(what, Operation::Signal(_))).count();
        let others = u32::try_from(submitted + begun + woken).unwrap_or(u32::MAX);
        others.saturating_add(unblocked)
    }

    fn changes(&mut self) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.strays);
        for key in take(&mut self.talking) {
            // It may have been taken back since: a wait that was over at once leaves nothing.
            let untold = self.tasks.get_mut(&key).and_then(|task| task.untold.take());
            changes.extend(untold.map(|change| *change));
        }
        // What is claimed from here on is claimed by a store that knows.
        let is_untold =
            |task: &TaskKey| self.tasks.get(task).is_some_and(|task| task.untold.is_some());
        self.stopped.retain(|_, task| is_untold(task));
        changes
    }

    /// The request in flight was taken.
    fn move_on(&mut self, reply: Reply) {
        let Some(in_flight) = self.in_flight.take() else { return };
        let InFlight { request, submits, operations, asks_all, .. } = in_flight;
        if reply.is_unknown_worker && !std::mem::replace(&mut self.is_unknown, true) {
            // Its tasks are others' now: those that it still has are let go.
            self.calls_roll = true;
            self.todos.push(Todo::WorkerUnknown);
        }
        for (change, applied) in request.changes.iter().zip(reply.changes) {
            self.changed(change, applied);
        }
        for (ticket, submitted) in submits.into_iter().zip(reply.submits) {
            let is_new = submitted.as_ref().is_ok_and(|submitted| !submitted.existing);
            self.readings.submitted += u64::from(is_new);
            let submitted = submitted.map_err(SubmitError::Refused);
            self.todos.push(Todo::Submitted(ticket, submitted));
        }
        for (ticket, granted) in operations.into_iter().zip(reply.operations) {
            self.todos.push(Todo::OperationDone(ticket, Ok(granted)));
        }
        if request.operations.iter().any(|operation| matches!(operation, Operation::Pause(_))) {
            self.withdraw();
        }
        for (task, fence, answer) in reply.answers {
            if self.tasks.get(&task).is_some_and(|owned| owned.fence == fence) {
                self.todos.push(Todo::Answer(task, fence, answer));
            }
        }
        self.readings.words += reply.ask_again.len() as u64;
        for (task, fence) in reply.ask_again {
            self.todos.push(Todo::AskAgain(task, fence));
        }
        for told in reply.told {
            if told.worker == self.worker {
                self.told(told.task, told.fence, told.kind.is_terminal());
            }
        }
        // The end of one entry is told before the next begins.
        let is_retry = |record: &&Record| record.what == Happened::Retried;
        self.readings.retries += reply.records.iter().filter(is_retry).count() as u64;
        self.readings.runs_ended += reply.ended.len() as u64;
        let records = reply.records.into_iter().zip(reply.plans);
        self.todos.extend(records.map(|(record, plan)| Todo::Recorded(record, plan)));
        self.todos.extend(reply.ended.into_iter().map(Todo::RunEnded));
        // More that nobody fits into what is free is no reason to ask again before something ends;
        // more that was not asked for is.
        self.more = reply.more || request.claim.room == 0;
        self.hungry |= reply.more && !(asks_all && reply.claimed.is_empty());
        self.readings.claimed += reply.claimed.len() as u64;
        for claimed in reply.claimed {
            self.readings.ready_wait += ready_wait(&claimed, reply.now);
            self.take_up(Box::new(claimed));
        }
        if self.holds_starts && request.claim.room > 0 {
            // The request was under way when starts were held.
            self.withdraw();
        }
        if request.roll_call {
            self.reconcile_tasks(&reply.roll);
        }
        if request.recover.is_some() {
            self.readings.recoveries += u64::from(reply.recovered);
            if reply.recovered < crate::store::RECOVER_MAX {
                self.dead.pop_front();
            }
        }
        // What this request has left over comes with the next, which something else gives reason for.
        let is_left = reply.alarm.is_some_and(|alarm| alarm <= reply.now);
        self.more |= is_left;
        self.alarm = if is_left { Some(reply.now + LEFT_OVER) } else { reply.alarm };
    }

    /// What became of one change.
    fn changed(&mut self, change: &Change, applied: Applied) {
        let key = change.task;
        let Some(task) = self.tasks.get(&key).filter(|task| task.fence == change.fence) else {
            return;
        };
        if let Applied::Lost { actual } = applied {
            self.readings.lost_races += 1;
            let fence = task.fence;
            match actual.is_some_and(|life| life.fence == fence && life.stopping.is_some()) {
                true => self.stop_instead(change, fence),
                false => self.let_go(key),
            }
            return;
        }
        if task.phase == Phase::Over && task.untold.is_none() {
            self.tasks.remove(&key);
            return;
        }
        for event in &change.events {
            match event {
                Event::Begin { .. } => self.todos.push(Todo::Enter(key)),
                Event::Resume { .. } => self.todos.push(Todo::Resume(key)),
                // Only now: a wait that is over before it is written leaves a suspect one.
                Event::Defer { .. } => self.free_suspect(key),
                _ => {}
            }
        }
    }

    /// A task that was told to stop was about to say that it waits. It is still this worker's, and
    /// all it can say any more is how it ends.
    fn stop_instead(&mut self, change: &Change, fence: Fence) {
        let goes_on = |event: &Event| matches!(event, Event::Defer { .. } | Event::Resume { .. });
        let mut left = change.clone();
        left.waits.clear();
        left.events.retain(|event| !goes_on(event));
        match left.events.is_empty() {
            true => self.told(change.task, fence, false),
            false => {
                let task = self.tasks.get_mut(&change.task).expect("whose change it is was found");
                task.untold = Some(Box::new(left));
                self.talking.push_back(change.task);
            }
        }
    }

    /// A task that has ended without its worker, or is to stop.
    fn told(&mut self, key: TaskKey, fence: Fence, over: bool) {
        let Some(task) = self.tasks.get_mut(&key).filter(|task| task.fence == fence) else {
            return;
        };
        match over {
            true => self.let_go(key),
            false => {
                task.stops = Some(Stops::Told);
                self.todos.push(Todo::Drop(key, fence));
            }
        }
    }

    /// A task is not this worker's any more, whatever its body still does.
    fn let_go(&mut self, key: TaskKey) {
        let Some(task) = self.tasks.remove(&key) else { return };
        match task.phase {
            Phase::Ahead => {
                let waiting = self.suspects.iter().position(|claimed| claimed.key == key);
                match waiting {
                    Some(at) => drop(self.suspects.remove(at)),
                    None => self.ahead -= u32::from(self.suspect != Some(key)),
                }
            }
            Phase::Deferred => self.readings.deferred -= 1,
            Phase::Active | Phase::Over => {}
        }
        self.todos.push(Todo::Drop(key, task.fence));
        self.hungry |= self.more;
        self.free_suspect(key);
    }

    /// A task was claimed.
    fn take_up(&mut self, claimed: Box<Claimed>) {
        let key = claimed.key;
        let begun = claimed.life.state.kind() == crate::lifecycle::Kind::Active;
        let task = OwnTask::new(&claimed);
        self.tasks.insert(key, task);
        if self.closing || self.stopped.contains_key(&key.run(claimed.index)) {
            // It came with the answer to a request from before; its body is not entered any more.
            self.ahead += u32::from(!begun);
            self.reject_claim(claimed);
            return;
        }
        match claimed.life.is_suspect() {
            true => {
                self.suspects.push_back(claimed);
                self.next_suspect();
            }
            false => {
                self.ahead += u32::from(!begun);
                let asks = !begun && claimed.life.fence > Fence(1);
                self.todos.push(Todo::Start { claimed, asks });
            }
        }
    }

    /// Something has failed, and nothing else of its run is to begin that was claimed before the
    /// store knows.
    fn stop(&mut self, run: RunKey, task: TaskKey) {
        self.stopped.entry(run).or_insert(task);
        let is_its = |claimed: &Claimed| claimed.key.run(claimed.index) == run;
        // First those that would begin with the end of another suspect.
        let suspects = std::mem::take(&mut self.suspects).into_iter();
        let (mut its, others): (Vec<_>, Vec<_>) = suspects.partition(|claimed| is_its(claimed));
        self.suspects = others.into();
        self.ahead += its.len() as u32;
        let starts =
            |todo: &mut Todo| matches!(todo, Todo::Start { claimed, .. } if is_its(claimed));
        its.extend(self.todos.extract_if(.., starts).filter_map(|todo| match todo {
            Todo::Start { claimed, .. } => Some(claimed),
            _ => None,
        }));
        its.into_iter().for_each(|claimed| self.reject_claim(claimed));
    }

    /// A task that was claimed goes back without having been started.
    fn reject_claim(&mut self, claimed: Box<Claimed>) {
        let task = self.tasks.get_mut(&claimed.key).expect("what was claimed is owned");
        task.stops = Some(Stops::HandBack);
        self.end(claimed.key, End::Dropped { active: claimed.life.active });
        self.todos.push(Todo::NotStarted(claimed));
    }

    /// A suspect that is active no longer makes room for the next.
    fn free_suspect(&mut self, key: TaskKey) {
        if self.suspect == Some(key) {
            self.suspect = None;
            self.next_suspect();
        }
    }

    fn next_suspect(&mut self) {
        if self.suspect.is_none()
            && let Some(claimed) = self.suspects.pop_front()
        {
            self.suspect = Some(claimed.key);
            self.todos.push(Todo::Start { claimed, asks: true });
        }
    }

    /// Nothing new starts until it may again. What was claimed ahead goes back to the store, where
    /// others can take it; what of it somebody waits for is claimed again, where it stood.
    fn hold_starts(&mut self, hold: bool) {
        if hold && !self.holds_starts && !self.closing {
            self.withdraw();
        }
        self.holds_starts = hold;
        self.hungry |= self.more && !hold;
    }

    /// What was claimed ahead is handed back. What may still run here is claimed again, where it
    /// stood.
    fn withdraw(&mut self) {
        self.hand_back_all(|_, phase| match phase {
            Phase::Ahead => Some(Todo::Withdraw),
            _ => None,
        });
    }

    fn close(&mut self) {
        self.closing = true;
        let spared = std::mem::take(&mut self.spared);
        self.hand_back_all(|key, phase| match phase {
            // It may have begun without this having been heard; then it has its grace.
            Phase::Ahead => Some(Todo::Withdraw),
            Phase::Deferred if spared.contains(&key) => None,
            Phase::Deferred => Some(Todo::Drop),
            Phase::Active | Phase::Over => None,
        });
        self.spared = spared;
        self.forget_failed_request();
    }

    /// Everything for whose phase there is a way is handed back in that way.
    fn hand_back_all(&mut self, way: impl Fn(TaskKey, Phase) -> Option<Way>) {
        let meant = self.tasks.iter().filter_map(|(&key, task)| Some((key, way(key, task.phase)?)));
        let mut meant: Vec<(TaskKey, Way)> = meant.collect();
        meant.sort_unstable_by_key(|(key, _)| *key);
        meant.into_iter().for_each(|(key, way)| self.hand_back(key, way));
    }

    /// A task is dropped, or withdrawn; its end is reported when it is gone.
    fn hand_back(&mut self, key: TaskKey, way: Way) {
        let Some(task) = self.tasks.get_mut(&key) else { return };
        let stops = match task.stops {
            None => false,
            // What was to be withdrawn and had begun has to be dropped when the worker closes.
            Some(Stops::HandBack) => !self.closing,
            Some(Stops::Told) => true,
        };
        if stops || task.phase == Phase::Over {
            return;
        }
        let fence = task.fence;
        task.stops = Some(Stops::HandBack);
        match self.suspects.iter().position(|claimed| claimed.key == key) {
            // It was never started, so nobody will report its end.
            Some(at) => {
                let claimed = self.suspects.remove(at).expect("it was found there");
                self.ahead += 1;
                self.reject_claim(claimed);
            }
            None => self.todos.push(way(key, fence)),
        }
    }
}

/// How long a task was ready before it was claimed.
fn ready_wait(claimed: &Claimed, now: Timestamp) -> Duration {
    match claimed.life.state {
        State::Running { ready_since, .. } => now.since(ready_since),
        _ => Duration::ZERO,
    }
}

/// How many tasks become ready with what a task asks for.
fn roots(op: &WaitOp) -> usize {
    match op {
        WaitOp::Begin { what: Awaited::Child(run), .. } => run.plan.root_count(),
        _ => 0,
    }
}

/// The first of a queue, as many as a request may carry.
fn take<T>(queue: &mut VecDeque<T>) -> std::collections::vec_deque::Drain<'_, T> {
    let count = queue.len().min(TURN_MAX);
    queue.drain(..count)
}
