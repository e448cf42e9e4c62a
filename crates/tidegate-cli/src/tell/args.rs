//! What can be said on the command line of how to tell of a run, and where it is kept: the same for
//! every command that runs something.

use clap::ValueEnum;

#[derive(Debug, clap::Args)]
pub(crate) struct Usual {
    /// Where runs are kept, instead of beside the file
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// Output of which tasks: grouped, failed or none
    #[arg(long, value_enum, default_value_t = Show::Grouped, hide_possible_values = true, hide_default_value = true)]
    pub(crate) show: Show,
    /// Write the plan as text or json
    #[arg(long, value_enum, default_value_t = Format::Text, hide_possible_values = true)]
    pub(crate) format: Format,
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
    /// The same for those that fail.
    Failed,
    None,
}
