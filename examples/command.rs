//! Commands as tasks: their output, their logs, their retries, and their end.
//!
//! Run it with `cargo run --release --example command`. A small pipeline is made of programs, one of
//! which fails at first. Then a command that starts others runs out of its time, and all of them are
//! gone when that is reported.

use std::error::Error;
use std::path::Path;
use std::time::Duration;
use tidegate::engine::Kind;
use tidegate::process::{Command, Finished};
use tidegate::{Backoff, Context, Engine, RunOutcome, Task, TaskError, Workflow};

/// A program with arguments, run directly.
fn generate() -> Task {
    Task::command("generate", Command::new("seq").args(["1", "7", "100"]))
}

/// A line for the shell. What it is given goes by way of the environment: a value that stood in the
/// line itself would be read as a part of the program.
fn sort() -> Task {
    let command = |context: &Context| {
        let numbers = context.output::<Finished>("generate")?.stdout;
        let line = Command::shell("printf %s \"$NUMBERS\" | sort -rn | head -n 3");
        Ok::<_, TaskError>(line.env("NUMBERS", numbers))
    };
    Task::command("sort", command).after(["generate"])
}

/// Fails at first, and mends itself. Each attempt has a log of its own.
fn upload() -> Task {
    let line = "echo attempt $TIDEGATE_ATTEMPT of $TIDEGATE_TASK; test $TIDEGATE_ATTEMPT -gt 2";
    Task::command("upload", Command::shell(line))
        .after(["sort"])
        .retries(5)
        .backoff(Backoff::fixed(Duration::from_millis(10)))
}

/// Starts two others, writes down who they are, and would wait for them.
fn endless(folder: &Path) -> Task {
    let line = "sleep 600 & echo $! >>pids; sleep 600 & echo $! >>pids; wait";
    let command = Command::shell(line).dir(folder);
    Task::command("endless", command).timeout(Duration::from_secs(1))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let pipeline = Workflow::builder("pipeline").task(generate()).task(sort()).task(upload());
    let engine = Engine::builder(format!("sqlite:{}", folder.path().join("jobs.db").display()))
        .workflow(pipeline.build()?)
        .workflow(Workflow::of(endless(folder.path()))?)
        .start()
        .await?;

    let status = engine.submit("pipeline", ()).await?.wait().await?;
    for task in &status.tasks {
        println!("{}: {} in attempt {}", task.name, task.kind, task.attempt);
        if let Some(error) = &task.error {
            println!("  before that: {error:?}");
        }
        let finished: Finished = status.output(&task.name)?;
        println!("  wrote {:?}", finished.stdout);
        let log = finished.log.ok_or("a store on disk has logs beside it")?;
        println!("  and its log is {}", log.strip_prefix(folder.path())?.display());
        assert_eq!(std::fs::read_to_string(log)?, finished.stdout);
    }
    assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(status.output::<Finished>("sort")?.stdout, "99\n92\n85\n");
    assert_eq!(status.task("upload").map(|task| task.attempt), Some(3));

    let status = engine.submit("endless", ()).await?.wait().await?;
    let task = &status.tasks[0];
    println!("endless: {}: {}", task.kind, task.error.as_deref().unwrap_or_default());
    assert_eq!(task.kind, Kind::TimedOut);
    let pids = std::fs::read_to_string(folder.path().join("pids"))?;
    let alive = pids.lines().filter(|pid| is_alive(pid)).count();
    println!("  of the {} processes it had started, {alive} are alive", pids.lines().count());
    assert_eq!((pids.lines().count(), alive), (2, 0));
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// Whether the table of processes (Linux) has it, other than as one that is dead and not yet reaped.
fn is_alive(pid: &str) -> bool {
    let row = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    row.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}
