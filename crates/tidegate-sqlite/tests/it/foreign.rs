//! Files beside the database that another user may have put there.

use crate::support::{enlist, open, options};
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use tidegate_core::store::Store;
use tidegate_sqlite::SqliteStore;

/// Why a store cannot be opened, with the folder of the test left out.
fn refused(folder: &Path) -> String {
    let error = SqliteStore::open(folder.join("jobs.db"), options()).unwrap_err();
    error.to_string().replace(&format!("{}/", folder.display()), "")
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn folder_that_others_may_write_to_is_refused_and_left_as_it_is() {
    for name in ["jobs.db-workers", "jobs.db-logs"] {
        for mode in [0o777, 0o770, 0o1777] {
            let place = tempfile::tempdir().unwrap();
            let folder = place.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            let right = format!(
                "jobs.db: cannot use the folder {name}: other users may write to it (its mode is \
                 {mode:04o}); take that right away with chmod go-w"
            );
            assert_eq!(refused(place.path()), right);
            assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, mode);
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
            fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
            drop(open(&place.path().join("jobs.db")));
        }
    }
}

#[test]
fn folder_of_another_user_is_refused() {
    const OTHER: u32 = 54_321;
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("jobs.db-workers");
    DirBuilder::new().mode(0o755).create(&folder).unwrap();
    if chown(&folder, Some(OTHER), None).is_err() {
        eprintln!("only root can give a folder away: not tested");
        return;
    }
    let error = refused(place.path());
    assert!(error.contains("jobs.db-workers: it belongs to user 54321, and "), "{error}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn folder_may_be_a_link_of_ones_own() {
    let place = tempfile::tempdir().unwrap();
    let other = place.path().join("elsewhere");
    DirBuilder::new().mode(0o700).create(&other).unwrap();
    symlink("elsewhere", place.path().join("jobs.db-workers")).unwrap();
    drop(open(&place.path().join("jobs.db")));
    assert!(other.join("turnstile").is_file());
    fs::set_permissions(&other, Permissions::from_mode(0o777)).unwrap();
    assert!(refused(place.path()).contains("its mode is 0777"));
}

#[tokio::test]
async fn links_in_place_of_locks_are_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let (path, folder) = (place.path().join("jobs.db"), place.path().join("jobs.db-workers"));
    drop(open(&path));
    let victim = place.path().join("victim");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    fs::write(&victim, "precious").unwrap();
    fs::set_permissions(&victim, Permissions::from_mode(0o644)).unwrap();
    fs::File::open(&victim).unwrap().set_modified(long_ago).unwrap();
    let untouched = || {
        let found = fs::metadata(&victim).unwrap();
        assert_eq!((found.mode() & 0o777, found.modified().unwrap()), (0o644, long_ago));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    };

    fs::remove_file(folder.join("turnstile")).unwrap();
    symlink(&victim, folder.join("turnstile")).unwrap();
    let right = "jobs.db: cannot use jobs.db-workers/turnstile: it is a symbolic link, and must be a \
                 regular file; remove it";
    assert_eq!(refused(place.path()), right);
    untouched();
    fs::remove_file(folder.join("turnstile")).unwrap();

    let store = open(&path);
    for number in 1..4 {
        symlink(&victim, folder.join(format!("{number}.lock"))).unwrap();
    }
    let knows = tidegate_core::store::Knows::All;
    let (now, name) = (crate::support::at(0), "test".to_owned());
    let worker = tidegate_core::store::NewWorker { now, name, queues: Vec::new(), knows, slots: 1 };
    let error = store.enlist(worker).await.unwrap_err().to_string();
    assert!(error.contains("1.lock cannot be used: it is a symbolic link"), "{error}");
    assert_eq!(store.dead().await.unwrap(), []);
    untouched();
}

#[tokio::test]
async fn pipe_in_place_of_a_lock_makes_nobody_wait() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("jobs.db");
    let store = open(&path);
    make_pipe(&place.path().join("jobs.db-workers/5.lock"));
    // Files of workers that are not known are looked at here.
    enlist(&store).await;
    assert_eq!(store.dead().await.unwrap(), []);
}

#[tokio::test]
async fn lock_that_cannot_be_looked_at_keeps_nobody_from_what_other_workers_have_left() {
    let place = tempfile::tempdir().unwrap();
    let (path, folder) = (place.path().join("jobs.db"), place.path().join("jobs.db-workers"));
    let store = open(&path);
    let (first, second) = (enlist(&store).await, enlist(&store).await);
    store.close().await;
    drop(store);

    let store = open(&path);
    let lock = folder.join(format!("{}.lock", first.0));
    fs::remove_file(&lock).unwrap();
    make_pipe(&lock);
    assert_eq!(store.dead().await.unwrap(), [second]);
    let alive: Vec<_> = store.workers().await.unwrap().iter().map(|worker| worker.alive).collect();
    assert_eq!(alive, [true, false], "one of which nothing is known may be alive");
    assert_eq!(store.unserved().await.unwrap(), []);
    let found = store.audit().await.unwrap();
    let told: Vec<_> = found.iter().map(|finding| (finding.rule, finding.what.as_str())).collect();
    let [("silent", what)] = told[..] else { panic!("{told:?}") };
    assert!(what.starts_with("cannot tell whether worker 1 (test) lives, which owns 0 tasks: "));
    assert!(what.contains("it is a named pipe, and must be a regular file"), "{what}");
}
