//! A thread that wakes the loop now and then, whatever the runtime's threads do.
//!
//! Of a runtime's threads one waits for timers and sockets. If it leaves that for a body which blocks
//! it, the others may sleep on, and nobody looks at the timers until that body returns: a time-out
//! would be reported late, by the very body it is for. A word from outside the runtime wakes another
//! thread, which takes its place.

use super::Message;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::WeakUnboundedSender;

/// How late a timer may be because of a body that blocks.
const EVERY: Duration = Duration::from_millis(250);

/// Wakes the loop behind this channel until that is gone.
pub(super) fn start(inbox: WeakUnboundedSender<Message>) {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        // There is no other thread to take its place.
        return;
    }
    let beat = move || {
        loop {
            thread::sleep(EVERY);
            let sent = inbox.upgrade().is_some_and(|inbox| inbox.send(Message::Pulse).is_ok());
            if !sent {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("tidegate-pulse".to_owned()).spawn(beat);
    if let Err(error) = thread {
        tracing::warn!(%error, "no thread for the pulse; a body that blocks may delay time-outs");
    }
}
