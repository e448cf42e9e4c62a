//! Runs that a task begins and waits for.

use super::faults::{Blown, Faulty};
use super::gates::{Process, is_sound};
use super::scene::{Scene, Wall, look, until_is, until_quiet};
use super::support::{Place, on_every_store, until};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tidegate::engine::{RunSummary, RunsPage};
use tidegate::{
    Backoff, Config, Context, Engine, EngineBuilder, Limit, Run, RunId, RunOutcome, SlotPool, Task,
    TaskError, TaskHandle, Value, WaitError, Workflow,
};
use tidegate_core::lifecycle::{Kind, Reason};

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

fn one(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

/// Doubles its input.
async fn double(context: &mut Context<u32>) -> Result<u32, TaskError> {
    Ok(2 * context.input())
}

/// Lets a child double its input.
async fn parent(context: &mut Context<u32>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let child = handle.run_child("double", context.input()).await?;
    assert!(handle.is_slot_held());
    Ok(child.output("double")?)
}

/// As deep as its input says, through children.
async fn deep(context: &mut Context<u32>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let _inside = context.state::<Scene>()?.crowd().enter();
    match *context.input() {
        0 => Ok(0),
        more => {
            drop(_inside);
            let child = handle.run_child("deep", more - 1).await?;
            assert!(handle.is_slot_held());
            Ok(1 + child.output::<u32>("deep")?)
        }
    }
}

async fn fan(context: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    let child = handle.run_child("double", context.item::<u32>()?).await?;
    Ok(child.output("double")?)
}

/// Computes until it is let go.
async fn held(context: &mut Context<Value>) -> Result<(), TaskError> {
    context.state::<Scene>()?.at("held").await;
    Ok(())
}

/// Begins a child that lasts, and does with it what its input says.
async fn leaves(context: &mut Context<String>, handle: &TaskHandle) -> Result<(), TaskError> {
    let scene = context.state::<Scene>()?;
    let way = context.input().clone();
    tokio::select! {
        biased;
        ended = handle.run_child("held", way.clone()) => panic!("it is held: {ended:?}"),
        () = scene.at(&way), if way != "waits" => {}
    }
    match way.as_str() {
        "succeeds" => Ok(()),
        "fails" => Err("it fails".into()),
        "panics" => panic!("it panics"),
        other => panic!("{other} is no way"),
    }
}

/// Fails the first time, behind its child.
async fn again(context: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    let child = handle.run_child("double", 4).await?;
    context.state::<Scene>()?.note(child.id.to_string());
    match handle.attempt() {
        1 => Err("the first time".into()),
        _ => Ok(child.output("double")?),
    }
}

/// Has no patience the first time.
async fn hasty(context: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let patience = if handle.attempt() == 1 { Duration::from_millis(1) } else { HOUR };
    let child = handle.run_child("held", ()).timeout(patience).await;
    context.state::<Scene>()?.note(if child.is_ok() { "ended" } else { "timed out" });
    Ok(child?.id.to_string())
}

/// The first of a child that lasts, and a signal.
async fn first(_: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let child = handle.run_child("held", ()).map(|child| child.id.to_string());
    let signal = handle.wait_for_signal_as::<String>("go");
    let won = handle.wait_any([child, signal]).await?;
    assert!(handle.is_slot_held());
    Ok(won)
}

/// The first of a signal and a child that ends; then the signal that has lost.
async fn signal_loses(_: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let signal = handle.wait_for_signal_as::<String>("go");
    let child = handle.run_child("double", 1).map(|child| child.workflow);
    let won = handle.wait_any([signal, child]).await?;
    let then: String = handle.wait_for_signal_as("go").await?;
    Ok(format!("{won}, then {then}"))
}

async fn unknown(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.run_child("duoble", 1).await?;
    Ok(())
}

/// Waits for the run its input names.
async fn wait_for(context: &mut Context<String>, handle: &TaskHandle) -> Result<String, TaskError> {
    let run: RunId = context.input().parse()?;
    let run = handle.wait_for_run(run).await?;
    assert!(handle.is_slot_held());
    Ok(format!("{} {}", run.workflow, run.state))
}

/// Is told for which run it waits.
async fn wait_for_told(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let run: String = handle.wait_for_signal_as("run").await?;
    handle.wait_for_run(run.parse()?).await?;
    Ok(())
}

async fn wait_for_itself(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.wait_for_run(handle.run_id().unwrap()).await?;
    Ok(())
}

/// Keeps a limit that its child needs, or gives it back.
async fn keeps(context: &mut Context<String>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let child = || handle.run_child("limited", 3);
    let wait = match context.input().as_str() {
        "keeps" => child(),
        "releases" => child().releasing("api"),
        "releases both" => handle.wait_any([child(), child()]).releasing("api"),
        "releases all" => {
            handle.wait_all([child(), child()]).releasing("api").map(|mut c| c.remove(0))
        }
        other => panic!("{other} is no way"),
    };
    let output = wait.await?.output("limited")?;
    let limits = context.state::<Scene>()?;
    limits.note("goes on");
    Ok(output)
}

/// In another queue, with another priority.
async fn told(context: &mut Context<bool>, handle: &TaskHandle) -> Result<(), TaskError> {
    let elsewhere = *context.input();
    let child = handle.run_child_with("held", (), |child| match elsewhere {
        true => child.queue("elsewhere").priority(-3),
        false => child,
    });
    child.await?;
    Ok(())
}

fn with_all(engine: EngineBuilder, scene: &Scene) -> EngineBuilder {
    let retried = |task: Task| task.retries(1).backoff(Backoff::fixed(Duration::ZERO));
    engine
        .workflow(one(Task::new("double", double)))
        .workflow(one(Task::new("parent", parent)))
        .workflow(one(Task::new("deep", deep)))
        .workflow(one(Task::new("fan", fan).each("items")))
        .workflow(one(Task::new("held", held)))
        .workflow(one(Task::new("leaves", leaves).deadline(HOUR)))
        .workflow(one(retried(Task::new("again", again))))
        .workflow(one(retried(Task::new("hasty", hasty))))
        .workflow(one(Task::new("first", first)))
        .workflow(one(Task::new("signal loses", signal_loses)))
        .workflow(one(Task::new("unknown", unknown)))
        .workflow(one(Task::new("wait for", wait_for)))
        .workflow(one(Task::new("wait for told", wait_for_told)))
        .workflow(one(Task::new("wait for itself", wait_for_itself)))
        .workflow(one(Task::new("limited", double).limit("api")))
        .workflow(one(Task::new("keeps", keeps).limit("api")))
        .workflow(one(Task::new("told", told)))
        .limit(Limit::new("api").at_once(1))
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

/// Runs of a workflow, the newest first.
async fn runs(engine: &Engine, workflow: &str) -> Vec<RunSummary> {
    let workflow = Some(workflow.to_owned());
    engine.runs(RunsPage { workflow, limit: 1_000, ..RunsPage::default() }).await.unwrap()
}

/// The only run of a workflow, as soon as there is one.
async fn only(engine: &Engine, workflow: &str) -> Run {
    until("it was begun", async || !runs(engine, workflow).await.is_empty()).await;
    let runs = runs(engine, workflow).await;
    assert_eq!(runs.len(), 1);
    engine.run(runs[0].id).await.unwrap()
}

/// In which words the only task of a run has failed for good.
async fn failure(run: &Run) -> String {
    let status = run.wait().await.unwrap();
    let task = &status.tasks[0];
    assert_eq!((task.kind, task.attempt), (Kind::Failed, 1), "{task:?}");
    task.error.clone().unwrap()
}

on_every_store! {
    async fn a_child_has_its_input_and_its_parent_what_it_returned(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("parent", 21).await.unwrap();
        assert_eq!(output::<u32>(&run, "parent").await, 42);
        let child = &runs(&engine, "double").await[0];
        assert!(child.parent.is_some());
        assert_eq!(look(&run, "parent").await.entries, 1);
        is_sound(engine.store()).await;
    }

    async fn on_one_slot_ten_levels_end(place: Place) {
        for parkable in [false, true] {
            let scene = Scene::default();
            let engine = with_all(place.engine().slots(1), &scene).park_after(Duration::ZERO);
            let task = Task::new("deep", deep);
            let engine = match parkable {
                true => place
                    .engine()
                    .slots(1)
                    .park_after(Duration::ZERO)
                    .workflow(one(task.parkable()))
                    .state(scene.clone()),
                false => engine,
            };
            let engine = engine.start().await.unwrap();
            let run = engine.submit("deep", 10).await.unwrap();
            assert_eq!(output::<u32>(&run, "deep").await, 10);
            assert_eq!(scene.crowd().most(), 1);
            assert!(look(&run, "deep").await.entries <= 1 + u32::from(parkable));
            until_quiet(&engine).await;
            is_sound(engine.store()).await;
            engine.shutdown(HOUR).await;
        }
    }

    async fn as_many_parents_as_fit_into_memory_have_their_children_all_the_same(place: Place) {
        let scene = Scene::default();
        let mut config = Config::default();
        (config.in_memory_max, config.slots) = (4, 2);
        let engine = with_all(place.engine().config(config), &scene).start().await.unwrap();
        let parents = engine.submit_many("parent", 0..12).await.unwrap();
        let fans = engine.submit_many("fan", vec![json!({ "items": [1, 2, 3] }); 6]).await.unwrap();
        let deep = engine.submit_many("deep", [6; 6]).await.unwrap();
        for (number, run) in (0..).zip(&parents) {
            assert_eq!(output::<u32>(run, "parent").await, 2 * number);
        }
        for run in &fans {
            assert_eq!(output::<Vec<u32>>(run, "fan").await, [2, 4, 6]);
        }
        for run in &deep {
            assert_eq!(output::<u32>(run, "deep").await, 6);
        }
        until_quiet(&engine).await;
        is_sound(engine.store()).await;
    }

    async fn a_child_has_queue_and_priority_of_its_parent_unless_told(place: Place) {
        let scene = Scene::default();
        let queues = ["default", "night", "elsewhere"];
        let engine = with_all(place.engine().queues(queues), &scene).start().await.unwrap();
        for (elsewhere, wanted) in [(false, ("night", 5)), (true, ("elsewhere", -3))] {
            let parent = engine.submit("told", elsewhere).queue("night").priority(5).await.unwrap();
            scene.reached("held").await;
            let child = &runs(&engine, "held").await[0];
            assert_eq!((&*child.queue, child.priority), wanted);
            scene.open("held");
            assert_eq!(parent.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        }
    }

    async fn the_success_of_its_parent_leaves_a_child_alone_that_was_given_up(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("leaves", "succeeds").await.unwrap();
        let child = only(&engine, "held").await;
        scene.reached("held").await;
        scene.open("succeeds");
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        assert_eq!(look(&child, "held").await.kind, Kind::Active);
        scene.open("held");
        assert_eq!(child.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        is_sound(engine.store()).await;
    }

    async fn a_child_is_cancelled_when_its_parent_fails(place: Place) {
        let (scene, engine) = started(&place).await;
        for (number, way) in (1..).zip(["fails", "panics"]) {
            let run = engine.submit("leaves", way).await.unwrap();
            scene.reached("held").await;
            scene.open(way);
            assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Failed));
            let children = runs(&engine, "held").await;
            assert_eq!(children.len(), number);
            let child = engine.run(children[0].id).await.unwrap();
            assert_eq!(child.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        }
        until_quiet(&engine).await;
        is_sound(engine.store()).await;
    }

    async fn a_child_is_cancelled_with_its_parent(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("leaves", "waits").await.unwrap();
        scene.reached("held").await;
        until_is(&run, "leaves", Kind::Deferred).await;
        let child = only(&engine, "held").await;
        run.cancel().await.unwrap();
        let status = child.wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Cancelled));
        assert_eq!(status.tasks[0].reason, Some(Reason::User));
        until_quiet(&engine).await;
        is_sound(engine.store()).await;
    }

    async fn a_child_is_cancelled_when_its_parent_meets_its_deadline(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = with_all(wall.on(place.engine()), &scene).start().await.unwrap();
        let run = engine.submit("leaves", "waits").await.unwrap();
        scene.reached("held").await;
        until_is(&run, "leaves", Kind::Deferred).await;
        let child = only(&engine, "held").await;
        wall.pass(&engine, HOUR).await;
        let status = run.wait().await.unwrap();
        assert_eq!(status.tasks[0].reason, Some(Reason::Deadline));
        assert_eq!(child.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        until_quiet(&engine).await;
        is_sound(engine.store()).await;
    }

    async fn a_child_that_was_cancelled_or_has_failed_is_no_error_to_its_parent(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("told", false).await.unwrap();
        scene.reached("held").await;
        only(&engine, "held").await.cancel().await.unwrap();
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
    }

    async fn the_next_attempt_finds_the_child_of_the_one_before(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("again", ()).await.unwrap();
        assert_eq!(output::<u32>(&run, "again").await, 8);
        let child = only(&engine, "double").await.id().to_string();
        assert_eq!(scene.notes(), [child.clone(), child]);
    }

    // Its time-out was kept for the next attempt, which timed out at once.
    async fn the_next_attempt_waits_for_the_child_with_a_patience_of_its_own(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("hasty", ()).await.unwrap();
        until("it is tried again", async || look(&run, "hasty").await.attempt == 2).await;
        until_is(&run, "hasty", Kind::Deferred).await;
        scene.open("held");
        let child = only(&engine, "held").await.id().to_string();
        assert_eq!(output::<String>(&run, "hasty").await, child);
        assert_eq!(scene.notes(), ["timed out", "ended"]);
        is_sound(engine.store()).await;
    }

    async fn a_child_that_is_not_the_first_of_several_is_cancelled(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("first", ()).await.unwrap();
        scene.reached("held").await;
        let child = only(&engine, "held").await;
        run.signal("go", "signal").await.unwrap();
        assert_eq!(output::<String>(&run, "first").await, "signal");
        assert_eq!(child.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        until_quiet(&engine).await;
        is_sound(engine.store()).await;
    }

    async fn a_signal_wait_that_is_not_the_first_of_several_receives_nothing(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("signal loses", ()).await.unwrap();
        only(&engine, "double").await.wait().await.unwrap();
        // Sent before the child's end has been noticed, the signal would win by the order of the waits.
        until("it waits for the signal alone", async || {
            look(&run, "signal loses").await.waits_for.is_some_and(|(what, _)| what == "signal \"go\"")
        })
        .await;
        run.signal("go", "this").await.unwrap();
        assert_eq!(output::<String>(&run, "signal loses").await, "double, then this");
    }

    async fn one_of_a_workflow_that_nobody_knows_fails_by_name(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("unknown", ()).await.unwrap();
        let error = failure(&run).await;
        assert!(error.contains("\"duoble\""), "{error}");
    }

    async fn another_run_is_waited_for_whether_it_has_ended_or_not(place: Place) {
        let (scene, engine) = started(&place).await;
        let ended = engine.submit("double", 1).await.unwrap();
        ended.wait().await.unwrap();
        let run = engine.submit("wait for", ended.id().to_string()).await.unwrap();
        assert_eq!(output::<String>(&run, "wait for").await, "double succeeded");

        let open = engine.submit("held", ()).await.unwrap();
        let waits = engine.submit("wait for", open.id().to_string()).await.unwrap();
        until_is(&waits, "wait for", Kind::Deferred).await;
        let what = look(&waits, "wait for").await.waits_for.unwrap().0;
        assert_eq!(what, format!("run {}", open.id()));
        scene.open("held");
        assert_eq!(output::<String>(&waits, "wait for").await, "held succeeded");

        let cancelled = engine.submit("held", ()).await.unwrap();
        let waits = engine.submit("wait for", cancelled.id().to_string()).await.unwrap();
        cancelled.cancel().await.unwrap();
        let how = output::<String>(&waits, "wait for").await;
        assert!(["held cancelled", "held succeeded"].contains(&how.as_str()), "{how}");

        let unknown = RunId::new(std::time::SystemTime::now().into(), 7);
        let run = engine.submit("wait for", unknown.to_string()).await.unwrap();
        let error = failure(&run).await;
        assert!(error.contains(&format!("there is no run {unknown}")), "{error}");
    }

    async fn the_run_of_another_engine_is_waited_for(place: Place) {
        let (scene, one) = started(&place).await;
        let two = with_all(place.engine(), &scene).start().await.unwrap();
        let other = one.submit("held", ()).await.unwrap();
        scene.reached("held").await;
        let waits = two.submit("wait for", other.id().to_string()).await.unwrap();
        until_is(&waits, "wait for", Kind::Deferred).await;
        scene.open("held");
        assert_eq!(output::<String>(&waits, "wait for").await, "held succeeded");
    }

    async fn whoever_closes_a_circle_of_waits_fails_by_name(place: Place) {
        let (_, engine) = started(&place).await;
        let itself = engine.submit("wait for itself", ()).await.unwrap();
        let error = failure(&itself).await;
        assert!(error.contains(&itself.id().to_string()), "{error}");

        let told = engine.submit_many("wait for told", [(), (), ()]).await.unwrap();
        for (run, next) in told.iter().zip(&told[1..]) {
            run.signal("run", next.id().to_string()).await.unwrap();
            let what = format!("run {}", next.id());
            until("it waits for the next", async || {
                look(run, "wait for told").await.waits_for.is_some_and(|(wait, _)| wait == what)
            })
            .await;
        }
        told[2].signal("run", told[0].id().to_string()).await.unwrap();
        let error = failure(&told[2]).await;
        for run in [&told[0], &told[2]] {
            assert!(error.contains(&run.id().to_string()), "{error}");
        }
        // The others have what they wait for: its end.
        for run in &told[..2] {
            assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        }
        is_sound(engine.store()).await;
    }

    async fn a_parent_that_keeps_a_limit_which_its_child_needs_fails_by_name(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("keeps", "keeps").await.unwrap();
        let error = failure(&run).await;
        assert!(error.contains("\"keeps\" keeps") && error.contains("\"limited\""), "{error}");
        assert!(error.contains(".releasing(\"api\")"), "{error}");
        assert!(runs(&engine, "limited").await.is_empty(), "no run was begun for it");
        assert!(scene.notes().is_empty());
    }

    async fn a_parent_that_gives_the_limit_back_has_it_again_before_it_goes_on(place: Place) {
        for slots in [1, 2] {
            let scene = Scene::default();
            let engine = with_all(place.engine().slots(slots), &scene).start().await.unwrap();
            for way in ["releases", "releases both", "releases all"] {
                let runs = engine.submit_many("keeps", [way; 5]).await.unwrap();
                for run in &runs {
                    assert_eq!(output::<u32>(run, "keeps").await, 6, "{way}");
                }
            }
            assert_eq!(scene.notes().len(), 15);
            let api = &engine.limits().await.unwrap()[0];
            assert_eq!(api.in_use, 0);
            until_quiet(&engine).await;
            is_sound(engine.store()).await;
            engine.shutdown(HOUR).await;
        }
    }

    async fn whatever_request_goes_wrong_there_is_one_child_and_its_parent_ends(place: Place) {
        let mut before = 0;
        for how in [Blown::Fails, Blown::Lost] {
            for requests in 0..8 {
                let (faulty, scene) = (Faulty::on(&place).await, Scene::default());
                let engine = with_all(faulty.engine(), &scene).start().await.unwrap();
                let run = engine.submit("deep", 3).await.unwrap();
                faulty.blow_after(requests, how);
                assert_eq!(output::<u32>(&run, "deep").await, 3, "{how:?} after {requests} requests");
                let all = runs(&engine, "deep").await.len();
                assert_eq!(all - before, 4, "{how:?} after {requests} requests");
                before = all;
                is_sound(engine.store()).await;
                engine.shutdown(HOUR).await;
            }
        }
    }

    async fn whenever_the_process_dies_there_is_one_child_and_its_parent_ends(place: Place) {
        let mut before = 0;
        for how in [Blown::Before, Blown::After] {
            for requests in 0..8 {
                let (faulty, scene) = (Faulty::on(&place).await, Scene::default());
                let (process, engine) = Process::start(with_all(faulty.engine(), &scene)).await;
                let run = engine.submit("deep", 3).await.unwrap();
                let id = run.id();
                faulty.blow_after(requests, how);
                let done = async { drop(run.wait().await) };
                tokio::select! { () = faulty.blown() => {}, () = done => {} }
                drop((engine, run));
                process.die().await;
                drop(faulty);
                place.bury_workers();

                let engine = with_all(place.engine(), &scene).start().await.unwrap();
                let run = engine.run(id).await.unwrap();
                assert_eq!(output::<u32>(&run, "deep").await, 3, "{how:?} after {requests} requests");
                let all = runs(&engine, "deep").await;
                assert_eq!(all.len() - before, 4, "{how:?} after {requests} requests");
                before = all.len();
                let ids: BTreeSet<_> = all.iter().map(|run| run.id).collect();
                assert_eq!(ids.len(), all.len());
                is_sound(engine.store()).await;
                engine.shutdown(HOUR).await;
            }
        }
    }
}

#[tokio::test]
async fn outside_an_engine_there_are_none() {
    let handle = TaskHandle::new(SlotPool::new(1).unwrap().acquire().await.unwrap());
    let run = RunId::new(std::time::SystemTime::now().into(), 7);
    for error in [
        handle.run_child("double", 1).await.unwrap_err(),
        handle.wait_for_run(run).await.unwrap_err(),
    ] {
        assert!(matches!(error, WaitError::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("only in a task that an engine runs"), "{error}");
    }
}
