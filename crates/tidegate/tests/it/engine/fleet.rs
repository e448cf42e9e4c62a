//! Several processes on one file: workers, and others that submit, signal, cancel and wait.
//!
//! The processes are this test program itself, begun with another test ([`process`]) and a folder to
//! work in. Bodies and tests speak through files of that folder: a body notes what it does in `notes`,
//! and goes on when a file with its name is there. What a worker is to do itself it is told by lines
//! on its stdin, and answers in lines.

mod cancel;
mod closing;
mod crowd;
mod reach;
mod twins;

use super::support::{until, within};
use crate::support::ms;
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tidegate::engine::{Missed, Record, Subscription};
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Limit, Run, RunId, RunOutcome, ShutdownReport, Task,
    TaskError, TaskHandle, Value, Workflow,
};
use tokio::sync::mpsc;

const FOLDER: &str = "TIDEGATE_TEST_FOLDER";
const WATCH: &str = "TIDEGATE_TEST_WATCH";
const SLOTS: &str = "TIDEGATE_TEST_SLOTS";
const QUEUE: &str = "TIDEGATE_TEST_QUEUE";

const HOUR: Duration = Duration::from_secs(3_600);

/// What a worker has that was told to end by a signal of the system.
const GRACE_AFTER_TERM: Duration = Duration::from_secs(5);

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

/// Makes two tests of an `async fn(Learns)`: with the bell alone and with looks alone.
macro_rules! however_it_learns {
    ($($(#[$attribute:meta])* async fn $name:ident($learns:ident: Learns) $body:block)*) => {$(
        mod $name {
            use super::*;

            async fn test($learns: Learns) $body

            $(#[$attribute])*
            #[test]
            fn by_bell() {
                crate::engine::support::run_on_two_threads(Box::pin(test(Learns::ByBell)));
            }

            $(#[$attribute])*
            #[test]
            fn by_looking() {
                crate::engine::support::run_on_two_threads(Box::pin(test(Learns::ByLooking)));
            }
        }
    )*};
}
use however_it_learns;

/// Adds a line to a file, in one write.
fn note(file: PathBuf, line: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn lines(file: PathBuf) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Where the processes of a test meet.
#[derive(Clone)]
struct Place(PathBuf);

impl Place {
    fn note(&self, what: &str, name: &str) {
        note(self.0.join("notes"), &format!("{what} {name}"));
    }

    /// How often something was noted.
    fn count(&self, what: &str, name: &str) -> usize {
        let line = format!("{what} {name}");
        lines(self.0.join("notes")).iter().filter(|noted| **noted == line).count()
    }

    /// Waits until something was noted so often.
    async fn noted(&self, what: &str, name: &str, times: usize) {
        let described = format!("\"{what} {name}\" noted {times} times");
        until(&described, async || self.count(what, name) >= times).await;
    }

    /// Lets bodies of this name go on.
    fn open(&self, name: &str) {
        std::fs::write(self.0.join(name), "").unwrap();
    }

    fn is_open(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }
}

/// Computes until its name is open. Told to stop, it makes a note and goes on.
async fn hold(context: &mut Context<String>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let (place, name) = (context.state::<Place>()?, context.input());
    place.note("begins", name);
    let mut told = false;
    while !place.is_open(name) {
        if !std::mem::replace(&mut told, handle.is_cancelled()) && told {
            place.note("told", name);
        }
        tokio::time::sleep(ms(1)).await;
    }
    Ok(std::process::id())
}

/// Waits until its name is open.
async fn wait(context: &mut Context<String>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let (place, name) = (context.state::<Place>()?, context.input());
    place.note("begins", name);
    handle.defer_until(|| async { place.is_open(name) }, ms(5)).await?;
    Ok(std::process::id())
}

/// Waits for a signal, and returns what it brings.
async fn signalled(context: &mut Context<String>, handle: &TaskHandle) -> Result<Value, TaskError> {
    context.state::<Place>()?.note("begins", context.input());
    Ok(handle.wait_for_signal("go").await?)
}

/// Waits for a run that the workers of the queue "other" have to do.
async fn parent(context: &mut Context<String>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let child = handle.run_child_with("hold", context.input(), |child| child.queue("other"));
    child.await?.output("hold").map_err(TaskError::permanent)
}

async fn fails(_: &mut Context<String>) -> Result<(), TaskError> {
    Err("it was to fail".into())
}

/// All that a process of these tests can run.
fn engine(folder: &Path) -> EngineBuilder {
    let noting = Task::new("note", async |context: &mut Context<String>| {
        note(context.state::<Place>()?.0.join("done"), context.input());
        Ok::<_, TaskError>(std::process::id())
    });
    let chain = Workflow::builder("chain")
        .task(Task::new("first", hold))
        .task(Task::new("second", hold).after(["first"]));
    let builder = Engine::builder(format!("sqlite:{}", folder.join("jobs.db").display()))
        .slots(2)
        .park_after(ms(1))
        .state(Place(folder.to_owned()))
        .limit(Limit::new("one").at_once(1))
        .workflow(chain.build().unwrap());
    let tasks = [
        noting,
        Task::new("hold", hold),
        Task::new("wait", wait),
        Task::new("limited", hold).limit("one"),
        Task::new("signalled", signalled),
        Task::new("parked", signalled).parkable(),
        Task::new("parent", parent),
        Task::new("parked parent", parent).parkable(),
        Task::new("fails", fails).retries(9).backoff(Backoff::fixed(HOUR)),
        Task::command("long", twins::long(folder)),
    ];
    let workflows = tasks.map(|task| Workflow::of(task).unwrap());
    crowd::workflows().into_iter().chain(workflows).fold(builder, EngineBuilder::workflow)
}

/// What the other processes are: a worker that says when it is ready, and works until it is ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "begun by the tests of this module"]
async fn process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let learns = Learns::from_name(&std::env::var(WATCH).unwrap());
    let slots = std::env::var(SLOTS).unwrap().parse().unwrap();
    let builder = engine(&folder).slots(slots).queues([std::env::var(QUEUE).unwrap()]);
    let engine = learns.apply(builder).start().await.unwrap();
    println!("\nready");
    let mut asked = orders();
    let mut terminated = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate()).unwrap()
    };
    let mut listeners = None;
    let grace = loop {
        let order = tokio::select! {
            order = asked.recv() => order.unwrap_or_default(),
            _ = terminated.recv() => break GRACE_AFTER_TERM,
        };
        match order.split_once(' ').unwrap_or((&order, "")) {
            ("wait", run) => say_when_ended(&engine, run.parse().unwrap()).await,
            ("listen", _) => listeners = Some((engine.subscribe(), engine.subscribe())),
            ("heard", all) => heard(listeners.take().unwrap(), all.parse().unwrap()).await,
            ("line", _) => {
                until("nobody is in line", async || engine.slots().waiting() == 0).await;
                say("nobody is in line");
            }
            ("close", grace) => break ms(grace.parse().unwrap()),
            _ => break Duration::ZERO,
        }
    };
    let report = engine.shutdown(grace).await;
    drop(engine);
    say(&closed(&report));
    // Its threads have been told and go.
    until("nothing of an engine is left", async || is_bare()).await;
    say("bare");
}

/// The lines on stdin, read by a thread: whoever reads may wait for ever.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    orders
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

async fn say_when_ended(engine: &Engine, run: RunId) {
    let run = engine.run(run).await.unwrap();
    tokio::spawn(async move {
        let ended = run.wait().await.unwrap();
        say(&format!("ended {} {}", run.id(), ended.state));
    });
    say("waits");
}

/// How many of so many events each of two listeners has got and missed, who both read only now.
async fn heard((one, two): (Subscription, Subscription), all: u64) {
    for mut listener in [one, two] {
        let (mut heard, mut missed) = (0, 0);
        while heard + missed < all {
            match listener.next().await {
                Ok(event) => heard += u64::from(event.is_some()),
                Err(Missed { count, .. }) => missed += count,
            }
        }
        say(&format!("heard {heard} {missed}"));
    }
}

fn closed(report: &ShutdownReport) -> String {
    let runs = |listed: &[(RunId, String)]| {
        let mut runs: Vec<String> = listed.iter().map(|(run, _)| run.to_string()).collect();
        runs.sort();
        runs.join(",")
    };
    let (handed_back, dropped) = (runs(&report.handed_back), runs(&report.dropped));
    format!("closed {} [{handed_back}] [{dropped}]", report.finished)
}

/// Whether this process has neither a thread of a store nor a task of an engine.
fn is_bare() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads
        .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).ok());
    let ours = names.filter(|name| name.starts_with("tidegate")).count();
    ours == 0 && tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0
}

/// A process that works.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    said: mpsc::UnboundedReceiver<String>,
}

impl Worker {
    async fn start(folder: &Path, learns: Learns) -> Self {
        Self::start_with(folder, learns, 2, "default").await
    }

    async fn start_with(folder: &Path, learns: Learns, slots: u32, queue: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["engine::fleet::process", "--exact", "--ignored", "--nocapture"]);
        command.env(FOLDER, folder).env(WATCH, learns.name());
        command.env(SLOTS, slots.to_string()).env(QUEUE, queue);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, said) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut worker = Worker { child, stdin, said };
        worker.says("ready").await;
        worker
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it something.
    fn tell(&mut self, order: &str) {
        self.stdin.write_all(format!("{order}\n").as_bytes()).unwrap();
    }

    /// Waits until it says something that begins so, and returns the line.
    async fn says(&mut self, beginning: &str) -> String {
        loop {
            let line = self.said.recv().await;
            let line = line.unwrap_or_else(|| panic!("it ended before it said \"{beginning}\""));
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Kills it, and returns when it is gone.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with a file in it, and a process (this one) that runs nothing of it.
struct Scene {
    folder: tempfile::TempDir,
    place: Place,
    client: Engine,
}

impl Scene {
    async fn new(learns: Learns) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Place(folder.path().to_owned());
        let client = learns.apply(engine(folder.path())).connect().await.unwrap();
        Scene { folder, place, client }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn submit(&self, workflow: &str, input: &str) -> Run {
        self.client.submit(workflow, input).await.unwrap()
    }

    async fn records(&self) -> Vec<Record> {
        self.client.store().records(None, 0, u32::MAX).await.unwrap()
    }

    async fn is_sound(&self) {
        let mut findings = self.client.audit().await.unwrap();
        // Whoever looks once a day gives no sign meanwhile.
        findings.retain(|finding| finding.rule != "silent");
        assert_eq!(findings, []);
    }
}

async fn succeeds(run: &Run) {
    let ended = run.wait().await.unwrap();
    assert_eq!(ended.outcome(), Some(RunOutcome::Succeeded), "{ended:?}");
}

however_it_learns! {
    async fn what_another_process_submits_starts_and_its_end_is_told(learns: Learns) {
        let scene = Scene::new(learns).await;
        let worker = Worker::start(scene.path(), learns).await;
        let run = scene.submit("note", "hello").await;
        let ended = run.wait().await.unwrap();
        assert_eq!(ended.outcome(), Some(RunOutcome::Succeeded));
        assert_eq!(ended.output::<u32>("note").unwrap(), worker.id());
        assert_eq!(lines(scene.path().join("done")), ["hello"]);
        scene.client.shutdown(Duration::ZERO).await;
    }
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
    assert_eq!(left_by_workers(folder.path()), ["turnstile"]);

    let worker = engine(folder.path()).start().await.unwrap();
    let run = worker.run(run.id()).await.unwrap();
    assert_eq!(within(run.wait()).await.unwrap().outcome(), Some(RunOutcome::Succeeded));
    until("it has ended", async || worker.metrics().owned == 0).await;
    worker.shutdown(ms(100)).await;
}

/// What there is beside the database for the sake of workers.
fn left_by_workers(folder: &Path) -> Vec<String> {
    let left = std::fs::read_dir(folder.join("jobs.db-workers")).unwrap();
    let mut left: Vec<String> =
        left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    left
}
