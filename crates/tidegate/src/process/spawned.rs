//! A command that is running, and what is known of it afterwards.
//!
//! The leader is reaped only here, and every signal is sent either before that or after a look that
//! the group is still the command's (see [`Group`]).

use super::Finished;
use super::group::{Group, Pauses};
use super::notes::Noted;
use super::output::{Log, Output};
use super::running::Listed;
use crate::deadline::deadline_after;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Child;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Still there so long after KILL: somebody should hear of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running command.
///
/// Dropped before [`wait`](Self::wait) is over, be it in the middle, the group gets KILL at once.
/// Then nobody sees it empty: who hands the command to somebody else waits instead.
pub(crate) struct Spawned {
    child: Child,
    group: Group,
    output: Output,
    noted: Option<Noted>,
    /// That it is running.
    _listed: Option<Listed>,
    grace: Duration,
    over: bool,
}

impl Spawned {
    pub(super) fn new(
        child: Child,
        group: Group,
        output: Output,
        (noted, listed): (Option<Noted>, Option<Listed>),
        grace: Duration,
    ) -> Self {
        Spawned { child, group, output, noted, _listed: listed, grace, over: false }
    }

    pub(super) fn note(&self) -> io::Result<()> {
        self.noted.as_ref().map_or(Ok(()), |noted| noted.started(self.group))
    }

    /// The number of its process group, which is that of its first process.
    #[cfg(test)]
    pub(crate) fn group(&self) -> i32 {
        self.group.number()
    }

    /// Waits until the command is over; when told, stops it.
    ///
    /// A command that succeeds is over with its leader. Otherwise, told or not, what remains of the
    /// group gets TERM, after the grace KILL, and is seen to its end before this returns: a process
    /// that cannot be killed keeps this waiting. An end before the order counts as not told.
    ///
    /// # Cancel safety
    /// Dropping this future drops the command, which kills its group.
    ///
    /// # Errors
    /// The system does not tell how the leader ended, because somebody else reaped it.
    pub(crate) async fn wait(mut self, told: CancellationToken) -> io::Result<Ended> {
        let ended = self.output.beside(told.run_until_cancelled(self.child.wait())).await;
        let ended = match ended {
            Some(status) => Some(status?),
            // Told and over at once: over.
            None => self.child.try_wait()?,
        };
        let told = ended.is_none();
        let status = match ended {
            Some(status) if status.success() => status,
            Some(status) => {
                self.group.terminate_rest();
                self.clear(deadline_after(Instant::now(), self.grace)).await;
                status
            }
            None => self.stop().await?,
        };
        self.output.finish();
        self.output.hand_over_moved_log();
        self.over = true;
        if let Some(noted) = self.noted.take() {
            noted.over();
        }
        Ok(Ended::new(status, told, &mut self.output))
    }

    async fn stop(&mut self) -> io::Result<ExitStatus> {
        let deadline = deadline_after(Instant::now(), self.grace);
        self.group.terminate();
        let polite = tokio::time::timeout_at(deadline, self.child.wait());
        let status = match self.output.beside(polite).await {
            Ok(status) => status?,
            Err(_) => {
                self.group.kill();
                self.output.beside(self.child.wait()).await?
            }
        };
        self.clear(deadline).await;
        Ok(status)
    }

    /// Sees those who outlive the leader to their end. They may still write, and a pipe that is full
    /// would keep them from ending.
    async fn clear(&mut self, deadline: Instant) {
        let mut pauses = Pauses::new();
        let mut patience = Some(deadline + PATIENCE);
        let group = self.group;
        while !self.output.beside(group.is_gone()).await {
            let now = Instant::now();
            if now >= deadline {
                // Again each time: one may have been about to be born.
                group.kill_rest();
            }
            if patience.is_some_and(|patience| now >= patience) {
                patience = None;
                if gives_up(group) {
                    return;
                }
            }
            self.output.beside(tokio::time::sleep(pauses.next())).await;
        }
    }
}

/// Where the dead that nobody reaps cannot be told from the living, they are not waited for.
fn gives_up(group: Group) -> bool {
    tracing::warn!(group = group.number(), "a command does not end although it was killed");
    !cfg!(target_os = "linux")
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // The runtime reaps the leader. The notes stay: nobody has seen the group empty.
        match self.child.id() {
            Some(_) => self.group.kill(),
            None => self.group.kill_rest(),
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code or signal.
    pub(crate) status: ExitStatus,
    /// It was told to stop before it had ended.
    pub(crate) told: bool,
    /// The last 64 KiB of standard output.
    pub(crate) stdout: Vec<u8>,
    /// There was more.
    pub(crate) stdout_truncated: bool,
    /// The last 8 KiB of both streams.
    pub(crate) tail: Vec<u8>,
    /// Whether there is a log: it has written something.
    pub(crate) logged: bool,
    /// So many bytes are not in the log: for lack of room, or because of the error.
    pub(crate) log_dropped: u64,
    /// Why the log ends early.
    pub(crate) log_error: Option<io::Error>,
}

impl Ended {
    fn new(status: ExitStatus, told: bool, output: &mut Output) -> Self {
        let kept = output.take();
        let logged = kept.log.as_ref().is_some_and(Log::is_there);
        let (log_dropped, log_error) = kept.log.map_or((0, None), |log| (log.dropped, log.error));
        Ended {
            status,
            told,
            stdout_truncated: kept.stdout.is_truncated(),
            stdout: kept.stdout.into_bytes(),
            tail: kept.tail.into_bytes(),
            logged,
            log_dropped,
            log_error,
        }
    }

    /// What a task of this command returns. Exit code 0 is success, unless it was told to stop: then
    /// that is no more than good manners.
    pub(crate) fn into_result(self, log: Option<PathBuf>) -> Result<Finished, Failed> {
        match self.status.code() {
            Some(code @ 0) if !self.told => {
                let stdout = String::from_utf8_lossy(&self.stdout).into_owned();
                Ok(Finished { code, stdout, stdout_truncated: self.stdout_truncated, log })
            }
            _ => Err(Failed { status: self.status, tail: self.tail, log }),
        }
    }
}

/// A command ended otherwise than with exit code 0, or was told to.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) status: ExitStatus,
    /// The last it wrote.
    pub(crate) tail: Vec<u8>,
    /// Where all of it is.
    pub(crate) log: Option<PathBuf>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "the command ended with exit code {code}")?,
            (None, Some(signal)) => write!(f, "the command was ended by signal {signal}")?,
            (None, None) => write!(f, "the command ended with {}", self.status)?,
        }
        if let Some(log) = &self.log {
            write!(f, " (log: {})", log.display())?;
        }
        let last = String::from_utf8_lossy(&self.tail);
        match last.trim() {
            "" => Ok(()),
            last => write!(f, "; it last wrote: {last}"),
        }
    }
}

impl std::error::Error for Failed {}
