//! A pause stops what has not begun, also what a worker has claimed ahead; and a task knows which of
//! its parents returned something.

use super::scene::*;
use super::support::*;
use tidegate::{Context, OnFailure, RunOutcome, Task, TaskError, When, Workflow};
use tidegate_core::lifecycle::Kind;

/// Goes on when the place that is its input is open.
async fn held(context: &mut Context<String>) -> Result<(), TaskError> {
    let scene = context.state::<Scene>()?;
    scene.note(context.input());
    scene.at(context.input()).await;
    Ok(())
}

async fn fails(_: &mut Context) -> Result<u64, TaskError> {
    Err("it was to fail".into())
}

async fn returns_nothing(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

async fn looks(context: &mut Context) -> Result<String, TaskError> {
    context.output::<()>("nothing")?;
    match context.output::<Option<u64>>("failed") {
        Ok(_) => Ok("something".to_owned()),
        Err(error) => Ok(error.to_string()),
    }
}

on_every_store! {
    async fn what_was_claimed_ahead_does_not_begin_in_a_pause_and_keeps_its_place(place: Place) {
        let scene = Scene::default();
        let workflow = Workflow::of(Task::new("held", held)).unwrap();
        let engine = scene.start(place.engine().slots(1).workflow(workflow)).await;
        let first = engine.submit("held", "first").await.unwrap();
        scene.reached("first").await;
        let second = engine.submit("held", "second").await.unwrap();
        until("one is claimed ahead", async || engine.metrics().ahead == 1).await;
        assert!(engine.pause().await.unwrap());
        until_is(&second, "held", Kind::Ready).await;
        scene.open("first");
        assert_eq!(first.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        let third = engine.submit("held", "third").await.unwrap();
        until_quiet(&engine).await;
        assert_eq!(scene.notes(), ["first"], "nothing begins in a pause");

        assert!(engine.unpause().await.unwrap());
        scene.reached("second").await;
        scene.open("second");
        scene.open("third");
        for run in [second, third] {
            let status = run.wait().await.unwrap();
            assert_eq!((status.tasks[0].entries, status.tasks[0].attempt), (1, 1));
        }
        assert_eq!(scene.notes(), ["first", "second", "third"]);
    }

    async fn what_a_parent_that_failed_returned_cannot_be_had(place: Place) {
        let workflow = Workflow::builder("look")
            .task(Task::new("failed", fails))
            .task(Task::new("nothing", returns_nothing))
            .task(Task::new("looks", looks).after(["failed", "nothing"]).when(When::AllDone))
            .on_failure(OnFailure::KeepGoing);
        let engine = place.engine().workflow(workflow.build().unwrap()).start().await.unwrap();
        let status = engine.submit("look", ()).await.unwrap().wait().await.unwrap();
        let said: String = status.output("looks").unwrap();
        assert_eq!(said, "task \"failed\" has not succeeded and returned nothing");
    }
}
