//! What a worker sees when it looks at the store: what nobody has told it.
//!
//! A dead worker is named only when the commands it has left running are gone, since its tasks are
//! taken over with that.

use super::files::StoreFiles;
use std::io;
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Store, StoreError};

/// What a look at the store brings.
pub(super) struct Seen {
    pub(super) dead: Vec<WorkerId>,
    pub(super) ended: Vec<(RunId, Option<RunOutcome>)>,
}

/// Which workers are dead, and which of these runs are over: another worker may have ended them, and
/// somebody may have pruned them since, or the answer that would have said so was lost.
pub(super) async fn look(
    store: Arc<dyn Store>,
    files: StoreFiles,
    runs: Vec<RunId>,
) -> Result<Seen, StoreError> {
    let ended = if runs.is_empty() { Vec::new() } else { store.ended(runs).await? };
    let mut dead = store.dead().await?;
    #[cfg(unix)]
    for at in (0..dead.len()).rev() {
        if let Err(error) = end_commands(&files, dead[at]).await {
            tracing::warn!(%error, worker = dead[at].0, "cannot end what a dead worker has left");
            dead.remove(at);
        }
    }
    Ok(Seen { dead, ended })
}

/// Ends the commands that a dead worker has left running: none of its tasks may be run again before.
#[cfg(unix)]
pub(super) async fn end_commands(files: &StoreFiles, worker: WorkerId) -> io::Result<()> {
    let Some(notes) = files.notes_of(worker) else { return Ok(()) };
    let ended = crate::process::end_all(&notes).await?;
    if ended > 0 {
        tracing::info!(ended, worker = worker.0, "ended commands that a dead worker has left");
    }
    remove_notes(files, worker).await
}

/// Removes the notes of a worker that runs nothing any more; most have none.
pub(super) async fn remove_notes(files: &StoreFiles, worker: WorkerId) -> io::Result<()> {
    let Some(notes) = files.notes_of(worker) else { return Ok(()) };
    match tokio::fs::remove_file(notes).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
