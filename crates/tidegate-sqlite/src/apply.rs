//! How a delta is written, inside one transaction of the writer.

use crate::columns::{bind_changing, bind_lasting, bind_record};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::rows::pause_name;
use tidegate_core::delta::{Delta, PauseChange, TaskWrite};
use tidegate_core::rows::{Gate, Payload, Place};
use tidegate_core::store::{Bytes, Record, TaskKey};
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
            self.change_pause(pause)?;
        }
        for (task, waits) in &delta.waits {
            for (id, wait) in waits {
                match wait {
                    Some(wait) => self.write_wait(*task, wait)?,
                    None => self.delete_wait(*task, id)?,
                }
            }
        }
        for (number, signal) in &delta.signals {
            self.write_signal(*number, signal)?;
        }
        for (task, holds) in &delta.holds {
            for (limit, hold) in holds {
                match hold {
                    Some(hold) => self.write_hold(*task, hold)?,
                    None => self.delete_hold(*task, limit)?,
                }
            }
        }
        for event in &delta.rate_events {
            self.write_rate_event(event)?;
        }
        for (limit, alarm) in &delta.limit_alarms {
            self.write_limit_alarm(limit, *alarm)?;
        }
        for (task, kind, bytes) in &delta.payloads {
            self.keep_payload(*task, *kind, bytes)?;
        }
        for copy in &delta.payload_copies {
            if let Some(bytes) = self.loader.find_payload(copy.from, copy.kind)? {
                self.keep_payload(copy.to, copy.kind, &bytes)?;
            }
        }
        for record in &mut delta.records {
            record.seq = self.add_record(record)?;
        }
        for write in delta.tasks.drain(..) {
            if write.is_new {
                self.insert_task(write)?;
            } else {
                self.update_task(write)?;
            }
        }
        if let Some(worker) = delta.notified {
            self.forget_words(worker)?;
        }
        for (worker, task) in &delta.notifications {
            self.write_word(*worker, *task)?;
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
    fn insert_task(&mut self, write: TaskWrite) -> Result<(), Error> {
        let TaskWrite { row, queue, .. } = &write;
        let belongs = self.belongs(queue, &row.plan, row.index)?;
        let behind = self.behind_id(&write.place)?;
        bind_changing(&mut self.sql.insert, &write, behind)?;
        bind_lasting(&mut self.sql.insert, row, &belongs)?;
        self.sql.insert.raw_execute()?;
        if let Some(key) = row.head.as_ref().and_then(|head| head.key.as_deref()) {
            self.sql.add_key.execute((belongs.workflow, key, row.key.0))?;
        }
        self.note_written(write)
    }

    fn update_task(&mut self, write: TaskWrite) -> Result<(), Error> {
        let behind = self.behind_id(&write.place)?;
        let update = match write.row.head {
            Some(_) => &mut self.sql.update_first,
            None => &mut self.sql.update,
        };
        bind_changing(update, &write, behind)?;
        let updated = update.raw_execute()?;
        assert_eq!(updated, 1, "a row that is replaced was there");
        self.note_written(write)
    }

    fn keep_payload(&mut self, task: TaskKey, kind: Payload, bytes: &Bytes) -> Result<(), Error> {
        self.sql.keep.execute((task.0, kind.code(), &**bytes))?;
        Ok(())
    }

    fn add_record(&mut self, record: &Record) -> Result<u64, Error> {
        let last = self.loader.last_record()?;
        bind_record(&mut self.sql.record, last + 1, record)?;
        self.sql.record.raw_execute()?;
        self.loader.cache.last_record = Some(last + 1);
        Ok(last as u64 + 1)
    }

    fn change_pause(&mut self, change: &PauseChange) -> Result<(), Error> {
        let (scope, name) = pause_name(&change.scope);
        let at = change.at.as_micros();
        match change.begins {
            true => self.sql.pause.execute((scope, name, at))?,
            false => self.sql.unpause.execute((scope, name, at))?,
        };
        self.loader.cache.paused = None;
        Ok(())
    }

    /// The number of the limit behind which a task stands.
    fn behind_id(&mut self, place: &Place) -> Result<Option<i64>, Error> {
        place.behind.as_ref().map(|limit| self.limit_id(limit)).transpose()
    }

    /// A lane in which something can be claimed from now on.
    fn opens(&mut self, write: &TaskWrite) -> Result<(), Error> {
        let TaskWrite { row, place, queue, .. } = write;
        let Some(gate) = place.gate.filter(|gate| gate.is_open()) else { return Ok(()) };
        if gate == Gate::Awaited {
            self.loader.cache.awaited = Some(true);
        }
        if !self.loader.cache.empty.is_empty() {
            let lane = self.belongs(queue, &row.plan, row.index)?.lane;
            self.loader.cache.empty.remove(&(gate, lane));
        }
        Ok(())
    }

    /// A task row was written.
    fn note_written(&mut self, write: TaskWrite) -> Result<(), Error> {
        self.loader.may_wait(&write);
        self.opens(&write)?;
        self.loader.cache.remember(write.row);
        Ok(())
    }
}
