//! The end of an engine: because the process is told to end, or because its work is done.
//!
//! Interrupted, commands are told to stop at once; told to end, they may finish within the grace. Told
//! again, or while what was cancelled still ends, everything is dropped now.

use crate::Failure;
use crate::run::{End, unusable};
use std::time::Duration;
use tidegate::{Engine, Run, RunOutcome, ShutdownReport};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// What commands have to end when the process is told to.
const GRACE: Duration = Duration::from_secs(30);

/// What is left of a cancelled run has this to end.
const AFTER_CANCEL: Duration = Duration::from_secs(10);

/// Hears when the process is told to end.
pub(crate) struct Asked([(Signal, End); 3]);

impl Asked {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Asked([
            (signal(SignalKind::interrupt())?, End::Interrupted),
            (signal(SignalKind::terminate())?, End::Terminated),
            (signal(SignalKind::hangup())?, End::Terminated),
        ]))
    }

    pub(crate) async fn next(&mut self) -> End {
        std::future::poll_fn(|cx| {
            let heard = self
                .0
                .iter_mut()
                .find_map(|(signal, end)| signal.poll_recv(cx).is_ready().then_some(*end));
            heard.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }
}

/// The shutting down of an engine.
pub(crate) struct Stopping {
    engine: Engine,
    told: Option<End>,
    shutdown: Option<JoinHandle<ShutdownReport>>,
}

impl Stopping {
    pub(crate) fn new(engine: &Engine) -> Self {
        Stopping { engine: engine.clone(), told: None, shutdown: None }
    }

    /// The process is told to end, so.
    pub(crate) fn told(&mut self, end: End) {
        let (engine, again) = (self.engine.clone(), self.shutdown.is_some());
        let grace = if end == End::Interrupted { Duration::ZERO } else { GRACE };
        self.told.get_or_insert(end);
        self.shutdown = Some(tokio::spawn(async move {
            match again {
                true => engine.shutdown_now().await,
                false => engine.shutdown(grace).await,
            }
        }));
    }

    /// The work is done; what was cancelled may still be ending.
    pub(crate) fn done(&mut self) {
        if self.shutdown.is_none() {
            let engine = self.engine.clone();
            let shutdown = tokio::spawn(async move { engine.shutdown(AFTER_CANCEL).await });
            self.shutdown = Some(shutdown);
        }
    }

    /// Waits until the engine has stopped, once that was begun; to be waited for once.
    pub(crate) async fn stopped(&mut self) -> Option<ShutdownReport> {
        // It does not panic, and nobody aborts it.
        self.shutdown.as_mut()?.await.ok()
    }

    /// How the process was told to end, if it was.
    pub(crate) fn how_told(&self) -> Option<End> {
        self.told
    }

    /// How the run has come to its end here, whose outcome was seen or else is looked for.
    ///
    /// # Errors
    /// It cannot be told.
    pub(crate) async fn end(&self, run: &Run, outcome: Option<RunOutcome>) -> Result<End, Failure> {
        let outcome = match outcome {
            Some(outcome) => Some(outcome),
            None => run.status().await.map_err(unusable)?.outcome(),
        };
        match (outcome, self.told) {
            (Some(RunOutcome::Succeeded), _) => Ok(End::Succeeded),
            (Some(RunOutcome::Failed), _) => Ok(End::Failed),
            (Some(_), _) => Ok(End::Cancelled),
            (None, Some(told)) => Ok(told),
            (None, None) => Err(by_itself()),
        }
    }
}

/// Nobody has told the engine to stop.
pub(crate) fn by_itself() -> Failure {
    Failure::Store("the engine has stopped by itself".to_owned())
}
