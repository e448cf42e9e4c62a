//! Where to find what commands have written.

use super::Engine;
use std::path::PathBuf;
use tidegate_core::RunId;

impl Engine {
    /// Where what a [command](crate::Task::command) writes in this attempt goes, byte for byte: the task
    /// by its name or, for one of several [items](crate::Task::each), as it is named in the run of the
    /// items. `None` if nothing is kept. There is a file if the command was begun on this machine and
    /// the log was not pruned.
    pub fn log(&self, run: RunId, task: &str, attempt: u32) -> Option<PathBuf> {
        Some(crate::task::log_of(self.shared.logs.as_ref()?, run, task, attempt))
    }
}
