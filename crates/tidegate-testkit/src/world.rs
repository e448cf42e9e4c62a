//! A store, a clock and everybody who uses them, in one hand.

pub mod ask;
pub mod change;
mod checks;
mod connection;

use crate::{FakeClock, Harness};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::lifecycle::{Kind, Life, WorkerId};
use tidegate_core::limit::{Limit, LimitState};
use tidegate_core::plan::Plan;
use tidegate_core::retention::{Prune, Pruned};
use tidegate_core::rows::Payload;
use tidegate_core::store::{
    Applied, Bytes, Change, Claim, Claimed, Clock, Knows, NewRun, NewWorker, Operation,
    OperationOutcome, Parent, Record, Reply, Request, RequestId, RunView, Store, Submitted,
    TaskKey,
};
use tidegate_core::wait::{Awaited, NewSignal, WaitId, WaitKind, WaitOp, WaitOutcome, Waiting};
use tidegate_core::{RunId, Timestamp};

/// The queue that everything is in unless it is told otherwise.
pub const QUEUE: &str = "main";

/// Runs that are looked at after every request; of more, those submitted first.
const WATCHED_MAX: usize = 40;

/// The store is audited after every fourth request and at the end of a case: a contradiction stays.
const AUDIT_EVERY: u64 = 4;

/// Tasks of a run up to which it is looked at after every request, so that large ones stay cheap.
const WATCHED_TASKS_MAX: usize = 40;

/// A store in use.
///
/// After every request it checks what holds for all of them: that the lifecycle allows what became of
/// each task, that the answer tells what is stored, and that the store does not contradict itself.
pub struct World {
    harness: Box<dyn Harness>,
    store: Arc<dyn Store>,
    clock: FakeClock,
    requests: u64,
    ids: u128,
    watched: BTreeMap<RunId, Watched>,
    /// Up to which number the records were read.
    recorded: u64,
    /// The latest time that a request was told.
    latest: Timestamp,
    /// Whether so much was submitted that looking at all of it after every request takes too long.
    crowded: bool,
}

struct Watched {
    not_before: Option<Timestamp>,
    /// How it was last seen.
    view: Option<RunView>,
}

impl World {
    pub(crate) fn new(harness: Box<dyn Harness>) -> Self {
        World {
            store: harness.store(),
            harness,
            clock: FakeClock::default(),
            requests: 0,
            ids: 0,
            watched: BTreeMap::new(),
            recorded: 0,
            latest: Timestamp::from_micros(i64::MIN),
            crowded: false,
        }
    }

    /// The store, for what is not said here.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// What a task has returned.
    pub async fn output(&self, task: TaskKey) -> Option<Bytes> {
        let outputs = self.store.payloads(task, 1, Payload::Output).await.expect("it can be read");
        assert!(outputs.iter().all(|(other, _)| *other == task), "nobody else is asked for");
        outputs.into_iter().next().map(|(_, output)| output)
    }

    /// The time it is.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Time goes on by this much.
    pub fn advance(&mut self, by: Duration) -> Timestamp {
        self.clock.advance(by)
    }

    // ------------------------------------------------------------------------------- workers --

    /// A new worker that serves [`QUEUE`] and knows all tasks of these plans.
    pub async fn worker(&mut self, plans: &[&Arc<Plan>]) -> WorkerId {
        self.worker_of(&[QUEUE], plans).await
    }

    /// A new worker that serves these queues and knows all tasks of these plans.
    pub async fn worker_of(&mut self, queues: &[&str], plans: &[&Arc<Plan>]) -> WorkerId {
        let tasks = |plan: &&Arc<Plan>| {
            let names = plan.graph().tasks().map(|task| plan.known_as(task).to_owned());
            names.map(|name| (plan.workflow().to_owned(), name)).collect::<Vec<_>>()
        };
        let knows = plans.iter().flat_map(tasks).collect();
        self.worker_that_knows(queues, knows).await
    }

    /// A new worker that serves these queues and knows these tasks, by workflow and name.
    pub async fn worker_that_knows(
        &mut self,
        queues: &[&str],
        knows: Vec<(String, String)>,
    ) -> WorkerId {
        let queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        self.enlist(queues, Knows::These(knows)).await
    }

    /// A new worker that serves these queues and can do whatever there is.
    pub async fn worker_of_all(&mut self, queues: &[&str]) -> WorkerId {
        let queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        self.enlist(queues, Knows::All).await
    }

    async fn enlist(&mut self, queues: Vec<String>, knows: Knows) -> WorkerId {
        let new = NewWorker { now: self.now(), name: "here".to_owned(), queues, knows, slots: 100 };
        self.store.enlist(new).await.expect("a worker can be enlisted")
    }

    /// The process of this worker is gone.
    pub async fn kill(&mut self, worker: WorkerId) {
        self.harness.kill(worker);
        let dead = self.store.dead().await.expect("the dead can be listed");
        assert!(dead.contains(&worker), "a worker whose process is gone is dead");
    }

    // --------------------------------------------------------------------------------- requests --

    /// A request that does nothing but look at the clock.
    pub fn request(&mut self) -> Request {
        self.requests += 1;
        Request::new(RequestId(self.requests), self.now())
    }

    /// A request of this worker.
    pub fn request_of(&mut self, worker: WorkerId) -> Request {
        Request { worker: Some(worker), ..self.request() }
    }

    /// Hands a request in, and checks what must hold after every request.
    pub async fn take(&mut self, request: Request) -> Reply {
        let ops = request.changes.iter().flat_map(|change| &change.waits);
        let children = ops.filter_map(|op| match op {
            WaitOp::Begin { what: Awaited::Child(new), .. } => Some(&**new),
            _ => None,
        });
        for new in request.submits.iter().chain(children) {
            self.watch(new);
        }
        self.latest = self.latest.max(time_of(&request));
        let asked = (request.changes.len(), request.submits.len(), request.operations.len());
        let reply =
            self.store.request(Arc::new(request.clone())).await.expect("a request can be taken");
        let answered = (reply.changes.len(), reply.submits.len(), reply.operations.len());
        assert_eq!(asked, answered, "everything that is asked is answered");
        self.check_records(&reply).await;
        if !self.crowded {
            self.check_runs(&request, &reply).await;
            if self.requests.is_multiple_of(AUDIT_EVERY) {
                self.check_audit().await;
            }
        }
        reply
    }

    /// Hands a request in, loses its answer, and hands it in again: what it answered then, and what
    /// now.
    pub async fn take_twice(&mut self, mut request: Request) -> [Reply; 2] {
        let first = self.take(request.clone()).await;
        request.again = true;
        let second = self.take(request).await;
        [first, second]
    }

    /// Looks at the clock.
    pub async fn look(&mut self) -> Reply {
        let request = self.request();
        self.take(request).await
    }

    /// A run of this plan, to be submitted.
    pub fn new_run(&mut self, plan: &Arc<Plan>) -> NewRun {
        self.ids += 1;
        NewRun::new(RunId::new(self.now(), self.ids), plan.clone(), QUEUE.into())
    }

    /// Submits a run of this plan, with nobody there to take it.
    pub async fn submit(&mut self, plan: &Arc<Plan>) -> Submitted {
        let new = self.new_run(plan);
        self.submit_run(new).await
    }

    /// Submits this run, with nobody there to take it.
    pub async fn submit_run(&mut self, new: NewRun) -> Submitted {
        let mut request = self.request();
        request.submits.push(new);
        let submitted = self.take(request).await.submits.remove(0);
        submitted.expect("the run is accepted")
    }

    /// Takes what fits into so many units, and begins it.
    pub async fn claim(&mut self, worker: WorkerId, units: u32) -> Vec<Claimed> {
        self.claim_with(worker, claim(units, 0)).await.claimed
    }

    /// Takes what is there.
    pub async fn claim_with(&mut self, worker: WorkerId, claim: Claim) -> Reply {
        let mut request = self.request_of(worker);
        request.claim = claim;
        self.take(request).await
    }

    /// Takes the one task there is, and begins it.
    pub async fn claim_one(&mut self, worker: WorkerId) -> Claimed {
        let mut claimed = self.claim(worker, 1).await;
        assert_eq!(claimed.len(), 1, "there is a task to be taken");
        claimed.remove(0)
    }

    /// Takes the one task there is, without beginning it.
    pub async fn claim_ahead(&mut self, worker: WorkerId) -> Claimed {
        let mut claimed = self.claim_with(worker, claim(0, 1)).await.claimed;
        assert_eq!(claimed.len(), 1, "there is a task to be taken");
        claimed.remove(0)
    }

    /// The worker says this of one of its tasks, and nothing else.
    pub async fn say(&mut self, worker: WorkerId, change: Change) -> Reply {
        let mut request = self.request_of(worker);
        request.changes.push(change);
        self.take(request).await
    }

    /// The worker says this of one of its tasks, and it is so.
    pub async fn tell(&mut self, worker: WorkerId, change: Change) -> Reply {
        let reply = self.say(worker, change).await;
        assert_eq!(reply.changes, [Applied::Yes]);
        reply
    }

    /// Asks for this, and it is so.
    pub async fn perform_operation(&mut self, operation: Operation) -> Reply {
        let reply = self.ask(operation).await;
        assert_eq!(reply.operations, [OperationOutcome::Yes]);
        reply
    }

    /// Asks for this.
    pub async fn ask(&mut self, operation: Operation) -> Reply {
        let mut request = self.request();
        request.operations.push(operation);
        self.take(request).await
    }

    /// Takes over what a dead worker leaves.
    pub async fn recover(&mut self, dead: WorkerId) -> Reply {
        let mut request = self.request();
        request.recover = Some(dead);
        self.take(request).await
    }

    /// What a task asks for, of its worker, and how it is answered.
    pub async fn asks(
        &mut self,
        worker: WorkerId,
        task: &Claimed,
        op: WaitOp,
    ) -> Option<WaitOutcome> {
        let reply = self.tell(worker, change::asks(task, [op])).await;
        let own = reply.answers.into_iter().filter(|(key, ..)| *key == task.key);
        let [(_, fence, answer)] = own.collect::<Vec<_>>().try_into().expect("it is answered once");
        assert_eq!(fence, task.life.fence);
        answer.outcome
    }

    /// A signal to a run, to be sent.
    pub fn new_signal(&mut self, run: RunId, name: &str, body: &str) -> NewSignal {
        self.ids += 1;
        NewSignal { id: self.ids, run, name: name.into(), body: Some(Bytes::from(body.as_bytes())) }
    }

    /// Sends a signal, with nobody there to take what it wakes.
    pub async fn send(&mut self, run: RunId, name: &str, body: &str) -> Reply {
        let signal = self.new_signal(run, name, body);
        self.perform_operation(Operation::Signal(signal)).await
    }

    /// A run of this plan that a task begins and waits for, as its so many-th.
    pub fn child_of(&mut self, task: &Claimed, plan: &Arc<Plan>, number: u32) -> NewRun {
        let wait = WaitId::new(WaitKind::Child, "", number);
        let parent = Some(Parent::new(task.key, task.life.fence, wait));
        NewRun { parent, ..self.new_run(plan) }
    }

    /// A limit is there from now on.
    pub async fn declare(&mut self, limit: Limit) {
        self.perform_operation(Operation::Declare(limit)).await;
    }

    /// What is in use of the limits, and how many tasks wait: by name and key.
    pub async fn limits(&self) -> Vec<(String, String, u32, u64)> {
        let limits = self.store.limits().await.expect("limits can be listed");
        let state =
            |is: LimitState| (is.limit.name().to_owned(), is.key.clone(), is.in_use, is.waiting);
        limits.into_iter().map(state).collect()
    }

    /// Takes a step of pruning, and checks what must hold after each.
    pub async fn prune(&mut self, step: Prune) -> Pruned {
        let request = Request { prune: Some(step), ..self.request() };
        let pruned =
            self.store.request(Arc::new(request)).await.expect("a step can be taken").pruned;
        for run in &pruned.runs {
            self.watched.remove(run);
        }
        self.check_audit().await;
        pruned
    }

    /// Closes the store and opens it again.
    pub async fn reopen(&mut self) {
        self.harness.reopen().await;
        self.store = self.harness.store();
    }

    // --------------------------------------------------------------------------------- views --

    /// The run as it is.
    pub async fn view(&self, run: RunId) -> RunView {
        let view = self.store.run(run).await.expect("a run can be looked at");
        view.expect("the run is there")
    }

    /// How the tasks of a run stand.
    pub async fn kinds(&self, run: RunId) -> Vec<Kind> {
        self.view(run).await.tasks.iter().map(|task| task.life.state.kind()).collect()
    }

    /// The life of the task of this place.
    pub async fn life(&self, run: RunId, task: u32) -> Life {
        self.view(run).await.tasks[task as usize].life.clone()
    }

    /// All that was recorded of all runs.
    pub async fn records(&self) -> Vec<Record> {
        self.store.records(None, 0, u32::MAX).await.expect("records can be read")
    }
}

/// A claim of what fits into so many units, and of so many tasks besides, of any weight.
pub fn claim(units: u32, ahead: u32) -> Claim {
    Claim { units, ahead, heaviest: u32::MAX, room: u32::MAX }
}

/// The time that a request is given.
///
/// # Panics
/// If it goes by the store's clock.
pub fn time_of(request: &Request) -> Timestamp {
    match request.clock {
        Clock::Given(now) => now,
        Clock::Store => panic!("the harness gives each request its time"),
    }
}

/// What a task has waited for in earlier entries, by identity.
pub fn waits_of(task: &Claimed) -> Vec<Waiting> {
    task.waits.iter().map(|(wait, _)| wait.clone()).collect()
}

/// The numbers of what was taken, in order.
pub(crate) fn keys(claimed: &[Claimed]) -> Vec<TaskKey> {
    claimed.iter().map(|task| task.key).collect()
}
