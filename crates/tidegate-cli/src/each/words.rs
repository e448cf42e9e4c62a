//! The command of an input: its words, with the input in the place of placeholders.
//!
//! Words are bytes, as the system has them. A word with a placeholder that is filled for several inputs
//! becomes as many words; in a line for the shell they stand side by side. Quotes within quotes of such a
//! line, as in `"$(cat '{}')"`, are not looked into: there `$TIDEGATE_INPUT` is the better way.

use crate::waves::plain;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use tidegate::process::Command;

/// How the command of an input is made.
#[derive(Debug, Clone)]
pub(super) struct Template {
    words: Vec<Word>,
    is_line: bool,
    /// Whether an input is put behind it.
    appends: bool,
    /// Where the program is, if that is known.
    found: Option<PathBuf>,
}

type Word = Vec<Part>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    /// In a line for the shell it may stand in quotes, of this kind.
    Hole(Hole, Option<u8>),
}

/// What stands in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hole {
    Whole,
    Last,
    Folder,
    WithoutExtension,
    LastWithoutExtension,
    Number,
}

const HOLES: [(&[u8], Hole); 6] = [
    (b"{}", Hole::Whole),
    (b"{/}", Hole::Last),
    (b"{//}", Hole::Folder),
    (b"{.}", Hole::WithoutExtension),
    (b"{/.}", Hole::LastWithoutExtension),
    (b"{#}", Hole::Number),
];

impl Hole {
    /// What stands there for this input.
    fn of(self, input: &[u8], number: u64) -> Vec<u8> {
        let slash = input.iter().rposition(|byte| *byte == b'/');
        let last = slash.map_or(0, |at| at + 1);
        match self {
            Hole::Whole => input.to_vec(),
            Hole::Last => input[last..].to_vec(),
            Hole::Folder => match slash {
                None => b".".to_vec(),
                Some(0) => b"/".to_vec(),
                Some(at) => input[..at].to_vec(),
            },
            Hole::WithoutExtension => input[..stem(input, last)].to_vec(),
            Hole::LastWithoutExtension => input[last..stem(input, last)].to_vec(),
            Hole::Number => number.to_string().into_bytes(),
        }
    }
}

/// Where the extension of the last part begins, which begins itself here. A dot in front of it all
/// begins none.
fn stem(input: &[u8], last: usize) -> usize {
    let dot = input[last..].iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0);
    dot.map_or(input.len(), |at| last + at)
}

impl Template {
    /// Of words that are run as they are, or of one line for the shell.
    pub(super) fn new(words: &[OsString], is_line: bool) -> Self {
        let words: Vec<Word> = words.iter().map(|word| parse(word.as_bytes(), is_line)).collect();
        let appends = words.iter().flatten().all(|part| matches!(part, Part::Text(_)));
        Template { words, is_line, appends, found: None }
    }

    /// The program is here, and need not be looked for again for each input.
    pub(super) fn found(&mut self, path: PathBuf) {
        self.found = Some(path);
    }

    /// The program, if it is the same for each input.
    pub(super) fn program(&self) -> Option<&OsStr> {
        match &self.words[0][..] {
            [Part::Text(text)] if !self.is_line => Some(OsStr::from_bytes(text)),
            _ => None,
        }
    }

    /// The command for these inputs.
    pub(super) fn command(&self, number: u64, inputs: &[Vec<u8>]) -> Command {
        let mut words = self.filled(number, inputs).into_iter().map(OsString::from_vec);
        let command = match self.is_line {
            true => Command::shell(words.next().unwrap_or_default()),
            false => {
                let program = words.next().unwrap_or_default();
                let found = self.found.clone().map(OsString::from);
                Command::new(found.unwrap_or(program)).args(words)
            }
        };
        // More than one cannot be told apart by anything else that a line does not have.
        command.one_stream().env("TIDEGATE_INPUT", OsString::from_vec(inputs.join(&b'\n')))
    }

    /// The same for people, as it could be typed.
    pub(super) fn text(&self, number: u64, inputs: &[Vec<u8>]) -> String {
        let words = self.filled(number, inputs);
        let words = words.iter().map(|word| String::from_utf8_lossy(word));
        match self.is_line {
            true => plain(&words.collect::<String>()),
            false => plain(&words.map(|word| typed(&word)).collect::<Vec<_>>().join(" ")),
        }
    }

    fn filled(&self, number: u64, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        if self.is_line {
            return vec![self.line(number, inputs)];
        }
        let mut words = Vec::new();
        for word in &self.words {
            let varies = word
                .iter()
                .any(|part| matches!(part, Part::Hole(hole, _) if *hole != Hole::Number));
            for input in inputs.iter().take(if varies { usize::MAX } else { 1 }) {
                let fill = |part: &Part| match part {
                    Part::Text(text) => text.clone(),
                    Part::Hole(hole, _) => hole.of(input, number),
                };
                words.push(word.iter().flat_map(fill).collect());
            }
        }
        if self.appends {
            words.extend(inputs.iter().cloned());
        }
        words
    }

    fn line(&self, number: u64, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut line = Vec::new();
        let last = [Part::Text(b" ".to_vec()), Part::Hole(Hole::Whole, None)];
        let last = last.iter().take(if self.appends { 2 } else { 0 });
        for part in self.words[0].iter().chain(last) {
            match part {
                Part::Text(text) => line.extend(text),
                Part::Hole(Hole::Number, _) => line.extend(number.to_string().bytes()),
                Part::Hole(hole, within) => {
                    let all = inputs.iter().map(|input| escaped(&hole.of(input, number), *within));
                    line.extend(all.collect::<Vec<_>>().join(&b' '));
                }
            }
        }
        line
    }
}

/// The parts of a word.
fn parse(word: &[u8], is_line: bool) -> Word {
    let mut parts = Vec::new();
    let mut text = Vec::new();
    let (mut rest, mut within) = (word, None);
    while let [byte, behind @ ..] = rest {
        if let Some((mark, hole)) = HOLES.iter().find(|(mark, _)| rest.starts_with(mark)) {
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::Hole(*hole, within));
            rest = &rest[mark.len()..];
            continue;
        }
        text.push(*byte);
        rest = behind;
        if !is_line {
            continue;
        }
        match (within, *byte) {
            // The next one means itself.
            (None | Some(b'"'), b'\\') => {
                text.extend(rest.first());
                rest = rest.get(1..).unwrap_or_default();
            }
            (None, b'\'' | b'"') => within = Some(*byte),
            (Some(open), byte) if open == byte => within = None,
            _ => {}
        }
    }
    if !text.is_empty() || parts.is_empty() {
        parts.push(Part::Text(text));
    }
    parts
}

/// As the shell takes it for what it is, where it stands in such quotes.
fn escaped(input: &[u8], within: Option<u8>) -> Vec<u8> {
    let escape = |byte: &u8| match (within, *byte) {
        (Some(b'"'), b'\\' | b'"' | b'$' | b'`') => vec![b'\\', *byte],
        (None | Some(b'\''), b'\'') => br"'\''".to_vec(),
        (_, byte) => vec![byte],
    };
    let escaped: Vec<u8> = input.iter().flat_map(escape).collect();
    match within {
        None => [b"'", &escaped[..], b"'"].concat(),
        Some(_) => escaped,
    }
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
        filled(template, false, inputs)
    }

    fn line(template: &str, inputs: &[&str]) -> String {
        filled(&[template], true, inputs).concat()
    }

    fn filled(template: &[&str], is_line: bool, inputs: &[&str]) -> Vec<String> {
        let template: Vec<OsString> = template.iter().map(OsString::from).collect();
        let inputs: Vec<Vec<u8>> = inputs.iter().map(|input| input.as_bytes().to_vec()).collect();
        let filled = Template::new(&template, is_line).filled(7, &inputs);
        filled.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
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
        let template = Template::new(&["x".into(), "a{}".into()], false);
        assert_eq!(template.filled(1, &[b"\xff\n".to_vec()]), [&b"x"[..], b"a\xff\n"]);
    }

    #[test]
    fn the_program_is_known_unless_inputs_choose_it() {
        let program = |words: &[&str], is_line| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            Template::new(&words, is_line).program().map(OsStr::to_owned)
        };
        assert_eq!(program(&["a", "{}"], false), Some("a".into()));
        assert_eq!(program(&["./{}"], false), None);
        assert_eq!(program(&["a"], true), None);
    }
}
