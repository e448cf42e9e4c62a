//! Which file is meant, and its text.

use super::mistakes::Source;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What the file is called where none is named.
pub(crate) const FILE_NAME: &str = "tidegate.toml";

/// A longer file was not written by hand, and is refused before it fills the memory.
const SIZE_MAX: u64 = 16 << 20;

/// Why there is no file to read.
#[derive(Debug)]
pub(crate) enum FindError {
    /// None is named, and none is here or above.
    Nowhere { here: PathBuf, above: Vec<PathBuf> },
    /// The one that is named, or was found, cannot be read.
    Unreadable { path: PathBuf, error: ReadError },
    /// It cannot be told where we are.
    Here(io::Error),
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FindError::Nowhere { here, above } => {
                write!(f, "there is no {FILE_NAME} in {}", here.display())?;
                let above: Vec<_> = above.iter().map(|at| at.display().to_string()).collect();
                if !above.is_empty() {
                    write!(f, ", nor above it in {}", above.join(", "))?;
                }
                f.write_str("; name a file, or write one with \"tidegate init\"")
            }
            FindError::Unreadable { path, error: ReadError::Encoding { line, column, utf16 } } => {
                let encoding = if *utf16 { "UTF-16" } else { "not UTF-8" };
                write!(
                    f,
                    "{}:{line}:{column}: the text is {encoding}: save the file as UTF-8",
                    path.display()
                )
            }
            FindError::Unreadable { path, error } => {
                write!(f, "cannot read {}: {error}", path.display())?;
                let inside = path.join(FILE_NAME);
                match error {
                    ReadError::Folder if inside.is_file() => {
                        write!(f, "; did you mean {}?", inside.display())
                    }
                    ReadError::Folder => f.write_str("; name the file in it"),
                    _ => Ok(()),
                }
            }
            FindError::Here(error) => write!(f, "cannot tell the current folder: {error}"),
        }
    }
}

/// Why a file has no text.
#[derive(Debug)]
pub(crate) enum ReadError {
    Folder,
    TooLarge,
    Encoding { line: usize, column: usize, utf16: bool },
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Folder => f.write_str("it is a folder"),
            ReadError::TooLarge => write!(f, "it is larger than {} MiB", SIZE_MAX >> 20),
            ReadError::Encoding { line, column, .. } => {
                write!(f, "in line {line}, column {column}, it is not UTF-8")
            }
            ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                f.write_str("there is no such file")
            }
            ReadError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                f.write_str("reading it is not allowed")
            }
            ReadError::Io(error) => error.fmt(f),
        }
    }
}

/// The file that is named, or else the nearest one upwards; with its folder.
///
/// # Errors
/// There is none, or it has no text.
pub(crate) fn find(named: Option<&Path>) -> Result<(Source, PathBuf), FindError> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => nearest(&std::env::current_dir().map_err(FindError::Here)?)?,
    };
    match read_text(&path) {
        Ok(text) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let folder = parent.unwrap_or(Path::new("."));
            let folder = folder.canonicalize().or_else(|_| std::path::absolute(folder));
            Ok((Source { path, text, secret: false }, folder.map_err(FindError::Here)?))
        }
        Err(error) => Err(FindError::Unreadable { path, error }),
    }
}

/// The nearest one upwards, as it is reached from here.
fn nearest(here: &Path) -> Result<PathBuf, FindError> {
    let mut up = PathBuf::new();
    for folder in here.ancestors() {
        // A link that leads nowhere is there, and is told of when it is read.
        if folder.join(FILE_NAME).symlink_metadata().is_ok() {
            return Ok(up.join(FILE_NAME));
        }
        up.push("..");
    }
    let above = here.ancestors().skip(1).map(Path::to_owned).collect();
    Err(FindError::Nowhere { here: here.to_owned(), above })
}

/// The text of a file, without the mark that some editors put before it.
pub(super) fn read_text(path: &Path) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    if fs::metadata(path).map_err(ReadError::Io)?.is_dir() {
        return Err(ReadError::Folder);
    }
    let file = fs::File::open(path).map_err(ReadError::Io)?;
    file.take(SIZE_MAX + 1).read_to_end(&mut bytes).map_err(ReadError::Io)?;
    if bytes.len() as u64 > SIZE_MAX {
        return Err(ReadError::TooLarge);
    }
    let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let line = good.rsplit('\n').next().unwrap_or_default();
        let (line, column) = (good.matches('\n').count() + 1, line.chars().count() + 1);
        ReadError::Encoding { line, column, utf16 }
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
