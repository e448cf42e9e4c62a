//! A tokenizer for Rust: enough to tell code, comments and string literals apart.

/// One token and the line that it begins on, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) text: String,
    pub(crate) line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier, a keyword or a number.
    Word,
    /// One character of punctuation.
    Sign,
    /// The content of a string literal, as it is written.
    Literal,
    /// A comment without its slashes.
    Comment,
    /// A comment that rustdoc shows.
    DocComment,
}

impl Token {
    pub(crate) fn is_word(&self, text: &str) -> bool {
        self.kind == TokenKind::Word && self.text == text
    }

    pub(crate) fn is_sign(&self, sign: char) -> bool {
        self.kind == TokenKind::Sign && self.text.starts_with(sign)
    }
}

/// Splits a file into its tokens. Lifetimes and character literals are left out: no rule reads them.
pub(crate) fn split_tokens(text: &str) -> Vec<Token> {
    let mut reader = Reader { rest: text, line: 1, tokens: Vec::new() };
    while let Some(first) = reader.rest.chars().next() {
        reader.read_token(first);
    }
    reader.tokens
}

struct Reader<'t> {
    rest: &'t str,
    line: usize,
    tokens: Vec<Token>,
}

impl<'t> Reader<'t> {
    fn read_token(&mut self, first: char) {
        if self.rest.starts_with("//") {
            self.read_line_comment();
        } else if self.rest.starts_with("/*") {
            self.read_block_comment();
        } else if first == '"' {
            self.read_string();
        } else if first == '\'' {
            self.skip_quote();
        } else if let Some(hashes) = self.raw_string_hashes() {
            self.read_raw_string(hashes);
        } else if is_word_character(first) {
            let end = self.rest.find(|c| !is_word_character(c)).unwrap_or(self.rest.len());
            self.push(TokenKind::Word, end);
        } else if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else {
            self.push(TokenKind::Sign, first.len_utf8());
        }
    }

    fn read_line_comment(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        let comment = &self.rest[2..end];
        let doc =
            comment.starts_with('!') || (comment.starts_with('/') && !comment.starts_with("//"));
        let kind = if doc { TokenKind::DocComment } else { TokenKind::Comment };
        let text = comment.trim_start_matches(['/', '!']).to_owned();
        self.tokens.push(Token { kind, text, line: self.line });
        self.skip(end);
    }

    fn read_block_comment(&mut self) {
        let (mut depth, mut end) = (1, 2);
        while depth > 0 && end < self.rest.len() {
            let rest = &self.rest[end..];
            if rest.starts_with("*/") {
                depth -= 1;
                end += 2;
            } else if rest.starts_with("/*") {
                depth += 1;
                end += 2;
            } else {
                end += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        self.push(TokenKind::Comment, end);
    }

    fn read_string(&mut self) {
        let mut escaped = false;
        let end = self.rest[1..].find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = end.map_or(self.rest.len(), |end| end + 1);
        self.push_literal(1, end, end + 1);
    }

    /// How many `#` the raw string has that begins here, if one does.
    fn raw_string_hashes(&self) -> Option<usize> {
        let after = ["br", "cr", "r"].iter().find_map(|prefix| self.rest.strip_prefix(prefix))?;
        let hashes = after.len() - after.trim_start_matches('#').len();
        after[hashes..].starts_with('"').then_some(hashes)
    }

    fn read_raw_string(&mut self, hashes: usize) {
        let begin = self.rest.find('"').map_or(self.rest.len(), |quote| quote + 1);
        let close = format!("\"{}", "#".repeat(hashes));
        let end = self.rest[begin..].find(&close).map_or(self.rest.len(), |end| begin + end);
        self.push_literal(begin, end, end + close.len());
    }

    /// Skips a character literal, or the quote of a lifetime.
    fn skip_quote(&mut self) {
        let mut characters = self.rest[1..].chars();
        let length = match (characters.next(), characters.next()) {
            (Some('\\'), Some(escaped)) => {
                let from = 2 + escaped.len_utf8();
                self.rest[from..].find('\'').map_or(1, |end| from + end + 1)
            }
            (Some(character), Some('\'')) => character.len_utf8() + 2,
            _ => 1,
        };
        self.skip(length);
    }

    fn push(&mut self, kind: TokenKind, length: usize) {
        let text = self.rest[..length].to_owned();
        self.tokens.push(Token { kind, text, line: self.line });
        self.skip(length);
    }

    fn push_literal(&mut self, begin: usize, end: usize, length: usize) {
        let text = self.rest[begin..end].to_owned();
        self.tokens.push(Token { kind: TokenKind::Literal, text, line: self.line });
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        let (skipped, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn comments_strings_and_quotes_are_told_apart() {
    let text = "/// Doc \"x\"\nfn a<'l>(c: char) { // why\n b\"\\\"}\"; r#\"\"{\"#; '{'; '\\''; }";
    let tokens = split_tokens(text);
    let of = |kind| -> Vec<&str> {
        tokens.iter().filter(|token| token.kind == kind).map(|token| token.text.as_str()).collect()
    };
    assert_eq!(of(TokenKind::DocComment), [" Doc \"x\""]);
    assert_eq!(of(TokenKind::Comment), [" why"]);
    assert_eq!(of(TokenKind::Literal), ["\\\"}", "\"{"]);
    assert_eq!(of(TokenKind::Sign).concat(), "<>(:){;;;;}");
    assert_eq!(tokens.last().map(|token| token.line), Some(3));
}
