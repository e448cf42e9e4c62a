//! What is told, as JSON: one event on a line. The fields are documented in `docs/command-line.md`.

use super::board::{Before, Board};
use super::{Fact, How, Totals, Try, Who};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use tidegate::Timestamp;

/// Grows when what a reader relies on is taken away or means something else.
const VERSION: u32 = 1;

/// The line for a fact, with its end, if there is one.
pub(super) fn line(
    fact: &Fact,
    at: Timestamp,
    now: Duration,
    board: &Board,
    before: &Before,
) -> Option<String> {
    let run = board.run();
    let line = |event| Line::new(event, at, run);
    let of = |event, who: &Who| {
        line(event).with("task", who.name.as_str()).maybe("input", who.input.as_deref())
    };
    let line = match fact {
        Fact::Run { name, tasks, slots, .. } => line("run_started")
            .with("name", name.as_str())
            .with("total", *tasks)
            .with("parallel_limit", *slots),
        Fact::Began { who, attempt, slot, log } => {
            of("task_started", who).tries(*attempt).maybe("slot", *slot).log(log.as_deref())
        }
        Fact::Waits { who, what } => of("task_waiting", who).with("for", what.as_str()),
        Fact::Items { who, count, taken_over } => {
            let before = Some(*taken_over).filter(|&before| before > 0);
            of("task_items", who).with("count", *count).maybe("taken_over", before)
        }
        Fact::Retried { who, attempt, why, .. } => {
            of("task_retried", who).tries(*attempt).with("error", why.as_str()).took(before.took)
        }
        Fact::Ended { who, how, attempt, why, log } => {
            let log = log.as_deref().filter(|log| before.took.is_some() && log.exists());
            let ended = of("task_ended", who).with("outcome", how.as_str());
            let ended = if *how == How::Skipped { ended } else { ended.tries(*attempt) };
            ended
                .maybe("error", Some(why.as_str()).filter(|why| !why.is_empty()))
                .took(before.took)
                .log(log)
        }
        Fact::Interrupted { who } if before.took.is_some() => {
            of("task_interrupted", who).took(before.took)
        }
        Fact::Missed(count) => line("missed").with("count", *count),
        Fact::Line(text) => line("note").with("text", text.as_str()),
        Fact::Finished(totals) => finished(line("finished"), totals, now, board),
        Fact::More(_) | Fact::Interrupted { .. } | Fact::Unfinished(_) => return None,
    };
    Some(line.end())
}

fn finished(line: Line, totals: &Totals, now: Duration, board: &Board) -> Line {
    line.with("outcome", totals.outcome)
        .with("total", totals.total)
        .with("succeeded", totals.succeeded)
        .with("failed", totals.failed)
        .with("cancelled", totals.cancelled)
        .with("skipped", totals.skipped)
        .with("unfinished", totals.unfinished)
        .with("parallel_limit", board.slots())
        .with("duration_ms", millis(now))
        .with("avg_task_ms", board.mean().map_or(0, millis))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl How {
    fn as_str(self) -> &'static str {
        match self {
            How::Succeeded => "succeeded",
            How::Failed => "failed",
            How::TimedOut => "timed_out",
            How::Cancelled => "cancelled",
            How::Skipped => "skipped",
        }
    }
}

/// An object whose fields stay in their order.
struct Line(String);

impl Line {
    fn new(event: &str, at: Timestamp, run: Option<&str>) -> Self {
        Line(format!("{{\"version\":{VERSION}"))
            .with("event", event)
            .with("at", at.to_string())
            .maybe("run", run)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        write!(self.0, ",\"{name}\":{}", value.into()).expect("writing to memory does not fail");
        self
    }

    fn maybe(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    fn tries(self, attempt: Try) -> Self {
        self.with("attempt", attempt.number).with("attempts", attempt.of)
    }

    fn took(self, took: Option<Duration>) -> Self {
        self.maybe("duration_ms", took.map(millis))
    }

    fn log(self, log: Option<&Path>) -> Self {
        self.maybe("log", log.map(|log| log.to_string_lossy().into_owned()))
    }

    fn end(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}
