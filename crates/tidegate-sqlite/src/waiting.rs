//! How many runs of a queue wait, to bound them: found where claims look, never counted up
//! or down. A bound from above is remembered, so that a submit to a queue that is far from full costs
//! nothing.

use crate::error::Error;
use crate::fetch::Fetch;
use crate::loader::RowLoader;
use crate::sql::queries;
use std::sync::Arc;
use tidegate_core::delta::TaskWrite;
use tidegate_core::rows::Gate;

queries! {
    /// The lanes of queue ?1.
    LANES = "SELECT lane.id FROM workflow CROSS JOIN lane ON lane.workflow = workflow.id \
         WHERE workflow.queue = ?1";

    /// The limit after ?2 behind which somebody stands at the gate ?1.
    NEXT_LIMIT = "SELECT min(behind) FROM task WHERE gate = ?1 AND behind > ?2 \
         AND claim_order IS NOT NULL";

    /// Tasks of lane ?3 that are ready behind the gate ?1 and the limit ?2, or none, and were never
    /// entered.
    READY = "SELECT key, idx, plan, parent_task IS NULL FROM task WHERE gate = ?1 \
         AND behind IS ?2 AND lane = ?3 AND claim_order IS NOT NULL AND started IS NULL";

    /// Whether the task ?2 is the first that is ready of the run ?1, which goes up to ?3, which no task
    /// has begun, and of which nothing has begun.
    FIRST = "SELECT NOT EXISTS (SELECT 1 FROM task WHERE key >= ?1 AND key < ?2 \
         AND gate IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM task WHERE key >= ?1 AND key < ?3 \
         AND (started IS NOT NULL OR worker IS NOT NULL)) \
         AND EXISTS (SELECT 1 FROM task WHERE key = ?1 AND parent_task IS NULL)";
}

impl RowLoader<'_> {
    /// How many runs of a queue wait, up to `max`; below, the answer may be more than there are.
    pub(crate) fn count_waiting_runs(&mut self, queue: &Arc<str>, max: u32) -> Result<u32, Error> {
        if let Some(&most) = self.cache.waiting.get(queue).filter(|most| **most < max) {
            return Ok(most);
        }
        let waiting = self.count_stored_runs(queue, max)?;
        // If there are as many, there may be more.
        self.cache.waiting.remove(queue);
        if waiting < max {
            self.cache.waiting.insert(queue.clone(), waiting);
        }
        Ok(waiting)
    }

    /// Notes that the run of a task that was written may wait from now on.
    pub(crate) fn note_waiting(&mut self, TaskWrite { row, place, queue, .. }: &TaskWrite) {
        if self.cache.waiting.is_empty() || place.gate.is_none() || row.life.started.is_some() {
            return;
        }
        if let Some(most) = self.cache.waiting.get_mut(queue) {
            *most += 1;
        }
    }

    fn count_stored_runs(&mut self, queue: &str, max: u32) -> Result<u32, Error> {
        let connection = self.connection;
        let lanes: Vec<i64> = self.fetch_rare(LANES, [queue])?;
        let mut ready = connection.prepare(READY)?;
        let mut first = connection.prepare(FIRST)?;
        let mut waiting = 0;
        for (gate, limit) in self.list_gates()? {
            for lane in &lanes {
                let mut rows = ready.query((gate.code(), limit, lane))?;
                while let Some(row) = rows.next()? {
                    let (key, index): (i64, i64) = (row.get(0)?, row.get(1)?);
                    let count = self.catalog.find_plan(row.get(2)?)?.task_count();
                    let run = key - index;
                    let end = run.saturating_add_unsigned(count as u64);
                    let waits: bool = match count {
                        1 => row.get(3)?,
                        _ => first.fetch_one((run, key, end))?,
                    };
                    waiting += u32::from(waits);
                    if waiting >= max {
                        return Ok(waiting);
                    }
                }
            }
        }
        Ok(waiting)
    }

    /// The gates behind which tasks are ready, and for one that is a limit, which.
    fn list_gates(&mut self) -> Result<Vec<(Gate, Option<i64>)>, Error> {
        let gates = Gate::ALL.into_iter().filter(|gate| *gate != Gate::Limited);
        let mut found: Vec<_> = gates.map(|gate| (gate, None)).collect();
        let next = self.prepare_rare(NEXT_LIMIT)?;
        let mut last = i64::MIN;
        while let Some(limit) = next.fetch_one((Gate::Limited.code(), last))? {
            found.push((Gate::Limited, Some(limit)));
            last = limit;
        }
        Ok(found)
    }
}
