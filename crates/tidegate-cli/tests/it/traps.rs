//! What others have fallen into, with real commands.

use crate::running::until;
use crate::support::Scene;
use std::process::Command;

#[tokio::test]
async fn four_run_at_once_and_the_fifth_begins_when_one_of_them_has_ended() {
    let task = |name: u32| {
        format!(
            "[tasks.t{name}]\nrun = \"echo {name} >> begun; \
             while [ ! -e end{name} ]; do sleep 0.01; done\"\n"
        )
    };
    let scene = Scene::with(&(1..=5).map(task).collect::<String>());
    let running = scene.begin(&["run"]);
    let begun = || scene.read("begun").lines().count();
    until("four have begun", || begun() == 4).await;
    let show = scene.show();
    let states = show["tasks"].as_array().unwrap().iter().map(|task| task["state"].as_str());
    let active = states.clone().filter(|state| *state == Some("active")).count();
    assert_eq!((active, begun()), (4, 4), "four is the default");
    scene.touch("end3");
    until("the fifth has begun", || begun() == 5).await;
    assert_eq!(scene.read("begun").lines().last(), Some("5"));
    [1, 2, 4, 5].iter().for_each(|name| scene.touch(&format!("end{name}")));
    assert_eq!(running.end().code, Some(0));
}

#[test]
fn with_one_slot_commands_run_in_the_order_of_the_file() {
    let task = |name: u32| format!("[tasks.t{name}]\nrun = \"echo {name} >> order\"\n");
    let scene = Scene::with(&(1..=9).rev().map(task).collect::<String>());
    scene.call(&["run", "-j1"]).succeeded();
    assert_eq!(scene.read("order"), "9\n8\n7\n6\n5\n4\n3\n2\n1\n");
}

#[test]
fn how_long_a_command_has_waited_for_its_slot_is_told_apart_from_how_long_it_took() {
    let scene = Scene::with("[tasks.a]\nrun = \"sleep 0.2\"\n[tasks.b]\nrun = \"sleep 0.2\"\n");
    scene.call(&["run", "-j1"]).succeeded();
    let show = scene.show();
    let of = |task: usize, what: &str| show["tasks"][task][what].as_u64().unwrap();
    assert!(of(0, "took_ms") >= 200 && of(1, "took_ms") >= 200, "{show}");
    // It stood in line for as long as the other ran, and that is none of its own time.
    assert!(of(1, "queued_ms") >= of(0, "took_ms"), "{show}");
}

#[test]
fn a_process_that_is_left_in_the_background_with_the_output_holds_nobody_up() {
    let scene = Scene::with("[tasks.a]\nrun = \"sleep 3600 & echo $! > sleeper; echo done\"\n");
    let out = scene.call(&["run"]).succeeded();
    assert_eq!(out, "done\n");
    let sleeper = scene.read("sleeper");
    assert!(Command::new("kill").arg(sleeper.trim()).status().unwrap().success(), "it is alive");
}

#[test]
fn a_command_that_reads_finds_nothing_to_read() {
    let scene = Scene::with("[tasks.a]\nrun = \"cat; echo read\"\n");
    assert_eq!(scene.call(&["run"]).succeeded(), "read\n");
}

#[test]
fn what_commands_write_is_not_kept_in_memory() {
    // More than all that the process may have.
    let scene = Scene::with("[tasks.a]\nrun = \"head -c 400000000 /dev/zero\"\n");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 350000; exec \"$0\" run", env!("CARGO_BIN_EXE_tidegate")]);
    command.current_dir(scene.path()).env_remove("TIDEGATE_STORE");
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let shown = std::io::copy(child.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(shown, 400_000_000);
}
