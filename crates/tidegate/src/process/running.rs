//! The commands that are running, so that all of them can be stopped for a while, or killed.

use super::group::Group;
use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The commands of one engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Arc<RunningGroups>);

#[derive(Debug, Default)]
struct RunningGroups {
    groups: Mutex<HashMap<i32, Group>>,
    /// Whether all were killed. Read-locked from before a command is started until it is listed, so
    /// that none is started and missed.
    killed: RwLock<bool>,
}

/// The right to start a command, until it is listed.
pub(super) struct Admission<'r> {
    running: &'r Running,
    killed: RwLockReadGuard<'r, bool>,
}

/// A command is in the list as long as this is.
#[derive(Debug)]
pub(super) struct Listed {
    running: Running,
    group: Group,
}

impl Running {
    pub(super) fn admit_command(&self) -> Admission<'_> {
        let killed = self.0.killed.read().unwrap_or_else(PoisonError::into_inner);
        Admission { running: self, killed }
    }

    /// Stops all. Those whose leader has ended are ending, and are left to it.
    pub(crate) fn suspend(&self) {
        self.list_groups()
            .into_iter()
            .filter(|group| group.has_own_leader())
            .for_each(Group::suspend);
    }

    /// Lets all go on.
    pub(crate) fn unsuspend(&self) {
        self.list_groups()
            .into_iter()
            .filter(|group| group.has_own_leader())
            .for_each(Group::unsuspend);
    }

    /// Kills all, and each that is started later.
    pub(crate) fn kill(&self) {
        *self.0.killed.write().unwrap_or_else(PoisonError::into_inner) = true;
        for group in self.list_groups() {
            match group.has_own_leader() {
                true => group.kill(),
                false => group.kill_rest(),
            }
        }
    }

    fn list_groups(&self) -> Vec<Group> {
        lock(&self.0.groups).values().copied().collect()
    }
}

impl Admission<'_> {
    /// Lists a command that was started.
    pub(super) fn list(self, group: Group) -> Listed {
        if *self.killed {
            group.kill();
        }
        lock(&self.running.0.groups).insert(group.number(), group);
        Listed { running: self.running.clone(), group }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.running.0.groups).remove(&self.group.number());
    }
}
