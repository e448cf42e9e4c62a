//! A run that a task begins.

use super::submit::{self, SubmitError};
use super::{Shared, keys};
use crate::task_error::TaskError;
use serde::Serialize;
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::lifecycle::Fence;
use tidegate_core::store::{Bytes, NewRun, Parent, TaskKey};
use tidegate_core::wait::{WaitId, WaitKind};

/// A run that a task begins ([`TaskHandle::run_child_with`](crate::TaskHandle::run_child_with)).
#[derive(Debug)]
pub struct Child {
    workflow: String,
    input: Result<Option<Bytes>, SubmitError>,
    queue: Option<Arc<str>>,
    priority: Option<i32>,
}

impl Child {
    pub(crate) fn new(workflow: String, input: &impl Serialize) -> Self {
        Child { workflow, input: submit::encode(input), queue: None, priority: None }
    }

    /// The queue under which it is handed out, instead of that of the task's run.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// A head start in seconds, instead of that of the task's run.
    pub fn priority(mut self, seconds: i32) -> Self {
        self.priority = Some(seconds);
        self
    }

    pub(crate) fn workflow(&self) -> &str {
        &self.workflow
    }

    /// The run, begun by this task.
    pub(super) fn run(
        self,
        shared: &Shared,
        task: TaskKey,
        fence: Fence,
    ) -> Result<NewRun, TaskError> {
        let make = || {
            let workflow = submit::find(shared, &self.workflow)?;
            let input = self.input?;
            // Which wait it is for is told when it is waited for.
            let parent = Parent::new(task, fence, WaitId::new(WaitKind::Child, "", 0));
            Ok(NewRun {
                keys: keys::of_run(&workflow.plan, input.as_deref())?,
                input,
                parent: Some(Parent { queue: self.queue, priority: self.priority, ..parent }),
                ..NewRun::new(
                    RunId::new(shared.now(), fastrand::u128(..)),
                    workflow.plan.clone(),
                    shared.queue.clone(),
                )
            })
        };
        make().map_err(|error: SubmitError| TaskError::permanent(error))
    }
}
