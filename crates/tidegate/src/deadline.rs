//! Deadlines that no clock overflows.
//!
//! A duration that a user sets may be anything up to `Duration::MAX`, and adding it to an instant panics
//! when the sum is beyond the range of the clock. Where a duration is added to an instant here, it is
//! added by [`deadline_after`].

use std::time::Duration;
use tokio::time::Instant;

/// A hundred years: beyond what a clock needs to tell, and as good as never.
pub(crate) const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The instant `delay` after `from`, at most a hundred years later. Timers round what they are given up
/// to a millisecond, so that the last instant of a clock's range would be too late for them.
pub(crate) fn deadline_after(from: Instant, delay: Duration) -> Instant {
    from + delay.min(FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timer_of_any_delay_can_be_made_and_polled() {
        let now = Instant::now();
        assert_eq!(deadline_after(now, Duration::ZERO), now);
        let last = Duration::from_secs(i64::MAX.unsigned_abs());
        for delay in [Duration::MAX, last, Duration::from_secs(u64::MAX), FAR] {
            let deadline = deadline_after(now, delay);
            assert_eq!(deadline, now + FAR);
            let timer = tokio::time::sleep_until(deadline);
            assert!(futures_util::poll!(std::pin::pin!(timer)).is_pending(), "{delay:?}");
        }
    }
}
