//! How things stand in a worker, in numbers.

use crate::slot::SlotPool;
use crate::sync::{Mutex, lock};
use std::time::Duration;

/// How things stand in a worker. What ends in `_total`, and the durations, only grow.
///
/// What stands in the store, such as the depth of its queues, is told by
/// [`Engine::counts`](crate::Engine::counts).
///
/// | name | what it is |
/// |---|---|
/// | `slots`, `slots_in_use`, `slots_leaky` | slots there are, in use, and held by code that outlived its time-out |
/// | `queued` | tasks here that queue for a slot, to begin or to go on |
/// | `owned` | tasks that this worker has claimed and that have not ended |
/// | `ahead` | of these, claimed ahead and not begun |
/// | `deferred` | of these, waiting without their slot |
/// | `active` | of these, the rest: computing, or about to |
/// | `suspects` | of these, kept back because their process has died again and again while they computed |
/// | `more_ready` | whether the store has more that is ready than this worker took |
/// | `turns_total`, `turn_items_total`, `turn_time` | turns at the store, the changes and submits in them, and the time they took: commit batch size and time |
/// | `failed_turns_total` | turns that the store could not take |
/// | `recoveries_total` | tasks taken over from dead workers |
/// | `strays_total` | tasks that were owned and not known here, and were handed back |
/// | `lost_races_total` | reports that came to nothing because somebody else had ended the task |
/// | `idle_gap` | time in which a slot was free although something was ready |
/// | `succeeded_total`, `failed_total`, `timed_out_total`, `cancelled_total` | attempts that ended here, by how they ended |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the table says what each is")]
pub struct Metrics {
    pub slots: u64,
    pub slots_in_use: u64,
    pub slots_leaky: u64,
    pub queued: u64,
    pub owned: u64,
    pub ahead: u64,
    pub deferred: u64,
    pub active: u64,
    pub suspects: u64,
    pub more_ready: bool,
    pub turns_total: u64,
    pub turn_items_total: u64,
    pub turn_time: Duration,
    pub failed_turns_total: u64,
    pub recoveries_total: u64,
    pub strays_total: u64,
    pub lost_races_total: u64,
    pub idle_gap: Duration,
    pub succeeded_total: u64,
    pub failed_total: u64,
    pub timed_out_total: u64,
    pub cancelled_total: u64,
}

/// The last readings of the loop.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    last: Mutex<Metrics>,
}

impl Gauges {
    pub(super) fn publish(&self, metrics: Metrics) {
        *lock(&self.last) = metrics;
    }

    pub(super) fn read(&self, pool: &SlotPool) -> Metrics {
        let totals = pool.totals();
        Metrics {
            slots: pool.capacity().into(),
            slots_in_use: pool.in_use().into(),
            slots_leaky: pool.leaky().into(),
            queued: pool.waiting() as u64,
            succeeded_total: totals.succeeded,
            failed_total: totals.failed,
            timed_out_total: totals.timed_out,
            cancelled_total: totals.cancelled,
            ..*lock(&self.last)
        }
    }
}
