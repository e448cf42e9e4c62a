//! Everything that an audit can find, done on purpose: that it is found, named and, where it says so,
//! put right.

use crate::support::{
    assert_sound, claim, edit_lifecycle, edit_run, enlist, new_run, open, plan, request, succeeded,
    take,
};
use crate::waiting::{
    asks, begin, limited, parks, says, signal, signal_id, step_done, submit_plan, waits,
};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate_core::Timestamp;
use tidegate_core::audit::{RULES, Repair, Rule};
use tidegate_core::graph::{Graph, Node, OnFailure, RunOutcome};
use tidegate_core::limit::Limit;
use tidegate_core::packed::{StoredLifecycle, StoredRun};
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
    /// The changes that make it so, in order.
    changes: &'static [Change],
    /// What is said of it, in part.
    says: &'static str,
    /// Whether nothing is wrong any more after a repair. Otherwise the finding has none.
    repaired: bool,
}

/// A change behind the back of the store.
#[derive(Debug)]
enum Change {
    Sql(&'static str),
    /// Of the packed lifecycle of a task.
    Lifecycle(i64, fn(&mut StoredLifecycle)),
    /// Of the packed run in the row of a first task.
    Run(i64, fn(&mut StoredRun)),
}

use Change::{Lifecycle, Sql};

const fn repaired(rule: &'static str, changes: &'static [Change], says: &'static str) -> Case {
    Case { rule, changes, says, repaired: true }
}

const fn person(rule: &'static str, changes: &'static [Change], says: &'static str) -> Case {
    Case { rule, changes, says, repaired: false }
}

/// Changes rows behind the back of an index: for as long as it does not want any.
const BEHIND_AN_INDEX: &[Change] = &[
    Sql("PRAGMA writable_schema = ON; \
         UPDATE sqlite_schema SET sql = sql || ' AND 0' WHERE name = 'task_alarm'; \
         PRAGMA writable_schema = RESET; \
         UPDATE task SET alarm = 4000000000000000 WHERE number = 9; \
         PRAGMA writable_schema = ON; \
         UPDATE sqlite_schema SET sql = replace(sql, ' AND 0', '') WHERE name = 'task_alarm'; \
         PRAGMA writable_schema = RESET;"),
    Lifecycle(9, |stored| stored.columns.due = Some(Timestamp::from_micros(4_000_000_000_000_000))),
];

const CASES: &[Case] = &[
    person("whole", &[Sql("DELETE FROM task WHERE number = 8")], "run 7 has 1 of its 2 tasks"),
    person(
        "columns",
        &[Sql("UPDATE task SET state = 99 WHERE number = 5")],
        "task 5: its columns contradict",
    ),
    person(
        "columns",
        &[Sql("UPDATE task SET state = 999 WHERE number = 5")],
        "task 5: its columns contradict",
    ),
    person(
        "columns",
        &[Sql("UPDATE task SET idx = -1 WHERE number = 5")],
        "task 5: its columns contradict",
    ),
    person(
        "columns",
        &[Sql("UPDATE task SET lifecycle = x'01' WHERE number = 5")],
        "task 5: its columns contradict",
    ),
    person(
        "columns",
        &[Sql("UPDATE ended_task SET run = x'0100' WHERE number = 4")],
        "task 4: its columns contradict",
    ),
    person(
        "columns",
        &[Sql("UPDATE wait SET outcome = 99 WHERE kind = 0")],
        "task 1 has a wait that makes no",
    ),
    person(
        "columns",
        &[Sql("UPDATE task SET blocked_on = 9 WHERE number = 2")],
        "there is no limit_key 9",
    ),
    person("columns", &[Sql("UPDATE task SET claim_order = NULL WHERE number = 2")], "task 2"),
    person(
        "columns",
        &[Sql("UPDATE task SET task_group = 99 WHERE number = 5")],
        "there is no task_group 99",
    ),
    person("life", &[Lifecycle(1, |stored| stored.columns.attempt = 0)], "is in no attempt"),
    person(
        "life",
        &[Sql("UPDATE task SET fence = 0 WHERE number = 1")],
        "was claimed without a fence",
    ),
    person("owner", &[Sql("DELETE FROM worker")], "belongs to worker 1, unknown"),
    person(
        "ended_at",
        &[Lifecycle(5, |stored| stored.ended_at = Some(Timestamp::from_micros(1)))],
        "has its end at",
    ),
    person(
        "records",
        &[Sql("UPDATE ended_task SET record = NULL, record_kind = NULL WHERE number = 4")],
        "has 0 records of its end",
    ),
    person(
        "records",
        &[Sql("UPDATE ended_task SET record_kind = 99 WHERE number = 4")],
        "has 0 records of its end",
    ),
    repaired(
        "place",
        &[Sql("UPDATE task SET eligibility = 2 WHERE number = 5")],
        "stands behind the gate",
    ),
    repaired(
        "place",
        &[Sql("UPDATE task SET claim_order = 7 WHERE number = 5")],
        "stands in order at",
    ),
    repaired("place", &[Sql("UPDATE task SET alarm = 7 WHERE number = 5")], "has its alarm at"),
    repaired(
        "lane",
        &[Sql("UPDATE task SET task_group = 99 WHERE number = 8")],
        "task 8 stands in None",
    ),
    repaired("lane", &[Sql(OTHER_GROUP)], "task 5 stands in Some"),
    person("lane", &[Sql(OTHER_GROUP)], "run 5 is filed under"),
    repaired(
        "settled",
        &[
            Sql(
                "UPDATE task SET state = 0, eligibility = NULL, claim_order = NULL WHERE number = 7",
            ),
            Lifecycle(7, |stored| (stored.columns.since, stored.columns.due) = (None, None)),
        ],
        "has a task \"a\" that should have met Unblock",
    ),
    repaired(
        "outcome",
        &[Change::Run(4, |run| run.ended = run.ended.map(|(_, at)| (RunOutcome::Failed, at)))],
        "by its tasks as",
    ),
    repaired(
        "outcome",
        &[
            Sql("UPDATE ended_task SET run_ended_at = NULL WHERE number = 4"),
            Change::Run(4, |run| run.ended = None),
        ],
        "has ended as None",
    ),
    repaired(
        "outcome",
        &[Change::Run(5, |run| {
            run.ended = Some((RunOutcome::Succeeded, Timestamp::from_micros(1)));
        })],
        "as None",
    ),
    repaired("open", &[Change::Run(7, |run| run.open = 5)], "has 2 open tasks and counts 5"),
    repaired("failing", &[Change::Run(7, |run| run.failing = true)], "is marked as failing"),
    repaired("cancelled", &[Change::Run(7, |run| run.cancelled = true)], "and 2 tasks go on"),
    repaired("pause", &[Sql("UPDATE pause SET unpaused_at = paused_at")], "lacks its pause"),
    repaired(
        "pause",
        &[
            Sql("UPDATE task SET eligibility = 0 WHERE number = 6"),
            Change::Run(6, |run| run.paused_at = None),
        ],
        "has a pause and is not paused",
    ),
    repaired(
        "key",
        &[Sql("DELETE FROM run_key")],
        "run 5 has the key \"k\", and is not found under it",
    ),
    repaired(
        "key",
        &[Sql("UPDATE run_key SET run = 77")],
        "is that of run 77, which does not exist",
    ),
    repaired("key", &[Sql("UPDATE run_key SET run = 4")], "is that of run 4, which has another"),
    repaired("key", &[Sql("UPDATE run_key SET key = 'z'")], "the key \"z\" is that of run 5"),
    person("key", &[Change::Run(6, |run| run.key = Some("k".to_owned()))], "which another has too"),
    repaired(
        "parked",
        &[Sql("DELETE FROM wait WHERE task = 9")],
        "waits for nothing and is never woken",
    ),
    repaired("waits", &[Lifecycle(1, |stored| stored.has_waits = false)], "and is not marked so"),
    repaired(
        "waits",
        &[
            Lifecycle(4, |stored| stored.has_waits = true),
            Sql("INSERT INTO wait (task, kind, name, occurrence, label, since) \
                 VALUES (4, 2, '', 0, '', 0)"),
        ],
        "has ended, and its",
    ),
    person(
        "waits",
        &[Sql("UPDATE wait SET run = NULL WHERE name = 'go'")],
        "waits for no run in its",
    ),
    repaired("awaited", &[Change::Run(2, |run| run.awaited = false)], "is over, or not marked"),
    repaired(
        "awaited",
        &[Sql("UPDATE wait SET run = 4 WHERE kind = 4")],
        "run 4 is over, or not marked",
    ),
    person(
        "awaited",
        &[Sql("UPDATE wait SET run = 77 WHERE kind = 4")],
        "run 77 is over, or not marked",
    ),
    repaired("family", &[Change::Run(11, |run| run.parent = Some(TaskKey(12)))], "has cancelled"),
    person(
        "cycle",
        &[
            Lifecycle(2, |stored| stored.has_waits = true),
            Change::Run(3, |run| run.awaited = true),
            Sql("INSERT INTO wait (task, kind, name, occurrence, label, since, run) \
                 VALUES (2, 4, 'x', 0, '', 0, 3)"),
        ],
        "run 2 waits for run 3 waits for run 2",
    ),
    repaired(
        "signal",
        &[Sql("UPDATE signal SET name = 'go' WHERE number = 1")],
        "signal 1 lies about",
    ),
    repaired(
        "signal",
        &[Sql("UPDATE signal SET name = 'wake', run = 9 WHERE number = 1")],
        "lies about",
    ),
    person(
        "signal",
        &[Sql("UPDATE signal SET taken_by = 1 WHERE number = 1")],
        "1 was taken by a task",
    ),
    person(
        "signal",
        &[Sql("UPDATE wait SET signal = 1 WHERE name = 'x'")],
        "by signal 1, not taken by it",
    ),
    repaired(
        "behind",
        &[Sql("UPDATE task SET blocked_on = 1, claim_order = 5 WHERE number = 5")],
        "stands behind limit \"api\"",
    ),
    repaired("holds", &[Sql("UPDATE hold SET task = 5")], "task 5 (\"only\", ready) holds 1 of"),
    repaired("holds", &[Sql("UPDATE hold SET task = 3")], "task 3 (\"only\", active) holds 1 of"),
    repaired(
        "uses",
        &[Sql("UPDATE hold SET units = 2")],
        "task 1 holds 2 of limit \"api\", unplanned",
    ),
    repaired(
        "uses",
        &[Sql("INSERT INTO limit_key (name, key) VALUES ('api', 'x'); \
               UPDATE task SET blocked_on = 2 WHERE number = 2")],
        "task 2 stands behind limit \"api\" for \"x\", unplanned",
    ),
    repaired(
        "count",
        &[Sql("UPDATE limit_key SET in_use = 7")],
        "7 units of limit \"api\" are noted as in use, and tasks hold 1",
    ),
    repaired(
        "count",
        &[Sql("UPDATE limit_key SET window_sum = 7")],
        "7 units of limit \"api\" are noted as begun, and there are 0",
    ),
    person(
        "most",
        &[Sql("INSERT INTO hold (task, limit_key, units, since) VALUES (3, 1, 1, 0)")],
        "2 tasks together hold 2 of limit \"api\", 1 at once",
    ),
    repaired("limit", &[Sql("DELETE FROM hold")], "task 2 stands behind limit \"api\" for 1"),
    person("silent", &[], "has given no sign for"),
    repaired(
        "word",
        &[Sql("INSERT INTO notification VALUES (99, 1)")],
        "about task 1 for worker 99, unknown",
    ),
    repaired(
        "worker",
        &[Sql("INSERT INTO worker_queue VALUES (99, 'q')")],
        "for worker 99, unknown",
    ),
    repaired(
        "worker",
        &[Sql("INSERT INTO worker_task VALUES (98, 'w', 't')")],
        "for worker 98, unknown",
    ),
    repaired("stray", &[Sql("INSERT INTO notification VALUES (1, 77)")], "a word of task 77"),
    repaired("stray", &[Sql("INSERT INTO payload VALUES (77, 0, x'00')")], "a payload of task 77"),
    repaired("stray", &[Sql("UPDATE wait SET task = 77 WHERE kind = 0")], "a wait of task 77"),
    repaired("stray", &[Sql("UPDATE signal SET run = 77 WHERE number = 1")], "a signal of task 77"),
    repaired(
        "stray",
        &[Sql("INSERT INTO record (number, at, run, idx, kind, attempt, entry, active) \
               VALUES (99, 0, 78, 0, 0, 1, 1, 0)")],
        "a record of task 78",
    ),
    repaired("stray", &[Sql("UPDATE hold SET task = 77")], "a hold of task 77"),
    repaired("stray", &[Sql("UPDATE hold SET limit_key = 9")], "a hold of limit 9"),
    repaired("stray", &[Sql("INSERT INTO rate_event VALUES (9, 0, 1)")], "a begun of limit 9"),
    repaired(
        "stray",
        &[Sql("INSERT INTO pause (scope, name, paused_at) VALUES (0, 'nobody', 0)")],
        "a pause of run nobody",
    ),
    person("index", BEHIND_AN_INDEX, "task 9 is not found by task_alarm"),
    person("file", BEHIND_AN_INDEX, "missing from index task_alarm"),
];

/// Puts task 5 into the group of task 4, which is of another workflow.
const OTHER_GROUP: &str = "UPDATE task SET task_group = \
     (SELECT task_group FROM ended_task WHERE number = 4) WHERE number = 5";

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
        let Case { rule, changes, says, repaired } = case;
        let path = folder.path().join(format!("{number}.db"));
        fs::copy(&base, &path).unwrap();
        let connection = Connection::open(&path).unwrap();
        for change in *changes {
            match change {
                Sql(sql) => connection.execute_batch(sql).unwrap(),
                Lifecycle(task, edit) => edit_lifecycle(&connection, *task, edit),
                Change::Run(task, edit) => edit_run(&connection, *task, edit),
            }
        }
        drop(connection);
        let _other = match *rule {
            "silent" => Some(fall_silent(&path).await),
            _ => None,
        };
        let store = open(&path);
        let before = findings(&store).await;
        let is_it = |found: &&Finding| found.rule == *rule && found.what.contains(says);
        let found = before.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("{rule}: {changes:?}: {before:?}"));
        assert_eq!(found.repair.is_some(), *repaired, "{changes:?}: {found:?}");
        for found in &before {
            let rule = Rule::named(found.rule).expect("what is found breaks a rule");
            assert!(rule.repair.is_some() || found.repair.is_none(), "{found:?}");
            assert_eq!(found.meaning(), rule.meaning);
        }
        if !repaired {
            continue;
        }
        let granted = repair(&store, &before).await;
        assert!(granted.contains(&OperationOutcome::Yes), "{changes:?}: {before:?}: {granted:?}");
        assert_eq!(findings(&store).await, [], "{changes:?}: {before:?}");
        // Whoever asks again, or too late, changes nothing.
        let granted = repair(&store, &before).await;
        assert!(!granted.contains(&OperationOutcome::Yes), "{changes:?}: {before:?}: {granted:?}");
    }
}

#[test]
fn every_rule_has_a_case_and_every_repair() {
    for rule in RULES {
        let mut cases = CASES.iter().filter(|case| case.rule == rule.name).peekable();
        assert!(cases.peek().is_some(), "nobody breaks the rule {}", rule.name);
        assert_eq!(cases.any(|case| case.repaired), rule.repair.is_some(), "{}", rule.name);
    }
}
