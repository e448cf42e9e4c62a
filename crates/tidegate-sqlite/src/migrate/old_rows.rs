//! Tasks and records as stores of version 1 and 2 have them: one wide table of tasks, live and ended, and
//! one of records.

use crate::fetch::read_at;
use rusqlite::{Result, Row as Columned};
use std::time::Duration;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::{Kind, Reason, WorkerId};
use tidegate_core::packed::{Ending, StoredLifecycle, StoredRun};
use tidegate_core::rows::Columns;
use tidegate_core::store::Happened;
use tidegate_core::{RunId, Timestamp};

/// All tasks, in the order in which [`WideTask::read_row`] reads them. Those of a run follow each other.
pub(super) const OLD_TASKS: &str = "SELECT key, idx, plan, lane, state, reason, fence, attempt, entries, \
     recoveries, active, started, stopping, worker, since, due, begun_at, waits_since, waits_for, turn, \
     ended_at, has_waits, behind, claim_order, run_id, priority, run_key, not_before, submitted_at, \
     paused_at, cancelled, failing, outcome, run_ended_at, parent_task, open, awaited, retry_of, gate, \
     alarm, unrecorded FROM old_task ORDER BY key";

/// The records of the run ?1, in the order in which [`WideRecord::read_row`] reads them.
pub(super) const OLD_RECORDS: &str = "SELECT seq, at, idx, what, reason, attempt, entry, worker, begun_at, \
     active, error FROM old_record WHERE run = ?1 ORDER BY seq";

/// A row of the old table of tasks.
pub(super) struct WideTask {
    pub(super) key: i64,
    pub(super) idx: i64,
    pub(super) plan: i64,
    pub(super) task_group: i64,
    pub(super) state: i64,
    pub(super) fence: i64,
    pub(super) request: i64,
    pub(super) worker: Option<i64>,
    pub(super) eligibility: Option<i64>,
    pub(super) claim_order: Option<i64>,
    pub(super) alarm: Option<i64>,
    pub(super) blocked_on: Option<i64>,
    pub(super) ended_at: Option<i64>,
    pub(super) run_id: Option<Vec<u8>>,
    pub(super) run_ended_at: Option<i64>,
    pub(super) has_parent: bool,
    pub(super) is_unrecorded: Option<i64>,
    /// `None` if its columns make no sense.
    pub(super) lifecycle: Option<StoredLifecycle>,
    /// Of a first task; `None` if its columns make no sense.
    pub(super) run: Option<StoredRun>,
}

impl WideTask {
    pub(super) fn read_row(row: &Columned<'_>) -> Result<Self> {
        let run_id: Option<Vec<u8>> = row.get(24)?;
        Ok(WideTask {
            key: row.get(0)?,
            idx: row.get(1)?,
            plan: row.get(2)?,
            task_group: row.get(3)?,
            state: row.get(4)?,
            fence: row.get(6)?,
            request: row.get(19)?,
            worker: row.get(13)?,
            eligibility: row.get(38)?,
            claim_order: row.get(23)?,
            alarm: row.get(39)?,
            blocked_on: row.get(22)?,
            ended_at: row.get(20)?,
            run_ended_at: row.get(33)?,
            has_parent: row.get::<_, Option<i64>>(34)?.is_some(),
            is_unrecorded: row.get(40)?,
            lifecycle: read_lifecycle(row).ok().flatten(),
            run: run_id.as_ref().and_then(|_| read_run(row).ok().flatten()),
            run_id,
        })
    }

    /// The number of its run.
    pub(super) fn run_key(&self) -> i64 {
        self.key.saturating_sub(self.idx)
    }

    /// Whether nothing about it changes any more.
    pub(super) fn is_final(&self) -> bool {
        let kind = u8::try_from(self.state).ok().and_then(Kind::from_code);
        kind.is_some_and(Kind::is_terminal)
            && (self.run_id.is_none() || self.run_ended_at.is_some())
    }

    /// Whether it can be read, as far as one row tells.
    pub(super) fn is_sound(&self) -> bool {
        self.lifecycle.is_some() && (self.run_id.is_none() || self.run.is_some())
    }
}

fn read_lifecycle(row: &Columned<'_>) -> Result<Option<StoredLifecycle>> {
    let active: i64 = read_at(row, 10)?;
    let columns = Columns {
        state: 0,
        reason: read_at(row, 5)?,
        fence: 0,
        attempt: read_at(row, 7)?,
        entries: read_at(row, 8)?,
        recoveries: read_at(row, 9)?,
        active,
        started: read_at(row, 11)?,
        stopping: read_at(row, 12)?,
        worker: None,
        since: read_at(row, 14)?,
        due: read_at(row, 15)?,
        begun_at: read_at(row, 16)?,
        waits_since: read_at(row, 17)?,
        waits_for: read_at(row, 18)?,
    };
    let stored = StoredLifecycle {
        columns,
        has_waits: read_flag(row, 21)?,
        ended_at: read_at(row, 20)?,
        open_parents: 0,
        has_inserts_above: false,
        last_look: None,
    };
    Ok((active >= 0).then_some(stored))
}

fn read_run(row: &Columned<'_>) -> Result<Option<StoredRun>> {
    let outcome: Option<u8> = read_at(row, 32)?;
    let ended_at: Option<Timestamp> = read_at(row, 33)?;
    let ended = match (outcome.map(RunOutcome::from_code), ended_at) {
        (Some(Some(outcome)), Some(at)) => Some((outcome, at)),
        (None, None) => None,
        _ => return Ok(None),
    };
    let retry_of: Option<RunId> = read_at(row, 37)?;
    Ok(Some(StoredRun {
        priority: read_at(row, 25)?,
        key: read_at(row, 26)?,
        parent: read_at(row, 34)?,
        retry_of,
        not_before: read_at(row, 27)?,
        submitted_at: read_at(row, 28)?,
        paused_at: read_at(row, 29)?,
        cancelled: read_flag(row, 30)?,
        failing: read_flag(row, 31)?,
        open: read_at(row, 35)?,
        awaited: read_flag(row, 36)?,
        ended,
        depth: 0,
        max_failures: None,
        failures: 0,
    }))
}

/// 1 if it is so, otherwise NULL.
fn read_flag(row: &Columned<'_>, at: usize) -> Result<bool> {
    Ok(read_at::<Option<bool>>(row, at)?.unwrap_or(false))
}

/// A row of the old table of records.
pub(super) struct WideRecord {
    pub(super) number: i64,
    pub(super) at: i64,
    pub(super) idx: i64,
    pub(super) kind: i64,
    pub(super) reason: Option<i64>,
    pub(super) attempt: i64,
    pub(super) entry: i64,
    pub(super) worker: Option<i64>,
    pub(super) begun_at: Option<i64>,
    pub(super) active: i64,
    pub(super) error: Option<String>,
}

impl WideRecord {
    pub(super) fn read_row(row: &Columned<'_>) -> Result<Self> {
        Ok(WideRecord {
            number: row.get(0)?,
            at: row.get(1)?,
            idx: row.get(2)?,
            kind: row.get(3)?,
            reason: row.get(4)?,
            attempt: row.get(5)?,
            entry: row.get(6)?,
            worker: row.get(7)?,
            begun_at: row.get(8)?,
            active: row.get(9)?,
            error: row.get(10)?,
        })
    }

    /// Whether it is of the end of its task.
    pub(super) fn is_end(&self) -> bool {
        let kind = u8::try_from(self.kind).ok().and_then(Happened::from_code);
        kind.is_some_and(Happened::is_end)
    }

    /// The ending that it tells; `None` if its columns make no sense.
    pub(super) fn read_ending(&self) -> Option<Ending> {
        let known = |code: i64| u8::try_from(code).ok().and_then(Reason::from_code);
        Some(Ending {
            reason: match self.reason {
                Some(code) => Some(known(code)?),
                None => None,
            },
            attempt: u32::try_from(self.attempt).ok()?,
            entry: u32::try_from(self.entry).ok()?,
            worker: self.worker.map(|worker| WorkerId(worker as u64)),
            begun_at: self.begun_at.map(Timestamp::from_micros),
            active: Duration::from_micros(u64::try_from(self.active).ok()?),
            error: self.error.clone(),
            ready_at: None,
            slot: None,
        })
    }
}
