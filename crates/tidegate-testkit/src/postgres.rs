//! The PostgreSQL server for tests, and a schema of its own for each test.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tokio_postgres::{Client, Config, NoTls};

/// The variable with the URL of the server for tests.
const SERVER: &str = "TIDEGATE_TEST_POSTGRES";

/// A schema on the server for tests that no other test uses. Dropping it removes the schema, with all
/// that is in it, unless later tests may use its tables.
#[derive(Debug)]
pub struct PostgresSchema {
    server: String,
    name: String,
    is_reused: bool,
}

/// Schemas of this process with the tables of a store, which no test uses at the moment. To make the tables
/// takes longer than most tests.
static UNUSED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Default for PostgresSchema {
    fn default() -> Self {
        Self::new()
    }
}

impl PostgresSchema {
    /// Chooses a name. The schema itself is left for the test, or the store, to create.
    ///
    /// # Panics
    /// If there is no server for tests.
    pub fn new() -> Self {
        PostgresSchema { server: postgres_server(), name: choose_name(), is_reused: false }
    }

    /// Takes a schema that an earlier test of this process has left, with empty tables and another store id;
    /// a new one if there is none. For tests that use the store and nothing else, and that close it.
    ///
    /// # Panics
    /// If there is no server for tests.
    pub fn take_used() -> Self {
        let unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (server, is_new) = (postgres_server(), unused.is_none());
        let name = unused.unwrap_or_else(choose_name);
        let mut schema = PostgresSchema { server, name, is_reused: true };
        if !is_new && let Err(error) = run_on_server(&schema.server, schema.empty_tables()) {
            eprintln!("cannot empty the schema {}: {error}", schema.name);
            schema.name = choose_name();
        }
        schema
    }

    /// Statements that make a store of a used schema as good as new. Numbers go on.
    fn empty_tables(&self) -> String {
        let id = RandomState::new().hash_one(&self.name) >> 2;
        format!(
            "SET lock_timeout = '10s'; \
             DO $$ DECLARE name text; BEGIN \
             FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{0}' \
             AND tablename NOT IN ('tidegate_migration', 'store', 'number_block') \
             LOOP EXECUTE format('DELETE FROM {0}.%I', name); END LOOP; END $$; \
             UPDATE {0}.store SET id = {id}, record_base = 0",
            self.name
        )
    }

    /// The name of the schema.
    pub fn schema_name(&self) -> &str {
        &self.name
    }

    /// The URL of a store in this schema. Its connections have the name of the schema as the beginning of
    /// their application name.
    pub fn store_url(&self) -> String {
        self.store_url_at(&self.server)
    }

    /// The same on a server, or as a role, of which this is the URL.
    pub fn store_url_at(&self, server: &str) -> String {
        let separator = if server.contains('?') { '&' } else { '?' };
        // A worker that a test kills is dead at once, also on a server that was just started.
        format!("{server}{separator}schema={0}&application_name={0}&restart_grace=0", self.name)
    }
}

fn choose_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Random, because a server that was named may have schemas of a process that was killed.
    let random = RandomState::new().hash_one(number);
    format!("test_{}_{number}_{random:016x}", std::process::id())
}

impl Drop for PostgresSchema {
    fn drop(&mut self) {
        if self.is_reused && !thread::panicking() {
            let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
            return unused.push(self.name.clone());
        }
        // A store that the test has left open may be in the middle of a transaction.
        let drop_schema = format!(
            "SET lock_timeout = '10s'; SET client_min_messages = 'warning'; \
             DROP SCHEMA IF EXISTS \"{}\" CASCADE",
            self.name
        );
        if let Err(error) = run_on_server(&self.server, drop_schema) {
            eprintln!("cannot drop the schema {}: {error}", self.name);
        }
    }
}

/// The URL of the server for tests: a role that may do everything, and a database in UTF-8.
///
/// # Panics
/// If there is none.
pub fn postgres_server() -> String {
    match std::env::var(SERVER) {
        Ok(url) if !url.is_empty() => url,
        _ => panic!(
            "there is no PostgreSQL server for tests: run ./test, which starts one, or set {SERVER} to \
             the URL that `tools/postgres start DIRECTORY` prints (./test quick needs no server)"
        ),
    }
}

/// The server for tests as it is reached over TCP, by its address and port; roles need their password
/// there.
///
/// # Panics
/// If there is none.
pub fn postgres_tcp_address() -> String {
    let config: Config =
        postgres_server().parse().expect("the URL of the server for tests is valid");
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => format!("{host}:{port}"),
        _ => format!("127.0.0.1:{port}"),
    }
}

/// A connection to the server for tests, beside any store.
///
/// # Panics
/// If there is none.
pub async fn connect_to_postgres() -> Client {
    connect_to(&postgres_server()).await.expect("the server for tests can be reached")
}

async fn connect_to(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = url.parse::<Config>()?.connect(NoTls).await?;
    // It ends when the client is dropped, or with an error that the client reports.
    tokio::spawn(connection);
    Ok(client)
}

/// Runs statements on a thread of its own: a value may be dropped inside a runtime.
fn run_on_server(server: &str, statements: String) -> Result<(), tokio_postgres::Error> {
    let server = server.to_owned();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime
            .expect("a runtime can be built")
            .block_on(async { connect_to(&server).await?.batch_execute(&statements).await })
    };
    thread::spawn(run).join().expect("statements do not panic")
}
