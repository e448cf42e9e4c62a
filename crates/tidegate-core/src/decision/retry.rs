//! A new run that takes over what has succeeded in an old one.
//!
//! It is decided from the rows of the old run in the transaction in which the new one begins: what is
//! taken over has succeeded before anything of the new run is ever seen, and what it returned is kept
//! beside it like everybody's. Afterwards the old run may go.

use super::Taking;
use crate::graph::TaskIndex;
use crate::lifecycle::{Event, Kind};
use crate::retry::{self, TakenOver};
use crate::rows::Payload;
use crate::store::{Bytes, NewRun, Refusal, TaskKey};
use crate::want::Loader;
use crate::{RunId, TaskExecutionId};
use std::collections::{HashMap, VecDeque};

impl<L: Loader> Taking<'_, L> {
    /// Why a run cannot be the retry that it is to be, if it cannot.
    pub(super) fn cannot_retry(&mut self, new: &NewRun) -> Result<Option<Refusal>, L::Stop> {
        let Some(id) = new.retry_of.as_ref().map(|retry| retry.run) else { return Ok(None) };
        let Some(old) = self.find(id)? else { return Ok(Some(Refusal::NoRun { run: id })) };
        // What was said in this request may have ended it.
        self.settle(old)?;
        if self.head(old).ended.is_none() {
            return Ok(Some(Refusal::NotEnded { run: id }));
        }
        if self.runs[old].plan.items_of().is_some() {
            return Ok(Some(Refusal::RunOfItems { run: id }));
        }
        let is_all = self.taken_over(new, old)?.is_all;
        Ok(is_all.then_some(Refusal::NothingLeft { run: id }))
    }

    /// A run that has just begun takes over what it can: a retry from the run it says, items from
    /// those of the same task in the run that theirs is a retry of.
    pub(super) fn take_over(&mut self, run: usize, new: &NewRun) -> Result<(), L::Stop> {
        let taken = match (&new.retry_of, &new.parent) {
            (Some(retry), _) => {
                let old = self.find(retry.run)?.expect("it was just looked at");
                let first = self.runs[old].key;
                let tasks = self.taken_over(new, old)?.tasks;
                tasks.into_iter().map(|(task, before)| (task, first.task(before))).collect()
            }
            (None, Some(parent)) if new.plan.items_of().is_some() => {
                let Some(old) = self.items_before(parent.task)? else { return Ok(()) };
                self.head_mut(run).retry_of = Some(self.head(old).id);
                self.same_items(new, old)?
            }
            _ => return Ok(()),
        };
        for (task, from) in taken {
            let to = self.runs[run].key.task(task);
            for kind in [Payload::Output, Payload::Inserts] {
                self.rows.copy_payload(from, to, kind);
            }
            let at = self.existing(to)?;
            let taken = self.step(at, &Event::TakeOver)?;
            assert!(taken, "what has just begun is blocked");
        }
        Ok(())
    }

    /// What a retry takes over from the run it is one of, which has ended.
    fn taken_over(&mut self, new: &NewRun, old: usize) -> Result<TakenOver, L::Stop> {
        let Some(retry) = &new.retry_of else { return Ok(TakenOver::default()) };
        let same_input = self.input(old)? == new.input;
        let (whole, plan) = (self.whole(old)?, self.runs[old].plan.clone());
        let ended = |task: TaskIndex| self.tasks[whole[task.as_usize()]].row.life.state.kind();
        Ok(retry::compare(&plan, ended, &new.plan, &retry.again, same_input))
    }

    /// The run of the items that this task had in the run which its own is a retry of, or, where that
    /// one was stopped before it began any, in the run which that one is a retry of, and so on.
    fn items_before(&mut self, task: TaskKey) -> Result<Option<usize>, L::Stop> {
        let at = self.existing(task)?;
        let (mut run, mut index) = (self.tasks[at].run, self.tasks[at].row.index);
        while let Some((old, namesake)) = self.task_before(run, index)? {
            let id = self.head(old).id;
            if let Some(items) = self.find(RunId::of_items(TaskExecutionId::of(id, namesake)))? {
                return Ok(Some(items));
            }
            (run, index) = (old, namesake);
        }
        Ok(None)
    }

    /// The run which this one is a retry of, and where this task is there, if the items that have
    /// succeeded there count: the task had not, or it would not run again but for a change; it does
    /// what it did; and all that it comes after was taken over.
    fn task_before(
        &mut self,
        run: usize,
        task: TaskIndex,
    ) -> Result<Option<(usize, TaskIndex)>, L::Stop> {
        let Some(id) = self.head(run).retry_of else { return Ok(None) };
        let Some(old) = self.find(id)? else { return Ok(None) };
        let (key, plan) = (self.runs[run].key, self.runs[run].plan.clone());
        let before = self.runs[old].plan.clone();
        // A retry is younger than its run; in a damaged store it might not be, and this never end.
        if self.runs[old].key >= key {
            return Ok(None);
        }
        let namesake = before.graph().find(plan.graph().name(task));
        let same = |namesake: &TaskIndex| retry::is_same(&before, *namesake, &plan, task);
        let Some(namesake) = namesake.filter(same) else { return Ok(None) };
        let stood = self.existing(self.runs[old].key.task(namesake))?;
        if self.tasks[stood].row.life.state.kind() == Kind::Succeeded {
            return Ok(None);
        }
        for &parent in plan.graph().parents(task) {
            let at = self.existing(key.task(parent))?;
            if !self.tasks[at].row.life.is_taken_over() {
                return Ok(None);
            }
        }
        Ok(Some((old, namesake)))
    }

    /// Which of these items have succeeded in an old run: those of the same bytes, as often as they
    /// are in both.
    fn same_items(
        &mut self,
        new: &NewRun,
        old: usize,
    ) -> Result<Vec<(TaskIndex, TaskKey)>, L::Stop> {
        let (first, plan) = (TaskIndex::from_u32(0), self.runs[old].plan.clone());
        if !plan.task(first).does_the_same(new.plan.task(first)) {
            return Ok(Vec::new());
        }
        let mut done: HashMap<Bytes, VecDeque<TaskKey>> = HashMap::new();
        for &at in &*self.whole(old)? {
            let (key, kind) = (self.tasks[at].row.key, self.tasks[at].row.life.state.kind());
            if kind == Kind::Succeeded
                && let Some(item) = self.rows.find_payload(key, Payload::Item)?
            {
                done.entry(item).or_default().push_back(key);
            }
        }
        let items = new.plan.graph().tasks().zip(&new.items);
        let items = items.filter_map(|(task, item)| Some((task, done.get_mut(item)?.pop_front()?)));
        Ok(items.collect())
    }
}
