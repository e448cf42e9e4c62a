//! Why a task is not running: one explanation of each kind.
//!
//! Run it with `cargo run --release --example why`. Tasks are brought into every situation in which one
//! does not run, and `engine.explain(run, task)` says why: all reasons, with who and what is in the
//! way, and in about how long it begins where that can be said. What other programs leave behind (a
//! worker that died, a plan with a limit that nobody declared) is put into the store by hand.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate::engine::{StartBelow, Why, WorkerId};
use tidegate::{
    Backoff, Config, Context, Engine, Limit, LimitUse, OnFailure, Run, RunId, Task, TaskError,
    TaskHandle, Timestamp, Workflow,
};
use tidegate_core::graph::{Graph, Node};
use tidegate_core::lifecycle::{Event, Failure};
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{
    Change, Claim, Clock, Knows, NewRun, NewWorker, Reply, Request, RequestId, Store,
};
use tokio::sync::Semaphore;

const HOUR: Duration = Duration::from_secs(3_600);

/// What holds the tasks back that compute.
type Door = Arc<Semaphore>;

async fn compute(context: &mut Context) -> Result<(), TaskError> {
    let door = context.state::<Door>()?;
    drop(door.acquire().await?);
    Ok(())
}

async fn send(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

async fn fetch(_: &mut Context) -> Result<(), TaskError> {
    Err("connection refused".into())
}

async fn poll(_: &mut Context) -> Result<(), TaskError> {
    Err(TaskError::snooze(HOUR))
}

async fn approve(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.wait_for_signal("approve").timeout(4 * HOUR).await?;
    Ok(())
}

async fn call(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.wait_for_signal("answer").releasing("api").await?;
    Ok(())
}

fn one(task: Task) -> Result<Workflow, Box<dyn Error>> {
    Ok(Workflow::of(task)?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (store, door) = (Arc::new(MemoryStore::new()), Door::new(Semaphore::new(0)));
    let steps = Workflow::builder("steps")
        .task(Task::new("extract", compute))
        .task(Task::new("load", compute).after(["extract"]));
    let engine = Engine::builder("memory:")
        .store(store.clone())
        .slots(1)
        .park_after(Duration::ZERO)
        .limit(Limit::new("api").at_once(1))
        .limit(Limit::new("mail").rate(1, HOUR))
        .workflow(steps.build()?)
        .workflow(one(Task::new("send", send).limit("mail"))?)
        .workflow(one(Task::new("fetch", fetch).retries(3).backoff(Backoff::fixed(HOUR)))?)
        .workflow(one(Task::new("poll", poll))?)
        .workflow(one(Task::new("approve", approve))?)
        .workflow(one(Task::new("order", approve).parkable())?)
        .workflow(one(Task::new("call", call).limit("api"))?)
        .workflow(one(Task::new("compute", compute).limit("api"))?)
        .state(door.clone())
        .start()
        .await?;
    let mut seen = Seen::default();

    // What time alone brings about.
    let sent = engine.submit("send", ()).await?;
    sent.wait().await?;
    seen.when(&sent, "send", "Ended").await?;
    let send = engine.submit("send", ()).await?;
    seen.when(&send, "send", "RateReached").await?;
    seen.when(&engine.submit("fetch", ()).await?, "fetch", "BackOff").await?;
    seen.when(&engine.submit("poll", ()).await?, "poll", "Snoozed").await?;
    let later = engine.submit("steps", ()).not_before(SystemTime::now() + HOUR).await?;
    seen.when(&later, "extract", "NotBefore").await?;

    // What waits.
    let approve = engine.submit("approve", ()).await?;
    seen.when(&approve, "approve", "Waits").await?;
    seen.when(&engine.submit("order", ()).await?, "order", "Parked").await?;
    let call = engine.submit("call", ()).await?;
    until_is(&call, "call", "Waits").await?;

    // From here on somebody has the slot, and the limit.
    let busy = engine.submit("compute", ()).await?;
    seen.when(&busy, "compute", "Running").await?;
    call.signal("answer", "yes").await?;
    seen.when(&call, "call", "Retakes").await?;
    seen.when(&engine.submit("compute", ()).await?, "compute", "LimitFull").await?;
    approve.signal("approve", "yes").await?;
    seen.when(&approve, "approve", "Resuming").await?;
    let steps = engine.submit("steps", ()).await?;
    seen.when(&steps, "extract", "Claimed").await?;
    seen.when(&steps, "load", "BlockedBy").await?;
    let queued = engine.submit("steps", ()).await?;
    seen.when(&queued, "extract", "NoSlot").await?;
    queued.pause().await?;
    seen.when(&queued, "extract", "Paused").await?;
    let nobody = engine.submit("steps", ()).queue("nobody's").await?;
    seen.when(&nobody, "extract", "Unserved").await?;

    // A worker that may have one task in memory, and has.
    let mut config = Config::default();
    (config.slots, config.in_memory_max, config.queues) = (1, 1, vec!["small".to_owned()]);
    let small = Engine::builder("memory:").store(store.clone()).config(config);
    let small = small.workflow(one(Task::new("approve", approve_small))?).start().await?;
    let first = small.submit("approve", ()).await?;
    until_is(&first, "approve", "Waits").await?;
    seen.when(&small.submit("approve", ()).await?, "approve", "InMemoryMax").await?;

    // A worker that starts nothing while any memory is in use. Its machine has to tell.
    let busy = Engine::builder("memory:").store(store.clone()).queues(["busy"]);
    let busy = busy.start_below(StartBelow::memory(0.000_001));
    let busy = busy.workflow(one(Task::new("poll", poll))?).start().await?;
    match busy.sample().and_then(|sample| sample.machine.memory) {
        Some(_) => seen.when(&busy.submit("poll", ()).await?, "poll", "StartBelow").await?,
        None => drop(seen.0.insert("StartBelow")),
    }

    // What other programs have left.
    let mut others = Others { store, requests: 0 };
    for (task, kind) in [("b", "Stopping"), ("a", "Quarantined"), ("a", "LimitMissing")] {
        let run = match kind {
            "Stopping" => others.stops_one().await?,
            "Quarantined" => others.dies_twice().await?,
            _ => others.uses_what_is_not_declared().await?,
        };
        seen.when(&engine.run(run).await?, task, kind).await?;
    }

    door.add_permits(1_000);
    engine.shutdown(Duration::from_secs(1)).await;
    small.shutdown(Duration::from_secs(1)).await;
    busy.shutdown(Duration::from_secs(1)).await;
    seen.all()
}

async fn approve_small(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    approve(context, handle).await
}

/// Waits until a task has a reason of this kind.
async fn until_is(run: &Run, task: &str, wanted: &str) -> Result<(), Box<dyn Error>> {
    for _ in 0..5_000 {
        if run.explain(task).await?.reasons.iter().any(|why| kind(why) == wanted) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(format!("not {wanted}, but: {}", run.explain(task).await?).into())
}

/// The kinds of reasons that were printed.
#[derive(Default)]
struct Seen(BTreeSet<&'static str>);

impl Seen {
    /// Prints why a task is not running, once it has a reason of this kind.
    async fn when(&mut self, run: &Run, task: &str, wanted: &str) -> Result<(), Box<dyn Error>> {
        until_is(run, task, wanted).await?;
        let explanation = run.explain(task).await?;
        println!("{explanation}\n");
        self.0.extend(explanation.reasons.iter().map(kind));
        Ok(())
    }

    /// Whether all kinds were printed.
    fn all(&self) -> Result<(), Box<dyn Error>> {
        let missing: Vec<_> = ALL.iter().filter(|kind| !self.0.contains(*kind)).collect();
        println!("{} of {} kinds of reasons were seen", ALL.len() - missing.len(), ALL.len());
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("these were not: {missing:?}").into()),
        }
    }
}

const ALL: [&str; 21] = [
    "BlockedBy",
    "NotBefore",
    "BackOff",
    "Snoozed",
    "LimitFull",
    "RateReached",
    "LimitMissing",
    "NoSlot",
    "Claimed",
    "Paused",
    "InMemoryMax",
    "StartBelow",
    "Waits",
    "Parked",
    "Retakes",
    "Resuming",
    "Quarantined",
    "Unserved",
    "Stopping",
    "Running",
    "Ended",
];

fn kind(why: &Why) -> &'static str {
    match why {
        Why::BlockedBy { .. } => "BlockedBy",
        Why::NotBefore { .. } => "NotBefore",
        Why::BackOff { .. } => "BackOff",
        Why::Snoozed { .. } => "Snoozed",
        Why::LimitFull(_) => "LimitFull",
        Why::RateReached { .. } => "RateReached",
        Why::LimitMissing { .. } => "LimitMissing",
        Why::NoSlot { .. } => "NoSlot",
        Why::Claimed { .. } => "Claimed",
        Why::Paused { .. } => "Paused",
        Why::InMemoryMax { .. } => "InMemoryMax",
        Why::StartBelow { .. } => "StartBelow",
        Why::Waits { .. } => "Waits",
        Why::Parked { .. } => "Parked",
        Why::Retakes(_) => "Retakes",
        Why::Resuming { .. } => "Resuming",
        Why::Quarantined { .. } => "Quarantined",
        Why::Unserved { .. } => "Unserved",
        Why::Stopping { .. } => "Stopping",
        Why::Running { .. } => "Running",
        Why::Ended { .. } => "Ended",
        _ => "another",
    }
}

/// Other programs that use the same store.
struct Others {
    store: Arc<MemoryStore>,
    requests: u64,
}

impl Others {
    async fn worker(&self) -> Result<WorkerId, Box<dyn Error>> {
        let knows = ["a", "b"].map(|task| ("others".to_owned(), task.to_owned()));
        let queues = vec!["others".to_owned()];
        let (now, name) = (SystemTime::now().into(), "another program".to_owned());
        Ok(self
            .store
            .enlist(NewWorker { now, name, queues, knows: Knows::These(knows.into()), slots: 4 })
            .await?)
    }

    async fn request(
        &mut self,
        change: impl FnOnce(&mut Request),
    ) -> Result<Reply, Box<dyn Error>> {
        self.requests += 1;
        let mut request = Request::new(RequestId(self.requests), Clock::Store);
        change(&mut request);
        Ok(self.store.request(Arc::new(request)).await?)
    }

    /// A new run of these tasks, beside each other.
    fn run(&self, tasks: &[&str], limits: &[&str]) -> Result<NewRun, Box<dyn Error>> {
        let graph = Graph::new(tasks.iter().map(|task| Node::new(*task)))?;
        let limits: Vec<_> = limits.iter().map(|limit| LimitUse::of(*limit)).collect();
        let planned = vec![TaskPlan { limits, ..TaskPlan::default() }; tasks.len()];
        let plan = Plan::new("others".to_owned(), graph, OnFailure::FailFastKill, planned);
        Ok(NewRun::new(
            RunId::new(Timestamp::from(SystemTime::now()), u128::from(self.requests)),
            Arc::new(plan),
            "others".into(),
        ))
    }

    /// A task has failed, and the other of its run is to stop, which its worker has not heard.
    async fn stops_one(&mut self) -> Result<RunId, Box<dyn Error>> {
        let (worker, new) = (self.worker().await?, self.run(&["a", "b"], &[])?);
        let run = new.id;
        let reply = self.request(|request| {
            (request.worker, request.submits) = (Some(worker), vec![new]);
            request.claim = Claim { units: 2, heaviest: 4, ..Claim::default() };
        });
        let first = reply.await?.claimed.remove(0);
        let (fence, failure) = (first.life.fence, Failure::Error);
        let fails = Event::Fail { fence, failure, permanent: true, chance: 0.5 };
        self.request(|request| {
            (request.worker, request.changes) =
                (Some(worker), vec![Change::new(first.key, first.index, fails)]);
        })
        .await?;
        Ok(run)
    }

    /// Two workers have died while they ran a task.
    async fn dies_twice(&mut self) -> Result<RunId, Box<dyn Error>> {
        let new = self.run(&["a"], &[])?;
        let run = new.id;
        self.request(|request| request.submits = vec![new]).await?;
        for _ in 0..2 {
            let worker = self.worker().await?;
            self.request(|request| {
                request.worker = Some(worker);
                request.claim = Claim { units: 1, heaviest: 4, ..Claim::default() };
            })
            .await?;
            self.store.kill(worker);
            self.request(|request| request.recover = Some(worker)).await?;
        }
        Ok(run)
    }

    /// A task uses a limit that is not there.
    async fn uses_what_is_not_declared(&mut self) -> Result<RunId, Box<dyn Error>> {
        let new = self.run(&["a"], &["gpu"])?;
        let run = new.id;
        self.request(|request| request.submits = vec![new]).await?;
        Ok(run)
    }
}
