//! Runs that tasks begin and wait for.

use super::SECOND;
use crate::world::keys;
use crate::{QUEUE, Sketch, World, ask, change, claim, one, plan};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::RunId;
use tidegate_core::graph::{OnFailure, RunOutcome};
use tidegate_core::lifecycle::{Kind, Reason, State, WorkerId};
use tidegate_core::plan::Plan;
use tidegate_core::store::{Change, Claim, Claimed, NewRun, Operation, Parent, Refusal, Scope};
use tidegate_core::wait::{WaitId, WaitKind, WaitOp, WaitOutcome};

fn child_plan() -> Arc<Plan> {
    plan("child").task("c", &[]).build()
}

fn first_child() -> WaitId {
    WaitId::new(WaitKind::Child, "", 0)
}

/// A worker of a parent, one of its child, the parent, begun, and its child, begun by it.
struct Family {
    above: WorkerId,
    below: WorkerId,
    run: RunId,
    task: Claimed,
    child: RunId,
    plan: Arc<Plan>,
}

async fn family(world: &mut World, sketch: Sketch) -> Family {
    let (parent, plan) = (sketch.build(), child_plan());
    let (above, below) = (world.worker(&[&parent]).await, world.worker(&[&plan]).await);
    let run = world.submit(&parent).await.id;
    let task = world.claim_one(above).await;
    let new = world.child_of(&task, &plan, 0);
    let child = new.id;
    assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
    Family { above, below, run, task, child, plan }
}

fn refused(answer: Option<WaitOutcome>) -> String {
    match answer {
        Some(WaitOutcome::Refused(why)) => why,
        other => panic!("it is not refused: {other:?}"),
    }
}

pub async fn a_task_begins_a_run_and_is_told_of_its_end(world: &mut World) {
    let Family { above, below, task, child, .. } = family(world, one()).await;
    let view = world.view(child).await;
    assert_eq!((view.run.parent, view.run.ended), (Some(task.key), None));
    assert_eq!(world.kinds(child).await, [Kind::Ready]);
    let its = world.claim_one(below).await;
    world.tell(below, change::succeed(&its)).await;
    let request = world.request_of(above);
    assert_eq!(world.take(request).await.ask_again, [(task.key, task.life.fence)]);
    let again = world.child_of(&task, &its.plan, 0);
    let ended = Some(WaitOutcome::Ended(RunOutcome::Succeeded));
    assert_eq!(world.asks(above, &task, ask::child(again)).await, ended);
}

pub async fn a_child_is_taken_in_the_request_that_begins_it_and_its_end_is_the_answer(
    world: &mut World,
) {
    let (parent, plan) = (one().build(), child_plan());
    let worker = world.worker(&[&parent, &plan]).await;
    world.submit(&parent).await;
    let task = world.claim_one(worker).await;
    let new = world.child_of(&task, &plan, 0);
    let mut request = world.request_of(worker);
    request.changes.push(change::asks(&task, [ask::child(new)]));
    request.claim = claim(1, 0);
    let its = world.take(request).await.claimed.remove(0);
    assert!(its.awaited && !task.awaited);
    let reply = world.tell(worker, change::fail(&its)).await;
    let [(key, fence, answer)] = &reply.answers[..] else { panic!("{:?}", reply.answers) };
    assert_eq!((*key, *fence, &answer.id), (task.key, task.life.fence, &first_child()));
    assert_eq!(answer.outcome, Some(WaitOutcome::Ended(RunOutcome::Failed)));
}

pub async fn a_child_has_the_queue_and_the_priority_of_its_parents_run_unless_told(
    world: &mut World,
) {
    let parent = one().build();
    let worker = world.worker_of(&["q"], &[&parent]).await;
    let new = NewRun { queue: "q".into(), priority: 7, ..world.new_run(&parent) };
    world.submit_run(new).await;
    let task = world.claim_one(worker).await;
    let plan = child_plan();
    let inherits = world.child_of(&task, &plan, 0);
    assert_eq!(&*inherits.queue, QUEUE, "what stands there does not count");
    let mut told = world.child_of(&task, &plan, 1);
    let parent = told.parent.as_mut().expect("it is a child");
    (parent.queue, parent.priority) = (Some("other".into()), Some(-3));
    let ids = [inherits.id, told.id];
    world.tell(worker, change::asks(&task, [ask::child(inherits), ask::child(told)])).await;
    let runs = [world.view(ids[0]).await.run, world.view(ids[1]).await.run];
    let are = runs.map(|run| (run.queue.to_string(), run.priority));
    assert_eq!(are, [("q".to_owned(), 7), ("other".to_owned(), -3)]);
}

pub async fn a_later_entry_finds_its_child_and_begins_no_other(world: &mut World) {
    let sketch = one().rules(|rules| {
        (rules.retries, rules.backoff) = (9, tidegate_core::Backoff::fixed(Duration::ZERO));
    });
    let Family { above, run, task, child, plan, .. } = family(world, sketch).await;
    let mut task = task;
    let snooze = |task: &Claimed| change::snooze(task, Duration::ZERO);
    let park = |task: &Claimed| change::park(task, Some(tidegate_core::Timestamp::from_micros(0)));
    for leave in [change::hand_back as fn(&Claimed) -> Change, change::fail, snooze, park] {
        world.tell(above, leave(&task)).await;
        task = world.claim_one(above).await;
        let (own, its) = task
            .waits
            .iter()
            .find(|(wait, _)| wait.id == first_child())
            .expect("it is known again");
        assert!(own.is_open());
        assert_eq!((*its, own.run), (Some(child), Some(world.view(child).await.run.key)));
        let new = world.child_of(&task, &plan, 0);
        let another = new.id;
        assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
        assert_eq!(world.store().run(another).await.expect("it can be looked for"), None);
    }
    assert_eq!(world.view(child).await.run.ended, None);
    assert_eq!(world.view(run).await.run.ended, None);
}

pub async fn a_child_begun_in_a_request_whose_answer_was_lost_is_not_doubled(world: &mut World) {
    let (parent, plan) = (one().build(), child_plan());
    let worker = world.worker(&[&parent]).await;
    world.submit(&parent).await;
    let task = world.claim_one(worker).await;
    let new = world.child_of(&task, &plan, 0);
    let child = new.id;
    let mut request = world.request_of(worker);
    request.changes.push(change::asks(&task, [ask::child(new)]));
    for reply in world.take_twice(request).await {
        assert_eq!(reply.answers.len(), 1);
        assert_eq!(reply.answers[0].2.outcome, None);
    }
    assert_eq!(world.view(child).await.run.parent, Some(task.key));
    assert_eq!(world.store().counts().await.expect("they are counted").ready, 1);
}

pub async fn a_task_that_asks_for_another_child_at_the_same_place_is_refused(world: &mut World) {
    let Family { above, task, plan, .. } = family(world, one()).await;
    let mut new = world.child_of(&task, &plan, 0);
    new.parent.as_mut().expect("it is a child").label = "another workflow".into();
    let another = new.id;
    let why = refused(world.asks(above, &task, ask::child(new.clone())).await);
    assert!(why.contains("another workflow"), "{why}");
    let mut request = world.request_of(above);
    request.submits.push(new);
    let refusal = world.take(request).await.submits.remove(0);
    assert!(matches!(refusal, Err(Refusal::Unwaitable(why)) if why.contains("another workflow")));
    assert_eq!(world.store().run(another).await.expect("it can be looked for"), None);
}

pub async fn only_who_runs_begins_children(world: &mut World) {
    let Family { above, task, plan, .. } = family(world, one()).await;
    let stale = world.child_of(&task, &plan, 1);
    let id = stale.id;
    world.tell(above, change::hand_back(&task)).await;
    let mut request = world.request_of(above);
    request.submits.push(stale);
    assert_eq!(world.take(request).await.submits, [Err(Refusal::ParentGone)]);
    assert_eq!(world.store().run(id).await.expect("it can be looked for"), None);
}

pub async fn a_child_is_cancelled_when_its_parent_ends_other_than_by_success(world: &mut World) {
    // Each with how the parent comes to its end, and its child's worker hears of it.
    let sketch = || one().rules(|rules| rules.deadline = Some(SECOND * 60));
    for way in ["fails", "cancelled", "deadline", "dies too often"] {
        let Family { above, below, run, task, child, .. } = family(world, sketch()).await;
        let its = world.claim_one(below).await;
        let told = match way {
            "fails" => world.tell(above, change::fail(&task)).await.told,
            "cancelled" => world.perform_operation(Operation::Cancel(run)).await.told,
            "deadline" => {
                world.advance(SECOND * 60);
                world.look().await.told
            }
            _ => {
                let mut told = Vec::new();
                let mut worker = above;
                while world.view(run).await.run.ended.is_none() {
                    world.kill(worker).await;
                    told.extend(world.recover(worker).await.told);
                    worker = world.worker(&[&task.plan]).await;
                    for task in world.claim(worker, 1).await {
                        if task.life.state.kind() == Kind::Claimed {
                            world.tell(worker, change::begin(&task)).await;
                        }
                    }
                }
                told
            }
        };
        assert_eq!(world.kinds(child).await, [Kind::Cancelled], "{way}");
        let ended = world.view(child).await.run.ended.map(|(outcome, _)| outcome);
        assert_eq!(ended, Some(RunOutcome::Cancelled), "{way}");
        assert!(told.iter().any(|told| told.task == its.key && told.worker == below), "{way}");
    }
}

pub async fn fail_fast_in_the_parents_run_cancels_children_of_those_that_wait(world: &mut World) {
    let parent = plan("both").task("a", &[]).task("b", &[]).build();
    let plan = child_plan();
    let worker = world.worker(&[&parent]).await;
    let run = world.submit(&parent).await.id;
    let tasks = world.claim(worker, 2).await;
    let new = world.child_of(&tasks[0], &plan, 0);
    let child = new.id;
    let parks = change::park_on(&tasks[0], None, [first_child()]);
    world.tell(worker, Change { waits: vec![ask::child(new)], ..parks }).await;
    world.tell(worker, change::fail(&tasks[1])).await;
    assert_eq!(world.kinds(run).await, [Kind::Cancelled, Kind::Failed]);
    assert_eq!(world.kinds(child).await, [Kind::Cancelled]);
}

pub async fn a_child_is_cancelled_when_it_is_not_waited_for_any_more(world: &mut World) {
    let Family { above, below, task, child, plan, .. } = family(world, one()).await;
    let its = world.claim_one(below).await;
    let close = change::asks(&task, [WaitOp::Close(first_child())]);
    let reply = world.tell(above, close).await;
    assert!(reply.answers.is_empty(), "nobody waits for its end");
    assert_eq!(reply.told.len(), 1);
    assert_eq!(world.life(child, 0).await.state, State::Cancelled(Reason::Upstream));
    let request = world.request_of(below);
    assert_eq!(world.take(request).await.told[0].task, its.key);
    // It can begin another in its place.
    let new = world.child_of(&task, &plan, 0);
    let next = new.id;
    assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
    assert_eq!(world.kinds(next).await, [Kind::Ready]);
}

pub async fn closing_the_wait_for_a_child_that_has_ended_changes_nothing(world: &mut World) {
    let Family { above, below, task, child, .. } = family(world, one()).await;
    let its = world.claim_one(below).await;
    world.tell(below, change::succeed(&its)).await;
    let close = change::asks(&task, [WaitOp::Close(first_child())]);
    world.tell(above, close).await;
    assert_eq!(world.kinds(child).await, [Kind::Succeeded]);
}

pub async fn closing_the_wait_for_another_run_leaves_that_run_alone(world: &mut World) {
    let (parent, plan) = (one().build(), child_plan());
    let worker = world.worker(&[&parent]).await;
    world.submit(&parent).await;
    let other = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    assert_eq!(world.asks(worker, &task, ask::run(other)).await, None);
    let wait = WaitId::new(WaitKind::Run, other.to_string(), 0);
    world.tell(worker, change::asks(&task, [WaitOp::Close(wait)])).await;
    assert_eq!(world.asks(worker, &task, ask::run(other)).await, None);
    world.tell(worker, change::fail(&task)).await;
    assert_eq!(world.kinds(other).await, [Kind::Ready]);
}

pub async fn a_child_whose_parent_has_lost_patience_is_still_its_own(world: &mut World) {
    let Family { above, below, task, child, plan, .. } = family(world, one()).await;
    let over = ask::end(first_child(), WaitOutcome::TimedOut);
    assert_eq!(world.asks(above, &task, over).await, Some(WaitOutcome::TimedOut));
    assert_eq!(world.kinds(child).await, [Kind::Ready], "the task may go on without it");
    let new = world.child_of(&task, &plan, 1);
    let (second, wait) = (new.id, WaitId::new(WaitKind::Child, "", 1));
    assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
    world.asks(above, &task, ask::end(wait.clone(), WaitOutcome::TimedOut)).await;
    world.tell(above, change::asks(&task, [WaitOp::Close(wait)])).await;
    assert_eq!(world.kinds(second).await, [Kind::Cancelled], "as if it had never begun");
    let run = Operation::Pause(Scope::Run(task.run));
    world.perform_operation(run).await;
    assert!(world.claim(below, 1).await.is_empty());
    world.perform_operation(Operation::Unpause(Scope::Run(task.run))).await;
    world.tell(above, change::fail(&task)).await;
    assert_eq!(world.kinds(child).await, [Kind::Cancelled]);
}

pub async fn a_child_that_waits_for_its_parent_is_not_waited_for_anew(world: &mut World) {
    let Family { above, below, run, task, child, plan } = family(world, one()).await;
    let over = ask::end(first_child(), WaitOutcome::TimedOut);
    world.asks(above, &task, over).await;
    let its = world.claim_one(below).await;
    assert_eq!(world.asks(below, &its, ask::run(run)).await, None, "nobody waits for it now");
    world.tell(above, change::snooze(&task, Duration::ZERO)).await;
    let again = world.claim_one(above).await;
    let new = world.child_of(&again, &plan, 0);
    assert_eq!(world.asks(above, &again, ask::child(new)).await, Some(WaitOutcome::TimedOut));
    world.tell(above, change::succeed(&again)).await;
    assert_eq!(world.kinds(child).await, [Kind::Active], "it goes on");
}

pub async fn a_parents_success_leaves_its_child_alone(world: &mut World) {
    let Family { above, below, run, task, child, .. } = family(world, one()).await;
    world.tell(above, change::succeed(&task)).await;
    assert_eq!(
        world.view(run).await.run.ended.map(|(outcome, _)| outcome),
        Some(RunOutcome::Succeeded)
    );
    let its = world.claim_one(below).await;
    let reply = world.tell(below, change::succeed(&its)).await;
    assert!(reply.answers.is_empty() && reply.ask_again.is_empty());
    assert_eq!(world.kinds(child).await, [Kind::Succeeded]);
}

pub async fn children_are_cancelled_down_to_the_last(world: &mut World) {
    let Family { below, run, child, plan, .. } = family(world, one()).await;
    let mut runs = vec![child];
    for _ in 0..5 {
        let its = world.claim_one(below).await;
        let new = world.child_of(&its, &plan, 0);
        runs.push(new.id);
        assert_eq!(world.asks(below, &its, ask::child(new)).await, None);
    }
    world.perform_operation(Operation::Cancel(run)).await;
    for run in runs {
        assert_eq!(world.life(run, 0).await.state, State::Cancelled(Reason::User));
    }
}

pub async fn a_child_is_paused_and_unpaused_with_its_parents_run(world: &mut World) {
    let Family { above, below, run, task, child, plan } = family(world, one()).await;
    world.perform_operation(Operation::Pause(Scope::Run(run))).await;
    assert!(world.view(child).await.run.paused_at.is_some());
    assert!(world.claim(below, 1).await.is_empty());
    // What is begun in the pause waits for its end.
    let new = world.child_of(&task, &plan, 1);
    let second = new.id;
    assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
    assert!(world.claim(below, 1).await.is_empty());
    world.perform_operation(Operation::Unpause(Scope::Run(run))).await;
    let mut taken: Vec<_> = world.claim(below, 9).await.iter().map(|task| task.run).collect();
    taken.sort_unstable();
    assert_eq!(taken, [child, second]);
}

pub async fn a_child_with_a_key_that_is_taken_is_waited_for_and_not_owned(world: &mut World) {
    let (parent, plan) = (one().build(), child_plan());
    let above = world.worker_of(&["q"], &[&parent]).await;
    let below = world.worker_of(&["q"], &[&plan]).await;
    for _ in 0..2 {
        let new = NewRun { queue: "q".into(), ..world.new_run(&parent) };
        world.submit_run(new).await;
    }
    let tasks = world.claim(above, 2).await;
    let keyed = |new: NewRun| NewRun { key: Some("once".to_owned()), ..new };
    let [first, second] =
        [world.child_of(&tasks[0], &plan, 0), world.child_of(&tasks[1], &plan, 0)];
    let child = first.id;
    assert_eq!(world.asks(above, &tasks[0], ask::child(keyed(first))).await, None);
    let unused = second.id;
    assert_eq!(world.asks(above, &tasks[1], ask::child(keyed(second))).await, None);
    assert_eq!(world.store().run(unused).await.expect("it can be looked for"), None);
    // The second neither cancels it nor pauses it.
    world.perform_operation(Operation::Pause(Scope::Run(tasks[1].run))).await;
    assert_eq!(world.view(child).await.run.paused_at, None);
    let its = world.claim_one(below).await;
    assert_eq!(its.run, child);
    world.tell(above, change::fail(&tasks[1])).await;
    assert_eq!(world.kinds(child).await, [Kind::Active]);
    world.tell(above, change::fail(&tasks[0])).await;
    assert_eq!(world.kinds(child).await, [Kind::Cancelled]);
}

pub async fn a_child_may_wait_for_its_sibling(world: &mut World) {
    let Family { above, below, task, child, plan, .. } = family(world, one()).await;
    let new = world.child_of(&task, &plan, 1);
    let sibling = new.id;
    assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
    let its = world.claim(below, 2).await;
    let first = its.iter().find(|its| its.run == child).expect("it was taken");
    assert_eq!(world.asks(below, first, ask::run(sibling)).await, None);
}

// ----------------------------------------------------------------------------------- awaited --

pub async fn a_claim_of_what_is_awaited_takes_nothing_else(world: &mut World) {
    let Family { below, child, plan, task, .. } = family(world, one()).await;
    let alone = world.submit(&plan).await.id;
    let only = || Claim { room: 0, ..claim(9, 0) };
    let taken = world.claim_with(below, only()).await.claimed;
    assert_eq!(taken.iter().map(|task| task.run).collect::<Vec<_>>(), [child]);
    assert!(taken[0].awaited);
    assert!(world.claim_with(below, only()).await.claimed.is_empty());
    let mut request = world.request_of(below);
    request.submits.push(world.new_run(&plan));
    request.claim = only();
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty(), "nor what becomes ready in this request");
    let new = reply.submits[0].as_ref().expect("it is accepted").id;
    world.perform_operation(Operation::Cancel(new)).await;
    // From when somebody waits for it, it is awaited, in that request and later.
    let both = world.worker(&[&plan, &task.plan]).await;
    world.submit(&task.plan).await;
    let waits = world.claim(both, 1).await.remove(0);
    let (waits, alone) = match waits.run == alone {
        true => (world.claim(both, 1).await.remove(0), waits),
        false => (waits, world.claim(both, 1).await.remove(0)),
    };
    world.tell(both, change::hand_back(&alone)).await;
    let mut request = world.request_of(both);
    request.changes.push(change::asks(&waits, [ask::run(alone.run)]));
    request.claim = only();
    let taken = world.take(request).await.claimed;
    assert_eq!(keys(&taken), [alone.key]);
    assert!(taken[0].awaited);
}

pub async fn what_is_awaited_comes_in_beyond_the_room_there_is_for_others(world: &mut World) {
    let (parent, heavy) = (one().build(), plan("heavy").task("a", &[]).weight(2).build());
    let (above, below) = (world.worker(&[&parent]).await, world.worker(&[&parent, &heavy]).await);
    world.submit(&parent).await;
    let task = world.claim_one(above).await;
    let others = [world.submit(&parent).await.id, world.submit(&parent).await.id];
    world.advance(SECOND);
    let new = world.child_of(&task, &heavy, 0);
    let child = new.id;
    assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
    let little = Claim { room: 1, ..claim(4, 0) };
    let reply = world.claim_with(below, little).await;
    let taken: Vec<_> = reply.claimed.iter().map(|task| task.run).collect();
    assert_eq!(taken, [others[0], child], "the second of the others is passed over");
    assert!(reply.more);
}

pub async fn what_was_ready_before_somebody_waited_for_it_is_awaited_too(world: &mut World) {
    let (parent, plan) = (one().build(), plan("two").task("a", &[]).task("b", &[]).build());
    let (above, below) = (world.worker(&[&parent]).await, world.worker(&[&plan]).await);
    world.submit(&parent).await;
    let other = world.submit(&plan).await.id;
    let task = world.claim_one(above).await;
    let only = || Claim { room: 0, ..claim(9, 0) };
    assert!(world.claim_with(below, only()).await.claimed.is_empty());
    assert_eq!(world.asks(above, &task, ask::run(other)).await, None);
    let taken = world.claim_with(below, only()).await.claimed;
    assert_eq!(taken.iter().map(|task| task.run).collect::<Vec<_>>(), [other, other]);
}

pub async fn tasks_that_become_ready_in_an_awaited_run_are_awaited(world: &mut World) {
    let (parent, plan) = (one().build(), crate::chain(2).build());
    let (above, below) = (world.worker(&[&parent]).await, world.worker(&[&plan]).await);
    world.submit(&parent).await;
    let task = world.claim_one(above).await;
    let new = world.child_of(&task, &plan, 0);
    world.asks(above, &task, ask::child(new)).await;
    for _ in 0..2 {
        let only = Claim { room: 0, ..claim(9, 0) };
        let taken = world.claim_with(below, only).await.claimed;
        assert_eq!(taken.len(), 1);
        world.tell(below, change::succeed(&taken[0])).await;
    }
}

pub async fn awaited_and_other_tasks_are_taken_in_one_order(world: &mut World) {
    let Family { below, child, plan, .. } = family(world, one()).await;
    world.advance(SECOND);
    let later = world.submit(&plan).await.id;
    let urgent = NewRun { priority: 60, ..world.new_run(&plan) };
    let urgent = world.submit_run(urgent).await.id;
    let taken: Vec<_> = world.claim(below, 9).await.iter().map(|task| task.run).collect();
    assert_eq!(taken, [urgent, child, later]);
}

/// Two thousand children of one task end, and the task is told of each.
pub async fn a_task_may_have_many_children(world: &mut World) {
    let (parent, plan) = (one().build(), child_plan());
    let worker = world.worker(&[&parent, &plan]).await;
    world.submit(&parent).await;
    let task = world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    let children: Vec<_> = (0..500).map(|at| world.child_of(&task, &plan, at)).collect();
    request.changes.push(change::asks(&task, children.into_iter().map(ask::child)));
    request.claim = claim(500, 0);
    let its = world.take(request).await.claimed;
    assert_eq!(its.len(), 500);
    let mut request = world.request_of(worker);
    request.changes = its.iter().map(change::succeed).collect();
    let reply = world.take(request).await;
    assert_eq!((reply.ended.len(), reply.answers.len()), (500, 500));
    world.tell(worker, change::fail(&task)).await;
}

pub async fn a_run_of_items_is_such_a_child(world: &mut World) {
    let parent = plan("mapped").task("each", &[]).each("list").build();
    let worker = world.worker(&[&parent]).await;
    world.submit(&parent).await;
    let each = world.claim_one(worker).await;
    let items = Plan::items("mapped", "each", 2, OnFailure::FailFast, Default::default());
    let wait = WaitId::new(WaitKind::Child, "items", 0);
    let new = NewRun {
        id: RunId::of_items(each.execution()),
        parent: Some(Parent::new(each.key, each.life.fence, wait.clone())),
        items: vec![tidegate_core::store::Bytes::from(&b"x"[..]); 2],
        ..world.new_run(&Arc::new(items))
    };
    let mut request = world.request_of(worker);
    request.submits.push(new);
    request.claim = claim(2, 0);
    let items = world.take(request).await.claimed;
    assert!(items.iter().all(|item| item.awaited));
    let reply = world.tell(worker, change::succeed(&items[0])).await;
    assert!(reply.answers.is_empty());
    let reply = world.tell(worker, change::succeed(&items[1])).await;
    assert_eq!(reply.answers.len(), 1);
    assert_eq!(reply.answers[0].2.id, wait);
    assert_eq!(reply.answers[0].2.outcome, Some(WaitOutcome::Ended(RunOutcome::Succeeded)));
}
