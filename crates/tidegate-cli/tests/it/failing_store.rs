//! A store that cannot be used while something runs: it is said, and signals end the process.

use crate::running::{LONG, until};
use crate::screen::Terminal;
use crate::support::Scene;
use std::fs;

const STORE: &str = ".tidegate/store.db";
const FAILS: &str = "the store cannot be written: ";

fn scene() -> Scene {
    Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}; echo long >> done\"\"\"\n"))
        .file("stubborn", "")
}

/// As `git clean -fdx` in another terminal does it.
async fn delete_store(scene: &Scene) {
    let folder = scene.path().join(".tidegate");
    // A file may come while others are removed.
    until("the store is deleted", || fs::remove_dir_all(&folder).is_ok() || !folder.exists()).await;
}

#[tokio::test]
async fn two_interrupts_end_a_run_whose_store_was_deleted() {
    let scene = scene();
    let running = scene.begin_aloud(&["run"]);
    scene.begun(1).await;
    delete_store(&scene).await;
    scene.said(FAILS).await;
    scene.said("; trying again (Ctrl-C gives up)\n").await;
    running.signal("INT");
    scene.said("stopping: waiting for 1 command (Ctrl-C again to kill it)\n").await;
    assert!(!scene.is_gone());
    running.signal("INT");
    assert_eq!(running.exit_code().await, Some(130), "{}", scene.read("said"));
    assert!(scene.is_gone());
}

#[tokio::test]
async fn two_signals_end_an_each_whose_store_was_deleted() {
    let scene = scene();
    let line = format!("{LONG}; : {{}}");
    let store = scene.path().join(STORE);
    fs::create_dir(scene.path().join(".tidegate")).unwrap();
    let store = store.to_str().unwrap();
    let words = ["each", "--store", store, "-j1", "--shell", &line, ":::", "a", "b"];
    let running = scene.begin_aloud(&words);
    scene.begun(1).await;
    delete_store(&scene).await;
    running.signal("HUP");
    scene.said("stopping: waiting up to 30s for 1 command (a second signal kills it)\n").await;
    assert!(!scene.is_gone());
    running.signal("INT");
    assert_eq!(running.exit_code().await, Some(143), "{}", scene.read("said"));
    assert!(scene.is_gone());
}

#[tokio::test]
async fn one_signal_ends_a_worker_that_does_nothing_on_a_deleted_store() {
    let scene = scene();
    scene.call(&["submit", "--queue", "other"]).good();
    let running = scene.begin_aloud(&["worker", "--queue", "q"]);
    scene.said("serving q of ").await;
    delete_store(&scene).await;
    scene.said(FAILS).await;
    running.signal("TERM");
    assert_eq!(running.exit_code().await, Some(0), "{}", scene.read("said"));
    assert!(scene.read("said").ends_with("stopping\n"), "{}", scene.read("said"));
}

#[tokio::test]
async fn an_interrupted_run_gives_up_what_its_deleted_store_does_not_take() {
    let scene = scene();
    let running = scene.begin_aloud(&["run"]);
    scene.begun(1).await;
    delete_store(&scene).await;
    running.signal("INT");
    assert_eq!(running.exit_code().await, Some(130), "{}", scene.read("said"));
    assert!(scene.is_gone());
    let said = scene.read("said");
    assert!(
        said.contains("\ncannot store what became of long: the store could not do it: "),
        "{said}"
    );
    assert!(said.contains("; it will be run again\n"), "{said}");
}

#[tokio::test]
async fn a_store_that_comes_back_is_told_and_the_run_goes_on() {
    let scene = scene();
    let running = scene.begin_aloud(&["run"]);
    scene.begun(1).await;
    let away = scene.path().join("away.db");
    fs::rename(scene.path().join(STORE), &away).unwrap();
    scene.said(FAILS).await;
    scene.touch("enough");
    fs::rename(&away, scene.path().join(STORE)).unwrap();
    assert_eq!(running.exit_code().await, Some(0), "{}", scene.read("said"));
    let said = scene.read("said");
    assert_eq!(said.matches(FAILS).count(), 1, "{said}");
    assert_eq!(said.matches("\nthe store can be written again\n").count(), 1, "{said}");
    assert_eq!(scene.read("done"), "long\n");
}

#[tokio::test]
async fn the_live_view_says_that_it_is_stopping_and_a_second_key_kills() {
    let scene = scene();
    let mut terminal = Terminal::start(&scene, (80, 12), &["run"]);
    scene.begun(1).await;
    // Ctrl-C.
    terminal.press(3);
    let says = "stopping: waiting for 1 command (Ctrl-C again to kill it)";
    terminal.until("it says so", |seen| seen.text().contains(says)).await;
    assert!(!scene.is_gone());
    terminal.press(3);
    assert_eq!(terminal.end().0, Some(130));
    assert!(scene.is_gone());
}

#[test]
fn commands_on_a_damaged_store_end_with_its_error() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n");
    assert_eq!(scene.call(&["run"]).code, Some(0));
    // A copy has all in one file.
    scene.call(&["store", "backup", "copy.db"]).good();
    // The first pages are whole, so that it can be opened.
    let path = scene.path().join("copy.db");
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    bytes[8 << 10..length.min(64 << 10)].fill(0xA5);
    fs::write(&path, bytes).unwrap();
    for arguments in [
        &["doctor"][..],
        &["doctor", "--repair"],
        &["doctor", "--thorough", "--repair"],
        &["cancel"],
        &["pause", "--all"],
        &["wait"],
    ] {
        let arguments = &[arguments, &["--store", "copy.db"]].concat();
        let answer = scene.call(arguments);
        assert_eq!(answer.code, Some(4), "{arguments:?}: {}", answer.err);
        assert!(answer.err.contains("is damaged"), "{arguments:?}: {}", answer.err);
    }
}
