//! By which index each statement of the store finds its rows.

use crate::support::open;
use rusqlite::Connection;
use rusqlite::StatementStatus::{FullscanStep, VmStep};
use tempfile::TempDir;
use tidegate_sqlite::testing::list_statements;

/// The database of a store in which nothing is, and the folder that it is in.
fn empty_database() -> (TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    drop(open(&path));
    (folder, Connection::open(path).unwrap())
}

/// The text of a statement. The name of one that is seldom needed begins with its module.
fn find_statement(name: &str) -> &'static str {
    let is_it = |known: &str| match known.strip_prefix("tidegate_sqlite::") {
        Some(known) => known == name,
        None => known == name,
    };
    let found = list_statements().into_iter().find(|(known, _)| is_it(known));
    found.unwrap_or_else(|| panic!("there is no statement {name}")).1
}

/// How SQLite would run a statement.
fn find_plan(connection: &Connection, sql: &str) -> String {
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let lines = explain.raw_query().mapped(|row| row.get::<_, String>(3));
    lines.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}

#[test]
fn every_statement_on_a_growing_table_finds_its_rows_by_an_index() {
    let (_folder, connection) = empty_database();
    let wanted = [
        ("run_id", "USING COVERING INDEX task_run_id (run_id=?)"),
        ("run_id", "USING COVERING INDEX ended_task_run_id (run_id=?)"),
        ("run_key", "USING PRIMARY KEY (queue=? AND workflow=? AND key=?)"),
        ("task", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("ended_task", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("tasks", "SEARCH t USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("due", "USING COVERING INDEX task_alarm (alarm<?)"),
        ("next_alarm", "USING COVERING INDEX task_alarm"),
        ("owned", "USING INDEX task_owned (worker=?)"),
        (
            "ready",
            "USING COVERING INDEX task_ready (eligibility=? AND blocked_on=? AND task_group=? AND claim_order>?)",
        ),
        ("any_ready", "USING COVERING INDEX task_ready (eligibility=?)"),
        ("payload", "USING PRIMARY KEY (task=? AND kind=?)"),
        ("input", "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"),
        ("input", "SEARCH ended_task USING INTEGER PRIMARY KEY (rowid=?)"),
        ("output", "SEARCH ended_task USING INTEGER PRIMARY KEY (rowid=?)"),
        ("update_task", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("update_first", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("move_ended", "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"),
        ("delete_task", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("update_ended", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("waits", "SEARCH wait USING PRIMARY KEY (task=?)"),
        ("wait", "PRIMARY KEY (task=? AND kind=? AND name=? AND occurrence=?)"),
        ("delete_wait", "PRIMARY KEY (task=? AND kind=? AND name=? AND occurrence=?)"),
        ("signal_waits", "USING INDEX wait_open (run=? AND kind=? AND name=?)"),
        ("run_waits", "USING INDEX wait_open (run=? AND kind=?)"),
        ("waited_by", "SEARCH wait USING PRIMARY KEY (task>? AND task<?)"),
        ("was_sent", "USING COVERING INDEX signal_sent (run=? AND id=?)"),
        ("signals", "USING INDEX signal_untaken (run=? AND name=?)"),
        ("take_signal", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("limit", "USING PRIMARY KEY (name=?)"),
        ("find_limit", "(name=? AND key=?)"),
        ("limit_row", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("holds", "USING PRIMARY KEY (task=?)"),
        ("delete_hold", "USING PRIMARY KEY (task=? AND limit_key=?)"),
        ("set_limit_row", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("rate_events", "USING PRIMARY KEY (limit_key=? AND at>?)"),
        ("newest_event", "USING PRIMARY KEY (limit_key=?)"),
        ("forget_rate_events", "USING PRIMARY KEY (limit_key=? AND at>? AND at<?)"),
        (
            "next_group",
            "COVERING INDEX task_ready (eligibility=? AND blocked_on=? AND task_group>?)",
        ),
        ("blocked", "COVERING INDEX task_ready (eligibility=? AND blocked_on=? AND task_group=?"),
        (
            "blocked_keys",
            "SEARCH limit_key USING COVERING INDEX sqlite_autoindex_limit_key_1 (name=?)",
        ),
        ("blocked_keys", "COVERING INDEX task_ready (eligibility=? AND blocked_on=?)"),
        ("first_limit_alarm", "USING COVERING INDEX limit_alarm"),
        ("due_limits", "USING COVERING INDEX limit_alarm (alarm<?)"),
        ("notifications", "USING PRIMARY KEY (worker=?)"),
        ("take_notifications", "USING PRIMARY KEY (worker=?)"),
        ("notified_workers", "USING PRIMARY KEY (worker=?)"),
        ("open_pauses", "USING INDEX pause_open (scope>?)"),
        ("pause_start", "pause_open (scope=? AND name=?)"),
        ("end_pause", "pause_open (scope=? AND name=?)"),
        ("pauses", "USING INDEX pause_name (scope=? AND name=?)"),
        ("find_plan", "USING INDEX plan_hash (hash=?)"),
        ("find_queue", "(name=?)"),
        ("find_group", "(queue=? AND workflow=? AND task=? AND weight=?)"),
    ];
    for (name, uses) in wanted {
        let plan = find_plan(&connection, find_statement(name));
        assert!(plan.contains(uses), "{name}: {plan}");
    }
    for (name, sql) in list_statements().iter().filter(|(name, _)| !name.contains("::")) {
        let plan = find_plan(&connection, sql);
        assert!(!plan.contains("TEMP B-TREE"), "{name} sorts: {plan}");
        let small = ["next_alarm", "last_task", "last_record", "last_group", "workers"];
        let growing = [
            "task",
            "ended_task",
            "record",
            "wait",
            "signal",
            "limit_key",
            "hold",
            "rate_event",
            "t ",
        ];
        let scans = growing.iter().any(|table| plan.contains(&format!("SCAN {table}")));
        assert!(!scans || small.contains(name), "{name} scans: {plan}");
    }
}

#[test]
fn statements_of_views_find_their_rows_by_an_index_and_sort_nothing() {
    let (_folder, connection) = empty_database();
    for (name, uses) in [
        ("records::RECORDS", "SEARCH r USING INTEGER PRIMARY KEY (rowid>?)"),
        ("records::RECORDS", "SEARCH r USING INDEX ended_task_record (record>?)"),
        ("sql::COUNTS", "USING COVERING INDEX task_ready (eligibility=?)"),
        ("sql::COUNTS", "USING INDEX task_owned (worker=?)"),
        ("sql::COUNTS", "USING COVERING INDEX task_owned"),
        (
            "sql::READY_IN_GROUP",
            "COVERING INDEX task_ready (eligibility=? AND blocked_on=? AND task_group=?",
        ),
        ("sql::READY_IN_GROUP", "COVERING INDEX task_ready (eligibility=?)"),
        ("sql::PAYLOADS", "SEARCH payload USING PRIMARY KEY (task>? AND task<?)"),
        ("sql::INPUTS", "SEARCH task USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("sql::INPUTS", "SEARCH ended_task USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("sql::OUTPUTS", "SEARCH ended_task USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("sql::LAST_TASK", "SEARCH task USING INTEGER PRIMARY KEY (rowid<?)"),
        ("sql::LAST_TASK", "SEARCH ended_task USING INTEGER PRIMARY KEY (rowid<?)"),
        ("sql::RUNS", "SEARCH t USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("sql::LIMIT_STATES", "SEARCH limit_key USING INDEX sqlite_autoindex_limit_key_1 (name=?)"),
        ("sql::LIMIT_STATES", "COVERING INDEX task_ready (eligibility=? AND blocked_on=?)"),
        ("sql::OWNERS", "SEARCH task USING COVERING INDEX task_owned (worker>?)"),
    ] {
        let plan = find_plan(&connection, find_statement(name));
        assert!(plan.contains(uses) && !plan.contains("TEMP B-TREE"), "{name}: {plan}");
    }
}

#[test]
fn statements_that_are_seldom_needed_find_their_rows_by_an_index() {
    let (_folder, connection) = empty_database();
    for (name, uses) in [
        ("explain::LAST_RECORD", "SEARCH record USING INDEX record_run (run=?)"),
        ("explain::HOLDERS", "USING INDEX hold_limit (limit_key=?)"),
        (
            "explain::BLOCKED_BEFORE",
            "COVERING INDEX task_ready (eligibility=? AND blocked_on=? AND task_group=? AND claim_order>? AND claim_order<?)",
        ),
        ("explain::GROUPS", "SEARCH task_group USING COVERING INDEX"),
        (
            "explain::READY_BEFORE",
            "COVERING INDEX task_ready (eligibility=? AND blocked_on=? AND task_group=? AND claim_order>? AND claim_order<?)",
        ),
        ("explain::LAST_RECORD", "SEARCH ended_task USING INTEGER PRIMARY KEY (rowid=?)"),
        ("explain::RECENT_ENDS", "SEARCH ended_task USING INDEX ended_task_record (record>?)"),
        ("explain::RECENT_RECORDS", "SEARCH ended_task USING INTEGER PRIMARY KEY (rowid=?)"),
        ("prune::ENDED_RUNS", "SEARCH t USING INTEGER PRIMARY KEY (rowid>?)"),
        ("prune::RUN_OF_TASK", "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"),
        ("prune::WEIGHT", "USING COVERING INDEX record_run (run=?)"),
        ("prune::DELETE_KEY", "USING COVERING INDEX run_key_run (run=?)"),
        ("prune::DELETE_PAUSES", "USING INDEX pause_name (scope=? AND name=?)"),
        ("prune::DELETE_PAYLOADS", "USING PRIMARY KEY (task>? AND task<?)"),
        ("prune::DELETE_WAITS", "USING PRIMARY KEY (task>? AND task<?)"),
        ("prune::DELETE_TASKS", "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("prune::DELETE_RECORDS", "USING COVERING INDEX record_run (run=?)"),
        ("prune::DELETE_SIGNALS", "USING COVERING INDEX signal_sent (run=?)"),
        ("prune::RECORDS", "SEARCH r USING INTEGER PRIMARY KEY (rowid>?)"),
        ("prune::RECORDS", "SEARCH r USING INDEX ended_task_record (record>?)"),
        ("prune::FORGET_ENDING", "USING INDEX ended_task_record (record=?)"),
        ("prune::DELETE_RECORD", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("prune::MARK_UNRECORDED", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("prune::SIGNALS", "USING INTEGER PRIMARY KEY (rowid>?)"),
        ("prune::DELETE_SIGNAL", "USING INTEGER PRIMARY KEY (rowid=?)"),
        ("stored::STORED_TASKS", "SEARCH t USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("stored::WAITS", "SEARCH wait USING PRIMARY KEY (task>? AND task<?)"),
        ("stored::HOLDS", "SEARCH hold USING PRIMARY KEY (task>? AND task<?)"),
        ("records::RECORDS_OF_RUN", "SEARCH r USING INDEX record_run (run=? AND rowid>?)"),
        ("records::RECORDS_OF_RUN", "SEARCH r USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("records::RECORDS_OF_RUNS", "SEARCH r USING INDEX record_run (run>? AND run<?)"),
        ("records::RECORDS_OF_RUNS", "SEARCH r USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("stored::SIGNALS", "SEARCH signal USING INTEGER PRIMARY KEY (rowid>?)"),
        ("stored::LIMIT_KEYS", "SEARCH limit_key USING INTEGER PRIMARY KEY (rowid>?)"),
        ("stored::KEYS", "SEARCH run_key USING PRIMARY KEY"),
        ("stored::PAUSED_RUNS", "USING COVERING INDEX pause_name (scope=? AND name>?)"),
        ("stored::NOTIFICATIONS", "SEARCH notification USING PRIMARY KEY"),
        (
            "stored::READY_ALIKE",
            "COVERING INDEX task_ready (eligibility=? AND blocked_on=? AND task_group=?",
        ),
        ("groups::GROUPS_OF_QUEUE", "SEARCH task_group USING COVERING INDEX"),
        ("groups::NEXT_LIMIT", "USING COVERING INDEX task_ready (eligibility=? AND blocked_on>?)"),
        (
            "groups::READY",
            "USING INDEX task_ready (eligibility=? AND blocked_on=? AND task_group=?",
        ),
        ("groups::READY_BEFORE", "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    ] {
        let plan = find_plan(&connection, find_statement(name));
        assert!(plan.contains(uses) && !plan.contains("SCAN task"), "{name}: {plan}");
    }
}

#[test]
fn runs_are_found_by_the_index_of_their_ids() {
    let (_folder, connection) = empty_database();
    let plan = find_plan(&connection, find_statement("sql::RUNS_BY_ID"));
    assert!(plan.contains("INDEX task_run_id (run_id>? AND run_id<?)"), "{plan}");
    assert!(plan.contains("INDEX ended_task_run_id (run_id>? AND run_id<?)"), "{plan}");
}

#[test]
fn statements_of_every_request_cost_the_same_however_many_tasks_are_parked() {
    let (_folder, connection) = empty_database();
    let park = "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL \
                SELECT n + 1 FROM number WHERE n < 100000) \
                INSERT INTO task (number, request, fence, plan, task_group, idx, state, is_plain, \
                alarm, lifecycle) SELECT n, 1, 1, 1, 1, 0, 5, 0, iif(n % 2, n, NULL), x'' \
                FROM number";
    assert_eq!(connection.execute(park, []).unwrap(), 100_000);
    for name in [
        "next_alarm",
        "due",
        "first_limit_alarm",
        "due_limits",
        "any_ready",
        "ready",
        "owned",
        "notified_workers",
        "last_task",
        "last_record",
        "last_group",
        "open_pauses",
    ] {
        let mut statement = connection.prepare(find_statement(name)).unwrap();
        for number in 1..=statement.parameter_count() {
            statement.raw_bind_parameter(number, 3).unwrap();
        }
        let mut rows = statement.raw_query();
        while rows.next().unwrap().is_some() {}
        drop(rows);
        let steps = statement.get_status(VmStep);
        assert!(steps < 60, "{name} takes {steps} steps");
        assert!(statement.get_status(FullscanStep) < 10, "{name} scans");
    }
    // All that are parked are counted, but none of their rows is looked at.
    let mut counts = connection.prepare(find_statement("sql::COUNTS")).unwrap();
    let parked = counts.query_row([], |row| row.get::<_, i64>(4)).unwrap();
    assert_eq!(parked, 100_000);
    let steps = counts.get_status(VmStep);
    assert!(steps < 500_000, "{steps} steps for 100,000 tasks");
}

#[test]
fn an_update_of_a_task_leaves_the_indexes_of_its_run_alone() {
    for name in ["update_task", "update_first"] {
        let sql = find_statement(name);
        for column in ["run_id", "task_group =", "queue ="] {
            assert!(
                sql.starts_with("UPDATE task SET") && !sql.contains(column),
                "{name}: {column}"
            );
        }
    }
}
