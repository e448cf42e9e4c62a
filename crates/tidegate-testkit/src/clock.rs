//! Time that goes on when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tidegate_core::Timestamp;

/// A clock that stands still until it is set or moved. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct FakeClock {
    micros: Arc<AtomicI64>,
}

impl FakeClock {
    /// A clock that shows this time.
    pub fn new(now: Timestamp) -> Self {
        FakeClock { micros: Arc::new(AtomicI64::new(now.as_micros())) }
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }

    /// Shows another time from now on, also an earlier one.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Goes on by this much, and says what it shows then.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let now = self.now() + by;
        self.set(now);
        now
    }
}

impl Default for FakeClock {
    /// A day like any other: 15 January 2027, 08:00 UTC.
    fn default() -> Self {
        FakeClock::new(Timestamp::from_micros(1_800_000_000_000_000))
    }
}
