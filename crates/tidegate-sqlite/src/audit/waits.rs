//! What only the store can tell of waits, signals and words.

use super::{FINDINGS_MAX, Keys, Step};
use crate::error::Error;
use crate::loader::RowLoader;
use crate::waits;
use rusqlite::{Connection, OptionalExtension};
use std::collections::HashMap;
use tidegate_core::audit::{self, Repair, Stray, WaitsFor};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::Row;
use tidegate_core::store::{Finding, RunKey, TaskKey};
use tidegate_core::wait::{WaitKind, Waiting};

/// Signals that nobody has taken although somebody waits for them.
const UNDELIVERED: &str = "SELECT seq, run, name FROM signal WHERE run >= ?1 AND run < ?2 \
     AND taken_by IS NULL AND EXISTS (SELECT 1 FROM wait WHERE wait.run = signal.run \
     AND wait.kind = ?3 AND wait.name = signal.name AND wait.how IS NULL) LIMIT ?4";

/// Signals that somebody has taken who does not know of it.
const UNHEARD: &str = "SELECT seq, run, name FROM signal WHERE run >= ?1 AND run < ?2 \
     AND EXISTS (SELECT 1 FROM task WHERE key = signal.taken_by AND ended_at IS NULL) \
     AND NOT EXISTS (SELECT 1 FROM wait WHERE wait.task = signal.taken_by \
     AND wait.kind = ?3 AND wait.name = signal.name AND wait.signal = signal.seq) LIMIT ?4";

/// Words for workers that are not known, and whether they own something or the task is missing.
const WORDS: &str = "SELECT word.worker, word.task, \
     EXISTS (SELECT 1 FROM worker WHERE id = word.worker) \
     OR EXISTS (SELECT 1 FROM task WHERE worker = word.worker), \
     EXISTS (SELECT 1 FROM task WHERE key = word.task) FROM word";

/// Waits, of the bodies only as much as tells whether there is one that makes sense.
const WAITS: &str = "SELECT kind, name, occurrence, label, since, due, run, how, \
     substr(body, 1, 16), signal, task FROM wait WHERE task >= ?1 AND task < ?2 ORDER BY task";

impl Step<'_, '_> {
    /// The waits of these tasks, as far as their columns make one.
    pub(super) fn waits(&mut self, keys: Keys) -> Result<HashMap<TaskKey, Vec<Waiting>>, Error> {
        let mut select = self.snapshot.connection.prepare(WAITS)?;
        let mut found = select.query(keys)?;
        let mut waits: HashMap<TaskKey, Vec<Waiting>> = HashMap::new();
        let mut senseless = Vec::new();
        while let Some(row) = found.next()? {
            let task = TaskKey(row.get(10)?);
            match waits::read(row)? {
                Ok(wait) => waits.entry(task).or_default().push(wait),
                Err(_) => senseless.push(task),
            }
        }
        drop(found);
        drop(select);
        for task in senseless {
            self.complain("columns", format!("task {} has a wait that makes no sense", task.0));
        }
        Ok(waits)
    }

    /// What others know of a wait.
    pub(super) fn wait(&mut self, task: &Row, wait: &Waiting) -> Result<(), Error> {
        let (connection, id, key) = (self.snapshot.connection, &wait.id, task.key.0);
        let for_run = id.kind.is_for_run();
        if let (Some(run), true, true) = (wait.run, for_run, wait.is_open()) {
            self.waits_for.entry(task.run()).or_default().insert(run);
            let select = "SELECT run_ended_at IS NULL, awaited FROM task WHERE key = ?1";
            let found = connection.query_row(select, [run.0], |row| {
                Ok((row.get::<_, bool>(0)?, row.get::<_, Option<i64>>(1)?))
            });
            let found = found.optional()?;
            if found != Some((true, Some(1))) {
                let what = format!("task {key} has {id}, and run {} is over, or not marked", run.0);
                let finding = Finding::new("awaited", what);
                self.findings.push(match found {
                    Some(_) => finding.repaired_by(Repair::Run(run)),
                    None => finding,
                });
            }
        }
        if let Some(signal) = wait.signal {
            let select = "SELECT taken_by FROM signal WHERE seq = ?1";
            let taken =
                connection.query_row(select, [signal as i64], |row| row.get(0)).optional()?;
            if taken.is_some_and(|by: Option<i64>| by != Some(key)) {
                let what =
                    format!("task {key} has {id}, ended by signal {signal}, not taken by it");
                self.complain("signal", what);
            }
        }
        Ok(())
    }

    pub(super) fn signals(&mut self, (first, end): Keys) -> Result<(), Error> {
        let connection = self.snapshot.connection;
        for (select, what, can_be_repaired) in [
            (UNDELIVERED, "lies about while a task waits for it", true),
            (UNHEARD, "was taken by a task that has no wait which it ended", false),
        ] {
            let mut select = connection.prepare(select)?;
            let mut found =
                select.query((first, end, WaitKind::Signal.code(), FINDINGS_MAX as i64))?;
            while let Some(row) = found.next()? {
                let (seq, run) = (row.get::<_, i64>(0)?, RunKey(row.get(1)?));
                let finding = Finding::new("signal", format!("signal {seq} {what}"));
                self.findings.push(match can_be_repaired {
                    true => {
                        let name = row.get::<_, String>(2)?;
                        finding.repaired_by(Repair::Signal(run, name.into()))
                    }
                    false => finding,
                });
            }
        }
        Ok(())
    }
}

/// Whether what looked like a circle of waits, seen in several steps, is one at one instant.
const WAITS_FOR_RUN: &str = "SELECT 1 FROM wait JOIN task ON task.key = wait.task WHERE wait.run = ?2 \
     AND wait.kind IN (?3, ?4) AND wait.how IS NULL AND task.key - task.idx = ?1";

/// Runs that wait for each other in a circle.
pub(super) fn cycles(
    reading: &mut RowLoader<'_>,
    waits_for: &WaitsFor,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    let kinds = (WaitKind::Child.code(), WaitKind::Run.code());
    for cycle in audit::cycles(waits_for) {
        let is_one = reading.read_snapshot(|snapshot| {
            let mut waits = snapshot.connection.prepare(WAITS_FOR_RUN)?;
            for (at, run) in cycle.iter().enumerate() {
                let next = cycle[(at + 1) % cycle.len()];
                if !waits.exists((run.0, next.0, kinds.0, kinds.1))? {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        findings.extend(is_one.then(|| audit::cycle(&cycle)));
    }
    Ok(())
}

/// Words that nobody will ever hear.
pub(super) fn words(connection: &Connection, findings: &mut Vec<Finding>) -> Result<(), Error> {
    let mut select = connection.prepare(WORDS)?;
    let mut words = select.query([])?;
    while let Some(row) = words.next()?
        && findings.len() < FINDINGS_MAX
    {
        let (worker, task) = (WorkerId(row.get::<_, i64>(0)? as u64), row.get::<_, i64>(1)?);
        if !row.get::<_, bool>(2)? {
            let what = format!("a word about task {task} for worker {}, unknown", worker.0);
            let repair = Repair::Stray(Stray::Worker(worker));
            findings.push(Finding::new("word", what).repaired_by(repair));
        }
        if !row.get::<_, bool>(3)? {
            let what = format!("a word of task {task}, which does not exist");
            let repair = Repair::Stray(Stray::Task(TaskKey(task)));
            findings.push(Finding::new("stray", what).repaired_by(repair));
        }
    }
    Ok(())
}
