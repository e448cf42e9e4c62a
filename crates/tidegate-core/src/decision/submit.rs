//! The part of a request that begins runs.

use super::{Run, Taking, Task};
use crate::graph::TaskIndex;
use crate::lifecycle::Life;
use crate::rows::{Head, Payload, Row};
use crate::store::{NewRun, Parent, Refusal, RunKey, Scope, Submitted};
use crate::want::{Loader, LookUps};
use std::sync::Arc;
use std::time::Duration;

impl<'t, L: Loader> Taking<'t, L> {
    pub(super) fn submit(
        &mut self,
        new: &'t NewRun,
    ) -> Result<Result<Submitted, Refusal>, L::Stop> {
        let id = new.id;
        if let Some(parent) = &new.parent {
            let at = self.task(parent.task)?;
            let life = at.map(|at| &self.tasks[at].row.life);
            let is_its = |life: &Life| life.owner().is_some() && life.fence == parent.fence;
            let Some(at) = at.filter(|_| life.is_some_and(is_its)) else {
                return Ok(Err(Refusal::ParentGone));
            };
            if let Some(why) = self.unwaitable_child(at, parent, new)? {
                return Ok(Err(Refusal::Unwaitable(why)));
            }
        }
        if (self.request.again || new.parent.is_some())
            && let Some(run) = self.find(id)?
        {
            let key = self.runs[run].key;
            return Ok(Ok(Submitted { key, id, existing: !self.request.again }));
        }
        let Some(key) = &new.key else {
            if let Some(refusal) = self.refused(new)? {
                return Ok(Err(refusal));
            }
            return Ok(Ok(Submitted { key: self.begin(new)?, id, existing: false }));
        };
        let names = (self.queue_of(new)?, new.plan.workflow(), key.as_str());
        let known = match self.new_keys.get(&names) {
            Some(&run) => Some(run),
            None => self.rows.load_run_by_key(&names.0, names.1, names.2)?,
        };
        if let Some(before) = known {
            let run = self.run(before)?;
            let Head { id: by, retry_of, .. } = *self.head(run);
            if retry_of != new.retry_of.as_ref().map(|retry| retry.run) {
                return Ok(Err(Refusal::KeyOfAnother { key: key.clone(), by }));
            }
            return Ok(match self.input(run)? == new.input {
                true => Ok(Submitted { key: before, id: by, existing: true }),
                false => Err(Refusal::KeyTaken { key: key.clone(), by }),
            });
        }
        if let Some(refusal) = self.refused(new)? {
            return Ok(Err(refusal));
        }
        let run = self.begin(new)?;
        self.new_keys.insert(names, run);
        Ok(Ok(Submitted { key: run, id, existing: false }))
    }

    /// Why a run cannot begin, if it cannot.
    pub(super) fn refused(&mut self, new: &NewRun) -> Result<Option<Refusal>, L::Stop> {
        if let Some(refusal) = self.cannot_retry(new)? {
            return Ok(Some(refusal));
        }
        match self.too_deep(new)? {
            Some(refusal) => Ok(Some(refusal)),
            None => self.full(new),
        }
    }

    /// Why there is no room for a further run in its queue, if there is none. For what a task begins
    /// there always is: it waits for that, and nobody else could make room. What was submitted before
    /// in this request counts, whether it will be taken at once or not.
    pub(super) fn full(&mut self, new: &NewRun) -> Result<Option<Refusal>, L::Stop> {
        let Some(max) = self.request.waiting_max.filter(|_| new.parent.is_none()) else {
            return Ok(None);
        };
        let depth = match self.waiting.get(&new.queue) {
            Some(depth) => *depth,
            None => self.rows.load_queue_depth(&new.queue, max)?,
        };
        let is_full = depth >= i64::from(max);
        self.waiting.insert(new.queue.clone(), depth + i64::from(!is_full));
        let queue = new.queue.to_string();
        Ok(is_full.then_some(Refusal::QueueFull { queue, waiting: max, max }))
    }

    /// The queue of a run that is to begin: what a task begins has that of its task, unless it is
    /// told otherwise.
    pub(super) fn queue_of(&mut self, new: &NewRun) -> Result<Arc<str>, L::Stop> {
        Ok(match &new.parent {
            None => new.queue.clone(),
            Some(Parent { queue: Some(queue), .. }) => queue.clone(),
            Some(parent) => {
                let at = self.existing(parent.task)?;
                self.head(self.tasks[at].run).queue.clone()
            }
        })
    }

    /// Makes the rows of a run, all blocked; settling lets the first ones go.
    pub(super) fn begin(&mut self, new: &'t NewRun) -> Result<RunKey, L::Stop> {
        let count = u32::try_from(new.plan.task_count()).expect("a graph is not that large");
        let key = self.rows.allocate_tasks(count)?;
        let mut head = Box::new(Head {
            id: new.id,
            queue: self.queue_of(new)?,
            priority: new.priority,
            key: new.key.clone(),
            parent: None,
            retry_of: new.retry_of.as_ref().map(|retry| retry.run),
            not_before: new.not_before,
            submitted_at: self.now,
            paused_at: None,
            cancelled: false,
            failing: false,
            open: count,
            awaited: new.parent.is_some(),
            ended: None,
            depth: 0,
        });
        if let Some(Parent { task, priority, .. }) = &new.parent {
            let at = self.task(*task)?.expect("it was just looked at");
            let above = self.head(self.tasks[at].run);
            head.priority = priority.unwrap_or(above.priority);
            (head.parent, head.paused_at) = (Some(*task), above.paused_at.map(|_| self.now));
            if head.paused_at.is_some() {
                self.note_pause(&Scope::Run(new.id), true)?;
            }
            self.begin_child(at, key, new)?;
        }
        let mut head = Some(head);
        let run = self.runs.len();
        let tasks = new.plan.graph().tasks().map(|index| Row {
            key: key.task(index),
            index,
            plan: new.plan.clone(),
            life: Life::blocked(),
            request: self.request.id,
            ended_at: None,
            has_waits: false,
            open_parents: 0,
            has_inserts_above: false,
            behind: None,
            head: head.take(),
        });
        let first = self.tasks.len();
        for row in tasks {
            self.task_at.insert(row.key, self.tasks.len());
            self.tasks.push(Task { row, run, dirty: true, stood_still: Duration::ZERO });
        }
        let (plan, whole) = (new.plan.clone(), Some((first..self.tasks.len()).collect()));
        self.new_items.extend(new.parent.is_some().then_some((new.id, run)));
        let (ended, unsettled) = (Vec::new(), true);
        self.runs.push(Run { key, plan, first, whole, ended, unsettled, new: Some(new) });
        if let Some(input) = &new.input {
            self.rows.keep(key.task(TaskIndex::from_u32(0)), Payload::Input, input.clone());
        }
        for (index, item) in new.plan.graph().tasks().zip(&new.items) {
            self.rows.keep(key.task(index), Payload::Item, item.clone());
        }
        for (index, keys) in &new.keys {
            self.rows.keep(key.task(*index), Payload::Keys, crate::limit::encode_keys(keys));
        }
        self.take_over(run, new)?;
        Ok(key)
    }
}
