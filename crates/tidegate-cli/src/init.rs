//! A first command file.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// What is in it.
const TEXT: &str = include_str!("init.toml");

/// Why it was not written.
#[derive(Debug)]
pub(crate) struct InitError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.error.kind() {
            io::ErrorKind::AlreadyExists => {
                write!(f, "{path} is there already, and stays as it is; name another file")
            }
            _ => write!(f, "cannot write {path}: {}", self.error),
        }
    }
}

/// Writes the file, unless there is one.
///
/// # Errors
/// There is one, or it cannot be written. Then nothing is left of it.
pub(crate) fn write(path: &Path) -> Result<(), InitError> {
    let failed = |error| InitError { path: path.to_owned(), error };
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    file.write_all(TEXT.as_bytes()).map_err(|error| {
        // Half a file would be in the way of the next try.
        let _ = std::fs::remove_file(path);
        failed(error)
    })
}
