//! P5 with a store: very many tasks of an engine deferred on four slots.

use crate::bare;
use crate::cost::{Cost, CostMeter};
use crate::figure::{self, Figure, Target, load, resident};
use crate::sample::Scale;
use crate::store::{self, median_ms};
use std::time::{Duration, Instant};
use tidegate::{Config, Context, Engine, Task, TaskError, TaskHandle, Workflow, condition};
use tokio::sync::{mpsc, watch};

const TASKS: usize = 100_000;
const WATCHED: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_secs(5);

/// Plain tasks started while the others wait.
const STARTS: usize = 100;

/// Each case in a process of its own: memory that something else has used and given back would
/// falsify it.
pub(crate) fn measure() -> Vec<Figure> {
    [figure::in_child("p5s.0"), figure::in_child("p5s.1")].into_iter().flatten().collect()
}

/// What the tasks wait for.
struct Gate(watch::Receiver<bool>);

/// Looks every five seconds.
async fn polls(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let open = context.state::<Gate>()?.0.clone();
    handle.defer_until(condition::check(move || *open.borrow()), EVERY).await?;
    Ok(())
}

/// Is woken together with all others.
async fn listens(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let mut open = context.state::<Gate>()?.0.clone();
    handle.defer_while(async move { drop(open.wait_for(|open| *open).await) }).await?;
    Ok(())
}

async fn nothing(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

struct Started(mpsc::UnboundedSender<Instant>);

async fn plain(context: &mut Context) -> Result<(), TaskError> {
    let _ = context.state::<Started>()?.0.send(Instant::now());
    Ok(())
}

/// An engine whose caches are as full as they get, with a gate that is closed.
struct Shore {
    engine: Engine,
    gate: watch::Sender<bool>,
    starts: mpsc::UnboundedReceiver<Instant>,
    /// Goes away with it.
    _place: tempfile::TempDir,
}

/// Runs that fill the caches of the store, which are bounded and no task's.
const WARM_UP: usize = 300_000;

impl Shore {
    async fn new(warm_up: usize) -> Self {
        let place = bare::scratch();
        let (gate, seen) = watch::channel(false);
        let (started, starts) = mpsc::unbounded_channel();
        let mut config = Config::default();
        config.in_memory_max = 2 * TASKS as u32;
        let path = place.path().join("jobs.db");
        let workflow = |task: Task| Workflow::of(task).expect("it makes sense");
        let engine = Engine::builder(format!("sqlite:{}", path.display()))
            .config(config)
            .workflow(workflow(Task::new("polls", polls)))
            .workflow(workflow(Task::new("listens", listens)))
            .workflow(workflow(Task::new("plain", plain)))
            .workflow(workflow(Task::new("nothing", nothing)))
            .state(Gate(seen))
            .state(Started(started));
        let engine = engine.start().await.expect("it starts");
        let shore = Shore { engine, gate, starts, _place: place };
        shore.submit("nothing", warm_up).await;
        while shore.engine.metrics().succeeded_total < warm_up as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        shore
    }

    async fn submit(&self, workflow: &str, count: usize) {
        for _ in 0..count / 1_000 {
            let inputs = std::iter::repeat_n((), 1_000);
            self.engine.submit_many(workflow, inputs).await.expect("accepted");
        }
    }

    /// Until so many wait and their rows say so.
    async fn settle(&self, count: usize) {
        while self.engine.metrics().deferred < count as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The watch forgets runs that nobody looks at.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    /// How long a plain task takes to start.
    async fn start(&mut self) -> Duration {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let began = Instant::now();
        let run = self.engine.submit("plain", ()).await.expect("accepted");
        let started = self.starts.recv().await.expect("it starts");
        run.wait().await.expect("it ends");
        started - began
    }
}

/// One case, in the child.
pub(crate) fn case(number: usize) -> Vec<Figure> {
    match number {
        0 => waiting(),
        _ => {
            let (plain, cost) = store::runtime().block_on(storm(TASKS));
            let all = "woken together, until all have ended";
            vec![
                figure(
                    "plain task starts while all resume",
                    plain.as_secs_f64() * 1e3,
                    "ms",
                    None,
                    Target::AtMost(100.0),
                ),
                figure(all, cost.rate(), "/s", None, Target::AtLeast(40_000.0)),
            ]
        }
    }
}

/// `p5.store` in short: tasks that are woken together, in whole thousands.
pub(crate) fn sample_woken(scale: Scale) -> Cost {
    store::runtime().block_on(storm(scale.of(50_000).next_multiple_of(1_000))).1
}

fn figure(
    what: &str,
    value: f64,
    unit: &str,
    reference: Option<(&str, f64)>,
    target: Target,
) -> Figure {
    Figure {
        name: "P5".into(),
        what: format!("{TASKS} deferred with a store: {what}"),
        value,
        unit: unit.into(),
        reference: reference.map(|(name, value)| (name.to_owned(), value)),
        target,
    }
}

fn waiting() -> Vec<Figure> {
    let idle = median_ms(store::start(store::SAMPLES).0);
    let bare = figure::in_child("p5.5")[0].value;
    store::runtime().block_on(async {
        let mut shore = Shore::new(WARM_UP).await;
        let before = resident();
        shore.submit("polls", TASKS).await;
        shore.settle(TASKS).await;
        let each = (resident() - before) / TASKS as f64;
        let load = load(WATCHED).await;
        let mut waited = Vec::new();
        for _ in 0..STARTS {
            waited.push(shore.start().await);
        }
        let plain = median_ms(waited);
        let bare = Some(("bare parked task", bare));
        let idle = Some(("the same, nothing deferred", idle));
        vec![
            figure("memory each", each, "B", bare, Target::AboveReference(1024.0)),
            figure("waiting, every 5 s", load, "% of a core", None, Target::AtMost(2.0)),
            figure("plain task starts, p50", plain, "ms", idle, Target::TimesReference(2.0)),
        ]
    })
}

/// How long a plain task takes to start while `tasks` others resume, and what it costs until all have
/// ended.
async fn storm(tasks: usize) -> (Duration, Cost) {
    let mut shore = Shore::new(1_000).await;
    shore.submit("listens", tasks).await;
    shore.settle(tasks).await;
    let ended = shore.engine.metrics().succeeded_total;
    let meter = CostMeter::start();
    shore.gate.send_replace(true);
    let plain = shore.start().await;
    while shore.engine.metrics().succeeded_total - ended < tasks as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (plain, meter.read(tasks as u64))
}
