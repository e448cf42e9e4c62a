//! Plans, queues and limits by the numbers that rows name them by.

use super::NumberCatalog;
use super::groups::read_group;
use crate::columns::{NamedThings, TaskColumns};
use crate::error::Error;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tidegate_core::limit::LimitKey;
use tidegate_core::plan::{InvalidPlan, Plan};
use tidegate_core::want::TaskGroup;

const PLANS: &str = "SELECT number, body FROM plan WHERE number = ANY($1)";

const GROUPS: &str =
    "SELECT number, queue, workflow, task, weight FROM task_group WHERE number = ANY($1)";

const LIMITS: &str = "SELECT number, name, key FROM limit_key WHERE number = ANY($1)";

/// Plans, queues and limits by the numbers that some rows name them by.
pub(crate) struct ResolvedNumbers {
    plans: HashMap<i32, Result<Arc<Plan>, InvalidPlan>>,
    groups: HashMap<i32, Arc<TaskGroup>>,
    limits: HashMap<i64, LimitKey>,
}

impl ResolvedNumbers {
    /// The things that the columns of a task name.
    ///
    /// # Errors
    /// One of them does not exist, or is damaged.
    pub(crate) fn name_things(&self, stored: &TaskColumns) -> Result<NamedThings, Error> {
        let queue = self.find_group(stored.task_group).map(|group| group.queue.clone());
        Ok(NamedThings {
            plan: self.find_plan(stored.plan)?,
            // Only the row of a first task needs it.
            queue: if stored.is_first() { Some(queue?) } else { queue.ok() },
            limit: self.find_limit(stored.blocked_on)?,
        })
    }

    fn find_plan(&self, number: i32) -> Result<Arc<Plan>, Error> {
        let number_of = i64::from(number);
        let missing = Error::Missing { table: "plan", number: number_of };
        let plan = self.plans.get(&number).ok_or(missing)?;
        let damaged = |source| Error::Plan { number: number_of, source };
        plan.clone().map_err(damaged)
    }

    pub(crate) fn find_group(&self, number: i32) -> Result<&Arc<TaskGroup>, Error> {
        let missing = Error::Missing { table: "task_group", number: number.into() };
        self.groups.get(&number).ok_or(missing)
    }

    pub(crate) fn find_limit(&self, number: Option<i64>) -> Result<Option<LimitKey>, Error> {
        let Some(number) = number else { return Ok(None) };
        let limit = self.limits.get(&number).cloned();
        limit.map(Some).ok_or(Error::Missing { table: "limit_key", number })
    }
}

impl NumberCatalog {
    /// Finds the plans, queues and limits that some rows name.
    ///
    /// # Errors
    /// The store's own. Numbers that name nothing are left out.
    pub(crate) async fn resolve_numbers(
        &self,
        stored: &[TaskColumns],
    ) -> Result<ResolvedNumbers, Error> {
        let plans: HashSet<i32> = stored.iter().map(|stored| stored.plan).collect();
        let groups: HashSet<i32> = stored.iter().map(|stored| stored.task_group).collect();
        let limits: HashSet<i64> = stored.iter().filter_map(|stored| stored.blocked_on).collect();
        Ok(ResolvedNumbers {
            plans: self.find_plans(plans).await?,
            groups: self.find_groups(groups).await?,
            limits: self.find_limits(limits).await?,
        })
    }

    /// The plans of these numbers.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn find_plans(
        &self,
        numbers: HashSet<i32>,
    ) -> Result<HashMap<i32, Result<Arc<Plan>, InvalidPlan>>, Error> {
        let mut found = HashMap::with_capacity(numbers.len());
        let mut missing = Vec::new();
        {
            let entries = self.lock_entries();
            for number in numbers {
                match entries.plans.get(&number) {
                    Some(plan) => drop(found.insert(number, Ok(plan.clone()))),
                    None => missing.push(number),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let client = self.take_connection().await?;
        let statement = client.prepare_cached(PLANS).await?;
        for row in client.query(&statement, &[&missing]).await? {
            let number: i32 = row.try_get(0)?;
            let plan = Plan::decode(row.try_get(1)?);
            let plan = plan.map(|plan| self.lock_entries().add_plan(number, Arc::new(plan)));
            found.insert(number, plan);
        }
        Ok(found)
    }

    /// The task groups of these numbers.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn find_groups(
        &self,
        numbers: HashSet<i32>,
    ) -> Result<HashMap<i32, Arc<TaskGroup>>, Error> {
        let mut found = HashMap::with_capacity(numbers.len());
        let mut missing = Vec::new();
        {
            let entries = self.lock_entries();
            for number in numbers {
                match entries.groups.find_group(number) {
                    Some(group) => drop(found.insert(number, group.clone())),
                    None => missing.push(number),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let client = self.take_connection().await?;
        let statement = client.prepare_cached(GROUPS).await?;
        for row in client.query(&statement, &[&missing]).await? {
            let (number, group) = read_group(&row)?;
            found.insert(number, self.lock_entries().groups.add_group(number, group));
        }
        Ok(found)
    }

    async fn find_limits(&self, numbers: HashSet<i64>) -> Result<HashMap<i64, LimitKey>, Error> {
        let mut found = HashMap::with_capacity(numbers.len());
        let mut missing = Vec::new();
        {
            let entries = self.lock_entries();
            for number in numbers {
                match entries.limits.get(&number) {
                    Some(limit) => drop(found.insert(number, limit.clone())),
                    None => missing.push(number),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let client = self.take_connection().await?;
        let statement = client.prepare_cached(LIMITS).await?;
        for row in client.query(&statement, &[&missing]).await? {
            let number = row.try_get(0)?;
            let limit = LimitKey::new(row.try_get::<_, &str>(1)?, row.try_get::<_, &str>(2)?);
            self.lock_entries().add_limit(number, &limit);
            found.insert(number, limit);
        }
        Ok(found)
    }
}
