//! From names to a graph, or why not.

use super::word::{did_you_mean, nearest};
use super::{Graph, Node, Task, TaskIndex, When};
use std::collections::VecDeque;
use std::fmt;

/// Why tasks make no graph.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphError {
    /// There is none.
    NoTasks,
    /// A task has an empty name.
    EmptyName {
        /// Its place in the order of definition, from 1.
        position: usize,
    },
    /// Two tasks have the same name.
    DuplicateName {
        /// That name.
        name: String,
    },
    /// A task comes after itself.
    SelfDependency {
        /// Its name.
        task: String,
    },
    /// A task comes after one that does not exist.
    UnknownDependency {
        /// The name of the task.
        task: String,
        /// The name it comes after.
        dependency: String,
        /// The name of a task that is spelt almost like it.
        nearest: Option<String>,
    },
    /// A task asks for a parent with a certain end and has no parents.
    RuleWithoutParents {
        /// Its name.
        task: String,
        /// Its rule.
        when: When,
    },
    /// Tasks come after each other in a circle.
    Cycle {
        /// Their names; each comes after the one before it, and the last is the first.
        path: Vec<String>,
    },
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphError::NoTasks => write!(f, "there are no tasks: define at least one"),
            GraphError::EmptyName { position } => {
                write!(f, "task {position} has an empty name: give it at least one character")
            }
            GraphError::DuplicateName { name } => {
                write!(f, "two tasks are named \"{name}\": give each a name of its own")
            }
            GraphError::SelfDependency { task } => {
                write!(f, "task \"{task}\" comes after itself: take it out of its own dependencies")
            }
            GraphError::UnknownDependency { task, dependency, nearest } => {
                write!(f, "task \"{task}\" comes after \"{dependency}\", which is no task")?;
                did_you_mean(f, nearest.as_deref())
            }
            GraphError::RuleWithoutParents { task, when } => write!(
                f,
                "task \"{task}\" has the rule {when} and comes after nothing: name the tasks that \
                 it depends on, or use {} or {}",
                When::AllSucceeded,
                When::AllDone
            ),
            GraphError::Cycle { path } => {
                let path = path.join(" → ");
                write!(f, "tasks come after each other in a circle: {path}; take one arrow out")
            }
        }
    }
}

impl std::error::Error for GraphError {}

impl Graph {
    /// The graph of these tasks.
    ///
    /// # Errors
    /// The first that applies: no task, an empty name, a duplicate name; then for each task in turn
    /// a dependency on itself or on an unknown task, or a rule that needs parents where there are
    /// none; then a cycle.
    ///
    /// # Panics
    /// With more than four billion tasks.
    pub fn new(nodes: impl IntoIterator<Item = Node>) -> Result<Self, GraphError> {
        let nodes: Vec<Node> = nodes.into_iter().collect();
        let by_name = sorted_by_name(&nodes)?;
        let parents = resolve(&nodes, &by_name)?;
        let children = parents.reversed();
        let order = in_order(&parents, &children);
        if order.len() < nodes.len() {
            let cycle = find_cycle(&parents, &children, &order);
            let path = cycle.into_iter().map(|task| nodes[task.as_usize()].name.clone()).collect();
            return Err(GraphError::Cycle { path });
        }
        let tasks = nodes.into_iter().map(|Node { name, when, .. }| Task { name, when }).collect();
        Ok(Graph { tasks, parents, children, by_name, order })
    }
}

/// For each task a list of others, one behind the other in one block of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Links {
    /// Where each task's list begins, and at the end where the last one ends.
    starts: Vec<usize>,
    others: Vec<TaskIndex>,
}

impl Links {
    pub(super) fn of(&self, task: TaskIndex) -> &[TaskIndex] {
        &self.others[self.starts[task.as_usize()]..self.starts[task.as_usize() + 1]]
    }

    fn tasks(&self) -> impl Iterator<Item = TaskIndex> + use<> {
        (0..self.starts.len() - 1).map(TaskIndex::new)
    }

    /// The same arrows seen from the other end, each list in definition order.
    fn reversed(&self) -> Links {
        let mut starts = vec![0; self.starts.len()];
        for other in &self.others {
            starts[other.as_usize() + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut free = starts.clone();
        let mut others = vec![TaskIndex(0); self.others.len()];
        for task in self.tasks() {
            for other in self.of(task) {
                others[free[other.as_usize()]] = task;
                free[other.as_usize()] += 1;
            }
        }
        Links { starts, others }
    }
}

/// The task of this name, in a list of all that is sorted by name.
pub(super) fn find<'n>(
    by_name: &[TaskIndex],
    name_of: impl Fn(TaskIndex) -> &'n str,
    name: &str,
) -> Option<TaskIndex> {
    let at = by_name.binary_search_by(|&task| name_of(task).cmp(name));
    at.ok().map(|at| by_name[at])
}

/// All tasks by name, if they have one of their own each.
fn sorted_by_name(nodes: &[Node]) -> Result<Vec<TaskIndex>, GraphError> {
    if nodes.is_empty() {
        return Err(GraphError::NoTasks);
    }
    if let Some(at) = nodes.iter().position(|node| node.name.is_empty()) {
        return Err(GraphError::EmptyName { position: at + 1 });
    }
    let name_of = |task: TaskIndex| &nodes[task.as_usize()].name;
    let mut by_name: Vec<TaskIndex> = (0..nodes.len()).map(TaskIndex::new).collect();
    // Equal names stay in definition order, so the second of a pair is the later one.
    by_name.sort_by_key(|&task| name_of(task));
    let same = by_name.windows(2).filter(|pair| name_of(pair[0]) == name_of(pair[1]));
    match same.map(|pair| pair[1]).min() {
        Some(second) => Err(GraphError::DuplicateName { name: name_of(second).clone() }),
        None => Ok(by_name),
    }
}

/// The parents of each task, in argument order and each once.
fn resolve(nodes: &[Node], by_name: &[TaskIndex]) -> Result<Links, GraphError> {
    let name_of = |task: TaskIndex| nodes[task.as_usize()].name.as_str();
    let mut links = Links { starts: vec![0], others: Vec::new() };
    // The task in whose list each was seen last; nobody is in a list of their own.
    let mut seen_by: Vec<usize> = (0..nodes.len()).collect();
    for (at, node) in nodes.iter().enumerate() {
        for dependency in &node.after {
            let Some(parent) = find(by_name, name_of, dependency) else {
                let nearest = nearest(dependency, nodes.iter().map(|node| node.name.as_str()));
                return Err(GraphError::UnknownDependency {
                    task: node.name.clone(),
                    dependency: dependency.clone(),
                    nearest: nearest.map(str::to_owned),
                });
            };
            if parent.as_usize() == at {
                return Err(GraphError::SelfDependency { task: node.name.clone() });
            }
            if std::mem::replace(&mut seen_by[parent.as_usize()], at) != at {
                links.others.push(parent);
            }
        }
        if node.after.is_empty() && node.when.needs_parents() {
            return Err(GraphError::RuleWithoutParents {
                task: node.name.clone(),
                when: node.when,
            });
        }
        links.starts.push(links.others.len());
    }
    Ok(links)
}

/// Each task behind its parents. Tasks on a cycle, and what comes after them, are left out.
fn in_order(parents: &Links, children: &Links) -> Vec<TaskIndex> {
    let mut missing: Vec<usize> = parents.tasks().map(|task| parents.of(task).len()).collect();
    let mut order: Vec<TaskIndex> =
        parents.tasks().filter(|&task| parents.of(task).is_empty()).collect();
    let mut placed = 0;
    while let Some(&task) = order.get(placed) {
        placed += 1;
        for &child in children.of(task) {
            missing[child.as_usize()] -= 1;
            if missing[child.as_usize()] == 0 {
                order.push(child);
            }
        }
    }
    order
}

/// A cycle among the tasks that `order` leaves out, from its first task in definition order and
/// back to it; the shortest through that task.
fn find_cycle(parents: &Links, children: &Links, order: &[TaskIndex]) -> Vec<TaskIndex> {
    let mut left_out = vec![true; parents.starts.len() - 1];
    for task in order {
        left_out[task.as_usize()] = false;
    }
    // Whoever was left out has a parent that was left out, so walking up from one of them never
    // ends; where the walk meets itself, it has found a cycle.
    let mut at = parents.tasks().find(|task| left_out[task.as_usize()]).expect("some are left out");
    let mut met_at = vec![None; left_out.len()];
    let mut walk = Vec::new();
    let from = loop {
        if let Some(from) = met_at[at.as_usize()].replace(walk.len()) {
            break from;
        }
        walk.push(at);
        let up = parents.of(at).iter().find(|parent| left_out[parent.as_usize()]);
        at = *up.expect("a task was left out for a parent that was");
    };
    let first = *walk[from..].iter().min().expect("a cycle has tasks");
    shortest_way_back(children, first)
}

/// The shortest way from `start` along the arrows to itself. There is one.
fn shortest_way_back(children: &Links, start: TaskIndex) -> Vec<TaskIndex> {
    let mut came_from = vec![None; children.starts.len() - 1];
    let mut unvisited = VecDeque::from([start]);
    while came_from[start.as_usize()].is_none() {
        let task = unvisited.pop_front().expect("a way leads back");
        for &child in children.of(task) {
            if came_from[child.as_usize()].is_none() {
                came_from[child.as_usize()] = Some(task);
                unvisited.push_back(child);
            }
        }
    }
    let mut path = vec![start];
    let mut at = start;
    while let Some(before) = came_from[at.as_usize()] {
        path.push(before);
        at = before;
        if at == start {
            break;
        }
    }
    path.reverse();
    path
}
