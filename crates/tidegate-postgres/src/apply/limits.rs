//! Limits, the units that tasks hold of them, and begins that count for a rate.
//!
//! The row of a limit's key counts the units in use. It changes in the statement that changes the holds,
//! and behind all task rows: limits are last in the order of locks.

use super::{DeltaQueue, make_column};
use crate::batch::Parameter;
use crate::error::Error;
use std::collections::BTreeMap;
use tidegate_core::Timestamp;
use tidegate_core::delta::{Delta, RateEvent};
use tidegate_core::limit::{Hold, Limit, LimitKey};
use tidegate_core::store::TaskKey;

/// NULL is without bound, and the largest there is.
const SET_LIMIT: &str = "INSERT INTO task_limit AS l (name, at_once, rate, rate_per, most) \
     VALUES ($1, $2, $3, $4, $2) ON CONFLICT (name) DO UPDATE SET at_once = excluded.at_once, \
     rate = excluded.rate, rate_per = excluded.rate_per, \
     most = CASE WHEN l.most IS NULL OR excluded.most IS NULL THEN NULL \
     ELSE greatest(l.most, excluded.most) END";

/// Units of NULL are given back. The units that were held before are those at the beginning of the
/// statement; rows of limits change in the order of their numbers.
const CHANGE_HOLDS: &str = "WITH given AS (SELECT * \
     FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) \
     AS given (task, limit_key, units, since)), \
     held AS (SELECT h.limit_key, h.units FROM given JOIN hold AS h \
     ON h.task = given.task AND h.limit_key = given.limit_key), \
     put AS (INSERT INTO hold (task, limit_key, units, since) \
     SELECT task, limit_key, units, since FROM given WHERE units IS NOT NULL \
     ON CONFLICT (task, limit_key) DO UPDATE SET units = excluded.units, since = excluded.since), \
     gone AS (DELETE FROM hold AS h USING given WHERE given.units IS NULL \
     AND h.task = given.task AND h.limit_key = given.limit_key), \
     balance AS (SELECT limit_key, sum(units)::int8 AS units FROM \
     (SELECT limit_key, units FROM given WHERE units IS NOT NULL \
     UNION ALL SELECT limit_key, -units FROM held) AS changed \
     GROUP BY limit_key HAVING sum(units) <> 0 ORDER BY limit_key) \
     UPDATE limit_key AS k SET in_use = k.in_use + balance.units FROM balance \
     WHERE k.number = balance.limit_key";

const FORGET_RATE_EVENTS: &str = "DELETE FROM rate_event AS e \
     USING unnest($1::int8[], $2::int8[]) AS given (limit_key, before) \
     WHERE e.limit_key = given.limit_key AND e.at < given.before";

const ADD_RATE_EVENTS: &str = "INSERT INTO rate_event AS e (limit_key, at, units) \
     SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[]) \
     ON CONFLICT (limit_key, at) DO UPDATE SET units = e.units + excluded.units";

const SET_LIMIT_ALARMS: &str = "UPDATE limit_key AS k SET alarm = given.alarm \
     FROM unnest($1::int8[], $2::int8[]) AS given (number, alarm) WHERE k.number = given.number";

/// A hold that changes: the task, the limit, and the hold as it is from now on.
type HoldChange<'d> = (TaskKey, i64, Option<&'d Hold>);

impl DeltaQueue<'_> {
    pub(super) async fn write_limits(&mut self, delta: &Delta) -> Result<(), Error> {
        for limit in &delta.limits {
            self.write_limit(limit).await?;
        }
        self.write_holds(&delta.holds).await?;
        self.write_rate_events(&delta.rate_events).await?;
        self.write_limit_alarms(&delta.limit_alarms).await
    }

    async fn write_limit(&mut self, limit: &Limit) -> Result<(), Error> {
        let rate = limit.most_in_time();
        let per = rate.map(|rate| i64::try_from(rate.per.as_nanos()).unwrap_or(i64::MAX));
        let parameters: Vec<Parameter> = vec![
            Box::new(limit.name().to_owned()),
            Box::new(limit.most_at_once().map(i64::from)),
            Box::new(rate.map(|rate| i64::from(rate.units))),
            Box::new(per),
        ];
        self.add_statement(SET_LIMIT, parameters).await?;
        Ok(())
    }

    async fn write_holds(
        &mut self,
        holds: &BTreeMap<TaskKey, BTreeMap<LimitKey, Option<Hold>>>,
    ) -> Result<(), Error> {
        let mut changes: Vec<HoldChange<'_>> = Vec::new();
        for (task, holds) in holds {
            for (limit, hold) in holds {
                let number = self.state.catalog.number_limit(limit).await?;
                changes.push((*task, number, hold.as_ref()));
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        let parameters = vec![
            make_column(&changes, |(task, ..)| task.0),
            make_column(&changes, |(_, limit, _)| *limit),
            make_column(&changes, |(.., hold)| hold.map(|hold| i64::from(hold.units))),
            make_column(&changes, |(.., hold)| hold.map(|hold| hold.since.as_micros())),
        ];
        self.add_statement(CHANGE_HOLDS, parameters).await?;
        Ok(())
    }

    async fn write_rate_events(&mut self, events: &[RateEvent]) -> Result<(), Error> {
        // A statement cannot change a row twice: begins of the same instant are one row.
        let mut forgotten: BTreeMap<i64, i64> = BTreeMap::new();
        let mut begun: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for RateEvent { limit, at, units, forget_before } in events {
            let number = self.state.catalog.number_limit(limit).await?;
            let before = forgotten.entry(number).or_insert(i64::MIN);
            *before = (*before).max(forget_before.as_micros());
            *begun.entry((number, at.as_micros())).or_default() += i64::from(*units);
        }
        if events.is_empty() {
            return Ok(());
        }
        let forgotten: Vec<(i64, i64)> = forgotten.into_iter().collect();
        let parameters = vec![
            make_column(&forgotten, |(limit, _)| *limit),
            make_column(&forgotten, |(_, before)| *before),
        ];
        self.add_statement(FORGET_RATE_EVENTS, parameters).await?;
        let begun: Vec<((i64, i64), i64)> = begun.into_iter().collect();
        let parameters = vec![
            make_column(&begun, |((limit, _), _)| *limit),
            make_column(&begun, |((_, at), _)| *at),
            make_column(&begun, |(_, units)| *units),
        ];
        self.add_statement(ADD_RATE_EVENTS, parameters).await?;
        Ok(())
    }

    async fn write_limit_alarms(
        &mut self,
        alarms: &BTreeMap<LimitKey, Option<Timestamp>>,
    ) -> Result<(), Error> {
        let mut numbered: Vec<(i64, Option<i64>)> = Vec::new();
        for (limit, alarm) in alarms {
            let number = self.state.catalog.number_limit(limit).await?;
            numbered.push((number, alarm.map(Timestamp::as_micros)));
        }
        if numbered.is_empty() {
            return Ok(());
        }
        numbered.sort_unstable();
        let parameters = vec![
            make_column(&numbered, |(limit, _)| *limit),
            make_column(&numbered, |(_, alarm)| *alarm),
        ];
        self.add_statement(SET_LIMIT_ALARMS, parameters).await?;
        Ok(())
    }
}

/// All statements, by name.
#[cfg(test)]
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("SET_LIMIT", SET_LIMIT),
    ("CHANGE_HOLDS", CHANGE_HOLDS),
    ("FORGET_RATE_EVENTS", FORGET_RATE_EVENTS),
    ("ADD_RATE_EVENTS", ADD_RATE_EVENTS),
    ("SET_LIMIT_ALARMS", SET_LIMIT_ALARMS),
];
