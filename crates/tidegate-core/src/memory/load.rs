//! The answers to wants, from the tables in memory.

use super::table::{SignalList, TaskList, WaitList, group_of};
use super::{KeysByTime, Memory};
use crate::Timestamp;
use crate::delta::{PauseChange, TaskWrite, is_paused_after};
use crate::lifecycle::WorkerId;
use crate::limit::{FIRST_EVENTS, Hold, LimitKey, LimitRow, LimitUsage};
use crate::retention::{OldRecord, OldRun, OldSignal, RunRows};
use crate::rows::{Head, Owned, sum_paused_time};
use crate::store::{Happened, Record, RunKey, Scope, TaskKey};
use crate::wait::{WaitId, WaitKind, Waiting};
use crate::want::{
    AuditWant, FiledKey, FiledTask, Loaded, Loader, SideTable, StoredSignal, StoredTask, TaskGroup,
    Want,
};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::{Bound, Range};
use std::sync::Arc;

impl Loader for Memory {
    type Stop = Infallible;

    fn load(&mut self, want: &Want) -> Result<Loaded, Infallible> {
        Ok(match want {
            Want::TaskNumbers { count, .. } => {
                self.last_task += i64::from(*count);
                Loaded::Number(self.last_task - i64::from(*count) + 1)
            }
            Want::SignalNumber { .. } => {
                self.last_signal += 1;
                Loaded::Number(self.last_signal as i64)
            }
            want => self.load_tasks(want),
        })
    }
}

/// Each of these answers a group of wants and passes on the others.
impl Memory {
    fn load_tasks(&self, want: &Want) -> Loaded {
        match want {
            Want::Now => Loaded::Time(self.latest.unwrap_or_default()),
            Want::RunById(run) => Loaded::Run(self.find_run(&TaskList::Id(*run))),
            Want::RunByKey { queue, workflow, key } => {
                let (queue, workflow, key) = (queue.clone(), workflow.clone(), key.clone());
                Loaded::Run(self.find_run(&TaskList::Key(FiledKey { queue, workflow, key })))
            }
            Want::Task(task) => {
                Loaded::Task(self.tasks.rows.get(task).map(|task| task.row.clone()))
            }
            Want::WholeRun(run) => {
                Loaded::Tasks(self.tasks_of(*run).map(|task| task.row.clone()).collect())
            }
            Want::DueTasks { until, max } => {
                Loaded::TaskKeys(self.tasks.list_due(&TaskList::Alarms, *until, *max))
            }
            Want::DueLimits { until, max } => {
                Loaded::LimitKeys(self.limit_rows.list_due(&(), *until, *max))
            }
            Want::NextAlarm => {
                let task = self.tasks.list_keys(&TaskList::Alarms).next().map(|(alarm, _)| *alarm);
                let limit = self.limit_rows.list_keys(&()).next().map(|(alarm, _)| *alarm);
                Loaded::Instant(task.into_iter().chain(limit).min())
            }
            Want::OwnedBy { worker, max } => {
                let owned = self.tasks.list_rows(&TaskList::OwnedBy(*worker)).take(*max as usize);
                Loaded::Owned(owned.map(|(_, task)| Owned::new(&task.row)).collect())
            }
            Want::Ready { worker, max_weight, only_awaited, pauses, max } => {
                let (weight, max) = (*max_weight, *max as usize);
                Loaded::Ordered(self.find_ready(*worker, weight, *only_awaited, pauses, max))
            }
            Want::Served(worker) => {
                Loaded::Served(self.workers.get(worker).map(|worker| worker.served.clone()))
            }
            Want::PauseStart(scope) => Loaded::Instant(self.find_pause(scope)),
            Want::IsQueuePaused(queue) => Loaded::Flag(self.is_queue_paused(queue, &[])),
            Want::PausedTime { run, queue, from, to } => {
                let scopes = [Scope::Run(*run), Scope::Queue(queue.to_string()), Scope::Store];
                let pauses = scopes.iter().filter_map(|scope| self.pauses.get(scope)).flatten();
                Loaded::Duration(sum_paused_time(pauses.copied(), *from, *to))
            }
            Want::QueueDepth { queue, max } => {
                let is_begun = |task: &TaskWrite| {
                    task.row.life.started.is_some() || task.row.life.owner().is_some()
                };
                let runs = self.tasks.list_keys(&TaskList::Unbegun(queue.clone()));
                let waits = runs.filter(|(_, first)| !self.tasks_of(RunKey(first.0)).any(is_begun));
                Loaded::Number(waits.take(*max as usize).count() as i64)
            }
            Want::Payload(task, kind) => {
                Loaded::Payload(self.payloads.get(&(*task, kind.code())).cloned())
            }
            other => self.load_waits(other),
        }
    }

    fn load_waits(&self, want: &Want) -> Loaded {
        match want {
            Want::Notifications(worker) => {
                let all = (*worker, TaskKey(i64::MIN))..=(*worker, TaskKey(i64::MAX));
                Loaded::TaskKeys(self.notifications.range(all).map(|(_, task)| *task).collect())
            }
            Want::Waits(task) => {
                let waits = self.waits_of(*task..TaskKey(task.0 + 1));
                Loaded::Waits(waits.map(|(_, wait)| wait.clone()).collect())
            }
            Want::Wait(task, id) => {
                Loaded::Wait(self.waits.rows.get(&(*task, id.clone())).cloned())
            }
            Want::SignalWaits { run, name, max } => {
                let waits = self.waits.list_keys(&WaitList::Signal(*run, name.clone()));
                let waits = waits.map(|(since, (task, id))| (*since, *task, id.clone()));
                Loaded::SignalWaits(waits.take(*max as usize).collect())
            }
            Want::WaitersOf(run) => {
                let waits = self.waits.list_keys(&WaitList::Run(*run));
                Loaded::RunWaits(waits.map(|(_, wait)| wait.clone()).collect())
            }
            Want::EdgesFrom { run, tasks } => {
                let waits = self.waits_of(TaskKey(run.0)..TaskKey(run.0 + i64::from(*tasks)));
                let open = waits.filter(|(_, wait)| wait.is_open() && wait.id.kind.is_for_run());
                let edges =
                    open.filter_map(|(task, wait)| Some((task, wait.id.clone(), wait.run?)));
                Loaded::Edges(edges.collect())
            }
            Want::IsSent(run, id) => {
                Loaded::Flag(self.signals.lists.contains_key(&SignalList::Sent(*run, *id)))
            }
            Want::Signals { run, name, max } => {
                let signals = self.signals.list_rows(&SignalList::Untaken(*run, name.clone()));
                let signals = signals.map(|(number, signal)| (*number, signal.body.clone()));
                Loaded::Signals(signals.take(*max as usize).collect())
            }
            other => self.load_limits(other),
        }
    }

    fn load_limits(&self, want: &Want) -> Loaded {
        match want {
            Want::Limit(name) => Loaded::Limit(self.limits.get(&**name).cloned()),
            Want::LimitUsage(limit) => {
                let events = self.rate_events.get(limit);
                let first = events.into_iter().flatten().take(FIRST_EVENTS as usize);
                Loaded::LimitUsage(LimitUsage {
                    row: self.find_limit_row(limit),
                    oldest: first.map(|(at, units)| (*at, *units)).collect(),
                    newest: events.and_then(|events| Some(*events.last_key_value()?.0)),
                })
            }
            Want::RateEvents { limit, after, max } => {
                let events = self.rate_events.get(limit).into_iter();
                let later = (Bound::Excluded(*after), Bound::Unbounded);
                let events = events.flat_map(|events| events.range(later)).take(*max as usize);
                Loaded::RateEvents(events.map(|(at, units)| (*at, *units)).collect())
            }
            Want::Holds(task) => {
                let holds = self.holds_of(*task..TaskKey(task.0 + 1));
                Loaded::Holds(holds.map(|(_, hold)| hold.clone()).collect())
            }
            Want::BlockedOn { limit, max } => {
                let blocked = self.list_blocked(limit).take_while(|(key, _)| *key == limit);
                let first = blocked.flat_map(|(_, tasks)| tasks.iter().take(*max as usize));
                let mut first: Vec<_> = first.copied().collect();
                first.sort_unstable();
                Loaded::Ordered(first)
            }
            Want::BlockedKeys(name) => {
                let keys = self.list_blocked(&LimitKey::new(name.clone(), ""));
                let keys = keys.map(|(key, _)| key.clone()).take_while(|key| key.name == *name);
                Loaded::LimitKeys(BTreeSet::from_iter(keys).into_iter().collect())
            }
            Want::HoldersOf { limit, max } => {
                let holders = self.holds.list_rows(limit).take(*max as usize);
                let holders = holders.map(|((task, _), hold)| (*task, hold.units, hold.since));
                Loaded::Holders(holders.collect())
            }
            Want::BlockedBefore { limit, place, max } => {
                let blocked = self.list_blocked(limit).take_while(|(key, _)| *key == limit);
                let before = blocked.flat_map(|(_, tasks)| tasks.range(..*place));
                Loaded::Number(before.take(*max as usize).count() as i64)
            }
            other => self.load_for_explanation(other),
        }
    }

    fn load_for_explanation(&self, want: &Want) -> Loaded {
        match want {
            Want::ReadyBefore { queue, place, max } => {
                let mut groups = BTreeMap::new();
                for (group, tasks) in self.list_claimable(queue, false) {
                    let before = tasks.range(..*place).take(*max as usize).count() as u32;
                    let counted: &mut u32 = groups.entry(group.clone()).or_default();
                    *counted = counted.saturating_add(before).min(*max);
                }
                Loaded::TaskGroups(groups.into_iter().filter(|(_, before)| *before > 0).collect())
            }
            Want::LiveWorkers => Loaded::Workers(self.live_workers()),
            Want::LastRecord { run, task, max } => {
                let mut last = self.records.list_rows(run).rev().take(*max as usize);
                let last = last.find(|(_, record)| record.task == *task);
                Loaded::RecordKind(last.map(|(_, record)| record.what))
            }
            Want::RecentDurations { like, max } => {
                let group = |task: &TaskKey| self.tasks.rows.get(task).map(group_of);
                let own = group(like);
                let recent = self.records.rows.values().rev().take(*max as usize);
                let alike = recent.filter(|record| {
                    record.what == Happened::Succeeded
                        && own.is_some()
                        && group(&record.run.task(record.task)) == own
                });
                let times = alike.filter_map(|record| Some(record.at.since(record.begun_at?)));
                Loaded::Durations(times.collect())
            }
            other => self.load_old_rows(other),
        }
    }

    fn load_old_rows(&self, want: &Want) -> Loaded {
        match want {
            // A run always goes at once.
            Want::PruningRun { .. } => Loaded::RunRows(None),
            Want::OldRuns { from, before, max } => {
                let rows = self.tasks.rows.range(TaskKey(*from)..).map(|(_, task)| &task.row);
                let first = rows.filter_map(|row| Some((row.run(), row.head.as_deref()?)));
                let old = first.take_while(|(_, head)| head.submitted_at < *before);
                let old = old.map(|(run, head)| self.find_old_run(run, head));
                Loaded::OldRuns(old.take(*max as usize).collect())
            }
            Want::OldRecords { from, max } => {
                let old = self.records.rows.range(*from..).take(*max as usize);
                let old = old.map(|(&seq, &Record { at, run, .. })| {
                    let run_ended_at = self.head_of(run).ended.map(|(_, at)| at);
                    OldRecord { seq, at, run, run_ended_at }
                });
                Loaded::OldRecords(old.collect())
            }
            Want::OldSignals { from, max } => {
                let is_open = |task| {
                    self.tasks.rows.get(&task).is_some_and(|task| task.row.ended_at.is_none())
                };
                let old = self.signals.rows.range(*from..).take(*max as usize);
                let old = old.map(|(&number, signal)| OldSignal {
                    number,
                    sent_at: signal.sent_at,
                    is_run_ended: self.head_of(signal.run).ended.is_some(),
                    is_receiver_open: signal.taken_by.map(is_open),
                });
                Loaded::OldSignals(old.collect())
            }
            Want::Audit(want) => self.load_stored(want),
            other => unreachable!("no group of wants has {other:?}"),
        }
    }

    fn load_stored(&self, want: &AuditWant) -> Loaded {
        match want {
            AuditWant::Tasks { tasks, max } => {
                let tasks = self.tasks.rows.range(tasks.clone()).take(*max as usize);
                Loaded::StoredTasks(tasks.map(|(_, task)| self.view_stored(task)).collect())
            }
            AuditWant::Waits(tasks) => {
                let waits = self.waits_of(tasks.clone());
                Loaded::StoredWaits(waits.map(|(task, wait)| (task, Some(wait.clone()))).collect())
            }
            AuditWant::Holds(tasks) => {
                let holds = self.holds_of(tasks.clone());
                Loaded::StoredHolds(holds.map(|(task, hold)| (task, hold.clone())).collect())
            }
            AuditWant::Records(runs) => {
                let lists = self.records.lists.range(runs.clone());
                let numbers = lists.flat_map(|(_, numbers)| numbers);
                let records = numbers.map(|(_, number)| self.records.rows[number].clone());
                Loaded::Records(records.collect())
            }
            AuditWant::Signals { from, max } => {
                let signals = self.signals.rows.range(*from..).take(*max as usize);
                let stored = signals.map(|(&number, signal)| {
                    let (run, name) = (signal.run, signal.name.clone());
                    StoredSignal { number, run, name, taken_by: signal.taken_by }
                });
                Loaded::StoredSignals(stored.collect())
            }
            AuditWant::Limits { from, max } => {
                Loaded::StoredLimits(self.list_limit_keys(*from, *max))
            }
            AuditWant::Limit(key) => Loaded::StoredLimits(vec![self.view_limit(0, key)]),
            AuditWant::Keys { from, run, max } => {
                let keys = self.tasks.lists.range(TaskList::Key(from.clone())..);
                let keys = keys.map_while(|(list, tasks)| match list {
                    TaskList::Key(key) => Some((key.clone(), RunKey(tasks.first()?.1.0))),
                    _ => None,
                });
                let keys = keys.filter(|(_, found)| run.is_none_or(|run| run == *found));
                Loaded::StoredKeys(keys.take(*max as usize).collect())
            }
            AuditWant::PausedRuns { from, max } => {
                let names = self.pauses.keys().filter_map(|scope| match scope {
                    Scope::Run(run) => Some(run.to_string()),
                    _ => None,
                });
                let names: BTreeSet<_> = names.filter(|name| name >= from).collect();
                Loaded::Names(names.into_iter().take(*max as usize).collect())
            }
            AuditWant::Notifications { from, max } => {
                let notifications = self.notifications.range(*from..).take(*max as usize);
                Loaded::StoredNotifications(notifications.copied().collect())
            }
            AuditWant::KnownWorkers => Loaded::WorkerIds(self.workers.keys().copied().collect()),
            AuditWant::RowOwners { table, owners, max } => {
                let found = BTreeSet::from_iter(self.list_owners(*table, owners));
                Loaded::Numbers(found.into_iter().take(*max as usize).collect())
            }
            AuditWant::ReadyAlike { task, max } => {
                let group = self.tasks.rows.get(task).map(group_of);
                let queue = group.as_ref().map_or("", |group| &group.queue);
                let lists = self.list_claimable(queue, false);
                let alike = lists.filter(|(other, _)| Some(*other) == group.as_ref());
                let alike = alike.flat_map(|(_, tasks)| tasks).map(|(_, task)| *task);
                Loaded::TaskKeys(alike.take(*max as usize).collect())
            }
            // A run is pruned at once.
            AuditWant::PrunedTasks => Loaded::TaskRanges(Vec::new()),
        }
    }
}

/// Look-ups that several wants and views share.
impl Memory {
    pub(super) fn find_run(&self, list: &TaskList) -> Option<RunKey> {
        self.tasks.list_keys(list).next().map(|(_, first)| RunKey(first.0))
    }

    pub(super) fn tasks_of(&self, run: RunKey) -> impl Iterator<Item = &TaskWrite> {
        let tasks = self.tasks.rows.range(TaskKey(run.0)..).map(|(_, task)| task);
        tasks.take_while(move |task| task.row.run() == run)
    }

    pub(crate) fn task_at(&self, task: TaskKey) -> &TaskWrite {
        &self.tasks.rows[&task]
    }

    pub(crate) fn head_of(&self, run: RunKey) -> &Head {
        let first = &self.tasks.rows[&TaskKey(run.0)].row;
        first.head.as_ref().expect("the first task of a run carries its head")
    }

    pub(super) fn waits_of(
        &self,
        tasks: Range<TaskKey>,
    ) -> impl Iterator<Item = (TaskKey, &Waiting)> {
        let first = |task| (task, WaitId::new(WaitKind::Step, "", 0));
        let waits = self.waits.rows.range(first(tasks.start)..first(tasks.end));
        waits.map(|((task, _), wait)| (*task, wait))
    }

    fn holds_of(&self, tasks: Range<TaskKey>) -> impl Iterator<Item = (TaskKey, &Hold)> {
        let first = |task| (task, LimitKey::new("", ""));
        let holds = self.holds.rows.range(first(tasks.start)..first(tasks.end));
        holds.map(|((task, _), hold)| (*task, hold))
    }

    pub(super) fn find_limit_row(&self, limit: &LimitKey) -> LimitRow {
        self.limit_rows.rows.get(limit).copied().unwrap_or_default()
    }

    fn find_pause(&self, scope: &Scope) -> Option<Timestamp> {
        let (from, to) = self.pauses.get(scope)?.last()?;
        to.is_none().then_some(*from)
    }

    /// Whether a pause keeps the tasks of a queue from being claimed after these changes.
    pub(crate) fn is_queue_paused(&self, queue: &str, changes: &[PauseChange]) -> bool {
        [Scope::Queue(queue.to_owned()), Scope::Store].iter().any(|scope| {
            is_paused_after(changes, |other| other == scope, self.find_pause(scope).is_some())
        })
    }

    /// The first tasks by claim order that a worker can run.
    pub(crate) fn find_ready(
        &self,
        worker: WorkerId,
        max_weight: u32,
        only_awaited: bool,
        pauses: &[PauseChange],
        max: usize,
    ) -> Vec<(Timestamp, TaskKey)> {
        let Some(worker) = self.workers.get(&worker) else { return Vec::new() };
        let queues = worker.served.queues.iter();
        let queues = queues.filter(|queue| !self.is_queue_paused(queue, pauses));
        let lists = queues.flat_map(|queue| self.list_claimable(queue, only_awaited));
        let lists = lists.filter(|(group, _)| {
            group.weight <= max_weight && worker.served.knows_task(&group.workflow, &group.task)
        });
        let first = lists.flat_map(|(_, tasks)| tasks.iter().take(max));
        let mut ready: Vec<_> = first.copied().collect();
        ready.sort_unstable();
        ready.truncate(max);
        ready
    }

    /// The tasks of a queue that can be claimed, by task group.
    fn list_claimable(
        &self,
        queue: &str,
        only_awaited: bool,
    ) -> impl Iterator<Item = (&TaskGroup, &KeysByTime<TaskKey>)> {
        let queue: Arc<str> = queue.into();
        let kinds = [false, true].into_iter().skip(usize::from(only_awaited));
        kinds.flat_map(move |is_awaited| {
            let queue = queue.clone();
            let first = TaskList::Claimable(is_awaited, first_group(queue.clone()));
            self.tasks.lists.range(first..).map_while(move |(list, tasks)| match list {
                TaskList::Claimable(kind, group) if *kind == is_awaited && group.queue == queue => {
                    Some((group, tasks))
                }
                _ => None,
            })
        })
    }

    /// The tasks that are blocked on limits from this one on, by limit and task group.
    pub(super) fn list_blocked(
        &self,
        from: &LimitKey,
    ) -> impl Iterator<Item = (&LimitKey, &KeysByTime<TaskKey>)> + use<'_> {
        let first = TaskList::BlockedOn(from.clone(), first_group("".into()));
        self.tasks.lists.range(first..).map_while(|(list, tasks)| match list {
            TaskList::BlockedOn(limit, _) => Some((limit, tasks)),
            _ => None,
        })
    }

    fn find_old_run(&self, run: RunKey, head: &Head) -> OldRun {
        let (tasks, records) = (self.tasks_of(run).count(), self.records.list_keys(&run).count());
        let (next, end) = (TaskKey(run.0), TaskKey(run.0 + tasks as i64));
        let weight = u32::try_from(tasks + records).unwrap_or(u32::MAX);
        OldRun {
            id: head.id,
            ended_at: head.ended.map(|(_, at)| at),
            parent: head.parent.and_then(|above| Some(self.tasks.rows.get(&above)?.row.run())),
            rows: RunRows { run, next, end, weight },
        }
    }

    fn view_stored(&self, task: &TaskWrite) -> StoredTask {
        let TaskWrite { row, place, .. } = task;
        let filed = FiledTask {
            row: row.clone(),
            place: place.clone(),
            group: Some(group_of(task)),
            workflow: row.head.is_some().then(|| row.plan.workflow().to_owned()),
            is_unrecorded: row.head.is_some() && self.unrecorded.contains(&row.run()),
        };
        StoredTask { key: row.key, index: row.index, content: Ok(filed) }
    }

    /// The numbers in a range that the rows of a table belong to, each at least once.
    fn list_owners(&self, table: SideTable, owners: &Range<i64>) -> Vec<i64> {
        let tasks = TaskKey(owners.start)..TaskKey(owners.end);
        let runs = RunKey(owners.start)..RunKey(owners.end);
        match table {
            SideTable::Payloads => {
                let payloads = self.payloads.range((tasks.start, 0)..(tasks.end, 0));
                payloads.map(|((task, _), _)| task.0).collect()
            }
            SideTable::Waits => self.waits_of(tasks).map(|(task, _)| task.0).collect(),
            SideTable::Holds => self.holds_of(tasks).map(|(task, _)| task.0).collect(),
            SideTable::Records => self.records.lists.range(runs).map(|(run, _)| run.0).collect(),
            SideTable::Signals => {
                let signals = self.signals.rows.values().map(|signal| signal.run.0);
                signals.filter(|run| owners.contains(run)).collect()
            }
            // Rows of the others are parts of the rows that they belong to, or go with these.
            _ => Vec::new(),
        }
    }
}

/// No task group of this queue comes before this one.
fn first_group(queue: Arc<str>) -> TaskGroup {
    TaskGroup { queue, workflow: String::new(), task: String::new(), weight: 0 }
}
