//! The races that every store must decide.
//!
//! Each is one that a store loses which reads what another transaction is about to change: the case says
//! which outcomes are allowed, in which order of commits, and that nothing is lost or doubled afterwards.

use super::{Meeting, Race};
use crate::{QUEUE, World, ask, change, claim, one, plan};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::{Kind, WorkerId};
use tidegate_core::limit::Limit;
use tidegate_core::plan::Plan;
use tidegate_core::store::{
    Applied, Change, Claimed, Operation, OperationOutcome, Reply, Request, Scope, Submitted,
};
use tidegate_core::wait::{WaitOp, WaitOutcome};

/// A request of this worker that says this of one of its tasks.
fn report_change(world: &mut World, worker: WorkerId, change: Change) -> Request {
    let mut request = world.request_of(worker);
    request.changes.push(change);
    request
}

/// A request that asks for this.
fn ask_for(world: &mut World, operation: Operation) -> Request {
    let mut request = world.request();
    request.operations.push(operation);
    request
}

/// A request of this worker that takes one task.
fn take_one(world: &mut World, worker: WorkerId) -> Request {
    Request { claim: claim(1, 0), ..world.request_of(worker) }
}

async fn enlist_two(world: &mut World, plan: &Arc<Plan>) -> [WorkerId; 2] {
    [world.worker(&[plan]).await, world.worker(&[plan]).await]
}

/// A run of this plan whose only ready task runs at this worker.
async fn begin_run(world: &mut World, plan: &Arc<Plan>, worker: WorkerId) -> (Submitted, Claimed) {
    let run = world.submit(plan).await;
    (run, world.claim_one(worker).await)
}

/// The one answer to a wait in a reply.
fn answer_in(reply: &Reply) -> Option<WaitOutcome> {
    let [(_, _, answer)] = &reply.answers[..] else { panic!("one wait is answered: {reply:#?}") };
    answer.outcome.clone()
}

fn assert_applied(meeting: &Meeting) {
    for reply in &meeting.replies {
        assert!(reply.changes.iter().all(|applied| *applied == Applied::Yes), "{reply:#?}");
    }
}

/// Each of two last parents must see that the other has ended, or their child stays blocked for ever.
/// Whichever is second makes it ready, once.
pub async fn last_parents_that_end_at_once_release_their_child(race: &mut Race) {
    let plan = plan("join").task("a", &[]).task("b", &[]).task("c", &["a", "b"]).build();
    let workers = enlist_two(&mut race.world, &plan).await;
    let (run, a) = begin_run(&mut race.world, &plan, workers[0]).await;
    let b = race.world.claim_one(workers[1]).await;
    let requests = [
        report_change(&mut race.world, workers[0], change::succeed(&a)),
        report_change(&mut race.world, workers[1], change::succeed(&b)),
    ];
    let meeting = race.race_requests(requests).await;
    assert_applied(&meeting);
    let world = &mut race.world;
    assert_eq!(world.kinds(run.id).await, [Kind::Succeeded, Kind::Succeeded, Kind::Ready]);
    let claimed = world.claim(workers[0], 9).await;
    assert_eq!(claimed.len(), 1, "the child is there once");
    assert_eq!(claimed[0].life.fence.0, 1, "it was never claimed before");
    let reply = world.tell(workers[0], change::succeed(&claimed[0])).await;
    assert_eq!(reply.ended.len(), 1);
    assert_eq!(world.records().await.len(), 3, "each task has ended once");
}

/// Two claims that add up the same units in use would both take the last ones. The first takes them; the
/// task of the second is blocked on the limit until they are released.
pub async fn claims_at_once_never_exceed_a_limit(race: &mut Race) {
    let world = &mut race.world;
    let plan = one().limit(("api", 2)).build();
    world.declare(Limit::new("api").at_once(3)).await;
    let workers = enlist_two(world, &plan).await;
    for _ in 0..2 {
        world.submit(&plan).await;
    }
    let requests = workers.map(|worker| take_one(world, worker));
    let meeting = race.race_requests(requests).await;
    let [first, second] = meeting.in_order([0, 1]);
    let world = &mut race.world;
    assert_eq!(meeting.replies[first].claimed.len(), 1);
    assert_eq!(meeting.replies[second].claimed.len(), 0);
    let limits = world.limits().await;
    assert_eq!(limits, [("api".to_owned(), String::new(), 2, 1)]);
    let holder = &meeting.replies[first].claimed[0];
    world.tell(workers[first], change::succeed(holder)).await;
    let other = world.claim_one(workers[second]).await;
    assert_ne!(other.key, holder.key);
}

/// A claim that finds the limit full puts its task in line; the last holder that releases it at the same
/// time must see that task, or it stands in line for ever. If the holder is first, the claim takes the
/// task; if the claim is first, the release makes it ready again.
pub async fn task_starts_although_the_limit_is_released_while_it_gets_in_line(race: &mut Race) {
    let world = &mut race.world;
    let plan = one().limit("api").build();
    world.declare(Limit::new("api").at_once(1)).await;
    let workers = enlist_two(world, &plan).await;
    let (_, holder) = begin_run(world, &plan, workers[0]).await;
    let waiting = world.submit(&plan).await;
    let requests =
        [report_change(world, workers[0], change::succeed(&holder)), take_one(world, workers[1])];
    let meeting = race.race_requests(requests).await;
    assert_applied(&meeting);
    let world = &mut race.world;
    let is_released_first = meeting.first == 0;
    let claimed = &meeting.replies[1].claimed;
    assert_eq!(claimed.len(), usize::from(is_released_first));
    let task = match claimed.first() {
        Some(task) => task.clone(),
        None => {
            assert_eq!(world.kinds(waiting.id).await, [Kind::Ready]);
            world.claim_one(workers[1]).await
        }
    };
    assert_eq!((task.run, task.life.fence.0), (waiting.id, 1));
    world.tell(workers[1], change::succeed(&task)).await;
    assert_eq!(world.limits().await, [("api".to_owned(), String::new(), 0, 0)]);
}

/// A signal that sees no wait is stored, and a wait that sees no signal stays open: passing each other they
/// would never meet. If the signal is first, the wait is answered at once; otherwise the signal ends it.
/// One wait receives it, and no other.
pub async fn signal_reaches_a_wait_that_begins_at_the_same_time(race: &mut Race) {
    let world = &mut race.world;
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let (run, task) = begin_run(world, &plan, worker).await;
    let signal = world.new_signal(run.id, "go", "once");
    let requests = [
        report_change(world, worker, change::asks(&task, [ask::signal("go", 0)])),
        ask_for(world, Operation::Signal(signal)),
    ];
    let meeting = race.race_requests(requests).await;
    assert_applied(&meeting);
    assert_eq!(meeting.replies[1].operations, [OperationOutcome::Yes]);
    let received = Some(ask::value("once"));
    let at_once = answer_in(&meeting.replies[0]);
    assert_eq!(at_once, received.clone().filter(|_| meeting.first == 1));
    let world = &mut race.world;
    assert_eq!(world.asks(worker, &task, ask::signal("go", 0)).await, received);
    assert_eq!(world.asks(worker, &task, ask::signal("go", 1)).await, None, "it came once");
}

/// A run that sees no waiter tells none of its end, and a wait that sees the run open stays open. If the end is
/// first, the wait is answered at once; otherwise the end of the run ends it.
pub async fn end_of_a_run_reaches_a_wait_that_begins_at_the_same_time(race: &mut Race) {
    let world = &mut race.world;
    let plan = one().build();
    let workers = enlist_two(world, &plan).await;
    let (ending, last) = begin_run(world, &plan, workers[0]).await;
    let (_, waiting) = begin_run(world, &plan, workers[1]).await;
    let requests = [
        report_change(world, workers[0], change::succeed(&last)),
        report_change(world, workers[1], change::asks(&waiting, [ask::run(ending.id)])),
    ];
    let meeting = race.race_requests(requests).await;
    assert_applied(&meeting);
    assert_eq!(meeting.replies[0].ended.len(), 1);
    let ended = Some(WaitOutcome::Ended(RunOutcome::Succeeded));
    let at_once = answer_in(&meeting.replies[1]);
    assert_eq!(at_once, ended.clone().filter(|_| meeting.first == 0));
    let world = &mut race.world;
    assert_eq!(world.asks(workers[1], &waiting, ask::run(ending.id)).await, ended);
}

/// Two ends that count down from the same number of open tasks would leave one open for ever. The second
/// ends the run, and tells so alone.
pub async fn ends_at_once_end_their_run_exactly_once(race: &mut Race) {
    let world = &mut race.world;
    let plan = plan("two").task("a", &[]).task("b", &[]).build();
    let workers = enlist_two(world, &plan).await;
    let (run, a) = begin_run(world, &plan, workers[0]).await;
    let b = world.claim_one(workers[1]).await;
    let requests = [
        report_change(world, workers[0], change::succeed(&a)),
        report_change(world, workers[1], change::succeed(&b)),
    ];
    let meeting = race.race_requests(requests).await;
    assert_applied(&meeting);
    let [first, second] = meeting.in_order([0, 1]);
    assert_eq!(meeting.replies[first].ended, []);
    assert_eq!(meeting.replies[second].ended.len(), 1);
    let view = race.world.view(run.id).await;
    assert_eq!(view.run.ended.map(|(outcome, _)| outcome), Some(RunOutcome::Succeeded));
    assert_eq!(race.world.records().await.len(), 2);
}

/// Two workers that see the same alarms would end a task twice, with two records, and wake another for both.
/// One of them ends the one and claims the other; the other one finds nothing to do. That may be the one that
/// is answered first: a store may leave out tasks that another transaction is about to change.
pub async fn alarm_that_two_workers_see_has_one_effect(race: &mut Race) {
    const LATER: Duration = Duration::from_secs(10);
    let world = &mut race.world;
    let late = plan("late").task("t", &[]).rules(|rules| rules.queue_timeout = Some(LATER)).build();
    let parked = plan("parked").task("t", &[]).build();
    let workers = enlist_two(world, &parked).await;
    let (woken, task) = begin_run(world, &parked, workers[0]).await;
    let wake = world.now() + LATER;
    world.tell(workers[0], change::park(&task, Some(wake))).await;
    let timed_out = world.submit(&late).await;
    let before = world.records().await.len();
    world.advance(LATER);
    let requests = workers.map(|worker| take_one(world, worker));
    let meeting = race.race_requests(requests).await;
    let effects = |reply: &Reply| (reply.records.len(), reply.ended.len(), reply.claimed.len());
    let mut effects = meeting.replies.each_ref().map(effects);
    effects.sort_unstable();
    assert_eq!(effects, [(0, 0, 0), (1, 1, 1)]);
    let world = &race.world;
    assert_eq!(world.records().await.len(), before + 1);
    assert_eq!(world.kinds(timed_out.id).await, [Kind::TimedOut]);
    assert_eq!(world.life(woken.id, 0).await.fence.0, 2, "it was claimed once more");
}

/// A worker that counts as dead may still claim while its tasks are taken over: a task that it gets
/// unseen would belong to no worker. If its claim is first, that task is taken over too; otherwise it is
/// not known any more and gets nothing.
pub async fn worker_that_is_recovered_while_it_claims_owns_nothing(race: &mut Race) {
    let world = &mut race.world;
    let plan = one().build();
    let [dead, other] = enlist_two(world, &plan).await;
    let (owned, task) = begin_run(world, &plan, dead).await;
    let ready = world.submit(&plan).await;
    world.kill(dead).await;
    let recover = Request { recover: Some(dead), ..world.request_of(other) };
    let requests = [recover, take_one(world, dead)];
    let meeting = race.race_requests(requests).await;
    let is_claimed = meeting.first == 1;
    let claimed = &meeting.replies[1].claimed;
    assert_eq!(claimed.len(), usize::from(is_claimed));
    assert_eq!(meeting.replies[0].recovered, 1 + u32::from(is_claimed));
    let world = &mut race.world;
    let known = world.store().workers().await.expect("workers can be listed");
    assert!(known.iter().all(|worker| worker.id != dead), "it is not known any more");
    for run in [owned, ready] {
        assert_eq!(world.kinds(run.id).await, [Kind::Ready]);
    }
    for task in claimed.iter().chain([&task]) {
        let reply = world.say(dead, change::succeed(task)).await;
        assert!(matches!(reply.changes[..], [Applied::Lost { .. }]), "its fence is of the past");
    }
    assert_eq!(world.claim(other, 9).await.len(), 2, "both tasks are there, once");
}

/// Once a pause is committed no claim may take what it stops, also if the claim had begun before. A claim
/// that is first keeps its task.
pub async fn claim_takes_nothing_once_a_pause_is_committed(race: &mut Race) {
    let world = &mut race.world;
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let scope = Scope::Queue(QUEUE.to_owned());
    let requests = [ask_for(world, Operation::Pause(scope.clone())), take_one(world, worker)];
    let meeting = race.race_requests(requests).await;
    assert_eq!(meeting.replies[0].operations, [OperationOutcome::Yes]);
    let is_claimed = meeting.first == 1;
    assert_eq!(meeting.replies[1].claimed.len(), usize::from(is_claimed));
    let world = &mut race.world;
    assert_eq!(world.claim(worker, 1).await.len(), 0);
    world.perform_operation(Operation::Unpause(scope)).await;
    assert_eq!(world.claim(worker, 1).await.len(), usize::from(!is_claimed));
}

/// Two waits that share no row may close a cycle together: A waits for B and C for D, and now B for C and
/// D for A. The first of them begins; the second is refused.
pub async fn waits_that_begin_at_once_never_close_a_cycle(race: &mut Race) {
    let world = &mut race.world;
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut members = Vec::new();
    for _ in 0..4 {
        members.push(begin_run(world, &plan, worker).await);
    }
    let waits_for = |from: usize, to: usize| -> (Claimed, WaitOp) {
        (members[from].1.clone(), ask::run(members[to].0.id))
    };
    for (task, wait) in [waits_for(0, 1), waits_for(2, 3)] {
        assert_eq!(world.asks(worker, &task, wait).await, None);
    }
    let closing = [waits_for(1, 2), waits_for(3, 0)];
    let requests = closing
        .clone()
        .map(|(task, wait)| report_change(world, worker, change::asks(&task, [wait])));
    let meeting = race.race_requests(requests).await;
    let [first, second] = meeting.in_order([0, 1]);
    assert_eq!(answer_in(&meeting.replies[first]), None);
    let refused = answer_in(&meeting.replies[second]);
    assert!(matches!(refused, Some(WaitOutcome::Refused(_))), "{refused:?}");
    // The one that began is answered when the run ends that it waits for.
    let awaited = if first == 0 { 2 } else { 0 };
    let world = &mut race.world;
    for member in [(awaited + 1) % 4, awaited] {
        world.tell(worker, change::succeed(&members[member].1)).await;
    }
    let (task, wait) = closing[first].clone();
    let ended = Some(WaitOutcome::Ended(RunOutcome::Succeeded));
    assert_eq!(world.asks(worker, &task, wait).await, ended);
}
