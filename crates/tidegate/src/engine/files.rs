//! The files that a store keeps on this machine, beside what the engine asks of every store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Finding, StoreError};
#[cfg(feature = "sqlite")]
use tidegate_sqlite::SqliteFiles;

/// The files of a store. A store in memory, or one that the caller opened, has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreFiles {
    #[cfg(feature = "sqlite")]
    sqlite: Option<SqliteFiles>,
    /// The folder of a store on another machine, for the notes and logs of this one.
    state_folder: Option<PathBuf>,
}

#[cfg(feature = "sqlite")]
impl From<SqliteFiles> for StoreFiles {
    fn from(files: SqliteFiles) -> Self {
        StoreFiles { sqlite: Some(files), state_folder: None }
    }
}

impl StoreFiles {
    /// The files of a store on another machine: a folder named by the store's id, in the state folder of
    /// the user, made if it is missing. A user without such a folder has none.
    ///
    /// # Errors
    /// The folder cannot be made.
    #[cfg(feature = "postgres")]
    pub(crate) fn in_state_folder(store: u64) -> Result<Self, NoStateFolder> {
        let variable = |name| {
            std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
        };
        let state =
            variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
        let folder = state.map(|state| state.join("tidegate").join(format!("{store:016x}")));
        if let Some(folder) = &folder {
            make_folder(&folder.join(WORKERS)).map_err(|source| {
                let folder = folder.clone();
                NoStateFolder { folder, source }
            })?;
        }
        Ok(StoreFiles { state_folder: folder, ..StoreFiles::default() })
    }

    /// The file in which a worker notes the commands that it has begun, for the process that takes over
    /// from it.
    pub(crate) fn notes_of(&self, worker: WorkerId) -> Option<PathBuf> {
        #[cfg(feature = "sqlite")]
        if let Some(files) = &self.sqlite {
            return Some(files.notes_of(worker));
        }
        let folder = self.state_folder.as_ref()?;
        Some(folder.join(WORKERS).join(format!("{}.notes", worker.0)))
    }

    /// The folder for the output of commands, unless the user names another.
    pub(crate) fn logs_folder(&self) -> Option<PathBuf> {
        #[cfg(feature = "sqlite")]
        if let Some(files) = &self.sqlite {
            return Some(files.logs_folder());
        }
        self.state_folder.as_ref().map(|folder| folder.join("logs"))
    }

    /// Every damage of the files that the store can find by itself.
    pub(crate) async fn check_files(&self) -> Result<Vec<Finding>, StoreError> {
        #[cfg(feature = "sqlite")]
        if let Some(files) = &self.sqlite {
            return files.check_files().await;
        }
        Ok(Vec::new())
    }

    /// Writes a copy of the store.
    pub(crate) async fn back_up(&self, to: PathBuf) -> Result<(), StoreError> {
        #[cfg(feature = "sqlite")]
        if let Some(files) = &self.sqlite {
            return files.back_up(to).await;
        }
        Err(StoreError::Failed(Arc::new(NoFile { to, is_remote: self.state_folder.is_some() })))
    }
}

/// The folder with the notes of workers.
const WORKERS: &str = "workers";

/// Makes a folder that only the user can look into, with those above it.
#[cfg(feature = "postgres")]
fn make_folder(folder: &std::path::Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// The folder for notes and logs cannot be made.
#[cfg(feature = "postgres")]
#[derive(Debug)]
pub(crate) struct NoStateFolder {
    folder: PathBuf,
    source: std::io::Error,
}

#[cfg(feature = "postgres")]
impl fmt::Display for NoStateFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        write!(
            f,
            "cannot make the folder {folder} for notes and logs; set XDG_STATE_HOME to another"
        )
    }
}

#[cfg(feature = "postgres")]
impl std::error::Error for NoStateFolder {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// There is no file to copy.
#[derive(Debug)]
struct NoFile {
    to: PathBuf,
    /// Whether the store is on another machine.
    is_remote: bool,
}

impl fmt::Display for NoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.to.display();
        let why = if self.is_remote {
            "the store is not a file; use the server's own tools, such as pg_dump"
        } else {
            "a store in memory cannot be backed up; use one in a file"
        };
        write!(f, "cannot back up to {to}: {why}")
    }
}

impl std::error::Error for NoFile {}
