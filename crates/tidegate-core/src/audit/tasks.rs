//! Runs with their tasks, and the rows that are stored beside these.

use super::auditor::AuditStep;
use super::repair::Stray;
use super::{Repair, open_lists, run, waits};
use crate::decision::parent_failed;
use crate::graph::TaskIndex;
use crate::lifecycle::{Life, WorkerId};
use crate::limit::{self, Hold, LimitKey};
use crate::rows::{Payload, Place, Row};
use crate::store::{Finding, Record, RunKey, Scope, TaskKey};
use crate::wait::Waiting;
use crate::want::{FiledKey, FiledTask, Loader, LookUps, SideTable, StoredTask, TaskGroup};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Tasks that are looked at in one step, unless a run has more.
const TASKS: u32 = 1_000;

/// Orphans of one kind that are named in one step.
pub(super) const ORPHANS_MAX: u32 = 1_000;

/// All tasks come before this one.
const END: TaskKey = TaskKey(i64::MAX);

/// Rows that are stored beside the tasks of a step.
struct SideRows {
    workers: BTreeSet<WorkerId>,
    records: BTreeMap<RunKey, Vec<Record>>,
    waits: BTreeMap<TaskKey, Vec<Waiting>>,
    holds: BTreeMap<TaskKey, Vec<Hold>>,
}

impl<L: Loader> AuditStep<'_, L> {
    /// Looks at the runs from this number on; the number with which the next step begins, if there is
    /// one.
    pub(super) fn check_tasks(&mut self, from: TaskKey) -> Result<Option<TaskKey>, L::Stop> {
        let within = self.skip_pruned(from)?;
        let (tasks, range) = self.load_whole_runs(within)?;
        let next = Some(range.end).filter(|next| *next < END);
        self.check_orphans(&range, &tasks)?;
        let mut side_rows = self.load_side_rows(range)?;
        let mut tasks = tasks.into_iter().peekable();
        while let Some(run) = tasks.peek().map(StoredTask::run) {
            let of_run = std::iter::from_fn(|| tasks.next_if(|task| task.run() == run));
            let of_run: Vec<_> = of_run.collect();
            self.check_run(run, of_run, &mut side_rows)?;
        }
        Ok(next)
    }

    /// The numbers from this one on, up to the next that belong to a run which is being pruned.
    fn skip_pruned(&mut self, from: TaskKey) -> Result<Range<TaskKey>, L::Stop> {
        let mut within = from..END;
        for pruned in self.loader.load_pruned_tasks()? {
            if pruned.contains(&within.start) {
                within.start = pruned.end;
            } else if pruned.start > within.start {
                within.end = pruned.start;
                break;
            }
        }
        Ok(within)
    }

    /// The first tasks of a range, no run cut in two, and the range in which they are all there is.
    fn load_whole_runs(
        &mut self,
        within: Range<TaskKey>,
    ) -> Result<(Vec<StoredTask>, Range<TaskKey>), L::Stop> {
        let mut tasks = self.loader.load_stored_tasks(within.clone(), TASKS)?;
        let Some(last) = tasks.last().filter(|_| tasks.len() >= TASKS as usize) else {
            return Ok((tasks, within));
        };
        // The last run may go on behind. If it is the only one, it is loaded as a whole.
        let (run, after_last) = (last.run(), TaskKey(last.key.0.saturating_add(1)));
        let cut = tasks.iter().position(|task| task.run() == run).unwrap_or_default();
        if cut > 0 {
            let end = tasks[cut].key;
            tasks.truncate(cut);
            return Ok((tasks, within.start..end));
        }
        let planned = tasks.iter().find_map(|task| Some(task.as_row()?.plan.task_count()));
        let end = TaskKey(run.0.saturating_add_unsigned(planned.unwrap_or_default() as u64));
        let range = within.start..end.max(after_last).min(within.end);
        let tasks = self.loader.load_stored_tasks(range.clone(), u32::MAX)?;
        Ok((tasks, range))
    }

    fn check_orphans(
        &mut self,
        range: &Range<TaskKey>,
        tasks: &[StoredTask],
    ) -> Result<(), L::Stop> {
        use SideTable::{Holds, Payloads, Records, Signals, Waits};
        let existing: BTreeSet<i64> = tasks.iter().map(|task| task.key.0).collect();
        let max = ORPHANS_MAX.saturating_add(u32::try_from(existing.len()).unwrap_or(u32::MAX));
        for table in [Payloads, Records, Waits, Signals, Holds] {
            let owners = self.loader.load_row_owners(table, range.start.0..range.end.0, max)?;
            for owner in owners.into_iter().filter(|owner| !existing.contains(owner)) {
                let what = format!("a {} of task {owner}, which does not exist", table.row_name());
                let stray = match table {
                    Records | Signals => Stray::Run(RunKey(owner)),
                    _ => Stray::Task(TaskKey(owner)),
                };
                self.complain_of_orphan("stray", what, stray);
            }
        }
        Ok(())
    }

    pub(super) fn complain_of_orphan(&mut self, rule: &'static str, what: String, stray: Stray) {
        self.findings.push(Finding::new(rule, what).repaired_by(Repair::Stray(stray)));
    }

    fn load_side_rows(&mut self, range: Range<TaskKey>) -> Result<SideRows, L::Stop> {
        let workers = self.loader.load_known_workers()?.into_iter().collect();
        let mut records: BTreeMap<RunKey, Vec<Record>> = BTreeMap::new();
        let runs = RunKey(range.start.0)..RunKey(range.end.0);
        for record in self.loader.load_stored_records(runs)? {
            records.entry(record.run).or_default().push(record);
        }
        let mut waits: BTreeMap<TaskKey, Vec<Waiting>> = BTreeMap::new();
        for (task, wait) in self.loader.load_stored_waits(range.clone())? {
            match wait {
                Some(wait) => waits.entry(task).or_default().push(wait),
                None => self
                    .complain("columns", format!("task {} has a wait that makes no sense", task.0)),
            }
        }
        let mut holds: BTreeMap<TaskKey, Vec<Hold>> = BTreeMap::new();
        for (task, hold) in self.loader.load_stored_holds(range)? {
            holds.entry(task).or_default().push(hold);
        }
        Ok(SideRows { workers, records, waits, holds })
    }

    fn check_run(
        &mut self,
        key: RunKey,
        stored: Vec<StoredTask>,
        side_rows: &mut SideRows,
    ) -> Result<(), L::Stop> {
        let mut tasks: Vec<(Row, Place)> = Vec::with_capacity(stored.len());
        let mut groups = Vec::with_capacity(stored.len());
        let (mut workflow, mut is_unrecorded) = (None, false);
        for task in stored {
            match task.content {
                Ok(filed) => {
                    let FiledTask { row, place, group, .. } = filed;
                    if row.head.is_some() {
                        (workflow, is_unrecorded) = (filed.workflow, filed.is_unrecorded);
                    }
                    tasks.push((row, place));
                    groups.push(group);
                }
                Err(what) => self.complain("columns", what),
            }
        }
        let failing = self.find_failing_lists(&tasks)?;
        let records = side_rows.records.remove(&key).unwrap_or_default();
        let records = (!is_unrecorded).then_some(&records[..]);
        let is_known = |worker| side_rows.workers.contains(&worker);
        self.findings.extend(run(&tasks, &failing, records, is_known, self.now));
        if let Some((first, _)) = tasks.first() {
            self.check_groups(&tasks, groups);
            self.check_workflow(first, workflow.as_deref());
            self.check_pause(first)?;
            self.check_family(first)?;
            self.check_key(first)?;
        }
        for (row, _) in &tasks {
            let its_waits = side_rows.waits.remove(&row.key).unwrap_or_default();
            let holds = side_rows.holds.remove(&row.key).unwrap_or_default();
            self.findings.extend(waits(row, &its_waits, &holds));
            for wait in &its_waits {
                self.check_wait(row, wait)?;
            }
            self.check_uses(row, &holds)?;
        }
        Ok(())
    }

    /// The lists that have not ended and whose runs of items are marked as failing.
    fn find_failing_lists(&mut self, tasks: &[(Row, Place)]) -> Result<Vec<TaskIndex>, L::Stop> {
        let mut failing = Vec::new();
        for (list, items) in open_lists(tasks) {
            let Some(items) = self.loader.load_run(items)? else { continue };
            let first = self.loader.find_stored_task(TaskKey(items.0))?;
            if first.as_ref().and_then(StoredTask::as_head).is_some_and(|head| head.failing) {
                failing.push(list);
            }
        }
        Ok(failing)
    }

    fn check_groups(&mut self, tasks: &[(Row, Place)], groups: Vec<Option<TaskGroup>>) {
        let Some(head) = tasks.first().and_then(|(first, _)| first.head.as_deref()) else { return };
        for ((row, _), group) in tasks.iter().zip(groups) {
            let right = TaskGroup::new(&head.queue, &row.plan, row.index);
            if group.as_ref() != Some(&right) {
                let (found, right) = (group.as_ref().map(TaskGroup::as_names), right.as_names());
                let what =
                    format!("task {} stands in {found:?}, and should in {right:?}", row.key.0);
                self.findings.push(Finding::new("lane", what).repaired_by(Repair::Task(row.key)));
            }
        }
    }

    /// A run is listed under the workflow of its plan. Its queue is known from nothing else, so that
    /// only a person can put this right.
    fn check_workflow(&mut self, first: &Row, workflow: Option<&str>) {
        let right = first.plan.workflow();
        if workflow.is_some_and(|found| found != right) {
            let run = first.run().0;
            self.complain(
                "lane",
                format!("run {run} is filed under {workflow:?}, and is a {right:?}"),
            );
        }
    }

    fn check_pause(&mut self, first: &Row) -> Result<(), L::Stop> {
        let Some(head) = first.head.as_deref().filter(|head| head.ended.is_none()) else {
            return Ok(());
        };
        let is_paused = self.loader.load_pause_start(&Scope::Run(head.id))?.is_some();
        if is_paused != head.paused_at.is_some() {
            let what = if is_paused { "has a pause and is not paused" } else { "lacks its pause" };
            let finding = Finding::new("pause", format!("run {} {what}", head.id));
            self.findings.push(finding.repaired_by(Repair::Run(first.run())));
        }
        Ok(())
    }

    /// A run and the task that has begun it.
    fn check_family(&mut self, first: &Row) -> Result<(), L::Stop> {
        let head = first.head.as_deref().filter(|head| head.ended.is_none());
        if let Some(parent) = head.and_then(|head| head.parent) {
            let parent = self.loader.find_stored_task(parent)?;
            let parent = parent.as_ref().and_then(StoredTask::as_row);
            self.findings.extend(check_parent(first, parent.map(|parent| &parent.life)));
        }
        Ok(())
    }

    /// Whether a run is found under its key.
    fn check_key(&mut self, first: &Row) -> Result<(), L::Stop> {
        let Some(filed) = FiledKey::new(first) else { return Ok(()) };
        let FiledKey { queue, workflow, key } = &filed;
        let other = match self.loader.load_run_by_key(queue, workflow, key)? {
            Some(run) if run == first.run() => return Ok(()),
            Some(other) => self.loader.find_stored_task(TaskKey(other.0))?,
            None => None,
        };
        let other = other.as_ref().and_then(|other| FiledKey::new(other.as_row()?));
        let is_taken = other.as_ref() == Some(&filed);
        let what = if is_taken { "which another has too" } else { "and is not found under it" };
        let what = format!("run {} has the key \"{key}\", {what}", first.run().0);
        let mut finding = Finding::new("key", what);
        if !is_taken {
            finding = finding.repaired_by(Repair::Run(first.run()));
        }
        self.findings.push(finding);
        Ok(())
    }

    /// A wait, and the run or the signal that it names.
    fn check_wait(&mut self, row: &Row, wait: &Waiting) -> Result<(), L::Stop> {
        let (task, id) = (row.key.0, &wait.id);
        if let Some(run) = wait.run.filter(|_| wait.is_open() && id.kind.is_for_run()) {
            self.waits_for.entry(row.run()).or_default().insert(run);
            let first = self.loader.find_stored_task(TaskKey(run.0))?;
            let head = first.as_ref().and_then(StoredTask::as_head);
            let is_right = head.is_some_and(|head| head.ended.is_none() && head.awaited);
            // That a row is damaged is a finding of its own.
            let is_damaged = first.as_ref().is_some_and(|first| first.content.is_err());
            if !is_right && !is_damaged {
                let what =
                    format!("task {task} has {id}, and run {} is over, or not marked", run.0);
                let mut finding = Finding::new("awaited", what);
                finding.repair = first.is_some().then_some(Repair::Run(run));
                self.findings.push(finding);
            }
        }
        if let Some(number) = wait.signal {
            let found = self.loader.load_stored_signals(number, 1)?;
            let found = found.first().filter(|signal| signal.number == number);
            if found.is_some_and(|signal| signal.taken_by != Some(row.key)) {
                let what =
                    format!("task {task} has {id}, ended by signal {number}, not taken by it");
                self.complain("signal", what);
            }
        }
        Ok(())
    }

    /// Whether the limits that a task holds and on which it is blocked are those that it uses.
    fn check_uses(&mut self, row: &Row, holds: &[Hold]) -> Result<(), L::Stop> {
        if holds.is_empty() && row.behind.is_none() {
            return Ok(());
        }
        let (task, used) = (row.key.0, self.find_uses(row)?);
        let mut unplanned = Vec::new();
        for Hold { limit, units, .. } in holds {
            if !used.contains(&(limit.clone(), *units)) {
                unplanned.push(format!("task {task} holds {units} of {limit}, unplanned"));
            }
        }
        if let Some((limit, _)) = &row.behind
            && !used.iter().any(|(used, _)| used == limit)
        {
            unplanned.push(format!("task {task} stands behind {limit}, unplanned"));
        }
        let finding = |what| Finding::new("uses", what).repaired_by(Repair::Task(row.key));
        self.findings.extend(unplanned.into_iter().map(finding));
        Ok(())
    }

    /// The limits that a task uses, and how many units of each.
    pub(super) fn find_uses(&mut self, row: &Row) -> Result<Vec<(LimitKey, u32)>, L::Stop> {
        let kept = self.loader.load_payload(row.key, Payload::Keys)?;
        Ok(limit::uses(row.planned(), kept.as_deref()))
    }
}

/// Every contradiction between a run, by its first task, and the task that has begun it, as that
/// stands.
pub fn check_parent(first: &Row, parent: Option<&Life>) -> Vec<Finding> {
    let Some(head) = first.head.as_deref().filter(|head| head.ended.is_none()) else {
        return Vec::new();
    };
    let Some(task) = head.parent else { return Vec::new() };
    let (id, task) = (head.id, task.0);
    match parent {
        Some(parent) if parent_failed(parent) => {
            let kind = parent.state.kind();
            let what = format!("run {id} goes on, and task {task}, which has begun it, has {kind}");
            vec![Finding::new("family", what).repaired_by(Repair::Run(first.run()))]
        }
        // One that is gone has succeeded, and was pruned.
        _ => Vec::new(),
    }
}
