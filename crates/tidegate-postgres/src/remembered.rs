//! Rows that this process has written last, as far as it knows.
//!
//! A row that a worker of this process owns, in a run of one task, is changed by nothing else but now and
//! then. So it is remembered with the transaction that wrote it, and the next change of it need not load
//! it: the statement that writes it compares that transaction, which is the version of the row.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as StdError;
use tidegate_core::delta::TaskWrite;
use tidegate_core::rows::Row;
use tidegate_core::store::TaskKey;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, accepts, to_sql_checked};

/// Rows that are remembered: about 30 MB. With more than that nothing is remembered for a while.
const ROWS_MAX: usize = 65_536;

/// The transaction that wrote a version of a row, as the row names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowVersion(u32);

impl RowVersion {
    /// That of a transaction by its full number.
    pub(crate) fn of_transaction(number: i64) -> Self {
        RowVersion(number as u32)
    }
}

impl ToSql for RowVersion {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(XID);
    to_sql_checked!();
}

/// A row and its version.
#[derive(Debug, Clone)]
pub(crate) struct RememberedRow {
    pub(crate) row: Row,
    pub(crate) version: RowVersion,
}

/// Rows by task.
#[derive(Debug, Default)]
pub(crate) struct RememberedRows {
    rows: RefCell<HashMap<TaskKey, RememberedRow>>,
}

impl RememberedRows {
    /// Remembers the rows of a transaction that is committed as far as requests of their worker can do with
    /// one row alone, and forgets what was remembered of the others.
    pub(crate) fn note_writes(&self, writes: Vec<TaskWrite>, version: Option<RowVersion>) {
        for TaskWrite { row, .. } in writes {
            match version.filter(|_| is_worth_it(&row)) {
                Some(version) => self.remember_row(row, version),
                None => drop(self.take_row(row.key)),
            }
        }
    }

    /// The same of one row.
    pub(crate) fn note_row(&self, row: &Row, version: Option<RowVersion>) {
        if let Some(version) = version.filter(|_| is_worth_it(row)) {
            self.remember_row(row.clone(), version);
        }
    }

    fn remember_row(&self, row: Row, version: RowVersion) {
        let mut rows = self.rows.borrow_mut();
        if rows.len() >= ROWS_MAX {
            rows.clear();
        }
        rows.insert(row.key, RememberedRow { row, version });
    }

    /// Whether a row is remembered.
    pub(crate) fn has_row(&self, task: TaskKey) -> bool {
        self.rows.borrow().contains_key(&task)
    }

    /// Takes a row out: the request that it is for writes it, or finds it changed.
    pub(crate) fn take_row(&self, task: TaskKey) -> Option<RememberedRow> {
        self.rows.borrow_mut().remove(&task)
    }
}

/// Whether a worker owns the task, and its end bears on no other row: it is the only task of its run, and
/// has neither waits nor limits, and no task waits for the run.
fn is_worth_it(row: &Row) -> bool {
    row.plan.task_count() == 1
        && row.life.owner().is_some()
        && !row.has_waits
        && row.planned().limits.is_empty()
        && row.head.as_ref().is_some_and(|head| !head.awaited && head.parent.is_none())
}
