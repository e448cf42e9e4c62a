//! How many runs of a queue wait, for whoever bounds them: found where claims look, never counted up
//! or down. A bound from above is remembered, so that a submit to a queue that is far from full costs
//! nothing.

use crate::error::Error;
use crate::loader::RowLoader;
use tidegate_core::delta::TaskWrite;
use tidegate_core::rows::Gate;

/// The lanes of queue ?1.
const LANES: &str = "SELECT lane.id FROM workflow CROSS JOIN lane ON lane.workflow = workflow.id \
     WHERE workflow.queue = ?1";

/// The limit after ?2 behind which somebody stands at the gate ?1.
const NEXT_LIMIT: &str = "SELECT min(behind) FROM task WHERE gate = ?1 AND behind > ?2 \
     AND claim_order IS NOT NULL";

/// Tasks of lane ?3 that are ready behind the gate ?1 and the limit ?2, or none, and were never
/// entered.
const READY: &str = "SELECT key, idx, plan, parent_task IS NULL FROM task WHERE gate = ?1 \
     AND behind IS ?2 AND lane = ?3 AND claim_order IS NOT NULL AND started IS NULL";

/// Whether the task ?2 is the first that is ready of the run ?1, which goes up to ?3, which no task
/// has begun, and of which nothing has begun.
const FIRST: &str = "SELECT NOT EXISTS (SELECT 1 FROM task WHERE key >= ?1 AND key < ?2 \
     AND gate IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM task WHERE key >= ?1 AND key < ?3 \
     AND (started IS NOT NULL OR worker IS NOT NULL)) \
     AND EXISTS (SELECT 1 FROM task WHERE key = ?1 AND parent_task IS NULL)";

impl RowLoader<'_> {
    /// How many runs of a queue wait, up to `max`; below, it may be told more than there are.
    pub(crate) fn runs_waiting(&mut self, queue: &str, max: u32) -> Result<u32, Error> {
        if let Some(&most) = self.cache.waiting.get(queue).filter(|most| **most < max) {
            return Ok(most);
        }
        let waiting = self.count_waiting(queue, max)?;
        // If there are as many, there may be more.
        self.cache.waiting.remove(queue);
        if waiting < max {
            self.cache.waiting.insert(queue.into(), waiting);
        }
        Ok(waiting)
    }

    /// A task was written: its run may wait from now on.
    pub(crate) fn may_wait(&mut self, TaskWrite { row, place, queue, .. }: &TaskWrite) {
        if self.cache.waiting.is_empty() || place.gate.is_none() || row.life.started.is_some() {
            return;
        }
        if let Some(most) = self.cache.waiting.get_mut(queue) {
            *most += 1;
        }
    }

    fn count_waiting(&mut self, queue: &str, max: u32) -> Result<u32, Error> {
        let connection = self.connection;
        let mut lanes = connection.prepare(LANES)?;
        let lanes = lanes.query_map([queue], |row| row.get(0))?;
        let lanes = lanes.collect::<rusqlite::Result<Vec<i64>>>()?;
        let mut ready = connection.prepare(READY)?;
        let mut first = connection.prepare(FIRST)?;
        let mut waiting = 0;
        for (gate, limit) in self.places()? {
            for lane in &lanes {
                let mut rows = ready.query((gate.code(), limit, lane))?;
                while let Some(row) = rows.next()? {
                    let (key, index): (i64, i64) = (row.get(0)?, row.get(1)?);
                    let plan = self.find_plan(row.get(2)?)?;
                    let run = key - index;
                    let end = run.saturating_add_unsigned(plan.task_count() as u64);
                    let waits = match plan.task_count() {
                        1 => row.get(3)?,
                        _ => first.query_row((run, key, end), |row| row.get::<_, bool>(0))?,
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

    /// Where tasks stand that are ready: behind which gate, and which limit.
    fn places(&self) -> Result<Vec<(Gate, Option<i64>)>, Error> {
        let gates = Gate::ALL.into_iter().filter(|gate| *gate != Gate::Limited);
        let mut places: Vec<_> = gates.map(|gate| (gate, None)).collect();
        let mut next = self.connection.prepare(NEXT_LIMIT)?;
        let mut last = i64::MIN;
        let gate = Gate::Limited;
        while let Some(limit) = next.query_row((gate.code(), last), |row| row.get(0))? {
            places.push((gate, Some(limit)));
            last = limit;
        }
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_by_an_index() {
        crate::sql::tests::are_found_by_an_index(&[
            (LANES, "SEARCH lane USING COVERING INDEX"),
            (NEXT_LIMIT, "USING COVERING INDEX task_ready (gate=? AND behind>?)"),
            (READY, "USING INDEX task_ready (gate=? AND behind=? AND lane=?"),
            (FIRST, "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ]);
    }
}
