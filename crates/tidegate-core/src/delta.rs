//! The changes that one request makes to a store.
//!
//! A [`Delta`] is gathered while a request is decided and written in one go at the end: until then the
//! store is as it was, and [`Overlay`](crate::decision) shows the request its own changes. Rows move from the
//! decision into the delta and from there into the store.

mod merged;

pub use merged::MergedWrites;

use crate::Timestamp;
use crate::audit::Stray;
use crate::lifecycle::WorkerId;
use crate::limit::{Hold, Limit, LimitKey, LimitRow};
use crate::retention::RunRemoval;
use crate::rows::{Head, Payload, Place, Row};
use crate::store::{Bytes, Record, RunKey, Scope, TaskKey};
use crate::wait::{WaitId, Waiting};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that one request changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Definitions of limits, new or changed.
    pub limits: Vec<Limit>,
    /// Pauses that begin or end, in order.
    pub pauses: Vec<PauseChange>,
    /// Waits by task and identity; `None` removes the wait.
    pub waits: BTreeMap<TaskKey, BTreeMap<WaitId, Option<Waiting>>>,
    /// Signals by number.
    pub signals: BTreeMap<u64, SignalChange>,
    /// Holds by task and limit; `None` gives the units back.
    pub holds: BTreeMap<TaskKey, BTreeMap<LimitKey, Option<Hold>>>,
    /// The rows of limits as they are from now on.
    pub limit_rows: BTreeMap<LimitKey, LimitRow>,
    /// Rate events to be removed, before those that are added.
    pub passed_events: Vec<PassedEvents>,
    /// Rate events to be added. Units of the same instant add up.
    pub rate_events: Vec<RateEvent>,
    /// Payloads to be stored beside tasks, in order.
    pub payloads: Vec<(TaskKey, Payload, Bytes)>,
    /// Payloads to be copied from one task to another.
    pub payload_copies: Vec<PayloadCopy>,
    /// Records in order. The store sets their numbers.
    pub records: Vec<Record>,
    /// Task rows, new or changed.
    pub tasks: Vec<TaskWrite>,
    /// Workers that own nothing any more and are dead.
    pub forgotten_workers: Vec<WorkerId>,
    /// Tasks that other workers have to look at.
    pub notifications: BTreeSet<(WorkerId, TaskKey)>,
    /// The worker that has taken its notifications, and the tasks that they named. Others may have come
    /// since they were loaded; those stay.
    pub notified: Option<(WorkerId, Vec<TaskKey>)>,
    /// Tasks to be filed anew among those that are alike for a claim, each with its run.
    pub refiled: Vec<(Row, Box<Head>)>,
    /// Rows that belong to nothing and are to be removed.
    pub orphans: Vec<Stray>,
    /// Runs to be removed, or parts of them.
    pub pruned_runs: Vec<RunRemoval>,
    /// Records to be removed, each with its run, which is marked: its records are not whole.
    pub pruned_records: Vec<(u64, RunKey)>,
    /// Signals to be removed.
    pub pruned_signals: Vec<u64>,
}

/// The beginning or the end of a pause.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PauseChange {
    /// What is paused.
    pub scope: Scope,
    /// Whether the pause begins.
    pub begins: bool,
    /// When.
    pub at: Timestamp,
}

/// Whether a queue or the store is paused once these changes are made, if that was so before.
pub fn is_paused_after(
    changes: &[PauseChange],
    scope: impl Fn(&Scope) -> bool,
    before: bool,
) -> bool {
    changes.iter().rfind(|change| scope(&change.scope)).map_or(before, |change| change.begins)
}

/// A change of one signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalChange {
    /// It was sent.
    Sent {
        /// The id that the sender gave it.
        id: u128,
        /// The run that it is addressed to.
        run: RunKey,
        /// Its name.
        name: Arc<str>,
        /// Its payload.
        body: Option<Bytes>,
        /// When.
        at: Timestamp,
        /// The task that has received it at once.
        taken_by: Option<TaskKey>,
    },
    /// A task has received it.
    Taken {
        /// Which.
        by: TaskKey,
    },
    /// The task that had received it has no use for it: it is there for the next wait.
    Returned {
        /// The run that it is addressed to.
        run: RunKey,
        /// Its name.
        name: Arc<str>,
        /// Its payload.
        body: Option<Bytes>,
    },
}

/// Units of a limit whose use began at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateEvent {
    /// Which limit.
    pub limit: LimitKey,
    /// When.
    pub at: Timestamp,
    /// How many units.
    pub units: u32,
}

/// The rate events of a limit between two instants. They do not count any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedEvents {
    /// Which limit.
    pub limit: LimitKey,
    /// From this instant on.
    pub from: Timestamp,
    /// Up to this one, which is included.
    pub to: Timestamp,
}

/// A payload to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadCopy {
    /// The task that has it.
    pub from: TaskKey,
    /// The task that gets it.
    pub to: TaskKey,
    /// Which.
    pub kind: Payload,
}

/// A task row to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskWrite {
    /// The row.
    pub row: Row,
    /// Where it is to be found.
    pub place: Place,
    /// The queue of its run.
    pub queue: Arc<str>,
    /// Whether its run has ended.
    pub is_run_ended: bool,
    /// Whether there was no such row before.
    pub is_new: bool,
    /// Whether nothing about the row can change any more, so that a store may move it to its ended rows;
    /// see [`Row::is_final`].
    ///
    /// Later deltas speak of such a row only where it is pruned ([`Delta::pruned_runs`] and
    /// [`Delta::pruned_records`], which mark its run) or repaired ([`Delta::tasks`], [`Delta::waits`],
    /// [`Delta::holds`], [`Delta::refiled`] and [`Delta::orphans`] of a request with a repair), and read it
    /// where a retry takes over what it returned ([`Delta::payload_copies`]). Its payloads and its ended
    /// waits stay beside it.
    pub is_final: bool,
    /// Whether the row is ready and its claim bears on no other row; see [`Row::is_plain`].
    pub is_plain: bool,
}
