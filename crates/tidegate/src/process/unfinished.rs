//! Reading what a worker has noted: which of its commands may still be running.

use super::group::Group;
use super::private;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;

/// A command that was begun and is not known to be over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfinished {
    pub(super) token: String,
    /// None if the worker ended before it could note the group.
    pub(super) group: Option<NotedGroup>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotedGroup {
    pub(super) group: Group,
    pub(super) start: u64,
    pub(super) boot: String,
}

/// What the notes say is unfinished; nothing if there are none. What they name is ended, so they have
/// to be the user's own.
pub(super) fn unfinished(path: &Path) -> io::Result<Vec<Unfinished>> {
    let mut text = Vec::new();
    match private::open_file(path).and_then(|mut notes| notes.read_to_end(&mut text)) {
        Ok(_) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A last line without its end was cut off by the worker's death: it did not get as far as what the
/// line would say, or the line before it holds. What is no line of ours says nothing.
fn parse(text: &[u8]) -> Vec<Unfinished> {
    let mut open = BTreeMap::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { continue };
        let words: Vec<&str> = match std::str::from_utf8(line) {
            Ok(line) => line.split(' ').collect(),
            Err(_) => continue,
        };
        match *words {
            ["begin", token] if !token.is_empty() => {
                open.insert(token, None);
            }
            ["group", token, number, start, boot] if !token.is_empty() => {
                if let Some(noted) = noted_group(number, start, boot) {
                    open.insert(token, Some(noted));
                }
            }
            ["over", token] => {
                open.remove(token);
            }
            _ => {}
        }
    }
    let named = open.into_iter();
    named.map(|(token, group)| Unfinished { token: token.to_owned(), group }).collect()
}

fn noted_group(number: &str, start: &str, boot: &str) -> Option<NotedGroup> {
    let group = Group::new(number.parse().ok()?)?;
    Some(NotedGroup { group, start: start.parse().ok()?, boot: boot.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<String> {
        parse(text.as_bytes()).into_iter().map(|command| command.token).collect()
    }

    #[test]
    fn pipe_or_link_in_place_of_notes_is_neither_read_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let error = unfinished(&pipe).unwrap_err().to_string();
        assert!(error.ends_with("it is a named pipe, and must be a regular file; remove it"));
        std::fs::write(folder.path().join("notes"), "begin a\n").unwrap();
        std::os::unix::fs::symlink("notes", &link).unwrap();
        assert!(unfinished(&link).is_err());
    }

    #[test]
    fn what_is_over_is_not_unfinished() {
        assert_eq!(tokens("begin a\ngroup a 77 5 x\nbegin b\nover a\n"), ["b"]);
        assert_eq!(tokens("begin a\nover a\n"), [""; 0]);
    }

    #[test]
    fn half_a_line_at_the_end_and_lines_of_others_are_ignored() {
        assert_eq!(tokens("begin a\nover a"), ["a"]);
        assert_eq!(tokens("begin a\nbegin b"), ["a"]);
        assert_eq!(
            tokens("\n\nbegin\nbegin \nbegin a b\nover\nxyz\n group a 3 3 3\nbegin c\n"),
            ["c"]
        );
        assert_eq!(parse(b"\xff\xfe\0\nbegin \xff\nbegin a\n").len(), 1);
    }

    #[test]
    fn a_group_number_that_would_reach_everybody_is_not_taken() {
        for number in ["0", "1", "-1", "-77", "99999999999", "", "7x"] {
            let found = parse(format!("begin a\ngroup a {number} 5 boot\n").as_bytes());
            let expected = Unfinished { token: "a".to_owned(), group: None };
            assert_eq!(found, [expected], "{number}");
        }
    }
}
