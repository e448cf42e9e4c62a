//! Filing plans: the numbers of a plan, of a queue and of the task groups of both, which are verified again
//! when they were trusted for long.

use super::NumberCatalog;
use crate::error::Error;
use deadpool_postgres::Object;
use std::sync::Arc;
use tidegate_core::Timestamp;
use tidegate_core::graph::TaskIndex;
use tidegate_core::plan::Plan;
use tidegate_core::sweep::{FRESH_MAX, is_trusted};
use tidegate_core::want::TaskGroup;
use tokio_postgres::types::ToSql;

/// The time: a given one, or the server's.
macro_rules! time_now {
    ($given:literal) => {
        concat!(
            "coalesce(",
            $given,
            "::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)"
        )
    };
}

/// The plan with the hash $1 and the body $2, and whether its time of use is later than $4 before now,
/// which is $3.
const FIND_PLAN: &str = concat!(
    "SELECT number, used_at > ",
    time_now!("$3"),
    " - $4 FROM plan WHERE hash = $1 AND md5(body) = md5($2::bytea) AND body = $2::bytea"
);

const USE_PLAN: &str =
    concat!("UPDATE plan SET used_at = ", time_now!("$2"), " WHERE number = $1 RETURNING number");

const ADD_PLAN: &str = concat!(
    "INSERT INTO plan (hash, body, tasks, used_at) VALUES ($1, $2, $3, ",
    time_now!("$4"),
    ") ON CONFLICT DO NOTHING RETURNING number"
);

const FIND_QUEUE: &str =
    concat!("SELECT number, used_at > ", time_now!("$2"), " - $3 FROM queue WHERE name = $1");

const USE_QUEUE: &str =
    concat!("UPDATE queue SET used_at = ", time_now!("$2"), " WHERE number = $1 RETURNING number");

const ADD_QUEUE: &str = concat!(
    "INSERT INTO queue (name, used_at) VALUES ($1, ",
    time_now!("$2"),
    ") ON CONFLICT DO NOTHING RETURNING number"
);

/// The groups of queue $1 and workflow $2 with the names $3 and the weights $4, each by its place, and
/// whether its time of use is later than $6 before now, which is $5.
const FIND_GROUPS: &str = concat!(
    "SELECT named.place, g.number, g.used_at > ",
    time_now!("$5"),
    " - $6 FROM unnest($3::text[], $4::int8[]) WITH ORDINALITY AS named (task, weight, place) \
     JOIN task_group g ON g.queue = $1 AND g.workflow = $2 AND g.task = named.task \
     AND g.weight = named.weight"
);

/// In order, because two processes may use the same ones.
const USE_GROUPS: &str = concat!(
    "UPDATE task_group SET used_at = ",
    time_now!("$2"),
    " WHERE number = ANY(ARRAY(SELECT number FROM task_group WHERE number = ANY($1) \
     ORDER BY number FOR UPDATE))"
);

/// Adds those of them that do not exist, and gives the queue another version. In order, because two
/// processes may add the same ones.
const ADD_GROUPS: &str = concat!(
    "WITH added AS (INSERT INTO task_group (queue, workflow, task, weight, used_at) \
     SELECT $1, $2, named.task, named.weight, ",
    time_now!("$5"),
    " FROM unnest($3::text[], $4::int8[]) \
     AS named (task, weight) WHERE NOT EXISTS (SELECT 1 FROM task_group g WHERE g.queue = $1 \
     AND g.workflow = $2 AND g.task = named.task AND g.weight = named.weight) \
     ORDER BY named.task, named.weight ON CONFLICT DO NOTHING RETURNING 1) \
     UPDATE queue SET version = version + 1 WHERE name = $1 AND EXISTS (SELECT 1 FROM added)"
);

/// See [`FRESH_MAX`], in microseconds.
const FRESH: i64 = FRESH_MAX.as_micros() as i64;

/// The time that a request was given; `None`: the time of the server.
pub(super) type GivenTime = Option<i64>;

/// A plan in a queue, by numbers.
#[derive(Debug)]
pub(crate) struct NumberedPlan {
    /// The number of the plan.
    pub(crate) plan: i32,
    /// The number of the queue.
    pub(crate) queue: i32,
    /// The group of each task, or one group of all.
    groups: Vec<i32>,
    /// When all of them were there, and in use, by the clock of this process.
    verified_at: Timestamp,
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
    /// The numbers of a plan and of its task groups in a queue. They are added if they do not exist.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn file_plan(
        &self,
        queue: &Arc<str>,
        plan: &Arc<Plan>,
    ) -> Result<Arc<NumberedPlan>, Error> {
        let (given, verified_at) = self.lock_entries().tell_time();
        if let Some(filed) = self.lock_entries().find_filed(queue, plan)
            && is_trusted(filed.verified_at, verified_at)
        {
            return Ok(filed);
        }
        let client = self.take_connection().await?;
        let number = find_or_add_plan(&client, plan, given).await?;
        // Its version changes with the groups.
        let queue_number = find_or_add_queue(&client, queue, given).await?;
        let groups = self.find_or_add_groups(&client, queue, plan, given).await?;
        let filed = NumberedPlan { plan: number, queue: queue_number, groups, verified_at };
        let filed = Arc::new(filed);
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
        given: GivenTime,
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
        let (queue, workflow) = (&**queue, plan.workflow());
        let find = client.prepare_cached(FIND_GROUPS).await?;
        loop {
            let rows =
                client.query(&find, &[&queue, &workflow, &names, &weights, &given, &FRESH]).await?;
            if rows.len() < groups.len() {
                let add = client.prepare_cached(ADD_GROUPS).await?;
                client.execute(&add, &[&queue, &workflow, &names, &weights, &given]).await?;
                self.forget_queue(queue);
                continue;
            }
            let mut numbers = vec![0; groups.len()];
            let mut stale: Vec<i32> = Vec::new();
            for row in &rows {
                let (place, number): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
                numbers[place as usize - 1] = number;
                stale.extend((!row.try_get::<_, bool>(2)?).then_some(number));
            }
            if !stale.is_empty() {
                stale.sort_unstable();
                stale.dedup();
                let touch = client.prepare_cached(USE_GROUPS).await?;
                if client.execute(&touch, &[&stale, &given]).await? < stale.len() as u64 {
                    continue;
                }
            }
            let mut entries = self.lock_entries();
            for (number, group) in numbers.iter().zip(groups) {
                entries.groups.add_group(*number, group);
            }
            return Ok(numbers);
        }
    }
}

async fn find_or_add_plan(client: &Object, plan: &Plan, given: GivenTime) -> Result<i32, Error> {
    let body = plan.encode();
    let hash = hash_plan(&body);
    let tasks = i32::try_from(plan.task_count()).expect("a plan has fewer than 2^31 tasks");
    let row = FiledRow { find: FIND_PLAN, touch: USE_PLAN, add: ADD_PLAN, given };
    row.find_or_add(client, &[&hash, &body], &[&hash, &body, &tasks]).await
}

async fn find_or_add_queue(client: &Object, queue: &str, given: GivenTime) -> Result<i32, Error> {
    let row = FiledRow { find: FIND_QUEUE, touch: USE_QUEUE, add: ADD_QUEUE, given };
    row.find_or_add(client, &[&queue], &[&queue]).await
}

/// The statements for a row that is filed once and has a time of use. The time stands behind the other
/// values, and behind it, where a row is found, how old a time of use may be.
struct FiledRow {
    find: &'static str,
    touch: &'static str,
    add: &'static str,
    given: GivenTime,
}

impl FiledRow {
    async fn find_or_add(
        &self,
        client: &Object,
        wanted: &[&(dyn ToSql + Sync)],
        row: &[&(dyn ToSql + Sync)],
    ) -> Result<i32, Error> {
        let find = client.prepare_cached(self.find).await?;
        let wanted = [wanted, &[&self.given, &FRESH]].concat();
        let row = [row, &[&self.given]].concat();
        loop {
            let mut found = client.query_opt(&find, &wanted).await?;
            if let Some(stored) = &found
                && !stored.try_get::<_, bool>(1)?
            {
                let touch = client.prepare_cached(self.touch).await?;
                let number: i32 = stored.try_get(0)?;
                found = client.query_opt(&touch, &[&number, &self.given]).await?;
            } else if found.is_none() {
                let add = client.prepare_cached(self.add).await?;
                found = client.query_opt(&add, &row).await?;
            }
            if let Some(row) = found {
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
