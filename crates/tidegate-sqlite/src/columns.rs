//! Rows from and to columns.

use crate::catalog::{Catalog, Filing};
use crate::error::Error;
use crate::fetch::read_at;
use rusqlite::{Row as Columned, Statement, ToSql};
use std::time::Duration;
use tidegate_core::delta::TaskWrite;
use tidegate_core::graph::{RunOutcome, TaskIndex};
use tidegate_core::lifecycle::{Life, Reason};
use tidegate_core::rows::{Columns, Corrupt, Head, Place, Row};
use tidegate_core::store::{Happened, Record, RunKey, TaskKey};
use tidegate_core::{RunId, Timestamp};

/// Reads a task from the columns of [`SELECT_TASK`](crate::sql::SELECT_TASK).
pub(crate) fn read_task(row: &Columned<'_>, catalog: &mut Catalog<'_>) -> Result<Row, Error> {
    let key: TaskKey = read_at(row, 0)?;
    let corrupt = |source| Error::Task { key: key.0, source };
    let (index, plan): (TaskIndex, _) = (read_at(row, 1)?, catalog.find_plan(read_at(row, 2)?)?);
    if index.as_usize() >= plan.task_count() {
        return Err(corrupt(Corrupt));
    }
    let behind = match (read_at(row, 22)?, read_at(row, 23)?) {
        (Some(limit), Some(order)) => Some((catalog.find_limit(limit)?, order)),
        (Some(_), None) => return Err(corrupt(Corrupt)),
        (None, _) => None,
    };
    Ok(Row {
        key,
        index,
        plan,
        life: Life::try_from(read_life(row)?).map_err(corrupt)?,
        request: read_at(row, 19)?,
        ended_at: read_at(row, 20)?,
        has_waits: read_flag(row, 21)?,
        open_parents: 0,
        has_inserts_above: false,
        behind,
        head: match read_at(row, 24)? {
            Some(id) => Some(Box::new(read_head(row, id, key, catalog)?)),
            None => None,
        },
    })
}

/// Reads the life of a task from the same columns.
pub(crate) fn read_life(row: &Columned<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        state: read_at(row, 4)?,
        reason: read_at(row, 5)?,
        fence: read_at(row, 6)?,
        attempt: read_at(row, 7)?,
        entries: read_at(row, 8)?,
        recoveries: read_at(row, 9)?,
        active: read_at(row, 10)?,
        started: read_at(row, 11)?,
        stopping: read_at(row, 12)?,
        worker: read_at(row, 13)?,
        since: read_at(row, 14)?,
        due: read_at(row, 15)?,
        begun_at: read_at(row, 16)?,
        waits_since: read_at(row, 17)?,
        waits_for: read_at(row, 18)?,
    })
}

fn read_head(
    row: &Columned<'_>,
    id: RunId,
    key: TaskKey,
    catalog: &mut Catalog<'_>,
) -> Result<Head, Error> {
    let corrupt = || Error::Task { key: key.0, source: Corrupt };
    Ok(Head {
        id,
        queue: catalog.find_queue(read_at(row, 25)?)?,
        priority: read_at(row, 26)?,
        key: read_at(row, 27)?,
        not_before: read_at(row, 28)?,
        submitted_at: read_at(row, 29)?,
        paused_at: read_at(row, 30)?,
        cancelled: read_flag(row, 31)?,
        failing: read_flag(row, 32)?,
        ended: match (read_at(row, 33)?, read_at(row, 34)?) {
            (Some(code), Some(at)) => Some((RunOutcome::from_code(code).ok_or_else(corrupt)?, at)),
            (None, None) => None,
            _ => return Err(corrupt()),
        },
        parent: read_at(row, 35)?,
        open: read_at(row, 36)?,
        awaited: read_flag(row, 37)?,
        retry_of: read_at(row, 38)?,
        depth: 0,
    })
}

/// 1 if it is so, otherwise NULL.
fn read_flag(row: &Columned<'_>, at: usize) -> rusqlite::Result<bool> {
    Ok(read_at::<Option<bool>>(row, at)?.unwrap_or(false))
}

/// Binds what of a task changes: number 1 to 23, and to 30 if it is the first of its run. The limit it
/// stands behind has this number.
pub(crate) fn bind_changing(
    statement: &mut Statement<'_>,
    TaskWrite { row, place, .. }: &TaskWrite,
    behind: Option<i64>,
) -> rusqlite::Result<()> {
    let life = Columns::from(&row.life);
    let Place { gate, order, alarm, .. } = place;
    let mut bind = Binder::new(statement);
    bind.value(1, row.key.0)?;
    bind.value(2, life.state)?;
    bind.maybe(3, life.reason)?;
    bind.value(4, life.fence as i64)?;
    bind.value(5, life.attempt)?;
    bind.value(6, life.entries)?;
    bind.value(7, life.recoveries)?;
    bind.value(8, life.active)?;
    bind.time(9, life.started)?;
    bind.maybe(10, life.stopping)?;
    bind.maybe(11, life.worker.map(|worker| worker.0 as i64))?;
    bind.time(12, life.since)?;
    bind.time(13, life.due)?;
    bind.time(14, life.begun_at)?;
    bind.time(15, life.waits_since)?;
    bind.maybe(16, life.waits_for)?;
    bind.value(17, row.request.0 as i64)?;
    bind.maybe(18, gate.map(|gate| gate.code()))?;
    bind.maybe(19, behind)?;
    bind.time(20, *order)?;
    bind.time(21, *alarm)?;
    bind.flag(22, row.has_waits)?;
    bind.time(23, row.ended_at)?;
    if let Some(head) = &row.head {
        bind.time(24, head.paused_at)?;
        bind.flag(25, head.cancelled)?;
        bind.flag(26, head.failing)?;
        bind.maybe(27, head.ended.map(|(outcome, _)| outcome.to_code()))?;
        bind.time(28, head.ended.map(|(_, at)| at))?;
        bind.value(29, head.open)?;
        bind.flag(30, head.awaited)?;
    }
    Ok(())
}

/// Binds what of a task never changes: number 31 to 41.
pub(crate) fn bind_lasting(
    statement: &mut Statement<'_>,
    row: &Row,
    filing: Filing,
) -> rusqlite::Result<()> {
    let mut bind = Binder { statement };
    bind.value(31, row.index.as_u32())?;
    bind.value(32, filing.plan)?;
    bind.value(33, filing.lane)?;
    if let Some(head) = &row.head {
        bind.value(34, head.id.as_u128().to_be_bytes())?;
        bind.value(35, filing.workflow)?;
        bind.value(36, head.priority)?;
        bind.maybe(37, head.key.as_deref())?;
        bind.time(38, head.not_before)?;
        bind.value(39, head.submitted_at.as_micros())?;
        bind.maybe(40, head.parent.map(|task| task.0))?;
        bind.maybe(41, head.retry_of.map(|run| run.as_u128().to_be_bytes()))?;
    }
    Ok(())
}

/// Binds a record.
pub(crate) fn bind_record(statement: &mut Statement<'_>, record: &Record) -> rusqlite::Result<()> {
    let mut bind = Binder::new(statement);
    bind.value(1, record.seq as i64)?;
    bind.value(2, record.at.as_micros())?;
    bind.value(3, record.run.0)?;
    bind.value(4, record.task.as_u32())?;
    bind.value(5, record.what.code())?;
    bind.maybe(6, record.reason.map(Reason::code))?;
    bind.value(7, record.attempt)?;
    bind.value(8, record.entry)?;
    bind.maybe(9, record.worker.map(|worker| worker.0 as i64))?;
    bind.time(10, record.begun_at)?;
    bind.value(11, i64::try_from(record.active.as_micros()).unwrap_or(i64::MAX))?;
    bind.maybe(12, record.error.as_deref())
}

/// Reads the columns of [`RECORDS`](crate::sql::RECORDS).
pub(crate) fn read_record(row: &Columned<'_>) -> Result<Record, Error> {
    let run: RunKey = read_at(row, 2)?;
    let corrupt = || Error::Task { key: run.0, source: Corrupt };
    let reason = read_at::<Option<u8>>(row, 6)?;
    let active = u64::try_from(read_at::<i64>(row, 11)?).map_err(|_| corrupt())?;
    Ok(Record {
        seq: read_at(row, 0)?,
        at: read_at(row, 1)?,
        run,
        run_id: read_at(row, 3)?,
        task: read_at(row, 4)?,
        what: Happened::from_code(read_at(row, 5)?).ok_or_else(corrupt)?,
        reason: reason.map(|code| Reason::from_code(code).ok_or_else(corrupt)).transpose()?,
        attempt: read_at(row, 7)?,
        entry: read_at(row, 8)?,
        worker: read_at(row, 9)?,
        begun_at: read_at(row, 10)?,
        active: Duration::from_micros(active),
        error: read_at(row, 12)?,
    })
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

    pub(crate) fn value(&mut self, number: usize, value: impl ToSql) -> rusqlite::Result<()> {
        self.statement.raw_bind_parameter(number, value)
    }

    pub(crate) fn maybe(&mut self, at: usize, value: Option<impl ToSql>) -> rusqlite::Result<()> {
        value.map_or(Ok(()), |value| self.value(at, value))
    }

    /// 1 if it is so, and otherwise nothing: usually it is not, and what is not bound costs nothing.
    fn flag(&mut self, number: usize, is_so: bool) -> rusqlite::Result<()> {
        self.maybe(number, is_so.then_some(1))
    }

    pub(crate) fn time(&mut self, number: usize, time: Option<Timestamp>) -> rusqlite::Result<()> {
        self.maybe(number, time.map(Timestamp::as_micros))
    }
}
