//! Limits: their definitions, the units that tasks hold, and the tasks that are blocked on them.
//!
//! The row of a limit key protects the units in use, the rate events and the tasks that are blocked on it.
//! So a decision that asks about a key that has no row adds one, and locks it.

use crate::batch::Parameter;
use crate::columns::{live_columns, to_timestamp};
use crate::error::Error;
use crate::loader::{FoundRows, SortedWants, Trip, WantLoader};
use crate::rows::{LockingStatement, due_parameters, read_found, until, with_first_tasks};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::decision::DUE_MAX;
use tidegate_core::limit::{FIRST_EVENTS, Hold, Limit, LimitKey, LimitRow, LimitUsage};
use tidegate_core::store::TaskKey;
use tidegate_core::want::{Loaded, Want};
use tokio_postgres::Row as PgRow;

const LIMITS: &str = "SELECT name, at_once, rate, rate_per FROM task_limit WHERE name = ANY($1)";

/// The limit keys $1.
const LIMIT_KEYS: LockingStatement = LockingStatement {
    reads: "SELECT number, in_use, window_sum, overtaken_task, overtakes, alarm FROM limit_key \
            WHERE number = ANY($1)",
    locks: "SELECT number, in_use, window_sum, overtaken_task, overtakes, alarm FROM limit_key \
            WHERE number = ANY($1) ORDER BY number FOR UPDATE",
};

/// The first $2 rate events of each of the limit keys $1, by time, each with the time of the last one.
const FIRST_RATE_EVENTS: &str = "SELECT k.number, e.at, e.units, l.newest \
     FROM unnest($1::int8[]) AS k (number) CROSS JOIN LATERAL \
     (SELECT max(at) AS newest FROM rate_event WHERE limit_key = k.number) AS l \
     CROSS JOIN LATERAL (SELECT at, units FROM rate_event \
     WHERE limit_key = k.number ORDER BY at LIMIT $2) AS e ORDER BY k.number, e.at";

/// The first $3 rate events of the limit key $1 behind the time $2.
const RATE_EVENTS: &str = "SELECT at, units FROM rate_event WHERE limit_key = $1 AND at > $2 \
     ORDER BY at LIMIT $3";

/// Up to $2 limit keys with an alarm not later than $1 or the time of the store.
const DUE_LIMITS: &str = concat!(
    "SELECT name, key FROM limit_key WHERE alarm <= ",
    until!(),
    " ORDER BY alarm, number LIMIT $2"
);

const HOLDS: &str = "SELECT h.task, l.name, l.key, h.units, h.since FROM hold h \
     JOIN limit_key l ON l.number = h.limit_key WHERE h.task = ANY($1)";

/// The keys of the limit $1 that tasks are blocked on. Not by EXISTS, for which a plan may go through all
/// blocked tasks.
const BLOCKED_KEYS: &str = "SELECT l.name, l.key FROM limit_key l WHERE l.name = $1 \
     AND (SELECT true FROM task t WHERE t.blocked_on = l.number LIMIT 1)";

/// The task groups with tasks that are blocked on the limit $1: from one to the next, not through all
/// tasks.
macro_rules! blocked_groups {
    () => {
        "WITH RECURSIVE g (number) AS (\
         SELECT (SELECT min(task_group) FROM task WHERE blocked_on = $1) UNION ALL \
         SELECT (SELECT min(task_group) FROM task WHERE blocked_on = $1 AND task_group > g.number) \
         FROM g WHERE g.number IS NOT NULL)"
    };
}
pub(crate) use blocked_groups;

macro_rules! blocked {
    ($lock:literal) => {
        concat!(
            blocked_groups!(),
            ", found AS MATERIALIZED (SELECT t.* FROM g CROSS JOIN LATERAL (SELECT ",
            live_columns!(),
            " FROM task t WHERE t.blocked_on = $1 AND t.task_group = g.number \
             ORDER BY t.claim_order, t.number LIMIT $2",
            $lock,
            ") t WHERE g.number IS NOT NULL)",
            with_first_tasks!($lock)
        )
    };
}

/// The first $2 tasks of each group that are blocked on the limit $1, and the first tasks of their runs.
const BLOCKED: LockingStatement =
    LockingStatement { reads: blocked!(""), locks: blocked!(" FOR UPDATE SKIP LOCKED") };

/// How many tasks [`BLOCKED`] finds if none of them is locked elsewhere.
const COUNT_BLOCKED: &str = concat!(
    blocked_groups!(),
    " SELECT count(*) FROM g CROSS JOIN LATERAL (SELECT 1 FROM task t WHERE t.blocked_on = $1 \
     AND t.task_group = g.number ORDER BY t.claim_order, t.number LIMIT $2) t \
     WHERE g.number IS NOT NULL"
);

/// Reads name, units at once, units of the rate and its nanoseconds.
pub(crate) fn read_limit(row: &PgRow) -> Result<Limit, Error> {
    let units = |at| {
        let units: Option<i64> = row.try_get(at)?;
        Ok::<_, Error>(units.map(|units| u32::try_from(units).unwrap_or(u32::MAX)))
    };
    let mut limit = Limit::new(row.try_get::<_, String>(0)?);
    if let Some(units) = units(1)? {
        limit = limit.at_once(units);
    }
    if let (Some(units), Some(per)) = (units(2)?, row.try_get::<_, Option<i64>>(3)?) {
        limit = limit.rate(units, Duration::from_nanos(per.unsigned_abs()));
    }
    Ok(limit)
}

/// Reads name and key, from a column on.
pub(crate) fn read_limit_key(row: &PgRow, at: usize) -> Result<LimitKey, Error> {
    Ok(LimitKey::new(row.try_get::<_, &str>(at)?, row.try_get::<_, &str>(at + 1)?))
}

/// Reads a number of units.
pub(crate) fn read_units(row: &PgRow, at: usize) -> Result<u32, Error> {
    Ok(u32::try_from(row.try_get::<_, i64>(at)?).unwrap_or(u32::MAX))
}

impl WantLoader<'_> {
    /// Limits, holds and the tasks that are blocked.
    pub(crate) async fn queue_limits<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        let keys = self.queue_limit_keys(trip, sorted).await?;
        self.queue_blocked(trip, sorted, &keys, found).await?;
        self.queue_definitions(trip, sorted).await?;
        self.queue_holds(trip, sorted).await
    }

    /// Locks the rows of limit keys, by number, and reads what they protect. The numbers of all keys that
    /// are asked about.
    async fn queue_limit_keys<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<BTreeMap<LimitKey, i64>, Error> {
        let asked: BTreeSet<&LimitKey> = sorted
            .pick_wants(|want| match want {
                Want::LimitUsage(limit) | Want::BlockedOn { limit, .. } => Some(limit),
                Want::RateEvents { limit, .. } => Some(limit),
                _ => None,
            })
            .into_iter()
            .collect();
        if asked.is_empty() {
            return Ok(BTreeMap::new());
        }
        let numbers = if self.takes_locks() {
            self.catalog.number_limits(asked.iter().copied()).await?
        } else {
            self.catalog.find_limit_numbers(asked.iter().copied()).await?
        };
        let mut rows_of: Vec<i64> = numbers.values().copied().collect();
        rows_of.sort_unstable();
        let sql = LIMIT_KEYS.as_sql(self.takes_locks());
        let (catalog, takes_locks) = (self.catalog, self.takes_locks());
        let numbered = rows_of.clone();
        let usages = move |rows: Vec<PgRow>, found: &mut FoundRows| {
            for row in &rows {
                found.limits.insert(row.try_get(0)?, read_limit_row(row, 1)?);
            }
            let is_gone = |number: &i64| !found.limits.contains_key(number);
            let gone: Vec<i64> = numbered.into_iter().filter(is_gone).collect();
            // Nothing may be written under a number that was swept meanwhile.
            found.is_contended |= takes_locks && !gone.is_empty();
            catalog.forget_limits(gone);
            Ok(())
        };
        self.queue_statement(trip, sql, vec![Box::new(rows_of.clone())], usages).await?;
        let asked: Vec<(LimitKey, Option<i64>)> =
            asked.into_iter().map(|limit| (limit.clone(), numbers.get(limit).copied())).collect();
        let events =
            move |rows: Vec<PgRow>, found: &mut FoundRows| answer_limits(asked, &rows, found);
        let given: Vec<Parameter> = vec![Box::new(rows_of), Box::new(i64::from(FIRST_EVENTS))];
        self.queue_statement(trip, FIRST_RATE_EVENTS, given, events).await?;
        self.queue_rate_events(trip, sorted, &numbers).await?;
        Ok(numbers)
    }

    /// Rate events beyond the first ones.
    async fn queue_rate_events<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
        numbers: &BTreeMap<LimitKey, i64>,
    ) -> Result<(), Error> {
        for &want in &sorted.others {
            let Want::RateEvents { limit, after, max } = want else { continue };
            // Nothing has the number 0.
            let number = numbers.get(limit).copied().unwrap_or(0);
            let given: Vec<Parameter> =
                vec![Box::new(number), Box::new(after.as_micros()), Box::new(i64::from(*max))];
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                let events = rows.iter().map(|row| read_rate_event(row, 0));
                let events = Loaded::RateEvents(events.collect::<Result<_, _>>()?);
                found.add_answer(want.clone(), events);
                Ok(())
            };
            self.queue_statement(trip, RATE_EVENTS, given, read).await?;
        }
        Ok(())
    }

    async fn queue_blocked<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
        numbers: &BTreeMap<LimitKey, i64>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        for &want in &sorted.others {
            match want {
                Want::BlockedOn { limit, max } => {
                    let max = i64::from(*max);
                    let Some(&number) = numbers.get(limit) else {
                        found.add_answer(want.clone(), Loaded::Ordered(Vec::new()));
                        continue;
                    };
                    let parameters = || -> Vec<Parameter> { vec![Box::new(number), Box::new(max)] };
                    let read = move |rows, found: &mut FoundRows| read_found(want, rows, found);
                    let sql = BLOCKED.as_sql(self.takes_locks());
                    self.queue_statement(trip, sql, parameters(), read).await?;
                    if self.takes_locks() {
                        let check = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                            let count: i64 = rows[0].try_get(0)?;
                            let list = found.lists.iter().find(|(listed, _)| listed == want);
                            let locked = list.map_or(0, |(_, list)| list.len() as i64);
                            // Nothing would look at a task again that was left out here.
                            found.is_contended |= locked < count;
                            Ok(())
                        };
                        self.queue_statement(trip, COUNT_BLOCKED, parameters(), check).await?;
                    }
                }
                Want::BlockedKeys(name) => {
                    let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                        let key = |row: &PgRow| read_limit_key(row, 0);
                        let mut keys = rows.iter().map(key).collect::<Result<Vec<_>, _>>()?;
                        keys.sort_unstable();
                        found.add_answer(want.clone(), Loaded::LimitKeys(keys));
                        Ok(())
                    };
                    let name = name.to_string();
                    self.queue_statement(trip, BLOCKED_KEYS, vec![Box::new(name)], read).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Definitions of limits, and limits with an alarm that is due.
    async fn queue_definitions<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let names: Vec<&Arc<str>> = sorted.pick_wants(|want| match want {
            Want::Limit(name) => Some(name),
            _ => None,
        });
        if !names.is_empty() {
            let asked: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                let limit = |row| read_limit(row).map(|limit| (limit.name().to_owned(), limit));
                let limits = rows.iter().map(limit).collect::<Result<HashMap<_, _>, _>>()?;
                for name in names {
                    let limit = limits.get(&**name).cloned();
                    found.add_answer(Want::Limit(name.clone()), Loaded::Limit(limit));
                }
                Ok(())
            };
            self.queue_statement(trip, LIMITS, vec![Box::new(asked)], read).await?;
        }
        for &want in &sorted.others {
            let (until, max) = match want {
                Want::DueLimits { until, max } => (Some(*until), *max),
                Want::Now => (None, DUE_MAX),
                _ => continue,
            };
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                let key = |row: &PgRow| read_limit_key(row, 0);
                let keys = rows.iter().map(key).collect::<Result<Vec<_>, _>>()?;
                let until = until.unwrap_or_else(|| found.store_time());
                found.add_answer(Want::DueLimits { until, max }, Loaded::LimitKeys(keys));
                Ok(())
            };
            self.queue_statement(trip, DUE_LIMITS, due_parameters(until, max), read).await?;
        }
        Ok(())
    }

    async fn queue_holds<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let tasks = sorted.pick_wants(|want| match want {
            Want::Holds(task) => Some(task.0),
            _ => None,
        });
        if tasks.is_empty() {
            return Ok(());
        }
        let asked = tasks.clone();
        let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
            let mut holds: HashMap<i64, Vec<Hold>> = HashMap::new();
            for row in &rows {
                let hold = read_hold(row)?;
                holds.entry(row.try_get(0)?).or_default().push(hold);
            }
            for task in asked {
                let mut holds = holds.remove(&task).unwrap_or_default();
                holds.sort_unstable_by(|a, b| a.limit.cmp(&b.limit));
                found.add_answer(Want::Holds(TaskKey(task)), Loaded::Holds(holds));
            }
            Ok(())
        };
        self.queue_statement(trip, HOLDS, vec![Box::new(tasks)], read).await
    }
}

/// Reads the name and the key of a limit, units and time, behind the task.
pub(crate) fn read_hold(row: &PgRow) -> Result<Hold, Error> {
    let (limit, units) = (read_limit_key(row, 1)?, read_units(row, 3)?);
    Ok(Hold { limit, units, since: to_timestamp(row.try_get(4)?) })
}

/// Answers everything that can be asked about limit keys, with their rate events.
fn answer_limits(
    asked: Vec<(LimitKey, Option<i64>)>,
    rows: &[PgRow],
    found: &mut FoundRows,
) -> Result<(), Error> {
    let mut usages: HashMap<i64, LimitUsage> = HashMap::new();
    for row in rows {
        let usage = usages.entry(row.try_get(0)?).or_default();
        usage.oldest.push(read_rate_event(row, 1)?);
        usage.newest = Some(to_timestamp(row.try_get(3)?));
    }
    for (limit, number) in asked {
        let mut usage = number.and_then(|number| usages.remove(&number)).unwrap_or_default();
        let row = number.and_then(|number| found.limits.get(&number).copied());
        usage.row = row.unwrap_or_default();
        found.add_answer(Want::LimitUsage(limit), Loaded::LimitUsage(usage));
    }
    Ok(())
}

/// Reads time and units, from a column on.
fn read_rate_event(row: &PgRow, at: usize) -> Result<(Timestamp, u64), Error> {
    Ok((to_timestamp(row.try_get(at)?), read_sum(row, at + 1)?))
}

/// Reads a sum of units.
pub(crate) fn read_sum(row: &PgRow, at: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0))
}

/// Reads units in use and begun, the task that is overtaken, how often, and the alarm, from a column on.
pub(crate) fn read_limit_row(row: &PgRow, at: usize) -> Result<LimitRow, Error> {
    Ok(LimitRow {
        in_use: read_sum(row, at)?,
        window_sum: read_sum(row, at + 1)?,
        overtaken_task: row.try_get::<_, Option<i64>>(at + 2)?.map(TaskKey),
        overtakes: read_units(row, at + 3)?,
        alarm: row.try_get::<_, Option<i64>>(at + 4)?.map(to_timestamp),
    })
}

/// All statements, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("LIMITS", LIMITS),
    ("LIMIT_KEYS", LIMIT_KEYS.locks),
    ("FIRST_RATE_EVENTS", FIRST_RATE_EVENTS),
    ("RATE_EVENTS", RATE_EVENTS),
    ("DUE_LIMITS", DUE_LIMITS),
    ("HOLDS", HOLDS),
    ("BLOCKED_KEYS", BLOCKED_KEYS),
    ("BLOCKED", BLOCKED.locks),
];
