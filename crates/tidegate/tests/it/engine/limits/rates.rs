//! How many begin in how much time.

use super::*;
use crate::engine::gates::{Process, fake_clock, on_paused_time};
use crate::engine::scene::Wall;
use crate::engine::support::{Place, on_every_store};
use serde_json::json;
use tidegate::{Limit, LimitUse, Timestamp};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// When the runs began, in seconds after this instant, from early to late.
async fn begun(runs: &[Run], since: Timestamp) -> Vec<u64> {
    let mut begun = Vec::new();
    for run in runs {
        let events = run.events().await.unwrap();
        begun.extend(events.iter().filter_map(|event| event.begun_at));
    }
    begun.sort_unstable();
    begun.into_iter().map(|at| at.since(since).as_secs()).collect()
}

/// In no stretch of so many seconds more than `most` begin.
fn is_kept(begun: &[u64], most: usize, seconds: u64) {
    for stretch in begun.windows(most + 1) {
        assert!(stretch[most] - stretch[0] >= seconds, "{stretch:?} of {begun:?}");
    }
}

async fn ends(_: &mut Context) -> Done {
    Ok(())
}

/// Notes when it began, in milliseconds since the test did.
async fn notes_when(context: &mut Context) -> Done {
    let since = *context.state::<Instant>()?;
    context.state::<Scene>()?.note(since.elapsed().as_millis().to_string());
    Ok(())
}

on_every_store! {
    async fn never_more_begin_in_any_stretch_and_the_next_begins_when_it_may(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = wall.on(place.engine()).slots(16).limit(Limit::new("api").rate(3, MINUTE));
        let engine = with(engine, &scene, [Task::new("call", ends).limit("api")]);
        let engine = engine.start().await.unwrap();
        let since = wall.now();
        let mut runs = engine.submit_many("call", [(); 2]).await.unwrap();
        all_succeed(&runs).await;
        wall.pass(&engine, 20 * SECOND).await;
        runs.extend(engine.submit_many("call", [(); 8]).await.unwrap());
        until_ended(&runs, 3).await;
        until_stands(&engine, "api", (0, 7)).await;
        // Seconds since the one before, and how many have ended then.
        let ends = [(39, 3), (1, 5), (19, 5), (1, 6), (39, 6), (1, 8), (20, 9), (40, 10)];
        for (seconds, count) in ends {
            wall.pass(&engine, seconds * SECOND).await;
            until_ended(&runs, count).await;
            until_stands(&engine, "api", (0, 10 - count as u64)).await;
        }
        let begun = begun(&runs, since).await;
        assert_eq!(begun, [0, 0, 20, 60, 60, 80, 120, 120, 140, 180]);
        is_kept(&begun, 3, 60);
        is_free(&engine).await;
    }

    async fn a_rate_counts_units_and_each_key_by_itself(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = wall.on(place.engine()).slots(16).limit(Limit::new("api").rate(5, MINUTE));
        let task = Task::new("call", ends).limit(LimitUse::of("api").by("key").units(2));
        let engine = with(engine, &scene, [task]).start().await.unwrap();
        let since = wall.now();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (runs, key) in [(&mut a, "a"), (&mut b, "b")] {
            let input = json!({ "key": key });
            *runs = engine.submit_many("call", vec![input; 5]).await.unwrap();
        }
        for (ended, seconds) in [(2, 0), (4, 60), (5, 60)] {
            wall.pass(&engine, seconds * SECOND).await;
            for (runs, key) in [(&a, "a"), (&b, "b")] {
                until_ended(runs, ended).await;
                until_stands_for(&engine, "api", key, (0, 5 - ended as u64)).await;
            }
        }
        for runs in [&a, &b] {
            assert_eq!(begun(runs, since).await, [0, 0, 60, 60, 120]);
        }
        is_free(&engine).await;
    }

    async fn a_rate_and_a_number_at_once_hold_together(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = wall.on(place.engine()).slots(16);
        let engine = engine.limit(Limit::new("api").at_once(2).rate(3, MINUTE));
        let engine = with(engine, &scene, [Task::new("held", held).limit("api")]);
        let engine = engine.start().await.unwrap();
        let since = wall.now();
        let mut runs = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            runs.push(engine.submit("held", name).await.unwrap());
        }
        // Two of three that may begin: no more at once.
        until_stands(&engine, "api", (2, 3)).await;
        scene.open("a");
        scene.reached("c").await;
        // One more at once, but it may not begin yet.
        scene.open("b");
        until_ended(&runs, 2).await;
        until_stands(&engine, "api", (1, 2)).await;
        wall.pass(&engine, MINUTE).await;
        scene.reached("d").await;
        // The next may begin by now, but two compute.
        until_stands(&engine, "api", (2, 1)).await;
        wall.pass(&engine, MINUTE).await;
        round_trip(&engine).await;
        assert_eq!(stands(&engine, "api", "").await, (2, 1));
        for name in ["c", "d", "e"] {
            scene.open(name);
        }
        all_succeed(&runs).await;
        assert_eq!(scene.notes().len(), 5);
        assert_eq!(begun(&runs, since).await, [0, 0, 0, 60, 120]);
        assert_eq!(scene.crowd().most(), 2);
        is_free(&engine).await;
    }

    async fn a_rate_holds_across_a_restart_and_a_crash(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let builder = || {
            let builder = wall.on(place.engine()).slots(16).limit(Limit::new("api").rate(3, MINUTE));
            with(builder, &scene, [Task::new("call", ends).limit("api")])
        };
        let since = wall.now();
        let (process, dying) = Process::start(builder()).await;
        let runs = dying.submit_many("call", [(); 9]).await.unwrap();
        until_ended(&runs, 3).await;
        until_stands(&dying, "api", (0, 6)).await;
        let ids: Vec<_> = runs.iter().map(Run::id).collect();
        process.die().await;
        drop((dying, runs));
        place.bury_workers();

        let mut engine = builder().start().await.unwrap();
        for (seconds, count) in [(0, 3), (59, 3), (1, 6), (30, 6), (30, 9)] {
            wall.pass(&engine, seconds * SECOND).await;
            let mut runs = Vec::new();
            for id in &ids {
                runs.push(engine.run(*id).await.unwrap());
            }
            until_ended(&runs, count).await;
            until_stands(&engine, "api", (0, 9 - count as u64)).await;
            if count == 9 {
                assert_eq!(begun(&runs, since).await, [0, 0, 0, 60, 60, 60, 120, 120, 120]);
                break;
            }
            engine.shutdown(HOUR).await;
            engine = builder().start().await.unwrap();
        }
        is_free(&engine).await;
    }

    async fn two_engines_share_a_rate(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let mut engines = Vec::new();
        let mut runs = Vec::new();
        let since = wall.now();
        for name in ["one", "two"] {
            let engine = wall.on(place.engine()).slots(8).limit(Limit::new("api").rate(3, MINUTE));
            let engine = with(engine, &scene, [Task::new(name, ends).limit("api")]);
            let engine = engine.start().await.unwrap();
            runs.extend(engine.submit_many(name, [(); 4]).await.unwrap());
            engines.push(engine);
        }
        for (ended, seconds) in [(3, 0), (6, 60), (8, 60)] {
            wall.pass(&engines[0], seconds * SECOND).await;
            until_ended(&runs, ended).await;
            until_stands(&engines[0], "api", (0, 8 - ended as u64)).await;
        }
        is_kept(&begun(&runs, since).await, 3, 60);
        is_free(&engines[0]).await;
    }

    async fn a_rate_that_is_set_anew_counts_what_has_begun(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = wall.on(place.engine()).slots(16).limit(Limit::new("api").rate(2, MINUTE));
        let engine = with(engine, &scene, [Task::new("call", ends).limit("api")]);
        let engine = engine.start().await.unwrap();
        let since = wall.now();
        let runs = engine.submit_many("call", [(); 8]).await.unwrap();
        until_ended(&runs, 2).await;
        until_stands(&engine, "api", (0, 6)).await;
        // Three more than have begun.
        assert!(engine.set_limit(Limit::new("api").rate(5, MINUTE)).await.unwrap());
        until_ended(&runs, 5).await;
        until_stands(&engine, "api", (0, 3)).await;
        // Fewer than have begun.
        assert!(engine.set_limit(Limit::new("api").rate(1, MINUTE)).await.unwrap());
        wall.pass(&engine, 59 * SECOND).await;
        assert_eq!(ended(&runs).await, 5);
        for (seconds, count) in [(1, 6), (59, 6), (1, 7), (60, 8)] {
            wall.pass(&engine, seconds * SECOND).await;
            until_ended(&runs, count).await;
            until_stands(&engine, "api", (0, 8 - count as u64)).await;
        }
        assert_eq!(begun(&runs, since).await, [0, 0, 0, 0, 0, 60, 120, 180]);
        is_free(&engine).await;
    }
}

on_paused_time! {
    async fn the_next_begins_in_time_without_anything_else_happening(place: Place) {
        let scene = Scene::default();
        let engine = place.engine().clock(fake_clock()).state(Instant::now()).slots(16);
        let engine = engine.limit(Limit::new("api").rate(2, 10 * SECOND));
        let engine = with(engine, &scene, [Task::new("call", notes_when).limit("api")]);
        let engine = engine.start().await.unwrap();
        let runs = engine.submit_many("call", [(); 7]).await.unwrap();
        all_succeed(&runs).await;
        let begun: Vec<u64> = scene.notes().iter().map(|note| note.parse().unwrap()).collect();
        for (number, at) in begun.iter().enumerate() {
            let may = 10_000 * (number as u64 / 2);
            assert!((may..may + 50).contains(at), "{number} may begin at {may} and did at {at}");
        }
    }
}
