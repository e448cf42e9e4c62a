//! How soon a body is entered again that ended without an attempt being used.
//!
//! A failure uses an attempt, and a death of the process is counted by the store. A body that snoozes,
//! or that is dropped although nobody asked it to stop, uses nothing: without a pause it could be
//! entered again at once, for ever.

use crate::store::TaskKey;
use std::collections::HashMap;
use std::time::Duration;

/// The shortest snooze. Each costs two commits, so that a task which always snoozes for less would keep
/// a core and the disk busy.
pub const SNOOZE_MIN: Duration = Duration::from_millis(100);

/// The pause after the second drop in a row, doubled with each further one; and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));

/// Tasks whose drops are remembered. Others may have taken some of them over, which is not heard of
/// here: with more than these, all are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// How often in a row tasks were dropped here although nobody asked them to stop.
#[derive(Debug, Default)]
pub(super) struct DroppedTasks(HashMap<TaskKey, u32>);

impl DroppedTasks {
    /// A task was dropped; how long it is not to be entered again.
    pub(super) fn count_drop(&mut self, task: TaskKey) -> Duration {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        let times = self.0.entry(task).or_default();
        *times = times.saturating_add(1);
        pause_after(*times)
    }

    /// A task has ended in another way.
    pub(super) fn forget_task(&mut self, task: TaskKey) {
        // Nearly always there are none, and this is asked at every end.
        if !self.0.is_empty() {
            self.0.remove(&task);
        }
    }
}

/// How long a task is not entered again that was dropped so often in a row. Once may happen.
fn pause_after(times: u32) -> Duration {
    let (first, longest) = PAUSES;
    match times {
        0 | 1 => Duration::ZERO,
        // More doublings would not fit, and the longest pause is reached before.
        _ => first.saturating_mul(1 << (times - 2).min(16)).min(longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_with_each_drop_in_a_row_up_to_a_minute() {
        let pauses: Vec<u128> = (1..=6).map(|times| pause_after(times).as_millis()).collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800]);
        assert_eq!(pause_after(12), Duration::from_millis(51_200));
        for times in [13, 18, 19, 1_000, u32::MAX] {
            assert_eq!(pause_after(times), Duration::from_secs(60), "{times}");
        }
    }

    #[test]
    fn another_end_makes_the_next_drop_the_first() {
        let mut dropped = DroppedTasks::default();
        let (one, other) = (TaskKey(1), TaskKey(2));
        assert_eq!((0..3).map(|_| dropped.count_drop(one).as_millis()).max(), Some(100));
        assert_eq!(dropped.count_drop(other), Duration::ZERO);
        dropped.forget_task(one);
        assert_eq!(dropped.count_drop(one), Duration::ZERO);
        assert_eq!(dropped.count_drop(other).as_millis(), 50);
    }

    #[test]
    fn memory_of_drops_is_bounded() {
        let mut dropped = DroppedTasks::default();
        for task in 0..3 * REMEMBERED_MAX as i64 {
            dropped.count_drop(TaskKey(task));
        }
        assert!(dropped.0.len() <= REMEMBERED_MAX);
    }
}
