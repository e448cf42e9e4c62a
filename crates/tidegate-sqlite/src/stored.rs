//! Rows as they are stored, in ranges, damaged ones too: audit and repair compare them.

use crate::columns::{self, Stored, timestamp, worker_id};
use crate::error::Error;
use crate::loader::RowLoader;
use crate::sql::{RECORDS_OF_RUNS, STORED_TASKS};
use crate::waits;
use rusqlite::{OptionalExtension, Params, Row as Columned};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::{Hold, LimitKey};
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{Record, RunKey, TaskKey};
use tidegate_core::wait::Waiting;
use tidegate_core::want::{
    AuditWant, FiledKey, FiledTask, Loaded, SideTable, StoredLimit, StoredSignal, StoredTask,
    TaskGroup,
};

const GROUP: &str = "SELECT workflow.queue, workflow.name, lane.task, lane.weight FROM lane \
     JOIN workflow ON workflow.id = lane.workflow WHERE lane.id = ?1";

/// Of values as much as tells whether there is one that makes sense.
const WAITS: &str = "SELECT kind, name, occurrence, label, since, due, run, how, \
     substr(body, 1, 16), signal, task FROM wait WHERE task >= ?1 AND task < ?2 ORDER BY task";

const HOLDS: &str = "SELECT hold.task, hold.units, hold.since, limit_key.name, limit_key.key \
     FROM hold CROSS JOIN limit_key ON limit_key.id = hold.limit_key \
     WHERE hold.task >= ?1 AND hold.task < ?2 ORDER BY hold.task";

const SIGNALS: &str =
    "SELECT seq, run, name, taken_by FROM signal WHERE seq >= ?1 ORDER BY seq LIMIT ?2";

const LIMIT_KEYS: &str = "SELECT id, name, key, alarm, \
     (SELECT ifnull(sum(units), 0) FROM hold WHERE limit_key = limit_key.id), \
     (SELECT count(*) FROM hold WHERE limit_key = limit_key.id), \
     (SELECT most FROM task_limit WHERE task_limit.name = limit_key.name) \
     FROM limit_key WHERE id >= ?1 ORDER BY id LIMIT ?2";

/// Keys from the queue ?1, the workflow ?2 and the key ?3 on, if they are of run ?4 or that is nothing.
const KEYS: &str = "SELECT workflow.queue, workflow.name, run_key.key, run_key.run FROM workflow \
     CROSS JOIN run_key ON run_key.workflow = workflow.id \
     AND run_key.key >= iif((workflow.queue, workflow.name) = (?1, ?2), ?3, '') \
     WHERE (workflow.queue, workflow.name) >= (?1, ?2) AND run_key.run = ifnull(?4, run_key.run) \
     ORDER BY workflow.queue, workflow.name, run_key.key LIMIT ?5";

const PAUSED_RUNS: &str = "SELECT DISTINCT name FROM pause WHERE scope = 0 AND name >= ?1 \
     ORDER BY name LIMIT ?2";

const WORDS: &str = "SELECT worker, task FROM word WHERE (worker, task) >= (?1, ?2) \
     ORDER BY worker, task LIMIT ?3";

const READY_ALIKE: &str = "SELECT key FROM task WHERE gate IN (0, 3) AND behind IS NULL \
     AND lane = (SELECT lane FROM task WHERE key = ?1) AND claim_order IS NOT NULL LIMIT ?2";

const PRUNED: &str = "SELECT run, upto FROM doomed ORDER BY run";

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

/// The columns of a task that are not those of its row.
struct Filing {
    gate_and_alarm: (Option<i64>, Option<i64>),
    is_unrecorded: bool,
    workflow: Option<String>,
}

fn read_filed(row: &Columned<'_>) -> rusqlite::Result<(Stored, Filing)> {
    let filing = Filing {
        gate_and_alarm: columns::read_place(row)?,
        is_unrecorded: row.get::<_, Option<i64>>(41)?.is_some(),
        workflow: row.get(42)?,
    };
    Ok((columns::read(row)?, filing))
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
        Ok(match want {
            AuditWant::Tasks { tasks, max } => Loaded::StoredTasks(self.stored_tasks(tasks, *max)?),
            AuditWant::Waits(tasks) => Loaded::StoredWaits(self.stored_waits(tasks)?),
            AuditWant::Holds(tasks) => Loaded::StoredHolds(self.stored_holds(tasks)?),
            AuditWant::Records(runs) => Loaded::Records(self.stored_records(runs)?),
            AuditWant::Signals { from, max } => {
                Loaded::StoredSignals(self.stored_signals(*from, *max)?)
            }
            AuditWant::Limits { from, max } => {
                Loaded::StoredLimits(self.stored_limits(*from, *max)?)
            }
            AuditWant::Keys { from, run, max } => {
                Loaded::StoredKeys(self.stored_keys(from, *run, *max)?)
            }
            AuditWant::PausedRuns { from, max } => Loaded::Names(self.paused_runs(from, *max)?),
            AuditWant::Notifications { from, max } => {
                Loaded::StoredNotifications(self.stored_words(*from, *max)?)
            }
            AuditWant::KnownWorkers => {
                Loaded::WorkerIds(self.known_workers()?.iter().copied().collect())
            }
            AuditWant::RowOwners { table, owners, max } => {
                Loaded::Numbers(self.row_owners(*table, owners, *max)?)
            }
            AuditWant::ReadyAlike { task, max } => Loaded::TaskKeys(self.ready_alike(*task, *max)?),
            AuditWant::PrunedTasks => Loaded::TaskRanges(self.pruned_tasks()?),
        })
    }

    /// All rows that a statement finds.
    fn query_rows<T>(
        &mut self,
        sql: &str,
        given: impl Params,
        read: impl FnMut(&Columned<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.prepare_rare(sql)?.query_and_then(given, read)?.collect()
    }

    fn stored_tasks(&mut self, tasks: &Range<TaskKey>, max: u32) -> Result<Vec<StoredTask>, Error> {
        let range = (tasks.start.0, tasks.end.0, max);
        let found = self.query_rows(STORED_TASKS, range, |row| {
            let index = TaskIndex::from_u32(row.get(1).unwrap_or_default());
            Ok((TaskKey(row.get(0)?), index, read_filed(row)))
        })?;
        let mut groups = HashMap::new();
        let mut stored = Vec::with_capacity(found.len());
        for (key, index, columns) in found {
            let filed = columns.map_err(Error::from);
            let filed = filed.and_then(|(row, filing)| self.filed_task(row, filing, &mut groups));
            let content = match filed {
                Err(error) if !error.is_damage() => return Err(error),
                filed => filed.map_err(|error| match error {
                    Error::Sqlite(_) => Error::Task { key: key.0, source: Corrupt }.to_string(),
                    error => error.to_string(),
                }),
            };
            stored.push(StoredTask { key, index, content });
        }
        Ok(stored)
    }

    fn filed_task(
        &mut self,
        stored: Stored,
        filing: Filing,
        groups: &mut HashMap<i64, Option<TaskGroup>>,
    ) -> Result<FiledTask, Error> {
        let corrupt = |source| Error::Task { key: stored.key, source };
        let row = self.row(stored.clone())?;
        if !stored.is_life(&row.life) {
            return Err(corrupt(Corrupt));
        }
        let limit = row.behind.as_ref().map(|(limit, _)| limit.clone());
        let place = stored.place(filing.gate_and_alarm, limit).map_err(corrupt)?;
        let group = match groups.get(&stored.lane) {
            Some(group) => group.clone(),
            None => groups.entry(stored.lane).or_insert(self.find_group(stored.lane)?).clone(),
        };
        let Filing { is_unrecorded, workflow, .. } = filing;
        Ok(FiledTask { row, place, group, workflow, is_unrecorded })
    }

    fn find_group(&mut self, lane: i64) -> Result<Option<TaskGroup>, Error> {
        let group = self.prepare_rare(GROUP)?.query_row([lane], |row| {
            let queue = row.get::<_, Arc<str>>(0)?;
            let (workflow, task, weight) = (row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(TaskGroup { queue, workflow, task, weight })
        });
        Ok(group.optional()?)
    }

    fn stored_waits(
        &mut self,
        tasks: &Range<TaskKey>,
    ) -> Result<Vec<(TaskKey, Option<Waiting>)>, Error> {
        self.query_rows(WAITS, (tasks.start.0, tasks.end.0), |row| {
            let wait = unless_damaged(waits::read(row).map_err(Error::from))?;
            Ok((TaskKey(row.get(10)?), wait.and_then(Result::ok)))
        })
    }

    fn stored_holds(&mut self, tasks: &Range<TaskKey>) -> Result<Vec<(TaskKey, Hold)>, Error> {
        self.query_rows(HOLDS, (tasks.start.0, tasks.end.0), |row| {
            let limit = LimitKey::new(row.get::<_, String>(3)?, row.get::<_, String>(4)?);
            let hold = Hold { limit, units: row.get(1)?, since: timestamp(row.get(2)?) };
            Ok((TaskKey(row.get(0)?), hold))
        })
    }

    fn stored_records(&mut self, runs: &Range<RunKey>) -> Result<Vec<Record>, Error> {
        let records = self.query_rows(RECORDS_OF_RUNS, (runs.start.0, runs.end.0), |row| {
            unless_damaged(columns::read_record(row))
        })?;
        Ok(records.into_iter().flatten().collect())
    }

    fn stored_signals(&mut self, from: u64, max: u32) -> Result<Vec<StoredSignal>, Error> {
        self.query_rows(SIGNALS, (from as i64, max), |row| {
            let (number, taken_by) = (row.get::<_, i64>(0)? as u64, row.get::<_, Option<i64>>(3)?);
            let (run, name) = (RunKey(row.get(1)?), row.get(2)?);
            Ok(StoredSignal { number, run, name, taken_by: taken_by.map(TaskKey) })
        })
    }

    fn stored_limits(&mut self, from: i64, max: u32) -> Result<Vec<StoredLimit>, Error> {
        self.query_rows(LIMIT_KEYS, (from, max), |row| {
            Ok(StoredLimit {
                number: row.get(0)?,
                key: LimitKey::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?),
                alarm: row.get::<_, Option<i64>>(3)?.map(timestamp),
                in_use: u32::try_from(row.get::<_, i64>(4)?).unwrap_or(u32::MAX),
                holders: row.get(5)?,
                most: row.get(6)?,
            })
        })
    }

    fn stored_keys(
        &mut self,
        from: &FiledKey,
        run: Option<RunKey>,
        max: u32,
    ) -> Result<Vec<(FiledKey, RunKey)>, Error> {
        let FiledKey { queue, workflow, key } = from;
        self.query_rows(KEYS, (&**queue, workflow, key, run.map(|run| run.0), max), |row| {
            let (queue, workflow, key) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok((FiledKey { queue, workflow, key }, RunKey(row.get(3)?)))
        })
    }

    fn paused_runs(&mut self, from: &str, max: u32) -> Result<Vec<String>, Error> {
        self.query_rows(PAUSED_RUNS, (from, max), |row| Ok(row.get(0)?))
    }

    fn stored_words(
        &mut self,
        (worker, task): (WorkerId, TaskKey),
        max: u32,
    ) -> Result<Vec<(WorkerId, TaskKey)>, Error> {
        self.query_rows(WORDS, (worker.0 as i64, task.0, max), |row| {
            Ok((worker_id(row.get(0)?), TaskKey(row.get(1)?)))
        })
    }

    fn row_owners(
        &mut self,
        table: SideTable,
        owners: &Range<i64>,
        max: u32,
    ) -> Result<Vec<i64>, Error> {
        let (table, owner) = side_table(table);
        let select = format!(
            "SELECT DISTINCT {owner} FROM {table} WHERE {owner} >= ?1 AND {owner} < ?2 \
             ORDER BY {owner} LIMIT ?3"
        );
        self.query_rows(&select, (owners.start, owners.end, max), |row| Ok(row.get(0)?))
    }

    fn ready_alike(&mut self, task: TaskKey, max: u32) -> Result<Vec<TaskKey>, Error> {
        self.query_rows(READY_ALIKE, (task.0, max), |row| Ok(TaskKey(row.get(0)?)))
    }

    fn pruned_tasks(&mut self) -> Result<Vec<Range<TaskKey>>, Error> {
        self.query_rows(PRUNED, [], |row| Ok(TaskKey(row.get(0)?)..TaskKey(row.get(1)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_an_index() {
        crate::sql::tests::are_found_by_an_index(&[
            (STORED_TASKS, "SEARCH task USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
            (WAITS, "SEARCH wait USING PRIMARY KEY (task>? AND task<?)"),
            (HOLDS, "SEARCH hold USING PRIMARY KEY (task>? AND task<?)"),
            (RECORDS_OF_RUNS, "SEARCH record USING INDEX record_run (run>? AND run<?)"),
            (SIGNALS, "SEARCH signal USING INTEGER PRIMARY KEY (rowid>?)"),
            (LIMIT_KEYS, "SEARCH limit_key USING INTEGER PRIMARY KEY (rowid>?)"),
            (KEYS, "SEARCH run_key USING PRIMARY KEY (workflow=? AND key>?)"),
            (PAUSED_RUNS, "USING COVERING INDEX pause_name (scope=? AND name>?)"),
            (WORDS, "SEARCH word USING PRIMARY KEY"),
            (READY_ALIKE, "COVERING INDEX task_ready (gate=? AND behind=? AND lane=?"),
        ]);
    }
}
