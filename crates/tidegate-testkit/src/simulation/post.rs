//! What must hold of stored waits and of signals, checked against what the store has said of them.

use super::ledger::Ledger;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::lifecycle::{Event, Kind};
use tidegate_core::store::{
    Applied, Change, Operation, OperationOutcome, Reply, Request, RequestId, TaskKey,
};
use tidegate_core::wait::{NewSignal, WaitId, WaitKind, WaitOp, WaitOutcome};

/// A signal, by what it brings: no two bring the same.
type Brought = Arc<[u8]>;

/// To whom signals are sent, and under which name.
type Address = (RunId, Arc<str>);

/// What the store has said of waits and signals.
#[derive(Default)]
pub(super) struct Post {
    /// How waits have ended, until they are closed or their attempt is over.
    outcomes: BTreeMap<(TaskKey, WaitId), WaitOutcome>,
    /// What was sent, in the order in which the store took it.
    sent: BTreeMap<Address, Vec<Brought>>,
    /// Who has received what.
    taken: BTreeMap<Brought, (TaskKey, WaitId)>,
    /// On what tasks have parked.
    parked: BTreeMap<TaskKey, Vec<WaitId>>,
    requests: BTreeSet<u64>,
}

impl Post {
    /// Looks at what a request has said and answered, when all else of it was looked at.
    pub(super) fn look(
        &mut self,
        ledger: &Ledger,
        request: &Request,
        reply: &Reply,
    ) -> Result<(), String> {
        for (operation, granted) in request.operations.iter().zip(&reply.operations) {
            if let Operation::Signal(signal) = operation {
                self.sent(ledger, signal, *granted)?;
            }
        }
        // What is told again has happened before, and more since.
        let RequestId(id) = request.id;
        if self.requests.insert(id) {
            let changes = request.changes.iter().zip(&reply.changes);
            for (change, _) in changes.filter(|(_, applied)| **applied == Applied::Yes) {
                self.changed(ledger, change);
            }
        }
        for (task, _, answer) in &reply.answers {
            let change = request.changes.iter().find(|change| change.task == *task);
            let closed = change.is_some_and(|change| is_closed(change, &answer.id));
            let anew = change.is_some_and(|change| change.events.iter().any(is_anew));
            let Some(outcome) = answer.outcome.as_ref().filter(|_| !closed) else { continue };
            if !anew || outlives(&answer.id, outcome) {
                self.note(ledger, *task, &answer.id, outcome)?;
            }
        }
        for claimed in &reply.claimed {
            let kept: BTreeMap<&WaitId, Option<&WaitOutcome>> =
                claimed.waits.iter().map(|(wait, _)| (&wait.id, wait.outcome.as_ref())).collect();
            for ((_, id), outcome) in self.of(claimed.key) {
                if kept.get(id) != Some(&Some(outcome)) {
                    let (task, kept) = (claimed.key.0, kept.get(id));
                    return Err(format!("task {task}: {id} was {outcome:?} and is {kept:?}"));
                }
            }
            for (wait, _) in &claimed.waits {
                if let Some(outcome) = &wait.outcome {
                    self.note(ledger, claimed.key, &wait.id, outcome)?;
                }
            }
        }
        Ok(())
    }

    fn of(&self, task: TaskKey) -> impl Iterator<Item = (&(TaskKey, WaitId), &WaitOutcome)> {
        let first = (task, WaitId::new(WaitKind::Step, "", 0));
        self.outcomes.range(first..).take_while(move |((other, _), _)| *other == task)
    }

    fn sent(
        &mut self,
        ledger: &Ledger,
        signal: &NewSignal,
        granted: OperationOutcome,
    ) -> Result<(), String> {
        let Some(run) = ledger.addressed(signal.run) else { return Ok(()) };
        let brought = signal.body.clone().expect("what is sent here brings something");
        let sent = self.sent.entry((run, signal.name.clone())).or_default();
        match granted {
            OperationOutcome::Yes if !sent.contains(&brought) => sent.push(brought),
            OperationOutcome::Already if ledger.open.contains(&run) => {
                return Err(format!("run {run} is open and takes no signal"));
            }
            _ => {}
        }
        Ok(())
    }

    fn changed(&mut self, ledger: &Ledger, change: &Change) {
        let task = change.task;
        for op in &change.waits {
            if let WaitOp::Close(id) = op {
                self.outcomes.remove(&(task, id.clone()));
                self.taken.retain(|_, by| *by != (task, id.clone()));
            }
        }
        if change.events.iter().any(is_anew) {
            self.outcomes.retain(|(other, id), outcome| *other != task || outlives(id, outcome));
        }
        let is_parked = ledger.life(task).is_some_and(|life| life.state.kind() == Kind::Parked);
        match is_parked && !change.parks_on.is_empty() {
            true => self.parked.insert(task, change.parks_on.clone()),
            false => self.parked.remove(&task),
        };
    }

    /// The store says how a wait ended.
    fn note(
        &mut self,
        ledger: &Ledger,
        task: TaskKey,
        id: &WaitId,
        outcome: &WaitOutcome,
    ) -> Result<(), String> {
        if id.kind == WaitKind::Limits {
            return Ok(());
        }
        if let WaitOutcome::Refused(why) = outcome {
            return match why.contains("earlier entry") || why.contains("is over") {
                true => Err(format!("task {}: {id} is refused: {why}", task.0)),
                false => Ok(()),
            };
        }
        let before = self.outcomes.insert((task, id.clone()), outcome.clone());
        if let Some(before) = before.filter(|before| before != outcome) {
            return Err(format!("task {}: {id} was {before:?} and is {outcome:?}", task.0));
        }
        match (id.kind, outcome) {
            (WaitKind::Signal, WaitOutcome::Value(brought)) => {
                let brought = brought.clone().ok_or("a signal has lost what it brings")?;
                self.take(ledger, task, id, brought)
            }
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        ledger: &Ledger,
        task: TaskKey,
        id: &WaitId,
        brought: Brought,
    ) -> Result<(), String> {
        let words = String::from_utf8_lossy(&brought).into_owned();
        let by = (task, id.clone());
        let before = self.taken.insert(brought.clone(), by.clone());
        if let Some((other, which)) = before.filter(|before| *before != by) {
            let (task, other) = (task.0, other.0);
            return Err(format!("signal {words} is received by {which} of {other} and {task}"));
        }
        let run = ledger.addressed_by(task).ok_or("a task that does not exist receives")?;
        let sent = self.sent.get(&(run, id.name.clone()));
        let at = sent.and_then(|sent| sent.iter().position(|other| *other == brought));
        let (Some(sent), Some(at)) = (sent, at) else {
            return Err(format!("signal {words} was not sent to run {run} as {}", id.name));
        };
        let is_first = sent[..at].iter().all(|earlier| self.taken.contains_key(earlier));
        match is_first || !ledger.is_only_receiver(run, &id.name) {
            true => Ok(()),
            false => Err(format!("signal {words} overtakes another in run {run}")),
        }
    }

    /// A body does a step: nobody has before.
    pub(super) fn does(&self, ledger: &Ledger, task: TaskKey, id: &WaitId) -> Result<(), String> {
        let is_over = ledger.life(task).is_none_or(|life| life.state.kind().is_terminal());
        match self.outcomes.get(&(task, id.clone())).filter(|_| !is_over) {
            Some(value) => Err(format!("task {} does {id} again, which is {value:?}", task.0)),
            None => Ok(()),
        }
    }

    /// A body is told how a wait ended: as the store has said.
    pub(super) fn gets(
        &self,
        ledger: &Ledger,
        task: TaskKey,
        id: &WaitId,
        outcome: &WaitOutcome,
    ) -> Result<(), String> {
        let is_over = ledger.life(task).is_none_or(|life| life.state.kind().is_terminal());
        let brings = matches!(outcome, WaitOutcome::Value(_) | WaitOutcome::Ended(_));
        let said = self.outcomes.get(&(task, id.clone()));
        match is_over || !brings || said == Some(outcome) {
            true => Ok(()),
            false => Err(format!("task {} is told {outcome:?} of {id}, not {said:?}", task.0)),
        }
    }

    /// What was sent to a run under a name and has been received by nobody, as far as is known.
    fn untaken(&self, run: RunId, name: &Arc<str>) -> Option<&Brought> {
        let sent = self.sent.get(&(run, name.clone()))?;
        sent.iter().find(|brought| !self.taken.contains_key(*brought))
    }

    /// Who waits, in memory like these or as a row, for a signal that is there.
    pub(super) fn ignored(&self, ledger: &Ledger, mut all: Vec<(TaskKey, WaitId)>) -> Vec<Ignored> {
        let parked = self.parked.iter().filter(|(task, _)| {
            ledger.life(**task).is_some_and(|life| life.state.kind() == Kind::Parked)
        });
        all.extend(parked.flat_map(|(task, on)| on.iter().map(|id| (*task, id.clone()))));
        let signals = all.iter().filter(|(_, id)| id.kind == WaitKind::Signal);
        let ignored = signals.filter_map(|(task, id)| {
            let run = ledger.addressed_by(*task)?;
            // Another that does not wait may have received it without anybody having been told.
            let mut others = ledger.receivers(run, &id.name);
            if others.any(|other| !all.iter().any(|(waiting, _)| *waiting == other)) {
                return None;
            }
            Some((*task, id.clone(), self.untaken(run, &id.name)?.clone()))
        });
        ignored.collect()
    }
}

/// A task that waits for a signal that is there.
pub(super) type Ignored = (TaskKey, WaitId, Brought);

fn is_closed(change: &Change, id: &WaitId) -> bool {
    change.waits.iter().any(|op| matches!(op, WaitOp::Close(closed) if closed == id))
}

/// Whether a task begins anew after this.
fn is_anew(event: &Event) -> bool {
    matches!(event, Event::Fail { .. } | Event::Snooze { .. })
}

/// Whether it stays with its task when that begins anew.
fn outlives(id: &WaitId, outcome: &WaitOutcome) -> bool {
    match id.kind {
        WaitKind::Step | WaitKind::Signal => matches!(outcome, WaitOutcome::Value(_)),
        WaitKind::Child => matches!(outcome, WaitOutcome::Ended(_)),
        _ => false,
    }
}
