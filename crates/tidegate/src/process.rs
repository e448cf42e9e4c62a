//! Commands: programs run as processes, to their real end.
//!
//! [`Command`] says what to run, [`Finished`] is what a command that succeeded left. Between them
//! stand, in the order of a command's life:
//!
//! - `spawn`: starts it in a process group of its own and says why it could not be started;
//! - `spawned`: waits for it, stops it (TERM, a grace, KILL), sees its group to the end;
//! - `output`: copies what it writes into a log and keeps the last part in memory; `overflow`: what the
//!   log cannot hold;
//! - `notes` and `unfinished`: writes down which commands a worker has begun, and reads it, so that
//! - `takeover` can end those of a worker that died, before anybody runs them again;
//! - `running`: which commands run at this moment, so that all can be stopped for a while;
//! - `group` and `table`: signals to a group, and the table of processes (`/proc`, Linux).
//!
//! # What holds
//!
//! - A command is over when its first process, the leader, has ended. Whoever else holds its pipes
//!   open, in the group or outside, keeps nobody waiting.
//! - When a command that was told to stop, or that failed, is reported, no process of its group
//!   lives: another attempt never meets the one before it.
//! - Memory per command does not grow with what it writes, and a full log does not block it.
//! - A signal goes only to a group that is known to be the command's: to one whose leader has not
//!   been reaped, or of which a member has been there all the time since. A number that was given
//!   to somebody else in the meantime is left alone.
//!
//! # What is absent
//!
//! - Processes that a *successful* command leaves running in the background are left alone.
//! - Processes that left the group (`setsid`) are not stopped with it; after a worker's death they
//!   are found by their environment, unless they have cleared it.
//! - No terminal and no input: standard input is `/dev/null`.
//! - No cgroups: a process of another user in the group, which we may not signal, is waited for.
//! - On systems without `/proc` a dead worker's commands cannot be told from strangers, and are left
//!   alone. Neither are processes of another PID namespace seen: workers in several containers do
//!   not take over each other's commands.

mod group;
mod notes;
mod output;
mod overflow;
mod private;
mod running;
mod spawn;
mod spawned;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod takeover;
#[cfg(not(target_os = "linux"))]
mod takeover {
    /// No table of processes, no proof: nobody is ended.
    pub(crate) async fn end_all(_: &std::path::Path) -> std::io::Result<u32> {
        Ok(0)
    }
}
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
#[cfg(any(target_os = "linux", test))]
mod unfinished;

use serde::de::Error as _;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// From the polite signal to the one that cannot be ignored.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A command to run: a program, its arguments and its surroundings.
///
/// It runs in a process group of its own, without input, in this process's environment and working
/// directory unless something else is said.
///
/// ```
/// use tidegate::process::Command;
///
/// let load = Command::new("./load").arg("in.csv").env("MODE", "full").dir("jobs");
/// let count = Command::shell("sort in.csv | uniq | wc -l");
/// # let _ = (load, count);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    env_clear: bool,
    dir: Option<PathBuf>,
    one_stream: bool,
}

impl Command {
    /// A program, run without a shell. A name without a slash is looked up in the command's `PATH`;
    /// a relative path is relative to [`dir`](Self::dir).
    pub fn new(program: impl Into<OsString>) -> Self {
        Command {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            env_clear: false,
            dir: None,
            one_stream: false,
        }
    }

    /// A line for the shell, as `sh -ec LINE`: it ends at the first command that fails.
    pub fn shell(line: impl Into<OsString>) -> Self {
        Command::new("sh").arg("-ec").arg(line)
    }

    /// One more argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.args.push(argument.into());
        self
    }

    /// More arguments.
    pub fn args<I>(mut self, arguments: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        self.args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment; of several of one name the last counts.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Whether it sets this variable.
    pub(crate) fn sets(&self, name: &str) -> bool {
        self.env.iter().any(|(own, _)| own == name)
    }

    /// Inherits no variables: the environment is what [`env`](Self::env) says, before or after this
    /// call, and what the engine adds.
    pub fn env_clear(mut self) -> Self {
        self.env_clear = true;
        self
    }

    /// The working directory.
    pub fn dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.dir = Some(directory.into());
        self
    }

    /// What it writes to standard error goes where standard output does, as with `2>&1`: in the log,
    /// and in [`Finished::stdout`], all stands in the order in which it was written. Otherwise the two
    /// are read apart, and of what is written to both within moments either may come first.
    pub fn one_stream(mut self) -> Self {
        self.one_stream = true;
        self
    }
}

/// What a command that succeeded left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// The exit code.
    pub code: i32,
    /// What it wrote to standard output, at most the last 64 KiB; bytes that are not UTF-8 are
    /// replaced by `U+FFFD`. The log has the bytes as they were.
    pub stdout: String,
    /// It wrote more to standard output than `stdout` holds; the beginning is missing there.
    pub stdout_truncated: bool,
    /// Where the whole output is, if there was some and it was kept.
    pub log: Option<PathBuf>,
}

// Written by hand: the derive would be the only use of its compiler plug-in.
impl Serialize for Finished {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finished", 4)?;
        fields.serialize_field("code", &self.code)?;
        fields.serialize_field("stdout", &self.stdout)?;
        fields.serialize_field("stdout_truncated", &self.stdout_truncated)?;
        // A path that is not UTF-8 must not turn a command's success into a failure.
        let log = self.log.as_ref().map(|path| path.to_string_lossy());
        fields.serialize_field("log", &log)?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Finished {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::<String, Value>::deserialize(deserializer)?;
        let mut take = |name: &'static str| fields.remove(name).unwrap_or(Value::Null);
        Ok(Finished {
            code: i32::deserialize(take("code")).map_err(D::Error::custom)?,
            stdout: String::deserialize(take("stdout")).map_err(D::Error::custom)?,
            stdout_truncated: bool::deserialize(take("stdout_truncated"))
                .map_err(D::Error::custom)?,
            log: Option::deserialize(take("log")).map_err(D::Error::custom)?,
        })
    }
}

pub use overflow::LogOverflow;

pub(crate) use notes::Notes;
pub(crate) use overflow::OverflowState;
#[doc(hidden)]
pub use private::check_folder;
pub(crate) use running::Running;
pub(crate) use spawn::{SpawnError, Start, spawn};
#[cfg(test)]
pub(crate) use spawned::{Ended, Spawned};
pub(crate) use takeover::end_all;
