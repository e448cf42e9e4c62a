//! What a run of a command file does, as it is told: events of the engine become facts about the tasks
//! of the file.
//!
//! Deliberately absent: what is made of it, which is `tell`'s, and what the truth is. Events may be
//! missed; the summary reads the store.

use crate::choice::{Choice, Part};
use crate::file::{File, Task};
use crate::plan::{ITEMS, WAIT};
use crate::tell::{Fact, How, Teller, Try, Who, written_short};
use crate::waves::{awaited_text, plain};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use tidegate::engine::{Happened, Kind, Missed, RunError, RunsPage, What};
use tidegate::{Engine, Event, RunId};

/// Tells of a run.
pub(crate) struct View<'f> {
    file: &'f File,
    choice: &'f Choice,
    engine: Engine,
    run: RunId,
    /// Where the run is, and whether it takes over from another.
    queue: &'f str,
    is_retry: bool,
    /// How many items tasks have, of which it is not known yet how many were done before.
    items: HashMap<String, u64>,
    /// Tasks of which it was said that they wait, or how they have ended.
    said: HashSet<String>,
    /// Tasks whose end was heard of, by their hash: there may be very many.
    heard: HashSet<u64>,
    hasher: RandomState,
    /// Whether there may be others.
    missed: bool,
    teller: Teller,
}

/// What a task of the workflow is to the file.
enum Role<'t> {
    Command(&'t Task),
    /// The command of one of the items.
    Item(&'t Task),
    /// The task whose items are commands.
    All(&'t Task),
    Waits(&'t Task),
    FindsItems(&'t Task),
    /// Nothing that is spoken of.
    None,
}

/// The end of a task or of one of its entries, as it is heard or read.
struct Ended<'a> {
    run: RunId,
    name: &'a str,
    how: Happened,
    attempt: u32,
    why: String,
}

impl<'f> View<'f> {
    pub(crate) fn new(
        file: &'f File,
        choice: &'f Choice,
        (engine, run): (Engine, RunId),
        (queue, is_retry): (&'f str, bool),
        teller: Teller,
    ) -> Self {
        let (said, heard, hasher) = (HashSet::new(), HashSet::new(), RandomState::new());
        let (items, missed) = (HashMap::new(), false);
        View {
            file,
            choice,
            engine,
            run,
            queue,
            is_retry,
            items,
            said,
            heard,
            hasher,
            missed,
            teller,
        }
    }

    fn role(&self, run: RunId, name: &str) -> Role<'f> {
        let find = |name: &str| {
            let index = self.file.graph.find(name)?;
            (self.choice.of(index) == Part::Runs).then(|| &self.file.tasks[index.as_usize()])
        };
        if run != self.run {
            let whole = name.rsplit_once('[').and_then(|(name, _)| find(name));
            return whole.filter(|task| task.each.is_some()).map_or(Role::None, Role::Item);
        }
        match find(name) {
            Some(task) if task.each.is_some() => Role::All(task),
            Some(task) => Role::Command(task),
            None => match (name.strip_suffix(WAIT), name.strip_suffix(ITEMS)) {
                (Some(name), _) => find(name).map_or(Role::None, Role::Waits),
                (_, Some(name)) => find(name).map_or(Role::None, Role::FindsItems),
                _ => Role::None,
            },
        }
    }

    /// Tells of an event, if it is of the run.
    pub(crate) async fn hear(&mut self, event: &Event) {
        let run = event.run;
        // Once something becomes of them, their run is stored.
        if let What::Began { task, .. } | What::Ended { task, .. } = &event.what
            && !self.items.is_empty()
            && let Role::Item(of) | Role::All(of) = self.role(run, task)
        {
            self.tell_of_items(of).await;
        }
        match &event.what {
            What::Began { task, attempt, slot } => {
                let (who, of) = match self.role(run, task) {
                    Role::Command(of) => (Who::task(task), of),
                    Role::Item(of) => (Who::item(task), of),
                    _ => return,
                };
                let (log, attempt) = (self.engine.log(run, task, *attempt), tries(of, *attempt));
                self.teller.tell(Fact::Began { who, attempt, slot: *slot, log });
            }
            What::Deferred { task, wait } => match self.role(run, task) {
                Role::Waits(of) => self.waits(of),
                Role::All(of) => {
                    let number = wait.split(' ').next().and_then(|number| number.parse().ok());
                    self.items.insert(of.name.clone(), number.unwrap_or(0));
                    // Which of them are taken over is known when their run is stored.
                    if !self.is_retry {
                        self.tell_of_items(of).await;
                    }
                }
                _ => {}
            },
            What::Ended { task, how, reason, attempt, error } => {
                let why = match (error, reason) {
                    (Some(error), _) => cause(error),
                    (None, Some(reason)) => reason.as_str().to_owned(),
                    (None, None) => String::new(),
                };
                self.ended(Ended { run, name: task, how: *how, attempt: *attempt, why });
            }
            _ => {}
        }
    }

    /// Some events came too fast to be told of.
    pub(crate) fn miss(&mut self, missed: Missed) {
        self.missed = true;
        self.teller.tell(Fact::Missed(missed.count));
    }

    /// Tells of what was not told so far, when no command is left.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn finish(&mut self) -> Result<(), RunError> {
        let runs = if self.missed { self.engine.runs(self.page()).await? } else { Vec::new() };
        for run in runs {
            for task in self.engine.run(run.id).await?.status().await?.tasks {
                let how = match task.kind {
                    Kind::Succeeded if !task.taken_over => Happened::Succeeded,
                    Kind::Failed => Happened::Failed,
                    Kind::TimedOut => Happened::TimedOut,
                    Kind::Cancelled => Happened::Cancelled,
                    Kind::Skipped => Happened::Skipped,
                    _ => continue,
                };
                if !self.heard.contains(&self.hasher.hash_one((run.id, &task.name))) {
                    let why = task.error.as_deref().map(cause).unwrap_or_default();
                    let (name, attempt) = (task.name.as_str(), task.attempt);
                    self.ended(Ended { run: run.id, name, how, attempt, why });
                }
            }
        }
        self.teller.all_ended();
        Ok(())
    }

    /// All runs that belong to this one.
    fn page(&self) -> RunsPage {
        RunsPage { queue: Some(self.queue.into()), limit: u32::MAX, ..RunsPage::default() }
    }

    async fn tell_of_items(&mut self, task: &Task) {
        let Some(count) = self.items.remove(&task.name) else { return };
        let taken_over = if self.is_retry { self.taken_over(task).await } else { 0 };
        self.teller.tell(Fact::Items { who: Who::task(&task.name), count, taken_over });
    }

    /// How many items of a task were done before. What cannot be read is not told: the end will be.
    async fn taken_over(&self, task: &Task) -> u64 {
        let runs = self.engine.runs(self.page()).await.unwrap_or_default();
        let items = runs.iter().find(|run| run.plan.items_of() == Some(&task.name));
        let Some(items) = items else { return 0 };
        let Ok(run) = self.engine.run(items.id).await else { return 0 };
        let tasks = run.status().await.map_or_else(|_| Vec::new(), |status| status.tasks);
        tasks.iter().filter(|item| item.taken_over).count() as u64
    }

    fn waits(&mut self, task: &Task) {
        if self.said.insert(task.name.clone() + WAIT) {
            let names = task.wait_for.iter().map(|wait| awaited_text(&self.file.folder, wait));
            let what = names.collect::<Vec<_>>().join(" and ");
            self.teller.tell(Fact::Waits { who: Who::task(&task.name), what });
        }
    }

    fn ended(&mut self, ended: Ended<'_>) {
        let how = match ended.how {
            Happened::Succeeded => How::Succeeded,
            Happened::Failed => How::Failed,
            Happened::TimedOut => How::TimedOut,
            Happened::Cancelled => How::Cancelled,
            Happened::Skipped => How::Skipped,
            _ => return self.entry_ended(ended),
        };
        let Ended { run, name, attempt, why, .. } = ended;
        self.heard.insert(self.hasher.hash_one((run, name)));
        let is_failure = matches!(how, How::Failed | How::TimedOut);
        let (who, attempt, log) = match self.role(run, name) {
            Role::Command(of) => {
                (Who::task(name), tries(of, attempt), self.engine.log(run, name, attempt))
            }
            Role::Item(of) => {
                (Who::item(name), tries(of, attempt), self.engine.log(run, name, attempt))
            }
            Role::All(of) => (Who::task(&of.name), ONCE, None),
            // What comes after has not ended otherwise.
            Role::Waits(of) | Role::FindsItems(of) if is_failure => {
                (Who::task(&of.name), ONCE, None)
            }
            _ => return,
        };
        if who.is_item || self.said.insert(who.name.clone()) {
            self.teller.tell(Fact::Ended { who, how, attempt, why, log });
        }
    }

    /// An entry has ended, and its task has not.
    fn entry_ended(&mut self, Ended { run, name, how, attempt, why }: Ended<'_>) {
        let (who, of) = match self.role(run, name) {
            Role::Command(of) => (Who::task(name), of),
            Role::Item(of) => (Who::item(name), of),
            Role::Waits(of) if how == Happened::Parked => return self.waits(of),
            _ => return,
        };
        match how {
            Happened::Retried => {
                let (log, pause) = (self.engine.log(run, name, attempt), again(of, attempt));
                let attempt = tries(of, attempt);
                self.teller.tell(Fact::Retried { who, attempt, why, pause, log });
            }
            Happened::HandedBack => self.teller.tell(Fact::Interrupted { who }),
            _ => {}
        }
    }
}

const ONCE: Try = Try { number: 1, of: 1 };

fn tries(task: &Task, number: u32) -> Try {
    Try { number, of: task.retries.saturating_add(1) }
}

/// When it is tried again. By how much chance changes that is not known here.
fn again(task: &Task, attempt: u32) -> String {
    // A chance of one half is in the middle.
    let pause = written_short(task.backoff.pause(attempt, 0.5));
    let about = if task.backoff.jitter() > 0.0 { "about " } else { "" };
    format!("in {about}{pause}")
}

/// What went wrong, on one line, without what is told elsewhere: the log, and what is in it.
pub(crate) fn cause(error: &str) -> String {
    let end = ["; it last wrote: ", " (log: "].iter().filter_map(|mark| error.find(mark)).min();
    let cause = error[..end.unwrap_or(error.len())].replace("the command ended with ", "");
    plain(cause.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_short() {
        for (error, right) in [
            (
                "the command ended with exit code 3 (log: /x/y.log); it last wrote: a; b",
                "exit code 3",
            ),
            ("the command ended with exit code 3; it last wrote: a", "exit code 3"),
            (
                "there is no program \"x\" in PATH (/bin)",
                "there is no program \"x\" in PATH (/bin)",
            ),
            ("the command was ended by signal 9", "the command was ended by signal 9"),
        ] {
            assert_eq!(cause(error), right);
        }
    }
}
