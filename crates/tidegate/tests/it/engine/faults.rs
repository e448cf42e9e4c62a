//! Stores that fail and processes that die: nothing is stranded, doubled or lost.

use super::gates::{
    Gates, Process, fake_clock, is_sound, life, on_paused_time, recorded, until_kind, with_gates,
    within_a_day,
};
use super::support::{Place, on_every_store, until, within};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::engine::SubmitError;
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Run, RunId, RunOutcome, Task, TaskError, TaskHandle,
    Timestamp, Workflow,
};
use tidegate_core::explain::Looked;
use tidegate_core::lifecycle::{Event, Kind, Reason, WorkerId};
use tidegate_core::limit::LimitState;
use tidegate_core::rows::Payload;
use tidegate_core::store::{
    Answer, Bytes, Claim, Clock, Counts, Finding, Happened, NewWorker, Record, Reply, Request,
    RequestId, RunKey, RunSummary, RunView, RunsPage, Store, StoreError, TaskKey, Unserved,
    WorkerView,
};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

/// A store whose requests go wrong when they are told to; all else goes through.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    faults: Mutex<Vec<(Test, Fault)>>,
    outage: Mutex<Option<Outage>>,
    looks: Mutex<Looks>,
    /// Held by every look that hangs.
    hanging: Arc<()>,
    worker: Mutex<Option<WorkerId>>,
    fuse: Mutex<Option<(usize, Blown)>>,
    blown: Semaphore,
    mended: Semaphore,
}

/// What becomes of the looks of a watcher.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Looks {
    #[default]
    Answered,
    Panic,
    Hang,
}

/// What becomes of every request, and of a worker that signs off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Nothing is done, and the store says so.
    Fails,
    /// The same, for good.
    Unusable,
    /// Nothing is done, and whether it was is not known.
    Unknown,
    /// Nothing is done, and no answer comes.
    Hangs,
}

/// Which request a fault is for, by what it says and what it came to.
type Test = fn(&Request, &Reply) -> bool;

/// What becomes of a request after so many others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blown {
    /// It is not taken, and the store says so.
    Fails,
    /// It is taken, and its answer is lost.
    Lost,
    /// It is not taken, or not before it is mended.
    Before,
    /// It is taken, and not answered before it is mended.
    After,
}

/// What goes wrong with the answer to a request that was taken.
#[derive(Debug)]
enum Fault {
    Lost,
    Late(oneshot::Receiver<()>),
}

#[derive(Debug)]
struct AsTold;

impl fmt::Display for AsTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room")
    }
}

impl std::error::Error for AsTold {}

impl Faulty {
    pub(crate) async fn on(place: &Place) -> Arc<Self> {
        let (faults, outage, looks, hanging, worker, fuse) = Default::default();
        let (blown, mended) = (Semaphore::new(0), Semaphore::new(0));
        let inner = place.store().await;
        Arc::new(Faulty { inner, faults, outage, looks, hanging, worker, fuse, blown, mended })
    }

    /// This becomes of the request after so many.
    pub(crate) fn blow_after(&self, requests: usize, how: Blown) {
        *self.fuse.lock().unwrap() = Some((requests, how));
    }

    /// Waits until that request has come.
    pub(crate) async fn blown(&self) {
        self.blown.acquire().await.unwrap().forget();
    }

    /// The request that hangs goes on.
    pub(crate) fn mend(&self) {
        self.mended.add_permits(1);
    }

    /// What becomes of this request.
    fn fuse(&self) -> Option<Blown> {
        let mut fuse = self.fuse.lock().unwrap();
        let (requests, how) = fuse.as_mut()?;
        let blown = (*requests == 0).then_some(*how);
        match blown {
            None => *requests -= 1,
            Some(_) => *fuse = None,
        }
        blown
    }

    async fn hang(&self) {
        self.blown.add_permits(1);
        self.mended.acquire().await.unwrap().forget();
    }

    pub(crate) fn engine(self: &Arc<Self>) -> EngineBuilder {
        Engine::builder("memory:").store(self.clone())
    }

    /// The answer to the next such request is lost.
    pub(crate) fn lose(&self, test: Test) {
        self.faults.lock().unwrap().push((test, Fault::Lost));
    }

    /// The answer to the next such request comes when what this returns is dropped.
    pub(crate) fn delay(&self, test: Test) -> oneshot::Sender<()> {
        let (release, released) = oneshot::channel();
        self.faults.lock().unwrap().push((test, Fault::Late(released)));
        release
    }

    /// Whether all that should go wrong has.
    pub(crate) fn is_done(&self) -> bool {
        self.faults.lock().unwrap().is_empty()
    }

    /// From now on no request is taken, or they are again.
    fn set_down(&self, is_down: bool) {
        self.set_outage(is_down.then_some(Outage::Fails));
    }

    /// From now on this becomes of everything that is written.
    pub(crate) fn set_outage(&self, outage: Option<Outage>) {
        *self.outage.lock().unwrap() = outage;
    }

    async fn suffer_outage(&self) -> Result<(), StoreError> {
        let outage = *self.outage.lock().unwrap();
        match outage {
            None => Ok(()),
            Some(Outage::Fails) => Err(StoreError::Failed(Arc::new(AsTold))),
            Some(Outage::Unusable) => Err(StoreError::Unusable(Arc::new(AsTold))),
            Some(Outage::Unknown) => Err(StoreError::Unknown(Arc::new(AsTold))),
            Some(Outage::Hangs) => std::future::pending().await,
        }
    }

    /// This becomes of the looks of watchers from now on.
    pub(crate) fn set_looks(&self, looks: Looks) {
        *self.looks.lock().unwrap() = looks;
    }

    /// How many looks hang.
    pub(crate) fn hanging(&self) -> usize {
        Arc::strong_count(&self.hanging) - 1
    }

    async fn look<T>(&self, look: Answer<'_, T>) -> Result<T, StoreError> {
        let looks = *self.looks.lock().unwrap();
        match looks {
            Looks::Answered => look.await,
            Looks::Panic => panic!("a test wants it so"),
            Looks::Hang => {
                let _hangs = self.hanging.clone();
                std::future::pending().await
            }
        }
    }

    async fn take(&self, request: Arc<Request>) -> Result<Reply, StoreError> {
        *self.worker.lock().unwrap() = request.worker;
        self.suffer_outage().await?;
        let blown = self.fuse();
        match blown {
            Some(Blown::Fails) => {
                self.blown.add_permits(1);
                return Err(StoreError::Failed(Arc::new(AsTold)));
            }
            Some(Blown::Before) => self.hang().await,
            _ => {}
        }
        let reply = self.inner.request(request.clone()).await?;
        match blown {
            Some(Blown::Lost) => {
                self.blown.add_permits(1);
                return Err(StoreError::Unknown(Arc::new(AsTold)));
            }
            Some(Blown::After) => self.hang().await,
            _ => {}
        }
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let at = faults.iter().position(|(test, _)| test(&request, &reply));
            at.map(|at| faults.remove(at).1)
        };
        match fault {
            None => Ok(reply),
            Some(Fault::Lost) => Err(StoreError::Unknown(Arc::new(AsTold))),
            Some(Fault::Late(released)) => {
                // An error says that the other half was dropped, which is what is waited for.
                let _ = released.await;
                Ok(reply)
            }
        }
    }
}

/// Whether a request says this of a task.
fn says(request: &Request, this: fn(&Event) -> bool) -> bool {
    request.changes.iter().any(|change| change.events.iter().any(this))
}

fn submits(request: &Request, _: &Reply) -> bool {
    !request.submits.is_empty()
}

fn claims(request: &Request, reply: &Reply) -> bool {
    request.submits.is_empty() && request.changes.is_empty() && !reply.claimed.is_empty()
}

fn succeeds(request: &Request, _: &Reply) -> bool {
    says(request, |event| matches!(event, Event::Succeed { .. }))
}

fn fails(request: &Request, _: &Reply) -> bool {
    says(request, |event| matches!(event, Event::Fail { .. }))
}

fn defers(request: &Request, _: &Reply) -> bool {
    says(request, |event| matches!(event, Event::Defer { .. }))
}

fn resumes(request: &Request, _: &Reply) -> bool {
    says(request, |event| matches!(event, Event::Resume { .. }))
}

fn hands_back(request: &Request, _: &Reply) -> bool {
    says(request, |event| matches!(event, Event::HandBack { .. }))
}

impl Store for Faulty {
    fn request(&self, request: Arc<Request>) -> Answer<'_, Reply> {
        Box::pin(self.take(request))
    }

    fn dismiss(&self, worker: WorkerId) -> Answer<'_, ()> {
        Box::pin(async move {
            self.suffer_outage().await?;
            self.inner.dismiss(worker).await
        })
    }

    fn dead(&self) -> Answer<'_, Vec<WorkerId>> {
        Box::pin(self.look(self.inner.dead()))
    }

    fn ended(&self, runs: Vec<RunId>) -> Answer<'_, Vec<(RunId, Option<RunOutcome>)>> {
        Box::pin(self.look(self.inner.ended(runs)))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        Box::pin(self.look(self.inner.counts()))
    }

    tidegate_testkit::forward_store! { inner:
        enlist(worker: NewWorker) -> WorkerId;
        workers() -> Vec<WorkerView>;
        run(run: RunId) -> Option<RunView>;
        runs(page: RunsPage) -> Vec<RunSummary>;
        payloads(first: TaskKey, tasks: u32, kind: Payload) -> Vec<(TaskKey, Bytes)>;
        records(run: Option<RunKey>, after: u64, limit: u32) -> Vec<Record>;
        unserved() -> Vec<Unserved>;
        limits() -> Vec<LimitState>;
        explain(task: TaskKey, now: Timestamp) -> Option<Looked>;
        audit() -> Vec<Finding>;
    }
}

/// How many runs there are.
async fn runs(engine: &Engine) -> usize {
    engine.runs(RunsPage { limit: 1_000, ..Default::default() }).await.unwrap().len()
}

/// It has succeeded, was entered so often in one attempt, and that is recorded once.
async fn has_succeeded(run: &Run, entries: u32) {
    let status = run.wait().await.unwrap();
    let task = &status.tasks[0];
    assert_eq!((task.kind, task.attempt, task.entries), (Kind::Succeeded, 1, entries));
    let events = run.events().await.unwrap();
    let ends = events.iter().filter(|event| event.what == Happened::Succeeded);
    assert_eq!(ends.count(), 1);
}

/// Nothing was taken for somebody else's, all slots are free, and the store is sound.
async fn is_clean(engine: &Engine) {
    until("nothing is owned and no slot is held", async || {
        engine.metrics().owned == 0 && engine.slots().in_use() == 0
    })
    .await;
    let metrics = engine.metrics();
    assert_eq!((metrics.lost_races_total, metrics.strays_total), (0, 0));
    is_sound(engine.store()).await;
}

/// Fails the first time.
async fn at_second(_: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    match handle.attempt() {
        1 => Err("the first time".into()),
        attempt => Ok(attempt),
    }
}

on_every_store! {
    async fn a_submit_whose_answer_is_lost_is_not_doubled_and_its_caller_has_the_run(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine(), &gates).start().await.unwrap();
        gates.open("a");
        faulty.lose(submits);
        let run = engine.submit("hold", "a").await.unwrap();
        assert!(faulty.is_done() && !run.existed());
        has_succeeded(&run, 1).await;
        // With a key the run must not be taken for one that existed.
        faulty.lose(submits);
        let run = engine.submit("hold", "a").key("k").await.unwrap();
        assert!(faulty.is_done() && !run.existed());
        has_succeeded(&run, 1).await;
        assert!(engine.submit("hold", "a").key("k").await.unwrap().existed());
        assert_eq!((runs(&engine).await, gates.arrivals("a")), (2, 2));
        assert_eq!(engine.metrics().failed_requests_total, 2);
        is_clean(&engine).await;
    }

    async fn a_claim_whose_answer_is_lost_strands_nothing(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine().slots(2), &gates).start().await.unwrap();
        gates.open("a");
        engine.pause_queue("default").await.unwrap();
        let runs = engine.submit_many("hold", ["a"; 6]).await.unwrap();
        faulty.lose(claims);
        faulty.lose(claims);
        engine.unpause_queue("default").await.unwrap();
        for run in &runs {
            has_succeeded(run, 1).await;
        }
        assert_eq!(gates.arrivals("a"), 6);
        is_clean(&engine).await;
    }

    async fn an_end_whose_answer_is_lost_is_recorded_once_and_whoever_waits_is_told(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine(), &gates).start().await.unwrap();
        gates.open("a");
        faulty.lose(succeeds);
        let run = engine.submit("hold", "a").await.unwrap();
        assert_eq!(run.wait().await.unwrap().output::<String>("hold").unwrap(), "a");
        has_succeeded(&run, 1).await;
        assert!(faulty.is_done());
        is_clean(&engine).await;
    }

    async fn a_failure_whose_answer_is_lost_uses_one_attempt(place: Place) {
        let faulty = Faulty::on(&place).await;
        let task = Task::new("second", at_second).retries(5).backoff(Backoff::fixed(Duration::ZERO));
        let engine = faulty.engine().workflow(Workflow::of(task).unwrap()).start().await.unwrap();
        faulty.lose(fails);
        let run = engine.submit("second", ()).await.unwrap();
        let status = run.wait().await.unwrap();
        assert_eq!((status.tasks[0].attempt, status.tasks[0].entries), (2, 2));
        let whats = recorded(engine.store(), run.id()).await;
        assert_eq!(whats, [Happened::Retried, Happened::Succeeded]);
        assert!(faulty.is_done());
        is_clean(&engine).await;
    }

    async fn a_wait_whose_beginning_and_end_are_answered_by_nobody_goes_on_once(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine().slots(1), &gates).start().await.unwrap();
        faulty.lose(defers);
        faulty.lose(resumes);
        let run = engine.submit("wait", "a").await.unwrap();
        until_kind(engine.store(), run.id(), Kind::Deferred).await;
        gates.open("a");
        has_succeeded(&run, 1).await;
        assert!(faulty.is_done());
        assert_eq!(gates.arrivals("a"), 1);
        is_clean(&engine).await;
    }

    async fn a_cancel_whose_answer_is_lost_ends_the_run_and_drops_its_body(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine(), &gates).start().await.unwrap();
        let run = engine.submit("hold", "never").await.unwrap();
        gates.arrived("never", 1).await;
        faulty.lose(|request, _| !request.operations.is_empty());
        run.cancel().await.unwrap();
        assert!(faulty.is_done());
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        until("its slot is free", async || engine.slots().in_use() == 0).await;
        until("it is not owned", async || engine.metrics().owned == 0).await;
        is_sound(engine.store()).await;
    }

    async fn a_hand_back_whose_answer_is_lost_is_made_once(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine(), &gates).start().await.unwrap();
        let run = engine.submit("wait", "a").await.unwrap();
        until_kind(engine.store(), run.id(), Kind::Deferred).await;
        faulty.lose(hands_back);
        let report = engine.shutdown(HOUR).await;
        assert!(faulty.is_done());
        assert_eq!(report.handed_back, [(run.id(), "wait".to_owned())]);
        assert_eq!(recorded(engine.store(), run.id()).await, [Happened::HandedBack]);
        is_sound(engine.store()).await;
        gates.open("a");
        let next = with_gates(place.engine(), &gates).start().await.unwrap();
        has_succeeded(&next.run(run.id()).await.unwrap(), 2).await;
    }

    async fn a_store_that_fails_for_a_while_loses_nothing_and_says_so(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine().slots(2), &gates).start().await.unwrap();
        let ends = engine.submit("hold", "a").await.unwrap();
        let resumes = engine.submit("wait", "b").await.unwrap();
        let goes_on = engine.submit("hold", "c").await.unwrap();
        gates.arrived("a", 1).await;
        gates.arrived("c", 1).await;
        until_kind(engine.store(), resumes.id(), Kind::Deferred).await;
        faulty.set_down(true);
        gates.open("a");
        gates.open("b");
        for _ in 0..3 {
            let refused = engine.submit("hold", "d").await.unwrap_err();
            assert!(matches!(refused, SubmitError::Store(StoreError::Failed(_))), "{refused:?}");
            assert_eq!(refused.to_string(), "the store could not do it: no room");
            let refused = ends.cancel().await.unwrap_err();
            assert_eq!(refused.to_string(), "the store could not do it: no room");
        }
        until("the end is reported here", async || engine.metrics().succeeded_total == 1).await;
        assert_eq!(life(engine.store(), ends.id()).await.state.kind(), Kind::Active);
        let failed = engine.metrics().failed_requests_total;
        assert!(failed >= 3, "{failed} requests failed");
        faulty.set_down(false);
        for run in [&ends, &resumes] {
            has_succeeded(run, 1).await;
        }
        gates.open("c");
        has_succeeded(&goes_on, 1).await;
        gates.open("d");
        has_succeeded(&engine.submit("hold", "d").await.unwrap(), 1).await;
        assert_eq!(runs(&engine).await, 4, "what was refused was not submitted");
        is_clean(&engine).await;
    }

    async fn a_task_that_is_owned_and_not_known_is_handed_back(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine().slots(1), &gates).start().await.unwrap();
        let runs = engine.submit_many("hold", ["a", "b", "c"]).await.unwrap();
        gates.arrived("a", 1).await;
        let stray = &runs[2];
        assert_eq!(life(engine.store(), stray.id()).await.state.kind(), Kind::Ready);
        // A claim of which this worker never hears.
        let mut request = Request::new(RequestId(1), Clock::Store);
        request.worker = *faulty.worker.lock().unwrap();
        request.claim = Claim { units: 1, ahead: 0, heaviest: 1, room: u32::MAX };
        let taken = faulty.inner.request(Arc::new(request)).await.unwrap();
        assert_eq!(taken.claimed[0].run, stray.id());
        // After a request that failed, what is owned is compared.
        faulty.lose(submits);
        let other = engine.submit("hold", "c").await.unwrap();
        until("it was found", async || engine.metrics().strays_total == 1).await;
        ["a", "b", "c"].into_iter().for_each(|gate| gates.open(gate));
        has_succeeded(stray, 2).await;
        for run in [&runs[0], &runs[1], &other] {
            has_succeeded(run, 1).await;
        }
        assert_eq!(gates.arrivals("c"), 2);
        is_sound(engine.store()).await;
    }

    async fn what_a_claim_brings_while_the_engine_stops_is_handed_back_and_reported(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine().slots(1), &gates).start().await.unwrap();
        let active = engine.submit("hold", "a").await.unwrap();
        gates.arrived("a", 1).await;
        let late = faulty.delay(submits);
        let submitting = tokio::spawn({
            let engine = engine.clone();
            async move { engine.submit("hold", "b").await.unwrap() }
        });
        until("it is claimed", async || engine.store().counts().await.unwrap().running == 2).await;
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        engine.closing().await;
        drop(late);
        let unbegun = submitting.await.unwrap();
        gates.open("a");
        let report = shutdown.await.unwrap();
        assert_eq!(report.finished, 1);
        assert_eq!(report.handed_back, [(unbegun.id(), "hold".to_owned())]);
        assert_eq!(report.dropped, []);
        has_succeeded(&active, 1).await;
        let left = life(engine.store(), unbegun.id()).await;
        assert_eq!((left.state.kind(), left.entries), (Kind::Ready, 0));
        assert_eq!(gates.arrivals("b"), 0);
        is_sound(engine.store()).await;
    }

    async fn what_a_dead_process_had_goes_on_in_the_next_and_uses_no_attempt(place: Place) {
        let gates = Gates::default();
        let (process, engine) = Process::start(with_gates(place.engine().slots(1), &gates)).await;
        let store = place.store().await;
        let deferred = engine.submit("wait", "deferred").await.unwrap().id();
        until_kind(&store, deferred, Kind::Deferred).await;
        let active = engine.submit("hold", "active").await.unwrap().id();
        gates.arrived("active", 1).await;
        let ahead = engine.submit("hold", "ahead").await.unwrap().id();
        let ready = engine.submit("hold", "ready").await.unwrap().id();
        until_kind(&store, ahead, Kind::Claimed).await;
        until_kind(&store, ready, Kind::Ready).await;
        process.die().await;
        drop(engine);
        place.bury_workers();
        assert_eq!(life(&store, active).await.state.kind(), Kind::Active, "it could say nothing");

        let next = with_gates(place.engine(), &gates).start().await.unwrap();
        until("all are entered", async || {
            let names = ["deferred", "active", "ahead", "ready"];
            names.map(|name| gates.arrivals(name)) == [2, 2, 1, 1]
        })
        .await;
        until_kind(&store, deferred, Kind::Deferred).await;
        assert_eq!(life(&store, deferred).await.recoveries, 0);
        assert_eq!(life(&store, active).await.recoveries, 1);
        assert_eq!(life(&store, ahead).await.recoveries, 0);
        assert_eq!(next.metrics().recoveries_total, 3);
        ["deferred", "active", "ahead", "ready"].into_iter().for_each(|gate| gates.open(gate));
        for (id, entries) in [(deferred, 2), (active, 2), (ahead, 1), (ready, 1)] {
            has_succeeded(&next.run(id).await.unwrap(), entries).await;
            let before = vec![Happened::Recovered; entries as usize - 1];
            assert_eq!(recorded(&store, id).await, [before, vec![Happened::Succeeded]].concat());
        }
        is_clean(&next).await;
    }

    async fn a_task_that_kills_its_process_is_found_among_its_neighbours(place: Place) {
        let gates = Gates::default();
        let store = place.store().await;
        let builder = || with_gates(place.engine().slots(4), &gates);
        let (mut process, mut engine) = Process::start(builder()).await;
        let mut deferred = Vec::new();
        for run in engine.submit_many("wait", ["deferred"; 10]).await.unwrap() {
            until_kind(&store, run.id(), Kind::Deferred).await;
            deferred.push(run.id());
        }
        let names = ["first", "poison", "second", "third"];
        let active = engine.submit_many("hold", names).await.unwrap();
        // Whoever keeps a run keeps the engine's store open, as no dead process does.
        let active: Vec<RunId> = active.into_iter().map(|run| run.id()).collect();
        let poison = active[1];
        let kinds = async || {
            let mut kinds = Vec::new();
            for &run in &active {
                kinds.push(life(&store, run).await.state.kind());
            }
            kinds
        };
        // Twice it is active beside others, who become as suspect as it is.
        for death in 1..=2 {
            until("all four are active", async || kinds().await == [Kind::Active; 4]).await;
            for name in names {
                gates.arrived(name, death).await;
            }
            process.die().await;
            drop(engine);
            place.bury_workers();
            (process, engine) = Process::start(builder()).await;
        }
        // From now on such are active one at a time, and others are not held up.
        until("three are kept back", async || engine.metrics().suspects == 3).await;
        gates.open("plain");
        has_succeeded(&engine.submit("hold", "plain").await.unwrap(), 1).await;
        until("one is active", async || kinds().await.contains(&Kind::Active)).await;
        let mut now = kinds().await;
        now.sort();
        assert_eq!(now, [Kind::Claimed, Kind::Claimed, Kind::Claimed, Kind::Active]);
        let arrivals = names.map(|name| gates.arrivals(name)).iter().sum::<usize>();
        assert_eq!(arrivals, 2 * 4 + 1);
        until("that is what is counted", async || {
            let metrics = engine.metrics();
            (metrics.active, metrics.suspects, metrics.ahead) == (1, 3, 0)
        })
        .await;
        for name in ["first", "second", "third"] {
            gates.open(name);
        }
        for death in 3..=5 {
            gates.arrived("poison", death).await;
            assert_eq!(life(&store, poison).await.state.kind(), Kind::Active);
            process.die().await;
            drop(engine);
            place.bury_workers();
            (process, engine) = Process::start(builder()).await;
        }
        let status = engine.run(poison).await.unwrap().wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::CrashLoop)));
        assert_eq!((task.attempt, task.entries), (1, 5));
        gates.open("deferred");
        for (id, most) in active.iter().map(|id| (*id, 5)).chain(deferred.iter().map(|id| (*id, 6))) {
            let status = engine.run(id).await.unwrap().wait().await.unwrap();
            let task = &status.tasks[0];
            assert!(task.entries <= most, "{task:?}");
            if id != poison {
                assert_eq!((task.kind, task.attempt), (Kind::Succeeded, 1), "{task:?}");
            }
        }
        is_clean(&engine).await;
        process.die().await;
    }
}

on_paused_time! {
    async fn a_store_that_is_down_is_tried_again_at_growing_pauses(place: Place) {
        let (faulty, gates) = (Faulty::on(&place).await, Gates::default());
        let engine = with_gates(faulty.engine().clock(fake_clock()), &gates).start().await.unwrap();
        gates.open("a");
        engine.submit("hold", "a").await.unwrap().wait().await.unwrap();
        faulty.set_down(true);
        assert!(engine.submit("hold", "a").await.is_err());
        tokio::time::sleep(Duration::from_secs(100)).await;
        let tries = engine.metrics().failed_requests_total;
        // After 50 ms, doubled up to two seconds.
        assert!((50..=60).contains(&tries), "{tries} tries in 100 seconds");
        faulty.set_down(false);
        let begun = Instant::now();
        has_succeeded(&engine.submit("hold", "a").await.unwrap(), 1).await;
        assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_dead_process_is_taken_over_at_once() {
    let (place, gates) = (Place::memory(), Gates::default());
    let (process, engine) = Process::start(with_gates(place.engine(), &gates)).await;
    let ids = [
        engine.submit("hold", "a").await.unwrap().id(),
        engine.submit("wait", "a").await.unwrap().id(),
    ];
    within(gates.arrived("a", 2)).await;
    process.die().await;
    place.bury_workers();
    gates.open("a");
    tokio::time::pause();
    within_a_day(async {
        let begun = Instant::now();
        let next = with_gates(place.engine().clock(fake_clock()), &gates).start().await.unwrap();
        for id in ids {
            next.run(id).await.unwrap().wait().await.unwrap();
        }
        // Timers are as fine as a millisecond; the first look is one that is due.
        assert!(begun.elapsed() <= Duration::from_millis(1), "{:?}", begun.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_process_that_dies_beside_another_is_taken_over_at_the_next_look() {
    let (place, gates) = (Place::memory(), Gates::default());
    let (process, engine) = Process::start(with_gates(place.engine(), &gates)).await;
    let run = engine.submit("hold", "a").await.unwrap().id();
    within(gates.arrived("a", 1)).await;
    tokio::time::pause();
    within_a_day(async {
        let other = with_gates(place.engine().clock(fake_clock()), &gates).start().await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(gates.arrivals("a"), 1, "what is alive is left alone");
        process.die().await;
        place.bury_worker(1);
        gates.open("a");
        let begun = Instant::now();
        has_succeeded(&other.run(run).await.unwrap(), 2).await;
        assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
    })
    .await;
}
