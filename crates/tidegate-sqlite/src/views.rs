//! The views of a store: bounded queries, each at one instant or, where it is long, in steps.
//!
//! They are asked for seldom, so their statements are prepared when they are needed.

use crate::columns::{self, outcome_from, read_record, worker_id};
use crate::error::Error;
use crate::limits;
use crate::loader::RowLoader;
use crate::sql::{self, SELECT_TASK};
use rusqlite::OptionalExtension;
use std::sync::Arc;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::LimitState;
use tidegate_core::rows::{Payload, view_run};
use tidegate_core::store::{
    Bytes, Counts, Knows, NewWorker, Record, RunKey, RunSummary, RunView, RunsPage, TaskKey,
    UNSERVED_MAX, Unserved, WorkerView,
};
use tidegate_core::want::TaskGroup;
use tidegate_core::{RunId, Timestamp};

/// Tasks that are looked at in one transaction when runs are listed.
const LIST_STEP: i64 = 50_000;

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
        let transaction = self.connection.unchecked_transaction()?;
        let mut find = transaction.prepare(
            "SELECT key, iif(run_ended_at IS NULL, NULL, outcome) FROM task WHERE run_id = ?1",
        )?;
        let mut ended = Vec::new();
        for &id in runs {
            let found = find.query_row([id.as_u128().to_be_bytes()], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Option<u8>>(1)?))
            });
            match found.optional()? {
                None => ended.push((id, None)),
                Some((_, None)) => {}
                Some((key, Some(outcome))) => {
                    let outcome = outcome_from(outcome);
                    let outcome = outcome.map_err(|source| Error::Task { key, source })?;
                    ended.push((id, Some(outcome)));
                }
            }
        }
        Ok(ended)
    }

    pub(crate) fn list_runs(&mut self, page: &RunsPage) -> Result<Vec<RunSummary>, Error> {
        let mut runs = Vec::new();
        let mut before = page.before.map_or(i64::MAX, |run| run.0);
        // Step by step, each a transaction of its own: what is asked for may be rare.
        while runs.len() < page.limit as usize {
            let step = self.read_snapshot(|loader| loader.runs_of_step(page, before, &mut runs))?;
            match step {
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
        let end = first.0.saturating_add(tasks.into());
        let mut select = self.connection.prepare(sql::PAYLOADS)?;
        let found = select.query_map((first.0, end, kind.code()), |row| {
            Ok((TaskKey(row.get(0)?), Bytes::from(row.get_ref(1)?.as_blob()?)))
        })?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn list_records(
        &mut self,
        run: Option<RunKey>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Record>, Error> {
        let select = match run {
            Some(_) => sql::RECORDS_OF_RUN,
            None => sql::RECORDS,
        };
        let mut select = self.connection.prepare(select)?;
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let found = (after, limit, run.map(|run| run.0));
        select.query_and_then(found, read_record)?.collect()
    }

    pub(crate) fn count_tasks(&mut self) -> Result<Counts, Error> {
        Ok(self.connection.query_row(sql::COUNTS, [], |row| {
            let number = |at| row.get::<_, i64>(at).map(|number| number as u64);
            Ok(Counts {
                ready: number(0)?,
                future: number(1)?,
                paused: number(2)?,
                limited: number(3)?,
                parked: number(4)?,
                running: number(5)?,
            })
        })?)
    }

    /// The limits that are declared, each for every key that is in use or waited for.
    pub(crate) fn list_limits(&mut self) -> Result<Vec<LimitState>, Error> {
        let mut select = self.connection.prepare(sql::LIMIT_STATES)?;
        let states = select.query_map([], |row| {
            let in_use = u32::try_from(row.get::<_, i64>(5)?).unwrap_or(u32::MAX);
            let (key, waiting) = (row.get(4)?, row.get::<_, i64>(6)? as u64);
            Ok(LimitState { limit: limits::read(row)?, key, in_use, waiting })
        })?;
        let mut states = states.collect::<rusqlite::Result<Vec<_>>>()?;
        states.sort_by(|a, b| (a.limit.name(), &a.key).cmp(&(b.limit.name(), &b.key)));
        Ok(states)
    }

    /// Tasks that are ready and that no worker can run.
    pub(crate) fn list_unserved(&mut self) -> Result<Vec<Unserved>, Error> {
        self.read_snapshot(|loader| {
            let workers = loader.live_workers()?;
            let mut lanes = loader.connection.prepare(sql::LANES)?;
            let mut ready = loader.connection.prepare(sql::READY_IN_LANE)?;
            let (mut lanes, mut unserved) = (lanes.query([])?, Vec::new());
            while let Some(row) = lanes.next()? {
                let lane: i64 = row.get(0)?;
                let queue: Arc<str> = row.get::<_, String>(1)?.into();
                let (workflow, task, weight) = (row.get(2)?, row.get(3)?, row.get(4)?);
                let group = TaskGroup { queue, workflow, task, weight };
                let Some(why) = group.find_unserved_reason(&workers) else { continue };
                let waiting = ready.query_row((lane, UNSERVED_MAX), |row| row.get(0))?;
                if waiting > 0 {
                    unserved.push(Unserved::new(group, waiting, why));
                }
            }
            Ok(unserved)
        })
    }

    /// The workers that are known, by number.
    pub(crate) fn list_workers(&mut self) -> Result<Vec<WorkerView>, Error> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut select =
            transaction.prepare("SELECT id, name, started_at, slots FROM worker ORDER BY id")?;
        let mut queues = transaction.prepare("SELECT queue FROM worker_queue WHERE worker = ?1")?;
        let (mut found, mut workers) = (select.query([])?, Vec::new());
        while let Some(row) = found.next()? {
            let served = queues.query_map([row.get::<_, i64>(0)?], |row| row.get(0))?;
            let new = NewWorker {
                now: Timestamp::from_micros(row.get(2)?),
                name: row.get(1)?,
                queues: served.collect::<rusqlite::Result<_>>()?,
                knows: Knows::These(Vec::new()),
                slots: row.get(3)?,
            };
            let mut worker = WorkerView::new(worker_id(row.get(0)?), new);
            worker.alive = self.is_alive(worker.id);
            workers.push(worker);
        }
        Ok(workers)
    }

    /// The workers that are not alive, known or only named as owners of tasks, by number.
    pub(crate) fn list_dead_workers(&mut self) -> Result<Vec<WorkerId>, Error> {
        // A caller of this is neither stopped nor hangs.
        self.place.locks.give_sign();
        self.read_snapshot(|loader| {
            let known = loader.known_workers()?;
            let mut owners = loader.connection.prepare(sql::OWNERS)?;
            let owners = owners.query_map([], |row| row.get(0).map(worker_id))?;
            let mut dead = owners.collect::<rusqlite::Result<Vec<_>>>()?;
            dead.retain(|worker| !known.contains(worker));
            dead.extend(known.iter().filter(|worker| !loader.is_alive(**worker)));
            dead.sort_unstable();
            Ok(dead)
        })
    }

    /// Adds the runs of one step that are asked for; where the next step begins.
    fn runs_of_step(
        &mut self,
        page: &RunsPage,
        before: i64,
        runs: &mut Vec<RunSummary>,
    ) -> Result<Option<i64>, Error> {
        let last = "SELECT max(key) FROM task WHERE key < ?1";
        let last = self.connection.query_row(last, [before], |row| row.get::<_, Option<i64>>(0))?;
        let Some(last) = last else { return Ok(None) };
        // What is asked for by ids is found by its index.
        let ids = if page.ids.is_some() { sql::HAS_ID } else { "?7 IS ?8" };
        let select = format!(
            "{SELECT_TASK} WHERE key > ?1 AND key <= ?2 AND run_id IS NOT NULL \
             AND (?3 IS NULL AND ?4 IS NULL OR workflow IN (SELECT id FROM workflow \
                  WHERE queue = ifnull(?3, queue) AND name = ifnull(?4, name))) \
             AND NOT (?5 AND outcome IS NOT NULL) AND NOT (?6 AND parent_task IS NOT NULL) \
             AND {ids} AND (?9 IS NULL OR parent_task >= ?9 AND parent_task < ?10) ORDER BY key DESC LIMIT ?11"
        );
        let first = last.saturating_sub(LIST_STEP);
        let wanted = page.limit as usize - runs.len();
        let mut select = self.connection.prepare(&select)?;
        let id = |id: &RunId| id.as_u128().to_be_bytes();
        let (from, to) = page.ids.as_ref().map(|ids| (id(ids.start()), id(ids.end()))).unzip();
        let parents = page.begun_by.as_ref().map(|tasks| (tasks.start.0, tasks.end.0));
        let (first_parent, end_parent) = parents.unzip();
        let RunsPage { queue, workflow, open, top, .. } = page;
        let found = rusqlite::params![
            first,
            last,
            queue,
            workflow,
            open,
            top,
            from,
            to,
            first_parent,
            end_parent,
            wanted as i64
        ];
        let stored = select.query_map(found, columns::read)?;
        for stored in stored.collect::<rusqlite::Result<Vec<_>>>()? {
            let row = self.row(stored)?;
            runs.extend(row.summarize_run());
        }
        // Nobody has begun what is older than itself.
        let is_last = first_parent.is_some_and(|parent| first < parent);
        Ok((!is_last).then_some(first.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn ids_are_found_by_their_index() {
        let connection = Connection::open_in_memory().unwrap();
        crate::migrate::apply_all(&connection).unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {SELECT_TASK} WHERE key > ?1 AND {}", sql::HAS_ID);
        let mut explain = connection.prepare(&sql).unwrap();
        let lines = explain.raw_query().mapped(|row| row.get::<_, String>(3));
        let plan = lines.map(Result::unwrap).collect::<Vec<_>>().join("; ");
        assert!(plan.starts_with("SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"), "{plan}");
        assert!(plan.contains("INDEX task_run_id (run_id>? AND run_id<?)"), "{plan}");
    }
}
