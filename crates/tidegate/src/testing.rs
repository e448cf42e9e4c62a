//! For the tests of an application: its tasks and workflows, run in memory and looked at.
//!
//! - [`engine`]: an engine in memory whose clock is the runtime's. In a test with
//!   `#[tokio::test(start_paused = true)]` an hour's wait takes no time, and time-outs, back-offs and
//!   start times come when they should.
//! - [`EngineBuilder::trial`]: runs one workflow to its end and says what happened.
//! - [`run`]: the same for a single task.
//! - [`context`] and [`handle`]: what a task is given, to call its function directly.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{Context, Task, TaskError, TaskHandle, testing};
//!
//! async fn remind(context: &mut Context<String>, handle: &TaskHandle) -> Result<String, TaskError> {
//!     handle.sleep(Duration::from_secs(3_600)).await?;
//!     Ok(format!("time for {}", context.input()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::time::pause();
//! // As a workflow of one task, on time that is paused.
//! let report = testing::run(Task::new("remind", remind), "tea").await?;
//! assert_eq!(report.output::<String>("remind")?, "time for tea");
//! assert_eq!(report.took.as_secs(), 3_600);
//!
//! // As the function it is.
//! let said = remind(&mut testing::context("tea").build()?, &testing::handle()).await;
//! assert_eq!(said.map_err(|e| e.to_string())?, "time for tea");
//! # Ok(())
//! # }
//! ```

use crate::context::{Around, Context, ContextError, States};
use crate::engine::{Engine, EngineBuilder, Record, RunStatus, StartError, SubmitError};
use crate::engine::{RunError, WaitRunError};
use crate::handle::TaskHandle;
use crate::slot::SlotPool;
use crate::task::Task;
use crate::workflow::{Workflow, WorkflowError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::graph::{Graph, Node, OnFailure, TaskIndex};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{Bytes, Given};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Begins an engine in memory whose clock is the runtime's: where that is paused, so is it. It
/// begins at the start of the year 2024, always the same.
pub fn engine() -> EngineBuilder {
    const YEAR_2024: i64 = 1_704_067_200_000_000;
    let begun = Instant::now();
    Engine::builder("memory:").clock(move || Timestamp::from_micros(YEAR_2024) + begun.elapsed())
}

/// Runs a single task to its end, in an engine of its own.
///
/// # Errors
/// The task's options make no sense, or the input cannot be written as JSON. That the task fails is
/// no error: see [`Report`].
pub async fn run(task: Task, input: impl Serialize) -> Result<Report, TrialError> {
    let workflow = Workflow::of(task).map_err(TrialError::Workflow)?;
    let name = workflow.name().to_owned();
    engine().workflow(workflow).trial(name, input).await
}

impl EngineBuilder {
    /// Starts the engine, runs this workflow to its end, shuts the engine down and says what
    /// happened.
    ///
    /// ```
    /// # use tidegate::{Context, Task, TaskError, Workflow, testing};
    /// # async fn extract(_: &mut Context) -> Result<u64, TaskError> { Ok(3) }
    /// # async fn load(context: &mut Context) -> Result<u64, TaskError> {
    /// #     Ok(context.output::<u64>("extract")? * *context.state::<u64>()?)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let etl = Workflow::builder("etl")
    ///     .task(Task::new("extract", extract))
    ///     .task(Task::new("load", load).after(["extract"]))
    ///     .build()?;
    /// let report = testing::engine().state(14_u64).workflow(etl).trial("etl", ()).await?;
    /// assert_eq!(report.output::<u64>("load")?, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine does not start, or the run cannot be submitted. That a task fails is no error.
    pub async fn trial(
        self,
        workflow: impl Into<String>,
        input: impl Serialize,
    ) -> Result<Report, TrialError> {
        let engine = self.start().await.map_err(TrialError::Start)?;
        let begun = Instant::now();
        let run = engine.submit(workflow, input).await.map_err(TrialError::Submit)?;
        let status = run.wait().await.map_err(TrialError::Wait)?;
        let took = begun.elapsed();
        let records = run.events().await.map_err(TrialError::Look)?;
        engine.shutdown(Duration::ZERO).await;
        Ok(Report { status, records, took })
    }
}

/// What a run came to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// How the run and its tasks ended; its methods are the report's too.
    pub status: RunStatus,
    /// The end of each entry and of each task, in order.
    pub records: Vec<Record>,
    /// From the submit to the end, on the runtime's clock.
    pub took: Duration,
}

impl Deref for Report {
    type Target = RunStatus;

    fn deref(&self) -> &RunStatus {
        &self.status
    }
}

/// Why there was nothing to look at.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrialError {
    /// The task or workflow makes no sense.
    Workflow(WorkflowError),
    /// The engine did not start.
    Start(StartError),
    /// The run was not submitted.
    Submit(SubmitError),
    /// The run's end was not seen.
    Wait(WaitRunError),
    /// The run could not be looked at.
    Look(RunError),
}

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrialError::Workflow(error) => error.fmt(f),
            TrialError::Start(error) => error.fmt(f),
            TrialError::Submit(error) => error.fmt(f),
            TrialError::Wait(error) => error.fmt(f),
            TrialError::Look(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TrialError {}

/// A handle with a slot of its own, to call a task's function with.
///
/// # Panics
/// Outside a tokio runtime.
pub fn handle() -> TaskHandle {
    handle_to_cancel(CancellationToken::new())
}

/// The same, told to stop by this token.
///
/// # Panics
/// Outside a tokio runtime.
pub fn handle_to_cancel(token: CancellationToken) -> TaskHandle {
    let slot = SlotPool::new(1).ok().and_then(|pool| pool.try_acquire(1).ok());
    TaskHandle::alone(slot.expect("a new pool has a free slot"), token)
}

/// Begins a context for a task whose run has this input, to call its function with.
pub fn context(input: impl Serialize) -> ContextBuilder {
    ContextBuilder {
        input: serde_json::to_value(input).map_err(ContextError::new),
        above: BTreeMap::new(),
        item: None,
        states: States::default(),
    }
}

/// Makes a [`Context`].
#[must_use = "a context is made by build()"]
pub struct ContextBuilder {
    input: Result<Value, ContextError>,
    /// What each task above has returned and inserted.
    above: BTreeMap<String, Above>,
    item: Option<(u32, Result<Value, ContextError>)>,
    states: States,
}

#[derive(Default)]
struct Above {
    output: Option<Result<Value, ContextError>>,
    inserts: Map<String, Value>,
    wrong: Option<ContextError>,
}

impl ContextBuilder {
    /// The task depends on one of this name, which has returned this.
    pub fn output(mut self, task: impl Into<String>, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).map_err(ContextError::new);
        self.above.entry(task.into()).or_default().output = Some(value);
        self
    }

    /// The task depends on one of this name, which has put this into the context.
    pub fn insert(
        mut self,
        task: impl Into<String>,
        key: impl Into<String>,
        value: impl Serialize,
    ) -> Self {
        let above = self.above.entry(task.into()).or_default();
        match serde_json::to_value(value) {
            Ok(value) => drop(above.inserts.insert(key.into(), value)),
            Err(error) => above.wrong = Some(ContextError::new(error)),
        }
        self
    }

    /// The task is done for items, and this is the one of this number.
    pub fn item(mut self, number: u32, value: impl Serialize) -> Self {
        self.item = Some((number, serde_json::to_value(value).map_err(ContextError::new)));
        self
    }

    /// A value of the application's.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        let state: Arc<dyn Any + Send + Sync> = Arc::new(state);
        self.states.insert(TypeId::of::<T>(), state);
        self
    }

    /// The context.
    ///
    /// # Errors
    /// The input is no `I`, or a value cannot be written as JSON.
    pub fn build<I: DeserializeOwned>(self) -> Result<Context<I>, ContextError> {
        let bytes = |value: &Value| Bytes::from(value.to_string().into_bytes());
        let own = Node::new("the task under test").after(self.above.keys().cloned());
        let nodes = self.above.keys().map(Node::new).chain([own]);
        let graph = Graph::new(nodes).map_err(ContextError::new)?;
        let (mut outputs, mut inserts) = (Vec::new(), Vec::new());
        for ((_, above), number) in self.above.into_iter().zip(0..) {
            let task = TaskIndex::from_u32(number);
            above.wrong.map_or(Ok(()), Err)?;
            let output = above.output.transpose()?;
            outputs.extend(output.map(|output| (task, bytes(&output))));
            if !above.inserts.is_empty() {
                inserts.push((task, bytes(&Value::Object(above.inserts))));
            }
        }
        let (number, item) = self.item.unzip();
        let tasks = vec![TaskPlan::default(); graph.task_count()];
        let last = graph.task_count() - 1;
        let task = TaskIndex::from_u32(u32::try_from(last).map_err(ContextError::new)?);
        let plan = Arc::new(Plan::new("a test", graph, OnFailure::default(), tasks));
        let input = Some(bytes(&self.input?));
        let item = item.transpose()?.as_ref().map(bytes);
        let given = Given { plan, task, input, outputs, absent: Vec::new(), inserts, item };
        let (number, states) = (number.unwrap_or(0), Arc::new(self.states));
        Context::new(Around { given, number, states })
    }
}

impl fmt::Debug for ContextBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextBuilder").field("input", &self.input).finish_non_exhaustive()
    }
}
