//! A task of the file.

use super::decode::{number, path, text, texts};
use super::mistakes::quoted;
use super::shape::{self, Look, Name, Table, Value, listed};
use super::{Awaited, Command, Each, Task, WaitFor, env_file, keys};
use crate::placeholder::INPUT_ONLY;
use crate::shell_line::{ShellLine, is_known_shell, unknown_shell};
use std::path::Path;
use std::time::Duration;
use tidegate::{Backoff, LimitUse, When};
use toml::de::{DeTable, DeValue};

/// How often a condition is looked at, unless the file says otherwise.
/// How often it is looked unless said otherwise.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// What a task has from the file around it.
#[derive(Clone, Copy)]
pub(super) struct Around<'f> {
    pub(super) folder: &'f Path,
    pub(super) timeout: Option<Duration>,
    pub(super) shell: &'f [String],
}

/// The task, as far as it can be told. What is wrong with it is noted.
pub(super) fn decode(
    look: &mut Look<'_>,
    name: &Name<'_>,
    table: &DeTable<'_>,
    around: Around<'_>,
) -> Option<Task> {
    let get = |key| table.get(key);
    let time = |key| shape::duration(get(key)?.get_ref());
    if !keys::TASK.has(table, "run") {
        let what = format!("task {} has no command: say run = \"…\"", quoted(name.get_ref()));
        look.wrong(name.span(), what);
    }
    let each = get("each").and_then(|value| each(look, value, around.folder));
    if let Some(value) = get("run") {
        match get("each") {
            None => no_placeholder(look, value),
            Some(_) => check_placeholders(look, value, around.shell),
        }
    }
    let wait_for = get("wait_for").map(|value| waits(look, value, around.folder));
    Some(Task {
        name: name.get_ref().to_string(),
        after: get("after").and_then(texts).unwrap_or_default(),
        when: get("when")
            .and_then(text)
            .and_then(|word| word.parse().ok())
            .unwrap_or(When::AllSucceeded),
        each,
        wait_for: wait_for.unwrap_or_default(),
        retries: get("retries").and_then(number).unwrap_or(0),
        backoff: get("backoff").and_then(|value| backoff(look, value)).unwrap_or_default(),
        limits: get("limits").map(limits).unwrap_or_default(),
        weight: get("weight").and_then(number).unwrap_or(1),
        priority: get("priority")
            .and_then(|value| shape::whole_number(value.get_ref()))
            .and_then(|seconds| i32::try_from(seconds).ok())
            .unwrap_or(0),
        timeout: time("timeout").or(around.timeout),
        queue_timeout: time("queue_timeout"),
        deadline: time("deadline"),
        env: env(look, table, around.folder),
        dir: get("dir")
            .and_then(|value| path(around.folder, value))
            .unwrap_or(around.folder.to_owned()),
        run: get("run").and_then(command)?,
    })
}

fn command(value: &Value<'_>) -> Option<Command> {
    match value.get_ref() {
        DeValue::Array(_) => texts(value).map(Command::Direct),
        _ => text(value).map(Command::Line),
    }
}

/// Where there are no inputs, nothing can stand for one.
fn no_placeholder(look: &mut Look<'_>, value: &Value<'_>) {
    let holds =
        |value: &Value<'_>| value.get_ref().as_str().is_some_and(|text| text.contains("{}"));
    match value.get_ref() {
        DeValue::Array(list) => {
            if let Some(argument) = list.iter().find(|argument| holds(argument)) {
                let what = "{} stands for the input of each, and this task has none: add each = { items = […] }";
                look.wrong(argument.span(), what);
            }
        }
        _ if holds(value) => {
            let what = "{} stands for the input of each, and this task has none: add each = { items = […] }, \
                        or write '{''}' for the shell to see {}";
            look.wrong(value.span(), what);
        }
        _ => {}
    }
}

/// In a line for the shell, an input must be data for certain.
fn check_placeholders(look: &mut Look<'_>, value: &Value<'_>, shell: &[String]) {
    let Some(line) = value.get_ref().as_str() else { return };
    let parsed = ShellLine::parse(line.as_bytes(), INPUT_ONLY);
    if line.contains("{}") && !is_known_shell(shell) {
        if !matches!(&parsed, Ok(parsed) if !parsed.has_placeholder()) {
            look.wrong(value.span(), unknown_shell(shell));
        }
    } else if let Err(doubtful) = parsed {
        let at = place_in_source(look, value, line, doubtful.at.start);
        look.wrong(at, doubtful.to_string());
    }
}

/// Where in the file a `{}` stands that is at this place of a text. Where the file writes the text
/// with escapes that make the two hard to compare, all of it is meant.
fn place_in_source(
    look: &Look<'_>,
    value: &Value<'_>,
    text: &str,
    at: usize,
) -> std::ops::Range<usize> {
    let span = value.span();
    let written = look.source.text.get(span.clone()).unwrap_or_default();
    let before = text[..at].matches("{}").count();
    let same = written.matches("{}").count() == text.matches("{}").count();
    match written.match_indices("{}").nth(before).filter(|_| same) {
        Some((at, mark)) => span.start + at..span.start + at + mark.len(),
        None => span,
    }
}

/// The one of these keys that is there; if it is not exactly one, that is noted.
fn only_one<'t, 's>(
    look: &mut Look<'_>,
    value: &Value<'_>,
    table: &'t DeTable<'s>,
    known: &Table,
) -> Option<(&'static str, &'t Value<'s>)> {
    let Table { what, one_of: keys, .. } = known;
    let there: Vec<_> =
        keys.iter().filter_map(|&key| table.get(key).map(|value| (key, value))).collect();
    match *there {
        [one] => return Some(one),
        // An unknown key has been told of, and may be the one.
        [] if table.keys().any(|name| known.key(name.get_ref()).is_none()) => {}
        [] => {
            let all = listed(*keys, "or");
            look.wrong(value.span(), format!("{what} names nothing: give it one of {all}"));
        }
        _ => {
            let names = listed(there.iter().map(|(key, _)| key), "and");
            look.wrong(value.span(), format!("{what} has {names}: keep one of them"));
        }
    }
    None
}

fn each(look: &mut Look<'_>, value: &Value<'_>, folder: &Path) -> Option<Each> {
    let table = value.get_ref().as_table()?;
    let (key, value) = only_one(look, value, table, &keys::EACH)?;
    match key {
        "glob" => text(value).map(Each::Glob),
        "lines" => path(folder, value).map(Each::Lines),
        _ => value
            .get_ref()
            .as_array()?
            .iter()
            .map(text_or_number)
            .collect::<Option<_>>()
            .map(Each::Items),
    }
}

/// A number as it is written in decimal.
fn text_or_number(value: &Value<'_>) -> Option<String> {
    text(value).or_else(|| shape::whole_number(value.get_ref()).map(|number| number.to_string()))
}

/// One wait, or a list of which all are meant.
fn waits(look: &mut Look<'_>, value: &Value<'_>, folder: &Path) -> Vec<WaitFor> {
    match value.get_ref() {
        DeValue::Array(list) => {
            list.iter().filter_map(|value| wait_for(look, value, folder)).collect()
        }
        _ => wait_for(look, value, folder).into_iter().collect(),
    }
}

fn wait_for(look: &mut Look<'_>, whole: &Value<'_>, folder: &Path) -> Option<WaitFor> {
    let table = whole.get_ref().as_table()?;
    let (kind, value) = only_one(look, whole, table, &keys::WAIT_FOR)?;
    for (key, kinds, why) in [
        ("unchanged_for", &["file"][..], "only a file stays unchanged"),
        ("every", &["file", "tcp", "http", "command"], "it is not looked at"),
        ("timeout", &["file", "tcp", "http", "command", "signal"], "it ends by itself"),
    ] {
        if let Some(value) = table.get(key).filter(|_| !kinds.contains(&kind)) {
            look.wrong(value.span(), format!("{key} does not go with {kind}: {why}; take it out"));
        }
    }
    let time = |key| shape::duration(table.get(key)?.get_ref());
    let what = match kind {
        "file" => {
            Awaited::File { path: path(folder, value)?, unchanged_for: time("unchanged_for") }
        }
        "tcp" => Awaited::Tcp(text(value)?),
        "http" => Awaited::Http(text(value)?),
        "command" => Awaited::Command(command(value)?),
        "signal" => Awaited::Signal(text(value)?),
        _ => Awaited::Delay(shape::duration(value.get_ref())?),
    };
    Some(WaitFor { what, every: time("every").unwrap_or(EVERY), timeout: time("timeout") })
}

/// A duration is the same pause each time; a table changes what a growing one is by default.
fn backoff(look: &mut Look<'_>, value: &Value<'_>) -> Option<Backoff> {
    let Some(table) = value.get_ref().as_table() else {
        return shape::duration(value.get_ref()).map(Backoff::fixed);
    };
    let time = |key| shape::duration(table.get(key)?.get_ref());
    let number = |key| shape::number(table.get(key)?.get_ref());
    let default = Backoff::default();
    let initial = time("initial").unwrap_or(default.first());
    let max = time("max").unwrap_or(default.longest().max(initial));
    let factor = number("factor").unwrap_or(default.factor());
    let jitter = number("jitter").unwrap_or(default.jitter());
    if max < initial {
        let what = format!(
            "backoff has a max of {} below its first pause of {}; make it at least as long",
            super::written(max),
            super::written(initial)
        );
        look.wrong(value.span(), what);
    }
    Backoff::exponential(initial, factor, max).and_then(|backoff| backoff.with_jitter(jitter)).ok()
}

fn limits(value: &Value<'_>) -> Vec<LimitUse> {
    match value.get_ref() {
        DeValue::Array(list) => list.iter().filter_map(text).map(LimitUse::from).collect(),
        DeValue::Table(table) => {
            let units =
                table.iter().filter_map(|(name, value)| Some((name.get_ref(), number(value)?)));
            units.map(|(name, units)| LimitUse::from((name.as_ref(), units))).collect()
        }
        _ => Vec::new(),
    }
}

/// The variables of the task's file, and behind them its own.
fn env(look: &mut Look<'_>, table: &DeTable<'_>, folder: &Path) -> Vec<(String, String)> {
    let file = table.get("env_file").map(|value| env_file::read(look, value, folder));
    let mut env = file.unwrap_or_default();
    let own = table.get("env").and_then(|value| value.get_ref().as_table());
    for (name, value) in own.into_iter().flat_map(|table| table.iter()) {
        if name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']) {
            let what = format!(
                "a variable cannot be called {}: a name has at least one character and no =",
                quoted(name.get_ref())
            );
            look.wrong(name.span(), what);
        }
        env.extend(text_or_number(value).map(|value| (name.get_ref().to_string(), value)));
    }
    env
}
