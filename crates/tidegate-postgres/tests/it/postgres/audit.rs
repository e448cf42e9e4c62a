//! An audit of tables that were changed behind the store's back, and its repair.

use super::support::{open_new, submit_request};
use std::sync::Arc;
use tidegate_core::Timestamp;
use tidegate_core::limit::Limit;
use tidegate_core::store::{Operation, OperationOutcome, Request, RequestId, Store};
use tidegate_testkit::connect_to_postgres;

#[tokio::test]
async fn limit_that_counts_wrongly_is_found_and_counts_anew_once_repaired() {
    let (schema, store) = open_new().await;
    let request = |id, operations| {
        let new = Request::new(RequestId(id), Timestamp::from_micros(10));
        Arc::new(Request { operations, ..new })
    };
    let limit = Limit::new("api").at_once(1);
    store.request(submit_request(1)).await.unwrap();
    store.request(request(2, vec![Operation::Declare(limit)])).await.unwrap();
    assert_eq!(store.audit().await.unwrap(), []);
    let client = connect_to_postgres().await;
    let schema = schema.schema_name();
    let break_limit = format!(
        "INSERT INTO {schema}.limit_key (name, key, in_use, window_sum) VALUES ('api', '', 1, 7)"
    );
    client.batch_execute(&break_limit).await.unwrap();
    let found = store.audit().await.unwrap();
    let rules: Vec<_> = found.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["count", "count"], "{found:?}");
    let repairs = found.into_iter().filter_map(|finding| finding.repair);
    let repairs: Vec<_> = repairs.map(Operation::Repair).collect();
    let reply = store.request(request(3, repairs)).await.unwrap();
    assert_eq!(reply.operations, [OperationOutcome::Yes, OperationOutcome::Already]);
    assert_eq!(store.audit().await.unwrap(), []);
    store.close_store().await;
}
