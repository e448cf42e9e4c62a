//! P5 without a store: very many tasks deferred on four slots.

use crate::cost::{Cost, CostMeter};
use crate::figure::{self, Figure, Target, load, resident};
use crate::sample::Scale;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidegate::{SlotPool, TaskError, TaskHandle, condition};
use tokio::runtime::Builder;

const SLOTS: u32 = 4;
const WATCHED: Duration = Duration::from_secs(10);

/// Who looks whether a task may go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The task itself: the condition borrows from it.
    Borrowed,
    /// The shared poller: the condition owns its data.
    Owned,
}

/// Tasks, who looks, and how often (in seconds).
const CASES: [(usize, Look, u64); 5] = [
    (100_000, Look::Borrowed, 5),
    (100_000, Look::Owned, 5),
    (100_000, Look::Owned, 1),
    (1_000_000, Look::Borrowed, 5),
    (1_000_000, Look::Owned, 5),
];

/// Each case in a process of its own: memory that an earlier one has used and given back would
/// falsify the next.
pub(crate) fn measure() -> Vec<Figure> {
    (0..CASES.len()).flat_map(|case| figure::in_child(&format!("p5.{case}"))).collect()
}

/// One case, in the child.
pub(crate) fn case(number: usize) -> Vec<Figure> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    match CASES.get(number) {
        Some(&(tasks, look, every)) => runtime.block_on(deferred(tasks, look, every)),
        None => vec![runtime.block_on(bare_tasks())],
    }
}

/// `p5.plain` in short: tasks that are woken together. Several times, because one time is soon over.
pub(crate) fn sample_woken(scale: Scale) -> Cost {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let tasks = scale.of(100_000);
    let storm = async || woken_together(tasks).await.0;
    runtime.expect("a runtime").block_on(async {
        let mut cost = storm().await;
        for _ in 1..5 {
            cost = cost.plus(storm().await);
        }
        cost
    })
}

async fn deferred(tasks: usize, look: Look, every: u64) -> Vec<Figure> {
    let bare = figure::in_child(&format!("p5.{}", CASES.len()))[0].value;
    let pool = SlotPool::new(SLOTS).expect("slots");
    let (open, resumed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let before = resident();
    for _ in 0..tasks {
        let (open, resumed) = (open.clone(), resumed.clone());
        let every = Duration::from_secs(every);
        let task = async move |handle: TaskHandle| {
            match look {
                Look::Borrowed => {
                    let open = &open;
                    handle.defer_until(|| async { open.load(Ordering::Relaxed) }, every).await?;
                }
                Look::Owned => {
                    let open = condition::check(move || open.load(Ordering::Relaxed));
                    handle.defer_until(open, every).await?;
                }
            }
            resumed.fetch_add(1, Ordering::Relaxed);
            Ok::<_, TaskError>(())
        };
        pool.spawn(task).await.expect("open").detach();
    }
    wait_until(|| pool.in_use() == 0).await;
    let each = (resident() - before) / tasks as f64;
    let load = load(WATCHED).await;
    let idle_start = plain_start(&pool).await;

    // All at once: the tasks notice within one interval; the clock runs from the first that does.
    open.store(true, Ordering::Relaxed);
    wait_until(|| resumed.load(Ordering::Relaxed) > 0).await;
    let (began, at_once) = (Instant::now(), resumed.load(Ordering::Relaxed));
    wait_until(|| resumed.load(Ordering::Relaxed) == tasks).await;
    let spread = began.elapsed();
    let rate = (tasks - at_once) as f64 / spread.as_secs_f64();
    wait_until(|| pool.available() == SLOTS).await;
    let (together, storm_start) = woken_together(tasks).await;

    let who = match look {
        Look::Borrowed => "borrowing",
        Look::Owned => "owned",
    };
    let figure = |what: &str, value, unit: &str, reference, target| Figure {
        name: "P5".into(),
        what: format!("{tasks} deferred, {who} conditions every {every} s: {what}"),
        value,
        unit: unit.into(),
        reference,
        target,
    };
    // The targets are for 100,000; the million is for reading, except for what holds at any number.
    let small = |target| if tasks == 100_000 { target } else { Target::None };
    let bare = Some(("bare task".to_owned(), bare));
    let mut figures = vec![
        figure(
            "memory each, above a bare task",
            each,
            "bytes",
            bare,
            Target::AboveReference(1024.0),
        ),
        figure("waiting costs, of a core", load, "%", None, small(Target::AtMost(2.0))),
        figure("a plain task starts after", idle_start * 1e3, "ms", None, Target::None),
        figure(
            "and while all resume together, after",
            storm_start * 1e3,
            "ms",
            None,
            small(Target::AtMost(100.0)),
        ),
        figure("resumed as their checks come round", rate, "/s", None, Target::None),
    ];
    if every == 5 {
        let target = Target::AtLeast(500_000.0);
        figures.push(figure("woken together, resumed", together.rate(), "/s", None, target));
    }
    figures
}

/// How long until a task without waits gets a slot and begins.
async fn plain_start(pool: &SlotPool) -> f64 {
    let began = Instant::now();
    let start = pool.run(async move { Ok::<_, TaskError>(began.elapsed()) }).await;
    start.expect("open").as_secs_f64()
}

/// A parked tokio task that does nothing.
async fn bare_tasks() -> Figure {
    const TASKS: usize = 1_000_000;
    let before = resident();
    let parked: Vec<_> = (0..TASKS).map(|_| tokio::spawn(std::future::pending::<()>())).collect();
    let value = (resident() - before) / parked.len() as f64;
    let (name, what, unit) = ("P5".into(), "bare task".into(), "bytes".into());
    Figure { name, what, value, unit, reference: None, target: Target::None }
}

/// The same number of tasks, all waiting for one notification: what it costs to resume them when it
/// comes, without the spread of intervals; and how long a plain task takes to start meanwhile.
async fn woken_together(tasks: usize) -> (Cost, f64) {
    let pool = SlotPool::new(SLOTS).expect("slots");
    let (open, mut opened) = tokio::sync::watch::channel(false);
    let resumed = Arc::new(AtomicUsize::new(0));
    opened.mark_unchanged();
    for _ in 0..tasks {
        let (mut opened, resumed) = (opened.clone(), resumed.clone());
        let task = async move |handle: TaskHandle| {
            let _ = handle.defer_while(opened.changed()).await?;
            resumed.fetch_add(1, Ordering::Relaxed);
            Ok::<_, TaskError>(())
        };
        pool.spawn(task).await.expect("open").detach();
    }
    wait_until(|| pool.in_use() == 0).await;
    let meter = CostMeter::start();
    let _ = open.send(true);
    let start = plain_start(&pool).await;
    let meanwhile = resumed.load(Ordering::Relaxed);
    wait_until(|| resumed.load(Ordering::Relaxed) == tasks).await;
    let cost = meter.read(tasks as u64);
    wait_until(|| pool.available() == SLOTS).await;
    eprintln!("  the plain task began when {meanwhile} of {tasks} had resumed");
    (cost, start)
}

async fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}
