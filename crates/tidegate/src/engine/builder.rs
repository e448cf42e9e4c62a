//! Starting an engine.

mod look;
mod open;

use super::clock::{EngineClock, GivenClock};
use super::files::StoreFiles;
use super::monitor::Monitors;
use super::retention::{self, Retention};
use super::worker::Worker;
use super::workflows::{Find, Workflows};
use super::{Engine, Shared, Watch, event, monitor};
use crate::context::States;
use crate::slot::SlotPool;
#[cfg(unix)]
use crate::task::Commands;
use crate::task_error::TaskError;
use crate::workflow::Workflow;
use open::{OpenStore, open};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::graph::nearest;
#[cfg(unix)]
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::{InvalidLimit, Limit};
use tidegate_core::load::{Sample, StartBelow};
use tidegate_core::plan::LimitUse;
use tidegate_core::store::{
    CHILD_DEPTH_MAX, Clock, Knows, NewWorker, Operation, OperationOutcome, Request, RequestId,
    Store, StoreError,
};
use tokio::sync::{broadcast, mpsc, watch};

/// How an engine is to run. Unlike workflows and state it can come from a file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// How many tasks may compute at once; with [`slots_max`](Self::slots_max), the fewest.
    pub slots: u32,
    /// The most slots there may be. If it is more than [`slots`](Self::slots), their number moves
    /// between the two with the load of the machine: see [`EngineBuilder::slots_between`].
    pub slots_max: Option<u32>,
    /// Marks of the load of the machine above which nothing new starts: see
    /// [`EngineBuilder::start_below`].
    pub start_below: StartBelow,
    /// The queues it serves; runs are submitted to the first unless they say otherwise.
    pub queues: Vec<String>,
    /// How many tasks may be begun and unfinished at once; beyond it nothing new begins.
    pub in_memory_max: u32,
    /// So many tasks are claimed ahead of a free slot, also if there are fewer slots; otherwise as many
    /// as there are slots. With few slots and very short tasks more of them keep the slots busy. What
    /// a worker has claimed no other one begins, so this is for queues that only one serves. While
    /// there are enough of them, what has ended is stored up to 2 ms later, together with others.
    pub ahead_min: u32,
    /// After so long in memory, a wait of a [parkable](crate::Task::parkable) task becomes a row; one
    /// that is known to take longer does so at once.
    pub park_after: Duration,
    /// The folder for what commands write. `None`: beside the database; with a store in memory,
    /// only the last part of it is kept, with the task.
    pub logs: Option<PathBuf>,
    /// The most bytes of what a command writes that are kept in its log. What is beyond is dropped;
    /// the command goes on.
    pub log_max: u64,
    /// For how long what is over is kept; for ever unless said otherwise.
    pub retention: Retention,
    /// How many runs of a queue may wait: a submit beyond is refused
    /// ([`Refusal::QueueFull`](crate::error::Refusal::QueueFull)). `None`: any number.
    ///
    /// A run waits as long as no task of it was ever entered and no worker has one of them: also one
    /// that is not due, is paused or stands behind a limit. Runs that tasks begin do not count and are
    /// never refused, since a task waits for them; an idempotency key that a run has already is
    /// answered with that run. Of runs that are submitted at the same time each counts, whether there
    /// is a free slot for it or not. Each engine sees to its own submits, with the runs of all.
    pub waiting_max: Option<u32>,
    /// How many levels of runs tasks may begin, one below the other: 1 is a run that a task of a
    /// submitted run begins ([`TaskHandle::run_child`](crate::TaskHandle::run_child), or the items of
    /// [`Task::each`](crate::Task::each)), 2 one that a task of that run begins. A run below is refused
    /// ([`Refusal::TooDeep`](crate::error::Refusal::TooDeep)), and the task that wanted it gets a
    /// permanent error. `u32::MAX`: any number.
    ///
    /// To cancel or pause a run does the same to all runs below it, in one transaction, which grows with
    /// their number.
    pub child_depth_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            slots: 4,
            slots_max: None,
            start_below: StartBelow::default(),
            queues: vec!["default".to_owned()],
            in_memory_max: 100_000,
            ahead_min: 0,
            park_after: Duration::from_secs(30),
            logs: None,
            log_max: 64 << 20,
            retention: Retention::default(),
            waiting_max: None,
            child_depth_max: CHILD_DEPTH_MAX,
        }
    }
}

impl Config {
    fn most_slots(&self) -> u32 {
        self.slots_max.unwrap_or(self.slots)
    }

    /// # Errors
    /// A value that is not possible, by name.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let wrong =
            |setting, value: String, expected| Err(ConfigError { setting, value, expected });
        if self.slots == 0 {
            return wrong("slots", "0".to_owned(), "at least 1");
        }
        let slots_max = self.most_slots();
        if slots_max < self.slots {
            return wrong("slots_max", slots_max.to_string(), "at least as many as slots");
        }
        let StartBelow { cpu, memory } = self.start_below;
        for (setting, mark) in [("start_below.cpu", cpu), ("start_below.memory", memory)] {
            if let Some(mark) = mark.filter(|mark| !(*mark > 0.0 && *mark <= 1.0)) {
                return wrong(setting, mark.to_string(), "a fraction above 0, and 1 at most");
            }
        }
        if self.in_memory_max < slots_max {
            let expected = "at least as many as there are slots";
            return wrong("in_memory_max", self.in_memory_max.to_string(), expected);
        }
        if self.waiting_max == Some(0) {
            return wrong("waiting_max", "0".to_owned(), "at least 1");
        }
        if self.queues.is_empty() {
            return wrong("queues", "[]".to_owned(), "at least one name");
        }
        if self.queues.iter().any(String::is_empty) {
            return wrong(
                "queues",
                format!("{:?}", self.queues),
                "names of at least one character",
            );
        }
        Ok(())
    }
}

/// A setting of an engine that is not possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    setting: &'static str,
    value: String,
    expected: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be {}; it must be {}", self.setting, self.value, self.expected)
    }
}

impl std::error::Error for ConfigError {}

/// Why an engine did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The address of the store is of no kind this build knows.
    Address {
        /// What was given.
        address: String,
        /// What there is.
        known: &'static str,
    },
    /// The store cannot be opened.
    Open(Box<dyn std::error::Error + Send + Sync>),
    /// The store cannot be used.
    Store(StoreError),
    /// A setting is not possible.
    Config(ConfigError),
    /// Two workflows have this name.
    DuplicateWorkflow(String),
    /// A task needs more slots than there are.
    TooHeavy {
        /// The workflow.
        workflow: String,
        /// The task.
        task: String,
        /// What it needs.
        weight: u32,
        /// What there is, or the fewest there may be.
        slots: u32,
        /// The most there may be.
        slots_max: u32,
    },
    /// A limit makes no sense.
    Limit(InvalidLimit),
    /// A task uses a limit that was never declared.
    UnknownLimit {
        /// The workflow.
        workflow: String,
        /// The task.
        task: String,
        /// The limit.
        limit: String,
        /// The most similar one there is.
        nearest: Option<String>,
    },
    /// A task takes more of a limit than there is.
    LimitTooSmall {
        /// The workflow.
        workflow: String,
        /// The task.
        task: String,
        /// How much it takes.
        units: u32,
        /// The limit.
        limit: Limit,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Address { address, known } => {
                write!(f, "\"{address}\" is not the address of a store; there is {known}")
            }
            StartError::Open(error) => error.fmt(f),
            StartError::Store(error) => error.fmt(f),
            StartError::Config(error) => error.fmt(f),
            StartError::DuplicateWorkflow(name) => {
                write!(f, "two workflows are called \"{name}\"; a name belongs to one")
            }
            StartError::TooHeavy { workflow, task, weight, slots, slots_max } => {
                write!(f, "task \"{task}\" of workflow \"{workflow}\" weighs {weight} and there ")?;
                match slots_max > slots {
                    false => write!(f, "are {slots} slots; it would never run"),
                    true => write!(f, "may be no more than {slots} slots; it might never run"),
                }
            }
            StartError::Limit(error) => error.fmt(f),
            StartError::UnknownLimit { workflow, task, limit, nearest } => {
                write!(
                    f,
                    "task \"{task}\" of workflow \"{workflow}\" uses limit \"{limit}\", which is not \
                     declared; "
                )?;
                match nearest {
                    Some(nearest) => write!(f, "is \"{nearest}\" meant?"),
                    None => write!(f, "add .limit(Limit::new(\"{limit}\").at_once(..))"),
                }
            }
            StartError::LimitTooSmall { workflow, task, units, limit } => write!(
                f,
                "task \"{task}\" of workflow \"{workflow}\" takes {units} of limit \"{}\", which is \
                 {limit}; it would never run",
                limit.name()
            ),
        }
    }
}

impl std::error::Error for StartError {}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        StartError::Store(error)
    }
}

/// Makes an [`Engine`].
#[must_use = "an engine is made by start()"]
pub struct EngineBuilder {
    store: Place,
    config: Config,
    workflows: Vec<Workflow>,
    find: Option<Arc<Find>>,
    limits: Vec<Limit>,
    states: States,
    clock: Option<GivenClock>,
    watch: Watch,
    load: monitor::Source,
}

enum Place {
    Address(String),
    Open(Arc<dyn Store>),
}

impl EngineBuilder {
    pub(super) fn new(address: String) -> Self {
        EngineBuilder {
            store: Place::Address(address),
            config: Config::default(),
            workflows: Vec::new(),
            find: None,
            limits: Vec::new(),
            states: States::default(),
            clock: None,
            watch: Watch::default(),
            load: monitor::meter(),
        }
    }

    /// How many tasks may compute at once; 4 unless said otherwise.
    pub fn slots(mut self, slots: u32) -> Self {
        (self.config.slots, self.config.slots_max) = (slots, None);
        self
    }

    /// At least and at most how many tasks may compute at once. It begins with the fewest; every five
    /// seconds one step of a quarter, or one slot, is made: up while all slots are in use, more is to
    /// be done and the machine has room, down while too much is in use of its processors or its
    /// memory. What runs goes on when there are fewer slots. Where the load is not known, nothing
    /// moves.
    ///
    /// No task may weigh more than `min`, or it might never run.
    pub fn slots_between(mut self, min: u32, max: u32) -> Self {
        (self.config.slots, self.config.slots_max) = (min, Some(max));
        self
    }

    /// While as much of the machine or more is in use, nothing new starts here: fractions above 0, of
    /// what the process may use ([`Engine::sample`]). It is looked at every five seconds.
    ///
    /// What has begun goes on, also after a wait; runs that somebody waits for begin, or what waits for
    /// them would never end. A parked task is not entered again meanwhile. What was claimed ahead goes
    /// back to the store, for other workers. Where the load is not known, nothing is held.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::engine::StartBelow;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::builder("memory:")
    ///     .slots_between(2, 16)
    ///     .start_below(StartBelow::cpu(0.9).and_memory(0.8))
    ///     .start()
    ///     .await?;
    /// # engine.shutdown(std::time::Duration::from_secs(1)).await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_below(mut self, marks: StartBelow) -> Self {
        self.config.start_below = marks;
        self
    }

    /// The queues it serves, instead of `"default"`. Runs are submitted to the first.
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.config.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// The folder for what commands write. See [`Config::logs`].
    pub fn logs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.config.logs = Some(folder.into());
        self
    }

    /// For how long what is over is kept; for ever unless said otherwise. The worker removes what is
    /// older, about once a minute.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.config.retention = retention;
        self
    }

    /// How many runs of a queue may wait; any number unless said otherwise. See
    /// [`Config::waiting_max`] for what counts.
    pub fn waiting_max(mut self, runs: u32) -> Self {
        self.config.waiting_max = Some(runs);
        self
    }

    /// How many levels of runs tasks may begin, one below the other; 64 unless said otherwise. See
    /// [`Config::child_depth_max`].
    pub fn child_depth_max(mut self, levels: u32) -> Self {
        self.config.child_depth_max = levels;
        self
    }

    /// All settings at once.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// A workflow that it can run.
    pub fn workflow(mut self, workflow: Workflow) -> Self {
        self.workflows.push(workflow);
        self
    }

    /// How to find the workflow of a run, by its name and what the run works on (JSON), if it was not
    /// [added](Self::workflow): for programs whose workflows are written down elsewhere. The engine
    /// then takes whatever is in its queues. A run was planned when it was submitted and stays so;
    /// what is found gives it the bodies of its tasks.
    ///
    /// It is called each time a task is about to begin, in the engine's loop: it should be quick, and
    /// remember what it has found. A task for which nothing is found fails, and is not tried again.
    ///
    /// ```
    /// use tidegate::{Engine, Task, TaskError, Workflow};
    /// use tidegate::process::Command;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::builder("sqlite:jobs.db").find_workflows(|name, input| {
    ///     let program: String = serde_json::from_slice(input.unwrap_or_default())?;
    ///     Workflow::of(Task::command(name, Command::new(program))).map_err(TaskError::from)
    /// });
    /// # let _ = engine;
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_workflows<F>(mut self, find: F) -> Self
    where
        F: Fn(&str, Option<&[u8]>) -> Result<Workflow, TaskError> + Send + Sync + 'static,
    {
        self.find = Some(Arc::new(find));
        self
    }

    /// A limit that its tasks use. It is made if the store does not have it; one that is there stays
    /// as it is ([`Engine::set_limit`] changes it), and a difference is logged.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// After how long a wait of a [parkable](crate::Task::parkable) task becomes a row; 30 seconds
    /// unless said otherwise.
    pub fn park_after(mut self, wait: Duration) -> Self {
        self.config.park_after = wait;
        self
    }

    /// A value of the application's for its tasks, found again by its type
    /// ([`Context::state`](crate::Context::state)). Any number, one of each type; a later one takes
    /// the place of an earlier one.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.state_arc(Arc::new(state))
    }

    /// The same for a value that the application shares with its tasks.
    pub fn state_arc<T: Send + Sync + 'static>(mut self, state: Arc<T>) -> Self {
        self.states.insert(TypeId::of::<T>(), state);
        self
    }

    /// A store that is open already, instead of an address.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Place::Open(store);
        self
    }

    /// Where the wall-clock time comes from, for tests.
    #[doc(hidden)]
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// How often it looks at the store, and whether it hears of others at once, for tests.
    #[doc(hidden)]
    pub fn watch(mut self, every: Duration, hears: bool) -> Self {
        // Without a pause the loop would do nothing else.
        self.watch = Watch { every: every.max(Duration::from_millis(1)), hears };
        self
    }

    /// Where samples of the load come from, for tests.
    #[doc(hidden)]
    pub fn load(mut self, source: impl FnMut(Timestamp) -> Sample + Send + 'static) -> Self {
        self.load = Box::new(source);
        self
    }

    /// Opens the store and starts a worker on the present runtime. What a dead worker has left is
    /// taken over at once.
    ///
    /// # Errors
    /// Settings or workflows that make no sense; a store that cannot be opened or used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<Engine, StartError> {
        self.begin(true).await
    }

    /// Opens the store without running anything: for a process that submits, signals, cancels, waits
    /// and looks beside others that work. Its workflows tell how runs are planned that it submits; its
    /// first queue is where they go.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(run: tidegate::RunId) -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = tidegate::Engine::builder("sqlite:jobs.db").connect().await?;
    /// engine.run(run).await?.cancel().await?;
    /// engine.shutdown(std::time::Duration::ZERO).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<Engine, StartError> {
        self.begin(false).await
    }

    async fn begin(mut self, serves: bool) -> Result<Engine, StartError> {
        self.config.validate().map_err(StartError::Config)?;
        let workflows = by_name(self.workflows, &self.config, serves)?;
        let knows = match &self.find {
            _ if !serves => Knows::These(Vec::new()),
            Some(_) => Knows::All,
            None => Knows::These(known(&workflows)),
        };
        let OpenStore { store, files, has_clock } = open(self.store).await?;
        let clock = EngineClock::new(self.clock, has_clock);
        declare(&*store, self.limits, clock.request_clock()).await?;
        check_limits(&*store, &workflows).await?;
        let start_below = self.config.start_below;
        let monitors = Monitors::new(self.load, start_below, clock.read_time()).await;
        let worker = present_worker(&self.config, serves, knows, clock.read_time());
        let id = store.enlist(worker).await?;
        #[cfg(unix)]
        clear_notes(&files, id).await;
        let logs = self.config.logs.take().or_else(|| files.logs_folder());
        #[cfg(unix)]
        let running = crate::process::Running::default();
        #[cfg(unix)]
        {
            let logs = logs.clone();
            let notes = files.notes_of(id).map(crate::process::Notes::new);
            let logs = logs.map(|folder| (folder, self.config.log_max));
            let commands: Arc<dyn Any + Send + Sync> =
                Arc::new(Commands { notes, logs, running: running.clone() });
            self.states.insert(TypeId::of::<Commands>(), commands);
        }
        let pool = SlotPool::new(self.config.slots).expect("the settings were checked");
        let (inbox, messages) = mpsc::unbounded_channel();
        let (report, reports) = mpsc::unbounded_channel();
        let (alive, prunes) = watch::channel(());
        let shared = Arc::new(Shared {
            store,
            files,
            pool,
            workflows: Workflows { given: workflows, find: self.find },
            queue: self.config.queues[0].as_str().into(),
            serves,
            inbox,
            reports: report,
            events: broadcast::channel(event::CAPACITY).0,
            metrics: Default::default(),
            board: Default::default(),
            missed: Default::default(),
            slots: self.config.slots..=self.config.most_slots(),
            closing: watch::channel(Default::default()).0,
            health: Default::default(),
            clock,
            park_after: self.config.park_after,
            watch: self.watch,
            waiting_max: self.config.waiting_max,
            child_depth_max: self.config.child_depth_max,
            logs,
            numbers: Default::default(),
            #[cfg(unix)]
            running,
            prunes,
        });
        let retention = if serves { self.config.retention } else { Retention::default() };
        retention::start(&shared, retention, alive);
        let states = Arc::new(self.states);
        let max = (self.config.in_memory_max, self.config.ahead_min);
        let beside = monitors.start(&shared);
        let worker = Worker::new(shared.clone(), messages, reports, id, states, max, beside);
        tokio::spawn(worker.run());
        Ok(Engine { shared })
    }
}

fn present_worker(config: &Config, serves: bool, knows: Knows, now: Timestamp) -> NewWorker {
    let name = format!("process {}", std::process::id());
    match serves {
        true => NewWorker { now, name, queues: config.queues.clone(), knows, slots: config.slots },
        false => NewWorker { now, name, queues: Vec::new(), knows, slots: 0 },
    }
}

/// A worker that has just presented itself has no notes. If there are such, a database that was here
/// before had a worker of the same number, which has died: what it has left running is ended. If that
/// is not possible they are put aside.
#[cfg(unix)]
async fn clear_notes(files: &StoreFiles, worker: WorkerId) {
    let Err(error) = super::look::end_commands(files, worker).await else { return };
    let Some(notes) = files.notes_of(worker) else { return };
    let aside = notes.with_added_extension("old");
    tracing::warn!(%error, notes = %aside.display(), "cannot end what a worker before has left");
    if let Err(error) = tokio::fs::rename(&notes, aside).await {
        tracing::warn!(%error, notes = %notes.display(), "cannot put the notes aside");
    }
}

fn by_name(
    workflows: Vec<Workflow>,
    config: &Config,
    serves: bool,
) -> Result<HashMap<String, Workflow>, StartError> {
    let (slots, slots_max) = (config.slots, config.most_slots());
    let mut by_name = HashMap::with_capacity(workflows.len());
    for workflow in workflows {
        let (graph, name) = (workflow.plan.graph(), workflow.name().to_owned());
        for task in graph.tasks() {
            let item = workflow.pieces[task.as_usize()].item.as_ref();
            let weight = item.unwrap_or_else(|| workflow.plan.task(task)).weight;
            if serves && weight > slots {
                let task = graph.name(task).to_owned();
                let workflow = name;
                return Err(StartError::TooHeavy { workflow, task, weight, slots, slots_max });
            }
        }
        if by_name.insert(name.clone(), workflow).is_some() {
            return Err(StartError::DuplicateWorkflow(name));
        }
    }
    Ok(by_name)
}

/// Declares limits. What a limit is that is there already is somebody's decision, and stays.
async fn declare(store: &dyn Store, limits: Vec<Limit>, clock: Clock) -> Result<(), StartError> {
    for limit in &limits {
        limit.check().map_err(StartError::Limit)?;
    }
    if limits.is_empty() {
        return Ok(());
    }
    let operations = limits.iter().cloned().map(Operation::Declare).collect();
    let id = RequestId(fastrand::u64(1..1 << 63));
    let reply = store.request(Arc::new(Request { operations, ..Request::new(id, clock) })).await?;
    for (limit, granted) in limits.iter().zip(reply.operations) {
        if granted == OperationOutcome::Differs {
            let (name, wanted) = (limit.name(), limit.to_string());
            tracing::warn!(
                name,
                wanted,
                "a limit is another in the store and stays as it is there"
            );
        }
    }
    Ok(())
}

/// Whether there are all limits that these workflows use, and each is large enough.
async fn check_limits(
    store: &dyn Store,
    workflows: &HashMap<String, Workflow>,
) -> Result<(), StartError> {
    let uses: Vec<_> = workflows.values().flat_map(limits_of).collect();
    if uses.is_empty() {
        return Ok(());
    }
    let there: Vec<Limit> = store.limits().await?.into_iter().map(|state| state.limit).collect();
    for (workflow, task, used) in uses {
        let limit = there.iter().find(|limit| limit.name() == used.name);
        let (workflow, task) = (workflow.to_owned(), task.to_owned());
        match limit {
            Some(limit) if limit.can_hold(used.units) => {}
            Some(limit) => {
                let (units, limit) = (used.units, limit.clone());
                return Err(StartError::LimitTooSmall { workflow, task, units, limit });
            }
            None => {
                let nearest = nearest(&used.name, there.iter().map(Limit::name));
                let (limit, nearest) = (used.name.clone(), nearest.map(str::to_owned));
                return Err(StartError::UnknownLimit { workflow, task, limit, nearest });
            }
        }
    }
    Ok(())
}

/// What the tasks of a workflow use of limits: the workflow, the task, and what of which.
fn limits_of(workflow: &Workflow) -> Vec<(&str, &str, &LimitUse)> {
    let graph = workflow.plan.graph();
    let tasks = graph.tasks().flat_map(|task| {
        let item = workflow.pieces[task.as_usize()].item.as_ref();
        let limits = &item.unwrap_or_else(|| workflow.plan.task(task)).limits;
        limits.iter().map(move |used| (workflow.name(), graph.name(task), used))
    });
    tasks.collect()
}

/// The tasks a worker can run, by workflow and name.
fn known(workflows: &HashMap<String, Workflow>) -> Vec<(String, String)> {
    let tasks = workflows.values().flat_map(|workflow| {
        let graph = workflow.plan.graph();
        graph.tasks().map(|task| (workflow.name().to_owned(), graph.name(task).to_owned()))
    });
    tasks.collect()
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("config", &self.config)
            .field("workflows", &self.workflows)
            .finish_non_exhaustive()
    }
}
