//! The way of a request through a transaction of a store: load, decide, apply, fill.

use crate::decision::{self, Decision};
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
    loop {
        let mut loader = PausingLoader::new(transaction, points);
        let decision = decision::decide(request, Known::new(), &mut loader)?;
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
    decision: Decision,
    transaction: &mut T,
    points: Option<&dyn PausePoints>,
) -> Result<Option<(Reply, Wakeups)>, T::Stop> {
    let Decision { mut delta, mut reply, fill } = decision;
    if let Some(points) = points {
        points.before_apply();
    }
    let wakeups = Wakeups::of_delta(&delta);
    if transaction.apply_delta(&mut delta)? == ApplyOutcome::Stale {
        return Ok(None);
    }
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
