//! A thousand reminders that wait as rows: nothing of them is in memory until their time comes.
//!
//! Run it with `cargo run --release --example reminder`. Each is a parkable task with two sleeps and a
//! step between them. While they sleep, the engine owns no task at all.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, TaskError, TaskHandle, Workflow, task};

const REMINDERS: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(500);

#[task(parkable)]
async fn remind(context: &mut Context<u32>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let post = context.state::<Post>()?;
    handle.sleep(PAUSE).await?;
    let letter = handle.step("write", post.send(*context.input())).await?;
    handle.sleep(PAUSE).await?;
    Ok(letter)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let post = Arc::new(Post::default());
    let engine = Engine::builder(format!("sqlite:{}", folder.path().join("jobs.db").display()))
        .slots(32)
        .workflow(Workflow::of(remind::task())?)
        .park_after(Duration::from_millis(10))
        .state_arc(post.clone())
        .start()
        .await?;
    let began = Instant::now();
    let runs = engine.submit_many("remind", 0..REMINDERS).await?;
    while engine.counts().await?.parked < u64::from(REMINDERS) && began.elapsed() < PAUSE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (parked, owned) = (engine.counts().await?.parked, engine.metrics().owned);
    println!("after {:.0?}: {parked} are parked, {owned} are in memory", began.elapsed());
    for (number, run) in runs.iter().enumerate() {
        let status = run.wait().await?;
        assert_eq!(status.output::<u32>("remind")? as usize, number);
    }
    println!("all have been sent after {:.0?}", began.elapsed());
    assert!(began.elapsed() >= 2 * PAUSE);
    assert_eq!(post.sent.load(Ordering::Relaxed), REMINDERS, "each of them once");
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// Letters that were sent.
#[derive(Default)]
struct Post {
    sent: AtomicU32,
}

impl Post {
    async fn send(&self, letter: u32) -> Result<u32, TaskError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(letter)
    }
}
