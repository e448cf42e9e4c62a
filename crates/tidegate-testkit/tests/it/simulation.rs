//! The seeded simulation, over enough seeds to fail soon after something breaks.

use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_testkit::simulation::{self, Options, Summary};

/// So many worlds. `--example simulate` runs more.
const SEEDS: u64 = 250;

#[test]
fn every_world_ends_as_it_must() {
    let next = AtomicU64::new(0);
    let mut total = Summary::default();
    std::thread::scope(|scope| {
        let work = || {
            let mut summary = Summary::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= SEEDS {
                    return summary;
                }
                match simulation::run(seed, Options::default()) {
                    Ok(one) => summary.add(&one),
                    Err(failure) => panic!("{failure}"),
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(summary) => total.add(&summary),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    // A simulation without faults shows nothing.
    let occur = [
        total.failed_requests,
        total.lost_answers,
        total.lost_questions,
        total.repeated_requests,
        total.kills,
        total.kills_in_request,
        total.poisoned,
        total.closed,
        total.recoveries,
        total.crash_loops,
        total.lost_races,
        total.lingering,
        total.lies,
        total.cancels,
        total.pauses,
        total.existing,
        total.fan_outs,
        total.found_items,
        total.orphans,
        total.children,
        total.steps_done,
        total.signals,
        total.received,
        total.late,
        total.refused,
        total.found_waits,
        total.asked_again,
        total.parks,
        total.retaken,
        total.resizes,
        total.holds,
        total.awaited,
        total.unanswered,
    ];
    assert!(occur.iter().all(|&count| count > 0), "some fault never occurs:\n{total}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        let options = Options { keeps_trace: true, ..Options::default() };
        let [one, two] = [0, 1].map(|_| simulation::run(seed, options).map_err(|f| f.to_string()));
        assert_eq!(one, two, "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_world() {
    let hash = |seed| simulation::run(seed, Options::default()).map(|summary| summary.trace_hash);
    assert_ne!(hash(1).ok(), hash(2).ok());
}
