//! Opening a store: whether the server can be used, and the connections to it.
//!
//! Nothing is created before it is clear that the server can be used, and that the schema is ours or new.

use crate::config::PostgresConfig;
use crate::error::Error;
use crate::migrate;
use crate::open_error::PostgresOpenError;
use crate::tls::make_tls;
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime,
};
use std::fmt;
use tokio::task::JoinHandle;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The first version of the server that has everything that is used here.
const VERSION_MIN: i32 = 130_000;

/// Connections for plans, task groups and blocks of numbers, which requests seldom need.
const CATALOG_POOL: usize = 2;

/// A connection before it is driven.
pub(crate) type RawConnection =
    Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Makes connections with the settings of the store.
pub(crate) struct Connector {
    pub(crate) config: PostgresConfig,
    /// The server for messages, without its password.
    pub(crate) server: String,
    tls: MakeRustlsConnect,
    settings: String,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Connector {
    /// A connector for this server.
    ///
    /// # Errors
    /// Certificates that are named cannot be read.
    pub(crate) fn new(config: PostgresConfig) -> Result<Self, PostgresOpenError> {
        let tls = make_tls(config.tls_mode, config.root_certificates.as_deref())?;
        let (server, settings) = (config.server_name(), session_settings(&config));
        Ok(Connector { config, server, tls, settings })
    }

    /// Connects beside the pool. The connection is for the caller to drive.
    pub(crate) async fn connect_raw(
        &self,
        purpose: &str,
    ) -> Result<(Client, RawConnection), tokio_postgres::Error> {
        let mut connection = self.config.connection.clone();
        let name = connection.get_application_name().unwrap_or("tidegate");
        let name = format!("{name} {purpose}");
        connection.application_name(&name);
        connection.connect(self.tls.clone()).await
    }

    /// Connects beside the pool, with the settings of the store. The second value ends when the connection
    /// does.
    pub(crate) async fn connect_alone(
        &self,
        purpose: &str,
    ) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (client, connection) = self.connect_raw(purpose).await?;
        let driver = tokio::spawn(async move {
            // Statements that are under way fail with it.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        self.apply_settings(&client).await?;
        Ok((client, driver))
    }

    /// Sets a new connection up.
    pub(crate) async fn apply_settings(
        &self,
        client: &Client,
    ) -> Result<(), tokio_postgres::Error> {
        client.batch_execute(&self.settings).await
    }

    fn make_pool(&self, size: usize) -> Result<Pool, Error> {
        let manager = Manager::from_config(
            self.config.connection.clone(),
            self.tls.clone(),
            // A connection that broke is found by its next statement.
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let settings = self.settings.clone();
        let set_up = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
            let settings = settings.clone();
            Box::pin(
                async move { client.batch_execute(&settings).await.map_err(HookError::Backend) },
            )
        });
        let pool = Pool::builder(manager)
            .max_size(size)
            .wait_timeout(Some(self.config.pool_timeout))
            .create_timeout(Some(self.config.pool_timeout))
            // The connection that was used last has its statements prepared.
            .queue_mode(deadpool_postgres::QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .post_create(set_up)
            .build();
        pool.map_err(|error| {
            let server = self.server.clone();
            PostgresOpenError::Failed { server, source: Box::new(error) }.into()
        })
    }
}

/// The settings of every connection. Statements are written for the plans that these allow: generic ones
/// by an index, also where statistics are missing or old.
fn session_settings(config: &PostgresConfig) -> String {
    let PostgresConfig { schema, lock_timeout, restart_grace, .. } = config;
    let (lock_timeout, restart_grace) = (lock_timeout.as_millis(), restart_grace.as_secs_f64());
    format!(
        "SET search_path = \"{schema}\"; \
         SET plan_cache_mode = force_generic_plan; \
         SET jit = off; \
         SET enable_seqscan = off; \
         SET enable_hashjoin = off; \
         SET enable_mergejoin = off; \
         SET default_transaction_isolation = 'read committed'; \
         SET statement_timeout = 0; \
         SET lock_timeout = '{lock_timeout}ms'; \
         SET idle_in_transaction_session_timeout = '60s'; \
         SET client_min_messages = warning; \
         SET tidegate.restart_grace = '{restart_grace}'; \
         SELECT set_config('idle_session_timeout', '0', false) \
         WHERE current_setting('server_version_num')::int4 >= 140000; \
         SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') = 'off'"
    )
}

/// A server that can be used, with a schema of this version.
#[derive(Debug)]
pub(crate) struct OpenedServer {
    pub(crate) connector: Connector,
    pub(crate) pool: Pool,
    /// Connections for transactions of their own in the middle of a request: with those of the pool, which
    /// all requests together may have taken, they would wait for themselves.
    pub(crate) catalog_pool: Pool,
    /// The random number that tells stores apart, in file names and locks.
    pub(crate) store_id: i64,
    /// It is added to the number of a transaction for the numbers of its records.
    pub(crate) record_base: i64,
}

impl OpenedServer {
    /// Takes a connection out of the pool.
    ///
    /// # Errors
    /// All of them are in use, or a new one cannot be made.
    pub(crate) async fn take_connection(&self) -> Result<Object, Error> {
        Ok(self.pool.get().await?)
    }
}

/// Connects to a server, and makes the schema and its tables if there are none.
pub(crate) async fn open_server(config: PostgresConfig) -> Result<OpenedServer, Error> {
    let connector = Connector::new(config)?;
    let server = connector.server.as_str();
    let failed = |error| Error::from(PostgresOpenError::from_connection(server, error));
    let (mut client, connection) = connector.connect_raw("open").await.map_err(failed)?;
    tokio::spawn(connection);
    ServerFacts::read_facts(&client).await.map_err(failed)?.check_facts(server)?;
    connector.apply_settings(&client).await.map_err(failed)?;
    migrate::migrate_schema(&mut client, &connector).await?;
    check_rights(&client, &connector).await?;
    let (store_id, record_base) = read_store(&mut client).await.map_err(failed)?;
    let pool = connector.make_pool(connector.config.pool_size)?;
    let catalog_pool = connector.make_pool(CATALOG_POOL)?;
    Ok(OpenedServer { connector, pool, catalog_pool, store_id, record_base })
}

/// The properties of a server that decide whether it can be used.
#[derive(Debug, Clone)]
struct ServerFacts {
    version: i32,
    version_name: String,
    encoding: String,
    is_read_only: bool,
}

impl ServerFacts {
    async fn read_facts(client: &Client) -> Result<Self, tokio_postgres::Error> {
        let facts = client
            .query_one(
                "SELECT current_setting('server_version_num')::int4, current_setting('server_version'), \
                 current_setting('server_encoding'), \
                 pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'",
                &[],
            )
            .await?;
        Ok(ServerFacts {
            version: facts.try_get(0)?,
            version_name: facts.try_get(1)?,
            encoding: facts.try_get(2)?,
            is_read_only: facts.try_get(3)?,
        })
    }

    fn check_facts(self, server: &str) -> Result<(), PostgresOpenError> {
        let server = server.to_owned();
        if self.version < VERSION_MIN {
            return Err(PostgresOpenError::TooOld { server, found: self.version_name });
        }
        if self.encoding != "UTF8" {
            return Err(PostgresOpenError::NotUtf8 { server, encoding: self.encoding });
        }
        if self.is_read_only {
            return Err(PostgresOpenError::ReadOnly { server });
        }
        Ok(())
    }
}

/// Tables that the role may not use, and sequences. Those of identity columns need no right.
const FORBIDDEN: &str = "\
SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_class c \
JOIN pg_namespace n ON n.oid = c.relnamespace \
WHERE n.nspname = $1 AND (c.relkind = 'r' AND NOT (\
has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') \
AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')) \
OR c.relkind = 'S' AND NOT has_sequence_privilege(c.oid, 'USAGE') \
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass \
AND d.objid = c.oid AND d.deptype = 'i'))";

async fn check_rights(client: &Client, connector: &Connector) -> Result<(), Error> {
    let server = &connector.server;
    let failed = |error| PostgresOpenError::from_connection(server, error);
    let found = client.query_one(FORBIDDEN, &[&connector.config.schema]).await.map_err(failed)?;
    match found.try_get::<_, Option<String>>(0)? {
        None => Ok(()),
        Some(tables) => {
            let reason = format!("the role may not read and write {tables}");
            Err(PostgresOpenError::NoRights { server: server.clone(), reason }.into())
        }
    }
}

/// Raises the base of record numbers where the next transaction would write smaller ones than there are:
/// its numbers begin anew when the tables were moved to another server.
const RAISE_RECORD_BASE: &str = "\
UPDATE store SET record_base = highest.block - highest.next + 1 FROM (\
SELECT greatest((SELECT max(number) FROM record), (SELECT max(record) FROM ended_task), 0) >> 20 AS block, \
pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS next) highest \
WHERE highest.block >= highest.next + record_base";

/// The id of the store and the base of its record numbers.
async fn read_store(client: &mut Client) -> Result<(i64, i64), tokio_postgres::Error> {
    client.execute(RAISE_RECORD_BASE, &[]).await?;
    let store = client.query_one("SELECT id, record_base FROM store", &[]).await?;
    Ok((store.try_get(0)?, store.try_get(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(change: impl FnOnce(&mut ServerFacts)) -> Option<String> {
        let mut facts = ServerFacts {
            version: 130_000,
            version_name: "13.0".to_owned(),
            encoding: "UTF8".to_owned(),
            is_read_only: false,
        };
        change(&mut facts);
        facts.check_facts("postgres://here/jobs").err().map(|error| error.to_string())
    }

    #[test]
    fn oldest_server_that_can_be_used_is_version_13() {
        assert_eq!(refuse(|_| {}), None);
        let refusal = refuse(|facts| {
            facts.version = 120_017;
            facts.version_name = "12.17 (Debian 12.17-1)".to_owned();
        });
        let expected = "postgres://here/jobs: the server is PostgreSQL 12.17 (Debian 12.17-1); use \
                        version 13 or later";
        assert_eq!(refusal.as_deref(), Some(expected));
    }

    #[test]
    fn standby_is_refused_and_the_primary_asked_for() {
        let refusal = refuse(|facts| facts.is_read_only = true).expect("it is refused");
        assert!(refusal.contains("target_session_attrs=read-write"), "{refusal}");
    }
}
