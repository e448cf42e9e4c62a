//! How long to wait before another attempt.

use std::fmt;
use std::time::Duration;

/// The pause between a failure and the next attempt. It holds no slot and no limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    first: Duration,
    factor: f64,
    longest: Duration,
    jitter: f64,
}

/// A back-off that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum InvalidBackoff {
    /// A factor below 1, or not a number.
    Factor(f64),
    /// A jitter below 0 or above 1, or not a number.
    Jitter(f64),
    /// A longest pause that is shorter than the first.
    Longest {
        /// The first pause.
        first: Duration,
        /// The longest.
        longest: Duration,
    },
}

impl fmt::Display for InvalidBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidBackoff::Factor(factor) => {
                write!(f, "a back-off factor of {factor} is not possible; it must be at least 1")
            }
            InvalidBackoff::Jitter(part) => {
                write!(f, "a jitter of {part} is not possible; it must be between 0 and 1")
            }
            InvalidBackoff::Longest { first, longest } => write!(
                f,
                "a longest pause of {longest:?} is shorter than the first of {first:?}; it must be \
                 at least as long"
            ),
        }
    }
}

impl std::error::Error for InvalidBackoff {}

impl Default for Backoff {
    /// One second, doubled each time, five minutes at most, spread by a tenth.
    fn default() -> Self {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(300));
        Backoff { first, factor: 2.0, longest, jitter: 0.1 }
    }
}

impl Backoff {
    /// The same pause each time.
    pub fn fixed(pause: Duration) -> Self {
        Backoff { first: pause, factor: 1.0, longest: pause, jitter: 0.0 }
    }

    /// Each pause `factor` times the one before, up to `longest`.
    ///
    /// # Errors
    /// A factor that is not at least 1, and a `longest` below `first`.
    pub fn exponential(
        first: Duration,
        factor: f64,
        longest: Duration,
    ) -> Result<Self, InvalidBackoff> {
        if !(1.0..).contains(&factor) {
            return Err(InvalidBackoff::Factor(factor));
        }
        if longest < first {
            return Err(InvalidBackoff::Longest { first, longest });
        }
        Ok(Backoff { first, factor, longest, jitter: 0.0 })
    }

    /// Makes each pause longer or shorter by chance, by up to this part of it.
    ///
    /// # Errors
    /// A part that is not between 0 and 1.
    pub fn with_jitter(self, part: f64) -> Result<Self, InvalidBackoff> {
        match (0.0..=1.0).contains(&part) {
            true => Ok(Backoff { jitter: part, ..self }),
            false => Err(InvalidBackoff::Jitter(part)),
        }
    }

    /// The first pause.
    pub fn first(&self) -> Duration {
        self.first
    }

    /// What each pause is multiplied by to give the next.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// The longest pause.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The part of a pause by which chance makes it longer or shorter at most.
    pub fn jitter(&self) -> f64 {
        self.jitter
    }

    /// The pause after the failure of this attempt (the first is 1). `chance` is a number from 0 to
    /// 1 that the caller has drawn.
    pub fn pause(&self, attempt: u32, chance: f64) -> Duration {
        let grown = self.factor.powi(i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX));
        // Infinitely often nothing is nothing, and not a number without this.
        let grown = grown.min(f64::MAX);
        let capped = (self.first.as_secs_f64() * grown).min(self.longest.as_secs_f64());
        let spread = 1.0 + self.jitter * (2.0 * chance.clamp(0.0, 1.0) - 1.0);
        Duration::try_from_secs_f64(capped * spread).unwrap_or(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_fixed_pause_is_the_same_each_time() {
        let backoff = Backoff::fixed(SECOND * 7);
        assert!((1..100).all(|attempt| backoff.pause(attempt, 0.9) == SECOND * 7));
    }

    #[test]
    fn an_exponential_pause_grows_to_its_cap_and_stays_there() {
        let backoff = Backoff::exponential(SECOND, 3.0, SECOND * 20).unwrap();
        let pauses: Vec<_> = (1..=5).map(|attempt| backoff.pause(attempt, 0.5).as_secs()).collect();
        assert_eq!(pauses, [1, 3, 9, 20, 20]);
        assert_eq!(backoff.pause(u32::MAX, 0.5), SECOND * 20);
        assert_eq!(Backoff::fixed(Duration::MAX).pause(9, 1.0), Duration::MAX);
        let none = Backoff::exponential(Duration::ZERO, f64::MAX, Duration::MAX).unwrap();
        assert_eq!(none.pause(u32::MAX, 0.5), Duration::ZERO);
    }

    #[test]
    fn jitter_spreads_a_pause_to_both_sides() {
        let backoff = Backoff::fixed(SECOND * 10).with_jitter(0.5).unwrap();
        let pause = |chance| backoff.pause(1, chance).as_secs();
        assert_eq!([pause(0.0), pause(0.5), pause(1.0)], [5, 10, 15]);
    }

    #[test]
    fn a_back_off_that_makes_no_sense_is_refused_by_name() {
        let error = |backoff: Result<Backoff, InvalidBackoff>| backoff.unwrap_err().to_string();
        let factor = error(Backoff::exponential(SECOND, 0.5, SECOND));
        assert_eq!(factor, "a back-off factor of 0.5 is not possible; it must be at least 1");
        assert!(Backoff::exponential(SECOND, f64::NAN, SECOND).is_err());
        let longest = error(Backoff::exponential(SECOND * 2, 2.0, SECOND));
        assert!(longest.starts_with("a longest pause of 1s is shorter than the first of 2s"));
        let jitter = error(Backoff::fixed(SECOND).with_jitter(1.5));
        assert_eq!(jitter, "a jitter of 1.5 is not possible; it must be between 0 and 1");
    }
}
