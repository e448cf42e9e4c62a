//! What is said at the end of a run: what failed, why, what it wrote last, and how to go on.

use crate::choice::{Choice, Part};
use crate::file::{File, Task};
use crate::plan::{ITEMS, WAIT};
use crate::tell::{Totals, written_short};
use crate::view::cause;
use crate::waves::{command_text, count, plain};
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate::engine::{Kind, RunsPage, TaskState};
use tidegate::{Engine, Run, RunStatus};

/// So many lines of what a command wrote are shown.
const LINES_MAX: usize = 10;

/// They are looked for in so many bytes at the end of its log.
const TAIL: u64 = 8 << 10;

/// So many items that failed are shown.
const ITEMS_MAX: usize = 10;

/// How the tasks of the file have ended.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    total: usize,
    succeeded: usize,
    failed: Vec<Failed>,
    skipped: Vec<String>,
    cancelled: Vec<String>,
    /// Have not ended.
    open: Vec<String>,
}

/// A command that has failed, or was not come to.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) name: String,
    pub(crate) why: String,
    pub(crate) command: String,
    pub(crate) log: Option<PathBuf>,
}

/// Looks at how the run stands in the store.
pub(crate) async fn look(
    file: &File,
    choice: &Choice,
    engine: &Engine,
    run: &Run,
    queue: &str,
) -> Result<Summary, tidegate::engine::RunError> {
    let status = run.status().await?;
    let mut summary = Summary::default();
    for (index, task) in file.graph.tasks().zip(&file.tasks) {
        if choice.of(index) != Part::Runs {
            continue;
        }
        summary.total += 1;
        let parts = [task.name.clone() + WAIT, task.name.clone() + ITEMS, task.name.clone()];
        let parts: Vec<_> = parts.iter().filter_map(|name| status.task(name)).collect();
        let Some(last) = parts.last() else { continue };
        let failed = parts.iter().find(|part| is_failure(part));
        let name = || plain(&task.name);
        match (failed, last.kind) {
            (Some(part), _) if part.name == task.name && task.each.is_some() => {
                summary.failed.extend(failed_items(engine, run, queue, task, part).await?);
            }
            (Some(part), _) => summary.failed.push(Failed::new(engine, &status, task, part)),
            (None, Kind::Succeeded) => summary.succeeded += 1,
            (None, Kind::Skipped) => summary.skipped.push(name()),
            (None, Kind::Cancelled) => summary.cancelled.push(name()),
            (None, _) => summary.open.push(task.name.clone()),
        }
    }
    Ok(summary)
}

/// How many commands have ended how, items one by one.
pub(crate) async fn totals(
    file: &File,
    choice: &Choice,
    engine: &Engine,
    run: &Run,
    queue: &str,
) -> Result<Totals, tidegate::engine::RunError> {
    let status = run.status().await?;
    let page = RunsPage { queue: Some(queue.to_owned()), limit: u32::MAX, ..RunsPage::default() };
    let runs = engine.runs(page).await?;
    let mut totals = Totals::default();
    for (index, task) in file.graph.tasks().zip(&file.tasks) {
        if choice.of(index) != Part::Runs {
            continue;
        }
        let items = runs.iter().find(|run| run.plan.items_of() == Some(&task.name));
        if let Some(items) = items {
            let items = engine.run(items.id).await?.status().await?;
            items.tasks.iter().for_each(|item| totals.count(item.kind));
            continue;
        }
        let parts = [task.name.clone() + WAIT, task.name.clone() + ITEMS, task.name.clone()];
        let parts = parts.iter().filter_map(|name| status.task(name));
        let kinds: Vec<_> = parts.map(|part| part.kind).collect();
        let failed = kinds.iter().find(|kind| matches!(kind, Kind::Failed | Kind::TimedOut));
        failed.or(kinds.last()).into_iter().for_each(|&kind| totals.count(kind));
    }
    Ok(totals)
}

impl Totals {
    fn count(&mut self, kind: Kind) {
        self.total += 1;
        *match kind {
            Kind::Succeeded => &mut self.succeeded,
            Kind::Failed | Kind::TimedOut => &mut self.failed,
            Kind::Cancelled => &mut self.cancelled,
            Kind::Skipped => &mut self.skipped,
            _ => &mut self.unfinished,
        } += 1;
    }
}

fn is_failure(task: &TaskState) -> bool {
    matches!(task.kind, Kind::Failed | Kind::TimedOut)
}

/// The items of a task that have failed, or the task if there are none.
async fn failed_items(
    engine: &Engine,
    run: &Run,
    queue: &str,
    task: &Task,
    part: &TaskState,
) -> Result<Vec<Failed>, tidegate::engine::RunError> {
    let items: Vec<String> = run.output(&(task.name.clone() + ITEMS)).await.unwrap_or_default();
    let page = RunsPage { queue: Some(queue.to_owned()), limit: u32::MAX, ..RunsPage::default() };
    let runs = engine.runs(page).await?;
    let of_items = runs.iter().find(|run| run.plan.items_of() == Some(&task.name));
    let mut failed = Vec::new();
    if let Some(of_items) = of_items {
        let status = engine.run(of_items.id).await?.status().await?;
        let all = status.tasks.iter().zip(items.iter().map(Some).chain(std::iter::repeat(None)));
        for (item, input) in all.filter(|(item, _)| is_failure(item)) {
            let mut one = Failed::new(engine, &status, task, item);
            one.command.extend(input.map(|input| format!(", for {}", plain(input))));
            failed.push(one);
        }
    }
    if failed.is_empty() {
        let (name, why) = (plain(&task.name), why(part));
        failed.push(Failed { name, why, command: command_text(&task.run), log: None });
    }
    Ok(failed)
}

fn why(task: &TaskState) -> String {
    let reason = task.reason.map_or("failed", |reason| reason.as_str());
    task.error.as_deref().map_or(reason.to_owned(), cause)
}

impl Failed {
    fn new(engine: &Engine, status: &RunStatus, task: &Task, part: &TaskState) -> Self {
        let name = part.name.strip_suffix(WAIT).or(part.name.strip_suffix(ITEMS));
        let name = plain(name.unwrap_or(&part.name));
        let log = engine.log(status.id, &part.name, part.attempt);
        Failed { name, why: why(part), command: command_text(&task.run), log }
    }

    /// In lines. The log is named if it stays.
    pub(crate) fn lines(&self, logs_stay: bool) -> Vec<String> {
        let mut lines = vec![
            format!("failed: {}: {}", self.name, self.why),
            format!("  command: {}", self.command),
        ];
        // Who writes nothing has none.
        let Some(log) = self.log.as_ref().filter(|log| log.exists()) else { return lines };
        if logs_stay {
            lines.push(format!("  log: {}", log.display()));
        }
        let tail = last_lines(log).unwrap_or_default();
        if !tail.is_empty() {
            lines.push("  it last wrote:".to_owned());
            lines.extend(tail.iter().map(|line| format!("    {line}")));
        }
        lines
    }
}

/// The last lines of a file that are not empty.
pub(crate) fn last_lines(path: &Path) -> io::Result<Vec<String>> {
    let mut file = fs::File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    Ok(lines.iter().skip(lines.len().saturating_sub(LINES_MAX)).map(|line| plain(line)).collect())
}

impl Summary {
    /// The tasks that have not ended.
    pub(crate) fn open(&self) -> &[String] {
        &self.open
    }

    /// In lines: failures first, how to go on last. `again` is the command for that, if there is one.
    pub(crate) fn lines(&self, took: Duration, again: Option<&str>) -> Vec<String> {
        let mut lines = Vec::new();
        for failed in self.failed.iter().take(ITEMS_MAX) {
            lines.extend(failed.lines(again.is_some()));
        }
        if self.failed.len() > ITEMS_MAX {
            lines.push(format!("failed: {} more", self.failed.len() - ITEMS_MAX));
        }
        let open = self.open.iter().map(|name| plain(name)).collect();
        let lists =
            [("skipped", &self.skipped), ("cancelled", &self.cancelled), ("not finished", &open)];
        for (what, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
            lines.push(format!("{what}: {}", names.join(", ")));
        }
        let (succeeded, total) = (self.succeeded, count(self.total, "task"));
        lines.push(format!("{succeeded} of {total} succeeded in {}", written_short(took)));
        if let Some(again) = again.filter(|_| self.succeeded < self.total) {
            lines.push(format!("go on with: {again}"));
        }
        lines
    }
}
