//! Locks of the operating system, which end with the process that holds them.
//!
//! In a folder beside the database there is one small file for each worker, held locked as long as
//! the worker lives and never used for another one: whoever can lock it, or does not find it, knows
//! that the worker is dead. When the file was last changed tells when the worker has last given a sign
//! of life: one that is stopped or hangs keeps its lock, and an audit names it. And there is the
//! turnstile, which whoever wants to write goes through, so that a process that writes seldom gets its
//! turn beside one that writes without a pause.
//!
//! Files appear and stray ones disappear only while the database is locked for writing, so that
//! nobody removes the file of a worker that is just about to lock it.
//!
//! The folder is the user's own, and what is in it is opened as something that may be anything
//! ([`private`]). A lock that cannot be looked at is that of a worker that may be alive: its tasks stay
//! its, and those of others are seen to.
//!
//! The database file itself is never opened here: closing it would release the locks that SQLite has
//! on it in this process.

use crate::error::Error;
use crate::{bell, private};
use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::testing::PausePoints;

/// How often somebody looks whether it is its turn. Short against a transaction, long against a look.
pub(crate) const LOOK_EVERY: Duration = Duration::from_micros(300);

/// The turnstile is only for politeness: whoever holds it for longer has been stopped, and is passed.
const TURNSTILE_MAX: Duration = Duration::from_secs(1);

/// What the name of a worker's file ends with.
const SUFFIX: &str = ".lock";

/// The folder with the locks of a database.
#[derive(Debug, Clone)]
pub(crate) struct LockFolder {
    path: PathBuf,
    /// The workers that live in this process, by this store. Clones share them.
    own: Arc<Mutex<HashSet<WorkerId>>>,
}

impl LockFolder {
    /// That of the database at this place, which need not exist.
    pub(crate) fn of(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-workers");
        LockFolder { path: path.into(), own: Arc::default() }
    }

    /// Makes the folder unless it exists.
    pub(crate) fn create(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                private::check_folder(&self.path)
            }
            Err(error) => Err(error),
            // Whatever the umask takes away.
            #[cfg(unix)]
            Ok(()) => fs::set_permissions(&self.path, PermissionsExt::from_mode(0o700)),
            #[cfg(not(unix))]
            Ok(()) => Ok(()),
        }
    }

    pub(crate) fn turnstile(&self) -> io::Result<Turnstile> {
        let path = self.path.join("turnstile");
        open_lock(&path).map(|file| Turnstile { file }).map_err(|error| match error.kind() {
            io::ErrorKind::Other => {
                io::Error::other(format!("cannot use {}: {error}", path.display()))
            }
            _ => error,
        })
    }

    /// Whether the worker is alive: somebody holds its file locked.
    pub(crate) fn is_alive(&self, worker: WorkerId) -> Result<bool, Error> {
        let path = self.file_of(worker);
        let file = match private::open_file(&path, OpenOptions::new().read(true)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(Error::Lock { file: path, source }),
        };
        // Shared, so that two who look at the same time do not take each other for the worker.
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => Err(Error::Lock { file: path, source }),
        }
    }

    /// The workers of this store give a sign of life: their files were changed just now.
    pub(crate) fn give_sign(&self) {
        for &worker in self.own().iter() {
            let path = self.file_of(worker);
            let file = private::open_file(&path, OpenOptions::new().write(true));
            // Who cannot give a sign is named by an audit, and loses nothing by that.
            let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    /// The process that holds the lock of a worker, where the system tells.
    #[cfg(target_os = "linux")]
    pub(crate) fn find_holder(&self, worker: WorkerId) -> Option<u32> {
        use std::os::unix::fs::MetadataExt;
        let file = fs::symlink_metadata(self.file_of(worker)).ok()?;
        let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        let place = format!("{major:02x}:{minor:02x}:{}", file.ino());
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // A line that begins with "->" after its number waits for the lock.
        let holder = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&&*place);
            fields.get(4).filter(|_| is_it).and_then(|pid| pid.parse().ok())
        };
        locks.lines().find_map(holder)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn find_holder(&self, _: WorkerId) -> Option<u32> {
        None
    }

    /// When a worker that holds its lock has last given a sign of life; `None` if it does not.
    pub(crate) fn last_sign(&self, worker: WorkerId) -> Option<SystemTime> {
        let is_alive = matches!(self.is_alive(worker), Ok(true));
        let file = fs::metadata(self.file_of(worker)).ok().filter(|_| is_alive)?;
        file.modified().ok()
    }

    fn own(&self) -> MutexGuard<'_, HashSet<WorkerId>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the files of workers that are neither known nor alive. Only while the database is
    /// locked for writing.
    fn remove_strays(&self, is_known: impl Fn(WorkerId) -> bool) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for name in entries.flatten().map(|entry| entry.file_name()) {
            let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let Some(worker) = number.and_then(|n| n.parse().ok()).map(WorkerId) else { continue };
            if !is_known(worker) && matches!(self.is_alive(worker), Ok(false)) {
                // What cannot be removed is in nobody's way.
                let _ = fs::remove_file(self.bell_of(worker));
                let _ = fs::remove_file(self.file_of(worker));
            }
        }
    }

    /// Where a worker notes what it has begun outside the database.
    pub(crate) fn notes_of(&self, worker: WorkerId) -> PathBuf {
        self.path.join(format!("{}.notes", worker.0))
    }

    /// Where a worker is rung.
    pub(crate) fn bell_of(&self, worker: WorkerId) -> PathBuf {
        self.path.join(format!("{}.bell", worker.0))
    }

    fn file_of(&self, worker: WorkerId) -> PathBuf {
        self.path.join(format!("{}{SUFFIX}", worker.0))
    }
}

/// The files of the workers that live in this process, by this store.
#[derive(Debug)]
pub(crate) struct Locks {
    folder: LockFolder,
    held: HashMap<WorkerId, File>,
    /// Taken in a transaction that is not over.
    taken: Vec<WorkerId>,
    /// Of workers that will be forgotten once the transaction is over.
    doomed: Vec<WorkerId>,
}

impl Locks {
    pub(crate) fn new(folder: LockFolder) -> Self {
        Locks { folder, held: HashMap::new(), taken: Vec::new(), doomed: Vec::new() }
    }

    /// A worker that is about to be known is alive from here on.
    pub(crate) fn take(
        &mut self,
        worker: WorkerId,
        is_known: impl Fn(WorkerId) -> bool,
    ) -> Result<(), Error> {
        let path = self.folder.file_of(worker);
        let locked = open_lock(&path).and_then(|file| match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        });
        let file = locked.map_err(|source| Error::Lock { file: path, source })?;
        // The number is new; one of a database that was here before may have had it.
        let _ = fs::remove_file(self.folder.bell_of(worker));
        if let Err(error) = bell::make(&self.folder.bell_of(worker)) {
            tracing::debug!(%error, "no doorbell; what others do is seen once a second");
        }
        self.held.insert(worker, file);
        self.folder.own().insert(worker);
        self.taken.push(worker);
        self.folder.remove_strays(is_known);
        Ok(())
    }

    /// A worker will not be known any more.
    pub(crate) fn doom(&mut self, worker: WorkerId) {
        self.doomed.push(worker);
    }

    /// The transaction is over and counts.
    pub(crate) fn committed(&mut self) {
        self.taken.clear();
        for worker in std::mem::take(&mut self.doomed) {
            self.remove(worker);
        }
    }

    /// The transaction will be rolled back; the database is still locked for writing.
    pub(crate) fn roll_back(&mut self) {
        self.doomed.clear();
        for worker in std::mem::take(&mut self.taken) {
            self.remove(worker);
        }
    }

    fn remove(&mut self, worker: WorkerId) {
        let _ = fs::remove_file(self.folder.bell_of(worker));
        // One that cannot be removed is a stray, and removed later.
        let _ = fs::remove_file(self.folder.file_of(worker));
        self.folder.own().remove(&worker);
        self.held.remove(&worker);
    }
}

/// What whoever wants to write goes through.
#[derive(Debug)]
pub(crate) struct Turnstile {
    file: File,
}

impl Turnstile {
    /// Waits until it is free, but not for ever.
    pub(crate) fn enter(&self, points: Option<&dyn PausePoints>) -> Inside<'_> {
        let began = Instant::now();
        while matches!(self.file.try_lock(), Err(TryLockError::WouldBlock))
            && began.elapsed() < TURNSTILE_MAX
        {
            if let Some(points) = points {
                points.on_blocked();
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Inside { turnstile: self }
    }
}

/// Somebody in the turnstile; dropping it lets the next one in.
pub(crate) struct Inside<'t> {
    turnstile: &'t Turnstile,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Where there was no lock there is none to release.
        let _ = self.turnstile.file.unlock();
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = private::open_file(path, &mut options)?;
    private::make_private(&file);
    Ok(file)
}
