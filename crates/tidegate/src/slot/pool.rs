//! The pool: a book behind a lock, readings and totals.

use super::{InLine, SlotToken};
use crate::error::{AcquireError, InvalidCapacity, InvalidWeight, TryAcquireError};
use crate::sync::{Mutex, Wakers, lock};
use crate::tide::Tide;
use std::fmt;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::slot::{Lane, Moment, SlotBook};
use tokio::time::Instant;

/// A bounded number of slots, shared by all clones.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::SlotPool;
///
/// let pool = SlotPool::new(4)?;
/// let token = pool.acquire().weight(3).await?;
/// assert_eq!((pool.in_use(), pool.available()), (3, 1));
/// drop(token);
/// assert_eq!(pool.available(), 4);
/// # Ok(())
/// # }
/// ```
///
/// # Order
///
/// Two lanes: those that go on after a wait get three grants for each one of those that begin,
/// while both wait. Inside a lane the oldest is first, and each unit of priority counts as one
/// second of age. The oldest waiter that does not fit may be overtaken by younger ones that do 16
/// times; then units are kept for it.
#[derive(Clone)]
pub struct SlotPool {
    shared: Arc<Shared>,
}

struct Shared {
    book: Mutex<SlotBook<Waker>>,
    epoch: Instant,
    leaky: AtomicU32,
    ended: [AtomicU64; 4],
    tide: Arc<Tide>,
}

/// How work ended, as an index into the pool's totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
}

/// How much work has ended on a pool since it was made. Each number only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Totals {
    /// All that was begun and has ended: the sum of the others.
    pub executed: u64,
    /// Ended with a value.
    pub succeeded: u64,
    /// Ended with an error or a panic.
    pub failed: u64,
    /// Stopped at its time-out.
    pub timed_out: u64,
    /// Begun, then cancelled or dropped.
    pub cancelled: u64,
}

/// Somebody who waits for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Whether it goes on after a wait (or else begins).
    pub resumes: bool,
    /// How many units it wants.
    pub weight: u32,
    /// Its head start in seconds.
    pub priority: i32,
    /// For how long it has been waiting.
    pub waited: Duration,
}

impl SlotPool {
    /// A pool of `capacity` free slots.
    ///
    /// # Errors
    /// A capacity of 0.
    pub fn new(capacity: u32) -> Result<Self, InvalidCapacity> {
        let capacity = NonZeroU32::new(capacity).ok_or(InvalidCapacity)?;
        let shared = Shared {
            book: Mutex::new(SlotBook::new(capacity)),
            epoch: Instant::now(),
            leaky: AtomicU32::new(0),
            ended: Default::default(),
            tide: Arc::new(Tide::new()),
        };
        Ok(SlotPool { shared: Arc::new(shared) })
    }

    /// Waits for a slot; with [`weight`](Acquire::weight) for several, with
    /// [`priority`](Acquire::priority) with a head start.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = tidegate::SlotPool::new(4)?;
    /// let token = pool.acquire().weight(2).priority(60).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future gives up its place in the queue, and the slot if it was granted at that
    /// moment. Nothing is leaked.
    ///
    /// # Errors
    /// A weight of 0 or above the capacity, at once; [`AcquireError::Closed`] when the pool is or
    /// becomes closed.
    pub fn acquire(&self) -> Acquire<'_> {
        Acquire { pool: self, weight: 1, priority: 0, line: None }
    }

    /// Takes `weight` slots if they are free now.
    ///
    /// # Order
    /// Succeeds past waiters that are too heavy for what is free, as often as they may be
    /// overtaken.
    ///
    /// # Errors
    /// Says whether the weight is impossible, the pool closed, or the slots just not free.
    pub fn try_acquire(&self, weight: u32) -> Result<SlotToken, TryAcquireError> {
        let mut book = lock(&self.shared.book);
        check_weight(weight, book.capacity())?;
        if book.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        if !book.try_take(weight) {
            return Err(TryAcquireError::NoSlot { weight, available: book.available() });
        }
        drop(book);
        Ok(SlotToken::granted(self.clone(), weight, 0))
    }

    /// Changes the number of slots.
    ///
    /// Growing grants at once. Shrinking takes no slot away: nothing is granted until enough
    /// holders have left ([`overcommitted`](Self::overcommitted) shows by how much), and a waiter
    /// heavier than the new capacity is granted alone, when nothing else is in use.
    ///
    /// # Errors
    /// A capacity of 0; nothing is changed then.
    pub fn resize(&self, capacity: u32) -> Result<(), InvalidCapacity> {
        let capacity = NonZeroU32::new(capacity).ok_or(InvalidCapacity)?;
        self.with_book(|book, woken| book.resize(capacity, |waker| woken.push(waker)));
        Ok(())
    }

    /// Closes the pool: all who wait and all who come later get an error, at once. Who holds a slot
    /// keeps it. Closing twice is harmless.
    pub fn close(&self) {
        self.with_book(|book, woken| book.close(|waker| woken.push(waker)));
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        lock(&self.shared.book).is_closed()
    }

    /// How many slots there are.
    pub fn capacity(&self) -> u32 {
        lock(&self.shared.book).capacity()
    }

    /// How many slots are in use.
    pub fn in_use(&self) -> u32 {
        lock(&self.shared.book).in_use()
    }

    /// How many slots are free.
    pub fn available(&self) -> u32 {
        lock(&self.shared.book).available()
    }

    /// By how many slots more are in use than there are, after a shrink.
    pub fn overcommitted(&self) -> u32 {
        let book = lock(&self.shared.book);
        book.in_use().saturating_sub(book.capacity())
    }

    /// Whether at least one slot is free.
    pub fn has_capacity(&self) -> bool {
        self.available() > 0
    }

    /// How many wait for slots.
    pub fn waiting(&self) -> usize {
        lock(&self.shared.book).waiting()
    }

    /// Who waits, the longest first.
    pub fn waiters(&self) -> Vec<Waiter> {
        let now = self.now();
        let book = lock(&self.shared.book);
        let mut waiters: Vec<_> = book
            .waiters()
            .map(|request| Waiter {
                resumes: request.lane == Lane::Resume,
                weight: request.weight,
                priority: request.priority,
                waited: Duration::from_nanos(now.0.saturating_sub(request.since.0).max(0) as u64),
            })
            .collect();
        drop(book);
        waiters.sort_by_key(|waiter| std::cmp::Reverse(waiter.waited));
        waiters
    }

    /// How many slots are held by code that has outlived its time-out and cannot be stopped, such
    /// as a future that blocks its thread. They come back when that code returns.
    pub fn leaky(&self) -> u32 {
        self.shared.leaky.load(Ordering::Relaxed)
    }

    /// How work run on this pool has ended, by [`run`](Self::run), [`spawn`](Self::spawn) and
    /// [`Batch`](crate::Batch). A token that was acquired by hand is not work and counts nowhere.
    pub fn totals(&self) -> Totals {
        let [succeeded, failed, timed_out, cancelled] =
            [0, 1, 2, 3].map(|at| self.shared.ended[at].load(Ordering::Relaxed));
        let executed = succeeded + failed + timed_out + cancelled;
        Totals { executed, succeeded, failed, timed_out, cancelled }
    }

    pub(crate) fn count(&self, ended: Ended) {
        self.shared.ended[ended as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_leaky(&self, leaky: bool) {
        match leaky {
            true => self.shared.leaky.fetch_add(1, Ordering::Relaxed),
            false => self.shared.leaky.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Whose timers and checks the waits on this pool share.
    pub(crate) fn tide(&self) -> &Arc<Tide> {
        &self.shared.tide
    }

    pub(crate) fn give_back(&self, weight: u32) {
        self.with_book(|book, woken| book.give_back(weight, |waker| woken.push(waker)));
    }

    /// Works on the book and wakes those it named, after the lock is let go.
    pub(super) fn with_book<R>(
        &self,
        work: impl FnOnce(&mut SlotBook<Waker>, &mut Wakers) -> R,
    ) -> R {
        let mut woken = Wakers::default();
        let result = work(&mut lock(&self.shared.book), &mut woken);
        woken.wake();
        result
    }

    /// A clock read costs about as much as taking a slot, so only those who queue make one. The
    /// checker's runs have no time; there all are of one age and ordered by arrival.
    pub(super) fn now(&self) -> Moment {
        if cfg!(shuttle) {
            return Moment(0);
        }
        let since = Instant::now().saturating_duration_since(self.shared.epoch);
        Moment(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    /// Whether anybody but `own` waiters wants a slot, or a holder should not go on with its.
    pub(crate) fn is_contended(&self, own: usize) -> bool {
        let book = lock(&self.shared.book);
        book.waiting() > own || book.in_use() > book.capacity() || book.is_closed()
    }
}

fn check_weight(weight: u32, capacity: u32) -> Result<(), InvalidWeight> {
    match weight {
        0 => Err(InvalidWeight { weight, capacity }),
        _ if weight > capacity => Err(InvalidWeight { weight, capacity }),
        _ => Ok(()),
    }
}

impl fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let book = lock(&self.shared.book);
        f.debug_struct("SlotPool")
            .field("capacity", &book.capacity())
            .field("in_use", &book.in_use())
            .field("waiting", &book.waiting())
            .field("closed", &book.is_closed())
            .finish()
    }
}

/// Waits for a slot. Made by [`SlotPool::acquire`].
#[derive(Debug)]
#[must_use = "nothing is acquired until it is awaited"]
pub struct Acquire<'p> {
    pool: &'p SlotPool,
    weight: u32,
    priority: i32,
    line: Option<InLine>,
}

impl Acquire<'_> {
    /// Asks for several slots at once. All are granted together, or none.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Counts as if it had waited that many seconds longer (or, below 0, shorter).
    pub fn priority(mut self, seconds: i32) -> Self {
        self.priority = seconds;
        self
    }
}

impl Future for Acquire<'_> {
    type Output = Result<SlotToken, AcquireError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (weight, priority) = (this.weight, this.priority);
        if this.line.is_none() {
            // The usual case takes the lock once and makes no place in the queue.
            match this.pool.try_acquire(weight) {
                Ok(token) => return Poll::Ready(Ok(token.with_priority(priority))),
                Err(TryAcquireError::Closed) => return Poll::Ready(Err(AcquireError::Closed)),
                Err(TryAcquireError::Weight(weight)) => return Poll::Ready(Err(weight.into())),
                Err(TryAcquireError::NoSlot { .. }) => {}
            }
        }
        let line = this
            .line
            .get_or_insert_with(|| InLine::new(this.pool.clone(), Lane::Start, weight, priority));
        let granted = std::task::ready!(line.poll(cx));
        this.line = None;
        Poll::Ready(match granted {
            Ok(()) => Ok(SlotToken::granted(this.pool.clone(), weight, priority)),
            Err(_) => Err(AcquireError::Closed),
        })
    }
}
