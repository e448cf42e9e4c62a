//! What must hold of the store, checked against what was seen of it before.

use super::bounds::{self, Bounds};
use super::script::{Birth, Keys, Temper};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::graph::{RunOutcome, TaskIndex};
use tidegate_core::lifecycle::{Fence, Kind, Life, Reason, SUSPECT_FROM, State, WorkerId};
use tidegate_core::limit::LimitKey;
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::Plan;
use tidegate_core::store::{
    Applied, Operation, Parent, Reply, Request, RunKey, RunView, RunsPage, Scope, Store,
    StoreError, TaskKey, TaskView,
};
use tidegate_core::wait::{Awaited, WaitId, WaitOp};
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
    /// The keys of limits that it was submitted with.
    pub(super) keys: Keys,
    /// Of a run that a task has begun: which.
    pub(super) parent: Option<Origin>,
}

/// Whence a run comes that a task has begun.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) run: RunId,
    pub(super) task: TaskKey,
    pub(super) wait: WaitId,
    /// Whether it has another queue and priority than its parent.
    pub(super) apart: bool,
}

impl Drawn {
    pub(super) fn new(
        plan: Arc<Plan>,
        tempers: Vec<Temper>,
        keys: Keys,
        not_before: Option<Timestamp>,
        parent: Option<Origin>,
    ) -> Self {
        let (entered, key) = (vec![0; tempers.len()], None);
        let (acknowledged, refused, cancelled) = (false, false, false);
        Drawn {
            plan,
            tempers,
            entered,
            not_before,
            key,
            acknowledged,
            refused,
            cancelled,
            keys,
            parent,
        }
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
    /// By the number of their first task.
    places: BTreeMap<i64, RunId>,
    /// The run that was begun with a wait, until that is closed.
    children: BTreeMap<(TaskKey, WaitId), RunId>,
    /// Runs that tasks have waited for, besides those that they have begun.
    awaited: BTreeSet<RunId>,
    store_is_paused: bool,
    paused_queues: BTreeSet<String>,
    paused_runs: BTreeSet<RunId>,
    /// The latest time that a request has told: clocks may be apart.
    latest: Option<Timestamp>,
    /// The latest time when a request came that was behind it.
    late: Option<Timestamp>,
    /// What was found since when that clocks which are apart may explain.
    doubts: BTreeMap<String, Timestamp>,
    pub(super) crash_loops: u64,
}

/// So long after clocks were apart limits may be looked at later than they could be.
const CLOCKS_APART: Duration = Duration::from_secs(10);

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

    /// Whether others have told a later time than this.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.latest > Some(now)
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
        // What a task has begun goes on with it, as long as there is one.
        let is_own = |run: &&RunId| match &self.runs[run].parent {
            Some(parent) => {
                self.life(parent.task).is_none_or(|life| life.state.kind().is_terminal())
            }
            None => true,
        };
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

    /// The run of a task, and its place there.
    pub(super) fn place(&self, task: TaskKey) -> Option<(RunId, TaskIndex)> {
        let (first, run) = self.places.range(..=task.0).next_back()?;
        let at = u32::try_from(task.0 - first).ok()?;
        let count = self.runs[run].plan.task_count();
        ((at as usize) < count).then(|| (*run, TaskIndex::from_u32(at)))
    }

    pub(super) fn run_of(&self, task: TaskKey) -> Option<RunId> {
        self.place(task).map(|(run, _)| run)
    }

    /// The items of a task, if it has any.
    pub(super) fn fan_out(&self, task: TaskKey) -> Option<(TaskExecutionId, Arc<Birth>)> {
        let (run, index) = self.place(task)?;
        match &self.runs[&run].tempers[index.as_usize()] {
            Temper::FanOut(_, items) => Some((TaskExecutionId::of(run, index), items.clone())),
            _ => None,
        }
    }

    /// What a task takes of which limits.
    pub(super) fn uses_of(&self, task: TaskKey) -> Vec<(LimitKey, u32)> {
        let Some((run, index)) = self.place(task) else { return Vec::new() };
        let Drawn { plan, keys, .. } = &self.runs[&run];
        let own = keys.iter().find(|(other, _)| *other == index);
        bounds::uses(plan.task(index), own.map_or(&[], |(_, keys)| keys))
    }

    /// What tasks may hold of limits.
    pub(super) fn holders(&self) -> impl Iterator<Item = (LimitKey, u32)> {
        let may_hold = self.tasks.iter().filter(|(_, seen)| {
            matches!(seen.life.state, State::Running { .. } | State::Parked { .. })
        });
        may_hold.flat_map(|(task, _)| self.uses_of(*task))
    }

    /// The run that gets the signals to this one: items have no name that anybody knows.
    pub(super) fn addressed(&self, run: RunId) -> Option<RunId> {
        let drawn = self.runs.get(&run)?;
        match (&drawn.parent, drawn.plan.items_of()) {
            (Some(parent), Some(_)) => Some(parent.run),
            _ => Some(run),
        }
    }

    pub(super) fn addressed_by(&self, task: TaskKey) -> Option<RunId> {
        self.addressed(self.run_of(task)?)
    }

    /// Runs whose tasks get the signals to this one.
    fn parties(&self, run: RunId) -> impl Iterator<Item = &Drawn> {
        let is_it = move |other: &RunId| self.addressed(*other) == Some(run);
        self.runs.iter().filter(move |(other, _)| is_it(other)).map(|(_, drawn)| drawn)
    }

    /// The tasks that may wait for a signal to this run.
    pub(super) fn receivers(&self, run: RunId, name: &str) -> impl Iterator<Item = TaskKey> {
        let of_run = |drawn: &Drawn| {
            let first = drawn.key;
            let wants = (0..).zip(&drawn.tempers).filter(|(_, temper)| temper.wants(name) > 0);
            let own = wants.filter_map(|(at, _)| Some(first?.task(TaskIndex::from_u32(at))));
            own.collect::<Vec<_>>()
        };
        self.parties(run).flat_map(of_run).collect::<Vec<_>>().into_iter()
    }

    /// Whether one task alone receives the signals of a name to a run, one at a time.
    pub(super) fn is_only_receiver(&self, run: RunId, name: &str) -> bool {
        let tempers = self.parties(run).flat_map(|drawn| &drawn.tempers);
        let wanted: Vec<usize> = tempers.map(|temper| temper.wants(name)).collect();
        wanted.iter().filter(|&&at_once| at_once > 0).all(|&at_once| at_once == 1)
            && wanted.iter().filter(|&&at_once| at_once > 0).count() == 1
    }

    /// Whether some task has waited for this run.
    pub(super) fn is_awaited(&self, run: RunId) -> bool {
        self.awaited.contains(&run) || self.runs[&run].parent.is_some()
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

    /// Looks at everything that may have changed in a request.
    pub(super) fn look(
        &mut self,
        store: &MemoryStore,
        request: &Request,
        reply: &Reply,
    ) -> Result<(), String> {
        if self.is_late(crate::time_of(request)) {
            self.late = self.latest;
        }
        self.latest = self.latest.max(Some(crate::time_of(request)));
        for operation in &request.operations {
            self.note(operation);
        }
        for (change, applied) in request.changes.iter().zip(&reply.changes) {
            let Applied::Lost { actual } = applied else { continue };
            let task = change.task.0;
            let life = actual.as_ref().ok_or_else(|| format!("task {task} does not exist"))?;
            let is_right = change.fence == life.fence;
            let is_over = life.state.kind().is_terminal() || life.stopping.is_some();
            if is_right && !is_over {
                let events = &change.events;
                return Err(format!("task {task} is wrongly lost: {events:?} of {:?}", life.state));
            }
        }
        self.note_waits(request, reply);
        let open: Vec<RunId> = self.open.iter().copied().collect();
        for id in open {
            match now_or_never(store.run(id))? {
                Some(view) => self.look_at_run(id, (request, reply), view, store)?,
                None if self.runs[&id].acknowledged => {
                    return Err(format!("run {id} was acknowledged and does not exist"));
                }
                None => {}
            }
        }
        self.note_waits(request, reply);
        self.look_at_children()
    }

    /// What tasks have closed, and what they wait for.
    fn note_waits(&mut self, request: &Request, reply: &Reply) {
        let changes = request.changes.iter().zip(&reply.changes);
        for (change, _) in changes.filter(|(_, applied)| **applied == Applied::Yes) {
            for op in &change.waits {
                match op {
                    WaitOp::Close(id) => {
                        self.children.remove(&(change.task, id.clone()));
                    }
                    WaitOp::Begin { what: Awaited::Run(run), .. } => {
                        self.awaited.insert(*run);
                    }
                    _ => {}
                }
            }
        }
    }

    /// What holds between a task and the runs it has begun, when all of a request was looked at.
    fn look_at_children(&self) -> Result<(), String> {
        for id in &self.open {
            let drawn = &self.runs[id];
            let (Some(_), Some(parent)) = (drawn.key, &drawn.parent) else { continue };
            let kind = self.life(parent.task).map(|life| life.state.kind());
            // A task may have succeeded although it did not want to wait any longer.
            let is_left = kind == Some(Kind::Succeeded) && drawn.plan.items_of().is_none();
            if kind.is_none_or(Kind::is_terminal) && !is_left {
                let task = parent.task.0;
                return Err(format!("run {id} is open and its parent {task} is {kind:?}"));
            }
            let is_paused = self.paused_runs.contains(id);
            if is_paused != self.paused_runs.contains(&parent.run) && !is_left {
                return Err(format!("run {id} is paused without its parent's, or not with it"));
            }
        }
        Ok(())
    }

    /// Whether a run of a task that is seen for the first time was begun by who runs its parent, and
    /// once.
    fn look_at_birth(
        &mut self,
        id: RunId,
        (request, reply): (&Request, &Reply),
        store: &MemoryStore,
    ) -> Result<(), String> {
        let drawn = &self.runs[&id];
        let (None, Some(origin)) = (drawn.key, drawn.parent.clone()) else { return Ok(()) };
        // Its parent's run may not have been looked at: then its fence is that of before, or one
        // less if it was claimed in this request, in which it cannot have begun anything.
        let fence = self.life(origin.task).map(|life| life.fence);
        let asked = request.changes.iter().flat_map(|change| &change.waits);
        let asked = asked.filter_map(|op| match op {
            WaitOp::Begin { what: Awaited::Child(new), .. } => Some(&**new),
            _ => None,
        });
        let begun: Option<&Parent> = request
            .submits
            .iter()
            .chain(asked)
            .find(|new| new.id == id)
            .and_then(|new| new.parent.as_ref());
        // It may have parked and be claimed again in the same request.
        let again = reply.claimed.iter().any(|claimed| claimed.key == origin.task);
        let fits =
            |begun: Fence| Some(begun) == fence || again && Some(Fence(begun.0 + 1)) == fence;
        if !begun.is_some_and(|begun| begun.task == origin.task && fits(begun.fence)) {
            return Err(format!("run {id} was begun by {begun:?}, its parent is at {fence:?}"));
        }
        let before = self.children.insert((origin.task, origin.wait.clone()), id);
        if let Some(before) = before.filter(|before| *before != id) {
            return Err(format!("run {id} is begun a second time, it was {before}"));
        }
        let run = |id| now_or_never(store.run(id))?.ok_or("a parent is there".to_owned());
        let (own, above) = (run(id)?.run, run(origin.run)?.run);
        match origin.apart || (&own.queue, own.priority) == (&above.queue, above.priority) {
            true => Ok(()),
            false => Err(format!("run {id} is not where its parent's is")),
        }
    }

    fn note(&mut self, operation: &Operation) {
        match operation {
            Operation::Pause(Scope::Store) => self.store_is_paused = true,
            Operation::Unpause(Scope::Store) => self.store_is_paused = false,
            Operation::Pause(Scope::Queue(queue)) => drop(self.paused_queues.insert(queue.clone())),
            Operation::Unpause(Scope::Queue(queue)) => drop(self.paused_queues.remove(queue)),
            _ => {}
        }
    }

    fn look_at_run(
        &mut self,
        id: RunId,
        (request, reply): (&Request, &Reply),
        view: RunView,
        store: &MemoryStore,
    ) -> Result<(), String> {
        if self.runs[&id].refused {
            return Err(format!("run {id} was refused and exists"));
        }
        self.look_at_birth(id, (request, reply), store)?;
        self.places.insert(view.run.key.0, id);
        self.runs.entry(id).and_modify(|drawn| drawn.key = Some(view.run.key));
        match view.run.paused_at {
            Some(_) => self.paused_runs.insert(id),
            None => self.paused_runs.remove(&id),
        };
        let queue_is_paused = self.paused_queues.contains(&*view.run.queue);
        let is_paused = self.store_is_paused || queue_is_paused || view.run.paused_at.is_some();
        for (at, task) in (0..).zip(&view.tasks) {
            let index = TaskIndex::from_u32(at);
            let checked = self.look_at_task(id, index, request, task, is_paused);
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
        request: &Request,
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
            claimed(life, request, drawn, is_paused, self.latest)?;
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
    pub(super) fn audit(&mut self, store: &MemoryStore, bounds: &Bounds) -> Result<(), String> {
        let mut findings = now_or_never(store.audit())?;
        let is_late = self.late.is_some_and(|late| self.latest <= Some(late + CLOCKS_APART));
        let latest = self.latest.unwrap_or(Timestamp::from_micros(0));
        let before = std::mem::take(&mut self.doubts);
        // Who is behind the time may let somebody through who is not due for it; that passes.
        findings.retain(|finding| {
            if finding.rule != "limit" || !is_late {
                return true;
            }
            let since = before.get(&finding.what).copied().unwrap_or(latest);
            self.doubts.insert(finding.what.clone(), since);
            !bounds.has_rate(&finding.what) && since + CLOCKS_APART < latest
        });
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

/// Whether a task may have been claimed in this request. What was claimed before a pause may begin in
/// it; nothing is claimed in a request at whose end the run, its queue or the store is paused. Nor is
/// anything claimed before somebody's clock has reached its start time.
fn claimed(
    life: &Life,
    request: &Request,
    drawn: &Drawn,
    is_paused: bool,
    latest: Option<Timestamp>,
) -> Result<(), String> {
    let owner = match life.state {
        State::Running { worker, .. } => Some(worker),
        _ => None,
    };
    if owner.is_none() || owner != request.worker {
        return Err(format!("it was claimed by {:?} in a request of {:?}", owner, request.worker));
    }
    if is_paused {
        return Err("it was claimed while it was paused".to_owned());
    }
    match drawn.not_before > latest {
        true => Err("it was claimed before its time".to_owned()),
        false => Ok(()),
    }
}
