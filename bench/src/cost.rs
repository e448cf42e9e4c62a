//! What a stretch of work costs: time, processor time and allocations.

use crate::allocations;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// What a number of tasks took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) tasks: u64,
    /// The time they took, of which the rate is made. Where the figure is a latency: its median, times
    /// the tasks.
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// `None` where the work was done by processes that do not count.
    pub(crate) allocations: Option<u64>,
    pub(crate) allocated_bytes: Option<u64>,
}

impl Cost {
    /// Tasks per second.
    pub(crate) fn rate(&self) -> f64 {
        self.tasks as f64 / self.seconds
    }

    /// Nanoseconds of one task.
    pub(crate) fn nanoseconds_per_task(&self) -> f64 {
        self.seconds * 1e9 / self.tasks as f64
    }

    pub(crate) fn cpu_per_task(&self) -> f64 {
        self.cpu_seconds / self.tasks as f64
    }

    pub(crate) fn allocations_per_task(&self) -> Option<f64> {
        self.allocations.map(|count| count as f64 / self.tasks as f64)
    }

    pub(crate) fn bytes_per_task(&self) -> Option<f64> {
        self.allocated_bytes.map(|bytes| bytes as f64 / self.tasks as f64)
    }

    /// The same work, charged with the median of its latencies.
    pub(crate) fn with_median(self, mut latencies: Vec<Duration>) -> Cost {
        latencies.sort_unstable();
        let median = latencies[latencies.len() / 2].as_secs_f64();
        Cost { seconds: median * self.tasks as f64, ..self }
    }

    /// Both costs together.
    pub(crate) fn plus(self, other: Cost) -> Cost {
        Cost {
            tasks: self.tasks + other.tasks,
            seconds: self.seconds + other.seconds,
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            allocations: sum(self.allocations, other.allocations),
            allocated_bytes: sum(self.allocated_bytes, other.allocated_bytes),
        }
    }

    /// The part that came after `earlier`, a reading of the same meter.
    pub(crate) fn since(self, earlier: Cost) -> Cost {
        let rest = |(later, earlier): (u64, u64)| later - earlier;
        Cost {
            tasks: self.tasks - earlier.tasks,
            seconds: self.seconds - earlier.seconds,
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            allocations: self.allocations.zip(earlier.allocations).map(rest),
            allocated_bytes: self.allocated_bytes.zip(earlier.allocated_bytes).map(rest),
        }
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one + other)
}

/// Measures from its start.
pub(crate) struct CostMeter {
    began: Instant,
    workers: UsageWho,
    cpu: f64,
    totals: (u64, u64),
}

impl CostMeter {
    /// Measures the work of this process.
    pub(crate) fn start() -> Self {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    /// Measures the work of child processes, each of which has to end before the meter is read: the
    /// system counts a child when its parent has waited for it.
    pub(crate) fn of_children() -> Self {
        Self::of(UsageWho::RUSAGE_CHILDREN)
    }

    fn of(workers: UsageWho) -> Self {
        let (cpu, totals) = (cpu_seconds(workers), allocations::totals());
        CostMeter { began: Instant::now(), workers, cpu, totals }
    }

    /// The cost so far of `tasks` tasks.
    pub(crate) fn read(&self, tasks: u64) -> Cost {
        let seconds = self.began.elapsed().as_secs_f64();
        let (allocations, bytes) = allocations::totals();
        let is_counted = self.workers == UsageWho::RUSAGE_SELF && allocations::is_counting();
        Cost {
            tasks,
            seconds,
            cpu_seconds: cpu_seconds(self.workers) - self.cpu,
            allocations: is_counted.then_some(allocations - self.totals.0),
            allocated_bytes: is_counted.then_some(bytes - self.totals.1),
        }
    }
}

/// The processor time used so far, in user and in kernel mode.
fn cpu_seconds(workers: UsageWho) -> f64 {
    let usage = getrusage(workers).expect("a process may ask what it uses");
    let times = [usage.user_time(), usage.system_time()];
    times.iter().map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(tasks: u64, seconds: f64, allocations: Option<u64>) -> Cost {
        Cost { tasks, seconds, cpu_seconds: seconds, allocations, allocated_bytes: allocations }
    }

    #[test]
    fn rate_and_costs_are_those_of_one_task() {
        let cost = cost(4, 2.0, Some(8));
        assert_eq!((cost.rate(), cost.cpu_per_task()), (2.0, 0.5));
        assert_eq!((cost.allocations_per_task(), cost.bytes_per_task()), (Some(2.0), Some(2.0)));
        assert_eq!(cost.nanoseconds_per_task(), 5e8);
    }

    #[test]
    fn rate_of_a_latency_is_one_by_its_median() {
        let latencies = [9, 2, 1].map(Duration::from_secs).to_vec();
        assert_eq!(cost(6, 100.0, None).with_median(latencies).rate(), 0.5);
    }

    #[test]
    fn costs_add_up_and_subtract_and_uncounted_allocations_stay_uncounted() {
        let (small, large) = (cost(1, 1.0, Some(1)), cost(3, 3.0, Some(3)));
        assert_eq!(small.plus(small).plus(small), large);
        assert_eq!(large.since(small), small.plus(small));
        assert_eq!(large.plus(cost(1, 1.0, None)).allocations, None);
        assert_eq!(large.since(cost(1, 1.0, None)).allocated_bytes, None);
    }

    #[test]
    fn meter_of_children_sees_the_processor_time_of_one_that_has_ended() {
        let meter = CostMeter::of_children();
        let work = ["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"];
        let status = std::process::Command::new("sh").args(work).status();
        assert!(status.is_ok_and(|status| status.success()));
        let cost = meter.read(1);
        assert!(cost.cpu_seconds > 0.0 && cost.allocations.is_none(), "{cost:?}");
    }
}
