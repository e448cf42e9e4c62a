//! A new run that takes over what has succeeded in an old one.
//!
//! What is taken over is decided by the store, in the transaction in which the new run begins. Here it
//! is found out what the run is to do and to work on, and, by the same comparison, what to tell of it:
//! a run that has ended does not change.

use super::run::Run;
use super::submit::{Begun, SubmitError, encode};
use super::{Engine, Kind, keys};
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;
use tidegate_core::graph::{TaskIndex, nearest};
use tidegate_core::plan::Plan;
use tidegate_core::retry::{TakenOver, compare};
use tidegate_core::store::{Bytes, NewRun, Refusal, RetryOf, RunView};
use tidegate_core::{RunId, Timestamp};

/// A run that is to take over what has succeeded in an old one. Made by [`Engine::retry`] and
/// [`Run::retry`]; awaiting it submits it.
///
/// The new run is of the workflow of that name as this engine knows it, or else as it was. It has the
/// input, the queue and the priority of the old one unless it is told otherwise. A task is taken over,
/// with what it returned and what it put into the context, if
///
/// - it has succeeded in the old run, and the input is the same;
/// - its [fingerprint](crate::Task::fingerprint), what it comes after and under which
///   [rule](crate::When) are the same;
/// - all tasks it comes after are taken over too, or are skipped as they were.
///
/// Everything else runs, under a name of its own: the [execution
/// id](crate::TaskHandle::task_execution_id) of a task is another one in the new run.
///
/// A task that is done [for each item](crate::Task::each) of a list and has not succeeded as a whole
/// runs again, but not those items that had: each item of the new list is taken over if one of the same
/// bytes had succeeded, one for one.
///
/// # Errors
/// The old run [has not ended](Refusal::NotEnded), [is not there](Refusal::NoRun), or is
/// [one of items](Refusal::RunOfItems); and as for a [submit](super::Submit). That there is nothing to
/// do is no error: see [`Retried`].
#[derive(Debug)]
#[must_use = "nothing is submitted until it is awaited"]
pub struct Retry {
    engine: Engine,
    run: RunId,
    input: Option<Result<Option<Bytes>, SubmitError>>,
    again: Vec<String>,
    key: Option<String>,
    priority: Option<i32>,
    not_before: Option<Timestamp>,
    queue: Option<Arc<str>>,
}

/// What a [retry](Engine::retry) came to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Retried {
    /// There is a new run.
    #[non_exhaustive]
    Begun {
        /// The new run.
        run: Run,
        /// The tasks that need not run, in the order of the workflow.
        taken_over: Vec<String>,
        /// The tasks that had succeeded and run again because they, or tasks above them, do
        /// something else, or because the input is another.
        changed: Vec<String>,
    },
    /// All tasks have succeeded, and nothing has changed: there is nothing to do, and no new run.
    NothingLeft,
}

impl Retried {
    /// The new run, if there is one.
    pub fn run(&self) -> Option<&Run> {
        match self {
            Retried::Begun { run, .. } => Some(run),
            Retried::NothingLeft => None,
        }
    }
}

impl Retry {
    pub(super) fn new(engine: Engine, run: RunId) -> Self {
        let (input, again, key) = (None, Vec::new(), None);
        let (priority, not_before, queue) = (None, None, None);
        Retry { engine, run, input, again, key, priority, not_before, queue }
    }

    /// These tasks, and what comes after them, run again although they have succeeded. May be said
    /// more than once.
    pub fn only(mut self, tasks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.again.extend(tasks.into_iter().map(Into::into));
        self
    }

    /// What it works on, instead of what the old run did. If that is something else, no task is taken
    /// over: nobody knows which of them have looked at it. Items of a list are.
    pub fn input(mut self, input: impl Serialize) -> Self {
        self.input = Some(encode(&input));
        self
    }

    /// An idempotency key, as for a [submit](super::Submit::key): if a retry of the same run has it
    /// already, that is returned.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// A head start in seconds over runs submitted at the same time, instead of that of the old run.
    pub fn priority(mut self, seconds: i32) -> Self {
        self.priority = Some(seconds);
        self
    }

    /// Nothing of the run starts before.
    pub fn not_before(mut self, instant: impl Into<Timestamp>) -> Self {
        self.not_before = Some(instant.into());
        self
    }

    /// The queue under which it is handed out, instead of that of the old run.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    async fn submit(self) -> Result<Retried, SubmitError> {
        let shared = self.engine.shared.clone();
        let old = shared.store.run(self.run).await.map_err(SubmitError::Store)?;
        let no_run = SubmitError::Refused(Refusal::NoRun { run: self.run });
        let old = old.ok_or(no_run)?;
        let known = shared.workflows.given.get(old.run.plan.workflow());
        let plan = known.map_or(&old.run.plan, |workflow| &workflow.plan).clone();
        let before = shared.store.input(old.run.key).await.map_err(SubmitError::Store)?;
        let input = self.input.unwrap_or(Ok(before.clone()))?;
        let again = find_all(&plan, &self.again)?;
        let taken = taken_over(&old, &plan, &again, before == input);
        let new = NewRun {
            keys: keys::of_run(&plan, input.as_deref())?,
            priority: self.priority.unwrap_or(old.run.priority),
            key: self.key,
            not_before: self.not_before,
            input,
            retry_of: Some(Box::new(RetryOf { run: self.run, again })),
            ..NewRun::new(
                RunId::new(shared.now(), fastrand::u128(..)),
                plan.clone(),
                self.queue.unwrap_or(old.run.queue),
            )
        };
        let names = |tasks: &[TaskIndex]| {
            tasks.iter().map(|task| plan.graph().name(*task).to_owned()).collect()
        };
        match Begun::new(self.engine, new)?.await {
            Ok(run) => Ok(Retried::Begun {
                run,
                taken_over: names(&taken.tasks.iter().map(|(task, _)| *task).collect::<Vec<_>>()),
                changed: names(&taken.changed),
            }),
            Err(SubmitError::Refused(Refusal::NothingLeft { .. })) => Ok(Retried::NothingLeft),
            Err(error) => Err(error),
        }
    }
}

/// What the store will take over, if the run has ended: otherwise it refuses.
fn taken_over(old: &RunView, plan: &Plan, again: &[TaskIndex], same_input: bool) -> TakenOver {
    let ended = |task: TaskIndex| -> Kind { old.tasks[task.as_usize()].life.state.kind() };
    compare(&old.run.plan, ended, plan, again, same_input)
}

/// The places of these tasks.
fn find_all(plan: &Plan, names: &[String]) -> Result<Vec<TaskIndex>, SubmitError> {
    let graph = plan.graph();
    let find = |name: &String| {
        graph.find(name).ok_or_else(|| {
            let nearest = nearest(name, graph.tasks().map(|task| graph.name(task)));
            let (task, workflow) = (name.clone(), plan.workflow().to_owned());
            SubmitError::UnknownTask { task, workflow, nearest: nearest.map(str::to_owned) }
        })
    };
    names.iter().map(find).collect()
}

impl IntoFuture for Retry {
    type Output = Result<Retried, SubmitError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.submit())
    }
}
