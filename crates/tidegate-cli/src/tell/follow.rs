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
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut chunk = vec![0; CHUNK];
        loop {
            let length = match file.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => return Ok(()),
                Ok(length) => length,
            };
            match &self.prefix {
                None => put(&chunk[..length])?,
                Some(prefix) => {
                    let lines = whole_lines(&mut self.begun, &chunk[..length], prefix);
                    if !lines.is_empty() {
                        put(&lines)?;
                    }
                }
            }
        }
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
