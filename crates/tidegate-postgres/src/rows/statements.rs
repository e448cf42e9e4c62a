//! The statements that find tasks and runs, with and without locks.

use crate::columns::{ended_columns, live_columns};

/// A statement that reads, and the same with locks on the rows.
pub(crate) struct LockingStatement {
    pub(crate) reads: &'static str,
    pub(crate) locks: &'static str,
}

impl LockingStatement {
    pub(crate) fn as_sql(&self, takes_locks: bool) -> &'static str {
        if takes_locks { self.locks } else { self.reads }
    }
}

macro_rules! tasks {
    ($lock:literal) => {
        concat!(
            "SELECT ",
            live_columns!(),
            " FROM task t WHERE t.number = ANY($1) ORDER BY t.number",
            $lock
        )
    };
}

/// The tasks $1.
pub(crate) const TASKS: LockingStatement =
    LockingStatement { reads: tasks!(""), locks: tasks!(" FOR UPDATE") };

/// The plan of a run, whose first task has ended or not.
macro_rules! plan_of_run {
    () => {
        "CROSS JOIN LATERAL (SELECT f.plan FROM task f WHERE f.number = run.number \
         UNION ALL SELECT f.plan FROM ended_task f WHERE f.number = run.number LIMIT 1) f \
         CROSS JOIN LATERAL (SELECT (SELECT tasks FROM plan WHERE number = f.plan) AS tasks) p"
    };
}

macro_rules! tasks_and_runs {
    ($lock:literal) => {
        concat!(
            "SELECT ",
            live_columns!(),
            " FROM task t WHERE t.number = ANY(ARRAY(\
             SELECT unnest($1::int8[]) UNION ALL \
             SELECT generate_series(run.number, run.number + p.tasks - 1) \
             FROM unnest($2::int8[]) AS run (number) ",
            plan_of_run!(),
            " UNION ALL SELECT rows.number FROM unnest($3::int8[], $4::int8[]) AS owner (worker, most) \
             CROSS JOIN LATERAL (SELECT o.number, o.idx FROM task o \
             WHERE o.worker BETWEEN owner.worker AND owner.worker \
             ORDER BY o.worker, o.number LIMIT owner.most) o \
             CROSS JOIN LATERAL (VALUES (o.number), (o.number - o.idx)) AS rows (number)\
             )) ORDER BY t.number",
            $lock
        )
    };
}

/// The tasks $1, all tasks of the runs $2, and up to $4 tasks of each of the workers $3 with the first
/// tasks of their runs. A range of workers, in their order, is found by the index of owned tasks alone;
/// by one worker in the order of numbers, a plan may look through all tasks.
pub(crate) const TASKS_AND_RUNS: LockingStatement =
    LockingStatement { reads: tasks_and_runs!(""), locks: tasks_and_runs!(" FOR UPDATE") };

/// The ended tasks of the runs $1.
pub(crate) const ENDED_OF_RUNS: &str = concat!(
    "SELECT ",
    ended_columns!(),
    " FROM unnest($1::int8[]) AS run (number) ",
    plan_of_run!(),
    " JOIN ended_task t ON t.number >= run.number AND t.number < run.number + p.tasks"
);

/// The ended tasks $1.
pub(crate) const ENDED: &str =
    concat!("SELECT ", ended_columns!(), " FROM ended_task t WHERE t.number = ANY($1)");

/// The first tasks of the runs of tasks in `found`, behind those tasks. Another transaction that has
/// locked one holds up nothing: the tasks of its run are left out.
macro_rules! with_first_tasks {
    ($lock:literal) => {
        concat!(
            ", first AS MATERIALIZED (SELECT ",
            live_columns!(),
            " FROM task t WHERE t.number = ANY(ARRAY(SELECT DISTINCT found.number - found.idx \
             FROM found WHERE found.idx > 0)) ORDER BY t.number",
            $lock,
            ") SELECT found.*, true FROM found UNION ALL SELECT first.*, false FROM first"
        )
    };
}
pub(crate) use with_first_tasks;

/// The clock of the store, which stands still for the rest of the transaction.
pub(crate) const NOW: &str = "SELECT set_config('tidegate.now', \
     ((extract(epoch FROM clock_timestamp()) * 1000000)::int8)::text, true)::int8";

/// The time $1, or that of the store if there is none.
macro_rules! until {
    () => {
        "coalesce($1::int8, nullif(current_setting('tidegate.now', true), '')::int8)"
    };
}
pub(crate) use until;

macro_rules! due {
    ($lock:literal) => {
        concat!(
            "WITH found AS MATERIALIZED (SELECT ",
            live_columns!(),
            " FROM task t WHERE t.alarm <= ",
            until!(),
            " ORDER BY t.alarm, t.number LIMIT $2",
            $lock,
            ")",
            with_first_tasks!($lock)
        )
    };
}

/// Up to $2 tasks with an alarm not later than $1 or the time of the store, and the first tasks of their runs.
pub(crate) const DUE: LockingStatement =
    LockingStatement { reads: due!(""), locks: due!(" FOR UPDATE SKIP LOCKED") };

macro_rules! ready {
    ($lock:literal, $lock_first:literal) => {
        concat!(
            // The groups that nothing keeps from starting, behind each open gate.
            "WITH served AS MATERIALIZED (SELECT g.number, e.code \
             FROM unnest($1::int4[], $2::text[]) AS g (number, queue) \
             CROSS JOIN unnest($3::int2[]) AS e (code) \
             WHERE NOT EXISTS (SELECT 1 FROM pause WHERE scope = 1 AND name = g.queue \
             AND unpaused_at IS NULL) AND ($4 OR NOT EXISTS (SELECT 1 FROM pause WHERE scope = 2 \
             AND name = '' AND unpaused_at IS NULL)) \
             AND EXISTS (SELECT 1 FROM worker WHERE number = $6)), ",
            // The first $5 tasks. Nothing is locked here.
            "front AS MATERIALIZED (SELECT served.number, served.code, t.claim_order, \
             t.number AS task FROM served CROSS JOIN LATERAL (\
             SELECT t.claim_order, t.number FROM task t WHERE t.task_group = served.number \
             AND t.eligibility = served.code AND t.claim_order IS NOT NULL \
             AND t.blocked_on IS NULL ORDER BY t.claim_order, t.number LIMIT $5) t \
             ORDER BY t.claim_order, t.number LIMIT $5), ",
            // All but the last, which only says that there are more. A decision that came to the last one
            // has asked for it, and passes over some of them: it gets all.
            "size AS MATERIALIZED (SELECT $5 - CASE WHEN EXISTS (SELECT 1 FROM front \
             WHERE front.task = ANY($7)) THEN 0 ELSE 1 END AS tasks), \
             share AS MATERIALIZED (SELECT number, code, count(*) AS tasks FROM (\
             SELECT number, code FROM front ORDER BY claim_order, task \
             LIMIT (SELECT tasks FROM size)) first_tasks GROUP BY number, code), ",
            // As many of each group, without those that another transaction has.
            "found AS MATERIALIZED (SELECT t.* FROM share CROSS JOIN LATERAL (SELECT ",
            live_columns!(),
            " FROM task t WHERE t.task_group = share.number AND t.eligibility = share.code \
             AND t.claim_order IS NOT NULL AND t.blocked_on IS NULL \
             ORDER BY t.claim_order, t.number LIMIT share.tasks",
            $lock,
            ") t), ",
            // The next one, if there are as many as are wanted.
            "last AS MATERIALIZED (SELECT DISTINCT ON (task_group, eligibility) task_group, \
             eligibility, claim_order, number FROM found \
             ORDER BY task_group, eligibility, claim_order DESC, number DESC), \
             next AS MATERIALIZED (SELECT t.number, t.claim_order FROM served \
             LEFT JOIN last ON last.task_group = served.number AND last.eligibility = served.code \
             CROSS JOIN LATERAL (SELECT t.claim_order, t.number FROM task t \
             WHERE t.task_group = served.number AND t.eligibility = served.code \
             AND t.claim_order IS NOT NULL AND t.blocked_on IS NULL \
             AND (t.claim_order, t.number) > (coalesce(last.claim_order, -9223372036854775808), \
             coalesce(last.number, -9223372036854775808)) \
             ORDER BY t.claim_order, t.number LIMIT 1) t \
             WHERE (SELECT tasks FROM size) < $5 \
             AND (SELECT count(*) FROM found) = (SELECT tasks FROM size) \
             ORDER BY t.claim_order, t.number LIMIT 1)",
            with_first_tasks!($lock_first),
            " UNION ALL SELECT next.number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
             next.claim_order, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM next"
        )
    };
}

/// Up to $5 tasks of the groups $1 that can be claimed, behind the gates $3, and the first tasks of their
/// runs. The last of them is not locked, and only its place is returned, unless one of the tasks $7 is
/// among them: another worker that asks for tasks at the same time would find one too few. $2 has the
/// queues whose pauses count, and $4 says that a pause of the store does not. A worker $6 that was removed
/// finds nothing.
pub(crate) const READY: LockingStatement = LockingStatement {
    reads: ready!("", ""),
    // Claims of several tasks of a run do not change the run.
    locks: ready!(" FOR UPDATE SKIP LOCKED", " FOR SHARE SKIP LOCKED"),
};

pub(super) const NEW_GROUPS: &str =
    "SELECT number, queue, workflow, task, weight FROM task_group WHERE number > $1";

pub(super) const RUN_IDS: &str = "SELECT run_id, number FROM task WHERE run_id = ANY($1) UNION ALL \
     SELECT run_id, number FROM ended_task WHERE run_id = ANY($1)";

pub(super) const RUN_KEYS: &str = "SELECT named.place, k.run FROM unnest($1::text[], $2::text[], $3::text[]) \
     WITH ORDINALITY AS named (queue, workflow, key, place) JOIN run_key k \
     ON k.queue = named.queue AND k.workflow = named.workflow AND k.key = named.key";

pub(super) const OWNED: &str = "SELECT t.number, t.request, t.fence, t.plan, t.task_group, t.idx, t.state, \
     t.eligibility, t.worker, t.claim_order, t.alarm, t.blocked_on, t.lifecycle, NULL::uuid, \
     NULL::bytea, t.claimed_at FROM task t WHERE t.worker BETWEEN $1 AND $1 ORDER BY t.worker, t.number LIMIT $2";

/// All statements, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("TASKS", TASKS.locks),
    ("TASKS_AND_RUNS", TASKS_AND_RUNS.locks),
    ("ENDED_OF_RUNS", ENDED_OF_RUNS),
    ("ENDED", ENDED),
    ("DUE", DUE.locks),
    ("READY", READY.locks),
    ("NEW_GROUPS", NEW_GROUPS),
    ("OWNED", OWNED),
    ("RUN_IDS", RUN_IDS),
    ("RUN_KEYS", RUN_KEYS),
];
