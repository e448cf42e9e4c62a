//! Stopping while the file of the store cannot be used, and what becomes of its tasks afterwards.

use super::gates::{Gates, with_gates};
use super::support::{until, within};
use std::path::Path;
use std::time::Duration;
use tidegate::{Engine, EngineBuilder, RunId, RunOutcome, ShutdownReport};
use tidegate_sqlite::{Options, SqliteStore};

/// What becomes of the file.
#[derive(Debug, Clone, Copy)]
enum FileTrouble {
    Deleted,
    Locked,
    /// By another file, for good: the store says that it cannot be used any more.
    Replaced,
}

fn on(path: &Path, gates: &Gates) -> EngineBuilder {
    with_gates(Engine::builder(format!("sqlite:{}", path.display())), gates)
}

/// Brings the trouble about. It lasts as long as what this returns.
fn make(trouble: FileTrouble, path: &Path) -> Option<rusqlite::Connection> {
    match trouble {
        FileTrouble::Deleted => std::fs::remove_file(path).unwrap(),
        FileTrouble::Replaced => {
            let other = path.with_file_name("other.db");
            std::fs::write(&other, "").unwrap();
            std::fs::rename(&other, path).unwrap();
        }
        FileTrouble::Locked => {
            let other = rusqlite::Connection::open(path).unwrap();
            other.busy_timeout(Duration::from_secs(30)).unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            return Some(other);
        }
    }
    None
}

/// An engine with one task that ended after its file had come into trouble.
async fn troubled(
    path: &Path,
    trouble: FileTrouble,
) -> (Engine, RunId, Option<rusqlite::Connection>) {
    let gates = Gates::default();
    let engine = on(path, &gates).start().await.unwrap();
    let run = engine.submit("hold", "a").await.unwrap().id();
    gates.arrived("a", 1).await;
    let lasting = make(trouble, path);
    gates.open("a");
    until("its end is reported here", async || engine.metrics().succeeded_total == 1).await;
    (engine, run, lasting)
}

fn is_unstored(report: &ShutdownReport, run: RunId, trouble: FileTrouble) {
    assert_eq!(report.unstored, [(run, "hold".to_owned())], "{trouble:?}: {report:?}");
    assert!(report.store_error.is_some(), "{trouble:?}");
}

/// Stops an engine in each kind of trouble, all at the same time: each takes seconds.
async fn stop_in_trouble(stop: impl AsyncFn(&Engine) -> ShutdownReport) {
    let each =
        [FileTrouble::Deleted, FileTrouble::Locked, FileTrouble::Replaced].map(async |trouble| {
            let folder = tempfile::tempdir().unwrap();
            let (engine, run, lasting) = troubled(&folder.path().join("jobs.db"), trouble).await;
            let report = within(stop(&engine)).await;
            is_unstored(&report, run, trouble);
            drop((engine, lasting));
        });
    futures_util::future::join_all(each).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_trouble_does_not_hold_up_a_shutdown() {
    stop_in_trouble(async |engine| engine.shutdown(Duration::ZERO).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_trouble_does_not_hold_up_a_shutdown_without_grace() {
    stop_in_trouble(async |engine| engine.shutdown_now().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_does_not_hold_up_a_shutdown() {
    let (folder, gates) = (tempfile::tempdir().unwrap(), Gates::default());
    let path = folder.path().join("jobs.db");
    let options = Options { size_max: Some(400 << 10), ..Options::default() };
    let open = move || SqliteStore::open(path, options).unwrap();
    let store = tokio::task::spawn_blocking(open).await.unwrap();
    let builder = Engine::builder("memory:").store(std::sync::Arc::new(store));
    let engine = with_gates(builder, &gates).slots(1).start().await.unwrap();
    let run = engine.submit("hold", "a".repeat(100_000)).await.unwrap().id();
    gates.arrived(&"a".repeat(100_000), 1).await;
    while engine.submit("hold", "b".repeat(1_000)).await.is_ok() {}
    // It returns its input, for which there is no room.
    gates.open(&"a".repeat(100_000));
    until("its end is reported here", async || engine.metrics().succeeded_total == 1).await;
    let report = within(engine.shutdown_now()).await;
    assert!(report.unstored.contains(&(run, "hold".to_owned())), "{report:?}");
    let error = report.store_error.unwrap();
    assert!(error.contains("there is no room left"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_worker_that_gave_up_are_taken_over_when_its_engine_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (engine, run, lock) = troubled(&path, FileTrouble::Locked).await;
    let report = within(engine.shutdown_now()).await;
    is_unstored(&report, run, FileTrouble::Locked);
    drop(engine);
    drop(lock);
    let gates = Gates::default();
    gates.open("a");
    let next = on(&path, &gates).start().await.unwrap();
    let status = within(next.run(run).await.unwrap().wait()).await.unwrap();
    assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(next.audit().await.unwrap(), []);
    next.shutdown(Duration::ZERO).await;
}
