//! The rows that a request, a view, an explanation or an audit loads, inside one transaction.
//!
//! Each function here answers a group of wants and passes on the others: tasks and pauses in this file,
//! then `waits`, `limits`, `explain`, `prune`, and `stored` for an audit.

use crate::columns::read_task;
use crate::error::Error;
use crate::fetch::{Fetch, read_at, read_bytes};
use crate::groups::is_queue_paused;
use crate::loader::{RowLoader, load_once};
use std::time::SystemTime;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::packed::unpack_lifecycle;
use tidegate_core::rows::{Owned, Payload, Row, sum_paused_time};
use tidegate_core::store::{Bytes, RunKey, Scope, TaskKey};
use tidegate_core::want::{Loaded, Loader, Want};
use tidegate_core::{RunId, Timestamp};

/// The scope of a pause, as the number that is stored.
pub(crate) const RUN: i64 = 0;
/// See [`RUN`].
pub(crate) const QUEUE: i64 = 1;
/// See [`RUN`].
pub(crate) const STORE: i64 = 2;

/// The columns by which a pause is found.
pub(crate) fn pause_name(scope: &Scope) -> (i64, String) {
    match scope {
        Scope::Run(run) => (RUN, run.to_string()),
        Scope::Queue(queue) => (QUEUE, queue.clone()),
        Scope::Store => (STORE, String::new()),
    }
}

impl Loader for RowLoader<'_> {
    type Stop = Error;

    fn load(&mut self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::Now => Loaded::Time(SystemTime::now().into()),
            Want::RunById(run) => Loaded::Run(self.find_run(*run)?),
            Want::RunByKey { queue, workflow, key } => {
                Loaded::Run(self.sql.run_key.fetch_first((&**queue, workflow, key))?)
            }
            Want::Task(task) => Loaded::Task(self.find_task(*task)?),
            Want::WholeRun(run) => Loaded::Tasks(self.find_tasks(*run)?),
            Want::DueTasks { until, max } => {
                Loaded::TaskKeys(self.sql.due.fetch_all((until.as_micros(), max))?)
            }
            Want::NextAlarm => {
                let task: Option<Timestamp> = self.sql.next_alarm.fetch_one([])?;
                let alarms = [task, self.first_limit_alarm()?];
                Loaded::Instant(alarms.into_iter().flatten().min())
            }
            Want::OwnedBy { worker, max } => Loaded::Owned(self.list_owned(*worker, *max)?),
            Want::Ready { worker, max_weight, only_awaited, pauses, max } => {
                let max = *max as usize;
                let ready = self.find_ready(*worker, *max_weight, *only_awaited, pauses, max)?;
                Loaded::Ordered(ready)
            }
            Want::Served(worker) => Loaded::Served(self.find_served(*worker)?.cloned()),
            Want::PauseStart(scope) => {
                Loaded::Instant(self.sql.pause_start.fetch_first(pause_name(scope))?)
            }
            Want::IsQueuePaused(queue) => {
                Loaded::Flag(is_queue_paused(self.find_paused()?, &[], queue))
            }
            Want::PausedTime { run, queue, from, to } => {
                let mut pauses = Vec::new();
                for (scope, name) in [(RUN, &*run.to_string()), (QUEUE, queue), (STORE, "")] {
                    let times = (scope, name, from.as_micros(), to.as_micros());
                    pauses.append(&mut self.sql.pauses.fetch_all(times)?);
                }
                Loaded::Duration(sum_paused_time(pauses.into_iter(), *from, *to))
            }
            Want::QueueDepth { queue, max } => {
                Loaded::Number(self.count_waiting_runs(queue, *max)?.into())
            }
            Want::TaskNumbers { count, .. } => {
                let last = self.last_task()?;
                self.cache.last_task = Some(last + i64::from(*count));
                Loaded::Number(last + 1)
            }
            Want::Payload(task, kind) => Loaded::Payload(self.find_payload(*task, *kind)?),
            other => self.load_waits(other)?,
        })
    }
}

impl RowLoader<'_> {
    /// The last number given to a task.
    pub(crate) fn last_task(&mut self) -> Result<i64, Error> {
        Ok(*load_once(&mut self.cache.last_task, || self.sql.last_task.fetch_one([]))?)
    }

    /// The last number given to a run that no task has begun.
    pub(crate) fn last_run(&mut self) -> Result<i64, Error> {
        Ok(*load_once(&mut self.cache.last_run, || self.sql.last_run.fetch_one([]))?)
    }

    /// The number of the run with this id.
    pub(crate) fn find_run(&mut self, run: RunId) -> Result<Option<RunKey>, Error> {
        Ok(self.sql.run_id.fetch_first([run.as_u128().to_be_bytes()])?)
    }

    fn list_owned(&mut self, worker: WorkerId, max: u32) -> Result<Vec<Owned>, Error> {
        let owned = self.sql.owned.query_and_then((worker.0 as i64, max), |row| {
            let task: TaskKey = read_at(row, 0)?;
            let lifecycle = unpack_lifecycle(read_bytes(row, 4)?)
                .map_err(|source| Error::Task { key: task.0, source })?;
            Ok(Owned {
                task,
                index: read_at(row, 1)?,
                fence: read_at(row, 2)?,
                request: read_at(row, 3)?,
                stopping: lifecycle.columns.stopping.is_some(),
            })
        })?;
        owned.collect()
    }

    /// The last number given to a record.
    pub(crate) fn last_record(&mut self) -> Result<u64, Error> {
        Ok(*load_once(&mut self.cache.last_record, || self.sql.last_record.fetch_one([]))?)
    }

    /// A task as this connection wrote it last, or as it is stored. The first is about to be changed,
    /// and remembered anew.
    fn find_task(&mut self, task: TaskKey) -> Result<Option<Row>, Error> {
        match self.cache.owned.remove(&task) {
            Some(row) => Ok(Some(row)),
            None => self.read_stored_task(task),
        }
    }

    fn read_stored_task(&mut self, task: TaskKey) -> Result<Option<Row>, Error> {
        let RowLoader { sql, catalog, .. } = self;
        for find in [&mut sql.task, &mut sql.ended_task] {
            let mut tasks = find.query_and_then([task.0], |row| read_task(row, catalog))?;
            if let Some(task) = tasks.next() {
                return task.map(Some);
            }
        }
        Ok(None)
    }

    pub(crate) fn find_tasks(&mut self, run: RunKey) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::from_iter(self.read_stored_task(TaskKey(run.0))?);
        let count = rows.first().map_or(0, |first| first.plan.task_count());
        if count > 1 {
            let others = (run.0.saturating_add(1), run.0.saturating_add_unsigned(count as u64));
            let RowLoader { sql, catalog, .. } = self;
            rows.reserve_exact(count - 1);
            for row in sql.tasks.query_and_then(others, |row| read_task(row, catalog))? {
                rows.push(row?);
            }
        }
        Ok(rows)
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
        let in_row = match kind {
            Payload::Input => self.sql.input.fetch_one([task.0])?,
            Payload::Output => self.sql.output.fetch_first([task.0])?,
            Payload::Inserts | Payload::Error | Payload::Item | Payload::Keys => None,
        };
        let body: Option<Bytes> = match in_row {
            Some(body) => Some(body),
            None => self.sql.payload.fetch_first((task.0, kind.code()))?,
        };
        if kind == Payload::Input {
            self.cache.input = body.clone().map(|input| (task, input));
        }
        Ok(body)
    }
}
