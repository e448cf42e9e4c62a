//! Durations as people write them.

use std::fmt;
use std::time::Duration;

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidDuration {
    text: String,
}

impl fmt::Display for InvalidDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a duration: write a number with a unit (ms, s, m, h, d), as in \"90s\" \
             or \"1h30m\", or a whole number of seconds",
            self.text
        )
    }
}

impl std::error::Error for InvalidDuration {}

/// Reads `"250ms"`, `"90s"`, `"5m"`, `"1h30m"`, `"2d"`, or a whole number of seconds (`"90"`).
///
/// # Errors
/// Anything else, a sum that does not fit, and an empty text.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration { text: text.chars().take(64).collect() };
    let mut rest = text.trim();
    if let Ok(seconds) = rest.parse::<u64>()
        && rest.starts_with(|c: char| c.is_ascii_digit())
    {
        return Ok(Duration::from_secs(seconds));
    }
    let mut sum: Option<Duration> = None;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(invalid()),
        };
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let part = Duration::from_millis(number.checked_mul(millis).ok_or_else(invalid)?);
        sum = Some(sum.unwrap_or_default().checked_add(part).ok_or_else(invalid)?);
        rest = tail;
    }
    sum.ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_and_without_units() {
        for (text, millis) in [
            ("90", 90_000),
            ("0", 0),
            ("250ms", 250),
            ("90s", 90_000),
            (" 5m ", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1s500ms", 1_500),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_by_name() {
        for text in
            ["", " ", "abc", "-1", "+5", "5x", "m5", "5m5", "1.5s", "99999999999999999999", "5 m"]
        {
            let error = parse(text).expect_err(text);
            assert!(
                error.to_string().starts_with(&format!("\"{text}\" is not a duration")),
                "{error}"
            );
        }
        assert!(parse("999999999999999999d").is_err());
    }
}
