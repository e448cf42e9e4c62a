//! From a command file to a workflow.
//!
//! Each task of the file is a command. What it waits for, and the items it is done for, are tasks of
//! their own before it, `NAME:wait` and `NAME:items`: a command that still waits has not begun, and
//! holds neither slot nor limits. A task that is skipped is one that does nothing and succeeds.
//!
//! Deliberately absent: how many slots there are, which is the engine's business, and everything else
//! that makes no difference to what a task does.

use crate::choice::{Choice, Part};
use crate::file::{Awaited, Command, Each, File, Task, WaitFor};
use crate::items;
use crate::placeholder::{INPUT_ONLY, Placeholder};
use crate::shell_line::ShellLine;
use crate::waves::awaited_text;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tidegate::error::WorkflowError;
use tidegate::{Context, TaskError, TaskHandle, Wait, When, Workflow, condition, process};

/// What comes behind the name of a task, for the part of it that waits.
pub(crate) const WAIT: &str = ":wait";

/// The same for the part that finds the items.
pub(crate) const ITEMS: &str = ":items";

/// The tasks that are chosen, as a workflow. `store` is what they find in `TIDEGATE_STORE`.
///
/// # Errors
/// A task is called as a part of another is.
pub(crate) fn workflow(
    file: &File,
    choice: &Choice,
    store: Option<&str>,
) -> Result<Workflow, WorkflowError> {
    let mut workflow = Workflow::builder(&file.name).on_failure(file.on_failure);
    for (index, task) in file.graph.tasks().zip(&file.tasks) {
        workflow = match choice.of(index) {
            Part::LeftOut => workflow,
            Part::Skipped => workflow.task(skipped(&task.name)),
            Part::Runs => parts(file, choice, task, store)
                .into_iter()
                .fold(workflow, |all, part| all.task(part)),
        };
    }
    workflow.build()
}

fn skipped(name: &str) -> tidegate::Task {
    async fn nothing(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }
    tidegate::Task::new(name, nothing).fingerprint("skipped")
}

/// The parts of a task, each after the one before.
fn parts(file: &File, choice: &Choice, task: &Task, store: Option<&str>) -> Vec<tidegate::Task> {
    let waits = (!task.wait_for.is_empty()).then(|| waits(file, task));
    let items = task.each.as_ref().map(|each| finds_items(file, task, each));
    let mut parts: Vec<tidegate::Task> = Vec::new();
    for part in waits.into_iter().chain(items).chain([command(file, task, store)]) {
        let part = part.priority(task.priority);
        parts.push(match parts.last() {
            Some(before) => part.after([before.name()]),
            None => part.after(after(file, choice, task)).when(task.when),
        });
    }
    parts
}

/// What a task comes after. Whoever wants to know of a failure wants to know of one while it waited,
/// too.
fn after(file: &File, choice: &Choice, task: &Task) -> Vec<String> {
    let mut names = task.after.clone();
    if task.when == When::AnyFailed {
        let before = task.after.iter().filter_map(|name| file.graph.find(name));
        for before in before.filter(|&before| choice.of(before) == Part::Runs) {
            let before = &file.tasks[before.as_usize()];
            let waits = (!before.wait_for.is_empty()).then_some(WAIT);
            let items = before.each.as_ref().map(|_| ITEMS);
            names.extend(waits.into_iter().chain(items).map(|part| before.name.clone() + part));
        }
    }
    names
}

/// What a body returns that was given something to keep.
pub(crate) type Boxed<'a> = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send + 'a>>;

/// Says what a closure is, which it cannot say itself.
pub(crate) fn body<F>(body: F) -> F
where
    F: for<'a> Fn(&'a mut Context, &'a TaskHandle) -> Boxed<'a> + Send + Sync + 'static,
{
    body
}

/// The part that waits, for all of it at the same time.
fn waits(file: &File, task: &Task) -> tidegate::Task {
    let made = Made::new(file, task, None);
    let what: Vec<_> = task.wait_for.iter().map(|wait| &wait.what).collect();
    let fingerprint = fingerprint((what, made.difference()));
    let all: Arc<Vec<(WaitFor, String)>> = Arc::new(
        task.wait_for.iter().map(|wait| (wait.clone(), awaited_text(&file.folder, wait))).collect(),
    );
    let waiting = body(move |_, handle| {
        let (all, made) = (all.clone(), made.clone());
        Box::pin(async move {
            let waits = all.iter().map(|(wait, name)| begin(handle, wait, &made).named(name));
            handle.wait_all(waits).await?;
            Ok(())
        })
    });
    tidegate::Task::new(task.name.clone() + WAIT, waiting).parkable().fingerprint(fingerprint)
}

/// Begins to wait for this.
pub(crate) fn begin<'h>(handle: &'h TaskHandle, wait: &WaitFor, made: &Made) -> Wait<'h, ()> {
    let until = |condition| handle.defer_until(condition, wait.every);
    let begun = match &wait.what {
        Awaited::File { path, unchanged_for: None } => until(condition::file(path)),
        Awaited::File { path, unchanged_for: Some(quiet) } => {
            until(condition::file_unchanged(path, *quiet))
        }
        Awaited::Tcp(address) => until(condition::tcp(address)),
        Awaited::Http(url) => until(condition::http(url)),
        Awaited::Command(command) => until(condition::command(made.of(command, None))),
        Awaited::Signal(name) => handle.wait_for_signal(name).map(drop),
        Awaited::Delay(time) => handle.sleep(*time),
    };
    match wait.timeout {
        Some(timeout) => begun.timeout(timeout),
        None => begun,
    }
}

/// The part that finds the items, when its turn has come.
fn finds_items(file: &File, task: &Task, each: &Each) -> tidegate::Task {
    // A path must lead to the same file from where the command runs.
    let below = (task.dir != file.folder).then(|| file.folder.clone());
    let fingerprint = fingerprint((each, &below));
    let (each, folder) = (each.clone(), file.folder.clone());
    let find = move |_: &mut Context| -> Result<Vec<String>, TaskError> {
        items::find(&each, &folder, below.as_deref()).map_err(TaskError::permanent)
    };
    tidegate::Task::blocking(task.name.clone() + ITEMS, find).fingerprint(fingerprint)
}

/// The part that is the command.
fn command(file: &File, task: &Task, store: Option<&str>) -> tidegate::Task {
    let made = Made::new(file, task, store);
    let fingerprint = fingerprint((&task.run, made.difference()));
    let run = task.run.clone();
    let make = move |context: &Context| {
        Ok::<_, TaskError>(made.of(&run, context.item::<String>().ok().as_deref()))
    };
    let mut command = tidegate::Task::command(&task.name, make)
        .retries(task.retries)
        .backoff(task.backoff)
        .weight(task.weight)
        .limits(task.limits.iter().cloned())
        // What it writes is in its log.
        .without_output()
        .fingerprint(fingerprint);
    if task.each.is_some() {
        command = command.each(task.name.clone() + ITEMS);
    }
    if let Some(time) = task.timeout {
        command = command.timeout(time);
    }
    if let Some(time) = task.queue_timeout {
        command = command.queue_timeout(time);
    }
    if let Some(time) = task.deadline {
        command = command.deadline(time);
    }
    command
}

/// How the commands of a task are made.
#[derive(Clone)]
pub(crate) struct Made {
    shell: Vec<String>,
    env: Vec<(String, String)>,
    dir: PathBuf,
    store: Option<String>,
}

impl Made {
    fn new(file: &File, task: &Task, store: Option<&str>) -> Self {
        let (env, dir) = (task.env.clone(), task.dir.clone());
        Made { shell: file.shell.clone(), env, dir, store: store.map(str::to_owned) }
    }

    /// Those of nothing but a command line.
    pub(crate) fn alone(dir: PathBuf, store: Option<&str>) -> Self {
        let shell = ["sh", "-ec"].map(str::to_owned).to_vec();
        Made { shell, env: Vec::new(), dir, store: store.map(str::to_owned) }
    }

    /// The command, with what it finds in its environment.
    pub(crate) fn around(&self, command: process::Command) -> process::Command {
        match &self.store {
            Some(store) => command.env("TIDEGATE_STORE", store),
            None => command,
        }
    }

    /// What makes a difference to the command. The store does not.
    fn difference(&self) -> impl fmt::Debug + '_ {
        (&self.shell, &self.env, &self.dir)
    }

    /// The command, with the item in the place of `{}`: as one word, also for the shell.
    fn of(&self, command: &Command, item: Option<&str>) -> process::Command {
        let mut input = None;
        let words: Vec<OsString> = match (command, item) {
            (Command::Direct(words), Some(item)) => {
                words.iter().map(|word| word.replace("{}", item).into()).collect()
            }
            (Command::Direct(words), None) => words.iter().map(OsString::from).collect(),
            (Command::Line(line), item) => {
                // A file with a line that cannot be read like this is refused.
                let parsed = item.and_then(|_| ShellLine::parse(line.as_bytes(), INPUT_ONLY).ok());
                let parsed = parsed.filter(ShellLine::has_placeholder);
                input = item.filter(|_| parsed.is_some());
                let line = parsed.map_or_else(
                    || OsString::from(line),
                    |line| OsString::from_vec(line.with_references(0, 1)),
                );
                self.shell.iter().map(OsString::from).chain([line]).collect()
            }
        };
        let mut words = words.into_iter();
        // A file with an empty command or shell is refused.
        let program = words.next().unwrap_or_default();
        let command = process::Command::new(program).args(words).dir(&self.dir).one_stream();
        let command = self.around(command);
        let command =
            self.env.iter().fold(command, |command, (name, value)| command.env(name, value));
        // The last counts: the line refers to it, whatever the file says of a variable of this name.
        match input {
            Some(input) => command.env(Placeholder::Input.variable(), input),
            None => command,
        }
    }
}

/// The text as one word for the shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Tells definitions apart, without keeping what is in them: variables may be secret.
fn fingerprint(of: impl fmt::Debug) -> String {
    // FNV-1a, which is the same in every build.
    let hash = format!("{of:?}").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_one_word_for_the_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's; rm *"), r"'it'\''s; rm *'");
        assert_eq!(quoted(""), "''");
    }

    /// Runs that earlier versions have stored go on by it.
    #[test]
    fn fingerprint_is_of_the_line_as_it_is_written() {
        let made = Made::alone("/d".into(), Some("sqlite:x"));
        let of = (&Command::Line("cat '{}'".into()), made.difference());
        assert_eq!(format!("{of:?}"), r#"(Line("cat '{}'"), (["sh", "-ec"], [], "/d"))"#);
    }

    #[test]
    fn a_fingerprint_is_the_same_in_every_build() {
        assert_eq!(fingerprint("a"), "d4272417d7c77eea");
        assert_ne!(fingerprint("a"), fingerprint("b"));
    }
}
