//! Rows from and to columns.
//!
//! What is read has two steps: [`read`] takes the columns as they are, and [`Stored::row`] makes a
//! row of them once the plan, the queue and the limit they name are known.

use crate::error::Error;
use rusqlite::{Row as Columned, Statement, ToSql};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::delta::TaskWrite;
use tidegate_core::graph::{RunOutcome, TaskIndex};
use tidegate_core::lifecycle::{Life, Reason, WorkerId};
use tidegate_core::limit::LimitKey;
use tidegate_core::plan::Plan;
use tidegate_core::rows::{Columns, Corrupt, Gate, Head, Place, Row};
use tidegate_core::store::{Happened, Record, RequestId, RunKey, TaskKey};
use tidegate_core::{RunId, Timestamp};

/// The columns of a task as they are.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) key: i64,
    pub(crate) index: u32,
    pub(crate) plan: i64,
    pub(crate) lane: i64,
    life: Columns,
    request: i64,
    ended_at: Option<i64>,
    has_waits: bool,
    pub(crate) behind: Option<i64>,
    order: Option<i64>,
    pub(crate) head: Option<StoredHead>,
}

/// What else of a task is known by the numbers in its columns.
pub(crate) struct Named {
    pub(crate) plan: Arc<Plan>,
    /// Of its workflow, if it is the first of its run.
    pub(crate) queue: Option<Arc<str>>,
    /// The one it stands behind.
    pub(crate) limit: Option<LimitKey>,
}

/// The columns of a run as they are.
#[derive(Clone)]
pub(crate) struct StoredHead {
    id: [u8; 16],
    pub(crate) workflow: i64,
    priority: i32,
    key: Option<String>,
    parent: Option<i64>,
    retry_of: Option<[u8; 16]>,
    not_before: Option<i64>,
    submitted_at: i64,
    paused_at: Option<i64>,
    cancelled: bool,
    failing: bool,
    open: u32,
    awaited: bool,
    outcome: Option<u8>,
    ended_at: Option<i64>,
}

/// Reads the columns of [`SELECT_TASK`](crate::sql::SELECT_TASK).
pub(crate) fn read(row: &Columned<'_>) -> rusqlite::Result<Stored> {
    let time = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(timestamp));
    Ok(Stored {
        key: row.get(0)?,
        index: row.get(1)?,
        plan: row.get(2)?,
        lane: row.get(3)?,
        life: Columns {
            state: row.get(4)?,
            reason: row.get(5)?,
            fence: row.get::<_, i64>(6)? as u64,
            attempt: row.get(7)?,
            entries: row.get(8)?,
            recoveries: row.get(9)?,
            active: row.get(10)?,
            started: time(11)?,
            stopping: row.get(12)?,
            worker: row.get::<_, Option<i64>>(13)?.map(worker_id),
            since: time(14)?,
            due: time(15)?,
            begun_at: time(16)?,
            waits_since: time(17)?,
            waits_for: row.get(18)?,
        },
        request: row.get(19)?,
        ended_at: row.get(20)?,
        has_waits: flag(row, 21)?,
        behind: row.get(22)?,
        order: row.get(23)?,
        head: match row.get::<_, Option<[u8; 16]>>(24)? {
            Some(id) => Some(read_head(row, id)?),
            None => None,
        },
    })
}

fn read_head(row: &Columned<'_>, id: [u8; 16]) -> rusqlite::Result<StoredHead> {
    Ok(StoredHead {
        id,
        workflow: row.get(25)?,
        priority: row.get(26)?,
        key: row.get(27)?,
        not_before: row.get(28)?,
        submitted_at: row.get(29)?,
        paused_at: row.get(30)?,
        cancelled: flag(row, 31)?,
        failing: flag(row, 32)?,
        outcome: row.get(33)?,
        ended_at: row.get(34)?,
        parent: row.get(35)?,
        open: row.get(36)?,
        awaited: flag(row, 37)?,
        retry_of: row.get(38)?,
    })
}

/// What is 1 if it is so.
fn flag(row: &Columned<'_>, at: usize) -> rusqlite::Result<bool> {
    Ok(row.get::<_, Option<bool>>(at)?.unwrap_or(false))
}

/// Reads the gate and the alarm, which
/// [`STORED_TASKS`](crate::sql::STORED_TASKS) has besides.
pub(crate) fn read_place(row: &Columned<'_>) -> rusqlite::Result<(Option<i64>, Option<i64>)> {
    Ok((row.get(39)?, row.get(40)?))
}

impl Stored {
    /// Whether these columns are what is written of such a life, and not only read as such.
    pub(crate) fn is_life(&self, life: &Life) -> bool {
        self.life == Columns::from(life)
    }

    /// Where a task with these columns, this gate and this alarm is to be found.
    pub(crate) fn place(
        &self,
        (gate, alarm): (Option<i64>, Option<i64>),
        behind: Option<LimitKey>,
    ) -> Result<Place, Corrupt> {
        let known = |code: i64| u8::try_from(code).ok().and_then(Gate::from_code).ok_or(Corrupt);
        Ok(Place {
            gate: gate.map(known).transpose()?,
            order: self.order.map(timestamp),
            alarm: alarm.map(timestamp),
            behind,
        })
    }

    /// The row that these are the columns of, with what they name.
    pub(crate) fn row(self, Named { plan, queue, limit }: Named) -> Result<Row, Error> {
        let corrupt = |source| Error::Task { key: self.key, source };
        let life = Life::try_from(self.life).map_err(corrupt)?;
        if self.index as usize >= plan.task_count() {
            return Err(corrupt(Corrupt));
        }
        let head = match (self.head, queue) {
            (Some(head), Some(queue)) => Some(Box::new(head.head(queue).map_err(corrupt)?)),
            _ => None,
        };
        let behind = match (limit, self.order) {
            (Some(limit), Some(order)) => Some((limit, timestamp(order))),
            (Some(_), None) => return Err(corrupt(Corrupt)),
            (None, _) => None,
        };
        Ok(Row {
            key: TaskKey(self.key),
            index: TaskIndex::from_u32(self.index),
            plan,
            life,
            request: RequestId(self.request as u64),
            ended_at: self.ended_at.map(timestamp),
            has_waits: self.has_waits,
            behind,
            head,
        })
    }
}

impl StoredHead {
    fn head(self, queue: Arc<str>) -> Result<Head, Corrupt> {
        let ended = match (self.outcome, self.ended_at) {
            (Some(outcome), Some(at)) => Some((outcome_from(outcome)?, timestamp(at))),
            (None, None) => None,
            _ => return Err(Corrupt),
        };
        Ok(Head {
            id: run_id(self.id),
            queue,
            priority: self.priority,
            key: self.key,
            parent: self.parent.map(TaskKey),
            retry_of: self.retry_of.map(run_id),
            not_before: self.not_before.map(timestamp),
            submitted_at: timestamp(self.submitted_at),
            paused_at: self.paused_at.map(timestamp),
            cancelled: self.cancelled,
            failing: self.failing,
            open: self.open,
            awaited: self.awaited,
            ended,
        })
    }
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
        bind.maybe(27, head.ended.map(|(outcome, _)| outcome_code(outcome)))?;
        bind.time(28, head.ended.map(|(_, at)| at))?;
        bind.value(29, head.open)?;
        bind.flag(30, head.awaited)?;
    }
    Ok(())
}

/// Where a task belongs, by the numbers that the store gave.
pub(crate) struct Belongs {
    pub(crate) plan: i64,
    pub(crate) workflow: i64,
    pub(crate) lane: i64,
}

/// Binds what of a task never changes: number 31 to 41.
pub(crate) fn bind_lasting(
    statement: &mut Statement<'_>,
    row: &Row,
    belongs: &Belongs,
) -> rusqlite::Result<()> {
    let mut bind = Binder { statement };
    bind.value(31, row.index.as_u32())?;
    bind.value(32, belongs.plan)?;
    bind.value(33, belongs.lane)?;
    if let Some(head) = &row.head {
        bind.value(34, head.id.as_u128().to_be_bytes())?;
        bind.value(35, belongs.workflow)?;
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
pub(crate) fn bind_record(
    statement: &mut Statement<'_>,
    seq: i64,
    record: &Record,
) -> rusqlite::Result<()> {
    let mut bind = Binder::new(statement);
    bind.value(1, seq)?;
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
    let run = row.get(2)?;
    let corrupt = || Error::Task { key: run, source: Corrupt };
    let reason = row.get::<_, Option<u8>>(6)?;
    let active = row.get::<_, i64>(11)?;
    Ok(Record {
        seq: row.get::<_, i64>(0)? as u64,
        at: timestamp(row.get(1)?),
        run: RunKey(run),
        run_id: run_id(row.get(3)?),
        task: TaskIndex::from_u32(row.get(4)?),
        what: Happened::from_code(row.get(5)?).ok_or_else(corrupt)?,
        reason: reason.map(|code| Reason::from_code(code).ok_or_else(corrupt)).transpose()?,
        attempt: row.get(7)?,
        entry: row.get(8)?,
        worker: row.get::<_, Option<i64>>(9)?.map(worker_id),
        begun_at: row.get::<_, Option<i64>>(10)?.map(timestamp),
        active: Duration::from_micros(u64::try_from(active).map_err(|_| corrupt())?),
        error: row.get(12)?,
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

pub(crate) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub(crate) fn worker_id(id: i64) -> WorkerId {
    WorkerId(id as u64)
}

pub(crate) fn run_id(id: [u8; 16]) -> RunId {
    RunId::from_u128(u128::from_be_bytes(id))
}

/// The number that is kept; it never changes its meaning.
fn outcome_code(outcome: RunOutcome) -> u8 {
    match outcome {
        RunOutcome::Succeeded => 0,
        RunOutcome::Failed => 1,
        RunOutcome::Cancelled => 2,
    }
}

pub(crate) fn outcome_from(code: u8) -> Result<RunOutcome, Corrupt> {
    match code {
        0 => Ok(RunOutcome::Succeeded),
        1 => Ok(RunOutcome::Failed),
        2 => Ok(RunOutcome::Cancelled),
        _ => Err(Corrupt),
    }
}
