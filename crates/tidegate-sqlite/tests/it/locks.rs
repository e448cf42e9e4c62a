//! The locks of workers and the turnstile, which are files that everybody can look at.

use crate::support::{at, enlist, open, options, request, take};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Knows, NewWorker, Store};
use tidegate_core::testing::PausePoints;
use tidegate_core::want::Want;
use tidegate_sqlite::SqliteStore;

fn lock_of(folder: &Path, worker: WorkerId) -> PathBuf {
    folder.join(format!("jobs.db-workers/{}.lock", worker.0))
}

fn make_lock(folder: &Path, worker: WorkerId) -> File {
    let mut new = OpenOptions::new();
    new.write(true).create_new(true).mode(0o600).open(lock_of(folder, worker)).unwrap()
}

async fn is_alive(store: &SqliteStore, worker: WorkerId) -> bool {
    let workers = store.workers().await.unwrap();
    workers.iter().any(|known| known.id == worker && known.alive)
}

#[tokio::test]
async fn a_worker_is_alive_while_its_file_is_held_in_the_same_process_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let worker = enlist(&one).await;
    assert!(is_alive(&one, worker).await && is_alive(&two, worker).await);
    // Looking does not disturb the next look.
    assert!(is_alive(&one, worker).await && is_alive(&two, worker).await);
    one.close().await;
    assert!(!is_alive(&two, worker).await);
    assert!(lock_of(folder.path(), worker).exists());
}

#[tokio::test]
async fn a_sign_of_life_is_given_for_the_own_workers_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let (own, other) = (enlist(&one).await, enlist(&two).await);
    let last_sign = |worker| {
        let file = fs::metadata(lock_of(folder.path(), worker)).unwrap();
        file.modified().unwrap()
    };
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    for worker in [own, other] {
        let file = OpenOptions::new().write(true).open(lock_of(folder.path(), worker)).unwrap();
        file.set_modified(long_ago).unwrap();
        assert_eq!(last_sign(worker), long_ago);
    }
    assert_eq!(one.dead().await.unwrap(), []);
    assert!(last_sign(own) > long_ago);
    assert_eq!(last_sign(other), long_ago);
    // A worker that is gone is not silent.
    two.close().await;
    assert_eq!(one.audit().await.unwrap(), []);
}

#[tokio::test]
async fn strays_are_removed_and_files_of_known_or_live_workers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let gone = open(&path);
    let known = enlist(&gone).await;
    gone.close().await;
    let (stray, alive) = (WorkerId(1_001), WorkerId(1_002));
    drop(make_lock(folder.path(), stray));
    let held = make_lock(folder.path(), alive);
    held.lock().unwrap();
    let store = open(&path);
    let new = enlist(&store).await;
    let exists = |worker| lock_of(folder.path(), worker).exists();
    assert_eq!([known, stray, alive, new].map(exists), [true, false, true, true]);
}

#[tokio::test]
async fn a_roll_back_takes_the_file_away_and_a_commit_that_of_the_dead() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("jobs.db"), folder.path().join("away.db"));
    let store = open(&path);
    let locks = || {
        let files = fs::read_dir(folder.path().join("jobs.db-workers")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".lock")).count()
    };
    // A transaction is not committed while the database is not in its place.
    fs::rename(&path, &away).unwrap();
    let (name, knows) = ("test".to_owned(), Knows::All);
    let new = NewWorker { now: at(0), name, queues: Vec::new(), knows, slots: 1 };
    assert!(store.enlist(new).await.is_err());
    assert_eq!(locks(), 0);
    fs::rename(&away, &path).unwrap();
    let worker = enlist(&store).await;
    assert_eq!(locks(), 1);
    fs::rename(&path, &away).unwrap();
    assert!(store.dismiss(worker).await.is_err());
    fs::rename(&away, &path).unwrap();
    assert!(is_alive(&store, worker).await);
    store.dismiss(worker).await.unwrap();
    assert_eq!(locks(), 0);
}

/// Leaves the turnstile as soon as a request is blocked by it.
#[derive(Debug)]
struct Leaving(Mutex<Option<File>>);

impl PausePoints for Leaving {
    fn before_load(&self, _: &Want) {}

    fn before_apply(&self) {}

    fn before_commit(&self) {
        assert!(self.0.lock().unwrap().is_none(), "one at a time is in the turnstile");
    }

    fn on_blocked(&self) {
        self.0.lock().unwrap().take();
    }
}

#[tokio::test]
async fn one_at_a_time_is_in_the_turnstile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let leaving = Arc::new(Leaving(Mutex::new(None)));
    let store = SqliteStore::open_with(&path, options(), leaving.clone()).unwrap();
    let turnstile = folder.path().join("jobs.db-workers/turnstile");
    let inside = OpenOptions::new().write(true).open(turnstile).unwrap();
    inside.lock().unwrap();
    *leaving.0.lock().unwrap() = Some(inside);
    take(&store, request()).await.unwrap();
    assert!(leaving.0.lock().unwrap().is_none());
}
