//! The rows in memory that only an explanation asks for.

use super::{Memory, Queues};
use crate::Timestamp;
use crate::graph::TaskIndex;
use crate::limit::{Hold, LimitKey};
use crate::store::{Happened, RunKey, Scope, TaskKey};
use crate::want::{LiveWorker, Loaded, TaskGroup, Want};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

impl Memory {
    /// Answers a want that only an explanation has.
    pub(super) fn load_for_explanation(&self, want: &Want) -> Loaded {
        match want {
            Want::HoldersOf { limit, max } => Loaded::Holders(self.holders_of(limit, *max)),
            Want::BlockedBefore { limit, place, max } => {
                Loaded::Number(self.count_blocked_before(limit, *place, *max))
            }
            Want::ReadyBefore { queue, place, max } => {
                Loaded::TaskGroups(self.count_ready_before(queue, *place, *max))
            }
            Want::LiveWorkers => Loaded::Workers(self.live_workers()),
            Want::LastRecord { run, task, max } => {
                Loaded::RecordKind(self.last_record(*run, *task, *max))
            }
            Want::RecentDurations { like, max } => {
                Loaded::Durations(self.recent_durations(*like, *max))
            }
            other => unreachable!("{other:?} is no want of an explanation"),
        }
    }

    pub(super) fn pause_start(&self, scope: &Scope) -> Option<Timestamp> {
        let last = self.pauses.get(scope).and_then(|pauses| pauses.last());
        last.filter(|pause| pause.to.is_none()).map(|pause| pause.from)
    }

    fn last_record(&self, run: RunKey, task: TaskIndex, max: u32) -> Option<Happened> {
        let records = self.runs.get(&run).into_iter().flatten().rev().take(max as usize);
        let mut records = records.map(|seq| &self.records[seq]);
        records.find(|record| record.task == task).map(|record| record.what)
    }

    fn holders_of(&self, limit: &LimitKey, max: u32) -> Vec<(TaskKey, u32, Timestamp)> {
        let first = (limit.clone(), TaskKey(i64::MIN));
        let held = self.held.range(first..).take_while(|(other, _)| other == limit);
        let holder = |(limit, task): &(LimitKey, TaskKey)| {
            let Hold { units, since, .. } = self.holds[&(*task, limit.clone())];
            (*task, units, since)
        };
        held.take(max as usize).map(holder).collect()
    }

    fn count_blocked_before(&self, limit: &LimitKey, place: (Timestamp, TaskKey), max: u32) -> i64 {
        let queues = self.behind.get(limit).into_iter().flat_map(Queues::values);
        let before = queues.flatten().flat_map(|(_, tasks)| tasks.range(..place));
        before.take(max as usize).count() as i64
    }

    fn count_ready_before(
        &self,
        queue: &Arc<str>,
        place: (Timestamp, TaskKey),
        max: u32,
    ) -> Vec<(TaskGroup, u32)> {
        let mut groups = BTreeMap::new();
        for (lane, tasks) in self.open.iter().filter_map(|queues| queues.get(queue)).flatten() {
            let before = tasks.range(..place).take(max as usize).count() as u32;
            if before > 0 {
                let group = TaskGroup::new(queue, &lane.plan, lane.task);
                let counted: &mut u32 = groups.entry(group).or_default();
                *counted = counted.saturating_add(before).min(max);
            }
        }
        groups.into_iter().collect()
    }

    pub(super) fn live_workers(&self) -> Vec<LiveWorker> {
        let alive = self.workers.iter().filter(|(_, worker)| worker.alive);
        let view = alive.map(|(&id, worker)| LiveWorker {
            id,
            served: worker.served.clone(),
            slots: worker.slots,
        });
        view.collect()
    }

    fn recent_durations(&self, like: TaskKey, max: u32) -> Vec<Duration> {
        let group = |task: &TaskKey| {
            let (row, _) = self.tasks.get(task)?;
            Some(TaskGroup::new(&self.head(row.run()).queue, &row.plan, row.index))
        };
        let Some(own) = group(&like) else { return Vec::new() };
        let recent = self.records.values().rev().take(max as usize);
        let is_alike = |task: &TaskKey| group(task).as_ref() == Some(&own);
        let succeeded = recent.filter(|record| {
            record.what == Happened::Succeeded && is_alike(&record.run.task(record.task))
        });
        succeeded.filter_map(|record| Some(record.at.since(record.begun_at?))).collect()
    }
}
