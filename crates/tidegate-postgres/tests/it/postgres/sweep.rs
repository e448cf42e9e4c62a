//! Rows that nothing refers to go, and numbers that a process remembers never dangle.

use super::support::open_new;
use tidegate_postgres::PostgresStore;
use tidegate_testkit::{
    PostgresSchema, check_remembered_numbers, check_sweep, connect_to_postgres,
};
use tokio_postgres::Client;

async fn count_rows(client: &Client, schema: &PostgresSchema, table: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {}.{table}", schema.schema_name());
    client.query_one(&count, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn nothing_is_left_of_customers_that_came_once() {
    let (schema, store) = open_new().await;
    let client = connect_to_postgres().await;
    check_sweep(&store, async |table| count_rows(&client, &schema, table).await).await;
    store.close_store().await;
}

#[tokio::test]
async fn number_that_another_process_swept_is_found_anew() {
    let (schema, first) = open_new().await;
    let second = PostgresStore::open_store(&schema.store_url()).await.unwrap();
    let client = connect_to_postgres().await;
    let count = async |table: &str| count_rows(&client, &schema, table).await;
    check_remembered_numbers(&first, &second, count).await;
    first.close_store().await;
    second.close_store().await;
}
