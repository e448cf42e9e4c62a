//! How often something is looked at.

use crate::deadline::FAR;
use std::time::Duration;
use tokio::time::Instant;

/// A look later than this, or so late that the next would be due, has been missed: the next is
/// counted from now, so that a stall is not followed by a burst. Less is the ordinary lateness of
/// timers and is made up for.
const LATE: Duration = Duration::from_millis(20);

/// Intervals, in nanoseconds: there are very many of these. Two paces are equal if they would look
/// at the same instants from here on, but for chance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    first: u64,
    /// The present interval.
    interval: u64,
    longest: u64,
    /// Each interval is this many times the one before.
    factor: f32,
    /// Each interval is longer or shorter by up to this part.
    jitter: f32,
}

impl Pace {
    pub(crate) fn new(every: Duration, factor: f64, longest: Duration, jitter: f64) -> Self {
        let first = nanos(every);
        let longest = nanos(longest).max(first);
        Pace { first, interval: first, longest, factor: factor as f32, jitter: jitter as f32 }
    }

    /// The first interval again.
    pub(crate) fn restart(&mut self) {
        self.interval = self.first;
    }

    /// When to look next after a look that was due at `due` and is over `now`.
    pub(crate) fn next(&mut self, due: Instant, now: Instant) -> Instant {
        let pause = Duration::from_nanos(self.interval);
        let late = now.saturating_duration_since(due);
        let from = if late > LATE || late >= pause { now } else { due };
        if self.factor > 1.0 {
            let longer = self.interval as f64 * f64::from(self.factor);
            self.interval = (longer as u64).min(self.longest);
        }
        match self.jitter {
            0.0 => from + pause,
            part => {
                let spread = 1.0 + f64::from(part) * (2.0 * fastrand::f64() - 1.0);
                // Nothing is looked at without a pause, however short its interval.
                from + pause.mul_f64(spread).max(Duration::from_nanos(1))
            }
        }
    }

    /// What tells it from others.
    pub(super) fn identity(&self) -> (u64, u64, u32, u32) {
        (self.first, self.longest, self.factor.to_bits(), self.jitter.to_bits())
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.min(FAR).as_nanos() as u64
}
