//! The bare loops: what SQLite gives when nothing but the writes is done.
//!
//! They are the references of the figures with a store. A life is three durable writes (insert,
//! claim, finish) of the rows that the engine writes too: a run, a task, a payload and one event.
//! [`writer`] batches them on one thread, [`ledger`] is the database, [`disk`] a place for it. The
//! SQL is checked in beside them. Deliberately absent: everything that makes an engine.

mod disk;
mod ledger;
mod writer;

pub(crate) use disk::{disk_directory, scratch};
use ledger::{Holder, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use writer::Writer;

/// The pause before an idle commit: long enough for disk and cores to have come to rest.
const PAUSE: Duration = Duration::from_millis(2);

/// Commits before the idle ones are counted: pages, caches and the threads' stacks get warm.
const WARM_UP: usize = 20;

/// Full lives a second through a fresh database, by `in_flight` callers, each of which takes one
/// life after the other until `count` are done. The reference of P2.
pub(crate) fn lives(count: usize, in_flight: usize) -> f64 {
    let place = disk::scratch();
    let runtime = runtime();
    let (store, took) = runtime.block_on(async {
        let (writer, thread) = Writer::start(place.path().join("bare.db"));
        let taken = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        let callers: Vec<_> = (0..in_flight)
            .map(|_| tokio::spawn(live(writer.clone(), taken.clone(), count)))
            .collect();
        for caller in callers {
            caller.await.expect("a caller does not panic");
        }
        let took = began.elapsed();
        drop(writer);
        (thread.join().expect("the writer does not panic"), took)
    });
    audit(&store, count);
    count as f64 / took.as_secs_f64()
}

async fn live(writer: Writer, taken: Arc<AtomicUsize>, count: usize) {
    let holder = Holder { worker: 1, fence: 1 };
    loop {
        let n = taken.fetch_add(1, Ordering::Relaxed);
        if n >= count {
            return;
        }
        let key = writer.insert(input(n)).await;
        assert!(writer.claim(key, holder).await, "nobody else claims it");
        assert!(writer.finish(key, holder).await, "nobody else holds it");
    }
}

/// Every life has left its rows, and nothing is alive.
fn audit(store: &Store, count: usize) {
    let count = i64::try_from(count).expect("a number of rows");
    for sql in [
        "SELECT count(*) FROM run WHERE state = 2",
        "SELECT count(*) FROM task WHERE state = 2 AND attempt = 1 AND fence = 1",
        "SELECT count(*) FROM payload",
        "SELECT count(DISTINCT task) FROM event",
    ] {
        assert_eq!(store.number(sql), count, "{sql}");
    }
    assert_eq!(store.number("SELECT count(*) FROM task WHERE state < 2"), 0);
}

/// How long a caller waits, each time after a pause, until a run (run row, task row, payload) that
/// it gave to the writer thread is committed. The reference of P3 and P4.
pub(crate) fn idle_commit(samples: usize) -> Vec<Duration> {
    let place = disk::scratch();
    let runtime = runtime();
    runtime.block_on(async {
        let (writer, thread) = Writer::start(place.path().join("bare.db"));
        // A task of its own, as a caller is in use: the thread of `block_on` is no worker.
        let caller = tokio::spawn(async move {
            let mut took = Vec::with_capacity(WARM_UP + samples);
            for n in 0..WARM_UP + samples {
                tokio::time::sleep(PAUSE).await;
                let began = Instant::now();
                writer.insert(input(n)).await;
                took.push(began.elapsed());
            }
            took.split_off(WARM_UP)
        });
        let took = caller.await.expect("a caller does not panic");
        thread.join().expect("the writer does not panic");
        took
    })
}

/// The same commits on the thread that owns the connection, without the way there and back.
pub(crate) fn idle_commit_in_place(samples: usize) -> Vec<Duration> {
    let place = disk::scratch();
    let store = Store::create(&place.path().join("bare.db"));
    let mut ledger = store.ledger();
    let mut took = Vec::with_capacity(WARM_UP + samples);
    for n in 0..WARM_UP + samples {
        thread::sleep(PAUSE);
        let began = Instant::now();
        ledger.begin();
        ledger.insert(&input(n));
        ledger.commit();
        took.push(began.elapsed());
    }
    took.split_off(WARM_UP)
}

/// Prints the bare loops alone, for reading: they have no target of their own.
pub(crate) fn show() {
    const ROUNDS: usize = 3;
    for (in_flight, count) in [(64, 60_000), (1_000, 150_000)] {
        let mut rates: Vec<f64> = (0..ROUNDS).map(|_| lives(count, in_flight)).collect();
        rates.sort_by(f64::total_cmp);
        let (low, high) = (rates[0], rates[ROUNDS - 1]);
        println!("lives, {in_flight} callers: {:.0}/s ({low:.0} to {high:.0})", rates[ROUNDS / 2]);
    }
    let idle =
        [("through the writer", idle_commit(1_000)), ("in place", idle_commit_in_place(1_000))];
    for (what, mut took) in idle {
        took.sort();
        let [p50, p99] = [50, 99].map(|part| took[took.len() * part / 100].as_secs_f64() * 1e3);
        println!("idle commit, {what}: p50 {p50:.3} ms, p99 {p99:.3} ms");
    }
}

fn input(n: usize) -> String {
    format!("{{\"n\":{n}}}")
}

fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_life_of_a_bare_loop_leaves_its_rows() {
        assert!(lives(500, 16) > 0.0);
        assert!(lives(3, 16) > 0.0);
    }

    #[test]
    fn an_idle_commit_is_measured_as_often_as_asked() {
        assert_eq!(idle_commit(5).len(), 5);
        assert_eq!(idle_commit_in_place(5).len(), 5);
    }
}
