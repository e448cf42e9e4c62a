//! Limits, the units that tasks hold of them, and begins that count for a rate.
//!
//! The row of a limit's key counts the units in use and those of its rate events. It is written as it
//! was decided: the decision has loaded it, and so locked it, behind all task rows.

use super::{DeltaQueue, make_column};
use crate::batch::Parameter;
use crate::error::Error;
use std::collections::BTreeMap;
use tidegate_core::Timestamp;
use tidegate_core::delta::{Delta, PassedEvents, RateEvent};
use tidegate_core::limit::{Hold, Limit, LimitKey, LimitRow};
use tidegate_core::store::TaskKey;

/// NULL is without bound, and the largest there is.
const SET_LIMIT: &str = "INSERT INTO task_limit AS l (name, at_once, rate, rate_per, most) \
     VALUES ($1, $2, $3, $4, $2) ON CONFLICT (name) DO UPDATE SET at_once = excluded.at_once, \
     rate = excluded.rate, rate_per = excluded.rate_per, \
     most = CASE WHEN l.most IS NULL OR excluded.most IS NULL THEN NULL \
     ELSE greatest(l.most, excluded.most) END";

/// Units of NULL are given back.
const CHANGE_HOLDS: &str = "WITH given AS (SELECT * \
     FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) \
     AS given (task, limit_key, units, since)), \
     put AS (INSERT INTO hold (task, limit_key, units, since) \
     SELECT task, limit_key, units, since FROM given WHERE units IS NOT NULL \
     ON CONFLICT (task, limit_key) DO UPDATE SET units = excluded.units, since = excluded.since) \
     DELETE FROM hold AS h USING given WHERE given.units IS NULL \
     AND h.task = given.task AND h.limit_key = given.limit_key";

const FORGET_RATE_EVENTS: &str = "DELETE FROM rate_event AS e \
     USING unnest($1::int8[], $2::int8[], $3::int8[]) AS given (limit_key, first, last) \
     WHERE e.limit_key = given.limit_key AND e.at >= given.first AND e.at <= given.last";

const ADD_RATE_EVENTS: &str = "INSERT INTO rate_event AS e (limit_key, at, units) \
     SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[]) \
     ON CONFLICT (limit_key, at) DO UPDATE SET units = e.units + excluded.units";

/// The rows were locked when they were loaded.
const SET_LIMIT_ROWS: &str = "UPDATE limit_key AS k SET in_use = given.in_use, \
     window_sum = given.window_sum, overtaken_task = given.overtaken_task, \
     overtakes = given.overtakes, alarm = given.alarm \
     FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[]) \
     AS given (number, in_use, window_sum, overtaken_task, overtakes, alarm) \
     WHERE k.number = given.number";

/// A hold that changes: the task, the limit, and the hold as it is from now on.
type HoldChange<'d> = (TaskKey, i64, Option<&'d Hold>);

impl DeltaQueue<'_> {
    pub(super) async fn write_limits(&mut self, delta: &Delta) -> Result<(), Error> {
        for limit in &delta.limits {
            self.write_limit(limit).await?;
        }
        self.write_holds(&delta.holds).await?;
        self.drop_passed_events(&delta.passed_events).await?;
        self.write_rate_events(&delta.rate_events).await?;
        self.write_limit_rows(&delta.limit_rows).await
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

    async fn drop_passed_events(&mut self, passed: &[PassedEvents]) -> Result<(), Error> {
        let mut ranges: Vec<(i64, i64, i64)> = Vec::new();
        for PassedEvents { limit, from, to } in passed {
            let number = self.state.catalog.number_limit(limit).await?;
            ranges.push((number, from.as_micros(), to.as_micros()));
        }
        if ranges.is_empty() {
            return Ok(());
        }
        let parameters = vec![
            make_column(&ranges, |(limit, ..)| *limit),
            make_column(&ranges, |(_, from, _)| *from),
            make_column(&ranges, |(.., to)| *to),
        ];
        self.add_statement(FORGET_RATE_EVENTS, parameters).await?;
        Ok(())
    }

    async fn write_rate_events(&mut self, events: &[RateEvent]) -> Result<(), Error> {
        // A statement cannot change a row twice: begins of the same instant are one row.
        let mut begun: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for RateEvent { limit, at, units } in events {
            let number = self.state.catalog.number_limit(limit).await?;
            *begun.entry((number, at.as_micros())).or_default() += i64::from(*units);
        }
        if begun.is_empty() {
            return Ok(());
        }
        let begun: Vec<((i64, i64), i64)> = begun.into_iter().collect();
        let parameters = vec![
            make_column(&begun, |((limit, _), _)| *limit),
            make_column(&begun, |((_, at), _)| *at),
            make_column(&begun, |(_, units)| *units),
        ];
        self.add_statement(ADD_RATE_EVENTS, parameters).await?;
        Ok(())
    }

    async fn write_limit_rows(&mut self, rows: &BTreeMap<LimitKey, LimitRow>) -> Result<(), Error> {
        let mut numbered: Vec<(i64, LimitRow)> = Vec::new();
        for (limit, row) in rows {
            numbered.push((self.state.catalog.number_limit(limit).await?, *row));
        }
        if numbered.is_empty() {
            return Ok(());
        }
        let sum = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        let parameters = vec![
            make_column(&numbered, |(limit, _)| *limit),
            make_column(&numbered, |(_, row)| sum(row.in_use)),
            make_column(&numbered, |(_, row)| sum(row.window_sum)),
            make_column(&numbered, |(_, row)| row.overtaken_task.map(|task| task.0)),
            make_column(&numbered, |(_, row)| i64::from(row.overtakes)),
            make_column(&numbered, |(_, row)| row.alarm.map(Timestamp::as_micros)),
        ];
        self.add_statement(SET_LIMIT_ROWS, parameters).await?;
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
    ("SET_LIMIT_ROWS", SET_LIMIT_ROWS),
];
