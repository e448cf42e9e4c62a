//! The command file: what it says, as types.
//!
//! - `find`: which file, and what is in it, as text.
//! - `keys`, `shape`: every key there is and what may stand under it; `mistakes`: what is wrong, and where.
//! - `decode`, `task`: from TOML to [`File`]; `env_file`: the variables of a task.
//! - `check`: what tasks and limits mean together.
//!
//! Either a file is right in everything or there is no [`File`]. Reading starts nothing and writes
//! nothing. Deliberately absent: the command line (what it overrides comes in as [`Given`]), and
//! looking for what tasks wait for or are done for each of, which may not be there yet.

mod check;
mod decode;
mod env_file;
mod find;
mod keys;
mod mistakes;
mod shape;
mod task;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use find::{FILE_NAME, FindError, find};
pub(crate) use keys::FILE as KEYS;
pub(crate) use mistakes::{Mistakes, Source, push_plain, quoted};
pub(crate) use shape::{Shape, Table};
pub(crate) use task::EVERY;
pub(crate) use values::{ParallelLimit, is_address, is_url, natural, rate, written};

#[cfg(test)]
pub(crate) use keys::TABLES;

use std::path::PathBuf;
use std::time::Duration;
use tidegate::core::graph::Graph;
use tidegate::{Backoff, Limit, LimitUse, OnFailure, When};

/// Slots where nobody says how many.
pub(crate) const PARALLEL_LIMIT: u32 = 4;

/// What a command file says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct File {
    /// As it is spoken of.
    pub(crate) path: PathBuf,
    /// Where relative paths begin.
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    pub(crate) parallel_limit: Setting<ParallelLimit>,
    /// For tasks that have none of their own.
    pub(crate) task_timeout: Setting<Option<Duration>>,
    pub(crate) on_failure: OnFailure,
    pub(crate) shell: Vec<String>,
    pub(crate) limits: Vec<Limit>,
    /// In the order of the file, which is that of the graph.
    pub(crate) tasks: Vec<Task>,
    pub(crate) graph: Graph,
}

/// A task of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) run: Command,
    pub(crate) after: Vec<String>,
    pub(crate) when: When,
    pub(crate) each: Option<Each>,
    /// All of these.
    pub(crate) wait_for: Vec<WaitFor>,
    pub(crate) retries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) limits: Vec<LimitUse>,
    pub(crate) weight: u32,
    pub(crate) priority: i32,
    /// Its own, or that of the run.
    pub(crate) timeout: Option<Duration>,
    pub(crate) queue_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    /// What the file says, behind what its file of variables says; the last of a name counts.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) dir: PathBuf,
}

/// A command as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// A line for the shell.
    Line(String),
    /// A program and its arguments.
    Direct(Vec<String>),
}

/// What a task is done for each of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Each {
    /// Paths that fit a pattern, which begins in the file's folder.
    Glob(String),
    Items(Vec<String>),
    /// The lines of a file.
    Lines(PathBuf),
}

/// Something to wait for, without a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitFor {
    pub(crate) what: Awaited,
    pub(crate) every: Duration,
    pub(crate) timeout: Option<Duration>,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaited {
    File { path: PathBuf, unchanged_for: Option<Duration> },
    Tcp(String),
    Http(String),
    Command(Command),
    Signal(String),
    Delay(Duration),
}

/// A setting, and who has the last word on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) from: Origin,
}

/// Where a setting comes from. The earlier ones go before the later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    CommandLine,
    Environment,
    File,
    Default,
}

impl Origin {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Origin::CommandLine => "command line",
            Origin::Environment => "environment",
            Origin::File => "file",
            Origin::Default => "default",
        }
    }
}

/// What is given from outside and goes before what the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) parallel_limit: Option<Setting<ParallelLimit>>,
    pub(crate) task_timeout: Option<Setting<Duration>>,
    /// How many processors there are for "auto" and percentages.
    pub(crate) cpus: u32,
}

impl File {
    /// Reads a file that was found.
    ///
    /// # Errors
    /// All that is wrong in it.
    pub(crate) fn read(source: Source, folder: PathBuf, given: &Given) -> Result<Self, Mistakes> {
        decode::decode(source, folder, given)
    }
}
