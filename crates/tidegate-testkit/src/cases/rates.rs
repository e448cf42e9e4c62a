//! Limits that bound how many begin in a stretch of time.

use super::SECOND;
use super::chance::Chance;
use super::limits::{api, crowd, submit_many};
use crate::{Sketch, World, change, claim, one, plan};
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::limit::Limit;
use tidegate_core::plan::LimitUse;
use tidegate_core::wait::{WaitOp, WaitOutcome};

pub async fn a_rate_bounds_how_many_begin_in_a_stretch_of_time(world: &mut World) {
    let worker = crowd(world, Limit::new("api").rate(2, SECOND * 10), api(), 6).await;
    let first = world.now();
    let reply = world.claim_with(worker, claim(9, 0)).await;
    assert_eq!(reply.claimed.len(), 2);
    assert_eq!(reply.alarm, Some(first + SECOND * 10), "exactly then it has to be looked at");
    // That they end frees nothing.
    for task in &reply.claimed {
        world.tell(worker, change::succeed(task)).await;
    }
    world.advance(SECOND * 10 - Duration::from_micros(1));
    assert!(world.claim(worker, 9).await.is_empty());
    world.advance(Duration::from_micros(1));
    let reply = world.claim_with(worker, claim(9, 0)).await;
    assert_eq!(reply.claimed.len(), 2);
    assert_eq!(reply.alarm, Some(first + SECOND * 20));
    world.advance(SECOND * 60);
    assert_eq!(world.claim(worker, 9).await.len(), 2);
    assert_eq!(world.look().await.alarm, None, "nobody waits");
}

pub async fn a_rate_slides_with_each_begin(world: &mut World) {
    let worker = crowd(world, Limit::new("api").rate(2, SECOND * 10), api(), 4).await;
    let first = world.now();
    assert_eq!(world.claim(worker, 1).await.len(), 1);
    world.advance(SECOND * 4);
    let reply = world.claim_with(worker, claim(9, 0)).await;
    assert_eq!((reply.claimed.len(), reply.alarm), (1, Some(first + SECOND * 10)));
    world.advance(SECOND * 6);
    let reply = world.claim_with(worker, claim(9, 0)).await;
    assert_eq!((reply.claimed.len(), reply.alarm), (1, Some(first + SECOND * 14)));
    world.advance(SECOND * 4);
    assert_eq!(world.claim(worker, 9).await.len(), 1);
}

/// Two that weigh more than half of a rate: the second goes when the first is forgotten.
pub async fn who_is_left_behind_by_who_is_let_through_a_rate_has_its_time(world: &mut World) {
    let heavy = one().limit(("api", 3));
    let worker = crowd(world, Limit::new("api").rate(5, SECOND * 10), heavy, 3).await;
    let first = world.now();
    for at in 0..3 {
        let reply = world.claim_with(worker, claim(9, 0)).await;
        assert_eq!(reply.claimed.len(), 1, "{at}");
        let next = (at < 2).then(|| first + SECOND * 10 * (at + 1));
        assert_eq!(reply.alarm, next);
        world.advance(SECOND * 10);
    }
}

/// More begins are stored than a request looks at.
pub async fn rate_of_many_begins_is_exact(world: &mut World) {
    let (most, per) = (50, SECOND * 10);
    let worker = crowd(world, Limit::new("api").rate(most, per), api(), 200).await;
    let first = world.now();
    for _ in 0..most {
        assert_eq!(world.claim(worker, 1).await.len(), 1);
        world.advance(Duration::from_millis(100));
    }
    let reply = world.claim_with(worker, claim(9, 0)).await;
    assert_eq!((reply.claimed.len(), reply.alarm), (0, Some(first + per)));
    world.advance((first + per).since(world.now()));
    assert_eq!(world.claim(worker, 9).await.len(), 1);
    // Half of them are passed in one request, and then all.
    world.advance(Duration::from_millis(2_500));
    assert_eq!(world.claim(worker, 99).await.len(), 25);
    world.advance(SECOND * 60);
    assert_eq!(world.claim(worker, 99).await.len(), 50);
    assert!(world.claim(worker, 99).await.is_empty());
}

pub async fn a_rate_and_a_bound_at_once_both_hold(world: &mut World) {
    let limit = Limit::new("api").at_once(1).rate(2, SECOND * 10);
    let worker = crowd(world, limit, api(), 4).await;
    let first = world.now();
    let task = world.claim(worker, 9).await.remove(0);
    world.advance(SECOND);
    assert_eq!(world.look().await.alarm, None, "time alone frees nothing");
    let reply = world.tell(worker, change::succeed(&task)).await;
    assert_eq!(reply.alarm, None);
    let task = world.claim_one(worker).await;
    let reply = world.tell(worker, change::succeed(&task)).await;
    assert_eq!(reply.alarm, Some(first + SECOND * 10));
    assert!(world.claim(worker, 9).await.is_empty());
    world.advance(SECOND * 9);
    assert_eq!(world.claim(worker, 9).await.len(), 1);
}

pub async fn who_goes_on_after_a_wait_counts_no_second_time_in_a_rate(world: &mut World) {
    let limit = Limit::new("api").at_once(1).rate(1, SECOND * 10);
    let worker = crowd(world, limit, api(), 1).await;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::asks(&task, [WaitOp::Release(vec!["api".into()])])).await;
    world.advance(SECOND * 9);
    let retaken = world.asks(worker, &task, WaitOp::Retake(0)).await;
    assert_eq!(retaken, Some(WaitOutcome::Elapsed));
    world.tell(worker, change::succeed(&task)).await;
    world.submit(&task.plan).await;
    world.advance(SECOND);
    assert_eq!(world.claim(worker, 9).await.len(), 1);
}

pub async fn a_clock_that_goes_back_stops_a_rate_for_two_stretches_at_most(world: &mut World) {
    let worker = crowd(world, Limit::new("api").rate(1, SECOND * 10), api(), 2).await;
    let mut ahead = world.request_of(worker);
    (ahead.clock, ahead.claim) = ((world.now() + SECOND * 10).into(), claim(1, 0));
    assert_eq!(world.take(ahead).await.claimed.len(), 1);
    let reply = world.claim_with(worker, claim(9, 0)).await;
    assert_eq!((reply.claimed.len(), reply.alarm), (0, Some(world.now() + SECOND * 20)));
    world.advance(SECOND * 20);
    assert_eq!(world.claim(worker, 9).await.len(), 1);
    // By an hour it is not by a little.
    world.submit(&api().build()).await;
    let mut back = world.request_of(worker);
    (back.clock, back.claim) = (Timestamp::from_micros(0).into(), claim(1, 0));
    assert_eq!(world.take(back).await.claimed.len(), 1);
}

/// In no stretch of time more begin than a rate allows, and whoever may begin does.
pub async fn a_rate_holds_in_every_stretch_of_time_whatever_happens(world: &mut World) {
    for seed in 1..=4 {
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (most, per) = (3 + chance.below(4) as u32, SECOND * 10);
        let name = format!("rate {seed}");
        world.declare(Limit::new(name.as_str()).rate(most, per)).await;
        let uses = |units: u32| LimitUse::of(name.as_str()).units(units);
        let plans =
            [1, 2, 3].map(|units| plan(&format!("u{units}")).task("t", &[]).limit(uses(units)));
        let plans = plans.map(Sketch::build);
        let worker = world.worker(&[&plans[0], &plans[1], &plans[2]]).await;
        let mut begun: Vec<(Timestamp, u32)> = Vec::new();
        let (mut waiting, mut requests) = (0, 0);
        while requests < 60 || waiting > 0 {
            requests += 1;
            assert!(requests < 400, "somebody waits for ever");
            if requests < 60 && chance.below(3) > 0 {
                let plan = &plans[chance.below(3) as usize];
                let count = 1 + chance.below(3) as usize;
                waiting += submit_many(world, plan, count).await.len();
            }
            let reply = world.claim_with(worker, claim(1 + chance.below(4) as u32, 0)).await;
            for task in &reply.claimed {
                begun.push((world.now(), task.plan.task(task.index).limits[0].units));
                waiting -= 1;
                world.tell(worker, change::succeed(task)).await;
            }
            for (at, _) in &begun {
                let in_time = begun.iter().filter(|(other, _)| other >= at && *other < *at + per);
                let units: u32 = in_time.map(|(_, units)| units).sum();
                assert!(units <= most, "{units} begin in {per:?} from {at:?}: {begun:?}");
            }
            match reply.alarm {
                Some(alarm) if reply.claimed.is_empty() => {
                    world.advance(alarm.since(world.now()));
                }
                _ => drop(world.advance(Duration::from_millis(chance.below(3_000)))),
            }
        }
        for task in world.claim(worker, 99).await {
            world.tell(worker, change::succeed(&task)).await;
        }
    }
}
