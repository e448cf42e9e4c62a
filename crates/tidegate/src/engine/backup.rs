//! A copy of the store.

use super::Engine;
use std::path::PathBuf;
use tidegate_core::store::StoreError;

impl Engine {
    /// Makes a copy of the store at this path, as it is at one instant, while workers go on. It
    /// appears under its name when it is whole, readable by its owner only.
    ///
    /// The copy is a store of its own: whoever starts an engine on it finds all that was stored, takes
    /// the workers it names for dead, and runs what they had begun. The logs of commands are not in
    /// it, and commands of the original are left alone.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop it.
    ///
    /// # Errors
    /// Something is there already, or the folder is not; the store is in memory; the copy cannot be
    /// written. Nothing is left of it then.
    pub async fn backup(&self, to: impl Into<PathBuf>) -> Result<(), StoreError> {
        self.shared.files.back_up(to.into()).await
    }
}
