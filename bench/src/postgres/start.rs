//! The time from a submit until a worker elsewhere starts the task, by way of a notification.

use super::MeasuredServer;
use super::bare::measure_idle_commits;
use super::meter::round_count;
use super::schema::ScratchSchema;
use crate::figure::{Figure, Target, duel};
use crate::store::{self, median_ms};
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, EngineBuilder, Task, TaskError, Value, Workflow};
use tokio::sync::mpsc;

const SAMPLES: usize = 300;

/// Submits before those that are counted.
const WARM_UP: usize = 20;

/// The pause before something is submitted to an idle store.
const PAUSE: Duration = Duration::from_millis(2);

pub(super) fn measure_start(server: &MeasuredServer) -> Vec<Figure> {
    let bare = || {
        let schema = ScratchSchema::new(&server.server);
        median_ms(store::runtime().block_on(measure_idle_commits(&schema, SAMPLES)))
    };
    let (elsewhere, commit) =
        duel(round_count(), || median_ms(start_latencies(server, true)), bare);
    let (here, commit_again) =
        duel(round_count(), || median_ms(start_latencies(server, false)), bare);
    let figure = |what: &str, value, commit, target| Figure {
        name: "P7".into(),
        what: format!("idle store, submit until the body starts {what}, p50"),
        value,
        unit: "ms".into(),
        reference: Some(("bare idle commit".into(), commit)),
        target,
    };
    vec![
        figure("in another worker", elsewhere, commit, Target::TimesReference(3.0)),
        figure("in the same", here, commit_again, Target::None),
    ]
}

/// Tells when its body starts.
struct Started(mpsc::UnboundedSender<Instant>);

async fn tell(context: &mut Context<Value>) -> Result<(), TaskError> {
    let _ = context.state::<Started>()?.0.send(Instant::now());
    Ok(())
}

fn builder(url: &str, started: mpsc::UnboundedSender<Instant>) -> EngineBuilder {
    let workflow = Workflow::of(Task::new("tell", tell)).expect("it makes sense");
    Engine::builder(url).slots(4).workflow(workflow).state(Started(started))
}

/// The times from submits until their bodies started. Two engines of one process have a store each, and
/// read one clock.
fn start_latencies(server: &MeasuredServer, is_elsewhere: bool) -> Vec<Duration> {
    let schema = ScratchSchema::new(&server.server);
    store::runtime().block_on(async {
        let (started, mut starts) = mpsc::unbounded_channel();
        let worker = builder(schema.store_url(), started.clone()).start().await;
        let worker = worker.expect("it starts");
        let submitter = match is_elsewhere {
            true => builder(schema.store_url(), started).connect().await.expect("it starts"),
            false => worker.clone(),
        };
        let submitting = submitter.clone();
        let measuring = tokio::spawn(async move {
            let mut samples = Vec::with_capacity(SAMPLES + WARM_UP);
            for n in 0..SAMPLES + WARM_UP {
                tokio::time::sleep(PAUSE).await;
                let began = Instant::now();
                let run = submitting.submit("tell", serde_json::json!({ "n": n })).await;
                let start = starts.recv().await.expect("it starts");
                samples.push(start - began);
                run.expect("it is accepted").wait().await.expect("it ends");
            }
            samples.split_off(WARM_UP)
        });
        let samples = measuring.await.expect("nothing panics");
        submitter.shutdown(Duration::from_secs(1)).await;
        worker.shutdown(Duration::from_secs(1)).await;
        samples
    })
}
