//! A task that kills its process each time it runs, among neighbours.

use super::{LIFE_MAX, Place, spawn};
use crate::bare;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidegate::engine::Reason;
use tidegate::{Context, Engine, RunOutcome, Task, TaskError, TaskHandle, Workflow};

/// One task kills its process each time it runs, beside 100 that wait and 3 that compute: it ends as
/// crash_loop, and all of its neighbours succeed.
pub(crate) fn poison() {
    let place = bare::scratch();
    let began = Instant::now();
    let mut deaths = 0;
    loop {
        let mut child = spawn(place.path(), "poison");
        if child.wait().expect("a child ends").success() {
            break;
        }
        deaths += 1;
        assert!(deaths < 50, "the poison is not found out");
    }
    println!("{deaths} deaths in {:.1} s; the poison is out", began.elapsed().as_secs_f64());
}

/// How many neighbours of the poison wait, and how many compute.
const WAITING: usize = 100;
const COMPUTING: usize = 3;

/// A life with the poison: submits everything in the first, and ends when all has.
pub(super) async fn with_poison(place: &Path) {
    let workflow = |task: Task| Workflow::of(task).expect("it makes sense");
    let engine = Engine::builder(format!("sqlite:{}", place.join("jobs.db").display()))
        .slots(COMPUTING as u32 + 1)
        .workflow(workflow(Task::new("poison", die)))
        .workflow(workflow(Task::new("computing", compute)))
        .workflow(workflow(Task::new("waiting", wait_for_the_end)))
        .state(Neighbours(AtomicUsize::new(0)))
        .state(Place(place.to_owned()));
    let engine = engine.start().await.expect("the engine starts");
    let mut runs = Vec::new();
    for (workflow, count) in [("waiting", WAITING), ("computing", COMPUTING), ("poison", 1)] {
        for n in 0..count {
            // The same in every life.
            let run = engine.submit(workflow, n).key(format!("{workflow} {n}")).await;
            runs.push((workflow, run.expect("it is accepted")));
        }
    }
    let (_, poison) = runs.pop().expect("there is a poison");
    let ended = poison.wait().await.expect("it ends");
    assert_eq!(ended.tasks[0].reason, Some(Reason::CrashLoop), "{ended:?}");
    std::fs::write(place.join("end"), "").expect("a file can be written");
    for (workflow, run) in runs {
        let ended = run.wait().await.expect("it ends");
        assert_eq!(ended.outcome(), Some(RunOutcome::Succeeded), "{workflow}: {ended:?}");
        assert_eq!(ended.tasks[0].attempt, 1, "{workflow}: a death uses no attempt");
    }
    assert!(engine.audit().thorough().await.expect("the store can be read").is_empty());
    engine.shutdown(Duration::from_secs(5)).await;
}

/// How many neighbours compute in this process.
struct Neighbours(AtomicUsize);

async fn die(context: &mut Context) -> Result<(), TaskError> {
    let neighbours = context.state::<Neighbours>()?;
    let began = Instant::now();
    // With all of its neighbours, as long as they are there.
    while neighbours.0.load(Ordering::SeqCst) < COMPUTING && began.elapsed() < LIFE_MAX {
        tokio::task::yield_now().await;
    }
    std::process::abort();
}

/// Computes for longer than the poison takes to kill.
async fn compute(context: &mut Context) -> Result<(), TaskError> {
    context.state::<Neighbours>()?.0.fetch_add(1, Ordering::SeqCst);
    let began = Instant::now();
    while began.elapsed() < LIFE_MAX {
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn wait_for_the_end(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let end = context.state::<Place>()?.0.join("end");
    handle.defer_until(tidegate::condition::file(end), Duration::from_millis(20)).await?;
    Ok(())
}
