//! Limits, who holds them and who stands behind them.
//!
//! A limit for one key has a number from the first time that somebody holds it, stands behind it or
//! begins under it. Who asks about one without a number is told that there is nothing.

use crate::columns::timestamp;
use crate::error::Error;
use crate::ledger::Ledger;
use crate::loader::RowLoader;
use rusqlite::{OptionalExtension, Row as Columned};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::delta::RateEvent;
use tidegate_core::limit::{Hold, Limit, LimitKey};
use tidegate_core::rows::Gate;
use tidegate_core::store::TaskKey;

/// Limits that are remembered until somebody else writes.
const LIMITS_MAX: usize = 1_024;

/// The gates behind which a task may stand that stands behind a limit.
pub(crate) const GATES: [Option<u8>; 2] = [Some(Gate::Limited as u8), None];

/// Reads name, units at once, units of the rate and its nanoseconds.
pub(crate) fn read(row: &Columned<'_>) -> rusqlite::Result<Limit> {
    let mut limit = Limit::new(row.get::<_, String>(0)?);
    if let Some(units) = row.get(1)? {
        limit = limit.at_once(units);
    }
    if let (Some(units), Some(per)) = (row.get(2)?, row.get::<_, Option<i64>>(3)?) {
        limit = limit.rate(units, Duration::from_nanos(per.unsigned_abs()));
    }
    Ok(limit)
}

impl RowLoader<'_> {
    pub(crate) fn find_limit(&mut self, name: &str) -> Result<Option<Limit>, Error> {
        if let Some(known) = self.cache.limits.get(name) {
            return Ok(known.clone());
        }
        let limit = self.sql.limit.query_row([name], read).optional()?;
        self.remember_limit(name, limit.clone());
        Ok(limit)
    }

    fn remember_limit(&mut self, name: &str, limit: Option<Limit>) {
        if self.cache.limits.len() >= LIMITS_MAX {
            self.cache.limits.clear();
        }
        self.cache.limits.insert(name.to_owned(), limit);
    }

    /// The number of a limit for its key, if it has one.
    pub(crate) fn find_limit_id(&mut self, limit: &LimitKey) -> Result<Option<i64>, Error> {
        if let Some(id) = self.catalog.limit_id(limit) {
            return Ok(Some(id));
        }
        let names = (&*limit.name, &*limit.key);
        let id = self.sql.find_limit_key.query_row(names, |row| row.get(0)).optional()?;
        if let Some(id) = id {
            self.catalog.add_limit(id, limit);
        }
        Ok(id)
    }

    pub(crate) fn limit_of(&mut self, id: i64) -> Result<LimitKey, Error> {
        self.catalog.limit(id, &mut self.sql.limit_key)
    }

    // -------------------------------------------------------------------------------- who holds --

    pub(crate) fn units_in_use(&mut self, limit: &LimitKey) -> Result<u32, Error> {
        let Some(id) = self.find_limit_id(limit)? else { return Ok(0) };
        let units: i64 = self.sql.in_use.query_row([id], |row| row.get(0))?;
        Ok(u32::try_from(units).unwrap_or(u32::MAX))
    }

    pub(crate) fn holds_of(&mut self, task: TaskKey) -> Result<Vec<Hold>, Error> {
        let held = self
            .sql
            .holds
            .query_map([task.0], |row| Ok((row.get(0)?, row.get(1)?, timestamp(row.get(2)?))))?;
        let held = held.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut holds = Vec::with_capacity(held.len());
        for (id, units, since) in held {
            holds.push(Hold { limit: self.limit_of(id)?, units, since });
        }
        holds.sort_unstable_by(|a, b| a.limit.cmp(&b.limit));
        Ok(holds)
    }

    pub(crate) fn begun_under(&mut self, limit: &LimitKey) -> Result<Vec<(Timestamp, u32)>, Error> {
        let Some(id) = self.find_limit_id(limit)? else { return Ok(Vec::new()) };
        let begun = self.sql.begun.query_map([id], |row| Ok((timestamp(row.get(0)?), row.get(1)?)));
        Ok(begun?.collect::<rusqlite::Result<_>>()?)
    }

    // ----------------------------------------------------------------------- who stands behind --

    pub(crate) fn stand_behind(
        &mut self,
        limit: &LimitKey,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Error> {
        let Some(id) = self.find_limit_id(limit)? else { return Ok(Vec::new()) };
        let mut lanes: BTreeMap<i64, Vec<(Timestamp, TaskKey)>> = BTreeMap::new();
        for gate in GATES {
            // From one lane to the next, not through all that stand in them.
            let mut last = i64::MIN;
            while let Some(lane) =
                self.sql.next_lane.query_row((gate, id, last), |row| row.get(0))?
            {
                let tasks = self.sql.behind.query_map((gate, id, lane, max), |row| {
                    Ok((timestamp(row.get(0)?), TaskKey(row.get(1)?)))
                })?;
                let first = lanes.entry(lane).or_default();
                first.extend(tasks.collect::<rusqlite::Result<Vec<_>>>()?);
                last = lane;
            }
        }
        for tasks in lanes.values_mut() {
            tasks.sort_unstable();
            tasks.truncate(max as usize);
        }
        let mut behind: Vec<_> = lanes.into_values().flatten().collect();
        behind.sort_unstable();
        Ok(behind)
    }

    pub(crate) fn keys_stood_behind(&mut self, name: &str) -> Result<Vec<LimitKey>, Error> {
        let ids = self.sql.keys_behind.query_map([name], |row| row.get(0))?;
        let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
        ids.into_iter().map(|id| self.limit_of(id)).collect()
    }

    // ---------------------------------------------------------------------------------- alarms --

    /// The earliest alarm of all limits. Asked in every request, and so remembered.
    pub(crate) fn first_limit_alarm(&mut self) -> Result<Option<Timestamp>, Error> {
        if let Some(first) = self.cache.limit_alarm {
            return Ok(first);
        }
        let first = self.sql.first_limit_alarm.query_row([], |row| row.get::<_, Option<i64>>(0))?;
        Ok(*self.cache.limit_alarm.insert(first.map(timestamp)))
    }

    pub(crate) fn alarm_of_limit(&mut self, limit: &LimitKey) -> Result<Option<Timestamp>, Error> {
        if self.first_limit_alarm()?.is_none() {
            return Ok(None);
        }
        let Some(id) = self.find_limit_id(limit)? else { return Ok(None) };
        let alarm = self.sql.limit_alarm.query_row([id], |row| row.get::<_, Option<i64>>(0))?;
        Ok(alarm.map(timestamp))
    }

    pub(crate) fn limits_due(&mut self, now: Timestamp, max: u32) -> Result<Vec<LimitKey>, Error> {
        if self.first_limit_alarm()?.is_none_or(|first| first > now) {
            return Ok(Vec::new());
        }
        let ids = self.sql.due_limits.query_map((now.as_micros(), max), |row| row.get(0))?;
        let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
        ids.into_iter().map(|id| self.limit_of(id)).collect()
    }
}

impl Ledger<'_> {
    pub(crate) fn write_limit(&mut self, limit: &Limit) -> Result<(), Error> {
        let rate = limit.most_in_time();
        let per = rate.map(|rate| i64::try_from(rate.per.as_nanos()).unwrap_or(i64::MAX));
        let units = rate.map(|rate| rate.units);
        self.sql.set_limit.execute((limit.name(), limit.most_at_once(), units, per))?;
        self.loader.remember_limit(limit.name(), Some(limit.clone()));
        Ok(())
    }

    /// The number of a limit for its key; it is given one if it has none.
    pub(crate) fn limit_id(&mut self, limit: &LimitKey) -> Result<i64, Error> {
        if let Some(id) = self.loader.find_limit_id(limit)? {
            return Ok(id);
        }
        let id = self.sql.add_limit_key.insert((&*limit.name, &*limit.key))?;
        self.loader.catalog.add_limit(id, limit);
        Ok(id)
    }

    pub(crate) fn write_hold(&mut self, task: TaskKey, hold: &Hold) -> Result<(), Error> {
        let id = self.limit_id(&hold.limit)?;
        self.sql.hold.execute((task.0, id, hold.units, hold.since.as_micros()))?;
        Ok(())
    }

    pub(crate) fn delete_hold(&mut self, task: TaskKey, limit: &LimitKey) -> Result<(), Error> {
        if let Some(id) = self.loader.find_limit_id(limit)? {
            self.sql.let_go.execute((task.0, id))?;
        }
        Ok(())
    }

    pub(crate) fn write_rate_event(&mut self, event: &RateEvent) -> Result<(), Error> {
        let id = self.limit_id(&event.limit)?;
        self.sql.forget_begun.execute((id, event.forget_before.as_micros()))?;
        self.sql.note_begun.execute((id, event.at.as_micros(), event.units))?;
        Ok(())
    }

    pub(crate) fn write_limit_alarm(
        &mut self,
        limit: &LimitKey,
        alarm: Option<Timestamp>,
    ) -> Result<(), Error> {
        let id = self.limit_id(limit)?;
        self.sql.set_limit_alarm.execute((id, alarm.map(Timestamp::as_micros)))?;
        self.loader.cache.limit_alarm = None;
        Ok(())
    }
}
