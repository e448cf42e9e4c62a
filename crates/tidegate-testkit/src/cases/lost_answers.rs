//! Requests that are handed in again because nobody knows whether they arrived.
//!
//! Nothing is stranded, doubled or wrongly lost.

use super::SECOND;
use crate::{Sketch, World, chain, change, claim, one};
use std::time::Duration;
use tidegate_core::Backoff;
use tidegate_core::lifecycle::Kind;
use tidegate_core::limit::Limit;
use tidegate_core::store::{Applied, Bytes, Change, Claimed, NewRun, Operation, Reply, Scope};

/// What was taken, comparable.
fn taken(reply: &Reply) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    let all = reply.claimed.iter().map(|task| {
        let Claimed { key, index, run, order, .. } = *task;
        let given = task.given.clone();
        (key, index, run, order, task.life.clone(), given)
    });
    all.collect()
}

fn at_once() -> Sketch {
    let backoff = Backoff::fixed(Duration::ZERO);
    one().rules(|rules| (rules.retries, rules.backoff) = (3, backoff))
}

pub async fn a_submit_is_not_doubled(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request();
    request.submits.push(world.new_run(&plan));
    request.submits.push(NewRun { key: Some("k".to_owned()), ..world.new_run(&plan) });
    let [first, second] = world.take_twice(request).await;
    assert_eq!(first.submits, second.submits);
    assert!(second.submits.iter().flatten().all(|submitted| !submitted.existing));
    assert_eq!(world.claim(worker, 9).await.len(), 2);
}

pub async fn a_submit_under_a_taken_key_is_answered_the_same(world: &mut World) {
    let plan = one().build();
    let key = Some("k".to_owned());
    let new = NewRun { key: key.clone(), ..world.new_run(&plan) };
    world.submit_run(new).await;
    let mut request = world.request();
    request.submits.push(NewRun { key: key.clone(), ..world.new_run(&plan) });
    let input = Some(Bytes::from(&b"other"[..]));
    request.submits.push(NewRun { key, input, ..world.new_run(&plan) });
    let [first, second] = world.take_twice(request).await;
    assert_eq!(first.submits, second.submits);
    assert!(first.submits[0].clone().is_ok_and(|submitted| submitted.existing));
    assert!(first.submits[1].is_err());
}

pub async fn a_request_that_never_arrived_is_taken_as_if_new(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.again = true;
    request.changes.push(change::succeed(&task));
    request.submits.push(world.new_run(&plan));
    request.claim = claim(9, 0);
    let reply = world.take(request).await;
    assert_eq!(reply.changes, [Applied::Yes]);
    assert_eq!(reply.claimed.len(), 2);
    assert_eq!(world.kinds(run).await, [Kind::Succeeded, Kind::Active]);
}

pub async fn every_end_of_an_entry_is_yes_again_and_recorded_once(world: &mut World) {
    let says: [fn(&Claimed) -> Change; 8] = [
        change::succeed,
        |task| change::with_error(change::fail(task), "no"),
        |task| change::fail_by(task, tidegate_core::lifecycle::Failure::Panic, true),
        |task| change::snooze(task, SECOND),
        |task| change::park(task, None),
        change::hand_back,
        |task| change::defer(task, SECOND, "x"),
        change::step,
    ];
    for say in says {
        let plan = at_once().build();
        let worker = world.worker(&[&plan]).await;
        let run = world.submit(&plan).await.id;
        let task = world.claim_one(worker).await;
        let mut request = world.request_of(worker);
        request.changes.push(say(&task));
        let [first, second] = world.take_twice(request).await;
        assert_eq!(
            (&first.changes[..], &second.changes[..]),
            (&[Applied::Yes][..], &[Applied::Yes][..])
        );
        assert!(second.records.is_empty());
        world.ask(Operation::Cancel(run)).await;
    }
}

pub async fn a_finish_with_all_that_followed_is_yes_again(world: &mut World) {
    let plan = chain(3).build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let task = world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed_with(&task, "out", "in"));
    request.claim = claim(1, 0);
    let [first, second] = world.take_twice(request).await;
    assert_eq!(second.changes, [Applied::Yes]);
    assert_eq!((taken(&first).len(), taken(&first)), (1, taken(&second)));
}

/// Whoever waits for a run in this process hears of its end from the answer alone.
pub async fn the_end_of_a_run_is_told_again(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let gone = world.submit(&plan).await.id;
    let tasks = world.claim(worker, 2).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::fail(&tasks[0]));
    request.operations.push(Operation::Cancel(gone));
    let [first, second] = world.take_twice(request).await;
    assert_eq!((first.ended.len(), &first.ended), (2, &second.ended));
}

pub async fn a_retry_and_its_claim_are_yes_again(world: &mut World) {
    let plan = at_once().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::fail(&task));
    request.claim = claim(1, 0);
    let [first, second] = world.take_twice(request).await;
    assert_eq!(
        (&first.changes[..], &second.changes[..]),
        (&[Applied::Yes][..], &[Applied::Yes][..])
    );
    assert_eq!((taken(&first).len(), taken(&first)), (1, taken(&second)));
    let life = world.life(run, 0).await;
    assert_eq!((life.attempt, life.fence.0), (2, 2));
}

pub async fn claims_are_given_again_as_they_were_and_no_others(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    for priority in [0, 5, 3, 9, 1, 7] {
        let input = Some(Bytes::from(&b"in"[..]));
        let new = NewRun { priority, input, ..world.new_run(&plan) };
        world.submit_run(new).await;
    }
    world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.submits.push(world.new_run(&plan));
    request.claim = claim(2, 2);
    let [first, second] = world.take_twice(request).await;
    assert_eq!(first.claimed.len(), 4);
    assert_eq!(taken(&first), taken(&second));
    assert!(first.more && second.more, "there is still more than was taken");
}

pub async fn a_claim_that_got_nothing_may_get_something_again(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request_of(worker);
    request.claim = claim(1, 0);
    assert!(world.take(request.clone()).await.claimed.is_empty());
    world.submit(&plan).await;
    request.again = true;
    assert_eq!(world.take(request).await.claimed.len(), 1);
}

/// It has kept its first time, and a rate goes by the time.
pub async fn a_request_that_is_handed_in_again_begins_nothing_under_a_limit(world: &mut World) {
    world.declare(Limit::new("api").rate(1, SECOND)).await;
    let plan = one().limit("api").build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request_of(worker);
    request.claim = claim(1, 0);
    assert!(world.take(request.clone()).await.claimed.is_empty());
    world.advance(SECOND / 2);
    world.submit(&plan).await;
    request.again = true;
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty() && reply.more, "the next request can take it");
    assert_eq!(world.claim_one(worker).await.life.attempt, 1);
}

/// What the worker has anyway was not given to it by this request.
pub async fn what_the_request_only_told_of_is_not_given_again_as_claimed(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    for _ in 0..4 {
        world.submit(&plan).await;
    }
    let had = world.claim_with(worker, claim(2, 1)).await.claimed;
    for claims in [claim(1, 0), claim(0, 0)] {
        let mut request = world.request_of(worker);
        request.changes.push(match claims.units {
            1 => change::defer(&had[0], SECOND, "x"),
            _ => change::resume(&had[0]),
        });
        request.changes.push(change::step(&had[1]));
        if claims.units == 1 {
            request.changes.push(change::begin(&had[2]));
        }
        request.claim = claims;
        let [first, second] = world.take_twice(request).await;
        assert!(second.changes.iter().all(|applied| *applied == Applied::Yes));
        assert_eq!(taken(&first), taken(&second));
    }
}

pub async fn a_hand_back_is_yes_again_also_when_another_has_taken_it_since(world: &mut World) {
    let plan = one().build();
    let [one, two] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(one).await;
    let mut request = world.request_of(one);
    request.changes.push(change::hand_back(&task));
    world.take(request.clone()).await;
    let task = world.claim_one(two).await;
    world.tell(two, change::defer(&task, SECOND, "x")).await;
    let before = world.view(run).await;
    request.again = true;
    assert_eq!(world.take(request).await.changes, [Applied::Yes]);
    assert_eq!(world.view(run).await, before);
}

pub async fn what_was_lost_is_lost_again(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.perform_operation(Operation::Cancel(run)).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed_with(&task, "out", "in"));
    let [first, second] = world.take_twice(request).await;
    assert_eq!(first.changes, second.changes);
    assert_ne!(second.changes, [Applied::Yes]);
    assert_eq!(world.output(task.key).await, None);
}

pub async fn a_take_over_goes_on_where_it_was(world: &mut World) {
    let plan = one().build();
    let [old, new] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let run = world.submit(&plan).await.id;
    world.claim_one(old).await;
    world.kill(old).await;
    let mut request = world.request_of(new);
    request.recover = Some(old);
    request.claim = claim(1, 0);
    let [first, second] = world.take_twice(request).await;
    assert_eq!((first.recovered, second.recovered), (1, 0));
    assert_eq!((taken(&first).len(), taken(&first)), (1, taken(&second)));
    assert_eq!(world.life(run, 0).await.recoveries, 1);
}

pub async fn requests_are_as_wanted_again(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let (kept, gone) = (world.submit(&plan).await.id, world.submit(&plan).await.id);
    let mut request = world.request();
    request.operations.push(Operation::Pause(Scope::Run(kept)));
    request.operations.push(Operation::Cancel(gone));
    world.take_twice(request).await;
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!(world.kinds(gone).await, [Kind::Cancelled]);
    let mut request = world.request();
    request.operations.push(Operation::Unpause(Scope::Run(kept)));
    world.take_twice(request).await;
    assert_eq!(world.claim(worker, 9).await.len(), 1);
}
