//! Packed columns of stores that keep rows.
//!
//! Columns that statements search or compare stand by themselves. The others are packed into three: the
//! `lifecycle` of a task, its `run` in the row of a first task, and the `ending` of an ended one, which
//! is its record. A packed column begins with a version and with flags that say which of the optional
//! values follow. Numbers are written in as many bytes as they need, and a time as the
//! difference to the time before it.

mod ending;
mod lifecycle;
mod pack;
mod run;

pub use ending::{Ending, pack_ending, unpack_ending};
pub use lifecycle::{StoredLifecycle, pack_lifecycle, unpack_lifecycle};
pub use run::{StoredRun, pack_run, unpack_run};

/// The version of packed columns.
const VERSION: u8 = 1;

#[cfg(test)]
mod tests;
