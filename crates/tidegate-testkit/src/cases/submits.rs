//! Runs that begin.

use super::{SECOND, begun_at, due_of};
use crate::{World, chain, claim, one, plan};
use tidegate_core::RunId;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::{Fence, Kind, Life};
use tidegate_core::store::{Bytes, NewRun, Refusal, RunKey};

fn bytes(text: &str) -> Option<Bytes> {
    Some(text.as_bytes().into())
}

pub async fn a_submit_is_found_afterwards_with_its_tasks(world: &mut World) {
    let plan = chain(3).build();
    let now = world.now();
    let new = NewRun { priority: -3, key: Some("k".to_owned()), ..world.new_run(&plan) };
    let submitted = world.submit_run(new.clone()).await;
    assert_eq!((submitted.id, submitted.existing), (new.id, false));
    world.advance(SECOND);

    let view = world.view(new.id).await;
    assert_eq!((view.run.key, view.run.id), (submitted.key, new.id));
    assert_eq!((&view.run.plan, &*view.run.queue), (&plan, crate::QUEUE));
    assert_eq!((view.run.priority, view.run.idempotency_key.as_deref()), (-3, Some("k")));
    assert_eq!((view.run.submitted_at, view.run.paused_at, view.run.ended), (now, None, None));
    let keys: Vec<_> = plan.graph().tasks().map(|task| submitted.key.task(task)).collect();
    assert_eq!(view.tasks.iter().map(|task| task.key).collect::<Vec<_>>(), keys);
    let lives: Vec<_> = view.tasks.iter().map(|task| task.life.clone()).collect();
    assert_eq!(lives, [Life::ready(now, now), Life::blocked(), Life::blocked()]);
    assert!(view.tasks.iter().all(|task| task.ended_at.is_none() && task.error.is_none()));
}

pub async fn what_was_never_submitted_is_not_found(world: &mut World) {
    world.submit(&one().build()).await;
    let other = RunId::new(world.now(), 99);
    assert_eq!(world.store().run(other).await.expect("it can be asked for"), None);
    let records = world.store().records(Some(RunKey(99)), 0, 9).await;
    assert_eq!(records.expect("they can be asked for"), []);
}

pub async fn a_submitted_run_comes_back_begun_where_units_are_free(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request_of(worker);
    request.submits.push(NewRun { input: bytes("in"), ..world.new_run(&plan) });
    request.claim = claim(1, 0);
    let id = request.submits[0].id;
    let reply = world.take(request).await;

    let [task] = &reply.claimed[..] else { panic!("one is taken: {:?}", reply.claimed) };
    assert_eq!((task.run, task.life.fence, task.life.entries), (id, Fence(1), 1));
    assert_eq!((begun_at(&task.life), task.order), (world.now(), world.now()));
    assert_eq!(
        (&task.given.input, task.given.outputs.len(), task.given.inserts.len()),
        (&bytes("in"), 0, 0)
    );
    assert_eq!(world.kinds(id).await, [Kind::Active, Kind::Blocked]);
    assert!(!reply.more, "nothing else is ready");
    assert!(world.claim(worker, 9).await.is_empty(), "it is taken once");
}

pub async fn what_was_submitted_is_ready_for_others_when_nobody_takes_it(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let new = NewRun { input: bytes("in"), ..world.new_run(&plan) };
    world.submit_run(new.clone()).await;
    world.advance(SECOND);
    let task = world.claim_one(worker).await;
    assert_eq!((task.run, task.given.input.clone()), (new.id, bytes("in")));
    assert_eq!(task.order, world.now() - SECOND);
    assert_eq!(begun_at(&task.life), world.now());
}

pub async fn what_fits_neither_now_nor_ahead_stays_ready_and_the_answer_says_so(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request_of(worker);
    request.submits = (0..5).map(|_| world.new_run(&plan)).collect();
    request.claim = claim(2, 1);
    let reply = world.take(request).await;
    let kinds: Vec<_> = reply.claimed.iter().map(|task| task.life.state.kind()).collect();
    assert_eq!(kinds, [Kind::Active, Kind::Active, Kind::Claimed]);
    assert!(reply.more);
    assert_eq!(world.store().counts().await.expect("they are counted").ready, 2);

    let rest = world.claim_with(worker, claim(1, 0)).await;
    assert_eq!((rest.claimed.len(), rest.more), (1, true));
    let rest = world.claim_with(worker, claim(1, 0)).await;
    assert_eq!((rest.claimed.len(), rest.more), (1, false));
}

pub async fn a_run_with_a_start_time_is_not_taken_before(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let start = world.now() + SECOND * 60;
    let new = NewRun { not_before: Some(start), ..world.new_run(&plan) };
    let mut request = world.request_of(worker);
    request.submits.push(new.clone());
    request.claim = claim(4, 4);
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty() && !reply.more);
    assert_eq!(reply.alarm, Some(start));
    let mut request = world.request_of(worker);
    request.submits.push(NewRun { not_before: Some(start), ..world.new_run(&plan) });
    assert!(!world.take(request).await.more, "what is not due is not more to take");
    assert_eq!(due_of(&world.life(new.id, 0).await), start);
    assert_eq!(world.store().counts().await.expect("they are counted").future, 2);

    world.advance(SECOND * 60 - SECOND / 1_000_000);
    assert!(world.claim(worker, 4).await.is_empty());
    world.advance(SECOND / 1_000_000);
    let taken = world.claim_with(worker, claim(4, 0)).await;
    assert_eq!((taken.claimed.len(), taken.alarm), (2, None));
    assert_eq!(taken.claimed[0].order, start, "it has its place from when it could start");
}

pub async fn a_start_time_that_has_passed_holds_nothing_back(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let past = world.now() - SECOND * 60;
    let new = NewRun { not_before: Some(past), ..world.new_run(&plan) };
    world.submit_run(new).await;
    let task = world.claim_one(worker).await;
    assert_eq!(task.order, world.now(), "it does not overtake those that were there before");
}

pub async fn what_has_come_due_stands_behind_what_was_ready_before(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let start = world.now() + SECOND * 10;
    let late = NewRun { not_before: Some(start), ..world.new_run(&plan) };
    let second = world.submit_run(late).await.id;
    world.advance(SECOND * 5);
    let first = world.submit(&plan).await.id;
    world.advance(SECOND * 10);
    let third = world.submit(&plan).await.id;
    // It is opened in one request and taken in another.
    world.look().await;
    let order: Vec<_> = world.claim(worker, 3).await.iter().map(|task| task.run).collect();
    assert_eq!(order, [first, second, third], "it has its place from when it could start");
}

pub async fn the_same_key_gives_the_run_that_has_it(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let keyed = |new: NewRun| NewRun { key: Some("k".to_owned()), input: bytes("1"), ..new };
    let new = keyed(world.new_run(&plan));
    let first = world.submit_run(new).await;
    let new = keyed(world.new_run(&plan));
    let second = world.submit_run(new.clone()).await;
    assert_eq!((second.key, second.id, second.existing), (first.key, first.id, true));
    assert_eq!(world.store().run(new.id).await.expect("it can be asked for"), None);
    assert_eq!(world.claim(worker, 9).await.len(), 1);
}

pub async fn the_same_key_with_another_input_is_refused_naming_both(world: &mut World) {
    let plan = one().build();
    for (input, other) in [(bytes("1"), bytes("2")), (None, bytes("")), (bytes(""), None)] {
        let key = format!("{input:?}");
        let new = NewRun { key: Some(key.clone()), input, ..world.new_run(&plan) };
        let first = world.submit_run(new).await;
        let mut request = world.request();
        let new = NewRun { key: Some(key.clone()), input: other, ..world.new_run(&plan) };
        let id = new.id;
        request.submits.push(new);
        let refused = world.take(request).await.submits.remove(0);
        assert_eq!(refused, Err(Refusal::KeyTaken { key, by: first.id }));
        assert_eq!(world.store().run(id).await.expect("it can be asked for"), None);
    }
}

pub async fn a_key_counts_inside_one_request_too(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request_of(worker);
    for input in ["1", "1", "2"] {
        let key = Some("k".to_owned());
        request.submits.push(NewRun { key, input: bytes(input), ..world.new_run(&plan) });
    }
    let [first, ..] = [request.submits[0].id];
    request.claim = claim(9, 0);
    let reply = world.take(request).await;
    let submitted = |at: usize| reply.submits[at].clone().expect("it is accepted");
    assert_eq!((submitted(0).id, submitted(0).existing), (first, false));
    assert_eq!((submitted(1).id, submitted(1).existing), (first, true));
    assert_eq!(submitted(1).key, submitted(0).key);
    let key = "k".to_owned();
    assert_eq!(reply.submits[2], Err(Refusal::KeyTaken { key, by: first }));
    assert_eq!(reply.claimed.len(), 1);
}

pub async fn a_key_is_unique_in_its_queue_and_workflow_only(world: &mut World) {
    let (plan, other) = (one().build(), one().called("other").build());
    let key = Some("k".to_owned());
    let new = [
        NewRun { key: key.clone(), ..world.new_run(&plan) },
        NewRun { key: key.clone(), queue: "side".into(), ..world.new_run(&plan) },
        NewRun { key: key.clone(), ..world.new_run(&other) },
        NewRun { key: Some("K".to_owned()), ..world.new_run(&plan) },
        world.new_run(&plan),
        world.new_run(&plan),
    ];
    for new in new {
        let id = new.id;
        let submitted = world.submit_run(new).await;
        assert_eq!((submitted.id, submitted.existing), (id, false));
    }
}

pub async fn a_key_is_kept_when_its_run_has_ended(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let key = Some("k".to_owned());
    let new = NewRun { key: key.clone(), ..world.new_run(&plan) };
    let first = world.submit_run(new).await;
    let task = world.claim_one(worker).await;
    world.tell(worker, crate::change::succeed(&task)).await;
    let new = NewRun { key, ..world.new_run(&plan) };
    let second = world.submit_run(new).await;
    assert_eq!((second.id, second.existing), (first.id, true));
    assert_eq!(world.view(first.id).await.run.ended, Some((RunOutcome::Succeeded, world.now())));
}

pub async fn tasks_without_dependencies_are_all_ready_at_once(world: &mut World) {
    let plan = plan("loose").task("a", &[]).task("b", &[]).task("c", &["b"]).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    assert_eq!(world.kinds(run.id).await, [Kind::Ready, Kind::Ready, Kind::Blocked]);
    assert_eq!(world.claim(worker, 9).await.len(), 2);
}
