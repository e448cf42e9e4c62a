//! What is no longer kept, by hand and in the background.

use super::scene::{Prunes, Spy, Wall};
use super::support::*;
use std::time::Duration;
use tidegate::engine::{Pruned, RunError, RunsPage, WaitRunError};
use tidegate::{Context, Engine, EngineBuilder, Limit, Retention, Run, Task, TaskError, Workflow};

const DAY: Duration = Duration::from_secs(86_400);
const TEN_MINUTES: Duration = Duration::from_secs(600);

async fn answers(_: &mut Context) -> Result<u32, TaskError> {
    Ok(42)
}

fn answering(builder: EngineBuilder) -> EngineBuilder {
    builder.workflow(Workflow::of(Task::new("answers", answers)).unwrap())
}

async fn ended(engine: &Engine, workflow: &str) -> Run {
    let run = engine.submit(workflow, ()).key("k").await.unwrap();
    run.wait().await.unwrap();
    run
}

/// Whether there is such a run.
async fn is_there(engine: &Engine, run: &Run) -> bool {
    match engine.run(run.id()).await {
        Ok(_) => true,
        Err(RunError::Unknown(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

fn runs(age: Duration) -> Retention {
    Retention { runs: Some(age), ..Retention::default() }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_run_that_others_end_and_prune_is_told() {
    let place = Place::memory();
    let wall = Wall::new();
    // It looks every ten minutes, and hears of nothing in between.
    let client =
        wall.on(answering(place.engine())).watch(TEN_MINUTES, false).connect().await.unwrap();
    let run = client.submit("answers", ()).await.unwrap();
    let waits = tokio::spawn({
        let run = run.clone();
        async move { run.wait().await }
    });
    let worker = wall.on(answering(place.engine())).start().await.unwrap();
    worker.run(run.id()).await.unwrap().wait().await.unwrap();
    wall.pass(&worker, 2 * DAY).await;
    assert_eq!(worker.prune(runs(DAY)).await.unwrap().runs, 1);
    let told = waits.await.unwrap();
    assert!(matches!(told, Err(WaitRunError::Run(RunError::Unknown(_)))), "{told:?}");
    worker.shutdown(DAY).await;
    client.shutdown(DAY).await;
}

on_every_store! {
    async fn pruning_removes_what_is_older_and_says_how_much(place: Place) {
        let wall = Wall::new();
        let engine = wall.on(answering(place.engine())).start().await.unwrap();
        let old = ended(&engine, "answers").await;
        wall.pass(&engine, DAY).await;
        let pruned = engine.prune(runs(2 * DAY)).await.unwrap();
        assert_eq!(pruned, Pruned::default());
        wall.pass(&engine, DAY).await;
        assert!(engine.submit("answers", ()).key("k").await.unwrap().existed());
        wall.pass(&engine, DAY).await;
        let pruned = engine.prune(runs(2 * DAY)).await.unwrap();
        assert_eq!((pruned.runs, pruned.events, pruned.signals), (1, 0, 0));
        assert!(!is_there(&engine, &old).await);
        assert!(matches!(old.status().await, Err(RunError::Unknown(_))));
        let new = ended(&engine, "answers").await;
        assert!(!new.existed() && new.id() != old.id(), "its key is free");
        assert_eq!(engine.audit().await.unwrap(), []);
        engine.shutdown(DAY).await;
    }

    async fn rows_that_only_pruned_runs_have_used_go_with_them(place: Place) {
        let wall = Wall::new();
        let limited = Workflow::of(Task::new("limited", answers).limit("api")).unwrap();
        let engine = answering(place.engine()).limit(Limit::new("api").at_once(1));
        let engine = wall.on(engine.workflow(limited)).start().await.unwrap();
        ended(&engine, "limited").await;
        wall.pass(&engine, DAY).await;
        ended(&engine, "answers").await;
        let pruned = engine.prune(runs(DAY / 2)).await.unwrap();
        // Plan and task group of the old run, and the limit. In memory there are no rows of such.
        let has_numbers = !format!("{:?}", place.store().await).starts_with("MemoryStore");
        assert_eq!((pruned.runs, pruned.unreferenced), (1, if has_numbers { 3 } else { 0 }));
        assert_eq!(engine.prune(runs(DAY / 2)).await.unwrap(), Pruned::default());
        ended(&engine, "limited").await;
        assert_eq!(engine.audit().await.unwrap(), []);
        engine.shutdown(DAY).await;
    }

    async fn events_and_signals_go_and_their_runs_stay(place: Place) {
        let wall = Wall::new();
        let engine = wall.on(answering(place.engine())).start().await.unwrap();
        engine.pause_queue("default").await.unwrap();
        let run = engine.submit("answers", ()).await.unwrap();
        run.signal("nobody listens", ()).await.unwrap();
        engine.unpause_queue("default").await.unwrap();
        run.wait().await.unwrap();
        assert_eq!(run.events().await.unwrap().len(), 1);
        wall.pass(&engine, DAY).await;
        let hour = Some(Duration::from_secs(3_600));
        let retention = Retention { events: hour, signals: hour, ..Retention::default() };
        let pruned = engine.prune(retention).await.unwrap();
        assert_eq!((pruned.runs, pruned.events, pruned.signals), (0, 1, 1));
        assert_eq!(run.events().await.unwrap(), []);
        assert_eq!(run.wait().await.unwrap().output::<u32>("answers").unwrap(), 42);
        assert_eq!(engine.audit().await.unwrap(), []);
        engine.shutdown(DAY).await;
    }

    async fn a_worker_with_retention_prunes_by_itself_until_it_is_shut_down(place: Place) {
        let wall = Wall::new();
        let before = wall.on(answering(place.engine())).start().await.unwrap();
        for _ in 0..30 {
            before.submit("answers", ()).await.unwrap().wait().await.unwrap();
        }
        wall.pass(&before, DAY).await;
        before.shutdown(DAY).await;
        let engine = wall.on(answering(place.engine())).retention(runs(Duration::from_secs(60)));
        let engine = engine.start().await.unwrap();
        let new = ended(&engine, "answers").await;
        let left = async || engine.runs(RunsPage::default()).await.unwrap();
        until("all that is old is gone", async || left().await.len() == 1).await;
        assert_eq!(left().await[0].id, new.id());
        assert_eq!(engine.audit().await.unwrap(), []);
        engine.shutdown(DAY).await;
    }

    async fn nobody_prunes_any_more_when_shutdown_returns(place: Place) {
        let (spy, builder) = Spy::on(&place).await;
        spy.prunes(Prunes::Stuck);
        let engine = answering(builder).retention(runs(DAY)).start().await.unwrap();
        until("the worker prunes", async || spy.pruning() == 1).await;
        ended(&engine, "answers").await;
        engine.shutdown(DAY).await;
        assert_eq!(spy.pruning(), 0);
        // A second call is harmless.
        engine.shutdown(DAY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pruning_that_panics_is_tried_again_a_minute_later() {
    let (spy, builder) = Spy::on(&Place::memory()).await;
    spy.prunes(Prunes::Panics);
    let engine = answering(builder).retention(runs(Duration::ZERO)).start().await.unwrap();
    let began = tokio::time::Instant::now();
    let run = ended(&engine, "answers").await;
    while is_there(&engine, &run).await {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_secs(120), "it is tried again");
    }
    assert!(began.elapsed() > Duration::from_secs(60), "and not at once");
    engine.shutdown(DAY).await;
}

#[cfg(all(unix, feature = "sqlite"))]
mod logs {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use tidegate::process::Command;

    /// The logs of runs, by run.
    fn logs(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).map(Iterator::collect::<Vec<_>>);
        let entries = entries.unwrap_or_default().into_iter().map(Result::unwrap);
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    async fn speaking(folder: &Path, wall: &Wall) -> (Engine, PathBuf) {
        let database = folder.join("jobs.db");
        let speaks = Task::command("speaks", Command::shell("echo something"));
        let engine = Engine::builder(format!("sqlite:{}", database.display()));
        let engine = wall.on(engine.workflow(Workflow::of(speaks).unwrap()));
        (engine.start().await.unwrap(), folder.join("jobs.db-logs"))
    }

    async fn spoken(engine: &Engine) -> String {
        let run = engine.submit("speaks", ()).await.unwrap();
        run.wait().await.unwrap();
        run.id().to_string()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn logs_go_by_their_age_and_with_their_runs() {
        within(async {
            let (folder, wall) = (tempfile::tempdir().unwrap(), Wall::new());
            let (engine, place) = speaking(folder.path(), &wall).await;
            let first = spoken(&engine).await;
            wall.pass(&engine, DAY).await;
            let second = spoken(&engine).await;
            // Nobody knows what these are; they are left alone.
            std::fs::write(place.join("notes.txt"), "mine").unwrap();
            assert_eq!(logs(&place), [&first, &second, "notes.txt"]);
            wall.pass(&engine, DAY).await;
            let hours = |hours: u64| Some(Duration::from_secs(3_600 * hours));
            let retention = Retention { logs: hours(36), ..Retention::default() };
            let pruned = engine.prune(retention).await.unwrap();
            assert_eq!((pruned.logs, pruned.runs), (1, 0));
            assert_eq!(logs(&place), [&second, "notes.txt"]);
            let third = spoken(&engine).await;
            let pruned = engine.prune(runs(Duration::from_secs(3_600))).await.unwrap();
            assert_eq!((pruned.logs, pruned.runs), (1, 2));
            assert_eq!(logs(&place), [&third, "notes.txt"]);
            engine.shutdown(DAY).await;
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn logs_that_a_crash_has_left_of_runs_that_are_gone_go_too() {
        within(async {
            let (folder, wall) = (tempfile::tempdir().unwrap(), Wall::new());
            let (engine, place) = speaking(folder.path(), &wall).await;
            let run = spoken(&engine).await;
            let log = place.join(&run).join("speaks.1.log");
            let text = std::fs::read(&log).unwrap();
            wall.pass(&engine, DAY).await;
            engine.prune(runs(Duration::from_secs(1))).await.unwrap();
            assert_eq!(logs(&place), [] as [&str; 0]);
            // As if it had crashed before it came to the logs.
            std::fs::create_dir(place.join(&run)).unwrap();
            std::fs::write(&log, text).unwrap();
            assert_eq!(engine.prune(runs(Duration::from_secs(1))).await.unwrap().logs, 1);
            assert_eq!(logs(&place), [] as [&str; 0]);
            engine.shutdown(DAY).await;
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn logs_in_a_folder_of_ones_own_are_removed_only_for_runs_that_are_known() {
        within(async {
            let (folder, wall) = (tempfile::tempdir().unwrap(), Wall::new());
            let place = folder.path().join("shared");
            let speaks = Task::command("speaks", Command::shell("echo something"));
            let engine = Engine::builder("memory:").logs(&place);
            let engine = wall.on(engine.workflow(Workflow::of(speaks).unwrap()));
            let engine = engine.start().await.unwrap();
            spoken(&engine).await;
            let stranger = "00000000000000000000000001";
            std::fs::create_dir(place.join(stranger)).unwrap();
            wall.pass(&engine, DAY).await;
            let second = Some(Duration::from_secs(1));
            let retention = Retention { logs: second, runs: second, ..Retention::default() };
            assert_eq!(engine.prune(retention).await.unwrap().logs, 1);
            assert_eq!(logs(&place), [stranger]);
            engine.shutdown(DAY).await;
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_its_owner_can_read_logs_and_notes() {
        within(async {
            let (folder, wall) = (tempfile::tempdir().unwrap(), Wall::new());
            let (engine, place) = speaking(folder.path(), &wall).await;
            let run = place.join(spoken(&engine).await);
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&place), mode(&run)), (0o700, 0o700));
            assert_eq!(mode(&run.join("speaks.1.log")), 0o600);
            let workers = folder.path().join("jobs.db-workers");
            assert_eq!(mode(&workers), 0o700);
            let files: Vec<_> = std::fs::read_dir(&workers).unwrap().map(Result::unwrap).collect();
            assert!(files.iter().any(|file| file.file_name() == "1.notes"));
            assert!(files.iter().all(|file| mode(&file.path()) == 0o600), "{files:?}");
            engine.shutdown(DAY).await;
        })
        .await;
    }
}
