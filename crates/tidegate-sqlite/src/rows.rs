//! The rows that a request or a view loads, inside one transaction.

use crate::columns::{self, Stored, timestamp};
use crate::error::Error;
use crate::lanes::{Front, Merge};
use crate::loader::{QUEUE, RUN, RowLoader, STORE};
use crate::sql::LoadStatements;
use rusqlite::OptionalExtension;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate_core::delta::PauseChange;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Fence, WorkerId};
use tidegate_core::rows::{Gate, Owned, Payload, Row};
use tidegate_core::store::{Bytes, RequestId, RunKey, Scope, TaskKey};
use tidegate_core::want::{Loaded, Loader, ServedTasks, Want};
use tidegate_core::{RunId, Timestamp};

/// The fewest rows that are read of a lane at once: a query costs as much as a few rows.
const LANE_ROWS_MIN: usize = 16;

impl RowLoader<'_> {
    /// The last number given to a task.
    pub(crate) fn last_task(&mut self) -> Result<i64, Error> {
        match self.cache.last_task {
            Some(last) => Ok(last),
            None => Ok(self.sql.last_task.query_row([], |row| row.get(0))?),
        }
    }

    /// The last number given to a record.
    pub(crate) fn last_record(&mut self) -> Result<i64, Error> {
        match self.cache.last_record {
            Some(last) => Ok(last),
            None => Ok(self.sql.last_record.query_row([], |row| row.get(0))?),
        }
    }

    /// The row of these columns.
    pub(crate) fn row(&mut self, stored: Stored) -> Result<Row, Error> {
        let LoadStatements { plan, workflow, limit_key, .. } = &mut self.sql;
        let named = self.catalog.named(&stored, plan, workflow, limit_key)?;
        stored.row(named)
    }

    /// The gates behind which there may be something to claim.
    fn open_gates(&mut self, only_awaited: bool) -> Result<Vec<Gate>, Error> {
        let awaited = match self.cache.awaited {
            Some(awaited) => awaited,
            None => {
                let awaited = self.sql.any_behind.exists([Gate::Awaited.code()])?;
                *self.cache.awaited.insert(awaited)
            }
        };
        let open = (!only_awaited).then_some(Gate::Open);
        Ok(open.into_iter().chain(awaited.then_some(Gate::Awaited)).collect())
    }
}

impl Loader for RowLoader<'_> {
    type Stop = Error;

    fn load(&mut self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::Now => Loaded::Time(SystemTime::now().into()),
            Want::RunById(run) => Loaded::Run(self.find_run(*run)?),
            Want::RunByKey { queue, workflow, key } => {
                Loaded::Run(self.find_run_by_key(queue, workflow, key)?)
            }
            Want::Task(task) => Loaded::Task(self.find_task(*task)?),
            Want::WholeRun(run) => Loaded::Tasks(self.find_tasks(*run)?),
            Want::DueTasks { until, max } => Loaded::TaskKeys(self.find_due_tasks(*until, *max)?),
            Want::DueLimits { until, max } => Loaded::LimitKeys(self.limits_due(*until, *max)?),
            Want::NextAlarm => Loaded::Instant(self.next_alarm()?),
            Want::OwnedBy { worker, max } => Loaded::Owned(self.find_owned(*worker, *max)?),
            Want::Ready { worker, max_weight, only_awaited, pauses, max } => Loaded::Ordered(
                self.find_ready(*worker, *max_weight, *only_awaited, pauses, *max)?,
            ),
            Want::Served(worker) => Loaded::Served(self.served_tasks(*worker)?),
            Want::PauseStart(scope) => Loaded::Instant(self.pause_start(scope)?),
            Want::IsQueuePaused(queue) => Loaded::Flag(self.is_queue_paused(queue)?),
            Want::PausedTime { run, queue, from, to } => {
                Loaded::Duration(self.stood_still(*run, queue, *from, *to)?)
            }
            Want::QueueDepth { queue, max } => {
                Loaded::Number(self.runs_waiting(queue, *max)?.into())
            }
            Want::TaskNumbers { count, .. } => Loaded::Number(self.allocate_tasks(*count)?.0),
            Want::SignalNumber { .. } => Loaded::Number(self.next_signal_number()? as i64),
            Want::Payload(task, kind) => Loaded::Payload(self.find_payload(*task, *kind)?),
            Want::Notifications(worker) => Loaded::TaskKeys(self.words_for(*worker)?),
            Want::Waits(task) => Loaded::Waits(self.waits_of(*task)?),
            Want::Wait(task, id) => Loaded::Wait(self.find_wait(*task, id)?),
            Want::SignalWaits { run, name, max } => {
                Loaded::SignalWaits(self.open_signal_waits(*run, name, *max)?)
            }
            Want::WaitersOf(run) => Loaded::RunWaits(self.waits_for_run(*run)?),
            Want::EdgesFrom { run, tasks } => Loaded::Edges(self.waits_for_runs(*run, *tasks)?),
            Want::IsSent(run, id) => Loaded::Flag(self.knows_signal(*run, *id)?),
            Want::Signals { run, name, max } => {
                Loaded::Signals(self.untaken_signals(*run, name, *max)?)
            }
            Want::Limit(name) => Loaded::Limit(self.find_limit(name)?),
            Want::UnitsInUse(limit) => Loaded::Number(self.units_in_use(limit)?.into()),
            Want::RateEvents(limit) => Loaded::RateEvents(self.begun_under(limit)?),
            Want::LimitAlarm(limit) => Loaded::Instant(self.alarm_of_limit(limit)?),
            Want::Holds(task) => Loaded::Holds(self.holds_of(*task)?),
            Want::BlockedOn { limit, max } => Loaded::Ordered(self.stand_behind(limit, *max)?),
            Want::BlockedKeys(name) => Loaded::LimitKeys(self.keys_stood_behind(name)?),
            Want::HoldersOf { .. }
            | Want::BlockedBefore { .. }
            | Want::ReadyBefore { .. }
            | Want::LiveWorkers
            | Want::LastRecord { .. }
            | Want::RecentDurations { .. } => self.load_for_explanation(want)?,
            Want::PruningRun { max } => Loaded::RunRows(self.pruning_run(*max)?),
            Want::OldRuns { from, before, max } => {
                Loaded::OldRuns(self.old_runs(*from, *before, *max)?)
            }
            Want::OldRecords { from, max } => Loaded::OldRecords(self.old_records(*from, *max)?),
            Want::OldSignals { from, max } => Loaded::OldSignals(self.old_signals(*from, *max)?),
            Want::Audit(want) => self.load_stored(want)?,
        })
    }
}

impl RowLoader<'_> {
    pub(crate) fn find_run(&mut self, run: RunId) -> Result<Option<RunKey>, Error> {
        let id = run.as_u128().to_be_bytes();
        Ok(self.sql.find.query_row([id], |row| row.get(0).map(RunKey)).optional()?)
    }

    fn find_run_by_key(
        &mut self,
        queue: &str,
        workflow: &str,
        key: &str,
    ) -> Result<Option<RunKey>, Error> {
        let names = (queue, workflow, key);
        Ok(self.sql.find_key.query_row(names, |row| row.get(0).map(RunKey)).optional()?)
    }

    pub(crate) fn find_task(&mut self, task: TaskKey) -> Result<Option<Row>, Error> {
        if let Some(row) = self.cache.recall(task) {
            return Ok(Some(row));
        }
        match self.sql.task.query_row([task.0], columns::read).optional()? {
            Some(stored) => self.row(stored).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn find_tasks(&mut self, run: RunKey) -> Result<Vec<Row>, Error> {
        let Some(first) = self.sql.task.query_row([run.0], columns::read).optional()? else {
            return Ok(Vec::new());
        };
        let count = self.find_plan(first.plan)?.task_count();
        let keys = (run.0, run.0.saturating_add_unsigned(count as u64));
        let stored = self.sql.tasks.query_map(keys, columns::read)?;
        let stored = stored.collect::<rusqlite::Result<Vec<_>>>()?;
        stored.into_iter().map(|stored| self.row(stored)).collect()
    }

    fn find_due_tasks(&mut self, now: Timestamp, max: u32) -> Result<Vec<TaskKey>, Error> {
        let due = self.sql.due.query_map((now.as_micros(), max), |row| row.get(0).map(TaskKey))?;
        Ok(due.collect::<rusqlite::Result<_>>()?)
    }

    fn next_alarm(&mut self) -> Result<Option<Timestamp>, Error> {
        let alarm = self.sql.next_alarm.query_row([], |row| row.get::<_, Option<i64>>(0))?;
        let alarms = [alarm.map(timestamp), self.first_limit_alarm()?];
        Ok(alarms.into_iter().flatten().min())
    }

    fn find_owned(&mut self, worker: WorkerId, max: u32) -> Result<Vec<Owned>, Error> {
        let owned = self.sql.owned.query_map((worker.0 as i64, max), |row| {
            let (task, stopping) = (TaskKey(row.get(0)?), row.get::<_, Option<i64>>(3)?.is_some());
            let fence = Fence(row.get::<_, i64>(1)? as u64);
            let request = RequestId(row.get::<_, i64>(2)? as u64);
            let index = TaskIndex::from_u32(row.get(4)?);
            Ok(Owned { task, index, fence, request, stopping })
        })?;
        Ok(owned.collect::<rusqlite::Result<_>>()?)
    }

    fn find_ready(
        &mut self,
        worker: WorkerId,
        heaviest: u32,
        only_awaited: bool,
        pauses: &[PauseChange],
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.paused()?;
        self.served(worker)?;
        let gates = self.open_gates(only_awaited)?;
        let lanes = self.lanes(worker, heaviest, &gates, pauses);
        let rows = (max as usize).div_ceil(lanes.len().max(1)).max(LANE_ROWS_MIN);
        let mut merge = Merge::default();
        for lane in lanes {
            let front = Front::read(lane, &mut self.sql, rows.min(max as usize))?;
            if front.is_empty() {
                self.cache.empty.insert(lane);
            } else {
                merge.add(front);
            }
        }
        let mut ready = Vec::new();
        while ready.len() < max as usize
            && let Some(next) = merge.next(&mut self.sql, rows)?
        {
            ready.push((timestamp(next.0), TaskKey(next.1)));
        }
        Ok(ready)
    }

    fn served_tasks(&mut self, worker: WorkerId) -> Result<Option<Arc<ServedTasks>>, Error> {
        Ok(self.served(worker)?.map(|served| served.tasks.clone()))
    }

    pub(crate) fn find_payload(
        &mut self,
        task: TaskKey,
        kind: Payload,
    ) -> Result<Option<Bytes>, Error> {
        if let Some((last, input)) = &self.cache.input
            && (*last, Payload::Input) == (task, kind)
        {
            return Ok(Some(input.clone()));
        }
        let body = self
            .sql
            .payload
            .query_row((task.0, kind.code()), |row| Ok(Bytes::from(row.get_ref(0)?.as_blob()?)));
        let body = body.optional()?;
        if kind == Payload::Input {
            self.cache.input = body.clone().map(|input| (task, input));
        }
        Ok(body)
    }

    fn stood_still(
        &mut self,
        run: RunId,
        queue: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Duration, Error> {
        let (from, to) = (from.as_micros(), to.as_micros());
        let mut stretches = Vec::new();
        let run = run.to_string();
        for (scope, name) in [(RUN, run.as_str()), (QUEUE, queue), (STORE, "")] {
            let mut rows = self.sql.pauses.query((scope, name, from, to))?;
            while let Some(row) = rows.next()? {
                let (begin, end): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
                stretches.push((begin.max(from), end.unwrap_or(to).min(to)));
            }
        }
        Ok(covered(stretches, from))
    }

    fn allocate_tasks(&mut self, tasks: u32) -> Result<RunKey, Error> {
        let last = self.last_task()?;
        self.cache.last_task = Some(last + i64::from(tasks));
        Ok(RunKey(last + 1))
    }

    fn is_queue_paused(&mut self, queue: &str) -> Result<bool, Error> {
        Ok(self.paused()?.stops(queue))
    }
}

/// The columns by which a pause is found.
pub(crate) fn pause_name(scope: &Scope) -> (i64, String) {
    match scope {
        Scope::Run(run) => (RUN, run.to_string()),
        Scope::Queue(queue) => (QUEUE, queue.clone()),
        Scope::Store => (STORE, String::new()),
    }
}

/// How much time is covered by at least one of the stretches; none begins before `from`.
fn covered(mut stretches: Vec<(i64, i64)>, from: i64) -> Duration {
    stretches.sort_unstable();
    let (mut covered, mut reached) = (0, from);
    for (begin, end) in stretches {
        covered += (end - begin.max(reached)).max(0);
        reached = reached.max(end);
    }
    Duration::from_micros(covered.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_that_overlap_count_once() {
        let covered = |stretches: &[(i64, i64)]| covered(stretches.to_vec(), 0).as_micros();
        assert_eq!(covered(&[]), 0);
        assert_eq!(covered(&[(5, 7), (0, 2)]), 4);
        assert_eq!(covered(&[(0, 10), (2, 3), (5, 12)]), 12);
        assert_eq!(covered(&[(4, 4), (6, 5)]), 0);
    }
}
