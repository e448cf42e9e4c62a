//! What can be opened, and what cannot and why.

use crate::support::{
    assert_passed, child_in_small_world, child_of, claim, enlist, open, options, submit,
};
use crate::support::{edit_lifecycle, edit_run};
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_sqlite::testing::find_network;
use tidegate_sqlite::{Options, SqliteStore};

/// Why a path cannot be opened, with the folder of the test left out.
fn refused(folder: &Path, name: &str) -> String {
    let error = SqliteStore::open(folder.join(name), options()).unwrap_err();
    error.to_string().replace(&format!("{}/", folder.display()), "")
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(folder.path(), "no/such/jobs.db");
    assert_eq!(error, "no/such/jobs.db: the folder no/such does not exist; create it first");
}

#[test]
fn a_folder_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("jobs")).unwrap();
    assert_eq!(refused(folder.path(), "jobs"), "jobs is a folder; name a file in it");
}

#[test]
fn a_file_that_is_no_database_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let short = ["1", "12", "hello\n"].map(str::to_owned);
    for text in short.into_iter().chain(["a longer text, ".repeat(1_000)]) {
        fs::write(folder.path().join("notes.txt"), &text).unwrap();
        let error = refused(folder.path(), "notes.txt");
        let right = "name a new file, or a store of tidegate";
        assert_eq!(error, format!("notes.txt is not a database; {right}"));
        assert_eq!(fs::read_to_string(folder.path().join("notes.txt")).unwrap(), text);
    }
}

#[test]
fn an_empty_file_becomes_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    fs::write(&path, "").unwrap();
    drop(open(&path));
    assert!(fs::read(&path).unwrap().starts_with(b"SQLite format 3\0"));
}

#[test]
#[cfg(unix)]
fn pipe_is_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(made.success());
    let right = "name a new file, or a store of tidegate";
    assert_eq!(refused(folder.path(), "pipe"), format!("pipe is not a database; {right}"));
}

#[test]
#[cfg(unix)]
fn database_with_two_hard_links_is_refused_under_either_name() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("jobs.db"), folder.path().join("other.db"));
    drop(open(&path));
    fs::hard_link(&path, &other).unwrap();
    for name in ["jobs.db", "other.db"] {
        let error = refused(folder.path(), name);
        let right = "remove the others, or make a copy";
        assert!(error.starts_with(&format!("{name} has 2 hard links, ")), "{error}");
        assert!(error.ends_with(right), "{error}");
    }
    fs::remove_file(&other).unwrap();
    drop(open(&path));
}

#[test]
fn database_that_has_lost_its_version_is_called_damaged_in_few_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    drop(open(&path));
    for lost in [0, -1] {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", lost).unwrap();
        let error = refused(folder.path(), "jobs.db");
        assert_eq!(error, "jobs.db is damaged; restore it from a backup");
    }
}

#[test]
fn a_database_of_another_program_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let other = |name: &str, sql: &str| {
        let path = folder.path().join(name);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let before = fs::read(&path).unwrap();
        let error = refused(folder.path(), name);
        assert_eq!(fs::read(&path).unwrap(), before, "{name}");
        error
    };
    let error = other("browser.db", "CREATE TABLE history (url TEXT)");
    assert_eq!(error, "browser.db is a database of another program; name a new file");
    let error = other("map.db", "PRAGMA application_id = 0x47504b47; CREATE TABLE tile (x)");
    let right = "(application id 0x47504b47); name a new file";
    assert_eq!(error, format!("map.db is a database of another program {right}"));
}

#[test]
fn a_newer_schema_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    drop(open(&path));
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
    let error = refused(folder.path(), "jobs.db");
    let right = "use the version of tidegate that has written it, or a later";
    let versions = "has schema version 7, and this program knows versions up to 3";
    assert_eq!(error, format!("jobs.db {versions}; {right}"));
}

#[test]
fn a_database_that_is_kept_locked_is_waited_for_and_then_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let options = Options { busy_timeout: Duration::from_millis(50), ..options() };
    let error = SqliteStore::open(&path, options).unwrap_err().to_string();
    assert!(error.ends_with("was kept locked by another process for 50ms; try again"), "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    open(&path);
}

#[test]
fn a_read_only_file_system_is_refused() {
    const THIS: &str = "opening::a_read_only_file_system_is_refused";
    let Some(folder) = child_of() else {
        let folder = tempfile::tempdir().unwrap();
        if let Some(output) = child_in_small_world(THIS, folder.path(), "4m") {
            assert_passed(&output);
        }
        return;
    };
    let folder = Path::new(&folder);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(open(&folder.join("jobs.db")).close());
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(folder).status();
    assert!(remount.unwrap().success());
    for name in ["jobs.db", "new.db"] {
        let right = "the file and its folder have to be writable";
        assert_eq!(refused(folder, name), format!("{name} is read-only; {right}"));
    }
}

#[test]
fn many_may_open_a_new_file_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&path))).collect();
        opening.into_iter().for_each(|store| drop(store.join().unwrap()));
    });
}

#[test]
fn a_link_leads_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    std::os::unix::fs::symlink(&path, folder.path().join("link.db")).unwrap();
    let other = open(&folder.path().join("link.db"));
    assert_eq!(other.path(), store.path());
}

#[tokio::test]
async fn store_with_any_patience_and_quota_opens_or_says_why() {
    let folder = tempfile::tempdir().unwrap();
    for busy_timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let (path, options) =
            (format!("{busy_timeout:?}.db"), Options { busy_timeout, ..options() });
        let store = SqliteStore::open(folder.path().join(path), options).unwrap();
        submit(&store, b"1").await.unwrap();
    }
    for (number, size_max) in [0, 1, u64::MAX].into_iter().enumerate() {
        let options = Options { size_max: Some(size_max), ..options() };
        let store = SqliteStore::open(folder.path().join(format!("{number}.db")), options);
        match store {
            Ok(store) => drop(submit(&store, b"1").await.unwrap()),
            Err(error) => assert!(size_max < 2 && error.to_string().contains("full"), "{error}"),
        }
    }
}

/// Whatever an older version, or another hand, has written.
#[tokio::test]
async fn task_with_counts_and_times_at_the_end_of_their_range_is_claimed_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    submit(&store, b"1").await.unwrap();
    drop(store);
    let connection = Connection::open(&path).unwrap();
    let fence = "UPDATE task SET fence = 9223372036854775807";
    assert_eq!(connection.execute(fence, []).unwrap(), 1);
    edit_lifecycle(&connection, 1, |stored| {
        (stored.columns.attempt, stored.columns.entries) = (u32::MAX, u32::MAX);
        stored.columns.active = i64::MAX;
    });
    edit_run(&connection, 1, |run| {
        (run.priority, run.submitted_at) = (i32::MIN, Timestamp::from_micros(i64::MIN));
    });
    drop(connection);
    let store = open(&path);
    let worker = enlist(&store).await;
    let claimed = claim(&store, worker, 1).await;
    assert_eq!((claimed.len(), claimed[0].life.entries), (1, u32::MAX));
    let changes = vec![crate::support::succeeded(&claimed[0])];
    let request = tidegate_core::store::Request {
        worker: Some(worker),
        changes,
        ..crate::support::request()
    };
    let ended = crate::support::take(&store, request).await.unwrap().ended;
    assert_eq!(ended.len(), 1);
}

const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:20 / /proc rw - proc proc rw
24 22 0:30 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
25 24 254:1 / /home/here rw - xfs /dev/vdb rw
26 22 0:31 / /mnt/my\\040share rw - cifs //server/share rw
27 22 0:32 / /mnt/ssh rw - fuse.sshfs me@server: rw
28 22 0:33 / /mnt/local rw - fuse.bindfs /x rw
29 22 0:34 / /mnt/hidden rw - nfs server:/x rw
30 29 0:35 / /mnt/hidden rw - tmpfs none rw
";

#[test]
fn a_network_file_system_is_known_by_the_innermost_mount() {
    let kind = |path: &str| find_network(MOUNTS, Path::new(path));
    assert_eq!(kind("/home/me/jobs.db").as_deref(), Some("nfs4"));
    assert_eq!(kind("/mnt/my share/jobs.db").as_deref(), Some("cifs"));
    assert_eq!(kind("/mnt/ssh/jobs.db").as_deref(), Some("fuse.sshfs"));
    for local in ["/jobs.db", "/home/here/jobs.db", "/mnt/local/jobs.db", "/homework/jobs.db"] {
        assert_eq!(kind(local), None, "{local}");
    }
    assert_eq!(kind("/mnt/hidden/jobs.db"), None);
}

#[test]
fn this_machine_says_what_it_has_mounted() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let here = std::env::temp_dir().canonicalize().unwrap().join("jobs.db");
    assert_eq!(find_network(&mounts, &here), None);
}
