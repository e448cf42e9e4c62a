//! The dispatcher by itself: what the simulation meets too seldom to be sure of.

use std::sync::Arc;
use std::time::Duration;
use tidegate_core::dispatcher::{Dispatcher, End, Input, SNOOZE_MIN, Said, Ticket, Todo};
use tidegate_core::graph::{Graph, Node, OnFailure, TaskIndex};
use tidegate_core::lifecycle::{Event, Failure, Fence, Kind, Life, Rules, WorkerId};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::rows::Owned;
use tidegate_core::store::{
    Applied, Claimed, Given, Operation, Reply, Request, RequestId, RunKey, Scope, StoreError,
    TaskKey, Told,
};
use tidegate_core::{RunId, Timestamp};

const WORKER: WorkerId = WorkerId(7);

/// The next request of a worker with four slots, none of which is free.
fn request(dispatcher: &mut Dispatcher, id: u64) -> Arc<Request> {
    let request = dispatcher.next_request(RequestId(id), Timestamp::from_micros(0), 4, |_| 0);
    request.expect("there is reason for a request")
}

#[test]
fn unknown_worker_is_said_once_and_compares_its_tasks_with_the_store() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    dispatcher.handle(Input::RollCall);
    request(&mut dispatcher, 1);
    let is_unknown = |todo: &Todo| matches!(todo, Todo::WorkerUnknown);
    for (id, said) in [(2, 1), (3, 0)] {
        let unknown = Reply { is_unknown_worker: true, ..Reply::default() };
        dispatcher.handle(Input::Answered(Ok(unknown)));
        assert_eq!(dispatcher.todos().filter(is_unknown).count(), said);
        if said == 1 {
            assert!(request(&mut dispatcher, id).roll_call);
        }
    }
}

#[test]
fn what_is_owned_and_not_known_is_handed_back_once() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    dispatcher.handle(Input::RollCall);
    assert!(request(&mut dispatcher, 1).roll_call);
    // A claim whose answer was lost.
    let (index, request_id) = (TaskIndex::from_u32(0), RequestId(9));
    let (task, fence) = (TaskKey(5), Fence(3));
    let roll = vec![Owned { task, index, fence, request: request_id, stopping: false }];
    dispatcher.handle(Input::Answered(Ok(Reply { roll, ..Reply::default() })));
    let next = request(&mut dispatcher, 2);
    let [change] = &next.changes[..] else { panic!("one task is handed back: {next:?}") };
    assert_eq!(change.task, TaskKey(5));
    assert_eq!(
        change.events,
        [Event::HandBack { fence: Fence(3), active: Duration::ZERO, pause: Duration::ZERO }]
    );
    assert_eq!(dispatcher.readings().strays, 1);

    let changes = vec![Applied::Yes];
    dispatcher.handle(Input::Answered(Ok(Reply { changes, ..Reply::default() })));
    assert!(dispatcher.todos().all(|todo| !matches!(todo, Todo::Drop(..))));
    assert!(dispatcher.is_idle(), "nobody here knows it, so nobody waits for it");
    dispatcher.handle(Input::RollCall);
    assert!(request(&mut dispatcher, 3).changes.is_empty());
}

/// A task claimed ahead of its slot.
fn claimed(key: i64) -> Claimed {
    let graph = Graph::new([Node::new("a")]).expect("it is a graph");
    let plan = Plan::new("w", graph, OnFailure::default(), vec![TaskPlan::default()]);
    let (plan, task, at) = (Arc::new(plan), TaskIndex::from_u32(0), Timestamp::from_micros(0));
    let life = Life::ready(at, at).next(&Rules::default(), &Event::Claim { worker: WORKER }, at);
    let (outputs, absent, inserts) = (Vec::new(), Vec::new(), Vec::new());
    let given =
        Given { plan: plan.clone(), task, input: None, outputs, absent, inserts, item: None };
    let life = life.expect("what is ready can be claimed").into_life();
    let run = RunId::from_u128(1);
    let (key, waits) = (TaskKey(key), Vec::new());
    Claimed { key, index: task, plan, run, life, order: at, given, waits, awaited: false }
}

/// A body that had begun when the worker closed, without the worker having heard of it, was dropped
/// although it had its grace.
#[test]
fn what_stands_in_line_when_the_worker_closes_is_withdrawn_and_dropped_only_after_the_grace() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    request(&mut dispatcher, 1);
    let claimed = vec![claimed(5)];
    dispatcher.handle(Input::Answered(Ok(Reply { claimed, ..Reply::default() })));
    assert!(dispatcher.todos().any(|todo| matches!(todo, Todo::Start { .. })));
    dispatcher.handle(Input::Close);
    let todos: Vec<Todo> = dispatcher.todos().collect();
    let withdraws = |todo: &Todo| matches!(todo, Todo::Withdraw(TaskKey(5), Fence(1)));
    assert!(todos.len() == 1 && todos.iter().all(withdraws), "{todos:?}");
    // It had begun.
    let (task, fence) = (TaskKey(5), Fence(1));
    dispatcher.handle(Input::Said { task, fence, said: Said::Begins });
    assert_eq!(dispatcher.todos().count(), 0);
    dispatcher.handle(Input::DropAll);
    let todos: Vec<Todo> = dispatcher.todos().collect();
    let drops = |todo: &Todo| matches!(todo, Todo::Drop(TaskKey(5), Fence(1)));
    assert!(todos.len() == 1 && todos.iter().all(drops), "{todos:?}");
}

#[test]
fn what_was_claimed_beside_a_failure_that_stops_its_run_does_not_begin() {
    let answer = |dispatcher: &mut Dispatcher, keys: &[i64], changes: usize| {
        let (claimed, changes) =
            (keys.iter().copied().map(claimed).collect(), vec![Applied::Yes; changes]);
        dispatcher.handle(Input::Answered(Ok(Reply { claimed, changes, ..Reply::default() })));
    };
    let started = |dispatcher: &mut Dispatcher| {
        let started = dispatcher.todos().filter_map(|todo| match todo {
            Todo::Start { claimed, .. } => Some(claimed.key.0),
            _ => None,
        });
        started.collect::<Vec<_>>()
    };
    let fails = |dispatcher: &mut Dispatcher| {
        // Each of these is a run; as if the second were one of the first's.
        dispatcher.handle(Input::Stops(RunKey(2), TaskKey(1)));
        let (failure, error) = (Failure::Error, "no".to_owned());
        let failed = End::Failed { failure, permanent: true, chance: 0.0, error };
        let (task, fence) = (TaskKey(1), Fence(1));
        dispatcher.handle(Input::Said { task, fence, said: Said::Ends(failed) });
    };
    // Before the answer comes, and after it came and before anything was started.
    for comes_first in [true, false] {
        let mut dispatcher = Dispatcher::new(WORKER, 100);
        request(&mut dispatcher, 1);
        answer(&mut dispatcher, &[1], 0);
        assert_eq!(started(&mut dispatcher), [1]);
        dispatcher.handle(Input::Ready);
        request(&mut dispatcher, 2);
        if comes_first {
            fails(&mut dispatcher);
        }
        answer(&mut dispatcher, &[2, 3], 0);
        if !comes_first {
            fails(&mut dispatcher);
        }
        assert_eq!(started(&mut dispatcher), [3]);
        assert_eq!(dispatcher.readings().ahead, 1, "the third one stands in line");
        let next = request(&mut dispatcher, 3);
        let told = next.changes.iter().map(|change| (change.task, change.events.len()));
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        assert_eq!(told, [(TaskKey(1), 1), (TaskKey(2), 1)]);
        // From then on the store knows.
        answer(&mut dispatcher, &[2], 2);
        assert_eq!(started(&mut dispatcher), [2]);
    }
}

#[test]
fn a_request_can_wait_only_while_enough_was_asked_for_ahead_and_nobody_wants_anything_else() {
    let of = |ahead_min: u32, tasks: i64| {
        let mut dispatcher = Dispatcher::new(WORKER, 100).with_ahead_min(ahead_min);
        request(&mut dispatcher, 1);
        assert!(!dispatcher.can_wait(), "one is in flight");
        let claimed = (1..=tasks).map(claimed).collect();
        dispatcher.handle(Input::Answered(Ok(Reply { claimed, ..Reply::default() })));
        dispatcher
    };
    assert!(!of(0, 4).can_wait(), "nobody has asked for it");
    assert!(!of(4, 2).can_wait(), "they will soon be begun");
    assert!(of(4, 3).can_wait());
    for other in [Input::Alarm, Input::RollCall, Input::Close, Input::Dead(vec![WorkerId(9)])] {
        let (mut dispatcher, said) = (of(4, 4), format!("{other:?}"));
        dispatcher.handle(other);
        assert!(!dispatcher.can_wait(), "{said}");
    }
}

#[test]
fn a_worker_with_nothing_to_say_and_no_room_hands_nothing_in() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    request(&mut dispatcher, 1);
    let more = Reply { more: true, ..Reply::default() };
    dispatcher.handle(Input::Answered(Ok(more)));
    // There is more, and not a slot for it: asking again would go on for ever.
    let full = |dispatcher: &mut Dispatcher| {
        dispatcher.next_request(RequestId(2), Timestamp::from_micros(0), 0, |_| 0)
    };
    assert!(full(&mut dispatcher).is_none());
    dispatcher.handle(Input::Alarm);
    assert!(full(&mut dispatcher).is_some(), "the clock is looked at all the same");
}

/// A body that lingers after its task was over: its slot is free when it is gone, and not before.
#[test]
fn the_end_of_a_body_whose_task_was_over_is_reason_to_ask_for_more() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    request(&mut dispatcher, 1);
    let answer = Reply { more: true, claimed: vec![claimed(5)], ..Reply::default() };
    dispatcher.handle(Input::Answered(Ok(answer)));
    let fence = Fence(1);
    dispatcher.handle(Input::Said { task: TaskKey(5), fence, said: Said::Begins });
    request(&mut dispatcher, 2);
    // Nothing fits into what is free, and somebody else has ended the task.
    let told = Told { task: TaskKey(5), fence, worker: WORKER, kind: Kind::Cancelled };
    let changes = vec![Applied::Yes];
    let answer = Reply { more: true, changes, told: vec![told], ..Reply::default() };
    dispatcher.handle(Input::Answered(Ok(answer)));
    dispatcher.next_request(RequestId(3), Timestamp::from_micros(0), 4, |_| 1);
    dispatcher.handle(Input::Answered(Ok(Reply { more: true, ..Reply::default() })));
    assert!(dispatcher.next_request(RequestId(4), Timestamp::from_micros(0), 4, |_| 1).is_none());

    let said = Said::Ends(End::Dropped { active: Duration::ZERO });
    dispatcher.handle(Input::Said { task: TaskKey(5), fence, said });
    let next = dispatcher.next_request(RequestId(5), Timestamp::from_micros(0), 4, |_| 2);
    assert_eq!(next.expect("it asks again").claim.units, 2);
}

#[test]
fn while_starts_are_held_nothing_is_claimed_but_what_somebody_waits_for() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    request(&mut dispatcher, 1);
    let answer = Reply { more: true, claimed: vec![claimed(5), claimed(6)], ..Reply::default() };
    dispatcher.handle(Input::Answered(Ok(answer)));
    let (begun, fence) = (TaskKey(6), Fence(1));
    dispatcher.handle(Input::Said { task: begun, fence, said: Said::Begins });
    dispatcher.todos().for_each(drop);

    dispatcher.handle(Input::HoldStarts(true));
    let todos: Vec<Todo> = dispatcher.todos().collect();
    let withdraws = |todo: &Todo| matches!(todo, Todo::Withdraw(TaskKey(5), Fence(1)));
    assert!(todos.len() == 1 && todos.iter().all(withdraws), "what has begun goes on: {todos:?}");
    let said = Said::Ends(End::Dropped { active: Duration::ZERO });
    dispatcher.handle(Input::Said { task: TaskKey(5), fence, said });
    let held = dispatcher.next_request(RequestId(2), Timestamp::from_micros(0), 4, |_| 3).unwrap();
    assert_eq!((held.claim.units, held.claim.room), (3, 0), "runs that are waited for are let in");
    let changes = vec![Applied::Yes; held.changes.len()];
    dispatcher.handle(Input::Answered(Ok(Reply { changes, ..Reply::default() })));
    dispatcher.todos().for_each(drop);
    let next = dispatcher.next_request(RequestId(3), Timestamp::from_micros(0), 4, |_| 3);
    assert!(next.is_none(), "it does not ask again and again");
    dispatcher.handle(Input::HoldStarts(true));
    assert_eq!(dispatcher.todos().count(), 0, "told twice, it hands nothing back twice");

    dispatcher.handle(Input::HoldStarts(false));
    let next = dispatcher.next_request(RequestId(4), Timestamp::from_micros(0), 4, |_| 3).unwrap();
    assert_eq!((next.claim.units, next.claim.room), (3, 99));
}

#[test]
fn what_a_request_has_claimed_ahead_while_starts_were_being_held_is_handed_back() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    request(&mut dispatcher, 1);
    dispatcher.handle(Input::HoldStarts(true));
    let claimed = vec![claimed(5)];
    dispatcher.handle(Input::Answered(Ok(Reply { claimed, ..Reply::default() })));
    let withdrawn = dispatcher.todos().any(|todo| matches!(todo, Todo::Withdraw(TaskKey(5), _)));
    assert!(withdrawn);
}

#[test]
fn a_caller_whose_outcome_stays_unknown_is_told_so_and_its_request_goes_on() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    dispatcher.handle(Input::Operation(Operation::Unpause(Scope::Store), Ticket(1)));
    let first = request(&mut dispatcher, 1);
    let unknown = || StoreError::Unknown(Arc::new(std::fmt::Error));
    // An answer was lost, and then the store says that it fails, which is not the same.
    let errors = [unknown()]
        .into_iter()
        .chain(std::iter::repeat_with(|| StoreError::Failed(Arc::new(std::fmt::Error))));
    let mut tries = 0;
    for error in errors {
        tries += 1;
        dispatcher.handle(Input::Answered(Err(error)));
        let told = dispatcher.todos().find_map(|todo| match todo {
            Todo::OperationDone(Ticket(1), Err(error)) => Some(error),
            _ => None,
        });
        dispatcher.handle(Input::Retry);
        let again = request(&mut dispatcher, 2);
        assert_eq!((again.id, again.operations.len()), (first.id, 1), "it may have been done");
        if let Some(error) = told {
            assert!(matches!(error, StoreError::Unknown(_)), "{error}");
            break;
        }
        assert!(tries < 100, "the caller is never told");
    }
    assert!(tries > 1, "one lost answer is made up for");
}

#[test]
fn a_worker_that_closes_forgets_a_failed_request_that_reports_nothing() {
    let failed = || StoreError::Failed(Arc::new(std::fmt::Error));
    for fails_first in [true, false] {
        let mut dispatcher = Dispatcher::new(WORKER, 100);
        request(&mut dispatcher, 1);
        if fails_first {
            dispatcher.handle(Input::Answered(Err(failed())));
        }
        assert!(!dispatcher.is_idle());
        dispatcher.handle(Input::Close);
        if !fails_first {
            assert!(!dispatcher.is_idle(), "it may have claimed something");
            dispatcher.handle(Input::Answered(Err(failed())));
        }
        assert!(dispatcher.is_idle());
        dispatcher.handle(Input::Alarm);
        dispatcher.handle(Input::RollCall);
        let next = dispatcher.next_request(RequestId(2), Timestamp::from_micros(0), 4, |_| 0);
        assert!(next.is_none(), "it has nothing to report");
    }
}

/// The task of a worker that was just begun, and how that entry ends; and what the store is told.
fn end_of_entry(dispatcher: &mut Dispatcher, number: u64, end: End) -> Event {
    request(dispatcher, 2 * number);
    let (claimed, changes) = (vec![claimed(5)], Vec::new());
    dispatcher.handle(Input::Answered(Ok(Reply { claimed, changes, ..Reply::default() })));
    let (task, fence) = (TaskKey(5), Fence(1));
    dispatcher.handle(Input::Said { task, fence, said: Said::Begins });
    dispatcher.handle(Input::Said { task, fence, said: Said::Ends(end) });
    let told = request(dispatcher, 2 * number + 1);
    let changes = vec![Applied::Yes; told.changes.len()];
    dispatcher.handle(Input::Answered(Ok(Reply { changes, ..Reply::default() })));
    dispatcher.handle(Input::Alarm);
    told.changes[0].events.last().expect("its end was told").clone()
}

#[test]
fn body_that_is_dropped_unasked_again_and_again_is_entered_at_ever_longer_intervals() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    let active = Duration::ZERO;
    let mut pause = |number| match end_of_entry(&mut dispatcher, number, End::Dropped { active }) {
        Event::HandBack { pause, .. } => pause,
        other => panic!("it was handed back: {other:?}"),
    };
    let pauses: Vec<Duration> = (1..=14).map(&mut pause).collect();
    assert_eq!(pauses[0], Duration::ZERO, "once may happen");
    assert!(pauses[1] > Duration::ZERO && pauses.is_sorted(), "{pauses:?}");
    assert_eq!(pauses[13], Duration::from_secs(60));
    let (output, inserts) = (None, None);
    end_of_entry(&mut dispatcher, 20, End::Succeeded { output, inserts });
    let first = end_of_entry(&mut dispatcher, 21, End::Dropped { active });
    assert!(matches!(first, Event::HandBack { pause: Duration::ZERO, .. }), "{first:?}");
}

#[test]
fn snooze_is_never_shorter_than_its_minimum() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    for (number, asked, told) in [
        (1, Duration::ZERO, SNOOZE_MIN),
        (2, Duration::from_nanos(1), SNOOZE_MIN),
        (3, Duration::from_secs(9), Duration::from_secs(9)),
        (4, Duration::MAX, Duration::MAX),
    ] {
        let event = end_of_entry(&mut dispatcher, number, End::Snoozed(asked));
        assert_eq!(event, Event::Snooze { fence: Fence(1), delay: told });
    }
}
