//! The part of a request that cancels and pauses runs together with the child runs of their tasks.

use super::Taking;
use crate::RunId;
use crate::lifecycle::{CancelledBy, Event, Kind};
use crate::store::{OperationOutcome, Scope};
use crate::want::Loader;

/// An effect on a run that goes on to the child runs of its tasks.
///
/// Cascades are a work list, drained after each change, operation and submit: a chain of child runs of
/// any depth needs no stack, and each level is complete before the next one begins.
pub(super) enum Cascade {
    Cancel { run: usize, by: CancelledBy },
    Pause { run: usize, pauses: bool },
}

impl<L: Loader> Taking<'_, L> {
    /// Cancels and pauses child runs after their parents, level by level.
    pub(super) fn run_cascades(&mut self) -> Result<(), L::Stop> {
        while let Some(cascade) = self.cascades.pop_front() {
            match cascade {
                Cascade::Cancel { run, by } => {
                    self.cancel_found(run, by)?;
                    // It may have been settled before its parent, and is not looked at again.
                    self.settle(run)?;
                }
                Cascade::Pause { run, pauses } => drop(self.pause_found(run, pauses)?),
            }
        }
        Ok(())
    }

    /// Pauses a run, or ends its pause, with the runs that its tasks have begun.
    pub(super) fn pause_run(
        &mut self,
        id: RunId,
        pauses: bool,
    ) -> Result<OperationOutcome, L::Stop> {
        match self.find(id)? {
            Some(run) => self.pause_found(run, pauses),
            None => Ok(OperationOutcome::Unknown),
        }
    }

    fn pause_found(&mut self, run: usize, pauses: bool) -> Result<OperationOutcome, L::Stop> {
        self.settle(run)?;
        let head = self.head(run);
        let id = head.id;
        if head.ended.is_some() || head.paused_at.is_some() == pauses {
            return Ok(OperationOutcome::Already);
        }
        self.head_mut(run).paused_at = pauses.then_some(self.now);
        for &at in &*self.whole(run)? {
            // Its place depends on it.
            if self.tasks[at].row.life.state.kind() == Kind::Ready {
                self.set_behind(at, None);
                self.lets_others_through(at)?;
            }
            let children = self.children(at)?;
            let paused = children.into_iter().map(|run| Cascade::Pause { run, pauses });
            self.cascades.extend(paused);
        }
        self.note_pause(&Scope::Run(id), pauses)
    }

    pub(super) fn note_pause(
        &mut self,
        scope: &Scope,
        pauses: bool,
    ) -> Result<OperationOutcome, L::Stop> {
        let changed = self.rows.change_pause(scope, pauses, self.now)?;
        Ok(if changed { OperationOutcome::Yes } else { OperationOutcome::Already })
    }

    /// Cancels a run. It is over at once, also while a body still computes: a cancel that cannot be
    /// undone is worth more than the end of the body, which hears of it and stops.
    pub(super) fn cancel(
        &mut self,
        id: RunId,
        by: CancelledBy,
    ) -> Result<OperationOutcome, L::Stop> {
        match self.find(id)? {
            Some(run) => self.cancel_found(run, by),
            None => Ok(OperationOutcome::Unknown),
        }
    }

    pub(super) fn cancel_found(
        &mut self,
        run: usize,
        by: CancelledBy,
    ) -> Result<OperationOutcome, L::Stop> {
        // What was said before it was asked for may have ended the run.
        self.settle(run)?;
        let head = self.head(run);
        if head.ended.is_some() {
            let was_granted = self.request.again && head.cancelled;
            self.tell_end_again(run);
            return Ok(if was_granted { OperationOutcome::Yes } else { OperationOutcome::Already });
        }
        self.head_mut(run).cancelled = true;
        for &at in &*self.whole(run)? {
            // Refused where it has ended.
            self.step(at, &Event::Cancel { by })?;
        }
        Ok(OperationOutcome::Yes)
    }
}
