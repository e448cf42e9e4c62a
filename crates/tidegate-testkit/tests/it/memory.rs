//! The memory store does what every store must do.

use std::sync::Arc;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::memory::MemoryStore;
use tidegate_core::store::Store;
use tidegate_testkit::{Harness, Later, conformance};

struct Memory(Arc<MemoryStore>);

impl Harness for Memory {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn kill(&self, worker: WorkerId) {
        self.0.kill(worker);
    }

    /// What is in memory is closed with its process.
    fn reopen(&mut self) -> Later<'_, ()> {
        Box::pin(async {})
    }
}

conformance!(memory, async || Memory(Arc::default()));
