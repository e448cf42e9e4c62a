//! P5 without a store: very many tasks deferred on four slots.

use crate::figure::{Figure, Target, load, resident};
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

pub(crate) fn measure() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (tasks, look, every) in [
        (100_000, Look::Borrowed, 5),
        (100_000, Look::Owned, 5),
        (100_000, Look::Owned, 1),
        (1_000_000, Look::Borrowed, 5),
        (1_000_000, Look::Owned, 5),
    ] {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
        figures.extend(runtime.expect("a runtime").block_on(deferred(tasks, look, every)));
    }
    figures
}

async fn deferred(tasks: usize, look: Look, every: u64) -> Vec<Figure> {
    let bare = bare_tasks(tasks).await;
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
    let storm_start = plain_start(&pool).await;
    wait_until(|| resumed.load(Ordering::Relaxed) == tasks).await;
    let spread = began.elapsed();
    let rate = (tasks - at_once) as f64 / spread.as_secs_f64();
    wait_until(|| pool.available() == SLOTS).await;
    let together = woken_together(tasks).await;

    let who = match look {
        Look::Borrowed => "borrowing",
        Look::Owned => "owned",
    };
    let figure = |what: &str, value, unit, reference, target| Figure {
        name: "P5",
        what: format!("{tasks} deferred, {who} conditions every {every} s: {what}"),
        value,
        unit,
        reference,
        target,
    };
    let small = tasks == 100_000;
    let limit = |target| if small { target } else { Target::None };
    let load_target =
        if look == Look::Owned || every == 5 { Target::AtMost(2.0) } else { Target::None };
    let mut figures = vec![
        figure(
            "memory each",
            each,
            "bytes",
            Some(("bare task", bare)),
            Target::AtMost(bare + 1024.0),
        ),
        figure("waiting costs, of a core", load, "%", None, limit(load_target)),
        figure("a plain task starts after", idle_start * 1e3, "ms", None, Target::None),
        figure(
            "a plain task starts during the storm after",
            storm_start * 1e3,
            "ms",
            None,
            limit(Target::AtMost(100.0)),
        ),
        figure("resumed as their checks come round", rate, "/s", None, Target::None),
    ];
    if look == Look::Owned && every == 5 {
        figures.push(figure(
            "woken together, resumed",
            together,
            "/s",
            None,
            Target::AtLeast(500_000.0),
        ));
    }
    figures
}

/// How long until a task without waits gets a slot and begins.
async fn plain_start(pool: &SlotPool) -> f64 {
    let began = Instant::now();
    let start = pool.run(async move { Ok::<_, TaskError>(began.elapsed()) }).await;
    start.expect("open").as_secs_f64()
}

/// Bytes of a parked tokio task that does nothing.
async fn bare_tasks(tasks: usize) -> f64 {
    let before = resident();
    let parked: Vec<_> = (0..tasks).map(|_| tokio::spawn(std::future::pending::<()>())).collect();
    let each = (resident() - before) / tasks as f64;
    for task in &parked {
        task.abort();
    }
    for task in parked {
        let _ = task.await;
    }
    each
}

/// The same number of tasks, all waiting for one notification: the rate at which they resume when
/// it comes, without the spread of intervals.
async fn woken_together(tasks: usize) -> f64 {
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
    let began = Instant::now();
    let _ = open.send(true);
    wait_until(|| resumed.load(Ordering::Relaxed) == tasks).await;
    let rate = tasks as f64 / began.elapsed().as_secs_f64();
    wait_until(|| pool.available() == SLOTS).await;
    rate
}

async fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}
