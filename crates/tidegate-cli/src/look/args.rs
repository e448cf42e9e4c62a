//! What can be said to the commands that look and steer.

use crate::tell::Format;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use tidegate::{Limit, duration};

/// Which store.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// Where runs are kept, instead of the nearest store
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
}

/// How to write what was found.
#[derive(Debug, Args)]
pub(crate) struct Written {
    /// Write it as text or json
    #[arg(long, value_enum, default_value_t = Format::Text, hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only runs of this queue
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Only runs that have not ended
    #[arg(long)]
    pub(crate) open: bool,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A number, an id or its beginning, or a name; else the latest run
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// A task of the latest run, RUN/TASK, or RUN for all of a run
    pub(crate) task: Option<String>,
    /// Of which attempt, instead of the last
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) attempt: Option<u32>,
    /// Go on with what is written, until all is over
    #[arg(long, short)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// A task of the latest run, RUN/TASK, or RUN for all that do not run
    pub(crate) task: Option<String>,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Limits {
    #[command(subcommand)]
    pub(crate) command: Option<LimitsCommand>,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitsCommand {
    /// Change a limit, for all who use the store, from now on
    Set(SetLimit),
}

#[derive(Debug, Args)]
pub(crate) struct SetLimit {
    /// Which limit
    pub(crate) name: String,
    /// 2 for so many at once, rate=60/1m, or at_once=2,rate=60/1m
    #[arg(value_name = "SPEC", value_parser = parse_bound, allow_hyphen_values = true)]
    pub(crate) bound: Bound,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// A number, an id or its beginning, or a name; else the latest run
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, Args)]
pub(crate) struct Signal {
    /// A number, an id or its beginning, or a name
    pub(crate) run: String,
    /// The name of the signal
    pub(crate) name: String,
    /// What it brings, as JSON; else nothing
    #[arg(value_name = "JSON", value_parser = parse_json, allow_hyphen_values = true)]
    pub(crate) payload: Option<serde_json::Value>,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// What is paused, or goes on.
#[derive(Debug, Args)]
pub(crate) struct Scope {
    /// A number, an id or its beginning, or a name; else the latest run
    pub(crate) run: Option<String>,
    /// All of this queue, instead of a run
    #[arg(long, conflicts_with = "run")]
    pub(crate) queue: Option<String>,
    /// All of the store, instead of a run
    #[arg(long, conflicts_with_all = ["run", "queue"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// A number, an id or its beginning, or a name; else the latest run
    pub(crate) run: Option<String>,
    /// For so long at most, such as 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Look whether what is stored contradicts itself
    #[command(visible_alias = "doctor")]
    Check(Check),
    /// Remove runs that are old
    Prune(Prune),
    /// Copy the store to a file, while others work on it
    Backup(Backup),
    /// Copy a store, while nobody works on it
    Copy(Copy),
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Also check the file of the database, table by table
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Put right what can be
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Runs that ended so long ago
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_time, allow_negative_numbers = true)]
    pub(crate) older_than: Duration,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to write; it must not be there
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// The store to copy: a path or an address
    pub(crate) from: String,
    /// Where to; it must not be there
    pub(crate) to: String,
}

/// What a limit is to allow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    at_once: Option<u32>,
    rate: Option<(u32, Duration)>,
}

impl Bound {
    /// The limit of this name.
    pub(crate) fn of(&self, name: &str) -> Limit {
        let limit = Limit::new(name);
        let limit = self.at_once.into_iter().fold(limit, Limit::at_once);
        self.rate.into_iter().fold(limit, |limit, (units, per)| limit.rate(units, per))
    }
}

const BOUND: &str =
    "it must be a whole number of at least 1, rate=60/1m, or both as in at_once=2,rate=60/1m";
const TIME: &str = "it must be a duration such as \"90s\", \"5m\" or a whole number of seconds";

fn parse_bound(text: &str) -> Result<Bound, String> {
    bound(text).ok_or_else(|| BOUND.to_owned())
}

fn bound(text: &str) -> Option<Bound> {
    if let Some(units) = crate::file::natural(text) {
        return Some(Bound { at_once: Some(units), rate: None });
    }
    let mut bound = Bound::default();
    for part in text.split(',') {
        match part.split_once('=')? {
            ("at_once", units) if bound.at_once.is_none() => {
                bound.at_once = Some(crate::file::natural(units)?);
            }
            ("rate", rate) if bound.rate.is_none() => bound.rate = Some(crate::file::rate(rate)?),
            _ => return None,
        }
    }
    Some(bound)
}

fn parse_time(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|_| TIME.to_owned())
}

fn parse_json(text: &str) -> Result<serde_json::Value, String> {
    let right = "it must be JSON, such as 3, true or '{\"by\": \"me\"}'; text is '\"in quotes\"'";
    serde_json::from_str(text).map_err(|error| format!("{error}; {right}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_written_as_in_the_file() {
        let minute = Duration::from_secs(60);
        let right = |at_once, rate| Some(Bound { at_once, rate });
        assert_eq!(bound("2"), right(Some(2), None));
        assert_eq!(bound("at_once=2"), right(Some(2), None));
        assert_eq!(bound("rate=60/1m"), right(None, Some((60, minute))));
        assert_eq!(bound("at_once=2,rate=60/1m"), right(Some(2), Some((60, minute))));
        assert_eq!(bound("rate=60/1m,at_once=2"), right(Some(2), Some((60, minute))));
        for wrong in [
            "",
            "0",
            "-1",
            "+1",
            "abc",
            "1.5",
            "60/1m",
            "at_once=0",
            "rate=0/1m",
            "rate=5",
            "at_once=1,at_once=2",
            "at_once=2,",
            "at_once=2;rate=60/1m",
            "4294967296",
        ] {
            assert_eq!(bound(wrong), None, "{wrong}");
        }
    }
}
