//! The dispatcher by itself: what the simulation meets too seldom to be sure of.

use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::dispatcher::{Dispatcher, Input, Todo};
use tidegate_core::lifecycle::{Event, Fence, WorkerId};
use tidegate_core::store::{Applied, TaskKey, Turn, TurnId, Turned};

const WORKER: WorkerId = WorkerId(7);

/// The next turn of a worker with four slots, none of which is free.
fn turn(dispatcher: &mut Dispatcher, id: u64) -> Arc<Turn> {
    let turn = dispatcher.turn(TurnId(id), Timestamp::from_micros(0), 4, |_| 0);
    turn.expect("there is reason for a turn")
}

#[test]
fn what_is_owned_and_not_known_is_handed_back_once() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    dispatcher.handle(Input::RollCall);
    assert!(turn(&mut dispatcher, 1).roll_call);
    // A claim whose answer was lost.
    let roll = vec![(TaskKey(5), Fence(3))];
    dispatcher.handle(Input::Answered(Ok(Turned { roll, ..Turned::default() })));
    let next = turn(&mut dispatcher, 2);
    let [change] = &next.changes[..] else { panic!("one task is handed back: {next:?}") };
    assert_eq!(change.task, TaskKey(5));
    assert_eq!(change.events, [Event::HandBack { fence: Fence(3), active: Duration::ZERO }]);
    assert_eq!(dispatcher.readings().strays, 1);

    let changes = vec![Applied::Yes];
    dispatcher.handle(Input::Answered(Ok(Turned { changes, ..Turned::default() })));
    assert!(dispatcher.todos().all(|todo| !matches!(todo, Todo::Drop(..))));
    assert!(dispatcher.is_idle(), "nobody here knows it, so nobody waits for it");
    dispatcher.handle(Input::RollCall);
    assert!(turn(&mut dispatcher, 3).changes.is_empty());
}

#[test]
fn a_worker_with_nothing_to_say_and_no_room_hands_nothing_in() {
    let mut dispatcher = Dispatcher::new(WORKER, 100);
    turn(&mut dispatcher, 1);
    let more = Turned { more: true, ..Turned::default() };
    dispatcher.handle(Input::Answered(Ok(more)));
    // There is more, and not a slot for it: asking again would go on for ever.
    let full = |dispatcher: &mut Dispatcher| {
        dispatcher.turn(TurnId(2), Timestamp::from_micros(0), 0, |_| 0)
    };
    assert!(full(&mut dispatcher).is_none());
    dispatcher.handle(Input::Alarm);
    assert!(full(&mut dispatcher).is_some(), "the clock is looked at all the same");
}
