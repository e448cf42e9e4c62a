//! What commands write and their logs cannot hold is shown all the same, as it comes: a disk that is full
//! must not make stdout shorter than what commands wrote.
//!
//! Little of it is kept: while there is no room, commands wait in their writes.

use super::follow::Follower;
use super::{Out, Shared, Show, Teller};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, Waker};
use tidegate::process::LogOverflow;

/// So many bytes may wait to be written before commands wait too.
const BYTES_MAX: usize = 1 << 20;

/// What is on its way past the logs.
#[derive(Default)]
pub(super) struct Overflowing {
    bytes: usize,
    /// Who waits for room.
    wakers: Vec<Waker>,
    /// Logs that are not at their path.
    moved: HashMap<PathBuf, File>,
}

impl Overflowing {
    /// The file of a log that is not at its path.
    pub(super) fn take_moved(&mut self, log: &Path) -> Option<File> {
        self.moved.remove(log)
    }

    /// Follows a log, wherever it is.
    pub(super) fn follow(&mut self, log: PathBuf) -> Follower {
        let moved = self.take_moved(&log);
        Follower::streamed(log).in_file(moved)
    }
}

impl Out {
    /// How much of it is on its way past a log.
    pub(super) fn overflow(&self) -> usize {
        match self {
            Out::Overflow(_, bytes) => bytes.len(),
            _ => 0,
        }
    }
}

impl Shared {
    /// So much of it is written.
    pub(super) fn overflow_is_written(&self, bytes: usize) {
        if bytes > 0 {
            let mut state = self.lock();
            state.overflow.bytes -= bytes;
            let wakers = match state.overflow.bytes < BYTES_MAX {
                true => std::mem::take(&mut state.overflow.wakers),
                false => Vec::new(),
            };
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl LogOverflow for Teller {
    fn log_failed(&self, log: &Path, error: &io::Error) {
        let what = match self.shared.manner.show {
            Show::None => "what the command writes from here on is lost",
            _ => "what the command writes from here on is shown as it comes, and not kept",
        };
        self.line(format!("cannot write the log {}: {error}; {what}", log.display()));
    }

    fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.lock();
        if state.overflow.bytes < BYTES_MAX {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !state.overflow.wakers.iter().any(|other| other.will_wake(waker)) {
            state.overflow.wakers.push(waker.clone());
        }
        Poll::Pending
    }

    fn put(&self, log: &Path, bytes: &[u8]) {
        if self.shared.manner.show == Show::None {
            return;
        }
        let mut state = self.shared.lock();
        state.overflow.bytes += bytes.len();
        let follower = state.overflow.follow(log.to_owned());
        state.outs.push_back(Out::Overflow(follower, bytes.to_vec()));
        drop(state);
        self.shared.news.notify_one();
    }

    fn log_moved(&self, log: &Path, file: File) {
        let is_shown = self.shared.manner.show != Show::None;
        self.line(format!("the log {} was moved or removed while it was written", log.display()));
        if is_shown {
            self.shared.lock().overflow.moved.insert(log.to_owned(), file);
        }
    }
}
