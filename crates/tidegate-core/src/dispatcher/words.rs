//! What a dispatcher is told, and what it says.

use crate::Timestamp;
use crate::lifecycle::{Failure, Fence, WorkerId};
use crate::plan::Plan;
use crate::store::{
    Bytes, Claimed, Ended, NewRun, Operation, OperationOutcome, Record, Refusal, Reply, RunKey,
    StoreError, Submitted, TaskKey,
};
use crate::wait::{WaitAnswer, WaitId, WaitOp};
use std::sync::Arc;
use std::time::Duration;

/// Whoever waits for the answer to something asked, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// What happens.
#[derive(Debug)]
pub enum Input {
    /// Somebody submits a run.
    Submit(NewRun, Ticket),
    /// Somebody wants something of runs.
    Operation(Operation, Ticket),
    /// A task says something.
    Said {
        /// Which.
        task: TaskKey,
        /// In which claim of it.
        fence: Fence,
        /// What.
        said: Said,
    },
    /// A task is about to say that it has failed, and nothing else of its run is to begin then. What
    /// was claimed by a request that does not know of it is handed back.
    Stops(RunKey, TaskKey),
    /// The request that was handed in came to this.
    Answered(Result<Reply, StoreError>),
    /// The pause after a failed request is over.
    Retry,
    /// The time the store wanted to be looked at has come, or somebody else may have changed it.
    Alarm,
    /// Somebody else has made something ready.
    Ready,
    /// Time to compare what the store thinks this worker owns with what it has.
    RollCall,
    /// These workers are dead.
    Dead(Vec<WorkerId>),
    /// Nothing new is to start until this comes again with false, whoever else has the slots to: what
    /// was claimed ahead is handed back, what has begun goes on, and runs that somebody waits for are
    /// let in. False may come at any time, and means also that there may be more slots.
    HoldStarts(bool),
    /// Whether this task may wait on although nothing new is to begin.
    Spare(TaskKey, bool),
    /// Nothing new is to begin: what has not begun, and what waits and is not spared, is handed back.
    Close,
    /// What still computes is dropped and handed back.
    DropAll,
}

/// What a task says.
#[derive(Debug)]
pub enum Said {
    /// It has its slot and enters its body, or wants leave to.
    Begins,
    /// It waits without its slot.
    Defers {
        /// Time computed.
        active: Duration,
        /// What for, in words.
        wait: String,
    },
    /// Its wait is over and it wants leave to go on.
    Resumes,
    /// It wants something of its waits, or of its limits.
    Asks(WaitOp),
    /// It is over.
    Ends(End),
}

/// How an entry ended.
#[derive(Debug)]
pub enum End {
    /// The body returned.
    Succeeded {
        /// Its value.
        output: Option<Bytes>,
        /// What it has put into the context.
        inserts: Option<Bytes>,
    },
    /// The body failed.
    Failed {
        /// In which way.
        failure: Failure,
        /// Whether another attempt would not mend it.
        permanent: bool,
        /// A number from 0 to 1, for the spread of the back-off.
        chance: f64,
        /// In words.
        error: String,
    },
    /// The body wants to be run again later.
    Snoozed(Duration),
    /// The body was dropped and waits as a row.
    Parked {
        /// Time computed.
        active: Duration,
        /// When to enter it again at the latest.
        wake: Option<Timestamp>,
        /// What it waits for, in words.
        wait: String,
        /// The same, as the store knows it.
        on: Vec<WaitId>,
    },
    /// The body, or what was to enter it, was dropped.
    Dropped {
        /// Time computed.
        active: Duration,
    },
}

/// What is to be done.
#[derive(Debug)]
pub enum Todo {
    /// Run this task. If it is not begun, it stands in line for its slot first.
    Start {
        /// The task.
        claimed: Box<Claimed>,
        /// Whether it has to wait for [`Todo::Enter`] once it has its slot.
        asks: bool,
    },
    /// Its beginning is written: it may enter its body.
    Enter(TaskKey),
    /// The end of its wait is written: it may queue for its slot.
    Resume(TaskKey),
    /// This became of one of its waits.
    Answer(TaskKey, Fence, WaitAnswer),
    /// It is to ask again for everything it waits for: an answer may have been lost.
    AskAgain(TaskKey, Fence),
    /// It is to stop as soon as it can: drop it, if it runs by this right.
    Drop(TaskKey, Fence),
    /// It is not to be entered any more: drop it, unless its body was entered.
    Withdraw(TaskKey, Fence),
    /// It is handed back without having been started.
    NotStarted(Box<Claimed>),
    /// Answer whoever submitted.
    Submitted(Ticket, Result<Submitted, SubmitError>),
    /// Answer whoever wanted something.
    OperationDone(Ticket, Result<OperationOutcome, StoreError>),
    /// This run has ended.
    RunEnded(Ended),
    /// This was recorded, of a run with this plan.
    Recorded(Record, Arc<Plan>),
    /// The store does not know this worker: it counts as dead, and claims nothing any more.
    WorkerUnknown,
    /// Give [`Input::Retry`] after this time.
    RetryAfter(Duration, StoreError),
}

/// Why a submit came to nothing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SubmitError {
    /// The store refused it.
    Refused(Refusal),
    /// The store failed.
    Store(StoreError),
}

/// How many tasks are where, and what has been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readings {
    /// Tasks that this worker owns.
    pub owned: u64,
    /// Of these, claimed ahead and not begun.
    pub ahead: u64,
    /// Of these, waiting in memory.
    pub deferred: u64,
    /// Suspects that wait for their turn to be active alone.
    pub suspects: u64,
    /// Changes that somebody else had made impossible.
    pub lost_races: u64,
    /// Tasks taken over from dead workers.
    pub recoveries: u64,
    /// Tasks found to be owned and not known, and handed back.
    pub strays: u64,
    /// Requests that failed.
    pub failed_requests: u64,
    /// Tasks claimed, as often as they were.
    pub claimed: u64,
    /// For how long these were ready before, all together.
    pub ready_wait: Duration,
    /// Entries that ended by being handed back.
    pub handed_back: u64,
    /// Entries that ended because their task waits as a row.
    pub parked: u64,
    /// Attempts that failed and are followed by another.
    pub retries: u64,
    /// Words that others have left for tasks of this worker.
    pub words: u64,
    /// Runs submitted.
    pub submitted: u64,
    /// Runs that ended in a request of this worker.
    pub runs_ended: u64,
}
