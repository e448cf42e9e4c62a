//! Full lives of one-task runs: submitted, claimed, ended.

use super::MeasuredServer;
use super::bare::{self, BareLoop};
use super::meter::{BothMeter, Reading, alone, alternate, compared, round_count};
use super::running::engine_builder;
use super::schema::ScratchSchema;
use crate::figure::{Figure, Target};
use crate::store;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Callers, slots and lives of a case, and the part of the bare rate it has to reach.
struct LifeCase {
    callers: usize,
    slots: u32,
    lives: usize,
    target: Target,
}

/// With as many slots as callers every run begins in the request that submits it; with fewer, runs wait
/// in the store and are claimed from there.
const CASES: [LifeCase; 3] = [
    LifeCase { callers: 1_000, slots: 1_024, lives: 40_000, target: Target::AtLeastReference(0.5) },
    LifeCase { callers: 1_000, slots: 64, lives: 40_000, target: Target::AtLeastReference(0.5) },
    LifeCase { callers: 64, slots: 64, lives: 20_000, target: Target::None },
];

pub(super) fn measure_lives(server: &MeasuredServer) -> Vec<Figure> {
    let figures = CASES.iter().flat_map(|case| {
        let LifeCase { callers, slots, lives, target } = *case;
        let [ours, theirs] = alternate([
            ("engine", &mut || live_in_engine(server, callers, slots, lives)),
            ("bare loop", &mut || live_bare(server, callers, lives)),
        ]);
        let what = format!("one-task runs, submit to end, {callers} callers, {slots} slots");
        compared(&what, ours, ("bare loop", theirs), target)
    });
    figures.collect()
}

/// The bare loop alone, for reading.
pub(super) fn measure_bare(server: &MeasuredServer) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (callers, lives) in [(1_000, 100_000), (64, 40_000)] {
        let mut rates: Vec<f64> =
            (0..round_count()).map(|_| live_bare(server, callers, lives).rate).collect();
        rates.sort_by(f64::total_cmp);
        let what = format!("bare loop, {callers} callers");
        figures.push(alone(what, rates[rates.len() / 2], "/s", Target::None));
    }
    figures
}

fn live_in_engine(server: &MeasuredServer, callers: usize, slots: u32, lives: usize) -> Reading {
    let schema = ScratchSchema::new(&server.server);
    store::runtime().block_on(async {
        let builder = engine_builder(schema.store_url(), slots);
        let engine = builder.start().await.expect("it starts");
        let meter = BothMeter::start(server);
        store::submit_and_wait(&engine, callers, lives).await;
        let reading = meter.read(lives);
        let findings = engine.audit().await.expect("the store can be read");
        assert!(findings.is_empty(), "{findings:?}");
        engine.shutdown(Duration::from_secs(1)).await;
        reading
    })
}

fn live_bare(server: &MeasuredServer, callers: usize, lives: usize) -> Reading {
    let schema = ScratchSchema::new(&server.server);
    store::runtime().block_on(async {
        let (bare, serving) = BareLoop::start(&schema).await;
        let taken = Arc::new(AtomicUsize::new(0));
        let meter = BothMeter::start(server);
        let callers: Vec<_> =
            (0..callers).map(|_| tokio::spawn(live(bare.clone(), taken.clone(), lives))).collect();
        for caller in callers {
            caller.await.expect("a caller does not panic");
        }
        let reading = meter.read(lives);
        drop(bare);
        let client = serving.await.expect("the loop does not panic");
        bare::check_lives(&client, lives).await;
        reading
    })
}

/// Takes one life after the other until all are done.
async fn live(bare: BareLoop, taken: Arc<AtomicUsize>, lives: usize) {
    loop {
        let n = taken.fetch_add(1, Ordering::Relaxed);
        if n >= lives {
            return;
        }
        let task = bare.insert(format!("{{\"n\":{n}}}")).await;
        bare.claim(task).await;
        bare.finish(task).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_life_of_the_bare_loop_leaves_its_rows_and_has_good_plans() {
        let server = MeasuredServer::find_or_start();
        assert!(live_bare(&server, 16, 500).rate > 0.0);
        assert!(live_in_engine(&server, 16, 8, 100).rate > 0.0);
    }
}
