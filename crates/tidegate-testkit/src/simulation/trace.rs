//! What happened, step by step.

use std::collections::VecDeque;
use std::fmt;
use tidegate_core::store::Change;
use tidegate_core::wait::WaitOp;

/// So many of the last lines are shown with a failure.
const SHOWN: usize = 60;

/// The last lines, or all of them, and a number that stands for all of them.
#[derive(Debug)]
pub(super) struct Trace {
    lines: VecDeque<String>,
    keeps_all: bool,
    steps: u64,
    hash: u64,
}

impl Trace {
    pub(super) fn new(keeps_all: bool) -> Self {
        Trace { lines: VecDeque::new(), keeps_all, steps: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }

    pub(super) fn add(&mut self, line: fmt::Arguments<'_>) {
        self.steps += 1;
        let line = format!("{:>6}  {line}", self.steps);
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if !self.keeps_all && self.lines.len() == SHOWN {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The same for the same trace.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines).into()
    }
}

/// The change of a task, in short.
pub(super) struct ShortChange<'a>(pub(super) &'a Change);

impl fmt::Debug for ShortChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { waits, events, .. } = self.0;
        for op in waits {
            match op {
                WaitOp::Begin { id, releasing, .. } => write!(f, "+{id} {releasing:?} ")?,
                WaitOp::End { id, outcome, .. } => write!(f, "={id} {outcome:?} ")?,
                WaitOp::Close(id) => write!(f, "-{id} ")?,
                WaitOp::Release(names) => write!(f, "-{names:?} ")?,
                WaitOp::Retake(times) => write!(f, "+limits {times} ")?,
            }
        }
        let name = |event| format!("{event:?}");
        let names = events.iter().map(name);
        let names = names.map(|text| text.split(' ').next().unwrap_or_default().to_owned());
        f.write_str(&names.collect::<Vec<_>>().join(" "))
    }
}
