//! What a worker is told of entries as they begin and end, and outputs that are not kept.

use super::support::*;
use crate::support::ms;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidegate::engine::{EntryEvent, EntryStage, StoredEnd};
use tidegate::{Backoff, Config, Context, RunOutcome, Task, TaskError, TaskHandle, Workflow};

/// What was heard, in words.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn hear(&self) -> impl Fn(&EntryEvent<'_>) + Send + Sync + 'static {
        let heard = self.0.clone();
        move |event| {
            let what = match &event.stage {
                EntryStage::Begins { item: None, .. } => "begins".to_owned(),
                EntryStage::Begins { item: Some(item), .. } => {
                    format!("begins with {}", String::from_utf8_lossy(item))
                }
                EntryStage::Succeeded => "succeeded".to_owned(),
                EntryStage::Failed { error, is_final: true, .. } => format!("failed: {error}"),
                EntryStage::Failed { error, .. } => format!("again: {error}"),
                EntryStage::Left => "left".to_owned(),
                _ => "something else".to_owned(),
            };
            let line = format!("{} {} {what}", event.task, event.attempt);
            heard.lock().unwrap().push(line);
        }
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn fails(_: &mut Context) -> Result<(), TaskError> {
    Err("no")?
}

async fn says(context: &mut Context) -> Result<Value, TaskError> {
    context.item().map_err(Into::into)
}

on_every_store! {
    async fn every_attempt_is_heard_of_and_whether_it_is_the_last(place: Place) {
        let heard = Heard::default();
        let task = Task::new("fails", fails).retries(1).backoff(Backoff::fixed(ms(1)));
        let workflow = Workflow::of(task.on_entry(heard.hear())).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        engine.submit("fails", ()).await.unwrap().wait().await.unwrap();
        let right = ["fails 1 begins", "fails 1 again: no", "fails 2 begins", "fails 2 failed: no"];
        assert_eq!(heard.all(), right);
    }

    async fn stored_end_is_heard_of_once_the_store_has_it(place: Place) {
        let heard = Heard::default();
        let hears = |heard: &Heard| {
            let heard = heard.0.clone();
            move |end: &StoredEnd<'_>| {
                let line = format!("{} {} {:?}", end.task, end.attempt, end.how.unwrap());
                heard.lock().unwrap().push(line);
            }
        };
        let fails = Task::new("fails", fails).retries(1).backoff(Backoff::fixed(ms(1)));
        let says = Task::new("says", says).each("all");
        let workflow = Workflow::builder("both")
            .task(says.on_stored_end(hears(&heard)))
            .task(fails.on_stored_end(hears(&heard)).after(["says"]));
        let engine = place.engine().slots(1).workflow(workflow.build().unwrap());
        let engine = engine.start().await.unwrap();
        let run = engine.submit("both", json!({ "all": [1, 2] })).await.unwrap();
        run.wait().await.unwrap();
        let right = ["says[0] 1 Succeeded", "says[1] 1 Succeeded", "fails 1 Retried", "fails 2 Failed"];
        assert_eq!(heard.all(), right);
    }

    async fn a_permanent_failure_is_final_and_a_snooze_is_none(place: Place) {
        async fn snoozes(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
            static ENTRIES: Mutex<Vec<String>> = Mutex::new(Vec::new());
            let id = handle.run_id().unwrap().to_string();
            let mut entries = ENTRIES.lock().unwrap();
            if !entries.contains(&id) {
                entries.push(id);
                return Err(TaskError::snooze(ms(1)));
            }
            Err(TaskError::permanent("never"))
        }
        let heard = Heard::default();
        let task = Task::new("x", snoozes).retries(5).on_entry(heard.hear());
        let engine = place.engine().workflow(Workflow::of(task).unwrap()).start().await.unwrap();
        engine.submit("x", ()).await.unwrap().wait().await.unwrap();
        assert_eq!(heard.all(), ["x 1 begins", "x 1 left", "x 1 begins", "x 1 failed: never"]);
    }

    async fn of_items_each_is_heard_of_in_order_on_one_slot(place: Place) {
        let heard = Heard::default();
        let task = Task::new("says", says).each("all").on_entry(heard.hear());
        let engine = place.engine().slots(1).workflow(Workflow::of(task).unwrap());
        let engine = engine.start().await.unwrap();
        let run = engine.submit("says", json!({ "all": [1, 2, 3] })).await.unwrap();
        run.wait().await.unwrap();
        let right = (0..3).flat_map(|item| {
            let begins = format!("begins with {}", item + 1);
            [&begins, "succeeded"].map(|what| format!("says[{item}] 1 {what}"))
        });
        assert_eq!(heard.all(), right.collect::<Vec<_>>());
    }

    async fn a_cancelled_task_has_left(place: Place) {
        async fn hangs(_: &mut Context) -> Result<(), TaskError> {
            std::future::pending().await
        }
        let heard = Heard::default();
        let task = Task::new("hangs", hangs).on_entry(heard.hear());
        let engine = place.engine().workflow(Workflow::of(task).unwrap()).start().await.unwrap();
        let run = engine.submit("hangs", ()).await.unwrap();
        until("it has begun", async || !heard.all().is_empty()).await;
        run.cancel().await.unwrap();
        until("it is over", async || heard.all() == ["hangs 1 begins", "hangs 1 left"]).await;
    }

    async fn so_many_are_claimed_ahead_as_was_asked_for(place: Place) {
        async fn hangs(_: &mut Context) -> Result<(), TaskError> {
            std::future::pending().await
        }
        let mut config = Config::default();
        (config.slots, config.ahead_min) = (1, 3);
        let workflow = Workflow::of(Task::new("hangs", hangs)).unwrap();
        let engine = place.engine().config(config).workflow(workflow).start().await.unwrap();
        for _ in 0..6 {
            engine.submit("hangs", ()).await.unwrap();
        }
        until("three are ahead", async || engine.metrics().ahead == 3).await;
        assert_eq!(engine.store().counts().await.unwrap().ready, 2);
        engine.shutdown_now().await;
    }

    async fn whoever_hears_may_panic(place: Place) {
        let task = Task::new("fails", fails).on_entry(|_| panic!("in the hook"));
        let engine = place.engine().workflow(Workflow::of(task).unwrap()).start().await.unwrap();
        let status = engine.submit("fails", ()).await.unwrap().wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        assert_eq!(status.tasks[0].error.as_deref(), Some("no"));
    }

    async fn what_is_not_kept_may_be_as_much_as_it_likes(place: Place) {
        async fn much(_: &mut Context) -> Result<String, TaskError> {
            Ok("x".repeat(1_000_000))
        }
        let task = || Task::new("much", much).each("all");
        let workflow = Workflow::of(task().without_output()).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let run = engine.submit("much", json!({ "all": [1, 2] })).await.unwrap();
        let status = run.wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
        assert_eq!(status.output::<Value>("much").unwrap(), Value::Null);
        engine.shutdown(ms(1_000)).await;
        // Kept, the two do not fit into one value.
        let engine = place.engine().workflow(Workflow::of(task()).unwrap()).start().await.unwrap();
        let run = engine.submit("much", json!({ "all": [1, 2] })).await.unwrap();
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Failed));
    }

    async fn without_output_a_task_leaves_what_it_put_into_the_context(place: Place) {
        async fn puts(context: &mut Context) -> Result<u64, TaskError> {
            context.insert("seven", 7)?;
            Ok(8)
        }
        async fn reads(context: &mut Context) -> Result<(Value, Option<u64>), TaskError> {
            Ok((context.output("puts")?, context.get("seven")?))
        }
        let workflow = Workflow::builder("both")
            .task(Task::new("puts", puts).without_output())
            .task(Task::new("reads", reads).after(["puts"]));
        let workflow = workflow.build().unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = engine.submit("both", ()).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<Value>("reads").unwrap(), json!([null, 7]));
    }
}

/// On one slot nothing begins before the one before it was heard to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_is_heard_of_before_its_slot_is_free() {
    let heard = Heard::default();
    let task = Task::new("fails", fails).on_entry(heard.hear());
    let engine = tidegate::Engine::builder("memory:").slots(1);
    let engine = engine.workflow(Workflow::of(task).unwrap()).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..200 {
        runs.push(engine.submit("fails", ()).await.unwrap());
    }
    for run in runs {
        run.wait().await.unwrap();
    }
    let heard = heard.all();
    assert_eq!(heard.len(), 400);
    for two in heard.chunks(2) {
        assert_eq!(two, ["fails 1 begins", "fails 1 failed: no"]);
    }
}
