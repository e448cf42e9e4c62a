//! The graph against naive models, and its rules one by one.
//!
//! The models are written from the prose: tasks in plain maps by name, every question answered by
//! going over all of them until nothing changes. Where a model and the graph disagree, one of them
//! has the rules wrong.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_core::graph::{
    Consequence, Graph, GraphError, Node, OnFailure, Outcome, RunOutcome, Standing, TaskIndex,
    Verdict, When, nearest,
};

const WHENS: [When; 4] = [When::AllSucceeded, When::AllDone, When::AnyFailed, When::AnySucceeded];
const POLICIES: [OnFailure; 3] =
    [OnFailure::FailFast, OnFailure::FailFastKill, OnFailure::KeepGoing];
const OUTCOMES: [Outcome; 4] =
    [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Skipped];

/// Names whose order is not that of the alphabet.
const NAMES: [&str; 9] = ["kiwi", "fig", "plum", "apple", "pear", "lime", "date", "nut", "melon"];

// ------------------------------------------------------------------------ models of the rules --

/// Whether a rule holds over parents that have all ended.
fn holds(when: When, ends: &[Outcome]) -> bool {
    let number_of = |outcome| ends.iter().filter(|&&end| end == outcome).count();
    match when {
        When::AllSucceeded => number_of(Outcome::Succeeded) == ends.len(),
        When::AllDone => true,
        When::AnyFailed => number_of(Outcome::Failed) > 0,
        When::AnySucceeded => number_of(Outcome::Succeeded) > 0,
    }
}

/// Whether the parents, open ones included, let the task run already.
fn is_met(when: When, ends: &[Option<Outcome>]) -> bool {
    let so_far: Vec<Outcome> = ends.iter().flatten().copied().collect();
    let all_ended = so_far.len() == ends.len();
    holds(when, &so_far) && (all_ended || when == When::AnySucceeded)
}

/// Whether no way in which the open parents may end makes the rule hold.
fn is_out_of_reach(when: When, ends: &[Option<Outcome>]) -> bool {
    let Some(open) = ends.iter().position(Option::is_none) else {
        let ends: Vec<Outcome> = ends.iter().flatten().copied().collect();
        return !holds(when, &ends);
    };
    OUTCOMES.iter().all(|&end| {
        let mut ends = ends.to_vec();
        ends[open] = Some(end);
        is_out_of_reach(when, &ends)
    })
}

/// The parent to name: the first that ended as the rule does not want it.
fn cause<'n>(when: When, parents: &[&'n str], ends: &[Option<Outcome>]) -> &'n str {
    let unwanted = |&(_, end): &(_, &Option<Outcome>)| match when {
        When::AllSucceeded | When::AnySucceeded => !matches!(end, None | Some(Outcome::Succeeded)),
        When::AnyFailed | When::AllDone => !matches!(end, None | Some(Outcome::Failed)),
    };
    parents.iter().zip(ends).find(unwanted).expect("some parent decided it").0
}

// -------------------------------------------------------------------------- a model of a graph --

/// A definition by numbers: for each task what it comes after, and its rule.
#[derive(Debug, Clone)]
struct Plan {
    after: Vec<Vec<usize>>,
    when: Vec<When>,
}

impl Plan {
    fn nodes(&self) -> Vec<Node> {
        let node = |(at, after): (usize, &Vec<usize>)| {
            Node::new(NAMES[at]).after(after.iter().map(|&at| NAMES[at])).when(self.when[at])
        };
        self.after.iter().enumerate().map(node).collect()
    }

    fn len(&self) -> usize {
        self.after.len()
    }

    /// Takes away what comes after nothing that is left, until that is nobody.
    fn can_be_sorted(&self) -> bool {
        let mut left: BTreeSet<usize> = (0..self.len()).collect();
        while let Some(&free) =
            left.iter().find(|&&task| self.after[task].iter().all(|parent| !left.contains(parent)))
        {
            left.remove(&free);
        }
        left.is_empty()
    }

    /// The least number of arrows from each task to each other, by trying all ways between.
    fn distances(&self) -> Vec<Vec<Option<usize>>> {
        let all = 0..self.len();
        let mut distance = vec![vec![None; self.len()]; self.len()];
        for child in all.clone() {
            for &parent in &self.after[child] {
                distance[parent][child] = Some(1);
            }
        }
        for (between, from, to) in all
            .clone()
            .flat_map(|a| all.clone().map(move |b| (a, b)))
            .flat_map(|(a, b)| all.clone().map(move |c| (a, b, c)))
        {
            if let (Some(first), Some(second)) = (distance[from][between], distance[between][to]) {
                let sum: usize = first + second;
                distance[from][to] = Some(distance[from][to].map_or(sum, |known| sum.min(known)));
            }
        }
        distance
    }

    /// The wave of a task, from the top.
    fn wave(&self, task: usize) -> usize {
        self.after[task].iter().map(|&parent| self.wave(parent) + 1).max().unwrap_or(0)
    }
}

fn number_of(name: &str) -> usize {
    NAMES.iter().position(|&other| other == name).expect("one of the names")
}

fn numbers(tasks: &[TaskIndex]) -> Vec<usize> {
    tasks.iter().map(|task| task.as_usize()).collect()
}

fn without_repeats(list: &[usize]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    list.iter().copied().filter(|&item| seen.insert(item)).collect()
}

fn when_with_parents() -> impl Strategy<Value = When> + Clone {
    prop_oneof![
        5 => Just(When::AllSucceeded),
        2 => Just(When::AllDone),
        2 => Just(When::AnyFailed),
        2 => Just(When::AnySucceeded),
    ]
}

/// Any tasks after any tasks, mostly few, so that about half of the plans have a cycle.
fn any_plan() -> impl Strategy<Value = Plan> {
    (1..=NAMES.len()).prop_flat_map(|count| {
        let after = prop::collection::vec(prop::collection::vec(0..count, 0..=2), count);
        after.prop_map(move |after| Plan { after, when: vec![When::AllSucceeded; count] })
    })
}

/// Tasks in any order of definition, each after some that are earlier in a hidden order.
fn sound_plan() -> impl Strategy<Value = Plan> {
    let indices = prop::collection::vec(any::<prop::sample::Index>(), 0..=4);
    let task = (indices, when_with_parents());
    (1..=NAMES.len())
        .prop_flat_map(move |count| {
            let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
            (order, prop::collection::vec(task.clone(), count))
        })
        .prop_map(|(order, tasks)| {
            let mut plan =
                Plan { after: vec![vec![]; order.len()], when: vec![When::default(); order.len()] };
            for (place, (indices, when)) in tasks.into_iter().enumerate() {
                let task = order[place];
                if place > 0 && !indices.is_empty() {
                    plan.after[task] = indices.iter().map(|i| order[i.index(place)]).collect();
                    plan.when[task] = when;
                } else if when == When::AllDone {
                    plan.when[task] = when;
                }
            }
            plan
        })
}

proptest! {
    #![proptest_config(Config { cases: 1024, ..Config::default() })]

    #[test]
    fn a_graph_is_built_exactly_if_its_tasks_can_be_sorted(plan in any_plan()) {
        match Graph::new(plan.nodes()) {
            Ok(_) => prop_assert!(plan.can_be_sorted()),
            Err(GraphError::SelfDependency { task }) => {
                let at = number_of(&task);
                prop_assert!(plan.after[at].contains(&at));
            }
            Err(GraphError::Cycle { path }) => {
                let path: Vec<usize> = path.iter().map(|name| number_of(name)).collect();
                prop_assert_eq!(path[0], path[path.len() - 1]);
                prop_assert_eq!(without_repeats(&path).len(), path.len() - 1);
                for pair in path.windows(2) {
                    prop_assert!(plan.after[pair[1]].contains(&pair[0]));
                }
                let shortest = plan.distances()[path[0]][path[0]];
                prop_assert_eq!(Some(path.len() - 1), shortest, "the shortest way back");
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn relatives_and_waves_are_those_of_the_definition(plan in sound_plan()) {
        let graph = Graph::new(plan.nodes()).expect("a sound plan");
        let distances = plan.distances();
        prop_assert_eq!(graph.task_count(), plan.len());
        for task in graph.tasks() {
            let at = task.as_usize();
            prop_assert_eq!(graph.name(task), NAMES[at]);
            prop_assert_eq!(graph.find(NAMES[at]), Some(task));
            prop_assert_eq!(graph.when(task), plan.when[at]);
            prop_assert_eq!(numbers(graph.parents(task)), without_repeats(&plan.after[at]));
            let children = (0..plan.len()).filter(|&other| plan.after[other].contains(&at));
            prop_assert_eq!(numbers(graph.children(task)), children.collect::<Vec<_>>());
            let ancestors = (0..plan.len()).filter(|&other| distances[other][at].is_some());
            prop_assert_eq!(numbers(&graph.ancestors(task)), ancestors.collect::<Vec<_>>());
        }
        let waves: Vec<Vec<usize>> = graph.waves().iter().map(|wave| numbers(wave)).collect();
        let expected = (0..=(0..plan.len()).map(|task| plan.wave(task)).max().unwrap())
            .map(|wave| (0..plan.len()).filter(|&task| plan.wave(task) == wave).collect());
        prop_assert_eq!(waves, expected.collect::<Vec<Vec<_>>>());
    }
}

#[test]
fn every_rule_gives_the_verdict_of_the_model_for_every_state_of_up_to_four_parents() {
    let ends: Vec<Option<Outcome>> =
        OUTCOMES.into_iter().map(Some).chain([None]).collect::<Vec<_>>();
    for (when, count) in WHENS.into_iter().flat_map(|when| (0..=4).map(move |n| (when, n))) {
        let parents = &NAMES[..count];
        let nodes = parents.iter().map(|&name| Node::new(name));
        let child = Node::new("child").after(parents.iter().rev().copied()).when(when);
        let Ok(graph) = Graph::new(nodes.chain([child])) else {
            assert!(count == 0 && matches!(when, When::AnyFailed | When::AnySucceeded));
            continue;
        };
        let child = graph.find("child").unwrap();
        for state in 0..ends.len().pow(count as u32) {
            let end = |at: usize| ends[state / ends.len().pow(at as u32) % ends.len()];
            let reversed: Vec<_> = (0..count).rev().map(end).collect();
            let names: Vec<&str> = parents.iter().rev().copied().collect();
            let expected = if is_met(when, &reversed) {
                Verdict::Run
            } else if is_out_of_reach(when, &reversed) {
                Verdict::Skip { cause: graph.find(cause(when, &names, &reversed)).unwrap() }
            } else {
                Verdict::Wait
            };
            let verdict = graph.verdict(child, |parent| end(parent.as_usize()));
            assert_eq!(verdict, expected, "{when} over {reversed:?}");
        }
    }
}

// --------------------------------------------------------------------------- a model of a run --

/// A run as the prose tells it: what stands where, by name.
#[derive(Clone)]
struct Model<'p> {
    plan: &'p Plan,
    on_failure: OnFailure,
    standings: BTreeMap<&'static str, Standing>,
}

impl Model<'_> {
    fn parents(&self, name: &str) -> Vec<&'static str> {
        without_repeats(&self.plan.after[number_of(name)])
            .into_iter()
            .map(|parent| NAMES[parent])
            .collect()
    }

    fn when(&self, name: &str) -> When {
        self.plan.when[number_of(name)]
    }

    fn is_cleanup(&self, name: &str) -> bool {
        [When::AllDone, When::AnyFailed].contains(&self.when(name))
    }

    fn ends_of_parents(&self, name: &str) -> Vec<Option<Outcome>> {
        let end = |parent| match self.standings[parent] {
            Standing::Ended(outcome) => Some(outcome),
            _ => None,
        };
        self.parents(name).into_iter().map(end).collect()
    }

    fn names(&self, wanted: impl Fn(Standing) -> bool) -> Vec<&'static str> {
        let wanted = self.standings.iter().filter(|&(_, &standing)| wanted(standing));
        wanted.map(|(&name, _)| name).collect()
    }

    fn has_failed(&self) -> bool {
        !self.names(|standing| standing == Standing::Ended(Outcome::Failed)).is_empty()
    }

    /// What will be skipped because of what is going to fail, once it has, and what then follows.
    fn doomed(&self) -> Vec<&'static str> {
        let mut then = self.clone();
        let failing = self.names(|standing| standing == Standing::Failing);
        for name in &failing {
            then.standings.insert(name, Standing::Ended(Outcome::Failed));
        }
        let mut out_of_reach = BTreeMap::new();
        then.skip(&[], &mut out_of_reach);
        let mut doomed = Vec::new();
        let waits = |name: &str, doomed: &[&str]| {
            let mut parents = self.parents(name).into_iter();
            parents.any(|parent| failing.contains(&parent) || doomed.contains(&parent))
        };
        while let Some(name) =
            out_of_reach.keys().find(|name| !doomed.contains(*name) && waits(name, &doomed))
        {
            doomed.push(*name);
        }
        doomed
    }

    /// Skips what is out of reach, and what that puts out of reach. The causes are found when all
    /// is known.
    fn skip(&mut self, spared: &[&'static str], found: &mut BTreeMap<&'static str, String>) {
        let mut skipped = Vec::new();
        while let Some(name) = self
            .names(|standing| standing == Standing::Blocked)
            .into_iter()
            .filter(|name| !spared.contains(name))
            .find(|name| is_out_of_reach(self.when(name), &self.ends_of_parents(name)))
        {
            self.standings.insert(name, Standing::Ended(Outcome::Skipped));
            skipped.push(name);
        }
        for name in skipped {
            let ends = self.ends_of_parents(name);
            let cause = cause(self.when(name), &self.parents(name), &ends);
            found.insert(name, format!("skip because of {cause}"));
        }
    }

    fn stop_the_rest(
        &mut self,
        spared: &[&'static str],
        found: &mut BTreeMap<&'static str, String>,
    ) {
        for name in self.names(|_| true) {
            let (word, standing) = match self.standings[name] {
                _ if self.is_cleanup(name) || spared.contains(&name) => continue,
                Standing::Blocked | Standing::Ready | Standing::Waiting => {
                    ("cancel", Standing::Ended(Outcome::Cancelled))
                }
                Standing::Active if self.on_failure == OnFailure::FailFastKill => {
                    ("stop", Standing::Stopping)
                }
                _ => continue,
            };
            self.standings.insert(name, standing);
            found.insert(name, word.to_owned());
        }
    }

    /// Changes what follows and tells it, by name.
    fn settle(&mut self) -> BTreeMap<&'static str, String> {
        let mut found = BTreeMap::new();
        let doomed = self.doomed();
        self.skip(&doomed, &mut found);
        let fails = !self.names(|standing| standing == Standing::Failing).is_empty();
        if self.on_failure != OnFailure::KeepGoing && (fails || self.has_failed()) {
            self.stop_the_rest(&doomed, &mut found);
            self.skip(&doomed, &mut found);
        }
        for name in self.names(|standing| standing == Standing::Blocked) {
            if is_met(self.when(name), &self.ends_of_parents(name)) {
                self.standings.insert(name, Standing::Ready);
                found.insert(name, "unblock".to_owned());
            }
        }
        found
    }
}

/// How often the random runs came to the places that matter.
#[derive(Debug, Default)]
struct Reached {
    failed_runs: Cell<u32>,
    cancelled_runs: Cell<u32>,
    skipped_beside_a_cancel: Cell<u32>,
    stopped: Cell<u32>,
    cleanup_behind_a_cancelled: Cell<u32>,
    cleanup_failed: Cell<u32>,
    started_beside_an_open_parent: Cell<u32>,
    spared_beside_a_cancel: Cell<u32>,
}

fn count(counter: &Cell<u32>, happened: bool) {
    counter.set(counter.get() + u32::from(happened));
}

/// The graph and the model through one run.
struct Pair<'p> {
    graph: Graph,
    standings: Vec<Standing>,
    model: Model<'p>,
    begun: BTreeSet<&'static str>,
    cancelled_by_user: bool,
    reached: &'p Reached,
}

impl<'p> Pair<'p> {
    fn new(plan: &'p Plan, on_failure: OnFailure, reached: &'p Reached) -> Self {
        let standings = NAMES[..plan.len()].iter().map(|&name| (name, Standing::Blocked)).collect();
        Pair {
            graph: Graph::new(plan.nodes()).expect("a sound plan"),
            standings: vec![Standing::Blocked; plan.len()],
            model: Model { plan, on_failure, standings },
            begun: BTreeSet::new(),
            cancelled_by_user: false,
            reached,
        }
    }

    fn settle(&mut self) {
        let ask = |standings: &[Standing]| {
            self.graph.settle(self.model.on_failure, |task| standings[task.as_usize()])
        };
        let consequences = ask(&self.standings);
        assert!(consequences.is_sorted_by_key(|&(task, _)| task), "{consequences:?}");
        let mut told = BTreeMap::new();
        for &(task, consequence) in &consequences {
            let name = NAMES[task.as_usize()];
            let before = self.standings[task.as_usize()];
            assert!(before.outcome().is_none(), "{name} ends once");
            self.standings[task.as_usize()] = before.after(consequence);
            let text = match consequence {
                Consequence::Unblock => "unblock".to_owned(),
                Consequence::Skip { cause } => {
                    format!("skip because of {}", NAMES[cause.as_usize()])
                }
                Consequence::Cancel => "cancel".to_owned(),
                Consequence::Stop => "stop".to_owned(),
            };
            assert_eq!(told.insert(name, text), None, "{name} is named once");
        }
        assert_eq!(ask(&self.standings), [], "settled is settled");
        assert_eq!(told, self.model.settle(), "{:?}", self.model.standings);
        self.compare();
        self.count_what_was_reached(&told);
    }

    fn compare(&self) {
        for (at, &standing) in self.standings.iter().enumerate() {
            assert_eq!(standing, self.model.standings[NAMES[at]], "{}", NAMES[at]);
        }
    }

    fn count_what_was_reached(&self, told: &BTreeMap<&'static str, String>) {
        let said = |word: &str| told.values().any(|text| text.starts_with(word));
        count(&self.reached.skipped_beside_a_cancel, said("skip") && said("cancel"));
        count(&self.reached.stopped, said("stop"));
        let spares = !self.model.doomed().is_empty();
        count(&self.reached.spared_beside_a_cancel, spares && said("cancel"));
        for name in told.iter().filter(|(_, text)| *text == "unblock").map(|(name, _)| name) {
            let ends = self.model.ends_of_parents(name);
            let cancelled = ends.contains(&Some(Outcome::Cancelled));
            count(&self.reached.cleanup_behind_a_cancelled, cancelled);
            count(&self.reached.started_beside_an_open_parent, ends.contains(&None));
        }
    }

    fn set(&mut self, at: usize, standing: Standing) {
        assert!(self.standings[at].outcome().is_none(), "{} ends once", NAMES[at]);
        self.standings[at] = standing;
        self.model.standings.insert(NAMES[at], standing);
    }

    fn begin(&mut self, at: usize) {
        let name = NAMES[at];
        let when = self.model.when(name);
        assert!(is_met(when, &self.model.ends_of_parents(name)), "{name} runs against its rule");
        assert!(!self.cancelled_by_user, "{name} starts after the user's cancel");
        let stops = self.model.on_failure != OnFailure::KeepGoing && self.model.has_failed();
        assert!(!stops || self.model.is_cleanup(name), "{name} starts after the failure");
        self.begun.insert(name);
        self.set(at, Standing::Active);
    }

    fn cancel(&mut self) {
        self.cancelled_by_user = true;
        let standings = self.standings.clone();
        for (task, consequence) in self.graph.cancel_all(|task| standings[task.as_usize()]) {
            let at = task.as_usize();
            self.set(at, standings[at].after(consequence));
        }
        let goes_on =
            |standing: &Standing| !matches!(standing, Standing::Stopping | Standing::Ended(_));
        assert!(!self.standings.iter().any(goes_on), "{:?}", self.standings);
    }

    /// Something happens to a task that is under way: the one that `which` picks.
    fn happen(&mut self, which: usize, how: u8) {
        let under_way =
            |&at: &usize| !matches!(self.standings[at], Standing::Blocked | Standing::Ended(_));
        let candidates: Vec<usize> = (0..self.standings.len()).filter(under_way).collect();
        let at = candidates[which % candidates.len()];
        let ended = |outcome| Standing::Ended(outcome);
        let next = match (self.standings[at], how) {
            // A queue time-out or a deadline ends what has not begun; else it begins.
            (Standing::Ready, 15..) => ended(Outcome::Failed),
            (Standing::Ready, _) => return self.begin(at),
            (Standing::Active, 0..7) => ended(Outcome::Succeeded),
            (Standing::Active, 7..10) => ended(Outcome::Failed),
            (Standing::Active, 10..12) => Standing::Waiting,
            (Standing::Active, 12) => Standing::Failing,
            (Standing::Active, _) => Standing::Ready,
            (Standing::Waiting, 14..) => ended(Outcome::Failed),
            (Standing::Waiting, 7..14) => Standing::Failing,
            (Standing::Waiting, _) => Standing::Active,
            (Standing::Failing, _) => ended(Outcome::Failed),
            // It may have come to its end before it heard.
            (Standing::Stopping, 0..2) => ended(Outcome::Succeeded),
            (Standing::Stopping, 2..4) => ended(Outcome::Failed),
            (Standing::Stopping, _) => ended(Outcome::Cancelled),
            (Standing::Blocked | Standing::Ended(_), _) => unreachable!("it is under way"),
        };
        let failed = next == ended(Outcome::Failed) && self.model.is_cleanup(NAMES[at]);
        count(&self.reached.cleanup_failed, failed);
        self.set(at, next);
    }

    fn is_under_way(&self) -> bool {
        let still = |s: &Standing| !matches!(s, Standing::Blocked | Standing::Ended(_));
        self.standings.iter().any(still)
    }

    fn outcome(&self) -> Option<RunOutcome> {
        let standing_of = |task: TaskIndex| self.standings[task.as_usize()];
        self.graph.outcome_of_run(standing_of, self.cancelled_by_user)
    }

    /// Nothing is under way: then nothing is open, and the ends fit together.
    fn check_the_end(&self) {
        assert_eq!(self.model.names(|standing| standing == Standing::Blocked), [""; 0]);
        let expected = match (self.cancelled_by_user, self.model.has_failed()) {
            (true, _) => RunOutcome::Cancelled,
            (false, true) => RunOutcome::Failed,
            (false, false) => RunOutcome::Succeeded,
        };
        assert_eq!(self.outcome(), Some(expected));
        count(&self.reached.failed_runs, expected == RunOutcome::Failed);
        count(&self.reached.cancelled_runs, expected == RunOutcome::Cancelled);
        let cancelled = self.model.names(|s| s == Standing::Ended(Outcome::Cancelled));
        let stops = self.model.on_failure != OnFailure::KeepGoing && self.model.has_failed();
        assert!(cancelled.is_empty() || stops || self.cancelled_by_user, "{cancelled:?}");
        if !self.cancelled_by_user {
            let cleanup = |name: &&&str| self.model.is_cleanup(name);
            assert_eq!(cancelled.iter().find(cleanup), None, "clean-up is spared");
        }
        for name in self.model.names(|s| s == Standing::Ended(Outcome::Skipped)) {
            assert!(!self.begun.contains(name), "{name} was skipped after it had begun");
        }
        for name in self.model.names(|s| s == Standing::Ended(Outcome::Succeeded)) {
            assert!(self.begun.contains(name), "{name} succeeded without having begun");
        }
    }
}

/// A plan, a policy, what happens in turn, and after how many of these the user cancels.
type Story = (Plan, OnFailure, Vec<(usize, u8)>, Option<usize>);

fn story() -> impl Strategy<Value = Story> {
    let events = prop::collection::vec((0..NAMES.len(), 0..16u8), 0..60);
    let cancel = prop::option::weighted(0.15, 0..20usize);
    (sound_plan(), prop::sample::select(&POLICIES[..]), events, cancel)
}

fn tell((plan, on_failure, events, cancel): &Story, reached: &Reached) {
    let mut pair = Pair::new(plan, *on_failure, reached);
    pair.settle();
    // When the story is told, everything begins, goes on and succeeds.
    let rest = std::iter::repeat(&(0, 4));
    for (turn, &(which, how)) in events.iter().chain(rest).enumerate() {
        if !pair.is_under_way() {
            break;
        }
        assert_eq!(pair.outcome(), None, "something is under way");
        assert!(turn < events.len() + 4 * NAMES.len() * NAMES.len(), "the run does not end");
        if *cancel == Some(turn) {
            pair.cancel();
        } else {
            pair.happen(which, how);
        }
        pair.settle();
    }
    pair.check_the_end();
}

proptest! {
    #![proptest_config(Config { cases: 2048, ..Config::default() })]

    #[test]
    fn a_run_goes_as_in_the_naive_model_and_always_ends(story in story()) {
        tell(&story, &Reached::default());
    }
}

/// A property that never meets the hard cases proves nothing about them.
#[test]
fn the_random_runs_reach_what_they_are_meant_to_reach() {
    let reached = Reached::default();
    let config = Config { cases: 1500, failure_persistence: None, ..Config::default() };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let told = runner.run(&story(), |story| {
        tell(&story, &reached);
        Ok(())
    });
    told.expect("every story is told to its end");
    for (what, counter) in [
        ("a failed run", &reached.failed_runs),
        ("a cancelled run", &reached.cancelled_runs),
        ("skipped and cancelled at once", &reached.skipped_beside_a_cancel),
        ("told to stop", &reached.stopped),
        ("clean-up behind something cancelled", &reached.cleanup_behind_a_cancelled),
        ("a failure in the clean-up", &reached.cleanup_failed),
        ("a start beside an open parent", &reached.started_beside_an_open_parent),
        ("one that will be skipped, beside a cancelled one", &reached.spared_beside_a_cancel),
    ] {
        assert!(counter.get() >= 40, "{what}: {reached:?}");
    }
}

// --------------------------------------------------------------------------- what is refused --

fn refusal(nodes: impl IntoIterator<Item = Node>) -> String {
    Graph::new(nodes).expect_err("it is refused").to_string()
}

#[test]
fn a_graph_without_tasks_is_refused() {
    assert_eq!(Graph::new([]), Err(GraphError::NoTasks));
    assert_eq!(refusal([]), "there are no tasks: define at least one");
}

#[test]
fn an_empty_name_is_refused_by_its_place_and_any_other_name_is_good() {
    assert_eq!(
        refusal([Node::new("a"), Node::new("")]),
        "task 2 has an empty name: give it at least one character"
    );
    let names = [" ", "a → b", "größer", "two words", "\n"];
    let graph = Graph::new(names.map(Node::new)).unwrap();
    assert!(names.iter().all(|name| graph.find(name).map(|task| graph.name(task)) == Some(name)));
    assert_eq!(graph.find("a"), None);
}

#[test]
fn a_duplicate_name_is_refused_and_of_several_the_first_to_be_repeated() {
    assert_eq!(
        refusal(["x", "a", "x", "a", "x"].map(Node::new)),
        "two tasks are named \"x\": give each a name of its own"
    );
}

#[test]
fn a_task_that_comes_after_itself_is_refused() {
    assert_eq!(
        refusal([Node::new("a"), Node::new("b").after(["a", "b"])]),
        "task \"b\" comes after itself: take it out of its own dependencies"
    );
}

#[test]
fn an_unknown_dependency_is_refused_with_the_nearest_name_if_one_is_near() {
    let load_after = |name: &str| {
        refusal([Node::new("extract"), Node::new("extras"), Node::new("load").after([name])])
    };
    assert_eq!(
        load_after("extarct"),
        "task \"load\" comes after \"extarct\", which is no task; did you mean \"extract\"?"
    );
    assert_eq!(
        load_after("Extras"),
        "task \"load\" comes after \"Extras\", which is no task; did you mean \"extras\"?"
    );
    assert_eq!(load_after("fetch"), "task \"load\" comes after \"fetch\", which is no task");
    assert_eq!(load_after(""), "task \"load\" comes after \"\", which is no task");
}

#[test]
fn a_cycle_is_refused_as_a_path() {
    let nodes = [
        Node::new("start"),
        Node::new("c").after(["b"]),
        Node::new("a").after(["start", "c"]),
        Node::new("b").after(["a"]),
        Node::new("behind").after(["b"]),
    ];
    assert_eq!(
        refusal(nodes),
        "tasks come after each other in a circle: c → a → b → c; take one arrow out"
    );
}

#[test]
fn of_the_cycles_through_a_task_the_shortest_is_named() {
    let nodes = [
        Node::new("a").after(["d", "b"]),
        Node::new("b").after(["a"]),
        Node::new("c").after(["b"]),
        Node::new("d").after(["c"]),
    ];
    let path = ["a", "b", "a"].map(str::to_owned).to_vec();
    assert_eq!(Graph::new(nodes), Err(GraphError::Cycle { path }));
}

#[test]
fn a_rule_that_asks_for_one_parent_is_refused_without_parents() {
    assert_eq!(
        refusal([Node::new("a"), Node::new("alarm").when(When::AnyFailed)]),
        "task \"alarm\" has the rule any_failed and comes after nothing: name the tasks that it \
         depends on, or use all_succeeded or all_done"
    );
    let error = Graph::new([Node::new("first").when(When::AnySucceeded)]).unwrap_err();
    let task = "first".to_owned();
    assert_eq!(error, GraphError::RuleWithoutParents { task, when: When::AnySucceeded });
}

#[test]
fn a_dependency_named_twice_counts_once() {
    let once = Graph::new([Node::new("a"), Node::new("b").after(["a"])]);
    assert_eq!(Graph::new([Node::new("a"), Node::new("b").after(["a", "a"])]), once);
}

#[test]
fn a_long_chain_and_a_wide_fan_are_built_and_settled_without_recursion() {
    let count = 50_000;
    let chain = (0..count).map(|n| {
        let node = Node::new(n.to_string());
        if n == 0 { node } else { node.after([(n - 1).to_string()]) }
    });
    let graph = Graph::new(chain).unwrap();
    assert_eq!(graph.waves().len(), count);
    assert_eq!(graph.ancestors(TaskIndex::from_u32(count as u32 - 1)).len(), count - 1);
    let first_failed = |task: TaskIndex| match task.as_u32() {
        0 => Standing::Ended(Outcome::Failed),
        _ => Standing::Blocked,
    };
    assert_eq!(graph.settle(OnFailure::KeepGoing, first_failed).len(), count - 1);

    let names: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    let last = Node::new("last").after(&names);
    let graph = Graph::new(names.iter().map(Node::new).chain([last])).unwrap();
    assert_eq!(graph.waves().iter().map(Vec::len).collect::<Vec<_>>(), [count, 1]);
}

// ------------------------------------------------------------------------------------- words --

#[test]
fn rules_and_policies_are_read_back_from_their_words() {
    for (when, word) in
        WHENS.into_iter().zip(["all_succeeded", "all_done", "any_failed", "any_succeeded"])
    {
        assert_eq!((when.to_string().as_str(), word.parse()), (word, Ok(when)));
    }
    for (policy, word) in POLICIES.into_iter().zip(["fail_fast", "fail_fast_kill", "keep_going"]) {
        assert_eq!((policy.to_string().as_str(), word.parse()), (word, Ok(policy)));
    }
    assert_eq!(When::default(), When::AllSucceeded);
    assert_eq!(OnFailure::default(), OnFailure::FailFast);
}

#[test]
fn a_wrong_word_is_refused_with_the_right_ones_and_the_nearest() {
    let when = |text: &str| text.parse::<When>().unwrap_err().to_string();
    assert_eq!(
        when("all_suceeded"),
        "\"all_suceeded\" is not a rule for when a task runs: write all_succeeded, all_done, \
         any_failed or any_succeeded; did you mean \"all_succeeded\"?"
    );
    assert_eq!(
        when("never"),
        "\"never\" is not a rule for when a task runs: write all_succeeded, all_done, any_failed \
         or any_succeeded"
    );
    assert!(when("").starts_with("\"\" is not a rule"));
    assert!(when("ALL_DONE").ends_with("did you mean \"all_done\"?"));
    assert_eq!(
        "fail-fast".parse::<OnFailure>().unwrap_err().to_string(),
        "\"fail-fast\" is not a policy on failure: write fail_fast, fail_fast_kill or keep_going; \
         did you mean \"fail_fast\"?"
    );
}

#[test]
fn near_is_one_change_in_three_letters_and_the_first_of_equals() {
    assert_eq!(nearest("lod", ["lead", "load", "loud"]), Some("load"));
    assert_eq!(nearest("laod", ["lead", "load"]), Some("load"), "a swap is one change");
    assert_eq!(nearest("LOAD", ["load"]), Some("load"));
    assert_eq!(nearest("b1", ["b2"]), None, "half of it is another");
    assert_eq!(nearest("lo", ["load"]), None);
    assert_eq!(nearest("", ["a"]), None);
    let long = "x".repeat(1_000_000);
    assert_eq!(nearest(&long, [long.as_str()]), None, "too long to be compared");
}

// ------------------------------------------------------------------------ the rules, one by one --

/// A run in which one says by name where tasks stand, and reads by name what follows.
struct Named {
    graph: Graph,
    on_failure: OnFailure,
    standings: Vec<Standing>,
}

const SUCCEEDED: Standing = Standing::Ended(Outcome::Succeeded);
const FAILED: Standing = Standing::Ended(Outcome::Failed);
const CANCELLED: Standing = Standing::Ended(Outcome::Cancelled);
const SKIPPED: Standing = Standing::Ended(Outcome::Skipped);

impl Named {
    /// Tasks as `(name, what it comes after, rule)`, all blocked.
    fn run(on_failure: OnFailure, tasks: &[(&str, &[&str], When)]) -> Self {
        let node = |&(name, after, when): &(&str, &[&str], When)| {
            Node::new(name).after(after.iter().copied()).when(when)
        };
        let graph = Graph::new(tasks.iter().map(node)).expect("a sound graph");
        Named { graph, on_failure, standings: vec![Standing::Blocked; tasks.len()] }
    }

    fn set(mut self, standings: &[(&str, Standing)]) -> Self {
        for &(name, standing) in standings {
            let task = self.graph.find(name).expect(name);
            self.standings[task.as_usize()] = standing;
        }
        self
    }

    fn apply(&mut self, consequences: &[(TaskIndex, Consequence)]) -> Vec<String> {
        let tell = |&(task, consequence): &(TaskIndex, Consequence)| {
            let standing = &mut self.standings[task.as_usize()];
            *standing = standing.after(consequence);
            let name = self.graph.name(task);
            match consequence {
                Consequence::Unblock => format!("{name} is unblocked"),
                Consequence::Skip { cause } => {
                    format!("{name} is skipped: {}", self.graph.name(cause))
                }
                Consequence::Cancel => format!("{name} is cancelled"),
                Consequence::Stop => format!("{name} is stopped"),
            }
        };
        consequences.iter().map(tell).collect()
    }

    /// Applies what follows and tells it.
    fn settles(&mut self) -> Vec<String> {
        let standing_of = |task: TaskIndex| self.standings[task.as_usize()];
        let consequences = self.graph.settle(self.on_failure, standing_of);
        let told = self.apply(&consequences);
        let standing_of = |task: TaskIndex| self.standings[task.as_usize()];
        assert_eq!(self.graph.settle(self.on_failure, standing_of), [], "settled is settled");
        told
    }

    fn is_cancelled(&mut self) -> Vec<String> {
        let standing_of = |task: TaskIndex| self.standings[task.as_usize()];
        let consequences = self.graph.cancel_all(standing_of);
        self.apply(&consequences)
    }

    fn then(&mut self, name: &str, standing: Standing) -> Vec<String> {
        let task = self.graph.find(name).expect(name);
        self.standings[task.as_usize()] = standing;
        self.settles()
    }

    fn outcome(&self, cancelled_by_user: bool) -> Option<RunOutcome> {
        let standing_of = |task: TaskIndex| self.standings[task.as_usize()];
        self.graph.outcome_of_run(standing_of, cancelled_by_user)
    }
}

use OnFailure::{FailFast, FailFastKill, KeepGoing};
use Standing::{Active, Blocked, Ready, Stopping, Waiting};
use When::{AllDone, AllSucceeded, AnyFailed, AnySucceeded};

#[test]
fn a_run_starts_with_what_comes_after_nothing() {
    let mut run = Named::run(
        FailFast,
        &[("b", &["a"], AllSucceeded), ("a", &[], AllSucceeded), ("c", &[], AllDone)],
    );
    assert_eq!(run.settles(), ["a is unblocked", "c is unblocked"]);
}

#[test]
fn in_a_diamond_the_successor_of_the_quick_arm_does_not_wait_for_the_slow_one() {
    let mut run = Named::run(
        FailFast,
        &[
            ("top", &[], AllSucceeded),
            ("slow", &["top"], AllSucceeded),
            ("quick", &["top"], AllSucceeded),
            ("next", &["quick"], AllSucceeded),
            ("bottom", &["slow", "next"], AllSucceeded),
        ],
    );
    assert_eq!(run.settles(), ["top is unblocked"]);
    assert_eq!(run.then("top", SUCCEEDED), ["slow is unblocked", "quick is unblocked"]);
    assert_eq!(run.then("quick", SUCCEEDED), ["next is unblocked"]);
    assert_eq!(run.then("next", SUCCEEDED), [""; 0]);
    assert_eq!(run.then("slow", SUCCEEDED), ["bottom is unblocked"]);
    assert_eq!(run.outcome(false), None);
    assert_eq!(run.then("bottom", SUCCEEDED), [""; 0]);
    assert_eq!(run.outcome(false), Some(RunOutcome::Succeeded));
}

#[test]
fn all_succeeded_is_skipped_as_soon_as_one_parent_ended_otherwise() {
    for end in [FAILED, CANCELLED, SKIPPED] {
        let run = Named::run(
            KeepGoing,
            &[
                ("a", &[], AllSucceeded),
                ("b", &[], AllSucceeded),
                ("c", &["a", "b"], AllSucceeded),
                ("d", &["c"], AllSucceeded),
            ],
        );
        let mut run = run.set(&[("a", Active), ("b", end)]);
        assert_eq!(run.settles(), ["c is skipped: b", "d is skipped: c"], "{end:?}");
    }
}

#[test]
fn of_several_causes_the_first_in_argument_order_is_named() {
    let run = Named::run(
        KeepGoing,
        &[
            ("a", &[], AllSucceeded),
            ("b", &[], AllSucceeded),
            ("c", &["b", "a"], AllSucceeded),
            ("d", &["b", "a"], AnySucceeded),
        ],
    );
    let mut run = run.set(&[("a", FAILED), ("b", FAILED)]);
    assert_eq!(run.settles(), ["c is skipped: b", "d is skipped: b"]);
}

#[test]
fn all_done_waits_for_all_and_runs_however_they_ended() {
    let run = Named::run(
        KeepGoing,
        &[
            ("a", &[], AllSucceeded),
            ("b", &["a"], AllSucceeded),
            ("c", &[], AllSucceeded),
            ("tidy", &["a", "b", "c"], AllDone),
        ],
    );
    let mut run = run.set(&[("a", FAILED), ("c", Active)]);
    assert_eq!(run.settles(), ["b is skipped: a"]);
    assert_eq!(run.then("c", CANCELLED), ["tidy is unblocked"]);
}

#[test]
fn any_failed_waits_for_all_and_runs_only_if_one_failed() {
    let tasks: &[(&str, &[&str], When)] = &[
        ("a", &[], AllSucceeded),
        ("b", &[], AllSucceeded),
        ("alarm", &["a", "b"], AnyFailed),
        ("calm", &["alarm"], AllSucceeded),
    ];
    let mut run = Named::run(KeepGoing, tasks).set(&[("a", FAILED), ("b", Active)]);
    assert_eq!(run.settles(), [""; 0], "b is open");
    assert_eq!(run.then("b", SUCCEEDED), ["alarm is unblocked"]);

    // What was cancelled or skipped has not failed.
    for end in [SUCCEEDED, CANCELLED, SKIPPED] {
        let mut run = Named::run(KeepGoing, tasks).set(&[("a", SUCCEEDED), ("b", end)]);
        assert_eq!(run.settles(), ["alarm is skipped: a", "calm is skipped: alarm"], "{end:?}");
    }
}

#[test]
fn any_succeeded_runs_as_soon_as_one_did_and_is_skipped_when_none_can() {
    let tasks: &[(&str, &[&str], When)] =
        &[("a", &[], AllSucceeded), ("b", &[], AllSucceeded), ("first", &["a", "b"], AnySucceeded)];
    let mut run = Named::run(KeepGoing, tasks).set(&[("a", FAILED), ("b", Active)]);
    assert_eq!(run.settles(), [""; 0]);
    assert_eq!(run.then("b", FAILED), ["first is skipped: a"]);

    let mut run = Named::run(KeepGoing, tasks).set(&[("a", Active), ("b", SUCCEEDED)]);
    assert_eq!(run.settles(), ["first is unblocked"]);
    assert_eq!(run.then("a", FAILED), [""; 0], "it may run although the other failed");
}

#[test]
fn under_keep_going_only_what_depends_on_the_failure_is_lost() {
    let run = Named::run(
        KeepGoing,
        &[
            ("a", &[], AllSucceeded),
            ("needs a", &["a"], AllSucceeded),
            ("other", &[], AllSucceeded),
            ("needs other", &["other"], AllSucceeded),
            ("ready", &[], AllSucceeded),
            ("waiting", &[], AllSucceeded),
        ],
    );
    let mut run =
        run.set(&[("a", FAILED), ("other", Active), ("ready", Ready), ("waiting", Waiting)]);
    assert_eq!(run.settles(), ["needs a is skipped: a"]);
    assert_eq!(run.then("other", SUCCEEDED), ["needs other is unblocked"]);
}

/// `a` fails beside one task in each standing, each with a task behind it.
fn beside_a_failure(on_failure: OnFailure) -> Named {
    let run = Named::run(
        on_failure,
        &[
            ("a", &[], AllSucceeded),
            ("behind a", &["a"], AllSucceeded),
            ("ready", &[], AllSucceeded),
            ("behind ready", &["ready"], AllSucceeded),
            ("waiting", &[], AllSucceeded),
            ("active", &[], AllSucceeded),
            ("behind active", &["active"], AllSucceeded),
            ("behind two", &["ready", "a"], AllSucceeded),
        ],
    );
    run.set(&[("a", FAILED), ("ready", Ready), ("waiting", Waiting), ("active", Active)])
}

#[test]
fn under_fail_fast_active_tasks_may_finish_and_the_rest_is_cancelled_or_skipped() {
    let mut run = beside_a_failure(FailFast);
    let told = [
        "behind a is skipped: a",
        "ready is cancelled",
        // Nothing it depends on has failed: it is cancelled like the task before it, not skipped
        // for it.
        "behind ready is cancelled",
        "waiting is cancelled",
        "behind active is cancelled",
        // The failure is the cause, although the parent before it is cancelled in the same pass.
        "behind two is skipped: a",
    ];
    assert_eq!(run.settles(), told);
    assert_eq!(run.outcome(false), None, "one is active");
    assert_eq!(run.then("active", SUCCEEDED), [""; 0]);
    assert_eq!(run.outcome(false), Some(RunOutcome::Failed));
}

#[test]
fn under_fail_fast_kill_active_tasks_are_told_to_stop() {
    let mut run = beside_a_failure(FailFastKill);
    assert!(run.settles().contains(&"active is stopped".to_owned()));
    assert_eq!(run.outcome(false), None, "it has not stopped");
    assert_eq!(run.then("active", CANCELLED), [""; 0]);
    assert_eq!(run.outcome(false), Some(RunOutcome::Failed));
}

#[test]
fn under_fail_fast_a_task_that_begins_to_wait_or_is_to_be_tried_again_is_cancelled() {
    let tasks: &[(&str, &[&str], When)] = &[("a", &[], AllSucceeded), ("b", &[], AllSucceeded)];
    for standing in [Waiting, Ready] {
        let mut run = Named::run(FailFast, tasks).set(&[("a", FAILED), ("b", Active)]);
        assert_eq!(run.settles(), [""; 0]);
        assert_eq!(run.then("b", standing), ["b is cancelled"], "{standing:?}");
    }
}

#[test]
fn under_fail_fast_any_succeeded_is_no_clean_up() {
    let run = Named::run(
        FailFast,
        &[("a", &[], AllSucceeded), ("b", &[], AllSucceeded), ("c", &["a", "b"], AnySucceeded)],
    );
    let mut run = run.set(&[("a", FAILED), ("b", SUCCEEDED)]);
    assert_eq!(run.settles(), ["c is cancelled"]);
}

#[test]
fn clean_up_runs_in_the_same_pass_when_all_it_waits_for_is_cancelled() {
    let run = Named::run(
        FailFast,
        &[
            ("tidy", &["b", "c"], AllDone),
            ("c", &["b"], AllSucceeded),
            ("b", &[], AllSucceeded),
            ("a", &[], AllSucceeded),
        ],
    );
    let mut run = run.set(&[("a", FAILED), ("b", Ready)]);
    assert_eq!(run.settles(), ["tidy is unblocked", "c is cancelled", "b is cancelled"]);
    assert_eq!(run.then("tidy", SUCCEEDED), [""; 0]);
    assert_eq!(run.outcome(false), Some(RunOutcome::Failed));
}

#[test]
fn clean_up_does_not_begin_beside_a_body_that_is_being_stopped() {
    let run = Named::run(
        FailFastKill,
        &[
            ("a", &[], AllSucceeded),
            ("b", &[], AllSucceeded),
            ("tidy", &["a", "b"], AllDone),
            ("alarm", &["a", "b"], AnyFailed),
        ],
    );
    let mut run = run.set(&[("a", FAILED), ("b", Active)]);
    assert_eq!(run.settles(), ["b is stopped"]);
    assert_eq!(run.then("b", CANCELLED), ["tidy is unblocked", "alarm is unblocked"]);
}

#[test]
fn any_failed_over_tasks_that_were_only_cancelled_is_skipped() {
    let run = Named::run(
        FailFast,
        &[
            ("a", &[], AllSucceeded),
            ("b", &[], AllSucceeded),
            ("alarm", &["b"], AnyFailed),
            ("tidy", &["alarm"], AllDone),
        ],
    );
    let mut run = run.set(&[("a", FAILED), ("b", Ready)]);
    assert_eq!(run.settles(), ["b is cancelled", "alarm is skipped: b", "tidy is unblocked"]);
}

#[test]
fn clean_up_is_spared_in_every_standing() {
    for (policy, standing) in
        POLICIES.into_iter().flat_map(|p| [(p, Ready), (p, Active), (p, Waiting)])
    {
        let run = Named::run(policy, &[("a", &[], AllSucceeded), ("tidy", &["a"], AllDone)]);
        let mut run = run.set(&[("a", FAILED), ("tidy", standing)]);
        assert_eq!(run.settles(), [""; 0], "{policy} {standing:?}");
    }
}

#[test]
fn what_comes_after_clean_up_and_is_none_itself_does_not_run_after_a_failure() {
    let tasks: &[(&str, &[&str], When)] = &[
        ("a", &[], AllSucceeded),
        ("tidy", &["a"], AllDone),
        ("report", &["tidy"], AllSucceeded),
        ("close", &["report"], AllDone),
    ];
    let mut run = Named::run(FailFast, tasks).set(&[("a", FAILED)]);
    // Rules look at parents only: `close` does not wait for `tidy`, which it does not name.
    let told = ["tidy is unblocked", "report is cancelled", "close is unblocked"];
    assert_eq!(run.settles(), told);

    let mut run = Named::run(KeepGoing, tasks).set(&[("a", FAILED)]);
    assert_eq!(run.settles(), ["tidy is unblocked"]);
    assert_eq!(run.then("tidy", SUCCEEDED), ["report is unblocked"]);
}

#[test]
fn a_failure_inside_the_clean_up_is_a_failure_like_any_other() {
    let tasks: &[(&str, &[&str], When)] = &[
        ("a", &[], AllSucceeded),
        ("tidy", &["a"], AllDone),
        ("alarm", &["tidy"], AnyFailed),
        ("last", &["alarm"], AllDone),
        ("other", &[], AllSucceeded),
    ];
    let mut run =
        Named::run(FailFast, tasks).set(&[("a", SUCCEEDED), ("tidy", FAILED), ("other", Ready)]);
    assert_eq!(run.settles(), ["alarm is unblocked", "other is cancelled"]);
    assert_eq!(run.then("alarm", FAILED), ["last is unblocked"]);
    assert_eq!(run.then("last", SUCCEEDED), [""; 0]);
    assert_eq!(run.outcome(false), Some(RunOutcome::Failed));
}

#[test]
fn a_users_cancel_takes_everything_open_clean_up_too() {
    let run = Named::run(
        FailFast,
        &[
            ("a", &[], AllSucceeded),
            ("b", &["a"], AllSucceeded),
            ("tidy", &["a", "b"], AllDone),
            ("ready", &[], AllDone),
            ("waiting", &[], AllSucceeded),
            ("done", &[], AllSucceeded),
            ("stopping", &[], AllSucceeded),
        ],
    );
    let mut run = run.set(&[
        ("a", Active),
        ("ready", Ready),
        ("waiting", Waiting),
        ("done", SUCCEEDED),
        ("stopping", Stopping),
    ]);
    let told = [
        "a is stopped",
        "b is cancelled",
        "tidy is cancelled",
        "ready is cancelled",
        "waiting is cancelled",
    ];
    assert_eq!(run.is_cancelled(), told);
    assert_eq!(run.is_cancelled(), [""; 0]);
    assert_eq!(run.settles(), [""; 0]);
    assert_eq!(run.then("stopping", CANCELLED), [""; 0]);
    assert_eq!(run.outcome(true), None);
    assert_eq!(run.then("a", FAILED), [""; 0], "no clean-up comes back");
    assert_eq!(run.outcome(true), Some(RunOutcome::Cancelled));
}

#[test]
fn a_run_is_cancelled_before_it_is_failed_and_failed_before_it_is_succeeded() {
    let tasks: &[(&str, &[&str], When)] = &[("a", &[], AllSucceeded), ("b", &[], AllSucceeded)];
    let outcome =
        |a, b, by_user| Named::run(FailFast, tasks).set(&[("a", a), ("b", b)]).outcome(by_user);
    assert_eq!(outcome(FAILED, CANCELLED, true), Some(RunOutcome::Cancelled));
    assert_eq!(outcome(FAILED, CANCELLED, false), Some(RunOutcome::Failed));
    assert_eq!(outcome(SUCCEEDED, SKIPPED, false), Some(RunOutcome::Succeeded));
    for open in [Blocked, Ready, Active, Waiting, Stopping] {
        assert_eq!(outcome(FAILED, open, true), None, "{open:?}");
        assert_eq!(outcome(open, FAILED, false), None, "{open:?}");
    }
}

#[test]
fn what_has_ended_stays_as_it_is() {
    let cause = TaskIndex::from_u32(0);
    let all =
        [Consequence::Unblock, Consequence::Skip { cause }, Consequence::Cancel, Consequence::Stop];
    for (outcome, consequence) in OUTCOMES.into_iter().flat_map(|o| all.map(|c| (o, c))) {
        assert_eq!(Standing::Ended(outcome).after(consequence), Standing::Ended(outcome));
    }
}
