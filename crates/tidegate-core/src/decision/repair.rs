//! The part of a request that puts right what an audit has found.
//!
//! What is derived is derived again, from the same rows and by the same functions as everywhere
//! else, and only where it is still wrong: between the audit and the repair others have written.
//! Rows that do not even make a run are not touched.

use super::{Taking, parent_failed, standing};
use crate::audit::{Repair, Stray, may_hold, may_stand_behind, misplaced};
use crate::graph::{Outcome, Standing, TaskIndex};
use crate::lifecycle::{CancelledBy, Event, Kind, State};
use crate::limit::LimitKey;
use crate::rows::Row;
use crate::store::{OperationOutcome, RunKey, Scope, TaskKey};
use crate::wait::Waiting;
use crate::want::{Loader, LookUps};
use std::sync::Arc;
use std::time::Duration;

impl<L: Loader> Taking<'_, L> {
    /// Puts something right, unless it is.
    pub(super) fn repair(&mut self, repair: &Repair) -> Result<OperationOutcome, L::Stop> {
        let changed = match repair {
            Repair::Stray(stray) => Some(self.sweep(stray)?),
            Repair::Task(task) => self.repair_task(*task)?,
            Repair::Run(run) => self.repair_run(*run)?,
            Repair::Signal(run, name) => Some(self.repair_signals(*run, name)?),
            Repair::Limit(limit) => Some(self.repair_limit(limit)?),
        };
        Ok(match changed {
            Some(true) => OperationOutcome::Yes,
            Some(false) => OperationOutcome::Already,
            None => OperationOutcome::Unknown,
        })
    }

    /// Removes what belongs to nothing. What it held is there for others.
    fn sweep(&mut self, stray: &Stray) -> Result<bool, L::Stop> {
        let holds = match stray {
            Stray::Task(task) => self.rows.find_holds(*task)?,
            _ => Vec::new(),
        };
        let swept = self.rows.sweep(stray)?;
        for hold in holds.into_iter().filter(|_| swept) {
            self.give_back(&hold)?;
        }
        Ok(swept)
    }

    /// A task, if it is there and its run has a head. Nothing else can be asked about it otherwise.
    fn sound(&mut self, task: TaskKey) -> Result<Option<usize>, L::Stop> {
        let Some(row) = self.rows.load_task(task)? else { return Ok(None) };
        let first = self.rows.load_task(row.run().task(TaskIndex::from_u32(0)))?;
        match first.is_some_and(|first| first.head.is_some()) {
            true => self.task(task),
            false => Ok(None),
        }
    }

    /// A run, if all its tasks are there.
    fn sound_run(&mut self, run: RunKey) -> Result<Option<usize>, L::Stop> {
        let rows = self.rows.load_whole_run(run)?;
        let Some(first) = rows.first() else { return Ok(None) };
        let all = first.head.is_some() && rows.len() == first.plan.task_count();
        let is_its = |(place, row): (u32, &Row)| row.index == TaskIndex::from_u32(place);
        match all && (0..).zip(&rows).all(is_its) {
            true => self.run(run).map(Some),
            false => Ok(None),
        }
    }

    // --------------------------------------------------------------------------------- a task --

    fn repair_task(&mut self, task: TaskKey) -> Result<Option<bool>, L::Stop> {
        let Some(at) = self.sound(task)? else { return Ok(None) };
        let mut changed = self.repair_holds(at)?;
        changed |= self.repair_waits(at)?;
        changed |= self.repair_behind(at)?;
        changed |= self.repair_place(at)?;
        Ok(Some(changed))
    }

    /// It holds of what it uses as much as it uses, and nothing else.
    fn repair_holds(&mut self, at: usize) -> Result<bool, L::Stop> {
        let uses = match may_hold(&self.tasks[at].row.life) {
            true => self.uses_of(at)?,
            false => Vec::new(),
        };
        let mut changed = false;
        for hold in self.rows.find_holds(self.tasks[at].row.key)? {
            let used = uses.iter().find(|(used, _)| *used == hold.limit).map(|(_, units)| *units);
            if used == Some(hold.units) {
                continue;
            }
            changed = true;
            self.let_one_go(at, &hold)?;
            if let Some(units) = used {
                self.take_one(at, &hold.limit, units)?;
            }
        }
        Ok(changed)
    }

    /// It knows that it has waits; one that has ended has none open; one that waits for nothing is
    /// woken.
    fn repair_waits(&mut self, at: usize) -> Result<bool, L::Stop> {
        let waits = self.rows.find_waits(self.tasks[at].row.key)?;
        let mut changed = !waits.is_empty() && self.mark_waits(at);
        let life = self.tasks[at].row.life.clone();
        let is_open = waits.iter().any(Waiting::is_open);
        if matches!(life.state, State::Parked { wake: None, .. }) && !is_open {
            changed |= self.step(at, &Event::Wake)?;
        }
        if life.state.kind().is_terminal() {
            for wait in waits.iter().filter(|wait| wait.is_open()) {
                self.rows.drop_wait(self.tasks[at].row.key, &wait.id);
                changed = true;
            }
        }
        Ok(changed)
    }

    pub(super) fn mark_waits(&mut self, at: usize) -> bool {
        let changed = !self.tasks[at].row.has_waits;
        if changed {
            self.mark_changed(at);
            self.tasks[at].row.has_waits = true;
        }
        changed
    }

    fn repair_behind(&mut self, at: usize) -> Result<bool, L::Stop> {
        let uses = self.uses_of(at)?;
        let (row, head) = (&self.tasks[at].row, self.head(self.tasks[at].run));
        let Some((limit, _)) = &row.behind else { return Ok(false) };
        if may_stand_behind(row, head, limit) && uses.iter().any(|(used, _)| used == limit) {
            return Ok(false);
        }
        self.freed.insert(limit.clone());
        self.set_behind(at, None);
        Ok(true)
    }

    fn repair_place(&mut self, at: usize) -> Result<bool, L::Stop> {
        let stored = self.rows.find_stored_task(self.tasks[at].row.key)?;
        let stood_still = self.stood_still(at)?;
        let (row, head) = (&self.tasks[at].row, self.head(self.tasks[at].run).clone());
        let now = Some(self.now);
        let filed = stored.and_then(|stored| stored.content.ok());
        let mut changed =
            filed.is_some_and(|filed| !misplaced(row, &head, &filed.place, now).is_empty());
        changed |= self.rows.refile_task(row, &head)?;
        if changed {
            self.mark_changed(at);
            self.tasks[at].stood_still = stood_still;
        }
        Ok(changed)
    }

    /// For how long the clock of a task that queues has stood still.
    pub(super) fn stood_still(&mut self, at: usize) -> Result<Duration, L::Stop> {
        let row = &self.tasks[at].row;
        let Some(since) = row.life.queues_since(&row.planned().rules) else {
            return Ok(Duration::ZERO);
        };
        let head = self.head(self.tasks[at].run);
        let (id, queue) = (head.id, head.queue.clone());
        self.rows.paused_time(id, &queue, since, self.now)
    }

    // ---------------------------------------------------------------------------------- a run --

    fn repair_run(&mut self, key: RunKey) -> Result<Option<bool>, L::Stop> {
        let Some(run) = self.sound_run(key)? else { return Ok(None) };
        let whole = self.whole(run)?;
        let rows = |taking: &Self| -> Vec<Row> {
            whole.iter().map(|&at| taking.tasks[at].row.clone()).collect()
        };
        let before = rows(self);
        self.repair_head(run, &whole)?;
        self.cancel_unwanted(run, &whole)?;
        self.runs[run].unsettled = true;
        self.settle(run)?;
        let mut changed = self.repair_awaited(run)?;
        changed |= self.repair_pause(run)?;
        changed |= self.repair_place(whole[0])?;
        Ok(Some(changed || rows(self) != before))
    }

    /// What the head of a run says of its tasks is what these are.
    fn repair_head(&mut self, run: usize, whole: &[usize]) -> Result<(), L::Stop> {
        let lists = self.failing_lists(run, whole)?;
        let stands = |task: TaskIndex| standing(&self.tasks[whole[task.as_usize()]].row.life);
        let all: Vec<Standing> = self.runs[run].plan.graph().tasks().map(stands).collect();
        let open = all.iter().filter(|standing| standing.outcome().is_none()).count() as u32;
        let head = self.head(run);
        let is_list = |at: &usize| self.tasks[*at].row.planned().each.is_some();
        let has_cancelled_list = whole
            .iter()
            .any(|at| is_list(at) && self.tasks[*at].row.life.state.kind() == Kind::Cancelled);
        let failing = all.contains(&Standing::Ended(Outcome::Failed))
            || !lists.is_empty()
            || head.failing && has_cancelled_list;
        let right = self.runs[run].plan.graph().outcome_of_run(stands, head.cancelled);
        // One that has not ended is ended where everything is that follows from it.
        let ended = head.ended.and_then(|(_, at)| Some((right?, at)));
        if (head.open, head.failing, head.ended) != (open, failing, ended) {
            let head = self.head_mut(run);
            (head.open, head.failing, head.ended) = (open, failing, ended);
        }
        Ok(())
    }

    /// Nothing goes on of what a user has cancelled, or of what was begun by a task that has failed.
    fn cancel_unwanted(&mut self, run: usize, whole: &[usize]) -> Result<(), L::Stop> {
        if self.head(run).cancelled {
            for &at in whole {
                // Refused where it has ended.
                self.step(at, &Event::Cancel { by: CancelledBy::User })?;
            }
        }
        let Some(parent) = self.head(run).parent else { return Ok(()) };
        let Some(parent) = self.sound(parent)? else { return Ok(()) };
        if parent_failed(&self.tasks[parent].row.life) {
            self.cancel_found(run, CancelledBy::Upstream)?;
        }
        Ok(())
    }

    /// Whoever waits for a run is told that it has ended, or it is known that somebody waits.
    fn repair_awaited(&mut self, run: usize) -> Result<bool, L::Stop> {
        let key = self.runs[run].key;
        let mut is_awaited = false;
        for (task, id) in self.rows.run_waits(key)? {
            match self.sound(task)? {
                Some(at) => drop(self.mark_waits(at)),
                // It would be in the way of the others.
                None => self.rows.drop_wait(task, &id),
            }
            is_awaited = true;
        }
        match self.head(run).ended {
            Some((outcome, _)) => self.end_run_waits(key, outcome)?,
            None if is_awaited => self.mark_awaited(run)?,
            None => {}
        }
        Ok(is_awaited && self.head(run).ended.is_some())
    }

    /// The pause of a run is as the run says, because that is what its tasks stand behind.
    fn repair_pause(&mut self, run: usize) -> Result<bool, L::Stop> {
        let head = self.head(run);
        let scope = Scope::Run(head.id);
        match (head.ended, head.paused_at) {
            (Some(_), _) => Ok(false),
            (None, Some(since)) => self.rows.change_pause(&scope, true, since),
            (None, None) => self.rows.change_pause(&scope, false, self.now),
        }
    }

    // -------------------------------------------------------------------- signals and limits --

    fn repair_signals(&mut self, run: RunKey, name: &Arc<str>) -> Result<bool, L::Stop> {
        let mut changed = false;
        while let Some((task, _)) = self.rows.first_signal_wait(run, name)?
            && self.rows.next_signal(run, name)?.is_some()
            && let Some(at) = self.sound(task)?
        {
            self.mark_waits(at);
            self.deliver(run, name)?;
            changed = true;
        }
        Ok(changed)
    }

    fn repair_limit(&mut self, limit: &LimitKey) -> Result<bool, L::Stop> {
        let has_miscounted = self.count_limit(limit)?;
        let (first, alarm) = (self.behind(limit, 1)?, self.find_alarm(limit)?);
        self.freed.insert(limit.clone());
        self.open_limits()?;
        let rings = alarm.is_none() && self.find_alarm(limit)?.is_some();
        let behind = self.behind(limit, 1)?;
        Ok(has_miscounted || rings || first.iter().any(|first| !behind.contains(first)))
    }
}
