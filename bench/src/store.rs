//! P2, P3, P4: the engine on SQLite beside the bare loops.

use crate::bare;
use crate::cost::{Cost, CostMeter};
use crate::figure::{Figure, Target, duel};
use crate::sample::Scale;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, Task, TaskError, Value, Workflow};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// Rounds of each duel; the median counts.
const ROUNDS: usize = 5;

/// Lives in one round.
pub(crate) const LIVES: usize = 100_000;

/// Callers that submit and wait.
const IN_FLIGHT: usize = 1_000;

/// The pause before something is submitted to an idle engine.
const PAUSE: Duration = Duration::from_millis(2);

/// Submits before the idle ones are counted.
const WARM_UP: usize = 20;

/// Runs of the chain before those that are counted.
const CHAINS_BEFORE: usize = 3;

pub(crate) const SAMPLES: usize = 300;

pub(crate) fn measure_lives() -> Vec<Figure> {
    let reference = || bare::lives(LIVES, IN_FLIGHT);
    // With as many slots as callers every run is begun in the request that submits it; with fewer, runs
    // wait in the store and are claimed from there.
    let cases = [(1_024, "as many slots as callers"), (64, "64 slots")];
    let figure = |(slots, words): (u32, &str)| {
        let (ours, theirs) = duel(ROUNDS, || lives(slots, LIVES).rate(), reference);
        Figure {
            name: "P2".into(),
            what: format!("one-task runs, submit to end, {IN_FLIGHT} in flight, {words}"),
            value: ours,
            unit: "/s".into(),
            reference: Some(("bare loop".into(), theirs)),
            target: Target::AtLeastReference(1.0),
        }
    };
    cases.map(figure).into()
}

pub(crate) fn measure_start() -> Vec<Figure> {
    let (ours, theirs) =
        duel(ROUNDS, || median_ms(start(SAMPLES).0), || median_ms(bare::idle_commit(SAMPLES)));
    vec![Figure {
        name: "P3".into(),
        what: "idle engine, submit until the body starts, p50".into(),
        value: ours,
        unit: "ms".into(),
        reference: Some(("bare idle commit".into(), theirs)),
        target: Target::TimesReference(1.5),
    }]
}

pub(crate) fn measure_hops() -> Vec<Figure> {
    let (ours, theirs) =
        duel(ROUNDS, || median_ms(hops(SAMPLES / 9).0), || median_ms(bare::idle_commit(SAMPLES)));
    vec![Figure {
        name: "P4".into(),
        what: "chain of 10 tasks, per hop, p50".into(),
        value: ours,
        unit: "ms".into(),
        reference: Some(("bare idle commit".into(), theirs)),
        target: Target::TimesReference(2.0),
    }]
}

/// `p2.1024` in short.
pub(crate) fn sample_lives_at_once(scale: Scale) -> Cost {
    lives(1_024, scale.of(60_000))
}

/// `p2.64` in short.
pub(crate) fn sample_lives_in_line(scale: Scale) -> Cost {
    lives(64, scale.of(60_000))
}

/// `p3` in short.
pub(crate) fn sample_start(scale: Scale) -> Cost {
    let (latencies, cost) = start(scale.of(400));
    cost.with_median(latencies)
}

/// `p4` in short.
pub(crate) fn sample_hops(scale: Scale) -> Cost {
    let (latencies, cost) = hops(scale.of(100));
    cost.with_median(latencies)
}

async fn nothing(_: &mut Context<Value>) -> Result<(), TaskError> {
    Ok(())
}

/// No-op runs with a small input, from submit to end.
pub(crate) fn lives(slots: u32, count: usize) -> Cost {
    let (place, runtime) = (bare::scratch(), runtime());
    runtime.block_on(async {
        let workflow = Workflow::of(Task::new("nothing", nothing)).expect("it makes sense");
        let engine = engine(&place, slots, workflow).await;
        let meter = CostMeter::start();
        submit_and_wait(&engine, IN_FLIGHT, count).await;
        let cost = meter.read(count as u64);
        let findings = engine.audit().await.expect("the store can be read");
        assert!(findings.is_empty(), "{findings:?}");
        engine.shutdown(Duration::from_secs(1)).await;
        cost
    })
}

/// Callers submit runs of `nothing` and wait for their ends, until `count` have ended.
pub(crate) async fn submit_and_wait(engine: &Engine, callers: usize, count: usize) {
    let taken = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> =
        (0..callers).map(|_| tokio::spawn(live(engine.clone(), taken.clone(), count))).collect();
    for caller in callers {
        caller.await.expect("a caller does not panic");
    }
}

async fn live(engine: Engine, taken: Arc<AtomicUsize>, count: usize) {
    loop {
        let n = taken.fetch_add(1, Ordering::Relaxed);
        if n >= count {
            return;
        }
        let run = engine.submit("nothing", serde_json::json!({ "n": n })).await;
        let status = run.expect("it is accepted").wait().await.expect("it ends");
        assert_eq!(status.outcome(), Some(tidegate::RunOutcome::Succeeded));
    }
}

/// Tells when its body starts.
struct Started(mpsc::UnboundedSender<Instant>);

async fn tell(context: &mut Context<Value>) -> Result<(), TaskError> {
    let _ = context.state::<Started>()?.0.send(Instant::now());
    Ok(())
}

/// How long each of `count` submits took until its body started, and what all of it cost.
pub(crate) fn start(count: usize) -> (Vec<Duration>, Cost) {
    let (place, runtime) = (bare::scratch(), runtime());
    runtime.block_on(async {
        let workflow = Workflow::of(Task::new("tell", tell)).expect("it makes sense");
        let (started, mut starts) = mpsc::unbounded_channel();
        let builder = builder(&place, 4, workflow).state(Started(started));
        let engine = builder.start().await.expect("it starts");
        let measuring = tokio::spawn(async move {
            let mut samples = Vec::with_capacity(count + WARM_UP);
            let mut meter = CostMeter::start();
            for n in 0..count + WARM_UP {
                if n == WARM_UP {
                    meter = CostMeter::start();
                }
                tokio::time::sleep(PAUSE).await;
                let began = Instant::now();
                let run = engine.submit("tell", serde_json::json!({ "n": n })).await;
                let start = starts.recv().await.expect("it starts");
                samples.push(start - began);
                run.expect("it is accepted").wait().await.expect("it ends");
            }
            (samples.split_off(WARM_UP), meter.read(count as u64))
        });
        measuring.await.expect("nothing panics")
    })
}

/// How long each hop of `count` chains took, and what all of it cost.
fn hops(count: usize) -> (Vec<Duration>, Cost) {
    let (place, runtime) = (bare::scratch(), runtime());
    runtime.block_on(async {
        let mut workflow = Workflow::builder("chain");
        for n in 0..10 {
            let task = Task::new(format!("t{n}"), tell);
            workflow =
                workflow.task(if n == 0 { task } else { task.after([format!("t{}", n - 1)]) });
        }
        let (started, mut starts) = mpsc::unbounded_channel();
        let workflow = workflow.build().expect("it makes sense");
        let builder = builder(&place, 4, workflow).state(Started(started));
        let engine = builder.start().await.expect("it starts");
        let measuring = tokio::spawn(async move {
            let mut samples = Vec::new();
            let mut meter = CostMeter::start();
            for n in 0..count + CHAINS_BEFORE {
                if n == CHAINS_BEFORE {
                    meter = CostMeter::start();
                }
                tokio::time::sleep(PAUSE).await;
                let run = engine.submit("chain", serde_json::json!({ "n": n })).await;
                let mut last = starts.recv().await.expect("it starts");
                for _ in 1..10 {
                    let next = starts.recv().await.expect("it starts");
                    samples.push(next - last);
                    last = next;
                }
                run.expect("it is accepted").wait().await.expect("it ends");
            }
            (samples.split_off(9 * CHAINS_BEFORE), meter.read(10 * count as u64))
        });
        measuring.await.expect("nothing panics")
    })
}

fn builder(place: &tempfile::TempDir, slots: u32, workflow: Workflow) -> tidegate::EngineBuilder {
    let path = place.path().join("jobs.db");
    Engine::builder(format!("sqlite:{}", path.display())).slots(slots).workflow(workflow)
}

async fn engine(place: &tempfile::TempDir, slots: u32, workflow: Workflow) -> Engine {
    builder(place, slots, workflow).start().await.expect("it starts")
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime starts")
}

pub(crate) fn median_ms(mut samples: Vec<Duration>) -> f64 {
    samples.sort_unstable();
    samples[samples.len() / 2].as_secs_f64() * 1_000.0
}
