//! Going on with an `each`: which of its inputs have succeeded already.
//!
//! The inputs are given again; what they were the store knows. A run that itself went on with another
//! counts together with that one.

use super::done::{Done, Gathering};
use super::given::{Given, bytes_to_json};
use super::head::LIST;
use crate::Failure;
use crate::file::quoted;
use crate::resume::{refuse_alive, refuse_overtaken};
use crate::run::unusable;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use tidegate::core::graph::TaskIndex;
use tidegate::core::store::RunKey;
use tidegate::engine::{Kind, RunSummary, RunsPage};
use tidegate::{Engine, RunId};

/// Runs are looked at so many at a time: there may be very many, and each has up to a thousand inputs.
const PAGE: u32 = 50;

/// A run that can be gone on with.
#[derive(Debug)]
pub(super) struct Old {
    pub(super) id: RunId,
    /// How it was named.
    wanted: String,
}

/// What a run is of.
pub(super) fn input(
    command: &[OsString],
    is_line: bool,
    folder: &Path,
    old: Option<RunId>,
) -> Value {
    let words: Vec<Value> = command.iter().map(|word| bytes_to_json(word.as_bytes())).collect();
    let each = json!({
        "command": words,
        "shell": is_line,
        "folder": bytes_to_json(folder.as_os_str().as_bytes()),
    });
    json!({ "each": each, "goes_on_with": old.map(|old| old.to_string()) })
}

/// The latest run of this name and input, or the one whose id begins like this. `own` is as for
/// [`refuse_alive`].
///
/// # Errors
/// There is none, more than one is meant, or a process works on it.
pub(super) async fn find(
    engine: &Engine,
    (name, input): (&str, &Value),
    wanted: &str,
    own: Option<&str>,
) -> Result<Old, Failure> {
    let wanted = wanted.to_lowercase();
    let mut found: Vec<RunSummary> = Vec::new();
    let (mut before, workflow) = (None, wanted.is_empty().then(|| name.to_owned()));
    // One is enough where none is named; two are too many where one is.
    while found.len() < if wanted.is_empty() { 1 } else { 2 } {
        let page =
            RunsPage { workflow: workflow.clone(), before, limit: PAGE, ..RunsPage::default() };
        let runs = engine.runs(page).await.map_err(unusable)?;
        let Some(last) = runs.last() else { break };
        before = Some(last.key);
        for run in runs {
            if run.parent.is_none() && run.id.to_string().starts_with(&wanted) {
                let its = read(engine, run.key).await?;
                let is_same = its["each"] == input["each"];
                if is_same || !wanted.is_empty() && its["each"].is_object() {
                    found.push(run);
                }
            }
        }
    }
    let mut found = found.into_iter();
    let Some(run) = found.next() else {
        let which = if wanted.is_empty() { "of this command".into() } else { quoted(&wanted) };
        let what = format!("there is no run {which} to go on with; leave --resume out");
        return Err(Failure::Undone(what));
    };
    if let Some(other) = found.next().filter(|_| !wanted.is_empty()) {
        let what = format!("--resume={wanted} may be run {} or run {}", run.id, other.id);
        return Err(Failure::Wrong(what));
    }
    refuse_alive(engine, &run, "", own).await?;
    Ok(Old { id: run.id, wanted })
}

/// Takes the place of the process that had the old run, and says what has succeeded. `own` is the
/// queue of the run that goes on.
///
/// # Errors
/// Another process was faster, or the store cannot be used.
pub(super) async fn take_place(
    engine: &Engine,
    (name, input): (&str, &Value),
    old: &Old,
    own: &str,
) -> Result<Done, Failure> {
    // Since it was found, another process may have gone on with it, and ended.
    let found = find(engine, (name, input), &old.wanted, Some(own)).await?;
    if found.id != old.id {
        return Err(refuse_overtaken(old.id, found.id));
    }
    crate::resume::end(engine, old.id).await?;
    succeeded(engine, old.id).await
}

async fn read(engine: &Engine, run: RunKey) -> Result<Value, Failure> {
    let bytes = engine.store().input(run).await.map_err(unusable)?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
}

/// What has succeeded in this run and in those it went on with.
///
/// # Errors
/// The store cannot be read.
async fn succeeded(engine: &Engine, run: RunId) -> Result<Done, Failure> {
    let mut gathering = Gathering::new();
    let mut next = Some(run);
    while let Some(id) = next {
        // One that is gone was pruned, and has nothing to tell.
        let Some(view) = engine.store().run(id).await.map_err(unusable)? else { break };
        gather(engine, &view.run.queue, &mut gathering).await?;
        let input = read(engine, view.run.key).await?;
        next = input["goes_on_with"].as_str().and_then(|id| id.parse().ok());
    }
    Ok(gathering.done())
}

/// The same of all runs of one queue, which are those of one `each`.
async fn gather(engine: &Engine, queue: &str, into: &mut Gathering) -> Result<(), Failure> {
    let mut before = None;
    loop {
        let queue = Some(queue.to_owned());
        let page = RunsPage { queue, before, limit: PAGE, ..RunsPage::default() };
        let runs = engine.runs(page).await.map_err(unusable)?;
        let Some(last) = runs.last() else { return Ok(()) };
        before = Some(last.key);
        for run in runs.iter().filter(|run| run.plan.items_of().is_some()) {
            let Some(parent) = run.parent else { continue };
            let list = read(engine, parent.run(TaskIndex::from_u32(0))).await?;
            let list = list[LIST].as_array().cloned().unwrap_or_default();
            let view = engine.store().run(run.id).await.map_err(unusable)?;
            let tasks = view.map(|view| view.tasks).unwrap_or_default();
            for (task, item) in tasks.iter().zip(&list) {
                if task.life.state.kind() == Kind::Succeeded
                    && let Some(given) = Given::from_json(item)
                {
                    given.inputs.iter().for_each(|input| into.add(input));
                }
            }
        }
    }
}
