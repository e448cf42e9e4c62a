//! Copies of a store that is in use.

use super::support::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Context, Engine, EngineBuilder, Task, TaskError, Workflow};
use tokio::sync::Semaphore;

const SOON: Duration = Duration::from_secs(5);

/// A body that ends when it is let go.
struct Let(Arc<Semaphore>);

async fn held(context: &mut Context) -> Result<String, TaskError> {
    let gate = context.state::<Let>()?;
    gate.0.acquire().await?.forget();
    Ok("let go".to_owned())
}

fn on(path: &Path) -> EngineBuilder {
    Engine::builder(format!("sqlite:{}", path.display())).slots(1)
}

async fn holding(path: &Path, permits: usize) -> (Engine, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(permits));
    let builder = on(path).state(Let(gate.clone()));
    let builder = builder.workflow(Workflow::of(Task::new("held", held)).unwrap());
    (builder.start().await.unwrap(), gate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_on_a_copy_goes_on_where_the_original_was() {
    within(async {
        let folder = tempfile::tempdir().unwrap();
        let (engine, gate) = holding(&folder.path().join("jobs.db"), 0).await;
        let run = engine.submit("held", ()).await.unwrap();
        until("it has begun", async || engine.slots().in_use() == 1).await;
        let copy = folder.path().join("copy.db");
        engine.backup(&copy).await.unwrap();

        let (other, _gate) = holding(&copy, 1).await;
        let status = other.run(run.id()).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<String>("held").unwrap(), "let go");
        assert_eq!(status.tasks[0].entries, 2, "it was taken over and entered again");
        assert_eq!(engine.slots().in_use(), 1, "the original goes on by itself");
        gate.add_permits(1);
        assert_eq!(run.wait().await.unwrap().tasks[0].entries, 1);
        assert_eq!((engine.audit().await.unwrap(), other.audit().await.unwrap()), (vec![], vec![]));
        other.shutdown(SOON).await;
        engine.shutdown(SOON).await;
    })
    .await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_on_a_copy_leaves_the_commands_of_the_original_alone() {
    use tidegate::process::{Command, Finished};
    within(async {
        let folder = tempfile::tempdir().unwrap();
        let line = "echo $$ >> begun; until [ -e enough ]; do sleep 0.05; done; echo well";
        let waits = || Task::command("waits", Command::shell(line).dir(folder.path()));
        let begun = || {
            let pids = std::fs::read_to_string(folder.path().join("begun")).unwrap_or_default();
            pids.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let start = async |name: &str| {
            let builder = on(&folder.path().join(name));
            builder.workflow(Workflow::of(waits()).unwrap()).start().await.unwrap()
        };
        let engine = start("jobs.db").await;
        let run = engine.submit("waits", ()).await.unwrap();
        until("the command has begun", async || begun().len() == 1).await;
        engine.backup(folder.path().join("copy.db")).await.unwrap();
        let other = start("copy.db").await;
        until("the copy has begun it again", async || begun().len() == 2).await;
        let process = Path::new("/proc").join(&begun()[0]);
        assert!(process.exists() || !cfg!(target_os = "linux"), "the original goes on");
        std::fs::write(folder.path().join("enough"), "").unwrap();
        for engine in [engine, other] {
            let status = engine.run(run.id()).await.unwrap().wait().await.unwrap();
            assert_eq!(status.output::<Finished>("waits").unwrap().stdout, "well\n");
            assert_eq!(status.tasks[0].attempt, 1);
            engine.shutdown(SOON).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_store_in_memory_says_that_it_cannot_be_copied() {
    let engine = Engine::builder("memory:").start().await.unwrap();
    let error = engine.backup("copy.db").await.unwrap_err().to_string();
    assert!(error.ends_with("a store in memory cannot be backed up; use one in a file"), "{error}");
    assert!(!Path::new("copy.db").exists());
    engine.shutdown(SOON).await;
}
