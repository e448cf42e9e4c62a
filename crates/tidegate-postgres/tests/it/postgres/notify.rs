//! Wake-ups between processes: they arrive at once, and nothing rests on them.

use super::support::{end_connections, enlist, open_new, submit_request};
use std::time::Duration;
use tidegate_core::store::{Store, Wakeup};
use tidegate_postgres::PostgresStore;
use tidegate_testkit::connect_to_postgres;
use tokio::time::timeout;

/// Longer than any test may take.
const LONG: Duration = Duration::from_secs(60);

const READY: Wakeup = Wakeup { is_notified: false, has_ready: true, has_ended: false };

#[tokio::test]
async fn ready_task_wakes_a_worker_of_another_process() {
    let (schema, one) = open_new().await;
    let two = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    let worker = enlist(&two, "sleeper").await;
    one.request(submit_request(1)).await.unwrap();
    let wakeup = timeout(LONG, two.wait_for_wakeup(worker)).await.unwrap().unwrap();
    assert_eq!(wakeup, READY);
    one.close_store().await;
    two.close_store().await;
}

#[tokio::test]
async fn ready_task_wakes_another_worker_of_the_same_process() {
    let (_schema, store) = open_new().await;
    let worker = enlist(&store, "sleeper").await;
    store.request(submit_request(1)).await.unwrap();
    let wakeup = timeout(LONG, store.wait_for_wakeup(worker)).await.unwrap().unwrap();
    assert_eq!(wakeup, READY);
    store.close_store().await;
}

#[tokio::test]
async fn listener_that_connected_again_takes_everything_for_changed() {
    let (schema, one) = open_new().await;
    let two = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    let worker = enlist(&two, "sleeper").await;
    let client = connect_to_postgres().await;
    assert_eq!(end_connections(&client, &schema, Some("listener")).await, 2);
    let wakeup = timeout(LONG, two.wait_for_wakeup(worker)).await.unwrap().unwrap();
    assert_eq!(wakeup, Wakeup { is_notified: true, has_ready: true, has_ended: true });
    // And it listens.
    one.request(submit_request(1)).await.unwrap();
    let wakeup = timeout(LONG, two.wait_for_wakeup(worker)).await.unwrap().unwrap();
    assert!(wakeup.has_ready);
    one.close_store().await;
    two.close_store().await;
}

#[tokio::test]
async fn store_without_notifications_wakes_its_own_workers_only() {
    let (schema, store) = open_new().await;
    let quiet_url = format!("{}&notifications=off", schema.store_url());
    let quiet = PostgresStore::open_store(&quiet_url).await.unwrap();
    let (other, own) = (enlist(&store, "other").await, enlist(&quiet, "own").await);
    quiet.request(submit_request(1)).await.unwrap();
    let wakeup = timeout(LONG, quiet.wait_for_wakeup(own)).await.unwrap().unwrap();
    assert_eq!(wakeup, READY);
    // A message of the store itself comes behind any that the quiet one might have sent.
    let loud = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    let mut cancel = submit_request(2).as_ref().clone();
    cancel.submits.clear();
    let run = tidegate_core::RunId::from_u128(1);
    cancel.operations.push(tidegate_core::store::Operation::Cancel(run));
    loud.request(cancel.into()).await.unwrap();
    let wakeup = timeout(LONG, store.wait_for_wakeup(other)).await.unwrap().unwrap();
    assert_eq!(wakeup, Wakeup { is_notified: false, has_ready: false, has_ended: true });
    for store in [&store, &quiet, &loud] {
        store.close_store().await;
    }
}
