//! Removing old rows from memory: a run always goes at once.

use super::Memory;
use crate::Timestamp;
use crate::delta::Delta;
use crate::retention::{OldRecord, OldRun, OldSignal, RunRows};
use crate::rows::{Place, Row};
use crate::store::{RunKey, Scope, TaskKey};
use crate::want::FiledKey;

impl Memory {
    pub(super) fn old_runs(&self, from: i64, before: Timestamp, max: u32) -> Vec<OldRun> {
        let runs = self.runs.range(RunKey(from)..).take(max as usize);
        let runs = runs.take_while(|(run, _)| self.head(**run).submitted_at < before);
        let old = runs.map(|(&run, records)| {
            let head = self.head(run);
            let tasks = self.rows_of(run).count();
            let weight = u32::try_from(tasks + records.len()).unwrap_or(u32::MAX);
            let (next, end) = (TaskKey(run.0), TaskKey(run.0 + tasks as i64));
            OldRun {
                id: head.id,
                ended_at: head.ended.map(|(_, at)| at),
                parent: head.parent.and_then(|above| Some(self.tasks.get(&above)?.0.run())),
                rows: RunRows { run, next, end, weight },
            }
        });
        old.collect()
    }

    pub(super) fn old_records(&self, from: u64, max: u32) -> Vec<OldRecord> {
        let old = self.records.range(from..).take(max as usize);
        let old = old.map(|(&seq, record)| {
            let run_ended_at = self.head(record.run).ended.map(|(_, at)| at);
            OldRecord { seq, at: record.at, run: record.run, run_ended_at }
        });
        old.collect()
    }

    pub(super) fn old_signals(&self, from: u64, max: u32) -> Vec<OldSignal> {
        let is_open =
            |task| self.tasks.get(&task).is_some_and(|(row, _): &(Row, _)| row.ended_at.is_none());
        let old = self.signals.range(from..).take(max as usize);
        let old = old.map(|(&number, signal)| OldSignal {
            number,
            sent_at: signal.sent_at,
            is_run_ended: self.head(signal.run).ended.is_some(),
            is_receiver_open: signal.taken_by.map(is_open),
        });
        old.collect()
    }

    pub(super) fn remove_pruned(&mut self, delta: &Delta) {
        for removal in delta.pruned_runs.iter().filter(|removal| removal.hides.is_some()) {
            self.remove_run(removal.run);
        }
        for &(seq, run) in &delta.pruned_records {
            self.records.remove(&seq);
            self.runs.entry(run).or_default().retain(|other| *other != seq);
            self.unrecorded.insert(run);
        }
        for number in &delta.pruned_signals {
            self.remove_signal(*number);
        }
    }

    fn remove_run(&mut self, run: RunKey) {
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
        let key = stored.first().and_then(|(first, _)| FiledKey::new(first));
        key.map(|key| self.keys.remove(&key));
    }

    fn remove_signal(&mut self, number: u64) {
        let Some(signal) = self.signals.remove(&number) else { return };
        self.sent.remove(&(signal.run, signal.id));
        self.untaken.remove(&(signal.run, signal.name, number));
    }
}
