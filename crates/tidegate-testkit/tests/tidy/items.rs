//! Functions and types of a file, read from its tokens.

use crate::tokens::{Token, TokenKind, split_tokens};

/// A Rust file without its test modules.
pub(crate) struct SourceFile {
    /// From the root of the repository, with `/`.
    pub(crate) path: String,
    /// Without the lines of its test modules.
    pub(crate) lines: usize,
    pub(crate) tokens: Vec<Token>,
}

pub(crate) struct Function {
    pub(crate) name: String,
    /// The line of its name.
    pub(crate) line: usize,
    /// From the line of its name to the one before its closing brace; 0 without a body.
    pub(crate) length: usize,
    /// In a trait's definition or in an implementation of one, where the trait chose the name.
    pub(crate) of_trait: bool,
    /// Under `#[test]`, or another attribute of that name.
    pub(crate) is_test: bool,
}

impl SourceFile {
    /// Cuts `#[cfg(test)] mod … { … }` out.
    pub(crate) fn without_tests(path: String, text: &str) -> Self {
        let mut tokens = split_tokens(text);
        let mut lines = text.lines().count();
        while let Some((begin, end)) = find_test_module(&tokens) {
            lines -= tokens[end].line - tokens[begin].line + 1;
            tokens.drain(begin..=end);
        }
        SourceFile { path, lines, tokens }
    }

    /// As it stands, test modules included.
    pub(crate) fn whole(path: String, text: &str) -> Self {
        SourceFile { path, lines: text.lines().count(), tokens: split_tokens(text) }
    }

    /// The folder of its crate: `tidegate-core`, `bench`.
    pub(crate) fn package(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or(path)
    }

    /// Without comments.
    fn code(&self) -> Vec<&Token> {
        let comment = |kind| matches!(kind, TokenKind::Comment | TokenKind::DocComment);
        self.tokens.iter().filter(|token| !comment(token.kind)).collect()
    }

    /// Names and lines of its structs, enums, unions and traits.
    pub(crate) fn types(&self) -> Vec<(String, usize)> {
        let code = self.code();
        let keyword =
            |token: &Token| ["struct", "enum", "union", "trait"].iter().any(|&w| token.is_word(w));
        let named = |token: &Token| {
            token.kind == TokenKind::Word
                && token.text.starts_with(|c: char| c.is_ascii_uppercase())
        };
        code.windows(2)
            .filter(|pair| keyword(pair[0]) && named(pair[1]))
            .map(|pair| (pair[1].text.clone(), pair[1].line))
            .collect()
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let code = self.code();
        let mut found = Vec::new();
        // For each open brace, whether a trait chooses the names of the functions right inside.
        let mut blocks = vec![false];
        let mut opens_trait = None;
        let mut is_test = false;
        for (at, token) in code.iter().enumerate() {
            if token.is_sign('#') {
                is_test |= is_test_attribute(&code[at + 1..]);
            } else if token.is_word("trait") || is_trait_impl(&code, at) {
                opens_trait = find_body(&code, at);
            } else if token.is_word("fn") && code.get(at + 1).is_some_and(|t| is_name(t)) {
                let name = code[at + 1];
                let close = find_body(&code, at).map(|open| code[find_close(&code, open)].line);
                found.push(Function {
                    name: name.text.clone(),
                    line: name.line,
                    length: close.map_or(0, |close| close - name.line),
                    of_trait: blocks.last() == Some(&true),
                    is_test: std::mem::take(&mut is_test),
                });
            } else if token.is_sign('{') {
                blocks.push(opens_trait == Some(at));
            } else if token.is_sign('}') {
                blocks.pop();
            }
        }
        found
    }

    /// First segments of paths from the root of the crate, with the one after: `engine::RunStatus`
    /// for both `use crate::{engine::RunStatus}` and `crate::engine::RunStatus::new()`. A path through
    /// `super` counts as one from the root, which is so for a module at the top.
    pub(crate) fn paths_from_root(&self) -> Vec<(String, usize)> {
        let code = self.code();
        let mut found = Vec::new();
        for (at, token) in code.iter().enumerate() {
            if !(token.is_word("crate") || token.is_word("super")) || !is_separator(&code, at + 1) {
                continue;
            }
            let first = at + 3;
            if code.get(first).is_some_and(|token| token.is_sign('{')) {
                let mut depth = 0;
                for at in first..find_close(&code, first) {
                    if code[at].is_sign('{') {
                        depth += 1;
                    } else if code[at].is_sign('}') {
                        depth -= 1;
                    }
                    if depth == 1 && (code[at].is_sign('{') || code[at].is_sign(',')) {
                        found.extend(read_path(&code, at + 1));
                    }
                }
            } else {
                found.extend(read_path(&code, first));
            }
        }
        found
    }

    /// What `pub use module::…` at the root of a crate passes on.
    pub(crate) fn names_passed_on_from(&self, module: &str) -> Vec<String> {
        let code = self.code();
        let mut names = Vec::new();
        for at in 0..code.len().saturating_sub(2) {
            if code[at].is_word("pub")
                && code[at + 1].is_word("use")
                && code[at + 2].is_word(module)
            {
                let tree = code[at + 3..].iter().take_while(|token| !token.is_sign(';'));
                names.extend(tree.filter(|token| is_name(token)).map(|token| token.text.clone()));
            }
        }
        names
    }
}

/// The first two segments of the path that begins here.
fn read_path(code: &[&Token], at: usize) -> Option<(String, usize)> {
    let first = code.get(at).filter(|token| is_name(token))?;
    let second = code.get(at + 3).filter(|token| is_separator(code, at + 1) && is_name(token));
    let path =
        second.map_or(first.text.clone(), |second| format!("{}::{}", first.text, second.text));
    Some((path, first.line))
}

fn is_name(token: &Token) -> bool {
    token.kind == TokenKind::Word
}

fn is_separator(code: &[&Token], at: usize) -> bool {
    [at, at + 1].iter().all(|&at| code.get(at).is_some_and(|token| token.is_sign(':')))
}

/// Whether an attribute, behind its `#`, is `[test]`, `[tokio::test(…)]` or the like.
fn is_test_attribute(code: &[&Token]) -> bool {
    let path = code.iter().skip(1).take_while(|token| is_name(token) || token.is_sign(':'));
    code.first().is_some_and(|token| token.is_sign('['))
        && path.last().is_some_and(|token| token.is_word("test"))
}

/// Whether this is the `impl` of an item, not of a type like `impl Fn()`, and has a trait.
fn is_trait_impl(code: &[&Token], at: usize) -> bool {
    let begins_item = |before: &&Token| {
        before.is_word("unsafe") || ['{', '}', ';', ']'].iter().any(|&sign| before.is_sign(sign))
    };
    if !code[at].is_word("impl") || !at.checked_sub(1).is_none_or(|at| begins_item(&code[at])) {
        return false;
    }
    let head = &code[at..find_body(code, at).unwrap_or(at)];
    // `for<'l>` is a bound, not the trait's `for`.
    head.windows(2).any(|pair| pair[0].is_word("for") && !pair[1].is_sign('<'))
}

/// The brace that opens the body of the item that begins here, unless it ends without one.
fn find_body(code: &[&Token], at: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, token) in code.iter().enumerate().skip(at) {
        match token.text.as_str() {
            _ if token.kind != TokenKind::Sign => {}
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            "{" if depth == 0 => return Some(at),
            ";" if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The brace that closes this one.
fn find_close(code: &[&Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in code.iter().enumerate().skip(open) {
        if token.is_sign('{') {
            depth += 1;
        } else if token.is_sign('}') {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    code.len() - 1
}

/// First and last token of the first `#[cfg(test)] mod … { … }`.
fn find_test_module(tokens: &[Token]) -> Option<(usize, usize)> {
    let code: Vec<&Token> = tokens.iter().collect();
    let cfg_test = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut from = 0;
    while let Some(begin) = code[from..]
        .windows(cfg_test.len())
        .position(|window| window.iter().zip(cfg_test).all(|(token, text)| token.text == text))
    {
        let begin = from + begin;
        from = begin + cfg_test.len();
        let Some(open) = find_body(&code, from) else { continue };
        if code[from..open].iter().any(|token| token.is_word("mod")) {
            return Some((begin, find_close(&code, open)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_know_their_length_and_the_traits_that_named_them() {
        let text = "trait A { fn a(&self) -> [u8; 2]; fn b() {} }\n\
            unsafe impl<T> A for B where T: for<'l> Fn(&'l T) { fn a() { fn inner() {} } }\n\
            impl B { fn c(f: impl Fn() -> u8) {\n  1;\n  2;\n} }\n\
            impl<T: for<'l> Fn(&'l T)> B { #[tokio::test(x)] async fn d() {} }\n\
            #[cfg(test)]\nmod tests { fn e() {} }\n\
            macro_rules! m { () => { fn $name() {} fn f() {} } }";
        let file = SourceFile::without_tests("x.rs".into(), text);
        let read = |function: &Function| {
            let Function { name, length, of_trait, is_test, .. } = function;
            (name.clone(), *length, *of_trait, *is_test)
        };
        let found: Vec<_> = file.functions().iter().map(read).collect();
        let expected = [
            ("a", 0, true, false),
            ("b", 0, true, false),
            ("a", 0, true, false),
            ("inner", 0, false, false),
            ("c", 3, false, false),
            ("d", 0, false, true),
            ("f", 0, false, false),
        ];
        assert_eq!(found, expected.map(|(name, length, a, b)| (name.to_owned(), length, a, b)));
        assert_eq!(file.lines, text.lines().count() - 2);
    }

    #[test]
    fn paths_are_read_in_imports_and_in_code() {
        let text = "use crate::{engine::{A, b}, slot, wait::C}; fn f() { crate::engine::D::new() }\n\
            use super::engine; use std::{engine}; // crate::engine::E";
        let file = SourceFile::whole("x.rs".into(), text);
        let found: Vec<String> = file.paths_from_root().into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, ["engine", "slot", "wait::C", "engine::D", "engine"]);
    }

    #[test]
    fn types_are_read_wherever_they_stand() {
        let text = "pub(crate) struct A; fn f() { enum B {} } trait C {} type D = A; // struct E";
        let names =
            SourceFile::whole("x.rs".into(), text).types().into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["A", "B", "C"]);
    }
}
