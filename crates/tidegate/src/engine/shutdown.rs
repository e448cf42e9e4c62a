//! Stopping in good order.

use std::io;
use std::time::Duration;
use tidegate_core::RunId;
use tokio::sync::watch;

/// What a body has after it was told, before it is dropped.
pub(super) const AFTER_TELLING: Duration = Duration::from_secs(5);

/// After the grace, how long a worker waits for its bodies to go and for the store to take their
/// ends: [`AFTER_TELLING`], and four seconds for the store.
pub(super) const GIVE_UP_AFTER: Duration = Duration::from_secs(9);

/// The same where nothing has any grace.
pub(super) const GIVE_UP_NOW: Duration = Duration::from_secs(4);

/// How long a worker that is done waits for the store to take it off its list.
pub(super) const SIGN_OFF_MAX: Duration = Duration::from_secs(8);

/// So much of it is left when a worker gives up.
pub(super) const SIGN_OFF_RESERVE: Duration = Duration::from_secs(1);

/// Tasks that a report names as not stored; the rest is counted.
pub(super) const UNSTORED_MAX: usize = 1_000;

/// How an engine is to stop. A duration is one: the grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    pub(super) grace: Duration,
    pub(super) finishes_waits: bool,
}

impl Shutdown {
    /// What computes has so long to end; what waits is handed back at once.
    pub fn new(grace: Duration) -> Self {
        Shutdown { grace, finishes_waits: false }
    }

    /// What waits for something that is known to be over within the grace (a sleep, a time-out) may
    /// wait on and end.
    #[must_use]
    pub fn finish_waits(mut self) -> Self {
        self.finishes_waits = true;
        self
    }
}

impl From<Duration> for Shutdown {
    fn from(grace: Duration) -> Self {
        Shutdown::new(grace)
    }
}

/// How far a shutdown is. Whoever looks later sees it too.
#[derive(Debug, Clone, Default)]
pub(super) enum Stage {
    #[default]
    Open,
    Closing,
    Closed(ShutdownReport),
}

/// What became of a worker's tasks when it stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many ended by themselves in the time they had.
    pub finished: u64,
    /// Those that were handed back, by run and name: they go on when the next worker takes them.
    pub handed_back: Vec<(RunId, String)>,
    /// Of these, those that had to be dropped while they computed.
    pub dropped: Vec<(RunId, String)>,
    /// Tasks of which the store is not known to have taken how they ended, or that they were handed
    /// back, because it failed or did not answer; by run and name, the first thousand. Also tasks whose
    /// body could not be stopped. The worker that takes them over enters them again, whatever was
    /// counted as finished here.
    pub unstored: Vec<(RunId, String)>,
    /// How many these are.
    pub unstored_total: u64,
    /// Why they could not be stored, in words.
    pub store_error: Option<String>,
}

pub(super) fn has_begun(stage: &watch::Sender<Stage>) -> bool {
    !matches!(*stage.borrow(), Stage::Open)
}

pub(super) async fn begun(mut stage: watch::Receiver<Stage>) {
    // A sender that is gone has shut down for good.
    let _ = stage.wait_for(|stage| !matches!(stage, Stage::Open)).await;
}

/// Returns when everything is over.
pub(super) async fn over(stage: &mut watch::Receiver<Stage>) {
    // A sender that is gone has shut down for good.
    let _ = stage.wait_for(|stage| matches!(stage, Stage::Closed(_))).await;
}

pub(super) async fn report(mut stage: watch::Receiver<Stage>) -> ShutdownReport {
    match stage.wait_for(|stage| matches!(stage, Stage::Closed(_))).await.as_deref() {
        Ok(Stage::Closed(report)) => report.clone(),
        _ => ShutdownReport::default(),
    }
}

/// Hears when the process is asked to end.
#[cfg(unix)]
pub(super) struct Asked([tokio::signal::unix::Signal; 3]);

#[cfg(unix)]
impl Asked {
    pub(super) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let [interrupt, terminate, hang_up] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Ok(Asked([signal(interrupt)?, signal(terminate)?, signal(hang_up)?]))
    }

    pub(super) async fn recv(&mut self) {
        std::future::poll_fn(|cx| {
            let heard = self.0.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if heard { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// Hears when the process is asked to end.
#[cfg(not(unix))]
pub(super) struct Asked;

#[cfg(not(unix))]
impl Asked {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Asked)
    }

    pub(super) async fn recv(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
