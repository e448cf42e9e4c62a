//! The store that keeps everything in memory: the executable specification of what a store is.
//!
//! It is plain tables behind one lock. What a request does is decided by [`decide`](crate::decision::decide), as in every
//! store; here stands how rows are found and written:
//!
//! - `table`: rows by key, and the lists of rows by which they are found besides, as other stores have
//!   indexes: tasks that can be claimed by task group and claim order, alarms by time, tasks by worker,
//!   open waits by the run that they are for …
//! - `load`: the answers to wants; `apply`: how a delta is written.
//!
//! Invariants: every list agrees with the rows, which [`Store::audit`] checks; numbers of tasks,
//! workers and records only grow. A request that panics leaves the store unusable, and it says so,
//! because part of that request may have been written.
//!
//! Deliberately absent: a clock (a request by the store's clock gets the latest time that one was
//! given), chance, files, and whether a process is alive. A worker here is
//! alive until somebody says otherwise ([`MemoryStore::kill`]).

mod apply;
mod load;
mod table;

use crate::audit::Auditor;
use crate::delta::TaskWrite;
use crate::explain::{Looked, explain_task};
use crate::graph::RunOutcome;
use crate::lifecycle::WorkerId;
use crate::limit::{Hold, Limit, LimitKey, LimitRow, LimitState};
use crate::rows::{Gate, Payload, view_run};
use crate::store::{
    Answer, Bytes, Counts, Finding, NewWorker, Record, Reply, Request, RunKey, RunSummary, RunView,
    RunsPage, Scope, Store, StoreError, TaskKey, Unserved, WorkerView,
};
use crate::testing::{OrderTaker, PausingLoader, RequestHooks};
use crate::transaction::{answer_request, apply_decision};
use crate::wait::{WaitId, Waiting};
use crate::want::{LiveWorker, ServedTasks, StoredLimit, TaskGroup};
use crate::{RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, LockResult, Mutex, MutexGuard, TryLockError};
use table::{IndexedTable, KeysByTime, SentSignal, TaskList, group_of};

/// A store in memory. It is as durable as its process.
#[derive(Default)]
pub struct MemoryStore {
    pub(crate) memory: Arc<Mutex<Memory>>,
    pub(crate) hooks: RequestHooks,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// The process of this worker is gone: from now on it counts as dead.
    pub fn kill(&self, worker: WorkerId) {
        if let Ok(mut memory) = self.memory.lock()
            && let Some(worker) = memory.workers.get_mut(&worker)
        {
            worker.view.alive = false;
        }
    }

    fn lock_memory(&self) -> LockResult<MutexGuard<'_, Memory>> {
        let Some(points) = &self.hooks.points else { return self.memory.lock() };
        match self.memory.try_lock() {
            Ok(memory) => Ok(memory),
            Err(TryLockError::Poisoned(error)) => Err(error),
            Err(TryLockError::WouldBlock) => {
                points.on_blocked();
                self.memory.lock()
            }
        }
    }

    /// Reads or changes the memory, when the answer is asked for.
    fn use_memory<'s, T: Send + 's>(
        &'s self,
        work: impl FnOnce(&mut Memory) -> T + Send + 's,
    ) -> Answer<'s, T> {
        Box::pin(async move {
            let half_written = "a request has panicked, and may be half written";
            let cause = || Box::<dyn Error + Send + Sync>::from(half_written).into();
            let mut memory = self.lock_memory().map_err(|_| StoreError::Unusable(cause()))?;
            Ok(work(&mut memory))
        })
    }
}

impl Store for MemoryStore {
    fn enlist(&self, worker: NewWorker) -> Answer<'_, WorkerId> {
        self.use_memory(|memory| memory.enlist_worker(worker))
    }

    /// A worker that still owns tasks stays known, as dead, until these are taken over.
    fn dismiss(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.use_memory(move |memory| {
            if !memory.tasks.lists.contains_key(&TaskList::OwnedBy(worker)) {
                memory.forget_worker(worker);
            } else if let Some(worker) = memory.workers.get_mut(&worker) {
                worker.view.alive = false;
            }
        })
    }

    fn dead(&self) -> Answer<'_, Vec<WorkerId>> {
        self.use_memory(|memory| {
            let dead = memory.workers.iter().filter(|(_, worker)| !worker.view.alive);
            dead.map(|(&id, _)| id).collect()
        })
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerView>> {
        self.use_memory(|memory| {
            memory.workers.values().map(|worker| worker.view.clone()).collect()
        })
    }

    fn request(&self, request: Arc<Request>) -> Answer<'_, Reply> {
        self.use_memory(move |memory| match memory.take_request(&request, &self.hooks) {
            Ok(reply) => reply,
        })
    }

    fn run(&self, run: RunId) -> Answer<'_, Option<RunView>> {
        self.use_memory(move |memory| {
            let key = memory.find_run(&TaskList::Id(run))?;
            let rows: Vec<_> = memory.tasks_of(key).map(|task| task.row.clone()).collect();
            let errors = memory.list_payloads(TaskKey(key.0), rows.len() as u32, Payload::Error);
            view_run(rows, errors)
        })
    }

    fn ended(&self, runs: Vec<RunId>) -> Answer<'_, Vec<(RunId, Option<RunOutcome>)>> {
        self.use_memory(move |memory| {
            let ended =
                runs.into_iter().filter_map(|run| match memory.find_run(&TaskList::Id(run)) {
                    Some(key) => memory.head_of(key).ended.map(|(outcome, _)| (run, Some(outcome))),
                    None => Some((run, None)),
                });
            ended.collect()
        })
    }

    fn runs(&self, page: RunsPage) -> Answer<'_, Vec<RunSummary>> {
        self.use_memory(move |memory| memory.list_runs(&page))
    }

    fn payloads(
        &self,
        first: TaskKey,
        tasks: u32,
        kind: Payload,
    ) -> Answer<'_, Vec<(TaskKey, Bytes)>> {
        self.use_memory(move |memory| memory.list_payloads(first, tasks, kind))
    }

    fn records(&self, run: Option<RunKey>, after: u64, limit: u32) -> Answer<'_, Vec<Record>> {
        self.use_memory(move |memory| memory.list_records(run, after.saturating_add(1), limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.use_memory(|memory| memory.count_tasks())
    }

    fn unserved(&self) -> Answer<'_, Vec<Unserved>> {
        self.use_memory(|memory| memory.list_unserved())
    }

    fn limits(&self) -> Answer<'_, Vec<LimitState>> {
        self.use_memory(|memory| memory.list_limits())
    }

    fn explain(&self, task: TaskKey, now: Timestamp) -> Answer<'_, Option<Looked>> {
        self.use_memory(move |memory| match explain_task(memory, task, now) {
            Ok(looked) => looked,
        })
    }

    fn audit(&self) -> Answer<'_, Vec<Finding>> {
        self.use_memory(|memory| memory.audit_rows())
    }
}

/// The tables.
#[derive(Default)]
pub(crate) struct Memory {
    tasks: IndexedTable<TaskKey, TaskWrite>,
    payloads: BTreeMap<(TaskKey, u8), Bytes>,
    /// By their numbers.
    records: IndexedTable<u64, Record>,
    /// Runs of which records were pruned.
    unrecorded: BTreeSet<RunKey>,
    /// When pauses began and ended, the oldest first; the last may be open.
    pauses: HashMap<Scope, Vec<(Timestamp, Option<Timestamp>)>>,
    workers: BTreeMap<WorkerId, EnlistedWorker>,
    notifications: BTreeSet<(WorkerId, TaskKey)>,
    waits: IndexedTable<(TaskKey, WaitId), Waiting>,
    /// By their numbers.
    signals: IndexedTable<u64, SentSignal>,
    limits: BTreeMap<String, Limit>,
    holds: IndexedTable<(TaskKey, LimitKey), Hold>,
    /// Begins under limits that may still count for a rate: units by time.
    rate_events: BTreeMap<LimitKey, BTreeMap<Timestamp, u64>>,
    /// Rows of limits, but for those that say nothing.
    limit_rows: IndexedTable<LimitKey, LimitRow>,
    /// The last numbers given.
    last_worker: u64,
    last_task: i64,
    last_record: u64,
    last_signal: u64,
    /// The latest time of a request.
    latest: Option<Timestamp>,
}

/// A worker that is known.
struct EnlistedWorker {
    view: WorkerView,
    served: Arc<ServedTasks>,
}

impl Memory {
    fn enlist_worker(&mut self, new: NewWorker) -> WorkerId {
        self.last_worker += 1;
        let id = WorkerId(self.last_worker);
        let served = ServedTasks::new(&new.queues, &new.knows).into();
        self.workers.insert(id, EnlistedWorker { view: WorkerView::new(id, new), served });
        id
    }

    fn take_request(
        &mut self,
        request: &Request,
        hooks: &RequestHooks,
    ) -> Result<Reply, Infallible> {
        let points = hooks.points.as_deref();
        let (reply, _) = match &hooks.decider {
            None if hooks.takes_orders => {
                answer_request(request, &mut OrderTaker::new(self), points)?
            }
            None => answer_request(request, self, points)?,
            Some(decider) => {
                let mut loader = PausingLoader::new(self, points);
                let decision = decider.decide_request(request, &mut loader);
                let answered = apply_decision(decision, self, points)?;
                decider.check_applied(self);
                answered.expect("memory is never stale")
            }
        };
        self.latest = self.latest.max(Some(reply.now));
        if let Some(points) = points {
            points.before_commit();
        }
        Ok(reply)
    }

    fn list_payloads(&self, first: TaskKey, tasks: u32, kind: Payload) -> Vec<(TaskKey, Bytes)> {
        let end = TaskKey(first.0.saturating_add(tasks.into()));
        let payloads = self.payloads.range((first, 0)..(end, 0));
        let payloads = payloads.filter(|((_, code), _)| *code == kind.code());
        payloads.map(|((task, _), bytes)| (*task, bytes.clone())).collect()
    }

    fn list_runs(&self, page: &RunsPage) -> Vec<RunSummary> {
        let before = page.before.map_or(TaskKey(i64::MAX), |run| TaskKey(run.0));
        let older = self.tasks.rows.range(..before).rev();
        let older = older.filter_map(|(_, task)| task.row.summarize_run());
        older.filter(|run| page.includes_run(run)).take(page.limit as usize).collect()
    }

    fn list_records(&self, run: Option<RunKey>, from: u64, limit: u32) -> Vec<Record> {
        let Some(run) = run else {
            let records = self.records.rows.range(from..).map(|(_, record)| record.clone());
            return records.take(limit as usize).collect();
        };
        let of_run = self.records.lists.get(&run).into_iter();
        let numbers = of_run.flat_map(|numbers| numbers.range((Timestamp::default(), from)..));
        let records = numbers.map(|(_, number)| self.records.rows[number].clone());
        records.take(limit as usize).collect()
    }

    fn count_tasks(&self) -> Counts {
        let count =
            |list: TaskList| self.tasks.lists.get(&list).map_or(0, |keys| keys.len() as u64);
        let behind = |gate: Gate| count(TaskList::Gate(gate.code()));
        let owned = TaskList::OwnedBy(WorkerId(0))..=TaskList::OwnedBy(WorkerId(u64::MAX));
        let owned = self.tasks.lists.range(owned).map(|(_, keys)| keys.len() as u64);
        Counts {
            ready: behind(Gate::Open) + behind(Gate::Awaited),
            future: behind(Gate::Future),
            paused: behind(Gate::Paused),
            limited: behind(Gate::Limited),
            parked: count(TaskList::Parked),
            running: owned.sum(),
        }
    }

    fn live_workers(&self) -> Vec<LiveWorker> {
        let alive = self.workers.values().filter(|worker| worker.view.alive);
        let view = alive.map(|EnlistedWorker { view: WorkerView { id, slots, .. }, served }| {
            LiveWorker { id: *id, served: served.clone(), slots: *slots }
        });
        view.collect()
    }

    fn list_unserved(&self) -> Vec<Unserved> {
        let mut waiting: BTreeMap<TaskGroup, u32> = BTreeMap::new();
        for task in self.tasks.rows.values().filter(|task| task.place.gate.is_some()) {
            *waiting.entry(group_of(task)).or_default() += 1;
        }
        let workers = self.live_workers();
        let unserved = waiting.into_iter().filter_map(|(group, waiting)| {
            let why = group.find_unserved_reason(&workers)?;
            Some(Unserved::new(group, waiting, why))
        });
        unserved.collect()
    }

    fn list_limits(&self) -> Vec<LimitState> {
        let used = self.list_used_limits();
        let state = |limit: &Limit, key: &LimitKey| {
            let blocked = self.list_blocked(key).take_while(|(other, _)| *other == key);
            LimitState {
                limit: limit.clone(),
                key: key.key.to_string(),
                in_use: u32::try_from(self.find_limit_row(key).in_use).unwrap_or(u32::MAX),
                waiting: blocked.map(|(_, tasks)| tasks.len() as u64).sum(),
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

    /// The limits of which tasks hold units or on which tasks are blocked.
    fn list_used_limits(&self) -> BTreeSet<&LimitKey> {
        let blocked = self.list_blocked(&LimitKey::new("", "")).map(|(limit, _)| limit);
        self.holds.lists.keys().chain(blocked).collect()
    }

    /// Limits have no numbers here; they are counted for the occasion.
    fn list_limit_keys(&self, from: i64, max: u32) -> Vec<StoredLimit> {
        let mut keys = self.list_used_limits();
        keys.extend(self.limit_rows.rows.keys());
        keys.extend(self.rate_events.keys());
        let numbered = (0..).zip(keys).skip_while(|(number, _)| *number < from);
        let stored = numbered.map(|(number, key)| self.view_limit(number, key));
        stored.take(max as usize).collect()
    }

    fn view_limit(&self, number: i64, key: &LimitKey) -> StoredLimit {
        let begun = self.rate_events.get(key).into_iter().flatten();
        StoredLimit {
            number,
            key: key.clone(),
            row: self.find_limit_row(key),
            held: self.holds.list_rows(key).map(|(_, hold)| u64::from(hold.units)).sum(),
            holders: self.holds.list_keys(key).count() as u32,
            begun: begun.map(|(_, units)| *units).sum(),
            most: None,
        }
    }

    fn audit_rows(&mut self) -> Vec<Finding> {
        let mut auditor = Auditor::new(self.latest);
        while !auditor.is_done() {
            let Ok(()) = auditor.take_step(self);
        }
        let tables = [
            (self.tasks.has_true_lists(), "tasks"),
            (self.waits.has_true_lists(), "waits"),
            (self.signals.has_true_lists(), "signals"),
            (self.holds.has_true_lists(), "holds"),
            (self.records.has_true_lists(), "records"),
            (self.limit_rows.has_true_lists(), "alarms of limits"),
        ];
        let wrong = tables.into_iter().filter(|(is_true, _)| !is_true);
        let wrong = wrong.map(|(_, rows)| {
            Finding::new("index", format!("the {rows} are not found where their rows say"))
        });
        auditor.into_findings().into_iter().chain(wrong).collect()
    }
}
