//! A process that is asked to end.

use super::support::within;
use crate::support::ms;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tidegate::engine::Kind;
use tidegate::{Context, Engine, EngineBuilder, Task, TaskError, Workflow};

const FOLDER: &str = "TIDEGATE_TEST_FOLDER";
const HOUR: Duration = Duration::from_secs(3_600);

/// Computes until a file is there.
async fn lasts(context: &mut Context<String>) -> Result<(), TaskError> {
    let file = context.state::<PathBuf>()?.join(context.input());
    println!("\nbegun");
    while !file.exists() {
        tokio::time::sleep(ms(2)).await;
    }
    Ok(())
}

fn engine(folder: &Path) -> EngineBuilder {
    Engine::builder(format!("sqlite:{}", folder.join("jobs.db").display()))
        .slots(2)
        .state(folder.to_owned())
        .workflow(Workflow::of(Task::new("lasts", lasts)).unwrap())
}

/// What the process is that is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "begun by the test of this module"]
async fn process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let engine = engine(&folder).start().await.unwrap();
    for file in ["go", "never"] {
        engine.submit("lasts", file).await.unwrap();
    }
    let closing = engine.clone();
    tokio::spawn(async move {
        closing.closing().await;
        println!("\nclosing");
    });
    let report = engine.shutdown_on_signal(HOUR).await.unwrap();
    let (finished, handed_back) = (report.finished, report.handed_back.len());
    println!("\nreport {finished} {handed_back} {}", report.dropped.len());
    std::io::stdout().flush().unwrap();
}

struct Asked {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Asked {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["engine::asked::process", "--exact", "--ignored", "--nocapture"]);
        let mut child = command.env(FOLDER, folder).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Asked { child, lines }
    }

    /// Reads on until a line begins like this.
    fn says(&mut self, what: &str) -> String {
        let said = self.lines.by_ref().map(Result::unwrap);
        said.into_iter().find(|line| line.starts_with(what)).expect("it says so before it ends")
    }

    fn ask(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_once_it_ends_in_good_order_and_asked_twice_at_once() {
    for (first, second) in
        [(Signal::TERM, Signal::INT), (Signal::INT, Signal::TERM), (Signal::HUP, Signal::HUP)]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Asked::start(folder.path());
        for _ in 0..2 {
            process.says("begun");
        }
        // It listens from its second submit on; until then it would simply be ended.
        let listens = async || {
            let status = format!("/proc/{}/status", process.child.id());
            let status = std::fs::read_to_string(status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
            caught >> (Signal::HUP.as_raw() - 1) & 1 == 1
        };
        super::support::until("it listens", listens).await;
        process.ask(first);
        process.says("closing");
        std::fs::write(folder.path().join("go"), "").unwrap();
        let store = engine(folder.path()).connect().await.unwrap();
        let ended = async || store.counts().await.unwrap().running == 1;
        super::support::until("the short one has ended", ended).await;
        process.ask(second);
        assert_eq!(process.says("report"), "report 1 1 1");
        assert!(process.child.wait().unwrap().success());

        let runs = store.runs(Default::default()).await.unwrap();
        let mut kinds = Vec::new();
        for run in runs {
            let status = store.run(run.id).await.unwrap().status().await.unwrap();
            kinds.push(status.tasks[0].kind);
        }
        assert_eq!(kinds, [Kind::Ready, Kind::Succeeded]);
        within(store.shutdown(Duration::ZERO)).await;
    }
}
