//! Values that are too deep to be read again are refused where they come in.

use super::support::{Place, on_every_store};
use serde_json::{Value, json};
use tidegate::error::SubmitError;
use tidegate::{Context, Task, TaskError, TaskHandle, Workflow};

/// So many lists inside one another, which hold a text that looks like more of them.
fn nested(depth: usize) -> Value {
    (1..depth).fold(json!(["[[[\\\"[[["]), |inner, _| json!([inner]))
}

/// As deep as it is told, in the way it is told.
async fn deep(
    context: &mut Context<(String, usize)>,
    handle: &TaskHandle,
) -> Result<Value, TaskError> {
    let (way, depth) = context.input().clone();
    match way.as_str() {
        "output" => return Ok(nested(depth)),
        "insert" => context.insert("key", nested(depth - 1))?,
        "step" => drop(handle.step("step", async { Ok::<_, TaskError>(nested(depth)) }).await?),
        "child" => drop(handle.run_child("takes", nested(depth)).await?),
        _ => panic!("{way} is no way"),
    }
    Ok(Value::Null)
}

async fn takes(context: &mut Context<Value>) -> Result<Value, TaskError> {
    Ok(context.input().clone())
}

on_every_store! {
    async fn value_that_is_too_deep_is_refused_and_one_that_is_not_can_be_read(place: Place) {
        let workflows = [Task::new("deep", deep), Task::new("takes", takes)];
        let engine = workflows.into_iter().fold(place.engine(), |engine, task| {
            engine.workflow(Workflow::of(task).unwrap())
        });
        let engine = engine.start().await.unwrap();
        for way in ["output", "insert", "step", "child"] {
            let says = "is 128 levels of JSON; at most 127 are stored";
            for (depth, is_stored) in [(127, true), (128, false)] {
                let run = engine.submit("deep", (way, depth)).await.unwrap();
                let task = run.wait().await.unwrap().task("deep").unwrap().clone();
                let error = task.error.unwrap_or_default();
                assert_eq!(error.is_empty(), is_stored, "{way}: {error}");
                assert!(is_stored || error.contains(says), "{way}: {error}");
            }
        }
        let error = engine.submit("takes", nested(128)).await.unwrap_err();
        assert!(matches!(error, SubmitError::TooDeep { depth: 128 }));
        assert_eq!(error.to_string(), "the input is 128 levels of JSON; at most 127 are stored");
        let run = engine.submit("takes", nested(127)).await.unwrap();
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<Value>("takes").unwrap(), nested(127));

        let error = run.signal("name", nested(128)).await.unwrap_err().to_string();
        assert!(error.contains("is 128 levels of JSON"), "{error}");
    }
}
