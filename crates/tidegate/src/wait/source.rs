//! What can be waited for.

use super::{Around, InvalidWait, Options, Source, Step, WaitError};
use crate::condition::Condition;
use crate::slot::{InLine, SlotToken};
use crate::task_error::TaskError;
use crate::tide::{Check, First, Pace, Subscribed, Subscription, Timer};
use crate::trace;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::slot::Lane;
use tokio::time::Instant;

impl Options {
    fn pace(&self, every: Duration, jitter: f64) -> Pace {
        let (factor, longest) = self.backoff.unwrap_or((1.0, Duration::MAX));
        Pace::new(every, factor, longest, self.jitter.unwrap_or(jitter))
    }
}

fn valid_interval(every: Duration) -> Result<(), WaitError> {
    match every {
        Duration::ZERO => Err(WaitError::Invalid(InvalidWait::Interval(every))),
        _ => Ok(()),
    }
}

pin_project! {
    /// A check that may borrow from its task: looked at by the task itself, which the timer wheel
    /// wakes.
    pub(crate) struct Borrowed<K> {
        #[pin]
        check: K,
        every: Duration,
        // Made at the first poll, when the options are known.
        pace: Option<Pace>,
        timer: Option<Timer>,
        // When the present check was due, or the next one is.
        due: Option<Instant>,
        first: bool,
        permit: Option<SlotToken>,
        line: Option<InLine>,
    }
}

impl<K> Borrowed<K> {
    pub(crate) fn new(check: K, every: Duration) -> Self {
        Borrowed {
            check,
            every,
            pace: None,
            timer: None,
            due: None,
            first: true,
            permit: None,
            line: None,
        }
    }
}

impl<K: Check> Source<()> for Borrowed<K> {
    fn poll_source(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Step<Result<(), WaitError>> {
        let mut this = self.project();
        if let Err(invalid) = valid_interval(*this.every) {
            return Step::Ready(Err(invalid));
        }
        if around.won {
            return Step::Ready(Ok(()));
        }
        let mut now = Instant::now();
        let due = this.due.get_or_insert(now);
        loop {
            let pending = if *this.first { Step::Checking } else { Step::Waiting };
            if let Some(timer) = this.timer
                && this.permit.is_none()
                && timer.poll_at(now, cx).is_pending()
            {
                return pending;
            }
            if this.permit.is_none() && poll_permit(this.permit, this.line, cx, around).is_pending()
            {
                return pending;
            }
            let Poll::Ready(answer) = this.check.as_mut().poll_check(cx) else { return pending };
            *this.permit = None;
            match answer {
                Ok(true) => return Step::Ready(Ok(())),
                Err(error) => return Step::Ready(Err(WaitError::Failed(error))),
                Ok(false) => {}
            }
            let pace = this.pace.get_or_insert_with(|| around.options.pace(*this.every, 0.0));
            now = Instant::now();
            *due = pace.next(*due, now);
            *this.first = false;
            match this.timer {
                Some(timer) => timer.reset(*due),
                None => *this.timer = Some(Timer::new(around.tide, *due)),
            }
        }
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn words(&self) -> String {
        A_CONDITION.to_owned()
    }
}

/// Leave to check now: at most so many checks are under way at once on a pool.
fn poll_permit(
    permit: &mut Option<SlotToken>,
    line: &mut Option<InLine>,
    cx: &mut Context<'_>,
    around: Around<'_>,
) -> Poll<()> {
    let permits = around.tide.permits();
    if line.is_none()
        && let Ok(free) = permits.try_acquire(1)
    {
        *permit = Some(free);
        return Poll::Ready(());
    }
    let place = line.get_or_insert_with(|| InLine::new(permits.clone(), Lane::Start, 1, 0));
    // The limit of checks is never closed.
    let _ = std::task::ready!(place.poll(cx));
    *line = None;
    *permit = Some(SlotToken::granted(permits.clone(), 1, 0));
    Poll::Ready(())
}

const A_CONDITION: &str = "a condition";

/// A condition that owns its data: looked at by the shared poller.
pub(crate) struct Owned {
    /// What it is called, if it is one of the built-in ones.
    name: Option<Arc<str>>,
    condition: Option<Condition>,
    every: Duration,
    subscription: Option<Subscription>,
}

impl Owned {
    pub(crate) fn new(condition: Condition, every: Duration) -> Self {
        let name = condition.merge.clone();
        Owned { name, condition: Some(condition), every, subscription: None }
    }

    /// The first look at a condition of one's own is begun here: most answer at once.
    fn subscribe(
        &mut self,
        mut condition: Condition,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Option<Result<(), TaskError>> {
        if condition.merge.is_none() {
            condition.check = trace::check(condition.check);
        }
        let mut first = First::Due;
        if condition.merge.is_none()
            && let Ok(permit) = around.tide.permits().try_acquire(1)
        {
            first = match condition.check.as_mut().poll_check(cx) {
                Poll::Ready(Ok(true)) => return Some(Ok(())),
                Poll::Ready(Err(error)) => return Some(Err(error)),
                Poll::Ready(Ok(false)) => First::No,
                Poll::Pending => First::UnderWay(permit),
            };
        }
        let pace = around.options.pace(self.every, condition.jitter);
        let waker = cx.waker().clone();
        self.subscription = Some(Subscription::new(around.tide, condition, pace, first, waker));
        None
    }
}

impl Source<()> for Owned {
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Step<Result<(), WaitError>> {
        if around.won {
            return Step::Ready(Ok(()));
        }
        if let Some(condition) = self.condition.take() {
            if let Err(invalid) = valid_interval(self.every) {
                return Step::Ready(Err(invalid));
            }
            if let Some(done) = self.subscribe(condition, cx, around) {
                return Step::Ready(done.map_err(WaitError::Failed));
            }
        }
        match self.subscription.as_mut().expect("it was just made").poll(cx) {
            Subscribed::Checking => Step::Checking,
            Subscribed::Waiting => Step::Waiting,
            Subscribed::Done(done) => Step::Ready(done.map_err(WaitError::Failed)),
        }
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn words(&self) -> String {
        self.name.as_deref().unwrap_or(A_CONDITION).to_owned()
    }
}

/// Time.
pub(crate) enum Sleep {
    /// Counted from the first poll.
    For(Duration),
    Until(Timer),
}

impl Source<()> for Sleep {
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Step<Result<(), WaitError>> {
        if around.won {
            return Step::Ready(Ok(()));
        }
        loop {
            match &mut *self {
                Sleep::For(delay) => *self = Sleep::Until(Timer::after(around.tide, *delay)),
                Sleep::Until(timer) => match timer.poll(cx) {
                    Poll::Ready(()) => return Step::Ready(Ok(())),
                    Poll::Pending => return Step::Waiting,
                },
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        match self {
            Sleep::For(_) => None,
            Sleep::Until(timer) => Some(timer.due()),
        }
    }

    fn words(&self) -> String {
        "time".to_owned()
    }
}

pin_project! {
    /// Any future.
    pub(crate) struct While<F> {
        #[pin]
        pub(crate) future: F,
    }
}

impl<F: Future + Send> Source<F::Output> for While<F> {
    fn poll_source(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _: Around<'_>,
    ) -> Step<Result<F::Output, WaitError>> {
        match self.project().future.poll(cx) {
            Poll::Ready(output) => Step::Ready(Ok(output)),
            Poll::Pending => Step::Waiting,
        }
    }

    fn words(&self) -> String {
        "a future".to_owned()
    }
}

/// A turn in the queue for slots.
pub(crate) struct Yield {
    pub(crate) yielded: bool,
}

impl Source<()> for Yield {
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _: Around<'_>,
    ) -> Step<Result<(), WaitError>> {
        if self.yielded {
            return Step::Ready(Ok(()));
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Step::Waiting
    }

    fn words(&self) -> String {
        "its turn".to_owned()
    }
}
