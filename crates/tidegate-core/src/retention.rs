//! What a store no longer keeps: runs that ended long ago, what was recorded of them, signals that
//! nobody will receive any more.
//!
//! Pruning is a walk from the oldest on, in steps. A [step](Prune) is short, so that whoever else
//! writes waits for a moment only, and whoever walks holds the place where the next one
//! [goes on](Pruned::next). What a step must leave as it was:
//!
//! - A run goes as a whole: it is never seen with some of its tasks. A store may need further steps
//!   for what nobody sees any more.
//! - A run that is open stays, and so does a run that a task has begun, as long as the run of that
//!   task is there: a later entry may be answered from it.
//! - Numbers are never given again. An idempotency key is free when its run is gone.
//! - What names a run that is gone (a wait for it that has ended) is as it was.
//!
//! Deliberately absent: logs, which are files and no business of a store; limits for single keys,
//! whose numbers every process remembers.

use crate::{RunId, Timestamp};

/// Rows that a step removes or looks at, about. So many take a few milliseconds.
pub const PRUNE_MAX: u32 = 1_000;

/// What can be pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aged {
    /// Runs, with all that belongs to them.
    Runs,
    /// What was recorded of runs that have ended.
    Events,
    /// Signals to runs that have ended, and those that were received by tasks that have.
    Signals,
}

/// One step of pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prune {
    /// What.
    pub what: Aged,
    /// Runs and their events go if the run has ended before this, signals if they were sent before.
    pub before: Timestamp,
    /// From which number on; 0 is the oldest.
    pub from: i64,
    /// How many rows, about: one is always looked at.
    pub most: u32,
}

impl Prune {
    /// The first step.
    pub fn new(what: Aged, before: Timestamp) -> Self {
        Prune { what, before, from: 0, most: PRUNE_MAX }
    }

    /// The one after a step that came to this; `None` if that was the last.
    pub fn after(self, pruned: &Pruned) -> Option<Self> {
        pruned.next.map(|from| Prune { from, ..self })
    }
}

/// What a step came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The runs that are gone.
    pub runs: Vec<RunId>,
    /// How many records are, apart from those of these runs.
    pub events: u64,
    /// How many signals are, apart from those to these runs.
    pub signals: u64,
    /// Where the next step goes on; `None` if there is nothing more to look at.
    pub next: Option<i64>,
}
