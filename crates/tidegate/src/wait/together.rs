//! What the store knows of several waits together: which was the first to be over, and until when all
//! of them are waited for.

use super::{Around, Parks, Wait, WaitError};
use crate::attempt::Attempt;
use crate::journal::Answer;
use crate::task_error::TaskError;
use crate::tide::Timer;
use std::sync::Arc;
use std::task::{Context, Poll};
use tidegate_core::Timestamp;
use tidegate_core::wait::{Awaited, WaitId, WaitKind, WaitOp, WaitOutcome};

/// Several waits, as the store knows them. If it knows none of them, it knows nothing of all.
pub(super) struct Together<'h> {
    attempt: &'h Arc<Attempt>,
    id: Option<WaitId>,
    label: Arc<str>,
    begun: bool,
    /// Whether the store knows it as a wait that has not ended.
    open: bool,
    /// Which one was the first, as an earlier entry has seen.
    winner: Option<u32>,
    /// Whether it has ended, and the body has not seen that.
    ended: bool,
    due: Option<Timestamp>,
    timer: Option<Timer>,
}

impl<'h> Together<'h> {
    pub(super) fn new(
        attempt: &'h Arc<Attempt>,
        is_stored: bool,
        label: impl FnOnce() -> String,
    ) -> Self {
        let record = attempt.record().filter(|_| is_stored);
        let id = record.map(|record| record.journal().next(WaitKind::Any, ""));
        let label = if is_stored { label().into() } else { "".into() };
        Together {
            attempt,
            id,
            label,
            begun: false,
            open: false,
            winner: None,
            ended: false,
            due: None,
            timer: None,
        }
    }

    pub(super) fn is_stored(&self) -> bool {
        self.id.is_some()
    }

    pub(super) fn winner(&self) -> Option<u32> {
        self.winner
    }

    /// Who waits for them.
    pub(super) fn attempt(&self) -> &'h Arc<Attempt> {
        self.attempt
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// What an earlier entry has seen; and from when on its time counts.
    pub(super) fn begin(&mut self, around: Around<'_>) -> Result<(), WaitError> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let Some((id, record)) = self.id.as_ref().zip(self.attempt.record()) else { return Ok(()) };
        let known = record.journal().known(id).map(|(known, _)| known);
        if let Some(known) = &known
            && known.label != self.label
        {
            let why = id.differs(&known.label, &self.label);
            return Err(WaitError::Failed(TaskError::permanent(why)));
        }
        match known.as_ref().and_then(|known| known.outcome.as_ref()) {
            Some(WaitOutcome::Won(winner)) => {
                self.winner = Some(*winner);
                return Ok(());
            }
            Some(WaitOutcome::TimedOut) => return Err(late(around)),
            _ => {}
        }
        let now = record.now();
        let limit = around.options.timeout;
        let due = limit.map(|limit| known.and_then(|known| known.due).unwrap_or(now + limit));
        (self.open, self.due) = (true, due);
        self.timer = due.map(|due| Timer::after(around.tide, due.since(now)));
        let (id, label, what) = (id.clone(), self.label.clone(), Awaited::Time);
        record.ask(WaitOp::Begin { id, label, due, what, releasing: Vec::new() });
        Ok(())
    }

    /// Whether its time is up.
    pub(super) fn poll_late(
        &mut self,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Option<WaitError> {
        if self.timer.as_mut()?.poll(cx).is_pending() {
            return None;
        }
        self.end(WaitOutcome::TimedOut);
        Some(late(around))
    }

    /// This one was the first.
    pub(super) fn won(&mut self, which: u32) {
        if self.winner.is_none() {
            self.end(WaitOutcome::Won(which));
        }
    }

    /// All of them are over.
    pub(super) fn over(&mut self) {
        if self.open {
            self.end(WaitOutcome::Elapsed);
        }
    }

    /// Nobody else ends it, so how it ended is known without an answer.
    fn end(&mut self, outcome: WaitOutcome) {
        self.timer = None;
        if let Some((id, record)) = self.id.clone().zip(self.attempt.record()) {
            (self.open, self.ended) = (false, true);
            let op = WaitOp::End { id: id.clone(), label: self.label.clone(), outcome };
            record.journal().ask(&id, op.clone());
            record.ask(op);
        }
    }

    /// Whether it is written which one was the first, or will be before the body goes on. Otherwise a
    /// later entry could see another win, and what this one has received would be received again.
    pub(super) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((id, record)) = self.id.as_ref().zip(self.attempt.record()) else {
            return Poll::Ready(());
        };
        if self.winner.is_some() || self.attempt.is_away() {
            return Poll::Ready(());
        }
        match record.journal().look(id, cx) {
            Answer::Over(_) => Poll::Ready(()),
            Answer::None | Answer::Open => Poll::Pending,
        }
    }

    /// That it has ended, of which the body hears now.
    pub(super) fn received(&mut self, into: &mut Vec<WaitId>) {
        if let (true, Some(id)) = (std::mem::take(&mut self.ended), &self.id) {
            self.attempt.record().into_iter().for_each(|record| record.journal().forget(id));
            into.push(id.clone());
        }
    }

    /// Another of several, of which all of these are one, was the first to be over.
    pub(super) fn lose(&mut self) {
        self.timer = None;
        let begun = std::mem::take(&mut self.open) | std::mem::take(&mut self.ended);
        if let Some((id, record)) = self.id.clone().zip(self.attempt.record()) {
            let known = !self.begun && record.journal().known(&id).is_some();
            record.journal().forget(&id);
            if begun || known {
                record.ask(WaitOp::Close(id));
            }
        }
    }

    /// How these waits can be waited for as rows, if all of them can.
    pub(super) fn parks<'w, T: 'w>(
        &self,
        waits: impl Iterator<Item = &'w Wait<'h, T>>,
    ) -> Option<Parks>
    where
        'h: 'w,
    {
        let own = Parks { wake: self.due, wait: String::new(), on: Vec::new(), is_time: true };
        waits.map(Wait::parks).try_fold(own, |all, parks| Some(all.and(parks?)))
    }
}

/// The body goes on without it.
impl Drop for Together<'_> {
    fn drop(&mut self) {
        if self.attempt.is_polled() {
            self.lose();
        }
    }
}

fn late(around: Around<'_>) -> WaitError {
    let name = around.options.name.as_ref().map(ToString::to_string);
    WaitError::TimedOut { name, after: around.options.timeout.unwrap_or_default() }
}
