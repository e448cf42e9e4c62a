//! Maps by the numbers that a store gives, and the hash by which it finds equal bytes.

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

/// The FNV-1a hash of bytes, which is the same in every version of this program: stores may keep it.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TaskKey;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn hash_of_bytes_never_changes() {
        assert_eq!(hash_bytes(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash_bytes(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash_bytes(b"foobar"), 0x8594_4171_f739_67e8);
    }

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
