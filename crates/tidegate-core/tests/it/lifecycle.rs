//! The lifecycle, over all states and events, and along random lives.

use proptest::prelude::*;
use std::time::Duration;
use tidegate_core::lifecycle::{
    Activity, CancelledBy, Event, Failure, Fence, Kind, Life, RECOVERIES_MAX, Reason, Refused,
    Rules, State, Transition, WorkerId,
};
use tidegate_core::{Backoff, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const FENCE: Fence = Fence(7);
const WORKER: WorkerId = WorkerId(3);
const CLOCK: Event = Event::Clock { stood_still: Duration::ZERO };

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
    life.next(&rules(), event, now)
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
        Kind::Parked => State::Parked { since: at(100), wake: None, wait: String::new() },
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
        stopping: None,
    }
}

/// The same, active and told to stop.
fn stopping(by: CancelledBy) -> Life {
    Life { stopping: Some(by), ..life(Kind::Active) }
}

/// Everything that is open, by name.
fn open() -> Vec<(String, Life)> {
    let kinds = Kind::ALL.into_iter().filter(|kind| !kind.is_terminal());
    let mut lives: Vec<_> = kinds.map(|kind| (format!("{kind:?}"), life(kind))).collect();
    lives.push(("Stopping".into(), stopping(CancelledBy::FailFast)));
    lives
}

fn fail(failure: Failure, permanent: bool) -> Event {
    Event::Fail { fence: FENCE, failure, permanent, chance: 0.5 }
}

fn events(fence: Fence) -> Vec<(&'static str, Event)> {
    let active = SECOND * 6;
    let (failure, chance) = (Failure::Error, 0.5);
    vec![
        ("unblock", Event::Unblock { not_before: at(0) }),
        ("skip", Event::Skip),
        ("take over", Event::TakeOver),
        ("claim", Event::Claim { worker: WORKER }),
        ("begin", Event::Begin { fence }),
        ("defer", Event::Defer { fence, active, wait: "snow".into() }),
        ("resume", Event::Resume { fence }),
        ("step", Event::Step { fence }),
        ("park", Event::Park { fence, active, wake: None, wait: String::new() }),
        ("wake", Event::Wake),
        ("succeed", Event::Succeed { fence }),
        ("fail", Event::Fail { fence, failure, permanent: false, chance }),
        ("fail for good", Event::Fail { fence, failure, permanent: true, chance }),
        ("snooze", Event::Snooze { fence, delay: SECOND }),
        ("hand back", Event::HandBack { fence, active, pause: Duration::ZERO }),
        ("stopped", Event::Stopped { fence }),
        ("recover", Event::Recover),
        ("stop", Event::Stop { by: CancelledBy::FailFast }),
        ("cancel", Event::Cancel { by: CancelledBy::User }),
        ("clock", CLOCK),
    ]
}

/// What each event makes of each state; a point: refused as not now, or not due.
const TABLE: &str = "
               Blocked    Ready      Claimed    Active     Deferred   Parked     Stopping
unblock        Ready      .          .          .          .          .          .
skip           Skipped    .          .          .          .          .          .
take over      Succeeded  .          .          .          .          .          .
claim          .          Claimed    .          .          .          .          .
begin          .          .          Active     .          .          .          .
defer          .          .          .          Deferred   .          .          .
resume         .          .          .          .          Active     .          .
step           .          .          .          Active     Deferred   .          Stopping
park           .          .          .          Parked     Parked     .          Cancelled
wake           .          .          .          .          .          Ready      .
succeed        .          .          .          Succeeded  Succeeded  .          Succeeded
fail           .          .          .          Ready      Ready      .          Cancelled
fail for good  .          .          .          Failed     Failed     .          Cancelled
snooze         .          .          .          Ready      Ready      .          Cancelled
hand back      .          .          Ready      Ready      Ready      .          Cancelled
stopped        .          .          .          .          .          .          Cancelled
recover        .          .          Ready      Ready      Ready      .          Cancelled
stop           .          .          .          Stopping   .          .          .
cancel         Cancelled  Cancelled  Cancelled  Cancelled  Cancelled  Cancelled  Cancelled
clock          .          .          .          .          .          .          .
";

#[test]
fn every_event_in_every_open_state_does_what_the_table_says() {
    let mut table = String::from("\n");
    let row = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:<11}")).collect();
        format!("{}\n", format!("{name:<15}{cells}").trim_end())
    };
    table += &row("", open().into_iter().map(|(name, _)| name).collect());
    for (name, event) in events(FENCE) {
        let cells = open().into_iter().map(|(_, life)| (life.state.kind(), life));
        let cells = cells.map(|(kind, life)| match next(&life, &event, at(200)) {
            Ok(transition) => match transition.to().stopping {
                Some(_) => "Stopping".into(),
                None => format!("{:?}", transition.to().state.kind()),
            },
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
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_terminal()) {
        for (name, event) in events(FENCE) {
            let refused = next(&life(kind), &event, at(1_000_000));
            assert_eq!(refused, Err(Refused::Over { kind }), "{name} in {kind:?}");
        }
    }
}

#[test]
fn what_a_worker_says_with_another_fence_is_refused_in_every_state() {
    for shown in [Fence(6), Fence(8)] {
        let lives = [Kind::Claimed, Kind::Active, Kind::Deferred].map(life);
        for life in lives.into_iter().chain([stopping(CancelledBy::User)]) {
            for (name, event) in events(shown) {
                let answer = next(&life, &event, at(200));
                match name {
                    "unblock" | "skip" | "take over" | "claim" | "wake" | "recover" | "stop"
                    | "cancel" | "clock" => {}
                    _ => assert_eq!(answer, Err(Refused::Stale { held: FENCE, shown }), "{name}"),
                }
            }
        }
    }
}

#[test]
fn a_slot_is_held_only_while_active_and_limits_also_while_waiting() {
    for kind in Kind::ALL {
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
        Event::HandBack { fence: FENCE, active: SECOND, pause: Duration::ZERO },
        Event::Recover,
        Event::Park { fence: FENCE, active: SECOND, wake: None, wait: String::new() },
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
    assert_eq!(
        forgets(
            Kind::Active,
            Event::HandBack { fence: FENCE, active: SECOND, pause: Duration::ZERO }
        ),
        1
    );
    let wait = Event::Defer { fence: FENCE, active: SECOND, wait: "rain".into() };
    assert_eq!(forgets(Kind::Active, wait), 1);
}

#[test]
fn a_deadline_counts_from_the_first_start_in_every_open_state() {
    for (name, task) in open() {
        assert_eq!(task.alarm(&rules(), Duration::ZERO), Some(at(50 + 10_000)));
        assert_eq!(next(&task, &CLOCK, at(10_049)), Err(Refused::NotDue), "{name}");
        let over = next(&task, &CLOCK, at(10_050)).unwrap();
        assert_eq!(over.to().state, State::TimedOut(Reason::Deadline), "{name}");
        assert_eq!(over.to().stopping, None, "{name}");
    }
}

#[test]
fn a_queue_time_out_counts_from_when_it_could_have_begun_and_only_until_it_has() {
    // Before its start time it could not.
    let ready = Life::ready(at(0), at(100));
    assert_eq!(ready.alarm(&rules(), Duration::ZERO), Some(at(1_100)));
    let claimed = next(&ready, &Event::Claim { worker: WORKER }, at(500)).unwrap().to().clone();
    for task in [&ready, &claimed] {
        assert_eq!(next(task, &CLOCK, at(1_099)), Err(Refused::NotDue));
        let over = next(task, &CLOCK, at(1_100)).unwrap();
        assert_eq!(over.to().state, State::TimedOut(Reason::QueueTimeout));
    }
    let begun = next(&claimed, &Event::Begin { fence: Fence(1) }, at(600)).unwrap().to().clone();
    let back = Event::HandBack { fence: Fence(1), active: SECOND, pause: Duration::ZERO };
    let again = next(&begun, &back, at(700)).unwrap().to().clone();
    assert_eq!(next(&again, &CLOCK, at(9_000)), Err(Refused::NotDue));
}

#[test]
fn what_was_told_to_stop_computes_on_until_it_says_how_it_ended() {
    let told = next(&life(Kind::Active), &Event::Stop { by: CancelledBy::User }, at(200)).unwrap();
    assert!(!told.to().state.kind().is_terminal());
    assert_eq!(told.to(), &stopping(CancelledBy::User));
    assert_eq!(told.to().state.holds(), life(Kind::Active).state.holds());
    // The first to say so is the one who stopped it.
    let again = next(told.to(), &Event::Stop { by: CancelledBy::FailFast }, at(201));
    assert_eq!(again, Err(Refused::NotNow { kind: Kind::Active }));
    let stepped = next(told.to(), &Event::Step { fence: FENCE }, at(202)).unwrap();
    assert_eq!(stepped.to(), &Life { recoveries: 0, ..told.to().clone() });
}

#[test]
fn a_body_that_is_gone_after_it_was_told_to_stop_is_cancelled_by_whoever_stopped_it() {
    let active = SECOND * 6;
    for (by, reason) in [
        (CancelledBy::User, Reason::User),
        (CancelledBy::FailFast, Reason::FailFast),
        (CancelledBy::Upstream, Reason::Upstream),
    ] {
        for (event, active) in [
            (Event::Stopped { fence: FENCE }, SECOND * 5),
            (fail(Failure::Error, false), SECOND * 5),
            (fail(Failure::Timeout, true), SECOND * 5),
            (Event::Snooze { fence: FENCE, delay: SECOND }, SECOND * 5),
            (Event::HandBack { fence: FENCE, active, pause: Duration::ZERO }, active),
            (
                Event::Park { fence: FENCE, active, wake: Some(at(300)), wait: String::new() },
                active,
            ),
            (Event::Recover, SECOND * 5),
        ] {
            let ended = next(&stopping(by), &event, at(200)).unwrap();
            assert_eq!(ended.to().state, State::Cancelled(reason), "{event:?}");
            assert_eq!((ended.to().attempt, ended.to().active), (2, active), "{event:?}");
        }
    }
}

#[test]
fn a_body_that_was_told_to_stop_may_still_succeed_and_may_be_cancelled_by_another() {
    let task = stopping(CancelledBy::FailFast);
    let done = next(&task, &Event::Succeed { fence: FENCE }, at(200)).unwrap();
    assert_eq!((&done.to().state, done.to().stopping), (&State::Succeeded, None));
    let cancelled = next(&task, &Event::Cancel { by: CancelledBy::User }, at(200)).unwrap();
    assert_eq!(cancelled.to().state, State::Cancelled(Reason::User));
}

#[test]
fn the_last_death_of_what_was_told_to_stop_is_its_end_and_no_crash_loop() {
    let task = Life { recoveries: RECOVERIES_MAX - 1, ..stopping(CancelledBy::Upstream) };
    let ended = next(&task, &Event::Recover, at(200)).unwrap();
    assert_eq!(ended.to().state, State::Cancelled(Reason::Upstream));
}

#[test]
fn a_pause_stops_the_queue_time_out_and_not_the_deadline() {
    let paused = |seconds| Event::Clock { stood_still: SECOND * seconds };
    let ready = Life::ready(at(0), at(100));
    assert_eq!(ready.alarm(&rules(), SECOND * 300), Some(at(1_400)));
    assert_eq!(next(&ready, &paused(300), at(1_399)), Err(Refused::NotDue));
    let over = next(&ready, &paused(300), at(1_400)).unwrap();
    assert_eq!(over.to().state, State::TimedOut(Reason::QueueTimeout));
    assert_eq!(ready.queues_since(&rules()), Some(at(100)));
    assert_eq!(ready.queues_since(&Rules::default()), None);

    let begun = life(Kind::Ready);
    assert_eq!(begun.queues_since(&rules()), None);
    assert_eq!(begun.alarm(&rules(), SECOND * 300), Some(at(10_050)));
    let over = next(&begun, &paused(300), at(10_050)).unwrap();
    assert_eq!(over.to().state, State::TimedOut(Reason::Deadline));
}

#[test]
fn words_and_numbers_are_the_ones_that_stores_keep() {
    macro_rules! check {
        ($name:ident: $words:expr) => {
            assert_eq!($name::ALL.map($name::as_str).join(" "), $words);
            for (number, value) in $name::ALL.into_iter().enumerate() {
                assert_eq!(usize::from(value.code()), number, "{value}");
                assert_eq!($name::from_code(value.code()), Some(value));
                assert_eq!($name::parse(&value.to_string()), Some(value));
            }
            assert_eq!($name::from_code($name::ALL.len() as u8), None);
            assert_eq!($name::from_code(u8::MAX), None);
            for word in ["", "Ready", "user ", "nothing"] {
                assert_eq!($name::parse(word), None);
            }
        };
    }
    check!(Kind: "blocked ready claimed active deferred parked succeeded failed timed_out \
                  cancelled skipped");
    check!(Reason: "error panic timeout wait_timeout queue_timeout deadline crash_loop user \
                    fail_fast upstream");
    check!(CancelledBy: "user fail_fast upstream");
}

fn any_event() -> impl Strategy<Value = usize> {
    0..events(FENCE).len()
}

proptest! {
    /// Along any life: it ends at most once, fences and entries only grow, attempts stay in bounds,
    /// what was told to stop does nothing but end, and the alarm says exactly when the clock will
    /// find something.
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
            if let Some(alarm) = before.alarm(&rules(), Duration::ZERO) {
                prop_assert!(next(&before, &CLOCK, alarm).is_ok());
                let early = Timestamp::from_micros(alarm.as_micros() - 1);
                prop_assert_eq!(next(&before, &CLOCK, early), Err(Refused::NotDue));
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
            prop_assert!(life.recoveries < RECOVERIES_MAX || transition.to().state.kind().is_terminal());
            prop_assert_eq!(transition.to().state.kind().is_terminal(), life.state.kind().is_terminal());
            // What is told to stop stays so until it ends, and it ends without another attempt.
            prop_assert!(life.stopping.is_none() || life.state.kind() == Kind::Active);
            if before.stopping.is_some() {
                prop_assert!(transition.to().state.kind().is_terminal() || life.stopping == before.stopping);
                prop_assert_eq!(life.attempt, before.attempt);
            }
        }
    }
}

#[test]
fn task_that_is_handed_back_with_a_pause_is_not_claimed_before_the_pause_is_over() {
    let back = |pause| Event::HandBack { fence: FENCE, active: SECOND, pause };
    for kind in [Kind::Claimed, Kind::Active, Kind::Deferred] {
        let back = next(&life(kind), &back(SECOND * 9), at(200)).unwrap();
        let claim = Event::Claim { worker: WORKER };
        assert_eq!(next(back.to(), &claim, at(208)), Err(Refused::NotDue), "{kind}");
        assert!(next(back.to(), &claim, at(209)).is_ok(), "{kind}");
    }
    // Without one, a task that was not begun stands where it stood.
    let at_once = next(&life(Kind::Claimed), &back(Duration::ZERO), at(200)).unwrap();
    assert_eq!(at_once.to().state, State::Ready { since: at(90), due: at(90) });
}

#[test]
fn counts_and_times_at_the_end_of_their_range_stay_there() {
    let (end, never) = (Timestamp::from_micros(i64::MAX), Duration::MAX);
    let rules = Rules {
        retries: u32::MAX,
        backoff: Backoff::fixed(never),
        queue_timeout: Some(never),
        deadline: Some(never),
    };
    for (name, life) in open() {
        let life = Life {
            fence: Fence(u64::MAX),
            attempt: u32::MAX,
            entries: u32::MAX,
            recoveries: u8::MAX,
            active: never,
            started: Some(end),
            ..life
        };
        assert!(life.alarm(&rules, never).is_none_or(|alarm| alarm <= end), "{name}");
        for (event_name, event) in events(Fence(u64::MAX)) {
            for now in [Timestamp::from_micros(i64::MIN), at(0), end] {
                if let Ok(next) = life.next(&rules, &event, now) {
                    let Life { fence, entries, .. } = *next.to();
                    assert_eq!((fence.0, entries), (u64::MAX, u32::MAX), "{name}: {event_name}");
                }
            }
        }
    }
}
