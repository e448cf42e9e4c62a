//! Rows from and to columns.

use crate::catalog::{Catalog, Filing};
use crate::error::Error;
use crate::fetch::get;
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
    let key: TaskKey = get(row, 0)?;
    let corrupt = |source| Error::Task { key: key.0, source };
    let (index, plan): (TaskIndex, _) = (get(row, 1)?, catalog.find_plan(get(row, 2)?)?);
    if index.as_usize() >= plan.task_count() {
        return Err(corrupt(Corrupt));
    }
    let behind = match (get(row, 22)?, get(row, 23)?) {
        (Some(limit), Some(order)) => Some((catalog.find_limit(limit)?, order)),
        (Some(_), None) => return Err(corrupt(Corrupt)),
        (None, _) => None,
    };
    Ok(Row {
        key,
        index,
        plan,
        life: Life::try_from(read_life(row)?).map_err(corrupt)?,
        request: get(row, 19)?,
        ended_at: get(row, 20)?,
        has_waits: get_flag(row, 21)?,
        behind,
        head: match get(row, 24)? {
            Some(id) => Some(Box::new(read_head(row, id, key, catalog)?)),
            None => None,
        },
    })
}

/// Reads the life of a task from the same columns.
pub(crate) fn read_life(row: &Columned<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        state: get(row, 4)?,
        reason: get(row, 5)?,
        fence: get(row, 6)?,
        attempt: get(row, 7)?,
        entries: get(row, 8)?,
        recoveries: get(row, 9)?,
        active: get(row, 10)?,
        started: get(row, 11)?,
        stopping: get(row, 12)?,
        worker: get(row, 13)?,
        since: get(row, 14)?,
        due: get(row, 15)?,
        begun_at: get(row, 16)?,
        waits_since: get(row, 17)?,
        waits_for: get(row, 18)?,
    })
}

fn read_head(
    row: &Columned<'_>,
    id: RunId,
    key: TaskKey,
    catalog: &mut Catalog<'_>,
) -> Result<Head, Error> {
    let corrupt = |source| Error::Task { key: key.0, source };
    Ok(Head {
        id,
        queue: catalog.find_queue(get(row, 25)?)?,
        priority: get(row, 26)?,
        key: get(row, 27)?,
        not_before: get(row, 28)?,
        submitted_at: get(row, 29)?,
        paused_at: get(row, 30)?,
        cancelled: get_flag(row, 31)?,
        failing: get_flag(row, 32)?,
        ended: match (get(row, 33)?, get(row, 34)?) {
            (Some(outcome), Some(at)) => Some((decode_outcome(outcome).map_err(corrupt)?, at)),
            (None, None) => None,
            _ => return Err(corrupt(Corrupt)),
        },
        parent: get(row, 35)?,
        open: get(row, 36)?,
        awaited: get_flag(row, 37)?,
        retry_of: get(row, 38)?,
    })
}

/// 1 if it is so, otherwise NULL.
fn get_flag(row: &Columned<'_>, at: usize) -> rusqlite::Result<bool> {
    Ok(get::<Option<bool>>(row, at)?.unwrap_or(false))
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
        bind.maybe(27, head.ended.map(|(outcome, _)| encode_outcome(outcome)))?;
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
    let run: RunKey = get(row, 2)?;
    let corrupt = || Error::Task { key: run.0, source: Corrupt };
    let reason = get::<Option<u8>>(row, 6)?;
    let active = u64::try_from(get::<i64>(row, 11)?).map_err(|_| corrupt())?;
    Ok(Record {
        seq: get(row, 0)?,
        at: get(row, 1)?,
        run,
        run_id: get(row, 3)?,
        task: get(row, 4)?,
        what: Happened::from_code(get(row, 5)?).ok_or_else(corrupt)?,
        reason: reason.map(|code| Reason::from_code(code).ok_or_else(corrupt)).transpose()?,
        attempt: get(row, 7)?,
        entry: get(row, 8)?,
        worker: get(row, 9)?,
        begun_at: get(row, 10)?,
        active: Duration::from_micros(active),
        error: get(row, 12)?,
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

    pub(crate) fn maybe(
        &mut self,
        number: usize,
        value: Option<impl ToSql>,
    ) -> rusqlite::Result<()> {
        value.map_or(Ok(()), |value| self.value(number, value))
    }

    /// 1 if it is so, and otherwise nothing: usually it is not, and what is not bound costs nothing.
    fn flag(&mut self, number: usize, is_so: bool) -> rusqlite::Result<()> {
        self.maybe(number, is_so.then_some(1))
    }

    pub(crate) fn time(&mut self, number: usize, time: Option<Timestamp>) -> rusqlite::Result<()> {
        self.maybe(number, time.map(Timestamp::as_micros))
    }
}

/// The number that is kept; it never changes its meaning.
fn encode_outcome(outcome: RunOutcome) -> u8 {
    match outcome {
        RunOutcome::Succeeded => 0,
        RunOutcome::Failed => 1,
        RunOutcome::Cancelled => 2,
    }
}

pub(crate) fn decode_outcome(code: u8) -> Result<RunOutcome, Corrupt> {
    match code {
        0 => Ok(RunOutcome::Succeeded),
        1 => Ok(RunOutcome::Failed),
        2 => Ok(RunOutcome::Cancelled),
        _ => Err(Corrupt),
    }
}
