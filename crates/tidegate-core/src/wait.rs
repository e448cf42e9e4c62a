//! Waits that a store knows: what a task waits for, under an identity that a later entry finds again.
//!
//! A [`Waiting`] is one row of a task: begun once, ended once, whoever asks how often. The store
//! decides how it ended, in the transaction in which that happens; whoever tries to end it a second
//! time is told what stands. So a body that is entered again gets the same answers as before, and
//! goes on where nothing was answered yet.
//!
//! What a worker wants of the waits of a task it owns are [`WaitOp`]s. Each may be said again: a wait
//! that is there is not begun anew, and one that has ended stays as it is.

use crate::graph::RunOutcome;
use crate::store::{Bytes, NewRun, RunKey};
use crate::{RunId, Timestamp};
use std::fmt;
use std::sync::Arc;

/// What kind of thing is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    /// A part of the body whose result is kept.
    Step,
    /// A message to the run.
    Signal,
    /// Time.
    Sleep,
    /// A run that the task has begun.
    Child,
    /// Another run.
    Run,
    /// The first of several waits.
    Any,
    /// Room in limits that were given back for a wait. Not kept as a row: what a task lacks of its
    /// limits is what it wants.
    Limits,
}

impl WaitKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [WaitKind; 7] = [
        WaitKind::Step,
        WaitKind::Signal,
        WaitKind::Sleep,
        WaitKind::Child,
        WaitKind::Run,
        WaitKind::Any,
        WaitKind::Limits,
    ];

    /// The number stores keep; it never changes its meaning.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// From the number stores keep.
    pub fn from_code(code: u8) -> Option<Self> {
        WaitKind::ALL.get(usize::from(code)).copied()
    }

    /// Whether it is for the end of a run.
    pub fn is_for_run(self) -> bool {
        matches!(self, WaitKind::Child | WaitKind::Run)
    }
}

/// By what a later entry knows a wait again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId {
    /// What kind it is of.
    pub kind: WaitKind,
    /// Its name among those of its kind: of the step, of the signal. Empty where only their order
    /// tells them apart.
    pub name: Arc<str>,
    /// Which of those with this kind and name, from 0.
    pub occurrence: u32,
}

impl WaitId {
    /// One of this kind and name.
    pub fn new(kind: WaitKind, name: impl Into<Arc<str>>, occurrence: u32) -> Self {
        WaitId { kind, name: name.into(), occurrence }
    }

    /// The wait for all limits that were given back, for the so many-th time.
    pub fn limits(occurrence: u32) -> Self {
        WaitId::new(WaitKind::Limits, "", occurrence)
    }

    /// That an entry has gone another way than the one before, in words.
    pub fn differs(&self, before: &str, now: &str) -> String {
        format!(
            "{self} was for {before} in an earlier entry and is for {now} now; a task must ask for \
             the same waits in the same order whenever it is entered"
        )
    }
}

impl fmt::Display for WaitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaitId { kind, name, occurrence } = self;
        let number = occurrence + 1;
        match kind {
            WaitKind::Step => write!(f, "step \"{name}\" (number {number} of this name)"),
            WaitKind::Signal => write!(f, "wait {number} for signal \"{name}\""),
            WaitKind::Sleep => write!(f, "sleep {number}"),
            WaitKind::Child => write!(f, "child {number}"),
            WaitKind::Run => write!(f, "wait {number} for run {name}"),
            WaitKind::Any => write!(f, "wait_any {number}"),
            WaitKind::Limits => f.write_str("limits that were given back"),
        }
    }
}

/// A wait as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// By what it is known again.
    pub id: WaitId,
    /// What it was asked for, where the identity does not say that. A later entry that asks for
    /// something else has gone another way.
    pub label: Arc<str>,
    /// Since when.
    pub since: Timestamp,
    /// When it is over at the latest: the end of a sleep, or of its patience.
    pub due: Option<Timestamp>,
    /// The run that it is for the end of, or whose signal it is for.
    pub run: Option<RunKey>,
    /// How it ended; `None` while it has not.
    pub outcome: Option<WaitOutcome>,
    /// The signal that ended it, by its number.
    pub signal: Option<u64>,
}

impl Waiting {
    /// One that has begun, for nothing in particular yet.
    pub fn new(id: WaitId, label: Arc<str>, since: Timestamp) -> Self {
        Waiting { id, label, since, due: None, run: None, outcome: None, signal: None }
    }

    /// Whether it has not ended.
    pub fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    /// Whether it stays with its task when that begins anew: if it has brought something or, if
    /// another run is behind it, in any case.
    pub fn outlives_attempt(&self) -> bool {
        match self.id.kind {
            WaitKind::Step | WaitKind::Signal => {
                matches!(self.outcome, Some(WaitOutcome::Value(_)))
            }
            WaitKind::Child => true,
            WaitKind::Sleep | WaitKind::Run | WaitKind::Any | WaitKind::Limits => false,
        }
    }
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq)]
pub enum WaitOutcome {
    /// With a value: what a step came to, what a signal brought.
    Value(Option<Bytes>),
    /// Its time has come.
    Elapsed,
    /// Its patience was over before what it waited for.
    TimedOut,
    /// The run has ended like this.
    Ended(RunOutcome),
    /// This one of several was the first.
    Won(u32),
    /// It cannot be waited for, and why. Not stored: nothing has begun.
    Refused(String),
}

impl WaitOutcome {
    /// A number and bytes, for stores; `None` for what is not stored.
    pub fn encode(&self) -> Option<(u8, Option<Bytes>)> {
        Some(match self {
            WaitOutcome::Value(value) => (0, value.clone()),
            WaitOutcome::Elapsed => (1, None),
            WaitOutcome::TimedOut => (2, None),
            WaitOutcome::Ended(RunOutcome::Succeeded) => (3, None),
            WaitOutcome::Ended(RunOutcome::Failed) => (4, None),
            WaitOutcome::Ended(RunOutcome::Cancelled) => (5, None),
            WaitOutcome::Won(which) => (6, Some(which.to_string().into_bytes().into())),
            WaitOutcome::Refused(_) => return None,
        })
    }

    /// What is stored like this.
    pub fn decode(code: u8, body: Option<Bytes>) -> Option<Self> {
        Some(match code {
            0 => WaitOutcome::Value(body),
            1 => WaitOutcome::Elapsed,
            2 => WaitOutcome::TimedOut,
            3 => WaitOutcome::Ended(RunOutcome::Succeeded),
            4 => WaitOutcome::Ended(RunOutcome::Failed),
            5 => WaitOutcome::Ended(RunOutcome::Cancelled),
            6 => WaitOutcome::Won(str::from_utf8(&body?).ok()?.parse().ok()?),
            _ => return None,
        })
    }
}

/// What a worker wants of the waits of a task.
#[derive(Debug, Clone)]
pub enum WaitOp {
    /// It waits for this, from now on or from when it first did. Answered at once: by the outcome,
    /// if there is one already.
    Begin {
        /// By what it is known again.
        id: WaitId,
        /// See [`Waiting::label`].
        label: Arc<str>,
        /// When it is over at the latest.
        due: Option<Timestamp>,
        /// What it waits for.
        what: Awaited,
        /// Limits that are given back if it is open after that.
        releasing: Vec<Arc<str>>,
    },
    /// It has ended like this, unless it had ended before. Answered by the outcome that stands.
    End {
        /// Which.
        id: WaitId,
        /// See [`Waiting::label`].
        label: Arc<str>,
        /// How.
        outcome: WaitOutcome,
    },
    /// It is not waited for any more: as if it had never begun. What it has consumed is there for
    /// others again; a run that was begun for it is cancelled.
    Close(WaitId),
    /// These limits are given back for as long as the task waits.
    Release(Vec<Arc<str>>),
    /// The task wants all its limits again, for the so many-th time. Answered, under
    /// [`WaitId::limits`], if it has them; otherwise it is told to ask again when it has.
    Retake(u32),
}

/// What is waited for.
#[derive(Debug, Clone)]
pub enum Awaited {
    /// A signal of the wait's name.
    Signal,
    /// The due time.
    Time,
    /// The end of this run.
    Run(RunId),
    /// The end of a run that is begun with it, if it was not before.
    Child(Arc<NewRun>),
}

/// What became of a wait: how it ended, or that it is open.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitAnswer {
    /// Which.
    pub id: WaitId,
    /// How it ended; `None` while it has not.
    pub outcome: Option<WaitOutcome>,
}

/// A message to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSignal {
    /// Made by the sender, so that sending can be repeated.
    pub id: u128,
    /// To which run.
    pub run: RunId,
    /// Its name.
    pub name: Arc<str>,
    /// What it brings.
    pub body: Option<Bytes>,
}
