//! The views of a store: bounded queries, each at one instant or, where it is long, in steps.
//!
//! They are asked for seldom, so their statements are prepared when they are needed.

use crate::columns::{read_record, read_task};
use crate::error::Error;
use crate::fetch::{Fetch, read_at};
use crate::limits::read_limit;
use crate::loader::RowLoader;
use crate::sql;
use tidegate_core::RunId;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::LimitState;
use tidegate_core::rows::{Corrupt, Payload, view_run};
use tidegate_core::store::{
    Bytes, Counts, Knows, NewWorker, Record, RunKey, RunSummary, RunView, RunsPage, TaskKey,
    UNSERVED_MAX, Unserved, WorkerView,
};
use tidegate_core::want::TaskGroup;

/// Tasks that are looked at in one transaction when runs are listed.
const LIST_STEP: i64 = 50_000;

impl RowLoader<'_> {
    pub(crate) fn view_run(&mut self, id: RunId) -> Result<Option<RunView>, Error> {
        self.read_snapshot(|loader| {
            let run = loader.sql.find.fetch_first([id.as_u128().to_be_bytes()])?;
            let Some(run) = run else { return Ok(None) };
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
            let find = loader.prepare_rare(sql::OUTCOME)?;
            let mut ended = Vec::new();
            for &id in runs {
                match find.fetch_first([id.as_u128().to_be_bytes()])? {
                    None => ended.push((id, None)),
                    Some((_, None)) => {}
                    Some((key, Some(code))) => {
                        let corrupt = || Error::Task { key, source: Corrupt };
                        ended.push((id, Some(RunOutcome::from_code(code).ok_or_else(corrupt)?)));
                    }
                }
            }
            Ok(ended)
        })
    }

    pub(crate) fn list_runs(&mut self, page: &RunsPage) -> Result<Vec<RunSummary>, Error> {
        let mut runs = Vec::new();
        let mut before = page.before.map_or(i64::MAX, |run| run.0);
        // Step by step, each a transaction of its own: what is asked for may be rare.
        while runs.len() < page.limit as usize
            && let Some(next) =
                self.read_snapshot(|loader| loader.list_runs_of_step(page, before, &mut runs))?
        {
            before = next;
        }
        Ok(runs)
    }

    pub(crate) fn list_payloads(
        &mut self,
        first: TaskKey,
        tasks: u32,
        kind: Payload,
    ) -> Result<Vec<(TaskKey, Bytes)>, Error> {
        let end = first.0.saturating_add(tasks.into());
        Ok(self.fetch_rare(sql::PAYLOADS, (first.0, end, kind.code()))?)
    }

    pub(crate) fn list_records(
        &mut self,
        run: Option<RunKey>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Record>, Error> {
        let select = if run.is_some() { sql::RECORDS_OF_RUN } else { sql::RECORDS };
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let found = (after, limit, run.map(|run| run.0));
        self.prepare_rare(select)?.query_and_then(found, read_record)?.collect()
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
            for (lane, queue, workflow, task, weight) in loader.fetch_rare(sql::LANES, [])? {
                let lane: i64 = lane;
                let group = TaskGroup { queue, workflow, task, weight };
                let Some(why) = group.find_unserved_reason(&workers) else { continue };
                let ready = loader.prepare_rare(sql::READY_IN_LANE)?;
                let waiting = ready.fetch_one((lane, UNSERVED_MAX))?;
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

    /// Adds the runs of one step that are asked for; where the next step begins.
    fn list_runs_of_step(
        &mut self,
        page: &RunsPage,
        before: i64,
        runs: &mut Vec<RunSummary>,
    ) -> Result<Option<i64>, Error> {
        let last: Option<i64> = self.prepare_rare(sql::LAST_BEFORE)?.fetch_one([before])?;
        let Some(last) = last else { return Ok(None) };
        let first = last.saturating_sub(LIST_STEP);
        let wanted = (page.limit as usize - runs.len()) as i64;
        let id = |id: &RunId| id.as_u128().to_be_bytes();
        let (from, to) = page.ids.as_ref().map(|ids| (id(ids.start()), id(ids.end()))).unzip();
        let parents = page.begun_by.as_ref().map(|tasks| (tasks.start.0, tasks.end.0));
        let (parent, parents_end) = parents.unzip();
        let RunsPage { queue, workflow, open, top, .. } = page;
        let step = (first, last, queue, workflow, open, top, from, to, parent, parents_end, wanted);
        // What is asked for by ids is found by its index.
        let has_id = if page.ids.is_some() { sql::HAS_ID } else { "?7 IS ?8" };
        let select = sql::RUNS.replace("?7 IS ?8", has_id);
        let RowLoader { connection, catalog, .. } = self;
        let mut select = connection.prepare(&select)?;
        for row in select.query_and_then(step, |row| read_task(row, catalog))? {
            let run = row?.summarize_run();
            debug_assert!(run.as_ref().is_none_or(|run| page.includes_run(run)));
            runs.extend(run);
        }
        // No task has begun a run that is older than itself.
        let is_last = parent.is_some_and(|parent| first < parent);
        Ok((!is_last).then_some(first.saturating_add(1)))
    }
}
