//! Decisions without a trip: from rows that this process remembers, and from guesses.
//!
//! A guess says that no task and no limit is due, and that the worker lives and has no notifications. The
//! transaction of such a decision begins with a statement that checks the guess ([`CHECK_GUESS`]), and
//! the statements that write remembered rows compare their versions. A wrong guess raises an error: nothing is written, and the request is decided again with loaded rows.

use crate::batch::Parameter;
use crate::catalog::NumberCatalog;
use crate::remembered::{RememberedRow, RowVersion};
use crate::state::StoreState;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tidegate_core::Timestamp;
use tidegate_core::decision::{self, Decision};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Clock, Request, TaskKey};
use tidegate_core::want::{Known, Loaded, Loader, ServedTasks, Want};

/// The largest difference between the time of a guess and that of the server, in microseconds. It is this
/// large where the server was busy, or its clock was set.
const CLOCK_ERROR_MAX: i64 = 1_000_000;

/// Fails unless no alarm is due at $1; the worker $2, if there is one, lives and has no notification; and $1
/// is about the time of the server, where it was told by its clock ($3).
pub(crate) const CHECK_GUESS: &str = "SELECT 1 / (\
     NOT EXISTS (SELECT 1 FROM task WHERE alarm <= $1) \
     AND NOT EXISTS (SELECT 1 FROM limit_key WHERE alarm <= $1) \
     AND ($2::int8 IS NULL OR EXISTS (SELECT 1 FROM worker WHERE number = $2) \
     AND NOT EXISTS (SELECT 1 FROM notification WHERE worker = $2)) \
     AND (NOT $3 OR abs((extract(epoch FROM clock_timestamp()) * 1000000)::int8 - $1) < $4)\
     )::int4";

/// Fails unless the tasks $1 have the versions $2.
pub(crate) const CHECK_VERSIONS: &str = "SELECT 1 / (count(*) = cardinality($1))::int4 \
     FROM unnest($1::int8[], $2::xid[]) AS given (number, version) \
     JOIN task t ON t.number = given.number AND t.xmin = given.version";

/// A decision that was made without a trip.
pub(crate) struct Guess {
    pub(crate) decision: Decision,
    /// The time at which it was decided.
    now: Timestamp,
    is_store_time: bool,
    worker: Option<WorkerId>,
    /// The versions of the rows that it rests on.
    pub(crate) versions: HashMap<TaskKey, RowVersion>,
}

impl Guess {
    /// The parameters of [`CHECK_GUESS`].
    pub(crate) fn check_parameters(&self) -> Vec<Parameter> {
        vec![
            Box::new(self.now.as_micros()),
            Box::new(self.worker.map(|worker| worker.0 as i64)),
            Box::new(self.is_store_time),
            Box::new(CLOCK_ERROR_MAX),
        ]
    }

    /// The rows that it rests on and does not write, by number, with their versions.
    pub(crate) fn unwritten_rows(&self) -> (Vec<i64>, Vec<RowVersion>) {
        let mut unwritten = self.versions.clone();
        for write in &self.decision.delta.tasks {
            unwritten.remove(&write.row.key);
        }
        let mut unwritten: Vec<_> = unwritten.into_iter().collect();
        unwritten.sort_unstable_by_key(|(task, _)| *task);
        unwritten.into_iter().map(|(task, version)| (task.0, version)).unzip()
    }
}

/// Decides a request without a trip; `None` if more is needed than is remembered.
pub(crate) async fn guess_decision(
    state: &StoreState,
    request: &Request,
    takes_orders: bool,
) -> Option<Guess> {
    // Without an order, a worker's claim is decided with loaded candidates.
    let needs_candidates = request.worker.is_some() && !takes_orders;
    if needs_candidates || !may_guess(state, request) {
        return None;
    }
    let now = match request.clock {
        Clock::Given(now) => now,
        Clock::Store => state.clock.tell_time(Instant::now())?,
    };
    if state.next_alarm.get().is_some_and(|alarm| alarm <= now) {
        return None;
    }
    let served = match request.worker {
        Some(worker) => Some(state.catalog.find_worker(worker).await.ok()??.served.clone()),
        None => None,
    };
    let tasks = request.submits.iter().map(|new| new.plan.task_count());
    let tasks = u32::try_from(tasks.sum::<usize>()).ok()?;
    state.catalog.prepare_task_numbers(tasks).await.ok()?;
    let mut rows = HashMap::with_capacity(request.changes.len());
    for change in &request.changes {
        rows.insert(change.task, state.remembered.take_row(change.task)?);
    }
    let mut loader = GuessLoader { catalog: &state.catalog, now, served, rows };
    let known = Known::new().taking_orders(takes_orders);
    let decision = decision::decide(request, known, &mut loader).ok()?;
    let versions = loader.rows.iter().map(|(task, known)| (*task, known.version)).collect();
    let is_store_time = matches!(request.clock, Clock::Store);
    Some(Guess { decision, now, is_store_time, worker: request.worker, versions })
}

/// Whether a request might do with remembered rows.
fn may_guess(state: &StoreState, request: &Request) -> bool {
    let is_usual = !request.again
        && !request.set_back
        && request.recover.is_none()
        && request.operations.is_empty()
        && request.prune.is_none();
    is_usual && request.changes.iter().all(|change| state.remembered.has_row(change.task))
}

/// Remembered rows, and guesses. Stops at everything else.
struct GuessLoader<'a> {
    catalog: &'a NumberCatalog,
    now: Timestamp,
    served: Option<Arc<ServedTasks>>,
    rows: HashMap<TaskKey, RememberedRow>,
}

/// The want was not guessed.
struct NotGuessed;

impl Loader for GuessLoader<'_> {
    type Stop = NotGuessed;

    fn load(&mut self, want: &Want) -> Result<Loaded, NotGuessed> {
        Ok(match want {
            Want::Now => Loaded::Time(self.now),
            Want::DueTasks { .. } | Want::Notifications(_) => Loaded::TaskKeys(Vec::new()),
            Want::DueLimits { .. } => Loaded::LimitKeys(Vec::new()),
            Want::Served(_) => Loaded::Served(self.served.clone()),
            Want::Task(task) => {
                let known = self.rows.get(task).ok_or(NotGuessed)?;
                Loaded::Task(Some(known.row.clone()))
            }
            Want::TaskNumbers { count, .. } => {
                let first = self.catalog.take_prepared_numbers(*count).ok_or(NotGuessed)?;
                Loaded::Number(first)
            }
            _ => return Err(NotGuessed),
        })
    }
}

/// All statements, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] =
    &[("CHECK_GUESS", CHECK_GUESS), ("CHECK_VERSIONS", CHECK_VERSIONS)];
