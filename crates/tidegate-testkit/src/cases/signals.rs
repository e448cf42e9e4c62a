//! Signals: stored, never lost, and each received by exactly one wait.

use super::SECOND;
use crate::{Sketch, World, ask, change, one, plan, waits_of};
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::graph::OnFailure;
use tidegate_core::lifecycle::{Kind, WorkerId};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{Bytes, Claimed, NewRun, Operation, OperationOutcome, Parent, Reply};
use tidegate_core::wait::{WaitId, WaitKind, WaitOp, WaitOutcome};

fn two() -> Sketch {
    plan("two").task("a", &[]).task("b", &[])
}

/// A worker, a run of this plan, and its tasks, begun.
async fn begun(world: &mut World, sketch: Sketch) -> (WorkerId, RunId, Vec<Claimed>) {
    let plan = sketch.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    (worker, run, world.claim(worker, 9).await)
}

fn wait(name: &str, number: u32) -> WaitId {
    WaitId::new(WaitKind::Signal, name, number)
}

/// Which waits of which tasks a request has answered, and how.
fn answers(reply: &Reply) -> Vec<(i64, u32, Option<WaitOutcome>)> {
    let answers = reply.answers.iter();
    answers.map(|(task, _, is)| (task.0, is.id.occurrence, is.outcome.clone())).collect()
}

/// Somebody else than a worker sends a signal by the hand of this worker.
async fn send_by(world: &mut World, worker: WorkerId, run: RunId, body: &str) -> Reply {
    let signal = world.new_signal(run, "go", body);
    let mut request = world.request_of(worker);
    request.operations.push(Operation::Signal(signal));
    let reply = world.take(request).await;
    assert_eq!(reply.operations, [OperationOutcome::Yes]);
    reply
}

pub async fn a_signal_sent_before_the_wait_is_there_when_it_begins(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    world.send(run, "go", "early").await;
    let task = world.claim_one(worker).await;
    assert!(waits_of(&task).is_empty());
    world.send(run, "go", "late").await;
    for (number, body) in [(0, "early"), (1, "late")] {
        let answer = world.asks(worker, &task, ask::signal("go", number)).await;
        assert_eq!(answer, Some(ask::value(body)));
    }
    assert_eq!(world.asks(worker, &task, ask::signal("go", 2)).await, None);
}

pub async fn a_signal_sent_after_the_wait_has_begun_ends_it(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", 0)).await, None);
    let reply = send_by(world, worker, run, "now").await;
    assert_eq!(answers(&reply), [(tasks[0].key.0, 0, Some(ask::value("now")))]);
    assert_eq!(reply.answers[0].1, tasks[0].life.fence);
    let answer = world.asks(worker, &tasks[0], ask::signal("go", 0)).await;
    assert_eq!(answer, Some(ask::value("now")));
}

pub async fn a_signal_and_the_wait_for_it_meet_in_one_request(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::asks(&tasks[0], [ask::signal("go", 0)]));
    request.operations.push(Operation::Signal(world.new_signal(run, "go", "x")));
    let reply = world.take(request).await;
    let task = tasks[0].key.0;
    assert_eq!(answers(&reply), [(task, 0, None), (task, 0, Some(ask::value("x")))]);
    assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", 1)).await, None, "it came once");
}

pub async fn a_signal_may_bring_nothing(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    let signal = world.new_signal(run, "go", "");
    let none = tidegate_core::wait::NewSignal { body: None, ..signal };
    world.perform_operation(Operation::Signal(none)).await;
    let answer = world.asks(worker, &tasks[0], ask::signal("go", 0)).await;
    assert_eq!(answer, Some(WaitOutcome::Value(None)));
}

pub async fn signals_of_a_name_are_received_in_the_order_they_were_sent(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    for number in 0..12 {
        world.send(run, "go", &format!("{number}")).await;
    }
    for number in 0..12 {
        let answer = world.asks(worker, &tasks[0], ask::signal("go", number)).await;
        assert_eq!(answer, Some(ask::value(&format!("{number}"))));
    }
}

pub async fn signals_of_another_name_or_to_another_run_are_not_received(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    let other = world.submit(&tasks[0].plan).await.id;
    world.send(other, "go", "to the other").await;
    world.send(run, "stop", "another name").await;
    assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", 0)).await, None);
    world.send(other, "go", "to the other").await;
    world.send(run, "g", "another name").await;
    assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", 0)).await, None);
    world.send(run, "go", "it").await;
    assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", 0)).await, Some(ask::value("it")));
}

pub async fn a_signal_is_received_by_the_oldest_wait_and_by_no_other(world: &mut World) {
    let (worker, run, tasks) = begun(world, two()).await;
    // The second task began to wait first.
    for task in [&tasks[1], &tasks[0]] {
        assert_eq!(world.asks(worker, task, ask::signal("go", 0)).await, None);
        world.advance(SECOND);
    }
    let first = send_by(world, worker, run, "first").await;
    assert_eq!(answers(&first), [(tasks[1].key.0, 0, Some(ask::value("first")))]);
    let second = send_by(world, worker, run, "second").await;
    assert_eq!(answers(&second), [(tasks[0].key.0, 0, Some(ask::value("second")))]);
    assert!(answers(&send_by(world, worker, run, "third").await).is_empty());
}

pub async fn of_waits_that_began_at_the_same_time_the_first_task_receives(world: &mut World) {
    let (worker, run, tasks) = begun(world, two()).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::asks(&tasks[1], [ask::signal("go", 0)]));
    request.changes.push(change::asks(&tasks[0], [ask::signal("go", 1), ask::signal("go", 0)]));
    world.take(request).await;
    for (task, number) in [(0, 0), (0, 1), (1, 0)] {
        let reply = send_by(world, worker, run, "x").await;
        assert_eq!(answers(&reply), [(tasks[task].key.0, number, Some(ask::value("x")))]);
    }
}

pub async fn several_signals_in_one_request_go_to_several_waits(world: &mut World) {
    let (worker, run, tasks) = begun(world, two()).await;
    for task in &tasks {
        world.asks(worker, task, ask::signal("go", 0)).await;
        world.advance(SECOND);
    }
    let mut request = world.request_of(worker);
    for body in ["first", "second", "third"] {
        request.operations.push(Operation::Signal(world.new_signal(run, "go", body)));
    }
    let reply = world.take(request).await;
    let expected = [
        (tasks[0].key.0, 0, Some(ask::value("first"))),
        (tasks[1].key.0, 0, Some(ask::value("second"))),
    ];
    assert_eq!(answers(&reply), expected);
    let answer = world.asks(worker, &tasks[0], ask::signal("go", 1)).await;
    assert_eq!(answer, Some(ask::value("third")));
}

pub async fn a_run_that_is_over_or_unknown_receives_nothing(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    let unknown = world.new_signal(RunId::from_u128(7), "go", "x");
    assert_eq!(world.ask(Operation::Signal(unknown)).await.operations, [OperationOutcome::Unknown]);
    // What ends it may be said in the same request, before.
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&tasks[0]));
    request.operations.push(Operation::Signal(world.new_signal(run, "go", "x")));
    assert_eq!(world.take(request).await.operations, [OperationOutcome::Already]);
    let late = world.new_signal(run, "go", "x");
    assert_eq!(world.ask(Operation::Signal(late)).await.operations, [OperationOutcome::Already]);
}

pub async fn a_signal_sent_in_a_request_whose_answer_was_lost_is_not_doubled(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    for waits in [false, true] {
        let number = u32::from(waits) * 2;
        if waits {
            assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", number)).await, None);
        }
        let mut request = world.request();
        request.operations.push(Operation::Signal(world.new_signal(run, "go", "x")));
        for reply in world.take_twice(request).await {
            assert_eq!(reply.operations, [OperationOutcome::Yes]);
        }
        let answer = world.asks(worker, &tasks[0], ask::signal("go", number)).await;
        assert_eq!(answer, Some(ask::value("x")));
        assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", number + 1)).await, None);
        world.tell(worker, change::asks(&tasks[0], [WaitOp::Close(wait("go", number + 1))])).await;
    }
}

pub async fn a_signal_whose_answer_was_lost_was_sent_also_when_its_run_has_ended(
    world: &mut World,
) {
    let (worker, run, tasks) = begun(world, one()).await;
    let mut request = world.request();
    request.operations.push(Operation::Signal(world.new_signal(run, "go", "x")));
    world.take(request.clone()).await;
    world.tell(worker, change::succeed(&tasks[0])).await;
    request.again = true;
    assert_eq!(world.take(request).await.operations, [OperationOutcome::Yes]);
    let mut never = world.request();
    never.operations.push(Operation::Signal(world.new_signal(run, "go", "x")));
    never.again = true;
    assert_eq!(
        world.take(never).await.operations,
        [OperationOutcome::Already],
        "this one never arrived"
    );
}

pub async fn a_signal_of_a_wait_that_is_closed_goes_to_the_next_who_waits(world: &mut World) {
    let (worker, run, tasks) = begun(world, two()).await;
    for task in &tasks {
        world.asks(worker, task, ask::signal("go", 0)).await;
        world.advance(SECOND);
    }
    world.send(run, "go", "x").await;
    let close = change::asks(&tasks[0], [WaitOp::Close(wait("go", 0))]);
    let reply = world.tell(worker, close).await;
    assert_eq!(answers(&reply), [(tasks[1].key.0, 0, Some(ask::value("x")))]);
    assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", 0)).await, None);
}

pub async fn a_signal_of_a_wait_that_is_closed_is_there_in_its_old_place(world: &mut World) {
    let (worker, run, tasks) = begun(world, two()).await;
    for body in ["first", "second"] {
        world.send(run, "go", body).await;
    }
    let answer = world.asks(worker, &tasks[0], ask::signal("go", 0)).await;
    assert_eq!(answer, Some(ask::value("first")));
    world.tell(worker, change::asks(&tasks[0], [WaitOp::Close(wait("go", 0))])).await;
    for body in ["first", "second"] {
        let number = u32::from(body == "second");
        let answer = world.asks(worker, &tasks[1], ask::signal("go", number)).await;
        assert_eq!(answer, Some(ask::value(body)));
    }
}

pub async fn a_wait_that_is_closed_while_open_receives_nothing(world: &mut World) {
    let (worker, run, tasks) = begun(world, two()).await;
    for task in &tasks {
        world.asks(worker, task, ask::signal("go", 0)).await;
        world.advance(SECOND);
    }
    world.tell(worker, change::asks(&tasks[0], [WaitOp::Close(wait("go", 0))])).await;
    let reply = send_by(world, worker, run, "x").await;
    assert_eq!(answers(&reply), [(tasks[1].key.0, 0, Some(ask::value("x")))]);
}

pub async fn a_signal_to_a_task_at_another_worker_leaves_word(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    let other = world.worker(&[&tasks[0].plan]).await;
    world.asks(worker, &tasks[0], ask::signal("go", 0)).await;
    for by in [None, Some(other)] {
        match by {
            None => world.send(run, "go", "x").await,
            Some(other) => send_by(world, other, run, "x").await,
        };
        let request = world.request_of(other);
        assert!(world.take(request).await.ask_again.is_empty(), "the word is not for this one");
        let request = world.request_of(worker);
        let reply = world.take(request).await;
        assert_eq!(reply.ask_again, [(tasks[0].key, tasks[0].life.fence)], "{by:?}");
        let request = world.request_of(worker);
        assert!(world.take(request).await.ask_again.is_empty(), "word is left once");
        let number = u32::from(by.is_some());
        let answer = world.asks(worker, &tasks[0], ask::signal("go", number)).await;
        assert_eq!(answer, Some(ask::value("x")));
        world.asks(worker, &tasks[0], ask::signal("go", number + 1)).await;
    }
}

pub async fn word_of_a_task_that_has_gone_elsewhere_is_not_heard(world: &mut World) {
    let (worker, run, tasks) = begun(world, one()).await;
    let other = world.worker(&[&tasks[0].plan]).await;
    world.asks(worker, &tasks[0], ask::signal("go", 0)).await;
    world.send(run, "go", "x").await;
    let mut request = world.request_of(worker);
    request.changes.push(change::hand_back(&tasks[0]));
    assert!(world.take(request).await.ask_again.is_empty());
    let task = world.claim_one(other).await;
    assert_eq!(waits_of(&task)[0].outcome, Some(ask::value("x")), "it is given what came");
}

pub async fn who_is_cancelled_behind_its_workers_back_is_told_with_its_next_request(
    world: &mut World,
) {
    let (worker, run, tasks) = begun(world, one()).await;
    world.perform_operation(Operation::Cancel(run)).await;
    let request = world.request_of(worker);
    let told = world.take(request).await.told;
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].task, told[0].worker, told[0].kind),
        (tasks[0].key, worker, Kind::Cancelled)
    );
    let request = world.request_of(worker);
    assert!(world.take(request).await.told.is_empty());
}

pub async fn who_is_to_stop_behind_its_workers_back_is_told_and_not_asked(world: &mut World) {
    let plan = two().on_failure(OnFailure::FailFastKill).build();
    let workers = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let run = world.submit(&plan).await.id;
    let (stops, fails) = (world.claim_one(workers[0]).await, world.claim_one(workers[1]).await);
    world.asks(workers[0], &stops, ask::signal("go", 0)).await;
    world.send(run, "go", "x").await;
    world.tell(workers[1], change::fail(&fails)).await;
    let request = world.request_of(workers[0]);
    let reply = world.take(request).await;
    assert_eq!((reply.told.len(), reply.ask_again.len()), (1, 0));
    assert_eq!((reply.told[0].task, reply.told[0].kind), (stops.key, Kind::Active));
}

// ------------------------------------------------------------------------------------- items --

/// A worker, the run of a task that is done for items, that task, and two of its items, begun.
async fn with_items(world: &mut World) -> (WorkerId, RunId, Claimed, Vec<Claimed>) {
    let plan = plan("mapped").task("each", &[]).each("list").build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let each = world.claim_one(worker).await;
    let wait = WaitId::new(WaitKind::Child, "items", 0);
    let items = Plan::items("mapped", "each", 2, OnFailure::FailFast, TaskPlan::default());
    let id = RunId::of_items(each.execution());
    let new = NewRun {
        id,
        parent: Some(Parent::new(each.key, each.life.fence, wait)),
        items: vec![Bytes::from(&b"x"[..]); 2],
        ..world.new_run(&Arc::new(items))
    };
    let mut request = world.request_of(worker);
    request.submits.push(new);
    request.claim = crate::claim(2, 0);
    let items = world.take(request).await.claimed;
    assert_eq!(items.len(), 2);
    (worker, run, each, items)
}

pub async fn items_receive_the_signals_of_the_run_whose_items_they_are(world: &mut World) {
    let (worker, run, each, items) = with_items(world).await;
    for item in &items {
        assert_eq!(world.asks(worker, item, ask::signal("go", 0)).await, None);
        world.advance(SECOND);
    }
    assert_eq!(world.asks(worker, &each, ask::signal("go", 0)).await, None);
    for (task, body) in [(&items[0], "1"), (&items[1], "2"), (&each, "3")] {
        let reply = send_by(world, worker, run, body).await;
        assert_eq!(answers(&reply), [(task.key.0, 0, Some(ask::value(body)))]);
    }
}

pub async fn a_signal_to_a_run_of_items_goes_to_the_run_whose_items_they_are(world: &mut World) {
    let (worker, run, each, items) = with_items(world).await;
    let to_items = items[0].run;
    assert_ne!(to_items, run);
    world.send(to_items, "go", "x").await;
    assert_eq!(world.asks(worker, &each, ask::signal("go", 0)).await, Some(ask::value("x")));
    // It is received as long as that run is open, whatever the items do.
    for item in &items {
        world.tell(worker, change::succeed(item)).await;
    }
    world.send(to_items, "go", "y").await;
    assert_eq!(world.asks(worker, &each, ask::signal("go", 1)).await, Some(ask::value("y")));
    world.tell(worker, change::succeed(&each)).await;
    let late = world.new_signal(to_items, "go", "z");
    assert_eq!(world.ask(Operation::Signal(late)).await.operations, [OperationOutcome::Already]);
}
