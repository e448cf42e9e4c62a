//! The last trip of a request: a decision is applied, its order carried out, and both committed.

use crate::apply::{self, QueuedDelta};
use crate::batch::{BatchIndex, BatchRows, StatementBatch};
use crate::claim::{CLAIM, OrderedQueue, QueuedOrder};
use crate::columns::to_timestamp;
use crate::error::Error;
use crate::loader::{RowLocks, WantLoader};
use crate::remembered::RowVersion;
use crate::state::StoreState;
use deadpool_postgres::Object;
use futures_util::future::join;
use std::collections::HashMap;
use std::time::Instant;
use tidegate_core::decision::{Decision, Fill, complete_reply, fill_wants};
use tidegate_core::store::{Operation, Reply, Request, TaskKey};
use tidegate_core::wakeup::Wakeups;
use tidegate_core::want::{Known, Loaded, Want};

/// The transaction, if it has written anything, and the time.
const CLOSE: &str = "SELECT pg_current_xact_id_if_assigned()::text::int8, \
     (extract(epoch FROM clock_timestamp()) * 1000000)::int8";

/// A request that is decided.
pub(crate) struct DecidedRequest<'a> {
    pub(crate) request: &'a Request,
    pub(crate) decision: Decision,
    /// Those of rows that were not loaded: such a row is not written if it has another one by now.
    pub(crate) versions: HashMap<TaskKey, RowVersion>,
    /// The queue of its order, if it has one.
    pub(crate) queue: Option<&'a OrderedQueue>,
}

/// The statements of a decision in a batch, as far as they are answered.
struct QueuedDecision {
    delta: QueuedDelta,
    order: Option<(QueuedOrder, BatchIndex)>,
    closing: BatchIndex,
}

/// Applies a decision behind the statements of a batch, carries out its order, reads the rows that the
/// reply is filled with, and commits: one trip.
pub(crate) async fn commit_decision(
    state: &StoreState,
    client: &Object,
    decided: DecidedRequest<'_>,
    mut batch: StatementBatch,
) -> Result<(Reply, Wakeups), Error> {
    let DecidedRequest { request, mut decision, versions, queue } = decided;
    let points = state.points.as_deref();
    if let Some(points) = points {
        points.before_apply();
    }
    let wakeups = Wakeups::of_delta(&decision.delta);
    let is_repair = |operation: &Operation| matches!(operation, Operation::Repair(_));
    if request.operations.iter().any(is_repair) {
        apply::reopen_runs(client, &decision.delta).await?;
    }
    let queued = queue_decision(state, client, &mut decision, &versions, queue, &mut batch).await?;
    let wants = fill_wants(&decision.reply, &decision.fill);
    let commit = client.prepare_cached("COMMIT").await?;
    let reads = WantLoader::new(client, &state.catalog, RowLocks::None);
    let send = join(batch.send_all(client), reads.load_wants(&wants));
    let (written, filled, committed) = if let Some(points) = points {
        let (written, filled) = state.watch_blocked(client, send).await;
        let (written, filled) = (written?, filled?);
        points.before_commit();
        (Ok(written), Ok(filled), client.query(&commit, &[]).await)
    } else {
        let ((written, filled), committed) = join(send, client.query(&commit, &[])).await;
        (written, filled, committed)
    };
    // After a statement that failed, the commit was a rollback; unless the connection is lost,
    // in which case it is unknown.
    let mut written = written.map_err(Error::after_commit)?;
    committed.map_err(Error::after_commit)?;
    let mut answers = Known::new();
    for (want, loaded) in filled.map_err(Error::of_unknown_outcome)? {
        answers.add_answer(want, loaded);
    }
    let inputs = queued.read_answers(state, &reads, &mut written, &mut decision);
    for (want, loaded) in inputs.await.map_err(Error::of_unknown_outcome)? {
        answers.add_answer(want, loaded);
    }
    let Decision { delta, mut reply, fill, .. } = decision;
    reply.records = delta.records;
    fill_reply(&reads, &mut reply, &fill, answers).await.map_err(Error::of_unknown_outcome)?;
    state.next_alarm.set(reply.alarm);
    Ok((reply, wakeups))
}

/// Adds the statements of a decision to a batch.
async fn queue_decision(
    state: &StoreState,
    client: &Object,
    decision: &mut Decision,
    versions: &HashMap<TaskKey, RowVersion>,
    queue: Option<&OrderedQueue>,
    batch: &mut StatementBatch,
) -> Result<QueuedDecision, Error> {
    let queued = apply::queue_delta(client, state, &mut decision.delta, versions, batch).await?;
    let mut order = None;
    if let Some(wanted) = decision.order.take() {
        let queue = queue.expect("decisions make orders for this queue alone");
        let claim = client.prepare_cached(CLAIM).await?;
        let (claimed, parameters) = queue.make_claim(state, &wanted, &decision.delta);
        order = Some((claimed, batch.add_statement(claim, parameters)));
    }
    let closing = batch.add_statement(client.prepare_cached(CLOSE).await?, Vec::new());
    Ok(QueuedDecision { delta: queued, order, closing })
}

impl QueuedDecision {
    /// Takes in the answers once they are committed: record numbers, claimed tasks, the time, and the
    /// rows that are remembered. Returns the inputs of claimed tasks.
    async fn read_answers(
        self,
        state: &StoreState,
        reads: &WantLoader<'_>,
        written: &mut BatchRows,
        decision: &mut Decision,
    ) -> Result<Vec<(Want, Loaded)>, Error> {
        state.watcher.note_moved_rows(self.delta.moved_rows);
        self.delta.number_records(written, &mut decision.delta)?;
        let closing = written.take_rows(self.closing);
        let closing = closing.first().expect("it returns a row");
        state.clock.note_time(to_timestamp(closing.try_get(1)?), Instant::now());
        let transaction: Option<i64> = closing.try_get(0)?;
        let version = transaction.map(RowVersion::of_transaction);
        state.remembered.note_writes(std::mem::take(&mut decision.delta.tasks), version);
        let Some((order, statement)) = self.order else { return Ok(Vec::new()) };
        let claimed = order.read_claimed(state, reads, &written.take_rows(statement)).await?;
        for taken in &claimed.outcome.taken {
            state.remembered.note_row(&taken.row, version);
        }
        decision.add_taken(claimed.outcome);
        Ok(claimed.inputs)
    }
}

/// Completes a reply. Rows that were not foreseen are read after the commit: inputs do not change.
async fn fill_reply(
    reads: &WantLoader<'_>,
    reply: &mut Reply,
    fill: &Fill,
    mut answers: Known,
) -> Result<(), Error> {
    while let Err(missed) = complete_reply(&mut answers, reply, fill) {
        for (want, loaded) in reads.load_wants(&[missed]).await? {
            answers.add_answer(want, loaded);
        }
    }
    Ok(())
}
