//! Doing again what did not succeed.

use crate::running::until;
use crate::support::Scene;

const FILE: &str = "[run]\nname = \"job\"\n[tasks.a]\nrun = \"echo a >> done\"\n\
    [tasks.b]\nafter = [\"a\"]\nrun = \"test -e right; echo b >> done\"\n\
    [tasks.c]\nafter = [\"b\"]\nrun = \"echo c >> done\"\n";

/// Of which the second task has failed, and would not again.
fn failed() -> Scene {
    let scene = Scene::with(FILE);
    assert_eq!(scene.call(&["run"]).code, Some(1));
    scene.touch("right");
    scene
}

#[test]
fn what_did_not_succeed_is_done_again_and_the_rest_is_not() {
    for run in [&["retry"][..], &["retry", "1"], &["retry", "job"]] {
        let scene = failed();
        let answer = scene.call(run);
        assert_eq!(answer.code, Some(0), "{}", answer.err);
        assert!(answer.err.contains("\nnot run again: a\n"), "{}", answer.err);
        assert_eq!(scene.read("done"), "a\nb\nc\n");
        let answer = scene.call(&["retry"]);
        assert_eq!((answer.code, answer.out.as_str()), (Some(0), ""));
        assert!(answer.err.contains("nothing is left to do"), "{}", answer.err);
        assert_eq!(scene.read("done"), "a\nb\nc\n");
    }
}

#[test]
fn a_task_that_is_named_and_what_comes_after_it_is_done_again() {
    let scene = failed();
    scene.call(&["retry"]).succeeded();
    let answer = scene.call(&["retry", "job", "b"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(scene.read("done"), "a\nb\nc\nb\nc\n");
}

#[test]
fn from_elsewhere_too_it_is_the_file_of_the_run() {
    let scene = failed().file("elsewhere/x", "");
    let store = scene.path().join(".tidegate/store.db");
    let answer = scene.call_in("elsewhere", &["retry", "--store", store.to_str().unwrap()]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(scene.read("done"), "a\nb\nc\n");
}

#[tokio::test]
async fn what_was_submitted_goes_back_to_its_queue() {
    let scene = Scene::with(FILE);
    let first = scene.call(&["submit", "--queue", "q"]).good();
    let answer = scene.call(&["retry"]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.err.contains("run 1 (job) has not ended; cancel it first"), "{}", answer.err);
    let worker = scene.begin(&["worker", "--queue", "q"]);
    assert_eq!(scene.call(&["wait"]).code, Some(1), "it has failed");
    scene.touch("right");
    let second = scene.call(&["retry"]).good();
    assert_ne!(first, second);
    until("it is done", || scene.read("done") == "a\nb\nc\n").await;
    assert_eq!(scene.call(&["wait", second.trim()]).code, Some(0));
    worker.signal("TERM");
    assert_eq!(worker.end().code, Some(0));
}

#[test]
fn what_cannot_be_done_again_is_said() {
    let scene = failed();
    let answer = scene.call(&["retry", "job", "bb"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.err.contains("\"bb\", which is no task of the file"), "{}", answer.err);
    let answer = scene.call(&["retry", "jab"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    scene.call(&["each", "false", ":::", "x"]);
    let answer = scene.call(&["retry"]);
    assert_eq!(answer.code, Some(2), "{}", answer.err);
    assert!(answer.err.contains("give them again with tidegate each --resume="), "{}", answer.err);
    assert_eq!(scene.read("done"), "a\n");
}
