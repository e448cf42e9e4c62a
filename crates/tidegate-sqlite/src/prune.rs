//! Removing old runs, records and signals, as a request has decided.
//!
//! The first task of a run goes first, and with it the run is gone for every look-up. Rows of it that
//! do not fit into a request are noted in `doomed`, and go with later ones.

use crate::columns::{run_id, timestamp};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::loader::{RUN, RowLoader};
use rusqlite::{Connection, OptionalExtension, Statement};
use std::ops::Range;
use tidegate_core::Timestamp;
use tidegate_core::delta::Delta;
use tidegate_core::retention::{OldRecord, OldRun, OldSignal, ROW_BYTES, RunRemoval, RunRows};
use tidegate_core::store::{RunKey, TaskKey};

/// The next run: number, plan, id, when submitted, when ended, the run of its parent.
const NEXT_RUN: &str = "SELECT key, plan, run_id, submitted_at, run_ended_at, (SELECT first.key \
     FROM task AS above CROSS JOIN task AS first ON first.key = above.key - above.idx \
     WHERE above.key = task.parent_task) FROM task WHERE key >= ?1 ORDER BY key LIMIT 1";

/// The weight of tasks from ?1 on below ?2, and of records and signals of the run ?3, each up to ?4.
const WEIGHT: &str = "SELECT \
     (SELECT ifnull(sum(1 + pages), 0) FROM (SELECT length(body) / ?5 AS pages FROM payload \
     WHERE task >= ?1 AND task < ?2 LIMIT ?4)) \
     + (SELECT count(*) FROM (SELECT 1 FROM wait WHERE task >= ?1 AND task < ?2 LIMIT ?4)) \
     + (SELECT count(*) FROM (SELECT 1 FROM record WHERE run = ?3 LIMIT ?4)) \
     + (SELECT count(*) FROM (SELECT 1 FROM signal WHERE run = ?3 LIMIT ?4))";

const DROP_KEY: &str = "DELETE FROM run_key \
     WHERE workflow = (SELECT workflow FROM task WHERE key = ?1) \
     AND key = (SELECT run_key FROM task WHERE key = ?1)";
const DROP_PAUSES: &str = "DELETE FROM pause WHERE scope = ?1 AND name = ?2";
const DROP_PAYLOADS: &str = "DELETE FROM payload WHERE task >= ?1 AND task < ?2";
const DROP_WAITS: &str = "DELETE FROM wait WHERE task >= ?1 AND task < ?2";
const DROP_TASKS: &str = "DELETE FROM task WHERE key >= ?1 AND key < ?2";
const DROP_RECORDS: &str =
    "DELETE FROM record WHERE seq IN (SELECT seq FROM record WHERE run = ?1 LIMIT ?2)";
const DROP_SIGNALS: &str =
    "DELETE FROM signal WHERE seq IN (SELECT seq FROM signal WHERE run = ?1 LIMIT ?2)";

/// Notifications of tasks that are gone. There are never many.
const DROP_WORDS: &str =
    "DELETE FROM word WHERE NOT EXISTS (SELECT 1 FROM task WHERE key = word.task)";

const DOOMED: &str = "SELECT run, next, upto FROM doomed ORDER BY run LIMIT 1";
const DOOM: &str = "INSERT OR REPLACE INTO doomed (run, next, upto) VALUES (?1, ?2, ?3)";
const UNDOOM: &str = "DELETE FROM doomed WHERE run = ?1";

/// Records from ?1 on: number, time, run, when that ended.
const RECORDS: &str = "SELECT seq, at, run, (SELECT run_ended_at FROM task WHERE key = record.run) \
     FROM record WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
const DROP_RECORD: &str = "DELETE FROM record WHERE seq = ?1";
const UNRECORD: &str = "UPDATE task SET unrecorded = 1 WHERE key = ?1 AND unrecorded IS NULL";

/// Signals from ?1 on: number, time, whether the run has ended, whether the receiver is open.
const SIGNALS: &str = "SELECT seq, sent_at, \
     EXISTS (SELECT 1 FROM task WHERE key = signal.run AND run_ended_at IS NOT NULL), \
     iif(taken_by IS NULL, NULL, \
     EXISTS (SELECT 1 FROM task WHERE key = signal.taken_by AND ended_at IS NULL)) \
     FROM signal WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
const DROP_SIGNAL: &str = "DELETE FROM signal WHERE seq = ?1";

const NOTE_USED: &str = "INSERT INTO used (name, number) VALUES (?1, ?2) \
     ON CONFLICT (name) DO UPDATE SET number = max(number, ?2)";

impl RowLoader<'_> {
    pub(crate) fn pruning_run(&mut self, max: u32) -> Result<Option<RunRows>, Error> {
        let connection = self.connection;
        let doomed = connection.query_row(DOOMED, [], |row| {
            Ok((RunKey(row.get(0)?), TaskKey(row.get(1)?)..TaskKey(row.get(2)?)))
        });
        let Some((run, tasks)) = doomed.optional()? else { return Ok(None) };
        let mut weight = connection.prepare(WEIGHT)?;
        Ok(Some(weigh_rows(&mut weight, run, tasks, max)?))
    }

    pub(crate) fn old_runs(
        &mut self,
        mut from: i64,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<OldRun>, Error> {
        let connection = self.connection;
        let mut next_run = connection.prepare(NEXT_RUN)?;
        let mut weight = connection.prepare(WEIGHT)?;
        let mut old = Vec::new();
        while old.len() < max as usize {
            let found = next_run.query_row([from], |row| {
                let times = (timestamp(row.get(3)?), row.get::<_, Option<i64>>(4)?.map(timestamp));
                let parent = row.get::<_, Option<i64>>(5)?.map(RunKey);
                Ok((row.get(0)?, row.get(1)?, run_id(row.get(2)?), times, parent))
            });
            let Some((key, plan, id, (submitted_at, ended_at), parent)) = found.optional()? else {
                break;
            };
            if submitted_at >= before {
                break;
            }
            let tasks = self.catalog.plan(plan, &mut self.sql.plan)?.task_count();
            let (run, end) = (RunKey(key), key.saturating_add_unsigned(tasks as u64));
            let tasks = TaskKey(key)..TaskKey(end);
            let rows = match ended_at.is_some_and(|ended_at| ended_at < before) {
                true => weigh_rows(&mut weight, run, tasks, max)?,
                false => RunRows { run, next: tasks.start, end: tasks.end, weight: 0 },
            };
            old.push(OldRun { id, ended_at, parent, rows });
            from = end;
        }
        Ok(old)
    }

    pub(crate) fn old_records(&mut self, from: u64, max: u32) -> Result<Vec<OldRecord>, Error> {
        let mut select = self.connection.prepare(RECORDS)?;
        let old = select.query_map((from as i64, max), |row| {
            Ok(OldRecord {
                seq: row.get::<_, i64>(0)? as u64,
                at: timestamp(row.get(1)?),
                run: RunKey(row.get(2)?),
                run_ended_at: row.get::<_, Option<i64>>(3)?.map(timestamp),
            })
        })?;
        Ok(old.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn old_signals(&mut self, from: u64, max: u32) -> Result<Vec<OldSignal>, Error> {
        let mut select = self.connection.prepare(SIGNALS)?;
        let old = select.query_map((from as i64, max), |row| {
            Ok(OldSignal {
                number: row.get::<_, i64>(0)? as u64,
                sent_at: timestamp(row.get(1)?),
                is_run_ended: row.get(2)?,
                is_receiver_open: row.get(3)?,
            })
        })?;
        Ok(old.collect::<rusqlite::Result<_>>()?)
    }
}

impl Ledger<'_> {
    pub(crate) fn remove_pruned(&mut self, delta: &Delta) -> Result<(), Error> {
        let Delta { pruned_runs, pruned_records, pruned_signals, .. } = delta;
        if pruned_runs.is_empty() && pruned_records.is_empty() && pruned_signals.is_empty() {
            return Ok(());
        }
        let (last_task, last_record) = (self.loader.last_task()?, self.loader.last_record()?);
        let connection = &self.opened.connection;
        remove_runs(connection, pruned_runs)?;
        let mut drop_record = connection.prepare(DROP_RECORD)?;
        let mut mark_run = connection.prepare(UNRECORD)?;
        let mut marked = None;
        for (seq, run) in pruned_records {
            drop_record.execute([*seq as i64])?;
            if marked.replace(run) != Some(run) {
                mark_run.execute([run.0])?;
            }
        }
        let mut drop_signal = connection.prepare(DROP_SIGNAL)?;
        for number in pruned_signals {
            drop_signal.execute([*number as i64])?;
        }
        connection.execute(DROP_WORDS, [])?;
        connection.execute(NOTE_USED, ("task", last_task))?;
        connection.execute(NOTE_USED, ("record", last_record))?;
        Ok(())
    }
}

fn weigh_rows(
    weight: &mut Statement<'_>,
    run: RunKey,
    tasks: Range<TaskKey>,
    max: u32,
) -> rusqlite::Result<RunRows> {
    let (next, end) = (tasks.start, tasks.end);
    let last = end.0.min(next.0.saturating_add(max.into()));
    let given = (next.0, last, run.0, max, ROW_BYTES as i64);
    let weight: i64 = weight.query_row(given, |row| row.get(0))?;
    // Tasks that were not looked at are there all the same.
    let weight = u32::try_from(weight.saturating_add(end.0 - next.0)).unwrap_or(u32::MAX);
    Ok(RunRows { run, next, end, weight })
}

fn remove_runs(connection: &Connection, removals: &[RunRemoval]) -> rusqlite::Result<()> {
    let prepare = |sql: &[&str]| -> rusqlite::Result<Vec<_>> {
        sql.iter().map(|sql| connection.prepare(sql)).collect()
    };
    let mut drop_key = connection.prepare(DROP_KEY)?;
    let mut drop_pauses = connection.prepare(DROP_PAUSES)?;
    let mut drops_of_tasks = prepare(&[DROP_PAYLOADS, DROP_WAITS, DROP_TASKS])?;
    let mut drops_of_run = prepare(&[DROP_RECORDS, DROP_SIGNALS])?;
    for RunRemoval { run, hides, tasks, others, left } in removals {
        if let Some(id) = hides {
            drop_key.execute([run.0])?;
            drop_pauses.execute((RUN, id.to_string()))?;
        }
        for statement in &mut drops_of_tasks {
            statement.execute((tasks.start.0, tasks.end.0))?;
        }
        for statement in drops_of_run.iter_mut().filter(|_| *others > 0) {
            statement.execute((run.0, others))?;
        }
        match left {
            Some(left) => connection.execute(DOOM, (run.0, left.start.0, left.end.0))?,
            None if hides.is_none() => connection.execute(UNDOOM, [run.0])?,
            None => 0,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_by_an_index() {
        crate::sql::tests::are_found_by_an_index(&[
            (NEXT_RUN, "SEARCH task USING INTEGER PRIMARY KEY (rowid>?)"),
            (WEIGHT, "USING COVERING INDEX record_run (run=?)"),
            (DROP_KEY, "USING PRIMARY KEY (workflow=? AND key=?)"),
            (DROP_PAUSES, "USING INDEX pause_name (scope=? AND name=?)"),
            (DROP_PAYLOADS, "USING PRIMARY KEY (task>? AND task<?)"),
            (DROP_WAITS, "USING PRIMARY KEY (task>? AND task<?)"),
            (DROP_TASKS, "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
            (DROP_RECORDS, "USING COVERING INDEX record_run (run=?)"),
            (DROP_SIGNALS, "USING COVERING INDEX signal_sent (run=?)"),
            (RECORDS, "USING INTEGER PRIMARY KEY (rowid>?)"),
            (DROP_RECORD, "USING INTEGER PRIMARY KEY (rowid=?)"),
            (UNRECORD, "USING INTEGER PRIMARY KEY (rowid=?)"),
            (SIGNALS, "USING INTEGER PRIMARY KEY (rowid>?)"),
            (DROP_SIGNAL, "USING INTEGER PRIMARY KEY (rowid=?)"),
        ]);
    }
}
