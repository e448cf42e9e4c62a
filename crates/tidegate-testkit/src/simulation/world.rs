//! The world: a store, its worker processes, and everything that can happen to them.

use super::bounds::Bounds;
use super::chance::Chance;
use super::ledger::{Drawn, Ledger, Origin, now_or_never};
use super::post::{Ignored, Post};
use super::process::{Entry, Name, News, Process, Stage, Stepped};
use super::trace::{ShortChange, Trace};
use super::{Options, Summary};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tidegate_core::dispatcher::{End, Input, Said, Ticket, Todo};
use tidegate_core::lifecycle::{Fence, Kind, WorkerId};
use tidegate_core::limit::LimitKey;
use tidegate_core::memory::MemoryStore;
use tidegate_core::store::{
    Applied, Claimed, Ended, NewRun, Operation, Reply, Request, RequestId, Store, StoreError,
};
use tidegate_core::wait::{WaitId, WaitKind, WaitOutcome, Waiting};
use tidegate_core::{RunId, Timestamp};

/// What holds, or what does not, in words.
pub(super) type Checked = Result<(), String>;

/// A store, processes, and what is known of them.
pub(super) struct World {
    pub(super) chance: Chance,
    pub(super) now: Timestamp,
    pub(super) store: MemoryStore,
    pub(super) processes: Vec<Process>,
    pub(super) ledger: Ledger,
    pub(super) post: Post,
    pub(super) bounds: Bounds,
    /// Whether who is no worker loses answers.
    pub(super) outsiders_err: bool,
    /// What was asked and not answered, by whom.
    pub(super) asked: BTreeMap<u64, (WorkerId, Asked)>,
    /// Submits with a key, which whoever got no answer tries again.
    pub(super) again: Vec<NewRun>,
    pub(super) trace: Trace,
    pub(super) summary: Summary,
    pub(super) tickets: u64,
}

/// What somebody waits for the answer to.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "submits are what most of them are")]
pub(super) enum Asked {
    Submit(NewRun),
    /// And whether the run it is about was acknowledged by then.
    Operation(Operation, bool),
}

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    Fails,
    LosesAnswer,
    LosesQuestion,
}

#[derive(Debug)]
struct AsDrawn;

impl fmt::Display for AsDrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("chance wants it so")
    }
}

impl std::error::Error for AsDrawn {}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        World {
            chance: Chance::new(seed),
            now: Timestamp::from_micros(1_800_000_000_000_000),
            store: options.loading.open_store(seed),
            processes: Vec::new(),
            ledger: Ledger::default(),
            post: Post::default(),
            bounds: Bounds::default(),
            outsiders_err: false,
            asked: BTreeMap::new(),
            again: Vec::new(),
            trace: Trace::new(options.keeps_trace),
            summary: Summary::default(),
            tickets: 0,
        }
    }

    pub(super) fn request_id(&mut self) -> RequestId {
        RequestId(self.chance.number() >> 1 | 1)
    }

    /// The store takes a request, and everything is looked at.
    pub(super) fn take(&mut self, request: Arc<Request>) -> Result<Reply, String> {
        self.summary.requests += 1;
        self.summary.repeated_requests += u64::from(request.again);
        let reply = now_or_never(self.store.request(request.clone()))?;
        self.ledger.look(&self.store, &request, &reply)?;
        self.post.look(&self.ledger, &request, &reply)?;
        self.bounds.look(&self.store, &self.ledger, &request, &reply)?;
        self.bounds.believed(self.believed())?;
        let is_new = |claimed: &&Claimed| !self.ledger.is_awaited(claimed.run);
        let (new, room) =
            (reply.claimed.iter().filter(is_new).count(), request.claim.room as usize);
        if room == 0 {
            self.summary.awaited += reply.claimed.len() as u64;
        }
        if new > room {
            return Err(format!(
                "{new} tasks are claimed that nobody waits for, with room for {room}"
            ));
        }
        Ok(reply)
    }

    /// What bodies believe to hold of limits, by a claim that holds.
    fn believed(&self) -> impl Iterator<Item = (LimitKey, u32)> {
        let entries = self.processes.iter().flat_map(|process| &process.entries);
        let believing = entries.filter(|((task, fence), entry)| {
            let life = self.ledger.life(*task);
            let is_its = life.is_some_and(|life| life.fence == *fence && life.owner().is_some());
            is_its && entry.believes()
        });
        believing.flat_map(|((task, _), _)| self.ledger.uses_of(*task))
    }

    /// What does not happen at every step.
    pub(super) fn audit(&mut self) -> Checked {
        self.ledger.audit(&self.store, &self.bounds)
    }

    /// Who waits for a signal that is there, as far as is known. It may be under way.
    pub(super) fn ignored(&self) -> Vec<Ignored> {
        let entries = self.processes.iter().flat_map(|process| &process.entries);
        let waiting = entries.filter(|(_, entry)| entry.stage == Stage::Awaits && !entry.dropping);
        let waiting = waiting.flat_map(|((task, _), entry)| {
            let open = entry.open.as_ref().expect("who waits has something to wait for");
            open.signals(&entry.journal).map(|id| (*task, id.clone()))
        });
        self.post.ignored(&self.ledger, waiting.collect())
    }

    // ------------------------------------------------------------------------------ the loop --

    /// The loop of a process takes in what bodies have said.
    pub(super) fn deliver(&mut self, at: usize) -> Checked {
        let count = self.chance.between(1, self.processes[at].inbox.len() as u64);
        self.hear(at, count);
        self.stir(at)
    }

    fn hear(&mut self, at: usize, count: u64) {
        let process = &mut self.processes[at];
        for (task, fence, said) in process.inbox.drain(..count as usize) {
            let words = match &said {
                Said::Begins => "begins",
                Said::Defers { .. } => "defers",
                Said::Resumes => "resumes",
                Said::Asks(_) => "asks",
                Said::Ends(End::Succeeded { .. }) => "succeeds",
                Said::Ends(End::Failed { .. }) => "fails",
                Said::Ends(End::Snoozed(_)) => "snoozes",
                Said::Ends(End::Parked { .. }) => "parks",
                Said::Ends(End::Dropped { .. }) => "was dropped",
            };
            let worker = process.id.0;
            self.trace.add(format_args!("w{worker} hears: {}#{} {words}", task.0, fence.0));
            // Every failure stops the rest of its run here: what a worker hands back is claimed again.
            if let (Said::Ends(End::Failed { .. }), Some(&run)) = (&said, process.runs.get(&task)) {
                process.stopped.insert(run);
                process.dispatcher.handle(Input::Stops(run, task));
            }
            process.dispatcher.handle(Input::Said { task, fence, said });
        }
    }

    /// After everything that happens to a process: what is to be done is done.
    pub(super) fn stir(&mut self, at: usize) -> Checked {
        self.processes[at].stirred = true;
        loop {
            let todos: Vec<Todo> = self.processes[at].dispatcher.todos().collect();
            if todos.is_empty() {
                break;
            }
            todos.into_iter().try_for_each(|todo| self.perform(at, todo))?;
        }
        self.processes[at].free_reserve();
        // The real loop hands in at once; that a while passes before must not matter.
        if self.processes[at].request.is_none() && !self.chance.one_in(4) {
            self.hand_in(at);
        }
        Ok(())
    }

    pub(super) fn hand_in(&mut self, at: usize) {
        let (id, now) = (self.request_id(), self.now);
        let process = &mut self.processes[at];
        let Some(request) = process.hand_in(id, now) else { return };
        self.trace.add(format_args!(
            "w{} hands in{}: {:?}, {} submits, {} operations, recover {:?}, roll call {}, \
             claim {}+{}",
            process.id.0,
            if request.again { " again" } else { "" },
            request
                .changes
                .iter()
                .map(|change| (change.task.0, ShortChange(change)))
                .collect::<Vec<_>>(),
            request.submits.len(),
            request.operations.len(),
            request.recover.map(|worker| worker.0),
            request.roll_call,
            request.claim.units,
            request.claim.ahead,
        ));
    }

    /// The request of a process reaches the store.
    pub(super) fn reach(&mut self, at: usize, fault: Fault) -> Checked {
        let (id, handed) = (self.processes[at].id.0, self.processes[at].request.as_ref());
        let request = handed.expect("a request was handed in").request.clone();
        let answer = match fault {
            Fault::None | Fault::LosesAnswer => {
                let reply = self.take(request.clone())?;
                self.compare_tries(at, &request, &reply)?;
                let owed = reply.ended.iter().filter(|ended| self.is_by(&request, ended));
                let owed: Vec<RunId> = owed.map(|ended| ended.id).collect();
                self.processes[at].owed.extend(owed);
                let claimed = reply.claimed.iter().map(|task| (task.key.0, task.life.fence.0));
                self.trace.add(format_args!(
                    "w{id} is at the store: {} yes of {}, claimed {:?}, told {:?}, ended {}, more {}",
                    reply.changes.iter().filter(|change| **change == Applied::Yes).count(),
                    reply.changes.len(),
                    claimed.collect::<Vec<_>>(),
                    reply.told.iter().map(|told| (told.task.0, told.kind)).collect::<Vec<_>>(),
                    reply.ended.len(),
                    reply.more,
                ));
                Ok(reply)
            }
            Fault::Fails => Err(StoreError::Failed(Arc::new(AsDrawn))),
            Fault::LosesQuestion => Err(StoreError::Unknown(Arc::new(AsDrawn))),
        };
        let answer = match fault {
            Fault::LosesAnswer => Err(StoreError::Unknown(Arc::new(AsDrawn))),
            _ => answer,
        };
        if fault != Fault::None {
            self.trace.add(format_args!("w{id} is at the store: {fault:?}"));
        }
        match fault {
            Fault::None => {}
            Fault::Fails => self.summary.failed_requests += 1,
            Fault::LosesAnswer => self.summary.lost_answers += 1,
            Fault::LosesQuestion => self.summary.lost_questions += 1,
        }
        let handed = self.processes[at].request.as_mut();
        handed.expect("it was there before").answer = Some(answer);
        Ok(())
    }

    /// A request that is handed in again comes to what it came to, but for tasks that ended since.
    fn compare_tries(&mut self, at: usize, request: &Request, reply: &Reply) -> Checked {
        let new = Some((request.id, reply.changes.clone()));
        let first = std::mem::replace(&mut self.processes[at].first_try, new);
        let first = first.filter(|(id, _)| *id == request.id).map(|(_, applied)| applied);
        for (before, after) in first.iter().flatten().zip(&reply.changes) {
            if let (Applied::Yes, Applied::Lost { actual: Some(life) }) = (before, after)
                && !life.state.kind().is_terminal()
            {
                return Err(format!("what was written is lost when told again: {life:?}"));
            }
        }
        Ok(())
    }

    /// Whether a run has ended by what this request said or asked, not by the clock or a death.
    fn is_by(&self, request: &Request, ended: &Ended) -> bool {
        let count = self.ledger.runs[&ended.id].plan.task_count() as i64;
        let tasks = ended.key.0..ended.key.0 + count;
        let spoke = request.changes.iter().any(|change| tasks.contains(&change.task.0));
        spoke || request.operations.contains(&Operation::Cancel(ended.id))
    }

    /// A process gets the answer to its request.
    pub(super) fn answer(&mut self, at: usize) -> Checked {
        let process = &mut self.processes[at];
        let handed = process.request.take().expect("a request was handed in");
        let answer = handed.answer.expect("it has reached the store");
        let is_done = answer.is_ok();
        self.trace.add(format_args!("w{} is answered: {}", process.id.0, is_done));
        process.dispatcher.handle(Input::Answered(answer));
        let id = process.id;
        self.stir(at)?;
        let process = self.processes.get(at).filter(|process| process.id == id);
        if let Some(process) = process.filter(|_| is_done) {
            let mut owned = self.ledger.owned_by(id);
            if let Some(stray) = owned.find(|task| !process.dispatcher.owns(*task)) {
                return Err(format!("w{} owns {} and does not know it", id.0, stray.0));
            }
        }
        match process.and_then(|process| process.owed.first()).filter(|_| is_done) {
            Some(run) => Err(format!("w{} has ended run {run} and was never told", id.0)),
            None => Ok(()),
        }
    }

    /// A process looks at its timers. Its messages come first, as in the real loop: or a body would
    /// be over its time before it was known to have begun.
    pub(super) fn ring(&mut self, at: usize) -> Checked {
        let count = self.processes[at].inbox.len() as u64;
        self.hear(at, count);
        let process = &mut self.processes[at];
        let looks = process.ring(self.now, &mut self.chance);
        self.trace.add(format_args!("w{} looks at its timers", process.id.0));
        if looks {
            self.look_for_dead(at)?;
        }
        self.stir(at)
    }

    pub(super) fn look_for_dead(&mut self, at: usize) -> Checked {
        let dead = now_or_never(self.store.dead())?;
        let process = &mut self.processes[at];
        process.dispatcher.handle(Input::Dead(dead));
        Ok(())
    }

    fn perform(&mut self, at: usize, todo: Todo) -> Checked {
        let now = self.now;
        let process = &mut self.processes[at];
        match todo {
            Todo::Start { claimed, asks } => {
                let name = (claimed.key.0, claimed.life.fence.0);
                let kind = claimed.life.state.kind();
                self.trace.add(format_args!("w{} starts {name:?} {kind}", process.id.0));
                if process.closing.as_ref().is_some_and(|closing| closing.has_dropped) {
                    return Err(format!("w{} drops everything and starts {name:?}", process.id.0));
                }
                process.start(claimed, asks)?;
            }
            Todo::Enter(task) => {
                if let Some(entry) = process.entry(task)
                    && entry.stage == Stage::Asks(false)
                {
                    entry.stage = Stage::Asks(true);
                }
            }
            Todo::Resume(task) => {
                if let Some(entry) = process.entry(task)
                    && entry.stage == Stage::WantsOn(false)
                {
                    entry.stage = Stage::WantsOn(true);
                }
            }
            Todo::Drop(task, fence) | Todo::Withdraw(task, fence) => {
                let withdraws = matches!(todo, Todo::Withdraw(..));
                if let Some(entry) = process.entry(task)
                    && entry.claimed.life.fence == fence
                    && !(withdraws && entry.has_begun())
                {
                    entry.dropping = true;
                    self.summary.drops += 1;
                    self.trace.add(format_args!("w{} drops {}", process.id.0, task.0));
                }
            }
            Todo::Submitted(Ticket(ticket), submitted) => self.submitted(ticket, submitted)?,
            Todo::OperationDone(Ticket(ticket), granted) => self.granted(ticket, granted)?,
            Todo::RunEnded(ended) => {
                process.owed.remove(&ended.id);
            }
            Todo::Recorded(..) | Todo::NotStarted(_) => {}
            Todo::Answer(task, fence, answer) => {
                let WaitId { kind, .. } = answer.id;
                self.summary.retaken +=
                    u64::from(kind == WaitKind::Limits && answer.outcome.is_some());
                process.answered((task, fence), answer);
            }
            Todo::AskAgain(task, fence) => {
                self.summary.asked_again += 1;
                process.ask_again((task, fence));
            }
            Todo::WorkerUnknown => Err(format!("the store does not know w{}", process.id.0))?,
            Todo::RetryAfter(pause, _) => process.retry_after(pause, now),
        }
        Ok(())
    }

    // -------------------------------------------------------------------------------- bodies --

    pub(super) fn body(&mut self, at: usize, name: Name) -> Checked {
        let process = &mut self.processes[at];
        let entry = &process.entries[&name];
        let (worker, was) = (process.id.0, entry.stage);
        self.summary.lingering += u64::from(entry.dropping);
        let mut stepped = process.step(name, self.now, &mut self.chance);
        if stepped == Stepped::Enters {
            self.enter(at, name)?;
            stepped = self.processes[at].act(name, self.now, &mut self.chance);
        }
        let stage = self.processes[at].entries.get(&name).map(|entry| entry.stage);
        let task = (name.0.0, name.1.0);
        self.trace.add(format_args!("w{worker} body {task:?}: {was:?} -> {stage:?}, {stepped:?}"));
        for news in std::mem::take(&mut self.processes[at].news) {
            self.learn(news)?;
        }
        match stepped {
            Stepped::Kills => {
                self.summary.poisoned += 1;
                self.kill(at, Some(name))
            }
            _ => self.check_suspects(at),
        }
    }

    /// What a body has done is compared with what is known.
    fn learn(&mut self, news: News) -> Checked {
        match news {
            News::Begets((task, _), new, birth) => {
                self.trace.add(format_args!("{} begets {}", task.0, new.id));
                let wait = new.parent.as_ref().expect("who is begotten has a parent").wait.clone();
                match birth.is_of_items() {
                    true => self.summary.fan_outs += 1,
                    false => self.summary.children += 1,
                }
                let run = self.ledger.run_of(task).ok_or("a task has a run")?;
                let origin = Origin { run, task, wait, apart: birth.apart.is_some() };
                let (plan, tempers, keys) = (new.plan, birth.tempers.clone(), new.keys);
                let drawn = Drawn::new(plan, tempers, keys, None, Some(origin));
                self.ledger.expect(new.id, drawn);
                Ok(())
            }
            News::Does((task, _), id) => {
                self.summary.steps_done += 1;
                self.post.does(&self.ledger, task, &id)
            }
            News::Gets((task, fence), id, outcome) => {
                self.trace.add(format_args!("{}#{} gets {id}: {outcome:?}", task.0, fence.0));
                match (&outcome, id.kind) {
                    (WaitOutcome::Refused(_), _) => self.summary.refused += 1,
                    (WaitOutcome::TimedOut, _) => self.summary.late += 1,
                    (_, WaitKind::Signal) => self.summary.received += 1,
                    _ => {}
                }
                self.post.gets(&self.ledger, task, &id, &outcome)
            }
        }
    }

    /// A body is dropped and waits as a row.
    pub(super) fn park(&mut self, at: usize, name: Name) -> Checked {
        self.summary.parks += 1;
        let worker = self.processes[at].id.0;
        self.trace.add(format_args!("w{worker} body {:?} parks", (name.0.0, name.1.0)));
        self.processes[at].park(name);
        Ok(())
    }

    /// A body is entered: by the claim that holds, and nowhere else.
    fn enter(&mut self, at: usize, name: Name) -> Checked {
        self.summary.entries += 1;
        let (task, fence) = name;
        let life = self.ledger.life(task).ok_or("a task is entered that does not exist")?;
        if life.fence != fence {
            let (own, held) = (fence.0, life.fence.0);
            return Err(format!("task {} is entered by claim {own} and is at {held}", task.0));
        }
        // A task that kills its process must be known to compute from its second claim on.
        if fence > Fence(1) && life.state.kind() == Kind::Claimed {
            return Err(format!("task {} is entered before the store knows", task.0));
        }
        for (other, process) in self.processes.iter().enumerate() {
            let all = (task, Fence(0))..=(task, Fence(u64::MAX));
            let mut twins = process.entries.range(all).filter(|(_, entry)| entry.computes());
            if twins.any(|(twin, _)| (other, *twin) != (at, name)) {
                return Err(format!("task {} is entered while it computes elsewhere", task.0));
            }
        }
        let entry = self.processes[at].entries.get_mut(&name).expect("who enters is there");
        let Claimed { run, index, life, waits, .. } = &*entry.claimed;
        self.summary.found_waits += waits.len() as u64;
        let items = |(wait, _): &&(Waiting, _)| &*wait.id.name == "items";
        self.summary.found_items += waits.iter().filter(items).count() as u64;
        let (index, attempt) = (index.as_usize(), life.attempt);
        let drawn = self.ledger.runs.get_mut(run).ok_or("a task of no run is entered")?;
        entry.acts = drawn.tempers[index].acts(attempt, drawn.entered[index]);
        drawn.entered[index] += 1;
        Ok(())
    }

    pub(super) fn vanish(&mut self, at: usize, name: Name) {
        let worker = self.processes[at].id.0;
        self.trace.add(format_args!("w{worker} body {:?} is gone", (name.0.0, name.1.0)));
        self.processes[at].vanish(name);
    }

    fn check_suspects(&self, at: usize) -> Checked {
        let process = &self.processes[at];
        let computing = process.entries.iter().filter(|(_, entry)| entry.computes());
        let suspects = computing.filter(|((task, _), _)| self.ledger.is_suspect(*task));
        match suspects.count() {
            0 | 1 => Ok(()),
            count => Err(format!("{count} suspects compute at once in w{}", process.id.0)),
        }
    }

    /// What must hold of a process after every step.
    pub(super) fn check_process(&self, at: usize) -> Checked {
        let process = &self.processes[at];
        let complain = |what: String| Err(format!("w{}: {what}", process.id.0));
        let entries = || process.entries.values();
        let held: u32 = entries().map(|entry| entry.holds).sum();
        let (in_use, capacity) = (process.book.in_use(), process.book.capacity());
        if held + process.reserved != in_use || in_use > capacity {
            let reserved = process.reserved;
            return complain(format!("{held} + {reserved} slots of {in_use} of {capacity}"));
        }
        let owned = process.entries.iter().filter(|((task, _), entry)| {
            let run = entry.claimed.run;
            // Of those that may have killed their process any number is taken.
            let counts = !self.ledger.is_awaited(run) && !entry.claimed.life.is_suspect();
            process.dispatcher.owns(*task) && counts && !entry.dropping
        });
        let owned = owned.count() as u32;
        if owned > process.in_memory_max {
            return complain(format!("it has {owned} tasks of {}", process.in_memory_max));
        }
        let readings = process.dispatcher.readings();
        let parts = readings.ahead.saturating_add(readings.deferred);
        if parts.saturating_add(readings.suspects) > readings.owned {
            return complain(format!("its readings do not add up: {readings:?}"));
        }
        if !process.inbox.is_empty() {
            return Ok(());
        }
        let is_idle = |entry: &Entry| entry.is_unbegun() || entry.waits();
        if process.closing.is_some() && entries().any(|entry| is_idle(entry) && !entry.dropping) {
            return complain("it closes and keeps what has not begun, or waits".to_owned());
        }
        if entries().any(|entry| entry.dropping) {
            return Ok(());
        }
        let is_suspect = |claimed: &Claimed| claimed.life.is_suspect();
        let ahead = entries().filter(|entry| entry.is_unbegun() && !is_suspect(&entry.claimed));
        let deferred = entries().filter(|entry| entry.waits());
        let (ahead, deferred) = (ahead.count() as u64, deferred.count() as u64);
        let known = process.entries.len() as u64 + readings.suspects;
        if (readings.ahead, readings.deferred) != (ahead, deferred) || readings.owned < known {
            let entries = process.entries.len();
            return complain(format!("{readings:?}, and {ahead}, {deferred} of {entries}"));
        }
        Ok(())
    }

    // ------------------------------------------------------------------- the life of processes --

    /// A process dies, from outside or by one of its bodies.
    pub(super) fn kill(&mut self, at: usize, killer: Option<Name>) -> Checked {
        let process = &self.processes[at];
        let (id, is_underway) =
            (process.id, process.request.as_ref().is_some_and(|handed| handed.answer.is_none()));
        // Its last request has happened before it died, or never does.
        if is_underway && self.chance.one_in(2) {
            self.reach(at, Fault::None)?;
        }
        if killer.is_none() {
            self.summary.kills += 1;
            self.summary.kills_in_request += u64::from(self.processes[at].request.is_some());
        }
        self.trace.add(format_args!("w{} dies, killed by {killer:?}", id.0));
        self.ledger.death(id, killer.map(|(task, _)| task));
        self.store.kill(id);
        self.bury(at);
        Ok(())
    }

    /// A process is gone, with all it had in memory.
    pub(super) fn bury(&mut self, at: usize) {
        let process = self.processes.remove(at);
        let readings = process.dispatcher.readings();
        self.summary.recoveries += readings.recoveries;
        self.summary.strays += readings.strays;
        self.summary.lost_races += readings.lost_races;
        let gone = self.asked.extract_if(.., |_, (worker, _)| *worker == process.id);
        for (_, (_, asked)) in gone {
            if let Asked::Submit(run) = asked {
                self.summary.unanswered += 1;
                self.again.extend(run.key.is_some().then_some(run));
            }
        }
    }
}
