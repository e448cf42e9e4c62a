//! Limits: what all workers of a store share is never used by more than it is for.
//!
//! - `counted`: how many compute at once, counted in units and by key; several limits together.
//! - `held`: who keeps a limit and who gives it back.
//! - `declared`: how limits come to be and change, and what is refused.
//! - `line`: who stands behind a full limit, and who is next.
//! - `rates`: how many begin in how much time.

mod counted;
mod declared;
mod held;
mod line;
mod rates;

use super::scene::Scene;
use super::support::until;
use crate::support::Crowd;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::{Context, Engine, EngineBuilder, Run, RunOutcome, Task, TaskError, Value, Workflow};

type Done = Result<(), TaskError>;

const SECOND: Duration = Duration::from_secs(1);

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

fn one(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

/// An engine with a workflow of each of these tasks, whose bodies share a scene and crowds.
fn with(
    builder: EngineBuilder,
    scene: &Scene,
    tasks: impl IntoIterator<Item = Task>,
) -> EngineBuilder {
    let builder = builder.state(scene.clone());
    tasks.into_iter().fold(builder, |all, task| all.workflow(one(task)))
}

/// Computes, as one of the crowd, until the place that its input names is open. It notes that place.
async fn held(context: &mut Context) -> Done {
    let scene = context.state::<Scene>()?;
    let _inside = scene.crowd().enter();
    let place = place(context.input());
    scene.note(&place);
    scene.at(&place).await;
    // The longer it takes to leave, the more others may come in that should not.
    tokio::task::yield_now().await;
    Ok(())
}

/// Where somebody with this input stops: the whole of it, or its `place`.
fn place(input: &Value) -> String {
    let place = input.get("place").unwrap_or(input);
    place.as_str().expect("the input names a place").to_owned()
}

/// A crowd for each name.
#[derive(Clone, Default)]
struct Crowds(Arc<Mutex<HashMap<String, Crowd>>>);

impl Crowds {
    fn of(&self, name: &str) -> Crowd {
        self.0.lock().unwrap().entry(name.to_owned()).or_default().clone()
    }
}

/// How a limit stands for a key: units in use, and tasks that wait for it.
async fn stands(engine: &Engine, limit: &str, key: &str) -> (u32, u64) {
    let limits = engine.limits().await.unwrap();
    let found = limits.iter().find(|state| state.limit.name() == limit && state.key == key);
    found.map_or((0, 0), |state| (state.in_use, state.waiting))
}

/// Waits until a limit that has no keys stands so.
async fn until_stands(engine: &Engine, limit: &str, wanted: (u32, u64)) {
    until_stands_for(engine, limit, "", wanted).await;
}

/// Waits until a limit stands so for a key.
async fn until_stands_for(engine: &Engine, limit: &str, key: &str, wanted: (u32, u64)) {
    let mut last = (0, 0);
    for _ in 0..5_000 {
        last = stands(engine, limit, key).await;
        if last == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{limit:?} for {key:?} has {last:?} in use and waiting, not {wanted:?}");
}

/// Waits until so many of these runs have ended.
async fn until_ended(runs: &[Run], count: usize) {
    until(&format!("{count} have ended"), async || ended(runs).await == count).await;
}

async fn ended(runs: &[Run]) -> usize {
    let mut ended = 0;
    for run in runs {
        ended += usize::from(run.status().await.unwrap().outcome().is_some());
    }
    ended
}

async fn succeeds(run: &Run) {
    let status = run.wait().await.unwrap();
    assert_eq!(status.outcome(), Some(RunOutcome::Succeeded), "{status:?}");
}

async fn all_succeed<'r>(runs: impl IntoIterator<Item = &'r Run>) {
    for run in runs {
        succeeds(run).await;
    }
}

/// What a task that failed says.
async fn failure(run: &Run) -> String {
    let status = run.wait().await.unwrap();
    assert_eq!(status.outcome(), Some(RunOutcome::Failed), "{status:?}");
    status.tasks[0].error.clone().unwrap()
}

/// Nothing is in use, nobody waits, and the store contradicts itself nowhere.
async fn is_free(engine: &Engine) {
    for state in engine.limits().await.unwrap() {
        assert_eq!((state.in_use, state.waiting), (0, 0), "{state:?}");
    }
    assert_eq!(engine.audit().await.unwrap(), []);
}

/// What is asked of an engine comes back when it has done what was to do before.
async fn round_trip(engine: &Engine) {
    for _ in 0..3 {
        engine.unpause_queue("nobody's").await.unwrap();
    }
}
