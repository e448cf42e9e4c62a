//! Workflows in a line.

use std::sync::Arc;
use tidegate_core::graph::{Graph, Node, OnFailure, When};
use tidegate_core::lifecycle::Rules;
use tidegate_core::plan::{LimitUse, Plan, TaskPlan};

/// A plan that is being drawn. What is said after a task is said of that task.
#[derive(Debug, Clone)]
pub struct Sketch {
    workflow: String,
    on_failure: OnFailure,
    nodes: Vec<Node>,
    tasks: Vec<TaskPlan>,
}

/// An empty plan of this workflow.
pub fn plan(workflow: &str) -> Sketch {
    Sketch {
        workflow: workflow.to_owned(),
        on_failure: OnFailure::default(),
        nodes: Vec::new(),
        tasks: Vec::new(),
    }
}

/// One task, called `a`.
pub fn one() -> Sketch {
    plan("one").task("a", &[])
}

/// So many tasks, one after the other: `t0`, `t1`, and on.
pub fn chain(tasks: usize) -> Sketch {
    let mut sketch = plan("chain").task("t0", &[]);
    for at in 1..tasks {
        sketch = sketch.task(&format!("t{at}"), &[&format!("t{}", at - 1)]);
    }
    sketch
}

/// `b` and `c` after `a`, and `d` after both.
pub fn diamond() -> Sketch {
    plan("diamond").task("a", &[]).task("b", &["a"]).task("c", &["a"]).task("d", &["b", "c"])
}

/// `a`, then so many beside each other (`t0`, `t1`, and on), then `z` after all of them.
pub fn fan(width: usize) -> Sketch {
    let names: Vec<String> = (0..width).map(|at| format!("t{at}")).collect();
    let mut sketch = plan("fan").task("a", &[]);
    for name in &names {
        sketch = sketch.task(name, &["a"]);
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    sketch.task("z", &all)
}

impl Sketch {
    /// One more task, after these.
    pub fn task(mut self, name: &str, after: &[&str]) -> Self {
        self.nodes.push(Node::new(name).after(after.iter().copied()));
        self.tasks.push(TaskPlan::default());
        self
    }

    /// It runs by this rule.
    pub fn when(mut self, when: When) -> Self {
        self.nodes.last_mut().expect(SAID_OF_A_TASK).when = when;
        self
    }

    /// It takes so many slots.
    pub fn weight(mut self, weight: u32) -> Self {
        self.tasks.last_mut().expect(SAID_OF_A_TASK).weight = weight;
        self
    }

    /// It has this head start, in seconds.
    pub fn priority(mut self, priority: i32) -> Self {
        self.tasks.last_mut().expect(SAID_OF_A_TASK).priority = priority;
        self
    }

    /// It is done for each item of the list that is found under this name.
    pub fn each(mut self, source: &str) -> Self {
        self.tasks.last_mut().expect(SAID_OF_A_TASK).each = Some(source.to_owned());
        self
    }

    /// What tells its definition from another.
    pub fn fingerprint(mut self, fingerprint: &str) -> Self {
        self.tasks.last_mut().expect(SAID_OF_A_TASK).fingerprint = Some(fingerprint.to_owned());
        self
    }

    /// It takes this of a limit.
    pub fn limit(mut self, used: impl Into<LimitUse>) -> Self {
        self.tasks.last_mut().expect(SAID_OF_A_TASK).limits.push(used.into());
        self
    }

    /// What bears on its life.
    pub fn rules(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.tasks.last_mut().expect(SAID_OF_A_TASK).rules);
        self
    }

    /// The workflow is called otherwise.
    pub fn called(mut self, workflow: &str) -> Self {
        workflow.clone_into(&mut self.workflow);
        self
    }

    /// What happens when a task has failed for good.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// The plan as drawn.
    ///
    /// # Panics
    /// If it makes no graph.
    pub fn build(self) -> Arc<Plan> {
        let graph = Graph::new(self.nodes).expect("a plan drawn for a test makes a graph");
        Arc::new(Plan::new(self.workflow, graph, self.on_failure, self.tasks))
    }
}

const SAID_OF_A_TASK: &str = "what is said of a task comes after it";
