//! An application with tidegate inside is killed half-way and goes on where it stopped.
//!
//! `cargo run --release --example embedded` starts itself as a child, which submits a workflow of
//! four tasks and works on it. As soon as the third one computes, the child is killed with SIGKILL.
//! Then the parent opens the same file, finishes the run, and prints what was entered how often.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tidegate::engine::RunsPage;
use tidegate::{Context, Engine, EngineBuilder, Task, TaskError, TaskHandle, Workflow};

/// Tells the parent how far the child is.
struct Child(bool);

async fn extract(_: &mut Context) -> Result<Vec<u64>, TaskError> {
    println!("extract");
    Ok((1..=100).collect())
}

async fn transform(context: &mut Context) -> Result<u64, TaskError> {
    println!("transform");
    Ok(context.output::<Vec<u64>>("extract")?.iter().sum())
}

async fn load(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    println!("load");
    println!("  with idempotency key {}", handle.task_execution_id());
    if context.state::<Child>()?.0 {
        // The child never gets beyond this: it is killed here.
        std::future::pending::<()>().await;
    }
    let total: u64 = context.output("transform")?;
    println!("  total {total}");
    Ok(())
}

async fn tidy(_: &mut Context) -> Result<(), TaskError> {
    println!("tidy");
    Ok(())
}

fn engine(store: &str, child: bool) -> Result<EngineBuilder, Box<dyn Error>> {
    let etl = Workflow::builder("etl")
        .task(Task::new("extract", extract))
        .task(Task::new("transform", transform).after(["extract"]))
        .task(Task::new("load", load).after(["transform"]))
        .task(Task::new("tidy", tidy).after(["load"]))
        .build()?;
    Ok(Engine::builder(store).slots(2).workflow(etl).state(Child(child)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(store) = std::env::args().nth(1) {
        // The child: submits, works, and never ends by itself.
        let engine = engine(&store, true)?.start().await?;
        engine.submit("etl", ()).key("tonight").await?.wait().await?;
        return Ok(());
    }
    let folder = std::env::temp_dir().join(format!("tidegate-embedded-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let store = format!("sqlite:{}", folder.join("jobs.db").display());

    println!("-- a child works on it");
    let mut child =
        Command::new(std::env::current_exe()?).arg(&store).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or("the child's output is piped")?;
    for line in BufReader::new(out).lines() {
        let line = line?;
        println!("{line}");
        if line.starts_with("  with") {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    println!("-- killed with SIGKILL in the middle of load; another process goes on");

    let began = Instant::now();
    let engine = engine(&store, false)?.start().await?;
    let page = RunsPage { limit: 1, ..RunsPage::default() };
    let summary = engine.runs(page).await?.pop().ok_or("the run is there")?;
    let run = engine.run(summary.id).await?;
    let status = run.wait().await?;
    println!("-- {} after {:.1?}", status.state, began.elapsed());

    println!("{:<12}{:<12}{:>8}{:>8}", "task", "is", "entered", "attempt");
    for task in &status.tasks {
        println!("{:<12}{:<12}{:>8}{:>8}", task.name, task.kind, task.entries, task.attempt);
    }
    println!(
        "extract and transform were not repeated; load was entered again, in the same attempt"
    );
    let entries: Vec<u32> = status.tasks.iter().map(|task| task.entries).collect();
    assert_eq!(entries, [1, 1, 2, 1]);
    assert!(status.tasks.iter().all(|task| task.attempt == 1));

    // A submit with the same key finds the run that there is.
    assert!(engine.submit("etl", ()).key("tonight").await?.existed());
    engine.shutdown(Duration::from_secs(1)).await;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
