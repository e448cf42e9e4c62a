//! How a delta is written, inside one transaction of the writer.

use crate::columns::{bind_changing, bind_lasting, bind_record};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::load::pause_name;
use crate::stored::side_table;
use crate::waits::wait_key;
use tidegate_core::Timestamp;
use tidegate_core::audit::Stray;
use tidegate_core::delta::{Delta, TaskWrite};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::{Gate, Head, Row};
use tidegate_core::transaction::{ApplyOutcome, Transaction};
use tidegate_core::want::{Loaded, Loader, Want};

impl Loader for Ledger<'_> {
    type Stop = Error;

    fn load(&mut self, want: &Want) -> Result<Loaded, Error> {
        self.loader.load(want)
    }
}

/// It has the write lock from its beginning, so that nothing it has loaded becomes stale.
impl Transaction for Ledger<'_> {
    fn apply_delta(&mut self, delta: &mut Delta) -> Result<ApplyOutcome, Error> {
        for limit in &delta.limits {
            self.write_limit(limit)?;
        }
        for pause in &delta.pauses {
            let (scope, name) = pause_name(&pause.scope);
            let write = if pause.begins { &mut self.sql.pause } else { &mut self.sql.unpause };
            write.execute((scope, name, pause.at.as_micros()))?;
            self.loader.cache.paused = None;
        }
        for (task, waits) in &delta.waits {
            for (id, wait) in waits {
                match wait {
                    Some(wait) => self.write_wait(*task, wait)?,
                    None => drop(self.sql.drop_wait.execute(wait_key(*task, id))?),
                }
            }
        }
        for (number, signal) in &delta.signals {
            self.write_signal(*number, signal)?;
        }
        for (task, holds) in &delta.holds {
            for (limit, hold) in holds {
                let id = self.limit_id(limit)?;
                match hold {
                    Some(hold) => {
                        let held = (task.0, id, hold.units, hold.since.as_micros());
                        self.sql.hold.execute(held)?
                    }
                    None => self.sql.let_go.execute((task.0, id))?,
                };
            }
        }
        for passed in &delta.passed_events {
            let id = self.limit_id(&passed.limit)?;
            let range = (id, passed.from.as_micros(), passed.to.as_micros());
            self.sql.forget_begun.execute(range)?;
        }
        for event in &delta.rate_events {
            let id = self.limit_id(&event.limit)?;
            self.sql.note_begun.execute((id, event.at.as_micros(), event.units))?;
        }
        for (limit, row) in &delta.limit_rows {
            let id = self.limit_id(limit)?;
            self.sql.set_limit_alarm.execute((id, row.alarm.map(Timestamp::as_micros)))?;
            self.loader.cache.limit_alarm = None;
        }
        self.write_rows(delta)?;
        if let Some((worker, _)) = delta.notified {
            self.drop_notifications(worker)?;
        }
        for (worker, task) in &delta.notifications {
            self.sql.leave_word.execute((worker.0 as i64, task.0))?;
            self.loader.notified_workers()?.insert(*worker);
        }
        // With the notifications for them.
        for worker in &delta.forgotten_workers {
            self.forget_worker(*worker)?;
        }
        for (row, head) in &delta.refiled {
            self.file_again(row, head)?;
        }
        for orphan in &delta.orphans {
            self.remove_orphans(orphan)?;
        }
        self.remove_pruned(delta)?;
        Ok(ApplyOutcome::Applied)
    }
}

impl Ledger<'_> {
    /// Writes payloads, records and tasks.
    fn write_rows(&mut self, delta: &mut Delta) -> Result<(), Error> {
        for (task, kind, bytes) in &delta.payloads {
            self.sql.keep.execute((task.0, kind.code(), &**bytes))?;
        }
        for copy in &delta.payload_copies {
            if let Some(bytes) = self.loader.find_payload(copy.from, copy.kind)? {
                self.sql.keep.execute((copy.to.0, copy.kind.code(), &*bytes))?;
            }
        }
        for record in &mut delta.records {
            record.seq = self.loader.last_record()? + 1;
            bind_record(&mut self.sql.record, record)?;
            self.sql.record.raw_execute()?;
            self.loader.cache.last_record = Some(record.seq);
        }
        for write in delta.tasks.drain(..) {
            self.write_task(&write)?;
            self.loader.note_waiting(&write);
            self.note_claimable(&write)?;
            self.loader.cache.remember_task(write.row);
        }
        Ok(())
    }

    fn write_task(&mut self, write: &TaskWrite) -> Result<(), Error> {
        let TaskWrite { row, place, queue, .. } = write;
        let behind = place.behind.as_ref().map(|limit| self.limit_id(limit)).transpose()?;
        if !write.is_new {
            let is_first = row.head.is_some();
            let update = if is_first { &mut self.sql.update_first } else { &mut self.sql.update };
            bind_changing(update, write, behind)?;
            let updated = update.raw_execute()?;
            assert_eq!(updated, 1, "a row that is replaced was there");
            return Ok(());
        }
        let filing = self.file_task(queue, &row.plan, row.index)?;
        bind_changing(&mut self.sql.insert, write, behind)?;
        bind_lasting(&mut self.sql.insert, row, filing)?;
        self.sql.insert.raw_execute()?;
        if let Some(key) = row.head.as_ref().and_then(|head| head.key.as_deref()) {
            self.sql.add_key.execute((filing.workflow, key, row.key.0))?;
        }
        Ok(())
    }

    /// Notes that a lane is not empty any more if a task can be claimed.
    fn note_claimable(&mut self, write: &TaskWrite) -> Result<(), Error> {
        let TaskWrite { row, place, queue, .. } = write;
        let Some(gate) = place.gate.filter(|gate| gate.is_open()) else { return Ok(()) };
        if gate == Gate::Awaited {
            self.loader.cache.awaited = Some(true);
        }
        if !self.loader.cache.empty.is_empty() {
            let lane = self.file_task(queue, &row.plan, row.index)?.lane;
            self.loader.cache.empty.remove(&(gate, lane));
        }
        Ok(())
    }

    pub(crate) fn drop_notifications(&mut self, worker: WorkerId) -> Result<(), Error> {
        self.sql.drop_words.execute([worker.0 as i64])?;
        self.loader.notified_workers()?.remove(&worker);
        Ok(())
    }

    /// Puts a task into its lane, and its run, if it is the first, under its key. A repair does so.
    fn file_again(&mut self, row: &Row, head: &Head) -> Result<(), Error> {
        let filing = self.file_task(&head.queue, &row.plan, row.index)?;
        let lane = "UPDATE task SET lane = ?2 WHERE key = ?1 AND lane != ?2";
        self.loader.execute_rare(lane, (row.key.0, filing.lane))?;
        if row.head.is_some() {
            let key = head.key.as_deref();
            let forget = "DELETE FROM run_key WHERE run = ?1 AND (workflow, key) IS NOT (?2, ?3)";
            self.loader.execute_rare(forget, (row.key.0, filing.workflow, key))?;
            let add = "INSERT INTO run_key (workflow, key, run) SELECT ?1, ?2, ?3 \
                       WHERE ?2 IS NOT NULL ON CONFLICT DO NOTHING";
            self.loader.execute_rare(add, (filing.workflow, key, row.key.0))?;
        }
        // A lane that was empty may not be any more.
        self.loader.cache.empty.clear();
        Ok(())
    }

    /// Removes rows that belong to something that does not exist.
    fn remove_orphans(&mut self, stray: &Stray) -> Result<(), Error> {
        if let Stray::Pause(run) = stray {
            let delete = "DELETE FROM pause WHERE scope = 0 AND name = ?1";
            self.loader.execute_rare(delete, [run])?;
        }
        for &table in stray.side_tables() {
            let (table, owner) = side_table(table);
            let delete = format!("DELETE FROM {table} WHERE {owner} = ?1");
            self.loader.execute_rare(&delete, [stray.owner_number()])?;
        }
        Ok(())
    }
}
