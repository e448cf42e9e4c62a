//! How many runs may be above one that a task begins.

use crate::{World, ask, change, one, plan};
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::graph::OnFailure;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::plan::Plan;
use tidegate_core::store::{Bytes, CHILD_DEPTH_MAX, Claimed, NewRun, Parent, Refusal};
use tidegate_core::wait::{WaitId, WaitKind, WaitOutcome};

/// Begins so many runs below one another; the task of the lowest.
async fn begin_below(
    world: &mut World,
    worker: WorkerId,
    mut task: Claimed,
    plan: &Arc<Plan>,
    levels: u32,
) -> Claimed {
    for _ in 0..levels {
        let new = world.child_of(&task, plan, 0);
        assert_eq!(world.asks(worker, &task, ask::child(new)).await, None);
        task = world.claim_one(worker).await;
    }
    task
}

pub async fn child_below_the_deepest_that_may_be_is_refused_by_name(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let top = world.claim_one(worker).await;
    let lowest = begin_below(world, worker, top, &plan, CHILD_DEPTH_MAX).await;
    let new = world.child_of(&lowest, &plan, 0);
    let (id, workflow) = (new.id, plan.workflow().to_owned());
    let refusal = Refusal::TooDeep { workflow, depth: CHILD_DEPTH_MAX + 1, max: CHILD_DEPTH_MAX };
    let answer = world.asks(worker, &lowest, ask::child(new)).await;
    assert_eq!(answer, Some(WaitOutcome::Refused(refusal.to_string())));
    assert!(world.store().run(id).await.expect("it can be read").is_none());
    assert!(refusal.to_string().contains("depth 65, and child_depth_max is 64"), "{refusal}");
}

pub async fn run_of_items_is_a_level_of_children_too(world: &mut World) {
    let parent = plan("mapped").task("each", &[]).each("list").build();
    let worker = world.worker(&[&parent]).await;
    world.submit(&parent).await;
    let each = world.claim_one(worker).await;
    let items = Plan::items("mapped", "each", 1, OnFailure::FailFast, Default::default());
    let wait = WaitId::new(WaitKind::Child, "items", 0);
    let items = NewRun {
        id: RunId::of_items(each.execution()),
        parent: Some(Parent::new(each.key, each.life.fence, wait)),
        items: vec![Bytes::from(&b"x"[..])],
        ..world.new_run(&Arc::new(items))
    };
    for (max, is_begun) in [(0, false), (1, true)] {
        let mut request = world.request_of(worker);
        (request.child_depth_max, request.submits) = (max, vec![items.clone()]);
        let submitted = world.take(request).await.submits.remove(0);
        assert_eq!(submitted.is_ok(), is_begun, "{submitted:?}");
    }
}

pub async fn bound_on_children_is_that_of_the_request_that_begins_one(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let top = world.claim_one(worker).await;
    let lowest = begin_below(world, worker, top, &plan, 3).await;
    for (number, max, is_begun) in [(0, 3, false), (1, 4, true), (2, 0, false), (3, u32::MAX, true)]
    {
        let new = world.child_of(&lowest, &plan, number);
        let mut request = world.request_of(worker);
        request.child_depth_max = max;
        request.changes.push(change::asks(&lowest, [ask::child(new)]));
        let answer = world.take(request).await.answers.remove(0).2.outcome;
        assert_eq!(answer.is_none(), is_begun, "{answer:?}");
    }
}
