//! The store that keeps everything in memory: the executable specification of what a store is.
//!
//! It is plain maps behind one lock. What a request does is decided by [`decide`](crate::decision::decide), as in every
//! store; here stands how rows are found and written, with the indexes that other stores have too:
//! what can be claimed by lane and order, alarms by time, tasks by worker, runs by name and by
//! idempotency key, open waits by what they are for, signals that nobody has taken, holds by limit.
//!
//! Invariants: every index agrees with the rows, which [`Store::audit`] checks; numbers of tasks,
//! workers and records only grow. A request that panics leaves the store unusable, and it says so,
//! because part of that request may have been written.
//!
//! Deliberately absent: a clock (a request by the store's clock gets the latest time that one was
//! given), chance, files, and whether a process is alive. A worker here is
//! alive until somebody says otherwise ([`MemoryStore::kill`]).

mod connection;
mod explain;
mod loader;
mod prune;
mod rows;
mod stored;

use crate::audit::Auditor;
use crate::delta::{PauseChange, is_paused_after};
use crate::explain::{Looked, explain_task};
use crate::graph::{RunOutcome, TaskIndex};
use crate::lifecycle::{Kind, State, WorkerId};
use crate::limit::{Hold, Limit, LimitKey, LimitState};
use crate::plan::Plan;
use crate::rows::{Gate, Head, Payload, Place, Row, view_run};
use crate::store::{
    Answer, Bytes, Counts, Finding, NewWorker, Record, Reply, Request, RunKey, RunSummary, RunView,
    RunsPage, Scope, Store, TaskKey, Unserved, WorkerView,
};
use crate::testing::RequestHooks;
use crate::wait::{WaitId, WaitKind, Waiting};
use crate::want::{FiledKey, ServedTasks, TaskGroup};
use crate::{RunId, Timestamp};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store in memory. It is as durable as its process.
#[derive(Default)]
pub struct MemoryStore {
    memory: Arc<Mutex<Memory>>,
    hooks: RequestHooks,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

/// Somebody has panicked while changing the memory.
#[derive(Debug)]
struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request has panicked, and may be half written")
    }
}

impl std::error::Error for Panicked {}

impl Store for MemoryStore {
    fn enlist(&self, worker: NewWorker) -> Answer<'_, WorkerId> {
        self.with(|memory| memory.enlist(worker))
    }

    fn dismiss(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.with(move |memory| memory.dismiss(worker))
    }

    fn dead(&self) -> Answer<'_, Vec<WorkerId>> {
        self.with(|memory| {
            let dead = memory.workers.iter().filter(|(_, worker)| !worker.alive);
            dead.map(|(&id, _)| id).collect()
        })
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerView>> {
        self.with(|memory| {
            let view =
                |worker: &Worker| WorkerView { alive: worker.alive, ..worker.enlisted.clone() };
            memory.workers.values().map(view).collect()
        })
    }

    fn request(&self, request: Arc<Request>) -> Answer<'_, Reply> {
        self.with(move |memory| match memory.take_request(&request, &self.hooks) {
            Ok(reply) => reply,
        })
    }

    fn run(&self, run: RunId) -> Answer<'_, Option<RunView>> {
        self.with(move |memory| memory.view(run))
    }

    fn ended(&self, runs: Vec<RunId>) -> Answer<'_, Vec<(RunId, Option<RunOutcome>)>> {
        self.with(move |memory| runs.into_iter().filter_map(|run| memory.end_of(run)).collect())
    }

    fn runs(&self, page: RunsPage) -> Answer<'_, Vec<RunSummary>> {
        self.with(move |memory| memory.page(&page))
    }

    fn payloads(
        &self,
        first: TaskKey,
        tasks: u32,
        kind: Payload,
    ) -> Answer<'_, Vec<(TaskKey, Bytes)>> {
        self.with(move |memory| memory.list_payloads(first, tasks, kind))
    }

    fn records(&self, run: Option<RunKey>, after: u64, limit: u32) -> Answer<'_, Vec<Record>> {
        self.with(move |memory| memory.records_after(run, after, limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.with(|memory| memory.counts())
    }

    fn unserved(&self) -> Answer<'_, Vec<Unserved>> {
        self.with(|memory| memory.unserved())
    }

    fn limits(&self) -> Answer<'_, Vec<LimitState>> {
        self.with(|memory| memory.limit_states())
    }

    fn explain(&self, task: TaskKey, now: Timestamp) -> Answer<'_, Option<Looked>> {
        self.with(move |memory| match explain_task(memory, task, now) {
            Ok(looked) => looked,
        })
    }

    fn audit(&self) -> Answer<'_, Vec<Finding>> {
        self.with(|memory| memory.audit())
    }
}

/// Tasks by lane, and in each by order and number.
type Lanes = BTreeMap<Lane, BTreeSet<(Timestamp, TaskKey)>>;

/// The same by queue.
type Queues = BTreeMap<Arc<str>, Lanes>;

/// What is remembered.
#[derive(Default)]
pub(crate) struct Memory {
    tasks: BTreeMap<TaskKey, (Row, Place)>,
    payloads: BTreeMap<(TaskKey, u8), Bytes>,
    /// By their numbers.
    records: BTreeMap<u64, Record>,
    /// Runs of which records were pruned.
    unrecorded: BTreeSet<RunKey>,
    /// By what is paused, the oldest pause first.
    pauses: HashMap<Scope, Vec<Pause>>,
    workers: BTreeMap<WorkerId, Worker>,
    words: BTreeSet<(WorkerId, TaskKey)>,
    waits: BTreeMap<(TaskKey, WaitId), Waiting>,
    /// By their numbers.
    signals: BTreeMap<u64, Signal>,
    limits: BTreeMap<String, Limit>,
    holds: BTreeMap<(TaskKey, LimitKey), Hold>,
    /// What was begun under limits of late.
    begun: BTreeMap<LimitKey, Vec<(Timestamp, u32)>>,
    limit_alarms: BTreeMap<LimitKey, Timestamp>,
    /// The last number given to a worker.
    last_worker: u64,
    /// The last number given to a task.
    last_task: i64,
    /// The last number given to a record.
    last_record: u64,
    /// The last number given to a signal.
    last_signal: u64,
    /// The latest time of a request.
    latest: Option<Timestamp>,

    // What follows are indexes: each can be made anew from the above.
    runs: BTreeMap<RunKey, Vec<u64>>,
    ids: BTreeMap<RunId, RunKey>,
    keys: BTreeMap<FiledKey, RunKey>,
    /// Runs that no task has begun and of which no task has been entered, by queue.
    unbegun: BTreeSet<(Arc<str>, RunKey)>,
    /// What can be claimed, and is not, or is, of a run that some task waits for.
    open: [Queues; 2],
    /// What stands behind which limit.
    behind: BTreeMap<LimitKey, Queues>,
    alarms: BTreeSet<(Timestamp, TaskKey)>,
    owned: BTreeSet<(WorkerId, TaskKey)>,
    /// How many stand behind each gate.
    gates: HashMap<Gate, u64>,
    parked: u64,
    /// Open waits for signals, by run and name, the oldest first.
    signal_waits: BTreeSet<(RunKey, Arc<str>, Timestamp, TaskKey, WaitId)>,
    /// Open waits for the end of a run.
    run_waits: BTreeSet<(RunKey, TaskKey, WaitId)>,
    sent: BTreeSet<(RunKey, u128)>,
    /// Signals that nobody has taken, by run and name, the oldest first.
    untaken: BTreeSet<(RunKey, Arc<str>, u64)>,
    held: BTreeSet<(LimitKey, TaskKey)>,
    alarms_of_limits: BTreeSet<(Timestamp, LimitKey)>,
}

/// A signal that was sent.
#[derive(Clone)]
struct Signal {
    id: u128,
    run: RunKey,
    name: Arc<str>,
    body: Option<Bytes>,
    sent_at: Timestamp,
    taken_by: Option<TaskKey>,
}

/// A worker that is known.
struct Worker {
    /// As it presented itself.
    enlisted: WorkerView,
    served: Arc<ServedTasks>,
    slots: u32,
    alive: bool,
}

impl Worker {
    fn can_run(&self, lane: &Lane, heaviest: u32) -> bool {
        let (workflow, task, weight) = lane.names();
        self.served.knows_task(workflow, task) && weight <= heaviest
    }
}

/// Tasks of one queue that every worker of it can run, or none: the same workflow, name and weight.
#[derive(Clone)]
struct Lane {
    plan: Arc<Plan>,
    task: TaskIndex,
}

impl Lane {
    fn of(row: &Row) -> Self {
        Lane { plan: row.plan.clone(), task: row.index }
    }

    fn names(&self) -> (&str, &str, u32) {
        let (plan, task) = (&self.plan, self.task);
        (plan.workflow(), plan.known_as(task), plan.task(task).weight)
    }
}

impl PartialEq for Lane {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Lane {}

impl PartialOrd for Lane {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Lane {
    fn cmp(&self, other: &Self) -> Ordering {
        self.names().cmp(&other.names())
    }
}

/// A stretch of time in which nothing of a scope started.
#[derive(Clone, Copy)]
struct Pause {
    from: Timestamp,
    /// `None` while it lasts.
    to: Option<Timestamp>,
}

impl Memory {
    fn enlist(&mut self, new: NewWorker) -> WorkerId {
        self.last_worker += 1;
        let id = WorkerId(self.last_worker);
        let (served, slots) = (ServedTasks::new(&new.queues, &new.knows), new.slots);
        let enlisted = WorkerView::new(id, new);
        self.workers.insert(id, Worker { enlisted, served: served.into(), slots, alive: true });
        id
    }

    /// Who still owns something stays known, as dead, until that is taken over.
    fn dismiss(&mut self, worker: WorkerId) {
        if self.owned_by(worker).next().is_none() {
            self.remove(worker);
        } else if let Some(worker) = self.workers.get_mut(&worker) {
            worker.alive = false;
        }
    }

    fn remove(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.words.retain(|(for_whom, _)| *for_whom != worker);
    }

    fn owned_by(&self, worker: WorkerId) -> impl Iterator<Item = TaskKey> + '_ {
        let all = (worker, TaskKey(i64::MIN))..=(worker, TaskKey(i64::MAX));
        self.owned.range(all).map(|&(_, task)| task)
    }

    fn rows_of(&self, run: RunKey) -> impl Iterator<Item = &(Row, Place)> {
        let first = run.task(TaskIndex::from_u32(0));
        let of_run = move |(row, _): &&(Row, Place)| row.run() == run;
        self.tasks.range(first..).map(|(_, stored)| stored).take_while(of_run)
    }

    fn head(&self, run: RunKey) -> &Head {
        let first = &self.tasks[&run.task(TaskIndex::from_u32(0))].0;
        first.head.as_ref().expect("the first task of a run carries its head")
    }

    fn kept(&self, task: TaskKey, kind: Payload) -> Option<Bytes> {
        self.payloads.get(&(task, kind.code())).cloned()
    }

    fn has_pause(&self, scope: &Scope) -> bool {
        self.pause_start(scope).is_some()
    }

    /// Whether a pause keeps the tasks of a queue from being claimed after these changes.
    fn is_stopped(&self, queue: &str, changes: &[PauseChange]) -> bool {
        let is_queue = |scope: &Scope| matches!(scope, Scope::Queue(name) if name == queue);
        let is_store = |scope: &Scope| *scope == Scope::Store;
        let was_paused = self.has_pause(&Scope::Queue(queue.to_owned()));
        is_paused_after(changes, is_queue, was_paused)
            || is_paused_after(changes, is_store, self.has_pause(&Scope::Store))
    }

    // ------------------------------------------------------------------------------- indexes --

    fn link(&mut self, row: &Row, queue: &Arc<str>, place: &Place) {
        if let Some(gate) = place.gate {
            *self.gates.entry(gate).or_default() += 1;
        }
        if let (Some(queues), Some(order)) = (self.queues(place), place.order) {
            let lanes = queues.entry(queue.clone()).or_default();
            lanes.entry(Lane::of(row)).or_default().insert((order, row.key));
        }
        self.alarms.extend(place.alarm.map(|alarm| (alarm, row.key)));
        self.parked += u64::from(row.life.state.kind() == Kind::Parked);
        if let State::Running { worker, .. } = row.life.state {
            self.owned.insert((worker, row.key));
        }
    }

    /// Among which tasks one with this place is found, if among any.
    fn queues(&mut self, place: &Place) -> Option<&mut Queues> {
        match (place.gate, &place.behind) {
            (Some(Gate::Open), _) => Some(&mut self.open[0]),
            (Some(Gate::Awaited), _) => Some(&mut self.open[1]),
            (_, Some(limit)) => Some(self.behind.entry(limit.clone()).or_default()),
            _ => None,
        }
    }

    fn unlink(&mut self, row: &Row, queue: &Arc<str>, place: &Place) {
        if let Some(count) = place.gate.and_then(|gate| self.gates.get_mut(&gate)) {
            *count -= 1;
        }
        if let (Some(queues), Some(order)) = (self.queues(place), place.order) {
            close(queues, queue, &Lane::of(row), (order, row.key));
        }
        if let Some(limit) = &place.behind
            && self.behind.get(limit).is_some_and(BTreeMap::is_empty)
        {
            self.behind.remove(limit);
        }
        if let Some(alarm) = place.alarm {
            self.alarms.remove(&(alarm, row.key));
        }
        self.parked -= u64::from(row.life.state.kind() == Kind::Parked);
        if let State::Running { worker, .. } = row.life.state {
            self.owned.remove(&(worker, row.key));
        }
    }

    // ----------------------------------------------------------------------- waits and limits --

    fn waits_of(&self, task: TaskKey) -> impl Iterator<Item = &Waiting> {
        let first = WaitId::new(WaitKind::Step, "", 0);
        let of_task = move |((other, _), _): &(&(TaskKey, WaitId), &Waiting)| *other == task;
        self.waits.range((task, first)..).take_while(of_task).map(|(_, wait)| wait)
    }

    fn link_wait(&mut self, task: TaskKey, wait: &Waiting) {
        let Some(run) = wait.run.filter(|_| wait.is_open()) else { return };
        let (id, name) = (wait.id.clone(), wait.id.name.clone());
        match id.kind {
            WaitKind::Signal => drop(self.signal_waits.insert((run, name, wait.since, task, id))),
            kind if kind.is_for_run() => drop(self.run_waits.insert((run, task, id))),
            _ => {}
        }
    }

    fn unlink_wait(&mut self, task: TaskKey, wait: &Waiting) {
        let Some(run) = wait.run.filter(|_| wait.is_open()) else { return };
        let (id, name) = (wait.id.clone(), wait.id.name.clone());
        self.run_waits.remove(&(run, task, id.clone()));
        self.signal_waits.remove(&(run, name, wait.since, task, id));
    }

    fn link_signal(&mut self, number: u64, signal: &Signal) {
        self.sent.insert((signal.run, signal.id));
        let entry = (signal.run, signal.name.clone(), number);
        match signal.taken_by {
            None => self.untaken.insert(entry),
            Some(_) => self.untaken.remove(&entry),
        };
    }

    fn holds_of(&self, task: TaskKey) -> impl Iterator<Item = &Hold> {
        let first = LimitKey::new("", "");
        let of_task = move |((other, _), _): &(&(TaskKey, LimitKey), &Hold)| *other == task;
        self.holds.range((task, first)..).take_while(of_task).map(|(_, hold)| hold)
    }

    fn held_by(&self, limit: &LimitKey) -> impl Iterator<Item = TaskKey> {
        let all = (limit.clone(), TaskKey(i64::MIN))..=(limit.clone(), TaskKey(i64::MAX));
        self.held.range(all).map(|(_, task)| *task)
    }

    fn units_of(&self, limit: &LimitKey) -> u32 {
        let units = self.held_by(limit).map(|task| self.holds[&(task, limit.clone())].units);
        units.fold(0, u32::saturating_add)
    }

    fn limit_states(&self) -> Vec<LimitState> {
        let mut used: BTreeSet<&LimitKey> = self.held.iter().map(|(limit, _)| limit).collect();
        used.extend(self.behind.keys());
        let state = |limit: &Limit, key: &LimitKey| {
            let queues = self.behind.get(key).into_iter().flat_map(BTreeMap::values).flatten();
            LimitState {
                limit: limit.clone(),
                key: key.key.to_string(),
                in_use: self.units_of(key),
                waiting: queues.map(|(_, tasks)| tasks.len() as u64).sum(),
            }
        };
        let mut states = Vec::new();
        for (name, limit) in &self.limits {
            let keys: Vec<_> = used.iter().filter(|key| *key.name == **name).collect();
            if keys.is_empty() {
                states.push(state(limit, &LimitKey::new(name.as_str(), "")));
            }
            states.extend(keys.into_iter().map(|key| state(limit, key)));
        }
        states
    }

    // ----------------------------------------------------------------------- what can be read --

    fn view(&self, run: RunId) -> Option<RunView> {
        let &key = self.ids.get(&run)?;
        let rows: Vec<_> = self.rows_of(key).map(|(row, _)| row.clone()).collect();
        let errors = self.list_payloads(TaskKey(key.0), rows.len() as u32, Payload::Error);
        view_run(rows, errors)
    }

    fn list_payloads(&self, first: TaskKey, tasks: u32, kind: Payload) -> Vec<(TaskKey, Bytes)> {
        let tasks = (first.0..).take(tasks as usize).map(TaskKey);
        tasks.filter_map(|task| Some((task, self.kept(task, kind)?))).collect()
    }

    /// How a run that is over has ended, if it is there.
    fn end_of(&self, run: RunId) -> Option<(RunId, Option<RunOutcome>)> {
        let Some(&key) = self.ids.get(&run) else { return Some((run, None)) };
        let (outcome, _) = self.head(key).ended?;
        Some((run, Some(outcome)))
    }

    fn page(&self, page: &RunsPage) -> Vec<RunSummary> {
        let before = page.before.unwrap_or(RunKey(i64::MAX));
        let wanted = |run: &RunSummary| {
            page.queue.as_ref().is_none_or(|queue| **queue == *run.queue)
                && page.workflow.as_ref().is_none_or(|name| name == run.plan.workflow())
                && (!page.open || run.ended.is_none())
                && (!page.top || run.parent.is_none())
                && page.ids.as_ref().is_none_or(|ids| ids.contains(&run.id))
                && page
                    .begun_by
                    .as_ref()
                    .is_none_or(|tasks| run.parent.is_some_and(|task| tasks.contains(&task)))
        };
        let older = self.runs.range(..before).rev();
        let older = older.filter_map(|(&run, _)| self.rows_of(run).next()?.0.summarize_run());
        older.filter(wanted).take(page.limit as usize).collect()
    }

    fn records_after(&self, run: Option<RunKey>, after: u64, limit: u32) -> Vec<Record> {
        let record = |seq: &u64| self.records[seq].clone();
        match run {
            None => {
                let later = self.records.range(after.saturating_add(1)..);
                later.take(limit as usize).map(|(_, record)| record.clone()).collect()
            }
            Some(run) => {
                let all = self.runs.get(&run).map_or(&[][..], Vec::as_slice);
                let later = &all[all.partition_point(|&seq| seq <= after)..];
                later.iter().take(limit as usize).map(record).collect()
            }
        }
    }

    fn counts(&self) -> Counts {
        let behind = |gate| self.gates.get(&gate).copied().unwrap_or(0);
        Counts {
            ready: behind(Gate::Open) + behind(Gate::Awaited),
            future: behind(Gate::Future),
            paused: behind(Gate::Paused),
            limited: behind(Gate::Limited),
            parked: self.parked,
            running: self.owned.len() as u64,
        }
    }

    fn unserved(&self) -> Vec<Unserved> {
        let mut waiting: BTreeMap<TaskGroup, u32> = BTreeMap::new();
        for (row, _) in self.tasks.values().filter(|(_, place)| place.gate.is_some()) {
            let queue = &self.head(row.run()).queue;
            *waiting.entry(TaskGroup::new(queue, &row.plan, row.index)).or_default() += 1;
        }
        let workers = self.live_workers();
        let unserved = waiting.into_iter().filter_map(|(group, waiting)| {
            let why = group.find_unserved_reason(&workers)?;
            Some(Unserved::new(group, waiting, why))
        });
        unserved.collect()
    }

    // --------------------------------------------------------------------------------- audit --

    fn audit(&mut self) -> Vec<Finding> {
        let mut auditor = Auditor::new(self.latest);
        while !auditor.is_done() {
            let Ok(()) = auditor.take_step(self);
        }
        let index = |what: &str| Finding::new("index", what);
        let indexes = self.wrong_indexes().into_iter().map(index);
        auditor.into_findings().into_iter().chain(indexes).collect()
    }

    /// The indexes, made anew, that differ from those kept.
    fn wrong_indexes(&self) -> Vec<&'static str> {
        let mut fresh = Memory::default();
        for (row, place) in self.tasks.values() {
            let head = self.head(row.run());
            fresh.link(row, &head.queue, place);
            fresh.link_unbegun(row, &head.queue, head.ended.is_some());
            if row.head.is_some() {
                fresh.ids.insert(head.id, row.run());
            }
        }
        fresh.gates.extend(self.gates.iter().filter(|&(_, &n)| n == 0).map(|(&gate, _)| (gate, 0)));
        for ((task, _), wait) in &self.waits {
            fresh.link_wait(*task, wait);
        }
        for (number, signal) in &self.signals {
            fresh.link_signal(*number, signal);
        }
        fresh.held.extend(self.holds.keys().map(|(task, limit)| (limit.clone(), *task)));
        let alarms = self.limit_alarms.iter().map(|(limit, alarm)| (*alarm, limit.clone()));
        fresh.alarms_of_limits.extend(alarms);
        let checks = [
            (
                fresh.open == self.open,
                "the tasks that can be claimed are not those with an open gate",
            ),
            (
                fresh.behind == self.behind,
                "the tasks behind limits are not those with such a place",
            ),
            (fresh.alarms == self.alarms, "the alarms are not those of the tasks"),
            (fresh.owned == self.owned, "the tasks of the workers are not those that run"),
            (fresh.parked == self.parked, "the count of those that are parked is wrong"),
            (
                fresh.signal_waits == self.signal_waits && fresh.run_waits == self.run_waits,
                "the open waits are not those of the tasks",
            ),
            (
                fresh.sent == self.sent && fresh.untaken == self.untaken,
                "the signals that nobody has taken are not those that were sent",
            ),
            (fresh.held == self.held, "what is held of the limits is not what tasks hold"),
            (
                fresh.alarms_of_limits == self.alarms_of_limits,
                "the alarms of limits are not those that were set",
            ),
            (fresh.gates == self.gates, "the counts are not those of the tasks"),
            (fresh.unbegun == self.unbegun, "the runs that have not begun are not those kept"),
            (fresh.ids == self.ids, "the names of runs are not those of their first tasks"),
        ];
        checks.into_iter().filter(|(agrees, _)| !agrees).map(|(_, what)| what).collect()
    }
}

/// Takes a task out of where it is found; lanes and queues where nothing is left go too.
fn close(queues: &mut Queues, queue: &Arc<str>, lane: &Lane, entry: (Timestamp, TaskKey)) {
    let Some(lanes) = queues.get_mut(queue) else { return };
    let Some(entries) = lanes.get_mut(lane) else { return };
    entries.remove(&entry);
    if entries.is_empty() {
        lanes.remove(lane);
    }
    if lanes.is_empty() {
        queues.remove(queue);
    }
}

/// How much of the time between is covered by at least one of the pauses.
fn covered(pauses: impl Iterator<Item = Pause>, from: Timestamp, to: Timestamp) -> Duration {
    let clip = |pause: Pause| (pause.from.max(from), pause.to.unwrap_or(to).min(to));
    let mut stretches: Vec<_> = pauses.map(clip).collect();
    stretches.sort_unstable();
    let mut covered = Duration::ZERO;
    let mut reached = from;
    for (begin, end) in stretches {
        covered += end.since(begin.max(reached));
        reached = reached.max(end);
    }
    covered
}
