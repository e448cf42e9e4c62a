//! What a request makes of the tasks it touches: the one write path of every store.
//!
//! [`decide`] runs inside a transaction of a store. It loads rows, decides with [`Life::next`]
//! and the [graph](crate::graph), and gathers the changes in a [`Delta`](crate::delta::Delta). In
//! this order: what the worker says of its tasks; what a dead worker leaves; what the clock brings; what is asked of runs; new runs; then everything that follows for
//! the other tasks of the runs touched; and last the claim, which so can take what became ready in
//! the same request before it was ever written as ready.
//!
//! Invariants: a task that ends has its record, its run's end if it was the last, and what follows
//! for others in the same transaction. Whoever is not the task's worker and ends it, or wants it to
//! stop, leaves word for that worker ([`Told`]).

mod cascade;
mod changed;
mod children;
mod claim;
mod limits;
mod looked;
mod orders;
pub(crate) mod overlay;
mod prune;
mod repair;
mod retry;
mod settle;
mod submit;
mod waits;
mod writes;

use crate::error_text::cut_error;
use crate::graph::{OnFailure, TaskIndex};
use crate::keys::KeyMap;
use crate::lifecycle::{CancelledBy, Event, Kind, Life, State, WorkerId};
use crate::limit::LimitKey;
use crate::plan::Plan;
use crate::rows::{Owned, Payload, Row};
use crate::store::{
    Applied, Bytes, Change, Claim, Clock, Ended, NewRun, Operation, OperationOutcome, RECOVER_MAX,
    Reply, Request, RunKey, Scope, TaskKey, Told,
};
use crate::want::{Known, Loader, LookUps, ServedTasks};
use crate::{RunId, Timestamp};
use changed::ChangedTasks;
pub(crate) use claim::count_wanted;
pub use claim::{Decision, Fill, complete_reply, fill_wants};
pub(crate) use limits::count_opened;
pub(crate) use orders::may_order;
pub use orders::{ClaimOrder, OrderOutcome, PlainClaim, TakenTask, claim_plain_row};
use overlay::Overlay;
pub(crate) use settle::{parent_failed, standing};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Alarms that one request looks at, so that a request stays short.
pub const DUE_MAX: u32 = 1_000;

/// Parked tasks that one request wakes although the worker does not want as many. The others are woken when
/// somebody can take them: then they are written once, and not first as ready.
const WOKEN_MIN: u32 = 128;

/// How often a queue time-out that a pause makes longer is looked at.
const PAUSED_LOOK: Duration = Duration::from_secs(1);

/// Decides a request. Pure but for what it loads, total, and deterministic in that; `known` may be empty.
///
/// # Errors
/// The loader's stop.
pub fn decide<L: Loader>(
    request: &Request,
    known: Known,
    loader: &mut L,
) -> Result<Decision, L::Stop> {
    let mut rows = Overlay::new(known, loader);
    let now = match request.clock {
        Clock::Given(now) => now,
        Clock::Store => rows.load_now()?,
    };
    let served = match request.worker {
        Some(worker) => rows.load_served(worker)?,
        None => None,
    };
    let mut taking = Taking::new(rows, request, now, served);
    for change in &request.changes {
        let applied = taking.change(change)?;
        taking.answer.changes.push(applied);
        taking.run_cascades()?;
    }
    if let Some(dead) = request.recover {
        taking.recover(dead)?;
    }
    taking.look_at_clock()?;
    for operation in &request.operations {
        let outcome = taking.perform_operation(operation)?;
        taking.answer.operations.push(outcome);
        taking.run_cascades()?;
    }
    for submit in &request.submits {
        let submitted = taking.submit(submit)?;
        taking.answer.submits.push(submitted);
        taking.run_cascades()?;
    }
    // What follows for one run may bring in another.
    let mut run = 0;
    while run < taking.runs.len() {
        taking.settle(run)?;
        taking.run_cascades()?;
        run += 1;
    }
    taking.open_limits()?;
    let order = match request.worker {
        Some(worker) => taking.serve_worker(worker)?,
        None => None,
    };
    if let Some(step) = &request.prune {
        taking.answer.pruned = taking.prune(step)?;
    }
    taking.gather_rows();
    let reconciled = request.worker.filter(|_| request.roll_call);
    let fill = Fill { inputs: taking.inputs, reconciled };
    Ok(Decision { delta: taking.rows.delta, order, reply: taking.answer, fill })
}

struct Taking<'t, L> {
    rows: Overlay<'t, L>,
    request: &'t Request,
    /// The time of the request.
    now: Timestamp,
    /// The tasks that the worker can run; `None` without a worker that the store knows.
    served: Option<Arc<ServedTasks>>,
    /// The tasks that were looked at.
    tasks: Vec<Task>,
    /// The runs they belong to.
    runs: Vec<Run<'t>>,
    task_at: KeyMap<TaskKey, usize>,
    /// The tasks that have changed.
    changed: ChangedTasks,
    /// Idempotency keys given out in this request.
    new_keys: HashMap<(Arc<str>, &'t str, &'t str), RunKey>,
    /// Runs that tasks have begun in this request.
    new_items: HashMap<RunId, usize>,
    /// By queue, how many runs wait, with those of this request; counted up to the bound.
    waiting: HashMap<Arc<str>, i64>,
    /// What the bodies of claimed tasks are given, in the order of the answer's.
    inputs: Vec<claim::InputsFrom>,
    /// Limits that were looked at, as they stand.
    limits: BTreeMap<LimitKey, limits::Looked>,
    /// Limits of which something was given back, or behind which somebody else may be let through.
    freed: BTreeSet<LimitKey>,
    /// Effects on child runs that are still to be carried out.
    cascades: VecDeque<cascade::Cascade>,
    answer: Reply,
}

struct Task {
    row: Row,
    /// Which of the runs it belongs to.
    run: usize,
    dirty: bool,
    stood_still: Duration,
}

struct Run<'t> {
    key: RunKey,
    plan: Arc<Plan>,
    /// Which of the tasks is its first, which carries the head.
    first: usize,
    /// Which of the tasks are its, by index, once all were looked at.
    whole: Option<Rc<[usize]>>,
    /// Tasks that have ended and below which nobody has looked.
    ended: Vec<TaskIndex>,
    /// Whether all of it has to be looked at.
    unsettled: bool,
    /// What it was submitted with, in this request.
    new: Option<&'t NewRun>,
}

impl<'t, L: Loader> Taking<'t, L> {
    /// What a worker says of one of its tasks: all of it or nothing.
    fn change(&mut self, change: &'t Change) -> Result<Applied, L::Stop> {
        let Some(at) = self.task(change.task)? else {
            return Ok(Applied::Lost { actual: None });
        };
        self.tell_end_again(self.tasks[at].run);
        self.settle_awaited(change)?;
        self.run_cascades()?;
        let row = &self.tasks[at].row;
        let is_its = row.life.fence == change.fence && row.life.owner().is_some();
        if self.request.again && self.was_applied(row, change) {
            // What it wants of its waits is answered again.
            if is_its {
                self.wait_ops(at, change, false)?;
            }
            return Ok(Applied::Yes);
        }
        let mut life = row.life.clone();
        for event in &change.events {
            match life.next(&row.planned().rules, event, self.now) {
                Ok(transition) => life = transition.into_life(),
                Err(_) => return Ok(Applied::Lost { actual: Some(row.life.clone()) }),
            }
        }
        if !is_its {
            return Ok(Applied::Lost { actual: Some(row.life.clone()) });
        }
        self.wait_ops(at, change, life.state.kind().is_terminal())?;
        let error = change.error.as_deref().map(cut_error);
        // What came of its waits may have changed what is known of it, though not what it may do.
        for event in &change.events {
            let said = self.step_with(at, event, self.now, error.as_deref())?;
            assert!(said, "what was looked at before can happen");
        }
        self.wake_if_answered(at, change)?;
        if let Some(error) = &error {
            self.rows.keep(change.task, Payload::Error, Bytes::from(error.as_bytes()));
        }
        if self.tasks[at].row.life.state.kind() == Kind::Succeeded {
            for (kind, bytes) in
                [(Payload::Output, &change.output), (Payload::Inserts, &change.inserts)]
            {
                if let Some(bytes) = bytes {
                    self.rows.keep(change.task, kind, bytes.clone());
                }
            }
        }
        Ok(Applied::Yes)
    }

    /// Whether a change of a request that is handed in again was written the first time. A task leaves
    /// a live worker and stays open only by what this worker says; so if it has moved on, to another
    /// owner or, woken since, to none, that was said.
    fn was_applied(&self, row: &Row, change: &Change) -> bool {
        let Row { life, request, .. } = row;
        let left = life.fence == change.fence
            && life.owner().is_none()
            && !life.state.kind().is_terminal();
        !change.events.is_empty()
            && (*request == self.request.id || life.fence > change.fence || left)
    }

    /// The first try of this request may have ended the run, and its answer was lost.
    fn tell_end_again(&mut self, run: usize) {
        let (key, head) = (self.runs[run].key, self.head(run));
        let Some((outcome, _)) = head.ended.filter(|_| self.request.again) else { return };
        let ended = Ended { key, id: head.id, outcome };
        if !self.answer.ended.contains(&ended) {
            self.answer.ended.push(ended);
        }
    }

    fn recover(&mut self, dead: WorkerId) -> Result<(), L::Stop> {
        let owned = self.rows.load_owned(dead, RECOVER_MAX)?;
        for &Owned { task, .. } in &owned {
            let at = self.task(task)?.expect("what a worker owns exists");
            let recovered = self.step(at, &Event::Recover)?;
            self.run_cascades()?;
            // An item may have gone with its parent, which this death was one too many for.
            let row = &self.tasks[at].row;
            let is_over = row.life.state.kind().is_terminal() && row.request == self.request.id;
            assert!(recovered || is_over, "what a worker owns is running");
        }
        self.answer.recovered = owned.len() as u32;
        if self.answer.recovered < RECOVER_MAX {
            self.rows.forget_worker(dead);
        }
        Ok(())
    }

    /// Clocks that ran out, waits that are over, start times that have come.
    fn look_at_clock(&mut self) -> Result<(), L::Stop> {
        let now = self.now;
        // What a rate waits for is never further away than its interval, so if the clock was set back
        // all of them are looked at.
        let until = if self.request.set_back { Timestamp::from_micros(i64::MAX) } else { now };
        self.freed.extend(self.rows.load_due_limits(until, DUE_MAX)?);
        let Claim { units, ahead, .. } = self.request.claim;
        let mut wakes = units.saturating_add(ahead).max(WOKEN_MIN);
        for task in self.rows.load_due_tasks(now, DUE_MAX)? {
            if wakes == 0 {
                break;
            }
            let at = self.task(task)?.expect("what has an alarm exists");
            let stood_still = self.stood_still(at)?;
            // Also where no clock has run out: it has another place from now on.
            self.mark_changed(at);
            let task = &mut self.tasks[at];
            task.stood_still = stood_still;
            let woken = matches!(task.row.life.state, State::Parked { wake: Some(wake), .. } if wake <= now);
            if !self.step(at, &Event::Clock { stood_still })? && woken {
                self.step(at, &Event::Wake)?;
                wakes -= 1;
            }
            self.run_cascades()?;
        }
        Ok(())
    }

    fn perform_operation(&mut self, operation: &Operation) -> Result<OperationOutcome, L::Stop> {
        let (scope, pauses) = match operation {
            Operation::Cancel(run) => return self.cancel(*run, CancelledBy::User),
            Operation::Pause(scope) => (scope, true),
            Operation::Unpause(scope) => (scope, false),
            Operation::Signal(signal) => return self.signal(signal),
            Operation::Declare(limit) => return self.declare(limit),
            Operation::Resize(limit) => return self.resize(limit),
            Operation::Repair(repair) => return self.repair(repair),
        };
        match *scope {
            Scope::Run(id) => self.pause_run(id, pauses),
            _ => self.note_pause(scope, pauses),
        }
    }

    /// Applies an event that no worker reports; false if it makes nothing of the task.
    fn step(&mut self, at: usize, event: &Event) -> Result<bool, L::Stop> {
        self.step_at(at, event, self.now)
    }

    fn step_at(&mut self, at: usize, event: &Event, now: Timestamp) -> Result<bool, L::Stop> {
        self.step_with(at, event, now, None)
    }

    /// The same, with what is to be said of it in words.
    fn step_with(
        &mut self,
        at: usize,
        event: &Event,
        now: Timestamp,
        error: Option<&str>,
    ) -> Result<bool, L::Stop> {
        let row = &self.tasks[at].row;
        match row.life.next(&row.planned().rules, event, now) {
            Ok(transition) => {
                self.becomes(at, event, transition.into_life(), error)?;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// A task changes, with all that this alone brings about.
    fn becomes(
        &mut self,
        at: usize,
        event: &Event,
        life: Life,
        error: Option<&str>,
    ) -> Result<(), L::Stop> {
        let now = self.now;
        let run = self.tasks[at].run;
        self.make_record(at, event, &life, error);
        self.mark_changed(at);
        let task = &mut self.tasks[at];
        let was = std::mem::replace(&mut task.row.life, life);
        let life = &task.row.life;
        let kind = life.state.kind();
        // By its request a worker's own word is known again; that it is to stop is not its word.
        if !matches!(event, Event::Stop { .. }) {
            task.row.request = self.request.id;
        }
        if kind.is_terminal() {
            task.row.ended_at = Some(now);
        }
        let behind_its_back =
            matches!(event, Event::Cancel { .. } | Event::Clock { .. } | Event::Stop { .. });
        // Whoever runs may still have to wait for limits that it had given back.
        let runs_on =
            matches!((&was.state, &life.state), (State::Running { .. }, State::Running { .. }));
        if let (true, &State::Running { worker, .. }) = (behind_its_back, &was.state) {
            let told = Told { task: task.row.key, fence: life.fence, worker, kind };
            self.answer.told.push(told);
            if self.request.worker != Some(worker) {
                self.rows.notify_worker(worker, told.task);
            }
        }
        if !runs_on {
            self.set_behind(at, None);
        }
        self.keep_limits(at, &was)?;
        if let Kind::Failed | Kind::TimedOut = kind {
            self.head_mut(run).failing = true;
            self.fail_list(run)?;
        }
        let index = self.tasks[at].row.index;
        let (stops, plan) = (self.head(run).failing, &self.runs[run].plan);
        let stops = stops && plan.on_failure() != OnFailure::KeepGoing;
        let has_children = !plan.graph().children(index).is_empty();
        // In a run that is being stopped, what begins to wait or is to be tried again may have to end.
        let may_have_to_end = matches!(kind, Kind::Ready | Kind::Deferred | Kind::Parked);
        self.runs[run].unsettled |= stops && (kind.is_terminal() || may_have_to_end);
        if kind.is_terminal() {
            let head = self.head_mut(run);
            head.open = head.open.saturating_sub(1);
            self.runs[run].ended.extend(has_children.then_some(index));
        }
        if self.tasks[at].row.has_waits {
            self.keep_waits(at, event)?;
        }
        Ok(())
    }
}
