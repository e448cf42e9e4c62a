//! What can be said of `each`.

use crate::args::{parse_limit, parse_timeout};
use crate::each::wait_for;
use crate::file::{ParallelLimit, WaitFor};
use crate::tell::Usual;
use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

/// What stands in the place of an input.
const PLACEHOLDERS: &str = "\
An input stands in the place of {} in COMMAND, or else behind it. {/} is its
last part, {//} the folder it is in, {.} the input without its extension, {/.}
the last part without its extension, {#} the number of the command.

Inputs are the lines of stdin or of a file (-a), of which empty ones are none,
or the words behind :::. With --resume they are given again, and those that
have succeeded are left out. Options behind COMMAND are its own.

To wait for: file:PATH, tcp:HOST:PORT, http:URL, command:LINE, signal:NAME or
delay:TIME; of several, for all.";

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "tidegate each [OPTIONS] COMMAND… [::: INPUT…]",
    after_help = PLACEHOLDERS,
)]
pub(crate) struct Each {
    /// What to run, with its arguments; behind ::: the inputs
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<OsString>,
    /// How many slots: 8, auto, or 50% of the CPUs
    #[arg(short = 'j', long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    pub(crate) parallel_limit: Option<ParallelLimit>,
    /// Read the inputs from this file; - is stdin
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) arg_file: Option<PathBuf>,
    /// Inputs end with a NUL, and may be empty
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Up to so many inputs for one command
    #[arg(short = 'n', long, value_name = "N", default_value = "1", hide_default_value = true, value_parser = parse_number, allow_negative_numbers = true)]
    pub(crate) max_args: NonZeroU32,
    /// COMMAND is one line for sh -ec; inputs are data
    #[arg(long)]
    pub(crate) shell: bool,
    /// Go on after failures
    #[arg(long, conflicts_with = "max_fail")]
    pub(crate) keep_going: bool,
    /// Stop after so many failures; 1 unless set
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub(crate) max_fail: Option<NonZeroU64>,
    /// Attempts after the first
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) retries: u32,
    /// How long a command may take
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// Begin when this is so, as in file:PATH
    #[arg(long, value_name = "WHAT", value_parser = wait_for::parse)]
    pub(crate) wait_for: Vec<WaitFor>,
    /// Go on with COMMAND's latest run, or this one
    #[arg(long, value_name = "RUN", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) usual: Usual,
}

fn parse_number(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "it must be a whole number of at least 1".to_owned())
}

fn parse_count(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| "it must be a whole number of at least 1".to_owned())
}

impl Each {
    /// The command, and the inputs if they are on the command line.
    ///
    /// # Errors
    /// One of them is missing, or there is too much of it.
    pub(crate) fn split(&self) -> Result<(&[OsString], Option<&[OsString]>), String> {
        let is_mark = |word: &&OsString| *word == ":::";
        let at = self.words.iter().position(|word| is_mark(&word));
        let (command, inputs) = match at {
            None => (&self.words[..], None),
            Some(at) => (&self.words[..at], Some(&self.words[at + 1..])),
        };
        let what = match (command.len(), inputs) {
            (0, _) => "there is no command before :::; write it there",
            (_, Some([])) => {
                "there is no input behind :::; write some, or leave ::: out to read stdin"
            }
            (_, Some(inputs)) if inputs.iter().any(|word| is_mark(&word)) => {
                "::: is there twice; all inputs stand behind the first"
            }
            (_, Some(_)) if self.arg_file.is_some() => {
                "the inputs are behind ::: and in the file of -a; take one of them out"
            }
            (2.., _) if self.shell => "with --shell the command is one text; put it in quotes",
            _ if command[0].is_empty() => "the command is empty",
            _ => return Ok((command, inputs)),
        };
        Err(what.to_owned())
    }
}
