//! What several of the tests stand on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How many are inside at once, and the most there ever were.
#[derive(Clone, Default)]
pub(crate) struct Crowd(Arc<(AtomicUsize, AtomicUsize)>);

/// Somebody inside; leaves when dropped.
pub(crate) struct Inside(Crowd);

impl Crowd {
    pub(crate) fn enter(&self) -> Inside {
        let inside = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(inside, Ordering::SeqCst);
        Inside(self.clone())
    }

    pub(crate) fn now(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
