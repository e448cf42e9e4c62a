//! What is asked of the world: submits, cancels, pauses, and lies.

use super::ledger::now_or_never;
use super::process::Name;
use super::script::Birth;
use super::world::{Asked, Checked, World};
use std::fmt;
use std::sync::Arc;
use tidegate_core::dispatcher::{End, Input, Said, SubmitError, Ticket};
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Event, Fence, WorkerId};
use tidegate_core::store::{
    Applied, Bytes, Change, NewRun, Operation, OperationOutcome, Parent, Refusal, Request, Store,
    StoreError, Submitted,
};
use tidegate_core::wait::{WaitId, WaitKind, WaitOp};
use tidegate_core::{RunId, TaskExecutionId};

impl World {
    pub(super) fn ask(&mut self, at: usize, asked: Asked) -> Checked {
        self.tickets += 1;
        let (ticket, process) = (self.tickets, &mut self.processes[at]);
        self.asked.insert(ticket, (process.id, asked.clone()));
        self.trace.add(format_args!("w{} is asked: {}", process.id.0, Words(&asked)));
        process.dispatcher.handle(match asked {
            Asked::Submit(run) => Input::Submit(run, Ticket(ticket)),
            Asked::Operation(operation, _) => Input::Operation(operation, Ticket(ticket)),
        });
        self.stir(at)
    }

    /// Somebody who is no worker turns to the store.
    pub(super) fn ask_outside(&mut self, asked: Vec<Asked>) -> Checked {
        let mut request = Request::new(self.request_id(), self.now);
        for asked in &asked {
            self.trace.add(format_args!("somebody asks: {}", Words(asked)));
            match asked.clone() {
                Asked::Submit(run) => request.submits.push(run),
                Asked::Operation(operation, _) => request.operations.push(operation),
            }
        }
        let loses_answer = self.outsiders_err && self.chance.one_in(4);
        let mut reply = self.take(Arc::new(request.clone()))?;
        if loses_answer {
            self.trace.add(format_args!("somebody is not answered, and asks again"));
            reply = self.take(Arc::new(Request { again: true, ..request }))?;
        }
        let (mut submits, mut operations) =
            (reply.submits.into_iter(), reply.operations.into_iter());
        for asked in asked {
            self.tickets += 1;
            let ticket = self.tickets;
            self.asked.insert(ticket, (WorkerId(0), asked.clone()));
            match asked {
                Asked::Submit(_) => {
                    let submitted = submits.next().expect("every submit is answered");
                    self.submitted(ticket, submitted.map_err(SubmitError::Refused))?;
                }
                Asked::Operation(..) => {
                    let granted = operations.next().expect("every operation is answered");
                    self.granted(ticket, Ok(granted))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn submitted(
        &mut self,
        ticket: u64,
        answer: Result<Submitted, SubmitError>,
    ) -> Checked {
        let new = match self.asked.remove(&ticket) {
            Some((_, Asked::Submit(new))) => new,
            _ => return Err(format!("submit {ticket} is answered twice, or was never made")),
        };
        let exists = |id: RunId| Ok::<_, String>(now_or_never(self.store.run(id))?.is_some());
        let own = exists(new.id)?;
        let drawn = self.ledger.runs.get_mut(&new.id).expect("what is submitted was drawn");
        match answer {
            Ok(submitted) if !submitted.existing => {
                drawn.acknowledged = true;
                match own && submitted.id == new.id {
                    true => Ok(()),
                    false => Err(format!("run {} is acknowledged and does not exist", new.id)),
                }
            }
            answer => {
                drawn.refused = true;
                self.ledger.open.remove(&new.id);
                self.summary.existing += u64::from(answer.is_ok());
                if own {
                    return Err(format!("run {} is refused and exists", new.id));
                }
                match answer {
                    Ok(Submitted { id, .. }) if !exists(id)? => {
                        Err(format!("run {id} is named for a key and does not exist"))
                    }
                    Ok(_) | Err(SubmitError::Refused(_)) if new.key.is_none() => {
                        Err(format!("run {} has no key and is refused for it", new.id))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    pub(super) fn granted(
        &mut self,
        ticket: u64,
        answer: Result<OperationOutcome, StoreError>,
    ) -> Checked {
        let Some((_, Asked::Operation(operation, was_known))) = self.asked.remove(&ticket) else {
            return Err(format!("operation {ticket} is answered twice, or was never made"));
        };
        let Ok(granted) = answer else { return Ok(()) };
        match (&operation, granted) {
            (Operation::Cancel(id), OperationOutcome::Yes) => {
                self.summary.cancels += 1;
                let drawn = self.ledger.runs.get_mut(id).expect("what is cancelled was drawn");
                drawn.cancelled = true;
                match self.ledger.open.contains(id) {
                    true => Err(format!("run {id} was cancelled and is open")),
                    false => Ok(()),
                }
            }
            (Operation::Signal(_), OperationOutcome::Yes) => {
                self.summary.signals += 1;
                Ok(())
            }
            (Operation::Resize(_), OperationOutcome::Yes) => {
                self.summary.resizes += 1;
                Ok(())
            }
            (Operation::Pause(_), OperationOutcome::Yes) => {
                self.summary.pauses += 1;
                Ok(())
            }
            (Operation::Cancel(id), OperationOutcome::Unknown) if was_known => {
                Err(format!("run {id} was acknowledged and is unknown"))
            }
            _ => Ok(()),
        }
    }

    // ---------------------------------------------------------------------------------- lies --

    /// Somebody shows a fence of the past, or speaks of what is over.
    pub(super) fn lie(&mut self) -> Checked {
        let tasks = self.ledger.claimed_tasks();
        let Some((task, life)) = self.chance.pick(&tasks).cloned() else { return Ok(()) };
        let is_over = life.state.kind().is_terminal();
        let fence = if is_over { life.fence } else { Fence(life.fence.0 - 1) };
        self.summary.lies += 1;
        self.trace.add(format_args!("somebody says of {} that {} succeeds", task.0, fence.0));
        let index = self.ledger.place(task).map_or(TaskIndex::from_u32(0), |(_, index)| index);
        let mut request = Request::new(self.request_id(), self.now);
        request.changes.push(Change::new(task, index, Event::Succeed { fence }));
        let limits = WaitOp::Retake(1);
        request.changes.push(Change { waits: vec![limits], ..Change::none(task, index, fence) });
        if let Some((execution, items)) = self.ledger.fan_out(task) {
            request.submits.push(items_of(execution, (task, fence), &items));
        }
        let reply = self.take(Arc::new(request))?;
        let is_orphan = |refused: &&Result<_, _>| **refused == Err(Refusal::ParentGone);
        self.summary.orphans += reply.submits.iter().filter(is_orphan).count() as u64;
        if reply.changes.contains(&Applied::Yes) || reply.submits.iter().any(Result::is_ok) {
            return Err(format!("task {} believes a claim of the past", task.0));
        }
        // The same, said to whoever has the task.
        for process in &mut self.processes {
            let before = process.dispatcher.readings();
            let said = Said::Ends(End::Succeeded { output: None, inserts: None });
            let fence = Fence(life.fence.0 - 1);
            process.dispatcher.handle(Input::Said { task, fence, said });
            if process.dispatcher.readings() != before {
                return Err(format!("w{} believes a claim of the past", process.id.0));
            }
        }
        Ok(())
    }
}

/// The run of the items of a task, as this claim of it asks for it.
fn items_of(execution: TaskExecutionId, (task, fence): Name, items: &Birth) -> NewRun {
    NewRun {
        priority: 7,
        parent: Some(Parent::new(task, fence, WaitId::new(WaitKind::Child, "items", 0))),
        items: items.tempers.iter().map(|_| Bytes::from(&b"an item"[..])).collect(),
        keys: items.keys.clone(),
        // It has its parent's queue and priority, whatever is asked for.
        ..NewRun::new(RunId::of_items(execution), items.plan.clone(), "elsewhere".into())
    }
}

/// What is asked, in words.
struct Words<'a>(&'a Asked);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Asked::Operation(operation, _) => write!(f, "{operation:?}"),
            Asked::Submit(run) => {
                let (id, workflow) = (run.id, run.plan.workflow());
                let (queue, policy) = (&run.queue, run.plan.on_failure());
                write!(f, "{workflow} {id} in {queue}, {policy}, key {:?}", run.key)
            }
        }
    }
}
