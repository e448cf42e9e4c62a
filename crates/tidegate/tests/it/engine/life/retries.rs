//! Further attempts.

use super::*;
use tidegate_core::store::Happened;

const HOUR: Duration = Duration::from_secs(3_600);

/// Notes its attempt and the name of its execution, and fails.
async fn fails(context: &mut Context, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    scene.note(format!("{} {}", handle.attempt(), handle.task_execution_id()));
    Err(format!("failure {}", handle.attempt()).into())
}

/// Fails the first time.
async fn second_time(_: &mut Context, handle: &TaskHandle) -> Done {
    match handle.attempt() {
        1 => Err("not the first time".into()),
        _ => Ok(()),
    }
}

on_every_store! {
    async fn a_failing_task_is_tried_as_often_as_it_may_be_and_no_more(place: Place) {
        let now = Backoff::fixed(Duration::ZERO);
        let task = Task::new("fails", fails).retries(2).backoff(now);
        let (scene, _, engine) = on_one_slot(&place, [task]).await;
        let run = engine.submit("fails", ()).await.unwrap();
        let status = run.wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::Error)));
        assert_eq!((task.attempt, task.entries), (3, 3));
        assert_eq!(task.error.as_deref(), Some("failure 3"));
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        let notes = scene.notes();
        let (attempts, ids): (Vec<_>, Vec<_>) =
            notes.iter().map(|note| note.split_once(' ').unwrap()).unzip();
        assert_eq!(attempts, ["1", "2", "3"]);
        assert_eq!((ids[0], ids[0]), (ids[1], ids[2]), "its execution has one name");
        let recorded: Vec<_> = run.events().await.unwrap();
        let recorded: Vec<_> = recorded.iter().map(|it| (it.what, it.attempt)).collect();
        let retried = Happened::Retried;
        assert_eq!(recorded, [(retried, 1), (retried, 2), (Happened::Failed, 3)]);
        until_quiet(&engine).await;
    }

    async fn executions_of_two_runs_have_names_of_their_own(place: Place) {
        let (scene, _, engine) = on_one_slot(&place, [Task::new("fails", fails)]).await;
        for _ in 0..2 {
            engine.submit("fails", ()).await.unwrap().wait().await.unwrap();
        }
        let notes = scene.notes();
        assert_eq!(notes.len(), 2);
        assert_ne!(notes[0], notes[1]);
    }

    async fn a_permanent_error_is_not_tried_again(place: Place) {
        async fn permanent(_: &mut Context) -> Done {
            Err(TaskError::permanent("no such customer"))
        }
        let task = Task::new("permanent", permanent).retries(5);
        let (_, _, engine) = on_one_slot(&place, [task]).await;
        let status = engine.submit("permanent", ()).await.unwrap().wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::Error)));
        assert_eq!((task.attempt, task.entries), (1, 1));
        assert_eq!(task.error.as_deref(), Some("no such customer"));
    }

    async fn a_panic_is_tried_again(place: Place) {
        async fn panics_once(_: &mut Context, handle: &TaskHandle) -> Done {
            assert!(handle.attempt() > 1, "not the first time");
            Ok(())
        }
        let now = Backoff::fixed(Duration::ZERO);
        let task = Task::new("panics", panics_once).retries(1).backoff(now);
        let (_, _, engine) = on_one_slot(&place, [task]).await;
        let status = engine.submit("panics", ()).await.unwrap().wait().await.unwrap();
        assert_eq!((status.tasks[0].kind, status.tasks[0].attempt), (Kind::Succeeded, 2));
    }

    async fn a_back_off_holds_no_slot_and_lasts_as_long_as_it_should(place: Place) {
        let again = Task::new("again", second_time).retries(1).backoff(Backoff::fixed(HOUR));
        let (_, wall, engine) = on_one_slot(&place, [again, Task::new("nothing", nothing)]).await;
        let run = engine.submit("again", ()).await.unwrap();
        until("it failed once", async || look(&run, "again").await.attempt == 2).await;
        assert_eq!(kind(&run).await, Kind::Ready);
        let other = engine.submit("nothing", ()).await.unwrap();
        assert_eq!(end(&other).await.0, Kind::Succeeded, "the one slot is free");
        wall.pass(&engine, HOUR - ms(1)).await;
        assert_eq!((kind(&run).await, look(&run, "again").await.entries), (Kind::Ready, 1));
        wall.pass(&engine, ms(1)).await;
        let status = run.wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.attempt, task.entries), (Kind::Succeeded, 2, 2));
    }

    async fn each_pause_of_a_growing_back_off_is_longer(place: Place) {
        let growing = Backoff::exponential(HOUR, 3.0, 5 * HOUR).unwrap();
        let task = Task::new("fails", fails).retries(3).backoff(growing);
        let (scene, wall, engine) = on_one_slot(&place, [task]).await;
        let run = engine.submit("fails", ()).await.unwrap();
        for (attempt, pause) in [(2, HOUR), (3, 3 * HOUR), (4, 5 * HOUR)] {
            until("it failed", async || look(&run, "fails").await.attempt == attempt).await;
            wall.pass(&engine, pause - ms(1)).await;
            assert_eq!(scene.notes().len() as u32, attempt - 1, "too early");
            wall.pass(&engine, ms(1)).await;
        }
        assert_eq!(run.wait().await.unwrap().tasks[0].attempt, 4);
    }

    async fn a_snooze_uses_no_attempt_and_holds_no_slot(place: Place) {
        async fn snoozes(context: &mut Context, handle: &TaskHandle) -> Done {
            let scene = context.state::<Scene>()?;
            scene.note(format!("attempt {}", handle.attempt()));
            match scene.notes().len() {
                1 | 2 => Err(TaskError::snooze(HOUR)),
                _ => Ok(()),
            }
        }
        let tasks = [Task::new("snoozes", snoozes), Task::new("nothing", nothing)];
        let (scene, wall, engine) = on_one_slot(&place, tasks).await;
        let run = engine.submit("snoozes", ()).await.unwrap();
        for entries in 1..=2 {
            until_is(&run, "snoozes", Kind::Ready).await;
            assert_eq!(look(&run, "snoozes").await.entries, entries);
            let other = engine.submit("nothing", ()).await.unwrap();
            assert_eq!(end(&other).await.0, Kind::Succeeded, "the one slot is free");
            wall.pass(&engine, HOUR - ms(1)).await;
            assert_eq!(scene.notes().len() as u32, entries, "too early");
            wall.pass(&engine, ms(1)).await;
            let woken = async || look(&run, "snoozes").await.entries > entries;
            until("it is entered again", woken).await;
        }
        let status = run.wait().await.unwrap();
        let task = &status.tasks[0];
        assert_eq!((task.kind, task.attempt, task.entries), (Kind::Succeeded, 1, 3));
        assert_eq!(scene.notes(), ["attempt 1"; 3]);
    }
}
