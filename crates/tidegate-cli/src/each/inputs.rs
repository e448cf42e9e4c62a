//! Reads the inputs: lines of a stream, or words of the command line.
//!
//! This is done by a thread of its own, which stands still while there is enough ahead. Lines end with a
//! new line and nothing else is taken off; those that are empty are none. What ends with a NUL is taken
//! as it is.

use super::done::Done;
use super::flow::Flow;
use super::given::Given;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::Arc;

/// Bytes that Linux gives a program in one word, without the NUL behind them.
const WORD_MAX: u64 = 128 * 1024 - 1;

/// The inputs of one command have no more together, unless there is only one.
const COMMAND_MAX: usize = 128 * 1024;

/// Read at once.
const BUFFER: usize = 64 * 1024;

/// Where inputs come from.
pub(super) enum Source {
    Words(Vec<OsString>),
    Stream(Box<dyn BufRead + Send>),
}

/// How they are read.
pub(super) struct Manner {
    /// What each ends with.
    pub(super) end: u8,
    /// So many go together.
    pub(super) together: usize,
}

impl Source {
    /// The words, or the lines of this file, or else of stdin.
    ///
    /// # Errors
    /// There is no such file, or nobody who would give inputs.
    pub(super) fn open(words: Option<&[OsString]>, file: Option<&Path>) -> Result<Self, String> {
        if let Some(words) = words {
            return Ok(Source::Words(words.to_vec()));
        }
        if let Some(path) = file.filter(|path| *path != Path::new("-")) {
            let cannot = |error| format!("cannot read {}: {error}", path.display());
            let file = File::open(path).map_err(cannot)?;
            if file.metadata().map_err(cannot)?.is_dir() {
                return Err(format!("cannot read {}: it is a folder", path.display()));
            }
            return Ok(Source::Stream(Box::new(BufReader::with_capacity(BUFFER, file))));
        }
        if file.is_none() && io::stdin().is_terminal() {
            let what = "there are no inputs: give them behind :::, in a file with -a, or on stdin";
            return Err(what.to_owned());
        }
        Ok(Source::Stream(Box::new(BufReader::with_capacity(BUFFER, io::stdin()))))
    }
}

/// Reads until there is no more, or nobody wants more.
pub(super) fn read(source: Source, manner: Manner, done: Option<Done>, flow: &Arc<Flow>) {
    let flow = flow.clone();
    std::thread::spawn(move || {
        let mut reader = Reader { manner, done, flow, read: 0, made: 0, gathered: Vec::new() };
        let wrong = reader.all(source).err();
        // What was read before something went wrong is run.
        reader.give();
        reader.flow.end(wrong);
    });
}

struct Reader {
    manner: Manner,
    /// What need not be run again.
    done: Option<Done>,
    flow: Arc<Flow>,
    /// Inputs so far, and commands.
    read: u64,
    made: u64,
    gathered: Vec<Vec<u8>>,
}

impl Reader {
    fn all(&mut self, source: Source) -> Result<(), String> {
        match source {
            Source::Words(words) => {
                for word in words {
                    if !self.take(word.into_vec())? {
                        break;
                    }
                }
                Ok(())
            }
            Source::Stream(mut stream) => self.lines(&mut *stream),
        }
    }

    fn lines(&mut self, stream: &mut dyn BufRead) -> Result<(), String> {
        let end = self.manner.end;
        loop {
            let mut line = Vec::new();
            let read = (&mut *stream).take(WORD_MAX + 1).read_until(end, &mut line);
            match read.map_err(|error| format!("the inputs cannot be read: {error}"))? {
                0 => return Ok(()),
                _ if line.last() == Some(&end) => drop(line.pop()),
                _ => {}
            }
            if line.is_empty() && end == b'\n' {
                continue;
            }
            if !self.take(line)? {
                return Ok(());
            }
        }
    }

    /// Takes one; false if no more are wanted.
    fn take(&mut self, input: Vec<u8>) -> Result<bool, String> {
        self.read += 1;
        if input.len() as u64 > WORD_MAX {
            let (number, max) = (self.read, WORD_MAX);
            return Err(format!(
                "input {number} is longer than {max} bytes, which no command can be given"
            ));
        }
        if input.contains(&0) {
            let number = self.read;
            let what =
                "has a NUL in it, which no command can be given; -0 reads what ends with NUL";
            return Err(format!("input {number} {what}"));
        }
        if self.done.as_mut().is_some_and(|done| done.take(&input)) {
            self.flow.was_done();
            return Ok(true);
        }
        let together: usize = self.gathered.iter().map(Vec::len).sum();
        if !self.gathered.is_empty() && together + input.len() > COMMAND_MAX && !self.give() {
            return Ok(false);
        }
        self.gathered.push(input);
        Ok(self.gathered.len() < self.manner.together || self.give())
    }

    /// Gives what is gathered; false if no more is wanted.
    fn give(&mut self) -> bool {
        if self.gathered.is_empty() {
            return true;
        }
        self.made += 1;
        // One input keeps its number, whatever was done before it.
        let number = if self.manner.together == 1 { self.read } else { self.made };
        self.flow.push(Given { number, inputs: std::mem::take(&mut self.gathered) })
    }
}
