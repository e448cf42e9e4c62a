//! What only the store can tell of waits, signals and words.

use super::{FINDINGS_MAX, Keys, Step, finding};
use crate::error::Error;
use crate::waits;
use rusqlite::{Connection, OptionalExtension};
use std::collections::HashMap;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::Row;
use tidegate_core::store::{Finding, TaskKey};
use tidegate_core::wait::{WaitKind, Waiting};

/// Signals that nobody has taken although somebody waits for them.
const UNDELIVERED: &str = "SELECT seq FROM signal WHERE run >= ?1 AND run < ?2 \
     AND taken_by IS NULL AND EXISTS (SELECT 1 FROM wait WHERE wait.run = signal.run \
     AND wait.kind = ?3 AND wait.name = signal.name AND wait.how IS NULL) LIMIT ?4";

/// Signals that somebody has taken who does not know of it.
const UNHEARD: &str = "SELECT seq FROM signal WHERE run >= ?1 AND run < ?2 \
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
            let select = "SELECT run_ended_at IS NULL, awaited FROM task WHERE key = ?1";
            let found = connection.query_row(select, [run.0], |row| {
                Ok((row.get::<_, bool>(0)?, row.get::<_, Option<i64>>(1)?))
            });
            if found.optional()? != Some((true, Some(1))) {
                let what = format!("task {key} has {id}, and run {} is over, or not marked", run.0);
                self.complain("awaited", what);
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
        for (select, what) in [
            (UNDELIVERED, "lies about while a task waits for it"),
            (UNHEARD, "was taken by a task that has no wait which it ended"),
        ] {
            let mut select = connection.prepare(select)?;
            let signals = (first, end, WaitKind::Signal.code(), FINDINGS_MAX as i64);
            for seq in select.query_map(signals, |row| row.get::<_, i64>(0))? {
                self.complain("signal", format!("signal {} {what}", seq?));
            }
        }
        Ok(())
    }
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
            findings.push(finding("word", what));
        }
        if !row.get::<_, bool>(3)? {
            findings.push(finding("stray", format!("a word of task {task}, which does not exist")));
        }
    }
    Ok(())
}
