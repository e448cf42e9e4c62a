//! Stores of earlier versions: that they are brought up to date, and when not.

use crate::support::{
    assert_passed, assert_sound, child, child_in_small_world, child_of, claim, enlist, open,
    options, plan, submit,
};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::Payload;
use tidegate_core::store::{RunsPage, Store};
use tidegate_sqlite::{MigrationHook, MigrationProgress, OpenError, Options, SqliteStore};

const OLD: [&str; 2] = [
    include_str!("../../migrations/0001_begin.sql"),
    include_str!("../../migrations/0002_knows_all.sql"),
];

/// Runs of one task each, which have all succeeded, as version 2 has stored them.
const ENDED_RUNS: &str = "WITH RECURSIVE run (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM run WHERE n < ?1) \
     INSERT INTO task (key, idx, plan, lane, state, fence, attempt, entries, recoveries, active, \
     started, turn, ended_at, run_id, workflow, priority, submitted_at, open, outcome, run_ended_at) \
     SELECT n, 0, 1, 1, 6, 1, 1, 1, 0, 5, n + 10, n, n + 30, CAST(printf('%016d', n) AS BLOB), 1, 0, \
     n, 0, 0, n + 30 FROM run";

const RECORDS: &str = "INSERT INTO record (seq, at, run, idx, what, attempt, entry, worker, begun_at, \
     active) SELECT key, ended_at, key, 0, 0, 1, 1, 1, started, 5 FROM task";

const PAYLOADS: &str = "INSERT INTO payload (task, kind, body) SELECT key, kind, CAST(key || kind AS BLOB) \
     FROM task, (SELECT 0 AS kind UNION ALL SELECT 1) ORDER BY key, kind";

/// Makes a store of version 2 with this many runs that have ended.
fn make_old_store(path: &Path, runs: u32) -> Connection {
    let old = Connection::open(path).unwrap();
    old.pragma_update(None, "journal_mode", "WAL").unwrap();
    old.execute_batch(&OLD.concat()).unwrap();
    old.execute_batch("PRAGMA application_id = 0x74696465; PRAGMA user_version = 2; BEGIN")
        .unwrap();
    let body = plan("w").encode();
    old.execute("INSERT INTO plan (hash, body) VALUES (7, ?1)", [body]).unwrap();
    let names = "INSERT INTO workflow (queue, name) VALUES ('default', 'w'); \
                 INSERT INTO lane (workflow, task, weight) VALUES (1, 'only', 1)";
    old.execute_batch(names).unwrap();
    old.execute(ENDED_RUNS, [runs]).unwrap();
    for rows in [RECORDS, PAYLOADS] {
        old.execute(rows, []).unwrap();
    }
    old.execute_batch("COMMIT").unwrap();
    old
}

/// All that a database has, as text, in a folder that stays as it is.
fn dump(connection: &Connection) -> Vec<String> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut tables = connection.prepare(tables).unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut lines = Vec::new();
    for table in tables.map(Result::unwrap) {
        let mut rows = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = rows.column_count();
        let rows = rows.query_map([], |row| {
            let value = |at| row.get::<_, rusqlite::types::Value>(at).unwrap();
            Ok(format!("{table} {:?}", (0..columns).map(value).collect::<Vec<_>>()))
        });
        lines.extend(rows.unwrap().map(Result::unwrap));
    }
    lines
}

fn read_schema(path: &Path) -> BTreeSet<String> {
    let connection = Connection::open(path).unwrap();
    let select = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL";
    let mut select = connection.prepare(select).unwrap();
    let texts = select.query_map([], |row| row.get(0)).unwrap();
    texts.map(Result::unwrap).collect()
}

#[tokio::test]
async fn runs_of_an_earlier_version_are_there_after_opening_and_numbered_by_age() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    drop(make_old_store(&path, 300));
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    let hook = MigrationHook::new(move |progress| hears.lock().unwrap().push(progress));
    let store =
        SqliteStore::open(&path, Options { on_migration: Some(hook), ..options() }).unwrap();
    let told = told.lock().unwrap().clone();
    assert_eq!(told.first(), Some(&MigrationProgress { done: 0, total: 300 }));
    assert_eq!(told.last(), Some(&MigrationProgress { done: 300, total: 300 }));

    assert_sound(&store).await;
    let runs = store.runs(RunsPage { limit: 1_000, ..RunsPage::default() }).await.unwrap();
    assert_eq!(runs.len(), 300);
    let records = store.records(None, 0, 1_000).await.unwrap();
    assert_eq!(records.len(), 300);
    assert!(records.iter().zip(1..).all(|(record, number)| record.seq == number));
    let outputs = store.payloads(
        runs[299].key.task(runs[0].plan.graph().tasks().next().unwrap()),
        300,
        Payload::Output,
    );
    assert_eq!(outputs.await.unwrap().len(), 300);
    let numbers = "SELECT group_concat(run_number = number, '') FROM ended_task";
    let connection = Connection::open(&path).unwrap();
    let numbers: String = connection.query_row(numbers, [], |row| row.get(0)).unwrap();
    assert_eq!(numbers, "1".repeat(300));

    // The next run goes on from there.
    let worker = enlist(&store).await;
    let id = submit(&store, b"x").await.unwrap();
    assert_eq!(claim(&store, worker, 1).await.remove(0).run, id);
    let number = "SELECT run_number FROM task";
    assert_eq!(connection.query_row(number, [], |row| row.get(0)), Ok(301));
    assert_sound(&store).await;

    let new = folder.path().join("new.db");
    drop(open(&new));
    assert_eq!(read_schema(&path), read_schema(&new));
}

#[tokio::test]
async fn workers_of_version_1_keep_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for (name, column) in [("a.db", ""), ("b.db", "ALTER TABLE worker ADD knows_all INTEGER;")] {
        let path = folder.path().join(name);
        let old = Connection::open(&path).unwrap();
        let ours = "PRAGMA application_id = 0x74696465; PRAGMA user_version = 1;";
        old.execute_batch(&format!("{}{column}{ours}", OLD[0])).unwrap();
        let add = "INSERT INTO worker (name, started_at, slots) VALUES ('older', 1, 2)";
        old.execute_batch(&format!("{add}; {add}; DELETE FROM worker WHERE id = 2")).unwrap();
        drop(old);
        let store = open(&path);
        assert_eq!(store.dead().await.unwrap(), [WorkerId(1)]);
        assert_eq!(enlist(&store).await, WorkerId(3), "a number is never given again");
    }
}

/// A worker of the old store, with its lock file.
fn add_old_worker(path: &Path, old: &Connection) -> File {
    let add = "INSERT INTO worker (name, started_at, slots) VALUES ('older', 1, 2)";
    old.execute_batch(add).unwrap();
    let mut locks = path.as_os_str().to_owned();
    locks.push("-workers");
    fs::create_dir(&locks).unwrap();
    let mode: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&locks, mode).unwrap();
    File::create(Path::new(&locks).join("1.lock")).unwrap()
}

#[tokio::test]
async fn store_of_an_earlier_version_is_left_alone_while_a_worker_of_it_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let old = make_old_store(&path, 3);
    let lock = add_old_worker(&path, &old);
    lock.lock().unwrap();
    let before = dump(&old);
    let error = SqliteStore::open(&path, options()).unwrap_err();
    let OpenError::OldWorker { worker: 1, ref name, pid, .. } = error else { panic!("{error:?}") };
    assert_eq!((&**name, pid), ("older", Some(std::process::id())));
    let pid = format!("worker 1 (older, process {}) of that version lives", std::process::id());
    assert!(error.to_string().contains(&pid), "{error}");
    assert_eq!(dump(&old), before);

    // The lock file of a dead one is in no one's way.
    drop(lock);
    let store = open(&path);
    assert_eq!(store.dead().await.unwrap(), [WorkerId(1)]);
    assert_sound(&store).await;
}

#[test]
fn process_killed_in_the_middle_of_a_migration_leaves_the_old_store() {
    const THIS: &str =
        "migration::process_killed_in_the_middle_of_a_migration_leaves_the_old_store";
    if let Some(path) = child_of() {
        let hook = MigrationHook::new(|MigrationProgress { done, total }| {
            if done > 0 && done < total {
                println!("\nin the middle");
                std::io::stdout().flush().unwrap();
                // Until it is killed.
                let _ = std::io::stdin().read_line(&mut String::new());
            }
        });
        let options = Options { on_migration: Some(hook), ..options() };
        unreachable!("it was migrated: {:?}", SqliteStore::open(path, options));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let old = make_old_store(&path, 15_000);
    let before = dump(&old);
    drop(old);
    let mut child = child(THIS, &path).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == "in the middle"));
    child.kill().unwrap();
    child.wait().unwrap();

    let old = Connection::open(&path).unwrap();
    let version = "SELECT user_version FROM pragma_user_version";
    assert_eq!(old.query_row(version, [], |row| row.get(0)), Ok(2));
    assert!(dump(&old) == before, "something has changed");
    drop(old);
    // The next one does it from the beginning.
    drop(open(&path));
    let moved = "SELECT count(*) FROM ended_task";
    let connection = Connection::open(&path).unwrap();
    assert_eq!(connection.query_row(moved, [], |row| row.get(0)), Ok(15_000));
}

#[test]
fn migration_without_room_is_refused_with_both_figures() {
    const THIS: &str = "migration::migration_without_room_is_refused_with_both_figures";
    let Some(folder) = child_of() else {
        let folder = tempfile::tempdir().unwrap();
        if let Some(output) = child_in_small_world(THIS, folder.path(), "4m") {
            assert_passed(&output);
        }
        return;
    };
    let folder = Path::new(&folder);
    let path = folder.join("jobs.db");
    drop(make_old_store(&path, 3_000));
    let size = fs::metadata(&path).unwrap().len();
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![7; (4 << 20) - size as usize - (128 << 10)]).unwrap();
    let error = SqliteStore::open(&path, options()).unwrap_err();
    let OpenError::NoRoom { needed, free, .. } = error else { panic!("{error:?}") };
    assert!(free < needed && needed >= size, "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("needs {needed} bytes")), "{text}");
    assert!(text.contains(&format!("and {free} are free")), "{text}");
    fs::remove_file(&ballast).unwrap();
    drop(open(&path));
}

/// A store that is large for people's ones. Run it with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "it takes a minute"]
fn million_tasks_are_moved_within_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    drop(make_old_store(&path, 1_000_000));
    let before = fs::metadata(&path).unwrap().len();
    let began = Instant::now();
    drop(SqliteStore::open(&path, Options::default()).unwrap());
    let took = began.elapsed();
    let after = fs::metadata(&path).unwrap().len();
    println!("1,000,000 tasks in {took:?}; {before} bytes before, {after} after");
    assert!(took < Duration::from_secs(60), "{took:?}");
}
