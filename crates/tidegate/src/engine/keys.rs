//! The keys of limits: found in what a run works on, when it is submitted.

use super::SubmitError;
use serde_json::Value;
use std::sync::Arc;
use tidegate_core::graph::TaskIndex;
use tidegate_core::plan::{LimitUse, Plan, TaskPlan};

type Keys = Vec<(TaskIndex, Vec<Arc<str>>)>;

/// The keys of all tasks of a run with this input.
pub(super) fn of_run(plan: &Plan, input: Option<&[u8]>) -> Result<Keys, SubmitError> {
    let keyed: Vec<_> = plan.graph().tasks().filter(|task| has_keys(plan.task(*task))).collect();
    if keyed.is_empty() {
        return Ok(Vec::new());
    }
    let input = parse(input);
    let keys = keyed
        .into_iter()
        .map(|task| Ok((task, of_task(plan.task(task), plan.graph().name(task), &[&input])?)));
    keys.collect()
}

/// The keys of all items of a task, each of which may have them in itself, or else its run in what
/// it works on.
pub(super) fn of_items(
    plan: &TaskPlan,
    name: &str,
    items: &[Value],
    input: Option<&[u8]>,
) -> Result<Keys, SubmitError> {
    if !has_keys(plan) {
        return Ok(Vec::new());
    }
    let input = parse(input);
    let keys = (0..)
        .map(TaskIndex::from_u32)
        .zip(items)
        .map(|(index, item)| Ok((index, of_task(plan, name, &[item, &input])?)));
    keys.collect()
}

pub(super) fn has_keys(plan: &TaskPlan) -> bool {
    plan.limits.iter().any(|used| used.key.is_some())
}

fn parse(input: Option<&[u8]>) -> Value {
    input.and_then(|input| serde_json::from_slice(input).ok()).unwrap_or(Value::Null)
}

fn of_task(plan: &TaskPlan, name: &str, places: &[&Value]) -> Result<Vec<Arc<str>>, SubmitError> {
    let keyed = plan.limits.iter().filter_map(|used| Some((used, used.key.as_deref()?)));
    let keys = keyed.map(|(used, path)| {
        let found = places.iter().find_map(|place| at(place, path));
        match found {
            Some(Value::String(key)) => Ok(key.as_str().into()),
            Some(key @ (Value::Number(_) | Value::Bool(_))) => Ok(key.to_string().into()),
            found => Err(missing(used, path, name, found)),
        }
    });
    keys.collect()
}

fn missing(used: &LimitUse, path: &str, task: &str, found: Option<&Value>) -> SubmitError {
    let found = match found {
        None => "nothing",
        Some(Value::Null) => "null",
        Some(Value::Array(_)) => "a list",
        Some(_) => "an object",
    };
    let (task, limit, path) = (task.to_owned(), used.name.clone(), path.to_owned());
    SubmitError::LimitKey { task, limit, path, found }
}

/// What is found at a path, as in `"customer.id"`; lists are counted from 0.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, part| match value {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}
