//! Moving the rows of a store of version 1 or 2 into the tables of today.
//!
//! Everything is done in the one transaction of the migration: a process that dies in the middle leaves
//! the store as it was. Rows that cannot be read are kept, in quarantine, so that an audit names them
//! as it did before. Payloads stay where they are.

use super::old_rows::{OLD_RECORDS, OLD_TASKS, WideRecord, WideTask};
use super::{ADD_STORE, INDEXES, OLD_MIGRATIONS, TABLES};
use crate::fetch::Fetch;
use rusqlite::{Connection, Result, Statement, params};
use std::collections::{HashMap, HashSet};
use tidegate_core::plan::Plan;

/// How far moving the rows of an older store has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationProgress {
    /// Tasks that were moved.
    pub done: u64,
    /// All tasks.
    pub total: u64,
}

/// Tasks between two reports of progress.
const STEP: u64 = 10_000;

/// Tables that are made anew. An old one has another name until its rows are moved.
const MOVED: [&str; 18] = [
    "plan",
    "workflow",
    "lane",
    "task",
    "run_key",
    "record",
    "used",
    "doomed",
    "worker",
    "worker_queue",
    "worker_knows",
    "pause",
    "word",
    "wait",
    "signal",
    "task_limit",
    "limit_key",
    "hold",
];

/// The rows of all tables but plans, tasks and records.
const MOVE_ROWS: &str = "
INSERT INTO id_high_water SELECT name, number FROM old_used;
INSERT INTO queue (name) SELECT queue FROM old_workflow GROUP BY queue ORDER BY min(id);
INSERT INTO task_group (number, queue, workflow, task, weight)
    SELECT old_lane.id, queue, name, task, weight FROM old_lane JOIN old_workflow ON old_workflow.id = old_lane.workflow;
INSERT INTO run_key SELECT queue, name, key, run FROM old_run_key
    JOIN old_workflow ON old_workflow.id = old_run_key.workflow;
INSERT INTO pruning SELECT run, next, upto FROM old_doomed;
INSERT INTO worker (number, id, name, started_at, slots, knows_all)
    SELECT id, random() & 9223372036854775807, name, started_at, slots, knows_all FROM old_worker;
INSERT INTO worker_queue SELECT worker, queue FROM old_worker_queue;
INSERT INTO worker_task SELECT worker, workflow, task FROM old_worker_knows;
INSERT INTO pause SELECT scope, name, paused_at, unpaused_at FROM old_pause ORDER BY rowid;
INSERT INTO notification SELECT worker, task FROM old_word;
INSERT INTO wait SELECT task, kind, name, occurrence, label, since, due, run, how, body, signal
    FROM old_wait;
INSERT INTO signal SELECT seq, id, run, name, body, sent_at, taken_by FROM old_signal;
INSERT INTO task_limit (name, at_once, rate, rate_per, most)
    SELECT name, at_once, rate, rate_per, most FROM old_task_limit;
INSERT INTO hold SELECT task, limit_key, units, since FROM old_hold;
INSERT INTO rate_event SELECT limit_key, at, units FROM begun;
INSERT INTO limit_key (number, name, key, in_use, window_sum, alarm) SELECT id, name, key,
    (SELECT ifnull(sum(units), 0) FROM hold WHERE hold.limit_key = id),
    (SELECT ifnull(sum(units), 0) FROM rate_event WHERE rate_event.limit_key = id), alarm
    FROM old_limit_key;
DELETE FROM sqlite_sequence WHERE name IN ('worker', 'signal');
INSERT INTO sqlite_sequence (name, seq) SELECT substr(name, 5), seq FROM sqlite_sequence
    WHERE name IN ('old_worker', 'old_signal');
DROP TABLE begun;
";

const ADD_PLAN: &str = "INSERT INTO plan (number, hash, tasks, body) VALUES (?1, ?2, ?3, ?4)";

const ADD_TASK: &str = "INSERT INTO task (number, request, fence, plan, task_group, queue, weight, idx, \
     state, eligibility, is_plain, worker, claim_order, alarm, blocked_on, quarantine, lifecycle, run_id, \
     run_number, run) VALUES (?1, ?2, ?3, ?4, ?5, \
     (SELECT queue.number FROM task_group JOIN queue ON queue.name = task_group.queue \
     WHERE task_group.number = ?5), (SELECT weight FROM task_group WHERE number = ?5), ?6, ?7, ?8, 0, \
     ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

const ADD_ENDED: &str = "INSERT INTO ended_task (number, request, fence, plan, task_group, idx, state, \
     record, record_kind, ended_at, lifecycle, ending, quarantine, run_id, run_number, run_ended_at, run, \
     is_unrecorded) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

const ADD_RECORD: &str = "INSERT INTO record (number, at, run, idx, kind, reason, attempt, entry, worker, \
     begun_at, active, error) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

/// Runs that have records and no first task.
const HEADLESS_RUNS: &str = "SELECT DISTINCT run FROM old_record \
     WHERE NOT EXISTS (SELECT 1 FROM old_task WHERE key = old_record.run)";

const QUARANTINE: &str = "its columns contradict its state";

/// Brings a store of version 1 or 2 to the tables of today.
pub(super) fn upgrade_store(
    connection: &Connection,
    version: i64,
    progress: &dyn Fn(MigrationProgress),
) -> Result<()> {
    if version == 1 {
        connection.execute_batch(OLD_MIGRATIONS[1])?;
    }
    connection.execute_batch("DROP VIEW run")?;
    for table in MOVED {
        connection.execute_batch(&format!("ALTER TABLE {table} RENAME TO old_{table}"))?;
    }
    connection.execute_batch(TABLES)?;
    connection.execute_batch(MOVE_ROWS)?;
    move_plans(connection)?;
    RowMover::new(connection)?.move_tasks(connection, progress)?;
    for table in MOVED {
        connection.execute_batch(&format!("DROP TABLE old_{table}"))?;
    }
    connection.execute_batch(INDEXES)?;
    connection.execute_batch(ADD_STORE)
}

fn move_plans(connection: &Connection) -> Result<()> {
    let mut plans = connection.prepare("SELECT id, hash, body FROM old_plan")?;
    let mut add = connection.prepare(ADD_PLAN)?;
    let mut rows = plans.query([])?;
    while let Some(row) = rows.next()? {
        let body = row.get_ref(2)?.as_blob()?;
        // Of one that cannot be read nothing goes on.
        let tasks = Plan::decode(body).map_or(1, |plan| plan.task_count() as i64);
        add.execute((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, tasks, body))?;
    }
    Ok(())
}

/// Moves tasks and their records.
struct RowMover<'c> {
    records: Statement<'c>,
    add_task: Statement<'c>,
    add_ended: Statement<'c>,
    add_record: Statement<'c>,
    /// The last number of a run that no task has begun: old runs are numbered by age.
    last_run: i64,
}

impl<'c> RowMover<'c> {
    fn new(connection: &'c Connection) -> Result<Self> {
        Ok(RowMover {
            records: connection.prepare(OLD_RECORDS)?,
            add_task: connection.prepare(ADD_TASK)?,
            add_ended: connection.prepare(ADD_ENDED)?,
            add_record: connection.prepare(ADD_RECORD)?,
            last_run: 0,
        })
    }

    fn move_tasks(
        mut self,
        connection: &Connection,
        progress: &dyn Fn(MigrationProgress),
    ) -> Result<()> {
        let total: u64 = connection.prepare("SELECT count(*) FROM old_task")?.fetch_one([])?;
        let mut tasks = connection.prepare(OLD_TASKS)?;
        let mut rows = tasks.query([])?;
        let mut run = RunRecords::default();
        // Runs whose first tasks are gone, because they are being pruned.
        let mut headless = HashSet::new();
        let mut done = 0;
        progress(MigrationProgress { done, total });
        while let Some(row) = rows.next()? {
            let task = WideTask::read_row(row)?;
            if run.run != Some(task.run_key()) {
                self.write_records(&run)?;
                run = self.read_records(task.run_key())?;
                if task.idx != 0 {
                    headless.insert(task.run_key());
                }
            }
            self.move_task(&task, &mut run)?;
            done += 1;
            if done % STEP == 0 || done == total {
                progress(MigrationProgress { done, total });
            }
        }
        self.write_records(&run)?;
        for run in connection.prepare(HEADLESS_RUNS)?.fetch_all::<i64, Vec<_>>([])? {
            if !headless.contains(&run) {
                let records = self.read_records(run)?;
                self.write_records(&records)?;
            }
        }
        let note = "INSERT INTO id_high_water (name, number) VALUES ('run', ?1)";
        connection.execute(note, [self.last_run])?;
        Ok(())
    }

    fn read_records(&mut self, run: i64) -> Result<RunRecords> {
        let mut of_run = RunRecords { run: Some(run), ..RunRecords::default() };
        let mut rows = self.records.query([run])?;
        while let Some(row) = rows.next()? {
            let record = WideRecord::read_row(row)?;
            if record.is_end() {
                of_run.ends.insert(record.idx, of_run.records.len());
            }
            of_run.records.push(Some(record));
        }
        Ok(of_run)
    }

    /// Writes the records that were not written with their tasks.
    fn write_records(&mut self, of_run: &RunRecords) -> Result<()> {
        for record in of_run.records.iter().flatten() {
            self.add_record.execute(params![
                record.number,
                record.at,
                of_run.run,
                record.idx,
                record.kind,
                record.reason,
                record.attempt,
                record.entry,
                record.worker,
                record.begun_at,
                record.active,
                record.error
            ])?;
        }
        Ok(())
    }

    fn move_task(&mut self, task: &WideTask, of_run: &mut RunRecords) -> Result<()> {
        let lifecycle = task.lifecycle.as_ref().map_or(Vec::new(), |stored| stored.to_bytes());
        let run = task
            .run_id
            .as_ref()
            .map(|_| task.run.as_ref().map_or(Vec::new(), |run| run.to_bytes()));
        let quarantine = (!task.is_sound()).then_some(QUARANTINE);
        let run_number = match &task.run_id {
            Some(_) if !task.has_parent => {
                self.last_run += 1;
                Some(self.last_run)
            }
            _ => None,
        };
        if !task.is_final() {
            self.add_task.execute(params![
                task.key,
                task.request,
                task.fence,
                task.plan,
                task.task_group,
                task.idx,
                task.state,
                task.eligibility,
                task.worker,
                task.claim_order,
                task.alarm,
                task.blocked_on,
                quarantine,
                lifecycle,
                task.run_id,
                run_number,
                run
            ])?;
            return Ok(());
        }
        let end = of_run.take_end(task);
        let (record, ending) = end.unzip();
        self.add_ended.execute(params![
            task.key,
            task.request,
            task.fence,
            task.plan,
            task.task_group,
            task.idx,
            task.state,
            record.as_ref().map(|record| record.number),
            record.as_ref().map(|record| record.kind),
            task.ended_at.unwrap_or(0),
            lifecycle,
            ending.unwrap_or_default(),
            quarantine,
            task.run_id,
            run_number,
            task.run_ended_at,
            run,
            task.is_unrecorded
        ])?;
        Ok(())
    }
}

/// The records of a run that were not written yet.
#[derive(Default)]
struct RunRecords {
    run: Option<i64>,
    records: Vec<Option<WideRecord>>,
    /// By index of a task, the place of the record of its end.
    ends: HashMap<i64, usize>,
}

impl RunRecords {
    /// Takes the record of the end of a task, with the ending as it is packed. One that tells another time
    /// than the task stays a record of its own.
    fn take_end(&mut self, task: &WideTask) -> Option<(WideRecord, Vec<u8>)> {
        let place = *self.ends.get(&task.idx)?;
        let record = self.records[place].as_ref()?;
        if Some(record.at) != task.ended_at {
            return None;
        }
        let ending = record.read_ending()?.to_bytes();
        self.records[place].take().map(|record| (record, ending))
    }
}
