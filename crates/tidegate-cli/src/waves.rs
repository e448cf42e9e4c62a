//! The plan of a dry run: tasks in waves, each behind what it comes after.
//!
//! A wave is not a barrier: a task begins when those it comes after have ended, and does not wait for
//! the rest of their wave.

use crate::choice::{Choice, Part};
use crate::file::{
    Awaited, Command, Each, File, ParallelLimit, Task, WaitFor, push_plain, written,
};
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use tidegate::core::graph::{Outcome, TaskIndex, Verdict};
use tidegate::{Backoff, When};

/// Lines are broken to stay below this many columns.
const COLUMNS: usize = 80;

/// A longer name stands on a line of its own.
const NAME_MAX: usize = 20;

/// What would run, and when.
#[derive(Debug)]
pub(crate) struct Plan<'f> {
    file: &'f File,
    cpus: u32,
    waves: Vec<Vec<TaskIndex>>,
    /// Count as succeeded.
    skipped: Vec<TaskIndex>,
    /// Have a rule that cannot be met, because of what is skipped.
    never: Vec<TaskIndex>,
    left_out: Vec<TaskIndex>,
}

impl<'f> Plan<'f> {
    pub(crate) fn new(file: &'f File, choice: &Choice, cpus: u32) -> Self {
        let graph = &file.graph;
        let mut plan = Plan {
            file,
            cpus,
            waves: Vec::new(),
            skipped: Vec::new(),
            never: Vec::new(),
            left_out: Vec::new(),
        };
        let mut outcomes = vec![None; graph.task_count()];
        let mut waves = vec![0; graph.task_count()];
        for &task in graph.order() {
            let at = task.as_usize();
            match choice.of(task) {
                Part::LeftOut => plan.left_out.push(task),
                Part::Skipped => {
                    outcomes[at] = Some(Outcome::Succeeded);
                    plan.skipped.push(task);
                }
                Part::Runs
                    if matches!(
                        graph.verdict(task, |other| outcomes[other.as_usize()]),
                        Verdict::Skip { .. }
                    ) =>
                {
                    outcomes[at] = Some(Outcome::Skipped);
                    plan.never.push(task);
                }
                Part::Runs => {
                    let open = graph
                        .parents(task)
                        .iter()
                        .filter(|parent| outcomes[parent.as_usize()].is_none());
                    waves[at] = open.map(|parent| waves[parent.as_usize()] + 1).max().unwrap_or(0);
                    if plan.waves.len() == waves[at] {
                        plan.waves.push(Vec::new());
                    }
                    plan.waves[waves[at]].push(task);
                }
            }
        }
        // In the order of the file, also where the graph's is another.
        for list in
            plan.waves.iter_mut().chain([&mut plan.skipped, &mut plan.never, &mut plan.left_out])
        {
            list.sort_unstable();
        }
        plan
    }

    fn task(&self, task: TaskIndex) -> &'f Task {
        &self.file.tasks[task.as_usize()]
    }

    fn names(&self, tasks: &[TaskIndex]) -> Vec<&'f str> {
        tasks.iter().map(|&task| self.file.graph.name(task)).collect()
    }

    /// The same as data.
    pub(crate) fn to_json(&self) -> Value {
        let file = self.file;
        let wave = |wave: &Vec<TaskIndex>| -> Vec<Value> {
            wave.iter().map(|&task| task_json(self.task(task))).collect()
        };
        let limits = file.limits.iter().map(|limit| {
            let rate = limit
                .most_in_time()
                .map(|rate| json!({ "units": rate.units, "seconds": rate.per.as_secs_f64() }));
            json!({ "name": limit.name(), "at_once": limit.most_at_once(), "rate": rate })
        });
        let min = match file.parallel_limit.value {
            ParallelLimit::Between(min, _) => min,
            other => other.most(self.cpus),
        };
        json!({
            "version": 1,
            "file": file.path.to_string_lossy(),
            "folder": file.folder.to_string_lossy(),
            "name": file.name,
            "parallel_limit": {
                "written": file.parallel_limit.value.to_string(),
                "min": min,
                "max": file.parallel_limit.value.most(self.cpus),
                "from": file.parallel_limit.from.as_str(),
            },
            "task_timeout": {
                "seconds": file.task_timeout.value.map(|time| time.as_secs_f64()),
                "from": file.task_timeout.from.as_str(),
            },
            "on_failure": file.on_failure.to_string(),
            "shell": file.shell,
            "limits": limits.collect::<Vec<_>>(),
            "waves": self.waves.iter().map(wave).collect::<Vec<_>>(),
            "skipped": self.names(&self.skipped),
            "never": self.names(&self.never),
            "left_out": self.names(&self.left_out),
        })
    }
}

/// A task as data. Of variables only the names: their values may be secret.
fn task_json(task: &Task) -> Value {
    let limits = task.limits.iter().map(|limit| (limit.name.clone(), limit.units.into()));
    let mut env: Vec<&str> = task.env.iter().map(|(name, _)| name.as_str()).collect();
    env.sort_unstable();
    env.dedup();
    json!({
        "name": task.name,
        "run": command_json(&task.run),
        "after": task.after,
        "when": task.when.to_string(),
        "each": task.each.as_ref().map(|each| match each {
            Each::Glob(pattern) => json!({ "glob": pattern }),
            Each::Items(items) => json!({ "items": items }),
            Each::Lines(path) => json!({ "lines": path.to_string_lossy() }),
        }),
        "wait_for": task.wait_for.iter().map(wait_json).collect::<Vec<_>>(),
        "retries": task.retries,
        "backoff": backoff_json(&task.backoff),
        "limits": limits.collect::<serde_json::Map<_, Value>>(),
        "weight": task.weight,
        "priority": task.priority,
        "timeout": task.timeout.map(|time| time.as_secs_f64()),
        "queue_timeout": task.queue_timeout.map(|time| time.as_secs_f64()),
        "deadline": task.deadline.map(|time| time.as_secs_f64()),
        "env": env,
        "dir": task.dir.to_string_lossy(),
    })
}

fn command_json(command: &Command) -> Value {
    match command {
        Command::Line(line) => json!(line),
        Command::Direct(words) => json!(words),
    }
}

fn backoff_json(backoff: &Backoff) -> Value {
    json!({
        "initial": backoff.first().as_secs_f64(),
        "factor": backoff.factor(),
        "max": backoff.longest().as_secs_f64(),
        "jitter": backoff.jitter(),
    })
}

fn wait_json(wait: &WaitFor) -> Value {
    let mut value = match &wait.what {
        Awaited::File { path, unchanged_for } => json!({
            "file": path.to_string_lossy(),
            "unchanged_for": unchanged_for.map(|time| time.as_secs_f64()),
        }),
        Awaited::Tcp(address) => json!({ "tcp": address }),
        Awaited::Http(url) => json!({ "http": url }),
        Awaited::Command(command) => json!({ "command": command_json(command) }),
        Awaited::Signal(name) => json!({ "signal": name }),
        Awaited::Delay(time) => json!({ "delay": time.as_secs_f64() }),
    };
    if !matches!(wait.what, Awaited::Signal(_) | Awaited::Delay(_)) {
        value["every"] = json!(wait.every.as_secs_f64());
    }
    if let Some(timeout) = wait.timeout {
        value["timeout"] = json!(timeout.as_secs_f64());
    }
    value
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file;
        let tasks = self.waves.iter().map(Vec::len).sum();
        let mut facts = vec![
            format!(
                "{}: {} in {}",
                plain(&file.name),
                count(tasks, "task"),
                count(self.waves.len(), "wave")
            ),
            slots(file.parallel_limit.value, self.cpus),
            file.on_failure.to_string(),
        ];
        facts.extend(file.task_timeout.value.map(|time| format!("time-out {}", written(time))));
        paragraph(f, 0, &facts)?;
        if !file.limits.is_empty() {
            let limits = file.limits.iter().map(|limit| format!("{} {limit}", plain(limit.name())));
            paragraph(f, 0, &[&["limits:".to_owned()][..], &limits.collect::<Vec<_>>()].concat())?;
        }
        let names = self
            .waves
            .iter()
            .flatten()
            .map(|&task| plain(self.file.graph.name(task)).chars().count());
        let column = names.filter(|&length| length <= NAME_MAX).max().unwrap_or(0) + 4;
        for (number, wave) in self.waves.iter().enumerate() {
            writeln!(f, "\nwave {}", number + 1)?;
            for &task in wave {
                self.show(f, self.task(task), column)?;
            }
        }
        for (what, tasks) in [
            ("skipped, as if succeeded:", &self.skipped),
            ("never run, because of what is skipped:", &self.never),
            ("left out:", &self.left_out),
        ] {
            if !tasks.is_empty() {
                writeln!(f)?;
                let names = self.names(tasks).into_iter().map(plain).collect::<Vec<_>>();
                paragraph(f, 0, &[&[what.to_owned()][..], &names].concat())?;
            }
        }
        Ok(())
    }
}

impl Plan<'_> {
    /// The name and the command, and below it everything else that is not as usual.
    fn show(&self, f: &mut fmt::Formatter<'_>, task: &Task, column: usize) -> fmt::Result {
        let name = plain(&task.name);
        match name.chars().count() <= NAME_MAX {
            true => write!(f, "  {name:<width$}", width = column - 2)?,
            false => write!(f, "  {name}\n{:column$}", "")?,
        }
        writeln!(f, "{}", short(&command_text(&task.run), COLUMNS - column))?;
        paragraph(f, column, &self.facts(task))
    }

    fn facts(&self, task: &Task) -> Vec<String> {
        let folder = &self.file.folder;
        let mut facts = Vec::new();
        if !task.after.is_empty() {
            let names = task.after.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", ");
            facts.push(match task.when {
                When::AllSucceeded => format!("after {names}"),
                when => format!("after {names} ({when})"),
            });
        }
        facts.extend(task.each.as_ref().map(|each| match each {
            Each::Glob(pattern) => format!("each path that fits {}", plain(pattern)),
            Each::Items(items) => format!("each of {}", count(items.len(), "item")),
            Each::Lines(path) => format!("each line of {}", seen_from(folder, path)),
        }));
        facts.extend(task.wait_for.iter().map(|wait| wait_text(folder, wait)));
        facts.extend(
            task.limits
                .iter()
                .map(|limit| format!("takes {} of {}", limit.units, plain(&limit.name))),
        );
        if task.weight != 1 {
            facts.push(format!("weight {}", task.weight));
        }
        if task.retries > 0 {
            facts.push(count(task.retries as usize, "retr"));
        }
        if task.timeout != self.file.task_timeout.value {
            facts.extend(task.timeout.map(|time| format!("time-out {}", written(time))));
        }
        facts.extend(task.queue_timeout.map(|time| format!("queue time-out {}", written(time))));
        facts.extend(task.deadline.map(|time| format!("deadline {}", written(time))));
        if task.priority != 0 {
            facts.push(format!("priority {}", task.priority));
        }
        if task.dir != *folder {
            facts.push(format!("in {}", seen_from(folder, &task.dir)));
        }
        facts
    }
}

fn slots(limit: ParallelLimit, cpus: u32) -> String {
    match limit {
        ParallelLimit::Between(min, max) => format!("{min} to {max} at a time"),
        ParallelLimit::Exactly(slots) => format!("{slots} at a time"),
        other => format!("{} at a time ({other})", other.most(cpus)),
    }
}

fn wait_text(folder: &Path, wait: &WaitFor) -> String {
    let what = awaited_text(folder, wait);
    let mut text = match wait.what {
        Awaited::Delay(_) => format!("waits {what}"),
        _ => format!("waits for {what}"),
    };
    if let Some(timeout) = wait.timeout {
        text.push_str(&format!(", {} at most", written(timeout)));
    }
    text
}

/// What is waited for.
pub(crate) fn awaited_text(folder: &Path, wait: &WaitFor) -> String {
    match &wait.what {
        Awaited::File { path, unchanged_for: None } => seen_from(folder, path),
        Awaited::File { path, unchanged_for: Some(time) } => {
            format!("{}, unchanged for {}", seen_from(folder, path), written(*time))
        }
        Awaited::Tcp(address) => plain(address),
        Awaited::Http(url) => plain(url),
        Awaited::Command(command) => format!("command {}", short(&command_text(command), 40)),
        Awaited::Signal(name) => format!("signal {}", plain(name)),
        Awaited::Delay(time) => written(*time),
    }
}

fn seen_from(folder: &Path, path: &Path) -> String {
    plain(&path.strip_prefix(folder).unwrap_or(path).to_string_lossy())
}

/// A command on one line.
pub(crate) fn command_text(command: &Command) -> String {
    match command {
        Command::Line(line) => {
            let lines: Vec<_> =
                line.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            plain(&lines.join("; "))
        }
        Command::Direct(words) => {
            let quote = |word: &String| match word.is_empty()
                || word.contains([' ', '\'', '"', '\t', '\n'])
            {
                true => format!("{word:?}"),
                false => plain(word),
            };
            words.iter().map(quote).collect::<Vec<_>>().join(" ")
        }
    }
}

pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    push_plain(&mut plain, text, 4_096);
    plain
}

fn short(text: &str, max: usize) -> String {
    let mut short = String::new();
    let fits = text.chars().count() <= max;
    push_plain(&mut short, text, if fits { max } else { max.saturating_sub(1) });
    short
}

/// `1 task`, `2 tasks`, `3 retries`.
pub(crate) fn count(number: usize, what: &str) -> String {
    let end = match (what.ends_with("tr"), number) {
        (true, 1) => "y",
        (true, _) => "ies",
        (false, 1) => "",
        (false, _) => "s",
    };
    format!("{number} {what}{end}")
}

/// Facts behind each other, broken between two of them, or else between words.
fn paragraph(f: &mut fmt::Formatter<'_>, indent: usize, facts: &[String]) -> fmt::Result {
    let mut line = String::new();
    for (index, fact) in facts.iter().enumerate() {
        let last = index + 1 == facts.len();
        let comma = if last || fact.ends_with(':') { "" } else { ";" };
        for word in format!("{fact}{comma}").split(' ') {
            let used = indent + line.chars().count();
            if !line.is_empty() && used + 1 + word.chars().count() > COLUMNS {
                writeln!(f, "{:indent$}{line}", "")?;
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    match line.is_empty() {
        true => Ok(()),
        false => writeln!(f, "{:indent$}{line}", ""),
    }
}
