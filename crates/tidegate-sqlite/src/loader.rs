//! A connection that loads rows, the writer's or a reader's, with a cache that outlives transactions.
//!
//! The cache is true as long as no other connection writes, which the database tells at the beginning
//! of each transaction; a transaction that is rolled back empties it.

use crate::columns::worker_id;
use crate::error::Error;
use crate::lanes::{Lane, Paused, Served};
use crate::open::Place;
use crate::plans::Catalog;
use crate::sql::LoadStatements;
use rusqlite::{Connection, Statement};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tidegate_core::Timestamp;
use tidegate_core::delta::PauseChange;
use tidegate_core::keys::KeyMap;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::Limit;
use tidegate_core::plan::Plan;
use tidegate_core::rows::{Gate, Row};
use tidegate_core::store::{Bytes, TaskKey};
use tidegate_core::want::{LiveWorker, ServedTasks};

/// A connection that loads rows.
pub(crate) struct RowLoader<'c> {
    pub(crate) connection: &'c Connection,
    /// Where the lock files are that tell which workers are alive.
    pub(crate) place: &'c Place,
    pub(crate) sql: LoadStatements<'c>,
    /// Statements that are seldom needed, with their texts. There are few, and comparing their lengths
    /// usually tells them apart.
    rare: Vec<(String, Statement<'c>)>,
    pub(crate) catalog: Catalog,
    pub(crate) cache: LoaderCache,
    /// Workers as they have presented themselves, which they do once.
    workers: HashMap<WorkerId, Served>,
    /// The number by which the database tells that another connection has written.
    data_version: i64,
}

/// Answers that hold until another connection writes.
#[derive(Default)]
pub(crate) struct LoaderCache {
    /// The last numbers given.
    pub(crate) last_task: Option<i64>,
    pub(crate) last_record: Option<i64>,
    pub(crate) last_signal: Option<u64>,
    pub(crate) last_lane: Option<i64>,
    /// Queues and store, but for single runs.
    pub(crate) paused: Option<Paused>,
    /// The workers that are known.
    pub(crate) known: Option<Arc<HashSet<WorkerId>>>,
    /// Lanes in which nothing stands behind an open gate.
    pub(crate) empty: HashSet<(Gate, i64)>,
    /// Whether there is something behind the gate of runs that some task waits for.
    pub(crate) awaited: Option<bool>,
    /// Workers for whom there are words.
    pub(crate) words: Option<BTreeSet<WorkerId>>,
    /// Limits by name; `None` is one that was not declared.
    pub(crate) limits: HashMap<String, Option<Limit>>,
    /// The earliest alarm of all limits.
    pub(crate) limit_alarm: Option<Option<Timestamp>>,
    /// Tasks that workers own, as this connection wrote them last: their end is usually the next
    /// change of them.
    owned: KeyMap<TaskKey, Row>,
    /// By queue, how many runs wait at the most.
    pub(crate) waiting: HashMap<Arc<str>, u32>,
    /// The input that was read last. It never changes, and many tasks may be given it.
    pub(crate) input: Option<(TaskKey, Bytes)>,
}

/// Tasks that are remembered. Those of a worker that has more wait long, and are looked up.
const OWNED_MAX: usize = 16_384;

impl LoaderCache {
    /// Remembers a task that was written, if a worker owns it; otherwise forgets it.
    pub(crate) fn remember(&mut self, row: Row) {
        if row.life.owner().is_none() {
            self.owned.remove(&row.key);
            return;
        }
        if self.owned.len() >= OWNED_MAX {
            self.owned.clear();
        }
        self.owned.insert(row.key, row);
    }

    /// A task as it was last written here. It is about to be changed, and remembered anew.
    pub(crate) fn recall(&mut self, task: TaskKey) -> Option<Row> {
        self.owned.remove(&task)
    }
}

impl<'c> RowLoader<'c> {
    pub(crate) fn new(connection: &'c Connection, place: &'c Place) -> rusqlite::Result<Self> {
        Ok(RowLoader {
            connection,
            place,
            sql: LoadStatements::prepare(connection)?,
            rare: Vec::new(),
            catalog: Catalog::default(),
            cache: LoaderCache::default(),
            workers: HashMap::new(),
            data_version: -1,
        })
    }

    /// Reads in one transaction, so that all of it is of one instant. Not for the writer, which is in
    /// a transaction already.
    pub(crate) fn read_snapshot<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // It ends when it is dropped, also after an error or a panic.
        let _transaction = self.connection.unchecked_transaction()?;
        self.drop_stale_cache()?;
        read(self)
    }

    /// At the beginning of a transaction: empties the cache if another connection has written.
    pub(crate) fn drop_stale_cache(&mut self) -> Result<(), Error> {
        let data_version = self.sql.data_version.query_row([], |row| row.get(0))?;
        if data_version != self.data_version {
            self.data_version = data_version;
            self.cache = LoaderCache::default();
        }
        Ok(())
    }

    /// Empties the cache, and forgets all that a transaction may have added which was rolled back.
    pub(crate) fn forget_everything(&mut self) {
        self.cache = LoaderCache::default();
        self.workers.clear();
        self.catalog = Catalog::default();
    }

    /// A statement that is seldom needed, prepared the first time.
    pub(crate) fn prepare_rare(&mut self, sql: &str) -> Result<&mut Statement<'c>, Error> {
        let at = match self.rare.iter().position(|(known, _)| known == sql) {
            Some(at) => at,
            None => {
                self.rare.push((sql.to_owned(), self.connection.prepare(sql)?));
                self.rare.len() - 1
            }
        };
        Ok(&mut self.rare[at].1)
    }

    /// The plan of this number.
    pub(crate) fn find_plan(&mut self, id: i64) -> Result<Arc<Plan>, Error> {
        self.catalog.plan(id, &mut self.sql.plan)
    }

    /// Whether a worker is alive, or may be.
    pub(crate) fn is_alive(&self, worker: WorkerId) -> bool {
        self.place.locks.may_be_alive(worker)
    }

    /// The pauses of queues and of the store.
    pub(crate) fn paused(&mut self) -> Result<&Paused, Error> {
        if self.cache.paused.is_none() {
            let mut paused = Paused::default();
            let mut rows = self.sql.open_pauses.query([])?;
            while let Some(row) = rows.next()? {
                match row.get(0)? {
                    QUEUE => drop(paused.queues.insert(row.get(1)?)),
                    _ => paused.store = true,
                }
            }
            self.cache.paused = Some(paused);
        }
        Ok(self.cache.paused.as_ref().expect("it was just looked up"))
    }

    /// The workers that are known.
    pub(crate) fn known_workers(&mut self) -> Result<Arc<HashSet<WorkerId>>, Error> {
        if let Some(known) = &self.cache.known {
            return Ok(known.clone());
        }
        let known = self.sql.workers.query_map([], |row| row.get(0).map(worker_id))?;
        let known = Arc::new(known.collect::<rusqlite::Result<HashSet<_>>>()?);
        self.workers.retain(|worker, _| known.contains(worker));
        Ok(self.cache.known.insert(known).clone())
    }

    /// The workers that are alive, by number.
    pub(crate) fn live_workers(&mut self) -> Result<Vec<LiveWorker>, Error> {
        let known = self.known_workers()?;
        let mut alive = Vec::from_iter(known.iter().copied().filter(|id| self.is_alive(*id)));
        alive.sort_unstable();
        let view = |id| {
            let Served { tasks, slots, .. } = find_worker(&mut self.workers, &mut self.sql, id)?;
            Ok(LiveWorker { id, served: tasks.clone(), slots: *slots })
        };
        alive.into_iter().map(view).collect()
    }

    /// The tasks that a worker serves, with all lanes there are; `None` if there is no such worker.
    pub(crate) fn served(&mut self, worker: WorkerId) -> Result<Option<&Served>, Error> {
        if !self.known_workers()?.contains(&worker) {
            return Ok(None);
        }
        let RowLoader { sql, cache, workers, .. } = self;
        let served = find_worker(workers, sql, worker)?;
        let last = match cache.last_lane {
            Some(last) => last,
            None => *cache.last_lane.insert(sql.last_lane.query_row([], |row| row.get(0))?),
        };
        if served.last < last {
            let mut rows = sql.worker_lanes.query((worker.0 as i64, served.last))?;
            while let Some(row) = rows.next()? {
                let (id, queue, weight) = (row.get(0)?, row.get(1)?, row.get(2)?);
                served.lanes.push(Lane { id, queue, weight });
            }
            served.last = last;
        }
        Ok(Some(served))
    }

    /// The lanes behind these gates in which there may be something for a worker; both the worker and
    /// the pauses were looked up.
    pub(crate) fn lanes(
        &self,
        worker: WorkerId,
        heaviest: u32,
        gates: &[Gate],
        pauses: &[PauseChange],
    ) -> Vec<(Gate, i64)> {
        let Some(served) = self.workers.get(&worker) else { return Vec::new() };
        let may_run = |lane: &&Lane| {
            let paused = self.cache.paused.as_ref();
            let stopped = paused.is_some_and(|paused| paused.stops_after(pauses, &lane.queue));
            lane.weight <= heaviest && !stopped
        };
        let lanes = served.lanes.iter().filter(may_run);
        let lanes = lanes.flat_map(|lane| gates.iter().map(|&gate| (gate, lane.id)));
        lanes.filter(|lane| !self.cache.empty.contains(lane)).collect()
    }
}

/// A worker that is known, from memory or from the database.
fn find_worker<'w>(
    workers: &'w mut HashMap<WorkerId, Served>,
    sql: &mut LoadStatements<'_>,
    worker: WorkerId,
) -> Result<&'w mut Served, Error> {
    match workers.entry(worker) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(vacant) => Ok(vacant.insert(load_worker(sql, worker)?)),
    }
}

fn load_worker(sql: &mut LoadStatements<'_>, worker: WorkerId) -> Result<Served, Error> {
    let id = worker.0 as i64;
    let queues = sql.worker_queues.query_map([id], |row| row.get(0))?;
    let queues = queues.collect::<rusqlite::Result<_>>()?;
    let (knows_all, slots): (bool, _) =
        sql.worker.query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut knows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut rows = sql.worker_knows.query([id])?;
    while let Some(row) = rows.next()? {
        knows.entry(row.get(0)?).or_default().insert(row.get(1)?);
    }
    let tasks = Arc::new(ServedTasks { queues, tasks: (!knows_all).then_some(knows) });
    Ok(Served { tasks, slots, lanes: Vec::new(), last: 0 })
}

/// The scope of a pause, as the number that is stored.
pub(crate) const RUN: i64 = 0;
/// See [`RUN`].
pub(crate) const QUEUE: i64 = 1;
/// See [`RUN`].
pub(crate) const STORE: i64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_answers_are_dropped_when_another_connection_writes() {
        let folder = tempfile::tempdir().unwrap();
        let opened = crate::open::open(&folder.path().join("x.db"), &Default::default()).unwrap();
        let connection = opened.place.open_reader().unwrap();
        let mut loader = RowLoader::new(&connection, &opened.place).unwrap();
        let mut find = || loader.read_snapshot(|loader| loader.find_limit("api")).unwrap();
        assert_eq!(find(), None);
        let limit = "INSERT INTO task_limit (name, at_once) VALUES ('api', 3)";
        opened.connection.execute(limit, []).unwrap();
        assert_eq!(find(), Some(Limit::new("api").at_once(3)));
        assert_eq!(find(), Some(Limit::new("api").at_once(3)));
    }
}
