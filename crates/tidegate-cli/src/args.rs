//! The command line.

use crate::each::Each;
use crate::file::{Given, Origin, PARALLEL_LIMIT, ParallelLimit, Setting};
use crate::look::args as look;
use crate::tell::{Show, Usual};
use clap::builder::NonEmptyStringValueParser;
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use std::env::VarError;
use std::path::PathBuf;
use std::time::Duration;
use tidegate::duration;

/// Runs many commands, so many at a time.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, disable_help_subcommand = true, max_term_width = 80)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the commands of a file, so many at a time
    Run(Run),
    /// Run one command over many inputs, so many at a time
    Each(Each),
    /// Do again what did not succeed in a run, or these tasks of it
    Retry(Retry),
    /// Submit a file to a queue, for whoever serves it
    Submit(Submit),
    /// Serve queues: do what is submitted to them
    Worker(Worker),
    /// List runs, the newest first
    List(look::List),
    /// Show a run: its tasks, how they stand, how long they took
    Show(look::Show),
    /// Print what commands have written
    Logs(look::Logs),
    /// Tell why tasks are not running: all reasons
    Why(look::Why),
    /// Show the limits of a store, or change one
    Limits(look::Limits),
    /// Wait for the end of a run, and exit as it did
    Wait(look::Wait),
    /// Cancel a run
    Cancel(look::Cancel),
    /// Send a signal to a run
    Signal(look::Signal),
    /// Start nothing new of a run, a queue or a store
    Pause(look::Scope),
    /// Let what was paused go on
    Unpause(look::Scope),
    /// Check, prune, copy and back up a store
    Store {
        #[command(subcommand)]
        command: look::StoreCommand,
    },
    /// The same as store check
    Doctor(look::Check),
    /// Write a small tidegate.toml to begin with
    Init(Init),
    /// Print the JSON Schema of command files
    Schema,
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the manual page, of tidegate or of one of its commands
    Man {
        /// Which command
        command: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The command file; else tidegate.toml, here or in a folder above
    pub(crate) file: Option<PathBuf>,
    /// Show the plan in waves, and start nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Go on with the file's latest run, or this one
    #[arg(long, value_name = "RUN", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["only", "skip", "dry_run"])]
    pub(crate) resume: Option<String>,
    /// Only these tasks, and what they come after
    #[arg(long, value_name = "TASK", num_args = 1..)]
    pub(crate) only: Vec<String>,
    /// Without these tasks, as if they had succeeded
    #[arg(long, value_name = "TASK", num_args = 1..)]
    pub(crate) skip: Vec<String>,
    /// How many slots: 8, auto, or 50% of the CPUs
    #[arg(short = 'j', long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    pub(crate) parallel_limit: Option<ParallelLimit>,
    /// How long a task may compute, if it does not say so
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, allow_negative_numbers = true)]
    pub(crate) task_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) usual: Usual,
    /// These tasks are done again although they have succeeded.
    #[arg(skip)]
    pub(crate) again: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Retry {
    /// A number, an id or its beginning, or a name; else the latest run
    pub(crate) run: Option<String>,
    /// These, and what comes after them, although they have succeeded
    #[arg(value_name = "TASK")]
    pub(crate) tasks: Vec<String>,
    /// How many slots: 8, auto, or 50% of the CPUs
    #[arg(short = 'j', long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    pub(crate) parallel_limit: Option<ParallelLimit>,
    #[command(flatten)]
    pub(crate) usual: Usual,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Submit {
    /// The command file; else tidegate.toml, here or in a folder above
    pub(crate) file: Option<PathBuf>,
    /// The queue to which it goes
    #[arg(long, value_name = "QUEUE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) queue: String,
    /// Only these tasks, and what they come after
    #[arg(long, value_name = "TASK", num_args = 1..)]
    pub(crate) only: Vec<String>,
    /// Without these tasks, as if they had succeeded
    #[arg(long, value_name = "TASK", num_args = 1..)]
    pub(crate) skip: Vec<String>,
    /// One run, however often it is submitted with this
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: Option<String>,
    /// A head start in seconds over others of the queue
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    pub(crate) priority: i32,
    /// How long a task may compute, if it does not say so
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, allow_negative_numbers = true)]
    pub(crate) task_timeout: Option<Duration>,
    /// Where runs are kept, instead of beside the file
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Worker {
    /// A queue to serve; may be said more than once
    #[arg(long, value_name = "QUEUE", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) queue: Vec<String>,
    /// How many slots: 8, auto, or 50% of the CPUs
    #[arg(short = 'j', long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    pub(crate) parallel_limit: Option<ParallelLimit>,
    /// Where runs are kept: a file
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// Output: grouped, prefixed, streamed, failed, none
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Show::Grouped, hide_possible_values = true, hide_default_value = true)]
    pub(crate) show: Show,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// The file to write
    #[arg(default_value = crate::file::FILE_NAME)]
    pub(crate) file: PathBuf,
}

const LIMIT: &str =
    "a whole number of at least 1, \"auto\" or a percentage of the CPUs such as \"50%\"";
const TIMEOUT: &str = "a duration above 0, such as \"90s\", \"5m\" or a whole number of seconds";

pub(crate) fn parse_limit(text: &str) -> Result<ParallelLimit, String> {
    ParallelLimit::from_text(text).ok_or_else(|| format!("it must be {LIMIT}"))
}

pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("it must be {TIMEOUT}"))
}

/// What goes before what a file says: the command line's word, else the environment's.
///
/// # Errors
/// A variable that counts and makes no sense.
pub(crate) fn given(
    limit: Option<ParallelLimit>,
    timeout: Option<Duration>,
) -> Result<Given, String> {
    let limit = limit.map(|value| Setting { value, from: Origin::CommandLine });
    let timeout = timeout.map(|value| Setting { value, from: Origin::CommandLine });
    Ok(Given {
        parallel_limit: match limit {
            None => variable("TIDEGATE_PARALLEL_LIMIT", parse_limit)?,
            given => given,
        },
        task_timeout: match timeout {
            None => variable("TIDEGATE_TASK_TIMEOUT", parse_timeout)?,
            given => given,
        },
        cpus: cpus(),
    })
}

/// How many processors this process may use.
pub(crate) fn cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

impl Run {
    /// The whole file that is found, told of like this.
    pub(crate) fn of(usual: Usual) -> Self {
        let (file, resume, parallel_limit, task_timeout) = (None, None, None, None);
        let (only, skip, again) = (Vec::new(), Vec::new(), Vec::new());
        let dry_run = false;
        Run { file, dry_run, resume, only, skip, parallel_limit, task_timeout, usual, again }
    }

    /// What goes before what the file says.
    ///
    /// # Errors
    /// A variable that counts and makes no sense.
    pub(crate) fn given(&self) -> Result<Given, String> {
        given(self.parallel_limit, self.task_timeout)
    }
}

impl Submit {
    /// The same, of which the limit is the worker's business.
    ///
    /// # Errors
    /// A variable that counts and makes no sense.
    pub(crate) fn given(&self) -> Result<Given, String> {
        given(None, self.task_timeout)
    }
}

impl Worker {
    /// How many slots it has.
    ///
    /// # Errors
    /// A variable that counts and makes no sense.
    pub(crate) fn slots(&self) -> Result<ParallelLimit, String> {
        let given = given(self.parallel_limit, None)?.parallel_limit;
        Ok(given.map_or(ParallelLimit::Exactly(PARALLEL_LIMIT), |given| given.value))
    }
}

/// What a variable of the environment says, if it is set.
fn variable<T>(
    name: &str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<Setting<T>>, String> {
    let text = match std::env::var(name) {
        Ok(text) => text,
        Err(VarError::NotPresent) => return Ok(None),
        Err(VarError::NotUnicode(text)) => text.to_string_lossy().into_owned(),
    };
    match parse(&text) {
        Ok(value) => Ok(Some(Setting { value, from: Origin::Environment })),
        Err(what) => Err(format!("{name} cannot be {}; {what}", crate::file::quoted(&text))),
    }
}
