//! The statements, prepared once for a connection and kept.
//!
//! A partial index serves a query only where the predicates agree to the letter; a test shows which
//! index each [statement](crate::testing::list_statements) uses.

use crate::columns::{ended_columns, live_columns};
use rusqlite::{Connection, Statement};

/// The columns of a wait, in the order in which [`waits::read_wait`](crate::waits::read_wait) reads them.
macro_rules! select_waits {
    () => {
        "SELECT kind, name, occurrence, label, since, due, run, outcome, body, signal FROM wait"
    };
}

/// What of a live task changes, to be followed by what else is written.
macro_rules! update_task {
    () => {
        "UPDATE task SET request = ?2, fence = ?3, state = ?4, eligibility = ?5, is_plain = ?6, \
         worker = ?7, claim_order = ?8, alarm = ?9, blocked_on = ?10, lifecycle = ?11"
    };
}

/// First tasks with a condition on each row `t`, the last first, at most ?5: below ?2, of queue ?3 and
/// workflow ?4, and only open ones if ?8 says so.
macro_rules! runs {
    ($live:literal, $ended:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            live_columns!(),
            " FROM task AS t ",
            $live,
            " WHERE t.number < ?2 AND ",
            $condition,
            of_workflow!(),
            " UNION ALL SELECT ",
            ended_columns!(),
            " FROM ended_task AS t ",
            $ended,
            " WHERE t.number < ?2 AND ",
            $condition,
            of_workflow!(),
            " AND NOT ?8 ORDER BY 1 DESC LIMIT ?5"
        )
    };
}

macro_rules! of_workflow {
    () => {
        " AND (?3 IS NULL AND ?4 IS NULL OR t.task_group IN (SELECT number FROM task_group \
         WHERE queue = ifnull(?3, queue) AND workflow = ifnull(?4, workflow)))"
    };
}

/// Statements that are seldom needed, as constants.
macro_rules! queries {
    ($($(#[$doc:meta])* $NAME:ident = $sql:expr;)+) => {
        $($(#[$doc])* pub(crate) const $NAME: &str = $sql;)+

        /// All of them, with their names.
        pub(crate) const QUERIES: &[(&str, &str)] =
            &[$((concat!(module_path!(), "::", stringify!($NAME)), $NAME)),+];
    };
}

pub(crate) use queries;

queries! {
    /// How many tasks are ready, not due, paused, blocked on a limit, waiting as rows, running. The second
    /// half of the condition for rows that wait says nothing new; it is there, to the letter, so that the
    /// index is used and its rows are not looked at.
    COUNTS = "SELECT \
         (SELECT count(*) FROM task WHERE eligibility IN (0, 3) AND claim_order IS NOT NULL), \
         (SELECT count(*) FROM task WHERE eligibility = 1 AND claim_order IS NOT NULL), \
         (SELECT count(*) FROM task WHERE eligibility = 2 AND claim_order IS NOT NULL), \
         (SELECT count(*) FROM task WHERE eligibility = 4 AND claim_order IS NOT NULL), \
         (SELECT count(*) FROM task \
         WHERE worker IS NULL AND (worker IS NOT NULL OR state = 5)), \
         (SELECT count(*) FROM task WHERE worker IS NOT NULL)";

    /// Workers that own something: from one to the next, not through all that they own.
    OWNERS = "WITH RECURSIVE owner (number) AS (\
         SELECT (SELECT min(worker) FROM task WHERE worker IS NOT NULL) UNION ALL \
         SELECT (SELECT min(worker) FROM task WHERE worker > owner.number) \
         FROM owner WHERE owner.number IS NOT NULL) SELECT number FROM owner WHERE number IS NOT NULL";

    TASK_GROUPS = "SELECT number, queue, workflow, task, weight FROM task_group \
         ORDER BY queue, workflow, task, weight";

    /// Tasks of the group ?1 that are ready, up to ?2. Of those that are blocked on a limit all are
    /// looked through: that is asked only of groups that no worker serves.
    READY_IN_GROUP = "SELECT count(*) FROM (SELECT 1 FROM task \
         WHERE eligibility IN (0, 1, 2, 3) AND blocked_on IS NULL AND task_group = ?1 \
         AND claim_order IS NOT NULL UNION ALL SELECT 1 FROM task \
         WHERE eligibility = 4 AND task_group = ?1 AND claim_order IS NOT NULL LIMIT ?2)";

    /// The group after ?3 that has tasks of the eligibility ?1, or none, that are blocked on the limit ?2.
    NEXT_GROUP = "SELECT min(task_group) FROM task WHERE eligibility IS ?1 AND blocked_on = ?2 \
         AND task_group > ?3 AND claim_order IS NOT NULL";

    /// The first ?4 of them in the group ?3.
    BLOCKED = "SELECT claim_order, number FROM task WHERE eligibility IS ?1 AND blocked_on = ?2 \
         AND task_group = ?3 AND claim_order IS NOT NULL ORDER BY claim_order, number LIMIT ?4";

    /// The payloads beside tasks of kind ?3, from the task ?1 on, below ?2.
    PAYLOADS = "SELECT task, body FROM payload WHERE task >= ?1 AND task < ?2 AND kind = ?3 ORDER BY task";
    INPUTS = "SELECT task, body FROM payload WHERE task >= ?1 AND task < ?2 AND kind = ?3 \
         UNION ALL SELECT number, input FROM task \
         WHERE number >= ?1 AND number < ?2 AND input IS NOT NULL \
         UNION ALL SELECT number, input FROM ended_task \
         WHERE number >= ?1 AND number < ?2 AND input IS NOT NULL ORDER BY 1";
    OUTPUTS = "SELECT task, body FROM payload WHERE task >= ?1 AND task < ?2 AND kind = ?3 \
         UNION ALL SELECT number, output FROM ended_task \
         WHERE number >= ?1 AND number < ?2 AND output IS NOT NULL ORDER BY 1";

    /// Limits that were declared, with each key that is in use or waited for, or with none: how much is in
    /// use, how many tasks wait. In no order, because SQLite would sort what an index has in order.
    LIMIT_STATES = "SELECT task_limit.name, at_once, rate, rate_per, \
         ifnull(limit_key.key, ''), \
         ifnull(limit_key.in_use, 0), \
         (SELECT count(*) FROM task WHERE eligibility = 4 AND blocked_on = limit_key.number \
          AND claim_order IS NOT NULL) + \
         (SELECT count(*) FROM task WHERE eligibility IS NULL AND blocked_on = limit_key.number \
          AND claim_order IS NOT NULL) \
         FROM task_limit LEFT JOIN limit_key ON limit_key.name = task_limit.name \
         AND (limit_key.in_use > 0 \
          OR EXISTS (SELECT 1 FROM task WHERE eligibility = 4 AND blocked_on = limit_key.number \
           AND claim_order IS NOT NULL) \
          OR EXISTS (SELECT 1 FROM task WHERE eligibility IS NULL AND blocked_on = limit_key.number \
           AND claim_order IS NOT NULL))";

    /// The last task below ?1.
    LAST_TASK = "SELECT max(number) FROM (\
         SELECT max(number) AS number FROM task WHERE number < ?1 UNION ALL \
         SELECT max(number) FROM ended_task WHERE number < ?1)";

    /// First tasks after ?1; ?6 and ?7 are nothing.
    RUNS = runs!("", "", "t.number > ?1 AND t.run_id IS NOT NULL AND ?6 IS ?7");

    /// The same of runs with ids from ?6 to ?7, wherever they stand.
    RUNS_BY_ID = runs!(
        "INDEXED BY task_run_id",
        "INDEXED BY ended_task_run_id",
        "?1 IS NOT NULL AND t.run_id >= ?6 AND t.run_id <= ?7"
    );

    LIVE_RUN = "SELECT number FROM task WHERE run_id = ?1";
    ENDED_RUN = "SELECT number, run FROM ended_task WHERE run_id = ?1";

    /// All workers: number, name, when enlisted, slots.
    WORKERS = "SELECT number, name, started_at, slots FROM worker ORDER BY number";
}

macro_rules! statements {
    ($(#[$about:meta])* $Name:ident: $($(#[$doc:meta])* $name:ident = $sql:expr;)+) => {
        $(#[$about])*
        pub(crate) struct $Name<'c> {
            $($(#[$doc])* pub(crate) $name: Statement<'c>,)+
        }

        impl<'c> $Name<'c> {
            /// All of them, with their names.
            pub(crate) const ALL: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), $sql)),+];

            /// Prepares them all.
            pub(crate) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
                Ok($Name { $($name: connection.prepare($sql)?,)+ })
            }
        }
    };
}

statements! {
    /// The statements that find names by their numbers, on any connection.
    CatalogStatements:
    plan = "SELECT body FROM plan WHERE number = ?1";
    task_group = "SELECT queue, workflow, task, weight FROM task_group WHERE number = ?1";
    limit_key = "SELECT name, key FROM limit_key WHERE number = ?1";
    find_limit = "SELECT number FROM limit_key WHERE name = ?1 AND key = ?2";
}

statements! {
    /// The statements that load rows, on any connection.
    LoadStatements:
    /// Another number than before: another connection has written.
    data_version = "PRAGMA data_version";

    run_id = "SELECT number FROM task WHERE run_id = ?1 UNION ALL \
              SELECT number FROM ended_task WHERE run_id = ?1";
    run_key = "SELECT run FROM run_key WHERE queue = ?1 AND workflow = ?2 AND key = ?3";
    task = concat!("SELECT ", live_columns!(), " FROM task AS t WHERE t.number = ?1");
    ended_task = concat!("SELECT ", ended_columns!(), " FROM ended_task AS t WHERE t.number = ?1");
    tasks = concat!(
        "SELECT ", live_columns!(), " FROM task AS t WHERE t.number >= ?1 AND t.number < ?2 \
         UNION ALL SELECT ", ended_columns!(), " FROM ended_task AS t \
         WHERE t.number >= ?1 AND t.number < ?2 ORDER BY 1"
    );
    due = "SELECT number FROM task WHERE alarm <= ?1 ORDER BY alarm, number LIMIT ?2";
    next_alarm = "SELECT min(alarm) FROM task WHERE alarm IS NOT NULL";
    owned = "SELECT number, idx, fence, request, lifecycle FROM task WHERE worker = ?1 \
             ORDER BY number LIMIT ?2";
    /// One group with an eligibility, from a place on.
    ready = "SELECT claim_order, number FROM task WHERE eligibility = ?1 AND blocked_on IS NULL \
             AND task_group = ?2 AND claim_order IS NOT NULL AND (claim_order, number) > (?3, ?4) \
             ORDER BY claim_order, number LIMIT ?5";
    /// Whether there is a task with an eligibility.
    any_ready = "SELECT 1 FROM task WHERE eligibility = ?1 AND claim_order IS NOT NULL LIMIT 1";
    payload = "SELECT body FROM payload WHERE task = ?1 AND kind = ?2";
    input = "SELECT coalesce((SELECT input FROM task WHERE number = ?1), \
             (SELECT input FROM ended_task WHERE number = ?1))";
    output = "SELECT output FROM ended_task WHERE number = ?1 AND output IS NOT NULL";

    last_task = "SELECT max(ifnull((SELECT max(number) FROM task), 0), \
                 ifnull((SELECT max(number) FROM ended_task), 0), \
                 ifnull((SELECT number FROM id_high_water WHERE name = 'task'), 0))";
    last_record = "SELECT max(ifnull((SELECT max(number) FROM record), 0), \
                   ifnull((SELECT max(record) FROM ended_task WHERE record IS NOT NULL), 0), \
                   ifnull((SELECT number FROM id_high_water WHERE name = 'record'), 0))";
    last_run = "SELECT ifnull((SELECT number FROM id_high_water WHERE name = 'run'), 0)";

    waits = concat!(select_waits!(), " WHERE task = ?1 ORDER BY kind, name, occurrence");
    wait = concat!(select_waits!(), " WHERE task = ?1 AND kind = ?2 AND name = ?3 \
                   AND occurrence = ?4");
    signal_waits = "SELECT since, task, occurrence FROM wait WHERE run = ?1 AND kind = ?2 \
                    AND name = ?3 AND outcome IS NULL ORDER BY since, task, occurrence LIMIT ?4";
    run_waits = "SELECT task, kind, name, occurrence FROM wait WHERE run = ?1 \
                 AND kind IN (?2, ?3) AND outcome IS NULL";
    waited_by = "SELECT task, kind, name, occurrence, run FROM wait WHERE task >= ?1 AND task < ?2 AND kind IN (?3, ?4) \
                 AND outcome IS NULL AND run IS NOT NULL";
    last_signal = "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'signal'";
    was_sent = "SELECT 1 FROM signal WHERE run = ?1 AND id = ?2";
    signals = "SELECT number, body FROM signal WHERE run = ?1 AND name = ?2 \
               AND taken_by IS NULL ORDER BY number LIMIT ?3";

    limit = "SELECT name, at_once, rate, rate_per FROM task_limit WHERE name = ?1";
    limit_row = "SELECT in_use, window_sum, overtaken_task, overtakes, alarm FROM limit_key \
                 WHERE number = ?1";
    holds = "SELECT limit_key, units, since FROM hold WHERE task = ?1";
    rate_events = "SELECT at, units FROM rate_event WHERE limit_key = ?1 AND at > ?2 \
                   ORDER BY at LIMIT ?3";
    newest_event = "SELECT max(at) FROM rate_event WHERE limit_key = ?1";
    next_group = NEXT_GROUP;
    blocked = BLOCKED;
    blocked_keys = "SELECT number FROM limit_key WHERE name = ?1 AND (EXISTS (SELECT 1 FROM task \
                    WHERE eligibility = 4 AND blocked_on = limit_key.number \
                    AND claim_order IS NOT NULL) OR EXISTS (SELECT 1 FROM task \
                    WHERE eligibility IS NULL AND blocked_on = limit_key.number \
                    AND claim_order IS NOT NULL)) ORDER BY key";
    first_limit_alarm = "SELECT min(alarm) FROM limit_key WHERE alarm IS NOT NULL";
    due_limits = "SELECT number FROM limit_key WHERE alarm <= ?1 ORDER BY alarm, number LIMIT ?2";

    open_pauses = "SELECT scope, name FROM pause WHERE unpaused_at IS NULL AND scope > 0";
    pause_start = "SELECT paused_at FROM pause WHERE scope = ?1 AND name = ?2 AND unpaused_at IS NULL";
    pauses = "SELECT paused_at, unpaused_at FROM pause WHERE scope = ?1 AND name = ?2 \
              AND paused_at < ?4 AND ifnull(unpaused_at, ?4) > ?3";

    last_group = "SELECT ifnull(max(number), 0) FROM task_group";
    /// The groups that a worker serves, after one.
    served_groups = "SELECT task_group.number, task_group.queue, task_group.weight FROM worker_queue \
                     CROSS JOIN task_group ON task_group.queue = worker_queue.queue \
                     CROSS JOIN worker ON worker.number = worker_queue.worker \
                     WHERE worker_queue.worker = ?1 AND task_group.number > ?2 \
                     AND (worker.knows_all OR EXISTS (SELECT 1 FROM worker_task \
                     WHERE worker_task.worker = ?1 AND worker_task.workflow = task_group.workflow \
                     AND worker_task.task = task_group.task))";

    notifications = "SELECT task FROM notification WHERE worker = ?1 ORDER BY task";
    /// Workers for whom there are notifications.
    notified_workers = "SELECT number FROM worker WHERE EXISTS \
                        (SELECT 1 FROM notification WHERE notification.worker = worker.number)";

    workers = "SELECT number FROM worker";
    worker_queues = "SELECT queue FROM worker_queue WHERE worker = ?1";
    worker = "SELECT knows_all, slots FROM worker WHERE number = ?1";
    worker_tasks = "SELECT workflow, task FROM worker_task WHERE worker = ?1";
}

statements! {
    /// The statements that only the writer has.
    WriteStatements:
    begin = "BEGIN IMMEDIATE";
    commit = "COMMIT";
    rollback = "ROLLBACK";
    /// How long the log is, in pages.
    log_size = "PRAGMA wal_checkpoint(NOOP)";

    insert_task = "INSERT INTO task (number, request, fence, state, eligibility, is_plain, worker, \
                   claim_order, alarm, blocked_on, lifecycle, run, plan, task_group, queue, weight, \
                   idx, run_id, run_number, input) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
                   ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";
    update_task = concat!(update_task!(), " WHERE number = ?1");
    /// The first task of a run, with what of the run changes.
    update_first = concat!(update_task!(), ", run = ?12 WHERE number = ?1");
    /// A row that has become final; it is then deleted where it was.
    move_ended = "INSERT INTO ended_task (number, request, fence, plan, task_group, idx, state, \
                  record, record_kind, ended_at, lifecycle, ending, run_id, run_number, \
                  run_ended_at, run, input, output) SELECT number, ?2, ?3, plan, task_group, idx, \
                  ?4, ?5, ?6, ?7, ?8, ?9, run_id, run_number, ?10, ?11, input, ?12 \
                  FROM task WHERE number = ?1";
    delete_task = "DELETE FROM task WHERE number = ?1";
    /// A final row that a repair changes.
    update_ended = "UPDATE ended_task SET request = ?2, fence = ?3, state = ?4, ended_at = ?7, \
                    lifecycle = ?8, run_ended_at = ?10, run = ?11, output = ifnull(?12, output) \
                    WHERE number = ?1";
    /// A row that is final from its beginning.
    insert_ended = "INSERT INTO ended_task (number, request, fence, state, record, record_kind, \
                    ended_at, lifecycle, ending, run_ended_at, run, output, plan, task_group, idx, \
                    run_id, run_number, input) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, \
                    ?12, ?13, ?14, ?15, ?16, ?17, ?18)";
    insert_key = "INSERT INTO run_key (queue, workflow, key, run) VALUES (?1, ?2, ?3, ?4)";
    insert_record = "INSERT INTO record (number, at, run, idx, kind, reason, attempt, entry, worker, \
                     begun_at, active, error) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    put_payload = "INSERT OR REPLACE INTO payload (task, kind, body) VALUES (?1, ?2, ?3)";
    set_high_water = "INSERT INTO id_high_water (name, number) VALUES (?1, ?2) \
                      ON CONFLICT (name) DO UPDATE SET number = max(number, ?2)";

    put_wait = "INSERT OR REPLACE INTO wait (task, kind, name, occurrence, label, since, due, run, \
                outcome, body, signal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    delete_wait = "DELETE FROM wait WHERE task = ?1 AND kind = ?2 AND name = ?3 AND occurrence = ?4";
    insert_signal = "INSERT INTO signal (number, id, run, name, body, sent_at, taken_by) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    take_signal = "UPDATE signal SET taken_by = ?2 WHERE number = ?1";

    set_limit = "INSERT INTO task_limit (name, at_once, rate, rate_per, most) \
                 VALUES (?1, ?2, ?3, ?4, ?2) ON CONFLICT (name) DO UPDATE SET \
                 at_once = ?2, rate = ?3, rate_per = ?4, most = max(most, ?2)";
    add_limit = "INSERT INTO limit_key (name, key) VALUES (?1, ?2)";
    put_hold = "INSERT OR REPLACE INTO hold (task, limit_key, units, since) VALUES (?1, ?2, ?3, ?4)";
    delete_hold = "DELETE FROM hold WHERE task = ?1 AND limit_key = ?2";
    add_rate_event = "INSERT INTO rate_event (limit_key, at, units) VALUES (?1, ?2, ?3) \
                      ON CONFLICT (limit_key, at) DO UPDATE SET units = units + ?3";
    forget_rate_events = "DELETE FROM rate_event WHERE limit_key = ?1 AND at BETWEEN ?2 AND ?3";
    set_limit_row = "UPDATE limit_key SET in_use = ?2, window_sum = ?3, overtaken_task = ?4, \
                     overtakes = ?5, alarm = ?6 WHERE number = ?1";

    begin_pause = "INSERT INTO pause (scope, name, paused_at) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (scope, name) WHERE unpaused_at IS NULL DO NOTHING";
    end_pause = "UPDATE pause SET unpaused_at = max(?3, paused_at) \
                 WHERE scope = ?1 AND name = ?2 AND unpaused_at IS NULL";

    find_plan = "SELECT number, used_at, body FROM plan WHERE hash = ?1";
    add_plan = "INSERT INTO plan (hash, tasks, body, used_at) VALUES (?1, ?2, ?3, ?4)";
    use_plan = "UPDATE plan SET used_at = ?2 WHERE number = ?1";
    find_queue = "SELECT number, used_at FROM queue WHERE name = ?1";
    add_queue = "INSERT INTO queue (name, used_at) VALUES (?1, ?2)";
    use_queue = "UPDATE queue SET used_at = ?2 WHERE number = ?1";
    find_group = "SELECT number, used_at FROM task_group WHERE queue = ?1 AND workflow = ?2 \
                  AND task = ?3 AND weight = ?4";
    add_group = "INSERT INTO task_group (queue, workflow, task, weight, used_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5)";
    use_group = "UPDATE task_group SET used_at = ?2 WHERE number = ?1";

    notify_worker = "INSERT OR IGNORE INTO notification (worker, task) VALUES (?1, ?2)";
    take_notifications = "DELETE FROM notification WHERE worker = ?1";

    add_worker = "INSERT INTO worker (id, name, started_at, slots, knows_all, pid, host, boot_id) \
                  VALUES (random() & 9223372036854775807, ?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    add_worker_queue = "INSERT OR IGNORE INTO worker_queue (worker, queue) VALUES (?1, ?2)";
    add_worker_task = "INSERT OR IGNORE INTO worker_task (worker, workflow, task) \
                       VALUES (?1, ?2, ?3)";
    forget_worker = "DELETE FROM worker WHERE number = ?1";
    forget_queues = "DELETE FROM worker_queue WHERE worker = ?1";
    forget_tasks = "DELETE FROM worker_task WHERE worker = ?1";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQLite looks at the value of a LIMIT when it plans, and planned anew for every other one.
    #[test]
    fn a_statement_is_not_planned_anew_for_another_value() {
        use rusqlite::StatementStatus::RePrepare;
        let folder = tempfile::tempdir().unwrap();
        let opened = crate::open::open(&folder.path().join("x.db"), &Default::default()).unwrap();
        let mut sql = LoadStatements::prepare(&opened.connection).unwrap();
        for rows in 1..10_i64 {
            assert!(sql.ready.query((0, 1, 0, 0, rows)).unwrap().next().unwrap().is_none());
        }
        assert_eq!(sql.ready.get_status(RePrepare), 0);
    }
}
