//! The workflows of the checked-in stores: what the program that wrote them ran, and what the test
//! goes on with.
//!
//! A body asks its [`Stage`]. While the store is written it stops where the fixture needs it (it
//! computes, waits or fails); afterwards it ends. A result says which stage it comes from, so that
//! the test sees what was taken from the store and what was done again.
//!
//! Change names here where an API changes its names, and nothing else: the stores cannot be written
//! again.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate::process::Command;
use tidegate::{
    Backoff, Context, EngineBuilder, Limit, LimitUse, OnFailure, Task, TaskError, TaskHandle, When,
    Workflow,
};

/// Which program enters the bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The one that writes the store and is killed.
    #[allow(dead_code, reason = "the test only finishes")]
    Writing,
    /// One that `poison` kills.
    #[allow(dead_code, reason = "the test only finishes")]
    Poisoned,
    /// One that `suspect` kills.
    #[allow(dead_code, reason = "the test only finishes")]
    Suspected,
    /// The one that opens the store later and brings every run to its end.
    #[allow(dead_code, reason = "the program that writes never finishes")]
    Finishing,
}

impl Stage {
    fn name(self) -> &'static str {
        if self == Stage::Finishing { "finishing" } else { "writing" }
    }
}

/// Whether the task `flaky` has failed in this process.
#[derive(Debug, Default)]
struct HasFailed(AtomicBool);

/// A minute: longer than writing the store takes, and over when anybody opens it.
const MINUTE: Duration = Duration::from_secs(60);

/// How many tasks the run has that is pruned half-way. One step removes 64 of them at once.
const WIDE_TASKS: usize = 200;

/// Everything that both programs need to know.
pub(crate) fn describe(builder: EngineBuilder, stage: Stage) -> EngineBuilder {
    let builder = builder
        .slots(12)
        .park_after(Duration::from_millis(50))
        .state(stage)
        .state(HasFailed::default())
        .limit(Limit::new("api").at_once(1))
        .limit(Limit::new("tenant").at_once(1))
        .limit(Limit::new("paced").rate(2, MINUTE))
        .limit(Limit::new("lent").at_once(1));
    workflows().into_iter().fold(builder, EngineBuilder::workflow)
}

fn workflows() -> Vec<Workflow> {
    let one = |task: Task| Workflow::of(task).unwrap();
    let second = Duration::from_millis(100);
    vec![
        one(Task::new("plain", plain)),
        one(Task::new("hold", hold)),
        one(Task::new("backoff", fail_once).retries(3).backoff(Backoff::fixed(MINUTE))),
        one(Task::new("snoozed", snooze_once)),
        one(Task::new("deferred", defer)),
        one(Task::new("api", defer).limit("api")),
        one(Task::new("tenant", defer).limit(LimitUse::of("tenant").by("tenant"))),
        one(Task::new("paced", plain).limit("paced")),
        one(Task::new("lender", lend).limit("lent")),
        one(Task::new("signalled", receive_two_signals)),
        one(Task::new("parked_signal", receive_a_signal).parkable()),
        one(Task::new("parked_sleep", sleep_a_minute).parkable()),
        one(Task::new("parked_child", run_a_child).parkable()),
        one(Task::new("parked_any", wait_for_any).parkable()),
        one(Task::new("decided_any", decide_and_hold).parkable()),
        one(Task::new("steps", store_steps)),
        one(Task::new("children", run_children)),
        one(Task::new("awaits", await_run)),
        one(Task::new("poison", kill_when_poisoned)),
        one(Task::new("suspect", kill_when_suspected)),
        one(Task::command("command", run_command)),
        one(Task::new("error", fail)),
        one(Task::new("panic", panic)),
        one(Task::new("timeout", compute).timeout(second)),
        one(Task::new("wait_timeout", wait_too_long)),
        one(Task::new("queue_timeout", plain).queue_timeout(second)),
        one(Task::new("deadline", compute).deadline(second)),
        Workflow::builder("chain")
            .task(Task::new("first", insert_stage))
            .task(Task::new("second", hold).after(["first"]))
            .task(Task::new("third", collect_chain).after(["second"]))
            .build()
            .unwrap(),
        Workflow::builder("fan_out")
            .task(Task::new("list", list_items))
            .task(Task::new("item", work_on_item).each("list").after(["list"]))
            .task(Task::new("gather", gather).after(["item"]))
            .build()
            .unwrap(),
        Workflow::builder("fail_fast")
            .task(Task::new("bad", fail))
            .task(Task::new("never", plain).after(["bad"]))
            .task(Task::new("other", compute))
            .task(Task::new("clean_up", plain).after(["bad"]).when(When::AllDone))
            .on_failure(OnFailure::FailFastKill)
            .build()
            .unwrap(),
        Workflow::builder("skipped")
            .task(Task::new("bad", fail))
            .task(Task::new("below", plain).after(["bad"]))
            .task(Task::new("beside", plain))
            .on_failure(OnFailure::KeepGoing)
            .build()
            .unwrap(),
        Workflow::builder("retried")
            .task(Task::new("good", plain))
            .task(Task::new("flaky", fail_then_hold).after(["good"]))
            .build()
            .unwrap(),
        wide(),
    ]
}

fn wide() -> Workflow {
    let tasks = (0..WIDE_TASKS).map(|number| Task::new(format!("task {number}"), plain));
    tasks.fold(Workflow::builder("wide"), |workflow, task| workflow.task(task)).build().unwrap()
}

fn stage(context: &Context) -> Result<Stage, TaskError> {
    Ok(*context.state::<Stage>()?)
}

/// Computes for ever while the store is written.
async fn hold_while_writing(context: &Context) -> Result<&'static str, TaskError> {
    let stage = stage(context)?;
    if stage != Stage::Finishing {
        std::future::pending::<()>().await;
    }
    Ok(stage.name())
}

async fn plain(context: &mut Context) -> Result<&'static str, TaskError> {
    Ok(stage(context)?.name())
}

async fn hold(context: &mut Context) -> Result<&'static str, TaskError> {
    hold_while_writing(context).await
}

async fn compute(_: &mut Context) -> Result<(), TaskError> {
    std::future::pending().await
}

async fn fail(_: &mut Context) -> Result<(), TaskError> {
    Err(TaskError::permanent("it was meant to fail"))
}

async fn panic(_: &mut Context) -> Result<(), TaskError> {
    panic!("it was meant to panic")
}

async fn fail_once(context: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    if stage(context)? == Stage::Finishing {
        return Ok(handle.attempt());
    }
    Err(TaskError::from("the first attempt fails"))
}

async fn snooze_once(context: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
    if stage(context)? == Stage::Finishing {
        return Ok(handle.attempt());
    }
    Err(TaskError::snooze(MINUTE))
}

async fn fail_then_hold(context: &mut Context) -> Result<&'static str, TaskError> {
    let has_failed = context.state::<HasFailed>()?.0.swap(true, Ordering::Relaxed);
    if stage(context)? != Stage::Finishing && !has_failed {
        return Err(TaskError::permanent("it fails in the first run"));
    }
    hold_while_writing(context).await
}

async fn defer(context: &mut Context, handle: &TaskHandle) -> Result<&'static str, TaskError> {
    let stage = stage(context)?;
    let is_over = move || async move { stage == Stage::Finishing };
    handle.defer_until(is_over, Duration::from_millis(20)).await?;
    Ok(stage.name())
}

async fn lend(context: &mut Context, handle: &TaskHandle) -> Result<&'static str, TaskError> {
    let stage = stage(context)?;
    let is_over = move || async move { stage == Stage::Finishing };
    handle.defer_until(is_over, Duration::from_millis(20)).releasing("lent").await?;
    Ok(stage.name())
}

async fn wait_too_long(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.wait_for_signal("never").timeout(Duration::from_millis(50)).await?;
    Ok(())
}

/// Takes one signal while the store is written, and waits for the other.
async fn receive_two_signals(_: &mut Context, handle: &TaskHandle) -> Result<Value, TaskError> {
    let first = handle.wait_for_signal("first").await?;
    let second = handle.wait_for_signal("second").await?;
    Ok(json!([first, second]))
}

async fn receive_a_signal(_: &mut Context, handle: &TaskHandle) -> Result<Value, TaskError> {
    Ok(handle.wait_for_signal("go").await?)
}

async fn sleep_a_minute(
    context: &mut Context,
    handle: &TaskHandle,
) -> Result<&'static str, TaskError> {
    handle.sleep(MINUTE).await?;
    Ok(stage(context)?.name())
}

async fn run_a_child(_: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    Ok(handle.run_child("hold", ()).await?.output("hold")?)
}

async fn wait_for_any(_: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let late = handle.sleep(MINUTE).map(|()| "late".to_owned());
    let sent = handle.wait_for_signal("sooner").map(|_| "sooner".to_owned());
    Ok(handle.wait_any([sent, late]).await?)
}

async fn decide_and_hold(context: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let late = handle.sleep(Duration::from_millis(1)).map(|()| "late".to_owned());
    let sent = handle.wait_for_signal("sooner").map(|_| "sooner".to_owned());
    let winner = handle.wait_any([sent, late]).await?;
    hold_while_writing(context).await?;
    Ok(winner)
}

async fn store_steps(context: &mut Context, handle: &TaskHandle) -> Result<Value, TaskError> {
    let name = stage(context)?.name().to_owned();
    let ends = |name: String| async move { Ok::<_, TaskError>(name) };
    let first = handle.step("first", ends(name.clone())).await?;
    let again = handle.step("first", ends(name.clone())).await?;
    hold_while_writing(context).await?;
    let second = handle.step("second", ends(name)).await?;
    Ok(json!([first, again, second]))
}

async fn run_children(_: &mut Context, handle: &TaskHandle) -> Result<Value, TaskError> {
    let ended: String = handle.run_child("plain", 1).await?.output("plain")?;
    let open: String = handle.run_child("hold", 2).await?.output("hold")?;
    Ok(json!([ended, open]))
}

/// Waits for the run that its input names.
async fn await_run(context: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
    let id = context.input()["run"].as_str().unwrap_or_default().to_owned();
    let run = id.parse().map_err(|_| TaskError::permanent(format!("{id:?} is no run")))?;
    handle.wait_for_run(run).await?;
    Ok(format!("{} waited", stage(context)?.name()))
}

fn kill_this_process() {
    let itself = rustix::process::getpid();
    rustix::process::kill_process(itself, rustix::process::Signal::KILL).unwrap();
}

async fn kill_when_poisoned(context: &mut Context) -> Result<(), TaskError> {
    if stage(context)? == Stage::Poisoned {
        kill_this_process();
    }
    compute(context).await
}

async fn kill_when_suspected(context: &mut Context) -> Result<&'static str, TaskError> {
    if stage(context)? == Stage::Suspected {
        kill_this_process();
    }
    hold_while_writing(context).await
}

fn run_command(context: &Context) -> Result<Command, TaskError> {
    let is_over = stage(context)? == Stage::Finishing;
    Ok(Command::shell(if is_over { "echo finishing" } else { "echo writing; sleep 600" }))
}

async fn insert_stage(context: &mut Context) -> Result<u32, TaskError> {
    context.insert("from", stage(context)?.name())?;
    Ok(7)
}

async fn collect_chain(context: &mut Context) -> Result<Value, TaskError> {
    let from: Option<String> = context.get("from")?;
    let second: String = context.output("second")?;
    Ok(json!([from, second, context.input()]))
}

async fn list_items(_: &mut Context) -> Result<Vec<u32>, TaskError> {
    Ok((0..40).collect())
}

/// The first ten are done while the store is written.
async fn work_on_item(context: &mut Context) -> Result<&'static str, TaskError> {
    if context.item::<u32>()? < 10 {
        return Ok(stage(context)?.name());
    }
    hold_while_writing(context).await
}

async fn gather(context: &mut Context) -> Result<[usize; 2], TaskError> {
    let items: Vec<String> = context.output("item")?;
    let written = items.iter().filter(|item| *item == "writing").count();
    Ok([written, items.len()])
}
