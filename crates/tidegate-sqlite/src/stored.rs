//! Rows as they are stored, in ranges, damaged ones too: audit and repair compare them.

use crate::catalog::{BoundedMap, NAMES_MAX};
use crate::columns::{read_life, read_record, read_task};
use crate::error::Error;
use crate::fetch::{Fetch, read_at};
use crate::loader::RowLoader;
use crate::sql::{RECORDS_OF_RUNS, STORED_TASKS, queries};
use crate::waits::read_wait;
use rusqlite::Row as Columned;
use std::ops::Range;
use tidegate_core::graph::TaskIndex;
use tidegate_core::limit::{Hold, LimitKey, LimitRow};
use tidegate_core::rows::{Columns, Corrupt, Gate, Place};
use tidegate_core::store::{RunKey, TaskKey};
use tidegate_core::want::{
    AuditWant, FiledKey, FiledTask, Loaded, SideTable, StoredLimit, StoredTask, TaskGroup,
};

queries! {
    GROUP = "SELECT workflow.queue, workflow.name, lane.task, lane.weight FROM lane \
         JOIN workflow ON workflow.id = lane.workflow WHERE lane.id = ?1";

    /// Of values as much as tells whether there is one that makes sense.
    WAITS = "SELECT kind, name, occurrence, label, since, due, run, how, \
         substr(body, 1, 16), signal, task FROM wait WHERE task >= ?1 AND task < ?2 ORDER BY task";

    HOLDS = "SELECT hold.task, hold.units, hold.since, limit_key.name, limit_key.key \
         FROM hold CROSS JOIN limit_key ON limit_key.id = hold.limit_key \
         WHERE hold.task >= ?1 AND hold.task < ?2 ORDER BY hold.task";

    SIGNALS = "SELECT seq, run, name, taken_by FROM signal WHERE seq >= ?1 ORDER BY seq LIMIT ?2";

    LIMIT_KEYS = "SELECT id, name, key, alarm, \
         (SELECT ifnull(sum(units), 0) FROM hold WHERE limit_key = limit_key.id), \
         (SELECT count(*) FROM hold WHERE limit_key = limit_key.id), \
         (SELECT ifnull(sum(units), 0) FROM begun WHERE limit_key = limit_key.id), \
         (SELECT most FROM task_limit WHERE task_limit.name = limit_key.name) \
         FROM limit_key WHERE id >= ?1 ORDER BY id LIMIT ?2";

    /// Keys from the queue ?1, the workflow ?2 and the key ?3 on, if they are of run ?4 or that is nothing.
    KEYS = "SELECT workflow.queue, workflow.name, run_key.key, run_key.run FROM workflow \
         CROSS JOIN run_key ON run_key.workflow = workflow.id \
         AND run_key.key >= iif((workflow.queue, workflow.name) = (?1, ?2), ?3, '') \
         WHERE (workflow.queue, workflow.name) >= (?1, ?2) AND run_key.run = ifnull(?4, run_key.run) \
         ORDER BY workflow.queue, workflow.name, run_key.key LIMIT ?5";

    PAUSED_RUNS = "SELECT DISTINCT name FROM pause WHERE scope = 0 AND name >= ?1 \
         ORDER BY name LIMIT ?2";

    WORDS = "SELECT worker, task FROM word WHERE (worker, task) >= (?1, ?2) \
         ORDER BY worker, task LIMIT ?3";

    READY_ALIKE = "SELECT key FROM task WHERE gate IN (0, 3) AND behind IS NULL \
         AND lane = (SELECT lane FROM task WHERE key = ?1) AND claim_order IS NOT NULL LIMIT ?2";

    PRUNED = "SELECT run, upto FROM doomed ORDER BY run";
}

/// A table, and the column that names what its rows belong to.
pub(crate) fn side_table(table: SideTable) -> (&'static str, &'static str) {
    match table {
        SideTable::Payloads => ("payload", "task"),
        SideTable::Waits => ("wait", "task"),
        SideTable::Holds => ("hold", "task"),
        SideTable::NotifiedTasks => ("word", "task"),
        SideTable::Records => ("record", "run"),
        SideTable::Signals => ("signal", "run"),
        SideTable::Keys => ("run_key", "run"),
        SideTable::LimitHolds => ("hold", "limit_key"),
        SideTable::RateEvents => ("begun", "limit_key"),
        SideTable::WorkerQueues => ("worker_queue", "worker"),
        SideTable::WorkerTasks => ("worker_knows", "worker"),
        SideTable::NotifiedWorkers => ("word", "worker"),
    }
}

/// What was read, or `None` if that is damaged.
fn unless_damaged<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => read.map(Some),
    }
}

impl RowLoader<'_> {
    pub(crate) fn load_stored(&mut self, want: &AuditWant) -> Result<Loaded, Error> {
        let range = |tasks: &Range<TaskKey>| (tasks.start.0, tasks.end.0);
        Ok(match want {
            AuditWant::Tasks { tasks, max } => Loaded::StoredTasks(self.stored_tasks(tasks, *max)?),
            AuditWant::Waits(tasks) => {
                let waits = self.prepare_rare(WAITS)?.query_and_then(range(tasks), |row| {
                    let wait = unless_damaged(read_wait(row).map_err(Error::from))?;
                    Ok::<_, Error>((read_at(row, 10)?, wait.and_then(Result::ok)))
                })?;
                Loaded::StoredWaits(waits.collect::<Result<_, _>>()?)
            }
            AuditWant::Holds(tasks) => {
                let holds = self.fetch_rare(HOLDS, range(tasks))?;
                let holds = holds.into_iter().map(|(task, units, since, name, key)| {
                    (task, Hold { limit: LimitKey { name, key }, units, since })
                });
                Loaded::StoredHolds(holds.collect())
            }
            AuditWant::Records(runs) => {
                let runs = (runs.start.0, runs.end.0);
                let read = |row: &Columned<'_>| unless_damaged(read_record(row));
                let records = self.prepare_rare(RECORDS_OF_RUNS)?.query_and_then(runs, read)?;
                Loaded::Records(records.filter_map(Result::transpose).collect::<Result<_, _>>()?)
            }
            AuditWant::Signals { from, max } => {
                Loaded::StoredSignals(self.fetch_rare(SIGNALS, (*from as i64, max))?)
            }
            AuditWant::Limits { from, max } => {
                Loaded::StoredLimits(self.stored_limits(*from, *max)?)
            }
            AuditWant::Limit(limit) => {
                Loaded::StoredLimits(match self.catalog.find_limit_id(limit)? {
                    Some(id) => self.stored_limits(id, 1)?,
                    None => Vec::new(),
                })
            }
            AuditWant::Keys { from: FiledKey { queue, workflow, key }, run, max } => {
                let from = (&**queue, workflow, key, run.map(|run| run.0), max);
                let keys = self.fetch_rare(KEYS, from)?.into_iter();
                let keys = keys.map(|(queue, workflow, key, run)| {
                    (FiledKey { queue, workflow, key }, RunKey(run))
                });
                Loaded::StoredKeys(keys.collect())
            }
            AuditWant::PausedRuns { from, max } => {
                Loaded::Names(self.fetch_rare(PAUSED_RUNS, (from, max))?)
            }
            AuditWant::Notifications { from: (worker, task), max } => {
                let from = (worker.0 as i64, task.0, max);
                Loaded::StoredNotifications(self.fetch_rare(WORDS, from)?)
            }
            AuditWant::KnownWorkers => {
                Loaded::WorkerIds(self.known_workers()?.iter().copied().collect())
            }
            AuditWant::RowOwners { table, owners, max } => {
                let (table, owner) = side_table(*table);
                let select = format!(
                    "SELECT DISTINCT {owner} FROM {table} WHERE {owner} >= ?1 AND {owner} < ?2 \
                     ORDER BY {owner} LIMIT ?3"
                );
                Loaded::Numbers(self.fetch_rare(&select, (owners.start, owners.end, max))?)
            }
            AuditWant::ReadyAlike { task, max } => {
                Loaded::TaskKeys(self.fetch_rare(READY_ALIKE, (task.0, max))?)
            }
            AuditWant::PrunedTasks => {
                let pruned = self.fetch_rare(PRUNED, [])?.into_iter();
                Loaded::TaskRanges(pruned.map(|(run, end)| run..end).collect())
            }
        })
    }

    fn stored_limits(&mut self, from: i64, max: u32) -> Result<Vec<StoredLimit>, Error> {
        let limits = self.fetch_rare(LIMIT_KEYS, (from, max))?.into_iter();
        let limits = limits.map(|(number, name, key, alarm, held, holders, begun, most)| {
            let row = LimitRow { in_use: held, window_sum: begun, alarm, ..LimitRow::default() };
            StoredLimit { number, key: LimitKey { name, key }, row, held, holders, begun, most }
        });
        Ok(limits.collect())
    }

    fn stored_tasks(&mut self, tasks: &Range<TaskKey>, max: u32) -> Result<Vec<StoredTask>, Error> {
        let RowLoader { catalog, connection, .. } = self;
        let mut find_group = connection.prepare(GROUP)?;
        let mut groups = BoundedMap::<i64, Option<TaskGroup>, NAMES_MAX>::default();
        let mut read_filed = |row: &Columned<'_>| {
            let stored = read_task(row, catalog)?;
            let corrupt = || Error::Task { key: stored.key.0, source: Corrupt };
            if read_life(row)? != Columns::from(&stored.life) {
                return Err(corrupt());
            }
            let group = groups
                .find_or_load(read_at(row, 3)?, |lane| Ok(find_group.fetch_first([lane])?))?;
            let gate = read_at::<Option<u8>>(row, 39)?;
            let gate = gate.map(|code| Gate::from_code(code).ok_or_else(corrupt)).transpose()?;
            let behind = stored.behind.as_ref().map(|(limit, _)| limit.clone());
            Ok(FiledTask {
                place: Place { gate, order: read_at(row, 23)?, alarm: read_at(row, 40)?, behind },
                row: stored,
                group,
                is_unrecorded: read_at::<Option<i64>>(row, 41)?.is_some(),
                workflow: read_at(row, 42)?,
            })
        };
        let mut select = connection.prepare(STORED_TASKS)?;
        let stored = select.query_and_then((tasks.start.0, tasks.end.0, max), |row| {
            let key: TaskKey = read_at(row, 0)?;
            let index = TaskIndex::from_u32(read_at(row, 1).unwrap_or_default());
            let content = match read_filed(row) {
                Err(error) if !error.is_damage() => return Err(error),
                filed => filed.map_err(|error| match error {
                    Error::Sqlite(_) => Error::Task { key: key.0, source: Corrupt }.to_string(),
                    error => error.to_string(),
                }),
            };
            Ok(StoredTask { key, index, content })
        })?;
        stored.collect()
    }
}
