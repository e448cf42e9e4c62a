//! Opening a database: whether a file can be used, and making it so.
//!
//! Nothing is changed before it is clear that the file is ours, or new.

use crate::lock::{LOOK_EVERY, LockFolder, Turnstile};
use crate::migrate::{self, Found, Migrated, Migration, MigrationProgress, OldWorker};
use crate::open_error::OpenError;
use crate::{error, mounts, private};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};
use tidegate_core::testing::PausePoints;

/// The first version of SQLite that does not lose what is written while another process resets the
/// log.
const SQLITE_MIN: i32 = 3_051_003;

/// Pages of the database that the writer keeps in memory, in KiB: the live rows and their indexes.
const CACHE_KIB: i64 = 65_536;

/// The same for those that only read.
const READER_CACHE_KIB: i64 = 8_192;

/// What the log is cut to when it begins anew.
const LOG_KEPT: i64 = 64 << 20;

/// Bytes of the header that every database begins with, unless nothing was ever written to it.
const HEADER_SIZE: u64 = 100;

/// How a database is used.
#[derive(Debug, Clone)]
pub struct Options {
    /// When what was committed is on the disk.
    pub synchronous: Synchronous,
    /// How long to wait for other processes that write, before it counts as an error.
    pub busy_timeout: Duration,
    /// The most bytes that the database file may take, a quota; none unless set. Reaching it is the
    /// same as a full disk.
    pub size_max: Option<u64>,
    /// Hears, on the thread that opens the store, how far moving the rows of an older store has come.
    pub on_migration: Option<MigrationHook>,
}

/// A function that hears how far moving the rows of an older store has come.
#[derive(Clone)]
pub struct MigrationHook(Arc<dyn Fn(MigrationProgress) + Send + Sync>);

impl MigrationHook {
    /// A hook that calls this function.
    pub fn new(hook: impl Fn(MigrationProgress) + Send + Sync + 'static) -> Self {
        MigrationHook(Arc::new(hook))
    }
}

impl fmt::Debug for MigrationHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MigrationHook").finish_non_exhaustive()
    }
}

impl Default for Options {
    /// Safe against the loss of power; five seconds; no quota.
    fn default() -> Self {
        Options {
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(5),
            size_max: None,
            on_migration: None,
        }
    }
}

/// When what was committed is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Before it is answered: it survives the loss of power.
    #[default]
    Full,
    /// A little later: it survives the death of the process, and the loss of power may take the last
    /// moments with it, but leaves nothing half-done.
    Normal,
}

/// A database that can be written.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) place: Place,
    pub(crate) turnstile: Turnstile,
    pub(crate) busy_timeout: Duration,
    /// Where a test can stop a request.
    pub(crate) points: Option<Arc<dyn PausePoints>>,
}

/// Where a database is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The whole path, without links, so that all who use it agree.
    pub(crate) path: PathBuf,
    pub(crate) locks: LockFolder,
    file: FileId,
}

impl Place {
    /// Whether the file is still the one that was opened.
    pub(crate) fn check(&self) -> Result<(), error::Error> {
        match fs::metadata(&self.path) {
            Ok(found) if file_id(&found) == self.file => Ok(()),
            Ok(_) => Err(error::Error::Replaced),
            Err(_) => Err(error::Error::Gone),
        }
    }

    /// The folder for what commands write, which need not exist.
    pub(crate) fn logs(&self) -> PathBuf {
        let mut folder = self.path.as_os_str().to_owned();
        folder.push("-logs");
        folder.into()
    }

    /// A connection that cannot write.
    pub(crate) fn open_reader(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        Ok(connection)
    }
}

/// What tells a file from another one that takes its name.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(file: &fs::Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    (file.dev(), file.ino())
}

#[cfg(not(unix))]
fn file_id(_: &fs::Metadata) -> FileId {
    (0, 0)
}

/// A hundred years: a wait that is as good as endless, and that no clock overflows by.
const BUSY_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Opens a database, and makes it if there is none.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Opened, OpenError> {
    if rusqlite::version_number() < SQLITE_MIN {
        return Err(OpenError::OldSqlite { found: rusqlite::version().to_owned() });
    }
    let opening =
        Opening { path, options, deadline: Instant::now() + options.busy_timeout.min(BUSY_MAX) };
    let place = opening.place()?;
    let connection = opening.connect(&place)?;
    let locks = &place.locks;
    locks.create().map_err(|error| opening.io(error))?;
    match private::check_folder(&place.logs()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(opening.io(error)),
        _ => {}
    }
    let turnstile = locks.turnstile().map_err(|error| opening.io(error))?;
    let inside = turnstile.enter(None);
    opening.prepare(&connection, &place)?;
    drop(inside);
    let busy_timeout = options.busy_timeout;
    Ok(Opened { connection, place, turnstile, busy_timeout, points: None })
}

/// Makes an empty file that nobody else can read, unless there is one.
///
/// To close a file releases all locks that SQLite has on it in this process. So nobody here may come
/// to open it before the one who makes it has closed it again; and one that exists is not touched.
fn create(path: &Path) -> io::Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match create_private(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes an empty file that nobody else can read.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    let mut new = OpenOptions::new();
    new.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    let file = new.open(path)?;
    // Whatever the umask takes away.
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    drop(file);
    Ok(())
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Free bytes of the file system of a folder, where the system tells.
#[cfg(unix)]
fn find_free(folder: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(folder).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(not(unix))]
fn find_free(_: &Path) -> Option<u64> {
    None
}

struct Opening<'o> {
    path: &'o Path,
    options: &'o Options,
    deadline: Instant,
}

impl Opening<'_> {
    /// Finds the file, or makes an empty one that nobody else can read.
    fn place(&self) -> Result<Place, OpenError> {
        let path = self.path.to_owned();
        let folder = folder_of(&path);
        match folder.canonicalize() {
            Ok(whole) => self.refuse_network(&whole)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::NoFolder { folder: folder.to_owned(), path });
            }
            Err(error) => return Err(self.io(error)),
        }
        if path.is_dir() {
            return Err(OpenError::IsFolder { path });
        }
        create(&path).map_err(|error| self.io(error))?;
        let path = path.canonicalize().map_err(|error| self.io(error))?;
        self.refuse_network(&path)?;
        let file = fs::metadata(&path).map_err(|error| self.io(error))?;
        self.refuse_file(&file)?;
        Ok(Place { locks: LockFolder::of(&path), file: file_id(&file), path })
    }

    fn refuse_network(&self, whole: &Path) -> Result<(), OpenError> {
        match mounts::network_of(whole) {
            Some(mounts::Network { kind, mount }) => {
                Err(OpenError::OnNetwork { path: self.path.to_owned(), kind, mount })
            }
            None => Ok(()),
        }
    }

    /// What can be told of a file without opening it. SQLite takes a file of one byte for an empty
    /// database, and would write over it.
    fn refuse_file(&self, file: &fs::Metadata) -> Result<(), OpenError> {
        let path = self.path.to_owned();
        if !file.is_file() || (1..HEADER_SIZE).contains(&file.len()) {
            return Err(OpenError::NotADatabase { path });
        }
        #[cfg(unix)]
        if let links @ 2.. = std::os::unix::fs::MetadataExt::nlink(file) {
            return Err(OpenError::HardLinked { path, links });
        }
        Ok(())
    }

    /// Connects and looks, without changing anything.
    fn connect(&self, place: &Place) -> Result<Connection, OpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connect = || Connection::open_with_flags(&place.path, flags);
        let connection = connect().map_err(|error| self.sqlite(error))?;
        connection.busy_timeout(Duration::ZERO).map_err(|error| self.sqlite(error))?;
        if connection.is_readonly("main").map_err(|error| self.sqlite(error))? {
            return Err(OpenError::ReadOnly { path: self.path.to_owned() });
        }
        let found = self.patiently(|| migrate::look(&connection))?;
        self.refuse(found)?;
        Ok(connection)
    }

    /// Sets what is to be set, and makes or brings up to date the schema.
    fn prepare(&self, connection: &Connection, place: &Place) -> Result<(), OpenError> {
        let text = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
        let mode = self.patiently(|| text("PRAGMA journal_mode = WAL"))?;
        if mode != "wal" {
            return Err(OpenError::NoLog { path: self.path.to_owned(), mode });
        }
        let synchronous = match self.options.synchronous {
            Synchronous::Full => 2,
            Synchronous::Normal => 1,
        };
        let pragmas = [
            ("synchronous", synchronous),
            ("wal_autocheckpoint", 0),
            ("journal_size_limit", LOG_KEPT),
            ("foreign_keys", 0),
            ("temp_store", 2),
            ("cache_size", -CACHE_KIB),
        ];
        for (name, value) in pragmas {
            let set = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            self.patiently(|| {
                connection.pragma(None, name, value, |_| Ok(()))?;
                // SQLite passes over what it does not understand without a word.
                let found = connection.pragma_query_value(None, name, set)?;
                assert_eq!(found, value, "SQLite knows this setting: {name}");
                Ok(())
            })?;
        }
        // A plan does not depend on values, or every other value of a LIMIT would make SQLite plan anew.
        let stable = || connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true);
        self.patiently(stable)?;
        if let Some(max) = self.options.size_max {
            let page: i64 = self
                .patiently(|| connection.pragma_query_value(None, "page_size", |row| row.get(0)))?;
            // No pages at all would mean that there is no quota.
            let pages = (i64::try_from(max).unwrap_or(i64::MAX) / page.max(1)).max(1);
            self.patiently(|| connection.pragma(None, "max_page_count", pages, |_| Ok(())))?;
        }
        // Whoever finds it up to date need not wait for those who write.
        match self.patiently(|| migrate::look(connection))? {
            Found::Ours(migrate::VERSION) => Ok(()),
            Found::Ours(1..) => {
                self.check_room(place)?;
                self.migrate_store(connection, place)?;
                // What was moved is in the log. One who reads keeps it from being folded back here.
                let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
                Ok(())
            }
            _ => self.migrate_store(connection, place),
        }
    }

    /// Checks that there is room for as much again as the database has.
    fn check_room(&self, place: &Place) -> Result<(), OpenError> {
        let needed = fs::metadata(&place.path).map_err(|error| self.io(error))?.len();
        match find_free(folder_of(&place.path)) {
            Some(free) if free < needed => {
                Err(OpenError::NoRoom { path: self.path.to_owned(), needed, free })
            }
            _ => Ok(()),
        }
    }

    fn migrate_store(&self, connection: &Connection, place: &Place) -> Result<(), OpenError> {
        let progress = |progress: MigrationProgress| {
            let MigrationProgress { done, total } = progress;
            tracing::info!(path = %self.path.display(), done, total, "moving the tasks of an older store");
            if let Some(MigrationHook(hook)) = &self.options.on_migration {
                hook(progress);
            }
        };
        let migration = Migration { locks: &place.locks, progress: &progress };
        match self.patiently(|| migration.migrate(connection))? {
            Migrated::Done(found) => self.refuse(found),
            Migrated::Refused(OldWorker { number, name, pid }) => {
                let path = self.path.to_owned();
                Err(OpenError::OldWorker { path, worker: number, name, pid })
            }
        }
    }

    fn refuse(&self, found: Found) -> Result<(), OpenError> {
        let path = self.path.to_owned();
        match found {
            Found::Ours(_) => Ok(()),
            Found::Newer(found) => Err(OpenError::Newer { path, found, known: migrate::VERSION }),
            Found::Foreign(application_id) => Err(OpenError::Foreign { path, application_id }),
            Found::Unversioned => Err(OpenError::Damaged { path }),
        }
    }

    /// Tries again while another connection is in the way. SQLite itself does not wait where it
    /// changes the journal mode.
    fn patiently<T>(&self, mut work: impl FnMut() -> rusqlite::Result<T>) -> Result<T, OpenError> {
        loop {
            match work() {
                Ok(done) => return Ok(done),
                Err(error) if error::is_busy(&error) && Instant::now() < self.deadline => {
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(error) => return Err(self.sqlite(error)),
            }
        }
    }

    fn io(&self, error: io::Error) -> OpenError {
        let path = self.path.to_owned();
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path },
            io::ErrorKind::PermissionDenied => OpenError::NotAllowed { path, source: error },
            _ => OpenError::Failed { path, source: Box::new(error) },
        }
    }

    fn sqlite(&self, error: rusqlite::Error) -> OpenError {
        let path = self.path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { path },
            Some(ErrorCode::ReadOnly) => OpenError::ReadOnly { path },
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                OpenError::NotAllowed { path, source: io::Error::other(error) }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                OpenError::Busy { path, waited: self.options.busy_timeout }
            }
            _ => OpenError::Failed { path, source: Box::new(error) },
        }
    }
}
