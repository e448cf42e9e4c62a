//! The pool under a concurrency checker, which tries the orders in which threads may take its lock.
//!
//! Run with `RUSTC_WORKSPACE_WRAPPER=$PWD/checks/with_shuttle cargo test -p tidegate-checks --release
//! --test shuttle`. Each case holds three things at once: nobody waits for ever (the checker reports a
//! deadlock), nothing is leaked (nothing is in use at the end), and no more is granted than there is (a
//! count beside the pool's own).
#![cfg(shuttle)]

use shuttle::future::JoinHandle;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tidegate::error::{AcquireError, Closed, RunError};
use tidegate::{SlotPool, SlotToken, TaskHandle, WaitError};

/// Orders tried at random: planted mistakes show within the first hundreds, and all cases together
/// take seconds.
const RANDOM: usize = 6_000;
/// Orders with few switches at chosen places, which find what needs one thread to stand still for
/// long.
const PCT: usize = 6_000;
const SWITCHES: usize = 3;

fn check(case: impl Fn() + Send + Sync + 'static) {
    let case = Arc::new(case);
    let again = case.clone();
    let config = || {
        let mut config = Config::new();
        config.stack_size = 0x2_0000;
        config
    };
    Runner::new(RandomScheduler::new(RANDOM), config()).run(move || case());
    Runner::new(PctScheduler::new(SWITCHES, PCT), config()).run(move || again());
}

/// Whether a future was woken since it was last polled, and who polls it.
#[derive(Default)]
struct Woken {
    woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, SeqCst);
        let outer = self.outer.lock().expect("nobody panics with this lock").clone();
        outer.into_iter().for_each(Waker::wake);
    }
}

/// Polls a future only when it was woken. The checker's executor polls once too often after each
/// wake-up, which would hide that another one is lost.
async fn strict<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let state = Arc::new(Woken { woken: AtomicBool::new(true), ..Woken::default() });
    let waker = Waker::from(state.clone());
    std::future::poll_fn(move |cx| {
        *state.outer.lock().expect("nobody panics with this lock") = Some(cx.waker().clone());
        match state.woken.swap(false, SeqCst) {
            true => future.as_mut().poll(&mut Context::from_waker(&waker)),
            false => Poll::Pending,
        }
    })
    .await
}

fn block_on<F: Future>(future: F) -> F::Output {
    shuttle::future::block_on(strict(future))
}

fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    shuttle::future::spawn(strict(future))
}

/// A pool and a count of those who compute on it that is not the pool's own.
#[derive(Clone)]
struct Counted {
    pool: SlotPool,
    computing: Arc<AtomicU32>,
    most: u32,
}

impl Counted {
    fn new(capacity: u32) -> Self {
        Counted::grown_to(capacity, capacity)
    }

    /// A pool that will be grown to as many as `most`.
    fn grown_to(capacity: u32, most: u32) -> Self {
        let pool = SlotPool::new(capacity).expect("a capacity of at least 1");
        Counted { pool, computing: Arc::default(), most }
    }

    /// Computes on as many slots, and lets others run meanwhile.
    fn compute(&self, weight: u32) {
        let before = self.computing.fetch_add(weight, SeqCst);
        assert!(before + weight <= self.most, "{before} and {weight} at once");
        thread::yield_now();
        self.computing.fetch_sub(weight, SeqCst);
    }

    fn hold(&self, token: &SlotToken) {
        assert!(token.is_held());
        self.compute(token.weight());
    }

    /// Nothing is in use and nobody waits, and the pool is of use to the next one.
    fn assert_idle(&self) {
        assert_eq!((self.pool.in_use(), self.pool.waiting()), (0, 0), "something was leaked");
        assert_eq!(self.pool.available(), self.pool.capacity());
        if !self.pool.is_closed() {
            drop(self.pool.try_acquire(self.pool.capacity()).expect("nothing is kept for nobody"));
        }
    }
}

/// Polls a future at most so many times and drops it then, at whatever await it stands.
struct Fickle<F> {
    future: Option<Pin<Box<F>>>,
    polls: u32,
}

fn fickle<F: Future>(future: F, polls: u32) -> Fickle<F> {
    Fickle { future: Some(Box::pin(future)), polls }
}

impl<F: Future> Future for Fickle<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while self.polls > 0 {
            self.polls -= 1;
            let future = self.future.as_mut().expect("it is polled until it is ready");
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // Between two polls, and between the last and the drop, the slot may be granted.
            thread::yield_now();
        }
        self.future = None;
        Poll::Ready(None)
    }
}

fn join_all(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("a thread that panics has failed the case");
    }
}

#[test]
fn every_waiter_gets_its_slots_and_no_more_are_given_than_there_are() {
    check(|| {
        let counted = Counted::new(2);
        let threads: Vec<_> = [1, 2, 1, 2]
            .map(|weight| {
                let counted = counted.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let token = block_on(counted.pool.acquire().weight(weight));
                        counted.hold(&token.expect("the pool is open"));
                    }
                })
            })
            .into();
        join_all(threads);
        counted.assert_idle();
    });
}

#[test]
fn released_slots_are_reclaimed() {
    check(|| {
        let counted = Counted::new(1);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let counted = counted.clone();
                thread::spawn(move || {
                    block_on(async {
                        let mut token = counted.pool.acquire().await.expect("the pool is open");
                        counted.hold(&token);
                        assert!(token.release());
                        assert!(!token.release());
                        thread::yield_now();
                        token.reclaim().await.expect("the pool is open");
                        counted.hold(&token);
                        token.reclaim().await.expect("it is held");
                    });
                })
            })
            .collect();
        join_all(threads);
        counted.assert_idle();
    });
}

#[test]
fn a_future_dropped_at_any_await_leaks_nothing_and_strands_nobody() {
    check(|| {
        let counted = Counted::new(2);
        // Their number of polls is drawn by the checker, so a failing schedule can be replayed.
        let fickle_ones = (0..3).map(|number| {
            let counted = counted.clone();
            thread::spawn(move || {
                let weight = 1 + number % 2;
                let polls = thread_rng().gen_range(0..4);
                let acquire = counted.pool.acquire().weight(weight);
                if let Some(token) = block_on(fickle(acquire, polls)) {
                    let mut token = token.expect("the pool is open");
                    counted.hold(&token);
                    token.release();
                    let polls = thread_rng().gen_range(0..4);
                    match block_on(fickle(token.reclaim(), polls)) {
                        Some(reclaimed) => {
                            reclaimed.expect("the pool is open");
                            counted.hold(&token);
                        }
                        None => assert!(!token.is_held(), "a dropped reclaim stays released"),
                    }
                }
            })
        });
        let fickle_ones: Vec<_> = fickle_ones.collect();
        // Those who do not give up must be served, whoever gave up before or behind them.
        let patient = [2, 1].map(|weight| {
            let counted = counted.clone();
            thread::spawn(move || {
                let token = block_on(counted.pool.acquire().weight(weight));
                counted.hold(&token.expect("the pool is open"));
            })
        });
        join_all(patient);
        join_all(fickle_ones);
        counted.assert_idle();
    });
}

#[test]
fn tasks_that_are_aborted_leak_nothing() {
    check(|| {
        block_on(async {
            let counted = Counted::new(1);
            let tasks: Vec<_> = (0..3)
                .map(|_| {
                    let counted = counted.clone();
                    spawn(async move {
                        let mut token = counted.pool.acquire().await.expect("the pool is open");
                        counted.hold(&token);
                        token.release();
                        token.reclaim().await.expect("the pool is open");
                        counted.hold(&token);
                    })
                })
                .collect();
            let aborted = thread_rng().gen_range(0..tasks.len());
            thread::yield_now();
            tasks[aborted].abort();
            for (number, task) in tasks.into_iter().enumerate() {
                let end = task.await;
                assert!(end.is_ok() || number == aborted, "only one was aborted");
            }
            counted.assert_idle();
        });
    });
}

#[test]
fn a_future_that_moves_to_another_task_is_woken_there() {
    check(|| {
        let counted = Counted::new(1);
        let token = counted.pool.try_acquire(1).expect("the slot is free");
        let holder = {
            let counted = counted.clone();
            thread::spawn(move || {
                counted.hold(&token);
                drop(token);
            })
        };
        let pool = counted.pool.clone();
        let mut acquire = Box::pin(async move { pool.acquire().await });
        // The first poll is made here, the others with another task's waker.
        let first = block_on(std::future::poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx))));
        let mover = counted.clone();
        let moved = thread::spawn(move || {
            let token = match first {
                Poll::Ready(token) => token,
                Poll::Pending => block_on(acquire),
            };
            mover.hold(&token.expect("the pool is open"));
        });
        join_all([holder, moved]);
        counted.assert_idle();
    });
}

#[test]
fn resizing_under_way_loses_no_slot_and_no_waiter() {
    check(|| {
        let counted = Counted::grown_to(2, 3);
        let mut threads: Vec<_> = [1, 2, 2]
            .map(|weight| {
                let counted = counted.clone();
                thread::spawn(move || {
                    // A shrink may come first, and then the heavy ones are refused.
                    match block_on(counted.pool.acquire().weight(weight)) {
                        Ok(mut token) => {
                            counted.hold(&token);
                            token.release();
                            block_on(token.reclaim()).expect("the pool is open");
                            counted.hold(&token);
                        }
                        Err(error) => assert!(matches!(error, AcquireError::Weight(_)), "{error}"),
                    }
                })
            })
            .into();
        let resizer = counted.clone();
        threads.push(thread::spawn(move || {
            for capacity in [1, 3, 1] {
                resizer.pool.resize(capacity).expect("a capacity of at least 1");
                thread::yield_now();
            }
        }));
        join_all(threads);
        assert_eq!((counted.pool.capacity(), counted.pool.overcommitted()), (1, 0));
        counted.assert_idle();
    });
}

#[test]
fn growing_serves_who_waits_though_nobody_gives_back() {
    check(|| {
        let counted = Counted::grown_to(1, 3);
        let one = counted.pool.try_acquire(1).expect("the slot is free");
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let counted = counted.clone();
                thread::spawn(move || {
                    let token = block_on(counted.pool.acquire()).expect("the pool is open");
                    counted.hold(&token);
                })
            })
            .collect();
        counted.pool.resize(3).expect("a capacity of at least 1");
        join_all(threads);
        drop(one);
        counted.assert_idle();
    });
}

#[test]
fn a_shrink_is_kept_to_once_those_who_held_have_left() {
    check(|| {
        let counted = Counted::new(2);
        let held = counted.pool.try_acquire(2).expect("the slots are free");
        counted.pool.resize(1).expect("a capacity of at least 1");
        // From here on one at a time, whatever is freed.
        let narrow = Counted { most: 1, ..counted.clone() };
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let narrow = narrow.clone();
                thread::spawn(move || {
                    let token = block_on(narrow.pool.acquire()).expect("the pool is open");
                    narrow.hold(&token);
                })
            })
            .collect();
        drop(held);
        join_all(threads);
        narrow.assert_idle();
    });
}

#[test]
fn closing_ends_every_wait_and_whoever_holds_goes_on() {
    check(|| {
        let counted = Counted::new(1);
        let closed = Arc::new(AtomicBool::new(false));
        let mut threads: Vec<_> = (0..3)
            .map(|_| {
                let (counted, closed) = (counted.clone(), closed.clone());
                thread::spawn(move || {
                    let begun_after = closed.load(SeqCst);
                    let mut token = match block_on(counted.pool.acquire()) {
                        Ok(token) => token,
                        Err(error) => return assert_eq!(error, AcquireError::Closed),
                    };
                    assert!(!begun_after, "a closed pool grants nothing");
                    counted.hold(&token);
                    token.release();
                    match block_on(token.reclaim()) {
                        Ok(()) => counted.hold(&token),
                        Err(Closed) => assert!(!token.is_held()),
                    }
                })
            })
            .collect();
        let closer = counted.clone();
        threads.push(thread::spawn(move || {
            closer.pool.close();
            closed.store(true, SeqCst);
        }));
        join_all(threads);
        counted.assert_idle();
        assert!(counted.pool.is_closed());
    });
}

#[test]
fn everything_at_once_ends_with_nothing_in_use() {
    check(|| {
        let counted = Counted::grown_to(2, 3);
        let mut threads: Vec<_> = (0..4)
            .map(|number| {
                let counted = counted.clone();
                thread::spawn(move || {
                    let weight = 1 + number % 2;
                    let polls = thread_rng().gen_range(1..6);
                    let acquire = counted.pool.acquire().weight(weight).priority(number as i32);
                    let Some(Ok(mut token)) = block_on(fickle(acquire, polls)) else { return };
                    counted.hold(&token);
                    token.release();
                    if number == 3 {
                        counted.pool.close();
                    }
                    if block_on(token.reclaim()).is_ok() {
                        counted.hold(&token);
                    }
                })
            })
            .collect();
        let resizer = counted.clone();
        threads.push(thread::spawn(move || {
            for capacity in [3, 1, 2] {
                resizer.pool.resize(capacity).expect("a capacity of at least 1");
            }
        }));
        join_all(threads);
        counted.assert_idle();
    });
}

#[test]
fn kept_slots_go_to_the_others_when_the_one_they_are_kept_for_gives_up() {
    check(|| {
        let counted = Counted::new(2);
        let one = counted.pool.try_acquire(1).expect("the slot is free");
        let pool = counted.pool.clone();
        let mut heavy = Box::pin(async move { pool.acquire().weight(2).await });
        let first = block_on(std::future::poll_fn(|cx| Poll::Ready(heavy.as_mut().poll(cx))));
        assert!(first.is_pending(), "one of two is free");
        for _ in 0..16 {
            drop(counted.pool.try_acquire(1).expect("it may be overtaken"));
        }
        counted.pool.try_acquire(1).expect_err("the free slot is kept");

        let light = [1, 1].map(|weight| {
            let counted = counted.clone();
            thread::spawn(move || {
                let token = block_on(counted.pool.acquire().weight(weight));
                counted.hold(&token.expect("the pool is open"));
            })
        });
        drop(heavy);
        join_all(light);
        drop(one);
        counted.assert_idle();
    });
}

#[test]
fn work_that_waits_without_its_slot_goes_on_with_it() {
    check(|| {
        block_on(async {
            let counted = Counted::new(1);
            let tasks: Vec<_> = (0..3)
                .map(|_| {
                    let counted = counted.clone();
                    spawn(async move {
                        let inside = counted.clone();
                        let work = async move |handle: TaskHandle| {
                            inside.compute(1);
                            handle.yield_slot().await?;
                            assert!(handle.is_slot_held());
                            inside.compute(1);
                            handle.defer_while(shuttle::future::yield_now()).await?;
                            assert!(handle.is_slot_held());
                            inside.compute(1);
                            Ok::<_, WaitError>(())
                        };
                        counted.pool.run(work).await.expect("the work succeeds");
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("nobody aborts it");
            }
            counted.assert_idle();
            assert_eq!(counted.pool.totals().succeeded, 3);
        });
    });
}

#[test]
fn work_that_drops_its_wait_computes_only_with_its_slot() {
    check(|| {
        block_on(async {
            let counted = Counted::new(1);
            let tasks: Vec<_> = (0..3)
                .map(|_| {
                    let counted = counted.clone();
                    spawn(async move {
                        let inside = counted.clone();
                        let work = async move |handle: TaskHandle| {
                            inside.compute(1);
                            let never = handle.defer_while(std::future::pending::<()>());
                            let polls = thread_rng().gen_range(1..3);
                            let dropped = fickle(never, polls).await;
                            assert!(dropped.is_none(), "it waits for ever");
                            // The body is polled again only with the slot.
                            shuttle::future::yield_now().await;
                            assert!(handle.is_slot_held());
                            inside.compute(1);
                            Ok::<_, WaitError>(())
                        };
                        counted.pool.run(work).await.expect("the work succeeds");
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("nobody aborts it");
            }
            counted.assert_idle();
        });
    });
}

#[test]
fn work_dropped_at_any_await_gives_its_slot_back() {
    check(|| {
        let counted = Counted::new(1);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let counted = counted.clone();
                thread::spawn(move || {
                    let inside = counted.clone();
                    let work = async move |handle: TaskHandle| {
                        inside.compute(1);
                        handle.yield_slot().await?;
                        inside.compute(1);
                        Ok::<_, WaitError>(())
                    };
                    let polls = thread_rng().gen_range(0..6);
                    block_on(fickle(counted.pool.run(work), polls));
                })
            })
            .collect();
        let patient = counted.clone();
        let patient = thread::spawn(move || {
            let end = block_on(patient.pool.run(async { Ok::<_, ()>(7) }));
            assert_eq!(end, Ok::<_, RunError<()>>(7));
        });
        join_all([patient]);
        join_all(threads);
        counted.assert_idle();
    });
}
