//! What commands have written, byte for byte.
//!
//! A log is a file of its own for each attempt. To follow is to read on where it was left, again and
//! again, until what writes it is over.

use super::target::{self, Target, called};
use super::whole::Whole;
use super::{Look, args, at};
use crate::file::quoted;
use crate::run::End;
use crate::stopping::Asked;
use crate::waves::plain;
use crate::{Failure, tell};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use tidegate::RunId;
use tidegate::core::graph::TaskIndex;
use tidegate::core::store::RunView;

/// How often it is looked whether there is more.
const EVERY: Duration = Duration::from_millis(100);

/// Whose logs are wanted.
struct Wanted {
    run: RunId,
    /// One task, or all of the run.
    task: Option<String>,
    /// One of its items, or all.
    item: Option<String>,
}

/// Something that writes logs.
struct Source {
    run: RunId,
    name: String,
    attempt: u32,
    has_begun: bool,
    is_over: bool,
}

/// What was shown so far.
#[derive(Default)]
struct Shown {
    /// Up to where, of each run, task and attempt.
    upto: HashMap<(RunId, String, u32), u64>,
    last: Option<(RunId, String, u32)>,
}

pub(crate) fn logs(args: &args::Logs) -> Result<End, Failure> {
    at(&args.store, async |look| {
        let target = target::target(&look.engine, args.task.as_deref()).await?;
        let (wanted, spoken) = wanted(&target);
        match args.follow {
            false => once(look, args, &wanted, &spoken).await,
            true => follow(look, args, &wanted).await,
        }
    })
}

fn wanted(target: &Target) -> (Wanted, String) {
    match target {
        Target::Run(whole) => {
            let run = whole.view.run.id;
            (Wanted { run, task: None, item: None }, called(&whole.view.run))
        }
        Target::Task(whole, parts) => {
            let (run, task) = (whole.view.run.id, Some(parts.name.clone()));
            let spoken = format!("task {} of {}", quoted(&parts.name), called(&whole.view.run));
            (Wanted { run, task, item: None }, spoken)
        }
        Target::Item(whole, items, item) => {
            let name = items.run.plan.graph().name(*item);
            let task = items.run.plan.items_of().map(str::to_owned);
            let spoken = format!("{} of {}", quoted(name), called(&whole.view.run));
            (Wanted { run: whole.view.run.id, task, item: Some(name.to_owned()) }, spoken)
        }
    }
}

/// Shows what there is.
async fn once(
    look: &Look,
    args: &args::Logs,
    wanted: &Wanted,
    spoken: &str,
) -> Result<End, Failure> {
    let (sources, _) = sources(look, wanted).await?;
    let mut shown = Shown::default();
    let mut found = 0;
    for source in &sources {
        let log = match args.attempt {
            Some(attempt) => at_attempt(look, source, attempt),
            None => super::show::last_log(look, source.run, &source.name, source.attempt),
        };
        let Some((attempt, path)) = log else { continue };
        found += 1;
        if sources.len() > 1 {
            head(source, attempt);
        }
        if !shown.copy(source, attempt, &path)? {
            return Ok(End::Succeeded);
        }
    }
    if found > 0 {
        return Ok(End::Succeeded);
    }
    let attempt = args.attempt.unwrap_or(1);
    // Whoever writes nothing has no log.
    if sources.iter().any(|source| source.has_begun && source.attempt >= attempt) {
        tell(&format!("{spoken} has written nothing, or nothing of that is kept"));
        return Ok(End::Succeeded);
    }
    let why = match sources.iter().filter(|source| source.has_begun).max_by_key(|one| one.attempt) {
        Some(source) => format!("it is at attempt {}", source.attempt),
        None => "it has not begun".to_owned(),
    };
    let of = args.attempt.map_or_else(String::new, |attempt| format!(" of attempt {attempt}"));
    Err(Failure::Undone(format!("there is no log{of} of {spoken}: {why}")))
}

fn at_attempt(look: &Look, source: &Source, attempt: u32) -> Option<(u32, PathBuf)> {
    let path = look.engine.log(source.run, &source.name, attempt)?;
    path.exists().then_some((attempt, path))
}

/// Shows what there is and what comes, until all is over.
async fn follow(look: &Look, args: &args::Logs, wanted: &Wanted) -> Result<End, Failure> {
    let mut asked = Asked::listen().map_err(|error| Failure::Undone(error.to_string()))?;
    let mut shown = Shown::default();
    let mut first: HashMap<(RunId, String), u32> = HashMap::new();
    loop {
        // Whether all is over is asked before it is read: what was written until then is shown.
        let (sources, is_over) = sources(look, wanted).await?;
        for source in &sources {
            let from = *first.entry((source.run, source.name.clone())).or_insert(source.attempt);
            let attempts = args.attempt.map_or(from..=source.attempt, |attempt| attempt..=attempt);
            for attempt in attempts {
                let Some((_, path)) = at_attempt(look, source, attempt) else { continue };
                if sources.len() > 1 && shown.is_news(source, attempt, &path) {
                    head(source, attempt);
                }
                if !shown.copy(source, attempt, &path)? {
                    return Ok(End::Succeeded);
                }
            }
        }
        if is_over {
            return Ok(End::Succeeded);
        }
        tokio::select! {
            told = asked.next() => return Ok(told),
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

fn head(source: &Source, attempt: u32) {
    let name = plain(&source.name);
    match attempt {
        1 => tell(&format!("==> {name} <==")),
        again => tell(&format!("==> {name} (attempt {again}) <==")),
    }
}

impl Shown {
    /// Whether another log than the last one has something to show.
    fn is_news(&self, source: &Source, attempt: u32, path: &std::path::Path) -> bool {
        let key = (source.run, source.name.clone(), attempt);
        let upto = self.upto.get(&key).copied().unwrap_or(0);
        let length = path.metadata().map_or(0, |file| file.len());
        self.last.as_ref() != Some(&key) && length > upto
    }

    /// Writes what was not shown so far; false if nobody reads any further.
    fn copy(
        &mut self,
        source: &Source,
        attempt: u32,
        path: &std::path::Path,
    ) -> Result<bool, Failure> {
        let key = (source.run, source.name.clone(), attempt);
        let upto = self.upto.entry(key.clone()).or_default();
        let unreadable =
            |error| Failure::Undone(format!("cannot read {}: {error}", path.display()));
        let mut log = match File::open(path) {
            // It was pruned meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            opened => opened.map_err(unreadable)?,
        };
        // A command that is begun again after a crash may begin its log anew.
        if log.metadata().map_err(unreadable)?.len() < *upto {
            *upto = 0;
        }
        log.seek(SeekFrom::Start(*upto)).map_err(unreadable)?;
        let mut out = io::stdout().lock();
        let copied = io::copy(&mut log, &mut out).and_then(|copied| {
            out.flush()?;
            Ok(copied)
        });
        match copied {
            Ok(0) => Ok(true),
            Ok(copied) => {
                *upto += copied;
                self.last = Some(key);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::Undone(format!("cannot write to stdout: {error}"))),
        }
    }
}

/// All that writes what is wanted, and whether that is over. Of a run as a whole, also what the runs
/// write that it has begun.
async fn sources(look: &Look, wanted: &Wanted) -> Result<(Vec<Source>, bool), Failure> {
    let (mut sources, is_over) = sources_of(look, wanted).await?;
    let mut runs = if wanted.task.is_none() { vec![wanted.run] } else { Vec::new() };
    while let Some(run) = runs.pop() {
        for child in Whole::read(&look.engine, run).await?.children(&look.engine).await? {
            let child = Wanted { run: child.id, task: None, item: None };
            let (more, _) = sources_of(look, &child).await?;
            sources.splice(0..0, more);
            runs.push(child.run);
        }
    }
    let all_over = sources.iter().all(|source| source.is_over);
    Ok((sources, is_over && all_over))
}

async fn sources_of(look: &Look, wanted: &Wanted) -> Result<(Vec<Source>, bool), Failure> {
    let whole = Whole::read(&look.engine, wanted.run).await?;
    let mut sources = Vec::new();
    for parts in &whole.tasks {
        if wanted.task.as_ref().is_some_and(|task| *task != parts.name) {
            continue;
        }
        if whole.plan().task(parts.main).each.is_none() {
            sources.push(source(&whole.view, parts.main));
        } else if let Some(items) = whole.items(&look.engine, parts).await? {
            let graph = items.run.plan.graph();
            let is_wanted = |item: &TaskIndex| {
                wanted.item.as_ref().is_none_or(|name| *name == graph.name(*item))
            };
            sources.extend(graph.tasks().filter(is_wanted).map(|item| source(&items, item)));
        }
    }
    let is_over = match &wanted.task {
        None => whole.view.run.ended.is_some(),
        Some(name) => {
            let parts = whole.tasks.iter().find(|parts| parts.name == *name);
            parts.is_none_or(|parts| whole.kind(parts.main).is_terminal())
        }
    };
    let all_over = sources.iter().all(|source| source.is_over);
    let is_over = is_over || wanted.item.is_some() && all_over;
    Ok((sources, is_over && all_over))
}

fn source(view: &RunView, index: TaskIndex) -> Source {
    let life = &view.tasks[index.as_usize()].life;
    Source {
        run: view.run.id,
        name: view.run.plan.graph().name(index).to_owned(),
        attempt: life.attempt,
        has_begun: life.entries > 0,
        is_over: life.state.kind().is_terminal(),
    }
}
