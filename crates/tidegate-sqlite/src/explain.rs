//! The rows that only an explanation asks for.
//!
//! Every statement finds its rows by an index and counts up to a bound. They are prepared when they are
//! needed, which is seldom.

use crate::error::Error;
use crate::fetch::Fetch;
use crate::limits::GATES;
use crate::loader::RowLoader;
use crate::sql::{NEXT_LANE, queries};
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::limit::LimitKey;
use tidegate_core::rows::{Corrupt, Gate};
use tidegate_core::store::{Happened, TaskKey};
use tidegate_core::want::{Loaded, TaskGroup, Want};

queries! {
    /// The kind of the last of the last ?3 records of run ?1 that is of its task ?2.
    LAST_RECORD = "SELECT what FROM (SELECT seq, what, idx FROM record WHERE run = ?1 \
         ORDER BY seq DESC LIMIT ?3) WHERE idx = ?2 ORDER BY seq DESC LIMIT 1";

    HOLDERS = "SELECT task, units, since FROM hold WHERE limit_key = ?1 LIMIT ?2";

    /// Up to ?6 tasks behind the gate ?1, or none, and the limit ?2, in the lane ?3, before the place ?4
    /// and ?5.
    BLOCKED_BEFORE = "SELECT count(*) FROM (SELECT 1 FROM task WHERE gate IS ?1 \
         AND behind = ?2 AND lane = ?3 AND claim_order IS NOT NULL \
         AND (claim_order, key) < (?4, ?5) LIMIT ?6)";

    /// The lanes of queue ?1.
    LANES = "SELECT lane.id, workflow.name, lane.task, lane.weight FROM workflow \
         CROSS JOIN lane ON lane.workflow = workflow.id WHERE workflow.queue = ?1";

    /// Up to ?5 tasks behind the gate ?1, in the lane ?2, before the place ?3 and ?4.
    READY_BEFORE = "SELECT count(*) FROM (SELECT 1 FROM task WHERE gate = ?1 \
         AND behind IS NULL AND lane = ?2 AND claim_order IS NOT NULL \
         AND (claim_order, key) < (?3, ?4) LIMIT ?5)";

    /// How long tasks of the lane of ?1 took among the last ?2 records, which are of the kind ?3.
    RECENT_DURATIONS = "SELECT record.at - record.begun_at FROM record \
         CROSS JOIN task ON task.key = record.run + record.idx \
         WHERE record.seq > (SELECT max(seq) FROM record) - ?2 AND record.what = ?3 \
         AND record.begun_at IS NOT NULL AND task.lane = (SELECT lane FROM task WHERE key = ?1)";
}

impl RowLoader<'_> {
    pub(crate) fn load_for_explanation(&mut self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::HoldersOf { limit, max } => {
                let id = self.catalog.find_limit_id(limit)?;
                Loaded::Holders(self.fetch_rare(HOLDERS, (id, max))?)
            }
            Want::BlockedBefore { limit, place, max } => {
                Loaded::Number(self.count_blocked_before(limit, *place, *max)?)
            }
            Want::ReadyBefore { queue, place: (order, task), max } => {
                let mut groups = Vec::new();
                let lanes = self.fetch_rare(LANES, [&**queue])?;
                for (lane, workflow, task_name, weight) in lanes {
                    let lane: i64 = lane;
                    let mut before: u32 = 0;
                    for gate in [Gate::Open, Gate::Awaited] {
                        let place = (gate.code(), lane, order.as_micros(), task.0, max - before);
                        before += self.prepare_rare(READY_BEFORE)?.fetch_one::<u32>(place)?;
                    }
                    let queue = queue.clone();
                    groups.push((TaskGroup { queue, workflow, task: task_name, weight }, before));
                }
                groups.retain(|(_, before)| *before > 0);
                Loaded::TaskGroups(groups)
            }
            Want::LiveWorkers => Loaded::Workers(self.live_workers()?),
            Want::LastRecord { run, task, max } => {
                let found = (run.0, task.as_u32(), max);
                let code: Option<u8> = self.prepare_rare(LAST_RECORD)?.fetch_first(found)?;
                let kind = code.map(|code| Happened::from_code(code).ok_or(Corrupt)).transpose();
                let corrupt = |source| Error::Task { key: run.task(*task).0, source };
                Loaded::RecordKind(kind.map_err(corrupt)?)
            }
            Want::RecentDurations { like, max } => {
                let alike = (like.0, max, Happened::Succeeded.code());
                let times: Vec<i64> = self.fetch_rare(RECENT_DURATIONS, alike)?;
                // A clock that was set back makes no time pass.
                let times = times.into_iter().map(|time| u64::try_from(time).unwrap_or(0));
                Loaded::Durations(times.map(Duration::from_micros).collect())
            }
            other => self.load_old_rows(other)?,
        })
    }

    fn count_blocked_before(
        &mut self,
        limit: &LimitKey,
        (order, task): (Timestamp, TaskKey),
        max: u32,
    ) -> Result<i64, Error> {
        let id = self.catalog.find_limit_id(limit)?;
        let mut before = 0;
        for gate in GATES {
            // From one lane to the next, not through all tasks in them.
            let mut last = i64::MIN;
            while before < max
                && let Some(lane) = self.prepare_rare(NEXT_LANE)?.fetch_one((gate, id, last))?
            {
                let place = (gate, id, lane, order.as_micros(), task.0, max - before);
                before += self.prepare_rare(BLOCKED_BEFORE)?.fetch_one::<u32>(place)?;
                last = lane;
            }
        }
        Ok(before.into())
    }
}
