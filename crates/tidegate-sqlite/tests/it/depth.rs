//! Chains of runs, each begun by a task of the one above.

use crate::support::{assert_sound, enlist, new_run, open, plan, request, take};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate_core::RunId;
use tidegate_core::graph::{RunOutcome, TaskIndex};
use tidegate_core::lifecycle::{Fence, WorkerId};
use tidegate_core::store::{
    Claim, Operation, OperationOutcome, Parent, Reply, Request, RunKey, Scope, Store,
};
use tidegate_core::wait::{WaitId, WaitKind};
use tidegate_sqlite::SqliteStore;

/// Far more levels than a recursion would have stack for; as many as take seconds.
const LEVELS: usize = if cfg!(debug_assertions) { 5_000 } else { 100_000 };

/// Requests that each begin a run below the last, and take its task. They do not wait for one another,
/// so that many are written in one transaction: what they are about is known before.
async fn begin_chain(store: &SqliteStore, worker: WorkerId) -> Vec<RunId> {
    let plan = plan("w");
    let mut above: Option<RunKey> = None;
    let mut runs = Vec::new();
    let mut begin = || {
        let mut new = new_run(&plan, b"1");
        let wait = WaitId::new(WaitKind::Child, "", 0);
        new.parent =
            above.map(|above| Parent::new(above.task(TaskIndex::from_u32(0)), Fence(1), wait));
        above = Some(above.map_or(RunKey(1), |above| RunKey(above.0 + 1)));
        runs.push(new.id);
        let claim = Claim { units: 1, ahead: 0, heaviest: 1, room: u32::MAX };
        let (worker, child_depth_max) = (Some(worker), u32::MAX);
        Request { worker, child_depth_max, submits: vec![new], claim, ..request() }
    };
    let begun = |reply: Reply, level: usize| {
        let key = reply.claimed[0].key.run(TaskIndex::from_u32(0));
        assert_eq!(key, RunKey(i64::try_from(level).unwrap() + 1), "it is the one that is begun");
    };
    let mut asked = Vec::new();
    for level in 0..LEVELS {
        let mut answer = store.request(Arc::new(begin()));
        match Pin::new(&mut answer).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => begun(reply.unwrap(), level),
            Poll::Pending => asked.push((level, answer)),
        }
    }
    for (level, answer) in asked {
        begun(answer.await.unwrap(), level);
    }
    runs
}

async fn ask(store: &SqliteStore, operation: Operation) -> Reply {
    let reply = take(store, Request { operations: vec![operation], ..request() }).await.unwrap();
    assert_eq!(reply.operations, [OperationOutcome::Yes]);
    reply
}

#[tokio::test]
async fn stored_chain_of_thousands_of_children_is_paused_and_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let worker = enlist(&store).await;
    let runs = begin_chain(&store, worker).await;
    store.close().await;
    drop(store);

    let store = open(&path);
    let (top, lowest) = (runs[0], runs[LEVELS - 1]);
    let view = async || store.run(lowest).await.unwrap().unwrap().run;
    ask(&store, Operation::Pause(Scope::Run(top))).await;
    assert!(view().await.paused_at.is_some());
    ask(&store, Operation::Unpause(Scope::Run(top))).await;
    assert!(view().await.paused_at.is_none());
    let reply = ask(&store, Operation::Cancel(top)).await;
    assert_eq!(reply.ended.len(), LEVELS);
    assert_eq!(view().await.ended.map(|(outcome, _)| outcome), Some(RunOutcome::Cancelled));
    assert_sound(&store).await;
}
