//! What signals do to a run, and that nothing of it is left.

use crate::running::{LONG, until};
use crate::support::Scene;
use std::time::{Duration, Instant};
use tidegate::Engine;
use tidegate::engine::RunsPage;

/// Something long, and what comes after.
fn scene() -> Scene {
    Scene::with(&format!(
        "[tasks.first]\nrun = \"echo first >> done\"\n\
         [tasks.long]\nafter = [\"first\"]\nrun = \"\"\"{LONG}; echo long >> done\"\"\"\n\
         [tasks.last]\nafter = [\"long\"]\nrun = \"echo last >> done\"\n"
    ))
}

fn goes_on(scene: &Scene) {
    scene.touch("enough");
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert!(answer.err.contains("\nnot run again: first"), "{}", answer.err);
    assert_eq!(scene.read("done"), "first\nlong\nlast\n");
    assert_eq!(scene.read("twins"), "");
}

#[tokio::test]
async fn an_interrupt_ends_a_command_that_will_not_and_the_run_can_go_on() {
    let scene = scene().file("stubborn", "");
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    running.signal("INT");
    let answer = running.end();
    assert_eq!(answer.code, Some(130), "{}", answer.err);
    assert!(scene.is_gone());
    assert!(answer.err.contains("long: interrupted\n"), "{}", answer.err);
    assert!(
        answer.err.contains("\nnot finished: long, last\n1 of 3 tasks succeeded in "),
        "{}",
        answer.err
    );
    assert!(
        answer.err.ends_with("\ngo on with: tidegate run tidegate.toml --resume\n"),
        "{}",
        answer.err
    );
    goes_on(&scene);
}

#[tokio::test]
async fn told_to_end_it_lets_commands_end_and_starts_nothing_new() {
    let scene = scene();
    let running = scene.begin_aloud(&["run"]);
    scene.begun(1).await;
    running.signal("TERM");
    scene.said("stopping: ").await;
    // A second copy would be told of the end only after the first: this one is still at work.
    assert!(!scene.is_gone());
    scene.touch("enough");
    assert_eq!(running.exit_code().await, Some(143), "{}", scene.read("said"));
    assert_eq!(scene.read("done"), "first\nlong\n");
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert!(answer.err.contains("\nnot run again: first, long\n"), "{}", answer.err);
    assert_eq!(scene.read("done"), "first\nlong\nlast\n");
}

#[tokio::test]
async fn told_twice_it_ends_at_once() {
    let scene = scene().file("stubborn", "");
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    running.signal("HUP");
    running.signal("TERM");
    let told = Instant::now();
    assert_eq!(running.end().code, Some(143));
    // What it would have had to end in good order.
    assert!(told.elapsed() < Duration::from_secs(30));
    assert!(scene.is_gone());
    goes_on(&scene);
}

/// The engine of another process on the store of the scene.
async fn beside(scene: &Scene) -> Engine {
    let store = scene.path().join(".tidegate/store.db");
    Engine::builder(format!("sqlite:{}", store.display())).connect().await.unwrap()
}

#[tokio::test]
async fn a_run_that_somebody_cancels_is_exit_code_3() {
    let scene = scene();
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    let engine = beside(&scene).await;
    let run = engine.runs(RunsPage::default()).await.unwrap()[0].id;
    assert!(engine.run(run).await.unwrap().cancel().await.unwrap());
    engine.shutdown(Duration::ZERO).await;
    let answer = running.end();
    assert_eq!(answer.code, Some(3), "{}", answer.err);
    assert!(scene.is_gone());
    assert!(answer.err.contains("\ncancelled: long, last\n"), "{}", answer.err);
}

#[tokio::test]
async fn a_command_that_waits_for_a_signal_runs_when_it_has_come() {
    let scene = Scene::with("[tasks.a]\nwait_for = { signal = \"go\" }\nrun = \"echo went\"\n");
    let running = scene.begin(&["run"]);
    until("there is a store", || scene.has(".tidegate/store.db")).await;
    let engine = beside(&scene).await;
    let run = loop {
        if let Some(run) = engine.runs(RunsPage::default()).await.unwrap().first() {
            break run.id;
        }
        tokio::task::yield_now().await;
    };
    engine.signal(run, "go", ()).await.unwrap();
    engine.shutdown(Duration::ZERO).await;
    assert_eq!(running.end().succeeded(), "went\n");
}
