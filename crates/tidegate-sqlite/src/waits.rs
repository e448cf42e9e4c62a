//! Waits of tasks, signals to runs and notifications of workers.

use crate::columns::Binder;
use crate::error::Error;
use crate::fetch::{Fetch, read_at};
use crate::ledger::Ledger;
use crate::loader::{RowLoader, load_once};
use rusqlite::{OptionalExtension, Row as Columned};
use std::collections::BTreeSet;
use tidegate_core::delta::SignalChange;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{RunKey, TaskKey};
use tidegate_core::wait::{WaitId, WaitKind, WaitOutcome, Waiting};
use tidegate_core::want::{Loaded, Want};

/// The numbers of the kinds of waits for the end of a run.
const FOR_RUN: [u8; 2] = [WaitKind::Child as u8, WaitKind::Run as u8];

/// Reads the columns of a wait, from the first.
pub(crate) fn read_wait(row: &Columned<'_>) -> rusqlite::Result<Result<Waiting, Corrupt>> {
    let id = read_id(row, 0)?;
    let outcome = match read_at::<Option<u8>>(row, 7)? {
        Some(code) => WaitOutcome::decode(code, read_at(row, 8)?).map(Some).ok_or(Corrupt),
        None => Ok(None),
    };
    let (label, since, due) = (read_at(row, 3)?, read_at(row, 4)?, read_at(row, 5)?);
    let (run, signal) = (read_at(row, 6)?, read_at(row, 9)?);
    Ok(id.and_then(|id| Ok(Waiting { id, label, since, due, run, outcome: outcome?, signal })))
}

/// Reads kind, name and occurrence.
fn read_id(row: &Columned<'_>, at: usize) -> rusqlite::Result<Result<WaitId, Corrupt>> {
    let (kind, name, occurrence) =
        (read_at(row, at)?, read_at(row, at + 1)?, read_at(row, at + 2)?);
    let kind = WaitKind::from_code(kind).ok_or(Corrupt);
    Ok(kind.map(|kind| WaitId { kind, name, occurrence }))
}

/// The columns by which a wait is found.
pub(crate) fn wait_key(task: TaskKey, id: &WaitId) -> (i64, u8, &str, u32) {
    (task.0, id.kind.code(), &id.name, id.occurrence)
}

impl RowLoader<'_> {
    pub(crate) fn load_waits(&mut self, want: &Want) -> Result<Loaded, Error> {
        let corrupt = |key: i64| move |source| Error::Task { key, source };
        Ok(match want {
            Want::Waits(task) => {
                let waits = self.sql.waits.query_map([task.0], read_wait)?;
                let waits = waits.map(|wait| wait?.map_err(corrupt(task.0)));
                Loaded::Waits(waits.collect::<Result<_, Error>>()?)
            }
            Want::Wait(task, id) => {
                let wait = self.sql.wait.query_row(wait_key(*task, id), read_wait).optional()?;
                Loaded::Wait(wait.transpose().map_err(corrupt(task.0))?)
            }
            Want::SignalWaits { run, name, max } => {
                let kind = WaitKind::Signal;
                let waits = (run.0, kind.code(), &**name, max);
                let waits: Vec<_> = self.sql.signal_waits.fetch_all(waits)?;
                let waits = waits.into_iter().map(|(since, task, occurrence)| {
                    (since, task, WaitId { kind, name: name.clone(), occurrence })
                });
                Loaded::SignalWaits(waits.collect())
            }
            Want::WaitersOf(run) => {
                let waits =
                    self.sql.run_waits.query_map((run.0, FOR_RUN[0], FOR_RUN[1]), |row| {
                        let task: TaskKey = read_at(row, 0)?;
                        Ok(read_id(row, 1)?.map(|id| (task, id)))
                    })?;
                let waits = waits.map(|wait| wait?.map_err(corrupt(run.0)));
                let mut waits = waits.collect::<Result<Vec<_>, Error>>()?;
                waits.sort_unstable();
                Loaded::RunWaits(waits)
            }
            Want::EdgesFrom { run, tasks } => {
                let end = run.0.saturating_add((*tasks).into());
                let tasks = (run.0, end, FOR_RUN[0], FOR_RUN[1]);
                let waits = self.sql.waited_by.query_map(tasks, |row| {
                    let (task, run): (TaskKey, RunKey) = (read_at(row, 0)?, read_at(row, 4)?);
                    Ok(read_id(row, 1)?.map(|id| (task, id, run)))
                })?;
                let waits = waits.map(|wait| wait?.map_err(corrupt(run.0)));
                Loaded::Edges(waits.collect::<Result<_, Error>>()?)
            }
            Want::SignalNumber { .. } => {
                let last = || self.sql.last_signal.fetch_one([]);
                let number = load_once(&mut self.cache.last_signal, last)?;
                *number += 1;
                Loaded::Number(*number)
            }
            Want::IsSent(run, id) => {
                Loaded::Flag(self.sql.was_sent.exists((run.0, id.to_be_bytes()))?)
            }
            Want::Signals { run, name, max } => {
                Loaded::Signals(self.sql.signals.fetch_all((run.0, &**name, max))?)
            }
            Want::Notifications(worker) if !self.notified_workers()?.contains(worker) => {
                Loaded::TaskKeys(Vec::new())
            }
            Want::Notifications(worker) => {
                Loaded::TaskKeys(self.sql.notifications.fetch_all([worker.0 as i64])?)
            }
            other => self.load_limits(other)?,
        })
    }

    /// The workers that have notifications. Asked in every worker's request, and so remembered.
    pub(crate) fn notified_workers(&mut self) -> Result<&mut BTreeSet<WorkerId>, Error> {
        Ok(load_once(&mut self.cache.notified, || self.sql.notified_workers.fetch_all([]))?)
    }
}

impl Ledger<'_> {
    pub(crate) fn write_wait(&mut self, task: TaskKey, wait: &Waiting) -> Result<(), Error> {
        let Waiting { id, label, since, due, run, outcome, signal } = wait;
        let stored = outcome.as_ref().map(|outcome| {
            outcome.encode().expect("a wait that was refused has not begun, and is not kept")
        });
        let mut bind = Binder::new(&mut self.sql.put_wait);
        bind.value(1, task.0)?;
        bind.value(2, id.kind.code())?;
        bind.value(3, &*id.name)?;
        bind.value(4, id.occurrence)?;
        bind.value(5, &**label)?;
        bind.value(6, since.as_micros())?;
        bind.time(7, *due)?;
        bind.maybe(8, run.map(|run| run.0))?;
        bind.maybe(9, stored.as_ref().map(|(code, _)| *code))?;
        bind.maybe(10, stored.as_ref().and_then(|(_, body)| body.as_deref()))?;
        bind.maybe(11, signal.map(|signal| signal as i64))?;
        self.sql.put_wait.raw_execute()?;
        Ok(())
    }

    pub(crate) fn write_signal(&mut self, number: u64, change: &SignalChange) -> Result<(), Error> {
        let number = number as i64;
        let taken_by = match change {
            SignalChange::Sent { id, run, name, body, at, taken_by } => {
                let taken_by = taken_by.map(|task| task.0);
                let (id, body) = (id.to_be_bytes(), body.as_deref());
                let signal = (number, id, run.0, &**name, body, at.as_micros(), taken_by);
                self.sql.insert_signal.execute(signal)?;
                return Ok(());
            }
            SignalChange::Taken { by } => Some(by.0),
            SignalChange::Returned { .. } => None,
        };
        // One that was pruned with its run stays away.
        self.sql.take_signal.execute((number, taken_by))?;
        Ok(())
    }
}
