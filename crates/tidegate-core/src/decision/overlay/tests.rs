//! Each look-up with its row only stored, only in the delta, changed and deleted. A look-up through the
//! overlay is also what the same look-up finds once the delta is written.

use super::*;
use crate::memory::Memory;
use crate::transaction::Transaction;
use crate::wait::WaitOutcome;
use std::convert::Infallible;
use std::fmt::Debug;

type Changes<'c> = &'c dyn Fn(&mut Overlay<'_, Memory>);

const TASK: TaskKey = TaskKey(1);
const OTHER_TASK: TaskKey = TaskKey(2);
const RUN: RunKey = RunKey(7);
const RUN_ID: RunId = RunId::from_u128(7);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn get<T>(found: Result<T, Infallible>) -> T {
    match found {
        Ok(found) => found,
    }
}

fn write(memory: &mut Memory, changes: Changes<'_>) {
    let mut overlay = Overlay::new(Known::new(), memory);
    changes(&mut overlay);
    let mut delta = overlay.delta;
    get(memory.apply_delta(&mut delta));
}

/// What is found after `stored` was written and `changed` was not; checks that it is also found once
/// that is written.
fn look<T: PartialEq + Debug>(
    stored: Changes<'_>,
    changed: Changes<'_>,
    find: &dyn Fn(&mut Overlay<'_, Memory>) -> Result<T, Infallible>,
) -> T {
    let mut memory = Memory::default();
    write(&mut memory, stored);
    let mut overlay = Overlay::new(Known::new(), &mut memory);
    changed(&mut overlay);
    let seen = get(find(&mut overlay));
    let mut delta = overlay.delta;
    get(memory.apply_delta(&mut delta));
    let written = get(find(&mut Overlay::new(Known::new(), &mut memory)));
    assert_eq!(seen, written, "the overlay differs from what is written");
    seen
}

fn nothing(_: &mut Overlay<'_, Memory>) {}

fn wait_id(kind: WaitKind, name: &str) -> WaitId {
    WaitId::new(kind, name, 0)
}

fn wait_for(kind: WaitKind, name: &str, since: i64) -> Waiting {
    Waiting { run: Some(RUN), ..Waiting::new(wait_id(kind, name), "".into(), at(since)) }
}

fn ended(wait: Waiting) -> Waiting {
    Waiting { outcome: Some(WaitOutcome::Elapsed), ..wait }
}

fn signal(id: u128) -> NewSignal {
    NewSignal {
        id,
        run: RUN_ID,
        name: "go".into(),
        body: Some(Bytes::from(&id.to_be_bytes()[15..])),
    }
}

fn send(id: u128) -> impl Fn(&mut Overlay<'_, Memory>) {
    move |overlay| get(overlay.add_signal(RUN, &signal(id), at(1)))
}

fn put(task: TaskKey, wait: Waiting) -> impl Fn(&mut Overlay<'_, Memory>) {
    move |overlay| overlay.put_wait(task, wait.clone())
}

#[test]
fn payload_is_that_of_the_delta_first() {
    let keep = |text: &'static str| {
        move |overlay: &mut Overlay<'_, Memory>| {
            overlay.keep(TASK, Payload::Error, Bytes::from(text.as_bytes()));
        }
    };
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.find_payload(TASK, Payload::Error);
    let text = |text: &str| Some(Bytes::from(text.as_bytes()));
    assert_eq!(look(&keep("stored"), &nothing, &find), text("stored"));
    assert_eq!(look(&nothing, &keep("new"), &find), text("new"));
    assert_eq!(look(&keep("stored"), &keep("changed"), &find), text("changed"));
    assert_eq!(look(&nothing, &nothing, &find), None);
}

#[test]
fn pause_of_each_scope_is_that_of_the_delta_first() {
    let scopes = [Scope::Run(RUN_ID), Scope::Queue("q".to_owned()), Scope::Store];
    for scope in scopes {
        let change = |begins: bool| {
            let scope = scope.clone();
            move |overlay: &mut Overlay<'_, Memory>| {
                get(overlay.change_pause(&scope, begins, at(1)));
            }
        };
        let find = |overlay: &mut Overlay<'_, Memory>| overlay.is_paused(&scope);
        assert!(look(&change(true), &nothing, &find));
        assert!(look(&nothing, &change(true), &find));
        assert!(!look(&change(true), &change(false), &find));
        assert!(!look(&nothing, &nothing, &find));
        let of_queue = !matches!(scope, Scope::Run(_));
        let find = |overlay: &mut Overlay<'_, Memory>| overlay.is_queue_paused(&"q".into());
        assert_eq!(look(&change(true), &nothing, &find), of_queue);
        assert_eq!(look(&nothing, &change(true), &find), of_queue);
        assert!(!look(&change(true), &change(false), &find));
    }
}

#[test]
fn paused_time_counts_pauses_of_the_delta() {
    let pause = |from: i64| {
        move |overlay: &mut Overlay<'_, Memory>| {
            get(overlay.change_pause(&Scope::Store, true, at(from)));
        }
    };
    let unpause = |overlay: &mut Overlay<'_, Memory>| {
        get(overlay.change_pause(&Scope::Store, false, at(10)));
    };
    let find =
        |overlay: &mut Overlay<'_, Memory>| overlay.paused_time(RUN_ID, &"q".into(), at(0), at(10));
    let seconds = Duration::from_secs;
    assert_eq!(look(&pause(4), &nothing, &find), seconds(6));
    assert_eq!(look(&nothing, &pause(7), &find), seconds(3));
    assert_eq!(look(&pause(4), &unpause, &find), seconds(6));
    assert_eq!(look(&nothing, &nothing, &find), seconds(0));
}

#[test]
fn wait_is_that_of_the_delta_first() {
    let wait = wait_for(WaitKind::Run, "", 1);
    let later = Waiting { due: Some(at(9)), ..wait.clone() };
    let (stored, changed) = (put(TASK, wait.clone()), put(TASK, later.clone()));
    let dropped = |overlay: &mut Overlay<'_, Memory>| overlay.drop_wait(TASK, &wait.id);
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.find_wait(TASK, &wait.id);
    assert_eq!(look(&stored, &nothing, &find), Some(wait.clone()));
    assert_eq!(look(&nothing, &stored, &find), Some(wait.clone()));
    assert_eq!(look(&stored, &changed, &find), Some(later.clone()));
    assert_eq!(look(&stored, &dropped, &find), None);
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.find_waits(TASK);
    assert_eq!(look(&stored, &nothing, &find), vec![wait.clone()]);
    assert_eq!(look(&nothing, &stored, &find), vec![wait.clone()]);
    assert_eq!(look(&stored, &changed, &find), [later]);
    assert_eq!(look(&stored, &dropped, &find), []);
    let first = wait_for(WaitKind::Signal, "go", 1);
    let both = look(&stored, &put(TASK, first.clone()), &find);
    assert_eq!(both, [first, wait.clone()], "they are in the order of their identity");
}

#[test]
fn first_signal_wait_is_the_oldest_of_both() {
    let (old, new) = (wait_for(WaitKind::Signal, "go", 1), wait_for(WaitKind::Signal, "go", 2));
    let (put_old, put_new) = (put(TASK, old.clone()), put(OTHER_TASK, new.clone()));
    let end_old = put(TASK, ended(old.clone()));
    let drop_old = |overlay: &mut Overlay<'_, Memory>| overlay.drop_wait(TASK, &old.id);
    let put_both = |overlay: &mut Overlay<'_, Memory>| {
        put_old(overlay);
        put_new(overlay);
    };
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.first_signal_wait(RUN, &"go".into());
    let (first, second) = (Some((TASK, old.id.clone())), Some((OTHER_TASK, new.id.clone())));
    assert_eq!(look(&put_old, &nothing, &find), first);
    assert_eq!(look(&nothing, &put_old, &find), first);
    assert_eq!(look(&put_old, &put_new, &find), first);
    assert_eq!(look(&put_new, &put_old, &find), first);
    assert_eq!(look(&put_both, &end_old, &find), second);
    assert_eq!(look(&put_both, &drop_old, &find), second);
    assert_eq!(look(&put_old, &end_old, &find), None);
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.first_signal_wait(RUN, &"other".into());
    assert_eq!(look(&put_old, &put_new, &find), None, "another name");
    let find =
        |overlay: &mut Overlay<'_, Memory>| overlay.first_signal_wait(RunKey(8), &"go".into());
    assert_eq!(look(&put_old, &put_new, &find), None, "another run");
}

#[test]
fn waits_for_a_run_are_those_of_both() {
    let (one, other) = (wait_for(WaitKind::Run, "", 1), wait_for(WaitKind::Child, "", 2));
    let (put_one, put_other) = (put(TASK, one.clone()), put(OTHER_TASK, other.clone()));
    let end_one = put(TASK, ended(one.clone()));
    let drop_one = |overlay: &mut Overlay<'_, Memory>| overlay.drop_wait(TASK, &one.id);
    let put_twice = |overlay: &mut Overlay<'_, Memory>| {
        put_other(overlay);
        put_other(overlay);
    };
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.run_waits(RUN);
    let (first, second) = ((TASK, one.id.clone()), (OTHER_TASK, other.id.clone()));
    assert_eq!(look(&put_one, &nothing, &find), vec![first.clone()]);
    assert_eq!(look(&nothing, &put_one, &find), vec![first.clone()]);
    assert_eq!(look(&put_one, &put_twice, &find), [first, second]);
    assert_eq!(look(&put_one, &end_one, &find), []);
    assert_eq!(look(&put_one, &drop_one, &find), []);
    let signal = put(TASK, wait_for(WaitKind::Signal, "go", 1));
    assert_eq!(look(&signal, &signal, &find), [], "a wait for a signal is none for the end");
}

#[test]
fn runs_that_a_run_waits_for_are_those_of_both() {
    let (one, other) = (wait_for(WaitKind::Run, "", 1), wait_for(WaitKind::Child, "", 2));
    let other = Waiting { run: Some(RunKey(8)), ..other };
    let (put_one, put_other) = (put(TASK, one.clone()), put(OTHER_TASK, other));
    let end_one = put(TASK, ended(one.clone()));
    let drop_one = |overlay: &mut Overlay<'_, Memory>| overlay.drop_wait(TASK, &one.id);
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.runs_waited_for(RunKey(1), 2);
    assert_eq!(look(&put_one, &nothing, &find), vec![RUN]);
    assert_eq!(look(&nothing, &put_one, &find), vec![RUN]);
    assert_eq!(look(&put_one, &put_other, &find), [RUN, RunKey(8)]);
    assert_eq!(look(&put_one, &end_one, &find), []);
    assert_eq!(look(&put_one, &drop_one, &find), []);
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.runs_waited_for(RunKey(1), 1);
    assert_eq!(look(&put_one, &put_other, &find), [RUN], "the second task is of another run");
}

#[test]
fn next_signal_is_the_first_that_no_task_has_received() {
    let take =
        |number: u64| move |overlay: &mut Overlay<'_, Memory>| overlay.take_signal(number, TASK);
    let give_back = |overlay: &mut Overlay<'_, Memory>| {
        overlay.return_signal(1, RUN, &Arc::from("go"), signal(1).body);
    };
    let sent_and_taken = |overlay: &mut Overlay<'_, Memory>| {
        send(1)(overlay);
        take(1)(overlay);
    };
    let sent_twice = |overlay: &mut Overlay<'_, Memory>| {
        send(1)(overlay);
        send(2)(overlay);
    };
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.next_signal(RUN, &"go".into());
    let (first, second) = (Some((1, signal(1).body)), Some((2, signal(2).body)));
    assert_eq!(look(&send(1), &nothing, &find), first);
    assert_eq!(look(&nothing, &send(1), &find), first);
    assert_eq!(look(&send(1), &send(2), &find), first, "first in, first out");
    assert_eq!(look(&send(1), &take(1), &find), None);
    assert_eq!(look(&sent_twice, &take(1), &find), second);
    assert_eq!(look(&nothing, &sent_and_taken, &find), None);
    assert_eq!(look(&sent_and_taken, &give_back, &find), first);
    assert_eq!(look(&sent_and_taken, &send(2), &find), second);
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.was_sent(RUN, 1);
    assert!(look(&send(1), &nothing, &find));
    assert!(look(&nothing, &send(1), &find));
    assert!(look(&send(1), &take(1), &find));
    assert!(!look(&send(2), &send(3), &find));
}

#[test]
fn limit_is_that_of_the_delta_first() {
    let set = |units: u32| {
        move |overlay: &mut Overlay<'_, Memory>| {
            overlay.set_limit(&Limit::new("api").at_once(units));
        }
    };
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.find_limit("api");
    let limit = |units| Some(Limit::new("api").at_once(units));
    assert_eq!(look(&set(1), &nothing, &find), limit(1));
    assert_eq!(look(&nothing, &set(1), &find), limit(1));
    assert_eq!(look(&set(1), &set(2), &find), limit(2));
    assert_eq!(look(&nothing, &nothing, &find), None);
}

#[test]
fn holds_of_a_task_are_those_of_both() {
    let hold =
        |name: &str, units: u32| Hold { limit: LimitKey::new(name, ""), units, since: at(1) };
    let take =
        |hold: Hold| move |overlay: &mut Overlay<'_, Memory>| overlay.take_hold(TASK, hold.clone());
    let release =
        |overlay: &mut Overlay<'_, Memory>| overlay.release_hold(TASK, &LimitKey::new("a", ""));
    let find = |overlay: &mut Overlay<'_, Memory>| overlay.find_holds(TASK);
    assert_eq!(look(&take(hold("a", 1)), &nothing, &find), [hold("a", 1)]);
    assert_eq!(look(&nothing, &take(hold("a", 1)), &find), [hold("a", 1)]);
    assert_eq!(look(&take(hold("a", 1)), &take(hold("a", 2)), &find), [hold("a", 2)]);
    assert_eq!(look(&take(hold("a", 1)), &release, &find), []);
    let both = look(&take(hold("b", 1)), &take(hold("a", 1)), &find);
    assert_eq!(both, [hold("a", 1), hold("b", 1)], "they are in the order of the limits");
}
