//! The rows that only an explanation asks for.
//!
//! Every statement finds its rows by an index and counts up to a bound. They are prepared when they are
//! needed, which is seldom.

use crate::columns::timestamp;
use crate::error::Error;
use crate::limits::GATES;
use crate::loader::RowLoader;
use crate::rows::pause_name;
use crate::sql::NEXT_LANE;
use rusqlite::OptionalExtension;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::graph::TaskIndex;
use tidegate_core::limit::LimitKey;
use tidegate_core::rows::{Corrupt, Gate};
use tidegate_core::store::{Happened, RunKey, Scope, TaskKey};
use tidegate_core::want::{Loaded, TaskGroup, Want};

/// The kind of the last of the last ?3 records of run ?1 that is of its task ?2.
const LAST_RECORD: &str = "SELECT what FROM (SELECT seq, what, idx FROM record WHERE run = ?1 \
     ORDER BY seq DESC LIMIT ?3) WHERE idx = ?2 ORDER BY seq DESC LIMIT 1";

const HOLDERS: &str = "SELECT task, units, since FROM hold WHERE limit_key = ?1 LIMIT ?2";

/// Up to ?6 tasks behind the gate ?1, or none, and the limit ?2, in the lane ?3, before the place ?4
/// and ?5.
const BLOCKED_BEFORE: &str = "SELECT count(*) FROM (SELECT 1 FROM task WHERE gate IS ?1 \
     AND behind = ?2 AND lane = ?3 AND claim_order IS NOT NULL \
     AND (claim_order, key) < (?4, ?5) LIMIT ?6)";

/// The lanes of queue ?1.
const LANES: &str = "SELECT lane.id, workflow.name, lane.task, lane.weight FROM workflow \
     CROSS JOIN lane ON lane.workflow = workflow.id WHERE workflow.queue = ?1";

/// Up to ?5 tasks behind the gate ?1, in the lane ?2, before the place ?3 and ?4.
const READY_BEFORE: &str = "SELECT count(*) FROM (SELECT 1 FROM task WHERE gate = ?1 \
     AND behind IS NULL AND lane = ?2 AND claim_order IS NOT NULL \
     AND (claim_order, key) < (?3, ?4) LIMIT ?5)";

/// How long tasks of the lane of ?1 took among the last ?2 records, which are of the kind ?3.
const RECENT_DURATIONS: &str = "SELECT record.at - record.begun_at FROM record \
     CROSS JOIN task ON task.key = record.run + record.idx \
     WHERE record.seq > (SELECT max(seq) FROM record) - ?2 AND record.what = ?3 \
     AND record.begun_at IS NOT NULL AND task.lane = (SELECT lane FROM task WHERE key = ?1)";

/// Claim order and number.
type ClaimPlace = (Timestamp, TaskKey);

impl RowLoader<'_> {
    /// Answers a want that only an explanation has.
    pub(crate) fn load_for_explanation(&mut self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::HoldersOf { limit, max } => Loaded::Holders(self.holders_of(limit, *max)?),
            Want::BlockedBefore { limit, place, max } => {
                Loaded::Number(self.count_blocked_before(limit, *place, *max)?)
            }
            Want::ReadyBefore { queue, place, max } => {
                Loaded::TaskGroups(self.count_ready_before(queue, *place, *max)?)
            }
            Want::LiveWorkers => Loaded::Workers(self.live_workers()?),
            Want::LastRecord { run, task, max } => {
                Loaded::RecordKind(self.last_record_kind(*run, *task, *max)?)
            }
            Want::RecentDurations { like, max } => {
                Loaded::Durations(self.recent_durations(*like, *max)?)
            }
            other => unreachable!("{other:?} is no want of an explanation"),
        })
    }

    pub(crate) fn pause_start(&mut self, scope: &Scope) -> Result<Option<Timestamp>, Error> {
        let start = self.sql.pause_start.query_row(pause_name(scope), |row| row.get(0));
        Ok(start.optional()?.map(timestamp))
    }

    fn last_record_kind(
        &mut self,
        run: RunKey,
        task: TaskIndex,
        max: u32,
    ) -> Result<Option<Happened>, Error> {
        let found = (run.0, task.as_u32(), max);
        let kind = self.connection.query_row(LAST_RECORD, found, |row| row.get::<_, u8>(0));
        let kind = kind.optional()?.map(|code| Happened::from_code(code).ok_or(Corrupt));
        kind.transpose().map_err(|source| Error::Task { key: run.task(task).0, source })
    }

    fn holders_of(
        &mut self,
        limit: &LimitKey,
        max: u32,
    ) -> Result<Vec<(TaskKey, u32, Timestamp)>, Error> {
        let Some(id) = self.find_limit_id(limit)? else { return Ok(Vec::new()) };
        let mut select = self.connection.prepare(HOLDERS)?;
        let holders = select.query_map((id, max), |row| {
            Ok((TaskKey(row.get(0)?), row.get(1)?, timestamp(row.get(2)?)))
        })?;
        Ok(holders.collect::<rusqlite::Result<_>>()?)
    }

    fn count_blocked_before(
        &mut self,
        limit: &LimitKey,
        (order, task): ClaimPlace,
        max: u32,
    ) -> Result<i64, Error> {
        let Some(id) = self.find_limit_id(limit)? else { return Ok(0) };
        let mut next_lane = self.connection.prepare(NEXT_LANE)?;
        let mut count = self.connection.prepare(BLOCKED_BEFORE)?;
        let mut before = 0;
        for gate in GATES {
            // From one lane to the next, not through all tasks in them.
            let mut last = i64::MIN;
            while before < max
                && let Some(lane) = next_lane.query_row((gate, id, last), |row| row.get(0))?
            {
                let place = (gate, id, lane, order.as_micros(), task.0, max - before);
                before += count.query_row(place, |row| row.get::<_, u32>(0))?;
                last = lane;
            }
        }
        Ok(before.into())
    }

    fn count_ready_before(
        &mut self,
        queue: &Arc<str>,
        (order, task): ClaimPlace,
        max: u32,
    ) -> Result<Vec<(TaskGroup, u32)>, Error> {
        let mut lanes = self.connection.prepare(LANES)?;
        let mut count = self.connection.prepare(READY_BEFORE)?;
        let (mut lanes, mut groups) = (lanes.query([&**queue])?, Vec::new());
        while let Some(row) = lanes.next()? {
            let lane: i64 = row.get(0)?;
            let mut before = 0;
            for gate in [Gate::Open, Gate::Awaited] {
                let place = (gate.code(), lane, order.as_micros(), task.0, max - before);
                before += count.query_row(place, |row| row.get::<_, u32>(0))?;
            }
            if before > 0 {
                let (queue, workflow) = (queue.clone(), row.get(1)?);
                let group = TaskGroup { queue, workflow, task: row.get(2)?, weight: row.get(3)? };
                groups.push((group, before));
            }
        }
        Ok(groups)
    }

    fn recent_durations(&mut self, like: TaskKey, max: u32) -> Result<Vec<Duration>, Error> {
        let mut select = self.connection.prepare(RECENT_DURATIONS)?;
        let alike = (like.0, max, Happened::Succeeded.code());
        // A clock that was set back makes no time pass.
        let durations = select.query_map(alike, |row| {
            Ok(Duration::from_micros(u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0)))
        })?;
        Ok(durations.collect::<rusqlite::Result<_>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_by_an_index() {
        crate::sql::tests::are_found_by_an_index(&[
            (LAST_RECORD, "SEARCH record USING INDEX record_run (run=?)"),
            (HOLDERS, "USING INDEX hold_limit (limit_key=?)"),
            (
                BLOCKED_BEFORE,
                "COVERING INDEX task_ready (gate=? AND behind=? AND lane=? AND claim_order>? AND claim_order<?)",
            ),
            (LANES, "SEARCH lane USING COVERING INDEX"),
            (
                READY_BEFORE,
                "COVERING INDEX task_ready (gate=? AND behind=? AND lane=? AND claim_order>? AND claim_order<?)",
            ),
            (RECENT_DURATIONS, "SEARCH record USING INTEGER PRIMARY KEY (rowid>?)"),
            (RECENT_DURATIONS, "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"),
        ]);
    }
}
