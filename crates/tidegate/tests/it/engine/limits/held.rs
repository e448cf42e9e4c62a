//! Who keeps a limit, and who gives it back.

use super::*;
use crate::engine::gates::Process;
use crate::engine::scene::{Wall, look, until_is, until_quiet};
use crate::engine::support::{Place, on_every_store};
use crate::support::ms;
use serde_json::json;
use tidegate::engine::{Kind, Reason};
use tidegate::{Backoff, Limit, LimitUse, TaskHandle};

/// Waits for the signal "go" as its input says; before that and after it, one of the crowd, and
/// during it too unless it gives its limit back. Then it goes on when the place `after` is open.
async fn waits(context: &mut Context<Value>, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    let way = context.input().get("way").unwrap_or(context.input()).as_str().unwrap();
    let signal = || handle.wait_for_signal("go").map(drop);
    let mut inside = Some(scene.crowd().enter());
    tokio::task::yield_now().await;
    if way != "keeps" {
        inside = None;
    }
    match way {
        "keeps" => signal().await?,
        "api" => signal().releasing("api").await?,
        "api and mail" => signal().releasing("api").releasing("mail").await?,
        "fax" => signal().releasing("api").releasing("fax").await?,
        "any" => handle.wait_any([signal(), handle.sleep(HOUR)]).releasing("api").await?,
        "one of any" => {
            handle.wait_any([signal().releasing("api"), handle.sleep(HOUR)]).await?;
        }
        "each of any" => {
            let sleep = handle.sleep(HOUR).releasing("mail");
            handle.wait_any([signal().releasing("api"), sleep]).await?;
        }
        "fax of any" => {
            handle.wait_any([signal(), handle.sleep(HOUR).releasing("fax")]).await?;
        }
        "all" => drop(handle.wait_all([signal().releasing("api"), handle.yield_slot()]).await?),
        other => panic!("{other} is no way"),
    }
    assert!(handle.is_slot_held());
    let _inside = inside.unwrap_or_else(|| scene.crowd().enter());
    scene.at("after").await;
    tokio::task::yield_now().await;
    Ok(())
}

/// Both ways to wait: in memory, and as a row.
const WAITS: [(&str, Kind); 2] = [("waits", Kind::Deferred), ("parks", Kind::Parked)];

/// An engine that parks at once what may be, with these limits for its tasks.
fn waiting(builder: EngineBuilder, scene: &Scene, limits: &[&str]) -> EngineBuilder {
    let task = |name: &str| Task::new(name, waits).limits(limits.iter().copied());
    let tasks = [task("waits"), task("parks").parkable(), Task::new("held", held).limit("api")];
    let builder = limits.iter().fold(builder, |builder, limit| {
        builder.limit(Limit::new(*limit).at_once(if *limit == "api" { 1 } else { 2 }))
    });
    with(builder.slots(8).park_after(Duration::ZERO), scene, tasks)
}

async fn until_all(runs: &[Run], task: &str, kind: Kind) {
    for run in runs {
        until_is(run, task, kind).await;
    }
}

/// Comes to its end as its input says, once the place that follows there is open.
async fn ends(context: &mut Context<[String; 2]>, handle: &TaskHandle) -> Done {
    let [way, place] = context.input();
    let scene = context.state::<Scene>()?;
    match way.as_str() {
        // The time it may compute does not pass meanwhile.
        "hangs" => handle.defer_while(scene.at(place)).await?,
        _ => scene.at(place).await,
    }
    match way.as_str() {
        "success" => Ok(()),
        "error" => Err("no route to host".into()),
        "permanent" => Err(TaskError::permanent("no such host")),
        "panic" => panic!("it was to panic"),
        "snooze" => Err(TaskError::snooze(HOUR)),
        "waits" => Ok(handle.sleep(10 * HOUR).await?),
        "hangs" => std::future::pending().await,
        other => panic!("{other} is no way"),
    }
}

/// Computes until it is told to stop, then waits.
async fn is_told(context: &mut Context, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    scene.note("entered");
    tokio::select! {
        biased;
        () = scene.at("told") => return Ok(()),
        () = handle.cancelled() => {}
    }
    handle.sleep(HOUR).await?;
    Ok(())
}

on_every_store! {
    async fn a_limit_is_kept_while_its_task_waits_and_until_it_goes_on(place: Place) {
        let scene = Scene::default();
        let engine = waiting(place.engine(), &scene, &["api"]).start().await.unwrap();
        let run = engine.submit("waits", "keeps").await.unwrap();
        until_is(&run, "waits", Kind::Deferred).await;
        assert_eq!(engine.slots().in_use(), 0);
        let next = engine.submit("held", "next").await.unwrap();
        until_stands(&engine, "api", (1, 1)).await;
        run.signal("go", 1).await.unwrap();
        scene.reached("after").await;
        assert_eq!(scene.notes(), Vec::<String>::new(), "it was not given back in between");
        assert_eq!(stands(&engine, "api", "").await, (1, 1));
        scene.open("after");
        scene.reached("next").await;
        scene.open("next");
        all_succeed([&run, &next]).await;
        assert_eq!(scene.crowd().most(), 1);
        is_free(&engine).await;
    }

    async fn a_limit_is_kept_while_its_task_waits_as_a_row_and_taken_anew_when_it_is_woken(
        place: Place
    ) {
        let scene = Scene::default();
        let engine = waiting(place.engine(), &scene, &["api"]).start().await.unwrap();
        let run = engine.submit("parks", "keeps").await.unwrap();
        until_is(&run, "parks", Kind::Parked).await;
        until_quiet(&engine).await;
        assert_eq!(stands(&engine, "api", "").await, (1, 0));
        let next = engine.submit("held", "next").await.unwrap();
        until_stands(&engine, "api", (1, 1)).await;
        round_trip(&engine).await;
        assert_eq!(scene.notes(), Vec::<String>::new());
        // It is ready, like the other, and holds nothing until it is entered again.
        run.signal("go", 1).await.unwrap();
        for place in ["after", "next"] {
            scene.open(place);
        }
        all_succeed([&run, &next]).await;
        assert_eq!(scene.crowd().most(), 1);
        is_free(&engine).await;
    }

    async fn what_a_wait_gives_back_is_taken_again_before_the_task_goes_on(place: Place) {
        for (workflow, kind) in WAITS {
            for way in ["api", "any", "one of any", "all"] {
                let scene = Scene::default();
                let engine = waiting(place.engine(), &scene, &["api"]).start().await.unwrap();
                // One after the other computes, until all of them wait.
                let runs = engine.submit_many(workflow, [way; 12]).await.unwrap();
                until_all(&runs, workflow, kind).await;
                until_stands(&engine, "api", (0, 0)).await;
                for run in &runs {
                    run.signal("go", 1).await.unwrap();
                }
                until_stands(&engine, "api", (1, 11)).await;
                until("one goes on", async || scene.crowd().now() == 1).await;
                scene.open("after");
                all_succeed(&runs).await;
                assert_eq!(scene.crowd().most(), 1, "{workflow}, {way}");
                is_free(&engine).await;
                engine.shutdown(HOUR).await;
            }
        }
    }

    async fn a_wait_gives_back_what_it_names_and_keeps_the_rest(place: Place) {
        let cases = [
            ("keeps", (1, 1)),
            ("api", (0, 1)),
            ("api and mail", (0, 0)),
            ("one of any", (0, 1)),
            ("each of any", (0, 0)),
        ];
        for (workflow, kind) in WAITS {
            for (way, (api, mail)) in cases {
                let scene = Scene::default();
                scene.open("after");
                let engine = waiting(place.engine(), &scene, &["api", "mail"]);
                let engine = engine.start().await.unwrap();
                let run = engine.submit(workflow, way).await.unwrap();
                until_is(&run, workflow, kind).await;
                until_stands(&engine, "api", (api, 0)).await;
                until_stands(&engine, "mail", (mail, 0)).await;
                run.signal("go", 1).await.unwrap();
                succeeds(&run).await;
                is_free(&engine).await;
                engine.shutdown(HOUR).await;
            }
        }
    }

    async fn a_wait_gives_back_the_units_of_its_key_and_takes_as_many_again(place: Place) {
        for (workflow, kind) in WAITS {
            let scene = Scene::default();
            let task = Task::new(workflow, waits).limit(LimitUse::of("api").by("key").units(2));
            let task = if kind == Kind::Parked { task.parkable() } else { task };
            let engine = place.engine().slots(8).park_after(Duration::ZERO);
            let engine = engine.limit(Limit::new("api").at_once(3));
            let engine = with(engine, &scene, [task]).start().await.unwrap();
            let mut runs = Vec::new();
            for key in ["a", "b"] {
                let input = json!({ "way": "api", "key": key });
                runs.push(engine.submit(workflow, input).await.unwrap());
            }
            until_all(&runs, workflow, kind).await;
            until_stands_for(&engine, "api", "a", (0, 0)).await;
            until_stands_for(&engine, "api", "b", (0, 0)).await;
            runs[0].signal("go", 1).await.unwrap();
            until_stands_for(&engine, "api", "a", (2, 0)).await;
            assert_eq!(stands(&engine, "api", "b").await, (0, 0));
            runs[1].signal("go", 1).await.unwrap();
            until_stands_for(&engine, "api", "b", (2, 0)).await;
            scene.open("after");
            all_succeed(&runs).await;
            is_free(&engine).await;
            engine.shutdown(HOUR).await;
        }
    }

    async fn giving_back_a_limit_that_the_task_does_not_use_is_an_error_that_names_it(place: Place) {
        let scene = Scene::default();
        let engine = waiting(place.engine(), &scene, &["api"]).limit(Limit::new("fax").at_once(1));
        let engine = engine.start().await.unwrap();
        for (workflow, _) in WAITS {
            for way in ["fax", "fax of any"] {
                let run = engine.submit(workflow, way).await.unwrap();
                let error = failure(&run).await;
                let says = "limit \"fax\" cannot be given back, because the task does not use it";
                assert!(error.contains(says), "{way}: {error}");
                is_free(&engine).await;
            }
        }
    }

    async fn who_has_waited_in_memory_goes_before_all_that_have_not_begun(place: Place) {
        let scene = Scene::default();
        let engine = waiting(place.engine(), &scene, &["api"]).start().await.unwrap();
        let run = engine.submit("waits", "api").await.unwrap();
        until_is(&run, "waits", Kind::Deferred).await;
        until_stands(&engine, "api", (0, 0)).await;
        let first = engine.submit("held", "first").await.unwrap();
        scene.reached("first").await;
        let second = engine.submit("held", "second").priority(1_000).await.unwrap();
        until_stands(&engine, "api", (1, 1)).await;
        run.signal("go", 1).await.unwrap();
        until_stands(&engine, "api", (1, 2)).await;
        scene.open("first");
        scene.open("second");
        scene.reached("after").await;
        assert_eq!(scene.notes(), ["first"]);
        assert_eq!(stands(&engine, "api", "").await, (1, 1));
        scene.open("after");
        all_succeed([&run, &first, &second]).await;
        assert_eq!(scene.crowd().most(), 1);
        is_free(&engine).await;
    }

    async fn however_an_entry_ends_its_limit_is_given_back(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let task = |name: &str| Task::new(name, ends).limit("api");
        let tasks = [
            Task::new("held", held).limit("api"),
            task("once"),
            task("again").retries(3).backoff(Backoff::fixed(HOUR)),
            task("in time").timeout(ms(5)),
            task("in time again").timeout(ms(5)).retries(3).backoff(Backoff::fixed(HOUR)),
            task("until then").deadline(HOUR),
            task("parks until then").deadline(HOUR).parkable(),
        ];
        let engine = wall.on(place.engine()).slots(4).park_after(Duration::ZERO);
        let engine = engine.limit(Limit::new("api").at_once(1));
        let engine = with(engine, &scene, tasks).start().await.unwrap();
        let cases = [
            ("once", "success", "", Kind::Succeeded, None),
            ("once", "error", "", Kind::Failed, Some(Reason::Error)),
            ("again", "permanent", "", Kind::Failed, Some(Reason::Error)),
            ("once", "panic", "", Kind::Failed, Some(Reason::Panic)),
            ("again", "error", "", Kind::Ready, None),
            ("again", "panic", "", Kind::Ready, None),
            ("once", "snooze", "", Kind::Ready, None),
            ("in time", "hangs", "", Kind::TimedOut, Some(Reason::Timeout)),
            ("in time again", "hangs", "", Kind::Ready, None),
            ("once", "hangs", "cancel", Kind::Cancelled, Some(Reason::User)),
            ("once", "waits", "cancel", Kind::Cancelled, Some(Reason::User)),
            ("parks until then", "waits", "cancel", Kind::Cancelled, Some(Reason::User)),
            ("until then", "hangs", "deadline", Kind::TimedOut, Some(Reason::Deadline)),
            ("until then", "waits", "deadline", Kind::TimedOut, Some(Reason::Deadline)),
            ("parks until then", "waits", "deadline", Kind::TimedOut, Some(Reason::Deadline)),
        ];
        for (number, (workflow, way, act, kind, reason)) in cases.into_iter().enumerate() {
            let (place, next_place) = (format!("place {number}"), format!("next {number}"));
            let what = format!("{workflow}, {way} {act}");
            let run = engine.submit(workflow, [way, &place]).await.unwrap();
            scene.reached(&place).await;
            let next = engine.submit("held", &next_place).await.unwrap();
            until_stands(&engine, "api", (1, 1)).await;
            scene.open(&place);
            let waits = match (workflow, way) {
                ("parks until then", _) => Some(Kind::Parked),
                (_, "waits") => Some(Kind::Deferred),
                _ => None,
            };
            if let Some(waits) = waits {
                until_is(&run, workflow, waits).await;
                assert_eq!(stands(&engine, "api", "").await, (1, 1), "{what}: it keeps it");
            }
            match act {
                "cancel" => assert!(run.cancel().await.unwrap()),
                "deadline" => wall.pass(&engine, HOUR).await,
                _ => {}
            }
            scene.reached(&next_place).await;
            assert_eq!(stands(&engine, "api", "").await, (1, 0), "{what}");
            let task = look(&run, workflow).await;
            assert_eq!(task.kind, kind, "{what}");
            if kind.is_terminal() {
                assert_eq!(task.reason, reason, "{what}");
            } else {
                // It would come back in the middle of another case.
                assert!(run.cancel().await.unwrap());
            }
            scene.open(&next_place);
            succeeds(&next).await;
            is_free(&engine).await;
        }
        until_quiet(&engine).await;
    }

    async fn what_is_handed_back_holds_nothing_and_what_is_parked_keeps_it(place: Place) {
        let scene = Scene::default();
        let builder = || {
            let builder = waiting(place.engine(), &scene, &["api"]);
            let told = Task::new("told", is_told).limit("mail");
            builder.workflow(one(told)).limit(Limit::new("mail").at_once(1))
        };
        let engine = builder().start().await.unwrap();
        let parked = engine.submit("parks", "keeps").await.unwrap();
        until_is(&parked, "parks", Kind::Parked).await;
        let told = engine.submit("told", ()).await.unwrap();
        until_is(&told, "told", Kind::Active).await;
        let behind = engine.submit("told", ()).await.unwrap();
        until_stands(&engine, "mail", (1, 1)).await;
        until("it computes", async || scene.notes().len() == 1).await;
        engine.shutdown(Duration::ZERO).await;
        assert_eq!(stands(&engine, "api", "").await, (1, 0));
        assert_eq!(stands(&engine, "mail", "").await.0, 0);
        assert_eq!(engine.audit().await.unwrap(), []);
        assert_eq!(look(&told, "told").await.kind, Kind::Ready);

        let next = builder().start().await.unwrap();
        until("one of them begins", async || scene.notes().len() == 2).await;
        until_stands(&next, "mail", (1, 1)).await;
        scene.open("told");
        scene.open("after");
        for run in [&told, &behind] {
            succeeds(&next.run(run.id()).await.unwrap()).await;
        }
        let parked = next.run(parked.id()).await.unwrap();
        parked.signal("go", 1).await.unwrap();
        succeeds(&parked).await;
        is_free(&next).await;
    }

    async fn what_a_dead_process_held_is_free_and_taken_once_by_whoever_takes_over(place: Place) {
        // What it did when it died.
        for way in ["computes", "keeps", "api", "goes on"] {
            let scene = Scene::default();
            let (process, engine) =
                Process::start(waiting(place.engine(), &scene, &["api"])).await;
            let run = match way {
                "computes" => engine.submit("held", "first").await.unwrap(),
                "keeps" => engine.submit("waits", "keeps").await.unwrap(),
                _ => engine.submit("waits", "api").await.unwrap(),
            };
            match way {
                "computes" => scene.reached("first").await,
                _ => until_is(&run, "waits", Kind::Deferred).await,
            }
            let in_use = u32::from(matches!(way, "computes" | "keeps"));
            until_stands(&engine, "api", (in_use, 0)).await;
            let next = engine.submit("held", "next").await.unwrap();
            match in_use {
                0 => scene.reached("next").await,
                _ => until_stands(&engine, "api", (1, 1)).await,
            }
            if way == "goes on" {
                run.signal("go", 1).await.unwrap();
                until_stands(&engine, "api", (1, 1)).await;
            }
            let ids = [run.id(), next.id()];
            process.die().await;
            drop((engine, run, next));
            place.bury_workers();
            assert_eq!(scene.crowd().now(), 0, "nothing of it is left");

            let engine = waiting(place.engine(), &scene, &["api"]).start().await.unwrap();
            for place in ["first", "next", "after"] {
                scene.open(place);
            }
            for id in ids {
                let run = engine.run(id).await.unwrap();
                if way != "computes" && id == ids[0] {
                    run.signal("go", 1).await.unwrap();
                }
                succeeds(&run).await;
            }
            assert_eq!(scene.crowd().most(), 1, "{way}");
            is_free(&engine).await;
            engine.shutdown(HOUR).await;
        }
    }

    async fn a_living_engine_takes_over_what_a_dead_one_held(place: Place) {
        let scene = Scene::default();
        let builder = || waiting(place.engine(), &scene, &["api"]);
        let (process, dying) = Process::start(builder()).await;
        let run = dying.submit("held", "first").await.unwrap();
        scene.reached("first").await;
        let living = builder().start().await.unwrap();
        let next = living.submit("held", "next").await.unwrap();
        until_stands(&living, "api", (1, 1)).await;
        let id = run.id();
        process.die().await;
        drop((dying, run));
        place.bury_worker(1);
        scene.open("next");
        scene.open("first");
        all_succeed([&next, &living.run(id).await.unwrap()]).await;
        assert_eq!(scene.crowd().most(), 1);
        is_free(&living).await;
    }
}
