//! Ends that were reported and are not stored, of tasks of which somebody wants to hear that.

use super::entry::Entry;
use super::hook::Hook;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_core::lifecycle::Fence;
use tidegate_core::store::{Record, TaskKey};

/// The entries, each with its hook. Empty where nobody wants to hear of stored ends.
#[derive(Default)]
pub(super) struct UnstoredEnds(HashMap<TaskKey, (Arc<Entry>, Hook)>);

impl UnstoredEnds {
    pub(super) fn add_entry(&mut self, entry: Arc<Entry>, hook: Hook) {
        self.0.insert(entry.key, (entry, hook));
    }

    /// The store has this of a task.
    pub(super) fn on_record(&mut self, record: &Record) {
        if self.0.is_empty() {
            return;
        }
        if let Some((entry, hook)) = self.0.remove(&record.run.task(record.task)) {
            entry.tell_stored_end(&hook, Some(record.what));
        }
    }

    /// The store did not take the end of this entry, and will record none.
    pub(super) fn on_lost(&mut self, task: TaskKey, fence: Fence) {
        if let Some((entry, _)) = self.0.get(&task)
            && entry.fence == fence
            && let Some((entry, hook)) = self.0.remove(&task)
        {
            entry.tell_stored_end(&hook, None);
        }
    }
}
