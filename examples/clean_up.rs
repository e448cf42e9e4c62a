//! What becomes of the tasks of a workflow when one in the middle fails for good.
//!
//! Run it with `cargo run --release --example clean_up`. `deploy` fails, so that nothing that needs it
//! runs and what waits is cancelled; the tasks that say `when = any_failed` or `when = all_done` are
//! the clean-up and run all the same.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::engine::{Kind, Reason};
use tidegate::{Context, Engine, RunOutcome, TaskError, TaskHandle, Workflow, task};

/// What is rented at this moment.
type Rented = Arc<Mutex<Vec<String>>>;

#[task]
async fn rent(context: &mut Context) -> Result<String, TaskError> {
    let machine = "machine 7".to_owned();
    context.state::<Rented>()?.lock().expect("nobody panics with it").push(machine.clone());
    Ok(machine)
}

/// Retried like any failure, unless the task says that it would not help.
#[task(after = [rent], retries = 5)]
async fn deploy(_: &mut Context) -> Result<(), TaskError> {
    Err(TaskError::permanent("the package is for another architecture"))
}

#[task(after = [deploy])]
async fn measure(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(after = [measure])]
async fn publish(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

/// Has nothing to do with the failure, but would hold the failed run open.
#[task(after = [rent])]
async fn approval(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    Ok(handle.sleep(Duration::from_secs(3600)).named("somebody to approve").await?)
}

#[task(after = [deploy], when = any_failed)]
async fn alarm(_: &mut Context) -> Result<(), TaskError> {
    println!("alarm: the deployment has failed");
    Ok(())
}

/// Runs however the others ended, so it cannot take for granted that there is something to give back.
#[task(after = [rent, publish], when = all_done)]
async fn give_back(context: &mut Context) -> Result<(), TaskError> {
    if context.has_succeeded(rent::ID)? {
        let machine: String = context.output(rent::ID)?;
        let rented = context.state::<Rented>()?;
        rented.lock().expect("nobody panics with it").retain(|it| *it != machine);
        println!("give_back: {machine} is given back");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let benchmark = Workflow::builder("benchmark")
        .task(rent::task())
        .task(deploy::task())
        .task(measure::task())
        .task(publish::task())
        .task(approval::task())
        .task(alarm::task())
        .task(give_back::task())
        .build()?;
    let rented = Rented::default();
    let engine =
        Engine::builder("memory:").workflow(benchmark).state(rented.clone()).start().await?;
    let status = engine.submit("benchmark", ()).await?.wait().await?;

    println!("\n{:<11}{:<11}{:<11}in words", "task", "is", "because of");
    for task in &status.tasks {
        let reason = task.reason.map(|reason| reason.to_string()).unwrap_or_default();
        let error = task.error.as_deref().unwrap_or_default();
        println!("{:<11}{:<11}{reason:<11}{error}", task.name, task.kind);
    }
    let ends: Vec<_> = status.tasks.iter().map(|task| (task.kind, task.reason)).collect();
    let expected = [
        (Kind::Succeeded, None),
        (Kind::Failed, Some(Reason::Error)),
        (Kind::Skipped, None),
        (Kind::Skipped, None),
        (Kind::Cancelled, Some(Reason::FailFast)),
        (Kind::Succeeded, None),
        (Kind::Succeeded, None),
    ];
    assert_eq!(ends, expected);
    assert_eq!(status.tasks[1].attempt, 1, "what is permanent is not tried again");
    assert_eq!(status.outcome(), Some(RunOutcome::Failed));
    assert!(rented.lock().expect("nobody panics with it").is_empty());
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
