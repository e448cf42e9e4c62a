//! Who works on a store, and who only looks.

use std::sync::Arc;
use std::time::Duration;
use tidegate::Engine;
use tidegate_core::memory::MemoryStore;

#[tokio::test]
async fn all_workers_of_a_store_are_listed_with_what_they_serve() {
    let store = Arc::new(MemoryStore::default());
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
