//! What is told, in lines.

use super::board::Before;
use super::paint::{Ink, Paint};
use super::{Fact, How, Lines, Try, Who};
use crate::file::written;
use crate::waves::{count, plain};
use std::time::Duration;

/// The line for a fact, if there is one.
pub(super) fn line(
    fact: &Fact,
    lines: Lines,
    now: Duration,
    before: &Before,
    paint: Paint,
) -> Option<String> {
    let (who, what, ink) = match fact {
        Fact::Line(line) => return Some(line.clone()),
        Fact::Missed(missed) => {
            return Some(format!("{missed} events were missed; the summary has everything"));
        }
        _ if lines == Lines::None => return None,
        Fact::Began { who, attempt, .. } if lines == Lines::All => {
            (who, started(*attempt), Ink::None)
        }
        Fact::Waits { who, what } if lines == Lines::All => {
            (who, format!("waits for {what}"), Ink::None)
        }
        Fact::Items { who, count: number, taken_over } if lines == Lines::All => {
            let items = count(usize::try_from(*number).unwrap_or(usize::MAX), "item");
            let what = match taken_over {
                0 => items,
                before => format!("{items}, {before} of them done before"),
            };
            (who, what, Ink::None)
        }
        Fact::Retried { who, attempt: Try { number, of }, why, pause, .. } => {
            let what = format!("failed: {why} (attempt {number} of {of}, again {pause})");
            (who, what, Ink::Bad)
        }
        Fact::Ended { who, how, attempt, why, .. }
            if lines != Lines::Failures || how.is_failure() =>
        {
            (who, ended(who, *how, *attempt, why, before)?, Ink::of_end(*how))
        }
        Fact::Interrupted { who } if before.took.is_some() => {
            (who, "interrupted".to_owned(), Ink::Mark)
        }
        _ => return None,
    };
    let seconds = now.as_secs();
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let (name, what) = (plain(who.label()), paint.on(ink, what));
    Some(format!("[{hours:02}:{minutes:02}:{seconds:02}] {name}: {what}"))
}

fn started(attempt: Try) -> String {
    match attempt {
        Try { number: 1, .. } => "started".to_owned(),
        Try { number, of } => format!("started (attempt {number} of {of})"),
    }
}

fn ended(who: &Who, how: How, attempt: Try, why: &str, before: &Before) -> Option<String> {
    let text = match how {
        How::Succeeded => {
            format!("succeeded in {}", written_short(before.took.unwrap_or_default()))
        }
        How::Failed | How::TimedOut => match attempt {
            Try { of: 1, .. } => format!("failed: {why}"),
            Try { number, of } => format!("failed: {why} (attempt {number} of {of})"),
        },
        // There may be thousands that were never begun.
        How::Cancelled if who.is_item && before.took.is_none() => return None,
        How::Cancelled => "cancelled".to_owned(),
        How::Skipped if who.is_item => return None,
        How::Skipped => "skipped".to_owned(),
    };
    Some(text)
}

/// `1.2s`, `35ms`, `2m5s`: as much as a reader wants to know.
pub(crate) fn written_short(time: Duration) -> String {
    match time.as_millis() {
        0..1_000 => format!("{}ms", time.as_millis()),
        1_000..60_000 => format!("{:.1}s", time.as_secs_f64()),
        _ => written(Duration::from_secs(time.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_as_exact_as_it_is_short() {
        for (millis, right) in [(0, "0ms"), (35, "35ms"), (1_234, "1.2s"), (125_900, "2m5s")] {
            assert_eq!(written_short(Duration::from_millis(millis)), right);
        }
    }
}
