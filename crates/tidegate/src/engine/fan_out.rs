//! A task that is done once for each item of a list.
//!
//! It begins a run that has one task for each item, waits for its end without its slot, and returns
//! what came of the items. That run has a name that follows from the task's own: a later entry finds
//! the run again and goes on waiting. It belongs to the task: the store cancels it when the task ends
//! other than by success, and pauses it with the task's run.

use super::run::{RunState, RunStatus};
use super::{Shared, keys};
use crate::context::{Around, Context, check_json};
use crate::handle::TaskHandle;
use crate::task::{Body, Entered, Returned};
use crate::task_error::TaskError;
use crate::workflow::Piece;
use serde_json::Value;
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::graph::{OnFailure, RunOutcome};
use tidegate_core::lifecycle::{Kind, Reason};
use tidegate_core::plan::{ITEMS_MAX, Plan, TaskPlan};
use tidegate_core::store::{Bytes, Claimed, NewRun, Parent};
use tidegate_core::wait::{WaitId, WaitKind};

/// The body of a task that is done for items.
#[derive(Clone)]
pub(super) struct FanOut {
    queue: Arc<str>,
    source: String,
    workflow: String,
    name: String,
    on_failure: OnFailure,
    item: TaskPlan,
    keeps_output: bool,
    parent: Parent,
    run: RunId,
}

impl FanOut {
    /// The body of this task, which was planned to be done for items.
    pub(super) fn body(shared: &Arc<Shared>, claimed: &Claimed, piece: &Piece) -> Arc<dyn Body> {
        let (plan, planned) = (&claimed.plan, claimed.plan.task(claimed.index));
        let wait = WaitId::new(WaitKind::Child, "items", 0);
        Arc::new(FanOut {
            queue: shared.queue.clone(),
            source: planned.each.clone().unwrap_or_default(),
            workflow: plan.workflow().to_owned(),
            name: plan.graph().name(claimed.index).to_owned(),
            on_failure: plan.on_failure(),
            item: piece.item.clone().unwrap_or_default(),
            keeps_output: piece.keeps_output,
            parent: Parent::new(claimed.key, claimed.life.fence, wait),
            run: RunId::of_items(claimed.execution()),
        })
    }

    async fn run(self, around: Around, handle: TaskHandle) -> Result<Returned, TaskError> {
        let input = around.given.input.clone();
        let list = Context::<Value>::new(around)?.list(&self.source)?;
        let count = list.len();
        if count == 0 {
            let output = self.keeps_output.then(|| Bytes::from(&b"[]"[..]));
            return Ok(Returned { output, inserts: None });
        }
        let run = self.items(list, input)?;
        let wait = format!("{count} items, which are run {}", run.id);
        let status = handle.run_own("items", run).named(wait).await?;
        outcome(&status, self.keeps_output)
    }

    /// The run of the items. One that an entry before this has begun is the same.
    fn items(&self, list: Vec<Value>, input: Option<Bytes>) -> Result<NewRun, TaskError> {
        let count = u32::try_from(list.len()).ok().filter(|count| *count <= ITEMS_MAX);
        let Some(count) = count else {
            let (name, count) = (&self.name, list.len());
            return Err(TaskError::permanent(format!(
                "task \"{name}\" has {count} items; at most {ITEMS_MAX} are possible"
            )));
        };
        let items = list.iter().map(|item| serde_json::to_vec(item).map(Bytes::from));
        let items = items.collect::<Result<_, _>>().map_err(TaskError::permanent)?;
        let keys = keys::of_items(&self.item, &self.name, &list, input.as_deref());
        let (workflow, name) = (self.workflow.clone(), self.name.clone());
        let plan = Plan::items(workflow, name, count, self.on_failure, self.item.clone());
        Ok(NewRun {
            parent: Some(self.parent.clone()),
            items,
            keys: keys.map_err(TaskError::permanent)?,
            ..NewRun::new(self.run, Arc::new(plan), self.queue.clone())
        })
    }
}

impl Body for FanOut {
    fn enter(&self, around: Around, handle: TaskHandle) -> Entered {
        Box::pin(self.clone().run(around, handle))
    }
}

/// What a task returns whose items have come to this.
fn outcome(status: &RunStatus, keeps_output: bool) -> Result<Returned, TaskError> {
    match status.state {
        RunState::Ended(RunOutcome::Succeeded) if !keeps_output => {
            Ok(Returned { output: None, inserts: None })
        }
        RunState::Ended(RunOutcome::Succeeded) => {
            let outputs = status.tasks.iter().map(|task| task.output().unwrap_or(b"null"));
            let outputs: Vec<&[u8]> = outputs.collect();
            let list = [&b"["[..], &outputs.join(&b','), b"]"].concat();
            check_json("what the items returned together", &list)?;
            Ok(Returned { output: Some(list.into()), inserts: None })
        }
        RunState::Ended(RunOutcome::Cancelled) => {
            Err(TaskError::permanent(format!("its items, run {}, were cancelled", status.id)))
        }
        _ => Err(TaskError::permanent(failures(status))),
    }
}

/// Which items have failed, in words.
fn failures(status: &RunStatus) -> String {
    let is_failure = |kind| matches!(kind, Kind::Failed | Kind::TimedOut);
    let failed = status.tasks.iter().zip(0..).filter(|(task, _)| is_failure(task.kind));
    let failed: Vec<_> = failed.collect();
    let (count, all) = (failed.len(), status.tasks.len());
    let first = failed.first().map(|(task, number)| {
        // What never began has no words of its own.
        let reason = task.reason.map_or("failed", Reason::as_str);
        let error = task.error.as_deref().unwrap_or(reason);
        format!("; item {number}: {error}")
    });
    format!("{count} of {all} items failed{}", first.unwrap_or_default())
}
