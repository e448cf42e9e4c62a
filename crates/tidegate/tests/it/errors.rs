//! What becomes of errors on their way out of a body.

use anyhow::Context as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate::engine::{Kind, Reason, TaskState};
use tidegate::{Context, SlotPool, Task, TaskError, TaskHandle, WaitError, Workflow};

const SECOND: Duration = Duration::from_secs(1);

type Boxed = Box<dyn std::error::Error + Send + Sync>;

/// A wait whose time is up.
async fn too_long(handle: &TaskHandle) -> Result<(), WaitError> {
    handle.defer_while(std::future::pending()).named("the tide").timeout(SECOND).await
}

async fn never_again(handle: &TaskHandle) -> Result<(), WaitError> {
    let look = || async { Err::<bool, _>(TaskError::permanent("no such customer")) };
    handle.defer_until(look, SECOND).await
}

async fn without_pause(handle: &TaskHandle) -> Result<(), WaitError> {
    handle.defer_until(|| async { true }, Duration::ZERO).await
}

async fn anyhows(handle: &TaskHandle, what: &str) -> anyhow::Result<()> {
    match what {
        "too long" => too_long(handle).await?,
        "never again" => never_again(handle).await?,
        "without pause" => without_pause(handle).await?,
        "in context" => too_long(handle).await.context("cannot fetch")?,
        _ => anyhow::bail!("out of paper"),
    }
    Ok(())
}

async fn boxes(handle: &TaskHandle, what: &str) -> Result<(), Boxed> {
    match what {
        "too long" => too_long(handle).await?,
        "never again" => never_again(handle).await?,
        "without pause" => without_pause(handle).await?,
        _ => Err("out of paper")?,
    }
    Ok(())
}

/// A handle outside an engine, on a slot of its own.
async fn handle() -> TaskHandle {
    TaskHandle::new(SlotPool::new(1).unwrap().acquire().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn every_usual_error_becomes_a_tasks_own_by_the_question_mark() {
    fn io() -> Result<(), TaskError> {
        Ok(std::fs::read_to_string("/nowhere/at/all").map(drop)?)
    }
    fn number() -> Result<u8, TaskError> {
        Ok("300".parse()?)
    }
    fn text(text: &str) -> Result<(), TaskError> {
        Err(text)?
    }
    fn string() -> Result<(), TaskError> {
        Err(String::from("out of ink"))?
    }
    assert!(io().unwrap_err().to_string().contains("No such file"));
    assert_eq!(number().unwrap_err().to_string(), "number too large to fit in target type");
    assert_eq!(text(&String::from("borrowed")).unwrap_err().to_string(), "borrowed");
    assert_eq!(string().unwrap_err().to_string(), "out of ink");
    let handle = handle().await;
    let error = TaskError::from(anyhows(&handle, "").await.unwrap_err());
    assert_eq!((error.to_string().as_str(), error.is_permanent()), ("out of paper", false));
    let error = TaskError::from(boxes(&handle, "").await.unwrap_err());
    assert_eq!((error.to_string().as_str(), error.is_permanent()), ("out of paper", false));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_permanent_stays_so_in_whatever_it_was_wrapped() {
    let handle = handle().await;
    let direct = TaskError::from(never_again(&handle).await.unwrap_err());
    assert!(direct.is_permanent() && direct.to_string() == "no such customer");
    let says = "the condition failed: no such customer";
    for error in [
        TaskError::from(anyhows(&handle, "never again").await.unwrap_err()),
        TaskError::from(boxes(&handle, "never again").await.unwrap_err()),
    ] {
        assert!(error.is_permanent(), "{error:?}");
        assert!(says.ends_with(&error.to_string()), "{error}");
    }
    for error in [
        TaskError::from(without_pause(&handle).await.unwrap_err()),
        TaskError::from(anyhows(&handle, "without pause").await.unwrap_err()),
        TaskError::from(boxes(&handle, "without pause").await.unwrap_err()),
    ] {
        assert!(error.is_permanent(), "{error:?}");
        assert!(error.to_string().starts_with("an interval of 0ns would check"), "{error}");
        assert_eq!(error.to_string().matches("an interval").count(), 1, "{error}");
    }
}

async fn tries(context: &mut Context<String>, handle: &TaskHandle) -> Result<(), TaskError> {
    let what = context.input().as_str();
    match what.split_once(' ') {
        Some(("directly", _)) => too_long(handle).await?,
        Some(("anyhow", what)) => anyhows(handle, what).await?,
        Some(("box", what)) => boxes(handle, what).await?,
        Some(("snooze", _)) => {
            if !context.state::<AtomicBool>()?.swap(true, Ordering::Relaxed) {
                return Err(TaskError::snooze(SECOND));
            }
        }
        _ => return Err(TaskError::permanent("what is it to do?")),
    }
    Ok(())
}

async fn tried(what: &str) -> TaskState {
    let workflow = Workflow::of(Task::new("tries", tries).retries(1)).unwrap();
    let engine = tidegate::testing::engine().state(AtomicBool::new(false));
    let report = engine.workflow(workflow).trial("tries", what).await.unwrap();
    report.tasks[0].clone()
}

async fn reads(context: &mut Context) -> anyhow::Result<u32> {
    let what: u32 = context.output("nobody").context("cannot begin")?;
    Ok(what)
}

#[tokio::test(start_paused = true)]
async fn a_body_may_return_an_error_of_any_kind_and_use_its_context() {
    let report = tidegate::testing::run(Task::new("reads", reads).retries(3), ()).await.unwrap();
    let task = &report.tasks[0];
    assert_eq!((task.kind, task.attempt), (Kind::Failed, 1), "another attempt would not mend it");
    let says = "cannot begin: task \"reads\" does not depend on a task \"nobody\"";
    assert_eq!(task.error.as_deref(), Some(says));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_timed_out_is_the_reason_in_whatever_it_was_wrapped() {
    for what in ["directly too long", "anyhow too long", "box too long", "anyhow in context"] {
        let task = tried(what).await;
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::WaitTimeout)), "{what}");
        assert_eq!(task.attempt, 2, "it is retried like a failure: {what}");
        let error = task.error.unwrap();
        let says = "the wait for the tide timed out after 1s";
        assert!(error.ends_with(says), "{what}: {error}");
        assert!(error == says || error == format!("cannot fetch: {says}"), "{what}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn classes_decide_whether_there_is_another_attempt() {
    for (what, attempts) in [("box never again", 1), ("anyhow never again", 1), ("anyhow ", 2)] {
        let task = tried(what).await;
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::Error)), "{what}");
        assert_eq!(task.attempt, attempts, "{what}");
    }
    let snoozed = tried("snooze once").await;
    assert_eq!((snoozed.kind, snoozed.attempt, snoozed.entries), (Kind::Succeeded, 1, 2));
}
