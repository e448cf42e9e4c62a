//! How a request finds and writes rows in memory.

use super::{Memory, Pause, Signal, covered};
use crate::delta::{PauseChange, RateEvent, SignalChange, TaskWrite};
use crate::graph::TaskIndex;
use crate::lifecycle::WorkerId;
use crate::limit::{Hold, Limit, LimitKey};
use crate::rows::{Owned, Payload, Row};
use crate::store::{Bytes, Record, RunKey, Scope, TaskKey};
use crate::wait::{WaitId, WaitKind, Waiting};
use crate::want::{FiledKey, ServedTasks};
use crate::{RunId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

impl Memory {
    /// A run waits as long as none of its tasks was entered and it has not ended.
    pub(super) fn link_unbegun(&mut self, row: &Row, queue: &Arc<str>, is_run_ended: bool) {
        if row.head.as_ref().is_some_and(|head| head.parent.is_none()) {
            self.unbegun.insert((queue.clone(), row.run()));
        }
        self.unlink_begun(row, queue, is_run_ended);
    }

    pub(super) fn unlink_begun(&mut self, row: &Row, queue: &Arc<str>, is_run_ended: bool) {
        if row.life.started.is_some() || is_run_ended {
            self.unbegun.remove(&(queue.clone(), row.run()));
        }
    }
}

impl Memory {
    pub(super) fn find_run(&mut self, run: RunId) -> Result<Option<RunKey>, Infallible> {
        Ok(self.ids.get(&run).copied())
    }

    pub(super) fn find_run_by_key(
        &mut self,
        queue: &str,
        workflow: &str,
        key: &str,
    ) -> Result<Option<RunKey>, Infallible> {
        let (workflow, key) = (workflow.to_owned(), key.to_owned());
        Ok(self.keys.get(&FiledKey { queue: queue.into(), workflow, key }).copied())
    }

    pub(super) fn find_task(&mut self, task: TaskKey) -> Result<Option<Row>, Infallible> {
        Ok(self.tasks.get(&task).map(|(row, _)| row.clone()))
    }

    pub(super) fn find_tasks(&mut self, run: RunKey) -> Result<Vec<Row>, Infallible> {
        Ok(self.rows_of(run).map(|(row, _)| row.clone()).collect())
    }

    pub(super) fn find_due_tasks(
        &mut self,
        now: Timestamp,
        max: u32,
    ) -> Result<Vec<TaskKey>, Infallible> {
        let due = self.alarms.range(..=(now, TaskKey(i64::MAX)));
        Ok(due.take(max as usize).map(|&(_, task)| task).collect())
    }

    pub(super) fn next_alarm(&mut self) -> Result<Option<Timestamp>, Infallible> {
        let tasks = self.alarms.first().map(|&(alarm, _)| alarm);
        let limits = self.alarms_of_limits.first().map(|&(alarm, _)| alarm);
        Ok(tasks.into_iter().chain(limits).min())
    }

    pub(super) fn find_owned(
        &mut self,
        worker: WorkerId,
        max: u32,
    ) -> Result<Vec<Owned>, Infallible> {
        let owned = |task: TaskKey| {
            let Row { index, life, request, .. } = &self.tasks[&task].0;
            let (index, fence, request) = (*index, life.fence, *request);
            Owned { task, index, fence, request, stopping: life.stopping.is_some() }
        };
        Ok(self.owned_by(worker).take(max as usize).map(owned).collect())
    }

    pub(super) fn find_ready(
        &mut self,
        worker: WorkerId,
        heaviest: u32,
        only_awaited: bool,
        pauses: &[PauseChange],
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Infallible> {
        let Some(worker) = self.workers.get(&worker) else { return Ok(Vec::new()) };
        let served = worker.served.queues.iter().filter(|queue| !self.is_stopped(queue, pauses));
        let open = &self.open[usize::from(only_awaited)..];
        let lanes =
            served.flat_map(|queue| open.iter().filter_map(|open| open.get(queue.as_str())));
        let lanes = lanes.flatten();
        let lanes = lanes.filter(|(lane, _)| worker.can_run(lane, heaviest));
        let mut lanes: Vec<_> = lanes.map(|(_, tasks)| tasks.iter().copied()).collect();

        // The first of each lane is on the heap; who is taken makes room for the next of its lane.
        let firsts = lanes.iter_mut().enumerate();
        let firsts = firsts.filter_map(|(at, lane)| Some(Reverse((lane.next()?, at))));
        let mut heap: BinaryHeap<_> = firsts.collect();
        let mut ready = Vec::new();
        while ready.len() < max as usize
            && let Some(Reverse((first, at))) = heap.pop()
        {
            ready.push(first);
            heap.extend(lanes[at].next().map(|next| Reverse((next, at))));
        }
        Ok(ready)
    }

    pub(super) fn served_tasks(
        &mut self,
        worker: WorkerId,
    ) -> Result<Option<Arc<ServedTasks>>, Infallible> {
        Ok(self.workers.get(&worker).map(|worker| worker.served.clone()))
    }

    pub(super) fn find_payload(
        &mut self,
        task: TaskKey,
        kind: Payload,
    ) -> Result<Option<Bytes>, Infallible> {
        Ok(self.kept(task, kind))
    }

    pub(super) fn stood_still(
        &mut self,
        run: RunId,
        queue: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Duration, Infallible> {
        let scopes = [Scope::Run(run), Scope::Queue(queue.to_owned()), Scope::Store];
        let pauses = scopes.iter().filter_map(|scope| self.pauses.get(scope)).flatten();
        Ok(covered(pauses.copied(), from, to))
    }

    pub(super) fn count_waiting_runs(&mut self, queue: &str, max: u32) -> Result<u32, Infallible> {
        let unbegun = self.unbegun.range((Arc::from(queue), RunKey(i64::MIN))..);
        let unbegun = unbegun.take_while(|(of, _)| **of == *queue).map(|(_, run)| *run);
        let waits = |run: &RunKey| self.rows_of(*run).all(|(row, _)| row.life.owner().is_none());
        Ok(unbegun.filter(waits).take(max as usize).count() as u32)
    }

    pub(super) fn allocate_tasks(&mut self, tasks: u32) -> Result<RunKey, Infallible> {
        let first = self.last_task + 1;
        self.last_task += i64::from(tasks);
        Ok(RunKey(first))
    }

    pub(super) fn insert_task(&mut self, write: TaskWrite) -> Result<(), Infallible> {
        let TaskWrite { row, place, queue, .. } = &write;
        if let Some(head) = &row.head {
            let before = self.ids.insert(head.id, row.run());
            assert!(before.is_none(), "the id of a new run was never used before");
            if let Some(key) = FiledKey::new(row) {
                let before = self.keys.insert(key, row.run());
                assert!(before.is_none(), "a run begins only after its key was looked up");
            }
            self.runs.entry(row.run()).or_default();
        }
        self.link(row, queue, place);
        self.link_unbegun(row, queue, write.is_run_ended);
        let before = self.tasks.insert(write.row.key, (write.row, write.place));
        assert!(before.is_none(), "the number of a new task was never used before");
        Ok(())
    }

    pub(super) fn update_task(&mut self, write: TaskWrite) -> Result<(), Infallible> {
        let before = self.tasks.remove(&write.row.key);
        let (was, was_at) = before.expect("a row that is replaced was there");
        // A run never changes its queue.
        self.unlink(&was, &write.queue, &was_at);
        self.link(&write.row, &write.queue, &write.place);
        self.unlink_begun(&write.row, &write.queue, write.is_run_ended);
        self.tasks.insert(write.row.key, (write.row, write.place));
        Ok(())
    }

    pub(super) fn keep_payload(
        &mut self,
        task: TaskKey,
        kind: Payload,
        bytes: &Bytes,
    ) -> Result<(), Infallible> {
        self.payloads.insert((task, kind.code()), bytes.clone());
        Ok(())
    }

    pub(super) fn add_record(&mut self, record: &Record) -> Result<u64, Infallible> {
        self.last_record += 1;
        let seq = self.last_record;
        self.records.insert(seq, Record { seq, ..record.clone() });
        self.runs.entry(record.run).or_default().push(seq);
        Ok(seq)
    }

    pub(super) fn is_queue_paused(&mut self, queue: &str) -> Result<bool, Infallible> {
        Ok(self.is_stopped(queue, &[]))
    }

    pub(super) fn change_pause(&mut self, change: &PauseChange) -> Result<(), Infallible> {
        let pauses = self.pauses.entry(change.scope.clone()).or_default();
        let open = pauses.last_mut().filter(|pause| pause.to.is_none());
        match (open, change.begins) {
            // The clock of the process that ends it may be behind the clock of the one that began it.
            (Some(pause), false) => pause.to = Some(change.at.max(pause.from)),
            (None, true) => pauses.push(Pause { from: change.at, to: None }),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) -> Result<(), Infallible> {
        self.remove(worker);
        Ok(())
    }

    pub(super) fn leave_word(&mut self, worker: WorkerId, task: TaskKey) -> Result<(), Infallible> {
        self.words.insert((worker, task));
        Ok(())
    }

    pub(super) fn find_words(&mut self, worker: WorkerId) -> Result<Vec<TaskKey>, Infallible> {
        let all = (worker, TaskKey(i64::MIN))..=(worker, TaskKey(i64::MAX));
        Ok(self.words.range(all).map(|&(_, task)| task).collect())
    }

    pub(super) fn drop_words(&mut self, worker: WorkerId) -> Result<(), Infallible> {
        let all = (worker, TaskKey(i64::MIN))..=(worker, TaskKey(i64::MAX));
        self.words.extract_if(all, |_| true).for_each(drop);
        Ok(())
    }

    pub(super) fn load_waits(&mut self, task: TaskKey) -> Result<Vec<Waiting>, Infallible> {
        Ok(self.waits_of(task).cloned().collect())
    }

    pub(super) fn find_wait(
        &mut self,
        task: TaskKey,
        id: &WaitId,
    ) -> Result<Option<Waiting>, Infallible> {
        Ok(self.waits.get(&(task, id.clone())).cloned())
    }

    pub(super) fn put_wait(&mut self, task: TaskKey, wait: &Waiting) -> Result<(), Infallible> {
        if let Some(before) = self.waits.insert((task, wait.id.clone()), wait.clone()) {
            self.unlink_wait(task, &before);
        }
        self.link_wait(task, wait);
        Ok(())
    }

    pub(super) fn drop_wait(&mut self, task: TaskKey, id: &WaitId) -> Result<(), Infallible> {
        if let Some(before) = self.waits.remove(&(task, id.clone())) {
            self.unlink_wait(task, &before);
        }
        Ok(())
    }

    pub(super) fn signal_waits(
        &mut self,
        run: RunKey,
        name: &str,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey, WaitId)>, Infallible> {
        let (first, task) = (Timestamp::from_micros(i64::MIN), TaskKey(i64::MIN));
        let from = (run, Arc::from(name), first, task, WaitId::new(WaitKind::Step, "", 0));
        let waits = self.signal_waits.range(from..);
        let waits = waits.take_while(|(of, named, ..)| *of == run && **named == *name);
        let waits = waits.map(|(.., since, task, id)| (*since, *task, id.clone()));
        Ok(waits.take(max as usize).collect())
    }

    pub(super) fn run_waits(&mut self, run: RunKey) -> Result<Vec<(TaskKey, WaitId)>, Infallible> {
        let from = (run, TaskKey(i64::MIN), WaitId::new(WaitKind::Step, "", 0));
        let open = self.run_waits.range(from..).take_while(|(of, ..)| *of == run);
        Ok(open.map(|(_, task, id)| (*task, id.clone())).collect())
    }

    pub(super) fn waited_by(
        &mut self,
        run: RunKey,
        tasks: u32,
    ) -> Result<Vec<(TaskKey, WaitId, RunKey)>, Infallible> {
        let tasks = (0..tasks).map(|index| run.task(TaskIndex::from_u32(index)));
        let waits = tasks.flat_map(|task| self.waits_of(task).map(move |wait| (task, wait)));
        let open = waits.filter(|(_, wait)| wait.is_open() && wait.id.kind.is_for_run());
        Ok(open.filter_map(|(task, wait)| Some((task, wait.id.clone(), wait.run?))).collect())
    }

    pub(super) fn signal_number(&mut self) -> Result<u64, Infallible> {
        self.last_signal += 1;
        Ok(self.last_signal)
    }

    pub(super) fn was_sent(&mut self, run: RunKey, id: u128) -> Result<bool, Infallible> {
        Ok(self.sent.contains(&(run, id)))
    }

    pub(super) fn untaken_signals(
        &mut self,
        run: RunKey,
        name: &str,
        max: u32,
    ) -> Result<Vec<(u64, Option<Bytes>)>, Infallible> {
        let signals = self.untaken.range((run, Arc::from(name), 0)..);
        let signals = signals.take_while(|(of, named, _)| *of == run && **named == *name);
        let signals = signals.map(|(.., number)| (*number, self.signals[number].body.clone()));
        Ok(signals.take(max as usize).collect())
    }

    pub(super) fn change_signal(
        &mut self,
        number: u64,
        change: &SignalChange,
    ) -> Result<(), Infallible> {
        match change {
            SignalChange::Sent { id, run, name, body, at, taken_by } => {
                let (name, body) = (name.clone(), body.clone());
                let (id, run, sent_at, taken_by) = (*id, *run, *at, *taken_by);
                let signal = Signal { id, run, name, body, sent_at, taken_by };
                self.signals.insert(number, signal);
            }
            SignalChange::Taken { by } => {
                self.signals.entry(number).and_modify(|signal| signal.taken_by = Some(*by));
            }
            SignalChange::Returned { .. } => {
                self.signals.entry(number).and_modify(|signal| signal.taken_by = None);
            }
        }
        // One that was pruned with its run stays away.
        if let Some(signal) = self.signals.get(&number).cloned() {
            self.link_signal(number, &signal);
        }
        Ok(())
    }

    pub(super) fn find_limit(&mut self, name: &str) -> Result<Option<Limit>, Infallible> {
        Ok(self.limits.get(name).cloned())
    }

    pub(super) fn set_limit(&mut self, limit: &Limit) -> Result<(), Infallible> {
        self.limits.insert(limit.name().to_owned(), limit.clone());
        Ok(())
    }

    pub(super) fn in_use(&mut self, limit: &LimitKey) -> Result<u32, Infallible> {
        Ok(self.units_of(limit))
    }

    pub(super) fn load_holds(&mut self, task: TaskKey) -> Result<Vec<Hold>, Infallible> {
        Ok(self.holds_of(task).cloned().collect())
    }

    pub(super) fn put_hold(&mut self, task: TaskKey, hold: &Hold) -> Result<(), Infallible> {
        self.holds.insert((task, hold.limit.clone()), hold.clone());
        self.held.insert((hold.limit.clone(), task));
        Ok(())
    }

    pub(super) fn let_go(&mut self, task: TaskKey, limit: &LimitKey) -> Result<(), Infallible> {
        self.holds.remove(&(task, limit.clone()));
        self.held.remove(&(limit.clone(), task));
        Ok(())
    }

    pub(super) fn rate_events(
        &mut self,
        limit: &LimitKey,
    ) -> Result<Vec<(Timestamp, u32)>, Infallible> {
        Ok(self.begun.get(limit).cloned().unwrap_or_default())
    }

    pub(super) fn add_rate_event(&mut self, event: &RateEvent) -> Result<(), Infallible> {
        let begun = self.begun.entry(event.limit.clone()).or_default();
        begun.retain(|(at, _)| *at >= event.forget_before);
        begun.push((event.at, event.units));
        Ok(())
    }

    pub(super) fn blocked_tasks(
        &mut self,
        limit: &LimitKey,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Infallible> {
        let lanes = self.behind.get(limit).into_iter().flat_map(BTreeMap::values).flatten();
        let mut first: Vec<_> =
            lanes.flat_map(|(_, tasks)| tasks.iter().copied().take(max as usize)).collect();
        first.sort_unstable();
        Ok(first)
    }

    pub(super) fn keys_behind(&mut self, name: &str) -> Result<Vec<LimitKey>, Infallible> {
        let all = self.behind.range(LimitKey::new(name, "")..).map(|(limit, _)| limit);
        Ok(all.take_while(|limit| *limit.name == *name).cloned().collect())
    }

    pub(super) fn limit_alarm(
        &mut self,
        limit: &LimitKey,
    ) -> Result<Option<Timestamp>, Infallible> {
        Ok(self.limit_alarms.get(limit).copied())
    }

    pub(super) fn set_limit_alarm(
        &mut self,
        limit: &LimitKey,
        alarm: Option<Timestamp>,
    ) -> Result<(), Infallible> {
        let before = match alarm {
            Some(alarm) => self.limit_alarms.insert(limit.clone(), alarm),
            None => self.limit_alarms.remove(limit),
        };
        if let Some(before) = before {
            self.alarms_of_limits.remove(&(before, limit.clone()));
        }
        self.alarms_of_limits.extend(alarm.map(|alarm| (alarm, limit.clone())));
        Ok(())
    }

    pub(super) fn due_limits(
        &mut self,
        now: Timestamp,
        max: u32,
    ) -> Result<Vec<LimitKey>, Infallible> {
        let due = self.alarms_of_limits.iter().take_while(|(alarm, _)| *alarm <= now);
        Ok(due.take(max as usize).map(|(_, limit)| limit.clone()).collect())
    }
}
