//! Waits that are stored: begun once, ended once, and known again by a later entry.

use super::SECOND;
use crate::{Sketch, World, ask, change, one, plan, waits_of};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::graph::{OnFailure, RunOutcome};
use tidegate_core::lifecycle::{Fence, Kind, WorkerId};
use tidegate_core::plan::Plan;
use tidegate_core::store::{Applied, Change, Claimed, NewRun, Operation};
use tidegate_core::wait::{Awaited, WaitId, WaitKind, WaitOp, WaitOutcome, Waiting};
use tidegate_core::{Backoff, RunId, Timestamp};

fn id(kind: WaitKind, name: &str, number: u32) -> WaitId {
    WaitId::new(kind, name, number)
}

/// A worker, a run of this plan, and its one task, begun.
async fn begun(world: &mut World, sketch: Sketch) -> (WorkerId, RunId, Claimed) {
    let plan = sketch.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    (worker, run, world.claim_one(worker).await)
}

/// One task that is tried again at once.
fn tried_again() -> Sketch {
    one().rules(|rules| (rules.retries, rules.backoff) = (3, Backoff::fixed(Duration::ZERO)))
}

/// The task is handed back and taken again.
async fn enter_again(world: &mut World, worker: WorkerId, task: &Claimed) -> Claimed {
    world.tell(worker, change::hand_back(task)).await;
    world.claim_one(worker).await
}

fn ids(waits: &[Waiting]) -> Vec<WaitId> {
    waits.iter().map(|wait| wait.id.clone()).collect()
}

fn refused(answer: Option<WaitOutcome>) -> String {
    match answer {
        Some(WaitOutcome::Refused(why)) => why,
        other => panic!("it is not refused: {other:?}"),
    }
}

pub async fn a_step_that_was_stored_is_given_to_the_next_entry(world: &mut World) {
    let (worker, run, task) = begun(world, one()).await;
    assert!(waits_of(&task).is_empty());
    let stored = world.now();
    let answer = world.asks(worker, &task, ask::step("charge", "paid")).await;
    assert_eq!(answer, Some(ask::value("paid")));
    world.advance(SECOND);
    let task = enter_again(world, worker, &task).await;
    let [wait] = &waits_of(&task)[..] else { panic!("{:?}", waits_of(&task)) };
    assert_eq!(wait.id, id(WaitKind::Step, "charge", 0));
    assert_eq!((&wait.outcome, wait.since), (&Some(ask::value("paid")), stored));
    assert_eq!((wait.due, wait.run, wait.signal), (None, None, None));
    world.tell(worker, change::succeed(&task)).await;
    assert_eq!(world.kinds(run).await, [Kind::Succeeded]);
}

pub async fn what_a_step_came_to_may_be_nothing_or_any_bytes(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let any: Vec<u8> = (0..=255).collect();
    let outcomes = [
        WaitOutcome::Value(None),
        WaitOutcome::Value(Some(any.into())),
        ask::value(""),
        ask::value("ä\n"),
    ];
    for (number, outcome) in (0..).zip(&outcomes) {
        let op = ask::end(id(WaitKind::Step, "s", number), outcome.clone());
        assert_eq!(world.asks(worker, &task, op).await.as_ref(), Some(outcome));
    }
    let task = enter_again(world, worker, &task).await;
    let given: Vec<_> = waits_of(&task).iter().filter_map(|wait| wait.outcome.clone()).collect();
    assert_eq!(given, outcomes);
}

pub async fn every_way_to_end_is_read_back_as_it_was_written(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let ended = [RunOutcome::Succeeded, RunOutcome::Failed, RunOutcome::Cancelled];
    let mut outcomes: Vec<_> = ended.map(WaitOutcome::Ended).into();
    outcomes.extend([WaitOutcome::Elapsed, WaitOutcome::TimedOut, WaitOutcome::Won(0)]);
    outcomes.push(WaitOutcome::Won(70_000));
    for (number, outcome) in (0..).zip(&outcomes) {
        let op = ask::end(id(WaitKind::Any, "", number), outcome.clone());
        assert_eq!(world.asks(worker, &task, op).await.as_ref(), Some(outcome));
    }
    let task = enter_again(world, worker, &task).await;
    let given: Vec<_> = waits_of(&task).iter().filter_map(|wait| wait.outcome.clone()).collect();
    assert_eq!(given, outcomes);
}

pub async fn open_waits_and_ended_ones_are_given_with_the_claim(world: &mut World) {
    let (worker, run, task) = begun(world, one()).await;
    let (began, due) = (world.now(), world.now() + SECOND * 60);
    let ops = [ask::sleep(0, due), ask::signal("go", 1), ask::signal("go", 0), ask::step("s", "x")];
    world.tell(worker, change::asks(&task, ops)).await;
    world.advance(SECOND);
    let task = enter_again(world, worker, &task).await;
    let known = [
        id(WaitKind::Step, "s", 0),
        id(WaitKind::Signal, "go", 0),
        id(WaitKind::Signal, "go", 1),
        id(WaitKind::Sleep, "", 0),
    ];
    assert_eq!(ids(&waits_of(&task)), known, "by identity");
    let open: Vec<_> = waits_of(&task).iter().map(Waiting::is_open).collect();
    assert_eq!(open, [false, true, true, true]);
    assert!(waits_of(&task).iter().all(|wait| wait.since == began));
    assert_eq!((waits_of(&task)[3].due, waits_of(&task)[2].due), (Some(due), None));
    assert_eq!(waits_of(&task)[1].run, Some(world.view(run).await.run.key));
    // A sleep that is asked for again keeps its time.
    let later = ask::sleep(0, due + SECOND * 60);
    assert_eq!(world.asks(worker, &task, later).await, None);
    let task = enter_again(world, worker, &task).await;
    assert_eq!((waits_of(&task)[3].due, waits_of(&task)[3].since), (Some(due), began));
}

pub async fn waits_are_given_with_tasks_taken_in_the_request_that_stores_them(world: &mut World) {
    let (worker, _, task) = begun(world, tried_again()).await;
    let mut request = world.request_of(worker);
    request.claim = crate::claim(1, 0);
    request.changes.push(Change { waits: vec![ask::step("s", "x")], ..change::fail(&task) });
    let reply = world.take(request).await;
    assert_eq!(ids(&waits_of(&reply.claimed[0])), [id(WaitKind::Step, "s", 0)]);
}

pub async fn a_wait_for_another_thing_at_the_same_place_is_refused_naming_both(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let labelled = |label: &str| WaitOp::Begin {
        id: id(WaitKind::Sleep, "", 0),
        label: label.into(),
        due: None,
        what: Awaited::Time,
        releasing: Vec::new(),
    };
    assert_eq!(world.asks(worker, &task, labelled("an hour")).await, None);
    let task = enter_again(world, worker, &task).await;
    let why = refused(world.asks(worker, &task, labelled("a day")).await);
    assert!(why.contains("an hour") && why.contains("a day"), "{why}");
    let end = WaitOp::End {
        id: id(WaitKind::Sleep, "", 0),
        label: "a week".into(),
        outcome: WaitOutcome::Elapsed,
    };
    let why = refused(world.asks(worker, &task, end).await);
    assert!(why.contains("an hour") && why.contains("a week"), "{why}");
    // Nothing has come of it.
    let task = enter_again(world, worker, &task).await;
    assert_eq!((&*waits_of(&task)[0].label, waits_of(&task)[0].is_open()), ("an hour", true));
    assert_eq!(world.asks(worker, &task, labelled("an hour")).await, None);
}

pub async fn the_first_end_of_a_wait_stands(world: &mut World) {
    let (worker, run, task) = begun(world, one()).await;
    let sleep = id(WaitKind::Sleep, "", 0);
    world.asks(worker, &task, ask::sleep(0, world.now())).await;
    for outcome in [WaitOutcome::Elapsed, WaitOutcome::TimedOut] {
        let answer = world.asks(worker, &task, ask::end(sleep.clone(), outcome)).await;
        assert_eq!(answer, Some(WaitOutcome::Elapsed));
    }
    let again = ask::sleep(0, world.now() + SECOND);
    assert_eq!(world.asks(worker, &task, again).await, Some(WaitOutcome::Elapsed));
    // What came before its patience was over stands, and the other way round.
    let wait = |number| id(WaitKind::Signal, "go", number);
    world.tell(worker, change::asks(&task, [ask::signal("go", 0), ask::signal("go", 1)])).await;
    world.send(run, "go", "first").await;
    for (number, stands) in [(0, ask::value("first")), (1, WaitOutcome::TimedOut)] {
        let over = ask::end(wait(number), WaitOutcome::TimedOut);
        assert_eq!(world.asks(worker, &task, over).await, Some(stands));
    }
    // What is over takes no signal any more.
    world.send(run, "go", "second").await;
    assert_eq!(world.asks(worker, &task, ask::signal("go", 2)).await, Some(ask::value("second")));
}

pub async fn a_wait_that_is_closed_is_as_if_it_had_never_begun(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let sleep = id(WaitKind::Sleep, "", 0);
    world.asks(worker, &task, ask::sleep(0, world.now())).await;
    for _ in 0..2 {
        let close = change::asks(&task, [WaitOp::Close(sleep.clone())]);
        assert!(world.tell(worker, close).await.answers.is_empty());
    }
    let task = enter_again(world, worker, &task).await;
    assert!(waits_of(&task).is_empty());
    let due = world.now() + SECOND;
    assert_eq!(world.asks(worker, &task, ask::sleep(0, due)).await, None);
    let task = enter_again(world, worker, &task).await;
    assert_eq!(waits_of(&task)[0].due, Some(due));
}

pub async fn what_is_asked_in_a_request_whose_answer_was_lost_is_answered_again(world: &mut World) {
    let (worker, run, task) = begun(world, one()).await;
    world.send(run, "go", "first").await;
    world.send(run, "go", "second").await;
    let ops = || {
        let closed = id(WaitKind::Signal, "go", 7);
        let ops = [ask::sleep(0, Timestamp::from_micros(7)), ask::signal("go", 0)];
        let more = [ask::step("s", "x"), WaitOp::Close(closed)];
        ops.into_iter().chain(more)
    };
    let deferred = change::defer(&task, SECOND, "x");
    for change in [change::asks(&task, ops()), Change { waits: ops().collect(), ..deferred }] {
        let mut request = world.request_of(worker);
        request.changes.push(change);
        for reply in world.take_twice(request).await {
            assert_eq!(reply.changes, [Applied::Yes]);
            let answers: Vec<_> =
                reply.answers.into_iter().map(|(_, _, answer)| answer.outcome).collect();
            let expected = [None, Some(ask::value("first")), Some(ask::value("x"))];
            assert_eq!(answers, expected);
        }
    }
    assert_eq!(world.asks(worker, &task, ask::signal("go", 1)).await, Some(ask::value("second")));
}

pub async fn what_is_asked_together_with_what_is_lost_is_not_begun(world: &mut World) {
    let (worker, run, task) = begun(world, one()).await;
    let lost = Change { waits: vec![ask::signal("go", 0)], ..change::begin(&task) };
    let reply = world.say(worker, lost).await;
    assert!(matches!(reply.changes[..], [Applied::Lost { .. }]) && reply.answers.is_empty());
    world.send(run, "go", "x").await;
    let task = enter_again(world, worker, &task).await;
    assert!(waits_of(&task).is_empty());
}

pub async fn only_who_runs_a_task_has_waits_of_it(world: &mut World) {
    let (worker, run, task) = begun(world, one()).await;
    let stale = change::asks(&task, [ask::signal("go", 0)]);
    let early = Change { fence: Fence(task.life.fence.0 + 1), ..stale.clone() };
    let reply = world.say(worker, early).await;
    assert!(matches!(reply.changes[..], [Applied::Lost { .. }]));
    world.tell(worker, change::hand_back(&task)).await;
    let next = world.claim_one(worker).await;
    let reply = world.say(worker, stale.clone()).await;
    assert!(matches!(reply.changes[..], [Applied::Lost { .. }]) && reply.answers.is_empty());
    world.tell(worker, change::succeed(&next)).await;
    let reply = world.say(worker, stale).await;
    assert!(matches!(reply.changes[..], [Applied::Lost { .. }]));
    assert_eq!(world.kinds(run).await, [Kind::Succeeded]);
}

/// One wait of each kind, open and ended; the child ended or not.
async fn all_kinds(world: &mut World, worker: WorkerId, task: &Claimed, child: &Arc<Plan>) {
    let (run, later) = (task.run, world.now() + SECOND * 3_600);
    let other = world.submit(child).await.id;
    world.send(run, "got", "x").await;
    let new = world.child_of(task, child, 0);
    let ops = [
        ask::step("done", "x"),
        ask::signal("got", 0),
        ask::signal("open", 0),
        ask::signal("late", 0),
        ask::end(id(WaitKind::Signal, "late", 0), WaitOutcome::TimedOut),
        ask::sleep(0, later),
        ask::sleep(1, later),
        ask::end(id(WaitKind::Sleep, "", 1), WaitOutcome::Elapsed),
        ask::child(new),
        ask::run(other),
        ask::end(id(WaitKind::Any, "", 0), WaitOutcome::Won(1)),
    ];
    world.tell(worker, change::asks(task, ops)).await;
}

pub async fn a_new_attempt_keeps_steps_signals_and_children_and_nothing_else(world: &mut World) {
    let snooze = |task: &Claimed| change::snooze(task, Duration::ZERO);
    for anew in [change::fail as fn(&Claimed) -> Change, snooze] {
        let (worker, run, task) = begun(world, tried_again()).await;
        let child = plan("child").task("c", &[]).build();
        all_kinds(world, worker, &task, &child).await;
        assert_eq!(ids(&enter_again_waits(world, worker, &task).await).len(), 9);
        let task = world.claim_one(worker).await;
        world.tell(worker, anew(&task)).await;
        let task = world.claim_one(worker).await;
        let kept = [
            id(WaitKind::Step, "done", 0),
            id(WaitKind::Signal, "got", 0),
            id(WaitKind::Child, "", 0),
        ];
        assert_eq!(ids(&waits_of(&task)), kept);
        // What it has received it does not receive again; what it waited for is there.
        assert_eq!(world.asks(worker, &task, ask::signal("got", 0)).await, Some(ask::value("x")));
        world.send(run, "open", "y").await;
        assert_eq!(world.asks(worker, &task, ask::signal("open", 0)).await, Some(ask::value("y")));
        world.tell(worker, change::succeed(&task)).await;
    }
}

/// The waits a task has when it is entered again; it is given back at once.
async fn enter_again_waits(world: &mut World, worker: WorkerId, task: &Claimed) -> Vec<Waiting> {
    let task = enter_again(world, worker, task).await;
    world.tell(worker, change::hand_back(&task)).await;
    waits_of(&task)
}

pub async fn all_waits_outlive_a_hand_back_a_death_and_a_park(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let child = plan("child").task("c", &[]).build();
    all_kinds(world, worker, &task, &child).await;
    let before = enter_again_waits(world, worker, &task).await;
    assert_eq!(before.len(), 9);
    let task = world.claim_one(worker).await;
    assert_eq!(waits_of(&task), before, "handed back");
    world.tell(worker, change::park(&task, Some(world.now()))).await;
    let task = world.claim_one(worker).await;
    assert_eq!(waits_of(&task), before, "parked");
    world.tell(worker, change::defer(&task, SECOND, "x")).await;
    world.tell(worker, change::resume(&task)).await;
    world.kill(worker).await;
    world.recover(worker).await;
    let another = world.worker(&[&task.plan]).await;
    let task = world.claim_one(another).await;
    assert_eq!(waits_of(&task), before, "its worker has died");
}

pub async fn an_ended_task_takes_no_signal_any_more(world: &mut World) {
    let ends = [change::succeed as fn(&Claimed) -> Change, change::fail];
    for end in ends {
        let both = plan("both").task("a", &[]).task("b", &[]);
        let plan = both.on_failure(OnFailure::KeepGoing).build();
        let worker = world.worker(&[&plan]).await;
        let run = world.submit(&plan).await.id;
        let tasks = world.claim(worker, 2).await;
        assert_eq!(world.asks(worker, &tasks[0], ask::signal("go", 0)).await, None);
        world.tell(worker, end(&tasks[0])).await;
        world.send(run, "go", "x").await;
        let answer = world.asks(worker, &tasks[1], ask::signal("go", 0)).await;
        assert_eq!(answer, Some(ask::value("x")));
        world.tell(worker, change::succeed(&tasks[1])).await;
    }
}

// ------------------------------------------------------------------------------ ends of runs --

pub async fn a_wait_for_a_run_ends_with_that_run_and_in_its_way(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let other = plan("other").task("o", &[]).build();
    let elsewhere = world.worker(&[&other]).await;
    type End = fn(&Claimed) -> Change;
    let ends: [(End, RunOutcome); 2] =
        [(change::succeed, RunOutcome::Succeeded), (change::fail, RunOutcome::Failed)];
    for (end, outcome) in ends {
        let run = world.submit(&other).await.id;
        let its = world.claim_one(elsewhere).await;
        assert_eq!(world.asks(worker, &task, ask::run(run)).await, None);
        world.tell(elsewhere, end(&its)).await;
        let ended = Some(WaitOutcome::Ended(outcome));
        assert_eq!(world.asks(worker, &task, ask::run(run)).await, ended);
    }
    let run = world.submit(&other).await.id;
    assert_eq!(world.asks(worker, &task, ask::run(run)).await, None);
    world.perform_operation(Operation::Cancel(run)).await;
    let ended = Some(WaitOutcome::Ended(RunOutcome::Cancelled));
    assert_eq!(world.asks(worker, &task, ask::run(run)).await, ended);
}

pub async fn all_who_wait_for_a_run_are_told_of_its_end(world: &mut World) {
    let waits = plan("waits").task("a", &[]).task("b", &[]).build();
    let other = plan("other").task("o", &[]).build();
    let (worker, elsewhere) = (world.worker(&[&waits]).await, world.worker(&[&other]).await);
    world.submit(&waits).await;
    let run = world.submit(&other).await.id;
    let tasks = world.claim(worker, 2).await;
    for task in &tasks {
        assert_eq!(world.asks(worker, task, ask::run(run)).await, None);
    }
    let its = world.claim_one(elsewhere).await;
    // In the request of who ends it, for those of that worker; the others are asked to ask.
    world.tell(elsewhere, change::succeed(&its)).await;
    let request = world.request_of(worker);
    let asked: Vec<_> = world.take(request).await.ask_again;
    assert_eq!(asked, [(tasks[0].key, tasks[0].life.fence), (tasks[1].key, tasks[1].life.fence)]);
}

pub async fn a_run_that_has_ended_or_ends_in_the_same_request_answers_at_once(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let other = plan("other").task("o", &[]).build();
    let knows = world.worker(&[&other]).await;
    let ended = world.submit(&other).await.id;
    let its = world.claim_one(knows).await;
    world.tell(knows, change::succeed(&its)).await;
    let succeeded = Some(WaitOutcome::Ended(RunOutcome::Succeeded));
    assert_eq!(world.asks(worker, &task, ask::run(ended)).await, succeeded);
    // Said before, and said after, in one request of one worker.
    let both = world.worker(&[&task.plan, &other]).await;
    for first in [true, false] {
        let run = world.submit(&other).await.id;
        let its = world.claim_one(knows).await;
        world.tell(knows, change::hand_back(&its)).await;
        world.submit(&task.plan).await;
        let mut tasks = world.claim(both, 2).await;
        tasks.sort_by_key(|task| task.run != run);
        let mut request = world.request_of(both);
        request.changes =
            vec![change::succeed(&tasks[0]), change::asks(&tasks[1], [ask::run(run)])];
        if !first {
            request.changes.reverse();
        }
        let answers = world.take(request).await.answers;
        let last = answers.last().expect("it is answered");
        assert_eq!((last.0, &last.2.outcome), (tasks[1].key, &succeeded), "{first}");
        assert_eq!(answers.len(), if first { 1 } else { 2 });
        world.tell(both, change::succeed(&tasks[1])).await;
    }
}

pub async fn a_run_that_is_not_there_cannot_be_waited_for(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let unknown = RunId::from_u128(77);
    let why = refused(world.asks(worker, &task, ask::run(unknown)).await);
    assert!(why.contains(&unknown.to_string()), "{why}");
    let task = enter_again(world, worker, &task).await;
    assert!(waits_of(&task).is_empty());
}

pub async fn a_run_of_another_queue_can_be_waited_for(world: &mut World) {
    let (worker, _, task) = begun(world, one()).await;
    let other = plan("other").task("o", &[]).build();
    let elsewhere = world.worker_of(&["elsewhere"], &[&other]).await;
    let new = world.new_run(&other);
    let run = world.submit_run(NewRun { queue: "elsewhere".into(), ..new }).await.id;
    assert_eq!(world.asks(worker, &task, ask::run(run)).await, None);
    let its = world.claim_one(elsewhere).await;
    assert!(its.awaited, "who takes it knows that somebody waits");
    world.tell(elsewhere, change::succeed(&its)).await;
    let request = world.request_of(worker);
    assert_eq!(world.take(request).await.ask_again, [(task.key, task.life.fence)]);
}

// ------------------------------------------------------------------------------------ cycles --

pub async fn a_cycle_of_waits_is_refused_when_it_closes_naming_its_runs(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    for length in 1..=4 {
        let mut runs = Vec::new();
        for _ in 0..length {
            runs.push(world.submit(&plan).await.id);
        }
        let tasks = world.claim(worker, length as u32).await;
        for (task, next) in tasks.iter().zip(&runs[1..]) {
            assert_eq!(world.asks(worker, task, ask::run(*next)).await, None);
        }
        let last = &tasks[length - 1];
        let why = refused(world.asks(worker, last, ask::run(runs[0])).await);
        for run in [runs[0], runs[length - 1]] {
            assert!(why.contains(&run.to_string()), "{length}: {why}");
        }
        assert!(why.contains("\"a\""), "{why}");
        // Nothing waits any more once the last has ended, and then it is no cycle.
        for task in tasks.iter().rev() {
            world.tell(worker, change::succeed(task)).await;
        }
    }
}

pub async fn a_wait_that_is_over_closes_no_cycle(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let runs = [world.submit(&plan).await.id, world.submit(&plan).await.id];
    let tasks = world.claim(worker, 2).await;
    assert_eq!(world.asks(worker, &tasks[0], ask::run(runs[1])).await, None);
    let wait = id(WaitKind::Run, &runs[1].to_string(), 0);
    world.tell(worker, change::asks(&tasks[0], [WaitOp::Close(wait)])).await;
    assert_eq!(world.asks(worker, &tasks[1], ask::run(runs[0])).await, None);
}

pub async fn a_cycle_through_children_is_refused(world: &mut World) {
    let (worker, run, task) = begun(world, one()).await;
    let child = plan("child").task("c", &[]).build();
    let below = world.worker(&[&child]).await;
    let new = world.child_of(&task, &child, 0);
    assert_eq!(world.asks(worker, &task, ask::child(new)).await, None);
    let first = world.claim_one(below).await;
    let new = world.child_of(&first, &child, 0);
    assert_eq!(world.asks(below, &first, ask::child(new)).await, None);
    let second = world.claim_one(below).await;
    for above in [run, first.run] {
        let why = refused(world.asks(below, &second, ask::run(above)).await);
        assert!(why.contains(&above.to_string()), "{why}");
    }
}

pub async fn many_may_wait_for_one_run_and_one_for_many(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(world.submit(&plan).await.id);
    }
    let tasks = world.claim(worker, 4).await;
    // The first waits for all others, and each of those for all behind it: no cycle.
    for (at, task) in tasks.iter().enumerate() {
        for run in &runs[at + 1..] {
            assert_eq!(world.asks(worker, task, ask::run(*run)).await, None);
        }
    }
    for (at, task) in tasks.iter().enumerate().rev() {
        let reply = world.tell(worker, change::succeed(task)).await;
        assert_eq!(reply.answers.len(), at, "all before it wait for it");
    }
}
