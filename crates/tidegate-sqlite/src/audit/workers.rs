//! Workers that hold their locks and give no sign of life.
//!
//! A process that is stopped, or hangs, holds its lock and so keeps its tasks: nobody can know that it
//! will not go on with them. It is named, and somebody has to continue it or to end it.

use crate::columns::worker_id;
use crate::error::Error;
use crate::open::Place;
use rusqlite::Connection;
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::Finding;

/// A worker gives a sign every second. After so long without one, it is not only busy.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// The clock may have been set, so that a sign only looks old: in this time everybody gives another.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Workers, and how many tasks they own.
const WORKERS: &str = "SELECT id, name, (SELECT count(*) FROM task WHERE worker = worker.id) \
     FROM worker ORDER BY id";

/// Workers of which nobody here can tell whether they live: their tasks stay theirs.
pub(super) fn unknown(
    connection: &Connection,
    place: &Place,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    let mut select = connection.prepare(WORKERS)?;
    let mut workers = select.query([])?;
    while let Some(row) = workers.next()? {
        let worker = worker_id(row.get(0)?);
        let Err(error) = place.locks.is_alive(worker) else { continue };
        let (name, owns): (String, i64) = (row.get(1)?, row.get(2)?);
        let (number, tasks) = (worker.0, if owns == 1 { "task" } else { "tasks" });
        findings.push(Finding::new(
            "silent",
            format!(
                "cannot tell whether worker {number} ({name}) lives, which owns {owns} {tasks}: \
                 {error}; use the store as the user that began it, then others take over"
            ),
        ));
    }
    Ok(())
}

/// Who seems to be silent, with its last sign, and when that was looked at.
pub(super) struct Silent {
    signs: HashMap<WorkerId, SystemTime>,
    looked: Instant,
}

/// A first look.
pub(super) fn silent(connection: &Connection, place: &Place) -> Result<Silent, Error> {
    let mut select = connection.prepare("SELECT id FROM worker")?;
    let known = select.query_map([], |row| row.get(0).map(worker_id))?;
    let mut signs = HashMap::new();
    for worker in known.collect::<rusqlite::Result<Vec<_>>>()? {
        let sign = place.locks.last_sign(worker);
        signs.extend(sign.filter(|sign| age(*sign) > SILENT_AFTER).map(|sign| (worker, sign)));
    }
    Ok(Silent { signs, looked: Instant::now() })
}

/// A second look, some time after the first: who has given no sign since is told.
pub(super) fn still_silent(
    connection: &Connection,
    place: &Place,
    silent: Silent,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    if silent.signs.is_empty() {
        return Ok(());
    }
    std::thread::sleep(LOOK_AGAIN_AFTER.saturating_sub(silent.looked.elapsed()));
    let mut select = connection.prepare(WORKERS)?;
    let mut workers = select.query([])?;
    while let Some(row) = workers.next()? {
        let worker = worker_id(row.get(0)?);
        let before = silent.signs.get(&worker).copied();
        if before.is_none() || place.locks.last_sign(worker) != before {
            continue;
        }
        let (name, owns): (String, i64) = (row.get(1)?, row.get(2)?);
        let seconds = before.map_or(0, |sign| age(sign).as_secs());
        findings.push(Finding::new("silent", in_words(worker, &name, owns, seconds)));
    }
    Ok(())
}

fn in_words(worker: WorkerId, name: &str, owns: i64, seconds: u64) -> String {
    let tasks = if owns == 1 { "task" } else { "tasks" };
    let said = format!(
        "worker {} ({name}) has given no sign for {seconds} s and owns {owns} {tasks}",
        worker.0
    );
    let process = name.strip_prefix("process ").and_then(|pid| pid.parse::<u32>().ok());
    match process {
        Some(pid) if is_stopped(pid) => format!(
            "{said}; process {pid} is stopped: continue it (kill -CONT {pid}) or end it \
             (kill -KILL {pid}), then others take over"
        ),
        Some(pid) => {
            format!("{said}; end it (kill -KILL {pid}) if it hangs, then others take over")
        }
        None => format!("{said}; continue it or end it, then others take over"),
    }
}

/// How long ago a sign was given. One from the future is no older than any.
fn age(sign: SystemTime) -> Duration {
    SystemTime::now().duration_since(sign).unwrap_or_default()
}

/// Whether a process was stopped by a signal or a debugger, where the system tells.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program stands in brackets and may have anything in it.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}
