//! Removing rows that nothing refers to, in the steps of [`tidegate_core::sweep`].
//!
//! Plans, task groups and queues go by statements of their own: a process that uses such a row again
//! refreshes its time of use in the row, and the row that is deleted is locked and looked at again. Limit
//! keys go with the store locked: no request is under way that could have read one.

use crate::columns::to_timestamp;
use crate::error::Error;
use crate::snapshot::{Planning, read_snapshot};
use crate::state::StoreState;
use tidegate_core::Timestamp;
use tidegate_core::packed::unpack_run;
use tidegate_core::sweep::{Sweep, SweepMarks, SweepStage, Swept, UsedRow, WalkedRun};
use tidegate_core::want::TaskGroup;
use tokio_postgres::Row as PgRow;

const BEGIN: &str = "UPDATE store SET swept_at = $1 WHERE $2::int8 IS NULL OR swept_at <= $2";

/// Runs from $1 on, at most $2, any one row of each: plan, task group, whether the row is live, the run,
/// and from where on the next one is found. From one run to the next, not through all tasks.
const RUNS: &str = "WITH RECURSIVE walk (plan, task_group, is_live, run, next) AS (\
     SELECT 0, 0, false, NULL::bytea, $1::int8 UNION ALL \
     SELECT t.plan, t.task_group, t.is_live, t.run, greatest(t.number + 1, t.number - t.idx \
     + coalesce((SELECT p.tasks FROM plan p WHERE p.number = t.plan), 1)) \
     FROM walk w CROSS JOIN LATERAL (SELECT * FROM (\
     (SELECT number, idx, plan, task_group, true AS is_live, run FROM task \
     WHERE number >= w.next ORDER BY number LIMIT 1) UNION ALL \
     (SELECT number, idx, plan, task_group, false, NULL::bytea FROM ended_task \
     WHERE number >= w.next ORDER BY number LIMIT 1)) AS found ORDER BY number LIMIT 1) AS t) \
     SELECT plan, task_group, is_live, run, next FROM walk OFFSET 1 LIMIT $2";

const PLANS: &str = "SELECT number, used_at FROM plan WHERE number >= $1 ORDER BY number LIMIT $2";

const GROUPS: &str = "SELECT number, used_at, queue, workflow, task, weight FROM task_group \
     WHERE number >= $1 ORDER BY number LIMIT $2";

/// Queues from $1 on, at most $2: number, time of use, name, and whether a worker serves it, a pause
/// keeps it, or a run is to be made in it.
const QUEUES: &str = "SELECT q.number, q.used_at, q.name, \
     EXISTS (SELECT 1 FROM worker w WHERE q.name = ANY(w.queues)) \
     OR EXISTS (SELECT 1 FROM pause p \
     WHERE p.scope = 1 AND p.name = q.name AND p.unpaused_at IS NULL) \
     OR EXISTS (SELECT 1 FROM inbox i WHERE i.queue = q.name) \
     FROM queue q WHERE q.number >= $1 ORDER BY q.number LIMIT $2";

/// A statement that deletes rows $1 that were used last before $2. In order, like those that use them.
macro_rules! delete_unused {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE number = ANY(ARRAY(SELECT number FROM ",
            $table,
            " WHERE number = ANY($1) AND used_at < $2 ORDER BY number FOR UPDATE))"
        )
    };
}

const DELETE_PLANS: &str = delete_unused!("plan");
const DELETE_GROUPS: &str = delete_unused!("task_group");
const DELETE_QUEUES: &str = delete_unused!("queue");

/// Limit keys from $1 on, at most $2, and whether nothing refers to them at the time $3: no units are in
/// use, no task is blocked, no alarm is set, and no begin counts for the rate. Not by EXISTS, for which a
/// plan may go through all holds.
const LIMIT_KEYS: &str = "SELECT k.number, k.in_use = 0 AND k.alarm IS NULL \
     AND (SELECT 1 FROM hold h WHERE h.limit_key = k.number LIMIT 1) IS NULL \
     AND (SELECT 1 FROM task t WHERE t.blocked_on = k.number LIMIT 1) IS NULL \
     AND (SELECT 1 FROM rate_event e WHERE e.limit_key = k.number AND e.at >= $3 \
     - (SELECT l.rate_per / 1000 FROM task_limit l WHERE l.name = k.name) LIMIT 1) IS NULL \
     FROM limit_key k WHERE k.number >= $1 ORDER BY k.number LIMIT $2";

/// Events of the limit keys $1, at most $2.
const DELETE_EVENTS: &str = "DELETE FROM rate_event WHERE ctid = ANY(ARRAY(\
     SELECT ctid FROM rate_event WHERE limit_key = ANY($1) LIMIT $2))";

const DELETE_LIMIT_KEYS: &str = "DELETE FROM limit_key WHERE number = ANY($1)";

/// Pauses of queues and of the store that ended before $1, at most $2.
const DELETE_PAUSES: &str = "DELETE FROM pause WHERE ctid = ANY(ARRAY(SELECT ctid FROM pause \
     WHERE scope IN (1, 2) AND unpaused_at < $1 LIMIT $2))";

/// Takes a step.
///
/// # Errors
/// The store's own; then nothing of the step has happened.
pub(crate) async fn sweep_rows(state: &StoreState, step: Sweep) -> Result<Swept, Error> {
    match step.stage {
        SweepStage::Begin => begin_sweep(state, step).await,
        SweepStage::Runs => walk_runs(state, step).await,
        SweepStage::Plans => {
            let is_marked = |marks: &SweepMarks, row: &UsedRow<()>| marks.has_plan(row.number);
            sweep_unused(state, step, PLANS, DELETE_PLANS, |_| Ok(()), is_marked).await
        }
        SweepStage::TaskGroups => {
            let read = |row: &PgRow| {
                let weight = u32::try_from(row.try_get::<_, i64>(5)?).unwrap_or(u32::MAX);
                let queue = row.try_get::<_, &str>(2)?.into();
                let (workflow, task) = (row.try_get(3)?, row.try_get(4)?);
                Ok(TaskGroup { queue, workflow, task, weight })
            };
            let is_marked =
                |marks: &SweepMarks, row: &UsedRow<TaskGroup>| marks.has_group(&row.name);
            sweep_unused(state, step, GROUPS, DELETE_GROUPS, read, is_marked).await
        }
        SweepStage::Queues => {
            let read = |row: &PgRow| Ok((row.try_get(2)?, row.try_get(3)?));
            let is_marked = |marks: &SweepMarks, row: &UsedRow<(String, bool)>| {
                let (name, is_kept) = &row.name;
                *is_kept || marks.has_queue(name)
            };
            sweep_unused(state, step, QUEUES, DELETE_QUEUES, read, is_marked).await
        }
        SweepStage::LimitKeys => sweep_limit_keys(state, step).await,
        SweepStage::Pauses => sweep_pauses(state, step).await,
    }
}

async fn begin_sweep(state: &StoreState, step: Sweep) -> Result<Swept, Error> {
    let client = state.take_connection().await?;
    let statement = client.prepare_cached(BEGIN).await?;
    let since = step.unless_since.map(Timestamp::as_micros);
    let begun = client.execute(&statement, &[&step.began.as_micros(), &since]).await?;
    Ok(if begun == 0 { Swept::default() } else { step.next_step(0, None) })
}

/// Walks runs, and marks what they use.
async fn walk_runs(state: &StoreState, mut step: Sweep) -> Result<Swept, Error> {
    let max = i64::from(step.max.max(1));
    let rows = read_snapshot(state, Planning::Indexed, async |client| {
        let statement = client.prepare_cached(RUNS).await?;
        Ok(client.query(&statement, &[&step.from, &max]).await?)
    })
    .await?;
    let is_last = (rows.len() as i64) < max;
    let mut unmarked = Vec::new();
    for row in &rows {
        let run = read_walked(row)?;
        step.from = run.next;
        if step.marks_mut().mark_run(&run) {
            unmarked.push((run.plan as i32, run.task_group as i32));
        }
    }
    let plans = unmarked.iter().map(|(plan, _)| *plan).collect();
    let groups = unmarked.iter().map(|(_, group)| *group).collect();
    let plans = state.catalog.find_plans(plans).await?;
    let groups = state.catalog.find_groups(groups).await?;
    for (plan, group) in unmarked {
        // One that is not there cannot be marked; the audit names its tasks.
        let Some(group) = groups.get(&group) else { continue };
        let plan = plans.get(&plan).and_then(|plan| plan.as_deref().ok());
        step.marks_mut().mark_groups(&group.queue, plan);
    }
    let from = step.from;
    Ok(step.next_step(0, (!is_last).then_some(from)))
}

fn read_walked(row: &PgRow) -> Result<WalkedRun, Error> {
    let is_live: bool = row.try_get(2)?;
    let run = row.try_get::<_, Option<&[u8]>>(3)?.and_then(|run| unpack_run(run).ok());
    // A run that cannot be read may need every pause.
    let submitted_at = run.map_or(Timestamp::from_micros(i64::MIN), |run| run.submitted_at);
    Ok(WalkedRun {
        plan: row.try_get::<_, i32>(0)?.into(),
        task_group: row.try_get::<_, i32>(1)?.into(),
        open_since: is_live.then_some(submitted_at),
        next: row.try_get(4)?,
    })
}

/// Deletes rows that were not used for long and are not marked.
async fn sweep_unused<N>(
    state: &StoreState,
    step: Sweep,
    select: &str,
    delete: &str,
    read: impl Fn(&PgRow) -> Result<N, Error>,
    is_marked: impl Fn(&SweepMarks, &UsedRow<N>) -> bool,
) -> Result<Swept, Error> {
    let client = state.take_connection().await?;
    let select = client.prepare_cached(select).await?;
    let from = i32::try_from(step.from).unwrap_or(i32::MAX);
    let rows = client.query(&select, &[&from, &i64::from(step.max.max(1))]).await?;
    let read_used = |row: &PgRow| {
        let (number, used_at): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok(UsedRow { number: number.into(), used_at: to_timestamp(used_at), name: read(row)? })
    };
    let rows = rows.iter().map(read_used).collect::<Result<Vec<_>, Error>>()?;
    let unused = step.pick_unused(&rows, is_marked);
    let mut removed = 0;
    if !unused.is_empty() {
        let unused: Vec<i32> = unused.into_iter().map(|number| number as i32).collect();
        let delete = client.prepare_cached(delete).await?;
        let before = step.unused_before().as_micros();
        removed = client.execute(&delete, &[&unused, &before]).await?;
    }
    Ok(step.after_rows(&rows, removed))
}

async fn sweep_limit_keys(state: &StoreState, step: Sweep) -> Result<Swept, Error> {
    let mut client = state.take_connection().await?;
    let transaction = client.transaction().await?;
    let lock = transaction.prepare_cached("SELECT pg_advisory_xact_lock($1)").await?;
    transaction.execute(&lock, &[&state.server.store_id]).await?;
    let max = i64::from(step.max.max(1));
    let statement = transaction.prepare_cached(LIMIT_KEYS).await?;
    let keys = transaction.query(&statement, &[&step.from, &max, &step.began.as_micros()]).await?;
    let mut unused: Vec<i64> = Vec::new();
    let mut next = None;
    for row in &keys {
        let number: i64 = row.try_get(0)?;
        unused.extend(row.try_get::<_, bool>(1)?.then_some(number));
        next = Some(number + 1);
    }
    let mut removed = 0;
    if !unused.is_empty() {
        // A rate may have many events, which take more than one step.
        let events = transaction.prepare_cached(DELETE_EVENTS).await?;
        removed = transaction.execute(&events, &[&unused, &max]).await?;
        if removed >= max as u64 {
            next = Some(step.from);
        } else {
            let delete = transaction.prepare_cached(DELETE_LIMIT_KEYS).await?;
            removed += transaction.execute(&delete, &[&unused]).await?;
            state.catalog.forget_limits(unused);
        }
    }
    transaction.commit().await?;
    let is_last = (keys.len() as i64) < max && next != Some(step.from);
    Ok(step.next_step(removed, next.filter(|_| !is_last)))
}

async fn sweep_pauses(state: &StoreState, step: Sweep) -> Result<Swept, Error> {
    let Some(end) = step.pauses_end() else { return Ok(step.next_step(0, None)) };
    let client = state.take_connection().await?;
    let statement = client.prepare_cached(DELETE_PAUSES).await?;
    let max = i64::from(step.max.max(1));
    let removed = client.execute(&statement, &[&end.as_micros(), &max]).await?;
    Ok(step.next_step(removed, (removed >= max as u64).then_some(0)))
}

/// The statements that look at or delete rows of tables that grow, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("RUNS", RUNS),
    ("PLANS", PLANS),
    ("GROUPS", GROUPS),
    ("DELETE_PLANS", DELETE_PLANS),
    ("DELETE_GROUPS", DELETE_GROUPS),
    ("LIMIT_KEYS", LIMIT_KEYS),
    ("DELETE_EVENTS", DELETE_EVENTS),
    ("DELETE_LIMIT_KEYS", DELETE_LIMIT_KEYS),
];
