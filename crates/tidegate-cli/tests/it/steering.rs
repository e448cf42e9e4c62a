//! Steering runs from another process: cancel, signal, pause, limits, and waiting for the end.

use crate::running::{LONG, until};
use crate::support::Scene;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

/// Lasts like [`LONG`], beside it.
const ALSO: &str = "exec 8>also; flock -n 8; while [ ! -e enough ]; do sleep 0.02; done";

/// A process that waits for a run, once it says that it does.
fn waits(scene: &Scene, arguments: &[&str]) -> Child {
    let mut command = scene.command("", &[&["wait"], arguments].concat());
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("waits for run "), "{line}");
    child
}

fn states(shown: &Value) -> Vec<(&str, &str)> {
    let tasks = shown["tasks"].as_array().unwrap().iter();
    tasks.map(|task| (task["name"].as_str().unwrap(), task["state"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn a_cancelled_run_is_over_wherever_its_tasks_stood_and_whoever_waits_is_told() {
    let scene = Scene::with(&format!(
        r#"
        [run]
        name = "test"
        parallel_limit = 2
        [limits]
        one = 1
        [tasks.active]
        limits = ["one"]
        run = """{LONG}"""
        [tasks.backs_off]
        retries = 1
        backoff = "1h"
        run = "exit 1"
        [tasks.waits]
        wait_for = {{ file = "never", every = "1s" }}
        run = "touch never-run"
        [tasks.sleeps]
        wait_for = {{ delay = "2h" }}
        run = "touch never-run"
        [tasks.also]
        run = """{ALSO}"""
        [tasks.items]
        each = {{ items = ["a", "b", "c"] }}
        run = "touch never-run"
        [tasks.queued]
        run = "touch never-run"
        [tasks.ahead]
        run = "touch never-run"
        [tasks.behind]
        run = "touch never-run"
        [tasks.limited]
        limits = ["one"]
        run = "touch never-run"
        [tasks.blocked]
        after = ["active"]
        run = "touch never-run"
        [tasks.tidy]
        after = ["blocked"]
        when = "all_done"
        run = "touch never-run"
        "#
    ));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    until("the other lasts too", || scene.has("also")).await;
    for (task, state) in [
        ("active", "active"),
        ("backs_off", "ready"),
        ("waits", "deferred"),
        ("sleeps", "parked"),
        ("also", "active"),
        ("behind", "ready"),
        ("limited", "ready"),
        ("blocked", "blocked"),
    ] {
        scene.stands(task, state).await;
    }
    let waits = waits(&scene, &["test"]);
    assert_eq!(scene.call(&["cancel"]).good(), "run 1 (test) is cancelled\n");
    let shown = scene.show();
    assert_eq!(shown["run"]["state"], "cancelled");
    for (task, state) in states(&shown) {
        assert_eq!(state, "cancelled", "{task}");
    }
    let answer = running.end();
    assert_eq!(answer.code, Some(3), "{}", answer.err);
    assert_eq!(waits.wait_with_output().unwrap().status.code(), Some(3));
    assert!(scene.is_gone() && File::open(scene.path().join("also")).unwrap().try_lock().is_ok());
    assert!(!scene.has("never-run"));
    // It stays so.
    assert_eq!(scene.call(&["cancel", "1"]).good(), "run 1 (test) was cancelled already\n");
    assert_eq!(scene.call(&["wait"]).code, Some(3));
    assert_eq!(
        scene.call(&["list", "--open", "--format", "json"]).json()["runs"],
        Value::Array(vec![])
    );
    assert_eq!(scene.call(&["limits", "--format", "json"]).json()["limits"][0]["in_use"], 0);
    scene.call(&["store", "check"]).good();
}

#[tokio::test]
async fn a_paused_run_can_be_cancelled() {
    let scene = Scene::with(&format!(
        "[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n[tasks.next]\nafter = [\"long\"]\nrun = \"touch next\"\n"
    ));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    scene.call(&["pause"]).good();
    scene.touch("enough");
    scene.stands("next", "ready").await;
    scene.call(&["cancel"]).good();
    assert_eq!(running.end().code, Some(3));
    assert!(!scene.has("next") && scene.is_gone());
    assert_eq!(scene.state_of("next"), "cancelled");
}

#[tokio::test]
async fn of_a_run_whose_process_has_died_nothing_is_left_after_its_cancel_and_looking_changes_nothing()
 {
    let scene =
        Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n")).file("stubborn", "");
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    running.signal("KILL");
    let died = || scene.show()["tasks"][0]["process_died"] == true;
    until("its process has died", died).await;
    for arguments in [&["list"][..], &["show"], &["why"], &["logs"], &["limits"], &["doctor"]] {
        assert_eq!(scene.call(arguments).code, Some(0), "{arguments:?}");
    }
    assert!(died() && !scene.is_gone(), "whoever looks takes nothing over");
    let text = scene.call(&["show"]).good();
    assert!(text.contains("\n  its process has died (worker "), "{text}");
    let why = scene.call(&["why", "--format", "json"]).json();
    let reasons = why["tasks"][0]["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|why| why["reason"] == "process_died"), "{reasons:?}");
    assert!(scene.call(&["why"]).good().contains("has died; whoever next works on the store"));
    scene.call(&["cancel"]).good();
    assert!(scene.is_gone(), "its command is ended, which does not stop by itself");
    assert_eq!(scene.state_of("long"), "cancelled");
    scene.call(&["doctor"]).good();
    running.kill();
}

#[tokio::test]
async fn that_nobody_works_on_an_open_run_is_seen() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    assert!(!scene.call(&["show"]).good().contains("nobody works on it"));
    running.signal("INT");
    assert_eq!(running.end().code, Some(130));
    let shown = scene.call(&["show"]).good();
    assert!(
        shown.contains("\n  nobody works on it: no living worker serves its queue\n"),
        "{shown}"
    );
    let why = scene.call(&["why"]).good();
    assert!(why.contains("no living worker serves queue"), "{why}");
}

#[tokio::test]
async fn a_signal_lets_a_wait_go_on_also_if_it_comes_first() {
    let scene = Scene::with(&format!(
        "[tasks.gate]\nwait_for = {{ signal = \"approve\" }}\nrun = \"touch gate\"\n\
         [tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n\
         [tasks.later]\nafter = [\"long\"]\nwait_for = {{ signal = \"early\" }}\nrun = \"touch later\"\n"
    ));
    let running = scene.begin(&["run"]);
    scene.stands("gate", "deferred").await;
    scene.begun(1).await;
    assert_eq!(scene.reasons("gate")[0]["what"], "signal approve");
    let said = scene.call(&["signal", "1", "approve", r#"{"by": "me"}"#]).good();
    assert!(said.starts_with("signal approve is sent to run 1 ("), "{said}");
    scene.stands("gate", "succeeded").await;
    scene.call(&["signal", "1", "early"]).good();
    scene.touch("enough");
    assert_eq!(running.end().code, Some(0));
    assert!(scene.has("gate") && scene.has("later"));
}

#[tokio::test]
async fn what_is_paused_starts_nothing_until_it_goes_on() {
    for scope in ["run", "queue", "store"] {
        let scene = Scene::with(&format!(
            "[run]\nname = \"test\"\n[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n\
             [tasks.next]\nafter = [\"long\"]\nrun = \"touch next\"\n"
        ));
        let running = scene.begin(&["run"]);
        scene.begun(1).await;
        let queue = scene.show()["run"]["queue"].as_str().unwrap().to_owned();
        let (which, called) = match scope {
            "run" => (vec!["test"], "run 1 (test)".to_owned()),
            "queue" => (vec!["--queue", &queue], format!("queue \"{queue}\"")),
            _ => (vec!["--all"], "the store".to_owned()),
        };
        let call = |what: &str| scene.call(&[&[what], &which[..]].concat()).good();
        assert_eq!(call("pause"), format!("{called} is paused; what has begun goes on\n"));
        assert_eq!(call("pause"), format!("{called} was paused already\n"));
        scene.touch("enough");
        scene.stands("next", "ready").await;
        let reasons = scene.reasons("next");
        assert!(reasons.iter().any(|why| why["reason"] == "paused"), "{reasons:?}");
        assert!(!scene.has("next"));
        assert_eq!(call("unpause"), format!("{called} goes on\n"));
        assert_eq!(running.end().code, Some(0));
        assert!(scene.has("next"));
        assert_eq!(call("unpause"), format!("{called} was not paused\n"));
    }
}

#[tokio::test]
async fn a_limit_is_changed_under_a_run_that_is_alive() {
    let scene = Scene::with(&format!(
        "[limits]\napi = 1\nslow = {{ rate = \"1/1h\" }}\n\
         [tasks.long]\nlimits = [\"api\"]\nrun = \"\"\"{LONG}\"\"\"\n\
         [tasks.next]\nlimits = [\"api\"]\nrun = \"touch next\"\n\
         [tasks.first]\nlimits = [\"slow\"]\nrun = \"touch first\"\n\
         [tasks.second]\nlimits = [\"slow\"]\nrun = \"touch second\"\n"
    ));
    let running = scene.begin(&["run", "-j4"]);
    scene.begun(1).await;
    scene.stands("next", "ready").await;
    scene.stands("first", "succeeded").await;
    assert_eq!(scene.reasons("next")[0]["reason"], "limit_full");
    assert_eq!(scene.reasons("second")[0]["reason"], "rate_reached");
    let set = |name, spec| scene.call(&["limits", "set", name, spec]).good();
    assert_eq!(set("api", "at_once=2"), "limit api is 2 at once (it was 1 at once)\n");
    assert_eq!(set("api", "2"), "limit api is 2 at once already\n");
    scene.stands("next", "succeeded").await;
    assert_eq!(
        set("slow", "at_once=3,rate=2/1h"),
        "limit slow is 3 at once and 2 in 3600s (it was 1 in 3600s)\n"
    );
    scene.stands("second", "succeeded").await;
    assert_eq!(scene.state_of("long"), "active");
    scene.touch("enough");
    assert_eq!(running.end().code, Some(0));
}

#[tokio::test]
async fn whoever_waits_in_another_process_exits_as_the_run_does() {
    for (ends, code, state) in [("true", 0, "succeeded"), ("false", 1, "failed")] {
        let scene = Scene::with(&format!(
            "[run]\nname = \"test\"\n[tasks.long]\nrun = \"\"\"{LONG}; {ends}\"\"\"\n"
        ));
        let running = scene.begin(&["run"]);
        scene.begun(1).await;
        let late = scene.call(&["wait", "--timeout", "20ms"]);
        assert_eq!((late.code, late.out.as_str()), (Some(1), ""));
        assert!(
            late.err.ends_with("tidegate: run 1 (test) has not ended within 20ms; it goes on\n"),
            "{}",
            late.err
        );
        let first = waits(&scene, &[]);
        let second = waits(&scene, &["1", "--timeout", "1h"]);
        scene.touch("enough");
        for child in [first, second] {
            assert_eq!(child.wait_with_output().unwrap().status.code(), Some(code));
        }
        running.end();
        let ended = scene.call(&["wait", "test"]);
        assert_eq!((ended.code, ended.err), (Some(code), format!("run 1 (test): {state}\n")));
    }
}

#[tokio::test]
async fn whoever_is_told_to_stop_waiting_stops_and_the_run_goes_on() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let waits = waits(&scene, &[]);
        let told =
            std::process::Command::new("kill").args([signal, &waits.id().to_string()]).status();
        assert!(told.unwrap().success());
        assert_eq!(waits.wait_with_output().unwrap().status.code(), Some(code));
    }
    assert_eq!(scene.state_of("long"), "active");
    scene.touch("enough");
    assert_eq!(running.end().code, Some(0));
}
