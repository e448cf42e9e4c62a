//! The state of a store, which lives on its thread.

use crate::PostgresConfig;
use crate::catalog::NumberCatalog;
use crate::claim::ClaimBounds;
use crate::clock::ServerClock;
use crate::error::Error;
use crate::notifier::{Notifier, WakeupInboxes};
use crate::open::{OpenedServer, open_server};
use crate::remembered::RememberedRows;
use crate::watcher::TableWatcher;
use crate::workers::Workers;
use deadpool_postgres::Object;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_core::Timestamp;
use tidegate_core::testing::PausePoints;

/// How often a test looks whether another transaction holds its request up.
const BLOCKED_EVERY: Duration = Duration::from_millis(5);

/// Connections and everything that is remembered about the server.
pub(crate) struct StoreState {
    pub(crate) server: Rc<OpenedServer>,
    pub(crate) catalog: NumberCatalog,
    pub(crate) workers: Workers,
    pub(crate) notifier: Notifier,
    pub(crate) watcher: TableWatcher,
    pub(crate) clock: ServerClock,
    pub(crate) remembered: RememberedRows,
    pub(crate) claim_bounds: Rc<ClaimBounds>,
    /// Until when claims are left to decisions.
    pub(crate) orders_paused_until: Cell<Option<Instant>>,
    /// The next alarm as the last request has found it.
    pub(crate) next_alarm: Cell<Option<Timestamp>>,
    pub(crate) points: Option<Arc<dyn PausePoints>>,
    conflicts: Cell<u64>,
}

impl StoreState {
    /// Connects to a server, and makes the tables if there are none.
    pub(crate) async fn open_store(
        config: PostgresConfig,
        inboxes: Arc<WakeupInboxes>,
        points: Option<Arc<dyn PausePoints>>,
    ) -> Result<Self, Error> {
        let server = Rc::new(open_server(config).await?);
        let claim_bounds = Rc::<ClaimBounds>::default();
        let (listening, bounds) = (server.clone(), claim_bounds.clone());
        let notifier = Notifier::start_listening(listening, inboxes.clone(), bounds).await?;
        Ok(StoreState {
            catalog: NumberCatalog::new(server.catalog_pool.clone()),
            workers: Workers::new(server.clone(), inboxes),
            notifier,
            watcher: TableWatcher::start_watching(server.clone()),
            clock: ServerClock::default(),
            remembered: RememberedRows::default(),
            claim_bounds,
            orders_paused_until: Cell::new(None),
            next_alarm: Cell::new(None),
            points,
            conflicts: Cell::new(0),
            server,
        })
    }

    /// Takes a connection out of the pool.
    pub(crate) async fn take_connection(&self) -> Result<Object, Error> {
        self.server.take_connection().await
    }

    /// Counts a transaction that was given up because of another, and is tried again.
    pub(crate) fn count_conflict(&self, error: &Error) {
        self.conflicts.set(self.conflicts.get() + 1);
        tracing::debug!(conflicts = self.conflicts.get(), %error, "transaction is tried again");
    }

    /// Awaits statements of a connection. With pause points, it says there when another transaction
    /// holds them up.
    pub(crate) async fn watch_blocked<T>(
        &self,
        client: &Object,
        statements: impl Future<Output = T>,
    ) -> T {
        let Some(points) = &self.points else { return statements.await };
        let Ok(process) = find_process(client).await else { return statements.await };
        let mut statements = std::pin::pin!(statements);
        loop {
            tokio::select! {
                biased;
                answer = &mut statements => return answer,
                () = tokio::time::sleep(BLOCKED_EVERY) => {}
            }
            if self.is_blocked(process).await.unwrap_or(false) {
                points.on_blocked();
            }
        }
    }

    async fn is_blocked(&self, process: i32) -> Result<bool, Error> {
        let client = self.take_connection().await?;
        let blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0";
        let statement = client.prepare_cached(blocked).await?;
        Ok(client.query_one(&statement, &[&process]).await?.try_get(0)?)
    }
}

async fn find_process(client: &Object) -> Result<i32, Error> {
    let statement = client.prepare_cached("SELECT pg_backend_pid()").await?;
    Ok(client.query_one(&statement, &[]).await?.try_get(0)?)
}
