//! Which run or task is meant.
//!
//! A run is named by its number, its id or the beginning of that, or the name of its workflow, which
//! means the latest such run; where nothing is said it is the latest of all. Runs that tasks have begun
//! are meant only by number or id. A task is one of the latest run, or `RUN/TASK`.

use super::unusable;
use super::whole::{Parts, Whole};
use crate::Failure;
use crate::file::quoted;
use crate::waves::plain;
use tidegate::core::graph::{TaskIndex, nearest};
use tidegate::core::store::RunView;
use tidegate::engine::{RunKey, RunSummary, RunsPage};
use tidegate::{Engine, RunId};

/// So many runs are named where one cannot be told from others, or is not there.
const NAMED_MAX: u32 = 3;

/// In so many of the latest runs a similar name is looked for.
const NEAR_MAX: u32 = 100;

/// What is meant.
pub(super) enum Target {
    Run(Whole),
    Task(Whole, Parts),
    /// One of the items of a task, with the run of the items.
    Item(Whole, RunView, TaskIndex),
}

/// As a run is spoken of.
pub(crate) fn called(run: &RunSummary) -> String {
    format!("run {} ({})", run.key.0, plain(run.plan.workflow()))
}

/// The run that is meant.
///
/// # Errors
/// There is none, or more than one may be meant.
pub(crate) async fn run(engine: &Engine, wanted: Option<&str>) -> Result<RunSummary, Failure> {
    let Some(wanted) = wanted else { return latest(engine).await };
    if let Some(run) = find(engine, wanted).await? {
        return Ok(run);
    }
    match Box::pin(target(engine, Some(wanted))).await {
        Ok(Target::Task(whole, _) | Target::Item(whole, ..)) => {
            let (task, run) = (quoted(wanted), called(&whole.view.run));
            Err(Failure::Undone(format!("{task} is a task of {run}; name a run")))
        }
        _ => Err(unknown(engine, &format!("run {}", quoted(wanted)), wanted, None).await?),
    }
}

/// The run or the task that is meant.
///
/// # Errors
/// There is none, or more than one may be meant.
pub(super) async fn target(engine: &Engine, wanted: Option<&str>) -> Result<Target, Failure> {
    let Some(wanted) = wanted else {
        let latest = latest(engine).await?;
        return Whole::read(engine, latest.id).await.map(Target::Run);
    };
    let newest = RunsPage { top: true, limit: 1, ..RunsPage::default() };
    let mut latest = None;
    if let Some(newest) = page(engine, newest).await?.first() {
        let newest = Whole::read(engine, newest.id).await?;
        match task(engine, newest, wanted).await? {
            Ok(found) => return Ok(found),
            Err(newest) => latest = Some(newest),
        }
    }
    if let Some(run) = find(engine, wanted).await? {
        return Whole::read(engine, run.id).await.map(Target::Run);
    }
    if let Some((of, name)) = wanted.split_once('/') {
        let found = Whole::read(engine, run(engine, Some(of)).await?.id).await?;
        if name.is_empty() {
            return Ok(Target::Run(found));
        }
        return task(engine, found, name).await?.map_err(|found| no_task(&found, name));
    }
    Err(unknown(engine, &format!("task or run {}", quoted(wanted)), wanted, latest.as_ref())
        .await?)
}

/// The task of this name, or the run back if it has none.
async fn task(engine: &Engine, whole: Whole, name: &str) -> Result<Result<Target, Whole>, Failure> {
    if let Some(parts) = whole.tasks.iter().find(|parts| parts.name == name) {
        let parts = parts.clone();
        return Ok(Ok(Target::Task(whole, parts)));
    }
    let of_items = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
    let of_items =
        of_items.and_then(|(base, _)| whole.tasks.iter().find(|parts| parts.name == base));
    if let Some(parts) = of_items
        && let Some(items) = whole.items(engine, parts).await?
        && let Some(item) = items.run.plan.graph().find(name)
    {
        return Ok(Ok(Target::Item(whole, items, item)));
    }
    Ok(Err(whole))
}

fn no_task(run: &Whole, name: &str) -> Failure {
    let names = run.tasks.iter().map(|parts| parts.name.as_str());
    let meant = match nearest(name, names.clone()) {
        Some(near) => format!("is {} meant?", quoted(near)),
        None => format!("there are {}", self::names(names)),
    };
    let run = called(&run.view.run);
    Failure::Undone(format!("{run} has no task {}; {meant}", quoted(name)))
}

/// Names behind each other, and how many more there are.
pub(super) fn names<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    const SHOWN: usize = 10;
    let more = names.len().saturating_sub(SHOWN);
    let mut text = names.take(SHOWN).map(plain).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

async fn latest(engine: &Engine) -> Result<RunSummary, Failure> {
    let page = page(engine, RunsPage { top: true, limit: 1, ..RunsPage::default() }).await?;
    let none = || Failure::Undone("there is no run in this store yet".to_owned());
    page.into_iter().next().ok_or_else(none)
}

async fn page(engine: &Engine, page: RunsPage) -> Result<Vec<RunSummary>, Failure> {
    engine.runs(page).await.map_err(unusable)
}

/// The run that is called so, if there is one.
async fn find(engine: &Engine, wanted: &str) -> Result<Option<RunSummary>, Failure> {
    if let Some(run) = numbered(engine, wanted).await? {
        return Ok(Some(run));
    }
    let workflow = Some(wanted.to_owned());
    let named = RunsPage { workflow, top: true, limit: 1, ..RunsPage::default() };
    if let Some(run) = page(engine, named).await?.into_iter().next() {
        return Ok(Some(run));
    }
    let Some(ids) = RunId::beginning_with(wanted) else { return Ok(None) };
    let ids = RunsPage { ids: Some(ids), limit: NAMED_MAX + 1, ..RunsPage::default() };
    // Runs that a task has begun may have ids that begin as its run's does.
    for top in [true, false] {
        let found = page(engine, RunsPage { top, ..ids.clone() }).await?;
        match &found[..] {
            [] => {}
            [one] => return Ok(Some(one.clone())),
            several => return Err(ambiguous(wanted, several)),
        }
    }
    Ok(None)
}

async fn numbered(engine: &Engine, wanted: &str) -> Result<Option<RunSummary>, Failure> {
    // With a zero in front it is the beginning of an id.
    let is_number = |number: &i64| (0..i64::MAX).contains(number) && number.to_string() == wanted;
    let Some(number) = wanted.parse().ok().filter(is_number) else { return Ok(None) };
    let before = Some(RunKey(number + 1));
    let run = page(engine, RunsPage { before, limit: 1, ..RunsPage::default() }).await?;
    Ok(run.into_iter().next().filter(|run| run.key.0 == number))
}

fn ambiguous(wanted: &str, runs: &[RunSummary]) -> Failure {
    let named = runs.iter().take(NAMED_MAX as usize);
    let named = named.map(|run| format!("{}, {}", run.id, called(run)));
    let more = if runs.len() > NAMED_MAX as usize { ", or others" } else { "" };
    let named = named.collect::<Vec<_>>().join("; or ");
    Failure::Wrong(format!("{} may be {named}{more}; say more of it", quoted(wanted)))
}

/// That something is not there, and what is.
async fn unknown(
    engine: &Engine,
    what: &str,
    wanted: &str,
    latest: Option<&Whole>,
) -> Result<Failure, Failure> {
    let runs = page(engine, RunsPage { top: true, limit: NEAR_MAX, ..RunsPage::default() }).await?;
    let tasks = latest.into_iter().flat_map(|run| &run.tasks).map(|task| task.name.as_str());
    let names = runs.iter().map(|run| run.plan.workflow());
    let there = match nearest(wanted, tasks.chain(names)) {
        Some(near) => format!("is {} meant?", quoted(near)),
        None if runs.is_empty() => "there is no run in this store yet".to_owned(),
        None => {
            let latest = runs.iter().take(NAMED_MAX as usize).map(called);
            format!("the latest: {}", latest.collect::<Vec<_>>().join(", "))
        }
    };
    Ok(Failure::Undone(format!("there is no {what}; {there}")))
}
