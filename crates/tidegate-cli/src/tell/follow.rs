//! What commands write, while they write it: their logs are read as they grow.

use super::paint::{Ink, Paint};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Read at once.
const CHUNK: usize = 64 << 10;

/// A line that is longer is shown as several.
const LINE_MAX: usize = 1 << 20;

/// One log.
pub(super) struct Follower {
    path: PathBuf,
    file: Option<File>,
    /// What stands before each line; nothing where bytes are shown as they come.
    prefix: Option<Vec<u8>>,
    /// A line without its end.
    begun: Vec<u8>,
}

impl Follower {
    /// Shows the bytes as they are.
    pub(super) fn streamed(path: PathBuf) -> Self {
        Follower { path, file: None, prefix: None, begun: Vec::new() }
    }

    /// Shows whole lines, behind the name of their task.
    pub(super) fn prefixed(path: PathBuf, label: &str, paint: Paint) -> Self {
        let prefix = paint.on(Ink::of_name(label), format_args!("{label} |")).to_string() + " ";
        Follower { prefix: Some(prefix.into_bytes()), ..Follower::streamed(path) }
    }

    /// The same, of a log that is in this file and not at its path.
    pub(super) fn in_file(self, file: Option<File>) -> Self {
        Follower { file: file.or(self.file), ..self }
    }

    /// Takes over what another knows of the same log.
    pub(super) fn join(&mut self, other: Follower) {
        self.file = self.file.take().or(other.file);
        self.prefix = self.prefix.take().or(other.prefix);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Hands out what is new.
    ///
    /// # Errors
    /// Only those of `put`. A log that cannot be read has nothing new.
    pub(super) fn read(&mut self, mut put: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if self.file.is_none() {
            // It is not there before the command is.
            self.file = File::open(&self.path).ok();
        }
        if self.file.is_none() {
            return Ok(());
        }
        let mut chunk = vec![0; CHUNK];
        while let Some(file) = &mut self.file {
            let length = match file.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => return Ok(()),
                Ok(length) => length,
            };
            self.push(&chunk[..length], &mut put)?;
        }
        Ok(())
    }

    /// Hands out bytes behind those of the log.
    ///
    /// # Errors
    /// Those of `put`.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut put: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(prefix) = &self.prefix else { return put(bytes) };
        let lines = whole_lines(&mut self.begun, bytes, prefix);
        if lines.is_empty() { Ok(()) } else { put(&lines) }
    }

    /// The command has ended: hands out the rest.
    ///
    /// # Errors
    /// Those of `put`.
    pub(super) fn finish(mut self, mut put: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.read(&mut put)?;
        match self.prefix {
            Some(prefix) if !self.begun.is_empty() => {
                put(&[&prefix[..], &self.begun, b"\n"].concat())
            }
            _ => Ok(()),
        }
    }
}

/// The lines that have ended with these bytes. What has not is kept.
fn whole_lines(begun: &mut Vec<u8>, bytes: &[u8], prefix: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for part in bytes.split_inclusive(|&byte| byte == b'\n') {
        begun.extend_from_slice(part);
        let is_whole = part.ends_with(b"\n");
        if is_whole || begun.len() > LINE_MAX {
            lines.extend_from_slice(prefix);
            lines.append(begun);
            lines.extend((!is_whole).then_some(b'\n'));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let text = b"a\n\n\xff\xfeb\r\nc";
        for step in 1..9 {
            let (mut begun, mut all) = (Vec::new(), Vec::new());
            for bytes in text.chunks(step) {
                all.extend(whole_lines(&mut begun, bytes, b"x | "));
            }
            assert_eq!(all, b"x | a\nx | \nx | \xff\xfeb\r\n", "in steps of {step}");
            assert_eq!(begun, b"c");
        }
    }

    #[test]
    fn a_line_without_end_does_not_stay_in_memory() {
        let mut begun = Vec::new();
        let mut shown = 0;
        for _ in 0..40 {
            shown += whole_lines(&mut begun, &[b'x'; CHUNK], b"").len();
            assert!(begun.len() <= LINE_MAX);
        }
        assert!(shown > LINE_MAX);
    }
}
