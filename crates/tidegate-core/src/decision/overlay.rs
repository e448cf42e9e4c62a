//! The rows that a request sees: those of the store, overlaid with what the request has changed so far.
//!
//! Nothing is written before the end of a request, so every look-up whose rows the request may have changed
//! goes through here. Look-ups without a method here are answered by the store alone: what they find
//! is either unchanged by a request, or kept by it as whole task rows.

use crate::audit::{Stray, has_orphans};
use crate::delta::{Delta, PauseChange, PayloadCopy, SignalChange, is_paused_after};
use crate::keys::KeyMap;
use crate::lifecycle::WorkerId;
use crate::limit::{Hold, Limit, LimitKey};
use crate::rows::{Head, Payload, Row};
use crate::store::{Bytes, Record, RunKey, Scope, TaskKey};
use crate::wait::{NewSignal, WaitId, WaitKind, Waiting};
use crate::want::{FiledKey, Known, Loaded, Loader, LookUps, TaskGroup, Want};
use crate::{RunId, Timestamp};
pub use answers::describe_answers;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The rows of a store, overlaid with a [`Delta`].
pub(super) struct Overlay<'l, L> {
    loader: &'l mut L,
    known: Known,
    pub(super) delta: Delta,
    /// How often numbers for tasks and for signals were asked for.
    numbers_asked: u32,
    /// Payloads of the delta that the same request may look up, by task.
    texts: HashMap<(TaskKey, Payload), Bytes>,
    /// Waits that the request has begun or changed, by the run that they are for.
    waits_by_run: KeyMap<RunKey, Vec<(TaskKey, WaitId)>>,
}

/// Rows as they are stored: what is known already, and what the loader finds.
impl<L: Loader> Loader for Overlay<'_, L> {
    type Stop = L::Stop;

    fn load(&mut self, want: &Want) -> Result<Loaded, L::Stop> {
        match self.known.find_answer(want) {
            Some(loaded) => Ok(loaded.clone()),
            None => self.loader.load(want),
        }
    }
}

impl<'l, L: Loader> Overlay<'l, L> {
    pub(super) fn new(known: Known, loader: &'l mut L) -> Self {
        Overlay {
            loader,
            known,
            numbers_asked: 0,
            delta: Delta::default(),
            texts: HashMap::new(),
            waits_by_run: KeyMap::default(),
        }
    }

    /// Whether the store carries out claim orders.
    pub(super) fn takes_orders(&self) -> bool {
        self.known.takes_orders
    }

    /// New numbers for this many tasks in a row.
    pub(super) fn allocate_tasks(&mut self, count: u32) -> Result<RunKey, L::Stop> {
        let first = self.load_task_numbers(self.numbers_asked, count)?;
        self.numbers_asked += 1;
        Ok(RunKey(first))
    }

    // ----------------------------------------------------------------------------- payloads --

    pub(super) fn find_payload(
        &mut self,
        task: TaskKey,
        kind: Payload,
    ) -> Result<Option<Bytes>, L::Stop> {
        match self.texts.get(&(task, kind)) {
            Some(bytes) => Ok(Some(bytes.clone())),
            None => self.load_payload(task, kind),
        }
    }

    pub(super) fn keep(&mut self, task: TaskKey, kind: Payload, bytes: Bytes) {
        // The others are looked up by the runs that they came with, or once they are written.
        if matches!(kind, Payload::Error | Payload::Keys) {
            self.texts.insert((task, kind), bytes.clone());
        }
        self.delta.payloads.push((task, kind, bytes));
    }

    pub(super) fn copy_payload(&mut self, from: TaskKey, to: TaskKey, kind: Payload) {
        self.delta.payload_copies.push(PayloadCopy { from, to, kind });
    }

    pub(super) fn add_record(&mut self, record: Record) {
        self.delta.records.push(record);
    }

    // ------------------------------------------------------------------------------- pauses --

    /// Whether nothing starts of this run, of this queue, or at all.
    pub(super) fn is_paused(&mut self, scope: &Scope) -> Result<bool, L::Stop> {
        let stored = self.load_pause_start(scope)?.is_some();
        Ok(is_paused_after(&self.delta.pauses, |changed| changed == scope, stored))
    }

    /// Whether nothing of a queue starts, because it or the store is paused.
    pub(super) fn is_queue_paused(&mut self, queue: &Arc<str>) -> Result<bool, L::Stop> {
        if self.delta.pauses.is_empty() {
            return self.load_is_queue_paused(queue);
        }
        Ok(self.is_paused(&Scope::Store)? || self.is_paused(&Scope::Queue(queue.to_string()))?)
    }

    /// Tasks that a worker can claim, by claim order and number. Pauses that the request has begun or ended count.
    pub(super) fn find_ready(
        &mut self,
        worker: WorkerId,
        heaviest: u32,
        only_awaited: bool,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, L::Stop> {
        // A paused run is in the rows of its tasks.
        let bears = |pause: &&PauseChange| !matches!(pause.scope, Scope::Run(_));
        let pauses = self.delta.pauses.iter().filter(bears).cloned().collect();
        self.load_ready(worker, heaviest, only_awaited, pauses, max)
    }

    /// Begins or ends a pause; false if it had begun or ended before.
    pub(super) fn change_pause(
        &mut self,
        scope: &Scope,
        begins: bool,
        at: Timestamp,
    ) -> Result<bool, L::Stop> {
        if self.is_paused(scope)? == begins {
            return Ok(false);
        }
        self.delta.pauses.push(PauseChange { scope: scope.clone(), begins, at });
        Ok(true)
    }

    /// For how long of the time between, nothing of a run could start because of a pause.
    pub(super) fn paused_time(
        &mut self,
        run: RunId,
        queue: &Arc<str>,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Duration, L::Stop> {
        let mut paused = self.load_paused_time(run, queue, from, to)?;
        let applies = |pause: &&PauseChange| match &pause.scope {
            Scope::Run(id) => *id == run,
            Scope::Queue(name) => **name == **queue,
            Scope::Store => true,
        };
        for pause in self.delta.pauses.iter().filter(applies) {
            if pause.begins {
                paused = paused.saturating_add(to.since(pause.at.max(from)));
            }
        }
        Ok(paused.min(to.since(from)))
    }

    // -------------------------------------------------------------------------------- waits --

    pub(super) fn find_wait(
        &mut self,
        task: TaskKey,
        id: &WaitId,
    ) -> Result<Option<Waiting>, L::Stop> {
        match self.delta.waits.get(&task).and_then(|changed| changed.get(id)) {
            Some(wait) => Ok(wait.clone()),
            None => self.load_wait(task, id),
        }
    }

    /// All waits of a task, by identity.
    pub(super) fn find_waits(&mut self, task: TaskKey) -> Result<Vec<Waiting>, L::Stop> {
        let stored = self.load_waits(task)?;
        let Some(changed) = self.delta.waits.get(&task) else { return Ok(stored) };
        let mut waits: BTreeMap<WaitId, Waiting> =
            stored.into_iter().map(|wait| (wait.id.clone(), wait)).collect();
        for (id, wait) in changed {
            match wait {
                Some(wait) => drop(waits.insert(id.clone(), wait.clone())),
                None => drop(waits.remove(id)),
            }
        }
        Ok(waits.into_values().collect())
    }

    pub(super) fn put_wait(&mut self, task: TaskKey, wait: Waiting) {
        if let Some(run) = wait.run.filter(|_| wait.is_open()) {
            let of_run = self.waits_by_run.entry(run).or_default();
            of_run.push((task, wait.id.clone()));
        }
        self.delta.waits.entry(task).or_default().insert(wait.id.clone(), Some(wait));
    }

    pub(super) fn drop_wait(&mut self, task: TaskKey, id: &WaitId) {
        self.delta.waits.entry(task).or_default().insert(id.clone(), None);
    }

    fn is_wait_changed(&self, task: TaskKey, id: &WaitId) -> bool {
        self.delta.waits.get(&task).is_some_and(|changed| changed.contains_key(id))
    }

    /// The waits for this run that the request has begun or changed and that are open, each once.
    fn changed_open_waits(&self, run: RunKey) -> BTreeMap<(TaskKey, &WaitId), &Waiting> {
        let changed = self.waits_by_run.get(&run).into_iter().flatten();
        let wait = |(task, id): &(TaskKey, WaitId)| self.delta.waits.get(task)?.get(id)?.as_ref();
        let waits = changed.filter_map(|entry| Some((entry.0, wait(entry)?)));
        let open = waits.filter(|(_, wait)| wait.is_open() && wait.run == Some(run));
        open.map(|(task, wait)| ((task, &wait.id), wait)).collect()
    }

    /// The open wait for a signal of this name to this run that began first: by time, then by task,
    /// then by identity.
    pub(super) fn first_signal_wait(
        &mut self,
        run: RunKey,
        name: &Arc<str>,
    ) -> Result<Option<(TaskKey, WaitId)>, L::Stop> {
        let mut max = 1;
        let stored = loop {
            let waits = self.load_signal_waits(run, name, max)?;
            let is_last = (waits.len() as u64) < u64::from(max);
            let unchanged =
                waits.into_iter().find(|(_, task, id)| !self.is_wait_changed(*task, id));
            if unchanged.is_some() || is_last {
                break unchanged;
            }
            max = max.saturating_mul(2);
        };
        let is_for_it = |id: &WaitId| id.kind == WaitKind::Signal && id.name == *name;
        let changed = self.changed_open_waits(run).into_iter();
        let changed = changed.filter(|((_, id), _)| is_for_it(id));
        let changed = changed.map(|((task, id), wait)| (wait.since, task, id.clone()));
        let first = changed.chain(stored).min();
        Ok(first.map(|(_, task, id)| (task, id)))
    }

    /// All open waits for the end of this run, by task and identity.
    pub(super) fn run_waits(&mut self, run: RunKey) -> Result<Vec<(TaskKey, WaitId)>, L::Stop> {
        let mut waits = self.load_waiters(run)?;
        if !self.delta.waits.is_empty() {
            waits.retain(|(task, id)| !self.is_wait_changed(*task, id));
            let changed = self.changed_open_waits(run).into_keys();
            let changed = changed.filter(|(_, id)| id.kind.is_for_run());
            waits.extend(changed.map(|(task, id)| (task, id.clone())));
            waits.sort_unstable();
        }
        Ok(waits)
    }

    /// The runs that the first `tasks` tasks of this run wait for the end of, each once, by number.
    pub(super) fn runs_waited_for(
        &mut self,
        run: RunKey,
        tasks: u32,
    ) -> Result<Vec<RunKey>, L::Stop> {
        let mut waits = self.load_edges(run, tasks)?;
        waits.retain(|(task, id, _)| !self.is_wait_changed(*task, id));
        let mut runs: Vec<_> = waits.into_iter().map(|(_, _, run)| run).collect();
        let of_run = TaskKey(run.0)..TaskKey(run.0.saturating_add(tasks.into()));
        for waits in self.delta.waits.range(of_run).map(|(_, waits)| waits) {
            let open = waits.values().flatten().filter(|wait| wait.is_open());
            runs.extend(open.filter(|wait| wait.id.kind.is_for_run()).filter_map(|wait| wait.run));
        }
        runs.sort_unstable();
        runs.dedup();
        Ok(runs)
    }

    // ------------------------------------------------------------------------------ signals --

    /// Adds a signal to this run that no task has received.
    pub(super) fn add_signal(
        &mut self,
        run: RunKey,
        signal: &NewSignal,
        at: Timestamp,
    ) -> Result<(), L::Stop> {
        let number = self.load_signal_number(self.numbers_asked)? as u64;
        self.numbers_asked += 1;
        let NewSignal { id, name, body, .. } = signal.clone();
        let sent = SignalChange::Sent { id, run, name, body, at, taken_by: None };
        self.delta.signals.insert(number, sent);
        Ok(())
    }

    /// Whether a signal with this id was sent to this run.
    pub(super) fn was_sent(&mut self, run: RunKey, id: u128) -> Result<bool, L::Stop> {
        let is_it = |change: &SignalChange| match change {
            SignalChange::Sent { id: sent, run: to, .. } => (*sent, *to) == (id, run),
            _ => false,
        };
        Ok(self.delta.signals.values().any(is_it) || self.load_is_sent(run, id)?)
    }

    /// The first signal of this name to this run that no task has received.
    pub(super) fn next_signal(
        &mut self,
        run: RunKey,
        name: &Arc<str>,
    ) -> Result<Option<(u64, Option<Bytes>)>, L::Stop> {
        let mut max = 1;
        let stored = loop {
            let signals = self.load_signals(run, name, max)?;
            let is_last = (signals.len() as u64) < u64::from(max);
            let mut unchanged = signals.into_iter();
            let unchanged = unchanged.find(|(seq, _)| !self.delta.signals.contains_key(seq));
            if unchanged.is_some() || is_last {
                break unchanged;
            }
            max = max.saturating_mul(2);
        };
        let changed = self.delta.signals.iter().find_map(|(seq, change)| match change {
            SignalChange::Sent { run: to, name: named, body, taken_by: None, .. }
            | SignalChange::Returned { run: to, name: named, body }
                if *to == run && named == name =>
            {
                Some((*seq, body.clone()))
            }
            _ => None,
        });
        Ok(changed.into_iter().chain(stored).min_by_key(|(seq, _)| *seq))
    }

    /// A task receives a signal.
    pub(super) fn take_signal(&mut self, number: u64, by: TaskKey) {
        match self.delta.signals.get_mut(&number) {
            Some(SignalChange::Sent { taken_by, .. }) => *taken_by = Some(by),
            _ => drop(self.delta.signals.insert(number, SignalChange::Taken { by })),
        }
    }

    /// A signal that a task had received is there for the next wait.
    pub(super) fn return_signal(
        &mut self,
        number: u64,
        run: RunKey,
        name: &Arc<str>,
        body: Option<Bytes>,
    ) {
        match self.delta.signals.get_mut(&number) {
            Some(SignalChange::Sent { taken_by, .. }) => *taken_by = None,
            _ => {
                let returned = SignalChange::Returned { run, name: name.clone(), body };
                self.delta.signals.insert(number, returned);
            }
        }
    }

    // ------------------------------------------------------------------------------- limits --

    pub(super) fn find_limit(&mut self, name: &str) -> Result<Option<Limit>, L::Stop> {
        match self.delta.limits.iter().rfind(|limit| limit.name() == name) {
            Some(limit) => Ok(Some(limit.clone())),
            None => self.load_limit(name),
        }
    }

    pub(super) fn set_limit(&mut self, limit: &Limit) {
        self.delta.limits.push(limit.clone());
    }

    /// The units that a task holds, by limit.
    pub(super) fn find_holds(&mut self, task: TaskKey) -> Result<Vec<Hold>, L::Stop> {
        let mut holds = self.load_holds(task)?;
        if let Some(changed) = self.delta.holds.get(&task) {
            holds.retain(|hold| !changed.contains_key(&hold.limit));
            holds.extend(changed.values().flatten().cloned());
            holds.sort_unstable_by(|a, b| a.limit.cmp(&b.limit));
        }
        Ok(holds)
    }

    /// A task holds this from now on.
    pub(super) fn take_hold(&mut self, task: TaskKey, hold: Hold) {
        self.delta.holds.entry(task).or_default().insert(hold.limit.clone(), Some(hold));
    }

    /// A task holds nothing of this limit any more.
    pub(super) fn release_hold(&mut self, task: TaskKey, limit: &LimitKey) {
        self.delta.holds.entry(task).or_default().insert(limit.clone(), None);
    }

    // --------------------------------------------------------------------- workers and repair --

    /// Tells another worker to look at one of its tasks.
    pub(super) fn notify_worker(&mut self, worker: WorkerId, task: TaskKey) {
        self.delta.notifications.insert((worker, task));
    }

    /// Takes the notifications for a worker: the tasks, each once, by number.
    pub(super) fn take_notifications(&mut self, worker: WorkerId) -> Result<Vec<TaskKey>, L::Stop> {
        let tasks = self.load_notifications(worker)?;
        if !tasks.is_empty() {
            self.delta.notified = Some((worker, tasks.clone()));
        }
        Ok(tasks)
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) {
        self.delta.forgotten_workers.push(worker);
    }

    /// Files a task anew where claims look for it, and its run under its key, if one of them is filed
    /// wrongly; whether it was.
    pub(super) fn refile_task(&mut self, row: &Row, head: &Head) -> Result<bool, L::Stop> {
        let stored = self.find_stored_task(row.key)?.and_then(|stored| stored.content.ok());
        let right = TaskGroup::new(&head.queue, &row.plan, row.index);
        let is_misfiled = stored.is_some_and(|stored| stored.group != Some(right))
            || row.head.is_some() && self.is_key_misfiled(row)?;
        if is_misfiled {
            self.delta.refiled.push((row.clone(), Box::new(head.clone())));
        }
        Ok(is_misfiled)
    }

    /// Whether a run, by its first task, is found under another key than its own, or not under its own
    /// although no other run has that.
    fn is_key_misfiled(&mut self, first: &Row) -> Result<bool, L::Stop> {
        let right = FiledKey::new(first);
        let filed = self.load_stored_keys(FiledKey::before_all(), Some(first.run()), 2)?;
        if filed.iter().any(|(key, _)| Some(key) != right.as_ref()) {
            return Ok(true);
        }
        let Some(FiledKey { queue, workflow, key }) = right else { return Ok(false) };
        Ok(self.load_run_by_key(&queue, &workflow, &key)?.is_none())
    }

    /// Removes rows that belong to nothing; whether there are any.
    pub(super) fn sweep(&mut self, orphan: &Stray) -> Result<bool, L::Stop> {
        let has_orphans = !self.delta.orphans.contains(orphan) && has_orphans(self, orphan)?;
        if has_orphans {
            self.delta.orphans.push(orphan.clone());
        }
        Ok(has_orphans)
    }
}

mod answers;
#[cfg(test)]
mod tests;
