//! The usual request of a worker loads nothing: it is decided by what its process remembers.

use super::support::{QUEUE, enlist, open_new, submit_request};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidegate_core::lifecycle::{Event, WorkerId};
use tidegate_core::store::{
    Applied, Change, Claim, Claimed, Knows, NewRun, NewWorker, Operation, Reply, Request,
    RequestId, Scope, Store,
};
use tidegate_core::testing::PausePoints;
use tidegate_core::want::Want;
use tidegate_core::{RunId, Timestamp};
use tidegate_postgres::PostgresStore;
use tidegate_testkit::{PostgresSchema, chain, one};

/// Counts the trips that load rows.
#[derive(Debug, Default)]
pub(super) struct LoadCounter {
    loads: AtomicU32,
}

impl PausePoints for LoadCounter {
    fn before_load(&self, _: &Want) {
        self.loads.fetch_add(1, Ordering::Relaxed);
    }

    fn before_apply(&self) {}
    fn before_commit(&self) {}
    fn on_blocked(&self) {}
}

impl LoadCounter {
    /// How many there were since it was last asked.
    pub(super) fn take_loads(&self) -> u32 {
        self.loads.swap(0, Ordering::Relaxed)
    }
}

/// A store whose loads are counted.
pub(super) async fn open_counted(url: &str) -> (PostgresStore, Arc<LoadCounter>) {
    let counter = Arc::<LoadCounter>::default();
    (PostgresStore::open_store_with(url, counter.clone()).await.unwrap(), counter)
}

/// A store whose loads are counted, with a worker.
async fn open_served() -> (PostgresSchema, PostgresStore, Arc<LoadCounter>, WorkerId) {
    let schema = PostgresSchema::new();
    let (store, counter) = open_counted(&schema.store_url()).await;
    let worker = enlist(&store, "w").await;
    (schema, store, counter, worker)
}

fn request_of(worker: WorkerId, id: u64, units: u32) -> Request {
    let claim = Claim { units, ahead: 0, heaviest: 8, room: 100 };
    let request = Request::new(RequestId(id), Timestamp::from_micros(10));
    Request { worker: Some(worker), claim, ..request }
}

async fn send(store: &PostgresStore, request: Request) -> Reply {
    store.request(Arc::new(request)).await.unwrap()
}

fn end_of(task: &Claimed) -> Change {
    Change::new(task.key, task.index, Event::Succeed { fence: task.life.fence })
}

#[tokio::test]
async fn worker_submits_claims_and_ends_without_a_load() {
    let (_schema, store, counter, worker) = open_served().await;
    let submit = Request { submits: submit_request(1).submits.clone(), ..request_of(worker, 1, 0) };
    assert!(send(&store, submit).await.more);
    // Nothing was ever filed in the queue before.
    assert_eq!(counter.take_loads(), 1);
    let claimed = send(&store, request_of(worker, 2, 1)).await.claimed;
    assert_eq!(claimed.len(), 1);
    let mut next = request_of(worker, 3, 1);
    next.changes.push(end_of(&claimed[0]));
    next.submits.clone_from(&submit_request(2).submits);
    let reply = send(&store, next).await;
    assert_eq!((&reply.changes[..], reply.ended.len()), (&[Applied::Yes][..], 1));
    assert_eq!(reply.claimed[0].run, RunId::from_u128(2));
    assert_eq!(counter.take_loads(), 0);
    store.close_store().await;
}

#[tokio::test]
async fn worker_claims_no_task_whose_name_it_does_not_know() {
    let (schema, store) = open_new().await;
    let knows = Knows::These(vec![("one".to_owned(), "a".to_owned())]);
    let new = NewWorker {
        now: Timestamp::from_micros(1),
        name: "w".to_owned(),
        queues: vec![QUEUE.to_owned()],
        knows,
        slots: 8,
    };
    let worker = store.enlist(new).await.unwrap();
    store.request(submit_request(1)).await.unwrap();
    assert_eq!(send(&store, request_of(worker, 2, 1)).await.claimed.len(), 1);
    // Another process brings in another name, and the first one is not told of it.
    let url = format!("{}&notifications=off", schema.store_url());
    let other = PostgresStore::open_store(&url).await.unwrap();
    for (id, plan) in [(3, chain(1).build()), (4, one().build())] {
        let mut submit = Request::new(RequestId(id), Timestamp::from_micros(10));
        submit.submits.push(NewRun::new(RunId::from_u128(id.into()), plan, QUEUE.into()));
        send(&other, submit).await;
    }
    let claimed = send(&store, request_of(worker, 5, 2)).await.claimed;
    assert_eq!(claimed.iter().map(|task| task.run).collect::<Vec<_>>(), [RunId::from_u128(4)]);
    for store in [&store, &other] {
        store.close_store().await;
    }
}

#[tokio::test]
async fn submit_without_a_key_loads_nothing() {
    let (_schema, store, counter, _) = open_served().await;
    let reply = store.request(submit_request(1)).await.unwrap();
    assert!(reply.submits[0].is_ok());
    assert_eq!(counter.take_loads(), 0);
    let mut keyed = Request::new(RequestId(2), Timestamp::from_micros(10));
    let run = NewRun::new(RunId::from_u128(2), one().build(), QUEUE.into());
    keyed.submits.push(NewRun { key: Some("k".to_owned()), ..run });
    assert!(send(&store, keyed).await.submits[0].is_ok());
    assert_eq!(counter.take_loads(), 1, "another run may have the key");
    store.close_store().await;
}

#[tokio::test]
async fn remembered_task_whose_run_another_process_has_paused_is_loaded() {
    let (schema, store, counter, worker) = open_served().await;
    store.request(submit_request(1)).await.unwrap();
    let claimed = send(&store, request_of(worker, 2, 1)).await.claimed;
    let other = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    let mut pause = Request::new(RequestId(3), Timestamp::from_micros(10));
    pause.operations.push(Operation::Pause(Scope::Run(claimed[0].run)));
    send(&other, pause).await;
    counter.take_loads();
    let mut end = Request::new(RequestId(4), Timestamp::from_micros(10));
    end.changes.push(end_of(&claimed[0]));
    let reply = send(&store, end).await;
    assert_eq!(reply.changes, [Applied::Yes]);
    let view = store.run(claimed[0].run).await.unwrap().expect("the run exists");
    assert_eq!(view.run.paused_at, Some(Timestamp::from_micros(10)));
    assert!(counter.take_loads() > 0);
    for store in [&store, &other] {
        store.close_store().await;
    }
}

#[tokio::test]
async fn task_is_due_although_another_process_has_set_its_alarm() {
    let (schema, store) = open_new().await;
    store.request(submit_request(1)).await.unwrap();
    let other = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    let mut later = Request::new(RequestId(2), Timestamp::from_micros(10));
    let run = NewRun::new(RunId::from_u128(2), one().build(), QUEUE.into());
    let start = Timestamp::from_micros(20);
    later.submits.push(NewRun { not_before: Some(start), ..run });
    send(&other, later).await;
    let worker = enlist(&store, "w").await;
    let early = send(&store, request_of(worker, 3, 8)).await;
    assert_eq!(early.claimed.len(), 1);
    let due = Request { clock: start.into(), ..request_of(worker, 4, 8) };
    let due = send(&store, due).await;
    assert_eq!(due.claimed.iter().map(|task| task.run).collect::<Vec<_>>(), [RunId::from_u128(2)]);
    for store in [&store, &other] {
        store.close_store().await;
    }
}
