//! Steps: what was stored is never repeated, what was not is.

use super::faults::{Blown, Faulty};
use super::gates::{Process, is_sound};
use super::scene::{Scene, look, until_is, until_quiet};
use super::support::{Place, on_every_store};
use std::time::Duration;
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Run, RunOutcome, SlotPool, Task, TaskError,
    TaskHandle, Workflow,
};
use tidegate_core::lifecycle::{Kind, Reason};

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

fn one(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

/// A step that notes that it is done, and comes to its name with a number.
async fn noted(handle: &TaskHandle, scene: &Scene, name: &str) -> Result<String, TaskError> {
    let work = async {
        assert!(handle.is_slot_held());
        scene.note(name);
        Ok::<_, TaskError>(format!("{name} {}", scene.notes().len()))
    };
    handle.step(name, work).await
}

/// Two steps with a place to stop in each, and behind each.
async fn two(context: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let scene = context.state::<Scene>()?;
    let mut came_to = Vec::new();
    for (name, inside, behind) in [("a", "in a", "behind a"), ("b", "in b", "behind b")] {
        let work = async {
            scene.note(name);
            scene.at(inside).await;
            Ok::<_, TaskError>(scene.notes().len())
        };
        came_to.push(handle.step(name, work).await?);
        handle.defer_while(scene.at(behind)).await?;
    }
    Ok(format!("{came_to:?}"))
}

/// Fails twice, behind the first step and in the second.
async fn fails(context: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let scene = context.state::<Scene>()?;
    let first = noted(handle, &scene, "first").await?;
    if handle.attempt() == 1 {
        return Err("behind the first step".into());
    }
    let second = handle.step("second", async {
        scene.note("second");
        match handle.attempt() {
            2 => Err(TaskError::from("in the second step")),
            attempt => Ok(attempt),
        }
    });
    let second = second.await?;
    if handle.attempt() == 3 {
        return later(&scene, &first, second);
    }
    Ok(format!("{first} {second}"))
}

/// Runs again later, once.
fn later(scene: &Scene, first: &str, second: u32) -> Result<String, TaskError> {
    let snoozed = scene.notes().iter().any(|note| note == "snoozed");
    match snoozed {
        true => Ok(format!("{first}, {second}")),
        false => {
            scene.note("snoozed");
            Err(TaskError::snooze(Duration::ZERO))
        }
    }
}

/// A step whose type depends on the attempt.
async fn another_type(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    match handle.attempt() {
        1 => {
            handle.step("typed", async { Ok::<_, TaskError>("a word".to_owned()) }).await?;
            Err("try again".into())
        }
        _ => handle.step("typed", async { Ok::<_, TaskError>(1_u64) }).await.map(drop),
    }
}

/// Three steps of one name, and of others.
async fn one_name(context: &mut Context, handle: &TaskHandle) -> Result<Vec<String>, TaskError> {
    let scene = context.state::<Scene>()?;
    let mut came_to = Vec::new();
    for name in ["x", "y", "x", "x"] {
        came_to.push(noted(handle, &scene, name).await?);
    }
    match handle.attempt() {
        1 => Err("try again".into()),
        _ => Ok(came_to),
    }
}

async fn too_large(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    context.state::<Scene>()?.note("entered");
    handle.step("large", async { Ok::<_, TaskError>("x".repeat(20 << 20)) }).await.map(drop)
}

/// A step that waits without its slot.
async fn waits(_: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    let work = async { Ok::<u32, TaskError>(handle.wait_for_signal_as("go").await?) };
    let received = handle.step("waits", work).await?;
    assert!(handle.is_slot_held());
    Ok(received)
}

/// Five steps, and nothing else.
async fn five(context: &mut Context, handle: &TaskHandle) -> Result<Vec<String>, TaskError> {
    let scene = context.state::<Scene>()?;
    let mut came_to = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        came_to.push(noted(handle, &scene, name).await?);
    }
    Ok(came_to)
}

fn with_all(engine: EngineBuilder, scene: &Scene) -> EngineBuilder {
    let retried = |task: Task| task.retries(3).backoff(Backoff::fixed(Duration::ZERO));
    engine
        .workflow(one(Task::new("two", two)))
        .workflow(one(retried(Task::new("fails", fails))))
        .workflow(one(retried(Task::new("another type", another_type))))
        .workflow(one(retried(Task::new("one name", one_name))))
        .workflow(one(retried(Task::new("too large", too_large))))
        .workflow(one(Task::new("waits", waits)))
        .workflow(one(Task::new("five", five)))
        .state(scene.clone())
}

async fn started(place: &Place) -> (Scene, Engine) {
    let scene = Scene::default();
    let engine = with_all(place.engine(), &scene).start().await.unwrap();
    (scene, engine)
}

async fn output<T: serde::de::DeserializeOwned>(run: &Run, task: &str) -> T {
    run.wait().await.unwrap().output(task).unwrap()
}

on_every_store! {
    async fn one_that_was_stored_is_not_repeated_and_one_that_was_not_is(place: Place) {
        let scene = Scene::default();
        scene.open("in a");
        let engine = with_all(place.engine(), &scene);
        let (process, engine) = Process::start(engine).await;
        let run = engine.submit("two", ()).await.unwrap();
        let id = run.id();
        scene.reached("behind a").await;
        scene.open("behind a");
        scene.reached("in b").await;
        drop((engine, run));
        process.die().await;
        place.bury_workers();

        let (process, engine) = Process::start(with_all(place.engine(), &scene)).await;
        scene.reached("in b").await;
        assert_eq!(scene.notes(), ["a", "b", "b"]);
        scene.open("in b");
        scene.reached("behind b").await;
        drop(engine);
        process.die().await;
        place.bury_workers();

        let engine = with_all(place.engine(), &scene).start().await.unwrap();
        scene.reached("behind b").await;
        scene.open("behind b");
        let run = engine.run(id).await.unwrap();
        assert_eq!(output::<String>(&run, "two").await, "[1, 3]");
        assert_eq!(scene.notes(), ["a", "b", "b"]);
        assert_eq!(look(&run, "two").await.entries, 3);
        is_sound(engine.store()).await;
    }

    async fn one_that_was_stored_is_not_repeated_after_a_hand_back(place: Place) {
        let (scene, engine) = started(&place).await;
        scene.open("in a");
        scene.open("in b");
        let run = engine.submit("two", ()).await.unwrap();
        let id = run.id();
        scene.reached("behind a").await;
        until_is(&run, "two", Kind::Deferred).await;
        engine.shutdown(HOUR).await;
        drop((engine, run));
        scene.open("behind a");
        scene.open("behind b");
        let engine = with_all(place.engine(), &scene).start().await.unwrap();
        let run = engine.run(id).await.unwrap();
        assert_eq!(output::<String>(&run, "two").await, "[1, 2]");
        assert_eq!(scene.notes(), ["a", "b"]);
    }

    async fn across_attempts_what_was_stored_stays_and_an_error_is_not_stored(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("fails", ()).await.unwrap();
        assert_eq!(output::<String>(&run, "fails").await, "first 1, 3");
        assert_eq!(scene.notes(), ["first", "second", "second", "snoozed"]);
        assert_eq!(look(&run, "fails").await.attempt, 3);
    }

    async fn one_of_another_type_fails_for_good_by_name(place: Place) {
        let (_, engine) = started(&place).await;
        let status = engine.submit("another type", ()).await.unwrap().wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::Error)));
        assert_eq!(task.attempt, 2, "another attempt would not mend it");
        let error = task.error.as_deref().unwrap();
        assert!(error.contains("step \"typed\"") && error.contains("u64"), "{error}");
    }

    async fn those_of_one_name_are_told_apart_by_their_order(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("one name", ()).await.unwrap();
        assert_eq!(output::<Vec<String>>(&run, "one name").await, ["x 1", "y 2", "x 3", "x 4"]);
        assert_eq!(scene.notes(), ["x", "y", "x", "x"]);
    }

    async fn one_that_comes_to_too_much_fails_and_says_so(place: Place) {
        let (scene, engine) = started(&place).await;
        let status = engine.submit("too large", ()).await.unwrap().wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        let error = status.tasks[0].error.as_deref().unwrap();
        assert!(error.contains("what step \"large\" came to"), "{error}");
        assert!(!scene.notes().is_empty());
    }

    async fn one_may_wait_without_the_slot(place: Place) {
        let scene = Scene::default();
        let engine = with_all(place.engine().slots(1), &scene).start().await.unwrap();
        let run = engine.submit("waits", ()).await.unwrap();
        until_is(&run, "waits", Kind::Deferred).await;
        assert_eq!(engine.slots().in_use(), 0);
        run.signal("go", 4).await.unwrap();
        assert_eq!(output::<u32>(&run, "waits").await, 4);
        until_quiet(&engine).await;
    }

    async fn whatever_request_goes_wrong_each_is_done_once(place: Place) {
        for how in [Blown::Fails, Blown::Lost] {
            for requests in 0..10 {
                let (faulty, scene) = (Faulty::on(&place).await, Scene::default());
                let engine = with_all(faulty.engine(), &scene).start().await.unwrap();
                let run = engine.submit("five", ()).await.unwrap();
                faulty.blow_after(requests, how);
                let came_to: Vec<String> = output(&run, "five").await;
                assert_eq!(came_to, ["a 1", "b 2", "c 3", "d 4", "e 5"], "{how:?} {requests}");
                assert_eq!(scene.notes(), ["a", "b", "c", "d", "e"], "{how:?} {requests}");
                is_sound(engine.store()).await;
                engine.shutdown(HOUR).await;
            }
        }
    }

    async fn whenever_the_process_dies_only_the_one_that_was_not_stored_is_repeated(place: Place) {
        let names = ["a", "b", "c", "d", "e"];
        for how in [Blown::Before, Blown::After] {
            for requests in 0..10 {
                let (faulty, scene) = (Faulty::on(&place).await, Scene::default());
                let (process, engine) = Process::start(with_all(faulty.engine(), &scene)).await;
                let run = engine.submit("five", ()).await.unwrap();
                let id = run.id();
                faulty.blow_after(requests, how);
                let done = async { drop(run.wait().await) };
                tokio::select! { () = faulty.blown() => {}, () = done => {} }
                let before = scene.notes();
                drop((engine, run));
                process.die().await;
                drop(faulty);
                place.bury_workers();

                let engine = with_all(place.engine(), &scene).start().await.unwrap();
                let run = engine.run(id).await.unwrap();
                let came_to: Vec<String> = output(&run, "five").await;
                let order: Vec<&str> = came_to.iter().map(|step| &step[..1]).collect();
                assert_eq!(order, names);
                let notes = scene.notes();
                // The last before the death may not have been stored, and no other.
                let repeated = notes.len() - names.len();
                let what = format!("{how:?} after {requests} requests: {before:?}, {notes:?}");
                assert!(repeated <= 1, "{what}");
                if repeated == 1 {
                    assert_eq!(notes[before.len()], before[before.len() - 1], "{what}");
                }
                is_sound(engine.store()).await;
                engine.shutdown(HOUR).await;
            }
        }
    }
}

#[tokio::test]
async fn outside_an_engine_it_is_done_each_time() {
    let handle = TaskHandle::new(SlotPool::new(1).unwrap().acquire().await.unwrap());
    for number in 0..3 {
        let came_to = handle.step("same", async { Ok::<_, TaskError>(number) }).await.unwrap();
        assert_eq!(came_to, number);
    }
    let failed = handle.step("same", async { Err::<(), _>(TaskError::from("no")) }).await;
    assert_eq!(failed.unwrap_err().to_string(), "no");
}
