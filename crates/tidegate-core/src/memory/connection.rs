//! A connection to a memory store: the one lock, and the hooks of tests.

use super::{Memory, MemoryStore, Panicked};
use crate::lifecycle::WorkerId;
use crate::store::{Answer, StoreError};
use crate::testing::{Decider, PausePoints, RequestHooks};
use std::sync::{Arc, LockResult, MutexGuard, TryLockError};

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store whose requests a test decides.
    pub fn with_decider(decider: Arc<dyn Decider>) -> Self {
        let hooks = RequestHooks { decider: Some(decider), ..RequestHooks::default() };
        MemoryStore { memory: Arc::default(), hooks }
    }

    /// Another connection to the same store, whose requests stop at these points.
    pub fn connect_with(&self, points: Arc<dyn PausePoints>) -> Self {
        let hooks = RequestHooks { points: Some(points), ..self.hooks.clone() };
        MemoryStore { memory: self.memory.clone(), hooks }
    }

    fn lock_memory(&self) -> LockResult<MutexGuard<'_, Memory>> {
        let Some(points) = &self.hooks.points else { return self.memory.lock() };
        match self.memory.try_lock() {
            Ok(memory) => Ok(memory),
            Err(TryLockError::Poisoned(error)) => Err(error),
            Err(TryLockError::WouldBlock) => {
                points.on_blocked();
                self.memory.lock()
            }
        }
    }

    /// The process of this worker is gone: from now on it counts as dead.
    pub fn kill(&self, worker: WorkerId) {
        if let Ok(mut memory) = self.memory.lock()
            && let Some(worker) = memory.workers.get_mut(&worker)
        {
            worker.alive = false;
        }
    }

    /// Looks at the memory, or changes it, when the answer is asked for.
    pub(super) fn with<'s, T: Send + 's>(
        &'s self,
        look: impl FnOnce(&mut Memory) -> T + Send + 's,
    ) -> Answer<'s, T> {
        Box::pin(async move {
            match self.lock_memory() {
                Ok(mut memory) => Ok(look(&mut memory)),
                Err(_) => Err(StoreError::Unusable(Arc::new(Panicked))),
            }
        })
    }
}
