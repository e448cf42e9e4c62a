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
use tidegate_core::decision::{self, Decision};
use tidegate_core::delta::Delta;
use tidegate_core::graph::{
    Graph, Node, OnFailure, Outcome, RunOutcome, Standing, TaskIndex, When,
};
use tidegate_core::lifecycle::{Event, Failure, Kind, Life, State, WorkerId};
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::rows::Row;
use tidegate_core::store::{
    Answer, Applied, Bytes, Change, Claim, Claimed, Knows, NewRun, NewWorker, Operation, Parent,
    Reply, Request, RequestId, Store, TaskKey,
};
use tidegate_core::wait::{WaitId, WaitKind, Waiting};
use tidegate_core::want::{Known, Loaded, Loader, ServedTasks, Want};
use tidegate_core::{Backoff, RunId, TaskExecutionId, Timestamp};

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
    requests: Vec<Told>,
}

/// One request: what is said of some of the tasks that run, how many are taken, whether it is cancelled.
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
        .prop_map(|(tasks, on_failure, requests)| Story { tasks, on_failure, requests })
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
    requests: u64,
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
            requests: 0,
        };
        let request = Request { submits: vec![submit(RUN, &plan)], ..compared.request(0) };
        compared.settle();
        compared.take(request);
        compared
    }

    fn request(&mut self, units: u32) -> Request {
        self.requests += 1;
        let claim = Claim { units, ahead: 0, heaviest: 99, room: u32::MAX };
        let at = NOW + SECOND * u32::try_from(self.requests).expect("there are few");
        Request { worker: Some(self.worker), claim, ..Request::new(RequestId(self.requests), at) }
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
        let index = claimed.index;
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
        Some(Change::new(key, index, event))
    }

    fn tell(&mut self, told: &Told) {
        let mut request = self.request(told.units);
        let mut spoke = BTreeSet::new();
        for &(at, what) in &told.said {
            // One thing of a task at a time.
            if at < self.model.len() && spoke.insert(at) {
                request.changes.extend(self.say(at, what));
            }
        }
        self.settle();
        if told.cancels {
            request.operations.push(Operation::Cancel(RUN));
            let is_open = |standing: &Standing| standing.outcome().is_none();
            self.cancelled |= self.model.iter().any(is_open);
            for standing in self.model.iter_mut().filter(|standing| is_open(standing)) {
                *standing = Standing::Ended(Outcome::Cancelled);
            }
        }
        self.take(request);
    }

    /// The store takes a request and then stands as it must.
    fn take(&mut self, request: Request) {
        let Reply { changes, claimed, ended, .. } = now(self.store.request(Arc::new(request)));
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
    story.requests.iter().for_each(|told| compared.tell(told));
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

    /// What a request reads and writes.
    fn cost(&mut self, request: &Request) -> (Reply, usize, usize) {
        (self.read, self.written) = (0, 0);
        let Ok(Decision { delta, mut reply, fill, .. }) =
            decision::decide(request, Known::new(), self);
        self.apply(delta);
        let Ok(()) = decision::complete_reply(self, &mut reply, &fill);
        (reply, self.read, self.written)
    }

    fn apply(&mut self, delta: Delta) {
        for (task, waits) in delta.waits {
            for (id, wait) in waits {
                self.written += 1;
                match wait {
                    Some(wait) => drop(self.waits.insert((task, id), wait)),
                    None => drop(self.waits.remove(&(task, id))),
                }
            }
        }
        for (task, kind, bytes) in delta.payloads {
            self.payloads.insert((task, kind.code()), bytes);
        }
        for write in &delta.tasks {
            self.put(&write.row);
        }
    }
}

impl Loader for Counted {
    type Stop = Infallible;

    fn load(&mut self, want: &Want) -> Result<Loaded, Infallible> {
        Ok(match want {
            Want::RunById(run) => {
                let is_it = |row: &&Row| row.head.as_ref().is_some_and(|head| head.id == *run);
                Loaded::Run(self.tasks.values().find(is_it).map(Row::run))
            }
            Want::Task(task) => {
                self.read += 1;
                Loaded::Task(self.tasks.get(task).cloned())
            }
            Want::WholeRun(run) => {
                let rows = self.tasks.values().filter(|row| row.run() == *run);
                let rows: Vec<Row> = rows.cloned().collect();
                self.read += rows.len();
                Loaded::Tasks(rows)
            }
            Want::DueTasks { .. } | Want::Notifications(_) => Loaded::TaskKeys(Vec::new()),
            Want::DueLimits { .. } => Loaded::LimitKeys(Vec::new()),
            Want::NextAlarm | Want::PauseStart(_) => Loaded::Instant(None),
            Want::Ready { max, .. } => {
                let ready = self.ready.iter().take(*max as usize);
                Loaded::Ordered(ready.map(|&task| (NOW, task)).collect())
            }
            Want::Served(_) => {
                let queues = BTreeSet::from(["q".to_owned()]);
                Loaded::Served(Some(Arc::new(ServedTasks { queues, tasks: None })))
            }
            Want::IsQueuePaused(_) => Loaded::Flag(false),
            Want::TaskNumbers { count, .. } => {
                let first = self.last + 1;
                self.last += i64::from(*count);
                Loaded::Number(first)
            }
            Want::Payload(task, kind) => {
                self.read += 1;
                Loaded::Payload(self.payloads.get(&(*task, kind.code())).cloned())
            }
            Want::Waits(task) => {
                let waits = self.waits.iter().filter(|((of, _), _)| of == task);
                let waits: Vec<_> = waits.map(|(_, wait)| wait.clone()).collect();
                self.read += waits.len();
                Loaded::Waits(waits)
            }
            Want::Wait(task, id) => {
                self.read += 1;
                Loaded::Wait(self.waits.get(&(*task, id.clone())).cloned())
            }
            Want::WaitersOf(run) => {
                let open = self.waits.iter();
                let open = open.filter(|(_, wait)| wait.is_open() && wait.run == Some(*run));
                Loaded::RunWaits(open.map(|(key, _)| key.clone()).collect())
            }
            Want::EdgesFrom { .. } => Loaded::Edges(Vec::new()),
            other => unreachable!("{other:?} is not needed here"),
        })
    }
}

fn request_with(id: u64, changes: Vec<Change>, units: u32) -> Request {
    let claim = Claim { units, ahead: 0, heaviest: 99, room: u32::MAX };
    Request { worker: Some(WorkerId(1)), changes, claim, ..Request::new(RequestId(id), NOW) }
}

fn succeeds(task: &Claimed) -> Change {
    Change::new(task.key, task.index, Event::Succeed { fence: task.life.fence })
}

/// Ends one of what was taken and takes another, to the end; the most that a request reads and writes.
fn one_by_one(rows: &mut Counted, mut taken: Vec<Claimed>) -> (u32, usize, usize) {
    let (mut ended, mut most_read, mut most_written) = (0, 0, 0);
    while !taken.is_empty() {
        let task = taken.remove(0);
        let request = request_with(1_000 + u64::from(ended), vec![succeeds(&task)], 1);
        let (reply, read, written) = rows.cost(&request);
        assert_eq!(reply.changes, [Applied::Yes]);
        taken.extend(reply.claimed);
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
        let mut request = request_with(1, Vec::new(), 1);
        request.submits.push(submit(RUN, &plan));
        let each = rows.cost(&request).0.claimed.remove(0);
        let task = TaskPlan::default();
        let plan = Arc::new(Plan::items("w", "each", count, OnFailure::FailFast, task));
        let id = RunId::of_items(TaskExecutionId::of(RUN, TaskIndex::from_u32(0)));
        let mut request = request_with(2, Vec::new(), 4);
        let wait = WaitId::new(WaitKind::Child, "items", 0);
        let parent = Some(Parent::new(each.key, each.life.fence, wait));
        let items = (0..count).map(|_| Bytes::from(&b"{}"[..])).collect();
        request.submits.push(NewRun { parent, items, ..submit(id, &plan) });
        let taken = rows.cost(&request).0.claimed;
        assert_eq!(taken.len(), 4);
        let (ended, read, written) = one_by_one(&mut rows, taken);
        assert_eq!(ended, count);
        let is_over = |row: &Row| row.head.as_ref().is_some_and(|head| head.ended.is_some());
        assert!(rows.tasks.values().any(|row| row.run().0 == 2 && is_over(row)));
        (read, written)
    };
    let few = cost_of(10);
    assert_eq!(cost_of(2_000), few);
    assert!(few.0 <= 12 && few.1 <= 4, "a request reads and writes {few:?}");
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
        let mut request = request_with(1, Vec::new(), 4);
        request.submits.push(submit(RUN, &plan));
        let taken = rows.cost(&request).0.claimed;
        let (ended, read, written) = one_by_one(&mut rows, taken);
        assert_eq!(ended as usize, 2 * width);
        (read, written)
    };
    let few = cost_of(8);
    assert_eq!(cost_of(600), few);
    assert!(few.0 <= 12 && few.1 <= 4, "a request reads and writes {few:?}");
}
