//! Many tasks, many engines, and the numbers that say how things stand.

use super::gates::{
    Gates, fake_clock, is_sound, life, on_paused_time, recorded, until_kind, with_gates,
};
use super::support::{Place, on_every_store, until, within};
use crate::support::Crowd;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::{Config, Context, Engine, Run, RunOutcome, Task, TaskError, TaskHandle, Workflow};
use tidegate_core::lifecycle::Kind;
use tidegate_core::store::{Happened, RunsPage};
use tokio::time::Instant;

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

/// What is asked of an engine comes back when it has done what was to do before.
async fn round_trip(engine: &Engine) {
    for _ in 0..3 {
        engine.unpause_queue("nobody's").await.unwrap();
    }
}

fn gate_names(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

async fn succeeds(run: &Run) {
    assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
}

/// Waits once or not at all, by chance; counts those inside, and how often each was entered.
async fn perhaps_wait(context: &mut Context<usize>, handle: &TaskHandle) -> Result<(), TaskError> {
    let seen = context.state::<Seen>()?;
    seen.entries[*context.input()].fetch_add(1, Ordering::SeqCst);
    let inside = seen.crowd.enter();
    let waits = toss(*context.input());
    drop(inside);
    if waits {
        handle.defer_while(tokio::task::yield_now()).await?;
        let _inside = seen.crowd.enter();
    }
    Ok(())
}

struct Seen {
    entries: Vec<AtomicUsize>,
    crowd: Crowd,
}

/// One of two, by chance, the same for the same number.
fn toss(number: usize) -> bool {
    (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 1
}

on_every_store! {
    async fn twenty_thousand_end_once_each_and_leave_all_slots_free(place: Place) {
        const RUNS: usize = 20_000;
        let entries = (0..RUNS).map(|_| AtomicUsize::new(0)).collect();
        let crowd = Crowd::default();
        let engine = place.engine().slots(8).state(Seen { entries, crowd: crowd.clone() });
        let workflow = Workflow::of(Task::new("perhaps", perhaps_wait)).unwrap();
        let engine = engine.workflow(workflow).start().await.unwrap();
        let runs = engine.submit_many("perhaps", 0..RUNS).await.unwrap();
        let ids: BTreeSet<_> = runs.iter().map(Run::id).collect();
        assert_eq!(ids.len(), RUNS);
        for run in &runs {
            let status = run.wait().await.unwrap();
            let task = &status.tasks[0];
            assert_eq!((task.kind, task.entries, task.attempt), (Kind::Succeeded, 1, 1));
        }
        assert!(crowd.most() <= 8, "{} computed at once", crowd.most());
        let records = engine.store().records(None, 0, u32::MAX).await.unwrap();
        assert_eq!(records.len(), RUNS);
        assert!(records.iter().all(|record| record.what == Happened::Succeeded));
        until("all slots are free", async || {
            let metrics = engine.metrics();
            (metrics.slots_in_use, metrics.owned, metrics.queued) == (0, 0, 0)
        })
        .await;
        let metrics = engine.metrics();
        assert_eq!((metrics.succeeded_total, metrics.deferred, metrics.ahead), (RUNS as u64, 0, 0));
        assert_eq!((metrics.lost_races_total, metrics.strays_total), (0, 0));
        assert!(!metrics.more_ready);
        is_sound(engine.store()).await;
    }

    async fn no_more_than_there_are_slots_is_claimed_ahead(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(3), &gates).start().await.unwrap();
        let runs = engine.submit_many("hold", gate_names(20)).await.unwrap();
        let stands = async || {
            let counts = engine.store().counts().await.unwrap();
            let metrics = engine.metrics();
            let ours = (metrics.active, metrics.ahead, metrics.queued, metrics.more_ready);
            (counts.running, counts.ready, ours)
        };
        until("three run, and three are claimed", async || {
            stands().await == (6, 14, (3, 3, 3, true))
        })
        .await;
        let more = engine.submit_many("hold", ["x"; 5]).await.unwrap();
        round_trip(&engine).await;
        assert_eq!(stands().await, (6, 19, (3, 3, 3, true)));
        // Each that ends makes room for one.
        gates.open("0");
        succeeds(&runs[0]).await;
        until("as many are claimed", async || stands().await == (6, 18, (3, 3, 3, true))).await;
        gates.open("x");
        gate_names(20).iter().for_each(|name| gates.open(name));
        for run in runs.iter().chain(&more) {
            succeeds(run).await;
        }
    }

    async fn what_is_begun_and_unfinished_has_a_bound(place: Place) {
        let gates = Gates::default();
        let mut config = Config::default();
        (config.slots, config.in_memory_max) = (2, 10);
        let engine = with_gates(place.engine().config(config), &gates).start().await.unwrap();
        let names = gate_names(15);
        let runs = engine.submit_many("wait", &names).await.unwrap();
        let begun = || names.iter().filter(|name| gates.arrivals(name) > 0).count();
        until("ten wait", async || engine.metrics().deferred == 10).await;
        let late = engine.submit("hold", "late").await.unwrap();
        round_trip(&engine).await;
        assert_eq!((begun(), gates.arrivals("late")), (10, 0));
        let counts = engine.store().counts().await.unwrap();
        assert_eq!((counts.running, counts.ready), (10, 6));
        assert_eq!(engine.metrics().owned, 10);
        // With two that end, two begin.
        gates.open("0");
        gates.open("1");
        until("twelve have begun", async || begun() == 12).await;
        round_trip(&engine).await;
        assert_eq!((begun(), engine.metrics().owned), (12, 10));
        names.iter().for_each(|name| gates.open(name));
        gates.open("late");
        for run in runs.iter().chain([&late]) {
            succeeds(run).await;
        }
    }

    async fn two_engines_on_two_places_do_not_know_each_other(place: Place) {
        let (gates, other) = (Gates::default(), Place::memory());
        let first = with_gates(place.engine(), &gates).start().await.unwrap();
        let second = with_gates(other.engine(), &gates).start().await.unwrap();
        let here = first.submit("hold", "here").await.unwrap();
        let there = second.submit("hold", "there").await.unwrap();
        assert!(second.run(here.id()).await.is_err() && first.run(there.id()).await.is_err());
        first.shutdown(Duration::ZERO).await;
        gates.open("there");
        succeeds(&there).await;
        assert_eq!(life(first.store(), here.id()).await.state.kind(), Kind::Ready);
    }

    async fn two_engines_on_one_place_share_the_work_and_one_goes_on_alone(place: Place) {
        let gates = Gates::default();
        let first = with_gates(place.engine().slots(2), &gates).start().await.unwrap();
        let second = with_gates(place.engine().slots(2), &gates).start().await.unwrap();
        let names = gate_names(10);
        let runs = first.submit_many("hold", &names).await.unwrap();
        until("each has two, and two ahead", async || {
            let both = [first.metrics(), second.metrics()];
            both.iter().all(|metrics| (metrics.active, metrics.ahead) == (2, 2))
        })
        .await;
        let counts = first.store().counts().await.unwrap();
        assert_eq!((counts.running, counts.ready), (8, 2));
        let shutdown = tokio::spawn({
            let first = first.clone();
            async move { first.shutdown(HOUR).await }
        });
        until("what has not begun is handed back", async || first.metrics().ahead == 0).await;
        names.iter().for_each(|name| gates.open(name));
        let report = shutdown.await.unwrap();
        assert_eq!((report.finished, report.handed_back.len()), (2, 2));
        // What the first handed back or never took is the second's.
        for run in &runs {
            let run = second.run(run.id()).await.unwrap();
            let status = run.wait().await.unwrap();
            let task = &status.tasks[0];
            assert_eq!((task.kind, task.entries, task.attempt), (Kind::Succeeded, 1, 1));
            assert_eq!(recorded(second.store(), run.id()).await, [Happened::Succeeded]);
        }
        assert!(names.iter().all(|name| gates.arrivals(name) == 1));
        assert_eq!((first.metrics().succeeded_total, second.metrics().succeeded_total), (2, 8));
        assert_eq!(second.metrics().lost_races_total, 0);
        is_sound(second.store()).await;
    }

    async fn the_end_of_a_run_is_told_where_it_was_submitted_whoever_ran_it(place: Place) {
        let gates = Gates::default();
        let asks = with_gates(place.engine().queues(["mine"]), &gates).start().await.unwrap();
        let runs = with_gates(place.engine().queues(["yours"]), &gates).start().await.unwrap();
        gates.open("a");
        let run = asks.submit("hold", "a").queue("yours").await.unwrap();
        let again = asks.run(run.id()).await.unwrap();
        let (one, other) = tokio::join!(run.wait(), again.wait());
        for status in [one.unwrap(), other.unwrap()] {
            assert_eq!(status.output::<String>("hold").unwrap(), "a");
        }
        assert_eq!((asks.metrics().succeeded_total, runs.metrics().succeeded_total), (0, 1));
    }

    async fn what_ends_after_another_engine_cancelled_it_has_lost_the_race(place: Place) {
        let gates = Gates::default();
        let works = with_gates(place.engine(), &gates).start().await.unwrap();
        let run = works.submit("hold", "a").await.unwrap();
        gates.arrived("a", 1).await;
        let cancels = place.engine().start().await.unwrap();
        assert!(cancels.run(run.id()).await.unwrap().cancel().await.unwrap());
        gates.open("a");
        // It hears of the cancel when it reports the end, or from a word that was left for it.
        until("it has let go", async || works.metrics().owned == 0).await;
        assert!(works.metrics().lost_races_total <= 1);
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        assert_eq!(recorded(works.store(), run.id()).await, [Happened::Cancelled]);
        until("its slot is free", async || {
            let metrics = works.metrics();
            (metrics.slots_in_use, metrics.owned) == (0, 0)
        })
        .await;
        is_sound(works.store()).await;
    }

    async fn every_task_is_counted_where_it_stands(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        let reads = async |owned, active, deferred, ahead, queued, more_ready| {
            until("the readings are right", async || {
                let metrics = engine.metrics();
                let wrong = (metrics.slots, metrics.slots_in_use) != (1, active);
                !wrong
                    && (metrics.owned, metrics.active, metrics.deferred) == (owned, active, deferred)
                    && (metrics.ahead, metrics.queued) == (ahead, queued)
                    && metrics.more_ready == more_ready
            })
            .await;
        };
        reads(0, 0, 0, 0, 0, false).await;
        let deferred = engine.submit("wait", "deferred").await.unwrap();
        reads(1, 0, 1, 0, 0, false).await;
        let active = engine.submit("hold", "active").await.unwrap();
        reads(2, 1, 1, 0, 0, false).await;
        let ahead = engine.submit("hold", "ahead").await.unwrap();
        reads(3, 1, 1, 1, 1, false).await;
        let ready = engine.submit("hold", "ready").await.unwrap();
        reads(3, 1, 1, 1, 1, true).await;
        // Over its wait, it queues to go on.
        gates.open("deferred");
        reads_resuming(&engine).await;
        gates.open("active");
        succeeds(&active).await;
        succeeds(&deferred).await;
        reads(2, 1, 0, 1, 1, false).await;
        gates.open("ahead");
        gates.open("ready");
        succeeds(&ahead).await;
        succeeds(&ready).await;
        reads(0, 0, 0, 0, 0, false).await;
        let metrics = engine.metrics();
        assert_eq!(metrics.succeeded_total, 4);
        // Four submits, four ends, a wait and its end: at least so much was said.
        assert!(metrics.request_items_total >= 10, "{} items", metrics.request_items_total);
        assert!(metrics.requests_total >= 8 && metrics.request_time > Duration::ZERO);
        engine.submit("hold", "ready").await.unwrap().wait().await.unwrap();
        let later = engine.metrics();
        assert!(later.requests_total > metrics.requests_total && later.request_time > metrics.request_time);
        assert!(later.request_items_total > metrics.request_items_total);
        assert_eq!((later.failed_requests_total, later.recoveries_total, later.suspects), (0, 0, 0));
    }

    async fn every_end_is_counted_by_how_it_came(place: Place) {
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates).state(Mutex::new(stuck));
        let engine = engine
            .workflow(Workflow::of(Task::new("end", end)).unwrap())
            .workflow(Workflow::of(Task::new("late", end).timeout(Duration::from_millis(1))).unwrap())
            .start()
            .await
            .unwrap();
        let totals = || {
            let metrics = engine.metrics();
            let ends = (metrics.succeeded_total, metrics.failed_total);
            (ends, metrics.timed_out_total, metrics.cancelled_total, metrics.slots_leaky)
        };
        assert_eq!(totals(), ((0, 0), 0, 0, 0));
        engine.submit("end", "succeed").await.unwrap().wait().await.unwrap();
        assert_eq!(totals(), ((1, 0), 0, 0, 0));
        engine.submit("end", "fail").await.unwrap().wait().await.unwrap();
        engine.submit("end", "panic").await.unwrap().wait().await.unwrap();
        assert_eq!(totals(), ((1, 2), 0, 0, 0));
        let run = engine.submit("hold", "never").await.unwrap();
        gates.arrived("never", 1).await;
        assert!(run.cancel().await.unwrap());
        until("the cancelled one is gone", async || totals() == ((1, 2), 0, 1, 0)).await;
        // It is reported at its limit, and its slot is not free before it gives it back.
        let run = engine.submit("late", "block").await.unwrap();
        assert_eq!(run.wait().await.unwrap().tasks[0].kind, Kind::TimedOut);
        assert_eq!(totals(), ((1, 2), 1, 1, 1));
        until("it has its slot", async || engine.metrics().slots_in_use == 1).await;
        drop(release);
        until("its slot is free", async || engine.metrics().slots_in_use == 0).await;
        until("nothing is leaky", async || totals() == ((1, 2), 1, 1, 0)).await;
    }
}

/// One queues to go on besides the one that queues to begin, and nothing waits any more.
async fn reads_resuming(engine: &Engine) {
    until("it queues", async || {
        let metrics = engine.metrics();
        (metrics.owned, metrics.deferred, metrics.queued, metrics.ahead) == (3, 0, 2, 1)
    })
    .await;
}

/// Ends as its input says.
async fn end(context: &mut Context<String>) -> Result<(), TaskError> {
    match context.input().as_str() {
        "succeed" => Ok(()),
        "fail" => Err("as told".into()),
        "panic" => panic!("as told"),
        _ => {
            // It cannot be dropped until the test lets go of the other end.
            let stuck = context.state::<Mutex<std::sync::mpsc::Receiver<()>>>()?;
            let _ = tokio::task::block_in_place(|| stuck.lock().unwrap().recv());
            Ok(())
        }
    }
}

/// An engine needs no more than one thread.
async fn on_one_thread(place: Place) {
    let gates = Gates::default();
    let engine = with_gates(place.engine().slots(2), &gates).start().await.unwrap();
    let runs = engine.submit_many("wait", ["a"; 50]).await.unwrap();
    until("all wait", async || engine.metrics().deferred == 50).await;
    gates.open("a");
    for run in &runs {
        succeeds(run).await;
    }
    assert_eq!(engine.shutdown(HOUR).await.handed_back, []);
}

#[tokio::test]
async fn an_engine_lives_on_one_thread_in_memory() {
    within(on_one_thread(Place::memory())).await;
}

#[tokio::test]
#[cfg(feature = "sqlite")]
async fn an_engine_lives_on_one_thread_in_sqlite() {
    within(on_one_thread(Place::sqlite())).await;
}

/// Nothing.
async fn nothing(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

/// Waits for something that is there on a second look, and fails the first time.
async fn eventful(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.defer_while(tokio::task::yield_now()).await?;
    handle.yield_slot().await?;
    match handle.attempt() {
        1 => Err("the first time".into()),
        _ => Ok(()),
    }
}

on_paused_time! {
    async fn what_is_submitted_here_starts_without_a_tick(place: Place) {
        let workflow = Workflow::builder("chain")
            .task(Task::new("first", nothing))
            .task(Task::new("left", eventful).after(["first"]).retries(1)
                .backoff(tidegate::Backoff::fixed(Duration::ZERO)))
            .task(Task::new("right", nothing).after(["first"]))
            .task(Task::new("last", nothing).after(["left", "right"]))
            .build()
            .unwrap();
        let engine = place.engine().slots(1).workflow(workflow).clock(fake_clock());
        let engine = engine.start().await.unwrap();
        // Between two looks of the watch.
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        let begun = Instant::now();
        let runs = engine.submit_many("chain", 0..20).await.unwrap();
        for run in &runs {
            succeeds(run).await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        engine.pause_queue("default").await.unwrap();
        let run = engine.submit("chain", ()).await.unwrap();
        engine.unpause_queue("default").await.unwrap();
        succeeds(&run).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    async fn what_comes_due_starts_when_it_is(place: Place) {
        let clock = Arc::new(fake_clock());
        let engine = place.engine().workflow(Workflow::of(Task::new("nothing", nothing)).unwrap());
        let engine = engine.clock({ let clock = clock.clone(); move || clock() });
        let engine = engine.start().await.unwrap();
        let (begun, at) = (Instant::now(), clock() + Duration::from_millis(90_300));
        let run = engine.submit("nothing", ()).not_before(at).await.unwrap();
        succeeds(&run).await;
        let elapsed = begun.elapsed();
        assert!((90_300..=90_302).contains(&elapsed.as_millis()), "{elapsed:?}");
    }

    async fn what_another_engine_submits_is_found_at_the_next_tick(place: Place) {
        let gates = Gates::default();
        gates.open("a");
        let works = with_gates(place.engine(), &gates).queues(["theirs"]).clock(fake_clock());
        let works = works.start().await.unwrap();
        let asks = with_gates(place.engine(), &gates).queues(["ours"]).clock(fake_clock());
        let asks = asks.start().await.unwrap();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let begun = Instant::now();
            let id = asks.submit("hold", "a").queue("theirs").await.unwrap().id();
            until_kind(works.store(), id, Kind::Succeeded).await;
            let elapsed = begun.elapsed();
            assert!(elapsed <= Duration::from_millis(1_005), "{elapsed:?}");
        }
        let page = RunsPage { open: true, limit: 10, ..Default::default() };
        assert_eq!(asks.runs(page).await.unwrap(), []);
    }

    async fn a_slot_that_is_free_beside_work_that_does_not_fit_is_counted(place: Place) {
        let gates = Gates::default();
        let heavy = Workflow::of(Task::new("heavy", nothing).weight(2)).unwrap();
        let engine = with_gates(place.engine().slots(2), &gates).workflow(heavy).clock(fake_clock());
        let engine = engine.start().await.unwrap();
        let light = engine.submit("hold", "a").await.unwrap();
        gates.arrived("a", 1).await;
        let heavies = engine.submit_many("heavy", [(); 3]).await.unwrap();
        until("two are claimed ahead", async || {
            let metrics = engine.metrics();
            (metrics.ahead, metrics.more_ready, metrics.slots_in_use) == (2, true, 1)
        })
        .await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let gap = engine.metrics().idle_gap.as_secs();
        assert!((9..=10).contains(&gap), "{gap} seconds");
        gates.open("a");
        for run in heavies.iter().chain([&light]) {
            succeeds(run).await;
        }
        let gap = engine.metrics().idle_gap;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(engine.metrics().idle_gap, gap, "nothing is ready any more");
    }

    async fn a_busy_engine_claims_no_more_with_time(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(3), &gates).clock(fake_clock());
        let engine = engine.start().await.unwrap();
        let runs = engine.submit_many("hold", gate_names(20)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(200)).await;
        let counts = engine.store().counts().await.unwrap();
        assert_eq!((counts.running, counts.ready), (6, 14));
        gate_names(20).iter().for_each(|name| gates.open(name));
        for run in &runs {
            succeeds(run).await;
        }
    }
}

/// How many requests a hundred tasks of a millisecond take on one slot.
async fn requests(ahead_min: u32) -> u64 {
    async fn short(_: &mut Context) -> Result<(), TaskError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }
    let mut config = Config::default();
    config.ahead_min = ahead_min;
    let workflow = Workflow::of(Task::new("short", short)).unwrap();
    let builder = Engine::builder("memory:").config(config).slots(1).workflow(workflow);
    let engine = builder.start().await.unwrap();
    for run in engine.submit_many("short", [(); 100]).await.unwrap() {
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
    }
    let requests = engine.metrics().requests_total;
    engine.shutdown(Duration::ZERO).await;
    requests
}

#[tokio::test(start_paused = true)]
async fn with_more_claimed_ahead_than_there_are_slots_ends_are_stored_together() {
    let (alone, together) = (requests(0).await, requests(16).await);
    assert!(4 * together < 3 * alone, "{together} requests, and {alone} one by one");
}
