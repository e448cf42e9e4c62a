//! Rows that nothing refers to go, and numbers that a process remembers never dangle.

use crate::support::open;
use rusqlite::Connection;
use std::path::Path;
use tidegate_testkit::{check_remembered_numbers, check_sweep};

fn count_rows(path: &Path, table: &str) -> i64 {
    let connection = Connection::open(path).unwrap();
    let count = format!("SELECT count(*) FROM {table}");
    connection.query_row(&count, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn nothing_is_left_of_customers_that_came_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    check_sweep(&store, async |table| count_rows(&path, table)).await;
    store.close().await;
}

#[tokio::test]
async fn number_that_another_process_swept_is_found_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (first, second) = (open(&path), open(&path));
    check_remembered_numbers(&first, &second, async |table| count_rows(&path, table)).await;
    first.close().await;
    second.close().await;
}
