//! Whatever one process does that concerns another reaches it: at once by its bell, and with its next
//! look where there is no bell.

use super::super::scene::until_is;
use super::*;
use tidegate::engine::Kind;

however_it_learns! {
    async fn a_signal_reaches_a_task_that_waits_in_another_process(learns: Learns) {
        let scene = Scene::new(learns).await;
        let _worker = Worker::start(scene.path(), learns).await;
        let run = scene.submit("signalled", "run").await;
        until_is(&run, "signalled", Kind::Deferred).await;
        run.signal("go", "hello").await.unwrap();
        let ended = run.wait().await.unwrap();
        assert_eq!(ended.output::<String>("signalled").unwrap(), "hello");
        assert_eq!(ended.tasks[0].entries, 1);
    }

    async fn a_signal_reaches_a_parked_task(learns: Learns) {
        let scene = Scene::new(learns).await;
        let mut first = Worker::start(scene.path(), learns).await;
        let run = scene.submit("parked", "run").await;
        until_is(&run, "parked", Kind::Parked).await;
        // Nobody who is alive has ever heard of it.
        let _second = Worker::start(scene.path(), learns).await;
        first.kill();
        run.signal("go", "hello").await.unwrap();
        let ended = run.wait().await.unwrap();
        assert_eq!(ended.output::<String>("parked").unwrap(), "hello");
        assert_eq!(ended.tasks[0].entries, 2);
    }

    async fn a_run_that_another_process_unpauses_starts(learns: Learns) {
        let scene = Scene::new(learns).await;
        let _worker = Worker::start(scene.path(), learns).await;
        // So that it has not begun before it is paused.
        assert!(scene.client.pause().await.unwrap());
        let run = scene.submit("note", "run").await;
        assert!(run.pause().await.unwrap());
        assert!(scene.client.unpause().await.unwrap());
        assert!(run.unpause().await.unwrap());
        succeeds(&run).await;
    }

    async fn a_queue_that_another_process_unpauses_goes_on(learns: Learns) {
        let scene = Scene::new(learns).await;
        let _worker = Worker::start(scene.path(), learns).await;
        assert!(scene.client.pause_queue("default").await.unwrap());
        let run = scene.submit("note", "run").await;
        assert!(scene.client.unpause_queue("default").await.unwrap());
        succeeds(&run).await;
    }

    async fn a_store_that_another_process_unpauses_goes_on(learns: Learns) {
        let scene = Scene::new(learns).await;
        let _worker = Worker::start(scene.path(), learns).await;
        assert!(scene.client.pause().await.unwrap());
        let run = scene.submit("note", "run").await;
        assert!(scene.client.unpause().await.unwrap());
        succeeds(&run).await;
    }

    async fn a_limit_that_another_worker_frees_lets_the_next_through(learns: Learns) {
        let scene = Scene::new(learns).await;
        let _first = Worker::start(scene.path(), learns).await;
        let second = Worker::start_with(scene.path(), learns, 2, "other").await;
        let holder = scene.submit("limited", "holder").await;
        scene.place.noted("begins", "holder", 1).await;
        let next = scene.client.submit("limited", "next").queue("other").await.unwrap();
        until_behind(&scene.client).await;
        scene.place.open("next");
        scene.place.open("holder");
        succeeds(&holder).await;
        let ended = next.wait().await.unwrap();
        assert_eq!(ended.output::<u32>("limited").unwrap(), second.id());
    }

    async fn a_limit_that_another_process_makes_larger_lets_the_next_through(learns: Learns) {
        let scene = Scene::new(learns).await;
        let _worker = Worker::start(scene.path(), learns).await;
        scene.submit("limited", "holder").await;
        scene.place.noted("begins", "holder", 1).await;
        scene.place.open("next");
        let next = scene.submit("limited", "next").await;
        until_behind(&scene.client).await;
        assert!(scene.client.set_limit(Limit::new("one").at_once(2)).await.unwrap());
        succeeds(&next).await;
    }

    async fn a_child_runs_at_another_worker_and_its_parent_is_told(learns: Learns) {
        child_of(learns, "parent").await;
    }

    async fn a_child_runs_at_another_worker_and_its_parked_parent_is_woken(learns: Learns) {
        child_of(learns, "parked parent").await;
    }

    async fn what_a_worker_that_closes_hands_back_goes_on_at_another(learns: Learns) {
        let scene = Scene::new(learns).await;
        let mut first = Worker::start(scene.path(), learns).await;
        let run = scene.submit("wait", "run").await;
        until_is(&run, "wait", Kind::Deferred).await;
        let second = Worker::start(scene.path(), learns).await;
        first.tell("close 0");
        first.says("closed").await;
        scene.place.open("run");
        assert_eq!(run.wait().await.unwrap().output::<u32>("wait").unwrap(), second.id());
    }
}

/// Waits until somebody stands behind the limit.
async fn until_behind(client: &Engine) {
    until("somebody stands behind the limit", async || {
        let limits = client.limits().await.unwrap();
        limits.iter().any(|limit| limit.waiting == 1)
    })
    .await;
}

async fn child_of(learns: Learns, workflow: &str) {
    let scene = Scene::new(learns).await;
    let _first = Worker::start(scene.path(), learns).await;
    let second = Worker::start_with(scene.path(), learns, 2, "other").await;
    let run = scene.submit(workflow, "child").await;
    scene.place.noted("begins", "child", 1).await;
    let kind = if workflow == "parent" { Kind::Deferred } else { Kind::Parked };
    until_is(&run, workflow, kind).await;
    scene.place.open("child");
    assert_eq!(run.wait().await.unwrap().output::<u32>(workflow).unwrap(), second.id());
}
