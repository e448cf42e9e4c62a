//! Limits: named bounds that all workers share.

use super::SECOND;
use crate::world::keys;
use crate::{QUEUE, Sketch, World, ask, change, claim, one, plan};
use std::sync::Arc;
use tidegate_core::Backoff;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Kind, WorkerId};
use tidegate_core::limit::Limit;
use tidegate_core::plan::{LimitUse, Plan};
use tidegate_core::store::{NewRun, Operation, OperationOutcome, Refusal, Scope, Submitted};
use tidegate_core::wait::{WaitOp, WaitOutcome};

/// One task that takes one unit of the limit `api`.
pub(super) fn api() -> Sketch {
    one().limit("api")
}

/// What is in use of a limit and how many tasks wait for it, where it has one key.
pub(super) async fn standing(world: &World, name: &str) -> (u32, u64) {
    let limits = world.limits().await;
    let mut own = limits.iter().filter(|limit| limit.0 == name);
    let is = own.next().expect("the limit is there");
    assert!(own.next().is_none(), "it has one key: {limits:?}");
    (is.2, is.3)
}

/// The limit `api`, a worker, and so many runs of this plan.
pub(super) async fn crowd(
    world: &mut World,
    limit: Limit,
    sketch: Sketch,
    count: usize,
) -> WorkerId {
    world.declare(limit).await;
    let plan = sketch.build();
    submit_many(world, &plan, count).await;
    world.worker(&[&plan]).await
}

pub(super) async fn submit_many(
    world: &mut World,
    plan: &Arc<Plan>,
    count: usize,
) -> Vec<Submitted> {
    let mut request = world.request();
    request.submits = (0..count).map(|_| world.new_run(plan)).collect();
    world.take(request).await.submits.into_iter().map(|run| run.expect("it is accepted")).collect()
}

/// A run of one task whose limit has this key.
pub(super) fn keyed(new: NewRun, key: &str) -> NewRun {
    NewRun { keys: vec![(TaskIndex::from_u32(0), vec![key.into()])], ..new }
}

pub(super) fn refused(answer: Option<WaitOutcome>) -> String {
    match answer {
        Some(WaitOutcome::Refused(why)) => why,
        other => panic!("it is not refused: {other:?}"),
    }
}

pub(super) fn plan_of_api() -> Arc<Plan> {
    plan("light").task("l", &[]).limit("api").build()
}

// -------------------------------------------------------------------------------------- how many --

pub async fn no_more_than_a_limit_allows_run_at_once(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(2), api(), 5).await;
    let reply = world.claim_with(worker, claim(9, 9)).await;
    assert_eq!(reply.claimed.len(), 2);
    assert!(!reply.more, "what stands behind a limit is no reason to ask again");
    assert_eq!(standing(world, "api").await, (2, 3));
    let counts = world.store().counts().await.expect("they are counted");
    assert_eq!((counts.ready, counts.limited, counts.running), (0, 3, 2));
    assert!(world.claim(worker, 9).await.is_empty());
    // One ends and the next is taken, in one request.
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&reply.claimed[0]));
    request.claim = claim(9, 0);
    assert_eq!(world.take(request).await.claimed.len(), 1);
    assert_eq!(standing(world, "api").await, (2, 2));
}

pub async fn a_limit_holds_across_workers(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(3), api(), 9).await;
    let plan = api().build();
    let others = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let first = world.claim(worker, 2).await;
    assert_eq!(first.len(), 2);
    assert_eq!(world.claim(others[0], 2).await.len(), 1);
    assert!(world.claim(others[1], 2).await.is_empty());
    world.tell(worker, change::succeed(&first[0])).await;
    assert_eq!(world.claim(others[1], 2).await.len(), 1);
    assert!(world.claim(others[0], 2).await.is_empty());
}

pub async fn a_task_takes_as_many_units_as_it_says(world: &mut World) {
    world.declare(Limit::new("api").at_once(5)).await;
    let heavy = plan("heavy").task("h", &[]).limit(("api", 3)).build();
    let light = plan("light").task("l", &[]).limit("api").build();
    let worker = world.worker(&[&heavy, &light]).await;
    submit_many(world, &heavy, 2).await;
    world.advance(SECOND);
    submit_many(world, &light, 3).await;
    let taken = world.claim(worker, 9).await;
    let names: Vec<_> = taken.iter().map(|task| task.plan.workflow().to_owned()).collect();
    assert_eq!(names, ["heavy", "light", "light"], "what does not fit is no one else's hindrance");
    assert_eq!(standing(world, "api").await, (5, 2));
    world.tell(worker, change::succeed(&taken[1])).await;
    assert_eq!(world.claim(worker, 9).await.len(), 1, "there is room for a light one alone");
    world.tell(worker, change::succeed(&taken[0])).await;
    let next = world.claim(worker, 9).await;
    assert_eq!(next[0].plan.workflow(), "heavy");
    assert_eq!(standing(world, "api").await, (5, 0));
}

pub async fn each_key_of_a_limit_is_counted_by_itself(world: &mut World) {
    world.declare(Limit::new("user").at_once(1)).await;
    let plan = one().limit(LimitUse::of("user").by("user.id")).build();
    let worker = world.worker(&[&plan]).await;
    for key in ["ann", "ann", "bob\nand \\others", "", "ann", "bob\nand \\others"] {
        let new = world.new_run(&plan);
        world.submit_run(keyed(new, key)).await;
    }
    let taken = world.claim(worker, 9).await;
    assert_eq!(taken.len(), 3);
    let expected = [("", 1, 0), ("ann", 1, 2), ("bob\nand \\others", 1, 1)];
    let expected = expected.map(|(key, used, waits)| ("user".into(), key.into(), used, waits));
    assert_eq!(world.limits().await, expected);
    world.tell(worker, change::succeed(&taken[0])).await;
    let next = world.claim(worker, 9).await;
    assert_eq!(next.len(), 1, "only one of the same key follows");
    assert_eq!(world.limits().await[1], ("user".into(), "ann".into(), 1, 1));
}

pub async fn two_keys_of_one_limit_that_are_the_same_add_up(world: &mut World) {
    world.declare(Limit::new("user").at_once(2)).await;
    let uses = |path: &str| LimitUse::of("user").by(path);
    let plan = one().limit(uses("from")).limit(uses("to")).build();
    let worker = world.worker(&[&plan]).await;
    for (from, to) in [("ann", "ann"), ("ann", "bob")] {
        let keys = vec![(TaskIndex::from_u32(0), vec![from.into(), to.into()])];
        let new = NewRun { keys, ..world.new_run(&plan) };
        world.submit_run(new).await;
    }
    let taken = world.claim(worker, 9).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(standing(world, "user").await, (2, 1));
    world.tell(worker, change::succeed(&taken[0])).await;
    assert_eq!(world.claim(worker, 9).await.len(), 1);
    let held: Vec<_> =
        world.limits().await.into_iter().map(|(_, key, used, _)| (key, used)).collect();
    assert_eq!(held, [("ann".to_owned(), 1), ("bob".to_owned(), 1)]);
}

pub async fn a_task_takes_all_its_limits_or_none(world: &mut World) {
    world.declare(Limit::new("a").at_once(1)).await;
    world.declare(Limit::new("b").at_once(1)).await;
    let (only_a, only_b) =
        (plan("a").task("t", &[]).limit("a"), plan("b").task("t", &[]).limit("b"));
    let both = plan("both").task("t", &[]).limit("a").limit("b").build();
    let (only_a, only_b) = (only_a.build(), only_b.build());
    let worker = world.worker(&[&only_a, &only_b, &both]).await;
    world.submit(&only_b).await;
    let holds_b = world.claim_one(worker).await;
    world.submit(&both).await;
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!(standing(world, "a").await, (0, 0), "who lacks one holds none");
    assert_eq!(standing(world, "b").await, (1, 1));
    world.submit(&only_a).await;
    let holds_a = world.claim_one(worker).await;
    // It is let through the one and stands behind the other.
    world.tell(worker, change::succeed(&holds_b)).await;
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!((standing(world, "a").await, standing(world, "b").await), ((1, 1), (0, 0)));
    world.tell(worker, change::succeed(&holds_a)).await;
    assert_eq!(world.claim_one(worker).await.plan.workflow(), "both");
    assert_eq!((standing(world, "a").await, standing(world, "b").await), ((1, 0), (1, 0)));
}

/// Who is let through one limit and finds another full is not in the way of the next.
pub async fn who_stands_behind_another_limit_lets_the_next_through(world: &mut World) {
    world.declare(Limit::new("all").at_once(1)).await;
    world.declare(Limit::new("user").at_once(1)).await;
    let plan = one().limit("all").limit(LimitUse::of("user").by("id")).build();
    let user = plan_of_user();
    let worker = world.worker(&[&plan, &user]).await;
    let new = world.new_run(&user);
    world.submit_run(keyed(new, "ann")).await;
    let blocks_ann = world.claim_one(worker).await;
    let new = world.new_run(&plan);
    world.submit_run(keyed(new, "zoe")).await;
    let first = world.claim_one(worker).await;
    for key in ["ann", "ann", "ann", "ann", "bob"] {
        let new = world.new_run(&plan);
        world.submit_run(keyed(new, key)).await;
    }
    assert!(world.claim(worker, 9).await.is_empty(), "all stand behind the one for all");
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&first));
    request.claim = claim(9, 0);
    let next = world.take(request).await.claimed;
    assert_eq!(next.len(), 1, "it is not kept for who waits for another");
    world.tell(worker, change::succeed(&blocks_ann)).await;
    world.tell(worker, change::succeed(&next[0])).await;
    assert_eq!(world.claim(worker, 9).await.len(), 1);
}

fn plan_of_user() -> Arc<Plan> {
    plan("user").task("u", &[]).limit(LimitUse::of("user").by("id")).build()
}

pub async fn a_task_with_limits_is_taken_only_to_begin_at_once(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(9), api().weight(3), 2).await;
    let reply = world.claim_with(worker, claim(0, 9)).await;
    assert!(reply.claimed.is_empty() && reply.more);
    let reply = world.claim_with(worker, claim(2, 9)).await;
    assert!(reply.claimed.is_empty() && reply.more);
    assert_eq!(standing(world, "api").await, (0, 0));
    let taken = world.claim_with(worker, claim(4, 9)).await.claimed;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].life.state.kind(), Kind::Active);
}

// --------------------------------------------------------------------------------- how long held --

pub async fn limits_are_kept_while_a_task_waits(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 2).await;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::defer(&task, SECOND, "x")).await;
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!(standing(world, "api").await, (1, 1));
    world.tell(worker, change::resume(&task)).await;
    assert_eq!(standing(world, "api").await, (1, 1));
    world.tell(worker, change::park(&task, None)).await;
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!(standing(world, "api").await, (1, 1));
}

pub async fn who_is_woken_takes_its_limits_anew(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 2).await;
    let task = world.claim_one(worker).await;
    world.advance(SECOND);
    world.tell(worker, change::park(&task, Some(world.now() + SECOND))).await;
    world.advance(SECOND);
    let next = world.claim(worker, 9).await;
    assert_eq!(next.len(), 1, "one of the two");
    assert_ne!(next[0].key, task.key, "who is ready for longer goes first");
    assert_eq!(standing(world, "api").await, (1, 1));
    world.tell(worker, change::succeed(&next[0])).await;
    assert_eq!(world.claim_one(worker).await.key, task.key);
}

pub async fn every_way_out_gives_limits_back(world: &mut World) {
    let sketch = api().rules(|rules| {
        (rules.retries, rules.backoff) = (1, Backoff::fixed(SECOND * 600));
        rules.deadline = Some(SECOND * 60);
    });
    let ways =
        ["succeeds", "fails", "fails for good", "snoozes", "handed back", "dies", "cancelled"];
    let more = ["deadline", "dies deferred", "cancelled while parked", "stopped"];
    world.declare(Limit::new("api").at_once(1)).await;
    let plan = sketch.build();
    for way in ways.into_iter().chain(more) {
        let worker = world.worker(&[&plan]).await;
        let run = world.submit(&plan).await.id;
        let task = world.claim_one(worker).await;
        assert_eq!(task.run, run);
        let next = world.submit(&plan).await.id;
        assert!(world.claim(worker, 1).await.is_empty());
        match way {
            "succeeds" => drop(world.tell(worker, change::succeed(&task)).await),
            "fails" => drop(world.tell(worker, change::fail(&task)).await),
            "fails for good" => {
                let failure = tidegate_core::lifecycle::Failure::Error;
                world.tell(worker, change::fail_by(&task, failure, true)).await;
            }
            "snoozes" => drop(world.tell(worker, change::snooze(&task, SECOND * 600)).await),
            "handed back" => {
                world.tell(worker, change::hand_back(&task)).await;
                world.perform_operation(Operation::Cancel(run)).await;
            }
            "dies" | "dies deferred" => {
                if way == "dies deferred" {
                    world.tell(worker, change::defer(&task, SECOND, "x")).await;
                }
                world.kill(worker).await;
                world.recover(worker).await;
                world.perform_operation(Operation::Cancel(run)).await;
            }
            "cancelled while parked" => {
                world.tell(worker, change::park(&task, None)).await;
                world.perform_operation(Operation::Cancel(run)).await;
            }
            "deadline" => drop(world.advance(SECOND * 60)),
            _ => drop(world.perform_operation(Operation::Cancel(run)).await),
        }
        let another = world.worker(&[&plan]).await;
        let taken = world.claim(another, 1).await;
        assert_eq!(taken.iter().map(|task| task.run).collect::<Vec<_>>(), [next], "{way}");
        world.tell(another, change::succeed(&taken[0])).await;
        if way == "fails" || way == "snoozes" {
            world.perform_operation(Operation::Cancel(run)).await;
        }
        assert_eq!(standing(world, "api").await, (0, 0), "{way}");
    }
}

pub async fn what_is_claimed_in_a_request_whose_answer_was_lost_holds_its_limits_once(
    world: &mut World,
) {
    let worker = crowd(world, Limit::new("api").at_once(2), api(), 3).await;
    let mut request = world.request_of(worker);
    request.claim = claim(9, 0);
    let [first, second] = world.take_twice(request).await;
    assert_eq!(keys(&first.claimed), keys(&second.claimed));
    assert_eq!(standing(world, "api").await, (2, 1));
}

// -------------------------------------------------------------------------- declared and changed --

pub async fn a_limit_that_is_there_is_not_changed_by_a_declaration(world: &mut World) {
    let limit = Limit::new("api").at_once(2);
    let declare = |limit: &Limit| Operation::Declare(limit.clone());
    assert_eq!(world.ask(declare(&limit)).await.operations, [OperationOutcome::Yes]);
    assert_eq!(world.ask(declare(&limit)).await.operations, [OperationOutcome::Already]);
    let others = [
        Limit::new("api").at_once(3),
        Limit::new("api").at_once(2).rate(1, SECOND),
        Limit::new("api").rate(2, SECOND),
    ];
    for other in &others {
        assert_eq!(world.ask(declare(other)).await.operations, [OperationOutcome::Differs]);
    }
    let limits = world.store().limits().await.expect("limits can be listed");
    assert_eq!(limits.iter().map(|state| &state.limit).collect::<Vec<_>>(), [&limit]);
    let unknown = Operation::Resize(Limit::new("other").at_once(1));
    assert_eq!(world.ask(unknown).await.operations, [OperationOutcome::Unknown]);
    // Every bound is read back as it was.
    for other in &others {
        world.perform_operation(Operation::Resize(other.clone())).await;
        let limits = world.store().limits().await.expect("limits can be listed");
        assert_eq!(limits.iter().map(|state| &state.limit).collect::<Vec<_>>(), [other]);
    }
    let same = Operation::Resize(others[2].clone());
    assert_eq!(world.ask(same).await.operations, [OperationOutcome::Already]);
}

pub async fn a_change_of_a_limit_whose_answer_was_lost_is_as_wanted_again(world: &mut World) {
    for operation in [
        Operation::Declare(Limit::new("api").at_once(2)),
        Operation::Resize(Limit::new("api").at_once(3)),
    ] {
        let mut request = world.request();
        request.operations.push(operation);
        for reply in world.take_twice(request).await {
            let done = [OperationOutcome::Yes, OperationOutcome::Already];
            assert!(done.contains(&reply.operations[0]), "{:?}", reply.operations);
        }
    }
    assert_eq!(world.limits().await.len(), 1);
}

pub async fn what_needs_a_limit_that_nobody_has_declared_waits_for_it(world: &mut World) {
    let plan = one().limit("api").build();
    let free = plan_without();
    let worker = world.worker(&[&plan, &free]).await;
    submit_many(world, &plan, 3).await;
    world.submit(&free).await;
    let taken = world.claim(worker, 9).await;
    assert_eq!(taken.len(), 1, "what needs none goes");
    assert_eq!(world.store().counts().await.expect("they are counted").limited, 3);
    assert!(world.limits().await.is_empty());
    let mut request = world.request_of(worker);
    request.operations.push(Operation::Declare(Limit::new("api").at_once(2)));
    request.claim = claim(9, 0);
    assert_eq!(world.take(request).await.claimed.len(), 2, "in the request that declares it");
    assert_eq!(standing(world, "api").await, (2, 1));
}

fn plan_without() -> Arc<Plan> {
    plan("free").task("f", &[]).build()
}

pub async fn a_larger_limit_lets_through_in_order(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 1).await;
    world.claim_one(worker).await;
    let plan = api().build();
    let mut runs = Vec::new();
    for priority in [0, 0, 60, 0] {
        world.advance(SECOND);
        let new = NewRun { priority, ..world.new_run(&plan) };
        runs.push(world.submit_run(new).await.id);
        assert!(world.claim(worker, 9).await.is_empty());
    }
    let mut request = world.request_of(worker);
    request.operations.push(Operation::Resize(Limit::new("api").at_once(4)));
    request.claim = claim(9, 0);
    let taken: Vec<_> = world.take(request).await.claimed.iter().map(|task| task.run).collect();
    assert_eq!(taken, [runs[2], runs[0], runs[1]]);
    assert_eq!(standing(world, "api").await, (4, 1));
}

pub async fn a_limit_that_changes_in_a_request_is_the_new_one_from_then_on(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 5).await;
    let task = world.claim_one(worker).await;
    assert!(world.claim(worker, 9).await.is_empty());
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&task));
    request.operations.push(Operation::Resize(Limit::new("api").at_once(3)));
    request.claim = claim(9, 0);
    assert_eq!(world.take(request).await.claimed.len(), 3);
}

pub async fn a_smaller_limit_takes_nothing_away(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(4), api(), 6).await;
    let taken = world.claim(worker, 9).await;
    world.perform_operation(Operation::Resize(Limit::new("api").at_once(2))).await;
    assert_eq!(standing(world, "api").await, (4, 2));
    for (at, task) in taken.iter().enumerate() {
        world.tell(worker, change::succeed(task)).await;
        let next = world.claim(worker, 9).await.len();
        assert_eq!(next, usize::from(at >= 2), "{at}");
    }
    assert_eq!(standing(world, "api").await, (2, 0));
}

pub async fn what_is_heavier_than_a_smaller_limit_goes_alone(world: &mut World) {
    let heavy = plan("heavy").task("h", &[]).limit(("api", 3)).build();
    let worker = crowd(world, Limit::new("api").at_once(3), api(), 2).await;
    let both = world.worker(&[&heavy, &api().build()]).await;
    let light = world.claim(worker, 1).await.remove(0);
    submit_many(world, &heavy, 2).await;
    world.perform_operation(Operation::Resize(Limit::new("api").at_once(2))).await;
    let second = world.claim(both, 9).await;
    assert_eq!(second.len(), 1, "a light one beside the light one");
    world.tell(worker, change::succeed(&light)).await;
    assert!(world.claim(both, 9).await.is_empty(), "not beside another");
    world.tell(both, change::succeed(&second[0])).await;
    let alone = world.claim(both, 9).await;
    assert_eq!(alone.len(), 1);
    assert_eq!(alone[0].plan.workflow(), "heavy");
    assert_eq!(standing(world, "api").await, (3, 1));
    world.tell(both, change::succeed(&alone[0])).await;
    assert_eq!(world.claim(both, 9).await.len(), 1);
}

// --------------------------------------------------------------------------------- who is hidden --

pub async fn tasks_behind_a_full_limit_hide_nobody(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 1_501).await;
    let free = plan_without();
    world.advance(SECOND);
    world.submit(&free).await;
    let both = world.worker(&[&api().build(), &free]).await;
    world.claim_one(worker).await;
    // A request puts no more than so many behind the limit, and says that there is more.
    let mut requests = 0;
    loop {
        requests += 1;
        let reply = world.claim_with(both, claim(1, 0)).await;
        match &reply.claimed[..] {
            [] => assert!(reply.more && requests < 4, "somebody is hidden"),
            [free] => {
                assert_eq!(free.plan.workflow(), "free");
                break;
            }
            other => panic!("{} tasks are taken into one unit", other.len()),
        }
    }
    assert_eq!(standing(world, "api").await, (1, 1_500));
}

pub async fn what_nobody_can_claim_is_not_in_the_way_of_what_somebody_can(world: &mut World) {
    for way in ["unknown workflow", "another queue", "paused queue", "paused run", "too heavy"] {
        let api = |name: &str| plan(name).task("t", &[]).limit(way);
        world.declare(Limit::new(way).at_once(1)).await;
        let (first, known) = (api("first").build(), api("known").build());
        let heavy = api("known").weight(9).build();
        let in_the_way = match way {
            "unknown workflow" => api("unknown").build(),
            "too heavy" => heavy,
            _ => known.clone(),
        };
        let queue = if way.ends_with("queue") { "other" } else { QUEUE };
        let all = world.worker_of(&[QUEUE, "other"], &[&first, &known, &in_the_way]).await;
        world.submit(&first).await;
        let holder = world.claim_one(all).await;
        // They stand behind the limit, in front of the one that can be claimed.
        let mut runs = Vec::new();
        for _ in 0..3 {
            let new = NewRun { queue: queue.into(), ..world.new_run(&in_the_way) };
            runs.push(world.submit_run(new).await.id);
        }
        world.advance(SECOND);
        let known = world.submit(&known).await.id;
        assert!(world.claim(all, 99).await.is_empty());
        let knows = vec![("known".to_owned(), "t".to_owned())];
        let queues: &[&str] = if way == "paused queue" { &[QUEUE, "other"] } else { &[QUEUE] };
        let worker = world.worker_that_knows(queues, knows).await;
        match way {
            "paused queue" => {
                world.perform_operation(Operation::Pause(Scope::Queue("other".to_owned()))).await;
            }
            "paused run" => {
                for run in &runs {
                    world.perform_operation(Operation::Pause(Scope::Run(*run))).await;
                }
            }
            _ => {}
        }
        world.tell(all, change::succeed(&holder)).await;
        let heaviest = if way == "too heavy" { 8 } else { 99 };
        let wants = tidegate_core::store::Claim { heaviest, ..claim(9, 0) };
        let taken = world.claim_with(worker, wants).await.claimed;
        assert_eq!(taken.iter().map(|task| task.run).collect::<Vec<_>>(), [known], "{way}");
    }
}

pub async fn who_is_let_through_and_goes_lets_the_next_through(world: &mut World) {
    for way in ["cancelled", "queue time-out", "paused"] {
        world.declare(Limit::new(way).at_once(1)).await;
        let sketch = one().limit(way).rules(|rules| rules.queue_timeout = Some(SECOND * 60));
        let plan = sketch.build();
        let worker = world.worker(&[&plan]).await;
        world.submit(&plan).await;
        let holder = world.claim_one(worker).await;
        let first = world.submit(&plan).await.id;
        world.advance(SECOND * 30);
        let second = world.submit(&plan).await.id;
        assert!(world.claim(worker, 9).await.is_empty());
        // Nobody is there to take who is let through.
        world.tell(worker, change::succeed(&holder)).await;
        assert_eq!(standing(world, way).await, (0, 1));
        match way {
            "cancelled" => drop(world.perform_operation(Operation::Cancel(first)).await),
            "paused" => drop(world.perform_operation(Operation::Pause(Scope::Run(first))).await),
            _ => {
                world.advance(SECOND * 30);
                world.look().await;
                assert_eq!(world.kinds(first).await, [Kind::TimedOut]);
            }
        }
        assert_eq!(standing(world, way).await, (0, 0), "{way}");
        let next = world.claim_one(worker).await;
        assert_eq!(next.run, second);
        world.tell(worker, change::succeed(&next)).await;
    }
}

pub async fn a_task_behind_a_limit_can_be_cancelled_paused_and_time_out(world: &mut World) {
    world.declare(Limit::new("api").at_once(1)).await;
    let plan = api().rules(|rules| rules.queue_timeout = Some(SECOND * 60)).build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let holder = world.claim_one(worker).await;
    let runs = submit_many(world, &plan, 3).await;
    assert!(world.claim(worker, 9).await.is_empty());
    world.perform_operation(Operation::Cancel(runs[0].id)).await;
    assert_eq!(standing(world, "api").await, (1, 2));
    world.perform_operation(Operation::Pause(Scope::Run(runs[1].id))).await;
    assert_eq!(standing(world, "api").await, (1, 1));
    world.advance(SECOND * 60);
    world.look().await;
    assert_eq!(world.kinds(runs[2].id).await, [Kind::TimedOut]);
    assert_eq!(standing(world, "api").await, (1, 0));
    world.perform_operation(Operation::Unpause(Scope::Run(runs[1].id))).await;
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!(standing(world, "api").await, (1, 1));
    world.tell(worker, change::succeed(&holder)).await;
    assert_eq!(world.claim_one(worker).await.run, runs[1].id);
}

/// A clock that is behind finds a limit full for what a clock that is ahead has seen to be due.
pub async fn who_is_put_behind_a_limit_by_a_clock_that_is_behind_is_let_through(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 1).await;
    let holder = world.claim_one(worker).await;
    let plan = api().build();
    let late = world.now() + SECOND;
    let new = NewRun { not_before: Some(late), ..world.new_run(&plan) };
    let run = world.submit_run(new).await.id;
    let mut ahead = world.request();
    ahead.clock = late.into();
    world.take(ahead).await;
    assert!(world.claim(worker, 9).await.is_empty(), "it is found, and the limit is full");
    assert_eq!(standing(world, "api").await, (1, 1));
    world.tell(worker, change::succeed(&holder)).await;
    world.advance(SECOND);
    assert_eq!(world.claim_one(worker).await.run, run);
}

pub async fn a_thousand_and_more_are_let_through_in_several_requests(world: &mut World) {
    let worker = crowd(world, Limit::new("api").at_once(1), api(), 2_501).await;
    let holder = world.claim_one(worker).await;
    while world.claim_with(worker, claim(1, 0)).await.more {}
    assert_eq!(standing(world, "api").await, (1, 2_500));
    // As many as there is room for, and no more: who looks again finds nothing to do.
    let reply = world.perform_operation(Operation::Resize(Limit::new("api").at_once(1_001))).await;
    assert_eq!(reply.alarm, None);
    assert_eq!(standing(world, "api").await, (1, 1_500));
    world.perform_operation(Operation::Resize(Limit::new("api").at_once(2_200))).await;
    let mut taken = vec![holder];
    for _ in 0..9 {
        taken.extend(world.claim(worker, 5_000).await);
    }
    assert_eq!(taken.len(), 2_200);
    assert_eq!(standing(world, "api").await, (2_200, 301));
    let alarm = world.look().await.alarm;
    assert_eq!(alarm, None, "nobody else can be let through by looking again");
}

// ---------------------------------------------------------------------------- who waits for whom --

pub async fn a_task_that_keeps_a_limit_its_child_needs_is_refused_by_name(world: &mut World) {
    world.declare(Limit::new("api").at_once(5)).await;
    world.declare(Limit::new("rate").rate(1, SECOND)).await;
    let parent = plan("parent").task("p", &[]).limit("api").limit("rate").build();
    let child = plan("child").task("first", &[]).task("needs", &["first"]).limit("api").build();
    let (above, below) = (world.worker(&[&parent]).await, world.worker(&[&child]).await);
    world.submit(&parent).await;
    let task = world.claim_one(above).await;
    let new = world.child_of(&task, &child, 0);
    let id = new.id;
    let why = refused(world.asks(above, &task, ask::child(new.clone())).await);
    for part in ["\"p\"", "\"needs\"", "\"api\"", ".releasing(\"api\")"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(world.store().run(id).await.expect("it can be looked for"), None);
    let mut request = world.request_of(above);
    request.submits.push(new.clone());
    let refusal = world.take(request).await.submits.remove(0);
    assert_eq!(refusal, Err(Refusal::Unwaitable(why)));
    // The same for a run that is there.
    let other = world.submit(&child).await.id;
    let why = refused(world.asks(above, &task, ask::run(other)).await);
    assert!(why.contains("\"needs\""), "{why}");
    assert_eq!(world.asks(above, &task, ask::releasing(ask::run(other), &["api"])).await, None);
    assert_eq!(world.asks(above, &task, WaitOp::Retake(0)).await, Some(WaitOutcome::Elapsed));
    // What has ended needs nothing any more.
    let over = plan("over").task("needed", &[]).limit("api").task("then", &["needed"]).build();
    let knows = world.worker(&[&over]).await;
    let half = world.submit(&over).await.id;
    let its = world.claim_one(knows).await;
    world.tell(knows, change::succeed(&its)).await;
    assert_eq!(world.asks(above, &task, ask::run(half)).await, None);
    // Given back, it can.
    let op = ask::releasing(ask::child(new), &["api"]);
    assert_eq!(world.asks(above, &task, op).await, None);
    assert_eq!(standing(world, "api").await, (0, 0));
    assert_eq!(world.claim(below, 9).await.len(), 2);
}

pub async fn a_limit_that_bounds_only_a_rate_is_no_reason_to_refuse(world: &mut World) {
    world.declare(Limit::new("api").rate(9, SECOND)).await;
    let parent = plan("parent").task("p", &[]).limit("api").build();
    let child = plan("child").task("c", &[]).limit("api").build();
    let worker = world.worker(&[&parent, &child]).await;
    world.submit(&parent).await;
    let task = world.claim_one(worker).await;
    let new = world.child_of(&task, &child, 0);
    assert_eq!(world.asks(worker, &task, ask::child(new)).await, None);
    world.claim_one(worker).await;
}

pub async fn another_key_of_the_same_limit_is_no_reason_to_refuse(world: &mut World) {
    world.declare(Limit::new("user").at_once(1)).await;
    let plan = plan_of_user();
    let worker = world.worker(&[&plan]).await;
    let new = world.new_run(&plan);
    world.submit_run(keyed(new, "ann")).await;
    let task = world.claim_one(worker).await;
    let new = world.child_of(&task, &plan, 0);
    let why = refused(world.asks(worker, &task, ask::child(keyed(new, "ann"))).await);
    assert!(why.contains("\"ann\""), "{why}");
    let new = world.child_of(&task, &plan, 0);
    assert_eq!(world.asks(worker, &task, ask::child(keyed(new, "bob"))).await, None);
    world.claim_one(worker).await;
}

pub async fn a_limit_kept_further_up_is_a_reason_to_refuse(world: &mut World) {
    world.declare(Limit::new("api").at_once(1)).await;
    let grand = plan("grand").task("g", &[]).limit("api").build();
    let (parent, child) = (plan("parent").task("p", &[]).build(), plan_of_api());
    let worker = world.worker(&[&grand, &parent]).await;
    // As a parent of the parent, and as somebody else who waits for its run.
    for is_parent in [true, false] {
        let top = world.submit(&grand).await.id;
        let holder = world.claim_one(worker).await;
        let middle = match is_parent {
            true => {
                let new = world.child_of(&holder, &parent, 0);
                assert_eq!(world.asks(worker, &holder, ask::child(new)).await, None);
                world.claim_one(worker).await
            }
            false => {
                let run = world.submit(&parent).await.id;
                let middle = world.claim_one(worker).await;
                assert_eq!(world.asks(worker, &holder, ask::run(run)).await, None);
                middle
            }
        };
        let new = world.child_of(&middle, &child, 0);
        let op = ask::releasing(ask::child(new.clone()), &["api"]);
        let why = refused(world.asks(worker, &middle, op).await);
        assert!(why.contains("\"g\"") && why.contains("\"l\""), "{why}");
        // Once it has given that back, nothing is in the way.
        let release = WaitOp::Release(vec!["api".into()]);
        world.tell(worker, change::asks(&holder, [release])).await;
        assert_eq!(world.asks(worker, &middle, ask::child(new)).await, None);
        world.tell(worker, change::fail(&middle)).await;
        world.perform_operation(Operation::Cancel(top)).await;
    }
}
