//! P2, P3, P4: the engine on SQLite beside the bare loops.

use crate::bare;
use crate::figure::{Figure, Target, duel};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, Task, TaskError, Value, Workflow};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// Rounds of each duel; the median counts.
const ROUNDS: usize = 5;

/// Lives in one round.
const LIVES: usize = 100_000;

/// Callers that submit and wait.
const IN_FLIGHT: usize = 1_000;

/// The pause before something is submitted to an idle engine.
const PAUSE: Duration = Duration::from_millis(2);

const SAMPLES: usize = 300;

pub(crate) fn measure_lives() -> Vec<Figure> {
    let reference = || bare::lives(LIVES, IN_FLIGHT);
    // With as many slots as callers every run is begun in the turn that submits it; with fewer, runs
    // wait in the store and are claimed from there.
    let cases = [(1_024, "as many slots as callers"), (64, "64 slots")];
    let figure = |(slots, words): (u32, &str)| {
        let (ours, theirs) = duel(ROUNDS, || lives(slots), reference);
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
        duel(ROUNDS, || median_ms(start()), || median_ms(bare::idle_commit(SAMPLES)));
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
        duel(ROUNDS, || median_ms(hops()), || median_ms(bare::idle_commit(SAMPLES)));
    vec![Figure {
        name: "P4".into(),
        what: "chain of 10 tasks, per hop, p50".into(),
        value: ours,
        unit: "ms".into(),
        reference: Some(("bare idle commit".into(), theirs)),
        target: Target::TimesReference(2.0),
    }]
}

async fn nothing(_: &mut Context<Value>) -> Result<(), TaskError> {
    Ok(())
}

/// Lives per second of no-op runs with a small input.
pub(crate) fn lives(slots: u32) -> f64 {
    let (place, runtime) = (bare::scratch(), runtime());
    let took = runtime.block_on(async {
        let workflow = Workflow::of(Task::new("nothing", nothing)).expect("it makes sense");
        let engine = engine(&place, slots, workflow).await;
        let taken = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        let callers: Vec<_> =
            (0..IN_FLIGHT).map(|_| tokio::spawn(live(engine.clone(), taken.clone()))).collect();
        for caller in callers {
            caller.await.expect("a caller does not panic");
        }
        let took = began.elapsed();
        let findings = engine.audit().await.expect("the store can be read");
        assert!(findings.is_empty(), "{findings:?}");
        engine.shutdown(Duration::from_secs(1)).await;
        took
    });
    LIVES as f64 / took.as_secs_f64()
}

async fn live(engine: Engine, taken: Arc<AtomicUsize>) {
    loop {
        let n = taken.fetch_add(1, Ordering::Relaxed);
        if n >= LIVES {
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

pub(crate) fn start() -> Vec<Duration> {
    let (place, runtime) = (bare::scratch(), runtime());
    runtime.block_on(async {
        let workflow = Workflow::of(Task::new("tell", tell)).expect("it makes sense");
        let (started, mut starts) = mpsc::unbounded_channel();
        let builder = builder(&place, 4, workflow).state(Started(started));
        let engine = builder.start().await.expect("it starts");
        let measuring = tokio::spawn(async move {
            let mut samples = Vec::with_capacity(SAMPLES);
            for n in 0..SAMPLES + 20 {
                tokio::time::sleep(PAUSE).await;
                let began = Instant::now();
                let run = engine.submit("tell", serde_json::json!({ "n": n })).await;
                let start = starts.recv().await.expect("it starts");
                samples.push(start - began);
                run.expect("it is accepted").wait().await.expect("it ends");
            }
            samples.split_off(20)
        });
        measuring.await.expect("nothing panics")
    })
}

fn hops() -> Vec<Duration> {
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
            for n in 0..SAMPLES / 9 + 3 {
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
            samples.split_off(27)
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
