//! What is read to explain why a task is not running, in one short transaction.
//!
//! Everything is found by an index, and what may be many is counted up to a bound only.

use crate::columns::{self, timestamp, worker_id};
use crate::error::Error;
use crate::limits::{self, GATES};
use crate::loader::{QUEUE, RUN, RowLoader, STORE};
use crate::sql::{NEXT_LANE, SELECT_TASK, WORKER_FOR};
use crate::waits;
use rusqlite::OptionalExtension;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::explain::{Candidate, Looked, Reads, look};
use tidegate_core::graph::TaskIndex;
use tidegate_core::limit::{Hold, Limit, LimitKey};
use tidegate_core::rows::{Corrupt, Gate, Payload, Row};
use tidegate_core::store::{Bytes, Happened, Scope, TaskKey};
use tidegate_core::wait::Waiting;

/// How the last of the last ?3 records of run ?1 that is of its task ?2 came about.
const LAST_END: &str = "SELECT what FROM (SELECT seq, what, idx FROM record WHERE run = ?1 \
     ORDER BY seq DESC LIMIT ?3) WHERE idx = ?2 ORDER BY seq DESC LIMIT 1";

/// The open pause of the scope ?1 and the name ?2.
const PAUSED_SINCE: &str =
    "SELECT paused_at FROM pause WHERE scope = ?1 AND name = ?2 AND unpaused_at IS NULL";

const PAYLOAD: &str = "SELECT body FROM payload WHERE task = ?1 AND kind = ?2";
const WAITS: &str = "SELECT kind, name, occurrence, label, since, due, run, how, body, signal \
     FROM wait WHERE task = ?1 ORDER BY kind, name, occurrence";
const LIMIT: &str = "SELECT name, at_once, rate, rate_per FROM task_limit WHERE name = ?1";
const LIMIT_KEY: &str = "SELECT id FROM limit_key WHERE name = ?1 AND key = ?2";
const IN_USE: &str = "SELECT ifnull(sum(units), 0) FROM hold WHERE limit_key = ?1";
const BEGUN: &str = "SELECT at, units FROM begun WHERE limit_key = ?1 ORDER BY at";
const HOLDS: &str = "SELECT limit_key.name, limit_key.key, hold.units, hold.since FROM hold \
     CROSS JOIN limit_key ON limit_key.id = hold.limit_key WHERE hold.task = ?1";
const HOLDERS: &str = "SELECT task, units, since FROM hold WHERE limit_key = ?1 LIMIT ?2";

/// Who stands behind the gate ?1, or none, the limit ?2, in the lane ?3 and before the place ?4 and
/// ?5; up to ?6.
const BEHIND_BEFORE: &str = "SELECT count(*) FROM (SELECT 1 FROM task WHERE gate IS ?1 \
     AND behind = ?2 AND lane = ?3 AND claim_order IS NOT NULL \
     AND (claim_order, key) < (?4, ?5) LIMIT ?6)";

/// The lanes of queue ?1.
const LANES: &str = "SELECT lane.id, workflow.name, lane.task, lane.weight FROM workflow \
     CROSS JOIN lane ON lane.workflow = workflow.id WHERE workflow.queue = ?1";

/// Who can be claimed behind the gate ?1, in the lane ?2, before the place ?3 and ?4; up to ?5.
const READY_BEFORE: &str = "SELECT count(*) FROM (SELECT 1 FROM task WHERE gate = ?1 \
     AND behind IS NULL AND lane = ?2 AND claim_order IS NOT NULL \
     AND (claim_order, key) < (?3, ?4) LIMIT ?5)";

/// How long tasks of the lane of ?1 took to succeed, among the last ?2 records; ?3 says what those
/// are that have succeeded.
const RECENT: &str = "SELECT record.at - record.begun_at FROM record \
     CROSS JOIN task ON task.key = record.run + record.idx \
     WHERE record.seq > (SELECT max(seq) FROM record) - ?2 AND record.what = ?3 \
     AND record.begun_at IS NOT NULL AND task.lane = (SELECT lane FROM task WHERE key = ?1)";

impl RowLoader<'_> {
    /// Why a task is not running, as far as the store knows.
    pub(crate) fn explain(
        &mut self,
        task: TaskKey,
        now: Timestamp,
    ) -> Result<Option<Looked>, Error> {
        self.read_snapshot(|snapshot| {
            let mut select = snapshot.connection.prepare("SELECT id FROM worker ORDER BY id")?;
            let known = select.query_map([], |row| row.get(0))?;
            let mut alive = known.collect::<Result<Vec<_>, _>>()?;
            alive.retain(|worker| snapshot.is_alive(worker_id(*worker)));
            look(&mut Looking { snapshot, alive }, task, now)
        })
    }
}

/// A snapshot, and the workers that live.
struct Looking<'l, 'r> {
    snapshot: &'l mut RowLoader<'r>,
    alive: Vec<i64>,
}

impl Looking<'_, '_> {
    /// The number of a limit for its key; one that was never used has none.
    fn limit_id(&self, limit: &LimitKey) -> Result<Option<i64>, Error> {
        let names = (&*limit.name, &*limit.key);
        let found = self.snapshot.connection.query_row(LIMIT_KEY, names, |row| row.get(0));
        Ok(found.optional()?)
    }

    fn is_served(&mut self, queue: &str, names: &(String, String, u32)) -> Result<bool, Error> {
        let (workflow, task, weight) = names;
        let workers = self.workers_for(queue, workflow, task)?;
        Ok(workers.iter().any(|worker| worker.can_run(*weight)))
    }
}

impl Reads for Looking<'_, '_> {
    type Error = Error;

    fn row(&mut self, task: TaskKey) -> Result<Option<Row>, Error> {
        let select = format!("{SELECT_TASK} WHERE key = ?1");
        let stored = self.snapshot.connection.query_row(&select, [task.0], columns::read);
        stored.optional()?.map(|stored| self.snapshot.row(stored)).transpose()
    }

    fn payload(&mut self, task: TaskKey, kind: Payload) -> Result<Option<Bytes>, Error> {
        let body = self.snapshot.connection.query_row(PAYLOAD, (task.0, kind.code()), |row| {
            Ok(Bytes::from(row.get_ref(0)?.as_blob()?))
        });
        Ok(body.optional()?)
    }

    fn last_end(
        &mut self,
        task: TaskKey,
        index: TaskIndex,
        max: u32,
    ) -> Result<Option<Happened>, Error> {
        let found = (task.run(index).0, index.as_u32(), max);
        let what = self.snapshot.connection.query_row(LAST_END, found, |row| row.get::<_, u8>(0));
        let what = what.optional()?.map(|what| Happened::from_code(what).ok_or(Corrupt));
        what.transpose().map_err(|source| Error::Task { key: task.0, source })
    }

    fn waits(&mut self, task: TaskKey) -> Result<Vec<Waiting>, Error> {
        let corrupt = |source| Error::Task { key: task.0, source };
        let mut select = self.snapshot.connection.prepare(WAITS)?;
        let waits = select.query_map([task.0], waits::read)?;
        waits.map(|wait| wait?.map_err(corrupt)).collect()
    }

    fn paused_since(&mut self, scope: &Scope) -> Result<Option<Timestamp>, Error> {
        let name = match scope {
            Scope::Run(run) => (RUN, run.to_string()),
            Scope::Queue(queue) => (QUEUE, queue.clone()),
            Scope::Store => (STORE, String::new()),
        };
        let since = self.snapshot.connection.query_row(PAUSED_SINCE, name, |row| row.get(0));
        Ok(since.optional()?.map(timestamp))
    }

    fn limit(&mut self, name: &str) -> Result<Option<Limit>, Error> {
        Ok(self.snapshot.connection.query_row(LIMIT, [name], limits::read).optional()?)
    }

    fn in_use(&mut self, limit: &LimitKey) -> Result<u32, Error> {
        let Some(id) = self.limit_id(limit)? else { return Ok(0) };
        let units: i64 = self.snapshot.connection.query_row(IN_USE, [id], |row| row.get(0))?;
        Ok(u32::try_from(units).unwrap_or(u32::MAX))
    }

    fn begun(&mut self, limit: &LimitKey) -> Result<Vec<(Timestamp, u32)>, Error> {
        let Some(id) = self.limit_id(limit)? else { return Ok(Vec::new()) };
        let mut select = self.snapshot.connection.prepare(BEGUN)?;
        let begun = select.query_map([id], |row| Ok((timestamp(row.get(0)?), row.get(1)?)))?;
        Ok(begun.collect::<rusqlite::Result<_>>()?)
    }

    fn holds(&mut self, task: TaskKey) -> Result<Vec<Hold>, Error> {
        let mut select = self.snapshot.connection.prepare(HOLDS)?;
        let holds = select.query_map([task.0], |row| {
            let (name, key): (String, String) = (row.get(0)?, row.get(1)?);
            let (units, since) = (row.get(2)?, timestamp(row.get(3)?));
            Ok(Hold { limit: LimitKey::new(name, key), units, since })
        })?;
        Ok(holds.collect::<rusqlite::Result<_>>()?)
    }

    fn holders(
        &mut self,
        limit: &LimitKey,
        max: usize,
    ) -> Result<Vec<(TaskKey, u32, Timestamp)>, Error> {
        let Some(id) = self.limit_id(limit)? else { return Ok(Vec::new()) };
        let mut select = self.snapshot.connection.prepare(HOLDERS)?;
        let holders = select.query_map((id, max as i64), |row| {
            Ok((TaskKey(row.get(0)?), row.get(1)?, timestamp(row.get(2)?)))
        })?;
        Ok(holders.collect::<rusqlite::Result<_>>()?)
    }

    fn behind_before(
        &mut self,
        limit: &LimitKey,
        (order, task): (Timestamp, TaskKey),
        max: u32,
    ) -> Result<u32, Error> {
        let Some(id) = self.limit_id(limit)? else { return Ok(0) };
        let mut next_lane = self.snapshot.connection.prepare(NEXT_LANE)?;
        let mut count = self.snapshot.connection.prepare(BEHIND_BEFORE)?;
        let mut before = 0;
        for gate in GATES {
            // From one lane to the next, not through all that stand in them.
            let mut last = i64::MIN;
            while before < max
                && let Some(lane) = next_lane.query_row((gate, id, last), |row| row.get(0))?
            {
                let place = (gate, id, lane, order.as_micros(), task.0, max - before);
                before += count.query_row(place, |row| row.get::<_, u32>(0))?;
                last = lane;
            }
        }
        Ok(before)
    }

    fn ready_before(
        &mut self,
        queue: &str,
        (order, task): (Timestamp, TaskKey),
        max: u32,
    ) -> Result<u32, Error> {
        let connection = self.snapshot.connection;
        let mut select = connection.prepare(LANES)?;
        let lanes = select.query_map([queue], |row| {
            let names = (row.get(1)?, row.get(2)?, row.get(3)?);
            Ok((row.get::<_, i64>(0)?, names))
        })?;
        let lanes = lanes.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut count = connection.prepare(READY_BEFORE)?;
        let mut before = 0;
        for (lane, names) in lanes {
            let mut in_lane = 0;
            for gate in [Gate::Open, Gate::Awaited] {
                let place = (gate.code(), lane, order.as_micros(), task.0, max);
                in_lane += count.query_row(place, |row| row.get::<_, u32>(0))?;
            }
            if in_lane > 0 && self.is_served(queue, &names)? {
                before += in_lane;
            }
            if before >= max {
                return Ok(max);
            }
        }
        Ok(before)
    }

    fn workers_for(
        &mut self,
        queue: &str,
        workflow: &str,
        task: &str,
    ) -> Result<Vec<Candidate>, Error> {
        let mut select = self.snapshot.connection.prepare(WORKER_FOR)?;
        let asked = self.alive.iter().map(|&worker| {
            select.query_row((queue, workflow, task, worker), |row| {
                let (serves, knows, slots) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Candidate { worker: worker_id(worker), serves, knows, slots })
            })
        });
        Ok(asked.collect::<rusqlite::Result<_>>()?)
    }

    fn recent(&mut self, task: TaskKey, max: u32) -> Result<Vec<Duration>, Error> {
        let mut select = self.snapshot.connection.prepare(RECENT)?;
        let like_it = (task.0, max, Happened::Succeeded.code());
        let took = select.query_map(like_it, |row| row.get::<_, i64>(0))?;
        let took = took.collect::<rusqlite::Result<Vec<_>>>()?;
        // A clock that was set back makes no time pass.
        let time = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        Ok(took.into_iter().map(time).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_by_an_index() {
        crate::sql::tests::are_found_by_an_index(&[
            (LAST_END, "SEARCH record USING INDEX record_run (run=?)"),
            (PAUSED_SINCE, "USING INDEX pause_open (scope=? AND name=?)"),
            (PAYLOAD, "USING PRIMARY KEY (task=? AND kind=?)"),
            (WAITS, "SEARCH wait USING PRIMARY KEY (task=?)"),
            (LIMIT, "USING PRIMARY KEY (name=?)"),
            (LIMIT_KEY, "(name=? AND key=?)"),
            (IN_USE, "USING COVERING INDEX hold_limit (limit_key=?)"),
            (BEGUN, "USING PRIMARY KEY (limit_key=?)"),
            (HOLDS, "SEARCH hold USING PRIMARY KEY (task=?)"),
            (HOLDS, "SEARCH limit_key USING INTEGER PRIMARY KEY (rowid=?)"),
            (HOLDERS, "USING INDEX hold_limit (limit_key=?)"),
            (
                BEHIND_BEFORE,
                "COVERING INDEX task_ready (gate=? AND behind=? AND lane=? AND claim_order>? AND claim_order<?)",
            ),
            (LANES, "SEARCH lane USING COVERING INDEX"),
            (
                READY_BEFORE,
                "COVERING INDEX task_ready (gate=? AND behind=? AND lane=? AND claim_order>? AND claim_order<?)",
            ),
            (RECENT, "SEARCH record USING INTEGER PRIMARY KEY (rowid>?)"),
            (RECENT, "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"),
        ]);
    }
}
