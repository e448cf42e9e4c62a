//! The seam between the engine and where the truth is.
//!
//! A [`Store`] speaks of engine operations in batches. Everything that changes a task goes through
//! one method, [`Store::request`]: a worker, or whoever submits and cancels, hands in all it has to
//! say and to ask, and all of it happens in one transaction or not at all. What a request makes of the
//! tasks is decided by [`decision::decide`](crate::decision::decide), the same for every store; a store only
//! loads rows ([`Loader`](crate::want::Loader)) and applies the [`Delta`](crate::delta::Delta). Nothing in a store knows what a state means.
//!
//! Deliberately absent: time (it comes with each request), retries after errors (the caller's), any
//! notion of a lost answer (a request may be repeated, and says so).

mod changes;
mod clock;

pub use changes::{Applied, Change};
pub use clock::Clock;

use crate::audit::{Repair, Rule};
use crate::explain::Looked;
use crate::graph::{RunOutcome, TaskIndex};
use crate::lifecycle::{Fence, Kind, Life, Reason, State, WorkerId};
use crate::limit::{Limit, LimitState};
use crate::plan::Plan;
use crate::retention::{Prune, Pruned};
use crate::rows::{Owned, Payload};
use crate::sweep::{Sweep, Swept};
use crate::wait::{NewSignal, WaitAnswer, WaitId, Waiting};
pub use crate::wakeup::Wakeup;
use crate::want::TaskGroup;
use crate::{RunId, TaskExecutionId, Timestamp};
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What a store answers, later.
pub type Answer<'s, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 's>>;

/// Bytes that a store keeps and does not look into.
pub type Bytes = Arc<[u8]>;

/// Where the truth is.
///
/// Every method may be called at any time by any number of callers. A future that is dropped has
/// happened or not; nothing is half-done.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Once this returns, the worker is known to everybody who opens the store, and counts as alive
    /// until it is dismissed or its process is gone. Its number was never used before.
    fn enlist(&self, worker: NewWorker) -> Answer<'_, WorkerId>;

    /// Once this returns, the worker is unknown. It must not own anything any more; what it still
    /// owns is taken over like a dead worker's.
    fn dismiss(&self, worker: WorkerId) -> Answer<'_, ()>;

    /// Workers that are known and not alive. Once a worker was named here it never writes again.
    fn dead(&self) -> Answer<'_, Vec<WorkerId>>;

    /// All workers that are known, by number.
    fn workers(&self) -> Answer<'_, Vec<WorkerView>>;

    /// Once this returns, all that the request asked for has happened and survives any crash, and
    /// everything that follows from it: tasks unblocked, skipped, cancelled, runs ended. If it
    /// fails, nothing of it has happened, unless the error says that this is unknown: then the same
    /// request may be handed in again, marked so.
    fn request(&self, request: Arc<Request>) -> Answer<'_, Reply>;

    /// Resolves when another process has changed something that concerns the worker since the last call.
    /// Best effort, and by default never: callers also poll.
    fn wait_for_wakeup(&self, _worker: WorkerId) -> Answer<'_, Wakeup> {
        Box::pin(std::future::pending())
    }

    /// A run with its tasks, as it is at one instant.
    fn run(&self, run: RunId) -> Answer<'_, Option<RunView>>;

    /// Those of these runs that are over, and how they ended; `None` for one that is not there: it may
    /// have been pruned since.
    fn ended(&self, runs: Vec<RunId>) -> Answer<'_, Vec<(RunId, Option<RunOutcome>)>>;

    /// Runs from new to old, without their tasks.
    fn runs(&self, page: RunsPage) -> Answer<'_, Vec<RunSummary>>;

    /// The payloads of one kind that this many tasks have, from this one on, by number.
    fn payloads(
        &self,
        first: TaskKey,
        tasks: u32,
        kind: Payload,
    ) -> Answer<'_, Vec<(TaskKey, Bytes)>>;

    /// What a run works on; `None` if that is nothing, or there is no such run.
    fn input(&self, run: RunKey) -> Answer<'_, Option<Bytes>> {
        Box::pin(async move {
            let inputs = self.payloads(TaskKey(run.0), 1, Payload::Input).await?;
            Ok(inputs.into_iter().next().map(|(_, input)| input))
        })
    }

    /// What was recorded after `after`, in order, at most `limit` rows; of one run or of all.
    fn records(&self, run: Option<RunKey>, after: u64, limit: u32) -> Answer<'_, Vec<Record>>;

    /// How many tasks stand where.
    fn counts(&self) -> Answer<'_, Counts>;

    /// Tasks that are ready, or will be when they are due, and that no worker can run: runs go on
    /// under another version of a program as far as their tasks are known, and these are the rest.
    fn unserved(&self) -> Answer<'_, Vec<Unserved>>;

    /// The limits that are declared, by name, each once for every key that is in use or waited for.
    fn limits(&self) -> Answer<'_, Vec<LimitState>>;

    /// How a task stands at one instant and all reasons why it is not running, as far as the store
    /// knows, where it is `now`; `None` if there is no such task.
    fn explain(&self, task: TaskKey, now: Timestamp) -> Answer<'_, Option<Looked>>;

    /// Every way in which what is stored contradicts itself, in words. A healthy store has none.
    fn audit(&self) -> Answer<'_, Vec<Finding>>;

    /// Takes a step of removing rows that nothing refers to. By default there are no such rows.
    fn sweep_rows(&self, _step: Sweep) -> Answer<'_, Swept> {
        Box::pin(std::future::ready(Ok(Swept::default())))
    }
}

/// The number of a run in its store. Its first task has the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey(pub i64);

/// The number of a task of a run in its store: that of the run, and on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey(pub i64);

impl RunKey {
    /// One of its tasks.
    pub fn task(self, index: TaskIndex) -> TaskKey {
        TaskKey(self.0 + i64::from(index.as_u32()))
    }
}

impl TaskKey {
    /// The run whose task of this place it is.
    pub fn run(self, index: TaskIndex) -> RunKey {
        RunKey(self.0 - i64::from(index.as_u32()))
    }
}

/// The name of one request, unique in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A worker that presents itself.
#[derive(Debug, Clone)]
pub struct NewWorker {
    /// When.
    pub now: Timestamp,
    /// What it can be recognised by: a host, a process.
    pub name: String,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The tasks it knows.
    pub knows: Knows,
    /// How many slots it has: what is heavier it cannot run.
    pub slots: u32,
}

/// The tasks that a worker can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knows {
    /// Whatever there is.
    All,
    /// These, by workflow and name.
    These(Vec<(String, String)>),
}

/// A worker, from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerView {
    /// Its number.
    pub id: WorkerId,
    /// What it can be recognised by: a host, a process.
    pub name: String,
    /// When it presented itself.
    pub started_at: Timestamp,
    /// The queues it serves, by name; none if it only looks and asks.
    pub queues: Vec<String>,
    /// How many slots it had at its start; 0 if it only looks and asks.
    pub slots: u32,
    /// Whether its process lives.
    pub alive: bool,
}

impl WorkerView {
    /// A worker that presented itself like this, and lives.
    pub fn new(id: WorkerId, new: NewWorker) -> Self {
        let NewWorker { now, name, mut queues, slots, .. } = new;
        queues.sort_unstable();
        queues.dedup();
        WorkerView { id, name, started_at: now, queues, slots, alive: true }
    }
}

/// Levels of runs that tasks may begin, one below the other, unless said otherwise. An application that
/// delegates needs a few; more are a workflow that begins itself without end.
pub const CHILD_DEPTH_MAX: u32 = 64;

/// All that somebody has to say to the store and to ask of it at one time.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// Whether it was handed in before with an unknown outcome.
    pub again: bool,
    /// By which clock.
    pub clock: Clock,
    /// Whether the clock was set back since the worker's request before.
    pub set_back: bool,
    /// Whose request it is, if it is a worker's.
    pub worker: Option<WorkerId>,
    /// What became of tasks that the worker owns.
    pub changes: Vec<Change>,
    /// Runs to begin.
    pub submits: Vec<NewRun>,
    /// What else is wanted of runs.
    pub operations: Vec<Operation>,
    /// A dead worker whose tasks are to be taken over, so many as fit into a request.
    pub recover: Option<WorkerId>,
    /// Whether the worker wants to know everything it owns.
    pub roll_call: bool,
    /// So many runs of a queue may [wait](crate::want::Want::QueueDepth); a submit beyond is refused.
    pub waiting_max: Option<u32>,
    /// So many levels of runs may be begun by tasks below a run that was submitted; a run below is
    /// refused. `u32::MAX`: any number.
    pub child_depth_max: u32,
    /// What the worker wants to take.
    pub claim: Claim,
    /// A step of pruning to take. It sees the store as it was before the request.
    pub prune: Option<Prune>,
}

impl Request {
    /// A request that does nothing but look at the clock.
    pub fn new(id: RequestId, clock: impl Into<Clock>) -> Self {
        Request {
            id,
            again: false,
            clock: clock.into(),
            set_back: false,
            worker: None,
            changes: Vec::new(),
            submits: Vec::new(),
            operations: Vec::new(),
            recover: None,
            roll_call: false,
            waiting_max: None,
            child_depth_max: CHILD_DEPTH_MAX,
            claim: Claim::default(),
            prune: None,
        }
    }
}

/// A run to begin.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Made by the caller, so that a submit can be repeated.
    pub id: RunId,
    /// What it is to do.
    pub plan: Arc<Plan>,
    /// The name under which it is handed out.
    pub queue: Arc<str>,
    /// A head start in seconds.
    pub priority: i32,
    /// Unique in the queue and the workflow.
    pub key: Option<String>,
    /// Nothing of it starts before.
    pub not_before: Option<Timestamp>,
    /// What it works on.
    pub input: Option<Bytes>,
    /// Of a run that a task begins: which one.
    pub parent: Option<Parent>,
    /// Of a run that takes over what has succeeded in an older one: which one.
    pub retry_of: Option<Box<RetryOf>>,
    /// Of a run of items: what each of them is.
    pub items: Vec<Bytes>,
    /// The keys of the limits of each task that has such with keys, in the order of its plan.
    pub keys: Vec<(TaskIndex, Vec<Arc<str>>)>,
}

impl NewRun {
    /// A run of this plan in this queue, and nothing special about it.
    pub fn new(id: RunId, plan: Arc<Plan>, queue: Arc<str>) -> Self {
        let (priority, items, keys) = (0, Vec::new(), Vec::new());
        let (key, not_before, input, parent, retry_of) = (None, None, None, None, None);
        NewRun { id, plan, queue, priority, key, not_before, input, parent, retry_of, items, keys }
    }
}

/// The run that a new one takes over from. See [`retry`](crate::retry) for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOf {
    /// Which. It has ended.
    pub run: RunId,
    /// Tasks of the new run that run again whatever they came to.
    pub again: Vec<TaskIndex>,
}

/// The task that begins a run and waits for it. The run has its pause, is cancelled when the task
/// ends other than by success, and has its queue and its priority unless it is told otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Which.
    pub task: TaskKey,
    /// By which right it runs.
    pub fence: Fence,
    /// The wait of the task for this run, of the kind [`Child`](crate::wait::WaitKind::Child).
    pub wait: WaitId,
    /// See [`Waiting::label`].
    pub label: Arc<str>,
    /// See [`Waiting::due`].
    pub due: Option<Timestamp>,
    /// Limits that the task gives back while it waits.
    pub releasing: Vec<Arc<str>>,
    /// Another queue than the task's.
    pub queue: Option<Arc<str>>,
    /// Another priority than that of the task's run.
    pub priority: Option<i32>,
}

impl Parent {
    /// This task, which runs by this right, and so waits for the run.
    pub fn new(task: TaskKey, fence: Fence, wait: WaitId) -> Self {
        let (label, due, releasing) = (Arc::from(""), None, Vec::new());
        Parent { task, fence, wait, label, due, releasing, queue: None, priority: None }
    }
}

/// A run that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Its number.
    pub key: RunKey,
    /// Its name: the one given, or that of the run which had the key before.
    pub id: RunId,
    /// Whether it existed already: under the same idempotency key, or as the run of the same parent.
    pub existing: bool,
}

/// Why a submit was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Another run has this key, and another input.
    KeyTaken {
        /// The key.
        key: String,
        /// Who has it.
        by: RunId,
    },
    /// The task that wanted to begin it does not run any more, or not by that right.
    ParentGone,
    /// The task that wanted to begin it cannot wait for it, and why.
    Unwaitable(String),
    /// Too many runs are above it, each begun by a task of the one above.
    TooDeep {
        /// The workflow of the run that was to begin.
        workflow: String,
        /// How many would be above it, at least.
        depth: u32,
        /// How many may be.
        max: u32,
    },
    /// So many runs wait in its queue that no further one is taken in.
    QueueFull {
        /// The queue.
        queue: String,
        /// How many wait, at least.
        waiting: u32,
        /// How many may.
        max: u32,
    },
    /// Another run has this key, and is not a retry of the same run, or this is not.
    KeyOfAnother {
        /// The key.
        key: String,
        /// Who has it.
        by: RunId,
    },
    /// The run that it was to be a retry of does not exist. It may have been pruned.
    NoRun {
        /// Which.
        run: RunId,
    },
    /// The run that it was to be a retry of has not ended.
    NotEnded {
        /// Which.
        run: RunId,
    },
    /// The run that it was to be a retry of is that of the items of a task, and goes with that one's.
    RunOfItems {
        /// Which.
        run: RunId,
    },
    /// All tasks of the run that it was to be a retry of have succeeded, and nothing has changed.
    NothingLeft {
        /// Which.
        run: RunId,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::KeyTaken { key, by } => {
                write!(f, "the key \"{key}\" belongs to run {by}, whose input is another one; ")?;
                f.write_str("use another key, or the same input")
            }
            Refusal::ParentGone => f.write_str("the task that begins it is over"),
            Refusal::Unwaitable(why) => f.write_str(why),
            Refusal::TooDeep { workflow, depth, max } => {
                write!(
                    f,
                    "cannot begin a run of workflow \"{workflow}\": it would be a child at "
                )?;
                write!(
                    f,
                    "depth {depth}, and child_depth_max is {max}; begin it from further up, "
                )?;
                f.write_str("or set a larger child_depth_max")
            }
            Refusal::QueueFull { queue, waiting, max } => {
                write!(
                    f,
                    "{waiting} runs wait in queue \"{queue}\", which takes in no more than "
                )?;
                write!(f, "{max}; submit it again later, or set a larger waiting_max")
            }
            Refusal::KeyOfAnother { key, by } => {
                write!(
                    f,
                    "the key \"{key}\" belongs to run {by}, and only one of the two is a retry, "
                )?;
                f.write_str("or they are of different runs; use another key")
            }
            Refusal::NoRun { run } => {
                write!(f, "there is no run {run} in this store; it may have been pruned")
            }
            Refusal::NotEnded { run } => {
                write!(f, "run {run} has not ended; wait for its end, or cancel it")
            }
            Refusal::RunOfItems { run } => {
                write!(f, "run {run} is that of the items of a task; retry the run of that task")
            }
            Refusal::NothingLeft { run } => {
                write!(f, "nothing is left to do of run {run}: all of it has succeeded, ")?;
                f.write_str("and nothing has changed; name tasks that are to run again")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Something wanted of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// It is not wanted any more.
    Cancel(RunId),
    /// Nothing of it is to start; what has begun goes on.
    Pause(Scope),
    /// It goes on.
    Unpause(Scope),
    /// A message to a run.
    Signal(NewSignal),
    /// A limit that is there from now on, if it was not before.
    Declare(Limit),
    /// A limit is another from now on.
    Resize(Limit),
    /// What an audit has found is to be put right.
    Repair(Repair),
}

/// What a pause stops.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One run.
    Run(RunId),
    /// All runs of a queue.
    Queue(String),
    /// Everything.
    Store,
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationOutcome {
    /// It is as wanted.
    Yes,
    /// It was so already, or the run is over.
    Already,
    /// There is no such run or limit.
    Unknown,
    /// It is there already, and is another.
    Differs,
}

/// What a worker wants to take: the best of what is ready in its queues, that it knows.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Units of slots it keeps free for this: tasks that fit are begun at once.
    pub units: u32,
    /// Tasks it would take besides, to begin later.
    pub ahead: u32,
    /// The heaviest task it could ever run.
    pub heaviest: u32,
    /// How many tasks it has room for, of runs that nobody waits for. What somebody waits for comes in
    /// all the same: nobody would ever make room for it.
    pub room: u32,
}

impl Default for Claim {
    /// Nothing, and room for everything.
    fn default() -> Self {
        Claim { units: 0, ahead: 0, heaviest: 0, room: u32::MAX }
    }
}

/// A task that a worker has taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// Its number.
    pub key: TaskKey,
    /// Its place in the plan.
    pub index: TaskIndex,
    /// The plan of its run.
    pub plan: Arc<Plan>,
    /// Its run's name.
    pub run: RunId,
    /// Its life, claimed or begun.
    pub life: Life,
    /// Its place in the order of what is ready: when it became so, less its head start.
    pub order: Timestamp,
    /// What its body is given.
    pub given: Given,
    /// What it has waited for in earlier entries, and the names of the runs among that.
    pub waits: Vec<(Waiting, Option<RunId>)>,
    /// Whether some task waits for its run.
    pub awaited: bool,
}

/// What a task works on. An item is given what the task is given whose item it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// The plan in which the task has its place.
    pub plan: Arc<Plan>,
    /// That place.
    pub task: TaskIndex,
    /// What the run works on.
    pub input: Option<Bytes>,
    /// What the tasks it comes after have returned.
    pub outputs: Vec<(TaskIndex, Bytes)>,
    /// Those of them that have not succeeded.
    pub absent: Vec<TaskIndex>,
    /// What all tasks above it have put into the context.
    pub inserts: Vec<(TaskIndex, Bytes)>,
    /// The item, if it is one.
    pub item: Option<Bytes>,
}

impl Claimed {
    /// Its head start over others that became ready when it did, in seconds.
    pub fn priority(&self) -> i32 {
        let State::Running { ready_since, .. } = self.life.state else { return 0 };
        let head_start = ready_since.as_micros().saturating_sub(self.order.as_micros());
        let seconds = (head_start / 1_000_000).clamp(i32::MIN.into(), i32::MAX.into());
        i32::try_from(seconds).expect("it was just clamped")
    }

    /// The name of its execution, the same on every entry.
    pub fn execution(&self) -> TaskExecutionId {
        TaskExecutionId::of(self.run, self.index)
    }
}

/// What a request came to.
#[derive(Debug, Default, PartialEq)]
pub struct Reply {
    /// The time of the request, by its clock.
    pub now: Timestamp,
    /// Whether the store does not know the worker: it counts as dead, and its tasks are others' now or
    /// soon.
    pub is_unknown_worker: bool,
    /// What became of each change.
    pub changes: Vec<Applied>,
    /// What became of each submit.
    pub submits: Vec<Result<Submitted, Refusal>>,
    /// What became of each operation.
    pub operations: Vec<OperationOutcome>,
    /// What was taken.
    pub claimed: Vec<Claimed>,
    /// Tasks that ended, or have to, without their worker having said so.
    pub told: Vec<Told>,
    /// What became of waits of the worker's tasks, by which right each runs.
    pub answers: Vec<(TaskKey, Fence, WaitAnswer)>,
    /// Tasks of the worker that have to ask again for what they wait for: somebody else may have
    /// ended it.
    pub ask_again: Vec<(TaskKey, Fence)>,
    /// Runs that ended.
    pub ended: Vec<Ended>,
    /// What was recorded.
    pub records: Vec<Record>,
    /// The plan of the run of each record.
    pub plans: Vec<Arc<Plan>>,
    /// All that the worker owns, if it asked.
    pub roll: Vec<Owned>,
    /// How many tasks of the dead worker were taken over. Fewer than [`RECOVER_MAX`]: that was all,
    /// and the worker is not known any more.
    pub recovered: u32,
    /// Whether more was ready than was taken.
    pub more: bool,
    /// When the clock should next be looked at.
    pub alarm: Option<Timestamp>,
    /// What the step of pruning has removed.
    pub pruned: Pruned,
}

/// Tasks of a dead worker that one request takes over, so that a request stays short.
pub const RECOVER_MAX: u32 = 1_000;

/// A task that has to stop, or has been ended, behind its worker's back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Which.
    pub task: TaskKey,
    /// By which right it ran.
    pub fence: Fence,
    /// Where it runs.
    pub worker: WorkerId,
    /// How it stands: over, or still active and to stop.
    pub kind: Kind,
}

/// A run that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub key: RunKey,
    /// Its name.
    pub id: RunId,
    /// How it ended.
    pub outcome: RunOutcome,
}

/// One row of what happened, written in the transaction in which it happened and never changed.
///
/// There is one for every end of a task and for every end of an entry: exactly what the next change
/// of the task's own row would make forgotten. What begins (a claim, an entry, a wait) stands in the
/// task's row and, once it is over, with its times in the record of how it ended; a task that waits
/// ten thousand times does not make twenty thousand rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number; later ones are larger.
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The run.
    pub run: RunKey,
    /// Its name.
    pub run_id: RunId,
    /// The task.
    pub task: TaskIndex,
    /// What happened.
    pub what: Happened,
    /// Why, where there is a reason.
    pub reason: Option<Reason>,
    /// In which attempt.
    pub attempt: u32,
    /// In which entry; 0 if it never began.
    pub entry: u32,
    /// At which worker.
    pub worker: Option<WorkerId>,
    /// When that entry began.
    pub begun_at: Option<Timestamp>,
    /// How long it has computed in this attempt.
    pub active: Duration,
    /// What went wrong, in words.
    pub error: Option<String>,
}

/// What a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "as in Kind")]
pub enum Happened {
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
    Skipped,
    /// It failed and is tried again.
    Retried,
    /// It asked to be run again later.
    Snoozed,
    /// Its worker gave it back.
    HandedBack,
    /// Its worker died.
    Recovered,
    /// It waits as a row.
    Parked,
    /// It had succeeded in the run that its own is a retry of, and does not run again.
    TakenOver,
}

impl Happened {
    /// All of them, in the order of their numbers.
    pub const ALL: [Happened; 11] = [
        Happened::Succeeded,
        Happened::Failed,
        Happened::TimedOut,
        Happened::Cancelled,
        Happened::Skipped,
        Happened::Retried,
        Happened::Snoozed,
        Happened::HandedBack,
        Happened::Recovered,
        Happened::Parked,
        Happened::TakenOver,
    ];

    /// The number stores keep; it never changes its meaning.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// From the number stores keep.
    pub fn from_code(code: u8) -> Option<Self> {
        Happened::ALL.get(usize::from(code)).copied()
    }

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Happened::Succeeded => "succeeded",
            Happened::Failed => "failed",
            Happened::TimedOut => "timed_out",
            Happened::Cancelled => "cancelled",
            Happened::Skipped => "skipped",
            Happened::Retried => "retried",
            Happened::Snoozed => "snoozed",
            Happened::HandedBack => "handed_back",
            Happened::Recovered => "recovered",
            Happened::Parked => "parked",
            Happened::TakenOver => "taken_over",
        }
    }
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A run, from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSummary {
    /// Its number.
    pub key: RunKey,
    /// Its name.
    pub id: RunId,
    /// What it does.
    pub plan: Arc<Plan>,
    /// Under which name it is handed out.
    pub queue: Arc<str>,
    /// Its head start in seconds.
    pub priority: i32,
    /// Its idempotency key.
    pub idempotency_key: Option<String>,
    /// The task that has begun it.
    pub parent: Option<TaskKey>,
    /// The run that it is a retry of. It may be gone.
    pub retry_of: Option<RunId>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// How and when it ended.
    pub ended: Option<(RunOutcome, Timestamp)>,
}

/// A run with its tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// The run.
    pub run: RunSummary,
    /// Its tasks, in the order of the plan.
    pub tasks: Vec<TaskView>,
}

/// A task, from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskView {
    /// Its number.
    pub key: TaskKey,
    /// How it stands.
    pub life: Life,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What went wrong last, in words.
    pub error: Option<String>,
}

/// Which runs to list. The default is the latest hundred.
#[derive(Debug, Clone)]
pub struct RunsPage {
    /// Only older ones than this.
    pub before: Option<RunKey>,
    /// Only of this queue.
    pub queue: Option<String>,
    /// Only of this workflow.
    pub workflow: Option<String>,
    /// Only such as are still open.
    pub open: bool,
    /// Only such as no task has begun.
    pub top: bool,
    /// Only such as these tasks have begun.
    pub begun_by: Option<Range<TaskKey>>,
    /// Only such with these ids.
    pub ids: Option<RangeInclusive<RunId>>,
    /// So many at most.
    pub limit: u32,
}

impl Default for RunsPage {
    fn default() -> Self {
        let (before, queue, workflow, begun_by, ids) = (None, None, None, None, None);
        RunsPage { before, queue, workflow, open: false, top: false, begun_by, ids, limit: 100 }
    }
}

/// How many tasks stand where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Could be claimed at once, were there somebody to.
    pub ready: u64,
    /// Ready, but not due yet.
    pub future: u64,
    /// Ready, in a run that is paused.
    pub paused: u64,
    /// Ready, behind a limit that is full.
    pub limited: u64,
    /// Waiting as a row.
    pub parked: u64,
    /// Owned by a worker, in whatever activity.
    pub running: u64,
}

/// Tasks that are alike and that no worker can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The queue under which they are handed out.
    pub queue: String,
    /// Their workflow.
    pub workflow: String,
    /// Their name.
    pub task: String,
    /// How many slots each needs.
    pub weight: u32,
    /// How many there are; from [`UNSERVED_MAX`] on they are not counted.
    pub waiting: u32,
    /// Why not.
    pub why: WhyUnserved,
}

impl Unserved {
    /// The tasks of this group, of which this many wait.
    pub fn new(group: TaskGroup, waiting: u32, why: WhyUnserved) -> Self {
        let TaskGroup { queue, workflow, task, weight } = group;
        let (queue, waiting) = (queue.to_string(), waiting.min(UNSERVED_MAX));
        Unserved { queue, workflow, task, weight, waiting, why }
    }
}

/// Up to so many tasks that nobody can run are counted.
pub const UNSERVED_MAX: u32 = 1_000;

/// Why no worker can run a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyUnserved {
    /// None serves its queue.
    Queue,
    /// None of those that serve the queue knows it.
    Unknown,
    /// None of those that know it has so many slots.
    TooHeavy {
        /// The most that one of them has.
        largest: u32,
    },
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unserved { queue, workflow, task, weight, waiting, why } = self;
        let more = if *waiting < UNSERVED_MAX { "" } else { " or more" };
        write!(
            f,
            "{waiting}{more} × task \"{task}\" of workflow \"{workflow}\" in queue \"{queue}\": "
        )?;
        match why {
            WhyUnserved::Queue => f.write_str("no worker serves the queue"),
            WhyUnserved::Unknown => f.write_str("no worker of the queue knows this task"),
            WhyUnserved::TooHeavy { largest } => {
                write!(
                    f,
                    "it weighs {weight}, and no worker that knows it has more than {largest} slots"
                )
            }
        }
    }
}

/// A contradiction in what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule that is broken, by name.
    pub rule: &'static str,
    /// Where, and in which way.
    pub what: String,
    /// What puts it right, where that is safe; otherwise it is for a person.
    pub repair: Option<Repair>,
}

impl Finding {
    /// This rule is broken so, and nothing puts it right.
    pub fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Finding { rule, what: what.into(), repair: None }
    }

    /// The same, and this puts it right.
    pub fn repaired_by(self, repair: Repair) -> Self {
        Finding { repair: Some(repair), ..self }
    }

    /// What that means for the user, and what to do.
    pub fn meaning(&self) -> &'static str {
        Rule::named(self.rule).map_or("", |rule| rule.meaning)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Why a store did not do as it was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be used at all, and trying again does not help.
    Unusable(Arc<dyn std::error::Error + Send + Sync>),
    /// It could not do it this time (no room, locked, gone for a while), and nothing was done.
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    /// Whether it was done is not known.
    Unknown(Arc<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// The same cause, for an error that means something else.
    pub(crate) fn shared_cause(&self) -> Arc<dyn std::error::Error + Send + Sync> {
        match self {
            StoreError::Unusable(cause)
            | StoreError::Failed(cause)
            | StoreError::Unknown(cause) => cause.clone(),
        }
    }

    /// What the store itself says, without what that means for the caller.
    pub fn cause(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        match self {
            StoreError::Unusable(cause)
            | StoreError::Failed(cause)
            | StoreError::Unknown(cause) => &**cause,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unusable(cause) => write!(f, "the store cannot be used: {cause}"),
            StoreError::Failed(cause) => write!(f, "the store could not do it: {cause}"),
            StoreError::Unknown(cause) => {
                write!(f, "it is unknown whether the store has done it: {cause}")
            }
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().source()
    }
}
