//! The seeded simulation: several workers on one memory store, under a fake clock, with faults.
//!
//! [`run`] draws a world from a seed and lets it happen: worker processes with the real
//! [`Dispatcher`](tidegate_core::dispatcher::Dispatcher) and a real slot book, bodies that compute,
//! wait, do steps, wait for signals, time, children and other runs or for the first of several, park,
//! fail, snooze, kill their process, never end, or are done for items; runs of several shapes;
//! limits, with keys, weights and rates, that are given back and taken again and made others;
//! signals; cancels and pauses.
//! Chance picks what happens next. Faults come at every step: a request fails; its answer is lost, or
//! late; a process dies, before or after its request has happened; a body that was dropped lingers and
//! reports late; somebody shows a fence of the past. Then the faults stop, and everything must end.
//!
//! What is checked, after every step that can change it:
//!
//! - Slots: what bodies and the request in flight hold is what the book says, and never above capacity.
//!   At the end nothing is held.
//! - Fences only grow, by one; attempts stay within their bound; what has ended does not change; a
//!   task that has ended has one record of its end; the audit finds nothing.
//! - A body is entered only by the claim that holds, in a worker that is alive, and while no other
//!   entry of the task computes in a living worker that was not told to drop it.
//! - Nothing is claimed in a request at whose end its run, queue or store is paused. What was claimed
//!   before may still begin.
//! - An acknowledged run exists; one that was refused does not; a key has one run; a cancelled run
//!   is cancelled from the answer on.
//! - No two suspects compute in one worker. So a task that kills nobody ends as `crash_loop` only if
//!   at least three deaths hit it that came from outside or from a task that was no suspect; a
//!   single poison task brings about at most three such, so beside one poison task and fewer than
//!   two deaths from outside no innocent task is given up.
//! - From its second claim on a task is entered only once the store knows that it begins, so that
//!   every death it brings about but the first is counted.
//! - The readings of a dispatcher are those of its bodies. A worker that was just answered knows all
//!   that the store thinks it owns. What it says of a task it owns is lost only if the task is over,
//!   or to stop; told again, it is as it was. A worker that closes keeps nothing that waits or has not begun.
//! - Whoever ended a run, by what it said or asked, is told so, also if the first answer was lost.
//! - A run of a task is begun by who runs that task and by nobody else, and is there once, however
//!   often it is asked for, until it is closed; it has its parent's queue and priority unless told
//!   otherwise, and is paused with its run. When a task has ended other than by success none of its
//!   runs is left; one that has succeeded has items that all have.
//! - How a wait has ended stands: every later entry of the attempt is given the same, and of steps,
//!   signals and children every later attempt. A step that is stored is not done again.
//! - A signal is received by one wait, unless that is closed; where one task alone receives, in the
//!   order in which they were sent; nobody waits for one that is there.
//! - What tasks hold of a limit is never above it, unless it was made smaller or one task alone is
//!   above it; what bodies believe to hold, the store knows; what was begun in one stretch is never
//!   above a rate, as far as whoever begins is not behind the time of others.
//! - A worker has no more tasks than it has room for, but for those that some task waits for and for
//!   suspects.
//! - When the faults have stopped, every run ends, and every worker then owns nothing. In one world of
//!   five requests fail at worst, one worker is alone, and nobody looks every second: there every wake-up
//!   has to come by itself.
//!
//! The store decides every request through a loader that misses by chance or, in one world of four, always:
//! then a request is decided again from the start, with what was missing, until nothing is.
//!
//! The same seed gives the same trace. Deliberately absent: threads, files, real time.

mod asking;
mod bounds;
pub(crate) mod chance;
mod journal;
mod ledger;
mod post;
mod process;
mod profile;
mod scheduler;
mod script;
mod trace;
mod world;

use crate::loading::{ComparingDecider, DecisionProperty, MissingDecider};
use scheduler::Simulation;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tidegate_core::memory::MemoryStore;

/// How a simulation is run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Steps with faults; then the faults stop.
    pub steps: u32,
    /// Whether the whole trace is kept, not only its end.
    pub keeps_trace: bool,
    /// How the store loads the rows of its requests.
    pub loading: Loading,
}

/// How the store of a simulation loads the rows of its requests. The trace does not depend on it.
#[derive(Debug, Clone, Copy)]
pub enum Loading {
    /// As they are asked for.
    InPlace,
    /// Through a loader that misses by chance, or always: [`MissingDecider`].
    Missing,
    /// In several ways, which are compared: [`ComparingDecider`].
    Compared(DecisionProperty),
    /// As they are asked for, but for plain tasks, which the store claims by orders.
    Ordered,
}

impl Loading {
    fn open_store(self, seed: u64) -> MemoryStore {
        match self {
            Loading::InPlace => MemoryStore::new(),
            Loading::Ordered => MemoryStore::with_orders(),
            Loading::Missing => MemoryStore::with_decider(Arc::new(MissingDecider::new(seed))),
            Loading::Compared(property) => {
                let decider = ComparingDecider::new(seed, &[property]);
                MemoryStore::with_decider(Arc::new(decider))
            }
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options { steps: 500, keeps_trace: false, loading: Loading::Missing }
    }
}

macro_rules! summary {
    ($($(#[$doc:meta])* $name:ident: $words:literal),+ $(,)?) => {
        /// What happened in a simulation, so that one sees that the faults do occur.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Summary {
            $($(#[$doc])* pub $name: u64,)+
            /// The same for the same trace.
            pub trace_hash: u64,
            /// The trace, if it was to be kept.
            pub trace: Vec<String>,
        }

        impl Summary {
            /// Counts what happened in another one too.
            pub fn add(&mut self, other: &Summary) {
                $(self.$name += other.$name;)+
                self.trace_hash ^= other.trace_hash;
            }
        }

        impl fmt::Display for Summary {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{:>12}  {}", self.$name, $words)?;)+
                write!(f, "{:>12x}  trace", self.trace_hash)
            }
        }
    };
}

summary! {
    /// Steps of the scheduler.
    steps: "steps",
    /// Runs that ended.
    runs: "runs ended",
    /// Tasks that ended.
    tasks: "tasks ended",
    /// Bodies that were entered.
    entries: "bodies entered",
    /// Requests that the store has taken.
    requests: "requests taken",
    /// Requests that failed, with nothing done.
    failed_requests: "requests failed",
    /// Requests that were done, with their answer lost.
    lost_answers: "answers lost after the request was done",
    /// Requests that were not done, and nobody knew.
    lost_questions: "requests lost before they were done",
    /// Requests that were handed in again.
    repeated_requests: "requests handed in again",
    /// Processes that were started.
    processes: "processes started",
    /// Processes that were killed from outside.
    kills: "processes killed from outside",
    /// Of these, with a request under way.
    kills_in_request: "of these, with a request under way",
    /// Processes that were killed by a body.
    poisoned: "processes killed by a body",
    /// Processes that were shut down.
    closed: "processes shut down",
    /// Tasks taken over from dead workers.
    recoveries: "tasks taken over",
    /// Tasks that ended as crash loops.
    crash_loops: "crash loops",
    /// Tasks that were owned unknowingly, and handed back.
    strays: "strays handed back",
    /// Changes that came too late.
    lost_races: "races lost",
    /// Bodies that were dropped.
    drops: "bodies dropped",
    /// Bodies that went on, or ended, after they were to be dropped.
    lingering: "of these, that did something first",
    /// Claims and ends told with a fence of the past.
    lies: "old fences shown",
    /// Runs cancelled.
    cancels: "cancels granted",
    /// Pauses begun.
    pauses: "pauses granted",
    /// Submits that found their key.
    existing: "submits that found their key",
    /// Runs of items that were asked for.
    fan_outs: "runs of items asked for",
    /// Of these, that a later entry found begun.
    found_items: "of these, that a later entry found",
    /// Of these, that somebody asked for who did not run the task any more.
    orphans: "of these, refused to who had no right",
    /// Other runs that tasks have wanted to begin.
    children: "runs of tasks asked for",
    /// Steps that were done.
    steps_done: "steps done",
    /// Signals that were sent.
    signals: "signals sent",
    /// Signals that bodies were told of.
    received: "signals received",
    /// Waits that took too long.
    late: "waits that took too long",
    /// Waits that were refused.
    refused: "waits refused",
    /// Waits that later entries have found.
    found_waits: "waits found by later entries",
    /// Times that a body was to ask again for its waits.
    asked_again: "times that waits were asked for again",
    /// Bodies that became rows.
    parks: "bodies parked",
    /// Times that limits were taken again after a wait.
    retaken: "times that limits were taken again",
    /// Limits that were made others.
    resizes: "limits resized",
    /// Starts held for a while.
    holds: "starts held",
    /// Tasks claimed by workers that had room only for what is waited for.
    awaited: "tasks claimed beyond the room there is",
    /// Submits whose answer never came.
    unanswered: "submits never answered",
    /// Times the clock went on, by anything.
    advances: "moves of the clock",
}

/// What was violated, and how it came to that.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Of the world in which it happened.
    pub seed: u64,
    /// How it was run.
    pub options: Options,
    /// What does not hold.
    pub what: String,
    /// The last steps before.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trace.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        let (seed, steps) = (self.seed, self.options.steps);
        write!(f, "cargo run --release -p tidegate-testkit --example simulate -- ")?;
        write!(f, "--seed {seed} --steps {steps}")
    }
}

impl std::error::Error for Failure {}

/// Lets the world of this seed happen.
///
/// # Errors
/// The first thing that does not hold; a panic counts as one.
pub fn run(seed: u64, options: Options) -> Result<Summary, Box<Failure>> {
    let mut simulation = Simulation::new(seed, options);
    let ran = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let what = match ran {
        Ok(Ok(())) => return Ok(simulation.into_summary()),
        Ok(Err(what)) => what,
        Err(panic) => format!("panic: {}", words(&*panic)),
    };
    let trace = simulation.into_trace();
    Err(Box::new(Failure { seed, options, what, trace }))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words").to_owned()
}
