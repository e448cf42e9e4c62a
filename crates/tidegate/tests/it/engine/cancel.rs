//! A run can be cancelled wherever its tasks stand: it is over at once, stays so, costs no slot, and
//! whoever waits for it is told.

use super::scene::*;
use super::support::*;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Run, RunOutcome, Task, TaskError, TaskHandle, When,
    Workflow,
};
use tidegate_core::lifecycle::{Kind, Reason};

type Done = Result<(), TaskError>;

const HOUR: Duration = Duration::from_secs(3_600);

/// Goes on when the place that is its input is open.
async fn held(context: &mut Context<String>) -> Done {
    let scene = context.state::<Scene>()?;
    scene.note(format!("{} begins", context.input()));
    let _gone = scene.note_on_drop("a body is gone");
    scene.at(context.input()).await;
    scene.note(format!("{} goes on", context.input()));
    Ok(())
}

/// Waits until the place that is its input is open.
async fn waits(context: &mut Context<String>, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    let _gone = scene.note_on_drop("a body is gone");
    handle.defer_while(scene.at(context.input())).await?;
    scene.note(format!("{} goes on", context.input()));
    Ok(())
}

async fn fails(_: &mut Context<String>) -> Done {
    Err("it was to fail".into())
}

async fn snoozes(_: &mut Context<String>) -> Done {
    Err(TaskError::snooze(HOUR))
}

fn builder(place: &Place) -> EngineBuilder {
    let tasks = [
        Task::new("held", held),
        Task::new("waits", waits),
        Task::new("snoozes", snoozes),
        Task::new("fails", fails).retries(9).backoff(Backoff::fixed(HOUR)),
    ];
    let builder = place.engine().slots(1);
    tasks.into_iter().fold(builder, |all, task| all.workflow(Workflow::of(task).unwrap()))
}

/// An engine with one slot, and somebody in it.
async fn occupied(place: &Place) -> (Scene, Engine, Run) {
    let scene = Scene::default();
    let engine = scene.start(builder(place)).await;
    let other = engine.submit("held", "other").await.unwrap();
    scene.reached("other").await;
    (scene, engine, other)
}

/// Cancels a run: it is over at once, for good, and everybody is told.
async fn cancel(engine: &Engine, run: &Run) {
    let opened = engine.run(run.id()).await.unwrap();
    let wait = |run: &Run| {
        let run = run.clone();
        tokio::spawn(async move { run.wait().await.unwrap() })
    };
    let waiters = [wait(run), wait(&opened), wait(&opened)];
    let before = run.status().await.unwrap();
    assert!(run.cancel().await.unwrap());
    let stored = run.status().await.unwrap();
    assert_eq!(stored.outcome(), Some(RunOutcome::Cancelled), "over at once");
    for (was, is) in before.tasks.iter().zip(&stored.tasks) {
        match was.kind.is_terminal() {
            true => assert_eq!(was, is),
            false => assert_eq!((is.kind, is.reason), (Kind::Cancelled, Some(Reason::User))),
        }
    }
    assert!(!opened.cancel().await.unwrap(), "it is cancelled already");
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().outcome(), Some(RunOutcome::Cancelled));
    }
    assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
}

/// After everything is over a run is still cancelled, and a slot is there for another.
async fn stays_cancelled(engine: &Engine, run: &Run) {
    until_quiet(engine).await;
    let status = run.status().await.unwrap();
    assert_eq!(status.outcome(), Some(RunOutcome::Cancelled));
    assert!(status.tasks.iter().all(|task| task.kind != Kind::Succeeded));
    let next = engine.submit("fails", "").await.unwrap();
    until("another has had the slot", async || look(&next, "fails").await.entries == 1).await;
    assert!(engine.audit().await.unwrap().is_empty());
}

fn was_entered(scene: &Scene, name: &str) -> bool {
    scene.notes().contains(&format!("{name} begins"))
}

on_every_store! {
    async fn while_it_computes(place: Place) {
        let (scene, engine, run) = occupied(&place).await;
        cancel(&engine, &run).await;
        stays_cancelled(&engine, &run).await;
        assert_eq!(scene.notes(), ["other begins", "a body is gone"], "it was dropped");
    }

    async fn while_it_is_claimed_and_not_begun(place: Place) {
        let (scene, engine, other) = occupied(&place).await;
        let run = engine.submit("held", "run").await.unwrap();
        until_is(&run, "held", Kind::Claimed).await;
        cancel(&engine, &run).await;
        until("it has left the line", async || engine.slots().waiting() == 0).await;
        scene.open("other");
        assert_eq!(other.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        stays_cancelled(&engine, &run).await;
        assert!(!was_entered(&scene, "run"));
    }

    async fn while_it_is_ready_and_all_slots_are_taken(place: Place) {
        let (scene, engine, other) = occupied(&place).await;
        let ahead = engine.submit("held", "ahead").await.unwrap();
        until_is(&ahead, "held", Kind::Claimed).await;
        let run = engine.submit("held", "run").await.unwrap();
        assert_eq!(look(&run, "held").await.kind, Kind::Ready);
        cancel(&engine, &run).await;
        scene.open("other");
        scene.open("ahead");
        assert_eq!(other.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        assert_eq!(ahead.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        stays_cancelled(&engine, &run).await;
        assert!(!was_entered(&scene, "run"));
    }

    async fn while_it_is_in_a_back_off_or_snoozes(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = scene.start(wall.on(builder(&place))).await;
        for task in ["fails", "snoozes"] {
            let run = engine.submit(task, "").await.unwrap();
            let over = async || look(&run, task).await.entries == 1;
            until("it was entered once", over).await;
            until_is(&run, task, Kind::Ready).await;
            cancel(&engine, &run).await;
            wall.pass(&engine, 2 * HOUR).await;
            let task = look(&run, task).await;
            assert_eq!((task.kind, task.entries), (Kind::Cancelled, 1), "it is not tried again");
            stays_cancelled(&engine, &run).await;
        }
    }

    async fn while_it_waits(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(builder(&place)).await;
        let run = engine.submit("waits", "run").await.unwrap();
        until_is(&run, "waits", Kind::Deferred).await;
        cancel(&engine, &run).await;
        until("its body is gone", async || scene.notes() == ["a body is gone"]).await;
        scene.open("run");
        stays_cancelled(&engine, &run).await;
        assert_eq!(scene.notes(), ["a body is gone"], "it did not go on");
    }

    async fn while_it_has_waited_and_queues_to_go_on(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(builder(&place)).await;
        let run = engine.submit("waits", "run").await.unwrap();
        until_is(&run, "waits", Kind::Deferred).await;
        let other = engine.submit("held", "other").await.unwrap();
        scene.reached("other").await;
        scene.open("run");
        let resumes = async || engine.slots().waiters().iter().any(|waiter| waiter.resumes);
        until("it queues to go on", resumes).await;
        cancel(&engine, &run).await;
        until("it has left the line", async || engine.slots().waiting() == 0).await;
        scene.open("other");
        assert_eq!(other.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        stays_cancelled(&engine, &run).await;
        assert!(!scene.notes().contains(&"run goes on".to_owned()));
    }

    async fn while_it_is_paused(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(builder(&place)).await;
        assert!(engine.pause().await.unwrap());
        let run = engine.submit("held", "run").await.unwrap();
        let paused = engine.submit("held", "run").await.unwrap();
        assert!(paused.pause().await.unwrap());
        cancel(&engine, &run).await;
        cancel(&engine, &paused).await;
        assert!(!paused.unpause().await.unwrap(), "it has ended");
        assert!(engine.unpause().await.unwrap());
        stays_cancelled(&engine, &run).await;
        stays_cancelled(&engine, &paused).await;
        assert!(!was_entered(&scene, "run"));
    }

    async fn before_its_start_time(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = scene.start(wall.on(builder(&place))).await;
        let run = engine.submit("held", "run").not_before(wall.now() + HOUR).await.unwrap();
        assert_eq!(look(&run, "held").await.kind, Kind::Ready);
        cancel(&engine, &run).await;
        wall.pass(&engine, 2 * HOUR).await;
        stays_cancelled(&engine, &run).await;
        assert!(!was_entered(&scene, "run"));
    }

    async fn in_a_queue_that_nobody_serves(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(builder(&place)).await;
        let run = engine.submit("held", "run").queue("elsewhere").await.unwrap();
        cancel(&engine, &run).await;
        stays_cancelled(&engine, &run).await;
    }

    async fn with_tasks_that_are_blocked_and_with_clean_up(place: Place) {
        async fn nothing(_: &mut Context<String>) -> Done {
            Ok(())
        }
        async fn notes(context: &mut Context<String>) -> Done {
            context.state::<Scene>()?.note("cleans up");
            Ok(())
        }
        let scene = Scene::default();
        let workflow = Workflow::builder("w")
            .task(Task::new("first", nothing))
            .task(Task::new("second", held).after(["first"]))
            .task(Task::new("waits", waits).after(["first"]))
            .task(Task::new("third", notes).after(["second"]))
            .task(Task::new("clean-up", notes).after(["second", "waits"]).when(When::AllDone))
            .build()
            .unwrap();
        let engine = scene.start(builder(&place).slots(2).workflow(workflow)).await;
        let run = engine.submit("w", "run").await.unwrap();
        until_is(&run, "second", Kind::Active).await;
        until_is(&run, "waits", Kind::Deferred).await;
        assert_eq!(look(&run, "third").await.kind, Kind::Blocked);
        // It spares what has ended: the first has.
        cancel(&engine, &run).await;
        until_quiet(&engine).await;
        let status = run.status().await.unwrap();
        let kinds: Vec<Kind> = status.tasks.iter().map(|task| task.kind).collect();
        let cancelled = Kind::Cancelled;
        assert_eq!(kinds, [Kind::Succeeded, cancelled, cancelled, cancelled, cancelled]);
        assert!(!scene.notes().contains(&"cleans up".to_owned()));
    }

    async fn although_its_body_still_blocks_and_then_succeeds(place: Place) {
        async fn blocks(context: &mut Context<String>) -> Done {
            context.state::<Arc<Block>>()?.block();
            Ok(())
        }
        let scene = Scene::default();
        let (release, block) = Block::new();
        let block = Arc::new(block);
        let workflow = Workflow::of(Task::new("blocks", blocks)).unwrap();
        let builder = builder(&place).workflow(workflow).state(block.clone());
        let engine = scene.start(builder).await;
        let run = engine.submit("blocks", "").await.unwrap();
        block.reached().await;
        cancel(&engine, &run).await;
        until("its slot is leaky", async || engine.slots().leaky() == 1).await;
        assert_eq!(engine.slots().in_use(), 1, "it is not free before the body is gone");
        release.send(()).unwrap();
        stays_cancelled(&engine, &run).await;
    }

    async fn although_it_is_about_to_succeed(place: Place) {
        // Whoever is first wins, and both are told the same.
        let scene = Scene::default();
        let engine = scene.start(builder(&place).slots(4)).await;
        for round in 0..20 {
            let name = format!("run {round}");
            let run = engine.submit("held", &name).await.unwrap();
            scene.reached(&name).await;
            scene.open(&name);
            let was_first = run.cancel().await.unwrap();
            let outcome = run.wait().await.unwrap().outcome();
            let expected = if was_first { RunOutcome::Cancelled } else { RunOutcome::Succeeded };
            assert_eq!(outcome, Some(expected));
            assert_eq!(run.status().await.unwrap().outcome(), outcome);
        }
        until_quiet(&engine).await;
    }

    async fn but_not_after_its_end(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(builder(&place)).await;
        scene.open("run");
        let run = engine.submit("held", "run").await.unwrap();
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        assert!(!run.cancel().await.unwrap());
        assert_eq!(run.status().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
    }

    async fn two_hundred_at_once_in_all_states(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(builder(&place).slots(4)).await;
        scene.open("open");
        let mut runs = Vec::new();
        for (task, input) in
            [("held", "open"), ("held", "closed"), ("waits", "closed"), ("fails", "")]
        {
            runs.extend(engine.submit_many(task, vec![input; 50]).await.unwrap());
        }
        let cancels: Vec<_> = runs
            .iter()
            .map(|run| {
                let run = run.clone();
                tokio::spawn(async move { (run.cancel().await.unwrap(), run) })
            })
            .collect();
        for cancelled in cancels {
            let (was_first, run) = cancelled.await.unwrap();
            let outcome = run.wait().await.unwrap().outcome().unwrap();
            assert_eq!(was_first, outcome == RunOutcome::Cancelled);
            assert_eq!(run.status().await.unwrap().outcome(), Some(outcome));
        }
        until_quiet(&engine).await;
        assert!(engine.audit().await.unwrap().is_empty());
        let last = engine.submit("held", "open").await.unwrap();
        assert_eq!(last.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
    }
}
