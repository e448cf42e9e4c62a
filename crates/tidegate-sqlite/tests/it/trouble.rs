//! What goes wrong, and that nothing is lost by it.

use crate::support::{
    assert_passed, assert_sound, child_in_small_world, child_of, claim, enlist, open, options,
    request, submit, succeeded, take,
};
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::store::{Store, StoreError};
use tidegate_sqlite::{Options, SqliteStore};

fn is_full(error: &StoreError) -> bool {
    let right = "there is no room left; it goes on when there is";
    matches!(error, StoreError::Failed(_)) && error.to_string().ends_with(right)
}

/// Submits until there is no room; how many were acknowledged.
async fn fill(store: &SqliteStore) -> u64 {
    let mut acknowledged = 0;
    loop {
        match submit(store, &[7; 10_000]).await {
            Ok(_) => acknowledged += 1,
            Err(error) => {
                assert!(is_full(&error), "{error}");
                return acknowledged;
            }
        }
    }
}

#[tokio::test]
async fn a_quota_that_is_reached_loses_nothing_and_more_room_mends_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let small = Options { size_max: Some(1 << 20), ..options() };
    let store = SqliteStore::open(&path, small).unwrap();
    let acknowledged = fill(&store).await;
    assert!(acknowledged > 10, "some fit");
    assert_eq!(store.counts().await.unwrap().ready, acknowledged);
    assert!(is_full(&submit(&store, &[7; 10_000]).await.unwrap_err()));
    store.close().await;
    let store = open(&path);
    submit(&store, &[7; 10_000]).await.unwrap();
    assert_eq!(store.counts().await.unwrap().ready, acknowledged + 1);
    assert_sound(&store).await;
}

#[test]
fn a_full_disk_loses_nothing_and_it_goes_on_when_there_is_room() {
    const THIS: &str = "trouble::a_full_disk_loses_nothing_and_it_goes_on_when_there_is_room";
    let Some(folder) = child_of() else {
        let folder = tempfile::tempdir().unwrap();
        if let Some(output) = child_in_small_world(THIS, folder.path(), "4m") {
            assert_passed(&output);
        }
        return;
    };
    let folder = Path::new(&folder);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = open(&folder.join("jobs.db"));
        let ballast = folder.join("ballast");
        fs::write(&ballast, vec![7; 2 << 20]).unwrap();
        let acknowledged = fill(&store).await;
        assert_eq!(store.counts().await.unwrap().ready, acknowledged);
        fs::remove_file(&ballast).unwrap();
        submit(&store, &[7; 10_000]).await.unwrap();
        assert_eq!(store.counts().await.unwrap().ready, acknowledged + 1);
        assert_sound(&store).await;
    });
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_missed_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("jobs.db"), folder.path().join("away.db"));
    let store = open(&path);
    submit(&store, b"before").await.unwrap();
    fs::rename(&path, &away).unwrap();
    let error = submit(&store, b"meanwhile").await.unwrap_err();
    assert!(matches!(error, StoreError::Failed(_)));
    let right = "it was deleted or moved while it was open; put it back";
    assert!(error.to_string().ends_with(right), "{error}");
    assert!(store.counts().await.unwrap_err().to_string().ends_with(right));
    fs::rename(&away, &path).unwrap();
    submit(&store, b"after").await.unwrap();
    assert_eq!(store.counts().await.unwrap().ready, 2);
}

#[tokio::test]
async fn a_file_that_was_replaced_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("jobs.db"), folder.path().join("away.db"));
    let store = open(&path);
    fs::rename(&path, &away).unwrap();
    fs::write(&path, "").unwrap();
    let error = submit(&store, b"in").await.unwrap_err();
    assert!(matches!(error, StoreError::Unusable(_)));
    let right = "another file has taken its place while it was open; start again";
    assert!(error.to_string().ends_with(right), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[tokio::test]
async fn somebody_who_keeps_the_database_locked_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let impatient = Options { busy_timeout: Duration::from_millis(50), ..options() };
    let impatient = SqliteStore::open(&path, impatient).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = submit(&impatient, b"in").await.unwrap_err();
    assert!(matches!(error, StoreError::Failed(_)));
    assert!(error.to_string().contains("another process has kept it locked for too long"));
    // Reading is not hindered.
    assert_eq!(impatient.counts().await.unwrap().ready, 0);
    let patient = open(&path);
    let (submitted, ()) = tokio::join!(submit(&patient, b"in"), async {
        other.execute_batch("ROLLBACK").unwrap();
    });
    submitted.unwrap();
    submit(&impatient, b"in").await.unwrap();
}

#[tokio::test]
async fn a_panic_in_a_request_fails_that_request_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = Arc::new(open(&path));
    let worker = enlist(&store).await;
    submit(&store, b"in").await.unwrap();
    let task = claim(&store, worker, 1).await.remove(0);
    let mut end = request();
    (end.worker, end.changes) = (Some(worker), vec![succeeded(&task)]);
    take(&store, end).await.unwrap();
    // The row contradicts itself: it is over, and a worker owns it. Core asserts that it does not.
    let other = Connection::open(&path).unwrap();
    let own = "INSERT INTO task (number, request, fence, plan, task_group, idx, state, is_plain, \
               worker, lifecycle, run_id, run) SELECT number, request, fence, plan, task_group, idx, \
               state, 0, ?1, lifecycle, run_id, run FROM ended_task";
    assert_eq!(other.execute(own, [worker.0 as i64]).unwrap(), 1);
    other.execute("DELETE FROM ended_task", []).unwrap();
    let mut bad = request();
    bad.recover = Some(worker);
    let others = [b"1", b"2", b"3"].map(|input| {
        let store = store.clone();
        tokio::spawn(async move { submit(&store, input).await })
    });
    let (bad, ()) = tokio::join!(take(&store, bad), async {
        for other in others {
            other.await.unwrap().unwrap();
        }
    });
    let error = bad.unwrap_err();
    assert!(matches!(error, StoreError::Failed(_)));
    assert!(error.to_string().contains("a panic: what a worker owns is running"), "{error}");
    submit(&store, b"4").await.unwrap();
    assert_eq!(store.counts().await.unwrap().ready, 4);
    let findings = store.audit().await.unwrap();
    assert_eq!(findings[0].to_string(), "columns: task 1: its columns contradict its state");
}

#[tokio::test]
async fn a_damaged_file_is_unusable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let id = submit(&store, b"in").await.unwrap();
    store.close().await;
    let root = "SELECT rootpage FROM sqlite_master WHERE name = 'task'";
    let root = Connection::open(&path).unwrap().query_row(root, [], |row| row.get(0));
    let root = root.map(|page: u32| page as usize).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[(root - 1) * 4_096..root * 4_096].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let store = open(&path);
    let error = store.run(id).await.unwrap_err();
    assert!(matches!(error, StoreError::Unusable(_)), "{error}");
    assert!(error.to_string().contains("restore it from a backup"), "{error}");
    let error = submit(&store, b"in").await.unwrap_err();
    assert!(matches!(error, StoreError::Unusable(_)), "{error}");
    let findings = store.audit().await;
    assert!(findings.is_err() || findings.is_ok_and(|findings| !findings.is_empty()));
}

#[test]
fn a_file_whose_schema_is_damaged_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(open(&path).close());
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..4_096].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let error = SqliteStore::open(&path, options()).unwrap_err().to_string();
    assert!(error.ends_with("jobs.db is damaged; restore it from a backup"), "{error}");
}
