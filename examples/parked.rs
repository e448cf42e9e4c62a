//! What very many parked waits cost: memory of the worker, the time it takes to start with them, and
//! how long they take to be woken.
//!
//! Run it with `cargo run --release --example parked`, or with a number of waits behind `--`; with
//! 1,000,000 it takes a few minutes and a gigabyte of disk.

use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};
use tidegate::engine::RunsPage;
use tidegate::{Config, Context, Engine, RunId, TaskError, TaskHandle, Workflow, task};

const WAITS: u32 = if cfg!(debug_assertions) { 10_000 } else { 50_000 };
const AT_A_TIME: u32 = 1_000;

/// Waits for a signal, or for its time.
#[task(parkable)]
async fn wait(context: &mut Context<Option<u64>>, handle: &TaskHandle) -> Result<(), TaskError> {
    match context.input() {
        Some(micros) => {
            handle.sleep_until(tidegate::Timestamp::from_micros(*micros as i64)).await?
        }
        None => drop(handle.wait_for_signal("go").await?),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let waits = std::env::args().nth(1).map_or(Ok(WAITS), |waits| waits.parse())?;
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let engine = start(&store).await?;
    // The caches of the store are bounded, and no wait's.
    park(&engine, 2 * AT_A_TIME).await?;

    let (before, began) = (resident(), Instant::now());
    park(&engine, waits).await?;
    let (took, grown) = (began.elapsed(), resident().saturating_sub(before));
    let rate = f64::from(waits) / took.as_secs_f64();
    println!("{waits} waits parked in {took:.1?} ({rate:.0} in a second)");
    let each = grown as f64 / f64::from(waits);
    println!("memory: {:.1} MB more, {each:.0} bytes each", grown as f64 / 1e6);
    assert!(grown < 100_000_000, "the waits are on disk");
    engine.shutdown(Duration::from_secs(30)).await;
    drop(engine);

    let began = Instant::now();
    let engine = start(&store).await?;
    println!("started again with them in {:.0?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(2));

    let mut woken = Vec::new();
    for id in latest(&engine, 100).await? {
        let run = engine.run(id).await?;
        let began = Instant::now();
        run.signal("go", ()).await?;
        run.wait().await?;
        woken.push(began.elapsed());
    }
    woken.sort();
    println!("a signal wakes one, which ends: {:.2?} (median of {})", woken[50], woken.len());

    // Those that wait for time are due at the same instant: when all of them have parked.
    let sleepers = waits.min(100_000);
    let succeeded = engine.metrics().succeeded_total;
    let now = tidegate::Timestamp::from(std::time::SystemTime::now()).as_micros();
    let soon = now + 1_000_000 + took.as_micros() as i64;
    for first in (0..sleepers).step_by(AT_A_TIME as usize) {
        let inputs = (first..sleepers.min(first + AT_A_TIME)).map(|_| soon as u64);
        engine.submit_many("wait", inputs).await?;
    }
    let now = tidegate::Timestamp::from(std::time::SystemTime::now()).as_micros();
    tokio::time::sleep(Duration::from_micros(u64::try_from(soon - now).unwrap_or(0))).await;
    let began = Instant::now();
    while engine.metrics().succeeded_total < succeeded + u64::from(sleepers) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = f64::from(sleepers) / began.elapsed().as_secs_f64();
    println!("time wakes {sleepers} together: {rate:.0} in a second");
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

async fn start(store: &str) -> Result<Engine, Box<dyn Error>> {
    let mut config = Config::default();
    (config.slots, config.park_after) = (64, Duration::ZERO);
    let builder = Engine::builder(store).config(config).workflow(Workflow::of(wait::task())?);
    Ok(builder.start().await?)
}

/// Submits so many waits for a signal and waits until all of them are rows.
async fn park(engine: &Engine, waits: u32) -> Result<(), Box<dyn Error>> {
    let before = engine.counts().await?.parked;
    for first in (0..waits).step_by(AT_A_TIME as usize) {
        let inputs = (first..waits.min(first + AT_A_TIME)).map(|_| None::<u64>);
        engine.submit_many("wait", inputs).await?;
    }
    while engine.counts().await?.parked < before + u64::from(waits) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn latest(engine: &Engine, limit: u32) -> Result<Vec<RunId>, Box<dyn Error>> {
    let runs = engine.runs(RunsPage { limit, ..RunsPage::default() }).await?;
    Ok(runs.into_iter().map(|run| run.id).collect())
}

/// The memory that this process has, in bytes.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}
