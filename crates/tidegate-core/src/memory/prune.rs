//! What is no longer kept in memory: the plain form of what every store does.

use super::{Memory, names};
use crate::retention::{Aged, Prune, Pruned};
use crate::rows::{Place, Row};
use crate::store::{RunKey, Scope, TaskKey};
use crate::{RunId, Timestamp};

impl Memory {
    pub(super) fn prune(&mut self, step: &Prune) -> Pruned {
        match step.what {
            Aged::Runs => self.prune_runs(step),
            Aged::Events => self.prune_events(step),
            Aged::Signals => self.prune_signals(step),
        }
    }

    fn prune_runs(&mut self, step: &Prune) -> Pruned {
        let mut pruned = Pruned::default();
        let (mut from, mut rows) = (RunKey(step.from), 0);
        while let Some((&run, _)) = self.runs.range(from..).next() {
            // A run ends after it was submitted, and so do all that were submitted later.
            if self.head(run).submitted_at >= step.before {
                return pruned;
            }
            if rows >= step.most.max(1) as usize {
                pruned.next = Some(run.0);
                return pruned;
            }
            rows += 1;
            from = RunKey(run.0 + 1);
            let above = self.head(run).parent;
            let is_needed = above.is_some_and(|above| self.tasks.contains_key(&above));
            if self.ended_before(run, step.before) && !is_needed {
                rows += self.remove_run(run, &mut pruned.runs);
            }
        }
        pruned
    }

    fn prune_events(&mut self, step: &Prune) -> Pruned {
        let mut pruned = Pruned::default();
        let from = u64::try_from(step.from).unwrap_or(0);
        let old = self.records.range(from..).take(step.most.max(1) as usize);
        let old: Vec<_> = old.map(|(&seq, record)| (seq, record.at, record.run)).collect();
        for &(seq, at, run) in &old {
            if at >= step.before {
                return pruned;
            }
            if self.ended_before(run, step.before) {
                self.records.remove(&seq);
                self.runs.entry(run).or_default().retain(|other| *other != seq);
                self.unrecorded.insert(run);
                pruned.events += 1;
            }
        }
        pruned.next = old.last().map(|(seq, ..)| *seq as i64 + 1);
        pruned
    }

    fn prune_signals(&mut self, step: &Prune) -> Pruned {
        let mut pruned = Pruned::default();
        let from = u64::try_from(step.from).unwrap_or(0);
        let old = self.signals.range(from..).take(step.most.max(1) as usize);
        let old: Vec<_> = old.map(|(&number, signal)| (number, signal.clone())).collect();
        for (number, signal) in &old {
            if signal.sent_at >= step.before {
                return pruned;
            }
            let is_over = match signal.taken_by {
                Some(task) => self.tasks.get(&task).is_none_or(|(row, _)| row.ended_at.is_some()),
                None => self.head(signal.run).ended.is_some(),
            };
            if is_over {
                self.remove_signal(*number);
                pruned.signals += 1;
            }
        }
        pruned.next = old.last().map(|(number, _)| *number as i64 + 1);
        pruned
    }

    fn ended_before(&self, run: RunKey, before: Timestamp) -> bool {
        self.head(run).ended.is_some_and(|(_, at)| at < before)
    }

    /// Takes away a run with all that belongs to it; how many rows that were.
    fn remove_run(&mut self, run: RunKey, gone: &mut Vec<RunId>) -> usize {
        let head = self.head(run).clone();
        let stored: Vec<(Row, Place)> = self.rows_of(run).cloned().collect();
        let end = TaskKey(run.0 + stored.len() as i64);
        for (row, place) in &stored {
            self.unlink(row, &head.queue, place);
            self.tasks.remove(&row.key);
            let waits: Vec<_> = self.waits_of(row.key).map(|wait| wait.id.clone()).collect();
            waits.into_iter().for_each(|id| drop(self.waits.remove(&(row.key, id))));
        }
        let tasks = TaskKey(run.0)..end;
        let payloads = (tasks.start, 0)..(tasks.end, 0);
        self.payloads.extract_if(payloads, |_, _| true).for_each(drop);
        self.words.retain(|(_, task)| !tasks.contains(task));
        let records = self.runs.remove(&run).unwrap_or_default();
        records.iter().for_each(|seq| drop(self.records.remove(seq)));
        self.unrecorded.remove(&run);
        let mut sent = self.sent.range((run, 0)..=(run, u128::MAX));
        if sent.next().is_some() {
            let of_run = self.signals.iter().filter(|(_, signal)| signal.run == run);
            let of_run: Vec<u64> = of_run.map(|(&number, _)| number).collect();
            of_run.into_iter().for_each(|number| self.remove_signal(number));
        }
        self.pauses.remove(&Scope::Run(head.id));
        self.ids.remove(&head.id);
        let names = stored.first().and_then(|(first, _)| names(&head, &first.plan));
        names.map(|names| self.keys.remove(&names));
        gone.push(head.id);
        stored.len() + records.len()
    }

    fn remove_signal(&mut self, number: u64) {
        let Some(signal) = self.signals.remove(&number) else { return };
        self.sent.remove(&(signal.run, signal.id));
        self.untaken.remove(&(signal.run, signal.name, number));
    }
}
