//! How a delta is written, inside one transaction of the writer.
//!
//! A task that has ended for good moves from `task` to `ended_task` with the record of its end; see
//! [`tasks`].

mod repair;
mod tasks;

use crate::error::Error;
use crate::ledger::Ledger;
use crate::rows::pause_name;
use crate::waits::wait_key;
pub(crate) use repair::QUERIES;
use tidegate_core::delta::Delta;
use tidegate_core::lifecycle::WorkerId;
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
            let (begin, end) = (&mut self.sql.begin_pause, &mut self.sql.end_pause);
            let write = if pause.begins { begin } else { end };
            write.execute((scope, name, pause.at.as_micros()))?;
            self.loader.cache.paused = None;
        }
        for (task, waits) in &delta.waits {
            for (id, wait) in waits {
                match wait {
                    Some(wait) => self.write_wait(*task, wait)?,
                    None => drop(self.sql.delete_wait.execute(wait_key(*task, id))?),
                }
            }
        }
        for (number, signal) in &delta.signals {
            self.write_signal(*number, signal)?;
        }
        for (task, holds) in &delta.holds {
            for (limit, hold) in holds {
                self.write_hold(*task, limit, hold.as_ref())?;
            }
        }
        for passed in &delta.passed_events {
            let id = self.number_limit(&passed.limit)?;
            let range = (id, passed.from.as_micros(), passed.to.as_micros());
            self.sql.forget_rate_events.execute(range)?;
        }
        for event in &delta.rate_events {
            let id = self.number_limit(&event.limit)?;
            self.sql.add_rate_event.execute((id, event.at.as_micros(), event.units))?;
        }
        for (limit, row) in &delta.limit_rows {
            self.write_limit_row(limit, row)?;
        }
        self.write_rows(delta)?;
        if let Some((worker, _)) = delta.notified {
            self.drop_notifications(worker)?;
        }
        for (worker, task) in &delta.notifications {
            self.sql.notify_worker.execute((worker.0 as i64, task.0))?;
            self.loader.notified_workers()?.insert(*worker);
        }
        // With the notifications for them.
        for worker in &delta.forgotten_workers {
            self.forget_worker(*worker)?;
        }
        for (row, head) in &delta.refiled {
            self.refile_task(row, head)?;
        }
        for orphan in &delta.orphans {
            self.remove_orphans(orphan)?;
        }
        self.remove_pruned(delta)?;
        Ok(ApplyOutcome::Applied)
    }
}

impl Ledger<'_> {
    pub(crate) fn drop_notifications(&mut self, worker: WorkerId) -> Result<(), Error> {
        self.sql.take_notifications.execute([worker.0 as i64])?;
        self.loader.notified_workers()?.remove(&worker);
        Ok(())
    }
}
