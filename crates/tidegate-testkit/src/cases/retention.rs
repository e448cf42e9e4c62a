//! What is no longer kept, and what pruning leaves as it was.

use super::SECOND;
use crate::{Sketch, World, ask, chain, change, claim, fan, one, plan};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::graph::{OnFailure, RunOutcome, TaskIndex};
use tidegate_core::lifecycle::{Kind, WorkerId};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::retention::{Aged, Prune, Pruned};
use tidegate_core::rows::Payload;
use tidegate_core::store::{
    Applied, Claimed, NewRun, Operation, OperationOutcome, RunsPage, Scope,
};
use tidegate_core::wait::{WaitId, WaitKind, WaitOutcome};
use tidegate_core::{Backoff, RunId};

const DAY: Duration = Duration::from_secs(86_400);

/// Takes all steps; what they came to together, and how many they were.
async fn prune(world: &mut World, what: Aged, most: u32) -> (Pruned, usize) {
    let mut step = Some(Prune { most, ..Prune::new(what, world.now()) });
    let (mut all, mut steps) = (Pruned::default(), 0);
    while let Some(next) = step {
        let pruned = world.prune(next).await;
        step = next.after(&pruned);
        all.runs.extend(pruned.runs);
        (all.events, all.signals) = (all.events + pruned.events, all.signals + pruned.signals);
        steps += 1;
        assert!(steps < 10_000, "it comes to an end");
    }
    (all, steps)
}

async fn prune_runs(world: &mut World) -> Vec<RunId> {
    prune(world, Aged::Runs, 1_000).await.0.runs
}

/// A run of this plan that has succeeded.
async fn ended(world: &mut World, worker: WorkerId, plan: &Arc<Plan>) -> RunId {
    let run = world.submit(plan).await.id;
    loop {
        let claimed = world.claim(worker, 1_000).await;
        if claimed.is_empty() {
            return run;
        }
        let mut request = world.request_of(worker);
        request.changes = claimed.iter().map(|task| change::succeed_with(task, "1", "2")).collect();
        let reply = world.take(request).await;
        assert!(reply.changes.iter().all(|applied| *applied == Applied::Yes));
    }
}

async fn is_there(world: &World, run: RunId) -> bool {
    world.store().run(run).await.expect("a run can be looked for").is_some()
}

pub async fn what_ended_before_goes_with_all_that_belongs_to_it_and_nothing_else(
    world: &mut World,
) {
    let plan = chain(3).build();
    let worker = world.worker(&[&plan]).await;
    let old = ended(world, worker, &plan).await;
    let key = world.view(old).await.run.key;
    world.advance(SECOND);
    let step = Prune::new(Aged::Runs, world.now());
    let at_the_time = ended(world, worker, &plan).await;
    world.advance(SECOND);
    let later = ended(world, worker, &plan).await;
    let kept = [world.view(at_the_time).await, world.view(later).await];
    let pruned = world.prune(step).await;
    assert_eq!(pruned, Pruned { runs: vec![old], ..Pruned::default() });
    assert!(!is_there(world, old).await);
    assert_eq!([world.view(at_the_time).await, world.view(later).await], kept);
    let store = world.store();
    let listed = store.runs(RunsPage::default()).await.expect("runs can be listed");
    assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [later, at_the_time]);
    assert_eq!(
        store
            .payloads(key.task(TaskIndex::from_u32(0)), 3, Payload::Output)
            .await
            .expect("they can be read"),
        []
    );
    assert_eq!(store.records(Some(key), 0, 100).await.expect("they can be read"), []);
    assert!(world.records().await.iter().all(|record| record.run_id != old));
    assert_eq!(
        store.explain(key.task(TaskIndex::from_u32(1)), world.now()).await.expect("it is asked"),
        None
    );
    assert_eq!(world.ask(Operation::Cancel(old)).await.operations, [OperationOutcome::Unknown]);
    let signal = world.new_signal(old, "s", "1");
    assert_eq!(world.ask(Operation::Signal(signal)).await.operations, [OperationOutcome::Unknown]);
}

pub async fn an_open_run_stays_however_old_it_is(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let open = world.submit(&plan).await.id;
    let first = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&first)).await;
    let cancelled = world.submit(&plan).await.id;
    world.perform_operation(Operation::Cancel(cancelled)).await;
    world.advance(DAY);
    assert_eq!(prune_runs(world).await, [cancelled], "it stands behind one that stays");
    let second = world.claim_one(worker).await;
    assert_eq!(second.run, open);
    world.tell(worker, change::succeed(&second)).await;
    assert_eq!(prune_runs(world).await, [], "it has ended now, not before");
    world.advance(SECOND);
    assert_eq!(prune_runs(world).await, [open]);
}

/// A task, begun, and a run that it has begun.
async fn family(world: &mut World, sketch: Sketch) -> (WorkerId, WorkerId, Claimed, RunId) {
    let (parent, child) = (sketch.build(), plan("child").task("c", &[]).build());
    let (above, below) = (world.worker(&[&parent]).await, world.worker(&[&child]).await);
    world.submit(&parent).await;
    let task = world.claim_one(above).await;
    let new = world.child_of(&task, &child, 0);
    let id = new.id;
    assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
    (above, below, task, id)
}

pub async fn a_run_that_a_task_has_begun_goes_when_the_run_of_that_task_is_gone(world: &mut World) {
    let (above, below, task, child) = family(world, one()).await;
    let its = world.claim_one(below).await;
    world.tell(below, change::succeed_with(&its, "7", "")).await;
    world.advance(DAY);
    assert_eq!(prune_runs(world).await, [], "a later entry is answered from it");
    world.tell(above, change::hand_back(&task)).await;
    let task = world.claim_one(above).await;
    assert_eq!(task.waits[0].1, Some(child));
    world.tell(above, change::succeed(&task)).await;
    world.advance(SECOND);
    assert_eq!(prune_runs(world).await, [task.run, child]);
}

pub async fn a_child_that_goes_on_after_its_parents_run_is_gone_is_its_own(world: &mut World) {
    let (above, below, task, child) = family(world, one()).await;
    world.tell(above, change::succeed(&task)).await;
    world.advance(DAY);
    assert_eq!(prune_runs(world).await, [task.run]);
    let its = world.claim_one(below).await;
    world.perform_operation(Operation::Pause(Scope::Run(child))).await;
    world.perform_operation(Operation::Unpause(Scope::Run(child))).await;
    world.tell(below, change::succeed(&its)).await;
    world.advance(SECOND);
    assert_eq!(prune_runs(world).await, [child]);
}

pub async fn items_whose_parents_run_is_gone_can_still_be_taken(world: &mut World) {
    let parent = one().build();
    let (rule, task) = (OnFailure::FailFast, TaskPlan::default());
    let item = Arc::new(Plan::items("one", "a", 2, rule, task));
    let worker = world.worker(&[&parent]).await;
    world.submit(&parent).await;
    let task = world.claim_one(worker).await;
    let items = vec![b"1"[..].into(), b"2"[..].into()];
    let new = NewRun { items, ..world.child_of(&task, &item, 0) };
    let id = new.id;
    world.asks(worker, &task, ask::child(new)).await;
    world.tell(worker, change::succeed(&task)).await;
    world.advance(DAY);
    assert_eq!(prune_runs(world).await, [task.run]);
    let taken = world.claim(worker, 2).await;
    assert_eq!(taken.len(), 2);
    assert_eq!(taken[1].given.item.as_deref(), Some(&b"2"[..]));
    assert_eq!(world.asks(worker, &taken[0], ask::signal("s", 0)).await, None);
    world.send(id, "s", "1").await;
    world.tell(worker, change::succeed(&taken[0])).await;
    world.tell(worker, change::succeed(&taken[1])).await;
    assert_eq!(world.view(id).await.run.ended.map(|ended| ended.0), Some(RunOutcome::Succeeded));
}

pub async fn a_key_is_free_when_its_run_is_gone(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let keyed = |new: NewRun| NewRun { key: Some("k".to_owned()), ..new };
    let new = keyed(world.new_run(&plan));
    let first = world.submit_run(new).await;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    let again = keyed(world.new_run(&plan));
    assert_eq!(world.submit_run(again).await.id, first.id);
    world.advance(DAY);
    prune_runs(world).await;
    let other = NewRun { input: Some(b"other"[..].into()), ..keyed(world.new_run(&plan)) };
    let second = world.submit_run(other).await;
    assert!(!second.existing && second.key > first.key);
}

pub async fn numbers_are_not_given_again(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let last = ended(world, worker, &plan).await;
    let key = world.view(last).await.run.key;
    let last_seq = world.records().await.last().expect("two tasks have ended").seq;
    world.advance(DAY);
    prune_runs(world).await;
    assert_eq!(world.records().await, []);
    world.reopen().await;
    let worker = world.worker(&[&plan]).await;
    let next = ended(world, worker, &plan).await;
    assert!(world.view(next).await.run.key.0 >= key.0 + 2);
    assert!(world.records().await[0].seq > last_seq, "a reader that has seen it goes on behind it");
    let records = world.records().await;
    world.advance(DAY);
    prune(world, Aged::Events, 1_000).await;
    world.reopen().await;
    let worker = world.worker(&[&plan]).await;
    ended(world, worker, &plan).await;
    assert!(world.records().await[0].seq > records[1].seq);
}

pub async fn a_wait_that_a_run_has_ended_is_answered_although_the_run_is_gone(world: &mut World) {
    let (waiter, awaited) = (one().build(), plan("other").task("o", &[]).build());
    let (above, below) = (world.worker(&[&waiter]).await, world.worker(&[&awaited]).await);
    let run = world.submit(&awaited).await.id;
    world.submit(&waiter).await;
    let task = world.claim_one(above).await;
    assert_eq!(world.asks(above, &task, ask::run(run)).await, None);
    let its = world.claim_one(below).await;
    world.tell(below, change::succeed(&its)).await;
    world.advance(DAY);
    assert_eq!(prune_runs(world).await, [run]);
    let over = Some(WaitOutcome::Ended(RunOutcome::Succeeded));
    assert_eq!(world.asks(above, &task, ask::run(run)).await, over);
    world.tell(above, change::hand_back(&task)).await;
    let task = world.claim_one(above).await;
    let (wait, name) = &task.waits[0];
    assert_eq!((&wait.outcome, *name), (&over, None), "its name is gone with it");
    assert_eq!(world.asks(above, &task, ask::run(run)).await, over);
    world.tell(above, change::succeed(&task)).await;
}

pub async fn a_run_that_another_has_begun_may_be_gone_when_it_would_be_waited_for_anew(
    world: &mut World,
) {
    let sketch =
        one().rules(|rules| (rules.retries, rules.backoff) = (3, Backoff::fixed(Duration::ZERO)));
    let (parent, child) = (sketch.build(), plan("child").task("c", &[]).build());
    let (above, below) = (world.worker(&[&parent]).await, world.worker(&[&child]).await);
    let keyed = |new: NewRun| NewRun { key: Some("once".to_owned()), ..new };
    let new = keyed(world.new_run(&child));
    let run = world.submit_run(new).await.id;
    world.submit(&parent).await;
    let task = world.claim_one(above).await;
    let new = keyed(world.child_of(&task, &child, 0));
    assert_eq!(world.asks(above, &task, ask::child(new)).await, None);
    let first = WaitId::new(WaitKind::Child, "", 0);
    world.asks(above, &task, ask::end(first, WaitOutcome::TimedOut)).await;
    let its = world.claim_one(below).await;
    world.tell(below, change::succeed(&its)).await;
    world.advance(DAY);
    assert_eq!(prune_runs(world).await, [run]);
    world.tell(above, change::fail(&task)).await;
    let task = world.claim_one(above).await;
    assert_eq!(task.waits[0].0.outcome, Some(WaitOutcome::TimedOut));
    world.tell(above, change::fail_by(&task, tidegate_core::lifecycle::Failure::Error, true)).await;
    assert_eq!(world.kinds(task.run).await, [Kind::Failed]);
}

pub async fn what_is_said_of_a_task_of_a_gone_run_is_lost(world: &mut World) {
    let plan = fan(200).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let root = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&root)).await;
    let tasks = world.claim(worker, 300).await;
    world.perform_operation(Operation::Cancel(run)).await;
    world.advance(DAY);
    let step = Prune { most: 5, ..Prune::new(Aged::Runs, world.now()) };
    let mut next = Some(step);
    while let Some(step) = next {
        let pruned = world.prune(step).await;
        for task in [&tasks[0], &tasks[199]] {
            let said = world.say(worker, change::succeed(task)).await;
            assert_eq!(said.changes, [Applied::Lost { actual: None }]);
        }
        next = step.after(&pruned);
    }
    assert!(!is_there(world, run).await);
}

pub async fn a_large_run_goes_in_short_steps_and_is_never_seen_half(world: &mut World) {
    let plan = fan(998).build();
    let worker = world.worker(&[&plan]).await;
    let large = ended(world, worker, &plan).await;
    let small = one().build();
    let other = world.worker(&[&small]).await;
    let behind = ended(world, other, &small).await;
    world.advance(DAY);
    let mut step = Prune { most: 50, ..Prune::new(Aged::Runs, world.now()) };
    let pruned = world.prune(step).await;
    assert_eq!(pruned.runs, [large], "it is gone with the first step");
    assert!(pruned.next.is_some(), "and there is more to do");
    let mut next = step.after(&pruned);
    let mut gone = Vec::new();
    while let Some(then) = next {
        assert!(!is_there(world, large).await);
        let listed = world.store().runs(RunsPage::default()).await.expect("runs can be listed");
        assert!(listed.iter().all(|run| run.id != large));
        assert!(world.records().await.iter().all(|record| record.run_id != large));
        step = then;
        let pruned = world.prune(step).await;
        gone.extend(pruned.runs.iter().copied());
        next = step.after(&pruned);
    }
    assert_eq!(gone, [behind]);
    assert_eq!(world.records().await, []);
}

pub async fn what_one_has_begun_to_prune_anybody_goes_on_with(world: &mut World) {
    let plan = fan(400).build();
    let worker = world.worker(&[&plan]).await;
    let run = ended(world, worker, &plan).await;
    world.advance(DAY);
    let step = Prune { most: 10, ..Prune::new(Aged::Runs, world.now()) };
    assert_eq!(world.prune(step).await.runs, [run]);
    // Whoever began it is gone; so is what it knew of where it was.
    world.reopen().await;
    let (pruned, _) = prune(world, Aged::Signals, 10).await;
    assert_eq!(pruned, Pruned::default());
    let worker = world.worker(&[&plan]).await;
    let next = ended(world, worker, &plan).await;
    assert_eq!(world.view(next).await.tasks.len(), 402);
}

/// A step that had just room for what an earlier one had left took that for all there was.
pub async fn a_step_that_is_spent_on_what_was_left_is_not_the_last(world: &mut World) {
    let (large, small) = (fan(100).build(), one().build());
    let worker = world.worker(&[&large, &small]).await;
    let first = ended(world, worker, &large).await;
    world.advance(DAY);
    assert_eq!(prune(world, Aged::Events, 1_000).await.0.events, 102);
    let before = world.now();
    ended(world, worker, &small).await;
    world.advance(DAY);
    let step = Prune { most: 1, ..Prune::new(Aged::Runs, before) };
    assert_eq!(world.prune(step).await.runs, [first]);
    assert_eq!(prune(world, Aged::Events, 1).await.0.events, 1);
}

pub async fn a_step_is_bounded_and_the_next_goes_on_where_it_was(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request_of(worker);
    request.submits = (0..300).map(|_| world.new_run(&plan)).collect();
    request.claim = claim(150, 0);
    let taken = world.take(request).await.claimed;
    let mut request = world.request_of(worker);
    request.changes = taken.iter().map(change::succeed).collect();
    world.take(request).await;
    world.advance(DAY);
    let mut step = Prune { most: 20, ..Prune::new(Aged::Runs, world.now()) };
    let mut gone = Vec::new();
    loop {
        let pruned = world.prune(step).await;
        assert!(pruned.runs.len() <= 20, "a step is short");
        gone.extend(pruned.runs.iter().copied());
        match step.after(&pruned) {
            Some(next) => {
                assert!(next.from >= step.from);
                step = next;
            }
            None => break,
        }
    }
    assert_eq!(gone, taken.iter().map(|task| task.run).collect::<Vec<_>>(), "the oldest first");
    let counts = world.store().counts().await.expect("they are counted");
    assert_eq!(counts.ready, 150);
}

pub async fn others_write_between_the_steps(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let mut old = Vec::new();
    for _ in 0..12 {
        old.push(ended(world, worker, &plan).await);
    }
    world.advance(DAY);
    let mut step = Some(Prune { most: 3, ..Prune::new(Aged::Runs, world.now()) });
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    while let Some(next) = step {
        let pruned = world.prune(next).await;
        step = next.after(&pruned);
        gone.extend(pruned.runs);
        if new.len() < 10 {
            new.push(ended(world, worker, &plan).await);
        }
    }
    assert_eq!(gone, old);
    for run in new {
        assert_eq!(world.kinds(run).await, [Kind::Succeeded; 2]);
    }
}

pub async fn events_of_runs_that_have_ended_go_and_the_runs_stay(world: &mut World) {
    let retried =
        one().rules(|rules| (rules.retries, rules.backoff) = (1, Backoff::fixed(Duration::ZERO)));
    let plan = retried.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::fail(&task)).await;
    world.advance(SECOND);
    assert_eq!(prune(world, Aged::Events, 1_000).await.0.events, 0, "the run is open");
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    assert_eq!(prune(world, Aged::Events, 1_000).await.0.events, 0, "it has ended just now");
    world.advance(SECOND);
    let later = ended(world, worker, &plan).await;
    let view = world.view(run).await;
    let (pruned, steps) = prune(world, Aged::Events, 1).await;
    assert_eq!((pruned.events, pruned.runs), (2, vec![]));
    assert!(steps >= 2, "one at a time");
    assert_eq!(world.view(run).await, view);
    let left: Vec<_> = world.records().await.iter().map(|record| record.run_id).collect();
    assert_eq!(left, [later]);
    world.advance(SECOND);
    assert_eq!(prune_runs(world).await, [run, later]);
}

pub async fn signals_that_nobody_will_receive_any_more_go(world: &mut World) {
    let plan = plan("two").task("a", &[]).task("b", &[]).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let tasks = world.claim(worker, 2).await;
    for name in ["early", "late", "never"] {
        world.send(run, name, "1").await;
    }
    let received = Some(ask::value("1"));
    assert_eq!(world.asks(worker, &tasks[0], ask::signal("early", 0)).await, received);
    assert_eq!(world.asks(worker, &tasks[1], ask::signal("late", 0)).await, received);
    world.advance(DAY);
    assert_eq!(prune(world, Aged::Signals, 1).await.0.signals, 0, "both may ask again");
    world.tell(worker, change::succeed(&tasks[0])).await;
    assert_eq!(prune(world, Aged::Signals, 1).await.0.signals, 1, "the first does not");
    assert_eq!(world.asks(worker, &tasks[1], ask::signal("late", 0)).await, received);
    world.tell(worker, change::succeed(&tasks[1])).await;
    assert_eq!(prune(world, Aged::Signals, 1).await.0.signals, 2);
    let other = world.submit(&plan).await.id;
    world.send(other, "kept", "1").await;
    assert_eq!(prune(world, Aged::Signals, 100).await.0.signals, 0, "it was sent just now");
    world.advance(DAY);
    assert_eq!(prune(world, Aged::Signals, 100).await.0.signals, 0, "its run is open");
}

pub async fn pauses_words_and_signals_go_with_their_run(world: &mut World) {
    let plan = one().build();
    let (worker, other) = (world.worker(&[&plan]).await, world.worker(&[]).await);
    let run = world.submit(&plan).await.id;
    world.claim_one(worker).await;
    world.send(run, "s", "1").await;
    world.perform_operation(Operation::Pause(Scope::Run(run))).await;
    world.perform_operation(Operation::Unpause(Scope::Run(run))).await;
    let mut request = world.request_of(other);
    request.operations.push(Operation::Cancel(run));
    world.take(request).await;
    world.advance(DAY);
    assert_eq!(prune_runs(world).await, [run]);
    let request = world.request_of(worker);
    assert_eq!(world.take(request).await.told, [], "there is nothing to be told of");
}
