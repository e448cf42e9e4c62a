//! Runs that a worker does: a file is submitted to a queue, and whoever serves the queue finds in the
//! run all that it needs of the file.

use crate::choice::choose;
use crate::file::{self, File, Given, Origin, Setting, Source};
use crate::run::{End, not_started, unusable};
use crate::store::{self, Place};
use crate::{Failure, args, plan, resume};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tidegate::engine::SubmitError;
use tidegate::{Engine, EngineBuilder, TaskError, Workflow};

/// Submits the file and says which run that is.
///
/// # Errors
/// It was not submitted.
pub(crate) fn submit(args: &args::Submit) -> Result<End, Failure> {
    let given = args.given().map_err(Failure::Wrong)?;
    let (source, folder) = file::find(args.file.as_deref())?;
    let text = source.text.clone();
    let file = File::read(source, folder, &given)?;
    let choice =
        choose(&file, &args.only, &args.skip).map_err(|error| Failure::Wrong(error.to_string()))?;
    let place = store::place(args.store.as_deref(), &file.folder)?;
    if place.is_memory() {
        let what = "a worker cannot see what is submitted to memory:; name a file with --store";
        return Err(Failure::Wrong(what.to_owned()));
    }
    place.prepare()?;
    let workflow = plan::workflow(&file, &choice, Some(&place.address));
    let workflow = workflow.map_err(|error| Failure::Wrong(error.to_string()))?;
    let mut input = resume::input(&file, &args.only, &args.skip);
    input["text"] = text.into();
    if let Some(timeout) = given.task_timeout {
        let millis = u64::try_from(timeout.value.as_millis()).unwrap_or(u64::MAX);
        input["task_timeout_ms"] = json!(millis);
    }
    crate::run::on_runtime(async {
        let builder = Engine::builder(&place.address).queues([&args.queue]).workflow(workflow);
        let builder = file.limits.iter().cloned().fold(builder, EngineBuilder::limit);
        let engine = builder.connect().await.map_err(not_started)?;
        let mut submit = engine.submit(&file.name, input).priority(args.priority);
        if let Some(key) = &args.key {
            submit = submit.key(key);
        }
        let run = submit.await;
        engine.shutdown(Duration::ZERO).await;
        let run = run.map_err(|error| match error {
            SubmitError::Store(_) => unusable(error),
            error => Failure::Wrong(error.to_string()),
        })?;
        crate::print(&format!("{}\n", run.id()))
    })
}

/// The workflow of a run that was submitted, from what it works on.
///
/// # Errors
/// It was not submitted here, or the file it was makes no sense any more.
pub(crate) fn found(place: &Place, input: Option<&[u8]>) -> Result<Workflow, TaskError> {
    let input: Value = serde_json::from_slice(input.unwrap_or(b"null"))?;
    let (Some(path), Some(text)) = (input["file"].as_str(), input["text"].as_str()) else {
        return Err("its run was not submitted with \"tidegate submit\"".into());
    };
    let path = PathBuf::from(path);
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    let timeout = input["task_timeout_ms"].as_u64().map(Duration::from_millis);
    let timeout = timeout.map(|value| Setting { value, from: Origin::CommandLine });
    let given = Given { parallel_limit: None, task_timeout: timeout, cpus: 1 };
    let source = Source { path, text: text.to_owned(), secret: false };
    // What is wrong may quote the file, and is kept in the store: one line is enough.
    let file = File::read(source, folder, &given).map_err(|mistakes| {
        let mistakes = mistakes.to_string();
        TaskError::from(mistakes.lines().next().unwrap_or_default().to_owned())
    })?;
    let choice = choose(&file, &resume::names(&input, "only"), &resume::names(&input, "skip"));
    let choice = choice.map_err(|error| error.to_string())?;
    Ok(plan::workflow(&file, &choice, Some(&place.address))?)
}
