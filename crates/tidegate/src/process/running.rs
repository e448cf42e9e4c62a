//! The commands that are running, so that all of them can be stopped for a while.

use super::group::Group;
use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::sync::Arc;

/// The commands of one engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Arc<Mutex<HashMap<i32, Group>>>);

/// A command is in the list as long as this is.
#[derive(Debug)]
pub(super) struct Listed {
    running: Running,
    group: Group,
}

impl Running {
    pub(super) fn list(&self, group: Group) -> Listed {
        lock(&self.0).insert(group.number(), group);
        Listed { running: self.clone(), group }
    }

    /// Stops all. Those whose leader has ended are ending, and are left to it.
    pub(crate) fn suspend(&self) {
        let groups: Vec<Group> = lock(&self.0).values().copied().collect();
        groups.iter().filter(|group| group.has_own_leader()).for_each(|group| group.suspend());
    }

    /// Lets all go on.
    pub(crate) fn unsuspend(&self) {
        let groups: Vec<Group> = lock(&self.0).values().copied().collect();
        groups.iter().filter(|group| group.has_own_leader()).for_each(|group| group.unsuspend());
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.running.0).remove(&self.group.number());
    }
}
