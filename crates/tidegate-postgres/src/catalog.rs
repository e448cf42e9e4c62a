//! The plans, task groups, limit keys and workers that a process has met, by their numbers.
//!
//! Their rows never change, and no other row gets their numbers, so what a number means stays true until
//! it is dropped because there are too many. That a name still has the number that it had is
//! [trusted](tidegate_core::sweep) for plans, task groups and queues; the row of a limit key is looked at
//! by each request that uses it. New rows are added in statements of their own, on connections that no request
//! holds: a request that is rolled back takes nothing with it that another one has seen, and a request
//! that has a connection never waits for a second one of the same pool.

mod filing;
mod groups;
mod numbers;
mod queues;

use crate::error::Error;
use deadpool_postgres::{Object, Pool};
use filing::GivenTime;
pub(crate) use filing::NumberedPlan;
use groups::GroupList;
pub(crate) use groups::{KnownWorker, read_worker};
pub(crate) use queues::QueueView;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tidegate_core::Timestamp;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::LimitKey;
use tidegate_core::plan::Plan;
use tidegate_core::store::Clock;

/// Plans that are remembered. A program has a few dozen; one that makes a new plan for every run must
/// not fill the memory with them.
const PLANS_MAX: usize = 1_024;

/// Queues that are remembered for a plan.
const QUEUES_MAX: usize = 64;

/// Limit keys that are remembered.
const LIMITS_MAX: usize = 10_000;

/// Numbers for tasks that a process takes at once.
const NUMBER_BLOCK: i64 = 16_384;

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
    /// The time that the last request was given.
    given_time: Option<Timestamp>,
}

/// A plan by the queues in which it was filed.
struct FiledQueues {
    /// Keeps the address from being used for another plan.
    _plan: Arc<Plan>,
    queues: Vec<(Arc<str>, Arc<NumberedPlan>)>,
}

impl NumberCatalog {
    /// A catalog with connections of its own.
    pub(crate) fn new(pool: Pool) -> Self {
        NumberCatalog { pool, entries: Mutex::default(), number_turn: Default::default() }
    }

    fn lock_entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is this time, or that of the server.
    pub(crate) fn note_clock(&self, clock: Clock) {
        self.lock_entries().given_time = match clock {
            Clock::Given(now) => Some(now),
            Clock::Store => None,
        };
    }

    async fn take_connection(&self) -> Result<Object, Error> {
        Ok(self.pool.get().await?)
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

    /// Forgets the numbers of limit keys that are gone.
    pub(crate) fn forget_limits(&self, numbers: impl IntoIterator<Item = i64>) {
        let mut entries = self.lock_entries();
        numbers.into_iter().for_each(|number| entries.forget_limit(number));
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
    /// The time that requests are given, if they are, and the time by which numbers are trusted.
    fn tell_time(&self) -> (GivenTime, Timestamp) {
        // The wall clock, which goes on while the machine sleeps.
        let now = self.given_time.unwrap_or_else(|| SystemTime::now().into());
        (self.given_time.map(Timestamp::as_micros), now)
    }

    /// Remembers a plan. One that is remembered already stays, so that all rows have the same.
    fn add_plan(&mut self, number: i32, plan: Arc<Plan>) -> Arc<Plan> {
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
        }
        self.plans.entry(number).or_insert(plan).clone()
    }

    /// Forgets the number of a limit key that is gone.
    fn forget_limit(&mut self, number: i64) {
        if let Some(limit) = self.limits.remove(&number) {
            self.limit_numbers.remove(&limit);
        }
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
        entry.queues.retain(|(known, _)| known != queue);
        if entry.queues.len() >= QUEUES_MAX {
            entry.queues.clear();
        }
        entry.queues.push((queue.clone(), filed));
    }
}
