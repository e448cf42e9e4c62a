//! Who is rung when somebody else has done something, and what for.

use crate::support::{claim, enlist, enlist_for, new_run, open, plan, request, submit, take};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::task::Poll;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Change, Operation, Request, Scope, Store, Wakeup};
use tidegate_core::wait::{Awaited, NewSignal, WaitId, WaitKind, WaitOp};
use tidegate_sqlite::SqliteStore;

/// The flag of Linux for files whose reads and writes do not block.
const O_NONBLOCK: i32 = 0o4000;

const WORD: Wakeup = Wakeup { is_notified: true, has_ready: false, has_ended: false };
const READY: Wakeup = Wakeup { is_notified: false, has_ready: true, has_ended: false };
const ENDED: Wakeup = Wakeup { is_notified: false, has_ready: false, has_ended: true };

async fn news(store: &SqliteStore, worker: WorkerId) -> Wakeup {
    let heard =
        tokio::time::timeout(std::time::Duration::from_secs(30), store.wait_for_wakeup(worker));
    heard.await.expect("the bell rings").unwrap()
}

/// Whether nothing has rung. Whoever asks has just heard something that was rung later.
async fn is_quiet(store: &SqliteStore, worker: WorkerId) -> bool {
    let mut heard = store.wait_for_wakeup(worker);
    std::future::poll_fn(|cx| Poll::Ready(heard.as_mut().poll(cx).is_pending())).await
}

#[tokio::test]
async fn whoever_can_run_what_became_ready_is_rung_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let serves = enlist_for(&one, &["default"], &["w"]).await;
    let elsewhere = enlist_for(&one, &["other"], &["w"]).await;
    let knows_not = enlist_for(&one, &["default"], &["other"]).await;
    submit(&two, b"in").await.unwrap();
    assert_eq!(news(&one, serves).await, READY);
    // The same transaction would have rung them.
    assert!(is_quiet(&one, elsewhere).await && is_quiet(&one, knows_not).await);
    // Whose request it is is not rung for what it takes itself, and others not for what was taken.
    let mut taken = request();
    (taken.worker, taken.submits) = (Some(serves), vec![new_run(&plan("w"), b"in")]);
    (taken.claim.units, taken.claim.heaviest) = (4, 4);
    assert_eq!(take(&one, taken).await.unwrap().claimed.len(), 2);
    submit(&two, b"in").await.unwrap();
    assert_eq!(news(&one, serves).await, READY);
    assert!(is_quiet(&one, elsewhere).await);
}

#[tokio::test]
async fn a_worker_is_rung_when_its_task_is_cancelled_and_everybody_when_a_run_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let owner = enlist_for(&one, &["default"], &["w"]).await;
    let waits = enlist_for(&two, &[], &["w"]).await;
    let run = submit(&two, b"in").await.unwrap();
    assert_eq!(news(&one, owner).await, READY);
    assert_eq!(claim(&one, owner, 1).await.len(), 1);
    let mut cancel = request();
    cancel.operations = vec![Operation::Cancel(run)];
    take(&two, cancel).await.unwrap();
    assert_eq!(news(&one, owner).await, Wakeup { has_ended: true, ..WORD });
    assert_eq!(news(&two, waits).await, ENDED);
    let told = claim(&one, owner, 1).await;
    assert!(told.is_empty() && is_quiet(&one, owner).await, "it was told once");
}

#[tokio::test]
async fn a_worker_is_rung_for_a_signal_to_its_task_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let owner = enlist(&one).await;
    let other = enlist(&one).await;
    let run = submit(&one, b"in").await.unwrap();
    assert_eq!((news(&one, owner).await, news(&one, other).await), (READY, READY));
    let [task] = &claim(&one, owner, 1).await[..] else { panic!("it is claimed") };
    let mut waits = request();
    waits.worker = Some(owner);
    let id = WaitId::new(WaitKind::Signal, "go", 0);
    let (what, releasing) = (Awaited::Signal, Vec::new());
    let begin = WaitOp::Begin { id, label: "".into(), due: None, what, releasing };
    waits.changes =
        vec![Change { waits: vec![begin], ..Change::none(task.key, task.index, task.life.fence) }];
    take(&one, waits).await.unwrap();
    let mut sends = request();
    let signal = NewSignal { id: 1, run, name: "go".into(), body: None };
    sends.operations = vec![Operation::Signal(signal)];
    take(&two, sends).await.unwrap();
    assert_eq!(news(&one, owner).await, WORD);
    assert!(is_quiet(&one, other).await);
}

#[tokio::test]
async fn whoever_could_run_what_was_paused_is_rung_when_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let serves = enlist_for(&one, &["default"], &["w"]).await;
    let elsewhere = enlist_for(&one, &["other"], &["w"]).await;
    submit(&two, b"in").await.unwrap();
    assert_eq!(news(&one, serves).await, READY);
    for (scope, is_for_all) in [(Scope::Queue("default".to_owned()), false), (Scope::Store, true)] {
        for operation in [Operation::Pause(scope.clone()), Operation::Unpause(scope)] {
            take(&two, Request { operations: vec![operation], ..request() }).await.unwrap();
        }
        assert_eq!(news(&one, serves).await, READY);
        if is_for_all {
            assert_eq!(news(&one, elsewhere).await, READY);
        } else {
            assert!(is_quiet(&one, elsewhere).await);
        }
    }
}

#[tokio::test]
async fn who_has_gone_is_not_rung_and_leaves_no_bell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let (goes, stays) = (enlist(&one).await, enlist(&one).await);
    submit(&two, b"in").await.unwrap();
    assert_eq!((news(&one, goes).await, news(&one, stays).await), (READY, READY));
    one.dismiss(goes).await.unwrap();
    assert!(!folder.path().join(format!("jobs.db-workers/{}.bell", goes.0)).exists());
    submit(&two, b"in").await.unwrap();
    assert_eq!(news(&one, stays).await, READY);
}

#[tokio::test]
async fn a_bell_is_heard_however_long_its_path() {
    let folder = tempfile::tempdir().unwrap();
    // Longer than the path of a socket may be.
    let long = folder.path().join("d".repeat(200));
    std::fs::create_dir(&long).unwrap();
    let (one, two) = (open(&long.join("jobs.db")), open(&long.join("jobs.db")));
    let worker = enlist(&one).await;
    let run = submit(&two, b"in").await.unwrap();
    assert_eq!(news(&one, worker).await, READY);
    take(&two, Request { operations: vec![Operation::Cancel(run)], ..request() }).await.unwrap();
    assert_eq!(news(&one, worker).await, ENDED);
}

#[tokio::test]
async fn a_bell_that_is_full_or_missing_makes_no_process_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let (one, two) = (open(&path), open(&path));
    let (full, missing) = (enlist(&one).await, enlist(&one).await);
    let bell = |worker: WorkerId| folder.path().join(format!("jobs.db-workers/{}.bell", worker.0));
    std::fs::remove_file(bell(missing)).unwrap();
    let mut pipe = OpenOptions::new();
    pipe.read(true).write(true).custom_flags(O_NONBLOCK);
    let mut pipe = pipe.open(bell(full)).unwrap();
    let ring = [1; 4_096];
    while pipe.write(&ring).is_ok() {}
    submit(&two, b"in").await.unwrap();
    assert!(news(&one, full).await.is_notified);
}
