//! Columns and paragraphs that are readable in eighty columns.

use crate::waves::plain;
use std::time::Duration;
use tidegate::Timestamp;
use tidegate::core::explain::Rough;

/// Lines are broken at this column where they can be.
const COLUMNS: usize = 80;

/// A cell that is longer moves what comes behind it, and nothing else.
const CELL_MAX: usize = 30;

/// On which side of its column a cell stands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Rows in columns as wide as their cells, two apart.
pub(super) struct Columns {
    sides: Vec<Side>,
    widths: Vec<usize>,
    rows: Vec<(Vec<String>, Vec<String>)>,
}

impl Columns {
    pub(super) fn new<const N: usize>(heads: [(&str, Side); N]) -> Self {
        let sides = heads.iter().map(|(_, side)| *side).collect();
        let mut columns = Columns { sides, widths: vec![0; N], rows: Vec::new() };
        columns.row(heads.map(|(head, _)| head.to_owned()), Vec::new());
        columns
    }

    /// A row, and [notes](note) that come under it. Cells may be named from outside.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N], notes: Vec<String>) {
        let cells = cells.map(|cell| plain(&cell)).to_vec();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count().min(CELL_MAX));
        }
        self.rows.push((cells, notes));
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (cells, notes) in &self.rows {
            let mut line = String::new();
            for ((cell, width), side) in cells.iter().zip(&self.widths).zip(&self.sides) {
                let space = " ".repeat(width.saturating_sub(cell.chars().count()));
                match side {
                    Side::Left => line.extend([cell, space.as_str(), "  "]),
                    Side::Right => line.extend([space.as_str(), cell, "  "]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
            notes.iter().for_each(|note| text.push_str(note));
        }
        text
    }
}

/// What is said of a row under it.
pub(super) fn note(text: &str) -> String {
    paragraph(text, "  ", "    ")
}

/// A text in lines, broken between words. What comes from outside cannot steer the terminal.
pub(super) fn paragraph(text: &str, first: &str, others: &str) -> String {
    let (mut lines, mut line, mut is_empty) = (String::new(), first.to_owned(), true);
    for word in plain(text).split(' ') {
        let length = word.chars().count();
        // What does not fit into a line of its own stays where it is.
        let fits = others.chars().count() + length <= COLUMNS;
        if !is_empty && fits && line.chars().count() + 1 + length > COLUMNS {
            lines.extend([line.as_str(), "\n"]);
            (line, is_empty) = (others.to_owned(), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines + &line + "\n"
}

/// `3m12s ago`.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", Rough(now.since(at)))
}

/// A duration, or that there is none.
pub(super) fn or_dash(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), crate::tell::written_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let mut columns = Columns::new([("NAME", Side::Left), ("N", Side::Right)]);
        columns.row(["a".to_owned(), "1".to_owned()], vec![note("a note")]);
        columns.row(["long\u{1b}er".to_owned(), "23".to_owned()], Vec::new());
        let right = ["NAME           N", "a              1", "  a note", r"long\u{1b}er  23", ""];
        assert_eq!(columns.text(), right.join("\n"));
    }

    #[test]
    fn a_paragraph_is_broken_between_words() {
        let text = "word ".repeat(30);
        let broken = paragraph(text.trim_end(), "- ", "  ");
        assert!(broken.lines().all(|line| line.len() <= 80));
        assert_eq!(broken.lines().count(), 2);
        assert!(broken.lines().nth(1).unwrap().starts_with("  word"));
        assert_eq!(paragraph(&format!("log {}", "x".repeat(100)), "- ", "  ").lines().count(), 1);
    }
}
