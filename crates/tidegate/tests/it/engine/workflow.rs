//! Which workflows make sense, when their tasks run, and what a failure does to the rest.

use super::scene::*;
use super::support::*;
use std::time::Duration;
use tidegate::engine::StartError;
use tidegate::error::{GraphError, SubmitError, WorkflowError};
use tidegate::{
    Context, Engine, OnFailure, Run, RunOutcome, RunStatus, Task, TaskError, TaskHandle, When,
    Workflow, WorkflowBuilder,
};
use tidegate_core::lifecycle::{Event, Kind, Reason};

type Done = Result<(), TaskError>;

async fn nothing(_: &mut Context) -> Done {
    Ok(())
}

async fn fails(_: &mut Context) -> Done {
    Err("it was to fail".into())
}

fn task(name: &str) -> Task {
    Task::new(name, nothing)
}

/// What a builder is refused with, which has to say this.
fn refused(builder: WorkflowBuilder, says: &str) -> WorkflowError {
    let error = builder.build().unwrap_err();
    assert_eq!(error.to_string(), says);
    error
}

#[test]
fn a_workflow_without_a_name_or_without_tasks_is_refused() {
    let nameless = Workflow::builder("").task(task("a"));
    refused(nameless, "a workflow needs a name of at least one character");
    let empty = Workflow::builder("w");
    let error = refused(empty, "there are no tasks: define at least one");
    assert_eq!(error, WorkflowError::Graph(GraphError::NoTasks));
}

#[test]
fn tasks_without_a_name_of_their_own_are_refused() {
    let nameless = Workflow::builder("w").task(task("a")).task(task(""));
    refused(nameless, "task 2 has an empty name: give it at least one character");
    let twice = Workflow::builder("w").task(task("a")).task(task("b")).task(task("a"));
    refused(twice, "two tasks are named \"a\": give each a name of its own");
}

#[test]
fn task_for_each_item_of_a_list_without_a_name_is_refused() {
    let nameless = Workflow::builder("w").task(task("a").each(""));
    let says = "task \"a\" is done for each item of \"\"; name the task, or the value of the \
                context, that has the list";
    let error = refused(nameless, says);
    assert_eq!(error, WorkflowError::EmptyEach { task: "a".to_owned() });
}

#[test]
fn a_dependency_on_itself_or_on_nobody_is_refused() {
    let on_itself = Workflow::builder("w").task(task("a").after(["a"]));
    refused(on_itself, "task \"a\" comes after itself: take it out of its own dependencies");
    let unknown = Workflow::builder("w").task(task("extract")).task(task("b").after(["extrakt"]));
    refused(
        unknown,
        "task \"b\" comes after \"extrakt\", which is no task; did you mean \"extract\"?",
    );
    let far = Workflow::builder("w").task(task("extract")).task(task("b").after(["xyz"]));
    refused(far, "task \"b\" comes after \"xyz\", which is no task");
}

#[test]
fn a_cycle_is_refused_as_a_path() {
    let cycle = Workflow::builder("w")
        .task(task("start"))
        .task(task("a").after(["start", "c"]))
        .task(task("b").after(["a"]))
        .task(task("c").after(["b"]));
    refused(cycle, "tasks come after each other in a circle: a → b → c → a; take one arrow out");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let one = |task| Workflow::builder("w").task(task);
    let zero = Duration::ZERO;
    refused(one(task("a").timeout(zero)), "timeout of task \"a\" is 0; it must be above 0");
    let queue_timeout = task("a").queue_timeout(zero);
    refused(one(queue_timeout), "queue_timeout of task \"a\" is 0; it must be above 0");
    refused(one(task("a").deadline(zero)), "deadline of task \"a\" is 0; it must be above 0");
    refused(one(task("a").weight(0)), "weight of task \"a\" is 0; it must be above 0");
    refused(
        one(task("a").when(When::AnyFailed)),
        "task \"a\" has the rule any_failed and comes after nothing: name the tasks that it \
         depends on, or use all_succeeded or all_done",
    );
    assert!(Workflow::of(task("a").timeout(zero)).is_err(), "of() checks too");
}

#[tokio::test]
async fn an_engine_that_makes_no_sense_does_not_start() {
    async fn refused(builder: tidegate::EngineBuilder, says: &str) -> StartError {
        let error = builder.start().await.unwrap_err();
        assert_eq!(error.to_string(), says);
        error
    }
    let builder = || Engine::builder("memory:");
    let workflow = || Workflow::of(task("a")).unwrap();
    refused(builder().slots(0), "slots cannot be 0; it must be at least 1").await;
    let nowhere = builder().queues([] as [&str; 0]);
    refused(nowhere, "queues cannot be []; it must be at least one name").await;
    let nameless = builder().queues([""]);
    refused(nameless, "queues cannot be [\"\"]; it must be names of at least one character").await;
    let mut config = tidegate::Config::default();
    config.in_memory_max = 3;
    let says = "in_memory_max cannot be 3; it must be at least as many as there are slots";
    refused(builder().config(config), says).await;
    let twice = builder().workflow(workflow()).workflow(workflow());
    refused(twice, "two workflows are called \"a\"; a name belongs to one").await;
    let heavy = Workflow::builder("w").task(task("a").weight(3)).build().unwrap();
    let says = "task \"a\" of workflow \"w\" weighs 3 and there are 2 slots; it would never run";
    refused(builder().slots(2).workflow(heavy), says).await;
    for address in ["mysql://db", "memory", "memory:x", ""] {
        let error = Engine::builder(address).start().await.unwrap_err();
        assert!(matches!(&error, StartError::Address { address: a, .. } if a == address));
        let says = format!("\"{address}\" is not the address of a store");
        assert!(error.to_string().starts_with(&says), "{error}");
    }
}

on_every_store! {
    async fn a_submit_of_an_unknown_workflow_is_refused_with_the_nearest_name(place: Place) {
        let workflow = Workflow::of(task("nightly")).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let error = engine.submit("nihgtly", ()).await.unwrap_err();
        assert!(matches!(&error, SubmitError::UnknownWorkflow { .. }));
        let says = "no workflow \"nihgtly\" was given to this engine; is \"nightly\" meant?";
        assert_eq!(error.to_string(), says);
        let error = engine.submit("xyz", ()).await.unwrap_err();
        assert_eq!(error.to_string(), "no workflow \"xyz\" was given to this engine");
    }

    async fn an_input_that_is_too_large_or_no_json_is_refused(place: Place) {
        let workflow = Workflow::of(task("a")).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let error = engine.submit("a", "x".repeat(1 << 20)).await.unwrap_err();
        assert!(matches!(&error, SubmitError::TooLarge { size: 1_048_578 }));
        let says = "the input is 1048578 bytes of JSON; at most 1048576 are stored";
        assert_eq!(error.to_string(), says);
        let no_json = std::collections::HashMap::from([((1, 2), 3)]);
        let error = engine.submit("a", no_json).await.unwrap_err();
        assert!(matches!(&error, SubmitError::Input(_)), "{error}");
        assert!(engine.runs(page()).await.unwrap().is_empty(), "nothing was submitted");
        engine.submit("a", "x".repeat((1 << 20) - 2)).await.unwrap().wait().await.unwrap();
    }

    async fn the_right_arm_goes_on_before_a_slow_left_arm_ends(place: Place) {
        async fn left(context: &mut Context) -> Done {
            context.state::<Scene>()?.at("left").await;
            Ok(())
        }
        async fn noted(context: &mut Context) -> Done {
            context.state::<Scene>()?.at("behind right").await;
            Ok(())
        }
        let scene = Scene::default();
        let workflow = Workflow::builder("diamond")
            .task(task("top"))
            .task(Task::new("left", left).after(["top"]))
            .task(task("right").after(["top"]))
            .task(Task::new("behind right", noted).after(["right"]))
            .task(task("bottom").after(["left", "behind right"]))
            .build()
            .unwrap();
        let engine = scene.start(place.engine().workflow(workflow)).await;
        let run = engine.submit("diamond", ()).await.unwrap();
        scene.reached("left").await;
        scene.reached("behind right").await;
        assert_eq!(look(&run, "left").await.kind, Kind::Active);
        assert_eq!(look(&run, "bottom").await.kind, Kind::Blocked);
        scene.open("behind right");
        until_is(&run, "behind right", Kind::Succeeded).await;
        assert_eq!(look(&run, "bottom").await.kind, Kind::Blocked);
        scene.open("left");
        let status = run.wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
        assert!(status.tasks.iter().all(|task| task.kind == Kind::Succeeded));
    }

    async fn any_succeeded_starts_with_the_first_success(place: Place) {
        async fn slow(context: &mut Context) -> Done {
            context.state::<Scene>()?.at("slow").await;
            Ok(())
        }
        let scene = Scene::default();
        let workflow = Workflow::builder("race")
            .task(Task::new("slow", slow))
            .task(task("quick"))
            .task(task("first").after(["slow", "quick"]).when(When::AnySucceeded))
            .build()
            .unwrap();
        let engine = scene.start(place.engine().workflow(workflow)).await;
        let run = engine.submit("race", ()).await.unwrap();
        until_is(&run, "first", Kind::Succeeded).await;
        assert_eq!(look(&run, "slow").await.kind, Kind::Active);
        scene.open("slow");
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
    }

    async fn each_rule_says_when_a_task_runs_and_what_cannot_run_is_skipped(place: Place) {
        let workflow = |name, parent: Task| {
            let rule = |name: &str, when| task(name).after(["parent", "other"]).when(when);
            Workflow::builder(name)
                .task(parent)
                .task(task("other"))
                .task(rule("all_succeeded", When::AllSucceeded))
                .task(rule("all_done", When::AllDone))
                .task(rule("any_failed", When::AnyFailed))
                .task(rule("any_succeeded", When::AnySucceeded))
                .task(task("behind").after(["all_succeeded"]))
                .on_failure(OnFailure::KeepGoing)
                .build()
                .unwrap()
        };
        let engine = place
            .engine()
            .workflow(workflow("well", task("parent")))
            .workflow(workflow("ill", Task::new("parent", fails)))
            .start()
            .await
            .unwrap();
        let ended = async |name: &str| {
            let status = engine.submit(name, ()).await.unwrap().wait().await.unwrap();
            let kinds: Vec<Kind> = status.tasks[2..].iter().map(|task| task.kind).collect();
            (status.outcome(), kinds)
        };
        let (did, not) = (Kind::Succeeded, Kind::Skipped);
        assert_eq!(
            ended("well").await,
            (Some(RunOutcome::Succeeded), vec![did, did, not, did, did])
        );
        assert_eq!(ended("ill").await, (Some(RunOutcome::Failed), vec![not, did, did, did, not]));
    }

    async fn keep_going_runs_what_does_not_depend_on_the_failure(place: Place) {
        async fn late(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            handle.defer_while(scene.at("late")).await?;
            Ok(())
        }
        let scene = Scene::default();
        let workflow = Workflow::builder("w")
            .task(Task::new("bad", fails))
            .task(task("behind bad").after(["bad"]))
            .task(task("far behind").after(["behind bad"]))
            .task(Task::new("late", late))
            .task(task("behind late").after(["late"]))
            .on_failure(OnFailure::KeepGoing)
            .build()
            .unwrap();
        let engine = scene.start(place.engine().workflow(workflow)).await;
        let run = engine.submit("w", ()).await.unwrap();
        until_is(&run, "far behind", Kind::Skipped).await;
        scene.open("late");
        let status = run.wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        let kinds: Vec<Kind> = status.tasks.iter().map(|task| task.kind).collect();
        let (did, not) = (Kind::Succeeded, Kind::Skipped);
        assert_eq!(kinds, [Kind::Failed, not, not, did, did]);
        for name in ["behind bad", "far behind"] {
            let why = status.task(name).unwrap().error.as_deref();
            assert_eq!(why, Some("because \"bad\" has failed"), "{name}");
        }
        assert_eq!(look(&run, "far behind").await.error.as_deref(), Some("because \"bad\" has failed"));
        until_quiet(&engine).await;
    }

    async fn fail_fast_cancels_what_waits_and_lets_finish_what_computes(place: Place) {
        let (scene, engine, run) = failing(&place, OnFailure::FailFast).await;
        until_is(&run, "waits", Kind::Cancelled).await;
        assert_eq!(look(&run, "waits").await.reason, Some(Reason::FailFast));
        assert_eq!(look(&run, "bad").await.kind, Kind::Failed);
        assert_eq!(look(&run, "computes").await.kind, Kind::Active, "it may finish");
        assert_eq!(look(&run, "cleans up").await.kind, Kind::Blocked, "not before it has");
        // Its body is dropped behind the end that is stored.
        let is_gone = "waits is gone".to_owned();
        until("the body is gone", async || scene.notes().contains(&is_gone)).await;
        scene.open("computes");
        let status = run.wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        assert_eq!(kind_of(&status, "computes"), (Kind::Succeeded, None));
        assert_eq!(kind_of(&status, "behind computes"), (Kind::Cancelled, Some(Reason::FailFast)));
        assert_eq!(kind_of(&status, "behind bad"), (Kind::Skipped, None));
        let why = status.task("behind bad").unwrap().error.as_deref();
        assert_eq!(why, Some("because \"bad\" has failed"));
        assert_eq!(kind_of(&status, "cleans up"), (Kind::Succeeded, None));
        assert_eq!(kind_of(&status, "on failure"), (Kind::Succeeded, None));
        until_quiet(&engine).await;
        let notes = scene.notes();
        assert_eq!(notes.last().unwrap(), "cleans up", "{notes:?}");
    }

    async fn after_a_failure_nothing_of_the_run_begins_on_the_only_slot(place: Place) {
        let others: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let workflow = Workflow::builder("w").task(Task::new("bad", fails).priority(1));
        let workflow = others.iter().fold(workflow, |workflow, name| workflow.task(task(name)));
        let workflow = workflow.build().unwrap();
        let engine = place.engine().slots(1).workflow(workflow).start().await.unwrap();
        for _ in 0..50 {
            let status = engine.submit("w", ()).await.unwrap().wait().await.unwrap();
            assert_eq!(kind_of(&status, "bad").0, Kind::Failed);
            for other in &others {
                let (kind, reason) = kind_of(&status, other);
                assert_eq!((kind, reason), (Kind::Cancelled, Some(Reason::FailFast)), "{other}");
            }
        }
        until_quiet(&engine).await;
    }

    async fn fail_fast_kill_drops_what_computes_before_the_clean_up_begins(place: Place) {
        let (scene, engine, run) = failing(&place, OnFailure::FailFastKill).await;
        let status = run.wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        let killed = (Kind::Cancelled, Some(Reason::FailFast));
        assert_eq!(kind_of(&status, "computes"), killed);
        assert_eq!(kind_of(&status, "waits"), killed);
        assert_eq!(kind_of(&status, "behind computes"), killed);
        assert_eq!(kind_of(&status, "behind bad"), (Kind::Skipped, None));
        assert_eq!(kind_of(&status, "cleans up"), (Kind::Succeeded, None));
        let notes = scene.notes();
        let at = |note: &str| notes.iter().position(|it| it == note).unwrap();
        assert!(at("computes is gone") < at("cleans up"), "{notes:?}");
        until_quiet(&engine).await;
    }

    // The store told a task to stop while the task was about to say that it waits; what it said
    // then was lost, and with it the task.
    async fn what_begins_to_wait_while_it_is_told_to_stop_is_cancelled(place: Place) {
        async fn computes(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            scene.at("computes").await;
            handle.defer_while(scene.at("waits")).await?;
            Ok(())
        }
        async fn bad(context: &mut Context) -> Done {
            context.state::<Scene>()?.at("bad").await;
            Err("it was to fail".into())
        }
        let scene = Scene::default();
        let (spy, builder) = Spy::on(&place).await;
        let workflow = Workflow::builder("w")
            .task(Task::new("bad", bad))
            .task(Task::new("computes", computes))
            .on_failure(OnFailure::FailFastKill)
            .build()
            .unwrap();
        let engine = scene.start(builder.workflow(workflow)).await;
        let run = engine.submit("w", ()).await.unwrap();
        scene.reached("bad").await;
        scene.reached("computes").await;
        let release = spy.hold(|request| {
            let mut events = request.changes.iter().flat_map(|change| &change.events);
            events.any(|event| matches!(event, Event::Fail { .. }))
        });
        scene.open("bad");
        until("the failure is written and not yet known", async || spy.is_holding()).await;
        scene.open("computes");
        scene.reached("waits").await;
        until("the worker has heard of the wait", async || engine.metrics().deferred == 1).await;
        release.add_permits(1);
        let ended = tokio::time::timeout(Duration::from_secs(20), run.wait()).await;
        let status = ended.expect("the run ends").unwrap();
        assert_eq!(kind_of(&status, "computes"), (Kind::Cancelled, Some(Reason::FailFast)));
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        until_quiet(&engine).await;
    }

    async fn what_computes_on_after_a_failure_is_cancelled_when_it_begins_to_wait(place: Place) {
        async fn computes(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            let _gone = scene.note_on_drop("computes is gone");
            scene.at("computes").await;
            handle.defer_while(std::future::pending::<()>()).await?;
            Ok(())
        }
        async fn bad(context: &mut Context) -> Done {
            context.state::<Scene>()?.at("bad").await;
            Err("it was to fail".into())
        }
        let scene = Scene::default();
        let workflow = Workflow::builder("w")
            .task(Task::new("bad", bad))
            .task(Task::new("computes", computes))
            .build()
            .unwrap();
        let engine = scene.start(place.engine().workflow(workflow)).await;
        let run = engine.submit("w", ()).await.unwrap();
        scene.reached("computes").await;
        scene.open("bad");
        until_is(&run, "bad", Kind::Failed).await;
        assert_eq!(look(&run, "computes").await.kind, Kind::Active);
        scene.open("computes");
        let status = run.wait().await.unwrap();
        assert_eq!(kind_of(&status, "computes"), (Kind::Cancelled, Some(Reason::FailFast)));
        until_quiet(&engine).await;
        assert_eq!(scene.notes(), ["computes is gone"]);
    }
}

fn page() -> tidegate_core::store::RunsPage {
    tidegate_core::store::RunsPage { limit: 10, ..Default::default() }
}

fn kind_of(status: &RunStatus, task: &str) -> (Kind, Option<Reason>) {
    let task = status.task(task).unwrap();
    (task.kind, task.reason)
}

/// A run in which one task has just failed while another waits and a third computes, with
/// something behind each, and with clean-up.
async fn failing(place: &Place, policy: OnFailure) -> (Scene, Engine, Run) {
    async fn bad(context: &mut Context) -> Done {
        context.state::<Scene>()?.at("bad").await;
        Err("it was to fail".into())
    }
    async fn computes(context: &mut Context) -> Done {
        let scene = context.state::<Scene>()?;
        let _gone = scene.note_on_drop("computes is gone");
        scene.at("computes").await;
        Ok(())
    }
    async fn waits(context: &mut Context, handle: &TaskHandle) -> Done {
        let scene = context.state::<Scene>()?;
        let _gone = scene.note_on_drop("waits is gone");
        handle.defer_while(scene.at("waits")).await?;
        Ok(())
    }
    async fn cleans_up(context: &mut Context) -> Done {
        context.state::<Scene>()?.note("cleans up");
        Ok(())
    }
    let scene = Scene::default();
    let all = ["bad", "computes", "waits"];
    let workflow = Workflow::builder("w")
        .task(Task::new("bad", bad))
        .task(Task::new("computes", computes))
        .task(Task::new("waits", waits))
        .task(task("behind bad").after(["bad"]))
        .task(task("behind computes").after(["computes"]))
        .task(Task::new("cleans up", cleans_up).after(all).when(When::AllDone))
        .task(task("on failure").after(all).when(When::AnyFailed))
        .on_failure(policy)
        .build()
        .unwrap();
    let engine = scene.start(place.engine().workflow(workflow)).await;
    let run = engine.submit("w", ()).await.unwrap();
    scene.reached("bad").await;
    scene.reached("computes").await;
    until_is(&run, "waits", Kind::Deferred).await;
    scene.open("bad");
    (scene, engine, run)
}
