//! Rows as they are stored, damaged ones too: those that an audit compares with each other.

use super::TaskGroup;
use crate::graph::TaskIndex;
use crate::lifecycle::WorkerId;
use crate::limit::{LimitKey, LimitRow};
use crate::rows::{Head, Place, Row};
use crate::store::{RunKey, TaskKey};
use std::ops::Range;
use std::sync::Arc;

/// A question about rows as they are stored, asked by audit and repair.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuditWant {
    /// Tasks of a range by number, damaged ones too: `Loaded::StoredTasks`.
    Tasks {
        /// Which numbers.
        tasks: Range<TaskKey>,
        /// At most this many.
        max: u32,
    },
    /// All waits of the tasks in a range, by task; values may be cut off: `Loaded::StoredWaits`.
    Waits(Range<TaskKey>),
    /// All holds of the tasks in a range, by task: `Loaded::StoredHolds`.
    Holds(Range<TaskKey>),
    /// All records of the runs in a range but damaged ones, by run and number: `Loaded::Records`.
    Records(Range<RunKey>),
    /// Signals from a number on, by number: `Loaded::StoredSignals`.
    Signals {
        /// The first number.
        from: u64,
        /// At most this many.
        max: u32,
    },
    /// The keys of limits from a number on, by number: `Loaded::StoredLimits`.
    Limits {
        /// The first number.
        from: i64,
        /// At most this many.
        max: u32,
    },
    /// One limit for one key, if it has a number: `Loaded::StoredLimits`.
    Limit(LimitKey),
    /// Idempotency keys from one on, in order, each with the run that is found under it:
    /// `Loaded::StoredKeys`.
    Keys {
        /// The first key.
        from: FiledKey,
        /// Only those of this run.
        run: Option<RunKey>,
        /// At most this many.
        max: u32,
    },
    /// The names of runs that have pauses, from one on, in order, each once: `Loaded::Names`.
    PausedRuns {
        /// The first name.
        from: String,
        /// At most this many.
        max: u32,
    },
    /// Notifications from one on, by worker and task: `Loaded::StoredNotifications`.
    Notifications {
        /// The first.
        from: (WorkerId, TaskKey),
        /// At most this many.
        max: u32,
    },
    /// The workers that are known: `Loaded::WorkerIds`.
    KnownWorkers,
    /// The numbers in a range that rows of a table belong to, in order, each once:
    /// `Loaded::Numbers`.
    RowOwners {
        /// Which table.
        table: SideTable,
        /// Which numbers.
        owners: Range<i64>,
        /// At most this many.
        max: u32,
    },
    /// Tasks that can be claimed and are of the same task group as this one: `Loaded::TaskKeys`.
    ReadyAlike {
        /// Like which task.
        task: TaskKey,
        /// At most this many.
        max: u32,
    },
    /// The tasks of runs that are pruned and of which rows are left, in order:
    /// `Loaded::TaskRanges`.
    PrunedTasks,
}

/// A task as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTask {
    /// Its number.
    pub key: TaskKey,
    /// Its place in the plan of its run.
    pub index: TaskIndex,
    /// The task or, if the row is damaged, in which way.
    pub content: Result<FiledTask, String>,
}

impl StoredTask {
    /// The run that it says it belongs to.
    pub fn run(&self) -> RunKey {
        self.key.run(self.index)
    }

    /// The row, unless it is damaged.
    pub(crate) fn as_row(&self) -> Option<&Row> {
        self.content.as_ref().ok().map(|filed| &filed.row)
    }

    /// The run, if this is the first task of one and not damaged.
    pub(crate) fn as_head(&self) -> Option<&Head> {
        self.as_row()?.head.as_deref()
    }
}

/// A task with the columns by which it is found.
#[derive(Debug, Clone, PartialEq)]
pub struct FiledTask {
    /// The task.
    pub row: Row,
    /// Where it is found.
    pub place: Place,
    /// The task group in which claims look for it; `None` if there is no such group.
    pub group: Option<TaskGroup>,
    /// The workflow under which its run is listed, in the row of a first task.
    pub workflow: Option<String>,
    /// Whether records of its run were pruned, in the row of a first task.
    pub is_unrecorded: bool,
}

/// An idempotency key with the queue and the workflow for which it counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiledKey {
    /// The queue.
    pub queue: Arc<str>,
    /// The workflow.
    pub workflow: String,
    /// The key.
    pub key: String,
}

impl FiledKey {
    /// The key of a run, by its first task, if it has one.
    pub fn new(first: &Row) -> Option<Self> {
        let Head { queue, key, .. } = first.head.as_deref()?;
        let (queue, workflow) = (queue.clone(), first.plan.workflow().to_owned());
        Some(FiledKey { queue, workflow, key: key.clone()? })
    }

    /// No key comes before this one.
    pub(crate) fn before_all() -> Self {
        FiledKey { queue: "".into(), workflow: String::new(), key: String::new() }
    }

    /// The key that comes next, whether it exists or not.
    pub(crate) fn next(mut self) -> Self {
        self.key.push('\0');
        self
    }
}

/// A signal as it is stored, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSignal {
    /// Its number.
    pub number: u64,
    /// The run that it is addressed to.
    pub run: RunKey,
    /// Its name.
    pub name: Arc<str>,
    /// The task that has received it.
    pub taken_by: Option<TaskKey>,
}

/// A limit as it stands, for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLimit {
    /// The number of this key in the store.
    pub number: i64,
    /// Which limit, for which key.
    pub key: LimitKey,
    /// Its row.
    pub row: LimitRow,
    /// Units that tasks hold, added up.
    pub held: u64,
    /// How many tasks hold them.
    pub holders: u32,
    /// Units of its rate events, added up.
    pub begun: u64,
    /// The most units that the limit ever allowed at once, if the store has kept that.
    pub most: Option<u32>,
}

/// A table whose rows belong to something else, which they name by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SideTable {
    /// Payloads, by task.
    Payloads,
    /// Waits, by task.
    Waits,
    /// Holds, by task.
    Holds,
    /// Notifications, by task.
    NotifiedTasks,
    /// Records, by run.
    Records,
    /// Signals, by run.
    Signals,
    /// Idempotency keys, by run.
    Keys,
    /// Holds, by the number of the limit's key.
    LimitHolds,
    /// Begins that count for a rate, by the number of the limit's key.
    RateEvents,
    /// Queues that workers serve, by worker.
    WorkerQueues,
    /// Tasks that workers know, by worker.
    WorkerTasks,
    /// Notifications, by worker.
    NotifiedWorkers,
}

impl SideTable {
    /// A row of it, in words.
    pub(crate) fn row_name(self) -> &'static str {
        match self {
            SideTable::Payloads => "payload",
            SideTable::Waits => "wait",
            SideTable::Holds | SideTable::LimitHolds => "hold",
            SideTable::Records => "record",
            SideTable::Signals => "signal",
            SideTable::Keys => "key",
            SideTable::RateEvents => "begun",
            SideTable::NotifiedTasks | SideTable::NotifiedWorkers => "word",
            SideTable::WorkerQueues => "queue",
            SideTable::WorkerTasks => "task",
        }
    }
}
