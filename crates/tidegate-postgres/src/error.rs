//! Failures of the store, and their meaning for the caller.

use crate::open_error::PostgresOpenError;
use deadpool_postgres::{HookError, PoolError, TimeoutType};
use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io};
use tidegate_core::plan::InvalidPlan;
use tidegate_core::rows::Corrupt;
use tidegate_core::store::StoreError;
use tokio_postgres::error::{DbError, SqlState};

pub(crate) use PostgresError as Error;

/// A failure of the store.
#[derive(Debug)]
pub(crate) enum PostgresError {
    /// The server refused a statement, or the connection to it broke.
    Postgres(tokio_postgres::Error),
    /// The connection broke while a commit was under way.
    Unknown(Box<PostgresError>),
    /// The pool has no connection to give.
    Pool(PoolError),
    /// The row of a task that contradicts itself.
    Task { key: i64, source: Corrupt },
    /// A plan that cannot be read.
    Plan { number: i64, source: InvalidPlan },
    /// A row that another one names, and that is not there.
    Missing { table: &'static str, number: i64 },
    /// The store cannot be opened.
    Open(Box<PostgresOpenError>),
    /// A thread could not be started.
    Thread(io::Error),
    /// A job panicked.
    Panicked(String),
    /// The store was closed.
    Closed,
    /// Another transaction has locked rows that this one needs.
    Contended,
    /// More records than one transaction can number.
    TooManyRecords { records: usize },
}

impl PostgresError {
    /// The failure of a COMMIT, or of a statement with a COMMIT on its way behind it: a server that refused
    /// it has not committed, and one that cannot be heard any more may have.
    pub(crate) fn after_commit(error: tokio_postgres::Error) -> Self {
        // A server that goes down in the middle of a commit may say so once the commit is on its disk.
        let is_refused = error.code().is_some_and(|code| !is_shutdown(code));
        if is_refused { error.into() } else { Self::of_unknown_outcome(error.into()) }
    }

    /// A failure after which it is not known whether the transaction was committed.
    pub(crate) fn of_unknown_outcome(error: PostgresError) -> Self {
        match error {
            PostgresError::Unknown(_) => error,
            other => PostgresError::Unknown(Box::new(other)),
        }
    }

    /// Whether another transaction was in the way, and the same request can be tried again at once.
    pub(crate) fn is_conflict(&self) -> bool {
        let retried = [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::LOCK_NOT_AVAILABLE,
            // A run id or an idempotency key that a faster transaction has inserted.
            SqlState::UNIQUE_VIOLATION,
            // A statement of an apply has found fewer rows than it was given: see apply.rs.
            SqlState::DIVISION_BY_ZERO,
        ];
        match self {
            PostgresError::Contended => true,
            // Not that of an unknown outcome: the transaction may have been committed.
            PostgresError::Postgres(error) => {
                error.code().is_some_and(|code| retried.contains(code))
            }
            _ => false,
        }
    }

    /// Whether a row is damaged, while others can be read.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            PostgresError::Task { .. } | PostgresError::Plan { .. } => true,
            PostgresError::Missing { .. } => true,
            // A column that has no such type, or that is NULL.
            PostgresError::Postgres(error) => {
                error.code().is_none() && error.to_string().starts_with("error deserializing")
            }
            _ => false,
        }
    }

    /// The failure as the caller of the store gets it; it happened at this server.
    pub(crate) fn at_server(self, server: &str) -> StoreError {
        let is_unusable = match &self {
            PostgresError::Postgres(_) => self.sql_state().is_some_and(is_beyond_repair),
            PostgresError::Task { .. } | PostgresError::Plan { .. } => true,
            PostgresError::Missing { .. } => true,
            PostgresError::Open(_) | PostgresError::Closed => true,
            PostgresError::Unknown(_) | PostgresError::Pool(_) => false,
            PostgresError::Thread(_) | PostgresError::Panicked(_) => false,
            PostgresError::Contended | PostgresError::TooManyRecords { .. } => false,
        };
        let is_unknown = matches!(self, PostgresError::Unknown(_));
        let failure = Arc::new(ServerFailure { server: server.to_owned(), error: self });
        match (is_unusable, is_unknown) {
            (true, _) => StoreError::Unusable(failure),
            (false, true) => StoreError::Unknown(failure),
            (false, false) => StoreError::Failed(failure),
        }
    }

    /// The code that the server gave a refusal.
    pub(crate) fn sql_state(&self) -> Option<&SqlState> {
        match self {
            PostgresError::Postgres(error) => error.code(),
            PostgresError::Unknown(error) => error.sql_state(),
            _ => None,
        }
    }
}

/// Whether the server ends all connections, or does not take any yet.
fn is_shutdown(code: &SqlState) -> bool {
    let codes = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::DATABASE_DROPPED,
    ];
    // 57P05: the session was idle for too long.
    codes.contains(code) || code.code() == "57P05"
}

/// Whether trying again cannot help: tables are missing or damaged.
fn is_beyond_repair(code: &SqlState) -> bool {
    let codes = [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::DATA_CORRUPTED,
        SqlState::INDEX_CORRUPTED,
    ];
    codes.contains(code)
}

fn find_io_error(error: &tokio_postgres::Error) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        PostgresError::Postgres(error)
    }
}

impl From<PoolError> for PostgresError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                PostgresError::Postgres(error)
            }
            other => PostgresError::Pool(other),
        }
    }
}

impl From<PostgresOpenError> for PostgresError {
    fn from(error: PostgresOpenError) -> Self {
        PostgresError::Open(Box::new(error))
    }
}

/// A failure with the server that it happened at.
#[derive(Debug)]
struct ServerFailure {
    server: String,
    error: PostgresError,
}

impl fmt::Display for ServerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            // It names the server itself.
            PostgresError::Open(error) => error.fmt(f),
            error => write!(f, "{}: {error}", self.server),
        }
    }
}

impl StdError for ServerFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostgresError::Postgres(error) => DescribedError(error).fmt(f),
            PostgresError::Unknown(error) => write!(f, "a commit was under way: {error}"),
            PostgresError::Pool(PoolError::Timeout(TimeoutType::Wait)) => f.write_str(
                "all connections of the pool were in use for longer than pool_timeout; allow more with \
                 pool=NUMBER in the URL",
            ),
            PostgresError::Pool(PoolError::Timeout(_)) => {
                f.write_str("the server took too long to answer a new connection")
            }
            PostgresError::Pool(error) => write!(f, "the pool has no connection: {error}"),
            PostgresError::Task { key, source } => write!(f, "task {key}: {source}"),
            PostgresError::Plan { number, source } => write!(f, "plan {number}: {source}"),
            PostgresError::Missing { table, number } => write!(f, "there is no {table} {number}"),
            PostgresError::Open(error) => error.fmt(f),
            PostgresError::Thread(error) => write!(f, "no thread can be started: {error}"),
            PostgresError::Panicked(message) => write!(f, "a panic: {message}"),
            PostgresError::Closed => f.write_str("it was closed"),
            PostgresError::Contended => {
                f.write_str("another transaction has locked rows that this one needs")
            }
            PostgresError::TooManyRecords { records } => write!(
                f,
                "cannot commit: {records} records in one request, at most 1048576; use smaller runs"
            ),
        }
    }
}

impl StdError for PostgresError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            PostgresError::Postgres(error) => error.source(),
            PostgresError::Unknown(error) => error.source(),
            PostgresError::Task { source, .. } => Some(source),
            PostgresError::Plan { source, .. } => Some(source),
            PostgresError::Open(error) => error.source(),
            PostgresError::Thread(error) => Some(error),
            PostgresError::Pool(error) => error.source(),
            PostgresError::Missing { .. } | PostgresError::Panicked(_) => None,
            PostgresError::Closed | PostgresError::Contended => None,
            PostgresError::TooManyRecords { .. } => None,
        }
    }
}

/// An error of the server or the connection in words, with advice where there is some.
pub(crate) struct DescribedError<'e>(pub(crate) &'e tokio_postgres::Error);

impl fmt::Display for DescribedError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(refusal) = self.0.as_db_error() else {
            return match find_io_error(self.0) {
                Some(error) => write!(f, "the server cannot be reached: {error}"),
                None if self.0.is_closed() => f.write_str("the connection was closed"),
                None => self.0.fmt(f),
            };
        };
        f.write_str(refusal.message())?;
        if let Some(detail) = refusal.detail() {
            write!(f, " ({})", detail.replace('\n', " "))?;
        }
        match advise_user(refusal) {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// The change that would help, where the server's own words do not say.
fn advise_user(refusal: &DbError) -> Option<&'static str> {
    let advice = [
        (SqlState::INVALID_PASSWORD, "check the user and the password in the URL"),
        (
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            "check the user in the URL, and pg_hba.conf of the server",
        ),
        (SqlState::INVALID_CATALOG_NAME, "create it first, or name another database in the URL"),
        (SqlState::INSUFFICIENT_PRIVILEGE, "grant the role the right, or name another user"),
        (
            SqlState::TOO_MANY_CONNECTIONS,
            "raise max_connections of the server, or lower pool=NUMBER in the URL",
        ),
        (SqlState::DISK_FULL, "work goes on when the disk of the server has room"),
        (
            SqlState::READ_ONLY_SQL_TRANSACTION,
            "name the primary server, or all of them with target_session_attrs=read-write",
        ),
        (SqlState::CANNOT_CONNECT_NOW, "work goes on when the server takes connections"),
        (SqlState::UNDEFINED_TABLE, "the tables of the store were dropped; restore a backup"),
        (SqlState::INVALID_SCHEMA_NAME, "the schema of the store was dropped; restore a backup"),
    ];
    advice.into_iter().find(|(code, _)| code == refusal.code()).map(|(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    /// These need the server for tests.
    mod postgres {
        use crate::error::Error;
        use tidegate_testkit::connect_to_postgres;

        #[tokio::test]
        async fn conflict_of_an_unknown_outcome_is_not_tried_again_as_a_new_request() {
            let client = connect_to_postgres().await;
            let refused = client.query("SELECT 1 / 0", &[]).await;
            let conflict = Error::from(refused.expect_err("a division by zero is refused"));
            assert!(conflict.is_conflict());
            let unknown = Error::of_unknown_outcome(conflict);
            assert!(unknown.sql_state().is_some() && !unknown.is_conflict());
        }
    }
}
