//! The parents of items that can be claimed.
//!
//! A body that works on an item is given the inputs of the task whose item it is, so a claim reads that
//! task. Its number is mostly smaller than those that a claim has locked before. So it is locked like
//! the first task of a run: shared, and an item whose parent another transaction has locked is left out.

use crate::columns::{TaskColumns, ended_columns, live_columns};
use crate::error::Error;
use crate::loader::{FoundRows, Trip, WantLoader};
use crate::rows::{LockingStatement, read_tasks};
use std::collections::{BTreeSet, HashMap, HashSet};
use tidegate_core::packed::unpack_run;
use tidegate_core::want::Want;
use tokio_postgres::Row as PgRow;

macro_rules! above {
    () => {
        "(SELECT number, idx FROM task WHERE number = ANY($1) UNION ALL \
         SELECT number, idx FROM ended_task WHERE number = ANY($1))"
    };
}

macro_rules! parents {
    ($lock:literal) => {
        concat!(
            "WITH above AS MATERIALIZED ",
            above!(),
            ", numbers AS MATERIALIZED (SELECT number FROM above UNION SELECT number - idx FROM above), \
             live AS MATERIALIZED (SELECT ",
            live_columns!(),
            " FROM task t WHERE t.number = ANY(ARRAY(SELECT number FROM numbers)) ORDER BY t.number",
            $lock,
            ") SELECT live.* FROM live UNION ALL SELECT ",
            ended_columns!(),
            " FROM ended_task t WHERE t.number = ANY(ARRAY(SELECT number FROM numbers))"
        )
    };
}

/// The tasks $1 and the first tasks of their runs.
pub(crate) const PARENTS: LockingStatement =
    LockingStatement { reads: parents!(""), locks: parents!(" FOR SHARE SKIP LOCKED") };

/// Those of the tasks $1 that exist, each with the first task of its run and whether that exists. Not by
/// EXISTS, for which a plan may go through all tasks.
pub(crate) const EXISTING: &str = concat!(
    "SELECT a.number, a.number - a.idx, \
     coalesce((SELECT true FROM task f WHERE f.number = a.number - a.idx), \
     (SELECT true FROM ended_task f WHERE f.number = a.number - a.idx), false) FROM ",
    above!(),
    " a"
);

impl WantLoader<'_> {
    /// Loads the parents of items that can be claimed, and leaves out items whose parents are locked.
    pub(crate) async fn load_item_parents(&self, found: &mut FoundRows) -> Result<(), Error> {
        let parents = self.find_item_parents(found).await?;
        let missing: BTreeSet<i64> = parents.values().copied().collect();
        let missing: Vec<i64> =
            missing.into_iter().filter(|parent| !found.tasks.contains_key(parent)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut trip = Trip::default();
        let sql = PARENTS.as_sql(self.takes_locks());
        self.queue_statement(&mut trip, sql, vec![Box::new(missing.clone())], read_tasks).await?;
        let asked = missing.clone();
        let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
            let locked = read_existing(&asked, &rows, found)?;
            found
                .leave_out(|first| parents.get(&first).is_some_and(|above| locked.contains(above)));
            Ok(())
        };
        self.queue_statement(&mut trip, EXISTING, vec![Box::new(missing)], read).await?;
        self.send_trip(trip, found).await
    }

    /// The parents of the items among tasks that can be claimed, by the first tasks of their runs.
    async fn find_item_parents(&self, found: &FoundRows) -> Result<HashMap<i64, i64>, Error> {
        let ready = found.lists.iter().filter(|(want, _)| matches!(want, Want::Ready { .. }));
        let firsts: BTreeSet<i64> = ready
            .flat_map(|(_, tasks)| tasks)
            .filter_map(|task| found.tasks.get(task).map(TaskColumns::first_task))
            .collect();
        let firsts: Vec<&TaskColumns> =
            firsts.iter().filter_map(|first| found.tasks.get(first)).collect();
        let mut children = Vec::new();
        for first in firsts {
            let Some(run) = first.packed_run() else { continue };
            let run = unpack_run(run).map_err(|source| Error::Task { key: first.key, source })?;
            children.extend(run.parent.map(|parent| (first.clone(), parent.0)));
        }
        if children.is_empty() {
            return Ok(HashMap::new());
        }
        let stored: Vec<TaskColumns> = children.iter().map(|(first, _)| first.clone()).collect();
        let numbers = self.catalog.resolve_numbers(&stored).await?;
        let mut parents = HashMap::new();
        for (first, parent) in children {
            if numbers.name_things(&first)?.plan.items_of().is_some() {
                parents.insert(first.key, parent);
            }
        }
        Ok(parents)
    }
}

/// Notes the tasks that do not exist; those that exist and could not be locked.
fn read_existing(
    asked: &[i64],
    rows: &[PgRow],
    found: &mut FoundRows,
) -> Result<HashSet<i64>, Error> {
    let (mut existing, mut locked) = (HashSet::new(), HashSet::new());
    for row in rows {
        let (task, first): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let has_first = found.tasks.contains_key(&first) || !row.try_get::<_, bool>(2)?;
        if !has_first || !found.tasks.contains_key(&task) {
            locked.insert(task);
        }
        existing.insert(task);
    }
    let known = |task: &&i64| existing.contains(task) || found.tasks.contains_key(task);
    let absent: Vec<i64> = asked.iter().filter(|task| !known(task)).copied().collect();
    found.absent.extend(absent);
    Ok(locked)
}

/// All statements, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] =
    &[("PARENTS", PARENTS.locks), ("EXISTING", EXISTING)];
