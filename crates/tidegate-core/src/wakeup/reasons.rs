//! Reasons to wake workers as a text, which one process sends to all others.
//!
//! A line is a reason; its fields are separated by tabs. Workers of a later version may write reasons that
//! this one does not know: it takes them for everything.

use super::{Wakeup, Wakeups};
use crate::Timestamp;
use crate::lifecycle::WorkerId;
use crate::store::Scope;
use crate::want::ServedTasks;
use std::collections::{BTreeMap, BTreeSet};

/// The whole text if there are too many reasons to list.
const EVERYTHING: &str = "*";

/// The changes that several deltas have made and that may concern workers of other processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WakeupReasons {
    is_everything: bool,
    is_run_ended: bool,
    is_store_unpaused: bool,
    unpaused_queues: BTreeSet<String>,
    notified: BTreeSet<WorkerId>,
    /// With the first place of one of these tasks in claim order.
    ready: BTreeMap<ReadyNames, Timestamp>,
}

/// Queue, workflow and task.
type ReadyNames = [String; 3];

impl WakeupReasons {
    /// A change of everything: its text is the shortest.
    pub fn of_everything() -> Self {
        WakeupReasons { is_everything: true, ..WakeupReasons::default() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == WakeupReasons::default()
    }

    /// Adds those of a delta.
    pub fn add_wakeups(&mut self, wakeups: &Wakeups) {
        self.is_run_ended |= wakeups.is_run_ended;
        self.notified.extend(&wakeups.notified);
        for scope in &wakeups.unpaused {
            match scope {
                // Its tasks are among the ready ones.
                Scope::Run(_) => {}
                Scope::Queue(queue) => drop(self.unpaused_queues.insert(queue.clone())),
                Scope::Store => self.is_store_unpaused = true,
            }
        }
        for ready in &wakeups.ready {
            let task = ready.plan.known_as(ready.task);
            let names = [&ready.queue, ready.plan.workflow(), task].map(str::to_owned);
            let order = self.ready.entry(names).or_insert(ready.order);
            *order = ready.order.min(*order);
        }
    }

    /// The reasons as a text of at most this many bytes.
    pub fn to_text(&self, bytes_max: usize) -> String {
        let mut text = String::new();
        if self.is_everything {
            return EVERYTHING.to_owned();
        }
        let mut add_line = |fields: &[&str]| {
            for (index, field) in fields.iter().enumerate() {
                if index > 0 {
                    text.push('\t');
                }
                push_escaped(&mut text, field);
            }
            text.push('\n');
        };
        if self.is_run_ended {
            add_line(&["ended"]);
        }
        if self.is_store_unpaused {
            add_line(&["unpaused"]);
        }
        self.unpaused_queues.iter().for_each(|queue| add_line(&["unpaused", queue]));
        self.notified.iter().for_each(|worker| add_line(&["notified", &worker.0.to_string()]));
        for ([queue, workflow, task], order) in &self.ready {
            add_line(&["ready", queue, workflow, task, &order.as_micros().to_string()]);
        }
        if text.len() <= bytes_max { text } else { EVERYTHING.to_owned() }
    }

    /// Reads a text. One that cannot be understood is everything.
    pub fn parse_text(text: &str) -> Self {
        let mut reasons = WakeupReasons::default();
        for line in text.lines() {
            let fields: Vec<String> = line.split('\t').map(unescape_field).collect();
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            match fields[..] {
                ["ended"] => reasons.is_run_ended = true,
                ["unpaused"] => reasons.is_store_unpaused = true,
                ["unpaused", queue] => drop(reasons.unpaused_queues.insert(queue.to_owned())),
                ["notified", worker] => match worker.parse() {
                    Ok(worker) => drop(reasons.notified.insert(WorkerId(worker))),
                    Err(_) => return Self::of_everything(),
                },
                ["ready", queue, workflow, task, order] => {
                    let Ok(order) = order.parse() else { return Self::of_everything() };
                    let names = [queue, workflow, task].map(str::to_owned);
                    reasons.ready.insert(names, Timestamp::from_micros(order));
                }
                _ => return Self::of_everything(),
            }
        }
        reasons
    }

    /// The first place in claim order of the tasks of a queue that can be claimed from now on; a queue may
    /// come more than once. `None` if such tasks may be anywhere.
    pub fn ready_orders(&self) -> Option<impl Iterator<Item = (&str, Timestamp)>> {
        let is_anywhere =
            self.is_everything || self.is_store_unpaused || !self.unpaused_queues.is_empty();
        let orders = self.ready.iter().map(|([queue, ..], order)| (queue.as_str(), *order));
        (!is_anywhere).then_some(orders)
    }

    /// The reasons to wake a worker; the default is none.
    pub fn for_worker(&self, worker: WorkerId, served: &ServedTasks) -> Wakeup {
        if self.is_everything {
            return Wakeup { is_notified: true, has_ready: true, has_ended: true };
        }
        let can_run = |[queue, workflow, task]: &ReadyNames| {
            served.queues.contains(queue) && served.knows_task(workflow, task)
        };
        let is_unpaused = self.is_store_unpaused && !served.queues.is_empty()
            || !self.unpaused_queues.is_disjoint(&served.queues);
        Wakeup {
            is_notified: self.notified.contains(&worker),
            has_ready: is_unpaused || self.ready.keys().any(can_run),
            has_ended: self.is_run_ended,
        }
    }
}

/// Tabs and ends of lines separate fields.
fn push_escaped(text: &mut String, field: &str) {
    for c in field.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            c => text.push(c),
        }
    }
}

fn unescape_field(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some(c) => c,
                None => break,
            },
            c => c,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Knows;

    fn all_kinds() -> WakeupReasons {
        WakeupReasons {
            is_everything: false,
            is_run_ended: true,
            is_store_unpaused: true,
            unpaused_queues: ["night\tly".to_owned()].into(),
            notified: [WorkerId(3), WorkerId(u64::MAX)].into(),
            ready: [(["q\n", "w\\", "a\r"], -3), (["", "w", "é"], 5)]
                .map(|(names, order)| (names.map(str::to_owned), Timestamp::from_micros(order)))
                .into(),
        }
    }

    #[test]
    fn text_is_read_back_whatever_the_names() {
        let reasons = all_kinds();
        assert_eq!(WakeupReasons::parse_text(&reasons.to_text(1_000)), reasons);
        let none = WakeupReasons::default();
        assert_eq!(WakeupReasons::parse_text(&none.to_text(1_000)), none);
        assert!(none.is_empty() && !reasons.is_empty());
    }

    #[test]
    fn reasons_that_do_not_fit_are_everything() {
        let text = all_kinds().to_text(20);
        assert_eq!(WakeupReasons::parse_text(&text), WakeupReasons::of_everything());
    }

    #[test]
    fn reasons_of_a_later_version_are_everything() {
        for text in ["*", "ended\nmoved\tx", "notified\tabc", "ready\tq\tw\ta\tnow"] {
            assert_eq!(WakeupReasons::parse_text(text), WakeupReasons::of_everything(), "{text}");
        }
    }

    #[test]
    fn workers_are_woken_for_their_own_reasons() {
        let served = |queue: &str, task: &str| {
            ServedTasks::new(
                &[queue.to_owned()],
                &Knows::These(vec![("w".to_owned(), task.to_owned())]),
            )
        };
        let ready = WakeupReasons {
            ready: [(["q", "w", "a"].map(str::to_owned), Timestamp::from_micros(5))].into(),
            notified: [WorkerId(3)].into(),
            ..WakeupReasons::default()
        };
        let orders = ready.ready_orders().expect("it is said which tasks are ready");
        assert_eq!(orders.collect::<Vec<_>>(), [("q", Timestamp::from_micros(5))]);
        let wakeup = ready.for_worker(WorkerId(3), &served("q", "a"));
        assert_eq!(wakeup, Wakeup { is_notified: true, has_ready: true, has_ended: false });
        for served in [served("p", "a"), served("q", "b")] {
            assert_eq!(ready.for_worker(WorkerId(4), &served), Wakeup::default());
        }
        let unpaused =
            WakeupReasons { unpaused_queues: ["q".to_owned()].into(), ..WakeupReasons::default() };
        assert!(unpaused.ready_orders().is_none());
        assert!(unpaused.for_worker(WorkerId(4), &served("q", "b")).has_ready);
        assert!(!unpaused.for_worker(WorkerId(4), &served("p", "b")).has_ready);
    }
}
