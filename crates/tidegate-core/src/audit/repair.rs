//! What a repair is asked to put right. What it does stands in [`decision`](crate::decision).

use crate::lifecycle::WorkerId;
use crate::limit::LimitKey;
use crate::store::{RunKey, TaskKey};
use crate::want::{LookUps, SideTable};
use std::fmt;
use std::sync::Arc;

/// Something that is derived from something else, and can be again.
///
/// Whoever repairs looks again first, and does nothing where it is right by now. What people have
/// decided and what cannot be derived (states, fences, payloads) is never touched, except by what the
/// lifecycle would have made of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Repair {
    /// What belongs to nothing that exists.
    Stray(Stray),
    /// Where a task is found, what it holds and stands behind, and that its waits are known.
    Task(TaskKey),
    /// What follows from how the tasks of a run stand, its pause and its key.
    Run(RunKey),
    /// The signals of this name to this run that somebody waits for.
    Signal(RunKey, Arc<str>),
    /// Who stands behind a limit.
    Limit(LimitKey),
}

/// What rows belong to that do not belong to anything that exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stray {
    /// Payloads, waits, holds and words of a task.
    Task(TaskKey),
    /// Records, signals, keys and pauses of a run.
    Run(RunKey),
    /// Pauses of a run of this name.
    Pause(String),
    /// Holds and begins of a limit, by its number.
    Limit(i64),
    /// Words, queues and tasks of a worker.
    Worker(WorkerId),
}

impl Stray {
    /// The tables in which its rows may be, besides pauses.
    pub fn side_tables(&self) -> &'static [SideTable] {
        use SideTable::{
            Holds, Keys, LimitHolds, NotifiedTasks, NotifiedWorkers, Payloads, RateEvents, Records,
            Signals, Waits, WorkerQueues, WorkerTasks,
        };
        match self {
            Stray::Task(_) => &[Payloads, Waits, Holds, NotifiedTasks],
            Stray::Run(_) => &[Records, Signals, Keys],
            Stray::Pause(_) => &[],
            Stray::Limit(_) => &[LimitHolds, RateEvents],
            Stray::Worker(_) => &[NotifiedWorkers, WorkerQueues, WorkerTasks],
        }
    }

    /// The number by which rows name it; pauses name a run by its id.
    pub fn owner_number(&self) -> Option<i64> {
        match self {
            Stray::Task(task) => Some(task.0),
            Stray::Run(run) => Some(run.0),
            Stray::Pause(_) => None,
            Stray::Limit(limit) => Some(*limit),
            Stray::Worker(worker) => Some(worker.0 as i64),
        }
    }
}

/// Whether something does not exist and rows are left of it.
pub(crate) fn has_orphans<L: LookUps>(loader: &mut L, stray: &Stray) -> Result<bool, L::Stop> {
    let is_gone = match stray {
        Stray::Task(task) => loader.find_stored_task(*task)?.is_none(),
        Stray::Run(run) => {
            let first = loader.find_stored_task(TaskKey(run.0))?;
            first.is_none_or(|first| first.as_row().is_some_and(|row| row.head.is_none()))
        }
        Stray::Pause(name) => !has_run(loader, name)?,
        Stray::Limit(limit) => {
            let found = loader.load_stored_limits(*limit, 1)?;
            found.first().is_none_or(|found| found.number != *limit)
        }
        Stray::Worker(worker) => {
            !loader.load_known_workers()?.contains(worker)
                && loader.load_owned(*worker, 1)?.is_empty()
        }
    };
    if !is_gone {
        return Ok(false);
    }
    if let Stray::Pause(name) = stray {
        return Ok(loader.load_paused_runs(name, 1)?.first() == Some(name));
    }
    let Some(number) = stray.owner_number() else { return Ok(false) };
    for &table in stray.side_tables() {
        let owners = number..number.saturating_add(1);
        if !loader.load_row_owners(table, owners, 1)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether there is a run of this name.
pub(super) fn has_run<L: LookUps>(loader: &mut L, name: &str) -> Result<bool, L::Stop> {
    let Ok(id) = name.parse() else { return Ok(false) };
    Ok(loader.load_run(id)?.is_some())
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repair::Stray(stray) => write!(f, "what is left of {stray}"),
            Repair::Task(task) => write!(f, "task {}", task.0),
            Repair::Run(run) => write!(f, "run {}", run.0),
            Repair::Signal(run, name) => write!(f, "signals \"{name}\" to run {}", run.0),
            Repair::Limit(limit) => write!(f, "{limit}"),
        }
    }
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stray::Task(task) => write!(f, "task {}", task.0),
            Stray::Run(run) => write!(f, "run {}", run.0),
            Stray::Pause(run) => write!(f, "the pause of run {run}"),
            Stray::Limit(limit) => write!(f, "limit {limit}"),
            Stray::Worker(worker) => write!(f, "worker {}", worker.0),
        }
    }
}
