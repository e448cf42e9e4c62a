//! Engines on each store, and ways to wait for what is to come.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Engine, EngineBuilder};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::Store;

/// A place for a store. A second engine on the same place finds what the first has left.
pub(crate) struct Place {
    kind: Kind,
}

enum Kind {
    Memory(Arc<tidegate_core::memory::MemoryStore>),
    /// A folder, gone with the place.
    Sqlite(tempfile::TempDir),
    /// A schema on the server of the tests, dropped with the place.
    #[cfg(feature = "postgres")]
    Postgres(tidegate_testkit::PostgresSchema),
}

impl Place {
    pub(crate) fn memory() -> Self {
        Place { kind: Kind::Memory(Arc::default()) }
    }

    pub(crate) fn sqlite() -> Self {
        Place { kind: Kind::Sqlite(tempfile::tempdir().unwrap()) }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres() -> Self {
        Place { kind: Kind::Postgres(tidegate_testkit::PostgresSchema::new()) }
    }

    /// An engine on this place.
    pub(crate) fn engine(&self) -> EngineBuilder {
        match &self.kind {
            Kind::Memory(store) => Engine::builder("memory:").store(store.clone()),
            Kind::Sqlite(folder) => {
                Engine::builder(format!("sqlite:{}", folder.path().join("jobs.db").display()))
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres(schema) => Engine::builder(schema.store_url()),
        }
    }

    /// The store of this place, for a look past every engine, or to be wrapped.
    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        match &self.kind {
            Kind::Memory(store) => store.clone(),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(folder) => {
                let path = folder.path().join("jobs.db");
                let open = move || tidegate_sqlite::SqliteStore::open(path, Default::default());
                Arc::new(tokio::task::spawn_blocking(open).await.unwrap().unwrap())
            }
            #[cfg(not(feature = "sqlite"))]
            Kind::Sqlite(_) => unreachable!("there are no such places"),
            #[cfg(feature = "postgres")]
            Kind::Postgres(schema) => {
                let store = tidegate_postgres::PostgresStore::open_store(&schema.store_url()).await;
                Arc::new(store.unwrap())
            }
        }
    }

    /// All workers so far are dead, as if their processes were gone. Where a store notices by
    /// itself that somebody is gone there is nothing to do.
    pub(crate) fn bury_workers(&self) {
        (1..1_000).for_each(|worker| self.bury_worker(worker));
    }

    /// The worker with this number is dead.
    pub(crate) fn bury_worker(&self, worker: u64) {
        match &self.kind {
            Kind::Memory(store) => store.kill(WorkerId(worker)),
            Kind::Sqlite(_) => {}
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => {}
        }
    }
}

/// Makes a test for each store of an `async fn(Place)`.
macro_rules! on_every_store {
    ($($(#[$attribute:meta])* async fn $name:ident($place:ident: Place) $body:block)*) => {$(
        mod $name {
            use super::*;

            async fn test($place: Place) $body

            $(#[$attribute])*
            #[test]
            fn memory() {
                crate::engine::support::run_on_two_threads(Box::pin(test(Place::memory())));
            }

            $(#[$attribute])*
            #[test]
            #[cfg(feature = "sqlite")]
            fn sqlite() {
                crate::engine::support::run_on_two_threads(Box::pin(test(Place::sqlite())));
            }

            $(#[$attribute])*
            #[test]
            #[cfg(feature = "postgres")]
            fn on_postgres() {
                crate::engine::support::run_on_two_threads(Box::pin(test(Place::postgres())));
            }
        }
    )*};
}
pub(crate) use on_every_store;

/// Runs a test on a runtime with two threads. One function for all tests: a runtime that is compiled
/// anew for each of a thousand takes the compiler a while.
pub(crate) fn run_on_two_threads(test: Pin<Box<dyn Future<Output = ()>>>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(within(test));
}

/// A test that hangs is a failure.
pub(crate) async fn within<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), test).await.expect("the test hangs")
}

/// Looks again and again until it is true.
pub(crate) async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    for _ in 0..30_000 {
        if is_true().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what} did not come true");
}
