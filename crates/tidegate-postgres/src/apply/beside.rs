//! Rows beside tasks and runs: waits, signals, pauses, notifications, workers.

use super::{DeltaQueue, make_column, replace_nul};
use crate::columns::Uuid;
use crate::error::Error;
use crate::rows::pause_name;
use std::collections::BTreeMap;
use tidegate_core::Timestamp;
use tidegate_core::delta::{Delta, PauseChange, SignalChange};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Bytes, RunKey, TaskKey};
use tidegate_core::wait::{WaitId, Waiting};

const PUT_WAITS: &str = "INSERT INTO wait (task, kind, name, occurrence, label, since, due, run, \
     outcome, body, signal) SELECT * FROM unnest($1::int8[], $2::int2[], $3::text[], $4::int8[], \
     $5::text[], $6::int8[], $7::int8[], $8::int8[], $9::int2[], $10::bytea[], $11::int8[]) \
     ON CONFLICT (task, kind, name, occurrence) DO UPDATE SET label = excluded.label, \
     since = excluded.since, due = excluded.due, run = excluded.run, outcome = excluded.outcome, \
     body = excluded.body, signal = excluded.signal";

const DELETE_WAITS: &str = "DELETE FROM wait AS w \
     USING unnest($1::int8[], $2::int2[], $3::text[], $4::int8[]) \
     AS given (task, kind, name, occurrence) WHERE w.task = given.task AND w.kind = given.kind \
     AND w.name = given.name AND w.occurrence = given.occurrence";

const INSERT_SIGNALS: &str = "INSERT INTO signal (number, id, run, name, body, sent_at, taken_by) \
     SELECT * FROM unnest($1::int8[], $2::uuid[], $3::int8[], $4::text[], $5::bytea[], $6::int8[], \
     $7::int8[])";

/// A signal that was pruned with its run stays away.
const TAKE_SIGNALS: &str = "UPDATE signal AS s SET taken_by = given.taken_by \
     FROM unnest($1::int8[], $2::int8[]) AS given (number, taken_by) WHERE s.number = given.number";

const BEGIN_PAUSE: &str = "INSERT INTO pause (scope, name, paused_at) VALUES ($1, $2, $3) \
     ON CONFLICT (scope, name) WHERE unpaused_at IS NULL DO NOTHING";

/// The clock of the process that ends a pause may be behind the clock of the one that began it.
const END_PAUSE: &str = "UPDATE pause SET unpaused_at = greatest($3, paused_at) \
     WHERE scope = $1 AND name = $2 AND unpaused_at IS NULL";

const NOTIFY_WORKERS: &str = "INSERT INTO notification (worker, task) \
     SELECT * FROM unnest($1::int8[], $2::int8[]) ON CONFLICT DO NOTHING";
const TAKE_NOTIFICATIONS: &str =
    "DELETE FROM notification WHERE worker = $1 AND task = ANY($2::int8[])";

const FORGET_WORKERS: &str = "DELETE FROM worker WHERE number = ANY($1::int8[])";
const FORGET_NOTIFICATIONS: &str = "DELETE FROM notification WHERE worker = ANY($1::int8[])";

/// A signal as it is inserted.
struct SignalRow<'d> {
    number: i64,
    id: u128,
    run: RunKey,
    name: &'d str,
    body: Option<&'d Bytes>,
    at: Timestamp,
    taken_by: Option<TaskKey>,
}

impl DeltaQueue<'_> {
    pub(super) async fn write_waits(
        &mut self,
        waits: &BTreeMap<TaskKey, BTreeMap<WaitId, Option<Waiting>>>,
    ) -> Result<(), Error> {
        let mut put: Vec<(i64, &Waiting)> = Vec::new();
        let mut deleted: Vec<(i64, &WaitId)> = Vec::new();
        for (task, waits) in waits {
            for (id, wait) in waits {
                match wait {
                    Some(wait) => put.push((task.0, wait)),
                    None => deleted.push((task.0, id)),
                }
            }
        }
        if !deleted.is_empty() {
            let parameters = vec![
                make_column(&deleted, |(task, _)| *task),
                make_column(&deleted, |(_, id)| i16::from(id.kind.code())),
                make_column(&deleted, |(_, id)| id.name.to_string()),
                make_column(&deleted, |(_, id)| i64::from(id.occurrence)),
            ];
            self.add_statement(DELETE_WAITS, parameters).await?;
        }
        if !put.is_empty() {
            let outcome = |wait: &Waiting| {
                wait.outcome.as_ref().map(|outcome| {
                    outcome
                        .encode()
                        .expect("a wait that was refused has not begun, and is not kept")
                })
            };
            let parameters = vec![
                make_column(&put, |(task, _)| *task),
                make_column(&put, |(_, wait)| i16::from(wait.id.kind.code())),
                make_column(&put, |(_, wait)| wait.id.name.to_string()),
                make_column(&put, |(_, wait)| i64::from(wait.id.occurrence)),
                make_column(&put, |(_, wait)| replace_nul(&wait.label)),
                make_column(&put, |(_, wait)| wait.since.as_micros()),
                make_column(&put, |(_, wait)| wait.due.map(Timestamp::as_micros)),
                make_column(&put, |(_, wait)| wait.run.map(|run| run.0)),
                make_column(&put, |(_, wait)| outcome(wait).map(|(code, _)| i16::from(code))),
                make_column(&put, |(_, wait)| {
                    outcome(wait).and_then(|(_, body)| body).map(|body| body.to_vec())
                }),
                make_column(&put, |(_, wait)| wait.signal.map(|signal| signal as i64)),
            ];
            self.add_statement(PUT_WAITS, parameters).await?;
        }
        Ok(())
    }

    pub(super) async fn write_signals(
        &mut self,
        signals: &BTreeMap<u64, SignalChange>,
    ) -> Result<(), Error> {
        let mut sent = Vec::new();
        let mut taken: Vec<(i64, Option<i64>)> = Vec::new();
        for (&number, change) in signals {
            let number = number as i64;
            match change {
                SignalChange::Sent { id, run, name, body, at, taken_by } => {
                    let (id, run, at, taken_by) = (*id, *run, *at, *taken_by);
                    let body = body.as_ref();
                    sent.push(SignalRow { number, id, run, name, body, at, taken_by });
                }
                SignalChange::Taken { by } => taken.push((number, Some(by.0))),
                SignalChange::Returned { .. } => taken.push((number, None)),
            }
        }
        if !sent.is_empty() {
            let parameters = vec![
                make_column(&sent, |signal| signal.number),
                make_column(&sent, |signal| Uuid(signal.id)),
                make_column(&sent, |signal| signal.run.0),
                make_column(&sent, |signal| signal.name.to_owned()),
                make_column(&sent, |signal| signal.body.map(|body| body.to_vec())),
                make_column(&sent, |signal| signal.at.as_micros()),
                make_column(&sent, |signal| signal.taken_by.map(|task| task.0)),
            ];
            self.add_statement(INSERT_SIGNALS, parameters).await?;
        }
        if !taken.is_empty() {
            let parameters = vec![
                make_column(&taken, |(number, _)| *number),
                make_column(&taken, |(_, by)| *by),
            ];
            self.add_statement(TAKE_SIGNALS, parameters).await?;
        }
        Ok(())
    }

    pub(super) async fn write_pauses(&mut self, pauses: &[PauseChange]) -> Result<(), Error> {
        for PauseChange { scope, begins, at } in pauses {
            let (scope, name) = pause_name(scope);
            let sql = if *begins { BEGIN_PAUSE } else { END_PAUSE };
            self.add_statement(
                sql,
                vec![Box::new(scope), Box::new(name), Box::new(at.as_micros())],
            )
            .await?;
        }
        Ok(())
    }

    pub(super) async fn write_notifications(&mut self, delta: &Delta) -> Result<(), Error> {
        if let Some((worker, tasks)) =
            delta.notified.as_ref().filter(|(_, tasks)| !tasks.is_empty())
        {
            let tasks = make_column(tasks, |task| task.0);
            self.add_statement(TAKE_NOTIFICATIONS, vec![Box::new(worker.0 as i64), tasks]).await?;
        }
        if !delta.notifications.is_empty() {
            let notifications: Vec<(WorkerId, TaskKey)> =
                delta.notifications.iter().copied().collect();
            let parameters = vec![
                make_column(&notifications, |(worker, _)| worker.0 as i64),
                make_column(&notifications, |(_, task)| task.0),
            ];
            self.add_statement(NOTIFY_WORKERS, parameters).await?;
        }
        Ok(())
    }

    /// Forgets workers, with the notifications for them.
    pub(super) async fn forget_workers(&mut self, workers: &[WorkerId]) -> Result<(), Error> {
        if workers.is_empty() {
            return Ok(());
        }
        for sql in [FORGET_WORKERS, FORGET_NOTIFICATIONS] {
            self.add_statement(sql, vec![make_column(workers, |worker| worker.0 as i64)]).await?;
        }
        Ok(())
    }
}

/// All statements, by name.
#[cfg(test)]
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("PUT_WAITS", PUT_WAITS),
    ("DELETE_WAITS", DELETE_WAITS),
    ("INSERT_SIGNALS", INSERT_SIGNALS),
    ("TAKE_SIGNALS", TAKE_SIGNALS),
    ("BEGIN_PAUSE", BEGIN_PAUSE),
    ("END_PAUSE", END_PAUSE),
    ("NOTIFY_WORKERS", NOTIFY_WORKERS),
    ("TAKE_NOTIFICATIONS", TAKE_NOTIFICATIONS),
    ("FORGET_WORKERS", FORGET_WORKERS),
    ("FORGET_NOTIFICATIONS", FORGET_NOTIFICATIONS),
];
