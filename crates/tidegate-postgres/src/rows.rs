//! Tasks and runs: by number, by id, by key, owned, due, ready.

mod statements;

use crate::batch::Parameter;
use crate::columns::{TASK_COLUMNS, TaskColumns, Uuid, read_task, to_timestamp};
use crate::error::Error;
use crate::loader::{FoundRows, SortedWants, Trip, WantLoader};
use std::collections::{BTreeMap, BTreeSet};
use tidegate_core::decision::DUE_MAX;
use tidegate_core::delta::{PauseChange, is_paused_after};
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Fence, WorkerId};
use tidegate_core::rows::{Gate, Owned};
use tidegate_core::store::{RequestId, RunKey, Scope, TaskKey};
use tidegate_core::want::{Loaded, Want};
use tidegate_core::{RunId, Timestamp};
use tokio_postgres::Row as PgRow;

pub(crate) use crate::pauses::name_pause as pause_name;
#[cfg(test)]
pub(crate) use statements::STATEMENTS;
pub(crate) use statements::{
    DUE, ENDED, ENDED_OF_RUNS, LockingStatement, READY, TASKS, TASKS_AND_RUNS, until,
    with_first_tasks,
};
use statements::{NEW_GROUPS, NOW, OWNED, RUN_IDS, RUN_KEYS};

impl WantLoader<'_> {
    /// Tasks and runs by number, and the tasks that workers own: all in one order.
    pub(crate) async fn queue_tasks<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let takes_locks = self.takes_locks();
        let tasks = Vec::from_iter(sorted.tasks.iter().copied());
        let runs = Vec::from_iter(sorted.runs.iter().map(|run| run.0));
        let owners = if takes_locks { find_owners(sorted) } else { Vec::new() };
        if runs.is_empty() && owners.is_empty() {
            if !tasks.is_empty() {
                let sql = TASKS.as_sql(takes_locks);
                self.queue_statement(trip, sql, vec![Box::new(tasks)], read_tasks).await?;
            }
            return Ok(());
        }
        let workers: Vec<i64> = owners.iter().map(|(worker, _)| worker.0 as i64).collect();
        let most: Vec<i64> = owners.iter().map(|(_, max)| i64::from(*max)).collect();
        let (sql, wanted) = (TASKS_AND_RUNS.as_sql(takes_locks), runs.clone());
        let parameters: Vec<Parameter> =
            vec![Box::new(tasks), Box::new(wanted), Box::new(workers), Box::new(most)];
        self.queue_statement(trip, sql, parameters, read_tasks).await?;
        if !runs.is_empty() {
            self.queue_statement(trip, ENDED_OF_RUNS, vec![Box::new(runs)], read_tasks).await?;
        }
        Ok(())
    }

    /// Loads tasks that are wanted by number and are not alive.
    pub(crate) async fn load_ended(
        &self,
        sorted: &SortedWants<'_>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        let tasks = sorted.tasks.iter().copied();
        let missing: Vec<i64> = tasks.filter(|task| !found.tasks.contains_key(task)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut trip = Trip::default();
        self.queue_statement(&mut trip, ENDED, vec![Box::new(missing)], read_tasks).await?;
        self.send_trip(trip, found).await
    }

    /// Tasks that are due, and tasks that can be claimed. By the clock of the store, tasks and limits that
    /// are due are found with the time.
    pub(crate) async fn queue_found_tasks<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        for &want in &sorted.others {
            let (until, max) = match want {
                Want::DueTasks { until, max } => (Some(*until), *max),
                Want::Now => {
                    self.queue_statement(trip, NOW, Vec::new(), read_clock).await?;
                    (None, DUE_MAX)
                }
                _ => continue,
            };
            let read = move |rows, found: &mut FoundRows| {
                let until = until.unwrap_or_else(|| found.store_time());
                read_found(&Want::DueTasks { until, max }, rows, found)
            };
            let sql = DUE.as_sql(self.takes_locks());
            self.queue_statement(trip, sql, due_parameters(until, max), read).await?;
        }
        if sorted.others.iter().any(|want| matches!(want, Want::Ready { .. })) {
            // The groups are read before the tasks: a task of a group that is not among them was
            // committed later.
            let (floor, catalog) = (self.catalog.group_floor(), self.catalog);
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                found.has_new_groups = catalog.add_groups(&rows)?;
                Ok(())
            };
            self.queue_statement(trip, NEW_GROUPS, vec![Box::new(floor)], read).await?;
            self.queue_ready(trip, sorted, found).await?;
        }
        Ok(())
    }

    /// Looks once more for tasks that can be claimed, now that more task groups are known.
    pub(crate) async fn find_ready_again(
        &self,
        sorted: &SortedWants<'_>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        found.lists.retain(|(want, _)| !matches!(want, Want::Ready { .. }));
        found.next_ready = None;
        let mut trip = Trip::default();
        self.queue_ready(&mut trip, sorted, found).await?;
        self.send_trip(trip, found).await
    }

    async fn queue_ready<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        for &want in &sorted.others {
            let Want::Ready { worker, max_weight, only_awaited, pauses, max } = want else {
                continue;
            };
            let number = worker.0 as i64;
            let Some(worker) = self.catalog.find_worker(*worker).await? else {
                found.add_answer(want.clone(), Loaded::Ordered(Vec::new()));
                continue;
            };
            let mut groups = self.catalog.find_served_groups(&worker);
            groups.retain(|group| group.weight <= *max_weight);
            let changes = PauseOverrides::new(pauses);
            groups.retain(|group| changes.find_queue(&group.queue) != Some(true));
            if groups.is_empty() || *max == 0 || changes.store == Some(true) {
                found.lists.push((want.clone(), Vec::new()));
                continue;
            }
            // The queue of a pause that the request ends does not count.
            let queue = |queue: &str| changes.find_queue(queue).is_none().then(|| queue.to_owned());
            let queues: Vec<Option<String>> =
                groups.iter().map(|group| queue(&group.queue)).collect();
            let numbers: Vec<i32> = groups.iter().map(|group| group.number).collect();
            let parameters: Vec<Parameter> = vec![
                Box::new(numbers),
                Box::new(queues),
                Box::new(open_gates(*only_awaited)),
                Box::new(changes.store == Some(false)),
                Box::new(i64::from(*max)),
                Box::new(number),
                Box::new(Vec::from_iter(sorted.tasks.iter().copied())),
            ];
            let read = |rows, found: &mut FoundRows| read_found(want, rows, found);
            self.queue_statement(trip, READY.as_sql(self.takes_locks()), parameters, read).await?;
        }
        Ok(())
    }

    /// Runs by id and by key, and the tasks that workers own where nothing is locked.
    pub(crate) async fn queue_look_ups<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let ids = sorted.pick_wants(|want| match want {
            Want::RunById(id) => Some(*id),
            _ => None,
        });
        if !ids.is_empty() {
            let uuids: Vec<Uuid> = ids.iter().map(|id| Uuid(id.as_u128())).collect();
            let read =
                move |rows: Vec<PgRow>, found: &mut FoundRows| read_run_ids(&ids, &rows, found);
            self.queue_statement(trip, RUN_IDS, vec![Box::new(uuids)], read).await?;
        }
        let keys = sorted.pick_wants(|want| match want {
            Want::RunByKey { queue, workflow, key } => Some((*want, queue, workflow, key)),
            _ => None,
        });
        if !keys.is_empty() {
            let queues: Vec<String> = keys.iter().map(|(_, queue, ..)| queue.to_string()).collect();
            let workflows: Vec<String> =
                keys.iter().map(|(_, _, workflow, _)| (*workflow).clone()).collect();
            let names: Vec<String> = keys.iter().map(|(.., key)| (*key).clone()).collect();
            let wants: Vec<&Want> = keys.into_iter().map(|(want, ..)| want).collect();
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                let mut runs: BTreeMap<i64, i64> = BTreeMap::new();
                for row in &rows {
                    runs.insert(row.try_get(0)?, row.try_get(1)?);
                }
                for (place, want) in (1..).zip(wants) {
                    let run = runs.get(&place).copied().map(RunKey);
                    found.add_answer(want.clone(), Loaded::Run(run));
                }
                Ok(())
            };
            let parameters: Vec<Parameter> =
                vec![Box::new(queues), Box::new(workflows), Box::new(names)];
            self.queue_statement(trip, RUN_KEYS, parameters, read).await?;
        }
        if !self.takes_locks() {
            for (worker, max) in find_owners(sorted) {
                let want = Want::OwnedBy { worker, max };
                let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                    let stored = rows.iter().map(read_task).collect::<Result<Vec<_>, _>>()?;
                    let owned = list_owned(stored.iter(), worker, max)?;
                    found.add_answer(want, Loaded::Owned(owned));
                    Ok(())
                };
                let parameters: Vec<Parameter> =
                    vec![Box::new(worker.0 as i64), Box::new(i64::from(max))];
                self.queue_statement(trip, OWNED, parameters, read).await?;
            }
        }
        Ok(())
    }

    /// The tasks that workers own, of those that were locked.
    pub(crate) fn answer_owned(
        &self,
        sorted: &SortedWants<'_>,
        tasks: &BTreeMap<i64, TaskColumns>,
    ) -> Result<Vec<(Want, Loaded)>, Error> {
        if !self.takes_locks() {
            return Ok(Vec::new());
        }
        let answer = |(worker, max)| {
            let owned = list_owned(tasks.values(), worker, max)?;
            Ok((Want::OwnedBy { worker, max }, Loaded::Owned(owned)))
        };
        find_owners(sorted).into_iter().map(answer).collect()
    }
}

/// The codes of the gates behind which tasks can be claimed.
pub(crate) fn open_gates(only_awaited: bool) -> Vec<i16> {
    let open = Gate::ALL.into_iter().filter(|gate| gate.is_open());
    let open = open.filter(|gate| !only_awaited || *gate == Gate::Awaited);
    open.map(|gate| gate.code().into()).collect()
}

/// Workers whose tasks are wanted, with how many.
fn find_owners(sorted: &SortedWants<'_>) -> Vec<(WorkerId, u32)> {
    sorted.pick_wants(|want| match want {
        Want::OwnedBy { worker, max } => Some((*worker, *max)),
        _ => None,
    })
}

fn list_owned<'s>(
    tasks: impl Iterator<Item = &'s TaskColumns>,
    worker: WorkerId,
    max: u32,
) -> Result<Vec<Owned>, Error> {
    let owned = tasks.filter(|task| task.worker == Some(worker.0 as i64)).take(max as usize);
    let view = |task: &TaskColumns| {
        let corrupt = |source| Error::Task { key: task.key, source };
        Ok(Owned {
            task: TaskKey(task.key),
            index: TaskIndex::from_u32(task.index as u32),
            fence: Fence(task.fence as u64),
            request: RequestId(task.request as u64),
            stopping: task.unpack_lifecycle().map_err(corrupt)?.columns.stopping.is_some(),
        })
    };
    owned.map(view).collect()
}

pub(crate) fn read_tasks(rows: Vec<PgRow>, found: &mut FoundRows) -> Result<(), Error> {
    for row in &rows {
        found.add_task(read_task(row)?);
    }
    Ok(())
}

/// Reads tasks that were found, and the first tasks of their runs. A task whose first one is missing is
/// left out: another transaction has locked it.
pub(crate) fn read_found(
    want: &Want,
    rows: Vec<PgRow>,
    found: &mut FoundRows,
) -> Result<(), Error> {
    let mut list = Vec::new();
    let mut firsts = BTreeSet::new();
    for row in &rows {
        let Some(is_listed) = row.try_get::<_, Option<bool>>(TASK_COLUMNS)? else {
            // Its place alone.
            found.next_ready = Some((row.try_get(9)?, row.try_get(0)?));
            continue;
        };
        let stored = read_task(row)?;
        if is_listed {
            list.push((stored.key, stored.first_task()));
        }
        if stored.is_first() {
            firsts.insert(stored.key);
        }
        found.add_task(stored);
    }
    list.retain(|(_, first)| firsts.contains(first));
    found.lists.push((want.clone(), list.into_iter().map(|(task, _)| task).collect()));
    Ok(())
}

/// The parameters of a statement that finds due rows: up to a time, or to that of the store.
pub(crate) fn due_parameters(until: Option<Timestamp>, max: u32) -> Vec<Parameter> {
    vec![Box::new(until.map(|until| until.as_micros())), Box::new(i64::from(max))]
}

fn read_clock(rows: Vec<PgRow>, found: &mut FoundRows) -> Result<(), Error> {
    let row = rows.first().expect("a clock has a time");
    let now = to_timestamp(row.try_get(0)?);
    found.now = Some(now);
    found.add_answer(Want::Now, Loaded::Time(now));
    Ok(())
}

fn read_run_ids(ids: &[RunId], rows: &[PgRow], found: &mut FoundRows) -> Result<(), Error> {
    let mut runs: BTreeMap<Uuid, i64> = BTreeMap::new();
    for row in rows {
        runs.insert(row.try_get(0)?, row.try_get(1)?);
    }
    for id in ids {
        let run = runs.get(&Uuid(id.as_u128())).copied().map(RunKey);
        found.add_answer(Want::RunById(*id), Loaded::Run(run));
    }
    Ok(())
}

/// Pauses that a request begins or ends: they count instead of those that are stored.
struct PauseOverrides<'p> {
    changes: &'p [PauseChange],
    /// Whether the store is paused from now on; `None` if that does not change.
    store: Option<bool>,
}

impl<'p> PauseOverrides<'p> {
    fn new(changes: &'p [PauseChange]) -> Self {
        let store = changes.iter().rfind(|change| change.scope == Scope::Store);
        PauseOverrides { changes, store: store.map(|change| change.begins) }
    }

    /// Whether a queue is paused from now on; `None` if that does not change.
    fn find_queue(&self, queue: &str) -> Option<bool> {
        let is_queue = |scope: &Scope| matches!(scope, Scope::Queue(name) if name == queue);
        let paused = is_paused_after(self.changes, is_queue, false);
        let is_changed = self.changes.iter().any(|change| is_queue(&change.scope));
        is_changed.then_some(paused)
    }
}
