//! P6 and P12: a store that has grown, and one that works for long.

use crate::bare;
use crate::cost::{Cost, CostMeter};
use crate::figure::{Figure, Target, duel, resident};
use crate::sample::Scale;
use crate::store;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tidegate::engine::RunsPage;
use tidegate::{Context, Engine, Limit, Task, TaskError, TaskHandle, Value, Workflow};

pub(crate) const FINISHED: usize = 1_000_000;
const OTHERS: usize = 100_000;
const LIVES: usize = 50_000;
const ROUNDS: usize = 3;
const SLOTS: u32 = 256;

/// How long P12 runs, in seconds, unless `TIDEGATE_P12_SECONDS` says otherwise.
const LONG: u64 = 600;

pub(crate) fn measure_growth() -> Vec<Figure> {
    let place = bare::scratch();
    let runtime = store::runtime();
    runtime.block_on(grow(&file_address(place.path()), FINISHED, OTHERS));
    let end_runs =
        |place: &Path| runtime.block_on(claim_and_finish(&file_address(place), LIVES)).rate();
    let empty = || end_runs(bare::scratch().path());
    let (ours, theirs) = duel(ROUNDS, || end_runs(place.path()), empty);
    vec![Figure {
        name: "P6".into(),
        what: describe_growth(OTHERS),
        value: ours,
        unit: "/s".into(),
        reference: Some(("the same, empty store".into(), theirs)),
        target: Target::AtLeastReference(0.8),
    }]
}

/// The rows of a grown store, in words.
pub(crate) fn describe_growth(others: usize) -> String {
    format!(
        "claim + finish with {FINISHED} finished and {others} each of blocked, future, unknown and \
         behind a full limit"
    )
}

/// `p6` in short: the store is grown to a tenth, the rows that are not claimed in whole thousands.
pub(crate) fn sample_growth(scale: Scale) -> Cost {
    let place = bare::scratch();
    let others = scale.of(OTHERS / 10).next_multiple_of(1_000);
    let address = file_address(place.path());
    store::runtime().block_on(async {
        grow(&address, scale.of(FINISHED / 10), others).await;
        claim_and_finish(&address, scale.of(LIVES)).await
    })
}

async fn nothing(_: &mut Context<Value>) -> Result<(), TaskError> {
    Ok(())
}

fn file_address(place: &Path) -> String {
    format!("sqlite:{}", place.join("jobs.db").display())
}

fn builder(address: &str) -> tidegate::EngineBuilder {
    Engine::builder(address)
        .slots(SLOTS)
        .limit(Limit::new("full").at_once(1))
        .workflow(Workflow::of(Task::new("nothing", nothing)).expect("it makes sense"))
        .workflow(Workflow::of(Task::new("limited", wait).limit("full")).expect("it makes sense"))
}

/// Holds its limit for good.
async fn wait(_: &mut Context<Value>, handle: &TaskHandle) -> Result<(), TaskError> {
    Ok(handle.defer_while(std::future::pending()).await?)
}

/// Rows of every kind that is not claimed.
pub(crate) async fn grow(address: &str, finished: usize, others: usize) {
    let unknown = Workflow::builder("unknown")
        .task(Task::new("ready", nothing))
        .task(Task::new("blocked", nothing).after(["ready"]));
    // Nobody serves the queue under this workflow's name, so its first task stays ready.
    let engine = builder(address).workflow(unknown.build().expect("it makes sense"));
    let engine = engine.start().await.expect("it starts");
    engine.pause().await.expect("the store works");
    for n in 0..others / 1_000 {
        let far = SystemTime::now() + Duration::from_secs(1_000_000 + n as u64);
        let mut all = Vec::new();
        for n in 0..1_000 {
            all.push(engine.submit("unknown", n).into_future());
            all.push(engine.submit("nothing", n).not_before(far).into_future());
            all.push(engine.submit("limited", n).into_future());
        }
        futures_util::future::try_join_all(all).await.expect("accepted");
    }
    engine.shutdown(Duration::from_secs(1)).await;
    let engine = builder(address).start().await.expect("it starts");
    engine.unpause().await.expect("the store works");
    while engine.counts().await.expect("readable").limited < others as u64 - 1 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for begun in (0..finished).step_by(10_000) {
        all_end(&engine, (finished - begun).min(10_000)).await;
    }
    engine.shutdown(Duration::from_secs(1)).await;
}

async fn all_end(engine: &Engine, count: usize) {
    let runs = engine.submit_many("nothing", 0..count).await.expect("accepted");
    for run in runs {
        run.wait().await.expect("it ends");
    }
}

/// Runs that stand ready in the store, until they have ended.
pub(crate) async fn claim_and_finish(address: &str, count: usize) -> Cost {
    let engine = builder(address).start().await.expect("it starts");
    engine.pause().await.expect("the store works");
    let runs = engine.submit_many("nothing", 0..count).await.expect("accepted");
    let meter = CostMeter::start();
    engine.unpause().await.expect("the store works");
    for run in runs {
        run.wait().await.expect("it ends");
    }
    let cost = meter.read(count as u64);
    engine.shutdown(Duration::from_secs(1)).await;
    cost
}

pub(crate) fn measure_long() -> Vec<Figure> {
    let seconds = std::env::var("TIDEGATE_P12_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(LONG);
    let place = bare::scratch();
    store::runtime().block_on(long(place.path(), Duration::from_secs(seconds)))
}

/// Full rate for a time, with readers that list runs all the while.
async fn long(place: &Path, during: Duration) -> Vec<Figure> {
    let engine = builder(&file_address(place)).start().await.expect("it starts");
    let (over, lives) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..1_000 {
        let (engine, over, lives) = (engine.clone(), over.clone(), lives.clone());
        tasks.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let run = engine.submit("nothing", 1).await.expect("accepted");
                run.wait().await.expect("it ends");
                lives.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for _ in 0..2 {
        let (engine, over) = (engine.clone(), over.clone());
        tasks.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let page = RunsPage { limit: 1_000, ..RunsPage::default() };
                let listed = engine.runs(page).await.expect("the store can be read");
                assert!(listed.len() <= 1_000);
            }
        }));
    }
    let began = Instant::now();
    let (mut log, mut memory) = (0, Vec::new());
    while began.elapsed() < during {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let size = std::fs::metadata(place.join("jobs.db-wal")).map_or(0, |wal| wal.len());
        log = log.max(size);
        memory.push(resident());
    }
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("nothing panics");
    }
    let rate = lives.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    engine.shutdown(Duration::from_secs(5)).await;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let quarter = memory.len().div_ceil(4);
    let (early, late) = (mean(&memory[quarter..2 * quarter]), mean(&memory[3 * quarter - 1..]));
    let seconds = during.as_secs();
    let figure = |what: String, value, unit: &str, reference, target| Figure {
        name: "P12".into(),
        what,
        value,
        unit: unit.into(),
        reference,
        target,
    };
    vec![
        figure(
            format!(
                "longest write-ahead log in {seconds} s at {rate:.0}/s with two listing readers"
            ),
            log as f64 / f64::from(1 << 20),
            "MB",
            None,
            Target::AtMost(256.0),
        ),
        figure(
            "resident memory, last quarter".into(),
            late / f64::from(1 << 20),
            "MB",
            Some(("second quarter".into(), early / f64::from(1 << 20))),
            Target::TimesReference(1.1),
        ),
    ]
}
