//! Hears, in the worker itself, that entries of a task begin and end.
//!
//! Events may be missed and come when something is stored; a hook is called in the middle of it, in
//! order, while the entry still has its slot. It says nothing of what becomes of the report: a task
//! may have been cancelled in the meantime. That is told apart, once it is stored ([`StoredEnd`]).

use crate::contain::contain_panic;
use std::fmt;
use std::sync::Arc;
use tidegate_core::RunId;
use tidegate_core::dispatcher::End;
use tidegate_core::lifecycle::{Failure, Reason};
use tidegate_core::store::Happened;

/// What a function given to [`Task::on_entry`](crate::Task::on_entry) is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryEvent<'a> {
    /// The run of the task, or of the items.
    pub run: RunId,
    /// The task, or the item, as in `greet[3]`.
    pub task: &'a str,
    /// In which attempt.
    pub attempt: u32,
    /// What the entry does.
    pub stage: EntryStage<'a>,
}

/// What an entry does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryStage<'a> {
    /// It is about to call the task's function.
    Begins {
        /// The item for which it does so, as JSON, if it is done for items.
        item: Option<&'a [u8]>,
        /// The number of its slot, if it is a command.
        slot: Option<u32>,
    },
    /// The function has succeeded.
    Succeeded,
    /// The function has failed, panicked, or its time was up.
    Failed {
        /// What went wrong, in words.
        error: &'a str,
        /// In which way.
        reason: Reason,
        /// Whether no further attempt follows.
        is_final: bool,
    },
    /// The function was stopped, or wants to be called again later: it waits as a row, is snoozed,
    /// handed back or cancelled. When it was dropped in the middle, its slot is free already.
    Left,
}

/// What a function given to [`Task::on_stored_end`](crate::Task::on_stored_end) is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredEnd<'a> {
    /// The run of the task, or of the items.
    pub run: RunId,
    /// The task, or the item, as in `greet[3]`.
    pub task: &'a str,
    /// In which attempt.
    pub attempt: u32,
    /// What the store has of the entry; `None` if it did not take the end that was reported, because
    /// the task was not this worker's any more.
    pub how: Option<Happened>,
}

type HearEntry = dyn Fn(&EntryEvent<'_>) + Send + Sync;
type HearStoredEnd = dyn Fn(&StoredEnd<'_>) + Send + Sync;

/// Functions that hear of entries.
#[derive(Clone, Default)]
pub(crate) struct Hook {
    entry: Option<Arc<HearEntry>>,
    stored_end: Option<Arc<HearStoredEnd>>,
}

impl Hook {
    pub(crate) fn set_entry(&mut self, hear: impl Fn(&EntryEvent<'_>) + Send + Sync + 'static) {
        self.entry = Some(Arc::new(hear));
    }

    pub(crate) fn set_stored_end(&mut self, hear: impl Fn(&StoredEnd<'_>) + Send + Sync + 'static) {
        self.stored_end = Some(Arc::new(hear));
    }

    pub(super) fn hears_stored_ends(&self) -> bool {
        self.stored_end.is_some()
    }

    pub(super) fn call(&self, event: &EntryEvent<'_>) {
        let Some(hear) = &self.entry else { return };
        // Whatever it does, the task goes on as it would without it.
        if let Err(panic) = contain_panic(|| hear(event)) {
            let (run, task) = (event.run, event.task);
            tracing::warn!(%run, task, %panic, "what hears of entries panicked");
        }
    }

    pub(super) fn call_stored_end(&self, end: &StoredEnd<'_>) {
        let Some(hear) = &self.stored_end else { return };
        // The loop of the worker goes on as it would without it.
        if let Err(panic) = contain_panic(|| hear(end)) {
            let (run, task) = (end.run, end.task);
            tracing::warn!(%run, task, %panic, "what hears of stored ends panicked");
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl<'a> EntryStage<'a> {
    /// The stage of an entry that ends like this.
    pub(super) fn of(end: &'a End, is_final: bool) -> Self {
        match end {
            End::Succeeded { .. } => EntryStage::Succeeded,
            End::Failed { error, failure, .. } => {
                let reason = match failure {
                    Failure::Error => Reason::Error,
                    Failure::Panic => Reason::Panic,
                    Failure::Timeout => Reason::Timeout,
                    Failure::WaitTimeout => Reason::WaitTimeout,
                };
                EntryStage::Failed { error, reason, is_final }
            }
            End::Snoozed(_) | End::Parked { .. } | End::Dropped { .. } => EntryStage::Left,
        }
    }
}
