//! The thread that writes: lines and the live view to stderr; what commands have written, or events,
//! to stdout; cases to their file.

use super::follow::Follower;
use super::frame::{self, Row, Size};
use super::junit::Junit;
use super::screen::Screen;
use super::{Manner, Out, Shared};
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How often the live view is drawn, when nothing happens.
const FRAME: Duration = Duration::from_millis(100);

/// The least time between two drawings.
const FRAME_MIN: Duration = Duration::from_millis(30);

/// How often it is looked for what commands have written.
const LOOK: Duration = Duration::from_millis(50);

/// Writes until there is no more.
///
/// # Errors
/// What went wrong first on stdout, where nothing is written after that, or with the file of cases.
/// Whoever reads no further has what they wanted: that is no error.
pub(super) fn write_all(shared: &Shared, junit: Option<Junit>) -> Result<(), WriteError> {
    let mut pen = Pen::new(shared.manner, junit);
    loop {
        let next = next(shared, &mut pen);
        for out in next.outs {
            let overflow = out.overflow();
            pen.put(out);
            shared.overflow_is_written(overflow);
        }
        pen.follow(Instant::now());
        match next.then {
            Then::Draw(rows) => pen.draw(&rows),
            Then::Hide => {
                pen.hide();
                shared.is_hidden();
            }
            Then::End(name, took) => return pen.finish(&name, took),
        }
    }
}

/// What could not be written.
#[derive(Debug)]
pub(crate) enum WriteError {
    Stdout(io::Error),
    Junit(io::Error),
    /// The thread is gone.
    Panicked,
}

/// What is to be done, all of it decided while the state is locked.
struct Next {
    outs: Vec<Out>,
    then: Then,
}

enum Then {
    Draw(Vec<Row>),
    Hide,
    /// The name of the run, and how long it took.
    End(String, Duration),
}

/// Waits until there is something to do; nothing is locked while it is done.
fn next(shared: &Shared, pen: &mut Pen) -> Next {
    let mut state = shared.lock();
    loop {
        if pen.manner.live {
            pen.size = Screen::size();
        }
        let size = pen.size;
        let then = match (state.hidden, state.over) {
            (true, false) if !state.is_hidden => Some(Then::Hide),
            (true, false) => None,
            (_, true) if state.outs.is_empty() => {
                Some(Then::End(state.board.name().to_owned(), shared.clock.now()))
            }
            _ => (!state.outs.is_empty() || pen.is_due(state.changed)).then(|| {
                state.changed = false;
                let now = shared.clock.now();
                let is_under_way = state.board.run().is_some() && !state.ended && !state.over;
                let live = shared.manner.live && is_under_way;
                let rows = live.then(|| frame::rows(&state.board, now, size, shared.manner.paint));
                Then::Draw(rows.unwrap_or_default())
            }),
        };
        if let Some(then) = then {
            let outs = if matches!(then, Then::Hide) { Vec::new() } else { state.take_outs() };
            return Next { outs, then };
        }
        state = match pen.pause(state.changed).filter(|_| !state.hidden) {
            Some(pause) => {
                let waited = shared.news.wait_timeout(state, pause);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.news.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

struct Pen {
    manner: Manner,
    screen: Screen,
    size: Size,
    /// For stderr, to be written at once.
    err: Vec<u8>,
    out: Stdout,
    followers: Vec<Follower>,
    junit: Option<Junit>,
    /// When the view was drawn, and when it was last looked for what commands have written.
    drawn: Instant,
    looked: Instant,
}

struct Stdout {
    is_terminal: bool,
    /// Whether the last line has no end.
    within_line: bool,
    failed: Option<io::Error>,
}

impl Pen {
    fn new(manner: Manner, junit: Option<Junit>) -> Self {
        let is_terminal = io::stdout().is_terminal() && io::stderr().is_terminal();
        Pen {
            manner,
            screen: Screen::default(),
            size: Size { columns: 0, rows: 0 },
            err: Vec::new(),
            out: Stdout { is_terminal, within_line: false, failed: None },
            followers: Vec::new(),
            junit,
            drawn: Instant::now(),
            looked: Instant::now(),
        }
    }

    /// For how long nothing is to be done, if that is known.
    fn pause(&self, changed: bool) -> Option<Duration> {
        let frame = if changed { FRAME_MIN } else { FRAME };
        let frame = frame.saturating_sub(self.drawn.elapsed());
        let look = LOOK.saturating_sub(self.looked.elapsed());
        let frame = self.manner.live.then_some(frame);
        let look = (!self.followers.is_empty()).then_some(look);
        frame.into_iter().chain(look).min()
    }

    fn is_due(&self, changed: bool) -> bool {
        self.pause(changed) == Some(Duration::ZERO)
    }

    fn put(&mut self, out: Out) {
        match out {
            Out::Line(line) => {
                self.above();
                self.err.extend_from_slice(line.as_bytes());
                self.err.push(b'\n');
            }
            // What went wrong is kept.
            Out::Data(text) => drop(self.data(text.as_bytes())),
            Out::Follow(follower) => {
                let follower = self.join(follower);
                self.followers.push(follower);
            }
            // A command that was never begun has no log.
            Out::Followed(follower) => {
                let _ = self.join(follower).finish(|bytes| self.data(bytes));
            }
            Out::Overflow(follower, bytes) => {
                let mut follower = self.join(follower);
                let _ = follower.read(|bytes| self.data(bytes));
                let _ = follower.push(&bytes, |bytes| self.data(bytes));
                self.followers.push(follower);
            }
            Out::AllFollowed => {
                for follower in std::mem::take(&mut self.followers) {
                    let _ = follower.finish(|bytes| self.data(bytes));
                }
            }
            Out::Case(case) => {
                if let Some(junit) = &mut self.junit {
                    junit.write(&case);
                }
            }
        }
    }

    /// Shows what is new in the logs, now and then.
    fn follow(&mut self, now: Instant) {
        if now - self.looked < LOOK {
            return;
        }
        self.looked = now;
        let mut followers = std::mem::take(&mut self.followers);
        for follower in &mut followers {
            let _ = follower.read(|bytes| self.data(bytes));
        }
        self.followers = followers;
    }

    /// The one that follows this log already, if there is one.
    fn join(&mut self, follower: Follower) -> Follower {
        match self.followers.iter().position(|other| other.path() == follower.path()) {
            None => follower,
            Some(at) => {
                let mut other = self.followers.swap_remove(at);
                other.join(follower);
                other
            }
        }
    }

    /// Writes to stdout, where all goes well. Says only whether that makes sense any more.
    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.out.failed.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.out.is_terminal {
            self.screen.erase(self.size, &mut self.err);
        }
        self.flush();
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        self.out.within_line = !bytes.ends_with(b"\n");
        written.map_err(|error| {
            let kind = error.kind();
            self.out.failed = Some(error);
            kind.into()
        })
    }

    /// Makes room on stderr for text above the view.
    fn above(&mut self) {
        self.screen.erase(self.size, &mut self.err);
        if self.out.is_terminal && std::mem::take(&mut self.out.within_line) {
            self.err.push(b'\n');
        }
    }

    fn draw(&mut self, rows: &[Row]) {
        if rows.is_empty() {
            self.drawn = Instant::now();
            self.screen.erase(self.size, &mut self.err);
        } else if self.screen.is_empty() || self.drawn.elapsed() >= FRAME_MIN {
            self.drawn = Instant::now();
            if self.out.is_terminal && std::mem::take(&mut self.out.within_line) {
                self.err.push(b'\n');
            }
            self.screen.draw(rows, self.size, &mut self.err);
        }
        self.flush();
    }

    fn hide(&mut self) {
        self.screen.erase(self.size, &mut self.err);
        self.flush();
    }

    fn flush(&mut self) {
        if !self.err.is_empty() {
            // Whoever closed stderr does not want to know.
            let _ = io::stderr().write_all(&self.err);
            self.err.clear();
        }
    }

    fn finish(mut self, name: &str, took: Duration) -> Result<(), WriteError> {
        self.put(Out::AllFollowed);
        self.hide();
        let cases = self.junit.map_or(Ok(()), |junit| junit.finish(name, took));
        match self.out.failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(WriteError::Stdout(error))
            }
            _ => cases.map_err(WriteError::Junit),
        }
    }
}
