//! Tasks that block a thread of their own.

use super::gates::{is_sound, recorded};
use super::scene::*;
use super::support::*;
use crate::support::ms;
use std::sync::Arc;
use std::time::Duration;
use tidegate::engine::TaskState;
use tidegate::{
    Backoff, Context, EngineBuilder, Run, RunOutcome, Task, TaskError, TaskHandle, Workflow,
};
use tidegate_core::lifecycle::{Kind, Reason};
use tidegate_core::store::Happened;

type Done = Result<(), TaskError>;

const HOUR: Duration = Duration::from_secs(3_600);

fn with(builder: EngineBuilder, tasks: impl IntoIterator<Item = Task>) -> EngineBuilder {
    tasks.into_iter().fold(builder, |all, task| all.workflow(Workflow::of(task).unwrap()))
}

async fn ended(run: &Run) -> TaskState {
    run.wait().await.unwrap().tasks[0].clone()
}

/// Blocks until the test lets go of it; notes how often it was entered, and whether it was told.
fn blocks(context: &mut Context, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    scene.note(format!("attempt {}", handle.attempt()));
    context.state::<Arc<Block>>()?.block();
    scene.note(format!("told: {}", handle.is_cancelled()));
    Ok(())
}

/// Computes until it is told to stop.
fn until_told(context: &mut Context, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    scene.note("entered");
    // A thread that nobody tells would hold up the end of the test for ever.
    let begun = std::time::Instant::now();
    while !handle.is_cancelled() {
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody tells it");
        std::thread::yield_now();
    }
    scene.note("told");
    Err("it was told to stop".into())
}

async fn until_noted(scene: &Scene, note: &str) {
    until(note, async || scene.notes().iter().any(|it| it == note)).await;
}

/// Goes on when the place that is its input is open.
async fn held(context: &mut Context<String>) -> Done {
    context.state::<Scene>()?.at(context.input()).await;
    Ok(())
}

on_every_store! {
    async fn both_shapes_return_values_and_have_typed_input(place: Place) {
        fn plain(context: &mut Context<Vec<u64>>) -> Result<u64, TaskError> {
            context.insert("count", context.input().len())?;
            Ok(context.input().iter().sum())
        }
        fn handled(
            context: &mut Context<Vec<u64>>,
            handle: &TaskHandle,
        ) -> Result<String, std::num::ParseIntError> {
            let (sum, count): (u64, Option<u64>) =
                (context.output("plain").unwrap(), context.get("count").unwrap());
            assert!(handle.is_slot_held() && !handle.is_cancelled());
            "7".parse::<u32>().map(|_| format!("{sum} of {count:?}, {}", handle.attempt()))
        }
        let workflow = Workflow::builder("w")
            .task(Task::blocking("plain", plain))
            .task(Task::blocking("handled", handled).after(["plain"]))
            .task(Task::blocking("closure", |_: &mut Context<Vec<u64>>| Ok::<_, TaskError>(())))
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = engine.submit("w", [1, 2, 3]).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<u64>("plain").unwrap(), 6);
        assert_eq!(status.output::<String>("handled").unwrap(), "6 of Some(3), 1");
        status.output::<()>("closure").unwrap();
        until_quiet(&engine).await;
        assert_eq!(engine.slots().totals().succeeded, 3);
    }

    async fn errors_panics_and_snoozes_are_those_of_any_task(place: Place) {
        fn fails(_: &mut Context) -> Done {
            Err("it was to fail".into())
        }
        fn for_good(_: &mut Context) -> Done {
            Err(TaskError::permanent("it was to fail for good"))
        }
        fn panics(_: &mut Context) -> Done {
            panic!("boom on {}", "a thread")
        }
        fn typed(_: &mut Context<u64>) -> Done {
            Ok(())
        }
        fn snoozes(context: &mut Context) -> Done {
            let scene = context.state::<Scene>()?;
            scene.note("entered");
            match scene.notes().len() {
                1 => Err(TaskError::snooze(Duration::ZERO)),
                _ => Ok(()),
            }
        }
        let scene = Scene::default();
        let now = || Backoff::fixed(Duration::ZERO);
        let tasks = [
            Task::blocking("fails", fails).retries(1).backoff(now()),
            Task::blocking("for good", for_good).retries(1).backoff(now()),
            Task::blocking("panics", panics),
            Task::blocking("typed", typed).retries(1).backoff(now()),
            Task::blocking("snoozes", snoozes),
        ];
        let engine = scene.start(with(place.engine().slots(1), tasks)).await;
        for (name, reason, attempt, error) in [
            ("fails", Reason::Error, 2, "it was to fail"),
            ("for good", Reason::Error, 1, "it was to fail for good"),
            ("panics", Reason::Panic, 1, "panicked: boom on a thread"),
            (
                "typed",
                Reason::Error,
                1,
                "the run's input cannot be read as u64: invalid type: string \"x\", expected u64 \
                 at line 1 column 3",
            ),
        ] {
            let task = ended(&engine.submit(name, "x").await.unwrap()).await;
            assert_eq!((task.kind, task.reason), (Kind::Failed, Some(reason)), "{name}");
            assert_eq!((task.attempt, task.error.as_deref()), (attempt, Some(error)));
            until_quiet(&engine).await;
        }
        let task = ended(&engine.submit("snoozes", ()).await.unwrap()).await;
        assert_eq!((task.kind, task.attempt, task.entries), (Kind::Succeeded, 1, 2));
        until_quiet(&engine).await;
    }

    async fn a_time_out_is_reported_at_the_limit_although_the_thread_goes_on(place: Place) {
        let (scene, (release, block)) = (Scene::default(), Block::new());
        let block = Arc::new(block);
        let tasks = [Task::blocking("blocks", blocks).timeout(ms(20)), Task::new("held", held)];
        let builder = with(place.engine().slots(2), tasks).state(block.clone());
        let engine = scene.start(builder).await;
        let run = engine.submit("blocks", ()).await.unwrap();
        block.reached().await;
        let task = ended(&run).await;
        assert!(block.is_blocking(), "it is reported while it blocks");
        assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Timeout)));
        assert_eq!(task.error.as_deref(), Some("timed out after 20ms"));
        until("its slot is leaky", async || engine.slots().leaky() == 1).await;
        assert_eq!(engine.slots().in_use(), 1, "its slot is not free before it returns");
        // Others live on meanwhile, on the slot that is left.
        scene.open("open");
        assert_eq!(ended(&engine.submit("held", "open").await.unwrap()).await.kind, Kind::Succeeded);
        assert_eq!((engine.slots().leaky(), engine.slots().in_use()), (1, 1));
        release.send(()).unwrap();
        until_quiet(&engine).await;
        assert_eq!(scene.notes(), ["attempt 1", "told: true"]);
        assert_eq!(ended(&run).await, task, "that it returned changes nothing");
        assert_eq!(run.status().await.unwrap().tasks[0].kind, Kind::TimedOut);
        let totals = engine.slots().totals();
        assert_eq!((totals.timed_out, totals.succeeded, totals.executed), (1, 1, 2));
    }

    async fn it_is_told_of_a_cancel(place: Place) {
        let scene = Scene::default();
        let task = Task::blocking("until told", until_told);
        let engine = scene.start(with(place.engine().slots(1), [task])).await;
        let run = engine.submit("until told", ()).await.unwrap();
        until_noted(&scene, "entered").await;
        assert!(run.cancel().await.unwrap());
        until_noted(&scene, "told").await;
        let task = ended(&run).await;
        assert_eq!((task.kind, task.reason), (Kind::Cancelled, Some(Reason::User)));
        until_quiet(&engine).await;
        assert_eq!(scene.notes(), ["entered", "told"]);
        assert_eq!(engine.slots().totals().cancelled, 1);
    }

    async fn it_is_told_of_its_time_out_and_deadline(place: Place) {
        let scene = Scene::default();
        let tasks = [
            Task::blocking("timeout", until_told).timeout(ms(20)),
            Task::blocking("deadline", until_told).deadline(ms(20)),
        ];
        let engine = scene.start(with(place.engine().slots(1), tasks)).await;
        for (name, reason) in [("timeout", Reason::Timeout), ("deadline", Reason::Deadline)] {
            let task = ended(&engine.submit(name, ()).await.unwrap()).await;
            assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(reason)));
            until_quiet(&engine).await;
        }
        assert_eq!(scene.notes(), ["entered", "told", "entered", "told"]);
    }

    async fn cancelled_while_it_blocks_it_is_over_at_once_and_its_success_changes_nothing(
        place: Place
    ) {
        let (scene, (release, block)) = (Scene::default(), Block::new());
        let block = Arc::new(block);
        let tasks = [Task::blocking("blocks", blocks), Task::new("held", held)];
        let builder = with(place.engine().slots(1), tasks).state(block.clone());
        let engine = scene.start(builder).await;
        let run = engine.submit("blocks", ()).await.unwrap();
        block.reached().await;
        assert!(run.cancel().await.unwrap());
        assert_eq!(ended(&run).await.kind, Kind::Cancelled);
        until("its slot is leaky", async || engine.slots().leaky() == 1).await;
        let next = engine.submit("held", "open").await.unwrap();
        until_is(&next, "held", Kind::Claimed).await;
        assert!(block.is_blocking() && engine.slots().in_use() == 1, "the next waits for the slot");
        scene.open("open");
        release.send(()).unwrap();
        assert_eq!(ended(&next).await.kind, Kind::Succeeded);
        until_quiet(&engine).await;
        assert_eq!(run.status().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        assert!(engine.audit().await.unwrap().is_empty());
    }

    async fn cancelled_before_it_began_it_never_begins(place: Place) {
        let (scene, (_release, block)) = (Scene::default(), Block::new());
        let block = Arc::new(block);
        let tasks = [Task::blocking("blocks", blocks), Task::new("held", held)];
        let builder = with(place.engine().slots(1), tasks).state(block.clone());
        let engine = scene.start(builder).await;
        let other = engine.submit("held", "other").await.unwrap();
        scene.reached("other").await;
        let run = engine.submit("blocks", ()).await.unwrap();
        until_is(&run, "blocks", Kind::Claimed).await;
        until("it stands in line", async || engine.slots().waiting() == 1).await;
        assert!(run.cancel().await.unwrap());
        until("it has left the line", async || engine.slots().waiting() == 0).await;
        scene.open("other");
        assert_eq!(ended(&other).await.kind, Kind::Succeeded);
        until_quiet(&engine).await;
        let task = ended(&run).await;
        assert_eq!((task.kind, task.entries), (Kind::Cancelled, 0));
        assert_eq!(scene.notes(), [] as [String; 0]);
        assert_eq!(engine.slots().totals().executed, 1, "what never began was not executed");
    }

    async fn after_a_time_out_it_is_tried_again_beside_the_thread_that_goes_on(place: Place) {
        fn first_time(context: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
            if handle.attempt() == 1 {
                context.state::<Arc<Block>>()?.block();
            }
            Ok(handle.attempt())
        }
        let (scene, (release, block)) = (Scene::default(), Block::new());
        let block = Arc::new(block);
        let task = Task::blocking("first", first_time).timeout(ms(500)).retries(1);
        let task = task.backoff(Backoff::fixed(Duration::ZERO));
        let engine = scene.start(with(place.engine().slots(2), [task]).state(block.clone())).await;
        let run = engine.submit("first", ()).await.unwrap();
        let status = run.wait().await.unwrap();
        assert!(block.is_blocking());
        assert_eq!(status.output::<u32>("first").unwrap(), 2);
        assert_eq!(recorded(engine.store(), run.id()).await, [Happened::Retried, Happened::Succeeded]);
        until("the first is leaky", async || {
            (engine.slots().leaky(), engine.slots().in_use()) == (1, 1)
        })
        .await;
        release.send(()).unwrap();
        until_quiet(&engine).await;
        assert_eq!(run.status().await.unwrap().tasks[0].attempt, 2);
    }

    async fn after_a_time_out_its_next_attempt_waits_for_the_only_slot(place: Place) {
        let (scene, (release, block)) = (Scene::default(), Block::new());
        let block = Arc::new(block);
        let task = Task::blocking("blocks", blocks).timeout(ms(500)).retries(1);
        let task = task.backoff(Backoff::fixed(Duration::ZERO));
        let engine = scene.start(with(place.engine().slots(1), [task]).state(block.clone())).await;
        let run = engine.submit("blocks", ()).await.unwrap();
        block.reached().await;
        until("it is to be tried again", async || look(&run, "blocks").await.attempt == 2).await;
        until("it queues", async || engine.slots().waiting() == 1).await;
        assert_eq!(scene.notes(), ["attempt 1"]);
        assert!(block.is_blocking());
        // Both go on: the first for nothing, the second with the slot.
        release.send(()).unwrap();
        release.send(()).unwrap();
        assert_eq!(ended(&run).await.kind, Kind::Succeeded);
        let notes = ["attempt 1", "told: true", "attempt 2", "told: false"];
        assert_eq!(scene.notes(), notes);
        until_quiet(&engine).await;
    }

    async fn a_shutdown_gives_it_its_grace(place: Place) {
        let (scene, (release, block)) = (Scene::default(), Block::new());
        let block = Arc::new(block);
        let task = Task::blocking("blocks", blocks);
        let engine = scene.start(with(place.engine(), [task]).state(block.clone())).await;
        let run = engine.submit("blocks", ()).await.unwrap();
        block.reached().await;
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        engine.closing().await;
        release.send(()).unwrap();
        let report = shutdown.await.unwrap();
        assert_eq!((report.finished, report.handed_back), (1, vec![]));
        assert_eq!(ended(&run).await.kind, Kind::Succeeded);
        assert_eq!(scene.notes(), ["attempt 1", "told: false"]);
    }

    async fn after_its_grace_it_is_told_handed_back_and_not_waited_for(place: Place) {
        let (scene, (release, block)) = (Scene::default(), Block::new());
        let block = Arc::new(block);
        let task = || Task::blocking("blocks", blocks);
        let engine = scene.start(with(place.engine(), [task()]).state(block.clone())).await;
        let run = engine.submit("blocks", ()).await.unwrap();
        block.reached().await;
        let report = engine.shutdown(Duration::ZERO).await;
        assert!(block.is_blocking(), "the thread is not waited for");
        let it = [(run.id(), "blocks".to_owned())];
        assert_eq!((report.finished, report.handed_back.as_slice()), (0, &it[..]));
        assert_eq!(report.dropped, it);
        let store = place.store().await;
        assert_eq!(recorded(&store, run.id()).await, [Happened::HandedBack]);
        assert_eq!(look(&run, "blocks").await.kind, Kind::Ready);

        // It goes on elsewhere, where nothing blocks it.
        let (next_release, next_block) = Block::new();
        next_release.send(()).unwrap();
        let next_scene = Scene::default();
        let builder = with(place.engine(), [task()]).state(Arc::new(next_block));
        let next = next_scene.start(builder).await;
        let task = ended(&next.run(run.id()).await.unwrap()).await;
        assert_eq!((task.kind, task.attempt, task.entries), (Kind::Succeeded, 1, 2));
        release.send(()).unwrap();
        until_noted(&scene, "told: true").await;
        assert_eq!(next.run(run.id()).await.unwrap().status().await.unwrap().tasks[0].entries, 2);
        is_sound(next.store()).await;
    }

    async fn one_that_minds_being_told_ends_before_it_is_given_up(place: Place) {
        fn tells(context: &mut Context, handle: &TaskHandle) -> Result<&'static str, TaskError> {
            let _ = until_told(context, handle);
            Ok("tidied up")
        }
        let scene = Scene::default();
        let engine = scene.start(with(place.engine(), [Task::blocking("tells", tells)])).await;
        let run = engine.submit("tells", ()).await.unwrap();
        until_noted(&scene, "entered").await;
        let report = engine.shutdown(Duration::ZERO).await;
        assert_eq!((report.finished, report.handed_back), (1, vec![]));
        assert_eq!(run.wait().await.unwrap().output::<String>("tells").unwrap(), "tidied up");
    }
}

/// The thread of the runtime is the only one, and the blocking task waits for an async one on it.
async fn others_run_meanwhile(place: Place) {
    fn waits_for_another(context: &mut Context) -> Done {
        context.state::<Arc<Block>>()?.block();
        Ok(())
    }
    async fn lets_go(context: &mut Context) -> Done {
        context
            .state::<std::sync::Mutex<std::sync::mpsc::Sender<()>>>()?
            .lock()
            .unwrap()
            .send(())?;
        Ok(())
    }
    let (release, block) = Block::new();
    let tasks = [Task::blocking("blocks", waits_for_another), Task::new("lets go", lets_go)];
    let builder = with(place.engine().slots(2), tasks).state(Arc::new(block));
    let engine = builder.state(std::sync::Mutex::new(release)).start().await.unwrap();
    let blocks = engine.submit("blocks", ()).await.unwrap();
    until_is(&blocks, "blocks", Kind::Active).await;
    let lets_go = engine.submit("lets go", ()).await.unwrap();
    assert_eq!(ended(&lets_go).await.kind, Kind::Succeeded);
    assert_eq!(ended(&blocks).await.kind, Kind::Succeeded);
}

#[tokio::test]
async fn it_holds_up_nobody_on_a_runtime_of_one_thread() {
    within(others_run_meanwhile(Place::memory())).await;
}

#[tokio::test]
#[cfg(feature = "sqlite")]
async fn it_holds_up_nobody_on_a_runtime_of_one_thread_with_a_file() {
    within(others_run_meanwhile(Place::sqlite())).await;
}
