//! The records of a store, in the order of their numbers.
//!
//! A record stands in `record` or, if it is that of the end of a task for good, in the row of the ended
//! task.

use crate::columns::Binder;
use crate::error::Error;
use crate::fetch::{read_at, read_bytes};
use crate::loader::RowLoader;
use crate::sql::queries;
use rusqlite::{Row as Columned, Statement};
use std::time::Duration;
use tidegate_core::RunId;
use tidegate_core::lifecycle::Reason;
use tidegate_core::packed::{Ending, unpack_ending};
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{Happened, Record, RunKey};

/// The columns of a row of `record`, in the order in which [`read_record`] reads them.
macro_rules! record_columns {
    () => {
        "r.number, r.at, r.run, r.idx, r.kind, r.reason, r.attempt, r.entry, r.worker, r.begun_at, \
         r.active, r.error, NULL, ifnull(\
         (SELECT f.run_id FROM task AS f WHERE f.number = r.run), \
         (SELECT f.run_id FROM ended_task AS f WHERE f.number = r.run)) FROM record AS r"
    };
}

/// The same of an ended task. The id of the run is NULL where the run is being pruned.
macro_rules! ending_columns {
    () => {
        "r.record, r.ended_at, r.number - r.idx, r.idx, r.record_kind, NULL, NULL, NULL, NULL, NULL, \
         NULL, NULL, r.ending, iif(r.idx = 0, r.run_id, ifnull(\
         (SELECT f.run_id FROM task AS f WHERE f.number = r.number - r.idx), \
         (SELECT f.run_id FROM ended_task AS f WHERE f.number = r.number - r.idx))) \
         FROM ended_task AS r"
    };
}

queries! {
    /// Records behind ?1, at most ?2; ?3 is nothing.
    RECORDS = concat!(
        "SELECT ", record_columns!(), " WHERE r.number > ?1 AND ?3 IS NULL UNION ALL SELECT ",
        ending_columns!(), " WHERE r.record > ?1 ORDER BY 1 LIMIT ?2"
    );

    /// The same of the run ?3. Its ended tasks are found by their numbers, and not among all records behind
    /// ?1.
    RECORDS_OF_RUN = concat!(
        "SELECT ", record_columns!(), " WHERE r.run = ?3 AND r.number > ?1 UNION ALL SELECT ",
        ending_columns!(),
        " WHERE r.number >= ?3 AND r.number < ?3 + (SELECT tasks FROM plan WHERE number = ifnull(\
         (SELECT f.plan FROM task AS f WHERE f.number = ?3), \
         (SELECT f.plan FROM ended_task AS f WHERE f.number = ?3))) AND +r.record > ?1 \
         ORDER BY 1 LIMIT ?2"
    );

    /// All records of the runs from ?1 on below ?2, by run and number. The last of these runs may have tasks
    /// behind ?2: up to the next first one.
    RECORDS_OF_RUNS = concat!(
        "SELECT ", record_columns!(), " WHERE r.run >= ?1 AND r.run < ?2 UNION ALL SELECT ",
        ending_columns!(),
        " WHERE +r.record IS NOT NULL AND r.number - r.idx >= ?1 AND r.number - r.idx < ?2 \
         AND r.number >= ?1 AND r.number < ifnull((SELECT f.number FROM ended_task AS f \
         WHERE f.number >= ?2 AND f.idx = 0 ORDER BY f.number LIMIT 1), 9223372036854775807) \
         ORDER BY 3, 1"
    );
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

/// Reads a record; `None` if its run is gone.
pub(crate) fn read_record(row: &Columned<'_>) -> Result<Option<Record>, Error> {
    let run: RunKey = read_at(row, 2)?;
    let Some(run_id) = read_at::<Option<RunId>>(row, 13)? else { return Ok(None) };
    let damaged = || Error::Task { key: run.0, source: Corrupt };
    let ending = match row.get_ref(12)?.as_blob_or_null().map_err(rusqlite::Error::from)? {
        Some(_) => unpack_ending(read_bytes(row, 12)?).map_err(|_| damaged())?,
        None => read_ending(row, damaged)?,
    };
    let Ending { reason, attempt, entry, worker, begun_at, active, error, .. } = ending;
    Ok(Some(Record {
        seq: read_at(row, 0)?,
        at: read_at(row, 1)?,
        run,
        run_id,
        task: read_at(row, 3)?,
        what: Happened::from_code(read_at(row, 4)?).ok_or_else(damaged)?,
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
fn read_ending(row: &Columned<'_>, damaged: impl Fn() -> Error) -> Result<Ending, Error> {
    let reason = read_at::<Option<u8>>(row, 5)?;
    let active = u64::try_from(read_at::<i64>(row, 10)?).map_err(|_| damaged())?;
    Ok(Ending {
        reason: reason.map(|code| Reason::from_code(code).ok_or_else(&damaged)).transpose()?,
        attempt: read_at(row, 6)?,
        entry: read_at(row, 7)?,
        worker: read_at(row, 8)?,
        begun_at: read_at(row, 9)?,
        active: Duration::from_micros(active),
        error: read_at(row, 11)?,
        ready_at: None,
        slot: None,
    })
}

impl RowLoader<'_> {
    /// Records behind a number, of one run or of all.
    pub(crate) fn list_records(
        &mut self,
        run: Option<RunKey>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Record>, Error> {
        let sql = if run.is_some() { RECORDS_OF_RUN } else { RECORDS };
        let mut after = i64::try_from(after).unwrap_or(i64::MAX);
        let mut records = Vec::new();
        while records.len() < limit as usize {
            let mut read: u32 = 0;
            let statement = self.prepare_rare(sql)?;
            let mut rows = statement.query((after, limit, run.map(|run| run.0)))?;
            while let Some(row) = rows.next()? {
                after = read_at(row, 0)?;
                records.extend(read_record(row)?);
                read += 1;
            }
            // Those of runs that are being pruned are left out.
            if read < limit {
                break;
            }
        }
        records.truncate(limit as usize);
        Ok(records)
    }
}
