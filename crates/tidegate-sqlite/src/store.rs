//! The store itself, which only passes on what it is asked to those who can do it.

use crate::audit;
use crate::bell::Ears;
use crate::error::Error;
use crate::files::SqliteFiles;
use crate::ledger::Ledger;
use crate::loader::RowLoader;
use crate::open::{self, Opened, Options, Place};
use crate::open_error::OpenError;
use crate::reader::Readers;
use crate::writer::Writer;
use std::path::Path;
use std::sync::Arc;
use tidegate_core::explain::{Looked, explain_task};
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::LimitState;
use tidegate_core::rows::Payload;
use tidegate_core::store::{
    Answer, Bytes, Counts, Finding, NewWorker, Record, Reply, Request, RunKey, RunSummary, RunView,
    RunsPage, Store, TaskKey, Unserved, Wakeup, WorkerView,
};
use tidegate_core::sweep::{Sweep, SweepStage, Swept};
use tidegate_core::testing::PausePoints;
use tidegate_core::{RunId, Timestamp};

/// A store in a SQLite database.
///
/// Any number of processes on one machine may have the same database open. Dropping it lets what is
/// queued be written; [`close`](Self::close) also waits for that.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    ears: Ears,
    place: Place,
}

impl SqliteStore {
    /// Opens the database at this path, and makes it if there is none, readable by its owner only.
    ///
    /// This blocks: for a few milliseconds, and for as long as [`Options::busy_timeout`] if another
    /// process has the database locked.
    ///
    /// # Errors
    /// Whatever is wrong with the file, its folder or its file system, with what would be right.
    ///
    /// # Examples
    /// ```
    /// use tidegate_sqlite::{Options, SqliteStore};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = SqliteStore::open(folder.path().join("jobs.db"), Options::default())?;
    /// assert_eq!(store.path(), folder.path().canonicalize()?.join("jobs.db"));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        Self::start_threads(path, open::open(path, &options)?)
    }

    /// Opens the database like [`open`](Self::open), for a test that stops requests at these points.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with(
        path: impl AsRef<Path>,
        options: Options,
        points: Arc<dyn PausePoints>,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let opened = open::open(path, &options)?;
        Self::start_threads(path, Opened { points: Some(points), ..opened })
    }

    fn start_threads(path: &Path, opened: Opened) -> Result<Self, OpenError> {
        let place = opened.place.clone();
        let failed = |error: Error| OpenError::Failed {
            path: path.to_owned(),
            source: Box::new(error.at(path)),
        };
        let readers = Readers::start(place.clone()).map_err(failed)?;
        let writer = Writer::start(opened).map_err(failed)?;
        let ears = Ears::new(place.locks.clone());
        Ok(SqliteStore { writer, readers, ears, place })
    }

    /// Where the database is: the whole path, without links.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Its files.
    pub fn files(&self) -> SqliteFiles {
        SqliteFiles { place: self.place.clone() }
    }

    /// Once this returns, what was queued before is written, the log is folded back into the
    /// database, and the file is closed. Workers that were enlisted here and not dismissed count as
    /// dead. Whatever is asked of the store afterwards is refused.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

impl Store for SqliteStore {
    fn enlist(&self, worker: NewWorker) -> Answer<'_, WorkerId> {
        let enlist = self.writer.write(move |ledger| ledger.enlist(&worker), &self.place);
        Box::pin(enlist)
    }

    fn dismiss(&self, worker: WorkerId) -> Answer<'_, ()> {
        Box::pin(self.writer.write(move |ledger| ledger.dismiss(worker), &self.place))
    }

    fn dead(&self) -> Answer<'_, Vec<WorkerId>> {
        Box::pin(self.readers.read(|loader| loader.list_dead_workers()))
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerView>> {
        Box::pin(self.readers.read(|loader| loader.list_workers()))
    }

    fn request(&self, request: Arc<Request>) -> Answer<'_, Reply> {
        let take = move |ledger: &mut Ledger<'_>| ledger.take(&request);
        Box::pin(self.writer.write(take, &self.place))
    }

    fn wait_for_wakeup(&self, worker: WorkerId) -> Answer<'_, Wakeup> {
        Box::pin(self.ears.hear(worker))
    }

    fn run(&self, run: RunId) -> Answer<'_, Option<RunView>> {
        Box::pin(self.readers.read(move |loader| loader.view_run(run)))
    }

    fn ended(&self, runs: Vec<RunId>) -> Answer<'_, Vec<(RunId, Option<RunOutcome>)>> {
        Box::pin(self.readers.read(move |loader| loader.list_ended(&runs)))
    }

    fn runs(&self, page: RunsPage) -> Answer<'_, Vec<RunSummary>> {
        Box::pin(self.readers.read(move |loader| loader.list_runs(&page)))
    }

    fn payloads(
        &self,
        first: TaskKey,
        tasks: u32,
        kind: Payload,
    ) -> Answer<'_, Vec<(TaskKey, Bytes)>> {
        Box::pin(self.readers.read(move |loader| loader.list_payloads(first, tasks, kind)))
    }

    fn records(&self, run: Option<RunKey>, after: u64, limit: u32) -> Answer<'_, Vec<Record>> {
        Box::pin(self.readers.read(move |loader| loader.list_records(run, after, limit)))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        Box::pin(self.readers.read(|loader| loader.count_tasks()))
    }

    fn unserved(&self) -> Answer<'_, Vec<Unserved>> {
        Box::pin(self.readers.read(|loader| loader.list_unserved()))
    }

    fn limits(&self) -> Answer<'_, Vec<LimitState>> {
        Box::pin(self.readers.read(|loader| loader.list_limits()))
    }

    fn explain(&self, task: TaskKey, now: Timestamp) -> Answer<'_, Option<Looked>> {
        let explain = move |loader: &mut RowLoader<'_>| explain_task(loader, task, now);
        Box::pin(self.readers.read(move |loader| loader.read_snapshot(explain)))
    }

    fn audit(&self) -> Answer<'_, Vec<Finding>> {
        Box::pin(async { self.files().work_apart("audit", audit::audit).await })
    }

    fn sweep_rows(&self, step: Sweep) -> Answer<'_, Swept> {
        if step.stage == SweepStage::Runs {
            let walk = move |loader: &mut RowLoader<'_>| loader.walk_runs(step);
            return Box::pin(self.readers.read(move |loader| loader.read_snapshot(walk)));
        }
        let sweep = move |ledger: &mut Ledger<'_>| ledger.sweep_rows(step.clone());
        Box::pin(self.writer.write(sweep, &self.place))
    }
}
