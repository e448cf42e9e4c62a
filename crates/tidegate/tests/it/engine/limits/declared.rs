//! How limits come to be and change, and what is refused.

use super::*;
use crate::engine::support::{Place, on_every_store};
use tidegate::engine::{LimitError, StartError};
use tidegate::{Limit, LimitUse};

/// What the limits of a store are, in words.
async fn declared(engine: &Engine) -> Vec<String> {
    let limits = engine.limits().await.unwrap();
    limits.iter().map(|state| format!("{}: {}", state.limit.name(), state.limit)).collect()
}

/// Why an engine does not start with these tasks and limits.
async fn refused(place: &Place, limits: &[Limit], task: Task) -> String {
    let engine = with(place.engine(), &Scene::default(), [task]);
    let engine = limits.iter().cloned().fold(engine, |engine, limit| engine.limit(limit));
    engine.start().await.unwrap_err().to_string()
}

/// The warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(Vec<String>);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push(format!("{field}={value:?}"));
            }
        }
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0.join(" "));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

on_every_store! {
    async fn a_limit_is_made_once_and_no_later_declaration_changes_it(place: Place) {
        let warnings = Warnings::default();
        let _guard = tracing::subscriber::set_default(warnings.clone());
        let told = || std::mem::take(&mut *warnings.0.lock().unwrap());
        let api = || Limit::new("api").at_once(2);
        let first = place.engine().limit(api()).start().await.unwrap();
        assert_eq!(declared(&first).await, ["api: 2 at once"]);
        // The same is no news.
        let second = place.engine().limit(api()).limit(api()).start().await.unwrap();
        assert_eq!(told(), Vec::<String>::new());
        let third = place.engine().limit(api().rate(60, 60 * SECOND));
        let third = third.limit(Limit::new("mail").at_once(1)).start().await.unwrap();
        let told_now = told();
        assert_eq!(told_now.len(), 1, "{told_now:?}");
        for part in ["api", "2 at once and 60 in 60s", "stays as it is"] {
            assert!(told_now[0].contains(part), "{told_now:?}");
        }
        for engine in [&first, &second, &third] {
            assert_eq!(declared(engine).await, ["api: 2 at once", "mail: 1 at once"]);
            engine.shutdown(HOUR).await;
        }
        // Nor is it changed where nobody uses it, and what was set stays set.
        let next = place.engine().limit(Limit::new("api").at_once(9)).start().await.unwrap();
        assert_eq!(told().len(), 1);
        assert_eq!(declared(&next).await, ["api: 2 at once", "mail: 1 at once"]);
        assert!(next.set_limit(Limit::new("api").rate(1, SECOND)).await.unwrap());
        next.shutdown(HOUR).await;
        let last = place.engine().limit(api()).start().await.unwrap();
        assert_eq!(declared(&last).await, ["api: 1 in 1s", "mail: 1 at once"]);
        assert_eq!(told().len(), 1);
    }

    async fn a_limit_that_is_set_as_it_is_says_so_and_an_unknown_one_is_refused(place: Place) {
        let engine = place.engine().limit(Limit::new("api").at_once(2)).start().await.unwrap();
        assert!(!engine.set_limit(Limit::new("api").at_once(2)).await.unwrap());
        assert!(engine.set_limit(Limit::new("api").at_once(3)).await.unwrap());
        assert!(!engine.set_limit(Limit::new("api").at_once(3)).await.unwrap());
        let unknown = engine.set_limit(Limit::new("apy").at_once(3)).await.unwrap_err();
        assert!(matches!(&unknown, LimitError::Unknown(name) if name == "apy"));
        let says = "there is no limit \"apy\" in this store; it is declared when an engine starts \
                    (Engine::builder(..).limit(..))";
        assert_eq!(unknown.to_string(), says);
        assert_eq!(declared(&engine).await, ["api: 3 at once"]);
    }

    async fn a_limit_that_makes_no_sense_is_neither_declared_nor_set(place: Place) {
        let engine = place.engine().limit(Limit::new("api").at_once(2)).start().await.unwrap();
        let nothing = "limit \"api\" is 0 at once, so nothing could run; it must be at least 1 (to \
                       stop work, pause its queue)";
        let cases = [
            (Limit::new("").at_once(1), "a limit needs a name"),
            (
                Limit::new("api"),
                "limit \"api\" bounds nothing; say how many at once, or how many in how much time",
            ),
            (Limit::new("api").at_once(0), nothing),
            (Limit::new("api").at_once(0).rate(1, SECOND), nothing),
            (
                Limit::new("api").rate(0, SECOND),
                "limit \"api\" is 0 in 1s; both the number and the time must be above 0",
            ),
            (
                Limit::new("api").at_once(1).rate(5, Duration::ZERO),
                "limit \"api\" is 5 in 0ns; both the number and the time must be above 0",
            ),
        ];
        for (limit, says) in cases {
            let set = engine.set_limit(limit.clone()).await.unwrap_err();
            assert!(matches!(set, LimitError::Invalid(_)), "{set:?}");
            assert_eq!(set.to_string(), says);
            let mail = Limit::new("mail").at_once(1);
            let started = place.engine().limit(mail).limit(limit).start().await.unwrap_err();
            assert!(matches!(started, StartError::Limit(_)), "{started:?}");
            assert_eq!(started.to_string(), says);
        }
        assert_eq!(declared(&engine).await, ["api: 2 at once"], "nor any that came with it");
    }

    async fn a_limit_that_nobody_has_declared_keeps_an_engine_from_starting(place: Place) {
        let task = || Task::new("call", held).limit("api");
        let limits = [Limit::new("apis").at_once(1), Limit::new("mail").at_once(1)];
        let says = "task \"call\" of workflow \"call\" uses limit \"api\", which is not declared; ";
        let meant = format!("{says}is \"apis\" meant?");
        let add = format!("{says}add .limit(Limit::new(\"api\").at_once(..))");
        assert_eq!(refused(&place, &[], task()).await, add);
        assert_eq!(refused(&place, &limits[1..], task()).await, add);
        assert_eq!(refused(&place, &limits, task()).await, meant);
        assert_eq!(refused(&place, &[], task().each("items")).await, meant, "each item uses it");
        // Somebody else may have declared it.
        let other = place.engine().limit(Limit::new("api").at_once(1)).start().await.unwrap();
        other.shutdown(HOUR).await;
        with(place.engine(), &Scene::default(), [task()]).start().await.unwrap();
    }

    async fn a_task_that_takes_more_than_there_is_keeps_an_engine_from_starting(place: Place) {
        let gpu = |limit: Limit| [limit];
        let task = || Task::new("train", held).limit(("gpu", 3));
        let says = |is: &str| {
            format!(
                "task \"train\" of workflow \"train\" takes 3 of limit \"gpu\", which is {is}; it \
                 would never run"
            )
        };
        let small = gpu(Limit::new("gpu").at_once(2));
        assert_eq!(refused(&place, &small, task()).await, says("2 at once"));
        assert_eq!(refused(&place, &[], task().each("items")).await, says("2 at once"));
        // What is in the store counts, not what was to be.
        let large = gpu(Limit::new("gpu").at_once(3));
        assert_eq!(refused(&place, &large, task()).await, says("2 at once"));
        let engine = place.engine().start().await.unwrap();
        let seldom = Limit::new("gpu").at_once(5).rate(2, SECOND);
        assert!(engine.set_limit(seldom).await.unwrap());
        assert_eq!(refused(&place, &large, task()).await, says("5 at once and 2 in 1s"));
        assert!(engine.set_limit(Limit::new("gpu").at_once(3)).await.unwrap());
        with(place.engine(), &Scene::default(), [task()]).start().await.unwrap();
    }

    async fn made_larger_it_lets_those_begin_who_waited_at_once_and_in_order(place: Place) {
        let scene = Scene::default();
        let engine = place.engine().slots(8).limit(Limit::new("api").at_once(1));
        let engine = with(engine, &scene, [Task::new("held", held).limit("api")]);
        let engine = engine.start().await.unwrap();
        let mut runs = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            runs.push(engine.submit("held", name).await.unwrap());
        }
        until_stands(&engine, "api", (1, 4)).await;
        // By somebody who runs nothing of it.
        let other = place.engine().queues(["other"]).start().await.unwrap();
        assert!(other.set_limit(Limit::new("api").at_once(2)).await.unwrap());
        scene.reached("b").await;
        assert_eq!(stands(&engine, "api", "").await, (2, 3));
        assert!(engine.set_limit(Limit::new("api").at_once(4)).await.unwrap());
        scene.reached("c").await;
        scene.reached("d").await;
        until_stands(&engine, "api", (4, 1)).await;
        let mut begun = scene.notes();
        // Those that begin together are entered in any order.
        begun[2..].sort_unstable();
        assert_eq!(begun, ["a", "b", "c", "d"]);
        // Without a bound on how many there are at once, all may.
        assert!(engine.set_limit(Limit::new("api").rate(100, HOUR)).await.unwrap());
        scene.reached("e").await;
        assert_eq!(stands(&engine, "api", "").await, (5, 0));
        for name in ["a", "b", "c", "d", "e"] {
            scene.open(name);
        }
        all_succeed(&runs).await;
        is_free(&engine).await;
    }

    async fn made_smaller_it_takes_nothing_away_and_nothing_begins_until_there_is_room(place: Place) {
        let scene = Scene::default();
        let engine = place.engine().slots(8).limit(Limit::new("api").at_once(3));
        let tasks = [
            Task::new("held", held).limit("api"),
            Task::new("heavy", held).limit(("api", 2)),
        ];
        let engine = with(engine, &scene, tasks).start().await.unwrap();
        let mut runs = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            runs.push(engine.submit("held", name).await.unwrap());
        }
        until_stands(&engine, "api", (3, 2)).await;
        assert!(engine.set_limit(Limit::new("api").at_once(1)).await.unwrap());
        assert_eq!(stands(&engine, "api", "").await, (3, 2));
        // Two of three have to end before there is room, and a third for the next to begin.
        for (name, left) in [("a", 2), ("b", 1)] {
            scene.open(name);
            until_stands(&engine, "api", (left, 2)).await;
            round_trip(&engine).await;
            assert_eq!(stands(&engine, "api", "").await, (left, 2));
        }
        assert!(!scene.notes().contains(&"d".to_owned()));
        scene.open("c");
        scene.reached("d").await;
        assert_eq!(stands(&engine, "api", "").await, (1, 1));
        // What is heavier than what is left of the limit runs alone.
        runs.push(engine.submit("heavy", "heavy").await.unwrap());
        until_stands(&engine, "api", (1, 2)).await;
        scene.open("d");
        scene.reached("e").await;
        // It may have been let through, and found the other there.
        until_stands(&engine, "api", (1, 1)).await;
        scene.open("e");
        scene.reached("heavy").await;
        assert_eq!(stands(&engine, "api", "").await, (2, 0));
        runs.push(engine.submit("held", "a").await.unwrap());
        until_stands(&engine, "api", (2, 1)).await;
        scene.open("heavy");
        all_succeed(&runs).await;
        is_free(&engine).await;
    }
}

#[test]
fn what_a_task_takes_is_checked_when_its_workflow_is_built() {
    let wrong = |task: Task| Workflow::of(task).unwrap_err().to_string();
    let call = || Task::new("call", held);
    let twice = "task \"call\" uses limit \"api\" twice; say once how many units it takes";
    assert_eq!(wrong(call().limits(["api", "api"])), twice);
    assert_eq!(wrong(call().limits(["api", "mail"]).limit(("api", 2))), twice);
    let by_key = call().limit(LimitUse::of("api").by("a")).limit(LimitUse::of("api").by("b"));
    assert_eq!(wrong(by_key), twice);
    let zero = "task \"call\" takes 0 units of limit \"api\"; it must take at least 1";
    assert_eq!(wrong(call().limit(("api", 0))), zero);
    let empty = "task \"call\" uses a limit whose name, or the path of whose key, is empty";
    assert_eq!(wrong(call().limit("")), empty);
    assert_eq!(wrong(call().limit(LimitUse::of("api").by(""))), empty);
    assert_eq!(wrong(call().limit("").each("items")), empty);
}
