//! A world whose store is used by others at the same time.

use super::World;
use std::sync::Arc;
use tidegate_core::store::Store;

impl World {
    /// Uses this connection to the same store from now on.
    pub(crate) fn use_connection(&mut self, store: Arc<dyn Store>) {
        self.store = store;
    }

    /// Takes note of all that others have done, so that the next request is compared with that.
    pub(crate) async fn catch_up(&mut self) {
        let records = self.records().await;
        self.recorded = records.last().map_or(self.recorded, |record| record.seq);
        for (id, watched) in &mut self.watched {
            watched.view = self.store.run(*id).await.expect("a run can be looked at");
        }
        self.check_audit().await;
    }
}
