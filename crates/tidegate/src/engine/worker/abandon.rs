//! The end of a loop that panicked.
//!
//! Nothing in the loop is meant to panic. If it does all the same, the engine is over while its process
//! lives on, and with it the lock by which others tell that the worker lives. So what the worker has
//! begun is stopped, and the worker dismissed: others take its tasks over as if its process had died.

use super::Worker;
use crate::engine::shutdown::AFTER_TELLING;
use crate::error::Panic;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How often the worker looks whether its bodies are gone.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Worker {
    pub(super) async fn abandon_tasks(self, panic: &Panic) {
        tracing::error!(%panic, "the loop of the engine panicked; its tasks are left to other workers");
        let (store, id) = (self.shared.store.clone(), self.id);
        let stopped = self.entries.values().map(|live| {
            live.entry.cancel();
            live.abort.abort();
            live.abort.clone()
        });
        let stopped: Vec<AbortHandle> = stopped.collect();
        // Those who wait for runs are told, and submits refused.
        drop(self);
        // No task is taken over while its body goes on here, except one that blocks its thread.
        let until = Instant::now() + AFTER_TELLING;
        while !stopped.iter().all(AbortHandle::is_finished) && Instant::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if let Err(error) = store.dismiss(id).await {
            tracing::warn!(%error, "cannot sign off; its tasks wait until its process ends");
        }
    }
}
