//! Pure functions of core over many rows: explanations and audits.
//!
//! They ask for one want after the other and expect each to be answered at once. So they run on a thread
//! of their own, and every want is a message to the thread of the store, which answers it from one
//! snapshot.

use crate::error::Error;
use crate::loader::{RowLocks, WantLoader};
use crate::snapshot::{Planning, read_snapshot};
use crate::state::StoreState;
use crate::views::load_one;
use tidegate_core::Timestamp;
use tidegate_core::audit::Auditor;
use tidegate_core::explain::{self, Looked};
use tidegate_core::store::{Finding, TaskKey};
use tidegate_core::want::{Loaded, Loader, Want};
use tokio::sync::{mpsc, oneshot};

/// Findings of one kind after which no more are named.
const FINDINGS_MAX: i64 = 1_000;

/// Tasks that stand among the live and among the ended ones.
const IN_BOTH_TABLES: &str = "SELECT task.number FROM task JOIN ended_task USING (number) LIMIT $1";

/// A want, and where its answer goes.
type AskedWant = (Want, oneshot::Sender<Result<Loaded, Error>>);

/// A loader on another thread than the store's.
struct RemoteLoader {
    wants: mpsc::UnboundedSender<AskedWant>,
}

impl Loader for RemoteLoader {
    type Stop = Error;

    fn load(&mut self, want: &Want) -> Result<Loaded, Error> {
        let (answer, answered) = oneshot::channel();
        self.wants.send((want.clone(), answer)).map_err(|_| Error::Closed)?;
        answered.blocking_recv().unwrap_or(Err(Error::Closed))
    }
}

/// Runs a function whose wants are answered from one snapshot.
///
/// # Errors
/// Those of the function and of the connection, and a panic of the function.
async fn run_in_place<T, F>(state: &StoreState, function: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce(&mut RemoteLoader) -> Result<T, Error> + Send + 'static,
{
    read_snapshot(state, Planning::Indexed, async |client| {
        let loader = WantLoader::new(client, &state.catalog, RowLocks::None);
        let (wants, mut asked) = mpsc::unbounded_channel::<AskedWant>();
        let running = tokio::task::spawn_blocking(move || function(&mut RemoteLoader { wants }));
        while let Some((want, answer)) = asked.recv().await {
            // A function that has panicked meanwhile does not need it.
            let _ = answer.send(load_one(&loader, want).await);
        }
        running.await.unwrap_or_else(|error| Err(Error::Panicked(error.to_string())))
    })
    .await
}

/// Explains how a task stands.
pub(crate) async fn explain_task(
    state: &StoreState,
    task: TaskKey,
    now: Timestamp,
) -> Result<Option<Looked>, Error> {
    run_in_place(state, move |loader| explain::explain_task(loader, task, now)).await
}

/// Every way in which the tables contradict themselves.
pub(crate) async fn audit_store(state: &StoreState) -> Result<Vec<Finding>, Error> {
    let mut auditor = Auditor::new(None);
    while !auditor.is_done() {
        auditor = run_in_place(state, move |loader| {
            auditor.take_step(loader)?;
            Ok(auditor)
        })
        .await?;
    }
    let mut findings = auditor.into_findings();
    findings.extend(check_tables(state).await?);
    Ok(findings)
}

/// The checks that only this store can make.
async fn check_tables(state: &StoreState) -> Result<Vec<Finding>, Error> {
    read_snapshot(state, Planning::Scanning, async |client| {
        let mut findings = Vec::new();
        for row in client.query(IN_BOTH_TABLES, &[&FINDINGS_MAX]).await? {
            let number: i64 = row.try_get(0)?;
            let what = format!("task {number} stands among the live and among the ended ones");
            findings.push(Finding::new("whole", what));
        }
        Ok(findings)
    })
    .await
}
