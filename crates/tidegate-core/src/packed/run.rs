//! The packed run, in the row of a first task.

use super::VERSION;
use super::pack::{PackReader, PackWriter};
use crate::graph::RunOutcome;
use crate::rows::{Corrupt, Head};
use crate::store::TaskKey;
use crate::{RunId, Timestamp};
use std::sync::Arc;

/// Flags of a packed run: what holds for it, and the optional values that it has, in this order.
mod run_flags {
    pub(super) const CANCELLED: u64 = 1;
    pub(super) const FAILING: u64 = 1 << 1;
    pub(super) const AWAITED: u64 = 1 << 2;
    pub(super) const NOT_BEFORE: u64 = 1 << 3;
    pub(super) const PAUSED_AT: u64 = 1 << 4;
    pub(super) const ENDED: u64 = 1 << 5;
    pub(super) const PARENT: u64 = 1 << 6;
    pub(super) const KEY: u64 = 1 << 7;
    pub(super) const RETRY_OF: u64 = 1 << 8;
    pub(super) const DEPTH: u64 = 1 << 9;
    pub(super) const MAX_FAILURES: u64 = 1 << 10;
    pub(super) const FAILURES: u64 = 1 << 11;
    pub(super) const ALL: u64 = (1 << 12) - 1;
}

/// An unpacked run: all of it but its id, its number and its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in Head")]
pub struct StoredRun {
    pub priority: i32,
    pub key: Option<String>,
    pub parent: Option<TaskKey>,
    pub retry_of: Option<RunId>,
    pub not_before: Option<Timestamp>,
    pub submitted_at: Timestamp,
    pub paused_at: Option<Timestamp>,
    pub cancelled: bool,
    pub failing: bool,
    pub open: u32,
    pub awaited: bool,
    pub ended: Option<(RunOutcome, Timestamp)>,
    pub depth: u32,
    /// The number of tasks that may fail before it stops.
    pub max_failures: Option<u32>,
    /// The number of its tasks that have failed, where that is counted.
    pub failures: u32,
}

impl StoredRun {
    /// All of a run but its id, its number and its queue.
    pub fn from_head(head: &Head) -> Self {
        StoredRun {
            priority: head.priority,
            key: head.key.clone(),
            parent: head.parent,
            retry_of: head.retry_of,
            not_before: head.not_before,
            submitted_at: head.submitted_at,
            paused_at: head.paused_at,
            cancelled: head.cancelled,
            failing: head.failing,
            open: head.open,
            awaited: head.awaited,
            ended: head.ended,
            depth: head.depth,
            max_failures: None,
            failures: 0,
        }
    }

    /// The run with this id, in this queue.
    pub fn into_head(self, id: RunId, queue: Arc<str>) -> Head {
        Head {
            id,
            queue,
            priority: self.priority,
            key: self.key,
            parent: self.parent,
            retry_of: self.retry_of,
            not_before: self.not_before,
            submitted_at: self.submitted_at,
            paused_at: self.paused_at,
            cancelled: self.cancelled,
            failing: self.failing,
            open: self.open,
            awaited: self.awaited,
            ended: self.ended,
            depth: self.depth,
        }
    }

    /// Packs it.
    pub fn to_bytes(&self) -> Vec<u8> {
        use run_flags as has;
        let mut flags = 0;
        let mut flag = |bit, is_set| flags |= if is_set { bit } else { 0 };
        flag(has::CANCELLED, self.cancelled);
        flag(has::FAILING, self.failing);
        flag(has::AWAITED, self.awaited);
        flag(has::NOT_BEFORE, self.not_before.is_some());
        flag(has::PAUSED_AT, self.paused_at.is_some());
        flag(has::ENDED, self.ended.is_some());
        flag(has::PARENT, self.parent.is_some());
        flag(has::KEY, self.key.is_some());
        flag(has::RETRY_OF, self.retry_of.is_some());
        flag(has::DEPTH, self.depth > 0);
        flag(has::MAX_FAILURES, self.max_failures.is_some());
        flag(has::FAILURES, self.failures > 0);

        let mut pack = PackWriter::new(VERSION);
        pack.put_number(flags);
        pack.put_signed(self.priority.into());
        pack.put_number(self.open.into());
        pack.put_time(self.submitted_at);
        self.not_before.iter().for_each(|time| pack.put_time(*time));
        self.paused_at.iter().for_each(|time| pack.put_time(*time));
        if let Some((outcome, at)) = self.ended {
            pack.put_number(outcome.to_code().into());
            pack.put_time(at);
        }
        self.parent.iter().for_each(|task| pack.put_signed(task.0));
        self.key.iter().for_each(|key| pack.put_text(key));
        self.retry_of.iter().for_each(|run| pack.put_id(run.as_u128()));
        if self.depth > 0 {
            pack.put_number(self.depth.into());
        }
        self.max_failures.iter().for_each(|failures| pack.put_number((*failures).into()));
        if self.failures > 0 {
            pack.put_number(self.failures.into());
        }
        pack.into_bytes()
    }
}

/// Packs all of a run but its id, its number and its queue.
pub fn pack_run(head: &Head) -> Vec<u8> {
    StoredRun::from_head(head).to_bytes()
}

/// Unpacks a run.
///
/// # Errors
/// It is damaged.
pub fn unpack_run(packed: &[u8]) -> Result<StoredRun, Corrupt> {
    use run_flags as has;
    let mut pack = PackReader::new(packed, VERSION)?;
    let flags = pack.take_number()?;
    if flags & !has::ALL != 0 {
        return Err(Corrupt);
    }
    let is_set = |bit| flags & bit != 0;
    let priority = i32::try_from(pack.take_signed()?).map_err(|_| Corrupt)?;
    let (open, submitted_at) = (pack.take_u32()?, pack.take_time()?);
    let not_before = pack.take_if(is_set(has::NOT_BEFORE), PackReader::take_time)?;
    let paused_at = pack.take_if(is_set(has::PAUSED_AT), PackReader::take_time)?;
    let ended = pack.take_if(is_set(has::ENDED), |pack| {
        let outcome = RunOutcome::from_code(pack.take_u8()?).ok_or(Corrupt)?;
        Ok((outcome, pack.take_time()?))
    })?;
    let parent = pack.take_if(is_set(has::PARENT), PackReader::take_signed)?;
    let key = pack.take_if(is_set(has::KEY), PackReader::take_text)?;
    let retry_of = pack.take_if(is_set(has::RETRY_OF), PackReader::take_id)?;
    let depth = pack.take_if(is_set(has::DEPTH), PackReader::take_u32)?;
    let max_failures = pack.take_if(is_set(has::MAX_FAILURES), PackReader::take_u32)?;
    let failures = pack.take_if(is_set(has::FAILURES), PackReader::take_u32)?;
    pack.check_end()?;
    Ok(StoredRun {
        priority,
        key,
        parent: parent.map(TaskKey),
        retry_of: retry_of.map(RunId::from_u128),
        not_before,
        submitted_at,
        paused_at,
        cancelled: is_set(has::CANCELLED),
        failing: is_set(has::FAILING),
        open,
        awaited: is_set(has::AWAITED),
        ended,
        depth: depth.unwrap_or(0),
        max_failures,
        failures: failures.unwrap_or(0),
    })
}
