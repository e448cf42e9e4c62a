//! What every store must do.

#![allow(clippy::unwrap_used, reason = "what cannot happen in a test fails it")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::Store;
use tidegate_core::testing::PausePoints;
use tidegate_sqlite::{Options, SqliteStore, Synchronous};
use tidegate_testkit::{ConnectHarness, Harness, Later, conformance, races};

struct Sqlite {
    folder: TempDir,
    store: Arc<SqliteStore>,
}

impl Sqlite {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        Sqlite { folder, store }
    }
}

fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("jobs.db")
}

fn open(folder: &TempDir) -> Arc<SqliteStore> {
    // What is tested here does not depend on it, and the tests are many.
    let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
    Arc::new(SqliteStore::open(path(folder), options).unwrap())
}

impl Harness for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn kill(&self, worker: WorkerId) {
        // A process that dies takes its lock with it; a file that is gone says the same.
        let lock = format!("jobs.db-workers/{}.lock", worker.0);
        std::fs::remove_file(self.folder.path().join(lock)).unwrap();
    }

    fn reopen(&mut self) -> Later<'_, ()> {
        Box::pin(async {
            self.store.close().await;
            self.store = open(&self.folder);
        })
    }
}

impl ConnectHarness for Sqlite {
    fn connect(&self, points: Arc<dyn PausePoints>) -> Arc<dyn Store> {
        // As long as a test may take: that one waits for the other is no error here.
        let busy_timeout = Duration::from_secs(3_600);
        let options =
            Options { synchronous: Synchronous::Normal, busy_timeout, ..Options::default() };
        Arc::new(SqliteStore::open_with(path(&self.folder), options, points).unwrap())
    }
}

conformance!(sqlite, Sqlite::new);
races!(sqlite_races, Sqlite::new);
