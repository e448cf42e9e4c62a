//! Time-outs with a callback.

use crate::deadline::FAR;
use crate::error::TimedOut;
use crate::slot::guarded;
use crate::task_error::TaskError;
use std::time::Duration;

/// What a callback may return: nothing, or whether it went well.
pub trait Callback {
    /// The error, if it went badly.
    fn failure(self) -> Option<TaskError>;
}

impl Callback for () {
    fn failure(self) -> Option<TaskError> {
        None
    }
}

impl<E: Into<TaskError>> Callback for Result<(), E> {
    fn failure(self) -> Option<TaskError> {
        self.err().map(Into::into)
    }
}

/// Gives a future so much time; if it takes longer, drops it, runs the callback once and returns
/// the time-out. A failure of the callback is logged and does not hide the time-out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use std::time::Duration;
///
/// let late = tidegate::timeout_with(Duration::from_secs(1), std::future::pending::<()>(), || async {
///     println!("took too long");
/// });
/// assert_eq!(late.await.unwrap_err().limit, Duration::from_secs(1));
/// # }
/// ```
///
/// # Cancel safety
/// Dropping it drops the future, or the callback, wherever it is.
///
/// # Errors
/// [`TimedOut`] with the limit.
pub async fn timeout_with<F, C, R>(
    limit: Duration,
    future: F,
    on_timeout: C,
) -> Result<F::Output, TimedOut>
where
    F: Future,
    C: FnOnce() -> R,
    R: Future<Output: Callback>,
{
    match tokio::time::timeout(limit.min(FAR), future).await {
        Ok(output) => Ok(output),
        Err(_) => {
            // The closure is called inside the guard, so that its own panic is caught too.
            quiet(async { on_timeout().await }).await;
            Err(TimedOut { limit })
        }
    }
}

/// Runs a callback; its failure is logged.
pub(super) async fn quiet<F: Future<Output: Callback>>(callback: F) {
    match guarded(callback).await.map(Callback::failure) {
        Ok(None) => {}
        Ok(Some(error)) => tracing::warn!(%error, "the callback of a time-out failed"),
        Err(panic) => tracing::warn!(%panic, "the callback of a time-out failed"),
    }
}
