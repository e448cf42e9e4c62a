//! Reasons why a database cannot be opened.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

/// Why a database cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "path is the database; the rest says so itself")]
pub enum OpenError {
    /// The folder it should be in does not exist.
    NoFolder { path: PathBuf, folder: PathBuf },
    /// It is a folder.
    IsFolder { path: PathBuf },
    /// It, or its folder, may not be read.
    NotAllowed { path: PathBuf, source: io::Error },
    /// It, or its folder, may not be written.
    ReadOnly { path: PathBuf },
    /// It is on another machine.
    OnNetwork { path: PathBuf, kind: String, mount: PathBuf },
    /// It has other names, by which other processes may use it without being seen.
    HardLinked { path: PathBuf, links: u64 },
    /// It is a file, and not a database.
    NotADatabase { path: PathBuf },
    /// It is a database, and damaged.
    Damaged { path: PathBuf },
    /// It is a database of another program; 0: which one, it does not say.
    Foreign { path: PathBuf, application_id: i64 },
    /// It was written by a later version of this program.
    Newer { path: PathBuf, found: i64, known: i64 },
    /// It is of an older version, and moving its rows needs more room than there is, in bytes.
    NoRoom { path: PathBuf, needed: u64, free: u64 },
    /// It is of an older version, and a worker of that version lives.
    OldWorker { path: PathBuf, worker: u64, name: String, pid: Option<u32> },
    /// Another process has kept it locked.
    Busy { path: PathBuf, waited: Duration },
    /// It cannot be used in the way that is needed.
    NoLog { path: PathBuf, mode: String },
    /// The SQLite that this program is linked with is too old.
    OldSqlite { found: String },
    /// Something else.
    Failed { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, what) = match self {
            OpenError::NoFolder { path, folder } => {
                (path, format!(": the folder {} does not exist; create it first", folder.display()))
            }
            OpenError::IsFolder { path } => (path, " is a folder; name a file in it".into()),
            OpenError::NotAllowed { path, source } => {
                (path, format!(": {source}; the file and its folder have to be yours to use"))
            }
            OpenError::ReadOnly { path } => {
                (path, " is read-only; the file and its folder have to be writable".into())
            }
            OpenError::OnNetwork { path, kind, mount } => {
                let what =
                    "where SQLite loses data; use a local disk, or PostgreSQL for several machines";
                let mount = mount.display();
                (path, format!(" is on a network file system ({kind} at {mount}), {what}"))
            }
            OpenError::HardLinked { path, links } => {
                let what = "and processes that use different names of one database lose each other's \
                            data; remove the others, or make a copy";
                (path, format!(" has {links} hard links, {what}"))
            }
            OpenError::NotADatabase { path } => {
                (path, " is not a database; name a new file, or a store of tidegate".into())
            }
            OpenError::Damaged { path } => (path, " is damaged; restore it from a backup".into()),
            OpenError::Foreign { path, application_id } => {
                let id = match application_id {
                    0 => String::new(),
                    id => format!(" (application id {id:#010x})"),
                };
                (path, format!(" is a database of another program{id}; name a new file"))
            }
            OpenError::Newer { path, found, known } => {
                let what = "use the version of tidegate that has written it, or a later";
                let known = format!("and this program knows versions up to {known}");
                (path, format!(" has schema version {found}, {known}; {what}"))
            }
            OpenError::NoRoom { path, needed, free } => {
                let room = format!("{needed} bytes on its file system, and {free} are free");
                (path, format!(" is of an older version; bringing it up to date needs {room}"))
            }
            OpenError::OldWorker { path, worker, name, pid } => {
                let process = pid.map_or(String::new(), |pid| format!(", process {pid}"));
                let what = "stop it first, or let it end";
                let worker = format!("worker {worker} ({name}{process}) of that version lives");
                (path, format!(" is of an older version, and {worker}; {what}"))
            }
            OpenError::Busy { path, waited } => {
                (path, format!(" was kept locked by another process for {waited:?}; try again"))
            }
            OpenError::NoLog { path, mode } => {
                let what = "and needs \"wal\"; use another file system";
                (path, format!(" can only be used with journal mode \"{mode}\", {what}"))
            }
            OpenError::OldSqlite { found } => {
                let what = "this program is linked with SQLite";
                return write!(f, "{what} {found}, and needs 3.51.3 or later");
            }
            OpenError::Failed { path, source } => (path, format!(": {source}")),
        };
        write!(f, "{}{what}", path.display())
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::NotAllowed { source, .. } => Some(source),
            OpenError::Failed { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
