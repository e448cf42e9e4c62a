//! A run can be cancelled from another process wherever its tasks stand: it is over for good, costs no
//! slot, and whoever waits for it is told, here and there.

use super::super::scene::{look, until_is};
use super::*;
use tidegate::engine::{Kind, Reason};

/// A worker with one slot, and somebody in it.
async fn occupied(learns: Learns) -> (Scene, Worker, Run) {
    let scene = Scene::new(learns).await;
    let worker = Worker::start_with(scene.path(), learns, 1, "default").await;
    let other = scene.submit("hold", "other").await;
    scene.place.noted("begins", "other", 1).await;
    (scene, worker, other)
}

/// A worker with two slots that are free.
async fn idle(learns: Learns) -> (Scene, Worker) {
    let scene = Scene::new(learns).await;
    let worker = Worker::start(scene.path(), learns).await;
    (scene, worker)
}

/// Cancels a run from this process: it is over at once, and both processes are told.
async fn cancel(worker: &mut Worker, run: &Run) {
    worker.tell(&format!("wait {}", run.id()));
    worker.says("waits").await;
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.wait().await.unwrap() }
    });
    assert!(run.cancel().await.unwrap());
    let over = run.status().await.unwrap();
    assert_eq!(over.outcome(), Some(RunOutcome::Cancelled));
    let last = over.tasks.last().unwrap();
    assert_eq!((last.kind, last.reason), (Kind::Cancelled, Some(Reason::User)));
    assert_eq!(waiting.await.unwrap().outcome(), Some(RunOutcome::Cancelled));
    let told = worker.says(&format!("ended {}", run.id())).await;
    assert!(told.ends_with(" cancelled"), "{told}");
}

/// The worker has all its slots for others, and the run is as it was.
async fn stays_cancelled(scene: &Scene, run: &Run, slots: usize) {
    let before = run.status().await.unwrap();
    let names: Vec<String> = (0..slots).map(|n| format!("after {n}")).collect();
    let runs = scene.client.submit_many("hold", &names).await.unwrap();
    // All of them at once, since none ends before.
    for name in &names {
        scene.place.noted("begins", name, 1).await;
    }
    names.iter().for_each(|name| scene.place.open(name));
    for run in &runs {
        succeeds(run).await;
    }
    assert_eq!(run.status().await.unwrap(), before);
    assert!(before.tasks.iter().all(|task| task.kind != Kind::Succeeded));
    scene.is_sound().await;
}

/// The one who was in the slot ends.
async fn leaves(scene: &Scene, other: &Run) {
    scene.place.open("other");
    succeeds(other).await;
}

however_it_learns! {
    async fn while_it_is_blocked(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let run = scene.submit("chain", "run").await;
        scene.place.noted("begins", "run", 1).await;
        assert_eq!(look(&run, "second").await.kind, Kind::Blocked);
        cancel(&mut worker, &run).await;
        stays_cancelled(&scene, &run, 2).await;
        scene.place.open("run");
        assert_eq!(scene.place.count("begins", "run"), 1);
    }

    async fn while_it_queues(learns: Learns) {
        let (scene, mut worker, other) = occupied(learns).await;
        let ahead = scene.submit("hold", "ahead").await;
        until_is(&ahead, "hold", Kind::Claimed).await;
        let run = scene.submit("hold", "run").await;
        assert_eq!(look(&run, "hold").await.kind, Kind::Ready);
        cancel(&mut worker, &run).await;
        scene.place.open("ahead");
        leaves(&scene, &other).await;
        succeeds(&ahead).await;
        stays_cancelled(&scene, &run, 1).await;
        assert_eq!(scene.place.count("begins", "run"), 0);
    }

    async fn while_it_is_claimed_and_not_begun(learns: Learns) {
        let (scene, mut worker, other) = occupied(learns).await;
        let run = scene.submit("hold", "run").await;
        until_is(&run, "hold", Kind::Claimed).await;
        cancel(&mut worker, &run).await;
        worker.tell("line");
        worker.says("nobody is in line").await;
        leaves(&scene, &other).await;
        stays_cancelled(&scene, &run, 1).await;
        assert_eq!(scene.place.count("begins", "run"), 0);
    }

    async fn while_it_is_in_its_back_off(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let run = scene.submit("fails", "run").await;
        until("it has failed once", async || look(&run, "fails").await.attempt == 2).await;
        cancel(&mut worker, &run).await;
        stays_cancelled(&scene, &run, 2).await;
    }

    async fn while_it_is_behind_a_limit(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let other = scene.submit("limited", "other").await;
        scene.place.noted("begins", "other", 1).await;
        let run = scene.submit("limited", "run").await;
        let behind = async || scene.client.limits().await.unwrap().iter().any(|it| it.waiting == 1);
        until("it stands behind the limit", behind).await;
        cancel(&mut worker, &run).await;
        leaves(&scene, &other).await;
        stays_cancelled(&scene, &run, 2).await;
        assert_eq!(scene.place.count("begins", "run"), 0);
    }

    async fn while_it_computes(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let run = scene.submit("hold", "run").await;
        scene.place.noted("begins", "run", 1).await;
        cancel(&mut worker, &run).await;
        stays_cancelled(&scene, &run, 2).await;
    }

    async fn while_it_computes_under_a_limit(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let run = scene.submit("limited", "run").await;
        scene.place.noted("begins", "run", 1).await;
        let next = scene.submit("limited", "next").await;
        scene.place.open("next");
        cancel(&mut worker, &run).await;
        succeeds(&next).await;
        stays_cancelled(&scene, &run, 2).await;
    }

    async fn while_it_is_deferred(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let run = scene.submit("wait", "run").await;
        until_is(&run, "wait", Kind::Deferred).await;
        cancel(&mut worker, &run).await;
        scene.place.open("run");
        stays_cancelled(&scene, &run, 2).await;
    }

    async fn while_it_waits_to_resume(learns: Learns) {
        let scene = Scene::new(learns).await;
        let mut worker = Worker::start_with(scene.path(), learns, 1, "default").await;
        let run = scene.submit("wait", "run").await;
        until_is(&run, "wait", Kind::Deferred).await;
        let other = scene.submit("hold", "other").await;
        scene.place.noted("begins", "other", 1).await;
        scene.place.open("run");
        // Its wait is over, and somebody else has the only slot.
        until_is(&run, "wait", Kind::Active).await;
        cancel(&mut worker, &run).await;
        worker.tell("line");
        worker.says("nobody is in line").await;
        leaves(&scene, &other).await;
        stays_cancelled(&scene, &run, 1).await;
    }

    async fn while_it_waits_for_a_signal(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let run = scene.submit("signalled", "run").await;
        until_is(&run, "signalled", Kind::Deferred).await;
        cancel(&mut worker, &run).await;
        assert!(run.signal("go", ()).await.is_err());
        stays_cancelled(&scene, &run, 2).await;
    }

    async fn while_it_is_parked(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let run = scene.submit("parked", "run").await;
        until_is(&run, "parked", Kind::Parked).await;
        cancel(&mut worker, &run).await;
        stays_cancelled(&scene, &run, 2).await;
        assert_eq!(scene.place.count("begins", "run"), 1);
    }

    async fn while_it_is_paused(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        assert!(scene.client.pause().await.unwrap());
        let run = scene.submit("hold", "run").await;
        assert!(run.pause().await.unwrap());
        assert!(scene.client.unpause().await.unwrap());
        cancel(&mut worker, &run).await;
        assert!(!run.unpause().await.unwrap());
        stays_cancelled(&scene, &run, 2).await;
        assert_eq!(scene.place.count("begins", "run"), 0);
    }

    async fn while_its_child_computes_at_another_worker(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let _other = Worker::start_with(scene.path(), learns, 1, "other").await;
        let run = scene.submit("parent", "child").await;
        scene.place.noted("begins", "child", 1).await;
        until_is(&run, "parent", Kind::Deferred).await;
        cancel(&mut worker, &run).await;
        stays_cancelled(&scene, &run, 2).await;
        // The child is gone as well: its worker has its only slot for another.
        scene.place.open("next");
        let next = scene.client.submit("hold", "next").queue("other").await.unwrap();
        succeeds(&next).await;
    }

    async fn while_its_command_runs(learns: Learns) {
        let (scene, mut worker) = idle(learns).await;
        let run = scene.submit("long", "run").await;
        twins::begun(scene.path(), 1).await;
        cancel(&mut worker, &run).await;
        until("it is gone", async || twins::is_gone(scene.path())).await;
        stays_cancelled(&scene, &run, 2).await;
    }
}
