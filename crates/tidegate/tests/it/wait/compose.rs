//! Sleeps, futures, and waits made of waits.

use super::*;
use std::time::SystemTime;
use tidegate::{Timestamp, WaitError, condition};

#[tokio::test(start_paused = true)]
async fn a_sleep_lasts_as_long_as_it_says_without_the_slot() {
    let pool = pool(1);
    let start = Instant::now();
    let task = pool.spawn(async move |handle: TaskHandle| {
        handle.sleep(ms(1234)).await?;
        assert!(handle.is_slot_held());
        Ok::<_, TaskError>(start.elapsed())
    });
    let task = task.await.unwrap();
    drop(pool.acquire().await.unwrap());
    assert_eq!(start.elapsed(), Duration::ZERO, "the slot was free at once");
    assert_eq!(task.await.unwrap(), ms(1234));
}

#[tokio::test(start_paused = true)]
async fn a_sleep_counts_from_when_it_is_awaited() {
    let handle = handle_on(&pool(1)).await;
    let sleep = handle.sleep(secs(5));
    tokio::time::sleep(secs(100)).await;
    let start = Instant::now();
    sleep.await.unwrap();
    assert_eq!(start.elapsed(), secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_sleep_beyond_the_clocks_range_is_as_good_as_for_ever() {
    let handle = handle_on(&pool(1)).await;
    for sleep in [
        handle.sleep(Duration::MAX),
        handle.sleep_until(Timestamp::from_micros(i64::MAX)),
        handle.sleep(HOUR).timeout(Duration::MAX),
    ] {
        let limit = ms(3_599_999);
        assert!(tokio::time::timeout(limit, sleep).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleep_until_an_instant_ends_then_however_late_it_is_awaited() {
    let handle = handle_on(&pool(1)).await;
    let (start, wall) = (Instant::now(), SystemTime::now());
    let early = handle.sleep_until(wall + HOUR);
    tokio::time::sleep(HOUR / 2).await;
    early.await.unwrap();
    // The wall clock has gone on by the microseconds between the two readings.
    assert!(start.elapsed() <= HOUR && start.elapsed() > HOUR - secs(60), "{:?}", start.elapsed());
    assert!(handle.is_slot_held());

    let past = handle.sleep_until(Timestamp::from_micros(0));
    let start = Instant::now();
    past.await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_future_is_waited_for_without_the_slot_and_its_value_returned() {
    let pool = pool(1);
    let (send, receive) = tokio::sync::oneshot::channel();
    let task = pool.spawn(async move |handle: TaskHandle| {
        let answer = handle.defer_while(receive).await?;
        assert!(handle.is_slot_held());
        Ok::<_, TaskError>(answer.unwrap())
    });
    let task = task.await.unwrap();
    pool.run(async move {
        send.send(42).unwrap();
        done()
    })
    .await
    .unwrap();
    assert_eq!(task.await.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn a_future_may_borrow_and_return_what_it_likes() {
    let handle = handle_on(&pool(1)).await;
    let text = String::from("high water");
    let borrowed: &str = handle
        .defer_while(async {
            tokio::time::sleep(secs(1)).await;
            text.as_str()
        })
        .await
        .unwrap();
    assert_eq!(borrowed, "high water");
    let failed: Result<(), &str> = handle.defer_while(async { Err("its own") }).await.unwrap();
    assert_eq!(failed, Err("its own"), "a value like any other");
}

#[tokio::test(start_paused = true)]
async fn wait_any_returns_the_first_and_drops_the_others() {
    let pool = pool(1);
    let handle = handle_on(&pool).await;
    let crowd = Crowd::default();
    let (start, loser) = (Instant::now(), crowd.enter());
    let woke = handle
        .wait_any([
            handle.sleep(secs(30)).map(move |()| {
                let _ = &loser;
                "late"
            }),
            handle.defer_until(|| async { false }, secs(1)).map(|()| "never"),
            handle.sleep(secs(7)).map(|()| "first"),
            handle.defer_while(std::future::pending::<()>()).map(|()| "never either"),
        ])
        .await
        .unwrap();
    assert_eq!((woke, start.elapsed(), crowd.now()), ("first", secs(7), 0));
    assert!(handle.is_slot_held());
}

#[tokio::test(start_paused = true)]
async fn a_tie_goes_to_argument_order() {
    let handle = handle_on(&pool(1)).await;
    for delays in [[5, 5, 5], [9, 5, 5], [0, 0, 0], [5, 0, 0]] {
        let first = *delays.iter().min().unwrap();
        let expected = delays.iter().position(|&delay| delay == first).unwrap();
        let sleeps =
            delays.iter().enumerate().map(|(i, &d)| handle.sleep(secs(d)).map(move |()| i));
        assert_eq!(handle.wait_any(sleeps).await.unwrap(), expected, "{delays:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_several_nest() {
    let handle = handle_on(&pool(1)).await;
    let start = Instant::now();
    let pair = |a, b| handle.wait_all([handle.sleep(secs(a)), handle.sleep(secs(b))]);
    let inner = handle.wait_any([
        handle.wait_any([pair(3, 9), pair(4, 5)]).map(|both| both.len()),
        handle.sleep(HOUR).map(|()| 0),
    ]);
    let all = handle.wait_all([inner, handle.sleep(secs(6)).map(|()| 7)]);
    assert_eq!(all.await.unwrap(), [2, 7]);
    assert_eq!(start.elapsed(), secs(6));
}

#[tokio::test(start_paused = true)]
async fn wait_any_of_a_failed_part_fails_with_it() {
    let handle = handle_on(&pool(1)).await;
    let broken = handle.defer_until(condition::check(|| Err::<bool, _>("broken")), secs(1));
    let error = handle.wait_any([handle.sleep(secs(1)), broken]).await.unwrap_err();
    assert_eq!(error.to_string(), "the condition failed: broken");
    let limited = handle.sleep(HOUR).timeout(secs(2)).named("the tide");
    let error = handle.wait_any([handle.sleep(HOUR), limited]).await.unwrap_err();
    assert_eq!(error.to_string(), "the wait for the tide timed out after 2s");
}

#[tokio::test(start_paused = true)]
async fn wait_all_returns_all_values_in_order() {
    let pool = pool(1);
    let start = Instant::now();
    let task = pool.spawn(async |handle: TaskHandle| {
        let sleeps = [3, 1, 2].map(|s| handle.sleep(secs(s)).map(move |()| s));
        let values = handle.wait_all(sleeps).await?;
        assert!(handle.is_slot_held());
        assert!(handle.wait_all::<u8>([]).await?.is_empty());
        Ok::<_, TaskError>(values)
    });
    let task = task.await.unwrap();
    // The slot stays released until all are over.
    let rival = pool.acquire().await.unwrap();
    tokio::time::sleep(ms(2_500)).await;
    assert_eq!(pool.waiting(), 0);
    drop(rival);
    assert_eq!(task.await.unwrap(), [3, 1, 2]);
    assert_eq!(start.elapsed(), secs(3));
}

#[tokio::test(start_paused = true)]
async fn wait_all_ends_with_the_first_error() {
    let handle = handle_on(&pool(1)).await;
    let (start, crowd) = (Instant::now(), Crowd::default());
    let inside = crowd.enter();
    let waits = [
        handle.sleep(HOUR).map(move |()| drop(inside)),
        handle.sleep(HOUR).timeout(secs(9)).named("second"),
        handle.sleep(HOUR).timeout(secs(4)).named("first"),
    ];
    let error = handle.wait_all(waits).await.unwrap_err();
    assert!(matches!(&error, WaitError::TimedOut { name, .. } if name.as_deref() == Some("first")));
    assert_eq!((start.elapsed(), crowd.now()), (secs(4), 0));
}

#[tokio::test(start_paused = true)]
async fn a_map_is_called_once_and_only_with_a_value() {
    let handle = handle_on(&pool(1)).await;
    let mut calls = 0;
    let twice = handle.sleep(secs(1)).map(|()| 20).map(|n| n + 1).map(|n| {
        calls += 1;
        n * 2
    });
    assert_eq!(twice.await.unwrap(), 42);
    assert_eq!(calls, 1);
    let error = handle.sleep(HOUR).timeout(secs(1)).map(|()| unreachable!("it timed out"));
    assert!(matches!(error.await, Err::<(), _>(WaitError::TimedOut { .. })));
}

#[tokio::test(start_paused = true)]
async fn options_may_stand_before_or_behind_map() {
    for behind in [false, true] {
        let handle = TaskHandle::new(SlotPool::new(1).unwrap().acquire().await.unwrap());
        let looks = AtomicUsize::new(0);
        let wait = handle.defer_until(
            || {
                looks.fetch_add(1, Ordering::SeqCst);
                async { false }
            },
            Duration::from_secs(1),
        );
        let late = Duration::from_secs(10);
        let wait = match behind {
            false => wait.backoff(2.0, late).timeout(late).named("rain").map(|()| 7),
            true => wait.map(|()| 7).backoff(2.0, late).timeout(late).named("rain"),
        };
        let error = wait.await.unwrap_err();
        assert_eq!(error.to_string(), "the wait for rain timed out after 10s");
        // At 0, 1, 3 and 7 s.
        assert_eq!(looks.load(Ordering::SeqCst), 4);
    }
}
