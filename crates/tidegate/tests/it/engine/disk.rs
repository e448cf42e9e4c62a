//! What the engine does when its file cannot be used.

use super::support::{until, within};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tidegate::error::{StartError, StoreError, SubmitError};
use tidegate::{Context, Engine, RunOutcome, Task, TaskError, Workflow};
use tokio::sync::Semaphore;

/// Under this the test that is run again in another process finds its folder.
const CHILD: &str = "TIDEGATE_TEST_FOLDER";

/// A body that ends when it is let go.
struct Let(Arc<Semaphore>);

async fn held(context: &mut Context) -> Result<String, TaskError> {
    let gate = context.state::<Let>()?;
    gate.0.acquire().await?.forget();
    Ok("let go".to_owned())
}

async fn takes(context: &mut Context) -> Result<usize, TaskError> {
    Ok(context.input().as_str().map_or(0, str::len))
}

async fn engine(path: &Path, gate: &Arc<Semaphore>) -> Engine {
    Engine::builder(format!("sqlite:{}", path.display()))
        .workflow(Workflow::of(Task::new("held", held)).unwrap())
        .workflow(Workflow::of(Task::new("takes", takes)).unwrap())
        .state(Let(gate.clone()))
        .start()
        .await
        .unwrap()
}

fn is_failed(error: &SubmitError) -> bool {
    matches!(error, SubmitError::Store(StoreError::Failed(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_gone_for_a_while_loses_no_end_and_the_engine_goes_on() {
    within(async {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("jobs.db"), folder.path().join("away.db"));
        let gate = Arc::new(Semaphore::new(0));
        let engine = engine(&path, &gate).await;
        let run = engine.submit("held", ()).await.unwrap();
        until("the body computes", async || engine.slots().in_use() == 1).await;

        std::fs::rename(&path, &away).unwrap();
        let error = engine.submit("takes", "x").await.unwrap_err();
        assert!(is_failed(&error), "{error}");
        assert!(error.to_string().contains("put it back"), "{error}");
        gate.add_permits(1);
        let failed = engine.metrics().failed_requests_total;
        until("its end was tried", async || engine.metrics().failed_requests_total > failed).await;
        assert_eq!(engine.slots().in_use(), 0, "the body is over, only its end is not stored");

        std::fs::rename(&away, &path).unwrap();
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<String>("held").unwrap(), "let go");
        assert_eq!(status.tasks[0].entries, 1);
        let next = engine.submit("takes", "abc").await.unwrap();
        assert_eq!(next.wait().await.unwrap().output::<usize>("takes").unwrap(), 3);
        assert_eq!(engine.audit().await.unwrap(), []);
        engine.shutdown(Duration::from_secs(5)).await;
    })
    .await;
}

#[test]
fn a_full_disk_is_said_and_the_engine_goes_on_when_there_is_room() {
    const THIS: &str =
        "engine::disk::a_full_disk_is_said_and_the_engine_goes_on_when_there_is_room";
    let Some(folder) = std::env::var_os(CHILD) else {
        let folder = tempfile::tempdir().unwrap();
        return in_small_world(THIS, folder.path());
    };
    let folder = Path::new(&folder);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(within(async {
        let ballast = folder.join("ballast");
        // As large as all that fits into the WAL beside it: the database has to grow by that much before
        // the WAL can begin anew.
        std::fs::write(&ballast, vec![7; 3 << 20]).unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let engine = engine(&folder.join("jobs.db"), &gate).await;
        let held = engine.submit("held", ()).await.unwrap();
        let mut accepted = Vec::new();
        let error = loop {
            match engine.submit("takes", "x".repeat(100_000)).await {
                Ok(run) => accepted.push(run),
                Err(error) => break error,
            }
        };
        assert!(is_failed(&error), "{error}");
        assert!(error.to_string().contains("no room"), "{error}");
        assert!(accepted.len() > 3, "some fit");
        gate.add_permits(1);

        std::fs::remove_file(&ballast).unwrap();
        for run in accepted {
            let status = run.wait().await.unwrap();
            assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
        }
        assert_eq!(held.wait().await.unwrap().output::<String>("held").unwrap(), "let go");
        assert_eq!(engine.audit().await.unwrap(), []);
        engine.shutdown(Duration::from_secs(5)).await;
    }));
}

/// Runs a test again in a process that sees a small file system of its own at `folder`. Where the
/// machine does not let anybody mount one, it says so.
fn in_small_world(test: &str, folder: &Path) {
    let script = "mount -t tmpfs -o size=6m none \"$0\" && exec \"$@\"";
    let small = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(folder);
        command.args(arguments).env(CHILD, folder).output()
    };
    if !small(&["true"]).is_ok_and(|tried| tried.status.success()) {
        eprintln!("this machine lets nobody mount a small file system: not tried");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let output = small(&[program, test, "--exact", "--test-threads=1"]).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_refused_by_name_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "not a database, but long enough to be looked at as one").unwrap();
    let missing = folder.path().join("missing/jobs.db");
    for (path, words) in [
        (&text, "is not a database"),
        (&missing, "does not exist; create it first"),
        (&folder.path().to_owned(), "is a folder"),
    ] {
        let error =
            Engine::builder(format!("sqlite:{}", path.display())).start().await.unwrap_err();
        assert!(matches!(error, StartError::Open(_)), "{error:?}");
        let said = error.to_string();
        assert!(said.contains(words) && said.contains(path.to_str().unwrap()), "{said}");
    }
    let kept = std::fs::read_to_string(&text).unwrap();
    assert!(kept.starts_with("not a database"));
    for address in ["sqlite:", "sqlite:x?synchronous=off", "jobs.db", "mysql://x"] {
        let error = Engine::builder(address).start().await.unwrap_err();
        assert!(matches!(error, StartError::Address { .. }), "{error:?}");
        assert!(error.to_string().contains("sqlite:PATH"), "{error}");
    }
}
