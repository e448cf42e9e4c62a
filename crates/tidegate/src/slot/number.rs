//! Numbers for slots, for those who want to tell them apart: a command may have a port or a folder of
//! its own by the number of its slot.
//!
//! A pool counts units and does not number them. Whoever has a slot may take numbers for its units,
//! and gives them back before the slot: so there are never more taken than there are units, and the
//! smallest that are free are within the capacity, unless the pool has become smaller.

use crate::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The numbers that are taken, as ranges from the first to the last: a task may weigh as much as four
/// thousand million others.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<BTreeMap<u32, u32>>);

/// Numbers that nobody else has until they are dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    of: Arc<Numbers>,
    ranges: Vec<RangeInclusive<u32>>,
}

impl Numbers {
    /// Takes the smallest free numbers from 1 on, one for each unit.
    pub(crate) fn take(self: &Arc<Self>, weight: u32) -> Taken {
        let mut taken = lock(&self.0);
        let (mut ranges, mut next, mut left) = (Vec::new(), 1_u32, weight);
        let ends = taken.iter().map(|(&first, &last)| (first, Some(last)));
        for (first, last) in ends.chain([(u32::MAX, None)]) {
            // Up to the next that is taken, or to the last number there is.
            let free = first.saturating_sub(next).saturating_add(u32::from(last.is_none()));
            let fits = free.min(left);
            if fits > 0 {
                ranges.push(next..=next + (fits - 1));
                left -= fits;
            }
            match last.and_then(|last| last.checked_add(1)) {
                Some(after) if left > 0 => next = after,
                _ => break,
            }
        }
        taken.extend(ranges.iter().map(|range| (*range.start(), *range.end())));
        Taken { of: self.clone(), ranges }
    }
}

impl Taken {
    /// The smallest of them.
    pub(crate) fn first(&self) -> Option<u32> {
        self.ranges.first().map(|range| *range.start())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = lock(&self.of.0);
        for range in &self.ranges {
            taken.remove(range.start());
        }
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

    #[test]
    fn numbers_between_others_are_filled_before_those_behind() {
        let numbers = Arc::new(Numbers::default());
        let [one, _two, three, _four] = [1, 1, 2, 1].map(|weight| numbers.take(weight));
        drop((one, three));
        // Free are 1, 3 and 4, and all from 6 on.
        let spread = numbers.take(5);
        assert_eq!(spread.ranges, [1..=1, 3..=4, 6..=7]);
        assert_eq!(numbers.take(1).first(), Some(8));
    }

    #[test]
    fn all_numbers_there_are_can_be_taken_at_once() {
        let numbers = Arc::new(Numbers::default());
        let all = numbers.take(u32::MAX);
        assert_eq!(all.ranges, [1..=u32::MAX]);
        assert_eq!(numbers.take(1).first(), None);
        drop(all);
        let (two, rest) = (numbers.take(2), numbers.take(u32::MAX));
        assert_eq!((two.first(), rest.ranges.clone()), (Some(1), vec![3..=u32::MAX]));
        assert_eq!(numbers.take(0).first(), None);
    }
}
