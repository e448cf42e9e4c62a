//! What happens, told to whoever listens.

use super::shutdown::{self, Stage};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::Reason;
use tidegate_core::store::Happened;
use tidegate_core::{RunId, Timestamp};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};

/// How many events a subscriber may be behind before it misses some.
pub(super) const CAPACITY: usize = 1_000;

/// Something that happened. What is told of ends has been stored before.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// To which run.
    pub run: RunId,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// The run was submitted.
    Submitted,
    /// A task's body was entered.
    Began {
        /// The task.
        task: String,
        /// In which attempt.
        attempt: u32,
        /// The number of its slot, of a [command](crate::Task::command): what it finds in
        /// `TIDEGATE_SLOT`.
        slot: Option<u32>,
    },
    /// A task waits and has given its slot back.
    Deferred {
        /// The task.
        task: String,
        /// What for, in words.
        wait: String,
    },
    /// A task has done waiting.
    Resumed {
        /// The task.
        task: String,
    },
    /// A task says how far it is.
    Progress {
        /// The task.
        task: String,
        /// The fraction of the whole, from 0 to 1.
        fraction: f64,
        /// In words.
        message: String,
    },
    /// A task, or an entry of it, has ended.
    Ended {
        /// The task.
        task: String,
        /// How.
        how: Happened,
        /// Why.
        reason: Option<Reason>,
        /// In which attempt.
        attempt: u32,
        /// What went wrong, in words.
        error: Option<String>,
    },
    /// The run has ended.
    Finished {
        /// How.
        outcome: RunOutcome,
    },
}

/// Hears what happens. Made by [`Engine::subscribe`](crate::Engine::subscribe).
#[derive(Debug)]
pub struct Subscription {
    events: broadcast::Receiver<Event>,
    closing: watch::Receiver<Stage>,
    missed: Arc<AllMissed>,
}

/// How many events all subscribers have missed.
#[derive(Debug, Default)]
pub(super) struct AllMissed(AtomicU64);

impl AllMissed {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A subscriber was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// How many events it has missed. What they were of is in the store.
    pub count: u64,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events were missed", self.count)
    }
}

impl std::error::Error for Missed {}

impl Subscription {
    pub(super) fn new(
        events: broadcast::Receiver<Event>,
        closing: watch::Receiver<Stage>,
        missed: Arc<AllMissed>,
    ) -> Self {
        Subscription { events, closing, missed }
    }

    /// The next event; `None` when the engine has stopped and all was heard.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`Missed`] says how many events came too fast; the next call goes on with the oldest that is
    /// left.
    pub async fn next(&mut self) -> Result<Option<Event>, Missed> {
        let received = {
            let (mut event, mut over) =
                (pin!(self.events.recv()), pin!(shutdown::over(&mut self.closing)));
            poll_fn(|cx| match event.as_mut().poll(cx) {
                Poll::Pending => over.as_mut().poll(cx).map(|()| None),
                Poll::Ready(event) => Poll::Ready(Some(event)),
            })
            .await
        };
        // What was told before the end is still there.
        let received = received.unwrap_or_else(|| match self.events.try_recv() {
            Ok(event) => Ok(event),
            Err(TryRecvError::Lagged(count)) => Err(RecvError::Lagged(count)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => Err(RecvError::Closed),
        });
        match received {
            Ok(event) => Ok(Some(event)),
            Err(RecvError::Closed) => Ok(None),
            Err(RecvError::Lagged(count)) => {
                self.missed.0.fetch_add(count, Ordering::Relaxed);
                Err(Missed { count })
            }
        }
    }
}
