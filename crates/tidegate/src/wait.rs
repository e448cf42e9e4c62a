//! Waiting without the slot.
//!
//! Every wait is a [`Wait`]: something to wait for (a [`Source`]) and the protocol that gives the
//! slot back meanwhile. Sources know nothing of slots, so they can be combined; the protocol is in
//! one place, [`Wait::poll`].

mod combine;
mod source;
pub(crate) mod stored;
mod together;

pub(crate) use combine::{All, Any};
pub(crate) use source::{Borrowed, Owned, Sleep, While, Yield};

use crate::attempt::Attempt;
use crate::condition::{Condition, Polled, Verdict};
use crate::deadline::deadline_after;
use crate::error::Closed;
use crate::handle::TaskHandle;
use crate::task_error::TaskError;
use crate::tide::{Tide, Timer};
use crate::trace;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::wait::{WaitId, WaitOp};
use tokio::time::Instant;
use tracing::Span;

/// How long a first check may take before it goes on without the slot. Most answer at once, and
/// giving the slot away for them would cost more than it gains; a hanging one must not hold it.
const FIRST_CHECK: Duration = Duration::from_millis(10);

const POLLED_TOO_LATE: &str = "a wait was polled after it had returned";

/// A wait for something, during which the task's slot is given back. Made by
/// [`TaskHandle`](crate::TaskHandle)'s methods; nothing happens until it is awaited.
///
/// What is true already costs nothing and releases nothing. Otherwise the slot is released at once,
/// and the wait returns only when it is over *and* the slot is held again, in the resume lane.
///
/// # Cancel safety
/// Dropping a wait (by `select!`, `timeout`) ends it; what it waits for is no longer looked at. If
/// the slot was released, the task's body is not polled again until it has been reclaimed. Outside
/// a gate ([`TaskHandle::new`](crate::TaskHandle::new)) the slot stays released.
///
/// # Errors
/// See [`WaitError`].
#[must_use = "a wait does nothing until it is awaited"]
pub struct Wait<'h, T> {
    attempt: &'h Arc<Attempt>,
    /// Gone when it is over: while the wait queues for the slot nothing is looked at any more.
    source: Option<Pin<Box<dyn Source<T> + 'h>>>,
    options: Options,
    /// Runs from the first poll.
    timeout: Option<Timer>,
    grace: Option<Timer>,
    phase: Phase<T>,
    /// From its first poll until it is over, if somebody traces.
    span: Option<Box<Span>>,
    /// Whether an earlier entry has seen that this, of several, was the first to be over.
    won: bool,
    /// What it has received, until it returns: dropped before that, it has received nothing.
    received: Vec<WaitId>,
}

/// How the wait of one source is to be made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    timeout: Option<Duration>,
    backoff: Option<(f64, Duration)>,
    jitter: Option<f64>,
    name: Option<Box<str>>,
    releasing: Vec<Arc<str>>,
}

enum Phase<T> {
    /// Not polled yet, or in a first check that holds the slot.
    Checking,
    /// The slot is released.
    Waiting,
    /// Over; wants the slot.
    Resuming(Option<Result<T, WaitError>>),
    /// Returned.
    Over,
}

/// What a source says when it is polled.
pub(crate) enum Step<T> {
    Ready(T),
    /// Pending, and may be about to say that it was true from the start.
    Checking,
    Waiting,
}

/// What is waited for. Knows nothing of slots.
pub(crate) trait Source<T>: Send {
    fn poll_source(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Step<Result<T, WaitError>>;

    /// Whether it looks again and again, so that a back-off and a jitter have a meaning.
    fn is_polled(&self) -> bool {
        false
    }

    /// Whether the store knows it, or a part of it; then it minds its time-out itself.
    fn is_stored(&self) -> bool {
        false
    }

    /// How it can be waited for as a row, if it can.
    fn parks(&self) -> Option<Parks> {
        None
    }

    /// When it is over at the latest, if that is known.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Another of several was the first to be over.
    fn lose(self: Pin<&mut Self>) {}

    /// What it has received of what there is only once; whoever asks has it from now on.
    fn received(self: Pin<&mut Self>, _: &mut Vec<WaitId>) {}

    /// The limits that it wants to be given back, besides its own.
    fn releases(&self, _: &mut Vec<Arc<str>>) {}

    /// What is waited for, for people.
    fn words(&self) -> String;
}

/// What a source is given on every poll.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) tide: &'a Arc<Tide>,
    pub(crate) options: &'a Options,
    /// See [`Wait`].
    pub(crate) won: bool,
}

/// How a wait goes on as a row.
pub(crate) struct Parks {
    /// When it is over at the latest.
    pub(crate) wake: Option<Timestamp>,
    /// What it waits for, in words.
    pub(crate) wait: String,
    /// What the store has to end.
    pub(crate) on: Vec<WaitId>,
    /// Whether nothing but time ends it.
    pub(crate) is_time: bool,
}

impl Parks {
    /// Both of them.
    fn and(mut self, other: Parks) -> Parks {
        self.wake = self.wake.into_iter().chain(other.wake).min();
        self.on.extend(other.on);
        self.is_time &= other.is_time;
        self
    }
}

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WaitError {
    /// The time given with [`Wait::timeout`] has passed.
    TimedOut {
        /// The wait's name, if it was given one.
        name: Option<String>,
        /// The time it was given.
        after: Duration,
    },
    /// The condition ended the wait with this error.
    Failed(TaskError),
    /// The pool was closed, so the slot cannot be had again. The task goes on without it until its
    /// next await and is then dropped.
    Closed,
    /// The wait itself makes no sense.
    Invalid(InvalidWait),
}

/// What is wrong with a wait.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum InvalidWait {
    /// An interval of zero would check without pause.
    Interval(Duration),
    /// A back-off factor below 1, or not a number.
    Backoff(f64),
    /// A jitter below 0 or above 1, or not a number.
    Jitter(f64),
    /// A back-off or jitter on a wait that does not look again and again.
    NotPolled,
    /// `wait_any` of nothing would never end.
    Nothing,
    /// Signals and runs are known to an engine only.
    NoEngine,
    /// A limit that the task does not use cannot be given back.
    NotUsed(String),
}

impl fmt::Display for InvalidWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidWait::Interval(every) => {
                write!(f, "an interval of {every:?} would check without pause; it must be above 0")
            }
            InvalidWait::Backoff(factor) => {
                write!(f, "a back-off factor of {factor} is not possible; it must be at least 1")
            }
            InvalidWait::Jitter(part) => {
                write!(f, "a jitter of {part} is not possible; it must be between 0 and 1")
            }
            InvalidWait::NotPolled => f.write_str(
                "a back-off or jitter has no meaning here; it goes with defer_until, which checks \
                 again and again",
            ),
            InvalidWait::Nothing => {
                f.write_str("wait_any of 0 waits would never end; it needs at least 1")
            }
            InvalidWait::NoEngine => f.write_str(
                "signals and other runs can be waited for only in a task that an engine runs",
            ),
            InvalidWait::NotUsed(limit) => write!(
                f,
                "limit \"{limit}\" cannot be given back, because the task does not use it"
            ),
        }
    }
}

impl std::error::Error for InvalidWait {}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::TimedOut { name: Some(name), after } => {
                write!(f, "the wait for {name} timed out after {after:?}")
            }
            WaitError::TimedOut { name: None, after } => {
                write!(f, "the wait timed out after {after:?}")
            }
            WaitError::Failed(error) => write!(f, "the condition failed: {error}"),
            WaitError::Closed => Closed.fmt(f),
            WaitError::Invalid(invalid) => invalid.fmt(f),
        }
    }
}

/// Its causes say of which kind it was, also where it was put into an error of another kind that
/// shows nothing but its causes.
impl std::error::Error for WaitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            WaitError::TimedOut { .. } => &TimedOut,
            WaitError::Failed(error) => error.as_cause(),
            WaitError::Closed => &Closed,
            WaitError::Invalid(invalid) => invalid,
        })
    }
}

/// The cause of a wait that ended because its time was up.
#[derive(Debug)]
pub(crate) struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for TimedOut {}

impl<'h, T> Wait<'h, T> {
    pub(crate) fn new(attempt: &'h Arc<Attempt>, source: impl Source<T> + 'h) -> Self {
        Wait {
            attempt,
            source: Some(Box::pin(source)),
            options: Options::default(),
            timeout: None,
            grace: None,
            phase: Phase::Checking,
            span: None,
            won: false,
            received: Vec::new(),
        }
    }

    /// Ends the wait with [`WaitError::TimedOut`] if it is not over after `limit`, counted from the
    /// first poll. Queueing for the slot afterwards does not count.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// Makes each interval `factor` times the one before, up to `longest`.
    pub fn backoff(mut self, factor: f64, longest: Duration) -> Self {
        self.options.backoff = Some((factor, longest));
        self
    }

    /// Makes each interval longer or shorter by chance, by up to this part of it (0 to 1), so that
    /// many waits do not look at the same instant.
    pub fn jitter(mut self, part: f64) -> Self {
        self.options.jitter = Some(part);
        self
    }

    /// Gives a limit back while it waits, and takes it again before it goes on. Without this a task
    /// keeps its limits while it waits.
    pub fn releasing(mut self, limit: impl Into<String>) -> Self {
        self.options.releasing.push(limit.into().into());
        self
    }

    /// Names the wait, for messages and for whoever asks what a task waits for.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into().into());
        self
    }

    /// Turns what the wait returns into something else, for example so that different waits fit
    /// into one [`wait_any`](crate::TaskHandle::wait_any).
    pub fn map<U, F>(mut self, f: F) -> Wait<'h, U>
    where
        T: Send + 'h,
        F: FnOnce(T) -> U + Send + 'h,
    {
        // The options and the time that has passed go with it; a wait that was begun is dropped as
        // a wait, and its source goes on in the new one.
        let source = match self.source.take() {
            Some(source) => source,
            None => Box::pin(combine::Over { result: self.take_result() }),
        };
        Wait {
            attempt: self.attempt,
            source: Some(Box::pin(combine::Map { source, f: Some(f) })),
            options: std::mem::take(&mut self.options),
            timeout: self.timeout.take(),
            grace: None,
            phase: Phase::Checking,
            span: self.span.take(),
            won: self.won,
            received: std::mem::take(&mut self.received),
        }
    }

    /// Polls what is waited for, with its time-out, and leaves the slot alone.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Step<Result<T, WaitError>> {
        if self.span.is_none() && matches!(self.phase, Phase::Checking) {
            self.span = trace::wait(|| self.words());
        }
        let Wait { attempt, options, source, won, span, .. } = self;
        let Some(source) = source else {
            // It was over before it became part of another wait.
            return Step::Ready(self.take_result().expect(POLLED_TOO_LATE));
        };
        let _in = span.as_ref().map(|span| span.enter());
        let around = Around { tide: attempt.tide(), options, won: *won };
        if let Err(invalid) = options.validate(source.is_polled(), attempt) {
            return Step::Ready(Err(WaitError::Invalid(invalid)));
        }
        let limit = options.timeout.filter(|_| !source.is_stored());
        // The source first: what is true at the last moment is true.
        let step = source.as_mut().poll_source(cx, around);
        if let (Some(limit), Step::Checking | Step::Waiting) = (limit, &step) {
            let timer = self.timeout.get_or_insert_with(|| Timer::after(attempt.tide(), limit));
            if timer.poll(cx).is_ready() {
                let name = options.name.as_ref().map(ToString::to_string);
                return Step::Ready(Err(WaitError::TimedOut { name, after: limit }));
            }
        }
        step
    }

    /// What it waits for, for people: its name, or what its source says.
    fn words(&self) -> String {
        match (&self.options.name, &self.source) {
            (Some(name), _) => name.to_string(),
            (None, Some(source)) => source.words(),
            (None, None) => String::new(),
        }
    }

    /// Whether a first check has had its time.
    fn first_check_is_slow(&mut self, cx: &mut Context<'_>) -> bool {
        let tide = self.attempt.tide();
        self.grace.get_or_insert_with(|| Timer::after(tide, FIRST_CHECK)).poll(cx).is_ready()
    }

    /// Whether the store knows what it waits for.
    fn is_stored(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is_stored())
    }

    /// Another of several was the first to be over.
    fn lose(&mut self) {
        if let Some(source) = &mut self.source {
            source.as_mut().lose();
        }
    }

    /// See [`Source::received`].
    fn received(&mut self, into: &mut Vec<WaitId>) {
        into.append(&mut self.received);
        if let Some(source) = &mut self.source {
            source.as_mut().received(into);
        }
    }

    /// How it can be waited for as a row, if it can.
    fn parks(&self) -> Option<Parks> {
        self.source.as_ref().and_then(|source| source.parks())
    }

    /// When it is over at the latest, if that is known.
    fn due(&self) -> Option<Instant> {
        let source = self.source.as_ref().and_then(|source| source.due());
        let timeout = self.timeout.as_ref().map(Timer::due);
        let stored = self.attempt.record().zip(self.parks().and_then(|parks| parks.wake));
        let stored =
            stored.map(|(record, wake)| deadline_after(Instant::now(), wake.since(record.now())));
        [source, timeout, stored].into_iter().flatten().min()
    }

    /// The limits that are given back while it waits.
    fn releases(&self) -> Vec<Arc<str>> {
        let mut releases = self.options.releasing.clone();
        if let Some(source) = &self.source {
            source.releases(&mut releases);
        }
        releases
    }

    /// Becomes a row, if it can and takes long: at once if only time ends it, otherwise when it has
    /// waited in memory for a while.
    fn park(&mut self, cx: &mut Context<'_>) {
        let Wait { attempt, source, grace, .. } = self;
        let record = attempt.record();
        let Some((record, after)) = record.and_then(|r| Some((r, r.parks_after()?))) else {
            return;
        };
        let Some(parks) = source.as_ref().and_then(|source| source.parks()) else { return };
        let left = parks.wake.map(|wake| wake.since(record.now()));
        let is_long = parks.is_time && left.is_some_and(|left| left > after);
        let timer = grace.get_or_insert_with(|| Timer::after(attempt.tide(), after));
        if is_long || timer.poll(cx).is_ready() {
            let wait = self.words();
            self.attempt.park(Parks { wait, ..parks });
        }
    }

    fn end(&mut self, result: Result<T, WaitError>) {
        self.attempt.end_wait(matches!(self.phase, Phase::Waiting));
        if let Some(source) = &mut self.source {
            source.as_mut().received(&mut self.received);
        }
        self.phase = Phase::Resuming(Some(result));
        (self.source, self.timeout, self.grace, self.span) = (None, None, None, None);
    }

    /// What it is to return; `None` once it has.
    fn take_result(&mut self) -> Option<Result<T, WaitError>> {
        match &mut self.phase {
            Phase::Resuming(result) => result.take(),
            _ => None,
        }
    }
}

impl Options {
    fn validate(&self, polled: bool, attempt: &Attempt) -> Result<(), InvalidWait> {
        if let (false, Some(record)) = (self.releasing.is_empty(), attempt.record())
            && let Some(limit) = self.releasing.iter().find(|limit| !record.uses(limit))
        {
            return Err(InvalidWait::NotUsed(limit.to_string()));
        }
        match self {
            Options { backoff: None, jitter: None, .. } => Ok(()),
            _ if !polled => Err(InvalidWait::NotPolled),
            &Options { backoff: Some((factor, _)), .. } if !(1.0..).contains(&factor) => {
                Err(InvalidWait::Backoff(factor))
            }
            &Options { jitter: Some(part), .. } if !(0.0..=1.0).contains(&part) => {
                Err(InvalidWait::Jitter(part))
            }
            _ => Ok(()),
        }
    }
}

/// The protocol of every wait.
impl<T> Future for Wait<'_, T> {
    type Output = Result<T, WaitError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Phase::Checking | Phase::Waiting = this.phase {
            let first = matches!(this.phase, Phase::Checking);
            match this.poll_source(cx) {
                // Also when the slot was held all along: if another wait of this task has released
                // it, this one may not return without it.
                Step::Ready(result) => this.end(result),
                Step::Checking if first && !this.first_check_is_slow(cx) => return Poll::Pending,
                _ => {
                    if first {
                        this.attempt.begin_wait(|| this.words(), this.releases(), this.due());
                        this.grace = None;
                        this.phase = Phase::Waiting;
                    }
                    this.park(cx);
                    return Poll::Pending;
                }
            }
        }
        assert!(!matches!(this.phase, Phase::Over), "{POLLED_TOO_LATE}");
        let slot = ready!(this.attempt.poll_resume(cx));
        let result = this.take_result().expect(POLLED_TOO_LATE);
        this.phase = Phase::Over;
        Poll::Ready(slot.map_err(|Closed| WaitError::Closed).and(result))
    }
}

/// A wait is moved freely: what must stay in place is in its box.
impl<T> Unpin for Wait<'_, T> {}

impl<T> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        match self.phase {
            Phase::Waiting => self.attempt.drop_wait(false),
            Phase::Resuming(_) => self.attempt.drop_wait(true),
            Phase::Checking => {}
            Phase::Over => return,
        }
        give_back(self.attempt, &mut self.received);
    }
}

/// What was received reaches nobody, if it is the body that goes on without it: then it is there for
/// the next.
fn give_back(attempt: &Attempt, received: &mut Vec<WaitId>) {
    if let Some(record) = attempt.record().filter(|_| attempt.is_polled()) {
        received.drain(..).for_each(|id| record.ask(WaitOp::Close(id)));
    }
}

impl<T> fmt::Debug for Wait<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What [`defer_until`](crate::TaskHandle::defer_until) takes: a [`Condition`], or a closure that
/// returns a future of `bool` or `Result<bool, E>` and may borrow. `M` only tells the two apart; it
/// is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be waited for",
    note = "a condition is a closure that returns a future of `bool` or `Result<bool, E>`, as in \
            `|| async {{ client.is_ready().await }}`, or one of `tidegate::condition`",
    note = "it is `Send` and may borrow from its task"
)]
pub trait Until<'h, M>: Sized {
    /// Makes the wait.
    #[doc(hidden)]
    fn wait(self, handle: &'h TaskHandle, every: Duration) -> Wait<'h, ()>;
}

impl<'h> Until<'h, Condition> for Condition {
    fn wait(self, handle: &'h TaskHandle, every: Duration) -> Wait<'h, ()> {
        Wait::new(handle.inner(), Owned::new(self, every))
    }
}

impl<'h, C, F, V> Until<'h, (F, V)> for C
where
    C: FnMut() -> F + Send + 'h,
    F: Future<Output = V> + Send + 'h,
    V: Verdict + 'h,
{
    fn wait(self, handle: &'h TaskHandle, every: Duration) -> Wait<'h, ()> {
        Wait::new(handle.inner(), Borrowed::new(Polled::new(self), every))
    }
}
