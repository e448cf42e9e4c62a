//! A run with its tasks as their file has them.
//!
//! A task of a command file may be several of the workflow: the part that waits, the part that finds
//! the items, and the command. Here they are one again, and stand where the first part stands that has
//! failed or is not over. The items of a task are a run of their own, found by its name.

use super::unusable;
use crate::Failure;
use crate::plan::{ITEMS, WAIT};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::core::TaskExecutionId;
use tidegate::core::graph::TaskIndex;
use tidegate::core::lifecycle::{Activity, State, WorkerId};
use tidegate::core::plan::Plan;
use tidegate::core::store::{RunView, TaskView};
use tidegate::engine::{Kind, RunState, RunSummary, RunsPage, TaskKey};
use tidegate::{Engine, RunId, Timestamp};

/// So many runs that tasks have begun are looked at.
const CHILDREN_MAX: u32 = 1_000;

/// A run.
pub(super) struct Whole {
    pub(super) view: RunView,
    /// In the order of the file.
    pub(super) tasks: Vec<Parts>,
}

/// A task of the file, and the tasks of the workflow that it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) name: String,
    /// The command, or whatever else it is.
    pub(super) main: TaskIndex,
    /// What comes before it, in order.
    before: Vec<TaskIndex>,
}

impl Whole {
    pub(super) fn new(view: RunView) -> Self {
        Whole { tasks: parts(&view.run.plan), view }
    }

    /// How a run stands now.
    pub(super) async fn read(engine: &Engine, run: RunId) -> Result<Self, Failure> {
        let view = engine.store().run(run).await.map_err(unusable)?;
        let gone = || Failure::Undone(format!("run {run} is no longer in the store"));
        view.map(Whole::new).ok_or_else(gone)
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.view.run.plan
    }

    pub(super) fn task(&self, index: TaskIndex) -> &TaskView {
        &self.view.tasks[index.as_usize()]
    }

    pub(super) fn kind(&self, index: TaskIndex) -> Kind {
        self.task(index).life.state.kind()
    }

    /// The worker that has a task, if it is one of these.
    pub(super) fn owned_by(&self, index: TaskIndex, workers: &[WorkerId]) -> Option<WorkerId> {
        self.task(index).life.owner().filter(|owner| workers.contains(owner))
    }

    /// The part that says where a task stands.
    pub(super) fn stands(&self, parts: &Parts) -> TaskIndex {
        let all = || parts.before.iter().copied().chain([parts.main]);
        let failed = |part: &TaskIndex| matches!(self.kind(*part), Kind::Failed | Kind::TimedOut);
        let open = |part: &TaskIndex| !self.kind(*part).is_terminal();
        all().find(failed).or_else(|| all().find(open)).unwrap_or(parts.main)
    }

    /// How many tasks have succeeded.
    pub(super) fn succeeded(&self) -> usize {
        let succeeded = |parts: &&Parts| self.kind(parts.main) == Kind::Succeeded;
        self.tasks.iter().filter(succeeded).count()
    }

    /// The names of what a task comes after, as the file has them.
    pub(super) fn after(&self, parts: &Parts) -> Vec<&str> {
        let first = parts.before.first().unwrap_or(&parts.main);
        let mut names: Vec<&str> = Vec::new();
        for &parent in self.plan().graph().parents(*first) {
            let name = whole_name(self.plan(), parent);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The run of the items of a task, if it is done for items and they were begun.
    pub(super) async fn items(
        &self,
        engine: &Engine,
        parts: &Parts,
    ) -> Result<Option<RunView>, Failure> {
        if self.plan().task(parts.main).each.is_none() {
            return Ok(None);
        }
        let execution = TaskExecutionId::of(self.view.run.id, parts.main);
        engine.store().run(RunId::of_items(execution)).await.map_err(unusable)
    }

    /// Runs that its tasks have begun, other than for their items, the newest first.
    pub(super) async fn children(&self, engine: &Engine) -> Result<Vec<RunSummary>, Failure> {
        let first = self.view.run.key.0;
        let tasks = TaskKey(first)..TaskKey(first + self.view.tasks.len() as i64);
        let page = RunsPage { begun_by: Some(tasks), limit: CHILDREN_MAX, ..RunsPage::default() };
        let mut children = engine.runs(page).await.map_err(unusable)?;
        children.retain(|child| child.plan.items_of().is_none());
        Ok(children)
    }

    /// How long a task was ready before it began, or has been so far. When it became ready is taken
    /// from the ends of those before it.
    pub(super) fn queued(&self, index: TaskIndex, now: Timestamp) -> Option<Duration> {
        let life = &self.task(index).life;
        match (life.started, &life.state) {
            (Some(started), _) => {
                let parents = self.plan().graph().parents(index).iter();
                let ended = parents.filter_map(|parent| self.task(*parent).ended_at).max();
                Some(started.since(ended.unwrap_or(self.view.run.submitted_at)))
            }
            (None, State::Ready { since, .. }) => Some(now.since(*since)),
            (None, State::Running { ready_since, .. }) => Some(now.since(*ready_since)),
            _ => None,
        }
    }

    /// How long a task took from its first entry to its end, or has taken so far.
    pub(super) fn took(&self, index: TaskIndex, now: Timestamp) -> Option<Duration> {
        let task = self.task(index);
        Some(task.ended_at.unwrap_or(now).since(task.life.started?))
    }

    /// What a task waits for, and since when.
    pub(super) fn waits_for(&self, index: TaskIndex) -> Option<(&str, Timestamp)> {
        match &self.task(index).life.state {
            State::Running { activity: Activity::Deferred { since, wait, .. }, .. }
            | State::Parked { since, wait, .. } => Some((wait, *since)),
            _ => None,
        }
    }
}

/// Where a run stands.
pub(super) fn state(run: &RunSummary) -> RunState {
    match (run.ended, run.paused_at) {
        (Some((outcome, _)), _) => RunState::Ended(outcome),
        (None, Some(since)) => RunState::Paused { since },
        (None, None) => RunState::Open,
    }
}

/// How many tasks of a run stand where, by the order of the lifecycle.
pub(super) fn tally(view: &RunView) -> BTreeMap<Kind, usize> {
    let mut tally = BTreeMap::new();
    for task in &view.tasks {
        *tally.entry(task.life.state.kind()).or_default() += 1;
    }
    tally
}

/// The name of the task that this one is, or is a part of.
pub(super) fn whole_name(plan: &Plan, task: TaskIndex) -> &str {
    let name = plan.graph().name(task);
    part_of(plan, task).map_or(name, |whole| plan.graph().name(whole))
}

/// The task that this one is a part of.
fn part_of(plan: &Plan, task: TaskIndex) -> Option<TaskIndex> {
    let graph = plan.graph();
    let name = graph.name(task);
    let whole = name.strip_suffix(WAIT).or_else(|| name.strip_suffix(ITEMS))?;
    let main = graph.find(whole)?;
    // Others may have a task that is only called so.
    let comes_after = |later: TaskIndex| graph.parents(later).contains(&task);
    let items = graph.find(&format!("{whole}{ITEMS}"));
    let is_part = comes_after(main) || items.is_some_and(comes_after);
    is_part.then_some(main)
}

fn parts(plan: &Plan) -> Vec<Parts> {
    let graph = plan.graph();
    let whole = graph.tasks().filter(|&task| part_of(plan, task).is_none());
    let parts = whole.map(|main| {
        let name = graph.name(main).to_owned();
        let before = [WAIT, ITEMS].iter().filter_map(|part| graph.find(&format!("{name}{part}")));
        let before = before.filter(|&part| part_of(plan, part) == Some(main)).collect();
        Parts { name, main, before }
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::core::graph::{Graph, Node, OnFailure};
    use tidegate::core::plan::TaskPlan;

    #[test]
    fn parts_of_a_task_are_one_with_it() {
        let node = |name: &str, after: &[&str]| Node::new(name).after(after.iter().copied());
        let nodes = [
            node("a", &[]),
            node("b:wait", &["a"]),
            node("b:items", &["b:wait"]),
            node("b", &["b:items"]),
            node("c:wait", &[]),
            node("c", &["b"]),
            node("d:wait", &["c"]),
        ];
        let graph = Graph::new(nodes).unwrap();
        let tasks = vec![TaskPlan::default(); graph.task_count()];
        let plan = Plan::new("w", graph, OnFailure::FailFast, tasks);
        let found = parts(&plan);
        let names: Vec<_> = found.iter().map(|parts| parts.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c:wait", "c", "d:wait"]);
        assert_eq!(found[1].before.len(), 2);
        assert_eq!(whole_name(&plan, TaskIndex::from_u32(1)), "b");
        assert_eq!(whole_name(&plan, TaskIndex::from_u32(4)), "c:wait");
    }
}
