//! Removing rows that nothing refers to: plans, task groups and queues without runs, limit keys without
//! tasks, and pauses that are over.
//!
//! A plan is not looked up from all tasks that may name it: no index stands on task rows for that. A
//! sweep walks the runs instead, one row of each, and *marks* the plans and task groups that they use;
//! then it walks the rows of plans and groups and removes those without a mark. Both go in short
//! [steps](Sweep); between two of them the caller holds the marks, and a sweep that is dropped has
//! changed nothing that matters.
//!
//! A run that is filed behind the walk is not marked. So plans, groups and queues carry the time at
//! which they were used last, and processes that remember their numbers need no message:
//!
//! - A process trusts a number for [`TRUST_MAX`] since it has last verified that the row is there. To
//!   verify is also to refresh the time of use, if that is older than [`FRESH_MAX`].
//! - A sweep removes a row only if it was not used for [`UNUSED_MIN`] when the sweep began. That is longer
//!   than both together, so every run that was filed by trust is stored when the walk begins.
//!
//! Numbers are never given again. Limit keys need no trust: the decision that uses one locks or reads
//! its row, and finds out there that it is gone.

use crate::Timestamp;
use crate::graph::TaskIndex;
use crate::keys::hash_bytes;
use crate::plan::Plan;
use crate::want::TaskGroup;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// A process trusts the number of a plan, group or queue for this long since it was verified.
pub const TRUST_MAX: Duration = Duration::from_secs(60 * 60);

/// A time of use that is not older is not refreshed: several processes that verify a number one after
/// the other write once.
pub const FRESH_MAX: Duration = Duration::from_secs(10 * 60);

/// Plans, groups and queues that were not used for this long when a sweep begins can go.
pub const UNUSED_MIN: Duration = Duration::from_secs(2 * 60 * 60);

/// Workers begin a sweep no sooner after the last one of the same store.
pub const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// Whether a number that was verified then can be used now. Not if the clock was set back since.
pub fn is_trusted(verified_at: Timestamp, now: Timestamp) -> bool {
    now >= verified_at && now.since(verified_at) < TRUST_MAX
}

/// Whether a time of use has to be refreshed.
pub fn is_stale(used_at: Timestamp, now: Timestamp) -> bool {
    now.since(used_at) >= FRESH_MAX
}

/// One step of a sweep.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// When the sweep began.
    pub began: Timestamp,
    /// It ends at once if another one of the store began after this.
    pub unless_since: Option<Timestamp>,
    /// Pauses that ended before go, if no open run needs them; none if this is `None`.
    pub pauses_before: Option<Timestamp>,
    /// How many rows a step looks at, about.
    pub max: u32,
    /// The rows that it works on.
    pub stage: SweepStage,
    /// From which number on.
    pub from: i64,
    /// The rows that runs use, as far as these were walked.
    pub marks: Arc<SweepMarks>,
}

/// The rows that a step of a sweep works on, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SweepStage {
    /// The beginning, which is noted.
    Begin,
    /// Runs, which are walked.
    Runs,
    /// Plans.
    Plans,
    /// Task groups.
    TaskGroups,
    /// Queues.
    Queues,
    /// Limits for keys, with their rate events.
    LimitKeys,
    /// Pauses of queues and of the store.
    Pauses,
}

impl SweepStage {
    const ALL: [SweepStage; 7] = [
        SweepStage::Begin,
        SweepStage::Runs,
        SweepStage::Plans,
        SweepStage::TaskGroups,
        SweepStage::Queues,
        SweepStage::LimitKeys,
        SweepStage::Pauses,
    ];

    fn next(self) -> Option<Self> {
        SweepStage::ALL.get(self as usize + 1).copied()
    }
}

/// The outcome of a step.
#[derive(Debug, Clone, Default)]
pub struct Swept {
    /// How many rows are gone.
    pub removed: u64,
    /// The next step; `None` if that was the last.
    pub next: Option<Sweep>,
}

/// A run as a sweep walks over it: any one of its rows.
#[derive(Debug, Clone)]
pub struct WalkedRun {
    /// The number of its plan.
    pub plan: i64,
    /// The number of the task group of this row.
    pub task_group: i64,
    /// When it was submitted, if it is open; the beginning of time if that cannot be read.
    pub open_since: Option<Timestamp>,
    /// From which number on the next run is found.
    pub next: i64,
}

/// A row that has a time of use.
#[derive(Debug, Clone)]
pub struct UsedRow<N> {
    /// Its number.
    pub number: i64,
    /// When it was last used.
    pub used_at: Timestamp,
    /// Its name.
    pub name: N,
}

impl Sweep {
    /// The first step.
    pub fn new(began: Timestamp, pauses_before: Option<Timestamp>) -> Self {
        Sweep {
            began,
            unless_since: None,
            pauses_before,
            max: crate::retention::PRUNE_MAX,
            stage: SweepStage::Begin,
            from: 0,
            marks: Arc::default(),
        }
    }

    /// A row that was used last before this can go.
    pub fn unused_before(&self) -> Timestamp {
        self.began - UNUSED_MIN
    }

    /// A pause can go that ended before this; `None` if none can.
    pub fn pauses_end(&self) -> Option<Timestamp> {
        // A run may be stored a moment after the time that its request has seen.
        let open_since = self.marks.open_since.unwrap_or(self.began).min(self.unused_before());
        Some(self.pauses_before?.min(open_since))
    }

    /// The marks, to be added to.
    pub fn marks_mut(&mut self) -> &mut SweepMarks {
        // Shared only while a step that changes rows is retried.
        Arc::make_mut(&mut self.marks)
    }

    /// The step after this one: from a number on, or in the next stage.
    pub fn next_step(mut self, removed: u64, from: Option<i64>) -> Swept {
        if let Some(from) = from {
            self.from = from;
        } else {
            let Some(stage) = self.stage.next() else { return Swept { removed, next: None } };
            (self.stage, self.from) = (stage, 0);
        }
        Swept { removed, next: Some(self) }
    }

    /// The step after one that has looked at some rows by number: they were the last if they are fewer
    /// than were asked for.
    pub fn after_rows<N>(self, rows: &[UsedRow<N>], removed: u64) -> Swept {
        let is_last = rows.len() < self.max as usize;
        let from = rows.last().filter(|_| !is_last).map(|row| row.number + 1);
        self.next_step(removed, from)
    }

    /// Those of some rows that can go: not used for long, and not marked.
    pub fn pick_unused<N>(
        &self,
        rows: &[UsedRow<N>],
        is_marked: impl Fn(&SweepMarks, &UsedRow<N>) -> bool,
    ) -> Vec<i64> {
        let can_go =
            |row: &&UsedRow<N>| row.used_at < self.unused_before() && !is_marked(&self.marks, row);
        rows.iter().filter(can_go).map(|row| row.number).collect()
    }
}

/// The plans, task groups and queues that runs use. Names stand as hashes: two that have the same hash
/// keep a row that could go.
#[derive(Debug, Clone, Default)]
pub struct SweepMarks {
    plans: HashSet<i64>,
    /// Plan and task group of rows that were looked at: the same ones mark nothing new.
    walked: HashSet<(i64, i64)>,
    groups: HashSet<u64>,
    queues: HashSet<u64>,
    /// Queues of which all groups stay: a plan in them cannot be read.
    kept_queues: HashSet<u64>,
    /// When the oldest open run was submitted.
    open_since: Option<Timestamp>,
}

impl SweepMarks {
    /// Marks the plan of a run; whether its groups have to be marked as well.
    pub fn mark_run(&mut self, run: &WalkedRun) -> bool {
        if let Some(since) = run.open_since {
            self.open_since = Some(self.open_since.map_or(since, |oldest| oldest.min(since)));
        }
        self.plans.insert(run.plan);
        self.walked.insert((run.plan, run.task_group))
    }

    /// Marks all task groups of a plan in a queue, and the queue.
    pub fn mark_groups(&mut self, queue: &Arc<str>, plan: Option<&Plan>) {
        self.queues.insert(hash_name(queue));
        let Some(plan) = plan else {
            self.kept_queues.insert(hash_name(queue));
            return;
        };
        let count = if plan.items_of().is_some() { 1 } else { plan.task_count() as u32 };
        let groups = (0..count).map(|task| TaskGroup::new(queue, plan, TaskIndex::from_u32(task)));
        self.groups.extend(groups.map(|group| hash_group(&group)));
    }

    /// Whether a run has this plan.
    pub fn has_plan(&self, plan: i64) -> bool {
        self.plans.contains(&plan)
    }

    /// Whether a run may have tasks of this group.
    pub fn has_group(&self, group: &TaskGroup) -> bool {
        self.groups.contains(&hash_group(group))
            || self.kept_queues.contains(&hash_name(&group.queue))
    }

    /// Whether a run is in this queue.
    pub fn has_queue(&self, queue: &str) -> bool {
        self.queues.contains(&hash_name(queue))
    }
}

fn hash_name(name: &str) -> u64 {
    hash_bytes(name.as_bytes())
}

fn hash_group(group: &TaskGroup) -> u64 {
    let TaskGroup { queue, workflow, task, weight } = group;
    // No name has a byte 255 in it.
    let names = [queue.as_bytes(), workflow.as_bytes(), task.as_bytes(), &weight.to_le_bytes()];
    hash_bytes(&names.join(&255))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000) + Duration::from_secs(seconds)
    }

    #[test]
    fn number_is_trusted_for_less_time_than_its_row_stays_without_use() {
        assert!(is_trusted(at(0), at(3_599)) && !is_trusted(at(0), at(3_600)));
        assert!(!is_trusted(at(1), at(0)), "the clock was set back");
        assert!(!is_stale(at(0), at(599)) && is_stale(at(0), at(600)));
        assert!(TRUST_MAX + FRESH_MAX < UNUSED_MIN);
    }

    #[test]
    fn row_goes_only_without_mark_and_long_after_its_last_use() {
        let mut sweep = Sweep::new(at(10_000), None);
        let run = WalkedRun { plan: 1, task_group: 1, open_since: None, next: 2 };
        assert!(sweep.marks_mut().mark_run(&run), "its groups are not marked yet");
        assert!(!sweep.marks_mut().mark_run(&run));
        let row = |number, used_at| UsedRow { number, used_at, name: () };
        let rows = [row(1, at(0)), row(2, at(0)), row(3, at(2_801)), row(4, at(2_799))];
        let unused = sweep.pick_unused(&rows, |marks, row| marks.has_plan(row.number));
        assert_eq!(unused, [2, 4]);
    }

    #[test]
    fn pauses_stay_that_an_open_run_may_need() {
        let mut sweep = Sweep::new(at(100_000), Some(at(50_000)));
        assert_eq!(sweep.pauses_end(), Some(at(50_000)));
        let open = |since| WalkedRun { plan: 1, task_group: 1, open_since: Some(since), next: 2 };
        sweep.marks_mut().mark_run(&open(at(40_000)));
        sweep.marks_mut().mark_run(&open(at(60_000)));
        assert_eq!(sweep.pauses_end(), Some(at(40_000)));
        sweep.pauses_before = None;
        assert_eq!(sweep.pauses_end(), None);
    }
}
