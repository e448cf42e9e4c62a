//! The invariants of any store, checked over ranges of its rows.
//!
//! An [`Auditor`] goes through all rows, about a thousand in a step, each step at one instant, and names
//! every contradiction; a store only opens a snapshot for each step, and adds the checks that no other
//! store can make: whether its indexes agree with its rows. [`run`] compares the rows of one run with
//! each other, with their places and their records; [`waits`] a task with its waits and holds; [`limit`]
//! a limit with the tasks that are blocked on it. [`RULES`] says of every rule what must hold, what it
//! means where it does not, and what a repair does.
//!
//! Deliberately absent: the repair itself, which is a request like every other change.

mod auditor;
mod beside;
mod cycle;
mod repair;
mod rules;
mod tasks;
#[cfg(test)]
mod tests;

pub use auditor::Auditor;
pub use repair::{Repair, Stray};
pub use rules::{RULES, Rule};
pub use tasks::check_parent;

pub(crate) use repair::has_orphans;

use crate::decision::standing;
use crate::graph::{OnFailure, Outcome, Standing, TaskIndex};
use crate::lifecycle::{Kind, Life, RECOVERIES_MAX, State, WorkerId};
use crate::limit::{Hold, Limit, LimitKey, RateWindow};
use crate::rows::{Gate, Head, Place, Row};
use crate::store::{Finding, Happened, Record};
use crate::wait::{WaitKind, WaitOutcome, Waiting};
use crate::{RunId, TaskExecutionId, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Every contradiction in one run: in its tasks, in the order of its plan, with their places, and
/// in what was recorded of it, if that is still kept, oldest first. `now` is the latest time of
/// which the store was told, if it knows that. `failing` are those of its [lists](open_lists) whose
/// runs are marked as failing.
pub fn run(
    tasks: &[(Row, Place)],
    failing: &[TaskIndex],
    records: Option<&[Record]>,
    is_known: impl Fn(WorkerId) -> bool,
    now: Option<Timestamp>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(head) = whole(tasks, &mut findings) else { return findings };
    let mut audit = RunAudit { tasks, failing, head, findings };
    let mut own = vec![Vec::new(); tasks.len()];
    for record in records.unwrap_or_default() {
        if let Some(own) = own.get_mut(record.task.as_usize()) {
            own.push(record);
        }
    }
    for ((row, place), own) in tasks.iter().zip(own) {
        audit.place(row, place, now);
        audit.behind(row);
        audit.owner(row, &is_known);
        audit.life(row);
        audit.ended_at(row);
        if records.is_some() {
            audit.records(row, &own);
        }
    }
    audit.settled();
    audit.outcome();
    audit.open();
    audit.failing();
    audit.cancelled();
    audit.findings
}

/// The tasks of a run that are done for the items of a list and have not ended, and the runs of these.
pub fn open_lists(tasks: &[(Row, Place)]) -> impl Iterator<Item = (TaskIndex, RunId)> {
    let head = tasks.first().and_then(|(first, _)| first.head.as_deref());
    head.into_iter().flat_map(|head| {
        let lists = tasks.iter().map(|(row, _)| row).filter(|row| row.is_open_list());
        lists.map(|row| (row.index, RunId::of_items(TaskExecutionId::of(head.id, row.index))))
    })
}

/// Every contradiction between a task and what is kept beside it: its waits, and what it holds.
pub fn waits(row: &Row, waits: &[Waiting], holds: &[Hold]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (task, kind) = (row.key.0, row.life.state.kind());
    let name = row.plan.graph().name(row.index);
    let mut complain = |rule, what: String, can_be_repaired: bool| {
        let finding = Finding::new(rule, format!("task {task} (\"{name}\", {kind}) {what}"));
        findings.push(match can_be_repaired {
            true => finding.repaired_by(Repair::Task(row.key)),
            false => finding,
        });
    };
    let waits_for_something = waits.iter().any(Waiting::is_open);
    if matches!(row.life.state, State::Parked { wake: None, .. }) && !waits_for_something {
        complain("parked", "waits for nothing and is never woken".to_owned(), true);
    }
    if !waits.is_empty() && !row.has_waits {
        complain("waits", "has waits and is not marked so".to_owned(), true);
    }
    for wait in waits {
        let id = &wait.id;
        let ended_by_signal =
            id.kind == WaitKind::Signal && matches!(wait.outcome, Some(WaitOutcome::Value(_)));
        let needs_run = matches!(id.kind, WaitKind::Signal | WaitKind::Child | WaitKind::Run);
        if kind.is_terminal() && wait.is_open() {
            complain("waits", format!("has ended, and its {id} is open"), true);
        }
        if needs_run && wait.is_open() && wait.run.is_none() {
            complain("waits", format!("waits for no run in its {id}"), false);
        }
        if wait.signal.is_some() != ended_by_signal {
            complain("waits", format!("has {:?} as the signal of its {id}", wait.signal), false);
        }
        if id.kind == WaitKind::Limits || matches!(wait.outcome, Some(WaitOutcome::Refused(_))) {
            complain("waits", format!("keeps its {id}, which is never kept"), false);
        }
    }
    for hold in holds {
        if !may_hold(&row.life) || !uses(row, &hold.limit) || hold.units == 0 {
            complain("holds", format!("holds {} of {}", hold.units, hold.limit), true);
        }
    }
    // Who computes may have given some of them back for a wait that is not written yet.
    let lacks = |name: &str| !holds.iter().any(|hold| *hold.limit.name == *name);
    let lacking = row.planned().limits.iter().find(|used| lacks(&used.name));
    if let (Kind::Claimed, Some(lacking)) = (kind, lacking) {
        let what = format!("was claimed and does not hold limit \"{}\"", lacking.name);
        complain("holds", what, false);
    }
    findings
}

/// A limit as it stands, for one key.
#[derive(Debug)]
pub struct Watched<'a> {
    /// Which.
    pub key: &'a LimitKey,
    /// What was declared.
    pub limit: Option<&'a Limit>,
    /// Units that tasks hold.
    pub in_use: u64,
    /// What was begun under it and counts.
    pub window: &'a RateWindow,
    /// When it has to be looked at.
    pub alarm: Option<Timestamp>,
    /// The first of each lane behind it.
    pub first: &'a [First<'a>],
}

/// Who is the first of its lane behind a limit.
#[derive(Debug)]
pub struct First<'a> {
    /// The task.
    pub row: &'a Row,
    /// How many units it wants.
    pub units: u32,
    /// How many those of its lane want that were let through and have not begun.
    pub before: u32,
}

/// Every contradiction between a limit and who stands behind it. `now` is the latest time of which
/// the store was told.
pub fn limit(watched: &Watched<'_>, now: Timestamp) -> Vec<Finding> {
    let Watched { key, limit, in_use, window, alarm, first } = *watched;
    let Some(limit) = limit else { return Vec::new() };
    let mut findings = Vec::new();
    // What time has freed is let through by the next request.
    let rings = |at: Timestamp| alarm.is_some_and(|alarm| alarm <= at);
    for &First { row, units, before } in first {
        // Who goes on after a wait has begun before, and is let through by nobody.
        let is_ready = row.life.state.kind() == Kind::Ready;
        let before = if is_ready { before } else { 0 };
        let mut window = if is_ready { window.clone() } else { RateWindow::default() };
        if before > 0 {
            window.add_event(now, before);
        }
        let room = limit.room(units, in_use.saturating_add(before.into()), &window, now);
        let what = match room.next {
            _ if room.units >= units && !rings(now) => "has room for it",
            Some(next) if room.units < units && !rings(next) => "is not looked at in time",
            _ => continue,
        };
        let task = row.key.0;
        let what = format!("task {task} stands behind {key} for {units}, which {what}");
        let repair = Repair::Limit(key.clone());
        findings.push(Finding::new("limit", what).repaired_by(repair));
    }
    findings
}

/// Whether a task that stands so may hold limits.
pub(crate) fn may_hold(life: &Life) -> bool {
    matches!(life.state, State::Running { .. } | State::Parked { .. })
}

/// Whether a task uses this limit, under whatever key.
fn uses(row: &Row, limit: &LimitKey) -> bool {
    row.planned().limits.iter().any(|used| *used.name == *limit.name)
}

/// Without all rows and the head there is nothing more to be said.
fn whole<'a>(tasks: &'a [(Row, Place)], findings: &mut Vec<Finding>) -> Option<&'a Head> {
    let mut complain = |what: String| findings.push(Finding::new("whole", what));
    let Some((first, _)) = tasks.first() else {
        complain("a run has no tasks".to_owned());
        return None;
    };
    let (run, planned) = (first.run(), first.plan.task_count());
    if tasks.len() != planned {
        complain(format!("run {} has {} of its {planned} tasks", run.0, tasks.len()));
        return None;
    }
    let mut sound = true;
    for (place, (row, _)) in (0..).zip(tasks) {
        let is_first = place == 0;
        let same_plan = Arc::ptr_eq(&row.plan, &first.plan) || row.plan == first.plan;
        if row.index != TaskIndex::from_u32(place) || row.run() != run || !same_plan {
            complain(format!(
                "task {} is not the one of place {place} in run {}",
                row.key.0, run.0
            ));
            sound = false;
        } else if row.head.is_some() != is_first {
            let what = if is_first { "lacks" } else { "is not the first and carries" };
            complain(format!("task {} {what} the head of run {}", row.key.0, run.0));
            sound = false;
        }
    }
    first.head.as_deref().filter(|_| sound)
}

struct RunAudit<'a> {
    tasks: &'a [(Row, Place)],
    failing: &'a [TaskIndex],
    head: &'a Head,
    findings: Vec<Finding>,
}

impl RunAudit<'_> {
    fn complain(&mut self, rule: &'static str, row: &Row, what: impl std::fmt::Display) {
        let (task, name) = (row.key.0, row.plan.graph().name(row.index));
        let (run, kind) = (self.head.id, row.life.state.kind());
        let what = format!("task {task} (\"{name}\" of run {run}, {kind}) {what}");
        let repair = is_derived(rule).then_some(Repair::Task(row.key));
        self.findings.push(Finding { rule, what, repair });
    }

    fn complain_of_run(&mut self, rule: &'static str, what: impl std::fmt::Display) {
        let (run, what) = (self.tasks[0].0.run(), format!("run {} {what}", self.head.id));
        self.findings.push(Finding::new(rule, what).repaired_by(Repair::Run(run)));
    }

    fn place(&mut self, row: &Row, place: &Place, now: Option<Timestamp>) {
        for what in misplaced(row, self.head, place, now) {
            self.complain("place", row, what);
        }
    }

    fn behind(&mut self, row: &Row) {
        let Some((limit, _)) = &row.behind else { return };
        if !may_stand_behind(row, self.head, limit) {
            self.complain("behind", row, format_args!("stands behind {limit}"));
        }
    }

    fn owner(&mut self, row: &Row, is_known: impl Fn(WorkerId) -> bool) {
        if let State::Running { worker, .. } = row.life.state
            && !is_known(worker)
        {
            self.complain("owner", row, format_args!("belongs to worker {}, unknown", worker.0));
        }
    }

    fn life(&mut self, row: &Row) {
        let (life, kind) = (&row.life, row.life.state.kind());
        let has_begun = matches!(kind, Kind::Active | Kind::Deferred | Kind::Parked);
        let never_claimed = matches!(kind, Kind::Blocked | Kind::Skipped);
        let taken_over = life.is_taken_over() && self.head.retry_of.is_some();
        let claimed = matches!(life.state, State::Running { .. }) || kind == Kind::Succeeded;
        let claimed = claimed && !taken_over;
        let never_claimed = never_claimed || taken_over;
        let checks = [
            (!claimed || life.fence.0 >= 1, "was claimed without a fence"),
            (!never_claimed || life.fence.0 == 0, "has a fence and was never ready"),
            (u64::from(life.entries) <= life.fence.0, "was entered more often than claimed"),
            (!has_begun || life.entries >= 1, "has begun and was never entered"),
            (
                life.started.is_some() == (life.entries >= 1),
                "has a start that is not its first entry",
            ),
            (life.attempt >= 1, "is in no attempt"),
            (
                life.attempt.saturating_sub(1) <= row.planned().rules.retries,
                "has more attempts than it may",
            ),
            (life.recoveries < RECOVERIES_MAX || kind.is_terminal(), "died too often and goes on"),
            (life.stopping.is_none() || kind == Kind::Active, "is to stop and does not compute"),
        ];
        for (_, what) in checks.into_iter().filter(|(holds, _)| !holds) {
            self.complain("life", row, what);
        }
    }

    fn ended_at(&mut self, row: &Row) {
        if row.ended_at.is_some() != row.life.state.kind().is_terminal() {
            self.complain("ended_at", row, format_args!("has its end at {:?}", row.ended_at));
        }
    }

    fn records(&mut self, row: &Row, own: &[&Record]) {
        let ends = own.iter().filter(|record| is_end(record.what)).count();
        let wanted = usize::from(row.life.state.kind().is_terminal());
        if ends != wanted {
            self.complain("records", row, format_args!("has {ends} records of its end"));
        }
        let (last, expected) = (own.last().map(|record| record.what), end_of(&row.life));
        if wanted == 1 && last != expected {
            self.complain("records", row, format_args!("has {last:?} as its last record"));
        }
        let retried = own.iter().filter(|record| record.what == Happened::Retried).count();
        if retried + 1 != row.life.attempt as usize {
            let what = format_args!("is in attempt {} after {retried} retries", row.life.attempt);
            self.complain("records", row, what);
        }
        if own.iter().any(|record| record.run != row.run() || record.run_id != self.head.id) {
            self.complain("records", row, "has a record that names another run");
        }
        if !own.is_sorted_by_key(|record| record.seq) {
            self.complain("records", row, "has records that are out of order");
        }
    }

    fn settled(&mut self) {
        let plan = &self.tasks[0].0.plan;
        let standing = |task| match self.failing.contains(&task) {
            true => Standing::Failing,
            false => self.standing(task),
        };
        let follows = plan.graph().settle(plan.on_failure(), standing);
        for (task, consequence) in follows {
            let name = plan.graph().name(task);
            let what = format_args!("has a task \"{name}\" that should have met {consequence:?}");
            self.complain_of_run("settled", what);
        }
    }

    fn outcome(&mut self) {
        let graph = self.tasks[0].0.plan.graph();
        let right = graph.outcome_of_run(|task| self.standing(task), self.head.cancelled);
        let ended = self.head.ended.map(|(outcome, _)| outcome);
        if ended != right {
            let what = format_args!("has ended as {ended:?}, by its tasks as {right:?}");
            self.complain_of_run("outcome", what);
        }
    }

    fn open(&mut self) {
        let is_open = |(row, _): &&(Row, Place)| !row.life.state.kind().is_terminal();
        let right = self.tasks.iter().filter(is_open).count();
        if self.head.open as usize != right {
            let what = format_args!("has {right} open tasks and counts {}", self.head.open);
            self.complain_of_run("open", what);
        }
    }

    fn failing(&mut self) {
        let failed = Standing::Ended(Outcome::Failed);
        let stops = self.tasks[0].0.plan.on_failure() != OnFailure::KeepGoing;
        let right = self.tasks.iter().any(|(row, _)| standing(&row.life) == failed)
            || stops && !self.failing.is_empty();
        // A list may have been cancelled after an item of it had failed.
        let was_cancelled = |(row, _): &(Row, Place)| {
            row.planned().each.is_some() && row.life.state.kind() == Kind::Cancelled
        };
        let may_be = right || stops && self.tasks.iter().any(was_cancelled);
        if !self.head.failing && right || self.head.failing && !may_be {
            let what = if right { "is not marked as failing" } else { "is marked as failing" };
            self.complain_of_run("failing", what);
        }
    }

    fn cancelled(&mut self) {
        let is_open = |(row, _): &&(Row, Place)| !row.life.state.kind().is_terminal();
        let open = self.tasks.iter().filter(is_open).count();
        if self.head.cancelled && open > 0 {
            self.complain_of_run("cancelled", format_args!("is cancelled, and {open} tasks go on"));
        }
    }

    fn standing(&self, task: TaskIndex) -> Standing {
        standing(&self.tasks[task.as_usize()].0.life)
    }
}

/// In which ways a task is not found where it should be.
///
/// What follows from a life depends on when it was written and on how long it had stood still
/// by then. So a gate may be behind its time, and an alarm may lie anywhere between no pause at
/// all and one without end.
pub(crate) fn misplaced(
    row: &Row,
    head: &Head,
    place: &Place,
    now: Option<Timestamp>,
) -> Vec<String> {
    let open = if head.awaited { Gate::Awaited } else { Gate::Open };
    let gate = match row.life.state {
        State::Ready { .. } if head.paused_at.is_some() => Some(Gate::Paused),
        State::Ready { .. } if row.behind.is_some() => Some(Gate::Limited),
        // The next request opens what has come due.
        State::Ready { since, due } if now.is_some_and(|now| due > now.max(since)) => {
            Some(Gate::Future)
        }
        State::Ready { since, due } if due > since => {
            place.gate.filter(|gate| *gate == Gate::Future).or(Some(open))
        }
        State::Ready { .. } => Some(open),
        _ => None,
    };
    let is_ready = row.life.state.kind() == Kind::Ready;
    if place.gate != gate || gate.is_some() != is_ready {
        return vec![format!("stands behind the gate {:?}", place.gate)];
    }
    let at = match row.life.state {
        State::Ready { due, .. } if gate == Some(Gate::Future) => due - INSTANT,
        State::Ready { due, .. } => due,
        _ => head.submitted_at,
    };
    let earliest = row.place(head, at, Duration::ZERO);
    let latest = row.place(head, at, Duration::MAX);
    let mut wrong = Vec::new();
    if place.order != earliest.order {
        let (order, right) = (place.order, earliest.order);
        wrong.push(format!("stands in order at {order:?}, and should at {right:?}"));
    }
    if place.behind != earliest.behind {
        let (behind, right) = (&place.behind, &earliest.behind);
        wrong.push(format!("is found behind {behind:?}, and should be behind {right:?}"));
    }
    let fits = match (earliest.alarm, place.alarm, latest.alarm) {
        (Some(earliest), Some(alarm), Some(latest)) => (earliest..=latest).contains(&alarm),
        (earliest, alarm, _) => earliest == alarm,
    };
    if !fits {
        let (alarm, right) = (place.alarm, earliest.alarm);
        wrong.push(format!("has its alarm at {alarm:?}, and should at {right:?}"));
    }
    wrong
}

/// Whether a task may stand behind this limit.
pub(crate) fn may_stand_behind(row: &Row, head: &Head, limit: &LimitKey) -> bool {
    let may = match row.life.state {
        State::Ready { .. } => head.paused_at.is_none(),
        State::Running { .. } => true,
        _ => false,
    };
    may && uses(row, limit)
}

/// Rules about a task whose breach a look at that task alone puts right.
fn is_derived(rule: &str) -> bool {
    matches!(rule, "place" | "behind")
}

/// The shortest time that a timestamp tells.
const INSTANT: Duration = Duration::from_micros(1);

fn is_end(what: Happened) -> bool {
    use Happened::{Cancelled, Failed, Skipped, Succeeded, TakenOver, TimedOut};
    matches!(what, Succeeded | Failed | TimedOut | Cancelled | Skipped | TakenOver)
}

/// What the record of a task's end says, if it has ended.
fn end_of(life: &Life) -> Option<Happened> {
    Some(match life.state.kind() {
        Kind::Succeeded if life.is_taken_over() => Happened::TakenOver,
        Kind::Succeeded => Happened::Succeeded,
        Kind::Failed => Happened::Failed,
        Kind::TimedOut => Happened::TimedOut,
        Kind::Cancelled => Happened::Cancelled,
        Kind::Skipped => Happened::Skipped,
        _ => return None,
    })
}
