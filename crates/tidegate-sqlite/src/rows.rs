//! The rows that a request works on, inside one transaction of the writer.

use crate::columns::{self, Stored, bind_changing, bind_lasting, bind_record, timestamp};
use crate::error::Error;
use crate::lanes::{Front, Merge};
use crate::ledger::{Ledger, QUEUE, RUN, STORE};
use crate::sql::Statements;
use rusqlite::OptionalExtension;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate_core::delta::{Delta, PauseChange, TaskWrite};
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Fence, WorkerId};
use tidegate_core::rows::{Gate, Owned, Payload, Place, Row};
use tidegate_core::store::{Bytes, Record, RequestId, RunKey, Scope, TaskKey};
use tidegate_core::want::{Loaded, Loader, ServedTasks, Want};
use tidegate_core::{RunId, Timestamp};

/// The fewest rows that are read of a lane at once: a query costs as much as a few rows.
const LANE_ROWS_MIN: usize = 16;

impl Ledger<'_> {
    /// The last number given to a task.
    pub(crate) fn last_task(&mut self) -> Result<i64, Error> {
        match self.seen.last_task {
            Some(last) => Ok(last),
            None => Ok(self.sql.last_task.query_row([], |row| row.get(0))?),
        }
    }

    /// The last number given to a record.
    pub(crate) fn last_record(&mut self) -> Result<i64, Error> {
        match self.seen.last_record {
            Some(last) => Ok(last),
            None => Ok(self.sql.last_record.query_row([], |row| row.get(0))?),
        }
    }

    /// The row of these columns.
    fn row(&mut self, stored: Stored) -> Result<Row, Error> {
        let Statements { plan, workflow, limit_key, .. } = &mut self.sql;
        let named = self.catalog.named(&stored, plan, workflow, limit_key)?;
        stored.row(named)
    }

    /// The number of the limit behind which a task stands.
    fn behind_id(&mut self, place: &Place) -> Result<Option<i64>, Error> {
        place.behind.as_ref().map(|limit| self.limit_id(limit)).transpose()
    }

    /// A lane in which something can be claimed from now on.
    fn opens(&mut self, write: &TaskWrite) -> Result<(), Error> {
        let TaskWrite { row, place, queue, .. } = write;
        let Some(gate) = place.gate.filter(|gate| gate.is_open()) else { return Ok(()) };
        if gate == Gate::Awaited {
            self.seen.awaited = Some(true);
        }
        if !self.seen.empty.is_empty() || self.stirred.has_others {
            let lane = self.belongs(queue, &row.plan, row.index)?.lane;
            self.seen.empty.remove(&(gate, lane));
            self.stirred.lanes.insert(lane);
        }
        Ok(())
    }

    /// A task row was written.
    fn note_written(&mut self, write: TaskWrite) -> Result<(), Error> {
        self.may_wait(&write);
        self.opens(&write)?;
        self.seen.remember(write.row);
        Ok(())
    }

    /// The gates behind which there may be something to claim.
    fn open_gates(&mut self, only_awaited: bool) -> Result<Vec<Gate>, Error> {
        let awaited = match self.seen.awaited {
            Some(awaited) => awaited,
            None => {
                let awaited = self.sql.any_behind.exists([Gate::Awaited.code()])?;
                *self.seen.awaited.insert(awaited)
            }
        };
        let open = (!only_awaited).then_some(Gate::Open);
        Ok(open.into_iter().chain(awaited.then_some(Gate::Awaited)).collect())
    }
}

impl Loader for Ledger<'_> {
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
            Want::IsPaused(scope) => Loaded::Flag(self.is_paused(scope)?),
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
            Want::Place(task) => Loaded::Place(self.place_of(*task)?),
            Want::IsMisfiled(task) => Loaded::Flag(self.is_filed_wrongly(*task)?),
            Want::HasOrphans(stray) => Loaded::Flag(self.finds_orphans(stray)?),
            Want::PruningRun { max } => Loaded::RunRows(self.pruning_run(*max)?),
            Want::OldRuns { from, before, max } => {
                Loaded::OldRuns(self.old_runs(*from, *before, *max)?)
            }
            Want::OldRecords { from, max } => Loaded::OldRecords(self.old_records(*from, *max)?),
            Want::OldSignals { from, max } => Loaded::OldSignals(self.old_signals(*from, *max)?),
        })
    }
}

impl Ledger<'_> {
    /// Writes a delta, and sets the numbers of its records.
    pub(crate) fn apply_delta(&mut self, delta: &mut Delta) -> Result<(), Error> {
        for limit in &delta.limits {
            self.write_limit(limit)?;
        }
        for pause in &delta.pauses {
            self.change_pause(pause)?;
        }
        for (task, waits) in &delta.waits {
            for (id, wait) in waits {
                match wait {
                    Some(wait) => self.write_wait(*task, wait)?,
                    None => self.delete_wait(*task, id)?,
                }
            }
        }
        for (number, signal) in &delta.signals {
            self.write_signal(*number, signal)?;
        }
        for (task, holds) in &delta.holds {
            for (limit, hold) in holds {
                match hold {
                    Some(hold) => self.write_hold(*task, hold)?,
                    None => self.delete_hold(*task, limit)?,
                }
            }
        }
        for event in &delta.rate_events {
            self.write_rate_event(event)?;
        }
        for (limit, alarm) in &delta.limit_alarms {
            self.write_limit_alarm(limit, *alarm)?;
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
            self.forget_words(worker)?;
        }
        for (worker, task) in &delta.notifications {
            self.write_word(*worker, *task)?;
        }
        // With the notifications for them.
        for worker in &delta.forgotten_workers {
            self.forget_worker(*worker)?;
        }
        for (row, head) in &delta.refiled {
            self.file_again(row, head)?;
        }
        for orphan in &delta.orphans {
            self.remove_orphans(orphan)?;
        }
        self.remove_pruned(delta)
    }

    fn find_run(&mut self, run: RunId) -> Result<Option<RunKey>, Error> {
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
        if let Some(row) = self.seen.recall(task) {
            return Ok(Some(row));
        }
        match self.sql.task.query_row([task.0], columns::read).optional()? {
            Some(stored) => self.row(stored).map(Some),
            None => Ok(None),
        }
    }

    fn find_tasks(&mut self, run: RunKey) -> Result<Vec<Row>, Error> {
        let Some(first) = self.sql.task.query_row([run.0], columns::read).optional()? else {
            return Ok(Vec::new());
        };
        let count = self.catalog.plan(first.plan, &mut self.sql.plan)?.task_count();
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
                self.seen.empty.insert(lane);
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

    fn find_payload(&mut self, task: TaskKey, kind: Payload) -> Result<Option<Bytes>, Error> {
        if let Some((last, input)) = &self.seen.input
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
            self.seen.input = body.clone().map(|input| (task, input));
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
        self.seen.last_task = Some(last + i64::from(tasks));
        Ok(RunKey(last + 1))
    }

    fn insert_task(&mut self, write: TaskWrite) -> Result<(), Error> {
        let TaskWrite { row, queue, .. } = &write;
        let belongs = self.belongs(queue, &row.plan, row.index)?;
        let behind = self.behind_id(&write.place)?;
        bind_changing(&mut self.sql.insert, &write, behind)?;
        bind_lasting(&mut self.sql.insert, row, &belongs)?;
        self.sql.insert.raw_execute()?;
        if let Some(key) = row.head.as_ref().and_then(|head| head.key.as_deref()) {
            self.sql.add_key.execute((belongs.workflow, key, row.key.0))?;
        }
        self.note_written(write)
    }

    fn update_task(&mut self, write: TaskWrite) -> Result<(), Error> {
        let behind = self.behind_id(&write.place)?;
        let update = match write.row.head {
            Some(_) => &mut self.sql.update_first,
            None => &mut self.sql.update,
        };
        bind_changing(update, &write, behind)?;
        self.stirred.ended |= write.row.head.as_ref().is_some_and(|head| head.ended.is_some());
        let updated = update.raw_execute()?;
        assert_eq!(updated, 1, "a row that is replaced was there");
        self.note_written(write)
    }

    fn keep_payload(&mut self, task: TaskKey, kind: Payload, bytes: &Bytes) -> Result<(), Error> {
        self.sql.keep.execute((task.0, kind.code(), &**bytes))?;
        Ok(())
    }

    fn add_record(&mut self, record: &Record) -> Result<u64, Error> {
        let last = self.last_record()?;
        bind_record(&mut self.sql.record, last + 1, record)?;
        self.sql.record.raw_execute()?;
        self.seen.last_record = Some(last + 1);
        Ok(last as u64 + 1)
    }

    fn is_paused(&mut self, scope: &Scope) -> Result<bool, Error> {
        Ok(self.sql.is_paused.exists(pause_name(scope))?)
    }

    fn is_queue_paused(&mut self, queue: &str) -> Result<bool, Error> {
        Ok(self.paused()?.stops(queue))
    }

    fn change_pause(&mut self, change: &PauseChange) -> Result<(), Error> {
        let (scope, name) = pause_name(&change.scope);
        let at = change.at.as_micros();
        match change.begins {
            true => self.sql.pause.execute((scope, name, at))?,
            false => self.sql.unpause.execute((scope, name, at))?,
        };
        self.forget_paused();
        self.stirred.unpaused |= !change.begins;
        Ok(())
    }
}

/// What a pause is kept under.
fn pause_name(scope: &Scope) -> (i64, String) {
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
