//! P5 with a store: very many tasks of an engine deferred on four slots.

use crate::bare;
use crate::figure::{self, Figure, Target, load, resident};
use crate::store::{self, median_ms};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidegate::{Config, Context, Engine, Task, TaskError, TaskHandle, Workflow, condition};
use tokio::sync::{mpsc, watch};

const TASKS: usize = 100_000;
const WATCHED: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_secs(5);

/// Plain tasks started while the others wait.
const STARTS: usize = 100;

/// In a process of its own: memory that something else has used and given back would falsify it.
pub(crate) fn measure() -> Vec<Figure> {
    figure::in_child("p5s")
}

/// What the tasks wait for, and how many have gone on.
struct Gate {
    open: watch::Receiver<bool>,
    resumed: AtomicUsize,
}

/// Looks every five seconds, and is woken together with all others.
async fn waits(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let gate = context.state::<Gate>()?;
    let (mut open, seen) = (gate.open.clone(), gate.open.clone());
    drop(gate);
    let polled = condition::check(move || *seen.borrow());
    let polled = handle.defer_until(polled, EVERY);
    let told = handle.defer_while(async move { drop(open.wait_for(|open| *open).await) });
    handle.wait_any([polled, told]).await?;
    context.state::<Gate>()?.resumed.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

struct Started(mpsc::UnboundedSender<Instant>);

async fn plain(context: &mut Context) -> Result<(), TaskError> {
    let _ = context.state::<Started>()?.0.send(Instant::now());
    Ok(())
}

pub(crate) fn case() -> Vec<Figure> {
    let idle = median_ms(store::start());
    let bare = figure::in_child("p5.5")[0].value;
    let place = bare::scratch();
    store::runtime().block_on(async {
        let (open, seen) = watch::channel(false);
        let (started, mut starts) = mpsc::unbounded_channel();
        let mut config = Config::default();
        config.in_memory_max = 2 * TASKS as u32;
        let path = place.path().join("jobs.db");
        let engine = Engine::builder(format!("sqlite:{}", path.display()))
            .config(config)
            .workflow(Workflow::of(Task::new("waits", waits)).expect("it makes sense"))
            .workflow(Workflow::of(Task::new("plain", plain)).expect("it makes sense"))
            .state(Gate { open: seen, resumed: AtomicUsize::new(0) })
            .state(Started(started));
        let engine = engine.start().await.expect("it starts");
        // Memory that every engine needs once is not the tasks'.
        submit(&engine, 1_000).await;
        settle(&engine, 1_000).await;
        let before = resident();
        submit(&engine, TASKS).await;
        settle(&engine, TASKS + 1_000).await;
        let each = (resident() - before) / TASKS as f64;
        let load = load(WATCHED).await;
        let mut waited = Vec::new();
        for _ in 0..STARTS {
            waited.push(start(&engine, &mut starts).await);
        }
        let went_on = Instant::now();
        open.send_replace(true);
        let storm = start(&engine, &mut starts).await;
        let resumed = || engine_resumed(&engine);
        while resumed() < (TASKS + 1_000) as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rate = (TASKS + 1_000) as f64 / went_on.elapsed().as_secs_f64();
        let figure = |what: &str, value, unit: &str, reference, target| Figure {
            name: "P5".into(),
            what: format!("{TASKS} deferred with a store: {what}"),
            value,
            unit: unit.into(),
            reference,
            target,
        };
        let bare = Some(("bare parked task".to_owned(), bare));
        let idle = Some(("the same, nothing deferred".to_owned(), idle));
        vec![
            figure("memory each", each, "B", bare, Target::AboveReference(1024.0)),
            figure("waiting, every 5 s", load, "% of a core", None, Target::AtMost(2.0)),
            figure(
                "plain task starts, p50",
                median_ms(waited),
                "ms",
                idle,
                Target::TimesReference(2.0),
            ),
            figure(
                "plain task starts while all resume",
                storm.as_secs_f64() * 1e3,
                "ms",
                None,
                Target::AtMost(100.0),
            ),
            figure("woken together, to their end", rate, "/s", None, Target::AtLeast(40_000.0)),
        ]
    })
}

/// Tasks that have gone on and ended.
fn engine_resumed(engine: &Engine) -> u64 {
    let metrics = engine.metrics();
    metrics.succeeded_total - (STARTS as u64 + 1)
}

async fn submit(engine: &Engine, count: usize) {
    for _ in 0..count / 1_000 {
        engine.submit_many("waits", std::iter::repeat_n((), 1_000)).await.expect("accepted");
    }
}

/// Until so many wait, and their rows say so.
async fn settle(engine: &Engine, count: usize) {
    while engine.metrics().deferred < count as u64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The watch forgets runs nobody looks at.
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn start(engine: &Engine, starts: &mut mpsc::UnboundedReceiver<Instant>) -> Duration {
    tokio::time::sleep(Duration::from_millis(2)).await;
    let began = Instant::now();
    let run = engine.submit("plain", ()).await.expect("accepted");
    let started = starts.recv().await.expect("it starts");
    run.wait().await.expect("it ends");
    started - began
}
