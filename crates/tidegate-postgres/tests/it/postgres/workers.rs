//! Which workers are alive, and that a broken connection does not kill one.

use super::support::{end_connections, enlist, open_new};
use std::time::Duration;
use tidegate_core::store::Store;
use tidegate_postgres::PostgresStore;
use tidegate_testkit::connect_to_postgres;

#[tokio::test]
async fn worker_is_alive_until_its_store_is_closed() {
    let (schema, one) = open_new().await;
    let two = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    let (first, second) = (enlist(&one, "first").await, enlist(&two, "second").await);
    assert_ne!(first, second);
    assert_eq!(one.dead().await.unwrap(), []);
    let workers = one.workers().await.unwrap();
    let seen: Vec<_> = workers.iter().map(|w| (w.id, w.name.as_str(), w.alive)).collect();
    assert_eq!(seen, [(first, "first", true), (second, "second", true)]);
    two.close_store().await;
    assert_eq!(one.dead().await.unwrap(), [second]);
    let workers = one.workers().await.unwrap();
    let alive: Vec<_> = workers.iter().map(|worker| worker.alive).collect();
    assert_eq!(alive, [true, false]);
    one.close_store().await;
}

#[tokio::test]
async fn dismissed_worker_is_forgotten_and_its_number_never_given_again() {
    let (_schema, store) = open_new().await;
    let first = enlist(&store, "first").await;
    store.dismiss(first).await.unwrap();
    assert_eq!(store.workers().await.unwrap(), []);
    assert_eq!(store.dead().await.unwrap(), []);
    assert!(enlist(&store, "second").await > first);
    store.close_store().await;
}

#[tokio::test]
async fn killed_worker_is_dead_for_every_process() {
    let (schema, one) = open_new().await;
    let two = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    let worker = enlist(&one, "killed").await;
    one.kill_worker(worker).await;
    for store in [&one, &two] {
        assert_eq!(store.dead().await.unwrap(), [worker]);
    }
    one.close_store().await;
    two.close_store().await;
}

#[tokio::test]
async fn worker_whose_connection_broke_is_alive_again_under_its_number() {
    let (schema, store) = open_new().await;
    let worker = enlist(&store, "robust").await;
    let client = connect_to_postgres().await;
    assert_eq!(end_connections(&client, &schema, Some("worker")).await, 1);
    wait_until_alive(&store).await;
    let workers = store.workers().await.unwrap();
    assert_eq!(workers.iter().map(|worker| worker.id).collect::<Vec<_>>(), [worker]);
    assert_eq!(store.dead().await.unwrap(), []);
    store.close_store().await;
}

/// Waits until all workers are alive.
async fn wait_until_alive(store: &PostgresStore) {
    while store.workers().await.unwrap().iter().any(|worker| !worker.alive) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn no_worker_counts_as_dead_right_after_a_start_of_the_server() {
    let (schema, store) = open_new().await;
    // The server for tests runs for less than a year.
    let url = schema.store_url().replace("restart_grace=0", "restart_grace=365d");
    let patient = PostgresStore::open_store(&url).await.unwrap();
    let worker = enlist(&store, "killed").await;
    store.kill_worker(worker).await;
    assert_eq!(patient.dead().await.unwrap(), []);
    assert!(patient.workers().await.unwrap()[0].alive);
    assert_eq!(store.dead().await.unwrap(), [worker]);
    store.close_store().await;
    patient.close_store().await;
}
