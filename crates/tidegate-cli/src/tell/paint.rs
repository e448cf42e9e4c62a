//! Colours.

use super::{Color, How};
use std::fmt;

/// Whether there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paint(bool);

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    None,
    Good,
    Bad,
    /// Look here.
    Mark,
    /// One of several, to tell them apart.
    Of(u8),
}

/// Those that are told apart on light and dark ground, without what has a meaning.
const APART: [u8; 6] = [36, 35, 34, 96, 95, 94];

impl Paint {
    #[cfg(test)]
    pub(super) const NONE: Paint = Paint(false);

    /// For something that goes to a terminal, or does not.
    pub(super) fn new(color: Color, to_terminal: bool) -> Self {
        Paint(match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let is_off = std::env::var_os("NO_COLOR").is_some_and(|word| !word.is_empty());
                to_terminal && !is_off && !is_dumb()
            }
        })
    }

    pub(super) fn on<T: fmt::Display>(self, ink: Ink, text: T) -> Painted<T> {
        let code = match ink {
            _ if !self.0 => None,
            Ink::None => None,
            Ink::Good => Some(32),
            Ink::Bad => Some(31),
            Ink::Mark => Some(33),
            Ink::Of(number) => Some(APART[usize::from(number) % APART.len()]),
        };
        Painted { code, text }
    }
}

/// Whether the terminal says that it can do nothing but letters.
pub(super) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

impl Ink {
    pub(super) fn of_end(how: How) -> Self {
        match how {
            How::Succeeded => Ink::Good,
            How::Failed | How::TimedOut => Ink::Bad,
            How::Cancelled | How::Skipped => Ink::Mark,
        }
    }

    /// The same for a name at all times.
    pub(super) fn of_name(name: &str) -> Self {
        let sum = name.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        Ink::Of(sum % APART.len() as u8)
    }
}

pub(super) struct Painted<T> {
    code: Option<u8>,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "\x1b[{code}m{}\x1b[0m", self.text),
            None => self.text.fmt(f),
        }
    }
}
