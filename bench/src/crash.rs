//! Kills a real worker process again and again, and looks at what it leaves.
//!
//! `cargo run --release -p tidegate-bench crash [KILLS]`. A child process runs an engine on a SQLite
//! file under steady load: runs of one task, chains, waits, retries, cancels, tasks under a limit, tasks
//! that park and wait for a signal, a step and a child. It writes every acknowledged submit, cancel and
//! signal to a log of its own. The parent kills it with SIGKILL at a random instant and starts the next
//! one on the same file. At the end one more child runs until nothing is open, and the parent compares:
//! every acknowledged submit is there, every task has exactly one recorded end, what was cancelled
//! stayed so, every acknowledged signal was received, no stored step was repeated, the limit was never
//! exceeded, no command had a twin, nobody owns anything, the audit is clean.
//!
//! With `--processes N`, N workers and one client that only submits, cancels and signals are at the file
//! at once. A random one of them is killed each time and started again beside the others.

use crate::bare;
use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate::engine::{Reason, RunState, RunsPage};
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Limit, RunId, RunOutcome, Task, TaskError,
    TaskExecutionId, TaskHandle, Workflow,
};

/// Kills in one run of the command, unless it is told otherwise.
const KILLS: u32 = 200;

/// The longest a child lives before it is killed, and the longest the last may take.
const LIFE_MAX: Duration = Duration::from_millis(250);
const DRAIN_MAX: Duration = Duration::from_secs(120);

/// Runs submitted by one child at the most, so that the last has an end to reach.
const SUBMITS_MAX: u64 = 3_000;

/// How many submit at once.
const SUBMITTERS: u64 = 8;

/// One task kills its process each time it runs, beside 100 that wait and 3 that compute: it ends as
/// crash_loop, and all of its neighbours succeed.
pub(crate) fn poison() {
    let place = bare::scratch();
    let began = Instant::now();
    let mut deaths = 0;
    loop {
        let mut child = spawn(place.path(), "poison");
        if child.wait().expect("a child ends").success() {
            break;
        }
        deaths += 1;
        assert!(deaths < 50, "the poison is not found out");
    }
    println!("{deaths} deaths in {:.1} s; the poison is out", began.elapsed().as_secs_f64());
}

/// How many neighbours of the poison wait, and how many compute.
const WAITING: usize = 100;
const COMPUTING: usize = 3;

/// A life with the poison: submits everything in the first, and ends when all has.
async fn with_poison(place: &Path) {
    let workflow = |task: Task| Workflow::of(task).expect("it makes sense");
    let engine = Engine::builder(format!("sqlite:{}", place.join("jobs.db").display()))
        .slots(COMPUTING as u32 + 1)
        .workflow(workflow(Task::new("poison", die)))
        .workflow(workflow(Task::new("computing", compute)))
        .workflow(workflow(Task::new("waiting", wait_for_the_end)))
        .state(Neighbours(AtomicUsize::new(0)))
        .state(Place(place.to_owned()));
    let engine = engine.start().await.expect("the engine starts");
    let mut runs = Vec::new();
    for (workflow, count) in [("waiting", WAITING), ("computing", COMPUTING), ("poison", 1)] {
        for n in 0..count {
            // The same in every life.
            let run = engine.submit(workflow, n).key(format!("{workflow} {n}")).await;
            runs.push((workflow, run.expect("it is accepted")));
        }
    }
    let (_, poison) = runs.pop().expect("there is a poison");
    let ended = poison.wait().await.expect("it ends");
    assert_eq!(ended.tasks[0].reason, Some(Reason::CrashLoop), "{ended:?}");
    std::fs::write(place.join("end"), "").expect("a file can be written");
    for (workflow, run) in runs {
        let ended = run.wait().await.expect("it ends");
        assert_eq!(ended.outcome(), Some(RunOutcome::Succeeded), "{workflow}: {ended:?}");
        assert_eq!(ended.tasks[0].attempt, 1, "{workflow}: a death uses no attempt");
    }
    assert!(engine.audit().thorough().await.expect("the store can be read").is_empty());
    engine.shutdown(Duration::from_secs(5)).await;
}

/// How many neighbours compute in this process.
struct Neighbours(AtomicUsize);

struct Place(PathBuf);

async fn die(context: &mut Context) -> Result<(), TaskError> {
    let neighbours = context.state::<Neighbours>()?;
    let began = Instant::now();
    // With all of its neighbours, as long as they are there.
    while neighbours.0.load(Ordering::SeqCst) < COMPUTING && began.elapsed() < LIFE_MAX {
        tokio::task::yield_now().await;
    }
    std::process::abort();
}

/// Computes for longer than the poison takes to kill.
async fn compute(context: &mut Context) -> Result<(), TaskError> {
    context.state::<Neighbours>()?.0.fetch_add(1, Ordering::SeqCst);
    let began = Instant::now();
    while began.elapsed() < LIFE_MAX {
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn wait_for_the_end(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let end = context.state::<Place>()?.0.join("end");
    handle.defer_until(tidegate::condition::file(end), Duration::from_millis(20)).await?;
    Ok(())
}

pub(crate) fn command(arguments: &[String]) {
    let (kills, processes) = asked_for(arguments).unwrap_or_else(|wrong| {
        eprintln!("{wrong}; crash [KILLS] [--processes WORKERS] is what there is");
        std::process::exit(2);
    });
    let place = bare::scratch();
    std::fs::create_dir(place.path().join("held")).expect("a folder can be made");
    let began = Instant::now();
    let killed = match processes {
        None => kill_one_by_one(place.path(), kills),
        Some(workers) => kill_beside_others(place.path(), kills, workers),
    };
    let alone = processes.is_none();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let summary = runtime.block_on(check(place.path(), alone));
    println!("{killed} in {:.1} s; {summary}", began.elapsed().as_secs_f64());
}

/// How many kills, and of how many workers at once.
fn asked_for(arguments: &[String]) -> Result<(u32, Option<usize>), String> {
    let (mut kills, mut processes) = (KILLS, None);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let number = |what: &str| format!("\"{what}\" is not a number, such as 3");
        if argument == "--processes" {
            let count = arguments.next().map_or("", String::as_str);
            let count = count.parse().ok().filter(|&count| count > 0);
            processes = Some(count.ok_or_else(|| number(argument))?);
        } else {
            kills = argument.parse().map_err(|_| number(argument))?;
        }
    }
    Ok((kills, processes))
}

/// One process after the other. Says whom it has killed.
fn kill_one_by_one(place: &Path, kills: u32) -> String {
    let mut random = fastrand::Rng::new();
    for _ in 0..kills {
        let mut child = start(place, "load");
        std::thread::sleep(random_duration(&mut random));
        kill(&mut child);
    }
    drain_all(place);
    format!("{kills} kills")
}

/// So many workers and a client at once, of which one is killed and started again each time. Says whom
/// it has killed.
fn kill_beside_others(place: &Path, kills: u32, workers: usize) -> String {
    let mut random = fastrand::Rng::new();
    let mode = |at: usize| if at == workers { "client" } else { "work" };
    let mut children: Vec<Child> = (0..=workers).map(|at| start(place, mode(at))).collect();
    let mut clients = 0;
    for _ in 0..kills {
        std::thread::sleep(random_duration(&mut random));
        let at = random.usize(..=workers);
        clients += u32::from(at == workers);
        kill(&mut children[at]);
        children[at] = start(place, mode(at));
    }
    kill(&mut children.pop().expect("the client is the last"));
    // With the help of those that are left, who then go in good order.
    drain_all(place);
    for mut child in children {
        drop(child.stdin.take());
        let status = child.wait().expect("a child that was told to go has gone");
        assert!(status.success(), "a worker failed: {status}");
    }
    format!("{kills} kills beside others ({clients} of the client, {} of workers)", kills - clients)
}

/// Starts a child and waits until it works.
fn start(place: &Path, mode: &str) -> Child {
    let mut child = spawn(place, mode);
    wait_for_line(&mut child, "started");
    child
}

fn kill(child: &mut Child) {
    child.kill().expect("a child can be killed");
    child.wait().expect("a child that was killed is gone");
}

fn drain_all(place: &Path) {
    let mut last = spawn(place, "drain");
    wait_for_line(&mut last, "drained");
    let status = last.wait().expect("a child that was waited for is gone");
    assert!(status.success(), "the last worker failed: {status}");
}

fn random_duration(random: &mut fastrand::Rng) -> Duration {
    // Many die young: while they take over what the one before has left.
    LIFE_MAX.mul_f64(random.f64() * random.f64())
}

fn spawn(place: &Path, mode: &str) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let mut child = Command::new(program);
    child.arg("crash-worker").arg(mode).arg(place);
    child.stdin(Stdio::piped()).stdout(Stdio::piped());
    child.spawn().expect("this program can be run again")
}

fn wait_for_line(child: &mut Child, wanted: &str) {
    let out = child.stdout.take().expect("its output is piped");
    let found = BufReader::new(out).lines().map_while(Result::ok).any(|line| line == wanted);
    assert!(found, "a worker ended before it said \"{wanted}\"");
}

/// What the child does.
pub(crate) fn worker(arguments: &[String]) {
    let [mode, place] = arguments else { panic!("a parent gives a mode and a place") };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let place = Path::new(place);
        if mode == "poison" {
            return with_poison(place).await;
        }
        let engine = match mode.as_str() {
            "client" => builder(place).connect().await,
            _ => builder(place).start().await,
        };
        let engine = engine.expect("the engine starts");
        println!("started");
        match mode.as_str() {
            "load" | "client" => load(&engine, place).await,
            "work" => work(&engine).await,
            _ => {
                signal_all(&engine, place).await;
                drain(&engine).await;
            }
        }
    });
}

fn builder(place: &Path) -> EngineBuilder {
    let retried = Task::new("retried", retried).retries(4);
    let retried = retried.backoff(Backoff::fixed(Duration::from_millis(5)));
    let chain = Workflow::builder("chain")
        .task(Task::new("first", quick))
        .task(Task::new("waits", waits).after(["first"]))
        .task(Task::new("left", quick).after(["waits"]))
        .task(Task::new("right", waits).after(["waits"]))
        .task(Task::new("last", quick).after(["left", "right"]));
    Engine::builder(format!("sqlite:{}", place.join("jobs.db").display()))
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
const FEW: usize = 3;

/// Where every entry of a body is written down.
struct Entries(Mutex<std::fs::File>);

impl Entries {
    fn note(&self, what: &str, execution: TaskExecutionId) -> Result<(), TaskError> {
        let line = format!("{what} {execution}\n");
        Ok(self.0.lock().expect("nobody panics while writing").write_all(line.as_bytes())?)
    }
}

fn log(place: &Path, name: &str) -> std::fs::File {
    let file = OpenOptions::new().create(true).append(true).open(place.join(name));
    file.expect("a log can be written")
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
fn hold_one(place: &Path) -> Result<Option<std::fs::File>, TaskError> {
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
async fn load(engine: &Engine, place: &Path) {
    let log = Arc::new(Mutex::new(log(place, "acknowledged")));
    let mut submitters = Vec::new();
    for submitter in 0..SUBMITTERS {
        let (engine, log) = (engine.clone(), log.clone());
        submitters.push(tokio::spawn(async move {
            for n in 0..SUBMITS_MAX / SUBMITTERS {
                let workflows = ["quick", "waits", "retried", "chain", "limited", "signalled"];
                let number = n * SUBMITTERS + submitter;
                let workflow = match n % 24 {
                    // A process costs more than the rest together.
                    12 => "command",
                    n => workflows[(n % 6) as usize],
                };
                let run = engine.submit(workflow, number).await.expect("it is accepted");
                write(&log, "submit", run.id());
                if workflow == "signalled" {
                    write(&log, &format!("brings{number}"), run.id());
                    run.signal("go", number).await.expect("the run is open");
                    write(&log, "signal", run.id());
                    continue;
                }
                if may_be_cancelled(number) {
                    // A cancel that was asked for and not acknowledged may have happened.
                    write(&log, "asked", run.id());
                    if run.cancel().await.expect("the store works") {
                        write(&log, "cancel", run.id());
                    }
                }
            }
        }));
    }
    for submitter in submitters {
        submitter.await.expect("a submitter does not panic");
    }
    std::future::pending::<()>().await;
}

fn write(log: &Mutex<std::fs::File>, what: &str, run: RunId) {
    let line = format!("{what} {run}\n");
    let mut log = log.lock().expect("nobody panics while writing");
    log.write_all(line.as_bytes()).expect("a log can be written");
}

/// Works until its parent lets go of it.
async fn work(engine: &Engine) {
    let over = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    over.await.expect("nobody panics while reading").expect("its input is a pipe");
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Those whose signal was not acknowledged may wait for ever: they get one that brings nothing.
async fn signal_all(engine: &Engine, place: &Path) {
    let acknowledged = std::fs::read_to_string(place.join("acknowledged")).unwrap_or_default();
    let lines = acknowledged.lines().filter_map(|line| line.strip_prefix("signal "));
    let signalled: HashSet<RunId> = lines.filter_map(|id| id.parse().ok()).collect();
    let workflow = Some("signalled".to_owned());
    let page = RunsPage { open: true, limit: u32::MAX, workflow, ..Default::default() };
    for run in engine.runs(page).await.expect("the store can be read") {
        if !signalled.contains(&run.id) {
            // It may have had one that was not acknowledged, and be over by now.
            let _ = engine.signal(run.id, "go", 0).await;
        }
    }
}

/// Runs until nothing is open.
async fn drain(engine: &Engine) {
    let page = || RunsPage { open: true, limit: 1, ..Default::default() };
    let began = Instant::now();
    while !engine.runs(page()).await.expect("the store can be read").is_empty() {
        assert!(began.elapsed() < DRAIN_MAX, "runs are left over: {:?}", engine.metrics());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.shutdown(Duration::from_secs(5)).await;
    println!("drained");
}

/// Compares what was acknowledged with what is there.
async fn check(place: &Path, alone: bool) -> String {
    let engine = builder(place).start().await.expect("the engine starts");
    let acknowledged = std::fs::read_to_string(place.join("acknowledged")).unwrap_or_default();
    let (mut submitted, mut asked, mut cancelled) =
        (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut brings, mut signalled) = (HashMap::new(), HashSet::new());
    for line in acknowledged.lines() {
        let (what, run) = line.split_once(' ').expect("a line has two words");
        let run: RunId = run.parse().expect("an id was written");
        if let Some(number) = what.strip_prefix("brings") {
            brings.insert(run, number.parse::<u64>().expect("a number was written"));
            continue;
        }
        match what {
            "submit" => submitted.insert(run),
            "asked" => asked.insert(run),
            "signal" => signalled.insert(run),
            _ => cancelled.insert(run),
        };
    }
    for (id, number) in &brings {
        let run = engine.run(*id).await.expect("an acknowledged submit is there");
        let got: u64 = run.output("signalled").await.expect("it has succeeded");
        let may_be = got == *number || got == 0 && !signalled.contains(id);
        assert!(may_be, "run {id} was sent {number} and received {got}");
    }
    let repeated_steps = check_steps(place);
    let most = if alone { check_limit(&engine).await } else { 0 }.max(check_units(place));
    let commands = check_commands(place);
    let (mut tasks, mut repeated, mut recoveries) = (0, 0, 0);
    for id in &submitted {
        let run = engine.run(*id).await.expect("an acknowledged submit is there");
        let status = run.status().await.expect("the store can be read");
        let RunState::Ended(outcome) = status.state else { panic!("run {id} is open") };
        let may_be = match (cancelled.contains(id), asked.contains(id)) {
            (true, _) => outcome == RunOutcome::Cancelled,
            (false, true) => outcome != RunOutcome::Failed,
            (false, false) => outcome == RunOutcome::Succeeded,
        };
        assert!(may_be, "run {id}: {status:?}");
        let mut ends: HashMap<u32, u32> = HashMap::new();
        for record in run.events().await.expect("the store can be read") {
            recoveries += u64::from(record.what.as_str() == "recovered");
            let ended = matches!(record.what.as_str(), "succeeded" | "cancelled" | "skipped");
            *ends.entry(record.task.as_u32()).or_default() += u32::from(ended);
        }
        assert_eq!(ends.len(), status.tasks.len(), "every task of run {id} is recorded");
        assert!(ends.values().all(|&ends| ends == 1), "each task of run {id} ended once: {ends:?}");
        tasks += status.tasks.len();
        repeated += status.tasks.iter().filter(|task| task.entries > task.attempt).count();
    }
    let findings = engine.audit().thorough().await.expect("the store can be read");
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!((engine.slots().in_use(), engine.metrics().owned), (0, 0), "nobody holds anything");
    engine.shutdown(Duration::from_secs(1)).await;
    let (runs, cancelled, signals) = (submitted.len(), cancelled.len(), signalled.len());
    format!(
        "{runs} acknowledged runs with {tasks} tasks are there, each ended once, {cancelled} \
         cancelled ones stayed so; {repeated} tasks were entered again after a kill, {recoveries} \
         takeovers of begun tasks; {signals} acknowledged signals were received once; no stored step \
         was repeated ({repeated_steps} that were not stored were); at most {most} of {FEW} held the \
         limit; {commands} commands, none with a twin; audit and integrity check clean"
    )
}

/// A step that was stored is never run again; how many were that had not been stored.
fn check_steps(place: &Path) -> usize {
    let entries = std::fs::read_to_string(place.join("entries")).unwrap_or_default();
    let (mut ran, mut kept, mut repeated) = (HashSet::new(), HashSet::new(), 0);
    for line in entries.lines() {
        match line.split_once(' ') {
            Some(("kept", execution)) => drop(kept.insert(execution)),
            Some(("ran", execution)) => {
                assert!(!kept.contains(execution), "a stored step of {execution} was repeated");
                repeated += usize::from(!ran.insert(execution));
            }
            _ => {}
        }
    }
    repeated
}

/// How many bodies held the limit at once at most, by the files they held.
fn check_units(place: &Path) -> i32 {
    let units = std::fs::read_to_string(place.join("units")).unwrap_or_default();
    let most =
        units.lines().filter_map(|unit| unit.parse().ok()).max().map_or(0, |unit: i32| unit + 1);
    assert!(most <= FEW as i32, "somebody found all units of a limit of {FEW} taken");
    most
}

/// No command has found another copy of itself; how many were begun.
fn check_commands(place: &Path) -> usize {
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap_or_default();
    assert_eq!(read("twins"), "", "these had twins");
    read("commands").lines().count()
}

/// How many entries held the limit at once at most, by what is recorded of them. The times are good for
/// that where one process has given all of them, one request after the other.
async fn check_limit(engine: &Engine) -> i32 {
    let page =
        RunsPage { limit: u32::MAX, workflow: Some("limited".to_owned()), ..Default::default() };
    let mut edges = Vec::new();
    for run in engine.runs(page).await.expect("the store can be read") {
        let records = engine.store().records(Some(run.key), 0, u32::MAX).await;
        for record in records.expect("the store can be read") {
            let Some(begun) = record.begun_at else { continue };
            edges.extend([(begun, 1), (record.at, -1)]);
        }
    }
    // What ends at an instant makes room for what begins at it.
    edges.sort();
    let (mut inside, mut most) = (0, 0);
    for (_, edge) in edges {
        inside += edge;
        most = most.max(inside);
    }
    assert!(most <= FEW as i32, "{most} held a limit of {FEW}");
    most
}
