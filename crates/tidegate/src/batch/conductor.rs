//! The conductor: pulls inputs, waits for slots, spawns workers and minds the time-outs.

use super::cell::{Cell, Stop, Time};
use super::inputs::Producer;
use super::run::{End, Run, Stopped, TaskEnd, nanos};
use super::worker::Worker;
use crate::deadline::deadline_after;
use crate::error::Closed;
use crate::slot::{InLine, SlotToken};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::slot::Lane;
use tokio::time::Instant;

/// How long the consumer may be left asleep while results of tiny tasks gather, and how often it is
/// looked whether tasks are still tiny.
const TICK: Duration = Duration::from_millis(1);

/// Tasks that take less are better run by one worker than by several.
const TINY: Duration = Duration::from_micros(2);

/// How long the first tasks are watched before that is decided.
const MOMENT: Duration = Duration::from_micros(20);

/// Tasks begun and unfinished at once, most of them waiting; each costs memory.
const IN_MEMORY_MAX: usize = 100_000;

/// Pulls inputs, waits for slots, spawns workers and minds the time-outs.
pub(super) struct Conductor<P: Producer<M>, M: Send + 'static> {
    run: Arc<Run<P, M>>,
    line: Option<InLine>,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Runs while there are results that the consumer was not woken for.
    tick: Option<Pin<Box<tokio::time::Sleep>>>,
    held_back: Option<HeldBack>,
    ended: bool,
}

/// A further worker is held back while it is watched how long tasks take.
struct HeldBack {
    since: Instant,
    /// How many tasks had ended then.
    ended: usize,
    /// When to look again; at first after a moment too short for a timer.
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// What the conductor has to do next.
enum Todo {
    /// There is an input; a slot is wanted for it. So many tasks have ended.
    Slot {
        ended: usize,
    },
    Nothing,
    End,
}

impl<P: Producer<M>, M: Send + 'static> Conductor<P, M> {
    pub(super) fn new(run: Arc<Run<P, M>>) -> Self {
        Conductor { run, line: None, timer: None, tick: None, held_back: None, ended: false }
    }

    pub(super) async fn conduct(mut self) {
        let cancel = self.run.cancel.clone();
        let mut cancelled = pin!(cancel.cancelled());
        let mut told = false;
        std::future::poll_fn(|cx| {
            if !told && cancelled.as_mut().poll(cx).is_ready() {
                told = true;
                let run = &self.run;
                run.change(|state, wakers| state.stop(run, Stopped::Cancelled, wakers));
            }
            self.poll(cx)
        })
        .await;
        self.ended = true;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.mind_consumer(cx);
        self.mind_time(cx);
        loop {
            match self.prepare(cx) {
                Todo::Slot { ended } if self.holds_back(ended, cx) => return Poll::Pending,
                Todo::Slot { .. } => {}
                Todo::Nothing => return Poll::Pending,
                Todo::End => return Poll::Ready(()),
            }
            let pool = &self.run.settings.pool;
            let line =
                self.line.get_or_insert_with(|| InLine::new(pool.clone(), Lane::Start, 1, 0));
            let granted = line.poll(cx);
            self.run.conductor_in_line.store(granted.is_pending(), Ordering::Relaxed);
            let granted = std::task::ready!(granted);
            self.line = None;
            match granted {
                Ok(()) => self.launch(SlotToken::granted(pool.clone(), 1, 0), cx),
                Err(Closed) => {
                    let run = &self.run;
                    run.change(|state, wakers| state.stop(run, Stopped::PoolClosed, wakers));
                }
            }
        }
    }

    /// Sees to it that there is an input to launch and room for its result.
    fn prepare(&mut self, cx: &mut Context<'_>) -> Todo {
        let run = &self.run;
        // Dropped after the lock, like every waker.
        let mut stale = None;
        let todo = run.change(|state, wakers| {
            if state.stopped.is_none()
                && let Poll::Ready(Some(input)) = state.pull(run, wakers, cx)
            {
                state.ahead = Some(input);
            }
            if state.is_quiet() {
                state.wake_consumer(run, wakers);
                return Todo::End;
            }
            stale = state.conductor.replace(cx.waker().clone());
            let room = state.untaken.len() < run.untaken_max && state.under_way < IN_MEMORY_MAX;
            if state.ahead.is_none() || state.stopped.is_some() || !room {
                state.conductor_wants_room = !room;
                return Todo::Nothing;
            }
            Todo::Slot { ended: state.tally.ended() }
        });
        drop(stale);
        if !matches!(todo, Todo::Slot { .. }) {
            self.line = None;
        }
        todo
    }

    /// Whether one more worker would only get in the way: tasks are so small that taking them from
    /// the same list costs more than they do. Found out by looking how many have ended since the
    /// last worker began, after a moment and then every millisecond.
    fn holds_back(&mut self, ended: usize, cx: &mut Context<'_>) -> bool {
        if self.run.brisk.load(Ordering::Relaxed) == 0 {
            self.held_back = None;
            return false;
        }
        let since = || HeldBack { since: Instant::now(), ended, timer: None };
        let held = self.held_back.get_or_insert_with(since);
        let elapsed = held.since.elapsed();
        if elapsed < MOMENT {
            cx.waker().wake_by_ref();
            return true;
        }
        if held.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_pending()) {
            return true;
        }
        let each = elapsed / u32::try_from(ended - held.ended).unwrap_or(u32::MAX).max(1);
        if each > TINY {
            self.held_back = None;
            return false;
        }
        let mut timer = Box::pin(tokio::time::sleep(TICK));
        let look_again = timer.as_mut().poll(cx).is_pending();
        self.held_back = Some(HeldBack { timer: Some(timer), ..since() });
        look_again
    }

    fn launch(&self, token: SlotToken, cx: &mut Context<'_>) {
        let run = &self.run;
        let now = Instant::now();
        let launched = run.change(|state, wakers| {
            // A worker may have taken the input meanwhile.
            let Poll::Ready(Some(input)) = state.pull(run, wakers, cx) else { return None };
            let cell = Arc::new(Cell::default());
            let (card, work) = input.begin(now);
            cell.begin(card);
            state.tally.began += 1;
            state.under_way += 1;
            Some((state.cells.insert(cell.clone()), cell, work))
        });
        if let Some((key, cell, work)) = launched {
            run.brisk.fetch_add(1, Ordering::Relaxed);
            let paused = AtomicBool::new(false);
            let worker = Worker { run: run.clone(), cell, key, given_up: false, paused };
            tokio::spawn(worker.work(work, token));
        }
    }

    /// Wakes the consumer for results that have lain for a tick; ticks while there are any.
    fn mind_consumer(&mut self, cx: &mut Context<'_>) {
        let run = &self.run;
        while run.ticking.load(Ordering::SeqCst) {
            let tick = || Box::pin(tokio::time::sleep(TICK));
            if self.tick.get_or_insert_with(tick).as_mut().poll(cx).is_pending() {
                return;
            }
            self.tick = None;
            if run.owed.load(Ordering::SeqCst) {
                run.change(|state, wakers| state.wake_consumer(run, wakers));
            } else {
                run.ticking.store(false, Ordering::SeqCst);
                // A worker may have counted on the ticks just before.
                run.ticking.fetch_or(run.owed.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        }
    }

    /// Stops tasks whose time is up. Looks when the next can be, not at every task's beginning: one
    /// that begins later cannot be due before a whole limit has passed since the last look.
    fn mind_time(&mut self, cx: &mut Context<'_>) {
        let run = &self.run;
        let Some(limit) = run.settings.timeout else { return };
        if self.timer.is_none() {
            run.next_look.fetch_min(nanos(limit), Ordering::AcqRel);
        }
        loop {
            let look = run.began + Duration::from_nanos(run.next_look.load(Ordering::Acquire));
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(look)));
            if timer.deadline() != look {
                timer.as_mut().reset(look);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
            let now = Instant::now();
            run.next_look.store(nanos(deadline_after(now, limit) - run.began), Ordering::Release);
            let soonest = run.stop_late(limit, now);
            let next = deadline_after(now, soonest);
            run.next_look.fetch_min(nanos(next - run.began), Ordering::AcqRel);
        }
    }
}

impl<P: Producer<M>, M: Send + 'static> Run<P, M> {
    /// Stops what has used up its time; says when the next can be due.
    fn stop_late(self: &Arc<Self>, limit: Duration, now: Instant) -> Duration {
        let mut soonest = limit;
        let mut stuck = Vec::new();
        self.change(|state, wakers| {
            for cell in state.cells.values() {
                match cell.check_time(limit, now) {
                    Time::Left(left) => soonest = soonest.min(left),
                    Time::Up(waker) => waker.into_iter().for_each(|waker| wakers.push(waker)),
                    Time::Stuck(card) => stuck.push(card),
                    Time::Idle => {}
                }
            }
        });
        for card in stuck {
            self.settings.pool.set_leaky(true);
            let end: TaskEnd<P, M> = End::Stopped(Stop::Timeout);
            self.report(self.result(card, end, now));
            self.change(|state, wakers| state.leave(self, wakers));
        }
        soonest
    }
}

impl<P: Producer<M>, M: Send + 'static> Drop for Conductor<P, M> {
    fn drop(&mut self) {
        if !self.ended {
            // Dropped with its runtime: the consumer may live on another.
            let run = &self.run;
            run.change(|state, wakers| {
                state.stop(run, Stopped::Cancelled, wakers);
                state.wake_consumer(run, wakers);
            });
        }
    }
}
