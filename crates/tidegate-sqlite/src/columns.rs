//! Rows from and to columns.
//!
//! Values that no statement searches or compares are packed ([`tidegate_core::packed`]).

use crate::catalog::Catalog;
use crate::error::Error;
use crate::fetch::{read_at, read_bytes};
use rusqlite::{Row as Columned, Statement, ToSql};
use tidegate_core::delta::TaskWrite;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Life, WorkerId};
use tidegate_core::packed::{
    StoredLifecycle, pack_lifecycle, pack_run, unpack_lifecycle, unpack_run,
};
use tidegate_core::rows::{Corrupt, Gate, Head, Place, Row};
use tidegate_core::store::TaskKey;
use tidegate_core::{RunId, Timestamp};

/// The columns of a live task `t`, in the order in which [`read_task`] reads them.
macro_rules! live_columns {
    () => {
        "t.number, t.request, t.fence, t.plan, t.task_group, t.idx, t.state, t.eligibility, t.worker, \
         t.claim_order, t.alarm, t.blocked_on, t.lifecycle, t.run_id, t.run"
    };
}
pub(crate) use live_columns;

/// The same of an ended task `t`.
macro_rules! ended_columns {
    () => {
        "t.number, t.request, t.fence, t.plan, t.task_group, t.idx, t.state, NULL, NULL, \
         NULL, NULL, NULL, t.lifecycle, t.run_id, t.run"
    };
}
pub(crate) use ended_columns;

/// The number of columns that [`read_task`] reads.
pub(crate) const TASK_COLUMNS: usize = 15;

/// Reads a task.
pub(crate) fn read_task(row: &Columned<'_>, catalog: &mut Catalog<'_>) -> Result<Row, Error> {
    let key: TaskKey = read_at(row, 0)?;
    let damaged = |source| Error::Task { key: key.0, source };
    let (index, plan): (TaskIndex, _) = (read_at(row, 5)?, catalog.find_plan(read_at(row, 3)?)?);
    if index.as_usize() >= plan.task_count() {
        return Err(damaged(Corrupt));
    }
    let stored = unpack_lifecycle(read_bytes(row, 12)?).map_err(damaged)?;
    let StoredLifecycle { mut columns, has_waits, ended_at, .. } = stored;
    columns.state = read_at(row, 6)?;
    columns.fence = read_at(row, 2)?;
    columns.worker = read_at(row, 8)?;
    let behind = match (read_at(row, 11)?, read_at(row, 9)?) {
        (Some(limit), Some(order)) => Some((catalog.find_limit(limit)?, order)),
        (Some(_), None) => return Err(damaged(Corrupt)),
        (None, _) => None,
    };
    Ok(Row {
        key,
        index,
        plan,
        life: Life::try_from(columns).map_err(damaged)?,
        request: read_at(row, 1)?,
        ended_at,
        has_waits,
        open_parents: stored.open_parents,
        has_inserts_above: stored.has_inserts_above,
        behind,
        head: read_head(row, key, index, catalog)?,
    })
}

fn read_head(
    row: &Columned<'_>,
    key: TaskKey,
    index: TaskIndex,
    catalog: &mut Catalog<'_>,
) -> Result<Option<Box<Head>>, Error> {
    let damaged = |source| Error::Task { key: key.0, source };
    let id: Option<RunId> = read_at(row, 13)?;
    match (id, index.as_usize()) {
        (None, 1..) => Ok(None),
        (Some(id), 0) => {
            let run = unpack_run(read_bytes(row, 14)?).map_err(damaged)?;
            let queue = catalog.find_group(read_at(row, 4)?)?.queue.clone();
            Ok(Some(Box::new(run.into_head(id, queue))))
        }
        _ => Err(damaged(Corrupt)),
    }
}

/// Reads the columns by which a task is found.
pub(crate) fn read_place(row: &Columned<'_>, task: &Row) -> Result<Place, Error> {
    let damaged = || Error::Task { key: task.key.0, source: Corrupt };
    let code = read_at::<Option<u8>>(row, 7)?;
    Ok(Place {
        gate: code.map(|code| Gate::from_code(code).ok_or_else(damaged)).transpose()?,
        order: read_at(row, 9)?,
        alarm: read_at(row, 10)?,
        behind: task.behind.as_ref().map(|(limit, _)| limit.clone()),
    })
}

/// Whether the packed columns of a row are what is packed of it, and not only read as such.
pub(crate) fn is_packed_row(row: &Columned<'_>, task: &Row) -> Result<bool, Error> {
    let run = row.get_ref(14)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
    Ok(read_at::<Option<WorkerId>>(row, 8)? == task.life.owner()
        && read_bytes(row, 12)? == pack_lifecycle(task)
        && run == task.head.as_deref().map(pack_run).as_deref())
}

/// Binds what of a live task changes: number 1 to 11, and 12 if the statement writes the run. The limit
/// that the task is blocked on has this number.
pub(crate) fn bind_changing(
    statement: &mut Statement<'_>,
    TaskWrite { row, place, is_plain, .. }: &TaskWrite,
    writes_run: bool,
    blocked_on: Option<i64>,
) -> rusqlite::Result<()> {
    let Place { gate, order, alarm, .. } = place;
    let mut bind = Binder::new(statement);
    bind.value(1, row.key.0)?;
    bind.value(2, row.request.0 as i64)?;
    bind.value(3, row.life.fence.0 as i64)?;
    bind.value(4, row.life.state.kind().code())?;
    bind.maybe(5, gate.map(|gate| gate.code()))?;
    bind.value(6, *is_plain)?;
    bind.maybe(7, row.life.owner().map(|worker| worker.0 as i64))?;
    bind.time(8, *order)?;
    bind.time(9, *alarm)?;
    bind.maybe(10, blocked_on)?;
    bind.value(11, pack_lifecycle(row))?;
    bind.maybe(12, row.head.as_deref().filter(|_| writes_run).map(pack_run))
}

/// Binds values; what is not bound is NULL.
pub(crate) struct Binder<'b, 's> {
    statement: &'b mut Statement<'s>,
}

impl<'b, 's> Binder<'b, 's> {
    pub(crate) fn new(statement: &'b mut Statement<'s>) -> Self {
        statement.clear_bindings();
        Binder { statement }
    }

    /// Goes on with a statement of which some values are bound.
    pub(crate) fn resume_binding(statement: &'b mut Statement<'s>) -> Self {
        Binder { statement }
    }

    pub(crate) fn value(&mut self, number: usize, value: impl ToSql) -> rusqlite::Result<()> {
        self.statement.raw_bind_parameter(number, value)
    }

    pub(crate) fn maybe(&mut self, at: usize, value: Option<impl ToSql>) -> rusqlite::Result<()> {
        value.map_or(Ok(()), |value| self.value(at, value))
    }

    pub(crate) fn time(&mut self, number: usize, time: Option<Timestamp>) -> rusqlite::Result<()> {
        self.maybe(number, time.map(Timestamp::as_micros))
    }
}
