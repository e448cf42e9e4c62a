//! Numbers for slots, for those who want to tell them apart: a command may have a port or a folder of
//! its own by the number of its slot.
//!
//! A pool counts units and does not number them. Whoever has a slot may take numbers for its units,
//! and gives them back before the slot: so there are never more taken than there are units, and the
//! smallest that are free are within the capacity, unless the pool has become smaller.

use crate::sync::{Mutex, lock};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The numbers that are taken.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<BTreeSet<u32>>);

/// Numbers that nobody else has until they are dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    of: Arc<Numbers>,
    numbers: Vec<u32>,
}

impl Numbers {
    /// Takes the smallest free numbers from 1 on, one for each unit.
    pub(crate) fn take(self: &Arc<Self>, weight: u32) -> Taken {
        let mut taken = lock(&self.0);
        let free = (1..).filter(|number| !taken.contains(number));
        let numbers: Vec<u32> = free.take(weight as usize).collect();
        taken.extend(&numbers);
        Taken { of: self.clone(), numbers }
    }
}

impl Taken {
    /// The smallest of them.
    pub(crate) fn first(&self) -> Option<u32> {
        self.numbers.first().copied()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = lock(&self.of.0);
        taken.retain(|number| !self.numbers.contains(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_free_numbers_are_taken_and_nobody_s_twice() {
        let numbers = Arc::new(Numbers::default());
        let (one, two, heavy) = (numbers.take(1), numbers.take(1), numbers.take(2));
        assert_eq!([one.first(), two.first(), heavy.first()], [Some(1), Some(2), Some(3)]);
        drop(one);
        // The heavy one has 3 and 4.
        let (again, next) = (numbers.take(1), numbers.take(1));
        assert_eq!([again.first(), next.first()], [Some(1), Some(5)]);
        drop((two, again, heavy));
        assert_eq!(numbers.take(3).first(), Some(1));
        assert_eq!(lock(&numbers.0).len(), 1);
    }
}
