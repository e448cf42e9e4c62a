//! New runs that take over what has succeeded in old ones.

use super::SECOND;
use crate::{Sketch, World, chain, change, claim, diamond, one, plan};
use std::sync::Arc;
use tidegate_core::graph::{OnFailure, RunOutcome, TaskIndex, When};
use tidegate_core::lifecycle::{Kind, Life, Rules, WorkerId};
use tidegate_core::plan::Plan;
use tidegate_core::retention::{Aged, Prune};
use tidegate_core::store::{
    Applied, Bytes, Change, Claimed, Happened, NewRun, Operation, Refusal, RetryOf, Submitted,
};
use tidegate_core::{Backoff, RunId, TaskExecutionId};

use Kind::{Blocked, Cancelled, Failed, Ready, Skipped, Succeeded, TimedOut};

pub(super) fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

pub(super) fn name(task: &Claimed) -> &str {
    task.plan.graph().name(task.index)
}

/// What becomes of a task: those named fail, all others return their name and the number of the run
/// it was done in, and put their name into the context.
pub(super) fn end_of(task: &Claimed, fails: &[&str], number: u32) -> Change {
    match fails.contains(&name(task)) {
        true => change::fail(task),
        false => change::succeed_with(
            task,
            &format!("{}{number}", name(task)),
            &format!("+{}", name(task)),
        ),
    }
}

/// Does all that is ready until there is nothing more; which tasks were done, in order.
pub(super) async fn play(
    world: &mut World,
    worker: WorkerId,
    fails: &[&str],
    number: u32,
) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        let claimed = world.claim(worker, 1).await;
        let Some(task) = claimed.first() else { return done };
        world.tell(worker, end_of(task, fails, number)).await;
        done.push(name(task).to_owned());
    }
}

/// A run of this plan that has ended, in which these tasks have failed.
async fn ended(world: &mut World, plan: &Arc<Plan>, fails: &[&str]) -> (WorkerId, RunId) {
    let worker = world.worker(&[plan]).await;
    let run = world.submit(plan).await.id;
    play(world, worker, fails, 1).await;
    assert!(world.view(run).await.run.ended.is_some());
    (worker, run)
}

/// A retry of this run, to be submitted.
pub(super) fn retry_of(world: &mut World, run: RunId, plan: &Arc<Plan>) -> NewRun {
    let retry_of = Some(Box::new(RetryOf { run, again: Vec::new() }));
    NewRun { retry_of, ..world.new_run(plan) }
}

pub(super) async fn submit(world: &mut World, new: NewRun) -> Result<Submitted, Refusal> {
    let mut request = world.request();
    request.submits.push(new);
    world.take(request).await.submits.remove(0)
}

/// Submits a retry of this run.
pub(super) async fn retry(world: &mut World, run: RunId, plan: &Arc<Plan>) -> RunId {
    let new = retry_of(world, run, plan);
    submit(world, new).await.expect("it is retried").id
}

/// Which tasks of a run were taken over.
pub(super) async fn taken_over(world: &World, run: RunId) -> Vec<String> {
    let view = world.view(run).await;
    let tasks = view.run.plan.graph().tasks().zip(&view.tasks);
    let taken = tasks.filter(|(_, task)| task.life.is_taken_over());
    taken.map(|(task, _)| view.run.plan.graph().name(task).to_owned()).collect()
}

/// What the task of this place has returned.
pub(super) async fn output(world: &World, run: RunId, at: usize) -> Option<Bytes> {
    world.output(world.view(run).await.tasks[at].key).await
}

pub async fn a_retry_takes_over_what_has_succeeded_and_does_the_rest(world: &mut World) {
    let plan = diamond().on_failure(OnFailure::KeepGoing).build();
    let (worker, old) = ended(world, &plan, &["b"]).await;
    assert_eq!(world.kinds(old).await, [Succeeded, Failed, Succeeded, Skipped]);
    let before = world.view(old).await;
    world.advance(SECOND);

    let mut request = world.request();
    request.submits.push(retry_of(world, old, &plan));
    let new = request.submits[0].id;
    let reply = world.take(request).await;
    assert_eq!(world.kinds(new).await, [Succeeded, Ready, Succeeded, Blocked]);
    let view = world.view(new).await;
    assert_eq!((view.run.retry_of, view.run.ended), (Some(old), None));
    assert!(view.tasks[0].life.is_taken_over() && view.tasks[2].life.is_taken_over());
    assert_eq!(view.tasks[0].ended_at, Some(world.now()));
    let told: Vec<_> = reply.records.iter().map(|it| (it.task.as_u32(), it.what)).collect();
    assert_eq!(told, [(0, Happened::TakenOver), (2, Happened::TakenOver)]);
    let record = &reply.records[0];
    assert_eq!((record.run_id, record.entry, record.worker), (new, 0, None));
    assert_eq!(output(world, new, 0).await, Some(bytes("a1")));
    assert_eq!(output(world, new, 2).await, Some(bytes("c1")));
    assert_eq!(output(world, new, 1).await, None);

    assert_eq!(play(world, worker, &[], 2).await, ["b", "d"]);
    let view = world.view(new).await;
    assert_eq!(view.run.ended.map(|(outcome, _)| outcome), Some(RunOutcome::Succeeded));
    assert_eq!(world.view(old).await, before, "the old run stays as it is");
}

pub async fn what_was_taken_over_is_given_to_whatever_comes_after_it(world: &mut World) {
    let plan = diamond().build();
    let (_, old) = ended(world, &plan, &["d"]).await;
    let new = retry(world, old, &plan).await;
    world.reopen().await;
    let worker = world.worker(&[&plan]).await;
    let task = world.claim_one(worker).await;
    let index = TaskIndex::from_u32;
    assert_eq!((name(&task), task.run), ("d", new));
    assert_eq!(task.execution(), TaskExecutionId::of(new, index(3)), "it has a name of its own");
    assert_eq!(task.given.outputs, [(index(1), bytes("b1")), (index(2), bytes("c1"))]);
    assert!(task.given.absent.is_empty());
    let inserts = [(index(0), bytes("+a")), (index(1), bytes("+b")), (index(2), bytes("+c"))];
    assert_eq!(task.given.inserts, inserts);
}

pub async fn what_follows_from_what_was_taken_over_can_begin_in_the_same_request(
    world: &mut World,
) {
    let plan = chain(3).build();
    let (worker, old) = ended(world, &plan, &["t1"]).await;
    let mut request = world.request_of(worker);
    request.submits.push(retry_of(world, old, &plan));
    request.claim = claim(1, 0);
    let reply = world.take(request).await;
    let [task] = &reply.claimed[..] else { panic!("one is taken: {:?}", reply.claimed) };
    assert_eq!((name(task), task.life.entries), ("t1", 1));
}

pub async fn what_has_changed_runs_again_with_all_that_comes_after_it(world: &mut World) {
    let keep_going = |sketch: Sketch| sketch.on_failure(OnFailure::KeepGoing).build();
    let before = |print: &str| {
        let sketch = plan("w").task("a", &[]).task("b", &["a"]).fingerprint(print);
        keep_going(sketch.task("c", &["b"]).task("d", &["a"]).task("e", &[]))
    };
    let (worker, old) = ended(world, &before("1"), &["e"]).await;
    let new = retry(world, old, &before("2")).await;
    assert_eq!(taken_over(world, new).await, ["a", "d"]);
    assert_eq!(play(world, worker, &[], 2).await, ["b", "c", "e"]);

    // What it comes after, and under which rule, is part of what it does.
    let sketch = || plan("w").task("a", &[]).task("b", &["a"]).task("c", &["b"]);
    let rest = |sketch: Sketch| keep_going(sketch.task("d", &["a"]).task("e", &[]));
    let other_rule = rest(sketch().when(When::AllDone));
    let (_, old) = ended(world, &rest(sketch()), &["e"]).await;
    let new = retry(world, old, &other_rule).await;
    assert_eq!(taken_over(world, new).await, ["a", "b", "d"]);
    let other_place = rest(plan("w").task("a", &[]).task("b", &["a"]).task("c", &["a", "b"]));
    let new = retry(world, old, &other_place).await;
    assert_eq!(taken_over(world, new).await, ["a", "b", "d"]);
}

pub async fn what_is_only_to_be_done_in_another_way_is_taken_over(world: &mut World) {
    let before = plan("w").task("a", &[]).task("b", &[]).build();
    let (_, old) = ended(world, &before, &["b"]).await;
    let other = |rules: &mut Rules| {
        *rules = Rules {
            retries: 3,
            backoff: Backoff::fixed(SECOND),
            queue_timeout: Some(SECOND),
            deadline: Some(SECOND * 9),
        };
    };
    let sketch = plan("w").task("a", &[]).weight(2).priority(7).rules(other);
    let new = retry(world, old, &sketch.limit("api").task("b", &[]).build()).await;
    assert_eq!(taken_over(world, new).await, ["a"]);
}

pub async fn a_task_that_is_new_runs_and_one_that_is_gone_is_dropped(world: &mut World) {
    let before = plan("w").task("a", &[]).task("b", &["a"]).task("c", &["b"]).build();
    let after = plan("w").task("n", &[]).task("d", &["a"]).task("a", &[]).build();
    let (_, old) = ended(world, &before, &["c"]).await;
    let worker = world.worker(&[&after]).await;
    let new = retry(world, old, &after).await;
    assert_eq!(taken_over(world, new).await, ["a"]);
    assert_eq!(output(world, new, 2).await, Some(bytes("a1")), "by name, wherever it stands");
    assert_eq!(play(world, worker, &[], 2).await, ["n", "d"]);
}

pub async fn a_rule_is_looked_at_again_with_what_was_taken_over(world: &mut World) {
    let sketch = plan("w").task("a", &[]).task("b", &["a"]);
    let sketch = sketch.task("tidy", &["a", "b"]).when(When::AllDone);
    let sketch = sketch.task("tell", &["a", "b"]).when(When::AnyFailed);
    let plan = sketch.task("any", &["a", "b"]).when(When::AnySucceeded).build();
    let (worker, old) = ended(world, &plan, &["b"]).await;
    let kinds = world.kinds(old).await;
    assert_eq!(kinds[..4], [Succeeded, Failed, Succeeded, Succeeded], "clean-up has run");
    let new = retry(world, old, &plan).await;
    assert_eq!(taken_over(world, new).await, ["a"], "clean-up was of that failure");
    assert_eq!(world.kinds(new).await, [Succeeded, Ready, Blocked, Blocked, Ready]);
    assert_eq!(play(world, worker, &[], 2).await, ["b", "tidy", "any"]);
    assert_eq!(world.kinds(new).await, [Succeeded, Succeeded, Succeeded, Skipped, Succeeded]);
}

pub async fn what_is_skipped_as_it_was_is_no_reason_to_run_again(world: &mut World) {
    let sketch = plan("w").task("a", &[]).task("tell", &["a"]).when(When::AnyFailed);
    let sketch = sketch.task("report", &["a", "tell"]).when(When::AllDone);
    let plan = sketch.task("z", &["report"]).build();
    let (worker, old) = ended(world, &plan, &["z"]).await;
    assert_eq!(world.kinds(old).await, [Succeeded, Skipped, Succeeded, Failed]);
    let new = retry(world, old, &plan).await;
    assert_eq!(taken_over(world, new).await, ["a", "report"]);
    assert_eq!(world.kinds(new).await, [Succeeded, Skipped, Succeeded, Ready]);
    assert_eq!(play(world, worker, &[], 2).await, ["z"]);

    let again = retry_of(world, new, &plan);
    let refused = submit(world, again).await;
    assert_eq!(refused, Err(Refusal::NothingLeft { run: new }), "what is skipped is no work");
}

pub async fn what_is_asked_for_runs_again_with_all_that_comes_after_it(world: &mut World) {
    let plan = diamond().build();
    let (worker, old) = ended(world, &plan, &[]).await;
    let again = vec![plan.graph().find("b").expect("it is there")];
    let new =
        NewRun { retry_of: Some(Box::new(RetryOf { run: old, again })), ..world.new_run(&plan) };
    let new = submit(world, new).await.expect("it is retried").id;
    assert_eq!(taken_over(world, new).await, ["a", "c"]);
    assert_eq!(play(world, worker, &[], 2).await, ["b", "d"]);
    assert_eq!(output(world, new, 1).await, Some(bytes("b2")));
}

pub async fn another_input_takes_over_nothing(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let input = |text: &str| Some(bytes(text));
    let old = NewRun { input: input("1"), ..world.new_run(&plan) };
    let old = world.submit_run(old).await;
    play(world, worker, &["t1"], 1).await;
    let kept = world.store().input(old.key).await.expect("it can be read");
    assert_eq!(kept, input("1"));

    let other = NewRun { input: input("2"), ..retry_of(world, old.id, &plan) };
    let other = submit(world, other).await.expect("it is retried").id;
    assert!(taken_over(world, other).await.is_empty());
    assert_eq!(world.view(other).await.run.retry_of, Some(old.id));
    let same = NewRun { input: input("1"), ..retry_of(world, old.id, &plan) };
    let same = submit(world, same).await.expect("it is retried").id;
    assert_eq!(taken_over(world, same).await, ["t0"]);
}

pub async fn a_retry_whose_answer_was_lost_is_the_same_run(world: &mut World) {
    let plan = chain(2).build();
    let (worker, old) = ended(world, &plan, &["t1"]).await;
    for key in [None, Some("k".to_owned())] {
        let mut request = world.request();
        request.submits.push(NewRun { key, ..retry_of(world, old, &plan) });
        let id = request.submits[0].id;
        let [first, second] = world.take_twice(request).await;
        assert_eq!(first.submits, second.submits);
        assert_eq!(first.submits[0].as_ref().map(|it| (it.id, it.existing)), Ok((id, false)));
        assert_eq!((first.records.len(), second.records.len()), (1, 0));
        assert_eq!(world.kinds(id).await, [Succeeded, Ready]);
        assert_eq!(play(world, worker, &[], 2).await, ["t1"]);
    }
}

pub async fn a_retry_of_a_retry_takes_over_from_that_one(world: &mut World) {
    let plan = chain(4).build();
    let (worker, first) = ended(world, &plan, &["t1"]).await;
    let second = retry(world, first, &plan).await;
    assert_eq!(play(world, worker, &["t2"], 2).await, ["t1", "t2"]);
    let third = retry(world, second, &plan).await;
    assert_eq!(world.view(third).await.run.retry_of, Some(second));
    assert_eq!(taken_over(world, third).await, ["t0", "t1"]);
    assert_eq!(output(world, third, 0).await, Some(bytes("t01")), "from the first of them");
    assert_eq!(output(world, third, 1).await, Some(bytes("t12")));
    assert_eq!(play(world, worker, &[], 3).await, ["t2", "t3"]);
}

pub async fn a_run_can_be_retried_more_than_once(world: &mut World) {
    let plan = chain(2).build();
    let (worker, old) = ended(world, &plan, &["t1"]).await;
    let first = retry(world, old, &plan).await;
    let second = retry(world, old, &plan).await;
    play(world, worker, &[], 2).await;
    let third = retry(world, old, &plan).await;
    for run in [first, second, third] {
        assert_eq!(world.view(run).await.run.retry_of, Some(old));
        assert_eq!(taken_over(world, run).await, ["t0"]);
    }
}

pub async fn a_cancelled_run_is_retried(world: &mut World) {
    let plan = chain(3).build();
    let worker = world.worker(&[&plan]).await;
    let old = world.submit(&plan).await.id;
    let first = world.claim_one(worker).await;
    world.tell(worker, end_of(&first, &[], 1)).await;
    world.claim_one(worker).await;
    world.perform_operation(Operation::Cancel(old)).await;
    assert_eq!(world.kinds(old).await, [Succeeded, Cancelled, Cancelled]);
    let new = retry(world, old, &plan).await;
    assert_eq!(taken_over(world, new).await, ["t0"]);
    assert_eq!(play(world, worker, &[], 2).await, ["t1", "t2"]);
    let ended = world.view(new).await.run.ended.map(|(outcome, _)| outcome);
    assert_eq!(ended, Some(RunOutcome::Succeeded), "that the old one was cancelled is its own");
}

pub async fn a_run_that_ran_out_of_time_is_retried(world: &mut World) {
    let sketch = plan("w").task("a", &[]).task("b", &["a"]);
    let plan = sketch.rules(|rules| rules.deadline = Some(SECOND * 5)).build();
    let worker = world.worker(&[&plan]).await;
    let old = world.submit(&plan).await.id;
    let first = world.claim_one(worker).await;
    world.tell(worker, end_of(&first, &[], 1)).await;
    world.claim_one(worker).await;
    world.advance(SECOND * 5);
    world.look().await;
    assert_eq!(world.kinds(old).await, [Succeeded, TimedOut]);
    let new = retry(world, old, &plan).await;
    assert_eq!(taken_over(world, new).await, ["a"]);
    assert_eq!(play(world, worker, &[], 2).await, ["b"]);
}

pub async fn a_run_that_has_not_ended_is_not_retried(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let old = world.submit(&plan).await.id;
    let refusal = Err(Refusal::NotEnded { run: old });
    let new = retry_of(world, old, &plan);
    assert_eq!(submit(world, new).await, refusal);
    let first = world.claim_one(worker).await;
    world.tell(worker, end_of(&first, &[], 1)).await;
    let new = retry_of(world, old, &plan);
    assert_eq!(submit(world, new.clone()).await, refusal);
    assert_eq!(world.store().run(new.id).await.expect("it can be looked for"), None);
}

pub async fn a_run_that_ends_in_the_same_request_is_retried(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let old = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::fail(&task));
    request.submits.push(retry_of(world, old, &plan));
    let reply = world.take(request).await;
    assert_eq!(reply.changes, [Applied::Yes]);
    let new = reply.submits[0].as_ref().expect("what was said before it counts").id;
    assert_eq!(world.life(new, 0).await, Life::ready(world.now(), world.now()));
}

pub async fn a_run_that_does_not_exist_is_not_retried(world: &mut World) {
    let plan = one().build();
    let run = RunId::new(world.now(), 99);
    let new = retry_of(world, run, &plan);
    let refused = submit(world, new).await;
    assert_eq!(refused, Err(Refusal::NoRun { run }));
    let Err(refusal) = refused else { unreachable!("it was refused") };
    assert!(refusal.to_string().contains(&run.to_string()), "{refusal}");
}

pub async fn a_run_of_which_nothing_is_left_is_not_retried(world: &mut World) {
    let plan = diamond().build();
    let (_, old) = ended(world, &plan, &[]).await;
    let new = retry_of(world, old, &plan);
    assert_eq!(submit(world, new).await, Err(Refusal::NothingLeft { run: old }));
    let more = diamond().task("e", &[]).build();
    let new = retry(world, old, &more).await;
    assert_eq!(taken_over(world, new).await, ["a", "b", "c", "d"]);
}

pub async fn a_key_belongs_to_a_retry_of_one_run(world: &mut World) {
    let plan = chain(2).build();
    let keyed = |new: NewRun| NewRun { key: Some("k".to_owned()), ..new };
    let (_, old) = ended(world, &plan, &["t1"]).await;
    let (worker, other) = ended(world, &plan, &["t1"]).await;
    let new = keyed(retry_of(world, old, &plan));
    let first = submit(world, new).await.expect("it is retried");
    let new = keyed(retry_of(world, old, &plan));
    let again = submit(world, new).await;
    assert_eq!(again, Ok(Submitted { existing: true, ..first }));
    // Also when the first has ended, and all of it is done.
    play(world, worker, &[], 2).await;
    let new = keyed(retry_of(world, old, &plan));
    assert_eq!(submit(world, new).await, again);

    let refusal = Err(Refusal::KeyOfAnother { key: "k".to_owned(), by: first.id });
    let new = keyed(retry_of(world, other, &plan));
    assert_eq!(submit(world, new).await, refusal);
    let new = keyed(world.new_run(&plan));
    assert_eq!(submit(world, new).await, refusal);
}

pub async fn a_run_goes_although_its_retry_is_there(world: &mut World) {
    let plan = chain(2).build();
    let (worker, old) = ended(world, &plan, &["t1"]).await;
    world.advance(SECOND);
    let new = retry(world, old, &plan).await;
    let pruned = world.prune(Prune::new(Aged::Runs, world.now())).await;
    assert_eq!(pruned.runs, [old]);
    assert_eq!(world.view(new).await.run.retry_of, Some(old), "it is named all the same");
    assert_eq!(output(world, new, 0).await, Some(bytes("t01")), "what was taken over is its own");
    assert_eq!(play(world, worker, &["t1"], 2).await, ["t1"]);

    let again = retry_of(world, old, &plan);
    assert_eq!(submit(world, again).await, Err(Refusal::NoRun { run: old }));
    let again = retry(world, new, &plan).await;
    assert_eq!(taken_over(world, again).await, ["t0"]);
}
