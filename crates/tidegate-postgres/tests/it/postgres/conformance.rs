//! The promises of every store.

use std::sync::{Arc, Mutex};
use std::thread;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::Store;
use tidegate_core::testing::PausePoints;
use tidegate_postgres::PostgresStore;
use tidegate_testkit::{
    ConnectHarness, Harness, Later, PostgresSchema, RandomPauses, conformance, races,
};

struct Postgres {
    // The store is closed before the schema is dropped.
    store: Arc<PostgresStore>,
    /// Further connections to it, each of which keeps the workers alive that were enlisted there.
    connections: Mutex<Vec<Arc<PostgresStore>>>,
    schema: PostgresSchema,
}

impl Postgres {
    async fn new() -> Self {
        let schema = PostgresSchema::take_used();
        let store = Arc::new(open_store(&store_url(&schema), None).await);
        Postgres { store, connections: Mutex::default(), schema }
    }
}

/// The URL of a store, with the parameters that the environment adds: `claim_orders=off` tries the way of
/// claims that no order takes.
fn store_url(schema: &PostgresSchema) -> String {
    let added = std::env::var("TIDEGATE_TEST_POSTGRES_PARAMETERS").unwrap_or_default();
    format!("{}&{added}", schema.store_url())
}

/// Opens a store whose requests stop at these points, and pause there where the environment asks for it.
async fn open_store(url: &str, points: Option<Arc<dyn PausePoints>>) -> PostgresStore {
    let opened = match RandomPauses::from_environment(points) {
        Some(points) => PostgresStore::open_store_with(url, points).await,
        None => PostgresStore::open_store(url).await,
    };
    opened.expect("the store can be opened")
}

/// Waits for the store from a function that is not async, inside a runtime.
fn wait_for<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(future)
    };
    thread::scope(|scope| scope.spawn(wait).join().unwrap())
}

impl Harness for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn kill(&self, worker: WorkerId) {
        let connections = self.connections.lock().unwrap().clone();
        for store in connections.iter().chain([&self.store]) {
            wait_for(store.kill_worker(worker));
        }
    }

    fn reopen(&mut self) -> Later<'_, ()> {
        Box::pin(async {
            self.store.close_store().await;
            self.store = Arc::new(open_store(&store_url(&self.schema), None).await);
        })
    }
}

impl ConnectHarness for Postgres {
    fn connect(&self, points: Arc<dyn PausePoints>) -> Arc<dyn Store> {
        // As long as a test may take: that one waits for the other is no error here.
        let url = format!("{}&lock_timeout=1h", store_url(&self.schema));
        let store = Arc::new(wait_for(open_store(&url, Some(points))));
        self.connections.lock().unwrap().push(store.clone());
        store
    }
}

conformance!(every_store, Postgres::new);
races!(two_connections, Postgres::new);
