//! Workers that hold their locks and give no sign of life.
//!
//! A process that is stopped, or hangs, holds its lock and so keeps its tasks: nobody can know that it
//! will not go on with them. It is named, and somebody has to continue it or to end it.

use crate::error::Error;
use crate::fetch::Fetch;
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

/// Number and name of each worker, and how many tasks it owns.
const WORKERS: &str = "SELECT number, name, (SELECT count(*) FROM task WHERE worker = worker.number) \
     FROM worker ORDER BY number";

/// Names the workers of which it cannot be known here whether they live: their tasks stay theirs.
pub(super) fn report_unknown(
    connection: &Connection,
    place: &Place,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    for (worker, name, owns) in connection.prepare(WORKERS)?.fetch_all::<_, Vec<_>>([])? {
        let (worker, name, owns): (WorkerId, String, i64) = (worker, name, owns);
        let Err(error) = place.locks.is_alive(worker) else { continue };
        let (number, tasks) = (worker.0, if owns == 1 { "task" } else { "tasks" });
        let what = format!(
            "cannot tell whether worker {number} ({name}) lives, which owns {owns} {tasks}: \
             {error}; use the store as the user that began it, then others take over"
        );
        findings.push(Finding::new("silent", what));
    }
    Ok(())
}

/// When workers were looked at, and those that seem to be silent, each with its last sign.
type Silent = (Instant, HashMap<WorkerId, SystemTime>);

/// A first look.
pub(super) fn find_silent(connection: &Connection, place: &Place) -> Result<Silent, Error> {
    let known: Vec<WorkerId> = connection.prepare("SELECT number FROM worker")?.fetch_all([])?;
    let signs = known.into_iter().filter_map(|id| Some((id, place.locks.last_sign(id)?)));
    let signs = signs.filter(|(_, sign)| find_age(*sign) > SILENT_AFTER).collect();
    Ok((Instant::now(), signs))
}

/// A second look, some time after the first: names the workers that have given no sign since.
pub(super) fn report_silent(
    connection: &Connection,
    place: &Place,
    (looked, signs): Silent,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    if signs.is_empty() {
        return Ok(());
    }
    std::thread::sleep(LOOK_AGAIN_AFTER.saturating_sub(looked.elapsed()));
    for (worker, name, owns) in connection.prepare(WORKERS)?.fetch_all::<_, Vec<_>>([])? {
        let Some(&sign) = signs.get(&worker) else { continue };
        if place.locks.last_sign(worker) == Some(sign) {
            let what = describe_silent(worker, name, owns, find_age(sign).as_secs());
            findings.push(Finding::new("silent", what));
        }
    }
    Ok(())
}

fn describe_silent(worker: WorkerId, name: String, owns: i64, seconds: u64) -> String {
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
fn find_age(sign: SystemTime) -> Duration {
    SystemTime::now().duration_since(sign).unwrap_or_default()
}

/// Whether a process was stopped by a signal or a debugger, where the system tells.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program stands in brackets and may have anything in it.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}
