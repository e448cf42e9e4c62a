//! The life of a task in the engine: its slot, its waits, its end, and whoever waits for that.

mod retries;
mod submits;

use super::scene::*;
use super::support::*;
use crate::support::ms;
use std::time::Duration;
use tidegate::engine::What;
use tidegate::{Backoff, Context, Engine, Run, RunOutcome, Task, TaskError, TaskHandle, Workflow};
use tidegate_core::lifecycle::{Event, Kind, Reason};

type Done = Result<(), TaskError>;

async fn nothing(_: &mut Context) -> Done {
    Ok(())
}

/// Goes on when the place that is its input is open.
async fn held(context: &mut Context<String>) -> Done {
    let scene = context.state::<Scene>()?;
    let _inside = scene.crowd().enter();
    scene.at(context.input()).await;
    Ok(())
}

async fn hangs(_: &mut Context<String>) -> Done {
    std::future::pending().await
}

async fn fails(_: &mut Context<String>) -> Done {
    Err("it was to fail".into())
}

async fn panics(_: &mut Context<String>) -> Done {
    panic!("it was to panic")
}

fn workflow(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

/// One workflow for each way a task can end.
fn all_ends(place: &Place) -> tidegate::EngineBuilder {
    place
        .engine()
        .workflow(workflow(Task::new("held", held)))
        .workflow(workflow(Task::new("fails", fails)))
        .workflow(workflow(Task::new("panics", panics)))
        .workflow(workflow(Task::new("times out", hangs).timeout(ms(1))))
        .workflow(workflow(Task::new("is too late", hangs).deadline(ms(1))))
}

async fn end(run: &Run) -> (Kind, Option<Reason>) {
    let status = run.wait().await.unwrap();
    (status.tasks[0].kind, status.tasks[0].reason)
}

on_every_store! {
    async fn a_slot_is_free_again_after_every_kind_of_end(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(all_ends(&place).slots(1)).await;
        scene.open("gate");
        for (name, kind) in
            [("held", Kind::Succeeded), ("fails", Kind::Failed), ("panics", Kind::Failed)]
        {
            let run = engine.submit(name, "gate").await.unwrap();
            assert_eq!(end(&run).await.0, kind);
            until_quiet(&engine).await;
        }
        for (name, reason) in [("times out", Reason::Timeout), ("is too late", Reason::Deadline)] {
            let run = engine.submit(name, "").await.unwrap();
            assert_eq!(end(&run).await, (Kind::TimedOut, Some(reason)));
            until_quiet(&engine).await;
        }
        let run = engine.submit("held", "closed").await.unwrap();
        scene.reached("closed").await;
        assert!(run.cancel().await.unwrap());
        until_quiet(&engine).await;
        let last = engine.submit("held", "gate").await.unwrap();
        assert_eq!(end(&last).await, (Kind::Succeeded, None));
    }

    async fn the_readings_show_how_many_compute(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(all_ends(&place).slots(3)).await;
        let mut runs = Vec::new();
        for active in 0..=3 {
            until(&format!("{active} slots are in use"), async || {
                let metrics = engine.metrics();
                let slots = (engine.slots().in_use(), engine.slots().available());
                slots == (active, 3 - active)
                    && engine.slots().has_capacity() == (active < 3)
                    && (metrics.slots, metrics.slots_in_use) == (3, active.into())
                    && (metrics.owned, metrics.active) == (active.into(), active.into())
                    && (metrics.ahead, metrics.deferred, metrics.queued) == (0, 0, 0)
            })
            .await;
            runs.push(engine.submit("held", "gate").await.unwrap());
            if active < 3 {
                scene.reached("gate").await;
            }
        }
        // The fourth is claimed ahead and queues for a slot.
        until("the fourth queues", async || {
            let metrics = engine.metrics();
            (metrics.owned, metrics.ahead, metrics.queued) == (4, 1, 1)
        })
        .await;
        scene.open("gate");
        for run in &runs {
            assert_eq!(end(run).await.0, Kind::Succeeded);
        }
        until_quiet(&engine).await;
        assert_eq!(scene.crowd().most(), 3);
    }

    async fn the_totals_count_how_attempts_ended_and_add_up(place: Place) {
        let scene = Scene::default();
        let retried = Task::new("twice", fails).retries(1).backoff(Backoff::fixed(Duration::ZERO));
        let builder = all_ends(&place).workflow(workflow(retried)).slots(1);
        let engine = scene.start(builder).await;
        scene.open("gate");
        for name in ["held", "held", "held", "fails", "panics", "times out", "twice"] {
            engine.submit(name, "gate").await.unwrap().wait().await.unwrap();
        }
        let cancelled = engine.submit("held", "closed").await.unwrap();
        scene.reached("closed").await;
        // This one is claimed ahead and never begins: it has not been executed.
        let unbegun = engine.submit("held", "gate").await.unwrap();
        until_is(&unbegun, "held", Kind::Claimed).await;
        unbegun.cancel().await.unwrap();
        until("it is gone", async || engine.slots().waiting() == 0).await;
        cancelled.cancel().await.unwrap();
        until_quiet(&engine).await;
        until("all ends are counted", async || engine.slots().totals().executed >= 9).await;
        let totals = engine.slots().totals();
        let ends = (totals.succeeded, totals.failed, totals.timed_out, totals.cancelled);
        assert_eq!(ends, (3, 4, 1, 1));
        assert_eq!(totals.executed, 9, "they add up");
        let metrics = engine.metrics();
        let same = (metrics.succeeded_total, metrics.failed_total, metrics.timed_out_total);
        assert_eq!((same, metrics.cancelled_total), ((3, 4, 1), 1));
    }

    async fn two_clones_of_an_engine_share_its_one_slot(place: Place) {
        async fn short(context: &mut Context) -> Done {
            let scene = context.state::<Scene>()?;
            let _inside = scene.crowd().enter();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            Ok(())
        }
        let scene = Scene::default();
        let builder = place.engine().slots(1).workflow(workflow(Task::new("short", short)));
        let engine = scene.start(builder).await;
        let clone = engine.clone();
        let mut runs = Vec::new();
        for _ in 0..10 {
            runs.push(engine.submit("short", ()).await.unwrap());
            runs.push(clone.submit("short", ()).await.unwrap());
        }
        for run in &runs {
            assert_eq!(end(run).await.0, Kind::Succeeded);
        }
        assert_eq!(scene.crowd().most(), 1);
    }

    async fn fifty_tasks_fill_the_slots_and_never_more(place: Place) {
        let scene = Scene::default();
        let engine = scene.start(all_ends(&place).slots(5)).await;
        let runs = engine.submit_many("held", ["gate"; 50]).await.unwrap();
        for _ in 0..5 {
            scene.reached("gate").await;
        }
        assert_eq!(scene.crowd().now(), 5);
        scene.open("gate");
        for run in &runs {
            assert_eq!(end(run).await.0, Kind::Succeeded);
        }
        assert_eq!(scene.crowd().most(), 5);
        until_quiet(&engine).await;
    }

    async fn a_task_that_weighs_more_takes_more_slots(place: Place) {
        let scene = Scene::default();
        let heavy = Task::new("heavy", held).weight(2);
        let builder = all_ends(&place).slots(3).workflow(workflow(heavy));
        let engine = scene.start(builder).await;
        let first = engine.submit("heavy", "first").await.unwrap();
        scene.reached("first").await;
        let second = engine.submit("heavy", "second").await.unwrap();
        until_is(&second, "heavy", Kind::Claimed).await;
        until("one slot is left", async || engine.slots().available() == 1).await;
        scene.open("first");
        scene.reached("second").await;
        scene.open("second");
        assert_eq!((end(&first).await.0, end(&second).await.0), (Kind::Succeeded, Kind::Succeeded));
        until_quiet(&engine).await;
    }

    async fn while_a_task_waits_the_store_says_what_for_and_since_when(place: Place) {
        async fn waits(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            let run = handle.run_id().unwrap();
            handle.defer_while(scene.at("gate")).named("the gate").await?;
            let after = scene.look(run, "waits").await;
            scene.note(format!("{} {:?} {}", after.kind, after.waits_for, handle.is_slot_held()));
            handle.sleep(Duration::from_secs(1_000_000)).await?;
            Ok(())
        }
        let (scene, wall) = (Scene::default(), Wall::new());
        let builder =
            wall.on(place.engine()).slots(1).workflow(workflow(Task::new("waits", waits)));
        let engine = scene.start(builder).await;
        let run = engine.submit("waits", ()).await.unwrap();
        scene.reached("gate").await;
        until_is(&run, "waits", Kind::Deferred).await;
        let since = wall.now();
        wall.pass(&engine, ms(1_000)).await;
        let task = look(&run, "waits").await;
        assert_eq!(task.waits_for, Some(("the gate".to_owned(), since)));
        assert_eq!(run.status().await.unwrap().outcome(), None);
        until("its slot is free", async || engine.slots().available() == 1).await;
        assert_eq!(engine.metrics().deferred, 1);
        scene.open("gate");
        // The next wait says in its own words what it waits for.
        until("it waits for time", async || {
            let waits_for = look(&run, "waits").await.waits_for;
            waits_for == Some(("time".to_owned(), wall.now()))
        })
        .await;
        assert_eq!(scene.notes(), ["active None true"], "it went on with its slot, as active");
        run.cancel().await.unwrap();
        assert_eq!(look(&run, "waits").await.waits_for, None);
        until_quiet(&engine).await;
    }

    async fn a_wait_that_is_over_at_once_writes_nothing(place: Place) {
        async fn waits(_: &mut Context, handle: &TaskHandle) -> Done {
            handle.defer_until(|| async { true }, Duration::from_secs(5)).await?;
            handle.defer_while(async {}).await?;
            handle.sleep_until(std::time::SystemTime::UNIX_EPOCH).await?;
            Ok(())
        }
        let (spy, builder) = Spy::on(&place).await;
        let engine = builder.workflow(workflow(Task::new("waits", waits))).start().await.unwrap();
        let mut events = engine.subscribe();
        let run = engine.submit("waits", ()).await.unwrap();
        assert_eq!(end(&run).await, (Kind::Succeeded, None));
        let told = spy.told();
        assert!(matches!(told.as_slice(), [Event::Succeed { .. }]), "{told:?}");
        loop {
            match events.next().await.unwrap().unwrap().what {
                What::Deferred { .. } | What::Resumed { .. } => panic!("it did not wait"),
                What::Finished { .. } => break,
                _ => {}
            }
        }
    }

    async fn a_task_that_drops_a_wait_is_active_again_before_it_goes_on(place: Place) {
        async fn waits(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            tokio::select! {
                never = handle.defer_while(std::future::pending()) => never?,
                () = scene.at("enough") => {}
            }
            // It is gated from its next await on.
            tokio::task::yield_now().await;
            let held = handle.is_slot_held();
            let task = scene.look(handle.run_id().unwrap(), "waits").await;
            scene.note(format!("{} {:?} {held}", task.kind, task.waits_for));
            Ok(())
        }
        let scene = Scene::default();
        let builder = place.engine().slots(1).workflow(workflow(Task::new("waits", waits)));
        let engine = scene.start(builder.workflow(workflow(Task::new("held", held)))).await;
        let run = engine.submit("waits", ()).await.unwrap();
        until_is(&run, "waits", Kind::Deferred).await;
        // Somebody has the slot meanwhile, so it has to queue.
        let other = engine.submit("held", "gate").await.unwrap();
        scene.reached("gate").await;
        scene.open("enough");
        until("it queues", async || engine.slots().waiters().iter().any(|it| it.resumes)).await;
        assert_eq!(scene.notes(), [] as [String; 0]);
        scene.open("gate");
        assert_eq!((end(&run).await.0, end(&other).await.0), (Kind::Succeeded, Kind::Succeeded));
        assert_eq!(scene.notes(), ["active None true"]);
    }

    async fn a_task_that_waits_again_and_again_is_entered_once(place: Place) {
        async fn waits(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            scene.note("before");
            for at in ["first", "second", "third"] {
                handle.defer_while(scene.at(at)).await?;
                scene.note(at);
            }
            Ok(())
        }
        let scene = Scene::default();
        let builder = place.engine().slots(1).workflow(workflow(Task::new("waits", waits)));
        let engine = scene.start(builder).await;
        let run = engine.submit("waits", ()).await.unwrap();
        for at in ["first", "second", "third"] {
            scene.reached(at).await;
            until_is(&run, "waits", Kind::Deferred).await;
            scene.open(at);
        }
        let status = run.wait().await.unwrap();
        let task = status.task("waits").unwrap();
        assert_eq!((task.kind, task.attempt, task.entries), (Kind::Succeeded, 1, 1));
        assert_eq!(task.waits_for, None);
        assert_eq!(scene.notes(), ["before", "first", "second", "third"]);
    }

    async fn a_deferred_task_frees_its_slot_for_another(place: Place) {
        async fn waits(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            handle.defer_while(scene.at("gate")).await?;
            scene.note("waited");
            Ok(())
        }
        async fn quick(context: &mut Context) -> Done {
            context.state::<Scene>()?.note("quick");
            Ok(())
        }
        let scene = Scene::default();
        let builder = place.engine().slots(1).workflow(workflow(Task::new("waits", waits)));
        let engine = scene.start(builder.workflow(workflow(Task::new("quick", quick)))).await;
        let run = engine.submit("waits", ()).await.unwrap();
        scene.reached("gate").await;
        let other = engine.submit("quick", ()).await.unwrap();
        assert_eq!(end(&other).await.0, Kind::Succeeded);
        scene.open("gate");
        assert_eq!(end(&run).await.0, Kind::Succeeded);
        assert_eq!(scene.notes(), ["quick", "waited"]);
    }

    async fn a_panic_anywhere_fails_the_task_alone_with_its_message(place: Place) {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("boom in the destructor");
            }
        }
        fn at_the_call(_: &mut Context) -> std::future::Ready<Done> {
            panic!("boom at the call")
        }
        async fn before_an_await(_: &mut Context) -> Done {
            panic!("boom before an await")
        }
        async fn after_a_wait(_: &mut Context, handle: &TaskHandle) -> Done {
            handle.sleep(ms(1)).await?;
            panic!("boom after {}", "a wait")
        }
        async fn in_a_condition(_: &mut Context, handle: &TaskHandle) -> Done {
            let mut looks = 0;
            let condition = || {
                looks += 1;
                let third = looks == 3;
                async move { if third { panic!("boom in a condition") } else { false } }
            };
            Ok(handle.defer_until(condition, ms(1)).await?)
        }
        async fn in_a_destructor(_: &mut Context) -> Done {
            let _bomb = Bomb;
            tokio::task::yield_now().await;
            Ok(())
        }
        let scene = Scene::default();
        let bodies = [
            Task::new("at the call", at_the_call),
            Task::new("before an await", before_an_await),
            Task::new("after a wait", after_a_wait),
            Task::new("in a condition", in_a_condition),
            Task::new("in the destructor", in_a_destructor),
        ];
        let names: Vec<String> = bodies.iter().map(|task| task.name().to_owned()).collect();
        let builder = place.engine().slots(2).workflow(workflow(Task::new("held", held)));
        let builder = bodies.into_iter().fold(builder, |all, task| all.workflow(workflow(task)));
        let engine = scene.start(builder).await;
        let neighbour = engine.submit("held", "gate").await.unwrap();
        scene.reached("gate").await;
        for name in names {
            let status = engine.submit(&name, ()).await.unwrap().wait().await.unwrap();
            let task = status.task(&name).unwrap();
            assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::Panic)), "{name}");
            assert_eq!(task.error.as_deref(), Some(format!("panicked: boom {name}").as_str()));
            assert_eq!(status.outcome(), Some(RunOutcome::Failed));
            until("its slot is free", async || engine.slots().in_use() == 1).await;
        }
        scene.open("gate");
        assert_eq!(end(&neighbour).await.0, Kind::Succeeded);
        until_quiet(&engine).await;
        assert!(engine.audit().await.unwrap().is_empty());
    }

    async fn a_body_that_panics_while_it_is_dropped_costs_no_slot(place: Place) {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    panic!("boom in the destructor");
                }
            }
        }
        async fn bomb(context: &mut Context) -> Done {
            let _bomb = Bomb;
            context.state::<Scene>()?.at("bomb").await;
            Ok(())
        }
        let scene = Scene::default();
        let builder = place.engine().slots(1).workflow(workflow(Task::new("bomb", bomb)));
        let engine = scene.start(builder.workflow(workflow(Task::new("nothing", nothing)))).await;
        let run = engine.submit("bomb", ()).await.unwrap();
        scene.reached("bomb").await;
        assert!(run.cancel().await.unwrap());
        assert_eq!(end(&run).await, (Kind::Cancelled, Some(Reason::User)));
        let other = engine.submit("nothing", ()).await.unwrap();
        assert_eq!(end(&other).await.0, Kind::Succeeded);
        until_quiet(&engine).await;
    }

    async fn everybody_who_waits_for_a_run_is_told_the_same(place: Place) {
        async fn second_time(context: &mut Context, handle: &TaskHandle) -> Result<u64, TaskError> {
            context.state::<Scene>()?.at("gate").await;
            match handle.attempt() {
                1 => Err("not the first time".into()),
                _ => Ok(42),
            }
        }
        let scene = Scene::default();
        let now = Backoff::fixed(Duration::ZERO);
        let workflow = Workflow::builder("w")
            .task(Task::new("value", second_time).retries(1).backoff(now))
            .task(Task::new("nothing", nothing).after(["value"]))
            .build()
            .unwrap();
        let engine = scene.start(place.engine().workflow(workflow)).await;
        let run = engine.submit("w", ()).await.unwrap();
        let opened = engine.run(run.id()).await.unwrap();
        let wait = |run: &Run| {
            let run = run.clone();
            tokio::spawn(async move { run.wait().await.unwrap() })
        };
        let waiters = [wait(&run), wait(&run), wait(&opened), wait(&opened)];
        scene.reached("gate").await;
        let dropped = tokio::time::timeout(Duration::ZERO, run.wait()).await;
        assert!(dropped.is_err(), "it has not ended");
        scene.open("gate");
        let told = run.wait().await.unwrap();
        assert_eq!(told.outcome(), Some(RunOutcome::Succeeded));
        assert_eq!(told.output::<u64>("value").unwrap(), 42);
        told.output::<()>("nothing").unwrap();
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap(), told);
        }
        // After the end, by whatever handle.
        assert_eq!(run.wait().await.unwrap(), told);
        assert_eq!(opened.wait().await.unwrap(), told);
        assert_eq!(engine.run(run.id()).await.unwrap().wait().await.unwrap(), told);
    }

    async fn a_run_that_nobody_has_is_unknown(place: Place) {
        let engine = place.engine().start().await.unwrap();
        let error = engine.run(tidegate::RunId::from_u128(7)).await.unwrap_err();
        assert!(error.to_string().starts_with("there is no run "), "{error}");
    }
}

/// The present kind of a run's only task, for tests of submits and retries.
async fn kind(run: &Run) -> Kind {
    run.status().await.unwrap().tasks[0].kind
}

/// An engine with one slot and these tasks, each a workflow, on a clock that is set by hand.
async fn on_one_slot(
    place: &Place,
    tasks: impl IntoIterator<Item = Task>,
) -> (Scene, Wall, Engine) {
    let (scene, wall) = (Scene::default(), Wall::new());
    let builder = wall.on(place.engine()).slots(1);
    let builder = tasks.into_iter().fold(builder, |all, task| all.workflow(workflow(task)));
    let engine = scene.start(builder).await;
    (scene, wall, engine)
}
