//! What can be said on the command line of how to tell of a run, and where it is kept: the same for
//! every command that runs something.

use clap::ValueEnum;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Usual {
    /// Where runs are kept: a file, a folder, or memory:
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// Output: grouped, prefixed, streamed, failed, none
    #[arg(long, value_enum, default_value_t = Show::Grouped, hide_possible_values = true, hide_default_value = true, value_name = "HOW")]
    pub(crate) show: Show,
    /// Tell of it in text, or in json: one event per line
    #[arg(long, value_enum, default_value_t = Format::Text, hide_possible_values = true, hide_default_value = true)]
    pub(crate) format: Format,
    /// Meanwhile: auto (live on a terminal), plain, none
    #[arg(long, value_enum, default_value_t = Progress::Auto, hide_possible_values = true, hide_default_value = true, value_name = "HOW")]
    pub(crate) progress: Progress,
    /// Colours: auto, always, never
    #[arg(long, value_enum, default_value_t = Color::Auto, hide_possible_values = true, hide_default_value = true, value_name = "WHEN")]
    pub(crate) color: Color,
    /// Write how tasks ended to this file, as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
}

impl Usual {
    /// For somebody who tells in plain lines, whatever runs.
    pub(crate) fn plain(show: Show) -> Self {
        let (format, progress, color) = (Format::Text, Progress::Plain, Color::Auto);
        Usual { store: None, show, format, progress, color, junit: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// What is shown of that which commands write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Show {
    /// All of a command's, when it ends.
    Grouped,
    /// Line by line, each behind the name of its task.
    Prefixed,
    /// As it comes.
    Streamed,
    /// As grouped, of those that fail.
    Failed,
    None,
}

/// What is seen while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// On a terminal live, else in lines.
    Auto,
    Plain,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}
