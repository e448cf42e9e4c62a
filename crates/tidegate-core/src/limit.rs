//! Limits: named bounds that all workers of a store share.
//!
//! A [`Limit`] says how many units may be in use at once and how many may begin in a stretch of time,
//! for each key by itself. How it stands is its [`LimitRow`].

mod usage;

use crate::plan::TaskPlan;
use crate::store::{Bytes, TaskKey};
use crate::{RunId, Timestamp};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
pub use usage::{FIRST_EVENTS, LimitRow, LimitUsage, RateWindow};

/// A named bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    name: String,
    at_once: Option<u32>,
    rate: Option<Rate>,
}

/// So many units in any stretch of time of this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many units.
    pub units: u32,
    /// In how much time.
    pub per: Duration,
}

/// The longest stretch of time that stores can keep: in nanoseconds it still fits into an `i64`.
const STRETCH_MAX: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

impl Limit {
    /// A limit that bounds nothing yet: [`at_once`](Self::at_once), [`rate`](Self::rate) or both are
    /// to follow.
    pub fn new(name: impl Into<String>) -> Self {
        Limit { name: name.into(), at_once: None, rate: None }
    }

    /// At most so many units are in use at once.
    pub fn at_once(mut self, units: u32) -> Self {
        self.at_once = Some(units);
        self
    }

    /// At most so many units begin in any stretch of time of this length. A stretch beyond 292 years
    /// counts as 292 years.
    pub fn rate(mut self, units: u32, per: Duration) -> Self {
        self.rate = Some(Rate { units, per: per.min(STRETCH_MAX) });
        self
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many units may be in use at once.
    pub fn most_at_once(&self) -> Option<u32> {
        self.at_once
    }

    /// How many may begin in how much time.
    pub fn most_in_time(&self) -> Option<Rate> {
        self.rate
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// Without a name or a bound, or with a bound of zero.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        let name = || self.name.clone();
        match (self.at_once, self.rate) {
            _ if self.name.is_empty() => Err(InvalidLimit::NoName),
            (None, None) => Err(InvalidLimit::Unbounded(name())),
            (Some(0), _) => Err(InvalidLimit::Nothing(name())),
            (_, Some(rate)) if rate.units == 0 || rate.per.is_zero() => {
                Err(InvalidLimit::Rate(name(), rate))
            }
            _ => Ok(()),
        }
    }

    /// Whether a task that takes so many units of it can ever run beside nobody.
    pub fn can_hold(&self, units: u32) -> bool {
        let fits = |most: Option<u32>| most.is_none_or(|most| units <= most);
        fits(self.at_once) && fits(self.rate.map(|rate| rate.units))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at_once, self.rate) {
            (None, None) => f.write_str("nothing"),
            (Some(units), None) => write!(f, "{units} at once"),
            (None, Some(rate)) => write!(f, "{rate}"),
            (Some(units), Some(rate)) => write!(f, "{units} at once and {rate}"),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.units, self.per)
    }
}

/// What is wrong with a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// It has no name.
    NoName,
    /// It has no bound.
    Unbounded(String),
    /// Nothing could ever run under it.
    Nothing(String),
    /// Nothing could ever begin under it, or everything could.
    Rate(String, Rate),
}

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidLimit::NoName => f.write_str("a limit needs a name"),
            InvalidLimit::Unbounded(name) => write!(
                f,
                "limit \"{name}\" bounds nothing; say how many at once, or how many in how much time"
            ),
            InvalidLimit::Nothing(name) => write!(
                f,
                "limit \"{name}\" is 0 at once, so nothing could run; it must be at least 1 (to stop \
                 work, pause its queue)"
            ),
            InvalidLimit::Rate(name, rate) => write!(
                f,
                "limit \"{name}\" is {rate}; both the number and the time must be above 0"
            ),
        }
    }
}

impl std::error::Error for InvalidLimit {}

/// A limit for one key. The empty key is that of tasks which give none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitKey {
    /// Which limit.
    pub name: Arc<str>,
    /// For which key.
    pub key: Arc<str>,
}

impl LimitKey {
    /// This limit for this key.
    pub fn new(name: impl Into<Arc<str>>, key: impl Into<Arc<str>>) -> Self {
        LimitKey { name: name.into(), key: key.into() }
    }
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.key {
            "" => write!(f, "limit \"{}\"", self.name),
            key => write!(f, "limit \"{}\" for \"{key}\"", self.name),
        }
    }
}

/// What a task holds of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Of which.
    pub limit: LimitKey,
    /// How much.
    pub units: u32,
    /// Since when.
    pub since: Timestamp,
}

/// Who holds a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The task.
    pub task: TaskKey,
    /// Its run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// How much it holds.
    pub units: u32,
    /// Since when.
    pub since: Timestamp,
}

/// A limit as it stands, for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitState {
    /// The limit.
    pub limit: Limit,
    /// For which key; empty also where nobody uses it.
    pub key: String,
    /// Units in use.
    pub in_use: u32,
    /// Tasks that wait for it.
    pub waiting: u64,
}

/// How much of a limit can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Units that can be taken now.
    pub units: u32,
    /// When more can be, if only time is in the way.
    pub next: Option<Timestamp>,
}

impl Limit {
    /// How much can be taken at `now`, where so much is in use and this was begun. What is heavier than
    /// the whole limit, because that was made smaller since, may be taken when nothing else is: `units`
    /// is what somebody wants.
    pub fn room(&self, units: u32, in_use: u64, window: &RateWindow, now: Timestamp) -> Room {
        let left = |most: u32, used: u64| u64::from(most).saturating_sub(used) as u32;
        let at_once = match self.at_once {
            None => u32::MAX,
            Some(most) if in_use == 0 => most.max(units),
            Some(most) => left(most, in_use),
        };
        let Some(rate) = self.rate else { return Room { units: at_once, next: None } };
        let in_time = match window.sum {
            0 => rate.units.max(units),
            used => left(rate.units, used),
        };
        let is_time_alone = in_time < units && at_once >= units;
        let next = is_time_alone.then(|| rate.find_next_room(units, window, now));
        Room { units: at_once.min(in_time), next }
    }
}

impl Rate {
    /// When units can begin for which there is no room at `now`, or the limit has to be looked at again
    /// because more events are stored than are known.
    fn find_next_room(&self, units: u32, window: &RateWindow, now: Timestamp) -> Timestamp {
        let mut left = window.sum;
        let freed = window.oldest.iter().find(|(_, begun)| {
            left = left.saturating_sub(*begun);
            left == 0 || left + u64::from(units) <= u64::from(self.units)
        });
        freed.or(window.oldest.last()).map_or(now, |(at, _)| *at + self.per)
    }
}

/// What a task takes of which limits, where this is kept of their keys.
pub fn uses(plan: &TaskPlan, kept: Option<&[u8]>) -> Vec<(LimitKey, u32)> {
    let keys = kept.map(decode_keys).unwrap_or_default();
    uses_with(plan, &keys)
}

/// The same, with these keys for those that have one.
pub(crate) fn uses_with(plan: &TaskPlan, keys: &[Arc<str>]) -> Vec<(LimitKey, u32)> {
    let mut keys = keys.iter();
    let mut uses: Vec<(LimitKey, u32)> = Vec::with_capacity(plan.limits.len());
    for used in &plan.limits {
        let key = used.key.as_ref().and_then(|_| keys.next());
        let key = key.cloned().unwrap_or_else(|| Arc::from(""));
        let limit = LimitKey { name: used.name.as_str().into(), key };
        // Two keys of one limit may be the same.
        match uses.iter_mut().find(|(other, _)| *other == limit) {
            Some((_, units)) => *units = units.saturating_add(used.units),
            None => uses.push((limit, used.units)),
        }
    }
    uses
}

/// Keys as they are kept: one to a line.
pub(crate) fn encode_keys(keys: &[Arc<str>]) -> Bytes {
    let lines = keys.iter().map(|key| key.replace('\\', "\\\\").replace('\n', "\\n"));
    lines.collect::<Vec<_>>().join("\n").into_bytes().into()
}

fn decode_keys(bytes: &[u8]) -> Vec<Arc<str>> {
    let text = String::from_utf8_lossy(bytes);
    text.split('\n').map(|line| unescape(line).into()).collect()
}

fn unescape(line: &str) -> String {
    let mut key = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        key.push(match c {
            '\\' if chars.next() == Some('n') => '\n',
            other => other,
        });
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// The window of these begins.
    fn window(begun: &[(Timestamp, u64)]) -> RateWindow {
        let sum = begun.iter().map(|(_, units)| units).sum();
        RateWindow { sum, oldest: begun.to_vec() }
    }

    #[test]
    fn what_is_in_use_is_not_free() {
        let limit = Limit::new("api").at_once(3);
        assert_eq!(limit.room(1, 0, &window(&[]), at(0)), Room { units: 3, next: None });
        assert_eq!(limit.room(1, 2, &window(&[]), at(0)), Room { units: 1, next: None });
        assert_eq!(limit.room(1, 7, &window(&[]), at(0)), Room { units: 0, next: None });
    }

    #[test]
    fn what_is_heavier_than_the_limit_goes_alone() {
        let limit = Limit::new("api").at_once(3);
        assert_eq!(limit.room(5, 0, &window(&[]), at(0)).units, 5);
        assert_eq!(limit.room(5, 1, &window(&[]), at(0)).units, 2);
        let limit = Limit::new("api").rate(3, Duration::from_secs(10));
        assert_eq!(limit.room(5, 0, &window(&[]), at(0)).units, 5);
        assert_eq!(
            limit.room(5, 0, &window(&[(at(0), 1)]), at(5)),
            Room { units: 2, next: Some(at(10)) }
        );
    }

    #[test]
    fn a_rate_counts_what_began_in_the_last_stretch() {
        let limit = Limit::new("api").rate(3, Duration::from_secs(10));
        let (one, both) = (window(&[(at(0), 1)]), window(&[(at(0), 1), (at(4), 2)]));
        assert_eq!(limit.room(1, 9, &one, at(5)), Room { units: 2, next: None });
        assert_eq!(limit.room(1, 9, &both, at(5)), Room { units: 0, next: Some(at(10)) });
        assert_eq!(limit.room(2, 9, &both, at(5)), Room { units: 0, next: Some(at(14)) });
        assert_eq!(limit.room(3, 9, &both, at(5)), Room { units: 0, next: Some(at(14)) });
    }

    #[test]
    fn room_that_more_events_than_are_known_have_to_free_is_looked_for_at_the_last_of_them() {
        let limit = Limit::new("api").rate(9, Duration::from_secs(10));
        let known = RateWindow { sum: 9, oldest: vec![(at(0), 1), (at(4), 2)] };
        assert_eq!(limit.room(3, 0, &known, at(5)).next, Some(at(14)));
        assert_eq!(limit.room(4, 0, &known, at(5)).next, Some(at(14)));
        let unknown = RateWindow { sum: 9, oldest: Vec::new() };
        assert_eq!(limit.room(1, 0, &unknown, at(5)).next, Some(at(5)));
    }

    #[test]
    fn a_full_limit_names_no_time_at_which_more_is_free() {
        let limit = Limit::new("api").at_once(1).rate(1, Duration::from_secs(10));
        assert_eq!(limit.room(1, 1, &window(&[(at(0), 1)]), at(1)), Room { units: 0, next: None });
    }

    #[test]
    fn units_near_the_end_of_their_range_are_counted_and_do_not_overflow() {
        let most = u32::MAX;
        let limit = Limit::new("api").at_once(most).rate(most, Duration::MAX);
        assert_eq!(limit.check(), Ok(()));
        let begun = window(&[0, 1, 2].map(|second| (at(second), u64::from(most))));
        for units in [1, most] {
            assert_eq!(limit.room(units, most.into(), &begun, at(3)).units, 0);
            assert_eq!(limit.room(units, 0, &begun, at(3)).units, 0);
            assert_eq!(limit.room(units, 0, &window(&[]), at(3)).units, most);
        }
        // A store keeps the stretch in nanoseconds, and what it gives back is what was asked for.
        let per = limit.most_in_time().map(|rate| rate.per.as_nanos());
        assert_eq!(per, Some(i64::MAX.unsigned_abs().into()));
    }

    #[test]
    fn keys_are_read_back_as_they_were() {
        let keys = ["", "gpt", "two\nlines", "\\n", "back\\slash\\"].map(Arc::from);
        assert_eq!(decode_keys(&encode_keys(&keys)), keys);
    }

    #[test]
    fn a_limit_that_makes_no_sense_is_refused() {
        let wrong = |limit: Limit| limit.check().unwrap_err().to_string();
        assert!(wrong(Limit::new("").at_once(1)).contains("name"));
        assert!(wrong(Limit::new("api")).contains("bounds nothing"));
        assert!(wrong(Limit::new("api").at_once(0)).contains("at least 1"));
        assert!(wrong(Limit::new("api").rate(0, Duration::from_secs(1))).contains("above 0"));
        assert!(wrong(Limit::new("api").rate(1, Duration::ZERO)).contains("above 0"));
        assert_eq!(Limit::new("api").at_once(1).check(), Ok(()));
    }
}
