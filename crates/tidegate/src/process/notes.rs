//! Which commands a worker has begun: a file that survives the worker.
//!
//! One file per worker, one line per step of a command, each in one write:
//!
//! ```text
//! begin TOKEN                        before it is started
//! group TOKEN GROUP START BOOT       right after
//! over TOKEN                         nobody of it is left, or it succeeded
//! ```
//!
//! GROUP is the number of its process group, START when its leader began (ticks since the machine's
//! start), BOOT names that start of the machine: together they name the group for good. A worker
//! killed between the first two lines leaves a command that only its environment tells: it has
//! [`MARKER`] set to the token.
//!
//! The lines need not survive the machine: with it the processes go too, and BOOT differs. So
//! nothing is flushed to the disk. The file is rewritten with what is still running when it has
//! grown large, at a cost spread over the lines that made it so.

use super::group::Group;
use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable that a command's processes carry, with the token it was begun under.
pub(super) const MARKER: &str = "TIDEGATE_EXECUTION";

/// A file this small is not worth rewriting: about 400 commands.
const REWRITE_ABOVE: u64 = 64 * 1024;

/// By how much a file must have grown since it was rewritten before it is again.
const REWRITE_GROWTH: u64 = 4;

/// The notes of one worker. Clones write to the same file.
#[derive(Clone)]
pub(crate) struct Notes {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    book: Mutex<Book>,
}

struct Book {
    file: Option<File>,
    size: u64,
    rewrite_above: u64,
    /// The last write failed and may have left half a line.
    torn: bool,
    /// The lines of what is not over, by token.
    open: HashMap<String, String>,
}

impl Notes {
    /// Notes in this file, which must be new: another's would be lost when it is rewritten. It is
    /// made for the first command.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        let book = Book {
            file: None,
            size: 0,
            rewrite_above: REWRITE_ABOVE,
            torn: false,
            open: HashMap::new(),
        };
        Notes { shared: Arc::new(Shared { path: path.into(), book: Mutex::new(book) }) }
    }

    /// Notes that a command is about to be started. Nobody may have used the token before: by it
    /// alone the command may have to be found, and what is found is killed.
    pub(super) fn begin(&self, token: &str) -> io::Result<Noted> {
        let sound = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        assert!(sound, "a token is one word of printable ASCII, which {token:?} is not");
        self.write(token, format!("begin {token}\n"))?;
        Ok(Noted { notes: self.clone(), token: token.to_owned() })
    }

    fn write(&self, token: &str, line: String) -> io::Result<()> {
        let mut book = lock(&self.shared.book);
        book.append(&self.shared.path, &line)?;
        book.open.entry(token.to_owned()).or_default().push_str(&line);
        Ok(())
    }

    fn over(&self, token: &str) {
        let mut book = lock(&self.shared.book);
        book.open.remove(token);
        let written = book.append(&self.shared.path, &format!("over {token}\n"));
        let rewritten = written.and_then(|()| book.rewrite_if_large(&self.shared.path));
        if let Err(error) = rewritten {
            // Whoever reads it will find nobody of this name.
            let path = self.shared.path.display();
            tracing::warn!(%error, %path, "cannot note that a command is over");
        }
    }
}

impl Book {
    fn append(&mut self, path: &Path, line: &str) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(private(options().create_new(true).open(path)?)?),
        };
        if self.torn {
            file.write_all(b"\n")?;
            self.torn = false;
        }
        let written = file.write_all(line.as_bytes());
        self.torn = written.is_err();
        self.size += line.len() as u64;
        written
    }

    fn rewrite_if_large(&mut self, path: &Path) -> io::Result<()> {
        if self.size <= self.rewrite_above {
            return Ok(());
        }
        // Whatever comes of it, the next try is a good while away.
        self.rewrite_above = self.size.saturating_mul(REWRITE_GROWTH);
        let text: String = self.open.values().map(String::as_str).collect();
        let new = path.with_added_extension("new");
        // Left by one that died while it did this; whatever it is, it is not written into.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private(options().create_new(true).open(&new)?)?;
        file.write_all(text.as_bytes())?;
        // A reader sees the one or the other, both true.
        fs::rename(&new, path)?;
        self.size = text.len() as u64;
        self.rewrite_above = REWRITE_ABOVE.max(self.size.saturating_mul(REWRITE_GROWTH));
        self.file = Some(file);
        self.torn = false;
        Ok(())
    }
}

/// A file for our eyes only, whatever the umask takes away.
fn private(file: File) -> io::Result<File> {
    file.set_permissions(PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600);
    options
}

/// A command that was noted. It stays so until it is said to be over: dropping this says nothing,
/// so that a command of which nobody knows how it ended is looked for.
pub(super) struct Noted {
    notes: Notes,
    token: String,
}

impl Noted {
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Notes the group of the command, whose leader has not been reaped.
    pub(super) fn started(&self, group: Group) -> io::Result<()> {
        let mut line = format!("group {} {} ", self.token, group.number());
        // Where the system does not tell them, the line is still a trace for a person.
        let (start, boot) = identity(group).unwrap_or((0, "-"));
        let _ = writeln!(line, "{start} {boot}");
        self.notes.write(&self.token, line)
    }

    pub(super) fn over(self) {
        self.notes.over(&self.token);
    }
}

#[cfg(target_os = "linux")]
fn identity(group: Group) -> Option<(u64, &'static str)> {
    use super::table;
    Some((table::Process::read(group.number())?.start, table::boot()))
}

#[cfg(not(target_os = "linux"))]
fn identity(_: Group) -> Option<(u64, &'static str)> {
    None
}

#[cfg(test)]
mod tests {
    use super::super::unfinished::unfinished;
    use super::*;

    #[test]
    fn the_file_stays_small_and_keeps_what_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        let notes = Notes::new(&path);
        assert_eq!(unfinished(&path).unwrap(), []);
        let long = notes.begin("long").unwrap();
        long.started(Group::new(4_000_000).unwrap()).unwrap();
        for number in 0..5_000 {
            notes.begin(&format!("{number:032x}")).unwrap().over();
            assert!(fs::metadata(&path).unwrap().len() <= REWRITE_ABOVE + 100);
        }
        let open = unfinished(&path).unwrap();
        assert_eq!(open.len(), 1);
        assert_eq!(open[0].group.as_ref().unwrap().group.number(), 4_000_000);
        long.over();
        assert_eq!(unfinished(&path).unwrap(), []);
    }

    #[test]
    fn the_notes_of_another_are_not_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        fs::write(&path, "begin a\n").unwrap();
        assert!(Notes::new(&path).begin("b").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"begin a\n");
    }
}
