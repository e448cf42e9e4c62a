//! Runs, queues and stores that stand still.

use super::SECOND;
use crate::{QUEUE, World, chain, change, claim, one};
use tidegate_core::RunId;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::{Kind, Reason, State};
use tidegate_core::store::{NewRun, Operation, OperationOutcome, Scope};

fn scopes(run: RunId) -> [Scope; 3] {
    [Scope::Run(run), Scope::Queue(QUEUE.to_owned()), Scope::Store]
}

pub async fn while_paused_nothing_starts_and_what_has_begun_goes_on(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    for at in 0..3 {
        let run = world.submit(&plan).await.id;
        let scope = scopes(run)[at].clone();
        let task = world.claim_one(worker).await;
        world.perform_operation(Operation::Pause(scope.clone())).await;
        world.advance(SECOND);
        world.tell(worker, change::defer(&task, SECOND, "x")).await;
        world.tell(worker, change::resume(&task)).await;
        let mut request = world.request_of(worker);
        request.changes.push(change::succeed(&task));
        request.claim = claim(9, 9);
        let reply = world.take(request).await;
        assert!(reply.claimed.is_empty(), "{scope:?}: the next does not start");
        assert!(!reply.more, "{scope:?}");
        assert_eq!(world.kinds(run).await, [Kind::Succeeded, Kind::Ready]);
        assert!(world.claim(worker, 9).await.is_empty(), "{scope:?}: nor later");

        world.advance(SECOND);
        let mut request = world.request_of(worker);
        request.operations.push(Operation::Unpause(scope));
        request.claim = claim(9, 9);
        let claimed = world.take(request).await.claimed;
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].order, world.now() - SECOND, "its place is that of before");
        world.tell(worker, change::succeed(&claimed[0])).await;
    }
}

pub async fn a_pause_stops_its_own_and_nobody_else(world: &mut World) {
    let plan = one().build();
    let worker = world.worker_of(&[QUEUE, "side"], &[&plan]).await;
    let paused = world.submit(&plan).await.id;
    world.perform_operation(Operation::Pause(Scope::Run(paused))).await;
    assert_eq!(world.view(paused).await.run.paused_at, Some(world.now()));
    let other = world.submit(&plan).await.id;
    assert_eq!(world.claim_one(worker).await.run, other);
    assert!(world.claim(worker, 9).await.is_empty());

    world.perform_operation(Operation::Pause(Scope::Queue(QUEUE.to_owned()))).await;
    world.submit(&plan).await;
    let new = NewRun { queue: "side".into(), ..world.new_run(&plan) };
    let side = world.submit_run(new).await.id;
    assert_eq!(world.claim_one(worker).await.run, side);
    assert!(world.claim(worker, 9).await.is_empty());
}

pub async fn what_is_submitted_to_a_paused_queue_or_store_waits(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    for scope in [Scope::Queue(QUEUE.to_owned()), Scope::Store] {
        let mut request = world.request_of(worker);
        request.operations.push(Operation::Pause(scope.clone()));
        request.submits.push(world.new_run(&plan));
        request.claim = claim(9, 9);
        let reply = world.take(request).await;
        assert!(reply.claimed.is_empty() && !reply.more, "{scope:?}");
        let mut request = world.request_of(worker);
        request.submits.push(world.new_run(&plan));
        request.claim = claim(9, 9);
        assert!(world.take(request).await.claimed.is_empty(), "{scope:?}");
        world.perform_operation(Operation::Unpause(scope)).await;
        assert_eq!(world.claim(worker, 9).await.len(), 2);
    }
}

pub async fn what_is_paused_in_a_request_is_not_taken_in_it(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    for at in 0..3 {
        let run = world.submit(&plan).await.id;
        let scope = scopes(run)[at].clone();
        let mut request = world.request_of(worker);
        request.operations.push(Operation::Pause(scope.clone()));
        request.claim = claim(9, 9);
        let reply = world.take(request).await;
        assert!(reply.claimed.is_empty() && !reply.more, "{scope:?}");
        let mut request = world.request_of(worker);
        request.operations.push(Operation::Unpause(scope.clone()));
        request.claim = claim(9, 9);
        assert_eq!(world.take(request).await.claimed.len(), 1, "{scope:?}");
    }
}

pub async fn pausing_twice_is_pausing_once(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    for scope in scopes(run) {
        let none = world.ask(Operation::Unpause(scope.clone())).await;
        assert_eq!(none.operations, [OperationOutcome::Already], "{scope:?}");
        world.perform_operation(Operation::Pause(scope.clone())).await;
        let since = world.now();
        world.advance(SECOND);
        let second = world.ask(Operation::Pause(scope.clone())).await;
        assert_eq!(second.operations, [OperationOutcome::Already], "{scope:?}");
        if scope == Scope::Run(run) {
            assert_eq!(world.view(run).await.run.paused_at, Some(since));
        }
        world.perform_operation(Operation::Unpause(scope.clone())).await;
        let second = world.ask(Operation::Unpause(scope.clone())).await;
        assert_eq!(second.operations, [OperationOutcome::Already], "{scope:?}");
    }
    assert_eq!(world.view(run).await.run.paused_at, None);
    assert_eq!(world.claim(worker, 1).await.len(), 1);
}

pub async fn only_a_run_that_is_there_and_open_can_be_paused(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let nobody = Scope::Run(RunId::new(world.now(), 77));
    for operation in [Operation::Pause(nobody.clone()), Operation::Unpause(nobody)] {
        assert_eq!(world.ask(operation).await.operations, [OperationOutcome::Unknown]);
    }
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    let reply = world.ask(Operation::Pause(Scope::Run(run))).await;
    assert_eq!(reply.operations, [OperationOutcome::Already]);
    assert_eq!(world.view(run).await.run.paused_at, None);
}

pub async fn several_pauses_must_all_end(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    for scope in scopes(run) {
        world.perform_operation(Operation::Pause(scope)).await;
    }
    for scope in scopes(run) {
        assert!(world.claim(worker, 9).await.is_empty());
        world.perform_operation(Operation::Unpause(scope)).await;
    }
    assert_eq!(world.claim(worker, 9).await.len(), 1);
}

pub async fn queue_time_stands_still_while_paused(world: &mut World) {
    let plan = one().rules(|rules| rules.queue_timeout = Some(SECOND * 10)).build();
    for at in 0..3 {
        let run = world.submit(&plan).await.id;
        let scope = scopes(run)[at].clone();
        world.advance(SECOND * 4);
        world.perform_operation(Operation::Pause(scope.clone())).await;
        for _ in 0..5 {
            world.advance(SECOND * 20);
            world.look().await;
            assert_eq!(world.kinds(run).await, [Kind::Ready], "{scope:?}");
        }
        world.perform_operation(Operation::Unpause(scope.clone())).await;
        world.advance(SECOND * 5);
        world.look().await;
        assert_eq!(world.kinds(run).await, [Kind::Ready], "{scope:?}: one second is left");
        world.advance(SECOND);
        world.look().await;
        let state = world.life(run, 0).await.state;
        assert_eq!(state, State::TimedOut(Reason::QueueTimeout), "{scope:?}");
    }
}

pub async fn of_pauses_that_overlap_each_stretch_counts_once(world: &mut World) {
    let plan = one().rules(|rules| rules.queue_timeout = Some(SECOND * 10)).build();
    let run = world.submit(&plan).await.id;
    let [own, queue, store] = scopes(run);
    let mut at = 0;
    // Paused from 2 to 6, from 8 to 20 and from 22 to 23: seventeen seconds in all.
    for (when, operation) in [
        (2, Operation::Pause(own.clone())),
        (3, Operation::Pause(store.clone())),
        (4, Operation::Unpause(store.clone())),
        (6, Operation::Unpause(own.clone())),
        (8, Operation::Pause(queue.clone())),
        (10, Operation::Pause(own.clone())),
        (12, Operation::Unpause(queue)),
        (15, Operation::Pause(store.clone())),
        (16, Operation::Unpause(own.clone())),
        (20, Operation::Unpause(store)),
        (22, Operation::Pause(own.clone())),
        (23, Operation::Unpause(own)),
    ] {
        world.advance(SECOND * (when - at));
        at = when;
        world.perform_operation(operation).await;
    }
    world.advance(SECOND * 3);
    world.look().await;
    assert_eq!(world.kinds(run).await, [Kind::Ready], "at 26 one second is left");
    world.advance(SECOND);
    world.look().await;
    assert_eq!(world.life(run, 0).await.state, State::TimedOut(Reason::QueueTimeout));
}

pub async fn a_pause_before_a_task_was_ready_does_not_count(world: &mut World) {
    let plan = one().rules(|rules| rules.queue_timeout = Some(SECOND * 10)).build();
    world.perform_operation(Operation::Pause(Scope::Store)).await;
    world.advance(SECOND * 100);
    let run = world.submit(&plan).await.id;
    world.advance(SECOND * 5);
    world.perform_operation(Operation::Unpause(Scope::Store)).await;
    world.advance(SECOND * 9);
    world.look().await;
    assert_eq!(world.kinds(run).await, [Kind::Ready]);
    world.advance(SECOND);
    world.look().await;
    assert_eq!(world.kinds(run).await, [Kind::TimedOut]);
}

pub async fn a_pause_of_another_queue_or_run_does_not_count(world: &mut World) {
    let plan = one().rules(|rules| rules.queue_timeout = Some(SECOND * 10)).build();
    let (run, other) = (world.submit(&plan).await.id, world.submit(&plan).await.id);
    world.perform_operation(Operation::Pause(Scope::Run(other))).await;
    world.perform_operation(Operation::Pause(Scope::Queue("side".to_owned()))).await;
    world.advance(SECOND * 10);
    world.look().await;
    assert_eq!(world.kinds(run).await, [Kind::TimedOut]);
    assert_eq!(world.kinds(other).await, [Kind::Ready]);
}

pub async fn a_deadline_does_not_stand_still(world: &mut World) {
    let plan = one().rules(|rules| rules.deadline = Some(SECOND * 60)).build();
    let worker = world.worker(&[&plan]).await;
    for at in 0..3 {
        let run = world.submit(&plan).await.id;
        let scope = scopes(run)[at].clone();
        let task = world.claim_one(worker).await;
        world.tell(worker, change::snooze(&task, SECOND)).await;
        world.perform_operation(Operation::Pause(scope.clone())).await;
        world.advance(SECOND * 60);
        world.look().await;
        assert_eq!(world.life(run, 0).await.state, State::TimedOut(Reason::Deadline), "{scope:?}");
        if at > 0 {
            world.perform_operation(Operation::Unpause(scope)).await;
        }
    }
}

pub async fn a_start_time_that_passes_in_a_pause_is_not_lost(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    for at in 0..3 {
        let start = world.now() + SECOND * 5;
        let new = NewRun { not_before: Some(start), ..world.new_run(&plan) };
        let run = world.submit_run(new).await.id;
        let scope = scopes(run)[at].clone();
        world.perform_operation(Operation::Pause(scope.clone())).await;
        world.advance(SECOND * 10);
        assert!(world.claim(worker, 9).await.is_empty());
        world.perform_operation(Operation::Unpause(scope)).await;
        assert_eq!(world.claim_one(worker).await.run, run);
    }
    let start = world.now() + SECOND * 5;
    let new = NewRun { not_before: Some(start), ..world.new_run(&plan) };
    let run = world.submit_run(new).await.id;
    world.perform_operation(Operation::Pause(Scope::Run(run))).await;
    let reply = world.perform_operation(Operation::Unpause(Scope::Run(run))).await;
    assert_eq!(reply.alarm, Some(start), "unpaused too early, it still waits");
    assert!(world.claim(worker, 9).await.is_empty());
}

pub async fn tasks_of_a_paused_run_are_counted_as_such(world: &mut World) {
    let plan = crate::plan("p").task("a", &[]).task("b", &[]).build();
    let run = world.submit(&plan).await.id;
    world.perform_operation(Operation::Pause(Scope::Run(run))).await;
    let counts = world.store().counts().await.expect("they are counted");
    assert_eq!((counts.ready, counts.paused), (0, 2));
    world.perform_operation(Operation::Unpause(Scope::Run(run))).await;
    let counts = world.store().counts().await.expect("they are counted");
    assert_eq!((counts.ready, counts.paused), (2, 0));
}

pub async fn a_paused_run_can_end(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.perform_operation(Operation::Pause(Scope::Run(run))).await;
    world.tell(worker, change::succeed(&task)).await;
    let end = Some((RunOutcome::Succeeded, world.now()));
    assert_eq!(world.view(run).await.run.ended, end);
}
