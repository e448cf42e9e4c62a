//! The views of a store: bounded queries, each at one instant or, where it is long, in steps.
//!
//! They are asked for seldom, so their statements are prepared when they are needed.

use crate::columns::read_task;
use crate::error::Error;
use crate::fetch::{Fetch, read_at, read_bytes};
use crate::limits::read_limit;
use crate::loader::RowLoader;
use crate::sql;
use tidegate_core::RunId;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::LimitState;
use tidegate_core::packed::unpack_run;
use tidegate_core::rows::{Corrupt, Payload, Row, view_run};
use tidegate_core::store::{
    Bytes, Counts, Knows, NewWorker, RunSummary, RunView, RunsPage, TaskKey, UNSERVED_MAX,
    Unserved, WorkerView,
};
use tidegate_core::want::TaskGroup;

/// Task numbers that are looked at in one transaction when runs are listed.
const LIST_STEP: i64 = 50_000;

/// First rows that are read in one transaction when runs are listed.
const LIST_ROWS: i64 = 1_000;

impl RowLoader<'_> {
    pub(crate) fn view_run(&mut self, id: RunId) -> Result<Option<RunView>, Error> {
        self.read_snapshot(|loader| {
            let Some(run) = loader.find_run(id)? else { return Ok(None) };
            let rows = loader.find_tasks(run)?;
            let count = rows.len() as u32;
            let errors = loader.list_payloads(TaskKey(run.0), count, Payload::Error)?;
            view_run(rows, errors).map(Some).ok_or(Error::Missing { table: "run", id: run.0 })
        })
    }

    /// Those of these runs that have ended.
    pub(crate) fn list_ended(
        &mut self,
        runs: &[RunId],
    ) -> Result<Vec<(RunId, Option<RunOutcome>)>, Error> {
        self.read_snapshot(|loader| {
            let mut ended = Vec::new();
            for &id in runs {
                let given = [id.as_u128().to_be_bytes()];
                if let Some(outcome) = loader.find_outcome(id)? {
                    ended.push((id, Some(outcome)));
                } else if !loader.prepare_rare(sql::LIVE_RUN)?.exists(given)? {
                    ended.push((id, None));
                }
            }
            Ok(ended)
        })
    }

    /// How a run has ended, if it has.
    fn find_outcome(&mut self, run: RunId) -> Result<Option<RunOutcome>, Error> {
        let find = self.prepare_rare(sql::ENDED_RUN)?;
        let mut rows = find.query([run.as_u128().to_be_bytes()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let key = read_at(row, 0)?;
        let damaged = |source| Error::Task { key, source };
        let run = unpack_run(read_bytes(row, 1)?).map_err(damaged)?;
        let (outcome, _) = run.ended.ok_or(Corrupt).map_err(damaged)?;
        Ok(Some(outcome))
    }

    /// Runs from new to old.
    pub(crate) fn list_runs(&mut self, page: &RunsPage) -> Result<Vec<RunSummary>, Error> {
        let mut runs = Vec::new();
        let mut before = page.before.map_or(i64::MAX, |run| run.0);
        // Step by step, each a transaction of its own: the runs that are asked for may be rare.
        while runs.len() < page.limit as usize {
            let step = self.read_snapshot(|loader| loader.read_first_rows(page, before))?;
            let Some(RunStep { rows, next }) = step else { break };
            let found = rows.iter().filter_map(Row::summarize_run);
            let found = found.filter(|run| page.includes_run(run));
            runs.extend(found.take(page.limit as usize - runs.len()));
            match next {
                Some(next) => before = next,
                None => break,
            }
        }
        Ok(runs)
    }

    pub(crate) fn list_payloads(
        &mut self,
        first: TaskKey,
        tasks: u32,
        kind: Payload,
    ) -> Result<Vec<(TaskKey, Bytes)>, Error> {
        let select = match kind {
            Payload::Input => sql::INPUTS,
            Payload::Output => sql::OUTPUTS,
            Payload::Inserts | Payload::Error | Payload::Item | Payload::Keys => sql::PAYLOADS,
        };
        let end = first.0.saturating_add(tasks.into());
        Ok(self.fetch_rare(select, (first.0, end, kind.code()))?)
    }

    pub(crate) fn count_tasks(&mut self) -> Result<Counts, Error> {
        Ok(self.prepare_rare(sql::COUNTS)?.fetch_one([])?)
    }

    /// The limits that are declared, each for every key that is in use or waited for.
    pub(crate) fn list_limits(&mut self) -> Result<Vec<LimitState>, Error> {
        let states = self.prepare_rare(sql::LIMIT_STATES)?.query_map([], |row| {
            let in_use = u32::try_from(read_at::<i64>(row, 5)?).unwrap_or(u32::MAX);
            let (limit, key, waiting) = (read_limit(row)?, read_at(row, 4)?, read_at(row, 6)?);
            Ok(LimitState { limit, key, in_use, waiting })
        })?;
        let mut states = states.collect::<rusqlite::Result<Vec<_>>>()?;
        states.sort_by(|a, b| (a.limit.name(), &a.key).cmp(&(b.limit.name(), &b.key)));
        Ok(states)
    }

    /// Tasks that are ready and that no worker can run.
    pub(crate) fn list_unserved(&mut self) -> Result<Vec<Unserved>, Error> {
        self.read_snapshot(|loader| {
            let workers = loader.live_workers()?;
            let mut unserved = Vec::new();
            for (number, queue, workflow, task, weight) in
                loader.fetch_rare(sql::TASK_GROUPS, [])?
            {
                let number: i64 = number;
                let group = TaskGroup { queue, workflow, task, weight };
                let Some(why) = group.find_unserved_reason(&workers) else { continue };
                let ready = loader.prepare_rare(sql::READY_IN_GROUP)?;
                let waiting = ready.fetch_one((number, UNSERVED_MAX))?;
                if waiting > 0 {
                    unserved.push(Unserved::new(group, waiting, why));
                }
            }
            Ok(unserved)
        })
    }

    /// The workers that are known, by number.
    pub(crate) fn list_workers(&mut self) -> Result<Vec<WorkerView>, Error> {
        self.read_snapshot(|loader| {
            let mut workers = Vec::new();
            for (id, name, now, slots) in loader.fetch_rare(sql::WORKERS, [])? {
                let id: WorkerId = id;
                let queues = loader.sql.worker_queues.fetch_all([id.0 as i64])?;
                let new = NewWorker { now, name, queues, knows: Knows::These(Vec::new()), slots };
                let mut worker = WorkerView::new(id, new);
                worker.alive = loader.is_alive(id);
                workers.push(worker);
            }
            Ok(workers)
        })
    }

    /// The workers that are not alive, known or only named as owners of tasks, by number.
    pub(crate) fn list_dead_workers(&mut self) -> Result<Vec<WorkerId>, Error> {
        // A caller of this is neither stopped nor hangs.
        self.place.locks.give_sign();
        self.read_snapshot(|loader| {
            let known = loader.known_workers()?;
            let mut dead: Vec<WorkerId> = loader.fetch_rare(sql::OWNERS, [])?;
            dead.retain(|worker| !known.contains(worker));
            dead.extend(known.iter().filter(|worker| !loader.is_alive(**worker)));
            dead.sort_unstable();
            Ok(dead)
        })
    }

    /// First rows of one step, from new to old.
    fn read_first_rows(&mut self, page: &RunsPage, before: i64) -> Result<Option<RunStep>, Error> {
        let ids = page.ids.as_ref();
        let lowest = match ids {
            // They are found by their index, however far they are apart.
            Some(_) => i64::MIN,
            None => {
                let last: Option<i64> = self.prepare_rare(sql::LAST_TASK)?.fetch_one([before])?;
                let Some(last) = last else { return Ok(None) };
                last.saturating_sub(LIST_STEP)
            }
        };
        let id = |id: &RunId| id.as_u128().to_be_bytes();
        let (from, to) = ids.map(|ids| (id(ids.start()), id(ids.end()))).unzip();
        let RunsPage { queue, workflow, open, .. } = page;
        let step = (lowest, before, queue, workflow, LIST_ROWS, from, to, open);
        let select = if ids.is_some() { sql::RUNS_BY_ID } else { sql::RUNS };
        let RowLoader { connection, catalog, .. } = self;
        let mut select = connection.prepare(select)?;
        let rows = select.query_and_then(step, |row| read_task(row, catalog))?;
        let rows = rows.collect::<Result<Vec<Row>, Error>>()?;
        let is_cut = rows.len() as i64 == LIST_ROWS;
        let next = match rows.last() {
            Some(last) if is_cut => Some(last.key.0),
            _ if ids.is_some() => None,
            _ => Some(lowest.saturating_add(1)),
        };
        // No task has begun a run that is older than itself.
        let oldest = page.begun_by.as_ref().map_or(i64::MIN, |tasks| tasks.start.0);
        Ok(Some(RunStep { rows, next: next.filter(|next| *next > oldest) }))
    }
}

/// First rows of runs, from new to old.
struct RunStep {
    rows: Vec<Row>,
    /// The number below which the next step looks.
    next: Option<i64>,
}
