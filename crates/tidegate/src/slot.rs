//! Slots: the right to be computing now.
//!
//! - [`SlotPool`] hands them out; clones share the pool.
//! - [`SlotToken`] is the right itself: released for a while, reclaimed, given back by dropping.
//! - `InLine` is a place in the queue; every future that waits for a slot stands on it.
//! - [`Spawned`] is work running on a slot.
//! - `Numbers` tell the slots of commands apart.
//!
//! Who is next is decided by [`tidegate_core::slot::SlotBook`]; this module guards it with a lock
//! and wakes whom it names, after the lock is let go.

mod line;
mod number;
mod pool;
mod run;
mod token;

pub(crate) use line::InLine;
pub(crate) use number::{Numbers, Taken};
pub(crate) use pool::Ended;
pub use pool::{Acquire, SlotPool, Totals, Waiter};
pub(crate) use run::guarded;
pub use run::{Plain, Running, Spawned, WithHandle, Work};
pub use token::{Reclaim, SlotToken};
