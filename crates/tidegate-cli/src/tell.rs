//! What is told of a run while it goes on.
//!
//! Whoever runs something says what happens ([`Fact`]); here it is decided what is made of it:
//!
//! - `lines` for stderr, or on a terminal a view of how things stand (`board`, `frame`, `screen`);
//! - what commands write, for stdout: when they end, or while they write it (`follow`);
//! - instead of both, events for programs (`json`);
//! - how each task ended, for other programs (`junit`).
//!
//! What there is to write is written by a thread of its own (`writer`): a slow terminal holds up no
//! task. What is kept is bounded by what is under way and what is still to be written. Lines for a
//! reader who is too slow are left out, and counted. What goes to stdout is not left out: who begins
//! commands without end looks at [`Teller::behind`].
//!
//! Deliberately absent: what the truth is. That is in the store.

mod args;
mod board;
mod clock;
mod follow;
mod frame;
mod json;
mod junit;
mod lines;
mod output;
mod overflow;
mod paint;
mod screen;
mod writer;

pub(crate) use args::{Color, Format, Progress, Show, Usual};
pub(crate) use lines::written_short;
pub(crate) use writer::WriteError;

use board::{Before, Board};
use clock::StoppableClock;
use follow::Follower;
use junit::{Case, Junit};
use overflow::Overflowing;
use paint::Paint;
use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// So many lines may wait to be written.
const LINES_MAX: usize = 10_000;

/// So long it is waited for a view to be taken away: its terminal may have been stopped.
const PATIENCE: Duration = Duration::from_millis(500);

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

/// How all have ended, as the store has it. Every command is counted once: a task, or each of its
/// items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Of the run, in one word.
    pub(crate) outcome: &'static str,
    pub(crate) total: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) skipped: u64,
    pub(crate) unfinished: u64,
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
    /// It is done for so many items, which are told of apart, except those that were done before.
    Items { who: Who, count: u64, taken_over: u64 },
    /// It has failed and is tried again.
    Retried { who: Who, attempt: Try, why: String, pause: String, log: Option<PathBuf> },
    /// It has ended, and will not be begun again. There may be a log even if it was never begun here.
    Ended { who: Who, how: How, attempt: Try, why: String, log: Option<PathBuf> },
    /// It was under way and was stopped, to be begun again some other time.
    Interrupted { who: Who },
    /// The run is over here, and this task is not.
    Unfinished(Who),
    /// So many facts are not told, because they came too fast.
    Missed(u64),
    /// Something else.
    Line(String),
    /// All is over.
    Finished(Totals),
}

/// How much is said in lines, where nothing else was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Everything.
    All,
    /// How things end.
    Ends,
    /// What has failed.
    Failures,
    /// Nothing of tasks.
    None,
}

/// How it is told.
#[derive(Debug, Clone, Copy)]
struct Manner {
    format: Format,
    show: Show,
    lines: Lines,
    live: bool,
    junit: bool,
    /// On stderr, and on stdout.
    paint: Paint,
    paint_out: Paint,
}

impl Manner {
    fn new(usual: &Usual, lines: Lines) -> Self {
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let can_be_live = err && !paint::is_dumb();
        // What comes in pieces of lines leaves no place for a view.
        let is_free = usual.show != Show::Streamed || !out || usual.format == Format::Json;
        let live = usual.progress == Progress::Auto && can_be_live && is_free;
        let lines = match (usual.format, usual.progress, lines) {
            (Format::Json, ..) | (_, Progress::None, _) => Lines::None,
            // What has begun or waits is seen.
            (_, _, Lines::All) if live => Lines::Ends,
            (_, _, lines) => lines,
        };
        Manner {
            format: usual.format,
            show: if usual.format == Format::Json { Show::None } else { usual.show },
            lines,
            live,
            junit: usual.junit.is_some(),
            paint: Paint::new(usual.color, err),
            paint_out: Paint::new(usual.color, out),
        }
    }
}

/// Tells. Clones tell the same.
#[derive(Clone)]
pub(crate) struct Teller {
    shared: Arc<Shared>,
}

struct Shared {
    clock: StoppableClock,
    manner: Manner,
    state: Mutex<State>,
    /// There is something to write.
    news: Condvar,
    /// The view is away.
    away: Condvar,
}

#[derive(Default)]
struct State {
    board: Board,
    /// Whether something has changed on it since it was drawn.
    changed: bool,
    outs: VecDeque<Out>,
    /// How many of these are lines, and how many were left out.
    lines: usize,
    left_out: u64,
    /// Logs of commands that may still be ending.
    late: Vec<PathBuf>,
    /// What logs could not hold.
    overflow: Overflowing,
    /// Nothing is to be written for a while; and that is so.
    hidden: bool,
    is_hidden: bool,
    /// No command is left; nothing more comes at all.
    ended: bool,
    over: bool,
}

/// Something to write.
enum Out {
    /// A line to stderr.
    Line(String),
    /// This to stdout.
    Data(String),
    /// What is in a log, if it is there, to stdout: as it comes; until it is whole; of all that are not.
    Follow(Follower),
    Followed(Follower),
    AllFollowed,
    /// What is not in a log, behind what is.
    Overflow(Follower, Vec<u8>),
    Case(Case),
}

/// The thread that writes, until it is told that nothing more comes.
pub(crate) struct Writer {
    teller: Teller,
    thread: Option<JoinHandle<Result<(), WriteError>>>,
}

/// Begins to tell. `lines` is how much is told where there is no view.
///
/// # Errors
/// There cannot be such a file of cases; says so in words.
pub(crate) fn start(usual: &Usual, lines: Lines) -> Result<(Teller, Writer), String> {
    let junit = usual.junit.as_deref().map(|path| {
        let unusable = |error| format!("--junit {}: {error}", path.display());
        Junit::create(path).map_err(unusable)
    });
    let junit = junit.transpose()?;
    let shared = Shared {
        clock: StoppableClock::start(),
        manner: Manner::new(usual, lines),
        state: Mutex::default(),
        news: Condvar::new(),
        away: Condvar::new(),
    };
    let teller = Teller { shared: Arc::new(shared) };
    let shared = teller.shared.clone();
    let thread = std::thread::spawn(move || writer::write_all(&shared, junit));
    if teller.shared.manner.live {
        teller.make_way_for_panics(thread.thread().id());
    }
    Ok((teller.clone(), Writer { teller, thread: Some(thread) }))
}

impl Teller {
    /// Tells. Nothing is waited for.
    pub(crate) fn tell(&self, fact: Fact) {
        let shared = &*self.shared;
        let (at, now) = (SystemTime::now().into(), shared.clock.now());
        let mut state = shared.lock();
        let before = state.board.hear(&fact, now);
        state.changed = true;
        // What a command has written comes before what is said of its end.
        state.push_output(&fact, &before, shared.manner);
        match shared.manner.format {
            Format::Json => {
                let line = json::line(&fact, at, now, &state.board, &before);
                state.outs.extend(line.map(Out::Data));
            }
            Format::Text => {
                let Manner { lines, paint, .. } = shared.manner;
                if let Some(line) = lines::line(&fact, lines, now, &before, paint) {
                    state.push_line(line);
                }
            }
        }
        if shared.manner.junit {
            state.outs.extend(case(fact, &before).map(Out::Case));
        }
        drop(state);
        shared.news.notify_one();
    }

    /// Tells a line.
    pub(crate) fn line(&self, line: impl Into<String>) {
        self.tell(Fact::Line(line.into()));
    }

    /// How long it has been told, without the time in which the process was stopped.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.clock.now()
    }

    /// Whether what is told is for programs.
    pub(crate) fn is_json(&self) -> bool {
        self.shared.manner.format == Format::Json
    }

    /// How many commands are under way.
    pub(crate) fn active(&self) -> usize {
        self.shared.lock().board.active().len()
    }

    /// How much is still to be written.
    pub(crate) fn behind(&self) -> usize {
        self.shared.lock().outs.len()
    }

    /// No command is left: what they have written is whole.
    pub(crate) fn all_ended(&self) {
        let mut state = self.shared.lock();
        for log in std::mem::take(&mut state.late) {
            let follower = state.overflow.follow(log);
            state.outs.push_back(Out::Followed(follower));
        }
        state.outs.push_back(Out::AllFollowed);
        state.ended = true;
        drop(state);
        self.shared.news.notify_one();
    }

    /// Takes the view away and writes nothing, until [`reveal`](Self::reveal).
    pub(crate) fn hide(&self) {
        self.shared.hide(self.shared.lock());
    }

    /// Goes on. So much time has passed that does not count.
    pub(crate) fn reveal(&self, uncounted: Duration) {
        self.shared.clock.set_back(uncounted);
        let mut state = self.shared.lock();
        (state.hidden, state.is_hidden) = (false, false);
        drop(state);
        self.shared.news.notify_one();
    }

    /// What is said of a panic is not to stand amid the view.
    fn make_way_for_panics(&self, writer: std::thread::ThreadId) {
        let (teller, say) = (Arc::downgrade(&self.shared), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            let shared = teller.upgrade().filter(|_| std::thread::current().id() != writer);
            // Whoever panics may have it locked.
            if let Some(state) = shared.as_ref().and_then(|shared| shared.state.try_lock().ok()) {
                shared.as_ref().expect("it was just there").hide(state);
            }
            say(panic);
            if let Some(shared) = shared {
                Teller { shared }.reveal(Duration::ZERO);
            }
        }));
    }
}

/// The case that has come to its end with the fact.
fn case(fact: Fact, before: &Before) -> Option<Case> {
    let Before { took, is_group, .. } = *before;
    match fact {
        Fact::Ended { who, how, why, log, .. } if !is_group => {
            Some(Case { who, how: Some(how), why, took, log })
        }
        Fact::Unfinished(who) => {
            Some(Case { who, how: None, why: String::new(), took: None, log: None })
        }
        _ => None,
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What a panic left half-done here is a number too many or too few.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hide(&self, mut state: MutexGuard<'_, State>) {
        state.hidden = true;
        self.news.notify_one();
        let is_pending = |state: &mut State| !state.is_hidden && !state.over;
        drop(self.away.wait_timeout_while(state, PATIENCE, is_pending));
    }

    fn is_hidden(&self) {
        self.lock().is_hidden = true;
        self.away.notify_all();
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

    fn take_outs(&mut self) -> Vec<Out> {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let what = format!("{left_out} lines were left out: they were read too slowly");
            self.outs.push_back(Out::Line(what));
        }
        self.lines = 0;
        self.outs.drain(..).collect()
    }
}

impl Writer {
    /// Returns when all is written. Dropping the future leaves the thread to it: whoever does not read
    /// keeps nobody from going.
    ///
    /// # Errors
    /// What commands have written, or a file, could not be.
    pub(crate) async fn finish(mut self) -> Result<(), WriteError> {
        let ended = tokio::task::spawn_blocking(move || self.end());
        ended.await.unwrap_or(Err(WriteError::Panicked))
    }

    fn end(&mut self) -> Result<(), WriteError> {
        self.teller.shared.lock().over = true;
        self.teller.shared.news.notify_one();
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(WriteError::Panicked),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_a_reader_who_is_too_slow_are_left_out_and_counted() {
        let mut state = State::default();
        for number in 0..LINES_MAX + 7 {
            state.push_line(number.to_string());
        }
        assert_eq!(state.outs.len(), LINES_MAX);
        let outs = state.take_outs();
        let Some(Out::Line(last)) = outs.last() else { panic!("the last is a line") };
        assert_eq!(last, "7 lines were left out: they were read too slowly");
        // The next are told again.
        state.push_line("again".to_owned());
        assert_eq!(state.take_outs().len(), 1);
    }

    fn usual() -> Usual {
        Usual {
            store: None,
            show: Show::Prefixed,
            format: Format::Text,
            progress: Progress::None,
            color: Color::Never,
            junit: None,
        }
    }

    #[test]
    fn the_view_makes_way_for_what_is_said_of_a_panic() {
        let (teller, writer) = start(&usual(), Lines::All).unwrap();
        let (shared, told) = (teller.shared.clone(), std::sync::mpsc::channel());
        std::panic::set_hook(Box::new(move |_| {
            let _ = told.0.send(shared.lock().is_hidden);
        }));
        teller.make_way_for_panics(writer.thread.as_ref().unwrap().thread().id());
        let panics = std::thread::spawn(|| panic!("on purpose"));
        assert!(panics.join().is_err());
        drop(std::panic::take_hook());
        assert_eq!(told.1.recv(), Ok(true));
        assert!(!teller.shared.lock().hidden, "and comes back");
    }

    #[test]
    fn of_what_has_ended_nothing_is_kept() {
        let (teller, writer) = start(&usual(), Lines::All).unwrap();
        let attempt = Try { number: 1, of: 1 };
        for number in 0..10_000 {
            let (who, log) = (Who::item(number.to_string()), Some(PathBuf::from("/no/such/log")));
            teller.tell(Fact::Began { who: who.clone(), attempt, slot: None, log: log.clone() });
            let (how, why) = (How::Succeeded, String::new());
            teller.tell(Fact::Ended { who, how, attempt, why, log });
        }
        teller.all_ended();
        drop(writer);
        let state = teller.shared.lock();
        assert_eq!((state.outs.len(), state.late.len(), state.lines), (0, 0, 0));
        assert!(state.board.active().is_empty() && state.board.ended().succeeded == 10_000);
    }
}
