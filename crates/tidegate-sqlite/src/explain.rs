//! The rows that only an explanation asks for.
//!
//! Every statement finds its rows by an index and counts up to a bound. They are prepared when they are
//! needed, which is seldom.

use crate::error::Error;
use crate::fetch::{Fetch, read_at, read_bytes};
use crate::limits::GATES;
use crate::loader::RowLoader;
use crate::sql::{NEXT_GROUP, queries};
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::limit::LimitKey;
use tidegate_core::packed::unpack_ending;
use tidegate_core::rows::{Corrupt, Gate};
use tidegate_core::store::{Happened, TaskKey};
use tidegate_core::want::{Loaded, TaskGroup, Want};

queries! {
    /// The kind of the last record of the task ?2 of the run ?1: that of its end or, among the last ?3 records
    /// of the run, another.
    LAST_RECORD = "SELECT kind FROM (SELECT record AS number, record_kind AS kind FROM ended_task \
         WHERE number = ?1 + ?2 AND +record IS NOT NULL UNION ALL SELECT number, kind FROM (\
         SELECT number, kind, idx FROM record WHERE run = ?1 ORDER BY number DESC LIMIT ?3) \
         WHERE idx = ?2) ORDER BY number DESC LIMIT 1";

    HOLDERS = "SELECT task, units, since FROM hold WHERE limit_key = ?1 LIMIT ?2";

    /// Up to ?6 tasks of the eligibility ?1, or none, that are blocked on the limit ?2, in the group ?3, before
    /// the place ?4 and ?5.
    BLOCKED_BEFORE = "SELECT count(*) FROM (SELECT 1 FROM task WHERE eligibility IS ?1 \
         AND blocked_on = ?2 AND task_group = ?3 AND claim_order IS NOT NULL \
         AND (claim_order, number) < (?4, ?5) LIMIT ?6)";

    GROUPS = "SELECT number, workflow, task, weight FROM task_group WHERE queue = ?1";

    /// Up to ?5 tasks of the eligibility ?1, in the group ?2, before the place ?3 and ?4.
    READY_BEFORE = "SELECT count(*) FROM (SELECT 1 FROM task WHERE eligibility = ?1 \
         AND blocked_on IS NULL AND task_group = ?2 AND claim_order IS NOT NULL \
         AND (claim_order, number) < (?3, ?4) LIMIT ?5)";

    /// The task group of ?1.
    GROUP_OF_TASK = "SELECT task_group FROM task WHERE number = ?1 UNION ALL \
         SELECT task_group FROM ended_task WHERE number = ?1";

    /// Ends of the kind ?3, among the last ?2, of tasks in the group ?1.
    RECENT_ENDS = "SELECT ended_at, ending FROM (SELECT ended_at, ending, task_group, record_kind \
         FROM ended_task WHERE record IS NOT NULL ORDER BY record DESC LIMIT ?2) \
         WHERE record_kind = ?3 AND task_group = ?1";

    /// The same among the last ?2 records of other changes: the first task of a run ends before its run.
    RECENT_RECORDS = "SELECT at, begun_at FROM (SELECT at, begun_at, kind, run + idx AS task \
         FROM record ORDER BY number DESC LIMIT ?2) AS r WHERE kind = ?3 AND begun_at IS NOT NULL \
         AND ifnull((SELECT task_group FROM task WHERE number = r.task), \
         (SELECT task_group FROM ended_task WHERE number = r.task)) = ?1";
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
                let stored = self.fetch_rare(GROUPS, [&**queue])?;
                for (number, workflow, task_name, weight) in stored {
                    let number: i64 = number;
                    let mut before: u32 = 0;
                    for gate in [Gate::Open, Gate::Awaited] {
                        let place = (gate.code(), number, order.as_micros(), task.0, max - before);
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
                Loaded::Durations(self.find_recent_durations(*like, *max)?)
            }
            other => self.load_old_rows(other)?,
        })
    }

    fn find_recent_durations(&mut self, like: TaskKey, max: u32) -> Result<Vec<Duration>, Error> {
        let group: Option<i64> = self.prepare_rare(GROUP_OF_TASK)?.fetch_first([like.0])?;
        let alike = (group, max, Happened::Succeeded.code());
        let mut durations = Vec::new();
        let mut ends = self.prepare_rare(RECENT_ENDS)?.query(alike)?;
        while let Some(row) = ends.next()? {
            let ending = unpack_ending(read_bytes(row, 1)?);
            let ending = ending.map_err(|source| Error::Task { key: like.0, source })?;
            let ended_at: Timestamp = read_at(row, 0)?;
            durations.extend(ending.begun_at.map(|begun_at| ended_at.since(begun_at)));
        }
        drop(ends);
        let times: Vec<(Timestamp, Timestamp)> = self.fetch_rare(RECENT_RECORDS, alike)?;
        durations.extend(times.into_iter().map(|(at, begun_at)| at.since(begun_at)));
        Ok(durations)
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
            // From one group to the next, not through all tasks in them.
            let mut last = i64::MIN;
            while before < max
                && let Some(group) = self.prepare_rare(NEXT_GROUP)?.fetch_one((gate, id, last))?
            {
                let place = (gate, id, group, order.as_micros(), task.0, max - before);
                before += self.prepare_rare(BLOCKED_BEFORE)?.fetch_one::<u32>(place)?;
                last = group;
            }
        }
        Ok(before.into())
    }
}
