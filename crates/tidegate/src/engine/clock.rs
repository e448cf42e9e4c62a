//! The time as an engine sees it: the store's, shown by this machine's clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};
use tidegate_core::Timestamp;
use tidegate_core::store::Clock;

/// A clock that a test sets.
pub(crate) type GivenClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The time of the store, as far as replies have told it.
#[derive(Default)]
pub(crate) struct EngineClock {
    given: Option<GivenClock>,
    /// Whether requests go by the store's clock.
    follows: bool,
    /// Microseconds that the store's clock is ahead of this machine's.
    ahead: AtomicI64,
}

impl EngineClock {
    /// A clock that follows the store's if that has one, unless a test gives one.
    pub(crate) fn new(given: Option<GivenClock>, has_store_clock: bool) -> Self {
        let follows = has_store_clock && given.is_none();
        EngineClock { given, follows, ahead: AtomicI64::new(0) }
    }

    /// About the time of the store.
    pub(crate) fn read_time(&self) -> Timestamp {
        match &self.given {
            Some(clock) => clock(),
            None => {
                let own = Timestamp::from(SystemTime::now()).as_micros();
                Timestamp::from_micros(own.saturating_add(self.ahead.load(Ordering::Relaxed)))
            }
        }
    }

    /// The clock that requests go by.
    pub(crate) fn request_clock(&self) -> Clock {
        if self.follows { Clock::Store } else { Clock::Given(self.read_time()) }
    }

    /// Notes the time that a reply shows, which came back after `took`. The store's clock showed it at
    /// some instant of that time; where the two clocks can be the same, they are taken for that.
    pub(crate) fn follow_store(&self, shown: Timestamp, took: Duration) {
        let own = Timestamp::from(SystemTime::now());
        let least = shown.as_micros().saturating_sub(own.as_micros());
        let most = shown.as_micros().saturating_sub((own - took).as_micros());
        if self.follows {
            let ahead = self.ahead.load(Ordering::Relaxed);
            let wanted = if least <= 0 && most >= 0 { 0 } else { ahead };
            self.ahead.store(wanted.clamp(least, most.max(least)), Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for EngineClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineClock").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn ahead_after(shown: Timestamp, took: Duration) -> i64 {
        let clock = EngineClock::new(None, true);
        clock.follow_store(shown, took);
        clock.ahead.load(Ordering::Relaxed)
    }

    #[test]
    fn clocks_that_can_be_the_same_are_taken_for_that() {
        let now = Timestamp::from(SystemTime::now());
        assert_eq!(ahead_after(now, HOUR), 0);
        assert_eq!(ahead_after(now - HOUR / 2, HOUR), 0);
    }

    #[test]
    fn clock_of_the_store_is_followed_no_further_than_the_reply_proves() {
        let now = Timestamp::from(SystemTime::now());
        let (hour, minute) = (3_600_000_000, 60_000_000);
        let early = ahead_after(now - HOUR, Duration::ZERO);
        assert!((-hour - minute..=-hour).contains(&early), "{early}");
        let late = ahead_after(now + HOUR, Duration::from_secs(10));
        assert!((hour - minute..=hour).contains(&late), "{late}");
    }

    #[test]
    fn given_clock_stays_as_it_is() {
        let fixed = Timestamp::from_micros(7);
        let clock = EngineClock::new(Some(Arc::new(move || fixed)), true);
        clock.follow_store(Timestamp::from(SystemTime::now()), Duration::ZERO);
        assert_eq!((clock.read_time(), clock.request_clock()), (fixed, Clock::Given(fixed)));
    }
}
