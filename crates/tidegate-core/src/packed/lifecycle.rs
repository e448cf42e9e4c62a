//! The packed lifecycle of a task.

use super::VERSION;
use super::pack::{PackReader, PackWriter};
use crate::Timestamp;
use crate::rows::{Columns, Corrupt, Row};

/// Flags of a packed lifecycle: what holds for it, and the optional values that it has, in this order.
mod lifecycle_flags {
    pub(super) const REASON: u64 = 1;
    pub(super) const STOPPING: u64 = 1 << 1;
    pub(super) const HAS_WAITS: u64 = 1 << 2;
    pub(super) const STARTED: u64 = 1 << 3;
    pub(super) const SINCE: u64 = 1 << 4;
    pub(super) const DUE: u64 = 1 << 5;
    pub(super) const BEGUN_AT: u64 = 1 << 6;
    pub(super) const WAITS_SINCE: u64 = 1 << 7;
    pub(super) const ENDED_AT: u64 = 1 << 8;
    pub(super) const WAITS_FOR: u64 = 1 << 9;
    pub(super) const OPEN_PARENTS: u64 = 1 << 10;
    pub(super) const HAS_INSERTS_ABOVE: u64 = 1 << 11;
    pub(super) const LAST_LOOK: u64 = 1 << 12;
    pub(super) const ALL: u64 = (1 << 13) - 1;
}

/// An unpacked lifecycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLifecycle {
    /// But for state, fence and worker, which have columns of their own.
    pub columns: Columns,
    /// Whether waits of the task are stored.
    pub has_waits: bool,
    /// When the task ended.
    pub ended_at: Option<Timestamp>,
    /// How many of the tasks directly before it have not ended.
    pub open_parents: u32,
    /// Whether a task before it has put something into the context.
    pub has_inserts_above: bool,
    /// The state that the last look of its wait found.
    pub last_look: Option<String>,
}

impl StoredLifecycle {
    /// All of a task that has no column of its own, and when it ended.
    pub fn from_row(row: &Row) -> Self {
        StoredLifecycle {
            columns: Columns { state: 0, fence: 0, worker: None, ..Columns::from(&row.life) },
            has_waits: row.has_waits,
            ended_at: row.ended_at,
            open_parents: row.open_parents,
            has_inserts_above: row.has_inserts_above,
            last_look: None,
        }
    }

    /// Packs it.
    pub fn to_bytes(&self) -> Vec<u8> {
        use lifecycle_flags as has;
        let columns = &self.columns;
        let mut flags = 0;
        let mut flag = |bit, is_set| flags |= if is_set { bit } else { 0 };
        flag(has::REASON, columns.reason.is_some());
        flag(has::STOPPING, columns.stopping.is_some());
        flag(has::HAS_WAITS, self.has_waits);
        let times = [
            (has::STARTED, columns.started),
            (has::SINCE, columns.since),
            (has::DUE, columns.due),
            (has::BEGUN_AT, columns.begun_at),
            (has::WAITS_SINCE, columns.waits_since),
            (has::ENDED_AT, self.ended_at),
        ];
        times.iter().for_each(|(bit, time)| flag(*bit, time.is_some()));
        flag(has::WAITS_FOR, columns.waits_for.is_some());
        flag(has::OPEN_PARENTS, self.open_parents > 0);
        flag(has::HAS_INSERTS_ABOVE, self.has_inserts_above);
        flag(has::LAST_LOOK, self.last_look.is_some());

        let mut pack = PackWriter::new(VERSION);
        pack.put_number(flags);
        pack.put_number(columns.attempt.into());
        pack.put_number(columns.entries.into());
        pack.put_number(columns.recoveries.into());
        pack.put_number(columns.active.unsigned_abs());
        columns.reason.iter().for_each(|code| pack.put_number((*code).into()));
        columns.stopping.iter().for_each(|code| pack.put_number((*code).into()));
        times.iter().for_each(|(_, time)| time.iter().for_each(|time| pack.put_time(*time)));
        columns.waits_for.iter().for_each(|text| pack.put_text(text));
        if self.open_parents > 0 {
            pack.put_number(self.open_parents.into());
        }
        self.last_look.iter().for_each(|text| pack.put_text(text));
        pack.into_bytes()
    }
}

/// Packs all of a task that has no column of its own, and when it ended.
pub fn pack_lifecycle(row: &Row) -> Vec<u8> {
    StoredLifecycle::from_row(row).to_bytes()
}

/// Unpacks a lifecycle.
///
/// # Errors
/// It is damaged.
pub fn unpack_lifecycle(packed: &[u8]) -> Result<StoredLifecycle, Corrupt> {
    use lifecycle_flags as has;
    let mut pack = PackReader::new(packed, VERSION)?;
    let flags = pack.take_number()?;
    if flags & !has::ALL != 0 {
        return Err(Corrupt);
    }
    let is_set = |bit| flags & bit != 0;
    let (attempt, entries) = (pack.take_u32()?, pack.take_u32()?);
    let (recoveries, active) = (pack.take_u8()?, pack.take_number()?);
    let columns = Columns {
        state: 0,
        reason: pack.take_if(is_set(has::REASON), PackReader::take_u8)?,
        fence: 0,
        attempt,
        entries,
        recoveries,
        active: i64::try_from(active).map_err(|_| Corrupt)?,
        stopping: pack.take_if(is_set(has::STOPPING), PackReader::take_u8)?,
        worker: None,
        started: pack.take_if(is_set(has::STARTED), PackReader::take_time)?,
        since: pack.take_if(is_set(has::SINCE), PackReader::take_time)?,
        due: pack.take_if(is_set(has::DUE), PackReader::take_time)?,
        begun_at: pack.take_if(is_set(has::BEGUN_AT), PackReader::take_time)?,
        waits_since: pack.take_if(is_set(has::WAITS_SINCE), PackReader::take_time)?,
        waits_for: None,
    };
    let ended_at = pack.take_if(is_set(has::ENDED_AT), PackReader::take_time)?;
    let waits_for = pack.take_if(is_set(has::WAITS_FOR), PackReader::take_text)?;
    let open_parents = pack.take_if(is_set(has::OPEN_PARENTS), PackReader::take_u32)?;
    let last_look = pack.take_if(is_set(has::LAST_LOOK), PackReader::take_text)?;
    pack.check_end()?;
    Ok(StoredLifecycle {
        columns: Columns { waits_for, ..columns },
        has_waits: is_set(has::HAS_WAITS),
        ended_at,
        open_parents: open_parents.unwrap_or(0),
        has_inserts_above: is_set(has::HAS_INSERTS_ABOVE),
        last_look,
    })
}
