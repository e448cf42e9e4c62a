//! The way of a request through a transaction of a store: load, decide, apply, fill.

use crate::decision::{self, ClaimOrder, Decision, OrderOutcome};
use crate::delta::Delta;
use crate::store::{Reply, Request};
use crate::testing::{PausePoints, PausingLoader};
use crate::wakeup::Wakeups;
use crate::want::{Known, Loader};

/// A transaction of a store: it loads rows, and applies the delta of a decision.
pub trait Transaction: Loader {
    /// Writes a delta and sets the numbers of its records. Rows are moved out of it. Or writes nothing
    /// of it, because rows that it rests on have changed since they were loaded.
    ///
    /// # Errors
    /// Stops the request; the transaction must not be committed.
    fn apply_delta(&mut self, delta: &mut Delta) -> Result<ApplyOutcome, Self::Stop>;

    /// Whether it carries out claim orders.
    fn takes_orders(&self) -> bool {
        false
    }

    /// Writes a delta like [`apply_delta`](Self::apply_delta) and carries out an order behind it: it changes
    /// the first plain rows that the worker can claim, those of the delta included, by
    /// [`claim_plain_row`](decision::claim_plain_row). Or writes nothing and answers `None`, also where
    /// a row that is not plain stands in front of one that the order would take.
    ///
    /// # Errors
    /// Stops the request; the transaction must not be committed.
    fn apply_with_order(
        &mut self,
        _delta: &mut Delta,
        _order: &ClaimOrder,
    ) -> Result<Option<OrderOutcome>, Self::Stop> {
        unreachable!("a store that takes no orders gets none")
    }
}

/// The outcome of an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// Everything is written.
    Applied,
    /// Nothing is written: another transaction was faster, and the request is decided again with rows
    /// loaded anew. A store that holds its locks from the load on never answers so.
    Stale,
}

/// Answers a request in a transaction, which the caller commits, and finds the workers to wake after
/// that.
///
/// # Errors
/// The transaction's stop; it must not be committed then.
pub fn answer_request<T: Transaction>(
    request: &Request,
    transaction: &mut T,
    points: Option<&dyn PausePoints>,
) -> Result<(Reply, Wakeups), T::Stop> {
    let mut takes_orders = transaction.takes_orders();
    loop {
        let mut loader = PausingLoader::new(transaction, points);
        let known = Known::new().taking_orders(takes_orders);
        let decision = decision::decide(request, known, &mut loader)?;
        // An order that cannot be carried out is stale, and would be again.
        takes_orders = false;
        if let Some(answered) = apply_decision(decision, transaction, points)? {
            return Ok(answered);
        }
    }
}

/// Applies a decision and completes its reply; `None` if it was stale.
///
/// # Errors
/// The transaction's stop; it must not be committed then.
pub fn apply_decision<T: Transaction>(
    mut decision: Decision,
    transaction: &mut T,
    points: Option<&dyn PausePoints>,
) -> Result<Option<(Reply, Wakeups)>, T::Stop> {
    if let Some(points) = points {
        points.before_apply();
    }
    let wakeups = Wakeups::of_delta(&decision.delta);
    match decision.order.take() {
        None => {
            if transaction.apply_delta(&mut decision.delta)? == ApplyOutcome::Stale {
                return Ok(None);
            }
        }
        Some(order) => match transaction.apply_with_order(&mut decision.delta, &order)? {
            Some(outcome) => decision.add_taken(outcome),
            None => return Ok(None),
        },
    }
    let Decision { delta, mut reply, fill, .. } = decision;
    reply.records = delta.records;
    let mut loader = PausingLoader::new(transaction, points);
    decision::complete_reply(&mut loader, &mut reply, &fill)?;
    Ok(Some((reply, wakeups)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Node, OnFailure};
    use crate::memory::Memory;
    use crate::plan::{Plan, TaskPlan};
    use crate::store::{NewRun, Operation, OperationOutcome, RequestId};
    use crate::want::{Loaded, Want};
    use crate::{RunId, Timestamp};
    use std::convert::Infallible;
    use std::sync::Arc;

    const RUN: RunId = RunId::from_u128(7);

    fn request(id: u64, operations: Vec<Operation>) -> Request {
        Request { operations, ..Request::new(RequestId(id), Timestamp::from_micros(1)) }
    }

    /// A transaction in whose way another request comes between load and apply.
    struct Overtaken {
        memory: Memory,
        by: Vec<Request>,
        loads: u32,
    }

    impl Loader for Overtaken {
        type Stop = Infallible;

        fn load(&mut self, want: &Want) -> Result<Loaded, Infallible> {
            self.loads += 1;
            self.memory.load(want)
        }
    }

    impl Transaction for Overtaken {
        fn apply_delta(&mut self, delta: &mut Delta) -> Result<ApplyOutcome, Infallible> {
            let Some(other) = self.by.pop() else { return self.memory.apply_delta(delta) };
            let Ok(_) = answer_request(&other, &mut self.memory, None);
            Ok(ApplyOutcome::Stale)
        }
    }

    #[test]
    fn stale_decision_is_decided_again_on_the_rows_of_the_faster_request() {
        let graph = Graph::new([Node::new("a")]).expect("one task");
        let plan = Plan::new("w", graph, OnFailure::FailFast, vec![TaskPlan::default()]);
        let new = NewRun::new(RUN, Arc::new(plan), "q".into());
        let mut memory = Memory::default();
        let submit = Request { submits: vec![new], ..request(1, Vec::new()) };
        let Ok((reply, _)) = answer_request(&submit, &mut memory, None);
        assert!(reply.submits[0].is_ok());

        let by = vec![request(3, vec![Operation::Cancel(RUN)]), request(4, Vec::new())];
        let mut overtaken = Overtaken { memory, by, loads: 0 };
        let cancel = request(2, vec![Operation::Cancel(RUN)]);
        let Ok((reply, _)) = answer_request(&cancel, &mut overtaken, None);
        assert_eq!(reply.operations, [OperationOutcome::Already], "the other has cancelled it");
        assert!(reply.ended.is_empty() && overtaken.by.is_empty() && overtaken.loads > 3);
    }
}
