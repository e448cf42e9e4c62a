//! What a worker can be given: which lanes it serves, and what is paused.

use std::collections::{HashMap, HashSet};

/// A worker as it has presented itself.
#[derive(Default)]
pub(crate) struct Served {
    pub(crate) queues: HashSet<String>,
    /// Tasks by workflow.
    pub(crate) knows: HashMap<String, HashSet<String>>,
    /// The lanes it serves, of those up to `last`.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) last: i64,
}

/// A lane that a worker serves.
pub(crate) struct Lane {
    pub(crate) id: i64,
    pub(crate) queue: String,
    pub(crate) weight: u32,
}

impl Served {
    /// Whether it serves this queue and knows this task.
    pub(crate) fn can_run(&self, queue: &str, workflow: &str, task: &str) -> bool {
        self.queues.contains(queue)
            && self.knows.get(workflow).is_some_and(|tasks| tasks.contains(task))
    }
}

/// What is paused, but for single runs.
#[derive(Default)]
pub(crate) struct Paused {
    pub(crate) store: bool,
    pub(crate) queues: HashSet<String>,
}

impl Paused {
    /// Whether nothing of this queue may start.
    pub(crate) fn stops(&self, queue: &str) -> bool {
        self.store || self.queues.contains(queue)
    }
}
