//! The tables, and how a schema gets them.
//!
//! The number of the last migration is the version of the schema. The first one has the number of the
//! SQLite store with the same tables; schemas of earlier versions were never finished. All that are missing are applied in one transaction, under a lock: a process that dies in the middle leaves the
//! schema as it was. The table `tidegate_migration` tells a schema of ours from another program's.

use crate::error::Error;
use crate::open::Connector;
use crate::open_error::PostgresOpenError;
use tokio_postgres::Client;

/// The first version whose tables can be used.
const FIRST_VERSION: i32 = 3;

/// From that version on.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0003_tables.sql")];

/// The version of the schema that this program knows.
const KNOWN_VERSION: i32 = FIRST_VERSION + MIGRATIONS.len() as i32 - 1;

/// The migrations that were applied.
const CREATE_MIGRATION_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS tidegate_migration (\
number int4 PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())";

/// Whether the schema exists, whether it is ours, and whether it has anything that is no part of an
/// extension.
const LOOK_AT_SCHEMA: &str = "\
SELECT n.oid IS NOT NULL, \
to_regclass(quote_ident($1) || '.tidegate_migration') IS NOT NULL, \
EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND NOT EXISTS (\
SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')) \
FROM (SELECT $1::text) AS asked(name) LEFT JOIN pg_namespace n ON n.nspname = asked.name";

/// The state in which a schema is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundSchema {
    /// There is none.
    Missing,
    /// There is one, with this version of the tables; 0 without any.
    Ours(i32),
    /// It has tables of another program.
    Foreign,
}

async fn look_at_schema(
    client: &Client,
    schema: &str,
) -> Result<FoundSchema, tokio_postgres::Error> {
    let found = client.query_one(LOOK_AT_SCHEMA, &[&schema]).await?;
    if !found.try_get::<_, bool>(0)? {
        return Ok(FoundSchema::Missing);
    }
    if found.try_get(1)? {
        let version =
            format!("SELECT coalesce(max(number), 0) FROM \"{schema}\".tidegate_migration");
        return Ok(FoundSchema::Ours(client.query_one(&version, &[]).await?.try_get(0)?));
    }
    Ok(if found.try_get(2)? { FoundSchema::Foreign } else { FoundSchema::Ours(0) })
}

/// Brings the schema to the version that this program knows.
///
/// # Errors
/// Its tables are another program's, or of a version that this program cannot use, or the role may not
/// create them.
pub(crate) async fn migrate_schema(
    client: &mut Client,
    connector: &Connector,
) -> Result<(), Error> {
    let failed = |error| PostgresOpenError::from_connection(&connector.server, error);
    let found = look_at_schema(client, &connector.config.schema).await.map_err(failed)?;
    if check_found(found, connector)? == KNOWN_VERSION {
        return Ok(());
    }
    apply_missing(client, connector).await
}

/// The version of a schema that can be used, or brought so far.
fn check_found(found: FoundSchema, connector: &Connector) -> Result<i32, PostgresOpenError> {
    let server = connector.server.clone();
    match found {
        FoundSchema::Missing => Ok(0),
        FoundSchema::Ours(found @ 1..FIRST_VERSION) => {
            Err(PostgresOpenError::Unfinished { server, found, known: KNOWN_VERSION })
        }
        FoundSchema::Ours(version) if version <= KNOWN_VERSION => Ok(version),
        FoundSchema::Ours(found) => {
            Err(PostgresOpenError::Newer { server, found, known: KNOWN_VERSION })
        }
        FoundSchema::Foreign => {
            Err(PostgresOpenError::Foreign { server, schema: connector.config.schema.clone() })
        }
    }
}

/// Applies the migrations that are missing. Looks again under the lock: another process may have been first.
async fn apply_missing(client: &mut Client, connector: &Connector) -> Result<(), Error> {
    let schema = connector.config.schema.as_str();
    let failed = |error| PostgresOpenError::from_connection(&connector.server, error);
    let transaction = client.transaction().await.map_err(failed)?;
    let client = transaction.client();
    let lock =
        "SELECT pg_advisory_xact_lock(hashtextextended('tidegate migration of ' || $1::text, 0))";
    client.execute("SET LOCAL lock_timeout = 0", &[]).await.map_err(failed)?;
    client.execute(lock, &[&schema]).await.map_err(failed)?;
    let found = look_at_schema(client, schema).await.map_err(failed)?;
    let version = check_found(found, connector)?;
    if found == FoundSchema::Missing {
        // IF NOT EXISTS would ask for the right to create one also where there is one.
        let create = format!("CREATE SCHEMA \"{schema}\"");
        client.batch_execute(&create).await.map_err(failed)?;
    }
    client.batch_execute(CREATE_MIGRATION_TABLE).await.map_err(failed)?;
    let all = (FIRST_VERSION..).zip(MIGRATIONS);
    for (number, migration) in all.filter(|(number, _)| *number > version) {
        client.batch_execute(migration).await.map_err(failed)?;
        let note = "INSERT INTO tidegate_migration (number) VALUES ($1)";
        client.execute(note, &[&number]).await.map_err(failed)?;
        if number == FIRST_VERSION {
            // Room below and above: locks take the numbers next to it.
            let id = fastrand::i64(1 << 32..1 << 62);
            let add = "INSERT INTO store (id) VALUES ($1)";
            client.execute(add, &[&id]).await.map_err(failed)?;
        }
    }
    Ok(transaction.commit().await.map_err(failed)?)
}
