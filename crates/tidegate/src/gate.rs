//! The gate through which a task's body is polled: only while its attempt holds the slot or waits.
//!
//! Whatever the body does (returns, panics, panics before its first await, is dropped), the attempt
//! is over afterwards and its slot is free.

use crate::attempt::Attempt;
use crate::contain::{contain_panic, discard_value};
use crate::error::{Closed, Panic};
use crate::slot::SlotToken;
use crate::wait::Parks;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

pin_project! {
    /// A body behind its gate.
    pub(crate) struct Gate<F> {
        #[pin]
        body: Body<F>,
        // After the body: the slot is given back when nothing of the task is left.
        attempt: EndOnDrop,
    }
}

pin_project! {
    #[project = BodyProjection]
    enum Body<F> {
        Live { #[pin] body: F },
        // It panicked before its first await.
        Stillborn { panic: Option<Panic> },
        Over,
    }
}

struct EndOnDrop(Arc<Attempt>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        drop(self.0.end());
    }
}

/// How a body ended.
pub(crate) enum Passed<T> {
    Returned(T),
    Panicked(Panic),
    /// It waits as a row from now on.
    Parked(Parks),
    /// The slot cannot be had again.
    Closed,
}

impl<F: Future> Gate<F> {
    /// Makes the body; a panic in that is the body's.
    pub(crate) fn new(attempt: Arc<Attempt>, make: impl FnOnce(&Arc<Attempt>) -> F) -> Self {
        let body = match contain_panic(|| make(&attempt)) {
            Ok(body) => Body::Live { body },
            Err(panic) => Body::Stillborn { panic: Some(panic) },
        };
        Gate { body, attempt: EndOnDrop(attempt) }
    }

    fn poll_body(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Passed<F::Output>> {
        let this = self.project();
        let attempt = &this.attempt.0;
        let body = match this.body.project() {
            BodyProjection::Live { body } => body,
            BodyProjection::Stillborn { panic } => {
                let panic = panic.take().expect("a gate is not polled after its end");
                return Poll::Ready(Passed::Panicked(panic));
            }
            BodyProjection::Over => panic!("a gate is not polled after its end"),
        };
        if let Err(Closed) = ready!(attempt.poll_enter(cx)) {
            return Poll::Ready(Passed::Closed);
        }
        // After a panic the body is never polled again, so what it left half-done is not seen.
        match attempt.while_polled(|| contain_panic(|| body.poll(cx))) {
            Ok(Poll::Ready(output)) => return Poll::Ready(Passed::Returned(output)),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(Passed::Panicked(panic)),
        }
        if let Some(parks) = attempt.take_parks() {
            return Poll::Ready(Passed::Parked(parks));
        }
        // If the body has dropped its wait, this stands in line at once. Being granted the slot at
        // once needs no further poll: the body is pending on something of its own.
        match attempt.poll_enter(cx) {
            Poll::Ready(Err(Closed)) => Poll::Ready(Passed::Closed),
            _ => Poll::Pending,
        }
    }
}

impl<F: Future> Gate<F> {
    /// How the body ended, and the slot it held to the end. Nothing else of the task is left.
    pub(crate) fn poll_pass(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<(Passed<F::Output>, Option<SlotToken>)> {
        let end = ready!(self.as_mut().poll_body(cx));
        let mut this = self.project();
        let end = match (contain_panic(|| this.body.set(Body::Over)), end) {
            // A panic in its destructor is the body's, unless it had panicked before.
            (Err(panic), end @ (Passed::Returned(_) | Passed::Parked(_))) => {
                discard_value(end);
                Passed::Panicked(panic)
            }
            (_, end) => end,
        };
        Poll::Ready((end, this.attempt.0.end()))
    }
}

impl<F: Future> Future for Gate<F> {
    type Output = Passed<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_pass(cx).map(|(end, _slot)| end)
    }
}
