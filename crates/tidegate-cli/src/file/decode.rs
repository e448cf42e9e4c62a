//! From TOML to a [`File`].
//!
//! First the shape of everything is looked at, which notes what is of the wrong kind. Then it is
//! decoded; what does not fit its shape has been told and is passed over here.

use super::mistakes::{Mistakes, Source, quoted};
use super::shape::{self, Look, Name, Value};
use super::values::{self, ParallelLimit};
use super::{File, Given, Origin, PARALLEL_LIMIT, Setting, Task, check, keys, task};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tidegate::{Limit, OnFailure};
use toml::de::{DeTable, DeValue};

pub(super) fn decode(source: Source, folder: PathBuf, given: &Given) -> Result<File, Mistakes> {
    let source = Rc::new(source);
    let mut mistakes = Mistakes::default();
    let mut look = Look { source: &source, mistakes: &mut mistakes };
    let file = parse(&mut look).and_then(|table| whole_file(&mut look, &table, folder, given));
    match file {
        Some(file) if mistakes.is_empty() => Ok(file),
        _ => Err(mistakes.sorted(&source)),
    }
}

/// The file as TOML. One that is not TOML is not looked at further, because what follows from a
/// forgotten quote is no mistake of its own; a key that stands there twice is no such thing.
fn parse<'t>(look: &mut Look<'t>) -> Option<DeTable<'t>> {
    let text: &'t str = &look.source.text;
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<_> =
        errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message())).collect();
    errors.sort_by_key(|(at, _)| at.start);
    let (twice, not_toml): (Vec<_>, Vec<_>) =
        errors.into_iter().partition(|(_, what)| what.starts_with("duplicate key"));
    let mut told: Option<usize> = None;
    for (at, what) in &not_toml {
        // A second one in the same line follows from the first.
        if told.is_none_or(|before| between(text, before, at.start).contains('\n')) {
            look.wrong(at.clone(), format!("this is not TOML: {what}"));
        }
        told = Some(at.start);
    }
    let mut header: Option<usize> = None;
    for (at, _) in twice {
        // Below a header that is there twice, so is every key.
        if header.is_some_and(|header| !between(text, header, at.start).contains("\n[")) {
            continue;
        }
        let line = between(text, 0, at.start).rsplit('\n').next().unwrap_or_default();
        let is_header = line.starts_with('[');
        header = is_header.then_some(at.start);
        let what = match is_header {
            true => "is there twice: put both together, or give one another name",
            false => "is there twice: keep one of them",
        };
        let name = between(text, at.start, at.end).trim_matches(['"', '\'']);
        look.wrong(at, format!("{} {what}", quoted(name)));
    }
    not_toml.is_empty().then(|| table.into_inner())
}

/// A part of the text; nothing where it is none.
fn between(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

fn whole_file(
    look: &mut Look<'_>,
    table: &DeTable<'_>,
    folder: PathBuf,
    given: &Given,
) -> Option<File> {
    look.table("", table, &keys::FILE);
    let run = table_of(table, "run");
    let word = |key| text(run?.get(key)?);
    let named = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let parallel_limit = parallel_limit(look, run, given);
    let task_timeout = task_timeout(run, given);

    let limits = limits(look, table_of(table, "limits"));
    let entries: Vec<_> = table_of(table, "tasks").into_iter().flat_map(|t| t.iter()).collect();
    let no_table = table.get("tasks").is_some_and(|tasks| !tasks.get_ref().is_table());
    let elsewhere = !table.contains_key("tasks") && keys::FILE.has(table, "tasks");
    if entries.is_empty() && !no_table && !elsewhere {
        let at = table.get("tasks").map_or(0..0, |tasks| tasks.span());
        let example = "[tasks.hello] with run = \"echo hello\"";
        look.wrong(at, format!("there are no tasks: define at least one, as in {example}"));
    }
    let shell = run
        .and_then(|run| texts(run.get("shell")?))
        .unwrap_or_else(|| vec!["sh".into(), "-ec".into()]);
    let mut tasks: Vec<Task> = Vec::new();
    for (name, value) in &entries {
        let around = task::Around { folder: &folder, timeout: task_timeout.value, shell: &shell };
        tasks.extend(named_task(look, name, value, around));
    }
    let graph = check::graph(look, &entries);
    check::limits(look, &entries, &limits);
    // Against a limit that makes no sense, no weight does.
    let limit_in_file = run.and_then(|run| run.get("parallel_limit"));
    if parallel_limit.from != Origin::Default || limit_in_file.is_none() {
        check::weights(look, &entries, parallel_limit, given.cpus);
    }
    Some(File {
        path: look.source.path.clone(),
        name: word("name").or(named).unwrap_or_else(|| "run".to_owned()),
        parallel_limit,
        task_timeout,
        on_failure: word("on_failure")
            .and_then(|word| word.parse().ok())
            .unwrap_or(OnFailure::FailFast),
        shell,
        limits,
        tasks,
        graph: graph?,
        folder,
    })
}

fn named_task(
    look: &mut Look<'_>,
    name: &Name<'_>,
    value: &Value<'_>,
    around: task::Around<'_>,
) -> Option<Task> {
    let called = name.get_ref();
    if called.is_empty() || called.contains(|letter: char| letter == '/' || letter.is_control()) {
        let what = format!(
            "a task cannot be called {}: a name has at least one character, no / and no control character",
            quoted(called)
        );
        look.wrong(name.span(), what);
    }
    task::decode(look, name, value.get_ref().as_table()?, around)
}

/// How many slots: the command line's word, else the environment's, else the file's, else 4.
fn parallel_limit(
    look: &mut Look<'_>,
    run: Option<&DeTable<'_>>,
    given: &Given,
) -> Setting<ParallelLimit> {
    let value = run.and_then(|run| run.get("parallel_limit"));
    let in_file = value.and_then(|value| match value.get_ref() {
        DeValue::String(text) => ParallelLimit::from_word(text),
        DeValue::Table(table) => bounds(look, value, table),
        _ => number(value).filter(|&slots| slots > 0).map(ParallelLimit::Exactly),
    });
    let in_file = in_file.map(|value| Setting { value, from: Origin::File });
    let default = Setting { value: ParallelLimit::Exactly(PARALLEL_LIMIT), from: Origin::Default };
    given.parallel_limit.or(in_file).unwrap_or(default)
}

fn bounds(look: &mut Look<'_>, value: &Value<'_>, table: &DeTable<'_>) -> Option<ParallelLimit> {
    let bound = |key| table.get(key).and_then(number);
    match (bound("min"), bound("max")) {
        (Some(min), Some(max)) if min <= max => Some(ParallelLimit::Between(min, max)),
        (Some(min), Some(max)) => {
            let what =
                format!("parallel_limit has a min of {min} above its max of {max}; swap them");
            look.wrong(value.span(), what);
            None
        }
        _ => {
            // A bound that is there and does not fit has been told.
            if table.get("min").is_none() || table.get("max").is_none() {
                look.wrong(value.span(), "parallel_limit needs both bounds: { min = 2, max = 16 }");
            }
            None
        }
    }
}

fn task_timeout(run: Option<&DeTable<'_>>, given: &Given) -> Setting<Option<Duration>> {
    let in_file = run.and_then(|run| shape::duration(run.get("task_timeout")?.get_ref()));
    match (given.task_timeout, in_file) {
        (Some(Setting { value, from }), _) => Setting { value: Some(value), from },
        (None, Some(value)) => Setting { value: Some(value), from: Origin::File },
        (None, None) => Setting { value: None, from: Origin::Default },
    }
}

fn limits(look: &mut Look<'_>, table: Option<&DeTable<'_>>) -> Vec<Limit> {
    let mut limits = Vec::new();
    for (name, value) in table.into_iter().flat_map(|table| table.iter()) {
        let mut limit = Limit::new(name.get_ref().as_ref());
        if let Some(table) = value.get_ref().as_table() {
            limit = match table.get("at_once").and_then(number) {
                Some(units) => limit.at_once(units),
                None => limit,
            };
            limit = match table.get("rate").and_then(text).and_then(|text| values::rate(&text)) {
                Some((units, per)) => limit.rate(units, per),
                None => limit,
            };
            if table.is_empty() {
                let what = format!(
                    "limit {} bounds nothing: say at_once = 2, rate = \"60/1m\" or both",
                    quoted(name.get_ref())
                );
                look.wrong(value.span(), what);
            }
        } else if let Some(units) = number(value) {
            limit = limit.at_once(units);
        }
        if name.get_ref().is_empty() {
            look.wrong(name.span(), "a limit needs a name of at least one character");
        }
        limits.push(limit);
    }
    limits
}

/// The table under a key, if there is one.
pub(super) fn table_of<'t, 's>(table: &'t DeTable<'s>, key: &str) -> Option<&'t DeTable<'s>> {
    table.get(key)?.get_ref().as_table()
}

pub(super) fn text(value: &Value<'_>) -> Option<String> {
    value.get_ref().as_str().map(str::to_owned)
}

/// A list of texts.
pub(super) fn texts(value: &Value<'_>) -> Option<Vec<String>> {
    value.get_ref().as_array()?.iter().map(text).collect()
}

/// A number that counts something.
pub(super) fn number(value: &Value<'_>) -> Option<u32> {
    shape::whole_number(value.get_ref()).and_then(|number| u32::try_from(number).ok())
}

/// A path, seen from the file's folder.
pub(super) fn path(folder: &Path, value: &Value<'_>) -> Option<PathBuf> {
    value.get_ref().as_str().map(|path| folder.join(path))
}
