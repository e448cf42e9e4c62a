//! A bound on the runs that wait in a queue.

use super::support::*;
use std::sync::Arc;
use std::time::Duration;
use tidegate::error::{Refusal, StartError, SubmitError};
use tidegate::{Context, Engine, EngineBuilder, Task, TaskError, TaskHandle, Workflow};
use tokio::sync::Semaphore;

const SOON: Duration = Duration::from_secs(5);

/// Bodies that end when they are let go.
struct Let(Arc<Semaphore>);

async fn held(context: &mut Context) -> Result<(), TaskError> {
    let gate = context.state::<Let>()?;
    gate.0.acquire().await?.forget();
    Ok(())
}

/// Waits for a run of `held` that it has begun.
async fn parent(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.run_child("held", ()).await?;
    Ok(())
}

async fn bounded(builder: EngineBuilder, gate: &Arc<Semaphore>, max: u32) -> Engine {
    let builder = builder.slots(1).waiting_max(max).state(Let(gate.clone()));
    let builder = builder.workflow(Workflow::of(Task::new("held", held)).unwrap());
    builder.workflow(Workflow::of(Task::new("parent", parent)).unwrap()).start().await.unwrap()
}

fn is_full(error: &SubmitError, max: u32) -> bool {
    let full = Refusal::QueueFull { queue: "default".to_owned(), waiting: max, max };
    matches!(error, SubmitError::Refused(refusal) if *refusal == full)
}

on_every_store! {
    async fn a_submit_beyond_what_may_wait_is_refused_until_there_is_room(place: Place) {
        let gate = Arc::new(Semaphore::new(0));
        let engine = bounded(place.engine(), &gate, 2).await;
        let first = engine.submit("held", ()).await.unwrap();
        until("it has begun", async || engine.slots().in_use() == 1).await;
        // A worker takes one ahead of its slots.
        until("one is taken ahead", async || {
            let _ = engine.submit("held", ()).await;
            engine.metrics().ahead == 1
        })
        .await;
        let error = loop {
            match engine.submit("held", ()).await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(is_full(&error, 2), "{error}");
        assert_eq!(engine.counts().await.unwrap().ready, 2);
        let text = error.to_string();
        assert!(text.starts_with("2 runs wait in queue \"default\""), "{text}");
        let elsewhere = engine.submit("held", ()).queue("elsewhere").await;
        assert!(elsewhere.is_ok(), "another queue has room of its own");
        gate.add_permits(1);
        first.wait().await.unwrap();
        until("there is room", async || engine.submit("held", ()).await.is_ok()).await;
        assert_eq!(engine.audit().await.unwrap(), []);
        gate.add_permits(100);
        engine.shutdown(SOON).await;
    }

    async fn a_task_may_begin_a_run_although_its_queue_is_full(place: Place) {
        let gate = Arc::new(Semaphore::new(0));
        let engine = bounded(place.engine(), &gate, 1).await;
        engine.pause_queue("default").await.unwrap();
        let parent = engine.submit("parent", ()).await.unwrap();
        assert!(is_full(&engine.submit("held", ()).await.unwrap_err(), 1));
        gate.add_permits(100);
        engine.unpause_queue("default").await.unwrap();
        parent.wait().await.unwrap().output::<()>("parent").unwrap();
        engine.shutdown(SOON).await;
    }

    async fn the_bound_counts_what_other_engines_have_submitted(place: Place) {
        let gate = Arc::new(Semaphore::new(0));
        let one = bounded(place.engine(), &gate, 3).await;
        one.pause_queue("default").await.unwrap();
        let other = bounded(place.engine(), &gate, 3).await;
        for engine in [&one, &other, &one] {
            engine.submit("held", ()).await.unwrap();
        }
        assert!(is_full(&other.submit("held", ()).await.unwrap_err(), 3));
        assert!(is_full(&one.submit("held", ()).await.unwrap_err(), 3));
        one.shutdown(SOON).await;
        other.shutdown(SOON).await;
    }
}

#[tokio::test]
async fn a_bound_of_nothing_is_refused() {
    let error = Engine::builder("memory:").waiting_max(0).start().await.unwrap_err();
    assert!(matches!(&error, StartError::Config(_)), "{error}");
    assert_eq!(error.to_string(), "waiting_max cannot be 0; it must be at least 1");
}
