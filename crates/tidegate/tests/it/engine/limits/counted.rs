//! How many compute at once, counted in units and by key.

use super::*;
use crate::engine::scene::until_is;
use crate::engine::support::{Place, on_every_store};
use crate::support::Inside;
use serde_json::json;
use tidegate::engine::{Kind, RunsPage};
use tidegate::{Limit, LimitUse, TaskHandle};

/// Computes, as so many of the crowd of its key as its units say, until its place is open.
async fn keyed(context: &mut Context) -> Done {
    let (scene, crowds) = (context.state::<Scene>()?, context.state::<Crowds>()?);
    let input = context.input();
    let crowd = crowds.of(input["key"].as_str().unwrap_or_default());
    let units = input["units"].as_u64().unwrap_or(1);
    let _inside: Vec<Inside> = (0..units).map(|_| crowd.enter()).collect();
    scene.at(&place(input)).await;
    tokio::task::yield_now().await;
    Ok(())
}

/// The same for an item.
async fn keyed_item(context: &mut Context) -> Done {
    let (scene, crowds) = (context.state::<Scene>()?, context.state::<Crowds>()?);
    let item: Value = context.item()?;
    let _inside = crowds.of(item["key"].as_str().unwrap_or("of the run")).enter();
    scene.at("open").await;
    tokio::task::yield_now().await;
    Ok(())
}

/// Waits for a run of `keyed` with its own input.
async fn parent(context: &mut Context, handle: &TaskHandle) -> Done {
    let child = handle.run_child("keyed", context.input().clone()).await?;
    assert_eq!(child.outcome(), Some(RunOutcome::Succeeded));
    Ok(())
}

async fn crowded_item(context: &mut Context) -> Done {
    let scene = context.state::<Scene>()?;
    let _inside = scene.crowd().enter();
    scene.at("open").await;
    tokio::task::yield_now().await;
    Ok(())
}

on_every_store! {
    async fn never_more_than_the_limit_compute_however_many_slots_there_are(place: Place) {
        let scene = Scene::default();
        let engine = place.engine().slots(16).limit(Limit::new("api").at_once(3));
        let engine = with(engine, &scene, [Task::new("held", held).limit("api")]);
        let engine = engine.start().await.unwrap();
        let runs = engine.submit_many("held", ["open"; 40]).await.unwrap();
        until_stands(&engine, "api", (3, 37)).await;
        until("the limit is used up", async || scene.crowd().now() == 3).await;
        assert_eq!(engine.slots().in_use(), 3);
        scene.open("open");
        all_succeed(&runs).await;
        assert_eq!(scene.crowd().most(), 3);
        is_free(&engine).await;
    }

    async fn two_engines_on_one_store_share_a_limit(place: Place) {
        let scene = Scene::default();
        let mut engines = Vec::new();
        // Each does what the other cannot.
        for name in ["one", "two"] {
            let engine = place.engine().slots(8).limit(Limit::new("api").at_once(3));
            let engine = with(engine, &scene, [Task::new(name, held).limit("api")]);
            engines.push((name, engine.start().await.unwrap()));
        }
        let mut runs = Vec::new();
        for (name, engine) in &engines {
            runs.extend(engine.submit_many(name, ["open"; 20]).await.unwrap());
        }
        until_stands(&engines[0].1, "api", (3, 37)).await;
        until("the limit is used up", async || scene.crowd().now() == 3).await;
        scene.open("open");
        all_succeed(&runs).await;
        assert_eq!(scene.crowd().most(), 3);
        is_free(&engines[0].1).await;
    }

    async fn what_is_taken_is_counted_in_units(place: Place) {
        let (scene, crowds) = (Scene::default(), Crowds::default());
        let engine = place.engine().slots(16).limit(Limit::new("gpu").at_once(4));
        let tasks = [
            Task::new("1", keyed).limit("gpu"),
            Task::new("2", keyed).limit(("gpu", 2)),
            Task::new("3", keyed).limit(LimitUse::of("gpu").units(3)).weight(2),
        ];
        let engine = with(engine, &scene, tasks).state(crowds.clone()).start().await.unwrap();
        let input = |units: usize| json!({ "place": "open", "units": units });
        let first = engine.submit("3", input(3)).await.unwrap();
        until_stands(&engine, "gpu", (3, 0)).await;
        // There is one unit left, and it takes two.
        let second = engine.submit("2", input(2)).await.unwrap();
        until_stands(&engine, "gpu", (3, 1)).await;
        let light = engine.submit("1", input(1)).await.unwrap();
        until_stands(&engine, "gpu", (4, 1)).await;
        let mut runs = vec![first, second, light];
        for number in 0..45 {
            let units = number % 3 + 1;
            runs.push(engine.submit(units.to_string(), input(units)).await.unwrap());
        }
        until_stands(&engine, "gpu", (4, 46)).await;
        scene.open("open");
        all_succeed(&runs).await;
        assert_eq!(crowds.of("").most(), 4);
        is_free(&engine).await;
    }

    async fn keys_count_by_themselves_also_with_units_and_two_engines(place: Place) {
        let (scene, crowds) = (Scene::default(), Crowds::default());
        let mut engines = Vec::new();
        for name in ["one", "two"] {
            let engine = place.engine().slots(16).limit(Limit::new("model").at_once(5));
            let tasks = [
                Task::new(name, keyed).limit(LimitUse::of("model").by("key").units(2)),
                Task::new("alone", keyed).limit(("model", 2)),
            ];
            let engine = with(engine, &scene, tasks).state(crowds.clone());
            engines.push((name, engine.start().await.unwrap()));
        }
        let mut runs = Vec::new();
        for (name, engine) in &engines {
            for key in ["a", "b", "c"] {
                let input = json!({ "place": "open", "units": 2, "key": key });
                runs.extend(engine.submit_many(name, vec![input; 6]).await.unwrap());
            }
        }
        // Who gives no key has one of its own.
        let input = json!({ "place": "open", "units": 2 });
        runs.extend(engines[0].1.submit_many("alone", vec![input; 6]).await.unwrap());
        for (key, waiting) in [("a", 10), ("b", 10), ("c", 10), ("", 4)] {
            until_stands_for(&engines[0].1, "model", key, (4, waiting)).await;
            until("it is used up", async || crowds.of(key).now() == 4).await;
        }
        scene.open("open");
        all_succeed(&runs).await;
        for key in ["a", "b", "c", ""] {
            assert_eq!(crowds.of(key).most(), 4, "{key:?}");
        }
        is_free(&engines[0].1).await;
    }

    async fn a_key_is_a_text_a_number_or_a_truth_value_at_a_path(place: Place) {
        let (scene, crowds) = (Scene::default(), Crowds::default());
        let odd = "two\nlines \\n \u{e9}";
        let cases = [
            ("customer.id", json!({ "place": "open", "customer": { "id": 7 } }), "7"),
            ("customer.id", json!({ "place": "open", "customer": { "id": "7" } }), "7"),
            ("key", json!({ "place": "open", "key": -1.5 }), "-1.5"),
            ("key", json!({ "place": "open", "key": true }), "true"),
            ("key", json!({ "place": "open", "key": "" }), ""),
            ("key", json!({ "place": "open", "key": odd }), odd),
            ("list.1.name", json!({ "place": "open", "list": [0, { "name": "x" }] }), "x"),
            ("a.b.c.d", json!({ "place": "open", "a": { "b": { "c": { "d": "deep" } } } }), "deep"),
        ];
        let engine = place.engine().slots(32).limit(Limit::new("model").at_once(1));
        let task = |path: &str| Task::new(path, keyed).limit(LimitUse::of("model").by(path));
        let paths = ["customer.id", "key", "list.1.name", "a.b.c.d"];
        let engine = with(engine, &scene, paths.map(task)).state(crowds).start().await.unwrap();
        let mut runs = Vec::new();
        for (path, input, key) in cases {
            // The number and the text are the same key: the second waits.
            let waiting = u64::from(stands(&engine, "model", key).await.0 > 0);
            runs.push(engine.submit(path, input).await.unwrap());
            until_stands_for(&engine, "model", key, (1, waiting)).await;
        }
        assert_eq!(stands(&engine, "model", "7").await, (1, 1));
        scene.open("open");
        all_succeed(&runs).await;
        is_free(&engine).await;
    }

    async fn an_input_without_the_key_is_refused_and_says_what_is_there_instead(place: Place) {
        let (scene, crowds) = (Scene::default(), Crowds::default());
        let engine = place.engine().limit(Limit::new("model").at_once(1));
        let task = Task::new("ask", keyed).limit(LimitUse::of("model").by("model.name"));
        let engine = with(engine, &scene, [task]).state(crowds).start().await.unwrap();
        let cases = [
            (json!({ "model": {} }), "nothing"),
            (json!({ "model": "gpt" }), "nothing"),
            (json!(["model"]), "nothing"),
            (json!("model"), "nothing"),
            (json!(null), "nothing"),
            (json!({ "model": { "name": null } }), "null"),
            (json!({ "model": { "name": ["gpt"] } }), "a list"),
            (json!({ "model": { "name": { "gpt": 4 } } }), "an object"),
        ];
        for (input, found) in cases {
            let refused = engine.submit("ask", &input).await.unwrap_err();
            let says = format!(
                "task \"ask\" uses limit \"model\" by \"model.name\" of the input, where there is \
                 {found}; there must be a text, a number or a truth value"
            );
            assert_eq!(refused.to_string(), says, "{input}");
        }
        assert_eq!(engine.runs(RunsPage::default()).await.unwrap(), []);
        let good = json!({ "model": { "name": "gpt" }, "place": "open" });
        scene.open("open");
        succeeds(&engine.submit("ask", good).await.unwrap()).await;
    }

    async fn an_item_has_its_key_in_itself_or_else_in_the_input(place: Place) {
        let (scene, crowds) = (Scene::default(), Crowds::default());
        let engine = place.engine().slots(16).limit(Limit::new("model").at_once(2));
        let task = Task::new("ask", keyed_item).limit(LimitUse::of("model").by("key"));
        let engine = with(engine, &scene, [task.each("items")]).state(crowds.clone());
        let engine = engine.start().await.unwrap();
        let items = |key: &str| vec![json!({ "key": key }); 5];
        let own = vec![json!({}); 5];
        let items = [items("a"), items("b"), own].concat();
        let input = json!({ "key": "of the run", "items": items });
        let run = engine.submit("ask", input).await.unwrap();
        for key in ["a", "b", "of the run"] {
            until_stands_for(&engine, "model", key, (2, 3)).await;
        }
        scene.open("open");
        succeeds(&run).await;
        for key in ["a", "b", "of the run"] {
            assert_eq!(crowds.of(key).most(), 2, "{key}");
        }
        is_free(&engine).await;
        // The run cannot say it for the item that has none.
        let input = json!({ "items": [{ "key": "a" }, { "key": [] }] });
        let error = failure(&engine.submit("ask", input).await.unwrap()).await;
        let says = "task \"ask\" uses limit \"model\" by \"key\" of the input, where there is a \
                    list; there must be a text, a number or a truth value";
        assert_eq!(error, says);
        let input = json!({ "items": [{ "key": "a" }, {}] });
        let error = failure(&engine.submit("ask", input).await.unwrap()).await;
        assert_eq!(error, says.replace("a list", "nothing"));
        is_free(&engine).await;
    }

    async fn a_child_has_its_key_in_its_own_input(place: Place) {
        let (scene, crowds) = (Scene::default(), Crowds::default());
        let engine = place.engine().slots(16).limit(Limit::new("model").at_once(1));
        let tasks = [
            Task::new("keyed", keyed).limit(LimitUse::of("model").by("key")),
            Task::new("parent", parent).retries(3),
        ];
        let engine = with(engine, &scene, tasks).state(crowds.clone()).start().await.unwrap();
        let mut runs = Vec::new();
        for key in ["a", "b"] {
            let input = json!({ "place": "open", "key": key });
            runs.extend(engine.submit_many("parent", vec![input; 4]).await.unwrap());
        }
        for key in ["a", "b"] {
            until_stands_for(&engine, "model", key, (1, 3)).await;
        }
        scene.open("open");
        all_succeed(&runs).await;
        assert_eq!((crowds.of("a").most(), crowds.of("b").most()), (1, 1));
        // One that has none is not begun, and its parent says why.
        let run = engine.submit("parent", json!({ "place": "open" })).await.unwrap();
        let error = failure(&run).await;
        let says = "task \"keyed\" uses limit \"model\" by \"key\" of the input, where there is \
                    nothing; there must be a text, a number or a truth value";
        assert!(error.contains(says), "{error}");
        assert_eq!(run.status().await.unwrap().tasks[0].attempt, 1, "another would not mend it");
        is_free(&engine).await;
    }

    async fn tasks_that_need_the_same_limits_in_another_order_never_stand_still(place: Place) {
        let scene = Scene::default();
        let engine = place.engine().slots(8);
        let engine = engine.limit(Limit::new("a").at_once(2)).limit(Limit::new("b").at_once(1));
        let tasks = [
            Task::new("a, b", held).limits(["a", "b"]),
            Task::new("b, a", held).limits(["b", "a"]),
            Task::new("a alone", held).limit("a"),
        ];
        let engine = with(engine, &scene, tasks).start().await.unwrap();
        scene.open("open");
        let mut runs = Vec::new();
        for _ in 0..30 {
            for workflow in ["a, b", "b, a", "a alone"] {
                runs.push(engine.submit(workflow, "open").await.unwrap());
            }
        }
        all_succeed(&runs).await;
        assert!(scene.crowd().most() <= 2);
        is_free(&engine).await;
    }

    async fn who_lacks_one_of_its_limits_holds_none_of_the_others(place: Place) {
        let scene = Scene::default();
        let engine = place.engine().slots(8);
        let engine = engine.limit(Limit::new("a").at_once(1)).limit(Limit::new("b").at_once(1));
        let tasks = [
            Task::new("both", held).limits(["a", "b"]),
            Task::new("a", held).limit("a"),
            Task::new("b", held).limit("b"),
        ];
        let engine = with(engine, &scene, tasks).start().await.unwrap();
        let b = engine.submit("b", "b").await.unwrap();
        scene.reached("b").await;
        let both = engine.submit("both", "both").await.unwrap();
        until_stands(&engine, "b", (1, 1)).await;
        assert_eq!(stands(&engine, "a", "").await, (0, 0));
        // So whoever needs only that one begins.
        let a = engine.submit("a", "a").await.unwrap();
        scene.reached("a").await;
        assert_eq!(stands(&engine, "a", "").await, (1, 0));
        // And when the one it waits for is free, it lacks the other.
        scene.open("b");
        succeeds(&b).await;
        until_stands(&engine, "a", (1, 1)).await;
        until_stands(&engine, "b", (0, 0)).await;
        assert_eq!(engine.audit().await.unwrap(), []);
        scene.open("a");
        scene.reached("both").await;
        assert_eq!(stands(&engine, "a", "").await, (1, 0));
        assert_eq!(stands(&engine, "b", "").await, (1, 0));
        scene.open("both");
        all_succeed([&a, &both]).await;
        is_free(&engine).await;
    }

    async fn of_a_thousand_items_as_many_compute_as_the_limit_says_and_their_task_takes_none(
        place: Place
    ) {
        let scene = Scene::default();
        let engine = place.engine().slots(32).limit(Limit::new("gauge").at_once(8));
        let task = Task::new("measure", crowded_item).limit("gauge").each("items");
        let engine = with(engine, &scene, [task]).start().await.unwrap();
        let items: Vec<u32> = (0..1_000).collect();
        let run = engine.submit("measure", json!({ "items": items })).await.unwrap();
        until_stands(&engine, "gauge", (8, 992)).await;
        until("eight are inside", async || scene.crowd().now() == 8).await;
        until_is(&run, "measure", Kind::Deferred).await;
        scene.open("open");
        succeeds(&run).await;
        assert_eq!(scene.crowd().most(), 8);
        is_free(&engine).await;
    }

    async fn a_limit_lists_what_is_in_use_and_who_waits_by_key(place: Place) {
        let (scene, crowds) = (Scene::default(), Crowds::default());
        let engine = place.engine().slots(8).limit(Limit::new("model").at_once(3));
        let engine = engine.limit(Limit::new("mail").rate(5, HOUR));
        let tasks = [
            Task::new("ask", keyed).limit(LimitUse::of("model").by("key").units(2)),
            Task::new("other", held).limit("model"),
        ];
        let engine = with(engine, &scene, tasks).state(crowds).start().await.unwrap();
        let listed = async || -> Vec<(String, String, u32, u64)> {
            let limits = engine.limits().await.unwrap().into_iter();
            let listed = limits
                .map(|it| (it.limit.name().to_owned(), it.key, it.in_use, it.waiting));
            listed.collect()
        };
        let row = |name: &str, key: &str, in_use, waiting| {
            (name.to_owned(), key.to_owned(), in_use, waiting)
        };
        assert_eq!(listed().await, [row("mail", "", 0, 0), row("model", "", 0, 0)]);
        assert_eq!(engine.limits().await.unwrap()[0].limit, Limit::new("mail").rate(5, HOUR));
        assert_eq!(engine.limits().await.unwrap()[1].limit, Limit::new("model").at_once(3));
        let mut runs = Vec::new();
        for key in ["b", "a", "b", "b"] {
            let input = json!({ "place": "open", "key": key });
            runs.push(engine.submit("ask", input).await.unwrap());
        }
        until_stands_for(&engine, "model", "b", (2, 2)).await;
        until_stands_for(&engine, "model", "a", (2, 0)).await;
        let used = [row("mail", "", 0, 0), row("model", "a", 2, 0), row("model", "b", 2, 2)];
        assert_eq!(listed().await, used);
        runs.push(engine.submit("other", "open").await.unwrap());
        until_stands(&engine, "model", (1, 0)).await;
        assert_eq!(listed().await.len(), 4);
        scene.open("open");
        all_succeed(&runs).await;
        assert_eq!(listed().await, [row("mail", "", 0, 0), row("model", "", 0, 0)]);
    }
}
