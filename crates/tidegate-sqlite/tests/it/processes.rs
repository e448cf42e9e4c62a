//! Several users of one file, in one process and in several.

use crate::support::{
    assert_passed, assert_sound, child, child_of, claim, enlist, new_run, open, plan, request,
    submit, take,
};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::Limit;
use tidegate_core::store::{Operation, OperationOutcome, Request, RunsPage, Store};
use tidegate_sqlite::SqliteStore;

/// Runs that each of several users submits, one request for each.
const EACH: usize = 100;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

async fn submit_many(store: &SqliteStore) {
    for _ in 0..EACH {
        submit(store, b"in").await.unwrap();
    }
}

#[tokio::test]
async fn two_stores_on_one_file_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (Arc::new(open(&path)), Arc::new(open(&path)));
    let writing = [one.clone(), two.clone()]
        .map(|store| tokio::spawn(async move { submit_many(&store).await }));
    for writer in writing {
        writer.await.unwrap();
    }
    for store in [one, two] {
        let page = RunsPage { limit: 1_000, ..RunsPage::default() };
        let runs = store.runs(page).await.unwrap();
        let ids: HashSet<_> = runs.iter().map(|run| run.id).collect();
        assert_eq!((runs.len(), ids.len()), (2 * EACH, 2 * EACH));
        assert_sound(&store).await;
    }
}

#[test]
fn several_processes_write_at_once() {
    const THIS: &str = "processes::several_processes_write_at_once";
    if let Some(path) = child_of() {
        return block_on(submit_many(&open(Path::new(&path))));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let children: Vec<_> = (0..3).map(|_| child(THIS, &path).spawn().unwrap()).collect();
    let store = open(&path);
    block_on(submit_many(&store));
    for child in children {
        assert_passed(&child.wait_with_output().unwrap());
    }
    assert_eq!(block_on(store.counts()).unwrap().ready, 4 * EACH as u64);
    block_on(assert_sound(&store));
}

#[test]
fn a_worker_is_dead_when_its_process_was_killed_and_not_before() {
    const THIS: &str = "processes::a_worker_is_dead_when_its_process_was_killed_and_not_before";
    if let Some(path) = child_of() {
        let store = open(Path::new(&path));
        let worker = block_on(async {
            let worker = enlist(&store).await;
            submit(&store, b"in").await.unwrap();
            assert_eq!(claim(&store, worker, 1).await.len(), 1);
            worker
        });
        println!("\nworker {}", worker.0);
        std::io::stdout().flush().unwrap();
        // Until it is killed.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let mut child = child(THIS, &path).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let worker = lines.find_map(|line| line.strip_prefix("worker ")?.parse().ok());
    let worker = WorkerId(worker.unwrap());

    let store = open(&path);
    assert_eq!(block_on(store.dead()).unwrap(), []);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(block_on(store.dead()).unwrap(), [worker]);

    // Its task is taken over, and then nothing is left of it.
    let mut recover = request();
    recover.recover = Some(worker);
    let reply = block_on(take(&store, recover)).unwrap();
    assert_eq!(reply.recovered, 1);
    assert_eq!(block_on(store.dead()).unwrap(), []);
    let lock = folder.path().join(format!("jobs.db-workers/{}.lock", worker.0));
    assert!(!lock.exists());
    assert_eq!(block_on(store.counts()).unwrap().ready, 1);
    block_on(assert_sound(&store));
}

#[tokio::test]
async fn a_worker_of_another_handle_is_alive_until_that_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let worker = enlist(&one).await;
    assert_eq!(two.dead().await.unwrap(), []);
    // A second worker clears away what is not needed, and leaves the first alone.
    let second = enlist(&two).await;
    assert_eq!(one.dead().await.unwrap(), []);
    one.close().await;
    assert_eq!(two.dead().await.unwrap(), [worker]);
    two.dismiss(second).await.unwrap();
    assert_eq!(two.dead().await.unwrap(), [worker]);
}

#[tokio::test]
async fn what_others_add_is_seen_at_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let worker = enlist(&one).await;
    submit(&one, b"in").await.unwrap();
    assert_eq!(claim(&one, worker, 9).await.len(), 1);
    assert_eq!(claim(&one, worker, 9).await.len(), 0);
    // A run in a lane that is known to be empty, and a run in a lane that is not known at all.
    submit(&two, b"in").await.unwrap();
    assert_eq!(claim(&one, worker, 9).await.len(), 1);
    let mut other = request();
    other.submits = vec![new_run(&plan("other"), b"in")];
    take(&two, other).await.unwrap();
    assert_eq!(claim(&one, worker, 9).await.len(), 1);
    // A pause that somebody else has begun.
    let mut pause = request();
    use tidegate_core::store::{Operation, Scope};
    pause.operations = vec![Operation::Pause(Scope::Queue("default".to_owned()))];
    take(&two, pause).await.unwrap();
    submit(&two, b"in").await.unwrap();
    assert_eq!(claim(&one, worker, 9).await.len(), 0);
    // A worker that somebody else has enlisted.
    let mut unpause = request();
    unpause.operations = vec![Operation::Unpause(Scope::Queue("default".to_owned()))];
    take(&two, unpause).await.unwrap();
    let worker = enlist(&one).await;
    assert_eq!(claim(&two, worker, 9).await.len(), 1);
    assert_sound(&one).await;
}

#[tokio::test]
async fn cached_answers_are_dropped_when_another_connection_writes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    let declare = async |units| {
        let limit = Limit::new("api").at_once(units);
        let operations = vec![Operation::Declare(limit)];
        take(&store, Request { operations, ..request() }).await.unwrap().operations
    };
    assert_eq!(declare(3).await, [OperationOutcome::Yes]);
    assert_eq!(declare(3).await, [OperationOutcome::Already]);
    let other = rusqlite::Connection::open(store.path()).unwrap();
    other.execute("UPDATE task_limit SET at_once = 4 WHERE name = 'api'", []).unwrap();
    assert_eq!(declare(3).await, [OperationOutcome::Differs]);
    assert_eq!(declare(4).await, [OperationOutcome::Already]);
}
