//! The delta of a request, written to the tables in memory.

use super::Memory;
use super::table::{SentSignal, SignalList, TaskList};
use crate::delta::{Delta, PassedEvents, PauseChange, RateEvent, SignalChange, TaskWrite};
use crate::lifecycle::WorkerId;
use crate::limit::LimitRow;
use crate::store::{RunKey, Scope, TaskKey};
use crate::transaction::{ApplyOutcome, Transaction};
use std::convert::Infallible;
use std::mem::take;

impl Transaction for Memory {
    fn apply_delta(&mut self, delta: &mut Delta) -> Result<ApplyOutcome, Infallible> {
        for limit in delta.limits.drain(..) {
            self.limits.insert(limit.name().to_owned(), limit);
        }
        for pause in &delta.pauses {
            self.change_pause(pause);
        }
        for (task, waits) in take(&mut delta.waits) {
            for (id, wait) in waits {
                self.waits.replace_row((task, id), wait);
            }
        }
        for (number, change) in take(&mut delta.signals) {
            self.change_signal(number, change);
        }
        for (task, holds) in take(&mut delta.holds) {
            for (limit, hold) in holds {
                self.holds.replace_row((task, limit), hold);
            }
        }
        for PassedEvents { limit, from, to } in delta.passed_events.drain(..) {
            let Some(events) = self.rate_events.get_mut(&limit) else { continue };
            events.extract_if(from..=to, |_, _| true).for_each(drop);
            if events.is_empty() {
                self.rate_events.remove(&limit);
            }
        }
        for RateEvent { limit, at, units } in delta.rate_events.drain(..) {
            *self.rate_events.entry(limit).or_default().entry(at).or_default() += u64::from(units);
        }
        for (limit, row) in take(&mut delta.limit_rows) {
            self.limit_rows.replace_row(limit, (row != LimitRow::default()).then_some(row));
        }
        for (task, kind, bytes) in delta.payloads.drain(..) {
            self.payloads.insert((task, kind.code()), bytes);
        }
        for copy in &delta.payload_copies {
            let bytes = self.payloads.get(&(copy.from, copy.kind.code())).cloned();
            self.payloads.extend(bytes.map(|bytes| ((copy.to, copy.kind.code()), bytes)));
        }
        for record in &mut delta.records {
            self.last_record += 1;
            record.seq = self.last_record;
            self.records.replace_row(record.seq, Some(record.clone()));
        }
        for write in delta.tasks.drain(..) {
            self.write_task(write);
        }
        if let Some((worker, _)) = delta.notified {
            self.notifications.retain(|(notified, _)| *notified != worker);
        }
        self.notifications.append(&mut delta.notifications);
        // With the notifications for them.
        for worker in &delta.forgotten_workers {
            self.forget_worker(*worker);
        }
        // Only deltas are ever written here, and rows are filed by their own columns: there is nothing
        // to file anew, and no row belongs to nothing.
        debug_assert!(delta.refiled.is_empty() && delta.orphans.is_empty());
        self.remove_pruned(delta);
        Ok(ApplyOutcome::Applied)
    }
}

impl Memory {
    pub(crate) fn write_task(&mut self, write: TaskWrite) {
        let is_new = write.is_new;
        if let Some(head) = write.row.head.as_ref().filter(|_| is_new) {
            let same_id = self.find_run(&TaskList::Id(head.id));
            assert!(same_id.is_none(), "the id of a new run was never used before");
        }
        let before = self.tasks.replace_row(write.row.key, Some(write));
        assert_eq!(before.is_none(), is_new, "a new row has a new number, and no other row");
    }

    fn change_pause(&mut self, change: &PauseChange) {
        let pauses = self.pauses.entry(change.scope.clone()).or_default();
        let open = pauses.last_mut().filter(|(_, to)| to.is_none());
        match (open, change.begins) {
            // The clock of the process that ends it may be behind the clock of the one that began it.
            (Some((from, to)), false) => *to = Some(change.at.max(*from)),
            (None, true) => pauses.push((change.at, None)),
            _ => {}
        }
    }

    fn change_signal(&mut self, number: u64, change: SignalChange) {
        let changed =
            |taken_by| Some(SentSignal { taken_by, ..self.signals.rows.get(&number)?.clone() });
        let signal = match change {
            SignalChange::Sent { id, run, name, body, at, taken_by } => {
                Some(SentSignal { id, run, name, body, sent_at: at, taken_by })
            }
            // One that was pruned with its run stays away.
            SignalChange::Taken { by } => changed(Some(by)),
            SignalChange::Returned { .. } => changed(None),
        };
        self.signals.replace_row(number, signal);
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.notifications.retain(|(notified, _)| *notified != worker);
    }

    fn remove_pruned(&mut self, delta: &Delta) {
        for removal in delta.pruned_runs.iter().filter(|removal| removal.hides.is_some()) {
            self.remove_run(removal.run);
        }
        for (seq, run) in &delta.pruned_records {
            self.records.replace_row(*seq, None);
            self.unrecorded.insert(*run);
        }
        for number in &delta.pruned_signals {
            self.signals.replace_row(*number, None);
        }
    }

    fn remove_run(&mut self, run: RunKey) {
        self.pauses.remove(&Scope::Run(self.head_of(run).id));
        let tasks = TaskKey(run.0)..TaskKey(run.0 + self.tasks_of(run).count() as i64);
        let waits = self.waits_of(tasks.clone()).map(|(task, wait)| (task, wait.id.clone()));
        for wait in Vec::from_iter(waits) {
            self.waits.replace_row(wait, None);
        }
        self.payloads.extract_if((tasks.start, 0)..(tasks.end, 0), |_, _| true).for_each(drop);
        self.notifications.retain(|(_, task)| !tasks.contains(task));
        for task in tasks.start.0..tasks.end.0 {
            self.tasks.replace_row(TaskKey(task), None);
        }
        for (_, seq) in self.records.lists.get(&run).cloned().unwrap_or_default() {
            self.records.replace_row(seq, None);
        }
        self.unrecorded.remove(&run);
        let sent = SignalList::Sent(run, 0)..=SignalList::Sent(run, u128::MAX);
        let sent = self.signals.lists.range(sent).flat_map(|(_, numbers)| numbers);
        for (_, number) in Vec::from_iter(sent.copied()) {
            self.signals.replace_row(number, None);
        }
    }
}
