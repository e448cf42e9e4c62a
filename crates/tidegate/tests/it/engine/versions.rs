//! A run that was begun by one version of a program and goes on under the next.

use super::scene::*;
use super::support::*;
use std::time::Duration;
use tidegate::engine::{Kind, WhyUnserved};
use tidegate::{Context, Engine, RunOutcome, Task, TaskError, TaskHandle, Workflow};

type Done = Result<String, TaskError>;

async fn extract(context: &mut Context) -> Done {
    context.state::<Scene>()?.note("extract");
    Ok("from the first version".to_owned())
}

async fn check(context: &mut Context, handle: &TaskHandle) -> Done {
    let scene = context.state::<Scene>()?;
    handle.defer_while(scene.at("check")).await?;
    scene.note("check");
    Ok(context.output("extract")?)
}

async fn load(context: &mut Context) -> Done {
    context.state::<Scene>()?.note("load");
    Ok(context.output("check")?)
}

async fn notify(context: &mut Context) -> Done {
    context.state::<Scene>()?.note("notify");
    Ok(String::new())
}

/// extract → check → load, of which a version has some.
fn etl(tasks: &[&str]) -> Workflow {
    let mut workflow = Workflow::builder("etl");
    let mut before: Option<&str> = None;
    for &name in tasks {
        let task = match name {
            "extract" => Task::new(name, extract),
            "check" => Task::new(name, check),
            "load" => Task::new(name, load),
            _ => Task::new(name, notify),
        };
        workflow = workflow.task(task.after(before));
        before = Some(name);
    }
    workflow.build().unwrap()
}

async fn version(place: &Place, scene: &Scene, tasks: &[&str]) -> Engine {
    let builder = place.engine().slots(2).state(scene.clone());
    builder.workflow(etl(tasks)).start().await.unwrap()
}

on_every_store! {
    async fn a_run_goes_on_under_the_next_version_as_far_as_its_tasks_are_known(place: Place) {
        let scene = Scene::default();
        let first = version(&place, &scene, &["extract", "check", "load"]).await;
        let run = first.submit("etl", ()).await.unwrap();
        scene.reached("check").await;
        first.shutdown(Duration::ZERO).await;

        // The second version has no `check`, and one that the run was not planned with.
        let second = version(&place, &scene, &["extract", "load", "notify"]).await;
        let mut unserved = Vec::new();
        until("what nobody knows is named", async || {
            unserved = second.unserved().await.unwrap();
            !unserved.is_empty()
        })
        .await;
        assert_eq!(unserved.len(), 1);
        assert_eq!((unserved[0].task.as_str(), unserved[0].why), ("check", WhyUnserved::Unknown));
        let says = "1 × task \"check\" of workflow \"etl\" in queue \"default\": no worker of the \
                    queue knows this task";
        assert_eq!(unserved[0].to_string(), says);
        let stuck = second.run(run.id()).await.unwrap();
        let kinds = |status: tidegate::RunStatus| -> Vec<Kind> {
            status.tasks.iter().map(|task| task.kind).collect()
        };
        let wanted = [Kind::Succeeded, Kind::Ready, Kind::Blocked];
        assert_eq!(kinds(stuck.status().await.unwrap()), wanted);
        // It does its own runs meanwhile.
        let own = second.submit("etl", ()).await.unwrap().wait().await.unwrap();
        assert_eq!(own.tasks.len(), 3);
        assert_eq!(own.outcome(), Some(RunOutcome::Failed), "load finds no \"check\" to read from");
        second.shutdown(Duration::ZERO).await;

        let third = version(&place, &scene, &["check", "load"]).await;
        scene.open("check");
        let status = third.run(run.id()).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<String>("load").unwrap(), "from the first version");
        assert_eq!(third.unserved().await.unwrap(), []);
        let notes = scene.notes();
        assert_eq!(notes.iter().filter(|note| *note == "extract").count(), 2, "one for each run");
        third.shutdown(Duration::ZERO).await;
    }
}
