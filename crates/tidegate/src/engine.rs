//! The engine: runs workflows on slots, with the truth in a store.
//!
//! - [`EngineBuilder`] opens the store, enlists a worker and starts its loop.
//! - The loop (`worker`) owns a [`Dispatcher`](tidegate_core::dispatcher::Dispatcher), which decides,
//!   and does what it says: hands requests in at the store, starts entries, answers callers. It
//!   awaits nothing but its channel, the request in flight and the next timer.
//! - An entry (`entry`) is one call of a body: a spawned task that stands in line for its slot, polls
//!   the body through its gate, and reports how it ended, also when it is dropped.
//! - [`Run`] waits for the end of a run; [`Subscription`] hears what happens.

mod audit;
mod backup;
mod builder;
mod child;
mod clock;
mod entry;
mod event;
mod explain;
mod fan_out;
mod files;
mod health;
mod hook;
mod keys;
mod load;
#[cfg(unix)]
mod logs;
mod look;
mod metrics;
mod monitor;
mod pulse;
mod retention;
mod retry;
mod run;
mod shutdown;
mod signal;
mod submit;
#[cfg(unix)]
mod suspend;
mod unstored;
mod worker;
mod workflows;

pub use audit::{Audit, Repaired};
pub use builder::{Config, ConfigError, EngineBuilder, StartError};
pub use child::Child;
use clock::EngineClock;
pub use event::{Event, Missed, Subscription, What};
pub use explain::Explanation;
use files::StoreFiles;
pub use health::{EngineHealth, HealthChanges};
pub(crate) use hook::Hook;
pub use hook::{EntryEvent, EntryStage, StoredEnd};
pub use metrics::{Metric, MetricKind, Metrics};
pub use monitor::Samples;
pub use retention::{Pruned, Retention};
pub use retry::{Retried, Retry};
pub use run::{OutputError, Run, RunError, RunState, RunStatus, TaskState, WaitRunError};
pub use shutdown::{Shutdown, ShutdownReport};
pub use signal::{LimitError, SignalError};
pub use submit::{Submit, SubmitError};
pub use tidegate_core::audit::{RULES, Repair, Rule, Stray};
pub use tidegate_core::explain::{Full, Slots, Why};
pub use tidegate_core::lifecycle::{CancelledBy, Kind, Reason, WorkerId};
pub use tidegate_core::limit::{Holder, InvalidLimit, LimitKey, LimitState, Rate};
pub use tidegate_core::load::{
    MachineLoad, Pressure, ProcessLoad, Reached, Resource, Sample, StartBelow,
};
pub use tidegate_core::store::{
    Counts, Finding, Happened, Record, RunKey, RunSummary, RunsPage, Scope, TaskKey, Unserved,
    WhyUnserved, WorkerView,
};

use self::workflows::Workflows;
use crate::slot::{Numbers, SlotPool, SlotToken};
use serde::Serialize;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tidegate_core::dispatcher::{Said, Ticket};
use tidegate_core::explain::Live;
use tidegate_core::lifecycle::Fence;
use tidegate_core::store::{NewRun, Operation, OperationOutcome, Store, StoreError, Submitted};
use tidegate_core::{RunId, Timestamp};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// Runs workflows on slots, durably. Clones share everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::{Context, Engine, Task, TaskError, Workflow};
///
/// async fn double(context: &mut Context<u64>) -> Result<u64, TaskError> {
///     Ok(context.input() * 2)
/// }
///
/// let engine = Engine::builder("memory:")
///     .slots(4)
///     .workflow(Workflow::of(Task::new("double", double))?)
///     .start()
///     .await?;
/// let run = engine.submit("double", 21).await?;
/// assert_eq!(run.wait().await?.output::<u64>("double")?, 42);
/// # engine.shutdown(std::time::Duration::from_secs(1)).await;
/// # Ok(())
/// # }
/// ```
///
/// # After a crash
/// An acknowledged submit survives any crash. A task's body is entered at least once and its end is
/// recorded exactly once. After a crash or a hand-back, everything outside stored steps may run
/// again; the task's execution id is the same on every entry and serves as idempotency key towards
/// the outside.
///
/// Dropping the last clone is not shutting down: the worker goes on until its runtime ends, which
/// counts as a crash.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What the handles, the loop and the entries share.
pub(crate) struct Shared {
    store: Arc<dyn Store>,
    files: StoreFiles,
    pool: SlotPool,
    workflows: Workflows,
    queue: Arc<str>,
    /// Whether it runs tasks.
    serves: bool,
    inbox: mpsc::UnboundedSender<Message>,
    reports: mpsc::UnboundedSender<Report>,
    events: broadcast::Sender<Event>,
    metrics: metrics::Gauges,
    board: monitor::Board,
    missed: Arc<event::AllMissed>,
    /// How many slots there may be.
    slots: RangeInclusive<u32>,
    closing: watch::Sender<shutdown::Stage>,
    health: watch::Sender<EngineHealth>,
    clock: EngineClock,
    /// After so long a wait of a parkable task becomes a row.
    park_after: Duration,
    /// So many runs of a queue may wait.
    waiting_max: Option<u32>,
    /// So many runs may be above one that a task begins.
    child_depth_max: u32,
    /// Where commands leave their logs.
    logs: Option<PathBuf>,
    /// Of the slots of commands.
    numbers: Arc<Numbers>,
    /// The commands that run here.
    #[cfg(unix)]
    running: crate::process::Running,
    /// Fails when nobody prunes in the background any more.
    prunes: watch::Receiver<()>,
    watch: Watch,
}

/// How a worker learns of what nobody in its process has told it.
#[derive(Debug, Clone, Copy)]
struct Watch {
    /// How often it looks: dead workers are looked for, and the net under all wake-ups is drawn in.
    every: Duration,
    /// Whether it hears at once of what others do.
    hears: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Watch { every: Duration::from_secs(1), hears: true }
    }
}

/// What a task says: which, by which right, and what. One that has failed hands its slot in with it.
type Report = (TaskKey, Fence, Said, Option<SlotToken>);

/// What the loop is told by others than tasks.
#[expect(clippy::large_enum_variant, reason = "submits are what most of them are")]
enum Message {
    Submit(NewRun, Option<Arc<run::Cell>>, oneshot::Sender<Result<Submitted, SubmitError>>),
    Operation(Operation, oneshot::Sender<Result<OperationOutcome, StoreError>>),
    Watch(RunId, Arc<run::Cell>, oneshot::Sender<()>),
    Explain(TaskKey, oneshot::Sender<Live>),
    /// These marks are reached, because of which nothing new is to start; there may be more slots.
    Load(Vec<Reached>),
    Close(Shutdown),
    /// What still computes is dropped at once.
    CloseNow,
    /// Nothing; but whoever hears it can look at the clock.
    Pulse,
}

impl Engine {
    /// Begins an engine on the store at this address: `"sqlite:jobs.db"` for a file (made if it does
    /// not exist), `"postgres://ada@db.example/jobs"` for a database (feature `postgres`), `"memory:"` for
    /// one that is gone with the process.
    pub fn builder(store: impl Into<String>) -> EngineBuilder {
        EngineBuilder::new(store.into())
    }

    /// Submits a run of a workflow. Nothing happens until it is awaited; then it returns once the
    /// run survives any crash.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the run was submitted; with a
    /// [`key`](Submit::key) it can be submitted again.
    pub fn submit(&self, workflow: impl Into<String>, input: impl Serialize) -> Submit {
        Submit::new(self.clone(), workflow.into(), submit::encode(&input))
    }

    /// Submits many runs of a workflow; returns once all of them survive any crash, in order.
    ///
    /// # Errors
    /// The first that goes wrong; others may have been submitted.
    pub async fn submit_many<T: Serialize>(
        &self,
        workflow: &str,
        inputs: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Run>, SubmitError> {
        let mut waiting = Vec::new();
        for input in inputs {
            waiting.push(self.submit(workflow, input).begin()?);
        }
        let mut runs = Vec::with_capacity(waiting.len());
        for submitted in waiting {
            runs.push(submitted.await?);
        }
        Ok(runs)
    }

    /// Submits a new run that takes over what has succeeded in an old one and does the rest: see
    /// [`Retry`]. The old run has ended and stays as it is. Nothing happens until it is awaited; then
    /// it returns once the new run survives any crash.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the run was submitted; with a [`key`](Retry::key) it
    /// can be submitted again.
    pub fn retry(&self, run: RunId) -> Retry {
        Retry::new(self.clone(), run)
    }

    /// A run by its id.
    ///
    /// # Errors
    /// There is no such run, or the store cannot be read.
    pub async fn run(&self, id: RunId) -> Result<Run, RunError> {
        let view = self.shared.store.run(id).await?;
        view.ok_or(RunError::Unknown(id))?;
        Ok(Run::new(self.clone(), id, None, false))
    }

    /// Runs from new to old.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn runs(&self, page: RunsPage) -> Result<Vec<RunSummary>, StoreError> {
        self.shared.store.runs(page).await
    }

    /// Nothing of the queue starts until it is [unpaused](Self::unpause_queue); what has begun goes
    /// on. This is stored. False if it was paused already.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn pause_queue(&self, queue: impl Into<String>) -> Result<bool, StoreError> {
        self.ask(Operation::Pause(Scope::Queue(queue.into()))).await
    }

    /// The queue goes on. False if it was not paused.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn unpause_queue(&self, queue: impl Into<String>) -> Result<bool, StoreError> {
        self.ask(Operation::Unpause(Scope::Queue(queue.into()))).await
    }

    /// Nothing starts on any worker until the store is [unpaused](Self::unpause); what has begun
    /// goes on. This is stored. False if it was paused already.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn pause(&self) -> Result<bool, StoreError> {
        self.ask(Operation::Pause(Scope::Store)).await
    }

    /// The store goes on. False if it was not paused.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn unpause(&self) -> Result<bool, StoreError> {
        self.ask(Operation::Unpause(Scope::Store)).await
    }

    /// Hears what happens from now on. The engine never waits for a subscriber: one that is more
    /// than 1,000 events behind learns how many it missed, and can read the store.
    pub fn subscribe(&self) -> Subscription {
        let shared = &self.shared;
        let (events, closing) = (shared.events.subscribe(), shared.closing.subscribe());
        Subscription::new(events, closing, shared.missed.clone())
    }

    /// How things stand. See [`Metrics`] for what each number means.
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics.read(&self.shared)
    }

    /// How many tasks of the store stand where: the depth of its queues.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        self.shared.store.counts().await
    }

    /// Tasks that are ready, or will be when they are due, and that no living worker can run,
    /// because none serves their queue, knows them or has slots enough. A run that was begun by one
    /// version of a program goes on under the next as far as its tasks are known: these are the rest.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn unserved(&self) -> Result<Vec<Unserved>, StoreError> {
        self.shared.store.unserved().await
    }

    /// All workers of the store, this engine's own among them: who works, who only looks, and who has
    /// died and was not taken over from so far.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.shared.store.workers().await
    }

    /// The slots it runs tasks on.
    pub fn slots(&self) -> &SlotPool {
        &self.shared.pool
    }

    /// The store, for what has no method here.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Stops the worker in good order and says what became of its tasks.
    ///
    /// Nothing new begins, submits are refused, and what has not begun or waits is handed back at
    /// once. What computes has `grace` to end; then it is [told](crate::TaskHandle::cancelled), and
    /// five seconds later dropped and handed back. Nothing is marked failed because a process
    /// stopped. A second call is harmless and returns the same report. With a [`Shutdown`] instead of
    /// the grace, what waits and goes on soon enough may end too.
    ///
    /// It returns at the latest ten seconds after the grace, also if the store fails, does not answer,
    /// or a body cannot be stopped. The report then [names](ShutdownReport::unstored) the tasks whose
    /// ends are not known to be stored. The store still counts them as this worker's, and the worker as
    /// alive until the process ends or the last [`Engine`] and [`Run`] of it are dropped; then another
    /// worker takes them over.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the worker goes on stopping.
    pub async fn shutdown(&self, how: impl Into<Shutdown>) -> ShutdownReport {
        // The loop may have gone with its runtime; then there is nothing to wait for.
        let _ = self.shared.inbox.send(Message::Close(how.into()));
        let report = shutdown::report(self.shared.closing.subscribe()).await;
        retention::over(self.shared.prunes.clone()).await;
        report
    }

    /// Waits until the process is asked to end (SIGINT, SIGTERM or SIGHUP; Ctrl-C elsewhere than on
    /// Unix), then [shuts down](Self::shutdown). When it is asked a second time, what still computes is
    /// dropped and handed back at once.
    ///
    /// An engine does nothing about such signals by itself: they belong to the application. This is for
    /// those that want the usual.
    ///
    /// ```no_run
    /// # async fn example(engine: tidegate::Engine) -> std::io::Result<()> {
    /// let report = engine.shutdown_on_signal(std::time::Duration::from_secs(30)).await?;
    /// println!("{} tasks go on with the next start", report.handed_back.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future leaves what was begun to go on; further signals are passed over.
    ///
    /// # Errors
    /// The signals cannot be listened to.
    pub async fn shutdown_on_signal(&self, how: impl Into<Shutdown>) -> io::Result<ShutdownReport> {
        let mut asked = shutdown::Asked::listen()?;
        asked.recv().await;
        let stopping = self.shutdown(how);
        let (mut stopping, mut again) = (pin!(stopping), pin!(asked.recv()));
        let stopped = poll_fn(|cx| match stopping.as_mut().poll(cx) {
            Poll::Ready(report) => Poll::Ready(Some(report)),
            Poll::Pending => again.as_mut().poll(cx).map(|()| None),
        });
        if let Some(report) = stopped.await {
            return Ok(report);
        }
        Ok(self.shutdown_now().await)
    }

    /// [Shuts down](Self::shutdown) without any grace: what computes is dropped and handed back at once,
    /// also while another shutdown gives it time. Commands are killed. It returns within five seconds,
    /// whatever the store does.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the worker goes on stopping.
    pub async fn shutdown_now(&self) -> ShutdownReport {
        // The loop may have gone with its runtime; then there is nothing to hurry.
        let _ = self.shared.inbox.send(Message::CloseNow);
        self.shutdown(Duration::ZERO).await
    }

    /// Returns when the engine shuts down or has.
    pub async fn closing(&self) {
        shutdown::begun(self.shared.closing.subscribe()).await;
    }

    async fn ask(&self, operation: Operation) -> Result<bool, StoreError> {
        self.shared.ask(operation).await.map(|granted| granted == OperationOutcome::Yes)
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        self.clock.read_time()
    }

    async fn ask(&self, operation: Operation) -> Result<OperationOutcome, StoreError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Message::Operation(operation, reply));
        sent.map_err(|_| StoreError::Failed(Arc::new(Gone)))?;
        answer.await.unwrap_or_else(|_| Err(StoreError::Unknown(Arc::new(Gone))))
    }

    fn publish(&self, event: impl FnOnce() -> Event) {
        if self.events.receiver_count() > 0 {
            // Nobody hears it if the last has just left.
            let _ = self.events.send(event());
        }
    }
}

/// The loop is gone: it was shut down, or its runtime ended.
#[derive(Debug)]
struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the engine has stopped")
    }
}

impl std::error::Error for Gone {}

/// Numbers for those who wait for an answer.
#[derive(Debug, Default)]
struct Tickets(u64);

impl Tickets {
    fn next(&mut self) -> Ticket {
        self.0 += 1;
        Ticket(self.0)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workflows: Vec<&String> = self.shared.workflows.given.keys().collect();
        f.debug_struct("Engine")
            .field("store", &self.shared.store)
            .field("slots", &self.shared.pool)
            .field("workflows", &workflows)
            .finish_non_exhaustive()
    }
}
