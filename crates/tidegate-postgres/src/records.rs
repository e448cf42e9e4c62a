//! The records of a store, in the order of their numbers.
//!
//! A record stands in `record` or, if it is that of the end of a task for good, in the row of the ended
//! task. Its number is made of that of the transaction that wrote it, so that transactions commit in
//! another order than their records are numbered. A reader that goes on behind the last number it has
//! seen must not pass over a record that is still to be committed: it is shown only records below all
//! that a running transaction may write ([`find_upper_bound`]).

use crate::columns::{Uuid, to_timestamp, worker_id};
use crate::error::Error;
use crate::state::StoreState;
use deadpool_postgres::Object;
use std::time::Duration;
use tidegate_core::RunId;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::Reason;
use tidegate_core::packed::{Ending, unpack_ending};
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{Happened, Record, RunKey};
use tokio_postgres::Row;

/// Transactions below this number have ended, or never write records of the store $1: they hold its
/// advisory lock before they have a number. A lock is released when the transaction is visible, and the
/// locks are read after the snapshot; so a statement that begins afterwards sees all that is below.
///
/// The number of a transaction in `pg_locks` has 32 bits; one that is younger than the snapshot does not
/// matter.
const UPPER_BOUND: &str = "WITH seen AS (SELECT pg_snapshot_xmin(taken)::text::int8 AS oldest, \
     pg_snapshot_xmax(taken)::text::int8 AS next FROM pg_current_snapshot() AS taken), \
     held AS MATERIALIZED (SELECT locktype, database, classid, objid, objsubid, virtualtransaction, \
     transactionid FROM pg_locks WHERE granted AND (locktype = 'advisory' \
     OR locktype = 'transactionid' AND mode = 'ExclusiveLock')) \
     SELECT CASE WHEN oldest = next THEN next ELSE least(next, (SELECT min(next - age) FROM \
     (SELECT (next - writer.transactionid::text::int8) & 4294967295 AS age \
     FROM held AS writer JOIN held AS lock USING (virtualtransaction) \
     WHERE writer.locktype = 'transactionid' AND lock.locktype = 'advisory' AND lock.objsubid = 1 \
     AND (lock.classid::int8 << 32) | lock.objid::int8 = $1 AND lock.database = \
     (SELECT oid FROM pg_database WHERE datname = current_database())) AS running \
     WHERE age < 2147483648)) END FROM seen";

/// The columns of a row of `record`, in the order in which [`read_record`] reads them.
macro_rules! record_columns {
    () => {
        "number, at, run, idx, kind, reason, attempt, entry, worker, begun_at, active, error, \
         NULL::bytea AS ending FROM record"
    };
}

/// The same of an ended task.
macro_rules! ending_columns {
    () => {
        "record AS number, ended_at AS at, number - idx AS run, idx, record_kind AS kind, \
         NULL::int2 AS reason, NULL::int8 AS attempt, NULL::int8 AS entry, NULL::int8 AS worker, \
         NULL::int8 AS begun_at, NULL::int8 AS active, NULL::text AS error, ending FROM ended_task"
    };
}

/// Adds the id of the run, which is NULL where the run is being pruned.
macro_rules! with_run_id {
    ($records:expr, $order:literal) => {
        concat!(
            "SELECT told.*, COALESCE(live.run_id, ended.run_id) FROM (",
            $records,
            ") AS told LEFT JOIN task AS live ON live.number = told.run \
             LEFT JOIN ended_task AS ended ON ended.number = told.run ORDER BY ",
            $order
        )
    };
}

/// Records behind $1 and below $2, at most $3.
pub(crate) const RECORDS: &str = with_run_id!(
    concat!(
        "(SELECT ",
        record_columns!(),
        " WHERE number > $1 AND number < $2 ORDER BY number LIMIT $3) UNION ALL (SELECT ",
        ending_columns!(),
        " WHERE record > $1 AND record < $2 ORDER BY record LIMIT $3) ORDER BY 1 LIMIT $3"
    ),
    "told.number"
);

/// The same of the run $4. Its ended tasks are found by their numbers, and not among all records behind
/// $1.
pub(crate) const RECORDS_OF_RUN: &str = with_run_id!(
    concat!(
        "(SELECT ",
        record_columns!(),
        " WHERE run = $4 AND number > $1 AND number < $2 ORDER BY number LIMIT $3) \
         UNION ALL (SELECT ",
        ending_columns!(),
        " WHERE number >= $4 AND number < (SELECT first.number + plan.tasks \
         FROM (SELECT number, plan FROM task WHERE number = $4 \
         UNION ALL SELECT number, plan FROM ended_task WHERE number = $4) AS first \
         JOIN plan ON plan.number = first.plan) AND record + 0 > $1 AND record + 0 < $2 \
         ORDER BY record + 0 LIMIT $3) ORDER BY 1 LIMIT $3"
    ),
    "told.number"
);

/// All records of the runs from $1 on below $2, by run and number. The last of these runs may have tasks
/// behind $2: up to the next first one.
pub(crate) const RECORDS_OF_RUNS: &str = with_run_id!(
    concat!(
        "SELECT ",
        record_columns!(),
        " WHERE run >= $1 AND run < $2 UNION ALL SELECT ",
        ending_columns!(),
        " WHERE record IS NOT NULL AND number - idx >= $1 AND number - idx < $2 AND number >= $1 \
         AND number < COALESCE((SELECT number FROM ended_task WHERE number >= $2 AND idx = 0 \
         ORDER BY number LIMIT 1), 9223372036854775807)"
    ),
    "told.run, told.number"
);

/// Records behind a number, of one run or of all.
pub(crate) async fn list_records(
    state: &StoreState,
    run: Option<RunKey>,
    after: u64,
    limit: u32,
) -> Result<Vec<Record>, Error> {
    let client = state.take_connection().await?;
    let bound = find_upper_bound(&client, state).await?;
    let sql = if run.is_some() { RECORDS_OF_RUN } else { RECORDS };
    let statement = client.prepare_cached(sql).await?;
    let (mut after, max) = (i64::try_from(after).unwrap_or(i64::MAX), i64::from(limit));
    let mut records = Vec::new();
    while records.len() < limit as usize {
        let rows = match &run {
            Some(run) => client.query(&statement, &[&after, &bound, &max, &run.0]).await?,
            None => client.query(&statement, &[&after, &bound, &max]).await?,
        };
        for row in &rows {
            after = row.try_get(0)?;
            records.extend(read_record(row)?);
        }
        // Those of runs that are being pruned are left out.
        if rows.len() < limit as usize {
            break;
        }
    }
    records.truncate(limit as usize);
    Ok(records)
}

/// A number below which all records are visible to the next statement.
async fn find_upper_bound(client: &Object, state: &StoreState) -> Result<i64, Error> {
    let statement = client.prepare_cached(UPPER_BOUND).await?;
    let row = client.query_one(&statement, &[&state.server.store_id]).await?;
    let transaction: i64 = row.try_get(0)?;
    Ok(transaction.saturating_add(state.server.record_base) << 20)
}

/// Reads a record; `None` if its run is gone.
pub(crate) fn read_record(row: &Row) -> Result<Option<Record>, Error> {
    let run: i64 = row.try_get(2)?;
    let Some(Uuid(run_id)) = row.try_get::<_, Option<Uuid>>(13)? else { return Ok(None) };
    let index = row.try_get::<_, i32>(3)?;
    let damaged = || Error::Task { key: run.saturating_add(index.into()), source: Corrupt };
    let kind: i16 = row.try_get(4)?;
    let kind = u8::try_from(kind).ok().and_then(Happened::from_code).ok_or_else(damaged)?;
    let ending = match row.try_get::<_, Option<&[u8]>>(12)? {
        Some(packed) => unpack_ending(packed).map_err(|_| damaged())?,
        None => read_ending(row, damaged)?,
    };
    let Ending { reason, attempt, entry, worker, begun_at, active, error, .. } = ending;
    Ok(Some(Record {
        seq: row.try_get::<_, i64>(0)? as u64,
        at: to_timestamp(row.try_get(1)?),
        run: RunKey(run),
        run_id: RunId::from_u128(run_id),
        task: TaskIndex::from_u32(u32::try_from(index).map_err(|_| damaged())?),
        what: kind,
        reason,
        attempt,
        entry,
        worker,
        begun_at,
        active,
        error,
    }))
}

/// Reads the columns of `record` that are packed in the row of an ended task.
fn read_ending(row: &Row, damaged: impl Fn() -> Error) -> Result<Ending, Error> {
    let reason: Option<i16> = row.try_get(5)?;
    let known = |code: i16| u8::try_from(code).ok().and_then(Reason::from_code);
    let number = |at: usize| {
        let number: i64 = row.try_get(at)?;
        u32::try_from(number).map_err(|_| damaged())
    };
    let active = u64::try_from(row.try_get::<_, i64>(10)?).map_err(|_| damaged())?;
    Ok(Ending {
        reason: reason.map(|code| known(code).ok_or_else(&damaged)).transpose()?,
        attempt: number(6)?,
        entry: number(7)?,
        worker: row.try_get::<_, Option<i64>>(8)?.map(worker_id),
        begun_at: row.try_get::<_, Option<i64>>(9)?.map(to_timestamp),
        active: Duration::from_micros(active),
        error: row.try_get(11)?,
        ready_at: None,
        slot: None,
    })
}
