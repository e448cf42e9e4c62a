//! What a task is given besides its handle, and what it leaves behind.

use crate::task_error::Permanent;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tidegate_core::graph::TaskIndex;
use tidegate_core::store::{Bytes, Given};

/// How large what a task returns, or puts into the context, may be.
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;

/// The most lists and maps inside one another. Any number can be written, and no more be read.
pub(crate) const JSON_DEPTH_MAX: usize = 127;

/// Why the context does not have what a task wants of it, or does not take what it gives.
///
/// Another attempt would not mend it: a task that ends with it, in whatever error it was wrapped, is
/// not retried.
#[derive(Debug, Clone)]
pub struct ContextError {
    message: String,
}

impl ContextError {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        ContextError { message: message.to_string() }
    }
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ContextError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&Permanent)
    }
}

/// The application's own values, by type.
pub(crate) type States = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// What a task works on: the run's input, what the tasks before it have left, and the application's
/// state. `Context` alone has the input as JSON; `Context<Order>` has it as an `Order`.
pub struct Context<I = Value> {
    /// Read when the task begins; for an item, when it asks for it: the input may well be the list.
    input: OnceLock<I>,
    around: Around,
    inserts: Map<String, Value>,
}

/// The part of a context that does not depend on the type of the input.
pub(crate) struct Around {
    pub(crate) given: Given,
    pub(crate) number: u32,
    pub(crate) states: Arc<States>,
}

impl Around {
    fn name(&self, task: TaskIndex) -> &str {
        self.given.plan.graph().name(task)
    }

    fn own_name(&self) -> &str {
        self.name(self.given.task)
    }

    /// The task of this name that this one depends on.
    fn parent(&self, name: &str) -> Option<TaskIndex> {
        let graph = self.given.plan.graph();
        graph.find(name).filter(|task| graph.parents(self.given.task).contains(task))
    }

    /// The task of this name that this one comes after, directly or not.
    fn ancestor(&self, name: &str) -> Result<TaskIndex, ContextError> {
        let graph = self.given.plan.graph();
        let found = graph.find(name).filter(|task| graph.ancestors(self.given.task).contains(task));
        found.ok_or_else(|| {
            let own = self.own_name();
            ContextError::new(format!("task \"{own}\" does not come after a task \"{name}\""))
        })
    }
}

impl<I: DeserializeOwned> Context<I> {
    /// # Errors
    /// The run's input is no `I`; another attempt would not mend that.
    pub(crate) fn new(around: Around) -> Result<Self, ContextError> {
        let input = match around.given.item {
            None => OnceLock::from(around.read_input::<I>()?),
            Some(_) => OnceLock::new(),
        };
        Ok(Context { input, around, inserts: Map::new() })
    }

    /// What the run was submitted with. A run whose input cannot be read as `I` fails, and is not
    /// retried.
    pub fn input(&self) -> &I {
        self.input.get_or_init(|| match self.around.read_input() {
            Ok(input) => input,
            // Caught where the body is polled, and there what it is.
            Err(error) => std::panic::resume_unwind(Box::new(error)),
        })
    }
}

impl Around {
    fn read_input<I: DeserializeOwned>(&self) -> Result<I, ContextError> {
        let input = self.given.input.as_deref().unwrap_or(b"null");
        serde_json::from_slice(input).map_err(|error| {
            let wanted = type_name::<I>();
            ContextError::new(format!("the run's input cannot be read as {wanted}: {error}"))
        })
    }
}

impl<I> Context<I> {
    /// What a task that this one depends on has returned.
    ///
    /// # Errors
    /// This task does not come directly after a task of that name, it has not succeeded, or what it
    /// returned is no `T`.
    pub fn output<T: DeserializeOwned>(&self, task: &str) -> Result<T, ContextError> {
        let parent = self.around.parent(task).ok_or_else(|| self.no_parent(task))?;
        if self.around.given.absent.contains(&parent) {
            let wrong = format!("task \"{task}\" has not succeeded and returned nothing");
            return Err(ContextError::new(wrong));
        }
        let bytes = self.around.given.outputs.iter().find(|(of, _)| *of == parent);
        // A task that returns nothing leaves nothing.
        let bytes = bytes.map_or(&b"null"[..], |(_, bytes)| bytes);
        serde_json::from_slice(bytes).map_err(|error| {
            let wanted = type_name::<T>();
            let wrong = format!("what \"{task}\" returned cannot be read as {wanted}: {error}");
            ContextError::new(wrong)
        })
    }

    /// Whether a task that this one depends on has succeeded. Under rules like
    /// [`When::AllDone`](crate::When::AllDone) it may not have, and then has no output.
    ///
    /// # Errors
    /// This task does not come directly after a task of that name.
    pub fn has_succeeded(&self, task: &str) -> Result<bool, ContextError> {
        let parent = self.around.parent(task).ok_or_else(|| self.no_parent(task))?;
        Ok(!self.around.given.absent.contains(&parent))
    }

    fn no_parent(&self, task: &str) -> ContextError {
        let own = self.around.own_name();
        ContextError::new(format_args!("task \"{own}\" does not depend on a task \"{task}\""))
    }

    /// A value of the application's, given to the engine with
    /// [`EngineBuilder::state`](crate::EngineBuilder::state).
    ///
    /// # Errors
    /// The engine was given none of this type.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, ContextError> {
        let state = self.around.states.get(&TypeId::of::<T>()).cloned();
        let state = state.and_then(|state| state.downcast().ok());
        state.ok_or_else(|| {
            let wanted = type_name::<T>();
            let wrong =
                format!("the engine has no state of type {wanted}; give it one with state()");
            ContextError::new(wrong)
        })
    }

    /// The item for which this task is done, if it is done for [each](crate::Task::each) of a list.
    ///
    /// # Errors
    /// It is not, or the item is no `T`.
    pub fn item<T: DeserializeOwned>(&self) -> Result<T, ContextError> {
        let Some(item) = &self.around.given.item else {
            let own = self.around.own_name();
            let wrong = format!("task \"{own}\" is not done for items; say each() of it");
            return Err(ContextError::new(wrong));
        };
        serde_json::from_slice(item).map_err(|error| {
            let wanted = type_name::<T>();
            ContextError::new(format!("the item cannot be read as {wanted}: {error}"))
        })
    }

    /// Which item it is, from 0; 0 for a task that is not done for items.
    pub fn item_number(&self) -> u32 {
        match self.around.given.item {
            Some(_) => self.around.number,
            None => 0,
        }
    }

    /// The name of the task, or of the one whose item it is.
    #[cfg(unix)]
    pub(crate) fn task_name(&self) -> &str {
        self.around.own_name()
    }

    /// The list that is found under this name: what a task returned that this one depends on, or
    /// else what is in the context.
    pub(crate) fn list(&self, source: &str) -> Result<Vec<Value>, ContextError> {
        let found = match self.around.parent(source) {
            Some(_) => Some(self.output(source)?),
            None => self.get(source)?,
        };
        let kind = match found {
            Some(Value::Array(list)) => return Ok(list),
            Some(Value::Null) | None => "nothing",
            Some(Value::Object(_)) => "an object",
            Some(Value::String(_)) => "a text",
            Some(Value::Number(_)) => "a number",
            Some(Value::Bool(_)) => "a yes or no",
        };
        let own = self.around.own_name();
        Err(ContextError::new(format!(
            "task \"{own}\" is done for each of \"{source}\", which is {kind} and not a list; it is \
             looked for in what a task of this name returned that \"{own}\" depends on, in the \
             context and in the input"
        )))
    }

    /// Puts a value into the context, for the tasks that come after this one. It is stored if the
    /// task succeeds, together with what it returns, and not at all otherwise.
    ///
    /// # Errors
    /// The value cannot be written as JSON; or this task is one of many items, which leave what they
    /// return and nothing else.
    pub fn insert(
        &mut self,
        key: impl Into<String>,
        value: impl Serialize,
    ) -> Result<(), ContextError> {
        if self.around.given.item.is_some() {
            let wrong = "an item cannot put anything into the context; what it returns is kept";
            return Err(ContextError::new(wrong));
        }
        let value = serde_json::to_value(value).map_err(ContextError::new)?;
        self.inserts.insert(key.into(), value);
        Ok(())
    }

    /// What this task has put into the context under this key, else what the tasks above it have,
    /// else what the input has there; `None` if nobody has.
    ///
    /// What a task has put there hides what the tasks above it have.
    ///
    /// # Errors
    /// Two tasks of which neither comes after the other have put different values there
    /// ([`from`](Self::from) picks one), or the value is no `T`.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ContextError> {
        let found = match self.inserts.get(key) {
            Some(value) => Some(value.clone()),
            None => match self.inherited(key)? {
                Some(value) => Some(value),
                None => self.in_input(key),
            },
        };
        found.map(|value| read(key, value)).transpose()
    }

    /// What this task, which the present one comes after, has put into the context.
    ///
    /// # Errors
    /// This task does not come after one of that name, or the value is no `T`.
    pub fn from<T: DeserializeOwned>(
        &self,
        task: &str,
        key: &str,
    ) -> Result<Option<T>, ContextError> {
        let task = self.around.ancestor(task)?;
        let found = self.inserted_by(task)?.and_then(|mut map| map.remove(key));
        found.map(|value| read(key, value)).transpose()
    }

    fn inserted_by(&self, task: TaskIndex) -> Result<Option<Map<String, Value>>, ContextError> {
        let bytes = self.around.given.inserts.iter().find(|(by, _)| *by == task);
        let map = bytes.map(|(_, bytes)| serde_json::from_slice(bytes));
        map.transpose().map_err(ContextError::new)
    }

    fn inherited(&self, key: &str) -> Result<Option<Value>, ContextError> {
        let graph = self.around.given.plan.graph();
        let mut found: Vec<(TaskIndex, Value)> = Vec::new();
        for &(task, _) in &self.around.given.inserts {
            let value = self.inserted_by(task)?.and_then(|mut map| map.remove(key));
            found.extend(value.map(|value| (task, value)));
        }
        let hidden: Vec<TaskIndex> =
            found.iter().flat_map(|(task, _)| graph.ancestors(*task)).collect();
        found.retain(|(task, _)| !hidden.contains(task));
        match found.as_slice() {
            [] => Ok(None),
            [(first, value), others @ ..] => match others.iter().find(|(_, it)| it != value) {
                None => Ok(Some(value.clone())),
                Some((other, _)) => {
                    let (one, other) = (self.around.name(*first), self.around.name(*other));
                    Err(ContextError::new(format!(
                        "\"{key}\" was put into the context by \"{one}\" and, differently, by \
                         \"{other}\"; from() picks one of them"
                    )))
                }
            },
        }
    }

    fn in_input(&self, key: &str) -> Option<Value> {
        let input = self.around.given.input.as_deref()?;
        let mut map: Map<String, Value> = serde_json::from_slice(input).ok()?;
        map.remove(key)
    }

    /// What is to be stored of it.
    pub(crate) fn into_inserts(self) -> Result<Option<Bytes>, ContextError> {
        match self.inserts.is_empty() {
            true => Ok(None),
            false => encode("what the task put into the context", &self.inserts),
        }
    }
}

fn read<T: DeserializeOwned>(key: &str, value: Value) -> Result<T, ContextError> {
    serde_json::from_value(value).map_err(|error| {
        let wanted = type_name::<T>();
        ContextError::new(format!("\"{key}\" cannot be read as {wanted}: {error}"))
    })
}

/// A value as it is stored; nothing stands for `null`.
///
/// # Errors
/// It cannot be written as JSON, or is too large or too deep; `what` it is stands in the message.
pub(crate) fn encode(what: &str, value: &impl Serialize) -> Result<Option<Bytes>, ContextError> {
    let bytes = serde_json::to_vec(value).map_err(ContextError::new)?;
    check_json(what, &bytes)?;
    Ok((bytes != b"null").then(|| bytes.into()))
}

/// Whether this can be stored, and read again.
///
/// # Errors
/// It is too large or too deep.
pub(crate) fn check_json(what: &str, json: &[u8]) -> Result<(), ContextError> {
    let (size, depth) = (json.len(), json_depth(json));
    if size > PAYLOAD_MAX {
        let wrong = format!("{what} is {size} bytes of JSON; at most {PAYLOAD_MAX} are stored");
        return Err(ContextError::new(wrong));
    }
    if depth > JSON_DEPTH_MAX {
        let wrong =
            format!("{what} is {depth} levels of JSON; at most {JSON_DEPTH_MAX} are stored");
        return Err(ContextError::new(wrong));
    }
    Ok(())
}

/// How many lists and maps are inside one another at most. What is too short to be too deep is not
/// looked at.
pub(crate) fn json_depth(json: &[u8]) -> usize {
    if json.len() <= 2 * JSON_DEPTH_MAX {
        return 0;
    }
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

impl<I: fmt::Debug> fmt::Debug for Context<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inserts: Vec<&String> = self.inserts.keys().collect();
        f.debug_struct("Context").field("inserts", &inserts).finish_non_exhaustive()
    }
}
