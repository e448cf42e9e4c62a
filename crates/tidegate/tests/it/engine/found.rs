//! Workflows that an engine finds when a run of them is there.

use super::scene::*;
use super::support::*;
use std::time::Duration;
use tidegate::engine::Kind;
use tidegate::{Context, Engine, RunOutcome, RunStatus, Task, TaskError, Workflow};

/// What it says is what its run works on: a list, for each of whose items `each` is done.
fn written(name: &str, input: Option<&[u8]>) -> Result<Workflow, TaskError> {
    let input: Vec<String> = serde_json::from_slice(input.unwrap_or(b"null"))?;
    match input.first().map(String::as_str) {
        Some("panic") => panic!("it is written badly"),
        Some("empty") => return Ok(Workflow::of(Task::new("another", note))?),
        _ => {}
    }
    let list = move |_: &mut Context<Vec<String>>| Ok::<_, TaskError>(input.clone());
    let builder = Workflow::builder(name).task(Task::blocking("list", list));
    Ok(builder.task(Task::new("each", note).after(["list"]).each("list").retries(1)).build()?)
}

async fn note(context: &mut Context<Vec<String>>) -> Result<(), TaskError> {
    let (scene, item) = (context.state::<Scene>()?, context.item::<String>()?);
    if item == "fails" && !scene.notes().contains(&item) {
        scene.note("fails");
        return Err("once".into());
    }
    scene.note(item);
    Ok(())
}

async fn ended(place: &Place, input: &[&str]) -> (Scene, RunStatus) {
    let scene = Scene::default();
    let plan = written("written", Some(br#"["x"]"#)).unwrap();
    let client: Engine = place.engine().workflow(plan).connect().await.unwrap();
    let run = client.submit("written", input).await.unwrap();
    let worker = place.engine().state(scene.clone()).find_workflows(written);
    let worker = worker.start().await.unwrap();
    assert_eq!(worker.unserved().await.unwrap(), []);
    let status = run.wait().await.unwrap();
    worker.shutdown(Duration::ZERO).await;
    client.shutdown(Duration::ZERO).await;
    (scene, status)
}

on_every_store! {
    async fn a_workflow_is_found_by_what_its_run_works_on(place: Place) {
        let (scene, status) = ended(&place, &["a", "fails", "b"]).await;
        assert_eq!(status.outcome(), Some(RunOutcome::Succeeded), "{status:?}");
        let mut notes = scene.notes();
        notes.sort_unstable();
        assert_eq!(notes, ["a", "b", "fails", "fails"]);
    }

    async fn what_cannot_be_found_fails_and_says_why(place: Place) {
        for (input, why) in [
            (&["panic"], "it is written badly"),
            (&["empty"], "workflow \"written\" has no task \"list\" any more"),
        ] {
            let (_, status) = ended(&place, input).await;
            let list = status.task("list").unwrap();
            assert_eq!((list.kind, list.attempt), (Kind::Failed, 1));
            assert!(list.error.as_deref().unwrap().contains(why), "{list:?}");
        }
    }
}
