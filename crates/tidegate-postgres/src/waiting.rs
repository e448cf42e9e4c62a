//! The number of runs of a queue that wait.

use crate::error::Error;
use crate::loader::{RowLocks, WantLoader};
use std::collections::BTreeSet;
use tidegate_core::rows::Row;
use tidegate_core::store::RunKey;
use tidegate_core::want::{Loaded, Want};

/// The tasks of queue $1 that are ready: those that no limit blocks, by group, and the others, by limit
/// and group.
macro_rules! ready_in_queue {
    ($columns:literal, $limit:literal) => {
        concat!(
            "WITH RECURSIVE l (number) AS (\
             SELECT (SELECT min(blocked_on) FROM task WHERE blocked_on IS NOT NULL) UNION ALL \
             SELECT (SELECT min(blocked_on) FROM task WHERE blocked_on > l.number) \
             FROM l WHERE l.number IS NOT NULL), \
             g AS MATERIALIZED (SELECT number FROM task_group WHERE queue = $1) \
             SELECT ",
            $columns,
            " FROM (SELECT t.number, t.idx FROM g CROSS JOIN LATERAL (SELECT t.number, t.idx FROM task t \
             WHERE t.task_group = g.number AND t.claim_order IS NOT NULL AND t.blocked_on IS NULL ",
            $limit,
            ") t UNION ALL SELECT t.number, t.idx FROM l CROSS JOIN g CROSS JOIN LATERAL (\
             SELECT t.number, t.idx FROM task t WHERE t.blocked_on = l.number \
             AND t.task_group = g.number AND t.eligibility IS NOT NULL ",
            $limit,
            ") t WHERE l.number IS NOT NULL ",
            $limit,
            ") ready"
        )
    };
}

/// How many there are, counted up to $2.
const COUNT_READY: &str = ready_in_queue!("count(*)", "LIMIT $2");

/// The runs of all of them. Without the offset, a plan may go through all ready tasks for each group.
const READY_RUNS: &str = ready_in_queue!("DISTINCT ready.number - ready.idx", "OFFSET 0");

/// Runs that are looked at in one trip.
const RUNS_PER_TRIP: usize = 1_000;

impl WantLoader<'_> {
    /// How many runs of a queue wait, up to `max`; below that, it may be more than there are.
    pub(crate) async fn count_waiting_runs(&self, queue: &str, max: u32) -> Result<u32, Error> {
        let count = self.client.prepare_cached(COUNT_READY).await?;
        let row = self.client.query_one(&count, &[&queue, &i64::from(max)]).await?;
        let ready = u32::try_from(row.try_get::<_, i64>(0)?).unwrap_or(u32::MAX);
        // A run that waits has a task that is ready.
        if ready < max {
            return Ok(ready);
        }
        let list = self.client.prepare_cached(READY_RUNS).await?;
        let rows = self.client.query(&list, &[&queue]).await?;
        let runs = rows.iter().map(|row| Ok(RunKey(row.try_get(0)?)));
        let runs = Vec::from_iter(runs.collect::<Result<BTreeSet<_>, Error>>()?);
        let mut waiting = 0;
        for runs in runs.chunks(RUNS_PER_TRIP) {
            let wants: Vec<Want> = runs.iter().map(|run| Want::WholeRun(*run)).collect();
            let reads = WantLoader::new(self.client, self.catalog, RowLocks::None);
            for (_, loaded) in Box::pin(reads.load_wants(&wants)).await? {
                if let Loaded::Tasks(tasks) = loaded {
                    waiting += u32::from(is_waiting(&tasks));
                }
            }
            if waiting >= max {
                return Ok(max);
            }
        }
        Ok(waiting)
    }
}

/// Whether the run of these tasks waits.
fn is_waiting(tasks: &[Row]) -> bool {
    let Some(head) = tasks.first().and_then(|first| first.head.as_ref()) else { return false };
    let has_begun = |task: &Row| task.life.started.is_some() || task.life.owner().is_some();
    head.parent.is_none() && head.ended.is_none() && !tasks.iter().any(has_begun)
}
