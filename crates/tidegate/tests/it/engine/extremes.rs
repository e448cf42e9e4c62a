//! Settings at the ends of their range: each is refused, naming its value, or works; and whatever it
//! comes to, the engine lives and other tasks run.

use super::support::*;
use crate::extreme_values::{COUNTS, DURATIONS, FAR_FUTURE, INSTANTS, PRIORITIES};
use std::time::Duration;
use tidegate::engine::{RunsPage, Shutdown, StartBelow};
use tidegate::{
    Backoff, Config, Context, Engine, Limit, Retention, Task, TaskError, TaskHandle, Timestamp,
    Workflow, condition,
};
use tidegate_core::lifecycle::Kind;

type Done = Result<(), TaskError>;

const NUMBERS: [f64; 9] =
    [f64::NEG_INFINITY, -1.0, 0.0, 0.5, 1.0, 1.5, f64::MAX, f64::INFINITY, f64::NAN];

async fn nothing(_: &mut Context) -> Done {
    Ok(())
}

async fn fails(_: &mut Context) -> Done {
    Err("no")?
}

fn plain() -> Workflow {
    Workflow::of(Task::new("plain", nothing)).unwrap()
}

/// A plain task runs.
async fn assert_alive(engine: &Engine, what: &str) {
    let run = engine.submit("plain", ()).await;
    let run = run.unwrap_or_else(|error| panic!("{what}: the engine is gone: {error}"));
    let status = within(run.wait()).await.unwrap();
    assert_eq!(status.tasks[0].kind, Kind::Succeeded, "{what}");
}

/// Tasks of these workflows end, or are cancelled if they do not, and the engine lives.
async fn run_all(place: &Place, tasks: Vec<(String, Task)>) {
    let mut builder = place.engine().slots(2).workflow(plain());
    let mut names = Vec::new();
    for (what, task) in tasks {
        let name = task.name().to_owned();
        match Workflow::of(task) {
            Ok(workflow) => {
                builder = builder.workflow(workflow);
                names.push((what, name));
            }
            Err(error) => {
                let (option, _) = what.split_once(' ').unwrap();
                assert!(what.ends_with(" 0ns") || what.ends_with(" 0"), "{what}: {error}");
                assert!(error.to_string().contains(&format!("{option} of task")), "{error}");
            }
        }
    }
    let engine = builder.start().await.unwrap();
    for (what, name) in names {
        let run = engine.submit(&name, ()).await.unwrap();
        assert_alive(&engine, &what).await;
        // Of some of them the end is in the far future.
        until(&what, async || {
            let task = run.status().await.unwrap().tasks[0].clone();
            task.kind.is_terminal() || (task.kind == Kind::Ready && task.attempt > 1)
        })
        .await;
        run.cancel().await.unwrap();
        within(run.wait()).await.unwrap();
        assert_alive(&engine, &what).await;
    }
    until("nothing is owned", async || engine.metrics().owned == 0).await;
    assert!(engine.audit().await.unwrap().is_empty());
    engine.shutdown(Duration::MAX).await;
}

/// Starts an engine like this and sees that it works; or it is refused for this setting.
async fn start(place: &Place, what: &str, config: Config) {
    let setting = what.split(' ').next().unwrap();
    match place.engine().config(config).workflow(plain()).start().await {
        Ok(engine) => {
            assert_alive(&engine, what).await;
            engine.shutdown(Duration::from_secs(60)).await;
        }
        Err(error) => {
            // A bound on what is in memory is below that of the slots.
            let named = [setting, "in_memory_max", "slots_max"];
            assert!(named.iter().any(|name| error.to_string().contains(name)), "{what}: {error}");
        }
    }
}

on_every_store! {
    async fn timeout_of_duration_max_leaves_the_engine_alive(place: Place) {
        let task = Task::new("endless", nothing).timeout(Duration::MAX);
        let builder = || {
            let endless = Workflow::of(task.clone()).unwrap();
            place.engine().workflow(endless).workflow(plain())
        };
        // Also an engine that finds such a run in its store.
        for _ in 0..2 {
            let engine = builder().start().await.unwrap();
            let run = engine.submit("endless", ()).await.unwrap();
            assert_eq!(within(run.wait()).await.unwrap().tasks[0].kind, Kind::Succeeded);
            assert_alive(&engine, "timeout").await;
            engine.pause_queue("default").await.unwrap();
            engine.submit("endless", ()).await.unwrap();
            engine.shutdown(Duration::ZERO).await;
            let engine = builder().start().await.unwrap();
            engine.unpause_queue("default").await.unwrap();
            assert_alive(&engine, "stored timeout").await;
            engine.shutdown(Duration::from_secs(60)).await;
        }
    }

    async fn task_with_any_time_is_refused_or_ends(place: Place) {
        let mut tasks = Vec::new();
        for time in *DURATIONS {
            let mut add = |option: &str, set: fn(Task, Duration) -> Task| {
                let what = format!("{option} {time:?}");
                tasks.push((what.clone(), set(Task::new(what, nothing), time)));
            };
            add("timeout", Task::timeout);
            add("queue_timeout", Task::queue_timeout);
            add("deadline", Task::deadline);
            let what = format!("backoff of {time:?}");
            let task = Task::new(what.clone(), fails).retries(1).backoff(Backoff::fixed(time));
            tasks.push((what, task));
            let what = format!("backoff up to {time:?}");
            for part in NUMBERS {
                let is_part = (0.0..=1.0).contains(&part);
                assert_eq!(Backoff::fixed(time).with_jitter(part).is_ok(), is_part, "{part}");
            }
            if let Ok(grows) = Backoff::exponential(Duration::ZERO, f64::MAX, time) {
                let grows = grows.with_jitter(1.0).unwrap();
                let task = Task::new(what.clone(), fails).retries(1).backoff(grows);
                tasks.push((what, task));
            }
        }
        run_all(&place, tasks).await;
    }

    async fn task_with_any_count_is_refused_or_ends(place: Place) {
        let mut tasks = Vec::new();
        for count in *COUNTS {
            let what = format!("retries {count}");
            tasks.push((what.clone(), Task::new(what, nothing).retries(count)));
            if count <= 1 {
                let what = format!("weight {count}");
                tasks.push((what.clone(), Task::new(what, nothing).weight(count)));
            }
        }
        for priority in *PRIORITIES {
            let what = format!("priority {priority}");
            tasks.push((what.clone(), Task::new(what, nothing).priority(priority)));
        }
        run_all(&place, tasks).await;
        // What is heavier than all slots is refused, and runs where there are as many.
        for weight in [77, u32::MAX] {
            let heavy = || Workflow::of(Task::new("heavy", nothing).weight(weight)).unwrap();
            let error = place.engine().workflow(heavy()).start().await.unwrap_err().to_string();
            assert!(error.contains(&format!("weighs {weight}")), "{error}");
            let mut config = Config::default();
            (config.slots, config.in_memory_max) = (u32::MAX, u32::MAX);
            let builder = place.engine().config(config).workflow(heavy()).workflow(plain());
            let engine = builder.start().await.unwrap();
            let run = engine.submit("heavy", ()).await.unwrap();
            assert_eq!(within(run.wait()).await.unwrap().tasks[0].kind, Kind::Succeeded);
            assert_alive(&engine, "heavy").await;
            engine.shutdown(Duration::ZERO).await;
        }
    }

    async fn submit_with_any_priority_and_start_time_leaves_the_engine_alive(place: Place) {
        let engine = place.engine().workflow(plain()).start().await.unwrap();
        for priority in *PRIORITIES {
            let run = engine.submit("plain", ()).priority(priority).await.unwrap();
            assert_eq!(within(run.wait()).await.unwrap().tasks[0].kind, Kind::Succeeded);
            assert_alive(&engine, "priority").await;
        }
        for micros in *INSTANTS {
            let at = Timestamp::from_micros(micros);
            let run = engine.submit("plain", ()).not_before(at).priority(i32::MIN).await.unwrap();
            assert_alive(&engine, "not_before").await;
            let is_far = micros >= FAR_FUTURE;
            assert!(run.cancel().await.unwrap() || !is_far, "{micros}");
            within(run.wait()).await.unwrap();
            let explained = run.explain("plain").await.unwrap();
            assert!(!explained.to_string().is_empty());
        }
        for limit in *COUNTS {
            let page = RunsPage { limit, ..RunsPage::default() };
            assert_eq!(engine.runs(page).await.unwrap().is_empty(), limit == 0);
        }
        engine.shutdown(Duration::from_secs(u64::MAX)).await;
    }

    async fn limit_of_any_size_is_refused_or_holds(place: Place) {
        for units in *COUNTS {
            for per in *DURATIONS {
                let limit = Limit::new(format!("limit {units} {per:?}")).rate(units, per);
                let limit = limit.at_once(units);
                let task = Task::new("uses", nothing).limit((limit.name(), units.max(1)));
                let workflow = Workflow::of(task).unwrap();
                let builder = place.engine().limit(limit.clone()).workflow(plain());
                let engine = match builder.workflow(workflow).start().await {
                    Ok(engine) => engine,
                    Err(error) => {
                        assert!(units == 0 || per.is_zero(), "{error}");
                        assert!(error.to_string().contains(limit.name()), "{error}");
                        continue;
                    }
                };
                let runs = engine.submit_many("uses", [(), (), ()]).await.unwrap();
                assert_alive(&engine, limit.name()).await;
                within(runs[0].wait()).await.unwrap();
                assert!(!engine.limits().await.unwrap().is_empty());
                engine.set_limit(limit.at_once(u32::MAX)).await.unwrap();
                for run in runs {
                    run.cancel().await.unwrap();
                }
                engine.shutdown(Duration::from_secs(60)).await;
            }
        }
    }

    async fn engine_with_any_setting_is_refused_or_works(place: Place) {
        for count in *COUNTS {
            let mut config = Config::default();
            config.slots = count;
            start(&place, &format!("slots {count}"), config.clone()).await;
            (config.slots, config.slots_max) = (1, Some(count));
            start(&place, &format!("slots_max {count}"), config.clone()).await;
            (config.in_memory_max, config.ahead_min) = (u32::MAX, count);
            start(&place, &format!("ahead_min {count}"), config).await;
            let mut config = Config::default();
            config.in_memory_max = count;
            start(&place, &format!("in_memory_max {count}"), config).await;
            let mut config = Config::default();
            config.waiting_max = Some(count);
            start(&place, &format!("waiting_max {count}"), config).await;
            let mut config = Config::default();
            (config.child_depth_max, config.log_max) = (count, u64::from(count) << 32);
            start(&place, &format!("child_depth_max {count}"), config).await;
        }
        for time in *DURATIONS {
            let mut config = Config::default();
            config.park_after = time;
            let (runs, events) = (Some(time), Some(time));
            config.retention = Retention { runs, events, logs: Some(time), signals: Some(time) };
            start(&place, &format!("park_after {time:?}"), config.clone()).await;
            let engine = place.engine().workflow(plain()).watch(time, true).start().await.unwrap();
            assert_alive(&engine, "watch").await;
            engine.prune(config.retention).await.unwrap();
            engine.shutdown(Shutdown::new(time).finish_waits()).await;
        }
        for mark in NUMBERS {
            let mut config = Config::default();
            config.start_below = StartBelow::cpu(mark);
            if mark.is_nan() || mark <= 0.0 || mark > 1.0 {
                start(&place, "start_below.cpu", config).await;
            }
        }
    }

    /// All waits, for every value, in one task for each kind of wait.
    async fn wait_with_any_option_is_refused_or_works(place: Place) {
        async fn sleeps(_: &mut Context, handle: &TaskHandle) -> Done {
            for time in *DURATIONS {
                let soon = || handle.sleep(Duration::from_millis(1));
                handle.wait_any([handle.sleep(time), soon()]).await?;
                handle.wait_any([soon().timeout(time), handle.sleep(Duration::ZERO)]).await.ok();
            }
            for micros in *INSTANTS {
                let instant = handle.sleep_until(Timestamp::from_micros(micros));
                handle.wait_any([instant, handle.sleep(Duration::from_millis(1))]).await?;
            }
            Ok(())
        }
        async fn checks(_: &mut Context, handle: &TaskHandle) -> Done {
            for fraction in NUMBERS {
                handle.progress(fraction, "");
            }
            for every in *DURATIONS {
                let quiet = condition::file_unchanged("/no such file", every);
                let wait = handle.defer_until(quiet, Duration::from_secs(1));
                wait.timeout(Duration::ZERO).await.unwrap_err();
                for (factor, longest) in NUMBERS.into_iter().zip(DURATIONS.into_iter().cycle()) {
                    for jitter in [0.0, 1.0, f64::NAN] {
                        let never = condition::check(|| false);
                        let wait = handle.defer_until(never, every).backoff(factor, longest);
                        let wait = wait.jitter(jitter).timeout(Duration::from_micros(1));
                        let error = wait.await.unwrap_err().to_string();
                        assert!(
                            error.contains("timed out") || error.contains("not possible")
                                || error.contains("interval of 0ns"),
                            "{error}"
                        );
                        let never = async || false;
                        let wait = handle.defer_until(never, every).backoff(factor, longest);
                        wait.jitter(jitter).timeout(Duration::ZERO).await.unwrap_err();
                    }
                }
            }
            Ok(())
        }
        async fn snoozes(context: &mut Context<u64>) -> Done {
            Err(TaskError::snooze(DURATIONS[*context.input() as usize]))
        }
        let builder = place.engine().workflow(plain()).park_after(Duration::ZERO);
        let builder = builder
            .workflow(Workflow::of(Task::new("sleeps", sleeps)).unwrap())
            .workflow(Workflow::of(Task::new("parks", sleeps).parkable()).unwrap())
            .workflow(Workflow::of(Task::new("checks", checks)).unwrap())
            .workflow(Workflow::of(Task::new("snoozes", snoozes)).unwrap());
        let engine = builder.start().await.unwrap();
        for name in ["sleeps", "checks", "parks"] {
            let run = engine.submit(name, ()).await.unwrap();
            assert_alive(&engine, name).await;
            let task = within(run.wait()).await.unwrap().tasks[0].clone();
            assert_eq!(task.kind, Kind::Succeeded, "{name}: {:?}", task.error);
        }
        for (number, time) in DURATIONS.iter().enumerate() {
            let run = engine.submit("snoozes", number).await.unwrap();
            assert_alive(&engine, &format!("snoozes for {time:?}")).await;
            until("it has snoozed", async || run.status().await.unwrap().tasks[0].entries > 0).await;
            assert!(run.cancel().await.unwrap());
            within(run.wait()).await.unwrap();
        }
        assert!(engine.audit().await.unwrap().is_empty());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn command_of_any_weight_has_the_number_of_its_slot() {
    let command = tidegate::process::Command::shell("test \"$TIDEGATE_SLOT\" = 1");
    let heavy = Workflow::of(Task::command("heavy", command).weight(u32::MAX)).unwrap();
    let mut config = Config::default();
    (config.slots, config.in_memory_max) = (u32::MAX, u32::MAX);
    let builder = Engine::builder("memory:").config(config).workflow(heavy);
    let engine = builder.start().await.unwrap();
    let run = engine.submit("heavy", ()).await.unwrap();
    assert_eq!(within(run.wait()).await.unwrap().tasks[0].kind, Kind::Succeeded);
}
