//! The files beside a database, and the work on them that takes long.

use crate::error::{Error, catch_panic};
use crate::open::Place;
use crate::{audit, backup};
use std::path::PathBuf;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Finding, StoreError};
use tokio::sync::oneshot;

/// The files of a store, as far as they are on this machine: notes and logs beside the database, and
/// the database itself as a file.
#[derive(Debug, Clone)]
pub struct SqliteFiles {
    pub(crate) place: Place,
}

impl SqliteFiles {
    /// The file in which a worker can note what it has begun outside the store, for the process that
    /// takes over from it. It goes with the worker.
    pub fn notes_of(&self, worker: WorkerId) -> PathBuf {
        self.place.locks.notes_of(worker)
    }

    /// The folder for the output of commands.
    pub fn logs_folder(&self) -> PathBuf {
        self.place.logs()
    }

    /// Every damage that SQLite finds in tables and indexes. This may take long, and the WAL is not
    /// checkpointed meanwhile.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn check_files(&self) -> Result<Vec<Finding>, StoreError> {
        self.work_apart("audit", audit::check_files).await
    }

    /// Once this returns, there is a file at this path with all that is stored, as it is at one instant,
    /// and it opens as a store of its own. Others read and write meanwhile. The workers that are known
    /// in it count as dead. A file that is there already is not touched.
    ///
    /// # Cancel safety
    /// When the future is dropped, the copy is made all the same.
    ///
    /// # Errors
    /// The path is taken, or the copy cannot be written. Nothing is left of it then.
    pub async fn back_up(&self, to: PathBuf) -> Result<(), StoreError> {
        self.work_apart("backup", move |place| backup::backup(place, &to)).await
    }

    /// Works on the whole database in a thread of its own, because that may take long.
    pub(crate) async fn work_apart<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(&Place) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let at = |error: Error| error.at(&self.place.path);
        let (answer, answered) = oneshot::channel();
        let place = self.place.clone();
        let work = move || {
            // The caller may have gone away.
            let _ = answer.send(catch_panic(|| work(&place)));
        };
        let thread = std::thread::Builder::new().name(format!("tidegate-sqlite-{name}"));
        thread.spawn(work).map_err(|error| at(Error::Thread(error)))?;
        let found: Result<Result<_, Error>, _> = answered.await;
        found.map_err(|_| at(Error::Closed))?.map_err::<StoreError, _>(at)
    }
}
