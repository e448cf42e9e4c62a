//! Parents and children on one slot: ten generations, each waiting for the next.
//!
//! Run it with `cargo run --release --example family`. A task begins a run of its own workflow and
//! waits for it without its slot; where tasks keep their slot while they wait, the second generation
//! would never begin.

use std::error::Error;
use std::time::Duration;
use tidegate::{Context, Engine, TaskError, TaskHandle, Workflow, task};

const GENERATIONS: u32 = 10;
const CHILDREN: u32 = 2;

/// Returns how many descendants it has, itself included.
#[task]
async fn person(context: &mut Context<u32>, handle: &TaskHandle) -> Result<u64, TaskError> {
    let Some(left) = context.input().checked_sub(1) else { return Ok(1) };
    let children = (0..CHILDREN).map(|_| handle.run_child("person", left));
    let mut all = 1;
    for child in handle.wait_all(children).await? {
        all += child.output::<u64>("person")?;
    }
    Ok(all)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::builder(format!("sqlite:{}", folder.path().join("jobs.db").display()))
        .slots(1)
        .workflow(Workflow::of(person::task())?)
        .start()
        .await?;
    let run = engine.submit("person", GENERATIONS).await?;
    let all: u64 = run.wait().await?.output("person")?;
    println!("{all} people in {GENERATIONS} generations on one slot");
    assert_eq!(all, u64::from(CHILDREN.pow(GENERATIONS + 1) - 1));
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
