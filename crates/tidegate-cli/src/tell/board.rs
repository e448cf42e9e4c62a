//! How things stand: what is under way, what waits, and how many have ended how.

use super::{Fact, How};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Board {
    /// Tasks by name.
    active: HashMap<String, Active>,
    waiting: HashMap<String, Waiting>,
    /// Tasks that are done for items, which are known.
    groups: HashSet<String>,
    total: u64,
    slots: u32,
    ended: Ended,
    /// All durations of those that have ended after they were begun, and how many they are.
    took: Duration,
    timed: u64,
}

/// How many have ended how.
#[derive(Debug, Default, Clone, Copy)]
struct Ended {
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    skipped: u64,
}

/// A command that is under way.
#[derive(Debug)]
struct Active {
    since: Duration,
}

/// One that waits.
#[derive(Debug)]
struct Waiting;

/// What was known of a task before the fact.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Before {
    /// For how long it was under way, if it was.
    pub(super) took: Option<Duration>,
    /// Whether it is done for items that are told of apart.
    pub(super) is_group: bool,
}

impl Board {
    /// Something has happened.
    pub(super) fn hear(&mut self, fact: &Fact, now: Duration) -> Before {
        match fact {
            Fact::Run { tasks, slots, .. } => (self.total, self.slots) = (*tasks, *slots),
            Fact::More(count) => self.total += count,
            Fact::Began { who, .. } => {
                self.waiting.remove(&who.name);
                self.active.insert(who.name.clone(), Active { since: now });
            }
            Fact::Waits { who, .. } => {
                self.waiting.insert(who.name.clone(), Waiting);
            }
            Fact::Items { who, count } => {
                self.waiting.remove(&who.name);
                if self.groups.insert(who.name.clone()) {
                    // They are counted in its place.
                    self.total = self.total.saturating_sub(1) + count;
                }
            }
            Fact::Retried { who, .. } | Fact::Interrupted { who } => {
                return self.leaves(&who.name, now);
            }
            Fact::Ended { who, how, .. } => return self.ends(&who.name, *how, now),
            Fact::Missed(_) | Fact::Line(_) => {}
        }
        Before::default()
    }

    fn leaves(&mut self, name: &str, now: Duration) -> Before {
        self.waiting.remove(name);
        let took = self.active.remove(name).map(|active| now.saturating_sub(active.since));
        Before { took, is_group: false }
    }

    fn ends(&mut self, name: &str, how: How, now: Duration) -> Before {
        let before = self.leaves(name, now);
        if self.groups.remove(name) {
            return Before { is_group: true, ..before };
        }
        let ended = &mut self.ended;
        *match how {
            How::Succeeded => &mut ended.succeeded,
            How::Failed | How::TimedOut => &mut ended.failed,
            How::Cancelled => &mut ended.cancelled,
            How::Skipped => &mut ended.skipped,
        } += 1;
        if let Some(took) = before.took {
            self.took += took;
            self.timed += 1;
        }
        before
    }
}
