//! What is run: plans and bodies drawn by chance.
//!
//! A body is a list of parts that is gone through from its beginning in every entry, as a real one
//! is. So that what is drawn can always end, limits are in order: whoever keeps some while it wants
//! others keeps those of a lower name, a child uses those of a deeper level than its parent, or none
//! but what its parent has given back, and whoever waits for some other run, which may use anything,
//! keeps none. Two tasks that each keep what the other wants stand still for ever, and nothing in the
//! engine promises otherwise.

use super::chance::Chance;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::graph::{Graph, Node, OnFailure, TaskIndex, When};
use tidegate_core::lifecycle::Failure;
use tidegate_core::limit::Limit;
use tidegate_core::plan::{LimitUse, Plan, TaskPlan};
use tidegate_core::{Backoff, RunId};

/// The heaviest task there is; every worker that has to end things has so many slots.
pub(super) const HEAVIEST: u32 = 3;

/// The queues there are.
pub(super) const QUEUES: [&str; 2] = ["main", "side"];

/// How deep runs begin runs.
const DEEPEST: usize = 2;

/// The limits there are, by the depth of the tasks that use them; in order of their names.
pub(super) const LIMITS: [[&str; 2]; DEEPEST + 1] = [["0a", "0b"], ["1a", "1b"], ["2a", "2b"]];

/// The signals there are.
pub(super) const SIGNALS: [&str; 3] = ["go", "on", "stop"];

/// The shapes of workflows. A name stands for one set of tasks, so that every worker knows them.
const SHAPES: [(&str, usize); 5] =
    [("one", 1), ("pair", 2), ("chain", 3), ("diamond", 4), ("fan", 5)];

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
    /// Goes through these parts and succeeds.
    Steady(Vec<Part>),
    /// Fails in its first attempts, in this way, and then is steady.
    Fails { attempts: u32, failure: Failure, permanent: bool, parts: Vec<Part> },
    /// Wants to be run later in its first entries.
    Snoozes { entries: u32, delay: Duration, parts: Vec<Part> },
    /// Kills its process in its first entries; for ever, if it is poison.
    Kills { entries: u32, after: Duration },
    /// Computes until it is stopped.
    Never,
    /// Computes for this time, begins a run of these items, waits for it, and ends as it did.
    FanOut(Duration, Arc<Birth>),
}

/// A part of a body.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Compute(Duration),
    /// Waits in memory, without so many of its limits.
    Wait(Duration, usize),
    /// Computes something whose value is kept.
    Step(&'static str),
    /// Waits for something that the store knows.
    Stored(Leaf),
    /// Waits for the first of several such, for so long at most.
    Any(Vec<Leaf>, Option<Duration>),
}

/// A stored wait.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) what: For,
    pub(super) patience: Option<Duration>,
    /// How many of its limits the task gives back meanwhile.
    pub(super) releases: usize,
}

/// What a stored wait is for.
#[derive(Debug, Clone)]
pub(super) enum For {
    Signal(&'static str),
    Sleep(Duration),
    Run(RunId),
    Child(Arc<Birth>),
}

/// A run that a task begins.
#[derive(Debug)]
pub(super) struct Birth {
    pub(super) plan: Arc<Plan>,
    pub(super) tempers: Vec<Temper>,
    pub(super) keys: Keys,
    /// Another queue and priority than those of its parent.
    pub(super) apart: Option<(&'static str, i32)>,
}

/// The keys of the limits of each task that has such with keys.
pub(super) type Keys = Vec<(TaskIndex, Vec<Arc<str>>)>;

impl Birth {
    pub(super) fn is_of_items(&self) -> bool {
        self.plan.items_of().is_some()
    }
}

/// One thing that a body does.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Part(Part),
    ComputeForever,
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

    fn parts(&self) -> &[Part] {
        match self {
            Temper::Steady(parts) | Temper::Fails { parts, .. } | Temper::Snoozes { parts, .. } => {
                parts
            }
            _ => &[],
        }
    }

    /// For how many signals of this name it waits at once, at most.
    pub(super) fn wants(&self, name: &str) -> usize {
        let is_it = |leaf: &&Leaf| matches!(leaf.what, For::Signal(other) if other == name);
        let at_once = self.parts().iter().map(|part| match part {
            Part::Stored(leaf) => usize::from(is_it(&leaf)),
            Part::Any(leaves, _) => leaves.iter().filter(is_it).count(),
            _ => 0,
        });
        at_once.max().unwrap_or(0)
    }

    /// What it does in this attempt, when it was entered so often before.
    pub(super) fn acts(&self, attempt: u32, entered: u32) -> VecDeque<Act> {
        let compute = |time: &Duration| vec![Part::Compute(*time)];
        let (parts, last) = match self {
            Temper::Steady(parts) => (parts.clone(), Act::Succeed),
            Temper::Fails { attempts, failure, permanent, parts } => match attempt <= *attempts {
                true => (parts.clone(), Act::Fail(*failure, *permanent)),
                false => (parts.clone(), Act::Succeed),
            },
            Temper::Snoozes { entries, delay, parts } => match entered < *entries {
                true => (parts.clone(), Act::Snooze(*delay)),
                false => (parts.clone(), Act::Succeed),
            },
            Temper::Kills { entries, after } => match entered < *entries {
                true => (compute(after), Act::KillProcess),
                false => (compute(after), Act::Succeed),
            },
            Temper::Never => (Vec::new(), Act::ComputeForever),
            Temper::FanOut(time, items) => {
                let what = For::Child(items.clone());
                let items = Part::Stored(Leaf { what, patience: None, releases: 0 });
                (vec![Part::Compute(*time), items], Act::Conclude)
            }
        };
        parts.into_iter().map(Act::Part).chain([last]).collect()
    }
}

/// How likely bodies of each kind are: poison once in so many, and so on; 0 is never.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mood {
    pub(super) poison: u32,
    pub(super) killer: u32,
    pub(super) never: u32,
    /// Tasks that take several slots.
    pub(super) heavy: u32,
    /// Tasks that are done for items.
    pub(super) fan_outs: u32,
    /// Parts that are stored.
    pub(super) stored: u32,
    /// Tasks with limits.
    pub(super) limits: u32,
    /// Tasks that may park.
    pub(super) parks: u32,
}

/// What draws a run: chance, and what is there already.
pub(super) struct Draw<'a> {
    pub(super) chance: &'a mut Chance,
    pub(super) mood: Mood,
    /// Runs that may be waited for, and the one that is drawn.
    pub(super) runs: &'a [RunId],
    pub(super) own: RunId,
    pub(super) depth: usize,
}

const FAILURES: [Failure; 3] = [Failure::Error, Failure::Panic, Failure::WaitTimeout];

impl Draw<'_> {
    /// A plan by chance.
    pub(super) fn plan(&mut self) -> Arc<Plan> {
        // What is deep is small.
        let shapes = &SHAPES[..if self.depth == 0 { SHAPES.len() } else { 3 }];
        let (workflow, count) = *self.chance.pick(shapes).expect("there are some");
        let after: Vec<Vec<usize>> = match workflow {
            "chain" => vec![vec![], vec![0], vec![1]],
            "diamond" => vec![vec![], vec![0], vec![0], vec![1, 2]],
            "fan" => vec![vec![], vec![0], vec![0], vec![0], vec![1, 2, 3]],
            _ => vec![vec![]; count],
        };
        let nodes: Vec<Node> = (0..).zip(&after).map(|(at, after)| self.node(at, after)).collect();
        let may_fan_out = self.depth < DEEPEST;
        let task = |_| match may_fan_out && self.chance.one_in(self.mood.fan_outs) {
            false => self.task_plan(),
            true => self.fan_out(),
        };
        let tasks = nodes.iter().map(task).collect();
        let on_failure = [OnFailure::FailFast, OnFailure::FailFastKill, OnFailure::KeepGoing];
        let on_failure = *self.chance.pick(&on_failure).expect("there are some");
        let graph = Graph::new(nodes).expect("the shapes are graphs");
        Arc::new(Plan::new(workflow, graph, on_failure, tasks))
    }

    fn node(&mut self, at: u32, after: &[usize]) -> Node {
        let when = match self.chance.below(8) {
            0 => When::AllDone,
            1 if !after.is_empty() => When::AnyFailed,
            2 if !after.is_empty() => When::AnySucceeded,
            _ => When::AllSucceeded,
        };
        Node::new(format!("t{at}")).after(after.iter().map(|at| format!("t{at}"))).when(when)
    }

    /// A task that is done for items has a deadline and a priority; all else is theirs.
    fn fan_out(&mut self) -> TaskPlan {
        let TaskPlan { rules, priority, parkable, .. } = self.task_plan();
        let each = Some("list".to_owned());
        let mut task = TaskPlan { each, priority, parkable, ..TaskPlan::default() };
        task.rules.deadline = rules.deadline;
        task
    }

    fn task_plan(&mut self) -> TaskPlan {
        let (chance, mood) = (&mut *self.chance, self.mood);
        let mut task = TaskPlan::default();
        if chance.one_in(mood.heavy) {
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
        task.parkable = chance.one_in(mood.parks);
        if chance.one_in(mood.limits) {
            for name in LIMITS[self.depth] {
                if chance.one_in(2) {
                    let used = LimitUse::of(name).units(chance.small(1, 2));
                    let is_keyed = chance.one_in(3);
                    task.limits.push(if is_keyed { used.by("some.path") } else { used });
                }
            }
        }
        task
    }

    /// The bodies of a plan, by chance.
    pub(super) fn tempers(&mut self, plan: &Plan) -> Vec<Temper> {
        let tasks = plan.graph().tasks();
        tasks
            .map(|task| match plan.task(task).each {
                None => self.temper(plan.task(task)),
                Some(_) => self.items(plan, plan.graph().name(task)),
            })
            .collect()
    }

    fn items(&mut self, above: &Plan, name: &str) -> Temper {
        let time = self.chance.millis(0, 500);
        let (count, depth) = (self.chance.small(1, 5), self.depth);
        self.depth = (depth + 1).min(DEEPEST);
        let task = self.task_plan();
        let plan = Plan::items(above.workflow(), name, count, above.on_failure(), task.clone());
        let tempers = (0..count).map(|_| self.temper(&task)).collect();
        let keys = self.keys(&plan);
        self.depth = depth;
        Temper::FanOut(time, Arc::new(Birth { plan: Arc::new(plan), tempers, keys, apart: None }))
    }

    /// The keys of limits, by chance.
    pub(super) fn keys(&mut self, plan: &Plan) -> Keys {
        let keyed = |task: TaskIndex| {
            let count = plan.task(task).limits.iter().filter(|used| used.key.is_some()).count();
            let mut key = || Arc::from(*self.chance.pick(&["x", "y"]).expect("there are some"));
            (count > 0).then(|| (task, (0..count).map(|_| key()).collect()))
        };
        plan.graph().tasks().filter_map(keyed).collect()
    }

    /// A body by chance.
    fn temper(&mut self, task: &TaskPlan) -> Temper {
        let after = self.chance.millis(0, 800);
        if self.chance.one_in(self.mood.poison) {
            return Temper::Kills { entries: u32::MAX, after };
        }
        if self.chance.one_in(self.mood.killer) {
            return Temper::Kills { entries: self.chance.small(1, 2), after };
        }
        if self.chance.one_in(self.mood.never) {
            return Temper::Never;
        }
        let parts = self.parts(task);
        let chance = &mut *self.chance;
        match chance.below(10) {
            0 | 1 => Temper::Fails {
                attempts: chance.small(1, 3),
                failure: *chance.pick(&FAILURES).expect("there are some"),
                permanent: chance.one_in(4),
                parts,
            },
            2 => {
                let (entries, delay) = (chance.small(1, 2), chance.millis(0, 4_000));
                Temper::Snoozes { entries, delay, parts }
            }
            _ => Temper::Steady(parts),
        }
    }

    /// What it does in turn: it computes and waits; some of it so short that nothing can happen
    /// between.
    fn parts(&mut self, task: &TaskPlan) -> Vec<Part> {
        let count = self.chance.between(1, 5);
        let mut parts = Vec::new();
        for at in 0..count {
            if self.chance.one_in(self.mood.stored) {
                parts.push(self.stored(task));
                continue;
            }
            let chance = &mut *self.chance;
            let time = match (at % 2, chance.below(4)) {
                (_, 0) => Duration::ZERO,
                (0, _) => chance.millis(1, 1_500),
                (_, 1) => chance.millis(1_000, 30_000),
                _ => chance.millis(1, 2_000),
            };
            parts.push(match at % 2 {
                0 => Part::Compute(time),
                _ => Part::Wait(time, chance.small(0, task.limits.len() as u32) as usize),
            });
        }
        parts
    }

    fn stored(&mut self, task: &TaskPlan) -> Part {
        match self.chance.below(6) {
            0 | 1 => Part::Step(self.chance.pick(&["a", "b"]).expect("there are some")),
            2 => {
                let count = self.chance.between(2, 3);
                let leaves = (0..count).map(|_| self.leaf(task)).collect();
                let patience = self.chance.one_in(3).then(|| self.chance.millis(0, 10_000));
                Part::Any(leaves, patience)
            }
            _ => Part::Stored(self.leaf(task)),
        }
    }

    fn leaf(&mut self, task: &TaskPlan) -> Leaf {
        let count = task.limits.len();
        let mut releases = self.chance.small(0, count as u32) as usize;
        let mut patience = self.chance.one_in(3).then(|| self.chance.millis(0, 15_000));
        let what = match self.chance.below(7) {
            0 | 1 if self.depth < DEEPEST => self.child(task, &mut releases),
            2 => {
                releases = count;
                // What is deep waits for the run above it, in a circle.
                let others = if self.depth == 0 { self.runs } else { &[] };
                For::Run(*self.chance.pick(others).unwrap_or(&self.own))
            }
            3 | 4 if task.parkable => {
                patience = None;
                For::Sleep(self.chance.millis(0, 40_000))
            }
            _ => For::Signal(self.chance.pick(&SIGNALS).expect("there are some")),
        };
        Leaf { what, patience, releases }
    }

    /// A run that a task begins. Some use what their parent uses: it keeps all of that, and is
    /// refused, or nothing.
    fn child(&mut self, parent: &TaskPlan, releases: &mut usize) -> For {
        let depth = self.depth;
        self.depth += 1;
        let mut plan = self.plan();
        if !parent.limits.is_empty() && self.chance.one_in(4) {
            *releases = if self.chance.one_in(2) { parent.limits.len() } else { 0 };
            let tasks = plan.graph().tasks().map(|task| {
                let task = plan.task(task).clone();
                let is_plain = task.limits.is_empty() && task.each.is_none();
                let limits = if is_plain { parent.limits.clone() } else { task.limits };
                TaskPlan { limits, ..task }
            });
            let (graph, on_failure) = (plan.graph().clone(), plan.on_failure());
            plan = Arc::new(Plan::new(plan.workflow(), graph, on_failure, tasks.collect()));
            // What these wait for may want what they keep.
            self.depth = DEEPEST;
        }
        let tempers = self.tempers(&plan);
        let keys = self.keys(&plan);
        self.depth = depth;
        let queue = *self.chance.pick(&QUEUES).expect("there are some");
        let apart = self.chance.one_in(4).then(|| (queue, self.chance.small(0, 9) as i32));
        For::Child(Arc::new(Birth { plan, tempers, keys, apart }))
    }
}

/// A bound by chance.
pub(super) fn limit(chance: &mut Chance, name: &str) -> Limit {
    let limit = Limit::new(name);
    let at_once = chance.small(1, 4);
    match chance.below(4) {
        0 => limit.rate(chance.small(1, 3), chance.millis(100, 2_000)),
        1 => limit.at_once(at_once).rate(chance.small(1, 3), chance.millis(100, 2_000)),
        _ => limit.at_once(at_once),
    }
}
