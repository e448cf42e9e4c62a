//! Tasks with dependencies.

mod render;

use crate::batch::OnFailure;
use crate::task::{Body, Task, dress};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::graph::{Graph, GraphError, Node};
use tidegate_core::lifecycle::Rules;
use tidegate_core::plan::{Plan, TaskPlan};

/// Tasks with dependencies, checked to make sense. What an engine can run.
///
/// ```
/// use tidegate::{Context, Task, TaskError, Workflow};
///
/// async fn extract(_: &mut Context) -> Result<u64, TaskError> {
///     Ok(3)
/// }
/// async fn load(context: &mut Context) -> Result<u64, TaskError> {
///     Ok(context.output::<u64>("extract")? * 2)
/// }
///
/// let etl = Workflow::builder("etl")
///     .task(Task::new("extract", extract))
///     .task(Task::new("load", load).after(["extract"]))
///     .build()?;
/// # Ok::<(), tidegate::error::WorkflowError>(())
/// ```
#[derive(Clone)]
pub struct Workflow {
    pub(crate) plan: Arc<Plan>,
    /// By the index of their task.
    pub(crate) pieces: Arc<[Piece]>,
}

/// What a workflow has of a task besides its plan.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) body: Arc<dyn Body>,
    /// The plan of each item, for a task that is done for items.
    pub(crate) item: Option<TaskPlan>,
    /// Whether what its items return is kept.
    pub(crate) keeps_output: bool,
}

impl Piece {
    /// The task's plan and the rest of it. One that is done for items only sees to it that they are
    /// done: what was planned is theirs.
    fn of(task: Task) -> (TaskPlan, Self) {
        let (body, keeps_output) = (dress(&task), task.keeps_output);
        let plan = task.plan;
        if plan.each.is_none() {
            return (plan, Piece { body, item: None, keeps_output });
        }
        let rules = Rules { deadline: plan.rules.deadline, ..Rules::default() };
        let (each, priority) = (plan.each.clone(), plan.priority);
        let fingerprint = plan.fingerprint.clone();
        let mut item = TaskPlan { each: None, ..plan };
        item.rules.deadline = None;
        (
            TaskPlan { rules, each, priority, fingerprint, ..TaskPlan::default() },
            Piece { body, item: Some(item), keeps_output },
        )
    }
}

impl Workflow {
    /// Begins a workflow of this name.
    pub fn builder(name: impl Into<String>) -> WorkflowBuilder {
        WorkflowBuilder { name: name.into(), on_failure: OnFailure::default(), tasks: Vec::new() }
    }

    /// A workflow of one task, with that task's name.
    ///
    /// # Errors
    /// The task's options make no sense.
    pub fn of(task: Task) -> Result<Self, WorkflowError> {
        Workflow::builder(task.name()).task(task).build()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.plan.workflow()
    }
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Makes a [`Workflow`].
#[derive(Debug, Clone)]
#[must_use = "a workflow is made by build()"]
pub struct WorkflowBuilder {
    name: String,
    on_failure: OnFailure,
    tasks: Vec<Task>,
}

impl WorkflowBuilder {
    /// Adds a task. The order of definition is the order in which results are listed, no more.
    pub fn task(mut self, task: Task) -> Self {
        self.tasks.push(task);
        self
    }

    /// What happens to the rest when a task has failed for good.
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }

    /// Checks it.
    ///
    /// # Errors
    /// No name, no tasks, a name twice, an unknown dependency, a cycle, options that contradict each
    /// other; each names what is wrong.
    pub fn build(self) -> Result<Workflow, WorkflowError> {
        if self.name.is_empty() {
            return Err(WorkflowError::EmptyName);
        }
        for task in &self.tasks {
            check(task)?;
        }
        let nodes: Vec<Node> = self.tasks.iter().map(|task| task.node.clone()).collect();
        let graph = Graph::new(nodes).map_err(WorkflowError::Graph)?;
        let (tasks, pieces): (_, Vec<_>) = self.tasks.into_iter().map(Piece::of).unzip();
        let plan = Arc::new(Plan::new(self.name, graph, self.on_failure, tasks));
        Ok(Workflow { plan, pieces: pieces.into() })
    }
}

fn check(task: &Task) -> Result<(), WorkflowError> {
    let plan = &task.plan;
    let zero = |option: &'static str, limit: Option<Duration>| match limit {
        Some(Duration::ZERO) => {
            Err(WorkflowError::Option { task: task.node.name.clone(), option, value: "0".into() })
        }
        _ => Ok(()),
    };
    zero("timeout", plan.timeout)?;
    zero("queue_timeout", plan.rules.queue_timeout)?;
    zero("deadline", plan.rules.deadline)?;
    zero("weight", (plan.weight == 0).then_some(Duration::ZERO))?;
    if plan.each.as_deref() == Some("") {
        return Err(WorkflowError::EmptyEach { task: task.node.name.clone() });
    }
    for (number, used) in plan.limits.iter().enumerate() {
        let (task, limit) = (task.node.name.clone(), used.name.clone());
        if plan.limits[..number].iter().any(|other| other.name == used.name) {
            return Err(WorkflowError::LimitTwice { task, limit });
        }
        if limit.is_empty() || used.key.as_deref() == Some("") {
            return Err(WorkflowError::EmptyLimit { task });
        }
        if used.units == 0 {
            return Err(WorkflowError::NoUnits { task, limit });
        }
    }
    Ok(())
}

/// Why something is no workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkflowError {
    /// It has no name.
    EmptyName,
    /// Its tasks and dependencies make no sense.
    Graph(GraphError),
    /// An option of a task has a value that is not possible.
    Option {
        /// The task.
        task: String,
        /// The option.
        option: &'static str,
        /// The value, which must be above 0.
        value: String,
    },
    /// A task uses a limit twice.
    LimitTwice {
        /// The task.
        task: String,
        /// The limit.
        limit: String,
    },
    /// A task takes nothing of a limit that it uses.
    NoUnits {
        /// The task.
        task: String,
        /// The limit.
        limit: String,
    },
    /// A task is done for each item of a list without a name.
    EmptyEach {
        /// The task.
        task: String,
    },
    /// A task uses a limit without a name, or by a key without a path.
    EmptyLimit {
        /// The task.
        task: String,
    },
}

impl fmt::Display for WorkflowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkflowError::EmptyName => {
                f.write_str("a workflow needs a name of at least one character")
            }
            WorkflowError::Graph(error) => error.fmt(f),
            WorkflowError::Option { task, option, value } => {
                write!(f, "{option} of task \"{task}\" is {value}; it must be above 0")
            }
            WorkflowError::LimitTwice { task, limit } => write!(
                f,
                "task \"{task}\" uses limit \"{limit}\" twice; say once how many units it takes"
            ),
            WorkflowError::NoUnits { task, limit } => write!(
                f,
                "task \"{task}\" takes 0 units of limit \"{limit}\"; it must take at least 1"
            ),
            WorkflowError::EmptyEach { task } => write!(
                f,
                "task \"{task}\" is done for each item of \"\"; name the task, or the value of the \
                 context, that has the list"
            ),
            WorkflowError::EmptyLimit { task } => write!(
                f,
                "task \"{task}\" uses a limit whose name, or the path of whose key, is empty"
            ),
        }
    }
}

impl std::error::Error for WorkflowError {}
