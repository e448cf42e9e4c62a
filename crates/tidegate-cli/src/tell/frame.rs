//! The live view: how things stand, in as many lines and columns as there are.

use super::board::{Active, Board, Waiting};
use super::paint::{Ink, Paint};
use crate::file::written;
use crate::waves::plain;
use std::time::Duration;
use unicode_width::UnicodeWidthChar as _;

/// What takes longer is marked.
const SLOW: Duration = Duration::from_secs(60);

/// How large the terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// A line as it is drawn, and how many columns it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) width: usize,
}

/// What a row says, before it is known how much of it fits.
struct Entry {
    slot: Option<u32>,
    what: String,
    time: String,
    ink: Ink,
}

/// The lines of the view; the last one counts.
pub(super) fn rows(board: &Board, now: Duration, size: Size, paint: Paint) -> Vec<Row> {
    // The last column is left free: some terminals go to the next line when it is filled.
    let columns = size.columns.saturating_sub(1).max(1);
    let mut entries: Vec<Entry> =
        board.active().into_iter().map(|one| of_active(one, now)).collect();
    entries.extend(board.waiting().into_iter().map(|one| of_waiting(one, now)));
    let room = size.rows.saturating_sub(2);
    let hidden = entries.len().saturating_sub(room);
    // One more makes room for the line that says so.
    let hidden = if hidden > 0 { hidden + 1 } else { 0 };
    entries.truncate(entries.len().saturating_sub(hidden));
    let longest = |of: fn(&Entry) -> usize| entries.iter().map(of).max().unwrap_or(0);
    let slots = longest(|entry| entry.slot.map_or(0, |slot| slot.to_string().len()));
    let times = longest(|entry| width(&entry.time));
    let whats = longest(|entry| width(&entry.what));
    let left = if slots > 0 { slots + 2 } else { 0 };
    let whats = whats.min(columns.saturating_sub(left + times + 2));
    let mut rows = Vec::new();
    for Entry { slot, what, time, ink } in entries {
        let slot = slot.map(|slot| format!("{slot:>slots$}: ")).unwrap_or_default();
        let what = fitted(&what, whats);
        let gap = whats - width(&what) + 2 + times - width(&time);
        let text = format!("{slot:left$}{what}{:gap$}{time}", "");
        rows.push(row(&text, columns, ink, paint));
    }
    if hidden > 0 && room > 0 {
        rows.push(row(&format!("and {hidden} more"), columns, Ink::None, paint));
    }
    let ink = if board.ended().failed > 0 { Ink::Bad } else { Ink::None };
    rows.push(row(&counts(board, now), columns, ink, paint));
    rows
}

fn of_active(active: &Active, now: Duration) -> Entry {
    let since = now.saturating_sub(active.since);
    let label = plain(&active.label);
    let what = match active.attempt.number {
        1 => label,
        number => format!("{label} (attempt {number} of {})", active.attempt.of),
    };
    let is_slow = since >= SLOW;
    let (mark, ink) = if is_slow { (" slow", Ink::Mark) } else { ("", Ink::None) };
    Entry { slot: active.slot, what, time: clock(since) + mark, ink }
}

fn of_waiting(waiting: &Waiting, now: Duration) -> Entry {
    let what = format!("{} waits for {}", plain(&waiting.label), waiting.what);
    let time = clock(now.saturating_sub(waiting.since));
    Entry { slot: None, what, time, ink: Ink::None }
}

/// In whole seconds: what changes faster cannot be read.
fn clock(time: Duration) -> String {
    written(Duration::from_secs(time.as_secs()))
}

fn counts(board: &Board, now: Duration) -> String {
    let ended = board.ended();
    let mut text = format!("{} of {} done", ended.all(), board.total());
    let numbers = [
        (ended.failed, "failed"),
        (ended.cancelled, "cancelled"),
        (ended.skipped, "skipped"),
        (board.active().len() as u64, "running"),
        (board.waiting().len() as u64, "waiting"),
    ];
    for (number, what) in numbers.into_iter().filter(|(number, _)| *number > 0) {
        text += &format!(", {number} {what}");
    }
    text += &format!("; {}", clock(now));
    if let Some(left) = board.left(now) {
        text += &format!(", about {} left", written(Duration::from_secs(left.as_secs().max(1))));
    }
    text
}

fn row(text: &str, columns: usize, ink: Ink, paint: Paint) -> Row {
    let text = fitted(text, columns);
    Row { width: width(&text), text: paint.on(ink, text).to_string() }
}

/// How many columns a text takes. It has no control characters.
fn width(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

/// As much of a text as fits, with a mark where the rest is missing.
fn fitted(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut fitted = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used > columns {
            break;
        }
        fitted.push(letter);
    }
    fitted.extend((columns > 0).then_some('…'));
    fitted
}

#[cfg(test)]
mod tests {
    use super::super::{Fact, Try, Who};
    use super::*;
    use proptest::prelude::*;

    fn board() -> Board {
        let mut board = Board::default();
        let second = Duration::from_secs;
        let run = Fact::Run { id: "r".into(), name: "n".into(), tasks: 9, slots: 4 };
        board.hear(&run, second(0));
        let attempt = Try { number: 1, of: 1 };
        for (slot, name, at) in [(2, "second", 50), (1, "a task with a long name", 1)] {
            let (who, slot) = (Who::task(name), Some(slot));
            board.hear(&Fact::Began { who, attempt, slot, log: None }, second(at));
        }
        let (who, what) = (Who::task("load"), "schema.sql".to_owned());
        board.hear(&Fact::Waits { who, what }, second(3));
        board
    }

    fn seen(board: &Board, columns: usize, rows: usize) -> Vec<String> {
        let now = Duration::from_secs(63);
        let size = Size { columns, rows };
        super::rows(board, now, size, Paint::NONE).into_iter().map(|row| row.text).collect()
    }

    #[test]
    fn what_runs_where_and_what_waits_is_seen() {
        assert_eq!(
            seen(&board(), 80, 24),
            [
                "1: a task with a long name    1m2s slow",
                "2: second                           13s",
                "   load waits for schema.sql         1m",
                "0 of 9 done, 2 running, 1 waiting; 1m3s",
            ]
        );
    }

    #[test]
    fn where_there_is_little_room_the_least_is_cut() {
        assert_eq!(
            seen(&board(), 20, 24),
            [
                "1: a ta…  1m2s slow",
                "2: seco…        13s",
                "   load…         1m",
                "0 of 9 done, 2 run…",
            ]
        );
        assert_eq!(
            seen(&board(), 30, 4),
            ["1: a task with a …  1m2s slow", "and 2 more", "0 of 9 done, 2 running, 1 wa…"]
        );
        assert_eq!(seen(&board(), 80, 1).len(), 1);
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        let mut board = Board::default();
        let who = Who { input: Some("a\x1b[2J\n\u{9b}b".to_owned()), ..Who::item("1") };
        let attempt = Try { number: 1, of: 1 };
        board.hear(&Fact::Began { who, attempt, slot: None, log: None }, Duration::ZERO);
        assert_eq!(seen(&board, 80, 24)[0], "a\\u{1b}[2J\\n\\u{9b}b  1m3s slow");
    }

    proptest! {
        #[test]
        fn nothing_is_wider_or_higher_than_the_terminal(
            names in prop::collection::vec("\\PC{0,30}", 0..20),
            columns in 1_usize..100,
            rows in 1_usize..30,
        ) {
            let mut board = Board::default();
            for (slot, name) in (1..).zip(names) {
                let (who, attempt) = (Who::task(name), Try { number: 2, of: 3 });
                let slot = (slot % 3 == 0).then_some(slot);
                board.hear(&Fact::Began { who, attempt, slot, log: None }, Duration::ZERO);
            }
            let drawn = super::rows(&board, Duration::ZERO, Size { columns, rows }, Paint::NONE);
            prop_assert!(drawn.len() <= rows.max(1));
            for row in drawn {
                prop_assert!(row.width < columns.max(2), "{row:?}");
                prop_assert_eq!(width(&row.text), row.width);
            }
        }
    }
}
