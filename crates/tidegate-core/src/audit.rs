//! What must hold of a run as it is stored, whatever the store.
//!
//! [`run`] looks at the rows of one run, at where they can be found, and at what was recorded of
//! them, and names every contradiction; [`waits`] looks at what is kept beside them, and [`limit`] at
//! a limit. A store calls them for all its runs and limits and adds what only it can know: whether
//! its indexes agree with its rows. The rules, by the names findings carry:
//!
//! - `whole`: a run has all its tasks, each under its number, and its head in the first only.
//! - `place`: gate, order, alarm and the limit it stands behind are those that follow from the
//!   task's life.
//! - `behind`: only who is ready or runs stands behind a limit, and only behind one that it uses.
//! - `owner`: whoever runs a task is a worker that is known.
//! - `life`: fence, entries, attempts, deaths and the wish to stop fit the state.
//! - `ended_at`: a task has the time of its end if it has ended, and only then.
//! - `settled`: nothing follows for a task that has not happened to it.
//! - `outcome`: a run has ended when all its tasks have, in the way its graph says.
//! - `open`: a run knows how many of its tasks have not ended.
//! - `failing`: a run is marked as failing when a task has failed for good, and only then.
//! - `records`: a task that has ended has one record that says so, and none after it.
//! - `parked`: a parked task has an open wait or a time to be woken.
//! - `waits`: a task of which waits are kept is marked so, and one that has ended has none open; a
//!   wait for a signal or a run names a run, and only what a signal has ended has one.
//! - `holds`: only who runs or is parked holds limits, and only those that it uses.
//! - `limit`: nobody who is first of its lane stands behind a limit with room, and where only time is
//!   in the way it is looked at when that has come.
//!
//! Deliberately absent: repair. What is wrong is for a person to look at.

use crate::Timestamp;
use crate::graph::{Outcome, Standing, TaskIndex};
use crate::lifecycle::{Kind, Life, RECOVERIES_MAX, State, WorkerId};
use crate::limit::{Hold, Limit, LimitKey};
use crate::rows::{Gate, Head, Place, Row};
use crate::store::{Finding, Happened, Record};
use crate::turn::standing;
use crate::wait::{WaitKind, WaitOutcome, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// Every contradiction in one run: in its tasks, in the order of its plan, with their places, and
/// in what was recorded of it, if that is still kept, oldest first. `now` is the latest time of
/// which the store was told, if it knows that.
pub fn run(
    tasks: &[(Row, Place)],
    records: Option<&[Record]>,
    is_known: impl Fn(WorkerId) -> bool,
    now: Option<Timestamp>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(head) = whole(tasks, &mut findings) else { return findings };
    let mut audit = Audit { tasks, head, findings };
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
    audit.findings
}

/// Every contradiction between a task and what is kept beside it: its waits, and what it holds.
pub fn waits(row: &Row, waits: &[Waiting], holds: &[Hold]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (task, kind) = (row.key.0, row.life.state.kind());
    let name = row.plan.graph().name(row.index);
    let mut complain = |rule, what: String| {
        findings.push(Finding { rule, what: format!("task {task} (\"{name}\", {kind}) {what}") });
    };
    let waits_for_something = waits.iter().any(Waiting::is_open);
    if matches!(row.life.state, State::Parked { wake: None, .. }) && !waits_for_something {
        complain("parked", "waits for nothing and is never woken".to_owned());
    }
    if !waits.is_empty() && !row.has_waits {
        complain("waits", "has waits and is not marked so".to_owned());
    }
    for wait in waits {
        let id = &wait.id;
        let ended_by_signal =
            id.kind == WaitKind::Signal && matches!(wait.outcome, Some(WaitOutcome::Value(_)));
        let needs_run = matches!(id.kind, WaitKind::Signal | WaitKind::Child | WaitKind::Run);
        if kind.is_terminal() && wait.is_open() {
            complain("waits", format!("has ended, and its {id} is open"));
        }
        if needs_run && wait.is_open() && wait.run.is_none() {
            complain("waits", format!("waits for no run in its {id}"));
        }
        if wait.signal.is_some() != ended_by_signal {
            complain("waits", format!("has {:?} as the signal of its {id}", wait.signal));
        }
        if id.kind == WaitKind::Limits || matches!(wait.outcome, Some(WaitOutcome::Refused(_))) {
            complain("waits", format!("keeps its {id}, which is never kept"));
        }
    }
    let may_hold = matches!(row.life.state, State::Running { .. } | State::Parked { .. });
    for hold in holds {
        if !may_hold || !uses(row, &hold.limit) || hold.units == 0 {
            complain("holds", format!("holds {} of {}", hold.units, hold.limit));
        }
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
    pub in_use: u32,
    /// What was begun under it and is still noted.
    pub begun: &'a [(Timestamp, u32)],
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
    let Watched { key, limit, in_use, begun, alarm, first } = *watched;
    let Some(limit) = limit else { return Vec::new() };
    let mut findings = Vec::new();
    // What time has freed is let through by the next turn.
    let rings = |at: Timestamp| alarm.is_some_and(|alarm| alarm <= at);
    for &First { row, units, before } in first {
        // Who goes on after a wait has begun before, and is let through by nobody.
        let is_ready = row.life.state.kind() == Kind::Ready;
        let before = if is_ready { before } else { 0 };
        let begun = begun.iter().copied().filter(|_| is_ready);
        let begun: Vec<_> = begun.chain((before > 0).then_some((now, before))).collect();
        let room = limit.room(units, in_use.saturating_add(before), &begun, now);
        let what = match room.next {
            _ if room.units >= units && !rings(now) => "has room for it",
            Some(next) if room.units < units && !rings(next) => "is not looked at in time",
            _ => continue,
        };
        let task = row.key.0;
        let what = format!("task {task} stands behind {key} for {units}, which {what}");
        findings.push(Finding { rule: "limit", what });
    }
    findings
}

/// Whether a task uses this limit, under whatever key.
fn uses(row: &Row, limit: &LimitKey) -> bool {
    row.planned().limits.iter().any(|used| *used.name == *limit.name)
}

/// Without all rows and the head there is nothing more to be said.
fn whole<'a>(tasks: &'a [(Row, Place)], findings: &mut Vec<Finding>) -> Option<&'a Head> {
    let mut complain = |what: String| findings.push(Finding { rule: "whole", what });
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

struct Audit<'a> {
    tasks: &'a [(Row, Place)],
    head: &'a Head,
    findings: Vec<Finding>,
}

impl Audit<'_> {
    fn complain(&mut self, rule: &'static str, row: &Row, what: impl std::fmt::Display) {
        let (task, name) = (row.key.0, row.plan.graph().name(row.index));
        let (run, kind) = (self.head.id, row.life.state.kind());
        let what = format!("task {task} (\"{name}\" of run {run}, {kind}) {what}");
        self.findings.push(Finding { rule, what });
    }

    fn complain_of_run(&mut self, rule: &'static str, what: impl std::fmt::Display) {
        self.findings.push(Finding { rule, what: format!("run {} {what}", self.head.id) });
    }

    /// What follows from a life depends on when it was written and on how long it had stood still
    /// by then. So a gate may be behind its time, and an alarm may lie anywhere between no pause at
    /// all and one without end.
    fn place(&mut self, row: &Row, place: &Place, now: Option<Timestamp>) {
        let open = if self.head.awaited { Gate::Awaited } else { Gate::Open };
        let gate = match row.life.state {
            State::Ready { .. } if self.head.paused_at.is_some() => Some(Gate::Paused),
            State::Ready { .. } if row.behind.is_some() => Some(Gate::Limited),
            // The next turn opens what has come due.
            State::Ready { due, .. } if now.is_some_and(|now| due > now) => Some(Gate::Future),
            State::Ready { .. } => place.gate.filter(|gate| *gate == Gate::Future).or(Some(open)),
            _ => None,
        };
        let is_ready = row.life.state.kind() == Kind::Ready;
        if place.gate != gate || gate.is_some() != is_ready {
            self.complain("place", row, format_args!("stands behind the gate {:?}", place.gate));
            return;
        }
        let at = match row.life.state {
            State::Ready { due, .. } if gate == Some(Gate::Future) => due - INSTANT,
            State::Ready { due, .. } => due,
            _ => self.head.submitted_at,
        };
        let earliest = row.place(self.head, at, Duration::ZERO);
        let latest = row.place(self.head, at, Duration::MAX);
        if place.order != earliest.order {
            let (order, right) = (place.order, earliest.order);
            let what = format_args!("stands in order at {order:?}, and should at {right:?}");
            self.complain("place", row, what);
        }
        if place.behind != earliest.behind {
            let (behind, right) = (&place.behind, &earliest.behind);
            let what = format_args!("is found behind {behind:?}, and should be behind {right:?}");
            self.complain("place", row, what);
        }
        let fits = match (earliest.alarm, place.alarm, latest.alarm) {
            (Some(earliest), Some(alarm), Some(latest)) => (earliest..=latest).contains(&alarm),
            (earliest, alarm, _) => earliest == alarm,
        };
        if !fits {
            let (alarm, right) = (place.alarm, earliest.alarm);
            let what = format_args!("has its alarm at {alarm:?}, and should at {right:?}");
            self.complain("place", row, what);
        }
    }

    fn behind(&mut self, row: &Row) {
        let Some((limit, _)) = &row.behind else { return };
        let may = match row.life.state {
            State::Ready { .. } => self.head.paused_at.is_none(),
            State::Running { .. } => true,
            _ => false,
        };
        if !may || !uses(row, limit) {
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
        let claimed = matches!(life.state, State::Running { .. }) || kind == Kind::Succeeded;
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
        let follows = plan.graph().settle(plan.on_failure(), |task| self.standing(task));
        for (task, consequence) in follows {
            let row = &self.tasks[task.as_usize()].0;
            self.complain("settled", row, format_args!("should have met {consequence:?}"));
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
        let right = self.tasks.iter().any(|(row, _)| standing(&row.life) == failed);
        if self.head.failing != right {
            let what = if right { "is not marked as failing" } else { "is marked as failing" };
            self.complain_of_run("failing", what);
        }
    }

    fn standing(&self, task: TaskIndex) -> Standing {
        standing(&self.tasks[task.as_usize()].0.life)
    }
}

/// The shortest time that a timestamp tells.
const INSTANT: Duration = Duration::from_micros(1);

fn is_end(what: Happened) -> bool {
    use Happened::{Cancelled, Failed, Skipped, Succeeded, TimedOut};
    matches!(what, Succeeded | Failed | TimedOut | Cancelled | Skipped)
}

/// What the record of a task's end says, if it has ended.
fn end_of(life: &Life) -> Option<Happened> {
    Some(match life.state.kind() {
        Kind::Succeeded => Happened::Succeeded,
        Kind::Failed => Happened::Failed,
        Kind::TimedOut => Happened::TimedOut,
        Kind::Cancelled => Happened::Cancelled,
        Kind::Skipped => Happened::Skipped,
        _ => return None,
    })
}
