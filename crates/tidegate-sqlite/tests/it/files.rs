//! The files that a store makes, what is in them, and what becomes of them.

use crate::support::{
    assert_passed, assert_sound, at, child_by, child_of, claim, enlist, new_run, open, plan,
    request, submit, succeeded, take,
};
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::graph::RunOutcome;
use tidegate_core::keys::hash_bytes;
use tidegate_core::rows::Payload;
use tidegate_core::store::{Bytes, Store};

#[tokio::test]
async fn only_its_owner_can_read_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    enlist(&store).await;
    submit(&store, b"secret").await.unwrap();
    let mode = |name: &str| {
        let file = fs::metadata(folder.path().join(name)).unwrap();
        file.permissions().mode() & 0o777
    };
    for file in ["jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-workers/1.lock"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
    assert_eq!(mode("jobs.db-workers"), 0o700);
}

/// The files and folders below a folder, with their modes.
fn modes(folder: &Path) -> Vec<(String, u32)> {
    let mut modes = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        modes.push((entry.file_name().into_string().unwrap(), mode));
        if entry.path().is_dir() {
            modes.extend(self::modes(&entry.path()));
        }
    }
    modes
}

#[test]
fn only_its_owner_can_use_the_files_whatever_the_umask() {
    const THIS: &str = "files::only_its_owner_can_use_the_files_whatever_the_umask";
    if let Some(folder) = child_of() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = open(&Path::new(&folder).join("jobs.db"));
            enlist(&store).await;
            submit(&store, b"secret").await.unwrap();
            store.files().back_up(Path::new(&folder).join("copy.db")).await.unwrap();
            for (name, mode) in modes(Path::new(&folder)) {
                let right = if name.ends_with("-workers") { 0o700 } else { 0o600 };
                assert_eq!(mode, right, "{name} has mode {mode:o}");
            }
        });
        return;
    }
    for umask in ["000", "022", "077", "277"] {
        let folder = tempfile::tempdir().unwrap();
        let with_umask = format!("umask {umask}; exec \"$@\"");
        let output = child_by(&["sh", "-c", &with_umask, "sh"], THIS, folder.path()).output();
        assert_passed(&output.unwrap());
        let names: Vec<String> = modes(folder.path()).into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"copy.db".to_owned()), "{names:?}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_closing_and_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let worker = enlist(&store).await;
    let id = submit(&store, b"in").await.unwrap();
    let task = claim(&store, worker, 1).await.remove(0);
    let mut end = request();
    let mut change = succeeded(&task);
    change.output = Some(Bytes::from(&b"out"[..]));
    (end.worker, end.changes) = (Some(worker), vec![change]);
    take(&store, end).await.unwrap();
    let before = store.run(id).await.unwrap().unwrap();
    store.close().await;

    let store = open(&path);
    let after = store.run(id).await.unwrap().unwrap();
    assert_eq!(after, before);
    assert_eq!(after.run.ended, Some((RunOutcome::Succeeded, at(0))));
    let outputs = store.payloads(task.key, 1, Payload::Output).await.unwrap();
    assert_eq!(outputs, [(task.key, b"out"[..].into())]);
    assert_eq!(store.records(None, 0, 10).await.unwrap().len(), 1);
    // Its worker went away without a word.
    assert_eq!(store.dead().await.unwrap(), [worker]);
    assert_sound(&store).await;
}

#[tokio::test]
async fn numbers_are_not_given_again_after_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let worker = enlist(&store).await;
    store.dismiss(worker).await.unwrap();
    let first = submit(&store, b"").await.unwrap();
    store.close().await;
    let store = open(&path);
    assert!(enlist(&store).await > worker);
    let second = submit(&store, b"").await.unwrap();
    let key = async |id| store.run(id).await.unwrap().unwrap().run.key;
    assert!(key(second).await > key(first).await);
}

#[tokio::test]
async fn closing_folds_the_log_back_and_refuses_what_comes_after() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = Arc::new(open(&path));
    let id = submit(&store, b"in").await.unwrap();
    store.close().await;
    let log = folder.path().join("jobs.db-wal");
    assert!(fs::metadata(&log).map_or(0, |log| log.len()) == 0, "nothing is left in the log");
    let refused = submit(&store, b"in").await.unwrap_err();
    assert!(refused.to_string().ends_with("jobs.db: it was closed"), "{refused}");
    assert!(store.run(id).await.unwrap_err().to_string().ends_with("it was closed"));
    // A second time it has nothing to do.
    store.close().await;
}

#[test]
fn what_was_queued_is_written_although_the_store_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut request = request();
    request.submits = (0..100).map(|_| new_run(&plan("w"), b"in")).collect();
    runtime.block_on(async {
        let store = open(&path);
        // Asked for and not waited for.
        let mut asked = store.request(Arc::new(request));
        let polled =
            std::future::poll_fn(|context| asked.as_mut().poll(context).map(|_| ()).into());
        let _: std::task::Poll<()> = polled.await;
    });
    drop(runtime);
    // The writer holds the lock until all of it is written.
    let store = open(&path);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let written = || runtime.block_on(store.counts()).unwrap().ready == 100;
    while !written() {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn the_log_stays_short_while_others_read_all_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let read = async || {
        let reader = Connection::open(&path).unwrap();
        loop {
            reader.execute_batch("BEGIN; SELECT count(*) FROM payload").unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
            reader.execute_batch("ROLLBACK").unwrap();
        }
    };
    let body = vec![7; 1 << 20];
    let write = async {
        for n in 0..320 {
            submit(&store, &body).await.unwrap();
            let log = fs::metadata(folder.path().join("jobs.db-wal")).unwrap().len();
            assert!(log <= 256 << 20, "the log has {log} bytes after {n} MiB");
        }
    };
    tokio::select! { () = read() => {}, () = read() => {}, () = write => {} }
    assert_eq!(store.counts().await.unwrap().ready, 320);
}

/// Each time the log was folded back, the next time came 16 MiB later: its length was asked for
/// before the next write had made it begin anew.
#[tokio::test]
async fn the_log_does_not_grow_from_one_time_it_is_folded_back_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    let body = vec![7; 1 << 20];
    for n in 0..320 {
        submit(&store, &body).await.unwrap();
        let log = fs::metadata(folder.path().join("jobs.db-wal")).unwrap().len();
        assert!(log <= 72 << 20, "the log has {log} bytes after {n} MiB");
    }
}

#[tokio::test]
async fn equal_plans_are_stored_once_and_people_can_look_at_runs() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    for _ in 0..3 {
        submit(&store, b"in").await.unwrap();
    }
    let number = |sql: &str| look(store.path(), sql);
    assert_eq!(number("SELECT count(*) FROM plan"), 1);
    assert_eq!(number("SELECT count(*) FROM run WHERE workflow = 'w' AND queue = 'default'"), 3);
}

#[tokio::test]
async fn the_hash_of_a_plan_never_changes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    submit(&store, b"in").await.unwrap();
    let connection = Connection::open(store.path()).unwrap();
    let plan = connection.query_row("SELECT hash, body FROM plan", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
    });
    let (stored, body) = plan.unwrap();
    assert_eq!(stored, hash_bytes(&body) as i64);
}

#[test]
fn migrations_that_stores_may_have_applied_have_not_changed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let files = ["0001_begin.sql", "0002_knows_all.sql"].map(|name| folder.join(name));
    let hashes: Vec<i64> =
        files.iter().map(|file| hash_bytes(&fs::read(file).unwrap()) as i64).collect();
    let applied = [-7853035454582082803, -5568822100139805239];
    assert_eq!(hashes, applied, "what stores have applied is not changed");
}

fn look(path: &Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}
