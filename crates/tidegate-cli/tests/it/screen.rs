//! A terminal as a program sees it: a real one of the system, with what would be seen on it.

use crate::running::{signal, until};
use crate::support::Scene;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use unicode_width::UnicodeWidthChar as _;

/// A program on a terminal.
pub(crate) struct Terminal {
    master: File,
    child: Child,
    seen: Screen,
}

impl Terminal {
    /// The binary on a terminal of this size, with its output there too.
    pub(crate) fn start(scene: &Scene, size: (usize, usize), arguments: &[&str]) -> Self {
        Terminal::start_with(&scene.command("", arguments), size)
    }

    /// The same for a command that was made already.
    pub(crate) fn start_with(command: &Command, (columns, rows): (usize, usize)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        tcsetwinsize(&master, winsize(columns, rows)).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let slave = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let there = || Stdio::from(slave.try_clone().unwrap());
        // It becomes the program, with the terminal as its own.
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        session.current_dir(command.get_current_dir().unwrap());
        session.env("TERM", "xterm");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        let child = session.stdin(there()).stdout(there()).stderr(there()).spawn().unwrap();
        Terminal { master: File::from(master), child, seen: Screen::new(columns, rows) }
    }

    /// Changes the size. What the program has written is seen before, and it is not just about to
    /// write more, as far as can be had.
    pub(crate) async fn resize(&mut self, columns: usize, rows: usize) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.id());
        until("it has stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T ")).await;
        self.look();
        self.seen.resize(columns, rows);
        tcsetwinsize(&self.master, winsize(columns, rows)).unwrap();
        self.signal("CONT");
    }

    /// What a key sends.
    pub(crate) fn press(&mut self, key: u8) {
        self.master.write_all(&[key]).unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(name, self.id());
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until what is seen is so.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Screen) -> bool) {
        for _ in 0..30_000 {
            self.look();
            if is_so(&self.seen) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{what}: not on\n{}", self.seen.text());
    }

    /// Waits for its end: its exit code, and all that was seen.
    pub(crate) fn end(mut self) -> (Option<i32>, Screen) {
        let mut bytes = [0; 4096];
        // The end of the last program on a terminal is an error to its other side.
        while let Ok(length @ 1..) = self.master.read(&mut bytes) {
            self.seen.take(&bytes[..length]);
        }
        (self.child.wait().unwrap().code(), self.seen.clone())
    }

    fn look(&mut self) {
        let mut bytes = [0; 4096];
        while rustix::io::ioctl_fionread(&self.master).unwrap() > 0 {
            let length = self.master.read(&mut bytes).unwrap();
            self.seen.take(&bytes[..length]);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize(columns: usize, rows: usize) -> Winsize {
    let number = |number| u16::try_from(number).unwrap();
    Winsize { ws_col: number(columns), ws_row: number(rows), ws_xpixel: 0, ws_ypixel: 0 }
}

/// What is on a screen, and what has gone off at its top. Whatever it does not know fails the test.
/// Lines that have become too long are broken, and put together again, as most terminals do.
#[derive(Clone)]
pub(crate) struct Screen {
    columns: usize,
    rows: usize,
    lines: Vec<Line>,
    at: (usize, usize),
    /// An escape that has not come to its end, and a letter.
    escape: Option<String>,
    letter: Vec<u8>,
    /// Whether anything was coloured, or anything was steered at all.
    pub(crate) coloured: bool,
    pub(crate) steered: bool,
}

#[derive(Clone, Default)]
struct Line {
    letters: Vec<char>,
    /// It goes on in the next one.
    broken: bool,
}

/// Stands behind a wide letter.
const SECOND_HALF: char = '\0';

impl Screen {
    fn new(columns: usize, rows: usize) -> Self {
        Screen {
            columns,
            rows,
            lines: vec![Line::default()],
            at: (0, 0),
            escape: None,
            letter: Vec::new(),
            coloured: false,
            steered: false,
        }
    }

    /// All lines, those that have gone off at the top too.
    pub(crate) fn text(&self) -> String {
        let text = |line: &Line| -> String {
            line.letters.iter().filter(|&&letter| letter != SECOND_HALF).collect()
        };
        self.lines.iter().map(|line| text(line).trim_end().to_owned() + "\n").collect()
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    /// How many lines have this in them.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.text().lines().filter(|line| line.contains(text)).count()
    }

    /// How many lines were too long.
    pub(crate) fn broken(&self) -> usize {
        self.lines.iter().filter(|line| line.broken).count()
    }

    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.letter.push(byte);
            let Ok(letter) = std::str::from_utf8(&self.letter) else { continue };
            let letter = letter.chars().next().unwrap();
            self.letter.clear();
            match self.escape.take() {
                Some(begun) => self.escaped(begun, letter),
                None => self.put(letter),
            }
        }
    }

    fn put(&mut self, letter: char) {
        match letter {
            '\x1b' => self.escape = Some(String::new()),
            '\r' => self.at.1 = 0,
            '\n' => self.down(),
            letter if letter.is_control() => panic!("{letter:?} on the terminal"),
            letter => {
                let width = letter.width().unwrap();
                if self.at.1 + width > self.columns {
                    self.lines[self.at.0].broken = true;
                    self.down();
                    self.at.1 = 0;
                }
                let line = &mut self.lines[self.at.0].letters;
                line.resize(line.len().max(self.at.1 + width), ' ');
                for (place, letter) in (self.at.1..self.at.1 + width).zip([letter, SECOND_HALF]) {
                    line[place] = letter;
                }
                self.at.1 += width;
            }
        }
    }

    fn down(&mut self) {
        self.at.0 += 1;
        if self.at.0 == self.lines.len() {
            self.lines.push(Line::default());
        }
    }

    fn escaped(&mut self, mut begun: String, letter: char) {
        begun.push(letter);
        if begun == "[" || letter.is_ascii_digit() || letter == ';' {
            self.escape = Some(begun);
            return;
        }
        self.steered = true;
        let (row, column) = self.at;
        match (&begun[1..begun.len() - 1], letter) {
            (number, 'A') => {
                let top = self.lines.len().saturating_sub(self.rows);
                self.at.0 = row.saturating_sub(number.parse().unwrap()).max(top);
            }
            ("", 'K') => self.cut(row, column),
            ("", 'J') => {
                self.cut(row, column);
                self.lines.truncate(row + 1);
            }
            (_, 'm') => self.coloured = true,
            _ => panic!("{begun:?} on the terminal"),
        }
    }

    fn cut(&mut self, row: usize, column: usize) {
        self.lines[row].letters.truncate(column);
        self.lines[row].broken = false;
    }

    fn resize(&mut self, columns: usize, rows: usize) {
        let mut whole: Vec<Vec<char>> = Vec::new();
        let (mut goes_on, mut at) = (false, (0, 0));
        for (number, line) in self.lines.iter().enumerate() {
            if !goes_on {
                whole.push(Vec::new());
            }
            let last = whole.len() - 1;
            if number == self.at.0 {
                at = (last, whole[last].len() + self.at.1);
            }
            whole[last].extend(&line.letters);
            goes_on = line.broken;
        }
        (self.columns, self.rows, self.lines) = (columns, rows, Vec::new());
        for (number, line) in whole.iter().enumerate() {
            let first = self.lines.len();
            let parts =
                line.chunks(columns).map(|part| Line { letters: part.into(), broken: true });
            self.lines.extend(parts);
            if line.is_empty() {
                self.lines.push(Line::default());
            }
            self.lines.last_mut().unwrap().broken = false;
            if number == at.0 {
                let row = (at.1 / columns).min(self.lines.len() - 1 - first);
                self.at = (first + row, (at.1 - row * columns).min(columns));
            }
        }
    }
}
