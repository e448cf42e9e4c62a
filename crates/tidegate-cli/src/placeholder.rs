//! Placeholders: what they stand for, and the variables that have the same for a shell.

/// What stands in the place of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placeholder {
    Input,
    Basename,
    Dirname,
    WithoutExtension,
    Stem,
    /// Of the command, from 1. It is made here and holds no byte of an input.
    Number,
}

/// All of them, as they are written.
pub(crate) const PLACEHOLDERS: &[(&str, Placeholder)] = &[
    ("{}", Placeholder::Input),
    ("{/}", Placeholder::Basename),
    ("{//}", Placeholder::Dirname),
    ("{.}", Placeholder::WithoutExtension),
    ("{/.}", Placeholder::Stem),
    ("{#}", Placeholder::Number),
];

/// Those of a command file.
pub(crate) const INPUT_ONLY: &[(&str, Placeholder)] = &[("{}", Placeholder::Input)];

impl Placeholder {
    /// The one that a text begins with, and how it is written.
    pub(crate) fn at_beginning(
        text: &[u8],
        known: &[(&'static str, Placeholder)],
    ) -> Option<(&'static str, Placeholder)> {
        known.iter().copied().find(|(mark, _)| text.starts_with(mark.as_bytes()))
    }

    /// What stands there for this input.
    pub(crate) fn value(self, input: &[u8], number: u64) -> Vec<u8> {
        let slash = input.iter().rposition(|byte| *byte == b'/');
        let last = slash.map_or(0, |at| at + 1);
        match self {
            Placeholder::Input => input.to_vec(),
            Placeholder::Basename => input[last..].to_vec(),
            Placeholder::Dirname => match slash {
                None => b".".to_vec(),
                Some(0) => b"/".to_vec(),
                Some(at) => input[..at].to_vec(),
            },
            Placeholder::WithoutExtension => input[..extension(input, last)].to_vec(),
            Placeholder::Stem => input[last..extension(input, last)].to_vec(),
            Placeholder::Number => number.to_string().into_bytes(),
        }
    }

    /// The variable of the environment in which a line for the shell finds it.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Placeholder::Input => "TIDEGATE_INPUT",
            Placeholder::Basename => "TIDEGATE_INPUT_BASENAME",
            Placeholder::Dirname => "TIDEGATE_INPUT_DIRNAME",
            Placeholder::WithoutExtension => "TIDEGATE_INPUT_NO_EXT",
            Placeholder::Stem => "TIDEGATE_INPUT_STEM",
            Placeholder::Number => "TIDEGATE_INPUT_NUMBER",
        }
    }
}

/// Where the extension of the last part begins, which begins itself here. A dot in front of it all
/// begins none.
fn extension(input: &[u8], last: usize) -> usize {
    let dot = input[last..].iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0);
    dot.map_or(input.len(), |at| last + at)
}
