//! Which workflows an engine can run: those it was given, and those that it finds when a task of them
//! is about to begin.

use super::Shared;
use super::fan_out::FanOut;
use crate::contain::contain_panic;
use crate::context::Around;
use crate::handle::TaskHandle;
use crate::task::{Body, Entered};
use crate::task_error::TaskError;
use crate::workflow::Workflow;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_core::store::Claimed;

/// Finds a workflow by its name and what a run of it works on.
pub(super) type Find =
    dyn Fn(&str, Option<&[u8]>) -> Result<Workflow, TaskError> + Send + Sync + 'static;

/// What an engine can run.
#[derive(Default)]
pub(super) struct Workflows {
    pub(super) given: HashMap<String, Workflow>,
    pub(super) find: Option<Arc<Find>>,
}

/// The body of a task that was claimed.
pub(super) fn body(shared: &Arc<Shared>, claimed: &Claimed) -> Arc<dyn Body> {
    let Workflows { given, find } = &shared.workflows;
    let (name, task) = (claimed.plan.workflow(), claimed.plan.known_as(claimed.index));
    let of = |workflow: &Workflow| {
        let index = workflow.plan.graph().find(task)?;
        let piece = &workflow.pieces[index.as_usize()];
        // One that became such since its run was planned is done as it was planned.
        Some(match claimed.plan.task(claimed.index).each {
            Some(_) => FanOut::body(shared, claimed, piece),
            None => piece.body.clone(),
        })
    };
    if let Some(body) = given.get(name).and_then(of) {
        return body;
    }
    let missing = || format!("workflow \"{name}\" has no task \"{task}\" any more");
    let Some(find) = find else { return Arc::new(NotFound(missing())) };
    // It is the application's code, with the words of its error and the destructor of its workflow, and
    // this is the engine's loop.
    let found = contain_panic(|| match find(name, claimed.given.input.as_deref()) {
        Ok(workflow) => of(&workflow).ok_or_else(missing),
        Err(error) => Err(error.to_string()),
    });
    match found.unwrap_or_else(|panic| Err(panic.to_string())) {
        Ok(body) => body,
        Err(error) => Arc::new(NotFound(error)),
    }
}

/// The body of a task that nobody can tell what it is.
struct NotFound(String);

impl Body for NotFound {
    fn enter(&self, _: Around, _: TaskHandle) -> Entered {
        let error = TaskError::permanent(self.0.clone());
        Box::pin(async { Err(error) })
    }
}
