//! One entry of a task and its slot.
//!
//! The slot belongs to the [`Attempt`], not to the body: a wait releases it, and whoever must go on
//! stands in line for it again. An attempt's slot is held, released, or stood in line for; how many
//! waits are open decides which of these it should be:
//!
//! - A wait that begins to wait releases the slot.
//! - A wait that has ended stands in line, and does not return before the slot is held.
//! - A wait that is dropped leaves the line, unless nobody else waits: then the body is going on,
//!   and the [gate](crate::gate) stands in line for it and does not poll it until the slot is held. If the
//!   body waits again instead, that wait leaves the line.
//!
//! In an engine, what the attempt does is also written down ([`Record`]): that it waits, after the
//! slot was given back; that it goes on, before it stands in line again. It does not go on until
//! that is written.
//!
//! No lock is held while a slot is given back or a line is left: both wake others.

use crate::engine::{Child, RunStatus};
use crate::error::Closed;
use crate::journal::Journal;
use crate::slot::{InLine, SlotToken, Taken};
use crate::sync::{Mutex, Wakers, lock};
use crate::task_error::TaskError;
use crate::tide::Tide;
use crate::wait::{Parks, WaitError};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;
use tidegate_core::store::NewRun;
use tidegate_core::wait::WaitOp;
use tidegate_core::{RunId, TaskExecutionId, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What an attempt tells those around it.
pub(crate) trait Observer: Send + Sync {
    /// The task says how far it is.
    fn progress(&self, fraction: f64, message: &str);

    /// Where it is written down that the task waits and goes on, if it is.
    fn record(&self) -> Option<&dyn Record> {
        None
    }
}

/// Where it is written down what an attempt does.
pub(crate) trait Record: Send + Sync {
    /// It waits, without its slot, for something that can be put in words.
    fn waits(&self, active: Duration, wait: String);

    /// It wants to go on. Each call is answered by one of [`Attempt::may_go_on`].
    fn resumes(&self);

    /// The run it belongs to.
    fn run_id(&self) -> RunId;

    /// Which attempt it is.
    fn number(&self) -> u32;

    /// What time it is on the engine's clock.
    fn now(&self) -> Timestamp;

    /// What tells it that it is to stop.
    fn cancel_token(&self) -> &CancellationToken;

    /// Whether it was told.
    fn is_cancelled(&self) -> bool;

    /// What is known of its stored waits.
    fn journal(&self) -> &Journal;

    /// Asks the store for something.
    fn ask(&self, op: WaitOp);

    /// After how long a wait becomes a row, if it may.
    fn parks_after(&self) -> Option<Duration>;

    /// Whether it uses this limit.
    fn uses(&self, limit: &str) -> bool;

    /// A run to be begun by it.
    fn child(&self, child: Child) -> Result<NewRun, TaskError>;

    /// How a run stands, with what its tasks returned.
    fn read_run(&self, run: RunId) -> ReadRun;
}

/// How a run stands, later.
pub(crate) type ReadRun = Pin<Box<dyn Future<Output = Result<RunStatus, WaitError>> + Send>>;

/// One entry of a task.
pub(crate) struct Attempt {
    pub(crate) id: TaskExecutionId,
    pub(crate) cancel: Option<CancellationToken>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Whether the body is polled through a [gate](crate::gate).
    pub(crate) gated: bool,
    tide: Arc<Tide>,
    slot: Mutex<Slot>,
    /// Whether its body is being polled at this moment.
    polled: AtomicBool,
}

struct Slot {
    /// Gone once the attempt is over.
    token: Option<SlotToken>,
    /// The numbers of its units, if it has any.
    numbers: Option<Box<Taken>>,
    line: Option<InLine>,
    /// Waits that wait, and when the first of them is over at the latest, if that is known.
    waiting: u32,
    due: Option<Instant>,
    /// Waits that have ended and want the slot.
    resuming: u32,
    /// Who wants to know when the slot is held.
    wakers: Wakers,
    /// Whether it is to be written that the task goes on before it stands in line, and how often
    /// that was asked for and not answered.
    away: bool,
    asked: u32,
    /// Limits that were given back for a wait and are to be taken again before the slot.
    limits: Released,
    /// How it is to go on as a row.
    parks: Option<Box<Parks>>,
    /// Time with the slot, up to when it was last taken.
    active: Duration,
    held_since: Instant,
}

/// Whether limits were given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Released {
    No,
    /// They were, for the so many-th time.
    Yes(u32),
    /// They were, and were asked for again.
    Asked(u32),
    /// They were, so often, and are held again.
    Held(u32),
}

impl Released {
    fn number(self) -> u32 {
        match self {
            Released::No => 0,
            Released::Yes(number) | Released::Asked(number) | Released::Held(number) => number,
        }
    }
}

impl Slot {
    fn is_held(&self) -> bool {
        self.token.as_ref().is_some_and(SlotToken::is_held)
    }

    /// The place in line, if nobody wants the slot; to be dropped outside the lock.
    fn leave_line(&mut self) -> Option<InLine> {
        if self.resuming == 0 { self.line.take() } else { None }
    }
}

impl Attempt {
    pub(crate) fn new(token: SlotToken) -> Self {
        Attempt {
            id: TaskExecutionId::new(std::time::SystemTime::now().into(), fastrand::u128(..)),
            cancel: None,
            observer: None,
            gated: true,
            tide: token.pool().tide().clone(),
            slot: Mutex::new(Slot {
                token: Some(token),
                numbers: None,
                line: None,
                waiting: 0,
                due: None,
                resuming: 0,
                wakers: Wakers::default(),
                away: false,
                asked: 0,
                limits: Released::No,
                parks: None,
                active: Duration::ZERO,
                held_since: Instant::now(),
            }),
            polled: AtomicBool::new(false),
        }
    }

    /// Gives numbers to the units of its slot, for as long as it lasts.
    pub(crate) fn set_numbers(&mut self, numbers: Option<Taken>) {
        lock(&self.slot).numbers = numbers.map(Box::new);
    }

    /// The first of these numbers.
    pub(crate) fn slot_number(&self) -> Option<u32> {
        lock(&self.slot).numbers.as_ref()?.first()
    }

    /// Whether its body is being polled at this moment: what is dropped then is dropped by the body,
    /// and not with it.
    pub(crate) fn is_polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }

    /// Polls the body.
    pub(crate) fn while_polled<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.polled.store(true, Ordering::Relaxed);
        let polled = poll();
        self.polled.store(false, Ordering::Relaxed);
        polled
    }

    /// Its only wait goes on as a row: the gate drops the body.
    pub(crate) fn park(&self, parks: Parks) {
        let mut slot = lock(&self.slot);
        if (slot.waiting, slot.resuming) == (1, 0) {
            slot.parks = Some(Box::new(parks));
        }
    }

    /// How it is to go on as a row, if it is.
    pub(crate) fn take_parks(&self) -> Option<Parks> {
        lock(&self.slot).parks.take().map(|parks| *parks)
    }

    /// Limits were given back.
    pub(crate) fn has_released(&self) {
        let mut slot = lock(&self.slot);
        slot.limits = Released::Yes(slot.limits.number() + 1);
    }

    /// All limits are held again, if it is that what was asked for.
    pub(crate) fn has_retaken(&self, number: u32) {
        let mut slot = lock(&self.slot);
        if slot.limits != Released::Asked(number) {
            return;
        }
        slot.limits = Released::Held(number);
        let wakers = slot.wakers.take();
        drop(slot);
        wakers.wake();
    }

    /// The request for its limits that was not answered, if there is one.
    pub(crate) fn unanswered(&self) -> Option<WaitOp> {
        match lock(&self.slot).limits {
            Released::Asked(number) => Some(WaitOp::Retake(number)),
            _ => None,
        }
    }

    /// What its waits share with the others on the pool.
    pub(crate) fn tide(&self) -> &Arc<Tide> {
        &self.tide
    }

    pub(crate) fn is_slot_held(&self) -> bool {
        lock(&self.slot).is_held()
    }

    /// Time spent with the slot so far, and whether it is held now.
    pub(crate) fn active(&self) -> (Duration, bool) {
        let slot = lock(&self.slot);
        match slot.is_held() {
            true => (slot.active + slot.held_since.elapsed(), true),
            false => (slot.active, false),
        }
    }

    /// Whether some wait is open, so that the body may be polled without the slot.
    pub(crate) fn is_waiting(&self) -> bool {
        let slot = lock(&self.slot);
        slot.waiting + slot.resuming > 0
    }

    /// Whether it does not go on before what it has asked for is written.
    pub(crate) fn is_away(&self) -> bool {
        lock(&self.slot).away
    }

    /// Whether a wait is over, or all were dropped, and the slot is not held again.
    pub(crate) fn is_resuming(&self) -> bool {
        let slot = lock(&self.slot);
        let goes_on = slot.resuming > 0 || slot.waiting == 0;
        goes_on && slot.token.is_some() && !slot.is_held()
    }

    pub(crate) fn record(&self) -> Option<&dyn Record> {
        self.observer.as_deref().and_then(Observer::record)
    }

    /// A wait for something in `words` begins to wait: the slot is released.
    pub(crate) fn begin_wait(
        &self,
        words: impl FnOnce() -> String,
        releasing: Vec<Arc<str>>,
        due: Option<Instant>,
    ) {
        if let (false, Some(record)) = (releasing.is_empty(), self.record()) {
            record.ask(WaitOp::Release(releasing));
            self.has_released();
        }
        let mut slot = lock(&self.slot);
        // With several open, it goes on with the first.
        slot.due = if slot.waiting == 0 { due } else { slot.due.into_iter().chain(due).min() };
        slot.waiting += 1;
        if slot.is_held() {
            let active = slot.held_since.elapsed();
            slot.active += active;
        }
        let held = slot.token.as_mut().and_then(SlotToken::split_off);
        let left = slot.leave_line();
        // Nothing is new where another wait of this task goes on or wants the slot.
        let news = slot.resuming == 0 && !slot.away;
        let record = self.record().filter(|_| news);
        slot.away |= record.is_some();
        let active = slot.active;
        drop(slot);
        drop((held, left));
        if let Some(record) = record {
            record.waits(active, words());
        }
    }

    /// When it goes on at the latest, of one that waits, if that is known.
    pub(crate) fn due(&self) -> Option<Instant> {
        lock(&self.slot).due
    }

    /// That the task goes on is written, as often as it asked.
    pub(crate) fn may_go_on(&self) {
        let mut slot = lock(&self.slot);
        slot.asked = slot.asked.saturating_sub(1);
        let wakers = (slot.asked == 0).then(|| slot.wakers.take());
        drop(slot);
        wakers.into_iter().for_each(Wakers::wake);
    }

    /// A wait has ended (`waited`: after it had released the slot) and wants the slot from here on.
    pub(crate) fn end_wait(&self, waited: bool) {
        let mut slot = lock(&self.slot);
        slot.waiting -= u32::from(waited);
        slot.resuming += 1;
    }

    /// Waits until the slot is held, for a wait that has ended.
    pub(crate) fn poll_resume(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let held = ready!(self.poll_slot(cx));
        lock(&self.slot).resuming -= 1;
        Poll::Ready(held)
    }

    /// A wait is dropped while it waits, or (`ended`) after that, before it had the slot.
    pub(crate) fn drop_wait(&self, ended: bool) {
        let mut slot = lock(&self.slot);
        match ended {
            false => slot.waiting -= 1,
            true => slot.resuming -= 1,
        }
        slot.parks = None;
        // With no wait left the body is going on and the place in line is the gate's.
        let going_on = slot.waiting == 0 && self.gated;
        let left = if going_on { None } else { slot.leave_line() };
        drop(slot);
        drop(left);
    }

    /// Whether the body may be polled: the slot is held, or it waits; otherwise in line for the
    /// slot.
    pub(crate) fn poll_enter(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        match self.is_waiting() {
            true => Poll::Ready(Ok(())),
            false => self.poll_slot(cx),
        }
    }

    fn poll_slot(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let mut slot = lock(&self.slot);
        if let (Released::Yes(number), Some(record)) = (slot.limits, self.record()) {
            slot.limits = Released::Asked(number);
            slot.wakers.register(cx.waker());
            drop(slot);
            record.ask(WaitOp::Retake(number));
            return Poll::Pending;
        }
        if let Released::Asked(_) = slot.limits {
            slot.wakers.register(cx.waker());
            return Poll::Pending;
        }
        if slot.is_held() {
            return Poll::Ready(Ok(()));
        }
        if std::mem::take(&mut slot.away)
            && let Some(record) = self.record()
        {
            slot.asked += 1;
            slot.wakers.register(cx.waker());
            drop(slot);
            record.resumes();
            return Poll::Pending;
        }
        if slot.asked > 0 {
            slot.wakers.register(cx.waker());
            return Poll::Pending;
        }
        let Slot { token, line, wakers, held_since, .. } = &mut *slot;
        let Some(token) = token else { return Poll::Ready(Err(Closed)) };
        // The line wakes the attempt, and the attempt everybody who asked: the gate and each wait
        // may have been polled with wakers of their own.
        let place = line.get_or_insert_with(|| token.line());
        let waker = Waker::from(self.clone());
        let Poll::Ready(granted) = place.poll(&mut Context::from_waker(&waker)) else {
            wakers.register(cx.waker());
            return Poll::Pending;
        };
        *line = None;
        if granted.is_ok() {
            token.regain();
            *held_since = Instant::now();
        }
        let others = wakers.take();
        drop(slot);
        others.wake();
        Poll::Ready(granted)
    }

    /// The attempt is over: its slot is given back and its place in line left, whoever still has
    /// the handle.
    pub(crate) fn end(&self) -> Option<SlotToken> {
        let mut slot = lock(&self.slot);
        let (token, line, numbers) = (slot.token.take(), slot.line.take(), slot.numbers.take());
        drop(slot);
        drop((line, numbers));
        token
    }
}

impl Wake for Attempt {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = lock(&self.slot).wakers.take();
        wakers.wake();
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.is_slot_held();
        f.debug_struct("Attempt").field("id", &self.id).field("is_slot_held", &held).finish()
    }
}
