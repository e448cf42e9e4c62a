//! Who has the slot when.

use super::*;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tidegate::error::{AcquireError, RunError};
use tidegate::{WaitError, condition};
use tokio::sync::oneshot;

#[tokio::test(start_paused = true)]
async fn a_deferred_task_frees_its_slot_for_another_and_goes_on_with_it_held() {
    let (pool, log, open) = (pool(1), Log::default(), Flag::default());
    let a = pool
        .spawn({
            let (pool, log, open) = (pool.clone(), log.clone(), open.clone());
            async move |handle: TaskHandle| {
                log.say("A waits");
                handle.defer_until(|| async { open.get() }, secs(1)).await?;
                assert!(handle.is_slot_held());
                assert_eq!((pool.in_use(), pool.available()), (1, 0));
                log.say("A goes on");
                done()
            }
        })
        .await
        .unwrap();
    let b = pool
        .run({
            let (log, open) = (log.clone(), open.clone());
            async move {
                log.say("B begins");
                tokio::time::sleep(secs(5)).await;
                log.say("B ends");
                open.set();
                done()
            }
        })
        .await;
    b.unwrap();
    a.await.unwrap();
    assert_eq!(log.lines(), ["A waits", "B begins", "B ends", "A goes on"]);
    assert_eq!(pool.in_use(), 0);
}

/// Somebody stands in line for the only slot all the while: if the wait released it for a moment,
/// it would have been granted.
async fn releases_nothing(wait: impl MakeWait<()>) {
    let pool = pool(1);
    let token = pool.acquire().await.unwrap();
    let rival = tokio::spawn({
        let pool = pool.clone();
        async move { drop(pool.acquire().await.unwrap()) }
    });
    settle().await;
    token
        .run(async move |handle: TaskHandle| {
            let start = Instant::now();
            wait(&handle).await?;
            assert_eq!(start.elapsed(), Duration::ZERO, "no interval is waited");
            assert!(handle.is_slot_held());
            assert_eq!(pool.waiting(), 1, "the rival was not granted the slot");
            done()
        })
        .await
        .unwrap();
    rival.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_true_already_releases_nothing() {
    releases_nothing(|handle| handle.defer_until(|| async { true }, secs(5))).await;
    releases_nothing(|handle| handle.defer_until(condition::check(|| true), secs(5))).await;
    releases_nothing(|handle| handle.defer_until(condition::poll(|| async { true }), secs(5)))
        .await;
    releases_nothing(|handle| handle.defer_until(condition::file("Cargo.toml"), secs(5))).await;
    releases_nothing(|handle| handle.sleep(Duration::ZERO)).await;
    releases_nothing(|handle| handle.sleep_until(std::time::SystemTime::UNIX_EPOCH)).await;
    releases_nothing(|handle| handle.defer_while(async {})).await;
    releases_nothing(|handle| handle.wait_all::<()>([]).map(|_| ())).await;
    releases_nothing(|handle| handle.wait_any([handle.sleep(HOUR), handle.sleep(Duration::ZERO)]))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_first_check_that_needs_some_polls_releases_nothing() {
    async fn three_polls() -> bool {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        true
    }
    releases_nothing(|handle| handle.defer_until(three_polls, secs(5))).await;
    releases_nothing(|handle| handle.defer_until(condition::poll(three_polls), secs(5))).await;
    releases_nothing(|handle| {
        handle.wait_any([handle.sleep(HOUR), handle.defer_until(three_polls, secs(5))])
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_first_check_that_hangs_gives_the_slot_back_after_10_ms() {
    async fn hangs() -> bool {
        tokio::time::sleep(secs(60)).await;
        true
    }
    async fn gives_back(wait: impl MakeWait<()>) {
        let (pool, start) = (pool(1), Instant::now());
        let a = pool
            .spawn(async move |handle: TaskHandle| {
                wait(&handle).await?;
                Ok::<_, TaskError>(start.elapsed())
            })
            .await
            .unwrap();
        drop(pool.acquire().await.unwrap());
        assert_eq!(start.elapsed(), ms(10));
        assert_eq!(a.await.unwrap(), secs(60));
    }
    gives_back(|handle| handle.defer_until(hangs, secs(5))).await;
    gives_back(|handle| handle.defer_until(condition::poll(hangs), secs(5))).await;
}

#[tokio::test(start_paused = true)]
async fn two_waits_at_once_each_return_with_the_slot_held() {
    let pool = pool(1);
    let (first, second) = (ms(10), ms(50));
    let task = pool
        .spawn({
            let pool = pool.clone();
            async move |handle: TaskHandle| {
                let start = Instant::now();
                let wait = async |delay| {
                    handle.sleep(delay).await.unwrap();
                    assert!(handle.is_slot_held());
                    start.elapsed()
                };
                let (a, b, also_a) = tokio::join!(wait(first), wait(second), wait(first));
                // The second wait goes on with the slot held: nobody gets it meanwhile.
                assert_eq!((a, also_a, b), (ms(20), ms(20), ms(50)));
                assert_eq!(pool.waiting(), 1);
                done()
            }
        })
        .await
        .unwrap();
    let rival = pool.acquire().await.unwrap();
    tokio::time::sleep(ms(20)).await;
    drop(rival);
    settle().await;
    let rival = pool.acquire();
    assert_eq!(pool.in_use(), 1);
    let (task, rival) = tokio::join!(task, rival);
    task.unwrap();
    drop(rival.unwrap());
}

#[tokio::test(start_paused = true)]
async fn many_waits_in_one_task_never_return_without_the_slot() {
    let pool = pool(1);
    let rivals = (0..3).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for _ in 0..40 {
                let token = pool.acquire().await.unwrap();
                tokio::time::sleep(ms(3)).await;
                drop(token);
                tokio::time::sleep(ms(1)).await;
            }
        })
    });
    let rivals: Vec<_> = rivals.collect();
    let returned = pool.run(async |handle: TaskHandle| {
        let handle = &handle;
        let mut waits: FuturesUnordered<_> = (0..20)
            .map(|i| async move {
                for round in 0..5 {
                    handle.sleep(ms(1 + i % 4 + round)).await?;
                    assert!(handle.is_slot_held());
                }
                handle.defer_until(|| async { true }, secs(1)).await?;
                assert!(handle.is_slot_held(), "true at once, but another wait has the slot away");
                done()
            })
            .collect();
        let mut returned = 0;
        while let Some(wait) = waits.next().await {
            wait?;
            returned += 1;
        }
        Ok::<_, TaskError>(returned)
    });
    assert_eq!(returned.await.unwrap(), 20);
    for rival in rivals {
        rival.await.unwrap();
    }
    assert_eq!(pool.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn conditions_may_borrow_from_the_task() {
    let handle = handle_on(&pool(1)).await;
    let mut looks = 0;
    let (names, found) = (vec![String::from("a"), String::from("b")], Mutex::new(Vec::new()));
    let condition = || {
        looks += 1;
        let (name, found) = (names.get(looks - 1), &found);
        async move {
            tokio::task::yield_now().await;
            found.lock().unwrap().extend(name);
            name.is_none()
        }
    };
    handle.defer_until(condition, secs(1)).await.unwrap();
    assert_eq!((looks, found.into_inner().unwrap().len()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn yield_slot_lets_a_starter_run_first() {
    let (pool, log) = (pool(1), Log::default());
    let long = pool
        .spawn({
            let log = log.clone();
            async move |handle: TaskHandle| {
                for part in 0..3 {
                    log.say(format!("part {part}"));
                    handle.yield_slot().await?;
                    assert!(handle.is_slot_held());
                }
                done()
            }
        })
        .await
        .unwrap();
    let short = pool.spawn({
        let log = log.clone();
        async move {
            log.say("short");
            done()
        }
    });
    let (long, short) = tokio::join!(long, async { short.await.unwrap().await });
    long.and(short).unwrap();
    assert_eq!(log.lines(), ["part 0", "short", "part 1", "part 2"]);
}

#[tokio::test(start_paused = true)]
async fn yield_slot_goes_on_at_once_when_nobody_waits() {
    let handle = handle_on(&pool(1)).await;
    let start = Instant::now();
    handle.yield_slot().await.unwrap();
    assert!(handle.is_slot_held());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn three_resume_for_each_one_that_starts_while_both_wait() {
    let (pool, log) = (pool(1), Log::default());
    let gate = tokio::sync::watch::Sender::new(false);
    let mut tasks = Vec::new();
    for _ in 0..9 {
        let (log, mut opened) = (log.clone(), gate.subscribe());
        let task = pool.spawn(async move |handle: TaskHandle| {
            handle.defer_while(opened.changed()).await?.unwrap();
            log.say("resumes");
            done()
        });
        tasks.push(task.await.unwrap());
    }
    let holder = pool.acquire().await.unwrap();
    gate.send_replace(true);
    settle().await;
    let starters = tokio::spawn({
        let (pool, log) = (pool.clone(), log.clone());
        async move {
            let start = |_| {
                let log = log.clone();
                pool.run(async move {
                    log.say("starts");
                    done()
                })
            };
            join_all((0..5).map(start)).await
        }
    });
    settle().await;
    assert_eq!(pool.waiting(), 14);
    drop(holder);
    for task in tasks {
        task.await.unwrap();
    }
    for started in starters.await.unwrap() {
        started.unwrap();
    }
    let turn = ["resumes", "resumes", "resumes", "starts"];
    let expected = turn.iter().cycle().take(12).chain(&["starts", "starts"]);
    assert!(log.lines().iter().eq(expected), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_deferred_tasks_on_one_slot_all_resume() {
    let (pool, crowd) = (pool(1), Crowd::default());
    let gate = tokio::sync::watch::Sender::new(false);
    let mut tasks = Vec::new();
    for i in 0..1000_u64 {
        let (crowd, opened) = (crowd.clone(), gate.subscribe());
        let task = pool.spawn(async move |handle: TaskHandle| {
            match i % 4 {
                0 => handle.defer_until(|| async { *opened.borrow() }, ms(1 + i)).await?,
                1 => handle.sleep(secs(60)).await?,
                2 => {
                    let opened = opened.clone();
                    let look = condition::check(move || *opened.borrow());
                    handle.defer_until(look, ms(1 + i)).await?;
                }
                _ => handle.defer_while(opened.clone().changed()).await?.unwrap(),
            }
            let _inside = crowd.enter();
            tokio::task::yield_now().await;
            done()
        });
        tasks.push(task.await.unwrap());
    }
    settle().await;
    assert_eq!((pool.in_use(), pool.waiting()), (0, 0), "all are deferred");
    tokio::time::sleep(secs(30)).await;
    assert!(tasks.iter().all(|task| !task.is_finished()));
    gate.send_replace(true);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(crowd.most(), 1);
    assert_eq!(pool.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_closed_during_a_wait_ends_it_when_it_is_over() {
    let (pool, log) = (pool(1), Log::default());
    let task = pool
        .spawn({
            let log = log.clone();
            async move |handle: TaskHandle| {
                let error = handle.sleep(secs(1)).await.unwrap_err();
                assert!(matches!(error, WaitError::Closed));
                assert_eq!(error.to_string(), "the pool of slots is closed");
                assert!(!handle.is_slot_held());
                log.say("up to the next await");
                tokio::task::yield_now().await;
                log.say("beyond");
                done()
            }
        })
        .await
        .unwrap();
    settle().await;
    pool.close();
    let error = task.await.unwrap_err();
    assert!(matches!(error, RunError::Slot(AcquireError::Closed)), "{error:?}");
    assert_eq!(log.lines(), ["up to the next await"]);
    assert_eq!(pool.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_closed_while_a_wait_queues_for_the_slot_ends_it_at_once() {
    let (pool, start) = (pool(1), Instant::now());
    let task = pool
        .spawn(async move |handle: TaskHandle| {
            let ended = handle.sleep(secs(1)).await;
            assert!(matches!(ended, Err(WaitError::Closed)));
            Ok::<_, TaskError>(start.elapsed())
        })
        .await
        .unwrap();
    let _holder = pool.acquire().await.unwrap();
    tokio::time::sleep(secs(5)).await;
    assert_eq!(pool.waiting(), 1);
    pool.close();
    assert_eq!(task.await.unwrap(), secs(5), "what it returns after that still counts");
    assert_eq!(pool.in_use(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_condition_fails_its_own_task_only() {
    async fn fails_alone(wait: impl MakeWait<()>) {
        let pool = pool(1);
        let other = pool.spawn(async |handle: TaskHandle| {
            handle.sleep(secs(60)).await?;
            handle.defer_until(condition::check(|| true), secs(1)).await?;
            done()
        });
        let other = other.await.unwrap();
        let task = pool.spawn(async move |handle: TaskHandle| {
            wait(&handle).await?;
            done()
        });
        let task = task.await.unwrap();
        let third = pool.spawn(async |handle: TaskHandle| {
            handle.defer_until(|| async { true }, secs(1)).await?;
            done()
        });
        let third = third.await.unwrap();
        match task.await.unwrap_err() {
            RunError::Panicked(panic) => assert_eq!(panic.message(), "the sensor is broken"),
            other => panic!("{other:?}"),
        }
        other.await.unwrap();
        third.await.unwrap();
        assert_eq!((pool.in_use(), pool.totals().failed, pool.totals().succeeded), (0, 1, 2));
    }
    /// Panics at the third look.
    fn look(looks: &mut u32) -> bool {
        *looks += 1;
        assert!(*looks < 3, "the sensor is broken");
        false
    }
    async fn look_slowly(looks: u32) -> bool {
        tokio::task::yield_now().await;
        assert!(looks < 3, "the sensor is broken");
        false
    }
    fn looks() -> impl FnMut() -> u32 + Send + 'static {
        let mut looks = 0;
        move || {
            looks += 1;
            looks
        }
    }
    fails_alone(|handle| {
        let mut looks = 0;
        handle.defer_until(move || std::future::ready(look(&mut looks)), secs(1))
    })
    .await;
    fails_alone(|handle| {
        let mut looks = looks();
        handle.defer_until(move || look_slowly(looks()), secs(1))
    })
    .await;
    fails_alone(|handle| {
        let mut looks = 0;
        handle.defer_until(condition::check(move || look(&mut looks)), secs(1))
    })
    .await;
    fails_alone(|handle| {
        let mut looks = looks();
        handle.defer_until(condition::poll(move || look_slowly(looks())), secs(1))
    })
    .await;
    fails_alone(|handle| {
        let mut looks = 2;
        handle.defer_until(condition::check(move || look(&mut looks)), secs(1))
    })
    .await;
    fails_alone(|handle| handle.sleep(secs(1)).map(|()| panic!("the sensor is broken"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_awaited_twice_is_the_tasks_own_fault() {
    let pool = pool(1);
    for again in [false, true] {
        let task = pool.run(async move |handle: TaskHandle| {
            let mut wait = handle.sleep(secs(1));
            (&mut wait).await?;
            assert!(handle.is_slot_held());
            match again {
                true => wait.await?,
                false => handle.wait_any([wait]).await?,
            }
            done()
        });
        let Err(RunError::Panicked(panic)) = task.await else { panic!("it went on") };
        assert_eq!(panic.message(), "a wait was polled after it had returned");
        assert_eq!(pool.in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_handle_made_by_hand_comes_out_as_it_is() {
    let pool = pool(3);
    let handle = TaskHandle::new(pool.acquire().weight(2).await.unwrap());
    handle.sleep(secs(1)).await.unwrap();
    let token = handle.into_slot_token().unwrap();
    assert_eq!((token.is_held(), token.weight(), pool.in_use()), (true, 2, 2));

    let handle = TaskHandle::new(token);
    let dropped = tokio::time::timeout(ms(1), handle.sleep(HOUR)).await;
    assert!(dropped.is_err() && !handle.is_slot_held());
    let mut token = handle.into_slot_token().unwrap();
    assert_eq!((token.is_held(), token.weight(), pool.in_use()), (false, 2, 0));
    token.reclaim().await.unwrap();
    drop(TaskHandle::new(token));
    assert_eq!(pool.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn inside_a_task_the_slot_cannot_be_taken_out() {
    let taken = pool(1)
        .run(async |handle: TaskHandle| Ok::<_, TaskError>(handle.into_slot_token().is_some()))
        .await;
    assert!(!taken.unwrap());
}

#[tokio::test(start_paused = true)]
async fn each_execution_has_an_id_of_its_own() {
    let pool = pool(2);
    let id = async |handle: TaskHandle| {
        let before = handle.task_execution_id();
        handle.sleep(secs(1)).await?;
        assert_eq!(handle.task_execution_id(), before);
        Ok::<_, TaskError>(before)
    };
    let (a, b) = (pool.run(id).await.unwrap(), pool.run(id).await.unwrap());
    assert_ne!(a, b);
    assert_ne!(handle_on(&pool).await.task_execution_id(), b);
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_a_task_to_stop_that_runs_on_a_bare_pool() {
    let pool = pool(1);
    let asked = pool.run(async |handle: TaskHandle| {
        assert!(!handle.is_cancelled());
        let asked = tokio::time::timeout(HOUR, handle.cancelled()).await;
        Ok::<_, TaskError>(asked.is_ok())
    });
    assert!(!asked.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_gives_its_handle_away_keeps_its_slot_by_the_same_rules() {
    let pool = pool(1);
    let (send, receive) = oneshot::channel();
    let task = pool.run(async move |handle: TaskHandle| {
        let _ = send.send(handle);
        done()
    });
    task.await.unwrap();
    let handle = receive.await.unwrap();
    assert!(!handle.is_slot_held());
    assert!(matches!(handle.sleep(secs(1)).await, Err(WaitError::Closed)), "the task is over");
    assert_eq!((pool.in_use(), pool.waiting()), (0, 0));
}

#[test]
fn a_wait_outlives_the_runtime_that_drove_the_timers() {
    let build = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (first, second, pool) = (build(), build(), pool(4));
    let start_driver = |runtime: &tokio::runtime::Runtime| {
        runtime.block_on(async {
            let other = pool.spawn(async |handle: TaskHandle| {
                handle.sleep(HOUR).await?;
                done()
            });
            other.await.unwrap().detach();
            settle().await;
        });
    };
    start_driver(&first);
    let waits = second.spawn({
        let pool = pool.clone();
        async move {
            let looks = AtomicUsize::new(0);
            let handle = handle_on(&pool).await;
            let borrowed = async || looks.fetch_add(1, Ordering::SeqCst) > 3;
            handle.defer_until(borrowed, ms(1)).await.unwrap();
            let mut looks = 0;
            let owned = condition::check(move || {
                looks += 1;
                looks > 3
            });
            handle.defer_until(owned, ms(1)).await.unwrap();
        }
    });
    second.block_on(settle());
    drop(first);
    second.block_on(waits).unwrap();
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn every_public_future_is_send() {
    fn send<T: Send>(_: T) {}
    fn all(pool: SlotPool, handle: &TaskHandle, token: &mut tidegate::SlotToken) {
        let path = String::from("a");
        send(pool.acquire());
        send(token.reclaim());
        send(pool.run(async { done() }));
        send(pool.run(async |_: TaskHandle| done()));
        send(pool.spawn(async { done() }));
        send(async { pool.spawn(async { done() }).await.unwrap().await });
        send(handle.defer_until(|| async { path.is_empty() }, secs(1)));
        send(handle.defer_until(|| async { tokio::fs::try_exists(&path).await }, secs(1)));
        send(handle.defer_until(condition::file(&path), secs(1)));
        send(handle.defer_until(condition::check(|| true), secs(1)).timeout(secs(1)).map(|()| 1));
        send(handle.defer_while(async { path.len() }));
        send(handle.sleep(secs(1)));
        send(handle.sleep_until(std::time::SystemTime::now()));
        send(handle.wait_any([handle.sleep(secs(1))]));
        send(handle.wait_all([handle.sleep(secs(1))]));
        send(handle.yield_slot());
        send(handle.cancelled());
    }
    let _ = all;
}
