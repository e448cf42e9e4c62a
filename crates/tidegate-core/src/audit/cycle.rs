//! Runs that wait for each other in a circle.

use crate::store::{Finding, RunKey};
use std::collections::{BTreeMap, BTreeSet};

/// Which runs have tasks that wait for the end of which others.
pub(super) type WaitsFor = BTreeMap<RunKey, BTreeSet<RunKey>>;

/// Circles of runs, of which each waits for the next and the last for the first; every run that is in
/// one is in at least one of these.
pub(super) fn find_cycles(waits_for: &WaitsFor) -> Vec<Vec<RunKey>> {
    let (mut done, mut cycles) = (BTreeSet::new(), Vec::new());
    for &start in waits_for.keys() {
        // The way to where we are, and for each who is still to be followed.
        let mut way: Vec<(RunKey, Vec<RunKey>)> = Vec::new();
        let mut enter = Some(start);
        loop {
            if let Some(run) = enter.take()
                && !done.contains(&run)
            {
                match way.iter().position(|(on, _)| *on == run) {
                    Some(at) => cycles.push(way[at..].iter().map(|(run, _)| *run).collect()),
                    None => {
                        let next = waits_for.get(&run).into_iter().flatten().copied();
                        way.push((run, next.collect()));
                    }
                }
            }
            let Some((run, next)) = way.last_mut() else { break };
            match next.pop() {
                Some(next) => enter = Some(next),
                None => {
                    done.insert(*run);
                    way.pop();
                }
            }
        }
    }
    cycles
}

/// What is told of such a circle.
pub(super) fn name_cycle(runs: &[RunKey]) -> Finding {
    let runs: Vec<_> = runs.iter().chain(runs.first()).map(|run| run.0.to_string()).collect();
    Finding::new("cycle", format!("run {}", runs.join(" waits for run ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(edges: &[(i64, i64)]) -> Vec<Vec<i64>> {
        let mut waits_for = WaitsFor::new();
        for &(from, to) in edges {
            waits_for.entry(RunKey(from)).or_default().insert(RunKey(to));
        }
        let cycles = find_cycles(&waits_for);
        cycles.iter().map(|cycle| cycle.iter().map(|run| run.0).collect()).collect()
    }

    #[test]
    fn only_circles_are_found_and_ways_that_meet_are_none() {
        assert!(found(&[(1, 2), (1, 3), (2, 4), (3, 4), (4, 5)]).is_empty());
        assert_eq!(found(&[(1, 1)]), [[1]]);
        assert_eq!(found(&[(1, 2), (2, 3), (3, 2), (4, 1)]), [[2, 3]]);
        assert_eq!(found(&[(1, 2), (2, 1), (3, 4), (4, 3)]).len(), 2);
    }

    #[test]
    fn a_circle_reads_as_who_waits_for_whom() {
        let finding = name_cycle(&[RunKey(1), RunKey(2)]);
        assert_eq!(finding.to_string(), "cycle: run 1 waits for run 2 waits for run 1");
    }
}
