//! A wall clock that is set back or forward: what has to stay as it was, and what goes by the new time.

use super::*;
use std::sync::atomic::AtomicI64;
use tidegate::Limit;
use tidegate::engine::Record;

/// The wall clock, and how wrong it is.
#[derive(Clone, Default)]
struct Wrong(Arc<AtomicI64>);

impl Wrong {
    fn on(&self, builder: EngineBuilder) -> EngineBuilder {
        let wrong = self.clone();
        builder.clock(move || wrong.now())
    }

    fn now(&self) -> Timestamp {
        let right = Timestamp::from(std::time::SystemTime::now());
        Timestamp::from_micros(right.as_micros() + self.0.load(Ordering::SeqCst))
    }

    fn set_forward(&self, time: Duration) {
        self.0.fetch_add(micros(time), Ordering::SeqCst);
    }

    fn set_back(&self, time: Duration) {
        self.0.fetch_sub(micros(time), Ordering::SeqCst);
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap()
}

/// Returns when the engine has looked at its clock.
async fn seen(engine: &Engine) {
    // Whatever is asked of a store makes it look at the clock.
    assert!(!engine.unpause_queue("nobody's").await.unwrap());
}

/// An engine whose one slot is taken by a task that is held at "other".
async fn occupied(builder: EngineBuilder, scene: &Scene, tasks: Vec<Task>) -> (Engine, Run) {
    let engine = scene.start(with(builder.slots(1), tasks).workflow(notes())).await;
    let other = engine.submit("held", "other").await.unwrap();
    scene.reached("other").await;
    (engine, other)
}

/// Notes its input.
fn notes() -> Workflow {
    let task = Task::new("notes", async |context: &mut Context<String>| {
        context.state::<Scene>()?.note(context.input());
        Ok::<_, TaskError>(())
    });
    Workflow::of(task).unwrap()
}

async fn records(run: &Run) -> Vec<Record> {
    run.events().await.unwrap()
}

async fn succeeds(run: &Run) {
    assert_eq!(ended(run).await.kind, Kind::Succeeded);
}

/// Sleeps for ten minutes.
async fn sleeps(_: &mut Context<String>, handle: &TaskHandle) -> Done {
    Ok(handle.sleep(MINUTES).await?)
}

async fn fails_once(_: &mut Context<String>, handle: &TaskHandle) -> Done {
    match handle.attempt() {
        1 => Err("once more".into()),
        _ => Ok(()),
    }
}

async fn snoozes_once(context: &mut Context<String>) -> Done {
    let scene = context.state::<Scene>()?;
    scene.note("snoozes");
    match scene.notes().iter().filter(|note| *note == "snoozes").count() {
        1 => Err(TaskError::snooze(MINUTES)),
        _ => Ok(()),
    }
}

/// Less than an hour.
const MINUTES: Duration = Duration::from_secs(600);

on_every_store! {
    async fn time_outs_waits_and_durations_do_not_see_a_jump(place: Place) {
        async fn waits_a_while(context: &mut Context<String>, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            Ok(handle.defer_while(scene.at(context.input())).timeout(MINUTES).await?)
        }
        let (scene, wrong) = (Scene::default(), Wrong::default());
        let tasks = [
            Task::new("held", held).timeout(MINUTES),
            Task::new("waits", waits_a_while),
            Task::new("sleeps", sleeps),
        ];
        let engine = scene.start(with(wrong.on(place.engine()), tasks)).await;
        let held = engine.submit("held", "held").await.unwrap();
        scene.reached("held").await;
        let waits = engine.submit("waits", "waits").await.unwrap();
        let sleeps = engine.submit("sleeps", "").await.unwrap();
        until_is(&waits, "waits", Kind::Deferred).await;
        until_is(&sleeps, "sleeps", Kind::Deferred).await;
        for jump in [Wrong::set_forward, Wrong::set_back, Wrong::set_back, Wrong::set_forward] {
            jump(&wrong, HOUR);
            seen(&engine).await;
            assert_eq!(look(&held, "held").await.kind, Kind::Active);
            assert_eq!(look(&waits, "waits").await.kind, Kind::Deferred);
            assert_eq!(look(&sleeps, "sleeps").await.kind, Kind::Deferred);
        }
        // They end an hour before they began.
        wrong.set_back(HOUR);
        scene.open("held");
        scene.open("waits");
        for run in [&held, &waits] {
            succeeds(run).await;
            let records = records(run).await;
            assert_eq!((records.len(), records[0].entry), (1, 1));
            assert!(records[0].active < MINUTES, "{:?}", records[0].active);
        }
        assert!(sleeps.cancel().await.unwrap());
        assert_eq!(engine.audit().await.unwrap(), []);
    }

    async fn a_sleep_that_began_before_a_jump_back_ends_in_time(place: Place) {
        async fn naps(context: &mut Context<String>, handle: &TaskHandle) -> Done {
            context.state::<Wrong>()?.set_back(HOUR);
            Ok(handle.sleep(ms(5)).await?)
        }
        let (scene, wrong) = (Scene::default(), Wrong::default());
        let builder = wrong.on(place.engine()).state(wrong.clone());
        let engine = scene.start(with(builder, [Task::new("naps", naps)])).await;
        succeeds(&engine.submit("naps", "").await.unwrap()).await;
    }

    async fn what_was_ready_before_the_clock_was_set_back_starts_in_its_order(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let tasks = vec![Task::new("held", held)];
        let (engine, other) = occupied(wall.on(place.engine()), &scene, tasks).await;
        let mut runs = Vec::new();
        for n in 0..5 {
            runs.push(engine.submit("notes", format!("{n}")).await.unwrap());
            wall.pass(&engine, secs(1)).await;
        }
        wall.set_back(&engine, HOUR).await;
        scene.open("other");
        succeeds(&other).await;
        for run in &runs {
            succeeds(run).await;
        }
        assert_eq!(scene.notes(), ["a body is gone", "0", "1", "2", "3", "4"]);
        assert_eq!(engine.audit().await.unwrap(), []);
    }

    // It would have waited until the clock was where it had been.
    async fn what_was_paused_when_the_clock_was_set_back_starts_when_it_goes_on(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = scene.start(wall.on(place.engine()).workflow(notes())).await;
        assert!(engine.pause().await.unwrap());
        let run = engine.submit("notes", "run").await.unwrap();
        assert!(run.pause().await.unwrap());
        assert!(engine.unpause().await.unwrap());
        wall.set_back(&engine, HOUR).await;
        assert!(run.unpause().await.unwrap());
        succeeds(&run).await;
        assert_eq!(engine.audit().await.unwrap(), []);
    }

    // It would have waited until the clock was where it had been.
    async fn what_was_behind_a_limit_when_the_clock_was_set_back_starts_when_there_is_room(
        place: Place
    ) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let task = Task::new("held", held).limit("one");
        let builder = wall.on(place.engine()).slots(2).limit(Limit::new("one").at_once(1));
        let engine = scene.start(with(builder, [task])).await;
        let first = engine.submit("held", "first").await.unwrap();
        scene.reached("first").await;
        let next = engine.submit("held", "next").await.unwrap();
        let behind = async || engine.limits().await.unwrap().iter().any(|it| it.waiting == 1);
        until("it stands behind the limit", behind).await;
        wall.set_back(&engine, HOUR).await;
        scene.open("first");
        scene.open("next");
        succeeds(&first).await;
        succeeds(&next).await;
        assert_eq!(engine.audit().await.unwrap(), []);
    }

    // What was begun at a time that has not come again was in the way until it had.
    async fn a_rate_goes_on_when_the_clock_was_set_back(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let builder = wall.on(place.engine()).limit(Limit::new("mail").rate(1, secs(60)));
        let sends = Task::new("sends", async |context: &mut Context<String>| {
            context.state::<Scene>()?.note(context.input());
            Ok::<_, TaskError>(())
        });
        let engine = scene.start(with(builder, [sends.limit("mail")])).await;
        let mut runs = Vec::new();
        for n in 0..3 {
            runs.push(engine.submit("sends", format!("{n}")).await.unwrap());
        }
        succeeds(&runs[0]).await;
        wall.set_back(&engine, HOUR).await;
        // At the latest after the time the rate is given for.
        wall.pass(&engine, secs(60)).await;
        succeeds(&runs[1]).await;
        wall.pass(&engine, secs(60)).await;
        succeeds(&runs[2]).await;
        let mut notes = scene.notes();
        notes.sort_unstable();
        assert_eq!(notes, ["0", "1", "2"]);
        // Who was begun first may come to its note last, so it is asked when they were begun.
        let begun = async |run: &Run| {
            let view = engine.store().run(run.id()).await.unwrap().unwrap();
            view.tasks[0].life.started.unwrap()
        };
        assert!(begun(&runs[1]).await + secs(60) <= begun(&runs[2]).await);
    }

    async fn start_times_back_offs_snoozes_and_parked_sleeps_go_by_the_new_time(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let tasks = [
            Task::new("fails", fails_once).retries(1).backoff(Backoff::fixed(MINUTES)),
            Task::new("snoozes", snoozes_once),
            Task::new("sleeps", sleeps).parkable(),
        ];
        let builder = wall.on(place.engine()).park_after(Duration::ZERO).workflow(notes());
        let engine = scene.start(with(builder, tasks)).await;
        let later = wall.now() + MINUTES;
        let starts = engine.submit("notes", "starts").not_before(later).await.unwrap();
        let fails = engine.submit("fails", "").await.unwrap();
        let snoozes = engine.submit("snoozes", "").await.unwrap();
        let sleeps = engine.submit("sleeps", "").await.unwrap();
        until("it fails once", async || look(&fails, "fails").await.attempt == 2).await;
        until_is(&sleeps, "sleeps", Kind::Parked).await;
        until("it snoozes", async || {
            let task = look(&snoozes, "snoozes").await;
            (task.kind, task.entries) == (Kind::Ready, 1)
        })
        .await;
        wall.set_back(&engine, HOUR).await;
        wall.pass(&engine, HOUR + MINUTES - ms(1)).await;
        let all = [&starts, &fails, &snoozes, &sleeps];
        for run in all {
            let kind = run.status().await.unwrap().tasks[0].kind;
            assert!(matches!(kind, Kind::Ready | Kind::Parked), "{kind} too early");
        }
        wall.pass(&engine, ms(1)).await;
        for run in all {
            succeeds(run).await;
        }
        assert_eq!(engine.audit().await.unwrap(), []);
    }

    async fn a_deadline_goes_by_the_new_time(place: Place) {
        let tasks = [Task::new("held", held).deadline(MINUTES)];
        let (scene, wall, engine) = with_deadline(&place, tasks).await;
        let run = engine.submit("held", "run").await.unwrap();
        scene.reached("run").await;
        wall.set_back(&engine, HOUR).await;
        wall.pass(&engine, HOUR + MINUTES - ms(1)).await;
        assert_eq!(look(&run, "held").await.kind, Kind::Active);
        wall.pass(&engine, ms(1)).await;
        assert_eq!(ended(&run).await.reason, Some(Reason::Deadline));
    }

    async fn of_two_engines_one_with_a_wrong_clock_each_does_what_the_other_submits(place: Place) {
        for set in [Wrong::set_forward, Wrong::set_back] {
            let scene = Scene::default();
            let (right, wrong) = (Wrong::default(), Wrong::default());
            set(&wrong, HOUR);
            let on = |clock: &Wrong, name: &str| {
                let builder = clock.on(place.engine()).watch(ms(5), true).state(scene.clone());
                builder.limit(Limit::new("one").at_once(1)).workflow(chain(name))
            };
            let mut workers = Vec::new();
            for (clock, name) in [(&right, "at right"), (&wrong, "at wrong")] {
                workers.push(on(clock, name).start().await.unwrap());
            }
            scene.open("open");
            let mut runs = Vec::new();
            for (clock, name) in [(&right, "at wrong"), (&wrong, "at right")] {
                let client = on(clock, name).connect().await.unwrap();
                for run in client.submit_many(name, ["open"; 10]).await.unwrap() {
                    runs.push((client.clone(), run));
                }
            }
            for (_, run) in &runs {
                let status = run.wait().await.unwrap();
                assert_eq!(status.outcome(), Some(RunOutcome::Succeeded), "{status:?}");
                let entries: Vec<u32> = status.tasks.iter().map(|task| task.entries).collect();
                assert_eq!(entries, [2, 1], "nobody is taken for dead");
            }
            for worker in workers {
                assert_eq!(worker.metrics().recoveries_total, 0);
                assert_eq!(worker.audit().await.unwrap(), []);
                worker.shutdown(Duration::ZERO).await;
            }
            for (client, _) in runs {
                client.shutdown(Duration::ZERO).await;
            }
        }
    }
}

/// Fails once, and then stands behind a limit.
fn chain(name: &str) -> Workflow {
    let now = Backoff::fixed(Duration::ZERO);
    Workflow::builder(name)
        .task(Task::new("first", fails_once).retries(1).backoff(now))
        .task(Task::new("second", held).after(["first"]).limit("one"))
        .build()
        .unwrap()
}
