//! The global allocator: the system's, which counts while it is told to.
//!
//! Only `sample` has it count, so the figures themselves are measured with an allocator that costs one
//! load more than the system's. Memory that C code allocates (SQLite's) does not come by here.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// More than the threads of a figure, so that each has a cache line of its own.
const SHARDS: usize = 16;

static COUNTING: AtomicBool = AtomicBool::new(false);
static TOTALS: [Shard; SHARDS] = [const { Shard::new() }; SHARDS];
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

thread_local! {
    // Constant and without a destructor: its first use must not allocate.
    static SHARD_OF_THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Begins to count, in all threads, until the process ends.
pub(crate) fn start_counting() {
    COUNTING.store(true, Ordering::Relaxed);
}

pub(crate) fn is_counting() -> bool {
    COUNTING.load(Ordering::Relaxed)
}

/// The allocations so far and their bytes. A reallocation is an allocation of the bytes it adds.
pub(crate) fn totals() -> (u64, u64) {
    TOTALS.iter().fold((0, 0), |(allocations, bytes), shard| {
        let more = shard.allocations.load(Ordering::Relaxed);
        (allocations + more, bytes + shard.bytes.load(Ordering::Relaxed))
    })
}

/// Counters of a few threads. Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Shard {
    allocations: AtomicU64,
    bytes: AtomicU64,
}

impl Shard {
    const fn new() -> Self {
        Shard { allocations: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }
}

fn count(bytes: usize) {
    if !is_counting() {
        return;
    }
    let shard = SHARD_OF_THREAD.try_with(|mine| {
        mine.get().unwrap_or_else(|| {
            let shard = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
            mine.set(Some(shard));
            shard
        })
    });
    let shard = &TOTALS[shard.unwrap_or(0)];
    shard.allocations.fetch_add(1, Ordering::Relaxed);
    shard.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
}

struct CountingAllocator;

// SAFETY: every method hands its arguments to the same method of `System` and returns its answer, so
// the promises are the system's; `count` neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: the caller keeps the promises of `GlobalAlloc::realloc`.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(old, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_of_all_threads_are_counted_with_their_bytes() {
        start_counting();
        let before = totals();
        let threads: Vec<_> = (0..2 * SHARDS)
            .map(|_| std::thread::spawn(|| drop(std::hint::black_box(vec![1_u8; 10_000]))))
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        let after = totals();
        // Other tests allocate beside this one.
        assert!(after.0 - before.0 >= 2 * SHARDS as u64, "{before:?} {after:?}");
        assert!(after.1 - before.1 >= 20_000 * SHARDS as u64, "{before:?} {after:?}");
    }
}
