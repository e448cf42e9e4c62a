//! The timer wheel: entries in chains by the millisecond they are due in.

use super::Tide;
use crate::deadline::deadline_after;
use crate::sync::{Wakers, lock};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::chain::{Chain, Key, Nodes};
use tokio::time::Instant;

/// Entries due in the same millisecond fire together, never early.
const NANOS_PER_TICK: u32 = 1_000_000;

/// With so many entries there is one due in every millisecond, and a thousand wake-ups of the driver
/// each second cost more than the entries themselves. For each so many, the driver gathers what
/// falls due in one more millisecond, up to a bound that is small beside such waits.
const ENTRIES_PER_SLACK: usize = 10_000;
const SLACK_MAX: usize = 10;

pub(super) struct Wheel {
    epoch: Instant,
    entries: Nodes<Entry>,
    ticks: BTreeMap<u64, Tick>,
    driver: DriverState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DriverState {
    None,
    Working,
    /// Asleep until this tick.
    Resting(u64),
}

/// What is due in one millisecond. The checks come first: a task may wake for its time-out, and
/// what is true at the last moment is true. Never empty.
#[derive(Default)]
struct Tick {
    checks: Chain,
    tasks: Chain,
}

impl Tick {
    fn chain(&mut self, what: &What) -> &mut Chain {
        match what {
            What::Probe(_) => &mut self.checks,
            What::Task(_) | What::Fired => &mut self.tasks,
        }
    }

    fn is_empty(&self) -> bool {
        self.checks.is_empty() && self.tasks.is_empty()
    }
}

struct Entry {
    tick: u64,
    what: What,
}

enum What {
    Task(Waker),
    Probe(Key),
    Fired,
}

/// Whose time has come.
pub(super) enum Due {
    Task(Waker),
    Probe(Key),
}

/// What the driver needs after an entry was made.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rouse {
    Start,
    Nudge,
    No,
}

impl Rouse {
    /// What is needed after two entries.
    pub(super) fn and(self, other: Rouse) -> Rouse {
        if self == Rouse::No { other } else { self }
    }
}

impl Wheel {
    pub(super) fn new(epoch: Instant) -> Self {
        Wheel {
            epoch,
            entries: Nodes::default(),
            ticks: BTreeMap::new(),
            driver: DriverState::None,
        }
    }

    /// The first tick at which something due then may fire.
    fn tick(&self, due: Instant) -> u64 {
        let since = due.saturating_duration_since(self.epoch);
        let whole = since.subsec_nanos().is_multiple_of(NANOS_PER_TICK);
        millis(since).saturating_add(u64::from(!whole))
    }

    /// The last tick that has begun.
    pub(super) fn elapsed(&self, now: Instant) -> u64 {
        millis(now.saturating_duration_since(self.epoch))
    }

    fn insert(&mut self, due: Instant, what: What) -> (Key, Rouse) {
        let tick = self.tick(due);
        let chain = self.ticks.entry(tick).or_default().chain(&what);
        let key = self.entries.insert(Entry { tick, what });
        self.entries.push_back(chain, key);
        (key, self.rouse(tick))
    }

    fn unlink(&mut self, key: Key) {
        let &Entry { tick: at, ref what } = self.entries.get(key);
        if matches!(what, What::Fired) {
            return;
        }
        let tick = self.ticks.get_mut(&at).expect("an entry that has not fired is in a chain");
        let chain = tick.chain(what);
        self.entries.unlink(chain, key);
        if tick.is_empty() {
            self.ticks.remove(&at);
        }
    }

    /// The driver is told when nothing is left, so that it ends and does not sleep on.
    fn remove(&mut self, key: Key) -> (What, Rouse) {
        self.unlink(key);
        let what = self.entries.remove(key).what;
        let rouse = match self.driver {
            DriverState::Resting(_) if self.ticks.is_empty() => self.rouse(0),
            _ => Rouse::No,
        };
        (what, rouse)
    }

    pub(super) fn insert_probe(&mut self, due: Instant, probe: Key) -> (Key, Rouse) {
        self.insert(due, What::Probe(probe))
    }

    pub(super) fn remove_probe(&mut self, key: Key) -> Rouse {
        self.remove(key).1
    }

    /// A check is due earlier. If the driver is gone, those who wait have been woken and start one.
    #[cfg(all(feature = "watch", target_os = "linux"))]
    pub(super) fn bring_forward(&mut self, key: Key, due: Instant) -> Rouse {
        self.unlink(key);
        let tick = self.tick(due);
        let entry = self.entries.get_mut(key);
        entry.tick = tick;
        let chain = self.ticks.entry(tick).or_default().chain(&entry.what);
        self.entries.push_back(chain, key);
        match self.driver {
            DriverState::None => Rouse::No,
            _ => self.rouse(tick),
        }
    }

    fn rouse(&mut self, tick: u64) -> Rouse {
        match self.driver {
            DriverState::None => {
                self.driver = DriverState::Working;
                Rouse::Start
            }
            DriverState::Resting(until) if tick < until => {
                self.driver = DriverState::Working;
                Rouse::Nudge
            }
            _ => Rouse::No,
        }
    }

    /// For an entry or a check that wants the driver now.
    pub(super) fn rouse_now(&mut self) -> Rouse {
        self.rouse(0)
    }

    /// For somebody who waits and finds that the driver's runtime has gone away.
    pub(super) fn rouse_if_gone(&mut self) -> Rouse {
        match self.driver {
            DriverState::None => self.rouse_now(),
            _ => Rouse::No,
        }
    }

    /// Takes one entry whose time has come, by the tick that has [elapsed](Self::elapsed).
    pub(super) fn pop(&mut self, elapsed: u64) -> Option<Due> {
        let mut first = self.ticks.first_entry()?;
        if *first.key() > elapsed {
            return None;
        }
        let Tick { checks, tasks } = first.get_mut();
        let key = self.entries.pop_front(checks).or_else(|| self.entries.pop_front(tasks));
        let key = key.expect("a tick in the wheel is never empty");
        if first.get().is_empty() {
            first.remove();
        }
        match std::mem::replace(&mut self.entries.get_mut(key).what, What::Fired) {
            What::Task(waker) => Some(Due::Task(waker)),
            What::Probe(probe) => {
                self.entries.remove(key);
                Some(Due::Probe(probe))
            }
            What::Fired => unreachable!("what has fired is in no chain"),
        }
    }

    /// The driver rests until the next entry is due; with very many entries a little longer.
    pub(super) fn rest_until_next(&mut self, now: Instant) -> Option<Instant> {
        let Some(tick) = self.ticks.keys().next().copied() else {
            self.driver = DriverState::Resting(u64::MAX);
            return None;
        };
        let slack = (self.entries.len() / ENTRIES_PER_SLACK).min(SLACK_MAX) as u64;
        let until = tick.max(self.tick(now).saturating_add(slack).min(tick.saturating_add(slack)));
        self.driver = DriverState::Resting(until);
        // Beyond the clock's range is as good as never.
        self.epoch.checked_add(Duration::from_millis(until))
    }

    /// Whether nothing is left to drive; then the driver counts as gone.
    pub(super) fn may_end(&mut self) -> bool {
        let idle = self.ticks.is_empty() && self.driver != DriverState::Working;
        if idle {
            self.driver = DriverState::None;
        }
        idle
    }

    /// The driver was dropped. Returns whoever waits for it, to be woken.
    pub(super) fn driver_gone(&mut self) -> Wakers {
        let mut stranded = Wakers::default();
        self.driver = DriverState::None;
        for tick in self.ticks.values() {
            for (_, entry) in self.entries.iter(&tick.tasks) {
                if let What::Task(waker) = &entry.what {
                    stranded.push(waker.clone());
                }
            }
        }
        stranded
    }
}

/// Whole milliseconds; no duration between two instants has more than fit.
fn millis(duration: Duration) -> u64 {
    let ticks = u64::from(duration.subsec_nanos() / NANOS_PER_TICK);
    duration.as_secs().saturating_mul(1_000).saturating_add(ticks)
}

/// An instant to be woken at.
///
/// # Cancel safety
/// Dropping it takes the entry out of the wheel.
pub(crate) struct Timer {
    tide: Arc<Tide>,
    due: Instant,
    entry: Option<Key>,
}

impl Timer {
    pub(crate) fn new(tide: &Arc<Tide>, due: Instant) -> Self {
        Timer { tide: tide.clone(), due, entry: None }
    }

    pub(crate) fn after(tide: &Arc<Tide>, delay: Duration) -> Self {
        Timer::new(tide, deadline_after(Instant::now(), delay))
    }

    /// When it fires.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Starts anew.
    pub(crate) fn reset(&mut self, due: Instant) {
        self.cancel();
        self.due = due;
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_at(Instant::now(), cx)
    }

    /// For who has just looked at the clock.
    pub(crate) fn poll_at(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        // Also when its entry has not fired yet: of timers that are due together the driver may
        // have fired another one first, and the order must not depend on that.
        if now >= self.due {
            return Poll::Ready(());
        }
        let waker = cx.waker();
        let mut stale = None;
        let mut wheel = lock(&self.tide.wheel);
        let rouse = match self.entry {
            None => {
                let (entry, rouse) = wheel.insert(self.due, What::Task(waker.clone()));
                self.entry = Some(entry);
                rouse
            }
            Some(entry) => match &mut wheel.entries.get_mut(entry).what {
                What::Fired => return Poll::Ready(()),
                What::Task(known) if known.will_wake(waker) => wheel.rouse_if_gone(),
                what => {
                    stale = Some(std::mem::replace(what, What::Task(waker.clone())));
                    wheel.rouse_if_gone()
                }
            },
        };
        drop(wheel);
        drop(stale);
        self.tide.rouse(rouse);
        Poll::Pending
    }

    fn cancel(&mut self) {
        if let Some(entry) = self.entry.take() {
            let (stale, rouse) = lock(&self.tide.wheel).remove(entry);
            drop(stale);
            self.tide.rouse(rouse);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("due", &self.due).finish_non_exhaustive()
    }
}
