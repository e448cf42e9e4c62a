//! Whether rows are found by their indexes.
//!
//! Each row of a step is looked up in every index that it should be in. That an index has something
//! besides is not seen here: SQLite's own check tells ([`check_files`](super::check_files)).

use super::FINDINGS_MAX;
use crate::error::Error;
use rusqlite::Connection;
use tidegate_core::store::Finding;

/// Index, and the rows from ?1 on and below ?2 that are not found by it, at most ?3.
const MISSING: [(&str, &str); 6] = [
    (
        "task_ready",
        "SELECT key FROM task AS here NOT INDEXED WHERE key >= ?1 AND key < ?2 \
         AND claim_order IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task INDEXED BY task_ready \
         WHERE gate IS here.gate AND behind IS here.behind AND lane = here.lane \
         AND claim_order = here.claim_order AND key = here.key) LIMIT ?3",
    ),
    (
        "task_alarm",
        "SELECT key FROM task AS here NOT INDEXED WHERE key >= ?1 AND key < ?2 \
         AND alarm IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task INDEXED BY task_alarm \
         WHERE alarm = here.alarm AND key = here.key) LIMIT ?3",
    ),
    (
        "task_worker",
        "SELECT key FROM task AS here NOT INDEXED WHERE key >= ?1 AND key < ?2 \
         AND worker IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task INDEXED BY task_worker \
         WHERE worker = here.worker AND key = here.key) LIMIT ?3",
    ),
    (
        "task_run_id",
        "SELECT key FROM task AS here NOT INDEXED WHERE key >= ?1 AND key < ?2 \
         AND run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task INDEXED BY task_run_id \
         WHERE run_id = here.run_id AND key = here.key) LIMIT ?3",
    ),
    (
        "wait_open",
        "SELECT task FROM wait AS here NOT INDEXED WHERE task >= ?1 AND task < ?2 \
         AND how IS NULL AND run IS NOT NULL AND NOT EXISTS (SELECT 1 FROM wait \
         INDEXED BY wait_open WHERE run = here.run AND kind = here.kind AND name = here.name \
         AND since = here.since AND task = here.task AND how IS NULL) LIMIT ?3",
    ),
    (
        "hold_limit",
        "SELECT task FROM hold AS here NOT INDEXED WHERE task >= ?1 AND task < ?2 \
         AND NOT EXISTS (SELECT 1 FROM hold INDEXED BY hold_limit \
         WHERE limit_key = here.limit_key AND units = here.units AND task = here.task) LIMIT ?3",
    ),
];

/// The last of the next ?2 tasks from ?1 on.
const LAST_OF_STEP: &str =
    "SELECT max(key) FROM (SELECT key FROM task WHERE key >= ?1 ORDER BY key LIMIT ?2)";

/// Tasks that are looked up by one statement. Each statement is a transaction of its own.
const STEP: i64 = 1_000;

/// Looks every row up by its indexes.
pub(super) fn check_indexes(
    connection: &Connection,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    let mut last_of_step = connection.prepare(LAST_OF_STEP)?;
    let mut missing = Vec::with_capacity(MISSING.len());
    for (index, select) in MISSING {
        missing.push((index, connection.prepare(select)?));
    }
    let mut from = Some(i64::MIN);
    while let Some(first) = from
        && findings.len() < FINDINGS_MAX
    {
        let last = last_of_step.query_row((first, STEP), |row| row.get::<_, Option<i64>>(0))?;
        let next = last.map(|last| last.saturating_add(1));
        for (index, select) in &mut missing {
            let range = (first, next.unwrap_or(i64::MAX), FINDINGS_MAX as i64);
            for task in select.query_map(range, |row| row.get::<_, i64>(0))? {
                let what = format!("task {} is not found by {index}", task?);
                findings.push(Finding::new("index", what));
            }
        }
        from = next;
    }
    Ok(())
}
