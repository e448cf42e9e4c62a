//! Wants that lock nothing: time, numbers, workers, payloads and notifications.

use crate::columns::to_timestamp;
use crate::error::Error;
use crate::loader::{FoundRows, SortedWants, Trip, WantLoader};
use std::collections::HashSet;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::rows::Payload;
use tidegate_core::store::{Bytes, TaskKey};
use tidegate_core::want::{Loaded, Want};
use tokio_postgres::Row as PgRow;

/// Not by `min`, for which a plan may go through all alarms.
const NEXT_ALARM: &str = "SELECT least(\
     (SELECT alarm FROM task WHERE alarm IS NOT NULL ORDER BY alarm LIMIT 1), \
     (SELECT alarm FROM limit_key WHERE alarm IS NOT NULL ORDER BY alarm LIMIT 1))";

const WORKERS: &str = "SELECT number FROM worker WHERE number = ANY($1)";

const SIGNAL_NUMBERS: &str = "SELECT nextval('signal_number') FROM generate_series(1, $1)";

const INPUTS: &str = "SELECT number, input FROM task WHERE number = ANY($1) AND input IS NOT NULL \
     UNION ALL SELECT number, input FROM ended_task WHERE number = ANY($1) AND input IS NOT NULL";

const OUTPUTS: &str =
    "SELECT number, output FROM ended_task WHERE number = ANY($1) AND output IS NOT NULL";

const PAYLOADS: &str = "SELECT p.task, p.kind, p.body \
     FROM unnest($1::int8[], $2::int2[]) AS named (task, kind) \
     JOIN payload p ON p.task = named.task AND p.kind = named.kind";

const NOTIFICATIONS: &str = "SELECT task FROM notification WHERE worker = $1 ORDER BY task";

impl WantLoader<'_> {
    /// Everything that is not a task, a limit or a wait.
    pub(crate) async fn queue_others<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        self.queue_look_ups(trip, sorted).await?;
        self.queue_numbers(trip, sorted, found).await?;
        self.queue_workers(trip, sorted).await?;
        self.queue_pauses(trip, sorted).await?;
        self.queue_payloads(trip, sorted).await?;
        for &want in &sorted.others {
            match want {
                Want::NextAlarm => {
                    let read = read_instant(want, |alarm| Loaded::Instant(alarm.map(to_timestamp)));
                    self.queue_statement(trip, NEXT_ALARM, Vec::new(), read).await?;
                }
                Want::QueueDepth { queue, max } => {
                    let depth = self.count_waiting_runs(queue, *max).await?;
                    found.add_answer(want.clone(), Loaded::Number(depth.into()));
                }
                Want::HoldersOf { .. }
                | Want::BlockedBefore { .. }
                | Want::ReadyBefore { .. }
                | Want::LiveWorkers
                | Want::LastRecord { .. }
                | Want::RecentDurations { .. } => {
                    let loaded = self.load_for_explanation(want).await?;
                    found.add_answer(want.clone(), loaded);
                }
                Want::PruningRun { .. }
                | Want::OldRuns { .. }
                | Want::OldRecords { .. }
                | Want::OldSignals { .. } => {
                    let loaded = self.load_for_pruning(want).await?;
                    found.add_answer(want.clone(), loaded);
                }
                Want::Audit(stored) => {
                    let loaded = self.load_stored(stored).await?;
                    found.add_answer(want.clone(), loaded);
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn queue_numbers<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        for &want in &sorted.others {
            if let Want::TaskNumbers { count, .. } = want {
                let first = self.catalog.take_task_numbers(*count).await?;
                found.add_answer(want.clone(), Loaded::Number(first));
            }
        }
        let signals =
            sorted.pick_wants(|want| matches!(want, Want::SignalNumber { .. }).then_some(*want));
        if !signals.is_empty() {
            let count =
                i32::try_from(signals.len()).expect("a request has fewer than 2^31 signals");
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                for (row, want) in rows.iter().zip(signals) {
                    found.add_answer(want.clone(), Loaded::Number(row.try_get(0)?));
                }
                Ok(())
            };
            self.queue_statement(trip, SIGNAL_NUMBERS, vec![Box::new(count)], read).await?;
        }
        Ok(())
    }

    async fn queue_workers<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let mut served = Vec::new();
        for &want in &sorted.others {
            match want {
                Want::Served(worker) => {
                    let known = self.catalog.find_worker(*worker).await?;
                    served.push((*worker, known.map(|known| known.served.clone())));
                }
                Want::Notifications(worker) => {
                    let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                        let task = |row: &PgRow| Ok(TaskKey(row.try_get(0)?));
                        let tasks = rows.iter().map(task).collect::<Result<_, Error>>()?;
                        found.add_answer(want.clone(), Loaded::TaskKeys(tasks));
                        Ok(())
                    };
                    let worker = worker.0 as i64;
                    self.queue_statement(trip, NOTIFICATIONS, vec![Box::new(worker)], read).await?;
                }
                _ => {}
            }
        }
        if !served.is_empty() {
            let numbers: Vec<i64> = served.iter().map(|(worker, _)| worker.0 as i64).collect();
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                let mut known = HashSet::new();
                for row in &rows {
                    known.insert(WorkerId(row.try_get::<_, i64>(0)? as u64));
                }
                for (worker, served) in served {
                    let served = served.filter(|_| known.contains(&worker));
                    found.add_answer(Want::Served(worker), Loaded::Served(served));
                }
                Ok(())
            };
            self.queue_statement(trip, WORKERS, vec![Box::new(numbers)], read).await?;
        }
        Ok(())
    }

    async fn queue_payloads<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let wanted = find_payloads(sorted);
        if wanted.is_empty() {
            return Ok(());
        }
        for (sql, kind) in [(INPUTS, Payload::Input), (OUTPUTS, Payload::Output)] {
            let of_kind = wanted.iter().filter(|(_, other)| *other == kind);
            let tasks: Vec<i64> = of_kind.map(|(task, _)| task.0).collect();
            if !tasks.is_empty() {
                let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                    for row in &rows {
                        let task = TaskKey(row.try_get(0)?);
                        found.payloads.insert((task, kind.code()), read_bytes(row, 1)?);
                    }
                    Ok(())
                };
                self.queue_statement(trip, sql, vec![Box::new(tasks)], read).await?;
            }
        }
        let beside = wanted.iter().filter(|(_, kind)| *kind != Payload::Input);
        let (tasks, kinds): (Vec<i64>, Vec<i16>) =
            beside.map(|(task, kind)| (task.0, i16::from(kind.code()))).unzip();
        if tasks.is_empty() {
            return Ok(());
        }
        let read = |rows: Vec<PgRow>, found: &mut FoundRows| {
            for row in &rows {
                let (task, kind) = (TaskKey(row.try_get(0)?), row.try_get::<_, i16>(1)?);
                found.payloads.insert((task, kind as u8), read_bytes(row, 2)?);
            }
            Ok(())
        };
        self.queue_statement(trip, PAYLOADS, vec![Box::new(tasks), Box::new(kinds)], read).await
    }
}

/// The payloads that are wanted.
fn find_payloads(sorted: &SortedWants<'_>) -> Vec<(TaskKey, Payload)> {
    sorted.pick_wants(|want| match want {
        Want::Payload(task, kind) => Some((*task, *kind)),
        _ => None,
    })
}

/// Answers wants of payloads.
pub(crate) fn answer_payloads(sorted: &SortedWants<'_>, found: &mut FoundRows) {
    for (task, kind) in find_payloads(sorted) {
        let body = found.payloads.get(&(task, kind.code())).cloned();
        found.add_answer(Want::Payload(task, kind), Loaded::Payload(body));
    }
}

/// Reads bytes that are not NULL.
pub(crate) fn read_bytes(row: &PgRow, at: usize) -> Result<Bytes, Error> {
    Ok(Bytes::from(row.try_get::<_, &[u8]>(at)?))
}

/// Reads bytes that may be NULL.
pub(crate) fn read_some_bytes(row: &PgRow, at: usize) -> Result<Option<Bytes>, Error> {
    Ok(row.try_get::<_, Option<&[u8]>>(at)?.map(Bytes::from))
}

/// Reads the one number of a statement.
fn read_instant<'w>(
    want: &'w Want,
    loaded: impl FnOnce(Option<i64>) -> Loaded + 'w,
) -> impl FnOnce(Vec<PgRow>, &mut FoundRows) -> Result<(), Error> + 'w {
    move |rows, found| {
        let micros = match rows.first() {
            Some(row) => row.try_get(0)?,
            None => None,
        };
        found.add_answer(want.clone(), loaded(micros));
        Ok(())
    }
}

/// All statements, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("NEXT_ALARM", NEXT_ALARM),
    ("WORKERS", WORKERS),
    ("INPUTS", INPUTS),
    ("OUTPUTS", OUTPUTS),
    ("PAYLOADS", PAYLOADS),
    ("NOTIFICATIONS", NOTIFICATIONS),
];
