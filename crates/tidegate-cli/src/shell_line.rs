//! A line for the shell in which placeholders are data.
//!
//! A placeholder is replaced by a reference to a variable that the command has in its environment,
//! quoted for where it stands: the shell never parses a byte of an input. To quote it, one has to know
//! in which quotes it stands, and [`scan`] knows that only where it is certain. A line with a
//! placeholder anywhere else is refused ([`DoubtfulPlaceholder`]), with the variable as the remedy.
//!
//! Variables and not positional parameters: in a function, or behind `set` and `shift`, `$1` is
//! something else.

mod scan;

use crate::placeholder::Placeholder;
use std::fmt;
use std::ops::Range;

/// Shells that read a line as it is read here.
const SHELLS: [&str; 5] = ["sh", "dash", "bash", "ksh", "zsh"];

/// A line whose placeholders stand where they can be data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellLine {
    parts: Vec<LinePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinePart {
    Text(Vec<u8>),
    Placeholder(Placeholder, QuoteContext),
}

/// The quotes that something stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuoteContext {
    Unquoted,
    Single,
    Double,
}

/// A placeholder that stands where nobody can be certain that it stays data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DoubtfulPlaceholder {
    /// Where it stands in the line, in bytes.
    pub(crate) at: Range<usize>,
    mark: &'static str,
    placeholder: Placeholder,
    doubt: Doubt,
}

/// Why it is not certain in which quotes something stands, or whether it is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    Comment,
    HereDocument,
    DollarQuotes,
    Substitution,
    Expansion,
    Arithmetic,
    Brackets,
    Parenthesis,
    Subscript,
    /// The command that reads its arguments as code.
    Evaluated(&'static str),
    /// The argument of `-c`.
    Script,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::Comment => "in a comment, or behind a # that may begin one",
            Doubt::HereDocument => "behind << of a here-document",
            Doubt::DollarQuotes => "in or behind $'…' or $\"…\"",
            Doubt::Substitution => "in $(…) or `…`, or behind one that is not simple",
            Doubt::Expansion => "in ${…}, or behind one that is not simple",
            Doubt::Arithmetic => "in arithmetic, or behind it",
            Doubt::Brackets => "in [[ … ]], or behind it",
            Doubt::Parenthesis => "behind a ( inside a word",
            Doubt::Subscript => "behind a [ inside a word",
            Doubt::Evaluated(name) => return write!(f, "in what {name} reads as code"),
            Doubt::Script => "in the script of another shell",
        })
    }
}

impl fmt::Display for DoubtfulPlaceholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DoubtfulPlaceholder { mark, placeholder, doubt, .. } = self;
        let variable = placeholder.variable();
        write!(f, "cannot keep {mark} apart from the line: it stands {doubt}; ")?;
        match doubt {
            Doubt::Script => write!(
                f,
                "write the script in single quotes and \"${variable}\" in it, or give it {mark} as \
                 an argument: sh -c 'cat \"$1\"' sh {mark}"
            ),
            Doubt::Evaluated(_) => {
                write!(f, "write \"${variable}\" in single quotes, or do without")
            }
            _ => write!(
                f,
                "write \"${variable}\" in its place, or put the line into a script that is given {mark}"
            ),
        }
    }
}

impl ShellLine {
    /// The line, with these placeholders in it.
    ///
    /// # Errors
    /// One of them stands where it cannot be data for certain.
    pub(crate) fn parse(
        line: &[u8],
        known: &[(&'static str, Placeholder)],
    ) -> Result<Self, DoubtfulPlaceholder> {
        scan::scan_line(line, known).map(|scanned| ShellLine { parts: scanned.parts })
    }

    /// The same, with the input as the last argument if there is no placeholder in it.
    ///
    /// # Errors
    /// As with [`parse`](Self::parse), or it does not end where an argument can follow.
    pub(crate) fn parse_or_append(
        line: &[u8],
        known: &[(&'static str, Placeholder)],
    ) -> Result<Self, LineError> {
        let scan::Scanned { mut parts, takes_argument } =
            scan::scan_line(line, known).map_err(LineError::Placeholder)?;
        if parts.iter().all(|part| matches!(part, LinePart::Text(_))) {
            if !takes_argument {
                return Err(LineError::NoPlace);
            }
            parts.push(LinePart::Text(b" ".to_vec()));
            parts.push(LinePart::Placeholder(Placeholder::Input, QuoteContext::Unquoted));
        }
        Ok(ShellLine { parts })
    }

    pub(crate) fn has_placeholder(&self) -> bool {
        self.placeholders().next().is_some()
    }

    /// What it holds places for, as often as it does.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = Placeholder> {
        self.parts.iter().filter_map(|part| match part {
            LinePart::Text(_) => None,
            LinePart::Placeholder(placeholder, _) => Some(*placeholder),
        })
    }

    /// The line as the shell gets it, for so many inputs. They stand side by side.
    pub(crate) fn with_references(&self, number: u64, inputs: usize) -> Vec<u8> {
        self.fill_placeholders(number, |placeholder, quotes| {
            let name = |at| variable(placeholder, at, inputs);
            let references = (0..inputs).map(|at| match quotes {
                QuoteContext::Unquoted => format!("\"${{{}}}\"", name(at)),
                // The quotes are closed, and opened again behind it.
                QuoteContext::Single => format!("'\"${{{}}}\"'", name(at)),
                QuoteContext::Double => format!("${{{}}}", name(at)),
            });
            references.collect::<Vec<_>>().join(" ").into_bytes()
        })
    }

    /// The line as it could be typed for these inputs, for people.
    pub(crate) fn with_text(&self, number: u64, inputs: &[Vec<u8>]) -> Vec<u8> {
        self.fill_placeholders(number, |placeholder, quotes| {
            let values = inputs.iter().map(|input| placeholder.value(input, number));
            values.map(|value| quote_text(&value, quotes)).collect::<Vec<_>>().join(&b' ')
        })
    }

    fn fill_placeholders(
        &self,
        number: u64,
        reference: impl Fn(Placeholder, QuoteContext) -> Vec<u8>,
    ) -> Vec<u8> {
        let mut line = Vec::new();
        for part in &self.parts {
            match part {
                LinePart::Text(text) => line.extend_from_slice(text),
                LinePart::Placeholder(Placeholder::Number, _) => {
                    line.extend_from_slice(number.to_string().as_bytes());
                }
                LinePart::Placeholder(placeholder, quotes) => {
                    line.extend(reference(*placeholder, *quotes));
                }
            }
        }
        line
    }
}

/// The variable that has this for the input at a place among so many.
pub(crate) fn variable(placeholder: Placeholder, at: usize, inputs: usize) -> String {
    match inputs {
        1 => placeholder.variable().to_owned(),
        _ => format!("{}_{}", placeholder.variable(), at + 1),
    }
}

/// Why an input has no place in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LineError {
    Placeholder(DoubtfulPlaceholder),
    /// There is no placeholder, and no argument can follow at its end.
    NoPlace,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Placeholder(doubtful) => doubtful.fmt(f),
            LineError::NoPlace => f.write_str(
                "cannot put the input behind the line, which does not end with a plain command; \
                 write {} where it belongs",
            ),
        }
    }
}

/// Whether such a shell reads the line behind these words as it is read here.
pub(crate) fn is_known_shell(words: &[String]) -> bool {
    let [program, .., last] = words else { return false };
    let name = program.rsplit('/').next().unwrap_or_default();
    SHELLS.contains(&name) && is_script_option(last.as_bytes())
}

/// Why placeholders cannot be used with a shell.
pub(crate) fn unknown_shell(words: &[String]) -> String {
    let words = words.iter().map(|word| crate::file::quoted(word)).collect::<Vec<_>>().join(", ");
    let known = "sh, dash, bash, ksh and zsh";
    format!(
        "cannot keep {{}} apart from the line: it is known how {known} read a line behind -c, and \
         shell is [{words}]; take one of these, or read the variable TIDEGATE_INPUT"
    )
}

/// Whether the word behind this one is a script, for a shell.
fn is_script_option(word: &[u8]) -> bool {
    word.starts_with(b"-") && !word.starts_with(b"--") && word.contains(&b'c')
}

/// As the shell takes it for what it is, where it stands in such quotes.
fn quote_text(text: &[u8], quotes: QuoteContext) -> Vec<u8> {
    let escape = |byte: &u8| match (quotes, *byte) {
        (QuoteContext::Double, b'\\' | b'"' | b'$' | b'`') => vec![b'\\', *byte],
        (QuoteContext::Unquoted | QuoteContext::Single, b'\'') => br"'\''".to_vec(),
        (_, byte) => vec![byte],
    };
    let escaped: Vec<u8> = text.iter().flat_map(escape).collect();
    match quotes {
        QuoteContext::Unquoted => [b"'", &escaped[..], b"'"].concat(),
        QuoteContext::Single | QuoteContext::Double => escaped,
    }
}

#[cfg(test)]
mod tests;
