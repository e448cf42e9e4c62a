//! Waits: the slot is given back, nothing goes on without it, and nothing is looked at too often.
//!
//! - `protocol`: who has the slot when.
//! - `dropping`: waits and tasks that end before their time.
//! - `checks`: when conditions are looked at, and how often.
//! - `compose`: sleeps, futures, and waits made of waits.
//!
//! Nearly all run on paused time, where the clock moves only when nothing else can.

mod checks;
mod compose;
mod dropping;
mod protocol;

use crate::support::{Crowd, ms};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::{SlotPool, TaskError, TaskHandle, Wait};
use tokio::time::Instant;

fn pool(slots: u32) -> SlotPool {
    SlotPool::new(slots).unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const HOUR: Duration = Duration::from_secs(3600);

/// How a body ends when all is well.
fn done() -> Result<(), TaskError> {
    Ok(())
}

/// Lets all others run until they can do no more at this instant; the clock stands still.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A handle outside any task, holding a slot.
async fn handle_on(pool: &SlotPool) -> TaskHandle {
    TaskHandle::new(pool.acquire().await.unwrap())
}

/// A wait, made from a handle.
trait MakeWait<T>: for<'h> FnOnce(&'h TaskHandle) -> Wait<'h, T> + Send + 'static {}
impl<T, F: for<'h> FnOnce(&'h TaskHandle) -> Wait<'h, T> + Send + 'static> MakeWait<T> for F {}

#[derive(Clone, Default)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// What happened, in order.
#[derive(Clone)]
struct Log {
    start: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Default for Log {
    fn default() -> Self {
        Log { start: Instant::now(), lines: Arc::default() }
    }
}

impl Log {
    fn say(&self, what: impl Into<String>) {
        self.lines.lock().unwrap().push(what.into());
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

/// Something that is true from a time on, and writes down when it was looked at.
#[derive(Clone)]
struct Watched {
    start: Instant,
    true_from: Duration,
    looks: Arc<Mutex<Vec<Duration>>>,
    crowd: Crowd,
}

impl Watched {
    fn true_from(true_from: Duration) -> Self {
        let (start, looks, crowd) = (Instant::now(), Arc::default(), Crowd::default());
        Watched { start, true_from, looks, crowd }
    }

    fn never() -> Self {
        Watched::true_from(Duration::MAX)
    }

    fn look(&self) -> bool {
        self.looks.lock().unwrap().push(self.start.elapsed());
        self.start.elapsed() >= self.true_from
    }

    /// Begins now and takes a while.
    async fn look_for(&self, takes: Duration) -> bool {
        let _inside = self.crowd.enter();
        let answer = self.look();
        tokio::task::yield_now().await;
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        answer
    }

    fn looks(&self) -> Vec<Duration> {
        self.looks.lock().unwrap().clone()
    }
}
