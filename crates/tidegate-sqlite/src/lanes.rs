//! The tasks that a worker can claim: the lanes that it serves, pauses, and several lanes as one.

use crate::error::Error;
use crate::fetch::Fetch;
use crate::load::{QUEUE, STORE};
use crate::loader::{RowLoader, load_once};
use crate::sql::LoadStatements;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tidegate_core::Timestamp;
use tidegate_core::delta::{PauseChange, is_paused_after};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::Gate;
use tidegate_core::store::{Scope, TaskKey};
use tidegate_core::want::{LiveWorker, ServedTasks};

/// The fewest rows that are read of a lane at once: a query costs as much as a few rows.
const LANE_ROWS_MIN: usize = 16;

/// A worker as it has presented itself.
pub(crate) struct ServedLanes {
    pub(crate) tasks: Arc<ServedTasks>,
    slots: u32,
    /// Number, queue and weight of the lanes it serves, of those up to `last`.
    lanes: Vec<(i64, String, u32)>,
    last: i64,
}

/// Claim order and number of a task.
type ClaimPlace = (Timestamp, TaskKey);

/// The first tasks of a lane that were read and not taken.
struct LaneFront {
    lane: (Gate, i64),
    rows: VecDeque<ClaimPlace>,
    /// Up to where it was read.
    last: ClaimPlace,
    has_more: bool,
}

impl LaneFront {
    /// Takes the first task, after some more were read if there was none left.
    fn take_first(
        &mut self,
        sql: &mut LoadStatements<'_>,
        rows: usize,
    ) -> Result<Option<ClaimPlace>, Error> {
        if self.rows.is_empty() && self.has_more {
            let ((gate, lane), (order, task)) = (self.lane, self.last);
            let from = (gate.code(), lane, order.as_micros(), task.0, rows as i64);
            self.rows = sql.ready.fetch_all(from)?;
            self.has_more = self.rows.len() == rows;
            self.last = self.rows.back().copied().unwrap_or(self.last);
        }
        Ok(self.rows.pop_front())
    }
}

impl RowLoader<'_> {
    /// The first tasks by claim order that a worker can run.
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
        let lanes = self.find_lanes(worker, max_weight, only_awaited, pauses)?;
        let rows = max.div_ceil(lanes.len().max(1)).max(LANE_ROWS_MIN).min(max);
        let last = (Timestamp::from_micros(i64::MIN), TaskKey(i64::MIN));
        let front = |lane| LaneFront { lane, rows: VecDeque::new(), last, has_more: true };
        let mut fronts: Vec<_> = lanes.into_iter().map(front).collect();
        let mut firsts = BinaryHeap::with_capacity(fronts.len());
        for (at, front) in fronts.iter_mut().enumerate() {
            match front.take_first(&mut self.sql, rows)? {
                Some(first) => firsts.push(Reverse((first, at))),
                None => drop(self.cache.empty.insert(front.lane)),
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

    /// The lanes, each behind an open gate, in which there may be something for a worker.
    fn find_lanes(
        &mut self,
        worker: WorkerId,
        max_weight: u32,
        only_awaited: bool,
        pauses: &[PauseChange],
    ) -> Result<Vec<(Gate, i64)>, Error> {
        self.find_paused()?;
        self.find_served(worker)?;
        let any_awaited = || self.sql.any_behind.exists([Gate::Awaited.code()]);
        let is_awaited = *load_once(&mut self.cache.awaited, any_awaited)?;
        let gates = [(Gate::Open, !only_awaited), (Gate::Awaited, is_awaited)];
        let gates = gates.iter().filter(|(_, is_open)| *is_open);
        let lanes = self.workers.get(&worker).into_iter().flat_map(|served| &served.lanes);
        let paused = self.cache.paused.as_deref().unwrap_or_default();
        let lanes = lanes.filter(|(_, queue, weight)| {
            *weight <= max_weight && !is_queue_paused(paused, pauses, queue)
        });
        let lanes = lanes.flat_map(|(id, ..)| gates.clone().map(|(gate, _)| (*gate, *id)));
        Ok(lanes.filter(|lane| !self.cache.empty.contains(lane)).collect())
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

    /// The tasks that a worker serves, with all lanes there are; `None` if there is no such worker.
    pub(crate) fn find_served(
        &mut self,
        worker: WorkerId,
    ) -> Result<Option<&Arc<ServedTasks>>, Error> {
        if !self.known_workers()?.contains(&worker) {
            return Ok(None);
        }
        let RowLoader { sql, cache, workers, .. } = self;
        let served = find_worker(workers, sql, worker)?;
        let last = *load_once(&mut cache.last_lane, || sql.last_lane.fetch_one([]))?;
        if served.last < last {
            let mut lanes = sql.worker_lanes.fetch_all((worker.0 as i64, served.last))?;
            served.lanes.append(&mut lanes);
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
    workers: &'w mut HashMap<WorkerId, ServedLanes>,
    sql: &mut LoadStatements<'_>,
    worker: WorkerId,
) -> Result<&'w mut ServedLanes, Error> {
    let vacant = match workers.entry(worker) {
        Entry::Occupied(known) => return Ok(known.into_mut()),
        Entry::Vacant(vacant) => vacant,
    };
    let id = [worker.0 as i64];
    let queues = sql.worker_queues.fetch_all(id)?;
    let (knows_all, slots): (bool, _) = sql.worker.fetch_one(id)?;
    let mut knows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (workflow, task) in sql.worker_knows.fetch_all::<_, Vec<_>>(id)? {
        knows.entry(workflow).or_default().insert(task);
    }
    let tasks = Arc::new(ServedTasks { queues, tasks: (!knows_all).then_some(knows) });
    Ok(vacant.insert(ServedLanes { tasks, slots, lanes: Vec::new(), last: 0 }))
}
