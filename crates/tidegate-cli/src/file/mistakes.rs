//! What is wrong in a file, and where.
//!
//! Reading goes on after a mistake, so that all of them are told at once, in the order of the lines.
//! Each is one message with its place, the line it is about, and what would be right.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// More are counted, not shown: they would push the first ones off the screen.
pub(super) const SHOWN_MAX: usize = 20;

/// Of a longer line, only the part around the mistake is shown.
const LINE_MAX: usize = 72;

/// A longer message has a name in it that nobody reads to its end.
const WHAT_MAX: usize = 1_000;

/// A text that was read, with the name under which it is spoken of.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Its lines are not shown: what is said may end up in the log of a build.
    pub(crate) secret: bool,
}

/// Something that is wrong at a place of a text.
#[derive(Debug, Clone)]
struct Mistake {
    source: Rc<Source>,
    at: Range<usize>,
    what: String,
}

/// Everything that is wrong.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    all: Vec<Mistake>,
}

impl Mistakes {
    /// The only one there is.
    pub(crate) fn one(source: Source, at: Range<usize>, what: impl Into<String>) -> Self {
        let mut mistakes = Mistakes::default();
        mistakes.add(&Rc::new(source), at, what);
        mistakes
    }

    pub(super) fn add(&mut self, source: &Rc<Source>, at: Range<usize>, what: impl Into<String>) {
        self.all.push(Mistake { source: source.clone(), at, what: what.into() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// In the order of the lines, those of this file before those of others. The same at the same
    /// place counts once: several tasks may name one file of variables.
    pub(super) fn sorted(mut self, first: &Source) -> Self {
        fn order(mistake: &Mistake) -> (&PathBuf, usize, usize, &str) {
            let Mistake { source, at, what } = mistake;
            (&source.path, at.start, at.end, what)
        }
        let other = |mistake: &Mistake| mistake.source.path != first.path;
        self.all.sort_by(|a, b| (other(a), order(a)).cmp(&(other(b), order(b))));
        self.all.dedup_by(|a, b| order(a) == order(b));
        self
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in self.all.iter().take(SHOWN_MAX) {
            mistake.fmt(f)?;
        }
        match self.all.len() {
            0 | 1 => Ok(()),
            many if many > SHOWN_MAX => {
                writeln!(f, "{many} mistakes, of which the first {SHOWN_MAX} are shown")
            }
            many => writeln!(f, "{many} mistakes"),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Place::of(&self.source.text, &self.at);
        let Place { line, column, .. } = place;
        let mut what = String::new();
        push_plain(&mut what, &self.what, WHAT_MAX);
        writeln!(f, "{}:{line}:{column}: {what}", self.source.path.display())?;
        if place.text.is_empty() || self.source.secret { Ok(()) } else { place.show(f) }
    }
}

/// Where something stands in a text, counted in characters from 1.
struct Place<'t> {
    line: usize,
    column: usize,
    text: &'t str,
    /// How many characters of the line it takes, at least 1.
    width: usize,
}

impl<'t> Place<'t> {
    fn of(text: &'t str, at: &Range<usize>) -> Self {
        let start = whole(text, at.start);
        let end = whole(text, at.end).max(start);
        let begin = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let rest = &text[begin..];
        let line_end = begin + rest.find('\n').unwrap_or(rest.len());
        let marked = &text[start.min(line_end)..end.min(line_end)];
        Place {
            line: text[..start].matches('\n').count() + 1,
            column: text[begin..start].chars().count() + 1,
            text: text[begin..line_end].trim_end(),
            width: marked.trim_end().chars().count().max(1),
        }
    }

    /// The line, and below it carets under what is meant.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters: Vec<char> = self.text.chars().collect();
        let at = (self.column - 1).min(letters.len());
        // A window of the line in which the place is.
        let from = if letters.len() <= LINE_MAX { 0 } else { at.saturating_sub(LINE_MAX / 2) };
        let to = letters.len().min(from + LINE_MAX);
        let (mut shown, mut below) = (String::new(), String::new());
        if from > 0 {
            shown.push('…');
            below.push(' ');
        }
        for (index, &letter) in letters.iter().enumerate().take(to).skip(from) {
            // What a terminal would obey is not handed to it.
            shown.push(if letter != '\t' && is_obeyed(letter) { '\u{fffd}' } else { letter });
            if index < at {
                below.push(if letter == '\t' { '\t' } else { ' ' });
            }
        }
        if to < letters.len() {
            shown.push('…');
        }
        let carets = "^".repeat(self.width.min(to.saturating_sub(at).max(1)));
        writeln!(f, "{:>5} | {shown}", self.line)?;
        writeln!(f, "      | {below}{carets}")
    }
}

/// The beginning of the character that this byte is a part of.
fn whole(text: &str, byte: usize) -> usize {
    text.floor_char_boundary(byte.min(text.len()))
}

/// A text from outside, in quotes, on one line and not too long.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    push_plain(&mut quoted, text, 60);
    quoted.push('"');
    quoted
}

/// Whether a terminal does something else with it than to show it: controls, and what makes a line go
/// the other way or break.
fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with nothing in it that a terminal would obey; of a longer one, the beginning.
pub(crate) fn push_plain(into: &mut String, text: &str, max: usize) {
    let mut letters = text.chars();
    for letter in letters.by_ref().take(max) {
        match is_obeyed(letter) {
            true => write!(into, "{}", letter.escape_default()).expect("a string takes all"),
            false => into.push(letter),
        }
    }
    if letters.next().is_some() {
        into.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_text_from_outside_tells_a_terminal_nothing() {
        let text = "a\u{1b}[2Jb\u{202e}c\u{2028}d\u{2069}é";
        assert_eq!(quoted(text), "\"a\\u{1b}[2Jb\\u{202e}c\\u{2028}d\\u{2069}é\"");
    }
}
