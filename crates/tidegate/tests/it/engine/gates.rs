//! Where tests and bodies meet: gates, processes that die, looks into a store.

use super::support::until;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tidegate::{
    Context, Engine, EngineBuilder, RunId, Task, TaskError, TaskHandle, Timestamp, Workflow,
};
use tidegate_core::lifecycle::{Kind, Life};
use tidegate_core::store::{Happened, Store};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// Makes a test of an `async fn(Place)` on paused time, in memory: any other store takes real time,
/// in which paused time would run away.
macro_rules! on_paused_time {
    ($(async fn $name:ident($place:ident: Place) $body:block)*) => {$(
        #[test]
        fn $name() {
            let $place = Place::memory();
            crate::engine::gates::run_on_paused_time(Box::pin(async move { $body }));
        }
    )*};
}
pub(crate) use on_paused_time;

/// Runs a test on paused time.
pub(crate) fn run_on_paused_time(test: Pin<Box<dyn Future<Output = ()>>>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(within_a_day(test));
}

/// A test on paused time that hangs is a failure: with nothing else to do, a day is over soon.
pub(crate) async fn within_a_day(test: impl Future<Output = ()>) {
    let day = Duration::from_secs(86_400);
    tokio::time::timeout(day, test).await.expect("the test hangs");
}

/// Gates in the way of bodies, by name: each is shut until the test opens it. Given to an engine as
/// its state.
#[derive(Clone, Default)]
pub(crate) struct Gates(Arc<Mutex<HashMap<String, Gate>>>);

struct Gate {
    open: watch::Sender<bool>,
    arrivals: watch::Sender<usize>,
}

impl Gates {
    fn with<T>(&self, name: &str, look: impl FnOnce(&mut Gate) -> T) -> T {
        let mut gates = self.0.lock().unwrap();
        let shut = || Gate { open: watch::channel(false).0, arrivals: watch::channel(0).0 };
        look(gates.entry(name.to_owned()).or_insert_with(shut))
    }

    /// Waits until the gate is open.
    pub(crate) async fn pass(&self, name: &str) {
        let mut open = self.with(name, |gate| {
            gate.arrivals.send_modify(|arrivals| *arrivals += 1);
            gate.open.subscribe()
        });
        open.wait_for(|open| *open).await.expect("gates are not taken away");
    }

    /// Opens the gate, for good.
    pub(crate) fn open(&self, name: &str) {
        self.with(name, |gate| gate.open.send_replace(true));
    }

    /// How often somebody has come to the gate.
    pub(crate) fn arrivals(&self, name: &str) -> usize {
        self.with(name, |gate| *gate.arrivals.borrow())
    }

    /// Waits until somebody has come to the gate so often.
    pub(crate) async fn arrived(&self, name: &str, times: usize) {
        let mut arrivals = self.with(name, |gate| gate.arrivals.subscribe());
        arrivals.wait_for(|&arrivals| arrivals >= times).await.expect("gates are not taken away");
    }
}

/// Computes at the gate its input names; returns that name.
async fn hold(context: &mut Context<String>) -> Result<String, TaskError> {
    context.state::<Gates>()?.pass(context.input()).await;
    Ok(context.input().clone())
}

/// Waits, without its slot, for the gate its input names; returns that name.
async fn wait(context: &mut Context<String>, handle: &TaskHandle) -> Result<String, TaskError> {
    let gates = context.state::<Gates>()?;
    handle.defer_while(gates.pass(context.input())).await?;
    Ok(context.input().clone())
}

/// Gives an engine the workflows `hold` and `wait`, of one task each of the same name, and gates
/// for them.
pub(crate) fn with_gates(engine: EngineBuilder, gates: &Gates) -> EngineBuilder {
    engine
        .workflow(Workflow::of(Task::new("hold", hold)).unwrap())
        .workflow(Workflow::of(Task::new("wait", wait)).unwrap())
        .state(gates.clone())
}

/// A process, as far as an engine can tell: a runtime that can die under it.
pub(crate) struct Process {
    die: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Process {
    /// Starts an engine in a process of its own.
    pub(crate) async fn start(engine: EngineBuilder) -> (Self, Engine) {
        let ((die, death), (started, start)) = (oneshot::channel(), oneshot::channel());
        let thread = thread::spawn(move || {
            // One thread: when it dies, nothing of the engine is polled any more.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                assert!(started.send(engine.start().await.unwrap()).is_ok());
                let _ = death.await;
            });
        });
        (Process { die, thread }, start.await.unwrap())
    }

    /// It is gone when this returns.
    pub(crate) async fn die(self) {
        drop(self.die);
        tokio::task::spawn_blocking(|| self.thread.join()).await.unwrap().unwrap();
    }
}

/// A wall clock that follows tokio's, which a test may have paused.
pub(crate) fn fake_clock() -> impl Fn() -> Timestamp + Send + Sync + 'static {
    let start = Instant::now();
    move || Timestamp::from_micros(1_700_000_000_000_000) + start.elapsed()
}

/// How the first task of a run stands in a store.
pub(crate) async fn life(store: &Arc<dyn Store>, run: RunId) -> Life {
    let view = store.run(run).await.unwrap().expect("the run exists");
    view.tasks[0].life.clone()
}

/// Waits until the first task of a run stands so.
pub(crate) async fn until_kind(store: &Arc<dyn Store>, run: RunId, kind: Kind) {
    let stands = async || life(store, run).await.state.kind() == kind;
    until(&format!("that it is {kind}"), stands).await;
}

/// What was recorded of a run.
pub(crate) async fn recorded(store: &Arc<dyn Store>, run: RunId) -> Vec<Happened> {
    let key = store.run(run).await.unwrap().expect("the run exists").run.key;
    let records = store.records(Some(key), 0, u32::MAX).await.unwrap();
    records.into_iter().map(|record| record.what).collect()
}

/// The store contradicts itself nowhere.
pub(crate) async fn is_sound(store: &Arc<dyn Store>) {
    assert_eq!(store.audit().await.unwrap(), []);
}
