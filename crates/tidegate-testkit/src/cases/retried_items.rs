//! Items of a list in new runs that take over what has succeeded in old ones.

use super::retries_of_runs::{
    bytes, end_of, name, output, play, retry, retry_of, submit, taken_over,
};
use crate::{Sketch, World, plan};
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::graph::{OnFailure, RunOutcome, TaskIndex};
use tidegate_core::lifecycle::{Kind, WorkerId};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{Claimed, NewRun, Operation, Parent, Refusal, RetryOf};
use tidegate_core::wait::{WaitId, WaitKind};

use Kind::{Ready, Succeeded};

/// A task that is done for items, after another, and one after it.
fn mapped() -> Sketch {
    plan("mapped").task("a", &[]).task("each", &["a"]).each("list").task("z", &["each"])
}

/// The run of these items of a task, to be begun.
fn items(parent: &Claimed, items: &[&str], task: TaskPlan) -> NewRun {
    let (workflow, count) = (parent.plan.workflow(), items.len() as u32);
    let wait = WaitId::new(WaitKind::Child, "items", 0);
    let plan = Plan::items(workflow, name(parent), count, OnFailure::KeepGoing, task);
    NewRun {
        id: RunId::of_items(parent.execution()),
        plan: Arc::new(plan),
        queue: "elsewhere".into(),
        priority: 0,
        key: None,
        not_before: None,
        input: None,
        parent: Some(Parent::new(parent.key, parent.life.fence, wait)),
        retry_of: None,
        items: items.iter().map(|item| bytes(item)).collect(),
        keys: Vec::new(),
    }
}

/// Begins the run of these items for the next task that is there.
async fn begin_items(
    world: &mut World,
    worker: WorkerId,
    list: &[&str],
    task: TaskPlan,
) -> (Claimed, RunId) {
    let each = world.claim_one(worker).await;
    assert_eq!(name(&each), "each");
    let mut request = world.request_of(worker);
    request.submits.push(items(&each, list, task));
    let begun = world.take(request).await.submits.remove(0).expect("its parent runs");
    (each, begun.id)
}

/// A run whose task was done for these items, of which those of these places have failed, and with them
/// the task.
async fn ended_items(
    world: &mut World,
    plan: &Arc<Plan>,
    list: &[&str],
    fails: &[&str],
) -> (WorkerId, RunId, RunId) {
    let worker = world.worker(&[plan]).await;
    let run = world.submit(plan).await.id;
    let first = world.claim_one(worker).await;
    world.tell(worker, end_of(&first, &[], 1)).await;
    let (each, its) = begin_items(world, worker, list, TaskPlan::default()).await;
    play(world, worker, fails, 1).await;
    assert!(world.view(its).await.run.ended.is_some());
    world.tell(worker, end_of(&each, if fails.is_empty() { &[] } else { &["each"] }, 1)).await;
    (worker, run, its)
}

pub async fn a_list_that_has_succeeded_is_taken_over_as_a_whole(world: &mut World) {
    let plan = mapped().build();
    let (worker, old, _) = ended_items(world, &plan, &["x", "y"], &[]).await;
    assert_eq!(play(world, worker, &["z"], 1).await, ["z"]);
    let new = retry(world, old, &plan).await;
    assert_eq!(taken_over(world, new).await, ["a", "each"]);
    assert_eq!(output(world, new, 1).await, Some(bytes("each1")));
    assert_eq!(play(world, worker, &[], 2).await, ["z"]);
}

pub async fn items_that_have_succeeded_are_taken_over_by_their_bytes_one_for_one(
    world: &mut World,
) {
    let plan = mapped().build();
    let fails = ["each[1]", "each[4]"];
    let (worker, old, before) = ended_items(world, &plan, &["x", "y", "x", "w", "v"], &fails).await;
    let new = retry(world, old, &plan).await;
    assert_eq!(taken_over(world, new).await, ["a"]);
    let list = ["x", "v", "x", "x", "u"];
    let (each, its) = begin_items(world, worker, &list, TaskPlan::default()).await;
    assert_eq!(world.view(its).await.run.retry_of, Some(before));
    assert_eq!(world.kinds(its).await, [Succeeded, Ready, Succeeded, Ready, Ready]);
    assert_eq!(output(world, its, 0).await, Some(bytes("each[0]1")));
    assert_eq!(output(world, its, 2).await, Some(bytes("each[2]1")));
    assert_eq!(play(world, worker, &["each[4]"], 2).await, ["each[1]", "each[3]", "each[4]"]);

    // And again: what was taken over is as good as what was done.
    world.tell(worker, end_of(&each, &["each"], 2)).await;
    retry(world, new, &plan).await;
    let (_, its) = begin_items(world, worker, &list, TaskPlan::default()).await;
    assert_eq!(world.kinds(its).await, [Succeeded, Succeeded, Succeeded, Succeeded, Ready]);
    assert_eq!(output(world, its, 0).await, Some(bytes("each[0]1")));
}

pub async fn items_run_again_where_something_above_them_does(world: &mut World) {
    let plan = mapped().build();
    let (worker, old, _) = ended_items(world, &plan, &["x", "y"], &["each[1]"]).await;
    let again = vec![TaskIndex::from_u32(0)];
    let new =
        NewRun { retry_of: Some(Box::new(RetryOf { run: old, again })), ..world.new_run(&plan) };
    submit(world, new).await.expect("it is retried");
    let first = world.claim_one(worker).await;
    world.tell(worker, end_of(&first, &[], 2)).await;
    let (_, its) = begin_items(world, worker, &["x", "y"], TaskPlan::default()).await;
    assert_eq!(world.kinds(its).await, [Ready, Ready]);
    play(world, worker, &[], 2).await;

    // A list that had succeeded runs again only because somebody wants it to.
    let (worker, old, _) = ended_items(world, &plan, &["x", "y"], &[]).await;
    assert_eq!(play(world, worker, &[], 1).await, ["z"]);
    let again = vec![TaskIndex::from_u32(1)];
    let new =
        NewRun { retry_of: Some(Box::new(RetryOf { run: old, again })), ..world.new_run(&plan) };
    submit(world, new).await.expect("it is retried");
    let (_, its) = begin_items(world, worker, &["x", "y"], TaskPlan::default()).await;
    assert_eq!(world.kinds(its).await, [Ready, Ready]);
}

pub async fn items_that_do_something_else_run_again(world: &mut World) {
    let plan = mapped().build();
    let other = TaskPlan { fingerprint: Some("2".to_owned()), ..TaskPlan::default() };
    let heavier = TaskPlan { weight: 2, ..TaskPlan::default() };
    for (items, first) in [(other, Ready), (heavier, Succeeded)] {
        let (worker, old, _) = ended_items(world, &plan, &["x", "y"], &["each[1]"]).await;
        retry(world, old, &plan).await;
        let (each, its) = begin_items(world, worker, &["x", "y"], items).await;
        assert_eq!(world.kinds(its).await, [first, Ready]);
        play(world, worker, &[], 2).await;
        world.tell(worker, end_of(&each, &[], 2)).await;
        play(world, worker, &[], 2).await;
    }
}

pub async fn a_list_of_whose_items_none_is_left_ends_at_once(world: &mut World) {
    let plan = mapped().build();
    let (worker, old, _) = ended_items(world, &plan, &["x", "y"], &["each[1]"]).await;
    retry(world, old, &plan).await;
    let (each, its) = begin_items(world, worker, &["x"], TaskPlan::default()).await;
    let ended = world.view(its).await.run.ended.map(|(outcome, _)| outcome);
    assert_eq!(ended, Some(RunOutcome::Succeeded));
    world.tell(worker, end_of(&each, &[], 2)).await;
    assert_eq!(play(world, worker, &[], 2).await, ["z"]);
}

pub async fn a_run_of_items_is_not_retried_by_itself(world: &mut World) {
    let plan = mapped().build();
    let (_, _, its) = ended_items(world, &plan, &["x", "y"], &["each[1]"]).await;
    let of_items = world.view(its).await.run.plan;
    let new = retry_of(world, its, &of_items);
    assert_eq!(submit(world, new).await, Err(Refusal::RunOfItems { run: its }));
}

pub async fn items_are_taken_over_past_retries_that_were_stopped_before_they_began_any(
    world: &mut World,
) {
    let plan = mapped().build();
    let (worker, old, before) = ended_items(world, &plan, &["x", "y"], &["each[1]"]).await;
    let mut last = old;
    for _ in 0..3 {
        last = retry(world, last, &plan).await;
        assert_eq!(taken_over(world, last).await, ["a"]);
        world.ask(Operation::Cancel(last)).await;
    }
    retry(world, last, &plan).await;
    let (_, its) = begin_items(world, worker, &["x", "y"], TaskPlan::default()).await;
    assert_eq!(world.view(its).await.run.retry_of, Some(before));
    assert_eq!(world.kinds(its).await, [Succeeded, Ready]);
    assert_eq!(output(world, its, 0).await, Some(bytes("each[0]1")));
}

pub async fn items_run_again_where_a_retry_between_has_done_again_what_is_above_them(
    world: &mut World,
) {
    let plan = mapped().build();
    let (worker, old, _) = ended_items(world, &plan, &["x", "y"], &["each[1]"]).await;
    let again = vec![TaskIndex::from_u32(0)];
    let new =
        NewRun { retry_of: Some(Box::new(RetryOf { run: old, again })), ..world.new_run(&plan) };
    let between = submit(world, new).await.expect("it is retried").id;
    let first = world.claim_one(worker).await;
    world.tell(worker, end_of(&first, &[], 2)).await;
    world.ask(Operation::Cancel(between)).await;
    let new = retry(world, between, &plan).await;
    assert_eq!(taken_over(world, new).await, ["a"]);
    // What comes before them has returned something else since.
    let (_, its) = begin_items(world, worker, &["x", "y"], TaskPlan::default()).await;
    assert_eq!(world.kinds(its).await, [Ready, Ready]);
}
