//! What a store no longer keeps: runs that ended long ago, what was recorded of them, signals that
//! nobody will receive any more.
//!
//! Pruning is a walk from the oldest on, in steps. A [step](Prune) is part of a
//! [request](crate::store::Request) and short, so that other requests wait for a moment only; the
//! pruner holds the place where the next one [goes on](Pruned::next). A step must leave as it was:
//!
//! - A run goes as a whole: it is never seen with some of its tasks. The rows of a large run go in
//!   further steps, in which it is seen by no look-up any more.
//! - A run that is open stays, and so does a run that a task has begun, as long as the run of that
//!   task is there: a later entry may be answered from it.
//! - Numbers are never given again. An idempotency key is free when its run is gone.
//! - What names a run that is gone (a wait for it that has ended) is as it was.
//!
//! Deliberately absent: logs, which are files and no business of a store; rows that are shared by runs,
//! which are [swept](crate::sweep).

use crate::store::{RunKey, TaskKey};
use crate::{RunId, Timestamp};
use std::ops::Range;

/// Rows that a step removes or looks at, about. They take a few milliseconds.
pub const PRUNE_MAX: u32 = 1_000;

/// Bytes of a payload that weigh as much as a row.
pub const ROW_BYTES: u64 = 4_096;

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

/// A run as pruning sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldRun {
    /// Its id.
    pub id: RunId,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The run of the task that began it, if that is still there.
    pub parent: Option<RunKey>,
    /// Its rows.
    pub rows: RunRows,
}

/// Rows of a run that are to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRows {
    /// The run.
    pub run: RunKey,
    /// Its first task that is still there.
    pub next: TaskKey,
    /// The number behind its last task.
    pub end: TaskKey,
    /// The weight of the first of its tasks, and of its records and signals: rows, and
    /// [`ROW_BYTES`] of payloads each count as one.
    pub weight: u32,
}

/// Rows of a run that go in one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRemoval {
    /// The run.
    pub run: RunKey,
    /// Its id, where the run itself goes now: with it go its first task, its idempotency key and its
    /// pauses.
    pub hides: Option<RunId>,
    /// Tasks, with their payloads and waits.
    pub tasks: Range<TaskKey>,
    /// At most this many of its records, and this many of its signals.
    pub others: u32,
    /// The tasks that a later step removes. Records and signals may be left where this is empty.
    /// `None` if the run is removed to its last row.
    pub left: Option<Range<TaskKey>>,
}

/// A record as pruning sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldRecord {
    /// Its number.
    pub seq: u64,
    /// When it was made.
    pub at: Timestamp,
    /// Its run.
    pub run: RunKey,
    /// When that ended.
    pub run_ended_at: Option<Timestamp>,
}

/// A signal as pruning sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldSignal {
    /// Its number.
    pub number: u64,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Whether its run has ended.
    pub is_run_ended: bool,
    /// Whether the task that received it is open; `None` if no task did.
    pub is_receiver_open: Option<bool>,
}
