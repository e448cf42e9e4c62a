//! Opening a store by its address.

use super::{Place, StartError};
use crate::engine::files::StoreFiles;
use std::sync::Arc;
use tidegate_core::memory::MemoryStore;
use tidegate_core::store::Store;

/// The addresses this build knows.
const KNOWN: &str = match (cfg!(feature = "sqlite"), cfg!(feature = "postgres")) {
    (true, true) => {
        "\"sqlite:PATH\", \"sqlite:PATH?synchronous=normal\", \"postgres://USER@HOST/DATABASE\" and \
         \"memory:\""
    }
    (true, false) => {
        "\"sqlite:PATH\", \"sqlite:PATH?synchronous=normal\" and \"memory:\" (the feature `postgres` is off)"
    }
    (false, true) => {
        "\"postgres://USER@HOST/DATABASE\" and \"memory:\" (the feature `sqlite` is off)"
    }
    (false, false) => "\"memory:\" (the features `sqlite` and `postgres` are off)",
};

/// A store that is open.
pub(super) struct OpenStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) files: StoreFiles,
    pub(super) has_clock: bool,
}

impl OpenStore {
    /// A store without files and clock, as far as is known.
    fn without_files(store: Arc<dyn Store>) -> Self {
        OpenStore { store, files: StoreFiles::default(), has_clock: false }
    }
}

/// Opens a store, unless the caller has.
pub(super) async fn open(place: Place) -> Result<OpenStore, StartError> {
    let address = match place {
        Place::Open(store) => return Ok(OpenStore::without_files(store)),
        Place::Address(address) => address,
    };
    match address.split_once(':') {
        Some(("memory", "")) => Ok(OpenStore::without_files(Arc::new(MemoryStore::new()))),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) if let Some((path, options)) = sqlite_options(path) => {
            let path = path.to_owned();
            let open = move || tidegate_sqlite::SqliteStore::open(path, options);
            match tokio::task::spawn_blocking(open).await {
                Ok(Ok(store)) => {
                    let files = store.files().into();
                    Ok(OpenStore { store: Arc::new(store), files, has_clock: true })
                }
                Ok(Err(error)) => Err(StartError::Open(Box::new(error))),
                Err(error) => Err(StartError::Open(Box::new(error))),
            }
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            match tidegate_postgres::PostgresStore::open_store(&address).await {
                Ok(store) => match StoreFiles::in_state_folder(store.store_id()) {
                    Ok(files) => Ok(OpenStore { store: Arc::new(store), files, has_clock: true }),
                    Err(error) => Err(StartError::Open(Box::new(error))),
                },
                Err(error) => Err(StartError::Open(Box::new(error))),
            }
        }
        _ => Err(StartError::Address { address, known: KNOWN }),
    }
}

/// The path of a database, and how it is to be used.
#[cfg(feature = "sqlite")]
fn sqlite_options(path: &str) -> Option<(&str, tidegate_sqlite::Options)> {
    use tidegate_sqlite::Synchronous;
    let mut options = tidegate_sqlite::Options::default();
    let path = match path.split_once('?') {
        None => path,
        Some((path, "synchronous=full")) => path,
        Some((path, "synchronous=normal")) => {
            options.synchronous = Synchronous::Normal;
            path
        }
        Some(_) => return None,
    };
    (!path.is_empty()).then_some((path, options))
}
