//! Rows in memory as they are stored, in ranges: what an audit compares.

use super::{Lane, Memory};
use crate::limit::{Hold, LimitKey};
use crate::store::{Record, RunKey, Scope, TaskKey};
use crate::wait::{WaitId, WaitKind, Waiting};
use crate::want::{
    AuditWant, FiledKey, FiledTask, Loaded, SideTable, StoredLimit, StoredSignal, StoredTask,
    TaskGroup,
};
use std::collections::BTreeSet;
use std::ops::Range;

impl Memory {
    pub(super) fn load_stored(&self, want: &AuditWant) -> Loaded {
        match want {
            AuditWant::Tasks { tasks, max } => Loaded::StoredTasks(self.stored_tasks(tasks, *max)),
            AuditWant::Waits(tasks) => Loaded::StoredWaits(self.stored_waits(tasks)),
            AuditWant::Holds(tasks) => Loaded::StoredHolds(self.stored_holds(tasks)),
            AuditWant::Records(runs) => Loaded::Records(self.stored_records(runs)),
            AuditWant::Signals { from, max } => {
                Loaded::StoredSignals(self.stored_signals(*from, *max))
            }
            AuditWant::Limits { from, max } => {
                Loaded::StoredLimits(self.stored_limits(*from, *max))
            }
            AuditWant::Keys { from, run, max } => {
                Loaded::StoredKeys(self.stored_keys(from, *run, *max))
            }
            AuditWant::PausedRuns { from, max } => Loaded::Names(self.paused_runs(from, *max)),
            AuditWant::Notifications { from, max } => {
                let notifications = self.words.range(*from..).take(*max as usize);
                Loaded::StoredNotifications(notifications.copied().collect())
            }
            AuditWant::KnownWorkers => Loaded::WorkerIds(self.workers.keys().copied().collect()),
            AuditWant::RowOwners { table, owners, max } => {
                Loaded::Numbers(self.row_owners(*table, owners, *max))
            }
            AuditWant::ReadyAlike { task, max } => Loaded::TaskKeys(self.ready_alike(*task, *max)),
            // A run is pruned at once.
            AuditWant::PrunedTasks => Loaded::TaskRanges(Vec::new()),
        }
    }

    fn stored_tasks(&self, tasks: &Range<TaskKey>, max: u32) -> Vec<StoredTask> {
        let tasks = self.tasks.range(tasks.clone()).take(max as usize);
        let stored = tasks.map(|(key, (row, place))| {
            let (is_first, queue) = (row.head.is_some(), &self.head(row.run()).queue);
            let filed = FiledTask {
                row: row.clone(),
                place: place.clone(),
                group: Some(TaskGroup::new(queue, &row.plan, row.index)),
                workflow: is_first.then(|| row.plan.workflow().to_owned()),
                is_unrecorded: is_first && self.unrecorded.contains(&row.run()),
            };
            StoredTask { key: *key, index: row.index, content: Ok(filed) }
        });
        stored.collect()
    }

    fn stored_waits(&self, tasks: &Range<TaskKey>) -> Vec<(TaskKey, Option<Waiting>)> {
        let first = |task| (task, WaitId::new(WaitKind::Step, "", 0));
        let waits = self.waits.range(first(tasks.start)..first(tasks.end));
        waits.map(|((task, _), wait)| (*task, Some(wait.clone()))).collect()
    }

    fn stored_holds(&self, tasks: &Range<TaskKey>) -> Vec<(TaskKey, Hold)> {
        let first = |task| (task, LimitKey::new("", ""));
        let holds = self.holds.range(first(tasks.start)..first(tasks.end));
        holds.map(|((task, _), hold)| (*task, hold.clone())).collect()
    }

    fn stored_records(&self, runs: &Range<RunKey>) -> Vec<Record> {
        let numbers = self.runs.range(runs.clone()).flat_map(|(_, numbers)| numbers);
        numbers.map(|number| self.records[number].clone()).collect()
    }

    fn stored_signals(&self, from: u64, max: u32) -> Vec<StoredSignal> {
        let signals = self.signals.range(from..).take(max as usize);
        let stored = signals.map(|(&number, signal)| StoredSignal {
            number,
            run: signal.run,
            name: signal.name.clone(),
            taken_by: signal.taken_by,
        });
        stored.collect()
    }

    /// Limits have no numbers here; they are counted for the occasion.
    fn stored_limits(&self, from: i64, max: u32) -> Vec<StoredLimit> {
        let mut keys: BTreeSet<&LimitKey> = self.held.iter().map(|(limit, _)| limit).collect();
        keys.extend(self.behind.keys().chain(self.limit_alarms.keys()));
        let numbered = (0..).zip(keys).skip_while(|(number, _)| *number < from);
        let stored = numbered.map(|(number, key)| StoredLimit {
            number,
            key: key.clone(),
            in_use: self.units_of(key),
            holders: self.held_by(key).count() as u32,
            most: None,
            alarm: self.limit_alarms.get(key).copied(),
        });
        stored.take(max as usize).collect()
    }

    fn stored_keys(
        &self,
        from: &FiledKey,
        run: Option<RunKey>,
        max: u32,
    ) -> Vec<(FiledKey, RunKey)> {
        let keys = self.keys.range(from..);
        let keys = keys.filter(|(_, found)| run.is_none_or(|run| run == **found));
        keys.take(max as usize).map(|(key, run)| (key.clone(), *run)).collect()
    }

    fn paused_runs(&self, from: &str, max: u32) -> Vec<String> {
        let names = self.pauses.keys().filter_map(|scope| match scope {
            Scope::Run(run) => Some(run.to_string()),
            _ => None,
        });
        let names: BTreeSet<_> = names.filter(|name| name.as_str() >= from).collect();
        names.into_iter().take(max as usize).collect()
    }

    fn row_owners(&self, table: SideTable, owners: &Range<i64>, max: u32) -> Vec<i64> {
        let tasks = TaskKey(owners.start)..TaskKey(owners.end);
        let runs = RunKey(owners.start)..RunKey(owners.end);
        let mut found: Vec<i64> = match table {
            SideTable::Payloads => {
                let payloads = self.payloads.range((tasks.start, 0)..(tasks.end, 0));
                payloads.map(|((task, _), _)| task.0).collect()
            }
            SideTable::Waits => self.stored_waits(&tasks).iter().map(|(task, _)| task.0).collect(),
            SideTable::Holds => self.stored_holds(&tasks).iter().map(|(task, _)| task.0).collect(),
            SideTable::NotifiedTasks => self.words.iter().map(|(_, task)| task.0).collect(),
            SideTable::Records => {
                let runs = self.runs.range(runs).filter(|(_, records)| !records.is_empty());
                runs.map(|(run, _)| run.0).collect()
            }
            SideTable::Signals => {
                self.sent.range((runs.start, 0)..(runs.end, 0)).map(|(run, _)| run.0).collect()
            }
            SideTable::Keys => self.keys.values().map(|run| run.0).collect(),
            SideTable::LimitHolds | SideTable::RateEvents => Vec::new(),
            SideTable::WorkerQueues | SideTable::WorkerTasks => {
                self.workers.keys().map(|worker| worker.0 as i64).collect()
            }
            SideTable::NotifiedWorkers => {
                self.words.iter().map(|(worker, _)| worker.0 as i64).collect()
            }
        };
        found.retain(|owner| owners.contains(owner));
        found.sort_unstable();
        found.dedup();
        found.truncate(max as usize);
        found
    }

    fn ready_alike(&self, task: TaskKey, max: u32) -> Vec<TaskKey> {
        let Some((row, _)) = self.tasks.get(&task) else { return Vec::new() };
        let (queue, lane) = (&self.head(row.run()).queue, Lane::of(row));
        let ready = self.open.iter().filter_map(|open| open.get(queue)?.get(&lane)).flatten();
        ready.map(|&(_, task)| task).take(max as usize).collect()
    }
}
