//! P9: a million no-op futures through `Batch::stream`, against a loop written by hand.

use crate::cost::{Cost, CostMeter};
use crate::figure::{Figure, Target, duel, per, resident};
use crate::sample::Scale;
use futures_util::{FutureExt, StreamExt};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use tidegate::{Batch, TaskError};
use tokio::runtime::{Builder, Runtime};

const TASKS: usize = 1_000_000;
const LIMIT: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) fn measure() -> Vec<Figure> {
    let mut grown = 0.0_f64;
    let mut rate = |threads: usize| {
        let ours = || {
            let (cost, memory) = batch(threads, TASKS);
            grown = grown.max(memory);
            cost.nanoseconds_per_task()
        };
        let (ours, theirs) = duel(5, ours, || by_hand(threads));
        let runtime = if threads > 1 { "two threads and the consumer's" } else { "one thread" };
        Figure {
            name: "P9".into(),
            what: format!("Batch::stream, {TASKS} no-op futures, {runtime}, per task"),
            value: ours,
            unit: "ns".into(),
            reference: Some(("by hand".into(), theirs)),
            target: Target::TimesReference(1.5),
        }
    };
    let mut figures = vec![rate(2), rate(1)];
    figures.push(Figure {
        name: "P9".into(),
        what: "memory grown from the 10,000th result to the last".into(),
        value: grown / 1e6,
        unit: "MB".into(),
        reference: None,
        target: Target::AtMost(2.0),
    });
    figures
}

/// `p9.threads` in short.
pub(crate) fn sample_threads(scale: Scale) -> Cost {
    batch(2, scale.of(TASKS)).0
}

/// `p9.alone` in short.
pub(crate) fn sample_alone(scale: Scale) -> Cost {
    batch(1, scale.of(TASKS)).0
}

fn runtime(threads: usize) -> Runtime {
    let runtime = match threads {
        1 => Builder::new_current_thread().enable_time().build(),
        _ => Builder::new_multi_thread().worker_threads(threads).enable_time().build(),
    };
    runtime.expect("a runtime")
}

fn inputs(
    tasks: usize,
) -> impl Iterator<Item = (String, impl Future<Output = Result<usize, TaskError>>)> {
    (0..tasks).map(|n| (format!("task {n}"), async move { Ok(n) }))
}

/// What the tasks cost, and by how much the memory grew on the way.
fn batch(threads: usize, tasks: usize) -> (Cost, f64) {
    runtime(threads).block_on(async {
        let meter = CostMeter::start();
        let batch = Batch::new().parallel_limit(LIMIT as u32).task_timeout(TIMEOUT);
        let mut stream = batch.stream(inputs(tasks)).expect("good settings");
        let (mut results, mut early, mut late) = (0, 0.0, 0.0);
        while let Some(result) = stream.next().await {
            std::hint::black_box(&result);
            results += 1;
            if results == 10_000 {
                early = resident();
            }
            if results == tasks {
                late = resident();
            }
        }
        assert_eq!(results, tasks);
        (meter.read(tasks as u64), late - early)
    })
}

/// The same by hand: a name, clocks, a time-out and a panic guard for each, so many at a time.
fn by_hand(threads: usize) -> f64 {
    struct Outcome {
        name: String,
        queued: Duration,
        duration: Duration,
        output: Result<usize, TaskError>,
    }
    runtime(threads).block_on(async {
        let began = Instant::now();
        let tasks = inputs(TASKS).map(|(name, task)| async move {
            let started = Instant::now();
            let guarded = AssertUnwindSafe(task).catch_unwind();
            let output = match tokio::time::timeout(TIMEOUT, guarded).await {
                Ok(Ok(output)) => output,
                Ok(Err(_)) => Err(TaskError::from("panicked")),
                Err(late) => Err(TaskError::from(late)),
            };
            Outcome { name, queued: started - began, duration: started.elapsed(), output }
        });
        let mut stream = std::pin::pin!(futures_util::stream::iter(tasks).buffer_unordered(LIMIT));
        let mut results = 0;
        while let Some(outcome) = stream.next().await {
            let Outcome { name, queued, duration, output } = &outcome;
            std::hint::black_box((name, queued, duration, output));
            results += 1;
        }
        assert_eq!(results, TASKS);
        per(began.elapsed(), TASKS)
    })
}
