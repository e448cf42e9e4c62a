//! What users test their own tasks with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tidegate::engine::{Happened, Kind};
use tidegate::error::OutputError;
use tidegate::{
    Backoff, Context, Engine, Task, TaskError, TaskHandle, Timestamp, When, Workflow, testing,
};
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);

/// The start of the year 2024.
const START: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);

async fn until_twelve_past(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.sleep_until(START + MINUTE * 12).await?;
    Ok(())
}

async fn third_time(_: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    match handle.attempt() {
        attempt @ 3.. => Ok(attempt),
        attempt => Err(format!("attempt {attempt}"))?,
    }
}

#[tokio::test(start_paused = true)]
async fn waits_and_back_offs_take_no_time_and_are_measured() {
    let report = testing::run(Task::new("until_twelve_past", until_twelve_past), ()).await.unwrap();
    assert_eq!(report.took.as_secs(), 12 * 60, "it goes by the engine's clock");
    let task = Task::new("third", third_time).retries(2).backoff(Backoff::fixed(MINUTE));
    let report = testing::run(task, ()).await.unwrap();
    assert_eq!((report.output::<u32>("third").unwrap(), report.took.as_secs()), (3, 120));
    let happened: Vec<_> = report.records.iter().map(|record| record.what).collect();
    assert_eq!(happened, [Happened::Retried, Happened::Retried, Happened::Succeeded]);
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_an_error_and_a_failing_task_is_not() {
    let wrong = testing::run(Task::new("third", third_time).weight(0), ()).await.unwrap_err();
    assert_eq!(wrong.to_string(), "weight of task \"third\" is 0; it must be above 0");
    let unknown = testing::engine().trial("third", ()).await.unwrap_err();
    assert_eq!(unknown.to_string(), "no workflow \"third\" was given to this engine");
    let failed = testing::run(Task::new("third", third_time), ()).await.unwrap();
    assert_eq!(failed.task("third").unwrap().error.as_deref(), Some("attempt 1"));
}

#[tokio::test]
async fn a_context_has_what_it_was_given() {
    let context = testing::context(7)
        .output("extract", "rows")
        .insert("fetch", "path", "/tmp/x")
        .item(3, [1, 2])
        .state(5_u8)
        .build::<u32>()
        .unwrap();
    assert_eq!(*context.input(), 7);
    assert_eq!(context.output::<String>("extract").unwrap(), "rows");
    assert_eq!(context.get::<String>("path").unwrap().as_deref(), Some("/tmp/x"));
    assert_eq!(context.from::<String>("fetch", "path").unwrap().as_deref(), Some("/tmp/x"));
    assert_eq!((context.item::<[u8; 2]>().unwrap(), context.item_number()), ([1, 2], 3));
    assert_eq!(*context.state::<u8>().unwrap(), 5);
    assert!(context.output::<String>("other").is_err());
    let wrong = testing::context("seven").build::<u32>().unwrap_err();
    assert!(wrong.to_string().starts_with("the run's input cannot be read as u32"), "{wrong}");
}

#[tokio::test]
async fn a_handle_has_a_slot_and_can_be_told_to_stop() {
    let handle = testing::handle();
    assert!(handle.is_slot_held() && !handle.is_cancelled());
    assert_eq!((handle.attempt(), handle.run_id()), (1, None));
    let token = CancellationToken::new();
    let handle = testing::handle_to_cancel(token.clone());
    token.cancel();
    handle.cancelled().await;
    assert!(handle.is_cancelled());
}

async fn fails(_: &mut Context) -> Result<u32, TaskError> {
    Err("no")?
}

async fn tidies(context: &mut Context) -> Result<(bool, bool, String), TaskError> {
    let stranger = context.has_succeeded("tidies").unwrap_err();
    let (good, bad) = (context.has_succeeded("third")?, context.has_succeeded("fails")?);
    assert!(context.output::<u32>("fails").is_err());
    Ok((good, bad, stranger.to_string()))
}

#[tokio::test(start_paused = true)]
async fn clean_up_can_ask_what_has_succeeded() {
    let workflow = Workflow::builder("w")
        .task(Task::new("third", third_time).retries(2))
        .task(Task::new("fails", fails).after(["third"]))
        .task(Task::new("tidies", tidies).after(["third", "fails"]).when(When::AllDone))
        .build()
        .unwrap();
    let report = testing::engine().workflow(workflow).trial("w", ()).await.unwrap();
    let (good, bad, stranger): (bool, bool, String) = report.output("tidies").unwrap();
    assert!(good && !bad);
    assert_eq!(stranger, "task \"tidies\" does not depend on a task \"tidies\"");
    assert_eq!(report.state.to_string(), "failed");
}

async fn counts(context: &mut Context) -> Result<u32, TaskError> {
    Ok(context.state::<AtomicU32>()?.fetch_add(1, Ordering::Relaxed) + 1)
}

#[tokio::test]
async fn state_can_be_shared_and_outputs_be_had_without_waiting() {
    let count = Arc::new(AtomicU32::new(0));
    let workflow = Workflow::of(Task::new("counts", counts)).unwrap();
    let builder = Engine::builder("memory:").state_arc(count.clone()).workflow(workflow);
    let engine = builder.start().await.unwrap();
    let run = engine.submit("counts", ()).await.unwrap();
    run.wait().await.unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    assert_eq!(run.output::<u32>("counts").await.unwrap(), 1);
    let status = run.status().await.unwrap();
    assert_eq!(status.tasks[0].kind, Kind::Succeeded);
    let error = status.output::<u32>("counts").unwrap_err();
    assert!(matches!(error, OutputError::NotLoaded { .. }));
    assert_eq!(
        error.to_string(),
        "status() leaves out what tasks returned; wait() and Run::output() have what \"counts\" did"
    );
    let absent = run.output::<u32>("other").await.unwrap_err();
    assert_eq!(absent.to_string(), "workflow \"counts\" has no task \"other\"");
}
