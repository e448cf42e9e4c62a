//! The part of a request that concerns runs which tasks begin and wait for.

use super::Taking;
use crate::store::{NewRun, Parent, Refusal, RunKey};
use crate::wait::{WaitKind, Waiting};
use crate::want::Loader;

impl<L: Loader> Taking<'_, L> {
    /// Why a run that a task begins would be too far below the run that nobody waits for with a task,
    /// if it is. Runs above that were pruned do not count.
    ///
    /// A cascade reaches all runs below a run in one transaction: a workflow that begins itself without
    /// a bound would make that transaction grow without end.
    pub(super) fn too_deep(&mut self, new: &NewRun) -> Result<Option<Refusal>, L::Stop> {
        let max = self.request.child_depth_max;
        // Looking at all that is above each new run would make a deep chain quadratic.
        if max == u32::MAX {
            return Ok(None);
        }
        let (mut depth, mut above) = (0, new.parent.as_ref().map(|parent| parent.task));
        while let Some(task) = above {
            depth += 1;
            if depth > max {
                let workflow = new.plan.workflow().to_owned();
                return Ok(Some(Refusal::TooDeep { workflow, depth, max }));
            }
            let at = self.task(task)?;
            above = at.and_then(|at| self.head(self.tasks[at].run).parent);
        }
        Ok(None)
    }

    /// The task that begins a run waits for it.
    pub(super) fn begin_child(
        &mut self,
        at: usize,
        run: RunKey,
        new: &NewRun,
    ) -> Result<(), L::Stop> {
        let Some(Parent { wait, label, due, releasing, .. }) = &new.parent else { return Ok(()) };
        let mut wait = Waiting::new(wait.clone(), label.clone(), self.now);
        (wait.due, wait.run) = (*due, Some(run));
        self.put_wait(at, wait);
        self.release(at, releasing)
    }

    /// The runs that a task has begun and that are its own.
    pub(super) fn children(&mut self, at: usize) -> Result<Vec<usize>, L::Stop> {
        if !self.tasks[at].row.has_waits {
            return Ok(Vec::new());
        }
        let waits = self.rows.find_waits(self.tasks[at].row.key)?;
        waits.iter().filter_map(|wait| self.child(at, wait).transpose()).collect()
    }

    /// The run that a task has begun with this wait, if it has. It may also wait for one that
    /// another has begun, under the same idempotency key.
    pub(super) fn child(&mut self, at: usize, wait: &Waiting) -> Result<Option<usize>, L::Stop> {
        let Some(run) = wait.run.filter(|_| wait.id.kind == WaitKind::Child) else {
            return Ok(None);
        };
        let parent = self.tasks[at].row.key;
        let run = self.find_run(run)?;
        Ok(run.filter(|&run| self.head(run).parent == Some(parent)))
    }

    /// Why a task cannot wait for the run it wants to begin, if it cannot.
    pub(super) fn unwaitable_child(
        &mut self,
        at: usize,
        parent: &Parent,
        new: &NewRun,
    ) -> Result<Option<String>, L::Stop> {
        match self.wait_of(at, &parent.wait)? {
            Some(before) if before.label != parent.label => {
                Ok(Some(parent.wait.differs(&before.label, &parent.label)))
            }
            Some(_) => Ok(None),
            None => {
                let uses = new.plan.graph().tasks().flat_map(|task| {
                    let keys = new.keys.iter().find(|(keyed, _)| *keyed == task);
                    let keys = keys.map_or(&[][..], |(_, keys)| keys);
                    let uses = crate::limit::uses_with(new.plan.task(task), keys);
                    uses.into_iter().map(move |(limit, _)| (limit, new.plan.known_as(task)))
                });
                let uses: Vec<_> = uses.map(|(limit, task)| (limit, task.to_owned())).collect();
                self.kept_above(at, &parent.releasing, &uses)
            }
        }
    }
}
