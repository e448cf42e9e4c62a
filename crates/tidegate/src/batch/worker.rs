//! Workers: run tasks on slots and report their ends.

use super::News;
use super::cell::{Cell, Stop};
use super::inputs::Producer;
use super::results::TaskResult;
use super::run::{End, Run, TaskEnd, nanos};
use crate::attempt::{Attempt, Observer};
use crate::contain::contain_panic;
use crate::gate::Gate;
use crate::handle::TaskHandle;
use crate::slot::{SlotToken, Work, guarded};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use tidegate_core::chain::Key;
use tokio::time::Instant;

/// Tasks a worker runs in a row before it lets others have its thread. Measured: more is slower,
/// because names are made on one thread and freed on another, and the two get in each other's way.
const TURN: usize = 16;

/// A worker's existence: its end is reported, and its cell taken away, even if it is dropped.
pub(super) struct Worker<P: Producer<M>, M: Send + 'static> {
    pub(super) run: Arc<Run<P, M>>,
    pub(super) cell: Arc<Cell>,
    pub(super) key: Key,
    /// Its task was reported while it was stuck in a poll; it is not under way any more.
    pub(super) given_up: bool,
    /// Its present task has paused at least once.
    pub(super) paused: AtomicBool,
}

impl<P: Producer<M>, M: Send + 'static> Worker<P, M> {
    pub(super) async fn work(mut self, mut input: P::Work, mut token: SlotToken) {
        for turn in 1_usize.. {
            if self.run.settings.on_progress.is_some() {
                self.run.tell(&self.cell.name(), News::Began);
            }
            let (end, kept) = self.run_one(input, token).await;
            let Some(card) = self.cell.end() else {
                self.given_up = true;
                self.run.settings.pool.set_leaky(false);
                return;
            };
            let now = Instant::now();
            let result = self.run.result(card, end, now);
            let Some(kept) = kept else { return self.run.report(result) };
            let (next, woke) = match self.next(result, now) {
                Ok(next) => next,
                Err(result) => {
                    // The slot is free before the result is seen.
                    drop(kept);
                    return self.run.report(result);
                }
            };
            (input, token) = (next, kept);
            // Whoever was woken may be in line behind this task on its thread, where nobody else
            // can take it up, and the next body may block that thread.
            if woke || turn % TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Runs one task. A token that can be used again comes back.
    async fn run_one(&self, work: P::Work, token: SlotToken) -> (TaskEnd<P, M>, Option<SlotToken>) {
        if !P::Work::WAITS {
            let body = guarded(work.begin(|| unreachable!("it wants no handle")));
            return (self.watched(body, None).await.into(), Some(token));
        }
        let mut attempt = Attempt::new(token);
        attempt.cancel = Some(self.run.cancel.clone());
        if self.run.settings.on_progress.is_some() {
            let observer = TaskObserver { run: self.run.clone(), name: self.cell.name() };
            attempt.observer = Some(Arc::new(observer));
        }
        let attempt = Arc::new(attempt);
        self.cell.attach(attempt.clone());
        let make = |attempt: &Arc<Attempt>| work.begin(|| TaskHandle::of(attempt.clone()));
        let body = Gate::new(attempt.clone(), make);
        (self.watched(body, Some(&attempt)).await.into(), None)
    }

    /// Polls a body until it ends or has to stop; it is dropped before this returns. The body contains
    /// panics of its own code and, once that has ended, of its destructor.
    async fn watched<F: Future>(
        &self,
        body: F,
        attempt: Option<&Arc<Attempt>>,
    ) -> Result<F::Output, Stop> {
        let mut body = pin!(Some(body));
        let mut first = true;
        std::future::poll_fn(|cx| {
            if let Some(attempt) = attempt {
                self.run.mind(attempt);
            }
            if !std::mem::take(&mut first)
                && let Err(stop) = self.cell.enter()
            {
                return stop_body(body.as_mut(), stop);
            }
            let live = body.as_mut().as_pin_mut().expect("it is dropped after its end");
            if let Poll::Ready(output) = live.poll(cx) {
                return Poll::Ready(Ok(output));
            }
            if let Err(stop) = self.cell.leave(cx.waker()) {
                return stop_body(body.as_mut(), stop);
            }
            self.pause();
            // Under fail-fast what begins to wait is stopped as what waited before was.
            let waits = attempt.is_some_and(|attempt| attempt.is_waiting());
            if waits && self.run.stopping.load(Ordering::Acquire) {
                return stop_body(body.as_mut(), Stop::Cancel);
            }
            Poll::Pending
        })
        .await
    }

    /// The task has paused, so its end may be far away: the consumer should have what there is, and
    /// the conductor need not hold back further workers.
    fn pause(&self) {
        if self.paused.swap(true, Ordering::Relaxed) {
            return;
        }
        let run = &self.run;
        let last = run.brisk.fetch_sub(1, Ordering::Relaxed) == 1;
        if last || run.owed.load(Ordering::Relaxed) {
            run.change(|state, wakers| {
                state.wake_consumer(run, wakers);
                state.wake_conductor(wakers);
            });
        }
    }

    /// Records the end and begins the next task on the same slot, if there is one and nobody else
    /// wants the slot; otherwise the result comes back. Says whether somebody was woken.
    fn next(
        &self,
        result: TaskResult<P::Value>,
        now: Instant,
    ) -> Result<(P::Work, bool), TaskResult<P::Value>> {
        let run = &self.run;
        // With somebody to tell of each end and beginning, the conductor's way is the simpler one.
        let may_go_on = !run.is_fatal(result.status) && run.settings.on_progress.is_none();
        let next = run.change(|state, wakers| {
            let at_hand = P::AT_ONCE || state.ahead.is_some();
            let room = state.untaken.len() < run.untaken_max && state.stopped.is_none();
            if !may_go_on || !at_hand || !room || run.others_want_slots() {
                return Err(result);
            }
            let mut cx = Context::from_waker(Waker::noop());
            let Poll::Ready(Some(input)) = state.pull(run, wakers, &mut cx) else {
                return Err(result);
            };
            state.record(run, result, wakers);
            let woke = state.owe_consumer(run, wakers);
            state.tally.began += 1;
            let (card, work) = input.begin(now);
            self.cell.begin(card);
            Ok((work, woke))
        });
        if next.is_ok() && self.paused.swap(false, Ordering::Relaxed) {
            run.brisk.fetch_add(1, Ordering::Relaxed);
        }
        next
    }
}

impl<P: Producer<M>, M: Send + 'static> Drop for Worker<P, M> {
    fn drop(&mut self) {
        // A card that is left means that the worker was dropped with its runtime.
        if let Some(card) = self.cell.end() {
            let end: TaskEnd<P, M> = End::Stopped(Stop::Cancel);
            self.run.report_now(self.run.result(card, end, Instant::now()));
        }
        if !self.paused.load(Ordering::Relaxed) {
            self.run.brisk.fetch_sub(1, Ordering::Relaxed);
        }
        let cell = self.run.change(|state, wakers| {
            if !self.given_up {
                state.leave(&self.run, wakers);
            }
            state.cells.remove(self.key)
        });
        drop(cell);
    }
}

/// Drops a body that has not ended. Its end is decided: a panic of its destructor changes nothing.
fn stop_body<F, T>(mut body: Pin<&mut Option<F>>, stop: Stop) -> Poll<Result<T, Stop>> {
    if let Err(panic) = contain_panic(|| body.set(None)) {
        tracing::warn!(%panic, "a destructor panicked");
    }
    Poll::Ready(Err(stop))
}

/// Passes on what a task says of itself.
struct TaskObserver<P: Producer<M>, M: Send + 'static> {
    run: Arc<Run<P, M>>,
    name: String,
}

impl<P: Producer<M>, M: Send + 'static> Observer for TaskObserver<P, M> {
    fn progress(&self, fraction: f64, message: &str) {
        self.run.tell(&self.name, News::Said { fraction, message });
    }
}

impl<P: Producer<M>, M: Send + 'static> Run<P, M> {
    /// A task that may go on after a wait has an earlier deadline than any that begins: the
    /// conductor is told if it would look too late.
    fn mind(&self, attempt: &Attempt) {
        let Some(limit) = self.settings.timeout else { return };
        if !attempt.is_waiting() {
            return;
        }
        let (used, _) = attempt.active();
        let look = nanos(self.began.elapsed() + limit.saturating_sub(used));
        if self.next_look.fetch_min(look, Ordering::AcqRel) > look {
            self.change(|state, wakers| state.wake_conductor(wakers));
        }
    }
}
