//! The wants of a decision before it asks for them.
//!
//! A store that reads over a network loads many wants in one trip, and pays one more trip for every want
//! that a decision misses. [`Foresight`] says which wants a decision will nearly certainly have: first
//! those that are known from the request alone, then those that follow from each answer. A store loads
//! all of them, decides, and loads the want that was still missing together with those that
//! have come to be foreseen since.
//!
//! Nothing rests on it. A want that is not foreseen is a miss and costs a trip; one that is foreseen and
//! not asked for costs a read, so that only likely ones are foreseen. Numbers are foreseen so that a store
//! can have enough of them at hand; a store that gives them out from a block needs no trip for them.
//!
//! Deliberately absent: repairs and pruned runs, whose decisions read as they go.

mod effects;
mod limits;
mod runs;

use super::{Loaded, Want};
use crate::decision::{DUE_MAX, count_wanted, may_order};
use crate::graph::TaskIndex;
use crate::keys::KeyMap;
use crate::lifecycle::Event;
use crate::limit::{self, Limit, LimitKey};
use crate::plan::Plan;
use crate::retention::Aged;
use crate::rows::{Owned, Row, is_planned_plain};
use crate::store::{
    Change, Clock, NewRun, Operation, RECOVER_MAX, Request, RunKey, Scope, TaskKey,
};
use crate::wait::{Awaited, WaitId, WaitOp};
use crate::{RunId, Timestamp};
use limits::FreedLimit;
use runs::{RunFacts, RunRole};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The wants that a decision will nearly certainly have.
///
/// The store passes on every answer once, whether this or a decision asked for it.
///
/// ```
/// use tidegate_core::store::{Request, RequestId};
/// use tidegate_core::want::{Foresight, Known, Loader};
/// use tidegate_core::{Timestamp, decision::decide};
///
/// # fn load<L: Loader>(loader: &mut L) -> Result<(), L::Stop> {
/// let request = Request::new(RequestId(1), Timestamp::from_micros(1));
/// let mut foresight = Foresight::new(&request);
/// let mut known = Known::new();
/// let mut trip = foresight.first_wants();
/// let decision = loop {
///     // One trip of a store: each statement joins the rows that its own answers lead to.
///     while let Some(want) = trip.pop() {
///         let loaded = loader.load(&want)?;
///         trip.extend(foresight.joined_wants(&want, &loaded));
///         known.add_answer(want, loaded);
///     }
///     match decide(&request, Known::new(), &mut known) {
///         Ok(decision) => break decision,
///         Err(missed) => trip = foresight.next_wants(missed),
///     }
/// };
/// # drop(decision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Foresight<'r> {
    request: &'r Request,
    /// Whether the claim is left to the store, as far as that is known.
    expects_order: bool,
    /// The time of the request, once it is known.
    now: Option<Timestamp>,
    changes: KeyMap<TaskKey, Vec<&'r Change>>,
    /// Waits that runs of `submits` are to be known by, by the task that begins them.
    begun_by: KeyMap<TaskKey, Vec<&'r WaitId>>,
    /// The ways in which the request bears on the runs that it names.
    named_runs: HashMap<RunId, Vec<RunRole<'r>>>,
    /// Tasks on which the request bears.
    task_roles: HashSet<(TaskKey, TaskRole)>,
    /// Runs on which it does.
    run_roles: KeyMap<RunKey, Vec<RunRole<'r>>>,
    /// The rows that are known, without the runs in them.
    rows: KeyMap<TaskKey, Arc<Row>>,
    /// The runs whose first rows are known.
    runs: KeyMap<RunKey, RunFacts>,
    /// The tasks that the request ends.
    ended: HashSet<TaskKey>,
    /// How many of them are of which run.
    ends: KeyMap<RunKey, u32>,
    /// Tasks below those that have many parents.
    wide_children: KeyMap<TaskKey, (TaskIndex, Arc<Plan>)>,
    /// The limits that the request looks at.
    limits: BTreeMap<LimitKey, FreedLimit>,
    /// The definitions of limits that are known.
    definitions: HashMap<Arc<str>, Limit>,
    /// All that was foreseen or asked for.
    foreseen: HashSet<Want>,
    joined: Vec<Want>,
    following: Vec<Want>,
}

/// The way in which a request bears on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TaskRole {
    /// Its worker is dead.
    Recovered,
    /// It has an alarm.
    Due,
    /// Its run is cancelled.
    Cancelled,
    /// One of its waits ends.
    Woken,
    /// The worker may claim it.
    Candidate,
    /// It is blocked on a limit that is freed.
    Opened,
    /// A task before it ends.
    Below,
    /// A run below it begins.
    Above,
    /// It frees limits.
    Freeing,
}

impl<'r> Foresight<'r> {
    /// Foresees nothing yet but what the request names.
    pub fn new(request: &'r Request) -> Self {
        let mut changes: KeyMap<TaskKey, Vec<&Change>> = KeyMap::default();
        for change in &request.changes {
            changes.entry(change.task).or_default().push(change);
        }
        let now = match request.clock {
            Clock::Given(now) => Some(now),
            Clock::Store => None,
        };
        Foresight {
            request,
            expects_order: false,
            now,
            changes,
            begun_by: KeyMap::default(),
            named_runs: HashMap::new(),
            task_roles: HashSet::new(),
            run_roles: KeyMap::default(),
            rows: KeyMap::default(),
            runs: KeyMap::default(),
            ended: HashSet::new(),
            ends: KeyMap::default(),
            wide_children: KeyMap::default(),
            limits: BTreeMap::new(),
            definitions: HashMap::new(),
            foreseen: HashSet::new(),
            joined: Vec::new(),
            following: Vec::new(),
        }
    }

    /// The same for a store that carries out [`ClaimOrder`](crate::decision::ClaimOrder)s, or does not.
    pub fn taking_orders(self, takes_orders: bool) -> Self {
        let expects_order = takes_orders && may_order(self.request) && !self.has_pauses();
        Foresight { expects_order, ..self }
    }

    /// The wants that are known from the request alone.
    pub fn first_wants(&mut self) -> Vec<Want> {
        match self.now {
            Some(now) => self.look_at_clock(now),
            None => self.join_want(Want::Now),
        }
        let request = self.request;
        let mut numbers = 0;
        for change in &request.changes {
            self.look_at_change(change, &mut numbers);
        }
        if let Some(worker) = request.recover {
            self.join_want(Want::OwnedBy { worker, max: RECOVER_MAX });
        }
        for operation in &request.operations {
            self.look_at_operation(operation, &mut numbers);
        }
        for new in &request.submits {
            self.look_at_submit(new, &mut numbers);
        }
        self.look_at_claim();
        if let Some(step) = &request.prune {
            let (from, max) = (step.from, step.most.max(1));
            let number = u64::try_from(from).unwrap_or(0);
            self.join_want(Want::PruningRun { max });
            self.join_want(match step.what {
                Aged::Runs => Want::OldRuns { from, before: step.before, max },
                Aged::Events => Want::OldRecords { from: number, max },
                Aged::Signals => Want::OldSignals { from: number, max },
            });
        }
        std::mem::take(&mut self.joined)
    }

    /// The wants that a store answers together with this one, by joining rows to those of its answer: the
    /// first row of a task's run, its waits and holds, the keys of its limits and these limits, the rows
    /// of a list of tasks. A store that does not join them loads them in its next trip.
    ///
    /// A store that has answers from memory passes them on before it asks for the
    /// [first wants](Self::first_wants): they are not foreseen again.
    pub fn joined_wants(&mut self, want: &Want, loaded: &Loaded) -> Vec<Want> {
        if !self.foreseen.contains(want) {
            self.foreseen.insert(want.clone());
        }
        match (want, loaded) {
            (_, Loaded::Time(now)) => {
                self.now = Some(*now);
                self.look_at_clock(*now);
            }
            (_, Loaded::Task(Some(row))) => self.look_at_row(row),
            (_, Loaded::Tasks(rows)) => rows.iter().for_each(|row| self.look_at_row(row)),
            (Want::RunById(id), Loaded::Run(Some(run))) => {
                self.join_first(*run);
                for role in self.named_runs.get(id).cloned().unwrap_or_default() {
                    self.bear_on_run(*run, role);
                }
            }
            (Want::RunByKey { .. }, Loaded::Run(Some(run))) => {
                self.join_first(*run);
                self.bear_on_run(*run, RunRole::SameKey);
            }
            (Want::Ready { .. }, Loaded::Ordered(ready)) => {
                // The last only says that there are more.
                let most = count_wanted(&self.request.claim) - 1;
                for (_, task) in ready.iter().take(most as usize) {
                    self.join_task(*task, TaskRole::Candidate);
                }
            }
            (Want::BlockedOn { .. }, Loaded::Ordered(blocked)) => {
                for (_, task) in blocked {
                    self.join_task(*task, TaskRole::Opened);
                }
            }
            (Want::DueTasks { .. }, Loaded::TaskKeys(due)) => {
                due.iter().for_each(|task| self.join_task(*task, TaskRole::Due));
            }
            (Want::Notifications(_), Loaded::TaskKeys(tasks)) => {
                tasks.iter().for_each(|task| self.join_want(Want::Task(*task)));
            }
            (Want::OwnedBy { worker, .. }, Loaded::Owned(owned)) => {
                let is_dead = self.request.recover == Some(*worker);
                owned.iter().for_each(|owned| self.look_at_owned(owned, is_dead));
            }
            _ => self.look_at_other(want, loaded),
        }
        std::mem::take(&mut self.joined)
    }

    fn look_at_other(&mut self, want: &Want, loaded: &Loaded) {
        match (want, loaded) {
            (Want::Waits(task), Loaded::Waits(waits)) => self.look_at_waits(*task, waits),
            (_, Loaded::RunWaits(waits)) => {
                waits.iter().for_each(|(task, wait)| self.wake_task(*task, wait));
            }
            (_, Loaded::SignalWaits(waits)) => {
                waits.iter().for_each(|(_, task, wait)| self.wake_task(*task, wait));
            }
            (_, Loaded::Edges(edges)) => {
                edges.iter().for_each(|(.., run)| self.follow_first(*run));
            }
            _ => self.look_at_limit_answer(want, loaded),
        }
    }

    /// The wants of the next trip, once a decision has missed this one.
    pub fn next_wants(&mut self, missed: Want) -> Vec<Want> {
        self.guess_blocked();
        for (task, (child, plan)) in std::mem::take(&mut self.wide_children) {
            self.look_at_parents(task.run(child), child, &plan);
        }
        // There is no statement whose answer they could be joined to.
        self.following.append(&mut self.joined);
        let mut wants = std::mem::take(&mut self.following);
        // It may have been foreseen, and left to this trip.
        if !wants.contains(&missed) {
            self.foreseen.insert(missed.clone());
            wants.push(missed);
        }
        wants
    }

    // ------------------------------------------------------------------------- the request --

    fn look_at_clock(&mut self, now: Timestamp) {
        let until = if self.request.set_back { Timestamp::from_micros(i64::MAX) } else { now };
        self.join_want(Want::DueLimits { until, max: DUE_MAX });
        self.join_want(Want::DueTasks { until: now, max: DUE_MAX });
    }

    fn look_at_change(&mut self, change: &'r Change, numbers: &mut u32) {
        self.join_want(Want::Task(change.task));
        self.join_first(change.task.run(change.index));
        for op in &change.waits {
            let WaitOp::Begin { what, .. } = op else { continue };
            match what {
                Awaited::Run(run) => self.name_run(*run, RunRole::Awaited),
                Awaited::Child(new) => self.look_at_submit(new, numbers),
                Awaited::Signal | Awaited::Time => {}
            }
        }
        let Some(plan) = &change.plan else { return };
        let is_end = |event: &Event| matches!(event, Event::Succeed { .. });
        if change.events.iter().any(is_end) {
            let run = change.task.run(change.index);
            let children = plan.graph().children(change.index);
            if !children.is_empty() {
                self.bear_on_run(run, RunRole::Served);
            }
            for &child in children {
                self.join_task(run.task(child), TaskRole::Below);
                self.join_parents(run, child, plan);
            }
        }
    }

    fn look_at_operation(&mut self, operation: &'r Operation, numbers: &mut u32) {
        match operation {
            Operation::Cancel(run) => self.name_run(*run, RunRole::Cancelled),
            Operation::Pause(scope) | Operation::Unpause(scope) => {
                if let Scope::Run(run) = scope {
                    self.name_run(*run, RunRole::Paused);
                }
                self.join_want(Want::PauseStart(scope.clone()));
            }
            Operation::Signal(signal) => {
                let role = RunRole::Signalled { name: &signal.name, id: signal.id };
                self.name_run(signal.run, role);
                self.join_want(Want::SignalNumber { nth: *numbers });
                *numbers += 1;
            }
            Operation::Declare(limit) | Operation::Resize(limit) => {
                self.join_want(Want::Limit(limit.name().into()));
            }
            Operation::Repair(_) => {}
        }
    }

    fn look_at_submit(&mut self, new: &'r NewRun, numbers: &mut u32) {
        let request = self.request;
        let mut queue = Some(&new.queue);
        if let Some(parent) = &new.parent {
            self.begun_by.entry(parent.task).or_default().push(&parent.wait);
            self.join_task(parent.task, TaskRole::Above);
            queue = parent.queue.as_ref();
        }
        if request.again || new.parent.is_some() {
            self.join_want(Want::RunById(new.id));
        }
        if let (Some(key), Some(queue)) = (&new.key, queue) {
            let (queue, workflow) = (queue.clone(), new.plan.workflow().to_owned());
            self.join_want(Want::RunByKey { queue, workflow, key: key.clone() });
        }
        if let Some(retry) = &new.retry_of {
            self.name_run(retry.run, RunRole::Retried);
        }
        if let Some(max) = request.waiting_max.filter(|_| new.parent.is_none()) {
            self.join_want(Want::QueueDepth { queue: new.queue.clone(), max });
        }
        let count = u32::try_from(new.plan.task_count()).unwrap_or(u32::MAX);
        self.join_want(Want::TaskNumbers { nth: *numbers, count });
        *numbers += 1;
        if request.worker.is_none() {
            return;
        }
        let is_root = |task: &TaskIndex| new.plan.graph().parents(*task).is_empty();
        let mut roots = new.plan.graph().tasks().filter(is_root);
        if new.parent.is_some() || !roots.all(|task| is_planned_plain(&new.plan, task)) {
            self.give_up_order();
        }
        if let Some(queue) = queue {
            self.join_queue(queue);
        }
        if request.claim.units == 0 {
            return;
        }
        for task in new.plan.graph().tasks().filter(is_root) {
            if new.plan.task(task).limits.is_empty() {
                continue;
            }
            let keys = new.keys.iter().find(|(keyed, _)| *keyed == task);
            let keys = keys.map_or(&[][..], |(_, keys)| keys);
            for (limit, _) in limit::uses_with(new.plan.task(task), keys) {
                self.look_at_limit(&limit, false);
            }
        }
    }

    fn look_at_claim(&mut self) {
        let Some(worker) = self.request.worker else { return };
        self.join_want(Want::Served(worker));
        self.join_want(Want::Notifications(worker));
        if self.request.again {
            self.join_want(Want::OwnedBy { worker, max: u32::MAX });
            return;
        }
        if self.expects_order {
            return;
        }
        let is_paused = |operation: &Operation| match operation {
            Operation::Pause(scope) | Operation::Unpause(scope) => !matches!(scope, Scope::Run(_)),
            _ => false,
        };
        if !self.request.operations.iter().any(is_paused) {
            let claim = &self.request.claim;
            self.join_want(Want::Ready {
                worker,
                max_weight: claim.heaviest,
                only_awaited: claim.room == 0,
                pauses: Vec::new(),
                max: count_wanted(claim),
            });
        }
    }

    /// A task that is not plain becomes ready: the claim is decided with the tasks that are ready.
    fn give_up_order(&mut self) {
        if std::mem::take(&mut self.expects_order) {
            self.look_at_claim();
            for run in self.runs.keys().copied().collect::<Vec<_>>() {
                self.look_at_queue(run);
            }
        }
    }

    /// Whether a queue is paused is asked otherwise where the request itself pauses something.
    fn join_queue(&mut self, queue: &Arc<str>) {
        if !self.has_pauses() && !self.expects_order {
            self.join_want(Want::IsQueuePaused(queue.clone()));
        }
    }

    fn has_pauses(&self) -> bool {
        let pauses = |operation: &Operation| {
            matches!(operation, Operation::Pause(_) | Operation::Unpause(_))
        };
        self.request.operations.iter().any(pauses)
    }

    /// A run is named by its id, and its role is known when it is found.
    fn name_run(&mut self, id: RunId, role: RunRole<'r>) {
        self.named_runs.entry(id).or_default().push(role);
        self.join_want(Want::RunById(id));
    }

    // ----------------------------------------------------------------------------- the rest --

    fn look_at_owned(&mut self, owned: &Owned, is_dead: bool) {
        if is_dead {
            self.join_task(owned.task, TaskRole::Recovered);
        } else if self.request.again && owned.request == self.request.id {
            self.join_task(owned.task, TaskRole::Candidate);
        }
    }

    fn has_role(&self, task: TaskKey, role: TaskRole) -> bool {
        self.task_roles.contains(&(task, role))
    }

    /// The request bears on a task in this way, whose row is joined unless it is known.
    fn join_task(&mut self, task: TaskKey, role: TaskRole) {
        if self.task_roles.insert((task, role)) && self.rows.contains_key(&task) {
            self.look_at_effects(task);
        }
        self.join_want(Want::Task(task));
    }

    fn join_first(&mut self, run: RunKey) {
        self.join_want(Want::Task(run.task(TaskIndex::from_u32(0))));
    }

    fn follow_first(&mut self, run: RunKey) {
        self.follow_want(Want::Task(run.task(TaskIndex::from_u32(0))));
    }

    /// Foresees a want that a store answers by joining.
    fn join_want(&mut self, want: Want) {
        if !self.foreseen.contains(&want) {
            self.foreseen.insert(want.clone());
            self.joined.push(want);
        }
    }

    /// Foresees a want for the next trip.
    fn follow_want(&mut self, want: Want) {
        if !self.foreseen.contains(&want) {
            self.foreseen.insert(want.clone());
            self.following.push(want);
        }
    }
}
