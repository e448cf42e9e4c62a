//! Reasons why a store cannot be opened.

use crate::error::DescribedError;
use std::error::Error as StdError;
use std::fmt;
use tokio_postgres::error::SqlState;

/// The reason why a PostgreSQL store cannot be opened, with advice.
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "server is the URL without its password; the rest says so itself")]
pub enum PostgresOpenError {
    /// The URL cannot be understood.
    InvalidUrl { reason: String },
    /// No connection to the server can be made.
    Unreachable { server: String, source: tokio_postgres::Error },
    /// The server does not let this user in.
    WrongPassword { server: String, source: tokio_postgres::Error },
    /// The database does not exist.
    NoDatabase { server: String, source: tokio_postgres::Error },
    /// The role may not create the tables, or may not use them.
    NoRights { server: String, reason: String },
    /// The server is older than the first version that can be used.
    TooOld { server: String, found: String },
    /// The encoding of the database is not UTF-8.
    NotUtf8 { server: String, encoding: String },
    /// The server does not take writes: it is a standby, or set so.
    ReadOnly { server: String },
    /// A pooler stands before the server and gives each transaction another connection.
    Pooler { server: String },
    /// The schema has tables of another program.
    Foreign { server: String, schema: String },
    /// The tables were made before this program could use PostgreSQL.
    Unfinished { server: String, found: i32, known: i32 },
    /// The tables were made by a later version of this program.
    Newer { server: String, found: i32, known: i32 },
    /// Another reason.
    Failed { server: String, source: Box<dyn StdError + Send + Sync> },
}

impl PostgresOpenError {
    /// The reason that a failure of the store tells, while it is opened.
    pub(crate) fn from_store(server: &str, error: crate::error::Error) -> Self {
        match error {
            crate::error::Error::Open(error) => *error,
            crate::error::Error::Postgres(source) => Self::from_connection(server, source),
            other => {
                PostgresOpenError::Failed { server: server.to_owned(), source: Box::new(other) }
            }
        }
    }

    /// The reason that an error of the first connection, or of the first statements, tells.
    pub(crate) fn from_connection(server: &str, source: tokio_postgres::Error) -> Self {
        let server = server.to_owned();
        let Some(code) = source.code() else {
            return PostgresOpenError::Unreachable { server, source };
        };
        let is_password =
            [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION];
        if is_password.contains(code) {
            PostgresOpenError::WrongPassword { server, source }
        } else if *code == SqlState::INVALID_CATALOG_NAME {
            PostgresOpenError::NoDatabase { server, source }
        } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            let reason = source.as_db_error().map_or_else(String::new, |e| e.message().to_owned());
            PostgresOpenError::NoRights { server, reason }
        } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            PostgresOpenError::ReadOnly { server }
        } else {
            let source = Box::new(crate::error::Error::Postgres(source));
            PostgresOpenError::Failed { server, source }
        }
    }
}

impl fmt::Display for PostgresOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostgresOpenError::InvalidUrl { reason } => write!(f, "invalid URL: {reason}"),
            PostgresOpenError::Unreachable { server, source } => {
                let source = DescribedError(source);
                write!(f, "{server}: {source}; check host and port, and that the server runs")
            }
            PostgresOpenError::WrongPassword { server, source }
            | PostgresOpenError::NoDatabase { server, source } => {
                write!(f, "{server}: {}", DescribedError(source))
            }
            PostgresOpenError::NoRights { server, reason } => {
                write!(
                    f,
                    "{server}: {reason}; the role needs CREATE on the database to make the "
                )?;
                f.write_str(
                    "schema, or USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on all of its tables",
                )
            }
            PostgresOpenError::TooOld { server, found } => {
                write!(f, "{server}: the server is PostgreSQL {found}; use version 13 or later")
            }
            PostgresOpenError::NotUtf8 { server, encoding } => {
                write!(f, "{server}: the encoding of the database is {encoding}; use a database ")?;
                f.write_str("that was created with ENCODING 'UTF8'")
            }
            PostgresOpenError::ReadOnly { server } => {
                write!(
                    f,
                    "{server}: the server does not take writes; name the primary server, or "
                )?;
                f.write_str("all of them with target_session_attrs=read-write")
            }
            PostgresOpenError::Pooler { server } => {
                write!(
                    f,
                    "{server}: no notification arrives: a connection pooler stands before the "
                )?;
                f.write_str(
                    "server and gives each transaction another connection; connect to the server itself, or set the pooler to session mode",
                )
            }
            PostgresOpenError::Foreign { server, schema } => {
                write!(
                    f,
                    "{server}: the schema \"{schema}\" has tables of another program; name "
                )?;
                f.write_str("another one with schema=NAME in the URL")
            }
            PostgresOpenError::Unfinished { server, found, known } => {
                write!(
                    f,
                    "{server} has schema version {found}, which an unfinished version of tidegate "
                )?;
                write!(
                    f,
                    "has made, and this program needs version {known}; drop the schema, or "
                )?;
                f.write_str("name another one with schema=NAME in the URL")
            }
            PostgresOpenError::Newer { server, found, known } => {
                write!(
                    f,
                    "{server} has schema version {found}, and this program knows versions up "
                )?;
                write!(f, "to {known}; use the version of tidegate that has written it, or a later")
            }
            PostgresOpenError::Failed { server, source } => write!(f, "{server}: {source}"),
        }
    }
}

impl StdError for PostgresOpenError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            PostgresOpenError::Unreachable { source, .. }
            | PostgresOpenError::WrongPassword { source, .. }
            | PostgresOpenError::NoDatabase { source, .. } => Some(source),
            PostgresOpenError::Failed { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
