//! What becomes of what a command writes when its log cannot hold it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Takes what commands write when their logs cannot. Set with
/// [`EngineBuilder::log_overflow`](crate::EngineBuilder::log_overflow).
///
/// All of it is called where commands are waited for, and should be quick. What is told of a command is
/// told before its end is.
pub trait LogOverflow: Send + Sync {
    /// The log at this path cannot be written any further; what is in it stays. Said once for a command,
    /// before what it writes from here on is [put](Self::put).
    fn log_failed(&self, log: &Path, error: &io::Error);

    /// Whether there is room for more. If there is not, the task of this context is woken when there is,
    /// and until then the command waits in its writes.
    fn poll_room(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Bytes that are not in the log of this path, in order. They follow on what is in it. At its end a
    /// command may put as much as a pipe holds without asking for room.
    fn put(&self, log: &Path, bytes: &[u8]);

    /// The log is not at its path any more: it was moved or removed. What was written to it is in this
    /// file, from its beginning.
    fn log_moved(&self, log: &Path, file: File);
}

/// Where the overflow of an engine's commands goes, among the values of its tasks.
pub(crate) struct OverflowState(pub(crate) Arc<dyn LogOverflow>);
