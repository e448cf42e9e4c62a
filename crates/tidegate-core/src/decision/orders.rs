//! Claims that are left to the store.
//!
//! Most claims take tasks whose claim bears on nothing but their own rows: [plain](Row::is_plain) ones. A
//! store that can find and change such rows in one statement need not load them before: the decision
//! gives it a [`ClaimOrder`], which it carries out behind the delta. Every plain row changes in the same
//! way, [`claim_plain_row`]; the order takes plain rows only as long as no other row that could be claimed
//! stands in front, so that it takes the same tasks as the decision would have.

use super::claim::{InputsFrom, make_given};
use super::{Decision, Taking};
use crate::lifecycle::{Event, Kind, State, WorkerId};
use crate::rows::Row;
use crate::store::{Claim, Claimed, Reply, Request, RequestId};
use crate::want::{Loader, LookUps, ServedTasks};
use crate::{RunId, Timestamp};
use std::sync::Arc;

/// A claim that a store carries out behind the delta of the same decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimOrder {
    /// The worker that claims.
    pub worker: WorkerId,
    /// The queues that it serves and the tasks that it knows.
    pub served: Arc<ServedTasks>,
    /// The heaviest task that it could ever run: others do not stand in front.
    pub max_weight: u32,
    /// Tasks that it claims and begins: the first ones, by claim order and number.
    pub begun: u32,
    /// Tasks that it claims after these, to begin later.
    pub ahead: u32,
    /// The request.
    pub request: RequestId,
    /// Its time.
    pub now: Timestamp,
}

impl ClaimOrder {
    /// At most this many tasks are claimed.
    pub fn max_tasks(&self) -> u32 {
        self.begun.saturating_add(self.ahead)
    }

    /// The claim of the task at this place among those that it takes.
    pub fn claim_at(&self, place: usize) -> PlainClaim {
        let ClaimOrder { worker, request, now, .. } = *self;
        PlainClaim { worker, request, at: now, begins: place < self.begun as usize }
    }
}

/// The claim of one plain row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainClaim {
    /// The worker that claims it.
    pub worker: WorkerId,
    /// The request.
    pub request: RequestId,
    /// Its time.
    pub at: Timestamp,
    /// Whether the task begins at once.
    pub begins: bool,
}

/// The outcome of a claim order.
#[derive(Debug, Default)]
pub struct OrderOutcome {
    /// The tasks that were claimed, by claim order and number.
    pub taken: Vec<TakenTask>,
    /// Whether there are more that could be claimed.
    pub has_more: bool,
}

/// A plain task that an order has claimed.
#[derive(Debug)]
pub struct TakenTask {
    /// Its row, claimed.
    pub row: Row,
    /// Its run.
    pub run: RunId,
    /// Its place in claim order, when it was ready.
    pub order: Timestamp,
}

/// Claims a plain row; `None` if it is not ready. It is found nowhere among ready rows afterwards and has no
/// alarm.
pub fn claim_plain_row(mut row: Row, claim: &PlainClaim) -> Option<Row> {
    let PlainClaim { worker, request, at, begins } = *claim;
    let State::Ready { due, .. } = row.life.state else { return None };
    let rules = &row.plan.task(row.index).rules;
    // As in any claim: the row was due by a clock that may be ahead of ours.
    let claimed = row.life.next(rules, &Event::Claim { worker }, due.max(at));
    let mut life = claimed.expect("a ready task can be claimed").into_life();
    if begins {
        let begin = Event::Begin { fence: life.fence };
        life = life.next(rules, &begin, at).expect("a claimed task can begin").into_life();
    }
    (row.life, row.request) = (life, request);
    Some(row)
}

/// Whether the claim of a request can be left to the store, as far as the request says: it is not repeated,
/// and the room of the worker does not bound it.
pub(crate) fn may_order(request: &Request) -> bool {
    let Claim { units, ahead, heaviest, room } = request.claim;
    !request.again && heaviest > 0 && room >= units.saturating_add(ahead).max(1)
}

impl<L: Loader> Taking<'_, L> {
    /// The order for this claim, if the store takes orders and may carry it out.
    pub(super) fn make_order(&mut self, worker: WorkerId) -> Result<Option<ClaimOrder>, L::Stop> {
        let claim = &self.request.claim;
        let Some(served) = self.served.clone() else { return Ok(None) };
        let is_allowed = self.rows.takes_orders()
            && may_order(self.request)
            && self.rows.delta.pauses.is_empty()
            && self.tasks.iter().all(|task| !task.dirty || self.is_out_of_way(task));
        if !is_allowed || self.is_ready_task_notified(worker)? {
            return Ok(None);
        }
        Ok(Some(ClaimOrder {
            worker,
            served,
            max_weight: claim.heaviest,
            begun: claim.units,
            ahead: claim.ahead,
            request: self.request.id,
            now: self.now,
        }))
    }

    /// Whether the worker has a notification of a task that it might claim: the reply to it depends on
    /// whether it does.
    fn is_ready_task_notified(&mut self, worker: WorkerId) -> Result<bool, L::Stop> {
        for task in self.rows.load_notifications(worker)? {
            let at = self.task(task)?;
            if at.is_some_and(|at| self.tasks[at].row.life.state.kind() == Kind::Ready) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a changed task cannot be claimed, or can be by an order.
    fn is_out_of_way(&self, task: &super::Task) -> bool {
        let place = task.row.place(self.head(task.run), self.now, task.stood_still);
        !place.gate.is_some_and(|gate| gate.is_open()) || task.row.is_plain(&place)
    }
}

impl Decision {
    /// Adds the tasks that its order has claimed to the reply.
    pub fn add_taken(&mut self, outcome: OrderOutcome) {
        let Reply { claimed, more, .. } = &mut self.reply;
        *more |= outcome.has_more;
        for TakenTask { row, run, order } in outcome.taken {
            let Row { key, index, plan, life, .. } = row;
            let given = make_given(plan.clone(), index);
            let (waits, awaited) = (Vec::new(), false);
            claimed.push(Claimed { key, index, plan, run, life, order, given, waits, awaited });
            self.fill.inputs.push(InputsFrom::of_stored_run(key.run(index)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::decide;
    use crate::graph::{Graph, Node, OnFailure};
    use crate::memory::Memory;
    use crate::plan::{Plan, TaskPlan};
    use crate::store::{Knows, NewRun, Operation, Scope};
    use crate::want::{Known, Loaded, Want};
    use std::convert::Infallible;

    const WORKER: WorkerId = WorkerId(1);

    /// A memory that knows a worker of queue "q".
    #[derive(Default)]
    struct ServedMemory(Memory);

    impl Loader for ServedMemory {
        type Stop = Infallible;

        fn load(&mut self, want: &Want) -> Result<Loaded, Infallible> {
            if let Want::Served(_) = want {
                let served = ServedTasks::new(&["q".to_owned()], &Knows::All);
                return Ok(Loaded::Served(Some(Arc::new(served))));
            }
            self.0.load(want)
        }
    }

    /// A request of the worker, which submits a run of one task.
    fn make_request(task: TaskPlan) -> Request {
        let graph = Graph::new([Node::new("a")]).expect("one task");
        let plan = Plan::new("w", graph, OnFailure::FailFast, vec![task]);
        let new = NewRun::new(RunId::from_u128(7), Arc::new(plan), "q".into());
        let claim = Claim { units: 2, ahead: 1, heaviest: 4, room: 3 };
        let request = Request::new(RequestId(1), Timestamp::from_micros(1));
        Request { worker: Some(WORKER), submits: vec![new], claim, ..request }
    }

    fn decide_order(request: &Request, takes_orders: bool) -> (Option<ClaimOrder>, usize) {
        let known = Known::new().taking_orders(takes_orders);
        let Ok(decision) = decide(request, known, &mut ServedMemory::default());
        (decision.order, decision.reply.claimed.len())
    }

    #[test]
    fn store_that_takes_orders_gets_the_claim_of_plain_tasks() {
        let request = make_request(TaskPlan::default());
        let (order, claimed) = decide_order(&request, true);
        let order = order.expect("all ready tasks are plain");
        assert_eq!((order.begun, order.ahead, order.max_weight, claimed), (2, 1, 4, 0));
        assert_eq!(decide_order(&request, false), (None, 1));
    }

    #[test]
    fn claim_is_decided_where_an_order_might_take_other_tasks() {
        let heavy = make_request(TaskPlan { weight: 2, ..TaskPlan::default() });
        assert_eq!(decide_order(&heavy, true), (None, 1), "its own task is not plain");
        let mut bounded = make_request(TaskPlan::default());
        bounded.claim.room = 2;
        assert_eq!(decide_order(&bounded, true).0, None);
        let again = Request { again: true, ..make_request(TaskPlan::default()) };
        assert_eq!(decide_order(&again, true).0, None);
        let mut pausing = make_request(TaskPlan::default());
        pausing.operations.push(Operation::Pause(Scope::Queue("q".to_owned())));
        assert_eq!(decide_order(&pausing, true), (None, 0));
    }
}
