//! A task under way, as the conductor sees it.
//!
//! Each worker has one cell. The conductor sets a task's stop there; the worker sees it before and
//! after every poll that does not end the body. Whoever takes the task's [`Card`] reports its end, so that it is
//! reported once: usually the worker, or the conductor when the time is up and the body is stuck in
//! a poll.

use crate::attempt::Attempt;
use crate::sync::{Mutex, lock};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use tokio::time::Instant;

/// What is known of a task from its beginning.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) queued: Duration,
    pub(super) began: Instant,
}

/// Why a task has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Timeout,
    Cancel,
}

#[derive(Default)]
pub(super) struct Cell {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    card: Option<Card>,
    attempt: Option<Arc<Attempt>>,
    stop: Option<Stop>,
    /// The body is in a poll. If that takes long, its thread is blocked.
    polling: bool,
    waker: Option<Waker>,
}

/// What the conductor finds when it looks whether the time is up.
pub(super) enum Time {
    /// So much is left.
    Left(Duration),
    /// It is up, and the worker will see to it.
    Up(Option<Waker>),
    /// It is up, and the body is stuck in a poll: the conductor has to report it.
    Stuck(Card),
    /// Nothing is under way.
    Idle,
}

impl Cell {
    /// A task begins; its first poll follows at once.
    pub(super) fn begin(&self, card: Card) {
        let mut state = lock(&self.state);
        state.card = Some(card);
        state.stop = None;
        state.polling = true;
    }

    /// The task may wait; this is how much time it has used.
    pub(super) fn attach(&self, attempt: Arc<Attempt>) {
        lock(&self.state).attempt = Some(attempt);
    }

    /// The body is about to be polled again, unless it has to stop.
    pub(super) fn enter(&self) -> Result<(), Stop> {
        let mut state = lock(&self.state);
        state.polling = state.stop.is_none();
        state.stop.map_or(Ok(()), Err)
    }

    /// The body was polled and goes on, unless it has to stop.
    pub(super) fn leave(&self, waker: &Waker) -> Result<(), Stop> {
        let mut state = lock(&self.state);
        state.polling = false;
        let stale = match &state.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => state.waker.replace(waker.clone()),
        };
        let stop = state.stop;
        drop(state);
        drop(stale);
        stop.map_or(Ok(()), Err)
    }

    /// The end: the card, unless the conductor has reported it.
    pub(super) fn end(&self) -> Option<Card> {
        let mut state = lock(&self.state);
        state.polling = false;
        let over = state.attempt.take();
        let card = state.card.take();
        drop(state);
        drop(over);
        card
    }

    /// Stops the task, unless it is over. The waker is to be woken after all locks.
    pub(super) fn stop(&self, only_waiting: bool) -> Option<Waker> {
        let mut state = lock(&self.state);
        let waits = state.attempt.as_ref().is_some_and(|attempt| attempt.is_waiting());
        if state.card.is_none() || state.stop.is_some() || (only_waiting && !waits) {
            return None;
        }
        state.stop = Some(Stop::Cancel);
        state.waker.take()
    }

    /// The name of the task under way.
    pub(super) fn name(&self) -> String {
        lock(&self.state).card.as_ref().map(|card| card.name.clone()).unwrap_or_default()
    }

    /// Looks whether the task has used up its time.
    pub(super) fn check_time(&self, limit: Duration, now: Instant) -> Time {
        let mut state = lock(&self.state);
        let Some(card) = &state.card else { return Time::Idle };
        if state.stop.is_some() {
            return Time::Idle;
        }
        let used = match state.attempt.as_ref().map(|attempt| attempt.active()) {
            Some((used, true)) => used,
            // The clock stands still; going on, the worker says if that needs an earlier look.
            Some((_, false)) => return Time::Idle,
            None => now.saturating_duration_since(card.began),
        };
        if used < limit {
            return Time::Left(limit - used);
        }
        state.stop = Some(Stop::Timeout);
        match state.polling {
            true => state.card.take().map_or(Time::Idle, Time::Stuck),
            false => Time::Up(state.waker.take()),
        }
    }
}
