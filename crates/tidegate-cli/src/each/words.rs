//! The command of an input: its words, with the input in the place of placeholders.
//!
//! Words are bytes, as the system has them. A word with a placeholder that is filled for several inputs
//! becomes as many words; in a line for the shell, whose inputs are in variables, they stand side by
//! side.

use crate::placeholder::{PLACEHOLDERS, Placeholder};
use crate::shell_line::{self, LineError, ShellLine};
use crate::waves::plain;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use tidegate::process::Command;

/// Bytes that a line may grow to: Linux gives a program no more than 128 KiB in one word.
const LINE_MAX: usize = 120 * 1024;

/// How the command of an input is made.
#[derive(Debug, Clone)]
pub(super) enum Template {
    Words(WordTemplate),
    Line(LineTemplate),
}

/// A program and its arguments.
#[derive(Debug, Clone)]
pub(super) struct WordTemplate {
    words: Vec<Vec<WordPart>>,
    /// Whether an input is put behind it.
    appends: bool,
    /// Where the program is, if that is known.
    found: Option<PathBuf>,
}

/// A line for `sh -ec`.
#[derive(Debug, Clone)]
pub(super) struct LineTemplate {
    line: ShellLine,
    /// What it reads from variables of its own accord.
    named: Vec<Placeholder>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum WordPart {
    Text(Vec<u8>),
    Placeholder(Placeholder),
}

impl Template {
    /// Of words that are run as they are.
    pub(super) fn of_words(words: &[OsString]) -> Self {
        let words: Vec<_> = words.iter().map(|word| parse(word.as_bytes())).collect();
        let appends = words.iter().flatten().all(|part| matches!(part, WordPart::Text(_)));
        Template::Words(WordTemplate { words, appends, found: None })
    }

    /// Of one line for the shell.
    ///
    /// # Errors
    /// Inputs would not be data in it for certain.
    pub(super) fn of_line(line: &OsStr) -> Result<Self, LineError> {
        let bytes = line.as_bytes();
        let line = ShellLine::parse_or_append(bytes, PLACEHOLDERS)?;
        let is_named = |placeholder: &Placeholder| {
            let name = placeholder.variable().as_bytes();
            bytes.windows(name.len()).any(|part| part == name)
        };
        // The input itself is always there.
        let named = PLACEHOLDERS[1..].iter().map(|(_, placeholder)| *placeholder);
        Ok(Template::Line(LineTemplate { line, named: named.filter(is_named).collect() }))
    }

    /// The program is here, and need not be looked for again for each input.
    pub(super) fn set_path(&mut self, path: PathBuf) {
        if let Template::Words(words) = self {
            words.found = Some(path);
        }
    }

    /// The program, if it is the same for each input.
    pub(super) fn program(&self) -> Option<&OsStr> {
        match self {
            Template::Words(WordTemplate { words, .. }) => match &words[0][..] {
                [WordPart::Text(text)] => Some(OsStr::from_bytes(text)),
                _ => None,
            },
            Template::Line(_) => None,
        }
    }

    /// So many inputs fit one command, whatever they are.
    pub(super) fn inputs_max(&self) -> usize {
        match self {
            Template::Words(_) => usize::MAX,
            Template::Line(LineTemplate { line, .. }) => {
                // The longest reference there may be, in quotes.
                let reference = |placeholder| {
                    shell_line::variable(placeholder, LINE_MAX, 2).len() + "'\"${}\"' ".len()
                };
                let each: usize = line.placeholders().map(reference).sum();
                let room = LINE_MAX.saturating_sub(line.with_references(0, 0).len());
                room.checked_div(each).unwrap_or(usize::MAX).max(1)
            }
        }
    }

    /// The command for these inputs.
    pub(super) fn command(&self, number: u64, inputs: &[Vec<u8>]) -> Command {
        let command = match self {
            Template::Words(template) => {
                let mut words = template.filled(number, inputs).into_iter().map(OsString::from_vec);
                let program = words.next().unwrap_or_default();
                let found = template.found.clone().map(OsString::from);
                Command::new(found.unwrap_or(program)).args(words)
            }
            Template::Line(template) => template.command(number, inputs),
        };
        // More than one cannot be told apart by anything else that a line does not have.
        command.one_stream().env(Placeholder::Input.variable(), join_values(inputs.iter().cloned()))
    }

    /// The same for people, as it could be typed.
    pub(super) fn text(&self, number: u64, inputs: &[Vec<u8>]) -> String {
        match self {
            Template::Words(template) => {
                let words = template.filled(number, inputs);
                let words = words.iter().map(|word| typed(&String::from_utf8_lossy(word)));
                plain(&words.collect::<Vec<_>>().join(" "))
            }
            Template::Line(LineTemplate { line, .. }) => {
                plain(&String::from_utf8_lossy(&line.with_text(number, inputs)))
            }
        }
    }
}

impl WordTemplate {
    fn filled(&self, number: u64, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        for word in &self.words {
            let varies = |part: &WordPart| matches!(part, WordPart::Placeholder(it) if *it != Placeholder::Number);
            let times = if word.iter().any(varies) { usize::MAX } else { 1 };
            for input in inputs.iter().take(times) {
                let fill = |part: &WordPart| match part {
                    WordPart::Text(text) => text.clone(),
                    WordPart::Placeholder(placeholder) => placeholder.value(input, number),
                };
                words.push(word.iter().flat_map(fill).collect());
            }
        }
        if self.appends {
            words.extend(inputs.iter().cloned());
        }
        words
    }
}

impl LineTemplate {
    /// The line refers to variables, which are set here; the inputs are also its parameters.
    fn command(&self, number: u64, inputs: &[Vec<u8>]) -> Command {
        let line = OsString::from_vec(self.line.with_references(number, inputs.len()));
        let parameters = inputs.iter().map(|input| OsString::from_vec(input.clone()));
        let mut command = Command::shell(line).arg("sh").args(parameters);
        for placeholder in &self.named {
            let values = inputs.iter().map(|input| placeholder.value(input, number));
            command = command.env(placeholder.variable(), join_values(values));
        }
        let mut set: Vec<Placeholder> = Vec::new();
        for placeholder in self.line.placeholders() {
            if set.contains(&placeholder) || placeholder == Placeholder::Number {
                continue;
            }
            set.push(placeholder);
            for (at, input) in inputs.iter().enumerate() {
                let name = shell_line::variable(placeholder, at, inputs.len());
                let value = OsString::from_vec(placeholder.value(input, number));
                command = command.env(name, value);
            }
        }
        command
    }
}

fn join_values(values: impl Iterator<Item = Vec<u8>>) -> OsString {
    OsString::from_vec(values.collect::<Vec<_>>().join(&b'\n'))
}

/// The parts of a word.
fn parse(word: &[u8]) -> Vec<WordPart> {
    let mut parts = Vec::new();
    let mut text = Vec::new();
    let mut rest = word;
    while let [byte, behind @ ..] = rest {
        match Placeholder::at_beginning(rest, PLACEHOLDERS) {
            Some((mark, placeholder)) => {
                if !text.is_empty() {
                    parts.push(WordPart::Text(std::mem::take(&mut text)));
                }
                parts.push(WordPart::Placeholder(placeholder));
                rest = &rest[mark.len()..];
            }
            None => {
                text.push(*byte);
                rest = behind;
            }
        }
    }
    if !text.is_empty() || parts.is_empty() {
        parts.push(WordPart::Text(text));
    }
    parts
}

/// A word as it can be typed.
pub(super) fn typed(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:=@%,".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => crate::plan::quoted(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(template: &[&str], inputs: &[&str]) -> Vec<String> {
        let template: Vec<OsString> = template.iter().map(OsString::from).collect();
        let Template::Words(template) = Template::of_words(&template) else { panic!("a line") };
        let filled = template.filled(7, &bytes(inputs));
        filled.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    fn bytes(inputs: &[&str]) -> Vec<Vec<u8>> {
        inputs.iter().map(|input| input.as_bytes().to_vec()).collect()
    }

    /// The line as it is told to people.
    fn line(template: &str, inputs: &[&str]) -> String {
        Template::of_line(template.as_ref()).unwrap().text(7, &bytes(inputs))
    }

    #[test]
    fn placeholders_stand_for_parts_of_an_input() {
        for (input, right) in [
            ("d/e/a.tar.gz", "a.tar.gz d/e d/e/a.tar a.tar"),
            ("a", "a . a a"),
            ("/a.b", "a.b / /a a"),
            ("d.x/a", "a d.x d.x/a a"),
            ("d/.rc", ".rc d d/.rc .rc"),
            ("a.", "a. . a a"),
        ] {
            assert_eq!(words(&["x", "{/} {//} {.} {/.}"], &[input])[1], right, "{input}");
        }
        assert_eq!(words(&["x", "{#}-{}{}"], &["a b"]), ["x", "7-a ba b"]);
    }

    #[test]
    fn without_a_placeholder_an_input_is_the_last_word() {
        assert_eq!(words(&["x", "-y", "{ }"], &["a b"]), ["x", "-y", "{ }", "a b"]);
        assert_eq!(words(&["x"], &["a", "b"]), ["x", "a", "b"]);
        assert_eq!(words(&["x", "{#}"], &["a"]), ["x", "7"]);
        assert_eq!(line("x -y", &["it's"]), r"x -y 'it'\''s'");
    }

    #[test]
    fn a_word_is_there_for_each_of_several_inputs() {
        let right = ["x", "--of=a", "--of=b", "7", "y"];
        assert_eq!(words(&["x", "--of={}", "{#}", "y"], &["a", "b"]), right);
        assert_eq!(line("x {} y", &["a", "b"]), "x 'a' 'b' y");
    }

    #[test]
    fn the_shell_takes_an_input_as_it_is_wherever_it_stands() {
        assert_eq!(line("x {} {/}", &["d/a b"]), "x 'd/a b' 'a b'");
        assert_eq!(line(r#"x "a{}""#, &[r#"$`"\'"#]), r#"x "a\$\`\"\\'""#);
        assert_eq!(line("x 'a{}'", &["it's $"]), r"x 'ait'\''s $'");
        assert_eq!(line(r#"\"{} \'{}"#, &["a b"]), r#"\"'a b' \''a b'"#);
        assert_eq!(line("{}\\", &["a"]), "'a'\\");
    }

    #[test]
    fn an_input_need_not_be_text() {
        let template = Template::of_words(&["x".into(), "a{}".into()]);
        let Template::Words(template) = template else { panic!("a line") };
        assert_eq!(template.filled(1, &[b"\xff\n".to_vec()]), [&b"x"[..], b"a\xff\n"]);
    }

    #[test]
    fn the_program_is_known_unless_inputs_choose_it() {
        let program = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            Template::of_words(&words).program().map(OsStr::to_owned)
        };
        assert_eq!(program(&["a", "{}"]), Some("a".into()));
        assert_eq!(program(&["./{}"]), None);
        assert_eq!(Template::of_line("a".as_ref()).unwrap().program(), None);
    }

    #[test]
    fn line_with_several_inputs_fits_one_word_of_the_system() {
        for text in ["x {}", "x '{/}' \"{.}\" {//}{/.} {#}"] {
            let template = Template::of_line(text.as_ref()).unwrap();
            let most = template.inputs_max();
            let Template::Line(LineTemplate { line, .. }) = template else { panic!("words") };
            assert!((500..10_000).contains(&most), "{most}");
            assert!(line.with_references(u64::MAX, most).len() < 128 * 1024, "{text}");
        }
    }
}
