//! Commands as tasks.

use super::{Body, Entered, Manner, Returned, Task};
use crate::context::{Around, Context, encode};
use crate::handle::TaskHandle;
use crate::process::{
    self, Command, GRACE, LogOverflow, Notes, OverflowState, Running, SpawnError, Start,
};
use crate::task_error::TaskError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_core::RunId;

impl Task {
    /// A task of this name that runs a command, as a process group of its own, and succeeds if it
    /// exits with 0. It returns [`Finished`](process::Finished).
    ///
    /// The command is given as it is, or as a function of the context:
    ///
    /// ```
    /// use tidegate::process::Command;
    /// use tidegate::{Context, Task, TaskError};
    ///
    /// let build = Task::command("build", Command::shell("make -j2 all"));
    /// let pack = Task::command("pack", |context: &Context<String>| {
    ///     Ok::<_, TaskError>(Command::new("tar").args(["-caf", "out.tar.zst", context.input()]))
    /// });
    /// ```
    ///
    /// What it writes goes to a log, one for each attempt that writes something, in
    /// [`Config::logs`](crate::Config::logs). In its environment are `TIDEGATE_RUN_ID`,
    /// `TIDEGATE_TASK`, `TIDEGATE_ATTEMPT`, `TIDEGATE_SLOT` (the smallest number from 1 on that no
    /// other command of this engine has while it runs; one that takes several slots has the first of
    /// so many numbers) and, if it is done for [items](Task::each),
    /// `TIDEGATE_INPUT`: the item, a text as it is and anything else as JSON, unless the command says
    /// itself what is there.
    ///
    /// Its time-out, cancel, or the end of the grace of a shutdown is TERM to the whole group and,
    /// five seconds later, KILL; only when no process of the group is left, the task has ended and
    /// its slot is free.
    ///
    /// # After a crash
    /// Whoever takes over from a dead worker first ends the commands it has left running: at no
    /// instant do two copies of a command run on one machine. This needs the table of processes that
    /// Linux has.
    pub fn command<M: 'static>(name: impl Into<String>, command: impl CommandFn<M>) -> Self {
        let marker = std::marker::PhantomData;
        Task::of(name, Arc::new(Run { command: Arc::new(command), marker }))
    }
}

/// What [`Task::command`] takes: a [`Command`], or a function that makes one from the context. `M`
/// only tells the two apart; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a command, nor makes one",
    note = "a command is a `Command` or a `fn(&Context) -> Result<Command, E>`, where `E` converts \
            into `TaskError`"
)]
pub trait CommandFn<M>: Send + Sync + 'static {
    /// The type of the run's input.
    #[doc(hidden)]
    type Input: DeserializeOwned + Send + 'static;
    /// The command for this context.
    #[doc(hidden)]
    fn command(&self, context: &Context<Self::Input>) -> Result<Command, TaskError>;
}

impl CommandFn<()> for Command {
    type Input = Value;

    fn command(&self, _: &Context) -> Result<Command, TaskError> {
        Ok(self.clone())
    }
}

impl<F, I, E> CommandFn<(I, E)> for F
where
    F: Fn(&Context<I>) -> Result<Command, E> + Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    E: Into<TaskError> + 'static,
{
    type Input = I;

    fn command(&self, context: &Context<I>) -> Result<Command, TaskError> {
        self(context).map_err(Into::into)
    }
}

/// What an engine has for its commands. Its tasks find it among the application's values.
#[derive(Default)]
pub(crate) struct Commands {
    /// Where it is noted which commands are running.
    pub(crate) notes: Option<Notes>,
    /// The folder for logs, and how large one may be.
    pub(crate) logs: Option<(PathBuf, u64)>,
    /// Those that are running.
    pub(crate) running: Running,
}

struct Run<F, M> {
    command: Arc<F>,
    marker: std::marker::PhantomData<fn() -> M>,
}

impl<F: CommandFn<M>, M: 'static> Body for Run<F, M> {
    fn enter(&self, around: Around, handle: TaskHandle) -> Entered {
        let command = self.command.clone();
        Box::pin(async move {
            // The context is not kept for as long as the command runs.
            let (command, about) = {
                let context = Context::new(around)?;
                (command.command(&context)?, About::new(&context))
            };
            run(&command, about, &handle).await
        })
    }

    fn manner(&self) -> Manner {
        Manner::Orderly
    }
}

/// What is known of the task whose command is run.
struct About {
    task: String,
    item: Option<String>,
    commands: Arc<Commands>,
    overflow: Option<Arc<dyn LogOverflow>>,
}

impl About {
    fn new<I>(context: &Context<I>) -> Self {
        let item = context.item::<Value>().ok().map(|item| match item {
            Value::String(text) => text,
            other => other.to_string(),
        });
        let number = item.as_ref().map(|_| format!("[{}]", context.item_number()));
        let task = format!("{}{}", context.task_name(), number.unwrap_or_default());
        // Outside an engine there are none.
        let commands = context.state().unwrap_or_default();
        let overflow = context.state::<OverflowState>().ok().map(|state| state.0.clone());
        About { task, item, commands, overflow }
    }

    /// Where the output of this attempt goes.
    fn log(&self, handle: &TaskHandle) -> Option<PathBuf> {
        let (folder, _) = self.commands.logs.as_ref()?;
        Some(log_of(folder, handle.run_id()?, &self.task, handle.attempt()))
    }

    fn environment(&self, command: &Command, handle: &TaskHandle) -> Vec<(&'static str, OsString)> {
        let run = handle.run_id().map(|run| ("TIDEGATE_RUN_ID", run.to_string().into()));
        let item = self.item.as_ref().filter(|_| !command.sets("TIDEGATE_INPUT"));
        let item = item.map(|item| ("TIDEGATE_INPUT", item.into()));
        let attempt = handle.attempt().to_string().into();
        let slot = handle.inner().slot_number();
        let slot = slot.map(|slot| ("TIDEGATE_SLOT", slot.to_string().into()));
        let own = [("TIDEGATE_TASK", self.task.clone().into()), ("TIDEGATE_ATTEMPT", attempt)];
        run.into_iter().chain(own).chain(item).chain(slot).collect()
    }
}

async fn run(command: &Command, about: About, handle: &TaskHandle) -> Result<Returned, TaskError> {
    let log = about.log(handle);
    // An execution may run its command several times.
    let token = format!("{}-{:016x}", handle.task_execution_id(), fastrand::u64(..));
    let start = Start {
        log: log.as_deref(),
        overflow: about.overflow.clone(),
        log_max: about.commands.logs.as_ref().map_or(0, |(_, max)| *max),
        notes: about.commands.notes.as_ref().map(|notes| (notes, token.as_str())),
        running: Some(&about.commands.running),
        env: about.environment(command, handle),
        grace: GRACE,
    };
    let spawned = process::spawn(command, start).map_err(not_started)?;
    drop(about);
    let ended = spawned.wait(handle.cancel_token()).await?;
    if ended.log_dropped > 0 {
        let (dropped, error) = (ended.log_dropped, ended.log_error.as_ref());
        tracing::warn!(dropped, ?error, ?log, "not all that a command wrote is in its log");
    }
    let log = log.filter(|_| ended.logged);
    let finished = ended.into_result(log)?;
    let output = encode("what the command wrote", &finished)?;
    Ok(Returned { output, inserts: None })
}

fn not_started(error: SpawnError) -> TaskError {
    match error.is_transient() {
        true => TaskError::from(error),
        false => TaskError::permanent(error),
    }
}

/// Where the output of an attempt is.
pub(crate) fn log_of(folder: &Path, run: RunId, task: &str, attempt: u32) -> PathBuf {
    folder.join(run.to_string()).join(format!("{}.{attempt}.log", file_name(task)))
}

/// So many bytes of a name are written as they are, three letters each at most.
const NAME_MAX: usize = 64;

/// The name of a task as that of a file: what could mean something else there is written by number.
fn file_name(task: &str) -> String {
    let mut name = String::new();
    // Some file systems end at 255 bytes; attempts and suffix come behind.
    for byte in task.bytes().take(NAME_MAX) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'[' | b']' => {
                name.push(char::from(byte));
            }
            b'.' if !name.is_empty() => name.push('.'),
            byte => write!(name, "%{byte:02x}").expect("writing to memory does not fail"),
        }
    }
    if task.len() > NAME_MAX {
        // Others may begin like it: what is left out is told apart by its hash (FNV-1a).
        let hash = task.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        write!(name, "~{hash:016x}").expect("writing to memory does not fail");
    }
    name
}
