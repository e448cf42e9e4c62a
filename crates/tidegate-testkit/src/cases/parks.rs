//! Tasks that wait as rows: what wakes them, and that no wake-up is lost.

use super::SECOND;
use crate::world::keys;
use crate::{World, ask, change, claim, one, plan, waits_of};
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::lifecycle::{Kind, State, WorkerId};
use tidegate_core::plan::Plan;
use tidegate_core::store::{Applied, Change, Claimed, Operation, Reply, Scope};
use tidegate_core::wait::{WaitId, WaitKind, WaitOp, WaitOutcome};

fn go() -> WaitId {
    WaitId::new(WaitKind::Signal, "go", 0)
}

/// A worker, a run of one task, and that task, begun.
async fn begun(world: &mut World) -> (WorkerId, RunId, Claimed) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    (worker, run, world.claim_one(worker).await)
}

/// The task waits for a signal as a row.
async fn park(world: &mut World, worker: WorkerId, task: &Claimed) {
    let parks = Change { waits: vec![ask::signal("go", 0)], ..change::park_on(task, None, [go()]) };
    let reply = world.tell(worker, parks).await;
    assert_eq!(reply.alarm, None, "no clock wakes it");
}

/// A signal in a request of this worker, which takes what it can.
async fn signal_and_claim(world: &mut World, worker: WorkerId, run: RunId) -> Reply {
    let signal = world.new_signal(run, "go", "x");
    let mut request = world.request_of(worker);
    request.operations.push(Operation::Signal(signal));
    request.claim = claim(9, 0);
    world.take(request).await
}

pub async fn a_signal_wakes_who_is_parked_and_is_taken_with_it_in_the_same_request(
    world: &mut World,
) {
    let (worker, run, task) = begun(world).await;
    park(world, worker, &task).await;
    assert_eq!(world.kinds(run).await, [Kind::Parked]);
    world.advance(SECOND * 3_600);
    let another = world.worker(&[&task.plan]).await;
    let woken = signal_and_claim(world, another, run).await.claimed;
    assert_eq!(keys(&woken), [task.key]);
    assert_eq!(waits_of(&woken[0])[0].outcome, Some(ask::value("x")));
    let life = &woken[0].life;
    assert_eq!((life.attempt, life.entries, life.fence.0), (1, 2, task.life.fence.0 + 1));
    assert_eq!(life.active, SECOND * 2, "it has computed for as long as it said");
    world.tell(another, change::succeed(&woken[0])).await;
}

pub async fn who_was_woken_by_a_signal_with_nobody_there_is_ready_from_then_on(world: &mut World) {
    let (worker, run, task) = begun(world).await;
    park(world, worker, &task).await;
    let woken_at = world.advance(SECOND * 5);
    world.send(run, "go", "x").await;
    let State::Ready { since, due } = world.life(run, 0).await.state else { panic!() };
    assert_eq!((since, due), (woken_at, woken_at));
    // A second one wakes nobody and is not lost.
    world.send(run, "go", "y").await;
    let task = world.claim_one(worker).await;
    assert_eq!(world.asks(worker, &task, ask::signal("go", 1)).await, Some(ask::value("y")));
}

/// A run of another plan, its task, and the worker that has it.
async fn other_run(world: &mut World) -> (WorkerId, RunId, Claimed, Arc<Plan>) {
    let other = plan("other").task("o", &[]).build();
    let worker = world.worker(&[&other]).await;
    let run = world.submit(&other).await.id;
    (worker, run, world.claim_one(worker).await, other)
}

pub async fn the_end_of_a_run_wakes_all_who_are_parked_on_it_in_the_same_request(
    world: &mut World,
) {
    let (worker, run, task) = begun(world).await;
    let (knows, other, its, other_plan) = other_run(world).await;
    let second = world.submit(&task.plan).await.id;
    let next = world.claim_one(worker).await;
    for task in [&task, &next] {
        let on = WaitId::new(WaitKind::Run, other.to_string(), 0);
        let parks = Change { waits: vec![ask::run(other)], ..change::park_on(task, None, [on]) };
        world.tell(worker, parks).await;
    }
    world.tell(knows, change::hand_back(&its)).await;
    let both = world.worker(&[&task.plan, &other_plan]).await;
    let its = world.claim_one(both).await;
    let mut request = world.request_of(both);
    request.changes.push(change::succeed(&its));
    request.claim = claim(9, 0);
    let woken = world.take(request).await.claimed;
    assert_eq!(keys(&woken), [task.key, next.key]);
    let ended = Some(WaitOutcome::Ended(tidegate_core::graph::RunOutcome::Succeeded));
    assert!(woken.iter().all(|task| waits_of(task)[0].outcome == ended));
    for run in [run, second] {
        assert_eq!(world.kinds(run).await, [Kind::Active]);
    }
}

pub async fn cancelling_a_run_wakes_who_is_parked_on_it(world: &mut World) {
    let (worker, run, task) = begun(world).await;
    let (_, other, ..) = other_run(world).await;
    let on = WaitId::new(WaitKind::Run, other.to_string(), 0);
    let parks = Change { waits: vec![ask::run(other)], ..change::park_on(&task, None, [on]) };
    world.tell(worker, parks).await;
    world.perform_operation(Operation::Cancel(other)).await;
    assert_eq!(world.kinds(run).await, [Kind::Ready]);
}

pub async fn time_wakes_who_is_parked_with_its_waits_as_they_are(world: &mut World) {
    let (worker, run, task) = begun(world).await;
    let due = world.now() + SECOND * 60;
    let on = [WaitId::new(WaitKind::Sleep, "", 0), go()];
    let waits = vec![ask::sleep(0, due), ask::signal("go", 0)];
    let parks = Change { waits, ..change::park_on(&task, Some(due), on) };
    assert_eq!(world.tell(worker, parks).await.alarm, Some(due));
    world.advance(SECOND * 59);
    assert!(world.claim(worker, 1).await.is_empty());
    world.advance(SECOND);
    let task = world.claim_one(worker).await;
    assert_eq!(waits_of(&task).len(), 2);
    assert!(waits_of(&task).iter().all(|wait| wait.is_open()), "its body says that it has slept");
    // What was woken by its signal first is not woken again by its time.
    let park = change::park_on(&task, Some(world.now() + SECOND), [go()]);
    world.tell(worker, park).await;
    world.send(run, "go", "x").await;
    let task = world.claim_one(worker).await;
    world.advance(SECOND * 5);
    assert_eq!(world.look().await.alarm, None);
    assert_eq!(world.kinds(run).await, [Kind::Active]);
    world.tell(worker, change::succeed(&task)).await;
}

pub async fn what_comes_while_a_task_is_about_to_park_wakes_it(world: &mut World) {
    let (worker, run, task) = begun(world).await;
    assert_eq!(world.asks(worker, &task, ask::signal("go", 0)).await, None);
    // Its worker has not heard of this when the body is dropped.
    world.send(run, "go", "x").await;
    let mut request = world.request_of(worker);
    request.changes.push(change::park_on(&task, None, [go()]));
    request.claim = claim(1, 0);
    let reply = world.take(request).await;
    assert_eq!(reply.changes, [Applied::Yes]);
    assert_eq!(keys(&reply.claimed), [task.key]);
    assert_eq!(waits_of(&reply.claimed[0])[0].outcome, Some(ask::value("x")));
}

pub async fn what_comes_in_the_request_of_a_park_wakes_it_wherever_it_is_said(world: &mut World) {
    let (worker, run, task) = begun(world).await;
    world.asks(worker, &task, ask::signal("go", 0)).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::park_on(&task, None, [go()]));
    request.operations.push(Operation::Signal(world.new_signal(run, "go", "x")));
    request.claim = claim(1, 0);
    assert_eq!(keys(&world.take(request).await.claimed), [task.key]);
}

pub async fn who_parks_on_several_is_woken_by_the_first(world: &mut World) {
    let (worker, run, task) = begun(world).await;
    let ids: Vec<_> = (0..3).map(|at| WaitId::new(WaitKind::Signal, format!("s{at}"), 0)).collect();
    let waits: Vec<_> = (0..3).map(|at| ask::signal(&format!("s{at}"), 0)).collect();
    let parks = Change { waits, ..change::park_on(&task, None, ids.clone()) };
    world.tell(worker, parks).await;
    world.send(run, "s1", "x").await;
    let task = world.claim_one(worker).await;
    let open: Vec<_> = waits_of(&task).iter().map(|wait| wait.is_open()).collect();
    assert_eq!(open, [true, false, true]);
    // The last of them has come when it parks again: that wakes it, wherever it stands in the list.
    world.send(run, "s2", "y").await;
    let on = [ids[0].clone(), ids[2].clone()];
    world.tell(worker, change::park_on(&task, None, on)).await;
    assert_eq!(world.kinds(run).await, [Kind::Ready]);
}

pub async fn who_parks_on_a_wait_that_is_not_there_is_woken(world: &mut World) {
    let (worker, run, task) = begun(world).await;
    world.asks(worker, &task, ask::signal("other", 0)).await;
    world.tell(worker, change::park_on(&task, None, [go()])).await;
    assert_eq!(world.kinds(run).await, [Kind::Ready], "it would wait for ever");
}

pub async fn a_park_whose_answer_was_lost_is_yes_again_also_when_it_was_woken_since(
    world: &mut World,
) {
    let (worker, run, task) = begun(world).await;
    let parks =
        Change { waits: vec![ask::signal("go", 0)], ..change::park_on(&task, None, [go()]) };
    let mut request = world.request_of(worker);
    request.changes.push(parks);
    for reply in world.take_twice(request.clone()).await {
        assert_eq!(reply.changes, [Applied::Yes]);
    }
    assert_eq!(world.kinds(run).await, [Kind::Parked]);
    world.send(run, "go", "x").await;
    request.again = true;
    assert_eq!(world.take(request.clone()).await.changes, [Applied::Yes], "it is ready again");
    assert_eq!(world.kinds(run).await, [Kind::Ready], "and stays so");
    let next = world.claim_one(worker).await;
    assert_eq!(world.take(request).await.changes, [Applied::Yes], "it is taken again");
    assert_eq!(waits_of(&next)[0].outcome, Some(ask::value("x")));
    assert_eq!(world.kinds(run).await, [Kind::Active]);
}

pub async fn who_is_woken_in_a_pause_waits_for_its_end(world: &mut World) {
    let (worker, run, task) = begun(world).await;
    park(world, worker, &task).await;
    world.perform_operation(Operation::Pause(Scope::Run(run))).await;
    world.send(run, "go", "x").await;
    assert_eq!(world.kinds(run).await, [Kind::Ready]);
    assert!(world.claim(worker, 1).await.is_empty());
    world.perform_operation(Operation::Unpause(Scope::Run(run))).await;
    assert_eq!(world.claim_one(worker).await.key, task.key);
}

pub async fn who_is_cancelled_while_parked_receives_nothing_any_more(world: &mut World) {
    let both = plan("both").task("a", &[]).task("b", &[]).rules(|rules| rules.retries = 1).build();
    let worker = world.worker(&[&both]).await;
    let run = world.submit(&both).await.id;
    let tasks = world.claim(worker, 2).await;
    park(world, worker, &tasks[0]).await;
    world.perform_operation(Operation::Cancel(run)).await;
    let late = world.new_signal(run, "go", "x");
    let granted = world.ask(Operation::Signal(late)).await.operations;
    assert_eq!(granted, [tidegate_core::store::OperationOutcome::Already]);
    assert_eq!(world.kinds(run).await, [Kind::Cancelled; 2]);
}

pub async fn a_parked_task_of_a_failing_run_is_over_and_not_woken(world: &mut World) {
    let both = plan("both").task("a", &[]).task("b", &[]).build();
    let worker = world.worker(&[&both]).await;
    let run = world.submit(&both).await.id;
    let tasks = world.claim(worker, 2).await;
    park(world, worker, &tasks[0]).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::fail(&tasks[1]));
    request.operations.push(Operation::Signal(world.new_signal(run, "go", "x")));
    request.claim = claim(1, 0);
    assert!(world.take(request).await.claimed.is_empty());
    assert_eq!(world.kinds(run).await, [Kind::Cancelled, Kind::Failed]);
}

pub async fn a_wait_that_is_closed_hands_its_signal_to_who_is_parked(world: &mut World) {
    let both = plan("both").task("a", &[]).task("b", &[]).build();
    let worker = world.worker(&[&both]).await;
    let run = world.submit(&both).await.id;
    let tasks = world.claim(worker, 2).await;
    assert_eq!(world.asks(worker, &tasks[1], ask::signal("go", 0)).await, None);
    world.advance(SECOND);
    park(world, worker, &tasks[0]).await;
    world.send(run, "go", "x").await;
    assert_eq!(world.kinds(run).await, [Kind::Parked, Kind::Active]);
    let mut request = world.request_of(worker);
    request.changes.push(change::asks(&tasks[1], [WaitOp::Close(go())]));
    request.claim = claim(1, 0);
    let woken = world.take(request).await.claimed;
    assert_eq!(keys(&woken), [tasks[0].key]);
    assert_eq!(waits_of(&woken[0])[0].outcome, Some(ask::value("x")));
}

pub async fn a_thousand_parked_tasks_are_woken_by_one_end_of_a_run(world: &mut World) {
    let (_, other, its, other_plan) = other_run(world).await;
    let waits = one().build();
    let worker = world.worker(&[&waits, &other_plan]).await;
    let mut request = world.request_of(worker);
    for _ in 0..1_000 {
        request.submits.push(world.new_run(&waits));
    }
    request.claim = claim(1_000, 0);
    let tasks = world.take(request).await.claimed;
    let on = WaitId::new(WaitKind::Run, other.to_string(), 0);
    let mut request = world.request_of(worker);
    request.changes = tasks
        .iter()
        .map(|task| {
            let on = [on.clone()];
            Change { waits: vec![ask::run(other)], ..change::park_on(task, None, on) }
        })
        .collect();
    world.take(request).await;
    assert_eq!(world.store().counts().await.expect("they are counted").parked, 1_000);
    let mut request = world.request();
    request.recover = Some(its.life.owner().expect("it runs"));
    world.take(request).await;
    let its = world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&its));
    request.claim = claim(2_000, 0);
    assert_eq!(world.take(request).await.claimed.len(), 1_000);
}
