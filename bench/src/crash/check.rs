//! The comparison of all that was acknowledged with the store, when nothing is open any more.

use super::load::{FEW, builder};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;
use tidegate::engine::{RunState, RunsPage};
use tidegate::{Engine, RunId, RunOutcome};

/// Compares what was acknowledged with what is there.
pub(super) async fn check(place: &Path, alone: bool) -> String {
    let engine = builder(place).start().await.expect("the engine starts");
    let acknowledged = std::fs::read_to_string(place.join("acknowledged")).unwrap_or_default();
    let (mut submitted, mut asked, mut cancelled) =
        (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut brings, mut signalled) = (HashMap::new(), HashSet::new());
    for line in acknowledged.lines() {
        let (what, run) = line.split_once(' ').expect("a line has two words");
        let run: RunId = run.parse().expect("an id was written");
        if let Some(number) = what.strip_prefix("brings") {
            brings.insert(run, number.parse::<u64>().expect("a number was written"));
            continue;
        }
        match what {
            "submit" => submitted.insert(run),
            "asked" => asked.insert(run),
            "signal" => signalled.insert(run),
            _ => cancelled.insert(run),
        };
    }
    for (id, number) in &brings {
        let run = engine.run(*id).await.expect("an acknowledged submit is there");
        let got: u64 = run.output("signalled").await.expect("it has succeeded");
        let may_be = got == *number || got == 0 && !signalled.contains(id);
        assert!(may_be, "run {id} was sent {number} and received {got}");
    }
    let repeated_steps = check_steps(place);
    let most = if alone { check_limit(&engine).await } else { 0 }.max(check_units(place));
    let commands = check_commands(place);
    let (mut tasks, mut repeated, mut recoveries) = (0, 0, 0);
    for id in &submitted {
        let run = engine.run(*id).await.expect("an acknowledged submit is there");
        let status = run.status().await.expect("the store can be read");
        let RunState::Ended(outcome) = status.state else { panic!("run {id} is open") };
        let may_be = match (cancelled.contains(id), asked.contains(id)) {
            (true, _) => outcome == RunOutcome::Cancelled,
            (false, true) => outcome != RunOutcome::Failed,
            (false, false) => outcome == RunOutcome::Succeeded,
        };
        assert!(may_be, "run {id}: {status:?}");
        let mut ends: HashMap<u32, u32> = HashMap::new();
        for record in run.events().await.expect("the store can be read") {
            recoveries += u64::from(record.what.as_str() == "recovered");
            let ended = matches!(record.what.as_str(), "succeeded" | "cancelled" | "skipped");
            *ends.entry(record.task.as_u32()).or_default() += u32::from(ended);
        }
        assert_eq!(ends.len(), status.tasks.len(), "every task of run {id} is recorded");
        assert!(ends.values().all(|&ends| ends == 1), "each task of run {id} ended once: {ends:?}");
        tasks += status.tasks.len();
        repeated += status.tasks.iter().filter(|task| task.entries > task.attempt).count();
    }
    let findings = engine.audit().thorough().await.expect("the store can be read");
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!((engine.slots().in_use(), engine.metrics().owned), (0, 0), "nobody holds anything");
    engine.shutdown(Duration::from_secs(1)).await;
    let (runs, cancelled, signals) = (submitted.len(), cancelled.len(), signalled.len());
    format!(
        "{runs} acknowledged runs with {tasks} tasks are there, each ended once, {cancelled} \
         cancelled ones stayed so; {repeated} tasks were entered again after a kill, {recoveries} \
         takeovers of begun tasks; {signals} acknowledged signals were received once; no stored step \
         was repeated ({repeated_steps} that were not stored were); at most {most} of {FEW} held the \
         limit; {commands} commands, none with a twin; audit and integrity check clean"
    )
}

/// A step that was stored is never run again; how many were that had not been stored.
fn check_steps(place: &Path) -> usize {
    let entries = std::fs::read_to_string(place.join("entries")).unwrap_or_default();
    let (mut ran, mut kept, mut repeated) = (HashSet::new(), HashSet::new(), 0);
    for line in entries.lines() {
        match line.split_once(' ') {
            Some(("kept", execution)) => drop(kept.insert(execution)),
            Some(("ran", execution)) => {
                assert!(!kept.contains(execution), "a stored step of {execution} was repeated");
                repeated += usize::from(!ran.insert(execution));
            }
            _ => {}
        }
    }
    repeated
}

/// How many bodies held the limit at once at most, by the files they held.
fn check_units(place: &Path) -> i32 {
    let units = std::fs::read_to_string(place.join("units")).unwrap_or_default();
    let most =
        units.lines().filter_map(|unit| unit.parse().ok()).max().map_or(0, |unit: i32| unit + 1);
    assert!(most <= FEW as i32, "somebody found all units of a limit of {FEW} taken");
    most
}

/// No command has found another copy of itself; how many were begun.
fn check_commands(place: &Path) -> usize {
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    assert_eq!(read("twins"), "", "these had twins");
    read("commands").lines().count()
}

/// How many entries held the limit at once at most, by what is recorded of them. The times are good for
/// that where one process has given all of them, one request after the other.
async fn check_limit(engine: &Engine) -> i32 {
    let page =
        RunsPage { limit: u32::MAX, workflow: Some("limited".to_owned()), ..Default::default() };
    let mut edges = Vec::new();
    for run in engine.runs(page).await.expect("the store can be read") {
        let records = engine.store().records(Some(run.key), 0, u32::MAX).await;
        for record in records.expect("the store can be read") {
            let Some(begun) = record.begun_at else { continue };
            edges.extend([(begun, 1), (record.at, -1)]);
        }
    }
    // What ends at an instant makes room for what begins at it.
    edges.sort();
    let (mut inside, mut most) = (0, 0);
    for (_, edge) in edges {
        inside += edge;
        most = most.max(inside);
    }
    assert!(most <= FEW as i32, "{most} held a limit of {FEW}");
    most
}
