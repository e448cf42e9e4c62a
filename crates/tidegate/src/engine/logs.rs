//! Where to find what commands have written.

use super::{Engine, EngineBuilder};
use crate::process::{LogOverflow, OverflowState};
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_core::RunId;

impl EngineBuilder {
    /// What commands write and their logs cannot hold goes here: for lack of room, because of an error,
    /// or because somebody has moved the log. Without this it is dropped, and a warning says so.
    pub fn log_overflow(self, overflow: Arc<dyn LogOverflow>) -> Self {
        self.state(OverflowState(overflow))
    }
}

impl Engine {
    /// Where what a [command](crate::Task::command) writes in this attempt goes, byte for byte: the task
    /// by its name or, for one of several [items](crate::Task::each), as it is named in the run of the
    /// items. `None` if nothing is kept. There is a file if the command was begun on this machine and
    /// the log was not pruned.
    pub fn log(&self, run: RunId, task: &str, attempt: u32) -> Option<PathBuf> {
        Some(crate::task::log_of(self.shared.logs.as_ref()?, run, task, attempt))
    }
}
