//! A run, from outside: its end, its status, its cancelling.

use super::{Engine, Message, Retry, SignalError};
use crate::sync::{Mutex, lock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::type_name;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use tidegate_core::graph::{RunOutcome, TaskIndex};
use tidegate_core::lifecycle::{Kind, Life, Reason, State};
use tidegate_core::plan::Plan;
use tidegate_core::rows::Payload;
use tidegate_core::store::{
    Bytes, Happened, Operation, OperationOutcome, Record, RunView, Scope, StoreError, TaskKey,
};
use tidegate_core::{RunId, Timestamp};
use tokio::sync::{Notify, oneshot};

/// One execution of a workflow. Made by submitting one, or by [`Engine::run`]. Dropping it changes
/// nothing.
#[derive(Clone)]
pub struct Run {
    engine: Engine,
    id: RunId,
    cell: Option<Arc<Cell>>,
    existed: bool,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunState {
    /// Under way.
    Open,
    /// Nothing of it starts until it is unpaused.
    Paused {
        /// Since when.
        since: Timestamp,
    },
    /// Over.
    Ended(RunOutcome),
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunState::Open => f.pad("open"),
            RunState::Paused { .. } => f.pad("paused"),
            RunState::Ended(outcome) => outcome.fmt(f),
        }
    }
}

/// How a run and its tasks stood at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunStatus {
    /// Which run.
    pub id: RunId,
    /// Of which workflow.
    pub workflow: String,
    /// The run that it is a [retry](Engine::retry) of. It may be gone.
    pub retry_of: Option<RunId>,
    /// Where it stands.
    pub state: RunState,
    /// Its tasks, in the order of the workflow.
    pub tasks: Vec<TaskState>,
    /// Whether it has what its tasks returned.
    has_outputs: bool,
}

/// How a task stood at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TaskState {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub kind: Kind,
    /// Why it ended, if not by success.
    pub reason: Option<Reason>,
    /// The present attempt, or the last one.
    pub attempt: u32,
    /// How often it was begun. Each time its body was entered, unless its worker stopped in that very
    /// moment.
    pub entries: u32,
    /// Whether it had succeeded in the run that its own is a [retry](Engine::retry) of, and was not
    /// run again.
    pub taken_over: bool,
    /// What it waits for, in words, and since when.
    pub waits_for: Option<(String, Timestamp)>,
    /// What went wrong last, or why it was skipped, in words.
    pub error: Option<String>,
    output: Option<Bytes>,
}

/// Why a run could not be looked at.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RunError {
    /// There is no such run.
    Unknown(RunId),
    /// The store cannot be used.
    Store(StoreError),
    /// What a task returned cannot be had.
    Output(OutputError),
    /// The workflow has no such task.
    NoTask {
        /// What was asked for.
        task: String,
        /// The workflow.
        workflow: String,
        /// The most similar one there is.
        nearest: Option<String>,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Unknown(id) => write!(f, "there is no run {id} in this store"),
            RunError::Store(error) => error.fmt(f),
            RunError::Output(error) => error.fmt(f),
            RunError::NoTask { task, workflow, nearest } => {
                write!(f, "workflow \"{workflow}\" has no task \"{task}\"")?;
                match nearest {
                    Some(nearest) => write!(f, "; is \"{nearest}\" meant?"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for RunError {}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        RunError::Store(error)
    }
}

/// Why what a task returned cannot be had.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OutputError {
    /// The workflow has no such task.
    NoTask {
        /// What was asked for.
        task: String,
        /// The workflow.
        workflow: String,
    },
    /// The task has not succeeded.
    NotSucceeded {
        /// The task.
        task: String,
        /// Where it stands.
        kind: Kind,
        /// What went wrong, in words.
        error: Option<String>,
    },
    /// It was not asked for: [`Run::status`] leaves out what tasks returned.
    NotLoaded {
        /// The task.
        task: String,
    },
    /// What it returned is of another type.
    Unreadable {
        /// The task.
        task: String,
        /// What was asked for.
        wanted: &'static str,
        /// What does not fit.
        error: Arc<serde_json::Error>,
    },
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputError::NoTask { task, workflow } => {
                write!(f, "workflow \"{workflow}\" has no task \"{task}\"")
            }
            OutputError::NotSucceeded { task, kind, error: None } => {
                write!(f, "task \"{task}\" is {kind}")
            }
            OutputError::NotSucceeded { task, kind, error: Some(error) } => {
                write!(f, "task \"{task}\" is {kind}: {error}")
            }
            OutputError::NotLoaded { task } => write!(
                f,
                "status() leaves out what tasks returned; wait() and Run::output() have what \
                 \"{task}\" did"
            ),
            OutputError::Unreadable { task, wanted, error } => {
                write!(f, "what \"{task}\" returned cannot be read as {wanted}: {error}")
            }
        }
    }
}

impl std::error::Error for OutputError {}

/// Why the end of a run was not seen.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WaitRunError {
    /// The engine has stopped; the run goes on when the next one takes it.
    Closed,
    /// The run could not be looked at.
    Run(RunError),
}

impl fmt::Display for WaitRunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitRunError::Closed => {
                f.write_str("the engine has stopped; the run goes on when the next one takes it")
            }
            WaitRunError::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WaitRunError {}

impl<E: Into<RunError>> From<E> for WaitRunError {
    fn from(error: E) -> Self {
        WaitRunError::Run(error.into())
    }
}

impl Run {
    pub(super) fn new(engine: Engine, id: RunId, cell: Option<Arc<Cell>>, existed: bool) -> Self {
        Run { engine, id, cell, existed }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Its id.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Whether its submit found a run with the same idempotency key.
    pub fn existed(&self) -> bool {
        self.existed
    }

    /// Waits until the run has ended and its end is stored.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; it can be waited for again.
    ///
    /// # Errors
    /// The engine stops, the store cannot be read, or the run was pruned before anybody here has seen
    /// its end. How the run ended is no error: see [`RunStatus`].
    pub async fn wait(&self) -> Result<RunStatus, WaitRunError> {
        let shared = &self.engine.shared;
        let cell = match &self.cell {
            Some(cell) => cell.clone(),
            None => {
                let cell = Arc::new(Cell::new());
                let (heard, watched) = oneshot::channel();
                // Without the loop there is still what is stored.
                let _ = shared.inbox.send(Message::Watch(self.id, cell.clone(), heard));
                // Watched first: an end between the look and the watch would be missed.
                let watched = watched.await.is_ok();
                let view = self.view().await?;
                cell.retries(view.run.retry_of);
                if view.run.ended.is_some() {
                    return Ok(self.with_outputs(view).await?);
                }
                if !watched {
                    return Err(WaitRunError::Closed);
                }
                cell
            }
        };
        let seen = match cell.ended().await {
            Over::Closed => return Err(WaitRunError::Closed),
            Over::Ended(outcome) => cell.status(self.id, outcome),
            Over::Gone => None,
        };
        match seen {
            Some(status) => Ok(status),
            None => Ok(self.with_outputs(self.view().await?).await?),
        }
    }

    /// How it and its tasks stand, without what they returned.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn status(&self) -> Result<RunStatus, RunError> {
        Ok(RunStatus::new(self.view().await?))
    }

    /// What a task returned, while the run goes on or after.
    ///
    /// # Errors
    /// The store cannot be read; there is no such task, it has not succeeded, or what it returned is
    /// no `T`.
    pub async fn output<T: DeserializeOwned>(&self, task: &str) -> Result<T, RunError> {
        let view = self.view().await?;
        let at = view.run.plan.graph().find(task);
        let key = at.and_then(|at| view.tasks.get(at.as_usize())).map(|task| task.key);
        let mut status = RunStatus::new(view);
        if let (Some(at), Some(key)) = (at, key) {
            let outputs = self.engine.shared.store.payloads(key, 1, Payload::Output).await?;
            status.tasks[at.as_usize()].output =
                outputs.into_iter().next().map(|(_, output)| output);
        }
        status.has_outputs = true;
        status.output(task).map_err(RunError::Output)
    }

    /// Cancels the run and all its tasks, clean-up too. Once this returns, it is over in the store
    /// and stays so; bodies that still compute are dropped at their next await. False if it had
    /// ended before.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn cancel(&self) -> Result<bool, RunError> {
        self.ask(Operation::Cancel(self.id)).await
    }

    /// Nothing of it starts until it is [unpaused](Self::unpause); what has begun goes on. This is
    /// stored. False if it was paused already or has ended.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn pause(&self) -> Result<bool, RunError> {
        self.ask(Operation::Pause(Scope::Run(self.id))).await
    }

    /// It goes on. False if it was not paused.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn unpause(&self) -> Result<bool, RunError> {
        self.ask(Operation::Unpause(Scope::Run(self.id))).await
    }

    /// What was recorded of it, in order: a row for each end of a task and of an entry.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn events(&self) -> Result<Vec<Record>, RunError> {
        let key = self.view().await?.run.key;
        Ok(self.engine.shared.store.records(Some(key), 0, u32::MAX).await?)
    }

    /// Submits a new run that takes over what has succeeded in this one: see [`Engine::retry`].
    pub fn retry(&self) -> Retry {
        self.engine.retry(self.id)
    }

    async fn ask(&self, operation: Operation) -> Result<bool, RunError> {
        match self.engine.shared.ask(operation).await? {
            OperationOutcome::Yes => Ok(true),
            OperationOutcome::Already | OperationOutcome::Differs => Ok(false),
            OperationOutcome::Unknown => Err(RunError::Unknown(self.id)),
        }
    }

    /// Sends a signal to the run: a message under a name, which one task of it receives by
    /// [`wait_for_signal`](crate::TaskHandle::wait_for_signal). Once this returns, it survives any
    /// crash, also where nobody waits for it yet.
    ///
    /// # Errors
    /// The run is over or unknown; the payload is too large; the store cannot be written.
    pub async fn signal(
        &self,
        name: impl AsRef<str>,
        payload: impl Serialize,
    ) -> Result<(), SignalError> {
        self.engine.signal(self.id, name, payload).await
    }

    /// How it stands, with what its tasks returned.
    pub(super) async fn full_status(&self) -> Result<RunStatus, RunError> {
        let view = self.view().await?;
        self.with_outputs(view).await
    }

    async fn view(&self) -> Result<RunView, RunError> {
        let view = self.engine.shared.store.run(self.id).await?;
        view.ok_or(RunError::Unknown(self.id))
    }

    async fn with_outputs(&self, view: RunView) -> Result<RunStatus, RunError> {
        let (first, count) = (view.run.key.0, view.tasks.len() as u32);
        let mut status = RunStatus { has_outputs: true, ..RunStatus::new(view) };
        let outputs = self.engine.shared.store.payloads(TaskKey(first), count, Payload::Output);
        for (task, output) in outputs.await? {
            // A run has its tasks in a row.
            status.tasks[(task.0 - first) as usize].output = Some(output);
        }
        Ok(status)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).finish_non_exhaustive()
    }
}

impl RunStatus {
    fn new(view: RunView) -> Self {
        let RunView { run, tasks } = view;
        let state = match (run.ended, run.paused_at) {
            (Some((outcome, _)), _) => RunState::Ended(outcome),
            (None, Some(since)) => RunState::Paused { since },
            (None, None) => RunState::Open,
        };
        let graph = run.plan.graph();
        let tasks = graph.tasks().zip(tasks).map(|(index, task)| {
            let Life { attempt, entries, .. } = task.life;
            let (kind, taken_over) = (task.life.state.kind(), task.life.is_taken_over());
            let reason = match &task.life.state {
                State::Failed(reason) | State::TimedOut(reason) | State::Cancelled(reason) => {
                    Some(*reason)
                }
                _ => None,
            };
            let waits_for = match task.life.state {
                State::Running { activity, .. } => activity.into_wait(),
                State::Parked { since, wait, .. } => Some((wait, since)),
                _ => None,
            };
            let name = graph.name(index).to_owned();
            let (error, output) = (task.error, None);
            TaskState { name, kind, reason, attempt, entries, taken_over, waits_for, error, output }
        });
        let tasks = tasks.collect();
        let workflow = run.plan.workflow().to_owned();
        let retry_of = run.retry_of;
        RunStatus { id: run.id, workflow, retry_of, state, tasks, has_outputs: false }
    }

    /// How it ended; `None` while it has not.
    pub fn outcome(&self) -> Option<RunOutcome> {
        match self.state {
            RunState::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// One of its tasks.
    pub fn task(&self, name: &str) -> Option<&TaskState> {
        self.tasks.iter().find(|task| task.name == name)
    }

    /// What a task returned.
    ///
    /// # Errors
    /// There is no such task, it did not succeed, or what it returned is no `T`.
    pub fn output<T: DeserializeOwned>(&self, task: &str) -> Result<T, OutputError> {
        let name = || task.to_owned();
        let Some(found) = self.task(task) else {
            return Err(OutputError::NoTask { task: name(), workflow: self.workflow.clone() });
        };
        if found.kind != Kind::Succeeded {
            let (kind, error) = (found.kind, found.error.clone());
            return Err(OutputError::NotSucceeded { task: name(), kind, error });
        }
        if !self.has_outputs {
            return Err(OutputError::NotLoaded { task: name() });
        }
        // A task that returns nothing leaves nothing.
        let bytes = found.output.as_deref().unwrap_or(b"null");
        serde_json::from_slice(bytes).map_err(|error| {
            let (wanted, error) = (type_name::<T>(), Arc::new(error));
            OutputError::Unreadable { task: name(), wanted, error }
        })
    }
}

impl TaskState {
    /// What it returned, as it is stored.
    pub(super) fn output(&self) -> Option<&[u8]> {
        self.output.as_deref()
    }
}

/// What is known of a run in this process, so that its end can be waited for without asking the
/// store.
#[derive(Debug)]
pub(crate) struct Cell {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    plan: Option<Arc<Plan>>,
    retry_of: Option<RunId>,
    ends: Vec<(TaskIndex, TaskState)>,
    over: Option<Over>,
}

/// Why whoever waits for a run need not wait any more.
#[derive(Debug, Clone, Copy)]
pub(super) enum Over {
    Ended(RunOutcome),
    /// It has ended, nobody knows how: the store does not have it any more.
    Gone,
    /// Nobody will tell of it.
    Closed,
}

impl Cell {
    pub(super) fn new() -> Self {
        Cell::of(None)
    }

    /// Of a run that is a retry of this one, if it is one.
    pub(super) fn of(retry_of: Option<RunId>) -> Self {
        let inner = Inner { retry_of, ..Inner::default() };
        Cell { inner: Mutex::new(inner), changed: Notify::new() }
    }

    /// The run is a retry of this one, if it is one.
    fn retries(&self, retry_of: Option<RunId>) {
        lock(&self.inner).retry_of = retry_of;
    }

    /// A task of the run has ended.
    pub(super) fn task_ended(
        &self,
        plan: &Arc<Plan>,
        record: &Record,
        kind: Kind,
        output: Option<Bytes>,
    ) {
        let state = TaskState {
            name: plan.graph().name(record.task).to_owned(),
            kind,
            reason: record.reason.filter(|_| kind != Kind::Skipped),
            attempt: record.attempt,
            entries: record.entry,
            taken_over: record.what == Happened::TakenOver,
            waits_for: None,
            error: record.error.clone(),
            output,
        };
        let mut inner = lock(&self.inner);
        inner.plan.get_or_insert_with(|| plan.clone());
        inner.ends.push((record.task, state));
    }

    /// Nobody need wait any more. What was said first stays.
    pub(super) fn end(&self, over: Over) {
        lock(&self.inner).over.get_or_insert(over);
        self.changed.notify_waiters();
    }

    async fn ended(&self) -> Over {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(over) = lock(&self.inner).over {
                return over;
            }
            changed.await;
        }
    }

    /// The run as it ended, if all that is to be said of it happened before the eyes of this
    /// process.
    fn status(&self, id: RunId, outcome: RunOutcome) -> Option<RunStatus> {
        let inner = lock(&self.inner);
        let plan = inner.plan.as_ref().filter(|plan| plan.task_count() == inner.ends.len())?;
        // What went wrong in an attempt before the last is in the store alone, and so is what was
        // returned in another run.
        let is_in_store = |task: &TaskState| task.attempt > 1 && task.error.is_none();
        if inner.ends.iter().any(|(_, task)| task.taken_over || is_in_store(task)) {
            return None;
        }
        let mut ends = inner.ends.clone();
        ends.sort_unstable_by_key(|(task, _)| *task);
        let tasks = ends.into_iter().map(|(_, state)| state).collect();
        let workflow = plan.workflow().to_owned();
        let (state, retry_of) = (RunState::Ended(outcome), inner.retry_of);
        Some(RunStatus { id, workflow, retry_of, state, tasks, has_outputs: true })
    }
}
