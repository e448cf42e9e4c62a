//! What is looked at beside the loop, again and again: the load of the machine every five seconds, and
//! how much stands in the store every second, or less often where that takes long.
//!
//! What follows from the load (held starts, more or fewer slots) is decided in `tidegate_core::load`;
//! the loop is told of it. Each look is a task of its own: one that panics is counted and logged, and
//! the next comes when it is due. All are over before a shutdown returns.
//!
//! The other half of the queue watcher (dead workers, missed wake-ups) is in `look` and `worker`.

use super::load::Meter;
use super::pulse::Pulse;
use super::shutdown::{self, Stage};
use super::{Engine, Message, Shared};
use crate::sync::{Mutex, lock};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::load::{Reached, Sample, StartBelow, next_capacity};
use tidegate_core::store::{Counts, StoreError};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How often the load is sampled.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// How often what stands in the store is counted, at most.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Counting takes no more than this part of the time: a store with millions of rows is counted seldom.
const COUNT_SHARE: u32 = 200;

/// Where samples come from.
pub(super) type Source = Box<dyn FnMut(Timestamp) -> Sample + Send>;

/// What the monitors have seen last, and how they fare.
#[derive(Debug)]
pub(super) struct Board {
    sample: watch::Sender<Option<Sample>>,
    seen: Mutex<Seen>,
}

/// See [`Board`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) depth: Counts,
    pub(super) starts_held: bool,
    pub(super) resizes: u64,
    pub(super) monitor: Health,
    pub(super) watcher: Health,
    pub(super) counter: Health,
}

/// How something fares that is done again and again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Health {
    /// When it last succeeded.
    pub(super) last: Option<Instant>,
    pub(super) panics: u64,
    pub(super) failures: u64,
}

impl Health {
    pub(super) fn age(&self) -> Option<Duration> {
        self.last.map(|last| last.elapsed())
    }

    /// Notes how it went; what went wrong is told, and is no reason to stop. `None`: not well.
    pub(super) fn note<T>(
        &mut self,
        name: &str,
        done: Result<Result<T, StoreError>, JoinError>,
    ) -> Option<T> {
        match done {
            Ok(Ok(done)) => {
                self.last = Some(Instant::now());
                return Some(done);
            }
            Ok(Err(error)) => {
                self.failures += 1;
                tracing::warn!(%error, "{name} cannot look at the store");
            }
            Err(error) => {
                self.panics += u64::from(error.is_panic());
                tracing::error!(%error, "{name} went wrong; it goes on");
            }
        }
        None
    }
}

impl Default for Board {
    fn default() -> Self {
        Board { sample: watch::channel(None).0, seen: Mutex::default() }
    }
}

impl Board {
    pub(super) fn sample(&self) -> Option<Sample> {
        *self.sample.borrow()
    }

    pub(super) fn seen(&self) -> Seen {
        *lock(&self.seen)
    }

    pub(super) fn note<T>(&self, note: impl FnOnce(&mut Seen) -> T) -> T {
        note(&mut lock(&self.seen))
    }
}

/// What is to be monitored, and what is to follow. Its first sample is taken before the worker is
/// known to anybody, so that what is held is held from the beginning.
pub(super) struct Monitors {
    source: Arc<Mutex<Source>>,
    first: Result<Sample, JoinError>,
    start_below: StartBelow,
}

impl Monitors {
    pub(super) async fn new(source: Source, start_below: StartBelow, now: Timestamp) -> Self {
        let source = Arc::new(Mutex::new(source));
        let first = look(&source, now).await;
        Monitors { source, first, start_below }
    }

    /// Starts them. The loop is told what follows from the first sample before all else.
    pub(super) fn start(self, shared: &Arc<Shared>) -> Beside {
        let Monitors { source, first, start_below } = self;
        let mut load = Load { shared: shared.clone(), source, start_below, reached: Vec::new() };
        load.seen(first);
        let stop = CancellationToken::new();
        let sampling = tokio::spawn(sample(load, stop.clone()));
        let counting = tokio::spawn(count(shared.clone(), stop.clone()));
        let pulse = Pulse::start(shared.inbox.downgrade());
        Beside { stop: stop.drop_guard(), tasks: [sampling, counting], pulse }
    }
}

/// Reads what the system tells, where that may block.
fn look(source: &Arc<Mutex<Source>>, at: Timestamp) -> JoinHandle<Sample> {
    let source = source.clone();
    tokio::task::spawn_blocking(move || lock(&source)(at))
}

/// What goes on beside the loop of a worker. It stops when this is dropped.
pub(super) struct Beside {
    stop: DropGuard,
    tasks: [JoinHandle<()>; 2],
    pulse: Option<Pulse>,
}

impl Beside {
    /// Nothing of it is left once this returns.
    pub(super) async fn stop(self) {
        drop(self.stop);
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a monitor went wrong");
            }
        }
        if let Some(pulse) = self.pulse {
            pulse.stop();
        }
    }
}

/// Where the load of this machine comes from.
pub(super) fn meter() -> Source {
    let mut meter = Meter::default();
    Box::new(move |at| meter.sample(at))
}

/// The resource monitor.
struct Load {
    shared: Arc<Shared>,
    source: Arc<Mutex<Source>>,
    start_below: StartBelow,
    /// The marks that the loop was told to be reached.
    reached: Vec<Reached>,
}

async fn sample(mut load: Load, stop: CancellationToken) {
    let mut next = Instant::now() + SAMPLE_EVERY;
    while until(&stop, next).await {
        // After a stall one sample, not a burst.
        next = Instant::now() + SAMPLE_EVERY;
        match finished(&stop, look(&load.source, load.shared.now())).await {
            Some(done) => load.seen(done),
            None => return,
        }
    }
}

impl Load {
    fn seen(&mut self, done: Result<Sample, JoinError>) {
        let board = &self.shared.board;
        let sample = board.note(|seen| seen.monitor.note("the resource monitor", done.map(Ok)));
        // Nothing follows from what is not known.
        let reached = sample.map(|sample| self.start_below.reached(&sample)).unwrap_or_default();
        let may_start = reached.is_empty();
        let grown = sample.is_some_and(|sample| self.resize(&sample, may_start));
        if reached != self.reached || grown {
            // The loop may have gone with its runtime.
            let _ = self.shared.inbox.send(Message::Load(reached.clone()));
        }
        if may_start != self.reached.is_empty() {
            tracing::info!(
                ?reached,
                "{}",
                if may_start { "starts go on" } else { "starts are held" }
            );
        }
        self.reached = reached;
        let board = &self.shared.board;
        board.note(|seen| seen.starts_held = !may_start);
        if let Some(sample) = sample {
            board.sample.send_replace(Some(sample));
        }
    }

    /// Moves the number of slots; whether there are more.
    fn resize(&self, sample: &Sample, may_start: bool) -> bool {
        let Shared { pool, slots, metrics, .. } = &*self.shared;
        if slots.start() == slots.end() {
            return false;
        }
        let now = pool.capacity();
        let is_full = pool.in_use() >= now;
        let waits = || pool.waiting() > 0 || metrics.more_ready();
        let next = next_capacity(now, slots, sample, may_start && is_full && waits());
        if next == now {
            return false;
        }
        pool.resize(next).expect("there is always a slot");
        self.shared.board.note(|seen| seen.resizes += 1);
        tracing::debug!(now, next, "the number of slots moves");
        next > now
    }
}

/// Counts what stands in the store.
async fn count(shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let (begun, store) = (Instant::now(), shared.store.clone());
        let counting = tokio::spawn(async move { store.counts().await });
        let Some(done) = finished(&stop, counting).await else { return };
        shared.board.note(|seen| {
            if let Some(depth) = seen.counter.note("the queue watcher", done) {
                seen.depth = depth;
            }
        });
        let pause = COUNT_EVERY.max(begun.elapsed() * COUNT_SHARE);
        if !until(&stop, begun + pause).await {
            return;
        }
    }
}

/// What came of it; `None` if everything stops, and then nothing of it is left.
async fn finished<T>(
    stop: &CancellationToken,
    mut task: JoinHandle<T>,
) -> Option<Result<T, JoinError>> {
    let done = stop.run_until_cancelled(&mut task).await;
    if done.is_none() {
        task.abort();
        // Whatever it came to.
        let _ = task.await;
    }
    done
}

/// Whether this time has come, and not before the end of everything.
async fn until(stop: &CancellationToken, at: Instant) -> bool {
    stop.run_until_cancelled(tokio::time::sleep_until(at)).await.is_some()
}

/// Hears of the load of the machine. Made by [`Engine::samples`].
#[derive(Debug)]
pub struct Samples {
    sample: watch::Receiver<Option<Sample>>,
    closing: watch::Receiver<Stage>,
}

impl Samples {
    /// The next sample; whoever is slow gets the last. `None` when the engine has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Sample> {
        let is_new = {
            let mut changed = pin!(self.sample.changed());
            let mut over = pin!(shutdown::over(&mut self.closing));
            poll_fn(|cx| match changed.as_mut().poll(cx) {
                Poll::Pending => over.as_mut().poll(cx).map(|()| false),
                Poll::Ready(changed) => Poll::Ready(changed.is_ok()),
            })
            .await
        };
        if is_new { *self.sample.borrow_and_update() } else { None }
    }
}

impl Engine {
    /// How much of the machine was in use when it was last looked at, which is every five seconds.
    /// `None` if that has never succeeded.
    ///
    /// On Linux the load is read from `/proc` and, where the process stands under a limit, from its
    /// control group (version 2): the machine is as large as that limit. Elsewhere a sample says that
    /// nothing is known. Processor time is known from the second sample on.
    pub fn sample(&self) -> Option<Sample> {
        self.shared.board.sample()
    }

    /// Hears of every sample from now on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = tidegate::Engine::builder("memory:").start().await?;
    /// let mut samples = engine.samples();
    /// # engine.shutdown(std::time::Duration::ZERO).await;
    /// while let Some(sample) = samples.next().await {
    ///     println!("{:?} of the processors in use", sample.machine.cpu);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn samples(&self) -> Samples {
        let (mut sample, closing) =
            (self.shared.board.sample.subscribe(), self.shared.closing.subscribe());
        sample.mark_unchanged();
        Samples { sample, closing }
    }
}
