//! Who gets what, in which order.

use super::SECOND;
use crate::world::keys;
use crate::{QUEUE, World, change, claim, one, plan};
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::lifecycle::{Fence, Kind, WorkerId};
use tidegate_core::plan::Plan;
use tidegate_core::store::{Claim, NewRun, Operation};

/// Takes all, one by one, and says whose they are.
async fn order(world: &mut World, worker: WorkerId) -> Vec<RunId> {
    let mut order = Vec::new();
    while let [task] = &world.claim(worker, 1).await[..] {
        order.push(task.run);
    }
    order
}

async fn submit_with_priority(world: &mut World, plan: &Arc<Plan>, priority: i32) -> RunId {
    let new = NewRun { priority, ..world.new_run(plan) };
    world.submit_run(new).await.id
}

pub async fn what_was_ready_first_is_taken_first(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut submitted = Vec::new();
    for _ in 0..5 {
        submitted.push(world.submit(&plan).await.id);
        world.advance(SECOND);
    }
    assert_eq!(order(world, worker).await, submitted);
}

pub async fn of_those_ready_at_the_same_time_the_first_come_goes_first(world: &mut World) {
    let (plan, other) = (one().build(), one().called("other").build());
    let worker = world.worker(&[&plan, &other]).await;
    let mut submitted = Vec::new();
    for plan in [&other, &plan, &other, &plan] {
        submitted.push(world.submit(plan).await.id);
    }
    let taken: Vec<_> = world.claim(worker, 9).await.iter().map(|task| task.run).collect();
    assert_eq!(taken, submitted);
}

pub async fn the_priority_of_a_run_is_a_head_start_in_seconds(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let first = submit_with_priority(world, &plan, 0).await;
    world.advance(SECOND * 10);
    let behind = submit_with_priority(world, &plan, 9).await;
    let ahead = submit_with_priority(world, &plan, 11).await;
    let last = submit_with_priority(world, &plan, -5).await;
    world.advance(SECOND * 4);
    let next_to_last = submit_with_priority(world, &plan, 0).await;
    assert_eq!(order(world, worker).await, [ahead, first, behind, next_to_last, last]);
}

pub async fn the_priority_of_a_task_adds_to_that_of_its_run(world: &mut World) {
    let (plain, eager) = (one().build(), one().called("eager").priority(6).build());
    let worker = world.worker(&[&plain, &eager]).await;
    let first = world.submit(&plain).await.id;
    world.advance(SECOND * 10);
    let behind = submit_with_priority(world, &eager, 3).await;
    let ahead = submit_with_priority(world, &eager, 5).await;
    let taken = world.claim(worker, 3).await;
    assert_eq!(taken.iter().map(|task| task.run).collect::<Vec<_>>(), [ahead, first, behind]);
    assert_eq!(taken[0].order, world.now() - SECOND * 11);
}

pub async fn what_waits_longer_is_taken_before_what_is_submitted_in_the_same_request(
    world: &mut World,
) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let waiting = world.submit(&plan).await.id;
    world.advance(SECOND * 5);
    let mut request = world.request_of(worker);
    request.submits.push(world.new_run(&plan));
    request.submits.push(NewRun { priority: 6, ..world.new_run(&plan) });
    let (new, eager) = (request.submits[0].id, request.submits[1].id);
    request.claim = claim(2, 0);
    let reply = world.take(request).await;
    let taken: Vec<_> = reply.claimed.iter().map(|task| task.run).collect();
    assert_eq!((taken, reply.more), (vec![eager, waiting], true));
    assert_eq!(world.kinds(new).await, [Kind::Ready]);
}

pub async fn what_is_too_heavy_for_a_worker_hides_nobody(world: &mut World) {
    let (heavy, light) = (one().called("heavy").weight(9).build(), one().weight(8).build());
    let worker = world.worker(&[&heavy, &light]).await;
    for _ in 0..9 {
        world.submit(&heavy).await;
    }
    world.advance(SECOND);
    let run = world.submit(&light).await.id;
    let reply = world.claim_with(worker, Claim { heaviest: 8, ..claim(8, 1) }).await;
    assert_eq!(reply.claimed.iter().map(|task| task.run).collect::<Vec<_>>(), [run]);
    assert!(!reply.more, "what it can never run is not more for it");

    let mut request = world.request_of(worker);
    request.submits.push(world.new_run(&heavy));
    request.claim = Claim { heaviest: 8, ..claim(99, 1) };
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty() && !reply.more);
}

pub async fn what_a_worker_does_not_know_hides_nobody(world: &mut World) {
    let known = plan("known").task("a", &[]).task("b", &[]).build();
    let unknown = plan("unknown").task("a", &[]).task("b", &[]).build();
    let knows = vec![("known".to_owned(), "b".to_owned())];
    let worker = world.worker_that_knows(&[QUEUE], knows).await;
    for _ in 0..9 {
        world.submit(&unknown).await;
    }
    world.advance(SECOND);
    let run = world.submit(&known).await;
    let reply = world.claim_with(worker, claim(4, 4)).await;
    let b = known.graph().find("b").expect("it is in the plan");
    assert_eq!(keys(&reply.claimed), [run.key.task(b)]);
    assert!(!reply.more);

    let mut request = world.request_of(worker);
    request.submits.push(world.new_run(&unknown));
    request.claim = claim(4, 4);
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty() && !reply.more);
}

pub async fn a_worker_that_can_do_whatever_there_is_gets_all_of_its_queues(world: &mut World) {
    let (first, other) =
        (plan("first").task("a", &[]).build(), plan("other").task("b", &[]).build());
    world.submit(&first).await;
    let worker = world.worker_of_all(&[QUEUE]).await;
    let narrow =
        world.worker_that_knows(&[QUEUE], vec![("first".to_owned(), "a".to_owned())]).await;
    assert_eq!(world.store().unserved().await.expect("it can be read"), []);
    let claimed = world.claim_with(worker, claim(4, 4)).await.claimed;
    assert_eq!(claimed.len(), 1, "it was there before the worker");
    // A lane that nobody has seen before.
    world.submit(&other).await;
    assert!(world.claim_with(narrow, claim(4, 4)).await.claimed.is_empty());
    let claimed = world.claim_with(worker, claim(4, 4)).await.claimed;
    assert_eq!(claimed.iter().map(|task| task.plan.workflow()).collect::<Vec<_>>(), ["other"]);
    let new = NewRun { queue: "side".into(), ..world.new_run(&other) };
    world.submit_run(new).await;
    assert!(world.claim_with(worker, claim(4, 4)).await.claimed.is_empty(), "it serves one queue");
}

pub async fn a_queue_that_a_worker_does_not_serve_hides_nobody(world: &mut World) {
    let plan = one().build();
    let worker = world.worker_of(&["b", "c"], &[&plan]).await;
    let mut ids = Vec::new();
    for queue in ["a", "a", "c", "a", "b", "c"] {
        let new = NewRun { queue: queue.into(), ..world.new_run(&plan) };
        ids.push(world.submit_run(new).await.id);
        world.advance(SECOND);
    }
    assert_eq!(order(world, worker).await, [ids[2], ids[4], ids[5]], "all its queues in one order");

    let mut request = world.request_of(worker);
    request.submits.push(NewRun { queue: "a".into(), ..world.new_run(&plan) });
    request.claim = claim(4, 4);
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty() && !reply.more);
}

pub async fn a_worker_begins_what_fits_into_its_units_by_weight(world: &mut World) {
    let plans = [3, 2, 1, 1].map(|weight| one().called(&weight.to_string()).weight(weight).build());
    let worker = world.worker(&plans.each_ref()).await;
    for plan in &plans {
        world.submit(plan).await;
        world.advance(SECOND);
    }
    let reply = world.claim_with(worker, claim(4, 0)).await;
    let weights: Vec<_> =
        reply.claimed.iter().map(|task| task.plan.task(task.index).weight).collect();
    assert_eq!((weights, reply.more), (vec![3, 1], true), "a lighter one fills what is left");

    let reply = world.claim_with(worker, claim(1, 1)).await;
    let kinds: Vec<_> = reply.claimed.iter().map(|task| task.life.state.kind()).collect();
    assert_eq!(kinds, [Kind::Claimed, Kind::Active], "what does not fit is taken ahead");
}

pub async fn who_asks_for_nothing_gets_nothing(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let reply = world.claim_with(worker, Claim::default()).await;
    assert!(reply.claimed.is_empty());
    let reply = world.claim_with(worker, claim(0, 0)).await;
    assert!(reply.claimed.is_empty() && reply.more);
    let mut request = world.request();
    request.claim = claim(9, 9);
    assert!(world.take(request).await.claimed.is_empty(), "nobody gets nothing");
}

pub async fn a_worker_that_is_not_known_gets_nothing(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    world.store().dismiss(worker).await.expect("it owns nothing");
    assert!(world.claim(worker, 9).await.is_empty());
    let mut request = world.request_of(worker);
    request.submits.push(world.new_run(&plan));
    request.claim = claim(9, 9);
    assert!(world.take(request).await.claimed.is_empty());
}

pub async fn two_workers_never_get_the_same_task(world: &mut World) {
    let plan = one().build();
    let workers = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    for _ in 0..6 {
        world.submit(&plan).await;
    }
    let mut taken = Vec::new();
    for worker in [workers[0], workers[1], workers[0]] {
        taken.extend(keys(&world.claim(worker, 2).await));
    }
    taken.dedup();
    assert_eq!(taken.len(), 6);
    assert!(world.claim(workers[1], 2).await.is_empty());
}

pub async fn a_fence_grows_by_one_with_every_claim(world: &mut World) {
    let plan = one().build();
    let workers = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    world.submit(&plan).await;
    for (fence, worker) in (1..).zip([workers[0], workers[1], workers[1], workers[0]]) {
        let task = world.claim_one(worker).await;
        assert_eq!((task.life.fence, task.life.entries), (Fence(fence), fence as u32));
        world.tell(worker, change::hand_back(&task)).await;
    }
}

pub async fn what_was_taken_ahead_begins_when_its_worker_says_so(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_ahead(worker).await;
    assert_eq!((task.life.entries, task.life.started), (0, None));
    world.advance(SECOND);
    world.tell(worker, change::begin(&task)).await;
    let life = world.life(run, 0).await;
    assert_eq!((super::begun_at(&life), life.entries), (world.now(), 1));
    assert_eq!((life.started, life.fence), (Some(world.now()), Fence(1)));
}

/// Those that a request has changed are still found as they were before it; they must not use up the
/// places of others.
pub async fn what_a_request_takes_away_hides_nobody(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut cancelled = Vec::new();
    for _ in 0..9 {
        cancelled.push(world.submit(&plan).await.id);
    }
    world.advance(SECOND);
    let left = world.submit(&plan).await.id;
    let mut request = world.request_of(worker);
    request.operations = cancelled.into_iter().map(Operation::Cancel).collect();
    request.claim = claim(1, 0);
    let taken: Vec<_> = world.take(request).await.claimed.iter().map(|task| task.run).collect();
    assert_eq!(taken, [left]);
}

/// The clocks of several machines are never the same, and one clock may be set back: what one request
/// has opened, a request of an earlier time must not choke on.
pub async fn a_clock_that_goes_back_stops_nothing(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let runs = [world.submit(&plan).await.id, world.submit(&plan).await.id];
    let mut request = world.request_of(worker);
    request.clock = (crate::time_of(&request) - SECOND * 10).into();
    request.submits.push(world.new_run(&plan));
    request.claim = claim(9, 9);
    world.take(request).await;
    world.advance(SECOND);
    let rest = world.claim(worker, 9).await;
    assert!(rest.len() <= 2, "what was submitted in that request was taken in it");
    for run in runs {
        assert_eq!(world.kinds(run).await, [Kind::Active]);
    }
}
