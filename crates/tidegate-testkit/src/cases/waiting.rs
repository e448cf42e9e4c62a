//! A bound on the runs that wait in a queue.

use super::SECOND;
use crate::{QUEUE, World, ask, chain, change, claim, one, plan};
use std::sync::Arc;
use tidegate_core::limit::Limit;
use tidegate_core::plan::Plan;
use tidegate_core::store::{NewRun, Operation, Refusal, Scope, Submitted};

/// Submits these runs in one request, to queues in which so many may wait; nobody takes them.
async fn submits(
    world: &mut World,
    max: u32,
    runs: Vec<NewRun>,
) -> Vec<Result<Submitted, Refusal>> {
    let mut request = world.request();
    (request.waiting_max, request.submits) = (Some(max), runs);
    world.take(request).await.submits
}

async fn is_taken_in(world: &mut World, max: u32, plan: &Arc<Plan>) -> bool {
    let new = world.new_run(plan);
    submits(world, max, vec![new]).await[0].is_ok()
}

fn full(max: u32) -> Refusal {
    Refusal::QueueFull { queue: QUEUE.to_owned(), waiting: max, max }
}

pub async fn a_queue_takes_in_as_many_runs_as_may_wait(world: &mut World) {
    let plan = one().build();
    for _ in 0..3 {
        assert!(is_taken_in(world, 3, &plan).await);
    }
    let new = world.new_run(&plan);
    let refused = submits(world, 3, vec![new.clone()]).await.remove(0).expect_err("it is full");
    assert_eq!(refused, full(3));
    let text = refused.to_string();
    assert!(text.contains("3 runs wait in queue \"main\"") && text.contains("later"), "{text}");
    assert_eq!(world.store().run(new.id).await.expect("it is looked for"), None);
    assert!(is_taken_in(world, 4, &plan).await, "whoever allows more may");
    let side = NewRun { queue: "side".into(), ..world.new_run(&plan) };
    assert!(submits(world, 3, vec![side]).await[0].is_ok(), "another queue is another queue");
    world.submit(&plan).await;
}

pub async fn runs_of_one_request_count(world: &mut World) {
    let plan = one().build();
    world.submit(&plan).await;
    let runs: Vec<_> = (0..5).map(|_| world.new_run(&plan)).collect();
    let taken_in = submits(world, 3, runs).await;
    assert_eq!(
        taken_in.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, true, false, false, false]
    );
    assert_eq!(taken_in[4], Err(full(3)));
}

pub async fn a_run_waits_until_something_of_it_is_taken(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    assert!(is_taken_in(world, 1, &plan).await);
    assert!(!is_taken_in(world, 1, &plan).await);
    let task = world.claim_ahead(worker).await;
    assert!(is_taken_in(world, 1, &plan).await, "what a worker has does not wait");
    world.tell(worker, change::hand_back(&task)).await;
    assert!(!is_taken_in(world, 2, &plan).await, "what was given back does again");
    let tasks = world.claim(worker, 2).await;
    assert_eq!(tasks.len(), 2);
    world.tell(worker, change::hand_back(&tasks[0])).await;
    world.tell(worker, change::succeed(&tasks[1])).await;
    // One is ready again, and the second task of the other is: but both have begun.
    assert!(is_taken_in(world, 1, &plan).await);
    assert!(!is_taken_in(world, 1, &plan).await);
}

pub async fn a_run_counts_once_however_many_of_its_tasks_are_ready(world: &mut World) {
    let plan = plan("wide").task("a", &[]).task("b", &[]).task("c", &["b"]).task("d", &[]).build();
    let worker = world.worker(&[&plan]).await;
    assert!(is_taken_in(world, 2, &plan).await);
    assert!(is_taken_in(world, 2, &plan).await);
    assert!(!is_taken_in(world, 2, &plan).await);
    world.claim_one(worker).await;
    assert!(is_taken_in(world, 2, &plan).await, "others of its tasks are ready, but it has begun");
}

pub async fn what_cannot_start_yet_waits_too(world: &mut World) {
    let plan = one().build();
    let limited = plan_with_limit();
    let worker = world.worker(&[&limited]).await;
    world.declare(Limit::new("l").at_once(1)).await;
    let later = NewRun { not_before: Some(world.now() + SECOND), ..world.new_run(&plan) };
    world.submit_run(later).await;
    let paused = world.submit(&plan).await.id;
    world.perform_operation(Operation::Pause(Scope::Run(paused))).await;
    world.submit(&limited).await;
    world.submit(&limited).await;
    // One of these begins, and the other stands behind the limit.
    assert_eq!(world.claim(worker, 2).await.len(), 1);
    assert!(!is_taken_in(world, 3, &plan).await);
    assert!(is_taken_in(world, 4, &plan).await);
    world.perform_operation(Operation::Cancel(paused)).await;
    assert!(is_taken_in(world, 4, &plan).await, "what was cancelled does not");
    assert!(!is_taken_in(world, 4, &plan).await);
}

fn plan_with_limit() -> Arc<Plan> {
    plan("limited").task("l", &[]).limit("l").build()
}

pub async fn what_a_task_begins_is_taken_in_and_does_not_count(world: &mut World) {
    let (parent, child) = (one().build(), plan("child").task("c", &[]).build());
    let worker = world.worker(&[&parent]).await;
    world.submit(&parent).await;
    let task = world.claim_one(worker).await;
    world.submit(&parent).await;
    let new = world.child_of(&task, &child, 0);
    let begun = new.id;
    let mut request = world.request_of(worker);
    request.waiting_max = Some(1);
    request.changes.push(change::asks(&task, [ask::child(new)]));
    world.take(request).await;
    assert_eq!(world.view(begun).await.run.parent, Some(task.key));
    assert!(!is_taken_in(world, 1, &parent).await);
    assert!(is_taken_in(world, 2, &parent).await);
}

pub async fn a_key_that_is_taken_is_answered_although_the_queue_is_full(world: &mut World) {
    let plan = one().build();
    let keyed = |new: NewRun, key: &str| NewRun { key: Some(key.to_owned()), ..new };
    let first = keyed(world.new_run(&plan), "k");
    let id = first.id;
    assert!(submits(world, 1, vec![first]).await[0].is_ok());
    let runs = [keyed(world.new_run(&plan), "k"), keyed(world.new_run(&plan), "other")];
    let answers = submits(world, 1, runs.into()).await;
    assert!(matches!(&answers[0], Ok(found) if found.existing && found.id == id));
    assert_eq!(answers[1], Err(full(1)));
}

pub async fn a_submit_whose_answer_was_lost_is_not_refused_for_itself(world: &mut World) {
    let plan = one().build();
    let mut request = world.request();
    (request.waiting_max, request.submits) = (Some(1), vec![world.new_run(&plan)]);
    let [first, second] = world.take_twice(request).await;
    assert_eq!(first.submits, second.submits);
    assert!(second.submits[0].is_ok());
}

pub async fn a_queue_that_is_full_takes_in_again_what_is_taken_out(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut taken_in = 0;
    for _ in 0..20 {
        let mut request = world.request_of(worker);
        request.waiting_max = Some(4);
        request.submits = (0..3).map(|_| world.new_run(&plan)).collect();
        request.claim = claim(1, 0);
        taken_in += world.take(request).await.submits.iter().filter(|run| run.is_ok()).count();
    }
    // Four wait, and one begins in every request; in the first that is one of those just submitted.
    assert_eq!(taken_in, 3 + 2 + 18);
    assert_eq!(world.store().counts().await.expect("they are counted").ready, 3);
}
