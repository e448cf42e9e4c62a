//! Sentences in comments, string literals and pages, and the subjects that they must not have.

use crate::items::SourceFile;
use crate::tokens::TokenKind;
use std::ops::Range;

/// A comment of several lines, a string literal or a line of a page.
pub(crate) struct Prose {
    pub(crate) text: String,
    pub(crate) line: usize,
    /// Shown by rustdoc.
    pub(crate) is_doc: bool,
}

/// Words and phrases of a private dialect.
const BANNED: [&str; 11] = [
    "whoever",
    "whatever",
    "somebody",
    "anybody",
    "nobody",
    "so many",
    "so long as it",
    "such as are",
    "is told",
    "are told",
    "is heard",
];

/// Banned where a sentence of the documentation begins with it and is no question.
const BANNED_AT_BEGIN: [&str; 2] = ["What", "Who"];

/// All prose of a file. Comments on lines below each other are one.
pub(crate) fn read_prose(file: &SourceFile) -> Vec<Prose> {
    let mut all: Vec<Prose> = Vec::new();
    let mut last = None;
    for token in &file.tokens {
        let comment = matches!(token.kind, TokenKind::Comment | TokenKind::DocComment);
        if comment && last == Some((token.kind, token.line - 1)) {
            let comment = all.last_mut().expect("there was a comment before");
            comment.text.push('\n');
            comment.text.push_str(&token.text);
        } else if comment || token.kind == TokenKind::Literal {
            let is_doc = token.kind == TokenKind::DocComment;
            all.push(Prose { text: token.text.clone(), line: token.line, is_doc });
        }
        last = Some((token.kind, token.line));
    }
    all
}

/// Banned phrases, each with the word behind it, and their lines.
pub(crate) fn find_banned(prose: &Prose) -> Vec<(String, usize)> {
    let text = prose.text.as_str();
    let words = split_words(text);
    let lower: Vec<String> = words.iter().map(|word| text[word.clone()].to_lowercase()).collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_here = |phrase: &&&str| {
            phrase.split(' ').eq(lower[at..].iter().take(phrase.split(' ').count()))
        };
        let phrase = BANNED.iter().find(is_here).copied();
        let begin = || BANNED_AT_BEGIN.iter().find(|begin| text[word.clone()] == ***begin).copied();
        let begin = || begin().filter(|_| prose.is_doc && begins_statement(text, word));
        let Some(phrase) = phrase.or_else(begin) else { continue };
        let next = lower.get(at + phrase.split(' ').count());
        let next = next.map(|next| format!(" {next}")).unwrap_or_default();
        let line = prose.line + text[..word.start].matches('\n').count();
        found.push((format!("{}{next}", phrase.to_lowercase()), line));
    }
    found
}

/// Whether neither a heading nor a question begins with this word.
fn begins_statement(text: &str, word: &Range<usize>) -> bool {
    let line = text[..word.start].rsplit('\n').next().unwrap_or_default();
    let after = &text[word.end..];
    let end = after.find(['.', '?', '!', ':']);
    !line.trim_start().starts_with('#') && !end.is_some_and(|end| after[end..].starts_with('?'))
}

fn split_words(text: &str) -> Vec<Range<usize>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut from = 0;
    while let Some(begin) = text[from..].find(is_word) {
        let begin = from + begin;
        let length = text[begin..].find(|c| !is_word(c));
        from = length.map_or(text.len(), |length| begin + length);
        words.push(begin..from);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_words_are_found_with_the_word_behind_them() {
        let text = "// Nobody\n// waits.\nfn f() { \"so many at {whoever}\" }\n// Anybody's\nfn nobody() {}";
        let file = SourceFile::whole("x.rs".into(), text);
        let found: Vec<_> = read_prose(&file).iter().flat_map(find_banned).collect();
        let expected = [("nobody waits", 1), ("so many at", 3), ("whoever", 3), ("anybody s", 4)];
        assert_eq!(found, expected.map(|(phrase, line)| (phrase.to_owned(), line)));
    }

    #[test]
    fn statements_of_the_documentation_begin_with_neither_what_nor_who() {
        let text = "/// What a body gets.\n/// # What is held\n/// What is it for? Says what it is.\n\
            // What a comment says.\n/// Who waits:";
        let file = SourceFile::whole("x.rs".into(), text);
        let found: Vec<_> = read_prose(&file).iter().flat_map(find_banned).collect();
        assert_eq!(found, [("what a".to_owned(), 1), ("who waits".to_owned(), 5)]);
    }
}
