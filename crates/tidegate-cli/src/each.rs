//! `each`: one command over many inputs, read as they are needed, and durably.
//!
//! - `args`: what can be said; `words`: the command of an input; `inputs`: reads them; `wait_for`: what
//!   is waited for before all.
//! - `given`: the inputs of one command; `flow`: these on their way from the reader to their end; `head`:
//!   the runs they are begun in.
//! - `again`: going on; `done`: what need not be run again.
//!
//! An `each` is one run with a queue of its own. What is shown of a command, and when to stop, is heard
//! from the worker itself ([`tidegate::Task::on_entry`], [`tidegate::Task::on_stored_end`]): events may be
//! missed. Deliberately absent:
//! several lists of inputs at once, and input for the commands themselves.

mod again;
mod args;
mod done;
mod flow;
mod given;
mod head;
mod inputs;
mod wait_for;
mod words;

pub(crate) use args::Each;

use crate::Failure;
use crate::args::given;
use crate::file::{self, Awaited, Given, Mistakes, PARALLEL_LIMIT, ParallelLimit, WaitFor, quoted};
use crate::plan::Made;
use crate::run::{End, Logs, engine_config, not_started, on_runtime, say_all, unusable};
use crate::shell_line::LineError;
use crate::stopping::{Asked, Stopping};
use crate::store::{self, Place};
use crate::tell::{self, Fact, Lines, Teller, Totals, Usual, written_short};
use crate::waves::{awaited_text, count, plain};
use crate::{health, resume, suspend};
use flow::{Flow, Rules, Score};
use inputs::Source;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Engine, Retention, Run};
use words::{Template, typed};

/// A name is no longer than this.
const NAME_MAX: usize = 64;

/// So many commands are claimed ahead.
const AHEAD: u32 = 16;

/// How to go on is not told in more letters than this.
const AGAIN_MAX: usize = 500;

/// Runs the command over its inputs.
///
/// # Errors
/// It was not begun, or it cannot be told how it ended.
pub(crate) fn each(args: &Each) -> Result<End, Failure> {
    let (command, inputs) = args.split().map_err(Failure::Wrong)?;
    let given = given(args.parallel_limit, args.timeout).map_err(Failure::Wrong)?;
    let mut template = match args.shell {
        true => Template::of_line(&command[0]).map_err(|error| refuse_line(&command[0], &error))?,
        false => Template::of_words(command),
    };
    if let Some(program) = template.program()
        && let Some(path) = look_for(program)?
    {
        template.set_path(path);
    }
    let source = Source::open(inputs, args.arg_file.as_deref()).map_err(Failure::Wrong)?;
    let folder = std::env::current_dir();
    let folder =
        folder.map_err(|error| Failure::Undone(format!("the working directory: {error}")))?;
    let each = Whole { args, command, template, given, folder };
    on_runtime(each.perform(source))
}

/// Why a line is refused, with its place as in a command file.
fn refuse_line(line: &OsStr, error: &LineError) -> Failure {
    // Bytes that are no text take another number of bytes when they are shown.
    let shown = |upto: usize| String::from_utf8_lossy(&line.as_bytes()[..upto]).len();
    let at = match error {
        LineError::Placeholder(doubtful) => shown(doubtful.at.start)..shown(doubtful.at.end),
        LineError::NoPlace => shown(line.len())..shown(line.len()),
    };
    let text = line.to_string_lossy().into_owned();
    let source = file::Source { path: "--shell".into(), text, secret: false };
    Failure::File(Mistakes::one(source, at, error.to_string()))
}

/// Where the program is, if it was looked for. One that is not there is not looked for again for each
/// input, and neither is one that is.
fn look_for(program: &OsStr) -> Result<Option<PathBuf>, Failure> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        let what = match is_program(Path::new(program)) {
            true => return Ok(None),
            false if Path::new(program).exists() => "cannot be executed",
            false => "is not there",
        };
        return Err(Failure::Undone(format!("{} {what}", plain(&program.to_string_lossy()))));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).map(|folder| folder.join(program));
    if let Some(found) = places.into_iter().find(|path| is_program(path)) {
        return Ok(Some(found));
    }
    let (program, path) = (quoted(&program.to_string_lossy()), plain(&path.to_string_lossy()));
    Err(Failure::Undone(format!("there is no program {program} in PATH ({path})")))
}

/// All that was said.
struct Whole<'a> {
    args: &'a Each,
    command: &'a [OsString],
    template: Template,
    given: Given,
    folder: PathBuf,
}

impl Whole<'_> {
    async fn perform(&self, source: Source) -> Result<End, Failure> {
        let Usual { store, .. } = &self.args.usual;
        let mut asked = Asked::listen().map_err(|error| Failure::Undone(error.to_string()))?;
        let place = store::nearest(store.as_deref())?;
        if self.args.resume.is_some() && place.is_memory() {
            let what = "--resume needs a store that outlives the process, and this is memory:";
            return Err(Failure::Wrong(what.to_owned()));
        }
        let (teller, writer) =
            tell::start(&self.args.usual, Lines::Failures).map_err(Failure::Wrong)?;
        place.prepare()?;
        let name = self.name();
        let old = match &self.args.resume {
            None => None,
            Some(wanted) => Some(asked.unless_told(self.find(&place, &name, wanted)).await?),
        };
        let queue = store::new_queue();
        let logs = Logs::of(&place)?;
        let (template, slots) = (self.template.clone(), self.slots());
        let failures_max = (!self.args.keep_going)
            .then(|| self.args.max_fail.map_or(1, std::num::NonZeroU64::get));
        let rules = Rules { failures_max, retries: self.args.retries, slots };
        let flow = Arc::new(Flow::new(rules, name.clone(), template, teller.clone()));
        let queues = resume::queues_to_serve(&queue, old.as_ref().map(|old| old.id));
        let starting = self.start(&name, &place, queues, &logs, &flow);
        let engine = asked.unless_told(starting).await?;
        asked.guard_engine(&engine, &teller);
        health::tell_of_trouble(&engine, &teller);
        flow.set_engine(engine.clone());
        suspend::listen(&engine, &teller).map_err(|error| Failure::Undone(error.to_string()))?;
        let mut done = None;
        if let Some(old) = &old {
            let of = (name.as_str(), &self.input(None));
            let taken = tokio::select! {
                taken = again::take_place(&engine, of, old, &queue) => taken.map_err(Err),
                told = asked.next() => Err(Ok(told)),
            };
            done = match taken {
                Ok(taken) => Some(taken),
                Err(stopped) => {
                    engine.shutdown(Duration::ZERO).await;
                    return stopped;
                }
            };
        }
        let old_id = old.as_ref().map(|old| old.id);
        let submit = engine.submit(&name, self.input(old_id)).into_future();
        let run = asked.unless_told(async { submit.await.map_err(unusable) }).await?;
        self.tell_of_begin(&teller, &run, &name, old_id);
        let end = if self.args.null { 0 } else { b'\n' };
        let together = usize::try_from(self.args.max_args.get()).unwrap_or(usize::MAX);
        let together = together.min(self.template.inputs_max());
        inputs::read(source, inputs::Manner { end, together }, done, &flow);
        let ended = watch(&engine, &run, &teller, &mut asked).await?;
        teller.all_ended();
        let score = flow.score();
        if teller.is_json() {
            score.wrong.iter().for_each(|wrong| teller.line(wrong));
            teller.tell(Fact::Finished(totals(&score, ended)));
        } else {
            let again = (!place.is_memory()).then(|| again(self.args.resume.is_some()));
            let lines = self.lines(&score, ended, teller.elapsed(), again.as_deref());
            lines.into_iter().for_each(|line| teller.line(line));
        }
        say_all(writer, &mut asked, ended).await
    }

    async fn find(&self, place: &Place, name: &str, wanted: &str) -> Result<again::Old, Failure> {
        let engine = Engine::builder(&place.address).connect().await.map_err(not_started)?;
        let found = again::find(&engine, (name, &self.input(None)), wanted, None).await;
        engine.shutdown(Duration::ZERO).await;
        found
    }

    fn input(&self, old: Option<tidegate::RunId>) -> serde_json::Value {
        again::input(self.command, self.args.shell, &self.folder, old)
    }

    /// What the run is called: the program, or the first word of the line.
    fn name(&self) -> String {
        let first = self.command[0].to_string_lossy();
        let first = if self.args.shell { first.split_whitespace().next() } else { Some(&*first) };
        let first = first.and_then(|first| first.rsplit('/').next()).unwrap_or_default();
        let name: String =
            first.chars().filter(|letter| !letter.is_control()).take(NAME_MAX).collect();
        if name.is_empty() { "each".to_owned() } else { name }
    }

    fn slots(&self) -> u32 {
        let limit = self.given.parallel_limit.map(|limit| limit.value);
        limit.unwrap_or(ParallelLimit::Exactly(PARALLEL_LIMIT)).most(self.given.cpus)
    }

    async fn start(
        &self,
        name: &str,
        place: &Place,
        queues: Vec<String>,
        logs: &Logs,
        flow: &Arc<Flow>,
    ) -> Result<Engine, Failure> {
        let shared = (!place.is_memory()).then_some(place.address.as_str());
        let manner = head::Manner {
            retries: self.args.retries,
            timeout: self.given.task_timeout.map(|timeout| timeout.value),
            wait_for: self.args.wait_for.iter().map(|wait| self.placed(wait)).collect(),
            made: Made::alone(self.folder.clone(), shared),
        };
        let workflows = head::workflows(name, &manner, &self.folder, flow);
        let [head, commands] = workflows.map_err(|error| Failure::Wrong(error.to_string()))?;
        let mut config = engine_config();
        // Nobody else serves the queue, and commands may be shorter than a request to the store.
        config.ahead_min = AHEAD;
        let retention = Retention { runs: Some(store::KEPT), ..Retention::default() };
        let builder = Engine::builder(&place.address).config(config).slots(self.slots());
        let builder = builder.queues(queues).workflow(head).workflow(commands);
        let builder = match &logs.0 {
            Some(folder) => builder.logs(folder),
            None => builder,
        };
        let builder = builder.retention(retention).log_overflow(Arc::new(flow.teller().clone()));
        builder.start().await.map_err(not_started)
    }

    /// A path leads to the same file from wherever it is looked for.
    fn placed(&self, wait: &WaitFor) -> WaitFor {
        let mut wait = wait.clone();
        if let Awaited::File { path, .. } = &mut wait.what {
            *path = self.folder.join(&*path);
        }
        wait
    }

    fn tell_of_begin(&self, teller: &Teller, run: &Run, name: &str, old: Option<tidegate::RunId>) {
        let id = run.id().to_string();
        if let Some(old) = old {
            teller.line(format!("run {id} goes on with run {old}"));
        }
        teller.tell(Fact::Run { id, name: name.to_owned(), tasks: 0, slots: self.slots() });
        if !self.args.wait_for.is_empty() {
            let waits = self
                .args
                .wait_for
                .iter()
                .map(|wait| awaited_text(&self.folder, &self.placed(wait)));
            let what = waits.collect::<Vec<_>>().join(" and ");
            teller.line(format!("{}: waits for {what}", plain(name)));
        }
    }

    /// What is said at the end: failures first, how to go on last.
    fn lines(&self, score: &Score, end: End, took: Duration, again: Option<&str>) -> Vec<String> {
        let mut lines = Vec::new();
        for failed in &score.failures {
            lines.extend(failed.lines(again.is_some()));
        }
        let shown = score.failures.len() as u64;
        if score.failed > shown {
            lines.push(format!("failed: {} more", score.failed - shown));
        }
        if let Some(wrong) = &score.wrong {
            lines.push(format!("tidegate: {wrong}"));
        }
        let what = if self.args.max_args.get() == 1 { "input" } else { "command" };
        let count =
            |number: u64, what: &str| count(usize::try_from(number).unwrap_or(usize::MAX), what);
        let left = score.read - score.succeeded - score.failed;
        if left > 0 {
            let how = match end {
                End::Interrupted | End::Terminated => "not finished",
                _ => "cancelled",
            };
            lines.push(format!("{how}: {}", count(left, what)));
        }
        if score.before > 0 {
            lines.push(format!("not run again: {}", count(score.before, "input")));
        }
        let (took, total) = (written_short(took), count(score.read, what));
        lines.push(match (score.read, score.before, score.ended) {
            (0, 0, true) => "there was no input, and so nothing was run".to_owned(),
            (0, _, true) => "nothing is left to do".to_owned(),
            (_, _, true) => format!("{} of {total} succeeded in {took}", score.succeeded),
            (_, _, false) => {
                format!("{} of {total} that were read succeeded in {took}", score.succeeded)
            }
        });
        let is_left = end != End::Succeeded;
        lines.extend(again.filter(|_| is_left).map(|again| format!("go on with: {again}")));
        lines
    }
}

/// How all commands have ended, in numbers.
fn totals(score: &Score, end: End) -> Totals {
    let left = score.read - score.succeeded - score.failed;
    let is_open = matches!(end, End::Interrupted | End::Terminated);
    Totals {
        outcome: end.as_str(),
        total: score.read,
        succeeded: score.succeeded,
        failed: score.failed,
        cancelled: if is_open { 0 } else { left },
        unfinished: if is_open { left } else { 0 },
        ..Totals::default()
    }
}

/// Waits for the end of the run, or of the engine.
async fn watch(
    engine: &Engine,
    run: &Run,
    teller: &Teller,
    asked: &mut Asked,
) -> Result<End, Failure> {
    let mut stopping = Stopping::new(engine, teller);
    let mut ended = Box::pin(run.wait());
    let outcome = loop {
        tokio::select! {
            biased;
            told = asked.next() => stopping.told(told),
            status = &mut ended => break status.ok().and_then(|status| status.outcome()),
        }
    };
    stopping.done();
    loop {
        tokio::select! {
            biased;
            _ = stopping.stopped() => break,
            told = asked.next() => stopping.told(told),
        }
    }
    stopping.end(run, outcome).await
}

/// How to go on, as it can be typed: the same again.
fn again(mut was_resumed: bool) -> String {
    let words = std::env::args_os().skip(1).map(|word| typed(&word.to_string_lossy()));
    let is_resume = |word: &String| word == "--resume" || word.starts_with("--resume=");
    let mut text = String::from("tidegate");
    let mut is_told = false;
    for word in words {
        // Behind the first there may be one of the command's own.
        if was_resumed && is_resume(&word) {
            was_resumed = false;
            continue;
        }
        text.extend([" ", &word]);
        if word == "each" && !is_told {
            is_told = true;
            text.push_str(" --resume");
        }
        if text.len() > AGAIN_MAX {
            return "the same command and inputs, and --resume".to_owned();
        }
    }
    plain(&text)
}
