//! The answers of a decision's look-ups, for tests: those through a delta before it is applied are those
//! without it afterwards.

use super::Overlay;
use crate::delta::Delta;
use crate::rows::{Payload, Row};
use crate::store::{RunKey, TaskKey};
use crate::testing::AnyLoader;
use crate::want::{Known, Loader, LookUps, Want};
use std::convert::Infallible;
use std::fmt::Debug;

/// The answer to each want, overlaid with a delta, as text to be compared; `None` for a want whose rows a
/// decision does not overlay.
///
/// Where a decision looks for the first of a list only, the text is of the first.
pub fn describe_answers(
    wants: &[Want],
    delta: &Delta,
    loader: &mut AnyLoader<'_>,
) -> Vec<Option<String>> {
    // Rows that go are not overlaid: nothing in the same request looks for them afterwards.
    let Delta { orphans, pruned_runs, pruned_signals, .. } = delta;
    if !(orphans.is_empty() && pruned_runs.is_empty() && pruned_signals.is_empty()) {
        return vec![None; wants.len()];
    }
    let mut loader = loader;
    let mut overlay = Overlay::new(Known::new(), &mut loader);
    overlay.adopt_delta(delta.clone());
    let describe = |want| match overlay.describe_answer(want) {
        Ok(answer) => answer,
    };
    wants.iter().map(describe).collect()
}

/// A row without its plan, which never changes and may be long.
fn row_text(row: &Row) -> String {
    let Row { key, index, life, request, ended_at, has_waits, behind, head, .. } = row;
    let graph = (row.open_parents, row.has_inserts_above);
    format!("{:?}", (key, index, life, request, ended_at, has_waits, graph, behind, head))
}

fn text_of(answer: impl Debug) -> Option<String> {
    Some(format!("{answer:?}"))
}

impl<L: Loader<Stop = Infallible>> Overlay<'_, L> {
    /// Overlays this delta, as if a request had made its changes.
    fn adopt_delta(&mut self, delta: Delta) {
        for (task, kind, bytes) in &delta.payloads {
            self.keep(*task, *kind, bytes.clone());
        }
        for (task, waits) in &delta.waits {
            waits.values().flatten().for_each(|wait| self.put_wait(*task, wait.clone()));
        }
        self.delta = delta;
    }

    fn describe_answer(&mut self, want: &Want) -> Result<Option<String>, Infallible> {
        Ok(match want {
            Want::RunById(id) => {
                let is_it = |row: &Row| row.head.as_ref().is_some_and(|head| head.id == *id);
                let new = self.find_new_run(is_it);
                text_of(if new.is_some() { new } else { self.load_run(*id)? })
            }
            Want::RunByKey { queue, workflow, key } => {
                let is_it = |row: &Row| {
                    let head = row.head.as_ref();
                    row.plan.workflow() == workflow
                        && head.is_some_and(|head| {
                            head.queue == *queue && head.key.as_ref() == Some(key)
                        })
                };
                let new = self.find_new_run(is_it);
                text_of(if new.is_some() {
                    new
                } else {
                    self.load_run_by_key(queue, workflow, key)?
                })
            }
            Want::Task(task) => {
                let stored = self.load_task(*task)?;
                text_of(self.find_written(*task).or(stored.as_ref()).map(row_text))
            }
            Want::WholeRun(run) => {
                let stored = self.load_whole_run(*run)?;
                let row = |row: &Row| row_text(self.find_written(row.key).unwrap_or(row));
                text_of(stored.iter().map(row).collect::<Vec<_>>())
            }
            Want::Payload(task, kind @ (Payload::Error | Payload::Keys)) => {
                let is_it =
                    |copy: &crate::delta::PayloadCopy| (copy.to, copy.kind) == (*task, *kind);
                match self.delta.payload_copies.iter().any(is_it) {
                    true => None,
                    false => text_of(self.find_payload(*task, *kind)?),
                }
            }
            Want::PauseStart(scope) => text_of(self.is_paused(scope)?),
            Want::IsQueuePaused(queue) => text_of(self.is_queue_paused(queue)?),
            Want::PausedTime { run, queue, from, to } => {
                text_of(self.paused_time(*run, queue, *from, *to)?)
            }
            other => self.describe_wait_or_limit(other)?,
        })
    }

    fn describe_wait_or_limit(&mut self, want: &Want) -> Result<Option<String>, Infallible> {
        Ok(match want {
            Want::Wait(task, id) => text_of(self.find_wait(*task, id)?),
            Want::Waits(task) => text_of(self.find_waits(*task)?),
            Want::SignalWaits { run, name, .. } => text_of(self.first_signal_wait(*run, name)?),
            Want::WaitersOf(run) => text_of(self.run_waits(*run)?),
            Want::EdgesFrom { run, tasks } => text_of(self.runs_waited_for(*run, *tasks)?),
            Want::IsSent(run, id) => text_of(self.was_sent(*run, *id)?),
            Want::Signals { run, name, .. } => text_of(self.next_signal(*run, name)?),
            Want::Limit(name) => text_of(self.find_limit(name)?),
            Want::Holds(task) => text_of(self.find_holds(*task)?),
            Want::LimitUsage(limit) => {
                let stored = self.load_limit_usage(limit)?.row;
                text_of(self.delta.limit_rows.get(limit).copied().unwrap_or(stored))
            }
            _ => None,
        })
    }

    fn find_new_run(&self, is_it: impl Fn(&Row) -> bool) -> Option<RunKey> {
        let mut new = self.delta.tasks.iter().filter(|write| write.is_new);
        new.find(|write| is_it(&write.row)).map(|write| write.row.run())
    }

    fn find_written(&self, task: TaskKey) -> Option<&Row> {
        let mut written = self.delta.tasks.iter();
        written.find(|write| write.row.key == task).map(|write| &write.row)
    }
}
