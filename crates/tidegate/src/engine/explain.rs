//! Why a task is not running, in data and in words.
//!
//! The store says what it knows at one instant; the worker of this engine adds what only it knows.
//! What follows from both is decided in `tidegate_core::explain`.

use super::{Engine, Message, Run, RunError};
use std::fmt;
use std::time::Duration;
use tidegate_core::explain::{Looked, Rough, Why};
use tidegate_core::graph::nearest;
use tidegate_core::lifecycle::Kind;
use tidegate_core::{RunId, Timestamp};
use tokio::sync::oneshot;

/// How a task stands, and *all* reasons why it is not running. Made by [`Engine::explain`] and
/// [`Run::explain`].
///
/// Printed, it has a line for each reason, and one for the estimate.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: String,
    /// Where it stands.
    pub kind: Kind,
    /// When that was so.
    pub at: Timestamp,
    /// Why it is not running; of a task that is, or has ended, that it does or has. Never empty.
    pub reasons: Vec<Why>,
    /// A guess in how long it begins, or goes on after its wait. `None` where nothing can be said: it
    /// has begun, it waits for somebody's doing (a signal, another task, the end of a pause), or no
    /// task like it has succeeded of late.
    ///
    /// Each reason makes a guess of its own, and the longest counts. Times that are known count as
    /// they are: a start time, a back-off, the end of a sleep or of a wait's patience, when a rate
    /// allows the next. Where others go before it, each of them is taken to last as long as tasks like
    /// it usually do (the median, from entry to success, among the last 500 records of the store), as
    /// many at a time as the slots of all living workers that could run it allow, or the units of the
    /// limit.
    pub estimate: Option<Duration>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task \"{}\" of run {}: {}", self.task, self.run, self.kind)?;
        for why in &self.reasons {
            write!(f, "\n- {}", why.seen_at(self.at))?;
        }
        match self.estimate {
            Some(estimate) => write!(f, "\nestimate: in about {}", Rough(estimate)),
            None => Ok(()),
        }
    }
}

impl From<Looked> for Explanation {
    fn from(looked: Looked) -> Self {
        let estimate = looked.estimate();
        let Looked { run, task, kind, at, reasons, .. } = looked;
        Explanation { run, task, kind, at, reasons, estimate }
    }
}

impl Engine {
    /// Why a task of a run is not running: all reasons that hold now, with who and what is in the way
    /// and, where that can be said, in about how long it begins.
    ///
    /// What a worker alone knows (its slots, who stands in line there, whose wait is over) is said of
    /// the worker of this engine only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tidegate::engine::Why;
    /// use tidegate::{Context, Engine, Task, TaskError, Workflow};
    ///
    /// async fn load(_: &mut Context) -> Result<(), TaskError> {
    ///     Ok(())
    /// }
    ///
    /// let workflow = Workflow::of(Task::new("load", load))?;
    /// let engine = Engine::builder("memory:").workflow(workflow).start().await?;
    /// engine.pause().await?;
    /// let run = engine.submit("load", ()).await?;
    /// let explanation = engine.explain(run.id(), "load").await?;
    /// assert!(matches!(explanation.reasons[..], [Why::Paused { .. }]));
    /// println!("{explanation}");
    /// # engine.shutdown(std::time::Duration::from_secs(1)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no such run or task, or the store cannot be read.
    pub async fn explain(&self, run: RunId, task: &str) -> Result<Explanation, RunError> {
        let shared = &self.shared;
        let view = shared.store.run(run).await?.ok_or(RunError::Unknown(run))?;
        let graph = view.run.plan.graph();
        let Some(index) = graph.find(task) else {
            let names = graph.tasks().map(|task| graph.name(task));
            return Err(RunError::NoTask {
                task: task.to_owned(),
                workflow: view.run.plan.workflow().to_owned(),
                nearest: nearest(task, names).map(str::to_owned),
            });
        };
        let key = view.run.key.task(index);
        let looked = shared.store.explain(key, shared.now()).await?;
        let looked = looked.ok_or(RunError::Unknown(run))?;
        let (reply, answer) = oneshot::channel();
        let _ = shared.inbox.send(Message::Explain(key, reply));
        // Without the loop there is still what is stored.
        Ok(match answer.await {
            Ok(live) => looked.with(&live).into(),
            Err(_) => looked.into(),
        })
    }
}

impl Run {
    /// Why a task of the run is not running. See [`Engine::explain`].
    ///
    /// # Errors
    /// There is no such task, or the store cannot be read.
    pub async fn explain(&self, task: &str) -> Result<Explanation, RunError> {
        self.engine().explain(self.id(), task).await
    }
}
