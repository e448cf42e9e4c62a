//! What a worker can be given: which lanes it serves, what is paused, and several lanes as one.

use crate::error::Error;
use crate::sql::LoadStatements;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::sync::Arc;
use tidegate_core::delta::{PauseChange, is_paused_after};
use tidegate_core::rows::Gate;
use tidegate_core::store::Scope;
use tidegate_core::want::ServedTasks;

/// A worker as it has presented itself.
pub(crate) struct Served {
    pub(crate) tasks: Arc<ServedTasks>,
    pub(crate) slots: u32,
    /// The lanes it serves, of those up to `last`.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) last: i64,
}

/// A lane that a worker serves.
pub(crate) struct Lane {
    pub(crate) id: i64,
    pub(crate) queue: String,
    pub(crate) weight: u32,
}

/// What is paused, but for single runs.
#[derive(Default)]
pub(crate) struct Paused {
    pub(crate) store: bool,
    pub(crate) queues: HashSet<String>,
}

impl Paused {
    /// Whether nothing of this queue may start.
    pub(crate) fn stops(&self, queue: &str) -> bool {
        self.stops_after(&[], queue)
    }

    /// The same after these changes.
    pub(crate) fn stops_after(&self, changes: &[PauseChange], queue: &str) -> bool {
        let is_queue = |scope: &Scope| matches!(scope, Scope::Queue(name) if name == queue);
        let is_store = |scope: &Scope| *scope == Scope::Store;
        is_paused_after(changes, is_queue, self.queues.contains(queue))
            || is_paused_after(changes, is_store, self.store)
    }
}

/// Order and number of a task that can be claimed.
pub(crate) type Ready = (i64, i64);

/// Before every task.
const START: Ready = (i64::MIN, i64::MIN);

/// Several lanes as one, in order.
#[derive(Default)]
pub(crate) struct Merge {
    lanes: Vec<Front>,
    /// The first of each lane, and which lane it is.
    firsts: BinaryHeap<Reverse<(Ready, usize)>>,
}

/// The first tasks of a lane.
pub(crate) struct Front {
    lane: (Gate, i64),
    rows: VecDeque<Ready>,
    /// Up to where it was read.
    last: Ready,
    /// Whether there may be something behind.
    more: bool,
}

impl Merge {
    /// Adds a lane.
    pub(crate) fn add(&mut self, mut lane: Front) {
        let first = lane.rows.pop_front();
        self.firsts.extend(first.map(|first| Reverse((first, self.lanes.len()))));
        self.lanes.push(lane);
    }

    /// The first of all. So many rows are read of a lane at once.
    pub(crate) fn next(
        &mut self,
        sql: &mut LoadStatements<'_>,
        rows: usize,
    ) -> Result<Option<Ready>, Error> {
        let Some(Reverse((next, at))) = self.firsts.pop() else { return Ok(None) };
        let lane = &mut self.lanes[at];
        if lane.rows.is_empty() && lane.more {
            lane.fill(sql, rows)?;
        }
        self.firsts.extend(lane.rows.pop_front().map(|first| Reverse((first, at))));
        Ok(Some(next))
    }
}

impl Front {
    /// The first tasks of a lane behind a gate, at most so many.
    pub(crate) fn read(
        lane: (Gate, i64),
        sql: &mut LoadStatements<'_>,
        rows: usize,
    ) -> Result<Self, Error> {
        let mut front = Front { lane, rows: VecDeque::new(), last: START, more: true };
        front.fill(sql, rows)?;
        Ok(front)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn fill(&mut self, sql: &mut LoadStatements<'_>, rows: usize) -> Result<(), Error> {
        let ((gate, lane), (order, key)) = (self.lane, self.last);
        let mut found = sql.ready.query((gate.code(), lane, order, key, rows as i64))?;
        while let Some(row) = found.next()? {
            self.last = (row.get(0)?, row.get(1)?);
            self.rows.push_back(self.last);
        }
        self.more = self.rows.len() == rows;
        Ok(())
    }
}
