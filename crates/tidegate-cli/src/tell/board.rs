//! How things stand: what is under way, what waits, and how many have ended how.

use super::{Fact, How, Try};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Board {
    run: Option<String>,
    name: String,
    /// Tasks by name.
    active: HashMap<String, Active>,
    waiting: HashMap<String, Waiting>,
    /// Tasks that are done for items, since these are known.
    groups: HashMap<String, Duration>,
    total: u64,
    slots: u32,
    ended: Ended,
    /// All durations of those that have ended after they were begun, and how many they are.
    took: Duration,
    timed: u32,
}

/// How many have ended how.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Ended {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) skipped: u64,
}

impl Ended {
    pub(super) fn all(self) -> u64 {
        self.succeeded + self.failed + self.cancelled + self.skipped
    }
}

/// A command that is under way.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) label: String,
    pub(super) slot: Option<u32>,
    pub(super) attempt: Try,
    pub(super) since: Duration,
    log: Option<PathBuf>,
}

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) label: String,
    pub(super) what: String,
    pub(super) since: Duration,
}

/// What was known of a task before the fact.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Before {
    /// For how long it was under way, if it was.
    pub(super) took: Option<Duration>,
    /// Its log, if it was.
    pub(super) log: Option<PathBuf>,
    /// Whether it is done for items that are told of apart.
    pub(super) is_group: bool,
}

impl Board {
    /// Something has happened.
    pub(super) fn hear(&mut self, fact: &Fact, now: Duration) -> Before {
        match fact {
            Fact::Run { id, name, tasks, slots } => {
                (self.run, self.name) = (Some(id.clone()), name.clone());
                (self.total, self.slots) = (*tasks, *slots);
            }
            Fact::More(count) => self.total += count,
            Fact::Began { who, attempt, slot, log } => {
                self.waiting.remove(&who.name);
                let (label, attempt, slot) = (who.label().to_owned(), *attempt, *slot);
                let active = Active { label, slot, attempt, since: now, log: log.clone() };
                self.active.insert(who.name.clone(), active);
            }
            Fact::Waits { who, what } => {
                let (label, what) = (who.label().to_owned(), what.clone());
                self.waiting.insert(who.name.clone(), Waiting { label, what, since: now });
            }
            Fact::Items { who, count, taken_over } => {
                self.waiting.remove(&who.name);
                if self.groups.insert(who.name.clone(), now).is_none() {
                    // They are counted in its place.
                    self.total = (self.total + count).saturating_sub(1 + taken_over);
                }
            }
            Fact::Retried { who, .. } | Fact::Interrupted { who } => {
                return self.leaves(&who.name, now);
            }
            Fact::Ended { who, how, .. } => return self.ends(&who.name, *how, now),
            Fact::Missed(_) | Fact::Line(_) | Fact::Unfinished(_) | Fact::Finished(_) => {}
        }
        Before::default()
    }

    fn leaves(&mut self, name: &str, now: Duration) -> Before {
        self.waiting.remove(name);
        let Some(active) = self.active.remove(name) else { return Before::default() };
        let took = Some(now.saturating_sub(active.since));
        Before { took, log: active.log, is_group: false }
    }

    fn ends(&mut self, name: &str, how: How, now: Duration) -> Before {
        let before = self.leaves(name, now);
        if let Some(since) = self.groups.remove(name) {
            let took = Some(now.saturating_sub(since));
            return Before { took, log: None, is_group: true };
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
            self.timed = self.timed.saturating_add(1);
        }
        before
    }

    /// The id of the run, once there is one.
    pub(super) fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn ended(&self) -> Ended {
        self.ended
    }

    /// Those under way: by slot, then by age.
    pub(super) fn active(&self) -> Vec<&Active> {
        let mut all: Vec<_> = self.active.values().collect();
        all.sort_by_key(|active| (active.slot.unwrap_or(u32::MAX), active.since));
        all
    }

    /// Those that wait, by age.
    pub(super) fn waiting(&self) -> Vec<&Waiting> {
        let mut all: Vec<_> = self.waiting.values().collect();
        all.sort_by(|a, b| (a.since, &a.label).cmp(&(b.since, &b.label)));
        all
    }

    /// How long those that have ended took, in the middle.
    pub(super) fn mean(&self) -> Option<Duration> {
        self.took.checked_div(self.timed)
    }

    /// How long it may still take, if others take as long as those that have ended. What waits is
    /// not known, and not counted.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        let mean = self.mean()?;
        let gone = self.ended.all() + (self.active.len() + self.waiting.len()) as u64;
        let to_come = self.total.saturating_sub(gone);
        let rest = |active: &Active| mean.saturating_sub(now.saturating_sub(active.since));
        let under_way: Duration = self.active.values().map(rest).sum();
        let all = under_way + mean.saturating_mul(u32::try_from(to_come).unwrap_or(u32::MAX));
        let at_once = (to_come + self.active.len() as u64).min(u64::from(self.slots)).max(1);
        Some(all / u32::try_from(at_once).unwrap_or(u32::MAX)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Who;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn began(name: &str) -> Fact {
        let (who, attempt) = (Who::task(name), Try { number: 1, of: 1 });
        Fact::Began { who, attempt, slot: None, log: None }
    }

    fn ended(name: &str, how: How) -> Fact {
        let (who, attempt) = (Who::task(name), Try { number: 1, of: 1 });
        Fact::Ended { who, how, attempt, why: String::new(), log: None }
    }

    fn board(tasks: u64, slots: u32) -> Board {
        let mut board = Board::default();
        board.hear(&Fact::Run { id: "r".into(), name: "n".into(), tasks, slots }, Duration::ZERO);
        board
    }

    #[test]
    fn nothing_is_known_of_the_rest_before_something_has_ended() {
        let mut board = board(5, 2);
        board.hear(&began("a"), Duration::ZERO);
        assert_eq!(board.left(SECOND), None);
        board.hear(&ended("a", How::Succeeded), SECOND * 4);
        // Four to come, two at once, four seconds each.
        assert_eq!(board.left(SECOND * 4), Some(SECOND * 8));
        board.hear(&began("b"), SECOND * 4);
        board.hear(&began("c"), SECOND * 4);
        assert_eq!(board.left(SECOND * 6), Some(SECOND * 6));
    }

    #[test]
    fn items_are_counted_in_the_place_of_their_task() {
        let mut board = board(2, 1);
        board.hear(&Fact::Items { who: Who::task("a"), count: 5, taken_over: 2 }, SECOND);
        assert_eq!(board.total(), 4);
        for item in ["a[0]", "a[1]", "a[2]"] {
            board.hear(&ended(item, How::Succeeded), SECOND);
        }
        assert!(board.hear(&ended("a", How::Succeeded), SECOND).is_group);
        assert_eq!(board.ended().all(), 3);
    }

    #[test]
    fn what_has_ended_leaves_nothing_behind() {
        let mut board = board(100_000, 4);
        for number in 0..100_000 {
            let name = number.to_string();
            board.hear(&began(&name), SECOND);
            let how = if number % 2 == 0 { How::Succeeded } else { How::Failed };
            assert_eq!(board.hear(&ended(&name, how), SECOND).took, Some(Duration::ZERO));
        }
        assert_eq!((board.active.len(), board.waiting.len(), board.groups.len()), (0, 0, 0));
        assert_eq!((board.ended.succeeded, board.ended.failed), (50_000, 50_000));
    }
}
