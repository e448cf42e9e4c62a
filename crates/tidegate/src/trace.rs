//! Spans for whoever traces: `run`, in it `task`, in it `attempt`, in it `wait`.
//!
//! Each entry of a task has its own, because it may be another process that enters it again; they are
//! joined by what they carry: `run` and `execution` are the same on every entry, `attempt` and `entry`
//! tell which it is. Everything that is logged in a body is in these, also on a thread of its own and
//! in a condition that somebody else looks at.
//!
//! Where nobody traces there are none, and they cost nothing.

use crate::task_error::TaskError;
use crate::tide::Check;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_core::lifecycle::Kind;
use tidegate_core::store::Claimed;
use tracing::{Span, info_span};

/// The span of an entry of a task, in those of its task and its run.
pub(crate) fn entry(claimed: &Claimed) -> Option<Span> {
    let (run, workflow) = (claimed.run, claimed.plan.workflow());
    let run = info_span!(parent: None, "run", %run, workflow);
    let name = claimed.plan.graph().name(claimed.index);
    let task = info_span!(parent: &run, "task", task = name, execution = %claimed.execution());
    let begun = claimed.life.state.kind() == Kind::Active;
    let (attempt, entry) = (claimed.life.attempt, claimed.life.entries + u32::from(!begun));
    let span = info_span!(parent: &task, "attempt", attempt, entry);
    (!span.is_disabled()).then_some(span)
}

/// The span of a wait, in the one that is entered.
pub(crate) fn wait(words: impl FnOnce() -> String) -> Option<Box<Span>> {
    if !tracing::enabled!(tracing::Level::INFO) {
        return None;
    }
    let span = info_span!("wait", wait = words());
    (!span.is_disabled()).then(|| Box::new(span))
}

/// A check that is made by somebody else, in the span of the wait that it is for.
pub(crate) fn check(check: Pin<Box<dyn Check>>) -> Pin<Box<dyn Check>> {
    let span = Span::current();
    if span.is_disabled() { check } else { Box::pin(Traced { span, check }) }
}

struct Traced {
    span: Span,
    check: Pin<Box<dyn Check>>,
}

impl Check for Traced {
    fn poll_check(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<bool, TaskError>> {
        let Traced { span, check } = &mut *self;
        span.in_scope(|| check.as_mut().poll_check(cx))
    }
}
