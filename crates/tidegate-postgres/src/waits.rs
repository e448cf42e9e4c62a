//! Waits of tasks and signals to runs.

use crate::batch::Parameter;
use crate::columns::{Uuid, to_timestamp};
use crate::error::Error;
use crate::loader::{FoundRows, SortedWants, Trip, WantLoader};
use crate::others::read_some_bytes;
use std::collections::{HashMap, HashSet};
use tidegate_core::rows::Corrupt;
use tidegate_core::store::{RunKey, TaskKey};
use tidegate_core::wait::{WaitId, WaitKind, WaitOutcome, Waiting};
use tidegate_core::want::{Loaded, Want};
use tokio_postgres::Row as PgRow;

/// The columns of a wait `w`, in the order in which [`read_wait`] reads them.
macro_rules! wait_columns {
    ($body:literal) => {
        concat!(
            "w.task, w.kind, w.name, w.occurrence, w.label, w.since, w.due, w.run, w.outcome, ",
            $body,
            ", w.signal"
        )
    };
}

const WAITS_OF_TASKS: &str =
    concat!("SELECT ", wait_columns!("w.body"), " FROM wait w WHERE w.task = ANY($1)");

/// The waits of the tasks from $1 on and below $2. Of values as much as shows whether they make sense.
pub(crate) const STORED_WAITS: &str = concat!(
    "SELECT ",
    wait_columns!("substring(w.body for 16)"),
    " FROM wait w WHERE w.task >= $1 AND w.task < $2 ORDER BY w.task"
);

const WAITS: &str = concat!(
    "SELECT ",
    wait_columns!("w.body"),
    " FROM unnest($1::int8[], $2::int2[], $3::text[], $4::int8[]) \
     AS named (task, kind, name, occurrence) JOIN wait w ON w.task = named.task \
     AND w.kind = named.kind AND w.name = named.name AND w.occurrence = named.occurrence"
);

const SIGNAL_WAITS: &str = "SELECT since, task, occurrence FROM wait WHERE run = $1 AND kind = $2 \
     AND name = $3 AND outcome IS NULL ORDER BY since, task, occurrence LIMIT $4";

const WAITERS: &str = "SELECT run, task, kind, name, occurrence FROM wait \
     WHERE run = ANY($1) AND kind = ANY($2) AND outcome IS NULL";

const EDGES: &str = "SELECT run, task, kind, name, occurrence FROM wait \
     WHERE task >= $1 AND task < $2 AND kind = ANY($3) AND outcome IS NULL AND run IS NOT NULL";

const SENT: &str = "SELECT named.place FROM unnest($1::int8[], $2::uuid[]) WITH ORDINALITY \
     AS named (run, id, place) \
     WHERE EXISTS (SELECT 1 FROM signal s WHERE s.run = named.run AND s.id = named.id)";

const SIGNALS: &str = "SELECT number, body FROM signal WHERE run = $1 AND name = $2 \
     AND taken_by IS NULL ORDER BY number LIMIT $3";

/// The codes of waits for the end of a run.
fn run_wait_codes() -> Vec<i16> {
    let for_run = WaitKind::ALL.into_iter().filter(|kind| kind.is_for_run());
    for_run.map(|kind| kind.code().into()).collect()
}

/// Reads a wait: its task, and the wait unless it is damaged.
pub(crate) fn read_wait(row: &PgRow) -> Result<(TaskKey, Result<Waiting, Corrupt>), Error> {
    let time = |at| Ok::<_, Error>(row.try_get::<_, Option<i64>>(at)?.map(to_timestamp));
    let task = TaskKey(row.try_get(0)?);
    let id = read_wait_id(row, 1)?;
    let body = read_some_bytes(row, 9)?;
    let outcome = match row.try_get::<_, Option<i16>>(8)? {
        Some(code) => {
            let code = u8::try_from(code).ok();
            code.and_then(|code| WaitOutcome::decode(code, body)).map(Some).ok_or(Corrupt)
        }
        None => Ok(None),
    };
    let label = row.try_get::<_, &str>(4)?.into();
    let (since, due) = (to_timestamp(row.try_get(5)?), time(6)?);
    let run = row.try_get::<_, Option<i64>>(7)?.map(RunKey);
    let signal = row.try_get::<_, Option<i64>>(10)?.map(|number| number as u64);
    let wait =
        id.and_then(|id| Ok(Waiting { id, label, since, due, run, outcome: outcome?, signal }));
    Ok((task, wait))
}

/// Reads kind, name and occurrence, from a column on.
fn read_wait_id(row: &PgRow, at: usize) -> Result<Result<WaitId, Corrupt>, Error> {
    let code = u8::try_from(row.try_get::<_, i16>(at)?).ok();
    let occurrence = u32::try_from(row.try_get::<_, i64>(at + 2)?).ok();
    let (Some(kind), Some(occurrence)) = (code.and_then(WaitKind::from_code), occurrence) else {
        return Ok(Err(Corrupt));
    };
    Ok(Ok(WaitId::new(kind, row.try_get::<_, &str>(at + 1)?, occurrence)))
}

/// Reads a wait that must not be damaged.
fn read_sound_wait(row: &PgRow) -> Result<(TaskKey, Waiting), Error> {
    let (task, wait) = read_wait(row)?;
    Ok((task, wait.map_err(|source| Error::Task { key: task.0, source })?))
}

impl WantLoader<'_> {
    /// Waits and signals.
    pub(crate) async fn queue_waits<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        self.queue_task_waits(trip, sorted).await?;
        self.queue_named_waits(trip, sorted).await?;
        self.queue_run_waits(trip, sorted).await?;
        self.queue_signals(trip, sorted).await
    }

    async fn queue_task_waits<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let tasks = sorted.pick_wants(|want| match want {
            Want::Waits(task) => Some(task.0),
            _ => None,
        });
        if tasks.is_empty() {
            return Ok(());
        }
        let asked = tasks.clone();
        let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
            let mut waits: HashMap<i64, Vec<Waiting>> = HashMap::new();
            for row in &rows {
                let (task, wait) = read_sound_wait(row)?;
                waits.entry(task.0).or_default().push(wait);
            }
            for task in asked {
                let mut waits = waits.remove(&task).unwrap_or_default();
                waits.sort_unstable_by(|a, b| a.id.cmp(&b.id));
                found.add_answer(Want::Waits(TaskKey(task)), Loaded::Waits(waits));
            }
            Ok(())
        };
        self.queue_statement(trip, WAITS_OF_TASKS, vec![Box::new(tasks)], read).await
    }

    async fn queue_named_waits<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let named = sorted.pick_wants(|want| match want {
            Want::Wait(task, id) => Some((*task, id)),
            _ => None,
        });
        if named.is_empty() {
            return Ok(());
        }
        let tasks: Vec<i64> = named.iter().map(|(task, _)| task.0).collect();
        let kinds: Vec<i16> = named.iter().map(|(_, id)| id.kind.code().into()).collect();
        let names: Vec<String> = named.iter().map(|(_, id)| id.name.to_string()).collect();
        let occurrences: Vec<i64> = named.iter().map(|(_, id)| id.occurrence.into()).collect();
        let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
            let mut waits: HashMap<(TaskKey, WaitId), Waiting> = HashMap::new();
            for row in &rows {
                let (task, wait) = read_sound_wait(row)?;
                waits.insert((task, wait.id.clone()), wait);
            }
            for (task, id) in named {
                let wait = waits.get(&(task, id.clone())).cloned();
                found.add_answer(Want::Wait(task, id.clone()), Loaded::Wait(wait));
            }
            Ok(())
        };
        let parameters: Vec<Parameter> =
            vec![Box::new(tasks), Box::new(kinds), Box::new(names), Box::new(occurrences)];
        self.queue_statement(trip, WAITS, parameters, read).await
    }

    /// Waits for signals to runs and for the ends of runs.
    async fn queue_run_waits<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let runs = sorted.pick_wants(|want| match want {
            Want::WaitersOf(run) => Some(run.0),
            _ => None,
        });
        if !runs.is_empty() {
            let parameters: Vec<Parameter> =
                vec![Box::new(runs.clone()), Box::new(run_wait_codes())];
            let read =
                move |rows: Vec<PgRow>, found: &mut FoundRows| read_waiters(&runs, &rows, found);
            self.queue_statement(trip, WAITERS, parameters, read).await?;
        }
        for &want in &sorted.others {
            match want {
                Want::EdgesFrom { run, tasks } => {
                    let end = run.0.saturating_add((*tasks).into());
                    let parameters: Vec<Parameter> =
                        vec![Box::new(run.0), Box::new(end), Box::new(run_wait_codes())];
                    let read =
                        |rows: Vec<PgRow>, found: &mut FoundRows| read_edges(want, &rows, found);
                    self.queue_statement(trip, EDGES, parameters, read).await?;
                }
                Want::SignalWaits { run, name, max } => {
                    let parameters: Vec<Parameter> = vec![
                        Box::new(run.0),
                        Box::new(i16::from(WaitKind::Signal.code())),
                        Box::new(name.to_string()),
                        Box::new(i64::from(*max)),
                    ];
                    let read = |rows: Vec<PgRow>, found: &mut FoundRows| {
                        let wait = |row: &PgRow| {
                            let occurrence = row.try_get::<_, i64>(2)? as u32;
                            let id = WaitId::new(WaitKind::Signal, name.clone(), occurrence);
                            Ok((to_timestamp(row.try_get(0)?), TaskKey(row.try_get(1)?), id))
                        };
                        let waits = rows.iter().map(wait).collect::<Result<_, Error>>()?;
                        found.add_answer(want.clone(), Loaded::SignalWaits(waits));
                        Ok(())
                    };
                    self.queue_statement(trip, SIGNAL_WAITS, parameters, read).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn queue_signals<'t>(
        &'t self,
        trip: &mut Trip<'t>,
        sorted: &SortedWants<'t>,
    ) -> Result<(), Error> {
        let sent = sorted.pick_wants(|want| match want {
            Want::IsSent(run, id) => Some((*run, *id)),
            _ => None,
        });
        if !sent.is_empty() {
            let runs: Vec<i64> = sent.iter().map(|(run, _)| run.0).collect();
            let ids: Vec<Uuid> = sent.iter().map(|(_, id)| Uuid(*id)).collect();
            let read = move |rows: Vec<PgRow>, found: &mut FoundRows| {
                let mut places = HashSet::new();
                for row in &rows {
                    places.insert(row.try_get::<_, i64>(0)?);
                }
                for (place, (run, id)) in (1..).zip(sent) {
                    let is_sent = places.contains(&place);
                    found.add_answer(Want::IsSent(run, id), Loaded::Flag(is_sent));
                }
                Ok(())
            };
            self.queue_statement(trip, SENT, vec![Box::new(runs), Box::new(ids)], read).await?;
        }
        for &want in &sorted.others {
            let Want::Signals { run, name, max } = want else { continue };
            let parameters: Vec<Parameter> =
                vec![Box::new(run.0), Box::new(name.to_string()), Box::new(i64::from(*max))];
            let read = |rows: Vec<PgRow>, found: &mut FoundRows| {
                let signal =
                    |row: &PgRow| Ok((row.try_get::<_, i64>(0)? as u64, read_some_bytes(row, 1)?));
                let signals = rows.iter().map(signal).collect::<Result<_, Error>>()?;
                found.add_answer(want.clone(), Loaded::Signals(signals));
                Ok(())
            };
            self.queue_statement(trip, SIGNALS, parameters, read).await?;
        }
        Ok(())
    }
}

/// Reads run, task and identity of an open wait for the end of a run.
fn read_run_wait(row: &PgRow) -> Result<(RunKey, TaskKey, WaitId), Error> {
    let (run, task) = (RunKey(row.try_get(0)?), TaskKey(row.try_get(1)?));
    let id = read_wait_id(row, 2)?.map_err(|source| Error::Task { key: task.0, source })?;
    Ok((run, task, id))
}

fn read_waiters(runs: &[i64], rows: &[PgRow], found: &mut FoundRows) -> Result<(), Error> {
    let mut waiters: HashMap<i64, Vec<(TaskKey, WaitId)>> = HashMap::new();
    for row in rows {
        let (run, task, id) = read_run_wait(row)?;
        waiters.entry(run.0).or_default().push((task, id));
    }
    for run in runs {
        let mut waits = waiters.remove(run).unwrap_or_default();
        waits.sort_unstable();
        found.add_answer(Want::WaitersOf(RunKey(*run)), Loaded::RunWaits(waits));
    }
    Ok(())
}

fn read_edges(want: &Want, rows: &[PgRow], found: &mut FoundRows) -> Result<(), Error> {
    let edge = |row: &PgRow| read_run_wait(row).map(|(run, task, id)| (task, id, run));
    let mut edges = rows.iter().map(edge).collect::<Result<Vec<_>, Error>>()?;
    edges.sort_unstable();
    found.add_answer(want.clone(), Loaded::Edges(edges));
    Ok(())
}

/// All statements, by name.
#[cfg(test)]
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("WAITS_OF_TASKS", WAITS_OF_TASKS),
    ("WAITS", WAITS),
    ("SIGNAL_WAITS", SIGNAL_WAITS),
    ("WAITERS", WAITERS),
    ("EDGES", EDGES),
    ("SENT", SENT),
    ("SIGNALS", SIGNALS),
];
