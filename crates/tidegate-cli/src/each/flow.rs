//! Inputs on their way: read, begun, done.
//!
//! Three meet here: the thread that reads ([`Flow::push`]), the task that begins runs of inputs
//! ([`Flow::next`]), and the worker's entries, which say what becomes of each ([`Flow::hear`]). At most
//! [`AHEAD_MAX`] are read and not done, however many there are. That a command has ended is counted and
//! told when the store has it ([`Flow::hear_stored_end`]).
//!
//! When as many have failed as may, the flow stops: from that instant no command is begun, since a
//! failure is heard of before its slot is free for another.

use super::given::Given;
use super::words::Template;
use crate::summary::Failed;
use crate::tell::{Fact, How, Teller, Try, Who, written_short};
use crate::view::cause;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidegate::engine::{EntryEvent, EntryStage, Happened, StoredEnd};
use tidegate::{Backoff, Engine, RunId};
use tokio::sync::Notify;

/// So many inputs are read and not done, at most.
const AHEAD_MAX: u64 = 10_000;

/// The reader goes on when there is room for so many.
const ROOM: u64 = 1_000;

/// And so many bytes wait to be begun.
const BYTES_MAX: usize = 16 << 20;

/// So many inputs are begun in one run.
const CHUNK_MAX: usize = 1_000;

/// And so many bytes, of which JSON may make six times as many and has to stay below 1 MiB.
const CHUNK_BYTES_MAX: usize = 128 << 10;

/// What commands have written and is not shown yet: above this no further ones are begun.
const BEHIND_MAX: usize = 10_000;

/// How often it is looked whether it is shown.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// So many failures are remembered.
pub(super) const FAILURES_MAX: usize = 10;

/// What there is to do next for the one who begins runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There are inputs to begin a run of.
    Begin,
    /// All that was read is begun, and no more comes.
    Over,
    /// Too much has failed, and nothing is under way any more.
    Stop,
}

/// The inputs of a run.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) list: Vec<Value>,
}

/// What has become of everything.
#[derive(Debug, Default, Clone)]
pub(super) struct Score {
    /// Commands there are inputs for, as far as these were read.
    pub(super) read: u64,
    /// Whether they were read to their end.
    pub(super) ended: bool,
    /// What went wrong in reading them.
    pub(super) wrong: Option<String>,
    /// Inputs that had succeeded before.
    pub(super) before: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// The first of those that failed.
    pub(super) failures: Vec<Failed>,
    /// Whether nothing more is begun because too much has failed.
    pub(super) stopped: bool,
}

/// How failures are taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// After so many nothing more is begun.
    pub(super) failures_max: Option<u64>,
    pub(super) retries: u32,
    pub(super) slots: u32,
}

pub(super) struct Flow {
    rules: Rules,
    /// What commands are called among themselves.
    name: String,
    template: Template,
    teller: Teller,
    engine: OnceLock<Engine>,
    state: Mutex<State>,
    /// For the reader: there is room again, or no need for more.
    room: Condvar,
    /// For the one who begins runs.
    news: Notify,
}

#[derive(Default)]
struct State {
    score: Score,
    /// Read, not begun.
    queue: VecDeque<Given>,
    bytes: usize,
    /// Whether no more will be read.
    is_read: bool,
    /// Inputs that are read and not done.
    ahead: u64,
    /// Commands that are begun in a run and not done.
    begun: u64,
    /// The runs that are begun, by their first: how many commands are not done, and of how many inputs.
    chunks: BTreeMap<u64, (u64, u64)>,
    /// Commands that are under way.
    active: HashMap<(RunId, String), Given>,
    /// Commands that have ended, where the store has not said that it knows.
    unstored: HashMap<(RunId, String), UnstoredEnd>,
    /// Failures for good that were heard of, stored or not: the name of the first, and why.
    failures_heard: u64,
    first_failure: Option<(String, String)>,
}

/// The end of a command, until it is stored.
struct UnstoredEnd {
    given: Given,
    attempt: Try,
    /// What went wrong, if something did.
    why: String,
    log: Option<PathBuf>,
}

impl Flow {
    pub(super) fn new(rules: Rules, name: String, template: Template, teller: Teller) -> Self {
        Flow {
            rules,
            name,
            template,
            teller,
            engine: OnceLock::new(),
            state: Mutex::default(),
            room: Condvar::new(),
            news: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where logs are is known to the engine.
    pub(super) fn set_engine(&self, engine: Engine) {
        // It is set once.
        let _ = self.engine.set(engine);
    }

    pub(super) fn template(&self) -> &Template {
        &self.template
    }

    pub(super) fn teller(&self) -> &Teller {
        &self.teller
    }

    pub(super) fn score(&self) -> Score {
        self.lock().score.clone()
    }

    // The reader's side.

    /// Takes what was read, when there is room for it; false if no more is wanted.
    pub(super) fn push(&self, given: Given) -> bool {
        let mut state = self.lock();
        if state.ahead >= AHEAD_MAX || state.bytes >= BYTES_MAX {
            let is_full = |state: &mut State| {
                !state.score.stopped
                    && (state.ahead > AHEAD_MAX - ROOM || state.bytes > BYTES_MAX / 2)
            };
            let waited = self.room.wait_while(state, is_full);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.score.stopped {
            return false;
        }
        state.score.read += 1;
        state.ahead += given.inputs.len() as u64;
        state.bytes += given.len();
        state.queue.push_back(given);
        let is_ready = self.is_ready(&state);
        drop(state);
        if is_ready {
            self.news.notify_one();
        }
        true
    }

    /// One had succeeded before.
    pub(super) fn was_done(&self) {
        self.lock().score.before += 1;
    }

    /// Nothing more comes.
    pub(super) fn end(&self, wrong: Option<String>) {
        let mut state = self.lock();
        state.is_read = true;
        // What is not wanted any more has not come to its end.
        state.score.ended = wrong.is_none() && !state.score.stopped;
        state.score.wrong = wrong;
        drop(state);
        self.news.notify_one();
    }

    // The side of the one who begins runs.

    /// Whether it pays to begin what is there: it would stand still otherwise, or it is enough.
    fn is_ready(&self, state: &State) -> bool {
        !state.queue.is_empty()
            && (state.begun < u64::from(self.rules.slots) * 2 + 16
                || state.queue.len() >= CHUNK_MAX
                || state.bytes >= CHUNK_BYTES_MAX
                || state.is_read)
    }

    /// What there is to do, once there is something. Whoever asks and goes away has taken nothing.
    /// `begins`: whether more can be begun.
    pub(super) async fn next(&self, begins: bool) -> Next {
        loop {
            let news = self.news.notified();
            let is_behind = self.teller.behind() > BEHIND_MAX;
            {
                let state = self.lock();
                if state.score.stopped {
                    if state.is_over() {
                        return Next::Stop;
                    }
                } else if begins && self.is_ready(&state) && !is_behind {
                    return Next::Begin;
                } else if begins && state.is_read && state.queue.is_empty() {
                    return Next::Over;
                }
            }
            match is_behind {
                true => tokio::time::sleep(LOOK_EVERY).await,
                false => news.await,
            }
        }
    }

    /// The inputs of the next run.
    pub(super) fn begin(&self) -> Chunk {
        let chunk = self.lock().begin();
        self.teller.tell(Fact::More(chunk.list.len() as u64));
        self.room.notify_all();
        chunk
    }

    /// The run of which this was the first has ended. Some may not have been run: somebody has
    /// cancelled them.
    pub(super) fn chunk_ended(&self, first: u64) {
        let mut state = self.lock();
        if let Some((commands, inputs)) = state.chunks.remove(&first) {
            state.begun -= commands;
            state.ahead -= inputs;
        }
        drop(state);
        self.room.notify_all();
    }

    // The side of the entries.

    /// Whether no command is to be begun any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.lock().score.stopped
    }

    /// Something becomes of a command.
    pub(super) fn hear(&self, event: &EntryEvent<'_>) {
        let key = (event.run, event.task.to_owned());
        if let EntryStage::Begins { item, slot } = event.stage {
            let value = item.and_then(|item| serde_json::from_slice(item).ok());
            let given = value.and_then(|value| Given::from_json(&value));
            let mut state = self.lock();
            if let (Some(given), false) = (given, state.score.stopped) {
                let (who, log) = (self.who(&given), self.log(event));
                state.active.insert(key, given);
                drop(state);
                self.teller.tell(Fact::Began {
                    who,
                    attempt: self.attempt(event.attempt),
                    slot,
                    log,
                });
            }
            return;
        }
        let mut state = self.lock();
        // One that was held back was never under way.
        let Some(given) = state.active.remove(&key) else { return };
        let interrupted = self.ended(&mut state, key, given, event);
        let wakes = self.is_ready(&state) || state.is_read || state.is_over();
        let has_room = state.score.stopped || state.ahead <= AHEAD_MAX - ROOM;
        drop(state);
        if let Some(who) = interrupted {
            self.teller.tell(Fact::Interrupted { who });
        }
        if wakes {
            self.news.notify_one();
        }
        if has_room {
            self.room.notify_all();
        }
    }

    /// Notes how a command has ended; says who it was if it was stopped instead.
    fn ended(
        &self,
        state: &mut State,
        key: (RunId, String),
        given: Given,
        event: &EntryEvent<'_>,
    ) -> Option<Who> {
        let (is_done, why) = match &event.stage {
            EntryStage::Succeeded => (true, String::new()),
            EntryStage::Failed { error, is_final, .. } => (*is_final, cause(error)),
            _ => return Some(self.who(&given)),
        };
        if is_done {
            state.done(&given);
        }
        if is_done && !matches!(event.stage, EntryStage::Succeeded) {
            state.failures_heard += 1;
            state.first_failure.get_or_insert_with(|| (given.label(), why.clone()));
            let is_enough = |max| state.failures_heard >= max;
            state.score.stopped |= self.rules.failures_max.is_some_and(is_enough);
        }
        let (attempt, log) = (self.attempt(event.attempt), self.log(event));
        state.unstored.insert(key, UnstoredEnd { given, attempt, why, log });
        None
    }

    /// The store knows how a command has ended, or does not want to.
    pub(super) fn hear_stored_end(&self, end: &StoredEnd<'_>) {
        let mut state = self.lock();
        let Some(ended) = state.unstored.remove(&(end.run, end.task.to_owned())) else { return };
        let fact = self.stored_end(&mut state.score, ended, end);
        let is_over = state.is_over();
        drop(state);
        self.teller.tell(fact);
        if is_over {
            self.news.notify_one();
        }
    }

    fn stored_end(&self, score: &mut Score, ended: UnstoredEnd, end: &StoredEnd<'_>) -> Fact {
        let UnstoredEnd { given, attempt, why, log } = ended;
        let who = self.who(&given);
        let how = match end.how {
            Some(Happened::Succeeded) => How::Succeeded,
            Some(Happened::Failed) => How::Failed,
            Some(Happened::TimedOut) => How::TimedOut,
            Some(Happened::Retried) => {
                // A chance of one half is in the middle.
                let pause = Backoff::default().pause(end.attempt, 0.5);
                let pause = format!("in about {}", written_short(pause));
                return Fact::Retried { who, attempt, why, pause, log };
            }
            // Somebody has cancelled it before its end was stored.
            _ => return Fact::Interrupted { who },
        };
        if how == How::Succeeded {
            score.succeeded += 1;
        } else {
            score.failed += 1;
            if score.failures.len() < FAILURES_MAX {
                let command = self.template.text(given.number, &given.inputs);
                let (name, why, log) = (given.label(), why.clone(), log.clone());
                score.failures.push(Failed { name, why, command, log });
            }
        }
        Fact::Ended { who, how, attempt, why, log }
    }

    /// How many commands have failed for good, as far as was heard: the name of the first, and why.
    pub(super) fn failures_heard(&self) -> (u64, Option<(String, String)>) {
        let state = self.lock();
        (state.failures_heard, state.first_failure.clone())
    }

    fn who(&self, given: &Given) -> Who {
        let name = format!("{}[{}]", self.name, given.number);
        Who { name, input: Some(given.label()), is_item: true }
    }

    fn attempt(&self, number: u32) -> Try {
        Try { number, of: self.rules.retries.saturating_add(1) }
    }

    fn log(&self, event: &EntryEvent<'_>) -> Option<PathBuf> {
        self.engine.get()?.log(event.run, event.task, event.attempt)
    }
}

impl State {
    /// Takes as many as one run should have.
    fn begin(&mut self) -> Chunk {
        let (mut list, mut first, mut bytes, mut inputs) = (Vec::new(), None, 0, 0);
        while let Some(given) = self.queue.pop_front() {
            let more = bytes + given.len();
            if !list.is_empty() && (list.len() >= CHUNK_MAX || more > CHUNK_BYTES_MAX) {
                self.queue.push_front(given);
                break;
            }
            bytes = more;
            inputs += given.inputs.len() as u64;
            first.get_or_insert(given.number);
            list.push(given.to_json());
        }
        self.bytes -= bytes;
        let first = first.unwrap_or_default();
        let commands = list.len() as u64;
        self.begun += commands;
        self.chunks.insert(first, (commands, inputs));
        Chunk { first, list }
    }

    /// Whether nothing more is begun, and all that was has its end in the store.
    fn is_over(&self) -> bool {
        self.score.stopped && self.active.is_empty() && self.unstored.is_empty()
    }

    /// One of those that are begun has come to its end.
    fn done(&mut self, given: &Given) {
        if let Some((_, left)) = self.chunks.range_mut(..=given.number).next_back() {
            let inputs = given.inputs.len() as u64;
            *left = (left.0 - 1, left.1 - inputs);
            self.begun -= 1;
            self.ahead -= inputs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands were counted where inputs are meant, and ten thousand of these may be millions.
    #[test]
    fn what_is_ahead_is_counted_in_inputs() {
        let mut state = State::default();
        let given = |number| Given { number, inputs: vec![b"a".to_vec(); 500] };
        for number in 1..=3 {
            state.queue.push_back(given(number));
            (state.ahead, state.bytes) = (state.ahead + 500, state.bytes + 500);
        }
        state.begin();
        assert_eq!((state.ahead, state.begun), (1_500, 3));
        state.done(&given(2));
        assert_eq!((state.ahead, state.begun, state.chunks[&1]), (1_000, 2, (2, 1_000)));
    }

    #[test]
    fn a_run_has_so_many_inputs_and_so_many_bytes() {
        let mut state = State::default();
        for number in 1..=1_500 {
            let length = if number > 1_200 { 1_000 } else { 1 };
            state.queue.push_back(Given { number, inputs: vec![vec![b'a'; length]] });
            state.bytes += length;
        }
        let mut sizes = Vec::new();
        while !state.queue.is_empty() {
            let chunk = state.begin();
            sizes.push((chunk.first, chunk.list.len()));
        }
        assert_eq!(sizes, [(1, 1_000), (1_001, 330), (1_331, 131), (1_462, 39)]);
        assert_eq!(state.bytes, 0);
    }
}
