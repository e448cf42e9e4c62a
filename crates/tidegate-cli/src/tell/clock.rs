//! How long it has been going on.

use std::time::{Duration, Instant};

/// A clock that is not set by anybody.
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Clock(Instant::now())
    }

    /// Since it was started.
    pub(super) fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
