//! Maps by the numbers that a store gives.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by keys of tasks or runs. A store counts them up, so nobody outside chooses them, and one
/// multiplication spreads them as well as the usual hash that is made against malice.
pub type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// Spreads numbers that follow each other.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio of 2^64; the high bits are the good ones, and both ends are looked at.
        let spread = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TaskKey;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn numbers_that_follow_each_other_are_spread_over_both_ends_of_the_hash() {
        let hasher = BuildHasherDefault::<KeyHasher>::default();
        let hashes: Vec<u64> = (0..4_096).map(|key| hasher.hash_one(TaskKey(key))).collect();
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 4_095).collect();
        let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        // As random ones would be: about 63 % of the places are taken.
        assert!(low.len() > 2_300, "{}", low.len());
        assert_eq!(high.len(), 128);
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), 4_096);
    }
}
