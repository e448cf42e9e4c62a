//! How many lives of tasks a database takes in a second: requests that submit runs of one task and begin
//! them at once, then requests that end them; so many submitters at the same time.
//!
//! `cargo run --release -p tidegate-sqlite --example lives -- [runs] [runs in a request] [submitters]`
//!
//! Without `LIVES_DB` the database is a new one in this folder; several processes may have one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tidegate_core::graph::{Graph, Node, OnFailure};
use tidegate_core::lifecycle::Event;
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{
    Bytes, Change, Claim, Claimed, Knows, NewRun, NewWorker, Request, RequestId, Store,
};
use tidegate_core::{RunId, Timestamp};
use tidegate_sqlite::{Options, SqliteStore};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome<()> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<usize>());
    let mut number = |otherwise| numbers.next().transpose().map(|n| n.unwrap_or(otherwise));
    let (runs, at_once, submitters) = (number(100_000)?, number(256)?, number(2)?);

    let folder = tempfile::tempdir_in(std::env::current_dir()?)?;
    let path = std::env::var_os("LIVES_DB").map(PathBuf::from);
    let path = path.unwrap_or_else(|| folder.path().join("lives.db"));
    let store = SqliteStore::open(path, Options::default())?;
    let store = Arc::new(store);
    let began = Instant::now();
    let mut submitting = Vec::new();
    for submitter in 0..submitters {
        let store = store.clone();
        submitting.push(tokio::spawn(submit(store, submitter, runs / submitters, at_once)));
    }
    let mut lives = 0;
    for submitter in submitting {
        lives += submitter.await??;
    }
    report(lives, began.elapsed());
    store.close().await;
    Ok(())
}

/// Submits, begins and ends runs, one request after the other.
async fn submit(
    store: Arc<SqliteStore>,
    submitter: usize,
    runs: usize,
    at_once: usize,
) -> Outcome<usize> {
    let graph = Graph::new([Node::new("only")])?;
    let plan = Arc::new(Plan::new("lives", graph, OnFailure::default(), vec![TaskPlan::default()]));
    let process = u64::from(std::process::id());
    let queue: Arc<str> = format!("queue {submitter} of {process}").into();
    let input = Bytes::from(&br#"{"a":1,"b":[1,2,3],"c":"some text"}"#[..]);
    let worker = NewWorker {
        now: now(),
        name: "lives".to_owned(),
        queues: vec![queue.to_string()],
        knows: Knows::These(vec![("lives".to_owned(), "only".to_owned())]),
        slots: 1,
    };
    let worker = store.enlist(worker).await?;
    let mut ids = process << 42 | (submitter as u64) << 32;
    let (mut lives, mut active): (usize, Vec<Claimed>) = (0, Vec::new());
    while lives < runs {
        let now = now();
        let ends = std::mem::take(&mut active);
        lives += ends.len();
        let new = |random: u64| NewRun {
            input: Some(input.clone()),
            ..NewRun::new(RunId::new(now, random.into()), plan.clone(), queue.clone())
        };
        ids += at_once as u64 + 1;
        let mut request = Request::new(RequestId(ids), now);
        request.worker = Some(worker);
        request.changes = ends
            .iter()
            .map(|task| {
                Change::new(task.key, task.index, Event::Succeed { fence: task.life.fence })
            })
            .collect();
        request.submits = (0..at_once as u64).map(|n| new(ids - n)).collect();
        request.claim = Claim { units: at_once as u32, ahead: 0, heaviest: 1, room: u32::MAX };
        active = store.request(Arc::new(request)).await?.claimed;
        assert_eq!(active.len(), at_once, "what was submitted is begun");
    }
    Ok(lives)
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn report(lives: usize, took: Duration) {
    let each = took.as_secs_f64() * 1e6 / lives as f64;
    println!("{lives} lives in {took:.2?}: {:.0} in a second, {each:.1} µs each", 1e6 / each);
}
