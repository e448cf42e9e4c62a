//! The packed run, in the row of a first task.

use super::VERSION;
use super::pack::{PackReader, PackWriter};
use std::sync::Arc;
use tidegate_core::graph::RunOutcome;
use tidegate_core::rows::{Corrupt, Head};
use tidegate_core::store::TaskKey;
use tidegate_core::{RunId, Timestamp};

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
    pub(super) const ALL: u64 = (1 << 9) - 1;
}

/// An unpacked run: all of it but its id and its queue.
#[derive(Debug)]
pub(crate) struct StoredRun {
    pub(crate) priority: i32,
    pub(crate) key: Option<String>,
    pub(crate) parent: Option<i64>,
    pub(crate) retry_of: Option<RunId>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) submitted_at: Timestamp,
    pub(crate) paused_at: Option<Timestamp>,
    pub(crate) cancelled: bool,
    pub(crate) failing: bool,
    pub(crate) open: u32,
    pub(crate) awaited: bool,
    pub(crate) ended: Option<(RunOutcome, Timestamp)>,
}

impl StoredRun {
    pub(super) fn into_head(self, id: RunId, queue: Arc<str>) -> Head {
        Head {
            id,
            queue,
            priority: self.priority,
            key: self.key,
            parent: self.parent.map(TaskKey),
            retry_of: self.retry_of,
            not_before: self.not_before,
            submitted_at: self.submitted_at,
            paused_at: self.paused_at,
            cancelled: self.cancelled,
            failing: self.failing,
            open: self.open,
            awaited: self.awaited,
            ended: self.ended,
        }
    }
}

/// Packs all of a run but its id and its queue.
pub(crate) fn pack_run(head: &Head) -> Vec<u8> {
    use run_flags as has;
    let mut flags = 0;
    let mut flag = |bit, is_set| flags |= if is_set { bit } else { 0 };
    flag(has::CANCELLED, head.cancelled);
    flag(has::FAILING, head.failing);
    flag(has::AWAITED, head.awaited);
    flag(has::NOT_BEFORE, head.not_before.is_some());
    flag(has::PAUSED_AT, head.paused_at.is_some());
    flag(has::ENDED, head.ended.is_some());
    flag(has::PARENT, head.parent.is_some());
    flag(has::KEY, head.key.is_some());
    flag(has::RETRY_OF, head.retry_of.is_some());

    let mut pack = PackWriter::new(VERSION);
    pack.put_number(flags);
    pack.put_signed(head.priority.into());
    pack.put_number(head.open.into());
    pack.put_time(head.submitted_at);
    head.not_before.iter().for_each(|time| pack.put_time(*time));
    head.paused_at.iter().for_each(|time| pack.put_time(*time));
    if let Some((outcome, at)) = head.ended {
        pack.put_number(outcome_code(outcome).into());
        pack.put_time(at);
    }
    head.parent.iter().for_each(|task| pack.put_signed(task.0));
    head.key.iter().for_each(|key| pack.put_text(key));
    head.retry_of.iter().for_each(|run| pack.put_id(run.as_u128()));
    pack.into_bytes()
}

/// Unpacks a run.
///
/// # Errors
/// It is damaged.
pub(crate) fn unpack_run(packed: &[u8]) -> Result<StoredRun, Corrupt> {
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
        Ok((outcome_from(pack.take_u8()?)?, pack.take_time()?))
    })?;
    let parent = pack.take_if(is_set(has::PARENT), PackReader::take_signed)?;
    let key = pack.take_if(is_set(has::KEY), PackReader::take_text)?;
    let retry_of = pack.take_if(is_set(has::RETRY_OF), PackReader::take_id)?;
    pack.check_end()?;
    Ok(StoredRun {
        priority,
        key,
        parent,
        retry_of: retry_of.map(RunId::from_u128),
        not_before,
        submitted_at,
        paused_at,
        cancelled: is_set(has::CANCELLED),
        failing: is_set(has::FAILING),
        open,
        awaited: is_set(has::AWAITED),
        ended,
    })
}

/// The number that is stored; it never changes its meaning.
fn outcome_code(outcome: RunOutcome) -> u8 {
    match outcome {
        RunOutcome::Succeeded => 0,
        RunOutcome::Failed => 1,
        RunOutcome::Cancelled => 2,
    }
}

fn outcome_from(code: u8) -> Result<RunOutcome, Corrupt> {
    match code {
        0 => Ok(RunOutcome::Succeeded),
        1 => Ok(RunOutcome::Failed),
        2 => Ok(RunOutcome::Cancelled),
        _ => Err(Corrupt),
    }
}
