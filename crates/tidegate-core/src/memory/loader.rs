//! How a decision loads rows from memory and how its delta is applied.

use super::Memory;
use crate::delta::Delta;
use crate::store::{Reply, Request};
use crate::testing::{PausingLoader, RequestHooks};
use crate::transaction::{ApplyOutcome, Transaction, answer_request, apply_decision};
use crate::want::{Loaded, Loader, Want};
use std::convert::Infallible;

impl Loader for Memory {
    type Stop = Infallible;

    fn load(&mut self, want: &Want) -> Result<Loaded, Infallible> {
        Ok(match want {
            Want::Now => Loaded::Time(self.latest.unwrap_or_default()),
            Want::RunById(run) => Loaded::Run(self.find_run(*run)?),
            Want::RunByKey { queue, workflow, key } => {
                Loaded::Run(self.find_run_by_key(queue, workflow, key)?)
            }
            Want::Task(task) => Loaded::Task(self.find_task(*task)?),
            Want::WholeRun(run) => Loaded::Tasks(self.find_tasks(*run)?),
            Want::DueTasks { until, max } => Loaded::TaskKeys(self.find_due_tasks(*until, *max)?),
            Want::DueLimits { until, max } => Loaded::LimitKeys(self.due_limits(*until, *max)?),
            Want::NextAlarm => Loaded::Instant(self.next_alarm()?),
            Want::OwnedBy { worker, max } => Loaded::Owned(self.find_owned(*worker, *max)?),
            Want::Ready { worker, max_weight, only_awaited, pauses, max } => Loaded::Ordered(
                self.find_ready(*worker, *max_weight, *only_awaited, pauses, *max)?,
            ),
            Want::Served(worker) => Loaded::Served(self.served_tasks(*worker)?),
            Want::PauseStart(scope) => Loaded::Instant(self.pause_start(scope)),
            Want::IsQueuePaused(queue) => Loaded::Flag(self.is_queue_paused(queue)?),
            Want::PausedTime { run, queue, from, to } => {
                Loaded::Duration(self.stood_still(*run, queue, *from, *to)?)
            }
            Want::QueueDepth { queue, max } => {
                Loaded::Number(self.count_waiting_runs(queue, *max)?.into())
            }
            Want::TaskNumbers { count, .. } => Loaded::Number(self.allocate_tasks(*count)?.0),
            Want::SignalNumber { .. } => Loaded::Number(self.signal_number()? as i64),
            Want::Payload(task, kind) => Loaded::Payload(self.find_payload(*task, *kind)?),
            Want::Notifications(worker) => Loaded::TaskKeys(self.find_words(*worker)?),
            Want::Waits(task) => Loaded::Waits(self.load_waits(*task)?),
            Want::Wait(task, id) => Loaded::Wait(self.find_wait(*task, id)?),
            Want::SignalWaits { run, name, max } => {
                Loaded::SignalWaits(self.signal_waits(*run, name, *max)?)
            }
            Want::WaitersOf(run) => Loaded::RunWaits(self.run_waits(*run)?),
            Want::EdgesFrom { run, tasks } => Loaded::Edges(self.waited_by(*run, *tasks)?),
            Want::IsSent(run, id) => Loaded::Flag(self.was_sent(*run, *id)?),
            Want::Signals { run, name, max } => {
                Loaded::Signals(self.untaken_signals(*run, name, *max)?)
            }
            Want::Limit(name) => Loaded::Limit(self.find_limit(name)?),
            Want::UnitsInUse(limit) => Loaded::Number(self.in_use(limit)?.into()),
            Want::RateEvents(limit) => Loaded::RateEvents(self.rate_events(limit)?),
            Want::LimitAlarm(limit) => Loaded::Instant(self.limit_alarm(limit)?),
            Want::Holds(task) => Loaded::Holds(self.load_holds(*task)?),
            Want::BlockedOn { limit, max } => Loaded::Ordered(self.blocked_tasks(limit, *max)?),
            Want::BlockedKeys(name) => Loaded::LimitKeys(self.keys_behind(name)?),
            Want::HoldersOf { .. }
            | Want::BlockedBefore { .. }
            | Want::ReadyBefore { .. }
            | Want::LiveWorkers
            | Want::LastRecord { .. }
            | Want::RecentDurations { .. } => self.load_for_explanation(want),
            // A run always goes at once.
            Want::PruningRun { .. } => Loaded::RunRows(None),
            Want::OldRuns { from, before, max } => {
                Loaded::OldRuns(self.old_runs(*from, *before, *max))
            }
            Want::OldRecords { from, max } => Loaded::OldRecords(self.old_records(*from, *max)),
            Want::OldSignals { from, max } => Loaded::OldSignals(self.old_signals(*from, *max)),
            Want::Audit(want) => self.load_stored(want),
        })
    }
}

impl Memory {
    pub(super) fn take_request(
        &mut self,
        request: &Request,
        hooks: &RequestHooks,
    ) -> Result<Reply, Infallible> {
        let points = hooks.points.as_deref();
        let (reply, _) = match &hooks.decider {
            None => answer_request(request, self, points)?,
            Some(decider) => {
                let mut loader = PausingLoader::new(self, points);
                let decision = decider.decide_request(request, &mut loader);
                let answered = apply_decision(decision, self, points)?;
                decider.check_applied(self);
                answered.expect("memory is never stale")
            }
        };
        self.latest = self.latest.max(Some(reply.now));
        if let Some(points) = points {
            points.before_commit();
        }
        Ok(reply)
    }
}

impl Transaction for Memory {
    fn apply_delta(&mut self, delta: &mut Delta) -> Result<ApplyOutcome, Infallible> {
        for limit in &delta.limits {
            self.set_limit(limit)?;
        }
        for pause in &delta.pauses {
            self.change_pause(pause)?;
        }
        for (task, waits) in &delta.waits {
            for (id, wait) in waits {
                match wait {
                    Some(wait) => self.put_wait(*task, wait)?,
                    None => self.drop_wait(*task, id)?,
                }
            }
        }
        for (number, signal) in &delta.signals {
            self.change_signal(*number, signal)?;
        }
        for (task, holds) in &delta.holds {
            for (limit, hold) in holds {
                match hold {
                    Some(hold) => self.put_hold(*task, hold)?,
                    None => self.let_go(*task, limit)?,
                }
            }
        }
        for event in &delta.rate_events {
            self.add_rate_event(event)?;
        }
        for (limit, alarm) in &delta.limit_alarms {
            self.set_limit_alarm(limit, *alarm)?;
        }
        for (task, kind, bytes) in &delta.payloads {
            self.keep_payload(*task, *kind, bytes)?;
        }
        for copy in &delta.payload_copies {
            if let Some(bytes) = self.find_payload(copy.from, copy.kind)? {
                self.keep_payload(copy.to, copy.kind, &bytes)?;
            }
        }
        for record in &mut delta.records {
            record.seq = self.add_record(record)?;
        }
        for write in delta.tasks.drain(..) {
            if write.is_new {
                self.insert_task(write)?;
            } else {
                self.update_task(write)?;
            }
        }
        if let Some(worker) = delta.notified {
            self.drop_words(worker)?;
        }
        for (worker, task) in &delta.notifications {
            self.leave_word(*worker, *task)?;
        }
        // With the notifications for them.
        for worker in &delta.forgotten_workers {
            self.forget_worker(*worker)?;
        }
        // Only deltas are ever written here, and rows are filed by their own columns: there is nothing
        // to file anew, and no row belongs to nothing.
        debug_assert!(delta.refiled.is_empty() && delta.orphans.is_empty());
        self.remove_pruned(delta);
        Ok(ApplyOutcome::Applied)
    }
}
