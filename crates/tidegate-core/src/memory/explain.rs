//! What the memory store reads for an explanation.

use super::{Lane, Memory, Queues};
use crate::Timestamp;
use crate::explain::{Candidate, Reads};
use crate::graph::TaskIndex;
use crate::limit::{Hold, Limit, LimitKey};
use crate::rows::{Payload, Row};
use crate::store::{Bytes, Happened, Scope, TaskKey};
use crate::wait::Waiting;
use std::convert::Infallible;
use std::time::Duration;

/// The memory, to be read only.
pub(super) struct Reading<'m>(pub(super) &'m Memory);

impl Reads for Reading<'_> {
    type Error = Infallible;

    fn row(&mut self, task: TaskKey) -> Result<Option<Row>, Infallible> {
        Ok(self.0.tasks.get(&task).map(|(row, _)| row.clone()))
    }

    fn payload(&mut self, task: TaskKey, kind: Payload) -> Result<Option<Bytes>, Infallible> {
        Ok(self.0.kept(task, kind))
    }

    fn last_end(
        &mut self,
        task: TaskKey,
        index: TaskIndex,
        max: u32,
    ) -> Result<Option<Happened>, Infallible> {
        let records = self.0.runs.get(&task.run(index)).into_iter().flatten().rev();
        let mut records = records.take(max as usize).map(|seq| &self.0.records[seq]);
        Ok(records.find(|record| record.task == index).map(|record| record.what))
    }

    fn waits(&mut self, task: TaskKey) -> Result<Vec<Waiting>, Infallible> {
        Ok(self.0.waits_of(task).cloned().collect())
    }

    fn paused_since(&mut self, scope: &Scope) -> Result<Option<Timestamp>, Infallible> {
        let last = self.0.pauses.get(scope).and_then(|pauses| pauses.last());
        Ok(last.filter(|pause| pause.to.is_none()).map(|pause| pause.from))
    }

    fn limit(&mut self, name: &str) -> Result<Option<Limit>, Infallible> {
        Ok(self.0.limits.get(name).cloned())
    }

    fn in_use(&mut self, limit: &LimitKey) -> Result<u32, Infallible> {
        Ok(self.0.units_of(limit))
    }

    fn begun(&mut self, limit: &LimitKey) -> Result<Vec<(Timestamp, u32)>, Infallible> {
        Ok(self.0.begun.get(limit).cloned().unwrap_or_default())
    }

    fn holds(&mut self, task: TaskKey) -> Result<Vec<Hold>, Infallible> {
        Ok(self.0.holds_of(task).cloned().collect())
    }

    fn holders(
        &mut self,
        limit: &LimitKey,
        max: usize,
    ) -> Result<Vec<(TaskKey, u32, Timestamp)>, Infallible> {
        let first = (limit.clone(), TaskKey(i64::MIN));
        let held = self.0.held.range(first..).take_while(|(other, _)| other == limit);
        let holder = |(limit, task): &(LimitKey, TaskKey)| {
            let Hold { units, since, .. } = self.0.holds[&(*task, limit.clone())];
            (*task, units, since)
        };
        Ok(held.take(max).map(holder).collect())
    }

    fn behind_before(
        &mut self,
        limit: &LimitKey,
        place: (Timestamp, TaskKey),
        max: u32,
    ) -> Result<u32, Infallible> {
        let queues = self.0.behind.get(limit).into_iter().flat_map(Queues::values);
        let before = queues.flatten().flat_map(|(_, tasks)| tasks.range(..place));
        Ok(before.take(max as usize).count() as u32)
    }

    fn ready_before(
        &mut self,
        queue: &str,
        place: (Timestamp, TaskKey),
        max: u32,
    ) -> Result<u32, Infallible> {
        let is_served = |lane: &Lane| {
            let serving =
                self.0.workers.values().filter(|worker| worker.served.queues.contains(queue));
            let mut alive = serving.filter(|worker| worker.alive);
            alive.any(|worker| worker.can_run(lane, worker.slots))
        };
        let lanes = self.0.open.iter().filter_map(|queues| queues.get(queue)).flatten();
        let served = lanes.filter(|(lane, _)| is_served(lane));
        let before = served.flat_map(|(_, tasks)| tasks.range(..place));
        Ok(before.take(max as usize).count() as u32)
    }

    fn workers_for(
        &mut self,
        queue: &str,
        workflow: &str,
        task: &str,
    ) -> Result<Vec<Candidate>, Infallible> {
        let alive = self.0.workers.iter().filter(|(_, worker)| worker.alive);
        let asked = alive.map(|(&id, worker)| Candidate {
            worker: id,
            serves: worker.served.queues.contains(queue),
            knows: worker.served.knows_task(workflow, task),
            slots: worker.slots,
        });
        Ok(asked.collect())
    }

    fn recent(&mut self, task: TaskKey, max: u32) -> Result<Vec<Duration>, Infallible> {
        let lane = |task: &TaskKey| {
            let (row, _) = self.0.tasks.get(task)?;
            Some((self.0.head(row.run()).queue.clone(), Lane::of(row)))
        };
        let Some(own) = lane(&task) else { return Ok(Vec::new()) };
        let recent = self.0.records.values().rev().take(max as usize);
        let like_it = recent.filter(|record| {
            let succeeded = record.what == Happened::Succeeded;
            succeeded && lane(&record.run.task(record.task)).as_ref() == Some(&own)
        });
        Ok(like_it.filter_map(|record| Some(record.at.since(record.begun_at?))).collect())
    }
}
