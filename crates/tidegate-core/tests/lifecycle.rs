//! The lifecycle, over all states and events, and along random lives.

use proptest::prelude::*;
use std::time::Duration;
use tidegate_core::lifecycle::{
    Activity, CancelledBy, Event, Failure, Fence, Kind, Life, RECOVERIES_MAX, Reason, Refused,
    Rules, State, Transition, TransitionId, WorkerId,
};
use tidegate_core::{Backoff, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const FENCE: Fence = Fence(7);
const WORKER: WorkerId = WorkerId(3);
const ID: TransitionId = TransitionId(99);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn rules() -> Rules {
    Rules {
        retries: 2,
        backoff: Backoff::fixed(SECOND * 10),
        queue_timeout: Some(SECOND * 1_000),
        deadline: Some(SECOND * 10_000),
    }
}

fn next(life: &Life, event: &Event, now: Timestamp) -> Result<Transition, Refused> {
    life.next(&rules(), event, now, ID)
}

/// A task in its second attempt, in a state of this kind since 100 s.
fn life(kind: Kind) -> Life {
    let running = |activity| State::Running { worker: WORKER, ready_since: at(90), activity };
    let begun_at = at(95);
    let state = match kind {
        Kind::Blocked => State::Blocked,
        Kind::Ready => State::Ready { since: at(100), due: at(100) },
        Kind::Claimed => running(Activity::Claimed),
        Kind::Active => running(Activity::Active { begun_at }),
        Kind::Deferred => {
            running(Activity::Deferred { begun_at, since: at(100), wait: "rain".into() })
        }
        Kind::Parked => State::Parked { since: at(100), wake: None },
        Kind::Succeeded => State::Succeeded,
        Kind::Failed => State::Failed(Reason::Error),
        Kind::TimedOut => State::TimedOut(Reason::Timeout),
        Kind::Cancelled => State::Cancelled(Reason::User),
        Kind::Skipped => State::Skipped,
    };
    Life {
        state,
        fence: FENCE,
        attempt: 2,
        entries: 3,
        recoveries: 1,
        active: SECOND * 5,
        started: Some(at(50)),
    }
}

const KINDS: [Kind; 11] = [
    Kind::Blocked,
    Kind::Ready,
    Kind::Claimed,
    Kind::Active,
    Kind::Deferred,
    Kind::Parked,
    Kind::Succeeded,
    Kind::Failed,
    Kind::TimedOut,
    Kind::Cancelled,
    Kind::Skipped,
];

fn fail(failure: Failure, permanent: bool) -> Event {
    Event::Fail { fence: FENCE, failure, permanent, chance: 0.5 }
}

fn events(fence: Fence) -> Vec<(&'static str, Event)> {
    let active = SECOND * 6;
    let (failure, chance) = (Failure::Error, 0.5);
    vec![
        ("unblock", Event::Unblock { not_before: at(0) }),
        ("skip", Event::Skip),
        ("claim", Event::Claim { worker: WORKER }),
        ("begin", Event::Begin { fence }),
        ("defer", Event::Defer { fence, active, wait: "snow".into() }),
        ("resume", Event::Resume { fence }),
        ("step", Event::Step { fence }),
        ("park", Event::Park { fence, active, wake: None }),
        ("wake", Event::Wake),
        ("succeed", Event::Succeed { fence }),
        ("fail", Event::Fail { fence, failure, permanent: false, chance }),
        ("fail for good", Event::Fail { fence, failure, permanent: true, chance }),
        ("snooze", Event::Snooze { fence, delay: SECOND }),
        ("hand back", Event::HandBack { fence, active }),
        ("recover", Event::Recover),
        ("cancel", Event::Cancel { by: CancelledBy::User }),
        ("clock", Event::Clock),
    ]
}

/// What each event makes of each state; a point: refused as not now, or not due.
const TABLE: &str = "
               Blocked    Ready      Claimed    Active     Deferred   Parked
unblock        Ready      .          .          .          .          .
skip           Skipped    .          .          .          .          .
claim          .          Claimed    .          .          .          .
begin          .          .          Active     .          .          .
defer          .          .          .          Deferred   .          .
resume         .          .          .          .          Active     .
step           .          .          .          Active     Deferred   .
park           .          .          .          Parked     Parked     .
wake           .          .          .          .          .          Ready
succeed        .          .          .          Succeeded  Succeeded  .
fail           .          .          .          Ready      Ready      .
fail for good  .          .          .          Failed     Failed     .
snooze         .          .          .          Ready      Ready      .
hand back      .          .          Ready      Ready      Ready      .
recover        .          .          Ready      Ready      Ready      .
cancel         Cancelled  Cancelled  Cancelled  Cancelled  Cancelled  Cancelled
clock          .          .          .          .          .          .
";

#[test]
fn every_event_in_every_open_state_does_what_the_table_says() {
    let mut table = String::from("\n");
    let row = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:<11}")).collect();
        format!("{}\n", format!("{name:<15}{cells}").trim_end())
    };
    let open = || KINDS.into_iter().filter(|kind| !kind.is_terminal());
    table += &row("", open().map(|kind| format!("{kind:?}")).collect());
    for (name, event) in events(FENCE) {
        let cells = open().map(|kind| match next(&life(kind), &event, at(200)) {
            Ok(transition) => {
                assert_eq!(transition.id(), ID);
                assert_eq!((transition.from().kind, transition.from().fence), (kind, FENCE));
                format!("{:?}", transition.to().state.kind())
            }
            Err(Refused::NotNow { kind: where_it_is }) if where_it_is == kind => ".".into(),
            Err(Refused::NotDue) => ".".into(),
            Err(other) => panic!("{name} in {kind:?}: {other}"),
        });
        table += &row(name, cells.collect());
    }
    assert_eq!(table, TABLE, "\n{table}");
}

#[test]
fn what_has_ended_refuses_everything() {
    for kind in KINDS.into_iter().filter(|kind| kind.is_terminal()) {
        for (name, event) in events(FENCE) {
            let refused = next(&life(kind), &event, at(1_000_000));
            assert_eq!(refused, Err(Refused::Over { kind }), "{name} in {kind:?}");
        }
    }
}

#[test]
fn what_a_worker_says_with_another_fence_is_refused_in_every_state() {
    for shown in [Fence(6), Fence(8)] {
        for kind in [Kind::Claimed, Kind::Active, Kind::Deferred] {
            for (name, event) in events(shown) {
                let answer = next(&life(kind), &event, at(200));
                match name {
                    "unblock" | "skip" | "claim" | "wake" | "recover" | "cancel" | "clock" => {}
                    _ => assert_eq!(answer, Err(Refused::Stale { held: FENCE, shown }), "{name}"),
                }
            }
        }
    }
}

#[test]
fn a_slot_is_held_only_while_active_and_limits_also_while_waiting() {
    for kind in KINDS {
        let holds = life(kind).state.holds();
        assert_eq!(holds.slot, kind == Kind::Active, "{kind:?}");
        let limits = matches!(kind, Kind::Active | Kind::Deferred | Kind::Parked);
        assert_eq!(holds.limits, limits, "{kind:?}");
    }
}

#[test]
fn a_claim_raises_the_fence_and_waits_for_the_due_time() {
    let mut life = Life::ready(at(10), at(60));
    let claim = Event::Claim { worker: WORKER };
    assert_eq!(next(&life, &claim, at(59)), Err(Refused::NotDue));
    life = next(&life, &claim, at(60)).unwrap().to().clone();
    assert_eq!((life.fence, life.entries, life.started), (Fence(1), 0, None));
    life = next(&life, &Event::Begin { fence: Fence(1) }, at(61)).unwrap().to().clone();
    assert_eq!((life.entries, life.started), (1, Some(at(61))));
}

#[test]
fn only_failures_use_attempts_and_the_last_one_is_final() {
    let mut task = life(Kind::Active);
    for event in [
        Event::Snooze { fence: FENCE, delay: SECOND },
        Event::HandBack { fence: FENCE, active: SECOND },
        Event::Recover,
        Event::Park { fence: FENCE, active: SECOND, wake: None },
    ] {
        assert_eq!(next(&task, &event, at(200)).unwrap().to().attempt, 2, "{event:?}");
    }
    let retried = next(&task, &fail(Failure::Error, false), at(200)).unwrap().to().clone();
    assert_eq!((retried.attempt, retried.active), (3, Duration::ZERO));
    assert_eq!(retried.state, State::Ready { since: at(200), due: at(210) });
    task.attempt = 3;
    let ends = |failure| next(&task, &fail(failure, false), at(200)).unwrap().to().state.clone();
    assert_eq!(ends(Failure::Error), State::Failed(Reason::Error));
    assert_eq!(ends(Failure::Panic), State::Failed(Reason::Panic));
    assert_eq!(ends(Failure::WaitTimeout), State::Failed(Reason::WaitTimeout));
    assert_eq!(ends(Failure::Timeout), State::TimedOut(Reason::Timeout));
}

#[test]
fn deaths_count_only_while_active_and_the_fifth_in_a_row_is_a_crash_loop() {
    for kind in [Kind::Claimed, Kind::Deferred] {
        assert_eq!(next(&life(kind), &Event::Recover, at(200)).unwrap().to().recoveries, 1);
    }
    let mut task = life(Kind::Active);
    for deaths in 2..RECOVERIES_MAX {
        task = Life { recoveries: deaths - 1, ..task };
        let recovered = next(&task, &Event::Recover, at(200)).unwrap().to().clone();
        assert_eq!((recovered.recoveries, recovered.state.kind()), (deaths, Kind::Ready));
        assert!(recovered.is_suspect());
    }
    task = Life { recoveries: RECOVERIES_MAX - 1, ..task };
    let given_up = next(&task, &Event::Recover, at(200)).unwrap().to().clone();
    assert_eq!(given_up.state, State::Failed(Reason::CrashLoop));
}

#[test]
fn deaths_are_forgotten_by_a_step_the_end_of_a_wait_and_a_new_attempt() {
    let forgets = |kind, event: Event| next(&life(kind), &event, at(200)).unwrap().to().recoveries;
    assert_eq!(forgets(Kind::Active, Event::Step { fence: FENCE }), 0);
    assert_eq!(forgets(Kind::Deferred, Event::Resume { fence: FENCE }), 0);
    assert_eq!(forgets(Kind::Parked, Event::Wake), 0);
    assert_eq!(forgets(Kind::Active, fail(Failure::Error, false)), 0);
    // Not by being given back or by beginning to wait.
    assert_eq!(forgets(Kind::Active, Event::HandBack { fence: FENCE, active: SECOND }), 1);
    let wait = Event::Defer { fence: FENCE, active: SECOND, wait: "rain".into() };
    assert_eq!(forgets(Kind::Active, wait), 1);
}

#[test]
fn a_deadline_counts_from_the_first_start_in_every_open_state() {
    for kind in KINDS.into_iter().filter(|kind| !kind.is_terminal()) {
        let task = life(kind);
        assert_eq!(task.alarm(&rules()), Some(at(50 + 10_000)));
        assert_eq!(next(&task, &Event::Clock, at(10_049)), Err(Refused::NotDue), "{kind:?}");
        let over = next(&task, &Event::Clock, at(10_050)).unwrap();
        assert_eq!(over.to().state, State::TimedOut(Reason::Deadline), "{kind:?}");
    }
}

#[test]
fn a_queue_time_out_counts_from_when_it_could_have_begun_and_only_until_it_has() {
    // Before its start time it could not.
    let ready = Life::ready(at(0), at(100));
    assert_eq!(ready.alarm(&rules()), Some(at(1_100)));
    let claimed = next(&ready, &Event::Claim { worker: WORKER }, at(500)).unwrap().to().clone();
    for task in [&ready, &claimed] {
        assert_eq!(next(task, &Event::Clock, at(1_099)), Err(Refused::NotDue));
        let over = next(task, &Event::Clock, at(1_100)).unwrap();
        assert_eq!(over.to().state, State::TimedOut(Reason::QueueTimeout));
    }
    let begun = next(&claimed, &Event::Begin { fence: Fence(1) }, at(600)).unwrap().to().clone();
    let back = Event::HandBack { fence: Fence(1), active: SECOND };
    let again = next(&begun, &back, at(700)).unwrap().to().clone();
    assert_eq!(next(&again, &Event::Clock, at(9_000)), Err(Refused::NotDue));
}

fn any_event() -> impl Strategy<Value = usize> {
    0..events(FENCE).len()
}

proptest! {
    /// Along any life: it ends at most once, fences and entries only grow, attempts stay in bounds,
    /// and the alarm says exactly when the clock will find something.
    #[test]
    fn every_life_keeps_the_invariants(
        story in proptest::collection::vec((any_event(), 0i64..400, 0u64..3), 1..200),
    ) {
        let mut life = Life::blocked();
        let mut now = 0;
        for (event, pause, shift) in story {
            now += pause;
            // Mostly the right fence, sometimes a stale one.
            let fence = Fence(life.fence.0.saturating_sub(shift / 2));
            let event = events(fence).swap_remove(event).1;
            let before = life.clone();
            let answer = next(&before, &event, at(now));
            if let Some(alarm) = before.alarm(&rules()) {
                prop_assert!(next(&before, &Event::Clock, alarm).is_ok());
                let early = Timestamp::from_micros(alarm.as_micros() - 1);
                prop_assert_eq!(next(&before, &Event::Clock, early), Err(Refused::NotDue));
            }
            let Ok(transition) = answer else { continue };
            prop_assert!(!before.state.kind().is_terminal());
            life = transition.to().clone();
            let claimed = matches!(event, Event::Claim { .. });
            prop_assert_eq!(life.fence.0, before.fence.0 + u64::from(claimed));
            let begun = matches!(event, Event::Begin { .. });
            prop_assert_eq!(life.entries, before.entries + u32::from(begun));
            prop_assert_eq!(life.started.is_some(), life.entries > 0);
            prop_assert!(life.attempt <= rules().retries + 1);
            let failed = matches!(event, Event::Fail { .. });
            prop_assert!(life.attempt == before.attempt || failed);
            prop_assert!(life.recoveries < RECOVERIES_MAX || transition.ends());
            prop_assert_eq!(transition.ends(), life.state.kind().is_terminal());
        }
    }
}
