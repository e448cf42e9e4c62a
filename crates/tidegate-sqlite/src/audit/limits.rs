//! What only the store can tell of limits.

use super::{FINDINGS_MAX, Keys, Step};
use crate::columns::{self, timestamp};
use crate::error::Error;
use crate::limits;
use crate::loader::RowLoader;
use crate::sql::{BEHIND, LIMITS, NEXT_LANE, SELECT_TASK};
use rusqlite::OptionalExtension;
use std::collections::{BTreeMap, HashMap};
use tidegate_core::audit::{self, First, Repair, Stray, Watched};
use tidegate_core::limit::{Hold, Limit, LimitKey, uses};
use tidegate_core::rows::{Payload, Row};
use tidegate_core::store::{Finding, TaskKey};

/// Limits that are looked at in one transaction.
const STEP: i64 = 100;

/// Tasks of a lane that are looked at for one that was let through a limit. If there are more, there is
/// no telling.
const LOOK_MAX: usize = 100;

/// Limits by number, behind one: number, name, key, alarm, units and number of those who hold it.
const KEYS: &str = "SELECT id, name, key, alarm, \
     (SELECT ifnull(sum(units), 0) FROM hold WHERE limit_key = limit_key.id), \
     (SELECT count(*) FROM hold WHERE limit_key = limit_key.id) \
     FROM limit_key WHERE id > ?1 ORDER BY id LIMIT ?2";

/// Tasks of a lane that can be claimed.
const OPEN: &str = "SELECT key FROM task WHERE gate IN (0, 3) AND behind IS NULL AND lane = ?1 \
     AND claim_order IS NOT NULL LIMIT ?2";

/// Rows that name a limit which does not exist.
const STRAYS: [(&str, &str); 2] = [
    (
        "hold",
        "SELECT DISTINCT limit_key FROM hold \
         WHERE NOT EXISTS (SELECT 1 FROM limit_key WHERE id = hold.limit_key) LIMIT ?1",
    ),
    (
        "begun",
        "SELECT DISTINCT limit_key FROM begun \
         WHERE NOT EXISTS (SELECT 1 FROM limit_key WHERE id = begun.limit_key) LIMIT ?1",
    ),
];

impl Step<'_, '_> {
    /// What these tasks hold.
    pub(super) fn holds(&mut self, keys: Keys) -> Result<HashMap<TaskKey, Vec<Hold>>, Error> {
        let select = "SELECT hold.task, hold.units, hold.since, limit_key.name, limit_key.key \
                      FROM hold CROSS JOIN limit_key ON limit_key.id = hold.limit_key \
                      WHERE hold.task >= ?1 AND hold.task < ?2 ORDER BY hold.task";
        let mut select = self.snapshot.connection.prepare(select)?;
        let mut found = select.query(keys)?;
        let mut holds: HashMap<TaskKey, Vec<Hold>> = HashMap::new();
        while let Some(row) = found.next()? {
            let limit = LimitKey::new(row.get::<_, String>(3)?, row.get::<_, String>(4)?);
            let hold = Hold { limit, units: row.get(1)?, since: timestamp(row.get(2)?) };
            holds.entry(TaskKey(row.get(0)?)).or_default().push(hold);
        }
        Ok(holds)
    }

    /// Whether what a task holds and stands behind is what it uses.
    pub(super) fn uses(&mut self, row: &Row, holds: &[Hold]) -> Result<(), Error> {
        if holds.is_empty() && row.behind.is_none() {
            return Ok(());
        }
        let used = used_by(self.snapshot, row)?;
        for Hold { limit, units, .. } in holds {
            if !used.iter().any(|used| (&used.0, used.1) == (limit, *units)) {
                let what = format!("task {} holds {units} of {limit}, unplanned", row.key.0);
                let repair = Repair::Task(row.key);
                self.findings.push(Finding::new("uses", what).repaired_by(repair));
            }
        }
        if let Some((limit, _)) = &row.behind
            && !used.iter().any(|(used, _)| used == limit)
        {
            let what = format!("task {} stands behind {limit}, unplanned", row.key.0);
            self.findings.push(Finding::new("uses", what).repaired_by(Repair::Task(row.key)));
        }
        Ok(())
    }
}

/// What a task takes of which limits.
fn used_by(snapshot: &RowLoader<'_>, row: &Row) -> Result<Vec<(LimitKey, u32)>, Error> {
    let select = "SELECT body FROM payload WHERE task = ?1 AND kind = ?2";
    let kept = (row.key.0, Payload::Keys.code());
    let kept = snapshot.connection.query_row(select, kept, |row| row.get::<_, Vec<u8>>(0));
    Ok(uses(row.planned(), kept.optional()?.as_deref()))
}

/// Looks at all limits, some at a time.
pub(super) fn all(reading: &mut RowLoader<'_>, findings: &mut Vec<Finding>) -> Result<(), Error> {
    for (table, select) in STRAYS {
        let mut select = reading.connection.prepare(select)?;
        for id in select.query_map([FINDINGS_MAX as i64], |row| row.get::<_, i64>(0))? {
            let id = id?;
            let what = format!("a {table} of limit {id}, which does not exist");
            let repair = Repair::Stray(Stray::Limit(id));
            findings.push(Finding::new("stray", what).repaired_by(repair));
        }
    }
    let mut last = Some(i64::MIN);
    while let Some(first) = last
        && findings.len() < FINDINGS_MAX
    {
        last = reading.read_snapshot(|snapshot| step(snapshot, first, findings))?;
    }
    Ok(())
}

/// A limit for one key, as it is stored.
struct Found {
    id: i64,
    key: LimitKey,
    has_alarm: bool,
    in_use: u32,
    holders: u32,
}

/// Looks at the limits behind this number; the last number, if there may be more.
fn step(
    snapshot: &mut RowLoader<'_>,
    first: i64,
    findings: &mut Vec<Finding>,
) -> Result<Option<i64>, Error> {
    let mut select = snapshot.connection.prepare(LIMITS)?;
    let declared = select.query_map([], |row| Ok((limits::read(row)?, row.get(4)?)))?;
    let declared = declared.collect::<rusqlite::Result<Vec<(Limit, Option<u32>)>>>()?;
    let declared: BTreeMap<_, _> =
        declared.iter().map(|(limit, most)| (limit.name(), (limit, *most))).collect();
    let mut select = snapshot.connection.prepare(KEYS)?;
    let found = select.query_map((first, STEP), |row| {
        Ok(Found {
            id: row.get(0)?,
            key: LimitKey::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?),
            has_alarm: row.get::<_, Option<i64>>(3)?.is_some(),
            in_use: u32::try_from(row.get::<_, i64>(4)?).unwrap_or(u32::MAX),
            holders: row.get(5)?,
        })
    })?;
    let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
    for found in &found {
        // Of what was not declared nobody can have anything, and nobody is let through.
        let Some((limit, most)) = declared.get(&*found.key.name) else { continue };
        if most.is_some_and(|most| found.in_use > most && found.holders > 1) {
            let Found { key, in_use, holders, .. } = found;
            let what = format!("{holders} tasks together hold {in_use} of {key}, {limit}");
            findings.push(Finding::new("most", what));
        }
        // A rate that is used up has an alarm, and what has one is looked at again.
        if !found.has_alarm {
            let waiting = waiting(snapshot, found)?;
            let first = waiting.iter();
            let first = first.map(|&(ref row, units, before)| First { row, units, before });
            let first: Vec<_> = first.collect();
            let (key, limit, in_use) = (&found.key, Some(*limit), found.in_use);
            let watched = Watched { key, limit, in_use, begun: &[], alarm: None, first: &first };
            findings.extend(audit::limit(&watched, timestamp(0)));
        }
    }
    Ok(found.last().filter(|_| found.len() as i64 == STEP).map(|found| found.id))
}

/// The first of each lane behind a limit, the units that it wants, and those that others of its lane
/// want which were let through. Lanes of which that cannot be told are left out.
fn waiting(snapshot: &mut RowLoader<'_>, limit: &Found) -> Result<Vec<(Row, u32, u32)>, Error> {
    let mut waiting = Vec::new();
    for (lane, (_, key)) in firsts(snapshot, limit.id)? {
        let Some(row) = find(snapshot, key)? else { continue };
        // That it does not use the limit is told elsewhere.
        let units = units_of(snapshot, &row, &limit.key)?;
        if let (1.., Some(before)) = (units, let_through(snapshot, lane, &limit.key)?) {
            waiting.push((row, units, before));
        }
    }
    Ok(waiting)
}

/// Order and number of the first task of each lane behind a limit.
fn firsts(snapshot: &RowLoader<'_>, limit: i64) -> Result<BTreeMap<i64, (i64, i64)>, Error> {
    let mut next_lane = snapshot.connection.prepare(NEXT_LANE)?;
    let mut first = snapshot.connection.prepare(BEHIND)?;
    let mut firsts: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for gate in limits::GATES {
        let mut last = i64::MIN;
        while let Some(lane) = next_lane.query_row((gate, limit, last), |row| row.get(0))? {
            let place = first.query_row((gate, limit, lane, 1), |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })?;
            firsts.entry(lane).and_modify(|first| *first = place.min(*first)).or_insert(place);
            last = lane;
        }
    }
    Ok(firsts)
}

/// Units of a limit that the tasks of a lane want which can be claimed; `None` if they are many.
fn let_through(
    snapshot: &mut RowLoader<'_>,
    lane: i64,
    limit: &LimitKey,
) -> Result<Option<u32>, Error> {
    let mut select = snapshot.connection.prepare(OPEN)?;
    let open = select.query_map((lane, LOOK_MAX as i64), |row| row.get(0))?;
    let open = open.collect::<rusqlite::Result<Vec<i64>>>()?;
    drop(select);
    if open.len() == LOOK_MAX {
        return Ok(None);
    }
    let mut units: u32 = 0;
    for key in open {
        if let Some(row) = find(snapshot, key)? {
            units = units.saturating_add(units_of(snapshot, &row, limit)?);
        }
    }
    Ok(Some(units))
}

/// Units of a limit that a task wants.
fn units_of(snapshot: &RowLoader<'_>, row: &Row, limit: &LimitKey) -> Result<u32, Error> {
    let used = used_by(snapshot, row)?;
    Ok(used.iter().find(|(used, _)| used == limit).map_or(0, |(_, units)| *units))
}

/// A task, if its columns make one: that they do not is told elsewhere.
pub(super) fn find(snapshot: &mut RowLoader<'_>, key: i64) -> Result<Option<Row>, Error> {
    let select = format!("{SELECT_TASK} WHERE key = ?1");
    let stored = snapshot.connection.query_row(&select, [key], columns::read).optional()?;
    match stored.map(|stored| snapshot.row(stored)).transpose() {
        Err(Error::Sqlite(error)) => Err(error.into()),
        row => Ok(row.ok().flatten()),
    }
}
