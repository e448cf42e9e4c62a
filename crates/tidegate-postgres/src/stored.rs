//! Rows as they are stored, in ranges, damaged ones too: audit and repair compare them.

use crate::columns::{
    TASK_COLUMNS, TaskColumns, ended_columns, live_columns, read_task, worker_id,
};
use crate::error::Error;
use crate::limits::{read_hold, read_limit_key, read_limit_row, read_sum, read_units};
use crate::loader::WantLoader;
use crate::records::{RECORDS_OF_RUNS, read_record};
use crate::rows::open_gates;
use crate::waits::{STORED_WAITS, read_wait};
use std::ops::Range;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::Hold;
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{Record, RunKey, TaskKey};
use tidegate_core::wait::Waiting;
use tidegate_core::want::{
    AuditWant, FiledKey, FiledTask, Loaded, SideTable, StoredLimit, StoredSignal, StoredTask,
};
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::ToSql;

/// The tasks from $1 on and below $2, at most $3, and whether records of their runs were pruned.
const STORED_TASKS: &str = concat!(
    "(SELECT ",
    live_columns!(),
    ", NULL::bool FROM task t WHERE t.number >= $1 AND t.number < $2 ORDER BY t.number LIMIT $3) \
     UNION ALL (SELECT ",
    ended_columns!(),
    ", t.is_unrecorded FROM ended_task t WHERE t.number >= $1 AND t.number < $2 \
     ORDER BY t.number LIMIT $3) ORDER BY 1 LIMIT $3"
);

const HOLDS: &str = "SELECT h.task, l.name, l.key, h.units, h.since FROM hold h \
     JOIN limit_key l ON l.number = h.limit_key WHERE h.task >= $1 AND h.task < $2 ORDER BY h.task";

const SIGNALS: &str =
    "SELECT number, run, name, taken_by FROM signal WHERE number >= $1 ORDER BY number LIMIT $2";

const LIMIT_KEYS: &str = "SELECT l.number, l.name, l.key, \
     l.in_use, l.window_sum, l.overtaken_task, l.overtakes, l.alarm, \
     (SELECT coalesce(sum(units), 0)::int8 FROM hold WHERE limit_key = l.number), \
     (SELECT count(*) FROM hold WHERE limit_key = l.number), \
     (SELECT coalesce(sum(units), 0)::int8 FROM rate_event WHERE limit_key = l.number), \
     (SELECT most FROM task_limit WHERE task_limit.name = l.name) \
     FROM limit_key l WHERE l.number >= $1 ORDER BY l.number LIMIT $2";

/// Keys behind $1, $2 and $3, or from there on if $4 says so, at most $5.
const KEYS: &str = "SELECT queue, workflow, key, run FROM run_key \
     WHERE (queue, workflow, key) >= ($1, $2, $3) \
     AND ($4 OR (queue, workflow, key) > ($1, $2, $3)) ORDER BY queue, workflow, key LIMIT $5";

/// The same of the run $6.
const KEYS_OF_RUN: &str = "SELECT queue, workflow, key, run FROM run_key \
     WHERE run = $6 AND (queue, workflow, key) >= ($1, $2, $3) \
     AND ($4 OR (queue, workflow, key) > ($1, $2, $3)) ORDER BY queue, workflow, key LIMIT $5";

/// Names behind $1, or from there on if $2 says so, at most $3.
const PAUSED_RUNS: &str = "SELECT DISTINCT name FROM pause WHERE scope = 0 AND name >= $1 \
     AND ($2 OR name > $1) ORDER BY name LIMIT $3";

const NOTIFICATIONS: &str = "SELECT worker, task FROM notification WHERE (worker, task) >= ($1, $2) \
     ORDER BY worker, task LIMIT $3";

const WORKERS: &str = "SELECT number FROM worker ORDER BY number";

const READY_ALIKE: &str = "SELECT t.number FROM unnest($3::int2[]) AS e (code) \
     CROSS JOIN LATERAL (SELECT t.number FROM task t WHERE t.task_group = \
     (SELECT l.task_group FROM task l WHERE l.number = $1) AND t.eligibility = e.code \
     AND t.claim_order IS NOT NULL AND t.blocked_on IS NULL LIMIT $2) t LIMIT $2";

const PRUNED: &str = "SELECT run, upto FROM pruning ORDER BY run";

/// A table, and the column that names the owner of its rows. Queues and tasks of workers are columns of
/// the workers.
pub(crate) fn side_table(table: SideTable) -> Option<(&'static str, &'static str)> {
    Some(match table {
        SideTable::Payloads => ("payload", "task"),
        SideTable::Waits => ("wait", "task"),
        SideTable::Holds => ("hold", "task"),
        SideTable::NotifiedTasks => ("notification", "task"),
        SideTable::Records => ("record", "run"),
        SideTable::Signals => ("signal", "run"),
        SideTable::Keys => ("run_key", "run"),
        SideTable::LimitHolds => ("hold", "limit_key"),
        SideTable::RateEvents => ("rate_event", "limit_key"),
        SideTable::NotifiedWorkers => ("notification", "worker"),
        SideTable::WorkerQueues | SideTable::WorkerTasks => return None,
    })
}

/// A row of [`STORED_TASKS`], whose columns may be damaged.
struct AuditedRow {
    key: i64,
    index: i32,
    columns: Result<TaskColumns, Error>,
    is_unrecorded: Option<bool>,
}

impl AuditedRow {
    fn read_row(row: &PgRow) -> Result<Self, Error> {
        Ok(AuditedRow {
            key: row.try_get(0)?,
            index: row.try_get(5)?,
            columns: read_task(row),
            is_unrecorded: row.try_get(TASK_COLUMNS)?,
        })
    }
}

/// A value, or `None` if it is damaged.
fn skip_damaged<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => read.map(Some),
    }
}

/// A text without the NUL at its end, which PostgreSQL cannot store, and whether there was none. A name
/// with a NUL is the one directly behind the name without.
fn split_nul(name: &str) -> (&str, bool) {
    match name.strip_suffix('\0') {
        Some(name) => (name, false),
        None => (name, true),
    }
}

impl WantLoader<'_> {
    pub(crate) async fn load_stored(&self, want: &AuditWant) -> Result<Loaded, Error> {
        Ok(match want {
            AuditWant::Tasks { tasks, max } => {
                Loaded::StoredTasks(self.list_stored_tasks(tasks, *max).await?)
            }
            AuditWant::Waits(tasks) => Loaded::StoredWaits(self.list_stored_waits(tasks).await?),
            AuditWant::Holds(tasks) => Loaded::StoredHolds(self.list_stored_holds(tasks).await?),
            AuditWant::Records(runs) => Loaded::Records(self.list_stored_records(runs).await?),
            AuditWant::Signals { from, max } => {
                Loaded::StoredSignals(self.list_stored_signals(*from, *max).await?)
            }
            AuditWant::Limits { from, max } => {
                Loaded::StoredLimits(self.list_stored_limits(*from, *max).await?)
            }
            AuditWant::Limit(limit) => {
                Loaded::StoredLimits(match self.catalog.find_limit_number(limit).await? {
                    Some(number) => self.list_stored_limits(number, 1).await?,
                    None => Vec::new(),
                })
            }
            AuditWant::Keys { from, run, max } => {
                Loaded::StoredKeys(self.list_stored_keys(from, *run, *max).await?)
            }
            AuditWant::PausedRuns { from, max } => {
                let (from, is_from) = split_nul(from);
                let given: [&(dyn ToSql + Sync); 3] = [&from, &is_from, &i64::from(*max)];
                let read = |row: &PgRow| Ok(row.try_get(0)?);
                Loaded::Names(self.query_rows(PAUSED_RUNS, &given, read).await?)
            }
            AuditWant::Notifications { from: (worker, task), max } => {
                let worker = i64::try_from(worker.0).unwrap_or(i64::MAX);
                let given: [&(dyn ToSql + Sync); 3] = [&worker, &task.0, &i64::from(*max)];
                let read = |row: &PgRow| Ok((worker_id(row.try_get(0)?), TaskKey(row.try_get(1)?)));
                Loaded::StoredNotifications(self.query_rows(NOTIFICATIONS, &given, read).await?)
            }
            AuditWant::KnownWorkers => {
                let read = |row: &PgRow| Ok::<WorkerId, Error>(worker_id(row.try_get(0)?));
                Loaded::WorkerIds(self.query_rows(WORKERS, &[], read).await?)
            }
            AuditWant::RowOwners { table, owners, max } => {
                Loaded::Numbers(self.list_row_owners(*table, owners, *max).await?)
            }
            AuditWant::ReadyAlike { task, max } => {
                let given: [&(dyn ToSql + Sync); 3] =
                    [&task.0, &i64::from(*max), &open_gates(false)];
                let read = |row: &PgRow| Ok(TaskKey(row.try_get(0)?));
                Loaded::TaskKeys(self.query_rows(READY_ALIKE, &given, read).await?)
            }
            AuditWant::PrunedTasks => {
                let read = |row: &PgRow| Ok(TaskKey(row.try_get(0)?)..TaskKey(row.try_get(1)?));
                Loaded::TaskRanges(self.query_rows(PRUNED, &[], read).await?)
            }
        })
    }

    /// All rows that a statement finds.
    async fn query_rows<T>(
        &self,
        sql: &str,
        given: &[&(dyn ToSql + Sync)],
        read: impl FnMut(&PgRow) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let statement = self.client.prepare_cached(sql).await?;
        self.client.query(&statement, given).await?.iter().map(read).collect()
    }

    async fn list_stored_tasks(
        &self,
        tasks: &Range<TaskKey>,
        max: u32,
    ) -> Result<Vec<StoredTask>, Error> {
        let given: [&(dyn ToSql + Sync); 3] = [&tasks.start.0, &tasks.end.0, &i64::from(max)];
        let found = self.query_rows(STORED_TASKS, &given, AuditedRow::read_row).await?;
        let sound: Vec<TaskColumns> =
            found.iter().filter_map(|audited| audited.columns.as_ref().ok().cloned()).collect();
        let numbers = self.catalog.resolve_numbers(&sound).await?;
        let mut stored = Vec::with_capacity(found.len());
        for AuditedRow { key, index, columns, is_unrecorded } in found {
            let filed = columns.and_then(|columns| {
                let limit = numbers.find_limit(columns.blocked_on)?;
                let row = columns.clone().into_row(numbers.name_things(&columns)?)?;
                let damaged = |source| Error::Task { key, source };
                if !columns.is_packed_row(&row) {
                    return Err(damaged(Corrupt));
                }
                let place = columns.read_place(limit).map_err(damaged)?;
                let group =
                    numbers.find_group(columns.task_group).ok().map(|group| (**group).clone());
                let first = group.as_ref().filter(|_| columns.is_first());
                let workflow = first.map(|group| group.workflow.clone());
                let is_unrecorded = is_unrecorded.unwrap_or(false);
                Ok(FiledTask { row, place, group, workflow, is_unrecorded })
            });
            let content = match filed {
                Err(error) if !error.is_damage() => return Err(error),
                Err(Error::Postgres(_)) => Err(Error::Task { key, source: Corrupt }.to_string()),
                filed => filed.map_err(|error| error.to_string()),
            };
            let index = TaskIndex::from_u32(u32::try_from(index).unwrap_or_default());
            stored.push(StoredTask { key: TaskKey(key), index, content });
        }
        Ok(stored)
    }

    async fn list_stored_waits(
        &self,
        tasks: &Range<TaskKey>,
    ) -> Result<Vec<(TaskKey, Option<Waiting>)>, Error> {
        self.query_rows(STORED_WAITS, &[&tasks.start.0, &tasks.end.0], |row| {
            let wait = skip_damaged(read_wait(row))?;
            let wait = wait.and_then(|(_, wait)| wait.ok());
            Ok((TaskKey(row.try_get(0)?), wait))
        })
        .await
    }

    async fn list_stored_holds(
        &self,
        tasks: &Range<TaskKey>,
    ) -> Result<Vec<(TaskKey, Hold)>, Error> {
        let read = |row: &PgRow| Ok((TaskKey(row.try_get(0)?), read_hold(row)?));
        self.query_rows(HOLDS, &[&tasks.start.0, &tasks.end.0], read).await
    }

    async fn list_stored_records(&self, runs: &Range<RunKey>) -> Result<Vec<Record>, Error> {
        let given: [&(dyn ToSql + Sync); 2] = [&runs.start.0, &runs.end.0];
        let read = |row: &PgRow| skip_damaged(read_record(row));
        let records = self.query_rows(RECORDS_OF_RUNS, &given, read).await?;
        Ok(records.into_iter().flatten().flatten().collect())
    }

    async fn list_stored_signals(&self, from: u64, max: u32) -> Result<Vec<StoredSignal>, Error> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        self.query_rows(SIGNALS, &[&from, &i64::from(max)], |row| {
            Ok(StoredSignal {
                number: row.try_get::<_, i64>(0)? as u64,
                run: RunKey(row.try_get(1)?),
                name: row.try_get::<_, &str>(2)?.into(),
                taken_by: row.try_get::<_, Option<i64>>(3)?.map(TaskKey),
            })
        })
        .await
    }

    async fn list_stored_limits(&self, from: i64, max: u32) -> Result<Vec<StoredLimit>, Error> {
        self.query_rows(LIMIT_KEYS, &[&from, &i64::from(max)], |row| {
            let most: Option<i64> = row.try_get(11)?;
            Ok(StoredLimit {
                number: row.try_get(0)?,
                key: read_limit_key(row, 1)?,
                row: read_limit_row(row, 3)?,
                held: read_sum(row, 8)?,
                holders: read_units(row, 9)?,
                begun: read_sum(row, 10)?,
                most: most.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            })
        })
        .await
    }

    async fn list_stored_keys(
        &self,
        from: &FiledKey,
        run: Option<RunKey>,
        max: u32,
    ) -> Result<Vec<(FiledKey, RunKey)>, Error> {
        let (key, is_from) = split_nul(&from.key);
        let (queue, max) = (&*from.queue, i64::from(max));
        let mut given: Vec<&(dyn ToSql + Sync)> =
            vec![&queue, &from.workflow, &key, &is_from, &max];
        let run = run.map(|run| run.0);
        given.extend(run.iter().map(|run| run as &(dyn ToSql + Sync)));
        let sql = if run.is_some() { KEYS_OF_RUN } else { KEYS };
        self.query_rows(sql, &given, |row| {
            let queue = row.try_get::<_, &str>(0)?.into();
            let key = FiledKey { queue, workflow: row.try_get(1)?, key: row.try_get(2)? };
            Ok((key, RunKey(row.try_get(3)?)))
        })
        .await
    }

    async fn list_row_owners(
        &self,
        table: SideTable,
        owners: &Range<i64>,
        max: u32,
    ) -> Result<Vec<i64>, Error> {
        let Some((table, owner)) = side_table(table) else { return Ok(Vec::new()) };
        let select = format!(
            "SELECT DISTINCT {owner} FROM {table} WHERE {owner} >= $1 AND {owner} < $2 \
             ORDER BY {owner} LIMIT $3"
        );
        let given: [&(dyn ToSql + Sync); 3] = [&owners.start, &owners.end, &i64::from(max)];
        self.query_rows(&select, &given, |row| Ok(row.try_get(0)?)).await
    }
}
