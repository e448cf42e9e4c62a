//! The load of a process and its machine, and what follows from it.
//!
//! A [`Sample`] says how much is in use, [`StartBelow`] above which marks nothing new starts, and
//! [`next_capacity`] how many slots there are to be. What could not be read is `None`, and nothing
//! follows from it: it holds no start back, and makes no slots.
//!
//! Deliberately absent: how the numbers are come by, which is the engine's; any memory of earlier
//! samples.

use crate::Timestamp;
use std::fmt;
use std::ops::RangeInclusive;

/// How much of a machine is in use at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// By this process.
    pub process: ProcessLoad,
    /// By all there is, of what this process may use: inside a container with a limit, the machine
    /// is as large as that limit.
    pub machine: MachineLoad,
    /// How much waits for what is in use, where the system tells.
    pub pressure: Option<Pressure>,
}

/// What one process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct ProcessLoad {
    /// Processors it kept busy since the sample before: 1.5 is one and a half.
    pub cpu: Option<f64>,
    /// Bytes of memory that are its.
    pub memory: Option<u64>,
}

/// What is in use of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct MachineLoad {
    /// The fraction of processor time in use since the sample before, from 0 to 1.
    pub cpu: Option<f64>,
    /// The fraction of memory in use, from 0 to 1. What can be had back at once does not count.
    pub memory: Option<f64>,
    /// How many processors there are.
    pub cores: Option<f64>,
    /// How many bytes of memory there are.
    pub memory_max: Option<u64>,
}

/// The fraction of the last ten seconds in which something waited, from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// For a processor.
    pub cpu: Option<f64>,
    /// For memory.
    pub memory: Option<f64>,
    /// For input or output.
    pub io: Option<f64>,
}

impl Sample {
    /// A sample of which nothing is known but when it was taken.
    pub fn new(at: Timestamp) -> Self {
        let (process, machine) = Default::default();
        Sample { at, process, machine, pressure: None }
    }
}

/// What there may be too much in use of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
        })
    }
}

/// Marks, as fractions of the machine: nothing new starts while as much or more is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StartBelow {
    /// Of processor time.
    pub cpu: Option<f64>,
    /// Of memory.
    pub memory: Option<f64>,
}

/// A mark that is reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reached {
    /// What there is too much in use of.
    pub what: Resource,
    /// How much, as a fraction.
    pub value: f64,
    /// Below which it has to fall.
    pub mark: f64,
}

impl StartBelow {
    /// Below this fraction of processor time in use.
    pub fn cpu(mark: f64) -> Self {
        StartBelow { cpu: Some(mark), memory: None }
    }

    /// Below this fraction of memory in use.
    pub fn memory(mark: f64) -> Self {
        StartBelow { cpu: None, memory: Some(mark) }
    }

    /// Below this fraction of memory in use, too.
    pub fn and_memory(self, mark: f64) -> Self {
        StartBelow { memory: Some(mark), ..self }
    }

    /// The marks that are reached. While there are any, nothing new starts.
    pub fn reached(&self, sample: &Sample) -> Vec<Reached> {
        let MachineLoad { cpu, memory, .. } = sample.machine;
        let both = [(Resource::Cpu, cpu, self.cpu), (Resource::Memory, memory, self.memory)];
        let known = both
            .into_iter()
            .filter_map(|(what, value, mark)| Some(Reached { what, value: value?, mark: mark? }));
        known.filter(|reached| reached.value >= reached.mark).collect()
    }
}

/// Below the first of a pair more slots may be made; above the second there are too many.
type Marks = (f64, f64);

/// The upper one leaves room for everybody else on the machine; between the two nothing moves.
const CPU: Marks = (0.7, 0.9);
const MEMORY: Marks = (0.8, 0.9);
/// Some of this is there as soon as more can run than there are processors.
const CPU_PRESSURE: Marks = (0.2, 0.6);

/// How many slots there are to be, where there are so many now: one step from these, inside the bounds.
/// `wanted`: all are in use, and more is to be done.
///
/// A step is a quarter, and at least one slot. It goes down while too much is in use of the machine;
/// up while more slots are wanted, little enough is in use, and what this process would use besides
/// fits too. So it settles: what was just made is not taken away again.
pub fn next_capacity(now: u32, bounds: &RangeInclusive<u32>, sample: &Sample, wanted: bool) -> u32 {
    let step = (now / 4).max(1);
    let next = if has_too_much(sample) {
        now.saturating_sub(step)
    } else if wanted && has_room(sample, f64::from(step) / f64::from(now.max(1))) {
        now.saturating_add(step)
    } else {
        now
    };
    next.clamp(*bounds.start(), *bounds.end())
}

fn has_too_much(sample: &Sample) -> bool {
    marked(sample).into_iter().any(|(value, (_, high))| value.is_some_and(|value| value > high))
}

/// Whether there is room for as much more as this share of what the process uses.
fn has_room(sample: &Sample, share: f64) -> bool {
    let MachineLoad { cpu: Some(cpu), cores, .. } = sample.machine else { return false };
    let ours = sample.process.cpu.zip(cores).map_or(0.0, |(ours, cores)| ours / cores.max(0.01));
    let low = |(value, (low, _)): (Option<f64>, Marks)| value.is_none_or(|value| value < low);
    marked(sample).into_iter().all(low) && cpu + ours * share <= CPU.1
}

fn marked(sample: &Sample) -> [(Option<f64>, Marks); 3] {
    let pressure = sample.pressure.and_then(|pressure| pressure.cpu);
    let MachineLoad { cpu, memory, .. } = sample.machine;
    [(cpu, CPU), (memory, MEMORY), (pressure, CPU_PRESSURE)]
}
