//! Whether the store takes what the engine has to write.

use super::shutdown::{self, Stage};
use super::{Engine, Shared};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tidegate_core::store::StoreError;
use tokio::sync::watch;

/// How an engine fares, as far as it knows itself.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct EngineHealth {
    /// Why the store has not taken the last request of the worker, which tries again; `None` while it
    /// takes them. Ends of tasks are kept in memory meanwhile, and nothing new begins.
    pub store_error: Option<StoreError>,
}

impl EngineHealth {
    /// Whether the store takes what the engine has to write.
    pub fn is_healthy(&self) -> bool {
        self.store_error.is_none()
    }
}

/// Tells each time an engine begins to fare well or badly. Made by [`Engine::health_changes`].
#[derive(Debug)]
pub struct HealthChanges {
    health: watch::Receiver<EngineHealth>,
    closing: watch::Receiver<Stage>,
}

impl HealthChanges {
    /// The next change; a slow reader gets the last. `None` when the engine has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<EngineHealth> {
        let is_new = {
            let mut changed = pin!(self.health.changed());
            let mut over = pin!(shutdown::over(&mut self.closing));
            poll_fn(|cx| match changed.as_mut().poll(cx) {
                Poll::Pending => over.as_mut().poll(cx).map(|()| false),
                Poll::Ready(changed) => Poll::Ready(changed.is_ok()),
            })
            .await
        };
        is_new.then(|| self.health.borrow_and_update().clone())
    }
}

impl Engine {
    /// How the engine fares at this moment. For a readiness probe, and for programs that tell their
    /// user why nothing goes on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = tidegate::Engine::builder("memory:").start().await?;
    /// if let Some(error) = engine.health().store_error {
    ///     eprintln!("not ready: {error}");
    /// }
    /// # engine.shutdown(std::time::Duration::ZERO).await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn health(&self) -> EngineHealth {
        self.shared.health.borrow().clone()
    }

    /// Tells of every change of [`health`](Self::health) from now on.
    pub fn health_changes(&self) -> HealthChanges {
        let (health, closing) = (self.shared.health.subscribe(), self.shared.closing.subscribe());
        HealthChanges { health, closing }
    }
}

impl Shared {
    /// Notes that the store fails, or takes requests again. An error while it fails already is no
    /// change.
    pub(super) fn note_store_health(&self, error: Option<StoreError>) {
        self.health.send_if_modified(|health| {
            let is_change = health.store_error.is_some() != error.is_some();
            if is_change {
                health.store_error = error;
            }
            is_change
        });
    }
}

/// The store counts the worker as dead.
#[derive(Debug)]
pub(super) struct UnknownWorker;

impl fmt::Display for UnknownWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it does not know this worker any more, and others take its tasks over; ")?;
        f.write_str("start the engine again")
    }
}

impl std::error::Error for UnknownWorker {}

/// The store has not answered a request for this long.
#[derive(Debug)]
pub(super) struct NoAnswer(pub(super) Duration);

impl NoAnswer {
    pub(super) fn into_error(self) -> StoreError {
        StoreError::Unknown(Arc::new(self))
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer for {:?}", self.0)
    }
}

impl std::error::Error for NoAnswer {}
