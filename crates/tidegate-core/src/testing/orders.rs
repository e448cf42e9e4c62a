//! A memory store that carries out claim orders, as a store does that finds and changes rows in one
//! statement.

use crate::Timestamp;
use crate::decision::{ClaimOrder, OrderOutcome, PlainClaim, TakenTask, claim_plain_row};
use crate::delta::{Delta, TaskWrite};
use crate::memory::Memory;
use crate::store::TaskKey;
use crate::transaction::{ApplyOutcome, Transaction};
use crate::want::{Loaded, Loader, Want};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

/// A memory that carries out claim orders, for one request.
pub(crate) struct OrderTaker<'m> {
    memory: &'m mut Memory,
    /// Numbers that the request has got: a second decision gets the same.
    numbers: HashMap<Want, Loaded>,
}

impl<'m> OrderTaker<'m> {
    pub(crate) fn new(memory: &'m mut Memory) -> Self {
        OrderTaker { memory, numbers: HashMap::new() }
    }
}

impl Loader for OrderTaker<'_> {
    type Stop = Infallible;

    fn load(&mut self, want: &Want) -> Result<Loaded, Infallible> {
        if let Some(number) = self.numbers.get(want) {
            return Ok(number.clone());
        }
        let loaded = self.memory.load(want)?;
        if let Want::TaskNumbers { .. } | Want::SignalNumber { .. } = want {
            self.numbers.insert(want.clone(), loaded.clone());
        }
        Ok(loaded)
    }
}

impl Transaction for OrderTaker<'_> {
    fn apply_delta(&mut self, delta: &mut Delta) -> Result<ApplyOutcome, Infallible> {
        self.memory.apply_delta(delta)
    }

    fn takes_orders(&self) -> bool {
        true
    }

    fn apply_with_order(
        &mut self,
        delta: &mut Delta,
        order: &ClaimOrder,
    ) -> Result<Option<OrderOutcome>, Infallible> {
        let memory = &mut *self.memory;
        let Some((found, has_more)) = memory.find_ordered(delta, order) else { return Ok(None) };
        memory.apply_delta(delta)?;
        let mut taken = Vec::with_capacity(found.len());
        for (place, (at, task)) in found.into_iter().enumerate() {
            taken.push(memory.claim_row(&order.claim_at(place), at, task));
        }
        Ok(Some(OrderOutcome { taken, has_more }))
    }
}

/// Tasks by claim order, and whether there are more.
type OrderedTasks = (Vec<(Timestamp, TaskKey)>, bool);

impl Memory {
    /// The tasks that an order takes once the delta is applied; `None` if a row that is not plain stands
    /// among them.
    fn find_ordered(&self, delta: &Delta, order: &ClaimOrder) -> Option<OrderedTasks> {
        let max = order.max_tasks() as usize;
        let written: HashSet<TaskKey> = delta.tasks.iter().map(|write| write.row.key).collect();
        let wanted = max + 1 + written.len();
        let stored = self.find_ready(order.worker, order.max_weight, false, &[], wanted);
        let stored = stored.into_iter().filter(|(_, task)| !written.contains(task));
        let mut ready: Vec<_> = stored.map(|(at, task)| (at, task, self.is_plain(task))).collect();
        for write in delta.tasks.iter().filter(|write| self.is_claimable(write, order)) {
            let at = write.place.order.expect("a ready task has a place in claim order");
            ready.push((at, write.row.key, write.is_plain));
        }
        ready.sort_unstable();
        let has_more = ready.len() > max;
        ready.truncate(max);
        if ready.iter().any(|(.., is_plain)| !is_plain) {
            return None;
        }
        Some((ready.into_iter().map(|(at, task, _)| (at, task)).collect(), has_more))
    }

    fn is_plain(&self, task: TaskKey) -> bool {
        self.task_at(task).is_plain
    }

    /// Whether a row of a delta can be claimed once it is written.
    fn is_claimable(&self, write: &TaskWrite, order: &ClaimOrder) -> bool {
        let TaskWrite { row, place, queue, .. } = write;
        place.gate.is_some_and(|gate| gate.is_open())
            && row.planned().weight <= order.max_weight
            && order.served.can_run(queue, &row.plan, row.index)
            && !self.is_queue_paused(queue, &[])
    }

    /// Claims a plain row that is written.
    fn claim_row(&mut self, claim: &PlainClaim, order: Timestamp, task: TaskKey) -> TakenTask {
        let row = claim_plain_row(self.task_at(task).row.clone(), claim).expect("it is ready");
        let head = self.head_of(row.run());
        let run = head.id;
        let write = TaskWrite {
            place: row.place(head, claim.at, Duration::ZERO),
            queue: head.queue.clone(),
            row: row.clone(),
            is_run_ended: false,
            is_new: false,
            is_final: false,
            is_plain: false,
        };
        self.write_task(write);
        TakenTask { row, run, order }
    }
}
