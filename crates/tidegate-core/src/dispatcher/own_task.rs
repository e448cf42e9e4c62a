//! A task of a worker, as its dispatcher knows it.

use crate::graph::TaskIndex;
use crate::lifecycle::{Fence, Kind};
use crate::plan::Plan;
use crate::store::{Change, Claimed, TaskKey};
use std::sync::Arc;

/// A task of this worker.
#[derive(Debug)]
pub(super) struct OwnTask {
    index: TaskIndex,
    plan: Arc<Plan>,
    pub(super) fence: Fence,
    pub(super) phase: Phase,
    /// How many tasks come after it and may become ready with its end.
    pub(super) children: u32,
    /// Whether it has asked for something of its waits.
    pub(super) asks: bool,
    /// What the store has not been told.
    pub(super) untold: Option<Box<Change>>,
    /// Whether it was asked to stop.
    pub(super) stops: Option<Stops>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Claimed and not begun.
    Ahead,
    Active,
    Deferred,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stops {
    /// The worker closes.
    HandBack,
    /// The store has told it to.
    Told,
}

impl OwnTask {
    /// A task that was claimed, and is begun if the store has begun it.
    pub(super) fn new(claimed: &Claimed) -> Self {
        let begun = claimed.life.state.kind() == Kind::Active;
        let children = claimed.plan.graph().children(claimed.index).len() as u32;
        OwnTask {
            index: claimed.index,
            plan: claimed.plan.clone(),
            fence: claimed.life.fence,
            phase: if begun { Phase::Active } else { Phase::Ahead },
            // A task that waits for its run as a row may become ready with its end.
            children: children + u32::from(claimed.awaited),
            asks: false,
            untold: None,
            stops: None,
        }
    }

    /// The change that the store has not been told, empty if there was none.
    pub(super) fn make_change(&mut self, key: TaskKey) -> &mut Change {
        self.untold.get_or_insert_with(|| {
            let plan = Some(self.plan.clone());
            Box::new(Change { plan, ..Change::none(key, self.index, self.fence) })
        })
    }
}
