//! Public names of runs and task executions: 128 bits that sort by the time they were made.

use crate::Timestamp;
use crate::graph::TaskIndex;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Digits without the letters that are mistaken for others (i, l, o) and without u.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 130 bits in digits of 5 bits; the first digit carries only 3.
const LENGTH: usize = 26;

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidId {
    text: String,
    wrong: Wrong,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wrong {
    Length(usize),
    Digit(char),
    Large,
}

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not an id: ", self.text)?;
        match self.wrong {
            Wrong::Length(n) => write!(f, "it has {n} characters, an id has {LENGTH}"),
            Wrong::Digit(c) => write!(f, "'{c}' is none of the digits 0-9 a-z without i, l, o, u"),
            Wrong::Large => write!(f, "its first digit is above 7"),
        }
    }
}

impl std::error::Error for InvalidId {}

fn write(id: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let digit = |n: usize| char::from(DIGITS[(id >> (5 * (LENGTH - 1 - n)) & 31) as usize]);
    f.pad(&(0..LENGTH).map(digit).collect::<String>())
}

fn parse(text: &str) -> Result<u128, InvalidId> {
    let wrong = |wrong| InvalidId { text: text.chars().take(64).collect(), wrong };
    let length = text.chars().count();
    if length != LENGTH {
        return Err(wrong(Wrong::Length(length)));
    }
    text.chars().try_fold(0u128, |id, c| {
        let digit = DIGITS.iter().position(|&d| char::from(d) == c.to_ascii_lowercase());
        let digit = digit.ok_or_else(|| wrong(Wrong::Digit(c)))?;
        let shifted = id.checked_mul(32).ok_or_else(|| wrong(Wrong::Large))?;
        Ok(shifted | digit as u128)
    })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 48 bits of milliseconds, then 80 random bits; as text 26 digits and letters that sort
        /// like the ids themselves.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// An id made at `now`; only the low 80 bits of `random` are used.
            pub fn new(now: Timestamp, random: u128) -> Self {
                let millis = u128::from((now.as_micros().max(0) / 1_000) as u64 & 0xffff_ffff_ffff);
                $name(millis << 80 | (random & ((1 << 80) - 1)))
            }

            /// From the number it is.
            pub const fn from_u128(id: u128) -> Self {
                $name(id)
            }

            /// As the number it is.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write(self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write(self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse(text).map($name)
            }
        }
    };
}

id!(
    /// The public name of a run.
    RunId
);
id!(
    /// The public name of one execution of a task. It is the same on every entry and every
    /// attempt, and so serves as idempotency key towards the outside.
    TaskExecutionId
);

impl TaskExecutionId {
    /// The execution of a run's task: always the same, and another for every other.
    pub fn of(run: RunId, task: TaskIndex) -> Self {
        // An odd factor maps indexes to as many different offsets below 2^80.
        const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39d;
        const LOW: u128 = (1 << 80) - 1;
        let offset = SPREAD.wrapping_mul(u128::from(task.as_u32()) + 1);
        TaskExecutionId(run.0 & !LOW | run.0.wrapping_add(offset) & LOW)
    }
}

impl RunId {
    /// The ids whose text begins like this; `None` if none does.
    pub fn beginning_with(text: &str) -> Option<RangeInclusive<RunId>> {
        let filled = |digit: &str| {
            let missing = LENGTH.checked_sub(text.len()).filter(|_| !text.is_empty())?;
            format!("{text}{}", digit.repeat(missing)).parse().ok()
        };
        Some(filled("0")?..=filled("z")?)
    }

    /// The run in which the items of a task are done: always the same for an execution, so that a
    /// later entry finds it again.
    pub fn of_items(execution: TaskExecutionId) -> Self {
        // Not by adding: sums of offsets would meet those of other tasks of the run.
        const SPREAD: u128 = 0xc2b2_ae3d_27d4_eb4f_1657;
        const LOW: u128 = (1 << 80) - 1;
        let low = (execution.0 & LOW).wrapping_mul(SPREAD) & LOW;
        RunId(execution.0 & !LOW | (low ^ low >> 40))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_from_its_text() {
        for id in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = RunId::from_u128(id);
            assert_eq!(id.to_string().len(), 26);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
        }
    }

    #[test]
    fn items_and_their_executions_have_ids_of_their_own() {
        let run = RunId::new(Timestamp::from_micros(1_000_000), 77);
        let mut seen = std::collections::HashSet::from([run.0]);
        for task in (0..20).map(TaskIndex::from_u32) {
            let execution = TaskExecutionId::of(run, task);
            let items = RunId::of_items(execution);
            assert!(seen.insert(execution.0) && seen.insert(items.0));
            for item in (0..200).map(TaskIndex::from_u32) {
                assert!(seen.insert(TaskExecutionId::of(items, item).0));
            }
        }
    }

    #[test]
    fn ids_sort_by_time_as_numbers_and_as_text() {
        let at = |millis: i64, random| {
            TaskExecutionId::new(Timestamp::from_micros(millis * 1000), random)
        };
        let (early, late) = (at(1_000, u128::MAX), at(1_001, 0));
        assert!(early < late);
        assert!(early.to_string() < late.to_string());
    }

    #[test]
    fn every_task_of_a_run_has_an_execution_of_its_own_and_always_the_same() {
        let run = RunId::new(Timestamp::from_micros(5_000_000), u128::MAX);
        let of = |task| TaskExecutionId::of(run, TaskIndex::from_u32(task));
        let mut all: Vec<_> = (0..10_000).map(of).collect();
        assert_eq!(of(7), all[7]);
        assert!(all.iter().all(|id| id.as_u128() >> 80 == run.as_u128() >> 80));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10_000);
    }

    #[test]
    fn ids_are_found_by_the_beginning_of_their_text() {
        let id = RunId::new(Timestamp::from_micros(1_794_711_845_678_000), 77);
        let text = id.to_string();
        for length in 1..=26 {
            let ids = RunId::beginning_with(&text[..length].to_uppercase()).unwrap();
            assert!(ids.contains(&id));
            assert!(ids.start().to_string().starts_with(&text[..length]));
            assert!(ids.end().to_string().starts_with(&text[..length]));
        }
        assert_eq!(RunId::beginning_with(&text), Some(id..=id));
        for none in ["", "8", "u", "0-", "ä", &format!("{text}0")] {
            assert_eq!(RunId::beginning_with(none), None, "{none}");
        }
    }

    #[test]
    fn a_wrong_id_is_refused_with_what_is_wrong() {
        let error = |text: &str| text.parse::<RunId>().unwrap_err().to_string();
        assert_eq!(error("abc"), "\"abc\" is not an id: it has 3 characters, an id has 26");
        assert!(error("0123456789012345678901234u").contains("'u' is none of"));
        assert!(error("80000000000000000000000000").contains("first digit is above 7"));
    }
}
