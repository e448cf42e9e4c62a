//! Waits, signals, limits and words: that they are there after closing and opening.

use crate::support::{
    assert_sound, at, claim, enlist, new_run, open, plan, plan_of, request, submit, succeeded, take,
};
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::RunId;
use tidegate_core::lifecycle::{Event, Kind, WorkerId};
use tidegate_core::limit::{Limit, LimitState};
use tidegate_core::plan::{LimitUse, Plan, TaskPlan};
use tidegate_core::store::{
    Bytes, Change, Claim, Claimed, Operation, OperationOutcome, Reply, Request, Store,
};
use tidegate_core::wait::{Awaited, NewSignal, WaitId, WaitKind, WaitOp, WaitOutcome};
use tidegate_sqlite::SqliteStore;

/// A task that may park and takes one of the limit "api".
pub(crate) fn limited() -> Arc<Plan> {
    let api = LimitUse { name: "api".to_owned(), key: None, units: 1 };
    plan_of("w", TaskPlan { parkable: true, limits: vec![api], ..TaskPlan::default() })
}

fn bytes(text: &str) -> Bytes {
    Bytes::from(text.as_bytes())
}

pub(crate) fn signal_id(name: &str) -> WaitId {
    WaitId::new(WaitKind::Signal, name, 0)
}

pub(crate) fn begin(id: WaitId, what: Awaited) -> WaitOp {
    WaitOp::Begin { id, label: "".into(), due: None, what, releasing: Vec::new() }
}

pub(crate) fn step_done(name: &str, value: &str) -> WaitOp {
    let id = WaitId::new(WaitKind::Step, name, 0);
    WaitOp::End { id, label: "".into(), outcome: WaitOutcome::Value(Some(bytes(value))) }
}

pub(crate) fn waits(task: &Claimed, waits: Vec<WaitOp>) -> Change {
    Change { waits, ..Change::none(task.key, task.index, task.life.fence) }
}

/// Begins to wait for a signal and parks on that.
pub(crate) fn parks(task: &Claimed, name: &str) -> Change {
    let (fence, active, wait) = (task.life.fence, Duration::ZERO, name.to_owned());
    let mut change =
        Change::new(task.key, task.index, Event::Park { fence, active, wake: None, wait });
    change.waits = vec![step_done("first", "1"), begin(signal_id(name), Awaited::Signal)];
    change.parks_on = vec![signal_id(name)];
    change
}

pub(crate) fn signal(run: RunId, name: &str, body: &str) -> Operation {
    let id = u128::from(request().id.0);
    Operation::Signal(NewSignal { id, run, name: name.into(), body: Some(bytes(body)) })
}

pub(crate) async fn says(store: &SqliteStore, worker: WorkerId, changes: Vec<Change>) -> Reply {
    take(store, Request { worker: Some(worker), changes, ..request() }).await.unwrap()
}

pub(crate) async fn asks(store: &SqliteStore, operation: Operation) -> Reply {
    let reply = take(store, Request { operations: vec![operation], ..request() }).await.unwrap();
    assert_eq!(reply.operations, [OperationOutcome::Yes]);
    reply
}

/// Submits a run of this plan.
pub(crate) async fn submit_plan(store: &SqliteStore, plan: &Arc<Plan>) -> RunId {
    let submits = vec![new_run(plan, b"in")];
    let reply = take(store, Request { submits, ..request() }).await.unwrap();
    reply.submits[0].as_ref().unwrap().id
}

fn state(limit: &Limit, in_use: u32, waiting: u64) -> LimitState {
    LimitState { limit: limit.clone(), key: String::new(), in_use, waiting }
}

#[tokio::test]
async fn a_parked_task_has_its_waits_after_opening_and_is_woken_by_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let worker = enlist(&store).await;
    let run = submit_plan(&store, &plan("w")).await;
    let task = claim(&store, worker, 1).await.remove(0);
    says(&store, worker, vec![parks(&task, "go")]).await;
    assert_eq!(store.counts().await.unwrap().parked, 1);
    store.close().await;

    let store = open(&path);
    let worker = enlist(&store).await;
    assert_eq!(store.counts().await.unwrap().parked, 1);
    asks(&store, signal(run, "go", "now")).await;
    store.close().await;

    let store = open(&path);
    let task = claim(&store, enlist(&store).await, 1).await.remove(0);
    let ended = task.waits.iter().map(|(wait, _)| (wait.id.clone(), wait.outcome.clone()));
    let value = |text| Some(WaitOutcome::Value(Some(bytes(text))));
    let step = (WaitId::new(WaitKind::Step, "first", 0), value("1"));
    assert_eq!(ended.collect::<Vec<_>>(), [step, (signal_id("go"), value("now"))]);
    assert_sound(&store).await;
    store.dismiss(worker).await.unwrap();
}

#[tokio::test]
async fn signals_wait_in_order_for_whoever_opens_the_store_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let run = submit_plan(&store, &plan("w")).await;
    for body in ["1", "2"] {
        asks(&store, signal(run, "go", body)).await;
    }
    store.close().await;
    // A number is not given again, although the row is gone.
    let other = Connection::open(&path).unwrap();
    other.execute("DELETE FROM signal WHERE number = 2", []).unwrap();

    let store = open(&path);
    asks(&store, signal(run, "go", "3")).await;
    let worker = enlist(&store).await;
    let task = claim(&store, worker, 1).await.remove(0);
    let second = WaitId::new(WaitKind::Signal, "go", 1);
    let ids = [signal_id("go"), second];
    let ops = ids.map(|id| begin(id, Awaited::Signal)).into();
    let reply = says(&store, worker, vec![waits(&task, ops)]).await;
    let values = reply.answers.into_iter().map(|(_, _, answer)| answer.outcome);
    let value = |text| Some(WaitOutcome::Value(Some(bytes(text))));
    assert_eq!(values.collect::<Vec<_>>(), [value("1"), value("3")]);
    let select = "SELECT signal FROM wait ORDER BY occurrence";
    let mut select = other.prepare(select).unwrap();
    let taken = select.query_map([], |row| row.get(0)).unwrap();
    assert_eq!(taken.map(Result::unwrap).collect::<Vec<i64>>(), [1, 3]);
    assert_sound(&store).await;
}

#[tokio::test]
async fn a_limit_is_held_across_opening_until_its_holder_is_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let api = Limit::new("api").at_once(1);
    asks(&store, Operation::Declare(api.clone())).await;
    for _ in 0..2 {
        submit_plan(&store, &limited()).await;
    }
    let dead = enlist(&store).await;
    assert_eq!(claim(&store, dead, 2).await.len(), 1);
    store.close().await;

    let store = open(&path);
    assert_eq!(store.limits().await.unwrap(), [state(&api, 1, 1)]);
    assert_eq!(store.counts().await.unwrap().limited, 1);
    let worker = enlist(&store).await;
    assert!(claim(&store, worker, 2).await.is_empty());
    let mut recover = request();
    (recover.worker, recover.recover) = (Some(worker), Some(dead));
    take(&store, recover).await.unwrap();
    assert_eq!(claim(&store, worker, 2).await.len(), 1);
    assert_eq!(store.limits().await.unwrap(), [state(&api, 1, 1)]);
    // What was declared to the nanosecond is the same when it is declared again.
    let odd = Limit::new("odd").rate(3, Duration::from_nanos(1_000_000_001));
    asks(&store, Operation::Declare(odd.clone())).await;
    store.close().await;
    let store = open(&path);
    let again = Request { operations: vec![Operation::Declare(odd)], ..request() };
    assert_eq!(take(&store, again).await.unwrap().operations, [OperationOutcome::Already]);
    assert_sound(&store).await;
}

#[tokio::test]
async fn a_rate_that_is_used_up_is_remembered_with_its_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    asks(&store, Operation::Declare(Limit::new("api").rate(1, Duration::from_secs(60)))).await;
    for _ in 0..2 {
        submit_plan(&store, &limited()).await;
    }
    let worker = enlist(&store).await;
    assert_eq!(claim(&store, worker, 2).await.len(), 1);
    store.close().await;

    let store = open(&path);
    let worker = enlist(&store).await;
    assert_eq!(take(&store, request()).await.unwrap().alarm, Some(at(60)));
    assert_sound(&store).await;
    let mut later = Request { worker: Some(worker), clock: at(60).into(), ..request() };
    later.claim = Claim { units: 2, ahead: 0, heaviest: 1, room: u32::MAX };
    assert_eq!(take(&store, later).await.unwrap().claimed.len(), 1);
    assert_sound(&store).await;
}

#[tokio::test]
async fn a_word_reaches_a_worker_of_another_process_and_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (here, there) = (open(&path), open(&path));
    let words = || {
        let count = "SELECT count(*) FROM notification";
        Connection::open(&path).unwrap().query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let worker = enlist(&here).await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(submit(&here, b"in").await.unwrap());
    }
    let tasks = claim(&here, worker, 2).await;
    asks(&there, Operation::Cancel(runs[0])).await;
    assert_eq!(words(), 1);
    let told = says(&here, worker, Vec::new()).await.told;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].task, told[0].kind), (tasks[0].key, Kind::Cancelled));
    assert_eq!(words(), 0);
    assert!(says(&here, worker, Vec::new()).await.told.is_empty());

    asks(&there, Operation::Cancel(runs[1])).await;
    assert_eq!(words(), 1);
    assert_sound(&there).await;
    here.dismiss(worker).await.unwrap();
    assert_eq!(words(), 0);
    assert_sound(&there).await;
}

#[tokio::test]
async fn those_who_stand_behind_a_limit_are_found_lane_by_lane() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    asks(&store, Operation::Declare(Limit::new("api").at_once(1))).await;
    let api = || LimitUse { name: "api".to_owned(), key: None, units: 1 };
    let other = plan_of("other", TaskPlan { limits: vec![api()], ..TaskPlan::default() });
    for plan in [&limited(), &limited(), &other, &other] {
        submit_plan(&store, plan).await;
    }
    let worker = enlist(&store).await;
    let first = claim(&store, worker, 4).await;
    assert_eq!(first.len(), 1);
    assert_eq!(store.counts().await.unwrap().limited, 3);
    // One of each lane is let through; who is first takes it, and the other stands behind again.
    says(&store, worker, vec![succeeded(&first[0])]).await;
    let counts = store.counts().await.unwrap();
    assert_eq!((counts.ready, counts.limited), (2, 1));
    assert_sound(&store).await;
    assert_eq!(claim(&store, worker, 4).await.len(), 1);
    let counts = store.counts().await.unwrap();
    assert_eq!((counts.ready, counts.limited), (0, 2));
    assert_sound(&store).await;
}

#[tokio::test]
async fn what_nobody_can_run_is_told_also_behind_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    asks(&store, Operation::Declare(Limit::new("api").at_once(1))).await;
    for _ in 0..3 {
        submit_plan(&store, &limited()).await;
    }
    let worker = enlist(&store).await;
    assert_eq!(claim(&store, worker, 3).await.len(), 1);
    assert!(store.unserved().await.unwrap().is_empty());
    store.dismiss(worker).await.unwrap();
    let unserved = store.unserved().await.unwrap();
    assert_eq!(unserved.len(), 1);
    assert_eq!(unserved[0].waiting, 2);
}

#[tokio::test]
async fn a_limit_that_was_made_smaller_is_no_finding() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    asks(&store, Operation::Declare(Limit::new("api").at_once(3))).await;
    for _ in 0..4 {
        submit_plan(&store, &limited()).await;
    }
    let worker = enlist(&store).await;
    assert_eq!(claim(&store, worker, 4).await.len(), 3);
    let smaller = Limit::new("api").at_once(1);
    asks(&store, Operation::Resize(smaller.clone())).await;
    assert_eq!(store.limits().await.unwrap(), [state(&smaller, 3, 1)]);
    assert_sound(&store).await;
}
