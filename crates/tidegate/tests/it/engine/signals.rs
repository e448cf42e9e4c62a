//! Signals: each is received by one wait, whatever happens in between.

use super::faults::{Blown, Faulty};
use super::gates::{Process, fake_clock, is_sound, on_paused_time};
use super::scene::{Scene, Wall, look, until_is, until_quiet};
use super::support::{Place, on_every_store, until, within};
use crate::support::ms;
use std::time::Duration;
use tidegate::engine::SignalError;
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Run, RunId, RunOutcome, SlotPool, Task, TaskError,
    TaskHandle, Value, WaitError, Workflow,
};
use tidegate_core::lifecycle::{Kind, Reason};
use tokio::time::Instant;

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

fn one(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

/// Receives what is sent under a name.
async fn receive(context: &mut Context<String>, handle: &TaskHandle) -> Result<Value, TaskError> {
    let received = handle.wait_for_signal(context.input()).await?;
    assert!(handle.is_slot_held());
    Ok(received)
}

/// Receives so many, one after the other.
async fn receive_many(
    context: &mut Context<usize>,
    handle: &TaskHandle,
) -> Result<Vec<u32>, TaskError> {
    let scene = context.state::<Scene>()?;
    let mut received = Vec::new();
    for _ in 0..*context.input() {
        received.push(handle.wait_for_signal_as("go").await?);
        assert!(handle.is_slot_held());
        let _inside = scene.crowd().enter();
        tokio::task::yield_now().await;
    }
    Ok(received)
}

/// Receives after it was let go.
async fn later(context: &mut Context, handle: &TaskHandle) -> Result<Value, TaskError> {
    context.state::<Scene>()?.at("before").await;
    Ok(handle.wait_for_signal("go").await?)
}

/// Receives two at once.
async fn at_once(_: &mut Context, handle: &TaskHandle) -> Result<(u32, u32), TaskError> {
    let waits = (handle.wait_for_signal_as("go"), handle.wait_for_signal_as("go"));
    let (one, two) = futures_util::join!(waits.0, waits.1);
    assert!(handle.is_slot_held());
    Ok((one?, two?))
}

/// Gives a wait up in one way or another, and waits again.
async fn gives_up(context: &mut Context<String>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let scene = context.state::<Scene>()?;
    match context.input().as_str() {
        "unpolled" => drop(handle.wait_for_signal("go")),
        "unpolled later" if scene.notes() == ["later"] => drop(handle.wait_for_signal("go")),
        "unpolled later" => drop(handle.wait_for_signal("go").await?),
        "timeout" => {
            let wait = handle.wait_for_signal("go");
            assert!(tokio::time::timeout(ms(1), wait).await.is_err());
        }
        "select" => tokio::select! {
            biased;
            _ = handle.wait_for_signal("go") => panic!("it was not sent"),
            () = scene.at("select") => {}
        },
        "all" => {
            let waits = [handle.wait_for_signal("early"), handle.wait_for_signal("go")];
            tokio::select! {
                biased;
                _ = handle.wait_all(waits) => panic!("it was not sent"),
                () = scene.at("select") => {}
            }
            let early: u32 = handle.wait_for_signal_as("early").await?;
            assert_eq!(early, 1, "the other was given up with it");
        }
        "any" => {
            let waits = [handle.wait_for_signal("other"), handle.wait_for_signal("go")];
            tokio::select! {
                biased;
                _ = handle.wait_any(waits) => panic!("it was not sent"),
                () = scene.at("select") => {}
            }
        }
        other => panic!("{other} is no way"),
    }
    scene.at("given up").await;
    let received = handle.wait_for_signal_as("go").await?;
    assert!(handle.is_slot_held());
    Ok(received)
}

/// Gives a wait up that is over and wants its slot again.
async fn too_late(context: &mut Context<String>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let scene = context.state::<Scene>()?;
    let go = || handle.wait_for_signal_as::<u32>("go");
    let wait = match context.input().as_str() {
        "plain" => go(),
        "any" => handle.wait_any([handle.sleep(HOUR).map(|()| 0), go()]),
        "all" => handle.wait_all([go()]).map(|all| all[0]),
        other => panic!("{other} is no way"),
    };
    tokio::select! {
        biased;
        received = wait => panic!("it has its slot: {received:?}"),
        () = scene.at("give up") => scene.note("given up"),
    }
    Ok(go().await?)
}

/// Computes until it is let go.
async fn computes(context: &mut Context) -> Result<(), TaskError> {
    context.state::<Scene>()?.at("computes").await;
    Ok(())
}

/// Receives with patience.
async fn patient(context: &mut Context<u64>, handle: &TaskHandle) -> Result<Value, TaskError> {
    let limit = Duration::from_secs(*context.input());
    let wait = handle.wait_for_signal("go").named("the word").timeout(limit);
    let result = wait.await;
    context.state::<Scene>()?.note(match &result {
        Ok(_) => "received",
        Err(WaitError::TimedOut { .. }) => "timed out",
        Err(_) => "failed",
    });
    Ok(result?)
}

/// Notes what it received, and fails the first time.
async fn fails_once(context: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    let received: u32 = handle.wait_for_signal_as("go").await?;
    context.state::<Scene>()?.note(received.to_string());
    match handle.attempt() {
        1 => Err("the first time".into()),
        _ => Ok(received),
    }
}

/// Times out the first time.
async fn late_once(_: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    let patience = if handle.attempt() == 1 { ms(1) } else { HOUR };
    Ok(handle.wait_for_signal_as("go").timeout(patience).await?)
}

async fn typed(_: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let (name, count): (String, u32) = handle.wait_for_signal_as("order").await?;
    let nothing: () = handle.wait_for_signal_as("nothing").await?;
    Ok(format!("{count} {name} {nothing:?}"))
}

async fn wants_a_number(_: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    match handle.wait_for_signal_as::<u32>("go").await {
        Ok(number) => Ok(number),
        // What cannot be read is received all the same.
        Err(WaitError::Failed(error)) if error.to_string().contains("cannot be read as u32") => {
            Ok(handle.wait_for_signal_as("go").await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Receives so many, and computes after each until it is let go.
async fn dies(context: &mut Context<usize>, handle: &TaskHandle) -> Result<(), TaskError> {
    let scene = context.state::<Scene>()?;
    for _ in 0..*context.input() {
        let number: usize = handle.wait_for_signal_as("go").await?;
        scene.at(&format!("received {number}")).await;
    }
    Ok(())
}

/// An item that receives what is sent to the run.
async fn item(context: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    let number: u32 = context.item()?;
    Ok(number + handle.wait_for_signal_as::<u32>("go").await?)
}

fn with_all(engine: EngineBuilder, scene: &Scene) -> EngineBuilder {
    let two =
        Workflow::builder("two").task(Task::new("left", receive)).task(Task::new("right", receive));
    let retried = |task: Task| task.retries(1).backoff(Backoff::fixed(Duration::ZERO));
    engine
        .workflow(one(Task::new("receive", receive)))
        .workflow(one(Task::new("receive many", receive_many)))
        .workflow(one(Task::new("later", later)))
        .workflow(one(Task::new("at once", at_once)))
        .workflow(one(Task::new("gives up", gives_up)))
        .workflow(one(Task::new("too late", too_late)))
        .workflow(one(Task::new("computes", computes)))
        .workflow(one(Task::new("patient", patient)))
        .workflow(one(Task::new("parked", patient).parkable()))
        .workflow(one(retried(Task::new("fails once", fails_once))))
        .workflow(one(retried(Task::new("late once", late_once))))
        .workflow(one(Task::new("dies", dies)))
        .workflow(one(Task::new("typed", typed)))
        .workflow(one(Task::new("wants a number", wants_a_number)))
        .workflow(one(Task::new("item", item).each("items")))
        .workflow(two.build().unwrap())
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
    async fn one_that_was_sent_before_the_wait_is_there_for_it(place: Place) {
        let (scene, engine) = started(&place).await;
        let run = engine.submit("later", ()).await.unwrap();
        scene.reached("before").await;
        run.signal("go", "early").await.unwrap();
        scene.open("before");
        assert_eq!(output::<String>(&run, "later").await, "early");
        assert_eq!(look(&run, "later").await.entries, 1);
        is_sound(engine.store()).await;
    }

    async fn one_that_is_sent_before_the_task_begins_is_there_for_it(place: Place) {
        let (_, engine) = started(&place).await;
        let later = std::time::SystemTime::now() + ms(50);
        let run = engine.submit("receive", "go").not_before(later).await.unwrap();
        run.signal("go", 7).await.unwrap();
        assert_eq!(output::<u32>(&run, "receive").await, 7);
    }

    async fn one_that_is_sent_during_the_wait_ends_it(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("receive", "go").await.unwrap();
        until_is(&run, "receive", Kind::Deferred).await;
        let (what, _) = look(&run, "receive").await.waits_for.unwrap();
        assert_eq!(what, "signal \"go\"");
        assert_eq!(engine.slots().in_use(), 0, "it waits without its slot");
        run.signal("other", 1).await.unwrap();
        engine.signal(run.id(), "go", 2).await.unwrap();
        assert_eq!(output::<u32>(&run, "receive").await, 2);
        until_quiet(&engine).await;
    }

    async fn those_of_a_name_come_in_the_order_in_which_they_were_sent(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("receive many", 20).await.unwrap();
        for number in 0..20 {
            run.signal("go", number).await.unwrap();
        }
        assert_eq!(output::<Vec<u32>>(&run, "receive many").await, Vec::from_iter(0..20));
        assert_eq!(look(&run, "receive many").await.entries, 1);
        is_sound(engine.store()).await;
    }

    async fn of_two_tasks_of_a_run_the_one_that_waits_longer_has_the_first(place: Place) {
        let scene = Scene::default();
        let engine = with_all(place.engine().slots(1), &scene).start().await.unwrap();
        let run = engine.submit("two", "go").await.unwrap();
        until_is(&run, "left", Kind::Deferred).await;
        until_is(&run, "right", Kind::Deferred).await;
        run.signal("go", 1).await.unwrap();
        until_is(&run, "left", Kind::Succeeded).await;
        assert_eq!(look(&run, "right").await.kind, Kind::Deferred);
        run.signal("go", 2).await.unwrap();
        let status = run.wait().await.unwrap();
        let outputs = ["left", "right"].map(|task| status.output::<u32>(task).unwrap());
        assert_eq!(outputs, [1, 2]);
    }

    async fn two_waits_of_one_task_have_one_each(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("at once", ()).await.unwrap();
        run.signal("go", 1).await.unwrap();
        run.signal("go", 2).await.unwrap();
        assert_eq!(output::<(u32, u32)>(&run, "at once").await, (1, 2));
    }

    async fn a_wait_that_was_given_up_receives_nothing_and_the_next_does(place: Place) {
        let (scene, engine) = started(&place).await;
        scene.open("select");
        for way in ["unpolled", "timeout", "select", "all", "any"] {
            let run = engine.submit("gives up", way).await.unwrap();
            if way == "all" {
                run.signal("early", 1).await.unwrap();
            }
            scene.reached("given up").await;
            run.signal("go", 5).await.unwrap();
            scene.open("given up");
            assert_eq!(output::<u32>(&run, "gives up").await, 5, "{way}");
        }
        until_quiet(&engine).await;
        is_sound(engine.store()).await;
    }

    // It was received in the store, and the wait dropped before it had its slot: what it had brought
    // was gone.
    async fn a_wait_that_is_over_and_given_up_before_it_has_its_slot_receives_nothing(place: Place) {
        for way in ["plain", "any", "all"] {
            let scene = Scene::default();
            let engine = with_all(place.engine().slots(1), &scene).start().await.unwrap();
            let run = engine.submit("too late", way).await.unwrap();
            until_is(&run, "too late", Kind::Deferred).await;
            let other = engine.submit("computes", ()).await.unwrap();
            scene.reached("computes").await;
            run.signal("go", 5).await.unwrap();
            until("it wants its slot", async || engine.slots().waiting() == 1).await;
            scene.open("give up");
            until("it has given up", async || scene.notes() == ["given up"]).await;
            scene.open("computes");
            assert_eq!(output::<u32>(&run, "too late").await, 5, "{way}");
            other.wait().await.unwrap();
            until_quiet(&engine).await;
            is_sound(engine.store()).await;
            engine.shutdown(HOUR).await;
        }
    }

    // Its row went on waiting, and received what the next wait was there for.
    async fn a_wait_of_an_earlier_entry_that_this_one_gives_up_receives_nothing(place: Place) {
        for way in ["select", "all", "any", "unpolled later"] {
            let (_, engine) = started(&place).await;
            let run = engine.submit("gives up", way).await.unwrap();
            until_is(&run, "gives up", Kind::Deferred).await;
            let id = run.id();
            engine.shutdown(HOUR).await;
            drop((engine, run));

            let scene = Scene::default();
            scene.note("later");
            scene.open("select");
            let engine = with_all(place.engine(), &scene).start().await.unwrap();
            let run = engine.run(id).await.unwrap();
            if way == "all" {
                run.signal("early", 1).await.unwrap();
            }
            scene.reached("given up").await;
            run.signal("go", 5).await.unwrap();
            scene.open("given up");
            assert_eq!(output::<u32>(&run, "gives up").await, 5, "{way}");
            assert_eq!(look(&run, "gives up").await.entries, 2, "{way}");
            is_sound(engine.store()).await;
            engine.shutdown(HOUR).await;
        }
    }

    async fn to_a_run_that_is_over_or_unknown_it_is_refused(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("receive", "go").await.unwrap();
        run.signal("go", 1).await.unwrap();
        run.wait().await.unwrap();
        let error = run.signal("go", 1).await.unwrap_err();
        assert!(matches!(error, SignalError::Over(id) if id == run.id()), "{error:?}");
        assert!(error.to_string().contains("is over"), "{error}");
        let unknown = RunId::new(std::time::SystemTime::now().into(), 7);
        let error = engine.signal(unknown, "go", 1).await.unwrap_err();
        assert!(matches!(error, SignalError::Unknown(id) if id == unknown), "{error:?}");
        let cancelled = engine.submit("receive", "go").await.unwrap();
        cancelled.cancel().await.unwrap();
        let error = cancelled.signal("go", 1).await.unwrap_err();
        assert!(matches!(error, SignalError::Over(_)), "{error:?}");
    }

    async fn to_a_run_that_is_paused_it_is_sent_and_received(place: Place) {
        let (_, engine) = started(&place).await;
        // What has begun goes on.
        let begun = engine.submit("receive", "go").await.unwrap();
        until_is(&begun, "receive", Kind::Deferred).await;
        begun.pause().await.unwrap();
        begun.signal("go", 1).await.unwrap();
        assert_eq!(output::<u32>(&begun, "receive").await, 1);
        // What has not, receives when it does.
        engine.pause_queue("default").await.unwrap();
        let paused = engine.submit("receive", "go").await.unwrap();
        paused.pause().await.unwrap();
        paused.signal("go", 2).await.unwrap();
        engine.unpause_queue("default").await.unwrap();
        assert_eq!(look(&paused, "receive").await.kind, Kind::Ready);
        paused.unpause().await.unwrap();
        assert_eq!(output::<u32>(&paused, "receive").await, 2);
    }

    async fn one_that_brings_too_much_is_refused_and_says_how_much_is_possible(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("receive", "go").await.unwrap();
        let error = run.signal("go", "x".repeat(20 << 20)).await.unwrap_err();
        assert!(matches!(error, SignalError::Payload(_)), "{error:?}");
        assert!(error.to_string().contains("a signal brings at most"), "{error}");
        run.signal("go", "small").await.unwrap();
        assert_eq!(output::<String>(&run, "receive").await, "small");
    }

    async fn what_it_brings_has_a_type(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("typed", ()).await.unwrap();
        run.signal("order", ("pears", 3)).await.unwrap();
        run.signal("nothing", ()).await.unwrap();
        assert_eq!(output::<String>(&run, "typed").await, "3 pears ()");
        let run = engine.submit("wants a number", ()).await.unwrap();
        run.signal("go", "three").await.unwrap();
        run.signal("go", 3).await.unwrap();
        assert_eq!(output::<u32>(&run, "wants a number").await, 3);
    }

    async fn one_that_was_received_is_received_again_by_the_next_attempt(place: Place) {
        let (scene, engine) = started(&place).await;
        engine.pause_queue("default").await.unwrap();
        let run = engine.submit("fails once", ()).await.unwrap();
        run.signal("go", 1).await.unwrap();
        run.signal("go", 2).await.unwrap();
        engine.unpause_queue("default").await.unwrap();
        assert_eq!(output::<u32>(&run, "fails once").await, 1);
        assert_eq!(scene.notes(), ["1", "1"]);
        is_sound(engine.store()).await;
    }

    // The time-out was kept for the next attempt, which timed out at once, and so did all others.
    async fn a_time_out_is_not_that_of_the_next_attempt(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("late once", ()).await.unwrap();
        until("it is tried again", async || look(&run, "late once").await.attempt == 2).await;
        until_is(&run, "late once", Kind::Deferred).await;
        run.signal("go", 1).await.unwrap();
        assert_eq!(output::<u32>(&run, "late once").await, 1);
    }

    async fn the_first_entry_says_until_when_all_of_them_wait(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = with_all(wall.on(place.engine()), &scene).start().await.unwrap();
        let run = engine.submit("patient", 3_600).await.unwrap();
        until_is(&run, "patient", Kind::Deferred).await;
        let id = run.id();
        engine.shutdown(HOUR).await;
        drop((engine, run));
        // The next one is not there in time.
        let engine = wall.on(place.engine()).start().await.unwrap();
        wall.pass(&engine, HOUR).await;
        engine.shutdown(HOUR).await;
        drop(engine);
        let engine = with_all(wall.on(place.engine()), &scene).start().await.unwrap();
        let status = engine.run(id).await.unwrap().wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::WaitTimeout)));
        assert!(task.error.as_ref().unwrap().contains("the word timed out"), "{task:?}");
        assert_eq!(scene.notes(), ["timed out"]);
    }

    async fn one_that_comes_between_two_entries_is_received_by_the_second(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("receive", "go").await.unwrap();
        until_is(&run, "receive", Kind::Deferred).await;
        let id = run.id();
        engine.shutdown(HOUR).await;
        drop((engine, run));
        // Nobody here knows the task.
        let engine = place.engine().start().await.unwrap();
        engine.signal(id, "go", 9).await.unwrap();
        engine.shutdown(HOUR).await;
        drop(engine);
        let (_, engine) = started(&place).await;
        let run = engine.run(id).await.unwrap();
        assert_eq!(output::<u32>(&run, "receive").await, 9);
        assert_eq!(look(&run, "receive").await.entries, 2);
    }

    async fn one_that_another_engine_sends_is_received(place: Place) {
        let (_, engine) = started(&place).await;
        let other = place.engine().start().await.unwrap();
        let run = engine.submit("receive many", 3).await.unwrap();
        for number in 0..3 {
            until_is(&run, "receive many", Kind::Deferred).await;
            other.signal(run.id(), "go", number).await.unwrap();
        }
        assert_eq!(output::<Vec<u32>>(&run, "receive many").await, [0, 1, 2]);
        is_sound(engine.store()).await;
    }

    async fn the_items_of_a_task_receive_those_of_its_run(place: Place) {
        let (_, engine) = started(&place).await;
        let run = engine.submit("item", serde_json::json!({ "items": [10, 20, 30] })).await.unwrap();
        for _ in 0..3 {
            run.signal("go", 1).await.unwrap();
        }
        assert_eq!(output::<Vec<u32>>(&run, "item").await, [11, 21, 31]);
    }

    async fn with_one_slot_ten_tasks_receive_and_never_two_compute(place: Place) {
        let scene = Scene::default();
        let engine = with_all(place.engine().slots(1), &scene).start().await.unwrap();
        let runs = engine.submit_many("receive many", [3; 10]).await.unwrap();
        for number in 0..3 {
            for run in &runs {
                run.signal("go", number).await.unwrap();
            }
        }
        for run in &runs {
            assert_eq!(output::<Vec<u32>>(run, "receive many").await, [0, 1, 2]);
        }
        assert_eq!(scene.crowd().most(), 1);
        until_quiet(&engine).await;
    }

    // What was there before it was waited for did not count as getting on: after five deaths the task
    // was given up.
    async fn a_task_that_receives_between_any_two_deaths_is_not_given_up(place: Place) {
        const DEATHS: usize = 7;
        let (scene, mut id) = (Scene::default(), None);
        for death in 0..DEATHS {
            let (process, engine) = Process::start(with_all(place.engine(), &scene)).await;
            let run = match id {
                Some(id) => engine.run(id).await.unwrap(),
                None => {
                    engine.pause_queue("default").await.unwrap();
                    let run = engine.submit("dies", DEATHS).await.unwrap();
                    for number in 0..DEATHS {
                        run.signal("go", number).await.unwrap();
                    }
                    engine.unpause_queue("default").await.unwrap();
                    run
                }
            };
            id = Some(run.id());
            // It dies computing, with one more received than before.
            scene.reached(&format!("received {death}")).await;
            drop((engine, run));
            process.die().await;
            place.bury_workers();
            scene.open(&format!("received {death}"));
        }
        let engine = with_all(place.engine(), &scene).start().await.unwrap();
        let status = engine.run(id.unwrap()).await.unwrap().wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Succeeded), "{status:?}");
        is_sound(engine.store()).await;
    }

    async fn whatever_request_goes_wrong_none_is_lost_or_doubled(place: Place) {
        for how in [Blown::Fails, Blown::Lost] {
            for requests in 0..24 {
                let (faulty, scene) = (Faulty::on(&place).await, Scene::default());
                let engine = with_all(faulty.engine(), &scene).start().await.unwrap();
                faulty.blow_after(requests, how);
                let run = loop {
                    match engine.submit("receive many", 3).await {
                        Ok(run) => break run,
                        Err(error) => assert_eq!(how, Blown::Fails, "{error}"),
                    }
                };
                for number in 0..4 {
                    // What failed for certain was not sent.
                    while let Err(error) = run.signal("go", number).await {
                        if let SignalError::Over(_) = error {
                            assert_eq!(number, 3);
                            break;
                        }
                        assert_eq!(how, Blown::Fails, "{error}");
                    }
                }
                let received = output::<Vec<u32>>(&run, "receive many").await;
                assert_eq!(received, [0, 1, 2], "{how:?} after {requests} requests");
                is_sound(engine.store()).await;
                engine.shutdown(HOUR).await;
            }
        }
    }

    async fn whenever_its_receiver_dies_each_is_received_once_and_in_order(place: Place) {
        for how in [Blown::Before, Blown::After] {
            for requests in 0..16 {
                let (faulty, scene) = (Faulty::on(&place).await, Scene::default());
                let engine = with_all(faulty.engine(), &scene);
                let (process, engine) = Process::start(engine).await;
                let sender = place.engine().start().await.unwrap();
                let run = engine.submit("receive many", 4).await.unwrap();
                faulty.blow_after(requests, how);
                for number in 0..4 {
                    sender.signal(run.id(), "go", number).await.unwrap();
                }
                // It may have been done before.
                let done = async { drop(sender.run(run.id()).await.unwrap().wait().await) };
                tokio::select! { () = faulty.blown() => {}, () = done => {} }
                let id = run.id();
                drop((engine, run));
                process.die().await;
                drop(faulty);
                sender.shutdown(HOUR).await;
                drop(sender);
                place.bury_workers();

                let next = with_all(place.engine(), &scene).start().await.unwrap();
                let run = next.run(id).await.unwrap();
                let received = output::<Vec<u32>>(&run, "receive many").await;
                assert_eq!(received, [0, 1, 2, 3], "{how:?} after {requests} requests");
                is_sound(next.store()).await;
                next.shutdown(HOUR).await;
            }
        }
    }
}

on_paused_time! {
    async fn a_wait_times_out_when_its_time_is_up_and_not_before(place: Place) {
        let scene = Scene::default();
        let engine = with_all(place.engine().clock(fake_clock()), &scene).start().await.unwrap();
        let began = Instant::now();
        let run = engine.submit("patient", 10).await.unwrap();
        let status = run.wait().await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 10);
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::WaitTimeout)));
        assert_eq!(task.error.as_deref(), Some("the wait for the word timed out after 10s"));
        // In time.
        let run = engine.submit("patient", 10).await.unwrap();
        tokio::time::sleep(Duration::from_secs(9)).await;
        run.signal("go", 1).await.unwrap();
        assert_eq!(output::<u32>(&run, "patient").await, 1);
        assert_eq!(scene.notes(), ["timed out", "received"]);
    }

    async fn an_entry_after_a_time_out_times_out_at_once(place: Place) {
        let scene = Scene::default();
        async fn twice(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
            let wait = handle.wait_for_signal("go").timeout(Duration::from_secs(10));
            assert!(matches!(wait.await, Err(WaitError::TimedOut { .. })));
            let scene = context.state::<Scene>()?;
            scene.note("timed out");
            handle.defer_while(scene.at("after")).await?;
            Ok(())
        }
        let clock = std::sync::Arc::new(fake_clock());
        let builder = || {
            let clock = clock.clone();
            let engine = place.engine().clock(move || clock()).state(scene.clone());
            engine.workflow(one(Task::new("twice", twice)))
        };
        let engine = builder().start().await.unwrap();
        let run = engine.submit("twice", ()).await.unwrap();
        scene.reached("after").await;
        until_is(&run, "twice", Kind::Deferred).await;
        engine.shutdown(HOUR).await;
        // It comes too late: the first wait has ended without it.
        let engine = builder().start().await.unwrap();
        engine.signal(run.id(), "go", 1).await.unwrap();
        let again = Instant::now();
        scene.reached("after").await;
        assert!(again.elapsed() < Duration::from_secs(10));
        scene.open("after");
        let status = engine.run(run.id()).await.unwrap().wait().await.unwrap();
        assert_eq!((status.outcome(), status.tasks[0].entries), (Some(RunOutcome::Succeeded), 2));
        assert_eq!(scene.notes(), ["timed out"; 2]);
    }
}

#[tokio::test]
async fn outside_an_engine_there_are_none() {
    let handle = TaskHandle::new(SlotPool::new(1).unwrap().acquire().await.unwrap());
    let error = handle.wait_for_signal("go").await.unwrap_err();
    assert!(matches!(error, WaitError::Invalid(_)), "{error:?}");
    assert!(error.to_string().contains("only in a task that an engine runs"), "{error}");
    assert!(handle.is_slot_held());
}

/// Real processes that are killed.
#[cfg(feature = "sqlite")]
mod killed {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};

    const FOLDER: &str = "TIDEGATE_TEST_FOLDER";
    const RUN: &str = "TIDEGATE_TEST_RUN";

    /// What says that no more come.
    const END: u32 = u32::MAX;

    fn here() -> Option<PathBuf> {
        std::env::var_os(FOLDER).map(PathBuf::from)
    }

    fn in_folder(folder: &Path) -> EngineBuilder {
        Engine::builder(format!("sqlite:{}", folder.join("jobs.db").display()))
    }

    /// Adds a line to a file, all of it at once.
    fn write(folder: &Path, file: &str, line: u32) {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(folder.join(file)).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn lines(folder: &Path, file: &str) -> Vec<u32> {
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Receives until it is told that no more come.
    async fn receive_all(
        context: &mut Context,
        handle: &TaskHandle,
    ) -> Result<Vec<u32>, TaskError> {
        let folder = context.state::<PathBuf>()?;
        let mut received = Vec::new();
        loop {
            match handle.wait_for_signal_as("go").await? {
                END => return Ok(received),
                number => {
                    // Only what is new: what was received before is received again.
                    if lines(&folder, "received").last().is_none_or(|last| *last < number) {
                        write(&folder, "received", number);
                    }
                    received.push(number);
                }
            }
        }
    }

    #[tokio::test]
    #[ignore = "it is run by a test in a process of its own"]
    async fn a_receiver() {
        let Some(folder) = here() else { return };
        let parkable = folder.join("parkable").exists();
        let task = Task::new("receive all", receive_all);
        let task = if parkable { task.parkable() } else { task };
        let engine = in_folder(&folder).park_after(Duration::ZERO).workflow(one(task));
        let _engine = engine.state(folder).start().await.unwrap();
        std::future::pending().await
    }

    #[tokio::test]
    #[ignore = "it is run by a test in a process of its own"]
    async fn a_sender() {
        let Some(folder) = here() else { return };
        let run: RunId = std::env::var(RUN).unwrap().parse().unwrap();
        let engine = in_folder(&folder).start().await.unwrap();
        // One that was tried may have been sent.
        for number in lines(&folder, "tried").last().map_or(0, |last| last + 1).. {
            write(&folder, "tried", number);
            engine.signal(run, "go", number).await.unwrap();
            write(&folder, "sent", number);
        }
    }

    fn spawn(folder: &Path, what: &str, run: RunId) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = format!("engine::signals::killed::{what}");
        command.args([&test, "--exact", "--ignored"]);
        command.env(FOLDER, folder).env(RUN, run.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn kill(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    async fn each_is_received_once(parkable: bool) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        if parkable {
            std::fs::write(folder.join("parkable"), "").unwrap();
        }
        // It knows the workflow and has no slot for it: that is the receiver's.
        let knows = one(Task::new("receive all", receive_all));
        let engine = in_folder(folder).workflow(knows).queues(["nobody's"]);
        let engine = engine.state(folder.to_owned()).start().await.unwrap();
        let run = engine.submit("receive all", ()).queue("default").await.unwrap();
        let (mut receiver, mut sender) =
            (spawn(folder, "a_receiver", run.id()), spawn(folder, "a_sender", run.id()));
        for life in 0..12 {
            let (file, more) = if life % 2 == 0 { ("received", 3) } else { ("sent", 5) };
            let wanted = lines(folder, file).len() + more + life;
            until("it has got on", async || lines(folder, file).len() >= wanted).await;
            // At any instant of what comes next.
            tokio::time::sleep(Duration::from_micros(fastrand(life))).await;
            match life % 3 {
                0 => {
                    kill(receiver);
                    receiver = spawn(folder, "a_receiver", run.id());
                }
                1 => {
                    kill(sender);
                    sender = spawn(folder, "a_sender", run.id());
                }
                _ => {
                    kill(receiver);
                    kill(sender);
                    (receiver, sender) = (
                        spawn(folder, "a_receiver", run.id()),
                        spawn(folder, "a_sender", run.id()),
                    );
                }
            }
        }
        kill(sender);
        run.signal("go", END).await.unwrap();
        let received: Vec<u32> = output(&run, "receive all").await;
        kill(receiver);
        assert!(received.is_sorted_by(|a, b| a < b), "in order, none twice: {received:?}");
        let received = BTreeSet::from_iter(received);
        let (sent, tried) = (lines(folder, "sent"), lines(folder, "tried"));
        assert!(sent.iter().all(|number| received.contains(number)), "none is lost");
        assert!(received.is_subset(&BTreeSet::from_iter(tried)), "none is made up");
        is_sound(engine.store()).await;
        engine.shutdown(HOUR).await;
    }

    /// A number below two thousand.
    fn fastrand(seed: usize) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(seed) % 2_000
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_is_killed_each_signal_is_received_once_and_in_order() {
        within(each_is_received_once(false)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_is_killed_each_signal_is_received_once_also_by_a_task_that_parks() {
        within(each_is_received_once(true)).await;
    }
}
