//! What tasks and limits mean together.

use super::decode::{number, text};
use super::mistakes::{SHOWN_MAX, quoted};
use super::shape::{Look, Name, Value};
use super::values::ParallelLimit;
use super::{Origin, Setting};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use tidegate::core::graph::{Graph, GraphError, Node, nearest};
use tidegate::{Limit, When};
use toml::de::DeValue;

/// A task as it stands in the file.
type Entry<'a, 't> = (&'a Name<'t>, &'a Value<'t>);

/// Looks for the name that was meant, as often as it will be shown: each time it is held against all
/// names, which takes minutes where thousands are wrong.
struct Guesses(usize);

impl Guesses {
    fn nearest<'n>(
        &mut self,
        name: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Option<&'n str> {
        self.0 += 1;
        if self.0 <= SHOWN_MAX { nearest(name, names) } else { None }
    }
}

/// Circles that are told of at once.
const CYCLES_MAX: usize = 8;

fn get<'a, 't>((_, task): &Entry<'a, 't>, key: &str) -> Option<&'a Value<'t>> {
    task.get_ref().as_table()?.get(key)
}

/// The graph of the tasks. Dependencies that make no sense are noted and left out, so that circles
/// among the others are found too.
pub(super) fn graph(look: &mut Look<'_>, entries: &[Entry<'_, '_>]) -> Option<Graph> {
    let mut arrows: Vec<Vec<(String, Range<usize>)>> = Vec::new();
    let names: HashSet<&str> = entries.iter().map(|(name, _)| name.get_ref().as_ref()).collect();
    let mut guesses = Guesses(0);
    for entry in entries {
        arrows.push(dependencies(look, entry, entries, &names, &mut guesses));
    }
    for _ in 0..CYCLES_MAX {
        let nodes = entries.iter().zip(&arrows).map(|(entry, after)| node(entry, after));
        let error = match Graph::new(nodes) {
            Ok(graph) => return Some(graph),
            Err(error) => error,
        };
        let GraphError::Cycle { path } = &error else { return untold(look, entries, &error) };
        // The second comes after the first: there the circle is shown, and cut to find the next.
        let at = entries.iter().position(|(name, _)| *name.get_ref() == path[1])?;
        let arrow = arrows[at].iter().position(|(name, _)| *name == path[0])?;
        look.wrong(arrows[at][arrow].1.clone(), error.to_string());
        arrows[at].retain(|(name, _)| *name != path[0]);
    }
    None
}

fn node((name, task): &Entry<'_, '_>, after: &[(String, Range<usize>)]) -> Node {
    let when = get(&(name, task), "when").and_then(text).and_then(|word| word.parse().ok());
    let node = Node::new(name.get_ref().as_ref()).after(after.iter().map(|(name, _)| name));
    node.when(when.filter(|_| !after.is_empty()).unwrap_or(When::AllSucceeded))
}

/// The tasks that one comes after, with their places, as far as they make sense.
fn dependencies(
    look: &mut Look<'_>,
    entry: &Entry<'_, '_>,
    entries: &[Entry<'_, '_>],
    names: &HashSet<&str>,
    guesses: &mut Guesses,
) -> Vec<(String, Range<usize>)> {
    let task = entry.0.get_ref();
    let mut known = Vec::new();
    let list = get(entry, "after").and_then(|value| value.get_ref().as_array());
    for value in list.into_iter().flat_map(|list| list.iter()) {
        let Some(name) = value.get_ref().as_str() else { continue };
        if name == task {
            let told = GraphError::SelfDependency { task: task.to_string() };
            look.wrong(value.span(), told.to_string());
        } else if names.contains(name) {
            known.push((name.to_owned(), value.span()));
        } else if !name.trim().is_empty() {
            let names = entries.iter().map(|(name, _)| name.get_ref().as_ref());
            let told = GraphError::UnknownDependency {
                task: task.to_string(),
                dependency: name.to_owned(),
                nearest: guesses
                    .nearest(name, names.filter(|other| other != task))
                    .map(str::to_owned),
            };
            look.wrong(value.span(), told.to_string());
        }
    }
    let none = list.is_none_or(|list| list.is_empty());
    if let Some(value) = get(entry, "when").filter(|_| none)
        && let Some(when) = text(value).and_then(|word| word.parse().ok())
        && matches!(when, When::AnyFailed | When::AnySucceeded)
    {
        let told = GraphError::RuleWithoutParents { task: task.to_string(), when };
        look.wrong(value.span(), told.to_string());
    }
    known
}

/// What only a name or the lack of tasks can cause has been noted where it stands.
fn untold(look: &mut Look<'_>, entries: &[Entry<'_, '_>], error: &GraphError) -> Option<Graph> {
    let told = matches!(error, GraphError::NoTasks | GraphError::EmptyName { .. });
    if let Some((name, _)) = entries.first().filter(|_| !told) {
        look.wrong(name.span(), error.to_string());
    }
    None
}

/// Tasks take limits that are there, each once, and no more of one than it can give.
pub(super) fn limits(look: &mut Look<'_>, entries: &[Entry<'_, '_>], limits: &[Limit]) {
    let by_name: HashMap<&str, &Limit> = limits.iter().map(|limit| (limit.name(), limit)).collect();
    let mut guesses = Guesses(0);
    for entry in entries {
        let Some(value) = get(entry, "limits") else { continue };
        let mut seen: HashSet<&str> = HashSet::new();
        let taken: Vec<(&str, Range<usize>, u32)> = match value.get_ref() {
            DeValue::Array(list) => list
                .iter()
                .filter_map(|name| Some((name.get_ref().as_str()?, name.span(), 1)))
                .collect(),
            DeValue::Table(table) => table
                .iter()
                .filter_map(|(name, units)| {
                    Some((name.get_ref().as_ref(), units.span(), number(units)?))
                })
                .collect(),
            _ => Vec::new(),
        };
        for (name, at, units) in taken {
            match by_name.get(name) {
                _ if !seen.insert(name) => {
                    let what = format!(
                        "limit {0} is there twice: to take two units, write limits = {{ {name} = 2 }}",
                        quoted(name)
                    );
                    look.wrong(at, what);
                }
                Some(limit) => take(look, limit, at, units),
                // An empty name has been told of.
                None if name.trim().is_empty() => {}
                None => {
                    let near = guesses.nearest(name, limits.iter().map(Limit::name));
                    let meant = near.map_or_else(
                        || format!("write {name} = 2 under [limits]"),
                        |near| format!("did you mean \"{near}\"?"),
                    );
                    look.wrong(at, format!("there is no limit {}: {meant}", quoted(name)));
                }
            }
        }
    }
}

fn take(look: &mut Look<'_>, limit: &Limit, at: Range<usize>, units: u32) {
    if units > 0 && !limit.can_hold(units) {
        let what = format!(
            "limit {} is {limit}, so no task can take {units}: take less, or make it larger",
            quoted(limit.name())
        );
        look.wrong(at, what);
    }
}

/// No task is heavier than all slots together.
pub(super) fn weights(
    look: &mut Look<'_>,
    entries: &[Entry<'_, '_>],
    limit: Setting<ParallelLimit>,
    cpus: u32,
) {
    let slots = limit.value.most(cpus);
    for value in entries.iter().filter_map(|entry| get(entry, "weight")) {
        let Some(weight) = number(value).filter(|&weight| weight > slots) else { continue };
        let from = match limit.from {
            Origin::CommandLine => " from the command line",
            Origin::Environment => " from TIDEGATE_PARALLEL_LIMIT",
            Origin::File => "",
            Origin::Default => ", the default",
        };
        let of = match limit.value {
            ParallelLimit::Exactly(_) => String::new(),
            other => format!(" ({other})"),
        };
        let what = format!(
            "a weight of {weight} does not fit a parallel_limit of {slots}{of}{from}; it must be \
             between 1 and {slots}"
        );
        look.wrong(value.span(), what);
    }
}
