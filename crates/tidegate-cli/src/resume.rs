//! Going on with a run of the same file.
//!
//! What goes on is a new run that takes over what has succeeded in the old one. If the old one is
//! still open (its process was interrupted or has died), what is left of it is cancelled first, once
//! nothing of it is running any more. Whoever does so holds the queue of the old run.

use crate::Failure;
use crate::file::{File, quoted};
use crate::store::{Place, Queue, Taken};
use serde_json::{Value, json};
use std::time::Duration;
use tidegate::engine::{RunSummary, RunsPage};
use tidegate::{Engine, RunId};

/// How often it is looked whether the commands of a dead process are gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A run that can be gone on with.
#[derive(Debug)]
pub(crate) struct Old {
    pub(crate) id: RunId,
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
    /// Nobody else works on it.
    _queue: Queue,
}

/// What a run works on: of which file it is, and which of its tasks were chosen.
pub(crate) fn input(file: &File, only: &[String], skip: &[String]) -> Value {
    let path = file.path.canonicalize().unwrap_or_else(|_| file.path.clone());
    json!({ "file": path.to_string_lossy(), "only": only, "skip": skip })
}

/// The latest run of the file, or the one that has this number, or whose id begins like this.
///
/// # Errors
/// There is none, more than one is meant, or somebody works on it.
pub(crate) async fn find(
    engine: &Engine,
    place: &Place,
    file: &File,
    wanted: &str,
) -> Result<Old, Failure> {
    let wanted = wanted.to_lowercase();
    let mut found = Vec::new();
    let mut before = None;
    // One is enough where none is named; two are too many where one is.
    while found.len() < if wanted.is_empty() { 1 } else { 2 } {
        let page = RunsPage { workflow: Some(file.name.clone()), before, ..RunsPage::default() };
        let runs = engine.runs(page).await.map_err(unusable)?;
        let Some(last) = runs.last() else { break };
        before = Some(last.key);
        for run in runs {
            let is_meant =
                run.id.to_string().starts_with(&wanted) || run.key.0.to_string() == wanted;
            if run.parent.is_none() && is_meant {
                found.extend(of_file(engine, file, run).await?);
            }
        }
    }
    let path = file.path.display();
    let mut found = found.into_iter();
    let Some((run, input)) = found.next() else {
        let which = if wanted.is_empty() { String::new() } else { format!(" {}", quoted(&wanted)) };
        let what = format!("there is no run{which} of {path} to go on with; leave --resume out");
        return Err(Failure::Undone(what));
    };
    if let Some((other, _)) = found.next().filter(|_| !wanted.is_empty()) {
        let what = format!("--resume={wanted} may be run {} or run {}", run.id, other.id);
        return Err(Failure::Wrong(what));
    }
    let queue = match place.take_queue(&run.queue)? {
        Taken::Yes(queue) => queue,
        Taken::By(who) => {
            let id = run.id;
            let what = format!("run {id} of {path} is still going on in {who}; stop that first");
            return Err(Failure::Undone(what));
        }
    };
    let (only, skip) = (names(&input, "only"), names(&input, "skip"));
    Ok(Old { id: run.id, only, skip, _queue: queue })
}

/// Whether a run that works on this was submitted for others to do.
pub(crate) fn is_submitted(input: &Value) -> bool {
    !input["text"].is_null()
}

/// The names that an input has under a key.
pub(crate) fn names(input: &Value, key: &str) -> Vec<String> {
    let names = input[key].as_array().into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The run with its input, if it is one of this file.
async fn of_file(
    engine: &Engine,
    file: &File,
    run: RunSummary,
) -> Result<Option<(RunSummary, Value)>, Failure> {
    let bytes = engine.store().input(run.key).await.map_err(unusable)?;
    let value: Value =
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    // What was submitted is the business of whoever serves its queue.
    let is_same = value["file"] == input(file, &[], &[])["file"] && !is_submitted(&value);
    Ok(is_same.then_some((run, value)))
}

/// Cancels what is left of the old run, once nothing of it is running any more.
///
/// # Errors
/// The store cannot be used.
pub(crate) async fn end(engine: &Engine, run: RunId) -> Result<(), Failure> {
    // The engine takes over from dead processes by itself, and ends their commands before that. Also
    // of a run that has ended one may be left: it was told to stop, and its process died.
    while !engine.store().dead().await.map_err(unusable)?.is_empty() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let run = engine.run(run).await.map_err(unusable)?;
    run.cancel().await.map(drop).map_err(unusable)
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::Store(error.to_string())
}
