//! The rows that only pruning asks for.

use crate::columns::{Uuid, to_timestamp};
use crate::error::Error;
use crate::loader::WantLoader;
use std::collections::HashMap;
use tidegate_core::lifecycle::Kind;
use tidegate_core::packed::unpack_run;
use tidegate_core::retention::{OldRecord, OldRun, OldSignal, ROW_BYTES, RunRows};
use tidegate_core::store::{RunKey, TaskKey};
use tidegate_core::want::{Loaded, Want};
use tidegate_core::{RunId, Timestamp};
use tokio_postgres::Row as PgRow;

/// Runs that have ended, from $1 on, at most $2: number, number of tasks, id, and the packed run.
const ENDED_RUNS: &str = "SELECT t.number, p.tasks, t.run_id, t.run FROM ended_task t \
     JOIN plan p ON p.number = t.plan WHERE t.number >= $1 AND t.idx = 0 ORDER BY t.number LIMIT $2";

/// The first tasks of the runs of the tasks $1, where both are still there. Not by EXISTS, for which a
/// plan may go through all tasks.
const RUNS_OF_TASKS: &str = "SELECT above.number, coalesce(\
     (SELECT f.number FROM task f WHERE f.number = above.number - above.idx), \
     (SELECT f.number FROM ended_task f WHERE f.number = above.number - above.idx)) FROM (\
     SELECT number, idx FROM task WHERE number = ANY($1) UNION ALL \
     SELECT number, idx FROM ended_task WHERE number = ANY($1)) above";

/// For each of the runs $1, the weight of all that belongs to its tasks from $2 on below $3, and of its
/// records and signals, each up to $4 rows. $5 bytes weigh as much as a row.
const WEIGHTS: &str = "SELECT w.run, \
     (SELECT coalesce(sum(1 + pages), 0) FROM (SELECT octet_length(body) / $5 AS pages FROM payload \
     WHERE task >= w.next AND task < w.upto LIMIT $4) p) \
     + (SELECT coalesce(sum(pages), 0) FROM (SELECT coalesce(octet_length(input), 0) / $5 \
     + coalesce(octet_length(output), 0) / $5 AS pages FROM ended_task \
     WHERE number >= w.next AND number < w.upto LIMIT $4) t) \
     + (SELECT count(*) FROM (SELECT 1 FROM wait WHERE task >= w.next AND task < w.upto LIMIT $4) o) \
     + (SELECT count(*) FROM (SELECT 1 FROM record WHERE run = w.run LIMIT $4) r) \
     + (SELECT count(*) FROM (SELECT 1 FROM signal WHERE run = w.run LIMIT $4) s) \
     FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS w (run, next, upto)";

const PRUNING: &str = "SELECT run, next, upto FROM pruning ORDER BY run LIMIT 1";

/// Records from $1 on, at most $2: number, time, run, when that ended.
const RECORDS: &str = "SELECT told.number, told.at, told.run, \
     (SELECT f.run_ended_at FROM ended_task f WHERE f.number = told.run) FROM (\
     (SELECT number, at, run FROM record WHERE number >= $1 ORDER BY number LIMIT $2) UNION ALL \
     (SELECT record, ended_at, number - idx FROM ended_task WHERE record >= $1 \
     ORDER BY record LIMIT $2)) AS told (number, at, run) ORDER BY told.number LIMIT $2";

/// Signals from $1 on, at most $2: number, time, whether the run has ended, whether the receiver is open.
/// $3 are the states of tasks that have ended.
const SIGNALS: &str = "SELECT s.number, s.sent_at, \
     coalesce((SELECT true FROM ended_task f WHERE f.number = s.run), false), \
     CASE WHEN s.taken_by IS NOT NULL THEN coalesce((SELECT t.state <> ALL($3) FROM task t \
     WHERE t.number = s.taken_by), false) END \
     FROM signal s WHERE s.number >= $1 ORDER BY s.number LIMIT $2";

/// Runs in a row that are all too young, behind which older ones are not looked for. Processes take
/// numbers in blocks, so that a young run may stand before older ones; but not many of them do.
const YOUNG_MAX: usize = 10_000;

impl WantLoader<'_> {
    /// Answers a want that only pruning has.
    pub(crate) async fn load_for_pruning(&self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::PruningRun { max } => Loaded::RunRows(self.find_pruning_run(*max).await?),
            Want::OldRuns { from, before, max } => {
                Loaded::OldRuns(self.find_old_runs(*from, *before, *max).await?)
            }
            Want::OldRecords { from, max } => {
                Loaded::OldRecords(self.find_old_records(*from, *max).await?)
            }
            Want::OldSignals { from, max } => {
                Loaded::OldSignals(self.find_old_signals(*from, *max).await?)
            }
            other => unreachable!("{other:?} is no want of pruning"),
        })
    }

    async fn find_pruning_run(&self, max: u32) -> Result<Option<RunRows>, Error> {
        let statement = self.client.prepare_cached(PRUNING).await?;
        let Some(row) = self.client.query_opt(&statement, &[]).await? else { return Ok(None) };
        let (next, end) = (TaskKey(row.try_get(1)?), TaskKey(row.try_get(2)?));
        let mut rows = [RunRows { run: RunKey(row.try_get(0)?), next, end, weight: 0 }];
        self.weigh_rows(rows.iter_mut(), max).await?;
        Ok(Some(rows[0]))
    }

    /// Runs that have ended and were submitted in time. An open run stays as it is, and is left out.
    async fn find_old_runs(
        &self,
        mut from: i64,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<OldRun>, Error> {
        let statement = self.client.prepare_cached(ENDED_RUNS).await?;
        let mut old: Vec<(OldRun, Option<i64>)> = Vec::new();
        let mut young = 0;
        while old.len() < max as usize && young < YOUNG_MAX {
            let page = self.client.query(&statement, &[&from, &i64::from(max)]).await?;
            for row in &page {
                let (run, parent, submitted_at) = read_old_run(row)?;
                from = run.rows.end.0;
                if submitted_at < before {
                    old.push((run, parent));
                    young = 0;
                } else {
                    young += 1;
                }
            }
            if page.len() < max as usize {
                break;
            }
        }
        old.truncate(max as usize);
        self.find_parents(&mut old).await?;
        let mut old: Vec<OldRun> = old.into_iter().map(|(run, _)| run).collect();
        let is_old = |run: &&mut OldRun| run.ended_at.is_some_and(|ended_at| ended_at < before);
        self.weigh_rows(old.iter_mut().filter(is_old).map(|run| &mut run.rows), max).await?;
        Ok(old)
    }

    /// Sets the runs of the tasks that began these runs, as far as they are still there.
    async fn find_parents(&self, old: &mut [(OldRun, Option<i64>)]) -> Result<(), Error> {
        let above: Vec<i64> = old.iter().filter_map(|(_, parent)| *parent).collect();
        if above.is_empty() {
            return Ok(());
        }
        let statement = self.client.prepare_cached(RUNS_OF_TASKS).await?;
        let mut runs = HashMap::new();
        for row in self.client.query(&statement, &[&above]).await? {
            let run = row.try_get::<_, Option<i64>>(1)?.map(RunKey);
            runs.insert(row.try_get::<_, i64>(0)?, run);
        }
        for (run, parent) in old {
            run.parent = parent.and_then(|parent| runs.get(&parent).copied().flatten());
        }
        Ok(())
    }

    async fn weigh_rows<'r>(
        &self,
        rows: impl Iterator<Item = &'r mut RunRows>,
        max: u32,
    ) -> Result<(), Error> {
        let mut rows: Vec<&mut RunRows> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        let runs: Vec<i64> = rows.iter().map(|rows| rows.run.0).collect();
        let next: Vec<i64> = rows.iter().map(|rows| rows.next.0).collect();
        let upto = |rows: &&mut RunRows| rows.end.0.min(rows.next.0.saturating_add(max.into()));
        let upto: Vec<i64> = rows.iter().map(upto).collect();
        let statement = self.client.prepare_cached(WEIGHTS).await?;
        let (max, bytes) = (i64::from(max), ROW_BYTES as i32);
        let weighed = self.client.query(&statement, &[&runs, &next, &upto, &max, &bytes]).await?;
        let mut weights = HashMap::new();
        for row in &weighed {
            weights.insert(row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?);
        }
        for rows in &mut rows {
            let beside = weights.get(&rows.run.0).copied().unwrap_or(0);
            // Tasks that were not looked at are there all the same.
            let weight = beside.saturating_add(rows.end.0 - rows.next.0);
            rows.weight = u32::try_from(weight).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    async fn find_old_records(&self, from: u64, max: u32) -> Result<Vec<OldRecord>, Error> {
        let statement = self.client.prepare_cached(RECORDS).await?;
        let rows = self.client.query(&statement, &[&(from as i64), &i64::from(max)]).await?;
        let record = |row: &PgRow| {
            Ok(OldRecord {
                seq: row.try_get::<_, i64>(0)? as u64,
                at: to_timestamp(row.try_get(1)?),
                run: RunKey(row.try_get(2)?),
                run_ended_at: row.try_get::<_, Option<i64>>(3)?.map(to_timestamp),
            })
        };
        rows.iter().map(record).collect()
    }

    async fn find_old_signals(&self, from: u64, max: u32) -> Result<Vec<OldSignal>, Error> {
        let statement = self.client.prepare_cached(SIGNALS).await?;
        let ended = Kind::ALL.into_iter().filter(|kind| kind.is_terminal());
        let ended: Vec<i16> = ended.map(|kind| kind.code().into()).collect();
        let rows =
            self.client.query(&statement, &[&(from as i64), &i64::from(max), &ended]).await?;
        let signal = |row: &PgRow| {
            Ok(OldSignal {
                number: row.try_get::<_, i64>(0)? as u64,
                sent_at: to_timestamp(row.try_get(1)?),
                is_run_ended: row.try_get(2)?,
                is_receiver_open: row.try_get(3)?,
            })
        };
        rows.iter().map(signal).collect()
    }
}

/// Reads a run that has ended, the task that began it, and when it was submitted.
fn read_old_run(row: &PgRow) -> Result<(OldRun, Option<i64>, Timestamp), Error> {
    let key: i64 = row.try_get(0)?;
    let damaged = |source| Error::Task { key, source };
    let end = key.saturating_add(row.try_get::<_, i32>(1)?.into());
    let Uuid(id) = row.try_get(2)?;
    let run = unpack_run(row.try_get(3)?).map_err(damaged)?;
    let rows = RunRows { run: RunKey(key), next: TaskKey(key), end: TaskKey(end), weight: 0 };
    let ended_at = run.ended.map(|(_, at)| at);
    let old = OldRun { id: RunId::from_u128(id), ended_at, parent: None, rows };
    Ok((old, run.parent.map(|task| task.0), run.submitted_at))
}
