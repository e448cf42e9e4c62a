//! Reasons why a task is not running, in words, and guesses of when it will.

use std::time::Duration;
use tidegate_core::explain::{COUNTED_MAX, Full, Looked, Rough, Slots, Why};
use tidegate_core::graph::When;
use tidegate_core::lifecycle::{CancelledBy, Kind, Reason, WorkerId};
use tidegate_core::limit::{Holder, LimitKey, Rate};
use tidegate_core::load::Resource;
use tidegate_core::store::{Scope, TaskKey, WhyUnserved};
use tidegate_core::{RunId, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros((1_794_711_800 + seconds) * 1_000_000)
}

fn run() -> RunId {
    RunId::new(at(0), 7)
}

fn holder(units: u32) -> Holder {
    Holder { task: TaskKey(1), run: run(), name: "call".to_owned(), units, since: at(-90) }
}

fn full(in_use: u32, before: u32) -> Full {
    let limit = LimitKey::new("api", "gpt");
    Full { limit, at_once: Some(2), wants: 1, in_use, holders: vec![holder(1)], before }
}

fn slots(capacity: u32, in_use: u32, waiting: u32) -> Slots {
    Slots { capacity, in_use, waiting }
}

/// Every reason, in all its forms, and how it is told at the time 0.
fn all() -> Vec<(Why, String)> {
    let worker = WorkerId(3);
    let (name, run) = ("call".to_owned(), run());
    let text = str::to_owned;
    let unserved = |why| Why::Unserved {
        queue: text("mail"),
        workflow: text("etl"),
        task: text("load"),
        weight: 3,
        why,
    };
    let no_slot = |before, slots| Why::NoSlot { queue: text("mail"), before, slots };
    let paused = |scope| Why::Paused { scope, since: at(-5) };
    let tasks = vec![(text("extract"), Kind::Active), (text("check"), Kind::Blocked)];
    let rate = Rate { units: 60, per: 60 * SECOND };
    let ended = |kind, reason, error: Option<&str>| Why::Ended {
        kind,
        reason,
        at: Some(at(-5)),
        error: error.map(text),
    };
    let limit = LimitKey::new("api", "");
    let told = [
        (
            Why::BlockedBy { tasks: tasks.clone(), open: 2, when: When::AllSucceeded },
            "it comes after tasks that are not over (all_succeeded): \"extract\" is active, \
             \"check\" is blocked",
        ),
        (
            Why::BlockedBy { tasks: tasks.clone(), open: 5, when: When::AnySucceeded },
            "it comes after tasks that are not over (any_succeeded): \"extract\" is active, \
             \"check\" is blocked and 3 more",
        ),
        (
            Why::NotBefore { at: at(5_400) },
            "it may not start before 2026-11-15T04:33:20.000Z (in 1h30m)",
        ),
        (
            Why::BackOff { until: at(5), attempt: 2, attempts: 4, error: Some(text("refused")) },
            "it failed and is in back-off until 2026-11-15T03:03:25.000Z (in 5s); then comes \
             attempt 2 of 4; the last error was: refused",
        ),
        (
            Why::Snoozed { until: at(5) },
            "it asked to be run again later, at 2026-11-15T03:03:25.000Z (in 5s)",
        ),
        (
            Why::LimitFull(full(2, 1)),
            "limit \"api\" for \"gpt\" is full: it wants 1, and 2 of 2 are in use, held by \"call\" \
             of run RUN (1 since 2026-11-15T03:01:50.000Z (1m30s ago)) and others; 1 task stands \
             before it",
        ),
        (
            Why::RateReached { limit: limit.clone(), rate, wants: 1, next: at(5), before: 0 },
            "limit \"api\" lets no more than 60 in 60s begin: it wants 1, which may begin \
             2026-11-15T03:03:25.000Z (in 5s); no task stands before it",
        ),
        (
            Why::LimitMissing { limit },
            "limit \"api\" is not declared, and nothing begins under it until an engine is started \
             with .limit(Limit::new(\"api\")..)",
        ),
        (
            no_slot(COUNTED_MAX, None),
            "it waits for a slot: 1000 or more ready tasks go before it in queue \"mail\"",
        ),
        (
            no_slot(3, Some(slots(4, 4, 4))),
            "it waits for a slot: 3 ready tasks go before it in queue \"mail\", and 4 of 4 slots \
             are in use",
        ),
        (
            no_slot(0, Some(slots(4, 3, 0))),
            "it is the next of queue \"mail\", and a slot is free (3 of 4 slots are in use)",
        ),
        (
            Why::Claimed { worker, since: at(-5), slots: Some(slots(1, 1, 2)) },
            "worker 3 has claimed it, and it waits there for a slot since \
             2026-11-15T03:03:15.000Z (5s ago); 1 of 1 slot is in use, and 2 tasks stand in line",
        ),
        (paused(Scope::Store), "the store is paused since 2026-11-15T03:03:15.000Z (5s ago)"),
        (
            paused(Scope::Queue(text("mail"))),
            "queue \"mail\" is paused since 2026-11-15T03:03:15.000Z (5s ago)",
        ),
        (paused(Scope::Run(run)), "its run is paused since 2026-11-15T03:03:15.000Z (5s ago)"),
        (
            Why::InMemoryMax { worker, most: 100_000 },
            "worker 3 has 100000 tasks begun and unfinished, and in_memory_max allows no more; \
             nothing begins there until one ends",
        ),
        (
            Why::StartBelow { worker, what: Resource::Cpu, value: 0.93217, mark: 0.8 },
            "nothing new starts at worker 3 while 80 % or more of the cpu is in use (start_below), and \
             93.2 % is",
        ),
        (
            Why::StartBelow { worker, what: Resource::Memory, value: 0.5, mark: 0.000_001 },
            "nothing new starts at worker 3 while 0.0001 % or more of the memory is in use \
             (start_below), and 50 % is",
        ),
        (
            Why::Waits { what: text("signal \"go\""), since: at(-5), until: None, worker },
            "it waits at worker 3, without a slot, for signal \"go\" since \
             2026-11-15T03:03:15.000Z (5s ago)",
        ),
        (
            Why::Parked { what: text("time"), since: at(-5), until: Some(at(5)) },
            "it is parked, and waits as a row for time since 2026-11-15T03:03:15.000Z (5s ago), \
             until 2026-11-15T03:03:25.000Z (in 5s) at the latest",
        ),
        (
            Why::Retakes(full(1, 0)),
            "its wait is over, and it has to take limit \"api\" for \"gpt\" again: it wants 1, and \
             1 of 2 are in use, held by \"call\" of run RUN (1 since 2026-11-15T03:01:50.000Z \
             (1m30s ago)); no task stands before it",
        ),
        (
            Why::Resuming { worker, slots: slots(4, 4, 1) },
            "its wait is over, and it queues at worker 3 for a slot; 4 of 4 slots are in use, and 1 \
             task stands in line",
        ),
        (
            Why::Quarantined { deaths: 2, before: vec![(run, name)] },
            "its process died 2 times while it computed, so it is run beside no other such task; \
             before it goes \"call\" of run RUN",
        ),
        (unserved(WhyUnserved::Queue), "no living worker serves queue \"mail\""),
        (
            unserved(WhyUnserved::Unknown),
            "no living worker of queue \"mail\" knows task \"load\" of workflow \"etl\"",
        ),
        (
            unserved(WhyUnserved::TooHeavy { largest: 2 }),
            "it takes 3 slots, and no living worker that knows it has more than 2",
        ),
        (
            Why::Stopping { by: CancelledBy::FailFast },
            "it was told to stop (fail_fast) and still computes",
        ),
        (
            Why::Running { worker, since: at(-5) },
            "it is running at worker 3 since 2026-11-15T03:03:15.000Z (5s ago)",
        ),
        (
            ended(Kind::Succeeded, None, None),
            "it has succeeded at 2026-11-15T03:03:15.000Z (5s ago)",
        ),
        (
            ended(Kind::TimedOut, Some(Reason::Deadline), None),
            "it has timed out (deadline) at 2026-11-15T03:03:15.000Z (5s ago)",
        ),
        (
            ended(Kind::Skipped, None, Some("because \"a\" has failed")),
            "it was skipped at 2026-11-15T03:03:15.000Z (5s ago): because \"a\" has failed",
        ),
    ];
    told.into_iter().map(|(why, told)| (why, told.replace("RUN", &run.to_string()))).collect()
}

#[test]
fn every_reason_is_told_in_words() {
    for (why, told) in all() {
        assert_eq!(why.seen_at(at(0)).to_string(), told);
    }
}

#[test]
fn without_a_time_only_the_times_themselves_are_told() {
    let why = Why::NotBefore { at: at(5) };
    assert_eq!(why.to_string(), "it may not start before 2026-11-15T03:03:25.000Z");
    for (why, _) in all() {
        assert!(!why.to_string().contains(" ago)"), "{why}");
    }
}

#[test]
fn a_duration_is_told_in_its_largest_units() {
    for (millis, told) in [
        (0, "0ms"),
        (250, "250ms"),
        (999, "999ms"),
        (1_499, "1s"),
        (59_999, "1m"),
        (60_000, "1m"),
        (90_000, "1m30s"),
        (3_599_999, "1h"),
        (3_600_000, "1h"),
        (14_399_000, "4h"),
        (5_420_000, "1h30m"),
        (86_400_000, "1d"),
        (100_000_000, "1d4h"),
    ] {
        assert_eq!(Rough(Duration::from_millis(millis)).to_string(), told);
    }
}

fn looked(reasons: Vec<Why>, usual: Option<Duration>) -> Looked {
    Looked {
        run: run(),
        task: "load".to_owned(),
        kind: Kind::Ready,
        at: at(0),
        reasons,
        weight: 2,
        awaited: false,
        owner: None,
        able: vec![WorkerId(3)],
        slots: 8,
        usual,
    }
}

#[test]
fn the_guess_is_that_of_the_reason_that_takes_longest() {
    let guess = |reasons: &[Why], usual: u32| {
        let usual = (usual > 0).then(|| usual * SECOND);
        looked(reasons.to_vec(), usual).estimate()
    };
    let not_before = Why::NotBefore { at: at(10) };
    let no_slot = |before, slots| Why::NoSlot { queue: String::new(), before, slots };
    assert_eq!(guess(std::slice::from_ref(&not_before), 0), Some(10 * SECOND));
    // Three of 4 s, each with two of eight slots.
    assert_eq!(guess(&[no_slot(2, None)], 4), Some(3 * SECOND));
    assert_eq!(guess(&[no_slot(2, None)], 0), None, "nobody knows how long they take");
    assert_eq!(guess(&[no_slot(0, Some(slots(8, 6, 0)))], 0), Some(Duration::ZERO));
    assert_eq!(guess(&[not_before.clone(), no_slot(2, None)], 4), Some(10 * SECOND));
    assert_eq!(guess(&[not_before.clone(), no_slot(99, None)], 4), Some(100 * SECOND));
    // Three of 4 s, two at a time.
    assert_eq!(guess(&[Why::LimitFull(full(2, 2))], 4), Some(6 * SECOND));
    assert_eq!(guess(&[Why::Retakes(full(2, 0))], 4), Some(2 * SECOND));
    let limit = LimitKey::new("api", "");
    let rate = Rate { units: 2, per: 60 * SECOND };
    let reached = Why::RateReached { limit: limit.clone(), rate, wants: 1, next: at(7), before: 5 };
    assert_eq!(guess(&[reached], 0), Some(127 * SECOND), "two more stretches");
    let (worker, since) = (WorkerId(3), at(-5));
    let claimed = Why::Claimed { worker, since, slots: Some(slots(8, 8, 4)) };
    assert_eq!(guess(&[claimed], 4), Some(2 * SECOND));
    let alone = |before: usize| Why::Quarantined {
        deaths: 2,
        before: vec![(run(), "a".to_owned()); before],
    };
    assert_eq!(guess(&[alone(2)], 4), Some(8 * SECOND));
    assert_eq!(guess(&[alone(0)], 0), Some(Duration::ZERO));
    let what = String::new();
    for until in [None, Some(at(9))] {
        let waits = Why::Waits { what: what.clone(), since, until, worker };
        let parked = Why::Parked { what: what.clone(), since, until };
        let known = until.map(|_| 9 * SECOND);
        assert_eq!((guess(&[waits], 4), guess(&[parked], 4)), (known, known));
    }
    for nobody_knows in [
        Why::Paused { scope: Scope::Store, since },
        Why::LimitMissing { limit },
        Why::InMemoryMax { worker, most: 7 },
        Why::StartBelow { worker, what: Resource::Cpu, value: 0.9, mark: 0.8 },
        Why::Stopping { by: CancelledBy::User },
        Why::Running { worker, since },
    ] {
        assert_eq!(guess(&[not_before.clone(), nobody_knows], 4), None);
    }
}

#[test]
fn guesses_do_not_overflow() {
    let no_slot = Why::NoSlot { queue: String::new(), before: u32::MAX, slots: None };
    let guess = looked(vec![no_slot], Some(Duration::MAX)).estimate();
    assert!(guess.is_some_and(|guess| guess >= Duration::MAX / 8));
}
