//! The tasks that a request has changed: counted, and found by the limit that they are blocked on.
//!
//! A store finds tasks as they were when the request began. Those that have changed since are left out, so
//! that as many more are asked for, and are found here as they are. A request may change a hundred thousand tasks of as many limits: nothing here walks all of them for
//! one limit.

use super::Taking;
use crate::Timestamp;
use crate::lifecycle::Kind;
use crate::limit::LimitKey;
use crate::store::TaskKey;
use crate::want::Loader;
use std::collections::{BTreeMap, BTreeSet};

/// The tasks that a request has changed.
#[derive(Default)]
pub(super) struct ChangedTasks {
    /// Stored tasks that were ready before.
    ready: u32,
    blocked: BTreeMap<LimitKey, BlockedTasks>,
}

/// The changed tasks of one limit.
#[derive(Default)]
struct BlockedTasks {
    /// Those that are blocked on it, by claim order and number.
    tasks: BTreeSet<(Timestamp, TaskKey)>,
    /// Stored tasks that were blocked on it before.
    stale: u32,
}

impl ChangedTasks {
    /// How many tasks a store may find ready that have changed.
    pub(super) fn count_ready(&self) -> u32 {
        self.ready
    }

    /// How many tasks a store may find blocked on a limit that have changed.
    pub(super) fn count_blocked(&self, limit: &LimitKey) -> u32 {
        self.blocked.get(limit).map_or(0, |blocked| blocked.stale)
    }

    /// The changed tasks that are blocked on a limit, by claim order and number.
    pub(super) fn list_blocked(&self, limit: &LimitKey) -> Vec<(Timestamp, TaskKey)> {
        let blocked = self.blocked.get(limit);
        blocked.map_or_else(Vec::new, |blocked| blocked.tasks.iter().copied().collect())
    }

    /// The keys of a limit on which changed tasks are blocked.
    pub(super) fn list_blocked_keys(&self, name: &str) -> Vec<LimitKey> {
        let keys = self.blocked.range(LimitKey::new(name, "")..);
        let keys = keys.take_while(|(key, _)| *key.name == *name);
        keys.filter(|(_, blocked)| !blocked.tasks.is_empty()).map(|(key, _)| key.clone()).collect()
    }
}

impl<L: Loader> Taking<'_, L> {
    /// A task is about to change.
    pub(super) fn mark_changed(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        if std::mem::replace(&mut task.dirty, true) {
            return;
        }
        let is_stored = self.runs[task.run].new.is_none();
        let is_ready = is_stored && task.row.life.state.kind() == Kind::Ready;
        self.changed.ready += u32::from(is_ready);
        if let Some((limit, order)) = &task.row.behind {
            let blocked = self.changed.blocked.entry(limit.clone()).or_default();
            blocked.tasks.insert((*order, task.row.key));
            blocked.stale += u32::from(is_stored);
        }
    }

    /// A task is blocked on this limit from now on, at this place in claim order, or on none.
    pub(super) fn set_behind(&mut self, at: usize, behind: Option<(LimitKey, Timestamp)>) {
        self.mark_changed(at);
        let row = &mut self.tasks[at].row;
        if let Some((limit, order)) = &row.behind {
            let blocked = self.changed.blocked.get_mut(limit);
            let blocked = blocked.expect("a changed task is found by its limit");
            blocked.tasks.remove(&(*order, row.key));
        }
        if let Some((limit, order)) = &behind {
            let blocked = self.changed.blocked.entry(limit.clone()).or_default();
            blocked.tasks.insert((*order, row.key));
        }
        row.behind = behind;
    }
}
