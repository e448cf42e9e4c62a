//! A worker that is shut down beside others: what becomes of its tasks, and that nothing of it is left.

use super::super::scene::{look, until_is};
use super::*;
use std::collections::BTreeSet;
use tidegate::engine::{Happened, Kind};

/// How a worker is told to end.
enum Ends {
    ByOrder,
    ByTerm,
}

async fn hands_over(ends: Ends) {
    let scene = Scene::new(Learns::ByBell).await;
    let mut first = Worker::start_with(scene.path(), Learns::ByBell, 2, "default").await;
    let deferred = scene.submit("wait", "deferred").await;
    until_is(&deferred, "wait", Kind::Deferred).await;
    let (short, long) = (scene.submit("hold", "short").await, scene.submit("hold", "long").await);
    for name in ["short", "long"] {
        scene.place.noted("begins", name, 1).await;
    }
    let ahead = scene.submit("hold", "ahead").await;
    until_is(&ahead, "hold", Kind::Claimed).await;

    let mut second = Worker::start_with(scene.path(), Learns::ByBell, 2, "default").await;
    match ends {
        Ends::ByOrder => first.tell("close 5000"),
        Ends::ByTerm => first.signal(Signal::TERM),
    }
    // What has not begun and what waits goes on at once, by the bell alone.
    scene.place.noted("begins", "ahead", 1).await;
    scene.place.noted("begins", "deferred", 2).await;
    for run in [&short, &long] {
        assert_eq!(look(run, "hold").await.kind, Kind::Active, "it is still where it was");
    }
    for name in ["short", "ahead", "deferred"] {
        scene.place.open(name);
    }
    // What is too long is told, and goes on at the other worker when it was dropped.
    scene.place.noted("told", "long", 1).await;
    scene.place.noted("begins", "long", 2).await;
    let said = first.says("closed").await;
    let handed_back: BTreeSet<String> =
        [&deferred, &long, &ahead].map(|run| run.id().to_string()).into();
    let handed_back = Vec::from_iter(handed_back).join(",");
    assert_eq!(said, format!("closed 1 [{handed_back}] [{}]", long.id()));
    scene.place.open("long");

    let (there, here) = (first.id(), second.id());
    for (run, task, by) in [
        (&short, "hold", there),
        (&long, "hold", here),
        (&ahead, "hold", here),
        (&deferred, "wait", here),
    ] {
        let ended = run.wait().await.unwrap();
        assert_eq!(ended.output::<u32>(task).unwrap(), by);
        assert_eq!(ended.tasks[0].attempt, 1, "nothing is marked failed because a process stopped");
    }
    use Happened::{HandedBack, Succeeded};
    for (run, wanted) in [
        (&short, vec![Succeeded]),
        (&long, vec![HandedBack, Succeeded]),
        (&deferred, vec![HandedBack, Succeeded]),
        (&ahead, vec![Succeeded]),
    ] {
        let happened: Vec<_> = run.events().await.unwrap().iter().map(|it| it.what).collect();
        assert_eq!(happened, wanted);
    }
    assert!(first.says("bare").await == "bare" && first.child.wait().unwrap().success());
    scene.is_sound().await;
    second.tell("close 0");
    second.says("bare").await;
    scene.client.shutdown(Duration::ZERO).await;
    assert_eq!(left_by_workers(scene.path()), ["turnstile"], "neither locks nor bells are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_closes_hands_over_to_another() {
    within(hands_over(Ends::ByOrder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_application_is_told_to_end_hands_over_to_another() {
    within(hands_over(Ends::ByTerm)).await;
}

/// Events that are kept for somebody who does not read them, at least.
const KEPT: u64 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_never_reads_holds_nobody_up_and_learns_what_it_missed() {
    const TASKS: u64 = 1_500;
    let scene = Scene::new(Learns::Both).await;
    let mut worker = Worker::start(scene.path(), Learns::Both).await;
    worker.tell("listen");
    let runs = scene.client.submit_many("note", (0..TASKS).map(|n| n.to_string())).await.unwrap();
    within(async {
        for run in &runs {
            succeeds(run).await;
        }
    })
    .await;
    let ends = scene.records().await;
    assert_eq!(ends.len() as u64, TASKS);
    assert!(ends.iter().all(|record| record.what == Happened::Succeeded));
    // Each task begins and ends, and so does its run.
    worker.tell(&format!("heard {}", 3 * TASKS));
    for _ in 0..2 {
        let heard = within(worker.says("heard")).await;
        let heard: Vec<u64> = heard.split(' ').skip(1).map(|n| n.parse().unwrap()).collect();
        assert_eq!(heard[0] + heard[1], 3 * TASKS);
        assert!((KEPT..2 * KEPT).contains(&heard[0]), "{heard:?}");
    }
    worker.tell("close 0");
    within(worker.says("bare")).await;
}
