//! The database of the bare loop: its connection, its statements, when its log is folded back.
//!
//! The SQL is checked in beside this file. Every statement is prepared once and kept; there are no
//! savepoints. An error of the database ends the measurement: there is nothing to compare then.

use rusqlite::{Connection, Statement};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Above this the log is folded back into the database even while commands are waiting.
const LOG_BYTES_MAX: i64 = 64 << 20;

/// How long a claim holds, in milliseconds.
const LEASE: i64 = 30_000;

const WORKFLOW: i64 = 1;

/// The keys of a run with one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) run: i64,
    pub(crate) task: i64,
}

/// Who works on a task; the fence tells this claim from every other of the same task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) worker: i64,
    pub(crate) fence: i64,
}

/// A connection that a [`Ledger`] can be opened on.
pub(crate) struct Store {
    connection: Connection,
    log_pages: Arc<AtomicI32>,
    log_pages_max: i32,
}

impl Store {
    /// Makes the database, which must not exist.
    pub(crate) fn create(path: &Path) -> Self {
        let mut connection = Connection::open(path).expect("a database can be made here");
        connection.execute_batch(include_str!("pragmas.sql")).expect("the pragmas are valid");
        connection.execute_batch(include_str!("schema.sql")).expect("the database is new");
        // Pragmas that SQLite does not understand are ignored without a word.
        let pragma = |name: &str| -> String {
            let read = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
            connection.query_row(&read, [], |row| row.get(0)).expect("a pragma can be read")
        };
        assert_eq!((pragma("journal_mode").as_str(), pragma("synchronous").as_str()), ("wal", "2"));
        let page: i64 = pragma("page_size").parse().expect("a page has a size");

        let log_pages = Arc::new(AtomicI32::new(0));
        let seen = log_pages.clone();
        let hook = move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        };
        connection.wal_hook(Some(hook)).expect("a hook can be set");
        let log_pages_max = i32::try_from(LOG_BYTES_MAX / page).expect("a page is not that small");
        Store { connection, log_pages, log_pages_max }
    }

    /// Prepares the statements.
    pub(crate) fn ledger(&self) -> Ledger<'_> {
        let prepare = |sql| self.connection.prepare(sql).expect("the schema has what it names");
        Ledger {
            store: self,
            begin: prepare("BEGIN IMMEDIATE"),
            commit: prepare("COMMIT"),
            insert_run: prepare(include_str!("insert_run.sql")),
            insert_task: prepare(include_str!("insert_task.sql")),
            insert_payload: prepare(include_str!("insert_payload.sql")),
            claim_task: prepare(include_str!("claim_task.sql")),
            finish_task: prepare(include_str!("finish_task.sql")),
            finish_run: prepare(include_str!("finish_run.sql")),
            insert_event: prepare(include_str!("insert_event.sql")),
            now: 0,
        }
    }

    /// The answer of a query for one number.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.connection.query_row(sql, [], |row| row.get(0)).expect("a query for a number")
    }
}

/// The prepared statements. Commands belong between [`begin`](Self::begin) and
/// [`commit`](Self::commit), and hold once the latter returns.
pub(crate) struct Ledger<'store> {
    store: &'store Store,
    begin: Statement<'store>,
    commit: Statement<'store>,
    insert_run: Statement<'store>,
    insert_task: Statement<'store>,
    insert_payload: Statement<'store>,
    claim_task: Statement<'store>,
    finish_task: Statement<'store>,
    finish_run: Statement<'store>,
    insert_event: Statement<'store>,
    /// Read once a transaction: milliseconds of the wall clock.
    now: i64,
}

impl Ledger<'_> {
    pub(crate) fn begin(&mut self) {
        self.begin.execute([]).expect("a transaction can begin");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        self.now = i64::try_from(now.as_millis()).expect("it is before the year 292,000,000");
    }

    pub(crate) fn commit(&mut self) {
        self.commit.execute([]).expect("a transaction can be committed");
    }

    /// A run row, a task row that is ready, and its payload.
    pub(crate) fn insert(&mut self, input: &str) -> Key {
        let run = self.insert_run.insert((WORKFLOW, self.now)).expect("a run row");
        let task = self.insert_task.insert((run, self.now)).expect("a task row");
        self.insert_payload.execute((task, input)).expect("a payload row");
        Key { run, task }
    }

    /// Ready → running. False: it was not ready.
    pub(crate) fn claim(&mut self, key: Key, holder: Holder) -> bool {
        let until = self.now + LEASE;
        let claimed = self.claim_task.execute((key.task, until, holder.worker, holder.fence));
        claimed.expect("an update of a task row") == 1
    }

    /// Running → succeeded, its run with it, and an event row. False: this holder does not hold it.
    pub(crate) fn finish(&mut self, key: Key, holder: Holder) -> bool {
        let Holder { worker, fence } = holder;
        let finished = self.finish_task.execute((key.task, self.now, worker, fence));
        if finished.expect("an update of a task row") == 0 {
            return false;
        }
        let run = self.finish_run.execute((key.run, self.now)).expect("an update of a run row");
        assert_eq!(run, 1, "a running task belongs to a running run");
        self.insert_event.execute((key.run, key.task, self.now)).expect("an event row");
        true
    }

    /// Whether the log must be folded back although commands are waiting.
    pub(crate) fn log_is_long(&self) -> bool {
        self.store.log_pages.load(Ordering::Relaxed) > self.store.log_pages_max
    }

    /// Folds the log back into the database; the next commit then writes it from its start.
    pub(crate) fn checkpoint(&self) {
        if self.store.log_pages.swap(0, Ordering::Relaxed) > 0 {
            let fold = "PRAGMA wal_checkpoint(PASSIVE)";
            let busy = self.store.connection.query_row(fold, [], |row| row.get::<_, i64>(0));
            assert_eq!(busy.expect("a checkpoint"), 0, "nobody else uses this database");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_claimed_once_and_finished_by_its_holder_only() {
        let place = crate::bare::disk::scratch();
        let store = Store::create(&place.path().join("bare.db"));
        let mut ledger = store.ledger();
        let (holder, other) = (Holder { worker: 1, fence: 1 }, Holder { worker: 1, fence: 2 });
        ledger.begin();
        let key = ledger.insert("{}");
        assert!(!ledger.finish(key, holder));
        assert!(ledger.claim(key, holder));
        assert!(!ledger.claim(key, other));
        assert!(!ledger.finish(key, other));
        assert!(ledger.finish(key, holder));
        assert!(!ledger.finish(key, holder));
        ledger.commit();
        assert_eq!(store.number("SELECT count(*) FROM event"), 1);
    }

    #[test]
    fn the_index_of_live_tasks_serves_the_search_for_work() {
        let place = crate::bare::disk::scratch();
        let store = Store::create(&place.path().join("bare.db"));
        for state in [0, 1] {
            let plan = format!(
                "EXPLAIN QUERY PLAN SELECT id FROM task \
                 WHERE state < 2 AND state = {state} AND due <= 9 ORDER BY due"
            );
            let plan = store.connection.query_row(&plan, [], |row| row.get::<_, String>(3));
            let plan = plan.unwrap();
            assert!(plan.contains("task_live (state=? AND due<?)"), "{plan}");
        }
    }
}
