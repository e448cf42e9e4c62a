//! Look-ups that a store answers, each by one [`Want`].

use super::{
    AuditWant, FiledKey, LiveWorker, Loaded, Loader, ServedTasks, SideTable, StoredLimit,
    StoredSignal, StoredTask, TaskGroup, Want,
};
use crate::delta::PauseChange;
use crate::graph::TaskIndex;
use crate::lifecycle::WorkerId;
use crate::limit::{Hold, Limit, LimitKey, LimitUsage};
use crate::retention::{OldRecord, OldRun, OldSignal, RunRows};
use crate::rows::{Owned, Payload, Row};
use crate::store::{Bytes, Happened, Record, RunKey, Scope, TaskKey};
use crate::wait::{WaitId, Waiting};
use crate::{RunId, Timestamp};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

macro_rules! look_ups {
    ($($name:ident($($given:ident: $type:ty),*) -> $Found:ty = $want:expr => $Kind:ident;)*) => {$(
        fn $name(&mut self, $($given: $type),*) -> Result<$Found, Self::Stop> {
            match self.load(&$want)? {
                Loaded::$Kind(found) => Ok(found),
                other => unreachable!("a store answered a want with {other:?}"),
            }
        }
    )*};
}

/// The answers of a loader, each of its own type.
pub(crate) trait LookUps: Loader {
    look_ups! {
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
        load_limit_usage(limit: &LimitKey) -> LimitUsage =
            Want::LimitUsage(limit.clone()) => LimitUsage;
        load_rate_events(limit: &LimitKey, after: Timestamp, max: u32) -> Vec<(Timestamp, u64)> =
            Want::RateEvents { limit: limit.clone(), after, max } => RateEvents;
        load_holds(task: TaskKey) -> Vec<Hold> = Want::Holds(task) => Holds;
        load_notifications(worker: WorkerId) -> Vec<TaskKey> =
            Want::Notifications(worker) => TaskKeys;
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

        load_last_record(run: RunKey, task: TaskIndex, max: u32) -> Option<Happened> =
            Want::LastRecord { run, task, max } => RecordKind;
        load_holders(limit: &LimitKey, max: u32) -> Vec<(TaskKey, u32, Timestamp)> =
            Want::HoldersOf { limit: limit.clone(), max } => Holders;
        load_blocked_before(limit: &LimitKey, place: (Timestamp, TaskKey), max: u32) -> i64 =
            Want::BlockedBefore { limit: limit.clone(), place, max } => Number;
        load_ready_before(queue: &Arc<str>, place: (Timestamp, TaskKey), max: u32)
            -> Vec<(TaskGroup, u32)> =
            Want::ReadyBefore { queue: queue.clone(), place, max } => TaskGroups;
        load_live_workers() -> Vec<LiveWorker> = Want::LiveWorkers => Workers;
        load_recent_durations(like: TaskKey, max: u32) -> Vec<Duration> =
            Want::RecentDurations { like, max } => Durations;

        load_stored_tasks(tasks: Range<TaskKey>, max: u32) -> Vec<StoredTask> =
            Want::Audit(AuditWant::Tasks { tasks, max }) => StoredTasks;
        load_stored_waits(tasks: Range<TaskKey>) -> Vec<(TaskKey, Option<Waiting>)> =
            Want::Audit(AuditWant::Waits(tasks)) => StoredWaits;
        load_stored_holds(tasks: Range<TaskKey>) -> Vec<(TaskKey, Hold)> =
            Want::Audit(AuditWant::Holds(tasks)) => StoredHolds;
        load_stored_records(runs: Range<RunKey>) -> Vec<Record> =
            Want::Audit(AuditWant::Records(runs)) => Records;
        load_stored_signals(from: u64, max: u32) -> Vec<StoredSignal> =
            Want::Audit(AuditWant::Signals { from, max }) => StoredSignals;
        load_stored_limits(from: i64, max: u32) -> Vec<StoredLimit> =
            Want::Audit(AuditWant::Limits { from, max }) => StoredLimits;
        load_stored_limit(limit: &LimitKey) -> Vec<StoredLimit> =
            Want::Audit(AuditWant::Limit(limit.clone())) => StoredLimits;
        load_stored_keys(from: FiledKey, run: Option<RunKey>, max: u32)
            -> Vec<(FiledKey, RunKey)> =
            Want::Audit(AuditWant::Keys { from, run, max }) => StoredKeys;
        load_paused_runs(from: &str, max: u32) -> Vec<String> =
            Want::Audit(AuditWant::PausedRuns { from: from.to_owned(), max }) => Names;
        load_stored_notifications(from: (WorkerId, TaskKey), max: u32)
            -> Vec<(WorkerId, TaskKey)> =
            Want::Audit(AuditWant::Notifications { from, max }) => StoredNotifications;
        load_known_workers() -> Vec<WorkerId> = Want::Audit(AuditWant::KnownWorkers) => WorkerIds;
        load_row_owners(table: SideTable, owners: Range<i64>, max: u32) -> Vec<i64> =
            Want::Audit(AuditWant::RowOwners { table, owners, max }) => Numbers;
        load_ready_alike(task: TaskKey, max: u32) -> Vec<TaskKey> =
            Want::Audit(AuditWant::ReadyAlike { task, max }) => TaskKeys;
        load_pruned_tasks() -> Vec<Range<TaskKey>> = Want::Audit(AuditWant::PrunedTasks) => TaskRanges;
    }

    /// A task as it is stored, damaged or not.
    fn find_stored_task(&mut self, task: TaskKey) -> Result<Option<StoredTask>, Self::Stop> {
        let found = self.load_stored_tasks(task..TaskKey(task.0.saturating_add(1)), 1)?;
        Ok(found.into_iter().next())
    }
}

impl<L: Loader> LookUps for L {}
