//! The lifecycle of a task: one pure, total function.
//!
//! ```text
//!            unblock             claim, begin            the body returned
//! Blocked ─────────────▶ Ready ───────────▶ Running ─────────────────▶ Succeeded
//!    │                    ▲ ▲          (Claimed, Active ⇄ Deferred) ├─▶ Failed
//!    │ skip               │ │ wake            │    │                ├─▶ TimedOut
//!    └──────▶ Skipped     │ └─────── Parked ◀─┘    │                └─▶ Cancelled
//!                         └────────────────────────┘
//!        retry after back-off, snooze, hand-back, recovery
//!
//! Blocked ── taken over from an older run ──▶ Succeeded
//! ```
//!
//! [`Life::next`] says what an [`Event`] makes of a task, as a [`Transition`] that a store then
//! applies with compare-and-set, or why it makes nothing of it, as [`Refused`]. It is the only place
//! where a transition is made. Invariants:
//!
//! - What has ended stays as it is: every event is refused.
//! - A fence only grows, by one at each claim. What a worker says of a task it no longer owns is
//!   refused.
//! - Only failures use attempts. Waiting, snoozing, hand-backs and deaths of a process do not.
//! - Deaths count only while the body computes, and are forgotten when it gets on.
//! - What was told to stop while it computed can only end: it succeeds if it still does, and is
//!   cancelled otherwise. It is not tried again and does not begin to wait.
//!
//! Deliberately absent: what follows for other tasks of the run (see [`graph`](crate::graph)), and
//! limits, which are derived from [`State::holds`].

use crate::{Backoff, Timestamp};
use std::fmt;
use std::time::Duration;

/// Deaths of a process in a row, while this task computed, after which the task is taken for the
/// cause and fails.
pub const RECOVERIES_MAX: u8 = 5;

/// From so many deaths on a task runs alone, so that the guilty one is told from its neighbours.
pub const SUSPECT_FROM: u8 = 2;

/// The number that proves a worker's right to a task: it grows with every claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(pub u64);

/// A worker, by its number in the store; a new one at every start of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// The words and numbers for a list of plain values, in the order of their declaration.
macro_rules! written {
    ($name:ident { $($value:ident $word:literal),+ }) => {
        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: [$name; [$($word),+].len()] = [$($name::$value),+];

            /// As it is written in stores, files and on the command line.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$value => $word),+ }
            }

            /// What is written like this.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == word)
            }

            /// Its number, from 0. Stores keep these numbers, so they never change.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// What has this number.
            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// Why a task ended otherwise than by success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The body returned an error.
    Error,
    /// The body panicked.
    Panic,
    /// The body computed for longer than it may.
    Timeout,
    /// A wait took longer than it may, and the body made that its own error.
    WaitTimeout,
    /// It was ready for longer than it may be.
    QueueTimeout,
    /// Its deadline has passed.
    Deadline,
    /// Its process died again and again while it computed.
    CrashLoop,
    /// A user cancelled it.
    User,
    /// Another task of the run had failed.
    FailFast,
    /// A task it depends on, or belongs to, ended otherwise than it needs.
    Upstream,
}

written!(Reason {
    Error "error", Panic "panic", Timeout "timeout", WaitTimeout "wait_timeout",
    QueueTimeout "queue_timeout", Deadline "deadline", CrashLoop "crash_loop", User "user",
    FailFast "fail_fast", Upstream "upstream"
});

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waits for the tasks it comes after.
    Blocked,
    /// Can be claimed, from `due` on.
    Ready {
        /// When it became ready: where its place in the queue and its `queue_timeout` count from.
        /// Later by as long as it stood paused.
        since: Timestamp,
        /// Later than `since` in a back-off, after a snooze, or with a start time of its own.
        due: Timestamp,
    },
    /// Belongs to a worker.
    Running {
        /// Whose it is. Its fence is the life's.
        worker: WorkerId,
        /// When it had become ready, for `queue_timeout` while it has not begun.
        ready_since: Timestamp,
        /// What it does there.
        activity: Activity,
    },
    /// Waits as a row; nothing of it is in memory.
    Parked {
        /// Since when.
        since: Timestamp,
        /// When it is woken at the latest, if time is among what it waits for.
        wake: Option<Timestamp>,
        /// What for, in words.
        wait: String,
    },
    /// Returned its value.
    Succeeded,
    /// Failed for good.
    Failed(Reason),
    /// Ran out of one of its clocks, for good.
    TimedOut(Reason),
    /// Was cancelled.
    Cancelled(Reason),
    /// Its rule can no longer be met.
    Skipped,
}

/// What a task does at its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// Nothing yet: its body has not been entered.
    Claimed,
    /// Its body computes, or wants to.
    Active {
        /// When the body was entered.
        begun_at: Timestamp,
    },
    /// Its body waits in memory.
    Deferred {
        /// When the body was entered.
        begun_at: Timestamp,
        /// Since when it waits.
        since: Timestamp,
        /// What for, in words.
        wait: String,
    },
}

/// What a task holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holds {
    /// A slot of its worker.
    pub slot: bool,
    /// Its limits, but for those a wait has released.
    pub limits: bool,
}

/// The kind of a state, for compare-and-set and for lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "as in State and Activity")]
pub enum Kind {
    Blocked,
    Ready,
    Claimed,
    Active,
    Deferred,
    Parked,
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
    Skipped,
}

written!(Kind {
    Blocked "blocked", Ready "ready", Claimed "claimed", Active "active", Deferred "deferred",
    Parked "parked", Succeeded "succeeded", Failed "failed", TimedOut "timed_out",
    Cancelled "cancelled", Skipped "skipped"
});

impl State {
    /// What kind of state it is.
    pub fn kind(&self) -> Kind {
        match self {
            State::Blocked => Kind::Blocked,
            State::Ready { .. } => Kind::Ready,
            State::Running { activity: Activity::Claimed, .. } => Kind::Claimed,
            State::Running { activity: Activity::Active { .. }, .. } => Kind::Active,
            State::Running { activity: Activity::Deferred { .. }, .. } => Kind::Deferred,
            State::Parked { .. } => Kind::Parked,
            State::Succeeded => Kind::Succeeded,
            State::Failed(_) => Kind::Failed,
            State::TimedOut(_) => Kind::TimedOut,
            State::Cancelled(_) => Kind::Cancelled,
            State::Skipped => Kind::Skipped,
        }
    }

    /// What a task in this state holds.
    pub fn holds(&self) -> Holds {
        match self.kind() {
            Kind::Active => Holds { slot: true, limits: true },
            Kind::Deferred | Kind::Parked => Holds { slot: false, limits: true },
            _ => Holds { slot: false, limits: false },
        }
    }
}

impl Kind {
    /// Whether nothing can come after it.
    pub fn is_terminal(self) -> bool {
        self >= Kind::Succeeded
    }
}

/// A task's state, and what of its past decides its future.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Where it stands.
    pub state: State,
    /// Of the last claim.
    pub fence: Fence,
    /// The present attempt, from 1.
    pub attempt: u32,
    /// How often the body was entered, over all attempts.
    pub entries: u32,
    /// Deaths of its process, in a row, while it computed.
    pub recoveries: u8,
    /// How long it has computed in this attempt, as far as it was told.
    pub active: Duration,
    /// When the body was first entered; its deadline counts from here.
    pub started: Option<Timestamp>,
    /// By whom it was told to stop while its body computes, which it still does. Only ever set in
    /// [`Activity::Active`].
    pub stopping: Option<CancelledBy>,
}

/// What the definition of a task says about its life.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rules {
    /// Attempts after the first.
    pub retries: u32,
    /// The pause before each.
    pub backoff: Backoff,
    /// How long it may be ready without being begun for the first time.
    pub queue_timeout: Option<Duration>,
    /// How long all of it may take, from its first start.
    pub deadline: Option<Duration>,
}

/// Something that happens to a task. What a worker says of a task carries the `fence` it holds, its
/// right to say so, and how long the body was `active` in this attempt by the worker's steady clock.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "what workers show is said once, above")]
pub enum Event {
    /// The tasks it comes after have let it go; it may start from `not_before` on.
    Unblock {
        /// The start time the run was given, or the past.
        not_before: Timestamp,
    },
    /// Its rule can no longer be met.
    Skip,
    /// It has succeeded in an older run, which its own is a retry of.
    TakeOver,
    /// A worker takes it.
    Claim { worker: WorkerId },
    /// The body is entered.
    Begin { fence: Fence },
    /// The body waits in memory.
    Defer {
        fence: Fence,
        active: Duration,
        /// What for, in words.
        wait: String,
    },
    /// The body has done waiting and goes on.
    Resume { fence: Fence },
    /// The body has stored a step.
    Step { fence: Fence },
    /// The body is dropped and waits as a row.
    Park {
        fence: Fence,
        active: Duration,
        /// When to wake it at the latest.
        wake: Option<Timestamp>,
        /// What for, in words.
        wait: String,
    },
    /// What it waits for as a row has come.
    Wake,
    /// The body returned its value.
    Succeed { fence: Fence },
    /// The body failed.
    Fail {
        fence: Fence,
        /// In which way: an error, a panic, a time-out of its own or of a wait.
        failure: Failure,
        /// Whether another attempt would not mend it.
        permanent: bool,
        /// A number from 0 to 1, drawn by the caller, for the spread of the back-off.
        chance: f64,
    },
    /// The body wants to be run again later.
    Snooze {
        fence: Fence,
        /// How much later.
        delay: Duration,
    },
    /// The worker gives it back unfinished, because it stops, or because the body was dropped.
    HandBack {
        fence: Fence,
        active: Duration,
        /// How long it is not entered again.
        pause: Duration,
    },
    /// The body is gone because it was told to stop: it was cancelled or dropped.
    Stopped { fence: Fence },
    /// Its worker is dead.
    Recover,
    /// Its body computes and is to stop.
    Stop { by: CancelledBy },
    /// It is not wanted any more.
    Cancel { by: CancelledBy },
    /// The clock was looked at: its queue time or its deadline may have run out.
    Clock {
        /// For how long nothing could start since it queues, because of a pause.
        stood_still: Duration,
    },
}

/// In which way a body failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "as in Reason")]
pub enum Failure {
    Error,
    Panic,
    Timeout,
    WaitTimeout,
}

/// Who cancelled a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "as in Reason")]
pub enum CancelledBy {
    User,
    FailFast,
    Upstream,
}

written!(CancelledBy { User "user", FailFast "fail_fast", Upstream "upstream" });

/// What an event makes of a task, for a store to write together with what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a transition changes nothing until a store applies it"]
pub struct Transition {
    to: Life,
}

impl Transition {
    /// What the task becomes.
    pub fn to(&self) -> &Life {
        &self.to
    }

    /// What the task becomes.
    pub fn into_life(self) -> Life {
        self.to
    }
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The task has ended.
    Over {
        /// How.
        kind: Kind,
    },
    /// Whoever says so does not own the task any more.
    Stale {
        /// The fence of its last claim.
        held: Fence,
        /// The fence that was shown.
        shown: Fence,
    },
    /// It does not happen in this state.
    NotNow {
        /// Where the task stands.
        kind: Kind,
    },
    /// It cannot be claimed before this time, or no clock has run out.
    NotDue,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Over { kind } => write!(f, "the task has ended ({kind:?})"),
            Refused::Stale { held, shown } => {
                write!(f, "fence {} was shown and the task is at {}", shown.0, held.0)
            }
            Refused::NotNow { kind } => write!(f, "the task is {kind:?}"),
            Refused::NotDue => f.write_str("it is not time yet"),
        }
    }
}

impl std::error::Error for Refused {}

impl Life {
    /// A task that waits for others.
    pub fn blocked() -> Self {
        Life {
            state: State::Blocked,
            fence: Fence(0),
            attempt: 1,
            entries: 0,
            recoveries: 0,
            active: Duration::ZERO,
            started: None,
            stopping: None,
        }
    }

    /// A task that waits for nobody and may start from `not_before` on.
    pub fn ready(now: Timestamp, not_before: Timestamp) -> Self {
        Life { state: ready(now, not_before), ..Life::blocked() }
    }

    /// The worker that owns it, if one does.
    pub fn owner(&self) -> Option<WorkerId> {
        match self.state {
            State::Running { worker, .. } => Some(worker),
            _ => None,
        }
    }

    /// Whether it has succeeded in the run that its own is a retry of, and was never entered here.
    pub fn is_taken_over(&self) -> bool {
        self.state == State::Succeeded && self.entries == 0
    }

    /// Whether its process has died so often that it has to run alone.
    pub fn is_suspect(&self) -> bool {
        self.recoveries >= SUSPECT_FROM
    }

    /// When [`Event::Clock`] will next find something, if time goes on and nothing else happens.
    /// `stood_still` is what the event would carry.
    pub fn alarm(&self, rules: &Rules, stood_still: Duration) -> Option<Timestamp> {
        let queue = rules.queue_timeout.and_then(|limit| Some(self.unbegun_since()? + limit));
        let queue = queue.map(|at| at + stood_still);
        let deadline = rules.deadline.and_then(|limit| Some(self.started? + limit));
        match self.state.kind().is_terminal() {
            true => None,
            false => [queue, deadline].into_iter().flatten().min(),
        }
    }

    /// Since when it queues with a bound on how long it may: what a pause makes longer.
    pub fn queues_since(&self, rules: &Rules) -> Option<Timestamp> {
        rules.queue_timeout.and(self.unbegun_since())
    }

    /// Since when it could have begun and has not. What was begun once is not given up for having
    /// to queue again; its deadline bounds that.
    fn unbegun_since(&self) -> Option<Timestamp> {
        match self.state {
            _ if self.started.is_some() => None,
            // In a back-off or before its start time it could not.
            State::Ready { since, due } => Some(since.max(due)),
            State::Running { ready_since, activity: Activity::Claimed, .. } => Some(ready_since),
            _ => None,
        }
    }

    /// What the event makes of the task.
    ///
    /// # Errors
    /// Why it makes nothing of it. That is an answer like any other: races are lost every day.
    pub fn next(
        &self,
        rules: &Rules,
        event: &Event,
        now: Timestamp,
    ) -> Result<Transition, Refused> {
        let kind = self.state.kind();
        if kind.is_terminal() {
            return Err(Refused::Over { kind });
        }
        let not_now = Err(Refused::NotNow { kind });
        let mut to = self.clone();
        match *event {
            Event::Unblock { not_before } => match kind {
                Kind::Blocked => to.state = ready(now, not_before),
                _ => return not_now,
            },
            Event::Skip => match kind {
                Kind::Blocked => to.state = State::Skipped,
                _ => return not_now,
            },
            Event::TakeOver => match kind {
                Kind::Blocked => to.state = State::Succeeded,
                _ => return not_now,
            },
            Event::Claim { worker } => match self.state {
                State::Ready { due, .. } if due > now => return Err(Refused::NotDue),
                State::Ready { since, due } => {
                    to.fence = Fence(self.fence.0.saturating_add(1));
                    let (ready_since, activity) = (since.max(due), Activity::Claimed);
                    to.state = State::Running { worker, ready_since, activity };
                }
                _ => return not_now,
            },
            Event::Wake => match kind {
                Kind::Parked => {
                    to.recoveries = 0;
                    to.state = ready(now, now);
                }
                _ => return not_now,
            },
            Event::Recover => match kind {
                Kind::Claimed => to.give_back(now),
                Kind::Deferred => to.state = ready(now, now),
                Kind::Active => to.recover(now),
                _ => return not_now,
            },
            Event::Stop { by } => match kind {
                Kind::Active if self.stopping.is_none() => to.stopping = Some(by),
                _ => return not_now,
            },
            Event::Cancel { by } => to.state = State::Cancelled(by.reason()),
            Event::Clock { stood_still } => to.state = self.ring(rules, stood_still, now)?,
            ref said => self.said(rules, said, now, &mut to)?,
        }
        Ok(becomes(to))
    }

    /// What the worker that owns the task says of it.
    fn said(
        &self,
        rules: &Rules,
        event: &Event,
        now: Timestamp,
        to: &mut Life,
    ) -> Result<(), Refused> {
        let kind = self.state.kind();
        let State::Running { activity, .. } = &mut to.state else {
            return Err(Refused::NotNow { kind });
        };
        let shown = event.shown_fence().expect("what no worker says was dealt with");
        if shown != self.fence {
            return Err(Refused::Stale { held: self.fence, shown });
        }
        match (event, &mut *activity) {
            (Event::Begin { .. }, Activity::Claimed) => {
                *activity = Activity::Active { begun_at: now };
                to.entries = to.entries.saturating_add(1);
                to.started.get_or_insert(now);
            }
            (&Event::HandBack { pause, .. }, Activity::Claimed) => {
                to.give_back(now);
                to.put_off(now, pause);
            }
            // Whatever else there is to say is of a body that was entered.
            (_, Activity::Claimed) => return Err(Refused::NotNow { kind }),
            (Event::Succeed { .. }, _) => to.state = State::Succeeded,
            (Event::Step { .. }, _) => to.recoveries = 0,
            (event, _) if let Some(by) = self.stopping => to.stop(event, by)?,
            (&Event::HandBack { active, pause, .. }, _) => {
                to.active = active;
                to.state = ready(now, now + pause);
            }
            (Event::Defer { active, wait, .. }, &mut Activity::Active { begun_at }) => {
                to.active = *active;
                *activity = Activity::Deferred { begun_at, since: now, wait: wait.clone() };
            }
            (Event::Resume { .. }, &mut Activity::Deferred { begun_at, .. }) => {
                to.recoveries = 0;
                *activity = Activity::Active { begun_at };
            }
            (&Event::Park { active, wake, ref wait, .. }, _) => {
                to.active = active;
                to.state = State::Parked { since: now, wake, wait: wait.clone() };
            }
            (&Event::Fail { failure, permanent, chance, .. }, _) => {
                to.fail(rules, failure, permanent, chance, now);
            }
            (&Event::Snooze { delay, .. }, _) => {
                // It begins anew, with all of its time.
                to.active = Duration::ZERO;
                to.state = ready(now, now + delay);
            }
            _ => return Err(Refused::NotNow { kind }),
        }
        Ok(())
    }

    /// What else the worker says of a body that was told to stop: whatever means that the body is
    /// gone is its end.
    fn stop(&mut self, event: &Event, by: CancelledBy) -> Result<(), Refused> {
        match *event {
            Event::Park { active, .. } | Event::HandBack { active, .. } => self.active = active,
            Event::Fail { .. } | Event::Snooze { .. } | Event::Stopped { .. } => {}
            _ => return Err(Refused::NotNow { kind: self.state.kind() }),
        }
        self.state = State::Cancelled(by.reason());
        Ok(())
    }

    /// A failure: another attempt after the back-off, or the end.
    fn fail(
        &mut self,
        rules: &Rules,
        failure: Failure,
        permanent: bool,
        chance: f64,
        now: Timestamp,
    ) {
        if permanent || self.attempt > rules.retries {
            self.state = match failure {
                Failure::Timeout => State::TimedOut(Reason::Timeout),
                other => State::Failed(other.reason()),
            };
            return;
        }
        self.state = ready(now, now + rules.backoff.pause(self.attempt, chance));
        self.attempt = self.attempt.saturating_add(1);
        self.recoveries = 0;
        self.active = Duration::ZERO;
    }

    /// It was claimed and not begun: it stands where it stood.
    fn give_back(&mut self, now: Timestamp) {
        let since = match self.state {
            State::Running { ready_since, .. } => ready_since.min(now),
            _ => now,
        };
        self.state = State::Ready { since, due: since };
    }

    /// A ready task is not claimed again before a pause is over.
    fn put_off(&mut self, now: Timestamp, pause: Duration) {
        if let State::Ready { due, .. } = &mut self.state
            && !pause.is_zero()
        {
            *due = now + pause;
        }
    }

    /// Its process died while it computed.
    fn recover(&mut self, now: Timestamp) {
        self.recoveries = self.recoveries.saturating_add(1);
        self.state = match (self.stopping, self.recoveries) {
            (Some(by), _) => State::Cancelled(by.reason()),
            (None, RECOVERIES_MAX..) => State::Failed(Reason::CrashLoop),
            (None, _) => ready(now, now),
        };
    }

    /// Which clock has run out.
    fn ring(&self, rules: &Rules, stood_still: Duration, now: Timestamp) -> Result<State, Refused> {
        let over = |from: Option<Timestamp>, limit: Option<Duration>| {
            from.zip(limit).is_some_and(|(from, limit)| now >= from + limit)
        };
        if over(self.started, rules.deadline) {
            return Ok(State::TimedOut(Reason::Deadline));
        }
        if over(self.unbegun_since().map(|since| since + stood_still), rules.queue_timeout) {
            return Ok(State::TimedOut(Reason::QueueTimeout));
        }
        Err(Refused::NotDue)
    }
}

/// The only place where a transition is made.
fn becomes(mut to: Life) -> Transition {
    to.stopping = to.stopping.filter(|_| to.state.kind() == Kind::Active);
    Transition { to }
}

fn ready(now: Timestamp, not_before: Timestamp) -> State {
    State::Ready { since: now, due: now.max(not_before) }
}

impl Event {
    /// The fence shown by a worker; `None` for what no worker says.
    pub fn shown_fence(&self) -> Option<Fence> {
        match *self {
            Event::Begin { fence }
            | Event::Defer { fence, .. }
            | Event::Resume { fence }
            | Event::Step { fence }
            | Event::Park { fence, .. }
            | Event::Succeed { fence }
            | Event::Fail { fence, .. }
            | Event::Snooze { fence, .. }
            | Event::Stopped { fence }
            | Event::HandBack { fence, .. } => Some(fence),
            _ => None,
        }
    }
}

impl Activity {
    /// When the body was entered, if it was.
    pub fn begun_at(&self) -> Option<Timestamp> {
        match *self {
            Activity::Claimed => None,
            Activity::Active { begun_at } | Activity::Deferred { begun_at, .. } => Some(begun_at),
        }
    }

    /// What it waits for and since when, if it does.
    pub fn into_wait(self) -> Option<(String, Timestamp)> {
        match self {
            Activity::Deferred { wait, since, .. } => Some((wait, since)),
            Activity::Claimed | Activity::Active { .. } => None,
        }
    }
}

impl Failure {
    /// As the reason of an end.
    pub fn reason(self) -> Reason {
        match self {
            Failure::Error => Reason::Error,
            Failure::Panic => Reason::Panic,
            Failure::Timeout => Reason::Timeout,
            Failure::WaitTimeout => Reason::WaitTimeout,
        }
    }
}

impl CancelledBy {
    fn reason(self) -> Reason {
        match self {
            CancelledBy::User => Reason::User,
            CancelledBy::FailFast => Reason::FailFast,
            CancelledBy::Upstream => Reason::Upstream,
        }
    }
}
