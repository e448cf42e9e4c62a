//! The part of a request that follows from ends: for the other tasks of a run, and for the run.

use super::Taking;
use crate::graph::{Consequence, OnFailure, Outcome, RunOutcome, Standing, TaskIndex, Verdict};
use crate::lifecycle::{CancelledBy, Event, Kind, Life};
use crate::rows::{Head, Payload, Row};
use crate::store::{Bytes, Ended};
use crate::want::Loader;
use crate::{RunId, TaskExecutionId};
use std::collections::HashMap;

impl<L: Loader> Taking<'_, L> {
    /// Everything that follows for the tasks of a run from the way they stand, and its end.
    pub(super) fn settle(&mut self, run: usize) -> Result<(), L::Stop> {
        if self.runs[run].unsettled {
            self.settle_whole(run)?;
        } else {
            self.settle_below(run)?;
        }
        let (key, now, head) = (self.runs[run].key, self.now, self.head(run));
        if head.open == 0 && head.ended.is_none() {
            let outcome = match head {
                Head { cancelled: true, .. } => RunOutcome::Cancelled,
                Head { failing: true, .. } => RunOutcome::Failed,
                _ => RunOutcome::Succeeded,
            };
            let head = self.head_mut(run);
            head.ended = Some((outcome, now));
            let (id, awaited) = (head.id, head.awaited);
            self.answer.ended.push(Ended { key, id, outcome });
            if awaited {
                self.end_run_waits(key, outcome)?;
            }
        }
        Ok(())
    }

    /// Where a run begins, or is being stopped after a failure: there an end bears on all tasks.
    pub(super) fn settle_whole(&mut self, run: usize) -> Result<(), L::Stop> {
        let whole = self.whole(run)?;
        let plan = self.runs[run].plan.clone();
        let not_before = self.head(run).not_before.unwrap_or(self.now);
        let failing = match self.head(run).failing {
            true => self.failing_lists(run, &whole)?,
            false => Vec::new(),
        };
        let standing = |task: TaskIndex| match failing.contains(&task) {
            true => Standing::Failing,
            false => standing(&self.tasks[whole[task.as_usize()]].row.life),
        };
        let follows = plan.graph().settle(plan.on_failure(), standing);
        let mut causes = HashMap::new();
        for (task, consequence) in follows {
            let event = match consequence {
                Consequence::Unblock => Event::Unblock { not_before },
                Consequence::Skip { cause } => {
                    causes.insert(task, cause);
                    continue;
                }
                Consequence::Cancel => Event::Cancel { by: CancelledBy::FailFast },
                Consequence::Stop => Event::Stop { by: CancelledBy::FailFast },
            };
            let applied = self.step(whole[task.as_usize()], &event)?;
            assert!(applied, "what the graph concludes from a task's standing fits its state");
        }
        // Behind their causes, which may be skipped or cancelled themselves.
        for task in plan.graph().order().iter().filter(|_| !causes.is_empty()) {
            if let Some(&cause) = causes.get(task) {
                self.skip(run, whole[task.as_usize()], cause)?;
            }
        }
        // What was concluded needs no second look.
        self.runs[run].unsettled = false;
        self.runs[run].ended.clear();
        Ok(())
    }

    /// The tasks that are open and of whose items some have failed, if that stops their run.
    pub(super) fn failing_lists(
        &mut self,
        run: usize,
        whole: &[usize],
    ) -> Result<Vec<TaskIndex>, L::Stop> {
        let mut failing = Vec::new();
        if self.runs[run].plan.on_failure() == OnFailure::KeepGoing {
            return Ok(failing);
        }
        for &at in whole {
            let row = &self.tasks[at].row;
            let (index, id) = (row.index, self.head(run).id);
            if row.is_open_list() {
                let items = self.find(RunId::of_items(TaskExecutionId::of(id, index)))?;
                failing
                    .extend(items.is_some_and(|items| self.head(items).failing).then_some(index));
            }
        }
        Ok(failing)
    }

    /// An item has failed for good: so will the task that is done for it, and if the rest of that
    /// one's run is to stop then, it need not wait for other items.
    pub(super) fn fail_list(&mut self, items: usize) -> Result<(), L::Stop> {
        let is_of_list = self.runs[items].plan.items_of().is_some();
        let Some(parent) = self.head(items).parent.filter(|_| is_of_list) else { return Ok(()) };
        let Some(at) = self.task(parent)? else { return Ok(()) };
        let run = self.tasks[at].run;
        let stops = self.runs[run].plan.on_failure() != OnFailure::KeepGoing;
        if stops && !self.head(run).failing && self.tasks[at].row.is_open_list() {
            self.head_mut(run).failing = true;
            self.runs[run].unsettled = true;
        }
        Ok(())
    }

    /// Everywhere else an end bears only on what comes after it: the other tasks of the run, of
    /// which there may be many, are not looked at.
    pub(super) fn settle_below(&mut self, run: usize) -> Result<(), L::Stop> {
        let (key, plan) = (self.runs[run].key, self.runs[run].plan.clone());
        while let Some(ended) = self.runs[run].ended.pop() {
            for &child in plan.graph().children(ended) {
                let at = self.existing(key.task(child))?;
                if self.tasks[at].row.life.state.kind() != Kind::Blocked {
                    continue;
                }
                match self.verdict(run, child, ended)? {
                    Verdict::Wait => {}
                    Verdict::Skip { cause } => self.skip(run, at, cause)?,
                    Verdict::Run => {
                        let not_before = self.head(run).not_before.unwrap_or(self.now);
                        let applied = self.step(at, &Event::Unblock { not_before })?;
                        assert!(applied, "what is blocked can become ready");
                    }
                }
            }
        }
        Ok(())
    }

    /// A task is skipped, because of what became of another: of what that was skipped for, if it was.
    pub(super) fn skip(&mut self, run: usize, at: usize, cause: TaskIndex) -> Result<(), L::Stop> {
        let above = self.existing(self.runs[run].key.task(cause))?;
        let Row { key, life, plan, .. } = &self.tasks[above].row;
        let said = match life.state.kind() {
            Kind::Skipped => self.rows.find_payload(*key, Payload::Error)?,
            _ => None,
        };
        let why = said.unwrap_or_else(|| {
            let (name, kind) = (plan.graph().name(cause), life.state.kind());
            Bytes::from(format!("because \"{name}\" has {kind}").as_bytes())
        });
        self.rows.keep(self.tasks[at].row.key, Payload::Error, why.clone());
        let why = String::from_utf8_lossy(&why);
        let skipped = self.step_with(at, &Event::Skip, self.now, Some(&why))?;
        assert!(skipped, "what is blocked can be skipped");
        Ok(())
    }

    /// Whether a task may run, one of whose parents has just ended.
    pub(super) fn verdict(
        &mut self,
        run: usize,
        task: TaskIndex,
        ended: TaskIndex,
    ) -> Result<Verdict, L::Stop> {
        let (key, plan) = (self.runs[run].key, self.runs[run].plan.clone());
        let at = self.existing(key.task(ended))?;
        let outcome = standing(&self.tasks[at].row.life).outcome();
        let alone = plan.graph().verdict(task, |parent| outcome.filter(|_| parent == ended));
        if alone != Verdict::Wait {
            return Ok(alone);
        }
        // The last of them are the likeliest to be still open.
        for &parent in plan.graph().parents(task).iter().rev() {
            let at = self.existing(key.task(parent))?;
            if !self.tasks[at].row.life.state.kind().is_terminal() {
                return Ok(Verdict::Wait);
            }
        }
        Ok(plan.graph().verdict(task, |parent| {
            let at = self.task_at.get(&key.task(parent))?;
            standing(&self.tasks[*at].row.life).outcome()
        }))
    }
}

/// Where a task stands for the others of its run.
pub(crate) fn standing(life: &Life) -> Standing {
    match life.state.kind() {
        Kind::Blocked => Standing::Blocked,
        Kind::Ready | Kind::Claimed => Standing::Ready,
        Kind::Active if life.stopping.is_some() => Standing::Stopping,
        Kind::Active => Standing::Active,
        Kind::Deferred | Kind::Parked => Standing::Waiting,
        Kind::Succeeded => Standing::Ended(Outcome::Succeeded),
        Kind::Failed | Kind::TimedOut => Standing::Ended(Outcome::Failed),
        Kind::Cancelled => Standing::Ended(Outcome::Cancelled),
        Kind::Skipped => Standing::Ended(Outcome::Skipped),
    }
}

/// Whether a task stands so that the runs it has begun are not wanted any more.
pub(crate) fn parent_failed(life: &Life) -> bool {
    life.state.kind().is_terminal() && life.state.kind() != Kind::Succeeded
}
