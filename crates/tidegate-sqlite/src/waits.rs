//! Waits of tasks, signals to runs and words to workers.

use crate::columns::{Binder, timestamp, worker_id};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::loader::RowLoader;
use rusqlite::{OptionalExtension, Row as Columned};
use std::collections::BTreeSet;
use tidegate_core::Timestamp;
use tidegate_core::delta::SignalChange;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{Bytes, RunKey, TaskKey};
use tidegate_core::wait::{WaitId, WaitKind, WaitOutcome, Waiting};

/// The kinds of waits for the end of a run.
const FOR_RUN: [WaitKind; 2] = [WaitKind::Child, WaitKind::Run];

/// Reads the columns of a wait, from the first.
pub(crate) fn read(row: &Columned<'_>) -> rusqlite::Result<Result<Waiting, Corrupt>> {
    let time = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(timestamp));
    let id = read_id(row.get(0)?, row.get(1)?, row.get(2)?);
    let (how, body) = (row.get::<_, Option<u8>>(7)?, read_body(row, 8)?);
    let outcome = match how {
        Some(how) => WaitOutcome::decode(how, body).map(Some).ok_or(Corrupt),
        None => Ok(None),
    };
    let (label, since, due): (String, _, _) = (row.get(3)?, timestamp(row.get(4)?), time(5)?);
    let run = row.get::<_, Option<i64>>(6)?.map(RunKey);
    let signal = row.get::<_, Option<i64>>(9)?.map(|seq| seq as u64);
    Ok(id.and_then(|id| {
        Ok(Waiting { id, label: label.into(), since, due, run, outcome: outcome?, signal })
    }))
}

fn read_id(kind: u8, name: String, occurrence: u32) -> Result<WaitId, Corrupt> {
    let kind = WaitKind::from_code(kind).ok_or(Corrupt)?;
    Ok(WaitId::new(kind, name, occurrence))
}

fn read_body(row: &Columned<'_>, at: usize) -> rusqlite::Result<Option<Bytes>> {
    Ok(row.get_ref(at)?.as_blob_or_null()?.map(Bytes::from))
}

/// What a wait is kept under.
fn key(task: TaskKey, id: &WaitId) -> (i64, u8, &str, u32) {
    (task.0, id.kind.code(), &id.name, id.occurrence)
}

impl RowLoader<'_> {
    pub(crate) fn waits_of(&mut self, task: TaskKey) -> Result<Vec<Waiting>, Error> {
        let corrupt = |source| Error::Task { key: task.0, source };
        let waits = self.sql.waits.query_map([task.0], read)?;
        waits.map(|wait| wait?.map_err(corrupt)).collect()
    }

    pub(crate) fn find_wait(
        &mut self,
        task: TaskKey,
        id: &WaitId,
    ) -> Result<Option<Waiting>, Error> {
        let corrupt = |source| Error::Task { key: task.0, source };
        let wait = self.sql.wait.query_row(key(task, id), read).optional()?;
        wait.transpose().map_err(corrupt)
    }

    pub(crate) fn open_signal_waits(
        &mut self,
        run: RunKey,
        name: &str,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey, WaitId)>, Error> {
        let kind = WaitKind::Signal;
        let waits = self.sql.signal_waits.query_map((run.0, kind.code(), name, max), |row| {
            let id = WaitId::new(kind, name, row.get(2)?);
            Ok((timestamp(row.get(0)?), TaskKey(row.get(1)?), id))
        })?;
        Ok(waits.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn waits_for_run(&mut self, run: RunKey) -> Result<Vec<(TaskKey, WaitId)>, Error> {
        let [one, other] = FOR_RUN.map(WaitKind::code);
        let waits = self.sql.run_waits.query_map((run.0, one, other), |row| {
            let (task, id) = (row.get(0)?, read_id(row.get(1)?, row.get(2)?, row.get(3)?));
            Ok(id.map(|id| (TaskKey(task), id)))
        })?;
        let corrupt = |source| Error::Task { key: run.0, source };
        let waits = waits.map(|wait| wait?.map_err(corrupt));
        let mut waits = waits.collect::<Result<Vec<_>, Error>>()?;
        waits.sort_unstable();
        Ok(waits)
    }

    pub(crate) fn waits_for_runs(
        &mut self,
        run: RunKey,
        tasks: u32,
    ) -> Result<Vec<(TaskKey, WaitId, RunKey)>, Error> {
        let [one, other] = FOR_RUN.map(WaitKind::code);
        let tasks = (run.0, run.0.saturating_add(tasks.into()), one, other);
        let waits = self.sql.waited_by.query_map(tasks, |row| {
            let (task, id) = (row.get(0)?, read_id(row.get(1)?, row.get(2)?, row.get(3)?));
            let run = RunKey(row.get(4)?);
            Ok(id.map(|id| (TaskKey(task), id, run)))
        })?;
        let corrupt = |source| Error::Task { key: run.0, source };
        waits.map(|wait| wait?.map_err(corrupt)).collect()
    }

    // ------------------------------------------------------------------------------- signals --

    pub(crate) fn next_signal_number(&mut self) -> Result<u64, Error> {
        let last = match self.cache.last_signal {
            Some(last) => last,
            None => self.sql.last_signal.query_row([], |row| row.get::<_, i64>(0))? as u64,
        };
        self.cache.last_signal = Some(last + 1);
        Ok(last + 1)
    }

    pub(crate) fn knows_signal(&mut self, run: RunKey, id: u128) -> Result<bool, Error> {
        Ok(self.sql.was_sent.exists((run.0, id.to_be_bytes()))?)
    }

    pub(crate) fn untaken_signals(
        &mut self,
        run: RunKey,
        name: &str,
        max: u32,
    ) -> Result<Vec<(u64, Option<Bytes>)>, Error> {
        let signals = self.sql.signals.query_map((run.0, name, max), |row| {
            Ok((row.get::<_, i64>(0)? as u64, read_body(row, 1)?))
        })?;
        Ok(signals.collect::<rusqlite::Result<_>>()?)
    }

    // --------------------------------------------------------------------------------- words --

    /// The workers for whom there are words. Asked in every worker's request, and so remembered.
    fn have_words(&mut self) -> Result<&mut BTreeSet<WorkerId>, Error> {
        if self.cache.words.is_none() {
            let workers = self.sql.have_words.query_map([], |row| row.get(0).map(worker_id))?;
            self.cache.words = Some(workers.collect::<rusqlite::Result<_>>()?);
        }
        Ok(self.cache.words.as_mut().expect("it was just looked up"))
    }

    pub(crate) fn words_for(&mut self, worker: WorkerId) -> Result<Vec<TaskKey>, Error> {
        if !self.have_words()?.contains(&worker) {
            return Ok(Vec::new());
        }
        let words = self.sql.words.query_map([worker.0 as i64], |row| row.get(0).map(TaskKey))?;
        Ok(words.collect::<rusqlite::Result<_>>()?)
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
        bind.maybe(9, stored.as_ref().map(|(how, _)| *how))?;
        bind.maybe(10, stored.as_ref().and_then(|(_, body)| body.as_deref()))?;
        bind.maybe(11, signal.map(|signal| signal as i64))?;
        self.sql.put_wait.raw_execute()?;
        Ok(())
    }

    pub(crate) fn delete_wait(&mut self, task: TaskKey, id: &WaitId) -> Result<(), Error> {
        self.sql.drop_wait.execute(key(task, id))?;
        Ok(())
    }

    pub(crate) fn write_signal(&mut self, number: u64, change: &SignalChange) -> Result<(), Error> {
        let number = number as i64;
        match change {
            SignalChange::Sent { id, run, name, body, at, taken_by } => {
                let taken_by = taken_by.map(|task| task.0);
                let (id, body) = (id.to_be_bytes(), body.as_deref());
                let signal = (number, id, run.0, &**name, body, at.as_micros(), taken_by);
                self.sql.add_signal.execute(signal)?;
            }
            // One that was pruned with its run stays away.
            SignalChange::Taken { by } => drop(self.sql.take_signal.execute((number, by.0))?),
            SignalChange::Returned { .. } => {
                self.sql.take_signal.execute((number, None::<i64>))?;
            }
        }
        Ok(())
    }

    pub(crate) fn write_word(&mut self, worker: WorkerId, task: TaskKey) -> Result<(), Error> {
        self.sql.leave_word.execute((worker.0 as i64, task.0))?;
        self.loader.have_words()?.insert(worker);
        Ok(())
    }

    pub(crate) fn forget_words(&mut self, worker: WorkerId) -> Result<(), Error> {
        self.sql.drop_words.execute([worker.0 as i64])?;
        self.loader.have_words()?.remove(&worker);
        Ok(())
    }
}
