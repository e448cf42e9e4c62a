//! Doorbells: a worker hears at once of what another process has done that concerns it.
//!
//! Beside the lock file of each worker there is a named pipe. Whoever commits something that concerns
//! another worker writes a byte into its pipe, which says of what kind it was; a thread of that worker
//! reads it. A pipe and not a socket, because the path of a socket may only have some hundred bytes.
//!
//! Nothing rests on a bell: one that is not there or does not ring makes the worker see it with its
//! next look at the store. Both sides open the pipe for reading and writing, so that neither waits for
//! the other nor is ended by a signal when the other has gone.

use crate::lock::LockFolder;
#[cfg(target_os = "linux")]
use crate::private;
#[cfg(target_os = "linux")]
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{StoreError, Wakeup};
#[cfg(target_os = "linux")]
use tidegate_core::trust::FileKind;
use tokio::sync::Notify;

/// Makes the bell of a worker. Where there are no such pipes, there is none.
#[cfg(target_os = "linux")]
pub(crate) fn make(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::PermissionsExt;
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    // Whatever the umask has taken away. It was just made, in a folder that only we can write to.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn make(_: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Opens a bell, for somebody who may wait for a byte or for somebody who must not wait at all.
#[cfg(target_os = "linux")]
fn open(path: &Path, may_wait: bool) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    let pipe = private::open_kind(path, options.read(true).write(true), FileKind::Pipe)?;
    if may_wait {
        rustix::fs::fcntl_setfl(&pipe, OFlags::empty())?;
    }
    Ok(pipe)
}

#[cfg(not(target_os = "linux"))]
fn open(_: &Path, _: bool) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The bells of others, as far as they were rung.
#[derive(Debug)]
pub(crate) struct Bells {
    folder: LockFolder,
    /// `None` is a worker that has no bell.
    open: HashMap<WorkerId, Option<File>>,
}

impl Bells {
    pub(crate) fn new(folder: LockFolder) -> Self {
        Bells { folder, open: HashMap::new() }
    }

    /// Rings the bell of a worker.
    pub(crate) fn ring(&mut self, worker: WorkerId, wakeup: Wakeup) {
        let folder = &self.folder;
        let bell = self.open.entry(worker);
        let bell = bell.or_insert_with(|| open(&folder.bell_of(worker), false).ok());
        if let Some(bell) = bell {
            // One that is full is being rung already.
            let _ = bell.write(&[wakeup.to_bits()]);
        }
    }

    /// Forgets the bells of workers that have gone.
    pub(crate) fn keep(&mut self, is_known: impl Fn(WorkerId) -> bool) {
        self.open.retain(|worker, _| is_known(*worker));
    }
}

/// Who listens to the bells of the workers of this store.
#[derive(Debug)]
pub(crate) struct Ears {
    folder: LockFolder,
    of: Mutex<HashMap<WorkerId, Option<Arc<Ear>>>>,
}

/// What was heard and not asked for.
#[derive(Debug)]
struct Ear {
    pipe: File,
    heard: AtomicU8,
    told: Notify,
    closed: AtomicBool,
}

impl Ears {
    pub(crate) fn new(folder: LockFolder) -> Self {
        Ears { folder, of: Mutex::default() }
    }

    /// Returns when the bell has rung; never, if there is none.
    pub(crate) async fn hear(&self, worker: WorkerId) -> Result<Wakeup, StoreError> {
        let Some(ear) = self.ear(worker) else { return std::future::pending().await };
        loop {
            match ear.heard.swap(0, Ordering::AcqRel) {
                0 => ear.told.notified().await,
                heard => return Ok(Wakeup::from_bits(heard)),
            }
        }
    }

    fn ear(&self, worker: WorkerId) -> Option<Arc<Ear>> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.entry(worker).or_insert_with(|| listen(&self.folder.bell_of(worker))).clone()
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        let of = self.of.get_mut().unwrap_or_else(PoisonError::into_inner);
        for ear in of.drain().filter_map(|(_, ear)| ear) {
            ear.closed.store(true, Ordering::Release);
            // It waits for a byte, or has enough of them.
            let _ = (&ear.pipe).write(&[0]);
        }
    }
}

/// Starts the thread that listens to a bell.
fn listen(bell: &Path) -> Option<Arc<Ear>> {
    let started = open(bell, true).and_then(|pipe| {
        let (heard, told, closed) = Default::default();
        let ear = Arc::new(Ear { pipe, heard, told, closed });
        let thread = thread::Builder::new().name("tidegate-sqlite-bell".to_owned());
        thread.spawn({
            let ear = ear.clone();
            move || ear.listen()
        })?;
        Ok(ear)
    });
    started
        .inspect_err(|error| {
            tracing::debug!(%error, "no doorbell; what others do is seen once a second");
        })
        .ok()
}

impl Ear {
    fn listen(&self) {
        let mut bytes = [0; 4_096];
        while let Ok(count) = (&self.pipe).read(&mut bytes)
            && !self.closed.load(Ordering::Acquire)
        {
            let heard = bytes[..count].iter().fold(0, |all, byte| all | byte);
            self.heard.fetch_or(heard, Ordering::AcqRel);
            self.told.notify_one();
        }
    }
}
