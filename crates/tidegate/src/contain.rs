//! The code of users, and what it panics with.
//!
//! A panic in a body, a destructor, a callback or the words of an error belongs to one task. It is
//! caught where that code is called, so that it neither ends a driver or a loop that others need, nor
//! keeps an end from being reported.

use crate::error::Panic;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls code of a user's; a panic in it is a value.
pub(crate) fn contain_panic<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    // What the work left half-done is the user's own, or is not looked at after this.
    catch_unwind(AssertUnwindSafe(work)).map_err(Panic::from_payload)
}

/// Drops a value of a user's where nothing follows from a panic in its destructor.
pub(crate) fn discard_value<T>(value: T) {
    if let Err(panic) = contain_panic(|| drop(value)) {
        tracing::warn!(%panic, "a destructor panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that panics with another like it when it is dropped.
    struct Matryoshka(u32);

    impl Drop for Matryoshka {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Matryoshka(self.0 - 1));
            }
        }
    }

    #[test]
    fn panic_whose_value_panics_when_it_is_dropped_is_contained() {
        let panic = contain_panic(|| std::panic::panic_any(Matryoshka(3))).unwrap_err();
        assert_eq!(panic.message(), "a value that is not text");
        discard_value(Matryoshka(3));
    }
}
