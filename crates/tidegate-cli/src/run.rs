//! Running a command file: an engine of its own on the store, one run, and its end.

use crate::args;
use crate::choice::{self, Choice, Part, choose};
use crate::file::{File, ParallelLimit};
use crate::stopping::{Asked, Stopping};
use crate::store::{self, Place};
use crate::tell::{self, Fact, Lines, Teller, Totals, Who, WriteError, Writer};
use crate::view::View;
use crate::{Failure, health, plan, resume, summary, suspend};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate::engine::{Retried, Subscription};
use tidegate::error::StartError;
use tidegate::{Config, Engine, EngineBuilder, Retention, Run};

/// How a run came to its end here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed,
    Cancelled,
    /// By SIGINT.
    Interrupted,
    /// By SIGTERM or SIGHUP.
    Terminated,
}

impl End {
    /// Whether it came because the process was told to end.
    pub(crate) fn was_told(self) -> bool {
        matches!(self, End::Interrupted | End::Terminated)
    }

    /// As programs are told.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            End::Succeeded => "succeeded",
            End::Failed => "failed",
            End::Cancelled => "cancelled",
            End::Interrupted | End::Terminated => "interrupted",
        }
    }
}

/// Runs the file, or goes on with a run of it.
///
/// # Errors
/// It was not begun, or it cannot be told how it ended.
pub(crate) fn run(file: &File, args: &args::Run, cpus: u32) -> Result<End, Failure> {
    on_runtime(perform(file, args, cpus))
}

/// Does this to its end on a runtime of its own.
///
/// # Errors
/// Its own, or there is no runtime.
pub(crate) fn on_runtime(work: impl Future<Output = Result<End, Failure>>) -> Result<End, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Undone(error.to_string()))?;
    let done = runtime.block_on(work);
    // A thread that still looks at a file on a slow drive keeps nobody waiting.
    runtime.shutdown_background();
    done
}

async fn perform(file: &File, args: &args::Run, cpus: u32) -> Result<End, Failure> {
    let mut asked = Asked::listen().map_err(|error| Failure::Undone(error.to_string()))?;
    let place = store::place(args.usual.store.as_deref(), &file.folder)?;
    if args.resume.is_some() && place.is_memory() {
        let what = "--resume needs a store that outlives the process, and this is memory:";
        return Err(Failure::Wrong(what.to_owned()));
    }
    let (teller, writer) = tell::start(&args.usual, Lines::All).map_err(Failure::Wrong)?;
    place.prepare()?;
    let old = match &args.resume {
        None => None,
        Some(wanted) => {
            let find = async {
                let engine = Engine::builder(&place.address).connect().await;
                let engine = engine.map_err(not_started)?;
                let found = resume::find(&engine, file, wanted, None).await;
                engine.shutdown(Duration::ZERO).await;
                found
            };
            Some(asked.unless_told(find).await?)
        }
    };
    let (only, skip) = old.as_ref().map_or((&args.only, &args.skip), |old| (&old.only, &old.skip));
    let choice = choose(file, only, skip).map_err(|error| Failure::Wrong(error.to_string()))?;
    choice::named(file, "retry", &args.again).map_err(|error| Failure::Wrong(error.to_string()))?;
    let queue = store::new_queue();
    let logs = Logs::of(&place)?;
    let queues = resume::queues_to_serve(&queue, old.as_ref().map(|old| old.id));
    let starting = start(file, &choice, cpus, &place, queues, &logs, &teller);
    let engine = asked.unless_told(starting).await?;
    asked.guard_engine(&engine, &teller);
    health::tell_of_trouble(&engine, &teller);
    suspend::listen(&engine, &teller).map_err(|error| Failure::Undone(error.to_string()))?;
    tell_of_limits(file, &engine, &teller).await?;
    if let Some(old) = &old {
        let stopped = tokio::select! {
            taken = resume::take_place(&engine, file, old, &queue) => taken.err().map(Err),
            told = asked.next() => Some(Ok(told)),
        };
        if let Some(stopped) = stopped {
            engine.shutdown(Duration::ZERO).await;
            return stopped;
        }
    }
    let events = engine.subscribe();
    let mut done = HashSet::new();
    let run = match &old {
        None => {
            let submit = engine.submit(&file.name, resume::input(file, only, skip)).into_future();
            asked.unless_told(async { submit.await.map_err(unusable) }).await?
        }
        Some(old) => {
            let retry = engine.retry(old.id).queue(queue.as_str()).only(&args.again);
            let retry = async { retry.await.map_err(unusable) };
            match asked.unless_told(retry).await? {
                Retried::Begun { run, taken_over, changed, .. } => {
                    done.extend(taken_over.iter().filter_map(|name| file.graph.find(name)));
                    tell_of_retry(file, &teller, (&old.id, &run), &taken_over, &changed);
                    run
                }
                _ => {
                    let id = old.id;
                    teller.line(format!("nothing is left to do: all of run {id} has succeeded"));
                    let outcome = End::Succeeded.as_str();
                    teller.tell(Fact::Finished(Totals { outcome, ..Totals::default() }));
                    engine.shutdown(Duration::ZERO).await;
                    return say_all(writer, &mut asked, End::Succeeded).await;
                }
            }
        }
    };
    let is_retry = old.is_some();
    let is_left = |&task: &_| choice.of(task) == Part::Runs && !done.contains(&task);
    let tasks = file.graph.tasks().filter(is_left).count() as u64;
    let (id, slots) = (run.id().to_string(), file.parallel_limit.value.most(cpus));
    teller.tell(Fact::Run { id, name: file.name.clone(), tasks, slots });
    let of = (engine.clone(), run.id());
    let view = View::new(file, &choice, of, (&queue, is_retry), teller.clone());
    let (end, mut view) = watch(&engine, &run, events, view, (&teller, &mut asked)).await?;
    let again = (!place.is_memory()).then(|| again(file, args));
    let of = (&engine, &run, queue.as_str());
    let concluded = match view.finish().await.map_err(unusable) {
        Ok(()) => tell_summary((file, &choice), of, &teller, end, again.as_deref()).await,
        failed => failed,
    };
    match concluded {
        // That the process was told to end says more than that the store cannot be read.
        Err(failure) if end.was_told() => teller.line(failure.to_string().trim_end()),
        concluded => concluded?,
    }
    say_all(writer, &mut asked, end).await
}

/// Tells how all tasks of the run have ended.
///
/// # Errors
/// The store cannot be read.
async fn tell_summary(
    (file, choice): (&File, &Choice),
    (engine, run, queue): (&Engine, &Run, &str),
    teller: &Teller,
    end: End,
    again: Option<&str>,
) -> Result<(), Failure> {
    let summary = summary::look(file, choice, engine, run, queue).await.map_err(unusable)?;
    summary.open().iter().for_each(|name| teller.tell(Fact::Unfinished(Who::task(name))));
    if teller.is_json() {
        let totals = summary::totals(file, choice, engine, run, queue).await.map_err(unusable)?;
        teller.tell(Fact::Finished(Totals { outcome: end.as_str(), ..totals }));
    } else {
        let lines = summary.lines(teller.elapsed(), again);
        lines.into_iter().for_each(|line| teller.line(line));
    }
    Ok(())
}

/// Waits until all that was told is written, or until told not to.
pub(crate) async fn say_all(writer: Writer, asked: &mut Asked, end: End) -> Result<End, Failure> {
    tokio::select! {
        // Told already, the writer has to be left to its thread all the same: whoever drops it waits.
        biased;
        written = writer.finish() => written.map(|()| end).map_err(unwritable),
        told = asked.next() => Ok(told),
    }
}

async fn start(
    file: &File,
    choice: &Choice,
    cpus: u32,
    place: &Place,
    queues: Vec<String>,
    logs: &Logs,
    teller: &Teller,
) -> Result<Engine, Failure> {
    let shared = (!place.is_memory()).then_some(place.address.as_str());
    let workflow = plan::workflow(file, choice, shared);
    let workflow = workflow.map_err(|error| Failure::Wrong(error.to_string()))?;
    let builder = Engine::builder(&place.address).config(engine_config());
    let builder = builder.queues(queues).workflow(workflow);
    let builder = match file.parallel_limit.value {
        ParallelLimit::Between(min, max) => builder.slots_between(min, max),
        limit => builder.slots(limit.most(cpus)),
    };
    let retention = Retention { runs: Some(store::KEPT), ..Retention::default() };
    let builder = file.limits.iter().cloned().fold(builder, EngineBuilder::limit);
    let builder = match &logs.0 {
        Some(folder) => builder.logs(folder),
        None => builder,
    };
    let builder = builder.retention(retention).log_overflow(Arc::new(teller.clone()));
    builder.start().await.map_err(not_started)
}

/// How an engine is set whatever it runs.
pub(crate) fn engine_config() -> Config {
    let mut config = Config::default();
    // What commands write is shown from their logs, all of it.
    config.log_max = u64::MAX;
    config
}

/// Where logs go that are of no use after the run, if the store keeps none.
pub(crate) struct Logs(pub(crate) Option<PathBuf>);

impl Logs {
    pub(crate) fn of(place: &Place) -> Result<Self, Failure> {
        use std::os::unix::fs::DirBuilderExt as _;
        if !place.is_memory() {
            return Ok(Logs(None));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("tidegate-{}-{}", std::process::id(), now.as_nanos());
        let folder = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        let failed = |error| Failure::Undone(format!("cannot make {}: {error}", folder.display()));
        made.map_err(failed)?;
        Ok(Logs(Some(folder)))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // What stays is in a folder for what may be removed.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// A limit is what the store says, whatever the file does.
async fn tell_of_limits(file: &File, engine: &Engine, teller: &Teller) -> Result<(), Failure> {
    if file.limits.is_empty() {
        return Ok(());
    }
    let there = engine.limits().await.map_err(unusable)?;
    for limit in &file.limits {
        let other = there.iter().find(|state| state.limit.name() == limit.name());
        if let Some(other) = other.filter(|other| other.limit != *limit) {
            let (name, other) = (limit.name(), &other.limit);
            let what =
                format!("limit {name} is {other} in the store and stays so; the file says {limit}");
            teller.line(what);
        }
    }
    Ok(())
}

/// Tells what a run that goes on takes over, and what it does again. Parts of tasks are not spoken of.
fn tell_of_retry(
    file: &File,
    teller: &Teller,
    (old, run): (&tidegate::RunId, &Run),
    taken_over: &[String],
    changed: &[String],
) {
    let of_file = |names: &[String]| -> Vec<String> {
        let names = names.iter().filter(|name| file.graph.find(name).is_some());
        names.map(|name| crate::waves::plain(name)).collect()
    };
    teller.line(format!("run {} goes on with run {old}", run.id()));
    let lists =
        [("not run again", of_file(taken_over)), ("changed, and run again", of_file(changed))];
    for (what, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        teller.line(format!("{what}: {}", names.join(", ")));
    }
}

/// Hears what happens until the run or the engine has ended and all was heard.
async fn watch<'f>(
    engine: &Engine,
    run: &Run,
    mut events: Subscription,
    mut view: View<'f>,
    (teller, asked): (&Teller, &mut Asked),
) -> Result<(End, View<'f>), Failure> {
    let mut stopping = Stopping::new(engine, teller);
    let mut ended = Box::pin(run.wait());
    let mut outcome = None;
    loop {
        tokio::select! {
            biased;
            told = asked.next() => stopping.told(told),
            event = events.next() => match event {
                Ok(Some(event)) => view.hear(&event).await,
                Ok(None) => break,
                Err(missed) => view.miss(missed),
            },
            status = &mut ended, if outcome.is_none() => {
                outcome = Some(status.ok().and_then(|status| status.outcome()));
                // The events before the end are heard while it stops.
                stopping.done();
            }
        }
    }
    stopping.stopped().await;
    let end = stopping.end(run, outcome.flatten()).await?;
    Ok((end, view))
}

/// How to go on, as it can be typed.
fn again(file: &File, args: &args::Run) -> String {
    let word = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:=@%".contains(&byte);
        match !text.is_empty() && text.bytes().all(is_plain) {
            true => text.to_owned(),
            false => plan::quoted(text),
        }
    };
    let path = |path: &Path| word(&path.to_string_lossy());
    let store = args.usual.store.as_deref().map(|store| format!(" --store {}", word(store)));
    format!("tidegate run {}{} --resume", path(&file.path), store.unwrap_or_default())
}

pub(crate) fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Open(_) | StartError::Store(_) => Failure::Store(error.to_string()),
        _ => Failure::Wrong(error.to_string()),
    }
}

pub(crate) fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::Store(error.to_string())
}

pub(crate) fn unwritable(error: WriteError) -> Failure {
    Failure::Undone(match error {
        WriteError::Stdout(error) => format!("cannot write to stdout: {error}"),
        WriteError::Junit(error) => format!("cannot write what --junit names: {error}"),
        WriteError::Panicked => "what there was to say could not be said".to_owned(),
    })
}
