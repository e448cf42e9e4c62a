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
                    Some(id) => self.sql.rate_events.fetch_all((id, after.as_micros(), max))?,
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
                let ids = self.sql.blocked_keys.fetch_all([&**name])?;
                Loaded::LimitKeys(self.find_limits(ids)?)
            }
            other => self.load_for_explanation(other)?,
        })
    }

    fn find_limit_usage(&mut self, limit: &LimitKey) -> Result<LimitUsage, Error> {
        let Some(id) = self.catalog.find_limit_id(limit)? else { return Ok(LimitUsage::default()) };
        let row: LimitRow = self.sql.limit_row.fetch_one([id])?;
        if row.window_sum == 0 {
            return Ok(LimitUsage { row, ..LimitUsage::default() });
        }
        let oldest = self.sql.rate_events.fetch_all((id, i64::MIN, FIRST_EVENTS))?;
        let newest = self.sql.newest_event.fetch_one([id])?;
        Ok(LimitUsage { row, oldest, newest })
    }

    fn find_limits(&mut self, ids: Vec<i64>) -> Result<Vec<LimitKey>, Error> {
        ids.into_iter().map(|id| self.catalog.find_limit(id)).collect()
    }

    /// The first tasks of each group that are blocked on a limit.
    fn find_blocked(
        &mut self,
        limit: &LimitKey,
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Error> {
        let Some(id) = self.catalog.find_limit_id(limit)? else { return Ok(Vec::new()) };
        let mut groups: BTreeMap<i64, Vec<(Timestamp, TaskKey)>> = BTreeMap::new();
        for gate in GATES {
            // From one group to the next, not through all tasks in them.
            let mut last = i64::MIN;
            while let Some(group) = self.sql.next_group.fetch_one((gate, id, last))? {
                let mut tasks = self.sql.blocked.fetch_all((gate, id, group, max))?;
                groups.entry(group).or_default().append(&mut tasks);
                last = group;
            }
        }
        for tasks in groups.values_mut() {
            tasks.sort_unstable();
            tasks.truncate(max as usize);
        }
        let mut blocked: Vec<_> = groups.into_values().flatten().collect();
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

    /// Writes the units that a task holds of a limit.
    pub(crate) fn write_hold(
        &mut self,
        task: TaskKey,
        limit: &LimitKey,
        hold: Option<&Hold>,
    ) -> Result<(), Error> {
        let id = self.number_limit(limit)?;
        match hold {
            Some(hold) => {
                let held = (task.0, id, hold.units, hold.since.as_micros());
                self.sql.put_hold.execute(held)?
            }
            None => self.sql.delete_hold.execute((task.0, id))?,
        };
        Ok(())
    }

    /// Writes the row of a limit as it was decided.
    pub(crate) fn write_limit_row(
        &mut self,
        limit: &LimitKey,
        row: &LimitRow,
    ) -> Result<(), Error> {
        let id = self.number_limit(limit)?;
        let LimitRow { in_use, window_sum, overtaken_task, overtakes, alarm } = *row;
        let sum = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        let (overtaken, alarm) =
            (overtaken_task.map(|task| task.0), alarm.map(Timestamp::as_micros));
        let row = (id, sum(in_use), sum(window_sum), overtaken, overtakes, alarm);
        self.sql.set_limit_row.execute(row)?;
        self.loader.cache.limit_alarm = None;
        Ok(())
    }

    /// The number of a limit for its key; it is given one if it has none.
    pub(crate) fn number_limit(&mut self, limit: &LimitKey) -> Result<i64, Error> {
        if let Some(id) = self.loader.catalog.find_limit_id(limit)? {
            return Ok(id);
        }
        let id = self.sql.add_limit.insert((&*limit.name, &*limit.key))?;
        self.loader.catalog.known.limit_ids.put_value(limit.clone(), id);
        Ok(id)
    }
}
