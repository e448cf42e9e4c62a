//! What is said of a run while it goes on: a line for each thing that happens to a task of the file.
//!
//! Lines go to stderr, what commands have written goes to stdout, byte for byte, when they end. Both
//! are written by a thread of their own: a slow terminal holds up no task. Deliberately absent: what
//! the truth is. Events may be missed; the summary reads the store.

use crate::args::Show;
use crate::choice::{Choice, Part};
use crate::file::{File, Task, written};
use crate::plan::{ITEMS, WAIT};
use crate::waves::{awaited_text, count, plain};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate::engine::{Happened, Kind, Missed, RunError, RunsPage, What};
use tidegate::{Engine, Event, RunId, Timestamp};

/// Writes what it is given, in order.
pub(crate) struct Printer {
    sender: mpsc::Sender<Print>,
    thread: JoinHandle<io::Result<()>>,
}

enum Print {
    Line(String),
    /// All that is in this file, if it is there.
    Log(PathBuf),
}

impl Printer {
    pub(crate) fn start() -> Self {
        let (sender, receiver) = mpsc::channel();
        Printer { sender, thread: std::thread::spawn(move || print(&receiver)) }
    }

    /// A line to stderr.
    pub(crate) fn line(&self, line: impl Into<String>) {
        // The thread ends after all senders.
        let _ = self.sender.send(Print::Line(line.into()));
    }

    fn log(&self, path: PathBuf) {
        let _ = self.sender.send(Print::Log(path));
    }

    /// Returns when all is written.
    ///
    /// # Errors
    /// What commands have written could not be.
    pub(crate) fn finish(self) -> io::Result<()> {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }
}

/// Writes until there is no more. The first that goes wrong on stdout ends the writing there; whoever
/// reads no further has what they wanted.
fn print(prints: &mpsc::Receiver<Print>) -> io::Result<()> {
    let mut written = Ok(());
    for print in prints {
        match print {
            // Whoever closed stderr does not want to know.
            Print::Line(line) => drop(writeln!(io::stderr(), "{line}")),
            Print::Log(path) if written.is_ok() => written = show(&path),
            Print::Log(_) => {}
        }
    }
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn show(path: &std::path::Path) -> io::Result<()> {
    // A command that was never begun has none.
    let Ok(mut log) = std::fs::File::open(path) else { return Ok(()) };
    let mut out = io::stdout().lock();
    io::copy(&mut log, &mut out)?;
    out.flush()
}

/// Tells of a run.
pub(crate) struct View<'f> {
    file: &'f File,
    choice: &'f Choice,
    engine: Engine,
    run: RunId,
    since: Timestamp,
    show: Show,
    began: HashMap<(RunId, String), Timestamp>,
    /// Tasks of which it was said that they wait, or that they are interrupted.
    said: HashSet<String>,
    /// Tasks whose end was heard of.
    heard: HashSet<(RunId, String)>,
    /// Whether there may be others.
    missed: bool,
    /// Logs of commands that may still be ending.
    late: Vec<PathBuf>,
    pub(crate) printer: Printer,
}

/// What a task of the workflow is to the file.
enum Role<'t> {
    Command(&'t Task),
    /// The command of one of the items.
    Item(&'t Task),
    /// The task whose items are commands.
    All(&'t Task),
    Waits(&'t Task),
    FindsItems(&'t Task),
    /// Nothing that is spoken of.
    None,
}

impl<'f> View<'f> {
    pub(crate) fn new(
        file: &'f File,
        choice: &'f Choice,
        (engine, run): (Engine, RunId),
        (since, show): (Timestamp, Show),
        printer: Printer,
    ) -> Self {
        let (began, said, heard) = (HashMap::new(), HashSet::new(), HashSet::new());
        let (missed, late) = (false, Vec::new());
        View { file, choice, engine, run, since, show, began, said, heard, missed, late, printer }
    }

    fn role(&self, run: RunId, name: &str) -> Role<'f> {
        let find = |name: &str| {
            let index = self.file.graph.find(name)?;
            (self.choice.of(index) == Part::Runs).then(|| &self.file.tasks[index.as_usize()])
        };
        if run != self.run {
            let whole = name.rsplit_once('[').and_then(|(name, _)| find(name));
            return whole.filter(|task| task.each.is_some()).map_or(Role::None, Role::Item);
        }
        match find(name) {
            Some(task) if task.each.is_some() => Role::All(task),
            Some(task) => Role::Command(task),
            None => match (name.strip_suffix(WAIT), name.strip_suffix(ITEMS)) {
                (Some(name), _) => find(name).map_or(Role::None, Role::Waits),
                (_, Some(name)) => find(name).map_or(Role::None, Role::FindsItems),
                _ => Role::None,
            },
        }
    }

    fn say(&self, at: Timestamp, name: &str, what: &str) {
        let seconds = at.since(self.since).as_secs();
        let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        let name = plain(name);
        self.printer.line(format!("[{hours:02}:{minutes:02}:{seconds:02}] {name}: {what}"));
    }

    /// Tells of an event, if it is of the run.
    pub(crate) fn hear(&mut self, event: &Event) {
        let (run, at) = (event.run, event.at);
        match &event.what {
            What::Began { task, attempt } => {
                self.began.insert((run, task.clone()), at);
                if let Role::Command(of) | Role::Item(of) = self.role(run, task) {
                    match *attempt {
                        1 => self.say(at, task, "started"),
                        again => {
                            let all = of.retries.saturating_add(1);
                            self.say(at, task, &format!("started (attempt {again} of {all})"));
                        }
                    }
                }
            }
            What::Deferred { task, wait } => match self.role(run, task) {
                Role::Waits(of) => self.waits(at, of),
                Role::All(of) => {
                    let number = wait.split(' ').next().and_then(|number| number.parse().ok());
                    self.say(at, &of.name, &count(number.unwrap_or(0), "item"));
                }
                _ => {}
            },
            What::Ended { task, how, reason, attempt, error } => {
                let why = match (error, reason) {
                    (Some(error), _) => cause(error),
                    (None, Some(reason)) => reason.as_str().to_owned(),
                    (None, None) => String::new(),
                };
                self.ended(run, at, task, *how, *attempt, &why);
            }
            _ => {}
        }
    }

    /// Some events came too fast to be told of.
    pub(crate) fn miss(&mut self, missed: Missed) {
        self.missed = true;
        self.printer.line(format!("{missed}; the summary has everything"));
    }

    /// Shows what was not shown so far, when no command is left.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn finish(&mut self, queue: &str) -> Result<(), RunError> {
        let page = RunsPage { queue: Some(queue.into()), limit: u32::MAX, ..RunsPage::default() };
        let runs = if self.missed { self.engine.runs(page).await? } else { Vec::new() };
        for run in runs {
            for task in self.engine.run(run.id).await?.status().await?.tasks {
                let how = match task.kind {
                    Kind::Succeeded if !task.taken_over => Happened::Succeeded,
                    Kind::Failed => Happened::Failed,
                    Kind::TimedOut => Happened::TimedOut,
                    Kind::Cancelled => Happened::Cancelled,
                    _ => continue,
                };
                if !self.heard.contains(&(run.id, task.name.clone())) {
                    self.output(run.id, &task.name, how, task.attempt);
                }
            }
        }
        self.late.drain(..).for_each(|log| self.printer.log(log));
        Ok(())
    }

    fn waits(&mut self, at: Timestamp, task: &Task) {
        if self.said.insert(task.name.clone() + WAIT) {
            let names = task.wait_for.iter().map(|wait| awaited_text(&self.file.folder, wait));
            let names = names.collect::<Vec<_>>().join(" and ");
            self.say(at, &task.name, &format!("waits for {names}"));
        }
    }

    fn ended(
        &mut self,
        run: RunId,
        at: Timestamp,
        name: &str,
        how: Happened,
        attempt: u32,
        why: &str,
    ) {
        let role = self.role(run, name);
        let began = self.began.remove(&(run, name.to_owned()));
        let took = written_short(began.map_or(Duration::ZERO, |began| at.since(began)));
        let is_over = !matches!(
            how,
            Happened::Retried
                | Happened::Snoozed
                | Happened::HandedBack
                | Happened::Recovered
                | Happened::Parked
        );
        if is_over {
            self.heard.insert((run, name.to_owned()));
        }
        self.output(run, name, how, attempt);
        match (how, role) {
            (Happened::Parked, Role::Waits(task)) => self.waits(at, task),
            (Happened::Succeeded, Role::Command(_) | Role::Item(_) | Role::All(_)) => {
                self.say(at, name, &format!("succeeded in {took}"));
            }
            (Happened::Failed | Happened::TimedOut, Role::Command(task) | Role::Item(task)) => {
                let of = match task.retries {
                    0 => String::new(),
                    retries => format!(" (attempt {attempt} of {})", retries.saturating_add(1)),
                };
                self.say(at, name, &format!("failed: {why}{of}"));
            }
            (
                Happened::Failed | Happened::TimedOut,
                Role::All(task) | Role::Waits(task) | Role::FindsItems(task),
            ) => {
                self.said.insert(task.name.clone());
                self.say(at, &task.name, &format!("failed: {why}"));
            }
            (Happened::Retried, Role::Command(task) | Role::Item(task)) => {
                let (all, pause) = (task.retries.saturating_add(1), again(task, attempt));
                let text = format!("failed: {why} (attempt {attempt} of {all}, again {pause})");
                self.say(at, name, &text);
            }
            (Happened::Cancelled, Role::Command(_) | Role::All(_)) => {
                self.say(at, name, "cancelled");
            }
            (Happened::Cancelled, Role::Item(_)) if began.is_some() => {
                self.say(at, name, "cancelled");
            }
            (Happened::Skipped, Role::Command(task) | Role::All(task))
                if !self.said.contains(&task.name) =>
            {
                self.say(at, name, "skipped");
            }
            (Happened::HandedBack, Role::Command(_) | Role::Item(_)) if began.is_some() => {
                self.say(at, name, "interrupted");
            }
            _ => {}
        }
    }

    /// Shows what a command has written, if it is to be seen.
    fn output(&mut self, run: RunId, name: &str, how: Happened, attempt: u32) {
        if !matches!(self.role(run, name), Role::Command(_) | Role::Item(_)) {
            return;
        }
        let is_shown = match how {
            Happened::Succeeded | Happened::Cancelled => self.show == Show::Grouped,
            Happened::Failed | Happened::TimedOut => self.show != Show::None,
            _ => false,
        };
        match self.engine.log(run, name, attempt).filter(|_| is_shown) {
            // It has ended in the store, and only now is it told to.
            Some(log) if how == Happened::Cancelled => self.late.push(log),
            Some(log) => self.printer.log(log),
            None => {}
        }
    }
}

/// When it is tried again. By how much chance changes that is not known here.
fn again(task: &Task, attempt: u32) -> String {
    // A chance of one half is in the middle.
    let pause = written_short(task.backoff.pause(attempt, 0.5));
    let about = if task.backoff.jitter() > 0.0 { "about " } else { "" };
    format!("in {about}{pause}")
}

/// `1.2s`, `35ms`, `2m5s`: as much as a reader wants to know.
pub(crate) fn written_short(time: Duration) -> String {
    match time.as_millis() {
        0..1_000 => format!("{}ms", time.as_millis()),
        1_000..60_000 => format!("{:.1}s", time.as_secs_f64()),
        _ => written(Duration::from_secs(time.as_secs())),
    }
}

/// What went wrong, on one line, without what is told elsewhere: the log, and what is in it.
pub(crate) fn cause(error: &str) -> String {
    let end = ["; it last wrote: ", " (log: "].iter().filter_map(|mark| error.find(mark)).min();
    let cause = error[..end.unwrap_or(error.len())].replace("the command ended with ", "");
    plain(cause.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_short() {
        for (error, right) in [
            (
                "the command ended with exit code 3 (log: /x/y.log); it last wrote: a; b",
                "exit code 3",
            ),
            ("the command ended with exit code 3; it last wrote: a", "exit code 3"),
            (
                "there is no program \"x\" in PATH (/bin)",
                "there is no program \"x\" in PATH (/bin)",
            ),
            ("the command was ended by signal 9", "the command was ended by signal 9"),
        ] {
            assert_eq!(cause(error), right);
        }
    }

    #[test]
    fn a_time_is_as_exact_as_it_is_short() {
        for (millis, right) in [(0, "0ms"), (35, "35ms"), (1_234, "1.2s"), (125_900, "2m5s")] {
            assert_eq!(written_short(Duration::from_millis(millis)), right);
        }
    }
}
