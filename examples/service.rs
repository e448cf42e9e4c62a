//! A service that is told to stop, stops in good order, and goes on at its next start.
//!
//! `cargo run --release --example service` starts itself as a service, a process of its own that works
//! on the queue `jobs` of a SQLite file. This process submits jobs to that queue and sends SIGTERM to
//! the service: what computes may finish, the rest is handed back. A second service does the rest.

use std::error::Error;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tidegate::engine::Kind;
use tidegate::{Context, Engine, EngineBuilder, TaskError, TaskHandle, Workflow, condition, task};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

const SHORT: u32 = 6;
const SLOTS: u32 = 2;

#[task]
async fn short(context: &mut Context<u32>) -> Result<(), TaskError> {
    println!("short {} begins", context.input());
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("short {} ends", context.input());
    Ok(())
}

/// Waits for an answer that comes long after the first service has gone.
#[task]
async fn long(context: &mut Context<PathBuf>, handle: &TaskHandle) -> Result<(), TaskError> {
    println!("long begins");
    handle.defer_until(condition::file(context.input()), Duration::from_millis(10)).await?;
    println!("long ends");
    Ok(())
}

fn engine(store: &str) -> Result<EngineBuilder, Box<dyn Error>> {
    let engine = Engine::builder(store).slots(SLOTS);
    Ok(engine.workflow(Workflow::of(short::task())?).workflow(Workflow::of(long::task())?))
}

/// The service, from its start to SIGTERM.
async fn serve(store: &str) -> Result<(), Box<dyn Error>> {
    // Before anything begins: a signal that comes early is not lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let engine = engine(store)?.queues(["jobs"]).start().await?;
    terminate.recv().await;
    println!("SIGTERM");
    let report = engine.shutdown(Duration::from_secs(10)).await;
    println!("{} finished, {} handed back", report.finished, report.handed_back.len());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(store) = std::env::args().nth(1) {
        return serve(&store).await;
    }
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let answer = folder.path().join("answer");

    let mut service = Service::start("first", &store)?;
    // It serves a queue of its own, to which nothing is submitted: so it only submits and watches.
    let engine = engine(&store)?.queues(["nothing"]).start().await?;
    let mut runs = vec![engine.submit("long", &answer).queue("jobs").await?];
    for number in 1..=SHORT {
        runs.push(engine.submit("short", number).queue("jobs").await?);
    }
    service.until("long begins").await?;
    service.until("begins").await?;
    service.terminate().await?;

    std::fs::write(&answer, "at last")?;
    let mut service = Service::start("second", &store)?;
    for run in &runs {
        let status = run.wait().await?;
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.attempt), (Kind::Succeeded, 1), "nothing is lost");
        if task.name == long::ID {
            assert_eq!(task.entries, 2, "it was handed back and entered again");
        }
    }
    service.terminate().await?;
    println!("all {} jobs have succeeded; the long one was entered by both services", runs.len());
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// A service, seen from outside. It is killed if it is dropped.
struct Service {
    name: &'static str,
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Service {
    fn start(name: &'static str, store: &str) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.arg(store).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("it is piped")?).lines();
        Ok(Service { name, process, lines })
    }

    /// Shows what it says, until it says this or ends.
    async fn until(&mut self, words: &str) -> Result<(), Box<dyn Error>> {
        while let Some(line) = self.lines.next_line().await? {
            println!("{:>6} service: {line}", self.name);
            if line.contains(words) {
                break;
            }
        }
        Ok(())
    }

    async fn terminate(&mut self) -> Result<(), Box<dyn Error>> {
        let number = self.process.id().ok_or("it runs")?;
        let pid = rustix::process::Pid::from_raw(number.try_into()?).ok_or("it has a number")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.until("handed back").await?;
        assert!(self.process.wait().await?.success());
        Ok(())
    }
}
