//! The words of rules and policies, and which one was meant by another.

use std::fmt;

/// A text that is none of the words it could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    text: String,
    /// What it should have been.
    kind: &'static str,
    words: Vec<&'static str>,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownWord { text, kind, words } = self;
        write!(f, "\"{text}\" is not a {kind}: write ")?;
        let (last, others) = words.split_last().expect("there are words");
        write!(f, "{} or {last}", others.join(", "))?;
        did_you_mean(f, nearest(text, words.iter().copied()))
    }
}

impl std::error::Error for UnknownWord {}

/// Says so, where one is near.
pub(super) fn did_you_mean(f: &mut fmt::Formatter<'_>, near: Option<&str>) -> fmt::Result {
    near.map_or(Ok(()), |near| write!(f, "; did you mean \"{near}\"?"))
}

/// The word for a value.
pub(super) fn of<T: PartialEq>(words: &[(&'static str, T)], wanted: T) -> &'static str {
    let word = words.iter().find(|(_, value)| *value == wanted);
    word.expect("every value has a word").0
}

/// The value that a word stands for.
pub(super) fn meaning<T: Copy>(
    kind: &'static str,
    words: &[(&'static str, T)],
    text: &str,
) -> Result<T, UnknownWord> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|&(_, value)| value).ok_or_else(|| UnknownWord {
        text: text.chars().take(64).collect(),
        kind,
        words: words.iter().map(|&(word, _)| word).collect(),
    })
}

/// Names longer than this are not compared: the cost grows with the square of the length.
const COMPARED_MAX: usize = 128;

/// The one of `names` that is spelt almost like `text`: at most one change in three letters, where
/// upper and lower case are the same. The first where several are equally near.
pub fn nearest<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = letters(text)?;
    let near = names.into_iter().filter_map(|name| {
        let letters = letters(name)?;
        let longer = wanted.len().max(letters.len());
        if (longer - wanted.len().min(letters.len())) * 3 > longer {
            return None;
        }
        let changes = edit_distance(&wanted, &letters);
        (changes * 3 <= longer).then_some((changes, name))
    });
    near.min_by_key(|&(changes, _)| changes).map(|(_, name)| name)
}

fn letters(text: &str) -> Option<Vec<char>> {
    let letters: Vec<char> =
        text.chars().flat_map(char::to_lowercase).take(COMPARED_MAX + 1).collect();
    (!letters.is_empty() && letters.len() <= COMPARED_MAX).then_some(letters)
}

/// How many letters have to be put in, taken out, replaced or swapped with their neighbour to make
/// one text of the other.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    // Three lines of the table of distances between beginnings of `a` and beginnings of `b`.
    let mut before = vec![0; b.len() + 1];
    let mut above = vec![0; b.len() + 1];
    let mut line: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        (before, above, line) = (above, line, before);
        line[0] = i;
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            line[j] = replaced.min(above[j] + 1).min(line[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                line[j] = line[j].min(before[j - 2] + 1);
            }
        }
    }
    line[b.len()]
}
