//! The packed ending of a task, which is its record.

use super::VERSION;
use super::pack::{PackReader, PackWriter};
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::lifecycle::{Reason, WorkerId};
use tidegate_core::rows::Corrupt;
use tidegate_core::store::Record;

/// Flags of a packed ending: the optional values that it has, in this order.
mod ending_flags {
    pub(super) const REASON: u64 = 1;
    pub(super) const WORKER: u64 = 1 << 1;
    pub(super) const BEGUN_AT: u64 = 1 << 2;
    pub(super) const ERROR: u64 = 1 << 3;
    pub(super) const ALL: u64 = (1 << 4) - 1;
}

/// An unpacked ending: all of the record of an end but its number, its kind, its time and its task.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) reason: Option<Reason>,
    pub(crate) attempt: u32,
    pub(crate) entry: u32,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) begun_at: Option<Timestamp>,
    pub(crate) active: Duration,
    pub(crate) error: Option<String>,
}

/// Packs all of the record of an end but its number, its kind, its time and its task.
pub(crate) fn pack_ending(record: &Record) -> Vec<u8> {
    use ending_flags as has;
    let mut flags = 0;
    let mut flag = |bit, is_set| flags |= if is_set { bit } else { 0 };
    flag(has::REASON, record.reason.is_some());
    flag(has::WORKER, record.worker.is_some());
    flag(has::BEGUN_AT, record.begun_at.is_some());
    flag(has::ERROR, record.error.is_some());

    let mut pack = PackWriter::new(VERSION);
    pack.put_number(flags);
    pack.put_number(record.attempt.into());
    pack.put_number(record.entry.into());
    pack.put_number(u64::try_from(record.active.as_micros()).unwrap_or(u64::MAX));
    record.reason.iter().for_each(|reason| pack.put_number(reason.code().into()));
    record.worker.iter().for_each(|worker| pack.put_number(worker.0));
    record.begun_at.iter().for_each(|time| pack.put_time(*time));
    record.error.iter().for_each(|text| pack.put_text(text));
    pack.into_bytes()
}

/// Unpacks an ending.
///
/// # Errors
/// It is damaged.
pub(crate) fn unpack_ending(packed: &[u8]) -> Result<Ending, Corrupt> {
    use ending_flags as has;
    let mut pack = PackReader::new(packed, VERSION)?;
    let flags = pack.take_number()?;
    if flags & !has::ALL != 0 {
        return Err(Corrupt);
    }
    let is_set = |bit| flags & bit != 0;
    let (attempt, entry) = (pack.take_u32()?, pack.take_u32()?);
    let active = Duration::from_micros(pack.take_number()?);
    let reason = pack
        .take_if(is_set(has::REASON), |pack| Reason::from_code(pack.take_u8()?).ok_or(Corrupt))?;
    let worker = pack.take_if(is_set(has::WORKER), PackReader::take_number)?;
    let begun_at = pack.take_if(is_set(has::BEGUN_AT), PackReader::take_time)?;
    let error = pack.take_if(is_set(has::ERROR), PackReader::take_text)?;
    pack.check_end()?;
    let worker = worker.map(WorkerId);
    Ok(Ending { reason, attempt, entry, worker, begun_at, active, error })
}
