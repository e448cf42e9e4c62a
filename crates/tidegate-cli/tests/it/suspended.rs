//! Ctrl-Z, and going on.

use crate::running::{signal, until};
use crate::screen::Terminal;
use crate::support::Scene;
use std::time::{Duration, Instant};

const CTRL_Z: u8 = 26;

/// Longer than everything in the scene may take.
const STOPPED: Duration = Duration::from_millis(3_200);

/// A command and a wait that may take three seconds each.
fn scene() -> Scene {
    Scene::with(
        r#"
        [run]
        parallel_limit = 2
        [tasks.command]
        timeout = "3s"
        run = "mkfifo gate; echo $$ > process; read line < gate"
        [tasks.waits]
        wait_for = { file = "enough", every = "10ms", timeout = "3s" }
        run = "true"
        "#,
    )
}

/// Lets both end.
fn let_end(scene: &Scene) {
    scene.touch("enough");
    std::fs::write(scene.path().join("gate"), "go\n").unwrap();
}

fn is_stopped(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap();
    stat.contains(") T ")
}

#[tokio::test]
async fn ctrl_z_stops_commands_and_clocks_and_takes_the_view_away() {
    let scene = scene();
    let began = Instant::now();
    let mut terminal = Terminal::start(&scene, (80, 24), &["run"]);
    until("it has begun", || scene.read("process").ends_with('\n')).await;
    let view = "0 of 2 done, 1 running, 1 waiting";
    terminal.until("the view", |screen| screen.has(view)).await;
    terminal.press(CTRL_Z);
    let own = terminal.id().to_string();
    until("it has stopped", || is_stopped(&own)).await;
    until("its command has stopped", || is_stopped(&scene.read("process"))).await;
    terminal.until("the view is gone", |screen| !screen.has("of 2 done")).await;
    // Nothing is waited for here: it is the time for which it stands, longer than either has left, and
    // a process that is stopped has no clock that could be held.
    let stopped = Instant::now();
    tokio::time::sleep(STOPPED).await;
    let stopped = stopped.elapsed();
    terminal.signal("CONT");
    terminal.until("the view is back", |screen| screen.has(view)).await;
    until("its command goes on", || !is_stopped(&scene.read("process"))).await;
    let_end(&scene);
    let (code, screen) = terminal.end();
    let all = began.elapsed();
    let text = screen.text();
    // Neither of the two has run out of time.
    assert_eq!(code, Some(0), "{text}");
    // The time between is in no duration.
    let took = text.lines().find_map(|line| line.split_once("2 of 2 tasks succeeded in "));
    let took = tidegate::duration::parse(&rounded_down(took.unwrap().1)).unwrap();
    assert!(took <= all - stopped, "{took:?} of {all:?}, of which it was stopped {stopped:?}");
}

/// `1.9s` as a duration that is not longer.
fn rounded_down(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}s"),
        None => time.to_owned(),
    }
}

#[tokio::test]
async fn stopped_twice_and_without_a_terminal_it_goes_on_all_the_same() {
    let scene = scene();
    let running = scene.begin(&["run"]);
    until("it has begun", || scene.read("process").ends_with('\n')).await;
    for _ in 0..2 {
        running.signal("TSTP");
        until("it has stopped", || is_stopped(&running.id().to_string())).await;
        until("its command has stopped", || is_stopped(&scene.read("process"))).await;
        signal("CONT", running.id());
        until("its command goes on", || !is_stopped(&scene.read("process"))).await;
    }
    let_end(&scene);
    running.end().succeeded();
}

#[tokio::test]
async fn what_was_stopped_can_be_interrupted_when_it_goes_on() {
    let scene = scene();
    let running = scene.begin(&["run"]);
    until("it has begun", || scene.read("process").ends_with('\n')).await;
    running.signal("TSTP");
    until("it has stopped", || is_stopped(&running.id().to_string())).await;
    running.signal("INT");
    running.signal("CONT");
    let process = scene.read("process");
    assert_eq!(running.end().code, Some(130));
    assert!(std::fs::metadata(format!("/proc/{}", process.trim())).is_err(), "it is gone");
}
