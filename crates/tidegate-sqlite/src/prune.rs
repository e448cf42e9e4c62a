//! Removing old runs, records and signals, as a request has decided.
//!
//! The first task of a run goes first, and with it the run is gone for every look-up. Rows of it that
//! do not fit into a request are noted in `doomed`, and go with later ones.

use crate::error::Error;
use crate::fetch::Fetch;
use crate::ledger::Ledger;
use crate::load::RUN;
use crate::loader::RowLoader;
use crate::sql::queries;
use std::ops::Range;
use tidegate_core::delta::Delta;
use tidegate_core::retention::{OldRun, ROW_BYTES, RunRemoval, RunRows};
use tidegate_core::store::{RunKey, TaskKey};
use tidegate_core::want::{Loaded, Want};
use tidegate_core::{RunId, Timestamp};

queries! {
    /// The next run: number, plan, id, when submitted, when ended, the run of its parent.
    NEXT_RUN = "SELECT key, plan, run_id, submitted_at, run_ended_at, (SELECT first.key \
         FROM task AS above CROSS JOIN task AS first ON first.key = above.key - above.idx \
         WHERE above.key = task.parent_task) FROM task WHERE key >= ?1 ORDER BY key LIMIT 1";

    /// The weight of tasks from ?1 on below ?2, and of records and signals of the run ?3, each up to ?4.
    WEIGHT = "SELECT \
         (SELECT ifnull(sum(1 + pages), 0) FROM (SELECT length(body) / ?5 AS pages FROM payload \
         WHERE task >= ?1 AND task < ?2 LIMIT ?4)) \
         + (SELECT count(*) FROM (SELECT 1 FROM wait WHERE task >= ?1 AND task < ?2 LIMIT ?4)) \
         + (SELECT count(*) FROM (SELECT 1 FROM record WHERE run = ?3 LIMIT ?4)) \
         + (SELECT count(*) FROM (SELECT 1 FROM signal WHERE run = ?3 LIMIT ?4))";

    DROP_KEY = "DELETE FROM run_key \
         WHERE workflow = (SELECT workflow FROM task WHERE key = ?1) \
         AND key = (SELECT run_key FROM task WHERE key = ?1)";
    DROP_PAUSES = "DELETE FROM pause WHERE scope = ?1 AND name = ?2";
    DROP_PAYLOADS = "DELETE FROM payload WHERE task >= ?1 AND task < ?2";
    DROP_WAITS = "DELETE FROM wait WHERE task >= ?1 AND task < ?2";
    DROP_TASKS = "DELETE FROM task WHERE key >= ?1 AND key < ?2";
    DROP_RECORDS = "DELETE FROM record WHERE seq IN (SELECT seq FROM record WHERE run = ?1 LIMIT ?2)";
    DROP_SIGNALS = "DELETE FROM signal WHERE seq IN (SELECT seq FROM signal WHERE run = ?1 LIMIT ?2)";

    /// Notifications of tasks that are gone. There are never many.
    DROP_WORDS = "DELETE FROM word WHERE NOT EXISTS (SELECT 1 FROM task WHERE key = word.task)";

    DOOMED = "SELECT run, next, upto FROM doomed ORDER BY run LIMIT 1";
    DOOM = "INSERT OR REPLACE INTO doomed (run, next, upto) VALUES (?1, ?2, ?3)";
    UNDOOM = "DELETE FROM doomed WHERE run = ?1";

    /// Records from ?1 on: number, time, run, when that ended.
    RECORDS = "SELECT seq, at, run, (SELECT run_ended_at FROM task WHERE key = record.run) \
         FROM record WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
    DROP_RECORD = "DELETE FROM record WHERE seq = ?1";
    UNRECORD = "UPDATE task SET unrecorded = 1 WHERE key = ?1 AND unrecorded IS NULL";

    /// Signals from ?1 on: number, time, whether the run has ended, whether the receiver is open.
    SIGNALS = "SELECT seq, sent_at, \
         EXISTS (SELECT 1 FROM task WHERE key = signal.run AND run_ended_at IS NOT NULL), \
         iif(taken_by IS NULL, NULL, \
         EXISTS (SELECT 1 FROM task WHERE key = signal.taken_by AND ended_at IS NULL)) \
         FROM signal WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
    DROP_SIGNAL = "DELETE FROM signal WHERE seq = ?1";

    NOTE_USED = "INSERT INTO used (name, number) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET number = max(number, ?2)";
}

impl RowLoader<'_> {
    pub(crate) fn load_old_rows(&mut self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::PruningRun { max } => {
                let doomed = self.prepare_rare(DOOMED)?.fetch_first([])?;
                let rows = doomed.map(|(run, next, end)| self.weigh_rows(run, next..end, *max));
                Loaded::RunRows(rows.transpose()?)
            }
            Want::OldRuns { from, before, max } => {
                let (mut from, mut old) = (*from, Vec::new());
                while old.len() < *max as usize
                    && let Some(run) = self.find_old_run(from, *before, *max)?
                {
                    from = run.rows.end.0;
                    old.push(run);
                }
                Loaded::OldRuns(old)
            }
            Want::OldRecords { from, max } => {
                Loaded::OldRecords(self.fetch_rare(RECORDS, (*from as i64, max))?)
            }
            Want::OldSignals { from, max } => {
                Loaded::OldSignals(self.fetch_rare(SIGNALS, (*from as i64, max))?)
            }
            Want::Audit(want) => self.load_stored(want)?,
            other => unreachable!("no group of wants has {other:?}"),
        })
    }

    /// The next run from a number on, if it was submitted before.
    fn find_old_run(
        &mut self,
        from: i64,
        before: Timestamp,
        max: u32,
    ) -> Result<Option<OldRun>, Error> {
        type Found = (TaskKey, i64, RunId, Timestamp, Option<Timestamp>, Option<RunKey>);
        let found: Option<Found> = self.prepare_rare(NEXT_RUN)?.fetch_first([from])?;
        let found = found.filter(|(_, _, _, submitted_at, ..)| *submitted_at < before);
        let Some((next, plan, id, _, ended_at, parent)) = found else { return Ok(None) };
        let count = self.catalog.find_plan(plan)?.task_count();
        let (run, end) = (RunKey(next.0), TaskKey(next.0.saturating_add_unsigned(count as u64)));
        let rows = match ended_at.is_some_and(|ended_at| ended_at < before) {
            true => self.weigh_rows(run, next..end, max)?,
            false => RunRows { run, next, end, weight: 0 },
        };
        Ok(Some(OldRun { id, ended_at, parent, rows }))
    }

    fn weigh_rows(
        &mut self,
        run: RunKey,
        tasks: Range<TaskKey>,
        max: u32,
    ) -> Result<RunRows, Error> {
        let (next, end) = (tasks.start, tasks.end);
        let last = end.0.min(next.0.saturating_add(max.into()));
        let given = (next.0, last, run.0, max, ROW_BYTES as i64);
        let weight: i64 = self.prepare_rare(WEIGHT)?.fetch_one(given)?;
        // Tasks that were not looked at are there all the same.
        let weight = u32::try_from(weight.saturating_add(end.0 - next.0)).unwrap_or(u32::MAX);
        Ok(RunRows { run, next, end, weight })
    }
}

impl Ledger<'_> {
    pub(crate) fn remove_pruned(&mut self, delta: &Delta) -> Result<(), Error> {
        let Delta { pruned_runs, pruned_records, pruned_signals, .. } = delta;
        if pruned_runs.is_empty() && pruned_records.is_empty() && pruned_signals.is_empty() {
            return Ok(());
        }
        let (last_task, last_record) = (self.loader.last_task()?, self.loader.last_record()?);
        for removal in pruned_runs {
            self.remove_run(removal)?;
        }
        let mut marked = None;
        for (seq, run) in pruned_records {
            self.loader.execute_rare(DROP_RECORD, [*seq as i64])?;
            if marked.replace(run) != Some(run) {
                self.loader.execute_rare(UNRECORD, [run.0])?;
            }
        }
        for number in pruned_signals {
            self.loader.execute_rare(DROP_SIGNAL, [*number as i64])?;
        }
        self.loader.execute_rare(DROP_WORDS, [])?;
        self.loader.execute_rare(NOTE_USED, ("task", last_task))?;
        self.loader.execute_rare(NOTE_USED, ("record", last_record as i64))?;
        Ok(())
    }

    fn remove_run(&mut self, removal: &RunRemoval) -> rusqlite::Result<()> {
        let RunRemoval { run, hides, tasks, others, left } = removal;
        if let Some(id) = hides {
            self.loader.execute_rare(DROP_KEY, [run.0])?;
            self.loader.execute_rare(DROP_PAUSES, (RUN, id.to_string()))?;
        }
        for statement in [DROP_PAYLOADS, DROP_WAITS, DROP_TASKS] {
            self.loader.execute_rare(statement, (tasks.start.0, tasks.end.0))?;
        }
        for statement in [DROP_RECORDS, DROP_SIGNALS].iter().filter(|_| *others > 0) {
            self.loader.execute_rare(statement, (run.0, others))?;
        }
        match left {
            Some(left) => self.loader.execute_rare(DOOM, (run.0, left.start.0, left.end.0))?,
            None if hides.is_none() => self.loader.execute_rare(UNDOOM, [run.0])?,
            None => 0,
        };
        Ok(())
    }
}
