//! Waits that the store knows: for a signal, for a run, and in parkable tasks for time.
//!
//! The store decides how such a wait has ended; also that its patience is over is only said here and
//! decided there. What an earlier entry has left is answered at once.

use super::{Around, InvalidWait, Parks, Source, Step, WaitError};
use crate::attempt::{Attempt, Record};
use crate::engine::RunStatus;
use crate::journal::Answer;
use crate::task_error::TaskError;
use crate::tide::Timer;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::store::{NewRun, Parent};
use tidegate_core::wait::{Awaited, WaitId, WaitKind, WaitOp, WaitOutcome};
use tidegate_core::{RunId, Timestamp};

/// What a stored wait is for.
pub(crate) enum For {
    Signal,
    Sleep(Sleeping),
    Run(RunId),
    /// Taken when it is asked for.
    Child(Box<NewRun>),
    /// The run could not be made.
    Wrong(TaskError),
}

/// Until when.
pub(crate) enum Sleeping {
    For(Duration),
    Until(Timestamp),
}

/// A wait that the store knows.
pub(crate) struct Stored<'h, T> {
    attempt: &'h Arc<Attempt>,
    id: WaitId,
    label: Arc<str>,
    what: For,
    /// The run it is for, once that is known.
    run: Option<RunId>,
    due: Option<Timestamp>,
    timer: Option<Timer>,
    stage: Stage<T>,
    /// Whether it has received a signal that has not reached the body.
    received: bool,
    read: Read<T>,
}

/// Makes a value of how it ended.
type Read<T> = fn(&dyn Record, WaitOutcome, Option<RunId>) -> Reading<T>;

type Later<T> = Pin<Box<dyn Future<Output = Result<T, WaitError>> + Send>>;

pub(crate) enum Reading<T> {
    Now(Result<T, WaitError>),
    Later(Later<T>),
}

enum Stage<T> {
    New,
    Begun,
    /// Its patience is over, which the store has to agree with.
    TimingOut,
    Reading(Later<T>),
    Over,
}

impl<'h, T> Stored<'h, T> {
    pub(crate) fn new(
        attempt: &'h Arc<Attempt>,
        id: WaitId,
        label: impl Into<Arc<str>>,
        what: For,
        read: Read<T>,
    ) -> Self {
        let run = match &what {
            For::Run(run) => Some(*run),
            For::Child(new) => Some(new.id),
            _ => None,
        };
        let (label, due, timer, stage) = (label.into(), None, None, Stage::New);
        Stored { attempt, id, label, what, run, due, timer, stage, received: false, read }
    }

    fn record(&self) -> Option<&'h dyn Record> {
        self.attempt.record()
    }

    /// Asks the store for it; `Some`: an earlier entry has seen its end.
    fn begin(
        &mut self,
        record: &dyn Record,
        around: Around<'_>,
    ) -> Result<Option<WaitOutcome>, WaitError> {
        let now = record.now();
        let patience = around.options.timeout.map(|limit| now + limit);
        self.due = match self.what {
            For::Sleep(Sleeping::For(delay)) => patience.into_iter().chain(Some(now + delay)).min(),
            For::Sleep(Sleeping::Until(instant)) => patience.into_iter().chain(Some(instant)).min(),
            _ => patience,
        };
        if let Some((known, run)) = record.journal().known(&self.id)
            && known.label == self.label
        {
            self.run = run.or(self.run);
            if let Some(outcome) = known.outcome {
                return Ok(Some(outcome));
            }
            self.due = known.due.or(self.due);
        }
        let releasing = around.options.releasing.clone();
        let what = match std::mem::replace(&mut self.what, For::Signal) {
            For::Signal => Awaited::Signal,
            For::Sleep(until) => {
                self.what = For::Sleep(until);
                Awaited::Time
            }
            For::Run(run) => Awaited::Run(run),
            For::Child(mut new) => {
                let (wait, label) = (self.id.clone(), self.label.clone());
                let (due, releasing) = (self.due, releasing.clone());
                new.parent = new.parent.map(|p| Parent { wait, label, due, releasing, ..p });
                Awaited::Child(Arc::new(*new))
            }
            For::Wrong(error) => return Err(WaitError::Failed(error)),
        };
        let (id, label, due) = (self.id.clone(), self.label.clone(), self.due);
        let gives_back = !releasing.is_empty();
        self.ask(record, WaitOp::Begin { id, label, due, what, releasing });
        if gives_back {
            self.attempt.has_released();
        }
        self.timer = self.due.map(|due| Timer::after(around.tide, due.since(now)));
        Ok(None)
    }

    fn ask(&self, record: &dyn Record, op: WaitOp) {
        record.journal().ask(&self.id, op.clone());
        record.ask(op);
    }

    /// How a sleep ends whose time is up: its patience may have been shorter.
    fn slept(&self, around: Around<'_>) -> WaitOutcome {
        let is_cut = match (&self.what, around.options.timeout) {
            (For::Sleep(Sleeping::For(delay)), Some(limit)) => limit < *delay,
            (For::Sleep(Sleeping::Until(instant)), Some(_)) => {
                self.due.is_some_and(|due| due < *instant)
            }
            _ => false,
        };
        if is_cut { WaitOutcome::TimedOut } else { WaitOutcome::Elapsed }
    }

    fn end_op(&self, outcome: WaitOutcome) -> WaitOp {
        WaitOp::End { id: self.id.clone(), label: self.label.clone(), outcome }
    }

    /// It has ended like this.
    fn end(
        &mut self,
        record: &dyn Record,
        outcome: WaitOutcome,
        around: Around<'_>,
    ) -> Option<Result<T, WaitError>> {
        record.journal().forget(&self.id);
        self.stage = Stage::Over;
        match outcome {
            WaitOutcome::TimedOut => {
                let name = around.options.name.as_ref().map(ToString::to_string);
                let after = around.options.timeout.unwrap_or_default();
                Some(Err(WaitError::TimedOut { name, after }))
            }
            WaitOutcome::Refused(why) => Some(Err(WaitError::Failed(TaskError::permanent(why)))),
            outcome => match (self.read)(record, outcome, self.run) {
                Reading::Now(result) => {
                    // One that cannot be read is received all the same, and not again and again.
                    self.received = self.id.kind == WaitKind::Signal && result.is_ok();
                    Some(result)
                }
                Reading::Later(later) => {
                    self.stage = Stage::Reading(later);
                    None
                }
            },
        }
    }

    /// It is not waited for any more, and what it has received reaches nobody.
    fn close(&mut self, also_child: bool) {
        let Some(record) = self.record() else { return };
        let is_open = match self.stage {
            // An earlier entry may have begun it: it would go on waiting, and receive.
            Stage::New => record.journal().known(&self.id).is_some(),
            Stage::Begun | Stage::TimingOut => true,
            Stage::Reading(_) | Stage::Over => std::mem::take(&mut self.received),
        };
        self.stage = Stage::Over;
        if is_open {
            record.journal().forget(&self.id);
            if also_child || self.id.kind != WaitKind::Child {
                record.ask(WaitOp::Close(self.id.clone()));
            }
        }
    }
}

impl<T: Send> Source<T> for Stored<'_, T> {
    fn poll_source(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        around: Around<'_>,
    ) -> Step<Result<T, WaitError>> {
        let this = &mut *self;
        let Some(record) = this.record() else {
            return Step::Ready(Err(WaitError::Invalid(InvalidWait::NoEngine)));
        };
        let is_sleep = this.id.kind == WaitKind::Sleep;
        let keeps = around.options.releasing.is_empty();
        loop {
            let outcome = match &mut this.stage {
                Stage::New => match this.begin(record, around) {
                    Err(error) => return Step::Ready(Err(error)),
                    Ok(None) => {
                        this.stage = Stage::Begun;
                        continue;
                    }
                    Ok(Some(outcome)) => outcome,
                },
                Stage::Begun => match record.journal().look(&this.id, cx) {
                    Answer::Over(outcome) => outcome,
                    answer => {
                        let timer = this.timer.as_mut();
                        if timer.is_none_or(|timer| timer.poll(cx).is_pending()) {
                            return match answer {
                                Answer::None if !is_sleep && keeps => Step::Checking,
                                _ => Step::Waiting,
                            };
                        }
                        if is_sleep {
                            // Nobody else ends it, so it needs no answer.
                            let outcome = this.slept(around);
                            record.ask(this.end_op(outcome.clone()));
                            outcome
                        } else {
                            this.ask(record, this.end_op(WaitOutcome::TimedOut));
                            this.stage = Stage::TimingOut;
                            continue;
                        }
                    }
                },
                Stage::TimingOut => match record.journal().look(&this.id, cx) {
                    Answer::Over(outcome) => outcome,
                    _ => return Step::Waiting,
                },
                Stage::Reading(later) => {
                    let Poll::Ready(result) = later.as_mut().poll(cx) else { return Step::Waiting };
                    this.stage = Stage::Over;
                    return Step::Ready(result);
                }
                Stage::Over => panic!("{}", super::POLLED_TOO_LATE),
            };
            if let Some(result) = this.end(record, outcome, around) {
                return Step::Ready(result);
            }
        }
    }

    fn is_stored(&self) -> bool {
        true
    }

    fn parks(&self) -> Option<Parks> {
        let is_open = matches!(self.stage, Stage::Begun);
        let is_sleep = self.id.kind == WaitKind::Sleep;
        is_open.then(|| Parks {
            wake: self.due,
            wait: String::new(),
            on: vec![self.id.clone()],
            is_time: is_sleep,
        })
    }

    fn lose(self: Pin<&mut Self>) {
        self.get_mut().close(true);
    }

    fn received(self: Pin<&mut Self>, into: &mut Vec<WaitId>) {
        let this = self.get_mut();
        if std::mem::take(&mut this.received) {
            into.push(this.id.clone());
        }
    }

    fn words(&self) -> String {
        match self.id.kind {
            WaitKind::Signal => format!("signal \"{}\"", self.id.name),
            WaitKind::Run => format!("run {}", self.id.name),
            WaitKind::Child => match self.run {
                Some(run) => format!("{}, which is run {run}", self.label),
                None => self.label.to_string(),
            },
            _ => "time".to_owned(),
        }
    }
}

/// The body goes on without it: a signal that comes from now on is not its. A run that was begun is
/// its own, also for a later entry.
impl<T> Drop for Stored<'_, T> {
    fn drop(&mut self) {
        if self.attempt.is_polled() {
            self.close(false);
        }
    }
}

impl<T> Unpin for Stored<'_, T> {}

/// What a signal has brought.
pub(crate) fn signal<T: DeserializeOwned>(
    _: &dyn Record,
    outcome: WaitOutcome,
    _: Option<RunId>,
) -> Reading<T> {
    let WaitOutcome::Value(body) = outcome else { return wrong(&outcome) };
    let bytes: &[u8] = body.as_deref().unwrap_or(b"null");
    Reading::Now(serde_json::from_slice(bytes).map_err(|error| {
        let wanted = std::any::type_name::<T>();
        let why = format!("what the signal brought cannot be read as {wanted}: {error}");
        WaitError::Failed(TaskError::permanent(why))
    }))
}

/// How a run stands that has ended.
pub(crate) fn run(
    record: &dyn Record,
    outcome: WaitOutcome,
    run: Option<RunId>,
) -> Reading<RunStatus> {
    match (outcome, run) {
        (WaitOutcome::Ended(_), Some(run)) => Reading::Later(record.read_run(run)),
        (WaitOutcome::Ended(outcome), None) => {
            let why = format!("the run that was waited for has {outcome}, and was pruned since");
            Reading::Now(Err(WaitError::Failed(TaskError::permanent(why))))
        }
        (outcome, _) => wrong(&outcome),
    }
}

/// Time has passed.
pub(crate) fn time(_: &dyn Record, _: WaitOutcome, _: Option<RunId>) -> Reading<()> {
    Reading::Now(Ok(()))
}

fn wrong<T>(outcome: &WaitOutcome) -> Reading<T> {
    let why = format!("the wait has ended as {outcome:?}, which is not how such a wait ends");
    Reading::Now(Err(WaitError::Failed(TaskError::permanent(why))))
}
