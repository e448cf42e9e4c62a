//! When conditions are looked at, and how often.

use super::*;
use futures_util::future::join_all;
use tidegate::error::{InvalidWait, RunError};
use tidegate::{WaitError, condition};

/// How a condition is given to the wait.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Borrowed,
    BorrowedAsync,
    Owned,
    OwnedAsync,
}

use Kind::{Borrowed, BorrowedAsync, Owned, OwnedAsync};

const KINDS: [Kind; 4] = [Borrowed, BorrowedAsync, Owned, OwnedAsync];

impl Kind {
    /// A wait until something is true; a look by an asynchronous condition takes so long.
    fn until<'h>(
        self,
        handle: &'h TaskHandle,
        watched: &'h Watched,
        every: Duration,
        takes: Duration,
    ) -> Wait<'h, ()> {
        let owned = watched.clone();
        match self {
            Borrowed => handle.defer_until(|| std::future::ready(watched.look()), every),
            BorrowedAsync => handle.defer_until(move || watched.look_for(takes), every),
            Owned => handle.defer_until(condition::check(move || owned.look()), every),
            OwnedAsync => {
                let look = move || {
                    let owned = owned.clone();
                    async move { owned.look_for(takes).await }
                };
                handle.defer_until(condition::poll(look), every)
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_is_looked_at_at_once_and_then_once_per_interval() {
    let cases = [
        (ms(0), secs(5)),
        (ms(1), secs(5)),
        (ms(4_999), secs(5)),
        (ms(5_000), secs(5)),
        (ms(5_001), secs(5)),
        (ms(61_500), secs(7)),
        (ms(100), ms(1)),
        (ms(100), ms(3)),
        (HOUR, secs(10)),
    ];
    let pool = pool(1);
    let handle = handle_on(&pool).await;
    for ((true_from, every), kind) in cases.into_iter().flat_map(|case| KINDS.map(|k| (case, k))) {
        let watched = Watched::true_from(true_from);
        kind.until(&handle, &watched, every, Duration::ZERO).await.unwrap();
        let looks = u32::try_from(true_from.as_nanos().div_ceil(every.as_nanos())).unwrap() + 1;
        let expected: Vec<_> = (0..looks).map(|look| look * every).collect();
        assert_eq!(watched.looks(), expected, "{kind:?}, true from {true_from:?}, every {every:?}");
        assert!(handle.is_slot_held());
    }
}

#[tokio::test(start_paused = true)]
async fn two_looks_of_one_wait_are_never_under_way_at_once() {
    let handle = handle_on(&pool(1)).await;
    for (kind, takes) in [BorrowedAsync, OwnedAsync]
        .into_iter()
        .flat_map(|kind| [ms(1), ms(4), ms(100), ms(350)].map(|takes| (kind, takes)))
    {
        let watched = Watched::true_from(secs(5));
        kind.until(&handle, &watched, ms(100), takes).await.unwrap();
        assert_eq!(watched.crowd.most(), 1);
        // A look that takes a while counts from its end.
        let pause = if takes > ms(5) { ms(100) + takes } else { ms(100) };
        assert_eq!(watched.looks()[..3], [Duration::ZERO, pause, 2 * pause], "{kind:?} {takes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_stall_there_is_one_look_and_not_a_burst() {
    for (kind, every, stall) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, ms(100), ms(1_050)), (kind, ms(1), ms(4)), (kind, ms(2), ms(5))])
    {
        let pool = pool(1);
        let handle = handle_on(&pool).await;
        let watched = Watched::never();
        let mut wait = kind.until(&handle, &watched, every, Duration::ZERO);
        tokio::select! {
            _ = &mut wait => panic!("it is never true"),
            () = settle() => assert_eq!(watched.looks(), [Duration::ZERO]),
        }
        tokio::time::advance(stall).await;
        assert!(tokio::time::timeout(every * 2, &mut wait).await.is_err());
        let looks = watched.looks();
        assert_eq!(looks[1..3], [stall, stall + every], "{kind:?} every {every:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_beyond_the_clocks_range_is_as_good_as_never() {
    let handle = handle_on(&pool(1)).await;
    for (kind, every) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, Duration::MAX), (kind, Duration::from_secs(u64::MAX / 4))])
    {
        let watched = Watched::never();
        let wait = kind.until(&handle, &watched, every, Duration::ZERO).jitter(0.5);
        let error = wait.timeout(HOUR).await.unwrap_err();
        assert!(matches!(error, WaitError::TimedOut { .. }), "{kind:?}: {error}");
        assert_eq!(watched.looks().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_back_off_makes_each_interval_longer_up_to_its_cap() {
    let handle = handle_on(&pool(1)).await;
    for kind in KINDS {
        let watched = Watched::true_from(secs(20));
        let wait = kind.until(&handle, &watched, secs(1), Duration::ZERO);
        wait.backoff(2.0, secs(5)).await.unwrap();
        assert_eq!(watched.looks(), [0, 1, 3, 7, 12, 17, 22].map(secs), "{kind:?}");

        let watched = Watched::true_from(secs(4));
        let wait = kind.until(&handle, &watched, secs(1), Duration::ZERO);
        wait.backoff(1.5, HOUR).await.unwrap();
        assert_eq!(watched.looks(), [0, 1_000, 2_500, 4_750].map(ms), "{kind:?}");

        // A cap below the interval and a factor of 1 change nothing.
        for (factor, longest) in [(2.0, ms(1)), (1.0, HOUR)] {
            let watched = Watched::true_from(secs(3));
            let wait = kind.until(&handle, &watched, secs(1), Duration::ZERO);
            wait.backoff(factor, longest).await.unwrap();
            assert_eq!(watched.looks(), [0, 1, 2, 3].map(secs), "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_jitter_stays_in_its_bounds_and_spreads() {
    let handle = handle_on(&pool(1)).await;
    for kind in KINDS {
        let watched = Watched::true_from(secs(300));
        let wait = kind.until(&handle, &watched, secs(1), Duration::ZERO);
        wait.jitter(0.2).await.unwrap();
        let looks = watched.looks();
        let gaps: Vec<_> = looks.windows(2).map(|two| two[1] - two[0]).collect();
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        // Timers are kept to the millisecond.
        assert!(*least >= ms(799) && *most <= ms(1_201), "{least:?} to {most:?}");
        assert!(*least < ms(900) && *most > ms(1_100), "{least:?} to {most:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_takes_too_long_ends_with_an_error_that_names_it() {
    let handle = handle_on(&pool(1)).await;
    for kind in KINDS {
        let (watched, start) = (Watched::never(), Instant::now());
        let wait = kind.until(&handle, &watched, secs(3), Duration::ZERO);
        let error = wait.timeout(secs(10)).named("the daily file").await.unwrap_err();
        assert_eq!(error.to_string(), "the wait for the daily file timed out after 10s");
        match error {
            WaitError::TimedOut { name, after } => {
                assert_eq!((name.as_deref(), after), (Some("the daily file"), secs(10)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((start.elapsed(), watched.looks().len()), (secs(10), 4));
        assert!(handle.is_slot_held());
    }
    let error = handle.sleep(HOUR).timeout(ms(1500)).await.unwrap_err();
    assert_eq!(error.to_string(), "the wait timed out after 1.5s");
    let named = handle.sleep(HOUR).named("lunch").map(|()| 1).timeout(secs(1));
    let error = named.await.unwrap_err();
    assert_eq!(error.to_string(), "the wait for lunch timed out after 1s");
}

#[tokio::test(start_paused = true)]
async fn a_task_may_go_on_after_a_time_out_or_fail_with_it() {
    let pool = pool(1);
    let caught = pool.run(async |handle: TaskHandle| {
        let answer = handle.defer_until(|| async { false }, secs(1)).timeout(secs(5)).await;
        match answer {
            Err(WaitError::TimedOut { .. }) => Ok::<_, TaskError>(handle.is_slot_held()),
            other => panic!("{other:?}"),
        }
    });
    assert!(caught.await.unwrap());
    let failed = pool.run(async |handle: TaskHandle| {
        handle.defer_until(|| async { false }, secs(1)).timeout(secs(5)).await?;
        done()
    });
    let Err(RunError::Failed(error)) = failed.await else { panic!() };
    assert!(matches!(error.wait_error(), Some(WaitError::TimedOut { .. })));
    assert!(!error.is_permanent());
}

#[tokio::test(start_paused = true)]
async fn queueing_for_the_slot_does_not_count_towards_the_time_out() {
    let (pool, start) = (pool(1), Instant::now());
    let task = pool.spawn(async move |handle: TaskHandle| {
        handle.sleep(secs(5)).timeout(secs(6)).await?;
        Ok::<_, TaskError>(start.elapsed())
    });
    let task = task.await.unwrap();
    let rival = pool.acquire().await.unwrap();
    tokio::time::sleep(secs(60)).await;
    drop(rival);
    assert_eq!(task.await.unwrap(), secs(60));
}

#[tokio::test(start_paused = true)]
async fn what_is_true_at_the_last_moment_is_true() {
    let handle = handle_on(&pool(1)).await;
    for kind in KINDS {
        let watched = Watched::true_from(secs(10));
        let wait = kind.until(&handle, &watched, secs(5), Duration::ZERO);
        let ended = wait.timeout(secs(10)).await;
        if matches!(kind, Borrowed | Owned) {
            ended.unwrap();
        }
        assert_eq!(watched.looks(), [0, 5, 10].map(secs));
    }
    handle.sleep(secs(5)).timeout(secs(5)).await.unwrap();
    let at_once = handle.defer_until(|| async { true }, secs(5)).timeout(Duration::ZERO);
    at_once.await.unwrap();
    let value = handle.defer_while(async {
        tokio::time::sleep(secs(5)).await;
        7
    });
    assert_eq!(value.timeout(secs(5)).await.unwrap(), 7);
}

/// The driver fires timers in portions. When the time-outs of many waits came in the portion before
/// their looks, they won, although what they waited for was true.
#[tokio::test(start_paused = true)]
async fn what_is_true_at_the_last_moment_is_true_also_among_many() {
    for kind in [Borrowed, Owned] {
        let pool = pool(1000);
        let waits = (0..1000).map(async |_| {
            let handle = handle_on(&pool).await;
            let watched = Watched::true_from(secs(10));
            let wait = kind.until(&handle, &watched, secs(5), Duration::ZERO);
            wait.timeout(secs(10)).await
        });
        let late = join_all(waits).await.into_iter().filter(Result::is_err).count();
        assert_eq!(late, 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_ends_the_wait_and_keeps_its_class() {
    let pool = pool(1);
    let ended = pool.run(async |handle: TaskHandle| {
        let mut looks = 0;
        let look = || {
            looks += 1;
            let gone = looks > 2;
            async move { if gone { Err(TaskError::permanent("no such order")) } else { Ok(false) } }
        };
        handle.defer_until(look, secs(1)).await?;
        done()
    });
    let Err(RunError::Failed(error)) = ended.await else { panic!() };
    assert!(error.is_permanent());
    assert_eq!(error.to_string(), "no such order");
}

#[tokio::test(start_paused = true)]
async fn an_owned_conditions_error_ends_the_wait_too() {
    let handle = handle_on(&pool(1)).await;
    let mut looks = 0;
    let look = condition::check(move || {
        looks += 1;
        if looks > 2 { Err("the disk is on fire") } else { Ok(false) }
    });
    let error = handle.defer_until(look, secs(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "the condition failed: the disk is on fire");
    assert!(!TaskError::from(error).is_permanent());
    let refused = || async { Err::<bool, _>(std::io::Error::other("refused")) };
    let error = handle.defer_until(condition::poll(refused), secs(1)).await.unwrap_err();
    assert!(matches!(error, WaitError::Failed(_)));
    let snoozed = || async { Err::<bool, _>(TaskError::snooze(secs(9))) };
    let error = handle.defer_until(snoozed, secs(1)).await.unwrap_err();
    assert_eq!(TaskError::from(error).snoozed(), Some(secs(9)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_makes_no_sense_is_refused_by_name() {
    let handle = handle_on(&pool(1)).await;
    let look = || handle.defer_until(|| async { true }, secs(1));
    let owned = |every| handle.defer_until(condition::check(|| true), every);
    let interval = "an interval of 0ns would check without pause; it must be above 0";
    let not_polled = "a back-off or jitter has no meaning here; it goes with defer_until, which \
                      checks again and again";
    let factor =
        |f: &str| format!("a back-off factor of {f} is not possible; it must be at least 1");
    let jitter = |f: &str| format!("a jitter of {f} is not possible; it must be between 0 and 1");
    let cases = [
        (handle.defer_until(|| async { true }, Duration::ZERO), interval.to_owned()),
        (owned(Duration::ZERO), interval.to_owned()),
        (look().backoff(0.5, secs(9)), factor("0.5")),
        (look().backoff(f64::NAN, secs(9)), factor("NaN")),
        (owned(secs(1)).backoff(-2.0, secs(9)), factor("-2")),
        (look().jitter(1.5), jitter("1.5")),
        (look().jitter(-0.25), jitter("-0.25")),
        (owned(secs(1)).jitter(f64::NAN), jitter("NaN")),
        (handle.sleep(secs(1)).backoff(2.0, secs(9)), not_polled.to_owned()),
        (handle.yield_slot().jitter(0.1), not_polled.to_owned()),
        (handle.defer_while(async {}).jitter(0.1), not_polled.to_owned()),
        (handle.wait_any([handle.sleep(secs(1)).jitter(0.1)]), not_polled.to_owned()),
        (
            handle.wait_any([]),
            "wait_any of 0 waits would never end; it needs at least 1".to_owned(),
        ),
    ];
    for (wait, message) in cases {
        let error = wait.await.unwrap_err();
        assert!(matches!(error, WaitError::Invalid(_)), "{error:?}");
        assert_eq!(error.to_string(), message);
        assert!(TaskError::from(error).is_permanent(), "another attempt does not mend it");
        assert!(handle.is_slot_held());
    }
    let error = owned(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, WaitError::Invalid(InvalidWait::Interval(Duration::ZERO))));
}

#[tokio::test(start_paused = true)]
async fn at_most_64_looks_are_under_way_at_once_on_a_pool() {
    for kind in [BorrowedAsync, OwnedAsync] {
        let pool = pool(200);
        let watched = Watched::true_from(Duration::ZERO);
        let waits = (0..200).map(async |_| {
            let handle = handle_on(&pool).await;
            kind.until(&handle, &watched, secs(1), secs(1)).await.unwrap();
        });
        join_all(waits).await;
        assert_eq!((watched.crowd.most(), watched.crowd.now()), (64, 0), "{kind:?}");
        // 64 at a time, each for a second.
        assert_eq!(watched.start.elapsed(), secs(4));
        assert_eq!(watched.looks().len(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_64_looks_are_under_way_at_once_also_of_different_kinds_and_later_rounds() {
    let pool = pool(300);
    let watched = Watched::true_from(secs(20));
    let waits = (0..300).map(async |i| {
        let kind = if i % 2 == 0 { BorrowedAsync } else { OwnedAsync };
        let handle = handle_on(&pool).await;
        kind.until(&handle, &watched, secs(1), secs(1)).await.unwrap();
    });
    join_all(waits).await;
    assert_eq!(watched.crowd.most(), 64);
}

#[tokio::test(start_paused = true)]
async fn looks_that_hang_keep_others_waiting_only_as_long_as_somebody_waits_for_them() {
    for kind in [BorrowedAsync, OwnedAsync] {
        let pool = pool(65);
        let hanging = Watched::never();
        let mut tasks = Vec::new();
        for _ in 0..64 {
            let hanging = hanging.clone();
            let task = pool.spawn(async move |handle: TaskHandle| {
                kind.until(&handle, &hanging, secs(1), Duration::MAX).await?;
                done()
            });
            tasks.push(task.await.unwrap());
        }
        settle().await;
        assert_eq!(hanging.crowd.now(), 64);
        for other in KINDS {
            let watched = Watched::true_from(Duration::ZERO);
            let handle = handle_on(&pool).await;
            let wait = other.until(&handle, &watched, secs(1), Duration::ZERO);
            let error = wait.timeout(secs(60)).await.unwrap_err();
            assert!(matches!(error, WaitError::TimedOut { .. }));
            assert!(watched.looks().is_empty());
        }
        let last = pool.spawn(async |handle: TaskHandle| {
            handle.defer_until(condition::check(|| true), secs(1)).await?;
            done()
        });
        let last = last.await.unwrap();
        tokio::time::sleep(secs(60)).await;
        drop(tasks.pop());
        last.await.unwrap();
        drop(tasks);
        settle().await;
        assert_eq!((hanging.crowd.now(), pool.in_use()), (0, 0));
    }
}

/// The shared poller lost its place in line for leave to check whenever a timer fired, and so was
/// never served while conditions that borrow kept the line full.
#[tokio::test(start_paused = true)]
async fn conditions_that_own_their_data_are_not_shut_out_by_those_that_borrow() {
    let pool = pool(400);
    let busy = Watched::never();
    let mut tasks = Vec::new();
    for _ in 0..300 {
        let busy = busy.clone();
        let task = pool.spawn(async move |handle: TaskHandle| {
            BorrowedAsync.until(&handle, &busy, ms(1), ms(100)).await?;
            done()
        });
        tasks.push(task.await.unwrap());
    }
    tokio::time::sleep(secs(1)).await;
    let ticking = pool.spawn(async |handle: TaskHandle| {
        loop {
            handle.sleep(ms(1)).await?;
        }
        #[allow(unreachable_code)]
        done()
    });
    let ticking = ticking.await.unwrap();
    let handle = handle_on(&pool).await;
    let owned = handle.defer_until(condition::check(|| true), secs(1));
    owned.timeout(secs(10)).await.expect("its turn comes");
    drop((tasks, ticking));
}

#[tokio::test(start_paused = true)]
async fn a_slow_look_delays_no_other() {
    let pool = pool(2);
    let handle = handle_on(&pool).await;
    for slow in [BorrowedAsync, OwnedAsync] {
        let hanging = Watched::never();
        let start = Instant::now();
        let fast = Watched::true_from(secs(5));
        let both = handle.wait_any([
            slow.until(&handle, &hanging, secs(1), HOUR),
            Owned.until(&handle, &fast, secs(1), Duration::ZERO),
        ]);
        both.await.unwrap();
        assert_eq!(start.elapsed(), secs(5));
    }
}
