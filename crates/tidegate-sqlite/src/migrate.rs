//! The schema and how a database gets it.
//!
//! Migrations are numbered from 1, and the number of the last one is the version of the schema, which
//! the database keeps as `user_version`. They are applied in one transaction that nobody else can
//! write beside. What comes out of all of them is checked in as `schema.sql`.

use rusqlite::Connection;

/// What says that a database is ours: "tide" in ASCII.
pub(crate) const APPLICATION_ID: i64 = 0x7469_6465;

/// In the order of their numbers. One that somebody may have applied is never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_begin.sql"),
    include_str!("../migrations/0002_knows_all.sql"),
];

/// The version of the schema that this program knows.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

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

/// Applies what is missing. Looks again, because somebody else may have been first.
pub(crate) fn migrate(connection: &Connection) -> rusqlite::Result<Found> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let migrated = look(connection).and_then(|found| {
        if let Found::Ours(version) = found {
            apply(connection, version)?;
        }
        Ok(found)
    });
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end)?;
    migrated
}

fn apply(connection: &Connection, version: i64) -> rusqlite::Result<()> {
    let done = usize::try_from(version).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(done) {
        connection.execute_batch(migration)?;
    }
    if version < VERSION {
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(())
}
