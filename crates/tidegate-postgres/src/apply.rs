//! How a delta is written: statements of one batch, behind the locks of the request.
//!
//! Rows of a kind are one statement, given as arrays and sorted by number: a request of a thousand ends
//! sends no more statements than a request of one. A statement that finds fewer rows than it was given
//! divides by zero in the server, so that the `COMMIT` behind it becomes a `ROLLBACK`
//! ([`must_match!`]).
//!
//! A task that has ended for good moves from `task` to `ended_task` with the record of its end; see
//! [`tasks`].

mod beside;
mod limits;
mod prune;
mod repair;
mod tasks;

pub(crate) use repair::reopen_runs;

use crate::batch::{BatchIndex, BatchRows, Parameter, StatementBatch};
use crate::error::Error;
use crate::remembered::RowVersion;
use crate::state::StoreState;
use deadpool_postgres::Object;
use std::collections::HashMap;
use tidegate_core::delta::{Delta, MergedWrites};
use tidegate_core::store::TaskKey;
use tokio_postgres::types::ToSql;

/// The end of a statement that raises an error where the rows of a common table expression are fewer or
/// more than the numbers in `$1`.
macro_rules! must_match {
    ($rows:literal) => {
        concat!(" SELECT 1 / (count(*) = cardinality($1))::int4 FROM ", $rows)
    };
}
pub(crate) use must_match;

/// The first number of the records of this transaction. Numbers grow with the transaction, and a million
/// fit between two: see the feed in views.rs.
macro_rules! record_base {
    ($base:literal) => {
        concat!("(((SELECT pg_current_xact_id()::text::int8) + ", $base, ") << 20)")
    };
}
pub(crate) use record_base;

const RECORD_BASE: &str = concat!("SELECT ", record_base!("$1::int8"));

/// Records that a transaction can number.
const RECORDS_MAX: usize = 1 << 20;

/// A delta whose statements are in a batch.
#[derive(Debug)]
pub(crate) struct QueuedDelta {
    /// Returns the first number of the records.
    record_base: Option<BatchIndex>,
    /// Rows that it takes out of the live table.
    pub(crate) moved_rows: u64,
}

impl QueuedDelta {
    /// Sets the numbers of the records, once the batch is answered.
    ///
    /// # Errors
    /// The answer is not of the kind that was asked for.
    pub(crate) fn number_records(
        &self,
        answers: &mut BatchRows,
        delta: &mut Delta,
    ) -> Result<(), Error> {
        let Some(statement) = self.record_base else { return Ok(()) };
        let base: i64 = match answers.take_rows(statement).first() {
            Some(row) => row.try_get(0)?,
            None => 0,
        };
        for (record, number) in delta.records.iter_mut().zip(base..) {
            record.seq = number as u64;
        }
        Ok(())
    }
}

/// Adds everything that a delta writes to a batch. Tasks with a version were not loaded: one that has
/// another version by now fails the transaction. Prepares the statements, and has plans, task groups
/// and limits numbered; nothing else is awaited.
///
/// # Errors
/// Nothing was sent, and the transaction must not be committed.
pub(crate) async fn queue_delta(
    client: &Object,
    state: &StoreState,
    delta: &mut Delta,
    versions: &HashMap<TaskKey, RowVersion>,
    batch: &mut StatementBatch,
) -> Result<QueuedDelta, Error> {
    if delta.records.len() > RECORDS_MAX {
        return Err(Error::TooManyRecords { records: delta.records.len() });
    }
    let mut queue = DeltaQueue { client, state, batch };
    let merged = MergedWrites::new(delta, usize::MAX);
    let record_base = match delta.records.is_empty() {
        true => None,
        false => {
            Some(queue.add_statement(RECORD_BASE, vec![Box::new(state.server.record_base)]).await?)
        }
    };
    let moved_rows = queue.write_tasks(delta, &merged, versions).await?;
    queue.write_records(delta, &merged).await?;
    queue.write_payloads(delta, &merged).await?;
    queue.write_pauses(&delta.pauses).await?;
    queue.write_waits(&delta.waits).await?;
    queue.write_signals(&delta.signals).await?;
    queue.write_notifications(delta).await?;
    queue.forget_workers(&delta.forgotten_workers).await?;
    queue.write_limits(delta).await?;
    queue.refile_tasks(&delta.refiled).await?;
    queue.remove_orphans(&delta.orphans).await?;
    queue.remove_pruned(delta).await?;
    Ok(QueuedDelta { record_base, moved_rows })
}

/// A batch that a delta is added to.
struct DeltaQueue<'a> {
    client: &'a Object,
    state: &'a StoreState,
    batch: &'a mut StatementBatch,
}

impl DeltaQueue<'_> {
    /// Adds a statement.
    async fn add_statement(
        &mut self,
        sql: &str,
        parameters: Vec<Parameter>,
    ) -> Result<BatchIndex, Error> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.batch.add_statement(statement, parameters))
    }
}

/// One value of each row, as an array.
fn make_column<R, T>(rows: &[R], value: impl FnMut(&R) -> T) -> Parameter
where
    T: ToSql + Sync + Send + 'static,
{
    Box::new(rows.iter().map(value).collect::<Vec<T>>())
}

/// A text without the one character that PostgreSQL cannot store.
fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// All statements that write a delta, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[&[(&str, &str)]] = &[
    tasks::STATEMENTS,
    beside::STATEMENTS,
    limits::STATEMENTS,
    prune::STATEMENTS,
    repair::STATEMENTS,
];
