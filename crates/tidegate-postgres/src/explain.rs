//! The rows that only an explanation asks for.
//!
//! Every statement finds its rows by an index and counts up to a bound.

use crate::catalog::read_worker;
use crate::columns::{to_timestamp, worker_id};
use crate::error::Error;
use crate::limits::{blocked_groups, read_units};
use crate::loader::WantLoader;
use crate::rows::open_gates;
use crate::workers::LIVE_WORKERS;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::graph::TaskIndex;
use tidegate_core::limit::LimitKey;
use tidegate_core::packed::unpack_ending;
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{Happened, RunKey, TaskKey};
use tidegate_core::want::{LiveWorker, Loaded, TaskGroup, Want};
use tokio_postgres::types::ToSql;

/// The kind of the last record of the task $2 of the run $1: that of its end or, among the last $3 records
/// of the run, another.
const LAST_RECORD: &str = "SELECT kind FROM (SELECT record AS number, record_kind AS kind \
     FROM ended_task WHERE number = $1::int8 + $2::int4 AND record IS NOT NULL \
     UNION ALL SELECT number, kind FROM (SELECT number, kind, idx FROM record WHERE run = $1 \
     ORDER BY number DESC LIMIT $3) r WHERE idx = $2) told ORDER BY number DESC LIMIT 1";

const HOLDERS: &str = "SELECT task, units, since FROM hold WHERE limit_key = $1 LIMIT $2";

/// Up to $4 tasks that are blocked on the limit $1 before the place $2 and $3.
const BLOCKED_BEFORE: &str = concat!(
    blocked_groups!(),
    " SELECT count(*) FROM (SELECT 1 FROM g CROSS JOIN LATERAL (SELECT 1 FROM task t \
     WHERE t.blocked_on = $1 AND t.task_group = g.number AND (t.claim_order, t.number) < ($2, $3) \
     LIMIT $4) t WHERE g.number IS NOT NULL LIMIT $4) before"
);

/// The groups of queue $1, each with how many of its tasks can be claimed behind the gates $5 before the
/// place $2 and $3, up to $4.
const READY_BEFORE: &str = "SELECT g.workflow, g.task, g.weight, (SELECT count(*) FROM (SELECT 1 \
     FROM unnest($5::int2[]) AS e (code) CROSS JOIN LATERAL (SELECT 1 FROM task t \
     WHERE t.task_group = g.number AND t.eligibility = e.code AND t.claim_order IS NOT NULL \
     AND t.blocked_on IS NULL AND (t.claim_order, t.number) < ($2, $3) LIMIT $4) t LIMIT $4) before) \
     FROM task_group g WHERE g.queue = $1";

/// The task group of $1.
macro_rules! group_of_task {
    () => {
        "(SELECT task_group FROM task WHERE number = $1 UNION ALL \
         SELECT task_group FROM ended_task WHERE number = $1 LIMIT 1)"
    };
}

/// Ends of the kind $3, among the last $2, of tasks in the same group as $1.
const RECENT_ENDS: &str = concat!(
    "SELECT e.ended_at, e.ending FROM (SELECT ended_at, ending, task_group, record_kind \
     FROM ended_task WHERE record IS NOT NULL ORDER BY record DESC LIMIT $2) e \
     WHERE e.record_kind = $3 AND e.task_group = ",
    group_of_task!()
);

/// The same among the last $2 records of other changes: the first task of a run ends before its run.
const RECENT_RECORDS: &str = concat!(
    "SELECT r.at, r.begun_at FROM (SELECT at, begun_at, kind, run, idx FROM record \
     ORDER BY number DESC LIMIT $2) r WHERE r.kind = $3 AND r.begun_at IS NOT NULL \
     AND coalesce((SELECT t.task_group FROM task t WHERE t.number = r.run + r.idx), \
     (SELECT t.task_group FROM ended_task t WHERE t.number = r.run + r.idx)) = ",
    group_of_task!()
);

/// Claim order and number.
type ClaimPlace = (Timestamp, TaskKey);

impl WantLoader<'_> {
    /// Answers a want that only an explanation has.
    pub(crate) async fn load_for_explanation(&self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::HoldersOf { limit, max } => {
                Loaded::Holders(self.find_holders(limit, *max).await?)
            }
            Want::BlockedBefore { limit, place, max } => {
                Loaded::Number(self.count_blocked_before(limit, *place, *max).await?)
            }
            Want::ReadyBefore { queue, place, max } => {
                Loaded::TaskGroups(self.count_ready_before(queue, *place, *max).await?)
            }
            Want::LiveWorkers => Loaded::Workers(self.find_live_workers().await?),
            Want::LastRecord { run, task, max } => {
                Loaded::RecordKind(self.find_last_record(*run, *task, *max).await?)
            }
            Want::RecentDurations { like, max } => {
                Loaded::Durations(self.find_recent_durations(*like, *max).await?)
            }
            other => unreachable!("{other:?} is no want of an explanation"),
        })
    }

    /// The workers that are alive, by number.
    pub(crate) async fn find_live_workers(&self) -> Result<Vec<LiveWorker>, Error> {
        let statement = self.client.prepare_cached(LIVE_WORKERS).await?;
        let rows = self.client.query(&statement, &[]).await?;
        let view = |row: &tokio_postgres::Row| {
            // It has the number where a worker is usually read with its random id.
            let worker = read_worker(row, 0)?;
            let (id, slots) = (worker_id(worker.id), worker.slots);
            Ok(LiveWorker { id, served: worker.served, slots })
        };
        rows.iter().map(view).collect()
    }

    async fn find_last_record(
        &self,
        run: RunKey,
        task: TaskIndex,
        max: u32,
    ) -> Result<Option<Happened>, Error> {
        let statement = self.client.prepare_cached(LAST_RECORD).await?;
        let index = task.as_u32() as i32;
        let row = self.client.query_opt(&statement, &[&run.0, &index, &i64::from(max)]).await?;
        let Some(row) = row else { return Ok(None) };
        let kind = u8::try_from(row.try_get::<_, i16>(0)?).ok().and_then(Happened::from_code);
        let damaged = Error::Task { key: run.task(task).0, source: Corrupt };
        kind.map(Some).ok_or(damaged)
    }

    async fn find_holders(
        &self,
        limit: &LimitKey,
        max: u32,
    ) -> Result<Vec<(TaskKey, u32, Timestamp)>, Error> {
        let Some(number) = self.catalog.find_limit_number(limit).await? else {
            return Ok(Vec::new());
        };
        let statement = self.client.prepare_cached(HOLDERS).await?;
        let rows = self.client.query(&statement, &[&number, &i64::from(max)]).await?;
        let holder = |row: &tokio_postgres::Row| {
            Ok((TaskKey(row.try_get(0)?), read_units(row, 1)?, to_timestamp(row.try_get(2)?)))
        };
        rows.iter().map(holder).collect()
    }

    async fn count_blocked_before(
        &self,
        limit: &LimitKey,
        (order, task): ClaimPlace,
        max: u32,
    ) -> Result<i64, Error> {
        let Some(number) = self.catalog.find_limit_number(limit).await? else { return Ok(0) };
        let statement = self.client.prepare_cached(BLOCKED_BEFORE).await?;
        let place = (order.as_micros(), task.0, i64::from(max));
        let row =
            self.client.query_one(&statement, &[&number, &place.0, &place.1, &place.2]).await?;
        Ok(row.try_get(0)?)
    }

    async fn count_ready_before(
        &self,
        queue: &Arc<str>,
        (order, task): ClaimPlace,
        max: u32,
    ) -> Result<Vec<(TaskGroup, u32)>, Error> {
        let statement = self.client.prepare_cached(READY_BEFORE).await?;
        let gates = open_gates(false);
        let (order, max) = (order.as_micros(), i64::from(max));
        let given: [&(dyn ToSql + Sync); 5] = [&&**queue, &order, &task.0, &max, &gates];
        let mut groups = Vec::new();
        for row in self.client.query(&statement, &given).await? {
            let before = read_units(&row, 3)?;
            if before > 0 {
                let (workflow, task) = (row.try_get(0)?, row.try_get(1)?);
                let weight = read_units(&row, 2)?;
                groups.push((TaskGroup { queue: queue.clone(), workflow, task, weight }, before));
            }
        }
        groups.sort_unstable();
        Ok(groups)
    }

    async fn find_recent_durations(&self, like: TaskKey, max: u32) -> Result<Vec<Duration>, Error> {
        let kind = i16::from(Happened::Succeeded.code());
        let mut durations = Vec::new();
        let ends = self.client.prepare_cached(RECENT_ENDS).await?;
        for row in self.client.query(&ends, &[&like.0, &i64::from(max), &kind]).await? {
            let ending = unpack_ending(row.try_get(1)?);
            let ending = ending.map_err(|source| Error::Task { key: like.0, source })?;
            let ended_at = to_timestamp(row.try_get(0)?);
            durations.extend(ending.begun_at.map(|begun_at| ended_at.since(begun_at)));
        }
        let records = self.client.prepare_cached(RECENT_RECORDS).await?;
        for row in self.client.query(&records, &[&like.0, &i64::from(max), &kind]).await? {
            durations.push(to_timestamp(row.try_get(0)?).since(to_timestamp(row.try_get(1)?)));
        }
        Ok(durations)
    }
}
