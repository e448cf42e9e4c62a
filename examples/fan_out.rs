//! A thousand items, eight at a time, from a list that a task makes to a sum that a task takes.
//!
//! Run it with `cargo run --release --example fan_out`. `measure` is done once for each item of what
//! `list` returned. Each item is a task of its own, with its own attempts, stored in a SQLite file;
//! what they return comes to `total` in the order of the list. There are slots for 32 of them, but only
//! eight gauges to measure with: that is a limit, which all workers of the store share.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, Limit, RunOutcome, TaskError, Workflow, task};

const ITEMS: u64 = 1_000;
const SLOTS: u32 = 32;
const GAUGES: u32 = 8;

#[task]
async fn list(_: &mut Context) -> Result<Vec<u64>, TaskError> {
    Ok((1..=ITEMS).collect())
}

#[task(after = [list], each = "list", limits = ["gauge"], retries = 2)]
async fn measure(context: &mut Context) -> Result<u64, TaskError> {
    let gauge = context.state::<Arc<Gauge>>()?;
    gauge.enter();
    tokio::time::sleep(Duration::from_millis(1)).await;
    gauge.leave();
    let item: u64 = context.item()?;
    Ok(item * item)
}

#[task(after = [measure])]
async fn total(context: &mut Context) -> Result<u64, TaskError> {
    Ok(context.output::<Vec<u64>>(measure::ID)?.iter().sum())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let gauge = Arc::new(Gauge::default());
    let squares = Workflow::builder("squares")
        .task(list::task())
        .task(measure::task())
        .task(total::task())
        .build()?;
    let engine = Engine::builder(format!("sqlite:{}", folder.path().join("jobs.db").display()))
        .slots(SLOTS)
        .limit(Limit::new("gauge").at_once(GAUGES))
        .workflow(squares)
        .state(gauge.clone())
        .start()
        .await?;

    let began = Instant::now();
    let status = engine.submit("squares", ()).await?.wait().await?;
    let took = began.elapsed();
    let most = gauge.most.load(Ordering::Relaxed);
    println!("{ITEMS} items in {took:.2?}: {:.0} in a second", ITEMS as f64 / took.as_secs_f64());
    println!("at most {most} at once, with {GAUGES} gauges and {SLOTS} slots");

    assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
    assert!(most <= GAUGES);
    let measured: Vec<u64> = status.output(measure::ID)?;
    assert!(
        measured.into_iter().eq((1..=ITEMS).map(|item| item * item)),
        "in the order of the list"
    );
    let total: u64 = status.output(total::ID)?;
    println!("the sum of their squares is {total}");
    assert_eq!(total, ITEMS * (ITEMS + 1) * (2 * ITEMS + 1) / 6);
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// How many items are being measured, and how many were at most.
#[derive(Default)]
struct Gauge {
    inside: AtomicU32,
    most: AtomicU32,
}

impl Gauge {
    fn enter(&self) {
        let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(inside, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }
}
