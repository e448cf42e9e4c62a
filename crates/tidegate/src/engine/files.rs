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
}

#[cfg(feature = "sqlite")]
impl From<SqliteFiles> for StoreFiles {
    fn from(files: SqliteFiles) -> Self {
        StoreFiles { sqlite: Some(files) }
    }
}

impl StoreFiles {
    /// The file in which a worker notes the commands that it has begun, for the process that takes over
    /// from it.
    pub(crate) fn notes_of(&self, worker: WorkerId) -> Option<PathBuf> {
        #[cfg(feature = "sqlite")]
        return self.sqlite.as_ref().map(|files| files.notes_of(worker));
        #[cfg(not(feature = "sqlite"))]
        {
            let _ = worker;
            None
        }
    }

    /// The folder for the output of commands, unless the user names another.
    pub(crate) fn logs_folder(&self) -> Option<PathBuf> {
        #[cfg(feature = "sqlite")]
        return self.sqlite.as_ref().map(SqliteFiles::logs_folder);
        #[cfg(not(feature = "sqlite"))]
        return None;
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
        Err(StoreError::Failed(Arc::new(NoFile { to })))
    }
}

/// There is no file to copy.
#[derive(Debug)]
struct NoFile {
    to: PathBuf,
}

impl fmt::Display for NoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.to.display();
        write!(
            f,
            "cannot back up to {to}: a store in memory cannot be backed up; use one in a file"
        )
    }
}

impl std::error::Error for NoFile {}
