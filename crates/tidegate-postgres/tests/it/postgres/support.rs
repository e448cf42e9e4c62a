//! Shared by the tests: a store in a schema of its own, and requests to it.

use std::sync::Arc;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Knows, NewRun, NewWorker, Request, RequestId, Store};
use tidegate_core::{RunId, Timestamp};
use tidegate_postgres::PostgresStore;
use tidegate_testkit::{PostgresSchema, one};
use tokio_postgres::Client;

pub(super) const QUEUE: &str = "q";

/// A store in a new schema.
pub(super) async fn open_new() -> (PostgresSchema, PostgresStore) {
    let schema = PostgresSchema::new();
    let store = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    (schema, store)
}

pub(super) async fn enlist(store: &PostgresStore, name: &str) -> WorkerId {
    let new = NewWorker {
        now: Timestamp::from_micros(1),
        name: name.to_owned(),
        queues: vec![QUEUE.to_owned()],
        knows: Knows::All,
        slots: 1,
    };
    store.enlist(new).await.unwrap()
}

/// A request that submits a run of one task.
pub(super) fn submit_request(id: u64) -> Arc<Request> {
    let mut request = Request::new(RequestId(id), Timestamp::from_micros(10));
    let run = RunId::from_u128(u128::from(id));
    request.submits.push(NewRun::new(run, one().build(), QUEUE.into()));
    Arc::new(request)
}

/// Ends the connections of the stores in this schema that were made for a purpose, or those of the pool.
pub(super) async fn end_connections(
    client: &Client,
    schema: &PostgresSchema,
    purpose: Option<&str>,
) -> i64 {
    let name = match purpose {
        Some(purpose) => format!("{} {purpose}", schema.schema_name()),
        None => schema.schema_name().to_owned(),
    };
    // The list comes first: conditions of one WHERE are checked in any order. It waits until they are gone.
    let end = "WITH chosen AS MATERIALIZED \
               (SELECT pid FROM pg_stat_activity WHERE application_name = $1) \
               SELECT count(*) FROM chosen WHERE pg_terminate_backend(pid, 10000)";
    client.query_one(end, &[&name]).await.unwrap().get(0)
}
