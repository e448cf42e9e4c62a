//! The plans, workflows and limits that a thread has met, so that it need not look for them again.
//!
//! What is stored of them never changes, so that what is remembered stays true until it is forgotten:
//! because a transaction was rolled back that might have added it, or because there is too much of it.

use crate::columns::{Named, Stored};
use crate::error::Error;
use rusqlite::{OptionalExtension, Statement};
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_core::limit::LimitKey;
use tidegate_core::plan::Plan;

/// Plans that are remembered. A program has a few dozen; one that makes a new plan for every run must
/// not fill the memory with them.
const PLANS_MAX: usize = 1_024;

/// Queues that are remembered for a plan.
const QUEUES_MAX: usize = 64;

/// Workflows that are remembered.
const WORKFLOWS_MAX: usize = 10_000;

/// Limits that are remembered, one for each key.
const LIMITS_MAX: usize = 10_000;

/// Plans, workflows and limits by their numbers: what is needed to read rows.
#[derive(Default)]
pub(crate) struct Catalog {
    plans: HashMap<i64, Arc<Plan>>,
    queues: HashMap<i64, Arc<str>>,
    limits: HashMap<i64, LimitKey>,
    /// The same the other way round, for rows that are written.
    limit_ids: HashMap<LimitKey, i64>,
}

impl Catalog {
    /// What is named by the columns of a task.
    pub(crate) fn named(
        &mut self,
        stored: &Stored,
        plan: &mut Statement<'_>,
        workflow: &mut Statement<'_>,
        limit: &mut Statement<'_>,
    ) -> Result<Named, Error> {
        Ok(Named {
            plan: self.plan(stored.plan, plan)?,
            queue: match &stored.head {
                Some(head) => Some(self.queue(head.workflow, workflow)?),
                None => None,
            },
            limit: match stored.behind {
                Some(behind) => Some(self.limit(behind, limit)?),
                None => None,
            },
        })
    }

    /// The plan of this number.
    pub(crate) fn plan(&mut self, id: i64, find: &mut Statement<'_>) -> Result<Arc<Plan>, Error> {
        if let Some(plan) = self.plans.get(&id) {
            return Ok(plan.clone());
        }
        let body = find.query_row([id], |row| row.get::<_, Vec<u8>>(0)).optional()?;
        let body = body.ok_or(Error::Missing { table: "plan", id })?;
        let plan = Plan::decode(&body).map_err(|source| Error::Plan { id, source })?;
        let plan = Arc::new(plan);
        self.add_plan(id, plan.clone());
        Ok(plan)
    }

    /// The queue of the workflow of this number.
    pub(crate) fn queue(&mut self, id: i64, find: &mut Statement<'_>) -> Result<Arc<str>, Error> {
        if let Some(queue) = self.queues.get(&id) {
            return Ok(queue.clone());
        }
        let queue = find.query_row([id], |row| row.get::<_, String>(0)).optional()?;
        let queue: Arc<str> = queue.ok_or(Error::Missing { table: "workflow", id })?.into();
        if self.queues.len() >= WORKFLOWS_MAX {
            self.queues.clear();
        }
        self.queues.insert(id, queue.clone());
        Ok(queue)
    }

    /// The limit of this number.
    pub(crate) fn limit(&mut self, id: i64, find: &mut Statement<'_>) -> Result<LimitKey, Error> {
        if let Some(limit) = self.limits.get(&id) {
            return Ok(limit.clone());
        }
        let names = find.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (name, key): (String, String) =
            names.ok_or(Error::Missing { table: "limit_key", id })?;
        let limit = LimitKey::new(name, key);
        self.add_limit(id, &limit);
        Ok(limit)
    }

    /// The number of this limit, if it is remembered.
    pub(crate) fn limit_id(&self, limit: &LimitKey) -> Option<i64> {
        self.limit_ids.get(limit).copied()
    }

    /// Remembers a limit.
    pub(crate) fn add_limit(&mut self, id: i64, limit: &LimitKey) {
        if self.limits.len() >= LIMITS_MAX {
            self.limits.clear();
            self.limit_ids.clear();
        }
        self.limits.insert(id, limit.clone());
        self.limit_ids.insert(limit.clone(), id);
    }

    /// Remembers a plan; one that is remembered already stays, so that all rows have the same.
    pub(crate) fn add_plan(&mut self, id: i64, plan: Arc<Plan>) {
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
        }
        self.plans.entry(id).or_insert(plan);
    }
}

/// What is known of a plan that somebody has in memory.
pub(crate) struct KnownPlan {
    /// Keeps the address from being used for another plan.
    _plan: Arc<Plan>,
    pub(crate) id: i64,
    /// By queue.
    filed: Vec<Filed>,
}

/// Where the tasks of a plan belong in a queue.
pub(crate) struct Filed {
    queue: Arc<str>,
    pub(crate) workflow: i64,
    /// The lane of each task.
    pub(crate) lanes: Vec<i64>,
}

impl KnownPlan {
    pub(crate) fn filed(&self, queue: &Arc<str>) -> Option<usize> {
        let is_it = |filed: &Filed| Arc::ptr_eq(&filed.queue, queue) || filed.queue == *queue;
        self.filed.iter().position(is_it)
    }

    pub(crate) fn at(&self, place: usize) -> &Filed {
        &self.filed[place]
    }

    pub(crate) fn file(&mut self, queue: Arc<str>, workflow: i64, lanes: Vec<i64>) -> usize {
        if self.filed.len() >= QUEUES_MAX {
            self.filed.clear();
        }
        self.filed.push(Filed { queue, workflow, lanes });
        self.filed.len() - 1
    }
}

/// Plans by where they are in memory: what is needed to write rows.
#[derive(Default)]
pub(crate) struct Plans {
    known: HashMap<usize, KnownPlan>,
}

impl Plans {
    pub(crate) fn known(&mut self, plan: &Arc<Plan>) -> Option<&mut KnownPlan> {
        self.known.get_mut(&address(plan))
    }

    pub(crate) fn add(&mut self, plan: &Arc<Plan>, id: i64) -> &mut KnownPlan {
        if self.known.len() >= PLANS_MAX {
            self.known.clear();
        }
        let known = KnownPlan { _plan: plan.clone(), id, filed: Vec::new() };
        self.known.entry(address(plan)).insert_entry(known).into_mut()
    }
}

fn address(plan: &Arc<Plan>) -> usize {
    Arc::as_ptr(plan) as usize
}

/// By which equal plans are found: FNV-1a, which is the same in every version of this program.
pub(crate) fn hash(bytes: &[u8]) -> i64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_plan_never_changes() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325_u64 as i64);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c_u64 as i64);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8_u64 as i64);
    }
}
