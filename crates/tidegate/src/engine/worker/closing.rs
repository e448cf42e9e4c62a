//! How a worker stops.
//!
//! First nothing new begins; after the grace what computes is told, then dropped. The worker is done
//! when the store knows what became of all its tasks. A store that does not answer, or goes on
//! failing, does not hold this up: the worker gives up in time, says which tasks it could not report,
//! and leaves them to the worker that takes them over once this one counts as dead.

use super::{Live, Worker};
use crate::deadline::deadline_after;
use crate::engine::health::NoAnswer;
use crate::engine::shutdown::{
    AFTER_TELLING, GIVE_UP_AFTER, GIVE_UP_NOW, SIGN_OFF_MAX, SIGN_OFF_RESERVE, Shutdown,
    ShutdownReport, Stage, UNSTORED_MAX,
};
use crate::engine::{Gone, SubmitError, look};
use crate::task::Manner;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::RunId;
use tidegate_core::dispatcher::Input;
use tidegate_core::store::{Claimed, StoreError, TaskKey};
use tokio::time::Instant;

/// How far a worker has come with stopping.
pub(super) struct ClosingState {
    /// When the next step is due: first what computes is told, then it is dropped.
    next: Option<Instant>,
    pub(super) told: bool,
    /// What is over by then may wait on.
    waits_until: Option<Instant>,
    /// When the worker no longer waits for the store, or for a body.
    gives_up_at: Option<Instant>,
    /// What was claimed and never started.
    not_started: Vec<Claimed>,
    pub(super) report: ShutdownReport,
}

impl Worker {
    pub(super) fn close(&mut self, Shutdown { grace, finishes_waits }: Shutdown) {
        if self.closing.is_some() {
            return;
        }
        self.shared.closing.send_replace(Stage::Closing);
        let next = deadline_after(Instant::now(), grace);
        self.closing = Some(ClosingState {
            next: Some(next),
            told: false,
            waits_until: finishes_waits.then_some(next),
            gives_up_at: Some(deadline_after(next, GIVE_UP_AFTER)),
            not_started: Vec::new(),
            report: ShutdownReport::default(),
        });
        let waiting = self.entries.iter().filter(|(_, live)| live.waits);
        let waiting: Vec<TaskKey> = waiting.map(|(&task, _)| task).collect();
        waiting.into_iter().for_each(|task| self.spare(task));
        self.dispatcher.handle(Input::Close);
    }

    /// Closes without any grace, also if the worker closes with one.
    pub(super) fn close_now(&mut self) {
        let now = Instant::now();
        self.close(Shutdown::new(Duration::ZERO));
        // Before they are told: a command that is told has time to end.
        #[cfg(unix)]
        self.shared.running.kill();
        if let Some(closing) = &mut self.closing {
            let soon = now + GIVE_UP_NOW;
            closing.gives_up_at = Some(closing.gives_up_at.map_or(soon, |at| at.min(soon)));
        }
        // First they are told, then they are dropped.
        (0..2).for_each(|_| self.close_harder(now));
    }

    /// A task waits: while the worker closes it may do so only if it goes on soon enough.
    pub(super) fn spare(&mut self, task: TaskKey) {
        let until = self.closing.as_ref().and_then(|closing| closing.waits_until);
        let Some(until) = until else { return };
        let due = self.entries.get(&task).and_then(|live| live.entry.due());
        self.dispatcher.handle(Input::Spare(task, due.is_some_and(|due| due <= until)));
    }

    /// When the next step of closing is due.
    pub(super) fn next_close(&self) -> Option<Instant> {
        let closing = self.closing.as_ref()?;
        closing.next.into_iter().chain(closing.gives_up_at).min()
    }

    /// Takes the next step of closing, if it is due.
    pub(super) fn close_on(&mut self, now: Instant) {
        if self.closing.as_ref().is_some_and(|closing| closing.next.is_some_and(|at| at <= now)) {
            self.close_harder(now);
        }
    }

    fn close_harder(&mut self, now: Instant) {
        let Some(closing) = &mut self.closing else { return };
        if closing.told {
            closing.next = None;
            self.dispatcher.handle(Input::DropAll);
            return;
        }
        (closing.told, closing.next) = (true, Some(now + AFTER_TELLING));
        self.entries.values().for_each(|live| live.entry.cancel());
    }

    /// A task that was claimed goes back without having been started.
    pub(super) fn hand_back_unstarted(&mut self, claimed: Box<Claimed>) {
        if let Some(closing) = &mut self.closing {
            closing.report.handed_back.push((claimed.run, name_of(&claimed)));
            closing.not_started.push(*claimed);
        }
    }

    /// Whether the worker has closed, or does not wait any longer for that.
    pub(super) fn is_closed(&self) -> bool {
        let Some(closing) = &self.closing else { return false };
        self.is_idle() || closing.gives_up_at.is_some_and(|at| at <= Instant::now())
    }

    /// Whether nothing is left to be done. A cancelled command is not this worker's any more, and it is
    /// still this worker that sees to its end.
    fn is_idle(&self) -> bool {
        let is_ending = |live: &Live| live.manner == Manner::Orderly && !live.succeeded;
        self.dispatcher.is_idle() && self.request.is_none() && !self.entries.values().any(is_ending)
    }

    /// Everything of this worker is over or handed back, or is given up.
    pub(super) async fn finish(mut self) {
        let Some(mut closing) = self.closing.take() else { return };
        let is_done = self.is_idle();
        if !is_done {
            self.give_up(&mut closing);
        }
        let now = Instant::now();
        let latest = closing.gives_up_at.map(|at| deadline_after(at, SIGN_OFF_RESERVE));
        let latest = latest.map_or(now + SIGN_OFF_MAX, |at| at.min(now + SIGN_OFF_MAX));
        if tokio::time::timeout_at(latest, self.sign_off(is_done)).await.is_err() {
            tracing::warn!("the store does not answer; the worker will be taken for dead");
        }
        self.shared.closing.send_replace(Stage::Closed(closing.report));
    }

    /// Ends what goes on beside the loop and, if all is done, takes the worker off the store's list.
    async fn sign_off(&mut self, is_done: bool) {
        if let Some(look) = self.look.take() {
            look.abort();
            // Its outcome is of no interest any more.
            let _ = look.await;
        }
        if let Some(beside) = self.beside.take() {
            beside.stop().await;
        }
        if !is_done {
            // Its tasks and notes are for the worker that takes it for dead.
            return;
        }
        // What cannot be removed says that nothing is running.
        let _ = look::remove_notes(&self.shared.files, self.id).await;
        if let Err(error) = self.shared.store.dismiss(self.id).await {
            tracing::warn!(%error, "cannot sign off; the worker will be taken for dead");
        }
    }

    /// Leaves what could not be reported to another worker, and says what that is.
    fn give_up(&mut self, closing: &mut ClosingState) {
        let report = &mut closing.report;
        let since = self.request.as_ref().map(|(_, since, _)| since.elapsed().as_secs());
        let silent = since.map(|seconds| NoAnswer(Duration::from_secs(seconds)).into_error());
        let error = self.shared.health.borrow().store_error.clone().or(silent);
        report.store_error = error.as_ref().map(ToString::to_string);
        report.unstored_total = self.dispatcher.readings().owned;
        report.unstored = self.list_unstored(&closing.not_started);
        tracing::warn!(
            tasks = report.unstored_total,
            error = report.store_error,
            "stopped without having stored what became of some tasks; they will be taken over"
        );
        #[cfg(unix)]
        self.shared.running.kill();
        self.entries.values().for_each(|live| live.abort.abort());
        let unknown = || StoreError::Unknown(Arc::new(Gone));
        // Callers that have gone away do not want to know.
        for (_, reply) in self.submits.drain().map(|(_, caller)| caller) {
            let _ = reply.send(Err(SubmitError::Store(unknown())));
        }
        for (_, reply) in self.operations.drain() {
            let _ = reply.send(Err(unknown()));
        }
        self.request = None;
    }

    /// Tasks that this worker owns as far as it knows, by run and name; not more than a report has.
    fn list_unstored(&self, not_started: &[Claimed]) -> Vec<(RunId, String)> {
        let live = self.entries.values().map(|live| &live.entry).chain(&self.ending);
        let live = live.filter(|entry| self.dispatcher.owns_claim(entry.key, entry.fence));
        let live = live.map(|entry| (entry.run, entry.name().to_owned()));
        let is_owned =
            |claimed: &&Claimed| self.dispatcher.owns_claim(claimed.key, claimed.life.fence);
        let unbegun = not_started.iter().filter(is_owned);
        let unbegun = unbegun.map(|claimed| (claimed.run, name_of(claimed)));
        let mut named: Vec<(RunId, String)> = live.chain(unbegun).take(UNSTORED_MAX).collect();
        named.sort_unstable();
        named
    }
}

fn name_of(claimed: &Claimed) -> String {
    claimed.plan.graph().name(claimed.index).to_owned()
}
