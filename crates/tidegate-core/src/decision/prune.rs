//! The part of a request that removes old runs, records and signals.

use super::Taking;
use crate::retention::{Aged, OldRecord, OldRun, OldSignal, Prune, Pruned, RunRemoval, RunRows};
use crate::store::TaskKey;
use crate::want::{Loader, LookUps};
use crate::{RunId, Timestamp};
use std::collections::HashSet;

impl<L: Loader> Taking<'_, L> {
    /// Takes a step of pruning.
    pub(super) fn prune(&mut self, step: &Prune) -> Result<Pruned, L::Stop> {
        let budget = step.most.max(1);
        let mut pruned = Pruned::default();
        // The rest of a run that earlier steps have hidden goes first, with any kind of step.
        if let Some(rows) = self.rows.load_pruning_run(budget)? {
            self.remove_rows(&rows, None, budget, budget);
            pruned.next = Some(step.from);
            return Ok(pruned);
        }
        match step.what {
            Aged::Runs => self.prune_runs(step, budget, &mut pruned)?,
            Aged::Events => self.prune_records(step, budget, &mut pruned)?,
            Aged::Signals => self.prune_signals(step, budget, &mut pruned)?,
        }
        Ok(pruned)
    }

    fn prune_runs(&mut self, step: &Prune, most: u32, pruned: &mut Pruned) -> Result<(), L::Stop> {
        let old = self.rows.load_old_runs(step.from, step.before, most)?;
        // A run that ended in time was submitted in time: fewer than wanted are the last.
        let is_last = old.len() < most as usize;
        let mut budget = most;
        let mut gone = HashSet::new();
        for OldRun { id, ended_at, parent, rows } in old {
            if budget == 0 {
                pruned.next = Some(rows.run.0);
                return Ok(());
            }
            budget -= 1;
            pruned.next = Some(rows.end.0);
            // The run above it may go in the same step.
            let has_parent = parent.is_some_and(|parent| !gone.contains(&parent));
            if has_parent || !is_before(ended_at, step.before) {
                continue;
            }
            pruned.runs.push(id);
            gone.insert(rows.run);
            if !self.remove_rows(&rows, Some(id), most, budget) {
                return Ok(());
            }
            budget = budget.saturating_sub(rows.weight);
        }
        if is_last {
            pruned.next = None;
        }
        Ok(())
    }

    /// Removes rows of a run as far as the budget goes; whether that was to the last row. The rows
    /// were weighed up to `most` tasks.
    fn remove_rows(
        &mut self,
        rows: &RunRows,
        hides: Option<RunId>,
        most: u32,
        budget: u32,
    ) -> bool {
        let RunRows { run, next, end, weight } = *rows;
        if weight <= budget.max(1) {
            let tasks = next..end;
            let removal = RunRemoval { run, hides, tasks, others: u32::MAX, left: None };
            self.rows.delta.pruned_runs.push(removal);
            return true;
        }
        // Of tasks that weigh more than a row, fewer. Records and signals go behind the last task.
        let weighed = (end.0 - next.0).min(i64::from(most.max(1)));
        let going = (weighed * i64::from(budget) / i64::from(weight)).max(1);
        let upto = TaskKey(next.0 + going).min(end);
        let others = if next == end { budget.max(1) } else { 0 };
        let removal = RunRemoval { run, hides, tasks: next..upto, others, left: Some(upto..end) };
        self.rows.delta.pruned_runs.push(removal);
        false
    }

    fn prune_records(
        &mut self,
        step: &Prune,
        budget: u32,
        pruned: &mut Pruned,
    ) -> Result<(), L::Stop> {
        let from = u64::try_from(step.from).unwrap_or(0);
        for OldRecord { seq, at, run, run_ended_at } in self.rows.load_old_records(from, budget)? {
            if at >= step.before {
                pruned.next = None;
                return Ok(());
            }
            if is_before(run_ended_at, step.before) {
                self.rows.delta.pruned_records.push((seq, run));
                pruned.events += 1;
            }
            pruned.next = Some(seq as i64 + 1);
        }
        Ok(())
    }

    fn prune_signals(
        &mut self,
        step: &Prune,
        budget: u32,
        pruned: &mut Pruned,
    ) -> Result<(), L::Stop> {
        let from = u64::try_from(step.from).unwrap_or(0);
        for signal in self.rows.load_old_signals(from, budget)? {
            let OldSignal { number, sent_at, is_run_ended, is_receiver_open } = signal;
            if sent_at >= step.before {
                pruned.next = None;
                return Ok(());
            }
            if is_receiver_open.map_or(is_run_ended, |is_open| !is_open) {
                self.rows.delta.pruned_signals.push(number);
                pruned.signals += 1;
            }
            pruned.next = Some(number as i64 + 1);
        }
        Ok(())
    }
}

fn is_before(at: Option<Timestamp>, before: Timestamp) -> bool {
    at.is_some_and(|at| at < before)
}
