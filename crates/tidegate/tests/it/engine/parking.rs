//! Waits that are rows: nothing of the task is in memory, and nothing of what it waits for is lost.

use super::faults::{Blown, Faulty};
use super::gates::{Process, fake_clock, is_sound, on_paused_time, recorded};
use super::scene::{Scene, Spy, Wall, look, until_is, until_quiet};
use super::support::{Place, on_every_store, until, within};
use crate::support::ms;
use std::time::Duration;
use tidegate::engine::RunsPage;
use tidegate::{
    Context, Engine, EngineBuilder, Limit, Run, RunOutcome, Task, TaskError, TaskHandle, WaitError,
    Workflow,
};
use tidegate_core::lifecycle::{Kind, Reason};
use tidegate_core::store::Happened;
use tidegate_core::wait::WaitOp;
use tokio::time::Instant;

/// Longer than any test.
/// Longer than anything else here. The engine polls its store every second, also on paused time.
const LONG: Duration = Duration::from_secs(600);

/// Everything that can be parked is, at once.
const AT_ONCE: Duration = Duration::ZERO;

fn one(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

/// Waits for what its input says, and notes when nothing of it is left.
async fn waits(context: &mut Context<String>, handle: &TaskHandle) -> Result<String, TaskError> {
    let scene = context.state::<Scene>()?;
    let _gone = scene.note_on_drop("gone");
    let signal = |name: &str| handle.wait_for_signal_as::<String>(name);
    let sleep = || handle.sleep(LONG).map(|()| "time".to_owned());
    let wait = match context.input().as_str() {
        "signal" => signal("go"),
        "signal, releasing" => signal("go").releasing("api"),
        "patient" => signal("go").timeout(LONG),
        "time" => sleep(),
        "until" => {
            let until = handle.wait_for_signal_as("until").await?;
            let until = tidegate::Timestamp::from_micros(until);
            handle.sleep_until(until).map(|()| "time".to_owned())
        }
        "short sleep" => handle.sleep(Duration::from_secs(10)).map(|()| "time".to_owned()),
        "cut sleep" => handle.sleep(2 * LONG).timeout(LONG).map(|()| "time".to_owned()),
        "child" => handle.run_child("held", ()).map(|child| child.workflow),
        "any" => handle.wait_any([signal("go"), sleep()]),
        "all" => {
            let all = [signal("one"), signal("two"), sleep()];
            handle.wait_all(all).map(|all| all.join(" "))
        }
        "nested" => {
            let both = handle.wait_all([signal("one"), signal("two")]).map(|all| all.join(" "));
            handle.wait_any([both, sleep(), signal("go")])
        }
        "late any" => handle.wait_any([signal("go"), signal("other")]).timeout(LONG),
        "late all" => {
            handle.wait_all([signal("go"), signal("other")]).timeout(LONG).map(|_| "?".to_owned())
        }
        "condition" => {
            let scene = scene.clone();
            let check = move || std::future::ready(scene.notes().iter().any(|note| note == "true"));
            handle.defer_until(check, Duration::from_secs(1)).map(|()| "true".to_owned())
        }
        "condition or signal" => {
            let never = handle.defer_until(|| async { false }, Duration::from_secs(1));
            handle.wait_any([never.map(|()| String::new()), signal("go")])
        }
        other => panic!("{other} is no way"),
    };
    let came = wait.await?;
    assert!(handle.is_slot_held());
    Ok(came)
}

/// Begins a child that ends when it is let go.
async fn held(context: &mut Context) -> Result<(), TaskError> {
    context.state::<Scene>()?.at("held").await;
    Ok(())
}

/// Asks for something else when it is entered again.
async fn other_way(context: &mut Context<String>, handle: &TaskHandle) -> Result<(), TaskError> {
    let scene = context.state::<Scene>()?;
    scene.note("entered");
    let first = scene.notes().len() == 1;
    let signal = |name: &str| handle.wait_for_signal(name).map(drop);
    match (context.input().as_str(), first) {
        ("child", true) => drop(handle.run_child("held", ()).await?),
        ("child", false) => drop(handle.run_child("waits", "signal").await?),
        ("any", true) => handle.wait_any([signal("a"), signal("b")]).await?,
        ("any", false) => handle.wait_any([signal("a"), signal("b"), signal("c")]).await?,
        (other, _) => panic!("{other} is no way"),
    }
    Ok(())
}

fn with_all(engine: EngineBuilder, scene: &Scene) -> EngineBuilder {
    let parked = || Task::new("waits", waits).parkable();
    engine
        .workflow(one(parked().limit("api")))
        .workflow(Workflow::builder("until noon").task(parked().deadline(LONG)).build().unwrap())
        .workflow(Workflow::builder("in memory").task(Task::new("waits", waits)).build().unwrap())
        .workflow(one(Task::new("held", held)))
        .workflow(one(Task::new("other way", other_way).parkable().retries(3)))
        .limit(Limit::new("api").at_once(1_000))
        .state(scene.clone())
}

/// An engine that parks at once, and a clock for it.
async fn started(place: &Place) -> (Scene, Wall, Engine) {
    let (scene, wall) = (Scene::default(), Wall::new());
    let engine = with_all(wall.on(place.engine()).park_after(AT_ONCE), &scene);
    let engine = engine.start().await.unwrap();
    (scene, wall, engine)
}

/// A run that is parked.
async fn parked(engine: &Engine, what: &str) -> Run {
    let run = engine.submit("waits", what).await.unwrap();
    until_is(&run, "waits", Kind::Parked).await;
    run
}

async fn output(run: &Run) -> String {
    run.wait().await.unwrap().output("waits").unwrap()
}

async fn in_use(engine: &Engine) -> u32 {
    engine.limits().await.unwrap().iter().map(|limit| limit.in_use).sum()
}

on_every_store! {
    async fn nothing_of_what_is_parked_is_in_memory_and_the_store_says_what_it_waits_for(place: Place) {
        let (scene, wall, engine) = started(&place).await;
        let run = parked(&engine, "signal").await;
        assert_eq!(scene.notes(), ["gone"]);
        until_quiet(&engine).await;
        let task = look(&run, "waits").await;
        assert_eq!(task.waits_for, Some(("signal \"go\"".to_owned(), wall.now())));
        assert_eq!((task.entries, task.attempt), (1, 1));
        assert_eq!(recorded(engine.store(), run.id()).await, [Happened::Parked]);
        run.signal("go", "word").await.unwrap();
        assert_eq!(output(&run).await, "word");
        assert_eq!(look(&run, "waits").await.entries, 2);
        assert_eq!(scene.notes(), ["gone", "gone"]);
        until_quiet(&engine).await;
        is_sound(engine.store()).await;
    }

    async fn time_wakes_what_is_parked_and_not_before_it_has_come(place: Place) {
        for what in ["time", "any"] {
            let (_, wall, engine) = started(&place).await;
            let run = parked(&engine, what).await;
            wall.pass(&engine, LONG - ms(1)).await;
            assert_eq!(look(&run, "waits").await.kind, Kind::Parked);
            wall.pass(&engine, ms(1)).await;
            assert_eq!(output(&run).await, "time");
            assert_eq!(look(&run, "waits").await.entries, 2);
            engine.shutdown(LONG).await;
        }
    }

    async fn an_instant_on_the_wall_clock_wakes_what_is_parked(place: Place) {
        let (_, wall, engine) = started(&place).await;
        let run = parked(&engine, "until").await;
        let until = (wall.now() + LONG).as_micros();
        run.signal("until", until).await.unwrap();
        until_waits_for(&run, "time").await;
        wall.pass(&engine, LONG).await;
        assert_eq!(output(&run).await, "time");
        // One that has passed is not waited for.
        let run = parked(&engine, "until").await;
        run.signal("until", until).await.unwrap();
        assert_eq!(output(&run).await, "time");
        assert_eq!(look(&run, "waits").await.entries, 2);
    }

    async fn the_end_of_a_child_wakes_what_is_parked(place: Place) {
        let (scene, _, engine) = started(&place).await;
        let run = parked(&engine, "child").await;
        scene.reached("held").await;
        until("only the child is owned", async || engine.metrics().owned == 1).await;
        scene.open("held");
        assert_eq!(output(&run).await, "held");
        assert_eq!(look(&run, "waits").await.entries, 2);
        until_quiet(&engine).await;
    }

    async fn a_signal_wins_what_is_parked_and_the_time_that_lost_wakes_nobody(place: Place) {
        let (_, wall, engine) = started(&place).await;
        for what in ["any", "nested"] {
            let run = parked(&engine, what).await;
            run.signal("go", "word").await.unwrap();
            assert_eq!(output(&run).await, "word");
            wall.pass(&engine, 2 * LONG).await;
            assert_eq!(look(&run, "waits").await.entries, 2);
        }
        is_sound(engine.store()).await;
    }

    async fn all_of_several_are_waited_for_as_rows(place: Place) {
        let (_, wall, engine) = started(&place).await;
        let run = parked(&engine, "all").await;
        run.signal("two", "2").await.unwrap();
        until("it is parked again", async || {
            let task = look(&run, "waits").await;
            task.kind == Kind::Parked && task.entries == 2
        })
        .await;
        wall.pass(&engine, LONG).await;
        until("it is parked again", async || {
            let task = look(&run, "waits").await;
            task.kind == Kind::Parked && task.entries == 3
        })
        .await;
        assert_eq!(look(&run, "waits").await.waits_for.unwrap().0, "signal \"one\"");
        run.signal("one", "1").await.unwrap();
        assert_eq!(output(&run).await, "1 2 time");
        is_sound(engine.store()).await;
    }

    async fn patience_ends_for_what_is_parked(place: Place) {
        for what in ["patient", "late any", "late all", "cut sleep"] {
            let (_, wall, engine) = started(&place).await;
            let run = parked(&engine, what).await;
            wall.pass(&engine, LONG).await;
            let status = run.wait().await.unwrap();
            let task = &status.tasks[0];
            assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::WaitTimeout)), "{what}");
            assert_eq!(task.entries, 2, "{what}");
            engine.shutdown(LONG).await;
        }
    }

    async fn a_signal_that_comes_while_it_parks_wakes_it(place: Place) {
        let (spy, builder) = Spy::on(&place).await;
        let scene = Scene::default();
        let engine = with_all(builder.park_after(AT_ONCE), &scene).start().await.unwrap();
        let other = place.engine().start().await.unwrap();
        let held = spy.hold(|request| {
            let mut ops = request.changes.iter().flat_map(|change| &change.waits);
            ops.any(|op| matches!(op, WaitOp::Begin { .. }))
        });
        let run = engine.submit("waits", "signal").await.unwrap();
        until("its wait is written, and it knows nothing of that", async || spy.is_holding()).await;
        until("it is about to park", async || scene.notes() == ["gone"]).await;
        other.signal(run.id(), "go", "word").await.unwrap();
        held.add_permits(1);
        assert_eq!(output(&run).await, "word");
        is_sound(engine.store()).await;
    }

    async fn a_child_that_ends_while_it_parks_wakes_it(place: Place) {
        let (spy, builder) = Spy::on(&place).await;
        let scene = Scene::default();
        scene.open("held");
        let engine = with_all(builder.park_after(AT_ONCE), &scene).start().await.unwrap();
        let other = with_all(place.engine(), &scene).start().await.unwrap();
        let held = spy.hold(|request| {
            let mut ops = request.changes.iter().flat_map(|change| &change.waits);
            ops.any(|op| matches!(op, WaitOp::Begin { .. }))
        });
        let run = engine.submit("waits", "child").await.unwrap();
        until("the child was begun", async || spy.is_holding()).await;
        until("it is about to park", async || scene.notes().contains(&"gone".to_owned())).await;
        held.add_permits(1);
        assert_eq!(output(&run).await, "held");
        is_sound(engine.store()).await;
        drop(other);
    }

    async fn what_is_parked_can_be_cancelled(place: Place) {
        let (scene, _, engine) = started(&place).await;
        for what in ["signal", "time", "child", "all", "nested"] {
            let run = parked(&engine, what).await;
            assert!(run.cancel().await.unwrap());
            assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled), "{what}");
            assert_eq!(look(&run, "waits").await.reason, Some(Reason::User));
        }
        scene.open("held");
        until_quiet(&engine).await;
        assert_eq!(in_use(&engine).await, 0);
        is_sound(engine.store()).await;
    }

    async fn what_is_parked_meets_its_deadline(place: Place) {
        let (_, wall, engine) = started(&place).await;
        let run = engine.submit("until noon", "signal").await.unwrap();
        until_is(&run, "waits", Kind::Parked).await;
        wall.pass(&engine, LONG).await;
        let status = run.wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Deadline)));
        assert_eq!(task.entries, 1, "its body was not entered for that");
        is_sound(engine.store()).await;
    }

    async fn what_is_parked_keeps_its_limits_unless_it_gives_them_back(place: Place) {
        let (_, _, engine) = started(&place).await;
        let keeps = parked(&engine, "signal").await;
        assert_eq!(in_use(&engine).await, 1);
        let gives = parked(&engine, "signal, releasing").await;
        assert_eq!(in_use(&engine).await, 1);
        for run in [keeps, gives] {
            run.signal("go", "word").await.unwrap();
            assert_eq!(output(&run).await, "word");
        }
        assert_eq!(in_use(&engine).await, 0);
        is_sound(engine.store()).await;
    }

    async fn what_is_parked_and_paused_goes_on_when_it_may(place: Place) {
        let (_, _, engine) = started(&place).await;
        let run = parked(&engine, "signal").await;
        assert!(run.pause().await.unwrap());
        run.signal("go", "word").await.unwrap();
        until_is(&run, "waits", Kind::Ready).await;
        assert!(run.unpause().await.unwrap());
        assert_eq!(output(&run).await, "word");
    }

    async fn another_engine_goes_on_with_what_is_parked(place: Place) {
        let (_, wall, engine) = started(&place).await;
        let (signal, time) = (parked(&engine, "signal").await, parked(&engine, "time").await);
        let report = engine.shutdown(LONG).await;
        assert_eq!(report.handed_back, [], "nothing was left to hand back");
        let scene = Scene::default();
        let next = with_all(wall.on(place.engine()), &scene).start().await.unwrap();
        next.signal(signal.id(), "go", "word").await.unwrap();
        wall.pass(&next, LONG).await;
        for (run, wanted) in [(signal, "word"), (time, "time")] {
            let run = next.run(run.id()).await.unwrap();
            assert_eq!(output(&run).await, wanted);
            assert_eq!(look(&run, "waits").await.entries, 2);
        }
    }

    async fn one_that_asks_for_something_else_fails_for_good_and_names_both(place: Place) {
        for (what, named) in [
            ("child", ["workflow \"held\"", "workflow \"waits\""]),
            ("any", ["the first of 2", "the first of 3"]),
        ] {
            let (scene, wall, engine) = started(&place).await;
            let run = engine.submit("other way", what).await.unwrap();
            until_is(&run, "other way", Kind::Parked).await;
            scene.open("held");
            // Whichever wakes it.
            let _ = run.signal("b", ()).await;
            wall.pass(&engine, LONG).await;
            let status = run.wait().await.unwrap();
            let task = &status.tasks[0];
            assert_eq!((task.kind, task.attempt), (Kind::Failed, 1), "{what}: {task:?}");
            let error = task.error.as_deref().unwrap();
            assert!(named.iter().all(|name| error.contains(name)), "{error}");
            engine.shutdown(LONG).await;
        }
    }

    async fn many_that_are_parked_own_nothing_and_all_go_on(place: Place) {
        let (_, wall, engine) = started(&place).await;
        let runs = engine.submit_many("waits", ["any"; 300]).await.unwrap();
        until("all are parked", async || {
            engine.counts().await.unwrap().parked == 300 && engine.metrics().owned == 0
        })
        .await;
        for run in &runs[..100] {
            run.signal("go", "word").await.unwrap();
        }
        wall.pass(&engine, LONG).await;
        for (number, run) in runs.iter().enumerate() {
            let came = output(run).await;
            assert!(came == "word" || number >= 100 && came == "time", "{number}: {came}");
        }
        until_quiet(&engine).await;
        is_sound(engine.store()).await;
    }
}

/// Waits until a run is parked for this.
async fn until_waits_for(run: &Run, what: &str) {
    until(what, async || {
        let task = look(run, "waits").await;
        task.kind == Kind::Parked && task.waits_for.is_some_and(|(wait, _)| wait == what)
    })
    .await;
}

on_paused_time! {
    async fn a_wait_is_parked_when_it_has_taken_long_and_not_before(place: Place) {
        let scene = Scene::default();
        let engine = with_all(place.engine().clock(fake_clock()), &scene).start().await.unwrap();
        let run = engine.submit("waits", "signal").await.unwrap();
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(look(&run, "waits").await.kind, Kind::Deferred);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(look(&run, "waits").await.kind, Kind::Parked);
        run.signal("go", "word").await.unwrap();
        assert_eq!(output(&run).await, "word");
    }

    async fn a_sleep_is_parked_at_once_if_it_is_long_and_never_if_it_is_short(place: Place) {
        let scene = Scene::default();
        let engine = with_all(place.engine().clock(fake_clock()), &scene).start().await.unwrap();
        let (long, short) =
            (engine.submit("waits", "time").await, engine.submit("waits", "short sleep").await);
        let (long, short, began) = (long.unwrap(), short.unwrap(), Instant::now());
        tokio::time::sleep(ms(100)).await;
        assert_eq!(look(&long, "waits").await.kind, Kind::Parked);
        assert_eq!(look(&short, "waits").await.kind, Kind::Deferred);
        assert_eq!(output(&short).await, "time");
        assert_eq!(began.elapsed().as_secs(), 10);
        assert_eq!(look(&short, "waits").await.entries, 1);
        assert_eq!(output(&long).await, "time");
        assert_eq!(began.elapsed().as_secs(), LONG.as_secs());
        assert_eq!(look(&long, "waits").await.entries, 2);
    }

    async fn a_condition_is_never_parked(place: Place) {
        let scene = Scene::default();
        let engine = with_all(place.engine().clock(fake_clock()), &scene).start().await.unwrap();
        let condition = engine.submit("waits", "condition").await.unwrap();
        let either = engine.submit("waits", "condition or signal").await.unwrap();
        tokio::time::sleep(LONG).await;
        for run in [&condition, &either] {
            assert_eq!(look(run, "waits").await.kind, Kind::Deferred);
        }
        scene.note("true");
        either.signal("go", "word").await.unwrap();
        assert_eq!((output(&condition).await, output(&either).await), ("true".into(), "word".into()));
        for run in [&condition, &either] {
            assert_eq!(look(run, "waits").await.entries, 1);
        }
    }

    async fn a_task_that_is_not_parkable_is_entered_once(place: Place) {
        let scene = Scene::default();
        let engine = with_all(place.engine().clock(fake_clock()), &scene).start().await.unwrap();
        let mut runs = Vec::new();
        for what in ["signal", "patient", "any", "nested", "all", "time"] {
            runs.push(engine.submit("in memory", what).await.unwrap());
        }
        tokio::time::sleep(LONG - Duration::from_secs(60)).await;
        for run in &runs {
            assert_eq!(look(run, "waits").await.kind, Kind::Deferred);
            for name in ["go", "one", "two"] {
                let _ = run.signal(name, "word").await;
            }
        }
        for run in &runs {
            let status = run.wait().await.unwrap();
            assert_eq!(status.outcome(), Some(RunOutcome::Succeeded), "{status:?}");
            assert_eq!(status.tasks[0].entries, 1);
        }
    }

    async fn a_sleep_in_memory_can_be_cut_short_in_a_parkable_task(place: Place) {
        async fn cut(_: &mut Context, handle: &TaskHandle) -> Result<bool, TaskError> {
            let sleep = handle.sleep(Duration::from_secs(20)).timeout(Duration::from_secs(3)).await;
            handle.sleep(Duration::from_secs(3)).timeout(Duration::from_secs(20)).await?;
            Ok(matches!(sleep, Err(WaitError::TimedOut { .. })))
        }
        let engine = place.engine().clock(fake_clock());
        let engine = engine.workflow(one(Task::new("cut", cut).parkable())).start().await.unwrap();
        let began = Instant::now();
        let status = engine.submit("cut", ()).await.unwrap().wait().await.unwrap();
        assert!(status.output::<bool>("cut").unwrap());
        assert_eq!(began.elapsed().as_secs(), 6);
    }
}

/// Two sleeps, two signals, a step and a child.
async fn journey(context: &mut Context<u32>, handle: &TaskHandle) -> Result<String, TaskError> {
    handle.sleep(ms(3)).await?;
    let first: String = handle.wait_for_signal_as("word").await?;
    let number = *context.input();
    let stepped = handle.step("step", async { Ok::<_, TaskError>(number + 1) }).await?;
    let child = handle.run_child("leg", stepped).await?;
    handle.sleep(ms(3)).await?;
    let any = [handle.sleep(LONG).map(|()| "late".to_owned()), handle.wait_for_signal_as("word")];
    let second: String = handle.wait_any(any).await?;
    assert!(handle.is_slot_held());
    Ok(format!("{first} {} {second}", child.output::<u32>("leg")?))
}

async fn leg(context: &mut Context<u32>, handle: &TaskHandle) -> Result<u32, TaskError> {
    handle.yield_slot().await?;
    Ok(10 * context.input())
}

fn with_journey(engine: EngineBuilder, park_after: Duration) -> EngineBuilder {
    engine
        .slots(2)
        .park_after(park_after)
        .workflow(one(Task::new("journey", journey).parkable()))
        .workflow(one(Task::new("leg", leg)))
}

/// More requests than the journey takes.
const TURNS: usize = 22;

/// A journey with what it needs.
async fn begin_journey(engine: &Engine) -> Run {
    let run = engine.submit("journey", 4).await.unwrap();
    for word in ["first", "second"] {
        run.signal("word", word).await.unwrap();
    }
    run
}

/// It has ended as it should, and each thing in it happened once.
async fn has_arrived(engine: &Engine, run: &Run, journeys: usize, what: &str) {
    let status = run.wait().await.unwrap();
    assert_eq!(status.output::<String>("journey").unwrap(), "first 50 second", "{what}");
    let ends = run.events().await.unwrap();
    let ends = ends.iter().filter(|event| event.what == Happened::Succeeded).count();
    assert_eq!((ends, status.tasks[0].attempt), (1, 1), "{what}");
    let page = RunsPage { workflow: Some("leg".to_owned()), limit: 9_999, ..RunsPage::default() };
    assert_eq!(engine.runs(page).await.unwrap().len(), journeys, "{what}: one child each");
    is_sound(engine.store()).await;
}

on_every_store! {
    async fn between_any_two_waits_the_process_may_die_and_each_happens_once(place: Place) {
        let mut journeys = 0;
        for park_after in [AT_ONCE, LONG] {
            for how in [Blown::Before, Blown::After] {
                for requests in 0..TURNS {
                    let what = format!("{how:?} after {requests} requests, parking after {park_after:?}");
                    let faulty = Faulty::on(&place).await;
                    let engine = with_journey(faulty.engine(), park_after);
                    let (process, engine) = Process::start(engine).await;
                    let run = begin_journey(&engine).await;
                    let id = run.id();
                    faulty.blow_after(requests, how);
                    let done = async { drop(run.wait().await) };
                    tokio::select! { () = faulty.blown() => {}, () = done => {} }
                    drop((engine, run));
                    process.die().await;
                    drop(faulty);
                    place.bury_workers();

                    journeys += 1;
                    let engine = with_journey(place.engine(), park_after).start().await.unwrap();
                    let run = engine.run(id).await.unwrap();
                    has_arrived(&engine, &run, journeys, &what).await;
                    engine.shutdown(LONG).await;
                }
            }
        }
    }

    async fn between_any_two_waits_it_may_be_handed_back_and_each_happens_once(place: Place) {
        let mut journeys = 0;
        for park_after in [AT_ONCE, LONG] {
            for how in [Blown::Before, Blown::After] {
                for requests in 0..TURNS {
                    let what = format!("{how:?} after {requests} requests, parking after {park_after:?}");
                    let faulty = Faulty::on(&place).await;
                    let engine = with_journey(faulty.engine(), park_after).start().await.unwrap();
                    let run = begin_journey(&engine).await;
                    let id = run.id();
                    faulty.blow_after(requests, how);
                    let done = async { drop(run.wait().await) };
                    tokio::select! { () = faulty.blown() => {}, () = done => {} }
                    let shutdown = tokio::spawn({
                        let engine = engine.clone();
                        async move { engine.shutdown(LONG).await }
                    });
                    engine.closing().await;
                    faulty.mend();
                    shutdown.await.unwrap();
                    drop((engine, run, faulty));

                    journeys += 1;
                    let engine = with_journey(place.engine(), park_after).start().await.unwrap();
                    let run = engine.run(id).await.unwrap();
                    has_arrived(&engine, &run, journeys, &what).await;
                    engine.shutdown(LONG).await;
                }
            }
        }
    }

    async fn whatever_request_goes_wrong_each_happens_once(place: Place) {
        let mut journeys = 0;
        for park_after in [AT_ONCE, LONG] {
            for how in [Blown::Fails, Blown::Lost] {
                for requests in 0..TURNS {
                    let what = format!("{how:?} after {requests} requests, parking after {park_after:?}");
                    let faulty = Faulty::on(&place).await;
                    let engine = with_journey(faulty.engine(), park_after).start().await.unwrap();
                    let run = begin_journey(&engine).await;
                    faulty.blow_after(requests, how);
                    journeys += 1;
                    has_arrived(&engine, &run, journeys, &what).await;
                    engine.shutdown(LONG).await;
                }
            }
        }
    }
}

/// Real processes that are killed.
#[cfg(feature = "sqlite")]
mod killed {
    use super::*;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};

    const FOLDER: &str = "TIDEGATE_TEST_FOLDER";

    /// How many journeys are under way while their worker is killed.
    const JOURNEYS: usize = 24;

    fn in_folder(folder: &Path) -> EngineBuilder {
        Engine::builder(format!("sqlite:{}", folder.join("jobs.db").display()))
    }

    #[tokio::test]
    #[ignore = "it is run by a test in a process of its own"]
    async fn a_worker() {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
        let parks = folder.join("parks").exists();
        let engine = with_journey(in_folder(&folder), if parks { AT_ONCE } else { LONG });
        let _engine = engine.start().await.unwrap();
        std::future::pending().await
    }

    fn spawn(folder: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["engine::parking::killed::a_worker", "--exact", "--ignored"]);
        command.env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// How often something was entered or has ended.
    async fn progress(engine: &Engine) -> usize {
        engine.store().records(None, 0, u32::MAX).await.unwrap().len()
    }

    async fn each_happens_once(parks: bool) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        if parks {
            std::fs::write(folder.join("parks"), "").unwrap();
        }
        let engine = with_journey(in_folder(folder), LONG).queues(["nobody's"]);
        let engine = engine.start().await.unwrap();
        let mut runs = Vec::new();
        for _ in 0..JOURNEYS {
            let run = engine.submit("journey", 4).queue("default").await.unwrap();
            run.signal("word", "first").await.unwrap();
            run.signal("word", "second").await.unwrap();
            runs.push(run);
        }
        for life in 0..10 {
            let mut worker = spawn(folder);
            // After so much, at any instant.
            let wanted = progress(&engine).await + life % 4;
            let open = async || {
                let page = RunsPage { open: true, limit: 9_999, ..RunsPage::default() };
                engine.runs(page).await.unwrap().len()
            };
            until("it has got on", async || progress(&engine).await > wanted || open().await == 0)
                .await;
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
        let mut last = spawn(folder);
        for run in &runs {
            run.wait().await.unwrap();
        }
        last.kill().unwrap();
        last.wait().unwrap();
        for run in &runs {
            has_arrived(&engine, run, JOURNEYS, "killed").await;
        }
        engine.shutdown(LONG).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whenever_its_worker_is_killed_each_happens_once() {
        within(each_happens_once(false)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whenever_its_worker_is_killed_each_happens_once_also_where_it_parks() {
        within(each_happens_once(true)).await;
    }
}
