//! Inputs that need not be run again, by what they are and how often.
//!
//! There may be ten millions of them, and they may be long: what is kept is a hash of 128 bits and a
//! number of each. The keys of the hash are made by chance, so nobody can find two inputs that are taken
//! for the same.

use std::hash::{BuildHasher as _, RandomState};

/// Gathers them.
#[derive(Debug)]
pub(super) struct Gathering {
    keys: [RandomState; 2],
    hashes: Vec<u128>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Done {
    keys: [RandomState; 2],
    /// In order, each once.
    hashes: Vec<u128>,
    /// How many are left of each.
    left: Vec<u32>,
}

fn hash(keys: &[RandomState; 2], input: &[u8]) -> u128 {
    let [high, low] = keys.each_ref().map(|key| u128::from(key.hash_one(input)));
    high << 64 | low
}

impl Gathering {
    pub(super) fn new() -> Self {
        Gathering { keys: [RandomState::new(), RandomState::new()], hashes: Vec::new() }
    }

    pub(super) fn add(&mut self, input: &[u8]) {
        self.hashes.push(hash(&self.keys, input));
    }

    pub(super) fn done(self) -> Done {
        let Gathering { keys, mut hashes } = self;
        hashes.sort_unstable();
        let mut left: Vec<u32> = Vec::new();
        let mut last = None;
        hashes.retain(|hash| {
            match left.last_mut().filter(|_| last == Some(*hash)) {
                Some(left) => *left = left.saturating_add(1),
                None => left.push(1),
            }
            last.replace(*hash) != Some(*hash)
        });
        Done { keys, hashes, left }
    }
}

impl Done {
    /// Whether this one is done. Each time it is asked for counts.
    pub(super) fn take(&mut self, input: &[u8]) -> bool {
        let Ok(at) = self.hashes.binary_search(&hash(&self.keys, input)) else { return false };
        let is_left = self.left[at] > 0;
        self.left[at] -= u32::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_done_as_often_as_it_was() {
        let mut gathering = Gathering::new();
        for input in ["b", "a", "b", ""] {
            gathering.add(input.as_bytes());
        }
        let mut done = gathering.done();
        let asked = ["a", "b", "c", "a", "b", "b", "", ""];
        let right = [true, true, false, false, true, false, true, false];
        assert_eq!(asked.map(|input| done.take(input.as_bytes())), right);
    }
}
