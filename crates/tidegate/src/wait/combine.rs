//! Waits made of waits. The parts are polled as sources: only the outermost wait minds the slot.

use super::together::Together;
use super::{Around, InvalidWait, Parks, Source, Step, Wait, WaitError, give_back};
use crate::attempt::Attempt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tidegate_core::wait::WaitId;
use tokio::time::Instant;

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

    fn is_stored(&self) -> bool {
        self.source.is_stored()
    }

    fn parks(&self) -> Option<Parks> {
        self.source.parks()
    }

    fn due(&self) -> Option<Instant> {
        self.source.due()
    }

    fn lose(self: Pin<&mut Self>) {
        self.get_mut().source.as_mut().lose();
    }

    fn received(self: Pin<&mut Self>, into: &mut Vec<WaitId>) {
        self.get_mut().source.as_mut().received(into);
    }

    fn releases(&self, names: &mut Vec<Arc<str>>) {
        self.source.releases(names);
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
    waits: Vec<Wait<'h, T>>,
    together: Together<'h>,
    /// What the first came to, until it is written that it was.
    first: Option<Result<T, WaitError>>,
}

impl<'h, T> Any<'h, T> {
    pub(crate) fn new(
        attempt: &'h Arc<Attempt>,
        waits: impl IntoIterator<Item = Wait<'h, T>>,
    ) -> Self {
        let waits: Vec<_> = waits.into_iter().collect();
        let label = || format!("the first of {}", waits.len());
        let together = Together::new(attempt, waits.iter().any(Wait::is_stored), label);
        Any { waits, together, first: None }
    }
}

impl<T> Unpin for Any<'_, T> {}

impl<T: Send> Source<T> for Any<'_, T> {
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Step<Result<T, WaitError>> {
        let Any { waits, together, first } = &mut *self;
        if waits.is_empty() {
            return Step::Ready(Err(WaitError::Invalid(InvalidWait::Nothing)));
        }
        if !together.has_begun() {
            hand_down(waits.iter_mut(), around);
        }
        if let Err(error) = together.begin(around) {
            return Step::Ready(Err(error));
        }
        let mut pending = Step::Waiting;
        if first.is_none() {
            for (number, wait) in (0..).zip(waits.iter_mut()) {
                if together.winner().is_some_and(|winner| winner != number) {
                    continue;
                }
                wait.won |= together.winner().is_some();
                match wait.poll_source(cx) {
                    Step::Ready(result) => {
                        let others =
                            waits.iter_mut().zip(0..).filter(|(_, other)| *other != number);
                        others.for_each(|(wait, _)| wait.lose());
                        together.won(number);
                        *first = Some(result);
                        break;
                    }
                    Step::Checking => pending = Step::Checking,
                    Step::Waiting => {}
                }
            }
        }
        if first.is_some() {
            return match together.poll_written(cx) {
                Poll::Pending => Step::Checking,
                Poll::Ready(()) => Step::Ready(first.take().expect("it is there")),
            };
        }
        if let Some(late) = together.poll_late(cx, around) {
            waits.iter_mut().for_each(Wait::lose);
            return Step::Ready(Err(late));
        }
        pending
    }

    fn is_stored(&self) -> bool {
        self.together.is_stored()
    }

    fn parks(&self) -> Option<Parks> {
        self.together.parks(self.waits.iter())
    }

    fn due(&self) -> Option<Instant> {
        self.waits.iter().filter_map(Wait::due).min()
    }

    fn lose(self: Pin<&mut Self>) {
        let Any { waits, together, .. } = self.get_mut();
        together.lose();
        waits.iter_mut().for_each(Wait::lose);
    }

    fn received(self: Pin<&mut Self>, into: &mut Vec<WaitId>) {
        let Any { waits, together, .. } = self.get_mut();
        waits.iter_mut().for_each(|wait| wait.received(into));
        together.received(into);
    }

    fn releases(&self, names: &mut Vec<Arc<str>>) {
        self.waits.iter().for_each(|wait| names.extend(wait.releases()));
    }

    fn words(&self) -> String {
        in_a_row(&self.waits, " or ")
    }
}

/// All of several, their values in order; ends with the first error.
pub(crate) struct All<'h, T> {
    waits: Vec<Part<'h, T>>,
    together: Together<'h>,
    /// What those that are over have received.
    received: Vec<WaitId>,
}

enum Part<'h, T> {
    Open(Box<Wait<'h, T>>),
    Over(T),
}

impl<'h, T> All<'h, T> {
    pub(crate) fn new(
        attempt: &'h Arc<Attempt>,
        waits: impl IntoIterator<Item = Wait<'h, T>>,
    ) -> Self {
        let waits: Vec<_> = waits.into_iter().collect();
        let label = || format!("all of {}", waits.len());
        let together = Together::new(attempt, waits.iter().any(Wait::is_stored), label);
        let waits = waits.into_iter().map(|wait| Part::Open(Box::new(wait))).collect();
        All { waits, together, received: Vec::new() }
    }

    fn open(&self) -> impl Iterator<Item = &Wait<'h, T>> {
        self.waits.iter().filter_map(|part| match part {
            Part::Open(wait) => Some(&**wait),
            Part::Over(_) => None,
        })
    }
}

impl<'h, T> Part<'h, T> {
    fn open(&mut self) -> Option<&mut Wait<'h, T>> {
        match self {
            Part::Open(wait) => Some(wait),
            Part::Over(_) => None,
        }
    }
}

impl<T> Unpin for All<'_, T> {}

/// Dropped by the body, it has received nothing.
impl<T> Drop for All<'_, T> {
    fn drop(&mut self) {
        give_back(self.together.attempt(), &mut self.received);
    }
}

impl<T: Send> Source<Vec<T>> for All<'_, T> {
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Step<Result<Vec<T>, WaitError>> {
        let All { waits, together, received } = &mut *self;
        if !together.has_begun() {
            hand_down(waits.iter_mut().filter_map(Part::open), around);
        }
        if let Err(error) = together.begin(around) {
            return Step::Ready(Err(error));
        }
        let (mut open, mut checking) = (false, false);
        for part in waits.iter_mut() {
            let Part::Open(wait) = part else { continue };
            match wait.poll_source(cx) {
                Step::Ready(Ok(value)) => {
                    wait.received(received);
                    *part = Part::Over(value);
                }
                Step::Ready(Err(error)) => {
                    give_back(together.attempt(), received);
                    return Step::Ready(Err(error));
                }
                Step::Checking => (open, checking) = (true, true),
                Step::Waiting => open = true,
            }
        }
        if !open {
            together.over();
            let parts = std::mem::take(waits).into_iter();
            let values = parts.map(|part| match part {
                Part::Over(value) => value,
                Part::Open(_) => unreachable!("none is open"),
            });
            return Step::Ready(Ok(values.collect()));
        }
        match (together.poll_late(cx, around), checking) {
            (Some(late), _) => {
                give_back(together.attempt(), received);
                Step::Ready(Err(late))
            }
            (None, true) => Step::Checking,
            (None, false) => Step::Waiting,
        }
    }

    fn is_stored(&self) -> bool {
        self.together.is_stored()
    }

    fn parks(&self) -> Option<Parks> {
        self.together.parks(self.open())
    }

    fn due(&self) -> Option<Instant> {
        self.open().map(Wait::due).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn lose(self: Pin<&mut Self>) {
        let All { waits, together, received } = self.get_mut();
        together.lose();
        waits.iter_mut().filter_map(Part::open).for_each(Wait::lose);
        give_back(together.attempt(), received);
    }

    fn received(self: Pin<&mut Self>, into: &mut Vec<WaitId>) {
        let All { together, received, .. } = self.get_mut();
        into.append(received);
        together.received(into);
    }

    fn releases(&self, names: &mut Vec<Arc<str>>) {
        self.open().for_each(|wait| names.extend(wait.releases()));
    }

    fn words(&self) -> String {
        in_a_row(self.open(), " and ")
    }
}

/// The limits that all of them together give back, each of them does.
fn hand_down<'w, 'h: 'w, T: 'w>(
    waits: impl Iterator<Item = &'w mut Wait<'h, T>>,
    around: Around<'_>,
) {
    let releasing = &around.options.releasing;
    if !releasing.is_empty() {
        waits.for_each(|wait| wait.options.releasing.extend_from_slice(releasing));
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
