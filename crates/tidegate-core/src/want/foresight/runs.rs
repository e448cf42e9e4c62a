//! The wants that follow from the first rows of runs.

use super::{Foresight, TaskRole};
use crate::graph::{OnFailure, TaskIndex};
use crate::plan::Plan;
use crate::rows::{Head, Payload};
use crate::store::{RunKey, TaskKey};
use crate::want::Want;
use crate::{RunId, Timestamp};
use std::sync::Arc;

/// The way in which a request bears on a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RunRole<'r> {
    /// It is cancelled.
    Cancelled,
    /// It is paused, or goes on.
    Paused,
    /// A task begins to wait for its end.
    Awaited,
    /// A new run takes over from it.
    Retried,
    /// A new run has the same key.
    SameKey,
    /// A signal is sent to it.
    Signalled { name: &'r Arc<str>, id: u128 },
    /// One of its tasks may become ready.
    Served,
    /// One of its items may be claimed.
    Items,
    /// One of its tasks has failed for good.
    Failing,
    /// One of its tasks has an alarm and queues since then.
    QueuedSince(Timestamp),
    /// A run below it begins.
    Above,
}

/// The facts of a run that bear on the wants of a decision.
#[derive(Debug)]
pub(super) struct RunFacts {
    id: RunId,
    queue: Arc<str>,
    plan: Arc<Plan>,
    parent: Option<TaskKey>,
    open: u32,
    is_awaited: bool,
    is_failing: bool,
    is_ended: bool,
}

impl<'r> Foresight<'r> {
    pub(super) fn add_run(&mut self, run: RunKey, plan: Arc<Plan>, head: &Head) {
        if self.runs.contains_key(&run) {
            return;
        }
        let facts = RunFacts {
            id: head.id,
            queue: head.queue.clone(),
            parent: head.parent,
            open: head.open,
            is_awaited: head.awaited,
            is_failing: head.failing,
            is_ended: head.ended.is_some(),
            plan,
        };
        self.runs.insert(run, facts);
        for role in self.run_roles.get(&run).cloned().unwrap_or_default() {
            self.look_at_role(run, role);
        }
        self.look_at_end(run);
    }

    pub(super) fn has_run_role(&self, run: RunKey, role: RunRole<'r>) -> bool {
        self.run_roles.get(&run).is_some_and(|roles| roles.contains(&role))
    }

    /// The request bears on a run in this way, whose first row is known or wanted.
    pub(super) fn bear_on_run(&mut self, run: RunKey, role: RunRole<'r>) {
        if !self.has_run_role(run, role) {
            self.run_roles.entry(run).or_default().push(role);
            self.look_at_role(run, role);
        }
    }

    fn look_at_role(&mut self, run: RunKey, role: RunRole<'r>) {
        let Some(facts) = self.runs.get(&run) else { return };
        let (is_ended, parent) = (facts.is_ended, facts.parent);
        let is_of_items = facts.plan.items_of().is_some();
        let first = run.task(TaskIndex::from_u32(0));
        match role {
            RunRole::Cancelled if !is_ended => {
                self.join_task(first, TaskRole::Cancelled);
                self.join_whole(run);
            }
            RunRole::Paused if !is_ended => {
                self.look_at_effects(first);
                self.join_whole(run);
            }
            RunRole::Awaited if !is_ended => {
                let tasks = facts.plan.task_count() as u32;
                self.join_want(Want::EdgesFrom { run, tasks });
                self.join_whole(run);
            }
            RunRole::Retried => {
                self.join_want(Want::Payload(first, Payload::Input));
                self.join_whole(run);
            }
            RunRole::SameKey => self.join_want(Want::Payload(first, Payload::Input)),
            RunRole::Signalled { name, id } if !is_ended && !is_of_items => {
                if self.request.again {
                    self.follow_want(Want::IsSent(run, id));
                }
                self.follow_want(Want::SignalWaits { run, name: name.clone(), max: 1 });
                self.follow_want(Want::Signals { run, name: name.clone(), max: 1 });
            }
            RunRole::Served => self.look_at_queue(run),
            RunRole::Items => {
                parent.into_iter().for_each(|parent| self.join_want(Want::Task(parent)));
            }
            RunRole::Failing => {
                self.follow_stopped(run);
                let parent = parent.filter(|_| is_of_items);
                parent.into_iter().for_each(|parent| self.follow_want(Want::Task(parent)));
            }
            RunRole::QueuedSince(from) => {
                let (run, queue) = (facts.id, facts.queue.clone());
                let to = self.now.unwrap_or_default();
                self.follow_want(Want::PausedTime { run, queue, from, to });
            }
            RunRole::Above if self.request.child_depth_max != u32::MAX => {
                if let Some(parent) = parent {
                    self.task_roles.insert((parent, TaskRole::Above));
                    self.follow_want(Want::Task(parent));
                }
            }
            _ => {}
        }
    }

    /// A task of a run that may become ready is not claimed while its queue is paused.
    pub(super) fn look_at_queue(&mut self, run: RunKey) {
        let queue = self.runs.get(&run).map(|facts| facts.queue.clone());
        let is_served = self.request.worker.is_some() && self.has_run_role(run, RunRole::Served);
        if let Some(queue) = queue.filter(|_| is_served) {
            self.join_queue(&queue);
        }
    }

    fn is_large(&self, run: RunKey) -> bool {
        self.runs.get(&run).is_some_and(|facts| facts.plan.task_count() > 1)
    }

    fn join_whole(&mut self, run: RunKey) {
        if self.is_large(run) {
            self.join_want(Want::WholeRun(run));
        }
    }

    /// In a run that is being stopped an end bears on all tasks.
    fn follow_stopped(&mut self, run: RunKey) {
        let Some(facts) = self.runs.get(&run) else { return };
        if facts.plan.on_failure() != OnFailure::KeepGoing && self.is_large(run) {
            self.follow_want(Want::WholeRun(run));
        }
    }

    /// The request ends one more task of a run.
    pub(super) fn add_end(&mut self, run: RunKey) {
        *self.ends.entry(run).or_default() += 1;
        self.look_at_end(run);
    }

    fn look_at_end(&mut self, run: RunKey) {
        let (Some(facts), Some(&ends)) = (self.runs.get(&run), self.ends.get(&run)) else { return };
        let is_failing = facts.is_failing;
        if ends >= facts.open && facts.is_awaited {
            self.follow_want(Want::WaitersOf(run));
        }
        if is_failing {
            self.follow_stopped(run);
        }
    }
}
