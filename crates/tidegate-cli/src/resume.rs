//! Going on with a run of the same file.
//!
//! What goes on is a new run that takes over what has succeeded in the old one. If the old one is
//! still open (its process was interrupted or has died), what is left of it is cancelled first, once
//! nothing of it is running any more.
//!
//! Which process works on a run the store knows by its workers, and whether that process lives by the
//! worker's lock: the one that runs it serves its queue. A process that goes on with it says so in the
//! same way, by a queue that is named after the old run and that no run is ever in. Of two that do so
//! at the same time the one whose worker has the smaller number goes on.

use crate::Failure;
use crate::file::{File, quoted};
use serde_json::{Value, json};
use std::time::Duration;
use tidegate::engine::{RunSummary, RunsPage, WorkerView};
use tidegate::{Engine, RunId};

/// How often it is looked whether the commands of a dead process are gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A run that can be gone on with.
#[derive(Debug)]
pub(crate) struct Old {
    pub(crate) id: RunId,
    /// How it was named.
    wanted: String,
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
}

/// What a run works on: of which file it is, and which of its tasks were chosen.
pub(crate) fn input(file: &File, only: &[String], skip: &[String]) -> Value {
    let path = file.path.canonicalize().unwrap_or_else(|_| file.path.clone());
    json!({ "file": path.to_string_lossy(), "only": only, "skip": skip })
}

/// The latest run of the file, or the one that has this number, or whose id begins like this. `own`
/// is as for [`refuse_alive`].
///
/// # Errors
/// There is none, more than one is meant, or a process works on it.
pub(crate) async fn find(
    engine: &Engine,
    file: &File,
    wanted: &str,
    own: Option<&str>,
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
    refuse_alive(engine, &run, &format!(" of {path}"), own).await?;
    let (only, skip) = (names(&input, "only"), names(&input, "skip"));
    Ok(Old { id: run.id, wanted, only, skip })
}

/// The queues of a process whose run has this queue, and goes on with this other run if it does.
pub(crate) fn queues_to_serve(own: &str, old: Option<RunId>) -> Vec<String> {
    std::iter::once(own.to_owned()).chain(old.map(queue_of_successor)).collect()
}

/// The queue by which a process that goes on with a run is known. No run is ever in it.
fn queue_of_successor(run: RunId) -> String {
    format!("resume-{run}")
}

/// Refuses to go on with a run that a process works on or goes on with. A process whose own worker
/// is there already, known by the queue `own` that only it serves, comes before those with greater
/// numbers: they see it, and give way.
///
/// # Errors
/// There is such a process, or the store cannot be used.
pub(crate) async fn refuse_alive(
    engine: &Engine,
    run: &RunSummary,
    of: &str,
    own: Option<&str>,
) -> Result<(), Failure> {
    let workers = engine.workers().await.map_err(unusable)?;
    let successor = queue_of_successor(run.id);
    let serves = |worker: &WorkerView, queue: &str| worker.queues.iter().any(|name| name == queue);
    let own = own.and_then(|own| workers.iter().find(|worker| serves(worker, own)));
    let is_before = |worker: &WorkerView| own.is_none_or(|own| worker.id < own.id);
    let other = workers.iter().filter(|worker| worker.alive).find(|worker| {
        serves(worker, &run.queue) || serves(worker, &successor) && is_before(worker)
    });
    match other {
        None => Ok(()),
        Some(WorkerView { name, .. }) => {
            let id = run.id;
            let what = format!("run {id}{of} is still going on in {name}; stop that first");
            Err(Failure::Undone(what))
        }
    }
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

/// Takes the place of the process that had the old run: makes sure that no other one does, and cancels
/// what is left of the run. `own` is the queue of the run that goes on.
///
/// # Errors
/// Another process was faster, or the store cannot be used.
pub(crate) async fn take_place(
    engine: &Engine,
    file: &File,
    old: &Old,
    own: &str,
) -> Result<(), Failure> {
    // Since it was found, another process may have gone on with it, and ended.
    let found = find(engine, file, &old.wanted, Some(own)).await?;
    if found.id != old.id {
        return Err(refuse_overtaken(old.id, found.id));
    }
    end(engine, old.id).await
}

/// What is said when the latest run is another one than it was.
pub(crate) fn refuse_overtaken(old: RunId, latest: RunId) -> Failure {
    let what = format!("cannot go on with run {old}: run {latest} was begun since; try again");
    Failure::Undone(what)
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
