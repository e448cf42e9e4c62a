//! Waits made of waits. The parts are polled as sources: only the outermost wait minds the slot.

use super::{Around, InvalidWait, Source, Step, Wait, WaitError};
use std::pin::Pin;
use std::task::Context;

/// A source whose value is turned into another.
pub(super) struct Map<'h, T, F> {
    pub(super) source: Pin<Box<dyn Source<T> + 'h>>,
    pub(super) f: Option<F>,
}

/// Nothing in it is pinned: what must stay in place is in its box.
impl<T, F> Unpin for Map<'_, T, F> {}

impl<T, U, F> Source<U> for Map<'_, T, F>
where
    T: Send,
    F: FnOnce(T) -> U + Send,
{
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Step<Result<U, WaitError>> {
        match self.source.as_mut().poll_source(cx, around) {
            Step::Checking => Step::Checking,
            Step::Waiting => Step::Waiting,
            Step::Ready(result) => {
                let f = self.f.take().expect("a source is not polled after its end");
                Step::Ready(result.map(f))
            }
        }
    }

    fn is_polled(&self) -> bool {
        self.source.is_polled()
    }

    fn words(&self) -> String {
        self.source.words()
    }
}

/// What a wait has found that was over before it became part of another.
pub(super) struct Over<T> {
    pub(super) result: Option<Result<T, WaitError>>,
}

impl<T> Unpin for Over<T> {}

impl<T: Send> Source<T> for Over<T> {
    fn poll_source(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: Around<'_>,
    ) -> Step<Result<T, WaitError>> {
        Step::Ready(self.result.take().expect(super::POLLED_TOO_LATE))
    }

    fn words(&self) -> String {
        String::new()
    }
}

/// The first of several; of those that are over at the same time, the first by argument.
pub(crate) struct Any<'h, T> {
    pub(crate) waits: Vec<Wait<'h, T>>,
}

impl<T: Send> Source<T> for Any<'_, T> {
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _: Around<'_>,
    ) -> Step<Result<T, WaitError>> {
        if self.waits.is_empty() {
            return Step::Ready(Err(WaitError::Invalid(InvalidWait::Nothing)));
        }
        let mut pending = Step::Waiting;
        for wait in &mut self.waits {
            match wait.poll_source(cx) {
                Step::Ready(result) => return Step::Ready(result),
                Step::Checking => pending = Step::Checking,
                Step::Waiting => {}
            }
        }
        pending
    }

    fn words(&self) -> String {
        in_a_row(&self.waits, " or ")
    }
}

/// All of several, their values in order; ends with the first error.
pub(crate) struct All<'h, T> {
    waits: Vec<Part<'h, T>>,
}

enum Part<'h, T> {
    Open(Wait<'h, T>),
    Over(T),
}

impl<'h, T> All<'h, T> {
    pub(crate) fn new(waits: impl IntoIterator<Item = Wait<'h, T>>) -> Self {
        All { waits: waits.into_iter().map(Part::Open).collect() }
    }
}

impl<T> Unpin for All<'_, T> {}

impl<T: Send> Source<Vec<T>> for All<'_, T> {
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _: Around<'_>,
    ) -> Step<Result<Vec<T>, WaitError>> {
        let (mut open, mut checking) = (false, false);
        for part in &mut self.waits {
            let Part::Open(wait) = part else { continue };
            match wait.poll_source(cx) {
                Step::Ready(Ok(value)) => *part = Part::Over(value),
                Step::Ready(Err(error)) => return Step::Ready(Err(error)),
                Step::Checking => (open, checking) = (true, true),
                Step::Waiting => open = true,
            }
        }
        match (open, checking) {
            (true, true) => Step::Checking,
            (true, false) => Step::Waiting,
            (false, _) => {
                let parts = std::mem::take(&mut self.waits).into_iter();
                let values = parts.map(|part| match part {
                    Part::Over(value) => value,
                    Part::Open(_) => unreachable!("none is open"),
                });
                Step::Ready(Ok(values.collect()))
            }
        }
    }

    fn words(&self) -> String {
        let open = self.waits.iter().filter_map(|part| match part {
            Part::Open(wait) => Some(wait),
            Part::Over(_) => None,
        });
        in_a_row(open, " and ")
    }
}

/// How many parts of a wait are named; the others are counted.
const NAMED_MAX: usize = 4;

fn in_a_row<'w, 'h: 'w, T: 'w>(
    waits: impl IntoIterator<Item = &'w Wait<'h, T>>,
    between: &str,
) -> String {
    let words: Vec<String> = waits.into_iter().map(Wait::words).collect();
    match words.len().checked_sub(NAMED_MAX) {
        None | Some(0) => words.join(between),
        Some(more) => format!("{}{between}{more} more", words[..NAMED_MAX].join(between)),
    }
}
