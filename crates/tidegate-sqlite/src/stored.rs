//! Rows as they are stored, in ranges, damaged ones too: audit and repair compare them.

use crate::columns::{
    TASK_COLUMNS, ended_columns, is_packed_row, live_columns, read_place, read_task,
};
use crate::error::Error;
use crate::fetch::{FromColumns, read_at};
use crate::loader::RowLoader;
use crate::records::{RECORDS_OF_RUNS, read_record};
use crate::sql::queries;
use crate::waits::read_wait;
use rusqlite::Row as Columned;
use std::ops::Range;
use tidegate_core::graph::TaskIndex;
use tidegate_core::limit::{Hold, LimitKey, LimitRow};
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{RunKey, TaskKey};
use tidegate_core::want::{
    AuditWant, FiledKey, FiledTask, Loaded, SideTable, StoredLimit, StoredTask,
};

queries! {
    /// The tasks from ?1 on and below ?2, at most ?3, and whether records of their runs were pruned.
    STORED_TASKS = concat!(
        "SELECT ", live_columns!(), ", NULL FROM task AS t WHERE t.number >= ?1 AND t.number < ?2 \
         UNION ALL SELECT ", ended_columns!(), ", t.is_unrecorded FROM ended_task AS t \
         WHERE t.number >= ?1 AND t.number < ?2 ORDER BY 1 LIMIT ?3"
    );

    /// Of values as much as tells whether there is one that makes sense.
    WAITS = "SELECT kind, name, occurrence, label, since, due, run, outcome, \
         substr(body, 1, 16), signal, task FROM wait WHERE task >= ?1 AND task < ?2 ORDER BY task";

    HOLDS = "SELECT hold.task, hold.units, hold.since, limit_key.name, limit_key.key \
         FROM hold CROSS JOIN limit_key ON limit_key.number = hold.limit_key \
         WHERE hold.task >= ?1 AND hold.task < ?2 ORDER BY hold.task";

    SIGNALS = "SELECT number, run, name, taken_by FROM signal WHERE number >= ?1 \
         ORDER BY number LIMIT ?2";

    LIMIT_KEYS = "SELECT in_use, window_sum, overtaken_task, overtakes, alarm, number, name, key, \
         (SELECT ifnull(sum(units), 0) FROM hold WHERE limit_key = limit_key.number), \
         (SELECT count(*) FROM hold WHERE limit_key = limit_key.number), \
         (SELECT ifnull(sum(units), 0) FROM rate_event WHERE limit_key = limit_key.number), \
         (SELECT most FROM task_limit WHERE task_limit.name = limit_key.name) \
         FROM limit_key WHERE number >= ?1 ORDER BY number LIMIT ?2";

    /// Keys from the queue ?1, the workflow ?2 and the key ?3 on, if they are of run ?4 or that is nothing.
    KEYS = "SELECT queue, workflow, key, run FROM run_key \
         WHERE (queue, workflow, key) >= (?1, ?2, ?3) AND run = ifnull(?4, run) \
         ORDER BY queue, workflow, key LIMIT ?5";

    PAUSED_RUNS = "SELECT DISTINCT name FROM pause WHERE scope = 0 AND name >= ?1 \
         ORDER BY name LIMIT ?2";

    NOTIFICATIONS = "SELECT worker, task FROM notification WHERE (worker, task) >= (?1, ?2) \
         ORDER BY worker, task LIMIT ?3";

    READY_ALIKE = "SELECT number FROM task WHERE eligibility IN (0, 3) AND blocked_on IS NULL \
         AND task_group = (SELECT task_group FROM task WHERE number = ?1) \
         AND claim_order IS NOT NULL LIMIT ?2";

    PRUNED = "SELECT run, upto FROM pruning ORDER BY run";
}

/// A table, and the column that names what its rows belong to.
pub(crate) fn side_table(table: SideTable) -> (&'static str, &'static str) {
    match table {
        SideTable::Payloads => ("payload", "task"),
        SideTable::Waits => ("wait", "task"),
        SideTable::Holds => ("hold", "task"),
        SideTable::NotifiedTasks => ("notification", "task"),
        SideTable::Records => ("record", "run"),
        SideTable::Signals => ("signal", "run"),
        SideTable::Keys => ("run_key", "run"),
        SideTable::LimitHolds => ("hold", "limit_key"),
        SideTable::RateEvents => ("rate_event", "limit_key"),
        SideTable::WorkerQueues => ("worker_queue", "worker"),
        SideTable::WorkerTasks => ("worker_task", "worker"),
        SideTable::NotifiedWorkers => ("notification", "worker"),
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
                let read =
                    |row: &Columned<'_>| unless_damaged(read_record(row)).map(Option::flatten);
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
                let id = self.catalog.find_limit_id(limit)?;
                Loaded::StoredLimits(id.map_or(Ok(Vec::new()), |id| self.stored_limits(id, 1))?)
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
                Loaded::StoredNotifications(self.fetch_rare(NOTIFICATIONS, from)?)
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
        let limits = self.prepare_rare(LIMIT_KEYS)?.query_map((from, max), |row| {
            let (name, key) = (read_at(row, 6)?, read_at(row, 7)?);
            Ok(StoredLimit {
                number: read_at(row, 5)?,
                key: LimitKey { name, key },
                row: LimitRow::from_columns(row)?,
                held: read_at(row, 8)?,
                holders: read_at(row, 9)?,
                begun: read_at(row, 10)?,
                most: read_at(row, 11)?,
            })
        })?;
        Ok(limits.collect::<Result<_, _>>()?)
    }

    fn stored_tasks(&mut self, tasks: &Range<TaskKey>, max: u32) -> Result<Vec<StoredTask>, Error> {
        let RowLoader { catalog, connection, .. } = self;
        let mut read_filed = |row: &Columned<'_>| {
            let stored = read_task(row, catalog)?;
            if !is_packed_row(row, &stored)? {
                return Err(Error::Task { key: stored.key.0, source: Corrupt });
            }
            let group = match catalog.find_group(read_at(row, 4)?) {
                Err(error) if !error.is_damage() => return Err(error),
                group => group.ok().map(|group| (*group).clone()),
            };
            let workflow = group.as_ref().filter(|_| stored.head.is_some());
            Ok(FiledTask {
                place: read_place(row, &stored)?,
                workflow: workflow.map(|group| group.workflow.clone()),
                row: stored,
                group,
                is_unrecorded: read_at::<Option<i64>>(row, TASK_COLUMNS)?.is_some(),
            })
        };
        let mut select = connection.prepare(STORED_TASKS)?;
        let stored = select.query_and_then((tasks.start.0, tasks.end.0, max), |row| {
            let key: TaskKey = read_at(row, 0)?;
            let index = TaskIndex::from_u32(read_at(row, 5).unwrap_or_default());
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
