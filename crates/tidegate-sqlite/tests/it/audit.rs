//! Everything that an audit can find, done on purpose: that it is found, named and, where it says so,
//! put right.

use crate::support::{assert_sound, claim, enlist, new_run, open, plan, request, succeeded, take};
use crate::waiting::{
    asks, begin, limited, parks, says, signal, signal_id, step_done, submit_plan, waits,
};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate_core::audit::{RULES, Repair, Rule};
use tidegate_core::graph::{Graph, Node, OnFailure};
use tidegate_core::limit::Limit;
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{
    Finding, Operation, OperationOutcome, Parent, Request, Scope, Store, TaskKey,
};
use tidegate_core::wait::{Awaited, WaitId, WaitKind};
use tidegate_sqlite::SqliteStore;

/// Something that is wrong.
struct Case {
    /// The rule that it breaks.
    rule: &'static str,
    /// What makes it so.
    sql: &'static str,
    /// What is said of it, in part.
    says: &'static str,
    /// Whether nothing is wrong any more after a repair. Otherwise the finding has none.
    repaired: bool,
}

const fn repaired(rule: &'static str, sql: &'static str, says: &'static str) -> Case {
    Case { rule, sql, says, repaired: true }
}

const fn person(rule: &'static str, sql: &'static str, says: &'static str) -> Case {
    Case { rule, sql, says, repaired: false }
}

/// Changes rows behind the back of an index: for as long as it does not want any.
const BEHIND_AN_INDEX: &str = "PRAGMA writable_schema = ON; \
     UPDATE sqlite_schema SET sql = sql || ' AND 0' WHERE name = 'task_alarm'; \
     PRAGMA writable_schema = RESET; \
     UPDATE task SET alarm = 4000000000000000, due = 4000000000000000 WHERE key = 9; \
     PRAGMA writable_schema = ON; \
     UPDATE sqlite_schema SET sql = replace(sql, ' AND 0', '') WHERE name = 'task_alarm'; \
     PRAGMA writable_schema = RESET;";

const CASES: &[Case] = &[
    person("whole", "DELETE FROM task WHERE key = 8", "run 7 has 1 of its 2 tasks"),
    person("columns", "UPDATE task SET state = 99 WHERE key = 5", "task 5: its columns contradict"),
    person(
        "columns",
        "UPDATE task SET state = 999 WHERE key = 5",
        "task 5: its columns contradict",
    ),
    person("columns", "UPDATE task SET idx = -1 WHERE key = 5", "task 5: its columns contradict"),
    person("columns", "UPDATE wait SET how = 99 WHERE kind = 0", "task 1 has a wait that makes no"),
    person("columns", "UPDATE task SET behind = 9 WHERE key = 2", "there is no limit_key 9"),
    person("columns", "UPDATE task SET claim_order = NULL WHERE key = 2", "task 2"),
    person("life", "UPDATE task SET attempt = 0 WHERE key = 1", "is in no attempt"),
    person("life", "UPDATE task SET fence = 0 WHERE key = 1", "was claimed without a fence"),
    person("owner", "DELETE FROM worker", "belongs to worker 1, unknown"),
    person("ended_at", "UPDATE task SET ended_at = 1 WHERE key = 5", "has its end at"),
    person("records", "DELETE FROM record WHERE run = 4", "has 0 records of its end"),
    person("records", "UPDATE record SET what = 99 WHERE run = 4", "has 0 records of its end"),
    repaired("place", "UPDATE task SET gate = 2 WHERE key = 5", "stands behind the gate"),
    repaired("place", "UPDATE task SET claim_order = 7 WHERE key = 5", "stands in order at"),
    repaired("place", "UPDATE task SET alarm = 7 WHERE key = 4", "has its alarm at"),
    repaired("lane", "UPDATE task SET lane = 99 WHERE key = 5", "task 5 stands in None"),
    person("lane", "UPDATE task SET workflow = 1 WHERE key = 7", "run 7 is filed under"),
    repaired(
        "settled",
        "UPDATE task SET state = 0, since = NULL, due = NULL, gate = NULL, claim_order = NULL \
         WHERE key = 7",
        "has a task \"a\" that should have met Unblock",
    ),
    repaired("outcome", "UPDATE task SET outcome = 1 WHERE key = 4", "by its tasks as"),
    repaired(
        "outcome",
        "UPDATE task SET outcome = NULL, run_ended_at = NULL WHERE key = 4",
        "has ended as None",
    ),
    repaired("outcome", "UPDATE task SET outcome = 0, run_ended_at = 1 WHERE key = 5", "as None"),
    repaired("open", "UPDATE task SET open = 5 WHERE key = 7", "has 2 open tasks and counts 5"),
    repaired("failing", "UPDATE task SET failing = 1 WHERE key = 7", "is marked as failing"),
    repaired("cancelled", "UPDATE task SET cancelled = 1 WHERE key = 7", "and 2 tasks go on"),
    repaired("pause", "UPDATE pause SET unpaused_at = paused_at", "lacks its pause"),
    repaired(
        "pause",
        "UPDATE task SET paused_at = NULL, gate = 0 WHERE key = 6",
        "has a pause and is not paused",
    ),
    repaired("key", "DELETE FROM run_key", "run 5 has the key \"k\", and is not found under it"),
    repaired("key", "UPDATE run_key SET run = 77", "is that of run 77, which does not exist"),
    repaired("key", "UPDATE run_key SET run = 4", "is that of run 4, which has another"),
    repaired("key", "UPDATE run_key SET key = 'z'", "the key \"z\" is that of run 5"),
    person("key", "UPDATE task SET run_key = 'k' WHERE key = 6", "which another has too"),
    repaired("parked", "DELETE FROM wait WHERE task = 9", "waits for nothing and is never woken"),
    repaired("waits", "UPDATE task SET has_waits = NULL WHERE key = 1", "and is not marked so"),
    repaired(
        "waits",
        "UPDATE task SET has_waits = 1 WHERE key = 4; INSERT INTO wait (task, kind, name, \
         occurrence, label, since) VALUES (4, 2, '', 0, '', 0)",
        "has ended, and its",
    ),
    person("waits", "UPDATE wait SET run = NULL WHERE name = 'go'", "waits for no run in its"),
    repaired("awaited", "UPDATE task SET awaited = NULL WHERE key = 2", "is over, or not marked"),
    repaired("awaited", "UPDATE wait SET run = 4 WHERE kind = 4", "run 4 is over, or not marked"),
    person("awaited", "UPDATE wait SET run = 77 WHERE kind = 4", "run 77 is over, or not marked"),
    repaired("family", "UPDATE task SET parent_task = 12 WHERE key = 11", "has cancelled"),
    person(
        "cycle",
        "UPDATE task SET has_waits = 1 WHERE key = 2; UPDATE task SET awaited = 1 WHERE key = 3; \
         INSERT INTO wait (task, kind, name, occurrence, label, since, run) \
         VALUES (2, 4, 'x', 0, '', 0, 3)",
        "run 2 waits for run 3 waits for run 2",
    ),
    repaired("signal", "UPDATE signal SET name = 'go' WHERE seq = 1", "signal 1 lies about"),
    repaired("signal", "UPDATE signal SET name = 'wake', run = 9 WHERE seq = 1", "lies about"),
    person("signal", "UPDATE signal SET taken_by = 1 WHERE seq = 1", "1 was taken by a task"),
    person("signal", "UPDATE wait SET signal = 1 WHERE name = 'x'", "by signal 1, not taken by it"),
    repaired(
        "behind",
        "UPDATE task SET behind = 1, claim_order = 5 WHERE key = 5",
        "stands behind limit \"api\"",
    ),
    repaired("holds", "UPDATE hold SET task = 5", "task 5 (\"only\", ready) holds 1 of"),
    repaired("holds", "UPDATE hold SET task = 3", "task 3 (\"only\", active) holds 1 of"),
    repaired("uses", "UPDATE hold SET units = 2", "task 1 holds 2 of limit \"api\", unplanned"),
    repaired(
        "uses",
        "INSERT INTO limit_key (name, key) VALUES ('api', 'x'); \
         UPDATE task SET behind = 2 WHERE key = 2",
        "task 2 stands behind limit \"api\" for \"x\", unplanned",
    ),
    person(
        "most",
        "INSERT INTO hold (task, limit_key, units, since) VALUES (3, 1, 1, 0)",
        "2 tasks together hold 2 of limit \"api\", 1 at once",
    ),
    repaired("limit", "DELETE FROM hold", "task 2 stands behind limit \"api\" for 1"),
    person("silent", "", "has given no sign for"),
    repaired("word", "INSERT INTO word VALUES (99, 1)", "about task 1 for worker 99, unknown"),
    repaired("worker", "INSERT INTO worker_queue VALUES (99, 'q')", "for worker 99, unknown"),
    repaired("worker", "INSERT INTO worker_knows VALUES (98, 'w', 't')", "for worker 98, unknown"),
    repaired("stray", "INSERT INTO word VALUES (1, 77)", "a word of task 77"),
    repaired("stray", "INSERT INTO payload VALUES (77, 0, x'00')", "a payload of task 77"),
    repaired("stray", "UPDATE wait SET task = 77 WHERE kind = 0", "a wait of task 77"),
    repaired("stray", "UPDATE signal SET run = 77 WHERE seq = 1", "a signal of task 77"),
    repaired(
        "stray",
        "INSERT INTO record (seq, at, run, idx, what, attempt, entry, active) \
         VALUES (99, 0, 78, 0, 0, 1, 1, 0)",
        "a record of task 78",
    ),
    repaired("stray", "UPDATE hold SET task = 77", "a hold of task 77"),
    repaired("stray", "UPDATE hold SET limit_key = 9", "a hold of limit 9"),
    repaired("stray", "INSERT INTO begun VALUES (9, 0, 1)", "a begun of limit 9"),
    repaired(
        "stray",
        "INSERT INTO pause (scope, name, paused_at) VALUES (0, 'nobody', 0)",
        "a pause of run nobody",
    ),
    person("index", BEHIND_AN_INDEX, "task 9 is not found by task_alarm"),
    person("file", BEHIND_AN_INDEX, "missing from index task_alarm"),
];

/// Two tasks, one after the other.
fn chain() -> Arc<Plan> {
    let graph = Graph::new([Node::new("a"), Node::new("b").after(["a"])]).unwrap();
    let tasks = vec![TaskPlan::default(), TaskPlan::default()];
    Arc::new(Plan::new("chain", graph, OnFailure::default(), tasks))
}

/// A store in which something of everything is: task 1 holds "api", waits for the signal "go" and has a
/// step behind it, and a signal "other" to its run is there; task 2 stands behind "api"; task 3 has
/// had the signal "x" and waits for run 2; task 4 has ended; task 5 is ready and its run has the key
/// "k"; task 6 is paused; tasks 7 and 8 are a chain that has not begun; task 9 is parked on the signal
/// "wake"; task 10 has begun run 11 and waits for it; task 12 was cancelled.
async fn something_of_everything(path: &Path) {
    let store = open(path);
    let worker = enlist(&store).await;
    asks(&store, Operation::Declare(Limit::new("api").at_once(1))).await;
    let first = submit_plan(&store, &limited()).await;
    let second = submit_plan(&store, &limited()).await;
    let third = submit_plan(&store, &plan("w")).await;
    submit_plan(&store, &plan("w")).await;
    asks(&store, signal(first, "other", "")).await;
    asks(&store, signal(third, "x", "")).await;
    let tasks = claim(&store, worker, 4).await;
    assert_eq!(tasks.iter().map(|task| task.key).collect::<Vec<_>>(), [1, 3, 4].map(TaskKey));
    let to_end = WaitId::new(WaitKind::Run, second.to_string(), 0);
    let changes = vec![
        waits(&tasks[0], vec![step_done("s", "1"), begin(signal_id("go"), Awaited::Signal)]),
        waits(
            &tasks[1],
            vec![begin(signal_id("x"), Awaited::Signal), begin(to_end, Awaited::Run(second))],
        ),
        succeeded(&tasks[2]),
    ];
    says(&store, worker, changes).await;

    let mut with_key = new_run(&plan("unknown"), b"in");
    with_key.key = Some("k".to_owned());
    take(&store, Request { submits: vec![with_key], ..request() }).await.unwrap();
    let paused = submit_plan(&store, &plan("unknown")).await;
    asks(&store, Operation::Pause(Scope::Run(paused))).await;
    submit_plan(&store, &chain()).await;
    submit_plan(&store, &limited_not()).await;
    let task = claim(&store, worker, 1).await.remove(0);
    says(&store, worker, vec![parks(&task, "wake")]).await;

    submit_plan(&store, &plan("w")).await;
    let task = claim(&store, worker, 1).await.remove(0);
    let id = WaitId::new(WaitKind::Child, "child", 0);
    let mut child = new_run(&plan("unknown"), b"in");
    child.parent = Some(Parent::new(task.key, task.life.fence, id.clone()));
    says(&store, worker, vec![waits(&task, vec![begin(id, Awaited::Child(Arc::new(child)))])])
        .await;
    let last = submit_plan(&store, &plan("unknown")).await;
    asks(&store, Operation::Cancel(last)).await;
    assert_sound(&store).await;
    store.close().await;
}

/// A task that may park and takes nothing.
fn limited_not() -> Arc<Plan> {
    crate::support::plan_of("w", TaskPlan { parkable: true, ..TaskPlan::default() })
}

/// Everything that is wrong, as far as a thorough audit tells.
async fn findings(store: &SqliteStore) -> Vec<Finding> {
    let mut findings = store.audit().await.unwrap();
    findings.extend(store.files().check_files().await.unwrap());
    findings
}

/// Asks for all repairs there are, each in a request of its own.
async fn repair(store: &SqliteStore, findings: &[Finding]) -> Vec<OperationOutcome> {
    let repairs: BTreeSet<Repair> = findings.iter().filter_map(|f| f.repair.clone()).collect();
    let mut granted = Vec::new();
    for repair in repairs {
        let operations = vec![Operation::Repair(repair)];
        granted.extend(take(store, Request { operations, ..request() }).await.unwrap().operations);
    }
    granted
}

/// A worker of somebody else that has given no sign for a while.
async fn fall_silent(path: &Path) -> SqliteStore {
    let other = open(path);
    let worker = enlist(&other).await;
    let mut folder = path.as_os_str().to_owned();
    folder.push("-workers");
    let lock = Path::new(&folder).join(format!("{}.lock", worker.0));
    let lock = File::options().write(true).open(lock).unwrap();
    lock.set_modified(SystemTime::now() - Duration::from_secs(63)).unwrap();
    other
}

#[tokio::test]
async fn whatever_is_wrong_is_found_and_put_right_where_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.db");
    something_of_everything(&base).await;
    for (number, case) in CASES.iter().enumerate() {
        let Case { rule, sql, says, repaired } = case;
        let path = folder.path().join(format!("{number}.db"));
        fs::copy(&base, &path).unwrap();
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let _other = match *rule {
            "silent" => Some(fall_silent(&path).await),
            _ => None,
        };
        let store = open(&path);
        let before = findings(&store).await;
        let is_it = |found: &&Finding| found.rule == *rule && found.what.contains(says);
        let found = before.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("{rule}: {sql}: {before:?}"));
        assert_eq!(found.repair.is_some(), *repaired, "{sql}: {found:?}");
        for found in &before {
            let rule = Rule::named(found.rule).expect("what is found breaks a rule");
            assert!(rule.repair.is_some() || found.repair.is_none(), "{found:?}");
            assert_eq!(found.meaning(), rule.meaning);
        }
        if !repaired {
            continue;
        }
        let granted = repair(&store, &before).await;
        assert!(granted.contains(&OperationOutcome::Yes), "{sql}: {before:?}: {granted:?}");
        assert_eq!(findings(&store).await, [], "{sql}: {before:?}");
        // Whoever asks again, or too late, changes nothing.
        let granted = repair(&store, &before).await;
        assert!(!granted.contains(&OperationOutcome::Yes), "{sql}: {before:?}: {granted:?}");
    }
}

#[test]
fn every_rule_has_a_case_and_every_repair() {
    // This store adds up what a limit counts in every request: nothing can be noted wrongly.
    for rule in RULES.iter().filter(|rule| rule.name != "count") {
        let mut cases = CASES.iter().filter(|case| case.rule == rule.name).peekable();
        assert!(cases.peek().is_some(), "nobody breaks the rule {}", rule.name);
        assert_eq!(cases.any(|case| case.repaired), rule.repair.is_some(), "{}", rule.name);
    }
}
