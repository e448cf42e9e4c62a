//! Every statement of the writer, prepared once and kept.
//!
//! A partial index serves a query only where the predicates agree to the letter; the test below
//! shows which index each statement uses.

use rusqlite::{Connection, Statement};

/// The columns of a task, in the order in which [`columns`](crate::columns) reads them.
macro_rules! task_columns {
    () => {
        "key, idx, plan, lane, state, reason, fence, attempt, entries, recoveries, active, started, \
         stopping, worker, since, due, begun_at, waits_since, waits_for, turn, ended_at, run_id, \
         workflow, priority, run_key, not_before, submitted_at, paused_at, cancelled, failing, \
         outcome, run_ended_at, parent_task, open"
    };
}

/// What of a task changes, to be followed by what else is written.
macro_rules! update_task {
    () => {
        "UPDATE task SET state = ?2, reason = ?3, fence = ?4, attempt = ?5, entries = ?6, \
         recoveries = ?7, active = ?8, started = ?9, stopping = ?10, worker = ?11, since = ?12, \
         due = ?13, begun_at = ?14, waits_since = ?15, waits_for = ?16, turn = ?17, gate = ?18, \
         claim_order = ?19, alarm = ?20, ended_at = ?21"
    };
}

/// Columns for [`columns::read`](crate::columns::read), to be followed by a condition.
pub(crate) const SELECT_TASK: &str = concat!("SELECT ", task_columns!(), " FROM task");

/// The same with those for [`columns::read_place`](crate::columns::read_place).
pub(crate) const SELECT_TASK_AND_PLACE: &str =
    concat!("SELECT ", task_columns!(), ", gate, claim_order, alarm FROM task");

/// A record with the id of its run, to be followed by which ones.
macro_rules! select_records {
    () => {
        "SELECT record.seq, record.at, record.run, task.run_id, record.idx, record.what, \
         record.reason, record.attempt, record.entry, record.worker, record.begun_at, \
         record.active, record.error FROM record CROSS JOIN task ON task.key = record.run"
    };
}

/// What was recorded after ?1, at most ?2 rows; ?3 is nothing.
pub(crate) const RECORDS: &str = concat!(
    select_records!(),
    " WHERE ?3 IS NULL AND record.seq > ?1 ORDER BY record.seq LIMIT ?2"
);

/// The same of run ?3.
pub(crate) const RECORDS_OF_RUN: &str = concat!(
    select_records!(),
    " WHERE record.run = ?3 AND record.seq > ?1 ORDER BY record.seq LIMIT ?2"
);

/// How many tasks are ready, not due, paused, running.
pub(crate) const COUNTS: &str = "SELECT (SELECT count(*) FROM task WHERE gate = 0), \
     (SELECT count(*) FROM task WHERE gate = 1), \
     (SELECT count(*) FROM task WHERE gate = 2), \
     (SELECT count(*) FROM task WHERE worker IS NOT NULL)";

/// Workers that own something: from one to the next, not through all that they own.
pub(crate) const OWNERS: &str = "WITH RECURSIVE owner (id) AS (\
     SELECT (SELECT min(worker) FROM task WHERE worker IS NOT NULL) UNION ALL \
     SELECT (SELECT min(worker) FROM task WHERE worker > owner.id) \
     FROM owner WHERE owner.id IS NOT NULL) SELECT id FROM owner WHERE id IS NOT NULL";

/// What the worker ?4 is for tasks of queue ?1, workflow ?2, name ?3.
pub(crate) const WORKER_FOR: &str = "SELECT EXISTS (SELECT 1 FROM worker_queue \
     WHERE worker = ?4 AND queue = ?1), EXISTS (SELECT 1 FROM worker_knows \
     WHERE worker = ?4 AND workflow = ?2 AND task = ?3), slots FROM worker WHERE id = ?4";

/// Tasks of lane ?1 that are ready, up to ?2.
pub(crate) const READY_IN_LANE: &str = "SELECT count(*) FROM \
     (SELECT 1 FROM task WHERE gate IN (0, 1, 2) AND lane = ?1 LIMIT ?2)";

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)+) => {
        /// The statements of the writer.
        pub(crate) struct Statements<'c> {
            $($(#[$doc])* pub(crate) $name: Statement<'c>,)+
        }

        impl<'c> Statements<'c> {
            /// Prepares them all.
            pub(crate) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
                Ok(Statements { $($name: connection.prepare($sql)?,)+ })
            }
        }

        #[cfg(test)]
        const ALL: &[(&str, &str)] = &[$((stringify!($name), $sql)),+];
    };
}

statements! {
    begin = "BEGIN IMMEDIATE";
    commit = "COMMIT";
    rollback = "ROLLBACK";
    /// Another number than before: another connection has written.
    data_version = "PRAGMA data_version";
    /// How long the log is, in pages.
    log_size = "PRAGMA wal_checkpoint(NOOP)";

    find = "SELECT key FROM task WHERE run_id = ?1";
    find_key = "SELECT run_key.run FROM workflow JOIN run_key ON run_key.workflow = workflow.id \
                WHERE workflow.queue = ?1 AND workflow.name = ?2 AND run_key.key = ?3";
    add_key = "INSERT INTO run_key (workflow, key, run) VALUES (?1, ?2, ?3)";
    task = concat!("SELECT ", task_columns!(), " FROM task WHERE key = ?1");
    tasks = concat!("SELECT ", task_columns!(), " FROM task WHERE key >= ?1 AND key < ?2 \
                     ORDER BY key");
    due = "SELECT key FROM task WHERE alarm <= ?1 ORDER BY alarm, key LIMIT ?2";
    next_alarm = "SELECT min(alarm) FROM task WHERE alarm IS NOT NULL";
    owned = "SELECT key, fence, turn, stopping FROM task WHERE worker = ?1 ORDER BY key LIMIT ?2";
    /// One lane from a place on.
    ready = "SELECT claim_order, key FROM task WHERE gate = 0 AND lane = ?1 \
             AND (claim_order, key) > (?2, ?3) ORDER BY claim_order, key LIMIT ?4";
    payload = "SELECT body FROM payload WHERE task = ?1 AND kind = ?2";

    last_task = "SELECT max(ifnull((SELECT max(key) FROM task), 0), \
                 ifnull((SELECT number FROM used WHERE name = 'task'), 0))";
    last_record = "SELECT max(ifnull((SELECT max(seq) FROM record), 0), \
                   ifnull((SELECT number FROM used WHERE name = 'record'), 0))";
    insert = "INSERT INTO task (key, state, reason, fence, attempt, entries, recoveries, active, \
              started, stopping, worker, since, due, begun_at, waits_since, waits_for, turn, gate, \
              claim_order, alarm, ended_at, paused_at, cancelled, failing, outcome, run_ended_at, \
              open, idx, plan, lane, run_id, workflow, priority, run_key, not_before, \
              submitted_at, parent_task) \
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
              ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, \
              ?35, ?36, ?37)";
    update = concat!(update_task!(), " WHERE key = ?1");
    /// The first task of a run, with what of the run changes.
    update_first = concat!(update_task!(), ", paused_at = ?22, cancelled = ?23, failing = ?24, \
                           outcome = ?25, run_ended_at = ?26, open = ?27 WHERE key = ?1");
    keep = "INSERT OR REPLACE INTO payload (task, kind, body) VALUES (?1, ?2, ?3)";
    record = "INSERT INTO record (seq, at, run, idx, what, reason, attempt, entry, worker, \
              begun_at, active, error) \
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

    open_pauses = "SELECT scope, name FROM pause WHERE unpaused_at IS NULL AND scope > 0";
    pause = "INSERT INTO pause (scope, name, paused_at) VALUES (?1, ?2, ?3) \
             ON CONFLICT (scope, name) WHERE unpaused_at IS NULL DO NOTHING";
    unpause = "UPDATE pause SET unpaused_at = max(?3, paused_at) \
               WHERE scope = ?1 AND name = ?2 AND unpaused_at IS NULL";
    pauses = "SELECT paused_at, unpaused_at FROM pause WHERE scope = ?1 AND name = ?2 \
              AND paused_at < ?4 AND ifnull(unpaused_at, ?4) > ?3";

    find_plan = "SELECT id, body FROM plan WHERE hash = ?1";
    plan = "SELECT body FROM plan WHERE id = ?1";
    add_plan = "INSERT INTO plan (hash, body) VALUES (?1, ?2)";
    find_workflow = "SELECT id FROM workflow WHERE queue = ?1 AND name = ?2";
    workflow = "SELECT queue, name FROM workflow WHERE id = ?1";
    add_workflow = "INSERT INTO workflow (queue, name) VALUES (?1, ?2)";
    find_lane = "SELECT id FROM lane WHERE workflow = ?1 AND task = ?2 AND weight = ?3";
    add_lane = "INSERT INTO lane (workflow, task, weight) VALUES (?1, ?2, ?3)";
    last_lane = "SELECT ifnull(max(id), 0) FROM lane";
    /// The lanes that a worker serves, behind one.
    worker_lanes = "SELECT lane.id, workflow.queue, lane.weight FROM worker_queue \
                    CROSS JOIN workflow ON workflow.queue = worker_queue.queue \
                    CROSS JOIN lane ON lane.workflow = workflow.id \
                    CROSS JOIN worker_knows ON worker_knows.worker = worker_queue.worker \
                    AND worker_knows.workflow = workflow.name AND worker_knows.task = lane.task \
                    WHERE worker_queue.worker = ?1 AND lane.id > ?2";

    worker = "SELECT id FROM worker WHERE id = ?1";
    workers = "SELECT id FROM worker";
    worker_queues = "SELECT queue FROM worker_queue WHERE worker = ?1";
    worker_knows = "SELECT workflow, task FROM worker_knows WHERE worker = ?1";
    enlist = "INSERT INTO worker (name, started_at, slots) VALUES (?1, ?2, ?3)";
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

    /// What SQLite says of how it would run a statement.
    fn plan(connection: &Connection, sql: &str) -> String {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let lines = explain.raw_query().mapped(|row| row.get::<_, String>(3));
        lines.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn every_statement_on_a_growing_table_finds_its_rows_by_an_index() {
        let connection = Connection::open_in_memory().unwrap();
        crate::migrate::apply_all(&connection).unwrap();
        let wanted = [
            ("find", "USING COVERING INDEX task_run_id (run_id=?)"),
            ("find_key", "USING PRIMARY KEY (workflow=? AND key=?)"),
            ("task", "USING INTEGER PRIMARY KEY (rowid=?)"),
            ("tasks", "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
            ("due", "USING COVERING INDEX task_alarm (alarm<?)"),
            ("next_alarm", "USING COVERING INDEX task_alarm"),
            ("owned", "USING INDEX task_worker (worker=?)"),
            ("ready", "USING COVERING INDEX task_ready (gate=? AND lane=? AND claim_order>?)"),
            ("payload", "USING PRIMARY KEY (task=? AND kind=?)"),
            ("update", "USING INTEGER PRIMARY KEY (rowid=?)"),
            ("update_first", "USING INTEGER PRIMARY KEY (rowid=?)"),
            ("open_pauses", "USING INDEX pause_open (scope>?)"),
            ("unpause", "pause_open (scope=? AND name=?)"),
            ("pauses", "USING INDEX pause_name (scope=? AND name=?)"),
            ("find_plan", "USING INDEX plan_hash (hash=?)"),
            ("find_workflow", "(queue=? AND name=?)"),
            ("find_lane", "(workflow=? AND task=? AND weight=?)"),
        ];
        for (name, uses) in wanted {
            let (_, sql) = ALL.iter().find(|(known, _)| *known == name).unwrap();
            let plan = plan(&connection, sql);
            assert!(plan.contains(uses), "{name}: {plan}");
        }
        for (name, sql) in ALL {
            let plan = plan(&connection, sql);
            assert!(!plan.contains("TEMP B-TREE"), "{name} sorts: {plan}");
            let small = ["next_alarm", "last_task", "last_record", "last_lane", "workers"];
            let scans = plan.contains("SCAN task") || plan.contains("SCAN record");
            assert!(!scans || small.contains(name), "{name} scans: {plan}");
        }
    }

    #[test]
    fn what_is_only_read_is_found_by_an_index_too() {
        let connection = Connection::open_in_memory().unwrap();
        crate::migrate::apply_all(&connection).unwrap();
        for (sql, uses) in [
            (RECORDS, "SEARCH record USING INTEGER PRIMARY KEY (rowid>?)"),
            (RECORDS_OF_RUN, "SEARCH record USING INDEX record_run (run=? AND rowid>?)"),
            (COUNTS, "USING COVERING INDEX task_ready (gate=?)"),
            (COUNTS, "USING COVERING INDEX task_worker"),
            (READY_IN_LANE, "USING COVERING INDEX task_ready (gate=? AND lane=?)"),
            (OWNERS, "SEARCH task USING COVERING INDEX task_worker (worker>?)"),
        ] {
            let plan = plan(&connection, sql);
            assert!(plan.contains(uses) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        }
    }

    #[test]
    fn an_update_of_a_task_leaves_the_indexes_of_its_run_alone() {
        let changed = [update_task!(), "paused_at cancelled failing outcome run_ended_at open"];
        for column in ["run_id", "run_key", "workflow", "lane ="] {
            assert!(changed.iter().all(|sql| !sql.contains(column)), "{column}");
        }
    }
}
