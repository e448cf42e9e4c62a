//! An audit over rows that were made for it.

use super::{Auditor, Finding};
use crate::graph::{Graph, Node, OnFailure, TaskIndex};
use crate::lifecycle::Life;
use crate::plan::{Plan, TaskPlan};
use crate::rows::{Head, Row};
use crate::store::{RequestId, RunKey, TaskKey};
use crate::wait::{WaitId, WaitKind, Waiting};
use crate::want::{AuditWant, FiledTask, Loaded, Loader, StoredTask, TaskGroup, Want};
use crate::{RunId, Timestamp};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// Rows by number, and what a loader was asked for.
#[derive(Default)]
struct Rows {
    tasks: Vec<StoredTask>,
    waits: Vec<(TaskKey, Waiting)>,
    pruned: Vec<Range<TaskKey>>,
    /// The waits of a cycle were over when it was looked at again.
    has_edges: bool,
    /// Answers this many wants and stops at the next.
    stop_after: Option<usize>,
    loaded: Vec<(Range<TaskKey>, usize)>,
}

#[derive(Debug, PartialEq)]
struct Stopped;

impl Rows {
    /// Adds a run of tasks that are all ready.
    fn add_run(&mut self, key: i64, tasks: u32) {
        let nodes = (0..tasks).map(|number| Node::new(number.to_string()));
        let graph = Graph::new(nodes).expect("no task depends on another");
        let planned = vec![TaskPlan::default(); tasks as usize];
        let plan = Arc::new(Plan::new("w", graph, OnFailure::default(), planned));
        let head = Head {
            id: RunId::from_u128(key as u128),
            queue: "q".into(),
            priority: 0,
            key: None,
            parent: None,
            retry_of: None,
            not_before: None,
            submitted_at: NOW,
            paused_at: None,
            cancelled: false,
            failing: false,
            open: tasks,
            awaited: true,
            ended: None,
            depth: 0,
        };
        for index in (0..tasks).map(TaskIndex::from_u32) {
            let row = Row {
                key: RunKey(key).task(index),
                index,
                plan: plan.clone(),
                life: Life::ready(NOW, NOW),
                request: RequestId(1),
                ended_at: None,
                has_waits: true,
                open_parents: 0,
                has_inserts_above: false,
                behind: None,
                head: (index.as_u32() == 0).then(|| Box::new(head.clone())),
            };
            let filed = FiledTask {
                place: row.place(&head, NOW, Duration::ZERO),
                group: Some(TaskGroup::new(&head.queue, &plan, index)),
                workflow: None,
                is_unrecorded: false,
                row,
            };
            let key = filed.row.key;
            self.tasks.push(StoredTask { key, index, content: Ok(filed) });
        }
    }

    fn add_wait(&mut self, task: i64, run: i64) {
        let id = WaitId::new(WaitKind::Run, run.to_string(), 0);
        let wait = Waiting { run: Some(RunKey(run)), ..Waiting::new(id, "".into(), NOW) };
        self.waits.push((TaskKey(task), wait));
    }

    fn load_tasks(&mut self, range: &Range<TaskKey>, max: u32) -> Vec<StoredTask> {
        let tasks = self.tasks.iter().filter(|task| range.contains(&task.key));
        let tasks: Vec<_> = tasks.take(max as usize).cloned().collect();
        if max > 1 {
            self.loaded.push((range.clone(), tasks.len()));
        }
        tasks
    }

    fn audit(&mut self) -> Vec<Finding> {
        let mut auditor = Auditor::new(None);
        while !auditor.is_done() {
            auditor.take_step(self).expect("it stops only when asked to");
        }
        auditor.into_findings()
    }
}

impl Loader for Rows {
    type Stop = Stopped;

    fn load(&mut self, want: &Want) -> Result<Loaded, Stopped> {
        if let Some(left) = &mut self.stop_after {
            *left = left.checked_sub(1).ok_or(Stopped)?;
        }
        Ok(match want {
            Want::PauseStart(_) => Loaded::Instant(None),
            Want::EdgesFrom { run, .. } => {
                let waits = self.waits.iter().filter(|(task, _)| self.has_edges && task.0 == run.0);
                let edge = |(task, wait): &(TaskKey, Waiting)| {
                    (*task, wait.id.clone(), wait.run.expect("it is for a run"))
                };
                Loaded::Edges(waits.map(edge).collect())
            }
            Want::Audit(want) => match want {
                AuditWant::Tasks { tasks, max } => {
                    Loaded::StoredTasks(self.load_tasks(tasks, *max))
                }
                AuditWant::Waits(tasks) => {
                    let waits = self.waits.iter().filter(|(task, _)| tasks.contains(task));
                    Loaded::StoredWaits(
                        waits.map(|(task, wait)| (*task, Some(wait.clone()))).collect(),
                    )
                }
                AuditWant::Holds(_) => Loaded::StoredHolds(Vec::new()),
                AuditWant::Records(_) => Loaded::Records(Vec::new()),
                AuditWant::Signals { .. } => Loaded::StoredSignals(Vec::new()),
                AuditWant::Limit(_) => Loaded::StoredLimits(Vec::new()),
                AuditWant::Limits { .. } => Loaded::StoredLimits(Vec::new()),
                AuditWant::Keys { .. } => Loaded::StoredKeys(Vec::new()),
                AuditWant::PausedRuns { .. } => Loaded::Names(Vec::new()),
                AuditWant::Notifications { .. } => Loaded::StoredNotifications(Vec::new()),
                AuditWant::KnownWorkers => Loaded::WorkerIds(Vec::new()),
                AuditWant::RowOwners { .. } => Loaded::Numbers(Vec::new()),
                AuditWant::ReadyAlike { .. } => Loaded::TaskKeys(Vec::new()),
                AuditWant::PrunedTasks => Loaded::TaskRanges(self.pruned.clone()),
            },
            other => panic!("an audit of such rows does not ask for {other:?}"),
        })
    }
}

#[test]
fn a_step_takes_about_a_thousand_tasks_and_no_part_of_a_run() {
    let mut rows = Rows::default();
    rows.add_run(1, 999);
    rows.add_run(1_001, 2);
    rows.add_run(2_000, 2_500);
    rows.add_run(9_000, 1);
    assert_eq!(rows.audit(), []);
    let loaded: Vec<_> = rows.loaded.iter().map(|(range, count)| (range.start.0, *count)).collect();
    let first = (i64::MIN, 1_000);
    assert_eq!(loaded, [first, (1_001, 1_000), (2_000, 1_000), (2_000, 2_500), (4_500, 1)]);
}

#[test]
fn a_damaged_task_is_named_and_in_the_way_of_no_other() {
    let mut rows = Rows::default();
    (1..=3).for_each(|run| rows.add_run(run, 1));
    rows.tasks[1].content = Err("task 2 is damaged".to_owned());
    let Ok(last) = &mut rows.tasks[2].content else { panic!("only one is damaged") };
    last.group = None;
    let findings = rows.audit();
    let rules: Vec<_> = findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["columns", "whole", "lane"]);
    assert_eq!(findings[0].what, "task 2 is damaged");
}

#[test]
fn tasks_of_a_run_that_is_being_pruned_are_passed_over() {
    let mut rows = Rows::default();
    rows.add_run(1, 1);
    rows.add_run(10, 5);
    rows.add_run(20, 5);
    rows.add_run(30, 1);
    rows.tasks.retain(|task| task.key != TaskKey(10) && task.key != TaskKey(20));
    assert!(!rows.audit().is_empty(), "their first tasks are gone");
    rows.pruned = vec![TaskKey(10)..TaskKey(15), TaskKey(20)..TaskKey(25)];
    assert_eq!(rows.audit(), []);
    let Ok(last) = &mut rows.tasks[9].content else { panic!("none is damaged") };
    last.group = None;
    assert_eq!(rows.audit().len(), 1, "the audit goes on behind them");
}

#[test]
fn an_audit_ends_after_a_thousand_findings() {
    let mut rows = Rows::default();
    (1..=5_000).for_each(|run| rows.add_run(run, 1));
    for task in &mut rows.tasks {
        task.content = Err("damaged".to_owned());
    }
    assert!(rows.audit().len() < 3_000);
    assert_eq!(rows.loaded.len(), 1);
}

#[test]
fn a_circle_is_a_finding_only_if_it_is_one_at_one_instant() {
    let mut rows = Rows::default();
    rows.add_run(1, 1);
    rows.add_run(2, 1);
    rows.add_wait(1, 2);
    rows.add_wait(2, 1);
    assert_eq!(rows.audit(), []);
    rows.has_edges = true;
    let findings = rows.audit();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].to_string(), "cycle: run 1 waits for run 2 waits for run 1");
}

#[test]
fn a_step_that_was_stopped_can_be_taken_again() {
    let mut rows = Rows::default();
    rows.add_run(1, 1);
    rows.add_run(2, 1);
    rows.add_wait(1, 2);
    rows.add_wait(2, 1);
    rows.has_edges = true;
    let (mut auditor, mut stops) = (Auditor::new(None), 0);
    while !auditor.is_done() {
        for after in 0.. {
            rows.stop_after = Some(after);
            if auditor.take_step(&mut rows) == Ok(()) {
                break;
            }
            stops += 1;
        }
    }
    rows.stop_after = None;
    assert!(stops > 20, "every want was refused once");
    assert_eq!(auditor.into_findings(), rows.audit());
}
