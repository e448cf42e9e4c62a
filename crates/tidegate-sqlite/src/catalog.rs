//! The plans, task groups and limits that a connection has met, so that it need not look for them again.
//!
//! Their rows never change, and no other row gets their numbers, so that what a number
//! means stays true until it is forgotten: because a transaction was rolled back that might have added
//! it, or because there is too much of it. That a name still has the number that it had is true as long
//! as no other connection writes; of plans and task groups it is [trusted](tidegate_core::sweep) for
//! longer.

use crate::error::Error;
use crate::fetch::Fetch;
use crate::sql::CatalogStatements;
use rusqlite::Connection;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use tidegate_core::Timestamp;
use tidegate_core::graph::TaskIndex;
use tidegate_core::limit::LimitKey;
use tidegate_core::plan::Plan;
use tidegate_core::store::Bytes;
use tidegate_core::want::TaskGroup;

/// Plans that are remembered. A program has a few dozen; one that makes a new plan for every run must
/// not fill the memory with them.
pub(crate) const PLANS_MAX: usize = 1_024;

/// Task groups that are remembered, and limits, one for each key.
pub(crate) const NAMES_MAX: usize = 10_000;

/// A map that is emptied when it is full.
pub(crate) struct BoundedMap<K, V, const MAX: usize>(pub(crate) HashMap<K, V>);

impl<K, V, const MAX: usize> Default for BoundedMap<K, V, MAX> {
    fn default() -> Self {
        BoundedMap(HashMap::new())
    }
}

impl<K: Hash + Eq, V: Clone, const MAX: usize> BoundedMap<K, V, MAX> {
    pub(crate) fn put_value(&mut self, key: K, value: V) {
        if self.0.len() >= MAX {
            self.0.clear();
        }
        self.0.insert(key, value);
    }

    /// The value, from memory or from the database.
    pub(crate) fn find_or_load(
        &mut self,
        key: K,
        load: impl FnOnce(&K) -> Result<V, Error>,
    ) -> Result<V, Error> {
        if let Some(known) = self.0.get(&key) {
            return Ok(known.clone());
        }
        let loaded = load(&key)?;
        self.put_value(key, loaded.clone());
        Ok(loaded)
    }
}

/// Plans, task groups and limits by their numbers, as rows need them.
pub(crate) struct Catalog<'c> {
    sql: CatalogStatements<'c>,
    pub(crate) known: KnownNames,
}

#[derive(Default)]
pub(crate) struct KnownNames {
    plans: BoundedMap<i64, Arc<Plan>, PLANS_MAX>,
    groups: BoundedMap<i64, Arc<TaskGroup>, NAMES_MAX>,
    limits: BoundedMap<i64, LimitKey, NAMES_MAX>,
    /// The same the other way round, for rows that are written.
    pub(crate) limit_ids: BoundedMap<LimitKey, i64, NAMES_MAX>,
}

impl<'c> Catalog<'c> {
    pub(crate) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let sql = CatalogStatements::prepare(connection)?;
        Ok(Catalog { sql, known: KnownNames::default() })
    }

    /// The plan of this number.
    pub(crate) fn find_plan(&mut self, id: i64) -> Result<Arc<Plan>, Error> {
        self.known.plans.find_or_load(id, |_| {
            let body: Option<Bytes> = self.sql.plan.fetch_first([id])?;
            let body = body.ok_or(Error::Missing { table: "plan", id })?;
            let plan = Plan::decode(&body).map_err(|source| Error::Plan { id, source })?;
            Ok(Arc::new(plan))
        })
    }

    /// The task group of this number.
    pub(crate) fn find_group(&mut self, id: i64) -> Result<Arc<TaskGroup>, Error> {
        self.known.groups.find_or_load(id, |_| {
            let group: Option<TaskGroup> = self.sql.task_group.fetch_first([id])?;
            group.map(Arc::new).ok_or(Error::Missing { table: "task_group", id })
        })
    }

    /// The limit of this number.
    pub(crate) fn find_limit(&mut self, id: i64) -> Result<LimitKey, Error> {
        self.known.limits.find_or_load(id, |_| {
            let names = self.sql.limit_key.fetch_first([id])?;
            let (name, key): (Arc<str>, Arc<str>) =
                names.ok_or(Error::Missing { table: "limit_key", id })?;
            Ok(LimitKey { name, key })
        })
    }

    /// The number of a limit for its key, if it has one.
    pub(crate) fn find_limit_id(&mut self, limit: &LimitKey) -> Result<Option<i64>, Error> {
        if let Some(id) = self.known.limit_ids.0.get(limit) {
            return Ok(Some(*id));
        }
        let id = self.sql.find_limit.fetch_first((&*limit.name, &*limit.key))?;
        if let Some(id) = id {
            self.known.limit_ids.put_value(limit.clone(), id);
        }
        Ok(id)
    }

    /// Remembers a plan; one that is remembered already stays, so that all rows have the same.
    pub(crate) fn add_plan(&mut self, id: i64, plan: &Arc<Plan>) {
        if !self.known.plans.0.contains_key(&id) {
            self.known.plans.put_value(id, plan.clone());
        }
    }
}

/// The numbers under which a task is filed.
#[derive(Clone, Copy)]
pub(crate) struct Filing {
    pub(crate) plan: i64,
    pub(crate) task_group: i64,
    pub(crate) queue: i64,
}

/// The numbers under which the tasks of a plan are filed in a queue.
pub(crate) struct FiledPlan {
    /// Keeps the address from being used for another plan.
    pub(crate) _plan: Arc<Plan>,
    pub(crate) queue: Arc<str>,
    pub(crate) plan_id: i64,
    pub(crate) queue_id: i64,
    /// The group of each task.
    pub(crate) groups: Vec<i64>,
    /// When all of them were there, and in use.
    pub(crate) verified_at: Timestamp,
}

impl FiledPlan {
    pub(crate) fn find_filing(&self, task: TaskIndex) -> Filing {
        let task_group = self.groups[task.as_usize()];
        Filing { plan: self.plan_id, task_group, queue: self.queue_id }
    }
}
