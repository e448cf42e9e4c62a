//! Rows that are packed and unpacked again, and bytes that no row was packed into.

use super::*;
use crate::graph::{Graph, Node, OnFailure, RunOutcome, TaskIndex};
use crate::lifecycle::{Activity, CancelledBy, Fence, Life, Reason, State, WorkerId};
use crate::plan::{Plan, TaskPlan};
use crate::rows::{Head, Row};
use crate::store::{Happened, Record, RequestId, RunKey, TaskKey};
use crate::{RunId, Timestamp};
use std::sync::Arc;
use std::time::Duration;

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
        open_parents: 70_000,
        has_inserts_above: true,
        behind: None,
        head: (index == 0).then(|| Box::new(make_head())),
    }
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
fn lifecycles_are_read_as_they_were_written() {
    for state in list_states() {
        let stored = StoredLifecycle::from_row(&make_row(state, 1));
        let looked = StoredLifecycle { last_look: Some("3 of 5".to_owned()), ..stored.clone() };
        let bare = StoredLifecycle { open_parents: 0, has_inserts_above: false, ..stored.clone() };
        for stored in [stored, looked, bare] {
            assert_eq!(unpack_lifecycle(&stored.to_bytes()), Ok(stored));
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
        depth: 0,
        ..make_head()
    };
    for head in [make_head(), empty] {
        let run = unpack_run(&pack_run(&head)).expect("a sound run");
        let tolerant = StoredRun { max_failures: Some(0), failures: 400, ..run.clone() };
        assert_eq!(unpack_run(&tolerant.to_bytes()), Ok(tolerant));
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
        assert_eq!(ending, Ending::from_record(&record));
        let (ready_at, slot) = (Some(make_time(-9)), Some(700));
        let whole = Ending { ready_at, slot, ..ending };
        assert_eq!(unpack_ending(&whole.to_bytes()), Ok(whole));
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
    (row.open_parents, row.has_inserts_above) = (0, false);
    (row.has_waits, row.ended_at) = (false, Some(make_time(1_700_000_001_100_000)));
    assert!(pack_lifecycle(&row).len() <= 24, "{} bytes", pack_lifecycle(&row).len());
}
