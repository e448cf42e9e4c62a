//! Why a task is not running: all reasons that hold at one instant, as data.
//!
//! [`explain_task`] finds them, the same for every store, in rows that a [`Loader`](crate::want::Loader)
//! loads at that instant. The asked worker alone knows its slots, its line and the tasks it keeps back
//! ([`Live`]); [`Looked::with`] adds that. [`Looked::estimate`] guesses when the task may begin.
//!
//! An explanation changes nothing, and the rows that it loads are bounded: tasks are counted up to
//! [`COUNTED_MAX`] and named up to [`NAMED_MAX`].

mod explainer;
mod words;

pub use explainer::explain_task;
pub use words::Rough;

use crate::graph::When;
use crate::lifecycle::{CancelledBy, Kind, Reason, WorkerId};
use crate::limit::{Holder, LimitKey, Rate};
use crate::load::{Reached, Resource};
use crate::store::{Scope, WhyUnserved};
use crate::{RunId, Timestamp};
use std::time::Duration;

/// Up to so many tasks that go before one are counted; where it is so many, there may be more.
pub const COUNTED_MAX: u32 = 1_000;

/// So many holders of a limit, and so many tasks that are waited for, are named.
pub const NAMED_MAX: usize = 20;

/// Records in which the usual duration of a task is looked for.
const RECENT_MAX: u32 = 500;

/// Why a task is not running, or what it does instead.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Why {
    /// It comes after tasks that are not over.
    BlockedBy {
        /// The first of them, with how each stands.
        tasks: Vec<(String, Kind)>,
        /// How many there are.
        open: u32,
        /// The rule by which it runs.
        when: When,
    },
    /// Its run was submitted for later.
    NotBefore {
        /// When it may start.
        at: Timestamp,
    },
    /// It has failed, and is tried again after a pause.
    BackOff {
        /// When the pause is over.
        until: Timestamp,
        /// Which attempt comes then.
        attempt: u32,
        /// How many it has in all.
        attempts: u32,
        /// What went wrong last, in words.
        error: Option<String>,
    },
    /// It asked to be run again later.
    Snoozed {
        /// When.
        until: Timestamp,
    },
    /// A limit is full.
    LimitFull(Full),
    /// So much was begun under a limit of late that it has to wait.
    RateReached {
        /// Which.
        limit: LimitKey,
        /// How much may begin in how much time.
        rate: Rate,
        /// How many units it wants.
        wants: u32,
        /// When so many may begin.
        next: Timestamp,
        /// How many tasks stand before it; see [`COUNTED_MAX`].
        before: u32,
    },
    /// It uses a limit that is not there.
    LimitMissing {
        /// Which.
        limit: LimitKey,
    },
    /// It is ready, and has no slot.
    NoSlot {
        /// In which queue.
        queue: String,
        /// How many ready tasks of the queue go before it; see [`COUNTED_MAX`].
        before: u32,
        /// The slots of the worker that was asked, if it could run it.
        slots: Option<Slots>,
    },
    /// A worker has claimed it, and it waits for a slot there.
    Claimed {
        /// Which.
        worker: WorkerId,
        /// Since when it is ready.
        since: Timestamp,
        /// The slots of that worker, if it was asked.
        slots: Option<Slots>,
    },
    /// Nothing starts.
    Paused {
        /// Of what.
        scope: Scope,
        /// Since when.
        since: Timestamp,
    },
    /// The worker that was asked has as many tasks begun and unfinished as it may.
    InMemoryMax {
        /// Which.
        worker: WorkerId,
        /// How many.
        most: u32,
    },
    /// The machine of the worker that was asked is so busy that nothing new starts there.
    StartBelow {
        /// Which worker.
        worker: WorkerId,
        /// What there is too much in use of.
        what: Resource,
        /// How much, as a fraction, when it was last looked at.
        value: f64,
        /// Below which it has to fall.
        mark: f64,
    },
    /// It waits in memory, without its slot.
    Waits {
        /// What for, in words.
        what: String,
        /// Since when.
        since: Timestamp,
        /// When that is over at the latest, as far as the store knows.
        until: Option<Timestamp>,
        /// Where.
        worker: WorkerId,
    },
    /// It waits as a row.
    Parked {
        /// What for, in words.
        what: String,
        /// Since when.
        since: Timestamp,
        /// When that is over at the latest.
        until: Option<Timestamp>,
    },
    /// Its wait is over, and it waits to take a limit again that it gave back meanwhile.
    Retakes(Full),
    /// Its wait is over, and it queues for a slot.
    Resuming {
        /// Where.
        worker: WorkerId,
        /// The slots there.
        slots: Slots,
    },
    /// Its process died again and again while it computed: it runs beside no other such task.
    Quarantined {
        /// How often.
        deaths: u8,
        /// Who goes before it at the worker that was asked, by run and name.
        before: Vec<(RunId, String)>,
    },
    /// No worker can run it.
    Unserved {
        /// Its queue.
        queue: String,
        /// Its workflow.
        workflow: String,
        /// By which name workers would know it.
        task: String,
        /// How many slots it takes.
        weight: u32,
        /// Why not.
        why: WhyUnserved,
    },
    /// It was told to stop, and still computes.
    Stopping {
        /// By whom.
        by: CancelledBy,
    },
    /// It is running.
    Running {
        /// Where.
        worker: WorkerId,
        /// Since when.
        since: Timestamp,
    },
    /// It has ended.
    Ended {
        /// How.
        kind: Kind,
        /// Why, if not by success.
        reason: Option<Reason>,
        /// When.
        at: Option<Timestamp>,
        /// What went wrong, or why it was skipped, in words.
        error: Option<String>,
    },
}

/// A limit of which a task cannot have what it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    /// Which.
    pub limit: LimitKey,
    /// How many units may be in use at once, if that is bounded.
    pub at_once: Option<u32>,
    /// How many units the task wants.
    pub wants: u32,
    /// How many are in use.
    pub in_use: u32,
    /// Who holds them, the longest first; see [`NAMED_MAX`].
    pub holders: Vec<Holder>,
    /// How many tasks stand before it; see [`COUNTED_MAX`].
    pub before: u32,
}

/// The slots of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// How many there are.
    pub capacity: u32,
    /// How many are in use.
    pub in_use: u32,
    /// How many tasks stand in line there.
    pub waiting: u32,
}

/// How a task stands, and why it is not running.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked {
    /// Its run.
    pub run: RunId,
    /// Its name.
    pub task: String,
    /// Where it stands.
    pub kind: Kind,
    /// When it was looked at.
    pub at: Timestamp,
    /// Why it is not running, or what it does instead. Never empty.
    pub reasons: Vec<Why>,
    /// How many slots it takes.
    pub weight: u32,
    /// Whether some task waits for its run.
    pub awaited: bool,
    /// The worker that owns it.
    pub owner: Option<WorkerId>,
    /// The workers that live and could run it, and how many slots they have together.
    pub able: Vec<WorkerId>,
    /// See [`able`](Self::able).
    pub slots: u32,
    /// How long tasks like it take: the median of its recent successes.
    pub usual: Option<Duration>,
}

impl Full {
    /// Whether there is less of it than is wanted. What is wanted of an unused limit is there.
    fn lacks(&self) -> bool {
        let free = self.at_once.map(|most| most.saturating_sub(self.in_use));
        self.in_use > 0 && free.is_some_and(|free| free < self.wants)
    }
}

impl Slots {
    /// How many are free.
    pub fn free(&self) -> u32 {
        self.capacity.saturating_sub(self.in_use)
    }
}

/// What only the worker knows that is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Which.
    pub worker: WorkerId,
    /// Its slots.
    pub slots: Slots,
    /// How many tasks it may have begun and unfinished, if it has so many.
    pub in_memory_max: Option<u32>,
    /// The marks that are reached, because of which nothing new starts there.
    pub start_below: Vec<Reached>,
    /// Who goes before the task among those that run one at a time because their process has died.
    pub suspects: Vec<(RunId, String)>,
    /// Whether the task was claimed and is kept back because of these.
    pub kept_back: bool,
    /// Whether the task has waited, wants to go on and does not have its slot.
    pub resumes: bool,
}

impl Looked {
    /// The same with what a worker knows besides: of its own tasks, and of those it could run.
    pub fn with(mut self, live: &Live) -> Self {
        if self.owner == Some(live.worker) {
            self.owned_by(live);
        } else if self.kind == Kind::Ready && self.able.contains(&live.worker) {
            self.waited_for_by(live);
        }
        self
    }

    fn owned_by(&mut self, live: &Live) {
        let retakes = self.reasons.iter().any(|why| matches!(why, Why::Retakes(_)));
        if live.resumes && !retakes {
            let is_over = |why: &Why| matches!(why, Why::Running { .. } | Why::Waits { .. });
            self.reasons.retain(|why| !is_over(why));
            let (worker, slots) = (live.worker, live.slots);
            self.reasons.push(Why::Resuming { worker, slots });
        }
        // It waits for its turn to be alone, or for a slot.
        self.reasons.retain(|why| match why {
            Why::Claimed { .. } => !live.kept_back,
            Why::Quarantined { .. } => live.kept_back,
            _ => true,
        });
        self.fill(live);
    }

    fn waited_for_by(&mut self, live: &Live) {
        let queues = self.reasons.iter().any(|why| matches!(why, Why::NoSlot { .. }));
        if let Some(most) = live.in_memory_max.filter(|_| queues && !self.awaited) {
            self.reasons.push(Why::InMemoryMax { worker: live.worker, most });
        }
        for reached in live.start_below.iter().filter(|_| queues && !self.awaited) {
            let (worker, Reached { what, value, mark }) = (live.worker, *reached);
            self.reasons.push(Why::StartBelow { worker, what, value, mark });
        }
        self.fill(live);
        // A slot is free and nobody goes before it: then it is something else.
        if self.reasons.len() > 1 && live.slots.free() >= self.weight {
            self.reasons.retain(|why| !matches!(why, Why::NoSlot { before: 0, .. }));
        }
    }

    fn fill(&mut self, live: &Live) {
        for why in &mut self.reasons {
            match why {
                Why::NoSlot { slots, .. } | Why::Claimed { slots, .. } => *slots = Some(live.slots),
                Why::Quarantined { before, .. } => before.clone_from(&live.suspects),
                _ => {}
            }
        }
    }

    /// A guess in how long it begins, or goes on; `None` where nothing can be said: it waits for
    /// somebody's doing, or no task like it has succeeded of late.
    ///
    /// Each reason makes a guess of its own, and the longest counts. Times that are known count as
    /// they are: start times, back-off, the end of a sleep or of a wait's patience, when a rate allows
    /// the next. Where others go before it, each of them is taken to last as long as tasks like it
    /// usually do (the median from entry to success among the last 500 records), as many at a time as
    /// the slots of all workers that could run it allow, or the units of the limit.
    pub fn estimate(&self) -> Option<Duration> {
        let guesses = self.reasons.iter().map(|why| self.guess(why));
        guesses.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn guess(&self, why: &Why) -> Option<Duration> {
        let until = |at: Timestamp| at.since(self.at);
        Some(match why {
            Why::NotBefore { at } => until(*at),
            Why::BackOff { until: at, .. } | Why::Snoozed { until: at } => until(*at),
            Why::Waits { until: at, .. } | Why::Parked { until: at, .. } => until((*at)?),
            Why::RateReached { rate, wants, next, before, .. } => {
                let periods = before.saturating_mul(*wants) / rate.units.max(1);
                until(*next).saturating_add(rate.per.saturating_mul(periods))
            }
            Why::LimitFull(full) | Why::Retakes(full) => {
                self.time_until_turn(full.before, full.at_once? / full.wants.max(1))?
            }
            Why::NoSlot { before: 0, slots: Some(slots), .. } if slots.free() >= self.weight => {
                Duration::ZERO
            }
            Why::NoSlot { before, .. } => {
                self.time_until_turn(*before, self.slots / self.weight.max(1))?
            }
            Why::Claimed { slots: None, .. } => self.time_until_turn(0, self.slots)?,
            Why::Claimed { slots: Some(slots), .. } | Why::Resuming { slots, .. } => {
                self.time_until_turn(slots.waiting.saturating_sub(1), slots.capacity)?
            }
            Why::Quarantined { before, .. } => {
                let before = u32::try_from(before.len()).unwrap_or(u32::MAX);
                if before == 0 { Duration::ZERO } else { self.time_until_turn(before - 1, 1)? }
            }
            _ => return None,
        })
    }

    /// In how long it is the turn of who has so many before it, so many at a time.
    fn time_until_turn(&self, before: u32, at_a_time: u32) -> Option<Duration> {
        Some(self.usual?.saturating_mul(before.saturating_add(1)) / at_a_time.max(1))
    }
}
