//! The items that a task is done for each of.
//!
//! A pattern that fits nothing and a list that is not there are mistakes: a task that does nothing
//! without a word would hide them. A list that is empty says so itself, and is none.

use crate::file::{Each, quoted};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why there are no items.
#[derive(Debug)]
pub(crate) enum ItemsError {
    /// Nothing fits the pattern.
    NothingFits { pattern: String, folder: PathBuf },
    /// A folder or a list cannot be read.
    Unreadable { path: PathBuf, error: io::Error },
    /// A name of a file that is not UTF-8, which nothing can be given.
    Name(PathBuf),
    /// A line of a list that is not UTF-8.
    Line { path: PathBuf, line: usize },
}

impl fmt::Display for ItemsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ItemsError::NothingFits { pattern, folder } => {
                write!(f, "nothing in {} fits {}", folder.display(), quoted(pattern))
            }
            ItemsError::Unreadable { path, error } => {
                write!(f, "cannot read {}: {error}", path.display())
            }
            ItemsError::Name(path) => {
                write!(
                    f,
                    "the name {path:?} is not UTF-8; rename it, or leave it out of the pattern"
                )
            }
            ItemsError::Line { path, line } => {
                write!(f, "line {line} of {} is not UTF-8", path.display())
            }
        }
    }
}

impl std::error::Error for ItemsError {}

/// The items as they are now. Paths are as the pattern writes them, or begin with `below`.
pub(crate) fn find(
    each: &Each,
    folder: &Path,
    below: Option<&Path>,
) -> Result<Vec<String>, ItemsError> {
    match each {
        Each::Items(items) => Ok(items.clone()),
        Each::Lines(path) => lines(path),
        Each::Glob(pattern) => {
            let found = glob(pattern, folder)?;
            let placed = found.into_iter().map(|path| match below {
                Some(below) => below.join(&path).to_string_lossy().into_owned(),
                None => path,
            });
            Ok(placed.collect())
        }
    }
}

/// The lines of a file that are not empty, without their ends.
fn lines(path: &Path) -> Result<Vec<String>, ItemsError> {
    let read = fs::read(path);
    let text = read.map_err(|error| ItemsError::Unreadable { path: path.to_owned(), error })?;
    let mut items = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match std::str::from_utf8(line) {
            Ok("") => {}
            Ok(line) => items.push(line.to_owned()),
            Err(_) => return Err(ItemsError::Line { path: path.to_owned(), line: number + 1 }),
        }
    }
    Ok(items)
}

/// What fits a pattern, by name. `*`, `?` and `[a-z]` stand for parts of one name and not for its
/// first dot; `**` stands for any folders.
fn glob(pattern: &str, folder: &Path) -> Result<Vec<String>, ItemsError> {
    let absolute = pattern.starts_with('/');
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let mut found = vec![if absolute { "/".to_owned() } else { String::new() }];
    for (index, part) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        let mut next = Vec::new();
        for path in found {
            match *part {
                "**" => below(folder, path, last, &mut next)?,
                part if part.contains(['*', '?', '[']) => {
                    for (name, _) in entries(&folder.join(&path))? {
                        if fits(part, &name) {
                            next.push(join(&path, &name));
                        }
                    }
                }
                part => {
                    let path = join(&path, part);
                    if folder.join(&path).symlink_metadata().is_ok() {
                        next.push(path);
                    }
                }
            }
        }
        found = next;
    }
    found.sort_unstable();
    found.dedup();
    match found.is_empty() {
        true => Err(ItemsError::NothingFits { pattern: pattern.into(), folder: folder.into() }),
        false => Ok(found),
    }
}

/// This folder and all below it; as the last part of a pattern, what is in them instead.
fn below(
    folder: &Path,
    path: String,
    last: bool,
    into: &mut Vec<String>,
) -> Result<(), ItemsError> {
    let mut open = vec![path];
    while let Some(path) = open.pop() {
        for (name, is_folder) in entries(&folder.join(&path))? {
            let path = join(&path, &name);
            match (name.starts_with('.'), is_folder) {
                (true, _) => {}
                (false, true) => open.push(path),
                (false, false) if last => into.push(path),
                _ => {}
            }
        }
        if !last {
            into.push(path);
        }
    }
    Ok(())
}

fn join(path: &str, name: &str) -> String {
    match path.is_empty() || path.ends_with('/') {
        true => format!("{path}{name}"),
        false => format!("{path}/{name}"),
    }
}

/// What is in a folder, and whether it is one itself; nothing if it is no folder. Links are not
/// followed downwards, since they may lead round.
fn entries(path: &Path) -> Result<Vec<(String, bool)>, ItemsError> {
    let unreadable = |error| ItemsError::Unreadable { path: path.to_owned(), error };
    let read = match fs::read_dir(path) {
        Ok(read) => read,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(unreadable(error)),
    };
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.map_err(unreadable)?;
        let is_folder = entry.file_type().map_err(unreadable)?.is_dir();
        let name = entry.file_name().into_string();
        Ok((name.map_err(|_| ItemsError::Name(entry.path()))?, is_folder))
    };
    read.map(entry).collect()
}

/// Whether a name fits one part of a pattern.
fn fits(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut from) = (0, 0);
    // Where to go on if the last star has to stand for one more letter.
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
                continue;
            }
            Some(_) => one(&pattern[at..], name[from]),
            None => None,
        };
        match (step, star) {
            (Some(taken), _) => (at, from) = (at + taken, from + 1),
            (None, Some((star_at, covered))) => {
                star = Some((star_at, covered + 1));
                (at, from) = (star_at + 1, covered + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

/// How much of the pattern stands for this letter, if its beginning does.
fn one(pattern: &[char], letter: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] if let Some((taken, is_in)) = set(rest, letter) => {
            is_in.then_some(taken + 1)
        }
        [first, ..] => (*first == letter).then_some(1),
        [] => None,
    }
}

/// The rest of a set up to its bracket, and whether the letter is in it. Without the bracket it is no
/// set.
fn set(pattern: &[char], letter: char) -> Option<(usize, bool)> {
    let inverted = matches!(pattern.first(), Some('!' | '^'));
    let begin = usize::from(inverted);
    // A bracket that is first is one of the letters.
    let end = pattern.iter().skip(begin + 1).position(|letter| *letter == ']')? + begin + 1;
    let mut rest = &pattern[begin..end];
    let mut is_in = false;
    while let [first, others @ ..] = rest {
        (is_in, rest) = match others {
            ['-', last, others @ ..] => (is_in || (*first..=*last).contains(&letter), others),
            others => (is_in || *first == letter, others),
        };
    }
    Some((end + 1, is_in != inverted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_as_in_a_shell() {
        for (pattern, name) in [
            ("*", "a"),
            ("*.csv", "a.b.csv"),
            ("a*b*c", "aXbYbZc"),
            ("?", "ü"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]]", "]"),
            ("[a", "[a"),
            (".*", ".a"),
            ("a**", "abc"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*", ".a"),
            ("?a", ".a"),
            ("*.csv", "a.csv2"),
            ("?", ""),
            ("a*b", "ac"),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("a", "ab"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn paths_are_found_by_name_in_order_and_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b.csv", "a.csv", "x.txt", "d/c.csv", "d/e/f.csv", ".h/g.csv"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = |pattern: &str| glob(pattern, folder.path()).unwrap();
        assert_eq!(found("*.csv"), ["a.csv", "b.csv"]);
        assert_eq!(found("*/*.csv"), ["d/c.csv"]);
        assert_eq!(found("**/*.csv"), ["a.csv", "b.csv", "d/c.csv", "d/e/f.csv"]);
        assert_eq!(found("d/**"), ["d/c.csv", "d/e/f.csv"]);
        assert_eq!(found(".h/*"), [".h/g.csv"]);
        assert_eq!(found("x.txt"), ["x.txt"]);
        let absolute = folder.path().join("*.txt");
        assert_eq!(
            found(absolute.to_str().unwrap()),
            [folder.path().join("x.txt").to_str().unwrap()]
        );
        let error = glob("*.md", folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("nothing in ") && error.ends_with(" fits \"*.md\""), "{error}");
    }

    #[test]
    fn lines_that_are_empty_are_no_items() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        fs::write(&path, "a\r\n\n b \nc").unwrap();
        assert_eq!(lines(&path).unwrap(), ["a", " b ", "c"]);
        fs::write(&path, "").unwrap();
        assert_eq!(lines(&path).unwrap(), [""; 0]);
        fs::write(&path, b"a\n\xff\n").unwrap();
        assert!(lines(&path).unwrap_err().to_string().starts_with("line 2 of "));
        fs::remove_file(&path).unwrap();
        assert!(lines(&path).unwrap_err().to_string().starts_with("cannot read "));
    }
}
