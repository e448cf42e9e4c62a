//! Several worker processes on one store, with many runs and with one run of many items.
//!
//! The workers are this program itself, begun as `p7.worker URL SLOTS`: each prints the cost of the runs
//! that have ended in it when it is asked, and ends with its input.

use super::MeasuredServer;
use super::meter::{Reading, alternate, compared};
use super::running::{ITEMS, SLOTS, engine_builder, insert_runs};
use super::schema::ScratchSchema;
use crate::cost::{Cost, CostMeter};
use crate::figure::{Figure, Target};
use crate::processes::{Worker, print_costs, this_program};
use crate::store;
use std::process::Command;
use std::time::{Duration, Instant};
use tidegate::Engine;

/// Runs in one round.
const RUNS: usize = 40_000;

/// The pause between two questions to the workers.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// A measurement that has not ended after this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(300);

/// The work of a worker process.
pub(crate) fn run_worker(arguments: &[String]) {
    let [url, slots] = arguments else { panic!("a parent gives a URL and a number of slots") };
    let slots = slots.parse().expect("a parent gives a number of slots");
    store::runtime().block_on(async {
        let engine = engine_builder(url, slots).start().await.expect("it starts");
        let meter = CostMeter::start();
        let counted = engine.clone();
        print_costs(move || meter.read(counted.metrics().runs_ended_total)).await;
        engine.shutdown(Duration::from_secs(1)).await;
    });
}

fn start_worker(url: &str) -> Worker {
    let mut command = Command::new(this_program());
    command.args(["p7.worker", url, &SLOTS.to_string()]);
    let mut worker = Worker::spawn(command);
    // It answers when it has started.
    worker.cost();
    worker
}

fn total_cost(workers: &mut [Worker]) -> Cost {
    workers.iter_mut().map(Worker::cost).reduce(Cost::plus).expect("there is a worker")
}

/// Workers wait on a store in which `insert` has put work; `begin` lets them go on. Measures `tasks` tasks
/// from there until `runs` runs have ended.
fn run_with_workers(
    server: &MeasuredServer,
    workers: usize,
    (runs, tasks): (u64, usize),
    insert: impl AsyncFn(&str),
    begin: impl AsyncFn(&Engine),
) -> Reading {
    let schema = ScratchSchema::new(&server.server);
    let runtime = store::runtime();
    runtime.block_on(insert(schema.store_url()));
    let mut workers: Vec<Worker> = (0..workers).map(|_| start_worker(schema.store_url())).collect();
    let client = runtime.block_on(engine_builder(schema.store_url(), 1).connect());
    let client = client.expect("it starts");
    let before = total_cost(&mut workers);
    let (server_before, began) = (server.meter.read_seconds(), Instant::now());
    runtime.block_on(begin(&client));
    let cost = loop {
        let cost = total_cost(&mut workers).since(before);
        if cost.tasks >= runs {
            break cost;
        }
        assert!(began.elapsed() < STUCK_AFTER, "{} of {runs} runs have ended", cost.tasks);
        std::thread::sleep(ASK_EVERY);
    };
    let seconds = began.elapsed().as_secs_f64();
    let server_seconds = server.meter.read_seconds() - server_before;
    runtime.block_on(client.shutdown(Duration::from_secs(1)));
    Reading::new(Cost { tasks: tasks as u64, seconds, ..cost }, server_seconds)
}

pub(super) fn measure_workers(server: &MeasuredServer) -> Vec<Figure> {
    let run = |workers| {
        let insert = async |url: &str| insert_runs(url, "nothing", RUNS).await;
        let begin = async |client: &Engine| {
            client.unpause().await.expect("the store works");
        };
        run_with_workers(server, workers, (RUNS as u64, RUNS), insert, begin)
    };
    compare_workers(&format!("{RUNS} tasks that stand in the store"), run)
}

pub(super) fn measure_items(server: &MeasuredServer) -> Vec<Figure> {
    let run = |workers| {
        let begin = async |client: &Engine| {
            client.submit("items", ()).await.expect("it is accepted");
        };
        // The run of the items, and the run that they belong to.
        run_with_workers(server, workers, (2, ITEMS as usize), async |_: &str| {}, begin)
    };
    compare_workers(&format!("one run of {ITEMS} items, submit to end"), run)
}

/// Four workers and two against one.
fn compare_workers(what: &str, run: impl Fn(usize) -> Reading) -> Vec<Figure> {
    let [four, two, one] = alternate([
        ("four workers", &mut || run(4)),
        ("two workers", &mut || run(2)),
        ("one worker", &mut || run(1)),
    ]);
    [(two, "two workers", Target::None), (four, "four workers", Target::AtLeastReference(1.0))]
        .into_iter()
        .flat_map(|(many, name, target)| {
            compared(&format!("{what}, {name}"), many, ("one worker", one), target)
        })
        .collect()
}
