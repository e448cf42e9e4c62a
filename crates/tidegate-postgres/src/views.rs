//! The views of a store: bounded queries, each at one instant or, where it is long, in steps.

use crate::columns::{
    SELECT_ENDED, SELECT_LIVE, TASK_COLUMNS, TaskColumns, Uuid, ended_columns, live_columns,
    read_task,
};
use crate::error::Error;
use crate::limits::read_limit;
use crate::loader::{RowLocks, WantLoader};
use crate::snapshot::{Planning, read_snapshot};
use crate::state::StoreState;
use deadpool_postgres::Object;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::Kind;
use tidegate_core::limit::LimitState;
use tidegate_core::packed::unpack_run;
use tidegate_core::rows::{Gate, Payload, Row};
use tidegate_core::store::{
    Bytes, Counts, RunSummary, RunView, RunsPage, TaskKey, UNSERVED_MAX, Unserved, WhyUnserved,
};
use tidegate_core::want::{Loaded, TaskGroup, Want};

/// Task numbers that are looked at in one statement when runs are listed.
const LIST_STEP: i64 = 50_000;

/// First rows that are read in one statement when runs are listed.
const LIST_ROWS: i64 = 1_000;

/// Runs by id: number of the live first row, number and run of the ended one.
pub(crate) const ENDED_RUNS: &str = "SELECT given.place, live.number, ended.number, ended.run \
     FROM unnest($1::uuid[]) WITH ORDINALITY AS given (id, place) \
     LEFT JOIN task AS live ON live.run_id = given.id \
     LEFT JOIN ended_task AS ended ON ended.run_id = given.id ORDER BY given.place";

/// The tasks of the run with the id $1, each with its payload of kind $2, by number. The bounds are values
/// and not a row to join with: a planner that guesses few tasks would look through all of them.
pub(crate) const RUN_TASKS: &str = concat!(
    "WITH span AS (SELECT first.number, first.number + plan.tasks AS upto \
     FROM (SELECT number, plan FROM task WHERE run_id = $1 \
     UNION ALL SELECT number, plan FROM ended_task WHERE run_id = $1) AS first \
     JOIN plan ON plan.number = first.plan) SELECT ",
    live_columns!(),
    ", payload.body FROM task AS t \
     LEFT JOIN payload ON payload.task = t.number AND payload.kind = $2 \
     WHERE t.number >= (SELECT number FROM span) AND t.number < (SELECT upto FROM span) \
     UNION ALL SELECT ",
    ended_columns!(),
    ", payload.body FROM ended_task AS t \
     LEFT JOIN payload ON payload.task = t.number AND payload.kind = $2 \
     WHERE t.number >= (SELECT number FROM span) AND t.number < (SELECT upto FROM span) \
     ORDER BY 1"
);

/// The last task below $1. Not by `max`, for which a plan may go through all of them.
pub(crate) const LAST_TASK: &str = "SELECT greatest(\
     (SELECT number FROM task WHERE number < $1 ORDER BY number DESC LIMIT 1), \
     (SELECT number FROM ended_task WHERE number < $1 ORDER BY number DESC LIMIT 1))";

/// A payload beside tasks of kind $3, from the task $1 on below $2.
macro_rules! payloads {
    () => {
        "SELECT task, body FROM payload WHERE task >= $1 AND task < $2 AND kind = $3"
    };
}

pub(crate) const PAYLOADS: &str = concat!(payloads!(), " ORDER BY task");
pub(crate) const INPUTS: &str = concat!(
    payloads!(),
    " UNION ALL SELECT number, input FROM task \
     WHERE number >= $1 AND number < $2 AND input IS NOT NULL \
     UNION ALL SELECT number, input FROM ended_task \
     WHERE number >= $1 AND number < $2 AND input IS NOT NULL ORDER BY task"
);
const OUTPUTS: &str = concat!(
    payloads!(),
    " UNION ALL SELECT number, output FROM ended_task \
     WHERE number >= $1 AND number < $2 AND output IS NOT NULL ORDER BY task"
);

/// How many live tasks there are of each eligibility and state, with a worker and without.
const COUNTS: &str = "SELECT eligibility, state, worker IS NOT NULL, count(*) FROM task \
     WHERE eligibility IS NOT NULL OR worker IS NOT NULL OR state = $1 GROUP BY 1, 2, 3";

/// Limits that were declared, with each key that is in use or waited for, or with none.
pub(crate) const LIMIT_STATES: &str = "SELECT l.name, l.at_once, l.rate, l.rate_per, used.key, \
     used.in_use, (SELECT count(*) FROM task WHERE blocked_on = used.number) \
     FROM task_limit AS l LEFT JOIN LATERAL (SELECT k.number, k.key, k.in_use FROM limit_key AS k \
     WHERE k.name = l.name AND (k.in_use > 0 \
     OR EXISTS (SELECT FROM task WHERE blocked_on = k.number))) AS used ON true";

const TASK_GROUPS: &str = "SELECT number, queue, workflow, task, weight FROM task_group \
     ORDER BY queue COLLATE \"C\", workflow COLLATE \"C\", task COLLATE \"C\", weight";

/// Tasks of each group of $1 that are ready, each up to $2. Of those that are blocked on a limit all are
/// looked through: that is asked only of groups that no worker serves.
pub(crate) const READY_IN_GROUPS: &str = "SELECT given.number, (SELECT count(*) FROM (\
     (SELECT FROM task WHERE task_group = given.number AND eligibility IS NOT NULL \
     AND claim_order IS NOT NULL AND blocked_on IS NULL LIMIT $2) UNION ALL \
     (SELECT FROM task WHERE task_group = given.number AND eligibility IS NOT NULL \
     AND blocked_on IS NOT NULL LIMIT $2)) AS ready) FROM unnest($1::int4[]) AS given (number)";

/// A run with its tasks.
pub(crate) async fn view_run(state: &StoreState, id: RunId) -> Result<Option<RunView>, Error> {
    let client = state.take_connection().await?;
    let statement = client.prepare_cached(RUN_TASKS).await?;
    let error = i16::from(Payload::Error.code());
    let found = client.query(&statement, &[&Uuid(id.as_u128()), &error]).await?;
    let tasks = found.iter().map(read_task).collect::<Result<Vec<TaskColumns>, Error>>()?;
    let Some(run) = tasks.first().map(|first| first.key) else { return Ok(None) };
    let mut errors = Vec::new();
    for (row, task) in found.iter().zip(&tasks) {
        let error: Option<&[u8]> = row.try_get(TASK_COLUMNS)?;
        errors.extend(error.map(|error| (TaskKey(task.key), Bytes::from(error))));
    }
    let loader = WantLoader::new(&client, &state.catalog, RowLocks::None);
    let view = tidegate_core::rows::view_run(loader.resolve_rows(tasks).await?, errors);
    view.map(Some).ok_or(Error::Missing { table: "run", number: run })
}

/// The answer to one want.
pub(crate) async fn load_one(loader: &WantLoader<'_>, want: Want) -> Result<Loaded, Error> {
    let loaded = loader.load_wants(std::slice::from_ref(&want)).await?;
    let found = loaded.into_iter().find(|(answered, _)| *answered == want);
    Ok(found.expect("a loader answers every want").1)
}

/// Those of these runs that have ended.
pub(crate) async fn list_ended(
    state: &StoreState,
    runs: &[RunId],
) -> Result<Vec<(RunId, Option<RunOutcome>)>, Error> {
    let client = state.take_connection().await?;
    let ids: Vec<Uuid> = runs.iter().map(|run| Uuid(run.as_u128())).collect();
    let statement = client.prepare_cached(ENDED_RUNS).await?;
    let mut ended = Vec::new();
    for row in client.query(&statement, &[&ids]).await? {
        let place: i64 = row.try_get(0)?;
        let live: Option<i64> = row.try_get(1)?;
        let number: Option<i64> = row.try_get(2)?;
        let id = runs[place as usize - 1];
        match number {
            Some(number) => {
                let damaged = |source| Error::Task { key: number, source };
                let run: &[u8] = row.try_get(3)?;
                let run = unpack_run(run).map_err(damaged)?;
                let (outcome, _) =
                    run.ended.ok_or(tidegate_core::rows::Corrupt).map_err(damaged)?;
                ended.push((id, Some(outcome)));
            }
            None if live.is_none() => ended.push((id, None)),
            None => {}
        }
    }
    Ok(ended)
}

/// Runs from new to old.
pub(crate) async fn list_runs(
    state: &StoreState,
    page: &RunsPage,
) -> Result<Vec<RunSummary>, Error> {
    let client = state.take_connection().await?;
    let loader = WantLoader::new(&client, &state.catalog, RowLocks::None);
    let mut runs = Vec::new();
    let mut before = page.before.map_or(i64::MAX, |run| run.0);
    // Step by step, each a statement of its own: the runs that are asked for may be rare.
    while runs.len() < page.limit as usize {
        let Some(step) = read_first_rows(&client, page, before).await? else { break };
        let rows = loader.resolve_rows(step.rows).await?;
        let wanted = rows.iter().filter(|row| is_listed(row, page)).filter_map(Row::summarize_run);
        runs.extend(wanted.take(page.limit as usize - runs.len()));
        match step.next {
            Some(next) => before = next,
            None => break,
        }
    }
    Ok(runs)
}

/// Whether a page has this run, as far as its statement cannot tell.
fn is_listed(first: &Row, page: &RunsPage) -> bool {
    let parent = first.head.as_ref().and_then(|head| head.parent);
    let is_begun_by =
        |tasks: &std::ops::Range<TaskKey>| parent.is_some_and(|parent| tasks.contains(&parent));
    !(page.top && parent.is_some()) && page.begun_by.as_ref().is_none_or(is_begun_by)
}

/// First rows of runs, from new to old.
struct FirstRows {
    rows: Vec<TaskColumns>,
    /// The number below which the next step looks.
    next: Option<i64>,
}

async fn read_first_rows(
    client: &Object,
    page: &RunsPage,
    before: i64,
) -> Result<Option<FirstRows>, Error> {
    let ids = page.ids.as_ref();
    let lowest = match ids {
        // They are found by their index, however far they are apart.
        Some(_) => i64::MIN,
        None => {
            let statement = client.prepare_cached(LAST_TASK).await?;
            let last: Option<i64> = client.query_one(&statement, &[&before]).await?.try_get(0)?;
            let Some(last) = last else { return Ok(None) };
            last.saturating_sub(LIST_STEP)
        }
    };
    // Each of the two tables by itself, so that each is read from its end.
    let condition = "JOIN task_group AS g ON g.number = t.task_group \
         WHERE t.run_id IS NOT NULL AND t.number > $1 AND t.number < $2 \
         AND ($3::text IS NULL OR g.queue = $3) AND ($4::text IS NULL OR g.workflow = $4)";
    let has_id = match ids {
        Some(_) => "AND t.run_id >= $6 AND t.run_id <= $7",
        None => "AND $6::uuid IS NOT DISTINCT FROM $7::uuid",
    };
    let part =
        |select: &str| format!("({select} {condition} {has_id} ORDER BY t.number DESC LIMIT $5)");
    let sql = match page.open {
        true => part(SELECT_LIVE),
        false => {
            let (live, ended) = (part(SELECT_LIVE), part(SELECT_ENDED));
            format!("{live} UNION ALL {ended} ORDER BY 1 DESC LIMIT $5")
        }
    };
    let statement = client.prepare_cached(&sql).await?;
    let id = |id: &RunId| Uuid(id.as_u128());
    let (from, to) = ids.map(|ids| (id(ids.start()), id(ids.end()))).unzip();
    let found = client
        .query(&statement, &[&lowest, &before, &page.queue, &page.workflow, &LIST_ROWS, &from, &to])
        .await?;
    let rows = found.iter().map(read_task).collect::<Result<Vec<TaskColumns>, Error>>()?;
    let is_cut = rows.len() as i64 == LIST_ROWS;
    let next = match rows.last() {
        Some(last) if is_cut => Some(last.key),
        _ if ids.is_some() => None,
        _ => Some(lowest.saturating_add(1)),
    };
    // No task has begun a run that is older than itself.
    let oldest = page.begun_by.as_ref().map_or(i64::MIN, |tasks| tasks.start.0);
    Ok(Some(FirstRows { rows, next: next.filter(|next| *next > oldest) }))
}

/// The payloads of one kind that some tasks have.
pub(crate) async fn list_payloads(
    state: &StoreState,
    first: TaskKey,
    tasks: u32,
    kind: Payload,
) -> Result<Vec<(TaskKey, Bytes)>, Error> {
    let client = state.take_connection().await?;
    read_payloads(&client, first, tasks, kind).await
}

async fn read_payloads(
    client: &Object,
    first: TaskKey,
    tasks: u32,
    kind: Payload,
) -> Result<Vec<(TaskKey, Bytes)>, Error> {
    let sql = match kind {
        Payload::Input => INPUTS,
        Payload::Output => OUTPUTS,
        Payload::Inserts | Payload::Error | Payload::Item | Payload::Keys => PAYLOADS,
    };
    let end = first.0.saturating_add(tasks.into());
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &[&first.0, &end, &i16::from(kind.code())]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok((TaskKey(row.try_get(0)?), Bytes::from(row.try_get::<_, &[u8]>(1)?)))
    };
    rows.iter().map(read).collect()
}

/// How many tasks stand where.
pub(crate) async fn count_tasks(state: &StoreState) -> Result<Counts, Error> {
    read_snapshot(state, Planning::Scanning, async |client| {
        let parked = i16::from(Kind::Parked.code());
        let statement = client.prepare_cached(COUNTS).await?;
        let mut counts = Counts::default();
        for row in client.query(&statement, &[&parked]).await? {
            let eligibility: Option<i16> = row.try_get(0)?;
            let is_parked = row.try_get::<_, i16>(1)? == parked;
            let is_owned: bool = row.try_get(2)?;
            let tasks = row.try_get::<_, i64>(3)?.unsigned_abs();
            let gate = eligibility.and_then(|code| Gate::from_code(u8::try_from(code).ok()?));
            match gate {
                Some(Gate::Open | Gate::Awaited) => counts.ready += tasks,
                Some(Gate::Future) => counts.future += tasks,
                Some(Gate::Paused) => counts.paused += tasks,
                Some(Gate::Limited) => counts.limited += tasks,
                None => {}
            }
            counts.parked += if is_parked && !is_owned { tasks } else { 0 };
            counts.running += if is_owned { tasks } else { 0 };
        }
        Ok(counts)
    })
    .await
}

/// The limits that are declared, each for every key that is in use or waited for.
pub(crate) async fn list_limits(state: &StoreState) -> Result<Vec<LimitState>, Error> {
    let client = state.take_connection().await?;
    let statement = client.prepare_cached(LIMIT_STATES).await?;
    let mut states = Vec::new();
    for row in client.query(&statement, &[]).await? {
        let key: Option<String> = row.try_get(4)?;
        let in_use: Option<i64> = row.try_get(5)?;
        let waiting: Option<i64> = row.try_get(6)?;
        states.push(LimitState {
            limit: read_limit(&row)?,
            key: key.unwrap_or_default(),
            in_use: u32::try_from(in_use.unwrap_or(0)).unwrap_or(u32::MAX),
            waiting: waiting.unwrap_or(0).unsigned_abs(),
        });
    }
    states.sort_by(|a, b| (a.limit.name(), &a.key).cmp(&(b.limit.name(), &b.key)));
    Ok(states)
}

/// Tasks that are ready and that no worker can run.
pub(crate) async fn list_unserved(state: &StoreState) -> Result<Vec<Unserved>, Error> {
    read_snapshot(state, Planning::Indexed, async |client| {
        let loader = WantLoader::new(client, &state.catalog, RowLocks::None);
        let Loaded::Workers(workers) = load_one(&loader, Want::LiveWorkers).await? else {
            return Ok(Vec::new());
        };
        let groups = client.prepare_cached(TASK_GROUPS).await?;
        let mut unserved: Vec<(i32, TaskGroup, WhyUnserved)> = Vec::new();
        for row in client.query(&groups, &[]).await? {
            let queue: Arc<str> = row.try_get::<_, &str>(1)?.into();
            let weight = u32::try_from(row.try_get::<_, i64>(4)?).unwrap_or(u32::MAX);
            let (workflow, task) = (row.try_get(2)?, row.try_get(3)?);
            let group = TaskGroup { queue, workflow, task, weight };
            if let Some(why) = group.find_unserved_reason(&workers) {
                unserved.push((row.try_get(0)?, group, why));
            }
        }
        let numbers: Vec<i32> = unserved.iter().map(|(number, ..)| *number).collect();
        let count = client.prepare_cached(READY_IN_GROUPS).await?;
        let mut ready: HashMap<i32, i64> = HashMap::new();
        for row in client.query(&count, &[&numbers, &i64::from(UNSERVED_MAX)]).await? {
            ready.insert(row.try_get(0)?, row.try_get(1)?);
        }
        let waiting = |number: &i32| {
            let waiting = ready.get(number).copied().unwrap_or(0);
            u32::try_from(waiting).unwrap_or(u32::MAX)
        };
        let unserved = unserved.into_iter().filter(|(number, ..)| waiting(number) > 0);
        Ok(unserved
            .map(|(number, group, why)| Unserved::new(group, waiting(&number), why))
            .collect())
    })
    .await
}
