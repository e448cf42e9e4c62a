//! Tasks that stand in the store, until they have ended: without a limit, against the rival, and with
//! one.

use super::MeasuredServer;
use super::meter::{BothMeter, Reading, alternate, compared};
use super::rival;
use super::schema::ScratchSchema;
use crate::figure::{Figure, Target};
use crate::store;
use serde_json::json;
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, EngineBuilder, Limit, LimitUse, Task, TaskError, Value, Workflow};

/// Tasks in one round.
pub(super) const TASKS: usize = 20_000;

/// Slots of a worker. More of them make larger requests.
pub(super) const SLOTS: u32 = 1_024;

/// Keys of the limit. Each has room for all tasks.
const KEYS: usize = 8;

/// Items of the one big run.
pub(super) const ITEMS: u32 = 100_000;

/// A measurement that has not ended after this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(300);

async fn nothing(_: &mut Context<Value>) -> Result<(), TaskError> {
    Ok(())
}

async fn list(_: &mut Context<Value>) -> Result<Vec<u32>, TaskError> {
    Ok((0..ITEMS).collect())
}

/// An engine on the store at this URL: `nothing`, the same under a limit by key, and a run of items.
pub(super) fn engine_builder(url: &str, slots: u32) -> EngineBuilder {
    let workflow = |task| Workflow::of(task).expect("it makes sense");
    let items = Workflow::builder("items")
        .task(Task::new("list", list))
        .task(Task::new("item", nothing).after(["list"]).each("list").without_output());
    Engine::builder(url)
        .slots(slots)
        .limit(Limit::new("roomy").at_once(1_000_000))
        .workflow(workflow(Task::new("nothing", nothing)))
        .workflow(workflow(Task::new("limited", nothing).limit(LimitUse::of("roomy").by("key"))))
        .workflow(items.build().expect("it makes sense"))
}

/// Runs stand ready in the store, which is paused until [`end_all`] or a caller lets it go on.
pub(super) async fn insert_runs(url: &str, workflow: &str, count: usize) {
    let engine = engine_builder(url, 1).connect().await.expect("it starts");
    engine.pause().await.expect("the store works");
    let inputs = (0..count).map(|n| json!({ "n": n, "key": n % KEYS }));
    engine.submit_many(workflow, inputs).await.expect("accepted");
    engine.shutdown(Duration::from_secs(1)).await;
}

/// Runs all that stands in the paused store, in one worker.
pub(super) async fn end_all(server: &MeasuredServer, url: &str, count: usize) -> Reading {
    let engine = engine_builder(url, SLOTS).start().await.expect("it starts");
    let (began, meter) = (Instant::now(), BothMeter::start(server));
    engine.unpause().await.expect("the store works");
    while engine.metrics().runs_ended_total < count as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(began.elapsed() < STUCK_AFTER, "runs are left over: {:?}", engine.metrics());
    }
    let reading = meter.read(count);
    engine.shutdown(Duration::from_secs(1)).await;
    reading
}

/// Inserts and runs tasks in a schema of its own.
fn run_inserted(server: &MeasuredServer, workflow: &str, count: usize) -> Reading {
    let schema = ScratchSchema::new(&server.server);
    store::runtime().block_on(async {
        insert_runs(schema.store_url(), workflow, count).await;
        end_all(server, schema.store_url(), count).await
    })
}

pub(super) fn measure_running(server: &MeasuredServer) -> Vec<Figure> {
    rival::build_rival();
    let [ours, theirs] = alternate([
        ("engine", &mut || run_inserted(server, "nothing", TASKS)),
        (rival::NAME, &mut || rival::run_rival(server, TASKS)),
    ]);
    let what = format!("{TASKS} tasks that stand in the store, until they have ended");
    compared(&what, ours, (rival::NAME, theirs), Target::AtLeastReference(1.0))
}

pub(super) fn measure_limit(server: &MeasuredServer) -> Vec<Figure> {
    let [ours, theirs] = alternate([
        ("with a limit", &mut || run_inserted(server, "limited", TASKS)),
        ("without", &mut || run_inserted(server, "nothing", TASKS)),
    ]);
    let what = format!("{TASKS} tasks under a limit of {KEYS} keys with room");
    compared(&what, ours, ("without a limit", theirs), Target::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_tasks_end_with_and_without_a_limit() {
        let server = MeasuredServer::find_or_start();
        for workflow in ["nothing", "limited"] {
            assert!(run_inserted(&server, workflow, 100).rate > 0.0);
        }
    }
}
