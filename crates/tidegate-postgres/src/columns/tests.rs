//! Rows that are packed and unpacked again, and bytes that no row was packed into.

use super::*;
use std::time::Duration;
use tidegate_core::graph::{Graph, Node, OnFailure, RunOutcome};
use tidegate_core::lifecycle::{Activity, CancelledBy, Fence, Reason, State};
use tidegate_core::plan::TaskPlan;
use tidegate_core::rows::{Columns, Head};
use tidegate_core::store::{Happened, Record, RunKey};

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

#[test]
fn runs_are_read_as_they_were_written() {
    let empty = Head {
        key: None,
        parent: None,
        retry_of: None,
        not_before: None,
        paused_at: Some(make_time(3)),
        cancelled: true,
        ended: Some((RunOutcome::Cancelled, make_time(4))),
        ..make_head()
    };
    for head in [make_head(), empty] {
        let run = unpack_run(&pack_run(&head)).expect("a sound run");
        assert_eq!(run.into_head(head.id, head.queue.clone()), head);
    }
}

#[test]
fn endings_are_read_as_they_were_written() {
    let record = Record {
        seq: 1,
        at: make_time(10),
        run: RunKey(40),
        run_id: RunId::from_u128(77),
        task: TaskIndex::from_u32(0),
        what: Happened::Failed,
        reason: Some(Reason::Panic),
        attempt: 3,
        entry: 4,
        worker: Some(WorkerId(u64::MAX)),
        begun_at: Some(make_time(9)),
        active: Duration::from_micros(77),
        error: Some("oh".to_owned()),
    };
    let bare = Record { reason: None, worker: None, begun_at: None, error: None, ..record.clone() };
    for record in [record, bare] {
        let ending = unpack_ending(&pack_ending(&record)).expect("a sound ending");
        assert_eq!(ending.reason, record.reason);
        assert_eq!((ending.attempt, ending.entry), (record.attempt, record.entry));
        assert_eq!((ending.worker, ending.begun_at), (record.worker, record.begun_at));
        assert_eq!((ending.active, ending.error), (record.active, record.error));
    }
}

/// A damaged row must be reported by its number; a panic would take the store with it.
#[test]
fn damaged_bytes_are_an_error_or_another_value_and_never_a_panic() {
    let row = make_row(list_states().remove(4), 0);
    let packed = [pack_lifecycle(&row), pack_run(&make_head())];
    for bytes in &packed {
        for length in 0..bytes.len() {
            assert!(unpack_lifecycle(&bytes[..length]).is_err() || bytes == &packed[1]);
            assert!(unpack_run(&bytes[..length]).is_err() || bytes == &packed[0]);
        }
        for place in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                let _ = unpack_lifecycle(&damaged);
                let _ = unpack_run(&damaged);
                let _ = unpack_ending(&damaged);
            }
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(unpack_lifecycle(&longer).is_err() || bytes == &packed[1]);
    }
    assert!(unpack_lifecycle(&[VERSION + 1, 0, 0, 0, 0, 0]).is_err(), "a version of later");
    assert!(unpack_ending(&[]).is_err());
}

#[test]
fn usual_ended_row_is_short() {
    let mut row = make_row(State::Succeeded, 1);
    let life = &mut row.life;
    (life.attempt, life.entries, life.recoveries, life.stopping) = (1, 1, 0, None);
    (row.has_waits, row.ended_at) = (false, Some(make_time(1_700_000_001_100_000)));
    assert!(pack_lifecycle(&row).len() <= 24, "{} bytes", pack_lifecycle(&row).len());
}
