//! What is run: plans and bodies drawn by chance.

use super::chance::Chance;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Backoff;
use tidegate_core::graph::{Graph, Node, OnFailure, When};
use tidegate_core::lifecycle::Failure;
use tidegate_core::plan::{Plan, TaskPlan};

/// The heaviest task there is; every worker that has to end things has so many slots.
pub(super) const HEAVIEST: u32 = 3;

/// The queues there are.
pub(super) const QUEUES: [&str; 2] = ["main", "side"];

/// The shapes of workflows. A name stands for one set of tasks, so that every worker knows them.
const SHAPES: [(&str, usize); 5] =
    [("one", 1), ("chain", 3), ("diamond", 4), ("fan", 5), ("pair", 2)];

/// All tasks there can be, as a worker says that it knows them.
pub(super) fn known() -> Vec<(String, String)> {
    let tasks = |&(workflow, count): &(&'static str, usize)| {
        (0..count).map(move |at| (workflow.to_owned(), format!("t{at}")))
    };
    SHAPES.iter().flat_map(tasks).collect()
}

/// What the body of a task is like.
#[derive(Debug, Clone)]
pub(super) enum Temper {
    /// Computes and waits for these times, in turn, and succeeds.
    Steady(Vec<Duration>),
    /// Fails in its first attempts, in this way, and then is steady.
    Fails { attempts: u32, failure: Failure, permanent: bool, times: Vec<Duration> },
    /// Wants to be run later in its first entries.
    Snoozes { entries: u32, delay: Duration, times: Vec<Duration> },
    /// Kills its process in its first entries; for ever, if it is poison.
    Kills { entries: u32, after: Duration },
    /// Computes until it is stopped.
    Never,
    /// Computes for this time, begins a run of these items, waits for it, and ends as it did.
    FanOut(Duration, Arc<Items>),
}

/// The items of a task.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) plan: Arc<Plan>,
    pub(super) tempers: Vec<Temper>,
}

/// One thing that a body does.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Compute(Duration),
    ComputeForever,
    Wait(Duration),
    BeginItems,
    Conclude,
    KillProcess,
    Succeed,
    Fail(Failure, bool),
    Snooze(Duration),
}

impl Temper {
    pub(super) fn is_poison(&self) -> bool {
        matches!(self, Temper::Kills { entries: u32::MAX, .. })
    }

    /// What it does in this attempt, when it was entered so often before.
    pub(super) fn acts(&self, attempt: u32, entered: u32) -> VecDeque<Act> {
        let steady = |times: &[Duration]| {
            let act = |(at, &time): (usize, &Duration)| match at % 2 {
                0 => Act::Compute(time),
                _ => Act::Wait(time),
            };
            times.iter().enumerate().map(act).collect::<VecDeque<Act>>()
        };
        let (mut acts, last) = match self {
            Temper::Steady(times) => (steady(times), Act::Succeed),
            Temper::Fails { attempts, failure, permanent, times } => match attempt <= *attempts {
                true => (steady(times), Act::Fail(*failure, *permanent)),
                false => (steady(times), Act::Succeed),
            },
            Temper::Snoozes { entries, delay, times } => match entered < *entries {
                true => (steady(times), Act::Snooze(*delay)),
                false => (steady(times), Act::Succeed),
            },
            Temper::Kills { entries, after } => match entered < *entries {
                true => (steady(&[*after]), Act::KillProcess),
                false => (steady(&[*after]), Act::Succeed),
            },
            Temper::Never => (VecDeque::new(), Act::ComputeForever),
            Temper::FanOut(time, _) => {
                (VecDeque::from([Act::Compute(*time), Act::BeginItems]), Act::Conclude)
            }
        };
        acts.push_back(last);
        acts
    }
}

/// How likely bodies of each kind are: poison once in so many, and so on; 0 is never.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mood {
    pub(super) poison: u32,
    pub(super) killer: u32,
    pub(super) never: u32,
}

/// The bodies of a plan, by chance.
pub(super) fn tempers(chance: &mut Chance, plan: &Plan, mood: Mood) -> Vec<Temper> {
    let tasks = plan.graph().tasks();
    let temper = |task| match plan.task(task).each {
        None => temper(chance, mood),
        Some(_) => {
            let (time, name) = (chance.millis(0, 500), plan.graph().name(task));
            let (count, on_failure) = (chance.small(1, 5), plan.on_failure());
            let plan = Plan::items(plan.workflow(), name, count, on_failure, task_plan(chance));
            let tempers = (0..count).map(|_| temper(chance, mood)).collect();
            Temper::FanOut(time, Arc::new(Items { plan: Arc::new(plan), tempers }))
        }
    };
    tasks.map(temper).collect()
}

/// A body by chance.
fn temper(chance: &mut Chance, mood: Mood) -> Temper {
    let after = chance.millis(0, 800);
    if chance.one_in(mood.poison) {
        return Temper::Kills { entries: u32::MAX, after };
    }
    if chance.one_in(mood.killer) {
        return Temper::Kills { entries: chance.small(1, 2), after };
    }
    if chance.one_in(mood.never) {
        return Temper::Never;
    }
    let times = times(chance);
    match chance.below(10) {
        0 | 1 => Temper::Fails {
            attempts: chance.small(1, 3),
            failure: *chance.pick(&FAILURES).expect("there are some"),
            permanent: chance.one_in(4),
            times,
        },
        2 => {
            let (entries, delay) = (chance.small(1, 2), chance.millis(0, 4_000));
            Temper::Snoozes { entries, delay, times }
        }
        _ => Temper::Steady(times),
    }
}

const FAILURES: [Failure; 3] = [Failure::Error, Failure::Panic, Failure::WaitTimeout];

/// Times to compute and to wait, in turn; some so short that nothing can happen between.
fn times(chance: &mut Chance) -> Vec<Duration> {
    let count = chance.between(1, 5);
    let time = |at| match (at % 2, chance.below(4)) {
        (_, 0) => Duration::ZERO,
        (0, _) => chance.millis(1, 1_500),
        (_, 1) => chance.millis(1_000, 30_000),
        _ => chance.millis(1, 2_000),
    };
    (0..count).map(time).collect()
}

/// A plan by chance. One task in so many is done for items; 0 is none.
pub(super) fn plan(chance: &mut Chance, fan_outs: u32) -> Arc<Plan> {
    let (workflow, count) = *chance.pick(&SHAPES).expect("there are some");
    let after: Vec<Vec<usize>> = match workflow {
        "chain" => vec![vec![], vec![0], vec![1]],
        "diamond" => vec![vec![], vec![0], vec![0], vec![1, 2]],
        "fan" => vec![vec![], vec![0], vec![0], vec![0], vec![1, 2, 3]],
        _ => vec![vec![]; count],
    };
    let nodes: Vec<Node> = (0..).zip(&after).map(|(at, after)| node(chance, at, after)).collect();
    let task = |_| match chance.one_in(fan_outs) {
        false => task_plan(chance),
        true => fan_out(chance),
    };
    let tasks = nodes.iter().map(task).collect();
    let on_failure = [OnFailure::FailFast, OnFailure::FailFastKill, OnFailure::KeepGoing];
    let on_failure = *chance.pick(&on_failure).expect("there are some");
    let graph = Graph::new(nodes).expect("the shapes are graphs");
    Arc::new(Plan::new(workflow, graph, on_failure, tasks))
}

fn node(chance: &mut Chance, at: u32, after: &[usize]) -> Node {
    let when = match chance.below(8) {
        0 => When::AllDone,
        1 if !after.is_empty() => When::AnyFailed,
        2 if !after.is_empty() => When::AnySucceeded,
        _ => When::AllSucceeded,
    };
    Node::new(format!("t{at}")).after(after.iter().map(|at| format!("t{at}"))).when(when)
}

/// A task that is done for items has a deadline and a priority; all else is theirs.
fn fan_out(chance: &mut Chance) -> TaskPlan {
    let TaskPlan { rules, priority, .. } = task_plan(chance);
    let mut task = TaskPlan { each: Some("list".to_owned()), priority, ..TaskPlan::default() };
    task.rules.deadline = rules.deadline;
    task
}

fn task_plan(chance: &mut Chance) -> TaskPlan {
    let mut task = TaskPlan::default();
    if chance.one_in(4) {
        task.weight = chance.small(1, HEAVIEST);
    }
    if chance.one_in(6) {
        task.priority = chance.small(0, 20) as i32 - 10;
    }
    if chance.one_in(8) {
        task.timeout = Some(chance.millis(200, 3_000));
    }
    if chance.one_in(2) {
        task.rules.retries = chance.small(1, 3);
    }
    task.rules.backoff = match chance.below(3) {
        0 => Backoff::fixed(Duration::ZERO),
        1 => Backoff::fixed(chance.millis(1, 2_000)),
        _ => Backoff::default(),
    };
    if chance.one_in(8) {
        task.rules.queue_timeout = Some(chance.millis(500, 20_000));
    }
    if chance.one_in(8) {
        task.rules.deadline = Some(chance.millis(500, 60_000));
    }
    task
}
