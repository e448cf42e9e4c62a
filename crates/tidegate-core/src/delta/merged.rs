//! The rows of a delta that a store with ended rows writes into one row with a task.

use super::Delta;
use crate::keys::KeyMap;
use crate::rows::Payload;
use crate::store::{Bytes, Happened, Record, TaskKey};

/// Records and payloads of a delta that become columns of a task's row.
#[derive(Debug, Default)]
pub struct MergedWrites {
    /// By task that becomes final: the place of the record of its end among the records.
    ends: KeyMap<TaskKey, Option<usize>>,
    /// By task that becomes final: the place of its output among the payloads.
    outputs: KeyMap<TaskKey, usize>,
    /// By new first task: the place of its input among the payloads.
    inputs: KeyMap<TaskKey, usize>,
}

impl MergedWrites {
    /// Finds them. A payload of more than `payload_max` bytes stands beside its task.
    pub fn new(delta: &Delta, payload_max: usize) -> Self {
        let mut merged = MergedWrites::default();
        let mut firsts = KeyMap::<TaskKey, ()>::default();
        for write in &delta.tasks {
            if write.is_final {
                merged.ends.insert(write.row.key, None);
            }
            if write.is_new && write.row.head.is_some() {
                firsts.insert(write.row.key, ());
            }
        }
        for (place, record) in delta.records.iter().enumerate() {
            if let Some(end) = merged.ends.get_mut(&record.run.task(record.task))
                && record.what.is_end()
            {
                *end = Some(place);
            }
        }
        for (place, (task, kind, body)) in delta.payloads.iter().enumerate() {
            if body.len() > payload_max {
                continue;
            }
            if *kind == Payload::Output && merged.ends.contains_key(task) {
                merged.outputs.insert(*task, place);
            } else if *kind == Payload::Input && firsts.contains_key(task) {
                merged.inputs.insert(*task, place);
            }
        }
        merged
    }

    /// The record of the end of a task that becomes final, with its place among the records.
    pub fn find_end<'d>(&self, delta: &'d Delta, task: TaskKey) -> Option<(usize, &'d Record)> {
        let place = self.ends.get(&task).copied().flatten()?;
        Some((place, &delta.records[place]))
    }

    /// The output of a task that becomes final.
    pub fn find_output<'d>(&self, delta: &'d Delta, task: TaskKey) -> Option<&'d Bytes> {
        self.outputs.get(&task).map(|&place| &delta.payloads[place].2)
    }

    /// The input of a run, by its new first task.
    pub fn find_input<'d>(&self, delta: &'d Delta, task: TaskKey) -> Option<&'d Bytes> {
        self.inputs.get(&task).map(|&place| &delta.payloads[place].2)
    }

    /// Whether a record, by its place among the records, is written with its task.
    pub fn has_record(&self, place: usize, record: &Record) -> bool {
        self.ends.get(&record.run.task(record.task)) == Some(&Some(place))
    }

    /// Whether a payload, by its place among the payloads, is written with its task.
    pub fn has_payload(&self, place: usize, task: TaskKey, kind: Payload) -> bool {
        let of_kind = match kind {
            Payload::Output => &self.outputs,
            Payload::Input => &self.inputs,
            _ => return false,
        };
        of_kind.get(&task) == Some(&place)
    }
}

impl Happened {
    /// Whether it is the end of a task.
    pub fn is_end(self) -> bool {
        use Happened::{
            Cancelled, Failed, HandedBack, Parked, Recovered, Retried, Skipped, Snoozed, Succeeded,
            TakenOver, TimedOut,
        };
        match self {
            Succeeded | Failed | TimedOut | Cancelled | Skipped | TakenOver => true,
            Retried | Snoozed | HandedBack | Recovered | Parked => false,
        }
    }
}
