//! Every public future, dropped after every number of polls.
//!
//! A future is polled so many times, with everything around it going on in between, and dropped.
//! Whatever it was doing: no slot is lost, nobody stands in line for it any more, and nothing it
//! started is left running. The number of polls grows until the future comes to its end by itself.

use crate::support::ms;
use futures_util::StreamExt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;
use tidegate::{Batch, SlotPool, TaskError, TaskHandle, Wait, condition, timeout_with};
use tokio::task::JoinHandle;

/// More polls than any of the futures here needs to end.
const POLLS_MAX: usize = 100;

/// How far the rival's turns are shifted against the polls.
const PHASES: u64 = 5;

/// Lets all others run until they can do no more at this instant.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Polls the future, moving the clock on in between, and drops it. Says whether it had ended.
async fn poll_and_drop<F: Future>(future: F, polls: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        // Nobody is woken: the future is polled all the same.
        let mut cx = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut cx).is_ready() {
            return true;
        }
        // On paused time: goes by when nothing else can be done, checks of files included.
        tokio::time::sleep(ms(1)).await;
        settle().await;
    }
    false
}

/// Somebody who takes the slots over and over again and keeps them for a while.
struct Rival(JoinHandle<()>);

impl Rival {
    async fn of(pool: &SlotPool, phase: u64) -> Self {
        let pool = pool.clone();
        let rival = tokio::spawn(async move {
            tokio::time::sleep(ms(phase)).await;
            loop {
                let token = pool.acquire().weight(pool.capacity()).await.unwrap();
                tokio::time::sleep(ms(3)).await;
                drop(token);
                tokio::time::sleep(ms(2)).await;
            }
        });
        settle().await;
        Rival(rival)
    }

    async fn stop(self) {
        self.0.abort();
        assert!(self.0.await.unwrap_err().is_cancelled(), "it never ends by itself");
    }
}

fn background_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Nothing is held, nobody waits, nothing runs, and all slots can be had together.
async fn assert_whole(pool: &SlotPool, what: &str) {
    settle().await;
    assert_eq!((pool.in_use(), pool.waiting()), (0, 0), "{what}: a slot is lost");
    assert_eq!(background_tasks(), 0, "{what}: something was left running");
    let all = pool.acquire().weight(pool.capacity());
    drop(tokio::time::timeout(ms(1), all).await.expect("nobody is in the way").unwrap());
}

/// Drops the future that `make` makes after every number of polls.
async fn survives<F: Future>(what: &str, slots: u32, make: impl Fn(SlotPool) -> F) {
    let mut ended = 0;
    for polls in 0..POLLS_MAX {
        ended = 0;
        for phase in 0..PHASES {
            let pool = SlotPool::new(slots).unwrap();
            let rival = Rival::of(&pool, phase).await;
            ended += u64::from(poll_and_drop(make(pool.clone()), polls).await);
            rival.stop().await;
            assert_whole(&pool, &format!("{what}, {polls} polls, phase {phase}")).await;
        }
        if ended == PHASES {
            assert!(polls > 0, "{what} did nothing");
            return;
        }
    }
    panic!("{what} ended in {ended} phases only");
}

type MakeWait = for<'h> fn(&'h TaskHandle) -> Wait<'h, ()>;

/// A check that is true from the fourth look on.
fn fourth(looks: &mut u32) -> bool {
    *looks += 1;
    *looks > 3
}

async fn slow_fourth(look: u32) -> bool {
    tokio::time::sleep(ms(2)).await;
    look > 3
}

/// Every kind of wait there is. Each ends by itself after a while.
fn waits() -> Vec<(&'static str, MakeWait)> {
    vec![
        ("defer_until, borrowed", |handle| {
            let mut looks = 0;
            handle.defer_until(move || std::future::ready(fourth(&mut looks)), ms(2))
        }),
        ("defer_until, borrowed and asynchronous", |handle| {
            let mut looks = 0;
            let look = move || {
                looks += 1;
                slow_fourth(looks)
            };
            handle.defer_until(look, ms(2))
        }),
        ("defer_until, a first check that hangs", |handle| {
            let look = || async {
                tokio::time::sleep(ms(20)).await;
                true
            };
            handle.defer_until(look, ms(2))
        }),
        ("defer_until, owned", |handle| {
            let mut looks = 0;
            handle.defer_until(condition::check(move || fourth(&mut looks)), ms(2))
        }),
        ("defer_until, owned and asynchronous", |handle| {
            let mut looks = 0;
            let look = condition::poll(move || {
                looks += 1;
                slow_fourth(looks)
            });
            handle.defer_until(look, ms(2)).backoff(2.0, ms(5)).jitter(0.3)
        }),
        ("defer_until, built in and true", |handle| {
            handle.defer_until(condition::file("Cargo.toml"), ms(2))
        }),
        ("defer_until, built in and false", |handle| {
            let missing = handle.defer_until(condition::file("no such file"), ms(2));
            handle.wait_any([missing, handle.sleep(ms(20))])
        }),
        ("defer_until, timing out", |handle| {
            let never = handle.defer_until(|| async { false }, ms(2)).timeout(ms(9));
            handle.wait_any([never])
        }),
        ("defer_while", |handle| {
            handle.defer_while(tokio::time::sleep(ms(7))).named("a while").map(|()| ())
        }),
        ("defer_while, ready at once", |handle| handle.defer_while(async {})),
        ("sleep", |handle| handle.sleep(ms(7))),
        ("sleep_until", |handle| handle.sleep_until(SystemTime::now() + ms(7))),
        ("yield_slot", |handle| handle.yield_slot()),
        ("wait_any", |handle| {
            let never = handle.defer_until(condition::check(|| false), ms(1));
            let slow = handle.defer_until(condition::poll(|| slow_fourth(0)), ms(1));
            handle.wait_any([never, slow, handle.sleep(ms(9)), handle.sleep(ms(9))])
        }),
        ("wait_all", |handle| {
            let mut looks = 0;
            let fourth = handle.defer_until(move || std::future::ready(fourth(&mut looks)), ms(1));
            handle.wait_all([handle.sleep(ms(4)), fourth, handle.yield_slot()]).map(drop)
        }),
        ("a mapped wait", |handle| handle.sleep(ms(5)).map(|()| 1).map(|_| ())),
    ]
}

#[tokio::test(start_paused = true)]
async fn acquire_can_be_dropped_at_any_point() {
    survives("acquire", 1, |pool| async move { drop(pool.acquire().await.unwrap()) }).await;
    let heavy = |pool: SlotPool| async move {
        let _light = pool.acquire().await.unwrap();
        drop(pool.acquire().weight(2).priority(5).await.unwrap());
    };
    survives("acquire, heavy", 3, heavy).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_whose_reclaim_was_dropped_is_still_released() {
    for (polls, phase) in (0..8).flat_map(|polls| (0..PHASES).map(move |phase| (polls, phase))) {
        let pool = SlotPool::new(2).unwrap();
        let mut token = pool.acquire().weight(2).await.unwrap();
        let rival = Rival::of(&pool, phase).await;
        token.release();
        settle().await;
        let ended = poll_and_drop(token.reclaim(), polls).await;
        assert_eq!(token.is_held(), ended);
        assert!(ended || polls < 7, "the rival lets others in");
        rival.stop().await;
        assert_eq!((pool.in_use(), pool.waiting()), (if ended { 2 } else { 0 }, 0));
        token.reclaim().await.unwrap();
        assert_eq!(pool.in_use(), 2);
        drop(token);
        assert_whole(&pool, "reclaim").await;
    }
}

#[tokio::test(start_paused = true)]
async fn run_can_be_dropped_at_any_point() {
    let plain = |pool: SlotPool| async move {
        let body = async {
            tokio::time::sleep(ms(4)).await;
            Ok::<_, TaskError>(())
        };
        pool.run(body).await.unwrap();
    };
    survives("run", 1, plain).await;
    for (what, wait) in waits() {
        let run = |pool: SlotPool| async move {
            let body = async move |handle: TaskHandle| {
                let _ = wait(&handle).await;
                tokio::task::yield_now().await;
                assert!(handle.is_slot_held());
                Ok::<_, TaskError>(())
            };
            pool.run(body).await.unwrap();
        };
        survives(&format!("run with {what}"), 1, run).await;
    }
}

#[tokio::test(start_paused = true)]
async fn spawn_and_what_it_spawned_can_be_dropped_at_any_point() {
    for (what, wait) in waits() {
        let spawn = |pool: SlotPool| async move {
            let body = async move |handle: TaskHandle| {
                let _ = wait(&handle).await;
                tokio::task::yield_now().await;
                assert!(handle.is_slot_held());
                Ok::<_, TaskError>(7)
            };
            let spawned = pool.spawn(body).await.unwrap();
            assert_eq!(spawned.await.unwrap(), 7);
        };
        survives(&format!("spawn with {what}"), 1, spawn).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_spawned_stays_when_it_is_only_looked_at() {
    for polls in 0..10 {
        let pool = SlotPool::new(1).unwrap();
        let body = async |handle: TaskHandle| {
            handle.sleep(ms(5)).await?;
            Ok::<_, TaskError>(7)
        };
        let mut spawned = pool.spawn(body).await.unwrap();
        if !poll_and_drop(&mut spawned, polls).await {
            assert_eq!(spawned.await.unwrap(), 7);
        }
        assert_whole(&pool, "spawned").await;
    }
}

/// Without a gate: the wait is dropped and its handle lives on.
#[tokio::test(start_paused = true)]
async fn every_wait_can_be_dropped_at_any_point() {
    for (what, wait) in waits() {
        let mut ended = 0;
        let mut polls = 0;
        while ended < PHASES {
            assert!(polls < POLLS_MAX, "{what} does not end");
            ended = 0;
            for phase in 0..PHASES {
                let what = format!("{what}, {polls} polls, phase {phase}");
                let pool = SlotPool::new(1).unwrap();
                let handle = TaskHandle::new(pool.acquire().await.unwrap());
                let rival = Rival::of(&pool, phase).await;
                let over = poll_and_drop(wait(&handle), polls).await;
                ended += u64::from(over);
                rival.stop().await;
                let held = u32::from(handle.is_slot_held());
                assert!(held == 1 || !over, "{what}: it returned without the slot");
                assert_eq!((pool.in_use(), pool.waiting()), (held, 0), "{what}");
                // The handle is as good as before.
                handle.sleep(ms(1)).await.unwrap();
                assert_eq!((pool.in_use(), handle.is_slot_held()), (1, true), "{what}");
                drop(handle);
                assert_whole(&pool, &what).await;
            }
            polls += 1;
        }
    }
}

/// Inside a task: the wait is dropped, and the body goes on only with the slot.
#[tokio::test(start_paused = true)]
async fn after_any_wait_dropped_at_any_point_the_task_goes_on_with_the_slot() {
    for (what, wait) in waits() {
        for (polls, phase) in (0..15).flat_map(|polls| (0..PHASES).map(move |p| (polls, p))) {
            let what = format!("{what}, {polls} polls, phase {phase}");
            let pool = SlotPool::new(1).unwrap();
            let body = async move |handle: TaskHandle| {
                let mut open = wait(&handle);
                for _ in 0..polls {
                    let once = std::future::poll_fn(|cx| Poll::Ready(pin!(&mut open).poll(cx)));
                    if once.await.is_ready() {
                        assert!(handle.is_slot_held());
                        break;
                    }
                    tokio::time::sleep(ms(1)).await;
                }
                drop(open);
                for _ in 0..4 {
                    tokio::time::sleep(ms(1)).await;
                    assert!(handle.is_slot_held());
                }
                // And may wait again.
                wait(&handle).await.ok();
                assert!(handle.is_slot_held());
                Ok::<_, TaskError>(())
            };
            let task = pool.spawn(body).await.unwrap();
            let rival = Rival::of(&pool, phase).await;
            tokio::time::timeout(ms(10_000), task).await.expect(&what).expect(&what);
            rival.stop().await;
            assert_whole(&pool, &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_can_be_dropped_at_any_point() {
    let pool = SlotPool::new(1).unwrap();
    let handle = TaskHandle::new(pool.acquire().await.unwrap());
    for polls in 0..5 {
        assert!(!poll_and_drop(handle.cancelled(), polls).await);
        assert!(handle.is_slot_held());
    }
    drop(handle);
    assert_whole(&pool, "cancelled").await;
}

/// Many tasks on several threads, cancelled at every moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_cancelled_on_several_threads_lose_no_slot() {
    let pool = SlotPool::new(2).unwrap();
    for round in 0..15 {
        let mut tasks = Vec::new();
        for (_, wait) in waits() {
            let body = async move |handle: TaskHandle| {
                loop {
                    let _ = tokio::time::timeout(ms(1), wait(&handle)).await;
                    tokio::task::yield_now().await;
                    handle.yield_slot().await?;
                }
                #[allow(unreachable_code)]
                Ok::<_, TaskError>(())
            };
            tasks.push(pool.spawn(body).await.unwrap());
        }
        for task in tasks.drain(round..) {
            task.cancel();
            assert!(task.await.is_err());
        }
    }
    let all = pool.acquire().weight(2);
    drop(tokio::time::timeout(ms(60_000), all).await.expect("nobody has a slot").unwrap());
    assert_eq!((pool.in_use(), pool.waiting()), (0, 0));
}

type Body = std::pin::Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;

/// Tasks that end in every way, some of them after waiting without their slot.
fn mixed() -> Vec<(&'static str, impl FnOnce(TaskHandle) -> Body + Send + 'static)> {
    let task = |end: &'static str| {
        let body = move |handle: TaskHandle| -> Body {
            Box::pin(async move {
                match end {
                    "waits" => handle.sleep(ms(4)).await?,
                    "fails" => Err("as it should")?,
                    "hangs" => std::future::pending().await,
                    _ => tokio::time::sleep(ms(2)).await,
                }
                Ok(())
            })
        };
        (end, body)
    };
    ["ends", "waits", "fails", "hangs", "waits", "ends"].map(task).into_iter().collect()
}

fn batch_on(pool: &SlotPool) -> Batch {
    Batch::new().pool(pool).task_timeout(ms(6)).continue_on_error(true)
}

#[tokio::test(start_paused = true)]
async fn a_batch_can_be_dropped_at_every_poll() {
    survives("run_all, gathered", 2, |pool| async move {
        batch_on(&pool).run_all(mixed()).await.unwrap();
    })
    .await;
    survives("run_all, with a callback for time-outs", 2, |pool| async move {
        let batch = batch_on(&pool).on_timeout(|_| tokio::time::sleep(ms(3)));
        batch.run_all(mixed()).await.unwrap();
    })
    .await;
    survives("run_all, plain futures from a stream", 1, |pool| async move {
        let inputs = futures_util::stream::iter(0..5).then(|n| async move {
            tokio::time::sleep(ms(1)).await;
            (format!("{n}"), async {
                tokio::task::yield_now().await;
                Ok::<_, TaskError>(())
            })
        });
        batch_on(&pool).run_all(inputs).await.unwrap();
    })
    .await;
    survives("a stream of results", 2, |pool| async move {
        let mut stream = batch_on(&pool).stream(mixed()).unwrap();
        while stream.next().await.is_some() {}
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_next_loses_no_result() {
    let pool = SlotPool::new(2).unwrap();
    let mut stream = batch_on(&pool).stream(mixed()).unwrap();
    let mut results = 0;
    loop {
        // Each `next` is dropped after one poll that found nothing.
        match futures_util::poll!(pin!(stream.next())) {
            Poll::Ready(Some(_)) => results += 1,
            Poll::Ready(None) => break,
            Poll::Pending => tokio::time::sleep(ms(1)).await,
        }
    }
    assert_eq!(results, mixed().len());
}

#[tokio::test(start_paused = true)]
async fn a_time_out_with_a_callback_can_be_dropped_at_every_poll() {
    survives("timeout_with", 1, |pool| async move {
        let token = pool.acquire().await.unwrap();
        let held = async move {
            let _token = token;
            std::future::pending::<()>().await
        };
        timeout_with(ms(3), held, || tokio::time::sleep(ms(3))).await.unwrap_err();
    })
    .await;
}
