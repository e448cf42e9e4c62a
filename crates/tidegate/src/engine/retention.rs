//! What is no longer kept: runs, events, signals and logs that are old.
//!
//! Pruning is done in short steps at the store, with pauses between them, so that whoever else writes
//! is hardly held up. Logs are files of the worker's machine, and go with their runs or before.
//!
//! Deliberately absent: a share of the work for each worker. Several that prune at the same time find
//! less to do, and nothing goes twice.

use super::{Engine, Shared, shutdown};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use std::{fs, io};
use tidegate_core::retention::{Aged, PRUNE_MAX, Prune, Pruned as Step};
use tidegate_core::store::{Request, RequestId, Store, StoreError};
use tidegate_core::sweep::{SWEEP_EVERY, Sweep};
use tidegate_core::{RunId, Timestamp};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// How long after its start a worker prunes for the first time: it has better things to do at first.
const FIRST: Duration = Duration::from_secs(1);

/// How often a worker prunes.
const EVERY: Duration = Duration::from_secs(60);

/// A worker rests so many times as long as a step has taken: it has a tenth of the store's time at
/// the most.
const RESTS: u32 = 9;

/// Whoever asks for it rests as long as a step has taken.
const RESTS_ASKED: u32 = 1;

/// Time that a step may take, queueing included: other requests wait meanwhile.
const STEP_TIME: Duration = Duration::from_millis(4);

/// Rows of the first step, and of every step on a slow machine.
const FEW_ROWS: u32 = 50;

/// For how long what is over is kept. What is `None` is kept for ever, which is the default.
///
/// Given to [`EngineBuilder::retention`](crate::EngineBuilder::retention), the worker sees to it about
/// once a minute; [`Engine::prune`] does it now.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Retention;
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// let retention = Retention {
///     runs: Some(30 * DAY),
///     logs: Some(7 * DAY),
///     ..Retention::default()
/// };
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Runs, from their end on, with their events, signals and logs, and the results of their tasks.
    /// A run that a task has begun is kept at least as long as the run of that task. An idempotency
    /// key is free again when its run is gone.
    pub runs: Option<Duration>,
    /// What was [recorded](crate::Run::events) of a run, from the end of the run on.
    pub events: Option<Duration>,
    /// What the commands of a run have written, from the end of the run on.
    pub logs: Option<Duration>,
    /// Signals, from when they were sent on, if nobody will receive them any more: the task that did
    /// has ended, or the run has.
    pub signals: Option<Duration>,
}

impl Retention {
    /// Whether all is kept for ever.
    fn is_none(&self) -> bool {
        *self == Retention::default()
    }
}

/// How much was pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Runs.
    pub runs: u64,
    /// Events, apart from those of these runs.
    pub events: u64,
    /// Files that commands have written, those of these runs too.
    pub logs: u64,
    /// Signals, apart from those to these runs.
    pub signals: u64,
    /// Rows that nothing refers to any more: plans, task groups and queues without runs, limit keys without
    /// tasks with their begins, pauses that are over. Where the store has such.
    pub unreferenced: u64,
}

impl Engine {
    /// Removes what is older than this, all of it, and returns when it is gone. See [`Retention`] for
    /// what is kept all the same. Others write meanwhile.
    ///
    /// # Cancel safety
    /// What was removed before the future is dropped is gone; the rest is kept.
    ///
    /// # Errors
    /// The store cannot be written; what was removed before stays so. Logs that cannot be removed are
    /// logged and left.
    pub async fn prune(&self, retention: Retention) -> Result<Pruned, StoreError> {
        round(&self.shared, retention, RESTS_ASKED, None).await
    }
}

/// Prunes until the engine shuts down. When this is over, what was given with it is dropped.
pub(super) fn start(shared: &Arc<Shared>, retention: Retention, alive: watch::Sender<()>) {
    if !retention.is_none() {
        tokio::spawn(run(shared.clone(), retention, alive));
    }
}

/// Returns when nobody prunes in the background any more.
pub(super) async fn over(mut alive: watch::Receiver<()>) {
    // Nothing is ever sent: this fails when the sender is gone.
    let _ = alive.changed().await;
}

async fn run(shared: Arc<Shared>, retention: Retention, _alive: watch::Sender<()>) {
    let mut rest = FIRST;
    loop {
        let closing = shutdown::begun(shared.closing.subscribe());
        if unless(closing, tokio::time::sleep(rest)).await.is_none() {
            return;
        }
        rest = EVERY;
        // A task of its own, so that a panic in it is not the end of this one.
        let mut rounds = JoinSet::new();
        let pruner = shared.clone();
        rounds.spawn(async move { round(&pruner, retention, RESTS, Some(SWEEP_EVERY)).await });
        let closing = shutdown::begun(shared.closing.subscribe());
        match unless(closing, rounds.join_next()).await {
            Some(ended) => tell(ended),
            None => return rounds.shutdown().await,
        }
    }
}

fn tell(ended: Option<Result<Result<Pruned, StoreError>, JoinError>>) {
    match ended {
        Some(Ok(Ok(pruned))) => tracing::debug!(?pruned, "pruned"),
        Some(Ok(Err(error))) => tracing::warn!(%error, "cannot prune; it will be tried again"),
        Some(Err(error)) => tracing::error!(%error, "pruning has panicked; it will be tried again"),
        None => {}
    }
}

/// What work comes to, unless something else comes first.
async fn unless<T>(stop: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut stop, mut work) = (pin!(stop), pin!(work));
    std::future::poll_fn(|cx| match stop.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(cx).map(Some),
    })
    .await
}

async fn take_step(shared: &Shared, step: Prune) -> Result<Step, StoreError> {
    let id = RequestId(fastrand::u64(1..1 << 63));
    let request = Request { prune: Some(step), ..Request::new(id, shared.clock.request_clock()) };
    Ok(shared.store.request(Arc::new(request)).await?.pruned)
}

/// The rows of the next step, so that it takes about [`STEP_TIME`].
fn adapt_rows(rows: u32, took: Duration) -> u32 {
    let rows = if took > STEP_TIME { rows / 2 } else { rows.saturating_mul(2) };
    rows.clamp(FEW_ROWS, PRUNE_MAX)
}

/// Prunes all there is; after each step it rests this many times as long as the step took. Sweeps unless
/// another sweep began less than `sweep_every` ago.
async fn round(
    shared: &Shared,
    retention: Retention,
    rests: u32,
    sweep_every: Option<Duration>,
) -> Result<Pruned, StoreError> {
    let now = shared.now();
    let (store, logs) = (&*shared.store, shared.logs.as_deref());
    let mut pruned = Pruned::default();
    let Retention { runs, events, signals, .. } = retention;
    for (what, age) in [(Aged::Runs, runs), (Aged::Events, events), (Aged::Signals, signals)] {
        let Some(age) = age else { continue };
        let mut next = Some(Prune { most: FEW_ROWS, ..Prune::new(what, now - age) });
        while let Some(step) = next {
            let began = Instant::now();
            let came = take_step(shared, step).await?;
            let took = began.elapsed();
            let rest = took * rests;
            let most = adapt_rows(step.most, took);
            next = step.after(&came).map(|next| Prune { most, ..next });
            pruned.add(&came);
            if let Some(logs) = logs {
                let folders = came.runs.iter().map(|run| folder_of(logs, *run));
                pruned.logs += remove_all(folders.collect()).await;
            }
            if next.is_some() {
                tokio::time::sleep(rest).await;
            }
        }
    }
    let sweep = Sweep {
        unless_since: sweep_every.map(|every| now - every),
        max: FEW_ROWS,
        ..Sweep::new(now, runs.map(|age| now - age))
    };
    pruned.unreferenced = sweep_store(store, sweep, rests).await?;
    // What a crash has left of runs that are gone goes too.
    if let (Some(folder), Some(age)) = (logs, retention.logs.or(runs)) {
        let is_own = shared.files.logs_folder().as_deref() == Some(folder);
        let sweep =
            LogSweep { store, is_own, folder, before: now - age, ended: retention.logs.is_some() };
        pruned.logs += sweep.run().await?;
    }
    Ok(pruned)
}

/// Removes rows that nothing refers to; how many.
async fn sweep_store(store: &dyn Store, first: Sweep, rests: u32) -> Result<u64, StoreError> {
    let mut removed = 0;
    let mut next = Some(first);
    while let Some(step) = next {
        let (began, rows) = (Instant::now(), step.max);
        let swept = store.sweep_rows(step).await?;
        let took = began.elapsed();
        removed += swept.removed;
        next = swept.next.map(|next| Sweep { max: adapt_rows(rows, took), ..next });
        if next.is_some() {
            tokio::time::sleep(took * rests).await;
        }
    }
    Ok(removed)
}

impl Pruned {
    fn add(&mut self, step: &Step) {
        self.runs += step.runs.len() as u64;
        self.events += step.events;
        self.signals += step.signals;
    }
}

/// Where commands of a run leave their logs.
fn folder_of(logs: &Path, run: RunId) -> PathBuf {
    logs.join(run.to_string())
}

/// Looks through all logs.
struct LogSweep<'s> {
    store: &'s dyn Store,
    /// Whether the folder is the store's own: then what the store does not know is no other's.
    is_own: bool,
    folder: &'s Path,
    before: Timestamp,
    /// Whether logs of runs go that have ended, or only of such as are gone.
    ended: bool,
}

impl LogSweep<'_> {
    async fn run(self) -> Result<u64, StoreError> {
        let (folder, before) = (self.folder.to_owned(), self.before);
        let runs = blocking(move || runs_in(&folder, before)).await.unwrap_or_default();
        let mut removed = 0;
        for run in runs {
            let goes = match self.store.run(run).await? {
                None => self.is_own,
                Some(view) => self.ended && view.run.ended.is_some_and(|(_, at)| at < self.before),
            };
            if goes {
                removed += remove_all(vec![folder_of(self.folder, run)]).await;
            }
        }
        Ok(removed)
    }
}

/// The runs that have logs and were submitted before; what was submitted later has not ended before.
fn runs_in(folder: &Path, before: Timestamp) -> Vec<RunId> {
    let earliest = RunId::new(before, 0);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let runs = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RunId>().ok());
    runs.filter(|run| *run < earliest).collect()
}

/// Removes folders; how many files were in them.
async fn remove_all(folders: Vec<PathBuf>) -> u64 {
    if folders.is_empty() {
        return 0;
    }
    blocking(move || folders.iter().map(|folder| remove(folder)).sum()).await.unwrap_or(0)
}

fn remove(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).map_or(0, |entries| entries.flatten().count() as u64);
    match fs::remove_dir_all(folder) {
        Ok(()) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => {
            tracing::warn!(%error, folder = %folder.display(), "cannot remove logs");
            0
        }
    }
}

/// Work with files, where it holds nobody up; `None` if the runtime ends.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
