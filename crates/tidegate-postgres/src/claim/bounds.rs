//! Where claims of a queue begin to look.
//!
//! Rows that were claimed stay in the index until the table is vacuumed, which a long snapshot prevents. A
//! claim that begins at the last one that was taken passes over none of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_core::Timestamp;
use tidegate_core::store::TaskKey;

/// Every so often a claim looks from the beginning: a row may stand before the bound, because it became
/// ready in a transaction that took long, or in another process.
const FULL_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Claims of fewer tasks set no bound: what they pass over costs little.
const BOUNDED_MIN: usize = 64;

/// Queues whose bounds are kept.
const QUEUES_MAX: usize = 64;

/// A place in claim order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimPlace {
    /// In microseconds.
    pub(crate) order: i64,
    pub(crate) task: i64,
}

impl ClaimPlace {
    /// No place comes before this one.
    const FIRST: ClaimPlace = ClaimPlace { order: i64::MIN, task: i64::MIN + 1 };

    /// The place of a task.
    pub(crate) fn of_task(order: Timestamp, task: TaskKey) -> Self {
        ClaimPlace { order: order.as_micros(), task: task.0 }
    }

    /// The first place with this order.
    pub(crate) fn before_order(order: Timestamp) -> Self {
        ClaimPlace { order: order.as_micros(), ..ClaimPlace::FIRST }
    }
}

/// The first place that claims look at, by queue.
#[derive(Debug, Default)]
pub(crate) struct ClaimBounds {
    of_queue: RefCell<HashMap<Arc<str>, ClaimBound>>,
}

#[derive(Debug, Clone, Copy)]
struct ClaimBound {
    from: ClaimPlace,
    /// When a claim has looked from the beginning.
    full_look: Instant,
}

impl ClaimBounds {
    /// Where a claim begins to look.
    pub(crate) fn find_start(&self, queue: &str, now: Instant) -> ClaimPlace {
        let mut bounds = self.of_queue.borrow_mut();
        match bounds.get(queue) {
            Some(bound) if now.saturating_duration_since(bound.full_look) < FULL_LOOK_EVERY => {
                bound.from
            }
            _ => {
                if bounds.len() >= QUEUES_MAX {
                    bounds.clear();
                }
                bounds.insert(queue.into(), ClaimBound { from: ClaimPlace::FIRST, full_look: now });
                ClaimPlace::FIRST
            }
        }
    }

    /// Takes in a claim of this many tasks that has looked from `from` on, and the place of the last one, if
    /// there may be more behind it.
    pub(crate) fn note_claim(
        &self,
        queue: &str,
        from: ClaimPlace,
        last: Option<ClaimPlace>,
        tasks: usize,
    ) {
        let mut bounds = self.of_queue.borrow_mut();
        // Another process or request may have lowered it meanwhile.
        let bound = bounds.get_mut(queue).filter(|bound| bound.from >= from);
        if let (Some(bound), Some(last)) = (bound, last.filter(|_| tasks >= BOUNDED_MIN)) {
            bound.from = bound.from.max(last);
        }
    }

    /// A task with this claim order can be claimed.
    pub(crate) fn lower_bound(&self, queue: &str, order: Timestamp) {
        if let Some(bound) = self.of_queue.borrow_mut().get_mut(queue) {
            bound.from = bound.from.min(ClaimPlace::before_order(order));
        }
    }

    /// Tasks of any claim order can be claimed.
    pub(crate) fn lower_all(&self) {
        self.of_queue.borrow_mut().values_mut().for_each(|bound| bound.from = ClaimPlace::FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(order: i64, task: i64) -> ClaimPlace {
        ClaimPlace { order, task }
    }

    #[test]
    fn claims_begin_behind_large_ones_until_a_smaller_order_or_a_second_has_come() {
        const FIRST: ClaimPlace = ClaimPlace::FIRST;
        let (bounds, start) = (ClaimBounds::default(), Instant::now());
        assert_eq!(bounds.find_start("q", start), FIRST);
        bounds.note_claim("q", FIRST, Some(place(5, 1)), 8);
        assert_eq!(bounds.find_start("q", start), FIRST, "a claim of few tasks");
        bounds.note_claim("q", FIRST, Some(place(50, 7)), 256);
        assert_eq!(bounds.find_start("q", start), place(50, 7));
        bounds.note_claim("q", place(50, 7), None, 3);
        assert_eq!(bounds.find_start("q", start), place(50, 7), "nothing stands before it either");
        bounds.lower_bound("q", Timestamp::from_micros(20));
        bounds.note_claim("q", place(50, 7), Some(place(90, 1)), 256);
        let lowered = ClaimPlace::before_order(Timestamp::from_micros(20));
        assert_eq!(bounds.find_start("q", start), lowered, "the claim did not look there");
        assert_eq!(bounds.find_start("p", start), FIRST, "another queue");
        assert_eq!(bounds.find_start("q", start + FULL_LOOK_EVERY), FIRST);
        bounds.note_claim("q", FIRST, Some(place(90, 1)), 256);
        bounds.lower_all();
        assert_eq!(bounds.find_start("q", start + FULL_LOOK_EVERY), FIRST);
    }
}
