//! Waits and tasks that end before their time.

use super::*;
use futures_util::future::join_all;
use tidegate::error::RunError;
use tidegate::{SlotToken, condition};
use tokio::sync::oneshot;

/// Drops its wait, and is active from its next await on.
async fn drops_its_wait(handle: TaskHandle, crowd: Crowd) -> Result<(), TaskError> {
    let never = handle.defer_until(|| async { false }, ms(50));
    assert!(tokio::time::timeout(ms(300), never).await.is_err());
    tokio::task::yield_now().await;
    assert!(handle.is_slot_held());
    let _active = crowd.enter();
    for _ in 0..3 {
        tokio::time::sleep(ms(7)).await;
    }
    done()
}

#[tokio::test(start_paused = true)]
async fn after_a_dropped_wait_no_two_run_on_one_slot() {
    let (pool, crowd, start) = (pool(1), Crowd::default(), Instant::now());
    let tasks = (0..8).map(|_| {
        let crowd = crowd.clone();
        pool.run(move |handle| drops_its_wait(handle, crowd))
    });
    for ended in join_all(tasks).await {
        ended.unwrap();
    }
    assert_eq!((crowd.most(), start.elapsed()), (1, ms(300 + 8 * 21)));
}

#[tokio::test(start_paused = true)]
async fn after_a_dropped_wait_no_two_spawned_tasks_run_on_one_slot() {
    let (pool, crowd, start) = (pool(1), Crowd::default(), Instant::now());
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let crowd = crowd.clone();
        let task = pool.spawn(move |handle| drops_its_wait(handle, crowd));
        tasks.push(task.await.unwrap());
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((crowd.most(), start.elapsed()), (1, ms(300 + 8 * 21)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_dropped_wait_no_two_run_on_one_slot_on_several_threads() {
    let (pool, crowd) = (pool(1), Crowd::default());
    let mut tasks = Vec::new();
    for i in 0..40 {
        let crowd = crowd.clone();
        let task = pool.spawn(async move |handle: TaskHandle| {
            for round in 0..20 {
                let never = handle.defer_until(|| async { false }, ms(1));
                let _ = tokio::time::timeout(ms((i + round) % 3), never).await;
                tokio::task::yield_now().await;
                let _active = crowd.enter();
                tokio::task::yield_now().await;
            }
            done()
        });
        tasks.push(task.await.unwrap());
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((crowd.most(), pool.in_use()), (1, 0));
}

/// A task that drops its wait at `after` and logs when it goes on.
async fn drops_at(pool: &SlotPool, log: &Log, wait: Duration, after: Duration) {
    let log = log.clone();
    let task = pool.spawn(async move |handle: TaskHandle| {
        tokio::select! {
            biased;
            _ = handle.sleep(wait) => log.say("the wait is over"),
            () = tokio::time::sleep(after) => {}
        }
        tokio::task::yield_now().await;
        assert!(handle.is_slot_held());
        log.say(format!("goes on at {:?}", log.start.elapsed()));
        done()
    });
    task.await.unwrap().detach();
}

#[tokio::test(start_paused = true)]
async fn a_wait_dropped_while_it_waits_lets_the_task_go_on_only_with_the_slot() {
    let (pool, log) = (pool(1), Log::default());
    drops_at(&pool, &log, HOUR, ms(10)).await;
    let rival = pool.acquire().await.unwrap();
    tokio::time::sleep(ms(25)).await;
    let queued = pool.waiters();
    assert_eq!((queued.len(), queued[0].resumes, queued[0].waited), (1, true, ms(15)));
    drop(rival);
    drop(pool.acquire().await.unwrap());
    assert_eq!(log.lines(), ["goes on at 25ms"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_dropped_while_it_queues_leaves_its_place_to_the_task() {
    let (pool, log) = (pool(1), Log::default());
    drops_at(&pool, &log, ms(10), ms(20)).await;
    let rival = pool.acquire().await.unwrap();
    tokio::time::sleep(ms(25)).await;
    let queued = pool.waiters();
    assert_eq!((queued.len(), queued[0].resumes, queued[0].waited), (1, true, ms(15)));
    drop(rival);
    drop(pool.acquire().await.unwrap());
    assert_eq!(log.lines(), ["goes on at 25ms"]);
}

/// The place in line that a dropped wait had left behind was granted to a task that was waiting
/// again, and which kept the slot from everybody for as long as its next wait lasted.
#[tokio::test(start_paused = true)]
async fn a_task_that_drops_a_queueing_wait_and_waits_again_leaves_the_queue() {
    let (pool, open) = (pool(1), Flag::default());
    let task = pool
        .spawn({
            let open = open.clone();
            async move |handle: TaskHandle| {
                let dropped = tokio::time::timeout(ms(20), handle.sleep(ms(10))).await;
                assert!(dropped.is_err(), "it queued for the slot");
                handle.defer_until(|| async { open.get() }, ms(10)).await?;
                assert!(handle.is_slot_held());
                done()
            }
        })
        .await
        .unwrap();
    let rival = pool.acquire().await.unwrap();
    tokio::time::sleep(ms(15)).await;
    assert_eq!(pool.waiting(), 1);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(pool.waiting(), 0, "it waits for the condition, not for the slot");
    drop(rival);
    assert_eq!(pool.in_use(), 0);
    // Only who has the slot can open it.
    let opener = pool.run(async move {
        open.set();
        done()
    });
    tokio::time::timeout(HOUR, opener).await.expect("the slot is free").unwrap();
    task.await.unwrap();
}

/// Without a gate nobody was there to take what the place in line was granted.
#[tokio::test(start_paused = true)]
async fn outside_a_gate_a_wait_dropped_while_it_queues_leaves_the_queue() {
    let pool = pool(1);
    let handle = handle_on(&pool).await;
    let mut wait = Box::pin(handle.sleep(ms(10)));
    assert!(tokio::time::timeout(ms(1), &mut wait).await.is_err());
    let rival = pool.acquire().await.unwrap();
    assert!(tokio::time::timeout(ms(20), &mut wait).await.is_err());
    assert_eq!(pool.waiting(), 1);
    drop(wait);
    assert_eq!(pool.waiting(), 0);
    drop(rival);
    assert_eq!((pool.in_use(), handle.is_slot_held()), (0, false));
    handle.sleep(ms(1)).await.unwrap();
    assert!(handle.is_slot_held(), "the next wait takes the slot again");
}

#[tokio::test(start_paused = true)]
async fn of_several_open_waits_one_can_be_dropped_and_the_others_go_on() {
    let pool = pool(1);
    let task = pool.spawn(async |handle: TaskHandle| {
        let short = async {
            // Dropped at 20 ms while it queues; the other still waits.
            assert!(tokio::time::timeout(ms(20), handle.sleep(ms(10))).await.is_err());
            assert!(!handle.is_slot_held());
        };
        let (_, long) = tokio::join!(short, handle.sleep(ms(100)));
        long?;
        assert!(handle.is_slot_held());
        done()
    });
    let task = task.await.unwrap();
    let rival = pool.acquire().await.unwrap();
    tokio::time::sleep(ms(15)).await;
    assert_eq!(pool.waiting(), 1);
    tokio::time::sleep(ms(10)).await;
    assert_eq!(pool.waiting(), 0, "nobody wants the slot while the other waits");
    drop(rival);
    drop(pool.acquire().await.unwrap());
    task.await.unwrap();
    assert_eq!(pool.in_use(), 0);
}

/// A task that sleeps for 10 ms, and the only slot in other hands.
async fn deferred(
    pool: &SlotPool,
    log: &Log,
) -> (tidegate::slot::Spawned<(), TaskError>, SlotToken) {
    let log = log.clone();
    let task = pool.spawn(async move |handle: TaskHandle| {
        handle.sleep(ms(10)).await?;
        log.say("went on");
        done()
    });
    (task.await.unwrap(), pool.acquire().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_task_cancelled_while_deferred_reclaims_nothing() {
    let (pool, log) = (pool(1), Log::default());
    let (task, rival) = deferred(&pool, &log).await;
    task.cancel();
    assert!(matches!(task.await, Err(RunError::Cancelled)));
    tokio::time::sleep(HOUR).await;
    assert_eq!((pool.in_use(), pool.waiting(), pool.totals().cancelled), (1, 0, 1));
    drop(rival);
    assert_eq!(pool.in_use(), 0);
    assert!(log.lines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_cancelled_while_it_queues_to_resume_leaves_the_queue() {
    let (pool, log) = (pool(1), Log::default());
    let (task, rival) = deferred(&pool, &log).await;
    tokio::time::sleep(ms(20)).await;
    assert_eq!(pool.waiting(), 1);
    task.cancel();
    assert!(matches!(task.await, Err(RunError::Cancelled)));
    assert_eq!((pool.in_use(), pool.waiting()), (1, 0));
    drop(rival);
    assert_eq!(pool.in_use(), 0);
    assert!(log.lines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_cancelled_at_the_moment_it_is_granted_the_slot_gives_it_back() {
    let (pool, log) = (pool(1), Log::default());
    let (task, rival) = deferred(&pool, &log).await;
    tokio::time::sleep(ms(20)).await;
    drop(rival);
    assert_eq!(pool.in_use(), 1, "granted, but not polled since");
    drop(task);
    drop(pool.acquire().await.unwrap());
    assert_eq!(pool.in_use(), 0);
    assert!(log.lines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_wait_was_for_is_dropped_when_it_is_over_and_not_when_it_has_the_slot() {
    let (pool, crowd) = (pool(1), Crowd::default());
    let task = pool
        .spawn({
            let (inside, inside_too) = (crowd.enter(), crowd.enter());
            async move |handle: TaskHandle| {
                let never = move || {
                    let _ = &inside;
                    std::future::ready(false)
                };
                let also_never = move || {
                    let _ = &inside_too;
                    false
                };
                let never = handle.defer_until(never, ms(3));
                let late = handle.defer_until(condition::check(also_never), ms(3));
                handle.wait_any([never, late, handle.sleep(ms(10))]).await?;
                done()
            }
        })
        .await
        .unwrap();
    let rival = pool.acquire().await.unwrap();
    assert_eq!(crowd.now(), 2);
    tokio::time::sleep(ms(11)).await;
    assert_eq!((pool.waiting(), crowd.now()), (1, 0), "it queues, and has dropped the losers");
    drop(rival);
    task.await.unwrap();
}

/// Checks that had begun before a wait's time-out kept their leave to check while the task queued
/// for its slot, and nobody else could check anything.
#[tokio::test(start_paused = true)]
async fn a_wait_that_queues_for_its_slot_keeps_nobody_from_checking() {
    let pool = pool(1);
    let mut tasks = Vec::new();
    for _ in 0..64 {
        let task = pool.spawn(async |handle: TaskHandle| {
            let hangs = handle.defer_until(std::future::pending::<bool>, secs(1));
            assert!(hangs.timeout(secs(10)).await.is_err());
            done()
        });
        tasks.push(task.await.unwrap());
    }
    let holder = handle_on(&pool).await;
    tokio::time::sleep(secs(20)).await;
    assert_eq!(pool.waiting(), 64);
    let start = Instant::now();
    holder.defer_until(|| async { true }, secs(1)).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(holder);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_begun_can_still_become_part_of_another() {
    let pool = pool(1);
    let task = pool.spawn(async |handle: TaskHandle| {
        let mut waits = Vec::new();
        for (name, delay) in [("soon", 10), ("late", 30)] {
            let value = async move {
                tokio::time::sleep(ms(delay)).await;
                name
            };
            let mut wait = handle.defer_while(value);
            // The first is over by then and queues for the slot; the second still waits.
            assert!(tokio::time::timeout(ms(15), &mut wait).await.is_err());
            waits.push(wait);
        }
        let all = handle.wait_all(waits).await?;
        assert!(handle.is_slot_held());
        Ok::<_, TaskError>(all)
    });
    let task = task.await.unwrap();
    let rival = pool.acquire().await.unwrap();
    tokio::time::sleep(ms(20)).await;
    drop(rival);
    assert_eq!(task.await.unwrap(), ["soon", "late"]);
    assert_eq!((pool.in_use(), pool.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_is_looked_at_no_more() {
    async fn stops(wait: impl for<'h> Fn(&'h TaskHandle, Watched) -> Wait<'h, ()>) {
        let (watched, pool) = (Watched::never(), pool(1));
        let handle = handle_on(&pool).await;
        let dropped = tokio::time::timeout(ms(35), wait(&handle, watched.clone())).await;
        assert!(dropped.is_err());
        assert_eq!(watched.looks(), [0, 10, 20, 30].map(ms));
        tokio::time::sleep(HOUR).await;
        assert_eq!((watched.looks().len(), watched.crowd.now()), (4, 0));
    }
    stops(|handle, watched| handle.defer_until(move || std::future::ready(watched.look()), ms(10)))
        .await;
    stops(|handle, watched| handle.defer_until(condition::check(move || watched.look()), ms(10)))
        .await;
    stops(|handle, watched| {
        let look = move || {
            let watched = watched.clone();
            // Still under way when the wait is dropped.
            let takes = if watched.looks().len() == 3 { HOUR } else { Duration::ZERO };
            async move { watched.look_for(takes).await }
        };
        handle.defer_until(condition::poll(look), ms(10))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_in_the_background_when_nobody_waits() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (pool, before) = (pool(2), alive());
    let handle = handle_on(&pool).await;
    let waits = handle.wait_all([
        handle.sleep(HOUR),
        handle.defer_until(|| async { false }, secs(1)).timeout(HOUR),
        handle.defer_until(condition::check(|| false), secs(1)),
        handle.defer_until(condition::poll(std::future::pending::<bool>), secs(1)),
        handle.defer_until(condition::file("/no/such/file"), secs(1)),
    ]);
    assert!(tokio::time::timeout(secs(10), waits).await.is_err());
    assert!(alive() > before);
    drop(handle);
    settle().await;
    assert_eq!(alive(), before);
    let (send, receive) = oneshot::channel::<()>();
    drop(send);
    assert!(handle_on(&pool).await.defer_while(receive).await.unwrap().is_err());
}
