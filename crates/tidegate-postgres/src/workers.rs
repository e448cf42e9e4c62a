//! Workers: their rows, and which of them are alive.
//!
//! A worker is alive while a session holds its advisory lock, on a connection that serves nothing else.
//! The key of that lock is `!id` and so negative, where no lock of a request is. A connection that breaks is
//! made anew and takes the lock again, for the same row. After a start of the server, all workers connect
//! again; for a time none of them counts as dead.

use crate::error::Error;
use crate::machine::{boot_id, host_name};
use crate::notifier::WakeupInboxes;
use crate::open::OpenedServer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Knows, NewWorker, WorkerView};
use tidegate_core::want::ServedTasks;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::Client;

/// The longest pause between two attempts to connect again: much less than the time that workers get.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Whether the worker of a row is dead: its lock is free, and the server runs for long enough. The lock is
/// tried shared, so that two processes that try at once do not take each other for the worker, and released at once.
macro_rules! is_dead {
    () => {
        "(pg_postmaster_start_time() < clock_timestamp() \
         - make_interval(secs => current_setting('tidegate.restart_grace')::float8) \
         AND CASE WHEN pg_try_advisory_lock_shared(~id) THEN pg_advisory_unlock_shared(~id) \
         ELSE false END)"
    };
}

/// The workers that are alive, by number: number, slots, queues, workflows and tasks.
pub(crate) const LIVE_WORKERS: &str = concat!(
    "SELECT number, slots, queues, workflows, tasks FROM worker WHERE NOT ",
    is_dead!(),
    " ORDER BY number"
);

const LIST_WORKERS: &str = concat!(
    "SELECT number, name, started_at, slots, queues, NOT ",
    is_dead!(),
    " FROM worker ORDER BY number"
);

/// The workers that are dead, and owners of tasks without a row.
const LIST_DEAD: &str = concat!(
    "WITH RECURSIVE owner (number) AS (\
     SELECT (SELECT min(worker) FROM task WHERE worker IS NOT NULL) UNION ALL \
     SELECT (SELECT min(worker) FROM task WHERE worker > owner.number) \
     FROM owner WHERE owner.number IS NOT NULL) \
     SELECT number FROM worker WHERE ",
    is_dead!(),
    " UNION SELECT number FROM owner WHERE number IS NOT NULL \
     AND NOT EXISTS (SELECT FROM worker WHERE worker.number = owner.number) ORDER BY number"
);

const ADD_WORKER: &str = "\
INSERT INTO worker (id, name, started_at, slots, queues, workflows, tasks, pid, host, boot_id) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING number";

/// Removes a worker that owns nothing, with its notifications.
const REMOVE_IDLE_WORKER: &str = "\
WITH gone AS (DELETE FROM worker WHERE number = $1 \
AND NOT EXISTS (SELECT FROM task WHERE task.worker = $1) RETURNING number) \
DELETE FROM notification WHERE worker IN (SELECT number FROM gone)";

/// The workers that live in this process, by this store.
#[derive(Debug)]
pub(crate) struct Workers {
    server: Rc<OpenedServer>,
    inboxes: Arc<WakeupInboxes>,
    own: RefCell<HashMap<WorkerId, OwnWorker>>,
    /// When a connection of a worker broke for the last time.
    last_loss: Rc<Cell<Option<Instant>>>,
}

/// A worker that lives here.
#[derive(Debug)]
struct OwnWorker {
    id: i64,
    /// The connection that holds its lock; none while it is being made anew.
    connection: Rc<RefCell<Option<Rc<Client>>>>,
    keeper: JoinHandle<()>,
}

impl Workers {
    pub(crate) fn new(server: Rc<OpenedServer>, inboxes: Arc<WakeupInboxes>) -> Self {
        Workers { server, inboxes, own: RefCell::default(), last_loss: Rc::default() }
    }

    /// Adds a worker, alive.
    pub(crate) async fn enlist_worker(&self, new: NewWorker) -> Result<WorkerId, Error> {
        // Its complement is negative.
        let id = fastrand::i64(1 << 32..1 << 62);
        let (client, driver) = self.server.connector.connect_alone("worker").await?;
        // The lock comes before the row: a row without its lock would be a dead worker's.
        take_lock(&client, id).await?;
        let number = self.insert_worker(id, &new).await?;
        let connection = Rc::new(RefCell::new(Some(Rc::new(client))));
        let keeper = LockKeeper {
            server: self.server.clone(),
            id,
            connection: connection.clone(),
            last_loss: self.last_loss.clone(),
        };
        let keeper = tokio::task::spawn_local(keeper.keep_lock(driver));
        self.inboxes.add_worker(number, ServedTasks::new(&new.queues, &new.knows));
        self.own.borrow_mut().insert(number, OwnWorker { id, connection, keeper });
        Ok(number)
    }

    async fn insert_worker(&self, id: i64, new: &NewWorker) -> Result<WorkerId, Error> {
        let client = self.server.take_connection().await?;
        let insert = client.prepare_cached(ADD_WORKER).await?;
        let mut queues = new.queues.clone();
        queues.sort_unstable();
        queues.dedup();
        let (workflows, tasks): (Option<Vec<&str>>, Option<Vec<&str>>) = match &new.knows {
            Knows::All => (None, None),
            Knows::These(known) => {
                let names = known.iter().map(|(workflow, task)| (&**workflow, &**task));
                let (workflows, tasks) = names.unzip();
                (Some(workflows), Some(tasks))
            }
        };
        let (started_at, slots) = (new.now.as_micros(), i64::from(new.slots));
        let (pid, host, boot_id) = (i64::from(std::process::id()), host_name(), boot_id());
        let row = client
            .query_one(
                &insert,
                &[
                    &id,
                    &new.name,
                    &started_at,
                    &slots,
                    &queues,
                    &workflows,
                    &tasks,
                    &pid,
                    &host,
                    &boot_id,
                ],
            )
            .await?;
        Ok(worker_id(row.try_get(0)?))
    }

    /// Removes a worker. If it still owns something its row stays, as a dead worker's, until its tasks are
    /// taken over.
    pub(crate) async fn dismiss_worker(&self, worker: WorkerId) -> Result<(), Error> {
        let number = worker_number(worker);
        let mut client = self.server.take_connection().await?;
        let transaction = client.transaction().await?;
        let key = "SELECT id FROM worker WHERE number = $1";
        if let Some(row) = transaction.query_opt(key, &[&number]).await? {
            // After the requests of the worker that are under way.
            let locks = "SELECT pg_advisory_xact_lock_shared($1), pg_advisory_xact_lock($2)";
            let id: i64 = row.try_get(0)?;
            transaction.execute(locks, &[&self.server.store_id, &id]).await?;
            transaction.execute(REMOVE_IDLE_WORKER, &[&number]).await?;
        }
        transaction.commit().await.map_err(Error::after_commit)?;
        drop(client);
        self.release_worker(worker).await;
        Ok(())
    }

    /// Releases the lock of a worker, which is dead from then on if its row is there.
    pub(crate) async fn release_worker(&self, worker: WorkerId) {
        self.inboxes.remove_worker(worker);
        let Some(own) = self.own.borrow_mut().remove(&worker) else { return };
        own.keeper.abort();
        let client = own.connection.borrow_mut().take();
        if let Some(client) = client {
            // A connection that is broken has lost its lock.
            let _ = client.execute("SELECT pg_advisory_unlock($1)", &[&!own.id]).await;
        }
    }

    /// Releases the locks of all workers that live here.
    pub(crate) async fn release_all(&self) {
        let own: Vec<WorkerId> = self.own.borrow().keys().copied().collect();
        for worker in own {
            self.release_worker(worker).await;
        }
    }

    /// The workers that are dead, by number.
    pub(crate) async fn list_dead(&self) -> Result<Vec<WorkerId>, Error> {
        // A server that ends all connections, as after a crash of one of its processes, has not
        // necessarily been started anew.
        let grace = self.server.connector.config.restart_grace;
        if self.last_loss.get().is_some_and(|loss| loss.elapsed() < grace) {
            return Ok(Vec::new());
        }
        let client = self.server.take_connection().await?;
        let list = client.prepare_cached(LIST_DEAD).await?;
        let rows = client.query(&list, &[]).await?;
        rows.iter().map(|row| Ok(worker_id(row.try_get(0)?))).collect()
    }

    /// All workers, by number.
    pub(crate) async fn list_workers(&self) -> Result<Vec<WorkerView>, Error> {
        let client = self.server.take_connection().await?;
        let list = client.prepare_cached(LIST_WORKERS).await?;
        let rows = client.query(&list, &[]).await?;
        let read_worker = |row: &tokio_postgres::Row| {
            let slots = row.try_get::<_, i64>(3)?;
            let new = NewWorker {
                now: Timestamp::from_micros(row.try_get(2)?),
                name: row.try_get(1)?,
                queues: row.try_get(4)?,
                knows: Knows::These(Vec::new()),
                slots: u32::try_from(slots).unwrap_or(u32::MAX),
            };
            let mut worker = WorkerView::new(worker_id(row.try_get(0)?), new);
            worker.alive = row.try_get(5)?;
            Ok(worker)
        };
        rows.iter().map(read_worker).collect()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for own in self.own.borrow().values() {
            own.keeper.abort();
        }
    }
}

/// Keeps the lock of a worker over connections that break.
struct LockKeeper {
    server: Rc<OpenedServer>,
    id: i64,
    connection: Rc<RefCell<Option<Rc<Client>>>>,
    last_loss: Rc<Cell<Option<Instant>>>,
}

impl LockKeeper {
    async fn keep_lock(self, mut driver: JoinHandle<()>) {
        loop {
            // It ends with the connection.
            let _ = driver.await;
            self.last_loss.set(Some(Instant::now()));
            self.connection.borrow_mut().take();
            tracing::warn!(
                server = self.server.connector.server,
                "the connection that shows that a worker is alive has broken; connecting again"
            );
            driver = self.connect_again().await;
        }
    }

    async fn connect_again(&self) -> JoinHandle<()> {
        let mut pause = Duration::from_millis(20);
        loop {
            match self.try_connect().await {
                Ok(driver) => return driver,
                Err(error) => tracing::debug!(%error, "a worker cannot connect again yet"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
        }
    }

    async fn try_connect(&self) -> Result<JoinHandle<()>, tokio_postgres::Error> {
        let (client, driver) = self.server.connector.connect_alone("worker").await?;
        // It waits for as long as the server has not noticed that the old connection is gone: until then
        // the worker counts as alive.
        take_lock(&client, self.id).await?;
        self.last_loss.set(Some(Instant::now()));
        *self.connection.borrow_mut() = Some(Rc::new(client));
        Ok(driver)
    }
}

async fn take_lock(client: &Client, id: i64) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("SET lock_timeout = 0").await?;
    client.execute("SELECT pg_advisory_lock($1)", &[&!id]).await?;
    Ok(())
}

/// The number of the row of a worker.
pub(crate) fn worker_number(worker: WorkerId) -> i64 {
    i64::try_from(worker.0).unwrap_or(i64::MAX)
}

/// The worker with the row of this number.
pub(crate) fn worker_id(number: i64) -> WorkerId {
    WorkerId(u64::try_from(number).unwrap_or(0))
}
