//! Doubly linked queues whose nodes live in one block of memory.
//!
//! [`Nodes`] owns the values; a [`Chain`] is the two ends of one queue through them. Any number of
//! chains share the block, so an empty queue costs nothing, and a node is taken out of the middle
//! in constant time: a waiter that gives up leaves nothing behind.
//!
//! A [`Key`] stays valid until its node is removed. Using it afterwards is a programmer's error and
//! panics or meets a stranger's node; the types that hold keys never hand them out.

/// Where a node lies. Not to be used after the node's removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u32);

const NIL: u32 = u32::MAX;

/// An empty block this small keeps its memory for the next waiter; a larger one, left behind by a
/// burst, gives it back.
const KEEP: usize = 1024;

/// The nodes of all chains, each with a value.
#[derive(Debug)]
pub struct Nodes<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// `None` while the place is free; `next` is then the next free place.
    value: Option<T>,
    prev: u32,
    next: u32,
}

/// The two ends of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    head: u32,
    tail: u32,
}

impl Chain {
    /// A queue with nobody in it.
    pub const EMPTY: Chain = Chain { head: NIL, tail: NIL };

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Who is first.
    pub fn first(&self) -> Option<Key> {
        (self.head != NIL).then_some(Key(self.head))
    }
}

impl Default for Chain {
    fn default() -> Self {
        Chain::EMPTY
    }
}

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        Nodes { slots: Vec::new(), free: NIL, len: 0 }
    }
}

impl<T> Nodes<T> {
    /// How many nodes there are, in chains or outside.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A new node that is in no chain.
    ///
    /// # Panics
    /// With more than four billion nodes.
    pub fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if self.free != NIL {
            let at = self.free;
            let slot = &mut self.slots[at as usize];
            self.free = slot.next;
            *slot = Slot { value: Some(value), prev: NIL, next: NIL };
            return Key(at);
        }
        let at = u32::try_from(self.slots.len()).ok().filter(|&at| at != NIL);
        let at = at.expect("four billion nodes do not fit in memory");
        self.slots.push(Slot { value: Some(value), prev: NIL, next: NIL });
        Key(at)
    }

    /// Takes a node that is in no chain away.
    pub fn remove(&mut self, key: Key) -> T {
        let slot = &mut self.slots[key.0 as usize];
        debug_assert!(slot.prev == NIL && slot.next == NIL, "unlink a node before removing it");
        let value = slot.value.take().expect("a key is not used after its node's removal");
        slot.next = self.free;
        self.free = key.0;
        self.len -= 1;
        if self.len == 0 && self.slots.len() > KEEP {
            *self = Nodes::default();
        }
        value
    }

    /// The node's value.
    pub fn get(&self, key: Key) -> &T {
        let value = self.slots[key.0 as usize].value.as_ref();
        value.expect("a key is not used after its node's removal")
    }

    /// The node's value, to change.
    pub fn get_mut(&mut self, key: Key) -> &mut T {
        let value = self.slots[key.0 as usize].value.as_mut();
        value.expect("a key is not used after its node's removal")
    }

    /// Puts the node at the end of the chain.
    pub fn push_back(&mut self, chain: &mut Chain, key: Key) {
        self.insert_sorted(chain, key, |_, _| false);
    }

    /// Puts the node behind everybody it does not come `before`, looking from the end: constant
    /// time when it belongs last.
    pub fn insert_sorted(&mut self, chain: &mut Chain, key: Key, before: impl Fn(&T, &T) -> bool) {
        let mut prev = chain.tail;
        while prev != NIL && before(self.get(key), self.get(Key(prev))) {
            prev = self.slots[prev as usize].prev;
        }
        let next = if prev == NIL { chain.head } else { self.slots[prev as usize].next };
        let slot = &mut self.slots[key.0 as usize];
        slot.prev = prev;
        slot.next = next;
        match prev {
            NIL => chain.head = key.0,
            _ => self.slots[prev as usize].next = key.0,
        }
        match next {
            NIL => chain.tail = key.0,
            _ => self.slots[next as usize].prev = key.0,
        }
    }

    /// Takes the node out of the chain it is in; it stays a node.
    pub fn unlink(&mut self, chain: &mut Chain, key: Key) {
        let slot = &mut self.slots[key.0 as usize];
        let (prev, next) = (slot.prev, slot.next);
        (slot.prev, slot.next) = (NIL, NIL);
        match prev {
            NIL => {
                debug_assert_eq!(chain.head, key.0, "the node is in another chain");
                chain.head = next;
            }
            _ => self.slots[prev as usize].next = next,
        }
        match next {
            NIL => chain.tail = prev,
            _ => self.slots[next as usize].prev = prev,
        }
    }

    /// Takes the first node out of the chain; it stays a node.
    pub fn pop_front(&mut self, chain: &mut Chain) -> Option<Key> {
        let key = chain.first()?;
        self.unlink(chain, key);
        Some(key)
    }

    /// Who is behind this node in its chain.
    pub fn next(&self, key: Key) -> Option<Key> {
        let next = self.slots[key.0 as usize].next;
        (next != NIL).then_some(Key(next))
    }

    /// The values of all nodes, in chains or outside.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// The nodes of a chain, first to last.
    pub fn iter<'a>(&'a self, chain: &Chain) -> impl Iterator<Item = (Key, &'a T)> {
        std::iter::successors(chain.first(), |&key| self.next(key)).map(|key| (key, self.get(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(nodes: &Nodes<u32>, chain: &Chain) -> Vec<u32> {
        nodes.iter(chain).map(|(_, &value)| value).collect()
    }

    #[test]
    fn a_chain_keeps_its_order_when_nodes_leave_from_the_middle() {
        let mut nodes = Nodes::default();
        let mut chain = Chain::EMPTY;
        let keys: Vec<_> = (0..5).map(|value| nodes.insert(value)).collect();
        for &key in &keys {
            nodes.push_back(&mut chain, key);
        }
        nodes.unlink(&mut chain, keys[2]);
        assert_eq!(nodes.remove(keys[2]), 2);
        nodes.unlink(&mut chain, keys[0]);
        nodes.unlink(&mut chain, keys[4]);
        assert_eq!(values(&nodes, &chain), [1, 3]);
        assert_eq!(nodes.pop_front(&mut chain), Some(keys[1]));
        assert_eq!(nodes.pop_front(&mut chain), Some(keys[3]));
        assert_eq!(nodes.pop_front(&mut chain), None);
        assert!(chain.is_empty());
    }

    #[test]
    fn a_sorted_insert_goes_behind_its_equals() {
        let mut nodes = Nodes::default();
        let mut chain = Chain::EMPTY;
        for value in [30, 10, 20, 11, 31, 12] {
            let key = nodes.insert(value);
            nodes.insert_sorted(&mut chain, key, |a, b| a / 10 < b / 10);
        }
        assert_eq!(values(&nodes, &chain), [10, 11, 12, 20, 30, 31]);
    }

    #[test]
    fn places_are_used_again() {
        let mut nodes = Nodes::default();
        let keep = nodes.insert(0);
        let first = nodes.insert(1);
        nodes.remove(first);
        assert_eq!(nodes.insert(2), first);
        assert_eq!((nodes.len(), *nodes.get(keep)), (2, 0));
    }
}
