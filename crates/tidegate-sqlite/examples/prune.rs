//! How long a submit takes beside a busy writer, without and with somebody who copies or prunes.
//!
//! `cargo run --release -p tidegate-sqlite --example prune -- [finished runs] [tasks of each]`
//!
//! So many runs are submitted and ended; then one writer begins and ends runs without a pause, and a
//! submitter submits one run after the other: first alone, then while the store is copied, then while
//! all that had ended before is pruned, with a rest after each step as long as the step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tidegate_core::graph::{Graph, Node, OnFailure};
use tidegate_core::lifecycle::{Event, WorkerId};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::retention::{Aged, Prune};
use tidegate_core::store::{
    Bytes, Change, Claim, Claimed, Knows, NewRun, NewWorker, Request, RequestId, Store,
};
use tidegate_core::{RunId, Timestamp};
use tidegate_sqlite::{Options, SqliteStore};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Tasks that the writer begins and ends in a request.
const AT_ONCE: u32 = 64;

/// How long it is looked at without pruning.
const ALONE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome<()> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>());
    let mut number = |otherwise| numbers.next().transpose().map(|n| n.unwrap_or(otherwise));
    let (runs, tasks) = (number(200_000)?, number(1)?);
    let folder = tempfile::tempdir_in(std::env::current_dir()?)?;
    let store = Arc::new(SqliteStore::open(folder.path().join("prune.db"), Options::default())?);

    let filling = Instant::now();
    let filler = Writer::new(&store, "old", tasks).await?;
    filler.write(|lives| lives < runs * tasks).await?;
    println!("{runs} runs of {tasks} tasks in {:.1?}", filling.elapsed());

    let before = now();
    let done = Arc::new(AtomicBool::new(false));
    let writer = Writer::new(&store, "busy", 1).await?;
    let writing = {
        let done = done.clone();
        tokio::spawn(async move { writer.write(|_| !done.load(Ordering::Relaxed)).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    submits(&store, "alone", || began.elapsed() < ALONE).await?;

    let is_copied = Arc::new(AtomicBool::new(false));
    let copying = {
        let (store, is_copied) = (store.clone(), is_copied.clone());
        let to = folder.path().join("copy.db");
        tokio::spawn(async move {
            let (began, copied) = (Instant::now(), store.files().back_up(to).await);
            println!("a copy in {:.1?}", began.elapsed());
            is_copied.store(true, Ordering::Relaxed);
            copied
        })
    };
    submits(&store, "while it is copied", || !is_copied.load(Ordering::Relaxed)).await?;
    copying.await??;

    let is_pruned = Arc::new(AtomicBool::new(false));
    let pruning = {
        let (store, is_pruned) = (store.clone(), is_pruned.clone());
        tokio::spawn(async move {
            let pruned = prune(&store, before).await;
            is_pruned.store(true, Ordering::Relaxed);
            pruned
        })
    };
    submits(&store, "while pruning", || !is_pruned.load(Ordering::Relaxed)).await?;
    pruning.await??;
    done.store(true, Ordering::Relaxed);
    println!("the writer: {} lives", writing.await??);
    let findings = store.audit().await?;
    println!("the audit: {findings:?}");
    store.close().await;
    Ok(())
}

/// Prunes all that has ended before.
async fn prune(store: &SqliteStore, before: Timestamp) -> Outcome<()> {
    let (began, mut steps, mut longest, mut runs) = (Instant::now(), 0, Duration::ZERO, 0);
    let mut next = Some(Prune::new(Aged::Runs, before));
    while let Some(step) = next {
        let asked = Instant::now();
        let request = Request { prune: Some(step), ..Request::new(RequestId(id()), now()) };
        let pruned = store.request(Arc::new(request)).await?.pruned;
        let took = asked.elapsed();
        (steps, longest, runs) = (steps + 1, longest.max(took), runs + pruned.runs.len());
        next = step.after(&pruned);
        tokio::time::sleep(took).await;
    }
    let took = began.elapsed();
    println!("{runs} runs pruned in {took:.1?}: {steps} steps, the longest {longest:.1?}");
    Ok(())
}

/// Submits one run after the other and says how long that took.
async fn submits(store: &SqliteStore, when: &str, go_on: impl Fn() -> bool) -> Outcome<()> {
    let plan = plan(1)?;
    let mut took = Vec::new();
    while go_on() {
        let mut request = Request::new(RequestId(id()), now());
        request.submits = vec![new_run(&plan, "nobody's")];
        let asked = Instant::now();
        store.request(Arc::new(request)).await?;
        took.push(asked.elapsed());
    }
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let (half, most, all) = (at(0.5), at(0.99), at(1.0));
    println!(
        "submits {when}: {} of them, p50 {half:.1?}, p99 {most:.1?}, longest {all:.1?}",
        took.len()
    );
    Ok(())
}

/// Begins and ends runs, one request after the other.
struct Writer {
    store: Arc<SqliteStore>,
    worker: WorkerId,
    queue: &'static str,
    plan: Arc<Plan>,
}

impl Writer {
    async fn new(store: &Arc<SqliteStore>, queue: &'static str, tasks: u64) -> Outcome<Self> {
        let knows = (0..tasks).map(|n| ("prune".to_owned(), n.to_string())).collect();
        let (name, queues) = ("prune".to_owned(), vec![queue.to_owned()]);
        let worker =
            NewWorker { now: now(), name, queues, knows: Knows::These(knows), slots: AT_ONCE };
        let worker = store.enlist(worker).await?;
        Ok(Writer { store: store.clone(), worker, queue, plan: plan(tasks)? })
    }

    async fn write(self, go_on: impl Fn(u64) -> bool) -> Outcome<u64> {
        let (mut lives, mut active): (u64, Vec<Claimed>) = (0, Vec::new());
        let tasks = self.plan.task_count() as u64;
        loop {
            let mut request = Request::new(RequestId(id()), now());
            request.worker = Some(self.worker);
            request.changes = active
                .iter()
                .map(|task| Change {
                    output: Some(Bytes::from(&b"[1,2,3]"[..])),
                    ..Change::new(task.key, task.index, Event::Succeed { fence: task.life.fence })
                })
                .collect();
            let ends = !go_on(lives) && active.is_empty();
            if go_on(lives) {
                let runs = u64::from(AT_ONCE).div_ceil(tasks);
                request.submits = (0..runs).map(|_| new_run(&self.plan, self.queue)).collect();
            }
            request.claim = Claim { units: AT_ONCE, ahead: 0, heaviest: 1, room: u32::MAX };
            active = self.store.request(Arc::new(request)).await?.claimed;
            lives += active.len() as u64;
            if ends && active.is_empty() {
                return Ok(lives);
            }
        }
    }
}

fn plan(tasks: u64) -> Outcome<Arc<Plan>> {
    let graph = Graph::new((0..tasks).map(|n| Node::new(n.to_string())))?;
    let tasks = vec![TaskPlan::default(); tasks as usize];
    Ok(Arc::new(Plan::new("prune", graph, OnFailure::default(), tasks)))
}

fn new_run(plan: &Arc<Plan>, queue: &str) -> NewRun {
    NewRun {
        input: Some(Bytes::from(&br#"{"a":1,"b":[1,2,3],"c":"some text"}"#[..])),
        ..NewRun::new(RunId::new(now(), id().into()), plan.clone(), queue.into())
    }
}

fn id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1);
    LAST.fetch_add(1, Ordering::Relaxed)
}

fn now() -> Timestamp {
    SystemTime::now().into()
}
