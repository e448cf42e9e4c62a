//! The graph of a workflow, and what follows from the states of its tasks.
//!
//! A [`Graph`] is built once from [`Node`]s, refused with a [`GraphError`] if it makes no sense, and
//! never changes. It knows names, rules and dependencies, not states: those come in as a function
//! with each question, so that a store, a worker and a dry run ask the same graph.
//!
//! - [`Graph::verdict`]: may this task run, given what became of its parents?
//! - [`Graph::settle`]: everything that follows, down to the last task, from the way things stand.
//! - [`Graph::cancel_all`]: what a user's cancel does.
//! - [`Graph::outcome_of_run`]: whether the run is over, and how.
//!
//! Invariants: there is at least one task; every dependency exists; there is no cycle; a rule that
//! asks for one parent with some end has a parent. From these it follows that a run always ends:
//! when nothing is under way, settling leaves nothing blocked.
//!
//! Rules look at a task's own parents and at nothing further up. A clean-up task whose parent was
//! skipped may therefore start while a task above that parent still computes; one that must wait
//! for it names it as a dependency.
//!
//! Deliberately absent: reasons in words, attempts, time. A failure that will be tried again is no
//! failure here: its task stands [`Standing::Ready`].

mod build;
mod word;

pub use build::GraphError;
pub use word::{UnknownWord, nearest};

use build::{Links, find};
use std::fmt;
use std::str::FromStr;

/// The tasks of a workflow, their dependencies and their rules.
///
/// Tasks are counted in the order in which they were defined. Every method that takes a
/// [`TaskIndex`] panics for one from a larger graph.
///
/// ```
/// use tidegate_core::graph::{Graph, Node, Outcome, Verdict, When};
///
/// let graph = Graph::new([
///     Node::new("extract"),
///     Node::new("load").after(["extract"]),
///     Node::new("tidy").after(["extract", "load"]).when(When::AllDone),
/// ])?;
/// let [extract, load, tidy] = ["extract", "load", "tidy"].map(|name| graph.find(name).unwrap());
///
/// let extract_failed = |task| (task == extract).then_some(Outcome::Failed);
/// assert_eq!(graph.verdict(load, extract_failed), Verdict::Skip { cause: extract });
/// assert_eq!(graph.verdict(tidy, extract_failed), Verdict::Wait);
/// # Ok::<(), tidegate_core::graph::GraphError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    tasks: Vec<Task>,
    /// In argument order, each once.
    parents: Links,
    /// In definition order.
    children: Links,
    /// All tasks, sorted by name.
    by_name: Vec<TaskIndex>,
    /// All tasks, each behind its parents.
    order: Vec<TaskIndex>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    name: String,
    when: When,
}

/// What a graph is built from: one task, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Any text of at least one character; no two tasks have the same.
    pub name: String,
    /// The names of the tasks it comes after. The same name twice counts once.
    pub after: Vec<String>,
    /// When it runs.
    pub when: When,
}

impl Node {
    /// A task that comes after nothing.
    pub fn new(name: impl Into<String>) -> Self {
        Node { name: name.into(), ..Node::default() }
    }

    /// Comes after these too.
    pub fn after(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.after.extend(names.into_iter().map(Into::into));
        self
    }

    /// Runs by this rule.
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }
}

/// A task of a graph: its place in the order of definition, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIndex(u32);

impl TaskIndex {
    /// From the number it is.
    pub const fn from_u32(index: u32) -> Self {
        TaskIndex(index)
    }

    /// As the number it is.
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// As an index into what the caller keeps per task.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    fn new(index: usize) -> Self {
        TaskIndex(u32::try_from(index).expect("a graph has fewer than four billion tasks"))
    }
}

/// What became of a task that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its body returned a value.
    Succeeded,
    /// It failed for good or ran out of time.
    Failed,
    /// It was cancelled, by a user or because something else failed.
    Cancelled,
    /// Its rule could not be met.
    Skipped,
}

/// Where a task of a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Its rule has not been met so far.
    Blocked,
    /// It may begin: due, in back-off before a further attempt, or handed back.
    Ready,
    /// Its body computes.
    Active,
    /// It has begun and waits for the outside world, deferred or parked.
    Waiting,
    /// It has begun and is going to fail: some of the items that it is done for have. It is left to
    /// its end, and so is what comes after it, but the rest of the run need not wait for that.
    Failing,
    /// It was told to stop while it was active, and has not stopped. It is not tried again and does
    /// not begin to wait; it can only end. What comes after it stays blocked, so that no clean-up
    /// begins beside the body it cleans up after.
    Stopping,
    /// It is over.
    Ended(Outcome),
}

impl Standing {
    /// What became of it; `None` while it is open.
    pub const fn outcome(self) -> Option<Outcome> {
        match self {
            Standing::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Where it stands once `consequence` has been applied. What has ended stays as it is.
    pub const fn after(self, consequence: Consequence) -> Self {
        match (self, consequence) {
            (Standing::Ended(outcome), _) => Standing::Ended(outcome),
            (_, Consequence::Unblock) => Standing::Ready,
            (_, Consequence::Skip { .. }) => Standing::Ended(Outcome::Skipped),
            (_, Consequence::Cancel) => Standing::Ended(Outcome::Cancelled),
            (_, Consequence::Stop) => Standing::Stopping,
        }
    }
}

/// Whether a task may run, given what became of its parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// That is still open.
    Wait,
    /// It may.
    Run,
    /// Its rule can no longer be met.
    Skip {
        /// The parent that decided it; the first in argument order where several did.
        cause: TaskIndex,
    },
}

/// What happens to a task because of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a consequence changes nothing until it is applied"]
pub enum Consequence {
    /// Its rule is met: from blocked to ready.
    Unblock,
    /// Its rule can no longer be met.
    Skip {
        /// The parent that decided it; the first in argument order where several did.
        cause: TaskIndex,
    },
    /// It is over, cancelled.
    Cancel,
    /// It is told to stop. Unlike what was cancelled it stays open, because a body that computes
    /// takes time to stop; when it has, and stands as ended, there is something to settle again.
    Stop,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    /// Nothing failed and nobody cancelled it.
    Succeeded,
    /// At least one task failed or ran out of time.
    Failed,
    /// A user cancelled it.
    Cancelled,
}

impl RunOutcome {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            RunOutcome::Succeeded => "succeeded",
            RunOutcome::Failed => "failed",
            RunOutcome::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// When a task runs, seen from its parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum When {
    /// All of them succeeded. Without parents: at once.
    #[default]
    AllSucceeded,
    /// All of them ended, no matter how. Without parents: at once.
    AllDone,
    /// All of them ended, and at least one failed or ran out of time.
    AnyFailed,
    /// One of them succeeded; the others may still be open.
    AnySucceeded,
}

impl When {
    const WORDS: [(&str, When); 4] = [
        ("all_succeeded", When::AllSucceeded),
        ("all_done", When::AllDone),
        ("any_failed", When::AnyFailed),
        ("any_succeeded", When::AnySucceeded),
    ];

    /// Whether a task with this rule is clean-up, which runs although something has failed.
    pub const fn is_cleanup(self) -> bool {
        matches!(self, When::AllDone | When::AnyFailed)
    }

    /// Whether it asks for a parent with a certain end, and so means nothing without parents.
    const fn needs_parents(self) -> bool {
        matches!(self, When::AnyFailed | When::AnySucceeded)
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(word::of(&Self::WORDS, *self))
    }
}

impl FromStr for When {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        word::meaning("rule for when a task runs", &Self::WORDS, text)
    }
}

/// What happens to the rest of a run when a task has failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFailure {
    /// Nothing but clean-up starts; what computes may finish; what waits is cancelled, because a
    /// wait must not hold a failed run open.
    #[default]
    FailFast,
    /// Nothing but clean-up starts, and what is under way is cancelled, except clean-up.
    FailFastKill,
    /// Whatever does not depend on the failure goes on.
    KeepGoing,
}

impl OnFailure {
    const WORDS: [(&str, OnFailure); 3] = [
        ("fail_fast", OnFailure::FailFast),
        ("fail_fast_kill", OnFailure::FailFastKill),
        ("keep_going", OnFailure::KeepGoing),
    ];
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(word::of(&Self::WORDS, *self))
    }
}

impl FromStr for OnFailure {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        word::meaning("policy on failure", &Self::WORDS, text)
    }
}

impl Graph {
    /// How many tasks there are; at least 1.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// All tasks in definition order.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskIndex> + use<> {
        (0..self.tasks.len() as u32).map(TaskIndex)
    }

    /// All tasks, each behind those that it comes after.
    pub fn order(&self) -> &[TaskIndex] {
        &self.order
    }

    /// What it is called.
    pub fn name(&self, task: TaskIndex) -> &str {
        &self.tasks[task.as_usize()].name
    }

    /// When it runs.
    pub fn when(&self, task: TaskIndex) -> When {
        self.tasks[task.as_usize()].when
    }

    /// The task of this name.
    pub fn find(&self, name: &str) -> Option<TaskIndex> {
        find(&self.by_name, |task| self.name(task), name)
    }

    /// What it comes after, in argument order, each once.
    pub fn parents(&self, task: TaskIndex) -> &[TaskIndex] {
        self.parents.of(task)
    }

    /// What comes after it, in definition order.
    pub fn children(&self, task: TaskIndex) -> &[TaskIndex] {
        self.children.of(task)
    }

    /// All that it comes after, directly or not, in definition order and without itself.
    pub fn ancestors(&self, task: TaskIndex) -> Vec<TaskIndex> {
        let mut is_ancestor = vec![false; self.task_count()];
        let mut unvisited = vec![task];
        while let Some(descendant) = unvisited.pop() {
            for &parent in self.parents(descendant) {
                if !std::mem::replace(&mut is_ancestor[parent.as_usize()], true) {
                    unvisited.push(parent);
                }
            }
        }
        self.tasks().filter(|task| is_ancestor[task.as_usize()]).collect()
    }

    /// The plan: first what comes after nothing, then what comes after that, and so on. A task's
    /// wave is the longest way to it; inside a wave tasks stand in definition order.
    ///
    /// Waves are for showing. Running by them would make the slowest task of a wave a barrier.
    pub fn waves(&self) -> Vec<Vec<TaskIndex>> {
        let mut wave_of = vec![0; self.task_count()];
        for &task in &self.order {
            let after = self.parents(task).iter().map(|parent| wave_of[parent.as_usize()] + 1);
            wave_of[task.as_usize()] = after.max().unwrap_or(0);
        }
        let last = wave_of.iter().max().expect("a graph has at least one task");
        let mut waves = vec![Vec::new(); last + 1];
        for task in self.tasks() {
            waves[wave_of[task.as_usize()]].push(task);
        }
        waves
    }

    /// Whether `task` may run, given what became of its parents (`None`: still open).
    ///
    /// A rule that can no longer be met names the parent that decided it. For `all_succeeded` that
    /// is one that ended otherwise, known at once; for `any_failed` and `any_succeeded`, where it
    /// takes all of them, it is the first.
    pub fn verdict(
        &self,
        task: TaskIndex,
        outcome_of: impl Fn(TaskIndex) -> Option<Outcome>,
    ) -> Verdict {
        let parents = self.parents(task);
        let ended_as = |outcome| parents.iter().any(|&parent| outcome_of(parent) == Some(outcome));
        let all_ended = || parents.iter().all(|&parent| outcome_of(parent).is_some());
        match self.when(task) {
            When::AllSucceeded => {
                let otherwise = |&parent: &TaskIndex| {
                    outcome_of(parent).is_some_and(|outcome| outcome != Outcome::Succeeded)
                };
                match parents.iter().copied().find(otherwise) {
                    Some(cause) => Verdict::Skip { cause },
                    None if all_ended() => Verdict::Run,
                    None => Verdict::Wait,
                }
            }
            When::AnySucceeded if ended_as(Outcome::Succeeded) => Verdict::Run,
            _ if !all_ended() => Verdict::Wait,
            When::AllDone => Verdict::Run,
            When::AnyFailed if ended_as(Outcome::Failed) => Verdict::Run,
            When::AnyFailed | When::AnySucceeded => Verdict::Skip { cause: parents[0] },
        }
    }

    /// Everything that follows from the way things stand, down to the last task, in definition
    /// order and each task at most once. Asked with all tasks blocked, it starts a run.
    ///
    /// - A blocked task whose rule is met becomes ready; one whose rule can no longer be met is
    ///   skipped, and so on downwards.
    /// - After a failure under fail-fast, or once a task is going to fail, what is blocked, ready or
    ///   waiting is cancelled, under `fail_fast_kill` what is active is told to stop. Clean-up
    ///   ([`When::is_cleanup`]) is spared in every standing, and becomes ready once all that it comes
    ///   after has ended. What will be skipped because of what is going to fail is left until it has.
    /// - Of skipped and cancelled, skipped wins where the rule would be out of reach even without
    ///   the cancelling. So what depends on the failure is skipped with the failure as its cause,
    ///   and what merely had not begun is cancelled, also behind another such task.
    ///
    /// It looks at standings, not at what changed: it is right after any change, and applied and
    /// asked again, it yields nothing until something else changes. Ask when a task has ended and,
    /// in a run with a failure, also when an active task has begun to wait or has become ready
    /// again. The cost grows with the number of tasks and dependencies, not with what follows.
    #[must_use = "nothing happens until the consequences are applied"]
    pub fn settle(
        &self,
        on_failure: OnFailure,
        standing_of: impl Fn(TaskIndex) -> Standing,
    ) -> Vec<(TaskIndex, Consequence)> {
        if let [_] = self.tasks[..] {
            // The most frequent graph, and nothing to look at: it waits for nobody.
            let only = TaskIndex(0);
            let starts = standing_of(only) == Standing::Blocked;
            return starts.then_some((only, Consequence::Unblock)).into_iter().collect();
        }
        let standings: Vec<Standing> = self.tasks().map(standing_of).collect();
        let mut settling = Settling::new(self, on_failure, &standings);
        let mut consequences: Vec<(TaskIndex, Consequence)> = Vec::new();
        for &task in &self.order {
            let standing = standings[task.as_usize()];
            if let Some(consequence) = settling.consequence_for(task, standing) {
                consequences.push((task, consequence));
            }
        }
        consequences.sort_unstable_by_key(|&(task, _)| task);
        consequences
    }

    /// What a user's cancel does: everything open is cancelled, clean-up too; what is active is told
    /// to stop. In definition order.
    #[must_use = "nothing happens until the consequences are applied"]
    pub fn cancel_all(
        &self,
        standing_of: impl Fn(TaskIndex) -> Standing,
    ) -> Vec<(TaskIndex, Consequence)> {
        let consequence_for = |task| match standing_of(task) {
            Standing::Blocked | Standing::Ready | Standing::Waiting => Some(Consequence::Cancel),
            Standing::Active | Standing::Failing => Some(Consequence::Stop),
            Standing::Stopping | Standing::Ended(_) => None,
        };
        self.tasks().filter_map(|task| Some((task, consequence_for(task)?))).collect()
    }

    /// How the run ended; `None` while a task is open.
    ///
    /// Cancelled if a user cancelled it, whatever its tasks did; else failed if a task failed or ran
    /// out of time; else succeeded.
    pub fn outcome_of_run(
        &self,
        standing_of: impl Fn(TaskIndex) -> Standing,
        cancelled_by_user: bool,
    ) -> Option<RunOutcome> {
        let mut failed = false;
        for task in self.tasks() {
            failed |= standing_of(task).outcome()? == Outcome::Failed;
        }
        Some(if cancelled_by_user {
            RunOutcome::Cancelled
        } else if failed {
            RunOutcome::Failed
        } else {
            RunOutcome::Succeeded
        })
    }
}

/// One pass of [`Graph::settle`], asked for each task behind its parents.
struct Settling<'g> {
    graph: &'g Graph,
    on_failure: OnFailure,
    /// Whether a task has failed and the policy is to stop.
    stops: bool,
    /// What became of each task by the rules alone. It tells what depends on a failure from what is
    /// cancelled beside it.
    by_rule: Vec<Option<Outcome>>,
    /// What became of each task, with everything cancelled in this pass.
    outcomes: Vec<Option<Outcome>>,
}

impl<'g> Settling<'g> {
    fn new(graph: &'g Graph, on_failure: OnFailure, standings: &[Standing]) -> Self {
        let fails = |standing: &Standing| match standing {
            Standing::Failing => Some(Outcome::Failed),
            other => other.outcome(),
        };
        let by_rule: Vec<_> = standings.iter().map(fails).collect();
        Settling {
            graph,
            on_failure,
            stops: by_rule.contains(&Some(Outcome::Failed)) && on_failure != OnFailure::KeepGoing,
            by_rule,
            outcomes: standings.iter().map(|standing| standing.outcome()).collect(),
        }
    }

    fn consequence_for(&mut self, task: TaskIndex, standing: Standing) -> Option<Consequence> {
        let cancels = self.stops && !self.graph.when(task).is_cleanup();
        let consequence = match standing {
            Standing::Blocked => self.judge(task, cancels),
            Standing::Ready | Standing::Waiting => cancels.then_some(Consequence::Cancel),
            Standing::Active => {
                let kills = cancels && self.on_failure == OnFailure::FailFastKill;
                kills.then_some(Consequence::Stop)
            }
            Standing::Failing | Standing::Stopping | Standing::Ended(_) => None,
        }?;
        self.outcomes[task.as_usize()] = standing.after(consequence).outcome();
        Some(consequence)
    }

    /// What happens to a blocked task.
    fn judge(&mut self, task: TaskIndex, cancels: bool) -> Option<Consequence> {
        let graph = self.graph;
        if let Verdict::Skip { cause } = graph.verdict(task, |other| self.by_rule[other.as_usize()])
        {
            self.by_rule[task.as_usize()] = Some(Outcome::Skipped);
            // Not before all is there that may be the cause.
            let is_to_come = |parent: &TaskIndex| {
                let at = parent.as_usize();
                self.by_rule[at].is_some() && self.outcomes[at].is_none()
            };
            let waits = graph.parents(task).iter().any(is_to_come);
            return (!waits).then_some(Consequence::Skip { cause });
        }
        if cancels {
            return Some(Consequence::Cancel);
        }
        match graph.verdict(task, |other| self.outcomes[other.as_usize()]) {
            Verdict::Wait => None,
            Verdict::Run => Some(Consequence::Unblock),
            Verdict::Skip { cause } => Some(Consequence::Skip { cause }),
        }
    }
}
