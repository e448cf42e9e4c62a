//! The wants that follow from the rows of tasks.

use super::{Foresight, RunRole, TaskRole};
use crate::graph::{TaskIndex, When};
use crate::lifecycle::{Event, Kind, Life, State};
use crate::plan::Plan;
use crate::rows::{Row, is_planned_plain};
use crate::store::{Change, RunKey, TaskKey};
use crate::wait::{Awaited, WaitId, WaitKind, WaitOp, Waiting};
use crate::want::Want;
use std::sync::Arc;
use std::time::Duration;

/// Parents of a task that are looked at first when one of them has ended; then several times as many.
const PARENTS_FIRST: usize = 4;

impl Foresight<'_> {
    pub(super) fn look_at_row(&mut self, row: &Row) {
        let (key, index, run) = (row.key, row.index, row.run());
        let (plan, life, behind) = (row.plan.clone(), row.life.clone(), row.behind.clone());
        self.rows.insert(key, Arc::new(Row { plan, life, behind, head: None, ..*row }));
        match &row.head {
            Some(head) => self.add_run(run, row.plan.clone(), head),
            None => self.join_first(run),
        }
        if self.has_run_role(run, RunRole::Cancelled) {
            self.task_roles.insert((key, TaskRole::Cancelled));
        }
        self.look_at_effects(key);
        for &child in row.plan.graph().children(index) {
            if self.has_role(run.task(child), TaskRole::Below) {
                self.judge_child(run, child, &row.plan);
            }
        }
    }

    /// Foresees the rows that the request's effects on a task lead to. Doing so again changes nothing.
    pub(super) fn look_at_effects(&mut self, task: TaskKey) {
        let Some(row) = self.rows.get(&task).cloned() else { return };
        let run = row.run();
        for change in self.changes.get(&task).cloned().unwrap_or_default() {
            self.look_at_wait_ops(&row, change);
        }
        if let Some(begun) = self.begun_by.get(&task).filter(|_| row.has_waits).cloned() {
            begun.into_iter().for_each(|wait| self.join_want(Want::Wait(task, wait.clone())));
        }
        if self.has_role(task, TaskRole::Above) {
            self.bear_on_run(run, RunRole::Above);
        }
        if self.has_role(task, TaskRole::Below) {
            self.judge_child(run, row.index, &row.plan);
        }
        if self.has_role(task, TaskRole::Due)
            && let Some(since) = row.life.queues_since(&row.planned().rules)
        {
            self.bear_on_run(run, RunRole::QueuedSince(since));
        }
        if self.has_run_role(run, RunRole::Paused) {
            self.look_at_paused(&row);
        }
        if self.has_role(task, TaskRole::Opened) {
            self.bear_on_candidate(task, run);
        }
        if self.has_role(task, TaskRole::Candidate) {
            self.look_at_candidate(&row);
        }
        let to = self.life_after(&row);
        if to != row.life {
            self.look_at_transition(&row, &to);
        }
    }

    /// The life of a task after all that the request is known to do to it, but for a claim.
    fn life_after(&self, row: &Row) -> Life {
        // Without the time only the times in it are others.
        let now = self.now.unwrap_or_default();
        let rules = &row.planned().rules;
        let mut life = row.life.clone();
        for change in self.changes.get(&row.key).into_iter().flatten() {
            let step =
                |life: Life, event: &Event| Some(life.next(rules, event, now).ok()?.into_life());
            if life.fence == change.fence && life.owner().is_some() {
                life = change.events.iter().try_fold(life.clone(), step).unwrap_or(life);
            }
        }
        let clock = Event::Clock { stood_still: Duration::ZERO };
        let cancel = Event::Cancel { by: crate::lifecycle::CancelledBy::User };
        let wakes = matches!(life.state, State::Parked { wake: Some(wake), .. } if wake <= now);
        let events = [
            (self.has_role(row.key, TaskRole::Recovered), Event::Recover),
            (self.has_role(row.key, TaskRole::Due), clock),
            (self.has_role(row.key, TaskRole::Due) && wakes, Event::Wake),
            (self.has_role(row.key, TaskRole::Woken), Event::Wake),
            (self.has_role(row.key, TaskRole::Cancelled), cancel),
        ];
        for (_, event) in events.iter().filter(|(happens, _)| *happens) {
            if let Ok(transition) = life.next(rules, event, now) {
                life = transition.into_life();
            }
        }
        life
    }

    fn look_at_transition(&mut self, row: &Row, to: &Life) {
        let (task, run, kind) = (row.key, row.run(), to.state.kind());
        let holds = |state: &State| matches!(state, State::Running { .. } | State::Parked { .. });
        let frees = match (holds(&row.life.state), holds(&to.state)) {
            (true, false) => true,
            (false, false) => row.life.state.kind() == Kind::Ready,
            _ => false,
        };
        if frees && !row.planned().limits.is_empty() {
            if holds(&row.life.state) {
                self.join_want(Want::Holds(task));
            }
            self.look_at_uses(row, true);
        }
        let is_new_try = |event: &Event| matches!(event, Event::Fail { .. } | Event::Snooze { .. });
        let changes = self.changes.get(&task).into_iter().flatten();
        let is_anew = changes.flat_map(|change| &change.events).any(is_new_try);
        if row.has_waits && (kind.is_terminal() || is_anew) {
            self.join_want(Want::Waits(task));
        }
        if let State::Ready { since, due } = to.state
            && due <= since
        {
            self.bear_on_candidate(task, run);
        }
        if kind.is_terminal() && self.ended.insert(task) {
            if let Kind::Failed | Kind::TimedOut = kind {
                self.bear_on_run(run, RunRole::Failing);
            }
            for &child in row.plan.graph().children(row.index) {
                self.follow_below(run.task(child));
                self.judge_child(run, child, &row.plan);
            }
            self.add_end(run);
        }
    }

    /// A task that may become ready, and may be claimed.
    fn bear_on_candidate(&mut self, task: TaskKey, run: RunKey) {
        if self.request.worker.is_some() {
            self.bear_on_run(run, RunRole::Served);
            self.join_task(task, TaskRole::Candidate);
        }
    }

    fn follow_below(&mut self, task: TaskKey) {
        if self.task_roles.insert((task, TaskRole::Below)) && self.rows.contains_key(&task) {
            self.look_at_effects(task);
        }
        self.follow_want(Want::Task(task));
    }

    /// Looks at the parents of a task: at once or, where that might be often and each time at many, at the
    /// end of the trip.
    fn judge_child(&mut self, run: RunKey, child: TaskIndex, plan: &Arc<Plan>) {
        if plan.graph().parents(child).len() <= PARENTS_FIRST {
            self.look_at_parents(run, child, plan);
        } else {
            self.wide_children.insert(run.task(child), (child, plan.clone()));
        }
    }

    /// Whether a blocked task becomes ready depends on its parents, from the last on, until one is open.
    pub(super) fn look_at_parents(&mut self, run: RunKey, child: TaskIndex, plan: &Arc<Plan>) {
        let below = self.rows.get(&run.task(child));
        if below.is_some_and(|row| row.life.state.kind() != Kind::Blocked) {
            return;
        }
        let (mut known, mut missing) = (0, Vec::new());
        for &parent in plan.graph().parents(child).iter().rev() {
            let task = run.task(parent);
            match self.rows.get(&task) {
                _ if self.ended.contains(&task) => known += 1,
                Some(row) if row.life.state.kind().is_terminal() => known += 1,
                Some(_) => return,
                None if missing.len() < PARENTS_FIRST.max(3 * known) => missing.push(task),
                None => break,
            }
        }
        if missing.is_empty() {
            self.bear_on_candidate(run.task(child), run);
        }
        missing.into_iter().for_each(|task| self.follow_want(Want::Task(task)));
    }

    /// The same before any row is known.
    pub(super) fn join_parents(&mut self, run: RunKey, child: TaskIndex, plan: &Arc<Plan>) {
        for &parent in plan.graph().parents(child).iter().rev().take(PARENTS_FIRST) {
            self.join_want(Want::Task(run.task(parent)));
        }
    }

    fn look_at_paused(&mut self, row: &Row) {
        if row.has_waits {
            self.join_want(Want::Waits(row.key));
        }
        if row.life.state.kind() == Kind::Ready {
            self.look_at_uses(row, true);
        }
    }

    fn look_at_candidate(&mut self, row: &Row) {
        let (task, run) = (row.key, row.run());
        if row.has_waits || !is_planned_plain(&row.plan, row.index) {
            self.give_up_order();
        }
        if !self.request.again && self.request.claim.units > 0 {
            self.look_at_uses(row, false);
        }
        if row.has_waits {
            self.join_want(Want::Waits(task));
        }
        if row.plan.items_of().is_some() {
            self.bear_on_run(run, RunRole::Items);
        }
        let graph = row.plan.graph();
        if graph.when(row.index) != When::AllSucceeded {
            for &parent in graph.parents(row.index) {
                self.follow_want(Want::Task(run.task(parent)));
            }
        }
    }

    // ------------------------------------------------------------------------------- waits --

    fn look_at_wait_ops(&mut self, row: &Row, change: &Change) {
        if row.life.fence != change.fence {
            return;
        }
        // The first wait of a task that has none is not looked up.
        let mut is_known = !row.has_waits;
        for op in &change.waits {
            let id = match op {
                WaitOp::Begin { id, what, releasing, .. } => {
                    if matches!(what, Awaited::Signal) && row.plan.items_of().is_none() {
                        self.join_want(Want::Signals {
                            run: row.run(),
                            name: id.name.clone(),
                            max: 1,
                        });
                    }
                    if !releasing.is_empty() {
                        self.release_limits(row);
                    }
                    id
                }
                WaitOp::End { id, .. } | WaitOp::Close(id) => id,
                WaitOp::Release(_) => {
                    self.release_limits(row);
                    continue;
                }
                WaitOp::Retake(_) => {
                    if !row.planned().limits.is_empty() {
                        self.join_want(Want::Holds(row.key));
                        self.look_at_uses(row, false);
                    }
                    continue;
                }
            };
            if !std::mem::take(&mut is_known) {
                self.join_want(Want::Wait(row.key, id.clone()));
            }
        }
        for id in change.parks_on.iter().filter(|_| row.has_waits) {
            self.join_want(Want::Wait(row.key, id.clone()));
        }
    }

    fn release_limits(&mut self, row: &Row) {
        if !row.planned().limits.is_empty() {
            self.task_roles.insert((row.key, TaskRole::Freeing));
            self.join_want(Want::Holds(row.key));
        }
    }

    /// The runs that a task waits for: a claim names them, and an end or a pause goes on to its own.
    pub(super) fn look_at_waits(&mut self, task: TaskKey, waits: &[Waiting]) {
        let Some(row) = self.rows.get(&task).cloned() else { return };
        let kind = self.life_after(&row).state.kind();
        if kind == Kind::Succeeded {
            return;
        }
        for wait in waits.iter().filter(|wait| wait.id.kind.is_for_run()) {
            let Some(run) = wait.run else { continue };
            self.follow_first(run);
            if wait.id.kind == WaitKind::Child {
                if kind.is_terminal() {
                    self.bear_on_run(run, RunRole::Cancelled);
                }
                if self.has_run_role(row.run(), RunRole::Paused) {
                    self.bear_on_run(run, RunRole::Paused);
                }
            }
        }
    }

    /// A wait of a task ends.
    pub(super) fn wake_task(&mut self, task: TaskKey, wait: &WaitId) {
        self.join_task(task, TaskRole::Woken);
        self.join_want(Want::Wait(task, wait.clone()));
    }
}
