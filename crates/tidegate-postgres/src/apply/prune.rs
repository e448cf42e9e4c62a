//! Removing old runs, records and signals, as a request has decided.
//!
//! The first task of a run goes first, and with it the run is gone for every look-up. Rows of it that do
//! not fit into a request are noted in `pruning`, and go with later ones. Only ended runs are removed, so
//! that all their tasks stand in `ended_task`.

use super::{DeltaQueue, make_column};
use crate::error::Error;
use crate::rows::pause_name;
use std::collections::BTreeSet;
use tidegate_core::delta::Delta;
use tidegate_core::retention::RunRemoval;
use tidegate_core::store::{RunKey, Scope};

const DELETE_KEY: &str = "DELETE FROM run_key WHERE run = $1";
const DELETE_PAUSES: &str = "DELETE FROM pause WHERE scope = $1 AND name = $2";

/// Rows of the tasks from $1 on below $2.
const DELETES_OF_TASKS: [&str; 4] = [
    "DELETE FROM payload WHERE task >= $1 AND task < $2",
    "DELETE FROM wait WHERE task >= $1 AND task < $2",
    "DELETE FROM ended_task WHERE number >= $1 AND number < $2",
    // There are never many.
    "DELETE FROM notification WHERE task >= $1 AND task < $2",
];

/// Rows of the run $1, at most $2.
const DELETES_OF_RUN: [&str; 2] = [
    "DELETE FROM record WHERE number = ANY(ARRAY(SELECT number FROM record WHERE run = $1 LIMIT $2))",
    "DELETE FROM signal WHERE number = ANY(ARRAY(SELECT number FROM signal WHERE run = $1 LIMIT $2))",
];

const NOTE_PRUNING: &str = "INSERT INTO pruning (run, next, upto) VALUES ($1, $2, $3) \
     ON CONFLICT (run) DO UPDATE SET next = excluded.next, upto = excluded.upto";
const END_PRUNING: &str = "DELETE FROM pruning WHERE run = $1";

const DELETE_RECORDS: &str = "DELETE FROM record WHERE number = ANY($1::int8[])";
const FORGET_ENDINGS: &str = "UPDATE ended_task SET record = NULL, record_kind = NULL, ending = '' \
     WHERE record = ANY($1::int8[])";
const MARK_UNRECORDED: &str = "UPDATE ended_task SET is_unrecorded = true \
     WHERE number = ANY($1::int8[]) AND is_unrecorded IS NULL";
const DELETE_SIGNALS: &str = "DELETE FROM signal WHERE number = ANY($1::int8[])";

impl DeltaQueue<'_> {
    pub(super) async fn remove_pruned(&mut self, delta: &Delta) -> Result<(), Error> {
        let Delta { pruned_runs, pruned_records, pruned_signals, .. } = delta;
        for removal in pruned_runs {
            self.remove_run(removal).await?;
        }
        if !pruned_records.is_empty() {
            for sql in [DELETE_RECORDS, FORGET_ENDINGS] {
                let records = make_column(pruned_records, |(number, _)| *number as i64);
                self.add_statement(sql, vec![records]).await?;
            }
            let runs: BTreeSet<RunKey> = pruned_records.iter().map(|(_, run)| *run).collect();
            let runs: Vec<RunKey> = runs.into_iter().collect();
            self.add_statement(MARK_UNRECORDED, vec![make_column(&runs, |run| run.0)]).await?;
        }
        if !pruned_signals.is_empty() {
            let signals = make_column(pruned_signals, |number| *number as i64);
            self.add_statement(DELETE_SIGNALS, vec![signals]).await?;
        }
        Ok(())
    }

    async fn remove_run(&mut self, removal: &RunRemoval) -> Result<(), Error> {
        let RunRemoval { run, hides, tasks, others, left } = removal;
        if let Some(id) = hides {
            self.add_statement(DELETE_KEY, vec![Box::new(run.0)]).await?;
            let (scope, name) = pause_name(&Scope::Run(*id));
            self.add_statement(DELETE_PAUSES, vec![Box::new(scope), Box::new(name)]).await?;
        }
        for sql in DELETES_OF_TASKS {
            self.add_statement(sql, vec![Box::new(tasks.start.0), Box::new(tasks.end.0)]).await?;
        }
        for sql in DELETES_OF_RUN.iter().filter(|_| *others > 0) {
            self.add_statement(sql, vec![Box::new(run.0), Box::new(i64::from(*others))]).await?;
        }
        match left {
            Some(left) => {
                let next = (Box::new(left.start.0), Box::new(left.end.0));
                self.add_statement(NOTE_PRUNING, vec![Box::new(run.0), next.0, next.1]).await?;
            }
            None if hides.is_none() => {
                self.add_statement(END_PRUNING, vec![Box::new(run.0)]).await?;
            }
            None => {}
        }
        Ok(())
    }
}

/// All statements, by name.
#[cfg(test)]
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("DELETE_KEY", DELETE_KEY),
    ("DELETE_PAUSES", DELETE_PAUSES),
    ("NOTE_PRUNING", NOTE_PRUNING),
    ("END_PRUNING", END_PRUNING),
    ("DELETE_RECORDS", DELETE_RECORDS),
    ("FORGET_ENDINGS", FORGET_ENDINGS),
    ("MARK_UNRECORDED", MARK_UNRECORDED),
    ("DELETE_SIGNALS", DELETE_SIGNALS),
    ("DELETE_PAYLOADS_OF", DELETES_OF_TASKS[0]),
    ("DELETE_WAITS_OF", DELETES_OF_TASKS[1]),
    ("DELETE_TASKS_OF", DELETES_OF_TASKS[2]),
    ("DELETE_RECORDS_OF", DELETES_OF_RUN[0]),
    ("DELETE_SIGNALS_OF", DELETES_OF_RUN[1]),
];
