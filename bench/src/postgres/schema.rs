//! A schema of its own for each measurement.

use crate::server::Server;
use crate::store;
use std::thread;
use tokio_postgres::{Client, NoTls};

/// A name for a schema that does not exist. Dropping it removes the schema, if that was made.
pub(super) struct ScratchSchema {
    server_url: String,
    store_url: String,
    name: String,
}

impl ScratchSchema {
    pub(super) fn new(server: &Server) -> Self {
        let name = format!("bench_{}_{:016x}", std::process::id(), fastrand::u64(..));
        // A worker that has ended is no worker to wait for, also on a server that was just started.
        let store_url = server.store_url(&name, "&restart_grace=0s");
        ScratchSchema { server_url: server.url().to_owned(), store_url, name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The address of a store in it.
    pub(super) fn store_url(&self) -> &str {
        &self.store_url
    }

    /// A connection that finds the tables in it.
    pub(super) async fn connect(&self) -> Client {
        let client = connect(&self.server_url).await;
        let set = format!("SET search_path = {}", self.name);
        client.batch_execute(&set).await.expect("a search path can be set");
        client
    }

    /// Makes the schema, where no store does.
    pub(super) async fn create(&self) -> Client {
        let client = self.connect().await;
        let create = format!("CREATE SCHEMA {}", self.name);
        client.batch_execute(&create).await.expect("a schema can be made");
        client
    }
}

impl Drop for ScratchSchema {
    fn drop(&mut self) {
        let url = self.server_url.clone();
        let drop_schema = format!(
            "SET lock_timeout = '10s'; SET client_min_messages = 'warning'; \
             DROP SCHEMA IF EXISTS {} CASCADE",
            self.name
        );
        // On a thread of its own, because this one may be inside a runtime.
        let dropping = thread::spawn(move || {
            store::runtime().block_on(async {
                if let Err(error) = connect(&url).await.batch_execute(&drop_schema).await {
                    eprintln!("cannot run \"{drop_schema}\": {error}");
                }
            });
        });
        let _ = dropping.join();
    }
}

/// A connection to the server at this URL, without TLS.
pub(super) async fn connect(url: &str) -> Client {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.unwrap_or_else(|error| panic!("{url}: {error}"));
    // It ends when the client is dropped, or with an error that the client reports.
    tokio::spawn(connection);
    client
}
