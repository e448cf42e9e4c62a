//! Wall-clock time as a number that sorts, stores and prints the same everywhere.

use std::fmt;
use std::time::{Duration, SystemTime};

/// An instant on the wall clock: microseconds since 1970-01-01 00:00 UTC.
///
/// Arithmetic saturates: a date beyond the end of time is the end of time, not a crash. The default is
/// the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, later: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add_unsigned(whole_micros(later)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, earlier: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub_unsigned(whole_micros(earlier)))
    }
}

/// All of time fits into a `u64` of microseconds, so what does not is beyond either end.
fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let micros = |d: Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Timestamp(micros(after)),
            Err(before) => Timestamp(-micros(before.duration())),
        }
    }
}

/// As RFC 3339 in UTC, with milliseconds: `2026-11-15T03:04:05.678Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, micros) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        let (year, month, day) = civil(days);
        let (seconds, millis) = (micros / 1_000_000, micros / 1_000 % 1_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

const DAY: i64 = 86_400_000_000;

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
/// Years are counted from March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097; // days in 400 years
    let from_march_of_0 = days + 719_468;
    let (era, in_era) = (from_march_of_0.div_euclid(ERA), from_march_of_0.rem_euclid(ERA));
    let year = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_prints_as_rfc_3339() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000Z"),
            (1_794_711_845_678_000, "2026-11-15T03:04:05.678Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(micros).to_string(), text);
        }
    }

    #[test]
    fn arithmetic_saturates_at_both_ends_of_time() {
        let (beginning, end) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(beginning + Duration::MAX, end);
        assert_eq!(beginning - Duration::MAX, beginning);
        assert_eq!(end - Duration::MAX, beginning);
        assert_eq!(Timestamp(5) - Duration::from_micros(7), Timestamp(-2));
        assert_eq!(Timestamp(0).since(end), Duration::ZERO);
        assert!(!end.to_string().is_empty());
        assert!(!Timestamp(i64::MIN).to_string().is_empty());
    }
}
