//! The load of the crash harness: tasks of every kind, and the submitters.

use super::{Place, has_outages, log, store_address};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Limit, RunId, Task, TaskError, TaskExecutionId,
    TaskHandle, Workflow,
};

/// Runs submitted by one child at the most, so that the last has an end to reach.
const SUBMITS_MAX: u64 = 3_000;

/// How many submit at once.
const SUBMITTERS: u64 = 8;

/// The pause of a submitter whose server is gone.
const OUTAGE_PAUSE: Duration = Duration::from_millis(10);

/// The engine of every child.
pub(super) fn builder(place: &Path) -> EngineBuilder {
    let retried = Task::new("retried", retried).retries(4);
    let retried = retried.backoff(Backoff::fixed(Duration::from_millis(5)));
    let chain = Workflow::builder("chain")
        .task(Task::new("first", quick))
        .task(Task::new("waits", waits).after(["first"]))
        .task(Task::new("left", quick).after(["waits"]))
        .task(Task::new("right", waits).after(["waits"]))
        .task(Task::new("last", quick).after(["left", "right"]));
    Engine::builder(store_address(place))
        .slots(4)
        .workflow(Workflow::of(Task::new("quick", quick)).expect("it makes sense"))
        .workflow(Workflow::of(Task::new("waits", waits)).expect("it makes sense"))
        .workflow(Workflow::of(retried).expect("it makes sense"))
        .workflow(chain.build().expect("it makes sense"))
        .limit(Limit::new("few").at_once(FEW as u32))
        .workflow(Workflow::of(Task::new("limited", limited).limit("few")).expect("it makes sense"))
        .workflow(
            Workflow::of(Task::new("signalled", signalled).parkable()).expect("it makes sense"),
        )
        .workflow(Workflow::of(Task::command("command", noticing(place))).expect("it makes sense"))
        .park_after(Duration::from_millis(5))
        .state(Entries(Mutex::new(log(place, "entries"))))
        .state(Place(place.to_owned()))
}

/// A command that notes when it finds another copy of itself alive, also of its child.
fn noticing(place: &Path) -> tidegate::process::Command {
    let line = "exec 9>>held/$TIDEGATE_RUN_ID; flock -n 9 || echo $TIDEGATE_RUN_ID >> twins; \
                echo $TIDEGATE_RUN_ID >> commands; sleep 0.02";
    tidegate::process::Command::shell(line).dir(place)
}

/// Units of the limit.
pub(super) const FEW: usize = 3;

/// Where every entry of a body is written down.
struct Entries(Mutex<File>);

impl Entries {
    fn note(&self, what: &str, execution: TaskExecutionId) -> Result<(), TaskError> {
        let line = format!("{what} {execution}\n");
        Ok(self.0.lock().expect("nobody panics while writing").write_all(line.as_bytes())?)
    }
}

fn enter(context: &Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let line = format!("{} {}\n", handle.task_execution_id(), handle.attempt());
    let entries = context.state::<Entries>()?;
    let mut entries = entries.0.lock().expect("nobody panics while writing");
    Ok(entries.write_all(line.as_bytes())?)
}

async fn quick(context: &mut Context, handle: &TaskHandle) -> Result<u64, TaskError> {
    enter(context, handle)?;
    Ok(context.input().as_u64().unwrap_or(0))
}

async fn waits(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    enter(context, handle)?;
    let n = context.input().as_u64().unwrap_or(0);
    handle.sleep(Duration::from_millis(n % 40)).await?;
    Ok(())
}

/// Waits like any other, and holds one of as many files as the limit has units.
async fn limited(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let number = context.input().as_u64().unwrap_or(0);
    let place = context.state::<Place>()?;
    // The limit of one that is cancelled is free before its body is gone.
    let _held = match may_be_cancelled(number) {
        true => None,
        false => Some(hold_one(&place.0)?),
    };
    waits(context, handle).await
}

/// Holds one of the files that stand for the units of the limit; notes which, or that none is free.
fn hold_one(place: &Path) -> Result<Option<File>, TaskError> {
    for unit in 0..FEW {
        let file = log(place, &format!("unit{unit}"));
        if file.try_lock().is_ok() {
            log(place, "units").write_all(format!("{unit}\n").as_bytes())?;
            return Ok(Some(file));
        }
    }
    log(place, "units").write_all(format!("{FEW}\n").as_bytes())?;
    Ok(None)
}

/// Which runs are cancelled, by their number.
fn may_be_cancelled(number: u64) -> bool {
    number / SUBMITTERS % 16 == number % SUBMITTERS
}

/// Parks until its signal has come; notes in a step that it has, sleeps, and hands what the signal
/// brought to a child.
async fn signalled(context: &mut Context, handle: &TaskHandle) -> Result<u64, TaskError> {
    enter(context, handle)?;
    let brought: u64 = handle.wait_for_signal_as("go").await?;
    let entries = context.state::<Entries>()?;
    let note = |what: &str| entries.note(what, handle.task_execution_id());
    handle.step("note", async { note("ran") }).await?;
    // It is stored: from here on nobody may run it again.
    note("kept")?;
    handle.sleep(Duration::from_millis(brought % 20)).await?;
    let child = handle.run_child("quick", brought).await?;
    child.output("quick").map_err(TaskError::permanent)
}

async fn retried(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    enter(context, handle)?;
    let n = context.input().as_u64().unwrap_or(0);
    match handle.attempt() {
        attempt if u64::from(attempt) <= n % 4 => Err("not yet".into()),
        _ => Ok(()),
    }
}

/// Submits and cancels until it is killed. Many are under way at once.
pub(super) async fn load(engine: &Engine, place: &Path) {
    let acknowledged = Arc::new(Mutex::new(log(place, "acknowledged")));
    let outages = has_outages(place).then(|| Arc::new(Mutex::new(log(place, "outages"))));
    let mut submitters = Vec::new();
    for submitter in 0..SUBMITTERS {
        let log = LoadLog { acknowledged: acknowledged.clone(), outages: outages.clone() };
        let engine = engine.clone();
        submitters.push(tokio::spawn(async move {
            // A short life gets no further than a few runs: not always the same ones.
            let first = fastrand::u64(..24);
            for n in first..first + SUBMITS_MAX / SUBMITTERS {
                if let Err(error) = submit_one(&engine, &log, n, submitter).await {
                    log.note_outage(&*error);
                    tokio::time::sleep(OUTAGE_PAUSE).await;
                }
            }
        }));
    }
    for submitter in submitters {
        submitter.await.expect("a submitter does not panic");
    }
    std::future::pending::<()>().await;
}

/// Submits a run, and signals or cancels it. An operation that the store did not acknowledge may have
/// happened.
async fn submit_one(
    engine: &Engine,
    log: &LoadLog,
    n: u64,
    submitter: u64,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let workflows = ["quick", "waits", "retried", "chain", "limited", "signalled"];
    let number = n * SUBMITTERS + submitter;
    let workflow = match n % 24 {
        // A process costs more than the rest together.
        12 => "command",
        n => workflows[(n % 6) as usize],
    };
    let run = engine.submit(workflow, number).await?;
    log.note("submit", run.id());
    if workflow == "signalled" {
        log.note(&format!("brings{number}"), run.id());
        run.signal("go", number).await?;
        log.note("signal", run.id());
    } else if may_be_cancelled(number) {
        log.note("asked", run.id());
        if run.cancel().await? {
            log.note("cancel", run.id());
        }
    }
    Ok(())
}

/// All that the store has acknowledged, and its errors.
struct LoadLog {
    acknowledged: Arc<Mutex<File>>,
    /// `None` where the store always works.
    outages: Option<Arc<Mutex<File>>>,
}

impl LoadLog {
    fn note(&self, what: &str, run: RunId) {
        write_line(&self.acknowledged, &format!("{what} {run}"));
    }

    fn note_outage(&self, error: &dyn Error) {
        let Some(outages) = &self.outages else { panic!("the store has failed: {error}") };
        write_line(outages, &error.to_string().replace('\n', " "));
    }
}

fn write_line(log: &Mutex<File>, line: &str) {
    let mut log = log.lock().expect("nobody panics while writing");
    log.write_all(format!("{line}\n").as_bytes()).expect("a log can be written");
}
