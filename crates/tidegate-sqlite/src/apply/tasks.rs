//! Task rows, their records and their payloads.
//!
//! A row is *final* when nothing about it changes any more: its task has ended and, if it is the first of
//! its run, so has the run. A final row stands in `ended_task`, with the record of the end and the output,
//! where they come in the same delta; all others stand in `task`.

use crate::columns::{Binder, bind_changing};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::records::bind_record;
use rusqlite::Statement;
use tidegate_core::delta::{Delta, MergedWrites, TaskWrite};
use tidegate_core::packed::{pack_ending, pack_lifecycle, pack_run};
use tidegate_core::rows::{Gate, Row};
use tidegate_core::store::{Bytes, Record, RequestId, TaskKey};

/// The largest input or output that stands in the row of its task: the row still fits a page, and is moved
/// with it when the task ends.
const ROW_PAYLOAD_MAX: usize = 1_024;

/// The values that go into the row of a task with it.
struct Merged<'d> {
    end: Option<&'d Record>,
    output: Option<&'d Bytes>,
    input: Option<&'d Bytes>,
}

impl Ledger<'_> {
    /// Writes payloads, records and tasks.
    pub(crate) fn write_rows(&mut self, delta: &mut Delta) -> Result<(), Error> {
        for record in &mut delta.records {
            record.seq = self.loader.last_record()? + 1;
            self.loader.cache.last_record = Some(record.seq);
        }
        let merged = MergedWrites::new(delta, ROW_PAYLOAD_MAX);
        for (place, (task, kind, bytes)) in delta.payloads.iter().enumerate() {
            if !merged.has_payload(place, *task, *kind) {
                self.sql.put_payload.execute((task.0, kind.code(), &**bytes))?;
            }
        }
        for copy in &delta.payload_copies {
            if let Some(bytes) = self.loader.find_payload(copy.from, copy.kind)? {
                self.sql.put_payload.execute((copy.to.0, copy.kind.code(), &*bytes))?;
            }
        }
        for (place, record) in delta.records.iter().enumerate() {
            if !merged.has_record(place, record) {
                bind_record(&mut self.sql.insert_record, record)?;
                self.sql.insert_record.raw_execute()?;
            }
        }
        let writes = std::mem::take(&mut delta.tasks);
        for write in writes {
            let task = write.row.key;
            let of_task = Merged {
                end: merged.find_end(delta, task).map(|(_, record)| record),
                output: merged.find_output(delta, task),
                input: merged.find_input(delta, task),
            };
            self.write_task(&write, &of_task)?;
            self.loader.note_waiting(&write);
            self.note_claimable(&write)?;
            self.loader.cache.remember_task(write.row);
        }
        Ok(())
    }

    fn write_task(&mut self, write: &TaskWrite, merged: &Merged<'_>) -> Result<(), Error> {
        match (write.is_new, write.is_final) {
            (true, is_final) => self.insert_task(write, merged, is_final),
            (false, true) => self.end_task(&write.row, merged),
            (false, false) => {
                if self.update_task(write)? == 0 {
                    self.reopen_task(write)?;
                    let updated = self.update_task(write)?;
                    assert_eq!(updated, 1, "a row that is replaced was there");
                }
                Ok(())
            }
        }
    }

    fn update_task(&mut self, write: &TaskWrite) -> Result<usize, Error> {
        let blocked_on = self.number_blocking_limit(write)?;
        let is_first = write.row.head.is_some();
        let update = if is_first { &mut self.sql.update_first } else { &mut self.sql.update_task };
        bind_changing(update, write, is_first, blocked_on)?;
        Ok(update.raw_execute()?)
    }

    fn number_blocking_limit(&mut self, write: &TaskWrite) -> Result<Option<i64>, Error> {
        write.place.behind.as_ref().map(|limit| self.number_limit(limit)).transpose()
    }

    fn insert_task(
        &mut self,
        write: &TaskWrite,
        merged: &Merged<'_>,
        is_final: bool,
    ) -> Result<(), Error> {
        let TaskWrite { row, queue, .. } = write;
        let filed = self.file_task(queue, &row.plan, row.index)?;
        let is_top = row.head.as_ref().is_some_and(|head| head.parent.is_none());
        let run_number = if is_top { Some(self.next_run_number()?) } else { None };
        let run_id = row.head.as_ref().map(|head| head.id.as_u128().to_be_bytes());
        let input = merged.input.map(|input| &**input);
        if is_final {
            let insert = &mut self.sql.insert_ended;
            bind_ending(insert, row, merged)?;
            let mut bind = Binder::resume_binding(insert);
            bind.value(13, filed.plan)?;
            bind.value(14, filed.task_group)?;
            bind.value(15, row.index.as_u32())?;
            bind.maybe(16, run_id)?;
            bind.maybe(17, run_number)?;
            bind.maybe(18, input)?;
            insert.raw_execute()?;
        } else {
            let blocked_on = self.number_blocking_limit(write)?;
            let insert = &mut self.sql.insert_task;
            bind_changing(insert, write, true, blocked_on)?;
            let mut bind = Binder::resume_binding(insert);
            bind.value(13, filed.plan)?;
            bind.value(14, filed.task_group)?;
            bind.value(15, filed.queue)?;
            bind.value(16, row.planned().weight)?;
            bind.value(17, row.index.as_u32())?;
            bind.maybe(18, run_id)?;
            bind.maybe(19, run_number)?;
            bind.maybe(20, input)?;
            insert.raw_execute()?;
        }
        if let Some(key) = row.head.as_ref().and_then(|head| head.key.as_deref()) {
            let key = (&**queue, row.plan.workflow(), key, row.key.0);
            self.sql.insert_key.execute(key)?;
        }
        Ok(())
    }

    /// Moves a row that has become final; one that was final before is changed by a repair.
    fn end_task(&mut self, row: &Row, merged: &Merged<'_>) -> Result<(), Error> {
        bind_ending(&mut self.sql.move_ended, row, merged)?;
        if self.sql.move_ended.raw_execute()? == 1 {
            self.sql.delete_task.execute([row.key.0])?;
            return Ok(());
        }
        bind_ending(&mut self.sql.update_ended, row, merged)?;
        let updated = self.sql.update_ended.raw_execute()?;
        assert_eq!(updated, 1, "a row that is replaced was there");
        Ok(())
    }

    /// The number of the next run that no task has begun.
    fn next_run_number(&mut self) -> Result<i64, Error> {
        let number = self.loader.last_run()? + 1;
        self.loader.cache.last_run = Some(number);
        self.has_new_run = true;
        Ok(number)
    }

    /// Notes the number of the last run, once in a transaction.
    pub(crate) fn store_run_number(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.has_new_run) {
            let last = self.loader.last_run()?;
            self.sql.set_high_water.execute(("run", last))?;
        }
        Ok(())
    }

    /// Notes that a task group is not empty any more if a task can be claimed.
    fn note_claimable(&mut self, write: &TaskWrite) -> Result<(), Error> {
        let TaskWrite { row, place, queue, .. } = write;
        let Some(gate) = place.gate.filter(|gate| gate.is_open()) else { return Ok(()) };
        if gate == Gate::Awaited {
            self.loader.cache.awaited = Some(true);
        }
        if !self.loader.cache.empty.is_empty() {
            let group = self.file_task(queue, &row.plan, row.index)?.task_group;
            self.loader.cache.empty.remove(&(gate, group));
        }
        Ok(())
    }
}

/// Binds a final row: number 1 to 12.
fn bind_ending(
    statement: &mut Statement<'_>,
    row: &Row,
    merged: &Merged<'_>,
) -> rusqlite::Result<()> {
    let (TaskKey(number), RequestId(request)) = (row.key, row.request);
    let mut bind = Binder::new(statement);
    bind.value(1, number)?;
    bind.value(2, request as i64)?;
    bind.value(3, row.life.fence.0 as i64)?;
    bind.value(4, row.life.state.kind().code())?;
    bind.maybe(5, merged.end.map(|record| record.seq as i64))?;
    bind.maybe(6, merged.end.map(|record| record.what.code()))?;
    // A damaged row may lack it.
    bind.value(7, row.ended_at.map_or(0, |at| at.as_micros()))?;
    bind.value(8, pack_lifecycle(row))?;
    bind.value(9, merged.end.map_or(Vec::new(), pack_ending))?;
    bind.time(10, row.head.as_ref().and_then(|head| head.ended).map(|(_, at)| at))?;
    bind.maybe(11, row.head.as_deref().map(pack_run))?;
    bind.maybe(12, merged.output.map(|output| &**output))
}
