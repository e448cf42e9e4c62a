//! Which tasks of a file are meant: `--only` and `--skip`.

use crate::file::{File, quoted};
use std::fmt;
use std::path::Path;
use tidegate::core::graph::{TaskIndex, nearest};

/// What is to become of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It has its turn.
    Runs,
    /// It counts as one that has succeeded.
    Skipped,
    /// It is not part of this run, nor does anything that is come after it.
    LeftOut,
}

/// What is to become of each task, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice(Vec<Part>);

impl Choice {
    pub(crate) fn of(&self, task: TaskIndex) -> Part {
        self.0[task.as_usize()]
    }
}

/// Names that make no choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChoiceError {
    Unknown { option: &'static str, name: String, nearest: Option<String>, is_file: bool },
    Both(String),
    Nothing,
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::Unknown { option, name, nearest, is_file } => {
                write!(f, "{option} names {}, which is no task of the file", quoted(name))?;
                match nearest {
                    Some(near) => write!(f, "; did you mean {}?", quoted(near)),
                    None if *is_file => write!(f, "; the command file is named before {option}"),
                    None => Ok(()),
                }
            }
            ChoiceError::Both(name) => {
                write!(f, "{} is named by --only and by --skip; choose one", quoted(name))
            }
            ChoiceError::Nothing => {
                f.write_str("--skip names every task, so nothing is left to run; leave one out")
            }
        }
    }
}

/// With `only`: these and what they come after; a skipped task needs nothing before it.
///
/// # Errors
/// Names that no task has, that contradict each other, or that leave nothing.
pub(crate) fn choose(file: &File, only: &[String], skip: &[String]) -> Result<Choice, ChoiceError> {
    let only = named(file, "--only", only)?;
    let skip = named(file, "--skip", skip)?;
    if let Some(&both) = only.iter().find(|task| skip.contains(task)) {
        return Err(ChoiceError::Both(file.graph.name(both).to_owned()));
    }
    let all = || file.graph.tasks().collect();
    let mut parts = vec![Part::LeftOut; file.graph.task_count()];
    let mut wanted: Vec<TaskIndex> = if only.is_empty() { all() } else { only };
    while let Some(task) = wanted.pop() {
        let part = &mut parts[task.as_usize()];
        if *part != Part::LeftOut {
            continue;
        }
        *part = if skip.contains(&task) { Part::Skipped } else { Part::Runs };
        if *part == Part::Runs {
            wanted.extend(file.graph.parents(task));
        }
    }
    match parts.contains(&Part::Runs) {
        true => Ok(Choice(parts)),
        false => Err(ChoiceError::Nothing),
    }
}

/// The tasks of these names.
///
/// # Errors
/// There is none of a name.
pub(crate) fn named(
    file: &File,
    option: &'static str,
    names: &[String],
) -> Result<Vec<TaskIndex>, ChoiceError> {
    let find = |name: &String| {
        let known = file.tasks.iter().map(|task| task.name.as_str());
        file.graph.find(name).ok_or_else(|| ChoiceError::Unknown {
            option,
            name: name.clone(),
            nearest: nearest(name, known).map(str::to_owned),
            is_file: Path::new(name).is_file(),
        })
    };
    names.iter().map(find).collect()
}
