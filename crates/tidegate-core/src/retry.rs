//! What a retry takes over: which tasks of a run that has ended need not be done again in a new one.
//!
//! A task is taken over if it has succeeded under the same name, does what it did, works on the same
//! input, and all tasks it comes after are taken over too, or are skipped as they were. So what
//! a task is given is what it would be given again.
//!
//! What has ended stays as it is: whoever compares twice gets the same.
//!
//! Deliberately absent: whether the body is the same, which no plan knows. A task may carry a
//! [fingerprint](crate::plan::TaskPlan::fingerprint) that tells.

use crate::graph::{Outcome, TaskIndex, Verdict};
use crate::lifecycle::Kind;
use crate::plan::Plan;

/// What a new run takes over from an old one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// The tasks that need not run: their places in the new plan, and in the old one.
    pub tasks: Vec<(TaskIndex, TaskIndex)>,
    /// Tasks of the new plan that had succeeded and run again because they, or tasks above them, do
    /// something else or work on something else. In the order of the plan.
    pub changed: Vec<TaskIndex>,
    /// Whether all tasks stand as they stood, so that there is nothing to do.
    pub is_all: bool,
}

/// What a run of the plan `new` takes over from one of the plan `old`, whose tasks have ended as
/// `ended` says. The tasks `again` of the new plan run whatever they came to.
pub fn compare(
    old: &Plan,
    ended: impl Fn(TaskIndex) -> Kind,
    new: &Plan,
    again: &[TaskIndex],
    same_input: bool,
) -> TakenOver {
    let graph = new.graph();
    // How tasks stand without being run, and which differ, or come after such as do.
    let mut stands: Vec<Option<Outcome>> = vec![None; new.task_count()];
    let mut differs = vec![!same_input; new.task_count()];
    let mut taken = TakenOver::default();
    for &task in graph.order() {
        let (at, parents) = (task.as_usize(), graph.parents(task));
        let before = old.graph().find(graph.name(task));
        let is_same = before.is_some_and(|before| is_same(old, before, new, task));
        differs[at] |= !is_same || parents.iter().any(|parent| differs[parent.as_usize()]);
        let kind = before.map(&ended);
        let as_before = parents.iter().all(|parent| stands[parent.as_usize()].is_some());
        if as_before && !differs[at] && !again.contains(&task) {
            let verdict = graph.verdict(task, |parent| stands[parent.as_usize()]);
            stands[at] = match (kind, verdict) {
                (Some(Kind::Succeeded), _) => Some(Outcome::Succeeded),
                (Some(Kind::Skipped), Verdict::Skip { .. }) => Some(Outcome::Skipped),
                _ => None,
            };
        }
        match (stands[at], before) {
            (Some(Outcome::Succeeded), Some(before)) => taken.tasks.push((task, before)),
            (None, _) if differs[at] && kind == Some(Kind::Succeeded) => taken.changed.push(task),
            _ => {}
        }
    }
    taken.tasks.sort_unstable();
    taken.changed.sort_unstable();
    taken.is_all = stands.iter().all(Option::is_some);
    taken
}

/// Whether a task does what its namesake did, after the same tasks and under the same rule.
pub(crate) fn is_same(old: &Plan, before: TaskIndex, new: &Plan, task: TaskIndex) -> bool {
    old.task(before).does_the_same(new.task(task))
        && old.graph().when(before) == new.graph().when(task)
        && parents(old, before) == parents(new, task)
}

/// What a task comes after; in which order it was said means nothing.
fn parents(plan: &Plan, task: TaskIndex) -> Vec<&str> {
    let graph = plan.graph();
    let mut names: Vec<_> = graph.parents(task).iter().map(|&task| graph.name(task)).collect();
    names.sort_unstable();
    names
}
