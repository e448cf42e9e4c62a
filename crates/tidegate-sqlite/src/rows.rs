//! The rows that a turn works on, inside one transaction of the writer.

use crate::columns::{self, Stored, bind_changing, bind_lasting, bind_record, timestamp};
use crate::error::Error;
use crate::lanes::{Front, Merge};
use crate::ledger::{Ledger, QUEUE, RUN, STORE};
use crate::sql::Statements;
use rusqlite::OptionalExtension;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::audit::Stray;
use tidegate_core::delta::{PauseChange, RateEvent, SignalChange, TaskWrite};
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Fence, WorkerId};
use tidegate_core::limit::{Hold, Limit, LimitKey};
use tidegate_core::plan::Plan;
use tidegate_core::rows::{Gate, Head, Owned, Payload, Place, Row, Rows};
use tidegate_core::store::{Bytes, Record, RunKey, Scope, TaskKey, TurnId};
use tidegate_core::wait::{WaitId, Waiting};
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

impl Rows for Ledger<'_> {
    type Error = Error;

    fn find(&mut self, run: RunId) -> Result<Option<RunKey>, Error> {
        let id = run.as_u128().to_be_bytes();
        Ok(self.sql.find.query_row([id], |row| row.get(0).map(RunKey)).optional()?)
    }

    fn find_key(
        &mut self,
        queue: &str,
        workflow: &str,
        key: &str,
    ) -> Result<Option<RunKey>, Error> {
        let names = (queue, workflow, key);
        Ok(self.sql.find_key.query_row(names, |row| row.get(0).map(RunKey)).optional()?)
    }

    fn task(&mut self, task: TaskKey) -> Result<Option<Row>, Error> {
        if let Some(row) = self.seen.recall(task) {
            return Ok(Some(row));
        }
        match self.sql.task.query_row([task.0], columns::read).optional()? {
            Some(stored) => self.row(stored).map(Some),
            None => Ok(None),
        }
    }

    fn tasks(&mut self, run: RunKey) -> Result<Vec<Row>, Error> {
        let Some(first) = self.sql.task.query_row([run.0], columns::read).optional()? else {
            return Ok(Vec::new());
        };
        let count = self.catalog.plan(first.plan, &mut self.sql.plan)?.task_count();
        let keys = (run.0, run.0.saturating_add_unsigned(count as u64));
        let stored = self.sql.tasks.query_map(keys, columns::read)?;
        let stored = stored.collect::<rusqlite::Result<Vec<_>>>()?;
        stored.into_iter().map(|stored| self.row(stored)).collect()
    }

    fn due(&mut self, now: Timestamp, max: u32) -> Result<Vec<TaskKey>, Error> {
        let due = self.sql.due.query_map((now.as_micros(), max), |row| row.get(0).map(TaskKey))?;
        Ok(due.collect::<rusqlite::Result<_>>()?)
    }

    fn next_alarm(&mut self) -> Result<Option<Timestamp>, Error> {
        let alarm = self.sql.next_alarm.query_row([], |row| row.get::<_, Option<i64>>(0))?;
        let alarms = [alarm.map(timestamp), self.first_limit_alarm()?];
        Ok(alarms.into_iter().flatten().min())
    }

    fn owned(&mut self, worker: WorkerId, max: u32) -> Result<Vec<Owned>, Error> {
        let owned = self.sql.owned.query_map((worker.0 as i64, max), |row| {
            let (task, stopping) = (TaskKey(row.get(0)?), row.get::<_, Option<i64>>(3)?.is_some());
            let fence = Fence(row.get::<_, i64>(1)? as u64);
            let turn = TurnId(row.get::<_, i64>(2)? as u64);
            Ok(Owned { task, fence, turn, stopping })
        })?;
        Ok(owned.collect::<rusqlite::Result<_>>()?)
    }

    fn ready(
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

    fn can_run(
        &mut self,
        worker: WorkerId,
        heaviest: u32,
        queue: &Arc<str>,
        plan: &Arc<Plan>,
        task: TaskIndex,
    ) -> Result<bool, Error> {
        if plan.task(task).weight > heaviest {
            return Ok(false);
        }
        let (workflow, task) = (plan.workflow(), plan.known_as(task));
        Ok(self.served(worker)?.is_some_and(|served| served.can_run(queue, workflow, task)))
    }

    fn payload(&mut self, task: TaskKey, kind: Payload) -> Result<Option<Bytes>, Error> {
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

    fn waiting(&mut self, queue: &str, max: u32) -> Result<u32, Error> {
        self.runs_waiting(queue, max)
    }

    fn allocate(&mut self, tasks: u32) -> Result<RunKey, Error> {
        let last = self.last_task()?;
        self.seen.last_task = Some(last + i64::from(tasks));
        Ok(RunKey(last + 1))
    }

    fn insert(&mut self, write: TaskWrite) -> Result<(), Error> {
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

    fn update(&mut self, write: TaskWrite) -> Result<(), Error> {
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

    fn keep(&mut self, task: TaskKey, kind: Payload, bytes: &Bytes) -> Result<(), Error> {
        self.sql.keep.execute((task.0, kind.code(), &**bytes))?;
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<u64, Error> {
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

    fn forget(&mut self, worker: WorkerId) -> Result<(), Error> {
        self.forget_worker(worker)
    }

    fn leave_word(&mut self, worker: WorkerId, task: TaskKey) -> Result<(), Error> {
        self.write_word(worker, task)
    }

    fn words(&mut self, worker: WorkerId) -> Result<Vec<TaskKey>, Error> {
        self.words_for(worker)
    }

    fn drop_words(&mut self, worker: WorkerId) -> Result<(), Error> {
        self.forget_words(worker)
    }

    fn place(&mut self, task: TaskKey) -> Result<Option<Place>, Error> {
        self.place_of(task)
    }

    fn is_misfiled(&mut self, row: &Row, head: &Head) -> Result<bool, Error> {
        self.is_filed_wrongly(row, head)
    }

    fn refile(&mut self, row: &Row, head: &Head) -> Result<(), Error> {
        self.file_again(row, head)
    }

    fn has_orphans(&mut self, stray: &Stray) -> Result<bool, Error> {
        self.finds_orphans(stray)
    }

    fn sweep(&mut self, stray: &Stray) -> Result<(), Error> {
        self.remove_orphans(stray)
    }

    fn waits(&mut self, task: TaskKey) -> Result<Vec<Waiting>, Error> {
        self.waits_of(task)
    }

    fn wait(&mut self, task: TaskKey, id: &WaitId) -> Result<Option<Waiting>, Error> {
        self.find_wait(task, id)
    }

    fn put_wait(&mut self, task: TaskKey, wait: &Waiting) -> Result<(), Error> {
        self.write_wait(task, wait)
    }

    fn drop_wait(&mut self, task: TaskKey, id: &WaitId) -> Result<(), Error> {
        self.delete_wait(task, id)
    }

    fn signal_waits(
        &mut self,
        run: RunKey,
        name: &str,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey, WaitId)>, Error> {
        self.open_signal_waits(run, name, max)
    }

    fn run_waits(&mut self, run: RunKey) -> Result<Vec<(TaskKey, WaitId)>, Error> {
        self.waits_for_run(run)
    }

    fn waited_by(
        &mut self,
        run: RunKey,
        tasks: u32,
    ) -> Result<Vec<(TaskKey, WaitId, RunKey)>, Error> {
        self.waits_for_runs(run, tasks)
    }

    fn signal_number(&mut self) -> Result<u64, Error> {
        self.next_signal_number()
    }

    fn was_sent(&mut self, run: RunKey, id: u128) -> Result<bool, Error> {
        self.knows_signal(run, id)
    }

    fn signals(
        &mut self,
        run: RunKey,
        name: &str,
        max: u32,
    ) -> Result<Vec<(u64, Option<Bytes>)>, Error> {
        self.untaken_signals(run, name, max)
    }

    fn change_signal(&mut self, number: u64, change: &SignalChange) -> Result<(), Error> {
        self.write_signal(number, change)
    }

    fn limit(&mut self, name: &str) -> Result<Option<Limit>, Error> {
        self.find_limit(name)
    }

    fn set_limit(&mut self, limit: &Limit) -> Result<(), Error> {
        self.write_limit(limit)
    }

    fn in_use(&mut self, limit: &LimitKey) -> Result<u32, Error> {
        self.units_in_use(limit)
    }

    fn holds(&mut self, task: TaskKey) -> Result<Vec<Hold>, Error> {
        self.holds_of(task)
    }

    fn hold(&mut self, task: TaskKey, hold: &Hold) -> Result<(), Error> {
        self.write_hold(task, hold)
    }

    fn let_go(&mut self, task: TaskKey, limit: &LimitKey) -> Result<(), Error> {
        self.delete_hold(task, limit)
    }

    fn begun(&mut self, limit: &LimitKey) -> Result<Vec<(Timestamp, u32)>, Error> {
        self.begun_under(limit)
    }

    fn add_rate_event(&mut self, event: &RateEvent) -> Result<(), Error> {
        self.write_rate_event(event)
    }

    fn behind(&mut self, limit: &LimitKey, max: u32) -> Result<Vec<(Timestamp, TaskKey)>, Error> {
        self.stand_behind(limit, max)
    }

    fn keys_behind(&mut self, name: &str) -> Result<Vec<LimitKey>, Error> {
        self.keys_stood_behind(name)
    }

    fn limit_alarm(&mut self, limit: &LimitKey) -> Result<Option<Timestamp>, Error> {
        self.alarm_of_limit(limit)
    }

    fn set_limit_alarm(&mut self, limit: &LimitKey, alarm: Option<Timestamp>) -> Result<(), Error> {
        self.write_limit_alarm(limit, alarm)
    }

    fn due_limits(&mut self, now: Timestamp, max: u32) -> Result<Vec<LimitKey>, Error> {
        self.limits_due(now, max)
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
