//! Panics of the user's code between the body and the report of its end: each is a failure of the
//! attempt, and nothing is entered again for nothing.

use super::scene::*;
use super::support::*;
use serde::{Serialize, Serializer};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate::engine::TaskState;
use tidegate::{Backoff, Context, Engine, Task, TaskError, TaskHandle, Workflow, condition};
use tidegate_core::lifecycle::{Kind, Reason};

type Done = Result<(), TaskError>;

/// An error that panics in one of these ways.
#[derive(Clone, Copy, PartialEq)]
enum Rotten {
    Display,
    Source,
    Drop,
}

impl fmt::Debug for Rotten {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("boom in debug")
    }
}

impl fmt::Display for Rotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rotten::Display => panic!("boom in the words"),
            _ => f.write_str("rotten"),
        }
    }
}

impl Error for Rotten {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Rotten::Source => panic!("boom in the causes"),
            _ => None,
        }
    }
}

/// The same, of which the destructor panics.
#[derive(Debug)]
struct RottenBox(Rotten);

impl fmt::Display for RottenBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for RottenBox {}

impl Drop for RottenBox {
    fn drop(&mut self) {
        if self.0 == Rotten::Drop && !std::thread::panicking() {
            panic!("boom in the destructor of the error");
        }
    }
}

/// A value that panics when it is dropped, unless that would end the process.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("boom in a destructor");
        }
    }
}

impl Serialize for Bomb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

async fn nothing(_: &mut Context) -> Done {
    Ok(())
}

async fn words(_: &mut Context) -> Done {
    Err(Rotten::Display)?
}

fn blocking_words(_: &mut Context) -> Done {
    Err(Rotten::Display)?
}

async fn causes(_: &mut Context) -> Done {
    Err(Rotten::Source)?
}

async fn error_dropped(_: &mut Context) -> Done {
    Err(RottenBox(Rotten::Drop))?
}

async fn output_dropped(_: &mut Context) -> Result<Bomb, TaskError> {
    Ok(Bomb)
}

fn blocking_output_dropped(_: &mut Context) -> Result<Bomb, TaskError> {
    Ok(Bomb)
}

/// A future that panics when it is dropped, although it has returned.
struct RottenFuture;

impl Future for RottenFuture {
    type Output = Done;

    fn poll(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Done> {
        std::task::Poll::Ready(Ok(()))
    }
}

impl Drop for RottenFuture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("boom in the destructor of the future");
        }
    }
}

fn future_dropped(_: &mut Context) -> RottenFuture {
    RottenFuture
}

async fn condition_words(_: &mut Context, handle: &TaskHandle) -> Done {
    let check = condition::check(|| Err::<bool, _>(Rotten::Display));
    Ok(handle.defer_until(check, Duration::from_secs(1)).await?)
}

async fn condition_dropped(_: &mut Context, handle: &TaskHandle) -> Done {
    let (bomb, mut looks) = (Bomb, 0);
    let check = condition::check(move || {
        let _bomb = &bomb;
        looks += 1;
        looks > 2
    });
    Ok(handle.defer_until(check, Duration::from_millis(1)).await?)
}

async fn mapped(_: &mut Context, handle: &TaskHandle) -> Done {
    let wait = handle.sleep(Duration::from_millis(1));
    Ok(wait.map(|()| panic!("boom in map")).await?)
}

async fn step(_: &mut Context, handle: &TaskHandle) -> Done {
    handle.step("one", async { Err::<(), _>(Rotten::Display) }).await
}

#[cfg(unix)]
fn command_words(_: &Context) -> Result<tidegate::process::Command, Rotten> {
    Err(Rotten::Display)
}

/// Runs a task that panics, with a retry, and another beside it.
async fn fails_with(place: &Place, task: Task, message: &str) -> TaskState {
    let name = task.name().to_owned();
    let task = task.retries(1).backoff(Backoff::fixed(Duration::ZERO));
    let builder = place.engine().slots(1).workflow(Workflow::of(task).unwrap());
    let nothing = Workflow::of(Task::new("nothing", nothing)).unwrap();
    let engine = builder.workflow(nothing).start().await.unwrap();
    let run = engine.submit(&name, ()).await.unwrap();
    let status = within(run.wait()).await.unwrap();
    let task = status.task(&name).unwrap().clone();
    assert_eq!((task.kind, task.attempt, task.entries), (Kind::Failed, 2, 2), "{name}: {task:?}");
    let error = task.error.clone().unwrap_or_default();
    assert!(error.contains(message), "{name}: {error}");
    let other = engine.submit("nothing", ()).await.unwrap().wait().await.unwrap();
    assert_eq!(other.tasks[0].kind, Kind::Succeeded, "{name}");
    until_quiet(&engine).await;
    engine.shutdown(Duration::ZERO).await;
    task
}

on_every_store! {
    async fn panic_in_the_display_of_an_error_fails_the_task_and_counts_an_attempt(place: Place) {
        let message = "panicked while its end was being reported: boom in the words";
        let mut tasks = vec![
            Task::new("words", words),
            Task::blocking("blocking", blocking_words),
            Task::new("condition", condition_words),
            Task::new("step", step),
        ];
        #[cfg(unix)]
        tasks.push(Task::command("command", command_words));
        for task in tasks {
            let ended = fails_with(&place, task, message).await;
            assert_eq!(ended.reason, Some(Reason::Panic));
        }
    }

    async fn panic_in_a_destructor_fails_the_task_and_counts_an_attempt(place: Place) {
        for (task, message) in [
            (Task::new("output", output_dropped), "boom in a destructor"),
            (Task::blocking("blocking output", blocking_output_dropped), "boom in a destructor"),
            (Task::new("future", future_dropped), "boom in the destructor of the future"),
            (Task::new("condition", condition_dropped), "boom in a destructor"),
            (Task::new("causes", causes), "boom in the causes"),
            (Task::new("map", mapped), "boom in map"),
        ] {
            let ended = fails_with(&place, task, message).await;
            assert_eq!(ended.reason, Some(Reason::Panic));
        }
        // The words of an error are its end, whatever its destructor does.
        let ended = fails_with(&place, Task::new("error", error_dropped), "rotten").await;
        assert_eq!(ended.reason, Some(Reason::Error));
    }

    async fn panic_of_a_hook_or_of_found_workflows_leaves_the_engine_alive(place: Place) {
        let hooked = Task::new("hooked", nothing).on_entry(|_| std::panic::panic_any(Bomb));
        let engine = place
            .engine()
            .workflow(Workflow::of(hooked).unwrap())
            .workflow(Workflow::of(Task::new("lost", nothing)).unwrap())
            .start()
            .await
            .unwrap();
        let run = engine.submit("hooked", ()).await.unwrap();
        assert_eq!(within(run.wait()).await.unwrap().tasks[0].kind, Kind::Succeeded);
        engine.pause_queue("default").await.unwrap();
        let lost = engine.submit("lost", ()).await.unwrap().id();
        engine.shutdown(Duration::ZERO).await;
        let finds = place.engine().find_workflows(|_, _| Err(Rotten::Display.into()));
        let engine = finds.start().await.unwrap();
        engine.unpause_queue("default").await.unwrap();
        let status = within(engine.run(lost).await.unwrap().wait()).await.unwrap();
        let error = status.tasks[0].error.clone().unwrap_or_default();
        assert_eq!((status.tasks[0].kind, error.as_str()), (Kind::Failed, "panicked: boom in the words"));
        until_quiet(&engine).await;
    }

    /// The loop of the engine is brought to panic by its clock.
    async fn loop_that_panics_leaves_its_tasks_to_other_engines(place: Place) {
        let (scene, armed) = (Scene::default(), Arc::new(AtomicBool::new(false)));
        async fn held(context: &mut Context) -> Done {
            let scene = context.state::<Scene>()?;
            let _gone = scene.note_on_drop("gone");
            scene.at("gate").await;
            Ok(())
        }
        let bomb = armed.clone();
        let clock = move || match bomb.load(Ordering::SeqCst) {
            true => panic!("boom in the loop"),
            false => tidegate::Timestamp::from(std::time::SystemTime::now()),
        };
        let store = place.store().await;
        let workflow = || Workflow::of(Task::new("held", held)).unwrap();
        let builder = Engine::builder("memory:").store(store.clone()).workflow(workflow());
        let first = builder.state(scene.clone()).clock(clock).start().await.unwrap();
        let run = first.submit("held", ()).await.unwrap();
        scene.reached("gate").await;
        armed.store(true, Ordering::SeqCst);
        assert!(within(run.wait()).await.is_err(), "those who wait are told");
        let builder = Engine::builder("memory:").store(store).workflow(workflow());
        let second = builder.state(scene.clone()).start().await.unwrap();
        within(scene.reached("gate")).await;
        assert_eq!(scene.notes(), ["gone"], "the first body was gone before the second began");
        scene.open("gate");
        let status = within(second.run(run.id()).await.unwrap().wait()).await.unwrap();
        assert_eq!((status.tasks[0].kind, status.tasks[0].entries), (Kind::Succeeded, 2));
        until_quiet(&second).await;
    }
}

#[cfg(feature = "testing")]
#[tokio::test(start_paused = true)]
async fn snooze_of_zero_does_not_spin() {
    async fn snoozes(context: &mut Context) -> Done {
        context.state::<Scene>()?.note("entered");
        Err(TaskError::snooze(Duration::ZERO))
    }
    let scene = Scene::default();
    let task = Workflow::of(Task::new("snoozes", snoozes)).unwrap();
    let engine = scene.start(tidegate::testing::engine().workflow(task)).await;
    let run = engine.submit("snoozes", ()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let entries = scene.notes().len();
    assert!((10..=601).contains(&entries), "{entries} entries in a minute");
    assert!(run.cancel().await.unwrap());
    run.wait().await.unwrap();
}

#[cfg(feature = "testing")]
#[tokio::test(start_paused = true)]
async fn engine_whose_slots_were_closed_does_not_spin() {
    let task = Workflow::of(Task::new("nothing", nothing)).unwrap();
    let engine = tidegate::testing::engine().workflow(task).start().await.unwrap();
    engine.slots().close();
    let run = engine.submit("nothing", ()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let claims = engine.metrics().claimed_total;
    assert!((2..=20).contains(&claims), "{claims} claims in a minute");
    assert!(run.cancel().await.unwrap());
    run.wait().await.unwrap();
}

#[test]
fn error_that_is_its_own_cause_ends() {
    #[derive(Debug)]
    struct Endless;
    impl fmt::Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("endless")
        }
    }
    impl Error for Endless {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }
    assert_eq!(TaskError::from(Endless).to_string(), "endless");
}
