//! A million waits that are rows: what they cost a worker, and how fast they are woken.

use crate::bare;
use crate::figure::{Figure, Target, resident};
use crate::store::{self, median_ms};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use tidegate::engine::RunsPage;
use tidegate::{Config, Context, Engine, Task, TaskError, TaskHandle, Timestamp, Workflow};
use tokio::sync::mpsc;

/// How many, unless `TIDEGATE_PARKED` says otherwise.
const WAITS: usize = 1_000_000;

/// Of these, so many wait for time.
const SLEEPERS: usize = 200_000;

const AT_A_TIME: usize = 2_000;
const SLOTS: u32 = 256;
const SIGNALS: usize = 200;

/// Tells when it has been woken.
struct Woken(mpsc::UnboundedSender<Instant>);

/// Waits for a signal, or for its time.
async fn wait(context: &mut Context<Option<i64>>, handle: &TaskHandle) -> Result<(), TaskError> {
    match context.input() {
        Some(micros) => handle.sleep_until(Timestamp::from_micros(*micros)).await?,
        None => drop(handle.wait_for_signal("go").await?),
    }
    let _ = context.state::<Woken>()?.0.send(Instant::now());
    Ok(())
}

pub(crate) fn measure() -> Vec<Figure> {
    let waits = std::env::var("TIDEGATE_PARKED").ok();
    let waits = waits.and_then(|waits| waits.parse().ok()).unwrap_or(WAITS);
    let place = bare::scratch();
    let runtime = store::runtime();
    let mut figures = runtime.block_on(fill(place.path(), waits));
    // Both in the same run, and outside a runtime: they have their own.
    let (commit, ordinary) =
        (median_ms(bare::idle_commit(SIGNALS)), store::lives(SLOTS, store::LIVES).rate());
    figures.extend(runtime.block_on(wake(place.path(), waits, commit, ordinary)));
    figures
}

fn figure(what: String, value: f64, unit: &str, target: Target) -> Figure {
    Figure { name: "parked".into(), what, value, unit: unit.into(), reference: None, target }
}

async fn start(place: &Path) -> (Engine, mpsc::UnboundedReceiver<Instant>) {
    let (woken, receiver) = mpsc::unbounded_channel();
    let mut config = Config::default();
    (config.slots, config.park_after) = (SLOTS, Duration::ZERO);
    let workflow = Workflow::of(Task::new("wait", wait).parkable()).expect("it makes sense");
    let engine = Engine::builder(format!("sqlite:{}", place.join("jobs.db").display()))
        .config(config)
        .workflow(workflow)
        .state(Woken(woken))
        .start()
        .await;
    (engine.expect("it starts"), receiver)
}

async fn submit(engine: &Engine, count: usize, input: Option<i64>) {
    for first in (0..count).step_by(AT_A_TIME) {
        let inputs = (first..count.min(first + AT_A_TIME)).map(|_| input);
        drop(engine.submit_many("wait", inputs).await.expect("accepted"));
    }
}

async fn until_parked(engine: &Engine, count: usize) {
    // Counting a million is not for every moment.
    while engine.metrics().owned > 0 || engine.counts().await.expect("readable").ready > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let parked = engine.counts().await.expect("readable").parked;
    assert_eq!(parked, count as u64);
}

async fn fill(place: &Path, waits: usize) -> Vec<Figure> {
    let (engine, _woken) = start(place).await;
    // The caches of the store are bounded, and no wait's.
    let before_all = waits / 20;
    submit(&engine, before_all, None).await;
    until_parked(&engine, before_all).await;
    let (before, began) = (resident(), Instant::now());
    submit(&engine, waits - before_all, None).await;
    until_parked(&engine, waits).await;
    let (took, grown) = (began.elapsed(), resident() - before);
    engine.shutdown(Duration::from_secs(5)).await;
    let rate = (waits - before_all) as f64 / took.as_secs_f64();
    vec![
        figure(
            format!("memory of the worker, grown by {waits} parked waits"),
            grown / 1e6,
            "MB",
            Target::AtMost(100.0),
        ),
        figure("submitted, begun and parked".into(), rate, "/s", Target::None),
    ]
}

async fn wake(place: &Path, waits: usize, commit: f64, ordinary: f64) -> Vec<Figure> {
    let began = Instant::now();
    let (engine, mut woken) = start(place).await;
    let started = began.elapsed();

    let page = RunsPage { limit: SIGNALS as u32, ..RunsPage::default() };
    let runs = engine.runs(page).await.expect("readable");
    let mut samples = Vec::new();
    for run in runs {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let began = Instant::now();
        engine.signal(run.id, "go", ()).await.expect("it waits");
        samples.push(woken.recv().await.expect("it is woken") - began);
    }

    let sleepers = SLEEPERS.min(waits);
    let due = SystemTime::now() + Duration::from_secs(1 + sleepers as u64 / 3_000);
    submit(&engine, sleepers, Some(Timestamp::from(due).as_micros())).await;
    until_parked(&engine, waits - SIGNALS.min(waits) + sleepers).await;
    let left = due.duration_since(SystemTime::now()).expect("all are parked before their time");
    tokio::time::sleep(left).await;
    let began = Instant::now();
    for _ in 0..sleepers {
        woken.recv().await.expect("it is woken");
    }
    let rate = sleepers as f64 / began.elapsed().as_secs_f64();
    engine.shutdown(Duration::from_secs(5)).await;
    let mut signal = figure(
        "a signal wakes one: sent until the body goes on, p50".into(),
        median_ms(samples),
        "ms",
        Target::TimesReference(5.0),
    );
    signal.reference = Some(("bare idle commit".into(), commit));
    let mut time = figure(
        format!("time wakes {sleepers} together: until the last body has gone on"),
        rate,
        "/s",
        Target::AtLeastReference(0.5),
    );
    time.reference = Some((format!("ordinary runs, {SLOTS} slots"), ordinary));
    let restart = figure(
        format!("start with {waits} parked"),
        started.as_secs_f64(),
        "s",
        Target::AtMost(2.0),
    );
    vec![restart, signal, time]
}
