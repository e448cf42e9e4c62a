//! Whether rows are found by their indexes, and what SQLite itself says of the file.
//!
//! Each row of a step is looked up in every index that it should be in. That an index has something
//! besides is not seen there: SQLite's own check tells ([`check_files`]).

use super::FINDINGS_MAX;
use crate::error::Error;
use crate::fetch::Fetch;
use crate::open::Place;
use rusqlite::Connection;
use tidegate_core::store::Finding;

/// Each index with its table, the task in it, the rows that it has and the columns by which it finds them.
const INDEXES: [(&str, &str, &str, &str, &str); 8] = [
    (
        "task_ready",
        "task",
        "number",
        "claim_order IS NOT NULL",
        "eligibility blocked_on task_group claim_order number",
    ),
    ("task_alarm", "task", "number", "alarm IS NOT NULL", "alarm number"),
    ("task_owned", "task", "number", "worker IS NOT NULL", "worker number"),
    ("task_run_id", "task", "number", "run_id IS NOT NULL", "run_id number"),
    ("ended_task_run_id", "ended_task", "number", "run_id IS NOT NULL", "run_id number"),
    ("ended_task_record", "ended_task", "number", "record IS NOT NULL", "record number"),
    (
        "wait_open",
        "wait",
        "task",
        "outcome IS NULL AND run IS NOT NULL",
        "run kind name since task",
    ),
    ("hold_limit", "hold", "task", "TRUE", "limit_key units task"),
];

/// The rows of tasks from ?1 on and below ?2 that are not found by an index, at most ?3.
fn select_missing(table: &str, task: &str, has: &str, columns: &str, index: &str) -> String {
    let same = columns.split(' ').map(|column| format!("{column} IS here.{column}"));
    let same = same.collect::<Vec<_>>().join(" AND ");
    format!(
        "SELECT {task} FROM {table} AS here NOT INDEXED WHERE {task} >= ?1 AND {task} < ?2 \
         AND {has} AND NOT EXISTS (SELECT 1 FROM {table} INDEXED BY {index} WHERE {has} AND {same}) \
         LIMIT ?3"
    )
}

/// The last of the next ?2 tasks from ?1 on.
const LAST_OF_STEP: &str = "SELECT max(number) FROM (SELECT number FROM task WHERE number >= ?1 UNION ALL \
     SELECT number FROM ended_task WHERE number >= ?1 ORDER BY number LIMIT ?2)";

/// Tasks that are looked up by one statement. Each statement is a transaction of its own.
const STEP: i64 = 1_000;

/// Looks every row up by its indexes.
pub(super) fn check_indexes(
    connection: &Connection,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    let mut last_of_step = connection.prepare(LAST_OF_STEP)?;
    let mut missing = Vec::with_capacity(INDEXES.len());
    for (index, table, task, has, columns) in INDEXES {
        let select = select_missing(table, task, has, columns, index);
        missing.push((index, connection.prepare(&select)?));
    }
    let mut from = Some(i64::MIN);
    while let Some(first) = from
        && findings.len() < FINDINGS_MAX
    {
        let last: Option<i64> = last_of_step.fetch_one((first, STEP))?;
        let next = last.map(|last| last.saturating_add(1));
        for (index, select) in &mut missing {
            let range = (first, next.unwrap_or(i64::MAX), FINDINGS_MAX as i64);
            for task in select.fetch_all::<i64, Vec<_>>(range)? {
                let what = format!("task {task} is not found by {index}");
                findings.push(Finding::new("index", what));
            }
        }
        from = next;
    }
    Ok(())
}

/// Asks SQLite to check every table with its indexes, one after the other, so that no snapshot is held
/// for all of them. For a large table it is held for seconds.
pub(crate) fn check_files(place: &Place) -> Result<Vec<Finding>, Error> {
    place.check()?;
    let connection = place.open_reader()?;
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let tables: Vec<String> = connection.prepare(tables)?.fetch_all([])?;
    let mut findings = Vec::new();
    for table in tables {
        let check = format!("PRAGMA integrity_check(\"{table}\")");
        for line in connection.prepare(&check)?.fetch_all::<String, Vec<_>>([])? {
            if line != "ok" && findings.len() < FINDINGS_MAX {
                findings.push(Finding::new("file", format!("table {table}: {line}")));
            }
        }
    }
    Ok(findings)
}
