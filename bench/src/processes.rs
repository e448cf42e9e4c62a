//! P11: several processes on one file.
//!
//! The others are this program itself, begun as `p11.worker FOLDER`: a worker that submits to itself
//! without a pause, prints what its runs have cost so far when it is asked, and ends with its input.

use crate::allocations;
use crate::bare;
use crate::cost::{Cost, CostMeter};
use crate::figure::{Figure, Target};
use crate::sample::Scale;
use crate::store;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, EngineBuilder, Task, TaskError, TaskHandle, Value, Workflow};

/// Callers that submit and wait in each process.
const IN_FLIGHT: usize = 1_000;
const SLOTS: u32 = 1_024;

/// How long lives are counted, and how long nobody counts before.
const COUNTED: Duration = Duration::from_secs(4);
const WARM_UP: Duration = Duration::from_secs(1);

const ROUNDS: usize = 3;

/// Signals, and cancels.
const SAMPLES: usize = 500;

async fn nothing(_: &mut Context<Value>) -> Result<(), TaskError> {
    Ok(())
}

async fn waits(_: &mut Context<Value>, handle: &TaskHandle) -> Result<(), TaskError> {
    loop {
        handle.wait_for_signal("go").await?;
    }
}

fn builder(folder: &Path) -> EngineBuilder {
    let workflow = |task| Workflow::of(task).expect("it makes sense");
    Engine::builder(format!("sqlite:{}", folder.join("jobs.db").display()))
        .slots(SLOTS)
        .workflow(workflow(Task::new("nothing", nothing)))
        .workflow(workflow(Task::new("waits", waits)))
}

/// The argument of a worker that counts its allocations.
const COUNTS: &str = "counts";

/// What another process does.
pub(crate) fn worker(arguments: &[String]) {
    let folder = arguments.first().expect("a parent gives a folder");
    if arguments.get(1).is_some_and(|argument| argument == COUNTS) {
        allocations::start_counting();
    }
    let meter = CostMeter::start();
    store::runtime().block_on(async {
        let engine = builder(Path::new(folder)).start().await.expect("it starts");
        let lives = Arc::new(AtomicU64::new(0));
        for _ in 0..IN_FLIGHT {
            tokio::spawn(live(engine.clone(), lives.clone()));
        }
        print_costs(move || meter.read(lives.load(Ordering::Relaxed))).await;
        engine.shutdown(Duration::from_secs(1)).await;
    });
}

/// Prints the cost so far for each line of the input, until that ends.
pub(crate) async fn print_costs(cost: impl Fn() -> Cost + Send + 'static) {
    let asked = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lines() {
            drop(line);
            println!("{}", serde_json::to_string(&cost()).expect("it is plain data"));
        }
    });
    asked.await.expect("nothing panics");
}

pub(crate) fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

async fn live(engine: Engine, lives: Arc<AtomicU64>) {
    // It is refused when the process is to end.
    while let Ok(run) = engine.submit("nothing", serde_json::json!({ "n": 1 })).await
        && run.wait().await.is_ok()
    {
        lives.fetch_add(1, Ordering::Relaxed);
    }
}

/// Another process, which prints its cost so far when it is asked.
pub(crate) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(this_program());
        command.arg("p11.worker").arg(folder).args(allocations::is_counting().then_some(COUNTS));
        Worker::spawn(command)
    }

    /// Starts another process by this command.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program can be run again");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Worker { child, stdin, stdout }
    }

    /// How many runs have ended, and what they cost. Waits until the worker works.
    pub(crate) fn cost(&mut self) -> Cost {
        let mut line = String::new();
        self.stdin.as_mut().expect("it is open").write_all(b"\n").expect("it is read");
        self.stdout.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).expect("it answers with a cost")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

pub(crate) fn measure() -> Vec<Figure> {
    let mut one = Vec::new();
    let mut two = Vec::new();
    for _ in 0..ROUNDS {
        one.push(saturate(1, COUNTED).rate());
        two.push(saturate(2, COUNTED).rate());
    }
    let middle = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (one, two) = (middle(&mut one), middle(&mut two));
    let mut figures = vec![Figure {
        name: "P11".into(),
        what: format!("two saturated workers together, {IN_FLIGHT} in flight in each"),
        value: two,
        unit: "/s".into(),
        reference: Some(("one of them".into(), one)),
        target: Target::AtLeastReference(0.8),
    }];
    let (signals, cancels, _) = beside(SAMPLES);
    figures.extend([latency("signal", signals), latency("cancel", cancels)]);
    figures
}

/// `p11.one` in short.
pub(crate) fn sample_one(scale: Scale) -> Cost {
    saturate(1, scale.of_time(COUNTED))
}

/// `p11.two` in short.
pub(crate) fn sample_two(scale: Scale) -> Cost {
    saturate(2, scale.of_time(COUNTED))
}

/// `p11.beside` in short: signals and cancels, on the side that asks for them.
pub(crate) fn sample_beside(scale: Scale) -> Cost {
    let (signals, cancels, cost) = beside(scale.of(200));
    cost.with_median([signals, cancels].concat())
}

/// The lives that saturated workers have together in a time.
fn saturate(workers: usize, during: Duration) -> Cost {
    let place = bare::scratch();
    let mut workers: Vec<Worker> = (0..workers).map(|_| Worker::start(place.path())).collect();
    std::thread::sleep(WARM_UP);
    let before: Vec<Cost> = workers.iter_mut().map(Worker::cost).collect();
    let began = Instant::now();
    std::thread::sleep(during);
    let costs = workers.iter_mut().zip(before).map(|(worker, before)| worker.cost().since(before));
    let sum = costs.reduce(Cost::plus).expect("there is a worker");
    Cost { seconds: began.elapsed().as_secs_f64(), ..sum }
}

/// How long signals and cancels take beside a saturated worker, and what they cost their sender:
/// `count` of each, and as many submits.
fn beside(count: usize) -> (Vec<Duration>, Vec<Duration>, Cost) {
    let place = bare::scratch();
    let mut worker = Worker::start(place.path());
    std::thread::sleep(WARM_UP);
    let before = worker.cost().tasks;
    let latencies = store::runtime().block_on(async {
        let engine = builder(place.path()).connect().await.expect("it starts");
        let waits = engine.submit("waits", ()).await.expect("it is accepted");
        let (mut signals, mut cancels) = (Vec::new(), Vec::new());
        let meter = CostMeter::start();
        for n in 0..count {
            // Not in step with what the other does.
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..5_000))).await;
            let began = Instant::now();
            waits.signal("go", n).await.expect("it is sent");
            signals.push(began.elapsed());
            let later = engine.submit("waits", ()).await.expect("it is accepted");
            let began = Instant::now();
            later.cancel().await.expect("it is cancelled");
            cancels.push(began.elapsed());
        }
        let cost = meter.read(2 * count as u64);
        engine.shutdown(Duration::ZERO).await;
        (signals, cancels, cost)
    });
    assert!(worker.cost().tasks > before, "the other has worked meanwhile");
    latencies
}

fn latency(what: &str, mut samples: Vec<Duration>) -> Figure {
    samples.sort_unstable();
    let at = |fraction: f64| samples[(samples.len() as f64 * fraction) as usize];
    let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    Figure {
        name: "P11".into(),
        what: format!(
            "{what} from another process beside a saturated worker, p99 (p50 {:.1} ms)",
            ms(at(0.5))
        ),
        value: ms(at(0.99)),
        unit: "ms".into(),
        reference: None,
        target: Target::AtMost(20.0),
    }
}
