//! The row of a limit for one key: units in use, units begun of late, and the task that is overtaken.
//!
//! Units in use are the sum over the tasks that hold some, units begun the sum over the rate events that
//! are stored. Both sums stand in the row and change in the transaction that changes their parts, so that
//! a request adds nothing up; an audit derives them anew.
//!
//! A rate event that does not count any more is passed: it is removed, and subtracted from the sum, by the
//! next request that looks at the limit. A request passes a bounded number of them. Where more are left the
//! sum is too large, never too small, and the limit is looked at again at once.

use super::LimitKey;
use crate::Timestamp;
use crate::store::TaskKey;
use crate::want::{Loader, LookUps};
use std::time::Duration;

/// Rate events that come with the row of a limit: enough to pass those that have expired since the last
/// begin, and to say when there is room again.
pub const FIRST_EVENTS: u32 = 16;

/// Rate events that one request loads besides, so that a request stays short.
const PASSED_MAX: u32 = 1_000;

/// The row of a limit for one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitRow {
    /// Units that tasks hold.
    pub in_use: u64,
    /// Units of all rate events that are stored.
    pub window_sum: u64,
    /// The first task that stands behind the limit, if others have taken units that it needs.
    pub overtaken_task: Option<TaskKey>,
    /// How often they have.
    pub overtakes: u32,
    /// When time frees units.
    pub alarm: Option<Timestamp>,
}

/// The row of a limit for one key, with its first rate events and the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitUsage {
    /// The row.
    pub row: LimitRow,
    /// The first [`FIRST_EVENTS`] rate events, by time: when, and how many units.
    pub oldest: Vec<(Timestamp, u64)>,
    /// The time of the last rate event.
    pub newest: Option<Timestamp>,
}

/// The rate events of a limit that count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateWindow {
    /// Units of all of them.
    pub sum: u64,
    /// The first of them by time, perhaps not all.
    pub oldest: Vec<(Timestamp, u64)>,
}

/// Rate events of a limit from one instant to another, both included, which do not count any more.
pub(crate) type PassedRange = (Timestamp, Timestamp);

impl RateWindow {
    /// Those that count at `now` for a rate in this time, or none where there is no rate; and those that are
    /// passed.
    ///
    /// # Errors
    /// The loader's stop.
    pub(crate) fn load_counting<L: Loader>(
        loader: &mut L,
        key: &LimitKey,
        usage: LimitUsage,
        per: Option<Duration>,
        now: Timestamp,
    ) -> Result<(Self, Vec<PassedRange>), L::Stop> {
        let LimitUsage { row, oldest, newest } = usage;
        let mut window = RateWindow { sum: row.window_sum, oldest };
        let (mut passed, mut max, mut seen) = (Vec::new(), FIRST_EVENTS as usize, 0);
        loop {
            let (loaded, last) = (window.oldest.len(), window.oldest.last().copied());
            seen += loaded;
            passed.extend(window.pass_expired(per, now));
            let is_all = loaded < max;
            let Some((last, _)) =
                last.filter(|_| window.oldest.is_empty() && !is_all && seen < PASSED_MAX as usize)
            else {
                break;
            };
            max = PASSED_MAX as usize;
            window.oldest = loader.load_rate_events(key, last, PASSED_MAX)?;
        }
        // A clock that was set back does not stop everything until it is where it was.
        let ahead = per.map(|per| now + per);
        if let Some(ahead) = ahead.filter(|ahead| newest.is_some_and(|newest| newest > *ahead)) {
            let events = loader.load_rate_events(key, ahead, PASSED_MAX)?;
            window.oldest.retain(|(at, _)| *at <= ahead);
            passed.extend(window.pass_events(&events));
        }
        Ok((window, passed))
    }

    /// Passes the known events that have expired.
    pub(crate) fn pass_expired(
        &mut self,
        per: Option<Duration>,
        now: Timestamp,
    ) -> Option<PassedRange> {
        let has_expired = |at: Timestamp| per.is_none_or(|per| at + per <= now);
        let expired = self.oldest.partition_point(|(at, _)| has_expired(*at));
        let left = self.oldest.split_off(expired);
        let expired = std::mem::replace(&mut self.oldest, left);
        self.pass_events(&expired)
    }

    fn pass_events(&mut self, events: &[(Timestamp, u64)]) -> Option<PassedRange> {
        let units: u64 = events.iter().map(|(_, units)| *units).sum();
        self.sum = self.sum.saturating_sub(units);
        Some((events.first()?.0, events.last()?.0))
    }

    /// Units begin at `now`.
    pub(crate) fn add_event(&mut self, now: Timestamp, units: u32) {
        // Others may stand between, unless these are all there are.
        if self.oldest.iter().map(|(_, units)| units).sum::<u64>() == self.sum {
            self.oldest.push((now, units.into()));
            self.oldest.sort_unstable();
        }
        self.sum = self.sum.saturating_add(units.into());
    }
}
