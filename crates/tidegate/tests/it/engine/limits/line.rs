//! Who stands behind a full limit, and who is next.

use super::*;
use crate::engine::scene::{Wall, look, until_is};
use crate::engine::support::{Place, on_every_store};
use tidegate::engine::{Kind, Reason, RunState};
use tidegate::{Limit, TaskHandle};

/// A limit of one, somebody who holds it until the place `holder` is open, and these tasks.
async fn behind_a_holder(
    builder: EngineBuilder,
    scene: &Scene,
    tasks: impl IntoIterator<Item = Task>,
) -> (Engine, Run) {
    let builder = builder.slots(8).limit(Limit::new("api").at_once(1));
    let builder = with(builder, scene, [Task::new("held", held).limit("api")]);
    let engine = with(builder, scene, tasks).start().await.unwrap();
    let holder = engine.submit("held", "holder").await.unwrap();
    scene.reached("holder").await;
    (engine, holder)
}

async fn snoozes(context: &mut Context, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    scene.note("snoozes");
    match scene.notes().iter().filter(|note| *note == "snoozes").count() {
        1 => Err(TaskError::snooze(SECOND)),
        _ => Ok(handle.yield_slot().await?),
    }
}

async fn releases(context: &mut Context, handle: &TaskHandle) -> Done {
    handle.wait_for_signal("go").releasing("api").await?;
    context.state::<Scene>()?.note("goes on");
    Ok(())
}

on_every_store! {
    async fn in_the_order_of_becoming_ready_with_the_head_start_of_priority(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let others = [
            Task::new("other", held).limit("api"),
            Task::new("urgent", held).limit("api").priority(3),
        ];
        let (engine, holder) = behind_a_holder(wall.on(place.engine()), &scene, others).await;
        let mut runs = vec![holder];
        // After so many seconds, of this workflow, with this head start: its place in line.
        let submits = [
            ("held", 0, "2nd"),
            ("other", 0, "4th"),
            ("held", 0, "6th"),
            ("urgent", 0, "3rd"),
            ("held", 100, "1st"),
            ("other", 1, "5th"),
            ("urgent", -10, "9th"),
            ("other", 0, "7th"),
            ("held", 0, "8th"),
        ];
        // Ready at 1, 2, 3, 4 - 3 (after the first, which came before), 5 - 100, 6 - 1, ..
        for (workflow, priority, name) in submits {
            wall.pass(&engine, SECOND).await;
            scene.open(name);
            runs.push(engine.submit(workflow, name).priority(priority).await.unwrap());
        }
        until_stands(&engine, "api", (1, 9)).await;
        scene.open("holder");
        all_succeed(&runs).await;
        let order = scene.notes();
        let names = ["holder", "1st", "2nd", "3rd", "4th", "6th", "5th", "7th", "8th", "9th"];
        assert_eq!(order, names);
        is_free(&engine).await;
    }

    async fn thousands_behind_a_full_limit_neither_hide_nor_slow_down_the_others(place: Place) {
        let scene = Scene::default();
        let plain = || Task::new("plain", held);
        let (engine, holder) = behind_a_holder(place.engine(), &scene, [plain()]).await;
        let runs = engine.submit_many("held", ["open"; 2_000]).await.unwrap();
        // They may not all have been looked at yet.
        let first = engine.submit("plain", "plain").await.unwrap();
        scene.open("plain");
        succeeds(&first).await;
        until_stands(&engine, "api", (1, 2_000)).await;
        for priority in [0, 1_000_000, -1_000_000] {
            let run = engine.submit("plain", "plain").priority(priority).await.unwrap();
            succeeds(&run).await;
        }
        // On another worker too.
        let other = with(place.engine().slots(1).queues(["other"]), &scene, [plain()]);
        let other = other.start().await.unwrap();
        succeeds(&other.submit("plain", "plain").await.unwrap()).await;
        assert_eq!(stands(&engine, "api", "").await, (1, 2_000));
        // An urgent one of their own kind is the next.
        let urgent = engine.submit("held", "urgent").priority(1_000_000).await.unwrap();
        until_stands(&engine, "api", (1, 2_001)).await;
        scene.open("holder");
        scene.reached("urgent").await;
        assert_eq!(stands(&engine, "api", "").await, (1, 2_000));
        assert_eq!(scene.crowd().now(), 1);
        scene.open("urgent");
        all_succeed([&holder, &urgent]).await;
        // All of them at once.
        scene.open("open");
        assert!(engine.set_limit(Limit::new("api").at_once(5_000)).await.unwrap());
        all_succeed(&runs).await;
        is_free(&engine).await;
    }

    async fn one_that_is_cancelled_behind_a_limit_lets_the_next_one_through(place: Place) {
        let scene = Scene::default();
        let (engine, holder) = behind_a_holder(place.engine(), &scene, []).await;
        let gone = engine.submit("held", "gone").await.unwrap();
        let next = engine.submit("held", "next").await.unwrap();
        until_stands(&engine, "api", (1, 2)).await;
        assert!(gone.cancel().await.unwrap());
        let task = gone.wait().await.unwrap().tasks[0].clone();
        assert_eq!((task.kind, task.reason), (Kind::Cancelled, Some(Reason::User)));
        assert_eq!(stands(&engine, "api", "").await, (1, 1));
        scene.open("holder");
        scene.reached("next").await;
        scene.open("next");
        all_succeed([&holder, &next]).await;
        assert_eq!(scene.notes(), ["holder", "next"]);
        is_free(&engine).await;
    }

    async fn one_that_is_paused_behind_a_limit_does_not_hold_up_those_behind_it(place: Place) {
        let scene = Scene::default();
        let (engine, holder) = behind_a_holder(place.engine(), &scene, []).await;
        let paused = engine.submit("held", "paused").await.unwrap();
        let next = engine.submit("held", "next").await.unwrap();
        until_stands(&engine, "api", (1, 2)).await;
        assert!(paused.pause().await.unwrap());
        scene.open("holder");
        scene.reached("next").await;
        assert_eq!(look(&paused, "held").await.kind, Kind::Ready);
        scene.open("next");
        all_succeed([&holder, &next]).await;
        // There is room for it, but it may not begin.
        round_trip(&engine).await;
        assert_eq!(stands(&engine, "api", "").await.0, 0);
        assert!(matches!(paused.status().await.unwrap().state, RunState::Paused { .. }));
        // Nor does it take a place from one that comes later.
        let later = engine.submit("held", "later").await.unwrap();
        scene.reached("later").await;
        assert!(paused.unpause().await.unwrap());
        until_stands(&engine, "api", (1, 1)).await;
        scene.open("later");
        scene.reached("paused").await;
        scene.open("paused");
        all_succeed([&later, &paused]).await;
        is_free(&engine).await;
    }

    async fn of_a_queue_that_is_paused_nobody_holds_up_those_of_another(place: Place) {
        let scene = Scene::default();
        let builder = place.engine().queues(["default", "other"]);
        let (engine, holder) = behind_a_holder(builder, &scene, []).await;
        let paused = engine.submit("held", "paused").await.unwrap();
        let next = engine.submit("held", "next").queue("other").await.unwrap();
        until_stands(&engine, "api", (1, 2)).await;
        assert!(engine.pause_queue("default").await.unwrap());
        scene.open("holder");
        scene.reached("next").await;
        assert_eq!(look(&paused, "held").await.kind, Kind::Ready);
        assert!(engine.unpause_queue("default").await.unwrap());
        scene.open("paused");
        scene.open("next");
        all_succeed([&holder, &next, &paused]).await;
        is_free(&engine).await;
    }

    async fn what_nobody_can_run_does_not_hold_up_what_somebody_can(place: Place) {
        let scene = Scene::default();
        let alone = || Task::new("alone", held).limit("api");
        let (engine, holder) = behind_a_holder(place.engine(), &scene, [alone()]).await;
        let run = engine.submit("held", "run").await.unwrap();
        until_stands(&engine, "api", (1, 1)).await;
        let next = with(place.engine(), &scene, [alone()]).start().await.unwrap();
        let other = next.submit("alone", "other").await.unwrap();
        until_stands(&engine, "api", (1, 2)).await;
        // The one that can run the others stops when the one that holds the limit has ended.
        engine.pause_queue("default").await.unwrap();
        scene.open("holder");
        succeeds(&holder).await;
        engine.shutdown(Duration::ZERO).await;
        assert!(next.unpause_queue("default").await.unwrap());
        scene.reached("other").await;
        assert_eq!(look(&run, "held").await.kind, Kind::Ready);
        scene.open("other");
        succeeds(&other).await;
        scene.open("run");
        let last = with(place.engine(), &scene, [Task::new("held", held).limit("api")]);
        let last = last.start().await.unwrap();
        succeeds(&last.run(run.id()).await.unwrap()).await;
        is_free(&last).await;
    }

    async fn a_queue_time_out_ends_what_stands_behind_a_limit(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let queues = Task::new("queues", held).limit("api").queue_timeout(HOUR).retries(3);
        let (engine, holder) = behind_a_holder(wall.on(place.engine()), &scene, [queues]).await;
        let late = engine.submit("queues", "late").await.unwrap();
        until_stands(&engine, "api", (1, 1)).await;
        wall.pass(&engine, HOUR / 2).await;
        let next = engine.submit("queues", "next").await.unwrap();
        until_stands(&engine, "api", (1, 2)).await;
        wall.pass(&engine, HOUR / 2).await;
        let task = late.wait().await.unwrap().tasks[0].clone();
        assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::QueueTimeout)));
        assert_eq!((task.attempt, task.entries), (1, 0));
        assert_eq!(stands(&engine, "api", "").await, (1, 1));
        scene.open("holder");
        scene.reached("next").await;
        scene.open("next");
        all_succeed([&holder, &next]).await;
        is_free(&engine).await;
    }

    async fn a_deadline_ends_what_stands_behind_a_limit(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let tasks = [
            Task::new("snoozes", snoozes).limit("api").deadline(HOUR),
            Task::new("releases", releases).limit("api").deadline(HOUR),
            Task::new("held", held).limit("api"),
        ];
        let engine = wall.on(place.engine()).slots(8).limit(Limit::new("api").at_once(1));
        let engine = with(engine, &scene, tasks).start().await.unwrap();
        // Both have begun, and want the limit again when somebody else has it.
        let snoozes = engine.submit("snoozes", ()).await.unwrap();
        until("it snoozes", async || {
            let task = look(&snoozes, "snoozes").await;
            (task.kind, task.entries) == (Kind::Ready, 1)
        })
        .await;
        let releases = engine.submit("releases", ()).await.unwrap();
        until_is(&releases, "releases", Kind::Deferred).await;
        until_stands(&engine, "api", (0, 0)).await;
        let holder = engine.submit("held", "holder").await.unwrap();
        scene.reached("holder").await;
        releases.signal("go", 1).await.unwrap();
        wall.pass(&engine, SECOND).await;
        until_stands(&engine, "api", (1, 2)).await;
        let next = engine.submit("held", "next").await.unwrap();
        until_stands(&engine, "api", (1, 3)).await;
        wall.pass(&engine, HOUR).await;
        for run in [&snoozes, &releases] {
            let task = run.wait().await.unwrap().tasks[0].clone();
            assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Deadline)));
            assert_eq!((task.attempt, task.entries), (1, 1), "{task:?}");
        }
        until_stands(&engine, "api", (1, 1)).await;
        scene.open("holder");
        scene.reached("next").await;
        scene.open("next");
        all_succeed([&holder, &next]).await;
        assert_eq!(scene.notes(), ["snoozes", "holder", "next"]);
        is_free(&engine).await;
    }

    async fn one_that_is_cancelled_while_it_wants_to_go_on_lets_the_next_one_through(place: Place) {
        let scene = Scene::default();
        let tasks =
            [Task::new("releases", releases).limit("api"), Task::new("held", held).limit("api")];
        let engine = place.engine().slots(8).limit(Limit::new("api").at_once(1));
        let engine = with(engine, &scene, tasks).start().await.unwrap();
        let gone = engine.submit("releases", ()).await.unwrap();
        until_is(&gone, "releases", Kind::Deferred).await;
        until_stands(&engine, "api", (0, 0)).await;
        let holder = engine.submit("held", "holder").await.unwrap();
        scene.reached("holder").await;
        gone.signal("go", 1).await.unwrap();
        until_stands(&engine, "api", (1, 1)).await;
        let next = engine.submit("held", "next").await.unwrap();
        until_stands(&engine, "api", (1, 2)).await;
        assert!(gone.cancel().await.unwrap());
        assert_eq!(gone.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        until_stands(&engine, "api", (1, 1)).await;
        scene.open("holder");
        scene.reached("next").await;
        scene.open("next");
        all_succeed([&holder, &next]).await;
        assert_eq!(scene.notes(), ["holder", "next"]);
        is_free(&engine).await;
    }
}
