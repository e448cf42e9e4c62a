//! The clock by which a request goes.

use crate::Timestamp;

/// The clock that a request goes by.
///
/// Due times, rates, order and retention follow the time of requests. Workers on several machines have
/// several clocks, and the store has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The store's own.
    Store,
    /// The caller's, which shows this time: for tests and simulations.
    Given(Timestamp),
}

impl From<Timestamp> for Clock {
    fn from(now: Timestamp) -> Self {
        Clock::Given(now)
    }
}
