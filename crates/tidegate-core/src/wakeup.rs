//! The workers that have to be woken once a delta is committed.
//!
//! Nothing rests on it: a worker that is not woken polls the store.
//!
//! - [`Wakeups`]: the changes of one delta, for a store that knows the workers of all processes.
//! - [`WakeupReasons`]: the same of several deltas as a text, which every process reads for its own workers.

mod reasons;

pub use reasons::WakeupReasons;

use crate::Timestamp;
use crate::delta::Delta;
use crate::graph::TaskIndex;
use crate::lifecycle::WorkerId;
use crate::plan::Plan;
use crate::store::Scope;
use crate::want::ServedTasks;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The reasons to wake a worker: changes that another process has made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// Its tasks have notifications, which its next request takes.
    pub is_notified: bool,
    /// A task is ready that it could run.
    pub has_ready: bool,
    /// A run has ended.
    pub has_ended: bool,
}

impl Wakeup {
    /// The reasons as bits, for stores that pass them on.
    pub fn to_bits(self) -> u8 {
        u8::from(self.is_notified) | u8::from(self.has_ready) << 1 | u8::from(self.has_ended) << 2
    }

    /// The reasons of bits.
    pub fn from_bits(bits: u8) -> Self {
        let [is_notified, has_ready, has_ended] = [1, 2, 4].map(|bit| bits & bit != 0);
        Wakeup { is_notified, has_ready, has_ended }
    }

    /// Adds the reasons of another.
    pub fn add_reasons(&mut self, other: Wakeup) {
        self.is_notified |= other.is_notified;
        self.has_ready |= other.has_ready;
        self.has_ended |= other.has_ended;
    }
}

/// The part of a delta that may concern other workers than the one whose request it was.
#[derive(Debug, Default)]
pub struct Wakeups {
    notified: BTreeSet<WorkerId>,
    ready: Vec<ReadyTasks>,
    /// Queues that go on, or the store. Tasks of a run that goes on are among the ready ones.
    unpaused: Vec<Scope>,
    is_run_ended: bool,
}

/// Tasks that can be claimed from now on, and that the same workers can run.
#[derive(Debug)]
struct ReadyTasks {
    queue: Arc<str>,
    plan: Arc<Plan>,
    task: TaskIndex,
    /// The first place of one of them in claim order.
    order: Timestamp,
}

impl Wakeups {
    /// Finds them.
    pub fn of_delta(delta: &Delta) -> Self {
        let unpaused = delta.pauses.iter().filter(|pause| !pause.begins);
        let mut wakeups = Wakeups {
            notified: delta.notifications.iter().map(|(worker, _)| *worker).collect(),
            unpaused: unpaused.map(|pause| pause.scope.clone()).collect(),
            ..Wakeups::default()
        };
        for write in &delta.tasks {
            wakeups.is_run_ended |= write.row.head.is_some() && write.is_run_ended;
            if write.place.gate.is_some_and(|gate| gate.is_open()) {
                let order = write.place.order.expect("a ready task has a place in claim order");
                wakeups.add_ready(&write.queue, &write.row.plan, write.row.index, order);
            }
        }
        wakeups
    }

    fn add_ready(&mut self, queue: &Arc<str>, plan: &Arc<Plan>, task: TaskIndex, order: Timestamp) {
        // Rows that are alike usually come one after the other.
        let alike = self.ready.last_mut().filter(|last| {
            Arc::ptr_eq(&last.plan, plan)
                && last.queue == *queue
                && plan.known_as(last.task) == plan.known_as(task)
        });
        match alike {
            Some(last) => last.order = last.order.min(order),
            None => {
                let (queue, plan) = (queue.clone(), plan.clone());
                self.ready.push(ReadyTasks { queue, plan, task, order });
            }
        }
    }

    /// The first place in claim order of the tasks of a queue that can be claimed from now on; a queue may
    /// come more than once.
    pub fn ready_orders(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        self.ready.iter().map(|ready| (&*ready.queue, ready.order))
    }

    /// The reasons to wake a worker; the default is none.
    pub fn for_worker(&self, worker: WorkerId, served: &ServedTasks) -> Wakeup {
        let can_run = |ready: &ReadyTasks| served.can_run(&ready.queue, &ready.plan, ready.task);
        let serves = |scope: &Scope| match scope {
            Scope::Run(_) => false,
            Scope::Queue(queue) => served.queues.contains(queue),
            Scope::Store => !served.queues.is_empty(),
        };
        Wakeup {
            is_notified: self.notified.contains(&worker),
            has_ready: self.unpaused.iter().any(serves) || self.ready.iter().any(can_run),
            has_ended: self.is_run_ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunId;
    use crate::decision::decide;
    use crate::delta::PauseChange;
    use crate::graph::{Graph, Node, OnFailure};
    use crate::memory::Memory;
    use crate::plan::TaskPlan;
    use crate::store::{Knows, NewRun, Operation, Request, RequestId, TaskKey};
    use crate::transaction::Transaction;
    use crate::want::Known;

    const WORKER: WorkerId = WorkerId(1);
    const RUN: RunId = RunId::from_u128(7);

    fn served(queues: &[&str], tasks: &[&str]) -> ServedTasks {
        let queues: Vec<String> = queues.iter().map(|&queue| queue.to_owned()).collect();
        let tasks = tasks.iter().map(|&task| ("w".to_owned(), task.to_owned())).collect();
        ServedTasks::new(&queues, &Knows::These(tasks))
    }

    /// The delta of a request, written to the memory as well.
    fn take(memory: &mut Memory, id: u64, change: impl FnOnce(&mut Request)) -> Wakeups {
        let mut request = Request::new(RequestId(id), Timestamp::from_micros(1));
        change(&mut request);
        let Ok(mut decision) = decide(&request, Known::new(), memory);
        let wakeups = Wakeups::of_delta(&decision.delta);
        let Ok(_) = memory.apply_delta(&mut decision.delta);
        wakeups
    }

    fn submit(request: &mut Request) {
        let graph = Graph::new([Node::new("a")]).expect("one task");
        let plan = Plan::new("w", graph, OnFailure::FailFast, vec![TaskPlan::default()]);
        request.submits.push(NewRun::new(RUN, Arc::new(plan), "q".into()));
    }

    #[test]
    fn ready_task_wakes_the_workers_that_can_run_it_and_no_other() {
        let wakeups = take(&mut Memory::default(), 1, submit);
        let ready = Wakeup { has_ready: true, ..Wakeup::default() };
        assert_eq!(wakeups.for_worker(WORKER, &served(&["p", "q"], &["a"])), ready);
        assert_eq!(wakeups.for_worker(WORKER, &served(&["p"], &["a"])), Wakeup::default());
        assert_eq!(wakeups.for_worker(WORKER, &served(&["q"], &["b"])), Wakeup::default());
    }

    #[test]
    fn end_of_a_run_is_a_reason_for_every_worker() {
        let mut memory = Memory::default();
        take(&mut memory, 1, submit);
        let wakeups = take(&mut memory, 2, |request| {
            request.operations.push(Operation::Cancel(RUN));
        });
        let ended = Wakeup { has_ended: true, ..Wakeup::default() };
        assert_eq!(wakeups.for_worker(WORKER, &served(&[], &[])), ended);
    }

    #[test]
    fn end_of_a_pause_wakes_workers_that_serve_the_queue() {
        let is_woken = |scope, begins, queues: &[&str]| {
            let pause = PauseChange { scope, begins, at: Timestamp::default() };
            let wakeups = Wakeups::of_delta(&Delta { pauses: vec![pause], ..Delta::default() });
            wakeups.for_worker(WORKER, &served(queues, &["a"])).has_ready
        };
        let queue = Scope::Queue("q".to_owned());
        assert!(is_woken(queue.clone(), false, &["q"]) && !is_woken(queue.clone(), true, &["q"]));
        assert!(!is_woken(queue, false, &["p"]));
        assert!(is_woken(Scope::Store, false, &["p"]) && !is_woken(Scope::Store, false, &[]));
    }

    #[test]
    fn notified_worker_is_woken_alone() {
        let notifications = [(WORKER, TaskKey(5))].into();
        let wakeups = Wakeups::of_delta(&Delta { notifications, ..Delta::default() });
        assert!(wakeups.for_worker(WORKER, &served(&[], &[])).is_notified);
        assert!(!wakeups.for_worker(WorkerId(2), &served(&[], &[])).is_notified);
    }
}
