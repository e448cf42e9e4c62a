//! The tasks that a worker can claim: the groups that it serves, pauses, and several groups as one.
//!
//! How many runs of a queue wait is found in the same place, never counted up or down. A bound from above
//! is remembered, so that a submit to a queue that is far from full costs nothing.

use crate::error::Error;
use crate::fetch::{Fetch, read_at};
use crate::loader::{RowLoader, load_once};
use crate::rows::{QUEUE, STORE};
use crate::sql::{LoadStatements, queries};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tidegate_core::Timestamp;
use tidegate_core::delta::{PauseChange, TaskWrite, is_paused_after};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::{Gate, Row};
use tidegate_core::store::{RunKey, Scope, TaskKey};
use tidegate_core::want::{LiveWorker, ServedTasks};

/// The fewest rows that are read of a group at once: a query costs as much as a few rows.
const GROUP_ROWS_MIN: usize = 16;

queries! {
    GROUPS_OF_QUEUE = "SELECT number FROM task_group WHERE queue = ?1";

    /// The limit after ?2 that blocks tasks of the eligibility ?1.
    NEXT_LIMIT = "SELECT min(blocked_on) FROM task WHERE eligibility = ?1 AND blocked_on > ?2 \
         AND claim_order IS NOT NULL";

    /// Tasks of the group ?3 that are ready with the eligibility ?1, blocked on the limit ?2 or on none.
    READY = "SELECT number, idx FROM task WHERE eligibility = ?1 \
         AND blocked_on IS ?2 AND task_group = ?3 AND claim_order IS NOT NULL";

    /// Whether a task before ?2 is ready of the run ?1.
    READY_BEFORE = "SELECT 1 FROM task WHERE number >= ?1 AND number < ?2 \
         AND eligibility IS NOT NULL";
}

/// A worker as it has presented itself.
pub(crate) struct WorkerGroups {
    pub(crate) tasks: Arc<ServedTasks>,
    slots: u32,
    /// Number, queue and weight of the groups it serves, of those up to `last`.
    groups: Vec<(i64, String, u32)>,
    last: i64,
}

/// Claim order and number of a task.
type ClaimPlace = (Timestamp, TaskKey);

/// The first tasks of a group that were read and not taken.
struct GroupFront {
    group: (Gate, i64),
    rows: VecDeque<ClaimPlace>,
    /// Up to where it was read.
    last: ClaimPlace,
    has_more: bool,
}

impl GroupFront {
    /// Takes the first task, after some more were read if there was none left.
    fn take_first(
        &mut self,
        sql: &mut LoadStatements<'_>,
        rows: usize,
    ) -> Result<Option<ClaimPlace>, Error> {
        if self.rows.is_empty() && self.has_more {
            let ((gate, group), (order, task)) = (self.group, self.last);
            let from = (gate.code(), group, order.as_micros(), task.0, rows as i64);
            self.rows = sql.ready.fetch_all(from)?;
            self.has_more = self.rows.len() == rows;
            self.last = self.rows.back().copied().unwrap_or(self.last);
        }
        Ok(self.rows.pop_front())
    }
}

impl RowLoader<'_> {
    /// The first tasks by claim order that a worker can run, of the groups behind open gates in which there
    /// may be some.
    pub(crate) fn find_ready(
        &mut self,
        worker: WorkerId,
        max_weight: u32,
        only_awaited: bool,
        pauses: &[PauseChange],
        max: usize,
    ) -> Result<Vec<ClaimPlace>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.find_paused()?;
        self.find_served(worker)?;
        let any_awaited = || self.sql.any_ready.exists([Gate::Awaited.code()]);
        let is_awaited = *load_once(&mut self.cache.awaited, any_awaited)?;
        let gates = [(Gate::Open, !only_awaited), (Gate::Awaited, is_awaited)];
        let gates = gates.iter().filter(|(_, is_open)| *is_open);
        let groups = self.workers.get(&worker).into_iter().flat_map(|served| &served.groups);
        let paused = self.cache.paused.as_deref().unwrap_or_default();
        let groups = groups.filter(|(_, queue, weight)| {
            *weight <= max_weight && !is_queue_paused(paused, pauses, queue)
        });
        let groups = groups.flat_map(|(id, ..)| gates.clone().map(|(gate, _)| (*gate, *id)));
        let groups = groups.filter(|group| !self.cache.empty.contains(group));

        let last = (Timestamp::from_micros(i64::MIN), TaskKey(i64::MIN));
        let front = |group| GroupFront { group, rows: VecDeque::new(), last, has_more: true };
        let mut fronts: Vec<_> = groups.map(front).collect();
        let rows = max.div_ceil(fronts.len().max(1)).max(GROUP_ROWS_MIN).min(max);
        let mut firsts = BinaryHeap::with_capacity(fronts.len());
        for (at, front) in fronts.iter_mut().enumerate() {
            match front.take_first(&mut self.sql, rows)? {
                Some(first) => firsts.push(Reverse((first, at))),
                None => drop(self.cache.empty.insert(front.group)),
            }
        }
        let mut ready = Vec::new();
        while let Some(Reverse((first, at))) = firsts.pop() {
            ready.push(first);
            if ready.len() == max {
                break;
            }
            let next = fronts[at].take_first(&mut self.sql, rows)?;
            firsts.extend(next.map(|next| Reverse((next, at))));
        }
        Ok(ready)
    }

    /// Scopes and names of the pauses of queues and of the store.
    pub(crate) fn find_paused(&mut self) -> Result<&[(i64, String)], Error> {
        Ok(load_once(&mut self.cache.paused, || self.sql.open_pauses.fetch_all([]))?)
    }

    /// The workers that are known.
    pub(crate) fn known_workers(&mut self) -> Result<Arc<HashSet<WorkerId>>, Error> {
        if let Some(known) = &self.cache.known {
            return Ok(known.clone());
        }
        let known: Arc<HashSet<WorkerId>> = Arc::new(self.sql.workers.fetch_all([])?);
        self.workers.retain(|worker, _| known.contains(worker));
        Ok(self.cache.known.insert(known).clone())
    }

    /// The workers that are alive, by number.
    pub(crate) fn live_workers(&mut self) -> Result<Vec<LiveWorker>, Error> {
        let known = self.known_workers()?;
        let mut alive = Vec::from_iter(known.iter().copied().filter(|id| self.is_alive(*id)));
        alive.sort_unstable();
        let view = |id| {
            let served = find_worker(&mut self.workers, &mut self.sql, id)?;
            Ok(LiveWorker { id, served: served.tasks.clone(), slots: served.slots })
        };
        alive.into_iter().map(view).collect()
    }

    /// The tasks that a worker serves, with all groups there are; `None` if there is no such worker.
    pub(crate) fn find_served(
        &mut self,
        worker: WorkerId,
    ) -> Result<Option<&Arc<ServedTasks>>, Error> {
        if !self.known_workers()?.contains(&worker) {
            return Ok(None);
        }
        let RowLoader { sql, cache, workers, .. } = self;
        let served = find_worker(workers, sql, worker)?;
        let last = *load_once(&mut cache.last_group, || sql.last_group.fetch_one([]))?;
        if served.last < last {
            let mut groups = sql.served_groups.fetch_all((worker.0 as i64, served.last))?;
            served.groups.append(&mut groups);
            served.last = last;
        }
        Ok(Some(&served.tasks))
    }
}

/// Whether a pause keeps the tasks of a queue from being claimed after these changes.
pub(crate) fn is_queue_paused(
    paused: &[(i64, String)],
    changes: &[PauseChange],
    queue: &str,
) -> bool {
    let is_open = |scope, name| paused.iter().any(|(of, named)| *of == scope && named == name);
    let is_queue = |scope: &Scope| matches!(scope, Scope::Queue(name) if name == queue);
    is_paused_after(changes, is_queue, is_open(QUEUE, queue))
        || is_paused_after(changes, |scope| *scope == Scope::Store, is_open(STORE, ""))
}

/// A worker that is known, from memory or from the database.
fn find_worker<'w>(
    workers: &'w mut HashMap<WorkerId, WorkerGroups>,
    sql: &mut LoadStatements<'_>,
    worker: WorkerId,
) -> Result<&'w mut WorkerGroups, Error> {
    let vacant = match workers.entry(worker) {
        Entry::Occupied(known) => return Ok(known.into_mut()),
        Entry::Vacant(vacant) => vacant,
    };
    let id = [worker.0 as i64];
    let queues = sql.worker_queues.fetch_all(id)?;
    let (knows_all, slots): (bool, _) = sql.worker.fetch_one(id)?;
    let mut knows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (workflow, task) in sql.worker_tasks.fetch_all::<_, Vec<_>>(id)? {
        knows.entry(workflow).or_default().insert(task);
    }
    let tasks = Arc::new(ServedTasks { queues, tasks: (!knows_all).then_some(knows) });
    Ok(vacant.insert(WorkerGroups { tasks, slots, groups: Vec::new(), last: 0 }))
}

impl RowLoader<'_> {
    /// How many runs of a queue wait, up to `max`; below, the answer may be more than there are.
    pub(crate) fn count_waiting_runs(&mut self, queue: &Arc<str>, max: u32) -> Result<u32, Error> {
        if let Some(&most) = self.cache.waiting.get(queue).filter(|most| **most < max) {
            return Ok(most);
        }
        let waiting = self.count_stored_runs(queue, max)?;
        // If there are as many, there may be more.
        self.cache.waiting.remove(queue);
        if waiting < max {
            self.cache.waiting.insert(queue.clone(), waiting);
        }
        Ok(waiting)
    }

    /// Notes that the run of a task that was written may wait from now on.
    pub(crate) fn note_waiting(&mut self, TaskWrite { row, place, queue, .. }: &TaskWrite) {
        if self.cache.waiting.is_empty() || place.gate.is_none() || row.life.started.is_some() {
            return;
        }
        if let Some(most) = self.cache.waiting.get_mut(queue) {
            *most += 1;
        }
    }

    fn count_stored_runs(&mut self, queue: &str, max: u32) -> Result<u32, Error> {
        let connection = self.connection;
        let groups: Vec<i64> = self.fetch_rare(GROUPS_OF_QUEUE, [queue])?;
        let mut ready = connection.prepare(READY)?;
        let mut before = connection.prepare(READY_BEFORE)?;
        let mut waiting = 0;
        for (gate, limit) in self.list_gates()? {
            for group in &groups {
                let mut rows = ready.query((gate.code(), limit, group))?;
                while let Some(row) = rows.next()? {
                    let (key, index): (i64, i64) = (read_at(row, 0)?, read_at(row, 1)?);
                    let run = RunKey(key - index);
                    // A run counts by the first of its tasks that is ready.
                    if before.exists((run.0, key))? || !is_waiting(&self.find_tasks(run)?) {
                        continue;
                    }
                    waiting += 1;
                    if waiting >= max {
                        return Ok(waiting);
                    }
                }
            }
        }
        Ok(waiting)
    }

    /// The gates behind which tasks are ready, and for one that is a limit, which.
    fn list_gates(&mut self) -> Result<Vec<(Gate, Option<i64>)>, Error> {
        let gates = Gate::ALL.into_iter().filter(|gate| *gate != Gate::Limited);
        let mut found: Vec<_> = gates.map(|gate| (gate, None)).collect();
        let next = self.prepare_rare(NEXT_LIMIT)?;
        let mut last = i64::MIN;
        while let Some(limit) = next.fetch_one((Gate::Limited.code(), last))? {
            found.push((Gate::Limited, Some(limit)));
            last = limit;
        }
        Ok(found)
    }
}

/// Whether the run of these tasks waits.
fn is_waiting(tasks: &[Row]) -> bool {
    let Some(head) = tasks.first().and_then(|first| first.head.as_ref()) else { return false };
    let has_begun = |task: &Row| task.life.started.is_some() || task.life.owner().is_some();
    head.parent.is_none() && head.ended.is_none() && !tasks.iter().any(has_begun)
}
