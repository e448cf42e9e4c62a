//! What every store must do, one sentence per function.
//!
//! Everything is said through the `Store` trait, by hand-made requests on a clock that is set by hand.
//! What must hold after every request (the lifecycle allows it, the answer tells it, the audit is
//! clean) is checked by [`World::take`](crate::World::take) and not said again here.

#![allow(missing_docs, reason = "the name of a case says what it is about")]

pub mod cancel;
pub mod chance;
pub mod children;
pub mod claims;
pub mod clocks;
pub mod deaths;
pub mod depth;
pub mod explain;
pub mod graphs;
pub mod items;
pub mod limits;
pub mod lost_answers;
pub mod parks;
pub mod pauses;
pub mod rates;
pub mod reading;
pub mod retakes;
pub mod retention;
pub mod retried_items;
pub mod retries;
pub mod retries_of_runs;
pub mod signals;
pub mod size;
pub mod submits;
pub mod waiting;
pub mod waits;

use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::lifecycle::{Activity, Life, State};

const SECOND: Duration = Duration::from_secs(1);

/// Where a life stands, without its worker and times, for tables.
fn due_of(life: &Life) -> Timestamp {
    match life.state {
        State::Ready { due, .. } => due,
        ref other => panic!("the task is not ready: {other:?}"),
    }
}

/// When the body was entered.
fn begun_at(life: &Life) -> Timestamp {
    match life.state {
        State::Running { activity: Activity::Active { begun_at }, .. } => begun_at,
        ref other => panic!("the task is not active: {other:?}"),
    }
}
