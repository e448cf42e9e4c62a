//! What a command writes: copied into its log as it arrives, the last part kept in memory.
//!
//! Two pipes are read, because standard output is also a result; between them the order is that of
//! arrival, as near as two pipes allow, unless the command is to have one for both. Bytes are copied,
//! never looked at. The log is written by plain calls: a write of at most [`CHUNK`] bytes goes to the
//! system's cache and is over in microseconds, less than handing it to another thread would cost, and
//! a log has an upper bound.

use super::overflow::LogOverflow;
use rustix::fs::Access;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::future::poll_fn;
use std::io::{self, ErrorKind, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{ChildStderr, ChildStdout};

/// Read at once, on the stack: between two reads a command holds no buffer.
const CHUNK: usize = 32 * 1024;

/// Rounds of reading before others get their turn: a command that writes without end must not keep
/// its end, or the order to stop it, from being seen.
const ROUNDS: usize = 16;

/// Kept of both streams together, for messages.
const TAIL_MAX: usize = 8 * 1024;

/// Kept of standard output, for the result.
const STDOUT_MAX: usize = 64 * 1024;

pub(super) struct Output {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    kept: Kept,
}

/// What is left of the output when the command is over.
pub(super) struct Kept {
    pub(super) stdout: Tail,
    pub(super) tail: Tail,
    pub(super) log: Option<Log>,
    /// Where that goes which the log cannot hold, and whether there was some.
    overflow: Option<Arc<dyn LogOverflow>>,
    overflows: bool,
}

impl Output {
    pub(super) fn new(
        stdout: Option<ChildStdout>,
        stderr: Option<ChildStderr>,
        log: Option<Log>,
        overflow: Option<Arc<dyn LogOverflow>>,
    ) -> Self {
        let (stdout_tail, tail) = (Tail::new(STDOUT_MAX), Tail::new(TAIL_MAX));
        let kept = Kept { stdout: stdout_tail, tail, log, overflow, overflows: false };
        Output { stdout, stderr, kept }
    }

    /// Copies while the future is under way.
    ///
    /// # Cancel safety
    /// What was read has been copied.
    pub(super) async fn beside<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let answer = future.as_mut().poll(cx);
            if answer.is_pending() {
                self.poll_copy(cx);
            }
            answer
        })
        .await
    }

    fn poll_copy(&mut self, cx: &mut Context<'_>) {
        let Output { stdout, stderr, kept } = self;
        for _ in 0..ROUNDS {
            if kept.is_full(cx) {
                return;
            }
            let more = poll_pipe(stdout, cx, |bytes| kept.take(bytes, true));
            let more = poll_pipe(stderr, cx, |bytes| kept.take(bytes, false)) || more;
            if !more {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }

    /// Takes what is in the pipes at this moment and closes them. Everything that the leader wrote
    /// before its end is there; what others write later, be it without end, is not waited for.
    pub(super) fn finish(&mut self) {
        let Output { stdout, stderr, kept } = self;
        if let Some(pipe) = stdout.take() {
            drain(&pipe, |bytes| kept.take(bytes, true));
        }
        if let Some(pipe) = stderr.take() {
            drain(&pipe, |bytes| kept.take(bytes, false));
        }
    }

    /// A log that is not where it should be is handed over: nobody would find what is in it.
    pub(super) fn hand_over_moved_log(&mut self) {
        if !self.kept.overflows {
            self.kept.hand_over_moved_log();
        }
    }

    pub(super) fn take(&mut self) -> Kept {
        std::mem::take(&mut self.kept)
    }
}

impl Kept {
    fn take(&mut self, bytes: &[u8], from_stdout: bool) {
        if let Some(log) = &mut self.log {
            let written = log.write(bytes);
            if written < bytes.len() {
                self.put_overflow(&bytes[written..]);
            }
        }
        if from_stdout {
            self.stdout.push(bytes);
        }
        self.tail.push(bytes);
    }

    /// Whether nothing is to be read, because there is no room for what the log cannot hold.
    fn is_full(&self, cx: &mut Context<'_>) -> bool {
        let overflow = self.overflow.as_ref().filter(|_| self.overflows);
        overflow.is_some_and(|overflow| overflow.poll_room(cx).is_pending())
    }

    fn put_overflow(&mut self, bytes: &[u8]) {
        if !std::mem::replace(&mut self.overflows, true) {
            self.hand_over_moved_log();
            if let (Some(overflow), Some(log)) = (&self.overflow, &self.log) {
                let too_large = || io::Error::from(ErrorKind::FileTooLarge);
                let error = log.error.as_ref().map_or_else(too_large, copy_error);
                overflow.log_failed(&log.path, &error);
            }
        }
        if let (Some(overflow), Some(log)) = (&self.overflow, &self.log) {
            overflow.put(&log.path, bytes);
        }
    }

    fn hand_over_moved_log(&mut self) {
        let Kept { log: Some(log), overflow: Some(overflow), .. } = self else { return };
        if let Some(file) = log.moved_file() {
            overflow.log_moved(&log.path, file);
        }
    }
}

/// The same once more.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

impl Default for Kept {
    fn default() -> Self {
        let (stdout, tail) = (Tail::new(0), Tail::new(0));
        Kept { stdout, tail, log: None, overflow: None, overflows: false }
    }
}

/// One read; whether there may be more at once. At its end, or on an error, the pipe is closed.
fn poll_pipe<P: AsyncRead + Unpin>(
    pipe: &mut Option<P>,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]),
) -> bool {
    let Some(open) = pipe else { return false };
    let mut bytes = [MaybeUninit::uninit(); CHUNK];
    let mut bytes = ReadBuf::uninit(&mut bytes);
    match Pin::new(open).poll_read(cx, &mut bytes) {
        Poll::Pending => false,
        Poll::Ready(Ok(())) if !bytes.filled().is_empty() => {
            take(bytes.filled());
            true
        }
        Poll::Ready(_) => {
            *pipe = None;
            false
        }
    }
}

/// Reads as much as the pipe holds at this moment. The system is asked directly: the runtime may
/// not have heard yet that there is something.
fn drain(pipe: impl AsFd, mut take: impl FnMut(&[u8])) {
    let mut left = rustix::io::ioctl_fionread(&pipe).unwrap_or(0);
    let mut bytes = [0; CHUNK];
    while left > 0 {
        let upto = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
        match rustix::io::retry_on_intr(|| rustix::io::read(&pipe, &mut bytes[..upto])) {
            Ok(length) if length > 0 => {
                take(&bytes[..length]);
                left = left.saturating_sub(length as u64);
            }
            _ => return,
        }
    }
}

/// The last bytes of a stream.
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    max: usize,
    truncated: bool,
}

impl Tail {
    fn new(max: usize) -> Self {
        Tail { bytes: VecDeque::new(), max, truncated: false }
    }

    fn push(&mut self, bytes: &[u8]) {
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.max);
        self.truncated |= excess > 0;
        self.bytes.drain(..excess.min(self.bytes.len()));
        self.bytes.extend(&bytes[bytes.len().saturating_sub(self.max)..]);
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes.into()
    }
}

/// The log of one command: everything it writes, up to a bound.
///
/// What does not fit, or cannot be written because of an error, is counted and dropped; the command
/// goes on. The file is made for the first byte: most commands write nothing, and to make a file takes
/// longer than to start some of them.
pub(super) struct Log {
    path: PathBuf,
    file: Option<File>,
    room: u64,
    pub(super) dropped: u64,
    pub(super) error: Option<io::Error>,
}

impl Log {
    /// A log in this file, for our eyes only like the folders above it, which are made. One that is
    /// there is removed.
    ///
    /// # Errors
    /// There cannot be such a file.
    pub(super) fn create(path: &Path, max: u64) -> io::Result<Log> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(parent) = path.parent() {
            match rustix::fs::access(parent, Access::WRITE_OK | Access::EXEC_OK) {
                Err(Errno::NOENT) => create_folder(parent)?,
                usable => {
                    usable?;
                    super::check_folder(parent)?;
                }
            }
        }
        Ok(Log { path: path.to_owned(), file: None, room: max, dropped: 0, error: None })
    }

    /// Whether there is a file.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// The file, from its beginning, if it is not at its path.
    fn moved_file(&self) -> Option<File> {
        let file = self.file.as_ref()?;
        let (ours, there) = (file.metadata().ok()?, fs::symlink_metadata(&self.path));
        let is_it = |there: fs::Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
        match there.is_ok_and(is_it) {
            true => None,
            false => {
                let mut file = file.try_clone().ok()?;
                file.rewind().ok().map(|()| file)
            }
        }
    }

    /// Writes what it can of this; how much that is, and why it is not all.
    fn append(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        let file = match self.open() {
            Ok(file) => file,
            Err(error) => return (written, Err(error)),
        };
        while written < bytes.len() {
            match file.write(&bytes[written..]) {
                Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    fn open(&mut self) -> io::Result<&mut File> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = OpenOptions::new();
                // New: a link that somebody has put there since is not followed.
                options.read(true).write(true).create_new(true).mode(0o600);
                let file = options.open(&self.path)?;
                // Whatever the umask takes away.
                file.set_permissions(PermissionsExt::from_mode(0o600))?;
                none.insert(file)
            }
        };
        Ok(file)
    }

    /// Writes this, and says how much of it there was room for.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let fits = bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        let (written, done) = match self.error {
            None => self.append(&bytes[..fits]),
            // A gap in the middle would be worse than an early end.
            Some(_) => (0, Ok(())),
        };
        if let Err(error) = done {
            self.error = Some(error);
        }
        self.room = self.room.saturating_sub(written as u64);
        self.dropped += (bytes.len() - written) as u64;
        written
    }
}

/// Creates a folder, and those above it, for our eyes only, whatever the umask takes away.
fn create_folder(path: &Path) -> io::Result<()> {
    match (DirBuilder::new().mode(0o700).create(path), path.parent()) {
        (Ok(()), _) => std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)),
        (Err(error), Some(parent)) if error.kind() == ErrorKind::NotFound => {
            create_folder(parent)?;
            create_folder(path)
        }
        // Somebody else may be just about to write there too.
        (Err(error), _) if error.kind() == ErrorKind::AlreadyExists => super::check_folder(path),
        (Err(error), _) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_last_bytes_however_they_arrive() {
        for step in 1..12 {
            let mut tail = Tail::new(4);
            b"0123456789".chunks(step).for_each(|bytes| tail.push(bytes));
            assert!(tail.is_truncated());
            assert_eq!(tail.into_bytes(), b"6789", "in steps of {step}");
        }
    }

    #[test]
    fn what_is_written_during_the_last_reading_is_not_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"leader").unwrap();
        let mut taken = Vec::new();
        drain(&reader, |bytes| {
            taken.extend_from_slice(bytes);
            assert_eq!(taken, b"leader");
            writer.write_all(b"others").unwrap();
        });
        assert_eq!(taken, b"leader");
    }

    #[test]
    fn link_in_place_of_a_log_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("run/log"), folder.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        let mut log = Log::create(&path, 100).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        log.write(b"output");
        assert!(log.error.is_some());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        // One that is there before is taken away, and what it leads to is not.
        Log::create(&path, 100).unwrap().write(b"output");
        assert_eq!(fs::read(&path).unwrap(), b"output");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn folder_of_logs_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, PermissionsExt::from_mode(0o777)).unwrap();
        let error = Log::create(&run.join("log"), 100).err().unwrap().to_string();
        assert!(error.contains("other users may write to it (its mode is 0777)"), "{error}");
    }

    #[test]
    fn a_tail_that_is_just_full_is_whole() {
        let mut tail = Tail::new(4);
        tail.push(b"01");
        tail.push(b"23");
        assert!(!tail.is_truncated());
        assert_eq!(tail.into_bytes(), b"0123");
    }
}
