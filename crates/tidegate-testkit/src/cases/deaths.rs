//! Workers that die, go, or come back with what is theirs no more.

use super::SECOND;
use crate::{World, change, claim, one, plan};
use tidegate_core::graph::{OnFailure, RunOutcome};
use tidegate_core::lifecycle::{
    Fence, Kind, RECOVERIES_MAX, Reason, SUSPECT_FROM, State, WorkerId,
};
use tidegate_core::store::{Applied, Claimed, Happened, RECOVER_MAX};

async fn dead(world: &World) -> Vec<WorkerId> {
    world.store().dead().await.expect("the dead can be listed")
}

pub async fn what_a_dead_worker_had_is_ready_for_others(world: &mut World) {
    let plan = plan("p").task("a", &[]).task("b", &[]).task("c", &[]).task("d", &[]).build();
    let [old, new] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let run = world.submit(&plan).await.id;
    let had = world.claim_with(old, claim(3, 1)).await.claimed;
    world.tell(old, change::defer(&had[1], SECOND, "a file")).await;
    world.tell(old, change::park(&had[2], None)).await;
    use Kind::{Active, Claimed as Ahead, Deferred, Parked, Ready};
    assert_eq!(world.kinds(run).await, [Active, Deferred, Parked, Ahead]);
    assert_eq!(dead(world).await, []);

    world.kill(old).await;
    world.advance(SECOND);
    let reply = world.recover(old).await;
    assert_eq!(reply.recovered, 3);
    assert_eq!(world.kinds(run).await, [Ready, Ready, Parked, Ready]);
    assert_eq!(dead(world).await, [], "what is taken over is not known any more");
    let deaths = [1, 0, 0, 0];
    for (at, deaths) in (0..).zip(deaths) {
        assert_eq!(world.life(run, at).await.recoveries, deaths, "only of what was active");
    }
    let records: Vec<_> = reply.records.iter().map(|r| (r.task.as_u32(), r.what)).collect();
    assert_eq!(records, [(0, Happened::Recovered), (1, Happened::Recovered)]);
    assert!(reply.records.iter().all(|record| record.worker == Some(old)));
    assert!(reply.told.is_empty());

    let taken = world.claim(new, 9).await;
    assert_eq!(taken.len(), 3);
    assert!(taken.iter().all(|task| task.life.fence == Fence(2)));
    let since =
        |index: u32| taken.iter().find(|task| task.index.as_u32() == index).map(|t| t.order);
    let (now, before) = (Some(world.now()), Some(world.now() - SECOND));
    assert_eq!([since(0), since(1)], [now, now], "what had begun queues anew");
    assert_eq!(since(3), before, "what had not begun keeps its place");
    assert_eq!(taken.iter().map(|task| task.life.attempt).max(), Some(1), "no attempt is used");
}

pub async fn who_takes_over_can_take_it_in_the_same_request(world: &mut World) {
    let plan = one().build();
    let [old, new] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    world.submit(&plan).await;
    world.claim_one(old).await;
    world.kill(old).await;
    let mut request = world.request_of(new);
    request.recover = Some(old);
    request.claim = claim(1, 0);
    let reply = world.take(request).await;
    assert_eq!((reply.recovered, reply.claimed.len()), (1, 1));
    assert_eq!(reply.claimed[0].life.fence, Fence(2));
}

pub async fn a_dead_worker_that_had_nothing_is_forgotten(world: &mut World) {
    let worker = world.worker(&[]).await;
    world.kill(worker).await;
    assert_eq!(dead(world).await, [worker]);
    assert_eq!(world.recover(worker).await.recovered, 0);
    assert_eq!(dead(world).await, []);
}

/// A process that was taken for dead and is not: what it says of what it no longer owns counts for
/// nothing, whoever has it now, even itself under another name.
pub async fn a_stale_fence_writes_nothing(world: &mut World) {
    let plan = one().rules(|rules| rules.retries = 9).build();
    let [old, new] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let run = world.submit(&plan).await.id;
    let stale = world.claim_one(old).await;
    world.kill(old).await;
    world.recover(old).await;
    for taken in [false, true] {
        if taken {
            world.claim_one(new).await;
        }
        let before = world.view(run).await;
        for change in [
            change::begin(&stale),
            change::succeed_with(&stale, "out", "in"),
            change::with_error(change::fail(&stale), "no"),
            change::snooze(&stale, SECOND),
            change::defer(&stale, SECOND, "x"),
            change::resume(&stale),
            change::step(&stale),
            change::park(&stale, None),
            change::hand_back(&stale),
            change::stopped(&stale),
        ] {
            let reply = world.say(old, change).await;
            let actual = Some(before.tasks[0].life.clone());
            assert_eq!(reply.changes, [Applied::Lost { actual }]);
            assert_eq!(world.view(run).await, before);
            assert!(reply.records.is_empty());
        }
        assert_eq!(world.output(stale.key).await, None);
    }
}

pub async fn a_fence_of_the_future_writes_nothing(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let mut task = world.claim_one(worker).await;
    let before = world.view(run).await;
    task.life.fence = Fence(task.life.fence.0 + 1);
    let reply = world.say(worker, change::succeed(&task)).await;
    let actual = Some(before.tasks[0].life.clone());
    assert_eq!(reply.changes, [Applied::Lost { actual }]);
    assert_eq!(world.view(run).await, before);
}

/// Lets a worker die while the task is active, and says how it stands then.
async fn die(world: &mut World, plan: &std::sync::Arc<tidegate_core::plan::Plan>) {
    let worker = world.worker(&[plan]).await;
    let claimed = world.claim_with(worker, claim(1, 1)).await.claimed;
    let [task] = &claimed[..] else { panic!("there is one to take: {claimed:?}") };
    if task.life.state.kind() == Kind::Claimed {
        world.tell(worker, change::begin(task)).await;
    }
    world.kill(worker).await;
    world.recover(worker).await;
}

pub async fn who_dies_too_often_while_active_is_the_cause(world: &mut World) {
    let plan = one().rules(|rules| rules.retries = 9).build();
    let run = world.submit(&plan).await.id;
    for deaths in 1..RECOVERIES_MAX {
        die(world, &plan).await;
        let life = world.life(run, 0).await;
        assert_eq!((life.state.kind(), life.recoveries), (Kind::Ready, deaths));
        assert_eq!((life.fence.0, life.attempt), (u64::from(deaths), 1));
    }
    die(world, &plan).await;
    assert_eq!(world.life(run, 0).await.state, State::Failed(Reason::CrashLoop));
    let view = world.view(run).await;
    assert_eq!(view.run.ended, Some((RunOutcome::Failed, world.now())));
    let records = world.records().await;
    assert_eq!(records.last().map(|last| last.reason), Some(Some(Reason::CrashLoop)));
    assert_eq!(records.len(), usize::from(RECOVERIES_MAX));
}

pub async fn a_suspect_is_taken_but_not_begun_although_units_are_free(world: &mut World) {
    let (plan, other) = (one().build(), one().called("other").build());
    let run = world.submit(&plan).await.id;
    for _ in 0..SUSPECT_FROM {
        die(world, &plan).await;
    }
    world.advance(SECOND);
    world.submit(&other).await;
    let worker = world.worker(&[&plan, &other]).await;
    let claimed = world.claim_with(worker, claim(9, 1)).await.claimed;
    let kinds: Vec<_> = claimed.iter().map(|task| task.life.state.kind()).collect();
    assert_eq!(kinds, [Kind::Claimed, Kind::Active], "its neighbours begin as ever");
    assert_eq!(world.kinds(run).await, [Kind::Claimed]);
    world.tell(worker, change::begin(&claimed[0])).await;
}

/// Otherwise a worker that takes nothing ahead would never run it.
pub async fn a_suspect_is_taken_also_where_nothing_is_taken_ahead(world: &mut World) {
    let plan = one().build();
    let run = world.submit(&plan).await.id;
    for _ in 0..SUSPECT_FROM {
        die(world, &plan).await;
    }
    let worker = world.worker(&[&plan]).await;
    let claimed = world.claim_with(worker, claim(1, 0)).await.claimed;
    assert_eq!(claimed.len(), 1);
    assert_eq!(world.kinds(run).await, [Kind::Claimed]);
}

pub async fn getting_on_forgets_earlier_deaths(world: &mut World) {
    let plan = one().rules(|rules| rules.retries = 1).build();
    let run = world.submit(&plan).await.id;
    let get_on: [fn(&Claimed) -> Vec<tidegate_core::store::Change>; 2] = [
        |task| vec![change::step(task)],
        |task| vec![change::defer(task, SECOND, "x"), change::resume(task)],
    ];
    for get_on in get_on {
        die(world, &plan).await;
        assert_eq!(world.life(run, 0).await.recoveries, 1);
        let worker = world.worker(&[&plan]).await;
        let task = world.claim_one(worker).await;
        for change in get_on(&task) {
            world.tell(worker, change).await;
        }
        assert_eq!(world.life(run, 0).await.recoveries, 0);
        world.tell(worker, change::hand_back(&task)).await;
    }
}

pub async fn a_death_while_waiting_is_nobodys_fault(world: &mut World) {
    let plan = one().build();
    let run = world.submit(&plan).await.id;
    for _ in 0..2 * RECOVERIES_MAX {
        let worker = world.worker(&[&plan]).await;
        let task = world.claim_one(worker).await;
        world.tell(worker, change::defer(&task, SECOND, "x")).await;
        world.kill(worker).await;
        world.recover(worker).await;
        assert_eq!(world.life(run, 0).await.recoveries, 0);
    }
    assert_eq!(world.kinds(run).await, [Kind::Ready]);
}

pub async fn what_was_to_stop_when_its_worker_died_is_over(world: &mut World) {
    let sketch = plan("p").on_failure(OnFailure::FailFastKill).task("a", &[]).task("b", &[]);
    let plan = sketch.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let claimed = world.claim(worker, 2).await;
    world.tell(worker, change::fail(&claimed[0])).await;
    world.kill(worker).await;
    let reply = world.recover(worker).await;
    assert_eq!(world.life(run, 1).await.state, State::Cancelled(Reason::FailFast));
    assert_eq!(reply.ended[0].outcome, RunOutcome::Failed);
}

pub async fn more_than_fits_into_a_request_is_taken_over_in_several(world: &mut World) {
    let plan = one().build();
    let [old, new] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let many = RECOVER_MAX + RECOVER_MAX / 2;
    let mut request = world.request_of(old);
    request.submits = (0..many).map(|_| world.new_run(&plan)).collect();
    request.claim = claim(many, 0);
    assert_eq!(world.take(request).await.claimed.len(), many as usize);
    world.kill(old).await;
    assert_eq!(world.recover(old).await.recovered, RECOVER_MAX);
    assert_eq!(dead(world).await, [old], "there is more");
    assert_eq!(world.recover(old).await.recovered, RECOVER_MAX / 2);
    assert_eq!(dead(world).await, []);
    assert_eq!(world.claim(new, many).await.len(), many as usize);
}

/// Exactly as many as fit into a request: only the next request can know that this was all.
pub async fn exactly_as_many_as_fit_into_a_request_are_all_taken_over(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request_of(worker);
    request.submits = (0..RECOVER_MAX).map(|_| world.new_run(&plan)).collect();
    request.claim = claim(RECOVER_MAX, 0);
    world.take(request).await;
    world.kill(worker).await;
    assert_eq!(world.recover(worker).await.recovered, RECOVER_MAX);
    assert_eq!(world.recover(worker).await.recovered, 0);
    assert_eq!(dead(world).await, []);
}

pub async fn what_is_handed_back_is_ready_for_others(world: &mut World) {
    let plan = one().build();
    let [one, two] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let run = world.submit(&plan).await.id;
    let task = world.claim_ahead(one).await;
    let reply = world.tell(one, change::hand_back(&task)).await;
    assert!(reply.records.is_empty(), "no entry has ended");
    let task = world.claim_one(two).await;
    world.advance(SECOND);
    let reply = world.tell(two, change::hand_back(&task)).await;
    assert_eq!(reply.records.len(), 1);
    assert_eq!(reply.records[0].what, Happened::HandedBack);
    let life = world.life(run, 0).await;
    assert_eq!((life.attempt, life.recoveries, life.entries), (1, 0, 1));
    assert_eq!((life.active, life.state.kind()), (SECOND * 3, Kind::Ready));
    assert_eq!(world.claim_one(one).await.life.fence, Fence(3));
}

pub async fn a_roll_call_tells_a_worker_all_that_it_owns(world: &mut World) {
    let plan = one().build();
    let [one, two] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    for _ in 0..8 {
        world.submit(&plan).await;
    }
    let mine = world.claim_with(one, claim(3, 1)).await.claimed;
    world.claim(two, 2).await;
    world.tell(one, change::defer(&mine[0], SECOND, "x")).await;
    world.tell(one, change::succeed(&mine[1])).await;
    world.tell(one, change::hand_back(&mine[2])).await;

    let mut request = world.request_of(one);
    request.roll_call = true;
    request.changes.push(change::begin(&mine[3]));
    request.claim = claim(1, 0);
    let reply = world.take(request).await;
    let new = &reply.claimed[0];
    let mut roll: Vec<_> = reply.roll.iter().map(|owned| (owned.task, owned.fence)).collect();
    let new = (new.key, new.life.fence);
    let mut owned = vec![(mine[0].key, Fence(1)), (mine[3].key, Fence(1)), new];
    roll.sort();
    owned.sort();
    assert_eq!(roll, owned);
    assert!(world.look().await.roll.is_empty(), "only who asks is told");
}

pub async fn numbers_of_workers_are_never_used_again(world: &mut World) {
    let mut numbers = Vec::new();
    for request in 0..6 {
        let worker = world.worker(&[]).await;
        numbers.push(worker);
        match request % 3 {
            0 => world.store().dismiss(worker).await.expect("it owns nothing"),
            1 => {
                world.kill(worker).await;
                world.recover(worker).await;
            }
            _ => {}
        }
    }
    let mut unique = numbers.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), numbers.len());
    assert_eq!(dead(world).await, []);
}

pub async fn who_goes_and_still_owns_something_is_taken_over_like_the_dead(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    world.claim_one(worker).await;
    world.store().dismiss(worker).await.expect("it can go");
    assert_eq!(dead(world).await, [worker]);
    assert_eq!(world.recover(worker).await.recovered, 1);
    assert_eq!(dead(world).await, []);
    assert_eq!(world.kinds(run).await, [Kind::Ready]);
}

pub async fn dismissed_worker_is_told_that_it_is_unknown_and_claims_nothing(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let request = world.request_of(worker);
    let known = world.take(request).await;
    assert!(!known.is_unknown_worker);
    world.store().dismiss(worker).await.expect("it can go");
    let mut request = world.request_of(worker);
    request.claim = claim(1, 1);
    let reply = world.take(request).await;
    assert!(reply.is_unknown_worker && reply.claimed.is_empty());
    assert!(!world.look().await.is_unknown_worker, "a request of no worker");
}
