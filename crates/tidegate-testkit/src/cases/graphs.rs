//! What the end of one task means for others.

use super::SECOND;
use crate::world::keys;
use crate::{Sketch, World, chain, change, claim, diamond, fan, one, plan};
use tidegate_core::RunId;
use tidegate_core::graph::{OnFailure, RunOutcome, TaskIndex, When};
use tidegate_core::lifecycle::{CancelledBy, Kind, Reason, State, WorkerId};
use tidegate_core::rows::Payload;
use tidegate_core::store::{Applied, Bytes, Change, Claimed, NewRun, Reply, Told};

fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

fn index(at: u32) -> TaskIndex {
    TaskIndex::from_u32(at)
}

/// A worker and all that is ready of one run of this plan, begun.
async fn begin(world: &mut World, sketch: Sketch) -> (WorkerId, RunId, Vec<Claimed>) {
    let plan = sketch.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let claimed = world.claim(worker, 99).await;
    (worker, run, claimed)
}

/// Says this and takes all that is there.
async fn say_and_claim(world: &mut World, worker: WorkerId, changes: Vec<Change>) -> Reply {
    let mut request = world.request_of(worker);
    request.changes = changes;
    request.claim = claim(99, 0);
    let reply = world.take(request).await;
    assert!(reply.changes.iter().all(|applied| *applied == Applied::Yes));
    reply
}

pub async fn an_end_unblocks_the_next_which_is_taken_in_the_same_request(world: &mut World) {
    let (worker, run, mut claimed) = begin(world, chain(3)).await;
    for at in 0..3 {
        world.advance(SECOND);
        assert_eq!(claimed.len(), 1);
        let task = claimed.remove(0);
        assert_eq!(task.index, index(at));
        let reply = say_and_claim(world, worker, vec![change::succeed(&task)]).await;
        let outcomes: Vec<_> = reply.ended.iter().map(|ended| ended.outcome).collect();
        assert_eq!(outcomes, if at == 2 { vec![RunOutcome::Succeeded] } else { vec![] });
        claimed = reply.claimed;
        let ended_at = world.view(run).await.tasks[at as usize].ended_at;
        assert_eq!(ended_at, Some(world.now()));
    }
    assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Succeeded, world.now())));
}

pub async fn what_was_unblocked_has_its_place_from_then_on(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let first = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.advance(SECOND);
    let second = world.submit(&plan).await.id;
    world.advance(SECOND);
    let reply = say_and_claim(world, worker, vec![change::succeed(&task)]).await;
    assert_eq!(reply.claimed.iter().map(|task| task.run).collect::<Vec<_>>(), [second, first]);
    assert_eq!(reply.claimed[1].order, world.now());
}

pub async fn outputs_of_parents_and_inserts_of_all_above_reach_a_task(world: &mut World) {
    let plan = chain(3).build();
    let worker = world.worker(&[&plan]).await;
    let new = NewRun { input: Some(bytes("in")), ..world.new_run(&plan) };
    world.submit_run(new).await;
    let t0 = world.claim_one(worker).await;
    let said = vec![change::succeed_with(&t0, "out 0", "inserts 0")];
    let t1 = say_and_claim(world, worker, said).await.claimed.remove(0);
    assert_eq!(t1.given.outputs, [(index(0), bytes("out 0"))]);
    assert_eq!(t1.given.inserts, [(index(0), bytes("inserts 0"))]);
    world.tell(worker, change::succeed_with(&t1, "", "inserts 1")).await;
    let t2 = world.claim_one(worker).await;
    assert_eq!(t2.given.outputs, [(index(1), bytes(""))], "of its parents only, also an empty one");
    assert_eq!(t2.given.inserts, [(index(0), bytes("inserts 0")), (index(1), bytes("inserts 1"))]);
    assert_eq!(t2.given.input, Some(bytes("in")));

    assert_eq!(world.output(t0.key).await, Some(bytes("out 0")));
    assert_eq!(world.output(t2.key).await, None);
    world.tell(worker, change::succeed(&t2)).await;
    assert_eq!(world.output(t2.key).await, None);
    let all = world.store().payloads(t0.key, 3, Payload::Output).await.expect("they can be read");
    assert_eq!(all, [(t0.key, bytes("out 0")), (t1.key, bytes(""))], "of all three at once");
}

pub async fn what_a_task_returned_is_stored_with_its_success_only(world: &mut World) {
    let sketch = plan("p").task("a", &[]).rules(|rules| rules.retries = 1);
    let sketch = sketch.task("tidy", &["a"]).when(When::AllDone);
    let (worker, _, claimed) = begin(world, sketch).await;
    let task = &claimed[0];
    let lost = Change { events: change::fail(task).events, ..change::succeed_with(task, "o", "i") };
    world.tell(worker, lost).await;
    assert_eq!(world.output(task.key).await, None);
    world.advance(SECOND * 60);
    let task = world.claim_one(worker).await;
    let stale = change::succeed_with(&claimed[0], "o", "i");
    assert_ne!(world.say(worker, stale).await.changes, [Applied::Yes]);
    let lost =
        Change { events: change::fail(&task).events, ..change::succeed_with(&task, "o", "i") };
    let tidy = say_and_claim(world, worker, vec![lost]).await.claimed.remove(0);
    assert!(tidy.given.outputs.is_empty() && tidy.given.inserts.is_empty());
    assert_eq!(world.output(task.key).await, None);
}

pub async fn two_last_parents_in_one_request_let_their_child_go_once(world: &mut World) {
    let (worker, run, claimed) = begin(world, diamond()).await;
    let both = say_and_claim(world, worker, vec![change::succeed(&claimed[0])]).await.claimed;
    assert_eq!(both.len(), 2);
    let said = both.iter().map(|task| change::succeed_with(task, "out", "in")).collect();
    let last = say_and_claim(world, worker, said).await.claimed;
    assert_eq!((last.len(), last[0].index), (1, index(3)));
    assert_eq!(last[0].given.outputs.len(), 2);
    assert_eq!(last[0].given.inserts.len(), 2);
    assert_eq!(world.kinds(run).await[3], Kind::Active);
}

pub async fn two_last_parents_in_two_requests_let_their_child_go_with_the_second(
    world: &mut World,
) {
    let (worker, run, claimed) = begin(world, diamond()).await;
    let both = say_and_claim(world, worker, vec![change::succeed(&claimed[0])]).await.claimed;
    let none = say_and_claim(world, worker, vec![change::succeed(&both[1])]).await.claimed;
    assert!(none.is_empty());
    assert_eq!(world.kinds(run).await[3], Kind::Blocked);
    let last = say_and_claim(world, worker, vec![change::succeed(&both[0])]).await.claimed;
    assert_eq!((last.len(), last[0].index), (1, index(3)));
}

pub async fn last_parents_at_two_workers_let_their_child_go(world: &mut World) {
    let plan = diamond().build();
    let [one, two] = [world.worker(&[&plan]).await, world.worker(&[&plan]).await];
    let run = world.submit(&plan).await.id;
    let a = world.claim_one(one).await;
    world.tell(one, change::succeed(&a)).await;
    let (b, c) = (world.claim_one(one).await, world.claim_one(two).await);
    world.tell(two, change::succeed(&c)).await;
    assert_eq!(world.kinds(run).await[3], Kind::Blocked);
    world.tell(one, change::succeed(&b)).await;
    assert_eq!(world.kinds(run).await[3], Kind::Ready);
    assert_eq!(world.claim_one(two).await.index, index(3));
}

/// Each rule over two parents, of which the first succeeds and the second ends as said.
pub async fn every_rule_holds_across_the_store(world: &mut World) {
    use Kind::{Blocked, Ready, Skipped};
    for (when, after_first, second_fails, after_both) in [
        (When::AllSucceeded, Blocked, false, Ready),
        (When::AllSucceeded, Blocked, true, Skipped),
        (When::AllDone, Blocked, false, Ready),
        (When::AllDone, Blocked, true, Ready),
        (When::AnyFailed, Blocked, false, Skipped),
        (When::AnyFailed, Blocked, true, Ready),
        (When::AnySucceeded, Ready, false, Ready),
    ] {
        let sketch = plan("p").task("a", &[]).task("b", &[]).task("c", &["a", "b"]).when(when);
        let (worker, run, claimed) = begin(world, sketch).await;
        world.tell(worker, change::succeed(&claimed[0])).await;
        assert_eq!(world.kinds(run).await[2], after_first, "{when} after the first");
        let end = if second_fails { change::fail } else { change::succeed };
        world.tell(worker, end(&claimed[1])).await;
        assert_eq!(world.kinds(run).await[2], after_both, "{when}, second fails: {second_fails}");
        for task in world.claim(worker, 9).await {
            world.tell(worker, change::succeed(&task)).await;
        }
        let outcome = if second_fails { RunOutcome::Failed } else { RunOutcome::Succeeded };
        assert_eq!(world.view(run).await.run.ended, Some((outcome, world.now())), "{when}");
    }
}

pub async fn any_succeeded_is_skipped_when_nobody_did(world: &mut World) {
    let sketch = plan("p").task("a", &[]).task("b", &[]).task("c", &["a", "b"]);
    let sketch = sketch.when(When::AnySucceeded).on_failure(OnFailure::KeepGoing);
    let (worker, run, claimed) = begin(world, sketch).await;
    world.tell(worker, change::fail(&claimed[0])).await;
    assert_eq!(world.kinds(run).await[2], Kind::Blocked);
    world.tell(worker, change::fail(&claimed[1])).await;
    assert_eq!(world.kinds(run).await, [Kind::Failed, Kind::Failed, Kind::Skipped]);
    assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Failed, world.now())));
}

pub async fn a_failure_skips_all_that_depends_on_it(world: &mut World) {
    let (worker, run, claimed) = begin(world, chain(5)).await;
    let reply = world.tell(worker, change::fail(&claimed[0])).await;
    use Kind::{Failed, Skipped};
    assert_eq!(world.kinds(run).await, [Failed, Skipped, Skipped, Skipped, Skipped]);
    assert_eq!(reply.ended[0].outcome, RunOutcome::Failed);
    assert_eq!(reply.records.len(), 5);
    let reasons: Vec<_> = reply.records[1..].iter().map(|record| record.reason).collect();
    assert_eq!(reasons, [Some(Reason::Upstream); 4]);
    let view = world.view(run).await;
    for (task, record) in view.tasks.iter().zip(&reply.records).skip(1) {
        let why = Some("because \"t0\" has failed");
        assert_eq!((task.error.as_deref(), record.error.as_deref()), (why, why));
    }
    let view = world.view(run).await;
    assert!(view.tasks.iter().all(|task| task.ended_at == Some(world.now())));
    assert_eq!(view.run.ended, Some((RunOutcome::Failed, world.now())));
}

/// `bad` fails; `slow` computes, `waits` is deferred and `rows` parked, `ahead` is claimed and
/// `idle` ready meanwhile; `then` comes after `slow`, `tidy` after everything.
async fn under_way(world: &mut World, on_failure: OnFailure) -> (WorkerId, RunId, Vec<Claimed>) {
    let names = ["bad", "slow", "waits", "rows", "ahead", "idle"];
    let mut sketch = plan("p").on_failure(on_failure);
    for name in names {
        sketch = sketch.task(name, &[]);
    }
    let plan = sketch.task("then", &["slow"]).task("tidy", &names).when(When::AllDone).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let claimed = world.claim_with(worker, claim(4, 1)).await.claimed;
    assert_eq!(claimed.len(), 5);
    world.tell(worker, change::defer(&claimed[2], SECOND, "a file")).await;
    world.tell(worker, change::park(&claimed[3], None)).await;
    (worker, run, claimed)
}

pub async fn fail_fast_lets_finish_what_computes_and_cancels_the_rest(world: &mut World) {
    let (worker, run, claimed) = under_way(world, OnFailure::FailFast).await;
    let reply = world.tell(worker, change::fail(&claimed[0])).await;
    use Kind::{Active, Blocked, Cancelled, Failed};
    assert_eq!(
        world.kinds(run).await,
        [Failed, Active, Cancelled, Cancelled, Cancelled, Cancelled, Cancelled, Blocked]
    );
    for at in 2..7 {
        assert_eq!(world.life(run, at).await.state, State::Cancelled(Reason::FailFast));
    }
    let told = |at: usize| {
        let Claimed { key: task, ref life, .. } = claimed[at];
        Told { task, fence: life.fence, worker, kind: Cancelled }
    };
    assert_eq!(reply.told, [told(2), told(4)], "whoever has it is told");
    assert!(reply.ended.is_empty());

    let reply = say_and_claim(world, worker, vec![change::succeed(&claimed[1])]).await;
    assert_eq!(reply.claimed.len(), 1, "the clean-up");
    let reply = say_and_claim(world, worker, vec![change::succeed(&reply.claimed[0])]).await;
    assert_eq!(reply.ended[0].outcome, RunOutcome::Failed);
}

pub async fn fail_fast_ends_what_begins_to_wait_or_fails_after_the_failure(world: &mut World) {
    type Say = fn(&Claimed) -> Change;
    let says: [Say; 5] = [
        |task| change::defer(task, SECOND, "a file"),
        |task| change::park(task, None),
        |task| change::snooze(task, SECOND),
        |task| change::hand_back(task),
        |task| change::fail(task),
    ];
    for say in says {
        let sketch = plan("p").task("bad", &[]).task("slow", &[]);
        let (worker, run, claimed) = begin(world, sketch.rules(|rules| rules.retries = 3)).await;
        world.tell(worker, change::fail(&claimed[0])).await;
        assert_eq!(world.kinds(run).await, [Kind::Failed, Kind::Active]);
        let reply = world.tell(worker, say(&claimed[1])).await;
        assert_eq!(world.life(run, 1).await.state, State::Cancelled(Reason::FailFast));
        assert_eq!(reply.ended.len(), 1);
        assert_eq!(reply.ended[0].outcome, RunOutcome::Failed);
    }
}

pub async fn fail_fast_kill_stops_what_computes_and_then_cleans_up(world: &mut World) {
    let (worker, run, claimed) = under_way(world, OnFailure::FailFastKill).await;
    let reply = world.tell(worker, change::fail(&claimed[0])).await;
    let life = world.life(run, 1).await;
    assert_eq!((life.state.kind(), life.stopping), (Kind::Active, Some(CancelledBy::FailFast)));
    let stop = Told { task: claimed[1].key, fence: life.fence, worker, kind: Kind::Active };
    assert!(reply.told.contains(&stop), "{:?}", reply.told);
    assert_eq!(reply.told.len(), 3);
    assert_eq!(world.kinds(run).await[7], Kind::Blocked, "no clean-up beside what it cleans up");

    let reply = say_and_claim(world, worker, vec![change::stopped(&claimed[1])]).await;
    assert_eq!(world.life(run, 1).await.state, State::Cancelled(Reason::FailFast));
    assert_eq!((reply.claimed.len(), reply.claimed[0].index), (1, index(7)));
    let reply = world.tell(worker, change::succeed(&reply.claimed[0])).await;
    assert_eq!(reply.ended[0].outcome, RunOutcome::Failed);
}

pub async fn what_was_told_to_stop_may_still_succeed_and_nothing_else(world: &mut World) {
    let sketch = || {
        let sketch = plan("p").on_failure(OnFailure::FailFastKill).task("bad", &[]);
        sketch.task("slow", &[]).rules(|rules| rules.retries = 3)
    };
    let (worker, run, claimed) = begin(world, sketch()).await;
    world.tell(worker, change::fail(&claimed[0])).await;
    let deferred = world.say(worker, change::defer(&claimed[1], SECOND, "a file")).await;
    let actual = Some(world.life(run, 1).await);
    assert_eq!(deferred.changes, [Applied::Lost { actual }]);
    world.tell(worker, change::succeed(&claimed[1])).await;
    assert_eq!(world.kinds(run).await, [Kind::Failed, Kind::Succeeded]);

    let (worker, run, claimed) = begin(world, sketch()).await;
    world.tell(worker, change::fail(&claimed[0])).await;
    world.tell(worker, change::fail(&claimed[1])).await;
    assert_eq!(world.life(run, 1).await.state, State::Cancelled(Reason::FailFast));
}

pub async fn keep_going_goes_on_with_all_that_does_not_depend_on_the_failure(world: &mut World) {
    let (worker, run, claimed) = under_way(world, OnFailure::KeepGoing).await;
    let reply = world.tell(worker, change::fail(&claimed[0])).await;
    assert!(reply.told.is_empty());
    use Kind::{Active, Blocked, Claimed as Ahead, Deferred, Failed, Parked, Ready};
    assert_eq!(
        world.kinds(run).await,
        [Failed, Active, Deferred, Parked, Ahead, Ready, Blocked, Blocked]
    );
    let reply = say_and_claim(world, worker, vec![change::succeed(&claimed[1])]).await;
    let run_key = world.view(run).await.run.key;
    assert_eq!(keys(&reply.claimed), [run_key.task(index(5)), run_key.task(index(6))]);
}

pub async fn a_wide_run_ends_with_its_last_task(world: &mut World) {
    let (worker, run, claimed) = begin(world, fan(20)).await;
    let wide = say_and_claim(world, worker, vec![change::succeed(&claimed[0])]).await.claimed;
    assert_eq!(wide.len(), 20);
    let (last, first) = wide.split_last().expect("there are twenty");
    let said = first.iter().map(change::succeed).collect();
    assert!(say_and_claim(world, worker, said).await.claimed.is_empty());
    let end = say_and_claim(world, worker, vec![change::succeed(last)]).await.claimed;
    assert_eq!(end.len(), 1);
    let reply = world.tell(worker, change::succeed(&end[0])).await;
    assert_eq!(reply.ended.len(), 1);
    assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Succeeded, world.now())));
}

pub async fn ends_of_several_runs_in_one_request_do_not_touch_each_other(world: &mut World) {
    let (chain, single) = (chain(2).build(), one().build());
    let worker = world.worker(&[&chain, &single]).await;
    let runs = [&chain, &single, &chain].map(|plan| world.new_run(plan));
    let ids = runs.each_ref().map(|run| run.id);
    let mut request = world.request_of(worker);
    request.submits.extend(runs);
    request.claim = claim(9, 0);
    let claimed = world.take(request).await.claimed;
    let said =
        vec![change::fail(&claimed[0]), change::succeed(&claimed[1]), change::succeed(&claimed[2])];
    let reply = say_and_claim(world, worker, said).await;
    assert_eq!(reply.claimed.iter().map(|task| task.run).collect::<Vec<_>>(), [ids[2]]);
    let ended: Vec<_> = reply.ended.iter().map(|ended| (ended.id, ended.outcome)).collect();
    assert_eq!(ended, [(ids[0], RunOutcome::Failed), (ids[1], RunOutcome::Succeeded)]);
}
