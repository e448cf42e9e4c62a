//! Lists of known offences against a rule, which only get shorter.
//!
//! A list has one line for each offence: what it is, and how often it occurs if that is more than
//! once. Lines name no places, so that code can be moved; the message of a failure names them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Places of each offence, and how much each place counts.
#[derive(Default)]
pub(crate) struct Offences {
    places: BTreeMap<String, Vec<(String, usize)>>,
    /// Counted are lines. A list may say more than there are, or every line that is taken out of a
    /// long file would have to be taken off the list.
    counts_lines: bool,
}

impl Offences {
    pub(crate) fn of_length() -> Self {
        Offences { counts_lines: true, ..Offences::default() }
    }

    pub(crate) fn add(&mut self, offence: impl Into<String>, path: &str, line: usize) {
        self.add_times(offence, format!("{path}:{line}"), 1);
    }

    pub(crate) fn add_times(&mut self, offence: impl Into<String>, place: String, times: usize) {
        self.places.entry(offence.into()).or_default().push((place, times));
    }

    /// Leaves those out that occur once only.
    pub(crate) fn keep_repeated(&mut self) {
        self.places.retain(|_, places| places.len() > 1);
    }

    pub(crate) fn total(&self) -> usize {
        self.places.values().map(Vec::len).sum()
    }

    fn counts(&self) -> Counts {
        let count = |places: &Vec<(String, usize)>| places.iter().map(|(_, times)| times).sum();
        self.places.iter().map(|(offence, places)| (offence.clone(), count(places))).collect()
    }
}

/// How often each offence occurs.
type Counts = BTreeMap<String, usize>;

/// Compares what was found with the list `known/<list>.txt`.
///
/// # Panics
/// If anything was found that is not in the list, or more often, and if the list has something that
/// was not found.
pub(crate) fn hold_ratchet(list: &str, rule: &str, found: &Offences) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/tidy/known/{list}.txt"));
    let counts = found.counts();
    let mode = env::var("TIDY").unwrap_or_default();
    if mode == "write" && !path.exists() {
        write_list(&path, rule, &counts);
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("cannot read {}: {error}; TIDY=write writes a list that is missing", path.display())
    });
    let mut known = read_list(&text);
    if mode == "shrink" {
        known = shrink(&known, &counts);
        write_list(&path, rule, &known);
    }
    if let Some(message) = compare(list, rule, found, &known) {
        panic!("{message}");
    }
}

fn read_list(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let counted = line
            .rsplit_once(": ")
            .and_then(|(offence, count)| Some((offence.to_owned(), count.parse::<usize>().ok()?)));
        counted.unwrap_or_else(|| (line.to_owned(), 1))
    };
    lines.map(entry).collect()
}

fn write_list(path: &Path, rule: &str, counts: &Counts) {
    let mut text =
        format!("# {rule}\n# Lines are only taken away: TIDY=shrink cargo test --test tidy\n");
    for (offence, &count) in counts {
        let result = if count == 1 {
            writeln!(text, "{offence}")
        } else {
            writeln!(text, "{offence}: {count}")
        };
        result.expect("a string can be written to");
    }
    fs::write(path, text)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// What both have, as often as both have it.
fn shrink(known: &Counts, found: &Counts) -> Counts {
    let both = known.iter().filter_map(|(offence, &known)| {
        found.get(offence).map(|&found| (offence.clone(), known.min(found)))
    });
    both.collect()
}

/// The message of a failure, if the list and what was found are not the same.
fn compare(list: &str, rule: &str, found: &Offences, known: &Counts) -> Option<String> {
    let mut message = String::new();
    let counts = found.counts();
    let often = |counts: &Counts, offence: &str| counts.get(offence).copied().unwrap_or(0);
    let added = counts.iter().filter(|(offence, count)| **count > often(known, offence));
    for (offence, &count) in added {
        let before = often(known, offence);
        let _ = writeln!(message, "  {offence}: {count}, allowed {before}");
        for (place, _) in &found.places[offence] {
            let _ = writeln!(message, "    at {place}");
        }
    }
    if !message.is_empty() {
        let list = format!("crates/tidegate-testkit/tests/tidy/known/{list}.txt");
        return Some(format!(
            "{rule}\nThe change adds at least one place to each of:\n{message}\
             Change the code. The list of what was there before, {list}, only gets shorter; \
             the line of a renamed file may be renamed in it.\n"
        ));
    }
    let gone = known.iter().filter(|(offence, count)| {
        let now = often(&counts, offence);
        now == 0 || (now < **count && !found.counts_lines)
    });
    for (offence, &count) in gone {
        let now = often(&counts, offence);
        let _ = writeln!(message, "  {offence}: {now}, listed {count}");
    }
    (!message.is_empty()).then(|| {
        format!(
            "{rule}\nThe change mends what is still listed:\n{message}\
             Take it off the list: TIDY=shrink cargo test --test tidy\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(counts: &[(&str, usize)]) -> Offences {
        let mut offences = Offences::default();
        for &(offence, count) in counts {
            (1..=count).for_each(|line| offences.add(offence, "a.rs", line));
        }
        offences
    }

    #[test]
    fn list_is_read_as_it_was_written() {
        let text = "# the rule\n\nonce\ntwice: 2\na::b: 3\nno: number\n";
        let expected = [("a::b", 3), ("no: number", 1), ("once", 1), ("twice", 2)];
        assert_eq!(read_list(text), offences(&expected).counts());
    }

    #[test]
    fn added_offence_is_named_with_its_places() {
        let known = offences(&[("old", 1)]).counts();
        let message = compare("list", "The rule.", &offences(&[("old", 2)]), &known).unwrap();
        assert!(message.contains("old: 2, allowed 1\n    at a.rs:1\n    at a.rs:2\n"), "{message}");
        let message = compare("list", "The rule.", &offences(&[("new", 1)]), &known).unwrap();
        assert!(message.contains("new: 1, allowed 0\n    at a.rs:1\n"), "{message}");
        assert!(!message.contains("TIDY"), "what was added is never put on the list: {message}");
    }

    #[test]
    fn mended_offence_is_to_be_taken_off_the_list() {
        let found = offences(&[("old", 1)]);
        let known = offences(&[("gone", 1), ("old", 2)]).counts();
        let message = compare("list", "The rule.", &found, &known).unwrap();
        assert!(message.contains("gone: 0, listed 1\n  old: 1, listed 2\n"), "{message}");
        assert!(message.contains("TIDY=shrink"), "{message}");
        let shrunk = shrink(&known, &found.counts());
        assert_eq!(compare("list", "The rule.", &found, &shrunk), None);
    }

    #[test]
    fn long_file_may_have_fewer_lines_than_listed() {
        let known = offences(&[("a.rs", 3)]).counts();
        let mut found = Offences::of_length();
        assert!(compare("list", "The rule.", &found, &known).is_some(), "it is long no more");
        found.add_times("a.rs", "a.rs".into(), 2);
        assert_eq!(compare("list", "The rule.", &found, &known), None);
        found.add_times("a.rs", "a.rs".into(), 2);
        assert!(compare("list", "The rule.", &found, &known).is_some(), "it has grown");
    }

    #[test]
    fn shrinking_never_adds() {
        let known = offences(&[("old", 1)]).counts();
        let found = offences(&[("new", 1), ("old", 2)]);
        assert_eq!(shrink(&known, &found.counts()), known);
    }
}
