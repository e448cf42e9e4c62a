//! The look-ups of a decision that the store answers, each by one [`Want`].

use super::Overlay;
use crate::audit::Stray;
use crate::delta::PauseChange;
use crate::lifecycle::WorkerId;
use crate::limit::{Hold, Limit, LimitKey};
use crate::retention::{OldRecord, OldRun, OldSignal, RunRows};
use crate::rows::{Owned, Payload, Place, Row};
use crate::store::{Bytes, RunKey, Scope, TaskKey};
use crate::wait::{WaitId, Waiting};
use crate::want::{Loaded, Loader, ServedTasks, Want, look_ups};
use crate::{RunId, Timestamp};
use std::sync::Arc;
use std::time::Duration;

impl<L: Loader> Overlay<'_, L> {
    fn load_want(&mut self, want: Want) -> Result<Loaded, L::Stop> {
        match self.known.find_answer(&want) {
            Some(loaded) => Ok(loaded.clone()),
            None => self.loader.load(&want),
        }
    }

    look_ups! {
        pub(in crate::decision),
        load_run(id: RunId) -> Option<RunKey> = Want::RunById(id) => Run;
        load_run_by_key(queue: &Arc<str>, workflow: &str, key: &str) -> Option<RunKey> =
            Want::RunByKey {
                queue: queue.clone(),
                workflow: workflow.to_owned(),
                key: key.to_owned(),
            } => Run;
        load_task(task: TaskKey) -> Option<Row> = Want::Task(task) => Task;
        load_whole_run(run: RunKey) -> Vec<Row> = Want::WholeRun(run) => Tasks;
        load_due_tasks(until: Timestamp, max: u32) -> Vec<TaskKey> =
            Want::DueTasks { until, max } => TaskKeys;
        load_due_limits(until: Timestamp, max: u32) -> Vec<LimitKey> =
            Want::DueLimits { until, max } => LimitKeys;
        load_owned(worker: WorkerId, max: u32) -> Vec<Owned> =
            Want::OwnedBy { worker, max } => Owned;
        load_served(worker: WorkerId) -> Option<Arc<ServedTasks>> = Want::Served(worker) => Served;
        load_queue_depth(queue: &Arc<str>, max: u32) -> i64 =
            Want::QueueDepth { queue: queue.clone(), max } => Number;
        load_blocked_tasks(limit: &LimitKey, max: u32) -> Vec<(Timestamp, TaskKey)> =
            Want::BlockedOn { limit: limit.clone(), max } => Ordered;
        load_blocked_keys(name: &str) -> Vec<LimitKey> = Want::BlockedKeys(name.into()) => LimitKeys;
        load_now() -> Timestamp = Want::Now => Time;
        load_place(task: TaskKey) -> Option<Place> = Want::Place(task) => Place;
        load_pause_start(scope: &Scope) -> Option<Timestamp> =
            Want::PauseStart(scope.clone()) => Instant;
        load_is_queue_paused(queue: &Arc<str>) -> bool =
            Want::IsQueuePaused(queue.clone()) => Flag;
        load_wait(task: TaskKey, id: &WaitId) -> Option<Waiting> =
            Want::Wait(task, id.clone()) => Wait;
        load_waits(task: TaskKey) -> Vec<Waiting> = Want::Waits(task) => Waits;
        load_signal_waits(run: RunKey, name: &Arc<str>, max: u32)
            -> Vec<(Timestamp, TaskKey, WaitId)> =
            Want::SignalWaits { run, name: name.clone(), max } => SignalWaits;
        load_signals(run: RunKey, name: &Arc<str>, max: u32) -> Vec<(u64, Option<Bytes>)> =
            Want::Signals { run, name: name.clone(), max } => Signals;
        load_waiters(run: RunKey) -> Vec<(TaskKey, WaitId)> = Want::WaitersOf(run) => RunWaits;
        load_edges(run: RunKey, tasks: u32) -> Vec<(TaskKey, WaitId, RunKey)> =
            Want::EdgesFrom { run, tasks } => Edges;
        load_is_sent(run: RunKey, id: u128) -> bool = Want::IsSent(run, id) => Flag;
        load_payload(task: TaskKey, kind: Payload) -> Option<Bytes> =
            Want::Payload(task, kind) => Payload;
        load_paused_time(run: RunId, queue: &Arc<str>, from: Timestamp, to: Timestamp) -> Duration =
            Want::PausedTime { run, queue: queue.clone(), from, to } => Duration;
        load_limit(name: &str) -> Option<Limit> = Want::Limit(name.into()) => Limit;
        load_units_in_use(limit: &LimitKey) -> i64 = Want::UnitsInUse(limit.clone()) => Number;
        load_rate_events(limit: &LimitKey) -> Vec<(Timestamp, u32)> =
            Want::RateEvents(limit.clone()) => RateEvents;
        load_limit_alarm(limit: &LimitKey) -> Option<Timestamp> =
            Want::LimitAlarm(limit.clone()) => Instant;
        load_holds(task: TaskKey) -> Vec<Hold> = Want::Holds(task) => Holds;
        load_notifications(worker: WorkerId) -> Vec<TaskKey> =
            Want::Notifications(worker) => TaskKeys;
        load_is_misfiled(task: TaskKey) -> bool = Want::IsMisfiled(task) => Flag;
        load_has_orphans(orphan: &Stray) -> bool = Want::HasOrphans(orphan.clone()) => Flag;
        load_pruning_run(max: u32) -> Option<RunRows> = Want::PruningRun { max } => RunRows;
        load_old_runs(from: i64, before: Timestamp, max: u32) -> Vec<OldRun> =
            Want::OldRuns { from, before, max } => OldRuns;
        load_old_records(from: u64, max: u32) -> Vec<OldRecord> =
            Want::OldRecords { from, max } => OldRecords;
        load_old_signals(from: u64, max: u32) -> Vec<OldSignal> =
            Want::OldSignals { from, max } => OldSignals;
        load_task_numbers(nth: u32, count: u32) -> i64 = Want::TaskNumbers { nth, count } => Number;
        load_signal_number(nth: u32) -> i64 = Want::SignalNumber { nth } => Number;
        load_ready(
            worker: WorkerId,
            max_weight: u32,
            only_awaited: bool,
            pauses: Vec<PauseChange>,
            max: u32
        ) -> Vec<(Timestamp, TaskKey)> =
            Want::Ready { worker, max_weight, only_awaited, pauses, max } => Ordered;
    }
}
