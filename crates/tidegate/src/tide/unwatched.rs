//! A file that is looked at at intervals only: the file system is not asked to tell.

use super::Tide;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_core::chain::Key;
use tokio::time::Instant;

/// A file that is looked at.
#[derive(Clone)]
pub(crate) struct Watch(Arc<PathBuf>);

impl Watch {
    pub(crate) fn new(path: &Path) -> Self {
        Watch(Arc::new(path.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn renew(&self) -> bool {
        false
    }

    pub(crate) fn look_again(&self, _: Option<Instant>) {}

    pub(super) fn bind(&self, _: &Arc<Tide>, _: Key) {}

    pub(super) fn unbind(&self) {}

    pub(super) fn begin(&self, _: Instant) {}

    pub(super) fn next_look(&self, due: Instant) -> Instant {
        due
    }
}
