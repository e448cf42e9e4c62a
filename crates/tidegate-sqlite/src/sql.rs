//! The statements, prepared once for a connection and kept.
//!
//! A partial index serves a query only where the predicates agree to the letter; a test shows which
//! index each [statement](crate::testing::list_statements) uses.

use rusqlite::{Connection, Statement};

/// The columns of a task, in the order in which [`columns`](crate::columns) reads them.
macro_rules! task_columns {
    () => {
        "key, idx, plan, lane, state, reason, fence, attempt, entries, recoveries, active, started, \
         stopping, worker, since, due, begun_at, waits_since, waits_for, turn, ended_at, has_waits, \
         behind, claim_order, run_id, workflow, priority, run_key, not_before, submitted_at, \
         paused_at, cancelled, failing, outcome, run_ended_at, parent_task, open, awaited, retry_of"
    };
}

/// What of a task changes, to be followed by what else is written.
macro_rules! update_task {
    () => {
        "UPDATE task SET state = ?2, reason = ?3, fence = ?4, attempt = ?5, entries = ?6, \
         recoveries = ?7, active = ?8, started = ?9, stopping = ?10, worker = ?11, since = ?12, \
         due = ?13, begun_at = ?14, waits_since = ?15, waits_for = ?16, turn = ?17, gate = ?18, \
         behind = ?19, claim_order = ?20, alarm = ?21, has_waits = ?22, ended_at = ?23"
    };
}

/// The columns of a wait, in the order in which [`waits::read_wait`](crate::waits::read_wait) reads them.
macro_rules! select_waits {
    () => {
        "SELECT kind, name, occurrence, label, since, due, run, how, body, signal FROM wait"
    };
}

/// A record with the id of its run, to be followed by which ones.
macro_rules! select_records {
    () => {
        "SELECT record.seq, record.at, record.run, task.run_id, record.idx, record.what, \
         record.reason, record.attempt, record.entry, record.worker, record.begun_at, \
         record.active, record.error FROM record CROSS JOIN task ON task.key = record.run"
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
    /// The tasks from ?1 on and below ?2, at most ?3, with the columns for
    /// its place, whether records were pruned, and the name of
    /// the workflow.
    STORED_TASKS = concat!(
        "SELECT ",
        task_columns!(),
        ", gate, alarm, unrecorded, (SELECT name FROM workflow WHERE id = task.workflow) \
         FROM task WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3"
    );

    /// What was recorded after ?1, at most ?2 rows; ?3 is nothing.
    RECORDS = concat!(
        select_records!(),
        " WHERE ?3 IS NULL AND record.seq > ?1 ORDER BY record.seq LIMIT ?2"
    );

    /// The same of run ?3.
    RECORDS_OF_RUN = concat!(
        select_records!(),
        " WHERE record.run = ?3 AND record.seq > ?1 ORDER BY record.seq LIMIT ?2"
    );

    /// All that was recorded of the runs from ?1 on and below ?2.
    RECORDS_OF_RUNS = concat!(
        select_records!(),
        " WHERE record.run >= ?1 AND record.run < ?2 ORDER BY record.run, record.seq"
    );

    /// How many tasks are ready, not due, paused, behind a limit, waiting as rows, running. The second
    /// half of the condition for rows that wait says nothing new; it is there, to the letter, so that the
    /// index is used and its rows are not looked at.
    COUNTS = "SELECT (SELECT count(*) FROM task WHERE gate IN (0, 3) AND claim_order IS NOT NULL), \
         (SELECT count(*) FROM task WHERE gate = 1 AND claim_order IS NOT NULL), \
         (SELECT count(*) FROM task WHERE gate = 2 AND claim_order IS NOT NULL), \
         (SELECT count(*) FROM task WHERE gate = 4 AND claim_order IS NOT NULL), \
         (SELECT count(*) FROM task \
         WHERE worker IS NULL AND (worker IS NOT NULL OR state = 5)), \
         (SELECT count(*) FROM task WHERE worker IS NOT NULL)";

    /// Workers that own something: from one to the next, not through all that they own.
    OWNERS = "WITH RECURSIVE owner (id) AS (\
         SELECT (SELECT min(worker) FROM task WHERE worker IS NOT NULL) UNION ALL \
         SELECT (SELECT min(worker) FROM task WHERE worker > owner.id) \
         FROM owner WHERE owner.id IS NOT NULL) SELECT id FROM owner WHERE id IS NOT NULL";

    /// All lanes: number, queue, workflow, name, weight.
    LANES = "SELECT lane.id, workflow.queue, workflow.name, lane.task, \
         lane.weight FROM lane JOIN workflow ON workflow.id = lane.workflow \
         ORDER BY workflow.queue, workflow.name, lane.task, lane.weight";

    /// Tasks of lane ?1 that are ready, up to ?2. For those behind limits all such are looked through:
    /// that is asked only of lanes that no worker serves.
    READY_IN_LANE = "SELECT count(*) FROM (SELECT 1 FROM task \
         WHERE gate IN (0, 1, 2, 3) AND behind IS NULL AND lane = ?1 AND claim_order IS NOT NULL \
         UNION ALL SELECT 1 FROM task WHERE gate = 4 AND lane = ?1 AND claim_order IS NOT NULL \
         LIMIT ?2)";

    /// The lane after ?3 that has tasks behind the gate ?1, or none, and the limit ?2.
    NEXT_LANE = "SELECT min(lane) FROM task WHERE gate IS ?1 AND behind = ?2 \
         AND lane > ?3 AND claim_order IS NOT NULL";

    /// The first ?4 of them in the lane ?3.
    BEHIND = "SELECT claim_order, key FROM task WHERE gate IS ?1 \
         AND behind = ?2 AND lane = ?3 AND claim_order IS NOT NULL ORDER BY claim_order, key LIMIT ?4";

    /// The payloads of kind ?3 of the tasks from ?1 on, below ?2.
    PAYLOADS = "SELECT task, body FROM payload \
         WHERE task >= ?1 AND task < ?2 AND kind = ?3 ORDER BY task";

    /// Limits that were declared, with each key that is in use or waited for, or with none: how much is in
    /// use, how many tasks wait. In no order, because SQLite would sort what an index has in order.
    LIMIT_STATES = "SELECT task_limit.name, at_once, rate, rate_per, \
         ifnull(limit_key.key, ''), \
         ifnull((SELECT sum(units) FROM hold WHERE limit_key = limit_key.id), 0), \
         (SELECT count(*) FROM task WHERE gate = 4 AND behind = limit_key.id \
          AND claim_order IS NOT NULL) + \
         (SELECT count(*) FROM task WHERE gate IS NULL AND behind = limit_key.id \
          AND claim_order IS NOT NULL) \
         FROM task_limit LEFT JOIN limit_key ON limit_key.name = task_limit.name \
         AND (EXISTS (SELECT 1 FROM hold WHERE limit_key = limit_key.id) \
          OR EXISTS (SELECT 1 FROM task WHERE gate = 4 AND behind = limit_key.id \
           AND claim_order IS NOT NULL) \
          OR EXISTS (SELECT 1 FROM task WHERE gate IS NULL AND behind = limit_key.id \
           AND claim_order IS NOT NULL))";

    /// The number of the last task before ?1.
    LAST_BEFORE = "SELECT max(key) FROM task WHERE key < ?1";

    /// First tasks after ?1 and up to ?2, the last first, at most ?11: of queue ?3, workflow ?4, open if ?5,
    /// begun by no task if ?6, or by one from ?9 on and below ?10; ?7 and ?8 are nothing.
    RUNS = concat!(
        "SELECT ",
        task_columns!(),
        " FROM task WHERE key > ?1 AND key <= ?2 AND run_id IS NOT NULL \
         AND (?3 IS NULL AND ?4 IS NULL OR workflow IN (SELECT id FROM workflow \
         WHERE queue = ifnull(?3, queue) AND name = ifnull(?4, name))) \
         AND NOT (?5 AND outcome IS NOT NULL) AND NOT (?6 AND parent_task IS NOT NULL) AND ?7 IS ?8 \
         AND (?9 IS NULL OR parent_task >= ?9 AND parent_task < ?10) ORDER BY key DESC LIMIT ?11"
    );

    /// In place of `?7 IS ?8`: whether a run has an id from ?7 to ?8.
    HAS_ID = "key IN (SELECT key FROM task WHERE run_id >= ?7 AND run_id <= ?8)";

    /// The number of the run with id ?1, and its outcome if it has ended.
    OUTCOME = "SELECT key, iif(run_ended_at IS NULL, NULL, outcome) FROM task WHERE run_id = ?1";

    /// All workers: number, name, when enlisted, slots.
    WORKERS = "SELECT id, name, started_at, slots FROM worker ORDER BY id";
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
    plan = "SELECT body FROM plan WHERE id = ?1";
    workflow = "SELECT queue FROM workflow WHERE id = ?1";
    limit_key = "SELECT name, key FROM limit_key WHERE id = ?1";
    find_limit_key = "SELECT id FROM limit_key WHERE name = ?1 AND key = ?2";
}

statements! {
    /// The statements that load rows, on any connection.
    LoadStatements:
    /// Another number than before: another connection has written.
    data_version = "PRAGMA data_version";

    find = "SELECT key FROM task WHERE run_id = ?1";
    find_key = "SELECT run_key.run FROM workflow JOIN run_key ON run_key.workflow = workflow.id \
                WHERE workflow.queue = ?1 AND workflow.name = ?2 AND run_key.key = ?3";
    task = concat!("SELECT ", task_columns!(), " FROM task WHERE key = ?1");
    tasks = concat!("SELECT ", task_columns!(), " FROM task WHERE key >= ?1 AND key < ?2 \
                     ORDER BY key");
    due = "SELECT key FROM task WHERE alarm <= ?1 ORDER BY alarm, key LIMIT ?2";
    next_alarm = "SELECT min(alarm) FROM task WHERE alarm IS NOT NULL";
    owned = "SELECT key, idx, fence, turn, stopping IS NOT NULL FROM task WHERE worker = ?1 \
             ORDER BY key LIMIT ?2";
    /// One lane behind a gate, from a place on.
    ready = "SELECT claim_order, key FROM task WHERE gate = ?1 AND behind IS NULL AND lane = ?2 \
             AND claim_order IS NOT NULL AND (claim_order, key) > (?3, ?4) \
             ORDER BY claim_order, key LIMIT ?5";
    /// Whether there is something behind a gate.
    any_behind = "SELECT 1 FROM task WHERE gate = ?1 AND claim_order IS NOT NULL LIMIT 1";
    payload = "SELECT body FROM payload WHERE task = ?1 AND kind = ?2";

    last_task = "SELECT max(ifnull((SELECT max(key) FROM task), 0), \
                 ifnull((SELECT number FROM used WHERE name = 'task'), 0))";
    last_record = "SELECT max(ifnull((SELECT max(seq) FROM record), 0), \
                   ifnull((SELECT number FROM used WHERE name = 'record'), 0))";

    waits = concat!(select_waits!(), " WHERE task = ?1 ORDER BY kind, name, occurrence");
    wait = concat!(select_waits!(), " WHERE task = ?1 AND kind = ?2 AND name = ?3 \
                   AND occurrence = ?4");
    signal_waits = "SELECT since, task, occurrence FROM wait WHERE run = ?1 AND kind = ?2 \
                    AND name = ?3 AND how IS NULL ORDER BY since, task, occurrence LIMIT ?4";
    run_waits = "SELECT task, kind, name, occurrence FROM wait WHERE run = ?1 \
                 AND kind IN (?2, ?3) AND how IS NULL";
    waited_by = "SELECT task, kind, name, occurrence, run FROM wait WHERE task >= ?1 AND task < ?2 AND kind IN (?3, ?4) \
                 AND how IS NULL AND run IS NOT NULL";
    last_signal = "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'signal'";
    was_sent = "SELECT 1 FROM signal WHERE run = ?1 AND id = ?2";
    signals = "SELECT seq, body FROM signal WHERE run = ?1 AND name = ?2 \
               AND taken_by IS NULL ORDER BY seq LIMIT ?3";

    limit = "SELECT name, at_once, rate, rate_per FROM task_limit WHERE name = ?1";
    limit_row = "SELECT (SELECT ifnull(sum(units), 0) FROM hold WHERE limit_key = ?1), \
                 (SELECT ifnull(sum(units), 0) FROM begun WHERE limit_key = ?1), \
                 (SELECT max(at) FROM begun WHERE limit_key = ?1), \
                 alarm FROM limit_key WHERE id = ?1";
    holds = "SELECT limit_key, units, since FROM hold WHERE task = ?1";
    begun = "SELECT at, units FROM begun WHERE limit_key = ?1 AND at > ?2 ORDER BY at LIMIT ?3";
    next_lane = NEXT_LANE;
    behind = BEHIND;
    keys_behind = "SELECT id FROM limit_key WHERE name = ?1 AND (EXISTS (SELECT 1 FROM task \
                   WHERE gate = 4 AND behind = limit_key.id AND claim_order IS NOT NULL) \
                   OR EXISTS (SELECT 1 FROM task WHERE gate IS NULL AND behind = limit_key.id \
                   AND claim_order IS NOT NULL)) ORDER BY key";
    first_limit_alarm = "SELECT min(alarm) FROM limit_key WHERE alarm IS NOT NULL";
    due_limits = "SELECT id FROM limit_key WHERE alarm <= ?1 ORDER BY alarm, id LIMIT ?2";

    open_pauses = "SELECT scope, name FROM pause WHERE unpaused_at IS NULL AND scope > 0";
    pause_start = "SELECT paused_at FROM pause WHERE scope = ?1 AND name = ?2 AND unpaused_at IS NULL";
    pauses = "SELECT paused_at, unpaused_at FROM pause WHERE scope = ?1 AND name = ?2 \
              AND paused_at < ?4 AND ifnull(unpaused_at, ?4) > ?3";

    last_lane = "SELECT ifnull(max(id), 0) FROM lane";
    /// The lanes that a worker serves, behind one.
    worker_lanes = "SELECT lane.id, workflow.queue, lane.weight FROM worker_queue \
                    CROSS JOIN workflow ON workflow.queue = worker_queue.queue \
                    CROSS JOIN lane ON lane.workflow = workflow.id \
                    CROSS JOIN worker ON worker.id = worker_queue.worker \
                    WHERE worker_queue.worker = ?1 AND lane.id > ?2 AND (worker.knows_all OR \
                    EXISTS (SELECT 1 FROM worker_knows WHERE worker_knows.worker = ?1 \
                    AND worker_knows.workflow = workflow.name AND worker_knows.task = lane.task))";

    words = "SELECT task FROM word WHERE worker = ?1 ORDER BY task";
    /// Workers for whom there are words.
    have_words = "SELECT id FROM worker WHERE EXISTS \
                  (SELECT 1 FROM word WHERE word.worker = worker.id)";

    workers = "SELECT id FROM worker";
    worker_queues = "SELECT queue FROM worker_queue WHERE worker = ?1";
    worker = "SELECT knows_all, slots FROM worker WHERE id = ?1";
    worker_knows = "SELECT workflow, task FROM worker_knows WHERE worker = ?1";
}

statements! {
    /// The statements that only the writer has.
    WriteStatements:
    begin = "BEGIN IMMEDIATE";
    commit = "COMMIT";
    rollback = "ROLLBACK";
    /// How long the log is, in pages.
    log_size = "PRAGMA wal_checkpoint(NOOP)";

    add_key = "INSERT INTO run_key (workflow, key, run) VALUES (?1, ?2, ?3)";

    insert = "INSERT INTO task (key, state, reason, fence, attempt, entries, recoveries, active, \
              started, stopping, worker, since, due, begun_at, waits_since, waits_for, turn, gate, \
              behind, claim_order, alarm, has_waits, ended_at, paused_at, cancelled, failing, \
              outcome, run_ended_at, open, awaited, idx, plan, lane, run_id, workflow, priority, \
              run_key, not_before, submitted_at, parent_task, retry_of) \
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
              ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, \
              ?35, ?36, ?37, ?38, ?39, ?40, ?41)";
    update = concat!(update_task!(), " WHERE key = ?1");
    /// The first task of a run, with what of the run changes.
    update_first = concat!(update_task!(), ", paused_at = ?24, cancelled = ?25, failing = ?26, \
                           outcome = ?27, run_ended_at = ?28, open = ?29, awaited = ?30 \
                           WHERE key = ?1");
    keep = "INSERT OR REPLACE INTO payload (task, kind, body) VALUES (?1, ?2, ?3)";
    record = "INSERT INTO record (seq, at, run, idx, what, reason, attempt, entry, worker, \
              begun_at, active, error) \
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

    put_wait = "INSERT OR REPLACE INTO wait (task, kind, name, occurrence, label, since, due, run, \
                how, body, signal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    drop_wait = "DELETE FROM wait WHERE task = ?1 AND kind = ?2 AND name = ?3 AND occurrence = ?4";
    add_signal = "INSERT INTO signal (seq, id, run, name, body, sent_at, taken_by) \
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    take_signal = "UPDATE signal SET taken_by = ?2 WHERE seq = ?1";

    set_limit = "INSERT INTO task_limit (name, at_once, rate, rate_per, most) \
                 VALUES (?1, ?2, ?3, ?4, ?2) ON CONFLICT (name) DO UPDATE SET \
                 at_once = ?2, rate = ?3, rate_per = ?4, most = max(most, ?2)";
    add_limit_key = "INSERT INTO limit_key (name, key) VALUES (?1, ?2)";
    hold = "INSERT OR REPLACE INTO hold (task, limit_key, units, since) VALUES (?1, ?2, ?3, ?4)";
    let_go = "DELETE FROM hold WHERE task = ?1 AND limit_key = ?2";
    note_begun = "INSERT INTO begun (limit_key, at, units) VALUES (?1, ?2, ?3) \
                  ON CONFLICT (limit_key, at) DO UPDATE SET units = units + ?3";
    forget_begun = "DELETE FROM begun WHERE limit_key = ?1 AND at BETWEEN ?2 AND ?3";
    set_limit_alarm = "UPDATE limit_key SET alarm = ?2 WHERE id = ?1";

    pause = "INSERT INTO pause (scope, name, paused_at) VALUES (?1, ?2, ?3) \
             ON CONFLICT (scope, name) WHERE unpaused_at IS NULL DO NOTHING";
    unpause = "UPDATE pause SET unpaused_at = max(?3, paused_at) \
               WHERE scope = ?1 AND name = ?2 AND unpaused_at IS NULL";

    find_plan = "SELECT id, body FROM plan WHERE hash = ?1";
    add_plan = "INSERT INTO plan (hash, body) VALUES (?1, ?2)";
    find_workflow = "SELECT id FROM workflow WHERE queue = ?1 AND name = ?2";
    add_workflow = "INSERT INTO workflow (queue, name) VALUES (?1, ?2)";
    find_lane = "SELECT id FROM lane WHERE workflow = ?1 AND task = ?2 AND weight = ?3";
    add_lane = "INSERT INTO lane (workflow, task, weight) VALUES (?1, ?2, ?3)";

    leave_word = "INSERT OR IGNORE INTO word (worker, task) VALUES (?1, ?2)";
    drop_words = "DELETE FROM word WHERE worker = ?1";

    enlist = "INSERT INTO worker (name, started_at, slots, knows_all) VALUES (?1, ?2, ?3, ?4)";
    add_worker_queue = "INSERT OR IGNORE INTO worker_queue (worker, queue) VALUES (?1, ?2)";
    add_worker_knows = "INSERT OR IGNORE INTO worker_knows (worker, workflow, task) \
                        VALUES (?1, ?2, ?3)";
    forget = "DELETE FROM worker WHERE id = ?1";
    forget_queues = "DELETE FROM worker_queue WHERE worker = ?1";
    forget_knows = "DELETE FROM worker_knows WHERE worker = ?1";
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
