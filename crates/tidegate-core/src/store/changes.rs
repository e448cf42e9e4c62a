//! The part of a request that reports on tasks, and its outcome.

use super::{Bytes, TaskKey};
use crate::graph::TaskIndex;
use crate::lifecycle::{Event, Fence, Life};
use crate::plan::Plan;
use crate::wait::{WaitId, WaitOp};
use std::sync::Arc;

/// What happened to a task, one thing after the other, since the store last heard of it.
#[derive(Debug, Clone)]
pub struct Change {
    /// Which.
    pub task: TaskKey,
    /// Its place in the plan of its run. With it the number of the run is known before the task is
    /// loaded.
    pub index: TaskIndex,
    /// The plan of its run, if the caller has it. With it a store knows the tasks after this one before
    /// it is loaded; nothing is decided by it.
    pub plan: Option<Arc<Plan>>,
    /// By which right.
    pub fence: Fence,
    /// What it wants of its waits; it comes before the events.
    pub waits: Vec<WaitOp>,
    /// What happened to it.
    pub events: Vec<Event>,
    /// Of a task that parks: the waits it parks on.
    pub parks_on: Vec<WaitId>,
    /// What it returned, stored if it succeeds.
    pub output: Option<Bytes>,
    /// What it has put into the context, stored if it succeeds.
    pub inserts: Option<Bytes>,
    /// Why it failed, in words. Of a text longer than [`ERROR_MAX`](crate::ERROR_MAX) the beginning is
    /// stored, and that it was cut.
    pub error: Option<String>,
}

impl Change {
    /// Nothing yet.
    pub fn none(task: TaskKey, index: TaskIndex, fence: Fence) -> Self {
        let (waits, events, parks_on) = (Vec::new(), Vec::new(), Vec::new());
        let (plan, output, inserts, error) = (None, None, None, None);
        Change { task, index, plan, fence, waits, events, parks_on, output, inserts, error }
    }

    /// This and nothing else.
    ///
    /// # Panics
    /// If it is nothing that a worker says.
    pub fn new(task: TaskKey, index: TaskIndex, event: Event) -> Self {
        let fence = event.shown_fence().expect("a worker shows its fence");
        Change { events: vec![event], ..Change::none(task, index, fence) }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.waits.is_empty()
    }
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// It is written.
    Yes,
    /// Another worker was first; nothing of it is written.
    Lost {
        /// How the task stands; `None` if there is no such task.
        actual: Option<Life>,
    },
}
