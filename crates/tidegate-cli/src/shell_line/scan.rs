//! Reads a line as a shell does, as far as that is certain.
//!
//! What is read are words, quotes, comments, operators and simple expansions, in which sh, dash, bash, ksh
//! and zsh agree. Anything else is a doubt: how the line goes on is not known, and no placeholder behind
//! it is accepted. Deliberately absent: what the line means, but for commands that read an argument as
//! code once more.

use super::{
    Doubt, DoubtfulPlaceholder, LinePart, Placeholder, QuoteContext, SHELLS, is_script_option,
};

/// What was read of a line.
pub(super) struct Scanned {
    pub(super) parts: Vec<LinePart>,
    /// Whether one more word behind it would be one more argument.
    pub(super) takes_argument: bool,
}

/// Builtins that read an argument as code, or as arithmetic, which can hold code.
const EVALUATORS: [&str; 9] =
    ["alias", "declare", "eval", "integer", "let", "read", "trap", "typeset", "unset"];

/// Words that a command may follow.
const BEFORE_COMMANDS: [&[u8]; 16] = [
    b"!",
    b"{",
    b"builtin",
    b"command",
    b"coproc",
    b"do",
    b"elif",
    b"else",
    b"exec",
    b"if",
    b"nocorrect",
    b"noglob",
    b"then",
    b"time",
    b"until",
    b"while",
];

/// Programs that run the argument of `-c` as a script, besides the shells.
const SCRIPT_RUNNERS: [&str; 4] = ["$SHELL", "${SHELL}", "busybox", "su"];

/// Reads the line.
///
/// # Errors
/// The first placeholder that cannot be data for certain.
pub(super) fn scan_line(
    line: &[u8],
    known: &[(&'static str, Placeholder)],
) -> Result<Scanned, DoubtfulPlaceholder> {
    let mut scanner = Scanner::new(line, known);
    while scanner.at < line.len() {
        match scanner.quotes {
            QuoteContext::Unquoted => scanner.step_unquoted()?,
            QuoteContext::Single => scanner.step_single()?,
            QuoteContext::Double => scanner.step_double()?,
        }
    }
    scanner.push_text();
    let takes_argument = scanner.takes_argument();
    Ok(Scanned { parts: scanner.parts, takes_argument })
}

struct Scanner<'l> {
    line: &'l [u8],
    known: &'l [(&'static str, Placeholder)],
    at: usize,
    /// Where the text begins that is in no part.
    text_from: usize,
    parts: Vec<LinePart>,
    quotes: QuoteContext,
    doubt: Option<Doubt>,
    /// Whether a comment, or a backslash, would swallow what is put behind the line.
    is_open: bool,
    word: Word,
    command: SimpleCommand,
}

/// The word that is being read.
#[derive(Default)]
struct Word {
    has_begun: bool,
    /// Without its quotes.
    literal: Vec<u8>,
    has_bracket: bool,
    /// Whether something in it becomes something else, perhaps nothing.
    has_expansion: bool,
}

impl Word {
    /// Whether this is, or can become, one of these.
    fn find_in(&self, names: &[&'static str]) -> Option<&'static str> {
        let base = self.literal.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_it = |name: &&&str| {
            base == name.as_bytes() || self.has_expansion && base.ends_with(name.as_bytes())
        };
        names.iter().find(is_it).copied()
    }
}

/// What is known of the simple command that is being read.
#[derive(Default)]
struct SimpleCommand {
    /// Whether it has a word that is no assignment, and whether its name is among these.
    has_word: bool,
    has_name: bool,
    /// Whether the next word says where to read or write.
    is_redirected: bool,
    evaluator: Option<&'static str>,
    /// Whether a shell is one of its words, and whether the next word is that shell's script.
    has_shell: bool,
    script_is_next: bool,
}

impl<'l> Scanner<'l> {
    fn new(line: &'l [u8], known: &'l [(&'static str, Placeholder)]) -> Self {
        Scanner {
            line,
            known,
            at: 0,
            text_from: 0,
            parts: Vec::new(),
            quotes: QuoteContext::Unquoted,
            doubt: None,
            is_open: false,
            word: Word::default(),
            command: SimpleCommand::default(),
        }
    }

    fn peek_byte(&self, ahead: usize) -> Option<u8> {
        self.line.get(self.at + ahead).copied()
    }

    fn remaining_line(&self) -> &'l [u8] {
        &self.line[self.at..]
    }

    /// Takes a placeholder that stands here; false if none does.
    fn take_placeholder(&mut self) -> Result<bool, DoubtfulPlaceholder> {
        let Some((mark, placeholder)) =
            Placeholder::at_beginning(self.remaining_line(), self.known)
        else {
            return Ok(false);
        };
        let command = &self.command;
        let doubt = match self.doubt {
            Some(doubt) => Some(doubt),
            None if self.word.has_bracket => Some(Doubt::Subscript),
            // The name of a file is no argument.
            None if command.is_redirected => None,
            None if command.script_is_next => Some(Doubt::Script),
            None => command.evaluator.map(Doubt::Evaluated),
        };
        // A number is no input.
        if let Some(doubt) = doubt.filter(|_| placeholder != Placeholder::Number) {
            return Err(self.refuse_placeholder(mark, placeholder, doubt));
        }
        self.push_text();
        self.parts.push(LinePart::Placeholder(placeholder, self.quotes));
        self.at += mark.len();
        self.text_from = self.at;
        self.word.has_begun = true;
        self.word.literal.extend_from_slice(mark.as_bytes());
        Ok(true)
    }

    fn refuse_placeholder(
        &self,
        mark: &'static str,
        placeholder: Placeholder,
        doubt: Doubt,
    ) -> DoubtfulPlaceholder {
        DoubtfulPlaceholder { at: self.at..self.at + mark.len(), mark, placeholder, doubt }
    }

    fn push_text(&mut self) {
        if self.text_from < self.at {
            self.parts.push(LinePart::Text(self.line[self.text_from..self.at].to_vec()));
        }
        self.text_from = self.at;
    }

    /// From here on nothing is certain: what is left are placeholders that are refused.
    fn doubt_the_rest(&mut self, doubt: Doubt) -> Result<(), DoubtfulPlaceholder> {
        self.doubt = Some(doubt);
        while self.at < self.line.len() {
            if !self.take_placeholder()? {
                self.at += 1;
            }
        }
        Ok(())
    }

    /// This many bytes of a word.
    fn take_bytes(&mut self, count: usize) {
        let end = self.line.len().min(self.at + count);
        self.word.has_begun = true;
        self.word.literal.extend_from_slice(&self.line[self.at..end]);
        self.at = end;
    }

    fn step_single(&mut self) -> Result<(), DoubtfulPlaceholder> {
        if self.take_placeholder()? {
            return Ok(());
        }
        if self.peek_byte(0) == Some(b'\'') {
            self.quotes = QuoteContext::Unquoted;
            self.at += 1;
        } else {
            self.take_bytes(1);
        }
        Ok(())
    }

    fn step_double(&mut self) -> Result<(), DoubtfulPlaceholder> {
        if self.take_placeholder()? {
            return Ok(());
        }
        match self.peek_byte(0) {
            Some(b'"') => {
                self.quotes = QuoteContext::Unquoted;
                self.at += 1;
            }
            Some(b'\\') => self.take_bytes(2),
            Some(b'$') => self.step_dollar()?,
            Some(b'`') => self.skip_substitution(1, b'`')?,
            _ => self.take_bytes(1),
        }
        Ok(())
    }

    fn step_unquoted(&mut self) -> Result<(), DoubtfulPlaceholder> {
        if self.take_placeholder()? {
            return Ok(());
        }
        match self.line[self.at] {
            b' ' | b'\t' => self.end_word_at(1),
            b'\n' | b';' | b')' | b'|' | b'&' => self.end_command(),
            b'\'' => self.open_quotes(QuoteContext::Single),
            b'"' => self.open_quotes(QuoteContext::Double),
            // A line that goes on: the two are not there at all.
            b'\\' if self.peek_byte(1) == Some(b'\n') => self.at += 2,
            b'\\' => {
                self.at += 1;
                self.is_open = self.at == self.line.len();
                self.take_bytes(1);
            }
            b'$' => return self.step_dollar(),
            b'`' => return self.skip_substitution(1, b'`'),
            b'#' => return self.step_hash(),
            b'<' | b'>' => return self.step_redirection(),
            b'(' => return self.step_parenthesis(),
            b'[' => {
                self.word.has_bracket |= self.word.has_begun;
                self.take_bytes(1);
            }
            _ => self.take_bytes(1),
        }
        if self.doubt.is_none() && self.word.literal == b"[[" && self.word.has_begun {
            return self.doubt_the_rest(Doubt::Brackets);
        }
        Ok(())
    }

    fn open_quotes(&mut self, quotes: QuoteContext) {
        self.quotes = quotes;
        self.word.has_begun = true;
        self.at += 1;
    }

    /// At the beginning of a word it begins a comment, up to the end of the line.
    fn step_hash(&mut self) -> Result<(), DoubtfulPlaceholder> {
        let before = self.at.checked_sub(1).map(|at| self.line[at]);
        match (self.word.has_begun, before) {
            (true, Some(byte)) if byte.is_ascii_graphic() => self.take_bytes(1),
            (false, None | Some(b' ' | b'\t' | b'\n')) => {
                while self.at < self.line.len() && self.line[self.at] != b'\n' {
                    self.doubt = Some(Doubt::Comment);
                    if !self.take_placeholder()? {
                        self.at += 1;
                    }
                }
                self.doubt = None;
                self.word = Word::default();
                self.is_open = self.at == self.line.len();
            }
            // What is a comment behind an operator is a pattern to some.
            _ => return self.doubt_the_rest(Doubt::Comment),
        }
        Ok(())
    }

    fn step_redirection(&mut self) -> Result<(), DoubtfulPlaceholder> {
        let rest = self.remaining_line();
        let length = match rest {
            [b'<', b'<', b'<', ..] => 3,
            [b'<', b'<', ..] => return self.doubt_the_rest(Doubt::HereDocument),
            // Together with what is in the next line it may be any of the others.
            [_, b'\\', b'\n', ..] => return self.doubt_the_rest(Doubt::HereDocument),
            [b'<', b'&' | b'>', ..] | [b'>', b'&' | b'>' | b'|', ..] => 2,
            _ => 1,
        };
        let literal = &self.word.literal;
        // The number of what is redirected is no word.
        if literal.starts_with(b"{") || literal.iter().all(u8::is_ascii_digit) {
            self.word = Word::default();
        }
        self.end_word_at(length);
        self.command.is_redirected = true;
        Ok(())
    }

    fn step_parenthesis(&mut self) -> Result<(), DoubtfulPlaceholder> {
        let next = self.peek_byte(1);
        let is_list = self.word.literal.ends_with(b"=");
        match self.word.has_begun {
            // A list of words, or a function: what is in them reads like what is outside.
            true if !is_list && next != Some(b')') => {
                return self.doubt_the_rest(Doubt::Parenthesis);
            }
            false if next == Some(b'(') => return self.doubt_the_rest(Doubt::Arithmetic),
            _ => self.end_command(),
        }
        Ok(())
    }

    fn step_dollar(&mut self) -> Result<(), DoubtfulPlaceholder> {
        self.word.has_expansion = true;
        let is_unquoted = self.quotes == QuoteContext::Unquoted;
        match (self.peek_byte(1), self.peek_byte(2)) {
            (Some(b'('), Some(b'(')) => self.skip_arithmetic(),
            (Some(b'('), _) => self.skip_substitution(2, b')'),
            (Some(b'{'), _) => self.skip_expansion(),
            (Some(b'['), _) => self.doubt_the_rest(Doubt::Arithmetic),
            (Some(b'\'' | b'"'), _) if is_unquoted => self.doubt_the_rest(Doubt::DollarQuotes),
            // Together with what is in the next line it may be any of the others.
            (Some(b'\\'), Some(b'\n')) => self.doubt_the_rest(Doubt::Expansion),
            (Some(byte), _) if byte == b'_' || byte.is_ascii_alphabetic() => {
                self.take_bytes(2);
                while self.peek_byte(0).is_some_and(is_in_name) {
                    self.take_bytes(1);
                }
                // An element of an array, to some.
                if self.peek_byte(0) == Some(b'[') {
                    return self.doubt_the_rest(Doubt::Subscript);
                }
                Ok(())
            }
            (Some(byte), _) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => {
                self.take_bytes(2);
                Ok(())
            }
            _ => {
                self.take_bytes(1);
                Ok(())
            }
        }
    }

    /// `${name}` and what can be made of it without quotes and further expansions.
    fn skip_expansion(&mut self) -> Result<(), DoubtfulPlaceholder> {
        let inside = self.remaining_line().get(2..).unwrap_or_default();
        // What looks like a placeholder is one of the shell's own: not even a number stands here.
        self.at += 1;
        if let Some((mark, found)) = Placeholder::at_beginning(self.remaining_line(), self.known) {
            return Err(self.refuse_placeholder(mark, found, Doubt::Expansion));
        }
        self.at -= 1;
        let is_first = |byte: &u8| is_in_name(*byte) || b"#@*?!-".contains(byte);
        let is_plain = |byte: &u8| is_in_name(*byte) || b"#%:=?+*./,@^~!- ".contains(byte);
        let length = inside.iter().position(|byte| !is_plain(byte)).unwrap_or(inside.len());
        match inside.get(length) {
            Some(b'}') if inside.first().is_some_and(is_first) => {
                self.take_bytes(length + 3);
                Ok(())
            }
            _ => self.doubt_the_rest(Doubt::Expansion),
        }
    }

    fn skip_arithmetic(&mut self) -> Result<(), DoubtfulPlaceholder> {
        let inside = &self.remaining_line()[3..];
        let is_plain = |byte: &u8| is_in_name(*byte) || b"+-*/%=!&|^~?:,$ ".contains(byte);
        let length = inside.iter().position(|byte| !is_plain(byte)).unwrap_or(inside.len());
        match inside[length..].starts_with(b"))") {
            true => {
                self.take_bytes(length + 5);
                Ok(())
            }
            false => self.doubt_the_rest(Doubt::Arithmetic),
        }
    }

    /// A substitution that begins with so many bytes and ends with this one: plain words, variables, and
    /// quotes with nothing else in them.
    fn skip_substitution(&mut self, begin: usize, end: u8) -> Result<(), DoubtfulPlaceholder> {
        self.word.has_expansion = true;
        let inside = &self.remaining_line()[begin..];
        let length = simple_length(inside, end).filter(|length| {
            // Its patterns end with the same parenthesis.
            let inside = &inside[..*length];
            let has_placeholder = (0..inside.len())
                .any(|at| Placeholder::at_beginning(&inside[at..], self.known).is_some());
            !has_placeholder && !inside.windows(4).any(|word| word == b"case")
        });
        match length {
            Some(length) => {
                self.take_bytes(begin + length + 1);
                Ok(())
            }
            None => self.doubt_the_rest(Doubt::Substitution),
        }
    }

    /// The word is over, and so is the command it belongs to.
    fn end_command(&mut self) {
        self.end_word_at(1);
        self.command = SimpleCommand::default();
    }

    /// The word is over, and so many bytes behind it are no part of another.
    fn end_word_at(&mut self, length: usize) {
        self.at += length;
        let word = std::mem::take(&mut self.word);
        if !word.has_begun {
            return;
        }
        let literal = &word.literal[..];
        let command = &mut self.command;
        let is_option = literal.starts_with(b"-") || literal.starts_with(b"+");
        command.script_is_next =
            command.has_shell && is_script_option(literal) || command.script_is_next && is_option;
        if std::mem::take(&mut command.is_redirected) {
            return;
        }
        let runs_script = |names: &[&'static str]| word.find_in(names).is_some();
        command.has_shell |= runs_script(&SHELLS) || runs_script(&SCRIPT_RUNNERS);
        if literal == b"{" {
            command.has_name = false;
        } else if !command.has_name && !BEFORE_COMMANDS.contains(&literal) {
            let is_assigned = is_assignment(literal);
            command.has_word |= !is_assigned;
            command.has_name = !is_assigned && !is_option && !word.has_expansion;
            command.evaluator = word.find_in(&EVALUATORS);
        }
    }

    fn takes_argument(&mut self) -> bool {
        self.end_word_at(0);
        let has_doubt = self.doubt.is_some() || self.quotes != QuoteContext::Unquoted;
        let is_code = self.command.evaluator.is_some() || self.command.script_is_next;
        self.command.has_word && !has_doubt && !is_code && !self.is_open
    }
}

fn is_in_name(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// Also one to an element of an array, or one that appends.
fn is_assignment(word: &[u8]) -> bool {
    word.first().is_some_and(|byte| is_in_name(*byte)) && word.contains(&b'=')
}

/// How long what stands before this end is, if there is nothing in it that would have to be read.
fn simple_length(inside: &[u8], end: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        let byte = *inside.get(at)?;
        let is_plain = is_in_name(byte) || b" ./,:=+@%~*?|&;->^".contains(&byte);
        at += match byte {
            byte if byte == end => return Some(at),
            b'\'' | b'"' if end == b'`' => return None,
            b'\'' => inside[at + 1..].iter().position(|byte| *byte == b'\'')? + 2,
            b'"' => {
                let length = inside[at + 1..].iter().position(|byte| *byte == b'"')?;
                let text = &inside[at + 1..at + 1 + length];
                let is_simple = !text.iter().any(|byte| b"\\`".contains(byte))
                    && !text.windows(2).any(|two| two[0] == b'$' && !is_in_name(two[1]));
                is_simple.then_some(length + 2)?
            }
            b'$' if inside.get(at + 1).is_some_and(|next| is_in_name(*next)) => 2,
            b'<' if inside.get(at + 1) != Some(&b'<') => 1,
            _ if is_plain => 1,
            _ => return None,
        };
    }
}
