//! Slots: the limit, who is next, every way out, and the readings.

use crate::support::Crowd;
use std::future::{Ready, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tidegate::error::{
    AcquireError, Closed, InvalidCapacity, InvalidWeight, RunError, TryAcquireError,
};
use tidegate::slot::{Acquire, Reclaim, Spawned, Totals};
use tidegate::{SlotPool, SlotToken, TaskHandle};
use tokio::sync::{Barrier, oneshot};
use tokio::task::yield_now;

fn pool(capacity: u32) -> SlotPool {
    SlotPool::new(capacity).expect("a capacity of at least 1")
}

/// Polls once, with nobody to wake.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future that must be ready.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it was to be ready at once"),
    }
}

fn held(pool: &SlotPool, weight: u32) -> SlotToken {
    pool.try_acquire(weight).expect("the slots are free")
}

/// A place in the queue.
fn waits(acquire: Acquire<'_>) -> Acquire<'_> {
    let mut acquire = acquire;
    assert!(poll(&mut acquire).is_pending(), "it was to wait");
    acquire
}

async fn panics<T, E>(message: &'static str) -> Result<T, E> {
    panic!("{message}")
}

async fn not_to_be_run() -> Result<(), ()> {
    panic!("it was run")
}

/// Lets other tasks of a single-threaded runtime run until the condition is true.
async fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        yield_now().await;
    }
    panic!("the condition did not become true");
}

/// Counts how often it wakes.
#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

// --------------------------------------------------------------------------------- the limit, F1 --

#[tokio::test(start_paused = true)]
async fn of_twenty_tasks_on_five_slots_exactly_five_are_active_at_most() {
    let (pool, active) = (pool(5), Crowd::default());
    // Opens only when five are inside: that the most is not less than five.
    let barrier = Arc::new(Barrier::new(5));
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (pool, active, barrier) = (pool.clone(), active.clone(), barrier.clone());
            tokio::spawn(async move {
                let work = async move {
                    let _inside = active.enter();
                    barrier.wait().await;
                    yield_now().await;
                    Ok::<_, ()>(number)
                };
                pool.run(work).await
            })
        })
        .collect();
    // On paused time this passes as soon as nothing moves any more.
    let hour = Duration::from_secs(3600);
    let ends = tokio::time::timeout(hour, futures_util::future::join_all(tasks)).await;
    let ends = ends.expect("five are inside at once, and all finish");
    for (number, end) in ends.into_iter().enumerate() {
        assert_eq!(end.expect("the task does not panic"), Ok(number));
    }
    assert_eq!((active.most(), pool.available()), (5, 5));
    assert_eq!(pool.totals().succeeded, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_many_threads_no_more_are_active_than_there_are_slots() {
    let (pool, active) = (pool(3), Crowd::default());
    let tasks: Vec<_> = (0..200u32)
        .map(|number| {
            let (pool, active) = (pool.clone(), active.clone());
            tokio::spawn(async move {
                let weight = 1 + number % 3;
                let mut token = pool.acquire().weight(weight).await.expect("the pool is open");
                for _ in 0..3 {
                    let inside: Vec<_> = (0..weight).map(|_| active.enter()).collect();
                    yield_now().await;
                    drop(inside);
                    assert!(token.release());
                    token.reclaim().await.expect("the pool is open");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task does not panic");
    }
    assert!(active.most() <= 3, "{} were active", active.most());
    assert_eq!((pool.in_use(), pool.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn two_clones_of_one_slot_never_have_two_active() {
    let (one, active) = (pool(1), Crowd::default());
    let two = one.clone();
    let token = held(&one, 1);
    assert_eq!((two.in_use(), two.available(), two.has_capacity()), (1, 0, false));
    assert!(matches!(two.try_acquire(1), Err(TryAcquireError::NoSlot { .. })));
    drop(token);

    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let pool = if number % 2 == 0 { one.clone() } else { two.clone() };
            let active = active.clone();
            tokio::spawn(async move {
                let work = async move {
                    let _inside = active.enter();
                    yield_now().await;
                    Ok::<_, ()>(())
                };
                pool.run(work).await
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task does not panic").expect("the work succeeds");
    }
    assert_eq!(active.most(), 1);
}

// ----------------------------------------------------------------------------- every way out, F2 --

#[tokio::test]
async fn a_slot_is_free_after_success_error_and_panic() {
    let pool = pool(2);
    assert_eq!(pool.run(async { Ok::<_, ()>(7) }).await, Ok(7));
    assert_eq!((pool.available(), pool.in_use()), (2, 0));
    assert_eq!(pool.run(async { Err::<(), _>("no") }).await, Err(RunError::Failed("no")));
    assert_eq!((pool.available(), pool.in_use()), (2, 0));
    let panic: Result<(), RunError<()>> = pool.run(async { panic!("on purpose") }).await;
    assert!(matches!(panic, Err(RunError::Panicked(_))));
    assert_eq!((pool.available(), pool.in_use()), (2, 0));
}

#[tokio::test]
async fn a_slot_is_free_after_a_cancel_and_after_a_drop() {
    let pool = pool(1);
    let spawned = pool.spawn(pending::<Result<(), ()>>()).await.expect("the pool is open");
    yield_now().await;
    assert_eq!(pool.in_use(), 1);
    spawned.cancel();
    assert_eq!(spawned.await, Err(RunError::Cancelled));
    assert_eq!(pool.available(), 1);

    let spawned = pool.spawn(pending::<Result<(), ()>>()).await.expect("the pool is open");
    drop(spawned);
    until(|| pool.available() == 1).await;

    let mut run = Box::pin(pool.run(pending::<Result<(), ()>>()));
    assert!(poll(&mut run).is_pending());
    assert_eq!(pool.in_use(), 1);
    drop(run);
    assert_eq!(pool.available(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_after_the_callers_own_time_out() {
    let pool = pool(1);
    let never = pool.run(pending::<Result<(), ()>>());
    assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
    assert_eq!(pool.available(), 1);
}

#[tokio::test]
async fn a_slot_is_free_when_spawned_work_is_cancelled_before_it_began() {
    let pool = pool(1);
    let token = held(&pool, 1);
    let spawned = token.spawn(pending::<Result<(), ()>>());
    spawned.cancel();
    assert_eq!(spawned.await, Err(RunError::Cancelled));
    assert_eq!((pool.available(), pool.totals().executed), (1, 0), "it was never begun");
}

#[tokio::test]
async fn a_slot_is_free_when_a_closure_panics_before_its_future_exists() {
    let pool = pool(1);
    let begin = |_: TaskHandle| -> Ready<Result<(), ()>> { panic!("no future") };
    let end = pool.run(begin).await;
    let Err(RunError::Panicked(panic)) = end else { panic!("{end:?}") };
    assert_eq!(panic.message(), "no future");
    assert_eq!((pool.available(), pool.totals().failed), (1, 1));
}

#[tokio::test]
async fn a_slot_is_free_when_a_closure_panics_after_its_handle_has_escaped() {
    // The attempt was ended by the gate, which did not exist yet; the slot was then held for as
    // long as somebody had the handle.
    let pool = pool(1);
    let escaped = Arc::new(Mutex::new(None));
    let outside = escaped.clone();
    let end = pool
        .run(move |handle: TaskHandle| -> Ready<Result<(), ()>> {
            *outside.lock().expect("nobody panics with this lock") = Some(handle);
            panic!("no future")
        })
        .await;
    assert!(matches!(end, Err(RunError::Panicked(_))));
    assert_eq!(pool.available(), 1);
    let handle = escaped.lock().expect("nobody panics with this lock").take();
    assert!(!handle.expect("the handle has escaped").is_slot_held());
}

#[tokio::test]
async fn a_slot_is_free_after_the_end_though_the_handle_lives_on() {
    let pool = pool(1);
    let work = async |handle: TaskHandle| Ok::<_, ()>(handle);
    let handle = pool.run(work).await.expect("the work succeeds");
    assert_eq!(pool.available(), 1);
    assert!(!handle.is_slot_held());
    assert!(handle.into_slot_token().is_none());
}

#[tokio::test]
async fn a_slot_is_free_before_the_value_is_seen() {
    let pool = pool(1);
    for number in 0..10 {
        let spawned = pool.spawn(async move { Ok::<_, ()>(number) }).await;
        assert_eq!(spawned.expect("the pool is open").await, Ok(number));
        assert!(pool.try_acquire(1).is_ok());
    }
}

// --------------------------------------------------------------------------------- readings, F3 --

#[test]
fn the_readings_follow_how_many_are_active() {
    let pool = pool(3);
    let mut tokens = Vec::new();
    for active in 0..=3 {
        assert_eq!((pool.in_use(), pool.available()), (active, 3 - active));
        assert_eq!(pool.has_capacity(), active < 3);
        assert_eq!((pool.capacity(), pool.overcommitted(), pool.leaky()), (3, 0, 0));
        tokens.extend(pool.try_acquire(1));
    }
    for active in (0..3).rev() {
        tokens.pop();
        assert_eq!((pool.in_use(), pool.has_capacity()), (active, true));
    }
}

fn tally(totals: Totals) -> [u64; 5] {
    let Totals { executed, succeeded, failed, timed_out, cancelled, .. } = totals;
    [executed, succeeded, failed, timed_out, cancelled]
}

#[tokio::test]
async fn the_totals_only_grow_and_add_up() {
    let pool = pool(2);
    assert_eq!(tally(pool.totals()), [0; 5]);
    let mut before = [0; 5];
    for _ in 0..3 {
        let _ = pool.run(async { Ok::<_, ()>(()) }).await;
        let _ = pool.run(async { Ok::<_, ()>(()) }).await;
        let _ = pool.run(async { Err::<(), _>(()) }).await;
        let _ = pool.run(panics::<(), ()>("on purpose")).await;
        let spawned = pool.spawn(pending::<Result<(), ()>>()).await.expect("the pool is open");
        yield_now().await;
        spawned.cancel();
        let _ = spawned.await;
        drop(held(&pool, 1));

        let after = tally(pool.totals());
        assert!(before.iter().zip(&after).all(|(before, after)| before <= after));
        assert_eq!(after[0], after[1..].iter().sum::<u64>());
        before = after;
    }
    assert_eq!(before, [15, 6, 6, 0, 3]);
}

#[tokio::test]
async fn work_whose_pool_is_closed_during_its_wait_is_told_by_the_wait() {
    let pool = pool(1);
    let closer = pool.clone();
    let work = async move |handle: TaskHandle| {
        let close = async {
            yield_now().await;
            closer.close();
        };
        handle.defer_while(close).await.map_err(|_| "the wait says so")
    };
    assert_eq!(pool.run(work).await, Err(RunError::Failed("the wait says so")));
    assert_eq!((tally(pool.totals()), pool.in_use()), ([1, 0, 1, 0, 0], 0));
}

#[tokio::test]
async fn work_that_cannot_have_its_slot_again_is_cancelled() {
    let pool = pool(1);
    let closer = pool.clone();
    let work = async move |handle: TaskHandle| {
        // A wait that is dropped in the middle leaves the work without its slot.
        let mut wait = Box::pin(handle.defer_while(pending::<()>()));
        assert!(futures_util::poll!(&mut wait).is_pending());
        drop(wait);
        closer.close();
        yield_now().await;
        not_to_be_run().await
    };
    assert_eq!(pool.run(work).await, Err(RunError::Slot(AcquireError::Closed)));
    assert_eq!((tally(pool.totals()), pool.in_use()), ([1, 0, 0, 0, 1], 0));
}

#[tokio::test(start_paused = true)]
async fn the_waiters_are_listed_the_longest_first() {
    let pool = pool(4);
    let mut token = held(&pool, 4);
    assert_eq!(pool.waiters(), []);
    let _first = waits(pool.acquire().weight(2).priority(5));
    tokio::time::advance(Duration::from_secs(3)).await;
    let second = waits(pool.acquire());
    tokio::time::advance(Duration::from_secs(1)).await;
    token.release();
    // The first has its slots and waits no more, seen or not; the second too.
    assert_eq!((pool.waiting(), pool.in_use()), (0, 3));
    let mut reclaim = token.reclaim();
    assert!(poll(&mut reclaim).is_pending());
    tokio::time::advance(Duration::from_secs(2)).await;
    let _third = waits(pool.acquire().weight(3).priority(-7));

    let listed: Vec<_> = pool.waiters();
    let listed: Vec<_> =
        listed.iter().map(|w| (w.resumes, w.weight, w.priority, w.waited.as_secs())).collect();
    assert_eq!(listed, [(true, 4, 0, 2), (false, 3, -7, 0)]);
    assert_eq!(pool.waiting(), 2);
    drop(second);
}

// -------------------------------------------------------------------------------- tokens, F6-F8 --

#[test]
fn a_release_frees_the_units_at_once_and_a_second_frees_nothing() {
    let pool = pool(3);
    let _other = held(&pool, 1);
    let mut token = held(&pool, 2);
    assert_eq!((token.weight(), token.is_held(), pool.in_use()), (2, true, 3));
    assert!(token.release());
    assert_eq!((token.weight(), token.is_held(), pool.in_use()), (2, false, 1));
    assert!(!token.release());
    assert_eq!(pool.in_use(), 1);
}

#[test]
fn a_release_hands_the_slot_to_who_waits() {
    let pool = pool(1);
    let mut token = held(&pool, 1);
    let mut next = pool.acquire();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    assert!(Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
    token.release();
    assert_eq!(wakes.0.load(SeqCst), 1, "exactly that one is woken, once");
    assert_eq!(pool.available(), 0, "the slot is its already");
    assert!(ready(next).expect("granted").is_held());
}

#[test]
fn exactly_the_next_one_is_woken() {
    let pool = pool(1);
    let token = held(&pool, 1);
    let wakes: Vec<_> = (0..3).map(|_| Arc::new(Wakes::default())).collect();
    let mut waiters: Vec<_> = (0..3).map(|_| pool.acquire()).collect();
    for (waiter, wakes) in waiters.iter_mut().zip(&wakes) {
        let waker = Waker::from(wakes.clone());
        assert!(Pin::new(waiter).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(token);
    let woken: Vec<_> = wakes.iter().map(|wakes| wakes.0.load(SeqCst)).collect();
    assert_eq!(woken, [1, 0, 0]);
}

#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_woken() {
    let pool = pool(1);
    let token = held(&pool, 1);
    let mut next = waits(pool.acquire());
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    assert!(Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(token);
    assert_eq!(wakes.0.load(SeqCst), 1);
}

/// Looks at the pool when it wakes and when it is dropped, as an executor's code might.
struct Looks(SlotPool);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        let _ = self.0.waiters();
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        let _ = self.0.waiters();
    }
}

#[test]
fn wakers_may_use_the_pool_because_its_lock_is_let_go_before() {
    let pool = pool(1);
    // The pool's copy of the waker is the last one, so that it is dropped inside the pool's calls.
    let looking = |acquire: &mut Acquire<'_>| {
        let waker = Waker::from(Arc::new(Looks(pool.clone())));
        Pin::new(acquire).poll(&mut Context::from_waker(&waker)).is_pending()
    };
    let token = held(&pool, 1);
    let mut waiters: Vec<_> = (0..4).map(|_| pool.acquire()).collect();
    assert!(waiters.iter_mut().all(looking));
    drop(waiters.pop());
    assert!(poll(&mut waiters[2]).is_pending(), "another waker takes the place of the first");
    drop(token);
    drop(waiters.remove(0));
    pool.close();
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_ready()));
}

#[test]
fn a_reclaim_while_held_returns_at_once_also_on_the_only_slot() {
    let pool = pool(1);
    let mut token = held(&pool, 1);
    assert_eq!(ready(token.reclaim()), Ok(()));
    assert_eq!((token.is_held(), pool.in_use()), (true, 1));
    pool.close();
    assert_eq!(ready(token.reclaim()), Ok(()), "who holds a slot keeps it");
}

#[test]
fn a_reclaim_at_capacity_waits() {
    let pool = pool(2);
    let mut token = held(&pool, 2);
    token.release();
    let other = held(&pool, 1);
    let mut reclaim = token.reclaim();
    assert!(poll(&mut reclaim).is_pending());
    assert!(poll(&mut reclaim).is_pending());
    drop(other);
    assert_eq!(poll(&mut reclaim), Poll::Ready(Ok(())));
    assert_eq!((token.is_held(), pool.in_use()), (true, 2));
}

#[test]
fn a_reclaim_on_a_closed_pool_is_an_error_and_the_token_stays_released() {
    let pool = pool(1);
    let mut early = held(&pool, 1);
    early.release();
    let mut late = held(&pool, 1);
    let mut reclaim = early.reclaim();
    assert!(poll(&mut reclaim).is_pending());
    pool.close();
    assert_eq!(poll(&mut reclaim), Poll::Ready(Err(Closed)), "closed while it waited");
    assert!(!early.is_held());
    late.release();
    assert_eq!(ready(late.reclaim()), Err(Closed), "closed before, though the slot is free");
    assert!(!late.is_held());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_dropped_reclaim_leaks_nothing_and_the_token_can_be_reclaimed_again() {
    let pool = pool(1);
    let mut token = held(&pool, 1);
    token.release();
    drop(token.reclaim());

    let other = held(&pool, 1);
    let mut waiting = token.reclaim();
    assert!(poll(&mut waiting).is_pending());
    drop(waiting);
    assert_eq!((pool.waiting(), pool.in_use(), token.is_held()), (0, 1, false));

    let mut granted = token.reclaim();
    assert!(poll(&mut granted).is_pending());
    drop(other);
    assert_eq!(pool.in_use(), 1, "granted, and not yet seen");
    drop(granted);
    assert_eq!((pool.in_use(), token.is_held()), (0, false));

    assert_eq!(ready(token.reclaim()), Ok(()));
    assert_eq!((pool.in_use(), token.is_held()), (1, true));
}

#[test]
fn a_dropped_acquire_leaks_nothing_and_hands_its_grant_on() {
    let pool = pool(1);
    drop(pool.acquire());
    let token = held(&pool, 1);
    drop(waits(pool.acquire()));
    assert_eq!(pool.waiting(), 0);

    let (first, second) = (waits(pool.acquire()), waits(pool.acquire()));
    drop(token);
    drop(first);
    assert_eq!((pool.in_use(), pool.waiting()), (1, 0));
    drop(ready(second).expect("the first one's grant is handed on"));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn dropping_a_held_token_frees_its_units_and_a_released_one_frees_none() {
    let pool = pool(3);
    let other = held(&pool, 1);
    drop(held(&pool, 2));
    assert_eq!(pool.in_use(), 1);
    let mut token = held(&pool, 2);
    token.release();
    drop(token);
    assert_eq!(pool.in_use(), 1);
    drop(other);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_token_lives_on_without_any_other_handle_of_its_pool() {
    let pool = pool(1);
    let mut token = held(&pool, 1);
    drop(pool);
    token.release();
    assert_eq!(ready(token.reclaim()), Ok(()));
    assert_eq!(token.pool().in_use(), 1);
}

// ------------------------------------------------------------------------------------ order, F17 --

#[tokio::test]
async fn of_equal_priority_who_comes_first_is_started_first() {
    let pool = pool(4);
    let started = Arc::new(Mutex::new(Vec::new()));
    let (ends, tasks): (Vec<_>, Vec<_>) = (1..=5)
        .map(|number| {
            let (end, ended) = oneshot::channel::<()>();
            let (pool, started) = (pool.clone(), started.clone());
            let task = tokio::spawn(async move {
                let work = async move {
                    started.lock().expect("nobody panics with this lock").push(number);
                    ended.await
                };
                pool.run(work).await
            });
            (end, task)
        })
        .unzip();
    let begun = || started.lock().expect("nobody panics with this lock").clone();
    until(|| begun().len() == 4 && pool.waiting() == 1).await;
    assert_eq!(begun(), [1, 2, 3, 4], "at once");
    let mut ends = ends.into_iter();
    ends.next().expect("five").send(()).expect("the first waits for its end");
    until(|| begun().len() == 5).await;
    assert_eq!(begun(), [1, 2, 3, 4, 5]);
    for end in ends {
        end.send(()).expect("the others wait for their end");
    }
    for task in tasks {
        task.await.expect("the task does not panic").expect("the work succeeds");
    }
}

/// Who of these is granted, in order, as the one slot is given on.
fn order<'p>(token: SlotToken, waiters: Vec<(&'static str, Acquire<'p>)>) -> Vec<&'static str> {
    let (mut waiters, mut token, mut order) = (waiters, Some(token), Vec::new());
    while !waiters.is_empty() {
        drop(token.take());
        let granted = waiters.iter_mut().position(|(_, acquire)| match poll(acquire) {
            Poll::Ready(granted) => {
                token = Some(granted.expect("the pool is open"));
                true
            }
            Poll::Pending => false,
        });
        order.push(waiters.remove(granted.expect("somebody is next")).0);
    }
    order
}

#[tokio::test(start_paused = true)]
async fn a_priority_is_a_head_start_in_seconds() {
    let pool = pool(1);
    let token = held(&pool, 1);
    let mut waiters = vec![("plain", waits(pool.acquire()))];
    tokio::time::advance(Duration::from_secs(10)).await;
    waiters.push(("too little", waits(pool.acquire().priority(9))));
    waiters.push(("enough", waits(pool.acquire().priority(11))));
    waiters.push(("behind", waits(pool.acquire().priority(-1))));
    assert_eq!(order(token, waiters), ["enough", "plain", "too little", "behind"]);
}

#[tokio::test]
async fn who_goes_on_comes_before_who_begins_three_times_of_four() {
    let pool = pool(1);
    let log = Arc::new(Mutex::new(Vec::new()));
    let enter = |log: &Mutex<Vec<_>>, name| {
        log.lock().expect("nobody panics with this lock").push(name);
    };
    let released = (0..4).map(|_| {
        let mut token = held(&pool, 1);
        token.release();
        token
    });
    let released: Vec<_> = released.collect();
    let last = held(&pool, 1);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (pool, log) = (pool.clone(), log.clone());
        tasks.push(tokio::spawn(async move {
            let _token = pool.acquire().await.expect("the pool is open");
            enter(&log, "start");
        }));
    }
    until(|| pool.waiting() == 2).await;
    for mut token in released {
        let log = log.clone();
        tasks.push(tokio::spawn(async move {
            token.reclaim().await.expect("the pool is open");
            enter(&log, "resume");
        }));
    }
    until(|| pool.waiting() == 6).await;
    drop(last);
    for task in tasks {
        task.await.expect("the task does not panic");
    }
    let log = log.lock().expect("nobody panics with this lock");
    assert_eq!(*log, ["resume", "resume", "resume", "start", "resume", "start"]);
}

// --------------------------------------------------------------------------------------- weights --

#[test]
fn a_weight_is_granted_whole_or_not_at_all() {
    let pool = pool(4);
    let token = held(&pool, 2);
    let mut heavy = waits(pool.acquire().weight(3));
    assert_eq!((pool.in_use(), pool.available()), (2, 2), "nothing is taken in advance");
    drop(token);
    let Poll::Ready(Ok(token)) = poll(&mut heavy) else { panic!("three of four are free") };
    assert_eq!((token.weight(), pool.in_use()), (3, 3));
}

#[test]
fn light_ones_pass_a_heavy_one_sixteen_times_and_then_slots_are_kept_for_it() {
    let pool = pool(2);
    let first = held(&pool, 1);
    let mut heavy = waits(pool.acquire().weight(2));
    for _ in 0..16 {
        drop(ready(pool.acquire()).expect("the pool is open"));
    }
    let refused = pool.try_acquire(1).expect_err("the free slot is kept");
    assert_eq!(refused, TryAcquireError::NoSlot { weight: 1, available: 1 });
    let mut light = waits(pool.acquire());
    drop(first);
    let Poll::Ready(Ok(token)) = poll(&mut heavy) else { panic!("its turn has come") };
    assert!(poll(&mut light).is_pending());
    drop(token);
    assert!(poll(&mut light).is_ready());
}

#[tokio::test]
async fn work_on_a_heavy_token_uses_all_its_slots_until_its_end() {
    let pool = pool(3);
    let reading = pool.clone();
    let work = async move { Ok::<_, ()>(reading.in_use()) };
    let token = pool.acquire().weight(2).await.expect("the pool is open");
    assert_eq!(token.run(work).await, Ok(2));
    assert_eq!(pool.in_use(), 0);
}

// ------------------------------------------------------------------------------- resize and close --

#[test]
fn growing_grants_at_once() {
    let pool = pool(1);
    let _token = held(&pool, 1);
    let mut waiters: Vec<_> = (0..3).map(|_| waits(pool.acquire())).collect();
    pool.resize(3).expect("a capacity of at least 1");
    assert_eq!((pool.capacity(), pool.in_use(), pool.waiting()), (3, 3, 1));
    // The tokens are kept: a dropped one would hand its slot to the third.
    let polled: Vec<_> = waiters.iter_mut().map(poll).collect();
    let granted: Vec<_> = polled.iter().map(Poll::is_ready).collect();
    assert_eq!(granted, [true, true, false]);
}

#[test]
fn shrinking_takes_no_slot_away_and_shows_the_over_commitment() {
    let pool = pool(4);
    let mut tokens: Vec<_> = (0..4).map(|_| held(&pool, 1)).collect();
    let mut waiter = waits(pool.acquire());
    pool.resize(2).expect("a capacity of at least 1");
    for over in [2, 1, 0] {
        assert_eq!((pool.overcommitted(), pool.in_use()), (over, 2 + over));
        assert_eq!((pool.available(), pool.has_capacity()), (0, false));
        assert!(tokens.iter().all(SlotToken::is_held));
        assert!(poll(&mut waiter).is_pending());
        tokens.pop();
    }
    assert!(poll(&mut waiter).is_ready(), "one of two is free");
}

#[test]
fn a_waiter_heavier_than_a_shrunken_pool_is_granted_alone() {
    let pool = pool(4);
    let (one, two) = (held(&pool, 1), held(&pool, 1));
    let mut heavy = waits(pool.acquire().weight(4));
    pool.resize(2).expect("a capacity of at least 1");
    drop(one);
    assert!(poll(&mut heavy).is_pending());
    drop(two);
    let Poll::Ready(Ok(token)) = poll(&mut heavy) else { panic!("the pool is empty") };
    assert_eq!((pool.in_use(), pool.overcommitted(), pool.available()), (4, 2, 0));
    assert!(pool.try_acquire(1).is_err());
    drop(token);
    assert_eq!((pool.in_use(), pool.overcommitted(), pool.available()), (0, 0, 2));
}

#[test]
fn a_token_heavier_than_a_shrunken_pool_can_be_reclaimed_when_it_is_empty() {
    let pool = pool(3);
    let mut token = held(&pool, 3);
    token.release();
    pool.resize(1).expect("a capacity of at least 1");
    let other = held(&pool, 1);
    let mut reclaim = token.reclaim();
    assert!(poll(&mut reclaim).is_pending());
    drop(other);
    assert!(poll(&mut reclaim).is_ready());
    assert_eq!(pool.overcommitted(), 2);
}

#[test]
fn closing_fails_every_waiter_at_once_and_takes_nothing_from_holders() {
    let pool = pool(2);
    let token = held(&pool, 2);
    let wakes: Vec<_> = (0..3).map(|_| Arc::new(Wakes::default())).collect();
    let mut waiters: Vec<_> = [1, 2, 1].map(|weight| pool.acquire().weight(weight)).into();
    for (waiter, wakes) in waiters.iter_mut().zip(&wakes) {
        let waker = Waker::from(wakes.clone());
        assert!(Pin::new(waiter).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert!(!pool.is_closed());
    pool.close();
    pool.close();
    assert!(pool.is_closed());
    assert_eq!((pool.waiting(), pool.waiters().len(), pool.in_use()), (0, 0, 2));
    for (waiter, wakes) in waiters.iter_mut().zip(&wakes) {
        assert_eq!(wakes.0.load(SeqCst), 1);
        let Poll::Ready(Err(error)) = poll(waiter) else { panic!("the pool is closed") };
        assert_eq!(error, AcquireError::Closed);
        assert_eq!(error.to_string(), "the pool of slots is closed");
    }
    assert!(token.is_held());
    drop(token);
    assert_eq!(pool.in_use(), 0);
    assert_eq!(ready(pool.acquire()).err(), Some(AcquireError::Closed));
    assert_eq!(pool.try_acquire(1).err(), Some(TryAcquireError::Closed));
}

#[test]
fn a_slot_granted_before_the_close_is_still_collected_after_it() {
    let pool = pool(1);
    let token = held(&pool, 1);
    let mut waiter = waits(pool.acquire());
    drop(token);
    pool.close();
    let Poll::Ready(Ok(token)) = poll(&mut waiter) else { panic!("it was granted before") };
    drop(token);
    assert_eq!(pool.in_use(), 0);
}

#[tokio::test]
async fn a_closed_pool_runs_and_spawns_nothing() {
    let pool = pool(1);
    pool.close();
    let closed = AcquireError::Closed;
    let run = pool.run(not_to_be_run()).await;
    assert_eq!(run, Err(RunError::Slot(closed.clone())));
    let spawned = pool.spawn(not_to_be_run()).await;
    assert_eq!(spawned.err(), Some(closed));
    assert_eq!(tally(pool.totals()), [0; 5]);
}

// ------------------------------------------------------------------------------------- bad input --

#[test]
fn a_capacity_of_zero_is_refused_and_changes_nothing() {
    let message = "a capacity of 0 slots would never run anything; it must be at least 1";
    let error = SlotPool::new(0).expect_err("no slots");
    assert_eq!((error, error.to_string().as_str()), (InvalidCapacity, message));
    let pool = pool(3);
    assert_eq!(pool.resize(0), Err(InvalidCapacity));
    assert_eq!((pool.capacity(), pool.available()), (3, 3));
}

#[test]
fn an_impossible_weight_is_refused_at_once_and_both_numbers_are_named() {
    let pool = pool(4);
    // Also while nothing is free: it is an answer, not a wait.
    let _token = held(&pool, 4);
    let messages = [
        (0, "a weight of 0 does not fit a capacity of 4; it must be between 1 and 4"),
        (5, "a weight of 5 does not fit a capacity of 4; it must be between 1 and 4"),
    ];
    for (weight, message) in messages {
        let invalid = InvalidWeight { weight, capacity: 4 };
        let error = ready(pool.acquire().weight(weight)).expect_err("impossible");
        assert_eq!(error, AcquireError::Weight(invalid));
        assert_eq!(error.to_string(), message);
        let error = pool.try_acquire(weight).expect_err("impossible");
        assert_eq!(error, TryAcquireError::Weight(invalid));
        assert_eq!(error.to_string(), message);
    }
    assert_eq!((pool.in_use(), pool.waiting()), (4, 0));
}

#[test]
fn who_tries_and_gets_nothing_is_told_how_much_is_free() {
    let pool = pool(4);
    let _token = held(&pool, 3);
    let error = pool.try_acquire(2).expect_err("one is free");
    assert_eq!(error.to_string(), "2 slots were asked for and 1 are free");
    let _heavy = waits(pool.acquire().weight(4));
    for _ in 0..16 {
        drop(held(&pool, 1));
    }
    let error = pool.try_acquire(1).expect_err("the free one is kept");
    assert_eq!(error.to_string(), "the 1 free slots are being kept for a heavier waiter");
}

// ------------------------------------------------------------------------ spawned work, F25, F32 --

#[tokio::test]
async fn value_error_panic_and_cancelled_are_four_outcomes() {
    let pool = pool(4);
    let open = "the pool is open";
    let value = pool.spawn(async { Ok::<_, &str>(7) }).await.expect(open);
    let error = pool.spawn(async { Err::<u32, _>("no") }).await.expect(open);
    let panic = pool.spawn(panics::<u32, &str>("on purpose")).await.expect(open);
    let cancelled = pool.spawn(pending::<Result<u32, &str>>()).await.expect(open);
    cancelled.cancel();

    assert_eq!(value.await, Ok(7));
    assert_eq!(error.await, Err(RunError::Failed("no")));
    let panic = panic.await;
    let Err(RunError::Panicked(panic)) = panic else { panic!("{panic:?}") };
    assert_eq!(panic.message(), "on purpose");
    assert_eq!(cancelled.await, Err(RunError::Cancelled));
    assert_eq!(pool.available(), 4);
}

#[tokio::test]
async fn spawn_returns_once_the_slot_is_granted() {
    let pool = pool(1);
    let (end, ended) = oneshot::channel::<()>();
    let first = pool.spawn(ended).await.expect("the pool is open");
    let mut second = Box::pin(pool.spawn(async { Ok::<_, ()>(2) }));
    assert!(futures_util::poll!(&mut second).is_pending());
    assert_eq!(pool.waiting(), 1);
    end.send(()).expect("the first waits for its end");
    assert_eq!(first.await, Ok(()));
    assert_eq!(second.await.expect("the pool is open").await, Ok(2));
}

#[tokio::test]
async fn a_spawn_dropped_before_its_slot_drops_the_work_unbegun() {
    let pool = pool(1);
    let token = held(&pool, 1);
    let mut spawn = Box::pin(pool.spawn(not_to_be_run()));
    assert!(poll(&mut spawn).is_pending());
    drop(token);
    drop(spawn);
    assert_eq!((pool.available(), pool.waiting()), (1, 0));
    assert_eq!(tally(pool.totals()), [0; 5]);
}

/// Says when it is dropped.
struct Dropped(Option<oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(());
        }
    }
}

#[tokio::test]
async fn dropping_spawned_work_cancels_it() {
    let pool = pool(1);
    let (sender, dropped) = oneshot::channel();
    let guard = Dropped(Some(sender));
    let spawned = pool.spawn(async move {
        let _guard = guard;
        pending::<Result<(), ()>>().await
    });
    let spawned = spawned.await.expect("the pool is open");
    yield_now().await;
    assert!(!spawned.is_finished());
    drop(spawned);
    dropped.await.expect("the work is dropped");
    until(|| pool.available() == 1).await;
    assert_eq!(pool.totals().cancelled, 1);
}

#[tokio::test]
async fn detached_work_runs_to_its_end() {
    let pool = pool(1);
    let (begin, begun) = oneshot::channel::<()>();
    let (end, ended) = oneshot::channel();
    let work = async move {
        begun.await.map_err(|_| "nobody begins")?;
        end.send(7).map_err(|_| "nobody listens")
    };
    pool.spawn(work).await.expect("the pool is open").detach();
    yield_now().await;
    assert_eq!(pool.in_use(), 1);
    begin.send(()).expect("the work waits for it");
    assert_eq!(ended.await, Ok(7));
    until(|| pool.available() == 1).await;
    assert_eq!(pool.totals().succeeded, 1);
}

#[tokio::test]
async fn an_outcome_stays_when_who_polls_it_goes_away() {
    let pool = pool(1);
    let (end, ended) = oneshot::channel::<()>();
    let mut spawned = pool.spawn(ended).await.expect("the pool is open");
    assert!(futures_util::poll!(&mut spawned).is_pending());
    end.send(()).expect("the work waits for its end");
    until(|| spawned.is_finished()).await;
    assert_eq!(spawned.await, Ok(()));
}

#[tokio::test]
async fn cancelling_work_that_has_ended_changes_nothing() {
    let pool = pool(1);
    let spawned = pool.spawn(async { Ok::<_, ()>(7) }).await.expect("the pool is open");
    until(|| spawned.is_finished()).await;
    spawned.cancel();
    assert_eq!(spawned.await, Ok(7));
}

#[tokio::test]
async fn a_panic_fails_its_work_with_its_message_and_nobody_else() {
    let pool = pool(2);
    let (end, ended) = oneshot::channel::<()>();
    let neighbour = pool.spawn(ended).await.expect("the pool is open");

    let text: Result<(), RunError<()>> = pool.run(async { panic!("just text") }).await;
    let made: Result<(), RunError<()>> = pool.run(async { panic!("made of {}", 2) }).await;
    let other: Result<(), RunError<()>> = pool
        .run(async {
            yield_now().await;
            std::panic::panic_any(7)
        })
        .await;
    let messages = [text, made, other].map(|end| match end {
        Err(RunError::Panicked(panic)) => panic.to_string(),
        other => panic!("{other:?}"),
    });
    let expected =
        ["panicked: just text", "panicked: made of 2", "panicked: a value that is not text"];
    assert_eq!(messages, expected);

    end.send(()).expect("the neighbour lives");
    assert_eq!(neighbour.await, Ok(()));
    assert_eq!(pool.run(async { Ok::<_, ()>(1) }).await, Ok(1), "the pool lives");
    assert_eq!(tally(pool.totals()), [5, 2, 3, 0, 0]);
}

#[test]
fn a_panic_while_holding_a_token_gives_the_slot_back() {
    let pool = pool(1);
    let inner = pool.clone();
    let panic = std::panic::catch_unwind(move || {
        let _token = held(&inner, 1);
        panic!("on purpose");
    });
    assert!(panic.is_err());
    assert_eq!(pool.available(), 1);
}

// ------------------------------------------------------------------------------------------ Send --

/// Compiles only if all of it can move to another thread.
#[allow(dead_code)]
fn every_public_future_is_send(pool: &SlotPool, token: SlotToken, other: SlotToken) {
    fn send<T: Send>(_: T) {}
    fn send_type<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    shared::<SlotPool>();
    shared::<SlotToken>();
    send_type::<TaskHandle>();
    send_type::<Acquire<'_>>();
    send_type::<Reclaim<'_>>();
    send_type::<Spawned<u32, String>>();
    send(pool.acquire());
    send(pool.run(async { Ok::<_, ()>(()) }));
    send(pool.run(async |_: TaskHandle| Ok::<_, ()>(())));
    send(pool.spawn(async { Ok::<_, ()>(()) }));
    send(pool.spawn(async |handle: TaskHandle| handle.yield_slot().await));
    send(token.run(async |handle: TaskHandle| handle.sleep(Duration::ZERO).await));
    send(other.spawn(async { Ok::<_, ()>(()) }));
}
