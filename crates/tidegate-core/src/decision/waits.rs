//! The part of a request that concerns waits: what tasks want of theirs, signals, ends of runs.

use super::Taking;
use super::cascade::Cascade;
use crate::graph::RunOutcome;
use crate::lifecycle::{CancelledBy, Event, Fence, Kind, Reason, State, WorkerId};
use crate::limit::LimitKey;
use crate::store::{Change, OperationOutcome, RunKey, TaskKey, Told};
use crate::wait::{Awaited, NewSignal, WaitAnswer, WaitId, WaitKind, WaitOp, WaitOutcome, Waiting};
use crate::want::Loader;
use crate::{RunId, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;

impl<'t, L: Loader> Taking<'t, L> {
    /// What a task wants of its waits, before it ends or goes on.
    pub(super) fn wait_ops(
        &mut self,
        at: usize,
        change: &'t Change,
        ends: bool,
    ) -> Result<(), L::Stop> {
        for op in &change.waits {
            let (id, outcome) = match op {
                WaitOp::Begin { id, .. } => (id.clone(), self.begin_wait(at, op)?),
                // No later entry will ask how they ended.
                WaitOp::End { id, .. }
                    if ends && matches!(id.kind, WaitKind::Sleep | WaitKind::Any) =>
                {
                    continue;
                }
                WaitOp::End { id, label, outcome } => {
                    (id.clone(), Some(self.end_own(at, id, label, outcome)?))
                }
                WaitOp::Close(id) => {
                    self.close_wait(at, id)?;
                    continue;
                }
                WaitOp::Release(names) => {
                    self.release(at, names)?;
                    continue;
                }
                WaitOp::Retake(number) => match self.retake(at)? {
                    true => (WaitId::limits(*number), Some(WaitOutcome::Elapsed)),
                    false => (WaitId::limits(*number), None),
                },
            };
            self.answer_wait(change.task, change.fence, id, outcome);
        }
        Ok(())
    }

    /// What was said before in this request may end the run that a task wants to wait for, and with it
    /// the task itself, if that run is above it: this has to be known before anything is made of what
    /// the task says.
    pub(super) fn settle_awaited(&mut self, change: &Change) -> Result<(), L::Stop> {
        for op in &change.waits {
            if let WaitOp::Begin { what: Awaited::Run(run), .. } = op
                && let Some(run) = self.find(*run)?
            {
                self.settle(run)?;
            }
        }
        Ok(())
    }

    fn answer_wait(
        &mut self,
        task: TaskKey,
        fence: Fence,
        id: WaitId,
        outcome: Option<WaitOutcome>,
    ) {
        self.answer.answers.push((task, fence, WaitAnswer { id, outcome }));
    }

    /// A wait begins, unless it is there; how it has ended, if it has.
    fn begin_wait(&mut self, at: usize, op: &'t WaitOp) -> Result<Option<WaitOutcome>, L::Stop> {
        let WaitOp::Begin { id, label, due, what, releasing } = op else { return Ok(None) };
        let outcome = match self.wait_of(at, id)? {
            Some(before) if before.label != *label => {
                Some(WaitOutcome::Refused(id.differs(&before.label, label)))
            }
            Some(before) => before.outcome,
            None => {
                let outcome = self.begin_new(at, id, label, what, *due, releasing)?;
                if !matches!(outcome, None | Some(WaitOutcome::Refused(_))) {
                    // It has got on without having waited, which a death after this does not undo.
                    let fence = self.tasks[at].row.life.fence;
                    self.step(at, &Event::Step { fence })?;
                }
                outcome
            }
        };
        if outcome.is_none() {
            self.release(at, releasing)?;
        }
        Ok(outcome)
    }

    fn begin_new(
        &mut self,
        at: usize,
        id: &WaitId,
        label: &Arc<str>,
        what: &'t Awaited,
        due: Option<Timestamp>,
        releasing: &[Arc<str>],
    ) -> Result<Option<WaitOutcome>, L::Stop> {
        let mut wait = Waiting::new(id.clone(), label.clone(), self.now);
        wait.due = due;
        let run = match what {
            Awaited::Time => {
                self.put_wait(at, wait);
                return Ok(None);
            }
            Awaited::Signal => {
                let run = self.addressed(self.tasks[at].run)?;
                wait.run = Some(self.runs[run].key);
                if let Some((signal, body)) = self.rows.next_signal(self.runs[run].key, &id.name)? {
                    self.rows.take_signal(signal, self.tasks[at].row.key);
                    (wait.outcome, wait.signal) = (Some(WaitOutcome::Value(body)), Some(signal));
                }
                let outcome = wait.outcome.clone();
                self.put_wait(at, wait);
                return Ok(outcome);
            }
            Awaited::Child(new) => match self.submit(new)? {
                Err(refusal) => return Ok(Some(WaitOutcome::Refused(refusal.to_string()))),
                Ok(submitted) => match self.wait_of(at, id)? {
                    Some(begun) => return Ok(begun.outcome),
                    None => self.run(submitted.key)?,
                },
            },
            Awaited::Run(run) => match self.find(*run)? {
                None => {
                    let why = format!("there is no run {run} in this store to wait for");
                    return Ok(Some(WaitOutcome::Refused(why)));
                }
                Some(run) => run,
            },
        };
        // What was said before in this request may have ended it.
        self.settle(run)?;
        wait.run = Some(self.runs[run].key);
        wait.outcome = self.head(run).ended.map(|(outcome, _)| WaitOutcome::Ended(outcome));
        if wait.is_open() {
            if let Some(why) = self.unwaitable_run(at, run, releasing)? {
                return Ok(Some(WaitOutcome::Refused(why)));
            }
            self.mark_awaited(run)?;
        }
        let outcome = wait.outcome.clone();
        self.put_wait(at, wait);
        Ok(outcome)
    }

    /// Somebody waits for the end of a run: what of it is ready is found by that.
    pub(super) fn mark_awaited(&mut self, run: usize) -> Result<(), L::Stop> {
        if self.head(run).awaited {
            return Ok(());
        }
        self.head_mut(run).awaited = true;
        for &at in &*self.whole(run)? {
            if self.tasks[at].row.life.state.kind() == Kind::Ready {
                self.mark_changed(at);
            }
        }
        Ok(())
    }

    /// The body has ended a wait, unless it had ended before; the outcome that stands.
    fn end_own(
        &mut self,
        at: usize,
        id: &WaitId,
        label: &Arc<str>,
        outcome: &WaitOutcome,
    ) -> Result<WaitOutcome, L::Stop> {
        let now = self.now;
        let wait = self.wait_of(at, id)?;
        let wait = wait.unwrap_or_else(|| Waiting::new(id.clone(), label.clone(), now));
        match wait.outcome {
            _ if wait.label != *label => Ok(WaitOutcome::Refused(id.differs(&wait.label, label))),
            Some(outcome) => Ok(outcome),
            None => {
                self.put_wait(at, Waiting { outcome: Some(outcome.clone()), ..wait });
                Ok(outcome.clone())
            }
        }
    }

    /// A wait that is over without its task: it is as if it had never been.
    fn close_wait(&mut self, at: usize, id: &WaitId) -> Result<(), L::Stop> {
        let Some(wait) = self.wait_of(at, id)? else { return Ok(()) };
        self.rows.drop_wait(self.tasks[at].row.key, id);
        if let (Some(signal), Some(run)) = (wait.signal, wait.run) {
            let body = match &wait.outcome {
                Some(WaitOutcome::Value(body)) => body.clone(),
                _ => None,
            };
            self.rows.return_signal(signal, run, &id.name, body);
            self.deliver(run, &id.name)?;
        }
        if let Some(child) = self.child(at, &wait)? {
            self.cancel_found(child, CancelledBy::Upstream)?;
        }
        Ok(())
    }

    /// The first signal of a name goes to whoever waits longest, if both are there.
    pub(super) fn deliver(&mut self, run: RunKey, name: &Arc<str>) -> Result<(), L::Stop> {
        let Some((task, id)) = self.rows.first_signal_wait(run, name)? else { return Ok(()) };
        let Some((signal, body)) = self.rows.next_signal(run, name)? else { return Ok(()) };
        self.rows.take_signal(signal, task);
        self.end_wait(task, &id, WaitOutcome::Value(body), Some(signal))
    }

    /// A message to a run.
    pub(super) fn signal(&mut self, signal: &NewSignal) -> Result<OperationOutcome, L::Stop> {
        let Some(run) = self.find(signal.run)? else { return Ok(OperationOutcome::Unknown) };
        let run = self.addressed(run)?;
        self.settle(run)?;
        let key = self.runs[run].key;
        if self.request.again && self.rows.was_sent(key, signal.id)? {
            return Ok(OperationOutcome::Yes);
        }
        if self.head(run).ended.is_some() {
            return Ok(OperationOutcome::Already);
        }
        self.rows.add_signal(key, signal, self.now)?;
        self.deliver(key, &signal.name)?;
        Ok(OperationOutcome::Yes)
    }

    /// The run to which signals for this one go: items have no name that anybody knows, so theirs is
    /// the run whose items they are.
    fn addressed(&mut self, run: usize) -> Result<usize, L::Stop> {
        match (self.runs[run].plan.items_of(), self.head(run).parent) {
            (Some(_), Some(parent)) => {
                // What was pruned is not spoken to any more.
                let above = self.task(parent)?;
                Ok(above.map_or(run, |at| self.tasks[at].run))
            }
            _ => Ok(run),
        }
    }

    /// A run has ended: whoever waits for it is told.
    pub(super) fn end_run_waits(
        &mut self,
        run: RunKey,
        outcome: RunOutcome,
    ) -> Result<(), L::Stop> {
        for (task, id) in self.rows.run_waits(run)? {
            self.end_wait(task, &id, WaitOutcome::Ended(outcome), None)?;
        }
        Ok(())
    }

    /// A wait of some task ends without its worker having said so.
    fn end_wait(
        &mut self,
        task: TaskKey,
        id: &WaitId,
        outcome: WaitOutcome,
        signal: Option<u64>,
    ) -> Result<(), L::Stop> {
        let at = self.existing(task)?;
        let wait = self.wait_of(at, id)?.expect("a wait that was found is there");
        self.put_wait(at, Waiting { outcome: Some(outcome.clone()), signal, ..wait });
        let life = &self.tasks[at].row.life;
        let fence = life.fence;
        match life.state {
            State::Parked { .. } => {
                let woken = self.step(at, &Event::Wake)?;
                assert!(woken, "what is parked can be woken");
            }
            State::Running { worker, .. } if self.request.worker == Some(worker) => {
                self.answer_wait(task, fence, id.clone(), Some(outcome));
            }
            State::Running { worker, .. } => self.rows.notify_worker(worker, task),
            // It finds the answer when it is entered again.
            _ => {}
        }
        Ok(())
    }

    /// What came while a task was about to park wakes it.
    pub(super) fn wake_if_answered(&mut self, at: usize, change: &Change) -> Result<(), L::Stop> {
        if self.tasks[at].row.life.state.kind() != Kind::Parked {
            return Ok(());
        }
        for id in &change.parks_on {
            if self.wait_of(at, id)?.is_none_or(|wait| !wait.is_open()) {
                self.step(at, &Event::Wake)?;
                break;
            }
        }
        Ok(())
    }

    /// What of its waits a task keeps: all of them, until it ends or begins anew.
    pub(super) fn keep_waits(&mut self, at: usize, event: &Event) -> Result<(), L::Stop> {
        let kind = self.tasks[at].row.life.state.kind();
        let anew = matches!(event, Event::Fail { .. } | Event::Snooze { .. });
        if !kind.is_terminal() && !anew {
            return Ok(());
        }
        let by = match self.tasks[at].row.life.state {
            State::Cancelled(Reason::User) => CancelledBy::User,
            _ => CancelledBy::FailFast,
        };
        let task = self.tasks[at].row.key;
        for wait in self.rows.find_waits(task)? {
            let keeps = match kind.is_terminal() {
                true => !wait.is_open(),
                false => wait.outlives_attempt(),
            };
            if !keeps {
                self.rows.drop_wait(task, &wait.id);
            } else if !kind.is_terminal() {
                self.wait_anew(at, &wait)?;
            }
            if kind.is_terminal()
                && kind != Kind::Succeeded
                && let Some(child) = self.child(at, &wait)?
            {
                self.cascades.push_back(Cascade::Cancel { run: child, by });
            }
        }
        Ok(())
    }

    /// A run that a task has begun is waited for by its next attempt too, with a patience of its own.
    fn wait_anew(&mut self, at: usize, wait: &Waiting) -> Result<(), L::Stop> {
        let timed_out = wait.outcome == Some(WaitOutcome::TimedOut);
        let Some(run) = wait.run.filter(|_| timed_out || wait.is_open() && wait.due.is_some())
        else {
            return Ok(());
        };
        // One that was pruned has ended, nobody knows how: the patience for it is at an end.
        let Some(run) = self.find_run(run)? else { return Ok(()) };
        self.settle(run)?;
        // Nor is there any for one that has come to wait for this one meanwhile.
        if timed_out && self.waits_for(run, self.tasks[at].run)?.is_some() {
            return Ok(());
        }
        let outcome = self.head(run).ended.map(|(outcome, _)| WaitOutcome::Ended(outcome));
        self.put_wait(at, Waiting { due: None, outcome, ..wait.clone() });
        Ok(())
    }

    /// All waits of a task, with the names of the runs that they are for the end of, as far as these
    /// have not been pruned.
    pub(super) fn waits_with_runs(
        &mut self,
        task: TaskKey,
    ) -> Result<Vec<(Waiting, Option<RunId>)>, L::Stop> {
        let mut waits = Vec::new();
        for wait in self.rows.find_waits(task)? {
            let run = match wait.run.filter(|_| wait.id.kind.is_for_run()) {
                Some(run) => self.find_run(run)?,
                None => None,
            };
            waits.push((wait, run.map(|run| self.head(run).id)));
        }
        Ok(waits)
    }

    /// Why a task cannot wait for the end of a run that is there, if it cannot.
    fn unwaitable_run(
        &mut self,
        at: usize,
        run: usize,
        releasing: &[Arc<str>],
    ) -> Result<Option<String>, L::Stop> {
        let own = self.tasks[at].run;
        if let Some(through) = self.waits_for(run, own)? {
            let name = self.tasks[at].row.plan.graph().name(self.tasks[at].row.index);
            let (own, run) = (self.head(own).id, self.head(run).id);
            let through = match through == run {
                true => String::new(),
                false => format!(" (through run {through})"),
            };
            return Ok(Some(format!(
                "task \"{name}\" of run {own} cannot wait for run {run}, which waits for run \
                 {own}{through}"
            )));
        }
        let mut uses = Vec::new();
        for &task in &*self.whole(run)? {
            let row = &self.tasks[task].row;
            if row.planned().limits.is_empty() || row.life.state.kind().is_terminal() {
                continue;
            }
            let name = row.plan.known_as(row.index).to_owned();
            let used = self.uses_of(task)?;
            uses.extend(used.into_iter().map(|(limit, _)| (limit, name.clone())));
        }
        self.kept_above(at, releasing, &uses)
    }

    /// Whether a run waits for another, or is it; the last run on the way there.
    fn waits_for(&mut self, run: usize, other: usize) -> Result<Option<RunId>, L::Stop> {
        let (mut seen, mut open) = (HashSet::new(), vec![run]);
        while let Some(run) = open.pop() {
            if run == other {
                return Ok(Some(self.head(run).id));
            }
            let tasks = self.runs[run].plan.task_count() as u32;
            for next in self.rows.runs_waited_for(self.runs[run].key, tasks)? {
                let next = self.run(next)?;
                if next == other {
                    return Ok(Some(self.head(run).id));
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        Ok(None)
    }

    /// Which of these limits the task keeps while it waits, or one of those that wait for it: then
    /// whoever needs it would wait for ever.
    pub(super) fn kept_above(
        &mut self,
        at: usize,
        releasing: &[Arc<str>],
        uses: &[(LimitKey, String)],
    ) -> Result<Option<String>, L::Stop> {
        if uses.is_empty() {
            return Ok(None);
        }
        let (mut seen, mut above) = (HashSet::from([at]), vec![at]);
        while let Some(holder) = above.pop() {
            let row = &self.tasks[holder].row;
            let holds = match row.planned().limits.is_empty() {
                true => Vec::new(),
                false => self.rows.find_holds(row.key)?,
            };
            for hold in holds {
                if holder == at && releasing.contains(&hold.limit.name) {
                    continue;
                }
                let needed = uses.iter().find(|(limit, _)| *limit == hold.limit);
                if let Some((limit, task)) = needed
                    && self.bounds_at_once(limit)?
                {
                    let row = &self.tasks[holder].row;
                    let keeper = row.plan.known_as(row.index);
                    return Ok(Some(format!(
                        "task \"{keeper}\" keeps {limit} while it waits, and task \"{task}\" of the \
                         run that is waited for needs it; wait with .releasing(\"{}\")",
                        limit.name
                    )));
                }
            }
            let run = self.runs[self.tasks[holder].run].key;
            for (waiter, _) in self.rows.run_waits(run)? {
                let waiter = self.existing(waiter)?;
                above.extend(seen.insert(waiter).then_some(waiter));
            }
        }
        Ok(None)
    }

    /// What others have left word of for a worker.
    pub(super) fn hear_words(&mut self, worker: WorkerId) -> Result<(), L::Stop> {
        for task in self.rows.take_notifications(worker)? {
            let Some(at) = self.task(task)? else { continue };
            let life = &self.tasks[at].row.life;
            let (fence, kind) = (life.fence, life.state.kind());
            match life.owner() {
                Some(owner) if owner == worker && life.stopping.is_none() => {
                    self.answer.ask_again.push((task, fence));
                }
                Some(owner) if owner != worker => {}
                _ if kind.is_terminal() || life.stopping.is_some() => {
                    self.answer.told.push(Told { task, fence, worker, kind });
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn wait_of(&mut self, at: usize, id: &WaitId) -> Result<Option<Waiting>, L::Stop> {
        let row = &self.tasks[at].row;
        if row.has_waits { self.rows.find_wait(row.key, id) } else { Ok(None) }
    }

    pub(super) fn put_wait(&mut self, at: usize, wait: Waiting) {
        self.mark_waits(at);
        self.rows.put_wait(self.tasks[at].row.key, wait);
    }
}
