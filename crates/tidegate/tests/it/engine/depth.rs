//! How many runs may be above one that a task begins.

use super::scene::look;
use super::support::{Place, on_every_store};
use std::time::Duration;
use tidegate::engine::RunsPage;
use tidegate::{Backoff, Context, Task, TaskError, TaskHandle, Workflow};
use tidegate_core::lifecycle::Kind;

/// Begins itself, without end.
async fn endless(context: &mut Context<u32>, handle: &TaskHandle) -> Result<u32, TaskError> {
    let child = handle.run_child("endless", context.input() + 1).await?;
    Ok(child.output("endless")?)
}

on_every_store! {
    async fn workflow_that_begins_itself_fails_at_the_deepest_run_there_may_be(place: Place) {
        let task = Task::new("endless", endless).retries(1).backoff(Backoff::fixed(Duration::ZERO));
        let builder = place.engine().workflow(Workflow::of(task).unwrap());
        let engine = builder.child_depth_max(5).start().await.unwrap();
        let run = engine.submit("endless", 0).await.unwrap();
        run.wait().await.unwrap();
        let runs = engine.runs(RunsPage::default()).await.unwrap();
        assert_eq!(runs.len(), 6, "the run that was submitted and five below it");
        let lowest = look(&engine.run(runs[0].id).await.unwrap(), "endless").await;
        assert_eq!((lowest.kind, lowest.attempt), (Kind::Failed, 1), "it is not tried again");
        let right = "cannot begin a run of workflow \"endless\": it would be a child at depth 6, \
                     and child_depth_max is 5; begin it from further up, or set a larger \
                     child_depth_max";
        assert_eq!(lowest.error.as_deref(), Some(right));
    }
}
