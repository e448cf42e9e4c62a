//! A connection that loads rows, the writer's or a reader's, with a cache that outlives transactions.
//!
//! The cache is true as long as no other connection writes, which the database tells at the beginning
//! of each transaction; a transaction that is rolled back empties it.

use crate::catalog::{BoundedMap, Catalog, KnownNames};
use crate::error::Error;
use crate::fetch::{Fetch, FromColumns};
use crate::groups::WorkerGroups;
use crate::open::Place;
use crate::sql::LoadStatements;
use rusqlite::{Connection, Params, Statement};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tidegate_core::Timestamp;
use tidegate_core::keys::KeyMap;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::Limit;
use tidegate_core::rows::{Gate, Row};
use tidegate_core::store::{Bytes, TaskKey};

/// A connection that loads rows.
pub(crate) struct RowLoader<'c> {
    pub(crate) connection: &'c Connection,
    /// Where the lock files are that tell which workers are alive.
    pub(crate) place: &'c Place,
    pub(crate) sql: LoadStatements<'c>,
    /// Statements that are seldom needed, with their texts. There are few, and comparing their lengths
    /// usually tells them apart.
    rare: Vec<(String, Statement<'c>)>,
    pub(crate) catalog: Catalog<'c>,
    pub(crate) cache: LoaderCache,
    /// Workers as they have presented themselves, which they do once.
    pub(crate) workers: HashMap<WorkerId, WorkerGroups>,
    /// The number by which the database tells that another connection has written.
    data_version: i64,
}

/// Answers that hold until another connection writes.
#[derive(Default)]
pub(crate) struct LoaderCache {
    /// The last numbers given.
    pub(crate) last_task: Option<i64>,
    pub(crate) last_record: Option<u64>,
    pub(crate) last_signal: Option<i64>,
    pub(crate) last_group: Option<i64>,
    pub(crate) last_run: Option<i64>,
    /// Scopes and names of open pauses, but for those of single runs.
    pub(crate) paused: Option<Vec<(i64, String)>>,
    /// The workers that are known.
    pub(crate) known: Option<Arc<HashSet<WorkerId>>>,
    /// Task groups with nothing behind an open gate.
    pub(crate) empty: HashSet<(Gate, i64)>,
    /// Whether there is something behind the gate of runs that some task waits for.
    pub(crate) awaited: Option<bool>,
    /// Workers that have notifications.
    pub(crate) notified: Option<BTreeSet<WorkerId>>,
    /// Limits by name; `None` is one that was not declared.
    pub(crate) limits: BoundedMap<Arc<str>, Option<Limit>, 1_024>,
    /// The earliest alarm of all limits.
    pub(crate) limit_alarm: Option<Option<Timestamp>>,
    /// Tasks that workers own, as this connection wrote them last: their end is usually the next
    /// change of them.
    pub(crate) owned: KeyMap<TaskKey, Row>,
    /// By queue, how many runs wait at the most.
    pub(crate) waiting: HashMap<Arc<str>, u32>,
    /// The input that was read last. It never changes, and many tasks may be given it.
    pub(crate) input: Option<(TaskKey, Bytes)>,
}

/// Tasks that are remembered. Those of a worker that has more wait long, and are looked up.
const OWNED_MAX: usize = 16_384;

impl LoaderCache {
    /// Remembers a task that was written, if a worker owns it; otherwise forgets it.
    pub(crate) fn remember_task(&mut self, row: Row) {
        if row.life.owner().is_none() {
            self.owned.remove(&row.key);
            return;
        }
        if self.owned.len() >= OWNED_MAX {
            self.owned.clear();
        }
        self.owned.insert(row.key, row);
    }
}

/// The cached value, loaded first if there is none.
pub(crate) fn load_once<T>(
    cached: &mut Option<T>,
    load: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<&mut T> {
    if cached.is_none() {
        *cached = Some(load()?);
    }
    Ok(cached.as_mut().expect("it was just loaded"))
}

impl<'c> RowLoader<'c> {
    pub(crate) fn new(connection: &'c Connection, place: &'c Place) -> rusqlite::Result<Self> {
        Ok(RowLoader {
            connection,
            place,
            sql: LoadStatements::prepare(connection)?,
            rare: Vec::new(),
            catalog: Catalog::new(connection)?,
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
        let data_version = self.sql.data_version.fetch_one([])?;
        if data_version != self.data_version {
            self.data_version = data_version;
            self.cache = LoaderCache::default();
            // Another connection may have removed limit keys.
            self.catalog.known.limit_ids = BoundedMap::default();
        }
        Ok(())
    }

    /// Empties the cache, and forgets all that a transaction may have added which was rolled back.
    pub(crate) fn forget_everything(&mut self) {
        self.cache = LoaderCache::default();
        self.workers.clear();
        self.catalog.known = KnownNames::default();
    }

    /// A statement that is seldom needed, prepared the first time.
    pub(crate) fn prepare_rare(&mut self, sql: &str) -> rusqlite::Result<&mut Statement<'c>> {
        let at = match self.rare.iter().position(|(known, _)| known == sql) {
            Some(at) => at,
            None => {
                self.rare.push((sql.to_owned(), self.connection.prepare(sql)?));
                self.rare.len() - 1
            }
        };
        Ok(&mut self.rare[at].1)
    }

    /// All rows that a statement finds which is seldom needed.
    pub(crate) fn fetch_rare<T: FromColumns>(
        &mut self,
        sql: &str,
        given: impl Params,
    ) -> rusqlite::Result<Vec<T>> {
        self.prepare_rare(sql)?.fetch_all(given)
    }

    /// Executes a statement that is seldom needed.
    pub(crate) fn execute_rare(
        &mut self,
        sql: &str,
        given: impl Params,
    ) -> rusqlite::Result<usize> {
        self.prepare_rare(sql)?.execute(given)
    }

    /// Whether a worker is alive, or may be: its lock cannot be looked at.
    pub(crate) fn is_alive(&self, worker: WorkerId) -> bool {
        self.place.locks.is_alive(worker).unwrap_or(true)
    }
}
