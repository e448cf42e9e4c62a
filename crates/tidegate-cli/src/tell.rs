//! What is told of a run while it goes on.
//!
//! Whoever runs something says what happens ([`Fact`]); here it is decided what is made of it: lines
//! (`lines`) and what commands have written. What there is to write is written by a thread of its own
//! (`writer`): a slow terminal holds up no task.
//!
//! What is kept is bounded by what is under way and what is still to be written. Lines for a reader
//! who is too slow are left out, and counted. What commands have written is not left out: who begins
//! commands without end looks at [`Teller::behind`].
//!
//! Deliberately absent: what the truth is. That is in the store.

mod args;
mod board;
mod clock;
mod lines;
mod writer;

pub(crate) use args::{Format, Show, Usual};
pub(crate) use lines::written_short;

use board::Board;
use clock::Clock;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// So many lines may wait to be written.
const LINES_MAX: usize = 10_000;

/// Of whom something is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    /// Is nobody else's in this run.
    pub(crate) name: String,
    /// What it is done for, if that says more than its name.
    pub(crate) input: Option<String>,
    /// Whether it is one of several items of a task.
    pub(crate) is_item: bool,
}

impl Who {
    pub(crate) fn task(name: impl Into<String>) -> Self {
        Who { name: name.into(), input: None, is_item: false }
    }

    pub(crate) fn item(name: impl Into<String>) -> Self {
        Who { is_item: true, ..Who::task(name) }
    }

    /// As people know it.
    fn label(&self) -> &str {
        self.input.as_deref().unwrap_or(&self.name)
    }
}

/// Which attempt, of how many at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Try {
    pub(crate) number: u32,
    pub(crate) of: u32,
}

/// How a task has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
    Skipped,
}

impl How {
    fn is_failure(self) -> bool {
        matches!(self, How::Failed | How::TimedOut)
    }
}

/// Something that is told.
#[derive(Debug, Clone)]
pub(crate) enum Fact {
    /// The run is there. Of its tasks so many are known, and it has so many slots.
    Run { id: String, name: String, tasks: u64, slots: u32 },
    /// There are so many tasks that were not known before.
    More(u64),
    /// A command is begun.
    Began { who: Who, attempt: Try, slot: Option<u32>, log: Option<PathBuf> },
    /// It waits before it is begun.
    Waits { who: Who, what: String },
    /// It is done for so many items, which are told of apart.
    Items { who: Who, count: u64 },
    /// It has failed and is tried again.
    Retried { who: Who, attempt: Try, why: String, pause: String },
    /// It has ended, and will not be begun again. There may be a log even if it was never begun here.
    Ended { who: Who, how: How, attempt: Try, why: String, log: Option<PathBuf> },
    /// It was under way and was stopped, to be begun again some other time.
    Interrupted { who: Who },
    /// So many facts are not told, because they came too fast.
    Missed(u64),
    /// Something else.
    Line(String),
}

/// How much is said in lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Everything.
    All,
    /// What has failed.
    #[expect(dead_code, reason = "for commands with very many inputs")]
    Failures,
}

/// Tells. Clones tell the same.
#[derive(Clone)]
pub(crate) struct Teller {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    show: Show,
    lines: Lines,
    state: Mutex<State>,
    /// There is something to write.
    news: Condvar,
}

#[derive(Default)]
struct State {
    board: Board,
    outs: VecDeque<Out>,
    /// How many of these are lines, and how many were left out.
    lines: usize,
    left_out: u64,
    /// Logs of commands that may still be ending.
    late: Vec<PathBuf>,
    /// Nothing more comes.
    over: bool,
}

/// Something to write.
enum Out {
    /// A line to stderr.
    Line(String),
    /// All that is in this file, if it is there, to stdout.
    Log(PathBuf),
}

/// The thread that writes, until it is told that nothing more comes.
pub(crate) struct Writer {
    teller: Teller,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Begins to tell.
pub(crate) fn start(usual: &Usual, lines: Lines) -> (Teller, Writer) {
    let shared = Shared {
        clock: Clock::start(),
        show: usual.show,
        lines,
        state: Mutex::default(),
        news: Condvar::new(),
    };
    let teller = Teller { shared: Arc::new(shared) };
    let shared = teller.shared.clone();
    let thread = std::thread::spawn(move || writer::write_all(&shared));
    (teller.clone(), Writer { teller, thread: Some(thread) })
}

impl Teller {
    /// Tells. Nothing is waited for.
    pub(crate) fn tell(&self, fact: Fact) {
        let shared = &*self.shared;
        let now = shared.clock.now();
        let mut state = shared.lock();
        let before = state.board.hear(&fact, now);
        if let Some(line) = lines::line(&fact, shared.lines, now, &before) {
            state.push_line(line);
        }
        if let Fact::Ended { how, log: Some(log), .. } = fact
            && shared.shows(how)
        {
            match how {
                // It has ended in the store, and only now is it told to.
                How::Cancelled => state.late.push(log),
                _ => state.outs.push_back(Out::Log(log)),
            }
        }
        drop(state);
        shared.news.notify_one();
    }

    /// Tells a line.
    pub(crate) fn line(&self, line: impl Into<String>) {
        self.tell(Fact::Line(line.into()));
    }

    /// How much is still to be written.
    #[expect(dead_code, reason = "for commands with very many inputs")]
    pub(crate) fn behind(&self) -> usize {
        self.shared.lock().outs.len()
    }

    /// No command is left: what they have written is whole.
    pub(crate) fn all_ended(&self) {
        let mut state = self.shared.lock();
        let late = std::mem::take(&mut state.late);
        state.outs.extend(late.into_iter().map(Out::Log));
        drop(state);
        self.shared.news.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What a panic left half-done here is a number too many or too few.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the output of one that ended like this is shown.
    fn shows(&self, how: How) -> bool {
        match how {
            How::Succeeded | How::Cancelled => self.show == Show::Grouped,
            How::Failed | How::TimedOut => self.show != Show::None,
            How::Skipped => false,
        }
    }
}

impl State {
    fn push_line(&mut self, line: String) {
        match self.lines < LINES_MAX {
            true => self.outs.push_back(Out::Line(line)),
            false => self.left_out += 1,
        }
        self.lines = (self.lines + 1).min(LINES_MAX);
    }
}

impl Writer {
    /// Returns when all is written.
    ///
    /// # Errors
    /// What commands have written could not be.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.teller.shared.lock().over = true;
        self.teller.shared.news.notify_one();
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(io::Error::other("the writer panicked")),
            Some(Ok(written)) => written,
            None => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Something else went wrong, which is told instead.
        let _ = self.end();
    }
}
