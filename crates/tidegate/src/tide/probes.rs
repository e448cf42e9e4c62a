//! The shared poller: checks of conditions that own their data.
//!
//! A [`Probe`] is one condition at one pace, with everybody who waits for it. The driver makes its
//! check; a check that is not done at once goes on in a task of its own, so that a slow one delays
//! nobody. All wait for the same answer, and each gets one from a check that began after it came.

use super::pace::Pace;
use super::wheel::{Rouse, Wheel};
use super::{Tide, Watch};
use crate::condition::Condition;
use crate::contain::{contain_panic, discard_value};
use crate::error::Panic;
use crate::slot::SlotToken;
use crate::sync::{Wakers, lock};
use crate::task_error::TaskError;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate_core::chain::{Chain, Key, Nodes};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A condition that can be looked at again and again. A poll begins a check if none is under way.
pub(crate) trait Check: Send {
    fn poll_check(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<bool, TaskError>>;
}

/// The condition's name and the identity of its pace.
type MergeKey = (Arc<str>, (u64, u64, u32, u32));

#[derive(Default)]
pub(super) struct Probes {
    probes: Nodes<Probe>,
    subscribers: Nodes<Subscriber>,
    merged: HashMap<MergeKey, Key>,
    /// Probes whose check is due, waiting for leave to be made.
    due: Chain,
    #[cfg(test)]
    pub(super) tally: Tally,
}

/// What tests count.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Tally {
    pub(super) begun: usize,
    pub(super) ended: usize,
    /// The most that were under way at once.
    pub(super) most: usize,
}

#[cfg(test)]
impl Tally {
    /// One has begun, and so many are over but not counted as ended yet.
    fn count(&mut self, over: usize) {
        self.most = self.most.max(self.begun - self.ended - over);
    }
}

struct Probe {
    merge: Option<Box<MergeKey>>,
    /// The file it looks at, if it does: something may happen to it before the next check is due.
    watch: Option<Watch>,
    pace: Pace,
    /// When the present or next check is due.
    due: Instant,
    subscribers: Chain,
    /// How many subscribers no check has answered yet.
    fresh: u32,
    /// Counts the checks begun.
    round: u64,
    state: State,
}

enum State {
    Resting {
        check: Pin<Box<dyn Check>>,
        timer: Option<Key>,
    },
    Due {
        check: Pin<Box<dyn Check>>,
    },
    /// `stop` ends a check that nobody waits for any more.
    UnderWay {
        stop: Option<CancellationToken>,
    },
}

struct Subscriber {
    probe: Key,
    /// The round under way, or the last, when it came: a later one answers it.
    came: u64,
    state: SubscriberState,
}

use SubscriberState::{Done, Fresh, Waiting};

enum SubscriberState {
    /// No check that began after it came has ended.
    Fresh(Waker),
    Waiting(Waker),
    Done(Box<Outcome>),
}

/// How far the first check of a condition has come when somebody subscribes.
pub(crate) enum First {
    /// Not begun.
    Due,
    /// Begun, with this leave to check.
    UnderWay(SlotToken),
    /// It said no.
    No,
}

type Outcome = Result<Result<(), TaskError>, Panic>;

/// What a subscriber knows.
pub(crate) enum Subscribed {
    /// No check that began after it came has ended.
    Checking,
    /// Checked at least once; not true yet.
    Waiting,
    /// True, or ended by an error.
    Done(Result<(), TaskError>),
}

impl Probes {
    #[cfg(all(test, feature = "watch", target_os = "linux"))]
    pub(super) fn due_first(&self) -> Option<Instant> {
        self.probes.values().map(|probe| probe.due).min()
    }

    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The time of a probe at rest has come.
    pub(super) fn make_due(&mut self, key: Key) -> Option<Key> {
        let probe = self.probes.get_mut(key);
        let state = std::mem::replace(&mut probe.state, State::UnderWay { stop: None });
        let State::Resting { check, timer } = state else {
            unreachable!("only a probe at rest becomes due")
        };
        probe.state = State::Due { check };
        self.probes.push_back(&mut self.due, key);
        timer
    }

    /// The wakers of all who wait, for when the driver is gone.
    pub(super) fn wakers(&self) -> Wakers {
        let mut wakers = Wakers::default();
        for subscriber in self.subscribers.values() {
            if let Fresh(waker) | Waiting(waker) = &subscriber.state {
                wakers.push(waker.clone());
            }
        }
        wakers
    }

    /// A check begins.
    fn begin(&mut self, key: Key) -> Pin<Box<dyn Check>> {
        #[cfg(test)]
        {
            self.tally.begun += 1;
        }
        let probe = self.probes.get_mut(key);
        probe.round += 1;
        if let Some(watch) = &probe.watch {
            watch.begin(Instant::now());
        }
        match std::mem::replace(&mut probe.state, State::UnderWay { stop: None }) {
            State::Due { check } | State::Resting { check, timer: None } => check,
            _ => unreachable!("a check begins when it is due"),
        }
    }

    /// The check that has been due the longest begins.
    fn begin_next(&mut self) -> Option<(Key, Pin<Box<dyn Check>>)> {
        let key = self.probes.pop_front(&mut self.due)?;
        Some((key, self.begin(key)))
    }

    fn forget(&mut self, key: Key) -> Probe {
        let probe = self.probes.remove(key);
        if let Some(merge) = &probe.merge {
            self.merged.remove(merge);
        }
        if let Some(watch) = &probe.watch {
            watch.unbind();
        }
        probe
    }
}

/// Checks made before the next ones are planned: few enough that a probe is still in the cache.
const CHUNK: usize = 32;

/// Makes checks that are due, a bounded number, one after the other with one leave to check; one
/// that is not done at once goes on elsewhere and takes the leave with it. Says whether there may
/// be more to do.
pub(super) fn check_due(tide: &Arc<Tide>, mut permit: Option<SlotToken>) -> bool {
    let mut checked = Vec::with_capacity(CHUNK);
    let mut more = true;
    for _ in 0..super::TURN {
        if checked.len() == CHUNK {
            finish(tide, checked.drain(..));
        }
        let mut probes = lock(&tide.probes);
        more = probes.has_due();
        if !more {
            break;
        }
        if permit.is_none() {
            permit = tide.permits().try_acquire(1).ok();
        }
        // Without leave to check, the driver waits for it in line.
        let Some(leave) = permit.take() else {
            more = false;
            break;
        };
        let (key, mut check) = probes.begin_next().expect("a check is due");
        #[cfg(test)]
        probes.tally.count(checked.len());
        drop(probes);
        // Most checks are done at once. The waker does not matter: the task that goes on with a
        // check polls it again first of all.
        let mut cx = Context::from_waker(Waker::noop());
        match contain_panic(|| check.as_mut().poll_check(&mut cx)) {
            Ok(Poll::Ready(answer)) => {
                permit = Some(leave);
                checked.push(drop_done(key, check, Ok(answer)));
            }
            Ok(Poll::Pending) => {
                UnderWay { tide: tide.clone(), key, check: Some(check) }.spawn(leave);
            }
            Err(panic) => {
                permit = Some(leave);
                checked.push(drop_done(key, check, Err(panic)));
            }
        }
    }
    finish(tide, checked);
    more
}

/// A check that is being made. If it is dropped before it is done, its runtime has gone away, and
/// those who wait are told.
struct UnderWay {
    tide: Arc<Tide>,
    key: Key,
    check: Option<Pin<Box<dyn Check>>>,
}

impl UnderWay {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let check = self.check.as_mut().expect("a check is polled until it is done");
        let outcome = match contain_panic(|| check.as_mut().poll_check(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => Ok(answer),
            Err(panic) => Err(panic),
        };
        let check = self.check.take().expect("it was just polled");
        finish(&self.tide, [drop_done(self.key, check, outcome)]);
        Poll::Ready(())
    }

    /// Goes on in a task of its own.
    fn spawn(self, permit: SlotToken) {
        let stop = CancellationToken::new();
        let mut probes = lock(&self.tide.probes);
        let probe = probes.probes.get_mut(self.key);
        probe.state = State::UnderWay { stop: Some(stop.clone()) };
        let forsaken = probe.subscribers.is_empty();
        drop(probes);
        if forsaken {
            stop.cancel();
        }
        tokio::spawn(self.go_on(stop, permit));
    }

    async fn go_on(mut self, stop: CancellationToken, _permit: SlotToken) {
        let mut stopped = std::pin::pin!(stop.cancelled());
        std::future::poll_fn(|cx| match stopped.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.poll(cx),
        })
        .await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(check) = self.check.take() {
            discard_value(check);
            let gone = TaskError::from("the runtime that checked the condition has shut down");
            finish(&self.tide, [(self.key, None, Ok(Err(gone)))]);
        }
    }
}

/// A check that is over: its probe, the condition for the next one, and what it found.
type Checked = (Key, Option<Pin<Box<dyn Check>>>, Result<Result<bool, TaskError>, Panic>);

/// Checks are over: those who wait learn of it, and the next ones are planned.
fn finish(tide: &Arc<Tide>, checked: impl IntoIterator<Item = Checked>) {
    let now = Instant::now();
    let mut wakers = Wakers::default();
    let mut unused = Vec::new();
    let mut rouse = Rouse::No;
    let mut probes = lock(&tide.probes);
    let mut wheel = lock(&tide.wheel);
    for (key, check, outcome) in checked {
        #[cfg(test)]
        {
            probes.tally.ended += 1;
        }
        let probe = probes.probes.get(key);
        match (check, outcome) {
            (Some(check), Ok(Ok(false))) if !probe.subscribers.is_empty() => {
                probes.answer_fresh(key, &mut wakers);
                rouse = rouse.and(probes.plan_next(&mut wheel, key, check, now));
            }
            (check, outcome) => {
                let outcome = outcome.map(|answer| answer.map(|_| ()));
                probes.answer_all(key, &outcome, &mut wakers);
                unused.push((probes.forget(key), check, outcome));
            }
        }
    }
    drop(wheel);
    drop(probes);
    unused.into_iter().for_each(discard_value);
    wakers.wake();
    tide.rouse(rouse);
}

/// A condition that has said its last word is dropped first: a panic in that is the wait's.
fn drop_done(
    key: Key,
    check: Pin<Box<dyn Check>>,
    outcome: Result<Result<bool, TaskError>, Panic>,
) -> Checked {
    if let Ok(Ok(false)) = outcome {
        return (key, Some(check), outcome);
    }
    let dropped = contain_panic(|| drop(check));
    (key, None, outcome.and_then(|answer| dropped.map(|()| answer)))
}

impl Probes {
    /// The check under way said no: those it answers wait from here on.
    fn answer_fresh(&mut self, key: Key, wakers: &mut Wakers) {
        let probe = self.probes.get_mut(key);
        let mut next = if probe.fresh > 0 { probe.subscribers.first() } else { None };
        while let Some(at) = next {
            next = self.subscribers.next(at);
            let subscriber = self.subscribers.get_mut(at);
            if let Fresh(waker) = &subscriber.state
                && subscriber.came < probe.round
            {
                wakers.push(waker.clone());
                subscriber.state = Waiting(waker.clone());
                probe.fresh -= 1;
            }
        }
    }

    /// The end of the wait for everybody.
    fn answer_all(&mut self, key: Key, outcome: &Outcome, wakers: &mut Wakers) {
        let chain = &mut self.probes.get_mut(key).subscribers;
        while let Some(at) = self.subscribers.pop_front(chain) {
            let subscriber = self.subscribers.get_mut(at);
            let state = std::mem::replace(&mut subscriber.state, Done(Box::new(outcome.clone())));
            if let Fresh(waker) | Waiting(waker) = state {
                wakers.push(waker);
            }
        }
    }

    /// Something has happened to the file that this probe looks at.
    #[cfg(all(feature = "watch", target_os = "linux"))]
    pub(super) fn notified(&mut self, wheel: &mut Wheel, key: Key) -> Rouse {
        match self.probes.get(key) {
            Probe {
                watch: Some(watch),
                due,
                state: State::Resting { timer: Some(timer), .. },
                ..
            } => wheel.bring_forward(*timer, watch.next_look(*due)),
            // A check that is due sees it. After one that is under way comes the next early.
            _ => Rouse::No,
        }
    }

    /// At once if somebody came during the last check, else after the interval. An early check
    /// leaves the intervals as they are.
    fn plan_next(
        &mut self,
        wheel: &mut Wheel,
        key: Key,
        check: Pin<Box<dyn Check>>,
        now: Instant,
    ) -> Rouse {
        let probe = self.probes.get_mut(key);
        if probe.fresh > 0 {
            probe.due = now;
            probe.pace.restart();
            probe.state = State::Due { check };
            self.probes.push_back(&mut self.due, key);
            return wheel.rouse_now();
        }
        if now >= probe.due {
            probe.due = probe.pace.next(probe.due, now);
        }
        let next = probe.watch.as_ref().map_or(probe.due, |watch| watch.next_look(probe.due));
        let (timer, rouse) = wheel.insert_probe(next, key);
        probe.state = State::Resting { check, timer: Some(timer) };
        rouse
    }

    /// Adds somebody to an equal probe, or to a new one. Returns the probe and the share in it.
    fn subscribe(
        &mut self,
        tide: &Arc<Tide>,
        condition: Condition,
        pace: Pace,
        waker: Waker,
    ) -> (Key, Key) {
        let merge = condition.merge.map(|name| (name, pace.identity()));
        let known = merge.as_ref().and_then(|merge| self.merged.get(merge).copied());
        let key = known.unwrap_or_else(|| {
            let key = self.probes.insert(Probe {
                merge: merge.clone().map(Box::new),
                watch: condition.watch.clone(),
                pace,
                due: Instant::now(),
                subscribers: Chain::EMPTY,
                fresh: 0,
                round: 0,
                state: State::Resting { check: condition.check, timer: None },
            });
            if let Some(merge) = merge {
                self.merged.insert(merge, key);
            }
            if let Some(watch) = condition.watch {
                watch.bind(tide, key);
            }
            key
        });
        let probe = self.probes.get_mut(key);
        probe.fresh += 1;
        let came = Subscriber { probe: key, came: probe.round, state: Fresh(waker) };
        let subscriber = self.subscribers.insert(came);
        self.subscribers.push_back(&mut probe.subscribers, subscriber);
        (key, subscriber)
    }

    /// Makes a probe at rest due at once, for somebody who came.
    fn hurry(&mut self, tide: &Tide, key: Key) -> Rouse {
        let probe = self.probes.get_mut(key);
        let mut wheel = lock(&tide.wheel);
        let rouse = wheel.rouse_now();
        if matches!(probe.state, State::Resting { .. }) {
            probe.due = Instant::now();
            probe.pace.restart();
            if let Some(timer) = self.make_due(key) {
                let roused_already = wheel.remove_probe(timer);
                debug_assert_eq!(roused_already, Rouse::No);
            }
        }
        rouse
    }

    /// Takes somebody away; a probe nobody waits for is dropped, or stopped if it is under way.
    fn unsubscribe(&mut self, tide: &Tide, at: Key) -> Left {
        let subscriber = self.subscribers.get(at);
        let key = subscriber.probe;
        if matches!(subscriber.state, Done(_)) {
            return Left::of(self.subscribers.remove(at));
        }
        let probe = self.probes.get_mut(key);
        self.subscribers.unlink(&mut probe.subscribers, at);
        let mut left = Left::of(self.subscribers.remove(at));
        if matches!(left.subscriber.state, Fresh(_)) {
            probe.fresh -= 1;
        }
        if !probe.subscribers.is_empty() {
            return left;
        }
        match &mut probe.state {
            State::UnderWay { stop } => {
                left.stop = stop.take();
                // Whoever comes now gets a probe of its own: this one will not answer.
                if let Some(merge) = probe.merge.take() {
                    self.merged.remove(&merge);
                }
                return left;
            }
            State::Due { .. } => self.probes.unlink(&mut self.due, key),
            State::Resting { timer, .. } => {
                let remove = |timer| lock(&tide.wheel).remove_probe(timer);
                left.rouse = timer.map_or(Rouse::No, remove);
            }
        }
        left.probe = Some(self.forget(key));
        left
    }
}

/// What is to be dropped, woken and stopped outside the lock when somebody has left.
struct Left {
    subscriber: Subscriber,
    probe: Option<Probe>,
    stop: Option<CancellationToken>,
    rouse: Rouse,
}

impl Left {
    fn of(subscriber: Subscriber) -> Self {
        Left { subscriber, probe: None, stop: None, rouse: Rouse::No }
    }
}

/// A share in the checks of a condition.
///
/// # Cancel safety
/// Dropping it ends the share, and the checks if it was the last.
pub(crate) struct Subscription {
    tide: Arc<Tide>,
    at: Key,
}

impl Subscription {
    /// A `first` check that has begun is of a condition that is not merged.
    pub(crate) fn new(
        tide: &Arc<Tide>,
        condition: Condition,
        pace: Pace,
        first: First,
        waker: Waker,
    ) -> Self {
        let mut probes = lock(&tide.probes);
        let (key, at) = probes.subscribe(tide, condition, pace, waker);
        let subscription = Subscription { tide: tide.clone(), at };
        // Whoever subscribes knows what the first check said and is not woken for it.
        let mut unused = Wakers::default();
        let rouse = match first {
            First::Due => probes.hurry(tide, key),
            First::No => {
                let check = probes.begin(key);
                probes.answer_fresh(key, &mut unused);
                probes.plan_next(&mut lock(&tide.wheel), key, check, Instant::now())
            }
            First::UnderWay(permit) => {
                let check = probes.begin(key);
                drop(probes);
                UnderWay { tide: tide.clone(), key, check: Some(check) }.spawn(permit);
                return subscription;
            }
        };
        drop(probes);
        drop(unused);
        tide.rouse(rouse);
        subscription
    }

    /// # Panics
    /// With the condition's own panic, which so becomes the panic of the task that waits for it.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Subscribed {
        let mut stale = None;
        let mut probes = lock(&self.tide.probes);
        let state = &mut probes.subscribers.get_mut(self.at).state;
        let known = match state {
            Fresh(waker) | Waiting(waker) => {
                if !waker.will_wake(cx.waker()) {
                    stale = Some(std::mem::replace(waker, cx.waker().clone()));
                }
                if matches!(state, Fresh(_)) { Subscribed::Checking } else { Subscribed::Waiting }
            }
            Done(outcome) => match (**outcome).clone() {
                Ok(done) => Subscribed::Done(done),
                Err(panic) => {
                    drop(probes);
                    std::panic::resume_unwind(Box::new(panic.message().to_owned()))
                }
            },
        };
        let rouse = lock(&self.tide.wheel).rouse_if_gone();
        drop(probes);
        drop(stale);
        self.tide.rouse(rouse);
        known
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let left = lock(&self.tide.probes).unsubscribe(&self.tide, self.at);
        left.stop.iter().for_each(CancellationToken::cancel);
        self.tide.rouse(left.rouse);
        // The last: the condition is the user's, and may panic.
        drop((left.subscriber, left.probe));
    }
}
