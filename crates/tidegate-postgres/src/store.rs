//! The store: every method is a job for its thread.

use crate::config::PostgresConfig;
use crate::error::Error;
use crate::notifier::WakeupInboxes;
use crate::open_error::PostgresOpenError;
use crate::state::StoreState;
use crate::thread::StoreThread;
use crate::{in_place, records, request, sweep, views};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_core::explain::Looked;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::LimitState;
use tidegate_core::rows::Payload;
use tidegate_core::store::{
    Answer, Bytes, Counts, Finding, NewWorker, Record, Reply, Request, RunKey, RunSummary, RunView,
    RunsPage, Store, TaskKey, Unserved, Wakeup, WorkerView,
};
use tidegate_core::sweep::{Sweep, Swept};
use tidegate_core::testing::PausePoints;
use tidegate_core::{RunId, Timestamp};

/// A store in the tables of a PostgreSQL database.
///
/// Its connections live on a thread of its own. Dropping it gives up the liveness of its workers: they
/// count as dead, like those of a process that is gone.
pub struct PostgresStore {
    thread: StoreThread<StoreState>,
    inboxes: Arc<WakeupInboxes>,
    server: String,
    store_id: u64,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("server", &self.server).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store at this URL, and makes its tables if there are none.
    ///
    /// # Errors
    /// The server cannot be reached or used; the error says why, and what would be right.
    pub async fn open_store(url: &str) -> Result<Self, PostgresOpenError> {
        Self::open_config(PostgresConfig::parse_url(url)?, None).await
    }

    /// The same for a test that stops requests at these points.
    ///
    /// # Errors
    /// Like [`open_store`](Self::open_store).
    #[doc(hidden)]
    pub async fn open_store_with(
        url: &str,
        points: Arc<dyn PausePoints>,
    ) -> Result<Self, PostgresOpenError> {
        Self::open_config(PostgresConfig::parse_url(url)?, Some(points)).await
    }

    async fn open_config(
        config: PostgresConfig,
        points: Option<Arc<dyn PausePoints>>,
    ) -> Result<Self, PostgresOpenError> {
        let server = config.server_name();
        let inboxes = Arc::<WakeupInboxes>::default();
        let own = inboxes.clone();
        let make = async move || StoreState::open_store(config, own, points).await;
        match StoreThread::start_thread(make).await {
            Ok(thread) => {
                let find_id = async |state: Rc<StoreState>| Ok(state.server.store_id);
                match thread.run_job(find_id).await {
                    Ok(id) => Ok(PostgresStore { thread, inboxes, server, store_id: id as u64 }),
                    Err(error) => Err(PostgresOpenError::from_store(&server, error)),
                }
            }
            Err(error) => Err(PostgresOpenError::from_store(&server, error)),
        }
    }

    /// The random number that tells this store from others, wherever its tables go.
    pub fn store_id(&self) -> u64 {
        self.store_id
    }

    /// Lets the requests that have begun come to their end, then closes all connections. Workers that
    /// were enlisted here and not dismissed count as dead.
    pub async fn close_store(&self) {
        let release = async |state: Rc<StoreState>| {
            state.workers.release_all().await;
            Ok(())
        };
        // A thread that is gone has released them.
        let _ = self.thread.run_job(release).await;
        self.thread.stop_thread().await;
    }

    /// From now on this worker counts as dead, as if its process were gone. For tests.
    #[doc(hidden)]
    pub async fn kill_worker(&self, worker: WorkerId) {
        let release = async move |state: Rc<StoreState>| {
            state.workers.release_worker(worker).await;
            Ok(())
        };
        let _ = self.thread.run_job(release).await;
    }

    fn run_job<T, F>(&self, job: F) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: AsyncFnOnce(Rc<StoreState>) -> Result<T, Error> + Send + 'static,
    {
        let call = self.thread.run_job(job);
        Box::pin(async { call.await.map_err(|error| error.at_server(&self.server)) })
    }
}

impl Store for PostgresStore {
    fn enlist(&self, worker: NewWorker) -> Answer<'_, WorkerId> {
        self.run_job(async move |state| state.workers.enlist_worker(worker).await)
    }

    fn dismiss(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.run_job(async move |state| state.workers.dismiss_worker(worker).await)
    }

    fn dead(&self) -> Answer<'_, Vec<WorkerId>> {
        self.run_job(async move |state| state.workers.list_dead().await)
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerView>> {
        self.run_job(async move |state| state.workers.list_workers().await)
    }

    fn request(&self, request: Arc<Request>) -> Answer<'_, Reply> {
        self.run_job(async move |state| request::answer_request(&state, &request).await)
    }

    fn wait_for_wakeup(&self, worker: WorkerId) -> Answer<'_, Wakeup> {
        Box::pin(async move { Ok(self.inboxes.wait_for_wakeup(worker).await) })
    }

    fn run(&self, run: RunId) -> Answer<'_, Option<RunView>> {
        self.run_job(async move |state| views::view_run(&state, run).await)
    }

    fn ended(&self, runs: Vec<RunId>) -> Answer<'_, Vec<(RunId, Option<RunOutcome>)>> {
        self.run_job(async move |state| views::list_ended(&state, &runs).await)
    }

    fn runs(&self, page: RunsPage) -> Answer<'_, Vec<RunSummary>> {
        self.run_job(async move |state| views::list_runs(&state, &page).await)
    }

    fn payloads(
        &self,
        first: TaskKey,
        tasks: u32,
        kind: Payload,
    ) -> Answer<'_, Vec<(TaskKey, Bytes)>> {
        self.run_job(async move |state| views::list_payloads(&state, first, tasks, kind).await)
    }

    fn records(&self, run: Option<RunKey>, after: u64, limit: u32) -> Answer<'_, Vec<Record>> {
        self.run_job(async move |state| records::list_records(&state, run, after, limit).await)
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.run_job(async move |state| views::count_tasks(&state).await)
    }

    fn unserved(&self) -> Answer<'_, Vec<Unserved>> {
        self.run_job(async move |state| views::list_unserved(&state).await)
    }

    fn limits(&self) -> Answer<'_, Vec<LimitState>> {
        self.run_job(async move |state| views::list_limits(&state).await)
    }

    fn explain(&self, task: TaskKey, now: Timestamp) -> Answer<'_, Option<Looked>> {
        self.run_job(async move |state| in_place::explain_task(&state, task, now).await)
    }

    fn audit(&self) -> Answer<'_, Vec<Finding>> {
        self.run_job(async move |state| in_place::audit_store(&state).await)
    }

    fn sweep_rows(&self, step: Sweep) -> Answer<'_, Swept> {
        self.run_job(async move |state| sweep::sweep_rows(&state, step).await)
    }
}
