//! Copies of a store.

use crate::support::{assert_sound, claim, enlist, open, request, submit, succeeded, take};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_core::graph::RunOutcome;
use tidegate_core::store::{RunsPage, Store};

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_copy_is_a_store_of_its_own_in_which_all_workers_are_dead() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("jobs.db"));
    let worker = enlist(&store).await;
    let (begun, waiting) =
        (submit(&store, b"one").await.unwrap(), submit(&store, b"two").await.unwrap());
    let task = claim(&store, worker, 1).await.remove(0);
    let place = folder.path().join("copy.db");
    store.files().back_up(place.clone()).await.unwrap();
    let own = ["copy.db", "jobs.db", "jobs.db-shm", "jobs.db-wal", "jobs.db-workers"];
    assert_eq!(names(folder.path()), own, "nothing else is left");

    let copy = open(&place);
    assert_sound(&copy).await;
    assert_eq!(copy.run(begun).await.unwrap(), store.run(begun).await.unwrap());
    assert_eq!((copy.dead().await.unwrap(), store.dead().await.unwrap()), (vec![worker], vec![]));
    let next = enlist(&copy).await;
    assert!(next > worker, "its number is not given again");
    let mut recover = request();
    recover.recover = Some(worker);
    assert_eq!(take(&copy, recover).await.unwrap().recovered, 1);
    let tasks = claim(&copy, next, 2).await;
    assert_eq!(tasks.iter().map(|task| task.run).collect::<Vec<_>>(), [begun, waiting]);

    // What is done in one is not done in the other.
    let mut end = request();
    (end.worker, end.changes) = (Some(worker), vec![succeeded(&task)]);
    take(&store, end).await.unwrap();
    let outcome = store.run(begun).await.unwrap().unwrap().run.ended.map(|(outcome, _)| outcome);
    assert_eq!(outcome, Some(RunOutcome::Succeeded));
    assert_eq!(copy.run(begun).await.unwrap().unwrap().run.ended, None);
    assert_sound(&store).await;
    assert_sound(&copy).await;
}

#[tokio::test]
async fn a_place_that_will_not_do_is_refused_by_name_and_nothing_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    submit(&store, b"in").await.unwrap();
    let file = folder.path().join("precious");
    fs::write(&file, "do not touch").unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let before = names(folder.path());
    let cases: [(PathBuf, &str); 6] = [
        (file.clone(), "precious: there is something already; name a new file"),
        (link, "link.db: there is something already"),
        (folder.path().to_owned(), "there is something already"),
        (
            folder.path().join("no/copy.db"),
            "no/copy.db: its folder does not exist; create it first",
        ),
        (file.join("copy.db"), "its folder does not exist"),
        (folder.path().join("./jobs.db"), "that is the store itself; name another file"),
    ];
    for (to, expected) in cases {
        let error = store.files().back_up(to).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("jobs.db: it was not copied to "), "{error}");
    }
    assert_eq!(names(folder.path()), before);
    assert_eq!(fs::read(&file).unwrap(), b"do not touch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_of_one_instant_while_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder.path().join("jobs.db")));
    let done = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, done) = (store.clone(), done.clone());
        async move {
            let worker = enlist(&store).await;
            let mut written = 0;
            while !done.load(Ordering::Relaxed) {
                submit(&store, &[7; 5_000]).await.unwrap();
                let task = claim(&store, worker, 1).await.remove(0);
                let mut end = request();
                (end.worker, end.changes) = (Some(worker), vec![succeeded(&task)]);
                take(&store, end).await.unwrap();
                written += 1;
            }
            written
        }
    });
    let runs = async |store: &dyn Store| {
        let page = RunsPage { limit: u32::MAX, ..RunsPage::default() };
        store.runs(page).await.unwrap().len()
    };
    let mut seen = 0;
    for number in 0..5 {
        let before = runs(&*store).await;
        let place = folder.path().join(format!("copy-{number}.db"));
        store.files().back_up(place.clone()).await.unwrap();
        let copy = open(&place);
        assert_sound(&copy).await;
        let copied = runs(&copy).await;
        assert!(copied >= before, "what was acknowledged before is in it");
        seen = seen.max(copied);
    }
    done.store(true, Ordering::Relaxed);
    let written = writer.await.unwrap();
    assert!(seen > 0 && written >= seen, "{written} were written, {seen} copied");
    assert_sound(&store).await;
}
