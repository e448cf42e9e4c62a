//! What must hold of a run as it is stored, whatever the store.
//!
//! [`run`] looks at the rows of one run, at where they can be found, and at what was recorded of
//! them, and names every contradiction. A store calls it for all its runs and adds what only it can
//! know: whether its indexes agree with its rows. The rules, by the names findings carry:
//!
//! - `whole`: a run has all its tasks, each under its number, and its head in the first only.
//! - `place`: gate, order and alarm are those that follow from the task's life.
//! - `owner`: whoever runs a task is a worker that is known.
//! - `life`: fence, entries, attempts, deaths and the wish to stop fit the state.
//! - `ended_at`: a task has the time of its end if it has ended, and only then.
//! - `settled`: nothing follows for a task that has not happened to it.
//! - `outcome`: a run has ended when all its tasks have, in the way its graph says.
//! - `open`: a run knows how many of its tasks have not ended.
//! - `failing`: a run is marked as failing when a task has failed for good, and only then.
//! - `records`: a task that has ended has one record that says so, and none after it.
//!
//! Deliberately absent: repair. What is wrong is for a person to look at.

use crate::Timestamp;
use crate::graph::{Outcome, Standing, TaskIndex};
use crate::lifecycle::{Kind, Life, RECOVERIES_MAX, State, WorkerId};
use crate::rows::{Gate, Head, Place, Row};
use crate::store::{Finding, Happened, Record};
use crate::turn::standing;
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
        let gate = match row.life.state {
            State::Ready { .. } if self.head.paused_at.is_some() => Some(Gate::Paused),
            // The next turn opens what has come due.
            State::Ready { due, .. } if now.is_some_and(|now| due > now) => Some(Gate::Future),
            State::Ready { .. } => place.gate.filter(|gate| *gate != Gate::Paused),
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
