//! Who works on a store, who takes part without working, and who only looks.

use std::sync::Arc;
use std::time::Duration;
use tidegate::engine::RunsPage;
use tidegate::{Context, Engine, Task, TaskError, Workflow};
use tidegate_core::memory::MemoryStore;

#[tokio::test]
async fn all_workers_of_a_store_are_listed_with_what_they_serve() {
    let store = Arc::new(MemoryStore::new());
    let open = || Engine::builder("").store(store.clone());
    let works = open().slots(3).queues(["mail", "files"]).start().await.unwrap();
    let looks = open().connect().await.unwrap();
    let workers = looks.workers().await.unwrap();
    let found: Vec<_> = workers.iter().map(|one| (&one.queues[..], one.slots, one.alive)).collect();
    let queues = ["files".to_owned(), "mail".to_owned()];
    assert_eq!(found, [(&queues[..], 3, true), (&[][..], 0, true)]);
    assert!(workers.iter().all(|worker| worker.name.starts_with("process ")));
    works.shutdown(Duration::ZERO).await;
    assert_eq!(looks.workers().await.unwrap().len(), 1, "whoever has stopped is gone");
    looks.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn whoever_only_looks_sees_everything_and_changes_nothing() {
    async fn lasts(_: &mut Context) -> Result<(), TaskError> {
        std::future::pending().await
    }
    let store = Arc::new(MemoryStore::new());
    let open = || Engine::builder("").store(store.clone());
    let workflow = Workflow::of(Task::new("lasts", lasts)).unwrap();
    let works = open().workflow(workflow).start().await.unwrap();
    let run = works.submit("lasts", ()).await.unwrap();
    let looks = open().look().await.unwrap();
    let workers = looks.workers().await.unwrap();
    assert_eq!(workers.len(), 1, "it is no worker itself");
    let seen = looks.run(run.id()).await.unwrap();
    assert_eq!(seen.status().await.unwrap(), run.status().await.unwrap());
    assert_eq!(looks.runs(RunsPage::default()).await.unwrap().len(), 1);
    let explained = looks.explain(run.id(), "lasts").await.unwrap();
    assert_eq!(explained.reasons, works.explain(run.id(), "lasts").await.unwrap().reasons);
    // What needs a worker is refused, at once.
    assert!(looks.submit("lasts", ()).await.is_err());
    assert!(seen.cancel().await.is_err());
    assert!(seen.signal("x", ()).await.is_err());
    assert!(seen.wait().await.is_err());
    assert!(looks.pause().await.is_err());
    // Nothing is taken over from the dead.
    store.kill(workers[0].id);
    assert!(!looks.workers().await.unwrap()[0].alive);
    looks.shutdown(Duration::from_secs(60)).await;
    assert_eq!(looks.workers().await.unwrap().len(), 1);
}
