//! The four clocks of a task: how long it may compute, wait, queue, and take in all.

mod jumps;

use super::scene::*;
use super::support::*;
use crate::support::ms;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate::engine::TaskState;
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, OnFailure, Run, RunOutcome, Task, TaskError,
    TaskHandle, Timestamp, WaitError, Workflow,
};
use tidegate_core::lifecycle::{Kind, Reason};
use tidegate_core::store::Happened;
use tokio::time::Instant;

type Done = Result<(), TaskError>;

const HOUR: Duration = Duration::from_secs(3_600);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn with(builder: EngineBuilder, tasks: impl IntoIterator<Item = Task>) -> EngineBuilder {
    tasks.into_iter().fold(builder, |all, task| all.workflow(Workflow::of(task).unwrap()))
}

/// Goes on when the place that is its input is open.
async fn held(context: &mut Context<String>) -> Done {
    let scene = context.state::<Scene>()?;
    let _gone = scene.note_on_drop("a body is gone");
    scene.at(context.input()).await;
    Ok(())
}

/// Waits until the place that is its input is open.
async fn waits(context: &mut Context<String>, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    let _gone = scene.note_on_drop("a body is gone");
    handle.defer_while(scene.at(context.input())).await?;
    Ok(())
}

async fn hangs(context: &mut Context<String>, handle: &TaskHandle) -> Done {
    context.state::<Scene>()?.note(format!("attempt {}", handle.attempt()));
    std::future::pending().await
}

async fn ended(run: &Run) -> TaskState {
    run.wait().await.unwrap().tasks[0].clone()
}

/// Wall and monotonic time as one, for a runtime whose time is paused. Memory only: while another
/// store's thread is at work, such a runtime would take itself for idle, and its time would run.
fn on_paused_time() -> EngineBuilder {
    let begun = Instant::now();
    Place::memory()
        .engine()
        .slots(1)
        .clock(move || Timestamp::from_micros(1_700_000_000_000_000) + begun.elapsed())
}

/// Computes and waits by turns, for the seconds of its input.
async fn by_turns(context: &mut Context<Vec<(u64, u64)>>, handle: &TaskHandle) -> Done {
    for &(computes, waits) in context.input() {
        tokio::time::sleep(secs(computes)).await;
        handle.sleep(secs(waits)).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn only_the_time_it_computes_counts_and_waits_do_not_reset_it() {
    let task = Task::new("by turns", by_turns).timeout(secs(10));
    let engine = with(on_paused_time(), [task]).start().await.unwrap();
    let begun = Instant::now();
    let run = engine.submit("by turns", [(4, 600), (4, 600), (1, 0)]).await.unwrap();
    assert_eq!(ended(&run).await.kind, Kind::Succeeded, "it computed for nine seconds");
    assert!(begun.elapsed() > secs(1_200));
    let begun = Instant::now();
    let run = engine.submit("by turns", [(4, 600), (4, 600), (4, 0)]).await.unwrap();
    let task = ended(&run).await;
    assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Timeout)));
    let late = begun.elapsed() - secs(1_210);
    assert!(late < ms(100), "it was ended {late:?} too late");
}

#[tokio::test(start_paused = true)]
async fn queueing_for_the_slot_does_not_count() {
    let tasks = [Task::new("by turns", by_turns).timeout(secs(10)), Task::new("other", by_turns)];
    let engine = with(on_paused_time(), tasks).start().await.unwrap();
    // It waits for one second and then queues for a minute behind the other, which holds the slot.
    let run = engine.submit("by turns", [(6, 1), (3, 0)]).await.unwrap();
    let other = engine.submit("other", [(60, 0)]).await.unwrap();
    // This one is claimed ahead and queues to begin.
    let ahead = engine.submit("by turns", [(9, 0)]).await.unwrap();
    for run in [&run, &other, &ahead] {
        assert_eq!(ended(run).await.kind, Kind::Succeeded);
    }
}

// What was left of its time was looked at again and again for as long as it waited.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_with_little_time_left_costs_nothing() {
    async fn waits(_: &mut Context, handle: &TaskHandle) -> Done {
        tokio::time::sleep(ms(990)).await;
        handle.sleep(secs(600)).await?;
        std::future::pending().await
    }
    let looks = Arc::new(AtomicUsize::new(0));
    let (begun, counted) = (Instant::now(), looks.clone());
    let builder = Place::memory().engine().clock(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Timestamp::from_micros(1_700_000_000_000_000) + begun.elapsed()
    });
    let task = Task::new("waits", waits).timeout(secs(1));
    let engine = with(builder, [task]).start().await.unwrap();
    let task = ended(&engine.submit("waits", ()).await.unwrap()).await;
    assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Timeout)));
    let late = begun.elapsed() - secs(601);
    assert!(late < ms(100), "it was ended {late:?} too late");
    // The loop looks at the clock whenever it is woken: about once a second.
    let looks = looks.load(Ordering::Relaxed);
    assert!(looks < 3_400, "the loop was woken {looks} times in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_own_time() {
    async fn third_time(context: &mut Context, handle: &TaskHandle) -> Done {
        context.state::<Scene>()?.note(format!("attempt {}", handle.attempt()));
        tokio::time::sleep(secs(9)).await;
        match handle.attempt() {
            1 | 2 => Err("once more".into()),
            _ => Ok(()),
        }
    }
    let scene = Scene::default();
    let task = Task::new("t", third_time).retries(2).timeout(secs(10));
    let engine = scene.start(with(on_paused_time(), [task])).await;
    let task = ended(&engine.submit("t", ()).await.unwrap()).await;
    assert_eq!((task.kind, task.attempt), (Kind::Succeeded, 3));
    assert_eq!(scene.notes(), ["attempt 1", "attempt 2", "attempt 3"]);
}

#[tokio::test(start_paused = true)]
async fn alarms_ring_in_time_without_anything_else_happening() {
    async fn hangs(_: &mut Context, _: &TaskHandle) -> Done {
        std::future::pending().await
    }
    let limit = Duration::from_millis(123_456);
    let engine = with(on_paused_time(), [Task::new("t", hangs).deadline(limit)]);
    let engine = engine.start().await.unwrap();
    let begun = Instant::now();
    let task = ended(&engine.submit("t", ()).await.unwrap()).await;
    assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Deadline)));
    let late = begun.elapsed() - limit;
    assert!(late < ms(10), "it was ended {late:?} too late");
}

on_every_store! {
    async fn a_time_out_is_a_failure_and_retried_like_one(place: Place) {
        let scene = Scene::default();
        let now = Backoff::fixed(Duration::ZERO);
        let task = Task::new("hangs", hangs).timeout(ms(5)).retries(2).backoff(now);
        let engine = scene.start(with(place.engine().slots(1), [task])).await;
        let run = engine.submit("hangs", "").await.unwrap();
        let status = run.wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Timeout)));
        assert_eq!((task.attempt, task.entries), (3, 3));
        assert_eq!(task.error.as_deref(), Some("timed out after 5ms"));
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        assert_eq!(scene.notes(), ["attempt 1", "attempt 2", "attempt 3"]);
        let recorded = run.events().await.unwrap();
        let recorded: Vec<_> = recorded.iter().map(|it| (it.what, it.reason)).collect();
        let timeout = Some(Reason::Timeout);
        let retried = (Happened::Retried, timeout);
        assert_eq!(recorded, [retried, retried, (Happened::TimedOut, timeout)]);
        until_quiet(&engine).await;
        let totals = engine.slots().totals();
        assert_eq!((totals.timed_out, totals.executed), (3, 3));
    }

    async fn blocking_code_is_reported_at_its_limit_and_is_leaky_until_it_returns(place: Place) {
        blocks(place, false).await;
    }

    // The loop had been woken by the task's own beginning, and stood behind it on its thread.
    async fn blocking_code_that_had_to_queue_is_reported_at_its_limit_too(place: Place) {
        blocks(place, true).await;
    }

    async fn a_tasks_own_time_out_is_an_ordinary_failure(place: Place) {
        async fn own(_: &mut Context) -> Done {
            tokio::time::timeout(ms(1), std::future::pending::<()>()).await?;
            Ok(())
        }
        let task = Task::new("own", own).timeout(HOUR);
        let engine = with(place.engine(), [task]).start().await.unwrap();
        let task = ended(&engine.submit("own", ()).await.unwrap()).await;
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::Error)));
        assert_eq!(task.error.as_deref(), Some("deadline has elapsed"));
    }

    async fn a_wait_that_times_out_can_be_matched_and_otherwise_fails_by_name(place: Place) {
        async fn matches(_: &mut Context, handle: &TaskHandle) -> Result<&'static str, TaskError> {
            let never = handle.defer_while(std::future::pending::<()>()).timeout(ms(1));
            match never.await {
                Err(WaitError::TimedOut { .. }) => Ok("went on"),
                _ => Err("it cannot be over".into()),
            }
        }
        async fn passes_on(_: &mut Context, handle: &TaskHandle) -> Done {
            Ok(handle.defer_until(|| async { false }, ms(1)).timeout(ms(3)).named("godot").await?)
        }
        #[derive(Debug)]
        struct Wrapped(WaitError);
        impl fmt::Display for Wrapped {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("no answer")
            }
        }
        impl std::error::Error for Wrapped {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        async fn wraps(_: &mut Context, handle: &TaskHandle) -> Result<(), Wrapped> {
            let never = handle.defer_while(std::future::pending::<()>()).timeout(ms(1));
            never.await.map_err(Wrapped)
        }
        let now = Backoff::fixed(Duration::ZERO);
        let workflow = Workflow::builder("w")
            .task(Task::new("matches", matches))
            .task(Task::new("passes on", passes_on).retries(1).backoff(now))
            .task(Task::new("wraps", wraps))
            .on_failure(OnFailure::KeepGoing)
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = engine.submit("w", ()).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<String>("matches").unwrap(), "went on");
        for task in ["passes on", "wraps"] {
            let task = status.task(task).unwrap();
            assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::WaitTimeout)));
        }
        let task = status.task("passes on").unwrap();
        assert_eq!(task.attempt, 2, "it is retried like any failure");
        assert_eq!(task.error.as_deref(), Some("the wait for godot timed out after 3ms"));
    }

    async fn what_queues_for_too_long_is_given_up_for_good(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let tasks =
            [Task::new("held", held), Task::new("queues", held).queue_timeout(HOUR).retries(9)];
        let engine = scene.start(with(wall.on(place.engine()).slots(1), tasks)).await;
        let other = engine.submit("held", "other").await.unwrap();
        scene.reached("other").await;
        let claimed = engine.submit("queues", "claimed").await.unwrap();
        until_is(&claimed, "queues", Kind::Claimed).await;
        let ready = engine.submit("queues", "ready").await.unwrap();
        // It cannot start before, so it does not queue before.
        let later = engine.submit("queues", "later").not_before(wall.now() + HOUR).await.unwrap();
        wall.pass(&engine, HOUR - ms(1)).await;
        assert_eq!(look(&claimed, "queues").await.kind, Kind::Claimed);
        assert_eq!(look(&ready, "queues").await.kind, Kind::Ready);
        wall.pass(&engine, ms(1)).await;
        for run in [&claimed, &ready] {
            let status = run.wait().await.unwrap();
            assert_eq!(status.outcome(), Some(RunOutcome::Failed));
            let task = &status.tasks[0];
            assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::QueueTimeout)));
            assert_eq!((task.attempt, task.entries), (1, 0));
        }
        assert_ne!(look(&later, "queues").await.kind, Kind::TimedOut);
        scene.open("later");
        scene.open("other");
        assert_eq!(ended(&other).await.kind, Kind::Succeeded);
        assert_eq!(ended(&later).await.kind, Kind::Succeeded);
        until_quiet(&engine).await;
    }

    async fn a_pause_stops_the_queue_time_and_nothing_else_does(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let queues = Task::new("queues", held).queue_timeout(HOUR);
        let engine = scene.start(with(wall.on(place.engine()).slots(1), [queues])).await;
        assert!(engine.pause().await.unwrap());
        let run = engine.submit("queues", "run").await.unwrap();
        wall.pass(&engine, 5 * HOUR).await;
        assert_eq!(look(&run, "queues").await.kind, Kind::Ready);
        // From here on it is its queue that holds it up, then the run itself.
        assert!(engine.pause_queue("default").await.unwrap());
        assert!(engine.unpause().await.unwrap());
        wall.pass(&engine, 5 * HOUR).await;
        assert!(run.pause().await.unwrap());
        assert!(engine.unpause_queue("default").await.unwrap());
        wall.pass(&engine, 5 * HOUR).await;
        assert_eq!(look(&run, "queues").await.kind, Kind::Ready);
        // Nobody serves the queue while this one has the slot.
        let other = engine.submit("queues", "other").await.unwrap();
        scene.reached("other").await;
        assert!(run.unpause().await.unwrap());
        wall.pass(&engine, HOUR - ms(1)).await;
        assert!(!look(&run, "queues").await.kind.is_terminal());
        // A time-out that a pause has made longer is looked at once a second.
        wall.pass(&engine, secs(2)).await;
        let task = ended(&run).await;
        assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::QueueTimeout)));
        scene.open("other");
        assert_eq!(ended(&other).await.kind, Kind::Succeeded);
    }

    async fn what_was_begun_once_is_not_given_up_for_having_to_queue_again(place: Place) {
        async fn snoozes(context: &mut Context<String>) -> Done {
            let scene = context.state::<Scene>()?;
            scene.note("entered");
            match scene.notes().len() {
                1 => Err(TaskError::snooze(HOUR)),
                _ => Ok(()),
            }
        }
        let (scene, wall) = (Scene::default(), Wall::new());
        let tasks = [Task::new("snoozes", snoozes).queue_timeout(HOUR), Task::new("held", held)];
        let engine = scene.start(with(wall.on(place.engine()).slots(1), tasks)).await;
        let run = engine.submit("snoozes", "").await.unwrap();
        until("it snoozes", async || {
            let task = look(&run, "snoozes").await;
            (task.kind, task.entries) == (Kind::Ready, 1)
        })
        .await;
        let other = engine.submit("held", "other").await.unwrap();
        scene.reached("other").await;
        wall.pass(&engine, 9 * HOUR).await;
        scene.open("other");
        assert_eq!(ended(&run).await.kind, Kind::Succeeded);
        assert_eq!(ended(&other).await.kind, Kind::Succeeded);
    }

    async fn a_deadline_ends_a_task_that_computes_and_drops_its_body(place: Place) {
        let task = Task::new("held", held).deadline(HOUR).retries(9);
        let (scene, wall, engine) = with_deadline(&place, [task]).await;
        let run = engine.submit("held", "run").await.unwrap();
        scene.reached("run").await;
        meets_its_deadline(&wall, &engine, &run).await;
        until("its body is gone", async || scene.notes() == ["a body is gone"]).await;
        until_quiet(&engine).await;
    }

    async fn a_deadline_ends_a_task_that_waits_and_drops_its_body(place: Place) {
        let task = Task::new("waits", waits).deadline(HOUR).retries(9);
        let (scene, wall, engine) = with_deadline(&place, [task]).await;
        let run = engine.submit("waits", "run").await.unwrap();
        until_is(&run, "waits", Kind::Deferred).await;
        meets_its_deadline(&wall, &engine, &run).await;
        until("its body is gone", async || scene.notes() == ["a body is gone"]).await;
        until_quiet(&engine).await;
    }

    async fn a_deadline_ends_a_task_that_queues_to_go_on(place: Place) {
        let tasks = [Task::new("waits", waits).deadline(HOUR), Task::new("held", held)];
        let (scene, wall, engine) = with_deadline(&place, tasks).await;
        let run = engine.submit("waits", "run").await.unwrap();
        until_is(&run, "waits", Kind::Deferred).await;
        let other = engine.submit("held", "other").await.unwrap();
        scene.reached("other").await;
        scene.open("run");
        let resumes = async || engine.slots().waiters().iter().any(|waiter| waiter.resumes);
        until("it queues to go on", resumes).await;
        meets_its_deadline(&wall, &engine, &run).await;
        until("it has left the line", async || engine.slots().waiting() == 0).await;
        scene.open("other");
        assert_eq!(ended(&other).await.kind, Kind::Succeeded);
        until_quiet(&engine).await;
    }

    async fn a_deadline_ends_a_task_in_its_back_off_or_snooze_also_while_paused(place: Place) {
        async fn fails(_: &mut Context<String>) -> Done {
            Err("it was to fail".into())
        }
        async fn snoozes(_: &mut Context<String>) -> Done {
            Err(TaskError::snooze(9 * HOUR))
        }
        let tasks = [
            Task::new("fails", fails).deadline(HOUR).retries(9).backoff(Backoff::fixed(9 * HOUR)),
            Task::new("snoozes", snoozes).deadline(HOUR),
        ];
        let (_, wall, engine) = with_deadline(&place, tasks).await;
        for task in ["fails", "snoozes"] {
            let run = engine.submit(task, "").await.unwrap();
            until("it was entered once", async || look(&run, task).await.entries == 1).await;
            until_is(&run, task, Kind::Ready).await;
            assert!(run.pause().await.unwrap());
            meets_its_deadline(&wall, &engine, &run).await;
        }
        until_quiet(&engine).await;
    }

    async fn a_deadline_counts_from_the_first_start(place: Place) {
        let tasks = [Task::new("held", held).deadline(HOUR)];
        let (scene, wall, engine) = with_deadline(&place, tasks).await;
        assert!(engine.pause().await.unwrap());
        let run = engine.submit("held", "run").await.unwrap();
        wall.pass(&engine, 9 * HOUR).await;
        assert_eq!(look(&run, "held").await.kind, Kind::Ready);
        assert!(engine.unpause().await.unwrap());
        scene.reached("run").await;
        meets_its_deadline(&wall, &engine, &run).await;
    }
}

async fn with_deadline(
    place: &Place,
    tasks: impl IntoIterator<Item = Task>,
) -> (Scene, Wall, Engine) {
    let (scene, wall) = (Scene::default(), Wall::new());
    let engine = scene.start(with(wall.on(place.engine()).slots(1), tasks)).await;
    (scene, wall, engine)
}

/// That a run whose one task has just begun is ended by its deadline of an hour, and not before.
async fn meets_its_deadline(wall: &Wall, engine: &Engine, run: &Run) {
    wall.pass(engine, HOUR - ms(1)).await;
    assert!(!run.status().await.unwrap().tasks[0].kind.is_terminal(), "too early");
    wall.pass(engine, ms(1)).await;
    let status = run.wait().await.unwrap();
    assert_eq!(status.outcome(), Some(RunOutcome::Failed));
    let task = &status.tasks[0];
    assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Deadline)));
    assert_eq!(task.entries, 1, "it is not tried again");
}

async fn blocks(place: Place, queues_first: bool) {
    async fn blocks(context: &mut Context<String>) -> Done {
        context.state::<Arc<Block>>()?.block();
        Ok(())
    }
    let scene = Scene::default();
    let (release, block) = Block::new();
    let block = Arc::new(block);
    let tasks = [Task::new("blocks", blocks).timeout(ms(20)), Task::new("held", held)];
    let slots = if queues_first { 1 } else { 2 };
    let builder = with(place.engine().slots(slots), tasks).state(block.clone());
    let engine = scene.start(builder).await;
    let neighbour = engine.submit("held", "neighbour").await.unwrap();
    scene.reached("neighbour").await;
    let run = engine.submit("blocks", "").await.unwrap();
    if queues_first {
        until_is(&run, "blocks", Kind::Claimed).await;
        engine.slots().resize(2).unwrap();
    }
    block.reached().await;
    let task = ended(&run).await;
    assert!(block.is_blocking(), "it is reported while it blocks");
    assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Timeout)));
    until("its slot is leaky", async || engine.slots().leaky() == 1).await;
    assert_eq!(engine.metrics().slots_leaky, 1);
    assert_eq!(engine.slots().in_use(), 2, "its slot is not free before it returns");
    // Its neighbours live on meanwhile, on the slot that is left.
    scene.open("neighbour");
    assert_eq!(ended(&neighbour).await.kind, Kind::Succeeded);
    let next = engine.submit("held", "neighbour").await.unwrap();
    assert_eq!(ended(&next).await.kind, Kind::Succeeded);
    assert_eq!(engine.slots().leaky(), 1);
    release.send(()).unwrap();
    until_quiet(&engine).await;
    assert_eq!(ended(&run).await, task, "that it returned changes nothing");
    assert_eq!(run.status().await.unwrap().tasks[0].kind, Kind::TimedOut);
}
