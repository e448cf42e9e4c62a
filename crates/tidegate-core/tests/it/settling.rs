//! What follows from an end is looked for below that end only; here it is compared with what
//! [`Graph::settle`] concludes from all tasks, and counted.
//!
//! The model has where each task stands. What is said of tasks is applied to it by hand, what
//! follows is asked of the graph as a whole, and then the store must stand exactly so: nothing that
//! follows is missing, and nothing has happened that does not follow.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::audit::Stray;
use tidegate_core::delta::{PauseChange, RateEvent, SignalChange, TaskWrite};
use tidegate_core::graph::{
    Graph, Node, OnFailure, Outcome, RunOutcome, Standing, TaskIndex, When,
};
use tidegate_core::lifecycle::{Event, Failure, Kind, Life, State, WorkerId};
use tidegate_core::limit::{Hold, Limit, LimitKey};
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::rows::{Head, Owned, Payload, Place, Row, Rows};
use tidegate_core::store::{
    Answer, Applied, Bytes, Change, Claim, Claimed, Knows, NewRun, NewWorker, Operation, Parent,
    Record, RunKey, Scope, Store, TaskKey, Turn, TurnId, Turned,
};
use tidegate_core::wait::{WaitId, WaitKind, Waiting};
use tidegate_core::{Backoff, RunId, TaskExecutionId, Timestamp, turn};

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const RUN: RunId = RunId::from_u128(1);

/// A memory store answers at once.
fn now<T>(answer: Answer<'_, T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.expect("it can be used"),
        Poll::Pending => panic!("a memory store never waits"),
    }
}

fn submit(id: RunId, plan: &Arc<Plan>) -> NewRun {
    NewRun::new(id, plan.clone(), "q".into())
}

// ------------------------------------------------------------------- against the whole graph --

/// A run and what is going to be said of it.
#[derive(Debug, Clone)]
struct Story {
    /// Of each task: those before it that it comes after, its rule, its retries.
    tasks: Vec<(BTreeSet<usize>, When, u32)>,
    on_failure: OnFailure,
    turns: Vec<Told>,
}

/// One turn: what is said of some of the tasks that run, how many are taken, whether it is cancelled.
#[derive(Debug, Clone)]
struct Told {
    said: Vec<(usize, What)>,
    units: u32,
    cancels: bool,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Succeeds,
    Fails,
    FailsForGood,
    WaitsOrGoesOn,
    IsHandedBack,
    Stops,
}

fn story() -> impl Strategy<Value = Story> {
    let whens = prop_oneof![
        4 => Just(When::AllSucceeded),
        1 => Just(When::AllDone),
        1 => Just(When::AnyFailed),
        1 => Just(When::AnySucceeded),
    ];
    let task = (prop::collection::vec(any::<prop::sample::Index>(), 0..4), whens, 0..2_u32);
    let tasks = prop::collection::vec(task, 1..12).prop_map(|tasks| {
        let place = |(at, (after, when, retries)): (usize, (Vec<prop::sample::Index>, _, _))| {
            let after = if at == 0 { Vec::new() } else { after };
            (after.iter().map(|before| before.index(at)).collect(), when, retries)
        };
        tasks.into_iter().enumerate().map(place).collect()
    });
    let on_failure = prop_oneof![
        Just(OnFailure::FailFast),
        Just(OnFailure::FailFastKill),
        Just(OnFailure::KeepGoing),
    ];
    let what = prop_oneof![
        6 => Just(What::Succeeds),
        1 => Just(What::Fails),
        2 => Just(What::FailsForGood),
        1 => Just(What::WaitsOrGoesOn),
        1 => Just(What::IsHandedBack),
        2 => Just(What::Stops),
    ];
    let said = prop::collection::vec((0..12_usize, what), 0..4);
    let cancels = prop::bool::weighted(0.01);
    let told =
        (said, 0..4_u32, cancels).prop_map(|(said, units, cancels)| Told { said, units, cancels });
    (tasks, on_failure, prop::collection::vec(told, 10..40))
        .prop_map(|(tasks, on_failure, turns)| Story { tasks, on_failure, turns })
}

/// Where a task stands for the others of its run, as the store shows it.
fn standing(life: &Life) -> Standing {
    match life.state.kind() {
        Kind::Blocked => Standing::Blocked,
        Kind::Ready | Kind::Claimed => Standing::Ready,
        Kind::Active if life.stopping.is_some() => Standing::Stopping,
        Kind::Active => Standing::Active,
        Kind::Deferred | Kind::Parked => Standing::Waiting,
        Kind::Succeeded => Standing::Ended(Outcome::Succeeded),
        Kind::Failed | Kind::TimedOut => Standing::Ended(Outcome::Failed),
        Kind::Cancelled => Standing::Ended(Outcome::Cancelled),
        Kind::Skipped => Standing::Ended(Outcome::Skipped),
    }
}

/// A store with one run, and where its tasks have to stand.
struct Compared {
    store: MemoryStore,
    plan: Arc<Plan>,
    worker: WorkerId,
    claimed: BTreeMap<usize, Claimed>,
    model: Vec<Standing>,
    attempts: Vec<u32>,
    cancelled: bool,
    ended: Option<RunOutcome>,
    turns: u64,
}

impl Compared {
    fn begin(story: &Story) -> Self {
        let node = |(at, (after, when, _)): (usize, &(BTreeSet<usize>, When, u32))| {
            let names = after.iter().map(|before| format!("t{before}"));
            // A rule about parents makes no sense without any.
            let when = if after.is_empty() { When::AllSucceeded } else { *when };
            Node::new(format!("t{at}")).after(names).when(when)
        };
        let graph = Graph::new(story.tasks.iter().enumerate().map(node)).expect("it has no cycle");
        let task = |(_, _, retries): &(BTreeSet<usize>, When, u32)| {
            let mut task = TaskPlan::default();
            (task.rules.retries, task.rules.backoff) = (*retries, Backoff::fixed(Duration::ZERO));
            task
        };
        let tasks = story.tasks.iter().map(task).collect();
        let plan = Arc::new(Plan::new("w", graph, story.on_failure, tasks));
        let store = MemoryStore::new();
        let knows = plan.graph().tasks().map(|task| plan.graph().name(task).to_owned());
        let knows = knows.map(|name| ("w".to_owned(), name)).collect();
        let queues = vec!["q".to_owned()];
        let new = NewWorker {
            now: NOW,
            name: String::new(),
            queues,
            knows: Knows::These(knows),
            slots: 99,
        };
        let worker = now(store.enlist(new));
        let model = vec![Standing::Blocked; plan.task_count()];
        let attempts = vec![1; plan.task_count()];
        let claimed = BTreeMap::new();
        let mut compared = Compared {
            store,
            plan: plan.clone(),
            worker,
            claimed,
            model,
            attempts,
            cancelled: false,
            ended: None,
            turns: 0,
        };
        let turn = Turn { submits: vec![submit(RUN, &plan)], ..compared.turn(0) };
        compared.settle();
        compared.take(turn);
        compared
    }

    fn turn(&mut self, units: u32) -> Turn {
        self.turns += 1;
        let claim = Claim { units, ahead: 0, heaviest: 99, room: u32::MAX };
        let at = NOW + SECOND * u32::try_from(self.turns).expect("there are few");
        Turn { worker: Some(self.worker), claim, ..Turn::new(TurnId(self.turns), at) }
    }

    /// What follows for all tasks, by the graph as a whole.
    fn settle(&mut self) {
        let (graph, on_failure) = (self.plan.graph(), self.plan.on_failure());
        for (task, consequence) in graph.settle(on_failure, |task| self.model[task.as_usize()]) {
            let standing = &mut self.model[task.as_usize()];
            *standing = standing.after(consequence);
        }
    }

    /// What this means for a task that runs; `None` if nothing.
    fn say(&mut self, at: usize, what: What) -> Option<Change> {
        let claimed = self.claimed.get(&at)?;
        let (key, fence, stands) = (claimed.key, claimed.life.fence, self.model[at]);
        let is_stopping = stands == Standing::Stopping;
        let active = Duration::ZERO;
        let fails = |permanent| {
            let (failure, chance) = (Failure::Error, 0.5);
            Event::Fail { fence, failure, permanent, chance }
        };
        let (event, becomes) = match (what, stands) {
            (_, Standing::Blocked | Standing::Ready | Standing::Ended(_)) => return None,
            (What::WaitsOrGoesOn, Standing::Waiting) => (Event::Resume { fence }, Standing::Active),
            // What waits has to go on before it can end.
            (What::IsHandedBack, Standing::Waiting) => {
                (Event::HandBack { fence, active, pause: Duration::ZERO }, Standing::Ready)
            }
            (_, Standing::Waiting) => return None,
            (What::Succeeds, _) => (Event::Succeed { fence }, Standing::Ended(Outcome::Succeeded)),
            (What::Fails | What::FailsForGood | What::Stops, _) if is_stopping => {
                (Event::Stopped { fence }, Standing::Ended(Outcome::Cancelled))
            }
            (What::FailsForGood, _) => (fails(true), Standing::Ended(Outcome::Failed)),
            (What::Fails, _) => {
                let retries = self.plan.task(TaskIndex::from_u32(at as u32)).rules.retries;
                self.attempts[at] += 1;
                match self.attempts[at] > retries + 1 {
                    true => (fails(false), Standing::Ended(Outcome::Failed)),
                    false => (fails(false), Standing::Ready),
                }
            }
            (_, Standing::Stopping) | (What::Stops, _) => return None,
            (What::WaitsOrGoesOn, _) => {
                let wait = "the tide".to_owned();
                (Event::Defer { fence, active, wait }, Standing::Waiting)
            }
            (What::IsHandedBack, _) => {
                (Event::HandBack { fence, active, pause: Duration::ZERO }, Standing::Ready)
            }
        };
        if !matches!(becomes, Standing::Active | Standing::Waiting) {
            self.claimed.remove(&at);
        }
        self.model[at] = becomes;
        Some(Change::new(key, event))
    }

    fn tell(&mut self, told: &Told) {
        let mut turn = self.turn(told.units);
        let mut spoke = BTreeSet::new();
        for &(at, what) in &told.said {
            // One thing of a task at a time.
            if at < self.model.len() && spoke.insert(at) {
                turn.changes.extend(self.say(at, what));
            }
        }
        self.settle();
        if told.cancels {
            turn.operations.push(Operation::Cancel(RUN));
            let is_open = |standing: &Standing| standing.outcome().is_none();
            self.cancelled |= self.model.iter().any(is_open);
            for standing in self.model.iter_mut().filter(|standing| is_open(standing)) {
                *standing = Standing::Ended(Outcome::Cancelled);
            }
        }
        self.take(turn);
    }

    /// The store takes a turn and then stands as it must.
    fn take(&mut self, turn: Turn) {
        let Turned { changes, claimed, ended, .. } = now(self.store.turn(Arc::new(turn)));
        assert!(changes.iter().all(|applied| *applied == Applied::Yes), "{changes:?}");
        for claimed in claimed {
            let at = claimed.index.as_usize();
            assert_eq!(self.model[at], Standing::Ready, "what is taken was ready");
            self.model[at] = Standing::Active;
            self.claimed.insert(at, claimed);
        }
        let view = now(self.store.run(RUN)).expect("it was submitted");
        let stands: Vec<Standing> = view.tasks.iter().map(|task| standing(&task.life)).collect();
        assert_eq!(stands, self.model);
        let graph = self.plan.graph();
        let outcome = graph.outcome_of_run(|task| self.model[task.as_usize()], self.cancelled);
        assert_eq!(view.run.ended.map(|(outcome, _)| outcome), outcome);
        let told: Vec<RunOutcome> = ended.iter().map(|ended| ended.outcome).collect();
        let news = outcome.filter(|_| self.ended.is_none());
        assert_eq!(told, news.into_iter().collect::<Vec<_>>(), "an end is told once");
        self.ended = outcome;
        assert_eq!(now(self.store.audit()), []);
    }
}

fn go_through(story: &Story) -> Compared {
    let mut compared = Compared::begin(story);
    story.turns.iter().for_each(|told| compared.tell(told));
    compared
}

proptest! {
    #![proptest_config(Config { cases: 512, ..Config::default() })]

    #[test]
    fn what_is_found_below_an_end_is_what_the_whole_graph_says(story in story()) {
        go_through(&story);
    }
}

/// Stories in which nothing happens would show nothing.
#[test]
fn the_stories_come_to_ends_of_all_kinds() {
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let (ends, outcomes) = (RefCell::new(BTreeMap::new()), RefCell::new(BTreeMap::new()));
    let ran = TestRunner::new_with_rng(config, rng).run(&story(), |story| {
        let compared = go_through(&story);
        for standing in &compared.model {
            *ends.borrow_mut().entry(format!("{standing:?}")).or_insert(0) += 1;
        }
        let outcome = (format!("{:?}", story.on_failure), format!("{:?}", compared.ended));
        *outcomes.borrow_mut().entry(outcome).or_insert(0) += 1;
        Ok(())
    });
    ran.unwrap();
    let (ends, outcomes) = (ends.into_inner(), outcomes.into_inner());
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Skipped] {
        let count = ends.get(&format!("{:?}", Standing::Ended(outcome)));
        assert!(count.is_some_and(|&count: &u32| count > 50), "{outcome:?}: {ends:?}");
    }
    // Each policy with a run that has not ended, and with each of the ways it can.
    assert_eq!(outcomes.len(), 12, "{outcomes:?}");
}

// ------------------------------------------------------------------------------------ counted --

/// Rows in plain maps that count how many of them are read and written. What is not needed here
/// (clocks, pauses, keys, signals, limits) is not there.
#[derive(Default)]
struct Counted {
    tasks: BTreeMap<TaskKey, Row>,
    payloads: BTreeMap<(TaskKey, u8), Bytes>,
    waits: BTreeMap<(TaskKey, WaitId), Waiting>,
    ready: BTreeSet<TaskKey>,
    records: u64,
    last: i64,
    read: usize,
    written: usize,
}

impl Counted {
    fn put(&mut self, row: &Row) {
        self.written += 1;
        match row.life.state {
            State::Ready { .. } => self.ready.insert(row.key),
            _ => self.ready.remove(&row.key),
        };
        self.tasks.insert(row.key, row.clone());
    }

    /// What a turn reads and writes.
    fn cost(&mut self, turn: &Turn) -> (Turned, usize, usize) {
        (self.read, self.written) = (0, 0);
        let Ok(turned) = turn::take(self, turn);
        (turned, self.read, self.written)
    }
}

impl Rows for Counted {
    type Error = Infallible;

    fn find(&mut self, run: RunId) -> Result<Option<RunKey>, Infallible> {
        let is_it = |head: &Head| head.id == run;
        let mut heads = self.tasks.values().filter_map(|row| Some((row, row.head.as_deref()?)));
        Ok(heads.find(|(_, head)| is_it(head)).map(|(row, _)| row.run()))
    }

    fn find_key(&mut self, _: &str, _: &str, _: &str) -> Result<Option<RunKey>, Infallible> {
        Ok(None)
    }

    fn task(&mut self, task: TaskKey) -> Result<Option<Row>, Infallible> {
        self.read += 1;
        Ok(self.tasks.get(&task).cloned())
    }

    fn tasks(&mut self, run: RunKey) -> Result<Vec<Row>, Infallible> {
        let rows: Vec<Row> = self.tasks.values().filter(|row| row.run() == run).cloned().collect();
        self.read += rows.len();
        Ok(rows)
    }

    fn due(&mut self, _: Timestamp, _: u32) -> Result<Vec<TaskKey>, Infallible> {
        Ok(Vec::new())
    }

    fn next_alarm(&mut self) -> Result<Option<Timestamp>, Infallible> {
        Ok(None)
    }

    fn owned(&mut self, _: WorkerId, _: u32) -> Result<Vec<Owned>, Infallible> {
        Ok(Vec::new())
    }

    fn ready(
        &mut self,
        _: WorkerId,
        _: u32,
        _: bool,
        _: &[PauseChange],
        max: u32,
    ) -> Result<Vec<(Timestamp, TaskKey)>, Infallible> {
        Ok(self.ready.iter().take(max as usize).map(|&task| (NOW, task)).collect())
    }

    fn can_run(
        &mut self,
        _: WorkerId,
        _: u32,
        _: &Arc<str>,
        _: &Arc<Plan>,
        _: TaskIndex,
    ) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn payload(&mut self, task: TaskKey, kind: Payload) -> Result<Option<Bytes>, Infallible> {
        self.read += 1;
        Ok(self.payloads.get(&(task, kind.code())).cloned())
    }

    fn stood_still(
        &mut self,
        _: RunId,
        _: &str,
        _: Timestamp,
        _: Timestamp,
    ) -> Result<Duration, Infallible> {
        Ok(Duration::ZERO)
    }

    fn waiting(&mut self, _: &str, _: u32) -> Result<u32, Infallible> {
        unreachable!("nobody bounds what waits")
    }

    fn allocate(&mut self, tasks: u32) -> Result<RunKey, Infallible> {
        let first = self.last + 1;
        self.last += i64::from(tasks);
        Ok(RunKey(first))
    }

    fn insert(&mut self, write: TaskWrite) -> Result<(), Infallible> {
        self.put(&write.row);
        Ok(())
    }

    fn update(&mut self, write: TaskWrite) -> Result<(), Infallible> {
        self.put(&write.row);
        Ok(())
    }

    fn keep(&mut self, task: TaskKey, kind: Payload, bytes: &Bytes) -> Result<(), Infallible> {
        self.payloads.insert((task, kind.code()), bytes.clone());
        Ok(())
    }

    fn record(&mut self, _: &Record) -> Result<u64, Infallible> {
        self.records += 1;
        Ok(self.records)
    }

    fn is_paused(&mut self, _: &Scope) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn is_queue_paused(&mut self, _: &str) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn change_pause(&mut self, _: &PauseChange) -> Result<(), Infallible> {
        Ok(())
    }

    fn forget(&mut self, _: WorkerId) -> Result<(), Infallible> {
        Ok(())
    }

    fn leave_word(&mut self, _: WorkerId, _: TaskKey) -> Result<(), Infallible> {
        Ok(())
    }

    fn words(&mut self, _: WorkerId) -> Result<Vec<TaskKey>, Infallible> {
        Ok(Vec::new())
    }

    fn place(&mut self, _: TaskKey) -> Result<Option<Place>, Infallible> {
        Ok(None)
    }

    fn drop_words(&mut self, _: WorkerId) -> Result<(), Infallible> {
        Ok(())
    }

    fn is_misfiled(&mut self, _: &Row, _: &Head) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn refile(&mut self, _: &Row, _: &Head) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_orphans(&mut self, _: &Stray) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn sweep(&mut self, _: &Stray) -> Result<(), Infallible> {
        Ok(())
    }

    fn waits(&mut self, task: TaskKey) -> Result<Vec<Waiting>, Infallible> {
        let waits = self.waits.iter().filter(|((of, _), _)| *of == task);
        let waits: Vec<_> = waits.map(|(_, wait)| wait.clone()).collect();
        self.read += waits.len();
        Ok(waits)
    }

    fn wait(&mut self, task: TaskKey, id: &WaitId) -> Result<Option<Waiting>, Infallible> {
        self.read += 1;
        Ok(self.waits.get(&(task, id.clone())).cloned())
    }

    fn put_wait(&mut self, task: TaskKey, wait: &Waiting) -> Result<(), Infallible> {
        self.written += 1;
        self.waits.insert((task, wait.id.clone()), wait.clone());
        Ok(())
    }

    fn drop_wait(&mut self, task: TaskKey, id: &WaitId) -> Result<(), Infallible> {
        self.written += 1;
        self.waits.remove(&(task, id.clone()));
        Ok(())
    }

    fn signal_waits(
        &mut self,
        _: RunKey,
        _: &str,
        _: u32,
    ) -> Result<Vec<(Timestamp, TaskKey, WaitId)>, Infallible> {
        Ok(Vec::new())
    }

    fn run_waits(&mut self, run: RunKey) -> Result<Vec<(TaskKey, WaitId)>, Infallible> {
        let open = self.waits.iter().filter(|(_, wait)| wait.is_open() && wait.run == Some(run));
        Ok(open.map(|(key, _)| key.clone()).collect())
    }

    fn waited_by(
        &mut self,
        _: RunKey,
        _: u32,
    ) -> Result<Vec<(TaskKey, WaitId, RunKey)>, Infallible> {
        Ok(Vec::new())
    }

    fn signal_number(&mut self) -> Result<u64, Infallible> {
        Ok(1)
    }

    fn was_sent(&mut self, _: RunKey, _: u128) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn signals(
        &mut self,
        _: RunKey,
        _: &str,
        _: u32,
    ) -> Result<Vec<(u64, Option<Bytes>)>, Infallible> {
        Ok(Vec::new())
    }

    fn change_signal(&mut self, _: u64, _: &SignalChange) -> Result<(), Infallible> {
        Ok(())
    }

    fn limit(&mut self, _: &str) -> Result<Option<Limit>, Infallible> {
        Ok(None)
    }

    fn set_limit(&mut self, _: &Limit) -> Result<(), Infallible> {
        Ok(())
    }

    fn in_use(&mut self, _: &LimitKey) -> Result<u32, Infallible> {
        Ok(0)
    }

    fn holds(&mut self, _: TaskKey) -> Result<Vec<Hold>, Infallible> {
        Ok(Vec::new())
    }

    fn hold(&mut self, _: TaskKey, _: &Hold) -> Result<(), Infallible> {
        Ok(())
    }

    fn let_go(&mut self, _: TaskKey, _: &LimitKey) -> Result<(), Infallible> {
        Ok(())
    }

    fn begun(&mut self, _: &LimitKey) -> Result<Vec<(Timestamp, u32)>, Infallible> {
        Ok(Vec::new())
    }

    fn add_rate_event(&mut self, _: &RateEvent) -> Result<(), Infallible> {
        Ok(())
    }

    fn behind(&mut self, _: &LimitKey, _: u32) -> Result<Vec<(Timestamp, TaskKey)>, Infallible> {
        Ok(Vec::new())
    }

    fn keys_behind(&mut self, _: &str) -> Result<Vec<LimitKey>, Infallible> {
        Ok(Vec::new())
    }

    fn limit_alarm(&mut self, _: &LimitKey) -> Result<Option<Timestamp>, Infallible> {
        Ok(None)
    }

    fn set_limit_alarm(&mut self, _: &LimitKey, _: Option<Timestamp>) -> Result<(), Infallible> {
        Ok(())
    }

    fn due_limits(&mut self, _: Timestamp, _: u32) -> Result<Vec<LimitKey>, Infallible> {
        Ok(Vec::new())
    }
}

fn turn_with(id: u64, changes: Vec<Change>, units: u32) -> Turn {
    let claim = Claim { units, ahead: 0, heaviest: 99, room: u32::MAX };
    Turn { worker: Some(WorkerId(1)), changes, claim, ..Turn::new(TurnId(id), NOW) }
}

fn succeeds(task: &Claimed) -> Change {
    Change::new(task.key, Event::Succeed { fence: task.life.fence })
}

/// Ends one of what was taken and takes another, to the end; the most that a turn reads and writes.
fn one_by_one(rows: &mut Counted, mut taken: Vec<Claimed>) -> (u32, usize, usize) {
    let (mut ended, mut most_read, mut most_written) = (0, 0, 0);
    while !taken.is_empty() {
        let task = taken.remove(0);
        let turn = turn_with(1_000 + u64::from(ended), vec![succeeds(&task)], 1);
        let (turned, read, written) = rows.cost(&turn);
        assert_eq!(turned.changes, [Applied::Yes]);
        taken.extend(turned.claimed);
        ended += 1;
        (most_read, most_written) = (most_read.max(read), most_written.max(written));
    }
    (ended, most_read, most_written)
}

#[test]
fn the_end_of_an_item_costs_the_same_however_many_there_are() {
    let cost_of = |count: u32| {
        let mut rows = Counted::default();
        let graph = Graph::new([Node::new("each")]).unwrap();
        let task = TaskPlan { each: Some("list".to_owned()), ..TaskPlan::default() };
        let plan = Arc::new(Plan::new("w", graph, OnFailure::KeepGoing, vec![task]));
        let mut turn = turn_with(1, Vec::new(), 1);
        turn.submits.push(submit(RUN, &plan));
        let each = rows.cost(&turn).0.claimed.remove(0);
        let task = TaskPlan::default();
        let plan = Arc::new(Plan::items("w", "each", count, OnFailure::FailFast, task));
        let id = RunId::of_items(TaskExecutionId::of(RUN, TaskIndex::from_u32(0)));
        let mut turn = turn_with(2, Vec::new(), 4);
        let wait = WaitId::new(WaitKind::Child, "items", 0);
        let parent = Some(Parent::new(each.key, each.life.fence, wait));
        let items = (0..count).map(|_| Bytes::from(&b"{}"[..])).collect();
        turn.submits.push(NewRun { parent, items, ..submit(id, &plan) });
        let taken = rows.cost(&turn).0.claimed;
        assert_eq!(taken.len(), 4);
        let (ended, read, written) = one_by_one(&mut rows, taken);
        assert_eq!(ended, count);
        let is_over = |row: &Row| row.head.as_ref().is_some_and(|head| head.ended.is_some());
        assert!(rows.tasks.values().any(|row| row.run().0 == 2 && is_over(row)));
        (read, written)
    };
    let few = cost_of(10);
    assert_eq!(cost_of(2_000), few);
    assert!(few.0 <= 12 && few.1 <= 4, "a turn reads and writes {few:?}");
}

#[test]
fn the_end_of_a_task_costs_the_same_however_many_are_beside_it() {
    let cost_of = |width: usize| {
        let mut rows = Counted::default();
        // Pairs of one after the other, beside each other.
        let pair = |at: usize| {
            let first = Node::new(format!("first {at}"));
            [first, Node::new(format!("then {at}")).after([format!("first {at}")])]
        };
        let graph = Graph::new((0..width).flat_map(pair)).unwrap();
        let tasks = vec![TaskPlan::default(); 2 * width];
        let plan = Arc::new(Plan::new("w", graph, OnFailure::FailFast, tasks));
        let mut turn = turn_with(1, Vec::new(), 4);
        turn.submits.push(submit(RUN, &plan));
        let taken = rows.cost(&turn).0.claimed;
        let (ended, read, written) = one_by_one(&mut rows, taken);
        assert_eq!(ended as usize, 2 * width);
        (read, written)
    };
    let few = cost_of(8);
    assert_eq!(cost_of(600), few);
    assert!(few.0 <= 12 && few.1 <= 4, "a turn reads and writes {few:?}");
}
