//! Batches: order, limits, time-outs, failures, results.

use crate::support::{Crowd, ms};
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::future::pending;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::batch::News;
use tidegate::{
    Batch, ExecutionResults, OnFailure, SlotPool, TaskError, TaskHandle, TaskResult, TaskStatus,
    timeout_with,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

type Outcome = Result<(), TaskError>;
type Boxed = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>>;

fn names<T>(results: &[TaskResult<T>]) -> Vec<&str> {
    results.iter().map(|result| result.name.as_str()).collect()
}

/// Lets other tasks of the runtime run until the condition holds; panics if it never does.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waited in vain until {what}");
        tokio::task::yield_now().await;
    }
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test(start_paused = true)]
async fn of_twenty_tasks_on_five_slots_exactly_five_are_active_at_most() {
    let crowd = Crowd::default();
    let inputs: Vec<_> = (0..20)
        .map(|n| {
            let crowd = crowd.clone();
            let task = async move {
                let _active = crowd.enter();
                sleep(ms(10)).await;
                Ok::<_, TaskError>(n)
            };
            (format!("task {n}"), task)
        })
        .collect();
    let results = Batch::new().parallel_limit(5).run_all(inputs).await.unwrap();
    assert_eq!(crowd.most(), 5);
    assert_eq!((results.total, results.succeeded.len()), (20, 20));
    let outputs: Vec<_> = results.succeeded.iter().map(|result| result.output.unwrap()).collect();
    assert_eq!(outputs, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_empty_batch_is_a_success_of_nothing() {
    let nothing: Vec<(String, std::future::Ready<Outcome>)> = Vec::new();
    let results = Batch::new().run_all(nothing).await.unwrap();
    assert_eq!(results.total, 0);
    assert!(results.is_success());
    let nothing = futures_util::stream::empty::<(String, std::future::Ready<Outcome>)>();
    assert!(Batch::new().run_all(nothing).await.unwrap().is_success());
}

#[tokio::test(start_paused = true)]
async fn tasks_start_in_input_order_and_the_fifth_when_the_first_has_ended() {
    let started = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let inputs = [100, 200, 300, 400, 10, 10, 10].into_iter().enumerate().map({
        let started = started.clone();
        move |(n, millis)| {
            let started = started.clone();
            let task = async move {
                started.lock().unwrap().push((n + 1, began.elapsed()));
                sleep(ms(millis)).await;
                Ok::<_, TaskError>(())
            };
            (format!("{}", n + 1), task)
        }
    });
    let results = Batch::new().parallel_limit(4).run_all(inputs).await.unwrap();
    assert!(results.is_success());
    let started = started.lock().unwrap();
    let order: Vec<_> = started.iter().map(|&(n, _)| n).collect();
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7]);
    assert!(started[3].1 < ms(100), "1 to 4 start at once");
    assert!(started[4].1 >= ms(100) && started[4].1 < ms(110), "5 starts when 1 has ended");
}

#[tokio::test(start_paused = true)]
async fn each_input_stands_in_exactly_one_list_by_name_in_input_order() {
    let batch = Batch::new().parallel_limit(2).continue_on_error(true).task_timeout(ms(500));
    let inputs = || {
        ["ok", "error", "panic", "late", "ok too"].into_iter().map(|name| {
            let task = async move {
                sleep(ms(10)).await;
                match name {
                    "error" => Err(TaskError::from("no luck")),
                    "panic" => panic!("lost my head"),
                    "late" => pending().await,
                    _ => Ok(()),
                }
            };
            (name, task)
        })
    };
    // The batch can be used again after a failure.
    for _ in 0..2 {
        let results = batch.run_all(inputs()).await.unwrap();
        let lists = [&results.succeeded, &results.failed, &results.cancelled];
        assert_eq!(results.total, lists.iter().map(|list| list.len()).sum::<usize>());
        assert_eq!(names(&results.succeeded), ["ok", "ok too"]);
        assert_eq!(names(&results.failed), ["error", "panic", "late"]);
        let errors: Vec<_> = results
            .failed
            .iter()
            .map(|failed| failed.error.as_ref().unwrap().to_string())
            .collect();
        assert_eq!(errors, ["no luck", "panicked: lost my head", "timed out after 500ms"]);
        let statuses: Vec<_> = results.failed.iter().map(|failed| failed.status).collect();
        assert_eq!(statuses, [TaskStatus::Failed, TaskStatus::Failed, TaskStatus::Timeout]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_first_failure_nothing_new_starts_and_the_rest_is_cancelled_with_duration_zero() {
    let polled = Arc::new(AtomicUsize::new(0));
    let inputs = (1..=10).map({
        let polled = polled.clone();
        move |n: u64| {
            let polled = polled.clone();
            let task = async move {
                polled.fetch_add(1, Ordering::SeqCst);
                sleep(ms(n * 10)).await;
                if n == 2 { Err(TaskError::from("two")) } else { Ok(n) }
            };
            (format!("{n}"), task)
        }
    });
    let results = Batch::new().parallel_limit(3).run_all(inputs).await.unwrap();
    // 1 ends first and 4 takes its slot; then 2 fails, and 3 and 4 may finish.
    assert_eq!(names(&results.succeeded), ["1", "3", "4"]);
    assert_eq!(names(&results.failed), ["2"]);
    assert_eq!(names(&results.cancelled), ["5", "6", "7", "8", "9", "10"]);
    assert!(results.cancelled.iter().all(|result| result.duration.is_zero()));
    assert!(results.cancelled.iter().all(|result| result.status == TaskStatus::Cancelled));
    assert_eq!(polled.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_time_out_stops_the_rest_like_a_failure() {
    let inputs = (0..3).map(|n| (format!("{n}"), pending::<Outcome>()));
    let batch = Batch::new().parallel_limit(1).task_timeout(ms(50));
    let results = batch.run_all(inputs).await.unwrap();
    assert_eq!(names(&results.failed), ["0"]);
    assert_eq!(names(&results.cancelled), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn under_fail_fast_kill_what_runs_is_cancelled_too() {
    let told = Arc::new(AtomicBool::new(false));
    let inputs = ["fails", "runs", "never"].map(|name| {
        let told = told.clone();
        let task = async move |handle: TaskHandle| {
            if name == "fails" {
                sleep(ms(10)).await;
                return Err(TaskError::from("first"));
            }
            let guard = scopeguard(move || told.store(handle.is_cancelled(), Ordering::SeqCst));
            pending::<()>().await;
            drop(guard);
            Ok(())
        };
        (name, task)
    });
    let batch = Batch::new().parallel_limit(2).on_failure(OnFailure::FailFastKill);
    let results = batch.run_all(inputs).await.unwrap();
    assert_eq!(names(&results.failed), ["fails"]);
    assert_eq!(names(&results.cancelled), ["runs", "never"]);
    assert!(results.cancelled[0].duration >= ms(10));
    assert!(told.load(Ordering::SeqCst), "its handle says so while it is dropped");
}

/// Runs a closure when dropped.
fn scopeguard(f: impl FnMut()) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(f)
}

#[tokio::test(start_paused = true)]
async fn under_fail_fast_a_wait_does_not_hold_the_batch_open() {
    // One that waits at the moment of the failure, and one that begins to wait after it.
    let inputs = ["waits", "fails", "waits later"].map(|name| {
        let task = async move |handle: TaskHandle| {
            match name {
                "waits" => handle.defer_until(|| async { false }, ms(10)).await?,
                "fails" => {
                    sleep(ms(20)).await;
                    Err("broken")?
                }
                _ => {
                    sleep(ms(40)).await;
                    handle.sleep(Duration::from_secs(86_400)).await?
                }
            }
            Ok::<_, TaskError>(())
        };
        (name, task)
    });
    let began = Instant::now();
    let results = Batch::new().run_all(inputs).await.unwrap();
    assert_eq!(names(&results.failed), ["fails"]);
    assert_eq!(names(&results.cancelled), ["waits", "waits later"]);
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn queue_wait_is_reported_apart_from_duration() {
    let inputs = ["first", "second"].map(|name| {
        let task = async {
            sleep(ms(200)).await;
            Ok::<_, TaskError>(())
        };
        (name, task)
    });
    let results = Batch::new().parallel_limit(1).run_all(inputs).await.unwrap();
    let [first, second] = &results.succeeded[..] else { panic!("two succeed") };
    let about = |duration: Duration, millis| duration >= ms(millis) && duration < ms(millis + 5);
    assert!(about(first.duration, 200) && about(first.queued, 0), "{first:?}");
    assert!(about(second.duration, 200) && about(second.queued, 200), "{second:?}");
    assert!(about(results.duration, 400));
}

#[tokio::test(start_paused = true)]
async fn a_task_reaches_its_time_out_at_the_limit_and_the_error_names_it() {
    let inputs = ["stuck", "fine", "own"].map(|name| {
        let task = async move {
            match name {
                "stuck" => pending().await,
                // A task's own time-out is an ordinary failure.
                "own" => Ok(tokio::time::timeout(ms(10), pending::<()>()).await?),
                _ => {
                    sleep(ms(290)).await;
                    Ok::<_, TaskError>(())
                }
            }
        };
        (name, task)
    });
    let batch = Batch::new().task_timeout(ms(300)).continue_on_error(true);
    let results = batch.run_all(inputs).await.unwrap();
    let [stuck, own] = &results.failed[..] else { panic!("two fail") };
    assert_eq!((stuck.name.as_str(), stuck.status), ("stuck", TaskStatus::Timeout));
    assert!(stuck.duration >= ms(300) && stuck.duration < ms(305), "{:?}", stuck.duration);
    assert_eq!(stuck.error.as_ref().unwrap().to_string(), "timed out after 300ms");
    assert_eq!((own.name.as_str(), own.status), ("own", TaskStatus::Failed));
    assert_eq!(names(&results.succeeded), ["fine"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_does_not_use_up_the_time_out_but_computing_after_it_does() {
    let inputs = [("within", 40), ("over", 60)].map(|(name, millis)| {
        let task = async move |handle: TaskHandle| {
            sleep(ms(50)).await;
            handle.sleep(Duration::from_secs(3600)).await?;
            sleep(ms(millis)).await;
            Ok::<_, TaskError>(())
        };
        (name, task)
    });
    let batch = Batch::new().task_timeout(ms(100)).continue_on_error(true);
    let results = batch.run_all(inputs).await.unwrap();
    assert_eq!(names(&results.succeeded), ["within"]);
    assert_eq!(names(&results.failed), ["over"]);
    let over = &results.failed[0];
    assert_eq!(over.status, TaskStatus::Timeout);
    let expected = Duration::from_secs(3600) + ms(100);
    assert!(over.duration >= expected && over.duration < expected + ms(5), "{:?}", over.duration);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_blocks_its_thread_is_reported_at_the_limit_and_its_slot_shown_as_leaky() {
    let pool = SlotPool::new(2).unwrap();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let inputs = ["blocks", "other"].map({
        let mut blocked = Some(blocked);
        move |name| {
            let blocked = if name == "blocks" { blocked.take() } else { None };
            let task = async move {
                if let Some(blocked) = blocked {
                    blocked.lock().unwrap().recv().unwrap();
                }
                Ok::<_, TaskError>(())
            };
            (name, task)
        }
    });
    let batch = Batch::new().pool(&pool).task_timeout(ms(50)).continue_on_error(true);
    let results = batch.run_all(inputs).await.unwrap();
    assert_eq!(names(&results.succeeded), ["other"]);
    assert_eq!(results.failed[0].status, TaskStatus::Timeout);
    // It is still there, and seen to be.
    assert_eq!((pool.leaky(), pool.in_use()), (1, 1));
    unblock.send(()).unwrap();
    until("the blocked thread has returned", || pool.in_use() == 0 && pool.leaky() == 0).await;
    let totals = pool.totals();
    assert_eq!((totals.executed, totals.timed_out, totals.succeeded), (2, 1, 1));
}

/// A consumer that is a task of the same runtime must not be left waiting on the blocked thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_blocks_after_many_quick_ones_holds_no_result_back() {
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let inputs = (0..1000).map(move |n| {
        let blocked = blocked.clone();
        let task = async move {
            if n == 999 {
                blocked.lock().unwrap().recv().unwrap();
            }
            Ok::<_, TaskError>(n)
        };
        (format!("{n}"), task)
    });
    let batch = Batch::new().parallel_limit(1).task_timeout(ms(100)).continue_on_error(true);
    let results = tokio::spawn(async move { batch.run_all(inputs).await.unwrap() }).await.unwrap();
    assert_eq!((results.succeeded.len(), results.failed.len()), (999, 1));
    assert_eq!(results.failed[0].status, TaskStatus::Timeout);
    unblock.send(()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_seen_while_the_next_body_blocks_its_thread() {
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let inputs = ["quick", "blocks"].map(|name| {
        let blocked = blocked.clone();
        let task = async move {
            if name == "blocks" {
                blocked.lock().unwrap().recv().unwrap();
            }
            Ok::<_, TaskError>(())
        };
        (name, task)
    });
    let mut stream = Batch::new().parallel_limit(1).task_timeout(None).stream(inputs).unwrap();
    // A task of its own, which is polled only when it is woken: the end of the time-out would look
    // at the stream once more and find the result.
    let consumer = tokio::spawn(async move {
        let first = stream.next().await.unwrap().name;
        (first, stream)
    });
    let first = tokio::time::timeout(Duration::from_secs(30), consumer).await;
    unblock.send(()).unwrap();
    let (first, mut stream) = first.expect("the consumer is woken").unwrap();
    assert_eq!((first.as_str(), stream.next().await.unwrap().name.as_str()), ("quick", "blocks"));
}

/// Holding workers back for tiny tasks must not keep those apart that need each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_block_for_each_other_run_at_the_same_time() {
    let (to_a, from_b) = std::sync::mpsc::channel::<()>();
    let (to_b, from_a) = std::sync::mpsc::channel::<()>();
    let ends = [("a", to_b, from_b), ("b", to_a, from_a)];
    let inputs = ends.map(|(name, tell, hear)| {
        let hear = Mutex::new(hear);
        let task = async move {
            tell.send(())?;
            hear.lock().unwrap().recv_timeout(Duration::from_secs(30))?;
            Ok::<_, TaskError>(())
        };
        (name, task)
    });
    let results = Batch::new().parallel_limit(2).run_all(inputs).await.unwrap();
    assert!(results.is_success(), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn a_time_out_of_any_length_is_accepted() {
    for limit in [Duration::MAX, Duration::from_secs(u64::MAX / 4), Duration::from_nanos(1)] {
        let inputs = [("one", async {
            sleep(ms(1)).await;
            Ok::<_, TaskError>(())
        })];
        let results = Batch::new().task_timeout(limit).run_all(inputs).await.unwrap();
        assert_eq!(results.is_success(), limit > ms(1), "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_callback_of_a_time_out_runs_once_and_its_failure_does_not_hide_the_time_out() {
    for failure in ["none", "error", "panic", "panic at once", "hang"] {
        let called = Arc::new(Mutex::new(Vec::new()));
        let batch = Batch::new().task_timeout(ms(20)).continue_on_error(true).on_timeout({
            let called = called.clone();
            move |name| {
                called.lock().unwrap().push(name);
                assert_ne!(failure, "panic at once", "as it should");
                async move {
                    match failure {
                        "error" => Err(TaskError::from("callback failed")),
                        "panic" => panic!("callback panicked"),
                        "hang" => pending().await,
                        _ => Ok(()),
                    }
                }
            }
        });
        let quick = Box::pin(async { Ok::<_, TaskError>(()) });
        let inputs: Vec<(_, Boxed)> = vec![("late", Box::pin(pending())), ("quick", quick)];
        let results = batch.run_all(inputs).await.unwrap();
        assert_eq!(*called.lock().unwrap(), ["late"], "{failure}");
        assert_eq!(results.failed[0].status, TaskStatus::Timeout, "{failure}");
        assert_eq!(results.failed[0].error.as_ref().unwrap().to_string(), "timed out after 20ms");
        assert_eq!(names(&results.succeeded), ["quick"]);
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_with_stands_alone() {
    let calls = AtomicUsize::new(0);
    let on_timeout = || async {
        calls.fetch_add(1, Ordering::SeqCst);
        Err(TaskError::from("hidden"))
    };
    assert_eq!(timeout_with(ms(50), async { 7 }, on_timeout).await, Ok(7));
    let late = timeout_with(ms(50), pending::<()>(), on_timeout).await.unwrap_err();
    assert_eq!(late.to_string(), "timed out after 50ms");
    let panics = || async {
        assert!(calls.load(Ordering::SeqCst) == 0, "also hidden");
    };
    assert!(timeout_with(ms(50), pending::<()>(), panics).await.is_err());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn slots_are_free_after_success_error_panic_time_out_cancel_and_drop() {
    tokio::time::pause();
    let pool = SlotPool::new(3).unwrap();
    let ends = ["ok", "error", "panic", "late", "waits", "waits late"];
    let work = move |name: &'static str| {
        (name, async move |handle: TaskHandle| match name {
            "ok" => Ok(()),
            "error" => Err(TaskError::from("no")),
            "panic" => panic!("no"),
            "waits" => Ok(handle.sleep(ms(30)).await?),
            "waits late" => {
                handle.sleep(ms(30)).await?;
                pending().await
            }
            _ => pending().await,
        })
    };
    let batch = Batch::new().pool(&pool).continue_on_error(true).task_timeout(ms(100));
    let results = batch.run_all(ends.map(work)).await.unwrap();
    assert_eq!((results.succeeded.len(), results.failed.len()), (2, 4));
    assert_eq!((pool.available(), pool.waiting()), (3, 0));

    let token = CancellationToken::new();
    let cancelled = batch.clone().cancel_with(token.clone()).task_timeout(None);
    let canceller = async {
        sleep(ms(50)).await;
        token.cancel();
    };
    let (results, ()) =
        futures_util::future::join(cancelled.run_all(ends.map(work)), canceller).await;
    let results = results.unwrap();
    assert_eq!(names(&results.cancelled), ["late", "waits late"]);
    assert_eq!((pool.available(), pool.waiting()), (3, 0));

    let mut stream = batch.stream(ends.map(work)).unwrap();
    stream.next().await.unwrap();
    drop(stream);
    until("dropping the stream has freed the slots", || pool.available() == 3).await;
    let totals = pool.totals();
    let sum = totals.succeeded + totals.failed + totals.timed_out + totals.cancelled;
    assert_eq!(totals.executed, sum);
    assert!(totals.cancelled >= 2 && totals.timed_out == 2 && totals.failed >= 4);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_says_so_for_each_input() {
    let token = CancellationToken::new();
    token.cancel();
    let inputs = (0..3).map(|n| (format!("{n}"), async { Ok::<_, TaskError>(()) }));
    let results = Batch::new().cancel_with(token).run_all(inputs).await.unwrap();
    assert_eq!((results.total, results.cancelled.len()), (3, 3));
    let error = results.cancelled[0].error.as_ref().unwrap().to_string();
    assert_eq!(error, "not begun: the batch was cancelled");
}

#[tokio::test(start_paused = true)]
async fn deferred_tasks_of_a_batch_free_their_slot_and_never_two_are_active() {
    // Also when the wait is dropped by a time-out of the task's own.
    let crowd = Crowd::default();
    let inputs = (0..8).map({
        let crowd = crowd.clone();
        move |n| {
            let crowd = crowd.clone();
            let task = async move |handle: TaskHandle| {
                let wait = handle.defer_until(|| async { false }, ms(20));
                let late = tokio::time::timeout(ms(300), wait).await;
                assert!(late.is_err());
                tokio::task::yield_now().await;
                let active = crowd.enter();
                for _ in 0..5 {
                    sleep(ms(1)).await;
                }
                drop(active);
                Ok::<_, TaskError>(())
            };
            (format!("{n}"), task)
        }
    });
    let began = Instant::now();
    let results = Batch::new().parallel_limit(1).run_all(inputs).await.unwrap();
    assert!(results.is_success());
    assert_eq!(crowd.most(), 1);
    assert!(began.elapsed() < ms(600), "all waited at the same time: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_batch_can_share_a_pool_with_others() {
    let pool = SlotPool::new(1).unwrap();
    let crowd = Crowd::default();
    let inputs = |crowd: Crowd| {
        (0..10).map(move |n| {
            let crowd = crowd.clone();
            let task = async move {
                let _active = crowd.enter();
                sleep(ms(1)).await;
                Ok::<_, TaskError>(())
            };
            (format!("{n}"), task)
        })
    };
    let batch = Batch::new().pool(&pool);
    let both = futures_util::future::join(
        batch.run_all(inputs(crowd.clone())),
        batch.run_all(inputs(crowd.clone())),
    );
    let (one, two) = both.await;
    assert!(one.unwrap().is_success() && two.unwrap().is_success());
    assert_eq!(crowd.most(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_gives_its_slot_to_others_who_wait_for_it() {
    // An endless batch of ready tasks must not keep the slot from somebody else on the same pool.
    let pool = SlotPool::new(1).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let inputs = std::iter::from_fn({
        let stop = stop.clone();
        move || {
            let go_on = !stop.load(Ordering::SeqCst);
            let task = async { Ok::<_, TaskError>(()) };
            go_on.then_some(("tick", task))
        }
    });
    let mut stream = Batch::new().pool(&pool).stream(inputs).unwrap();
    let consumer = async { while stream.next().await.is_some() {} };
    let other = async {
        let token = pool.acquire().await.unwrap();
        stop.store(true, Ordering::SeqCst);
        drop(token);
    };
    futures_util::future::join(consumer, other).await;
}

#[tokio::test(start_paused = true)]
async fn inputs_are_pulled_no_further_ahead_than_slots_and_untaken_results_allow() {
    let pulled = Arc::new(AtomicUsize::new(0));
    let inputs = (0..10_000).map({
        let pulled = pulled.clone();
        move |n| {
            pulled.fetch_add(1, Ordering::SeqCst);
            (format!("{n}"), async move { Ok::<_, TaskError>(n) })
        }
    });
    let mut stream = assert_send(Batch::new().parallel_limit(4).stream(inputs).unwrap());
    stream.next().await.unwrap();
    // Everything that can run ahead has run ahead once a timer fires on paused time.
    sleep(ms(1)).await;
    let ahead = pulled.load(Ordering::SeqCst);
    // 256 results that were taken with the first one, 256 untaken ones, and what is under way.
    assert!(ahead <= 2 * 256 + 2 * 4, "{ahead} inputs were pulled for one result");
    assert_eq!(stream.count().await, 9_999);
}

#[tokio::test(start_paused = true)]
async fn inputs_may_come_from_a_stream_and_one_that_fails_fast_is_read_no_further() {
    let read = Arc::new(AtomicUsize::new(0));
    let inputs = futures_util::stream::iter(0..100).then({
        let read = read.clone();
        move |n| {
            let read = read.clone();
            async move {
                sleep(ms(10)).await;
                read.fetch_add(1, Ordering::SeqCst);
                let task = async move { if n == 5 { Err(TaskError::from("five")) } else { Ok(n) } };
                (format!("{n}"), task)
            }
        }
    });
    let batch = Batch::new().parallel_limit(2);
    let results = assert_send(batch.run_all(inputs)).await.unwrap();
    assert_eq!(names(&results.failed), ["5"]);
    assert_eq!(results.succeeded.len(), 5);
    assert!(results.total <= 7 && read.load(Ordering::SeqCst) <= 7);
    assert!(results.succeeded.iter().all(|result| result.queued < ms(5)));
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_panics_counts_as_an_input_that_failed() {
    let inputs = (0..10).map(|n| {
        assert_ne!(n, 3, "the list has a hole");
        (format!("{n}"), async move { Ok::<_, TaskError>(n) })
    });
    let results = Batch::new().parallel_limit(1).run_all(inputs).await.unwrap();
    assert_eq!(results.total, 4);
    assert_eq!(names(&results.succeeded), ["0", "1", "2"]);
    assert_eq!(names(&results.failed), ["input 3"]);
    let error = results.failed[0].error.as_ref().unwrap().to_string();
    assert!(error.starts_with("the producer of inputs panicked: "), "{error}");
    assert!(error.contains("the list has a hole"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_closed_pool_cancels_what_has_not_begun_and_what_waits() {
    let pool = SlotPool::new(1).unwrap();
    let inputs = ["waits", "closes", "never"].map(|name| {
        let pool = pool.clone();
        let task = async move |handle: TaskHandle| {
            match name {
                "waits" => {
                    // Goes on without its slot once the pool is closed, as far as its next await.
                    handle.sleep(ms(20)).await.unwrap_err();
                    pending().await
                }
                "closes" => {
                    sleep(ms(10)).await;
                    pool.close();
                }
                _ => panic!("a closed pool grants nothing"),
            }
            Ok::<_, TaskError>(())
        };
        (name, task)
    });
    let results = Batch::new().pool(&pool).continue_on_error(true).run_all(inputs).await.unwrap();
    assert_eq!(names(&results.succeeded), ["closes"]);
    assert_eq!(names(&results.cancelled), ["waits", "never"]);
    let error = results.cancelled[1].error.as_ref().unwrap().to_string();
    assert_eq!(error, "the pool of slots is closed");
}

#[tokio::test(start_paused = true)]
async fn progress_tells_beginnings_ends_and_what_tasks_say() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let batch = Batch::new().parallel_limit(1).continue_on_error(true).on_progress({
        let seen = seen.clone();
        move |progress| {
            let news = match progress.news {
                News::Began => "began".to_owned(),
                News::Said { fraction, message } => format!("{fraction} {message}"),
                News::Ended(status) => {
                    format!("{status} {}/{}", progress.ended, progress.total.unwrap())
                }
                _ => unreachable!(),
            };
            seen.lock().unwrap().push(format!("{}: {news}", progress.name));
            assert!(!news.contains("half"), "a panic in the callback is only logged");
        }
    });
    let inputs = ["a", "b"].map(|name| {
        let task = async move |handle: TaskHandle| {
            handle.progress(0.5, "half");
            if name == "b" { Err(TaskError::from("no")) } else { Ok(()) }
        };
        (name, task)
    });
    batch.run_all(inputs).await.unwrap();
    let expected =
        ["a: began", "a: 0.5 half", "a: success 1/2", "b: began", "b: 0.5 half", "b: failed 2/2"];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_limit_of_zero_a_time_out_of_zero_and_a_limit_beside_a_pool_are_refused_by_name() {
    async fn error(batch: Batch) -> String {
        let never = async || -> Outcome { panic!("nothing may run") };
        let inputs = [("never", never())];
        batch.run_all(inputs).await.unwrap_err().to_string()
    }
    assert_eq!(
        error(Batch::new().parallel_limit(0)).await,
        "parallel_limit cannot be \"0\"; it must be a whole number of at least 1"
    );
    assert_eq!(
        error(Batch::new().task_timeout(Duration::ZERO)).await,
        "task_timeout cannot be \"0s\"; it must be a duration above 0, such as \"90s\", \"5m\" or \
         a whole number of seconds"
    );
    let pool = SlotPool::new(3).unwrap();
    assert_eq!(
        error(Batch::new().pool(&pool).parallel_limit(9)).await,
        "parallel_limit 9 and a pool of 3 slots were both given; with a pool, its capacity is the \
         limit"
    );
}

/// What a batch really does with the settings it finds: the most active at once, and when a task
/// that never ends is stopped.
async fn observed(batch: Batch) -> String {
    let crowd = Crowd::default();
    let inputs = (0..50).map({
        let crowd = crowd.clone();
        move |n| {
            let crowd = crowd.clone();
            let task = async move {
                let _active = crowd.enter();
                if n == 0 {
                    pending::<()>().await;
                }
                sleep(ms(1)).await;
                Ok::<_, TaskError>(())
            };
            (format!("{n}"), task)
        }
    });
    match batch.continue_on_error(true).run_all(inputs).await {
        Ok(results) => format!("{} {}", crowd.most(), results.failed[0].duration.as_secs()),
        Err(error) => error.to_string(),
    }
}

/// The environment of a process cannot be changed safely while it runs, so this test runs itself in
/// child processes and looks at what they print.
#[tokio::test(start_paused = true)]
async fn the_callers_settings_come_before_the_environments_and_these_before_the_defaults() {
    const CHILD: &str = "TIDEGATE_TEST_CHILD";
    if let Ok(case) = std::env::var(CHILD) {
        let batch = match case.as_str() {
            "caller" => Batch::new().parallel_limit(3).task_timeout(Duration::from_secs(33)),
            _ => Batch::new(),
        };
        println!("observed: {}", observed(batch).await);
        return;
    }
    let name =
        "batch::the_callers_settings_come_before_the_environments_and_these_before_the_defaults";
    let child = |case: &str, environment: &[(&str, &str)]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(CHILD, case);
        command.env_remove("TIDEGATE_PARALLEL_LIMIT").env_remove("TIDEGATE_TASK_TIMEOUT");
        let output = command.envs(environment.iter().copied()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|line| line.split_once("observed: "));
        line.unwrap_or_else(|| panic!("nothing was observed: {text}")).1.to_owned()
    };
    let limit = "TIDEGATE_PARALLEL_LIMIT";
    let timeout = "TIDEGATE_TASK_TIMEOUT";
    assert_eq!(child("default", &[]), "4 300");
    assert_eq!(child("default", &[(limit, "7"), (timeout, "2m")]), "7 120");
    assert_eq!(child("default", &[(timeout, "45")]), "4 45");
    assert_eq!(child("caller", &[(limit, "7"), (timeout, "2m")]), "3 33");
    for wrong in ["0", "-1", "abc", "", "4.5"] {
        let expected =
            format!("{limit} cannot be \"{wrong}\"; it must be a whole number of at least 1");
        assert_eq!(child("default", &[(limit, wrong)]), expected);
    }
    for wrong in ["0", "-5", "soon", "5 m"] {
        let error = child("default", &[(timeout, wrong)]);
        assert!(error.starts_with(&format!("{timeout} cannot be \"{wrong}\"; ")), "{error}");
    }
}

/// Collects the fields of events of one name.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

impl tracing::Subscriber for Events {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(BTreeMap<String, String>);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.insert(field.name().to_owned(), format!("{value:?}"));
            }
        }
        if event.metadata().name() == "parallel_execution_complete" {
            let mut fields = Fields(BTreeMap::new());
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn there_is_one_completion_event_with_the_counts_and_the_mean_of_the_durations() {
    // Whoever logs something for the first time is asked whether anybody wants it, on its own thread:
    // if that is another test's, which has no subscriber, nobody would ever be told. So it is logged
    // once before there is one.
    let nothing = [("nothing", async { Ok::<_, TaskError>(()) })];
    Batch::new().run_all(nothing).await.unwrap();
    let events = Events::default();
    let _guard = tracing::subscriber::set_default(events.clone());
    let inputs = [("a", 100, true), ("b", 300, false), ("c", 0, true), ("d", 0, true)];
    let inputs = inputs.map(|(name, millis, good)| {
        let task = async move {
            sleep(ms(millis)).await;
            if good { Ok(()) } else { Err(TaskError::from("bad")) }
        };
        (name, task)
    });
    let results: ExecutionResults<()> =
        Batch::new().parallel_limit(1).run_all(inputs).await.unwrap();
    assert_eq!(results.cancelled.len(), 2);
    let events = events.0.lock().unwrap();
    let [event] = &events[..] else { panic!("one event, not {}", events.len()) };
    for (field, value) in [
        ("total", "4"),
        ("succeeded", "1"),
        ("failed", "1"),
        ("cancelled", "2"),
        ("parallel_limit", "1"),
    ] {
        assert_eq!(event[field], value, "{field}");
    }
    let duration: f64 = event["duration_ms"].parse().unwrap();
    let mean: f64 = event["avg_task_ms"].parse().unwrap();
    assert!((400.0..410.0).contains(&duration), "{duration}");
    assert!((200.0..205.0).contains(&mean), "{mean}");
}

#[test]
fn a_consumer_on_another_runtime_is_told_when_the_batchs_runtime_goes_away() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ours, theirs) = (runtime(), runtime());
    let mut stream = theirs.block_on(async {
        let begun = Arc::new(Notify::new());
        let inputs = ["stuck", "queued"].map(|name| {
            let begun = begun.clone();
            let task = async move {
                begun.notify_one();
                pending::<Outcome>().await
            };
            (name, task)
        });
        let stream = Batch::new().parallel_limit(1).stream(inputs).unwrap();
        begun.notified().await;
        stream
    });
    drop(theirs);
    let mut left = Vec::new();
    ours.block_on(async {
        while let Some(result) = stream.next().await {
            left.push((result.name, result.status));
        }
    });
    left.sort_by(|a, b| a.0.cmp(&b.0));
    let cancelled = |name: &str| (name.to_owned(), TaskStatus::Cancelled);
    assert_eq!(left, [cancelled("queued"), cancelled("stuck")]);
}
