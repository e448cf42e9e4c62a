//! P5 on files: a thousand tasks that wait for a thousand different ones.
//!
//! With the feature `watch` of this crate the file system tells when they appear.

use crate::figure::{self, Figure, Target, load};
use crate::store::{self, median_ms};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tidegate::{SlotPool, TaskHandle, condition};
use tokio::task::JoinSet;

const TASKS: usize = 1_000;
const EVERY: Duration = Duration::from_secs(5);

/// Four intervals, so that it does not matter where in one it begins.
const WATCHED: Duration = Duration::from_secs(20);

/// In a process of its own, with nobody else's threads.
pub(crate) fn measure() -> Vec<Figure> {
    figure::in_child("p5f.0")
}

/// In the child.
pub(crate) fn case() -> Vec<Figure> {
    store::runtime().block_on(async {
        let place = tempfile::tempdir().expect("a folder for the files");
        let path = |nth: usize| place.path().join(nth.to_string());
        let pool = SlotPool::new(TASKS as u32).expect("there are slots");
        let mut waits = JoinSet::new();
        for nth in 0..TASKS {
            let slot = pool.try_acquire(1).expect("a slot for each");
            waits.spawn(wait(TaskHandle::new(slot), path(nth)));
        }
        while pool.in_use() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The first looks fall together; after two intervals they are spread.
        tokio::time::sleep(EVERY * 2).await;
        let load = load(WATCHED).await;
        let made = Instant::now();
        for nth in 0..TASKS {
            std::fs::write(path(nth), "").expect("a file can be made");
        }
        let mut seen = Vec::with_capacity(TASKS);
        while let Some(at) = waits.join_next().await {
            seen.push(at.expect("it waits") - made);
        }
        let figure = |what: &str, value, unit: &str, target| Figure {
            name: "P5".into(),
            what: format!("{TASKS} waiting for different files {}: {what}", how()),
            value,
            unit: unit.into(),
            reference: None,
            target,
        };
        vec![
            figure("waiting, every 5 s", load, "% of a core", Target::AtMost(2.0)),
            figure("all made, until seen, p50", median_ms(seen), "ms", Target::None),
        ]
    })
}

fn how() -> &'static str {
    if cfg!(feature = "watch") { "with `watch`" } else { "without `watch`" }
}

async fn wait(handle: TaskHandle, path: PathBuf) -> Instant {
    handle.defer_until(condition::file(path), EVERY).await.expect("it can be looked at");
    Instant::now()
}
