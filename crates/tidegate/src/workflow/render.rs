//! A workflow as a picture, in the two languages that most tools draw.

use super::Workflow;
use std::fmt::Write as _;
use tidegate_core::graph::{TaskIndex, When};

impl Workflow {
    /// As a [Mermaid](https://mermaid.js.org) flowchart, which GitHub and many editors draw.
    ///
    /// ```
    /// # use tidegate::{Context, Task, TaskError, Workflow};
    /// # async fn nothing(_: &mut Context) -> Result<(), TaskError> { Ok(()) }
    /// let etl = Workflow::builder("etl")
    ///     .task(Task::new("extract", nothing))
    ///     .task(Task::new("load", nothing).after(["extract"]))
    ///     .build()?;
    /// let chart = "flowchart LR\n    t0[\"extract\"]\n    t1[\"load\"]\n    t0 --> t1\n";
    /// assert_eq!(etl.to_mermaid(), chart);
    /// # Ok::<(), tidegate::error::WorkflowError>(())
    /// ```
    pub fn to_mermaid(&self) -> String {
        let node = |index: usize, lines: &[String]| {
            let lines: Vec<String> = lines.iter().map(|line| mermaid_text(line)).collect();
            format!("    t{index}[\"{}\"]\n", lines.join("<br/>"))
        };
        let arrow = |from: usize, to: usize| format!("    t{from} --> t{to}\n");
        format!("flowchart LR\n{}", self.draw(node, arrow))
    }

    /// As a [Graphviz](https://graphviz.org) digraph, for `dot`.
    ///
    /// ```
    /// # use tidegate::{Context, Task, TaskError, Workflow};
    /// # async fn nothing(_: &mut Context) -> Result<(), TaskError> { Ok(()) }
    /// let etl = Workflow::of(Task::new("extract", nothing))?;
    /// assert!(etl.to_graphviz().starts_with("digraph \"extract\" {\n"));
    /// # Ok::<(), tidegate::error::WorkflowError>(())
    /// ```
    pub fn to_graphviz(&self) -> String {
        let node = |index: usize, lines: &[String]| {
            let lines: Vec<String> = lines.iter().map(|line| graphviz_text(line)).collect();
            format!("    t{index} [label=\"{}\"];\n", lines.join("\\n"))
        };
        let arrow = |from: usize, to: usize| format!("    t{from} -> t{to};\n");
        let name = graphviz_text(self.name());
        let drawn = self.draw(node, arrow);
        format!("digraph \"{name}\" {{\n    rankdir=LR;\n    node [shape=box];\n{drawn}}}\n")
    }

    /// All tasks, then all dependencies, in the order of definition.
    fn draw(
        &self,
        node: impl Fn(usize, &[String]) -> String,
        arrow: impl Fn(usize, usize) -> String,
    ) -> String {
        let graph = self.plan.graph();
        let nodes = graph.tasks().map(|task| node(task.as_usize(), &self.label(task)));
        let arrows = graph.tasks().flat_map(|task| {
            let arrow = &arrow;
            let from = graph.parents(task).iter();
            from.map(move |parent| arrow(parent.as_usize(), task.as_usize()))
        });
        nodes.chain(arrows).collect()
    }

    /// What stands in the box of a task: its name, and what is unusual about it.
    fn label(&self, task: TaskIndex) -> Vec<String> {
        let (graph, planned) = (self.plan.graph(), self.plan.task(task));
        let mut lines = vec![graph.name(task).to_owned()];
        lines.extend(planned.each.as_ref().map(|source| format!("each of {source}")));
        if graph.when(task) != When::AllSucceeded {
            lines.push(graph.when(task).to_string());
        }
        lines
    }
}

/// A text inside a box of Mermaid, where HTML and a few marks have a meaning.
fn mermaid_text(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("<br/>"),
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | '[' | ']' | ';' => {
                write!(escaped, "#{};", u32::from(c)).expect("writing to memory does not fail");
            }
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A text in quotes of Graphviz.
fn graphviz_text(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '"' | '\\' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
