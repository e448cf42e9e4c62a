//! The rows that a request works on.
//!
//! A task is a [`Row`]; a run is the row of its first task, which also carries the [`Head`]. So a
//! run of one task, the most frequent kind, is one row. Where a row can be found is its [`Place`]:
//! rows that cannot be claimed are not where claims look.

use crate::graph::{RunOutcome, TaskIndex, When};
use crate::lifecycle::{Fence, Kind, Life, State, WorkerId};
use crate::limit::LimitKey;
use crate::plan::{Plan, TaskPlan};
use crate::store::{Bytes, RequestId, RunKey, RunSummary, RunView, RunsPage, TaskKey, TaskView};
use crate::{RunId, Timestamp};
use std::ops::Range;
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
    /// The last request that changed it.
    pub request: RequestId,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Whether waits of it are stored.
    pub has_waits: bool,
    /// How many of the tasks directly before it have not ended.
    pub open_parents: u32,
    /// Whether a task before it has put something into the context.
    pub has_inserts_above: bool,
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

    /// Whether nothing about it can change any more: it has ended and, if it is the first task of its run,
    /// which carries the run, so has the run.
    pub fn is_final(&self) -> bool {
        let is_run_open = self.head.as_ref().is_some_and(|head| head.ended.is_none());
        self.life.state.kind().is_terminal() && !is_run_open
    }

    /// Whether it is ready, found there, and its claim bears on nothing but this row: it takes one slot and
    /// no limit, no clock runs for it, it is no suspect, no task waits for its run, and its body is given
    /// nothing but the input of its run and what the tasks before it returned.
    pub fn is_plain(&self, place: &Place) -> bool {
        place.gate == Some(Gate::Open)
            && place.alarm.is_none()
            && !self.life.is_suspect()
            && !self.has_waits
            && is_planned_plain(&self.plan, self.index)
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

    /// The run, if this is the row of its first task.
    pub fn summarize_run(&self) -> Option<RunSummary> {
        let head = self.head.as_deref()?;
        Some(RunSummary {
            key: self.run(),
            id: head.id,
            plan: self.plan.clone(),
            queue: head.queue.clone(),
            priority: head.priority,
            idempotency_key: head.key.clone(),
            parent: head.parent,
            retry_of: head.retry_of,
            submitted_at: head.submitted_at,
            paused_at: head.paused_at,
            ended: head.ended,
        })
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

impl RunsPage {
    /// Whether a run is one of those that are asked for, wherever the page begins.
    pub fn includes_run(&self, run: &RunSummary) -> bool {
        let is_begun_by = |tasks: &Range<TaskKey>| run.parent.is_some_and(|by| tasks.contains(&by));
        self.queue.as_ref().is_none_or(|queue| **queue == *run.queue)
            && self.workflow.as_ref().is_none_or(|name| name == run.plan.workflow())
            && (!self.open || run.ended.is_none())
            && (!self.top || run.parent.is_none())
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&run.id))
            && self.begun_by.as_ref().is_none_or(is_begun_by)
    }
}

/// Whether a task can ever be [plain](Row::is_plain), as far as its plan says.
pub(crate) fn is_planned_plain(plan: &Plan, task: TaskIndex) -> bool {
    let TaskPlan { weight, limits, rules, .. } = plan.task(task);
    *weight == 1
        && limits.is_empty()
        && rules.queue_timeout.is_none()
        && rules.deadline.is_none()
        && plan.items_of().is_none()
        && plan.graph().when(task) == When::AllSucceeded
}

/// The run of these rows, with the errors of its tasks by number; `None` if there is no first row.
pub fn view_run(rows: Vec<Row>, errors: Vec<(TaskKey, Bytes)>) -> Option<RunView> {
    let run = rows.first()?.summarize_run()?;
    let mut errors = errors.into_iter().peekable();
    let tasks = rows.into_iter().map(|row| {
        let error = errors.next_if(|(task, _)| *task == row.key);
        let error = error.map(|(_, error)| String::from_utf8_lossy(&error).into_owned());
        TaskView { key: row.key, life: row.life, ended_at: row.ended_at, error }
    });
    Some(RunView { run, tasks: tasks.collect() })
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
    /// The number of runs above it: 0 if no task has begun it.
    pub depth: u32,
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

impl RunOutcome {
    /// From the number stores keep.
    pub fn from_code(code: u8) -> Option<Self> {
        [RunOutcome::Succeeded, RunOutcome::Failed, RunOutcome::Cancelled]
            .into_iter()
            .find(|outcome| outcome.to_code() == code)
    }

    /// The number stores keep; it never changes its meaning.
    pub fn to_code(self) -> u8 {
        match self {
            RunOutcome::Succeeded => 0,
            RunOutcome::Failed => 1,
            RunOutcome::Cancelled => 2,
        }
    }
}

/// What is told at once of a task that a worker owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// Its number.
    pub task: TaskKey,
    /// Its place in the plan of its run.
    pub index: TaskIndex,
    /// By which right.
    pub fence: Fence,
    /// The last request that changed it.
    pub request: RequestId,
    /// Whether it was told to stop.
    pub stopping: bool,
}

impl Owned {
    /// Those of a task.
    pub fn new(row: &Row) -> Self {
        let Row { key, index, life, request, .. } = row;
        let (task, index, fence, request) = (*key, *index, life.fence, *request);
        Owned { task, index, fence, request, stopping: life.stopping.is_some() }
    }
}

/// How much of the time between is covered by at least one of these pauses, of which each has begun and
/// perhaps ended.
pub fn sum_paused_time(
    pauses: impl Iterator<Item = (Timestamp, Option<Timestamp>)>,
    from: Timestamp,
    to: Timestamp,
) -> Duration {
    let clip = |(begin, end): (Timestamp, Option<_>)| (begin.max(from), end.unwrap_or(to).min(to));
    let mut stretches: Vec<_> = pauses.map(clip).collect();
    stretches.sort_unstable();
    let mut covered = Duration::ZERO;
    let mut reached = from;
    for (begin, end) in stretches {
        covered += end.since(begin.max(reached));
        reached = reached.max(end);
    }
    covered
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_that_overlap_count_once() {
        let covered = |pauses: &[(i64, i64)]| {
            let at = Timestamp::from_micros;
            let pauses = pauses.iter().map(|&(begin, end)| (at(begin), Some(at(end))));
            sum_paused_time(pauses, at(0), at(20)).as_micros()
        };
        assert_eq!(covered(&[]), 0);
        assert_eq!(covered(&[(5, 7), (0, 2)]), 4);
        assert_eq!(covered(&[(0, 10), (2, 3), (5, 12)]), 12);
        assert_eq!(covered(&[(4, 4), (6, 5)]), 0);
        assert_eq!(covered(&[(-5, 2), (18, 30)]), 4);
    }
}
