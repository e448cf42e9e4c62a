//! The kit itself: the list of cases is complete, and what goes wrong goes wrong as told.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::memory::MemoryStore;
use tidegate_core::store::{NewRun, Request, RequestId, Store, StoreError};
use tidegate_core::{RunId, Timestamp};
use tidegate_testkit::{FakeClock, Fault, Faulty, QUEUE, one};

/// A case that is written and not called would be worse than none.
#[test]
fn every_case_is_in_the_list() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let list = fs::read_to_string(sources.join("conformance.rs")).unwrap();
    let listed: Vec<&str> = list.lines().map(str::trim).collect();
    let mut cases = BTreeSet::new();
    for entry in fs::read_dir(sources.join("cases")).unwrap() {
        let path = entry.unwrap().path();
        let area = format!("{}:", path.file_stem().unwrap().to_str().unwrap());
        assert!(listed.contains(&area.as_str()), "{area} is in the list");
        for line in fs::read_to_string(path).unwrap().lines() {
            if let Some(rest) = line.strip_prefix("pub async fn ") {
                let name = rest.split('(').next().unwrap();
                assert!(listed.contains(&name), "{name} is in the list");
                assert!(cases.insert(name.to_owned()), "{name} is there once");
            }
        }
    }
    assert!(cases.len() > 100, "the cases are where they are looked for");
}

#[test]
fn every_race_is_in_the_list() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let list = fs::read_to_string(sources.join("races.rs")).unwrap();
    let cases = fs::read_to_string(sources.join("races/cases.rs")).unwrap();
    let names =
        cases.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 10, "the races are where they are looked for");
    for name in names {
        assert!(list.lines().any(|line| line.trim() == name), "{name} is in the list");
    }
}

fn faulty() -> (Arc<Faulty>, Arc<MemoryStore>) {
    let memory = Arc::new(MemoryStore::new());
    (Arc::new(Faulty::new(memory.clone())), memory)
}

fn submit(id: u64) -> Arc<Request> {
    let mut request = Request::new(RequestId(id), Timestamp::from_micros(0));
    request.submits.push(NewRun::new(RunId::from_u128(id.into()), one().build(), QUEUE.into()));
    Arc::new(request)
}

async fn is_there(store: &MemoryStore, id: u64) -> bool {
    store.run(RunId::from_u128(id.into())).await.expect("it can be asked for").is_some()
}

#[tokio::test]
async fn a_request_goes_wrong_once_and_as_told() {
    let (faulty, memory) = faulty();
    for (id, fault, done) in
        [(1, Fault::Fails, false), (2, Fault::LosesAnswer, true), (3, Fault::LosesQuestion, false)]
    {
        faulty.next(fault);
        let answer = faulty.request(submit(id)).await;
        match fault {
            Fault::Fails => assert!(matches!(answer, Err(StoreError::Failed(_)))),
            _ => assert!(matches!(answer, Err(StoreError::Unknown(_)))),
        }
        assert_eq!(is_there(&memory, id).await, done, "{fault:?}");
        let again = Request { again: true, ..(*submit(id)).clone() };
        assert!(faulty.request(Arc::new(again)).await.is_ok());
        assert!(is_there(&memory, id).await);
    }
    assert_eq!(faulty.pending(), 0);
}

#[tokio::test]
async fn a_fault_waits_for_the_request_it_is_meant_for() {
    let (faulty, _) = faulty();
    faulty.on(|request| request.worker.is_some(), Fault::Fails);
    assert!(faulty.request(submit(1)).await.is_ok());
    assert_eq!(faulty.pending(), 1);
    let worker = Some(tidegate_core::lifecycle::WorkerId(1));
    let request = Request { worker, ..Request::new(RequestId(2), Timestamp::from_micros(0)) };
    assert!(faulty.request(Arc::new(request)).await.is_err());
    assert_eq!(faulty.pending(), 0);
}

#[tokio::test]
async fn an_answer_is_kept_back_until_it_is_let_go() {
    let (faulty, memory) = faulty();
    let held = faulty.hold(|_| true);
    let request = {
        let faulty = faulty.clone();
        tokio::spawn(async move { faulty.request(submit(1)).await })
    };
    while !is_there(&memory, 1).await {
        tokio::task::yield_now().await;
    }
    assert!(!request.is_finished(), "it is done, and nobody knows");
    drop(held);
    assert!(request.await.unwrap().is_ok());
}

#[test]
fn a_fake_clock_goes_on_when_it_is_told_to() {
    let clock = FakeClock::default();
    let (same, start) = (clock.clone(), clock.now());
    assert_eq!(start.to_string(), "2027-01-15T08:00:00.000Z");
    assert_eq!(clock.advance(Duration::from_secs(1)), start + Duration::from_secs(1));
    assert_eq!(same.now(), start + Duration::from_secs(1));
    same.set(start);
    assert_eq!(clock.now(), start);
}
