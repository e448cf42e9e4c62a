//! Removing old runs, records and signals, as a request has decided.
//!
//! The first task of a run goes first, and with it the run is gone for every look-up. Rows of it that
//! do not fit into a request are noted in `pruning`, and go with later ones. Only ended runs are removed,
//! so that all their tasks stand in `ended_task`.

use crate::error::Error;
use crate::fetch::{Fetch, read_at, read_bytes};
use crate::ledger::Ledger;
use crate::loader::RowLoader;
use crate::rows::RUN;
use crate::sql::queries;
use std::ops::Range;
use tidegate_core::delta::Delta;
use tidegate_core::packed::unpack_run;
use tidegate_core::retention::{OldRun, ROW_BYTES, RunRemoval, RunRows};
use tidegate_core::store::{RunKey, TaskKey};
use tidegate_core::want::{Loaded, Want};
use tidegate_core::{RunId, Timestamp};

queries! {
    /// Runs that have ended, from ?1 on, at most ?2: number, number of tasks, id, and the packed run.
    ENDED_RUNS = "SELECT t.number, p.tasks, t.run_id, t.run FROM ended_task AS t \
         CROSS JOIN plan AS p ON p.number = t.plan WHERE t.number >= ?1 AND t.idx = 0 \
         ORDER BY t.number LIMIT ?2";

    /// The first task of the run of the task ?1, where both are still there.
    RUN_OF_TASK = "SELECT ifnull(\
         (SELECT f.number FROM task AS f WHERE f.number = above.number - above.idx), \
         (SELECT f.number FROM ended_task AS f WHERE f.number = above.number - above.idx)) FROM (\
         SELECT number, idx FROM task WHERE number = ?1 UNION ALL \
         SELECT number, idx FROM ended_task WHERE number = ?1) AS above";

    /// The weight of all that belongs to the tasks from ?1 on below ?2, and of records and signals of the
    /// run ?3, each up to ?4 rows. ?5 bytes weigh as much as a row.
    WEIGHT = "SELECT \
         (SELECT ifnull(sum(1 + pages), 0) FROM (SELECT length(body) / ?5 AS pages FROM payload \
         WHERE task >= ?1 AND task < ?2 LIMIT ?4)) \
         + (SELECT count(*) FROM (SELECT 1 FROM wait WHERE task >= ?1 AND task < ?2 LIMIT ?4)) \
         + (SELECT count(*) FROM (SELECT 1 FROM record WHERE run = ?3 LIMIT ?4)) \
         + (SELECT count(*) FROM (SELECT 1 FROM signal WHERE run = ?3 LIMIT ?4))";

    DELETE_KEY = "DELETE FROM run_key WHERE run = ?1";
    DELETE_PAUSES = "DELETE FROM pause WHERE scope = ?1 AND name = ?2";
    DELETE_PAYLOADS = "DELETE FROM payload WHERE task >= ?1 AND task < ?2";
    DELETE_WAITS = "DELETE FROM wait WHERE task >= ?1 AND task < ?2";
    DELETE_TASKS = "DELETE FROM ended_task WHERE number >= ?1 AND number < ?2";
    /// There are never many.
    DELETE_NOTIFICATIONS = "DELETE FROM notification WHERE task >= ?1 AND task < ?2";
    DELETE_RECORDS =
        "DELETE FROM record WHERE number IN (SELECT number FROM record WHERE run = ?1 LIMIT ?2)";
    DELETE_SIGNALS =
        "DELETE FROM signal WHERE number IN (SELECT number FROM signal WHERE run = ?1 LIMIT ?2)";

    PRUNING = "SELECT run, next, upto FROM pruning ORDER BY run LIMIT 1";
    NOTE_PRUNING = "INSERT OR REPLACE INTO pruning (run, next, upto) VALUES (?1, ?2, ?3)";
    END_PRUNING = "DELETE FROM pruning WHERE run = ?1";

    /// Records from ?1 on, at most ?2: number, time, run, when that ended.
    RECORDS = "SELECT r.number, r.at, r.run, \
         (SELECT f.run_ended_at FROM ended_task AS f WHERE f.number = r.run) FROM record AS r \
         WHERE r.number >= ?1 UNION ALL SELECT r.record, r.ended_at, r.number - r.idx, \
         (SELECT f.run_ended_at FROM ended_task AS f WHERE f.number = r.number - r.idx) \
         FROM ended_task AS r WHERE r.record >= ?1 ORDER BY 1 LIMIT ?2";
    DELETE_RECORD = "DELETE FROM record WHERE number = ?1";
    FORGET_ENDING = "UPDATE ended_task SET record = NULL, record_kind = NULL, ending = x'' \
         WHERE record = ?1";
    MARK_UNRECORDED = "UPDATE ended_task SET is_unrecorded = 1 \
         WHERE number = ?1 AND is_unrecorded IS NULL";

    /// Signals from ?1 on, at most ?2: number, time, whether the run has ended, whether the receiver is
    /// open.
    SIGNALS = "SELECT number, sent_at, \
         EXISTS (SELECT 1 FROM ended_task WHERE number = signal.run), \
         iif(taken_by IS NULL, NULL, \
         EXISTS (SELECT 1 FROM task WHERE number = signal.taken_by AND state < 6)) \
         FROM signal WHERE number >= ?1 ORDER BY number LIMIT ?2";
    DELETE_SIGNAL = "DELETE FROM signal WHERE number = ?1";
}

impl RowLoader<'_> {
    pub(crate) fn load_old_rows(&mut self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::PruningRun { max } => {
                let pruning = self.prepare_rare(PRUNING)?.fetch_first([])?;
                let rows = pruning.map(|(run, next, end)| self.weigh_rows(run, next..end, *max));
                Loaded::RunRows(rows.transpose()?)
            }
            Want::OldRuns { from, before, max } => {
                Loaded::OldRuns(self.find_old_runs(*from, *before, *max)?)
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

    /// Runs that have ended and were submitted in time. An open run stays as it is, and is left out.
    fn find_old_runs(
        &mut self,
        from: i64,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<OldRun>, Error> {
        let mut found = Vec::new();
        let mut rows = self.prepare_rare(ENDED_RUNS)?.query((from, max))?;
        while let Some(row) = rows.next()? {
            let (next, tasks): (TaskKey, i64) = (read_at(row, 0)?, read_at(row, 1)?);
            let damaged = |source| Error::Task { key: next.0, source };
            let run = unpack_run(read_bytes(row, 3)?).map_err(damaged)?;
            // Runs are in the order in which they were submitted.
            if run.submitted_at >= before {
                break;
            }
            let (id, end): (RunId, _) = (read_at(row, 2)?, TaskKey(next.0.saturating_add(tasks)));
            found.push((next..end, id, run.ended.map(|(_, at)| at), run.parent));
        }
        drop(rows);
        let mut old = Vec::with_capacity(found.len());
        for (tasks, id, ended_at, parent) in found {
            let run = RunKey(tasks.start.0);
            let parent = match parent {
                Some(task) => self.prepare_rare(RUN_OF_TASK)?.fetch_first([task.0])?.flatten(),
                None => None,
            };
            let rows = match ended_at.is_some_and(|ended_at| ended_at < before) {
                true => self.weigh_rows(run, tasks, max)?,
                false => RunRows { run, next: tasks.start, end: tasks.end, weight: 0 },
            };
            old.push(OldRun { id, ended_at, parent, rows });
        }
        Ok(old)
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
        for (number, run) in pruned_records {
            self.loader.execute_rare(DELETE_RECORD, [*number as i64])?;
            self.loader.execute_rare(FORGET_ENDING, [*number as i64])?;
            if marked.replace(run) != Some(run) {
                self.loader.execute_rare(MARK_UNRECORDED, [run.0])?;
            }
        }
        for number in pruned_signals {
            self.loader.execute_rare(DELETE_SIGNAL, [*number as i64])?;
        }
        self.sql.set_high_water.execute(("task", last_task))?;
        self.sql.set_high_water.execute(("record", last_record as i64))?;
        Ok(())
    }

    fn remove_run(&mut self, removal: &RunRemoval) -> rusqlite::Result<()> {
        let RunRemoval { run, hides, tasks, others, left } = removal;
        if let Some(id) = hides {
            self.loader.execute_rare(DELETE_KEY, [run.0])?;
            self.loader.execute_rare(DELETE_PAUSES, (RUN, id.to_string()))?;
        }
        for statement in [DELETE_PAYLOADS, DELETE_WAITS, DELETE_TASKS, DELETE_NOTIFICATIONS] {
            self.loader.execute_rare(statement, (tasks.start.0, tasks.end.0))?;
        }
        for statement in [DELETE_RECORDS, DELETE_SIGNALS].iter().filter(|_| *others > 0) {
            self.loader.execute_rare(statement, (run.0, others))?;
        }
        match left {
            Some(left) => {
                self.loader.execute_rare(NOTE_PRUNING, (run.0, left.start.0, left.end.0))?
            }
            None if hides.is_none() => self.loader.execute_rare(END_PRUNING, [run.0])?,
            None => 0,
        };
        Ok(())
    }
}
