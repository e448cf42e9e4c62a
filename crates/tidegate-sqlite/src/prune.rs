//! What is no longer kept, taken away in one short transaction of the writer.
//!
//! The first task of a run goes first, and with it the run is gone for everybody. What of it does not
//! fit into the step is noted as doomed, and goes in the next one, whoever takes that.
//!
//! A run that is due is found by its number, from the oldest on; that needs no index. The walk is over
//! where a run was submitted too late to have ended in time.

use crate::columns::run_id;
use crate::error::Error;
use crate::ledger::{Ledger, RUN};
use rusqlite::{Connection, OptionalExtension, Params, Statement};
use std::time::{Duration, Instant};
use tidegate_core::retention::{Aged, Prune, Pruned};

/// Work in one step, however many rows that are: what is kept beside a task may be large.
const STEP_MAX: Duration = Duration::from_millis(4);

/// Tasks that are taken away at once.
const TASKS: i64 = 64;

/// Records or signals of a run that are taken away at once.
const ROWS: i64 = 256;

/// The next run: number, plan, id, workflow, key, when submitted, when ended, by which task begun.
const NEXT_RUN: &str = "SELECT key, plan, run_id, workflow, run_key, submitted_at, run_ended_at, \
     parent_task FROM task WHERE key >= ?1 ORDER BY key LIMIT 1";

/// Whether the run of the task ?1 is there.
const IS_THERE: &str = "SELECT EXISTS (SELECT 1 FROM task WHERE key = \
     (SELECT key - idx FROM task WHERE key = ?1))";

const DROP_KEY: &str = "DELETE FROM run_key WHERE workflow = ?1 AND key = ?2";
const DROP_PAUSES: &str = "DELETE FROM pause WHERE scope = ?1 AND name = ?2";
const DROP_PAYLOADS: &str = "DELETE FROM payload WHERE task >= ?1 AND task < ?2";
const DROP_WAITS: &str = "DELETE FROM wait WHERE task >= ?1 AND task < ?2";
const DROP_TASKS: &str = "DELETE FROM task WHERE key >= ?1 AND key < ?2";
const DROP_RECORDS: &str =
    "DELETE FROM record WHERE seq IN (SELECT seq FROM record WHERE run = ?1 LIMIT ?2)";
const DROP_SIGNALS: &str =
    "DELETE FROM signal WHERE seq IN (SELECT seq FROM signal WHERE run = ?1 LIMIT ?2)";

/// Words that nobody needs to hear. There are never many.
const DROP_WORDS: &str =
    "DELETE FROM word WHERE NOT EXISTS (SELECT 1 FROM task WHERE key = word.task)";

const DOOMED: &str = "SELECT run, next, upto FROM doomed ORDER BY run LIMIT 1";
const DOOM: &str = "INSERT OR REPLACE INTO doomed (run, next, upto) VALUES (?1, ?2, ?3)";
const UNDOOM: &str = "DELETE FROM doomed WHERE run = ?1";

/// Records from ?1 on: number, time, run.
const RECORDS: &str = "SELECT seq, at, run FROM record WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
const ENDED_BEFORE: &str = "SELECT 1 FROM task WHERE key = ?1 AND run_ended_at < ?2";
const DROP_RECORD: &str = "DELETE FROM record WHERE seq = ?1";
const UNRECORD: &str = "UPDATE task SET unrecorded = 1 WHERE key = ?1 AND unrecorded IS NULL";

/// Signals from ?1 on: number, time, and whether nobody will receive it any more: whoever has taken it
/// has ended, or the run has and nobody did.
const SIGNALS: &str = "SELECT seq, sent_at, CASE WHEN taken_by IS NULL \
     THEN EXISTS (SELECT 1 FROM task WHERE key = signal.run AND run_ended_at IS NOT NULL) \
     ELSE NOT EXISTS (SELECT 1 FROM task WHERE key = signal.taken_by AND ended_at IS NULL) END \
     FROM signal WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
const DROP_SIGNAL: &str = "DELETE FROM signal WHERE seq = ?1";

const NOTE_USED: &str = "INSERT INTO used (name, number) VALUES (?1, ?2) \
     ON CONFLICT (name) DO UPDATE SET number = max(number, ?2)";

impl Ledger<'_> {
    /// One step.
    pub(crate) fn prune(&mut self, step: &Prune) -> Result<Pruned, Error> {
        let (last_task, last_record) = (self.last_task()?, self.last_record()?);
        let connection = &self.opened.connection;
        let mut broom = Broom::new(connection, step.most)?;
        let mut pruned = Pruned::default();
        match broom.finish_doomed()? {
            false => pruned.next = Some(step.from),
            true => match step.what {
                Aged::Runs => self.prune_runs(&mut broom, step, &mut pruned)?,
                Aged::Events => broom.prune_events(step, &mut pruned)?,
                Aged::Signals => broom.prune_signals(step, &mut pruned)?,
            },
        }
        if broom.removed > 0 {
            connection.execute(DROP_WORDS, [])?;
            connection.execute(NOTE_USED, ("task", last_task))?;
            connection.execute(NOTE_USED, ("record", last_record))?;
        }
        Ok(pruned)
    }

    fn prune_runs(
        &mut self,
        broom: &mut Broom<'_>,
        step: &Prune,
        pruned: &mut Pruned,
    ) -> Result<(), Error> {
        let connection = &self.opened.connection;
        let mut next_run = connection.prepare(NEXT_RUN)?;
        let mut is_there = connection.prepare(IS_THERE)?;
        let mut drop_key = connection.prepare(DROP_KEY)?;
        let mut drop_pauses = connection.prepare(DROP_PAUSES)?;
        let before = step.before.as_micros();
        let mut from = step.from;
        // One run is always looked at: on a slow machine a step that only prepares its statements may
        // take all the time it has, and would be taken again for ever.
        let mut is_first = true;
        while is_first || !broom.is_tired() {
            is_first = false;
            let found = next_run.query_row([from], |row| {
                Ok(OldRun {
                    key: row.get(0)?,
                    plan: row.get(1)?,
                    id: row.get(2)?,
                    workflow: row.get(3)?,
                    idempotency_key: row.get(4)?,
                    submitted_at: row.get(5)?,
                    ended_at: row.get(6)?,
                    parent: row.get(7)?,
                })
            });
            let Some(run) = found.optional()? else { return Ok(()) };
            if run.submitted_at >= before {
                return Ok(());
            }
            broom.looked();
            let tasks = self.catalog.plan(run.plan, &mut self.sql.plan)?.task_count();
            let upto = run.key.saturating_add_unsigned(tasks as u64);
            from = upto;
            let is_needed = match run.parent {
                Some(parent) => is_there.query_row([parent], |row| row.get(0))?,
                None => false,
            };
            if is_needed || run.ended_at.is_none_or(|ended_at| ended_at >= before) {
                continue;
            }
            let id = run_id(run.id);
            if let Some(key) = &run.idempotency_key {
                drop_key.execute((run.workflow, key))?;
            }
            drop_pauses.execute((RUN, id.to_string()))?;
            pruned.runs.push(id);
            broom.remove_run(Doomed { run: run.key, next: run.key, upto })?;
        }
        pruned.next = Some(from);
        Ok(())
    }
}

/// A run, as far as it matters here.
struct OldRun {
    key: i64,
    plan: i64,
    id: [u8; 16],
    workflow: i64,
    idempotency_key: Option<String>,
    submitted_at: i64,
    ended_at: Option<i64>,
    parent: Option<i64>,
}

/// What is left of a run that is gone.
struct Doomed {
    run: i64,
    next: i64,
    upto: i64,
}

/// Takes rows away until it is tired.
struct Broom<'c> {
    connection: &'c Connection,
    payloads: Statement<'c>,
    waits: Statement<'c>,
    tasks: Statement<'c>,
    records: Statement<'c>,
    signals: Statement<'c>,
    /// Rows that are left to look at or to remove.
    left: u64,
    removed: u64,
    until: Instant,
}

impl<'c> Broom<'c> {
    fn new(connection: &'c Connection, most: u32) -> rusqlite::Result<Self> {
        Ok(Broom {
            connection,
            payloads: connection.prepare(DROP_PAYLOADS)?,
            waits: connection.prepare(DROP_WAITS)?,
            tasks: connection.prepare(DROP_TASKS)?,
            records: connection.prepare(DROP_RECORDS)?,
            signals: connection.prepare(DROP_SIGNALS)?,
            left: most.max(1).into(),
            removed: 0,
            until: Instant::now() + STEP_MAX,
        })
    }

    fn is_tired(&self) -> bool {
        self.left == 0 || Instant::now() >= self.until
    }

    fn looked(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    fn removes(
        statement: &mut Statement<'_>,
        which: impl Params,
        (left, removed): (&mut u64, &mut u64),
    ) -> Result<i64, Error> {
        let rows = statement.execute(which)? as u64;
        *left = left.saturating_sub(rows);
        *removed += rows;
        Ok(rows as i64)
    }

    /// What earlier steps have left; false if some is left still.
    fn finish_doomed(&mut self) -> Result<bool, Error> {
        let mut first = self.connection.prepare(DOOMED)?;
        loop {
            let doomed = first.query_row([], |row| {
                Ok(Doomed { run: row.get(0)?, next: row.get(1)?, upto: row.get(2)? })
            });
            let Some(mut doomed) = doomed.optional()? else { return Ok(true) };
            let run = doomed.run;
            if !self.remove(&mut doomed)? {
                self.note(&doomed)?;
                return Ok(false);
            }
            self.connection.execute(UNDOOM, [run])?;
        }
    }

    /// A run goes: its first task at once, the rest as far as it fits.
    fn remove_run(&mut self, mut run: Doomed) -> Result<(), Error> {
        let (left, removed) = (&mut self.left, &mut self.removed);
        Self::removes(&mut self.tasks, (run.run, run.run + 1), (left, removed))?;
        match self.remove(&mut run)? {
            true => Ok(()),
            false => self.note(&run),
        }
    }

    fn note(&self, Doomed { run, next, upto }: &Doomed) -> Result<(), Error> {
        self.connection.execute(DOOM, (run, next, upto))?;
        Ok(())
    }

    /// Goes on with what is left of a run; whether that was all.
    fn remove(&mut self, doomed: &mut Doomed) -> Result<bool, Error> {
        while doomed.next < doomed.upto {
            let room = TASKS.min(self.left.max(1) as i64);
            let end = (doomed.next + room).min(doomed.upto);
            for statement in [&mut self.payloads, &mut self.waits, &mut self.tasks] {
                let (left, removed) = (&mut self.left, &mut self.removed);
                Self::removes(statement, (doomed.next, end), (left, removed))?;
            }
            doomed.next = end;
            if doomed.next < doomed.upto && self.is_tired() {
                return Ok(false);
            }
        }
        for statement in [&mut self.records, &mut self.signals] {
            loop {
                let room = ROWS.min(self.left.max(1) as i64);
                let (left, removed) = (&mut self.left, &mut self.removed);
                if Self::removes(statement, (doomed.run, room), (left, removed))? < room {
                    break;
                }
                if self.left == 0 || Instant::now() >= self.until {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn prune_events(&mut self, step: &Prune, pruned: &mut Pruned) -> Result<(), Error> {
        let mut select = self.connection.prepare(RECORDS)?;
        let old = select.query_map((step.from, self.left.max(1) as i64), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })?;
        let old = old.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut ended_before = self.connection.prepare(ENDED_BEFORE)?;
        let mut drop_record = self.connection.prepare(DROP_RECORD)?;
        let mut unrecord = self.connection.prepare(UNRECORD)?;
        let before = step.before.as_micros();
        let mut last = (i64::MIN, false);
        for (seq, at, run) in old {
            if at >= before {
                pruned.next = None;
                return Ok(());
            }
            if last.0 != run {
                last = (run, ended_before.exists((run, before))?);
                if last.1 {
                    unrecord.execute([run])?;
                }
            }
            self.looked();
            if last.1 {
                drop_record.execute([seq])?;
                self.removed += 1;
                pruned.events += 1;
            }
            pruned.next = Some(seq + 1);
            if self.is_tired() {
                break;
            }
        }
        Ok(())
    }

    fn prune_signals(&mut self, step: &Prune, pruned: &mut Pruned) -> Result<(), Error> {
        let mut select = self.connection.prepare(SIGNALS)?;
        let old = select.query_map((step.from, self.left.max(1) as i64), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, bool>(2)?))
        })?;
        let old = old.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut drop_signal = self.connection.prepare(DROP_SIGNAL)?;
        for (seq, sent_at, is_over) in old {
            if sent_at >= step.before.as_micros() {
                pruned.next = None;
                return Ok(());
            }
            self.looked();
            if is_over {
                drop_signal.execute([seq])?;
                self.removed += 1;
                pruned.signals += 1;
            }
            pruned.next = Some(seq + 1);
            if self.is_tired() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_by_an_index() {
        crate::sql::tests::are_found_by_an_index(&[
            (NEXT_RUN, "SEARCH task USING INTEGER PRIMARY KEY (rowid>?)"),
            (IS_THERE, "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"),
            (DROP_KEY, "USING PRIMARY KEY (workflow=? AND key=?)"),
            (DROP_PAUSES, "USING INDEX pause_name (scope=? AND name=?)"),
            (DROP_PAYLOADS, "USING PRIMARY KEY (task>? AND task<?)"),
            (DROP_WAITS, "USING PRIMARY KEY (task>? AND task<?)"),
            (DROP_TASKS, "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
            (DROP_RECORDS, "USING COVERING INDEX record_run (run=?)"),
            (DROP_SIGNALS, "USING COVERING INDEX signal_sent (run=?)"),
            (RECORDS, "USING INTEGER PRIMARY KEY (rowid>?)"),
            (ENDED_BEFORE, "USING INTEGER PRIMARY KEY (rowid=?)"),
            (DROP_RECORD, "USING INTEGER PRIMARY KEY (rowid=?)"),
            (UNRECORD, "USING INTEGER PRIMARY KEY (rowid=?)"),
            (SIGNALS, "USING INTEGER PRIMARY KEY (rowid>?)"),
            (DROP_SIGNAL, "USING INTEGER PRIMARY KEY (rowid=?)"),
        ]);
    }
}
