//! Chance that is the same for the same seed.

use std::time::Duration;

/// A stream of numbers that follows from its seed (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Chance(seed ^ 0x6a09_e667_f3bc_c909)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// A number from `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub(crate) fn small(&mut self, first: u32, last: u32) -> u32 {
        self.between(first.into(), last.into()) as u32
    }

    /// True once in so many times; never if that is 0.
    pub(crate) fn one_in(&mut self, times: u32) -> bool {
        times > 0 && self.below(times.into()) == 0
    }

    /// A part of one.
    pub(crate) fn part(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A time of between so many milliseconds.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    pub(crate) fn pick<'l, T>(&mut self, list: &'l [T]) -> Option<&'l T> {
        match list.len() {
            0 => None,
            length => Some(&list[self.below(length as u64) as usize]),
        }
    }

    /// One of these, each as likely as its weight says.
    pub(crate) fn weigh<T: Copy>(&mut self, choices: &[(u32, T)]) -> Option<T> {
        let total: u64 = choices.iter().map(|(weight, _)| u64::from(*weight)).sum();
        if total == 0 {
            return None;
        }
        let mut at = self.below(total);
        choices.iter().find_map(|&(weight, choice)| match at.checked_sub(weight.into()) {
            Some(rest) => {
                at = rest;
                None
            }
            None => Some(choice),
        })
    }
}
