//! What is asked of the world: submits, cancels, pauses, and lies.

use super::ledger::{Drawn, now_or_never};
use super::process::Name;
use super::script::{Items, Temper};
use super::world::{Asked, Checked, World};
use std::fmt;
use std::sync::Arc;
use tidegate_core::dispatcher::{End, Input, Said, SubmitError, Ticket};
use tidegate_core::lifecycle::{Event, Fence, WorkerId};
use tidegate_core::store::{
    Applied, Bytes, Change, Claimed, Granted, NewRun, Parent, Refusal, Request, Store, StoreError,
    Submitted, Turn,
};
use tidegate_core::{RunId, TaskExecutionId};

impl World {
    pub(super) fn ask(&mut self, at: usize, asked: Asked) -> Checked {
        self.tickets += 1;
        let (ticket, process) = (self.tickets, &mut self.processes[at]);
        self.asked.insert(ticket, (process.id, asked.clone()));
        self.trace.add(format_args!("w{} is asked: {}", process.id.0, Words(&asked)));
        process.dispatcher.handle(match asked {
            Asked::Submit(run) | Asked::Items(_, run) => Input::Submit(run, Ticket(ticket)),
            Asked::Request(request, _) => Input::Request(request, Ticket(ticket)),
        });
        self.stir(at)
    }

    /// Somebody who is no worker turns to the store.
    pub(super) fn ask_outside(&mut self, asked: Vec<Asked>) -> Checked {
        let mut turn = Turn::new(self.turn_id(), self.now);
        for asked in &asked {
            self.trace.add(format_args!("somebody asks: {}", Words(asked)));
            match asked.clone() {
                Asked::Submit(run) | Asked::Items(_, run) => turn.submits.push(run),
                Asked::Request(request, _) => turn.requests.push(request),
            }
        }
        let turned = self.take(Arc::new(turn))?;
        let (mut submits, mut requests) = (turned.submits.into_iter(), turned.requests.into_iter());
        for asked in asked {
            self.tickets += 1;
            let ticket = self.tickets;
            self.asked.insert(ticket, (WorkerId(0), asked.clone()));
            match asked {
                Asked::Submit(_) | Asked::Items(..) => {
                    let submitted = submits.next().expect("every submit is answered");
                    self.submitted(ticket, submitted.map_err(SubmitError::Refused))?;
                }
                Asked::Request(..) => {
                    let granted = requests.next().expect("every request is answered");
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
            Some((worker, Asked::Items(name, new))) => {
                return self.items_begun(worker, name, &new, answer);
            }
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

    /// A body asks for a run of its items.
    pub(super) fn begin_items(&mut self, at: usize, name: Name) -> Checked {
        let process = &mut self.processes[at];
        let Claimed { run, index, .. } = *process.entries[&name].claimed;
        let Temper::FanOut(_, items) = self.ledger.runs[&run].tempers[index.as_usize()].clone()
        else {
            return Err(format!("task {} has no items", name.0.0));
        };
        let new = items_of(TaskExecutionId::of(run, index), name, &items);
        let parent = Some((run, name.0));
        let drawn = Drawn::new(new.plan.clone(), items.tempers.clone(), None, parent);
        self.ledger.expect(new.id, drawn);
        // Who closes takes no submits.
        if process.closing.is_some() {
            process.begun(name, Err(SubmitError::Refused(Refusal::ParentGone)));
            return self.stir(at);
        }
        self.summary.fan_outs += 1;
        self.ask(at, Asked::Items(name, new))
    }

    fn items_begun(
        &mut self,
        worker: WorkerId,
        name: Name,
        new: &NewRun,
        answer: Result<Submitted, SubmitError>,
    ) -> Checked {
        let view = now_or_never(self.store.run(new.id))?;
        match &answer {
            Ok(submitted) => {
                self.summary.found_items += u64::from(submitted.existing);
                let view = view.as_ref().ok_or_else(|| format!("run {} is not there", new.id))?;
                let above = self.ledger.runs[&new.id].parent.map(|(above, _)| above);
                let above = above.ok_or("items have a parent")?;
                let above = now_or_never(self.store.run(above))?.ok_or("a parent is there")?;
                let (own, above) = (&view.run, &above.run);
                if (&own.queue, own.priority) != (&above.queue, above.priority) {
                    return Err(format!("run {} is not where its parent's is", new.id));
                }
                if (submitted.id, submitted.key) != (own.id, own.key) || own.plan != new.plan {
                    return Err(format!("run {} is another than was asked for", new.id));
                }
                self.ledger.runs.entry(new.id).and_modify(|drawn| drawn.acknowledged = true);
            }
            Err(SubmitError::Refused(Refusal::ParentGone)) => self.summary.orphans += 1,
            Err(SubmitError::Refused(refusal)) => return Err(format!("refused: {refusal}")),
            Err(_) => {}
        }
        let Some(process) = self.processes.iter_mut().find(|process| process.id == worker) else {
            return Ok(());
        };
        // Whoever finds a run looks at it at once: nobody will tell of an end that was before.
        if let (Ok(Submitted { existing: true, .. }), Some(view)) = (&answer, view) {
            process.ended.extend(view.run.ended.map(|(outcome, _)| (new.id, outcome)));
        }
        process.begun(name, answer);
        Ok(())
    }

    pub(super) fn granted(&mut self, ticket: u64, answer: Result<Granted, StoreError>) -> Checked {
        let Some((_, Asked::Request(request, was_known))) = self.asked.remove(&ticket) else {
            return Err(format!("request {ticket} is answered twice, or was never made"));
        };
        let Ok(granted) = answer else { return Ok(()) };
        match (&request, granted) {
            (Request::Cancel(id), Granted::Yes) => {
                self.summary.cancels += 1;
                let drawn = self.ledger.runs.get_mut(id).expect("what is cancelled was drawn");
                drawn.cancelled = true;
                match self.ledger.open.contains(id) {
                    true => Err(format!("run {id} was cancelled and is open")),
                    false => Ok(()),
                }
            }
            (Request::Pause(_), Granted::Yes) => {
                self.summary.pauses += 1;
                Ok(())
            }
            (Request::Cancel(id), Granted::Unknown) if was_known => {
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
        let mut turn = Turn::new(self.turn_id(), self.now);
        turn.changes.push(Change::new(task, Event::Succeed { fence }));
        if let Some((execution, items)) = self.ledger.fan_out(task) {
            turn.submits.push(items_of(execution, (task, fence), &items));
        }
        let turned = self.take(Arc::new(turn))?;
        if turned.changes.contains(&Applied::Yes) || turned.submits.iter().any(Result::is_ok) {
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
fn items_of(execution: TaskExecutionId, (task, fence): Name, items: &Items) -> NewRun {
    NewRun {
        id: RunId::of_items(execution),
        plan: items.plan.clone(),
        // It has its parent's queue and priority, whatever is asked for.
        queue: "elsewhere".into(),
        priority: 7,
        key: None,
        not_before: None,
        input: None,
        parent: Some(Parent { task, fence }),
        items: items.tempers.iter().map(|_| Bytes::from(&b"an item"[..])).collect(),
    }
}

/// What is asked, in words.
struct Words<'a>(&'a Asked);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Asked::Request(request, _) => write!(f, "{request:?}"),
            Asked::Items((task, fence), run) => {
                let (id, count) = (run.id, run.plan.task_count());
                write!(f, "{count} items {id} of {}#{}", task.0, fence.0)
            }
            Asked::Submit(run) => {
                let (id, workflow) = (run.id, run.plan.workflow());
                let (queue, policy) = (&run.queue, run.plan.on_failure());
                write!(f, "{workflow} {id} in {queue}, {policy}, key {:?}", run.key)
            }
        }
    }
}
