//! Several processes on one file: workers, and others that submit, signal, cancel and wait.
//!
//! The processes are this test program itself, begun with another test ([`process`]) and a folder to
//! work in.

use super::support::{until, within};
use crate::support::ms;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tidegate::{Context, Engine, EngineBuilder, RunOutcome, Task, TaskError, Workflow};

const FOLDER: &str = "TIDEGATE_TEST_FOLDER";
const WATCH: &str = "TIDEGATE_TEST_WATCH";

/// How a process learns of what others do.
#[derive(Clone, Copy)]
enum Learns {
    /// Only by being told.
    ByBell,
    /// Only by looking now and then.
    ByLooking,
    /// As it usually does.
    Both,
}

impl Learns {
    fn apply(self, builder: EngineBuilder) -> EngineBuilder {
        match self {
            Learns::ByBell => builder.watch(Duration::from_secs(86_400), true),
            Learns::ByLooking => builder.watch(Duration::from_secs(1), false),
            Learns::Both => builder,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Learns::ByBell => "bell",
            Learns::ByLooking => "looking",
            Learns::Both => "both",
        }
    }

    fn from_name(name: &str) -> Self {
        let all = [Learns::ByBell, Learns::ByLooking, Learns::Both];
        all.into_iter().find(|learns| learns.name() == name).expect("it is one of these")
    }
}

/// Adds a line to a file, in one write.
fn note(file: PathBuf, line: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn lines(file: PathBuf) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// All that a process of these tests can run.
fn engine(folder: &Path) -> EngineBuilder {
    let noting = Task::new("note", async |context: &mut Context<String>| {
        note(context.state::<PathBuf>()?.join("done"), context.input());
        Ok::<_, TaskError>(std::process::id())
    });
    Engine::builder(format!("sqlite:{}", folder.join("jobs.db").display()))
        .slots(2)
        .state(folder.to_owned())
        .workflow(Workflow::of(noting).unwrap())
}

/// What the other processes are: a worker that says when it is ready, and works until it is ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "begun by the tests of this module"]
async fn process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let learns = Learns::from_name(&std::env::var(WATCH).unwrap());
    let engine = learns.apply(engine(&folder)).start().await.unwrap();
    println!("\nready");
    std::io::stdout().flush().unwrap();
    let asked = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    asked.await.unwrap().unwrap();
    engine.shutdown(Duration::from_secs(30)).await;
}

/// A process that works.
struct Worker {
    child: Child,
    _stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn start(folder: &Path, learns: Learns) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["engine::fleet::process", "--exact", "--ignored", "--nocapture"]);
        command.env(FOLDER, folder).env(WATCH, learns.name());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        Worker { child, _stdout: stdout }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn a_run_of_another_process(learns: Learns) {
    let folder = tempfile::tempdir().unwrap();
    let worker = Worker::start(folder.path(), learns);
    let client = learns.apply(engine(folder.path())).connect().await.unwrap();
    let run = client.submit("note", "hello").await.unwrap();
    let ended = within(run.wait()).await.unwrap();
    assert_eq!(ended.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(ended.output::<u32>("note").unwrap(), worker.child.id());
    assert_eq!(lines(folder.path().join("done")), ["hello"]);
    client.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_submits_starts_at_once_and_its_end_is_told_at_once() {
    a_run_of_another_process(Learns::ByBell).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_wake_ups_switched_off_what_another_process_submits_starts_at_the_next_look() {
    a_run_of_another_process(Learns::ByLooking).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_only_submits_runs_nothing_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let client = engine(folder.path()).connect().await.unwrap();
    let run = client.submit("note", "hello").await.unwrap();
    let unserved = client.unserved().await.unwrap();
    assert_eq!(unserved.len(), 1, "a process that runs nothing is no worker: {unserved:?}");
    assert_eq!(client.metrics().slots, 0);
    client.shutdown(Duration::ZERO).await;
    let left = std::fs::read_dir(folder.path().join("jobs.db-workers")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["turnstile"]);

    let worker = engine(folder.path()).start().await.unwrap();
    let run = worker.run(run.id()).await.unwrap();
    assert_eq!(within(run.wait()).await.unwrap().outcome(), Some(RunOutcome::Succeeded));
    until("it has ended", async || worker.metrics().owned == 0).await;
    worker.shutdown(ms(100)).await;
}
