//! The packed ending of a task, which is its record.

use super::VERSION;
use super::pack::{PackReader, PackWriter};
use crate::Timestamp;
use crate::lifecycle::{Reason, WorkerId};
use crate::rows::Corrupt;
use crate::store::Record;
use std::time::Duration;

/// Flags of a packed ending: the optional values that it has, in this order.
mod ending_flags {
    pub(super) const REASON: u64 = 1;
    pub(super) const WORKER: u64 = 1 << 1;
    pub(super) const BEGUN_AT: u64 = 1 << 2;
    pub(super) const ERROR: u64 = 1 << 3;
    pub(super) const READY_AT: u64 = 1 << 4;
    pub(super) const SLOT: u64 = 1 << 5;
    pub(super) const ALL: u64 = (1 << 6) - 1;
}

/// An unpacked ending: all of the record of an end but its number, its kind, its time and its task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in Record")]
pub struct Ending {
    pub reason: Option<Reason>,
    pub attempt: u32,
    pub entry: u32,
    pub worker: Option<WorkerId>,
    pub begun_at: Option<Timestamp>,
    pub active: Duration,
    pub error: Option<String>,
    /// When the task became ready for its last attempt.
    pub ready_at: Option<Timestamp>,
    /// The number of the slot in its worker.
    pub slot: Option<u32>,
}

impl Ending {
    /// The ending that a record tells.
    pub fn from_record(record: &Record) -> Self {
        Ending {
            reason: record.reason,
            attempt: record.attempt,
            entry: record.entry,
            worker: record.worker,
            begun_at: record.begun_at,
            active: record.active,
            error: record.error.clone(),
            ready_at: None,
            slot: None,
        }
    }

    /// Packs it.
    pub fn to_bytes(&self) -> Vec<u8> {
        use ending_flags as has;
        let mut flags = 0;
        let mut flag = |bit, is_set| flags |= if is_set { bit } else { 0 };
        flag(has::REASON, self.reason.is_some());
        flag(has::WORKER, self.worker.is_some());
        flag(has::BEGUN_AT, self.begun_at.is_some());
        flag(has::ERROR, self.error.is_some());
        flag(has::READY_AT, self.ready_at.is_some());
        flag(has::SLOT, self.slot.is_some());

        let mut pack = PackWriter::new(VERSION);
        pack.put_number(flags);
        pack.put_number(self.attempt.into());
        pack.put_number(self.entry.into());
        pack.put_number(u64::try_from(self.active.as_micros()).unwrap_or(u64::MAX));
        self.reason.iter().for_each(|reason| pack.put_number(reason.code().into()));
        self.worker.iter().for_each(|worker| pack.put_number(worker.0));
        self.begun_at.iter().for_each(|time| pack.put_time(*time));
        self.error.iter().for_each(|text| pack.put_text(text));
        self.ready_at.iter().for_each(|time| pack.put_time(*time));
        self.slot.iter().for_each(|slot| pack.put_number((*slot).into()));
        pack.into_bytes()
    }
}

/// Packs all of the record of an end but its number, its kind, its time and its task.
pub fn pack_ending(record: &Record) -> Vec<u8> {
    Ending::from_record(record).to_bytes()
}

/// Unpacks an ending.
///
/// # Errors
/// It is damaged.
pub fn unpack_ending(packed: &[u8]) -> Result<Ending, Corrupt> {
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
    let ready_at = pack.take_if(is_set(has::READY_AT), PackReader::take_time)?;
    let slot = pack.take_if(is_set(has::SLOT), PackReader::take_u32)?;
    pack.check_end()?;
    let worker = worker.map(WorkerId);
    Ok(Ending { reason, attempt, entry, worker, begun_at, active, error, ready_at, slot })
}
