//! Upkeep of the table of live tasks.
//!
//! Every task that ends leaves a dead row behind, and autovacuum looks once a minute: by then the table has
//! grown to many times its size. So the table is vacuumed after [`MOVED_MIN`] rows have left it, by one
//! process at a time, on a connection of its own. A transaction that stays open keeps dead rows from being
//! removed; it is warned of.

use crate::error::Error;
use crate::open::OpenedServer;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::Client;

/// Rows that have left the table before it is vacuumed. Fewer cost more than they give back.
const MOVED_MIN: u64 = 20_000;

/// The time between two vacuums.
const VACUUM_EVERY: Duration = Duration::from_secs(5);

/// The time between two looks for old snapshots.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Whether the role may vacuum the table. Where it may not, the server warns and does nothing.
const MAY_VACUUM: &str = "\
SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = 'task'::regclass";

/// Transactions that keep dead rows for longer than a minute.
const OLD_SNAPSHOTS: &str = "\
SELECT pid, coalesce(usename, '')::text, coalesce(application_name, ''), \
extract(epoch FROM clock_timestamp() - xact_start)::int8 FROM pg_stat_activity \
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid() \
AND backend_type = 'client backend' AND xact_start < clock_timestamp() - interval '1 minute'";

/// Keeps the table of live tasks small.
#[derive(Debug)]
pub(crate) struct TableWatcher {
    shared: Rc<WatcherState>,
    keeper: JoinHandle<()>,
}

#[derive(Debug)]
struct WatcherState {
    server: Rc<OpenedServer>,
    moved: Cell<u64>,
    has_moved: Notify,
    /// Transactions that were warned of, by process.
    warned: RefCell<HashSet<i32>>,
}

impl TableWatcher {
    /// Starts to watch.
    pub(crate) fn start_watching(server: Rc<OpenedServer>) -> Self {
        let shared = Rc::new(WatcherState {
            server,
            moved: Cell::new(0),
            has_moved: Notify::new(),
            warned: RefCell::default(),
        });
        let keeper = tokio::task::spawn_local(shared.clone().watch_forever());
        TableWatcher { shared, keeper }
    }

    /// Notes that this many rows have left the table.
    pub(crate) fn note_moved_rows(&self, rows: u64) {
        let moved = self.shared.moved.get() + rows;
        self.shared.moved.set(moved);
        if moved >= MOVED_MIN {
            self.shared.has_moved.notify_one();
        }
    }
}

impl Drop for TableWatcher {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl WatcherState {
    async fn watch_forever(self: Rc<Self>) {
        let mut next_look = Instant::now() + LOOK_EVERY;
        let mut connection: Option<Client> = None;
        if let Err(error) = self.check_vacuum_right().await {
            tracing::debug!(%error, "the rights on the table of live tasks could not be checked");
        }
        loop {
            let is_moved = tokio::select! {
                () = self.has_moved.notified() => true,
                () = sleep_until(next_look) => false,
            };
            let begun = Instant::now();
            if let Err(error) = self.keep_table(&mut connection, is_moved).await {
                tracing::debug!(%error, "the table of live tasks could not be looked after");
                connection = None;
            }
            if is_moved {
                sleep(VACUUM_EVERY.saturating_sub(begun.elapsed())).await;
            } else {
                next_look = Instant::now() + LOOK_EVERY;
                // A process that hardly ends tasks needs no connection for them.
                connection = None;
            }
        }
    }

    async fn keep_table(
        &self,
        connection: &mut Option<Client>,
        is_moved: bool,
    ) -> Result<(), Error> {
        let client = match connection {
            Some(client) => client,
            None => connection.insert(self.connect_watcher().await?),
        };
        if is_moved {
            self.moved.set(0);
            self.vacuum_tasks(client).await
        } else {
            self.warn_of_snapshots(client).await
        }
    }

    async fn connect_watcher(&self) -> Result<Client, Error> {
        let (client, _) = self.server.connector.connect_alone("watcher").await?;
        client.batch_execute("SET enable_seqscan = on; SET vacuum_cost_delay = 0").await?;
        Ok(client)
    }

    /// Vacuums the table, unless another process is doing so.
    async fn vacuum_tasks(&self, client: &Client) -> Result<(), Error> {
        let key = self.server.store_id.wrapping_add(2);
        let is_first = client.query_one("SELECT pg_try_advisory_lock($1)", &[&key]).await?;
        if !is_first.try_get::<_, bool>(0)? {
            return Ok(());
        }
        // Without shortening the file, which would lock the table.
        let vacuumed = client.batch_execute("VACUUM (TRUNCATE off) task").await;
        client.execute("SELECT pg_advisory_unlock($1)", &[&key]).await?;
        Ok(vacuumed?)
    }

    /// Warns once if the role may not vacuum the table.
    async fn check_vacuum_right(&self) -> Result<(), Error> {
        let client = self.server.catalog_pool.get().await?;
        if !client.query_one(MAY_VACUUM, &[]).await?.try_get::<_, bool>(0)? {
            tracing::warn!(
                server = self.server.connector.server,
                "the role does not own the tables and may not vacuum them; under load they grow until \
                 autovacuum looks at them, once a minute"
            );
        }
        Ok(())
    }

    async fn warn_of_snapshots(&self, client: &Client) -> Result<(), Error> {
        let mut still_open = HashSet::new();
        for row in client.query(OLD_SNAPSHOTS, &[]).await? {
            let (pid, user): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
            let (application, seconds): (String, i64) = (row.try_get(2)?, row.try_get(3)?);
            if !self.warned.borrow().contains(&pid) {
                tracing::warn!(
                    server = self.server.connector.server,
                    pid,
                    user,
                    application,
                    seconds,
                    "a transaction is open for long; until it ends, the tables grow with every task"
                );
            }
            still_open.insert(pid);
        }
        *self.warned.borrow_mut() = still_open;
        Ok(())
    }
}

#[cfg(test)]
mod postgres {
    use super::*;
    use crate::config::PostgresConfig;
    use crate::open::open_server;
    use tidegate_testkit::{PostgresSchema, connect_to_postgres};
    use tokio::task::LocalSet;

    #[tokio::test]
    async fn table_is_vacuumed_once_enough_rows_have_left_it() {
        let (schema, client) = (PostgresSchema::new(), connect_to_postgres().await);
        let config = PostgresConfig::parse_url(&schema.store_url()).expect("the URL is valid");
        let count = "SELECT vacuum_count FROM pg_stat_user_tables \
                     WHERE schemaname = $1 AND relname = 'task'";
        let vacuum = async {
            let server = Rc::new(open_server(config).await.expect("the server can be used"));
            let watcher = TableWatcher::start_watching(server);
            watcher.note_moved_rows(MOVED_MIN - 1);
            assert!(watcher.shared.moved.get() > 0);
            watcher.note_moved_rows(1);
            // The server shows it a moment after the vacuum.
            loop {
                let row = client.query_one(count, &[&schema.schema_name()]).await;
                if row.expect("the table is there").get::<_, i64>(0) > 0 {
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(watcher.shared.moved.get(), 0);
        };
        LocalSet::new().run_until(vacuum).await;
    }
}
