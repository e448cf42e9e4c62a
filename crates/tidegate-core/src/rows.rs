//! What a turn needs of a store: rows, found and written inside one transaction.
//!
//! A task is a [`Row`]; a run is the row of its first task, which also carries the [`Head`]. So a
//! run of one task, the most frequent kind, is one row. Where a row can be found is its [`Place`]:
//! rows that cannot be claimed are not where claims look.

use crate::audit::Stray;
use crate::delta::{PauseChange, RateEvent, SignalChange, TaskWrite};
use crate::graph::{RunOutcome, TaskIndex};
use crate::lifecycle::{Fence, Kind, Life, State, WorkerId};
use crate::limit::{Hold, Limit, LimitKey};
use crate::plan::{Plan, TaskPlan};
use crate::store::{Bytes, Record, RunKey, Scope, TaskKey, TurnId};
use crate::wait::{WaitId, Waiting};
use crate::{RunId, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// A task of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its number.
    pub key: TaskKey,
    /// Its place in the plan.
    pub index: TaskIndex,
    /// The plan of its run.
    pub plan: Arc<Plan>,
    /// How it stands.
    pub life: Life,
    /// The last turn that changed it.
    pub turn: TurnId,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Whether waits of it are stored.
    pub has_waits: bool,
    /// The limit that is full and that it stands behind, and its place in order there: ready, or to
    /// go on after a wait in which it had given its limits back.
    pub behind: Option<(LimitKey, Timestamp)>,
    /// The run, in the row of its first task and in no other.
    pub head: Option<Box<Head>>,
}

impl Row {
    /// The run it belongs to.
    pub fn run(&self) -> RunKey {
        self.key.run(self.index)
    }

    /// What the plan says of it.
    pub fn planned(&self) -> &TaskPlan {
        self.plan.task(self.index)
    }

    /// Whether it is done for the items of a list and has not ended.
    pub(crate) fn is_open_list(&self) -> bool {
        self.planned().each.is_some() && !self.life.state.kind().is_terminal()
    }

    /// Where it is to be found.
    pub fn place(&self, head: &Head, now: Timestamp, stood_still: Duration) -> Place {
        let ready = match self.life.state {
            State::Ready { since, due } => Some((since, due)),
            _ => None,
        };
        let gate = ready.map(|(since, due)| match head.paused_at {
            Some(_) => Gate::Paused,
            // Whoever saw that the limit was full has seen that it is due, by a clock that may be
            // ahead of ours.
            None if self.behind.is_some() => Gate::Limited,
            // What was due when it became ready is due, though the clock may have been set back since.
            None if due > now.max(since) => Gate::Future,
            None if head.awaited => Gate::Awaited,
            None => Gate::Open,
        });
        let behind = match (gate, &self.behind) {
            (Some(Gate::Limited) | None, Some((limit, order))) => Some((limit, *order)),
            _ => None,
        };
        let wake = match (&self.life.state, ready) {
            (&State::Parked { wake, .. }, _) => wake,
            (_, Some((_, due))) if gate == Some(Gate::Future) => Some(due),
            _ => None,
        };
        let clock = self.life.alarm(&self.planned().rules, stood_still);
        let order = match (ready, behind) {
            (Some((since, due)), _) => Some(self.order(head, since.max(due))),
            (None, Some((_, order))) => Some(order),
            (None, None) => None,
        };
        Place {
            gate,
            order,
            alarm: [wake, clock].into_iter().flatten().min(),
            behind: behind.map(|(limit, _)| limit.clone()),
        }
    }

    /// Its place in the order of what is ready: an earlier time stands for priority.
    pub(crate) fn order(&self, head: &Head, ready_at: Timestamp) -> Timestamp {
        let priority = head.priority.saturating_add(self.planned().priority);
        let head_start = Duration::from_secs(priority.unsigned_abs().into());
        match priority {
            0.. => ready_at - head_start,
            _ => ready_at + head_start,
        }
    }
}

/// What a run is besides its tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Its name.
    pub id: RunId,
    /// Under which name it is handed out.
    pub queue: Arc<str>,
    /// Its head start in seconds.
    pub priority: i32,
    /// Its idempotency key.
    pub key: Option<String>,
    /// The task that has begun it and is given what it comes to.
    pub parent: Option<TaskKey>,
    /// The run that it is a retry of. It may be gone.
    pub retry_of: Option<RunId>,
    /// Nothing of it starts before.
    pub not_before: Option<Timestamp>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// Whether a user has cancelled it.
    pub cancelled: bool,
    /// Whether a task has failed for good.
    pub failing: bool,
    /// How many of its tasks have not ended.
    pub open: u32,
    /// Whether some task waits for its end, or has.
    pub awaited: bool,
    /// How and when it ended.
    pub ended: Option<(RunOutcome, Timestamp)>,
}

/// Where a row is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What stands between a ready task and its claim; `None` unless it is ready.
    pub gate: Option<Gate>,
    /// Where it stands among those that are ready, or behind the same limit.
    pub order: Option<Timestamp>,
    /// When the clock has to be looked at for it.
    pub alarm: Option<Timestamp>,
    /// The limit it stands behind.
    pub behind: Option<LimitKey>,
}

/// What stands between a ready task and its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Nothing.
    Open,
    /// It is not due.
    Future,
    /// Its run is paused.
    Paused,
    /// Nothing, and some task waits for its run.
    Awaited,
    /// A limit is full.
    Limited,
}

impl Gate {
    /// All of them, in the order of their numbers.
    pub const ALL: [Gate; 5] =
        [Gate::Open, Gate::Future, Gate::Paused, Gate::Awaited, Gate::Limited];

    /// Whether a task behind it can be claimed.
    pub fn is_open(self) -> bool {
        matches!(self, Gate::Open | Gate::Awaited)
    }

    /// From the number stores keep.
    pub fn from_code(code: u8) -> Option<Self> {
        Gate::ALL.get(usize::from(code)).copied()
    }

    /// The number stores keep; it never changes its meaning.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// What is kept beside a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// What the run works on; kept with its first task.
    Input,
    /// What the task returned.
    Output,
    /// What the task has put into the context.
    Inserts,
    /// What went wrong last, in words.
    Error,
    /// The item for which the task is done, if it is done for items.
    Item,
    /// The keys of its limits, one to a line.
    Keys,
}

impl Payload {
    /// The number stores keep; it never changes its meaning.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// What is told at once of a task that a worker owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// Its number.
    pub task: TaskKey,
    /// By which right.
    pub fence: Fence,
    /// The last turn that changed it.
    pub turn: TurnId,
    /// Whether it was told to stop.
    pub stopping: bool,
}

/// Finds and writes rows inside one transaction. What was written is found.
pub trait Rows {
    /// Why it cannot.
    type Error;

    /// The run of this name.
    fn find(&mut self, run: RunId) -> Result<Option<RunKey>, Self::Error>;

    /// The run with this idempotency key.
    fn find_key(
        &mut self,
        queue: &str,
        workflow: &str,
        key: &str,
    ) -> Result<Option<RunKey>, Self::Error>;

    /// One task.
    fn task(&mut self, task: TaskKey) -> Result<Option<Row>, Self::Error>;

    /// All tasks of a run, in the order of its plan.
    fn tasks(&mut self, run: RunKey) -> Result<Vec<Row>, Self::Error>;

    /// Tasks whose alarm is not later than `now`, the earliest first.
    fn due(&mut self, now: Timestamp, max: u32) -> Result<Vec<TaskKey>, Self::Error>;

    /// The earliest alarm of all tasks and limits.
    fn next_alarm(&mut self) -> Result<Option<Timestamp>, Self::Error>;

    /// Tasks that this worker owns, by number.
    fn owned(&mut self, worker: WorkerId, max: u32) -> Result<Vec<Owned>, Self::Error>;

    /// Tasks behind an open gate in a queue that this worker serves and that is not paused, which it
    /// knows and which are not heavier than `heaviest`; by order, then by number. With
    /// `only_awaited`: only those of runs that some task waits for. Queues and store are
    /// paused as they will be after the changes in `pauses`.
    fn ready(
        &mut self,
        worker: WorkerId,
        heaviest: u32,
        only_awaited: bool,
        pauses: &[PauseChange],
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Self::Error>;

    /// Whether [`ready`](Self::ready) would look at this task if its gate were open and nothing paused.
    fn can_run(
        &mut self,
        worker: WorkerId,
        heaviest: u32,
        queue: &Arc<str>,
        plan: &Arc<Plan>,
        task: TaskIndex,
    ) -> Result<bool, Self::Error>;

    /// What is kept beside a task.
    fn payload(&mut self, task: TaskKey, kind: Payload) -> Result<Option<Bytes>, Self::Error>;

    /// For how long of the time between, nothing of this run could start, because it, its queue or
    /// the store was paused.
    fn stood_still(
        &mut self,
        run: RunId,
        queue: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Duration, Self::Error>;

    /// How many runs of a queue wait, up to `max`: runs that no task has begun, that have not ended,
    /// and of which no task has been entered or is owned by a worker. Below `max` it may be told more
    /// than there are.
    fn waiting(&mut self, queue: &str, max: u32) -> Result<u32, Self::Error>;

    /// Numbers for so many tasks in a row, never used before.
    fn allocate(&mut self, tasks: u32) -> Result<RunKey, Self::Error>;

    /// Adds a task.
    fn insert(&mut self, write: TaskWrite) -> Result<(), Self::Error>;

    /// Replaces a task.
    fn update(&mut self, write: TaskWrite) -> Result<(), Self::Error>;

    /// Keeps something beside a task, in place of what was kept there.
    fn keep(&mut self, task: TaskKey, kind: Payload, bytes: &Bytes) -> Result<(), Self::Error>;

    /// Adds a record and says which number it got.
    fn record(&mut self, record: &Record) -> Result<u64, Self::Error>;

    /// Whether there is a pause of exactly this.
    fn is_paused(&mut self, scope: &Scope) -> Result<bool, Self::Error>;

    /// Whether there is a pause of this queue or of the store.
    fn is_queue_paused(&mut self, queue: &str) -> Result<bool, Self::Error>;

    /// Begins a pause where there is none, or ends the one there is.
    fn change_pause(&mut self, pause: &PauseChange) -> Result<(), Self::Error>;

    /// Forgets a worker.
    fn forget(&mut self, worker: WorkerId) -> Result<(), Self::Error>;

    /// Leaves word for a worker that it has to look at one of its tasks.
    fn leave_word(&mut self, worker: WorkerId, task: TaskKey) -> Result<(), Self::Error>;

    /// The tasks of which word was left for a worker, each once, by number.
    fn words(&mut self, worker: WorkerId) -> Result<Vec<TaskKey>, Self::Error>;

    /// Takes away the words that were left for a worker.
    fn drop_words(&mut self, worker: WorkerId) -> Result<(), Self::Error>;

    // -------------------------------------------------------------------------------- repair --

    /// Where a task is found, as it was last written; `None` if there is no such task.
    fn place(&mut self, task: TaskKey) -> Result<Option<Place>, Self::Error>;

    /// Whether a task is not filed among those that are alike for a claim, or its run, if it is the
    /// first, not under its idempotency key although no other run has that.
    fn is_misfiled(&mut self, row: &Row, head: &Head) -> Result<bool, Self::Error>;

    /// Files a task and its run anew.
    fn refile(&mut self, row: &Row, head: &Head) -> Result<(), Self::Error>;

    /// Whether there are rows that belong to something that does not exist.
    fn has_orphans(&mut self, stray: &Stray) -> Result<bool, Self::Error>;

    /// Removes them.
    fn sweep(&mut self, stray: &Stray) -> Result<(), Self::Error>;

    // --------------------------------------------------------------------------------- waits --

    /// All waits of a task, by identity.
    fn waits(&mut self, task: TaskKey) -> Result<Vec<Waiting>, Self::Error>;

    /// One wait of a task.
    fn wait(&mut self, task: TaskKey, id: &WaitId) -> Result<Option<Waiting>, Self::Error>;

    /// Adds a wait, or replaces the one of this identity.
    fn put_wait(&mut self, task: TaskKey, wait: &Waiting) -> Result<(), Self::Error>;

    /// Takes a wait away; nothing if there is none.
    fn drop_wait(&mut self, task: TaskKey, id: &WaitId) -> Result<(), Self::Error>;

    /// The first `max` open waits for a signal of this name to this run: by time, then by task, then
    /// by identity.
    fn signal_waits(
        &mut self,
        run: RunKey,
        name: &str,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey, WaitId)>, Self::Error>;

    /// All open waits for the end of this run, by task and identity.
    fn run_waits(&mut self, run: RunKey) -> Result<Vec<(TaskKey, WaitId)>, Self::Error>;

    /// The open waits of the first `tasks` tasks of this run for the end of a run.
    fn waited_by(
        &mut self,
        run: RunKey,
        tasks: u32,
    ) -> Result<Vec<(TaskKey, WaitId, RunKey)>, Self::Error>;

    /// A number for a signal, larger than all before.
    fn signal_number(&mut self) -> Result<u64, Self::Error>;

    /// Whether a signal with this id was sent to this run.
    fn was_sent(&mut self, run: RunKey, id: u128) -> Result<bool, Self::Error>;

    /// The first `max` signals of this name to this run that no task has received: their numbers and
    /// what they bring.
    fn signals(
        &mut self,
        run: RunKey,
        name: &str,
        max: u32,
    ) -> Result<Vec<(u64, Option<Bytes>)>, Self::Error>;

    /// Adds or changes the signal of this number. One that was pruned with its run is left out.
    fn change_signal(&mut self, number: u64, change: &SignalChange) -> Result<(), Self::Error>;

    // -------------------------------------------------------------------------------- limits --

    /// A limit that was declared.
    fn limit(&mut self, name: &str) -> Result<Option<Limit>, Self::Error>;

    /// Declares a limit, or changes it.
    fn set_limit(&mut self, limit: &Limit) -> Result<(), Self::Error>;

    /// Units of a limit that tasks hold.
    fn in_use(&mut self, limit: &LimitKey) -> Result<u32, Self::Error>;

    /// What a task holds, by limit.
    fn holds(&mut self, task: TaskKey) -> Result<Vec<Hold>, Self::Error>;

    /// A task holds this from now on. It holds nothing else of that limit.
    fn hold(&mut self, task: TaskKey, hold: &Hold) -> Result<(), Self::Error>;

    /// A task holds nothing of this limit any more.
    fn let_go(&mut self, task: TaskKey, limit: &LimitKey) -> Result<(), Self::Error>;

    /// What was begun under a limit and is still noted: when, and how many units.
    fn begun(&mut self, limit: &LimitKey) -> Result<Vec<(Timestamp, u32)>, Self::Error>;

    /// Adds a begin under a limit, and forgets what does not count any more.
    fn add_rate_event(&mut self, event: &RateEvent) -> Result<(), Self::Error>;

    /// Tasks that stand behind a limit: of each lane (same queue, workflow, name and weight) the
    /// first `max`; by order, then by number.
    fn behind(
        &mut self,
        limit: &LimitKey,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Self::Error>;

    /// The keys of a limit behind which tasks stand.
    fn keys_behind(&mut self, name: &str) -> Result<Vec<LimitKey>, Self::Error>;

    /// When a limit has to be looked at because time frees it.
    fn limit_alarm(&mut self, limit: &LimitKey) -> Result<Option<Timestamp>, Self::Error>;

    /// When a limit has to be looked at from now on; `None`: not.
    fn set_limit_alarm(
        &mut self,
        limit: &LimitKey,
        alarm: Option<Timestamp>,
    ) -> Result<(), Self::Error>;

    /// Limits whose alarm is not later than `now`, the earliest first. ([`next_alarm`](Self::next_alarm)
    /// is the earliest of these and of those of tasks.)
    fn due_limits(&mut self, now: Timestamp, max: u32) -> Result<Vec<LimitKey>, Self::Error>;
}

/// A life in columns of plain numbers and texts, for stores that have those. Columns that mean
/// nothing in a state are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in Life and State")]
pub struct Columns {
    pub state: u8,
    pub reason: Option<u8>,
    pub fence: u64,
    pub attempt: u32,
    pub entries: u32,
    pub recoveries: u8,
    /// In microseconds.
    pub active: i64,
    pub started: Option<Timestamp>,
    pub stopping: Option<u8>,
    pub worker: Option<WorkerId>,
    /// Ready or running: when it became ready. Parked: since when.
    pub since: Option<Timestamp>,
    /// Ready: from when on it can be claimed. Parked: when it is woken.
    pub due: Option<Timestamp>,
    pub begun_at: Option<Timestamp>,
    pub waits_since: Option<Timestamp>,
    pub waits_for: Option<String>,
}

/// Columns that make no life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its columns contradict its state")
    }
}

impl std::error::Error for Corrupt {}

impl From<&Life> for Columns {
    fn from(life: &Life) -> Self {
        use crate::lifecycle::Activity;
        let mut columns = Columns {
            state: life.state.kind().code(),
            reason: None,
            fence: life.fence.0,
            attempt: life.attempt,
            entries: life.entries,
            recoveries: life.recoveries,
            active: i64::try_from(life.active.as_micros()).unwrap_or(i64::MAX),
            started: life.started,
            stopping: life.stopping.map(|by| by.code()),
            worker: None,
            since: None,
            due: None,
            begun_at: None,
            waits_since: None,
            waits_for: None,
        };
        match &life.state {
            State::Blocked | State::Succeeded | State::Skipped => {}
            &State::Ready { since, due } => (columns.since, columns.due) = (Some(since), Some(due)),
            State::Parked { since, wake, wait } => {
                (columns.since, columns.due) = (Some(*since), *wake);
                columns.waits_for = Some(wait.clone());
            }
            State::Running { worker, ready_since, activity } => {
                (columns.worker, columns.since) = (Some(*worker), Some(*ready_since));
                match activity {
                    Activity::Claimed => {}
                    Activity::Active { begun_at } => columns.begun_at = Some(*begun_at),
                    Activity::Deferred { begun_at, since, wait } => {
                        columns.begun_at = Some(*begun_at);
                        columns.waits_since = Some(*since);
                        columns.waits_for = Some(wait.clone());
                    }
                }
            }
            State::Failed(reason) | State::TimedOut(reason) | State::Cancelled(reason) => {
                columns.reason = Some(reason.code());
            }
        }
        columns
    }
}

impl TryFrom<Columns> for Life {
    type Error = Corrupt;

    fn try_from(columns: Columns) -> Result<Life, Corrupt> {
        use crate::lifecycle::{Activity, CancelledBy, Reason};
        let kind = Kind::from_code(columns.state).ok_or(Corrupt)?;
        let reason = || columns.reason.and_then(Reason::from_code).ok_or(Corrupt);
        let running = |activity| {
            let worker = columns.worker.ok_or(Corrupt)?;
            let ready_since = columns.since.ok_or(Corrupt)?;
            Ok(State::Running { worker, ready_since, activity })
        };
        let begun_at = columns.begun_at.ok_or(Corrupt);
        let state = match kind {
            Kind::Blocked => State::Blocked,
            Kind::Ready => State::Ready {
                since: columns.since.ok_or(Corrupt)?,
                due: columns.due.ok_or(Corrupt)?,
            },
            Kind::Claimed => running(Activity::Claimed)?,
            Kind::Active => running(Activity::Active { begun_at: begun_at? })?,
            Kind::Deferred => running(Activity::Deferred {
                begun_at: begun_at?,
                since: columns.waits_since.ok_or(Corrupt)?,
                wait: columns.waits_for.ok_or(Corrupt)?,
            })?,
            Kind::Parked => {
                let since = columns.since.ok_or(Corrupt)?;
                let wait = columns.waits_for.ok_or(Corrupt)?;
                State::Parked { since, wake: columns.due, wait }
            }
            Kind::Succeeded => State::Succeeded,
            Kind::Failed => State::Failed(reason()?),
            Kind::TimedOut => State::TimedOut(reason()?),
            Kind::Cancelled => State::Cancelled(reason()?),
            Kind::Skipped => State::Skipped,
        };
        let stopping = columns.stopping.map(|by| CancelledBy::from_code(by).ok_or(Corrupt));
        Ok(Life {
            state,
            fence: Fence(columns.fence),
            attempt: columns.attempt,
            entries: columns.entries,
            recoveries: columns.recoveries,
            active: Duration::from_micros(u64::try_from(columns.active).map_err(|_| Corrupt)?),
            started: columns.started,
            stopping: stopping.transpose()?,
        })
    }
}
