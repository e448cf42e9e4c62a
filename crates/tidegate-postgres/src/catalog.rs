//! The plans, task groups, limit keys and workers that a process has met, by their numbers.
//!
//! Their rows never change and keep their numbers, so an entry stays true until it is dropped because
//! there are too many. New rows are added in statements of their own, on connections that no request
//! holds: a request that is rolled back takes nothing with it that another one has seen, and a request
//! that has a connection never waits for a second one of the same pool.

mod groups;
mod numbers;
mod queues;

use crate::error::Error;
use deadpool_postgres::{Object, Pool};
use groups::GroupList;
pub(crate) use groups::{KnownWorker, read_worker};
pub(crate) use queues::QueueView;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::LimitKey;
use tidegate_core::plan::Plan;
use tidegate_core::want::TaskGroup;

/// Plans that are remembered. A program has a few dozen; one that makes a new plan for every run must
/// not fill the memory with them.
const PLANS_MAX: usize = 1_024;

/// Queues that are remembered for a plan.
const QUEUES_MAX: usize = 64;

/// Limit keys that are remembered.
const LIMITS_MAX: usize = 10_000;

/// Numbers for tasks that a process takes at once.
const NUMBER_BLOCK: i64 = 16_384;

const FIND_PLAN: &str =
    "SELECT number FROM plan WHERE hash = $1 AND md5(body) = md5($2::bytea) AND body = $2::bytea";

const ADD_PLAN: &str = "INSERT INTO plan (hash, body, tasks) VALUES ($1, $2, $3) \
     ON CONFLICT DO NOTHING RETURNING number";

const FIND_QUEUE: &str = "SELECT number FROM queue WHERE name = $1";

const ADD_QUEUE: &str =
    "INSERT INTO queue (name) VALUES ($1) ON CONFLICT DO NOTHING RETURNING number";

/// The groups of queue $1 and workflow $2 with the names $3 and the weights $4, each by its place.
const FIND_GROUPS: &str = "SELECT named.place, g.number \
     FROM unnest($3::text[], $4::int8[]) WITH ORDINALITY AS named (task, weight, place) \
     JOIN task_group g ON g.queue = $1 AND g.workflow = $2 AND g.task = named.task \
     AND g.weight = named.weight";

/// Adds those of them that do not exist, and gives the queue another version. In order, because two
/// processes may add the same ones.
const ADD_GROUPS: &str = "WITH added AS (INSERT INTO task_group (queue, workflow, task, weight) \
     SELECT $1, $2, named.task, named.weight FROM unnest($3::text[], $4::int8[]) \
     AS named (task, weight) WHERE NOT EXISTS (SELECT 1 FROM task_group g WHERE g.queue = $1 \
     AND g.workflow = $2 AND g.task = named.task AND g.weight = named.weight) \
     ORDER BY named.task, named.weight ON CONFLICT DO NOTHING RETURNING 1) \
     UPDATE queue SET version = version + 1 WHERE name = $1 AND EXISTS (SELECT 1 FROM added)";

const FIND_LIMITS: &str = "SELECT named.place, l.number \
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS named (name, key, place) \
     JOIN limit_key l ON l.name = named.name AND l.key = named.key";

const ADD_LIMITS: &str = "INSERT INTO limit_key (name, key) SELECT named.name, named.key \
     FROM unnest($1::text[], $2::text[]) AS named (name, key) WHERE NOT EXISTS (SELECT 1 \
     FROM limit_key l WHERE l.name = named.name AND l.key = named.key) \
     ORDER BY named.name, named.key ON CONFLICT DO NOTHING";

const TAKE_NUMBERS: &str = "UPDATE number_block SET next = next + $1 WHERE name = 'task' \
     RETURNING next - $1";

/// Plans, task groups, limit keys and workers by their numbers.
pub(crate) struct NumberCatalog {
    pool: Pool,
    entries: Mutex<Entries>,
    /// Held by a request that takes a block of numbers.
    number_turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Entries {
    plans: HashMap<i32, Arc<Plan>>,
    /// Plans by their place in memory: those of rows that are written.
    filed: HashMap<usize, FiledQueues>,
    groups: GroupList,
    queue_views: HashMap<Arc<str>, Arc<QueueView>>,
    limits: HashMap<i64, LimitKey>,
    limit_numbers: HashMap<LimitKey, i64>,
    workers: HashMap<WorkerId, Arc<KnownWorker>>,
    /// The numbers for tasks that are left of a block.
    task_numbers: Range<i64>,
}

/// A plan by the queues in which it was filed.
struct FiledQueues {
    /// Keeps the address from being used for another plan.
    _plan: Arc<Plan>,
    queues: Vec<(Arc<str>, Arc<NumberedPlan>)>,
}

/// A plan in a queue, by numbers.
#[derive(Debug)]
pub(crate) struct NumberedPlan {
    /// The number of the plan.
    pub(crate) plan: i32,
    /// The number of the queue.
    pub(crate) queue: i32,
    /// The group of each task, or one group of all.
    groups: Vec<i32>,
}

impl NumberedPlan {
    /// The number of the task group of a task.
    pub(crate) fn group_of(&self, task: TaskIndex) -> i32 {
        match self.groups[..] {
            [group] => group,
            ref groups => groups[task.as_usize()],
        }
    }
}

impl NumberCatalog {
    /// A catalog with connections of its own.
    pub(crate) fn new(pool: Pool) -> Self {
        NumberCatalog { pool, entries: Mutex::default(), number_turn: Default::default() }
    }

    fn lock_entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_connection(&self) -> Result<Object, Error> {
        Ok(self.pool.get().await?)
    }

    /// The numbers of a plan and of its task groups in a queue. They are added if they do not exist.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn file_plan(
        &self,
        queue: &Arc<str>,
        plan: &Arc<Plan>,
    ) -> Result<Arc<NumberedPlan>, Error> {
        if let Some(filed) = self.lock_entries().find_filed(queue, plan) {
            return Ok(filed);
        }
        let client = self.take_connection().await?;
        let number = find_or_add_plan(&client, plan).await?;
        // Its version changes with the groups.
        let queue_number = find_or_add_queue(&client, queue).await?;
        let groups = self.find_or_add_groups(&client, queue, plan).await?;
        let filed = Arc::new(NumberedPlan { plan: number, queue: queue_number, groups });
        let mut entries = self.lock_entries();
        entries.add_plan(number, plan.clone());
        entries.add_filed(queue, plan, filed.clone());
        Ok(filed)
    }

    async fn find_or_add_groups(
        &self,
        client: &Object,
        queue: &Arc<str>,
        plan: &Plan,
    ) -> Result<Vec<i32>, Error> {
        let count = if plan.items_of().is_some() { 1 } else { plan.task_count() };
        let groups: Vec<TaskGroup> = plan
            .graph()
            .tasks()
            .take(count)
            .map(|task| TaskGroup::new(queue, plan, task))
            .collect();
        let names: Vec<&str> = groups.iter().map(|group| group.task.as_str()).collect();
        let weights: Vec<i64> = groups.iter().map(|group| group.weight.into()).collect();
        let find = client.prepare_cached(FIND_GROUPS).await?;
        let add = client.prepare_cached(ADD_GROUPS).await?;
        loop {
            let rows =
                client.query(&find, &[&&**queue, &plan.workflow(), &names, &weights]).await?;
            if rows.len() == groups.len() {
                let mut numbers = vec![0; groups.len()];
                let mut entries = self.lock_entries();
                for row in rows {
                    let (place, number): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
                    let place = place as usize - 1;
                    entries.groups.add_group(number, groups[place].clone());
                    numbers[place] = number;
                }
                return Ok(numbers);
            }
            client.execute(&add, &[&&**queue, &plan.workflow(), &names, &weights]).await?;
            self.forget_queue(queue);
        }
    }

    /// The number of a limit key. It is added if it does not exist.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn number_limit(&self, limit: &LimitKey) -> Result<i64, Error> {
        let numbers = self.number_limits([limit]).await?;
        Ok(numbers[limit])
    }

    /// The numbers of limit keys. Those that do not exist are added.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn number_limits(
        &self,
        limits: impl IntoIterator<Item = &LimitKey>,
    ) -> Result<BTreeMap<LimitKey, i64>, Error> {
        let limits: BTreeSet<&LimitKey> = limits.into_iter().collect();
        let (mut numbers, missing) = self.recall_limits(&limits);
        if missing.is_empty() {
            return Ok(numbers);
        }
        let client = self.take_connection().await?;
        let mut found = self.look_up_limits(&client, &missing).await?;
        while found.len() < missing.len() {
            let names: Vec<&str> = missing.iter().map(|limit| &*limit.name).collect();
            let keys: Vec<&str> = missing.iter().map(|limit| &*limit.key).collect();
            let add = client.prepare_cached(ADD_LIMITS).await?;
            client.execute(&add, &[&names, &keys]).await?;
            found = self.look_up_limits(&client, &missing).await?;
        }
        numbers.extend(found);
        Ok(numbers)
    }

    /// The number of a limit key, if it exists.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn find_limit_number(&self, limit: &LimitKey) -> Result<Option<i64>, Error> {
        Ok(self.find_limit_numbers([limit]).await?.remove(limit))
    }

    /// The numbers of those of these limit keys that exist.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn find_limit_numbers(
        &self,
        limits: impl IntoIterator<Item = &LimitKey>,
    ) -> Result<BTreeMap<LimitKey, i64>, Error> {
        let limits: BTreeSet<&LimitKey> = limits.into_iter().collect();
        let (mut numbers, missing) = self.recall_limits(&limits);
        if !missing.is_empty() {
            let client = self.take_connection().await?;
            numbers.extend(self.look_up_limits(&client, &missing).await?);
        }
        Ok(numbers)
    }

    /// The numbers that are remembered, and the limit keys that are not.
    fn recall_limits<'l>(
        &self,
        limits: &BTreeSet<&'l LimitKey>,
    ) -> (BTreeMap<LimitKey, i64>, Vec<&'l LimitKey>) {
        let entries = self.lock_entries();
        let mut missing = Vec::new();
        let mut numbers = BTreeMap::new();
        for &limit in limits {
            match entries.limit_numbers.get(limit) {
                Some(&number) => drop(numbers.insert(limit.clone(), number)),
                None => missing.push(limit),
            }
        }
        (numbers, missing)
    }

    async fn look_up_limits(
        &self,
        client: &Object,
        limits: &[&LimitKey],
    ) -> Result<BTreeMap<LimitKey, i64>, Error> {
        let names: Vec<&str> = limits.iter().map(|limit| &*limit.name).collect();
        let keys: Vec<&str> = limits.iter().map(|limit| &*limit.key).collect();
        let find = client.prepare_cached(FIND_LIMITS).await?;
        let mut found = BTreeMap::new();
        for row in client.query(&find, &[&names, &keys]).await? {
            let (place, number): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let limit = limits[place as usize - 1];
            self.lock_entries().add_limit(number, limit);
            found.insert(limit.clone(), number);
        }
        Ok(found)
    }

    /// The first of new numbers for this many tasks in a row.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn take_task_numbers(&self, count: u32) -> Result<i64, Error> {
        if i64::from(count) >= NUMBER_BLOCK {
            // A run that is larger than a block gets numbers of its own, and the rest of the block stays.
            return Ok(self.take_number_block(count.into()).await?.start);
        }
        loop {
            if let Some(first) = self.take_prepared_numbers(count) {
                return Ok(first);
            }
            self.prepare_task_numbers(count).await?;
        }
    }

    /// Takes a new block of numbers if fewer than these are left of the last one.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn prepare_task_numbers(&self, count: u32) -> Result<(), Error> {
        let is_left = |left: &Range<i64>| left.end - left.start >= i64::from(count);
        if is_left(&self.lock_entries().task_numbers) {
            return Ok(());
        }
        // The requests that find too few numbers at the same time share one block.
        let _turn = self.number_turn.lock().await;
        if !is_left(&self.lock_entries().task_numbers) {
            let block = self.take_number_block(NUMBER_BLOCK.max(count.into())).await?;
            self.lock_entries().task_numbers = block;
        }
        Ok(())
    }

    /// The first of this many numbers in a row, if as many are left of the last block.
    pub(crate) fn take_prepared_numbers(&self, count: u32) -> Option<i64> {
        let left = &mut self.lock_entries().task_numbers;
        let first = left.start;
        if left.end - first < i64::from(count) {
            return None;
        }
        left.start += i64::from(count);
        Some(first)
    }

    async fn take_number_block(&self, count: i64) -> Result<Range<i64>, Error> {
        let client = self.take_connection().await?;
        let statement = client.prepare_cached(TAKE_NUMBERS).await?;
        let first: i64 = client.query_one(&statement, &[&count]).await?.try_get(0)?;
        Ok(first..first + count)
    }
}

impl Entries {
    /// Remembers a plan. One that is remembered already stays, so that all rows have the same.
    fn add_plan(&mut self, number: i32, plan: Arc<Plan>) -> Arc<Plan> {
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
        }
        self.plans.entry(number).or_insert(plan).clone()
    }

    fn add_limit(&mut self, number: i64, limit: &LimitKey) {
        if self.limits.len() >= LIMITS_MAX {
            self.limits.clear();
            self.limit_numbers.clear();
        }
        self.limits.insert(number, limit.clone());
        self.limit_numbers.insert(limit.clone(), number);
    }

    fn find_filed(&self, queue: &Arc<str>, plan: &Arc<Plan>) -> Option<Arc<NumberedPlan>> {
        let filed = &self.filed.get(&(Arc::as_ptr(plan) as usize))?.queues;
        let is_it = |known: &Arc<str>| Arc::ptr_eq(known, queue) || known == queue;
        filed.iter().find(|(known, _)| is_it(known)).map(|(_, filed)| filed.clone())
    }

    fn add_filed(&mut self, queue: &Arc<str>, plan: &Arc<Plan>, filed: Arc<NumberedPlan>) {
        if self.filed.len() >= PLANS_MAX {
            self.filed.clear();
        }
        let entry = self.filed.entry(Arc::as_ptr(plan) as usize);
        let entry =
            entry.or_insert_with(|| FiledQueues { _plan: plan.clone(), queues: Vec::new() });
        if entry.queues.len() >= QUEUES_MAX {
            entry.queues.clear();
        }
        entry.queues.push((queue.clone(), filed));
    }
}

async fn find_or_add_plan(client: &Object, plan: &Plan) -> Result<i32, Error> {
    let body = plan.encode();
    let hash = hash_plan(&body);
    let find = client.prepare_cached(FIND_PLAN).await?;
    let add = client.prepare_cached(ADD_PLAN).await?;
    let tasks = i32::try_from(plan.task_count()).expect("a plan has fewer than 2^31 tasks");
    loop {
        if let Some(row) = client.query_opt(&find, &[&hash, &body]).await? {
            return Ok(row.try_get(0)?);
        }
        if let Some(row) = client.query_opt(&add, &[&hash, &body, &tasks]).await? {
            return Ok(row.try_get(0)?);
        }
    }
}

async fn find_or_add_queue(client: &Object, queue: &str) -> Result<i32, Error> {
    let find = client.prepare_cached(FIND_QUEUE).await?;
    let add = client.prepare_cached(ADD_QUEUE).await?;
    loop {
        for statement in [&find, &add] {
            if let Some(row) = client.query_opt(statement, &[&queue]).await? {
                return Ok(row.try_get(0)?);
            }
        }
    }
}

/// By which equal plans are found: FNV-1a, which is the same in every version of this program.
fn hash_plan(bytes: &[u8]) -> i64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_plan_never_changes() {
        assert_eq!(hash_plan(b""), 0xcbf2_9ce4_8422_2325_u64 as i64);
        assert_eq!(hash_plan(b"a"), 0xaf63_dc4c_8601_ec8c_u64 as i64);
        assert_eq!(hash_plan(b"foobar"), 0x8594_4171_f739_67e8_u64 as i64);
    }
}
