//! Limits that are given back for a wait, and taken again after it.

use super::SECOND;
use super::limits::{api, crowd, keyed, plan_of_api, standing, submit_many};
use crate::{World, ask, change, claim, one, plan};
use tidegate_core::limit::Limit;
use tidegate_core::plan::LimitUse;
use tidegate_core::store::{Change, Operation};
use tidegate_core::wait::{WaitOp, WaitOutcome};

pub async fn a_wait_may_give_limits_back(world: &mut World) {
    world.declare(Limit::new("api").at_once(1)).await;
    world.declare(Limit::new("kept").at_once(1)).await;
    let plan = one().limit("api").limit("kept").build();
    let light = plan_of_api();
    let worker = world.worker(&[&plan, &light]).await;
    let run = world.submit(&plan).await.id;
    world.submit(&light).await;
    let task = world.claim(worker, 9).await.remove(0);
    let op = ask::releasing(ask::signal("go", 0), &["api", "another"]);
    let mut request = world.request_of(worker);
    request.changes.push(Change { waits: vec![op], ..change::defer(&task, SECOND, "x") });
    request.claim = claim(9, 0);
    let next = world.take(request).await.claimed;
    assert_eq!(next.len(), 1, "it is there for others in the same request");
    assert_eq!((standing(world, "api").await, standing(world, "kept").await), ((1, 0), (1, 0)));
    // The wait is over, and what it gave back is another's.
    world.send(run, "go", "x").await;
    assert_eq!(world.asks(worker, &task, WaitOp::Retake(0)).await, None);
    assert_eq!(standing(world, "api").await, (1, 1));
    let reply = world.tell(worker, change::succeed(&next[0])).await;
    assert_eq!(reply.ask_again, [(task.key, task.life.fence)]);
    assert_eq!(standing(world, "api").await, (1, 0), "it has it already");
    assert_eq!(world.asks(worker, &task, WaitOp::Retake(0)).await, Some(WaitOutcome::Elapsed));
    world.tell(worker, change::resume(&task)).await;
    world.tell(worker, change::succeed(&task)).await;
    assert_eq!((standing(world, "api").await, standing(world, "kept").await), ((0, 0), (0, 0)));
}

pub async fn a_wait_that_has_ended_at_once_gives_nothing_back(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 1).await;
    let task = world.claim_one(worker).await;
    world.send(task.run, "go", "x").await;
    let op = ask::releasing(ask::signal("go", 0), &["api"]);
    assert_eq!(world.asks(worker, &task, op).await, Some(ask::value("x")));
    assert_eq!(standing(world, "api").await, (1, 0));
    world.tell(worker, change::asks(&task, [WaitOp::Release(vec!["api".into()])])).await;
    assert_eq!(standing(world, "api").await, (0, 0));
    assert_eq!(world.asks(worker, &task, WaitOp::Retake(0)).await, Some(WaitOutcome::Elapsed));
    assert_eq!(standing(world, "api").await, (1, 0));
}

/// Two that had given a limit back go on in the order in which they wanted to, and before all that
/// are ready, whoever waits for longer.
pub async fn what_was_begun_takes_its_limits_again_before_what_is_ready(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 9).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let task = world.claim_one(worker).await;
        let op = ask::releasing(ask::signal("never", 0), &["api"]);
        let defers = Change { waits: vec![op], ..change::defer(&task, SECOND, "x") };
        world.tell(worker, defers).await;
        waiting.push(task);
    }
    let holder = world.claim_one(worker).await;
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!(standing(world, "api").await, (1, 6));
    // Who asks again keeps its place.
    for task in waiting.iter().rev().chain([&waiting[1]]) {
        world.advance(SECOND);
        assert_eq!(world.asks(worker, task, WaitOp::Retake(0)).await, None);
    }
    assert_eq!(standing(world, "api").await, (1, 8));
    let mut ended = holder;
    for task in waiting.iter().rev() {
        let mut request = world.request_of(worker);
        request.changes.push(change::succeed(&ended));
        request.claim = claim(9, 0);
        let reply = world.take(request).await;
        assert_eq!(reply.ask_again, [(task.key, task.life.fence)]);
        assert!(reply.claimed.is_empty());
        ended = task.clone();
    }
    world.tell(worker, change::succeed(&ended)).await;
    assert_eq!(world.claim(worker, 9).await.len(), 1);
}

pub async fn who_waits_for_its_limits_is_told_also_at_another_worker(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 2).await;
    let another = world.worker(&[&api().build()]).await;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::asks(&task, [WaitOp::Release(vec!["api".into()])])).await;
    let holder = world.claim_one(another).await;
    assert_eq!(world.asks(worker, &task, WaitOp::Retake(3)).await, None);
    world.tell(another, change::succeed(&holder)).await;
    let request = world.request_of(worker);
    assert_eq!(world.take(request).await.ask_again, [(task.key, task.life.fence)]);
    assert_eq!(world.asks(worker, &task, WaitOp::Retake(3)).await, Some(WaitOutcome::Elapsed));
}

/// What a task says of itself while it waits for its limits does not make it forgotten.
pub async fn who_waits_for_its_limits_keeps_its_place_whatever_it_says(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 2).await;
    let task = world.claim_one(worker).await;
    let op = ask::releasing(ask::signal("never", 0), &["api"]);
    world.tell(worker, change::asks(&task, [op])).await;
    let holder = world.claim_one(worker).await;
    let defers = change::defer(&task, SECOND, "x");
    world.tell(worker, Change { waits: vec![WaitOp::Retake(0)], ..defers }).await;
    assert_eq!(standing(world, "api").await, (1, 1));
    world.tell(worker, change::resume(&task)).await;
    world.tell(worker, change::step(&task)).await;
    assert_eq!(standing(world, "api").await, (1, 1));
    let reply = world.tell(worker, change::succeed(&holder)).await;
    assert_eq!(reply.ask_again, [(task.key, task.life.fence)]);
}

/// One asks for its limits and another gives them back, in one request, in either order.
pub async fn limits_given_back_in_the_request_that_asks_for_them_are_taken(world: &mut World) {
    for asks_first in [true, false] {
        let name = format!("api {asks_first}");
        let plan = one().limit(name.as_str()).build();
        world.declare(Limit::new(name.as_str()).at_once(1)).await;
        let worker = world.worker(&[&plan]).await;
        submit_many(world, &plan, 2).await;
        let task = world.claim_one(worker).await;
        let release = WaitOp::Release(vec![name.as_str().into()]);
        world.tell(worker, change::asks(&task, [release])).await;
        let holder = world.claim_one(worker).await;
        let mut request = world.request_of(worker);
        request.changes = vec![change::asks(&task, [WaitOp::Retake(0)]), change::succeed(&holder)];
        if !asks_first {
            request.changes.reverse();
        }
        let reply = world.take(request).await;
        let is_told = !reply.ask_again.is_empty();
        assert_eq!(is_told, asks_first, "{:?}", reply.answers);
        assert_eq!(standing(world, &name).await, (1, 0));
        world.tell(worker, change::succeed(&task)).await;
    }
}

pub async fn a_limit_that_grows_in_the_request_that_asks_for_it_is_taken(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 2).await;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::asks(&task, [WaitOp::Release(vec!["api".into()])])).await;
    world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::asks(&task, [WaitOp::Retake(0)]));
    request.operations.push(Operation::Resize(Limit::new("api").at_once(2)));
    assert_eq!(world.take(request).await.ask_again, [(task.key, task.life.fence)]);
    assert_eq!(standing(world, "api").await, (2, 0));
}

/// Who goes on needs two limits: it waits for both together and is not in the way of others.
pub async fn limits_are_retaken_together_or_not_at_all(world: &mut World) {
    for name in ["a", "b"] {
        world.declare(Limit::new(name).at_once(1)).await;
    }
    let both = one().limit("a").limit("b").build();
    let only = ["a", "b"].map(|name| plan(name).task("t", &[]).limit(name).build());
    let worker = world.worker(&[&both, &only[0], &only[1]]).await;
    world.submit(&both).await;
    let task = world.claim_one(worker).await;
    let release = WaitOp::Release(vec!["a".into(), "b".into()]);
    world.tell(worker, change::asks(&task, [release])).await;
    world.submit(&only[0]).await;
    let holds_a = world.claim_one(worker).await;
    world.submit(&only[1]).await;
    let holds_b = world.claim_one(worker).await;
    assert_eq!(world.asks(worker, &task, WaitOp::Retake(0)).await, None);
    world.submit(&only[0]).await;
    assert!(world.claim(worker, 9).await.is_empty());
    // The one is free, the other is not: the next of the one goes.
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&holds_a));
    request.claim = claim(9, 0);
    let reply = world.take(request).await;
    assert_eq!((reply.claimed.len(), reply.ask_again.len()), (1, 0));
    let holds_a = &reply.claimed[0];
    let reply = world.tell(worker, change::succeed(&holds_b)).await;
    assert!(reply.ask_again.is_empty());
    let reply = world.tell(worker, change::succeed(holds_a)).await;
    assert_eq!(reply.ask_again, [(task.key, task.life.fence)]);
    assert_eq!((standing(world, "a").await, standing(world, "b").await), ((1, 0), (1, 0)));
}

/// Many that go on find one limit free and stand behind another: whoever is ready behind them goes.
pub async fn who_goes_on_behind_another_limit_is_not_in_the_way(world: &mut World) {
    for name in ["all", "user"] {
        world.declare(Limit::new(name).at_once(if name == "all" { 2 } else { 1 })).await;
    }
    let user = || LimitUse::of("user").by("id");
    let both = one().limit("all").limit(user()).build();
    let all = plan("all").task("t", &[]).limit(("all", 2)).build();
    let ann = plan("ann").task("t", &[]).limit(user()).build();
    let worker = world.worker(&[&both, &all, &ann]).await;
    let release = || WaitOp::Release(vec!["all".into(), "user".into()]);
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let new = world.new_run(&both);
        world.submit_run(keyed(new, "ann")).await;
        let task = world.claim_one(worker).await;
        world.tell(worker, change::asks(&task, [release()])).await;
        waiting.push(task);
    }
    world.submit(&all).await;
    let holds_all = world.claim_one(worker).await;
    let new = world.new_run(&ann);
    world.submit_run(keyed(new, "ann")).await;
    world.claim_one(worker).await;
    for task in &waiting {
        assert_eq!(world.asks(worker, task, WaitOp::Retake(0)).await, None);
    }
    let new = world.new_run(&both);
    let ready = world.submit_run(keyed(new, "bob")).await.id;
    assert!(world.claim(worker, 9).await.is_empty());
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&holds_all));
    request.claim = claim(9, 0);
    let reply = world.take(request).await;
    assert!(reply.ask_again.is_empty());
    assert_eq!(reply.claimed.iter().map(|task| task.run).collect::<Vec<_>>(), [ready]);
}

/// A run that is submitted by a task and waited for gives limits back as any wait does.
pub async fn a_run_of_items_is_waited_for_without_the_limits_that_are_given_back(
    world: &mut World,
) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 2).await;
    let task = world.claim_one(worker).await;
    let child = plan("child").task("c", &[]).limit("api").build();
    let mut new = world.child_of(&task, &child, 0);
    new.parent.as_mut().expect("it is a child").releasing = vec!["api".into()];
    let mut request = world.request_of(worker);
    request.submits.push(new);
    request.claim = claim(9, 0);
    let reply = world.take(request).await;
    assert!(reply.submits[0].is_ok());
    assert_eq!(reply.claimed.len(), 1, "it is there for others");
}

pub async fn who_goes_while_it_waits_for_its_limits_is_not_waited_for(world: &mut World) {
    for way in ["cancel", "death", "hand back"] {
        let name = way;
        world.declare(Limit::new(name).at_once(1)).await;
        let plan = one().limit(name).build();
        let (worker, other) = (world.worker(&[&plan]).await, world.worker(&[&plan]).await);
        submit_many(world, &plan, 3).await;
        let task = world.claim_one(worker).await;
        let release = WaitOp::Release(vec![name.into()]);
        world.tell(worker, change::asks(&task, [release])).await;
        let holder = world.claim_one(other).await;
        assert_eq!(world.asks(worker, &task, WaitOp::Retake(0)).await, None);
        world.advance(SECOND);
        match way {
            "cancel" => drop(world.perform_operation(Operation::Cancel(task.run)).await),
            "hand back" => drop(world.tell(worker, change::hand_back(&task)).await),
            _ => {
                world.kill(worker).await;
                world.recover(worker).await;
            }
        }
        let reply = world.tell(other, change::succeed(&holder)).await;
        assert!(reply.ask_again.is_empty());
        let next = world.claim_one(other).await;
        assert_ne!(next.key, task.key, "who is ready for longer goes first");
        world.tell(other, change::succeed(&next)).await;
        for task in world.claim(other, 9).await {
            world.tell(other, change::succeed(&task)).await;
        }
        assert_eq!(standing(world, name).await, (0, 0), "{way}");
    }
}
