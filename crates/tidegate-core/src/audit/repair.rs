//! What a repair is asked to put right. What it does stands in [`decision`](crate::decision).

use crate::lifecycle::WorkerId;
use crate::limit::LimitKey;
use crate::store::{RunKey, TaskKey};
use std::fmt;
use std::sync::Arc;

/// Something that is derived from something else, and can be again.
///
/// Whoever repairs looks again first, and does nothing where it is right by now. What people have
/// decided and what cannot be derived (states, fences, payloads) is never touched, except by what the
/// lifecycle would have made of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Repair {
    /// What belongs to nothing that exists.
    Stray(Stray),
    /// Where a task is found, what it holds and stands behind, and that its waits are known.
    Task(TaskKey),
    /// What follows from how the tasks of a run stand, its pause and its key.
    Run(RunKey),
    /// The signals of this name to this run that somebody waits for.
    Signal(RunKey, Arc<str>),
    /// Who stands behind a limit.
    Limit(LimitKey),
}

/// What rows belong to that do not belong to anything that exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stray {
    /// Payloads, waits, holds and words of a task.
    Task(TaskKey),
    /// Records, signals, keys and pauses of a run.
    Run(RunKey),
    /// Pauses of a run of this name.
    Pause(String),
    /// Holds and begins of a limit, by its number.
    Limit(i64),
    /// Words, queues and tasks of a worker.
    Worker(WorkerId),
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repair::Stray(stray) => write!(f, "what is left of {stray}"),
            Repair::Task(task) => write!(f, "task {}", task.0),
            Repair::Run(run) => write!(f, "run {}", run.0),
            Repair::Signal(run, name) => write!(f, "signals \"{name}\" to run {}", run.0),
            Repair::Limit(limit) => write!(f, "{limit}"),
        }
    }
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stray::Task(task) => write!(f, "task {}", task.0),
            Stray::Run(run) => write!(f, "run {}", run.0),
            Stray::Pause(run) => write!(f, "the pause of run {run}"),
            Stray::Limit(limit) => write!(f, "limit {limit}"),
            Stray::Worker(worker) => write!(f, "worker {}", worker.0),
        }
    }
}
