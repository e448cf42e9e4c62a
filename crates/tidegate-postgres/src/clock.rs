//! The time of the server, as this process can tell it without a trip.

use std::cell::Cell;
use std::time::{Duration, Instant};
use tidegate_core::Timestamp;

/// A reading that is older than this does not tell the time: the server's clock may have been set.
const READING_AGE_MAX: Duration = Duration::from_secs(3);

/// A reading stands for this long against later ones that were under way for longer.
const BEST_READING_AGE_MAX: Duration = Duration::from_secs(1);

/// The clock of the server by its last readings and the steady clock of this process.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    reading: Cell<Option<ClockReading>>,
}

#[derive(Debug, Clone, Copy)]
struct ClockReading {
    time: Timestamp,
    at: Instant,
}

impl ClockReading {
    fn tell_time(self, now: Instant) -> Timestamp {
        self.time + now.saturating_duration_since(self.at)
    }
}

impl ServerClock {
    /// Takes in a time that the server has just told.
    pub(crate) fn note_time(&self, time: Timestamp, now: Instant) {
        let is_better = self.reading.get().is_none_or(|before| {
            // Each was under way for some time, and so is late. The later time was so for less.
            now.saturating_duration_since(before.at) > BEST_READING_AGE_MAX
                || time >= before.tell_time(now)
        });
        if is_better {
            self.reading.set(Some(ClockReading { time, at: now }));
        }
    }

    /// The time, unless the last reading is too old to tell it.
    pub(crate) fn tell_time(&self, now: Instant) -> Option<Timestamp> {
        let reading = self.reading.get()?;
        let age = now.saturating_duration_since(reading.at);
        (age <= READING_AGE_MAX).then(|| reading.tell_time(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn server_clock_goes_by_the_reading_that_was_under_way_for_the_least_time() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        let time = Timestamp::from_micros(1_000_000);
        assert_eq!(clock.tell_time(start), None);
        clock.note_time(time, start);
        let later = start + SECOND / 2;
        assert_eq!(clock.tell_time(later), Some(time + SECOND / 2));
        clock.note_time(time + SECOND / 4, later);
        assert_eq!(clock.tell_time(later), Some(time + SECOND / 2), "it was under way for longer");
        clock.note_time(time + SECOND, later);
        assert_eq!(clock.tell_time(later), Some(time + SECOND));
        clock.note_time(time, later + SECOND * 2);
        assert_eq!(clock.tell_time(later + SECOND * 2), Some(time), "the clock was set back");
        assert_eq!(clock.tell_time(later + SECOND * 6), None, "the reading is too old");
    }
}
