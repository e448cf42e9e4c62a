//! The last part of a request: what the worker takes.

use super::{ClaimOrder, Taking, Task};
use crate::Timestamp;
use crate::delta::Delta;
use crate::graph::{TaskIndex, When};
use crate::lifecycle::{Event, Fence, Kind, State, WorkerId};
use crate::plan::Plan;
use crate::rows::{Owned, Payload};
use crate::store::{Bytes, Change, Claim, Claimed, Given, Reply, RunKey, TaskKey, Told};
use crate::want::{Loaded, Loader, LookUps, ServedTasks, Want};
use std::collections::HashSet;
use std::sync::Arc;

/// Tasks that one request finds to stand behind a limit, so that a request stays short.
const LIMITED_MAX: u32 = 1_000;

/// Tasks by their place in order.
type Candidates = Vec<(Timestamp, TaskKey)>;

/// Who was passed over.
#[derive(Default)]
struct Passed {
    /// So many stand behind a limit now.
    limited: u32,
    /// Some for which there is no room, since nobody waits for them.
    crowded: bool,
}

impl<L: Loader> Taking<'_, L> {
    /// Claims tasks for the worker of the request, or leaves that to the store by an order, and takes its
    /// notifications.
    pub(super) fn serve_worker(&mut self, worker: WorkerId) -> Result<Option<ClaimOrder>, L::Stop> {
        let mut order = None;
        // A worker that the store does not know counts as dead, and begins nothing any more.
        if !self.answer.is_unknown_worker {
            order = self.make_order(worker)?;
            if order.is_none() {
                self.claim(worker)?;
            }
        }
        self.hear_words(worker)?;
        Ok(order)
    }

    /// Takes the best of what is ready, as much as the worker wants.
    pub(super) fn claim(&mut self, worker: WorkerId) -> Result<(), L::Stop> {
        if self.request.again && self.claimed_before(worker)? {
            return Ok(());
        }
        // What is left of what the worker wants.
        let mut left = self.request.claim.clone();
        let mut limited = 0;
        loop {
            let (candidates, cut) = self.candidates(worker, &left, limited)?;
            let passed = self.take_best(worker, candidates, &mut left)?;
            limited += passed.limited;
            // Who was let through one limit may stand behind another now, and others go in its place.
            let opened = self.open_limits()?;
            // Behind those that were passed over there may be others that are not.
            let behind = cut && (passed.limited > 0 || passed.crowded);
            if left.units + left.ahead == 0 || !(opened || behind) {
                return Ok(());
            }
            if limited >= LIMITED_MAX {
                self.answer.more = true;
                return Ok(());
            }
        }
    }

    /// Takes the best of these; who was passed over for a reason that does not hold for all.
    fn take_best(
        &mut self,
        worker: WorkerId,
        mut candidates: Candidates,
        left: &mut Claim,
    ) -> Result<Passed, L::Stop> {
        candidates.sort_unstable();
        let now = self.now;
        let mut passed = Passed::default();
        for (order, task) in candidates {
            if left.units + left.ahead == 0 {
                self.answer.more = true;
                break;
            }
            let at = self.task(task)?.expect("a candidate exists");
            let row = &self.tasks[at].row;
            let weight = row.planned().weight;
            // One that may have killed its process begins when its worker has seen to it that no
            // other such is active.
            let suspect = row.life.is_suspect();
            let fits = weight <= left.units;
            let begins = fits && !suspect;
            // What has limits is taken only to begin at once: it would hold them for nothing. And not by
            // a request that is handed in again: its time has passed, and a rate goes by the time.
            let has_limits = !row.planned().limits.is_empty();
            if has_limits && self.request.again || !fits && (left.ahead == 0 || has_limits) {
                self.answer.more = true;
                continue;
            }
            let awaited = self.head(self.tasks[at].run).awaited;
            if !awaited && left.room == 0 {
                (self.answer.more, passed.crowded) = (true, true);
                continue;
            }
            if !self.take_limits(at, order)? {
                passed.limited += 1;
                continue;
            }
            let row = &self.tasks[at].row;
            // Whoever opened its gate has seen that it is due, by a clock that may be ahead of ours.
            let due = match row.life.state {
                State::Ready { due, .. } => due.max(now),
                _ => now,
            };
            let claimed = self.step_at(at, &Event::Claim { worker }, due)?;
            assert!(claimed, "what is found ready can be claimed");
            if fits {
                left.units -= weight;
            } else if !suspect {
                left.ahead -= 1;
            }
            left.room -= u32::from(!awaited);
            if begins {
                let fence = self.tasks[at].row.life.fence;
                let begun = self.step(at, &Event::Begin { fence })?;
                assert!(begun, "what was claimed can begin");
            }
            let claimed = self.claimed(at, order)?;
            self.answer.claimed.push(claimed);
        }
        Ok(passed)
    }

    /// What the first try of this request has claimed. It may also have changed tasks that the worker
    /// had before: those of which it spoke, and those that were told to stop, which are told again.
    fn claimed_before(&mut self, worker: WorkerId) -> Result<bool, L::Stop> {
        let shown = |change: &Change| (change.task, change.fence);
        let had: HashSet<(TaskKey, Fence)> = self.request.changes.iter().map(shown).collect();
        let mut before = Vec::new();
        for Owned { task, fence, request, .. } in self.rows.load_owned(worker, u32::MAX)? {
            if request != self.request.id {
                continue;
            }
            let at = self.task(task)?.expect("what a worker owns exists");
            let Task { row, run, .. } = &self.tasks[at];
            let State::Running { ready_since, .. } = row.life.state else { continue };
            if row.life.stopping.is_some() {
                let told = Told { task, fence, worker, kind: row.life.state.kind() };
                self.answer.told.push(told);
                continue;
            }
            if had.contains(&(task, fence)) {
                continue;
            }
            before.push((row.order(self.head(*run), ready_since), task, at));
        }
        before.sort_unstable();
        for (order, _, at) in before {
            let claimed = self.claimed(at, order)?;
            self.answer.claimed.push(claimed);
        }
        // Whether there was more is forgotten; to ask once too often costs a request.
        self.answer.more = !self.answer.claimed.is_empty();
        Ok(self.answer.more)
    }

    /// What could be claimed: what became ready in this request, and what was ready before and still
    /// is; and whether there may be more. Where so many were found to stand behind a limit, as many
    /// again are looked at.
    fn candidates(
        &mut self,
        worker: WorkerId,
        left: &Claim,
        limited: u32,
    ) -> Result<(Candidates, bool), L::Stop> {
        let (claim, now) = (&self.request.claim, self.now);
        let only_awaited = left.room == 0;
        let mut found = Vec::new();
        for Task { row, run, .. } in self.tasks.iter().filter(|task| task.dirty) {
            let State::Ready { since, due } = row.life.state else { continue };
            let first = &self.tasks[self.runs[*run].first].row;
            let head = first.head.as_ref().expect("the first task of a run carries its head");
            let open = due <= since.max(now)
                && head.paused_at.is_none()
                && row.behind.is_none()
                && (head.awaited || !only_awaited);
            let (queue, heaviest) = (&head.queue, claim.heaviest);
            let can_run = |served: &Arc<ServedTasks>| served.can_run(queue, &row.plan, row.index);
            if open
                && row.planned().weight <= heaviest
                && self.served.as_ref().is_some_and(can_run)
                && !self.rows.is_queue_paused(queue)?
            {
                found.push((row.order(head, since.max(due)), row.key));
            }
        }
        let wanted = count_wanted(claim).saturating_add(limited);
        let mut max = wanted;
        loop {
            let mut stored = self.rows.find_ready(worker, claim.heaviest, only_awaited, max)?;
            let cut = stored.len() as u64 >= u64::from(max);
            // Tasks that changed in this request may be among those that the store finds, as they
            // were; they are left out, and others stand behind them.
            stored.retain(|(_, task)| !self.is_dirty(*task));
            if !cut || stored.len() as u64 >= u64::from(wanted) {
                found.extend(stored);
                return Ok((found, cut));
            }
            max = wanted.saturating_add(self.changed.count_ready());
        }
    }

    /// Whether a task was looked at and has changed.
    pub(super) fn is_dirty(&self, task: TaskKey) -> bool {
        self.task_at.get(&task).is_some_and(|&at| self.tasks[at].dirty)
    }

    /// A claimed task. The inputs of its body are filled in when everything is written.
    fn claimed(&mut self, at: usize, order: Timestamp) -> Result<Claimed, L::Stop> {
        let Task { row, run, .. } = &self.tasks[at];
        let (key, index, plan) = (row.key, row.index, row.plan.clone());
        let (life, has_waits, head) = (row.life.clone(), row.has_waits, self.head(*run));
        let awaited = head.awaited;
        let (run, parent) = (head.id, head.parent.filter(|_| plan.items_of().is_some()));
        // An item is given the inputs of the task whose item it is. That task may have been pruned: it
        // may succeed without waiting for its items.
        let above = match parent {
            Some(parent) => self.task(parent)?,
            None => None,
        };
        let from = self.inputs_from(above.unwrap_or(at), parent.map(|_| key))?;
        let row = &self.tasks[above.unwrap_or(at)].row;
        let given = make_given(row.plan.clone(), row.index);
        self.inputs.push(from);
        let waits = if has_waits { self.waits_with_runs(key)? } else { Vec::new() };
        Ok(Claimed { key, index, plan, run, life, order, given, waits, awaited })
    }

    fn inputs_from(&mut self, at: usize, item: Option<TaskKey>) -> Result<InputsFrom, L::Stop> {
        let Task { row, run, .. } = &self.tasks[at];
        let (run, key, task, plan) = (*run, row.run(), row.index, row.plan.clone());
        let input = self.runs[run].new.map(|new| new.input.clone());
        let graph = plan.graph();
        let mut absent = Vec::new();
        // Under the usual rule all of them have succeeded.
        if graph.when(task) != When::AllSucceeded {
            for &parent in graph.parents(task) {
                let at = self.existing(key.task(parent))?;
                let succeeded = self.tasks[at].row.life.state.kind() == Kind::Succeeded;
                absent.extend((!succeeded).then_some(parent));
            }
        }
        Ok(InputsFrom { run: key, input, absent, item })
    }
}

/// How many ready tasks a claim looks for: one more than it takes says whether there are more.
pub(crate) fn count_wanted(claim: &Claim) -> u32 {
    claim.units.saturating_add(claim.ahead).saturating_add(1)
}

/// The outcome of a request.
#[derive(Debug, PartialEq)]
pub struct Decision {
    /// The changes, to be applied in the transaction in which everything was loaded.
    pub delta: Delta,
    /// The claim that the store carries out behind the delta, where it [takes
    /// orders](crate::want::Known::taking_orders); then the reply has no claimed tasks yet.
    pub order: Option<ClaimOrder>,
    /// The answer, but for what is filled in.
    pub reply: Reply,
    /// The rows that [`complete_reply`] reads once the delta is applied.
    pub fill: Fill,
}

/// The rows that a store reads for a reply once the delta is applied.
#[derive(Debug, Default, PartialEq)]
pub struct Fill {
    /// For each claimed task in the reply.
    pub(super) inputs: Vec<InputsFrom>,
    /// The worker that wants to know all that it owns.
    pub(super) reconciled: Option<WorkerId>,
}

/// From where the body of a claimed task is given what.
#[derive(Debug, PartialEq)]
pub(super) struct InputsFrom {
    /// The run whose input it is given.
    run: RunKey,
    /// The input, where the run began in the same request.
    input: Option<Option<Bytes>>,
    /// Parents that have ended and not succeeded.
    absent: Vec<TaskIndex>,
    /// The item that it is done for.
    item: Option<TaskKey>,
}

/// The inputs of a task before any is read.
pub(super) fn make_given(plan: Arc<Plan>, task: TaskIndex) -> Given {
    let (outputs, absent, inserts) = (Vec::new(), Vec::new(), Vec::new());
    Given { plan, task, input: None, outputs, absent, inserts, item: None }
}

impl InputsFrom {
    /// Those of a task that is no item and whose parents have succeeded, in a run that is stored.
    pub(super) fn of_stored_run(run: RunKey) -> Self {
        InputsFrom { run, input: None, absent: Vec::new(), item: None }
    }
}

/// Completes a reply with all that is not decided but read once the delta is applied: the inputs of
/// bodies, the tasks that a worker owns, and the next alarm.
///
/// # Errors
/// The store's own; then the transaction must not be committed.
pub fn complete_reply<L: Loader>(
    loader: &mut L,
    reply: &mut Reply,
    fill: &Fill,
) -> Result<(), L::Stop> {
    // Items are usually claimed many at a time, and are given the same but for the item.
    let mut last: Option<(TaskKey, Given)> = None;
    for (claimed, from) in reply.claimed.iter_mut().zip(&fill.inputs) {
        let source = from.run.task(claimed.given.task);
        claimed.given = match &last {
            Some((before, given)) if *before == source => given.clone(),
            _ => read_inputs(loader, &claimed.given, from)?,
        };
        if let Some(item) = from.item {
            last = Some((source, claimed.given.clone()));
            claimed.given.item = read_payload(loader, item, Payload::Item)?;
        }
    }
    if let Some(worker) = fill.reconciled {
        let want = Want::OwnedBy { worker, max: u32::MAX };
        let Loaded::Owned(owned) = loader.load(&want)? else { unreachable!("it was wanted") };
        // The end may have been another worker's wish, of which this one did not hear.
        for Owned { task, fence, .. } in owned.iter().filter(|owned| owned.stopping) {
            let (task, fence, kind) = (*task, *fence, Kind::Active);
            reply.told.push(Told { task, fence, worker, kind });
        }
        reply.roll = owned;
    }
    let Loaded::Instant(alarm) = loader.load(&Want::NextAlarm)? else {
        unreachable!("it was wanted")
    };
    reply.alarm = alarm;
    Ok(())
}

/// The wants of [`complete_reply`], so that a store can load them in the trip in which it applies the
/// delta, behind it.
pub fn fill_wants(reply: &Reply, fill: &Fill) -> Vec<Want> {
    let mut wants = vec![Want::NextAlarm];
    wants.extend(fill.reconciled.map(|worker| Want::OwnedBy { worker, max: u32::MAX }));
    let mut last = None;
    for (claimed, from) in reply.claimed.iter().zip(&fill.inputs) {
        let (graph, task, run) = (claimed.given.plan.graph(), claimed.given.task, from.run);
        wants.extend(from.item.map(|item| Want::Payload(item, Payload::Item)));
        // Items are given the same but for the item.
        if last.replace(run.task(task)) == Some(run.task(task)) {
            continue;
        }
        if from.input.is_none() {
            wants.push(Want::Payload(run.task(TaskIndex::from_u32(0)), Payload::Input));
        }
        for &parent in graph.parents(task) {
            wants.push(Want::Payload(run.task(parent), Payload::Output));
        }
        if !graph.parents(task).is_empty() {
            let ancestors = graph.ancestors(task).into_iter();
            wants.extend(ancestors.map(|above| Want::Payload(run.task(above), Payload::Inserts)));
        }
    }
    wants
}

fn read_payload<L: Loader>(
    loader: &mut L,
    task: TaskKey,
    kind: Payload,
) -> Result<Option<Bytes>, L::Stop> {
    match loader.load(&Want::Payload(task, kind))? {
        Loaded::Payload(bytes) => Ok(bytes),
        other => unreachable!("a store answered a want with {other:?}"),
    }
}

fn read_inputs<L: Loader>(
    loader: &mut L,
    given: &Given,
    from: &InputsFrom,
) -> Result<Given, L::Stop> {
    let (graph, task, run) = (given.plan.graph(), given.task, from.run);
    let input = match &from.input {
        Some(input) => input.clone(),
        None => read_payload(loader, run.task(TaskIndex::from_u32(0)), Payload::Input)?,
    };
    let (mut outputs, mut inserts) = (Vec::new(), Vec::new());
    for &parent in graph.parents(task) {
        let output = read_payload(loader, run.task(parent), Payload::Output)?;
        outputs.extend(output.map(|output| (parent, output)));
    }
    if !graph.parents(task).is_empty() {
        for ancestor in graph.ancestors(task) {
            let inserted = read_payload(loader, run.task(ancestor), Payload::Inserts)?;
            inserts.extend(inserted.map(|inserted| (ancestor, inserted)));
        }
    }
    let (absent, plan) = (from.absent.clone(), given.plan.clone());
    Ok(Given { plan, task, input, outputs, absent, inserts, item: None })
}
