//! What only the store can tell of idempotency keys and of pauses: whether they belong to runs.

use super::{FINDINGS_MAX, Keys, Step};
use crate::error::Error;
use crate::loader::RowLoader;
use rusqlite::{Connection, OptionalExtension};
use tidegate_core::RunId;
use tidegate_core::audit::{Repair, Stray};
use tidegate_core::store::{Finding, RunKey};

/// Keys and pauses that are looked at in one transaction.
const STEP: i64 = 1_000;

/// Runs that are not found under their keys, and whether another run is, by right.
const UNFILED: &str = "SELECT key, run_key, EXISTS (SELECT 1 FROM run_key JOIN task AS other \
     ON other.key = run_key.run WHERE run_key.workflow = task.workflow \
     AND run_key.key = task.run_key AND other.run_key = run_key.key \
     AND other.workflow = run_key.workflow) FROM task WHERE key >= ?1 AND key < ?2 \
     AND run_key IS NOT NULL AND run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run_key \
     WHERE workflow = task.workflow AND key = task.run_key AND run = task.key) LIMIT ?3";

/// Keys behind one, the run that each is of, and how that stands: missing, another, right.
const FILED: &str = "SELECT workflow, key, run, (SELECT 1 + (task.run_key IS run_key.key \
     AND task.workflow IS run_key.workflow) FROM task WHERE task.key = run_key.run \
     AND task.run_id IS NOT NULL) FROM run_key WHERE (workflow, key) > (?1, ?2) \
     ORDER BY workflow, key LIMIT ?3";

/// Pauses of runs, behind one.
const PAUSES: &str = "SELECT rowid, name FROM pause WHERE scope = 0 AND rowid > ?1 \
     ORDER BY rowid LIMIT ?2";

impl Step<'_, '_> {
    /// Whether the runs of these numbers are found under their keys.
    pub(super) fn keys(&mut self, (first, end): Keys) -> Result<(), Error> {
        let mut select = self.snapshot.connection.prepare(UNFILED)?;
        let mut found = select.query((first, end, FINDINGS_MAX as i64))?;
        while let Some(row) = found.next()? {
            let (run, key, is_taken): (i64, String, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let what = match is_taken {
                true => "which another has too",
                false => "and is not found under it",
            };
            let finding = Finding::new("key", format!("run {run} has the key \"{key}\", {what}"));
            self.findings.push(match is_taken {
                true => finding,
                false => finding.repaired_by(Repair::Run(RunKey(run))),
            });
        }
        Ok(())
    }
}

/// Looks at all keys and pauses, some at a time.
pub(super) fn all(reading: &mut RowLoader<'_>, findings: &mut Vec<Finding>) -> Result<(), Error> {
    let mut last = Some((i64::MIN, String::new()));
    while let Some(from) = last
        && findings.len() < FINDINGS_MAX
    {
        last = step(reading.connection, &from, findings)?;
    }
    let mut last = Some(0);
    while let Some(from) = last
        && findings.len() < FINDINGS_MAX
    {
        last = reading.read_snapshot(|snapshot| pauses(snapshot.connection, from, findings))?;
    }
    Ok(())
}

/// Looks at the keys behind one; the last of them, if there may be more.
fn step(
    connection: &Connection,
    (workflow, key): &(i64, String),
    findings: &mut Vec<Finding>,
) -> Result<Option<(i64, String)>, Error> {
    let mut select = connection.prepare(FILED)?;
    let mut found = select.query((workflow, key, STEP))?;
    let (mut count, mut last) = (0, None);
    while let Some(row) = found.next()? {
        let (key, run): (String, i64) = (row.get(1)?, row.get(2)?);
        let (what, repair) = match row.get::<_, Option<i64>>(3)? {
            None => ("which does not exist", Repair::Stray(Stray::Run(RunKey(run)))),
            Some(1) => ("which has another", Repair::Run(RunKey(run))),
            Some(_) => ("", Repair::Run(RunKey(run))),
        };
        if !what.is_empty() {
            let what = format!("the key \"{key}\" is that of run {run}, {what}");
            findings.push(Finding::new("key", what).repaired_by(repair));
        }
        (count, last) = (count + 1, Some((row.get(0)?, key)));
    }
    Ok(last.filter(|_| count == STEP))
}

/// Looks at the pauses behind one; the last of them, if there may be more.
fn pauses(
    connection: &Connection,
    from: i64,
    findings: &mut Vec<Finding>,
) -> Result<Option<i64>, Error> {
    let mut select = connection.prepare(PAUSES)?;
    let mut find = connection.prepare("SELECT 1 FROM task WHERE run_id = ?1")?;
    let found = select.query_map((from, STEP), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found = found.collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    for (_, name) in &found {
        let id = name.parse::<RunId>().map(|run| run.as_u128().to_be_bytes());
        let exists = id.map(|id| find.query_row([id], |_| Ok(())).optional()).ok();
        if exists.transpose()?.flatten().is_none() {
            let what = format!("a pause of run {name}, which does not exist");
            let repair = Repair::Stray(Stray::Pause(name.clone()));
            findings.push(Finding::new("stray", what).repaired_by(repair));
        }
    }
    Ok(found.last().map(|(last, _)| *last).filter(|_| found.len() as i64 == STEP))
}
