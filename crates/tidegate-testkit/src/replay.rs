//! Whether the lifecycle allows what a store has made of a task.
//!
//! A request goes through its parts in a fixed order, and each part may happen to a task or not. So
//! all lives that a task may have after a request are found by applying, part by part, the events that
//! the request can bring; what the store shows must be one of them.

use std::time::Duration;
use tidegate_core::lifecycle::{CancelledBy, Event, Life, Rules, State};
use tidegate_core::store::{Operation, Request, TaskKey};
use tidegate_core::wait::WaitOp;
use tidegate_core::{RunId, Timestamp};

/// What of a task its life does not say.
pub(crate) struct Subject<'s> {
    pub(crate) key: TaskKey,
    pub(crate) run: RunId,
    pub(crate) rules: &'s Rules,
    pub(crate) not_before: Option<Timestamp>,
    /// Whether its run has just begun and takes over from another.
    pub(crate) is_new_retry: bool,
    /// Whether the task that has begun its run has ended, other than by success.
    pub(crate) is_orphan: bool,
    /// Whether something came in the request that a task may have waited for: a signal, the end of a
    /// run, what another did not wait for any more.
    pub(crate) something_came: bool,
    /// The latest time that any request has told: what was due by then may stay so for a request whose
    /// clock is behind.
    pub(crate) latest: Timestamp,
}

/// What a part of a request may bring to a task that stands like this.
type Part = fn(&Subject<'_>, &Request, &Life) -> Vec<Event>;

/// Whether a request can make `to` of `from`.
pub(crate) fn allows(subject: &Subject<'_>, request: &Request, from: &Life, to: &Life) -> bool {
    let mut lives = vec![from.clone()];
    for change in request.changes.iter().filter(|change| change.task == subject.key) {
        also(&mut lives, |life| {
            let all = change
                .events
                .iter()
                .try_fold(life.clone(), |life, event| next(subject, request, &life, event));
            all.into_iter().collect()
        });
    }
    // What wakes a task may come before its run is asked for, and after.
    let parts: [Part; 9] =
        [woken, recovered, clocked, cancelled, taken_over, settled, woken, claimed, begun];
    for part in parts {
        also(&mut lives, |life| {
            let events = part(subject, request, life);
            events.iter().filter_map(|event| next(subject, request, life, event)).collect()
        });
    }
    lives.contains(to)
}

/// Adds what may become of those that are there.
fn also(lives: &mut Vec<Life>, become_of: impl Fn(&Life) -> Vec<Life>) {
    let more: Vec<Life> = lives.iter().flat_map(become_of).collect();
    lives.extend(more);
}

fn next(subject: &Subject<'_>, request: &Request, life: &Life, event: &Event) -> Option<Life> {
    let now = match (event, &life.state) {
        (Event::Claim { .. }, State::Ready { due, .. }) if *due <= subject.latest => {
            crate::time_of(request).max(*due)
        }
        _ => crate::time_of(request),
    };
    Some(life.next(subject.rules, event, now).ok()?.into_life())
}

/// What a task waits for is not told; that something came is.
fn woken(subject: &Subject<'_>, _: &Request, _: &Life) -> Vec<Event> {
    subject.something_came.then_some(Event::Wake).into_iter().collect()
}

/// Only what the dead worker owned is taken over.
fn recovered(_: &Subject<'_>, request: &Request, life: &Life) -> Vec<Event> {
    match (&life.state, request.recover) {
        (State::Running { worker, .. }, Some(dead)) if *worker == dead => vec![Event::Recover],
        _ => Vec::new(),
    }
}

fn clocked(_: &Subject<'_>, request: &Request, life: &Life) -> Vec<Event> {
    let mut events = vec![Event::Clock { stood_still: Duration::ZERO }];
    if let State::Parked { wake: Some(wake), .. } = life.state
        && wake <= crate::time_of(request)
    {
        events.push(Event::Wake);
    }
    events
}

fn cancelled(subject: &Subject<'_>, request: &Request, _: &Life) -> Vec<Event> {
    let by_user = subject.is_orphan || request.operations.contains(&Operation::Cancel(subject.run));
    let mut waits = request.changes.iter().flat_map(|change| &change.waits);
    let by_parent = waits.any(|op| matches!(op, WaitOp::Close(_)));
    let by_user = by_user.then_some(CancelledBy::User);
    let by_parent = by_parent.then_some(CancelledBy::Upstream);
    by_user.into_iter().chain(by_parent).map(|by| Event::Cancel { by }).collect()
}

fn taken_over(subject: &Subject<'_>, _: &Request, _: &Life) -> Vec<Event> {
    subject.is_new_retry.then_some(Event::TakeOver).into_iter().collect()
}

fn settled(subject: &Subject<'_>, request: &Request, _: &Life) -> Vec<Event> {
    vec![
        Event::Unblock { not_before: subject.not_before.unwrap_or(crate::time_of(request)) },
        Event::Skip,
        Event::Cancel { by: CancelledBy::FailFast },
        Event::Stop { by: CancelledBy::FailFast },
    ]
}

fn claimed(_: &Subject<'_>, request: &Request, _: &Life) -> Vec<Event> {
    request.worker.map(|worker| Event::Claim { worker }).into_iter().collect()
}

/// What was claimed in an earlier request begins when its worker says so, not here.
fn begun(_: &Subject<'_>, request: &Request, life: &Life) -> Vec<Event> {
    match life.state {
        State::Running { worker, .. } if request.worker == Some(worker) => {
            vec![Event::Begin { fence: life.fence }]
        }
        _ => Vec::new(),
    }
}
