//! Values that are written in a manner of their own, and how they are read.

use std::fmt;
use std::time::Duration;
use tidegate::core::duration;

/// How many slots there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParallelLimit {
    /// So many.
    Exactly(u32),
    /// As many as there are processors.
    Auto,
    /// This part of the processors, in hundredths.
    Percent(u32),
    /// From so few to so many, by the load of the machine.
    Between(u32, u32),
}

/// A percentage above this is a slip of the finger.
const PERCENT_MAX: u32 = 9_999;

impl ParallelLimit {
    /// `auto` or `50%`.
    pub(crate) fn from_word(text: &str) -> Option<Self> {
        if text == "auto" {
            return Some(ParallelLimit::Auto);
        }
        let percent = natural(text.strip_suffix('%')?)?;
        (percent <= PERCENT_MAX).then_some(ParallelLimit::Percent(percent))
    }

    /// As it is written on the command line and in the environment.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let text = text.trim();
        Self::from_word(text).or_else(|| natural(text).map(ParallelLimit::Exactly))
    }

    /// How many slots that is at most, with so many processors.
    pub(crate) fn most(self, cpus: u32) -> u32 {
        match self {
            ParallelLimit::Exactly(slots) | ParallelLimit::Between(_, slots) => slots,
            ParallelLimit::Auto => cpus,
            ParallelLimit::Percent(percent) => {
                let hundredths = u64::from(cpus) * u64::from(percent);
                u32::try_from((hundredths / 100).max(1)).unwrap_or(u32::MAX)
            }
        }
    }
}

impl fmt::Display for ParallelLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParallelLimit::Exactly(slots) => write!(f, "{slots}"),
            ParallelLimit::Auto => f.write_str("auto"),
            ParallelLimit::Percent(percent) => write!(f, "{percent}%"),
            ParallelLimit::Between(min, max) => write!(f, "{min} to {max}"),
        }
    }
}

/// A number of at least 1, in digits.
pub(crate) fn natural(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| digits && number > 0)
}

/// `60/1m`: so many in how much time.
pub(crate) fn rate(text: &str) -> Option<(u32, Duration)> {
    let (units, per) = text.split_once('/')?;
    let per = duration::parse(per).ok().filter(|per| !per.is_zero())?;
    Some((natural(units.trim())?, per))
}

/// `host:port`.
pub(crate) fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let plain = !host.is_empty() && !host.contains(['/', ' ']);
        plain && port.len() <= 5 && natural(port).is_some_and(|port| port <= u32::from(u16::MAX))
    })
}

pub(crate) fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(' '))
}

/// A duration as it can be written in the file.
pub(crate) fn written(time: Duration) -> String {
    let mut text = String::new();
    let mut rest = time.as_millis();
    for (unit, millis) in
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)]
    {
        if rest >= millis {
            text.push_str(&format!("{}{unit}", rest / millis));
            rest %= millis;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_processors_is_at_least_one_slot() {
        assert_eq!(ParallelLimit::Percent(50).most(8), 4);
        assert_eq!(ParallelLimit::Percent(50).most(1), 1);
        assert_eq!(ParallelLimit::Percent(200).most(3), 6);
        assert_eq!(ParallelLimit::Auto.most(6), 6);
        assert_eq!(ParallelLimit::Between(2, 16).most(6), 16);
    }

    #[test]
    fn a_limit_is_a_number_a_word_or_a_percentage() {
        assert_eq!(ParallelLimit::from_text(" 8 "), Some(ParallelLimit::Exactly(8)));
        assert_eq!(ParallelLimit::from_text("auto"), Some(ParallelLimit::Auto));
        assert_eq!(ParallelLimit::from_text("150%"), Some(ParallelLimit::Percent(150)));
        for text in ["", "0", "-1", "+1", "abc", "0%", "%", "10000%", "1.5", "4294967296", "Auto"] {
            assert_eq!(ParallelLimit::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_rate_is_a_number_and_a_time() {
        assert_eq!(rate("60/1m"), Some((60, Duration::from_secs(60))));
        assert_eq!(rate(" 5 / 90s"), Some((5, Duration::from_secs(90))));
        for text in ["", "60", "/", "0/1m", "60/0s", "60/x", "-1/1m", "60/1m/2"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }

    #[test]
    fn a_duration_is_written_as_it_can_be_read() {
        for text in ["0s", "250ms", "90s", "1h30m", "2d", "1d2h3m4s5ms"] {
            let time = duration::parse(text).unwrap();
            assert_eq!(duration::parse(&written(time)), Ok(time), "{text}");
        }
        assert_eq!(written(Duration::from_secs(5_400)), "1h30m");
    }
}
