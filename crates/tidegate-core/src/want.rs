//! The rows that a decision asks a store for.
//!
//! A decision never reads on its own: it asks a [`Loader`] for one [`Want`] after the other. A store
//! that can read in the middle of its transaction answers in place, and the decision runs once. One
//! that cannot stops the decision, loads what was wanted, and decides again with it as [`Known`].
//! Because nothing is written before the end, every answer is that of the beginning of the request,
//! whenever it is asked for.

mod foresight;
mod known;
mod look_ups;
mod stored;

pub use foresight::Foresight;
pub use known::Known;
pub(crate) use look_ups::LookUps;
pub use stored::{
    AuditWant, FiledKey, FiledTask, SideTable, StoredLimit, StoredSignal, StoredTask,
};

use crate::delta::PauseChange;
use crate::graph::TaskIndex;
use crate::lifecycle::WorkerId;
use crate::limit::{Hold, Limit, LimitKey, LimitUsage};
use crate::plan::Plan;
use crate::retention::{OldRecord, OldRun, OldSignal, RunRows};
use crate::rows::{Owned, Payload, Row};
use crate::store::{Bytes, Happened, Knows, Record, RunKey, Scope, TaskKey, WhyUnserved};
use crate::wait::{WaitId, Waiting};
use crate::{RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Finds rows as they were when the request began.
pub trait Loader {
    /// Why it cannot answer: an error of the store or, for a loader that has only what it was given,
    /// the want itself.
    type Stop;

    /// Answers a want, with the kind of answer that the want names.
    ///
    /// # Errors
    /// Stops the decision. Nothing was decided then.
    fn load(&mut self, want: &Want) -> Result<Loaded, Self::Stop>;
}

impl<L: Loader + ?Sized> Loader for &mut L {
    type Stop = L::Stop;

    fn load(&mut self, want: &Want) -> Result<Loaded, L::Stop> {
        (**self).load(want)
    }
}

/// A question about rows.
///
/// The lists that say so may leave out rows that another transaction is about to change; nothing rests
/// on their completeness.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Want {
    /// The time, by the store's clock: [`Loaded::Time`].
    Now,
    /// The run with this id: [`Loaded::Run`].
    RunById(RunId),
    /// The run with this idempotency key: [`Loaded::Run`].
    RunByKey {
        /// Its queue.
        queue: Arc<str>,
        /// Its workflow.
        workflow: String,
        /// Its key.
        key: String,
    },
    /// One task, with the run in the row of a first task: [`Loaded::Task`].
    Task(TaskKey),
    /// All tasks of a run, in the order of its plan: [`Loaded::Tasks`].
    WholeRun(RunKey),
    /// Tasks whose alarm is not later, the earliest first; may leave out some: [`Loaded::TaskKeys`].
    DueTasks {
        /// Not later than this.
        until: Timestamp,
        /// At most this many.
        max: u32,
    },
    /// Limits whose alarm is not later, the earliest first; may leave out some: [`Loaded::LimitKeys`].
    DueLimits {
        /// Not later than this.
        until: Timestamp,
        /// At most this many.
        max: u32,
    },
    /// The earliest alarm of all tasks and limits: [`Loaded::Instant`].
    NextAlarm,
    /// Tasks that a worker owns, by number: [`Loaded::Owned`].
    OwnedBy {
        /// Which worker.
        worker: WorkerId,
        /// At most this many.
        max: u32,
    },
    /// Tasks that a worker can claim, by claim order and number; may leave out some:
    /// [`Loaded::Ordered`].
    Ready {
        /// Which worker.
        worker: WorkerId,
        /// No heavier than this.
        max_weight: u32,
        /// Only those of runs that a task waits for.
        only_awaited: bool,
        /// Pauses of queues and of the store that the request changes: they count.
        pauses: Vec<PauseChange>,
        /// At most this many.
        max: u32,
    },
    /// The queues that a worker serves and the tasks that it knows: [`Loaded::Served`].
    Served(WorkerId),
    /// When the pause of exactly this began, if there is one: [`Loaded::Instant`].
    PauseStart(Scope),
    /// Whether a queue or the store is paused: [`Loaded::Flag`].
    IsQueuePaused(Arc<str>),
    /// For how long of the time between, a pause kept a run from starting: [`Loaded::Duration`].
    PausedTime {
        /// Which run.
        run: RunId,
        /// Its queue.
        queue: Arc<str>,
        /// From here on.
        from: Timestamp,
        /// Up to here.
        to: Timestamp,
    },
    /// How many runs of a queue wait, up to `max`; below `max` it may be more than there are:
    /// [`Loaded::Number`].
    ///
    /// A run waits that no task has begun, that has not ended, and of which no task has been entered or
    /// is owned by a worker.
    QueueDepth {
        /// Which queue.
        queue: Arc<str>,
        /// Counted up to here.
        max: u32,
    },
    /// The first number of a row of new ones for tasks: [`Loaded::Number`].
    TaskNumbers {
        /// Which numbers of the same request, from 0.
        nth: u32,
        /// How many.
        count: u32,
    },
    /// A number for a signal, larger than all before: [`Loaded::Number`].
    SignalNumber {
        /// Which number of the same request, from 0.
        nth: u32,
    },
    /// A payload stored beside a task: [`Loaded::Payload`].
    Payload(TaskKey, Payload),
    /// The tasks that other workers have told a worker to look at, by number: [`Loaded::TaskKeys`].
    Notifications(WorkerId),
    /// All waits of a task, by identity: [`Loaded::Waits`].
    Waits(TaskKey),
    /// One wait of a task: [`Loaded::Wait`].
    Wait(TaskKey, WaitId),
    /// The oldest open waits for a signal, by time, task and identity: [`Loaded::SignalWaits`].
    SignalWaits {
        /// The run that is addressed.
        run: RunKey,
        /// The name of the signal.
        name: Arc<str>,
        /// At most this many.
        max: u32,
    },
    /// All open waits for the end of a run, by task and identity: [`Loaded::RunWaits`].
    WaitersOf(RunKey),
    /// The open waits of the first `tasks` tasks of a run for the ends of runs: [`Loaded::Edges`].
    EdgesFrom {
        /// Which run.
        run: RunKey,
        /// How many of its tasks.
        tasks: u32,
    },
    /// Whether a signal with this id was sent to a run: [`Loaded::Flag`].
    IsSent(RunKey, u128),
    /// The first signals of a name to a run that no task has received: [`Loaded::Signals`].
    Signals {
        /// The run that is addressed.
        run: RunKey,
        /// Their name.
        name: Arc<str>,
        /// At most this many.
        max: u32,
    },
    /// The definition of a limit: [`Loaded::Limit`].
    Limit(Arc<str>),
    /// The row of a limit for one key, with some of its rate events: [`Loaded::LimitUsage`].
    LimitUsage(LimitKey),
    /// The rate events of a limit behind an instant, by time: [`Loaded::RateEvents`].
    RateEvents {
        /// Which limit.
        limit: LimitKey,
        /// Later than this.
        after: Timestamp,
        /// At most this many.
        max: u32,
    },
    /// The units that a task holds, by limit: [`Loaded::Holds`].
    Holds(TaskKey),
    /// The first `max` tasks of each task group that are blocked on a limit, by claim order and number;
    /// may leave out some: [`Loaded::Ordered`].
    BlockedOn {
        /// Which limit.
        limit: LimitKey,
        /// At most this many of each group.
        max: u32,
    },
    /// The keys of a limit on which tasks are blocked: [`Loaded::LimitKeys`].
    BlockedKeys(Arc<str>),
    /// Some of the tasks that hold units of a limit: [`Loaded::Holders`].
    HoldersOf {
        /// Which limit.
        limit: LimitKey,
        /// At most this many.
        max: u32,
    },
    /// How many tasks are blocked on a limit before a place in claim order: [`Loaded::Number`].
    BlockedBefore {
        /// Which limit.
        limit: LimitKey,
        /// Claim order and number of the task at that place.
        place: (Timestamp, TaskKey),
        /// Counted up to here.
        max: u32,
    },
    /// How many tasks of each task group of a queue can be claimed before a place in claim order; groups
    /// without such tasks are left out: [`Loaded::TaskGroups`].
    ReadyBefore {
        /// Which queue.
        queue: Arc<str>,
        /// Claim order and number of the task at that place.
        place: (Timestamp, TaskKey),
        /// Counted up to here in each group.
        max: u32,
    },
    /// The workers that are alive, by number: [`Loaded::Workers`].
    LiveWorkers,
    /// The kind of a task's last record, if that is among the last of its run: [`Loaded::RecordKind`].
    LastRecord {
        /// Which run.
        run: RunKey,
        /// The task's index in it.
        task: TaskIndex,
        /// Among this many records of the run.
        max: u32,
    },
    /// How long tasks of the same task group took from entry to success: [`Loaded::Durations`].
    RecentDurations {
        /// A task of the group.
        like: TaskKey,
        /// Among this many last records of the store.
        max: u32,
    },
    /// The first run that is being pruned, the weight of up to `max` of its tasks: [`Loaded::RunRows`].
    PruningRun {
        /// Tasks, records and signals are weighed up to this number of each.
        max: u32,
    },
    /// Runs from a number on, by number: [`Loaded::OldRuns`].
    OldRuns {
        /// From this number on.
        from: i64,
        /// Only those submitted before; rows are weighed of those that ended before.
        before: Timestamp,
        /// At most this many.
        max: u32,
    },
    /// Records from a number on, by number: [`Loaded::OldRecords`].
    OldRecords {
        /// From this number on.
        from: u64,
        /// At most this many.
        max: u32,
    },
    /// Signals from a number on, by number: [`Loaded::OldSignals`].
    OldSignals {
        /// From this number on.
        from: u64,
        /// At most this many.
        max: u32,
    },
    /// Rows as they are stored, damaged ones too.
    Audit(AuditWant),
}

/// The answer to a [`Want`].
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the wants say which answer they get")]
pub enum Loaded {
    Time(Timestamp),
    Run(Option<RunKey>),
    Task(Option<Row>),
    Tasks(Vec<Row>),
    TaskKeys(Vec<TaskKey>),
    LimitKeys(Vec<LimitKey>),
    Instant(Option<Timestamp>),
    Owned(Vec<Owned>),
    Ordered(Vec<(Timestamp, TaskKey)>),
    Served(Option<Arc<ServedTasks>>),
    Flag(bool),
    Duration(Duration),
    Number(i64),
    Payload(Option<Bytes>),
    Waits(Vec<Waiting>),
    Wait(Option<Waiting>),
    SignalWaits(Vec<(Timestamp, TaskKey, WaitId)>),
    RunWaits(Vec<(TaskKey, WaitId)>),
    Edges(Vec<(TaskKey, WaitId, RunKey)>),
    Signals(Vec<(u64, Option<Bytes>)>),
    Limit(Option<Limit>),
    LimitUsage(LimitUsage),
    RateEvents(Vec<(Timestamp, u64)>),
    Holds(Vec<Hold>),
    Holders(Vec<(TaskKey, u32, Timestamp)>),
    TaskGroups(Vec<(TaskGroup, u32)>),
    Workers(Vec<LiveWorker>),
    RecordKind(Option<Happened>),
    Durations(Vec<Duration>),
    RunRows(Option<RunRows>),
    OldRuns(Vec<OldRun>),
    OldRecords(Vec<OldRecord>),
    OldSignals(Vec<OldSignal>),
    StoredTasks(Vec<StoredTask>),
    /// A damaged wait is `None`.
    StoredWaits(Vec<(TaskKey, Option<Waiting>)>),
    StoredHolds(Vec<(TaskKey, Hold)>),
    Records(Vec<Record>),
    StoredSignals(Vec<StoredSignal>),
    StoredLimits(Vec<StoredLimit>),
    StoredKeys(Vec<(FiledKey, RunKey)>),
    Names(Vec<String>),
    StoredNotifications(Vec<(WorkerId, TaskKey)>),
    WorkerIds(Vec<WorkerId>),
    Numbers(Vec<i64>),
    TaskRanges(Vec<Range<TaskKey>>),
}

/// The queues that a worker serves and the tasks that it knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServedTasks {
    /// The queues.
    pub queues: BTreeSet<String>,
    /// Names of tasks by workflow; `None` for all there are.
    pub tasks: Option<BTreeMap<String, BTreeSet<String>>>,
}

impl ServedTasks {
    /// Those of a worker that presents itself so.
    pub fn new(queues: &[String], knows: &Knows) -> Self {
        let tasks = match knows {
            Knows::All => None,
            Knows::These(known) => {
                let mut tasks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
                for (workflow, task) in known {
                    tasks.entry(workflow.clone()).or_default().insert(task.clone());
                }
                Some(tasks)
            }
        };
        ServedTasks { queues: queues.iter().cloned().collect(), tasks }
    }

    /// Whether the worker knows a task.
    pub fn knows_task(&self, workflow: &str, task: &str) -> bool {
        let Some(tasks) = &self.tasks else { return true };
        tasks.get(workflow).is_some_and(|tasks| tasks.contains(task))
    }

    /// Whether the worker serves the queue and knows the task.
    pub fn can_run(&self, queue: &str, plan: &Plan, task: TaskIndex) -> bool {
        self.queues.contains(queue) && self.knows_task(plan.workflow(), plan.known_as(task))
    }
}

/// Tasks that are alike for a claim: a worker can run all of them or none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskGroup {
    /// Their queue.
    pub queue: Arc<str>,
    /// Their workflow.
    pub workflow: String,
    /// The name by which workers know them.
    pub task: String,
    /// How many slots each takes.
    pub weight: u32,
}

impl TaskGroup {
    /// The group of a task of this queue and plan.
    pub fn new(queue: &Arc<str>, plan: &Plan, task: TaskIndex) -> Self {
        TaskGroup {
            queue: queue.clone(),
            workflow: plan.workflow().to_owned(),
            task: plan.known_as(task).to_owned(),
            weight: plan.task(task).weight,
        }
    }

    /// Queue, workflow, task and weight.
    pub(crate) fn as_names(&self) -> (&str, &str, &str, u32) {
        (&self.queue, &self.workflow, &self.task, self.weight)
    }

    /// Why none of these workers can run the tasks of the group; `None` if one can.
    pub fn find_unserved_reason(&self, workers: &[LiveWorker]) -> Option<WhyUnserved> {
        let mut why = WhyUnserved::Queue;
        for LiveWorker { served, slots, .. } in workers {
            let serves = served.queues.contains(&*self.queue);
            let knows = serves && served.knows_task(&self.workflow, &self.task);
            why = match why {
                _ if knows && *slots >= self.weight => return None,
                WhyUnserved::TooHeavy { largest } if knows => {
                    WhyUnserved::TooHeavy { largest: largest.max(*slots) }
                }
                _ if knows => WhyUnserved::TooHeavy { largest: *slots },
                WhyUnserved::Queue if serves => WhyUnserved::Unknown,
                why => why,
            };
        }
        Some(why)
    }
}

/// A worker that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveWorker {
    /// Its number.
    pub id: WorkerId,
    /// The queues that it serves and the tasks that it knows.
    pub served: Arc<ServedTasks>,
    /// How many slots it has.
    pub slots: u32,
}

impl LiveWorker {
    /// Whether it can run the tasks of a group.
    pub fn can_run(&self, group: &TaskGroup) -> bool {
        group.find_unserved_reason(std::slice::from_ref(self)).is_none()
    }
}
