//! Claim orders: plain tasks are claimed behind the delta, in the trip of the commit.
//!
//! One statement ([`CLAIM`]) finds the first plain rows of a queue by the index of claims and changes them.
//! It raises an error, so that nothing is committed, where a row that is not plain stands among those that
//! it would take, or where the queue has changed since the process has looked at it: it has other task
//! names, or effects on its runs are pending. Then the request is decided with loaded candidates.
//!
//! A claimed row keeps its packed lifecycle, as it was when the task was ready, with the time of the claim
//! beside it: the claim is made in core when the row is read ([`claim_plain_row`]). So the statement knows
//! nothing of lifecycles. The next write of the row packs all of it.
//!
//! [`claim_plain_row`]: tidegate_core::decision::claim_plain_row

mod bounds;

use crate::batch::Parameter;
use crate::catalog::QueueView;
use crate::columns::{TASK_COLUMNS, Uuid, live_columns, read_task, to_timestamp};
use crate::error::Error;
use crate::loader::WantLoader;
use crate::others::read_some_bytes;
use crate::state::StoreState;
pub(crate) use bounds::{ClaimBounds, ClaimPlace};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_core::RunId;
use tidegate_core::decision::{ClaimOrder, OrderOutcome, TakenTask};
use tidegate_core::delta::Delta;
use tidegate_core::lifecycle::Kind;
use tidegate_core::rows::Payload;
use tidegate_core::store::{Request, TaskKey};
use tidegate_core::want::{Loaded, Want};
use tokio_postgres::Row as PgRow;

/// The pause after an order that was not carried out: what stood in its way is there for a while.
const ORDER_PAUSE: Duration = Duration::from_millis(20);

/// The rows of the queue $1 that can be claimed; see the index `task_claim`.
macro_rules! claimable {
    ($weight:literal) => {
        concat!("t.queue = $1 AND t.weight = ", $weight, " AND t.eligibility IN (0, 3)")
    };
}

/// Claims up to $5 plain tasks of the queue $1, which has the version $2 and the name $13, for the worker
/// $3. Tasks before $4 in claim order, and those with this order and a number below $14, are not looked at. $6 has the weights other than 1 of tasks that the
/// worker could run; $7 is the request and $11 its time. Of the claimed tasks, the first $8 get the state
/// $9 and the others $10. $12 is the weight of plain tasks.
pub(crate) const CLAIM: &str = concat!(
    "WITH queue_now AS MATERIALIZED (SELECT \
     coalesce((SELECT version FROM queue WHERE number = $1) = $2, false) \
     AND EXISTS (SELECT 1 FROM worker WHERE number = $3) \
     AND NOT EXISTS (SELECT 1 FROM pending_effect) AS is_known, \
     NOT EXISTS (SELECT 1 FROM pause WHERE scope = 1 AND name = $13 AND unpaused_at IS NULL) \
     AND NOT EXISTS (SELECT 1 FROM pause WHERE scope = 2 AND name = '' AND unpaused_at IS NULL) \
     AS is_open), ",
    "front AS MATERIALIZED (SELECT t.ctid AS place, t.number, t.claim_order, t.is_plain \
     FROM task t WHERE ",
    claimable!("$12"),
    " AND (t.claim_order, t.number) >= ($4, $14) AND (SELECT is_open FROM queue_now) \
     ORDER BY t.claim_order, t.number LIMIT $5 FOR UPDATE SKIP LOCKED), ",
    // The first task that is heavier than plain ones.
    "heavier AS MATERIALIZED (SELECT first_task.* FROM unnest($6::int8[]) AS other (weight) \
     CROSS JOIN LATERAL (SELECT t.claim_order, t.number FROM task t WHERE ",
    claimable!("other.weight"),
    " AND (SELECT is_open FROM queue_now) ORDER BY t.claim_order, t.number LIMIT 1) AS first_task \
     ORDER BY first_task.claim_order, first_task.number LIMIT 1), ",
    "first_tasks AS MATERIALIZED (SELECT place, number, claim_order, \
     row_number() OVER (ORDER BY claim_order, number) AS nth FROM front), \
     last_task AS MATERIALIZED (SELECT claim_order, number FROM first_tasks \
     ORDER BY nth DESC LIMIT 1), ",
    "taken AS (UPDATE task AS t SET request = $7, fence = t.fence + 1, \
     state = CASE WHEN first_tasks.nth <= $8 THEN $9::int2 ELSE $10::int2 END, eligibility = NULL, \
     is_plain = false, worker = $3, claim_order = NULL, claimed_at = $11 \
     FROM first_tasks WHERE t.ctid = first_tasks.place RETURNING ",
    live_columns!(),
    ", first_tasks.claim_order AS ready_order, CASE WHEN t.idx > 0 THEN \
     (SELECT f.run_id FROM task f WHERE f.number = t.number - t.idx) ELSE t.run_id END AS run_of_task, \
     t.input AS input_of_run) ",
    // Fails where the order must not be carried out.
    "SELECT taken.*, whole.has_more FROM (SELECT 1 / (\
     (SELECT is_known FROM queue_now) \
     AND NOT EXISTS (SELECT 1 FROM front WHERE NOT is_plain) \
     AND (NOT EXISTS (SELECT 1 FROM heavier) OR (SELECT count(*) FROM front) = $5) \
     AND NOT EXISTS (SELECT 1 FROM heavier, last_task WHERE (heavier.claim_order, heavier.number) \
     < (last_task.claim_order, last_task.number)))::int4 = 1 \
     AND (SELECT is_open FROM queue_now) AND (SELECT count(*) FROM front) = $5 \
     AND (EXISTS (SELECT 1 FROM heavier) OR EXISTS (SELECT 1 FROM task t WHERE ",
    claimable!("$12"),
    " AND (t.claim_order, t.number) > (coalesce((SELECT claim_order FROM last_task), $4), \
     coalesce((SELECT number FROM last_task), $14 - 1)))) AS has_more) AS whole \
     LEFT JOIN taken ON true"
);

/// The weight of plain tasks.
const PLAIN_WEIGHT: i64 = 1;

/// The queue of a worker that can have its claims made by order.
pub(crate) struct OrderedQueue {
    view: Arc<QueueView>,
}

/// Finds the queue for which a request may be given an order: the only one that its worker serves, whose
/// task names the worker knows all.
pub(crate) async fn find_ordered_queue(
    state: &StoreState,
    request: &Request,
) -> Option<OrderedQueue> {
    let is_off = !state.server.connector.config.orders_claims
        || state.orders_paused_until.get().is_some_and(|until| Instant::now() < until);
    if is_off {
        return None;
    }
    let number = request.worker?;
    let worker = state.catalog.find_worker(number).await.ok()??;
    let served = &worker.served;
    let [queue] = Vec::from_iter(&served.queues)[..] else { return None };
    let view = state.catalog.view_queue(queue).await.ok()??;
    view.is_known_by(number, served).then_some(OrderedQueue { view })
}

/// An order that is on its way.
pub(crate) struct QueuedOrder {
    queue: Arc<str>,
    from: ClaimPlace,
    max: u32,
}

impl OrderedQueue {
    /// The parameters of [`CLAIM`] for an order behind a delta.
    pub(crate) fn make_claim(
        &self,
        state: &StoreState,
        order: &ClaimOrder,
        delta: &Delta,
    ) -> (QueuedOrder, Vec<Parameter>) {
        let QueueView { number, version, name, weights, .. } = &*self.view;
        let weights = weights.range(..=order.max_weight).copied().map(i64::from);
        let heavier: Vec<i64> = weights.filter(|weight| *weight != PLAIN_WEIGHT).collect();
        let from = state.claim_bounds.find_start(name, Instant::now());
        let from =
            delta.tasks.iter().filter(|write| *write.queue == **name).fold(from, |from, write| {
                write.place.order.map_or(from, |order| from.min(ClaimPlace::before_order(order)))
            });
        let max = order.max_tasks();
        let state_of = |kind: Kind| i16::from(kind.code());
        let parameters: Vec<Parameter> = vec![
            Box::new(*number),
            Box::new(*version),
            Box::new(order.worker.0 as i64),
            Box::new(from.order),
            Box::new(i64::from(max)),
            Box::new(heavier),
            Box::new(order.request.0 as i64),
            Box::new(i64::from(order.begun)),
            Box::new(state_of(Kind::Active)),
            Box::new(state_of(Kind::Claimed)),
            Box::new(order.now.as_micros()),
            Box::new(PLAIN_WEIGHT),
            Box::new(name.to_string()),
            Box::new(from.task),
        ];
        (QueuedOrder { queue: name.clone(), from, max }, parameters)
    }

    /// Leaves claims to decisions for a while, and looks at the queue anew before the next order.
    pub(crate) fn give_up(&self, state: &StoreState) {
        state.orders_paused_until.set(Some(Instant::now() + ORDER_PAUSE));
        state.catalog.forget_queue(&self.view.name);
    }
}

/// The tasks that an order has claimed, and the inputs of their runs as far as they are in these rows.
pub(crate) struct ClaimedRows {
    pub(crate) outcome: OrderOutcome,
    pub(crate) inputs: Vec<(Want, Loaded)>,
}

impl QueuedOrder {
    /// Reads the rows that [`CLAIM`] has returned.
    ///
    /// # Errors
    /// The store's own, or a row is damaged.
    pub(crate) async fn read_claimed(
        &self,
        state: &StoreState,
        loader: &WantLoader<'_>,
        rows: &[PgRow],
    ) -> Result<ClaimedRows, Error> {
        let has_more = match rows.first() {
            Some(row) => row.try_get(TASK_COLUMNS + 3)?,
            None => false,
        };
        let mut stored = Vec::with_capacity(rows.len());
        let mut places = HashMap::with_capacity(rows.len());
        let mut inputs = Vec::with_capacity(rows.len());
        for row in rows {
            if row.try_get::<_, Option<i64>>(0)?.is_none() {
                continue;
            }
            let columns = read_task(row)?;
            let order = to_timestamp(row.try_get(TASK_COLUMNS)?);
            let run: Uuid = row.try_get(TASK_COLUMNS + 1)?;
            let task = TaskKey(columns.key);
            places.insert(task, (order, RunId::from_u128(run.0)));
            if columns.is_first() {
                let input = read_some_bytes(row, TASK_COLUMNS + 2)?;
                inputs.push((Want::Payload(task, Payload::Input), Loaded::Payload(input)));
            }
            stored.push(columns);
        }
        let taken = loader.resolve_rows(stored).await?.into_iter().map(|row| {
            let (order, run) = places[&row.key];
            TakenTask { row, run, order }
        });
        let mut taken: Vec<TakenTask> = taken.collect();
        taken.sort_unstable_by_key(|taken| (taken.order, taken.row.key));
        let last = taken.last().map(|taken| ClaimPlace::of_task(taken.order, taken.row.key));
        let is_full = taken.len() == self.max as usize;
        state.claim_bounds.note_claim(
            &self.queue,
            self.from,
            last.filter(|_| is_full),
            taken.len(),
        );
        Ok(ClaimedRows { outcome: OrderOutcome { taken, has_more }, inputs })
    }
}

/// All statements, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] = &[("CLAIM", CLAIM)];

#[cfg(test)]
mod tests {
    use super::CLAIM;
    use crate::rows::open_gates;

    #[test]
    fn claim_finds_the_rows_that_nothing_keeps_from_starting() {
        let codes: Vec<String> = open_gates(false).iter().map(i16::to_string).collect();
        let condition = format!("eligibility IN ({})", codes.join(", "));
        assert_eq!(CLAIM.matches(&condition).count(), 3);
        assert!(
            include_str!("../migrations/0003_tables.sql").contains(&condition),
            "the index task_claim"
        );
    }
}
