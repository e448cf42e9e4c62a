//! Why a task is not running: all reasons that hold at one instant, as data.
//!
//! [`look`] decides, the same for every store, from what a store [reads](Reads) at that instant. What
//! only the worker knows that is asked ([`Live`]: its slots, who stands in line, who is kept back) is
//! added by [`Looked::with`]; when the task may begin is guessed by [`Looked::estimate`].
//!
//! Nothing is changed by looking, and what is looked at is bounded: who is counted is counted up to
//! [`COUNTED_MAX`], who is named up to [`NAMED_MAX`].

mod words;

pub use words::Rough;

use crate::graph::{TaskIndex, When};
use crate::lifecycle::{Activity, CancelledBy, Kind, Reason, State, WorkerId};
use crate::limit::{self, Hold, Holder, Limit, LimitKey, Rate};
use crate::load::{Reached, Resource};
use crate::rows::{Head, Payload, Row};
use crate::store::{Bytes, Happened, Scope, TaskKey, WhyUnserved};
use crate::wait::Waiting;
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

/// A worker that lives, seen from a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub worker: WorkerId,
    /// Whether it serves the queue.
    pub serves: bool,
    /// Whether it knows the task.
    pub knows: bool,
    /// How many slots it has.
    pub slots: u32,
}

impl Candidate {
    /// Whether it could run a task of this weight.
    pub fn can_run(&self, weight: u32) -> bool {
        self.serves && self.knows && self.slots >= weight
    }
}

/// What a store reads for an explanation, all of it at one instant.
pub trait Reads {
    /// Why it cannot.
    type Error;

    /// One task.
    fn row(&mut self, task: TaskKey) -> Result<Option<Row>, Self::Error>;

    /// What is kept beside a task.
    fn payload(&mut self, task: TaskKey, kind: Payload) -> Result<Option<Bytes>, Self::Error>;

    /// How the last entry of a task ended, if that is among the last `max` records of its run.
    fn last_end(
        &mut self,
        task: TaskKey,
        index: TaskIndex,
        max: u32,
    ) -> Result<Option<Happened>, Self::Error>;

    /// All waits of a task.
    fn waits(&mut self, task: TaskKey) -> Result<Vec<Waiting>, Self::Error>;

    /// Since when this is paused, if it is.
    fn paused_since(&mut self, scope: &Scope) -> Result<Option<Timestamp>, Self::Error>;

    /// A limit that was declared.
    fn limit(&mut self, name: &str) -> Result<Option<Limit>, Self::Error>;

    /// Units of a limit that tasks hold.
    fn in_use(&mut self, limit: &LimitKey) -> Result<u32, Self::Error>;

    /// What was begun under a limit and is still noted: when, and how many units.
    fn begun(&mut self, limit: &LimitKey) -> Result<Vec<(Timestamp, u32)>, Self::Error>;

    /// What a task holds.
    fn holds(&mut self, task: TaskKey) -> Result<Vec<Hold>, Self::Error>;

    /// Some of those who hold a limit, at most `max`: the task, how many units, since when.
    fn holders(
        &mut self,
        limit: &LimitKey,
        max: usize,
    ) -> Result<Vec<(TaskKey, u32, Timestamp)>, Self::Error>;

    /// How many stand behind a limit before this place, at most `max`.
    fn behind_before(
        &mut self,
        limit: &LimitKey,
        place: (Timestamp, TaskKey),
        max: u32,
    ) -> Result<u32, Self::Error>;

    /// How many tasks of a queue can be claimed, by a worker that lives, and go before this place; at
    /// most `max`.
    fn ready_before(
        &mut self,
        queue: &str,
        place: (Timestamp, TaskKey),
        max: u32,
    ) -> Result<u32, Self::Error>;

    /// All workers that live, seen from a task of this queue, workflow and name.
    fn workers_for(
        &mut self,
        queue: &str,
        workflow: &str,
        task: &str,
    ) -> Result<Vec<Candidate>, Self::Error>;

    /// How long tasks like this one (same queue, workflow, name and weight) took from entry to
    /// success, as far as that is among the last `max` records of the store.
    fn recent(&mut self, task: TaskKey, max: u32) -> Result<Vec<Duration>, Self::Error>;
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

/// Looks at a task; `None` if there is no such.
///
/// # Errors
/// Whatever the store says.
pub fn look<R: Reads>(
    reads: &mut R,
    task: TaskKey,
    now: Timestamp,
) -> Result<Option<Looked>, R::Error> {
    let Some(row) = reads.row(task)? else { return Ok(None) };
    let Some(head) = head_of(reads, &row)? else { return Ok(None) };
    let kind = row.life.state.kind();
    let (workflow, known_as) = (row.plan.workflow(), row.plan.known_as(row.index));
    let workers = match kind.is_terminal() {
        true => Vec::new(),
        false => reads.workers_for(&head.queue, workflow, known_as)?,
    };
    let weight = row.planned().weight;
    let able = workers.iter().filter(|worker| worker.can_run(weight));
    let mut looked = Looked {
        run: head.id,
        task: row.plan.graph().name(row.index).to_owned(),
        kind,
        at: now,
        reasons: Vec::new(),
        weight,
        awaited: head.awaited,
        owner: row.life.owner(),
        able: able.clone().map(|able| able.worker).collect(),
        slots: able.fold(0, |sum, able| sum.saturating_add(able.slots)),
        usual: None,
    };
    if !kind.is_terminal() {
        looked.usual = median(reads.recent(task, RECENT_MAX)?);
    }
    let mut looking = Looking { reads, row, head, now, reasons: Vec::new() };
    looking.look(&workers)?;
    looked.reasons = looking.reasons;
    Ok(Some(looked))
}

/// What is known of the run of a task.
fn head_of<R: Reads>(reads: &mut R, row: &Row) -> Result<Option<Head>, R::Error> {
    Ok(match &row.head {
        Some(head) => Some((**head).clone()),
        None => {
            let first = reads.row(row.run().task(TaskIndex::from_u32(0)))?;
            first.and_then(|first| first.head).map(|head| *head)
        }
    })
}

fn median(mut durations: Vec<Duration>) -> Option<Duration> {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied()
}

struct Looking<'l, R> {
    reads: &'l mut R,
    row: Row,
    head: Head,
    now: Timestamp,
    reasons: Vec<Why>,
}

impl<R: Reads> Looking<'_, R> {
    fn look(&mut self, workers: &[Candidate]) -> Result<(), R::Error> {
        match self.row.life.state.clone() {
            State::Blocked => {
                self.blocked()?;
                if let Some(at) = self.head.not_before.filter(|at| *at > self.now) {
                    self.reasons.push(Why::NotBefore { at });
                }
                self.paused()?;
                self.unserved(workers);
            }
            State::Ready { since, due } => {
                // As in `Row::place`: the clock may have been set back since.
                let due = if due <= since { due.min(self.now) } else { due };
                self.not_due(due)?;
                self.paused()?;
                self.unserved(workers);
                self.quarantined();
                let place = self.row.order(&self.head, since.max(due));
                self.limits(place)?;
                self.in_queue(due, place)?;
            }
            State::Running { worker, ready_since, activity } => {
                self.running(worker, ready_since, activity)?;
            }
            State::Parked { since, wake, wait } => {
                self.reasons.push(Why::Parked { what: wait, since, until: wake });
                self.paused()?;
                self.unserved(workers);
            }
            State::Failed(reason) | State::TimedOut(reason) | State::Cancelled(reason) => {
                self.ended(Some(reason))?;
            }
            State::Succeeded | State::Skipped => self.ended(None)?,
        }
        Ok(())
    }

    /// The tasks that it comes after and that are not over.
    fn blocked(&mut self) -> Result<(), R::Error> {
        let (plan, run) = (self.row.plan.clone(), self.row.run());
        let graph = plan.graph();
        let (mut tasks, mut open) = (Vec::new(), 0);
        // The last of them are the likeliest to be open: of very many, only these are looked at.
        for (looked, &parent) in graph.parents(self.row.index).iter().rev().enumerate() {
            if open > 0 && looked >= COUNTED_MAX as usize {
                break;
            }
            let Some(above) = self.reads.row(run.task(parent))? else { continue };
            let kind = above.life.state.kind();
            if !kind.is_terminal() {
                open += 1;
                tasks.push((graph.name(parent).to_owned(), kind));
            }
        }
        tasks.reverse();
        tasks.truncate(NAMED_MAX);
        self.reasons.push(Why::BlockedBy { tasks, open, when: graph.when(self.row.index) });
        Ok(())
    }

    fn not_due(&mut self, due: Timestamp) -> Result<(), R::Error> {
        if due <= self.now {
            return Ok(());
        }
        let (key, index, life) = (self.row.key, self.row.index, &self.row.life);
        let (entries, attempt) = (life.entries, life.attempt);
        let last = match entries {
            0 => None,
            _ => self.reads.last_end(key, index, COUNTED_MAX)?,
        };
        let why = match (entries, last) {
            (0, _) => Why::NotBefore { at: due },
            (_, Some(Happened::Snoozed)) => Why::Snoozed { until: due },
            (_, None) if attempt == 1 => Why::Snoozed { until: due },
            _ => Why::BackOff {
                until: due,
                attempt,
                attempts: self.row.planned().rules.retries.saturating_add(1),
                error: self.error()?,
            },
        };
        self.reasons.push(why);
        Ok(())
    }

    fn paused(&mut self) -> Result<(), R::Error> {
        let (id, queue) = (self.head.id, self.head.queue.to_string());
        for scope in [Scope::Store, Scope::Queue(queue)] {
            if let Some(since) = self.reads.paused_since(&scope)? {
                self.reasons.push(Why::Paused { scope, since });
            }
        }
        if let Some(since) = self.head.paused_at {
            self.reasons.push(Why::Paused { scope: Scope::Run(id), since });
        }
        Ok(())
    }

    fn unserved(&mut self, workers: &[Candidate]) {
        let weight = self.row.planned().weight;
        let asked = workers.iter().map(|worker| (worker.serves, worker.knows, worker.slots));
        if let Some(why) = WhyUnserved::of(weight, asked) {
            self.reasons.push(Why::Unserved {
                queue: self.head.queue.to_string(),
                workflow: self.row.plan.workflow().to_owned(),
                task: self.row.plan.known_as(self.row.index).to_owned(),
                weight,
                why,
            });
        }
    }

    fn quarantined(&mut self) {
        if self.row.life.is_suspect() {
            let (deaths, before) = (self.row.life.recoveries, Vec::new());
            self.reasons.push(Why::Quarantined { deaths, before });
        }
    }

    /// What of its limits it could not take, whether it has tried to or not.
    fn limits(&mut self, order: Timestamp) -> Result<(), R::Error> {
        let behind = self.row.behind.clone();
        for (limit, wants) in self.uses()? {
            let stands_here = behind.as_ref().is_some_and(|(behind, _)| *behind == limit);
            let order = match &behind {
                Some((_, order)) if stands_here => *order,
                _ => order,
            };
            let Some(declared) = self.reads.limit(&limit.name)? else {
                self.reasons.push(Why::LimitMissing { limit });
                continue;
            };
            let full = self.full(&limit, &declared, wants, order)?;
            let lacks = full.lacks();
            let mut rate_reached = false;
            if let Some(rate) = declared.most_in_time() {
                // By itself, because a limit that is full names no time.
                let alone = Limit::new("").rate(rate.units, rate.per);
                let begun = self.reads.begun(&limit)?;
                let room = alone.room(wants, 0, &begun, self.now);
                if let Some(next) = room.next.filter(|_| room.units < wants) {
                    let (limit, before) = (limit.clone(), full.before);
                    self.reasons.push(Why::RateReached { limit, rate, wants, next, before });
                    rate_reached = true;
                }
            }
            // Who stands behind it although there is room stands behind others there.
            if lacks || stands_here && !rate_reached {
                self.reasons.push(Why::LimitFull(full));
            }
        }
        Ok(())
    }

    fn uses(&mut self) -> Result<Vec<(LimitKey, u32)>, R::Error> {
        if self.row.planned().limits.is_empty() {
            return Ok(Vec::new());
        }
        let kept = self.reads.payload(self.row.key, Payload::Keys)?;
        Ok(limit::uses(self.row.planned(), kept.as_deref()))
    }

    /// How a limit stands, for a task that wants so much of it.
    fn full(
        &mut self,
        limit: &LimitKey,
        declared: &Limit,
        wants: u32,
        order: Timestamp,
    ) -> Result<Full, R::Error> {
        let mut holders = Vec::new();
        for (task, units, since) in self.reads.holders(limit, NAMED_MAX)? {
            let Some(row) = self.reads.row(task)? else { continue };
            let Some(head) = head_of(self.reads, &row)? else { continue };
            let name = row.plan.graph().name(row.index).to_owned();
            holders.push(Holder { task, run: head.id, name, units, since });
        }
        holders.sort_by_key(|holder| (holder.since, holder.task));
        Ok(Full {
            limit: limit.clone(),
            at_once: declared.most_at_once(),
            wants,
            in_use: self.reads.in_use(limit)?,
            holders,
            before: self.reads.behind_before(limit, (order, self.row.key), COUNTED_MAX)?,
        })
    }

    /// Its place among those that can be claimed, if it can.
    fn in_queue(&mut self, due: Timestamp, order: Timestamp) -> Result<(), R::Error> {
        let is_open = due <= self.now && self.head.paused_at.is_none() && self.row.behind.is_none();
        let is_unserved = |why: &Why| matches!(why, Why::Unserved { .. });
        if !is_open || self.reasons.iter().any(is_unserved) {
            return Ok(());
        }
        let queue = self.head.queue.to_string();
        let before = self.reads.ready_before(&queue, (order, self.row.key), COUNTED_MAX)?;
        self.reasons.push(Why::NoSlot { queue, before, slots: None });
        Ok(())
    }

    fn running(
        &mut self,
        worker: WorkerId,
        ready_since: Timestamp,
        activity: Activity,
    ) -> Result<(), R::Error> {
        if let Some(by) = self.row.life.stopping {
            self.reasons.push(Why::Stopping { by });
        }
        let retakes = self.retakes()?;
        match activity {
            Activity::Claimed => {
                self.reasons.push(Why::Claimed { worker, since: ready_since, slots: None });
                self.quarantined();
            }
            // Its wait is over, whatever is still written of it.
            _ if retakes => {}
            Activity::Active { begun_at } => {
                self.reasons.push(Why::Running { worker, since: begun_at });
            }
            Activity::Deferred { since, wait, .. } => {
                let waits = match self.row.has_waits {
                    true => self.reads.waits(self.row.key)?,
                    false => Vec::new(),
                };
                let open = waits.iter().filter(|wait| wait.is_open());
                let until = open.filter_map(|wait| wait.due).min();
                self.reasons.push(Why::Waits { what: wait, since, until, worker });
            }
        }
        Ok(())
    }

    /// The limits that it gave back for a wait which is over, and does not have again; whether there
    /// are such.
    fn retakes(&mut self) -> Result<bool, R::Error> {
        let Some((behind, order)) = self.row.behind.clone() else { return Ok(false) };
        let before = self.reasons.len();
        let held = self.reads.holds(self.row.key)?;
        for (limit, wants) in self.uses()? {
            if held.iter().any(|hold| hold.limit == limit) {
                continue;
            }
            let Some(declared) = self.reads.limit(&limit.name)? else {
                self.reasons.push(Why::LimitMissing { limit });
                continue;
            };
            let full = self.full(&limit, &declared, wants, order)?;
            if full.lacks() || limit == behind {
                self.reasons.push(Why::Retakes(full));
            }
        }
        Ok(self.reasons.len() > before)
    }

    fn ended(&mut self, reason: Option<Reason>) -> Result<(), R::Error> {
        let kind = self.row.life.state.kind();
        let error = if kind == Kind::Succeeded { None } else { self.error()? };
        self.reasons.push(Why::Ended { kind, reason, at: self.row.ended_at, error });
        Ok(())
    }

    fn error(&mut self) -> Result<Option<String>, R::Error> {
        let error = self.reads.payload(self.row.key, Payload::Error)?;
        Ok(error.map(|error| String::from_utf8_lossy(&error).into_owned()))
    }
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
