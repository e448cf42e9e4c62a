//! How a run is submitted and held back.

use super::*;
use tidegate::engine::RunState;
use tidegate::error::SubmitError;
use tidegate_core::store::{Refusal, RunsPage};

const HOUR: Duration = Duration::from_secs(3_600);

/// Notes its input.
async fn notes(context: &mut Context<u64>) -> Result<u64, TaskError> {
    context.state::<Scene>()?.note(context.input().to_string());
    Ok(*context.input())
}

fn tasks() -> [Task; 2] {
    [Task::new("notes", notes), Task::new("held", held)]
}

on_every_store! {
    async fn the_same_key_returns_the_run_that_has_it(place: Place) {
        let (scene, _, engine) = on_one_slot(&place, tasks()).await;
        let first = engine.submit("notes", 1).key("monday").await.unwrap();
        assert!(!first.existed());
        let same = engine.submit("notes", 1).key("monday").await.unwrap();
        assert!(same.existed());
        assert_eq!(same.id(), first.id());
        assert_eq!(same.wait().await.unwrap().output::<u64>("notes").unwrap(), 1);
        let ended = engine.submit("notes", 1).key("monday").await.unwrap();
        assert_eq!((ended.existed(), ended.id()), (true, first.id()), "also after its end");
        assert_eq!(ended.wait().await.unwrap(), first.wait().await.unwrap());
        assert_eq!(scene.notes(), ["1"], "it ran once");
    }

    async fn the_same_key_with_another_input_is_refused_and_names_both(place: Place) {
        let (_, _, engine) = on_one_slot(&place, tasks()).await;
        let first = engine.submit("notes", 1).key("monday").await.unwrap();
        let error = engine.submit("notes", 2).key("monday").await.unwrap_err();
        assert!(matches!(&error, SubmitError::Refused(Refusal::KeyTaken { .. })));
        let says = format!("the key \"monday\" belongs to run {}", first.id());
        assert!(error.to_string().starts_with(&says), "{error}");
        assert_eq!(end(&first).await.0, Kind::Succeeded);
    }

    async fn a_key_belongs_to_one_queue_and_one_workflow(place: Place) {
        let (_, _, engine) = on_one_slot(&place, tasks()).await;
        let runs = [
            engine.submit("notes", 1).key("monday").await.unwrap(),
            engine.submit("notes", 2).key("monday").queue("elsewhere").await.unwrap(),
            engine.submit("held", "gate").key("monday").await.unwrap(),
            engine.submit("notes", 3).key("tuesday").await.unwrap(),
        ];
        assert!(runs.iter().all(|run| !run.existed()));
    }

    async fn submits_with_one_key_at_one_time_make_one_run(place: Place) {
        let (scene, _, engine) = on_one_slot(&place, tasks()).await;
        let submit = || engine.submit("notes", 1).key("monday").into_future();
        let submits = (0..20).map(|_| tokio::spawn(submit())).collect::<Vec<_>>();
        let mut runs = Vec::new();
        for submit in submits {
            runs.push(submit.await.unwrap().unwrap());
        }
        assert_eq!(runs.iter().filter(|run| !run.existed()).count(), 1);
        for run in &runs {
            assert_eq!(run.id(), runs[0].id());
            assert_eq!(end(run).await.0, Kind::Succeeded);
        }
        assert_eq!(scene.notes(), ["1"]);
    }

    async fn a_higher_priority_goes_first(place: Place) {
        let (scene, _, engine) = on_one_slot(&place, tasks()).await;
        assert!(engine.pause().await.unwrap());
        let mut runs = Vec::new();
        for (input, priority) in [(1, 0), (2, 10), (3, -5), (4, 10), (5, 20)] {
            runs.push(engine.submit("notes", input).priority(priority).await.unwrap());
        }
        assert!(engine.unpause().await.unwrap());
        for run in &runs {
            assert_eq!(end(run).await.0, Kind::Succeeded);
        }
        assert_eq!(scene.notes(), ["5", "2", "4", "1", "3"]);
    }

    async fn a_priority_is_a_head_start_in_seconds(place: Place) {
        let (scene, wall, engine) = on_one_slot(&place, tasks()).await;
        assert!(engine.pause().await.unwrap());
        let mut runs = vec![engine.submit("notes", 1).await.unwrap()];
        wall.pass(&engine, Duration::from_secs(10)).await;
        runs.push(engine.submit("notes", 2).priority(9).await.unwrap());
        runs.push(engine.submit("notes", 3).priority(11).await.unwrap());
        assert!(engine.unpause().await.unwrap());
        for run in &runs {
            assert_eq!(end(run).await.0, Kind::Succeeded);
        }
        assert_eq!(scene.notes(), ["3", "1", "2"]);
    }

    async fn first_come_first_started(place: Place) {
        let (scene, _, engine) = on_one_slot(&place, tasks()).await;
        let blocker = engine.submit("held", "gate").await.unwrap();
        scene.reached("gate").await;
        let mut runs = Vec::new();
        for input in 0..20_u64 {
            runs.push(engine.submit("notes", input).await.unwrap());
        }
        scene.open("gate");
        for run in runs.iter().chain([&blocker]) {
            assert_eq!(end(run).await.0, Kind::Succeeded);
        }
        let order: Vec<String> = (0..20).map(|input| input.to_string()).collect();
        assert_eq!(scene.notes(), order);
    }

    async fn nothing_of_a_run_starts_before_its_time(place: Place) {
        let (scene, wall, engine) = on_one_slot(&place, tasks()).await;
        let run = engine.submit("notes", 1).not_before(wall.now() + HOUR).await.unwrap();
        let past = engine.submit("notes", 2).not_before(wall.now() - HOUR).await.unwrap();
        assert_eq!(end(&past).await.0, Kind::Succeeded);
        wall.pass(&engine, HOUR - ms(1)).await;
        assert_eq!(kind(&run).await, Kind::Ready);
        assert_eq!(scene.notes(), ["2"]);
        wall.pass(&engine, ms(1)).await;
        assert_eq!(end(&run).await.0, Kind::Succeeded);
    }

    async fn a_run_in_a_queue_that_nobody_serves_stays_until_somebody_does(place: Place) {
        let (scene, _, engine) = on_one_slot(&place, tasks()).await;
        let run = engine.submit("notes", 1).queue("elsewhere").await.unwrap();
        let own = engine.submit("notes", 2).await.unwrap();
        assert_eq!(end(&own).await.0, Kind::Succeeded);
        assert_eq!(kind(&run).await, Kind::Ready);
        let page = RunsPage { queue: Some("elsewhere".into()), limit: 9, ..Default::default() };
        let listed = engine.runs(page).await.unwrap();
        assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [run.id()]);
        let builder = place.engine().queues(["elsewhere"]).state(scene.clone());
        let builder = tasks().into_iter().fold(builder, |all, task| all.workflow(workflow(task)));
        let other = builder.start().await.unwrap();
        until_is(&run, "notes", Kind::Succeeded).await;
        // The first of an engine's queues is its own.
        let theirs = other.submit("notes", 3).await.unwrap();
        assert_eq!(end(&theirs).await.0, Kind::Succeeded);
        assert_eq!(scene.notes(), ["2", "1", "3"]);
    }

    async fn many_runs_are_submitted_at_once_and_keep_their_order(place: Place) {
        let scene = Scene::default();
        let builder = place.engine().slots(4).workflow(workflow(Task::new("notes", notes)));
        let engine = scene.start(builder).await;
        let runs = engine.submit_many("notes", 0..1_000_u64).await.unwrap();
        assert_eq!(runs.len(), 1_000);
        for (input, run) in (0..).zip(&runs) {
            let status = run.wait().await.unwrap();
            assert_eq!(status.output::<u64>("notes").unwrap(), input);
        }
        assert_eq!(scene.notes().len(), 1_000);
        until_quiet(&engine).await;
        assert!(engine.audit().await.unwrap().is_empty());
    }

    async fn a_paused_run_starts_nothing_and_goes_on_with_what_has_begun(place: Place) {
        let scene = Scene::default();
        let workflow = Workflow::builder("two")
            .task(Task::new("held", held))
            .task(Task::new("next", nothing).after(["held"]))
            .build()
            .unwrap();
        let wall = Wall::new();
        let engine = scene.start(wall.on(place.engine()).workflow(workflow)).await;
        let run = engine.submit("two", "gate").await.unwrap();
        scene.reached("gate").await;
        assert!(run.pause().await.unwrap());
        assert!(!run.pause().await.unwrap(), "it is paused already");
        let since = wall.now();
        assert_eq!(run.status().await.unwrap().state, RunState::Paused { since });
        scene.open("gate");
        until_is(&run, "held", Kind::Succeeded).await;
        wall.pass(&engine, HOUR).await;
        assert_eq!(look(&run, "next").await.kind, Kind::Ready);
        assert!(run.unpause().await.unwrap());
        assert!(!run.unpause().await.unwrap(), "it is not paused");
        let status = run.wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
        assert!(!run.pause().await.unwrap(), "it has ended");
    }

    async fn a_paused_queue_starts_nothing_and_others_go_on(place: Place) {
        let scene = Scene::default();
        let builder = place.engine().queues(["default", "other"]);
        let builder = tasks().into_iter().fold(builder, |all, task| all.workflow(workflow(task)));
        let engine = scene.start(builder).await;
        assert!(engine.pause_queue("default").await.unwrap());
        assert!(!engine.pause_queue("default").await.unwrap(), "it is paused already");
        let paused = engine.submit("notes", 1).await.unwrap();
        let other = engine.submit("notes", 2).queue("other").await.unwrap();
        assert_eq!(end(&other).await.0, Kind::Succeeded);
        assert_eq!(kind(&paused).await, Kind::Ready);
        assert!(engine.unpause_queue("default").await.unwrap());
        assert!(!engine.unpause_queue("default").await.unwrap(), "it is not paused");
        assert_eq!(end(&paused).await.0, Kind::Succeeded);
        assert_eq!(scene.notes(), ["2", "1"]);
    }

    async fn a_paused_store_starts_nothing_and_lets_go_on_what_waits(place: Place) {
        async fn waits(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            handle.defer_while(scene.at("gate")).await?;
            scene.note("waited");
            Ok(())
        }
        let scene = Scene::default();
        let builder = place.engine().workflow(workflow(Task::new("waits", waits)));
        let builder = tasks().into_iter().fold(builder, |all, task| all.workflow(workflow(task)));
        let engine = scene.start(builder).await;
        let begun = engine.submit("waits", ()).await.unwrap();
        until_is(&begun, "waits", Kind::Deferred).await;
        assert!(engine.pause().await.unwrap());
        assert!(!engine.pause().await.unwrap(), "it is paused already");
        let paused = engine.submit("notes", 1).await.unwrap();
        scene.open("gate");
        assert_eq!(end(&begun).await.0, Kind::Succeeded);
        assert_eq!(kind(&paused).await, Kind::Ready);
        assert!(engine.unpause().await.unwrap());
        assert!(!engine.unpause().await.unwrap(), "it is not paused");
        assert_eq!(end(&paused).await.0, Kind::Succeeded);
        assert_eq!(scene.notes(), ["waited", "1"]);
    }
}
