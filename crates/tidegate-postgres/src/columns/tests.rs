//! Rows that are stored and read again.

use super::*;
use std::time::Duration;
use tidegate_core::graph::{Graph, Node, OnFailure};
use tidegate_core::lifecycle::{Activity, CancelledBy, Fence, Reason, State};
use tidegate_core::plan::TaskPlan;
use tidegate_core::rows::{Columns, Head};

fn make_time(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn make_plan() -> Arc<Plan> {
    let graph = Graph::new([Node::new("a"), Node::new("b")]).expect("two tasks");
    let tasks = vec![TaskPlan::default(), TaskPlan::default()];
    Arc::new(Plan::new("w", graph, OnFailure::FailFast, tasks))
}

fn make_head() -> Head {
    Head {
        id: RunId::from_u128(77),
        queue: "q".into(),
        priority: -3,
        key: Some("schlüssel".to_owned()),
        parent: Some(TaskKey(12)),
        retry_of: Some(RunId::from_u128(u128::MAX - 5)),
        not_before: Some(make_time(1_700_000_000_000_001)),
        submitted_at: make_time(1_700_000_000_000_000),
        paused_at: None,
        cancelled: false,
        failing: true,
        open: 2,
        awaited: true,
        ended: None,
        depth: 3,
    }
}

fn make_row(state: State, index: u32) -> Row {
    let life = Life {
        state,
        fence: Fence(9),
        attempt: 2,
        entries: 300,
        recoveries: 1,
        active: Duration::from_micros(123_456_789),
        started: Some(make_time(1_700_000_001_000_000)),
        stopping: Some(CancelledBy::User),
    };
    Row {
        key: TaskKey(40 + i64::from(index)),
        index: TaskIndex::from_u32(index),
        plan: make_plan(),
        life,
        request: RequestId(u64::MAX),
        ended_at: Some(make_time(-5)),
        has_waits: true,
        open_parents: 2,
        has_inserts_above: true,
        behind: None,
        head: (index == 0).then(|| Box::new(make_head())),
    }
}

/// The columns of a row as a statement would return them.
fn store_row(row: &Row) -> TaskColumns {
    let columns = Columns::from(&row.life);
    TaskColumns {
        key: row.key.0,
        index: row.index.as_u32() as i32,
        plan: 1,
        task_group: 1,
        request: row.request.0 as i64,
        fence: row.life.fence.0 as i64,
        state: columns.state.into(),
        eligibility: None,
        worker: columns.worker.map(|worker| worker.0 as i64),
        claim_order: None,
        alarm: None,
        blocked_on: None,
        lifecycle: pack_lifecycle(row),
        claimed_at: None,
        run_id: row.head.as_ref().map(|head| Uuid(head.id.as_u128())),
        run: row.head.as_deref().map(pack_run),
    }
}

fn name_things(row: &Row) -> NamedThings {
    NamedThings { plan: row.plan.clone(), queue: Some("q".into()), limit: None }
}

fn list_states() -> Vec<State> {
    let (worker, ready_since) = (WorkerId(5), make_time(1_700_000_000_500_000));
    let running = |activity| State::Running { worker, ready_since, activity };
    let (begun_at, since, wait) = (make_time(7), make_time(8), "signal \"go\"".to_owned());
    let deferred = Activity::Deferred { begun_at, since, wait: wait.clone() };
    vec![
        State::Blocked,
        State::Ready { since: make_time(1), due: make_time(2) },
        running(Activity::Claimed),
        running(Activity::Active { begun_at }),
        running(deferred),
        State::Parked { since, wake: None, wait: wait.clone() },
        State::Parked { since, wake: Some(make_time(i64::MAX)), wait },
        State::Succeeded,
        State::Failed(Reason::Panic),
        State::TimedOut(Reason::Deadline),
        State::Cancelled(Reason::User),
        State::Skipped,
    ]
}

#[test]
fn rows_are_read_as_they_were_written() {
    for state in list_states() {
        for index in [0, 1] {
            let row = make_row(state.clone(), index);
            let stored = store_row(&row);
            assert!(stored.is_packed_row(&row));
            assert_eq!(stored.into_row(name_things(&row)).expect("a sound row"), row);
        }
    }
}
