//! How long it has been going on, without the time in which the process was stopped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock that is not set by anybody.
pub(super) struct StoppableClock {
    since: Instant,
    /// Microseconds that do not count.
    stopped: AtomicU64,
}

impl StoppableClock {
    pub(super) fn start() -> Self {
        StoppableClock { since: Instant::now(), stopped: AtomicU64::new(0) }
    }

    /// Since it was started.
    pub(super) fn now(&self) -> Duration {
        let stopped = Duration::from_micros(self.stopped.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(stopped)
    }

    /// So much time does not count.
    pub(super) fn set_back(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.stopped.fetch_add(micros, Ordering::Relaxed);
    }
}
