//! What kind of world a seed draws.

use super::chance::Chance;
use super::script::Mood;

/// What kind of world it is. Once in so many; 0 is never.
#[derive(Debug, Clone, Copy)]
pub(super) struct Profile {
    /// One worker, requests that fail at worst, and nobody looks every second: every wake-up has to come
    /// by itself.
    pub(super) is_quiet: bool,
    pub(super) processes: usize,
    pub(super) runs: usize,
    pub(super) kills: u32,
    pub(super) closes: u32,
    pub(super) faults: u32,
    pub(super) operations: u32,
    /// Whether some who ask are no workers.
    pub(super) outsiders: bool,
    /// How far clocks may be apart, in microseconds.
    pub(super) skew: u64,
    /// Tasks a worker keeps in memory beyond its slots. Not fewer than its slots: a heavy task would
    /// never be claimed for which there is no room as if it were several.
    pub(super) in_memory_more: u32,
    pub(super) mood: Mood,
    /// Signals that are sent.
    pub(super) signals: u32,
    /// Limits that are declared, or made others.
    pub(super) resizes: u32,
    /// Waits that become rows.
    pub(super) parks: u32,
    /// Starts that are held for a while.
    pub(super) holds: u32,
}

impl Profile {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let rate =
            |chance: &mut Chance, rates: &[u32]| *chance.pick(rates).expect("there are some");
        let drawn = Profile {
            is_quiet: chance.one_in(5),
            processes: chance.between(1, 4) as usize,
            runs: chance.between(2, 14) as usize,
            kills: rate(chance, &[0, 0, 1, 3, 10]),
            closes: rate(chance, &[0, 1, 4]),
            faults: rate(chance, &[0, 3, 5, 10, 30]),
            operations: rate(chance, &[0, 3, 10]),
            outsiders: chance.one_in(2),
            skew: if chance.one_in(4) { 3_000_000 } else { 0 },
            in_memory_more: if chance.one_in(4) { chance.small(0, 3) } else { 1_000 },
            mood: Mood {
                poison: rate(chance, &[0, 0, 0, 12, 30]),
                killer: rate(chance, &[0, 0, 20]),
                never: rate(chance, &[0, 20]),
                heavy: 4,
                fan_outs: rate(chance, &[0, 3, 6]),
                stored: rate(chance, &[0, 2, 2, 3]),
                limits: rate(chance, &[0, 2, 4]),
                parks: rate(chance, &[0, 1, 2, 2]),
            },
            signals: rate(chance, &[0, 3, 10, 20]),
            resizes: rate(chance, &[0, 1, 4]),
            parks: rate(chance, &[3, 10, 30]),
            holds: rate(chance, &[0, 0, 3, 10]),
        };
        match drawn.is_quiet {
            false => drawn,
            true => Profile {
                processes: 1,
                kills: 0,
                closes: 0,
                outsiders: false,
                skew: 0,
                mood: Mood { poison: 0, killer: 0, ..drawn.mood },
                ..drawn
            },
        }
    }
}
