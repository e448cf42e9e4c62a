//! Starting a command, and why it cannot be started.

use super::group::Group;
use super::notes::{MARKER, Notes};
use super::output::{Log, Output};
use super::overflow::LogOverflow;
use super::running::Running;
use super::spawned::Spawned;
use super::{Command, GRACE};
use rustix::io::Errno;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdout};

/// How a command is started, besides what it is.
pub(crate) struct Start<'a> {
    /// Where its output goes. A file that is there is replaced.
    pub(crate) log: Option<&'a Path>,
    /// The most bytes the log may have.
    pub(crate) log_max: u64,
    /// Where that goes which the log cannot hold.
    pub(crate) overflow: Option<Arc<dyn LogOverflow>>,
    /// Where it is noted, and as what: a token that was never used before, of one printable word.
    /// An execution may begin a command several times, so its id alone is none.
    pub(crate) notes: Option<(&'a Notes, &'a str)>,
    /// Where it is listed while it runs.
    pub(crate) running: Option<&'a Running>,
    /// Variables that count more than those of the command.
    pub(crate) env: Vec<(&'static str, OsString)>,
    /// From TERM to KILL.
    pub(crate) grace: Duration,
}

impl Default for Start<'_> {
    fn default() -> Self {
        Start {
            log: None,
            log_max: u64::MAX,
            overflow: None,
            notes: None,
            running: None,
            env: Vec::new(),
            grace: GRACE,
        }
    }
}

/// Starts the command. Once this returns it is noted, so that it is found if this process dies.
///
/// It blocks for as long as the system takes to start a process, about a millisecond. To be called
/// within a runtime.
///
/// # After a crash
/// A command that was started and not seen to its end is ended by [`end_all`](super::end_all).
pub(crate) fn spawn(command: &Command, start: Start<'_>) -> Result<Spawned, SpawnError> {
    let log = start.log.map(|path| {
        let log = Log::create(path, start.log_max);
        log.map_err(|error| SpawnError::Log { path: path.to_owned(), error })
    });
    let log = log.transpose()?;
    let noted = start.notes.map(|(notes, token)| notes.begin(token)).transpose();
    let noted = noted.map_err(SpawnError::Notes)?;
    let token = noted.as_ref().map(|noted| noted.token());
    let admission = start.running.map(Running::admit_command);
    let (child, stdout, stderr) = match begin(command, &start.env, token) {
        Ok(begun) => begun,
        Err(error) => {
            if let Some(noted) = noted {
                noted.over();
            }
            return Err(explain(command, error));
        }
    };
    let number = child.id().and_then(|number| i32::try_from(number).ok());
    let group = number.and_then(Group::new).expect("a child that was not waited for has a number");
    let output = Output::new(stdout, stderr, log, start.overflow);
    // From here on, dropping it ends the command: also where its group cannot be noted.
    let listed = admission.map(|admission| admission.list(group));
    let spawned = Spawned::new(child, group, output, (noted, listed), start.grace);
    spawned.note().map_err(SpawnError::Notes)?;
    Ok(spawned)
}

/// A child, and where what it writes can be read.
type Begun = (Child, Option<ChildStdout>, Option<ChildStderr>);

fn begin(
    command: &Command,
    env: &[(&'static str, OsString)],
    token: Option<&str>,
) -> io::Result<Begun> {
    let mut prepared = prepare(command, env, token);
    if !command.one_stream {
        let mut child = prepared.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        return Ok((child, stdout, stderr));
    }
    let (ours, its) = io::pipe()?;
    let ours = ChildStdout::from_std(process::ChildStdout::from(OwnedFd::from(ours)))?;
    let child = prepared.stdout(its.try_clone()?).stderr(its).spawn()?;
    Ok((child, Some(ours), None))
}

fn prepare(
    command: &Command,
    env: &[(&'static str, OsString)],
    token: Option<&str>,
) -> tokio::process::Command {
    let mut prepared = tokio::process::Command::new(&command.program);
    prepared.args(&command.args);
    if command.env_clear {
        prepared.env_clear();
    }
    prepared.envs(command.env.iter().map(|(name, value)| (name, value)));
    prepared.envs(env.iter().map(|(name, value)| (name, value)));
    if let Some(token) = token {
        prepared.env(MARKER, token);
    }
    if let Some(directory) = &command.dir {
        prepared.current_dir(directory);
    }
    prepared.process_group(0);
    prepared.stdin(Stdio::null());
    prepared
}

/// Why a command could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum SpawnError {
    /// No such program in any of these places; none if the path was given.
    NotFound { program: OsString, searched: Option<OsString> },
    /// The program is a script whose interpreter, named in its first line, is missing.
    Interpreter { program: OsString },
    /// The program is there and cannot be run.
    NotExecutable { program: OsString, error: io::Error },
    /// The working directory is missing, or none.
    Directory { directory: PathBuf, error: io::Error },
    /// Too many open files, or processes, or too little memory: it may work later.
    Exhausted { program: OsString, error: io::Error },
    /// The log cannot be made.
    Log { path: PathBuf, error: io::Error },
    /// The notes cannot be written, without which nothing is started.
    Notes(io::Error),
    /// Anything else: the arguments are too long, or hold a NUL.
    Other { program: OsString, error: io::Error },
}

impl SpawnError {
    /// Whether another try may find it otherwise without anybody changing the command.
    pub(crate) fn is_transient(&self) -> bool {
        use SpawnError::{Exhausted, Log, Notes};
        matches!(self, Exhausted { .. } | Log { .. } | Notes(_))
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpawnError::NotFound { program, searched: Some(searched) } => {
                let (program, searched) = (program.display(), searched.display());
                write!(f, "there is no program \"{program}\" in PATH ({searched})")
            }
            SpawnError::NotFound { program, searched: None } => {
                write!(f, "there is no file {}", program.display())
            }
            SpawnError::Interpreter { program } => {
                let program = program.display();
                write!(f, "the interpreter that the first line of {program} names is missing")
            }
            SpawnError::NotExecutable { program, error } => {
                write!(f, "{} cannot be executed: {error}", program.display())
            }
            SpawnError::Directory { directory, error } => {
                write!(f, "the working directory {}: {error}", directory.display())
            }
            SpawnError::Exhausted { program, error } | SpawnError::Other { program, error } => {
                write!(f, "{}: {error}", program.display())
            }
            SpawnError::Log { path, error } => write!(f, "the log {}: {error}", path.display()),
            SpawnError::Notes(error) => write!(f, "the notes of what is running: {error}"),
        }
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SpawnError::NotFound { .. } | SpawnError::Interpreter { .. } => None,
            SpawnError::NotExecutable { error, .. }
            | SpawnError::Directory { error, .. }
            | SpawnError::Exhausted { error, .. }
            | SpawnError::Log { error, .. }
            | SpawnError::Notes(error)
            | SpawnError::Other { error, .. } => Some(error),
        }
    }
}

/// The system gives one number for a missing program, directory and interpreter: which it was is
/// found by looking.
fn explain(command: &Command, error: io::Error) -> SpawnError {
    if let Some(directory) = &command.dir
        && let Err(error) = enterable(directory)
    {
        return SpawnError::Directory { directory: directory.clone(), error };
    }
    let program = command.program.clone();
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR) => not_found(command),
        Some(Errno::ACCESS | Errno::NOEXEC | Errno::PERM | Errno::ISDIR) => {
            SpawnError::NotExecutable { program, error }
        }
        Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM | Errno::TXTBSY) => {
            SpawnError::Exhausted { program, error }
        }
        _ => SpawnError::Other { program, error },
    }
}

fn enterable(directory: &Path) -> io::Result<()> {
    // The dot asks for the right to enter it, too.
    std::fs::metadata(directory.join(".")).map(|_| ())
}

fn not_found(command: &Command) -> SpawnError {
    let program = command.program.clone();
    if !program.as_bytes().contains(&b'/') {
        return SpawnError::NotFound { program, searched: Some(search_path(command)) };
    }
    let place = command.dir.as_deref().unwrap_or(Path::new("")).join(&program);
    match place.exists() {
        true => SpawnError::Interpreter { program },
        false => SpawnError::NotFound { program: place.into(), searched: None },
    }
}

/// Where the system looked: in the `PATH` of the command.
fn search_path(command: &Command) -> OsString {
    let said = command.env.iter().rev().find(|(name, _)| name == "PATH");
    match said {
        Some((_, path)) => path.clone(),
        // What the C libraries take when there is none.
        None if command.env_clear => OsStr::new("/bin:/usr/bin").to_owned(),
        None => env::var_os("PATH").unwrap_or_default(),
    }
}
