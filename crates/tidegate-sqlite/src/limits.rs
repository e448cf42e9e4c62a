//! Limits, the tasks that hold units of them and the tasks that are blocked on them.
//!
//! A limit for one key has a number from the first time that a task holds it, is blocked on it or
//! begins under it. Nothing is found of one without a number.

use crate::error::Error;
use crate::fetch::{Fetch, read_at};
use crate::ledger::Ledger;
use crate::loader::{RowLoader, load_once};
use rusqlite::{OptionalExtension, Row as Columned};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::limit::{FIRST_EVENTS, Hold, Limit, LimitKey, LimitRow, LimitUsage};
use tidegate_core::rows::Gate;
use tidegate_core::store::TaskKey;
use tidegate_core::want::{Loaded, Want};

/// The gates behind which a task may stand that is blocked on a limit.
pub(crate) const GATES: [Option<u8>; 2] = [Some(Gate::Limited as u8), None];

/// Reads name, units at once, units of the rate and its nanoseconds.
pub(crate) fn read_limit(row: &Columned<'_>) -> rusqlite::Result<Limit> {
    let mut limit = Limit::new(read_at::<String>(row, 0)?);
    if let Some(units) = read_at(row, 1)? {
        limit = limit.at_once(units);
    }
    if let (Some(units), Some(per)) = (read_at(row, 2)?, read_at::<Option<i64>>(row, 3)?) {
        limit = limit.rate(units, Duration::from_nanos(per.unsigned_abs()));
    }
    Ok(limit)
}

impl RowLoader<'_> {
    pub(crate) fn load_limits(&mut self, want: &Want) -> Result<Loaded, Error> {
        Ok(match want {
            Want::Limit(name) => {
                let RowLoader { sql, cache, .. } = self;
                let load =
                    |name: &Arc<str>| Ok(sql.limit.query_row([&**name], read_limit).optional()?);
                Loaded::Limit(cache.limits.find_or_load(name.clone(), load)?)
            }
            Want::LimitUsage(limit) => Loaded::LimitUsage(self.find_limit_usage(limit)?),
            Want::RateEvents { limit, after, max } => {
                Loaded::RateEvents(match self.catalog.find_limit_id(limit)? {
                    Some(id) => self.sql.begun.fetch_all((id, after.as_micros(), max))?,
                    None => Vec::new(),
                })
            }
            Want::DueLimits { until, max } => {
                let is_due = self.first_limit_alarm()?.is_some_and(|first| first <= *until);
                let due = is_due.then(|| self.sql.due_limits.fetch_all((until.as_micros(), max)));
                Loaded::LimitKeys(self.find_limits(due.transpose()?.unwrap_or_default())?)
            }
            Want::Holds(task) => {
                let mut holds = Vec::new();
                for (id, units, since) in self.sql.holds.fetch_all::<_, Vec<_>>([task.0])? {
                    holds.push(Hold { limit: self.catalog.find_limit(id)?, units, since });
                }
                holds.sort_unstable_by(|a, b| a.limit.cmp(&b.limit));
                Loaded::Holds(holds)
            }
            Want::BlockedOn { limit, max } => Loaded::Ordered(self.find_blocked(limit, *max)?),
            Want::BlockedKeys(name) => {
                let ids = self.sql.keys_behind.fetch_all([&**name])?;
                Loaded::LimitKeys(self.find_limits(ids)?)
            }
            other => self.load_for_explanation(other)?,
        })
    }

    fn find_limit_usage(&mut self, limit: &LimitKey) -> Result<LimitUsage, Error> {
        let Some(id) = self.catalog.find_limit_id(limit)? else { return Ok(LimitUsage::default()) };
        let (in_use, window_sum, newest, alarm) = self.sql.limit_row.fetch_one([id])?;
        let row = LimitRow { in_use, window_sum, alarm, ..LimitRow::default() };
        let first = (id, i64::MIN, FIRST_EVENTS);
        let oldest = if window_sum > 0 { self.sql.begun.fetch_all(first)? } else { Vec::new() };
        Ok(LimitUsage { row, oldest, newest })
    }

    fn find_limits(&mut self, ids: Vec<i64>) -> Result<Vec<LimitKey>, Error> {
        ids.into_iter().map(|id| self.catalog.find_limit(id)).collect()
    }

    /// The first tasks of each lane that are blocked on a limit.
    fn find_blocked(
        &mut self,
        limit: &LimitKey,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Error> {
        let Some(id) = self.catalog.find_limit_id(limit)? else { return Ok(Vec::new()) };
        let mut lanes: BTreeMap<i64, Vec<(Timestamp, TaskKey)>> = BTreeMap::new();
        for gate in GATES {
            // From one lane to the next, not through all tasks in them.
            let mut last = i64::MIN;
            while let Some(lane) = self.sql.next_lane.fetch_one((gate, id, last))? {
                let mut tasks = self.sql.behind.fetch_all((gate, id, lane, max))?;
                lanes.entry(lane).or_default().append(&mut tasks);
                last = lane;
            }
        }
        for tasks in lanes.values_mut() {
            tasks.sort_unstable();
            tasks.truncate(max as usize);
        }
        let mut blocked: Vec<_> = lanes.into_values().flatten().collect();
        blocked.sort_unstable();
        Ok(blocked)
    }

    /// The earliest alarm of all limits. Asked in every request, and so remembered.
    pub(crate) fn first_limit_alarm(&mut self) -> Result<Option<Timestamp>, Error> {
        let first = || self.sql.first_limit_alarm.fetch_one([]);
        Ok(*load_once(&mut self.cache.limit_alarm, first)?)
    }
}

impl Ledger<'_> {
    pub(crate) fn write_limit(&mut self, limit: &Limit) -> Result<(), Error> {
        let rate = limit.most_in_time();
        let per = rate.map(|rate| i64::try_from(rate.per.as_nanos()).unwrap_or(i64::MAX));
        let units = rate.map(|rate| rate.units);
        self.sql.set_limit.execute((limit.name(), limit.most_at_once(), units, per))?;
        self.loader.cache.limits.put_value(limit.name().into(), Some(limit.clone()));
        Ok(())
    }

    /// The number of a limit for its key; it is given one if it has none.
    pub(crate) fn limit_id(&mut self, limit: &LimitKey) -> Result<i64, Error> {
        if let Some(id) = self.loader.catalog.find_limit_id(limit)? {
            return Ok(id);
        }
        let id = self.sql.add_limit_key.insert((&*limit.name, &*limit.key))?;
        self.loader.catalog.known.limit_ids.put_value(limit.clone(), id);
        Ok(id)
    }
}
