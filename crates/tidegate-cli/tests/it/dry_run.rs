//! The plan in waves, which starts nothing.

use crate::support::{Scene, golden};
use serde_json::{Value, json};

/// Everything that a file can say.
const NIGHTLY: &str = include_str!("../nightly.toml");

fn nightly() -> Scene {
    Scene::with(NIGHTLY).file(".env.jobs", "# for the jobs\nexport TOKEN='secret'\nMODE=small\n")
}

fn names(plan: &Value, list: &str) -> Vec<String> {
    let list = plan[list].as_array().unwrap();
    list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn waves(plan: &Value) -> Vec<Vec<String>> {
    let name = |task: &Value| task["name"].as_str().unwrap().to_owned();
    let wave = |wave: &Value| wave.as_array().unwrap().iter().map(name).collect();
    plan["waves"].as_array().unwrap().iter().map(wave).collect()
}

fn plan(text: &str, arguments: &[&str]) -> Value {
    let all = [&["run", "--dry-run", "--format", "json"], arguments].concat();
    Scene::with(text).call(&all).json()
}

/// Two arms, and clean-up behind both.
const DIAMOND: &str = r#"
    [run]
    name = "diamond"
    [tasks.start]
    run = "true"
    [tasks.left]
    run = "true"
    after = ["start"]
    [tasks.further]
    run = "true"
    after = ["left"]
    [tasks.right]
    run = "true"
    after = ["start"]
    [tasks.end]
    run = "true"
    after = ["right", "further"]
    [tasks.alarm]
    run = "true"
    after = ["start"]
    when = "any_failed"
    [tasks.after_alarm]
    run = "true"
    after = ["alarm"]
"#;

#[test]
fn the_plan_is_shown_in_waves() {
    golden("golden/nightly.txt", &nightly().call(&["run", "--dry-run"]).good());
}

#[test]
fn the_plan_fits_80_columns() {
    let text = nightly().call(&["run", "--dry-run"]).good();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn the_plan_as_data_has_everything_that_the_file_says_but_secrets() {
    let text = nightly().call(&["run", "--dry-run", "--format", "json"]).good();
    assert!(!text.contains("secret"), "{text}");
    golden("golden/nightly.json", &text);
}

#[test]
fn a_dry_run_starts_nothing_and_leaves_no_file() {
    let scene = Scene::with(
        "[tasks.a]\nrun = \"touch started\"\nwait_for = { command = \"touch waited\" }\n\
         [tasks.b]\nrun = [\"touch\", \"started\"]\neach = { items = [1, 2] }\n",
    );
    let before = scene.files();
    scene.call(&["run", "--dry-run"]).good();
    scene.call(&["run", "--dry-run", "--format", "json"]).good();
    scene.call(&["run", "--dry-run", "--only", "c"]).wrong();
    assert_eq!(scene.files(), before);
}

#[test]
fn each_task_is_one_wave_behind_the_last_it_comes_after() {
    let found = waves(&plan(DIAMOND, &[]));
    let right: &[&[&str]] =
        &[&["start"], &["left", "right", "alarm"], &["further", "after_alarm"], &["end"]];
    assert_eq!(found, right);
}

#[test]
fn only_takes_tasks_and_what_they_come_after() {
    let plan = plan(DIAMOND, &["--only", "right", "left"]);
    assert_eq!(waves(&plan), [&["start"][..], &["left", "right"]]);
    assert_eq!(names(&plan, "left_out"), ["further", "end", "alarm", "after_alarm"]);
}

#[test]
fn a_skipped_task_counts_as_succeeded() {
    let plan = plan(DIAMOND, &["--skip", "left", "--skip", "start"]);
    assert_eq!(waves(&plan), [&["further", "right"][..], &["end"]]);
    assert_eq!(names(&plan, "skipped"), ["start", "left"]);
    // What it would have been an alarm for has succeeded.
    assert_eq!(names(&plan, "never"), ["alarm", "after_alarm"]);
    assert_eq!(plan["left_out"], json!([]));
}

#[test]
fn what_only_a_skipped_task_comes_after_is_not_needed() {
    let plan = plan(DIAMOND, &["--only", "further", "--skip", "left"]);
    assert_eq!(waves(&plan), [["further"]]);
    assert_eq!(names(&plan, "skipped"), ["left"]);
    assert!(names(&plan, "left_out").contains(&"start".to_owned()));
}

#[test]
fn what_is_skipped_never_run_and_left_out_is_listed() {
    let said = Scene::with(DIAMOND).call(&[
        "run",
        "--dry-run",
        "--only",
        "end",
        "after_alarm",
        "--skip",
        "start",
        "right",
    ]);
    golden("golden/chosen.txt", &said.good());
}

#[test]
fn a_choice_that_makes_no_sense_is_refused() {
    let scene = Scene::with(DIAMOND).file("other.toml", "");
    let said =
        |arguments: &[&str]| scene.call(&[&["run", "--dry-run"], arguments].concat()).wrong();
    let all = [
        said(&["--only", "furthr"]),
        said(&["--skip", "Start"]),
        said(&["--only", "nothing like it"]),
        said(&["--only", "left", "other.toml"]),
        said(&["--only", "left", "--skip", "left"]),
        said(&["--skip", "start", "left", "further", "right", "end", "alarm", "after_alarm"]),
    ];
    golden("golden/choices.txt", &all.concat());
}

#[test]
fn long_names_and_commands_stay_readable() {
    let name = "a-name-that-is-longer-than-its-column";
    let scene = Scene::with(&format!(
        "[tasks.{name}]\nrun = \"\"\"\nset -e\n  echo {}\n\"\"\"\n\
         [tasks.b]\nrun = [\"echo\", \"a b\", \"\"]\nafter = [\"{name}\"]\n",
        "x".repeat(100)
    ));
    let text = scene.call(&["run", "--dry-run"]).good();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("set -e; echo xxx") && text.contains("echo \"a b\" \"\""), "{text}");
}

#[test]
fn the_file_in_the_guide_is_right() {
    let page = include_str!("../../../../docs/command-line.md");
    let files: Vec<&str> = page.split("```toml\n").skip(1).collect();
    assert!(!files.is_empty());
    for file in files {
        let (text, _) = file.split_once("```").unwrap();
        Scene::with(text).call(&["run", "--dry-run"]).good();
    }
}
