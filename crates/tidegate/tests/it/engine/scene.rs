//! What bodies and their test share, time that is set by hand, and a store that is listened to.

use super::support::{Place, until};
use crate::support::Crowd;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;
use tidegate::engine::TaskState;
use tidegate::{Engine, EngineBuilder, Run, RunId, Timestamp};
use tidegate_core::lifecycle::{Event, Kind, WorkerId};
use tidegate_core::store::{Answer, Reply, Request, Store};
use tokio::sync::Semaphore;

/// What bodies and their test share: places where bodies stop, what they note, who is inside, and
/// the engine itself.
#[derive(Clone, Default)]
pub(crate) struct Scene(Arc<SceneInner>);

#[derive(Default)]
struct SceneInner {
    stops: Mutex<HashMap<String, Arc<Stop>>>,
    notes: Mutex<Vec<String>>,
    crowd: Crowd,
    engine: OnceLock<Engine>,
}

struct Stop {
    came: Semaphore,
    open: Semaphore,
}

impl Scene {
    fn stop(&self, name: &str) -> Arc<Stop> {
        let mut stops = self.0.stops.lock().unwrap();
        let stop = || Arc::new(Stop { came: Semaphore::new(0), open: Semaphore::new(0) });
        stops.entry(name.to_owned()).or_insert_with(stop).clone()
    }

    /// A body says that it has come here, and goes on when the place is open.
    pub(crate) async fn at(&self, name: &str) {
        let stop = self.stop(name);
        stop.came.add_permits(1);
        drop(stop.open.acquire().await.unwrap());
    }

    /// Waits until a body has come here; each coming is seen once.
    pub(crate) async fn reached(&self, name: &str) {
        self.stop(name).came.acquire().await.unwrap().forget();
    }

    /// Opens the place, for good.
    pub(crate) fn open(&self, name: &str) {
        self.stop(name).open.add_permits(1);
    }

    pub(crate) fn note(&self, note: impl Into<String>) {
        self.0.notes.lock().unwrap().push(note.into());
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.0.notes.lock().unwrap().clone()
    }

    /// Makes a note when it is dropped.
    pub(crate) fn note_on_drop(&self, note: &'static str) -> NoteOnDrop {
        NoteOnDrop(self.clone(), note)
    }

    pub(crate) fn crowd(&self) -> &Crowd {
        &self.0.crowd
    }

    /// Starts an engine that its bodies find here.
    pub(crate) async fn start(&self, builder: EngineBuilder) -> Engine {
        let engine = builder.state(self.clone()).start().await.unwrap();
        assert!(self.0.engine.set(engine.clone()).is_ok(), "a scene has one engine");
        engine
    }

    /// How the store sees a task of a run, from inside its body.
    pub(crate) async fn look(&self, run: RunId, task: &str) -> TaskState {
        look(&self.0.engine.get().unwrap().run(run).await.unwrap(), task).await
    }
}

pub(crate) struct NoteOnDrop(Scene, &'static str);

impl Drop for NoteOnDrop {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

/// How the store sees a task of a run.
pub(crate) async fn look(run: &Run, task: &str) -> TaskState {
    run.status().await.unwrap().task(task).unwrap().clone()
}

/// Waits until a task of a run is of this kind.
pub(crate) async fn until_is(run: &Run, task: &str, kind: Kind) {
    until(&format!("{task} is {kind}"), async || look(run, task).await.kind == kind).await;
}

/// Waits until nothing is held or owned by the engine any more: no slot, no place in line, no task.
pub(crate) async fn until_quiet(engine: &Engine) {
    until("all slots are free and nothing is owned", async || {
        let (slots, metrics) = (engine.slots(), engine.metrics());
        slots.in_use() == 0 && slots.waiting() == 0 && slots.leaky() == 0 && metrics.owned == 0
    })
    .await;
}

/// A wall clock that is set by hand.
#[derive(Clone)]
pub(crate) struct Wall(Arc<AtomicI64>);

impl Wall {
    pub(crate) fn new() -> Self {
        Wall(Arc::new(AtomicI64::new(1_700_000_000_000_000)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    /// Makes an engine go by it.
    pub(crate) fn on(&self, builder: EngineBuilder) -> EngineBuilder {
        let wall = self.clone();
        builder.clock(move || wall.now())
    }

    /// Time passes, and the engine has seen it once this returns.
    pub(crate) async fn pass(&self, engine: &Engine, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
        // Whatever is asked of a store makes it look at the clock.
        assert!(!engine.unpause_queue("nobody's").await.unwrap());
    }

    /// The clock is set back, and the engine has seen it once this returns.
    pub(crate) async fn set_back(&self, engine: &Engine, time: Duration) {
        self.0.fetch_sub(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
        assert!(!engine.unpause_queue("nobody's").await.unwrap());
    }
}

/// Which request is meant.
type Test = fn(&Request) -> bool;

/// A store that keeps a note of what workers tell it, and holds back an answer when it is told to.
#[derive(Debug)]
pub(crate) struct Spy {
    inner: Arc<dyn Store>,
    told: Mutex<Vec<Event>>,
    held: Mutex<Option<(Test, Arc<Semaphore>)>>,
    holding: AtomicBool,
    /// What becomes of steps of pruning, and how many are under way.
    prunes: Mutex<Prunes>,
    pruning: AtomicUsize,
}

/// What becomes of a step of pruning.
#[derive(Debug, Default)]
pub(crate) enum Prunes {
    #[default]
    Well,
    /// It never returns.
    Stuck,
    /// It panics, and the next one does not.
    Panics,
}

impl Spy {
    /// An engine on this place, with somebody in between.
    pub(crate) async fn on(place: &Place) -> (Arc<Spy>, EngineBuilder) {
        let engine = place.engine().start().await.unwrap();
        let inner = engine.store().clone();
        engine.shutdown(Duration::ZERO).await;
        let (told, held, holding) = Default::default();
        let (prunes, pruning) = Default::default();
        let spy = Arc::new(Spy { inner, told, held, holding, prunes, pruning });
        (spy.clone(), Engine::builder("memory:").store(spy))
    }

    /// What workers have told of their tasks.
    pub(crate) fn told(&self) -> Vec<Event> {
        self.told.lock().unwrap().clone()
    }

    /// The answer to the next request like this is held back until the semaphore has a permit. The
    /// request is taken at once.
    pub(crate) fn hold(&self, like_this: Test) -> Arc<Semaphore> {
        let release = Arc::new(Semaphore::new(0));
        *self.held.lock().unwrap() = Some((like_this, release.clone()));
        release
    }

    /// This becomes of steps of pruning.
    pub(crate) fn prunes(&self, how: Prunes) {
        *self.prunes.lock().unwrap() = how;
    }

    /// How many steps of pruning are under way.
    pub(crate) fn pruning(&self) -> usize {
        self.pruning.load(Ordering::SeqCst)
    }

    /// Whether an answer is being held back.
    pub(crate) fn is_holding(&self) -> bool {
        self.holding.load(Ordering::SeqCst)
    }
}

impl Store for Spy {
    fn request(&self, request: Arc<Request>) -> Answer<'_, Reply> {
        Box::pin(async move {
            let events = request.changes.iter().flat_map(|change| change.events.clone());
            self.told.lock().unwrap().extend(events);
            let held = self.held.lock().unwrap().take_if(|(like_this, _)| like_this(&request));
            let _inside = request.prune.map(|_| Inside::of(&self.pruning));
            if request.prune.is_some() {
                let how = std::mem::take(&mut *self.prunes.lock().unwrap());
                match how {
                    Prunes::Well => {}
                    Prunes::Stuck => std::future::pending().await,
                    Prunes::Panics => panic!("as the test wants it"),
                }
            }
            let answer = self.inner.request(request).await;
            if let Some((_, release)) = held {
                self.holding.store(true, Ordering::SeqCst);
                drop(release.acquire().await.unwrap());
                self.holding.store(false, Ordering::SeqCst);
            }
            answer
        })
    }

    fn dismiss(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.inner.dismiss(worker)
    }

    tidegate_testkit::forward_store!(inner);
}

/// One who is counted.
struct Inside<'c>(&'c AtomicUsize);

impl<'c> Inside<'c> {
    fn of(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Inside(count)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Code that blocks its thread until the test lets go of it, or is over.
pub(crate) struct Block {
    inside: AtomicBool,
    came: Semaphore,
    release: Mutex<mpsc::Receiver<()>>,
}

impl Block {
    pub(crate) fn new() -> (mpsc::Sender<()>, Self) {
        let (sender, release) = mpsc::channel();
        let (inside, came) = (AtomicBool::new(false), Semaphore::new(0));
        (sender, Block { inside, came, release: Mutex::new(release) })
    }

    /// Blocks the thread.
    pub(crate) fn block(&self) {
        self.inside.store(true, Ordering::SeqCst);
        self.came.add_permits(1);
        // An error says that the test is over.
        let _ = self.release.lock().unwrap().recv();
        self.inside.store(false, Ordering::SeqCst);
    }

    /// Waits until somebody blocks, and sees to it that time goes on: if the thread that is blocked
    /// was the one that kept the runtime's time, another takes that over when it is woken next.
    pub(crate) async fn reached(&self) {
        self.came.acquire().await.unwrap().forget();
        tokio::spawn(async {}).await.unwrap();
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.inside.load(Ordering::SeqCst)
    }
}
