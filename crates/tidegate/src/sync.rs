//! The lock everything here stands on, and wakers gathered under it.
//!
//! With `--cfg shuttle` the lock is the concurrency checker's, which tries the orders in which
//! threads may take it.

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;
use std::task::Waker;

/// Locks. What a lock guards here is changed in steps that do not panic half-way, so a holder's
/// panic leaves nothing half-done and the lock stays usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakers gathered under a lock, to be woken (or dropped) after it: a waker may run somebody
/// else's code, which may want the same lock. Nearly always there is only one.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakers {
    pub(crate) fn push(&mut self, waker: Waker) {
        match self.first {
            None => self.first = Some(waker),
            Some(_) => self.rest.push(waker),
        }
    }

    /// Adds the waker unless one that wakes the same task is there.
    pub(crate) fn register(&mut self, waker: &Waker) {
        if !self.first.iter().chain(&self.rest).any(|known| known.will_wake(waker)) {
            self.push(waker.clone());
        }
    }

    pub(crate) fn take(&mut self) -> Wakers {
        std::mem::take(self)
    }

    pub(crate) fn wake(self) {
        if self.first.is_none() {
            return;
        }
        self.first.into_iter().chain(self.rest).for_each(Waker::wake);
    }
}
