//! A few lines at the bottom of a terminal that are drawn again and again, with text above them.
//!
//! The cursor stays behind the last of them and is never hidden: whatever ends the process, there is
//! nothing to undo but the lines. All is made up first and written at once, so that nothing flickers.

use super::frame::{Row, Size};

/// Where the terminal does not say how large it is.
const UNKNOWN: Size = Size { columns: 80, rows: 24 };

/// To the beginning of the line; from here to the end of the line; to the end of the screen.
const HOME: &str = "\r";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

#[derive(Default)]
pub(super) struct Screen {
    /// How wide the lines are that are seen.
    drawn: Vec<usize>,
}

impl Screen {
    /// How large the terminal is at this moment.
    pub(super) fn size() -> Size {
        match rustix::termios::tcgetwinsize(std::io::stderr()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { columns: size.ws_col.into(), rows: size.ws_row.into() }
            }
            _ => UNKNOWN,
        }
    }

    /// Whether no lines are seen.
    pub(super) fn is_empty(&self) -> bool {
        self.drawn.is_empty()
    }

    /// Takes the lines away.
    pub(super) fn erase(&mut self, size: Size, into: &mut Vec<u8>) {
        if !self.drawn.is_empty() {
            self.up(size, into);
            into.extend_from_slice(REST_OF_SCREEN.as_bytes());
            self.drawn.clear();
        }
    }

    /// Draws the lines in the place of those that are there.
    pub(super) fn draw(&mut self, rows: &[Row], size: Size, into: &mut Vec<u8>) {
        self.up(size, into);
        for (number, row) in rows.iter().enumerate() {
            into.extend_from_slice(if number > 0 { b"\n" } else { b"" });
            into.extend_from_slice(row.text.as_bytes());
            into.extend_from_slice(REST_OF_LINE.as_bytes());
        }
        into.extend_from_slice(REST_OF_SCREEN.as_bytes());
        self.drawn = rows.iter().map(|row| row.width).collect();
    }

    /// To the beginning of the first line. In a terminal that has become narrower a line may have
    /// been broken into several.
    fn up(&self, size: Size, into: &mut Vec<u8>) {
        let lines = |width: &usize| width.div_ceil(size.columns).max(1);
        let up = self.drawn.iter().map(lines).sum::<usize>().saturating_sub(1);
        into.extend_from_slice(HOME.as_bytes());
        if up > 0 {
            into.extend_from_slice(format!("\x1b[{}A", up.min(size.rows)).as_bytes());
        }
    }
}
