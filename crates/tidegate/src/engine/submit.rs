//! Submitting a run.

use super::run::{Cell, Run};
use super::{Engine, Message, Shared, keys, shutdown};
use crate::context::{JSON_DEPTH_MAX, PAYLOAD_MAX, json_depth};
use crate::workflow::Workflow;
use serde::Serialize;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use tidegate_core::graph::nearest;
use tidegate_core::store::{Bytes, NewRun, Refusal, StoreError};
use tidegate_core::{RunId, Timestamp, dispatcher};
use tokio::sync::oneshot;

/// A run that is being submitted. Made by [`Engine::submit`]; awaiting it submits it.
#[derive(Debug)]
#[must_use = "nothing is submitted until it is awaited"]
pub struct Submit {
    engine: Engine,
    workflow: String,
    input: Result<Option<Bytes>, SubmitError>,
    key: Option<String>,
    priority: i32,
    not_before: Option<Timestamp>,
    queue: Option<Arc<str>>,
}

/// Why a run was not submitted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SubmitError {
    /// The engine knows no such workflow.
    UnknownWorkflow {
        /// What was asked for.
        workflow: String,
        /// The most similar one it knows.
        nearest: Option<String>,
    },
    /// The input cannot be written as JSON.
    Input(Arc<serde_json::Error>),
    /// A limit counts for each key by itself, and the input has none for it.
    LimitKey {
        /// The task that uses it.
        task: String,
        /// The limit.
        limit: String,
        /// Where the key is looked for.
        path: String,
        /// What is there.
        found: &'static str,
    },
    /// The input is too large.
    TooLarge {
        /// Its size in bytes of JSON.
        size: usize,
    },
    /// The input has more lists and maps inside one another than can be read again.
    TooDeep {
        /// How many.
        depth: usize,
    },
    /// The workflow has no task of this name, which was to run again.
    UnknownTask {
        /// What was asked for.
        task: String,
        /// The workflow.
        workflow: String,
        /// The most similar one there is.
        nearest: Option<String>,
    },
    /// The store refused it.
    Refused(Refusal),
    /// The store failed. Unless the error says that the outcome is unknown, nothing was submitted.
    Store(StoreError),
    /// The engine shuts down or has.
    Closed,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::UnknownWorkflow { workflow, nearest } => {
                write!(f, "no workflow \"{workflow}\" was given to this engine")?;
                match nearest {
                    Some(nearest) => write!(f, "; is \"{nearest}\" meant?"),
                    None => Ok(()),
                }
            }
            SubmitError::Input(error) => write!(f, "the input cannot be written as JSON: {error}"),
            SubmitError::LimitKey { task, limit, path, found } => write!(
                f,
                "task \"{task}\" uses limit \"{limit}\" by \"{path}\" of the input, where there is \
                 {found}; there must be a text, a number or a truth value"
            ),
            SubmitError::TooLarge { size } => {
                write!(f, "the input is {size} bytes of JSON; at most {PAYLOAD_MAX} are stored")
            }
            SubmitError::TooDeep { depth } => {
                write!(
                    f,
                    "the input is {depth} levels of JSON; at most {JSON_DEPTH_MAX} are stored"
                )
            }
            SubmitError::UnknownTask { task, workflow, nearest } => {
                write!(f, "workflow \"{workflow}\" has no task \"{task}\"")?;
                match nearest {
                    Some(nearest) => write!(f, "; is \"{nearest}\" meant?"),
                    None => Ok(()),
                }
            }
            SubmitError::Refused(refusal) => refusal.fmt(f),
            SubmitError::Store(error) => error.fmt(f),
            SubmitError::Closed => f.write_str("the engine has shut down"),
        }
    }
}

impl std::error::Error for SubmitError {}

impl From<dispatcher::SubmitError> for SubmitError {
    fn from(error: dispatcher::SubmitError) -> Self {
        match error {
            dispatcher::SubmitError::Refused(refusal) => SubmitError::Refused(refusal),
            dispatcher::SubmitError::Store(error) => SubmitError::Store(error),
            other => unreachable!("{other:?} is none of the ways a submit comes to nothing"),
        }
    }
}

/// The input as it is stored; nothing stands for `null`.
pub(super) fn encode(input: &impl Serialize) -> Result<Option<Bytes>, SubmitError> {
    let bytes = serde_json::to_vec(input).map_err(|error| SubmitError::Input(Arc::new(error)))?;
    let (size, depth) = (bytes.len(), json_depth(&bytes));
    match bytes {
        _ if size > PAYLOAD_MAX => Err(SubmitError::TooLarge { size }),
        _ if depth > JSON_DEPTH_MAX => Err(SubmitError::TooDeep { depth }),
        bytes => Ok((bytes != b"null").then(|| bytes.into())),
    }
}

impl Submit {
    pub(super) fn new(
        engine: Engine,
        workflow: String,
        input: Result<Option<Bytes>, SubmitError>,
    ) -> Self {
        let (key, priority, not_before, queue) = (None, 0, None, None);
        Submit { engine, workflow, input, key, priority, not_before, queue }
    }

    /// An idempotency key, unique for the queue and the workflow: if a run has it already, that run
    /// is returned ([`Run::existed`]); with another input the submit is refused.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// A head start in seconds over runs submitted at the same time.
    pub fn priority(mut self, seconds: i32) -> Self {
        self.priority = seconds;
        self
    }

    /// Nothing of the run starts before.
    pub fn not_before(mut self, instant: impl Into<Timestamp>) -> Self {
        self.not_before = Some(instant.into());
        self
    }

    /// The queue under which it is handed out, instead of the engine's first.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Hands it to the loop; the future waits for the answer.
    pub(super) fn begin(self) -> Result<Begun, SubmitError> {
        let shared = &self.engine.shared;
        let workflow = find(shared, &self.workflow)?;
        let input = self.input?;
        let run = NewRun {
            keys: keys::of_run(&workflow.plan, input.as_deref())?,
            priority: self.priority,
            key: self.key,
            not_before: self.not_before,
            input,
            ..NewRun::new(
                RunId::new(shared.now(), fastrand::u128(..)),
                workflow.plan.clone(),
                self.queue.unwrap_or_else(|| shared.queue.clone()),
            )
        };
        Begun::new(self.engine.clone(), run)
    }
}

/// A workflow that the engine knows.
pub(super) fn find<'s>(shared: &'s Shared, name: &str) -> Result<&'s Workflow, SubmitError> {
    shared.workflows.given.get(name).ok_or_else(|| {
        let known = shared.workflows.given.keys().map(String::as_str);
        let nearest = nearest(name, known).map(str::to_owned);
        SubmitError::UnknownWorkflow { workflow: name.to_owned(), nearest }
    })
}

/// A run whose submit is under way.
pub(super) struct Begun {
    engine: Engine,
    cell: Arc<Cell>,
    answer: oneshot::Receiver<Result<tidegate_core::store::Submitted, SubmitError>>,
}

impl Begun {
    /// Hands a run to the loop.
    pub(super) fn new(engine: Engine, run: NewRun) -> Result<Self, SubmitError> {
        let shared = &engine.shared;
        if shutdown::has_begun(&shared.closing) {
            return Err(SubmitError::Closed);
        }
        let (reply, answer) = oneshot::channel();
        let cell = Arc::new(Cell::of(run.retry_of.as_ref().map(|retry| retry.run)));
        let message = Message::Submit(run, Some(cell.clone()), reply);
        shared.inbox.send(message).map_err(|_| SubmitError::Closed)?;
        Ok(Begun { engine, cell, answer })
    }
}

impl IntoFuture for Begun {
    type Output = Result<Run, SubmitError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let submitted = self.answer.await.map_err(|_| SubmitError::Closed)??;
            // One that existed may have ended before anybody here was told.
            let cell = (!submitted.existing).then_some(self.cell);
            Ok(Run::new(self.engine, submitted.id, cell, submitted.existing))
        })
    }
}

impl IntoFuture for Submit {
    type Output = Result<Run, SubmitError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.begin()?.await })
    }
}
