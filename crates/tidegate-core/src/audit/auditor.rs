//! The way of an audit through a store, step by step.
//!
//! Other processes write while an audit runs. A step compares only rows of one instant, and changes
//! nothing of the auditor before it is complete: a loader that stops it may take it again. Circles of
//! waits are seen in several steps, so that each is looked at again in a step of its own before it
//! becomes a finding.

use super::cycle::{WaitsFor, find_cycles, name_cycle};
use crate::Timestamp;
use crate::lifecycle::WorkerId;
use crate::store::{Finding, RunKey, TaskKey};
use crate::want::{FiledKey, Loader, LookUps, StoredTask};

/// Findings after which an audit ends: the store is thoroughly wrong.
const FINDINGS_MAX: usize = 1_000;

/// An audit that is under way.
///
/// ```
/// # use tidegate_core::audit::Auditor;
/// # use tidegate_core::store::Finding;
/// # use tidegate_core::want::Loader;
/// fn audit_store<L: Loader>(snapshot: impl Fn() -> L) -> Result<Vec<Finding>, L::Stop> {
///     let mut auditor = Auditor::new(None);
///     while !auditor.is_done() {
///         auditor.take_step(&mut snapshot())?;
///     }
///     Ok(auditor.into_findings())
/// }
/// ```
#[derive(Debug)]
pub struct Auditor {
    now: Option<Timestamp>,
    /// `None` when everything was looked at.
    next: Option<AuditCursor>,
    waits_for: WaitsFor,
    findings: Vec<Finding>,
}

/// The rows with which a step begins.
#[derive(Debug)]
enum AuditCursor {
    Tasks(TaskKey),
    /// Circles that may be ones at no instant.
    Cycles(Vec<Vec<RunKey>>),
    Signals(u64),
    Limits(i64),
    Keys(FiledKey),
    Pauses(String),
    Notifications((WorkerId, TaskKey)),
    Workers,
}

impl Auditor {
    /// An audit that has looked at nothing yet. `now` is the latest time that the store has heard of;
    /// without it, nothing is said about what time should have brought about.
    pub fn new(now: Option<Timestamp>) -> Self {
        let next = Some(AuditCursor::Tasks(TaskKey(i64::MIN)));
        Auditor { now, next, waits_for: WaitsFor::new(), findings: Vec::new() }
    }

    /// Whether everything was looked at, or so much is wrong that it does not go on.
    pub fn is_done(&self) -> bool {
        self.next.is_none() || self.findings.len() >= FINDINGS_MAX
    }

    /// Every contradiction that was found.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    /// Looks at the next rows, about a thousand. All answers of the loader must be of one instant.
    ///
    /// # Errors
    /// If the loader stops. The same step can be taken again.
    pub fn take_step<L: Loader>(&mut self, loader: &mut L) -> Result<(), L::Stop> {
        use AuditCursor::*;
        let Some(cursor) = &self.next else { return Ok(()) };
        let mut step = AuditStep::new(loader, self.now);
        let next = match cursor {
            Tasks(from) => step.check_tasks(*from)?.map(Tasks),
            Cycles(cycles) => step.check_cycles(cycles)?.map(Cycles),
            Signals(from) => step.check_signals(*from)?.map(Signals),
            Limits(from) => step.check_limits(*from)?.map(Limits),
            Keys(from) => step.check_keys(from)?.map(Keys),
            Pauses(from) => step.check_pauses(from)?.map(Pauses),
            Notifications(from) => step.check_notifications(*from)?.map(Notifications),
            Workers => step.check_workers().map(|()| None)?,
        };
        let AuditStep { findings, mut waits_for, .. } = step;
        self.findings.extend(findings);
        self.waits_for.append(&mut waits_for);
        // A kind of rows that is done with is followed by the next kind.
        self.next = next.or_else(|| {
            Some(match cursor {
                Tasks(_) => Cycles(find_cycles(&self.waits_for)),
                Cycles(_) => Signals(0),
                Signals(_) => Limits(i64::MIN),
                Limits(_) => Keys(FiledKey::before_all()),
                Keys(_) => Pauses(String::new()),
                Pauses(_) => Notifications((WorkerId(0), TaskKey(i64::MIN))),
                Notifications(_) => Workers,
                Workers => return None,
            })
        });
        Ok(())
    }
}

/// One step, at one instant.
pub(super) struct AuditStep<'l, L> {
    pub(super) loader: &'l mut L,
    pub(super) now: Option<Timestamp>,
    pub(super) findings: Vec<Finding>,
    pub(super) waits_for: WaitsFor,
}

impl<'l, L: Loader> AuditStep<'l, L> {
    fn new(loader: &'l mut L, now: Option<Timestamp>) -> Self {
        AuditStep { loader, now, findings: Vec::new(), waits_for: WaitsFor::new() }
    }

    pub(super) fn complain(&mut self, rule: &'static str, what: String) {
        self.findings.push(Finding::new(rule, what));
    }

    /// Whether the first of the circles that were seen in several steps is one at this instant; the
    /// others.
    fn check_cycles(
        &mut self,
        cycles: &[Vec<RunKey>],
    ) -> Result<Option<Vec<Vec<RunKey>>>, L::Stop> {
        let Some((cycle, others)) = cycles.split_first() else { return Ok(None) };
        let mut is_cycle = true;
        for (run, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            is_cycle &= self.waits_for_run(*run, *next)?;
        }
        self.findings.extend(is_cycle.then(|| name_cycle(cycle)));
        Ok(Some(others.to_vec()))
    }

    /// Whether a task of a run waits for the end of another run.
    fn waits_for_run(&mut self, run: RunKey, other: RunKey) -> Result<bool, L::Stop> {
        let first = self.loader.find_stored_task(TaskKey(run.0))?;
        let Some(row) = first.as_ref().and_then(StoredTask::as_row) else { return Ok(false) };
        let tasks = u32::try_from(row.plan.task_count()).unwrap_or(u32::MAX);
        let edges = self.loader.load_edges(run, tasks)?;
        Ok(edges.iter().any(|(_, _, awaited)| *awaited == other))
    }
}
