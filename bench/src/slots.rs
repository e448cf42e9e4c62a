//! P1: a slot taken and given back, against tokio's semaphore.

use crate::cost::{Cost, CostMeter};
use crate::figure::{Figure, Target, duel, per};
use crate::sample::Scale;
use std::sync::Arc;
use std::time::Instant;
use tidegate::SlotPool;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

const UNCONTENDED: usize = 2_000_000;
const CONTENDERS: usize = 1_000;
const TURNS: usize = 500;
const SLOTS: u32 = 4;

pub(crate) fn measure() -> Vec<Figure> {
    let figure = |what: String, (ours, theirs): (f64, f64), most| Figure {
        name: "P1".into(),
        what,
        value: ours,
        unit: "ns".into(),
        reference: Some(("Semaphore".into(), theirs)),
        target: Target::TimesReference(most),
    };
    let handed_over = |kind: &str| format!("hand-over, {CONTENDERS} contending, {kind}");
    let uncontended_pool = || uncontended_pool(UNCONTENDED).nanoseconds_per_task();
    let contended_pool = |mixed| contended_pool(mixed, TURNS).nanoseconds_per_task();
    let alone = duel(5, uncontended_pool, uncontended_semaphore);
    let alike = duel(5, || contended_pool(false), contended_semaphore);
    let mixed = duel(5, || contended_pool(true), contended_semaphore);
    vec![
        figure("slot acquire + release, uncontended".into(), alone, 1.5),
        figure(handed_over("all alike"), alike, 2.0),
        figure(handed_over("weights and priorities mixed"), mixed, 2.0),
    ]
}

/// `p1.uncontended` in short.
pub(crate) fn sample_uncontended(scale: Scale) -> Cost {
    uncontended_pool(scale.of(10_000_000))
}

/// `p1.alike` in short.
pub(crate) fn sample_alike(scale: Scale) -> Cost {
    contended_pool(false, scale.of(2_000))
}

/// `p1.mixed` in short.
pub(crate) fn sample_mixed(scale: Scale) -> Cost {
    contended_pool(true, scale.of(2_000))
}

fn uncontended_pool(turns: usize) -> Cost {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let pool = SlotPool::new(SLOTS).expect("slots");
    runtime.block_on(async {
        let meter = CostMeter::start();
        for _ in 0..turns {
            drop(std::hint::black_box(pool.acquire().await.expect("open")));
        }
        meter.read(turns as u64)
    })
}

fn uncontended_semaphore() -> f64 {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let semaphore = Arc::new(Semaphore::new(SLOTS as usize));
    runtime.block_on(async {
        let began = Instant::now();
        for _ in 0..UNCONTENDED {
            drop(std::hint::black_box(semaphore.clone().acquire_owned().await.expect("open")));
        }
        per(began.elapsed(), UNCONTENDED)
    })
}

fn contended_pool(mixed: bool, turns: usize) -> Cost {
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let pool = SlotPool::new(SLOTS).expect("slots");
    runtime.block_on(async {
        let meter = CostMeter::start();
        let contenders: Vec<_> = (0..CONTENDERS)
            .map(|n| {
                let pool = pool.clone();
                let weight = if mixed { 1 + (n % 3) as u32 } else { 1 };
                let priority = if mixed { (n % 5) as i32 } else { 0 };
                tokio::spawn(async move {
                    for _ in 0..turns {
                        let token = pool.acquire().weight(weight).priority(priority).await;
                        let token = token.expect("open");
                        tokio::task::yield_now().await;
                        drop(token);
                    }
                })
            })
            .collect();
        for contender in contenders {
            contender.await.expect("no panic");
        }
        meter.read((CONTENDERS * turns) as u64)
    })
}

/// The reference has neither weights nor priorities: all alike is its best case.
fn contended_semaphore() -> f64 {
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let semaphore = Arc::new(Semaphore::new(SLOTS as usize));
    runtime.block_on(async {
        let began = Instant::now();
        let contenders: Vec<_> = (0..CONTENDERS)
            .map(|_| {
                let semaphore = semaphore.clone();
                tokio::spawn(async move {
                    for _ in 0..TURNS {
                        let permit = semaphore.clone().acquire_owned().await.expect("open");
                        tokio::task::yield_now().await;
                        drop(permit);
                    }
                })
            })
            .collect();
        for contender in contenders {
            contender.await.expect("no panic");
        }
        per(began.elapsed(), CONTENDERS * TURNS)
    })
}
