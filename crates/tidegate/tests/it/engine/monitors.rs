//! What watches beside the loop: a net under every wake-up, which outlives its own panics and leaves
//! nothing behind; and the list of all metrics.

use super::faults::{Faulty, Looks};
use super::gates::{Gates, fake_clock, on_paused_time, with_gates};
use super::support::{Place, until, within};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidegate::engine::MetricKind;
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Metrics, RunId, Task, TaskError, TaskHandle, Workflow,
};
use tidegate_core::store::{Bytes, Counts, NewRun, Request, RequestId, Store};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// Another process, which says nothing to anybody: it writes a run like this one into the store.
async fn inserted(store: &Arc<dyn Store>, like: RunId, gate: &str) -> RunId {
    let clock = fake_clock();
    let plan = store.run(like).await.unwrap().expect("there is one").run.plan;
    let (id, input) = (RunId::new(clock(), 77), serde_json::to_vec(gate).unwrap());
    let run = NewRun { input: Some(Bytes::from(input)), ..NewRun::new(id, plan, "default".into()) };
    let request = Request { submits: vec![run], ..Request::new(RequestId(1), clock()) };
    assert!(store.request(Arc::new(request)).await.unwrap().submits[0].is_ok());
    id
}

on_paused_time! {
    async fn a_submit_starts_at_once_and_what_another_process_inserts_at_the_next_tick(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().clock(fake_clock()), &gates).start().await.unwrap();
        gates.open("own");
        gates.open("others");
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        let own = engine.submit("hold", "own").await.unwrap();
        own.wait().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "without a tick");

        let others = inserted(engine.store(), own.id(), "others").await;
        let begun = Instant::now();
        engine.run(others).await.unwrap().wait().await.unwrap();
        assert!(begun.elapsed() <= SECOND, "with the next tick: {:?}", begun.elapsed());
    }

    async fn a_watcher_that_panics_is_counted_and_goes_on(place: Place) {
        let (store, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(store.engine().clock(fake_clock()), &gates).start().await.unwrap();
        gates.open("a");
        until("it has looked", async || engine.metrics().watcher_age.is_some()).await;
        store.set_looks(Looks::Panic);
        until("it panics", async || engine.metrics().watcher_panics_total >= 4).await;
        let metrics = engine.metrics();
        assert!(metrics.watcher_age > Some(SECOND), "it does not succeed: {metrics:?}");
        assert!(metrics.store_age > Some(SECOND), "{metrics:?}");
        let begun = Instant::now();
        engine.submit("hold", "a").await.unwrap().wait().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "the engine lives");
        store.set_looks(Looks::Answered);
        tokio::time::sleep(2 * SECOND).await;
        let metrics = engine.metrics();
        assert!(metrics.watcher_age <= Some(SECOND) && metrics.store_age <= Some(SECOND));
        engine.shutdown(SECOND).await;
    }

    async fn a_monitor_that_panics_is_counted_and_holds_nothing_up(place: Place) {
        use tidegate::engine::{Sample, StartBelow};
        let gates = Gates::default();
        let mut samples = 0;
        let engine = with_gates(place.engine().clock(fake_clock()), &gates).load(move |at| {
            samples += 1;
            assert!(samples % 2 == 1, "a test wants it so");
            let mut sample = Sample::new(at);
            sample.machine.cpu = Some(1.0);
            sample
        });
        let engine = engine.start_below(StartBelow::cpu(0.5)).start().await.unwrap();
        gates.open("a");
        let run = engine.submit("hold", "a").await.unwrap();
        let begun = Instant::now();
        run.wait().await.unwrap();
        assert_eq!(begun.elapsed(), 5 * SECOND, "nothing is known, and nothing is held");
        assert_eq!(engine.metrics().monitor_panics_total, 1);
        assert_eq!(engine.metrics().monitor_age, Some(5 * SECOND));
        engine.samples().next().await.unwrap();
        assert!(engine.metrics().starts_held, "it goes on");
        assert_eq!(engine.metrics().monitor_age, Some(Duration::ZERO));
        engine.shutdown(SECOND).await;
    }

    async fn the_depth_of_the_store_is_counted(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().clock(fake_clock()), &gates).slots(1);
        let engine = engine.start().await.unwrap();
        engine.submit_many("hold", ["a"; 5]).await.unwrap();
        gates.arrived("a", 1).await;
        tokio::time::sleep(2 * SECOND).await;
        let (metrics, counts) = (engine.metrics(), engine.counts().await.unwrap());
        assert_eq!(counts, Counts { ready: 3, running: 2, ..Counts::default() });
        assert_eq!((metrics.store_ready, metrics.store_running), (3, 2));
        assert!(metrics.store_age <= Some(SECOND));
    }
}

/// Waits a little, and longer than any test.
async fn linger(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.sleep(Duration::from_millis(1)).await?;
    handle.sleep(3_600 * SECOND).await?;
    Ok(())
}

/// An engine with monitors of all kinds of trouble, and tasks that compute, wait and stand in line.
async fn troubled(engine: EngineBuilder, gates: &Gates) -> Engine {
    let engine = with_gates(engine, gates)
        .slots(1)
        .workflow(Workflow::of(Task::new("linger", linger)).unwrap())
        .load(|_| panic!("a test wants it so"));
    let engine = engine.start().await.unwrap();
    let waits = engine.submit("linger", ()).await.unwrap();
    until("it waits", async || engine.metrics().deferred == 1).await;
    engine.submit_many("hold", ["a", "b"]).await.unwrap();
    gates.arrived("a", 1).await;
    drop(waits);
    engine
}

#[test]
fn nothing_of_an_engine_is_left_when_its_shutdown_returns() {
    // One thread, so that the loop is over when whoever waited for that goes on.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(within(async {
        for (place, panics) in [
            (Place::memory(), false),
            (Place::memory(), true),
            #[cfg(feature = "sqlite")]
            (Place::sqlite(), false),
            #[cfg(feature = "sqlite")]
            (Place::sqlite(), true),
        ] {
            let (store, gates) = (Faulty::on(&place).await, Gates::default());
            store.set_looks(if panics { Looks::Panic } else { Looks::Answered });
            let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
            assert_eq!(alive(), 0);
            let engine = troubled(store.engine(), &gates).await;
            assert!(alive() > 3, "the loop, two monitors and the tasks");
            if panics {
                until("a watcher panics", async || engine.metrics().watcher_panics_total > 0).await;
            }
            assert!(engine.metrics().monitor_panics_total > 0);
            gates.open("a");
            engine.shutdown(60 * SECOND).await;
            assert_eq!(alive(), 0);
        }
    }));
}

/// A look that never comes back does not keep the engine from stopping.
#[test]
fn a_watcher_that_hangs_does_not_hold_up_the_shutdown() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(within(async {
        let store = Faulty::on(&Place::memory()).await;
        store.set_looks(Looks::Hang);
        let engine = store.engine().start().await.unwrap();
        until("it looks", async || store.hanging() >= 2).await;
        engine.shutdown(SECOND).await;
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
        assert_eq!(store.hanging(), 0);
    }));
}

/// Fails once.
async fn twice(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    match handle.attempt() {
        1 => Err("once more".into()),
        _ => Ok(()),
    }
}

/// Waits as a row.
async fn park(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.wait_for_signal("go").await?;
    Ok(())
}

on_paused_time! {
    async fn what_happens_is_counted(place: Place) {
        let gates = Gates::default();
        let retried = Task::new("twice", twice).retries(1).backoff(Backoff::fixed(3 * SECOND));
        let engine = with_gates(place.engine().clock(fake_clock()), &gates)
            .slots(1)
            .park_after(Duration::ZERO)
            .workflow(Workflow::of(retried).unwrap())
            .workflow(Workflow::of(Task::new("park", park).parkable()).unwrap())
            .start().await.unwrap();
        let events = engine.subscribe();
        engine.submit("twice", ()).await.unwrap().wait().await.unwrap();
        let metrics = engine.metrics();
        assert_eq!((metrics.submitted_total, metrics.runs_ended_total), (1, 1));
        assert_eq!((metrics.claimed_total, metrics.retries_total), (2, 1));
        assert_eq!(metrics.subscribers, 1);

        let parked = engine.submit("park", ()).await.unwrap();
        until("it is parked", async || engine.metrics().parked_total == 1).await;
        parked.signal("go", ()).await.unwrap();
        parked.wait().await.unwrap();
        assert_eq!(engine.metrics().claimed_total, 4);

        // One waits ten seconds for its slot; it is claimed ahead at once.
        engine.submit_many("hold", ["a", "b", "c"]).await.unwrap();
        gates.arrived("a", 1).await;
        tokio::time::sleep(10 * SECOND).await;
        let waited = engine.metrics().ready_wait;
        gates.open("a");
        gates.arrived("b", 1).await;
        until("the third is claimed", async || engine.metrics().claimed_total == 7).await;
        assert_eq!(engine.metrics().ready_wait - waited, 10 * SECOND);
        gates.open("b");
        gates.open("c");
        drop(events);
        let mut slow = engine.subscribe();
        for run in engine.submit_many("hold", vec!["c"; 500]).await.unwrap() {
            run.wait().await.unwrap();
        }
        let missed = slow.next().await.unwrap_err().count;
        assert_eq!(engine.metrics().events_missed_total, missed);
        engine.shutdown(SECOND).await;
    }
}

/// The rows of the table in `docs/metrics.md`.
fn documented() -> Vec<(String, String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let cells = |row: &str| -> Option<(String, String, String)> {
        let mut cells = row.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?.to_owned();
        Some((name, cells.next()?.to_owned(), cells.next()?.to_owned()))
    };
    page.lines().filter_map(cells).collect()
}

#[test]
fn the_page_of_metrics_and_the_metrics_are_the_same() {
    let list = Metrics::default().list();
    let listed: Vec<_> = list
        .iter()
        .map(|metric| (metric.name.to_owned(), metric.kind.to_string(), metric.meaning.to_owned()))
        .collect();
    assert_eq!(documented(), listed);
    let names: BTreeSet<_> = list.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), list.len());
    for metric in list {
        let counts = metric.name.ends_with("_total");
        assert_eq!(counts, metric.kind == MetricKind::Counter, "{}", metric.name);
    }
}

#[test]
fn every_metric_is_a_number_and_what_is_not_known_is_none() {
    let mut metrics = Metrics::default();
    (metrics.more_ready, metrics.request_time) = (true, Duration::from_millis(1_500));
    (metrics.slots, metrics.machine_cpu) = (7, Some(0.25));
    let list = metrics.list();
    let value = |name: &str| list.iter().find(|metric| metric.name == name).unwrap().value;
    assert_eq!(
        ["slots", "more_ready", "request_time", "machine_cpu"].map(value),
        [7.0, 1.0, 1.5, 0.25].map(Some)
    );
    assert_eq!(["machine_memory", "watcher_age"].map(value), [None, None]);
}
