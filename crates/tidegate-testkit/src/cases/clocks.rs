//! What time brings.

use super::{SECOND, due_of};
use crate::{Sketch, World, chain, change, claim, one, plan};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::{Kind, Reason, State};
use tidegate_core::store::{Applied, Clock, Happened, NewRun, Request, RequestId, Told};

const INSTANT: Duration = Duration::from_micros(1);

fn impatient() -> Sketch {
    one().rules(|rules| rules.queue_timeout = Some(SECOND * 10))
}

fn mortal() -> Sketch {
    one().rules(|rules| rules.deadline = Some(SECOND * 60))
}

pub async fn what_is_ready_for_too_long_times_out(world: &mut World) {
    let plan = impatient().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let end = world.now() + SECOND * 10;
    assert_eq!(world.look().await.alarm, Some(end));
    world.advance(SECOND * 10 - INSTANT);
    assert!(world.look().await.ended.is_empty());
    world.advance(INSTANT);
    let reply = world.claim_with(worker, claim(1, 1)).await;
    assert!(reply.claimed.is_empty(), "it is over before it can be taken");
    assert_eq!((reply.ended.len(), reply.alarm), (1, None));
    assert_eq!(world.life(run, 0).await.state, State::TimedOut(Reason::QueueTimeout));
    assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Failed, end)));
    assert!(reply.told.is_empty(), "nobody has it");
}

pub async fn what_was_taken_and_has_not_begun_times_out_too(world: &mut World) {
    let plan = impatient().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    world.advance(SECOND * 4);
    let task = world.claim_ahead(worker).await;
    world.advance(SECOND * 6);
    let reply = world.look().await;
    let (fence, kind) = (task.life.fence, Kind::TimedOut);
    assert_eq!(reply.told, [Told { task: task.key, fence, worker, kind }]);
    let begun = world.say(worker, change::begin(&task)).await;
    let actual = Some(world.life(run, 0).await);
    assert_eq!(begun.changes, [Applied::Lost { actual }]);
}

pub async fn what_has_begun_has_no_queue_time_any_more(world: &mut World) {
    let sketch = impatient().rules(|rules| rules.retries = 1);
    let plan = sketch.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let reply = world.claim_with(worker, claim(1, 0)).await;
    assert_eq!(reply.alarm, None);
    let task = &reply.claimed[0];
    world.advance(SECOND * 100);
    world.look().await;
    world.tell(worker, change::hand_back(task)).await;
    world.advance(SECOND * 100);
    world.look().await;
    assert_eq!(world.kinds(run).await, [Kind::Ready]);
}

pub async fn queue_time_counts_from_when_it_could_have_begun(world: &mut World) {
    let plan = impatient().build();
    let start = world.now() + SECOND * 100;
    let new = NewRun { not_before: Some(start), ..world.new_run(&plan) };
    let run = world.submit_run(new).await.id;
    assert_eq!(world.look().await.alarm, Some(start));
    world.advance(SECOND * 100);
    assert_eq!(world.look().await.alarm, Some(start + SECOND * 10));
    world.advance(SECOND * 10);
    world.look().await;
    assert_eq!(world.life(run, 0).await.state, State::TimedOut(Reason::QueueTimeout));
}

pub async fn a_deadline_counts_from_the_first_start(world: &mut World) {
    let plan = mortal().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    world.advance(SECOND * 1_000);
    assert_eq!(world.look().await.alarm, None, "it has not started");
    let reply = world.claim_with(worker, claim(1, 0)).await;
    let end = world.now() + SECOND * 60;
    assert_eq!(reply.alarm, Some(end));
    let task = &reply.claimed[0];
    world.advance(SECOND * 30);
    world.tell(worker, change::hand_back(task)).await;
    let task = world.claim_one(worker).await;
    world.advance(SECOND * 30 - INSTANT);
    assert!(world.look().await.told.is_empty());
    world.advance(INSTANT);
    let reply = world.look().await;
    let (fence, kind) = (task.life.fence, Kind::TimedOut);
    assert_eq!(reply.told, [Told { task: task.key, fence, worker, kind }]);
    assert_eq!(world.life(run, 0).await.state, State::TimedOut(Reason::Deadline));
    assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Failed, end)));

    let late = world.say(worker, change::succeed(&task)).await;
    let actual = Some(world.life(run, 0).await);
    assert_eq!(late.changes, [Applied::Lost { actual }]);
}

pub async fn a_deadline_ends_a_task_in_every_state_it_can_be_in(world: &mut World) {
    for state in [Kind::Ready, Kind::Claimed, Kind::Active, Kind::Deferred, Kind::Parked] {
        let plan = mortal().build();
        let worker = world.worker(&[&plan]).await;
        let run = world.submit(&plan).await.id;
        let task = world.claim_one(worker).await;
        let (far, told) = (Some(world.now() + SECOND * 999), state != Kind::Ready);
        match state {
            Kind::Ready => {
                world.tell(worker, change::snooze(&task, SECOND * 999)).await;
            }
            Kind::Claimed => {
                world.tell(worker, change::hand_back(&task)).await;
                world.claim_ahead(worker).await;
            }
            Kind::Deferred => {
                world.tell(worker, change::defer(&task, SECOND, "ever")).await;
            }
            Kind::Parked => {
                world.tell(worker, change::park(&task, far)).await;
            }
            _ => {}
        }
        assert_eq!(world.kinds(run).await, [state]);
        world.advance(SECOND * 60);
        let reply = world.look().await;
        assert_eq!(world.life(run, 0).await.state, State::TimedOut(Reason::Deadline), "{state}");
        assert_eq!(reply.told.len(), usize::from(told && state != Kind::Parked), "{state}");
        assert_eq!(reply.records.last().map(|last| last.what), Some(Happened::TimedOut));
        assert_eq!(reply.alarm, None);
    }
}

pub async fn the_alarm_is_the_earliest_of_all(world: &mut World) {
    let (mortal, impatient) = (mortal().called("m").build(), impatient().build());
    let worker = world.worker(&[&mortal]).await;
    assert_eq!(world.look().await.alarm, None);
    let start = world.now();
    world.submit(&mortal).await;
    let reply = world.claim_with(worker, claim(1, 0)).await;
    assert_eq!(reply.alarm, Some(start + SECOND * 60));
    let mut request = world.request();
    request.submits.push(world.new_run(&impatient));
    assert_eq!(world.take(request).await.alarm, Some(start + SECOND * 10));
    let mut request = world.request();
    let soon = start + SECOND * 5;
    request.submits.push(NewRun { not_before: Some(soon), ..world.new_run(&mortal) });
    assert_eq!(world.take(request).await.alarm, Some(soon));

    world.advance(SECOND * 5);
    assert_eq!(world.look().await.alarm, Some(start + SECOND * 10));
    world.advance(SECOND * 5);
    assert_eq!(world.look().await.alarm, Some(start + SECOND * 60));
    let reply = world.tell(worker, change::succeed(&reply.claimed[0])).await;
    assert_eq!(reply.alarm, None);
}

pub async fn what_is_parked_is_woken_at_its_time_and_not_before(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    let wake = world.now() + SECOND * 3_600;
    let reply = world.tell(worker, change::park(&task, Some(wake))).await;
    assert_eq!(reply.alarm, Some(wake));
    assert_eq!(reply.records[0].what, Happened::Parked);
    world.advance(SECOND * 3_600 - INSTANT);
    assert!(world.claim(worker, 9).await.is_empty());
    world.advance(INSTANT);
    let again = world.claim_one(worker).await;
    assert_eq!((again.order, again.life.attempt, again.life.entries), (wake, 1, 2));
    assert_eq!(again.life.active, SECOND * 2, "what it has computed is not forgotten");
    world.tell(worker, change::succeed(&again)).await;
    assert_eq!(world.kinds(run).await, [Kind::Succeeded]);
}

pub async fn what_is_parked_without_a_time_stays_so(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    let reply = world.tell(worker, change::park(&task, None)).await;
    assert_eq!(reply.alarm, None);
    world.advance(SECOND * 1_000_000);
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!(world.kinds(run).await, [Kind::Parked]);
}

pub async fn a_time_out_is_a_failure_for_the_rest_of_its_run(world: &mut World) {
    let sketch = plan("p").task("a", &[]).rules(|rules| rules.deadline = Some(SECOND));
    let plan = sketch.task("b", &["a"]).task("c", &[]).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    world.claim(worker, 1).await;
    world.advance(SECOND);
    let reply = world.look().await;
    assert_eq!(world.kinds(run).await, [Kind::TimedOut, Kind::Skipped, Kind::Cancelled]);
    assert_eq!(reply.ended[0].outcome, RunOutcome::Failed);
}

pub async fn what_time_has_freed_is_taken_in_the_same_request(world: &mut World) {
    let sketch = plan("p").task("a", &[]).rules(|rules| rules.queue_timeout = Some(SECOND));
    let tidy = sketch.task("tidy", &["a"]).when(tidegate_core::graph::When::AllDone).build();
    let worker = world.worker(&[&tidy]).await;
    world.submit(&tidy).await;
    world.advance(SECOND);
    let claimed = world.claim(worker, 1).await;
    assert_eq!((claimed.len(), claimed[0].index.as_u32()), (1, 1));
}

pub async fn a_start_time_holds_back_only_what_comes_first(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let start = world.now() + SECOND;
    let new = NewRun { not_before: Some(start), ..world.new_run(&plan) };
    let run = world.submit_run(new).await.id;
    world.advance(SECOND * 5);
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    assert_eq!(due_of(&world.life(run, 1).await), world.now());
}

pub async fn request_by_the_clock_of_the_store_gets_its_time(world: &mut World) {
    let given = world.look().await;
    assert_eq!(given.now, world.now());
    let [first, second] = [1, 2].map(|id| Request::new(RequestId(u64::MAX / 2 + id), Clock::Store));
    let first = world.store().request(Arc::new(first)).await.expect("a request can be taken").now;
    let second = world.store().request(Arc::new(second)).await.expect("a request can be taken").now;
    assert!(first <= second && first > Timestamp::default());
}
