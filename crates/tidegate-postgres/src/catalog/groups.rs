//! Task groups, and the workers that can run them.

use super::NumberCatalog;
use crate::error::Error;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::want::{ServedTasks, TaskGroup};

/// Workers that are remembered.
const WORKERS_MAX: usize = 10_000;

/// After this long a number of a task group that was not found belongs to no group: its insert was
/// rolled back.
const GROUP_GAP_MAX: Duration = Duration::from_secs(60);

const WORKER: &str = "SELECT id, slots, queues, workflows, tasks FROM worker WHERE number = $1";

/// All task groups that a process has met, and the gaps between them.
#[derive(Default)]
pub(super) struct GroupList {
    /// In the order in which they were met.
    met: Vec<(i32, Arc<TaskGroup>)>,
    places: HashMap<i32, usize>,
    /// All numbers up to this one were met, or belong to no group.
    floor: i32,
    /// Since when the number behind the floor is missing although a larger one was met.
    gap_since: Option<Instant>,
}

impl GroupList {
    pub(super) fn add_group(&mut self, number: i32, group: TaskGroup) -> Arc<TaskGroup> {
        if let Some(&place) = self.places.get(&number) {
            return self.met[place].1.clone();
        }
        let group = Arc::new(group);
        self.places.insert(number, self.met.len());
        self.met.push((number, group.clone()));
        self.raise_floor();
        group
    }

    pub(super) fn find_group(&self, number: i32) -> Option<&Arc<TaskGroup>> {
        self.places.get(&number).map(|&place| &self.met[place].1)
    }

    fn raise_floor(&mut self) {
        let before = self.floor;
        while self.places.contains_key(&(self.floor + 1)) {
            self.floor += 1;
        }
        if self.floor != before {
            self.gap_since = None;
        }
    }

    /// Passes over the number behind the floor if it has been missing for long.
    fn skip_old_gap(&mut self, now: Instant) {
        let has_gap = self.met.iter().any(|(number, _)| *number > self.floor);
        if !has_gap {
            return;
        }
        let since = *self.gap_since.get_or_insert(now);
        if now.saturating_duration_since(since) > GROUP_GAP_MAX {
            let behind = self.met.iter().map(|(number, _)| *number);
            self.floor = behind.filter(|number| *number > self.floor).min().expect("a gap") - 1;
            self.gap_since = None;
            self.raise_floor();
        }
    }
}

/// A worker as it has presented itself.
pub(crate) struct KnownWorker {
    /// The random number in file names and advisory locks.
    pub(crate) id: i64,
    pub(crate) served: Arc<ServedTasks>,
    pub(crate) slots: u32,
    /// The task groups that it can run, as far as they were met.
    groups: Mutex<ServedGroups>,
}

#[derive(Default)]
struct ServedGroups {
    groups: Vec<ServedGroup>,
    /// How many of the list of all groups were compared.
    compared: usize,
}

/// A task group that a worker can run.
#[derive(Debug, Clone)]
pub(crate) struct ServedGroup {
    pub(crate) number: i32,
    pub(crate) queue: Arc<str>,
    pub(crate) weight: u32,
}

impl NumberCatalog {
    /// A worker as it has presented itself. It may have been removed since.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn find_worker(
        &self,
        worker: WorkerId,
    ) -> Result<Option<Arc<KnownWorker>>, Error> {
        if let Some(known) = self.lock_entries().workers.get(&worker) {
            return Ok(Some(known.clone()));
        }
        let client = self.take_connection().await?;
        let statement = client.prepare_cached(WORKER).await?;
        let row = client.query_opt(&statement, &[&(worker.0 as i64)]).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(self.add_worker(worker, Arc::new(read_worker(&row, 0)?))))
    }

    fn add_worker(&self, worker: WorkerId, known: Arc<KnownWorker>) -> Arc<KnownWorker> {
        let mut entries = self.lock_entries();
        if entries.workers.len() >= WORKERS_MAX {
            entries.workers.clear();
        }
        entries.workers.entry(worker).or_insert(known).clone()
    }

    /// The number below which all task groups were met.
    pub(crate) fn group_floor(&self) -> i32 {
        self.lock_entries().groups.floor
    }

    /// Adds task groups that were found above the [floor](Self::group_floor); whether one of them is
    /// new.
    ///
    /// # Errors
    /// A row cannot be read.
    pub(crate) fn add_groups(&self, rows: &[tokio_postgres::Row]) -> Result<bool, Error> {
        let mut entries = self.lock_entries();
        let before = entries.groups.met.len();
        for row in rows {
            let (number, group) = read_group(row)?;
            entries.groups.add_group(number, group);
        }
        entries.groups.skip_old_gap(Instant::now());
        Ok(entries.groups.met.len() > before)
    }

    /// The task groups that a worker can run, of those that were met.
    pub(crate) fn find_served_groups(&self, worker: &KnownWorker) -> Vec<ServedGroup> {
        let entries = self.lock_entries();
        let mut served = worker.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let ServedGroups { groups, compared } = &mut *served;
        for (number, group) in &entries.groups.met[*compared..] {
            let TaskGroup { queue, workflow, task, weight } = &**group;
            if worker.served.queues.contains(&**queue) && worker.served.knows_task(workflow, task) {
                groups.push(ServedGroup { number: *number, queue: queue.clone(), weight: *weight });
            }
        }
        *compared = entries.groups.met.len();
        groups.clone()
    }
}

/// Reads number, queue, workflow, task and weight.
pub(super) fn read_group(row: &tokio_postgres::Row) -> Result<(i32, TaskGroup), Error> {
    let queue: Arc<str> = row.try_get::<_, &str>(1)?.into();
    let (workflow, task) = (row.try_get(2)?, row.try_get(3)?);
    let weight = u32::try_from(row.try_get::<_, i64>(4)?).unwrap_or(u32::MAX);
    Ok((row.try_get(0)?, TaskGroup { queue, workflow, task, weight }))
}

/// Reads id, slots, queues, workflows and tasks, from a column on.
pub(crate) fn read_worker(row: &tokio_postgres::Row, at: usize) -> Result<KnownWorker, Error> {
    let queues: Vec<String> = row.try_get(at + 2)?;
    let workflows: Option<Vec<String>> = row.try_get(at + 3)?;
    let tasks: Option<Vec<String>> = row.try_get(at + 4)?;
    let known = workflows.map(|workflows| {
        let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (workflow, task) in workflows.into_iter().zip(tasks.unwrap_or_default()) {
            known.entry(workflow).or_default().insert(task);
        }
        known
    });
    Ok(KnownWorker {
        id: row.try_get(at)?,
        slots: u32::try_from(row.try_get::<_, i64>(at + 1)?).unwrap_or(u32::MAX),
        served: Arc::new(ServedTasks { queues: queues.into_iter().collect(), tasks: known }),
        groups: Mutex::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_group(task: &str) -> TaskGroup {
        TaskGroup { queue: "q".into(), workflow: "w".into(), task: task.into(), weight: 1 }
    }

    #[test]
    fn floor_of_groups_stops_at_a_gap_until_the_gap_is_old() {
        let mut list = GroupList::default();
        list.add_group(1, make_group("a"));
        list.add_group(4, make_group("d"));
        assert_eq!(list.floor, 1);
        list.add_group(2, make_group("b"));
        assert_eq!(list.floor, 2);
        let now = Instant::now();
        list.skip_old_gap(now);
        assert_eq!(list.floor, 2, "the insert of 3 may not be visible yet");
        list.skip_old_gap(now + GROUP_GAP_MAX * 2);
        assert_eq!(list.floor, 4);
        assert_eq!(list.find_group(4).map(|group| group.task.as_str()), Some("d"));
    }
}
