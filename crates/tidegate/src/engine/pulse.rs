//! A thread that wakes the loop now and then, whatever the runtime's threads do.
//!
//! Of a runtime's threads one waits for timers and sockets. If it leaves that for a body which blocks
//! it, the others may sleep on, and nobody looks at the timers until that body returns: a time-out
//! would be reported late, by the very body it is for. A word from outside the runtime wakes another
//! thread, which takes its place.

use super::Message;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::WeakUnboundedSender;

/// How late a timer may be because of a body that blocks.
const EVERY: Duration = Duration::from_millis(250);

/// The thread, which ends with this.
pub(super) struct Pulse {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Pulse {
    /// Wakes the loop behind this channel. On a runtime with one thread there is none to take its
    /// place, and no use in it.
    pub(super) fn start(inbox: WeakUnboundedSender<Message>) -> Option<Self> {
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return None;
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let beat = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout)
                && inbox.upgrade().is_some_and(|inbox| inbox.send(Message::Pulse).is_ok())
            {
            }
        };
        let thread = thread::Builder::new().name("tidegate-pulse".to_owned()).spawn(beat);
        let thread = thread.inspect_err(|error| {
            tracing::warn!(%error, "no thread for the pulse; a body that blocks may delay time-outs");
        });
        Some(Pulse { stop, thread: thread.ok()? })
    }

    /// Nothing of it is left once this returns.
    pub(super) fn stop(self) {
        drop(self.stop);
        // It has nothing that could panic.
        let _ = self.thread.join();
    }
}
