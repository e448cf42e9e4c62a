//! Why something could not be done, and what that means for whoever asked.

use rusqlite::ErrorCode;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};
use tidegate_core::plan::InvalidPlan;
use tidegate_core::rows::Corrupt;
use tidegate_core::store::StoreError;

/// Why something could not be done.
#[derive(Debug)]
pub(crate) enum Error {
    /// The database says so.
    Sqlite(rusqlite::Error),
    /// The log could not be written to the end, so that what it has of the transaction might count
    /// after a crash.
    HalfCommitted(rusqlite::Error),
    /// The file is not where it was.
    Gone,
    /// Another file is where it was.
    Replaced,
    /// A row makes no sense.
    Task { key: i64, source: Corrupt },
    /// A plan makes no sense.
    Plan { id: i64, source: InvalidPlan },
    /// A row that others name is missing.
    Missing { table: &'static str, id: i64 },
    /// The file by which a worker is known to be alive.
    Lock { file: PathBuf, source: io::Error },
    /// There is no copy at this place.
    Backup { to: PathBuf, why: io::Error },
    /// A thread could not be started.
    Thread(io::Error),
    /// It panicked.
    Panicked(String),
    /// The store was closed.
    Closed,
}

impl Error {
    /// Whether a row is damaged, while others can be read.
    pub(crate) fn is_damage(&self) -> bool {
        use rusqlite::Error as Sql;
        let Error::Sqlite(error) = self else {
            return matches!(self, Error::Task { .. } | Error::Plan { .. } | Error::Missing { .. });
        };
        matches!(error, Sql::FromSqlConversionFailure(..) | Sql::InvalidColumnType(..))
            || matches!(error, Sql::IntegralValueOutOfRange(..))
    }

    /// The error as a caller of the store at `path` sees it.
    pub(crate) fn at(self, path: &Path) -> StoreError {
        let is_corrupt = |error: &rusqlite::Error| {
            let code = error.sqlite_error_code();
            matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
        };
        let make = match &self {
            Error::Sqlite(error) if is_corrupt(error) => StoreError::Unusable,
            Error::Replaced | Error::Task { .. } | Error::Plan { .. } => StoreError::Unusable,
            Error::Missing { .. } | Error::Closed => StoreError::Unusable,
            Error::HalfCommitted(_) => StoreError::Unknown,
            Error::Sqlite(_) | Error::Gone | Error::Lock { .. } => StoreError::Failed,
            Error::Thread(_) | Error::Panicked(_) | Error::Backup { .. } => StoreError::Failed,
        };
        make(Arc::new(Trouble { path: path.to_owned(), error: self }))
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Error::Sqlite(error)
    }
}

/// Does something that may panic, which then is an error.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(Error::Panicked(text.unwrap_or("without a message").to_owned()))
    })
}

/// Whether another connection is in the way, and trying again may help.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// An error with the file it is about.
#[derive(Debug)]
struct Trouble {
    path: PathBuf,
    error: Error,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => {
                    f.write_str("there is no room left; it goes on when there is")
                }
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                    write!(f, "another process has kept it locked for too long ({error})")
                }
                Some(ErrorCode::ReadOnly) => {
                    write!(f, "it cannot be written ({error}); it and its folder have to be")
                }
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    write!(f, "it is damaged ({error}); restore it from a backup")
                }
                _ => write!(f, "{error}"),
            },
            Error::HalfCommitted(error) => write!(f, "it could not be written: {error}"),
            Error::Gone => f.write_str("it was deleted or moved while it was open; put it back"),
            Error::Replaced => {
                f.write_str("another file has taken its place while it was open; start again")
            }
            Error::Task { key, source } => write!(f, "task {key}: {source}"),
            Error::Plan { id, source } => write!(f, "plan {id}: {source}"),
            Error::Missing { table, id } => write!(f, "there is no {table} {id}"),
            Error::Lock { file, source } => {
                write!(f, "the lock file {} cannot be used: {source}", file.display())
            }
            Error::Backup { to, why } => write!(f, "it was not copied to {}: {why}", to.display()),
            Error::Thread(error) => write!(f, "no thread can be started: {error}"),
            Error::Panicked(message) => write!(f, "a panic: {message}"),
            Error::Closed => f.write_str("it was closed"),
        }
    }
}

impl StdError for Trouble {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.error {
            Error::Sqlite(error) | Error::HalfCommitted(error) => Some(error),
            Error::Task { source, .. } => Some(source),
            Error::Plan { source, .. } => Some(source),
            Error::Lock { source, .. } | Error::Thread(source) => Some(source),
            // Another error than one of the system is only words, which are said already.
            Error::Backup { why, .. } if why.get_ref().is_none() => Some(why),
            _ => None,
        }
    }
}
