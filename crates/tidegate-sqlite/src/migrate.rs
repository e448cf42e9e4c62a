//! The schema and how a database gets it.
//!
//! Migrations are numbered from 1, and the number of the last one is the version of the schema, which
//! the database keeps as `user_version`. A new database begins with the tables of the last one. All that
//! an older one lacks is done in one transaction, beside which no other connection writes.

mod old_rows;
mod upgrade;

use crate::fetch::Fetch;
use crate::lock::LockFolder;
use rusqlite::Connection;
use tidegate_core::lifecycle::WorkerId;
pub use upgrade::MigrationProgress;

/// What says that a database is ours: "tide" in ASCII.
pub(crate) const APPLICATION_ID: i64 = 0x7469_6465;

/// The migrations before the tables of today, in the order of their numbers. They are never changed.
const OLD_MIGRATIONS: [&str; 2] = [
    include_str!("../migrations/0001_begin.sql"),
    include_str!("../migrations/0002_knows_all.sql"),
];

const TABLES: &str = include_str!("../migrations/0003_tables.sql");
const INDEXES: &str = include_str!("../migrations/0003_indexes.sql");

/// The version of the schema that this program knows.
pub(crate) const VERSION: i64 = 3;

/// What a file turns out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Ours, with the version of its schema; 0 if it is empty.
    Ours(i64),
    /// Ours, by a later program.
    Newer(i64),
    /// Another program's, by its id, if it has one.
    Foreign(i64),
    /// Ours, with tables and without the version of their schema: its header was damaged.
    Unversioned,
}

/// Looks at a database without changing it.
pub(crate) fn look(connection: &Connection) -> rusqlite::Result<Found> {
    // At one instant: somebody else may be just about to make it.
    let began = connection.is_autocommit().then(|| connection.unchecked_transaction());
    let _snapshot = began.transpose()?;
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let is_empty = number("SELECT count(*) FROM sqlite_master")? == 0;
    Ok(match (application, version) {
        (APPLICATION_ID, VERSION..) if version > VERSION => Found::Newer(version),
        (APPLICATION_ID, ..=0) if !is_empty => Found::Unversioned,
        (APPLICATION_ID, _) => Found::Ours(version),
        (0, 0) if is_empty => Found::Ours(0),
        _ => Found::Foreign(application),
    })
}

/// A worker that keeps a store of an older version from being migrated.
#[derive(Debug)]
pub(crate) struct OldWorker {
    pub(crate) number: u64,
    pub(crate) name: String,
    /// The process that holds its lock, where the system tells.
    pub(crate) pid: Option<u32>,
}

/// How a migration has ended.
pub(crate) enum Migrated {
    Done(Found),
    /// Nothing was changed.
    Refused(OldWorker),
}

/// The surroundings of a database that is migrated.
pub(crate) struct Migration<'m> {
    pub(crate) locks: &'m LockFolder,
    pub(crate) progress: &'m dyn Fn(MigrationProgress),
}

impl Migration<'_> {
    /// Applies the migrations that are missing. Looks again, because another process may have been first.
    pub(crate) fn migrate(&self, connection: &Connection) -> rusqlite::Result<Migrated> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let migrated = self.apply_missing(connection);
        let is_done = matches!(migrated, Ok(Migrated::Done(_)));
        let ended = connection.execute_batch(if is_done { "COMMIT" } else { "ROLLBACK" });
        // SQLite ends a transaction by itself after some errors, of which the first counts.
        if migrated.is_ok() {
            ended?;
        }
        migrated
    }

    fn apply_missing(&self, connection: &Connection) -> rusqlite::Result<Migrated> {
        let found = look(connection)?;
        let Found::Ours(version) = found else { return Ok(Migrated::Done(found)) };
        match version {
            VERSION => return Ok(Migrated::Done(found)),
            0 => {
                connection.execute_batch(TABLES)?;
                connection.execute_batch(INDEXES)?;
                connection.execute_batch(ADD_STORE)?;
            }
            older => {
                // A worker of the older version cannot be added while the database is locked.
                if let Some(worker) = self.find_living_worker(connection)? {
                    return Ok(Migrated::Refused(worker));
                }
                upgrade::upgrade_store(connection, older, self.progress)?;
            }
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        Ok(Migrated::Done(found))
    }

    /// A worker that lives, or of which that cannot be told.
    fn find_living_worker(&self, connection: &Connection) -> rusqlite::Result<Option<OldWorker>> {
        let mut workers = connection.prepare("SELECT id, name FROM worker ORDER BY id")?;
        for (id, name) in workers.fetch_all::<(WorkerId, String), Vec<_>>([])? {
            if self.locks.is_alive(id).unwrap_or(true) {
                let pid = self.locks.find_holder(id);
                return Ok(Some(OldWorker { number: id.0, name, pid }));
            }
        }
        Ok(None)
    }
}

/// A store gets its id with its tables.
const ADD_STORE: &str = "INSERT INTO store (id) VALUES (random() & 9223372036854775807)";
