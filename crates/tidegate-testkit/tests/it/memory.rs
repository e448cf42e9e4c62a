//! The memory store does what every store must do.

use std::sync::Arc;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::memory::MemoryStore;
use tidegate_core::store::Store;
use tidegate_core::testing::PausePoints;
use tidegate_testkit::{ConnectHarness, Harness, Later, conformance, races};

pub(crate) struct Memory(pub(crate) Arc<MemoryStore>);

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

impl ConnectHarness for Memory {
    fn connect(&self, points: Arc<dyn PausePoints>) -> Arc<dyn Store> {
        Arc::new(self.0.connect_with(points))
    }
}

// Plain claims are left to the store; in `decisions` the suite runs with those that were decided.
conformance!(memory, async || Memory(Arc::new(MemoryStore::with_orders())));
races!(memory_races, async || Memory(Arc::default()));
