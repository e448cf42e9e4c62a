//! The command line of tidegate.
//!
//! - `args`: what can be said; `file`: what a command file says.
//! - `choice`: which of its tasks are meant; `waves`: the plan of a dry run.
//! - `plan`: the file as a workflow, with its `items`; `store`: where its runs are kept.
//! - `run`: runs it, or goes on (`resume`, `retry`); `view` and `summary`: what there is to say of
//!   that; `tell`: how it is said; `stopping`: being told to end; `suspend`: Ctrl-Z; `health`: a store
//!   that fails meanwhile.
//! - `each`: one command over many inputs.
//! - `submit`: gives a file to whoever serves a queue; `worker`: serves queues.
//! - `look`: what is there of runs, and steering them.
//! - `schema`, `init`: the file's schema, and a first file.
//!
//! Data goes to stdout, the rest to stderr. What a command comes to is mapped to an exit code here
//! and nowhere else.

mod args;
mod choice;
mod each;
mod file;
mod health;
mod init;
mod items;
mod look;
mod placeholder;
mod plan;
mod resume;
mod retry;
mod run;
mod schema;
mod shell_line;
mod stopping;
mod store;
mod submit;
mod summary;
mod suspend;
mod tell;
mod view;
mod waves;
mod worker;

use args::{Args, Command};
use clap::{CommandFactory as _, Parser as _};
use file::{File, FindError, Mistakes};
use run::End;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use tell::Format;

/// Why a command came to nothing.
#[derive(Debug)]
enum Failure {
    /// The command line or a file is wrong, and this is how.
    Wrong(String),
    /// The same, with the lines of the file.
    File(Mistakes),
    /// It was right and could not be done.
    Undone(String),
    /// The store cannot be used.
    Store(String),
    /// The process was told to end before anything was begun.
    Told(End),
}

impl Failure {
    fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Wrong(_) | Failure::File(_) => ExitCode::from(2),
            Failure::Undone(_) => ExitCode::from(1),
            Failure::Store(_) => ExitCode::from(4),
            Failure::Told(end) => ExitCode::from(exit_code(*end)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Wrong(what) | Failure::Undone(what) => writeln!(f, "tidegate: {what}"),
            Failure::Store(what) => writeln!(f, "tidegate: the store cannot be used: {what}"),
            Failure::File(mistakes) => mistakes.fmt(f),
            Failure::Told(_) => Ok(()),
        }
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        Failure::Wrong(error.to_string())
    }
}

impl From<store::StoreError> for Failure {
    fn from(error: store::StoreError) -> Self {
        Failure::Store(error.to_string())
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Self {
        Failure::File(mistakes)
    }
}

fn main() -> ExitCode {
    let done = match Args::try_parse() {
        Ok(args) => perform(args.command),
        Err(error) if error.use_stderr() => {
            // Whoever closed stderr does not want to know.
            let _ = write!(io::stderr(), "{}", error.render());
            return ExitCode::from(2);
        }
        Err(asked) => print(&asked.render().to_string()),
    };
    match done {
        Ok(end) => ExitCode::from(exit_code(end)),
        Err(failure) => {
            let _ = write!(io::stderr(), "{failure}");
            failure.exit_code()
        }
    }
}

/// How the process ends when a run has come to this end.
fn exit_code(end: End) -> u8 {
    match end {
        End::Succeeded => 0,
        End::Failed => 1,
        End::Cancelled => 3,
        End::Interrupted => 130,
        End::Terminated => 143,
    }
}

fn perform(command: Command) -> Result<End, Failure> {
    match command {
        Command::Run(run) => run_file(&run),
        Command::Each(each) => each::each(&each),
        Command::Retry(args) => retry::retry(args),
        Command::Submit(args) => submit::submit(&args),
        Command::Worker(args) => worker::work(&args),
        Command::List(args) => look::list(&args),
        Command::Show(args) => look::show(&args),
        Command::Logs(args) => look::logs(&args),
        Command::Why(args) => look::why(&args),
        Command::Limits(args) => look::limits(&args),
        Command::Wait(args) => look::wait(&args),
        Command::Cancel(args) => look::cancel(&args),
        Command::Signal(args) => look::signal(&args),
        Command::Pause(args) => look::pause(&args),
        Command::Unpause(args) => look::unpause(&args),
        Command::Store { command } => look::store(&command),
        Command::Doctor(args) => look::check(&args),
        Command::Init(init) => {
            let path = init.file;
            init::write(&path).map_err(|error| Failure::Undone(error.to_string()))?;
            print(&format!("wrote {0}; try: tidegate run {0} --dry-run\n", path.display()))
        }
        Command::Schema => print(&format!("{:#}\n", schema::schema())),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "tidegate", &mut text);
            put(&text)
        }
        Command::Man { command } => manual(command.as_deref()),
    }
}

fn run_file(run: &args::Run) -> Result<End, Failure> {
    let given = run.given().map_err(Failure::Wrong)?;
    let (source, folder) = file::find(run.file.as_deref())?;
    let file = File::read(source, folder, &given)?;
    if !run.dry_run {
        return run::run(&file, run, given.cpus);
    }
    let choice = choice::choose(&file, &run.only, &run.skip)
        .map_err(|error| Failure::Wrong(error.to_string()))?;
    let plan = waves::Plan::new(&file, &choice, given.cpus);
    match run.usual.format {
        Format::Text => print(&plan.to_string()),
        Format::Json => print(&format!("{:#}\n", plan.to_json())),
    }
}

/// The manual page of the program, or of one of its commands.
fn manual(command: Option<&str>) -> Result<End, Failure> {
    let mut whole = Args::command();
    whole.build();
    let page = match command {
        None => whole,
        Some(name) => {
            let found = whole.get_subcommands().find(|command| command.get_name() == name);
            let names = whole.get_subcommands().map(|command| command.get_name());
            let names = names.collect::<Vec<_>>().join(", ");
            let unknown = || {
                Failure::Wrong(format!(
                    "there is no command {}; there are {names}",
                    file::quoted(name)
                ))
            };
            let found = found.ok_or_else(unknown)?;
            found.clone().display_name(format!("tidegate-{name}"))
        }
    };
    let mut text = Vec::new();
    let made = clap_mangen::Man::new(page).render(&mut text);
    made.map_err(|error| Failure::Undone(error.to_string()))?;
    put(&text)
}

/// A line to stderr. Whoever closed that does not want to know.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn print(text: &str) -> Result<End, Failure> {
    put(text.as_bytes())
}

/// Writes to stdout. Whoever reads no further has what they wanted: that is no failure.
fn put(bytes: &[u8]) -> Result<End, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Undone(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(End::Succeeded),
    }
}
