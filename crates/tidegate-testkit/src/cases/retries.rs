//! Failures, and what comes after them.

use super::{SECOND, due_of};
use crate::{Sketch, World, change, claim, one};
use std::time::Duration;
use tidegate_core::Backoff;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::{Failure, Kind, Reason, State};
use tidegate_core::store::{Applied, Happened};

fn retried(times: u32, pause: Duration) -> Sketch {
    one().rules(|rules| {
        rules.retries = times;
        rules.backoff = Backoff::fixed(pause);
    })
}

pub async fn a_failure_is_tried_again_after_its_back_off_until_no_attempt_is_left(
    world: &mut World,
) {
    let plan = retried(2, SECOND * 10).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    for attempt in 1..=2 {
        let task = world.claim_one(worker).await;
        assert_eq!((task.life.attempt, task.life.entries), (attempt, attempt));
        let said = change::with_error(change::fail(&task), &format!("no {attempt}"));
        let reply = world.tell(worker, said).await;
        assert_eq!(reply.records.len(), 1);
        assert_eq!(reply.records[0].what, Happened::Retried);
        assert_eq!(reply.alarm, Some(world.now() + SECOND * 10));
        let view = world.view(run).await;
        let life = &view.tasks[0].life;
        assert_eq!((due_of(life), life.attempt), (world.now() + SECOND * 10, attempt + 1));
        assert_eq!(view.tasks[0].error, Some(format!("no {attempt}")));
        let counts = world.store().counts().await.expect("they are counted");
        assert_eq!((counts.ready, counts.future, counts.running), (0, 1, 0));

        world.advance(SECOND * 9);
        assert!(world.claim(worker, 1).await.is_empty(), "it is not due");
        world.advance(SECOND);
    }
    let task = world.claim_one(worker).await;
    assert_eq!(task.life.attempt, 3);
    let reply = world.tell(worker, change::with_error(change::fail(&task), "no 3")).await;
    assert_eq!(reply.alarm, None);
    let view = world.view(run).await;
    assert_eq!(view.tasks[0].life.state, State::Failed(Reason::Error));
    assert_eq!(view.tasks[0].error.as_deref(), Some("no 3"));
    assert_eq!(view.run.ended, Some((RunOutcome::Failed, world.now())));
    assert!(world.claim(worker, 1).await.is_empty());
}

pub async fn the_back_off_of_a_plan_grows_as_it_says(world: &mut World) {
    let backoff = Backoff::exponential(SECOND, 3.0, SECOND * 5).expect("it makes sense");
    let plan = one().rules(|rules| (rules.retries, rules.backoff) = (9, backoff)).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    for pause in [1, 3, 5, 5] {
        let task = world.claim_one(worker).await;
        world.tell(worker, change::fail(&task)).await;
        let due = due_of(&world.life(run, 0).await);
        assert_eq!(due, world.now() + SECOND * pause);
        world.advance(SECOND * pause);
    }
}

pub async fn a_permanent_failure_is_not_tried_again(world: &mut World) {
    let plan = retried(5, SECOND).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::fail_by(&task, Failure::Error, true)).await;
    let life = world.life(run, 0).await;
    assert_eq!((life.state, life.attempt), (State::Failed(Reason::Error), 1));
}

pub async fn every_way_to_fail_keeps_its_reason(world: &mut World) {
    for (failure, end) in [
        (Failure::Error, State::Failed(Reason::Error)),
        (Failure::Panic, State::Failed(Reason::Panic)),
        (Failure::WaitTimeout, State::Failed(Reason::WaitTimeout)),
        (Failure::Timeout, State::TimedOut(Reason::Timeout)),
    ] {
        let plan = retried(1, Duration::ZERO).build();
        let worker = world.worker(&[&plan]).await;
        let run = world.submit(&plan).await.id;
        let task = world.claim_one(worker).await;
        let reply = world.tell(worker, change::fail_by(&task, failure, false)).await;
        assert_eq!(reply.records[0].reason, Some(failure.reason()));
        let task = world.claim_one(worker).await;
        let reply = world.tell(worker, change::fail_by(&task, failure, false)).await;
        assert_eq!(reply.records[0].reason, Some(failure.reason()));
        assert_eq!(world.life(run, 0).await.state, end);
        assert_eq!(reply.ended[0].outcome, RunOutcome::Failed);
    }
}

pub async fn a_retry_without_a_pause_is_taken_in_the_same_request(world: &mut World) {
    let plan = retried(1, Duration::ZERO).build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let task = world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::fail(&task));
    request.claim = claim(1, 0);
    let reply = world.take(request).await;
    let [again] = &reply.claimed[..] else { panic!("it is taken: {:?}", reply.claimed) };
    assert_eq!((again.life.attempt, again.life.fence.0, again.life.entries), (2, 2, 2));
}

pub async fn a_snooze_uses_no_attempt(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    for entry in 1..=3 {
        let task = world.claim_one(worker).await;
        assert_eq!((task.life.attempt, task.life.entries), (1, entry));
        let reply = world.tell(worker, change::snooze(&task, SECOND * 30)).await;
        assert_eq!(reply.records[0].what, Happened::Snoozed);
        assert_eq!(reply.alarm, Some(world.now() + SECOND * 30));
        world.advance(SECOND * 29);
        assert!(world.claim(worker, 1).await.is_empty());
        world.advance(SECOND);
    }
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    assert_eq!(world.kinds(run).await, [Kind::Succeeded]);
}

pub async fn several_things_that_happened_since_are_written_in_one_go_or_not_at_all(
    world: &mut World,
) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_ahead(worker).await;
    let all = |last: tidegate_core::store::Change| {
        let mut all = change::begin(&task);
        for more in [change::defer(&task, SECOND, "x"), change::resume(&task), last] {
            all.events.extend(more.events);
        }
        all
    };
    let before = world.life(run, 0).await;
    // It cannot go on twice.
    let reply = world.say(worker, all(change::resume(&task))).await;
    assert_eq!(reply.changes, [Applied::Lost { actual: Some(before.clone()) }]);
    assert_eq!(world.life(run, 0).await, before);
    assert!(reply.records.is_empty());

    world.tell(worker, all(change::succeed(&task))).await;
    let life = world.life(run, 0).await;
    assert_eq!((life.state, life.entries, life.active), (State::Succeeded, 1, SECOND));
}
