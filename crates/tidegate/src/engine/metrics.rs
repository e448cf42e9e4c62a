//! How things stand in a worker, in numbers.
//!
//! The one list of them is the call of `metrics!` below: the fields of [`Metrics`], their kinds and what
//! each is. `docs/metrics.md` says the same, and a test compares both.

use super::Shared;
use crate::sync::{Mutex, lock};
use std::fmt;
use std::time::Duration;

/// Of which kind a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// How it is now. What is a yes or no is 1 or 0; ages are seconds.
    Gauge,
    /// How often it has been; it only grows.
    Counter,
    /// How long it has been, in seconds; it only grows.
    Duration,
}

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Duration => "duration",
        })
    }
}

/// One of the numbers of [`Metrics`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// The name of its field.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// What it is.
    pub meaning: &'static str,
    /// The number; `None` where it is not known.
    pub value: Option<f64>,
}

macro_rules! metrics {
    ($($kind:ident $name:ident: $type:ty = $meaning:literal;)*) => {
        /// How things stand in a worker. What ends in `_total`, and what is a plain [`Duration`],
        /// only grows. [`list`](Self::list) has all of them by name.
        ///
        /// What stands in the store (`store_…`) is counted about every second;
        /// [`Engine::counts`](crate::Engine::counts) counts it at once.
        #[derive(Debug, Clone, Copy, Default, PartialEq)]
        #[non_exhaustive]
        pub struct Metrics {
            $(#[doc = $meaning] pub $name: $type,)*
        }

        impl Metrics {
            /// All of them, by name, with what they are.
            pub fn list(&self) -> Vec<Metric> {
                vec![$(Metric {
                    name: stringify!($name),
                    kind: MetricKind::$kind,
                    meaning: $meaning,
                    value: self.$name.value(),
                }),*]
            }
        }
    };
}

metrics! {
    Gauge slots: u64 = "slots there are";
    Gauge slots_min: u64 = "the fewest slots there may be";
    Gauge slots_max: u64 = "the most slots there may be";
    Gauge slots_in_use: u64 = "slots in use";
    Gauge slots_leaky: u64 = "slots held by code that has outlived its time-out";
    Counter resizes_total: u64 = "moves of the number of slots between its bounds";
    Gauge queued: u64 = "tasks here that queue for a slot, to begin or to go on";
    Gauge owned: u64 = "tasks that this worker has claimed and that have not ended";
    Gauge ahead: u64 = "of the owned, claimed ahead and not begun";
    Gauge deferred: u64 = "of the owned, waiting without their slot";
    Gauge active: u64 = "of the owned, the rest: computing, or about to";
    Gauge suspects: u64 = "of the owned, kept back because their process has died again and again while they computed";
    Gauge more_ready: bool = "whether the store has more that is ready than this worker took";
    Gauge starts_held: bool = "whether nothing new starts because a mark of start_below is reached";
    Counter submitted_total: u64 = "runs submitted here";
    Counter runs_ended_total: u64 = "runs that ended in a request of this worker";
    Counter claimed_total: u64 = "tasks claimed, as often as they were";
    Duration ready_wait: Duration = "time for which these were ready before they were claimed, by the wall clock";
    Counter succeeded_total: u64 = "attempts that ended here with a value";
    Counter failed_total: u64 = "attempts that ended here with an error or a panic";
    Counter timed_out_total: u64 = "attempts that ended here at their time-out";
    Counter cancelled_total: u64 = "attempts that ended here by being cancelled, dropped or snoozed";
    Counter retries_total: u64 = "attempts that failed and are followed by another";
    Counter parked_total: u64 = "entries that ended here because their task waits as a row";
    Counter handed_back_total: u64 = "tasks handed back without having ended";
    Counter requests_total: u64 = "requests at the store: commits";
    Counter request_items_total: u64 = "changes, submits and operations in these requests";
    Duration request_time: Duration = "time these requests took";
    Counter failed_requests_total: u64 = "requests that the store could not take";
    Counter recoveries_total: u64 = "tasks taken over from dead workers";
    Counter strays_total: u64 = "tasks that were owned and not known here, and were handed back";
    Counter lost_races_total: u64 = "reports that came to nothing because somebody else had ended the task";
    Counter words_total: u64 = "words that other workers have left for tasks of this one";
    Duration idle_gap: Duration = "time in which a slot was free although something was ready";
    Gauge subscribers: u64 = "subscribers to events";
    Counter events_missed_total: u64 = "events that subscribers were too slow for, summed over these";
    Gauge store_ready: u64 = "tasks of the store that could be claimed at once";
    Gauge store_future: u64 = "tasks of the store that are ready and not due yet";
    Gauge store_paused: u64 = "tasks of the store that are ready, in a run that is paused";
    Gauge store_limited: u64 = "tasks of the store that are ready, behind a limit that is full";
    Gauge store_parked: u64 = "tasks of the store that wait as rows";
    Gauge store_running: u64 = "tasks of the store that a worker owns, in whatever activity";
    Gauge store_age: Option<Duration> = "how long ago these six were counted";
    Gauge watcher_age: Option<Duration> = "how long ago the queue watcher last succeeded";
    Counter watcher_failures_total: u64 = "looks of the queue watcher that the store could not answer";
    Counter watcher_panics_total: u64 = "looks of the queue watcher that panicked";
    Gauge monitor_age: Option<Duration> = "how long ago the resource monitor last succeeded";
    Counter monitor_panics_total: u64 = "samples of the resource monitor that panicked";
    Gauge process_cpu: Option<f64> = "processors that the process keeps busy";
    Gauge process_memory: Option<u64> = "bytes of memory of the process";
    Gauge machine_cpu: Option<f64> = "fraction of the processor time that is in use";
    Gauge machine_memory: Option<f64> = "fraction of the memory that is in use";
    Gauge machine_cores: Option<f64> = "processors there are, or may be used";
    Gauge machine_memory_max: Option<u64> = "bytes of memory there are, or may be used";
    Gauge pressure_cpu: Option<f64> = "fraction of the last ten seconds in which something waited for a processor";
    Gauge pressure_memory: Option<f64> = "fraction of the last ten seconds in which something waited for memory";
    Gauge pressure_io: Option<f64> = "fraction of the last ten seconds in which something waited for input or output";
}

/// What a field is as a number.
trait Value {
    fn value(&self) -> Option<f64>;
}

impl Value for u64 {
    fn value(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl Value for f64 {
    fn value(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Value for bool {
    fn value(&self) -> Option<f64> {
        Some(f64::from(u8::from(*self)))
    }
}

impl Value for Duration {
    fn value(&self) -> Option<f64> {
        Some(self.as_secs_f64())
    }
}

impl<T: Value> Value for Option<T> {
    fn value(&self) -> Option<f64> {
        self.as_ref().and_then(Value::value)
    }
}

/// The last readings of the loop.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    last: Mutex<Metrics>,
}

impl Gauges {
    pub(super) fn publish(&self, metrics: Metrics) {
        *lock(&self.last) = metrics;
    }

    /// Whether the store has more that is ready.
    pub(super) fn more_ready(&self) -> bool {
        lock(&self.last).more_ready
    }

    /// These, with what others than the loop know.
    pub(super) fn read(&self, shared: &Shared) -> Metrics {
        let (pool, seen, sample) = (&shared.pool, shared.board.seen(), shared.board.sample());
        let (totals, depth) = (pool.totals(), seen.depth);
        let (process, machine) = sample.map(|now| (now.process, now.machine)).unwrap_or_default();
        let pressure = sample.and_then(|now| now.pressure).unwrap_or_default();
        // Whoever runs nothing has none.
        let of = |slots: u32| if shared.serves { u64::from(slots) } else { 0 };
        Metrics {
            slots: of(pool.capacity()),
            slots_min: of(*shared.slots.start()),
            slots_max: of(*shared.slots.end()),
            slots_in_use: pool.in_use().into(),
            slots_leaky: pool.leaky().into(),
            resizes_total: seen.resizes,
            queued: pool.waiting() as u64,
            starts_held: seen.starts_held,
            succeeded_total: totals.succeeded,
            failed_total: totals.failed,
            timed_out_total: totals.timed_out,
            cancelled_total: totals.cancelled,
            subscribers: shared.events.receiver_count() as u64,
            events_missed_total: shared.missed.count(),
            store_ready: depth.ready,
            store_future: depth.future,
            store_paused: depth.paused,
            store_limited: depth.limited,
            store_parked: depth.parked,
            store_running: depth.running,
            store_age: seen.counter.age(),
            watcher_age: seen.watcher.age(),
            watcher_failures_total: seen.watcher.failures + seen.counter.failures,
            watcher_panics_total: seen.watcher.panics + seen.counter.panics,
            monitor_age: seen.monitor.age(),
            monitor_panics_total: seen.monitor.panics,
            process_cpu: process.cpu,
            process_memory: process.memory,
            machine_cpu: machine.cpu,
            machine_memory: machine.memory,
            machine_cores: machine.cores,
            machine_memory_max: machine.memory_max,
            pressure_cpu: pressure.cpu,
            pressure_memory: pressure.memory,
            pressure_io: pressure.io,
            ..*lock(&self.last)
        }
    }
}
