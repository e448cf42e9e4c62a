//! What waits share: one timer wheel and one poller for each pool, run by one driver task.
//!
//! - [`Timer`]: an entry in the wheel; wakes a task. Sleeps, time-outs and conditions that borrow
//!   from their task stand on it.
//! - [`Subscription`]: a share in a check of a condition that owns its data. The driver makes the
//!   checks itself, without waking the tasks that wait, and equal conditions share one check.
//! - [`Watch`]: a file that is looked at. With the feature `watch` the file system tells when to look
//!   earlier.
//!
//! The driver is spawned when the first entry comes and ends when the last has gone, so an idle
//! pool costs nothing. If its runtime goes away, all who wait are woken and whoever lives on
//! another runtime starts a new one there.

mod pace;
mod probes;
#[cfg(test)]
mod tests;
#[cfg(not(all(feature = "watch", target_os = "linux")))]
mod unwatched;
#[cfg(all(feature = "watch", target_os = "linux"))]
mod watch;
mod wheel;

pub(crate) use pace::Pace;
pub(crate) use probes::{Check, First, Subscribed, Subscription};
#[cfg(not(all(feature = "watch", target_os = "linux")))]
pub(crate) use unwatched::Watch;
#[cfg(all(feature = "watch", target_os = "linux"))]
pub(crate) use watch::Watch;
pub(crate) use wheel::Timer;

use crate::slot::{Acquire, SlotPool};
use crate::sync::{Mutex, Wakers, lock};
use probes::Probes;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tokio::time::Instant;
use wheel::{Due, Wheel};

/// How many checks of conditions may be under way at once on one pool, by default.
pub(crate) const PROBE_LIMIT: u32 = 64;

/// Entries the driver handles before it lets others have its thread.
const TURN: usize = 1024;

/// Timers and checks of the waits on one pool.
pub(crate) struct Tide {
    wheel: Mutex<Wheel>,
    probes: Mutex<Probes>,
    /// Something came that the driver has to look at before its next timer.
    nudge: Notify,
    /// Who may check now. Made when it is first needed: it is a pool and has a tide of its own.
    permits: OnceLock<SlotPool>,
    #[cfg(all(feature = "watch", target_os = "linux"))]
    watcher: Arc<watch::Watcher>,
}

impl Tide {
    pub(crate) fn new() -> Self {
        Tide {
            wheel: Mutex::new(Wheel::new(Instant::now())),
            probes: Mutex::default(),
            nudge: Notify::new(),
            permits: OnceLock::new(),
            #[cfg(all(feature = "watch", target_os = "linux"))]
            watcher: Arc::default(),
        }
    }

    /// Who may check now.
    pub(crate) fn permits(&self) -> &SlotPool {
        self.permits
            .get_or_init(|| SlotPool::new(PROBE_LIMIT).expect("the limit of checks is not zero"))
    }

    /// Sees to it that the driver runs, and looks again if the wheel says so.
    fn rouse(self: &Arc<Self>, rouse: wheel::Rouse) {
        match rouse {
            wheel::Rouse::Start => {
                tokio::spawn(drive(Driver { tide: self.clone(), ended: false }));
            }
            wheel::Rouse::Nudge => self.nudge.notify_one(),
            wheel::Rouse::No => {}
        }
    }
}

/// The driver's existence; when it is dropped with its runtime, the wheel learns of it.
struct Driver {
    tide: Arc<Tide>,
    ended: bool,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let stranded = lock(&self.tide.wheel).driver_gone();
        stranded.wake();
        let waiting = lock(&self.tide.probes).wakers();
        waiting.wake();
    }
}

async fn drive(mut driver: Driver) {
    let tide = &driver.tide.clone();
    // Kept while checks are due, or whatever wakes the driver would cost it its place.
    let mut in_line: Option<Acquire<'_>> = None;
    loop {
        let (busy, next) = tide.wake_and_check();
        if busy {
            tokio::task::yield_now().await;
            continue;
        }
        let checks = lock(&tide.probes).has_due();
        match (next, checks) {
            (None, false) if lock(&tide.wheel).may_end() => {
                driver.ended = true;
                return;
            }
            (_, false) => in_line = None,
            (_, true) if in_line.is_none() => in_line = Some(tide.permits().acquire()),
            _ => {}
        }
        idle(tide, next, &mut in_line).await;
    }
}

/// Waits for the next timer, for news, or (while checks are due) for leave to make one.
async fn idle(tide: &Arc<Tide>, next: Option<Instant>, in_line: &mut Option<Acquire<'_>>) {
    let mut news = pin!(tide.nudge.notified());
    let mut timer = pin!(next.map(tokio::time::sleep_until));
    let permit = std::future::poll_fn(|cx: &mut Context<'_>| {
        if let Some(acquire) = in_line
            && let Poll::Ready(permit) = Pin::new(acquire).poll(cx)
        {
            *in_line = None;
            return Poll::Ready(permit.ok());
        }
        let timer = timer.as_mut().as_pin_mut();
        if news.as_mut().poll(cx).is_ready() || timer.is_some_and(|timer| timer.poll(cx).is_ready())
        {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await;
    if let Some(permit) = permit {
        probes::check_due(tide, Some(permit));
    }
}

impl Tide {
    /// Wakes tasks whose time has come and makes checks that are due, a bounded number of each.
    /// Says whether there is more to do at once, and when the next timer is due.
    fn wake_and_check(self: &Arc<Self>) -> (bool, Option<Instant>) {
        let mut woken = Wakers::default();
        let now = Instant::now();
        // Both locks, in the order that holds everywhere: between an entry's leaving the wheel and
        // its check's being due nobody may look.
        let mut probes = lock(&self.probes);
        let mut wheel = lock(&self.wheel);
        let elapsed = wheel.elapsed(now);
        let mut left = TURN;
        while left > 0
            && let Some(due) = wheel.pop(elapsed)
        {
            left -= 1;
            match due {
                Due::Task(waker) => woken.push(waker),
                Due::Probe(probe) => drop(probes.make_due(probe)),
            }
        }
        let next = wheel.rest_until_next(now);
        drop(wheel);
        drop(probes);
        // The checks first: the tasks may wake for their time-outs, and what is true at the last
        // moment is true.
        let more = probes::check_due(self, None);
        woken.wake();
        (more || left == 0, next)
    }
}
