//! What must hold of the store, checked against what was seen of it before.

use super::script::{Items, Temper};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_core::graph::{RunOutcome, TaskIndex};
use tidegate_core::lifecycle::{Event, Kind, Life, Reason, SUSPECT_FROM, State, WorkerId};
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::Plan;
use tidegate_core::store::{
    Applied, Request, RunKey, RunView, RunsPage, Scope, Store, StoreError, TaskKey, TaskView, Turn,
    Turned,
};
use tidegate_core::{RunId, TaskExecutionId, Timestamp};

/// Deaths that are not its own and not kept from it, which a task needs to be taken for their cause:
/// it runs beside suspects only while it is none itself.
const FOREIGN_DEATHS_MIN: u32 = (tidegate_core::lifecycle::RECOVERIES_MAX - SUSPECT_FROM) as u32;

/// A run that was submitted.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) plan: Arc<Plan>,
    pub(super) tempers: Vec<Temper>,
    /// How often each body was entered.
    pub(super) entered: Vec<u32>,
    pub(super) not_before: Option<Timestamp>,
    /// Its number, once it was seen.
    pub(super) key: Option<RunKey>,
    /// Whether its submit was answered with yes.
    pub(super) acknowledged: bool,
    /// Whether its submit was answered with no.
    pub(super) refused: bool,
    /// Whether a cancel was answered with yes.
    pub(super) cancelled: bool,
    /// Of items: the task whose items they are.
    pub(super) parent: Option<(RunId, TaskKey)>,
}

impl Drawn {
    pub(super) fn new(
        plan: Arc<Plan>,
        tempers: Vec<Temper>,
        not_before: Option<Timestamp>,
        parent: Option<(RunId, TaskKey)>,
    ) -> Self {
        let (entered, key) = (vec![0; tempers.len()], None);
        let (acknowledged, refused, cancelled) = (false, false, false);
        Drawn { plan, tempers, entered, not_before, key, acknowledged, refused, cancelled, parent }
    }
}

/// A task as it was last seen.
struct Seen {
    life: Life,
    /// Deaths that hit it since it last got on, from outside or by another that was no suspect.
    foreign: u32,
}

/// All that was seen.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) runs: BTreeMap<RunId, Drawn>,
    /// Those that may still change.
    pub(super) open: BTreeSet<RunId>,
    ended: BTreeMap<RunId, RunView>,
    tasks: BTreeMap<TaskKey, Seen>,
    store_is_paused: bool,
    paused_queues: BTreeSet<String>,
    paused_runs: BTreeSet<RunId>,
    /// The latest time that a turn has told: clocks may be apart.
    latest: Option<Timestamp>,
    pub(super) crash_loops: u64,
}

/// Asks the memory store, which answers at once.
pub(super) fn now_or_never<T>(
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, String> {
    let mut answer = std::pin::pin!(answer);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match answer.as_mut().poll(&mut context) {
        std::task::Poll::Ready(answer) => answer.map_err(|error| error.to_string()),
        std::task::Poll::Pending => Err("the memory store does not answer at once".to_owned()),
    }
}

impl Ledger {
    /// A run may be there from now on. Items may have been expected before.
    pub(super) fn expect(&mut self, id: RunId, drawn: Drawn) {
        if let Entry::Vacant(new) = self.runs.entry(id) {
            new.insert(drawn);
            self.open.insert(id);
        }
    }

    pub(super) fn life(&self, task: TaskKey) -> Option<&Life> {
        self.tasks.get(&task).map(|seen| &seen.life)
    }

    pub(super) fn is_suspect(&self, task: TaskKey) -> bool {
        self.life(task).is_some_and(Life::is_suspect)
    }

    /// What this worker owns in the store. Without what is to stop: a claim of which the worker was
    /// not told is then left to the roll call.
    pub(super) fn owned_by(&self, worker: WorkerId) -> impl Iterator<Item = TaskKey> {
        let owned = self.tasks.iter().filter(move |(_, seen)| match seen.life.state {
            State::Running { worker: owner, .. } => owner == worker && seen.life.stopping.is_none(),
            _ => false,
        });
        owned.map(|(task, _)| *task)
    }

    /// What is paused.
    pub(super) fn paused(&self) -> Vec<Scope> {
        let queues = self.paused_queues.iter().cloned().map(Scope::Queue);
        // Items go on with their parent.
        let is_own = |run: &&RunId| self.runs[run].parent.is_none();
        let runs = self.paused_runs.intersection(&self.open).filter(is_own);
        let runs = runs.copied().map(Scope::Run);
        let store = self.store_is_paused.then_some(Scope::Store);
        store.into_iter().chain(queues).chain(runs).collect()
    }

    /// Whether a task of the run computes for ever, or will, and was not told to stop.
    pub(super) fn is_endless(&self, id: RunId) -> bool {
        let drawn = &self.runs[&id];
        let Some(first) = drawn.key else { return false };
        let endless = |(at, temper): (u32, &Temper)| {
            let life = self.life(first.task(TaskIndex::from_u32(at)));
            let is_open = |life: &Life| !life.state.kind().is_terminal();
            let goes_on = life.is_some_and(|life| is_open(life) && life.stopping.is_none());
            goes_on && matches!(temper, Temper::Never)
        };
        (0..).zip(&drawn.tempers).any(endless)
    }

    /// Tasks of which an older claim than the last is known, or which are over, for lies about them.
    pub(super) fn claimed_tasks(&self) -> Vec<(TaskKey, Life)> {
        let claimed = self.tasks.iter().filter(|(_, seen)| seen.life.fence.0 >= 1);
        claimed.map(|(key, seen)| (*key, seen.life.clone())).collect()
    }

    /// The items of a task, if it has any.
    pub(super) fn fan_out(&self, task: TaskKey) -> Option<(TaskExecutionId, Arc<Items>)> {
        let of_run = |(id, drawn): (&RunId, &Drawn)| {
            let at = task.0.checked_sub(drawn.key?.0)?;
            match drawn.tempers.get(usize::try_from(at).ok()?)? {
                Temper::FanOut(_, items) => {
                    let index = TaskIndex::from_u32(u32::try_from(at).ok()?);
                    Some((TaskExecutionId::of(*id, index), items.clone()))
                }
                _ => None,
            }
        };
        self.runs.iter().find_map(of_run)
    }

    /// A process dies, from outside or by one of its tasks: who computes there is hit.
    pub(super) fn death(&mut self, worker: WorkerId, killer: Option<TaskKey>) {
        let is_known_killer = killer.is_some_and(|killer| self.is_suspect(killer));
        for (&task, seen) in &mut self.tasks {
            let owner = match seen.life.state {
                State::Running { worker, .. } => Some(worker),
                _ => None,
            };
            let is_hit = owner == Some(worker) && seen.life.state.kind() == Kind::Active;
            if is_hit && killer != Some(task) && !is_known_killer {
                seen.foreign += 1;
            }
        }
    }

    /// Looks at everything that may have changed in a turn.
    pub(super) fn look(
        &mut self,
        store: &MemoryStore,
        turn: &Turn,
        turned: &Turned,
    ) -> Result<(), String> {
        self.latest = self.latest.max(Some(turn.now));
        for request in &turn.requests {
            self.note(request);
        }
        for (change, applied) in turn.changes.iter().zip(&turned.changes) {
            let Applied::Lost { actual } = applied else { continue };
            let task = change.task.0;
            let life = actual.as_ref().ok_or_else(|| format!("task {task} does not exist"))?;
            let is_right = change.events.iter().find_map(Event::shown_fence) == Some(life.fence);
            let is_over = life.state.kind().is_terminal() || life.stopping.is_some();
            if is_right && !is_over {
                let events = &change.events;
                return Err(format!("task {task} is wrongly lost: {events:?} of {:?}", life.state));
            }
        }
        let open: Vec<RunId> = self.open.iter().copied().collect();
        for id in open {
            match now_or_never(store.run(id))? {
                Some(view) => self.look_at_run(id, turn, view)?,
                None if self.runs[&id].acknowledged => {
                    return Err(format!("run {id} was acknowledged and does not exist"));
                }
                None => {}
            }
        }
        self.look_at_items()
    }

    /// What holds between a task and its items, when all of a turn was looked at.
    fn look_at_items(&self) -> Result<(), String> {
        for id in &self.open {
            let drawn = &self.runs[id];
            let (Some(_), Some((above, parent))) = (drawn.key, drawn.parent) else { continue };
            let kind = self.life(parent).map(|life| life.state.kind());
            if kind.is_none_or(Kind::is_terminal) {
                return Err(format!("run {id} is open and its parent {} is {kind:?}", parent.0));
            }
            if self.paused_runs.contains(id) != self.paused_runs.contains(&above) {
                return Err(format!("run {id} is paused without its parent's, or not with it"));
            }
        }
        Ok(())
    }

    /// Whether a run of items that is seen for the first time was begun by who runs its parent.
    fn look_at_birth(&self, id: RunId, turn: &Turn) -> Result<(), String> {
        let drawn = &self.runs[&id];
        let (None, Some((_, parent))) = (drawn.key, drawn.parent) else { return Ok(()) };
        // Its parent's run may not have been looked at: then its fence is that of before, or one
        // less if it was claimed in this turn, in which it cannot have begun anything.
        let fence = self.life(parent).map(|life| life.fence);
        let begun = turn.submits.iter().find(|new| new.id == id).and_then(|new| new.parent);
        match begun.is_some_and(|begun| begun.task == parent && Some(begun.fence) == fence) {
            true => Ok(()),
            false => Err(format!("run {id} was begun by {begun:?}, its parent is at {fence:?}")),
        }
    }

    fn note(&mut self, request: &Request) {
        match request {
            Request::Pause(Scope::Store) => self.store_is_paused = true,
            Request::Unpause(Scope::Store) => self.store_is_paused = false,
            Request::Pause(Scope::Queue(queue)) => drop(self.paused_queues.insert(queue.clone())),
            Request::Unpause(Scope::Queue(queue)) => drop(self.paused_queues.remove(queue)),
            _ => {}
        }
    }

    fn look_at_run(&mut self, id: RunId, turn: &Turn, view: RunView) -> Result<(), String> {
        if self.runs[&id].refused {
            return Err(format!("run {id} was refused and exists"));
        }
        self.look_at_birth(id, turn)?;
        self.runs.entry(id).and_modify(|drawn| drawn.key = Some(view.run.key));
        match view.run.paused_at {
            Some(_) => self.paused_runs.insert(id),
            None => self.paused_runs.remove(&id),
        };
        let queue_is_paused = self.paused_queues.contains(&*view.run.queue);
        let is_paused = self.store_is_paused || queue_is_paused || view.run.paused_at.is_some();
        for (at, task) in (0..).zip(&view.tasks) {
            let index = TaskIndex::from_u32(at);
            let checked = self.look_at_task(id, index, turn, task, is_paused);
            checked.map_err(|wrong| format!("task {} ({at} of run {id}): {wrong}", task.key.0))?;
        }
        let over = view.tasks.iter().all(|task| task.life.state.kind().is_terminal());
        if over != view.run.ended.is_some() {
            return Err(format!("run {id} has ended without its tasks, or they without it"));
        }
        let outcome = view.run.ended.map(|(outcome, _)| outcome);
        if self.runs[&id].cancelled && outcome != Some(RunOutcome::Cancelled) {
            return Err(format!("run {id} was cancelled and stands at {outcome:?}"));
        }
        if over {
            self.open.remove(&id);
            self.ended.insert(id, view);
        }
        Ok(())
    }

    fn look_at_task(
        &mut self,
        id: RunId,
        index: TaskIndex,
        turn: &Turn,
        task: &TaskView,
        is_paused: bool,
    ) -> Result<(), String> {
        let drawn = &self.runs[&id];
        let life = &task.life;
        let new = || Seen { life: Life::blocked(), foreign: 0 };
        let seen = self.tasks.entry(task.key).or_insert_with(new);
        let was = std::mem::replace(&mut seen.life, life.clone());
        if was == *life {
            return Ok(());
        }
        if was.state.kind().is_terminal() {
            return Err(format!("it had ended as {:?} and is {:?}", was.state, life.state));
        }
        if life.fence < was.fence || life.fence.0 > was.fence.0 + 1 {
            return Err(format!("its fence went from {} to {}", was.fence.0, life.fence.0));
        }
        if life.entries < was.entries || life.attempt < was.attempt {
            return Err("it has fewer entries or attempts than before".to_owned());
        }
        if life.attempt > drawn.plan.task(index).rules.retries + 1 {
            return Err(format!("it is in attempt {}", life.attempt));
        }
        if life.fence > was.fence {
            claimed(life, turn, drawn, is_paused, self.latest)?;
        }
        if was.recoveries > 0 && life.recoveries == 0 {
            seen.foreign = 0;
        }
        let temper = &drawn.tempers[index.as_usize()];
        match life.state {
            State::Failed(Reason::CrashLoop) => {
                self.crash_loops += 1;
                let is_guilty = temper.is_poison();
                if !is_guilty && seen.foreign < FOREIGN_DEATHS_MIN {
                    let foreign = seen.foreign;
                    return Err(format!("it is innocent ({foreign} deaths from outside)"));
                }
            }
            State::Succeeded if temper.is_poison() || matches!(temper, Temper::Never) => {
                return Err("it cannot succeed and has".to_owned());
            }
            State::Succeeded if matches!(temper, Temper::FanOut(..)) => {
                let items = RunId::of_items(TaskExecutionId::of(id, index));
                let ended = self.ended.get(&items).and_then(|view| view.run.ended);
                if ended.is_none_or(|(outcome, _)| outcome != RunOutcome::Succeeded) {
                    return Err(format!("it has succeeded and its items have come to {ended:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What does not happen at every step.
    pub(super) fn audit(&self, store: &MemoryStore) -> Result<(), String> {
        let findings = now_or_never(store.audit())?;
        if !findings.is_empty() {
            let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            return Err(format!("the store contradicts itself: {}", findings.join("; ")));
        }
        for (&id, ended) in &self.ended {
            if now_or_never(store.run(id))?.as_ref() != Some(ended) {
                return Err(format!("run {id} has changed after its end"));
            }
        }
        let page = RunsPage { limit: u32::MAX, ..RunsPage::default() };
        let mut keys = BTreeSet::new();
        for run in now_or_never(store.runs(page))? {
            if self.runs.get(&run.id).is_none_or(|drawn| drawn.refused) {
                return Err(format!("run {} was never submitted, or was refused", run.id));
            }
            if let Some(key) = run.idempotency_key
                && !keys.insert((run.queue.clone(), run.plan.workflow().to_owned(), key.clone()))
            {
                return Err(format!("two runs have the key {key}"));
            }
        }
        Ok(())
    }

    /// What holds when everything has ended.
    pub(super) fn finish(&self, store: &MemoryStore) -> Result<(), String> {
        self.audit(store)?;
        let mut ends: BTreeMap<(i64, u32), u32> = BTreeMap::new();
        for record in now_or_never(store.records(None, 0, u32::MAX))? {
            let is_end = Kind::ALL.iter().any(|kind| kind.as_str() == record.what.as_str());
            if is_end && record.what.as_str() != Kind::Parked.as_str() {
                *ends.entry((record.run.0, record.task.as_u32())).or_default() += 1;
            }
        }
        let tasks: usize = self.ended.values().map(|view| view.tasks.len()).sum();
        match ends.len() == tasks && ends.values().all(|&count| count == 1) {
            true => Ok(()),
            false => Err("a task that has ended has no record of it, or two".to_owned()),
        }
    }

    /// The runs that have not ended, in words.
    pub(super) fn stranded(&self, store: &MemoryStore) -> Result<Vec<String>, String> {
        let mut stranded = Vec::new();
        for &id in &self.open {
            let Some(view) = now_or_never(store.run(id))? else { continue };
            for task in view.tasks.iter().filter(|task| !task.life.state.kind().is_terminal()) {
                stranded.push(format!("task {} of run {id} is {:?}", task.key.0, task.life));
            }
        }
        Ok(stranded)
    }

    pub(super) fn ended_count(&self) -> (usize, usize) {
        (self.ended.len(), self.ended.values().map(|view| view.tasks.len()).sum())
    }
}

/// Whether a task may have been claimed in this turn. What was claimed before a pause may begin in
/// it; nothing is claimed in a turn at whose end the run, its queue or the store is paused. Nor is
/// anything claimed before somebody's clock has reached its start time.
fn claimed(
    life: &Life,
    turn: &Turn,
    drawn: &Drawn,
    is_paused: bool,
    latest: Option<Timestamp>,
) -> Result<(), String> {
    let owner = match life.state {
        State::Running { worker, .. } => Some(worker),
        _ => None,
    };
    if owner.is_none() || owner != turn.worker {
        return Err(format!("it was claimed by {:?} in a turn of {:?}", owner, turn.worker));
    }
    if is_paused {
        return Err("it was claimed while it was paused".to_owned());
    }
    match drawn.not_before > latest {
        true => Err("it was claimed before its time".to_owned()),
        false => Ok(()),
    }
}
