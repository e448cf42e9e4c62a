//! The part of a request that is written: records of ends, and the rows that have changed.

use super::{PAUSED_LOOK, Taking, Task};
use crate::delta::TaskWrite;
use crate::lifecycle::{Event, Life, Reason, State};
use crate::store::{Happened, Record};
use crate::want::Loader;

impl<L: Loader> Taking<'_, L> {
    /// The record of an end: of the task, or of an entry.
    pub(super) fn make_record(&mut self, at: usize, event: &Event, to: &Life, error: Option<&str>) {
        let Task { row, run, .. } = &self.tasks[at];
        let Some((what, reason)) = happened(&row.life, event, to) else { return };
        let (worker, begun_at) = match &row.life.state {
            State::Running { worker, activity, .. } => (Some(*worker), activity.begun_at()),
            _ => (None, None),
        };
        let record = Record {
            seq: 0,
            at: self.now,
            run: row.run(),
            run_id: self.head(*run).id,
            task: row.index,
            what,
            reason,
            attempt: row.life.attempt,
            entry: row.life.entries,
            worker,
            begun_at,
            active: to.active.max(row.life.active),
            error: error.map(str::to_owned),
        };
        self.answer.plans.push(self.tasks[at].row.plan.clone());
        self.rows.add_record(record);
    }

    /// Moves the rows that have changed into the delta.
    pub(super) fn gather_rows(&mut self) {
        self.gather_limits();
        let now = self.now;
        let changed = self.tasks.iter().filter(|task| task.dirty).count();
        let mut writes = Vec::with_capacity(changed);
        // From the last on: the first task of a run, with its head, stands before the others.
        while let Some(Task { row, run, dirty, stood_still }) = self.tasks.pop() {
            if !dirty {
                continue;
            }
            let head = match &row.head {
                Some(head) => head,
                None => self.head(run),
            };
            let mut place = row.place(head, now, stood_still);
            if !stood_still.is_zero() && row.life.queues_since(&row.planned().rules).is_some() {
                // While it stands still its time-out moves on with the clock.
                place.alarm = place.alarm.map(|alarm| alarm.max(now + PAUSED_LOOK));
            }
            let (queue, is_run_ended) = (head.queue.clone(), head.ended.is_some());
            let is_new = self.runs[run].new.is_some();
            let (is_final, is_plain) = (row.is_final(), row.is_plain(&place));
            let write = TaskWrite { row, place, queue, is_run_ended, is_new, is_final, is_plain };
            writes.push(write);
        }
        writes.reverse();
        self.rows.delta.tasks = writes;
    }
}

/// What is to be recorded of a change, if anything: the end of the task or of an entry.
fn happened(from: &Life, event: &Event, to: &Life) -> Option<(Happened, Option<Reason>)> {
    let entered = match &from.state {
        State::Running { activity, .. } => activity.begun_at().is_some(),
        _ => false,
    };
    Some(match (&to.state, event) {
        (State::Succeeded, Event::TakeOver) => (Happened::TakenOver, None),
        (State::Succeeded, _) => (Happened::Succeeded, None),
        (State::Skipped, _) => (Happened::Skipped, Some(Reason::Upstream)),
        (&State::Failed(reason), _) => (Happened::Failed, Some(reason)),
        (&State::TimedOut(reason), _) => (Happened::TimedOut, Some(reason)),
        (&State::Cancelled(reason), _) => (Happened::Cancelled, Some(reason)),
        (State::Ready { .. }, Event::Fail { failure, .. }) => {
            (Happened::Retried, Some(failure.reason()))
        }
        (State::Ready { .. }, Event::Snooze { .. }) => (Happened::Snoozed, None),
        (State::Ready { .. }, Event::HandBack { .. }) if entered => (Happened::HandedBack, None),
        (State::Ready { .. }, Event::Recover) if entered => (Happened::Recovered, None),
        (State::Parked { .. }, _) => (Happened::Parked, None),
        _ => return None,
    })
}
