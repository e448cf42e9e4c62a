//! Rows from and to columns.
//!
//! Values that no statement searches or compares are packed ([`tidegate_core::packed`]). A row is read in two
//! steps: [`read_task`] takes the columns as they are, and [`TaskColumns::into_row`] makes a row of them
//! once the plan, the queue and the limit that they name are known.

use crate::error::Error;
use std::error::Error as StdError;
use std::sync::Arc;
use tidegate_core::decision::{PlainClaim, claim_plain_row};
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Kind, Life, WorkerId};
use tidegate_core::limit::LimitKey;
use tidegate_core::packed::{
    StoredLifecycle, pack_lifecycle, pack_run, unpack_lifecycle, unpack_run,
};
use tidegate_core::plan::Plan;
use tidegate_core::rows::{Corrupt, Gate, Place, Row};
use tidegate_core::store::{RequestId, TaskKey};
use tidegate_core::{RunId, Timestamp};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// The columns of a live task `t`, in the order in which [`read_task`] reads them.
macro_rules! live_columns {
    () => {
        "t.number, t.request, t.fence, t.plan, t.task_group, t.idx, t.state, t.eligibility, t.worker, \
         t.claim_order, t.alarm, t.blocked_on, t.lifecycle, t.run_id, t.run, t.claimed_at"
    };
}
pub(crate) use live_columns;

/// The same of an ended task `t`.
macro_rules! ended_columns {
    () => {
        "t.number, t.request, t.fence, t.plan, t.task_group, t.idx, t.state, NULL::int2, NULL::int8, \
         NULL::int8, NULL::int8, NULL::int8, t.lifecycle, t.run_id, t.run, NULL::int8"
    };
}
pub(crate) use ended_columns;

/// Live tasks, to be followed by a condition.
pub(crate) const SELECT_LIVE: &str = concat!("SELECT ", live_columns!(), " FROM task t");

/// Ended tasks, with the same columns, to be followed by a condition.
pub(crate) const SELECT_ENDED: &str = concat!("SELECT ", ended_columns!(), " FROM ended_task t");

/// The number of columns that [`read_task`] reads.
pub(crate) const TASK_COLUMNS: usize = 16;

/// The columns of a task as they are.
#[derive(Debug, Clone)]
pub(crate) struct TaskColumns {
    pub(crate) key: i64,
    pub(crate) index: i32,
    pub(crate) plan: i32,
    pub(crate) task_group: i32,
    pub(crate) request: i64,
    pub(crate) fence: i64,
    state: i16,
    pub(crate) eligibility: Option<i16>,
    pub(crate) worker: Option<i64>,
    pub(crate) claim_order: Option<i64>,
    alarm: Option<i64>,
    pub(crate) blocked_on: Option<i64>,
    lifecycle: Vec<u8>,
    run_id: Option<Uuid>,
    run: Option<Vec<u8>>,
    /// The time of a claim that has left the lifecycle as it was.
    claimed_at: Option<i64>,
}

/// The things that the columns of a task name by number.
pub(crate) struct NamedThings {
    pub(crate) plan: Arc<Plan>,
    /// The queue of its task group, in the row of a first task.
    pub(crate) queue: Option<Arc<str>>,
    /// The limit that it is blocked on.
    pub(crate) limit: Option<LimitKey>,
}

/// Reads the columns of [`SELECT_LIVE`] or [`SELECT_ENDED`], which are the first ones of a row.
pub(crate) fn read_task(row: &tokio_postgres::Row) -> Result<TaskColumns, Error> {
    Ok(TaskColumns {
        key: row.try_get(0)?,
        request: row.try_get(1)?,
        fence: row.try_get(2)?,
        plan: row.try_get(3)?,
        task_group: row.try_get(4)?,
        index: row.try_get(5)?,
        state: row.try_get(6)?,
        eligibility: row.try_get(7)?,
        worker: row.try_get(8)?,
        claim_order: row.try_get(9)?,
        alarm: row.try_get(10)?,
        blocked_on: row.try_get(11)?,
        lifecycle: row.try_get(12)?,
        run_id: row.try_get(13)?,
        run: row.try_get(14)?,
        claimed_at: row.try_get(15)?,
    })
}

impl TaskColumns {
    /// Whether this is the row of the first task of a run.
    pub(crate) fn is_first(&self) -> bool {
        self.index == 0
    }

    /// The packed run, in the row of a first task.
    pub(crate) fn packed_run(&self) -> Option<&[u8]> {
        self.run.as_deref()
    }

    /// The number of the first task of its run.
    pub(crate) fn first_task(&self) -> i64 {
        self.key.saturating_sub(self.index.into())
    }

    /// Unpacks the lifecycle.
    ///
    /// # Errors
    /// It is damaged.
    pub(crate) fn unpack_lifecycle(&self) -> Result<StoredLifecycle, Corrupt> {
        unpack_lifecycle(&self.lifecycle)
    }

    /// Whether this lifecycle is the packed one of such a row, and not only read as such.
    pub(crate) fn is_packed_row(&self, row: &Row) -> bool {
        let is_packed_run = self.run.as_deref() == row.head.as_deref().map(pack_run).as_deref();
        if self.claimed_at.is_none() {
            return is_packed_run && self.lifecycle == pack_lifecycle(row);
        }
        let ready = self.unpack_lifecycle().and_then(|stored| self.read_life(&stored));
        let is_packed = |life| self.lifecycle == pack_lifecycle(&Row { life, ..row.clone() });
        is_packed_run && ready.is_ok_and(is_packed)
    }

    /// The columns by which such a task is found.
    ///
    /// # Errors
    /// They make no sense.
    pub(crate) fn read_place(&self, limit: Option<LimitKey>) -> Result<Place, Corrupt> {
        let known = |code: i16| u8::try_from(code).ok().and_then(Gate::from_code).ok_or(Corrupt);
        Ok(Place {
            gate: self.eligibility.map(known).transpose()?,
            order: self.claim_order.map(to_timestamp),
            alarm: self.alarm.map(to_timestamp),
            behind: limit,
        })
    }

    /// The row that these are the columns of, with the things that they name.
    ///
    /// # Errors
    /// The columns are damaged.
    pub(crate) fn into_row(self, named: NamedThings) -> Result<Row, Error> {
        let key = self.key;
        self.make_row(named).map_err(|source| Error::Task { key, source })
    }

    fn make_row(self, NamedThings { plan, queue, limit }: NamedThings) -> Result<Row, Corrupt> {
        let stored = self.unpack_lifecycle()?;
        let life = self.read_life(&stored)?;
        let StoredLifecycle { has_waits, ended_at, .. } = stored;
        let claim = self.find_claim()?;
        let index = u32::try_from(self.index).map_err(|_| Corrupt)?;
        if index as usize >= plan.task_count() {
            return Err(Corrupt);
        }
        let head = match (self.run_id, &self.run) {
            (Some(Uuid(id)), Some(run)) if index == 0 => {
                let (id, queue) = (RunId::from_u128(id), queue.ok_or(Corrupt)?);
                Some(Box::new(unpack_run(run)?.into_head(id, queue)))
            }
            (None, None) if index > 0 => None,
            _ => return Err(Corrupt),
        };
        let behind = match (limit, self.claim_order) {
            (Some(limit), Some(order)) => Some((limit, to_timestamp(order))),
            (Some(_), None) => return Err(Corrupt),
            (None, _) => None,
        };
        let row = Row {
            key: TaskKey(self.key),
            index: TaskIndex::from_u32(index),
            plan,
            life,
            request: RequestId(self.request as u64),
            ended_at,
            has_waits,
            open_parents: stored.open_parents,
            has_inserts_above: stored.has_inserts_above,
            behind,
            head,
        };
        match claim {
            Some(claim) => claim_plain_row(row, &claim).ok_or(Corrupt),
            None => Ok(row),
        }
    }

    /// The life that is stored: before the claim, if that has left it as it was.
    fn read_life(&self, stored: &StoredLifecycle) -> Result<Life, Corrupt> {
        let mut columns = stored.columns.clone();
        if self.claimed_at.is_some() {
            columns.state = Kind::Ready.code();
            columns.fence = (self.fence as u64).checked_sub(1).ok_or(Corrupt)?;
        } else {
            columns.state = u8::try_from(self.state).map_err(|_| Corrupt)?;
            columns.fence = self.fence as u64;
            columns.worker = self.worker.map(worker_id);
        }
        Life::try_from(columns)
    }

    /// The claim that has left the lifecycle as it was.
    fn find_claim(&self) -> Result<Option<PlainClaim>, Corrupt> {
        let Some(at) = self.claimed_at else { return Ok(None) };
        let begins = match u8::try_from(self.state).ok().and_then(Kind::from_code) {
            Some(Kind::Active) => true,
            Some(Kind::Claimed) => false,
            _ => return Err(Corrupt),
        };
        let worker = self.worker.map(worker_id).ok_or(Corrupt)?;
        let request = RequestId(self.request as u64);
        Ok(Some(PlainClaim { worker, request, at: to_timestamp(at), begins }))
    }
}

/// A 128-bit id in a column of type `uuid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Uuid(pub(crate) u128);

impl ToSql for Uuid {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl FromSql<'_> for Uuid {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Uuid(u128::from_be_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}

pub(crate) fn to_timestamp(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub(crate) fn worker_id(number: i64) -> WorkerId {
    WorkerId(number as u64)
}

#[cfg(test)]
mod tests;
