//! Every way in which the database contradicts itself.
//!
//! What must hold of a run, of what is kept beside its tasks and of a limit is told by
//! [`tidegate_core::audit`], the same for every store, and all rules are listed there. Here stand the
//! reading of all runs and limits, a few at a time, each in a transaction of its own, and the checks
//! that only this store can make. Others write meanwhile: what is compared is of one instant, and what
//! cannot be is looked at again before it is told.
//!
//! Deliberately absent from the usual look: SQLite's own check of a table, which holds one snapshot
//! for all of it ([`files`]).

mod files;
mod index;
mod keys;
mod limits;
mod waits;
mod workers;

pub(crate) use files::files;

use crate::columns::{self, Stored, worker_id};
use crate::error::Error;
use crate::loader::RowLoader;
use crate::open::Place;
use crate::sql::{RECORDS_OF_RUN, SELECT_TASK_AND_PLACE};
use rusqlite::{OptionalExtension, Statement};
use std::collections::{BTreeMap, HashMap, HashSet};
use tidegate_core::RunId;
use tidegate_core::audit::{self, Repair, Stray, WaitsFor};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::{Corrupt, Place as RowPlace, Row};
use tidegate_core::store::{Finding, RunKey, TaskKey};

/// Tasks that are looked at in one transaction.
const STEP: usize = 1_000;

/// Findings after which it looks no further: so many say that something is thoroughly wrong.
const FINDINGS_MAX: usize = 1_000;

/// Looks at everything.
pub(crate) fn audit(place: &Place) -> Result<Vec<Finding>, Error> {
    place.check()?;
    // Whoever can ask for this is neither stopped nor hangs.
    place.locks.give_sign();
    let connection = place.open_reader()?;
    let mut reading = RowLoader::new(&connection, place)?;
    let silent = workers::silent(reading.connection, place)?;
    let (mut findings, mut waits_for) = (Vec::new(), WaitsFor::new());
    let mut next = Some(i64::MIN);
    while let Some(first) = next
        && findings.len() < FINDINGS_MAX
    {
        next = reading.read_snapshot(|snapshot| {
            Step::new(snapshot, &mut findings, &mut waits_for)?.look(first)
        })?;
    }
    waits::cycles(&mut reading, &waits_for, &mut findings)?;
    limits::all(&mut reading, &mut findings)?;
    keys::all(&mut reading, &mut findings)?;
    waits::words(reading.connection, &mut findings)?;
    workers::strays(reading.connection, &mut findings)?;
    workers::unknown(reading.connection, place, &mut findings)?;
    workers::still_silent(reading.connection, place, silent, &mut findings)?;
    Ok(findings)
}

/// A task as it is stored, its gate and its alarm.
type Found = (Stored, (Option<i64>, Option<i64>));

/// The tasks of a step whose columns make one.
type Rows = BTreeMap<TaskKey, Row>;

/// From which number on, and below which.
type Keys = (i64, i64);

/// Queue, workflow, name and weight of the tasks in a lane.
type Lane = (String, String, String, u32);

/// Some runs, in one transaction.
struct Step<'s, 'r> {
    snapshot: &'s mut RowLoader<'r>,
    /// Those that were looked up.
    lanes: HashMap<i64, Option<Lane>>,
    findings: &'s mut Vec<Finding>,
    /// What was seen of who waits for whom.
    waits_for: &'s mut WaitsFor,
    /// Whether a run has a pause that is not over.
    pause: Statement<'r>,
    /// The name of a workflow.
    workflow: Statement<'r>,
    records: Statement<'r>,
}

impl<'s, 'r> Step<'s, 'r> {
    fn new(
        snapshot: &'s mut RowLoader<'r>,
        findings: &'s mut Vec<Finding>,
        waits_for: &'s mut WaitsFor,
    ) -> Result<Self, Error> {
        let connection = snapshot.connection;
        let pause = "SELECT 1 FROM pause WHERE scope = 0 AND name = ?1 AND unpaused_at IS NULL";
        Ok(Step {
            pause: connection.prepare(pause)?,
            workflow: connection.prepare("SELECT name FROM workflow WHERE id = ?1")?,
            records: connection.prepare(RECORDS_OF_RUN)?,
            lanes: HashMap::new(),
            snapshot,
            findings,
            waits_for,
        })
    }

    /// Looks at the runs from this number on; where the next step begins, if there is one.
    fn look(&mut self, first: i64) -> Result<Option<i64>, Error> {
        let mut found = self.tasks("key >= ?1", first, STEP)?;
        let is_last = found.len() < STEP;
        if !is_last {
            // The last run may go on behind. If it is the only one, it is looked at as a whole.
            let last = found.last().map_or(first, |(stored, _)| run_of(stored).0);
            found.retain(|(stored, _)| run_of(stored).0 != last);
            if found.is_empty() {
                found = self.tasks("key >= ?1 AND key - idx <= ?1", last, usize::MAX)?;
            }
        }
        let next = found.last().map(|(stored, _)| stored.key.saturating_add(1));
        let next = next.filter(|_| !is_last);
        self.strays(first, next.unwrap_or(i64::MAX))?;
        let known = self.workers()?;
        let mut rows = Rows::new();
        let mut found = found.into_iter().peekable();
        while let Some(run) = found.peek().map(|(stored, _)| run_of(stored)) {
            let of_run = std::iter::from_fn(|| found.next_if(|(stored, _)| run_of(stored) == run));
            let of_run = of_run.collect();
            let tasks = self.run(run, of_run, &known)?;
            rows.extend(tasks.into_iter().map(|(row, _)| (row.key, row)));
        }
        let keys = (first, next.unwrap_or(i64::MAX));
        self.beside(keys, &rows)?;
        self.signals(keys)?;
        self.keys(keys)?;
        self.indexes(keys)?;
        Ok(next)
    }

    fn tasks(&self, which: &str, first: i64, max: usize) -> Result<Vec<Found>, Error> {
        // What is left of a run that was pruned is no run.
        let select = format!(
            "{SELECT_TASK_AND_PLACE} WHERE {which} AND NOT EXISTS (SELECT 1 FROM doomed \
             WHERE task.key >= doomed.run AND task.key < doomed.upto) ORDER BY key LIMIT ?2"
        );
        let mut select = self.snapshot.connection.prepare(&select)?;
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let found = select
            .query_map((first, max), |row| Ok((columns::read(row)?, columns::read_place(row)?)))?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    }

    fn workers(&self) -> Result<HashSet<WorkerId>, Error> {
        let mut select = self.snapshot.connection.prepare("SELECT id FROM worker")?;
        let workers = select.query_map([], |row| row.get(0).map(worker_id))?;
        Ok(workers.collect::<rusqlite::Result<_>>()?)
    }

    fn run(
        &mut self,
        run: RunKey,
        found: Vec<Found>,
        known: &HashSet<WorkerId>,
    ) -> Result<Vec<(Row, RowPlace)>, Error> {
        let mut tasks = Vec::with_capacity(found.len());
        let mut lanes = Vec::with_capacity(found.len());
        let workflow = found.first().and_then(|(first, _)| Some(first.head.as_ref()?.workflow));
        for (stored, place) in found {
            let lane = stored.lane;
            match self.task(stored, place) {
                Ok(task) => {
                    tasks.push(task);
                    lanes.push(lane);
                }
                Err(Error::Sqlite(error)) => return Err(error.into()),
                Err(error) => self.complain("columns", error.to_string()),
            }
        }
        let records = (0, i64::MAX, run.0);
        let records = self.records.query_and_then(records, columns::read_record)?;
        let records = records.collect::<Result<Vec<_>, Error>>()?;
        let records = (!self.is_unrecorded(run)?).then_some(&records[..]);
        let is_known = |worker| known.contains(&worker);
        let mut failing = Vec::new();
        for (list, items) in audit::open_lists(&tasks) {
            failing.extend(self.is_failing(items)?.then_some(list));
        }
        self.findings.extend(audit::run(&tasks, &failing, records, is_known, None));
        let queue = tasks.first().and_then(|(first, _)| first.head.as_ref());
        if let Some(queue) = queue.map(|head| head.queue.clone()) {
            for ((row, _), lane) in tasks.iter().zip(lanes) {
                self.lane(row, lane, &queue)?;
            }
        }
        if let Some((first, _)) = tasks.first() {
            self.pause(first)?;
            self.family(first)?;
            self.workflow(first, workflow)?;
        }
        Ok(tasks)
    }

    /// Whether records of a run were pruned.
    fn is_unrecorded(&self, run: RunKey) -> Result<bool, Error> {
        let select = "SELECT unrecorded IS NOT NULL FROM task WHERE key = ?1";
        let found = self.snapshot.connection.query_row(select, [run.0], |row| row.get(0));
        Ok(found.optional()?.unwrap_or(false))
    }

    /// What is kept beside the tasks of these numbers.
    fn beside(&mut self, keys: Keys, rows: &Rows) -> Result<(), Error> {
        let mut waits = self.waits(keys)?;
        let mut holds = self.holds(keys)?;
        for (task, row) in rows {
            let waits = waits.remove(task).unwrap_or_default();
            let holds = holds.remove(task).unwrap_or_default();
            self.findings.extend(audit::waits(row, &waits, &holds));
            for wait in &waits {
                self.wait(row, wait)?;
            }
            self.uses(row, &holds)?;
        }
        // What is left belongs to no task, and is a stray.
        Ok(())
    }

    /// A task and where it is found, if its columns make one.
    fn task(
        &mut self,
        stored: Stored,
        place: (Option<i64>, Option<i64>),
    ) -> Result<(Row, RowPlace), Error> {
        let corrupt = |source| Error::Task { key: stored.key, source };
        let row = self.snapshot.row(stored.clone())?;
        if !stored.is_life(&row.life) {
            return Err(corrupt(Corrupt));
        }
        let limit = row.behind.as_ref().map(|(limit, _)| limit.clone());
        let place = stored.place(place, limit).map_err(corrupt)?;
        Ok((row, place))
    }

    fn lane(&mut self, row: &Row, lane: i64, queue: &str) -> Result<(), Error> {
        let found = match self.lanes.get(&lane) {
            Some(found) => found,
            None => {
                let found = find_lane(self.snapshot, lane)?;
                self.lanes.entry(lane).or_insert(found)
            }
        };
        let (workflow, task) = (row.plan.workflow(), row.plan.known_as(row.index));
        let right = (queue, workflow, task, row.planned().weight);
        let found = found.as_ref().map(|(a, b, c, d)| (a.as_str(), b.as_str(), c.as_str(), *d));
        if found != Some(right) {
            let what = format!("task {} stands in {found:?}, and should in {right:?}", row.key.0);
            self.findings.push(Finding::new("lane", what).repaired_by(Repair::Task(row.key)));
        }
        Ok(())
    }

    /// A run is filed under the workflow of its plan. From what else its queue is known there is no
    /// telling, so that nobody can put this right but a person.
    fn workflow(&mut self, first: &Row, workflow: Option<i64>) -> Result<(), Error> {
        let found = self.workflow.query_row([workflow], |row| row.get(0));
        let (found, right) = (found.optional()?, first.plan.workflow());
        if found.as_ref().is_some_and(|found: &String| found != right) {
            let what =
                format!("run {} is filed under {found:?}, and is a {right:?}", first.run().0);
            self.complain("lane", what);
        }
        Ok(())
    }

    /// A run and the task that has begun it.
    /// Whether there is such a run and it is marked as failing.
    fn is_failing(&self, run: RunId) -> Result<bool, Error> {
        let select = "SELECT failing IS NOT NULL FROM task WHERE run_id = ?1";
        let id = run.as_u128().to_be_bytes();
        let failing = self.snapshot.connection.query_row(select, [id], |row| row.get(0));
        Ok(failing.optional()?.unwrap_or(false))
    }

    fn family(&mut self, first: &Row) -> Result<(), Error> {
        let parent = match first.head.as_ref().and_then(|head| head.parent) {
            Some(parent) => limits::find(self.snapshot, parent.0)?,
            None => None,
        };
        self.findings.extend(audit::family(first, parent.as_ref().map(|parent| &parent.life)));
        Ok(())
    }

    fn pause(&mut self, first: &Row) -> Result<(), Error> {
        let Some(head) = first.head.as_ref().filter(|head| head.ended.is_none()) else {
            return Ok(());
        };
        let paused = self.pause.exists([head.id.to_string()])?;
        if paused != head.paused_at.is_some() {
            let what = if paused { "has a pause and is not paused" } else { "lacks its pause" };
            let finding = Finding::new("pause", format!("run {} {what}", head.id));
            self.findings.push(finding.repaired_by(Repair::Run(first.run())));
        }
        Ok(())
    }

    /// What belongs to tasks of these numbers that do not exist.
    fn strays(&mut self, first: i64, end: i64) -> Result<(), Error> {
        let task: fn(i64) -> Stray = |key| Stray::Task(TaskKey(key));
        let run: fn(i64) -> Stray = |key| Stray::Run(RunKey(key));
        for (table, column, stray) in [
            ("payload", "task", task),
            ("record", "run", run),
            ("wait", "task", task),
            ("signal", "run", run),
            ("hold", "task", task),
        ] {
            let select = format!(
                "SELECT DISTINCT {column} FROM {table} WHERE {column} >= ?1 AND {column} < ?2 \
                 AND NOT EXISTS (SELECT 1 FROM task WHERE key = {table}.{column}) \
                 AND NOT EXISTS (SELECT 1 FROM doomed WHERE {table}.{column} >= doomed.run \
                 AND {table}.{column} < doomed.upto) LIMIT ?3"
            );
            let mut select = self.snapshot.connection.prepare(&select)?;
            let most = FINDINGS_MAX as i64;
            let keys = select.query_map((first, end, most), |row| row.get::<_, i64>(0))?;
            let keys = keys.collect::<rusqlite::Result<Vec<_>>>()?;
            drop(select);
            for key in keys {
                let what = format!("a {table} of task {key}, which does not exist");
                let repair = Repair::Stray(stray(key));
                self.findings.push(Finding::new("stray", what).repaired_by(repair));
            }
        }
        Ok(())
    }

    fn complain(&mut self, rule: &'static str, what: String) {
        self.findings.push(Finding::new(rule, what));
    }
}

fn find_lane(snapshot: &RowLoader<'_>, lane: i64) -> rusqlite::Result<Option<Lane>> {
    let select = "SELECT workflow.queue, workflow.name, lane.task, lane.weight FROM lane \
                  JOIN workflow ON workflow.id = lane.workflow WHERE lane.id = ?1";
    let lane = snapshot
        .connection
        .query_row(select, [lane], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    lane.optional()
}

fn run_of(stored: &Stored) -> RunKey {
    RunKey(stored.key - i64::from(stored.index))
}
