//! Audit and repair: beside engines that are at work, and beside one that is stopped.

use super::support::{Place, on_every_store, until, within};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tidegate::engine::{Finding, RULES, Repair};
use tidegate::{Context, Engine, EngineBuilder, Limit, Run, Task, TaskError, TaskHandle, Workflow};
use tidegate_core::store::RunKey;

/// How often is looked beside those that work.
const AUDITS: u32 = 20;

const HOUR: Duration = Duration::from_secs(3_600);

/// Waits a little, in memory.
async fn short(_: &mut Context<u32>, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.yield_slot().await?;
    Ok(handle.defer_while(tokio::task::yield_now()).await?)
}

/// Waits for a signal and gives its limit back meanwhile, then for a run that it begins.
async fn long(context: &mut Context<u32>, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.wait_for_signal("go").releasing("api").await?;
    handle.step("noted", async { Ok::<_, TaskError>(1) }).await?;
    handle.run_child("flaky", context.input()).releasing("api").await?;
    Ok(())
}

/// Fails every third time.
async fn flaky(context: &mut Context<u32>) -> Result<(), TaskError> {
    let count = context.state::<AtomicU32>()?.fetch_add(1, Ordering::Relaxed);
    if count % 3 == 0 { Err("every third time".into()) } else { Ok(()) }
}

fn busy(builder: EngineBuilder) -> EngineBuilder {
    let backoff = tidegate::Backoff::fixed(Duration::from_millis(3));
    let flaky = || Task::new("flaky", flaky).retries(2).backoff(backoff);
    let chain = Workflow::builder("chain")
        .task(Task::new("first", short).limit("api"))
        .task(flaky().after(["first"]))
        .task(Task::new("last", short).after(["flaky"]).limit("rate"));
    builder
        .slots(3)
        .park_after(Duration::ZERO)
        .state(AtomicU32::new(1))
        .limit(Limit::new("api").at_once(2))
        .limit(Limit::new("rate").rate(50, Duration::from_millis(100)))
        .workflow(chain.build().unwrap())
        .workflow(Workflow::of(Task::new("long", long).parkable().limit("api")).unwrap())
        .workflow(Workflow::of(flaky()).unwrap())
}

/// Cancels, signals, pauses and waits for runs of all kinds.
async fn work(engine: Engine, round: u32) {
    let mut runs: Vec<Run> = engine.submit_many("chain", 0..20).await.unwrap();
    for number in 0..10 {
        let key = format!("{round}/{number}");
        runs.push(engine.submit("long", number).key(key).await.unwrap());
    }
    for run in &runs[18..22] {
        run.cancel().await.unwrap();
    }
    runs[23].pause().await.unwrap();
    for run in &runs[20..] {
        // Some are over.
        let _ = run.signal("go", ()).await;
    }
    runs[23].unpause().await.unwrap();
    for run in &runs {
        run.wait().await.unwrap();
    }
}

on_every_store! {
    async fn an_audit_finds_nothing_beside_engines_at_work(place: Place) {
        let one = busy(place.engine()).start().await.unwrap();
        let two = busy(place.engine()).start().await.unwrap();
        let enough = Arc::new(AtomicBool::new(false));
        let working = [one.clone(), two.clone()].map(|engine| {
            let enough = enough.clone();
            tokio::spawn(async move {
                // The engines share keys, so that some of the runs are common to both.
                let mut round = 0;
                while !enough.load(Ordering::Relaxed) {
                    work(engine.clone(), round).await;
                    round += 1;
                }
            })
        });
        for _ in 0..AUDITS {
            assert_eq!(one.audit().await.unwrap(), []);
            // At work again, wherever it was.
            let seen = one.metrics();
            until("they get on", async || one.metrics() != seen).await;
        }
        enough.store(true, Ordering::Relaxed);
        for working in working {
            working.await.unwrap();
        }
        assert_eq!(two.audit().thorough().await.unwrap(), []);
        one.shutdown(HOUR).await;
        two.shutdown(HOUR).await;
    }

    async fn a_repair_of_what_is_right_changes_nothing(place: Place) {
        let engine = busy(place.engine()).start().await.unwrap();
        let run = engine.submit("long", 1).await.unwrap();
        let found = |repair| Finding::new("open", "by somebody else's word").repaired_by(repair);
        let findings = [
            found(Repair::Run(RunKey(1))),
            found(Repair::Run(RunKey(1))),
            found(Repair::Run(RunKey(99))),
            Finding::new("whole", "for a person"),
        ];
        let repaired = engine.repair(&findings).await;
        let said: Vec<String> = repaired.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["run 1: nothing to do", "run 99: nothing to do"]);
        run.signal("go", ()).await.unwrap();
        run.wait().await.unwrap();
        engine.shutdown(HOUR).await;
    }
}

#[test]
fn the_page_lists_every_rule_as_it_is() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/audit.md");
    let page = std::fs::read_to_string(page).unwrap();
    let listed = page.lines().filter(|line| line.starts_with("| `")).collect::<Vec<_>>();
    let rules = RULES.iter().map(|rule| {
        let repair = rule.repair.unwrap_or("–");
        format!("| `{}` | {} | {} | {repair} |", rule.name, rule.holds, rule.meaning)
    });
    assert_eq!(listed.join("\n"), rules.collect::<Vec<_>>().join("\n"));
}

/// A real process that is stopped, and continued.
#[cfg(all(feature = "sqlite", unix))]
mod stopped {
    use super::*;
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::time::SystemTime;
    use tidegate::engine::RunsPage;
    use tidegate::{RunOutcome, condition};

    const FOLDER: &str = "TIDEGATE_TEST_FOLDER";

    /// How many tasks the one that is stopped has.
    const TASKS: usize = 4;

    /// Notes that it was entered, and waits until it may go on.
    async fn patient(context: &mut Context<PathBuf>, handle: &TaskHandle) -> Result<(), TaskError> {
        let folder = context.input();
        let entries = File::options().create(true).append(true).open(folder.join("entries"))?;
        std::io::Write::write_all(&mut &entries, b"entered\n")?;
        let file = condition::file(folder.join("go"));
        Ok(handle.defer_until(file, Duration::from_millis(50)).await?)
    }

    fn in_folder(folder: &Path) -> EngineBuilder {
        let workflow = Workflow::of(Task::new("patient", patient)).unwrap();
        let store = format!("sqlite:{}", folder.join("jobs.db").display());
        Engine::builder(store).slots(2).workflow(workflow)
    }

    fn entries(folder: &Path) -> usize {
        fs::read_to_string(folder.join("entries")).unwrap_or_default().lines().count()
    }

    #[tokio::test]
    #[ignore = "it is run by a test in a process of its own"]
    async fn a_worker() {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
        let _engine = in_folder(&folder).start().await.unwrap();
        std::future::pending().await
    }

    fn spawn(folder: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["engine::audit::stopped::a_worker", "--exact", "--ignored"]);
        command.env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn send(signal: &str, to: &Child) {
        let sent = Command::new("kill").args([signal, &to.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops a process at an instant at which it does not write: then it would have the database
    /// locked, and nobody else could.
    async fn stop(worker: &Child, engine: &Engine) {
        loop {
            send("-STOP", worker);
            let write = engine.pause_queue("nobody's");
            if tokio::time::timeout(Duration::from_secs(1), write).await.is_ok() {
                return;
            }
            send("-CONT", worker);
        }
    }

    /// Four tasks of a process that is stopped for so long; or for a moment, as if it were long.
    async fn a_stopped_worker_keeps_its_tasks(stopped_for: Option<Duration>) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let engine = in_folder(folder).queues(["other"]).start().await.unwrap();
        let mut runs = Vec::new();
        for _ in 0..TASKS {
            runs.push(engine.submit("patient", folder).queue("default").await.unwrap());
        }
        let mut worker = spawn(folder);
        until("they were entered", async || entries(folder) == TASKS).await;
        assert_eq!(engine.audit().await.unwrap(), []);
        stop(&worker, &engine).await;
        let other = in_folder(folder).start().await.unwrap();
        match stopped_for {
            Some(time) => tokio::time::sleep(time).await,
            None => {
                let lock = folder.join("jobs.db-workers/2.lock");
                let lock = File::options().write(true).open(lock).unwrap();
                let then = SystemTime::now() - Duration::from_secs(63);
                lock.set_modified(then).unwrap();
            }
        }

        // It is named, and keeps what it has, while others go on.
        let (pid, findings) = (worker.id(), engine.audit().await.unwrap());
        let [silent] = &findings[..] else { panic!("{findings:?}") };
        let said = silent.to_string();
        let name = format!("silent: worker 2 (process {pid}) has given no sign for 6");
        assert!(said.starts_with(&name), "{said}");
        let what_to_do = format!(
            " s and owns 4 tasks; process {pid} is stopped: continue it (kill -CONT {pid}) or end \
             it (kill -KILL {pid}), then others take over"
        );
        assert!(!cfg!(target_os = "linux") || said.ends_with(&what_to_do), "{said}");
        fs::write(folder.join("go"), "").unwrap();
        let own = engine.submit("patient", folder).queue("default").await.unwrap();
        assert_eq!(own.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        assert_eq!(entries(folder), TASKS + 1);
        let page = RunsPage { open: true, ..RunsPage::default() };
        assert_eq!(engine.runs(page).await.unwrap().len(), TASKS);

        // It goes on, and everything ends once.
        send("-CONT", &worker);
        for run in &runs {
            let status = run.wait().await.unwrap();
            assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
            assert_eq!((status.tasks[0].entries, status.tasks[0].attempt), (1, 1));
        }
        assert_eq!(entries(folder), TASKS + 1);
        let records = engine.store().records(None, 0, 99).await.unwrap();
        assert_eq!(records.len(), TASKS + 1);
        until("it gives signs again", async || engine.audit().await.unwrap().is_empty()).await;
        worker.kill().unwrap();
        worker.wait().unwrap();
        other.shutdown(HOUR).await;
        engine.shutdown(HOUR).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_worker_that_is_stopped_is_named_and_keeps_its_tasks() {
        within(a_stopped_worker_keeps_its_tasks(None)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "it takes more than a minute"]
    async fn a_worker_that_is_stopped_for_a_minute_is_named_and_keeps_its_tasks() {
        a_stopped_worker_keeps_its_tasks(Some(Duration::from_secs(62))).await;
    }
}
